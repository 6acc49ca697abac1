/* Nodes of video: pictures and sound into files and back, through the real helper. */
#include "base/file.h"
#include "node/clips.h"
#include "support/node_rig.h"

#include <math.h>

#define SHAPE4(a, b, c, d)                                                                         \
    4, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c, d                                                                                 \
    }

static void need_media(struct node_rig *r)
{
    r->env.media_helper = BERTH_BINARY;
    if (!media_built())
        skip();
}

/* n smooth pictures of h x w: codecs of video are made for such. */
static struct value *smooth(size_t n, size_t h, size_t w)
{
    struct value *v = rig_tensor(SHAPE4(n, h, w, 3), NULL);
    float *p = v->tensor->data;
    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < h; y++)
            for (size_t x = 0; x < w; x++)
                for (size_t c = 0; c < 3; c++)
                    *p++ = 0.5f +
                           0.4f * sinf((float)x / 20 + (float)(c + i) / 3) * cosf((float)y / 25);
    return v;
}

static struct value *tone(size_t channels, size_t n, uint32_t rate)
{
    struct htensor *w;
    berth_err err;
    assert_ok(wave_new(1, channels, n, &w, &err), err);
    for (size_t i = 0; i < channels * n; i++)
        w->data[i] = 0.4f * sinf((float)(i % n) * 0.05f);
    return value_audio(w, rate);
}

/* A VIDEO of n pictures, with sound. */
static struct value *video(struct node_rig *r, size_t n, double fps, bool sound)
{
    rig_node(r, "CreateVideo");
    rig_set(r, "images", smooth(n, 64, 96));
    rig_float(r, "fps", fps);
    if (sound)
        rig_set(r, "audio", tone(2, (size_t)(48000.0 * (double)n / fps), 48000));
    assert_ok(rig_run(r), r->err);
    return value_ref(rig_out(r, 0));
}

static const char *shown(struct node_rig *r, const char *key, size_t i, const char *what)
{
    const char *s = json_string_value(
        json_object_get(json_array_get(json_object_get(r->call.ui, key), i), what));
    if (!s)
        fail_msg("no ui.%s[%zu].%s", key, i, what);
    return s;
}

/* Saves it and gives the file as LoadVideo names it. */
static const char *save(struct node_rig *r, struct value *v, const char *format, const char *codec,
                        const char *crf)
{
    static char name[4][256];
    static int at;
    char *out = name[at++ % 4];
    rig_node(r, "SaveVideo");
    rig_set(r, "video", v);
    rig_text(r, "format", format);
    rig_text(r, "format.codec", codec);
    if (crf) {
        rig_text(r, "format.codec.encoding", "re-encode");
        rig_float(r, "format.codec.encoding.crf", strtod(crf, NULL));
        rig_text(r, "format.codec.encoding.color_space", "auto");
    }
    assert_ok(rig_run(r), r->err);
    assert_true(json_is_true(json_array_get(json_object_get(r->call.ui, "animated"), 0)));
    snprintf(out, 256, "%s/%s [output]", shown(r, "images", 0, "subfolder"),
             shown(r, "images", 0, "filename"));
    return out;
}

static struct value *load(struct node_rig *r, const char *file)
{
    rig_node(r, "LoadVideo");
    rig_text(r, "file", file);
    assert_ok(rig_run(r), r->err);
    return value_ref(rig_out(r, 0));
}

/* The outputs stay with r until the next node. */
static struct htensor *apart(struct node_rig *r, struct value *v)
{
    rig_node(r, "GetVideoComponents");
    rig_set(r, "video", v);
    assert_ok(rig_run(r), r->err);
    return rig_out(r, 0)->tensor;
}

static double farthest(const struct htensor *t, const struct htensor *u, double *mean)
{
    double most = 0, sum = 0;
    assert_int_equal(htensor_count(t), htensor_count(u));
    for (size_t i = 0; i < htensor_count(t); i++) {
        double d = fabs((double)t->data[i] - (double)u->data[i]);
        most = d > most ? d : most;
        sum += d;
    }
    *mean = sum / (double)htensor_count(t);
    return most;
}

