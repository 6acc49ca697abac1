/* quant_impl: what the files of the GGML block types share. Folder alone.
 *
 * Each of those files opens with its block: byte offsets, and how element i is found. d and m are
 * F16. The element order follows GGML: within a group the low nibbles (or bit pairs) of consecutive
 * bytes come first, then the higher ones. Products are taken in the order written in the file, in
 * F32, so that every machine gets the same bits. */
#ifndef TENSOR_QUANT_IMPL_H
#define TENSOR_QUANT_IMPL_H

#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#define F16_MOST 65504.0f

/* The F16 at p. */
static inline float ld_half(const uint8_t *p)
{
    return f16_widen(ld_u16(p, 0));
}

/* Scale and minimum of sub-block j of a Q4_K or Q5_K block: eight pairs of 6 bits in 12 bytes. The
 * first four pairs sit in the low 6 bits of bytes 0-3 and 4-7; the others have their low 4 bits in
 * bytes 8-11 and their high 2 bits above the first four. */
static inline void k_pair(const uint8_t s[12], int j, uint8_t *scale, uint8_t *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (uint8_t)((s[j + 4] & 15) | s[j - 4] >> 6 << 4);
        *min = (uint8_t)(s[j + 4] >> 4 | s[j] >> 6 << 4);
    }
}

/* The non-linear steps of IQ4_NL and IQ4_XS. */
#define IQ4_STEPS                                                                                  \
    {                                                                                              \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113                   \
    }

/* Copies n values for a quantiser: NaN becomes 0, infinities the largest finite F32. */
static inline void quant_load(const void *src, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = ld_u32(src, i), abs = u & ~F32_SIGN;
        uint32_t finite = abs == F32_INF ? u - 1 : u;
        x[i] = f32_from_bits(abs > F32_INF ? 0 : finite);
    }
}

/* The largest magnitude of x, with its sign; the first of equals. */
static inline float quant_extreme(const float *x, size_t n)
{
    float most = 0, at = x[0]; /* x[0]: a block of -0 keeps its sign, as in GGML */
    for (size_t i = 0; i < n; i++) {
        float abs = x[i] < 0 ? -x[i] : x[i];
        if (abs > most) {
            most = abs;
            at = x[i];
        }
    }
    return at;
}

/* Clamps a scale to what F16 holds and returns its inverse, 0 when there is none. Values quantised
 * with a clamped scale saturate instead of becoming infinite. */
static inline float quant_scale(float *d)
{
    float v = *d;
    *d = v = v > F16_MOST ? F16_MOST : v < -F16_MOST ? -F16_MOST : v;
    float inv = v == 0 ? 0 : 1 / v;
    return inv - inv == 0 ? inv : 0; /* 1 / subnormal overflows */
}

/* The integer part of v, 0 to most. */
static inline unsigned quant_step(float v, unsigned most)
{
    return v >= (float)most ? most : v > 0 ? (unsigned)v : 0;
}

#endif
