/* winograd_4x4: the transforms of F(4x4, 3x3).
 *
 * With a = 1/sqrt(2), b = sqrt(2) the points 0, a, -a, b, -b and infinity give, in one dimension,
 *   B'd  d0 - 5/2 d2 + d4         Gg  g0                       A'm  m0 + (m1 + m2) + (m3 + m4)
 *        (d4 - 2 d2) +- a (d3 - 2 d1)   -2/3 (g0 +- a g1 + 1/2 g2)    a (m1 - m2) + b (m3 - m4)
 *        (d4 - 1/2 d2) +- b (d3 - 1/2 d1)   1/6 (g0 +- b g1 + 2 g2)   1/2 (m1 + m2) + 2 (m3 + m4)
 *        d1 - 5/2 d3 + d5              g2                     a/2 (m1 - m2) + 2b (m3 - m4) + m5 */
#include "op/cpu/winograd.h"

#define WINO_KIND wino_4x4
#define SIDE 4
#define ROWS_FIRST true
#define SQRT2 1.41421356237309504880f
#define SQRT1_2 0.70710678118654752440f
#define SIXTH (1.0f / 6)
#define THIRD2 (2.0f / 3)

INLINE_BODY void filter_line(const lanes *g, size_t from, lanes *u, size_t to)
{
    EACH(i)
    {
        float g0 = g[0][i], g1 = g[from][i], g2 = g[2 * from][i];
        float e = (g0 + g2 * 0.5f) * -THIRD2, o = g1 * (SQRT1_2 * -THIRD2);
        float f = (g0 + g2 * 2) * SIXTH, p = g1 * (SQRT2 * SIXTH);
        u[0][i] = g0;
        u[to][i] = e + o;
        u[2 * to][i] = e - o;
        u[3 * to][i] = f + p;
        u[4 * to][i] = f - p;
        u[5 * to][i] = g2;
    }
}

INLINE_BODY void tile_line(lanes *d, size_t step)
{
    EACH(i)
    {
        float d0 = d[0][i], d1 = d[step][i], d2 = d[2 * step][i], d3 = d[3 * step][i],
              d4 = d[4 * step][i], d5 = d[5 * step][i];
        float e = d4 - d2 * 2, o = (d3 - d1 * 2) * SQRT1_2;
        float f = d4 - d2 * 0.5f, p = (d3 - d1 * 0.5f) * SQRT2;
        d[0][i] = (d0 + d4) - d2 * 2.5f;
        d[step][i] = e + o;
        d[2 * step][i] = e - o;
        d[3 * step][i] = f + p;
        d[4 * step][i] = f - p;
        d[5 * step][i] = (d1 + d5) - d3 * 2.5f;
    }
}

INLINE_BODY void pixel_line(const lanes *m, size_t from, lanes *y, size_t to)
{
    EACH(i)
    {
        float s = m[from][i] + m[2 * from][i], d = m[from][i] - m[2 * from][i];
        float q = m[3 * from][i] + m[4 * from][i], e = m[3 * from][i] - m[4 * from][i];
        d *= SQRT1_2;
        e *= SQRT2;
        y[0][i] = m[0][i] + s + q;
        y[to][i] = d + e;
        y[2 * to][i] = s * 0.5f + q * 2;
        y[3 * to][i] = d * 0.5f + e * 2 + m[5 * from][i];
    }
}

#if CPU_X86
TARGET_AVX512 INLINE_BODY void filter_line16(const __m512 *g, size_t from, __m512 u[6])
{
    const __m512 half = _mm512_set1_ps(0.5f), two = _mm512_set1_ps(2);
    __m512 g0 = g[0], g1 = g[from], g2 = g[2 * from];
    __m512 e = _mm512_mul_ps(_mm512_fmadd_ps(g2, half, g0), _mm512_set1_ps(-THIRD2));
    __m512 o = _mm512_mul_ps(g1, _mm512_set1_ps(SQRT1_2 * -THIRD2));
    __m512 f = _mm512_mul_ps(_mm512_fmadd_ps(g2, two, g0), _mm512_set1_ps(SIXTH));
    __m512 p = _mm512_mul_ps(g1, _mm512_set1_ps(SQRT2 * SIXTH));
    u[0] = g0;
    u[1] = _mm512_add_ps(e, o);
    u[2] = _mm512_sub_ps(e, o);
    u[3] = _mm512_add_ps(f, p);
    u[4] = _mm512_sub_ps(f, p);
    u[5] = g2;
}

