/* The Qwen-Image transformer: what files it is read from, pictures to look at, hidden text, layers,
 * batches, placements, memory. Its numbers are in tests/golden/model/test_qwen_image.c. */
#include "support/nets.h"
#include "support/oom.h"
#include "support/presets.h"
#include "support/sparse.h"

#include "model/diffusion.h"
#include "model/qwen_image/presets.h"
#include "model/qwen_image/qwen_image.h"

#define H 9
#define W 6
#define C 16
#define EACH (C * H * W)
#define N_MAX 4
#define LARGE 96
#define TOKENS 7

static const struct qwen_image_config small = {
    .channels = C, .hidden = 64, .head_dim = 32, .context_dim = 48, .depth = 3
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
        { { C, 3072, 128, 3584, 60, false, false }, { 16, 56, 56 }, REF_INDEX, "Qwen-Image" },
        { { C, 128, 64, 40, 1, true, false },
          { 8, 28, 28 },
          REF_INDEX_TIMESTEP_ZERO,
          "Qwen-Image-Edit" },
        { { C, 96, 32, 40, 2, false, true },
          { 4, 14, 14 },
          REF_NEGATIVE_INDEX,
          "Qwen-Image-Layered" },
        { { C, 96, 32, 40, 2, true, true }, /* layers win */
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
        { { C, 64, 16, 48, 1, false, false }, "heads of 16" },
        { { C, 128, 96, 48, 1, false, false }, "heads of 96" },
        { { C, 65536 + 32, 32, 48, 1, false, false }, "at most 65536" },
        { { 8, 64, 32, 48, 1, false, false }, "8 channels in and 8 out" },
        { { C, 32, 32, 48, 257, false, false }, "at most 256 are taken" },
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

struct rig {
    struct net_rig g;
    struct diffusion *d;
    float *x, *context[N_MAX], *out, t[N_MAX];
    struct diffusion_ref ref[N_MAX];
    struct diffusion_cond cond[N_MAX];
    const struct diffusion_cond *list[N_MAX];
    struct diffusion_in in;
};

static void rig_open(struct rig *r, const char *devices, const char *path, const char *alloc,
                     size_t n)
{
    static const struct shape refs[N_MAX] = { { 5, { 1, C, 1, 6, 7 } },
                                              { 5, { 1, C, 1, 4, 10 } },
                                              { 5, { 2, C, 1, 8, 4 } },
                                              { 5, { 1, C, 3, 5, 8 } } };
    berth_err err = { 0 };
    *r = (struct rig) { .d = NULL };
    net_rig_open(&r->g, devices, path, NULL, alloc);
    struct diffusion_args args = { .res = r->g.f.r, .m = r->g.m };
    assert_ok(diffusion_open(&args, &r->d, &err), err);
    size_t width = (size_t)diffusion_info(r->d)->context_dim;
    r->x = noise_floats(1, (size_t)N_MAX * EACH);
    r->out = calloc((size_t)N_MAX * EACH, sizeof *r->out);
    for (size_t k = 0; k < N_MAX; k++) {
        r->ref[k] = (struct diffusion_ref) { .shape = refs[k], .x = noise_floats(20 + k, 4096) };
        r->t[k] = 0.9f - 0.2f * (float)k;
        r->context[k] = noise_floats(3 + k, TOKENS * width);
        r->cond[k] = (struct diffusion_cond) {
            .context = r->context[k], .tokens = TOKENS, .width = width, .ref = r->ref
        };
        r->list[k] = &r->cond[k];
    }
    r->in = (struct diffusion_in) {
        .shape = { 5, { n, C, 1, H, W } }, .x = r->x, .t = r->t, .cond = r->list, .out = r->out
    };
}

static void rig_close(struct rig *r)
{
    diffusion_close(r->d);
    net_rig_close(&r->g);
    for (size_t k = 0; k < N_MAX; k++) {
        free(r->context[k]);
        free((float *)(uintptr_t)r->ref[k].x);
    }
    free(r->x), free(r->out);
}

/* What it gives for all n; to be freed. */
static float *run(struct rig *r)
{
    berth_err err = { 0 };
    float *out = calloc((size_t)N_MAX * EACH, sizeof *out);
    uint64_t peak;
    assert_non_null(out);
    assert_ok(diffusion_predict(r->d, &r->in, &peak, &err), err);
    r->in.out = out;
    assert_ok(diffusion_forward(r->d, &r->in, &err), err);
    return out;
}

static float *run_file(const char *devices, const char *path, const char *alloc, size_t n,
                       size_t refs)
{
    struct rig r;
    rig_open(&r, devices, path, alloc, n);
    for (size_t k = 0; k < N_MAX; k++)
        r.cond[k].refs = refs;
    float *out = run(&r);
    assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
    rig_close(&r);
    return out;
}

/* Of one size and method, items that look at pictures are as if alone; others are apart. */
static void items_of_a_batch_are_as_if_alone(void **state)
{
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "batch", DT_F32, "safetensors"), NULL, 3);
    for (size_t k = 0; k < 3; k++)
        r.cond[k].refs = 3, r.cond[k].ref_method = REF_INDEX_TIMESTEP_ZERO;
    float *all = run(&r);
    assert_int_equal(diffusion_report(r.d).passes, 1);
    for (size_t k = 0; k < 3; k++) {
        struct diffusion_in in = r.in;
        in.shape.dim[0] = 1;
        in.x += k * EACH;
        in.t += k;
        in.cond += k;
        in.item = &k; /* the third picture has two items, which differ */
        in.out = r.out;
        assert_ok(diffusion_forward(r.d, &in, &err), err);
        assert_memory_equal(all + k * EACH, r.out, EACH * sizeof *all);
    }
    uint64_t before = diffusion_report(r.d).passes;
    r.cond[1].refs = 2;
    r.cond[2].ref_method = REF_INDEX;
    free(run(&r));
    assert_int_equal(diffusion_report(r.d).passes - before, 3);
    rig_close(&r);
    free(all);
}

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
        struct rig r;
        float *got[ARRAY_LEN(method)];
        c.timestep_zero = file[f].zero;
        c.layered = file[f].layered;
        rig_open(&r, "cpu=256m", file_of(&c, "refs", DT_F32, "safetensors"), NULL, 1);
        float *none = run(&r);
        r.cond[0].refs = 4;
        float *own = run(&r);
        for (size_t i = 0; i < ARRAY_LEN(method); i++) {
            r.cond[0].ref_method = method[i];
            got[i] = run(&r);
            assert_true(rel_error(got[i], none, EACH) > 1e-4);
            assert_int_equal(!memcmp(got[i], own, EACH * sizeof *own), method[i] == file[f].own);
            for (size_t k = 0; k < i; k++)
                assert_true(rel_error(got[i], got[k], EACH) > 1e-5);
        }
        r.cond[0].ref_method = REF_UXO; /* as offset is */
        float *uxo = run(&r);
        assert_memory_equal(uxo, got[0], EACH * sizeof *uxo);
        free(none), free(own), free(uxo);
        for (size_t i = 0; i < ARRAY_LEN(method); i++)
            free(got[i]);
        rig_close(&r);
    }
}

