/* Every op of ops.def, every level of the CPU against the reference: shapes with odd sides, sides of one, sizes
 * beyond a block, and every stored type where an op takes weights. And the promise of ops.h that a result has the
 * same bits for any number of threads, thrifty or not, and for a batch in one piece or row by row.
 *
 * A new op needs a maker here; the rest follows from ops.def. The tolerance is relative to the largest value of the
 * result: sums cancel. */
#include "op/cpu/cpu_impl.h"
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

/* Memory of one case: exactly as large as its operands, so that sanitizers see what runs over. */
struct bag {
    void *at[64];
    size_t n;
    struct rng rng;
};

static void *bag_get(struct bag *b, size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    assert_non_null(p);
    assert_true(b->n < sizeof b->at / sizeof *b->at);
    return b->at[b->n++] = p;
}

static void bag_empty(struct bag *b)
{
    while (b->n)
        free(b->at[--b->n]);
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
static struct view tensor_of(struct bag *b, enum dtype t, struct shape s)
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
    void *data = bag_get(b, (size_t)bytes + 1);
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

static struct view tensor(struct bag *b, struct shape s)
{
    return tensor_of(b, DT_F32, s);
}

/* The same shape as a slice of something wider along the last dimensions' owner `axis`. */
static struct view slice_of_wider(struct bag *b, struct shape s, int axis)
{
    struct shape wide = s;
    wide.dim[axis] += 3;
    struct view v = tensor(b, wide);
    berth_err err;
    assert_ok(view_slice(&v, axis, 2, 2 + s.dim[axis], &v, &err), err);
    return v;
}

static const enum dtype stored[] = { DT_F32,  DT_F16,  DT_BF16, DT_F8_E4M3, DT_F8_E5M2, DT_Q8_0,
                                     DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,    DT_Q2_K,    DT_Q3_K,
                                     DT_Q4_K, DT_Q5_K, DT_Q6_K, DT_IQ4_NL,  DT_IQ4_XS };
enum { STORED = sizeof stored / sizeof *stored };

/* ---- makers: case i of an op; false when there are no more ---- */

static bool make_linear(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t dim[][3] = { /* rows, K, N */
                                       { 1, 1, 1 },      { 3, 5, 7 },      { 17, 31, 33 },
                                       { 2, 320, 1 },    { 1, 768, 65 },   { 77, 64, 130 },
                                       { 130, 257, 40 }, { 300, 96, 320 }, { 5, 1030, 514 }
    };
    enum { SHAPES = sizeof dim / sizeof *dim };
    struct op_linear *l = &a->linear;
    *tol = 3e-6;
    uint64_t m, k, n;
    enum dtype t = DT_F32;
    if (i < SHAPES) {
        m = dim[i][0], k = dim[i][1], n = dim[i][2];
    } else if (i < SHAPES + 2 * STORED) {
        t = stored[(i - SHAPES) / 2];
        m = i % 2 ? 37 : 2, k = 512, n = i % 2 ? 19 : 70;
    } else {
        return false;
    }
    *l = (struct op_linear) { .w = tensor_of(b, t, S2(n, k)) };
    if (i % 3 == 2) { /* rows of something wider */
        l->x = slice_of_wider(b, S3(1, m, k), 2);
        l->y = slice_of_wider(b, S3(1, m, n), 2);
    } else {
        l->x = tensor(b, S2(m, k));
        l->y = tensor(b, S2(m, n));
    }
    if (i % 2)
        l->bias = tensor(b, S1(n));
    if (i % 4 == 1)
        l->add = i % 8 == 1 ? l->y : tensor(b, l->y.shape);
    l->scaled = i % 5 >= 3;
    l->scale = i % 5 == 3 ? 0.37f : 0; /* a scale of 0 is one */
    return true;
}

static bool make_matmul(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t dim[][4] = {
        { 1, 1, 1, 1 }, { 2, 3, 5, 7 }, { 3, 17, 33, 9 }, { 1, 100, 64, 48 }, { 2, 65, 300, 66 }
    };
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
        a->conv2d.bias = tensor(b, S1(at[s].oc));
    if (i % 4 == 3)
        a->conv2d.add = i % 8 == 3 ? a->conv2d.y : tensor(b, a->conv2d.y.shape);
    return true;
}

static bool make_attention(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        uint64_t B, H, Tq, Tk, D;
        int mask; /* 1: one for all, 2: for each head */
        bool causal, fused;
    } at[] = {
        { 1, 1, 1, 1, 1, 0, false, false },      { 2, 3, 5, 7, 40, 0, false, false },
        { 1, 2, 77, 77, 64, 0, true, false },    { 2, 2, 100, 77, 40, 0, false, true },
        { 1, 2, 50, 130, 80, 1, false, false },  { 2, 3, 49, 65, 20, 2, false, true },
        { 1, 1, 130, 300, 160, 0, false, true }, { 1, 1, 60, 70, 512, 0, false, false },
        { 1, 2, 200, 200, 3, 1, true, false },   { 2, 1, 500, 64, 13, 0, true, false },
        { 1, 1, 3, 1000, 8, 0, false, false },   { 1, 2, 33, 129, 72, 0, false, true },
    };
    *tol = 1e-5; /* scores of up to 40 in float: their last bit is 4e-6 of a weight */
    if (i >= sizeof at / sizeof *at)
        return false;
    struct op_attention *t = &a->attention;
    struct shape q = S4(at[i].B, at[i].Tq, at[i].H, at[i].D), k = q;
    k.dim[1] = at[i].Tk;
    *t = (struct op_attention) { .causal = at[i].causal, .scale = i % 2 ? 0 : 0.9f };
    if (at[i].fused) {
        t->q = slice_of_wider(b, q, 2);
        t->k = slice_of_wider(b, k, 3);
        t->v = slice_of_wider(b, k, 1);
        t->y = slice_of_wider(b, q, 3);
    } else {
        t->q = tensor(b, q), t->k = tensor(b, k), t->v = tensor(b, k), t->y = tensor(b, q);
    }
    for (size_t e = 0; e < op_count(&t->q) && !at[i].fused; e++)
        op_f32(&t->q)[e] *= 5; /* sharp maxima */
    if (at[i].mask) {
        bool each = at[i].mask == 2;
        t->mask = tensor(b, S4(each ? at[i].B : 1, each ? at[i].H : 1, at[i].Tq, at[i].Tk));
        float *m = op_f32(&t->mask);
        for (size_t e = 0; e < op_count(&t->mask); e++)
            if (e / at[i].Tk % 7 == 3 || e % 3 == 0) /* some rows are hidden as a whole */
                m[e] = -INFINITY;
    }
    return true;
}

