/* The Flux transformer: what files it is read from, patches, batches, placements, memory. Its
 * numbers are in tests/golden/model/test_flux.c. */
#include "support/flux_files.h"
#include "support/oom.h"
#include "support/presets.h"
#include "support/sparse.h"

#include "model/diffusion.h"
#include "model/flux/flux.h"
#include "model/flux/presets.h"

#define H 9
#define W 6
#define C 16
#define EACH (C * H * W)
#define N_MAX 4
#define LARGE 96

static const struct flux_config small = { .in_channels = 4 * C,
                                          .hidden = 64,
                                          .head_dim = 32,
                                          .context_dim = 48,
                                          .vec_dim = 40,
                                          .depth = 2,
                                          .depth_single = 3,
                                          .guidance = true };

static const char *file_of(const struct flux_config *c, const char *name, enum dtype dtype,
                           const char *format)
{
    static const char *const hiprec[] = { "img_in.",      "txt_in.",      "time_in.", "vector_in.",
                                          "guidance_in.", "final_layer.", NULL };
    struct keys k = { 0 };
    keys_flux(&k, c);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, format, hiprec);
    keys_release(&k);
    return path;
}

/* ---- config ---- */

/* Detection of a key list; of its data nothing is read. */
static berth_status detect_keys(const struct keys *k, struct flux_net *f,
                                struct diffusion_info *info, berth_err *err)
{
    const char *path = tmp_path("config.safetensors");
    struct weights *w;
    assert_false(k->bad);
    assert_ok(sparse_keys(path, k, DT_F16, err), *err);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = flux_detect(w, "", f, err);
    if (!s && info)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        uint64_t hidden, head, axis[FLUX_AXES];
        bool guidance;
    } list[] = { { 3072, 128, { 16, 56, 56 }, true },
                 { 128, 64, { 8, 28, 28 }, false },
                 { 96, 32, { 4, 14, 14 }, true } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct flux_config c = small;
        struct keys k = { 0 };
        struct flux_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        c.hidden = list[i].hidden;
        c.head_dim = list[i].head;
        c.guidance = list[i].guidance;
        keys_flux(&k, &c);
        assert_ok(detect_keys(&k, &f, &info, &err), err);
        keys_release(&k);
        assert_int_equal(f.heads, list[i].hidden / list[i].head);
        assert_int_equal(f.mlp, 4 * list[i].hidden);
        for (size_t a = 0; a < FLUX_AXES; a++)
            assert_int_equal(f.axis[a], list[i].axis[a]);
        assert_int_equal(f.depth, c.depth);
        assert_int_equal(f.depth_single, c.depth_single);
        assert_int_equal(f.guidance, c.guidance);
        assert_false(f.diffusers);
        assert_int_equal(info.guidance, c.guidance);
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_string_equal(info.latent.name, "Flux");
        assert_int_equal(info.act, DT_BF16);
        assert_int_equal(info.act_else, DT_F16);
        assert_int_equal(info.adm_channels, c.vec_dim);
        assert_int_equal(info.context_dim, c.context_dim);
        assert_true(info.shift == (c.guidance ? 1.15 : 1.0));
        assert_true(info.multiplier == (c.guidance ? 0.0 : 1.0));
    }
}

