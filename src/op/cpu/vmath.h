/* vmath: the exponential and its relatives, one float at a time and without branches, so that a
 * loop around them becomes vectors at every level. Kernels that hold vectors themselves use the
 * same constants.
 *
 * fused   a constant of the caller: the level has fused multiply-add. Levels differ in the last
 *         bit. */
#pragma once

#include "op/cpu/cpu_impl.h"

/* 2^r = 1 + r (C1 + r (C2 + ...)) on [-1/2, 1/2], 2e-9 off before rounding. */
#define EXP2_C1 0.6931471824645996f
#define EXP2_C2 0.24022647738456726f
#define EXP2_C3 0.055503323674201965f
#define EXP2_C4 0.00961843691766262f
#define EXP2_C5 0.0013398873852565885f
#define EXP2_C6 0.00015353361959569156f
#define EXP2_LEAST (-125.0f) /* 2^x counts as 0 below */

/* In front of a loop whose result may be its own input, element by element, but overlaps it in no
 * other way: without it compilers do such a loop one by one. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* slower under a sanitizer is no error */
#define VM_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define VM_LOOP _Pragma("GCC ivdep")
#endif

INLINE_BODY float vm_fma(const bool fused, float a, float b, float c)
{
    return fused ? __builtin_fmaf(a, b, c) : a * b + c;
}

INLINE_BODY uint32_t vm_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

INLINE_BODY float vm_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* yes where c, else no. As a mask: compilers make branches of ?: and then find no vectors. */
INLINE_BODY float vm_pick(bool c, float yes, float no)
{
    uint32_t m = 0u - (uint32_t)c;
    return vm_float((vm_bits(yes) & m) | (vm_bits(no) & ~m));
}

/* x within [low, high]; NaN stays. */
INLINE_BODY float vm_clamp(float x, float low, float high)
{
    x = vm_pick(x < low, low, x);
    return vm_pick(x > high, high, x);
}

/* 2^x, 1 ulp: 0 below -125 (no denormals), infinite from 128, NaN stays. */
INLINE_BODY float vm_exp2(const bool fused, float x)
{
    /* Adding 1.5 * 2^23 rounds to an integer, which then is in the low bits. */
    float cut = vm_clamp(x, EXP2_LEAST - 1, 128); /* 2^128 overflows below */
    float big = cut + 12582912.0f, n = big - 12582912.0f, r = cut - n;
    float p = vm_fma(fused, EXP2_C6, r, EXP2_C5);
    p = vm_fma(fused, p, r, EXP2_C4);
    p = vm_fma(fused, p, r, EXP2_C3);
    p = vm_fma(fused, p, r, EXP2_C2);
    p = vm_fma(fused, p, r, EXP2_C1);
    p = vm_fma(fused, p, r, 1);
    /* n + 126 below 255 in every case; the missing 2 doubles, which can overflow as it should. */
    uint32_t e = vm_bits(big) - vm_bits(12582912.0f) + 126;
    float y = p * vm_float(e << 23) * 2;
    return vm_pick(x < EXP2_LEAST, 0, y);
}

/* e^x for |x| up to 87, beyond which it stays what it is there (upwards: infinite from 88.7 on). 1
 * ulp; NaN stays. */
INLINE_BODY float vm_exp(const bool fused, float x)
{
    x = vm_clamp(x, -87, 89);
    float big = vm_fma(fused, x, 1.44269504f, 12582912.0f), n = big - 12582912.0f;
    float r =
        vm_fma(fused, n, -0.693359375f, x); /* ln 2 in two parts; n times the first is exact */
    r = vm_fma(fused, n, 2.12194440e-4f, r);
    float p = vm_fma(fused, 0.001395052415318787f, r, 0.008368908427655697f);
    p = vm_fma(fused, p, r, 0.04166620597243309f);
    p = vm_fma(fused, p, r, 0.166665181517601f);
    p = vm_fma(fused, p, r, 0.5f);
    p = vm_fma(fused, p * r, r, r);
    uint32_t e = vm_bits(big) - vm_bits(12582912.0f) + 126; /* one less, see vm_exp2() */
    float scale = vm_float(e << 23);
    return (p * scale + scale) * 2;
}