/* Frames, sound, rates and durations, in every container and codec. */
static void clips_come_back(void **state)
{
    static const struct {
        const char *format, *codec, *crf, *ext;
    } kind[] = {
        { "auto", "auto", NULL, ".mp4" }, { "mp4", "h264", "0", ".mp4" },
        { "mkv", "auto", NULL, ".mkv" },  { "webm", "auto", NULL, ".webm" },
        { "mkv", "av1", "20", ".mkv" },
    };
    struct node_rig *r = *state;
    need_media(r);
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        struct value *was = smooth(9, 64, 96);
        double mean;
        const char *file =
            save(r, video(r, 9, 12, true), kind[i].format, kind[i].codec, kind[i].crf);
        assert_non_null(strstr(file, kind[i].ext));
        const struct htensor *t = apart(r, load(r, file));
        assert_int_equal(dim(t, 0), 9);
        assert_int_equal(dim(t, 1), 64);
        assert_int_equal(dim(t, 2), 96);
        double most = farthest(t, was->tensor, &mean);
        if (most > 0.12 || mean > 0.012)
            fail_msg("%s, %s: off by %g, on average %g", kind[i].format, kind[i].codec, most, mean);
        assert_true(fabs(rig_out(r, 2)->f - 12) < 0.001);
        assert_int_equal(rig_out(r, 3)->i, 8);
        assert_string_equal(rig_out(r, 4)->s.p, "sRGB");
        const struct audio *a = rig_out(r, 1)->object.obj;
        assert_int_equal(a->rate, 48000);
        assert_int_equal(dim(a->wave, 1), 2);
        assert_true(fabs((double)dim(a->wave, 2) - 36000) < 3000); /* codecs have blocks */
        value_unref(was);
    }
}

static void ten_bits(void **state)
{
    struct node_rig *r = *state;
    struct value *was = smooth(3, 64, 96);
    double mean;
    need_media(r);
    rig_node(r, "CreateVideo");
    rig_set(r, "images", value_ref(was));
    rig_int(r, "bit_depth", 10);
    assert_ok(rig_run(r), r->err);
    const char *file = save(r, value_ref(rig_out(r, 0)), "mkv", "h264", "0");
    farthest(apart(r, load(r, file)), was->tensor, &mean);
    assert_true(mean < 0.002); /* finer than 8 bits */
    assert_int_equal(rig_out(r, 3)->i, 10);
    assert_int_equal(rig_out(r, 1)->kind, V_NULL); /* no sound, and why */
    assert_non_null(rig_out(r, 1)->why);
    value_unref(was);
}

/* Pictures that become a video are not copied, and come apart as they were. */
static void pictures_stay_where_they_are(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "CreateVideo");
    struct value *v = smooth(2, 8, 8), *clip;
    struct htensor *t = v->tensor;
    rig_set(r, "images", v);
    rig_float(r, "fps", 29.97);
    assert_ok(rig_run(r), r->err);
    clip = value_ref(rig_out(r, 0));
    assert_ptr_equal(apart(r, clip), t);
    assert_true(rig_out(r, 2)->f == 29.97);
}

static struct value *slice(struct node_rig *r, struct value *v, double start, double duration,
                           bool strict)
{
    rig_node(r, "Video Slice");
    rig_set(r, "video", v);
    rig_float(r, "start_time", start);
    rig_float(r, "duration", duration);
    rig_bool(r, "strict_duration", strict);
    return rig_run(r) ? NULL : value_ref(rig_out(r, 0));
}

static void check_slice(struct node_rig *r, struct value *v, double start, double duration,
                        size_t frames)
{
    struct value *s = slice(r, value_ref(v), start, duration, false);
    if (!s)
        fail_msg("%g + %g: %s", start, duration, r->err.msg);
    const struct htensor *t = apart(r, s);
    if (dim(t, 0) != frames)
        fail_msg("%g + %g: %zu frames, wanted %zu", start, duration, dim(t, 0), frames);
}

