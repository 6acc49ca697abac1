/* rng.c: torch's CPU generator: uniform numbers, and normal ones in blocks of 16 as its AVX2 kernel
 * makes them (sampling.md 1.1).
 *
 * That kernel takes its logarithm, sine and cosine from the Cephes polynomials with fused
 * multiply-adds, which libm's are not: one value in six would differ in its last bits, and a long
 * ancestral run would drift. So they stand here, with fmaf() wherever the original fuses.
 * Processors without the instruction get the same bits from libm's slow fmaf(). */
#include "sample/rng_impl.h"

#include "base/attr.h"
#include "sample/rng.h"
#include "tensor/cpu.h"

#include <math.h>
#include <string.h>
#if CPU_X86
#include <immintrin.h>
#endif

#define BLOCK 16
#define PAIRS (BLOCK / 2)
#define TAU 6.283185307179586

void torch_seed(struct torch_rng *g, uint64_t seed)
{
    mt19937_init(&g->mt, (uint32_t)seed);
    g->cached = 0;
    g->has_cached = false;
}

void torch_rand(struct torch_rng *g, float *out, size_t n)
{
    uint32_t word[1024];
    while (n) {
        size_t now = n < ARRAY_LEN(word) ? n : ARRAY_LEN(word);
        mt19937_fill(&g->mt, word, now);
        for (size_t i = 0; i < now; i++)
            out[i] = (float)(word[i] & 0xffffffu) * 0x1p-24f;
        out += now;
        n -= now;
    }
}

/* ---- 16 at once ---- */

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

/* ln x, 2^-24 <= x <= 1. Choices are made with bits, so that the loops around have no branches. */
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

/* One block of uniform numbers, in place: 8 for radii and 8 for angles become 8 cosines and 8
 * sines. */
INLINE_BODY void radii(const float *d, float *r) /* squared */
{
    for (size_t j = 0; j < PAIRS; j++)
        r[j] = -2.0f * cephes_log(1.0f - d[j]);
}

INLINE_BODY void turn(float *d, const float *r)
{
    for (size_t j = 0; j < PAIRS; j++) {
        float sin, cos;
        cephes_sincos((float)TAU * d[j + PAIRS], &sin, &cos);
        d[j] = r[j] * cos;
        d[j + PAIRS] = r[j] * sin;
    }
}

void randn_blocks_plain(float *d, size_t count)
{
    float r[PAIRS];
    for (size_t i = 0; i < count; i++, d += BLOCK) {
        radii(d, r);
        for (size_t j = 0; j < PAIRS; j++)
            r[j] = sqrtf(r[j]);
        turn(d, r);
    }
}

#if CPU_X86
__attribute__((target("avx2,fma"))) static void blocks_fma(float *d, size_t count)
{
    float r[PAIRS];
    for (size_t i = 0; i < count; i++, d += BLOCK) {
        radii(d, r);
        /* sqrtf() may set errno, so compilers call it one by one */
        _mm256_storeu_ps(r, _mm256_sqrt_ps(_mm256_loadu_ps(r)));
        turn(d, r);
    }
}
#endif

void randn_blocks(float *d, size_t count)
{
#if CPU_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        blocks_fma(d, count);
        return;
    }
#endif
    randn_blocks_plain(d, count);
}

/* ---- one at a time, in double ---- */

static double uniform_double(struct torch_rng *g)
{
    uint64_t hi = mt19937_u32(&g->mt), lo = mt19937_u32(&g->mt);
    return (double)((hi << 32 | lo) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

static double normal_double(struct torch_rng *g)
{
    if (g->has_cached) {
        g->has_cached = false;
        return g->cached;
    }
    double u1 = uniform_double(g), u2 = uniform_double(g);
    double r = sqrt(-2.0 * log1p(-u2)), theta = TAU * u1;
    g->cached = r * sin(theta);
    g->has_cached = true;
    return r * cos(theta);
}

void torch_randn(struct torch_rng *g, float *out, size_t n)
{
    if (n < BLOCK) {
        for (size_t i = 0; i < n; i++)
            out[i] = (float)normal_double(g);
        return;
    }
    torch_rand(g, out, n);
    randn_blocks(out, n / BLOCK);
    if (n % BLOCK) { /* the last 16 are drawn anew, some of them a second time */
        torch_rand(g, out + n - BLOCK, BLOCK);
        randn_blocks(out + n - BLOCK, 1);
    }
}
