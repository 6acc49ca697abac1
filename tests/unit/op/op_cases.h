/* op_cases: what every backend is held against the reference with: for each op of ops.def a maker
 * that hands out its cases one after the other. Odd sides, sides of one, sizes beyond a block,
 * slices with strides, every stored type where an op takes weights, shapes of Flux scaled down.
 *
 * Operands are F32 but for stored weights and ids. Their memory knows what it is for (enum held),
 * so that a loop can have activations and parameters in another type without knowing the op. The
 * tolerance is relative to the largest value of the result: sums cancel. A new op needs a maker and
 * its operands here; the rest follows from ops.def. */
#ifndef UNIT_OP_OP_CASES_H
#define UNIT_OP_OP_CASES_H

#include "op/ops_impl.h"
#include "support/rng.h"
#include "support/test.h"
#include "tensor/convert.h"

#include <float.h>
#include <math.h>

union any {
#define OP(x) struct op_##x x;
#include "op/ops.def"
#undef OP
};

enum held {
    HELD_OTHER, /* no tensor */
    HELD_FIXED, /* of this very type: weights, ids, tables */
    HELD_ACT,   /* an activation, and the next two: F32 that may be of another type */
    HELD_PARAM, /* a bias or the parameters of a norm */
    HELD_SIDE,  /* masks, modulation: the activation's type or F32 */
};

/* Memory of one case: exactly as large as its operands, so that sanitizers see what runs over. */
struct bag {
    struct store {
        char *at;
        size_t bytes;
        enum held held;
        enum dtype dtype;
    } store[64];
    size_t n;
    struct rng rng;
};

static void *bag_get(struct bag *b, size_t bytes, enum held held, enum dtype t)
{
    void *p = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    assert_non_null(p);
    assert_true(b->n < sizeof b->store / sizeof *b->store);
    b->store[b->n++] = (struct store) { .at = p, .bytes = bytes, .held = held, .dtype = t };
    return p;
}

static void bag_empty(struct bag *b)
{
    while (b->n)
        free(b->store[--b->n].at);
}

static float uniform(struct rng *r) /* -1 .. 1 */
{
    return (float)(rng_u64(r) >> 40) / 8388608.0f - 1;
}

#define S1(a) ((struct shape) { 1, { a } })
#define S2(a, b) ((struct shape) { 2, { a, b } })
#define S3(a, b, c) ((struct shape) { 3, { a, b, c } })
#define S4(a, b, c, d) ((struct shape) { 4, { a, b, c, d } })

/* A tensor of random numbers, in the type. */
static struct view random_tensor(struct bag *b, enum held held, enum dtype t, struct shape s)
{
    uint64_t n, bytes;
    assert_true(shape_count(&s, &n));
    assert_true(dtype_bytes(t, n, &bytes));
    float *f = malloc((size_t)n * sizeof *f + 1);
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        f[i] = uniform(&b->rng);
    struct view v;
    berth_err err;
    void *data = bag_get(b, (size_t)bytes, held, t);
    if (convert_possible(DT_F32, t)) {
        assert_ok(convert(DT_F32, f, t, data, (size_t)n, &err), err);
    } else { /* no quantiser: random bits, with tame scales */
        for (size_t i = 0; i < bytes; i++)
            ((uint8_t *)data)[i] = (uint8_t)rng_below(&b->rng, 50);
    }
    free(f);
    assert_ok(view_init(t, &s, data, (size_t)bytes, &v, &err), err);
    return v;
}

static struct view tensor_of(struct bag *b, enum dtype t, struct shape s)
{
    return random_tensor(b, HELD_FIXED, t, s);
}

static struct view tensor(struct bag *b, struct shape s)
{
    return random_tensor(b, HELD_ACT, DT_F32, s);
}

static struct view param(struct bag *b, struct shape s)
{
    return random_tensor(b, HELD_PARAM, DT_F32, s);
}

static struct view side(struct bag *b, struct shape s)
{
    return random_tensor(b, HELD_SIDE, DT_F32, s);
}

/* F32 beside activations of any type. */
static struct view wide(struct bag *b, struct shape s)
{
    return tensor_of(b, DT_F32, s);
}

/* The same shape as a slice of something wider along `axis`. */
static struct view slice_at(struct bag *b, struct shape s, int axis, uint64_t before,
                            uint64_t after)
{
    struct shape wide = s;
    wide.dim[axis] += before + after;
    struct view v = tensor(b, wide);
    berth_err err;
    assert_ok(view_slice(&v, axis, before, before + s.dim[axis], &v, &err), err);
    return v;
}

static struct view slice_of_wider(struct bag *b, struct shape s, int axis)
{
    return slice_at(b, s, axis, 2, 1);
}

static const enum dtype stored[] = { DT_F32,  DT_F16,  DT_BF16, DT_F8_E4M3, DT_F8_E5M2, DT_Q8_0,
                                     DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,    DT_Q2_K,    DT_Q3_K,
                                     DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_NL,  DT_IQ4_XS };
enum { STORED = sizeof stored / sizeof *stored };

/* ---- makers: case i of an op; false when there are no more ---- */

/* Results in F32, whatever x is. */
static bool wide_linear(struct bag *b, size_t i, struct op_linear *l)
{
    static const struct {
        uint64_t m, k, n; /* m up to 4: what has kernels of its own where y is of x's type */
        enum dtype w;
    } at[] = { { 77, 64, 130, DT_F32 },    { 1, 96, 33, DT_F32 },   { 130, 257, 41, DT_BF16 },
               { 300, 320, 320, DT_BF16 }, { 4, 512, 64, DT_Q8_0 }, { 57, 384, 96, DT_F16 },
               { 48, 512, 64, DT_F8_E4M3 } };
    if (i >= sizeof at / sizeof *at)
        return false;
    uint64_t m = at[i].m, k = at[i].k, n = at[i].n;
    *l = (struct op_linear) { .x = i == 2 ? slice_of_wider(b, S3(1, m, k), 2)
                                          : tensor(b, S3(1, m, k)),
                              .w = tensor_of(b, at[i].w, S2(n, k)),
                              .y = wide(b, S3(1, m, n)) };
    if (i % 3 != 1)
        l->bias = param(b, S1(n));
    if (i % 2 == 0)
        l->add = i % 4 ? l->y : wide(b, l->y.shape);
    l->after = i == 5 ? OP_AFTER_GELU_TANH : OP_AFTER_NONE;
    l->scaled = i == 6;
    l->scale = 0.37f;
    return true;
}