static void slices(void **state)
{
    struct node_rig *r = *state;
    need_media(r);
    for (int file = 0; file < 2; file++) {
        struct value *v = video(r, 10, 10, true);
        if (file)
            v = load(r, save(r, v, "mp4", "auto", NULL));
        check_slice(r, v, 0.2, 0.5, 5);
        check_slice(r, v, 0.25, 0, 7);
        check_slice(r, v, -0.3, 0, 3);
        check_slice(r, v, 0, 1, 10);
        assert_null(slice(r, value_ref(v), 0.5, 0.8, true));
        assert_non_null(strstr(r->err.msg, "Failed to slice video"));
        struct value *part = slice(r, value_ref(v), 0.4, 0.4, true);
        apart(r, value_ref(part));
        const struct audio *a = rig_out(r, 1)->object.obj;
        assert_true(fabs((double)dim(a->wave, 2) - 0.4 * 48000) < 2);
        const struct htensor *t = apart(r, load(r, save(r, part, "mkv", "h264", NULL)));
        assert_int_equal(dim(t, 0), 4);
        value_unref(v);
    }
}

/* A file whose streams fit goes over as it is; what it was made from is kept beside what is new. */
static void files_are_copied(void **state)
{
    struct node_rig *r = *state;
    const struct media_host host = { .helper = BERTH_BINARY };
    struct media_info a, b;
    struct str path = { 0 };
    need_media(r);
    const char *file = save(r, video(r, 6, 25, true), "mp4", "h264", NULL);
    const char *copy = save(r, load(r, file), "mkv", "auto", NULL);
    assert_ok(input_path(&r->env, file, &path, &r->err), r->err);
    assert_ok(media_probe(&host, str_c(&path), &a, &r->err), r->err);
    assert_ok(input_path(&r->env, copy, &path, &r->err), r->err);
    assert_ok(media_probe(&host, str_c(&path), &b, &r->err), r->err);
    assert_string_equal(a.video_codec, b.video_codec);
    assert_string_equal(b.audio_codec, "aac");
    assert_non_null(strstr(b.format, "matroska"));
    str_release(&path);
    media_info_release(&a);
    media_info_release(&b);
}

static void webm_with_alpha(void **state)
{
    struct node_rig *r = *state;
    const struct media_host host = { .helper = BERTH_BINARY };
    struct media_info i;
    struct str path = { 0 };
    char file[128];
    need_media(r);
    for (size_t c = 3; c <= 4; c++) {
        rig_node(r, "SaveWEBM");
        rig_set(r, "images", rig_tensor(SHAPE4(3, 32, 48, c), NULL));
        rig_text(r, "codec", "vp9");
        rig_float(r, "fps", 7.5);
        assert_ok(rig_run(r), r->err);
        snprintf(file, sizeof file, "%s [output]", shown(r, "images", 0, "filename"));
        assert_ok(input_path(&r->env, file, &path, &r->err), r->err);
        assert_ok(media_probe(&host, str_c(&path), &i, &r->err), r->err);
        assert_string_equal(i.video_codec, "vp9");
        assert_true(i.webm_fits);
        assert_true(fabs((double)i.rate_num / i.rate_den - 7.5) < 0.01);
        media_info_release(&i);
    }
    str_release(&path);
}

static void what_is_refused(void **state)
{
    struct node_rig *r = *state;
    need_media(r);
    rig_node(r, "CreateVideo");
    rig_set(r, "images", smooth(1, 9, 17));
    assert_ok(rig_run(r), r->err);
    struct value *odd = value_ref(rig_out(r, 0));
    rig_node(r, "SaveVideo");
    rig_set(r, "video", odd);
    rig_text(r, "format", "mp4");
    rig_text(r, "format.codec", "auto");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "even sides, and the frames are 17x9");

    rig_node(r, "LoadVideo");
    rig_text(r, "file", "../secret.mp4");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "secret");
    assert_ok(file_write_all(tmp_path("input/words.mp4"), "words", 5, &r->err), r->err);
    struct value *v = load(r, "words.mp4");
    rig_node(r, "GetVideoComponents");
    rig_set(r, "video", value_ref(v));
    assert_fails(rig_run(r), r->err, BERTH_EFORMAT, "'words.mp4': no file of video or sound");
    r->env.media_helper = NULL;
    rig_node(r, "GetVideoComponents");
    rig_set(r, "video", v);
    assert_fails(rig_run(r), r->err, BERTH_EUNSUPPORTED, "media_helper");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clips_come_back),
        cmocka_unit_test(ten_bits),
        cmocka_unit_test(pictures_stay_where_they_are),
        cmocka_unit_test(slices),
        cmocka_unit_test(files_are_copied),
        cmocka_unit_test(webm_with_alpha),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
