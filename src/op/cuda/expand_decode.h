/* expand_decode: stored types decoded on a card, a chunk of eight elements at a time. Every block
 * of the GGML types is a whole number of chunks, and a thread decodes one.
 *
 * Bits      dec_<x>() gives the bits that tensor/<x>.c gives: the same products and sums in the
 *           same order, each rounded. Widening multiplies by a power of two, which is exact for
 *           subnormals, too.
 * Why two   tensor/ decodes whole blocks, in loops that become vectors; a card wants neighbouring
 *           threads at neighbouring elements. tensor/ made of these chunks would be 2 to 10 times
 *           slower (Q8_0 55 -> 6 GB/s written, Q4_K 43 -> 4, IQ4_XS 7.4 -> 3.9, AVX-512).
 * Reads     Two bytes at a time for blocks of 18, 22, 34, 110 and 210 bytes, four for the others
 *           (DEC_ALIGN); rows begin at a multiple of that.
 * Compiled  by nvcc for kernels, and by a C compiler for tests/unit/op/test_expand_decode.c, which
 *           holds it against tensor/ where there is no card. Needs nothing of CUDA. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DEC static __device__ __forceinline__
#define DEC_MUL(a, b) __fmul_rn((a), (b)) /* never joined to a fused multiply-add */
#define DEC_SUB(a, b) __fsub_rn((a), (b))
#define DEC_ADD(a, b) __fadd_rn((a), (b))
#define DEC_LOAD(T, p) (*(const T *)(p))
#define DEC_BITS(f) __float_as_uint(f)
#define DEC_FLOAT(u) __uint_as_float(u)
#else
#define DEC static inline
#define DEC_MUL(a, b) ((a) * (b))
#define DEC_SUB(a, b) ((a) - (b))
#define DEC_ADD(a, b) ((a) + (b))
#define DEC_LOAD(T, p) dec_load_##T(p)
#define DEC_BITS(f) dec_bits(f)
#define DEC_FLOAT(u) dec_float(u)
static inline uint16_t dec_load_uint16_t(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t dec_load_uint32_t(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t dec_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float dec_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
#endif

/* X(id, elements, bytes) of a block that dec_<id>() takes. */
#define DEC_QUANTS(X)                                                                              \
    X(q4_0, 32, 18)                                                                                \
    X(q4_1, 32, 20)                                                                                \
    X(q5_0, 32, 22)                                                                                \
    X(q5_1, 32, 24)                                                                                \
    X(q8_0, 32, 34)                                                                                \
    X(q2_k, 256, 84)                                                                               \
    X(q3_k, 256, 110)                                                                              \
    X(q4_k, 256, 144)                                                                              \
    X(q5_k, 256, 176)                                                                              \
    X(q6_k, 256, 210)                                                                              \
    X(iq4_nl, 32, 18)                                                                              \
    X(iq4_xs, 256, 136)
#define DEC_ALIGN(bytes) ((bytes) % 4 ? 2 : 4) /* of a block of so many */

/* ---- small floats, one at a time ---- */

DEC float dec_one_f16(uint32_t h) /* the lower 16 bits */
{
    uint32_t em = h & 0x7fff, sign = (h & 0x8000) << 16;
    uint32_t abs = DEC_BITS(DEC_MUL(DEC_FLOAT(em << 13), 0x1p112f));
    uint32_t special = 0x7f800000u | em << 13 | (em > 0x7c00 ? 0x400000u : 0);
    return DEC_FLOAT(sign | (em >= 0x7c00 ? special : abs));
}

DEC float dec_one_bf16(uint32_t h) /* the lower 16 bits */
{
    return DEC_FLOAT(h << 16);
}

DEC float dec_one_f8_e4m3(uint32_t b) /* the lower 8 bits, here and below */
{
    uint32_t em = b & 0x7f, sign = (b & 0x80) << 24;
    uint32_t abs = DEC_BITS(DEC_MUL(DEC_FLOAT(em << 20), 0x1p120f));
    return DEC_FLOAT(sign | (em == 0x7f ? 0x7fc00000u : abs));
}

DEC float dec_one_f8_e5m2(uint32_t b)
{
    return dec_one_f16((b & 0xff) << 8);
}

DEC float dec_one_f8_e8m0(uint32_t b)
{
    uint32_t e = b & 0xff;
    return DEC_FLOAT(e == 0xff ? 0x7fc00000u : e ? e << 23 : 0x400000u);
}

DEC float dec_half(const uint8_t *p)
{
    return dec_one_f16(DEC_LOAD(uint16_t, p));
}

/* ---- eight stored integers ---- */

/* q: eight bytes at p, four to a word. */
DEC void dec_words2(const uint8_t *p, uint32_t q[2]) /* by two bytes */
{
    q[0] = DEC_LOAD(uint16_t, p) | (uint32_t)DEC_LOAD(uint16_t, p + 2) << 16;
    q[1] = DEC_LOAD(uint16_t, p + 4) | (uint32_t)DEC_LOAD(uint16_t, p + 6) << 16;
}

DEC void dec_words4(const uint8_t *p, uint32_t q[2]) /* by four bytes */
{
    q[0] = DEC_LOAD(uint32_t, p);
    q[1] = DEC_LOAD(uint32_t, p + 4);
}

DEC int dec_byte(const uint32_t q[2], int i)
{
    return (int)(q[i / 4] >> i % 4 * 8 & 0xff);
}

/* Each byte of q: `shift` to the right, then & mask. A byte has no more bits than that takes. */
DEC void dec_field(uint32_t q[2], unsigned shift, uint32_t mask)
{
    q[0] = q[0] >> shift & mask * 0x01010101u;
    q[1] = q[1] >> shift & mask * 0x01010101u;
}

/* Bits at .. at + 7 of h become bit 4 of the eight bytes. */
DEC void dec_fifth(uint32_t q[2], uint32_t h, unsigned at)
{
    for (int i = 0; i < 8; i++)
        q[i / 4] |= (h >> (at + (unsigned)i) & 1) << (i % 4 * 8 + 4);
}

/* y = scale * (q - less) */
DEC void dec_scaled(const uint32_t q[2], float scale, int less, float y[8])
{
    for (int i = 0; i < 8; i++)
        y[i] = DEC_MUL(scale, (float)(dec_byte(q, i) - less));
}

/* y = scale * q + more */
DEC void dec_shifted(const uint32_t q[2], float scale, float more, float y[8])
{
    for (int i = 0; i < 8; i++)
        y[i] = DEC_ADD(DEC_MUL(scale, (float)dec_byte(q, i)), more);
}

/* y = scale * q - less */
DEC void dec_less(const uint32_t q[2], float scale, float less, float y[8])
{
    for (int i = 0; i < 8; i++)
        y[i] = DEC_SUB(DEC_MUL(scale, (float)dec_byte(q, i)), less);
}

/* y = scale * step[q], the steps of IQ4_NL and IQ4_XS, a byte each:
 * -127 -104 -83 -65 -49 -35 -22 -10 | 1 13 25 38 53 69 89 113 */
DEC void dec_stepped(const uint32_t q[2], float scale, float y[8])
{
    for (int i = 0; i < 8; i++) {
        int k = dec_byte(q, i);
        uint64_t steps = k & 8 ? UINT64_C(0x7159453526190d01) : UINT64_C(0xf6eaddcfbfad9881);
        y[i] = DEC_MUL(scale, (float)(int8_t)(uint8_t)(steps >> (k & 7) * 8));
    }
}

/* ---- blocks of 32: chunks 0 and 1 are the low nibbles of 16 bytes, 2 and 3 the high ones ---- */

DEC void dec_q4_0(const uint8_t *b, unsigned c, float y[8])
{
    uint32_t q[2];
    dec_words2(b + 2 + c % 2 * 8, q);
    dec_field(q, c / 2 * 4, 15);
    dec_scaled(q, dec_half(b), 8, y);
}

DEC void dec_q4_1(const uint8_t *b, unsigned c, float y[8])
{
    uint32_t q[2], dm = DEC_LOAD(uint32_t, b);
    dec_words4(b + 4 + c % 2 * 8, q);
    dec_field(q, c / 2 * 4, 15);
    dec_shifted(q, dec_one_f16(dm), dec_one_f16(dm >> 16), y);
}

DEC void dec_q5_0(const uint8_t *b, unsigned c, float y[8])
{
    uint32_t q[2], h = DEC_LOAD(uint16_t, b + 2) | (uint32_t)DEC_LOAD(uint16_t, b + 4) << 16;
    dec_words2(b + 6 + c % 2 * 8, q);
    dec_field(q, c / 2 * 4, 15);
    dec_fifth(q, h, 8 * c);
    dec_scaled(q, dec_half(b), 16, y);
}

DEC void dec_q5_1(const uint8_t *b, unsigned c, float y[8])
{
    uint32_t q[2], dm = DEC_LOAD(uint32_t, b);
    dec_words4(b + 8 + c % 2 * 8, q);
    dec_field(q, c / 2 * 4, 15);
    dec_fifth(q, DEC_LOAD(uint32_t, b + 4), 8 * c);
    dec_shifted(q, dec_one_f16(dm), dec_one_f16(dm >> 16), y);
}

DEC void dec_q8_0(const uint8_t *b, unsigned c, float y[8])
{
    uint32_t q[2];
    float d = dec_half(b);
    dec_words2(b + 2 + c * 8, q);
    for (int i = 0; i < 8; i++)
        y[i] = DEC_MUL(d, (float)(int8_t)(uint8_t)dec_byte(q, i));
}

DEC void dec_iq4_nl(const uint8_t *b, unsigned c, float y[8])
{
    uint32_t q[2];
    dec_words2(b + 2 + c % 2 * 8, q);
    dec_field(q, c / 2 * 4, 15);
    dec_stepped(q, dec_half(b), y);
}

/* ---- blocks of 256: chunk c is elements 8 c .. of 128 half + 32 k + l ---- */

DEC void dec_q2_k(const uint8_t *b, unsigned c, float y[8])
{
    unsigned half = c / 16, k = c / 4 % 4, l = c % 4 * 8, sm = b[c / 2];
    uint32_t q[2], dm = DEC_LOAD(uint32_t, b + 80);
    dec_words4(b + 16 + 32 * half + l, q);
    dec_field(q, 2 * k, 3);
    float scale = DEC_MUL(dec_one_f16(dm), (float)(sm & 15));
    float min = DEC_MUL(dec_one_f16(dm >> 16), (float)(sm >> 4));
    dec_less(q, scale, min, y);
}

DEC void dec_q3_k(const uint8_t *b, unsigned c, float y[8])
{
    unsigned half = c / 16, k = c / 4 % 4, l = c % 4 * 8, g = c / 2;
    uint32_t q[2], m[2];
    dec_words2(b + 32 + 32 * half + l, q);
    dec_field(q, 2 * k, 3);
    dec_words2(b + l, m);
    dec_field(m, 4 * half + k, 1);
    int low = b[96 + g % 8] >> g / 8 * 4 & 15, high = b[104 + g % 4] >> g / 4 * 2 & 3;
    float scale = DEC_MUL(dec_half(b + 108), (float)((low | high << 4) - 32));
    q[0] |= m[0] << 2; /* the bit is 4, and all less 4 */
    q[1] |= m[1] << 2;
    dec_scaled(q, scale, 4, y);
}

/* Scale and minimum of sub-block j, as quant_impl.h has them, multiplied. */
DEC void dec_pair(const uint8_t *b, unsigned j, float *scale, float *min)
{
    const uint8_t *s = b + 4;
    uint32_t dm = DEC_LOAD(uint32_t, b);
    unsigned sc, mn;
    if (j < 4) {
        sc = s[j] & 63u;
        mn = s[j + 4] & 63u;
    } else {
        sc = (s[j + 4] & 15u) | (unsigned)s[j - 4] >> 6 << 4;
        mn = (unsigned)s[j + 4] >> 4 | (unsigned)s[j] >> 6 << 4;
    }
    *scale = DEC_MUL(dec_one_f16(dm), (float)sc);
    *min = DEC_MUL(dec_one_f16(dm >> 16), (float)mn);
}

DEC void dec_q4_k(const uint8_t *b, unsigned c, float y[8])
{
    unsigned j = c / 4, l = c % 4 * 8;
    uint32_t q[2];
    float scale, min;
    dec_words4(b + 16 + j / 2 * 32 + l, q);
    dec_field(q, j % 2 * 4, 15);
    dec_pair(b, j, &scale, &min);
    dec_less(q, scale, min, y);
}

DEC void dec_q5_k(const uint8_t *b, unsigned c, float y[8])
{
    unsigned j = c / 4, l = c % 4 * 8;
    uint32_t q[2], h[2];
    float scale, min;
    dec_words4(b + 48 + j / 2 * 32 + l, q);
    dec_field(q, j % 2 * 4, 15);
    dec_words4(b + 16 + l, h);
    dec_field(h, j, 1);
    dec_pair(b, j, &scale, &min);
    q[0] |= h[0] << 4;
    q[1] |= h[1] << 4;
    dec_less(q, scale, min, y);
}

DEC void dec_q6_k(const uint8_t *b, unsigned c, float y[8])
{
    unsigned half = c / 16, k = c / 4 % 4, l = c % 4 * 8;
    uint32_t q[2], h[2];
    dec_words2(b + 64 * half + 32 * (k % 2) + l, q);
    dec_field(q, k / 2 * 4, 15);
    dec_words2(b + 128 + 32 * half + l, h);
    dec_field(h, 2 * k, 3);
    q[0] |= h[0] << 4;
    q[1] |= h[1] << 4;
    dec_scaled(q, DEC_MUL(dec_half(b + 208), (float)(int8_t)b[192 + c / 2]), 32, y);
}

DEC void dec_iq4_xs(const uint8_t *b, unsigned c, float y[8])
{
    unsigned j = c / 4, part = c % 4;
    uint32_t q[2], dh = DEC_LOAD(uint32_t, b);
    dec_words4(b + 8 + 16 * j + part % 2 * 8, q);
    dec_field(q, part / 2 * 4, 15);
    int sc = (b[4 + j / 2] >> j % 2 * 4 & 15) | (int)(dh >> (16 + 2 * j) & 3) << 4;
    dec_stepped(q, DEC_MUL(dec_one_f16(dh), (float)(sc - 32)), y);
}

/* ---- wide numbers: rounded to odd, so that rounding once more gives what rounding once would
 * (tensor/wide.c) ---- */

/* The number sign * (m / 2^63) * 2^e with m's highest bit set: 24 bits of it, the last one set if
 * any other was. pre: a normal F32. */
DEC uint32_t dec_odd(uint32_t sign, uint64_t m, int e)
{
    uint32_t top = (uint32_t)(m >> 40), rest = (m & ((UINT64_C(1) << 40) - 1)) != 0;
    return sign | ((uint32_t)(e + 127) << 23 | (top & 0x7fffffu) | rest);
}

/* An integer's magnitude. Up to 2^64: normal in F32. */
DEC float dec_odd_int(uint64_t abs, int negative)
{
    if (!abs)
        return 0;
    int e = 63;
    for (int step = 32; step; step /= 2)
        if (!(abs >> (64 - step))) {
            abs <<= step;
            e -= step;
        }
    return DEC_FLOAT(dec_odd(negative ? 0x80000000u : 0, abs, e));
}

/* The F64 whose bits these are. */
DEC float dec_odd_f64(uint64_t u)
{
    uint32_t sign = (uint32_t)(u >> 32) & 0x80000000u;
    uint64_t m = u & ((UINT64_C(1) << 52) - 1);
    int e = (int)(u >> 52 & 0x7ff) - 1023;
    if (e == 1024) /* infinity; NaN quiet, with the upper bits of its payload */
        return DEC_FLOAT(sign | 0x7f800000u | (m ? 0x400000u | (uint32_t)(m >> 29) : 0));
    if (e > 127) /* the largest finite number, which is odd, and rounds to infinity below F32 */
        return DEC_FLOAT(sign | 0x7f7fffffu);
    m = m << 11 | UINT64_C(1) << 63;
    if (e >= -126)
        return DEC_FLOAT(dec_odd(sign, m, e));
    int cut = -126 - e; /* a subnormal F32: so many bits fewer */
    if (cut > 23)
        return DEC_FLOAT(sign | ((u & ~(UINT64_C(1) << 63)) != 0));
    uint32_t top = (uint32_t)(m >> (40 + cut));
    uint32_t rest = (m & ((UINT64_C(1) << (40 + cut)) - 1)) != 0;
    return DEC_FLOAT(sign | top | rest);
}
