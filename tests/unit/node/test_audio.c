/* Nodes of sound that write and read files, through the real helper. What they do to samples is
 * held against ComfyUI's in tests/golden/node/test_media.c. */
#include "node/clips.h"
#include "support/node_rig.h"

#include <math.h>

static void need_media(struct node_rig *r)
{
    r->env.media_helper = BERTH_BINARY;
    if (!media_built())
        skip();
}

/* Samples of 16 bits, so that FLAC keeps them. */
static struct value *tone(size_t b, size_t c, size_t n, uint32_t rate)
{
    struct htensor *w;
    berth_err err;
    assert_ok(wave_new(b, c, n, &w, &err), err);
    for (size_t i = 0; i < b * c * n; i++)
        w->data[i] = (float)lrintf(9000 * sinf((float)(i % n) * 0.06f) + (float)(i / n)) / 32768.0f;
    return value_audio(w, rate);
}

static const char *shown(struct node_rig *r, size_t i)
{
    static char name[4][200];
    const json_t *v = json_array_get(json_object_get(r->call.ui, "audio"), i);
    char *out = name[i % 4];
    if (!v)
        fail_msg("no ui.audio[%zu]", i);
    const char *sub = json_string_value(json_object_get(v, "subfolder"));
    snprintf(out, sizeof name[0], "%s%s%s [%s]", sub, *sub ? "/" : "",
             json_string_value(json_object_get(v, "filename")),
             json_string_value(json_object_get(v, "type")));
    return out;
}

static const struct audio *load(struct node_rig *r, const char *name)
{
    char file[200];
    snprintf(file, sizeof file, "%s", name);
    rig_node(r, "LoadAudio");
    rig_text(r, "audio", file);
    if (rig_run(r))
        fail_msg("%s: %s", file, r->err.msg);
    return rig_out(r, 0)->object.obj;
}

/* The loudness of what is left when the one is taken from the other, at the best shift. */
static double off_by(const struct htensor *a, const struct htensor *b, size_t channel)
{
    size_t n = dim(a, 2), m = dim(b, 2), from = n / 4, to = n / 2;
    const float *x = a->data + channel * n, *y = b->data + channel * m;
    double best = 1e9;
    for (int shift = -3000; shift < 3000; shift++) {
        double sum = 0;
        for (size_t i = from; i < to; i += 7) {
            long k = (long)i + shift;
            double d = (double)x[i] - (k >= 0 && k < (long)m ? (double)y[k] : 0);
            sum += d * d;
        }
        best = sum < best ? sum : best;
    }
    return sqrt(best / (double)((to - from) / 7));
}

static void flac_keeps_every_sample(void **state)
{
    struct node_rig *r = *state;
    struct value *was = tone(2, 2, 5000, 22050);
    char name[2][200];
    need_media(r);
    rig_node(r, "SaveAudio");
    rig_set(r, "audio", value_ref(was));
    rig_text(r, "filename_prefix", "music/t%batch_num%");
    assert_ok(rig_run(r), r->err);
    for (size_t i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], "%s", shown(r, i));
    assert_string_equal(name[0], "music/t0_00001.flac [output]"); /* no underscore before the dot */
    assert_string_equal(name[1], "music/t1_00002.flac [output]");
    const struct htensor *w = ((struct audio *)was->object.obj)->wave;
    for (size_t i = 0; i < 2; i++) {
        const struct audio *a = load(r, name[i]);
        assert_int_equal(a->rate, 22050);
        assert_int_equal(dim(a->wave, 0), 1);
        assert_int_equal(dim(a->wave, 1), 2);
        assert_int_equal(dim(a->wave, 2), 5000);
        assert_memory_equal(a->wave->data, w->data + i * 10000, 10000 * sizeof(float));
    }
    value_unref(was);
}

