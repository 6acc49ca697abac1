/* The transformers of Z-Image and Lumina2: what files they are read from, patches, pads, batches,
 * placements, memory. Their numbers are in tests/golden/model/test_zimage.c. */
#include "support/golden.h"
#include "support/oom.h"
#include "support/presets.h"
#include "support/sparse.h"
#include "support/zimage_files.h"

#include "model/diffusion.h"
#include "model/lora_names.h"
#include "model/zimage/presets.h"
#include "model/zimage/zimage.h"

#define H 9
#define W 6
#define C 16
#define EACH (C * H * W)
#define N_MAX 4
#define LARGE 96
#define TOKENS 7

static const struct zimage_config small = { .hidden = 64,
                                            .ffn = 160,
                                            .context_dim = 48,
                                            .head_dim = 32,
                                            .heads = 2,
                                            .kv_heads = 2,
                                            .time = 64,
                                            .mod = 32,
                                            .layers = 2,
                                            .refiners = 2 };
static const struct zimage_config lumina = { .hidden = 96,
                                             .ffn = 160,
                                             .context_dim = 48,
                                             .head_dim = 24,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .time = 96,
                                             .mod = 96,
                                             .layers = 2,
                                             .refiners = 2,
                                             .lumina = true };

static const char *file_of(const struct zimage_config *c, const char *name, enum dtype dtype,
                           const char *format)
{
    static const char *const hiprec[] = { "x_embedder.", "cap_embedder.",
                                          "t_embedder.", "final_layer.",
                                          "x_pad_token", "cap_pad_token",
                                          NULL };
    struct keys k = { 0 };
    keys_zimage(&k, c);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, format, hiprec);
    keys_release(&k);
    return path;
}

/* ---- config ---- */

/* Detection of a key list; of its data nothing is read. */
static berth_status detect_keys(const struct keys *k, struct zimage_net *f,
                                struct diffusion_info *info, berth_err *err)
{
    const char *path = tmp_path("config.safetensors");
    struct weights *w;
    assert_false(k->bad);
    assert_ok(sparse_keys(path, k, DT_F16, err), *err);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = zimage_detect(w, "", f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        const char *preset, *family;
        uint64_t hidden, ffn, heads, kv, axis[ZIMAGE_AXES];
        unsigned layers, pad_to;
        double theta, shift;
    } list[] = {
        { "z-image-turbo", "Z-Image", 3840, 10240, 30, 30, { 32, 48, 48 }, 30, 32, 256, 3 },
        { "z-image-tiny", "Z-Image", 256, 768, 2, 2, { 32, 48, 48 }, 2, 32, 256, 3 },
        { "z-image-omni", "Z-Image Omni", 3840, 10240, 30, 30, { 32, 48, 48 }, 30, 32, 256, 3 },
        { "lumina2", "Lumina2", 2304, 9216, 24, 8, { 32, 32, 32 }, 26, 1, 10000, 6 },
        { "lumina2-tiny", "Lumina2", 192, 768, 4, 2, { 16, 16, 16 }, 2, 1, 10000, 6 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys k = { 0 };
        struct zimage_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(preset_keys(preset_find(list[i].preset), &k, &err), err);
        assert_ok(detect_keys(&k, &f, &info, &err), err);
        keys_release(&k);
        assert_int_equal(f.hidden, list[i].hidden);
        assert_int_equal(f.ffn, list[i].ffn);
        assert_int_equal(f.heads, list[i].heads);
        assert_int_equal(f.kv_heads, list[i].kv);
        for (size_t a = 0; a < ZIMAGE_AXES; a++)
            assert_int_equal(f.axis[a], list[i].axis[a]);
        assert_int_equal(f.layers, list[i].layers);
        assert_int_equal(f.noise_refiners, 2);
        assert_int_equal(f.context_refiners, 2);
        assert_int_equal(f.pad_to, list[i].pad_to);
        assert_true(f.theta == list[i].theta);
        assert_false(f.diffusers);
        assert_string_equal(info.family, list[i].family);
        assert_string_equal(info.latent.name, "Flux");
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.act, DT_BF16);
        assert_int_equal(info.act_else, DT_F32);
        assert_int_equal(info.adm_channels, 0);
        assert_int_equal(info.context_dim, f.context_dim);
        assert_true(info.shift == list[i].shift && info.multiplier == 1.0);
    }
}