static void others_are_refused_by_name(void **state)
{
    static const struct {
        const char *tensor[2], *said;
        struct flux_config change; /* what is not 0 */
    } list[] = {
        { { "double_stream_modulation_img.lin.weight" }, "Flux2", { 0 } },
        { { "distilled_guidance_layer.norms.0.scale" }, "Chroma", { 0 } },
        { { "distilled_guidance_layer.0.norms.0.scale" }, "Chroma", { 0 } },
        { { "double_blocks.0.img_mlp.gate_proj.weight", "txt_norm.scale" }, "Ovis", { 0 } },
        { { "txt_in.individual_token_refiner.blocks.0.norm1.weight" }, "Hunyuan", { 0 } },
        { { NULL }, "heads of 16", { .head_dim = 16 } },
        { { NULL }, "heads of 96", { .head_dim = 96, .hidden = 128 } },
        /* few blocks: sanitizers have no room to map a terabyte */
        { { NULL }, "at most 65536", { .hidden = 65536 + 32, .depth = 1, .depth_single = 1 } },
        { { NULL }, "8 channels", { .in_channels = 32 } }, /* in and out */
        { { NULL }, "patches of 66", { .in_channels = 66 } },
        { { NULL }, "at most 256 are taken", { .depth_single = 257 } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct flux_config c = small;
        const struct flux_config *to = &list[i].change;
        struct keys k = { 0 };
        struct flux_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        c.head_dim = to->head_dim ? to->head_dim : c.head_dim;
        c.hidden = to->hidden ? to->hidden : c.hidden;
        c.in_channels = to->in_channels ? to->in_channels : c.in_channels;
        c.depth = to->depth ? to->depth : c.depth;
        c.depth_single = to->depth_single ? to->depth_single : c.depth_single;
        keys_flux(&k, &c);
        for (size_t t = 0; t < ARRAY_LEN(list[i].tensor) && list[i].tensor[t]; t++)
            keys_tensor(&k, list[i].tensor[t], 64, 0, 0, 0);
        berth_status s = detect_keys(&k, &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
        keys_release(&k);
    }
}

/* Control and Fill models: more channels in than out. What is neither is refused. */
static void channels_beside_the_latent(void **state)
{
    static const struct {
        uint64_t wide;
        bool runs, inpaint;
        uint32_t fold;
    } row[] = { { 16, true, false, 0 }, { 32, true, false, 0 },  { 96, true, true, 8 },
                { 8, false, false, 0 }, { 33, false, false, 0 }, { 80, false, false, 0 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct keys k = { 0 }, out = { 0 };
        struct flux_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        keys_flux(&k, &small);
        for (size_t t = 0; t < k.n; t++) {
            bool in = !strcmp(k.at[t].name, "img_in.weight");
            const uint64_t *d = k.at[t].shape.dim;
            keys_tensor(&out, k.at[t].name, d[0], in ? 4 * row[i].wide : d[1], d[2], d[3]);
        }
        if (row[i].runs) {
            assert_ok(detect_keys(&out, &f, &info, &err), err);
            assert_int_equal(info.in_channels, row[i].wide);
            assert_int_equal(info.inpaint, row[i].inpaint);
            assert_int_equal(info.mask_fold, row[i].fold);
            assert_int_equal(info.refs, row[i].wide == 16);
        } else {
            assert_fails(detect_keys(&out, &f, &info, &err), err, BERTH_EUNSUPPORTED,
                         "beside the latent");
        }
        assert_int_equal(f.in_channels, row[i].wide);
        keys_release(&k);
        keys_release(&out);
    }
}

/* ---- host ---- */

static void patches_wrap_around(void **state)
{
    static const struct {
        size_t n, h, w;
    } size[] = { { 1, 4, 6 }, { 2, 5, 4 }, { 1, 3, 7 }, { 3, 1, 1 } };
    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(size); s++) {
        size_t n = size[s].n, h = size[s].h, w = size[s].w, rows = (h + 1) / 2, cols = (w + 1) / 2;
        size_t count = n * C * h * w, tokens = n * rows * cols;
        float *x = noise_floats(s, count), *p = calloc(tokens * 4 * C, sizeof *p),
              *back = calloc(count, sizeof *back);
        assert_true(p && back);
        const struct shape latents = { 4, { n, C, h, w } };
        flux_patchify(x, &latents, p);
        for (size_t t = 0; t < tokens; t++)
            for (size_t f = 0; f < (size_t)4 * C; f++) {
                size_t b = t / (rows * cols), i = t / cols % rows, j = t % cols;
                size_t y = (2 * i + f / 2 % 2) % h, z = (2 * j + f % 2) % w;
                assert_true(p[t * 4 * C + f] == x[((b * C + f / 4) * h + y) * w + z]);
            }
        flux_unpatchify(p, &latents, back);
        assert_memory_equal(x, back, count * sizeof *x);
        free(x), free(p), free(back);
    }
}

static void guidance_is_rounded_twice(void **state)
{
    (void)state;
    assert_true(flux_guidance(3.5f, DT_F32) == 3500.0f);
    assert_true(flux_guidance(3.5f, DT_F16) == 3500.0f);
    assert_true(flux_guidance(3.5f, DT_BF16) == 3504.0f);
    assert_true(flux_guidance(3.3f, DT_BF16) == 3296.0f); /* 3.296875 before */
}

/* ---- passes ---- */

struct rig {
    struct net_rig g;
    struct diffusion *d;
    float *x, *pooled, *context[N_MAX], *out, t[N_MAX];
    struct diffusion_cond cond[N_MAX];
    const struct diffusion_cond *list[N_MAX];
    struct diffusion_in in;
};

static void rig_open(struct rig *r, const char *devices, const char *path, const char *alloc,
                     size_t n)
{
    berth_err err = { 0 };
    *r = (struct rig) { .d = NULL };
    net_rig_open(&r->g, devices, path, NULL, alloc);
    struct diffusion_args args = { .res = r->g.f.r, .m = r->g.m };
    assert_ok(diffusion_open(&args, &r->d, &err), err);
    const struct diffusion_info *i = diffusion_info(r->d);
    size_t width = (size_t)i->context_dim;
    r->x = noise_floats(1, (size_t)N_MAX * EACH);
    r->pooled = noise_floats(2, (size_t)i->adm_channels);
    r->out = calloc((size_t)N_MAX * EACH, sizeof *r->out);
    for (size_t k = 0; k < N_MAX; k++) {
        r->t[k] = 0.9f - 0.2f * (float)k;
        r->context[k] = noise_floats(3 + k, 7 * width);
        r->cond[k] = (struct diffusion_cond) { .context = r->context[k],
                                               .tokens = 7,
                                               .width = width,
                                               .pooled = k % 2 ? NULL : r->pooled,
                                               .pooled_n = (size_t)i->adm_channels };
        r->list[k] = &r->cond[k];
    }
    r->in = (struct diffusion_in) {
        .shape = { 4, { n, C, H, W } }, .x = r->x, .t = r->t, .cond = r->list, .out = r->out
    };
}

static void rig_close(struct rig *r)
{
    diffusion_close(r->d);
    net_rig_close(&r->g);
    for (size_t k = 0; k < N_MAX; k++)
        free(r->context[k]);
    free(r->x), free(r->pooled), free(r->out);
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

static float *run_file(const char *devices, const char *path, const char *alloc, size_t n)
{
    struct rig r;
    rig_open(&r, devices, path, alloc, n);
    float *out = run(&r);
    assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
    rig_close(&r);
    return out;
}

static void items_of_a_batch_are_as_if_alone(void **state)
{
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "batch", DT_F32, "safetensors"), NULL, 3);
    r.cond[0].guided = 1, r.cond[0].guidance = 2.0f;
    float *all = run(&r);
    assert_int_equal(diffusion_report(r.d).passes, 1);
    for (size_t k = 0; k < 3; k++) {
        struct diffusion_in in = r.in;
        in.shape.dim[0] = 1;
        in.x += k * EACH;
        in.t += k;
        in.cond += k;
        in.out = r.out;
        assert_ok(diffusion_forward(r.d, &in, &err), err);
        assert_memory_equal(all + k * EACH, r.out, EACH * sizeof *all);
    }
    /* Prompts are never repeated: queries of text look at each other. */
    uint64_t before = diffusion_report(r.d).passes;
    r.cond[1].tokens = 3;
    free(run(&r));
    assert_int_equal(diffusion_report(r.d).passes - before, 2);
    rig_close(&r);
    free(all);
}

/* Tokens in front of the text (USO): the same bits wherever blocks lie; without them as before; of
 * another width they are refused. */
static void tokens_in_front(void **state)
{
    static const struct {
        const char *devices, *alloc;
    } place[] = { { "cpu=256m", NULL },
                  { "cpu=16m,null:0=128m", "null:0,*#cpu" },
                  { "cuda:0@cpu=32m,cpu=64m,null:0=32m", "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" } };
    const char *path = file_of(&small, "in_front", DT_F32, "safetensors");
    const size_t wide = (size_t)small.hidden, rows = 3;
    float *tokens = noise_floats(55, rows * wide), *first = NULL;
    float *plain = run_file("cpu=256m", path, NULL, 2);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(place); i++) {
        struct rig r;
        berth_err err = { 0 };
        rig_open(&r, place[i].devices, path, place[i].alloc, 2);
        assert_fails(diffusion_add_tokens(r.d, tokens, rows, wide + 1, &err), err, BERTH_EINVAL,
                     "a style of width");
        float *before = run(&r);
        assert_memory_equal(before, plain, 2 * EACH * sizeof *plain);
        assert_ok(diffusion_add_tokens(r.d, tokens, rows, wide, &err), err);
        float *got = run(&r);
        assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
        assert_true(rel_error(got, plain, 2 * EACH) > 1e-4);
        if (first)
            assert_memory_equal(got, first, 2 * EACH * sizeof *got);
        else
            first = got;
        if (first != got)
            free(got);
        free(before);
        rig_close(&r);
    }
    free(tokens), free(first), free(plain);
}