static void lossy_kinds_sound_alike(void **state)
{
    static const struct {
        const char *cls, *quality;
        uint32_t rate, becomes;
    } kind[] = {
        { "SaveAudioMP3", "V0", 44100, 44100 },    { "SaveAudioMP3", "128k", 32000, 32000 },
        { "SaveAudioOpus", "128k", 44100, 48000 }, { "SaveAudioOpus", "64k", 24000, 48000 },
        { "SaveAudioOpus", "192k", 96000, 48000 },
    };
    struct node_rig *r = *state;
    need_media(r);
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        struct value *was = tone(1, 2, kind[i].rate / 2, kind[i].rate);
        struct htensor *want;
        const struct audio *w = was->object.obj;
        rig_node(r, kind[i].cls);
        rig_set(r, "audio", value_ref(was));
        rig_text(r, "quality", kind[i].quality);
        assert_ok(rig_run(r), r->err);
        const struct audio *a = load(r, shown(r, 0));
        assert_int_equal(a->rate, kind[i].becomes);
        assert_ok(wave_resample(w->wave, w->rate, a->rate, &want, &r->err), r->err);
        double off = off_by(want, a->wave, 1);
        if (off > 0.03)
            fail_msg("%s %s: off by %g", kind[i].cls, kind[i].quality, off);
        htensor_unref(want);
        value_unref(was);
    }
}

static void advanced_and_previews(void **state)
{
    static const char *const format[] = { "flac", "mp3", "opus" };
    struct node_rig *r = *state;
    need_media(r);
    for (size_t i = 0; i < ARRAY_LEN(format); i++) {
        char ends[24];
        rig_node(r, "SaveAudioAdvanced");
        rig_set(r, "audio", tone(1, 1, 3000, 48000));
        rig_text(r, "format", format[i]);
        rig_text(r, "filename_prefix", format[i]);
        if (i)
            rig_text(r, "format.quality", i == 1 ? "320k" : "96k");
        assert_ok(rig_run(r), r->err);
        snprintf(ends, sizeof ends, "_00001.%s [output]", format[i]);
        assert_non_null(strstr(shown(r, 0), ends));
    }
    rig_node(r, "PreviewAudio");
    rig_set(r, "audio", tone(1, 1, 3000, 48000));
    assert_ok(rig_run(r), r->err);
    assert_non_null(strstr(shown(r, 0), "_00001.flac [temp]"));
    assert_int_equal(rig_out(r, 0)->kind, V_OBJECT); /* handed on */
}

static void where_there_is_no_sound(void **state)
{
    static const char *const pass[] = { "TrimAudioDuration", "AudioAdjustVolume",
                                        "SplitAudioChannels", "AudioEqualizer3Band" };
    struct node_rig *r = *state;
    for (size_t i = 0; i < ARRAY_LEN(pass); i++) {
        rig_node(r, pass[i]);
        rig_set(r, "audio", value_null());
        assert_ok(rig_run(r), r->err);
        assert_int_equal(rig_out(r, 0)->kind, V_NULL);
    }
    rig_node(r, "SaveAudio");
    rig_set(r, "audio", value_null());
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "SaveAudio: input 'audio' is None");
    rig_node(r, "AudioConcat");
    rig_set(r, "audio1", value_int(3));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "wants AUDIO");
}

static void what_does_not_fit(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "SplitAudioChannels");
    rig_set(r, "audio", tone(1, 1, 10, 8000));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "must be stereo (2 channels), got 1");
    rig_node(r, "JoinAudioChannels");
    rig_set(r, "audio_left", tone(1, 2, 10, 8000));
    rig_set(r, "audio_right", tone(1, 1, 10, 8000));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "must be mono");
    rig_node(r, "TrimAudioDuration");
    rig_set(r, "audio", tone(1, 1, 100, 8000));
    rig_float(r, "start_index", 5);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "no part of 0.0125 seconds");
    rig_node(r, "AudioConcat");
    rig_set(r, "audio1", tone(2, 2, 10, 8000));
    rig_set(r, "audio2", tone(1, 2, 10, 8000));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "batches of 2 and 1");
    rig_node(r, "EmptyAudio");
    rig_float(r, "duration", 1e18);
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "1e+18 seconds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flac_keeps_every_sample), cmocka_unit_test(lossy_kinds_sound_alike),
        cmocka_unit_test(advanced_and_previews),   cmocka_unit_test(where_there_is_no_sound),
        cmocka_unit_test(what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