static const struct shape many[] = { { 2, { 1, 1 } },          { 2, { 3, 5 } },
                                     { 3, { 2, 6, 17 } },      { 4, { 2, 64, 9, 7 } },
                                     { 4, { 1, 32, 65, 33 } }, { 3, { 3, 77, 320 } },
                                     { 2, { 40, 4099 } },      { 5, { 1, 2, 3, 4, 5 } } };
enum { MANY = sizeof many / sizeof *many };

static bool make_group_norm(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint32_t groups[MANY] = { 1, 5, 3, 32, 8, 7, 1, 2 };
    *tol = 2e-6;
    if (i >= 2 * MANY)
        return false;
    size_t s = i / 2;
    struct op_group_norm *g = &a->group_norm;
    uint64_t c = many[s].dim[1];
    *g = (struct op_group_norm) { .x = tensor(b, many[s]),
                                  .w = tensor(b, S1(c)),
                                  .b = tensor(b, S1(c)),
                                  .groups = groups[s],
                                  .eps = 1e-5f,
                                  .silu = i % 2 };
    for (size_t e = 0; s == 3 && e < op_count(&g->x); e++)
        op_f32(&g->x)[e] += 30; /* a mean far from 0 */
    g->y = s % 2 ? g->x : tensor(b, many[s]);
    return true;
}

