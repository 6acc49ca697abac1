/* norm.c: group norm, layer norm and RMS norm, and the RMS norm of heads with their rotation.
 *
 * Sums are taken over blocks that fit the first-level cache, in lanes of float, and added up in
 * double: as exact as double sums for our purposes, and always in the same order. A block's mean
 * comes first, then its squares around that, then Chan's formula joins it to the blocks before. */
#include "op/cpu/vmath.h"

#include <math.h>

enum { BLOCK = 4096, LANES = 8, SUMS = 4 }; /* sums wait for each other otherwise */

struct moments {
    double n, mean, m2; /* m2: sum of (x - mean)^2 */
};

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Sum of (x - c)^power over n values. Rounds the same at every level: there is nothing to fuse. */
INLINE_BODY double power_sum(const int power, const float *x, size_t n, float c)
{
    lanes sum[SUMS] = { 0 }, d;
    size_t i = 0;
    for (; i + SUMS * LANES <= n; i += SUMS * LANES)
        for (size_t k = 0; k < SUMS; k++) {
            memcpy(&d, x + i + k * LANES, sizeof d);
            d -= c;
            sum[k] += power == 1 ? d : d * d;
        }
    for (; i < n; i += LANES) { /* what is missing counts as c */
        float rest[LANES] = { 0 };
        for (size_t j = 0; i + j < n && j < LANES; j++)
            rest[j] = x[i + j] - c;
        memcpy(&d, rest, sizeof d);
        sum[0] += power == 1 ? d : d * d;
    }
    sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double half[LANES / 2];
    for (size_t j = 0; j < LANES / 2; j++)
        half[j] = (double)sum[0][j] + (double)sum[0][j + LANES / 2];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

INLINE_BODY void moments_body(const bool fused, const float *x, size_t n, struct moments *m)
{
    (void)fused;
    double bn = (double)n, about = (double)x[0]; /* sums around a value of the block lose less */
    about += power_sum(1, x, n, x[0]) / bn;
    float c = (float)about;
    double d = about - (double)c; /* squares are around c: move them to the mean */
    double m2 = power_sum(2, x, n, c) - bn * d * d;
    double delta = about - m->mean, total = m->n + bn;
    m->m2 += m2 + delta * delta * m->n * bn / total;
    m->mean += delta * bn / total;
    m->n = total;
}
CLONES(moments, (const float *x, size_t n, struct moments *m), x, n, m)

INLINE_BODY void squares_body(const bool fused, const float *x, size_t n, struct moments *m)
{
    (void)fused;
    m->m2 += power_sum(2, x, n, 0);
    m->n += (double)n;
}
CLONES(squares, (const float *x, size_t n, struct moments *m), x, n, m)

/* y = (x - c) * s + t, through silu if asked. */
struct affine {
    float c, s, t;
};

INLINE_BODY void affine_body(const bool fused, const float *x, float *y, size_t n, struct affine f)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_fma(fused, x[i] - f.c, f.s, f.t);
}
CLONES(affine, (const float *x, float *y, size_t n, struct affine f), x, y, n, f)

INLINE_BODY void affine_silu_body(const bool fused, const float *x, float *y, size_t n,
                                  struct affine f)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_silu(fused, vm_fma(fused, x[i] - f.c, f.s, f.t));
}
CLONES(affine_silu, (const float *x, float *y, size_t n, struct affine f), x, y, n, f)

/* The same with s * w[i] and t * w[i] + b[i]; one: what w counts from, 0 or 1. */
INLINE_BODY void affine_row_body(const bool fused, const float *x, float *y, size_t n,
                                 struct affine f, const float *w, float one, const float *b)
{
    if (w && b)
        VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_fma(fused, vm_fma(fused, x[i] - f.c, f.s, f.t), one + w[i], b[i]);
    else if (w) VM_LOOP for (size_t i = 0; i < n; i++) y[i] =
        vm_fma(fused, x[i] - f.c, f.s, f.t) * (one + w[i]);
    else VM_LOOP for (size_t i = 0; i < n; i++) y[i] =
        vm_fma(fused, x[i] - f.c, f.s, f.t) + (b ? b[i] : 0);
}
CLONES(affine_row,
       (const float *x, float *y, size_t n, struct affine f, const float *w, float one,
        const float *b),
       x, y, n, f, w, one, b)

