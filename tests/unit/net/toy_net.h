/* toy_net: a weight file made by hand and a small network over it, for tests of nets.
 *
 *     struct toy t;
 *     toy_open(&t, "cpu=64m", "#cpu", (struct toy_file) { .weight = DT_F16 });
 *     toy_pass(&t, out);                       conv, norms, attention, linear, embedding of time
 *     toy_close(&t);                           nothing leaked
 *
 * Values of a tensor follow from its name, so that every placement of the same file has the
 * same. */
#ifndef UNIT_NET_TOY_NET_H
#define UNIT_NET_TOY_NET_H

#include "base/hash.h"
#include "net/net.h"
#include "support/models.h"

#define TOY_C 32
#define TOY_IN 4
#define TOY_H 6
#define TOY_W 5
#define TOY_N 2
#define TOY_OUT (TOY_N * TOY_IN * TOY_H * TOY_W)

struct toy_tensor {
    const char *name;
    struct shape shape;
};

static const struct toy_tensor toy_tensors[] = {
    { "time.0.weight", { 2, { TOY_C, TOY_C } } },
    { "time.0.bias", { 1, { TOY_C } } },
    { "conv_in.weight", { 4, { TOY_C, TOY_IN, 3, 3 } } },
    { "conv_in.bias", { 1, { TOY_C } } },
    { "res.norm.weight", { 1, { TOY_C } } },
    { "res.norm.bias", { 1, { TOY_C } } },
    { "res.conv.weight", { 4, { TOY_C, TOY_C, 3, 3 } } },
    { "res.conv.bias", { 1, { TOY_C } } },
    { "attn.norm.weight", { 1, { TOY_C } } },
    { "attn.norm.bias", { 1, { TOY_C } } },
    { "attn.q.weight", { 2, { TOY_C, TOY_C } } },
    { "attn.k.weight", { 2, { TOY_C, TOY_C } } },
    { "attn.v.weight", { 2, { TOY_C, TOY_C } } },
    { "attn.out.weight", { 2, { TOY_C, TOY_C } } },
    { "attn.out.bias", { 1, { TOY_C } } },
    { "conv_out.weight", { 4, { TOY_IN, TOY_C, 3, 3 } } },
    { "conv_out.bias", { 1, { TOY_IN } } },
};

struct toy_file {
    const char *name;                /* NULL: "toy" */
    const char *root;                /* in front of the names; NULL: "" */
    enum dtype weight;               /* of those with more than one dimension */
    enum dtype param;                /* of the others */
    const struct toy_tensor *tensor; /* NULL: toy_tensors */
    size_t n;
    const struct weights_meta_spec *meta;
    size_t metas;
    void (*value)(const char *name, float *v, size_t n, uint64_t first); /* NULL: toy_value */
};

static inline void toy_value(const char *name, float *v, size_t n, uint64_t first)
{
    uint64_t seed = hash_fnv1a64(name, strlen(name));
    bool norm = strstr(name, "norm.weight");
    for (size_t i = 0; i < n; i++) {
        uint64_t key = seed + first + i, h = hash_xxh64(&key, sizeof key, 7);
        float x = (float)(h % 257) / 128 - 1; /* -1 .. 1 */
        v[i] = norm ? 1 + x / 4 : x / 8;
    }
}

static inline berth_status toy_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                    berth_err *err)
{
    struct {
        const struct weights_spec *spec;
        const struct toy_file *file;
    } const *x = user;
    const struct dtype_desc *d = dtype_desc(x->spec[i].dtype);
    size_t count = n / d->bytes * d->elems;
    float *v = malloc(count * sizeof *v);
    (void)err;
    assert_non_null(v);
    (x->file->value ? x->file->value : toy_value)(x->spec[i].name, v, count,
                                                  off / d->bytes * d->elems);
    if (d->is_float || d->elems > 1)
        d->from_f32(v, dst, count);
    else
        for (size_t k = 0; k < count; k++)
            ((unsigned char *)dst)[k] = (unsigned char)v[k]; /* texts */
    free(v);
    return BERTH_OK;
}

/* Writes the file; its path is good as tmp_path() is. A tensor whose name ends with "_quant" is of
 * bytes, one with "scale" in it F32. */
static inline const char *toy_write(struct toy_file f)
{
    struct weights_spec spec[64];
    char names[64][128], file[128];
    const struct toy_tensor *t = f.tensor ? f.tensor : toy_tensors;
    size_t n = f.tensor ? f.n : ARRAY_LEN(toy_tensors);
    berth_err err = { 0 };
    assert_true(n <= ARRAY_LEN(spec));
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", f.root ? f.root : "", t[i].name);
        spec[i] = (struct weights_spec) { .name = names[i], .shape = t[i].shape };
        spec[i].dtype = t[i].shape.ndim > 1 ? f.weight : f.param;
        if (str_ends(names[i], strlen(names[i]), "_quant"))
            spec[i].dtype = DT_U8;
        if (strstr(names[i], "scale"))
            spec[i].dtype = DT_F32;
    }
    bool gguf = dtype_is_quant(f.weight);
    snprintf(file, sizeof file, "%s.%s", f.name ? f.name : "toy", gguf ? "gguf" : "safetensors");
    const char *path = tmp_path(file);
    struct {
        const struct weights_spec *spec;
        const struct toy_file *file;
    } user = { spec, &f };
    struct weights_write_args a = { .format = gguf ? "gguf" : "safetensors",
                                    .path = path,
                                    .spec = spec,
                                    .count = n,
                                    .meta = f.meta,
                                    .meta_count = f.metas,
                                    .fill = toy_fill,
                                    .user = &user };
    assert_ok(weights_write(&a, &err), err);
    return path;
}