static bool make_row_norm(struct bag *b, size_t i, union any *a, double *tol)
{
    *tol = 2e-6;
    if (i >= 4 * MANY)
        return false;
    struct op_row_norm *r = &a->row_norm;
    *r = (struct op_row_norm) { .x = tensor(b, many[i / 4]), .eps = 1e-5f, .rms = i % 2 };
    uint64_t n = op_row(&r->x);
    if (i % 4 < 3)
        r->w = tensor(b, S1(n));
    if (i % 4 != 1)
        r->b = tensor(b, S1(n));
    for (size_t e = 0; i / 4 == 5 && e < op_count(&r->x); e++)
        op_f32(&r->x)[e] -= 20;
    r->y = i % 3 ? r->x : tensor(b, many[i / 4]);
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
                                             { 2, { 1, 1 } },        { 5, { 1, 2, 1, 4, 1 } } };
    *tol = 2e-7;
    if (i >= 3 * MANY)
        return false;
    struct shape s = many[i % MANY];
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
    if (i >= STORED)
        return false;
    struct op_embedding *e = &a->embedding;
    *e = (struct op_embedding) { .table = tensor_of(b, stored[i], S2(11, 512)),
                                 .ids = tensor_of(b, DT_I32, S1(9)),
                                 .y = tensor(b, S2(9, 512)) };
    for (size_t k = 0; k < 9; k++)
        ((int32_t *)e->ids.data)[k] = (int32_t)rng_below(&b->rng, 11);
    return true;
}

static bool make_timestep(struct bag *b, size_t i, union any *a, double *tol)
{
    static const uint64_t dim[] = { 1, 2, 7, 320 };
    *tol = 0;
    if (i >= 4)
        return false;
    a->timestep = (struct op_timestep) { .t = tensor(b, S1(3)),
                                         .y = tensor(b, S2(3, dim[i])),
                                         .period = i == 2 ? 100 : 0,
                                         .sin_first = i % 2 };
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
    struct view *x = bag_get(b, 3 * sizeof *x);
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
    if (i >= 6)
        return false;
    uint64_t top = i % 3, left = i, bottom = i / 2, right = 7 * (i % 2);
    a->pad2d = (struct op_pad2d) { .x = tensor(b, S4(2, 3, 3 + i, 4)),
                                   .y = tensor(b, S4(2, 3, 3 + i + top + bottom, 4 + left + right)),
                                   .top = (uint32_t)top,
                                   .left = (uint32_t)left,
                                   .circular = i % 2 };
    return true;
}