INLINE_BODY float vm_sigmoid(const bool fused, float x)
{
    return 1 / (1 + vm_exp(fused, -x));
}

INLINE_BODY float vm_silu(const bool fused, float x)
{
    return x / (1 + vm_exp(fused, -x));
}

/* x * (1 + erf(x / sqrt 2)) / 2. erfc(u) = e^(-u^2) t Q(t) with t = 1 / (1 + 0.4 u), u >= 0, 6e-8
 * off: so that nothing cancels where erf is near -1. */
INLINE_BODY float vm_gelu(const bool fused, float x)
{
    float u = vm_float(vm_bits(x) & 0x7fffffff) * 0.707106781f;
    float t = 1 / vm_fma(fused, u, 0.4f, 1);
    float q = vm_fma(fused, 0.04125230386853218f, t, -0.1403157263994217f);
    q = vm_fma(fused, q, t, 0.08398017287254333f);
    q = vm_fma(fused, q, t, 0.08797234296798706f);
    q = vm_fma(fused, q, t, 0.07975105196237564f);
    q = vm_fma(fused, q, t, 0.1933954954147339f);
    q = vm_fma(fused, q, t, 0.20188701152801514f);
    q = vm_fma(fused, q, t, 0.22644318640232086f);
    q = vm_fma(fused, q, t, 0.22563423216342926f);
    float half = vm_exp(fused, -(u * u)) * (q * t) * 0.5f; /* erfc(u) / 2 */
    return x * vm_pick(x < 0, half, 1 - half);
}

/* (1 + tanh u) / 2 is the sigmoid of 2 u. */
INLINE_BODY float vm_gelu_tanh(const bool fused, float x)
{
    float u = 1.59576912f * x * vm_fma(fused, 0.044715f * x, x, 1);
    return x / (1 + vm_exp(fused, -u));
}

/* A polynomial where 1 - 2 / (e^2x + 1) would cancel. */
INLINE_BODY float vm_tanh(const bool fused, float x)
{
    float z = x * x, a = vm_float(vm_bits(x) & 0x7fffffff);
    float p = vm_fma(fused, -0.005679302848875523f, z, 0.020618122071027756f);
    p = vm_fma(fused, p, z, -0.05373400077223778f);
    p = vm_fma(fused, p, z, 0.1333138346672058f);
    p = vm_fma(fused, p, z, -0.3333328068256378f);
    p = vm_fma(fused, p * z, x, x);
    float far = 1 - 2 / (vm_exp(fused, 2 * a) + 1);
    far = vm_float(vm_bits(far) | (vm_bits(x) & 0x80000000));
    return vm_pick(a < 0.625f, p, far);
}

/* CLONES(f, (parameters), arguments): f_body() for every level, its first argument being fused, and
 * f_levels[] to index with one. */
#if CPU_X86
#define CLONES_X86(f, params, ...)                                                                 \
    TARGET_FMA static void f##_avx2 params                                                         \
    {                                                                                              \
        f##_body(true, __VA_ARGS__);                                                               \
    }                                                                                              \
    TARGET_AVX512 static void f##_avx512 params                                                    \
    {                                                                                              \
        f##_body(true, __VA_ARGS__);                                                               \
    }
#else
#define CLONES_X86(f, params, ...)
#endif
#define CLONES(f, params, ...)                                                                     \
    static void f##_plain params                                                                   \
    {                                                                                              \
        f##_body(false, __VA_ARGS__);                                                              \
    }                                                                                              \
    CLONES_X86(f, params, __VA_ARGS__)                                                             \
    static void(*const f##_levels[CPU_LEVELS]) params = LEVELS_OF(f);