static void bad_pictures_are_refused(void **state)
{
    struct rig r;
    struct diffusion_ref many[QWEN_IMAGE_REFS_MAX + 1];
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "bad", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = r.ref[0];
    r.cond[0].ref = many;
    r.cond[0].refs = ARRAY_LEN(many);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "more than 64");
    r.cond[0].refs = 1;
    many[0].shape = (struct shape) { 4, { 1, C, 6, 7 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "cannot look at a latent");
    many[0].shape = (struct shape) { 5, { 1, C / 2, 1, 6, 7 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "cannot look at a latent");
    many[0].shape = (struct shape) { 5, { 1, C, 1, 1 << 20, 1 << 20 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "to look at");
    rig_close(&r);
}

/* What stands in hidden tokens does not count, where they stand does: others keep their places. */
static void hidden_text_is_seen_by_nobody(void **state)
{
    static const bool last[TOKENS] = { [TOKENS - 1] = true }, first[TOKENS] = { true },
                      all[TOKENS] = { true, true, true, true, true, true, true };
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "hidden", DT_F32, "safetensors"), NULL, 1);
    float *whole = run(&r);
    r.cond[0].hidden = last;
    float *hidden = run(&r);
    memset(r.context[0] + (TOKENS - 1) * r.cond[0].width, 0, r.cond[0].width * sizeof(float));
    float *other = run(&r);
    r.cond[0].hidden = NULL;
    r.cond[0].tokens = TOKENS - 1;
    float *shorter = run(&r);
    assert_true(rel_error(whole, hidden, EACH) > 1e-4);
    assert_memory_equal(hidden, other, EACH * sizeof *hidden);
    assert_memory_equal(hidden, shorter, EACH * sizeof *hidden);
    /* without the first one the others stand one place further than if it were not there */
    r.cond[0].hidden = first;
    float *moved = run(&r);
    r.cond[0].hidden = NULL;
    r.cond[0].context += r.cond[0].width;
    r.cond[0].tokens--;
    float *not_moved = run(&r);
    assert_true(rel_error(moved, not_moved, EACH) > 1e-5);
    r.cond[0].hidden = all;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "nothing is to be seen");
    free(whole), free(hidden), free(other), free(shorter), free(moved), free(not_moved);
    rig_close(&r);
}

