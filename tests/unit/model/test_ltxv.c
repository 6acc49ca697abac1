/* The LTX-Video transformer: what files and metadata it is read from, hidden text, noise levels of
 * tokens, guides, batches, placements, memory. Its numbers: tests/golden/model/test_ltxv.c. */
#include "support/diffusion_rig.h"
#include "support/sparse.h"

#include "model/encoder.h"
#include "model/ltxv/ltxv.h"
#include "model/ltxv/presets.h"

#define T 3
#define H 3
#define W 4
#define C 128
#define EACH (C * T * H * W)
#define TOKENS 7

static const struct ltxv_config small = {
    .channels = C, .hidden = 64, .context_dim = 24, .depth = 3
};
static void list_keys(struct keys *k, const void *c)
{
    keys_ltxv(k, c);
}

static const char *const hiprec[] = { "scale_shift_table", ".scale_shift_table", NULL };
static const struct diff_spec spec = { .latent = { 5, { 1, C, T, H, W } },
                                       .large = { 5, { 1, C, 4, 24, 24 } },
                                       .no_refs = true,
                                       .tokens = TOKENS,
                                       .keys = list_keys,
                                       .config = &small,
                                       .hiprec = hiprec };

/* ---- config ---- */

static berth_status fill_zeros(void *user, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

/* said: the metadata's "config"; NULL: none. */
static berth_status detect(const struct ltxv_config *c, const char *root, const char *said,
                           struct ltxv_net *f, struct diffusion_info *info, berth_err *err)
{
    const char *path = tmp_path("config.safetensors");
    struct keys k = { 0 };
    struct weights *w;
    size_t mark = *root ? keys_enter(&k, "%.*s", (int)strlen(root) - 1, root) : 0;
    keys_ltxv(&k, c);
    if (*root)
        keys_leave(&k, mark);
    assert_false(k.bad);
    if (said) {
        struct weights_spec *s = calloc(k.n, sizeof *s);
        assert_non_null(s);
        for (size_t i = 0; i < k.n; i++)
            s[i] = (struct weights_spec) { k.at[i].name, DT_F16, k.at[i].shape };
        const struct weights_meta_spec meta = { "config", said };
        struct weights_write_args a = { .format = "safetensors",
                                        .path = path,
                                        .spec = s,
                                        .count = k.n,
                                        .meta = &meta,
                                        .meta_count = 1,
                                        .fill = fill_zeros };
        assert_ok(weights_write(&a, err), *err);
        free(s);
    } else {
        assert_ok(sparse_keys(path, &k, DT_F16, err), *err);
    }
    keys_release(&k);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = ltxv_detect(w, root, f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct ltxv_config c;
        const char *root;
    } list[] = { { { C, 2048, 4096, 28 }, "" },
                 { { C, 4096, 4096, 48 }, "model.diffusion_model." },
                 { { C, 128, 64, 2 }, "diffusion_model." } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct ltxv_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(&list[i].c, list[i].root, NULL, &f, &info, &err), err);
        assert_int_equal(f.hidden, list[i].c.hidden);
        assert_int_equal(f.heads, 32);
        assert_int_equal(f.depth, list[i].c.depth);
        assert_int_equal(f.mlp, 4 * f.hidden);
        assert_true(!f.causal && !f.middle && !f.precise && f.theta == 10000 && f.times == 1000);
        assert_true(f.most[0] == 20 && f.most[1] == 2048 && f.most[2] == 2048);
        assert_string_equal(info.family, "LTX-Video");
        assert_string_equal(info.latent.name, "LTX-Video");
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.context_dim, list[i].c.context_dim);
        assert_ptr_equal(info.text, &text_set_ltxv);
        assert_true(info.shift == 2.37 && info.multiplier == 0.0);
        assert_true(info.own_times && info.clean && info.guides && !info.refs);
    }
}

