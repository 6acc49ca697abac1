/* channel_norm.c: norm of the channels of each pixel.
 *
 * Channels of a pixel lie a whole plane apart, so some pixels are done together: the sums of their
 * squares plane by plane, then their results. A pixel's sum has the same order wherever it lies. */
#include "op/cpu/vmath.h"

#include <math.h>

enum { PIXELS = 512 }; /* at a time: their sums stay in the first-level cache */

INLINE_BODY void add_squares_body(const bool fused, const float *x, size_t n, float *sum)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        sum[i] = vm_fma(fused, x[i], x[i], sum[i]);
}
CLONES(add_squares, (const float *x, size_t n, float *sum), x, n, sum)

INLINE_BODY void scaled_body(const bool fused, const float *x, float *y, size_t n, const float *by,
                             float w)
{
    (void)fused;
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * by[i] * w;
}
CLONES(scaled, (const float *x, float *y, size_t n, const float *by, float w), x, y, n, by, w)

INLINE_BODY void scaled_silu_body(const bool fused, const float *x, float *y, size_t n,
                                  const float *by, float w)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_silu(fused, x[i] * by[i] * w);
}
CLONES(scaled_silu, (const float *x, float *y, size_t n, const float *by, float w), x, y, n, by, w)

INLINE_BODY void shifted_body(const bool fused, const float *x, float *y, size_t n, const float *by,
                              float w, float b)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_fma(fused, x[i] * by[i], w, b);
}
CLONES(shifted, (const float *x, float *y, size_t n, const float *by, float w, float b), x, y, n,
       by, w, b)

INLINE_BODY void shifted_silu_body(const bool fused, const float *x, float *y, size_t n,
                                   const float *by, float w, float b)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_silu(fused, vm_fma(fused, x[i] * by[i], w, b));
}
CLONES(shifted_silu, (const float *x, float *y, size_t n, const float *by, float w, float b), x, y,
       n, by, w, b)

struct job {
    const struct op_channel_norm *op;
    enum cpu_level level;
    size_t inner, runs; /* pixels of an item; of PIXELS in it */
};

/* n pixels of channel c. */
static void one_channel(const struct job *j, size_t c, const float *x, float *y, size_t n,
                        const float *by)
{
    const struct op_channel_norm *a = j->op;
    const float w = op_has(&a->w) ? op_f32(&a->w)[c] : 1.0f;
    if (op_has(&a->scale))
        (a->silu ? shifted_silu_levels : shifted_levels)[j->level](
            x, y, n, by, w * (1.0f + op_f32(&a->scale)[c]), op_f32(&a->shift)[c]);
    else
        (a->silu ? scaled_silu_levels : scaled_levels)[j->level](x, y, n, by, w);
}

/* Runs [from, to) of all items. */
static void norm_pixels(const void *user, size_t from, size_t to)
{
    const struct job *j = user;
    const struct op_channel_norm *a = j->op;
    const size_t C = (size_t)a->x.shape.dim[1];
    const float root = sqrtf((float)C);
    float by[PIXELS];
    for (size_t k = from; k < to; k++) {
        size_t first = k % j->runs * PIXELS, at = k / j->runs * C * j->inner + first;
        size_t n = j->inner - first < PIXELS ? j->inner - first : PIXELS;
        const float *x = op_f32(&a->x) + at;
        float *y = op_f32(&a->y) + at;
        memset(by, 0, sizeof by);
        for (size_t c = 0; c < C; c++)
            add_squares_levels[j->level](x + c * j->inner, n, by);
        for (size_t i = 0; i < n; i++)
            by[i] = a->rooted ? 1.0f / sqrtf(by[i] / (float)C + a->eps)
                              : root / fmaxf(sqrtf(by[i]), a->eps);
        for (size_t c = 0; c < C; c++)
            one_channel(j, c, x + c * j->inner, y + c * j->inner, n, by);
    }
}

berth_status cpu_channel_norm(const struct op_env *env, const struct op_channel_norm *a,
                              berth_err *err)
{
    (void)err;
    struct job j = { .op = a, .level = cpu_kernels(env) };
    j.inner = op_count_of(&a->x, 2, a->x.shape.ndim);
    j.runs = (j.inner + PIXELS - 1) / PIXELS;
    size_t n = (size_t)a->x.shape.dim[0] * j.runs;
    cpu_ranges(env, n, op_count(&a->x) / n, norm_pixels, &j);
    return BERTH_OK;
}
