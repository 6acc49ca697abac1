/* philox.c: torch's CUDA generator (sampling.md 1.2).
 *
 * A draw of n numbers is a grid of T threads, as many as there are numbers but no more than the
 * card runs at once. Thread i counts in a stream of its own: words 0 and 1 of its counter are the
 * generator's offset, 2 and 3 its number. Every count gives four words, two pairs for Box and
 * Muller, and so four numbers, which go T apart:
 *
 *         i = 0 .. T-1      first number of thread i, count 0
 *         T .. 2T-1         second
 *         2T .. 4T-1        third, fourth
 *         4T .. 5T-1        first number of thread i, count 1, and so on
 *
 * so that a small draw uses one number of four, and a large one depends on the card. */
#include "sample/rng.h"

#include "sample/rng_impl.h"
#include "tensor/cpu.h"

#define BLOCK 256 /* threads of a block */
#define EACH 4    /* numbers of a count */

void philox_seed(struct philox_rng *g, uint64_t seed, uint32_t threads)
{
    *g = (struct philox_rng) { .seed = seed, .threads = threads ? threads : PHILOX_THREADS };
}

/* Philox4x32-10. */
INLINE_BODY void philox(const uint32_t at[4], uint64_t seed, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = at[0], c1 = at[1], c2 = at[2], c3 = at[3];
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Two words into two normal numbers. The compiler of the original fuses the two sums. */
INLINE_BODY void box_muller(uint32_t x, uint32_t y, float out[2])
{
    const float unit = 2.3283064e-10f, turn = 2.3283064e-10f * 6.2831855f;
    float u = fmaf((float)x, unit, unit / 2), v = fmaf((float)y, turn, turn / 2), sin, cos;
    float s = sqrtf(-2.0f * cephes_log(u));
    cephes_sincos(v, &sin, &cos);
    out[0] = s * sin;
    out[1] = s * cos;
}

/* Numbers of one count of all threads: out has `n` of them, at most EACH * threads. */
INLINE_BODY void count(const struct philox_rng *g, uint64_t at, uint64_t threads, float *out,
                       size_t n)
{
    for (uint64_t i = 0; i < threads && i < n; i++) {
        uint32_t word[4];
        float z[EACH] = { 0 };
        philox((const uint32_t[4]) { (uint32_t)at, (uint32_t)(at >> 32), (uint32_t)i,
                                     (uint32_t)(i >> 32) },
               g->seed, word);
        box_muller(word[0], word[1], z);
        if (2 * threads + i < n)
            box_muller(word[2], word[3], z + 2);
        for (uint64_t k = 0, to = i; k < EACH && to < n; k++, to += threads)
            out[to] = z[k];
    }
}

INLINE_BODY void draw(struct philox_rng *g, float *out, size_t n)
{
    uint64_t blocks = n / BLOCK + (n % BLOCK != 0), most = g->threads / BLOCK;
    uint64_t threads = BLOCK * (blocks < most ? blocks : most), each = EACH * threads;
    for (size_t from = 0; from < n; from += each, g->offset += EACH)
        count(g, g->offset / EACH, threads, out + from, n - from < each ? n - from : (size_t)each);
}

void philox_randn_plain(struct philox_rng *g, float *out, size_t n)
{
    draw(g, out, n);
}

#if CPU_X86
__attribute__((target("avx2,fma"))) static void draw_fma(struct philox_rng *g, float *out, size_t n)
{
    draw(g, out, n);
}
#endif

void philox_randn(struct philox_rng *g, float *out, size_t n)
{
#if CPU_X86
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        draw_fma(g, out, n);
        return;
    }
#endif
    philox_randn_plain(g, out, n);
}