static void guidance_counts(void **state)
{
    struct rig r;
    float *got[5];
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "guided", DT_F32, "safetensors"), NULL, 1);
    static const struct {
        int guided;
        float guidance;
    } said[] = { { 0, 0 }, { 1, 3.5f }, { 1, 4.5f }, { -1, 3.5f }, { 1, 0 } };
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        r.cond[0].guided = said[i].guided;
        r.cond[0].guidance = said[i].guidance;
        got[i] = run(&r);
    }
    assert_memory_equal(got[0], got[1], EACH * sizeof *got[0]); /* nothing said: 3.5 */
    for (size_t i = 2; i < ARRAY_LEN(said); i++)
        for (size_t k = 1; k < i; k++)
            assert_true(rel_error(got[i], got[k], EACH) > 1e-4);
    /* With the term and without it are not one batch. */
    r.in.shape.dim[0] = 2;
    r.cond[0].guided = -1;
    uint64_t before = diffusion_report(r.d).passes;
    float *both = run(&r);
    assert_int_equal(diffusion_report(r.d).passes - before, 2);
    assert_memory_equal(both, got[3], EACH * sizeof *both);
    free(both);
    rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        free(got[i]);

    struct flux_config c = small;
    c.guidance = false; /* schnell: nothing listens */
    rig_open(&r, "cpu=256m", file_of(&c, "schnell", DT_F32, "safetensors"), NULL, 1);
    got[0] = run(&r);
    r.cond[0].guided = 1, r.cond[0].guidance = 9;
    got[1] = run(&r);
    assert_memory_equal(got[0], got[1], EACH * sizeof *got[0]);
    free(got[0]), free(got[1]);
    rig_close(&r);
}