TARGET_AVX512 INLINE_BODY void tile_line16(const __m512 *d, size_t from, __m512 v[6])
{
    const __m512 half = _mm512_set1_ps(0.5f), two = _mm512_set1_ps(2), most = _mm512_set1_ps(2.5f);
    __m512 d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
    __m512 e = _mm512_fnmadd_ps(d2, two, d4), f = _mm512_fnmadd_ps(d2, half, d4);
    __m512 o = _mm512_mul_ps(_mm512_fnmadd_ps(d1, two, d3), _mm512_set1_ps(SQRT1_2));
    __m512 p = _mm512_mul_ps(_mm512_fnmadd_ps(d1, half, d3), _mm512_set1_ps(SQRT2));
    v[0] = _mm512_fnmadd_ps(d2, most, _mm512_add_ps(d[0], d4));
    v[1] = _mm512_add_ps(e, o);
    v[2] = _mm512_sub_ps(e, o);
    v[3] = _mm512_add_ps(f, p);
    v[4] = _mm512_sub_ps(f, p);
    v[5] = _mm512_fnmadd_ps(d3, most, _mm512_add_ps(d1, d[5 * from]));
}

TARGET_AVX512 INLINE_BODY void pixel_line16(const __m512 m[6], __m512 y[4])
{
    const __m512 half = _mm512_set1_ps(0.5f), two = _mm512_set1_ps(2);
    __m512 s = _mm512_add_ps(m[1], m[2]), q = _mm512_add_ps(m[3], m[4]);
    __m512 d = _mm512_mul_ps(_mm512_sub_ps(m[1], m[2]), _mm512_set1_ps(SQRT1_2));
    __m512 e = _mm512_mul_ps(_mm512_sub_ps(m[3], m[4]), _mm512_set1_ps(SQRT2));
    y[0] = _mm512_add_ps(_mm512_add_ps(m[0], s), q);
    y[1] = _mm512_add_ps(d, e);
    y[2] = _mm512_fmadd_ps(s, half, _mm512_mul_ps(q, two));
    y[3] = _mm512_add_ps(_mm512_fmadd_ps(d, half, _mm512_mul_ps(e, two)), m[5]);
}

TARGET_AVX512 INLINE_BODY __m512 every(const __m512 v[4], int first)
{
    const __m512i step =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i at = _mm512_add_epi32(step, _mm512_set1_epi32(first));
    __m512 low = _mm512_permutex2var_ps(v[0], at, v[1]);
    return _mm512_shuffle_f32x4(low, _mm512_permutex2var_ps(v[2], at, v[3]), 0x44);
}

TARGET_AVX512 INLINE_BODY void weave(__m512 y[4])
{
    __m512 a = _mm512_unpacklo_ps(y[0], y[1]), b = _mm512_unpackhi_ps(y[0], y[1]);
    __m512 c = _mm512_unpacklo_ps(y[2], y[3]), d = _mm512_unpackhi_ps(y[2], y[3]);
    /* q[i]: tiles i, 4 + i, 8 + i, 12 + i */
    __m512 q0 = _mm512_shuffle_ps(a, c, 0x44), q1 = _mm512_shuffle_ps(a, c, 0xee);
    __m512 q2 = _mm512_shuffle_ps(b, d, 0x44), q3 = _mm512_shuffle_ps(b, d, 0xee);
    __m512 l0 = _mm512_shuffle_f32x4(q0, q1, 0x44), l1 = _mm512_shuffle_f32x4(q2, q3, 0x44);
    __m512 h0 = _mm512_shuffle_f32x4(q0, q1, 0xee), h1 = _mm512_shuffle_f32x4(q2, q3, 0xee);
    y[0] = _mm512_shuffle_f32x4(l0, l1, 0x88);
    y[1] = _mm512_shuffle_f32x4(l0, l1, 0xdd);
    y[2] = _mm512_shuffle_f32x4(h0, h1, 0x88);
    y[3] = _mm512_shuffle_f32x4(h0, h1, 0xdd);
}
#endif

#include "op/cpu/winograd_kernel.inc"