static bool make_linear(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t dim[][3] = {
        /* rows, K, N */
        { 1, 1, 1 },     { 3, 5, 7 },      { 17, 31, 33 },   { 2, 320, 1 },    { 1, 768, 65 },
        { 77, 64, 130 }, { 130, 257, 40 }, { 300, 96, 320 }, { 5, 1030, 514 }, { 57, 384, 384 },
        { 57, 384, 96 }, { 4, 64, 3072 },  { 700, 12, 1 },   { 70, 12, 1 }
    };
    enum { SHAPES = sizeof dim / sizeof *dim, LONG = SHAPES + 2 * STORED };
    struct op_linear *l = &a->linear;
    *tol = 3e-6;
    uint64_t m, k, n;
    enum dtype t = DT_F32;
    if (i < SHAPES) {
        m = dim[i][0], k = dim[i][1], n = dim[i][2];
    } else if (i < LONG) {
        t = stored[(i - SHAPES) / 2];
        m = i % 2 ? 37 : 2, k = 512, n = i % 2 ? 19 : 70;
    } else if (i < LONG + STORED) { /* rows as long as Flux has them */
        t = stored[i - LONG];
        m = i % 2 ? 20 : 1, k = 3072, n = i % 3 ? 37 : 64;
    } else if (i < LONG + STORED + 4) { /* what fp8 can be multiplied as */
        t = DT_F8_E4M3;
        m = i % 2 ? 48 : 1, k = 512, n = 64;
    } else if (i < LONG + 2 * STORED + 4) { /* one row: kernels of its own on cards */
        t = stored[i - LONG - STORED - 4];
        m = 1, k = 512, n = 21;
    } else {
        return wide_linear(b, i - LONG - 2 * STORED - 4, l);
    }
    *l = (struct op_linear) { .w = tensor_of(b, t, S2(n, k)) };
    if (i % 3 == 2) { /* rows of something wider, aligned to nothing */
        l->x = slice_of_wider(b, S3(1, m, k), 2);
        l->y = slice_of_wider(b, S3(1, m, n), 2);
    } else if (i % 6 == 1) { /* or well aligned */
        l->x = slice_at(b, S3(1, m, k), 2, 64, 32);
        l->y = slice_at(b, S3(1, m, n), 2, 16, 48);
    } else {
        l->x = tensor(b, S2(m, k));
        l->y = tensor(b, S2(m, n));
    }
    if (i % 2)
        l->bias = param(b, S1(n));
    if (i % 4 == 1)
        l->add = i % 8 == 1 ? l->y : tensor(b, l->y.shape);
    else if (i % 4 == 3 || i % 8 == 6)
        l->after = OP_AFTER_GELU_TANH;
    l->scaled = i % 5 >= 3;
    l->scale = i % 5 == 3 ? 0.37f : 0; /* a scale of 0 is one */
    return true;
}

static bool make_matmul(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t dim[][4] = { { 1, 1, 1, 1 },     { 2, 3, 5, 7 },     { 3, 17, 33, 9 },
                                       { 1, 100, 64, 48 }, { 2, 65, 300, 66 }, { 3, 57, 128, 57 } };
    *tol = 3e-6;
    if (i >= 2 * sizeof dim / sizeof *dim)
        return false;
    const uint64_t *d = dim[i / 2];
    bool t = i % 2;
    a->matmul =
        (struct op_matmul) { .a = tensor(b, S3(d[0], d[1], d[2])),
                             .b = tensor(b, t ? S3(d[0], d[3], d[2]) : S3(d[0], d[2], d[3])),
                             .y = tensor(b, S3(d[0], d[1], d[3])),
                             .b_transposed = t };
    return true;
}

/* Quants whose blocks reach over rows of a filter: packed, without strides. */
static struct view filters_of(struct bag *b, enum dtype t, struct shape s)
{
    struct view v = tensor_of(b, t, S2(s.dim[0], s.dim[1] * s.dim[2] * s.dim[3]));
    memset(v.stride, 0, sizeof v.stride);
    v.shape = s;
    return v;
}

static bool make_conv2d(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        uint64_t n, ic, oc, h, w, kh, kw;
        uint32_t stride, groups, top, left, bottom, right;
    } at[] = {
        { 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0 },
        { 2, 3, 5, 7, 9, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 1, 4, 8, 8, 8, 3, 3, 2, 1, 1, 1, 1, 1 },
        { 3, 33, 17, 5, 6, 1, 1, 1, 1, 0, 0, 0, 0 },
        { 1, 4, 4, 9, 8, 3, 3, 2, 1, 0, 0, 1, 1 },
        { 2, 6, 9, 6, 5, 3, 3, 1, 3, 1, 1, 1, 1 },
        { 1, 8, 8, 10, 3, 5, 3, 1, 8, 2, 1, 2, 1 },
        { 2, 16, 24, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 1, 5, 70, 13, 11, 3, 2, 3, 1, 2, 0, 1, 4 },
        { 1, 64, 32, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 1, 40, 36, 33, 31, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 2, 320, 4, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 1, 12, 20, 18, 2, 7, 2, 1, 1, 3, 0, 3, 1 },
        { 1, 512, 20, 8, 6, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 1, 256, 5, 35, 33, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 1, 64, 128, 17, 19, 3, 3, 1, 1, 1, 1, 1, 1 },
        { 2, 128, 64, 9, 7, 1, 1, 1, 1, 0, 0, 0, 0 },
        { 1, 32, 40, 16, 14, 3, 3, 2, 1, 0, 0, 1, 1 },
        { 1, 32, 64, 15, 16, 3, 3, 2, 1, 1, 1, 1, 1 },
        { 1, 16, 16, 12, 20, 3, 3, 1, 2, 1, 1, 1, 1 },
        { 1, 64, 33, 48, 50, 3, 3, 1, 1, 1, 1, 1, 1 },
    };
    enum { SHAPES = sizeof at / sizeof *at };
    static const enum dtype other[] = { DT_F16,  DT_BF16, DT_F8_E4M3, DT_F8_E5M2,
                                        DT_Q8_0, DT_Q4_K, DT_Q6_K };
    *tol = 1e-5; /* Winograd's transforms */
    if (i >= SHAPES + 2 * sizeof other / sizeof *other)
        return false;
    enum dtype t = i < SHAPES ? DT_F32 : other[(i - SHAPES) / 2];
    bool quant = dtype_is_quant(t);
    size_t s = i < SHAPES ? i : i % 2 ? (quant ? 13 : 7) : quant ? 14 : 3;
    uint64_t oh = (at[s].h + at[s].top + at[s].bottom - at[s].kh) / at[s].stride + 1;
    uint64_t ow = (at[s].w + at[s].left + at[s].right - at[s].kw) / at[s].stride + 1;
    struct shape w = S4(at[s].oc, at[s].ic / at[s].groups, at[s].kh, at[s].kw);
    a->conv2d = (struct op_conv2d) { .x = tensor(b, S4(at[s].n, at[s].ic, at[s].h, at[s].w)),
                                     .w = quant ? filters_of(b, t, w) : tensor_of(b, t, w),
                                     .y = tensor(b, S4(at[s].n, at[s].oc, oh, ow)),
                                     .stride = at[s].stride,
                                     .groups = at[s].groups,
                                     .top = at[s].top,
                                     .left = at[s].left,
                                     .bottom = at[s].bottom,
                                     .right = at[s].right,
                                     .scaled = i % 3 > 0,
                                     .scale = i % 3 == 2 ? 1.7f
                                              : i % 2    ? 0
                                                         : 1 };
    if (i % 2)
        a->conv2d.bias = param(b, S1(at[s].oc));
    if (i % 4 == 3)
        a->conv2d.add = i % 8 == 3 ? a->conv2d.y : tensor(b, a->conv2d.y.shape);
    return true;
}

/* One key outweighs each of the others by about e^17; the first column of q and k is there for that
 * alone, so that its scores are exact. empty: and its values are 0, so that the result is made of
 * the others' weights, which F16 has a bit or two for. Wider than any head that cuDNN is asked for:
 * how it rounds weights is not ours to say. */