/* An absent pooled text is zeros, a longer one is cut, a shorter one refused. */
static void pooled_text(void **state)
{
    struct rig r;
    berth_err err = { 0 };
    float *wide = calloc(100, sizeof *wide);
    (void)state;
    assert_non_null(wide);
    rig_open(&r, "cpu=256m", file_of(&small, "pooled", DT_F32, "safetensors"), NULL, 1);
    float *own = run(&r);
    r.cond[0].pooled = wide;
    r.cond[0].pooled_n = 100;
    float *zeros = run(&r);
    r.cond[0].pooled = NULL;
    float *none = run(&r);
    assert_memory_equal(zeros, none, EACH * sizeof *none);
    assert_true(rel_error(own, none, EACH) > 1e-4);
    r.cond[0].pooled = wide;
    r.cond[0].pooled_n = small.vec_dim - 1;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "pooled text of 40");
    free(own), free(zeros), free(none), free(wide);
    rig_close(&r);
}

/* Everything on a donor, through a ring with room for two blocks: each of them comes once a pass,
 * in the order that the forward asks. */
static void streams_in_order(const char *path, size_t n)
{
    struct rig r;
    float *want = run_file("cpu=256m", path, NULL, n);
    rig_open(&r, "cpu=16m,null:0=128m", path, "null:0,*#cpu", n);
    for (uint64_t pass = 1; pass <= 3; pass++) {
        float *got = run(&r);
        assert_memory_equal(want, got, n * EACH * sizeof *want);
        free(got);
        struct net_report rep = diffusion_report(r.d);
        assert_int_equal(rep.stream.slots, 2);
        assert_false(rep.thrifty);
        if (rep.stream.out_of_order + rep.stream.dropped)
            fail_msg("'%s', %zu latents: %llu fetched out of turn, %llu bytes dropped", path, n,
                     (unsigned long long)rep.stream.out_of_order,
                     (unsigned long long)rep.stream.dropped);
        assert_int_equal(rep.stream.bytes - rep.stream.ahead, pass * rep.stream.donor_bytes);
    }
    rig_close(&r);
    free(want);
}