/* Layers of a picture are frames: each has a place of its own. */
static void layers_are_frames(void **state)
{
    struct qwen_image_config c = small;
    struct rig r;
    (void)state;
    c.layered = true;
    rig_open(&r, "cpu=256m", file_of(&c, "layers", DT_F32, "safetensors"), NULL, 1);
    r.in.shape = (struct shape) { 5, { 1, C, 3, H, W } };
    for (size_t i = 0; i < 3 * (size_t)EACH;
         i++) /* three times the same frame, channel by channel */
        r.x[i] = (float)((i / (3 * H * W) * 31 + i % (H * W)) % 17) / 8.0f - 1.0f;
    r.cond[0].refs = 1;
    float *got = run(&r);
    const float *a = got, *b = got + H * W; /* frames of the first channel */
    assert_true(rel_error(a, b, H * W) > 1e-5);
    free(got);
    rig_close(&r);
}

/* Everything on a donor, through a ring with room for two blocks: each of them comes once a pass,
 * in the order that the forward asks. */
static void blocks_stream_in_order(void **state)
{
    struct qwen_image_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.head_dim = 128;
    const char *path = file_of(&c, "streamed", DT_F32, "safetensors");
    for (size_t n = 1; n <= 2; n++) {
        struct rig r;
        float *want = run_file("cpu=256m", path, NULL, n, 2);
        rig_open(&r, "cpu=16m,null:0=128m", path, "null:0,*#cpu", n);
        for (size_t k = 0; k < N_MAX; k++)
            r.cond[k].refs = 2;
        for (uint64_t pass = 1; pass <= 3; pass++) {
            float *got = run(&r);
            assert_memory_equal(want, got, n * EACH * sizeof *want);
            free(got);
            struct net_report rep = diffusion_report(r.d);
            assert_int_equal(rep.stream.slots, 2);
            assert_int_equal(rep.stream.out_of_order + rep.stream.dropped, 0);
            assert_int_equal(rep.stream.bytes - rep.stream.ahead, pass * rep.stream.donor_bytes);
        }
        rig_close(&r);
        free(want);
    }
}

/* Rung 2: feed-forwards in halves, in less memory, with the same bits. */
static void thrifty_passes_give_the_same_bits(void **state)
{
    const char *path = file_of(&small, "thrifty", DT_F32, "safetensors");
    const size_t each = (size_t)C * LARGE * LARGE;
    float *x = noise_floats(5, each), *want = calloc(each, sizeof *want),
          *got = calloc(each, sizeof *got);
    (void)state;
    assert_true(want && got);
    for (size_t refs = 0; refs <= 2; refs += 2) {
        struct rig r;
        struct net_report rep = { 0 };
        char devices[64] = "cpu=256m";
        for (int less = 0; less < 2; less++) {
            berth_err err = { 0 };
            rig_open(&r, devices, path, NULL, 1);
            r.in.shape = (struct shape) { 5, { 1, C, 1, LARGE, LARGE } };
            r.in.x = x;
            r.in.out = less ? got : want;
            r.cond[0].refs = refs;
            r.cond[0].ref_method = REF_INDEX_TIMESTEP_ZERO;
            assert_ok(diffusion_forward(r.d, &r.in, &err), err);
            struct net_report now = diffusion_report(r.d);
            assert_int_equal(now.thrifty, less);
            assert_true(!less || now.peak < rep.peak);
            if (!less)
                snprintf(
                    devices, sizeof devices, "cpu=%llu",
                    (unsigned long long)(res_info(r.g.m).bytes * 33 / 32 + now.peak * 15 / 16));
            rep = now;
            rig_close(&r);
        }
        assert_memory_equal(want, got, each * sizeof *want);
    }
    free(x), free(want), free(got);
}

static void every_stored_type_computes(void **state)
{
    static const struct {
        enum dtype dtype;
        const char *format;
        double limit;
    } list[] = { { DT_F16, "safetensors", 5e-3 },
                 { DT_BF16, "safetensors", 4e-2 },
                 { DT_F8_E4M3, "safetensors", 0.5 },
                 { DT_Q8_0, "gguf", 6e-2 },
                 { DT_Q4_0, "gguf", 0.8 } };
    float *exact =
        run_file("cpu=256m", file_of(&small, "typed", DT_F32, "safetensors"), NULL, 1, 1);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *path =
            file_of(&small, dtype_name(list[i].dtype), list[i].dtype, list[i].format);
        float *got = run_file("cpu=256m", path, NULL, 1, 1);
        float *spread = run_file("cuda:0@cpu=8m,cpu=64m,null:0=8m", path,
                                 "cuda:0,20%;null:0,50%;cpu,30%#cuda:0", 1, 1);
        assert_near(dtype_name(list[i].dtype), got, exact, EACH, list[i].limit);
        assert_memory_equal(got, spread, EACH * sizeof *got);
        free(got), free(spread);
    }
    free(exact);
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