static void outweigh(const struct op_attention *t, bool empty)
{
    const size_t D = (size_t)t->k.shape.dim[3], keys = (size_t)t->k.shape.dim[1];
    float *q = op_f32(&t->q), *k = op_f32(&t->k), *v = op_f32(&t->v);
    assert_true(t->k.shape.dim[0] == 1 && t->k.shape.dim[2] == 1 && t->scale == 0);
    for (size_t e = 0; e < op_count(&t->q); e += D)
        q[e] = 16;
    for (size_t e = 0; e < keys * D; e++) {
        bool it = e / D == keys / 2, first = e % D == 0;
        k[e] = it != first ? 0 : it ? 24 : k[e];
        if (empty)
            v[e] *= it ? 0 : 1000;
    }
}

/* Attention of language models: heads of k and v that several of q share, keys from before, a
 * window, a mask that is the same for every query. */
static bool make_shared_attention(struct bag *b, size_t i, struct op_attention *t)
{
    static const struct {
        uint64_t B, H, G, Tq, Tk, D;
        bool causal;
        uint32_t past, window;
        bool mask, odd; /* odd: slices aligned to nothing */
    } at[] = {
        { 1, 4, 2, 9, 9, 128, true, 0, 0, false, false },
        { 2, 6, 2, 70, 70, 64, true, 0, 0, false, true },
        { 1, 8, 1, 33, 65, 40, false, 0, 0, false, false },
        { 2, 4, 2, 48, 48, 128, true, 0, 0, true, false },
        { 1, 2, 2, 1, 200, 64, true, 199, 0, false, false },
        { 1, 6, 3, 5, 140, 32, true, 135, 0, false, true },
        { 1, 4, 2, 150, 150, 72, true, 0, 17, false, false },
        { 1, 4, 4, 300, 300, 256, true, 0, 100, false, false },
        { 1, 4, 1, 3, 290, 128, true, 287, 64, false, false },
        { 1, 2, 1, 40, 90, 80, true, 30, 65, true, true },
        { 1, 28, 4, 20, 20, 128, true, 0, 0, false, false },
        { 1, 3, 1, 4, 3, 16, true, 7, 2, false, false }, /* some queries see no key */
    };
    if (i >= sizeof at / sizeof *at)
        return false;
    struct shape q = S4(at[i].B, at[i].Tq, at[i].H, at[i].D);
    struct shape k = S4(at[i].B, at[i].Tk, at[i].G, at[i].D);
    *t = (struct op_attention) { .causal = at[i].causal,
                                 .past = at[i].past,
                                 .window = at[i].window };
    if (at[i].odd) {
        t->q = slice_of_wider(b, q, 2);
        t->k = slice_of_wider(b, k, 3);
        t->v = slice_of_wider(b, k, 1);
        t->y = slice_of_wider(b, q, 3);
    } else {
        t->q = tensor(b, q), t->k = tensor(b, k), t->v = tensor(b, k), t->y = tensor(b, q);
        for (size_t e = 0; e < op_count(&t->q); e++)
            op_f32(&t->q)[e] *= 5;
    }
    if (at[i].mask) {
        t->mask = side(b, S4(at[i].B, 1, 1, at[i].Tk));
        for (size_t e = 0; e < op_count(&t->mask); e++)
            if (e % at[i].Tk > at[i].Tk / 2)
                op_f32(&t->mask)[e] = -FLT_MAX / 4;
    }
    return true;
}

static bool make_attention(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        uint64_t B, H, Tq, Tk, D;
        int mask; /* 1: one for all, 2: for each head of each picture, 3: for each head */
        bool causal;
        int kind; /* 1: slices aligned to nothing; 2: q, k, v of one projection, y beside others;
                     3: one key outweighs all others; 4: and its values are 0 */
    } at[] = {
        { 1, 1, 1, 1, 1, 0, false, 0 },       { 2, 3, 5, 7, 40, 0, false, 0 },
        { 1, 2, 77, 77, 64, 0, true, 0 },     { 2, 2, 100, 77, 40, 0, false, 1 },
        { 1, 2, 50, 130, 80, 1, false, 0 },   { 2, 3, 49, 65, 20, 2, false, 1 },
        { 1, 1, 130, 300, 160, 0, false, 1 }, { 1, 1, 60, 70, 512, 0, false, 0 },
        { 1, 2, 200, 200, 3, 1, true, 0 },    { 2, 1, 500, 64, 13, 0, true, 0 },
        { 1, 1, 3, 1000, 8, 0, false, 0 },    { 1, 2, 33, 129, 72, 0, false, 1 },
        { 1, 3, 57, 57, 128, 0, false, 2 },   { 1, 3, 57, 57, 64, 0, false, 2 },
        { 2, 3, 33, 33, 40, 0, false, 2 },    { 1, 2, 40, 40, 80, 0, true, 2 },
        { 1, 1, 70, 70, 160, 0, false, 2 },   { 1, 4, 77, 77, 64, 3, false, 0 },
        { 1, 4, 77, 77, 64, 3, true, 2 },     { 1, 1, 200, 200, 128, 0, false, 2 },
        { 1, 1, 130, 130, 256, 0, false, 0 }, { 2, 2, 1, 90, 96, 0, false, 0 },
        { 1, 1, 70, 70, 512, 0, false, 2 },   { 1, 1, 1030, 20, 264, 0, false, 0 },
        { 2, 2, 90, 90, 288, 0, false, 2 },   { 1, 1, 30, 40, 300, 0, false, 1 },
        { 2, 1, 1, 33, 257, 0, false, 0 },    { 1, 1, 40, 50, 320, 1, true, 0 },
        { 1, 1, 9, 1, 512, 0, false, 0 },     { 1, 1, 9, 300, 512, 0, false, 3 },
        { 1, 1, 9, 1300, 520, 0, false, 4 },
    };
    *tol = 1e-5; /* scores of up to 40 in float: their last bit is 4e-6 of a weight */
    if (i >= sizeof at / sizeof *at)
        return make_shared_attention(b, i - sizeof at / sizeof *at, &a->attention);
    struct op_attention *t = &a->attention;
    struct shape q = S4(at[i].B, at[i].Tq, at[i].H, at[i].D), k = q;
    k.dim[1] = at[i].Tk;
    *t = (struct op_attention) { .causal = at[i].causal,
                                 .scale = i % 2 || at[i].D > 160 ? 0 : 0.9f };
    if (at[i].kind == 2) { /* [B, T, q k v, H, D] */
        struct shape all = { 4, { q.dim[0], q.dim[1], 3 * q.dim[2], q.dim[3] } };
        struct view of = tensor(b, all), *part[] = { &t->q, &t->k, &t->v };
        berth_err err;
        for (uint64_t p = 0; p < 3; p++)
            assert_ok(view_slice(&of, 2, p * q.dim[2], (p + 1) * q.dim[2], part[p], &err), err);
        t->y = slice_at(b, q, 2, 0, 2 * q.dim[2]);
    } else if (at[i].kind == 1) {
        t->q = slice_of_wider(b, q, 2);
        t->k = slice_of_wider(b, k, 3);
        t->v = slice_of_wider(b, k, 1);
        t->y = slice_of_wider(b, q, 3);
    } else {
        t->q = tensor(b, q), t->k = tensor(b, k), t->v = tensor(b, k), t->y = tensor(b, q);
    }
    for (size_t e = 0; e < op_count(&t->q) && at[i].kind != 1 && at[i].kind != 2; e++)
        op_f32(&t->q)[e] *= 5; /* sharp maxima */
    if (at[i].kind > 2)
        outweigh(t, at[i].kind == 4);
    if (at[i].mask) {
        t->mask = side(
            b, S4(at[i].mask == 2 ? at[i].B : 1, at[i].mask > 1 ? at[i].H : 1, at[i].Tq, at[i].Tk));
        float *m = op_f32(&t->mask);
        for (size_t e = 0; e < op_count(&t->mask); e++)
            if (e / at[i].Tk % 7 == 3 || e % 3 == 0) /* some rows are hidden as a whole */
                m[e] = -INFINITY;
            else if (e / at[i].Tk % 7 == 5) /* does not hide: what is left counts alike */
                m[e] = -FLT_MAX;
    }
    return true;
}