static void blocks_stream_in_order(void **state)
{
    struct flux_config c = small;
    struct keys k = { 0 };
    char ours[512], theirs[512];
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.head_dim = 128;
    keys_flux(&k, &c);
    assert_false(k.bad);
    snprintf(ours, sizeof ours, "%s", file_of(&c, "streamed", DT_F32, "safetensors"));
    snprintf(theirs, sizeof theirs, "%s", flux_diffusers_file(&k, "streamed"));
    keys_release(&k);
    for (size_t n = 1; n <= 2; n++) {
        streams_in_order(ours, n);
        streams_in_order(theirs, n);
    }
    float *a = run_file("cpu=256m", ours, NULL, 2), *b = run_file("cpu=256m", theirs, NULL, 2);
    assert_near("diffusers' names", b, a, 2 * EACH, 1e-5);
    free(a), free(b);
}

/* What passes keep of positions is for one size. */
static void sizes_may_change(void **state)
{
    static const struct {
        size_t h, w, tokens;
    } size[] = { { H, W, 7 }, { W, H, 7 }, { H, W, 4 }, { H, W + 2, 4 }, { 1, 1, 1 } };
    const char *path = file_of(&small, "sizes", DT_F32, "safetensors");
    struct rig all;
    (void)state;
    rig_open(&all, "cpu=256m", path, NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(size); i++) {
        struct rig r, *const both[] = { &all, &r };
        float *out[2];
        rig_open(&r, "cpu=256m", path, NULL, 1);
        for (size_t k = 0; k < ARRAY_LEN(both); k++) {
            both[k]->in.shape.dim[2] = size[i].h;
            both[k]->in.shape.dim[3] = size[i].w;
            both[k]->cond[0].tokens = size[i].tokens;
            out[k] = run(both[k]);
        }
        assert_memory_equal(out[0], out[1], C * size[i].h * size[i].w * sizeof **out);
        free(out[0]), free(out[1]);
        rig_close(&r);
    }
    rig_close(&all);
}

/* Latents that are larger than what kernels take beside them. */
static void make_large(struct rig *r, float *x, float *out)
{
    r->in.shape.dim[2] = LARGE;
    r->in.shape.dim[3] = LARGE;
    r->in.x = x;
    r->in.out = out;
}