/* ---- devices, a model, a net ---- */

struct toy {
    struct fixture f;
    struct res_model *m;
    struct net *net;
    struct net_args args;
};

static inline void toy_load(struct toy *t, const char *path, const char *alloc)
{
    berth_err err = { 0 };
    struct res_open_args open = { .path = path, .plan = { .alloc = alloc } };
    assert_ok(res_open(t->f.r, &open, &t->m, NULL, &err), err);
    assert_ok(res_load(t->m, NULL, NULL, &err), err);
    t->args = (struct net_args) { .res = t->f.r, .m = t->m };
}

static inline void toy_net(struct toy *t)
{
    berth_err err = { 0 };
    assert_ok(net_open(&t->args, &t->net, &err), err);
}

static inline void toy_open(struct toy *t, const char *devices, const char *alloc,
                            struct toy_file file)
{
    struct res_config cfg = { .reserve = 4096 };
    *t = (struct toy) { .m = NULL };
    fixture_open(&t->f, devices, &cfg);
    toy_load(t, toy_write(file), alloc);
    t->args.root = file.root;
    toy_net(t);
}

static inline void toy_close(struct toy *t)
{
    net_close(t->net);
    res_unref(t->m);
    fixture_close(&t->f);
}

/* ---- the network ---- */

struct toy_in {
    uint64_t n, h, w;
    const float *x;
    float *out; /* [n, TOY_IN, h, w] */
};

static inline struct act toy_attention(struct net_run *r, struct act x)
{
    size_t mark = net_enter(r, "attn.");
    struct act y = net_layer_norm(r, x, "norm", 1e-5f);
    struct act q = net_linear_no_bias(r, y, "q"), k = net_linear_no_bias(r, y, "k"),
               v = net_linear_no_bias(r, y, "v");
    net_drop(r, &y);
    struct act o = net_attention(r, q, k, v, (struct net_attn) { .heads = 2 });
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    x = net_linear_add(r, o, "out", x);
    net_drop(r, &o);
    net_leave(r, mark);
    return x;
}

static inline void toy_forward(struct net_run *r, void *user)
{
    static const int to_tokens[] = { 0, 2, 1 };
    const struct toy_in *in = user;
    static const float t[TOY_N] = { 17, 900 }; /* outlives the pass */
    uint64_t n = in->n, h = in->h, w = in->w;
    struct act e = net_timestep(r, t, n, TOY_C);
    struct act e2 = net_linear(r, e, "time.0");
    net_drop(r, &e);
    net_unary(r, &e2, OP_SILU);
    e2 = net_reshape(r, e2, &(struct shape) { 4, { n, TOY_C, 1, 1 } });
    struct act x0 = net_input(r, &(struct shape) { 4, { n, TOY_IN, h, w } }, in->x);
    struct act x = net_conv2d(r, x0, "conv_in", NET_PAD1);
    net_drop(r, &x0);
    net_add(r, &x, e2);
    net_drop(r, &e2);
    struct act y = net_group_norm(r, x, "res.norm", 4, 1e-5f, true);
    x = net_conv2d_add(r, y, "res.conv", NET_PAD1, x);
    net_drop(r, &y);
    x = net_reshape(r, x, &(struct shape) { 3, { n, TOY_C, h * w } });
    y = net_permute(r, x, to_tokens);
    net_drop(r, &x);
    y = toy_attention(r, y);
    x = net_permute(r, y, to_tokens);
    net_drop(r, &y);
    x = net_reshape(r, x, &(struct shape) { 4, { n, TOY_C, h, w } });
    y = net_conv2d(r, x, "conv_out", NET_PAD1);
    net_drop(r, &x);
    net_finite(r, y, "out");
    net_output(r, y, in->out);
    net_drop(r, &y);
}

static inline void toy_input(float *x, size_t n)
{
    toy_value("input", x, n, 0);
    for (size_t i = 0; i < n; i++)
        x[i] *= 8;
}

static inline berth_status toy_try(struct toy *t, float out[TOY_OUT], berth_err *err)
{
    float x[TOY_OUT];
    toy_input(x, TOY_OUT);
    struct toy_in in = { TOY_N, TOY_H, TOY_W, x, out };
    return net_forward(t->net, toy_forward, &in, err);
}

static inline void toy_pass(struct toy *t, float out[TOY_OUT])
{
    berth_err err = { 0 };
    assert_ok(toy_try(t, out, &err), err);
}

#endif