static const struct shape many[] = { { 2, { 1, 1 } },          { 2, { 3, 5 } },
                                     { 3, { 2, 6, 17 } },      { 4, { 2, 64, 9, 7 } },
                                     { 4, { 1, 32, 65, 33 } }, { 3, { 3, 77, 320 } },
                                     { 2, { 40, 4099 } },      { 5, { 1, 2, 3, 4, 5 } },
                                     { 4, { 1, 16, 66, 70 } } };
enum { MANY = sizeof many / sizeof *many };

static bool make_group_norm(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint32_t groups[MANY] = { 1, 5, 3, 32, 8, 7, 1, 2, 4 };
    *tol = 2e-6;
    if (i >= 3 * MANY)
        return false;
    bool widened = i >= 2 * MANY; /* x is F32, whatever y is */
    size_t s = widened ? i - 2 * MANY : i / 2;
    struct op_group_norm *g = &a->group_norm;
    uint64_t c = many[s].dim[1];
    *g = (struct op_group_norm) { .x = widened ? wide(b, many[s]) : tensor(b, many[s]),
                                  .w = param(b, S1(c)),
                                  .b = param(b, S1(c)),
                                  .groups = groups[s],
                                  .eps = 1e-5f,
                                  .silu = i % 2 };
    for (size_t e = 0; s == 3 && e < op_count(&g->x); e++)
        op_f32(&g->x)[e] += 30; /* a mean far from 0 */
    g->y = s % 2 && !widened ? g->x : tensor(b, many[s]);
    return true;
}

static bool make_channel_norm(struct bag *b, size_t i, union any *a, double *tol)
{
    *tol = 4e-6;
    if (i >= 6 * MANY)
        return false;
    size_t s = i / 2 % MANY, how = i / 2 / MANY;
    struct op_channel_norm *g = &a->channel_norm;
    const struct shape channels = S1(many[s].dim[1]);
    *g = (struct op_channel_norm) {
        .x = tensor(b, many[s]), .eps = how ? 1e-8f : 1e-12f, .silu = i % 2, .rooted = how
    };
    if (how != 1)
        g->w = param(b, channels);
    if (how) {
        g->scale = param(b, channels);
        g->shift = param(b, channels);
    }
    for (size_t e = 0; s == 2 && e < op_count(&g->x); e++)
        op_f32(&g->x)[e] = 0; /* a length of 0 */
    g->y = s % 2 ? g->x : tensor(b, many[s]);
    return true;
}

/* Piece p of n of a modulation vector: [B, row] out of [B, n * row]. */
static struct view piece(const struct view *vec, uint64_t p, uint64_t row)
{
    struct view v;
    berth_err err;
    assert_ok(view_slice(vec, 1, p * row, (p + 1) * row, &v, &err), err);
    return v;
}

static bool make_row_norm(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct shape mod[] = { { 3, { 2, 57, 384 } }, { 3, { 1, 20, 3072 } },
                                        { 2, { 3, 17 } },      { 4, { 2, 3, 5, 40 } },
                                        { 3, { 2, 1, 4099 } }, { 3, { 3, 2, 1 } } };
    *tol = 2e-6;
    struct op_row_norm *r = &a->row_norm;
    enum {
        MOD = sizeof mod / sizeof *mod,
        WIDE = 4 * MANY + 2 * MOD,
        FROM_ONE = WIDE + MOD,
        SCALED = FROM_ONE + MANY
    };
    if (i >= SCALED + 4 * MOD)
        return false;
    if (i >= SCALED) { /* scale alone, and behind w */
        struct shape s = mod[(i - SCALED) / 4];
        uint64_t n = s.dim[s.ndim - 1];
        struct view vec = side(b, S2(s.dim[0], 4 * n));
        *r = (struct op_row_norm) { .x = tensor(b, s), .eps = 1e-5f, .rms = i % 3 };
        r->scale = piece(&vec, i % 3, n);
        if (i % 2)
            r->w = param(b, S1(n));
        r->from_one = i % 8 > 4; /* with a shift (7) and without (5) */
        if (i % 4 == 3)
            r->shift = piece(&vec, 3, n);
        r->y = i % 5 ? r->x : tensor(b, s);
        return true;
    }
    if (i >= FROM_ONE) { /* weights that count from 1, as Gemma's */
        struct shape s = many[i - FROM_ONE];
        *r = (struct op_row_norm) { .x = tensor(b, s), .eps = 1e-6f, .rms = true };
        r->from_one = true;
        r->w = param(b, S1(op_row(&r->x)));
        r->y = i % 2 ? r->x : tensor(b, s);
        return true;
    }
    if (i >= WIDE) { /* F32, whatever y is */
        struct shape s = mod[i - WIDE];
        *r = (struct op_row_norm) { .x = wide(b, s), .y = tensor(b, s), .eps = 1e-5f };
        r->rms = i % 4 == 1;
        if (i % 3)
            r->w = param(b, S1(op_row(&r->x)));
        if (i % 3 && !r->rms)
            r->b = param(b, S1(op_row(&r->x)));
        if (i % 3 == 0) {
            r->scale = side(b, S2(s.dim[0], op_row(&r->x)));
            r->shift = side(b, r->scale.shape);
        }
        return true;
    }
    if (i >= 4 * MANY) {
        struct shape s = mod[(i - 4 * MANY) / 2];
        uint64_t n = s.dim[s.ndim - 1];
        struct view vec = side(b, S2(s.dim[0], 6 * n));
        *r = (struct op_row_norm) { .x = tensor(b, s), .eps = 1e-6f, .rms = i % 4 == 1 };
        r->shift = piece(&vec, i % 5, n);
        r->scale = i % 2 ? piece(&vec, i % 5 + 1, n) : side(b, S2(s.dim[0], n));
        r->y = i % 3 ? r->x : tensor(b, s);
        return true;
    }
    *r = (struct op_row_norm) { .x = tensor(b, many[i / 4]), .eps = 1e-5f, .rms = i % 2 };
    uint64_t n = op_row(&r->x);
    if (i % 4 < 3)
        r->w = param(b, S1(n));
    if (i % 4 != 1)
        r->b = param(b, S1(n));
    for (size_t e = 0; i / 4 == 5 && e < op_count(&r->x); e++)
        op_f32(&r->x)[e] -= 20;
    r->y = i % 3 ? r->x : tensor(b, many[i / 4]);
    return true;
}

