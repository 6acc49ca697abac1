/* VideoHelperSuite's nodes: every format that can be written comes back, frames are chosen as it
 * chooses them. */
#include "base/file.h"
#include "node/clips.h"
#include "support/node_rig.h"

#include <math.h>
#include <unistd.h>

static void need_media(struct node_rig *r)
{
    r->env.media_helper = BERTH_BINARY;
    if (!media_built())
        skip();
}

/* n grey pictures, each lighter than the one before. */
static struct value *greys(size_t n, size_t h, size_t w, size_t c)
{
    struct value *v = rig_tensor(4, (size_t[]) { n, h, w, c }, NULL);
    for (size_t i = 0; i < htensor_count(v->tensor); i++)
        v->tensor->data[i] = 0.1f + 0.08f * (float)(i / (h * w * c));
    return v;
}

static struct value *tone(size_t n)
{
    struct htensor *w;
    berth_err err;
    assert_ok(wave_new(1, 1, n, &w, &err), err);
    return value_audio(w, 24000);
}

static const char *shown(struct node_rig *r, const char *what)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(r->call.ui, "gifs"), 0), what));
}

struct extra {
    const char *json; /* undeclared inputs */
    bool pingpong, sound;
    int loops;
};

/* Combines 5 pictures of 66 x 70 and gives the clip's name with its kind. */
static const char *combine(struct node_rig *r, const char *format, struct extra x)
{
    static char name[300];
    json_t *raw = NULL;
    assert_ok(js_parse(x.json ? x.json : "{}", strlen(x.json ? x.json : "{}"), NULL, &raw, &r->err),
              r->err);
    rig_node(r, "VHS_VideoCombine");
    rig_set(r, "images", greys(5, 66, 70, 3));
    rig_float(r, "frame_rate", 10);
    rig_text(r, "format", format);
    rig_text(r, "filename_prefix", "vhs/x");
    rig_bool(r, "pingpong", x.pingpong);
    rig_int(r, "loop_count", x.loops);
    if (x.sound)
        rig_set(r, "audio", tone(24000));
    r->call.raw = raw;
    if (rig_run(r))
        fail_msg("%s: %s", format, r->err.msg);
    json_decref(raw);
    assert_string_equal(shown(r, "format"), format);
    snprintf(name, sizeof name, "%s/%s [output]", shown(r, "subfolder"), shown(r, "filename"));
    return name;
}

static const struct htensor *load(struct node_rig *r, const char *name, const char *key, double v)
{
    rig_node(r, "VHS_LoadVideo");
    rig_text(r, "video", name);
    if (key && !strcmp(key, "force_rate"))
        rig_float(r, key, v);
    else if (key)
        rig_int(r, key, (int64_t)v);
    if (rig_run(r))
        fail_msg("%s: %s", name, r->err.msg);
    assert_int_equal(rig_out(r, 1)->i, dim(rig_out(r, 0)->tensor, 0));
    return rig_out(r, 0)->tensor;
}

/* Which of the pictures a frame is: by its grey. */
static int which(const struct htensor *t, size_t i)
{
    size_t n = dim(t, 1) * dim(t, 2) * 3;
    return (int)lrintf((t->data[i * n + n / 2] - 0.1f) / 0.08f);
}

static void expect(const struct htensor *t, size_t n, const int *order)
{
    assert_int_equal(dim(t, 0), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(which(t, i), order[i]);
}

static void formats_come_back(void **state)
{
    static const struct {
        const char *format, *extra;
    } kind[] = {
        { "video/h264-mp4", NULL },
        { "video/h264-mp4",
          "{\"pix_fmt\": \"yuv420p10le\", \"crf\": 12, \"save_metadata\": false}" },
        { "video/h265-mp4", NULL },
        { "video/webm", NULL },
        { "video/av1-webm", NULL },
        { "video/ffv1-mkv", NULL },
        { "video/ProRes", NULL },
        { "image/gif", NULL },
    };
    struct node_rig *r = *state;
    need_media(r);
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        char png[300];
        const char *name = combine(r, kind[i].format, (struct extra) { .json = kind[i].extra });
        snprintf(png, sizeof png, "output/vhs/%s", shown(r, "workflow"));
        assert_int_equal(access(tmp_path(png), F_OK), 0); /* the first picture beside it */
        const struct htensor *t = load(r, name, NULL, 0);
        assert_int_equal(dim(t, 1), 66);
        assert_int_equal(dim(t, 2), 70);
        assert_int_equal(dim(t, 0), 5);
        if (strcmp(kind[i].format, "image/gif")) /* whose palette is coarse */
            expect(t, 5, (int[]) { 0, 1, 2, 3, 4 });
    }
}