static void control_open(struct rig *r, const char *path, const char *alloc, struct res_model **out)
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
    float *got[ARRAY_LEN(row) + 1], *hint = noise_floats(9, (size_t)C * 8 * 6);
    (void)state;
    for (size_t i = 0; i <= ARRAY_LEN(row); i++) {
        const size_t k = i < ARRAY_LEN(row) ? i : 0;
        struct rig r;
        struct res_model *m = NULL;
        berth_err err = { 0 };
        rig_open(&r, row[k].devices, file_of(&small, "steered", DT_F32, "safetensors"),
                 row[k].alloc, 2);
        r.in.shape = (struct shape) { 5, { 2, C, 1, 8, 6 } };
        r.cond[0].refs = r.cond[1].refs = 1;
        if (i < ARRAY_LEN(row)) {
            control_open(&r, control_file(64, C, 3), row[k].control, &m);
            struct diffusion_control by = {
                .m = m, .hint = hint, .h = 8, .w = 6, .strength = row[k].strength
            };
            assert_ok(diffusion_add_control(r.d, &by, &err), err);
        }
        got[i] = run(&r);
        diffusion_close(r.d);
        r.d = NULL;
        res_unref(m);
        rig_close(&r);
    }
    const size_t n = 2 * (size_t)C * 8 * 6;
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
    } row[] = { { 96, C, 3, "3 blocks of width 96 for a transformer of 3 of width 64" },
                { 64, C, 2, "2 blocks of width 64" },
                { 64, C + 2, 3, "over 18 channels" } };
    struct rig r;
    float *hint = noise_floats(9, (size_t)(C + 2) * 10 * 6);
    struct res_model *m;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "refuses", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        control_open(&r, control_file(row[i].width, row[i].channels, row[i].blocks), NULL, &m);
        struct diffusion_control by = { .m = m, .hint = hint, .h = 10, .w = 6, .strength = 1 };
        assert_fails(diffusion_add_control(r.d, &by, &err), err, BERTH_EUNSUPPORTED, row[i].said);
        res_unref(m);
    }
    control_open(&r, control_file(64, C, 3), NULL, &m);
    struct diffusion_control by = { .m = m, .hint = hint, .h = 10, .w = 6, .strength = 1 };
    assert_ok(diffusion_add_control(r.d, &by, &err), err);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EUNSUPPORTED, "odd sides"); /* 9 */
    diffusion_close(r.d);
    r.d = NULL;
    res_unref(m);
    rig_close(&r);
    free(hint);
}

/* ---- what goes wrong ---- */

static bool leave_out(const void *user, const struct key *key, char *name, size_t cap,
                      struct shape *s)
{
    (void)name, (void)cap, (void)s;
    return strcmp(key->name, user) != 0;
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "txt_norm.weight", "img_in.weight",
                                         "time_text_embed.timestep_embedder.linear_1.weight",
                                         "transformer_blocks.0.img_mod.1.weight" };
    struct keys k = { 0 };
    (void)state;
    keys_qwen_image(&k, &small);
    for (size_t i = 0; i < k.n; i++) {
        const char *name = k.at[i].name;
        struct net_rig g;
        struct diffusion *d;
        berth_err err = { 0 };
        net_rig_open(&g, "cpu=64m", keys_file_changed(&k, "without", leave_out, name), NULL, NULL);
        struct diffusion_args args = { .res = g.f.r, .m = g.m };
        berth_status s = diffusion_open(&args, &d, &err);
        bool mark = false; /* without one it is nothing that is known */
        for (size_t m = 0; m < ARRAY_LEN(marks); m++)
            mark |= !strcmp(name, marks[m]);
        if (s == BERTH_OK || !strstr(err.msg, mark ? "no diffusion model" : name))
            fail_msg("without '%s': %s", name, s ? err.msg : "it runs");
        diffusion_close(d);
        net_rig_close(&g);
    }
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    static const bool hidden[TOKENS] = { [2] = true };
    struct rig r;
    berth_status s = BERTH_ENOMEM;
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&small, "oom", DT_F32, "safetensors"), NULL, 2);
    for (size_t k = 0; k < 2; k++)
        r.cond[k].refs = 1, r.cond[k].hidden = hidden;
    float *want = run(&r);
    r.in.out = r.out;
    for (long k = 0; s != BERTH_OK; k++) {
        struct diffusion_args args = { .res = r.g.f.r, .m = r.g.m };
        struct diffusion *d = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = diffusion_open(&args, &d, &err);
        if (!s)
            s = diffusion_forward(d, &r.in, &err);
        oom_off();
        diffusion_close(d);
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(want, r.out, 2 * EACH * sizeof *want);
    free(want);
    rig_close(&r);
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
