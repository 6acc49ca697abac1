/* The HunyuanVideo transformer: what files it is read from, under whose names, hidden text,
 * batches, placements, memory. Its numbers are in tests/golden/model/test_hunyuan_video.c. */
#include "support/diffusion_rig.h"

#include "model/encoder.h"
#include "model/hunyuan_video/hunyuan_video.h"
#include "model/hunyuan_video/presets.h"

#define T 2
#define H 4
#define W 6
#define C 16
#define EACH (C * T * H * W)
#define TOKENS 7

static const struct hunyuan_config small = { .channels = C,
                                             .hidden = 128,
                                             .context_dim = 32,
                                             .vector_dim = 24,
                                             .depth = 1,
                                             .single = 2,
                                             .guidance = true };
static void list_keys(struct keys *k, const void *c)
{
    keys_hunyuan(k, c);
}

static const struct diff_spec spec = { .latent = { 5, { 1, C, T, H, W } },
                                       .large = { 5, { 1, C, 4, 32, 32 } },
                                       .no_refs = true,
                                       .tokens = TOKENS,
                                       .keys = list_keys,
                                       .config = &small };

/* ---- config ---- */

static berth_status detect(const struct hunyuan_config *c, const char *root, const char *more,
                           struct hunyuan_net *f, struct diffusion_info *info, berth_err *err)
{
    struct weights *w = diff_header(&spec, c, root, more);
    berth_status s = hunyuan_detect(w, root, f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct hunyuan_config c;
        const char *root;
    } list[] = { { { C, 3072, 4096, 768, 20, 40, true }, "" },
                 { { C, 3072, 4096, 768, 20, 40, true }, "model.diffusion_model." },
                 { { C, 256, 64, 0, 1, 0, false }, "model.model." } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct hunyuan_config *c = &list[i].c;
        struct hunyuan_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(c, list[i].root, NULL, &f, &info, &err), err);
        assert_int_equal(f.hidden, c->hidden);
        assert_int_equal(f.heads, c->hidden / 128);
        assert_int_equal(f.depth, c->depth);
        assert_int_equal(f.single, c->single);
        assert_int_equal(f.refiners, 2);
        assert_int_equal(f.vector_dim, c->vector_dim);
        assert_int_equal(f.guidance, c->guidance);
        assert_true(f.axis[0] == 16 && f.axis[1] == 56 && f.axis[2] == 56);
        assert_string_equal(info.family, "HunyuanVideo");
        assert_string_equal(info.latent.name, "HunyuanVideo");
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.context_dim, c->context_dim);
        assert_ptr_equal(info.text, &text_set_hunyuan_video);
        assert_true(info.shift == 7 && info.multiplier == 1000 && info.usual_guidance == 6);
        assert_true(info.clean && !info.own_times && !info.refs && !info.renamed);
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        struct hunyuan_config c;
        const char *more, *said;
    } list[] = {
        { { 33, 128, 32, 0, 1, 0, false }, NULL, "33 channels in and 33 out" },
        { { C, 192, 32, 0, 1, 0, false }, NULL, "width 192: heads are 128 wide" },
        { { C, 128, 32, 0, 257, 0, false }, NULL, "257 double_blocks" },
        { { C, 128, 32, 0, 1, 0, false }, "time_r_in.in_layer.weight", "mean flows" },
        { { C, 128, 32, 0, 1, 0, false }, "byt5_in.fc1.weight", "HunyuanImage's kind" },
        { { C, 128, 32, 0, 1, 0, false }, "vision_in.proj.0.weight", "HunyuanVideo 1.5's" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct hunyuan_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, "", list[i].more, &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

/* ---- names ---- */

enum spelling { AUTHORS, SCALES };

static bool respell(const void *user, const struct key *key, char *name, size_t cap,
                    struct shape *s)
{
    const enum spelling *how = user;
    const size_t n = strlen(key->name), w = strlen("_norm.weight");
    (void)s;
    if (*how == AUTHORS && !hunyuan_authors_name(key->name, name, cap))
        snprintf(name, cap, "%s", key->name);
    if (*how == SCALES && n > w && !strcmp(key->name + n - w, "_norm.weight"))
        snprintf(name, cap, "%.*s.scale", (int)(n - strlen(".weight")), key->name);
    return true;
}

/* Weights follow from ComfyUI's names, whatever the file has. */
static void the_same_under_other_names(void **state)
{
    struct keys k = { 0 };
    struct diff_rig r;
    (void)state;
    keys_hunyuan(&k, &small);
    diff_open(&r, &spec, "cpu=256m", diff_file(&spec, "named"), NULL, 1);
    float *want = diff_run(&r);
    diff_close(&r);
    for (enum spelling how = AUTHORS; how <= SCALES; how++) {
        diff_open(&r, &spec, "cpu=256m", keys_file_changed(&k, "other", respell, &how), NULL, 1);
        float *got = diff_run(&r);
        assert_memory_equal(got, want, EACH * sizeof *got);
        assert_int_equal(diffusion_info(r.d)->renamed, how == AUTHORS);
        free(got);
        diff_close(&r);
    }
    free(want);
    keys_release(&k);
}

/* ---- passes ---- */

/* Hidden text is looked at by nobody; but the mean of all of it counts, as in ComfyUI. */
static void hidden_text_counts_in_the_mean(void **state)
{
    bool hidden[TOKENS] = { [TOKENS - 1] = true };
    struct diff_rig r;
    berth_err err = { 0 };
    (void)state;
    diff_open(&r, &spec, "cpu=256m", diff_file(&spec, "hidden"), NULL, 1);
    float *all = diff_run(&r);
    r.cond[0].hidden = hidden;
    float *some = diff_run(&r);
    assert_true(rel_error(some, all, EACH) > 1e-6);
    r.context[0][(TOKENS - 1) * small.context_dim] += 50;
    float *mean = diff_run(&r);
    assert_true(rel_error(mean, some, EACH) > 1e-7);
    memset(hidden, 1, sizeof hidden);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "nothing is to be seen");
    free(all), free(some), free(mean);
    diff_close(&r);
}

/* 6 where nobody says it; left out where it is to be. */
static void guidance(void **state)
{
    struct diff_rig r;
    (void)state;
    diff_open(&r, &spec, "cpu=256m", diff_file(&spec, "guided"), NULL, 1);
    float *usual = diff_run(&r);
    r.cond[0].guided = 1;
    r.cond[0].guidance = 6;
    float *six = diff_run(&r);
    assert_memory_equal(six, usual, EACH * sizeof *six);
    r.cond[0].guidance = 1;
    float *one = diff_run(&r);
    assert_true(rel_error(one, usual, EACH) > 1e-7);
    r.cond[0].guided = -1;
    float *none = diff_run(&r);
    assert_true(rel_error(none, usual, EACH) > 1e-7 && rel_error(none, one, EACH) > 1e-7);
    free(usual), free(six), free(one), free(none);
    diff_close(&r);
}

/* ---- what all of these transformers do ---- */

static void items_of_a_batch_are_as_if_alone(void **state)
{
    (void)state;
    diff_items_are_as_if_alone(&spec, diff_file(&spec, "batch"), REF_OWN);
}

static void blocks_stream_in_order(void **state)
{
    struct hunyuan_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.single = 4;
    diff_streams_in_order(&spec, diff_file_of(&spec, &c, "streamed"), "cpu=16m,null:0=128m");
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(&spec, NULL);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "img_in.proj.weight",
                                         "txt_in.individual_token_refiner.blocks.0.norm1.weight",
                                         NULL };
    struct hunyuan_config c = small;
    struct keys k = { 0 };
    (void)state;
    c.guidance = false; /* that can be left out */
    c.vector_dim = 0;
    keys_hunyuan(&k, &c);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    diff_no_memory_is_survived_with_hidden(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(the_same_under_other_names),
        cmocka_unit_test(hidden_text_counts_in_the_mean),
        cmocka_unit_test(guidance),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
