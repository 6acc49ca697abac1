/* slow: what a small float is, straight from the definition of the format, in long double. Shares
 * nothing with src/tensor: the fast code is held to this.
 *
 * long double has at least 64 mantissa bits here, so every F64, int64 and uint64 is exact. */
#ifndef TEST_TENSOR_SLOW_H
#define TEST_TENSOR_SLOW_H

#include "tensor/dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(LDBL_MANT_DIG >= 64, "the reference needs every uint64 exact");

struct slow_fmt {
    enum dtype dtype;
    int mant, bias;    /* bits, and what the exponent is off by */
    uint32_t max;      /* code of the largest finite value */
    uint32_t sign;     /* sign bit; 0: unsigned */
    uint32_t inf, nan; /* codes; inf 0: overflow saturates, though inf may exist */
    bool ieee;         /* codes above max: infinity, then NaNs with payload */
};

static const struct slow_fmt slow_fmts[] = {
    { DT_F32, 23, 127, 0x7f7fffff, 0x80000000, 0x7f800000, 0x7fc00000, true },
    { DT_F16, 10, 15, 0x7bff, 0x8000, 0x7c00, 0x7e00, true },
    { DT_BF16, 7, 127, 0x7f7f, 0x8000, 0x7f80, 0x7fc0, true },
    { DT_F8_E4M3, 3, 7, 0x7e, 0x80, 0, 0x7f, false },
    { DT_F8_E5M2, 2, 15, 0x7b, 0x80, 0, 0x7e, true },
    { DT_F8_E8M0, 0, 127, 0xfe, 0, 0, 0xff, false },
};

static inline const struct slow_fmt *slow_fmt(enum dtype t)
{
    for (size_t i = 0; i < ARRAY_LEN(slow_fmts); i++)
        if (slow_fmts[i].dtype == t)
            return &slow_fmts[i];
    fail_msg("%s has no row in slow_fmts: add what its definition says", dtype_name(t));
    return NULL;
}

/* Value of a code without sign, as if codes went on behind max. */
static inline long double slow_finite(const struct slow_fmt *f, uint32_t em)
{
    if (f->dtype == DT_F8_E8M0)
        return ldexpl(1, (int)em - 127);
    int e = (int)(em >> f->mant);
    long double m = ldexpl((long double)(em & ((1u << f->mant) - 1)), -f->mant);
    return e ? ldexpl(1 + m, e - f->bias) : ldexpl(m, 1 - f->bias);
}

static inline long double slow_value(const struct slow_fmt *f, uint32_t code)
{
    uint32_t em = code & ~f->sign;
    long double v = em <= f->max                  ? slow_finite(f, em)
                    : f->ieee && em == f->max + 1 ? (long double)INFINITY
                                                  : (long double)NAN;
    return code & f->sign ? -v : v;
}

/* Code of the nearest value; ties to the even code. Not for NaN. */
static inline uint32_t slow_code(const struct slow_fmt *f, long double x)
{
    uint32_t sign = signbit(x) ? f->sign : 0;
    if (!f->sign && x <= 0)
        return 0;
    long double a = fabsl(x);
    uint32_t lo = 0, hi = f->max + 1; /* value(lo) <= a < value(hi), or lo is an end */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (slow_finite(f, mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    long double half = slow_finite(f, lo) / 2 + slow_finite(f, hi) / 2;
    uint32_t code = a > half || (a == half && lo % 2) ? hi : lo;
    if (code > f->max)
        code = f->inf ? f->inf : f->max;
    return code | sign;
}

/* What a NaN with these F32 bits becomes: sign and upper payload kept, quiet. */
static inline uint32_t slow_nan(const struct slow_fmt *f, uint32_t f32)
{
    uint32_t sign = f32 >> 31 ? f->sign : 0;
    uint32_t payload = f->ieee ? (f32 & 0x7fffff) >> (23 - f->mant) : 0;
    return f->nan | payload | sign;
}

static inline float slow_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t slow_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#endif
