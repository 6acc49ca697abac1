/* ops_ref_values.c: norms and element-wise ops of the reference, in double with the library's
 * functions. */
#include "op/ops_impl.h"

#include <math.h>

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}

double ref_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* Mean and 1 / sqrt(variance + eps) of n values; without mean that of RMS. */
static void moments(const float *x, size_t n, double eps, bool rms, double *mean, double *inv)
{
    double s = 0, q = 0;
    for (size_t i = 0; i < n && !rms; i++)
        s += (double)x[i];
    *mean = s / (double)n;
    for (size_t i = 0; i < n; i++)
        q += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *inv = 1 / sqrt(q / (double)n + eps);
}

berth_status ref_group_norm(const struct op_env *env, const struct op_group_norm *a, berth_err *err)
{
    (void)env, (void)err;
    size_t C = (size_t)a->x.shape.dim[1], inner = op_count_of(&a->x, 2, a->x.shape.ndim);
    size_t per = C / a->groups, n = per * inner;
    for (size_t g = 0; g < (size_t)a->x.shape.dim[0] * a->groups; g++) {
        const float *x = op_f32(&a->x) + g * n;
        float *y = op_f32(&a->y) + g * n;
        double mean, inv;
        moments(x, n, (double)a->eps, false, &mean, &inv);
        for (size_t i = 0; i < n; i++) {
            size_t c = g % a->groups * per + i / inner;
            double v =
                ((double)x[i] - mean) * inv * (double)op_f32(&a->w)[c] + (double)op_f32(&a->b)[c];
            y[i] = (float)(a->silu ? silu(v) : v);
        }
    }
    return BERTH_OK;
}

berth_status ref_row_norm(const struct op_env *env, const struct op_row_norm *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = op_row(&a->x), rows = op_count(&a->x) / n;
    for (size_t r = 0; r < rows; r++) {
        const float *x = op_f32(&a->x) + r * n;
        float *y = op_f32(&a->y) + r * n;
        double mean, inv;
        moments(x, n, (double)a->eps, a->rms, &mean, &inv);
        const float *scale = NULL, *shift = NULL;
        if (a->scale.data) {
            size_t item = r / (rows / (size_t)a->x.shape.dim[0]);
            scale = op_row_at(&a->scale, item);
            shift = op_row_at(&a->shift, item);
        }
        for (size_t i = 0; i < n; i++) {
            double v = ((double)x[i] - mean) * inv;
            if (a->w.data)
                v *= (double)op_f32(&a->w)[i];
            if (a->b.data)
                v += (double)op_f32(&a->b)[i];
            if (scale)
                v = v * (1 + (double)scale[i]) + (double)shift[i];
            y[i] = (float)v;
        }
    }
    return BERTH_OK;
}

/* One head of one token. */
static void rope(float *x, size_t D, const float *w, double eps, const float *table)
{
    double mean, inv = 1;
    if (w)
        moments(x, D, eps, true, &mean, &inv);
    for (size_t i = 0; i < D; i += 2) {
        double c = (double)table[i], s = (double)table[i + 1];
        double u = (double)x[i] * inv * (w ? (double)w[i] : 1);
        double v = (double)x[i + 1] * inv * (w ? (double)w[i + 1] : 1);
        x[i] = (float)(c * u - s * v);
        x[i + 1] = (float)(s * u + c * v);
    }
}

berth_status ref_qk_rope(const struct op_env *env, const struct op_qk_rope *a, berth_err *err)
{
    (void)env, (void)err;
    size_t B = (size_t)a->q.shape.dim[0], T = (size_t)a->q.shape.dim[1],
           H = (size_t)a->q.shape.dim[2], D = (size_t)a->q.shape.dim[3];
    for (size_t i = 0; i < B * T * H; i++) {
        size_t b = i / H / T, t = i / H % T, h = i % H;
        const float *table = op_f32(&a->table) + t * D;
        rope(op_head_at(&a->q, b, t, h), D, a->wq.data, (double)a->eps, table);
        rope(op_head_at(&a->k, b, t, h), D, a->wk.data, (double)a->eps, table);
    }
    return BERTH_OK;
}

berth_status ref_gate(const struct op_env *env, const struct op_gate *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = op_row(&a->x), rows, sx, sz, sy;
    op_rows(&a->x, &rows, &sx);
    op_rows(&a->z, &rows, &sz);
    op_rows(&a->y, &rows, &sy);
    for (size_t r = 0; r < rows; r++) {
        const float *x = op_bytes_on(&a->x, r * sx), *z = op_bytes_on(&a->z, r * sz);
        const float *gate = op_row_at(&a->gate, r / (rows / (size_t)a->x.shape.dim[0]));
        float *y = op_bytes_on(&a->y, r * sy);
        for (size_t i = 0; i < n; i++)
            y[i] = (float)((double)x[i] + (double)gate[i] * (double)z[i]);
    }
    return BERTH_OK;
}

static double unary(enum op_unary_kind kind, double x)
{
    switch (kind) {
    case OP_SILU:
        return silu(x);
    case OP_GELU:
        return gelu(x);
    case OP_GELU_TANH:
        return ref_gelu_tanh(x);
    case OP_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case OP_RELU:
        return x < 0 ? 0 : x; /* NaN stays */
    case OP_TANH:
        return tanh(x);
    case OP_SIGMOID:
        return 1 / (1 + exp(-x));
    case OP_UNARY_COUNT:
        break;
    }
    BUG("unary kind %d", (int)kind);
}

berth_status ref_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    (void)env, (void)err;
    for (size_t i = 0, n = op_count(&a->x); i < n; i++)
        op_f32(&a->y)[i] = (float)unary(a->kind, (double)op_f32(&a->x)[i]);
    return BERTH_OK;
}

berth_status ref_binary(const struct op_env *env, const struct op_binary *a, berth_err *err)
{
    (void)env, (void)err;
    double scale = (double)op_scale(a->scale);
    const struct shape *s = &a->a.shape, *t = &a->b.shape;
    for (size_t i = 0, n = op_count(&a->a); i < n; i++) {
        size_t rest = i, at = 0, step = 1; /* element of b under element i of a */
        for (int d = s->ndim - 1; d >= 0; d--) {
            at += t->dim[d] > 1 ? rest % (size_t)s->dim[d] * step : 0;
            rest /= (size_t)s->dim[d];
            step *= (size_t)t->dim[d];
        }
        double x = (double)op_f32(&a->a)[i], b = (double)op_f32(&a->b)[at] * scale;
        double y = a->kind == OP_ADD ? x + b : a->kind == OP_SUB ? x - b : x * b;
        op_f32(&a->y)[i] = (float)y;
    }
    return BERTH_OK;
}

berth_status ref_geglu(const struct op_env *env, const struct op_geglu *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = op_row(&a->y), rows = op_count(&a->y) / n;
    for (size_t r = 0; r < rows; r++) {
        const float *x = op_f32(&a->x) + r * 2 * n;
        float *y = op_f32(&a->y) + r * n;
        for (size_t i = 0; i < n; i++) {
            double g = (double)x[n + i];
            y[i] = (float)((double)x[i] * (a->tanh ? ref_gelu_tanh(g) : gelu(g)));
        }
    }
    return BERTH_OK;
}