static bool make_qk_rope(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        uint64_t B, T, H, D;
    } at[] = { { 1, 1, 1, 2 },    { 2, 5, 3, 6 },   { 1, 57, 3, 128 }, { 2, 20, 2, 64 },
               { 1, 33, 24, 40 }, { 3, 4, 1, 256 }, { 1, 7, 5, 34 },   { 2, 100, 4, 128 } };
    enum { ALL = 3 * sizeof at / sizeof *at };
    *tol = 1e-6;
    if (i >= 2 * ALL)
        return false;
    const bool halves = i >= ALL; /* pairs half a head apart, fewer heads of k: language models */
    i %= ALL;
    struct op_qk_rope *r = &a->qk_rope;
    struct shape s = S4(at[i / 3].B, at[i / 3].T, at[i / 3].H, at[i / 3].D), all = s, of_k = s;
    all.dim[2] *= 3;
    if (halves)
        of_k.dim[2] = (s.dim[2] + 1) / 2;
    berth_err err;
    *r = (struct op_qk_rope) { .eps = 1e-6f, .halves = halves, .from_one = halves && i % 2 };
    if (i % 3 == 0) { /* of one projection, q k v */
        struct view of = tensor(b, all);
        assert_ok(view_slice(&of, 2, 0, s.dim[2], &r->q, &err), err);
        assert_ok(view_slice(&of, 2, s.dim[2], s.dim[2] + of_k.dim[2], &r->k, &err), err);
    } else {
        r->q = i % 3 == 1 ? tensor(b, s) : slice_of_wider(b, s, 3);
        r->k = i % 3 == 1 ? tensor(b, of_k) : slice_of_wider(b, of_k, 1);
    }
    if (i % 4 < 3) {
        r->wq = param(b, S1(s.dim[3]));
        r->wk = param(b, S1(s.dim[3]));
    }
    r->table = tensor_of(b, DT_F32, S3(s.dim[1], s.dim[3] / 2, 2));
    for (size_t e = 0; e < op_count(&r->table); e += 2) {
        float angle = 3 * op_f32(&r->table)[e];
        op_f32(&r->table)[e] = cosf(angle);
        op_f32(&r->table)[e + 1] = sinf(angle);
    }
    return true;
}

static bool make_gate(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct shape at[] = { { 2, { 1, 9 } },        { 3, { 2, 57, 384 } },
                                       { 3, { 1, 20, 3072 } }, { 2, { 3, 17 } },
                                       { 4, { 2, 3, 5, 40 } }, { 3, { 2, 1, 4099 } },
                                       { 3, { 3, 70, 333 } } };
    *tol = 3e-7; /* product and sum, each rounded */
    if (i >= 2 * sizeof at / sizeof *at)
        return false;
    struct shape s = at[i / 2];
    uint64_t n = s.dim[s.ndim - 1];
    struct op_gate *g = &a->gate;
    struct view vec = side(b, S2(s.dim[0], 3 * n));
    *g = (struct op_gate) { .gate = piece(&vec, i % 3, n) };
    if (i % 2) {
        g->x = tensor(b, s), g->z = tensor(b, s), g->y = g->x;
    } else {
        int last = s.ndim - 1;
        g->x = slice_of_wider(b, s, last), g->z = slice_at(b, s, last, 8, 24);
        g->y = i % 4 ? slice_at(b, s, last, 16, 0) : slice_of_wider(b, s, last);
    }
    return true;
}

static bool make_unary(struct bag *b, size_t i, union any *a, double *tol)
{
    static const float range[] = { 1, 12, 120, 1e-3f };
    *tol = 4e-7;
    if (i >= OP_UNARY_COUNT * 4)
        return false;
    size_t s = (i + i / 4) % MANY;
    a->unary = (struct op_unary) { .kind = (enum op_unary_kind)(i / 4), .x = tensor(b, many[s]) };
    for (size_t e = 0; e < op_count(&a->unary.x); e++)
        op_f32(&a->unary.x)[e] *= range[i % 4];
    a->unary.y = i % 2 ? a->unary.x : tensor(b, many[s]);
    return true;
}

static bool make_binary(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct shape with[MANY] = { { 2, { 1, 1 } },        { 2, { 3, 5 } },
                                             { 3, { 1, 1, 17 } },    { 4, { 2, 64, 1, 1 } },
                                             { 4, { 1, 1, 65, 1 } }, { 3, { 3, 1, 320 } },
                                             { 2, { 1, 1 } },        { 5, { 1, 2, 1, 4, 1 } },
                                             { 4, { 1, 16, 1, 70 } } };
    *tol = 4e-7;
    enum { PLAIN = OP_BINARY_COUNT * MANY };
    if (i >= PLAIN + 2 * MANY)
        return false;
    struct shape s = many[i % MANY];
    if (i >= PLAIN) { /* y is F32, whatever b is; so is a, or it is of b's type */
        bool widened = i >= PLAIN + MANY;
        a->binary = (struct op_binary) { .kind = (enum op_binary_kind)(i % OP_BINARY_COUNT),
                                         .a = widened ? wide(b, s) : tensor(b, s),
                                         .b = tensor(b, i % 2 ? with[i % MANY] : s) };
        a->binary.y = widened && i % 4 ? a->binary.a : wide(b, s);
        return true;
    }
    a->binary = (struct op_binary) { .kind = (enum op_binary_kind)(i / MANY),
                                     .a = tensor(b, s),
                                     .b = tensor(b, with[i % MANY]),
                                     .scale = i % 2 ? 0.25f : 0 };
    a->binary.y = i % 3 ? a->binary.a : tensor(b, s);
    return true;
}

static bool make_geglu(struct bag *b, size_t i, union any *a, double *tol)
{
    *tol = 4e-7;
    if (i >= 2 * MANY)
        return false;
    struct shape s = many[i / 2], wide = s;
    wide.dim[s.ndim - 1] *= 2;
    a->geglu = (struct op_geglu) { .x = tensor(b, wide), .y = tensor(b, s), .tanh = i % 2 };
    for (size_t e = 0; e < op_count(&a->geglu.x); e++)
        op_f32(&a->geglu.x)[e] *= 6;
    return true;
}

static bool make_embedding(struct bag *b, size_t i, union any *a, double *tol)
{
    *tol = 0;
    if (i >= STORED + 5) /* the first five are no quants: rows of any length */
        return false;
    struct op_embedding *e = &a->embedding;
    uint64_t D = i < STORED ? 512 : 77;
    *e = (struct op_embedding) { .table = tensor_of(b, stored[i % STORED], S2(11, D)),
                                 .ids = tensor_of(b, DT_I32, S1(9)),
                                 .y = tensor(b, S2(9, D)) };
    for (size_t k = 0; k < 9; k++)
        ((int32_t *)e->ids.data)[k] = (int32_t)rng_below(&b->rng, 11);
    return true;
}