static bool make_copy(struct bag *b, size_t i, union any *a, double *tol)
{
    static const struct {
        struct shape s;
        int axis[4];
    } at[] = { { { 3, { 2, 33, 47 } }, { 0, 2, 1 } },
               { { 4, { 2, 40, 9, 8 } }, { 0, 2, 3, 1 } },
               { { 4, { 1, 5, 66, 32 } }, { 0, 3, 2, 1 } },
               { { 4, { 2, 64, 8, 40 } }, { 0, 2, 1, 3 } },
               { { 2, { 1, 7 } }, { 1, 0 } },
               { { 3, { 5, 300, 70 } }, { 2, 0, 1 } },
               { { 4, { 2, 3, 4, 5 } }, { 3, 2, 1, 0 } },
               { { 2, { 3, 40000 } }, { 0, 1 } } };
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

/* ---- one loop over them ---- */

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

/* Operands that a batch is made of: dimension 0 is the picture's. */
#define BATCH(x, ...) static const size_t batch_##x[] = { __VA_ARGS__ };
#define AT(x, v) offsetof(struct op_##x, v)
enum { NO_BATCH = 1 << 20 };
BATCH(linear, AT(linear, x), AT(linear, y), AT(linear, add))
BATCH(matmul, AT(matmul, a), AT(matmul, b), AT(matmul, y))
BATCH(conv2d, AT(conv2d, x), AT(conv2d, y), AT(conv2d, add))
BATCH(attention, AT(attention, q), AT(attention, k), AT(attention, v), AT(attention, y),
      AT(attention, mask))
BATCH(group_norm, AT(group_norm, x), AT(group_norm, y))
BATCH(row_norm, AT(row_norm, x), AT(row_norm, y))
BATCH(unary, AT(unary, x), AT(unary, y))
BATCH(binary, AT(binary, a), AT(binary, b), AT(binary, y))
BATCH(geglu, AT(geglu, x), AT(geglu, y))
BATCH(embedding, AT(embedding, ids), AT(embedding, y))
BATCH(timestep, AT(timestep, t), AT(timestep, y))
BATCH(resize2d, AT(resize2d, x), AT(resize2d, y))
BATCH(concat, NO_BATCH) /* a list of operands; nothing is computed */
BATCH(pad2d, AT(pad2d, x), AT(pad2d, y))
BATCH(copy, NO_BATCH)

static const struct op_case {
    const char *name;
    bool (*make)(struct bag *b, size_t i, union any *a, double *tol);
    berth_status (*call)(const struct op_env *env, const union any *a, berth_err *err);
    size_t (*scratch)(const struct op_env *env, const union any *a);
    size_t y; /* offset of the result */
    const size_t *batch;
    size_t batch_n;
} ops[] = {
#define OP(x)                                                                                      \
    { #x,                                                                                          \
      make_##x,                                                                                    \
      call_##x,                                                                                    \
      scratch_##x,                                                                                 \
      offsetof(struct op_##x, y),                                                                  \
      batch_##x,                                                                                   \
      sizeof batch_##x / sizeof *batch_##x },
#include "op/ops.def"
#undef OP
};

static struct view *operand(const union any *a, size_t offset)
{
    return (struct view *)(void *)((char *)(uintptr_t)a + offset);
}

/* What a case computes with, and what stood in the result's place before. */
struct rig {
    const struct op_case *op;
    size_t i;
    union any a;
    struct view y;
    char *before;
};

/* Runs a with scratch of just the size asked for; its bytes are noise. */
static void run_in(const struct op_case *op, const union any *a, struct op_env env)
{
    env.scratch_bytes = op->scratch(&env, a);
    env.scratch = aligned_alloc(64, (env.scratch_bytes + 127) & ~(size_t)63);
    assert_non_null(env.scratch);
    memset(env.scratch, 0xff, env.scratch_bytes); /* NaN */
    berth_err err = { 0 };
    berth_status s = op->call(&env, a, &err);
    free(env.scratch);
    if (s)
        fail_msg("%s: %s", op->name, err.msg);
}

static void run_with(const struct op_case *op, const union any *a, const struct op_backend *backend,
                     struct tpool *pool)
{
    run_in(op, a, (struct op_env) { .backend = backend, .pool = pool });
}

static void restore(const struct rig *r)
{
    memcpy(r->y.data, r->before, view_span(&r->y));
}

/* The result without gaps; the caller frees it. */
static float *result(const struct rig *r)
{
    size_t n = op_count(&r->y);
    float *out = malloc(n * sizeof *out + 1);
    assert_non_null(out);
    for (size_t e = 0; e < n; e++) {
        uint64_t at[SHAPE_MAX_DIMS];
        size_t rest = e;
        for (int d = r->y.shape.ndim - 1; d >= 0; d--) {
            at[d] = rest % r->y.shape.dim[d];
            rest /= (size_t)r->y.shape.dim[d];
        }
        void *p;
        berth_err err;
        assert_ok(view_at(&r->y, at, &p, &err), err);
        memcpy(&out[e], p, sizeof(float));
    }
    return out;
}

static float *compute(const struct rig *r, const struct op_backend *b, struct tpool *pool)
{
    restore(r);
    run_with(r->op, &r->a, b, pool);
    return result(r);
}

/* With little scratch, and never more than otherwise. */
static float *compute_thrifty(const struct rig *r, const struct op_backend *b, struct tpool *pool)
{
    struct op_env env = { .backend = b, .pool = pool };
    size_t usual = r->op->scratch(&env, &r->a);
    env.thrifty = true;
    assert_true(r->op->scratch(&env, &r->a) <= usual);
    restore(r);
    run_in(r->op, &r->a, env);
    return result(r);
}

static void assert_near(const struct rig *r, const char *who, const float *got, const float *want,
                        double tol)
{
    size_t n = op_count(&r->y);
    double most = 1e-30;
    for (size_t i = 0; i < n; i++)
        most = fabs((double)want[i]) > most ? fabs((double)want[i]) : most;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (!(off <= tol * most))
            fail_msg(
                "%s case %zu, %s: element %zu is %.9g, the reference has %.9g (off by %g of %g)",
                r->op->name, r->i, who, i, (double)got[i], (double)want[i], off, most);
    }
}

static void assert_bits(const struct rig *r, const char *who, const float *got, const float *want)
{
    for (size_t i = 0, n = op_count(&r->y); i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
            fail_msg("%s case %zu, %s: element %zu is %.9g, in one piece it was %.9g", r->op->name,
                     r->i, who, i, (double)got[i], (double)want[i]);
}

/* The picture row by row. */
static float *compute_split(const struct rig *r, const struct op_backend *b)
{
    const struct op_case *op = r->op;
    restore(r);
    uint64_t rows = r->y.shape.dim[0];
    for (uint64_t k = 0; k < rows; k++) {
        union any part = r->a;
        for (size_t v = 0; v < op->batch_n; v++) {
            struct view *w = operand(&part, op->batch[v]);
            berth_err err;
            if (w->shape.ndim && w->shape.dim[0] == rows)
                assert_ok(view_slice(w, 0, k, k + 1, w, &err), err);
        }
        run_with(op, &part, b, NULL);
    }
    return result(r);
}

static void check_levels(const struct rig *r, double tol, struct tpool *const pool[3])
{
    float *want = compute(r, NULL, NULL);
    struct op_env best = { 0 };
    for (int l = 0; l <= (int)cpu_kernels(&best); l++) {
        const struct op_backend *b = &op_cpu_at[l];
        float *one = compute(r, b, NULL);
        assert_near(r, b->name, one, want, tol);
        for (size_t t = 0; t < 3; t++) {
            float *more = compute(r, b, pool[t]);
            assert_bits(r, "other threads", more, one);
            free(more);
        }
        float *little = compute_thrifty(r, b, pool[2]);
        assert_bits(r, "thrifty", little, one);
        free(little);
        if (r->op->batch[0] != NO_BATCH && r->y.shape.dim[0] > 1) {
            float *split = compute_split(r, b);
            assert_bits(r, "row by row", split, one);
            free(split);
        }
        free(one);
    }
    free(want);
}

static void every_op(void **state)
{
    (void)state;
    struct tpool *pool[3];
    berth_err err;
    for (size_t t = 0; t < 3; t++)
        assert_ok(tpool_new(t + 1, &pool[t], &err), err);
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        struct bag bag = { .rng = { 42 + o } };
        double tol;
        size_t cases = 0;
        for (struct rig r = { .op = &ops[o] };
             memset(&r.a, 0, sizeof r.a), ops[o].make(&bag, r.i, &r.a, &tol); r.i++, cases++) {
            r.y = *operand(&r.a, ops[o].y);
            r.before = bag_get(&bag, view_span(&r.y) + 1);
            memcpy(r.before, r.y.data, view_span(&r.y));
            check_levels(&r, tol, pool);
            bag_empty(&bag);
        }
        bag_empty(&bag);
        assert_true(cases > 2);
    }
    for (size_t t = 0; t < 3; t++)
        tpool_free(pool[t]);
}

/* A query that sees nothing gets zeros; NaN and infinity are not swallowed. */
static void hidden_and_broken_scores(void **state)
{
    (void)state;
    struct bag bag = { .rng = { 9 } };
    struct op_env best = { 0 };
    for (int l = -1; l <= (int)cpu_kernels(&best); l++) {
        const struct op_backend *b = l < 0 ? NULL : &op_cpu_at[l];
        union any a = { .attention = { .q = tensor(&bag, S4(1, 3, 1, 8)),
                                       .k = tensor(&bag, S4(1, 70, 1, 8)),
                                       .v = tensor(&bag, S4(1, 70, 1, 8)),
                                       .y = tensor(&bag, S4(1, 3, 1, 8)),
                                       .mask = tensor(&bag, S4(1, 1, 3, 70)) } };
        float *mask = op_f32(&a.attention.mask), *y = op_f32(&a.attention.y);
        for (size_t i = 0; i < 70; i++)
            mask[i] = -INFINITY;
        op_f32(&a.attention.q)[2 * 8] = NAN;
        for (size_t i = 70; i < 140; i++) /* does not hide: all keys count alike */
            mask[i] = -FLT_MAX;
        double mean[8] = { 0 };
        for (size_t i = 0; i < 70 * 8; i++)
            mean[i % 8] += (double)op_f32(&a.attention.v)[i] / 70;
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            if (strcmp(ops[o].name, "attention") == 0)
                run_with(&ops[o], &a, b, NULL);
        for (size_t d = 0; d < 8; d++) {
            assert_true(y[d] == 0);
            assert_float_equal(y[8 + d], (float)mean[d], 1e-6f);
            assert_true(isnan(y[16 + d]));
        }
        bag_empty(&bag);
    }
}

/* Functions at the ends of their range, level by level. */
static void extremes_of_functions(void **state)
{
    (void)state;
    static float x[] = { 0,      -0.0f, 1e-30f, -1e-30f, 30,    -30,   87.5f,  -87.5f,  88.5f,
                         -88.5f, 100,   -100,   1e4f,    -1e4f, 1e30f, -1e30f, INFINITY };
    enum { N = sizeof x / sizeof *x };
    struct op_env best = { 0 };
    for (int l = 0; l <= (int)cpu_kernels(&best); l++)
        for (int kind = 0; kind < OP_UNARY_COUNT; kind++) {
            float want[N + 1], got[N + 1], in[N + 1];
            memcpy(in, x, sizeof x);
            in[N] = NAN;
            berth_err err;
            struct op_unary u = { .kind = (enum op_unary_kind)kind };
            struct shape s = S1(N + 1);
            assert_ok(view_init(DT_F32, &s, in, sizeof in, &u.x, &err), err);
            u.y = u.x;
            u.y.data = want;
            assert_ok(op_unary(&(struct op_env) { 0 }, &u, &err), err);
            u.y.data = got;
            assert_ok(op_unary(&(struct op_env) { .backend = &op_cpu_at[l] }, &u, &err), err);
            assert_true(isnan(got[N]) && isnan(want[N]));
            for (size_t i = 0; i < N; i++) {
                double off = fabs((double)got[i] - (double)want[i]);
                if (got[i] != want[i] && !(off <= 1e-6 * (1 + fabs((double)want[i]))))
                    fail_msg("%s kind %d of %g: %.9g, not %.9g", op_cpu_at[l].name, kind,
                             (double)in[i], (double)got[i], (double)want[i]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op),
        cmocka_unit_test(hidden_and_broken_scores),
        cmocka_unit_test(extremes_of_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