/* The same with s * (1 + scale[i]) and t * (1 + scale[i]) + shift[i]. */
INLINE_BODY void affine_mod_body(const bool fused, const float *x, float *y, size_t n,
                                 struct affine f, const float *scale, const float *shift)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_fma(fused, vm_fma(fused, x[i] - f.c, f.s, f.t), 1 + scale[i], shift[i]);
}
CLONES(affine_mod,
       (const float *x, float *y, size_t n, struct affine f, const float *scale,
        const float *shift),
       x, y, n, f, scale, shift)

/* y *= 1 + scale[i], and + shift[i] where it is there. */
INLINE_BODY void scale_row_body(const bool fused, float *y, size_t n, const float *scale,
                                const float *shift)
{
    if (shift)
        VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_fma(fused, y[i], 1 + scale[i], shift[i]);
    else VM_LOOP for (size_t i = 0; i < n; i++) y[i] *= 1 + scale[i];
}
CLONES(scale_row, (float *y, size_t n, const float *scale, const float *shift), y, n, scale, shift)

/* One head: x * inv * (one + w[i]). */
INLINE_BODY void head_norm_body(const bool fused, float *x, size_t D, float inv, const float *w,
                                float one)
{
    (void)fused;
    VM_LOOP
    for (size_t i = 0; i < D; i++)
        x[i] = x[i] * inv * (one + w[i]);
}
CLONES(head_norm, (float *x, size_t D, float inv, const float *w, float one), x, D, inv, w, one)

/* One head: adjacent pairs turned by (cos, sin) of table. */
INLINE_BODY void rope_body(const bool fused, float *x, size_t D, const float *table)
{
    VM_LOOP
    for (size_t i = 0; i < D; i += 2) {
        float u = x[i], v = x[i + 1], c = table[i], s = table[i + 1];
        x[i] = vm_fma(fused, c, u, -(s * v));
        x[i + 1] = vm_fma(fused, s, u, c * v);
    }
}
CLONES(rope, (float *x, size_t D, const float *table), x, D, table)

/* The same of pairs half a head apart. */
INLINE_BODY void rope_halves_body(const bool fused, float *x, size_t D, const float *table)
{
    const size_t half = D / 2;
    VM_LOOP
    for (size_t i = 0; i < half; i++) {
        float u = x[i], v = x[i + half], c = table[2 * i], s = table[2 * i + 1];
        x[i] = vm_fma(fused, c, u, -(s * v));
        x[i + half] = vm_fma(fused, s, u, c * v);
    }
}
CLONES(rope_halves, (float *x, size_t D, const float *table), x, D, table)

static struct moments moments_of(enum cpu_level l, bool rms, const float *x, size_t n)
{
    struct moments m = { 0 };
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t part = n - i < BLOCK ? n - i : BLOCK;
        (rms ? squares_levels : moments_levels)[l](x + i, part, &m);
    }
    return m;
}

/* The mean as a float, and in t what that leaves of it. */
static struct affine affine_of(const struct moments *m, double eps)
{
    double s = 1 / sqrt(m->m2 / m->n + eps);
    float c = (float)m->mean;
    return (struct affine) { c, (float)s, (float)(((double)c - m->mean) * s) };
}

struct group_job {
    const struct op_group_norm *op;
    enum cpu_level level;
};

static void groups(const void *user, size_t from, size_t to)
{
    const struct group_job *j = user;
    const struct op_group_norm *a = j->op;
    size_t inner = op_count_of(&a->x, 2, a->x.shape.ndim);
    size_t per = (size_t)a->x.shape.dim[1] / a->groups, n = per * inner;
    for (size_t g = from; g < to; g++) {
        const float *x = op_f32(&a->x) + g * n;
        float *y = op_f32(&a->y) + g * n;
        struct moments m = moments_of(j->level, false, x, n);
        struct affine f = affine_of(&m, (double)a->eps);
        for (size_t i = 0; i < per; i++) {
            size_t c = g % a->groups * per + i;
            float w = op_f32(&a->w)[c], b = op_f32(&a->b)[c];
            struct affine of = { f.c, f.s * w, (float)((double)f.t * (double)w + (double)b) };
            (a->silu ? affine_silu_levels : affine_levels)[j->level](x + i * inner, y + i * inner,
                                                                     inner, of);
        }
    }
}