static void metadata_counts_more(void **state)
{
    static const char said[] =
        "{\"transformer\": {\"num_attention_heads\": 4, \"causal_temporal_positioning\": true, "
        "\"use_middle_indices_grid\": true, \"frequencies_precision\": \"float64\", "
        "\"positional_embedding_theta\": 500.0, \"timestep_scale_multiplier\": 10, "
        "\"positional_embedding_max_pos\": [10, 512, 1024], \"rope_type\": \"interleaved\"}}";
    struct ltxv_net f;
    struct diffusion_info info;
    berth_err err = { 0 };
    (void)state;
    assert_ok(detect(&small, "", said, &f, &info, &err), err);
    assert_int_equal(f.heads, 4);
    assert_true(f.causal && f.middle && f.precise && f.theta == 500 && f.times == 10);
    assert_true(f.most[0] == 10 && f.most[1] == 512 && f.most[2] == 1024);
    assert_ok(detect(&small, "", "{\"vae\": {}}", &f, &info, &err), err);
    assert_int_equal(f.heads, 32);
}

static void others_are_refused(void **state)
{
    static const struct {
        struct ltxv_config c;
        const char *metadata, *said;
    } list[] = {
        { { 64, 64, 24, 1 }, NULL, "latents have 64 channels, not 128" },
        { { C, 80, 24, 1 }, NULL, "width 80 with 32 heads" },
        { { C, 64, 24, 257 }, NULL, "at most 256 are taken" },
        { { C, 65536 + 64, 24, 1 }, NULL, "at most 65536" },
        { { C, 64, 24, 1 }, "{", "the metadata's \"config\"" },
        { { C, 64, 24, 1 }, "{\"transformer\": {\"num_attention_heads\": 0}}", "num_attention" },
        { { C, 64, 24, 1 },
          "{\"transformer\": {\"num_attention_heads\": 2.5}}",
          "no whole number" },
        { { C, 64, 24, 1 }, "{\"transformer\": {\"num_attention_heads\": 7}}", "with 7 heads" },
        { { C, 64, 24, 1 }, "{\"transformer\": {\"rope_type\": \"split\"}}", "kind 'split'" },
        { { C, 64, 24, 1 },
          "{\"transformer\": {\"cross_attention_adaln\": true}}",
          "\"cross_attention_adaln\"" },
        { { C, 64, 24, 1 },
          "{\"transformer\": {\"positional_embedding_max_pos\": [1, 2]}}",
          "are not 3 numbers" },
        { { C, 64, 24, 1 },
          "{\"transformer\": {\"positional_embedding_max_pos\": [1, 2, 0]}}",
          "are not above 0" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct ltxv_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, "", list[i].metadata, &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

/* ---- passes ---- */

static void open_small(struct diff_rig *r, const char *name, size_t n)
{
    diff_open(r, &spec, "cpu=256m", diff_file(&spec, name), NULL, n);
}

/* Hidden text counts for nothing, whatever it is. */
static void hidden_text_is_left_out(void **state)
{
    bool hidden[TOKENS] = { [TOKENS - 2] = true, [TOKENS - 1] = true };
    struct diff_rig r;
    (void)state;
    open_small(&r, "hidden", 1);
    float *all = diff_run(&r);
    r.cond[0].hidden = hidden;
    float *some = diff_run(&r);
    assert_true(rel_error(some, all, EACH) > 1e-5);
    r.context[0][(TOKENS - 1) * small.context_dim] += 5;
    float *same = diff_run(&r);
    assert_memory_equal(same, some, EACH * sizeof *same);
    berth_err err = { 0 };
    memset(hidden, 1, sizeof hidden);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "nothing is to be seen");
    free(all), free(some), free(same);
    diff_close(&r);
}

/* A mask of ones changes nothing, and tokens have levels of their own however many there are. */
static void tokens_have_noise_levels(void **state)
{
    float mask[T * H * W];
    struct diff_rig r;
    (void)state;
    open_small(&r, "levels", 1);
    float *none = diff_run(&r);
    for (size_t i = 0; i < ARRAY_LEN(mask); i++)
        mask[i] = 1;
    r.in.mask = mask;
    float *ones = diff_run(&r);
    assert_memory_equal(ones, none, EACH * sizeof *ones);
    for (size_t i = 0; i < ARRAY_LEN(mask); i++) /* too many for pieces */
        mask[i] = i % 2 ? 1.0f : nextafterf(1.0f, 0);
    float *many = diff_run(&r);
    assert_true(rel_error(many, none, EACH) < 1e-4);
    for (size_t i = 0; i < H * W; i++)
        mask[i] = 0;
    float *first = diff_run(&r);
    assert_true(rel_error(first, none, EACH) > 1e-4);
    free(none), free(ones), free(many), free(first);
    diff_close(&r);
}

static void guides_are_checked(void **state)
{
    struct diffusion_guide guide[LTXV_GUIDES_MAX + 1];
    struct diff_rig r;
    berth_err err = { 0 };
    (void)state;
    open_small(&r, "guides", 1);
    for (size_t i = 0; i < ARRAY_LEN(guide); i++)
        guide[i] = (struct diffusion_guide) {
            .frames = 1, .rows = H, .columns = W, .at = 8, .first = true, .spread = 1, .strength = 1
        };
    float *none = diff_run(&r);
    r.cond[0].guide = guide;
    r.cond[0].guides = 1;
    float *one = diff_run(&r);
    assert_true(rel_error(one, none, EACH) > 1e-5);
    guide[0].at = 100;
    float *other = diff_run(&r);
    assert_true(rel_error(other, one, EACH) > 1e-5);
    guide[0].strength = 0.25f;
    float *weak = diff_run(&r);
    assert_true(rel_error(weak, other, EACH) > 1e-5);
    r.cond[0].guides = T;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "guides of 3 latent");
    r.cond[0].guides = ARRAY_LEN(guide);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "more than 256");
    r.cond[0].guides = 1;
    guide[0].rows = H + 1;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "LTXVCropGuides");
    free(none), free(one), free(other), free(weak);
    diff_close(&r);
}