/* Parameters as their authors count them. */
static void full_size_has_its_parameters(void **state)
{
    static const struct {
        const char *preset;
        uint64_t params;
    } list[] = { { "z-image-turbo", 6154908736 }, { "lumina2", 2609769152 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys k = { 0 };
        berth_err err = { 0 };
        assert_ok(preset_keys(preset_find(list[i].preset), &k, &err), err);
        assert_int_equal(k.params, list[i].params);
        keys_release(&k);
    }
}

static void others_are_refused_by_name(void **state)
{
    static const struct {
        const char *tensor, *said;
        struct zimage_config change; /* what is not 0 */
    } list[] = {
        { "dec_net.cond_embed.weight", "pixel space", { 0 } },
        { NULL, "heads of 8", { .head_dim = 8 } },
        { NULL, "heads of 48", { .head_dim = 48, .kv_heads = 1 } },
        { NULL, "at most 65536", { .hidden = 65536 + 32, .layers = 1, .refiners = 1 } },
        { NULL, "at most 256 are taken", { .layers = 257 } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct zimage_config c = small;
        const struct zimage_config *to = &list[i].change;
        struct keys k = { 0 };
        struct zimage_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        c.head_dim = to->head_dim ? to->head_dim : c.head_dim;
        c.kv_heads = to->kv_heads ? to->kv_heads : c.kv_heads;
        c.hidden = to->hidden ? to->hidden : c.hidden;
        c.layers = to->layers ? to->layers : c.layers;
        c.refiners = to->refiners ? to->refiners : c.refiners;
        keys_zimage(&k, &c);
        if (list[i].tensor)
            keys_tensor(&k, list[i].tensor, 64, 0, 0, 0);
        berth_status s = detect_keys(&k, &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
        keys_release(&k);
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
        size_t count = n * C * h * w, each = rows * cols, wide = (size_t)4 * C, lead = 3;
        float *x = noise_floats(s, count), *p = calloc(n * each * wide, sizeof *p),
              *seq = calloc(n * (each + lead) * wide, sizeof *seq),
              *back = calloc(count, sizeof *back);
        assert_true(p && seq && back);
        const struct shape latents = { 4, { n, C, h, w } };
        zimage_patchify(x, &latents, p);
        for (size_t t = 0; t < n * each; t++)
            for (size_t f = 0; f < wide; f++) { /* row, column, channel */
                size_t b = t / each, i = t / cols % rows, j = t % cols;
                size_t y = (2 * i + f / C / 2) % h, z = (2 * j + f / C % 2) % w;
                assert_true(p[t * wide + f] == x[((b * C + f % C) * h + y) * w + z]);
            }
        for (size_t b = 0; b < n; b++) /* behind text, and what the network gives is negated */
            for (size_t k = 0; k < each * wide; k++)
                seq[(b * (each + lead) + lead) * wide + k] = -p[b * each * wide + k];
        zimage_unpatchify(seq, each + lead, lead, &latents, back);
        assert_memory_equal(x, back, count * sizeof *x);
        free(x), free(p), free(seq), free(back);
    }
}

/* ---- passes ---- */

struct rig {
    struct net_rig g;
    struct diffusion *d;
    float *x, *context[N_MAX], *out, t[N_MAX];
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
    size_t width = (size_t)diffusion_info(r->d)->context_dim;
    r->x = noise_floats(1, (size_t)N_MAX * EACH);
    r->out = calloc((size_t)N_MAX * EACH, sizeof *r->out);
    for (size_t k = 0; k < N_MAX; k++) {
        r->t[k] = 0.9f - 0.2f * (float)k;
        r->context[k] = noise_floats(3 + k, 64 * width);
        r->cond[k] =
            (struct diffusion_cond) { .context = r->context[k], .tokens = TOKENS, .width = width };
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

static float *run_file(const char *devices, const char *path, const char *alloc, size_t n)
{
    struct rig r;
    rig_open(&r, devices, path, alloc, n);
    float *out = run(&r);
    assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
    rig_close(&r);
    return out;
}

static void batch_of(const struct zimage_config *c, const char *name)
{
    struct rig r;
    berth_err err = { 0 };
    rig_open(&r, "cpu=256m", file_of(c, name, DT_F32, "safetensors"), NULL, 3);
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
    float *mixed = run(&r);
    assert_int_equal(diffusion_report(r.d).passes - before, 2);
    assert_memory_equal(all, mixed, EACH * sizeof *all);
    assert_memory_equal(all + 2 * EACH, mixed + 2 * EACH, EACH * sizeof *all);
    assert_true(rel_error(mixed + EACH, all + EACH, EACH) > 1e-4);
    rig_close(&r);
    free(all), free(mixed);
}

static void items_of_a_batch_are_as_if_alone(void **state)
{
    (void)state;
    batch_of(&small, "batch");
    batch_of(&lumina, "batch_lumina");
}

/* Everything on a donor, through a ring: each block comes once a pass, in the order that the
 * forward asks. */
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
    struct zimage_config c = small;
    struct keys k = { 0 };
    char ours[512], theirs[512];
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.ffn = 768;
    c.head_dim = 128;
    keys_zimage(&k, &c);
    assert_false(k.bad);
    snprintf(ours, sizeof ours, "%s", file_of(&c, "streamed", DT_F32, "safetensors"));
    snprintf(theirs, sizeof theirs, "%s", zimage_diffusers_file(&k, "streamed"));
    keys_release(&k);
    for (size_t n = 1; n <= 2; n++) {
        streams_in_order(ours, n);
        streams_in_order(theirs, n);
    }
    float *a = run_file("cpu=256m", ours, NULL, 2), *b = run_file("cpu=256m", theirs, NULL, 2);
    assert_near("diffusers' names", b, a, 2 * EACH, 1e-5);
    free(a), free(b);
}

/* What passes keep of positions and pads is for one size. */
static void sizes_may_change(void **state)
{
    static const struct {
        size_t h, w, tokens;
    } size[] = { { H, W, 7 },   { W, H, 7 }, { H, W, 40 }, { H, W + 2, 4 },
                 { 8, 16, 32 }, { 1, 1, 1 }, { H, W, 64 } }; /* without pads, too */
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
                 (unsigned long long)(res_info(r.g.m).bytes * 33 / 32 + rep.peak * 7 / 8));
        rig_close(&r);
        rig_open(&r, devices, path, NULL, n);
        make_large(&r, x, got);
        assert_ok(diffusion_forward(r.d, &r.in, &err), err);
        assert_memory_equal(want, got, n * each * sizeof *want);
        struct net_report less = diffusion_report(r.d);
        print_message("%zu latents: %llu bytes, thrifty %llu\n", n, (unsigned long long)rep.peak,
                      (unsigned long long)less.peak);
        assert_int_equal(less.passes, 1);
        assert_true(less.thrifty && less.peak < rep.peak * 7 / 8);
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

/* ---- files ---- */

struct change {
    const char *name;
};

static bool leave_out(const void *user, const struct key *key, char *name, size_t cap,
                      struct shape *s)
{
    const struct change *x = user;
    (void)name, (void)cap, (void)s;
    return strcmp(key->name, x->name) != 0;
}

static bool is_mark(const char *name)
{
    return !strcmp(name, "cap_embedder.1.weight") ||
           !strcmp(name, "noise_refiner.0.attention.k_norm.weight");
}

static void what_is_missing_is_said(void **state)
{
    struct keys k = { 0 };
    (void)state;
    keys_zimage(&k, &small);
    for (size_t i = 0; i < k.n; i++) {
        struct change one = { k.at[i].name };
        struct net_rig g;
        struct diffusion *d;
        berth_err err = { 0 };
        if (!strcmp(one.name, "cap_pad_token")) /* without it there are no pads */
            continue;
        net_rig_open(&g, "cpu=64m", keys_file_changed(&k, "without", leave_out, &one), NULL, NULL);
        struct diffusion_args args = { .res = g.f.r, .m = g.m };
        berth_status s = diffusion_open(&args, &d, &err);
        if (s == BERTH_OK || !strstr(err.msg, is_mark(one.name) ? "no diffusion model" : one.name))
            fail_msg("without '%s': %s", one.name, s ? err.msg : "it runs");
        diffusion_close(d);
        net_rig_close(&g);
    }
    keys_release(&k);
}

/* Some files have a pad token as a vector. */
static bool flat_pads(const void *user, const struct key *key, char *name, size_t cap,
                      struct shape *s)
{
    (void)user, (void)name, (void)cap;
    if (strstr(key->name, "_pad_token"))
        *s = (struct shape) { 1, { key->count } };
    return true;
}

static bool in_checkpoint(const void *user, const struct key *key, char *name, size_t cap,
                          struct shape *s)
{
    (void)user, (void)s;
    snprintf(name, cap, "model.diffusion_model.%s", key->name);
    return true;
}

static void other_forms_of_files(void **state)
{
    keys_change_fn *const change[] = { flat_pads, in_checkpoint };
    struct keys k = { 0 };
    (void)state;
    keys_zimage(&k, &small);
    float *want = run_file("cpu=256m", file_of(&small, "plain", DT_F32, "safetensors"), NULL, 2);
    for (size_t i = 0; i < ARRAY_LEN(change); i++) {
        float *got =
            run_file("cpu=256m", keys_file_changed(&k, "changed", change[i], NULL), NULL, 2);
        assert_memory_equal(want, got, 2 * EACH * sizeof *want);
        free(got);
    }
    keys_release(&k);
    free(want);
}

/* A file in diffusers' names has nothing stacked: of a stacked change each of three takes its
 * rows. */
static void adapters_of_files_in_diffusers_names(void **state)
{
    static const struct {
        const char *base, *key;
        uint64_t from, of;
    } want[] = {
        { "lora_unet_layers_0_attention_qkv", "layers.0.attention.to_q.weight", 0, 192 },
        { "diffusion_model.layers.0.attention.qkv", "layers.0.attention.to_k.weight", 64, 192 },
        { "diffusion_model.layers.0.attention.qkv", "layers.0.attention.to_v.weight", 128, 192 },
        { "diffusion_model.layers.0.attention.to_v", "layers.0.attention.to_v.weight", 0, 0 },
        { "transformer.layers.0.attention.to_v", "layers.0.attention.to_v.weight", 0, 0 },
        { "lycoris_layers_1_attention_to_out_0", "layers.1.attention.to_out.0.weight", 0, 0 },
        { "layers.1.feed_forward.w3", "layers.1.feed_forward.w3.weight", 0, 0 },
        { "lora_unet_layers_1_attention_out", "layers.1.attention.to_out.0.weight", 0, 0 },
        { "lora_unet_x_embedder", "all_x_embedder.2-1.weight", 0, 0 },
        { "diffusion_model.final_layer.linear", "all_final_layer.2-1.linear.weight", 0, 0 },
    };
    struct keys k = { 0 };
    struct weights *w;
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    (void)state;
    keys_zimage(&k, &small);
    assert_ok(weights_open(zimage_diffusers_file(&k, "adapted"), NULL, &w, &err), err);
    assert_ok(lora_names_file(&t, w, NULL, &err), err);
    const struct lora_names names = lora_table_names(&t);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        char key[128];
        size_t found = 0;
        snprintf(key, sizeof key, "diffusion_model.%s", want[i].key);
        for (size_t n = 0; n < names.n; n++)
            found += !strcmp(names.at[n].base, want[i].base) && !strcmp(names.at[n].key, key) &&
                     names.at[n].from == want[i].from && names.at[n].of == want[i].of;
        if (found != 1)
            fail_msg("%s: %zu times", want[i].base, found);
    }
    lora_table_release(&t);
    weights_close(w);
    keys_release(&k);
}

/* ---- pictures to look at ---- */

static struct zimage_config omni_config(void)
{
    struct zimage_config c = small;
    c.siglip = 24;
    return c;
}

struct looks { /* two pictures with a text, four texts, and what was seen of the first */
    float *x;
    struct diffusion_ref ref[2];
    struct diffusion_rows text[4], seen[1];
    struct diffusion_beside beside;
};

static void looks_open(struct looks *l, size_t width, size_t seen)
{
    l->x = noise_floats(77, (size_t)2 * C * 8 * 8);
    l->ref[0] = (struct diffusion_ref) { { 4, { 2, C, 4, 6 } }, l->x }; /* each item has its own */
    l->ref[1] = (struct diffusion_ref) { { 4, { 1, C, 8, 2 } }, l->x + 3 };
    for (size_t i = 0; i < 4; i++)
        l->text[i] = (struct diffusion_rows) { .x = l->x + 7 * i, .n = 3 + i, .width = width };
    l->seen[0] =
        (struct diffusion_rows) { .x = l->x + 5, .n = 6, .width = seen, .rows = 2, .cols = 3 };
    l->beside =
        (struct diffusion_beside) { .text = l->text, .texts = 4, .seen = l->seen, .seens = 1 };
}

static void look(struct rig *r, const struct looks *l)
{
    for (size_t k = 0; k < N_MAX; k++) {
        r->cond[k].ref = l->ref;
        r->cond[k].refs = 2;
        r->cond[k].beside = &l->beside;
    }
}

static float *run_looking(const char *devices, const char *path, const char *alloc, size_t n,
                          const struct looks *l)
{
    struct rig r;
    rig_open(&r, devices, path, alloc, n);
    look(&r, l);
    float *out = run(&r);
    assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
    assert_int_equal(diffusion_report(r.d).passes, 1);
    if (alloc) {
        struct net_report rep = diffusion_report(r.d);
        assert_int_equal(rep.stream.out_of_order + rep.stream.dropped, 0);
    }
    rig_close(&r);
    return out;
}

/* The same bits wherever blocks lie, whatever is beside an item, and after a pass without. */
static void pictures_to_look_at(void **state)
{
    const struct zimage_config c = omni_config();
    const char *path = file_of(&c, "omni", DT_F32, "safetensors");
    struct looks l;
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    looks_open(&l, (size_t)c.context_dim, (size_t)c.siglip);
    float *plain = run_file("cpu=256m", path, NULL, 2);
    float *want = run_looking("cpu=256m", path, NULL, 2, &l);
    float *streamed = run_looking("cpu=16m,null:0=128m", path, "null:0,*#cpu", 2, &l);
    float *spread = run_looking("cuda:0@cpu=16m,cpu=64m,null:0=8m", path,
                                "cuda:0,20%;null:0,50%;cpu,30%#cuda:0", 2, &l);
    assert_memory_equal(want, streamed, 2 * EACH * sizeof *want);
    assert_memory_equal(want, spread, 2 * EACH * sizeof *want);
    assert_true(rel_error(want, plain, EACH) > 1e-4);
    rig_open(&r, "cpu=256m", path, NULL, 2);
    float *first = run(&r);
    assert_memory_equal(plain, first, 2 * EACH * sizeof *want);
    look(&r, &l);
    for (size_t k = 0; k < 2; k++) { /* alone, as the item that it is */
        struct diffusion_in in = r.in;
        in.shape.dim[0] = 1;
        in.x += k * EACH;
        in.t += k;
        in.cond += k;
        in.item = (const size_t[]) { k };
        in.out = r.out;
        assert_ok(diffusion_forward(r.d, &in, &err), err);
        assert_memory_equal(want + k * EACH, r.out, EACH * sizeof *want);
    }
    rig_close(&r);
    free(plain), free(want), free(streamed), free(spread), free(first), free(l.x);
}

static void what_cannot_be_looked_at_is_refused(void **state)
{
    const struct zimage_config c = omni_config();
    struct looks l;
    struct rig r;
    struct diffusion_ref many[ZIMAGE_REFS_MAX + 1];
    (void)state;
    looks_open(&l, (size_t)c.context_dim, (size_t)c.siglip);
    rig_open(&r, "cpu=256m", file_of(&c, "omni_refused", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = l.ref[1];
    for (size_t i = 0; i < 5; i++) {
        static const char *const said[] = { "even sides", "at most 64", "text of width 48",
                                            "patches of 24 values", "cannot look at a latent" };
        struct looks x = l;
        berth_err err = { 0 };
        x.beside.text = x.text;
        x.beside.seen = x.seen;
        x.ref[1].shape.dim[2] -= i == 0;
        x.text[3].width -= i == 2;
        x.seen[0].cols -= i == 3;
        x.ref[0].shape.dim[1] -= i == 4;
        look(&r, &x);
        if (i == 1) {
            r.cond[0].ref = many;
            r.cond[0].refs = ARRAY_LEN(many);
        }
        berth_status s = diffusion_forward(r.d, &r.in, &err);
        if (s == BERTH_OK || !strstr(err.msg, said[i]))
            fail_msg("'%s' is not in '%s'", said[i], s ? err.msg : "it is fine");
    }
    rig_close(&r);
    free(l.x);
}

static void looking_survives_failing_allocations(void **state)
{
    const struct zimage_config c = omni_config();
    const char *path = file_of(&c, "omni_oom", DT_F32, "safetensors");
    struct looks l;
    struct rig r;
    berth_status s = BERTH_ENOMEM;
    (void)state;
    looks_open(&l, (size_t)c.context_dim, (size_t)c.siglip);
    float *want = run_looking("cpu=64m", path, NULL, 2, &l);
    rig_open(&r, "cpu=64m", path, NULL, 2);
    look(&r, &l);
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
    free(want), free(l.x);
    rig_close(&r);
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

/* A steered pass, all of it anew. */
static berth_status steer_once(struct rig *r, struct res_model *control, const float *hint,
                               berth_err *err)
{
    struct diffusion_args args = { .res = r->g.f.r, .m = r->g.m };
    struct diffusion_control by = {
        .m = control, .hint = hint, .h = H + H % 2, .w = W + W % 2, .strength = 0.5f
    };
    struct diffusion *d = NULL;
    berth_status s = diffusion_open(&args, &d, err);
    if (!s)
        s = diffusion_add_control(d, &by, err);
    if (!s)
        s = diffusion_forward(d, &r->in, err);
    diffusion_close(d);
    return s;
}

static void steering_survives_failing_allocations(void **state)
{
    struct zimage_config c = small;
    struct keys k = { 0 };
    struct rig r;
    struct res_model *control;
    float *hint = noise_floats(9, (size_t)33 * (H + 1) * (W + 1)), *want;
    berth_status s = BERTH_ENOMEM;
    berth_err err = { 0 };
    (void)state;
    c.hidden = 256, c.head_dim = 128, c.mod = 256;
    assert_ok(keys_read(golden_path("zcontrol_3_keys.json"), &k, &err), err);
    rig_open(&r, "cpu=256m", file_of(&c, "steered", DT_F32, "safetensors"), NULL, 2);
    struct res_open_args open = { .path = keys_file(&k, "control", DT_F32, "safetensors", NULL) };
    assert_ok(res_open(r.g.f.r, &open, &control, NULL, &err), err);
    assert_ok(res_load(control, NULL, NULL, &err), err);
    float *plain = run(&r);
    r.in.out = r.out;
    assert_ok(steer_once(&r, control, hint, &err), err);
    want = calloc((size_t)N_MAX * EACH, sizeof *want);
    assert_non_null(want);
    memcpy(want, r.out, 2 * EACH * sizeof *want);
    assert_true(rel_error(want, plain, 2 * EACH) > 1e-4);
    for (long n = 0; s != BERTH_OK; n++) {
        err = (berth_err) { 0 };
        oom_after(n);
        s = steer_once(&r, control, hint, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_memory_equal(want, r.out, 2 * EACH * sizeof *want);
    keys_release(&k);
    res_unref(control);
    rig_close(&r);
    free(want), free(plain), free(hint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(full_size_has_its_parameters),
        cmocka_unit_test(others_are_refused_by_name),
        cmocka_unit_test(patches_wrap_around),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(sizes_may_change),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(other_forms_of_files),
        cmocka_unit_test(adapters_of_files_in_diffusers_names),
        cmocka_unit_test(pictures_to_look_at),
        cmocka_unit_test(what_cannot_be_looked_at_is_refused),
        cmocka_unit_test(looking_survives_failing_allocations),
        cmocka_unit_test(no_memory_is_survived),
        cmocka_unit_test(steering_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