berth_status cpu_group_norm(const struct op_env *env, const struct op_group_norm *a, berth_err *err)
{
    (void)err;
    struct group_job j = { a, cpu_kernels(env) };
    size_t n = (size_t)a->x.shape.dim[0] * a->groups;
    cpu_ranges(env, n, op_count(&a->x) / n, groups, &j);
    return BERTH_OK;
}

struct row_job {
    const struct op_row_norm *op;
    enum cpu_level level;
    size_t per_item; /* rows */
};

static void norm_rows(const void *user, size_t from, size_t to)
{
    const struct row_job *j = user;
    const struct op_row_norm *a = j->op;
    size_t n = op_row(&a->x);
    for (size_t r = from; r < to; r++) {
        const float *x = op_f32(&a->x) + r * n;
        float *y = op_f32(&a->y) + r * n;
        struct moments m = moments_of(j->level, a->rms, x, n);
        struct affine f = affine_of(&m, (double)a->eps);
        size_t item = r / j->per_item;
        const float *scale = a->scale.data ? op_row_at(&a->scale, item) : NULL;
        const float *shift = a->shift.data ? op_row_at(&a->shift, item) : NULL;
        if (shift && !a->w.data) {
            affine_mod_levels[j->level](x, y, n, f, scale, shift);
            continue;
        }
        affine_row_levels[j->level](x, y, n, f, a->w.data, a->from_one ? 1 : 0, a->b.data);
        if (scale)
            scale_row_levels[j->level](y, n, scale, shift);
    }
}

berth_status cpu_row_norm(const struct op_env *env, const struct op_row_norm *a, berth_err *err)
{
    (void)err;
    size_t n = op_row(&a->x), rows = op_count(&a->x) / n;
    struct row_job j = { a, cpu_kernels(env), rows / (size_t)a->x.shape.dim[0] };
    cpu_ranges(env, rows, n, norm_rows, &j);
    return BERTH_OK;
}

struct rope_job {
    const struct op_qk_rope *op;
    enum cpu_level level;
};

static void rope_head(const struct rope_job *j, float *x, const float *w, const float *table)
{
    size_t D = op_row(&j->op->q);
    if (w) {
        struct moments m = moments_of(j->level, true, x, D);
        float inv = affine_of(&m, (double)j->op->eps).s;
        head_norm_levels[j->level](x, D, inv, w, j->op->from_one ? 1 : 0);
    }
    (j->op->halves ? rope_halves_levels : rope_levels)[j->level](x, D, table);
}

static void rope_tokens(const void *user, size_t from, size_t to)
{
    const struct rope_job *j = user;
    const struct op_qk_rope *a = j->op;
    size_t T = (size_t)a->q.shape.dim[1];
    for (size_t n = from; n < to; n++) {
        size_t b = n / T, t = n % T;
        const float *table = op_f32(&a->table) + t * op_row(&a->q);
        for (size_t h = 0; h < a->q.shape.dim[2]; h++)
            rope_head(j, op_head_at(&a->q, b, t, h), a->wq.data, table);
        for (size_t h = 0; h < a->k.shape.dim[2]; h++)
            rope_head(j, op_head_at(&a->k, b, t, h), a->wk.data, table);
    }
}

berth_status cpu_qk_rope(const struct op_env *env, const struct op_qk_rope *a, berth_err *err)
{
    (void)err;
    struct rope_job j = { a, cpu_kernels(env) };
    cpu_ranges(env, op_count_of(&a->q, 0, 2), op_count_of(&a->q, 2, 4) + op_count_of(&a->k, 2, 4),
               rope_tokens, &j);
    return BERTH_OK;
}
