/* winograd_2x2: the transforms of F(2x2, 3x3); winograd.h has its matrices. */
#include "op/cpu/winograd.h"

#define WINO_KIND wino_2x2
#define SIDE 2
#define ROWS_FIRST false

INLINE_BODY void filter_line(const lanes *g, size_t from, lanes *u, size_t to)
{
    EACH(i)
    {
        float g0 = g[0][i], g2 = g[2 * from][i];
        float s = (g0 + g2) * 0.5f, h = g[from][i] * 0.5f;
        u[0][i] = g0;
        u[to][i] = s + h;
        u[2 * to][i] = s - h;
        u[3 * to][i] = g2;
    }
}

INLINE_BODY void tile_line(lanes *d, size_t step)
{
    EACH(i)
    {
        float d0 = d[0][i], d1 = d[step][i], d2 = d[2 * step][i], d3 = d[3 * step][i];
        d[0][i] = d0 - d2;
        d[step][i] = d1 + d2;
        d[2 * step][i] = d2 - d1;
        d[3 * step][i] = d1 - d3;
    }
}

INLINE_BODY void pixel_line(const lanes *m, size_t from, lanes *y, size_t to)
{
    EACH(i)
    {
        float m1 = m[from][i], m2 = m[2 * from][i];
        y[0][i] = m[0][i] + m1 + m2;
        y[to][i] = m1 - m2 - m[3 * from][i];
    }
}

#if CPU_X86
TARGET_AVX512 INLINE_BODY void filter_line16(const __m512 *g, size_t from, __m512 u[4])
{
    const __m512 half = _mm512_set1_ps(0.5f);
    __m512 s = (g[0] + g[2 * from]) * half, h = g[from] * half;
    u[0] = g[0];
    u[1] = s + h;
    u[2] = s - h;
    u[3] = g[2 * from];
}

TARGET_AVX512 INLINE_BODY void tile_line16(const __m512 *d, size_t from, __m512 v[4])
{
    v[0] = d[0] - d[2 * from];
    v[1] = d[from] + d[2 * from];
    v[2] = d[2 * from] - d[from];
    v[3] = d[from] - d[3 * from];
}

TARGET_AVX512 INLINE_BODY void pixel_line16(const __m512 m[4], __m512 y[2])
{
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
}

TARGET_AVX512 INLINE_BODY __m512 every(const __m512 v[2], int first)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i at = _mm512_add_epi32(even, _mm512_set1_epi32(first));
    return _mm512_permutex2var_ps(v[0], at, v[1]);
}

TARGET_AVX512 INLINE_BODY void weave(__m512 y[2])
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    __m512 first = _mm512_permutex2var_ps(y[0], low, y[1]);
    y[1] = _mm512_permutex2var_ps(y[0], _mm512_add_epi32(low, _mm512_set1_epi32(8)), y[1]);
    y[0] = first;
}
#endif

#include "op/cpu/winograd_kernel.inc"
