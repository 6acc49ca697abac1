/* rng_impl: what the generators share: Cephes' functions as torch has them, and the two versions of
 * their kernels, for the tests that hold them together. */
#pragma once

#include "tensor/cpu.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct philox_rng;

/* `count` blocks of 16 uniform numbers in place into normal ones. */
void randn_blocks_plain(float *d, size_t count); /* any machine */
void randn_blocks(float *d, size_t count);       /* the best this processor has */
/* philox_randn() on any machine. */
void philox_randn_plain(struct philox_rng *g, float *out, size_t n);

/* ---- Cephes, with fmaf() where torch's kernels fuse ---- */

static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ln x, 2^-126 <= x <= 1. Choices are made with bits, so that the loops around have no branches. */
INLINE_BODY float cephes_log(float x)
{
    uint32_t u = bits_of(x), m = (u & 0x007fffffu) | 0x3f000000u; /* x = m * 2^e, m in [0.5, 1) */
    uint32_t low = 0u - (uint32_t)(m < 0x3f3504f3u);              /* m < sqrt(0.5) */
    float e = (float)((int32_t)(u >> 23) - 126 + (int32_t)low);
    x = (float_of(m) - 1.0f) + float_of(m & low);
    float z = x * x, y = 7.0376836292e-2f;
    y = fmaf(y, x, -1.1514610310e-1f);
    y = fmaf(y, x, 1.1676998740e-1f);
    y = fmaf(y, x, -1.2420140846e-1f);
    y = fmaf(y, x, 1.4249322787e-1f);
    y = fmaf(y, x, -1.6668057665e-1f);
    y = fmaf(y, x, 2.0000714765e-1f);
    y = fmaf(y, x, -2.4999993993e-1f);
    y = fmaf(y, x, 3.3333331174e-1f);
    y = y * x;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(-z, 0.5f, y);
    return fmaf(e, 0.693359375f, x + y);
}

/* x >= 0. */
INLINE_BODY void cephes_sincos(float x, float *sin, float *cos)
{
    uint32_t j = ((uint32_t)(int32_t)(x * 1.27323954473516f) + 1u) & ~1u;
    float y = (float)(int32_t)j;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);
    float z = x * x, c = 2.443315711809948e-5f, s = -1.9515295891e-4f;
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, -(z * 0.5f)) + 1.0f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, x, x);
    /* odd quarters swap them */
    uint32_t swap = 0u - (j >> 1 & 1u), cb = bits_of(c), sb = bits_of(s);
    uint32_t sin_bits = (sb & ~swap) | (cb & swap), cos_bits = (cb & ~swap) | (sb & swap);
    *sin = float_of(sin_bits ^ (j & 4u) << 29);
    *cos = float_of(cos_bits ^ (~(j - 2u) & 4u) << 29);
}
