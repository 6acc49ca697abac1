/* rng.c: torch's CPU generator: uniform numbers, and normal ones in blocks of 16 as its AVX2 kernel
 * makes them (sampling.md 1.1).
 *
 * That kernel takes its logarithm, sine and cosine from the Cephes polynomials with fused
 * multiply-adds, which libm's are not: one value in six would differ in its last bits, and a long
 * ancestral run would drift. So they stand in rng_impl.h, with fmaf() wherever the original fuses.
 * Processors without the instruction get the same bits from libm's slow fmaf(). */
#include "sample/rng_impl.h"

#include "base/attr.h"
#include "sample/rng.h"
#include "tensor/cpu.h"

#include <math.h>
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
