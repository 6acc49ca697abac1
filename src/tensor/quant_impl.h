/* quant_impl: what the files of the GGML block types share. Folder alone.
 *
 * Each of those files opens with its block: byte offsets, and how element i is found. d and m are
 * F16. The element order follows GGML: within a group the low nibbles (or bit pairs) of consecutive
 * bytes come first, then the higher ones. Products are taken in the order written in the file, in
 * F32, so that every machine gets the same bits. */
#pragma once

#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#define F16_MOST 65504.0f

/* The F16 at p. Scales are normal numbers as a rule, so a branch beats f16_widen()'s masks here. */
static inline float ld_half(const uint8_t *p)
{
    uint32_t h = ld_u16(p, 0), em = h & 0x7fff;
    if (em >= 0x400 && em < 0x7c00)
        return f32_from_bits((h & 0x8000) << 16 | ((em << 13) + (112u << 23)));
    return f16_widen((uint16_t)h);
}

/* In front of a short loop: the unroller leaves it alone, so that it becomes vectors instead. Worth
 * a factor of three in Q4_0. */
#define VECTOR_LOOP _Pragma("GCC unroll 1")

/* Scale and minimum of sub-block j of a Q4_K or Q5_K block: eight pairs of 6 bits in 12 bytes. The
 * first four pairs sit in the low 6 bits of bytes 0-3 and 4-7; the others have their low 4 bits in
 * bytes 8-11 and their high 2 bits above the first four. */
static inline void k_pair(const uint8_t s[12], size_t j, uint8_t *scale, uint8_t *min)
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

/* The end of each file: dequant(block, 32 or 256 floats) and its reverse over many blocks of ELEMS
 * and BYTES, for every level, and the descriptor. */
#define QUANT_TO_F32(id, NAME, GGML) QUANT_READ() QUANT_DTYPE(id, NAME, GGML, NULL, NULL)
#define QUANT_BOTH_WAYS(id, NAME, GGML)                                                            \
    QUANT_READ()                                                                                   \
    QUANT_WRITE() QUANT_DTYPE(id, NAME, GGML, from_f32, from_f32_levels)

#define QUANT_READ()                                                                               \
    INLINE_BODY void dequant_all(const void *restrict src, float *restrict dst, size_t n)          \
    {                                                                                              \
        const uint8_t *b = src;                                                                    \
        uint8_t *y = (uint8_t *)dst;                                                               \
        for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float))             \
            dequant(b, y);                                                                         \
    }                                                                                              \
    TO_F32_CLONES(to_f32, dequant_all)                                                             \
    TO_F32_TABLE(to_f32, ELEMS, BYTES)
#define QUANT_WRITE()                                                                              \
    INLINE_BODY void quant_all(const float *src, void *dst, size_t n)                              \
    {                                                                                              \
        const uint8_t *s = (const uint8_t *)src;                                                   \
        uint8_t *b = dst;                                                                          \
        for (size_t k = 0; k < n / ELEMS; k++, s += ELEMS * sizeof(float), b += BYTES)             \
            quant(s, b);                                                                           \
    }                                                                                              \
    FROM_F32_CLONES(from_f32, quant_all)                                                           \
    FROM_F32_TABLE(from_f32)
#define QUANT_DTYPE(id, NAME, GGML, FROM, FROM_LEVELS)                                             \
    const struct dtype_desc dtype_##id = {                                                         \
        .name = NAME,                                                                              \
        .ggml_id = GGML,                                                                           \
        .elems = ELEMS,                                                                            \
        .bytes = BYTES,                                                                            \
        .to_f32 = to_f32,                                                                          \
        .from_f32 = FROM,                                                                          \
        .to_f32_levels = to_f32_levels,                                                            \
        .from_f32_levels = FROM_LEVELS,                                                            \
    };

/* Copies n values for a quantiser: NaN becomes 0, infinities the largest finite F32, so that no NaN
 * arises later on (its sign differs between processors). Returns the bits of the largest
 * magnitude. */
INLINE_BODY uint32_t quant_load(const void *restrict src, float *restrict x, size_t n)
{
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = ld_u32(src, i), abs = u & ~F32_SIGN;
        abs -= abs == F32_INF;
        abs = mf_if_above(abs, F32_INF, 0, abs);
        x[i] = f32_from_bits((u & F32_SIGN) | abs);
    }
    for (size_t i = 0; i < n; i++) {
        int32_t abs = (int32_t)(f32_bits(x[i]) & ~F32_SIGN);
        most = abs > most ? abs : most;
    }
    return (uint32_t)most;
}

/* The first element of that magnitude, with its sign. */
INLINE_BODY float quant_extreme(const float *x, uint32_t most)
{
    while ((f32_bits(*x) & ~F32_SIGN) != most)
        x++;
    return *x;
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

/* v limited to 0 .. most. In bits, which order like the numbers when positive: two comparisons of
 * floats become branches and keep compilers from using vectors. */
INLINE_BODY float quant_clamp(float v, float most)
{
    uint32_t u = f32_bits(v), m = f32_bits(most);
    u &= ~(uint32_t)((int32_t)u >> 31); /* negative: 0 */
    return f32_from_bits(mf_if_above(u, m, m, u));
}
