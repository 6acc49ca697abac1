/* minifloat: F32 to and from the floats of 16 and 8 bits, one value at a time, in bits.
 *
 * A format with M mantissa bits and bias B stores sign, exponent e, mantissa m: for e > 0 the value
 * (1 + m / 2^M) * 2^(e-B), for e = 0 the subnormal m / 2^M * 2^(1-B). `em` is e and m together, the
 * code without its sign; codes of growing em are growing values, so carrying out of a mantissa
 * while rounding is right by itself.
 *
 * NaN     keeps its sign and the upper bits of its payload, and becomes quiet (top mantissa bit
 *         set), as F16C and AVX-512 do it. BF16 -> F32 only moves bits, so there it stays as it is.
 * Rounds  to nearest, ties to even. F16 and BF16 overflow to infinity; F8 saturates, infinities
 *         too, as the GPU's cvt.rn.satfinite does.
 *
 * No branches and no tables: these bodies are compiled for every cpu level and vectorise. Folder
 * alone. */
#pragma once

#include <stdint.h>
#include <string.h>

#define F32_SIGN 0x80000000u
#define F32_INF 0x7f800000u
#define F32_QUIET 0x00400000u

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* a > b ? yes : no, for a and b below 2^31. The sign of a difference as a mask: compilers turn
 * chains of ?: into branches and then find no vectors. */
static inline uint32_t mf_if_above(uint32_t a, uint32_t b, uint32_t yes, uint32_t no)
{
    uint32_t m = (uint32_t)((int32_t)(b - a) >> 31);
    return (yes & m) | (no & ~m);
}

/* Bits of the finite value `em`, without sign. */
static inline uint32_t mf_widen(uint32_t em, int M, int B)
{
    uint32_t up = em << (23 - M);
    uint32_t normal = up + ((uint32_t)(127 - B) << 23);
    /* A subnormal is m steps of 2^(1-B-M): put m behind a leading one and take the one away. */
    uint32_t one = (uint32_t)(128 - B) << 23;
    uint32_t sub = f32_bits(f32_from_bits(one + up) - f32_from_bits(one));
    return mf_if_above(em >> M, 0, normal, sub);
}

/* Code without sign of the number whose F32 bits are `abs`, or `most` if that is smaller. */
static inline uint32_t mf_narrow(uint32_t abs, int M, int B, uint32_t most)
{
    abs = mf_if_above(abs, most, most, abs);
    int shift = 23 - M;
    uint32_t half = (1u << (shift - 1)) - 1 + (abs >> shift & 1);
    uint32_t normal = (abs + half - ((uint32_t)(127 - B) << 23)) >> shift;
    /* Adding a number whose last place is one subnormal step lets the adder round to steps. */
    uint32_t step = (uint32_t)(127 + 24 - B - M) << 23;
    uint32_t sub = f32_bits(f32_from_bits(abs) + f32_from_bits(step)) - step;
    return mf_if_above(abs >> 23, (uint32_t)(127 - B), normal, sub);
}

static inline uint32_t f16_widen_bits(uint32_t h)
{
    uint32_t em = h & 0x7fff;
    uint32_t special = F32_INF | em << 13 | mf_if_above(em, 0x7c00, F32_QUIET, 0);
    uint32_t abs = mf_if_above(em, 0x7bff, special, mf_widen(em, 10, 15));
    return (h & 0x8000) << 16 | abs;
}

static inline float f16_widen(uint16_t h)
{
    return f32_from_bits(f16_widen_bits(h));
}

static inline uint16_t f16_narrow(float f)
{
    uint32_t u = f32_bits(f), abs = u & ~F32_SIGN;
    uint32_t nan = 0x7e00 | (abs >> 13 & 0x3ff);
    uint32_t em = mf_narrow(abs, 10, 15, 0x47800000); /* 65536 rounds to the code of infinity */
    return (uint16_t)((u >> 16 & 0x8000) | mf_if_above(abs, F32_INF, nan, em));
}

static inline uint32_t bf16_widen_bits(uint32_t h)
{
    return h << 16;
}

static inline uint16_t bf16_narrow(float f)
{
    uint32_t u = f32_bits(f), abs = u & ~F32_SIGN;
    uint32_t nan = u >> 16 | 0x40;
    uint32_t near = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)mf_if_above(abs, F32_INF, nan, near);
}

static inline uint32_t e4m3_widen_bits(uint32_t b)
{
    uint32_t em = b & 0x7f;
    uint32_t abs = mf_if_above(em, 0x7e, F32_INF | F32_QUIET, mf_widen(em, 3, 7));
    return (b & 0x80) << 24 | abs;
}

static inline uint8_t e4m3_narrow(float f)
{
    uint32_t u = f32_bits(f), abs = u & ~F32_SIGN;
    uint32_t em = mf_narrow(abs, 3, 7, 0x43e00000); /* 448 */
    return (uint8_t)((u >> 24 & 0x80) | mf_if_above(abs, F32_INF, 0x7f, em));
}

/* E5M2 is the upper byte of an F16. */
static inline uint32_t e5m2_widen_bits(uint32_t b)
{
    return f16_widen_bits(b << 8);
}

static inline uint8_t e5m2_narrow(float f)
{
    uint32_t u = f32_bits(f), abs = u & ~F32_SIGN;
    uint32_t nan = 0x7e | (abs >> 21 & 3);
    uint32_t em = mf_narrow(abs, 2, 15, 0x47600000); /* 57344 */
    return (uint8_t)((u >> 24 & 0x80) | mf_if_above(abs, F32_INF, nan, em));
}

/* E8M0 is a bare exponent: 2^(b-127), 0xff is NaN; no sign, no zero, no infinity. */
static inline uint32_t e8m0_widen_bits(uint32_t b)
{
    uint32_t abs = b ? b << 23 : F32_QUIET; /* 2^-127 is an F32 subnormal */
    return b == 0xff ? F32_INF | F32_QUIET : abs;
}

static inline uint8_t e8m0_narrow(float f)
{
    uint32_t u = f32_bits(f), abs = u & ~F32_SIGN;
    /* Halfway to the next power is 1.5 times this one: mantissa bits 100... */
    uint32_t near = (u + 0x3fffff + (u >> 23 & 1)) >> 23;
    uint32_t tiny = u > 0x00600000; /* between 2^-127 (code 0) and 2^-126 (code 1) */
    uint32_t e = u < 0x00800000 ? tiny : near;
    e = e > 0xfe ? 0xfe : e;
    e = u & F32_SIGN ? 0 : e; /* below the range: the smallest */
    return (uint8_t)(abs > F32_INF ? 0xff : e);
}