/* Codes of every layout that files have, wide and narrow, whole and cut, in order and looked up. */
static bool make_decode(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        struct coded how;
        bool rows;
        uint64_t n, stored, cols; /* rows, and columns with and without padding */
    } at[] = {
        { { .type = DT_I8 }, true, 21, 45, 45 },
        { { .type = DT_I8 }, false, 3, 1, 1 },
        { { .type = DT_I8, .turn = 4 }, true, 7, 52, 52 },
        { { .type = DT_I8, .turn = 16 }, true, 5, 48, 48 },
        { { .type = DT_I8, .turn = 64 }, true, 9, 192, 192 },
        { { .type = DT_I8, .turn = 256 }, true, 33, 768, 768 },
        { { .type = DT_I8, .turn = 1024 }, true, 2, 2048, 2048 },
        { { .type = DT_F8_E4M3 }, true, 6, 33, 33 },
        { { .type = DT_F8_E5M2 }, false, 6, 33, 33 },
        { { .type = DT_I4, .turn = 64 }, true, 12, 128, 128 },
        { { .type = DT_F8_E4M3,
            .how = BLOCKS_TIMES,
            .block_type = DT_F8_E8M0,
            .group = 32,
            .swizzled = true },
          false,
          160,
          160,
          150 },
        { { .type = DT_F4_E2M1,
            .how = BLOCKS_TIMES,
            .block_type = DT_F8_E4M3,
            .group = 16,
            .swizzled = true },
          false,
          32,
          48,
          40 },
        { { .type = DT_F4_E2M1,
            .how = BLOCKS_TIMES,
            .block_type = DT_F8_E4M3,
            .group = 16,
            .swizzled = true },
          false,
          272,
          512,
          512 },
        { { .type = DT_U4,
            .how = BLOCKS_STEPS,
            .block_type = DT_F8_E4M3,
            .group = 16,
            .turn = 64,
            .booked = true },
          true,
          10,
          128,
          128 },
        { { .type = DT_U4, .how = BLOCKS_STEPS, .block_type = DT_F32, .group = 8, .turn = 16 },
          true,
          10,
          32,
          32 },
    };
    enum { KINDS = sizeof at / sizeof *at };
    *tol = 0;
    if (i >= 2 * KINDS)
        return false;
    struct op_decode *d = &a->decode;
    struct coded c = at[i % KINDS].how;
    const uint64_t n = at[i % KINDS].n, cols = at[i % KINDS].stored, first = i % 2 && n > 2;
    c.scale = 0.37F;
    c.cols = cols;
    for (int k = 0; k < CODED_BOOK; k++)
        c.book[k] = 0.125F * (float)(k - 7);
    d->codes = tensor_of(b, c.type, S2(n, cols));
    uint64_t bytes;
    assert_true(dtype_bytes(c.type, n * cols, &bytes));
    for (uint64_t k = 0; k < bytes && dtype_desc(c.type)->elems > 1; k++)
        ((uint8_t *)d->codes.data)[k] = (uint8_t)rng_below(&b->rng, 256);
    for (uint64_t k = 0; k < bytes && c.type == DT_I8; k++)
        ((uint8_t *)d->codes.data)[k] = (uint8_t)rng_below(&b->rng, 256);
    if (at[i % KINDS].rows)
        d->rows = wide(b, S1(n));
    if (c.how != BLOCKS_NONE) {
        d->blocks = tensor_of(b, c.block_type, S1(coded_blocks_stored(&c, n)));
        for (size_t k = 0; k < op_count(&d->blocks) && c.block_type != DT_F32; k++)
            ((uint8_t *)d->blocks.data)[k] =
                (uint8_t)(c.block_type == DT_F8_E8M0 ? (k % 5 ? 120u : 0u) + rng_below(&b->rng, 9)
                                                     : rng_below(&b->rng, 120));
        for (size_t k = 0; k < op_count(&d->blocks) && c.block_type == DT_F32; k++)
            op_f32(&d->blocks)[k] *= 20;
    }
    d->row = first;
    d->y = tensor(b, S2(i < KINDS ? n - first : 13, at[i % KINDS].cols));
    d->how = c;
    if (i >= KINDS) {
        d->ids = tensor_of(b, DT_I32, S1(13));
        for (size_t k = 0; k < 13; k++)
            ((int32_t *)d->ids.data)[k] = (int32_t)rng_below(&b->rng, n);
    }
    return true;
}

/* Codes with x and everything around: few rows and many, odd sides, a turn, four bits. */
static bool make_int_linear(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        struct coded how;
        uint64_t m, k, n;
    } at[] = {
        { { .type = DT_I8 }, 1, 1, 1 },
        { { .type = DT_I8 }, 5, 33, 17 },
        { { .type = DT_I8 }, 77, 130, 50 },
        { { .type = DT_I8, .turn = 64 }, 35, 192, 33 },
        { { .type = DT_I8, .turn = 256 }, 4, 768, 64 },
        { { .type = DT_I4, .turn = 16 }, 9, 48, 20 },
        { { .type = DT_U4, .how = BLOCKS_STEPS, .block_type = DT_F8_E4M3, .group = 16,
            .turn = 64, .booked = true }, 6, 128, 31 },
    };
    *tol = 1e-5; /* rows are turned and scaled alike; gelu is not */
    if (i >= sizeof at / sizeof *at)
        return false;
    struct op_int_linear *l = &a->int_linear;
    struct coded c = at[i].how;
    const uint64_t m = at[i].m, k = at[i].k, n = at[i].n, first = i % 2 * 2;
    uint64_t bytes;
    c.scale = 0.02F;
    c.cols = k;
    for (int e = 0; e < CODED_BOOK; e++)
        c.book[e] = 0.125F * (float)(e - 7);
    assert_true(dtype_bytes(c.type, (n + first) * k, &bytes));
    *l = (struct op_int_linear) { .x = i == 2 ? slice_of_wider(b, S3(1, m, k), 2)
                                              : tensor(b, S3(1, m, k)),
                                  .codes = tensor_of(b, c.type, S2(n + first, k)),
                                  .rows = i % 3 ? wide(b, S1(n + first)) : (struct view) { 0 },
                                  .y = i == 3 ? slice_of_wider(b, S3(1, m, n), 2)
                                              : tensor(b, S3(1, m, n)),
                                  .row = first,
                                  .how = c };
    for (uint64_t e = 0; e < bytes; e++)
        ((uint8_t *)l->codes.data)[e] = (uint8_t)rng_below(&b->rng, 256);
    if (c.how != BLOCKS_NONE) {
        l->blocks = tensor_of(b, c.block_type, S1(coded_blocks_stored(&c, n + first)));
        for (size_t e = 0; e < op_count(&l->blocks); e++)
            ((uint8_t *)l->blocks.data)[e] = (uint8_t)rng_below(&b->rng, 120);
    }
    if (i % 2)
        l->bias = wide(b, S1(n));
    if (i % 4 == 2)
        l->add = tensor(b, l->y.shape);
    else if (i == 4)
        l->after = OP_AFTER_GELU_TANH;
    return true;
}

static bool make_timestep(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t dim[] = { 1, 2, 7, 320, 256 };
    *tol = 0;
    if (i >= 5)
        return false;
    a->timestep = (struct op_timestep) { .t = tensor_of(b, DT_F32, S1(3)),
                                         .y = tensor(b, S2(3, dim[i])),
                                         .period = i == 2 ? 100 : 0,
                                         .sin_first = i % 2 };
    for (size_t k = 0; k < 3 && i == 4; k++)
        op_f32(&a->timestep.t)[k] *= 1000;
    return true;
}

