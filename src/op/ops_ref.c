/* ops_ref.c: products in plain loops and double sums, and the table of the reference. Kernels are
 * held against these, so clarity comes first; they run on the calling thread.
 *
 * Scratch  linear: one widened row of the weight; conv2d: one widened filter; attention: one row of
 *          scores. In order to predict the same bytes for every type, F32 weights are copied,
 *          too. */
#include "op/ops_impl.h"

#include "base/sz.h"

#include <math.h>
#include <string.h>

/* n * bytes, or so much that nobody has it. */
static size_t bytes_of(size_t n, size_t bytes)
{
    size_t out;
    return sz_mul(n, bytes, &out) ? out : SIZE_MAX;
}

static berth_status cancelled(const char *op, berth_err *err)
{
    return err_set(err, BERTH_ECANCELED, "%s: cancelled", op);
}

/* Unit i of a weight, `n` elements packed behind one another, as F32. */
static void widen(const struct view *w, size_t i, size_t n, float *out)
{
    const struct dtype_desc *t = dtype_desc(w->dtype);
    t->to_f32((const char *)w->data + i * (n / t->elems) * t->bytes, out, n);
}

static double dot(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

static size_t ref_linear_scratch(const struct op_env *env, const struct op_linear *a)
{
    (void)env;
    return bytes_of(op_row(&a->x), sizeof(float));
}

static const float *row_of(const struct view *v, size_t stride, size_t i)
{
    return (const float *)(const void *)((const char *)v->data + i * stride);
}

berth_status ref_linear(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    size_t k = op_row(&a->x), n = op_row(&a->y), rows, sx, sy, sadd = 0;
    float *w = env->scratch; /* [K] */
    double scale = a->scaled ? (double)a->scale : 1;
    op_rows(&a->x, &rows, &sx);
    if (a->add.data)
        op_rows(&a->add, &rows, &sadd);
    op_rows(&a->y, &rows, &sy);
    for (size_t j = 0; j < n; j++) {
        if (op_cancelled(env))
            return cancelled("linear", err);
        widen(&a->w, j, k, w);
        double bias = a->bias.data ? (double)op_f32(&a->bias)[j] : 0;
        for (size_t i = 0; i < rows; i++) {
            double s = dot(row_of(&a->x, sx, i), w, k) * scale + bias;
            if (a->add.data)
                s += (double)row_of(&a->add, sadd, i)[j];
            if (a->after == OP_AFTER_GELU_TANH)
                s = ref_gelu_tanh(s);
            ((float *)(void *)((char *)a->y.data + i * sy))[j] = (float)s;
        }
    }
    return BERTH_OK;
}

berth_status ref_matmul(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    size_t B = (size_t)a->y.shape.dim[0], M = (size_t)a->y.shape.dim[1],
           N = (size_t)a->y.shape.dim[2], K = (size_t)a->a.shape.dim[2];
    size_t by_k = a->b_transposed ? 1 : N, by_n = a->b_transposed ? K : 1;
    for (size_t i = 0; i < B * M; i++) {
        if (op_cancelled(env))
            return cancelled("matmul", err);
        const float *x = op_f32(&a->a) + i * K, *b = op_f32(&a->b) + i / M * K * N;
        for (size_t j = 0; j < N; j++) {
            double s = 0;
            for (size_t k = 0; k < K; k++)
                s += (double)x[k] * (double)b[k * by_k + j * by_n];
            op_f32(&a->y)[i * N + j] = (float)s;
        }
    }
    return BERTH_OK;
}

static size_t ref_conv2d_scratch(const struct op_env *env, const struct op_conv2d *a)
{
    (void)env;
    return bytes_of(op_count_of(&a->w, 1, 4), sizeof(float));
}

/* The sum under one position of a filter w[C, kh, kw] on x[C, h, w]; y0, x0 may lie in the
 * padding. */
struct window {
    const float *x, *w;
    size_t C, h, wd, kh, kw;
};

static double window_sum(const struct window *f, ptrdiff_t y0, ptrdiff_t x0)
{
    double s = 0;
    for (size_t c = 0; c < f->C; c++)
        for (size_t i = 0; i < f->kh; i++) {
            ptrdiff_t y = y0 + (ptrdiff_t)i;
            if (y < 0 || y >= (ptrdiff_t)f->h)
                continue;
            const float *row = f->x + (c * f->h + (size_t)y) * f->wd;
            const float *w = f->w + (c * f->kh + i) * f->kw;
            for (size_t j = 0; j < f->kw; j++) {
                ptrdiff_t x = x0 + (ptrdiff_t)j;
                if (x >= 0 && x < (ptrdiff_t)f->wd)
                    s += (double)row[x] * (double)w[j];
            }
        }
    return s;
}

berth_status ref_conv2d(const struct op_env *env, const struct op_conv2d *a, berth_err *err)
{
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim, *w = a->w.shape.dim;
    size_t OC = (size_t)w[0], oh = (size_t)y[2], ow = (size_t)y[3];
    size_t stride = op_or_one(a->stride), per_group = OC / op_or_one(a->groups);
    double scale = a->scaled ? (double)a->scale : 1;
    float *filter = env->scratch; /* [C, kh, kw] */
    struct window f = { .w = filter,
                        .C = (size_t)w[1],
                        .h = (size_t)x[2],
                        .wd = (size_t)x[3],
                        .kh = (size_t)w[2],
                        .kw = (size_t)w[3] };
    for (size_t oc = 0; oc < OC; oc++) {
        widen(&a->w, oc, f.C * f.kh * f.kw, filter);
        double bias = a->bias.data ? (double)op_f32(&a->bias)[oc] : 0;
        for (size_t n = 0; n < (size_t)x[0]; n++) {
            if (op_cancelled(env))
                return cancelled("conv2d", err);
            f.x = op_f32(&a->x) + (n * (size_t)x[1] + oc / per_group * f.C) * f.h * f.wd;
            size_t at = (n * OC + oc) * oh * ow;
            for (size_t i = 0; i < oh; i++)
                for (size_t j = 0; j < ow; j++, at++) {
                    ptrdiff_t y0 = (ptrdiff_t)(i * stride) - (ptrdiff_t)a->top;
                    ptrdiff_t x0 = (ptrdiff_t)(j * stride) - (ptrdiff_t)a->left;
                    double s = window_sum(&f, y0, x0) * scale + bias;
                    if (a->add.data)
                        s += (double)op_f32(&a->add)[at];
                    op_f32(&a->y)[at] = (float)s;
                }
        }
    }
    return BERTH_OK;
}

static size_t ref_attention_scratch(const struct op_env *env, const struct op_attention *a)
{
    (void)env;
    return bytes_of((size_t)a->k.shape.dim[1], sizeof(double));
}

/* v[b, t, h, 0] */
static float *at(const struct view *v, size_t b, size_t t, size_t h)
{
    return (float *)(void *)((char *)v->data + b * v->stride[0] + t * v->stride[1] +
                             h * v->stride[2]);
}

/* The mask's row of scores [Tk] of query i, NULL without mask. */
static const float *mask_row(const struct view *m, size_t b, size_t h, size_t i)
{
    if (!m->data)
        return NULL;
    return at(m, m->shape.dim[0] > 1 ? b : 0, m->shape.dim[1] > 1 ? h : 0, i);
}

/* Scores of one query over keys 0..n, then their exponentials relative to the largest; returns the
 * sum of those, 0 when every key is hidden. */
static double softmax_row(const struct op_attention *a, size_t b, size_t i, size_t h, size_t n,
                          double *s)
{
    size_t D = op_row(&a->q);
    double scale = a->scale == 0 ? 1 / sqrt((double)D) : (double)a->scale;
    const float *q = at(&a->q, b, i, h), *mask = mask_row(&a->mask, b, h, i);
    double most = -INFINITY, sum = 0;
    bool hidden = true;
    for (size_t t = 0; t < n; t++) {
        s[t] = dot(q, at(&a->k, b, t, h), D) * scale + (mask ? (double)mask[t] : 0);
        most = s[t] > most ? s[t] : most;
        hidden = hidden && s[t] == -INFINITY; /* a NaN is not hidden */
    }
    if (hidden)
        return 0;
    for (size_t t = 0; t < n; t++)
        sum += s[t] = exp(s[t] - most);
    return sum;
}

berth_status ref_attention(const struct op_env *env, const struct op_attention *a, berth_err *err)
{
    size_t B = (size_t)a->q.shape.dim[0], Tq = (size_t)a->q.shape.dim[1],
           H = (size_t)a->q.shape.dim[2], D = (size_t)a->q.shape.dim[3],
           Tk = (size_t)a->k.shape.dim[1];
    double *s = env->scratch; /* [Tk] */
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < Tq; i++) {
                if (op_cancelled(env))
                    return cancelled("attention", err);
                size_t n = a->causal && i + 1 < Tk ? i + 1 : Tk;
                double sum = softmax_row(a, b, i, h, n, s);
                float *y = at(&a->y, b, i, h);
                for (size_t d = 0; d < D; d++) {
                    double o = 0;
                    for (size_t t = 0; sum != 0 && t < n; t++)
                        o += s[t] * (double)at(&a->v, b, t, h)[d];
                    y[d] = sum != 0 ? (float)(o / sum) : 0;
                }
            }
    return BERTH_OK;
}

const struct op_backend op_ref = {
    .name = "reference",
#define OP(x) .x = ref_##x,
#include "op/ops.def"
#undef OP
    .linear_scratch = ref_linear_scratch,
    .conv2d_scratch = ref_conv2d_scratch,
    .attention_scratch = ref_attention_scratch,
};
