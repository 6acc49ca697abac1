/* op_ref: the plain loops that the fast paths of op/op.h are held against. */
#ifndef SUPPORT_OP_REF_H
#define SUPPORT_OP_REF_H

#include "op/op.h"

#include <math.h>

/* w[rows, cols] += scale * up[rows, rank] . down[rank, cols] */
static inline void ref_lowrank_add(float *w, size_t rows, size_t cols, const float *up,
                                   const float *down, size_t rank, float scale)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float sum = 0;
            for (size_t k = 0; k < rank; k++)
                sum += up[i * rank + k] * down[k * cols + j];
            w[i * cols + j] += scale * sum;
        }
}

struct ref_fp8 {
    int mantissa, bias, top; /* bits, bias, largest exponent */
    float most;              /* largest finite value */
};

static inline float ref_half(float x)
{
    const struct dtype_desc *h = dtype_desc(DT_F16);
    uint16_t bits;
    h->from_f32(&x, &bits, 1);
    h->to_f32(&bits, &x, 1);
    return x;
}

/* Line by line what quant-formats.md 2.5 says, every step rounded to F16. */
static inline float ref_fp8_value(const struct ref_fp8 *f, float value, uint32_t chance)
{
    float x = ref_half(value), a = fabsf(x);
    if (isnan(x))
        return x;
    if (a >= f->most)
        return copysignf(f->most, x);
    float log = a > 0 ? ref_half(log2f(a)) : -INFINITY;
    float e = fminf(fmaxf(floorf(log) + (float)f->bias, 0), (float)f->top);
    float last = exp2f((float)f->mantissa), q;
    if (e > 0)
        q = ref_half(ref_half(ref_half(a / exp2f(e - (float)f->bias)) - 1) * last);
    else
        q = ref_half(a / exp2f((float)(1 - f->bias - f->mantissa)));
    q = ref_half(q + (float)(chance & 0xff) / 256);
    q = ref_half(floorf(q) / last);
    float v = e > 0 ? ref_half(exp2f(e - (float)f->bias) * ref_half(1 + q))
                    : ref_half(exp2f((float)(1 - f->bias)) * q);
    v = fminf(v, f->most);
    return a > 0 && x < 0 ? -v : v;
}

/* op_fp8_round(), one value at a time, with library functions. */
static inline void ref_fp8_round(enum dtype to, const float *x, const uint32_t *chance, void *dst,
                                 size_t n)
{
    const struct ref_fp8 e4m3 = { .mantissa = 3, .bias = 7, .top = 15, .most = 448 };
    const struct ref_fp8 e5m2 = { .mantissa = 2, .bias = 15, .top = 31, .most = 57344 };
    for (size_t i = 0; i < n; i++) {
        float v = ref_fp8_value(to == DT_F8_E4M3 ? &e4m3 : &e5m2, x[i], chance[i]);
        dtype_desc(to)->from_f32(&v, (uint8_t *)dst + i, 1);
    }
}

#endif