/* Prompts with other guides, or of another rate, are computed apart: each as if alone. */
static void prompts_with_other_guides(void **state)
{
    const struct diffusion_guide guide = {
        .frames = 1, .rows = H, .columns = W, .first = true, .spread = 1, .strength = 0.5f
    };
    struct diff_rig r;
    (void)state;
    open_small(&r, "apart", 3);
    r.cond[1].guide = &guide;
    r.cond[1].guides = 1;
    r.cond[2].frame_rate = 30;
    float *all = diff_run(&r);
    for (size_t i = 0; i < 3; i++) {
        struct diff_rig one = r;
        one.in.shape.dim[0] = 1;
        one.in.x = r.x + i * EACH;
        one.in.t = r.t + i;
        one.in.cond = r.list + i;
        float *got = diff_run(&one);
        assert_memory_equal(got, all + i * EACH, EACH * sizeof *got);
        free(got);
    }
    free(all);
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
    struct ltxv_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.depth = 6;
    diff_streams_in_order(&spec, diff_file_of(&spec, &c, "streamed"), "cpu=16m,null:0=128m");
}

static void thrifty_passes_give_the_same_bits(void **state)
{
    (void)state;
    diff_thrifty_gives_the_same_bits(&spec, diff_file(&spec, "thrifty"));
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(&spec, NULL);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "patchify_proj.weight",
                                         "transformer_blocks.0.attn2.to_k.weight",
                                         "adaln_single.emb.timestep_embedder.linear_1.weight",
                                         NULL };
    struct keys k = { 0 };
    (void)state;
    keys_ltxv(&k, &small);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    static const bool hidden[TOKENS] = { [2] = true };
    static float mask[2 * T * H * W];
    const struct diffusion_guide guide = {
        .frames = 1, .rows = H, .columns = W, .first = true, .spread = 1, .strength = 0.5f
    };
    struct diff_rig r;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mask); i++)
        mask[i] = (float)(i % 5) / 4;
    diff_open(&r, &spec, "cpu=64m", diff_file(&spec, "oom"), NULL, 2);
    for (size_t k = 0; k < 2; k++) {
        r.cond[k].hidden = hidden;
        r.cond[k].guide = &guide;
        r.cond[k].guides = 1;
    }
    r.in.mask = mask;
    diff_no_memory_is_survived(&r);
    diff_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(metadata_counts_more),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(hidden_text_is_left_out),
        cmocka_unit_test(tokens_have_noise_levels),
        cmocka_unit_test(guides_are_checked),
        cmocka_unit_test(prompts_with_other_guides),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