static void there_and_back_again(void **state)
{
    struct node_rig *r = *state;
    need_media(r);
    const char *name = combine(r, "video/ffv1-mkv", (struct extra) { .pingpong = true });
    expect(load(r, name, NULL, 0), 8, (int[]) { 0, 1, 2, 3, 4, 3, 2, 1 });
    name = combine(r, "video/ffv1-mkv", (struct extra) { .loops = 2 });
    expect(load(r, name, NULL, 0), 15, (int[]) { 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4 });
}

static void frames_are_chosen(void **state)
{
    struct node_rig *r = *state;
    char name[300];
    need_media(r);
    snprintf(name, sizeof name, "%s", combine(r, "video/ffv1-mkv", (struct extra) { 0 }));
    expect(load(r, name, "skip_first_frames", 2), 3, (int[]) { 2, 3, 4 });
    expect(load(r, name, "select_every_nth", 2), 3, (int[]) { 0, 2, 4 });
    expect(load(r, name, "frame_load_cap", 2), 2, (int[]) { 0, 1 });
    /* more than any clip has, and than there is room for */
    expect(load(r, name, "frame_load_cap", 1000000), 5, (int[]) { 0, 1, 2, 3, 4 });
    expect(load(r, name, "force_rate", 5), 3, (int[]) { 0, 2, 4 });
    expect(load(r, name, "force_rate", 20), 9, (int[]) { 0, 1, 1, 2, 2, 3, 3, 4, 4 });
    const struct htensor *t = load(r, name, "custom_width", 35);
    assert_int_equal(dim(t, 2), 35);
    assert_int_equal(dim(t, 1), 33);
}

static void sound_and_facts(void **state)
{
    struct node_rig *r = *state;
    need_media(r);
    const char *name = combine(r, "video/h264-mp4", (struct extra) { .sound = true });
    assert_non_null(strstr(name, "-audio.mp4"));
    load(r, name, NULL, 0);
    const struct audio *a = rig_out(r, 2)->object.obj;
    assert_int_equal(a->rate, 24000);
    assert_true(dim(a->wave, 2) <= 12000 + 2048); /* as long as the pictures are */
    struct value *info = value_ref(rig_out(r, 3));
    rig_node(r, "VHS_VideoInfo");
    rig_set(r, "video_info", value_ref(info));
    assert_ok(rig_run(r), r->err);
    assert_true(fabs(rig_out(r, 0)->f - 10) < 0.01);
    assert_int_equal(rig_out(r, 1)->i, 5);
    assert_int_equal(rig_out(r, 3)->i, 70);
    assert_int_equal(rig_out(r, 9)->i, 66);
    rig_node(r, "VHS_VideoInfoLoaded");
    rig_set(r, "video_info", info);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 1)->i, 5);
}

/* Odd sides get an edge; webp and previews. */
static void other_ways(void **state)
{
    struct node_rig *r = *state;
    need_media(r);
    rig_node(r, "VHS_VideoCombine");
    rig_set(r, "images", greys(2, 33, 31, 3));
    rig_float(r, "frame_rate", 8);
    rig_text(r, "format", "video/h264-mp4");
    rig_bool(r, "save_output", false);
    assert_ok(rig_run(r), r->err);
    assert_string_equal(shown(r, "type"), "temp");
    assert_string_equal(shown(r, "filename"), "AnimateDiff_00001.mp4");
    rig_node(r, "VHS_VideoCombine");
    rig_set(r, "images", greys(2, 33, 31, 3));
    rig_text(r, "format", "image/webp");
    assert_ok(rig_run(r), r->err);
    assert_string_equal(shown(r, "filename"), "AnimateDiff_00001.webp");
}

static void what_is_refused(void **state)
{
    struct node_rig *r = *state;
    need_media(r);
    rig_node(r, "VHS_VideoCombine");
    rig_set(r, "images", greys(1, 8, 8, 3));
    rig_text(r, "format", "video/16bit-png");
    assert_fails(rig_run(r), r->err, BERTH_EUNSUPPORTED, "16bit-png");
    rig_node(r, "VHS_VideoCombine");
    rig_set(r, "images", rig_latent(4, (size_t[]) { 1, 4, 2, 2 }, NULL));
    assert_fails(rig_run(r), r->err, BERTH_EUNSUPPORTED, "latents");
    rig_node(r, "VHS_LoadVideoPath");
    rig_text(r, "video", "/etc/passwd");
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "/etc/passwd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_come_back), cmocka_unit_test(there_and_back_again),
        cmocka_unit_test(frames_are_chosen), cmocka_unit_test(sound_and_facts),
        cmocka_unit_test(other_ways),        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