/* Rung 2: feed-forwards by rows, in less memory, with the same bits. */
static void thrifty_passes_give_the_same_bits(void **state)
{
    const char *path = file_of(&small, "thrifty", DT_F32, "safetensors");
    const size_t each = (size_t)C * LARGE * LARGE;
    float *x = noise_floats(5, 2 * each), *want = calloc(2 * each, sizeof *want),
          *got = calloc(2 * each, sizeof *got);
    (void)state;
    assert_true(want && got);
    for (size_t n = 1; n <= 2; n++) {
        struct rig r;
        char devices[64];
        berth_err err = { 0 };
        rig_open(&r, "cpu=256m", path, NULL, n);
        make_large(&r, x, want);
        assert_ok(diffusion_forward(r.d, &r.in, &err), err);
        struct net_report rep = diffusion_report(r.d);
        assert_false(rep.thrifty);
        snprintf(devices, sizeof devices, "cpu=%llu",
                 (unsigned long long)(res_info(r.g.m).bytes * 33 / 32 + rep.peak * 3 / 4));
        rig_close(&r);
        rig_open(&r, devices, path, NULL, n);
        make_large(&r, x, got);
        assert_ok(diffusion_forward(r.d, &r.in, &err), err);
        assert_memory_equal(want, got, n * each * sizeof *want);
        struct net_report less = diffusion_report(r.d);
        print_message("%zu latents: %llu bytes, thrifty %llu\n", n, (unsigned long long)rep.peak,
                      (unsigned long long)less.peak);
        assert_int_equal(less.passes, 1);
        assert_true(less.thrifty && less.peak < rep.peak * 3 / 4);
        rig_close(&r);
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
                 { DT_Q4_0, "gguf", 0.6 } };
    float *exact = run_file("cpu=256m", file_of(&small, "typed", DT_F32, "safetensors"), NULL, 1);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *path =
            file_of(&small, dtype_name(list[i].dtype), list[i].dtype, list[i].format);
        float *got = run_file("cpu=256m", path, NULL, 1);
        float *spread = run_file("cuda:0@cpu=8m,cpu=64m,null:0=8m", path,
                                 "cuda:0,20%;null:0,50%;cpu,30%#cuda:0", 1);
        assert_near(dtype_name(list[i].dtype), got, exact, EACH, list[i].limit);
        assert_memory_equal(got, spread, EACH * sizeof *got);
        free(got), free(spread);
    }
    free(exact);
}

struct without {
    const char *name;
};

static bool leave_out(const void *user, const struct key *key, char *name, size_t cap,
                      struct shape *s)
{
    const struct without *x = user;
    (void)name, (void)cap, (void)s;
    return strcmp(key->name, x->name) != 0;
}

static void what_is_missing_is_said(void **state)
{
    struct keys k = { 0 };
    (void)state;
    keys_flux(&k, &small);
    for (size_t i = 0; i < k.n; i++) {
        struct without one = { k.at[i].name };
        struct net_rig g;
        struct diffusion *d;
        berth_err err = { 0 };
        net_rig_open(&g, "cpu=64m", keys_file_changed(&k, "without", leave_out, &one), NULL, NULL);
        struct diffusion_args args = { .res = g.f.r, .m = g.m };
        berth_status s = diffusion_open(&args, &d, &err);
        /* the marks of the family: without them it is nothing that is known */
        bool mark = !strcmp(one.name, "img_in.weight") ||
                    !strcmp(one.name, "double_blocks.0.img_attn.norm.key_norm.scale");
        if (s == BERTH_OK || !strstr(err.msg, mark ? "no diffusion model" : one.name))
            fail_msg("without '%s': %s", one.name, s ? err.msg : "it runs");
        diffusion_close(d);
        net_rig_close(&g);
    }
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    struct rig r;
    berth_status s = BERTH_ENOMEM;
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&small, "oom", DT_F32, "safetensors"), NULL, 2);
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
        cmocka_unit_test(others_are_refused_by_name),
        cmocka_unit_test(channels_beside_the_latent),
        cmocka_unit_test(patches_wrap_around),
        cmocka_unit_test(guidance_is_rounded_twice),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(tokens_in_front),
        cmocka_unit_test(guidance_counts),
        cmocka_unit_test(pooled_text),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(sizes_may_change),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
