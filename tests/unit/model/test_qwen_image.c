/* The Qwen-Image transformer: what files it is read from, pictures to look at, hidden text, layers,
 * batches, placements, memory. Its numbers are in tests/golden/model/test_qwen_image.c. */
#include "support/dit_passes.h"
#include "support/sparse.h"

#include "model/qwen_image/presets.h"
#include "model/qwen_image/qwen_image.h"

static const struct qwen_image_config small = {
    .channels = DIT_C, .hidden = 64, .head_dim = 32, .context_dim = 48, .depth = 3
};

static const char *file_of(const struct qwen_image_config *c, const char *name, enum dtype dtype,
                           const char *format)
{
    static const char *const hiprec[] = { "img_in.",   "txt_in.",   "time_text_embed.",
                                          "norm_out.", "proj_out.", NULL };
    struct keys k = { 0 };
    keys_qwen_image(&k, c);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, format, hiprec);
    keys_release(&k);
    return path;
}

/* ---- config ---- */

static berth_status detect(const struct qwen_image_config *c, struct qwen_image_net *q,
                           struct diffusion_info *info, berth_err *err)
{
    const char *path = tmp_path("config.safetensors");
    struct keys k = { 0 };
    struct weights *w;
    keys_qwen_image(&k, c);
    assert_false(k.bad);
    assert_ok(sparse_keys(path, &k, DT_F16, err), *err);
    keys_release(&k);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = qwen_image_detect(w, "", q, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct qwen_image_config c;
        uint32_t axis[QWEN_IMAGE_AXES];
        enum diffusion_ref_method refs;
        const char *name;
    } list[] = {
        { { DIT_C, 3072, 128, 3584, 60, false, false }, { 16, 56, 56 }, REF_INDEX, "Qwen-Image" },
        { { DIT_C, 128, 64, 40, 1, true, false },
          { 8, 28, 28 },
          REF_INDEX_TIMESTEP_ZERO,
          "Qwen-Image-Edit" },
        { { DIT_C, 96, 32, 40, 2, false, true },
          { 4, 14, 14 },
          REF_NEGATIVE_INDEX,
          "Qwen-Image-Layered" },
        { { DIT_C, 96, 32, 40, 2, true, true }, /* layers win */
          { 4, 14, 14 },
          REF_NEGATIVE_INDEX,
          "Qwen-Image-Layered" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct qwen_image_config *c = &list[i].c;
        struct qwen_image_net q;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(c, &q, &info, &err), err);
        assert_int_equal(q.heads, c->hidden / c->head_dim);
        assert_int_equal(q.mlp, 4 * c->hidden);
        assert_int_equal(q.depth, c->depth);
        assert_int_equal(q.layered, c->layered);
        assert_int_equal(q.refs, list[i].refs);
        for (size_t a = 0; a < QWEN_IMAGE_AXES; a++)
            assert_int_equal(q.axis[a], list[i].axis[a]);
        assert_string_equal(info.family, list[i].name);
        assert_string_equal(info.latent.name, "Wan 2.1");
        assert_int_equal(info.latent.rank, 3);
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.act, DT_BF16);
        assert_int_equal(info.act_else, DT_F32); /* F16 has not the range */
        assert_int_equal(info.context_dim, c->context_dim);
        assert_true(info.shift == 1.15 && info.multiplier == 0.0 && info.refs);
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        struct qwen_image_config c;
        const char *said;
    } list[] = {
        { { DIT_C, 64, 16, 48, 1, false, false }, "heads of 16" },
        { { DIT_C, 128, 96, 48, 1, false, false }, "heads of 96" },
        { { DIT_C, 65536 + 32, 32, 48, 1, false, false }, "at most 65536" },
        { { 8, 64, 32, 48, 1, false, false }, "8 channels in and 8 out" },
        { { DIT_C, 32, 32, 48, 257, false, false }, "at most 256 are taken" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct qwen_image_net q;
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, &q, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

/* ---- passes ---- */

/* Where they are placed counts, and what is not said is what the file is for. */
static void pictures_to_look_at(void **state)
{
    static const enum diffusion_ref_method method[] = { REF_OFFSET, REF_INDEX,
                                                        REF_INDEX_TIMESTEP_ZERO,
                                                        REF_NEGATIVE_INDEX };
    static const struct {
        bool zero, layered;
        enum diffusion_ref_method own;
    } file[] = { { false, false, REF_INDEX },
                 { true, false, REF_INDEX_TIMESTEP_ZERO },
                 { false, true, REF_NEGATIVE_INDEX } };
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(file); f++) {
        struct qwen_image_config c = small;
        struct diff_rig r;
        float *got[ARRAY_LEN(method)];
        c.timestep_zero = file[f].zero;
        c.layered = file[f].layered;
        dit_open(&r, "cpu=256m", file_of(&c, "refs", DT_F32, "safetensors"), NULL, 1);
        float *none = diff_run(&r);
        r.cond[0].refs = 4;
        float *own = diff_run(&r);
        for (size_t i = 0; i < ARRAY_LEN(method); i++) {
            r.cond[0].ref_method = method[i];
            got[i] = diff_run(&r);
            assert_true(rel_error(got[i], none, DIT_EACH) > 1e-4);
            assert_int_equal(!memcmp(got[i], own, DIT_EACH * sizeof *own),
                             method[i] == file[f].own);
            for (size_t k = 0; k < i; k++)
                assert_true(rel_error(got[i], got[k], DIT_EACH) > 1e-5);
        }
        r.cond[0].ref_method = REF_UXO; /* as offset is */
        float *uxo = diff_run(&r);
        assert_memory_equal(uxo, got[0], DIT_EACH * sizeof *uxo);
        free(none), free(own), free(uxo);
        for (size_t i = 0; i < ARRAY_LEN(method); i++)
            free(got[i]);
        diff_close(&r);
    }
}

static void bad_pictures_are_refused(void **state)
{
    struct diff_rig r;
    struct diffusion_ref many[QWEN_IMAGE_REFS_MAX + 1];
    berth_err err = { 0 };
    (void)state;
    dit_open(&r, "cpu=256m", file_of(&small, "bad", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = r.ref[0];
    r.cond[0].ref = many;
    r.cond[0].refs = ARRAY_LEN(many);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "more than 64");
    r.cond[0].refs = 1;
    many[0].shape = (struct shape) { 4, { 1, DIT_C, 6, 7 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "cannot look at a latent");
    many[0].shape = (struct shape) { 5, { 1, DIT_C / 2, 1, 6, 7 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "cannot look at a latent");
    many[0].shape = (struct shape) { 5, { 1, DIT_C, 1, 1 << 20, 1 << 20 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "to look at");
    diff_close(&r);
}

/* What stands in hidden tokens does not count, where they stand does: others keep their places. */
static void hidden_text_is_seen_by_nobody(void **state)
{
    static const bool last[DIT_TOKENS] = { [DIT_TOKENS - 1] = true }, first[DIT_TOKENS] = { true },
                      all[DIT_TOKENS] = { true, true, true, true, true, true, true };
    struct diff_rig r;
    berth_err err = { 0 };
    (void)state;
    dit_open(&r, "cpu=256m", file_of(&small, "hidden", DT_F32, "safetensors"), NULL, 1);
    float *whole = diff_run(&r);
    r.cond[0].hidden = last;
    float *hidden = diff_run(&r);
    memset(r.context[0] + (DIT_TOKENS - 1) * r.cond[0].width, 0, r.cond[0].width * sizeof(float));
    float *other = diff_run(&r);
    r.cond[0].hidden = NULL;
    r.cond[0].tokens = DIT_TOKENS - 1;
    float *shorter = diff_run(&r);
    assert_true(rel_error(whole, hidden, DIT_EACH) > 1e-4);
    assert_memory_equal(hidden, other, DIT_EACH * sizeof *hidden);
    assert_memory_equal(hidden, shorter, DIT_EACH * sizeof *hidden);
    /* without the first one the others stand one place further than if it were not there */
    r.cond[0].hidden = first;
    float *moved = diff_run(&r);
    r.cond[0].hidden = NULL;
    r.cond[0].context += r.cond[0].width;
    r.cond[0].tokens--;
    float *not_moved = diff_run(&r);
    assert_true(rel_error(moved, not_moved, DIT_EACH) > 1e-5);
    r.cond[0].hidden = all;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "nothing is to be seen");
    free(whole), free(hidden), free(other), free(shorter), free(moved), free(not_moved);
    diff_close(&r);
}

/* Layers of a picture are frames: each has a place of its own. */
static void layers_are_frames(void **state)
{
    struct qwen_image_config c = small;
    struct diff_rig r;
    (void)state;
    c.layered = true;
    dit_open(&r, "cpu=256m", file_of(&c, "layers", DT_F32, "safetensors"), NULL, 1);
    r.in.shape = (struct shape) { 5, { 1, DIT_C, 3, DIT_H, DIT_W } };
    for (size_t i = 0; i < 3 * (size_t)DIT_EACH;
         i++) /* three times the same frame, channel by channel */
        r.x[i] = (float)((i / (3 * DIT_H * DIT_W) * 31 + i % (DIT_H * DIT_W)) % 17) / 8.0f - 1.0f;
    r.cond[0].refs = 1;
    float *got = diff_run(&r);
    const float *a = got, *b = got + DIT_H * DIT_W; /* frames of the first channel */
    assert_true(rel_error(a, b, DIT_H * DIT_W) > 1e-5);
    free(got);
    diff_close(&r);
}

/* ---- networks that steer it ---- */

static const char *control_file(uint64_t width, uint64_t channels, int blocks)
{
    struct keys k = { 0 };
    keys_linear(&k, "img_in", width, 4 * channels, KEYS_BIAS);
    for (int i = 0; i < blocks; i++) {
        size_t mark = keys_enter(&k, "controlnet_blocks.%d", i);
        keys_tensor(&k, "x_rms.weight", width, 0, 0, 0);
        keys_tensor(&k, "y_rms.weight", width, 0, 0, 0);
        keys_linear(&k, "input_proj", width, width, KEYS_BIAS);
        keys_linear(&k, "output_proj", width, width, KEYS_BIAS);
        keys_leave(&k, mark);
    }
    assert_false(k.bad);
    const char *path = keys_file(&k, "control", DT_F32, "safetensors", NULL);
    keys_release(&k);
    return path;
}

static void control_open(struct diff_rig *r, const char *path, const char *alloc,
                         struct res_model **out)
{
    struct res_open_args args = { .path = path, .plan.alloc = alloc };
    berth_err err = { 0 };
    assert_ok(res_open(r->g.f.r, &args, out, NULL, &err), err);
    assert_ok(res_load(*out, NULL, NULL, &err), err);
}

/* It counts, as strongly as it is told, and gives the same bits wherever either network lives. */
static void steered_passes(void **state)
{
    static const struct {
        const char *devices, *alloc, *control;
        float strength;
    } row[] = { { "cpu=256m", NULL, NULL, 1 },
                { "cpu=256m", NULL, NULL, 0.5f },
                { "cpu=256m", NULL, NULL, 0 },
                { "cuda:0@cpu=32m,cpu=64m,null:0=32m", "cuda:0,20%;null:0,50%;cpu,30%#cuda:0",
                  "null:0,50%;cpu,50%#cpu", 1 } };
    float *got[ARRAY_LEN(row) + 1], *hint = noise_floats(9, (size_t)DIT_C * 8 * 6);
    (void)state;
    for (size_t i = 0; i <= ARRAY_LEN(row); i++) {
        const size_t k = i < ARRAY_LEN(row) ? i : 0;
        struct diff_rig r;
        struct res_model *m = NULL;
        berth_err err = { 0 };
        dit_open(&r, row[k].devices, file_of(&small, "steered", DT_F32, "safetensors"),
                 row[k].alloc, 2);
        r.in.shape = (struct shape) { 5, { 2, DIT_C, 1, 8, 6 } };
        r.cond[0].refs = r.cond[1].refs = 1;
        if (i < ARRAY_LEN(row)) {
            control_open(&r, control_file(64, DIT_C, 3), row[k].control, &m);
            struct diffusion_control by = {
                .m = m, .hint = hint, .h = 8, .w = 6, .strength = row[k].strength
            };
            assert_ok(diffusion_add_control(r.d, &by, &err), err);
        }
        got[i] = diff_run(&r);
        diffusion_close(r.d);
        r.d = NULL;
        res_unref(m);
        diff_close(&r);
    }
    const size_t n = 2 * (size_t)DIT_C * 8 * 6;
    assert_memory_equal(got[2], got[ARRAY_LEN(row)],
                        n * sizeof **got); /* as if it were not there */
    assert_memory_equal(got[0], got[3], n * sizeof **got);
    assert_true(rel_error(got[0], got[1], n) > 1e-4 && rel_error(got[0], got[2], n) > 1e-4);
    for (size_t i = 0; i <= ARRAY_LEN(row); i++)
        free(got[i]);
    free(hint);
}

static void other_control_networks_are_refused(void **state)
{
    static const struct {
        uint64_t width, channels;
        int blocks;
        const char *said;
    } row[] = { { 96, DIT_C, 3, "3 blocks of width 96 for a transformer of 3 of width 64" },
                { 64, DIT_C, 2, "2 blocks of width 64" },
                { 64, DIT_C + 2, 3, "over 18 channels" } };
    struct diff_rig r;
    float *hint = noise_floats(9, (size_t)(DIT_C + 2) * 10 * 6);
    struct res_model *m;
    berth_err err = { 0 };
    (void)state;
    dit_open(&r, "cpu=256m", file_of(&small, "refuses", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        control_open(&r, control_file(row[i].width, row[i].channels, row[i].blocks), NULL, &m);
        struct diffusion_control by = { .m = m, .hint = hint, .h = 10, .w = 6, .strength = 1 };
        assert_fails(diffusion_add_control(r.d, &by, &err), err, BERTH_EUNSUPPORTED, row[i].said);
        res_unref(m);
    }
    control_open(&r, control_file(64, DIT_C, 3), NULL, &m);
    struct diffusion_control by = { .m = m, .hint = hint, .h = 10, .w = 6, .strength = 1 };
    assert_ok(diffusion_add_control(r.d, &by, &err), err);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EUNSUPPORTED, "odd sides"); /* 9 */
    diffusion_close(r.d);
    r.d = NULL;
    res_unref(m);
    diff_close(&r);
    free(hint);
}

/* ---- what all of these transformers do ---- */

static const char *typed_file(enum dtype dtype, const char *format)
{
    return file_of(&small, dtype_name(dtype), dtype, format);
}

static void items_of_a_batch_are_as_if_alone(void **state)
{
    (void)state;
    diff_items_are_as_if_alone(dit_spec(REF_OWN), file_of(&small, "batch", DT_F32, "safetensors"),
                               REF_INDEX_TIMESTEP_ZERO);
}

static void blocks_stream_in_order(void **state)
{
    struct qwen_image_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.head_dim = 128;
    diff_streams_in_order(dit_spec(REF_OWN), file_of(&c, "streamed", DT_F32, "safetensors"),
                          "cpu=16m,null:0=128m");
}

static void thrifty_passes_give_the_same_bits(void **state)
{
    (void)state;
    diff_thrifty_gives_the_same_bits(dit_spec(REF_OWN),
                                     file_of(&small, "thrifty", DT_F32, "safetensors"));
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(dit_spec(REF_OWN), typed_file);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "txt_norm.weight", "img_in.weight",
                                         "time_text_embed.timestep_embedder.linear_1.weight",
                                         "transformer_blocks.0.img_mod.1.weight", NULL };
    struct keys k = { 0 };
    (void)state;
    keys_qwen_image(&k, &small);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    dit_no_memory_is_survived(file_of(&small, "oom", DT_F32, "safetensors"), REF_OWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(pictures_to_look_at),
        cmocka_unit_test(bad_pictures_are_refused),
        cmocka_unit_test(hidden_text_is_seen_by_nobody),
        cmocka_unit_test(layers_are_frames),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(steered_passes),
        cmocka_unit_test(other_control_networks_are_refused),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