static bool make_resize2d(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t side[][4] = { { 1, 1, 1, 1 },     { 1, 1, 5, 4 },     { 7, 5, 14, 10 },
                                        { 32, 33, 64, 66 }, { 9, 8, 4, 13 },    { 6, 6, 6, 12 },
                                        { 5, 7, 5, 7 },     { 64, 48, 96, 144 } };
    *tol = 1e-6;
    if (i >= 2 * sizeof side / sizeof *side)
        return false;
    const uint64_t *s = side[i / 2];
    a->resize2d = (struct op_resize2d) { .kind = i % 2 ? OP_BILINEAR : OP_NEAREST,
                                         .x = tensor(b, S4(2, 3, s[0], s[1])),
                                         .y = tensor(b, S4(2, 3, s[2], s[3])) };
    return true;
}

static bool make_concat(struct bag *b, size_t i, union any *a, double *tol)
{
    *tol = 0;
    if (i >= 3 * MANY)
        return false;
    struct shape s = many[i / 3], whole = s;
    int axis = (int)((i + 1) % (size_t)s.ndim);
    struct view *x = bag_get(b, 3 * sizeof *x, HELD_OTHER, DT_NONE);
    whole.dim[axis] = 0;
    for (size_t k = 0; k < 3; k++) {
        s.dim[axis] = k == 1 ? 1 : 5;
        whole.dim[axis] += s.dim[axis];
        x[k] = k == 2 ? slice_of_wider(b, s, (int)(i % (size_t)s.ndim)) : tensor(b, s);
    }
    a->concat = (struct op_concat) { .x = x, .n = 3, .axis = axis, .y = tensor(b, whole) };
    return true;
}

static bool make_pad2d(struct bag *b, size_t i, union any *a, double *tol)
{
    *tol = 0;
    const bool mirror = i >= 6;
    if (i >= 8)
        return false;
    uint64_t top = (i + 1) % 3, left = mirror ? i - 5 : i, bottom = i / 2, right = 7 * (i % 2);
    right = mirror ? 3 : right;
    a->pad2d = (struct op_pad2d) { .x = tensor(b, S4(2, 3, 3 + i, 4)),
                                   .y = tensor(b, S4(2, 3, 3 + i + top + bottom, 4 + left + right)),
                                   .top = (uint32_t)top,
                                   .left = (uint32_t)left,
                                   .kind = mirror ? OP_PAD_REFLECT : (enum op_pad_kind)(i % 3) };
    return true;
}

static bool make_copy(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        struct shape s;
        int axis[6];
    } at[] = { { { 3, { 2, 33, 47 } }, { 0, 2, 1 } },
               { { 4, { 2, 40, 9, 8 } }, { 0, 2, 3, 1 } },
               { { 4, { 1, 5, 66, 32 } }, { 0, 3, 2, 1 } },
               { { 4, { 2, 64, 8, 40 } }, { 0, 2, 1, 3 } },
               { { 2, { 1, 7 } }, { 1, 0 } },
               { { 3, { 5, 300, 70 } }, { 2, 0, 1 } },
               { { 4, { 2, 3, 4, 5 } }, { 3, 2, 1, 0 } },
               { { 2, { 3, 40000 } }, { 0, 1 } },
               { { 6, { 1, 4, 6, 2, 8, 2 } }, { 0, 2, 4, 1, 3, 5 } }, /* patches of a latent */
               { { 6, { 2, 6, 8, 4, 2, 2 } }, { 0, 3, 1, 4, 2, 5 } } };
    enum { PERMUTES = sizeof at / sizeof *at };
    *tol = 0;
    berth_err err;
    struct op_copy *c = &a->copy;
    if (i < PERMUTES) {
        *c = (struct op_copy) { .x = tensor(b, at[i].s) };
        assert_ok(view_permute(&c->x, at[i].axis, &c->x, &err), err);
        c->y = i % 3 == 1 ? slice_of_wider(b, c->x.shape, 1) : tensor(b, c->x.shape);
    } else if (i < PERMUTES + STORED) {
        const uint64_t rows = i % 2 ? 3 : 81; /* 81: enough for several tasks */
        *c = (struct op_copy) { .x = tensor_of(b, stored[i - PERMUTES], S2(rows, 512)),
                                .y = tensor(b, S3(512, 1, rows)) };
    } else {
        return false;
    }
    return true;
}

/* Exact: every backend adds in the same order. Ranks of adapters, sides beyond a block; rows of
 * something wider, as pieces of a weight are. */
static bool make_add_product(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t at[][3] = {
        /* rows, cols, rank */
        { 1, 1, 1 },   { 3, 5, 2 },      { 17, 31, 4 },    { 2, 320, 16 }, { 130, 257, 40 },
        { 1, 300, 7 }, { 129, 128, 64 }, { 300, 96, 130 }, { 64, 64, 33 }, { 257, 3, 1 }
    };
    enum { SHAPES = sizeof at / sizeof *at };
    *tol = 0;
    if (i >= 2 * SHAPES)
        return false;
    const uint64_t rows = at[i / 2][0], cols = at[i / 2][1], rank = at[i / 2][2];
    struct op_add_product *p = &a->add_product;
    *p = (struct op_add_product) { .up = wide(b, S2(rows, rank)),
                                   .down = wide(b, S2(rank, cols)),
                                   .scale = uniform(&b->rng) };
    struct view whole = wide(b, S2(rows, cols + i % 2 * 8));
    p->w = i % 2 ? piece(&whole, 0, cols) : whole;
    return true;
}

/* ---- the ops ---- */

#define OP(x)                                                                                      \
    static berth_status call_##x(const struct op_env *env, const union any *a, berth_err *err)     \
    {                                                                                              \
        return op_##x(env, &a->x, err);                                                            \
    }                                                                                              \
    static size_t scratch_##x(const struct op_env *env, const union any *a)                        \
    {                                                                                              \
        return op_##x##_scratch(env, &a->x);                                                       \
    }
#include "op/ops.def"
#undef OP

/* An op's views. A batch is made of those marked: dimension 0 is the picture's. */
enum { WRITTEN = 1, BATCHED = 2, IN_PLACE = 4 /* read before it is written */, OPERANDS = 8 };
struct operand {
    const char *name;
    size_t at;
    unsigned how;
};
#define IS(x, v, how)                                                                              \
    {                                                                                              \
#v, offsetof(struct op_##x, v), how                                                        \
    }
#define Y(x, v) IS(x, v, WRITTEN | BATCHED)
#define EACH(x, v) IS(x, v, BATCHED)
#define ALL(x, v) IS(x, v, 0)
#define OPERANDS_OF(x, ...) static const struct operand operands_##x[OPERANDS] = { __VA_ARGS__ };
OPERANDS_OF(linear, Y(linear, y), EACH(linear, x), EACH(linear, add), ALL(linear, w),
            ALL(linear, bias))
OPERANDS_OF(matmul, Y(matmul, y), EACH(matmul, a), EACH(matmul, b))
OPERANDS_OF(conv2d, Y(conv2d, y), EACH(conv2d, x), EACH(conv2d, add), ALL(conv2d, w),
            ALL(conv2d, bias))
