/* fp8_round: floats to fp8, rounded up or down by chance.
 *
 * The reference (ComfyUI on a CPU) computes in F16. All of its products and quotients are by powers
 * of two and exact; what rounds is x itself, the logarithm, and the sum of mantissa and chance.
 * Here the first and the last are exact in F32 and are then rounded to F16 by the conversions of
 * tensor/. The logarithm is replaced by what its rounding does: close below a power of two it
 * rounds up to the whole number, and floor() then gives an exponent that is one too large. */
#include "op/op.h"

#define STEP 512 /* values at a time: the buffers stay in the first-level cache */

struct fp8 {
    int mantissa, bias, top; /* bits, bias, largest exponent */
    float most;              /* largest finite value */
};

static struct fp8 fp8_of(enum dtype to)
{
    if (to == DT_F8_E4M3)
        return (struct fp8) { .mantissa = 3, .bias = 7, .top = 15, .most = 448 };
    if (to == DT_F8_E5M2)
        return (struct fp8) { .mantissa = 2, .bias = 15, .top = 31, .most = 57344 };
    BUG("%s is no type to round to by chance", dtype_name(to));
}

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float pow2(int e)
{
    return float_of((uint32_t)(127 + e) << 23);
}

/* floor(log2 a) as the reference has it, of an F16 value with these F32 bits (0 for 0). n: how far
 * k is from the numbers around 1, whose logarithms have the finest steps. */
static inline int exponent(uint32_t abs)
{
    int k = (int)(abs >> 23) - 127, n = k ^ k >> 31;
    int near = n >= 8 ? 5 : n >= 4 ? 2 : n >= 2;
    return k + ((int)(abs >> 13 & 0x3ff) + near > 1023);
}

static inline int clamp(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* x: rounded to F16 already. Leaves exponents in e, mantissas in units of the last place in q. */
INLINE_BODY void split(const struct fp8 *f, const float *restrict x,
                       const uint32_t *restrict chance, int *restrict e, float *restrict q,
                       size_t n)
{
    const float sub = pow2(f->bias - 1 + f->mantissa), last = pow2(f->mantissa);
    for (size_t i = 0; i < n; i++) {
        uint32_t abs = bits_of(x[i]) & 0x7fffffff;
        float a = float_of(abs);
        e[i] = clamp(exponent(abs) + f->bias, 0, f->top);
        float normal = (a * pow2(f->bias - e[i]) - 1) * last;
        q[i] = (e[i] ? normal : a * sub) + (float)(chance[i] & 0xff) * 0x1p-8f;
    }
}

/* q: rounded to F16 too. A value as it will be stored. */
INLINE_BODY void join(const struct fp8 *f, const float *restrict x, const int *restrict e,
                      const float *restrict q, float *restrict out, size_t n)
{
    const float sub = pow2(1 - f->bias - f->mantissa), last = pow2(-f->mantissa);
    for (size_t i = 0; i < n; i++) {
        uint32_t u = bits_of(x[i]), abs = u & 0x7fffffff;
        float a = float_of(abs);
        float cut = (float)((int)(a < f->most ? q[i] + 1 : 1) - 1); /* floor: q >= -1 */
        float v = e[i] ? pow2(e[i] - f->bias) * (1 + cut * last) : sub * cut;
        v = a < f->most ? (v < f->most ? v : f->most) : a > f->most ? f->most : a; /* NaN: a */
        out[i] = abs && u >> 31 ? -v : v;
    }
}

INLINE_BODY void round_step(const struct fp8 *f, enum dtype to, const float *x,
                            const uint32_t *chance, uint8_t *dst, size_t n)
{
    const struct dtype_desc *h = dtype_desc(DT_F16);
    uint16_t half[STEP];
    float x16[STEP], q[STEP];
    int e[STEP];
    h->from_f32(x, half, n);
    h->to_f32(half, x16, n);
    split(f, x16, chance, e, q, n);
    h->from_f32(q, half, n);
    h->to_f32(half, q, n);
    float v[STEP];
    join(f, x16, e, q, v, n);
    dtype_desc(to)->from_f32(v, dst, n);
}

static void round_plain(const struct fp8 *f, enum dtype to, const float *x, const uint32_t *chance,
                        uint8_t *dst, size_t n)
{
    round_step(f, to, x, chance, dst, n);
}

#if CPU_X86
TARGET_AVX2 static void round_avx2(const struct fp8 *f, enum dtype to, const float *x,
                                   const uint32_t *chance, uint8_t *dst, size_t n)
{
    round_step(f, to, x, chance, dst, n);
}

TARGET_AVX512 static void round_avx512(const struct fp8 *f, enum dtype to, const float *x,
                                       const uint32_t *chance, uint8_t *dst, size_t n)
{
    round_step(f, to, x, chance, dst, n);
}
#endif

typedef void round_fn(const struct fp8 *f, enum dtype to, const float *x, const uint32_t *chance,
                      uint8_t *dst, size_t n);
static round_fn *const levels[CPU_LEVELS] = LEVELS_OF(round);

void op_fp8_round_at(enum cpu_level level, enum dtype to, const float *x, const uint32_t *chance,
                     void *dst, size_t n)
{
    const struct fp8 f = fp8_of(to);
    for (size_t i = 0; i < n; i += STEP)
        levels[level](&f, to, x + i, chance + i, (uint8_t *)dst + i, n - i < STEP ? n - i : STEP);
}

void op_fp8_round(enum dtype to, const float *x, const uint32_t *chance, void *dst, size_t n)
{
    op_fp8_round_at(cpu_level(), to, x, chance, dst, n);
}