OPERANDS_OF(attention, Y(attention, y), EACH(attention, q), EACH(attention, k), EACH(attention, v),
            EACH(attention, mask))
OPERANDS_OF(group_norm, Y(group_norm, y), EACH(group_norm, x), ALL(group_norm, w),
            ALL(group_norm, b))
OPERANDS_OF(channel_norm, Y(channel_norm, y), EACH(channel_norm, x), ALL(channel_norm, w),
            ALL(channel_norm, scale), ALL(channel_norm, shift))
OPERANDS_OF(row_norm, Y(row_norm, y), EACH(row_norm, x), EACH(row_norm, scale),
            EACH(row_norm, shift), ALL(row_norm, w), ALL(row_norm, b))
OPERANDS_OF(qk_rope, IS(qk_rope, q, WRITTEN | BATCHED | IN_PLACE),
            IS(qk_rope, k, WRITTEN | BATCHED | IN_PLACE), ALL(qk_rope, wq), ALL(qk_rope, wk),
            ALL(qk_rope, table))
OPERANDS_OF(gate, Y(gate, y), EACH(gate, x), EACH(gate, gate), EACH(gate, z))
OPERANDS_OF(unary, Y(unary, y), EACH(unary, x))
OPERANDS_OF(binary, Y(binary, y), EACH(binary, a), EACH(binary, b))
OPERANDS_OF(geglu, Y(geglu, y), EACH(geglu, x))
OPERANDS_OF(embedding, Y(embedding, y), EACH(embedding, ids), ALL(embedding, table))
OPERANDS_OF(decode, IS(decode, y, WRITTEN), ALL(decode, codes), ALL(decode, rows),
            ALL(decode, blocks), ALL(decode, ids))
OPERANDS_OF(int_linear, Y(int_linear, y), EACH(int_linear, x), EACH(int_linear, add),
            ALL(int_linear, codes), ALL(int_linear, rows), ALL(int_linear, blocks),
            ALL(int_linear, bias))
OPERANDS_OF(timestep, Y(timestep, y), EACH(timestep, t))
OPERANDS_OF(resize2d, Y(resize2d, y), EACH(resize2d, x))
OPERANDS_OF(concat, IS(concat, y, WRITTEN)) /* and a list; nothing is computed */
OPERANDS_OF(pad2d, Y(pad2d, y), EACH(pad2d, x))
OPERANDS_OF(copy, IS(copy, y, WRITTEN), ALL(copy, x))
OPERANDS_OF(add_product, IS(add_product, w, WRITTEN | IN_PLACE), ALL(add_product, up),
            ALL(add_product, down))

static const struct op_case {
    const char *name;
    bool (*make)(struct bag *b, size_t i, union any *a, double *tol);
    berth_status (*call)(const struct op_env *env, const union any *a, berth_err *err);
    size_t (*scratch)(const struct op_env *env, const union any *a);
    const struct operand *operand; /* up to one without name */
} ops[] = {
#define OP(x) { #x, make_##x, call_##x, scratch_##x, operands_##x },
#include "op/ops.def"
#undef OP
};
enum { OPS = sizeof ops / sizeof *ops };

static struct view *operand(const union any *a, const struct operand *o)
{
    return (struct view *)(void *)((char *)(uintptr_t)a + o->at);
}

/* A case and its memory as it was made. */
struct rig {
    const struct op_case *op;
    size_t i;
    double tol;
    union any a;
    struct bag bag;
    char *before;
};

/* What its memory holds before anything ran. */
static inline void rig_keep(struct rig *r)
{
    size_t bytes = 1;
    for (size_t s = 0; s < r->bag.n; s++)
        bytes += r->bag.store[s].bytes;
    r->before = malloc(bytes);
    assert_non_null(r->before);
    bytes = 0;
    for (size_t s = 0; s < r->bag.n; bytes += r->bag.store[s++].bytes)
        memcpy(r->before + bytes, r->bag.store[s].at, r->bag.store[s].bytes);
}

/* Case i; false: there are no more, and nothing to free. */
static inline bool rig_make(struct rig *r, const struct op_case *op, size_t i)
{
    *r = (struct rig) { .op = op, .i = i };
    r->bag.rng.state = (uint64_t)(op - ops) * 1000003 + i * 7919 + 42;
    bool there_is = op->make(&r->bag, i, &r->a, &r->tol);
    if (there_is)
        rig_keep(r);
    else
        bag_empty(&r->bag);
    return there_is;
}

static inline void rig_free(struct rig *r)
{
    free(r->before);
    bag_empty(&r->bag);
}

static inline void rig_restore(const struct rig *r)
{
    size_t at = 0;
    for (size_t s = 0; s < r->bag.n; at += r->bag.store[s++].bytes)
        memcpy(r->bag.store[s].at, r->before + at, r->bag.store[s].bytes);
}

/* Element e of a view, counted row by row. */
static inline void *element(const struct view *v, size_t e)
{
    size_t at = 0;
    for (int d = v->shape.ndim - 1; d >= 0; d--) {
        at += e % (size_t)v->shape.dim[d] * v->stride[d];
        e /= (size_t)v->shape.dim[d];
    }
    return (char *)v->data + at;
}

/* Elements that lie one behind the other: a row, or just one. */
static inline size_t run_of(const struct view *v)
{
    const struct dtype_desc *t = dtype_desc(v->dtype);
    int last = v->shape.ndim - 1;
    bool rows = last >= 0 && t->elems == 1 && v->stride[last] == t->bytes;
    return view_contiguous(v) ? op_count(v) : rows ? op_row(v) : 1;
}

/* The elements of a view as F32, without gaps. */
static inline void values_of(const struct view *v, float *out)
{
    berth_err err;
    for (size_t e = 0, n = op_count(v), run = run_of(v); e < n; e += run)
        assert_ok(convert(v->dtype, element(v, e), DT_F32, out + e, run, &err), err);
}

/* Elements that are computed. */
static inline size_t result_count(const struct op_case *op, const union any *a)
{
    size_t n = 0;
    for (const struct operand *o = op->operand; o->name; o++)
        n += o->how & WRITTEN ? op_count(operand(a, o)) : 0;
    return n;
}

/* The results without gaps, one behind the other; the caller frees them. */
static inline float *result(const struct rig *r)
{
    float *out = malloc(result_count(r->op, &r->a) * sizeof *out + 1), *at = out;
    assert_non_null(out);
    for (const struct operand *o = r->op->operand; o->name; o++)
        if (o->how & WRITTEN) {
            values_of(operand(&r->a, o), at);
            at += op_count(operand(&r->a, o));
        }
    return out;
}

/* Runs a on the host with scratch of just the size asked for; its bytes are noise. */
static inline berth_status run_on_host(const struct op_case *op, const union any *a,
                                       struct op_env env, berth_err *err)
{
    env.scratch_bytes = op->scratch(&env, a);
    env.scratch = aligned_alloc(OP_SCRATCH_ALIGN,
                                (env.scratch_bytes / OP_SCRATCH_ALIGN + 1) * OP_SCRATCH_ALIGN);
    assert_non_null(env.scratch);
    memset(env.scratch, 0xff, env.scratch_bytes); /* NaN */
    berth_status s = op->call(&env, a, err);
    free(env.scratch);
    return s;
}

#endif
