/* winograd_turn4: the three transforms of F(4x4, 3x3), as winograd_turn.c has those of F(2x2, 3x3).
 *
 * With a = 1/sqrt(2), b = sqrt(2) the points 0, a, -a, b, -b and infinity give, in one dimension,
 *   B'd  d0 - 5/2 d2 + d4         Gg  g0                       A'm  m0 + (m1 + m2) + (m3 + m4)
 *        (d4 - 2 d2) +- a (d3 - 2 d1)   -2/3 (g0 +- a g1 + 1/2 g2)    a (m1 - m2) + b (m3 - m4)
 *        (d4 - 1/2 d2) +- b (d3 - 1/2 d1)   1/6 (g0 +- b g1 + 2 g2)   1/2 (m1 + m2) + 2 (m3 + m4)
 *        d1 - 5/2 d3 + d5              g2                     a/2 (m1 - m2) + 2b (m3 - m4) + m5 */
#include "op/cpu/winograd_impl.h"

#include <string.h>

#define POINTS 36
#define SQRT2 1.41421356237309504880f
#define SQRT1_2 0.70710678118654752440f
#define SIXTH (1.0f / 6)
#define THIRD2 (2.0f / 3)

/* ---- plain C ---- */

/* Six values out of three, 16 times over; `from` and `to`: from one value to the next, in lanes. */
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

INLINE_BODY void filters_body(const struct wino_filters *f)
{
    lanes g[9], t[18], u[POINTS];
    for (size_t k = 0; k < f->n; k++) {
        memcpy(g, f->g + k * 9 * WINO_LANES, sizeof g);
        for (size_t c = 0; c < 3; c++)
            filter_line(g + c, 3, t + c, 3);
        for (size_t r = 0; r < 6; r++)
            filter_line(t + r * 3, 1, u + r * 6, 1);
        for (size_t p = 0; p < POINTS; p++)
            for (size_t i = 0; i < f->rows; i++)
                f->u[p * f->step + k * f->rows + i] = u[p][i];
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

INLINE_BODY void tiles_body(const struct wino_tiles *t)
{
    lanes d[POINTS];
    for (size_t k = 0; k < t->channels; k++) {
        const float *x = t->x + k * t->h * t->w;
        memset(d, 0, sizeof d);
        for (size_t r = 0; r < 6; r++) {
            ptrdiff_t y = t->top + (ptrdiff_t)r;
            if (y < 0 || (size_t)y >= t->h)
                continue;
            for (size_t c = 0; c < 4 * t->n + 2; c++) { /* tiles overlap by two columns */
                ptrdiff_t at = t->left + (ptrdiff_t)c;
                float v = at < 0 || (size_t)at >= t->w ? 0 : x[(size_t)y * t->w + (size_t)at];
                if (c / 4 < t->n)
                    d[r * 6 + c % 4][c / 4] = v;
                if (c >= 4 && c % 4 < 2)
                    d[r * 6 + 4 + c % 4][c / 4 - 1] = v;
            }
        }
        for (size_t c = 0; c < 6; c++)
            tile_line(d + c, 6);
        for (size_t r = 0; r < 6; r++)
            tile_line(d + r * 6, 1);
        for (size_t p = 0; p < POINTS; p++)
            memcpy(t->v + p * t->step + k * t->ld, d[p], t->n * sizeof(float));
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

INLINE_BODY void pixels_body(const struct wino_pixels *t)
{
    lanes m[POINTS] = { { 0 } }, s[24], y[16];
    for (size_t p = 0; p < POINTS; p++)
        memcpy(m[p], t->m + p * t->step, t->n * sizeof(float));
    for (size_t c = 0; c < 6; c++)
        pixel_line(m + c, 6, s + c, 6);
    for (size_t r = 0; r < 4; r++)
        pixel_line(s + r * 6, 1, y + r * 4, 1);
    put_tiles(t, y, 4);
}

static void filters_plain(const struct wino_filters *t)
{
    filters_body(t);
}

static void tiles_plain(const struct wino_tiles *t)
{
    tiles_body(t);
}

static void pixels_plain(const struct wino_pixels *t)
{
    pixels_body(t);
}

#if CPU_X86
TARGET_FMA static void filters_avx2(const struct wino_filters *t)
{
    filters_body(t);
}

TARGET_FMA static void tiles_avx2(const struct wino_tiles *t)
{
    tiles_body(t);
}

TARGET_FMA static void pixels_avx2(const struct wino_pixels *t)
{
    pixels_body(t);
}

/* ---- AVX-512 ---- */

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

TARGET_AVX512 static void filters_avx512(const struct wino_filters *t)
{
    const __mmask16 rows = (__mmask16)((1u << t->rows) - 1);
    const float *from = t->g;
    for (size_t k = 0; k < t->n; k++, from += 9 * WINO_LANES) {
        __m512 g[9], a[3][6];
        for (size_t i = 0; i < 9; i++)
            g[i] = _mm512_loadu_ps(from + i * WINO_LANES);
        for (size_t c = 0; c < 3; c++)
            filter_line16(g + c, 3, a[c]);
        float *to = t->u + k * t->rows;
        for (size_t r = 0; r < 6; r++) {
            __m512 line[3] = { a[0][r], a[1][r], a[2][r] }, u[6];
            filter_line16(line, 1, u);
            for (size_t c = 0; c < 6; c++, to += t->step)
                _mm512_mask_storeu_ps(to, rows, u[c]);
        }
    }
}

TARGET_AVX512 INLINE_BODY void tile_line16(__m512 d[6])
{
    const __m512 half = _mm512_set1_ps(0.5f), two = _mm512_set1_ps(2), most = _mm512_set1_ps(2.5f);
    __m512 e = _mm512_fnmadd_ps(d[2], two, d[4]), f = _mm512_fnmadd_ps(d[2], half, d[4]);
    __m512 o = _mm512_mul_ps(_mm512_fnmadd_ps(d[1], two, d[3]), _mm512_set1_ps(SQRT1_2));
    __m512 p = _mm512_mul_ps(_mm512_fnmadd_ps(d[1], half, d[3]), _mm512_set1_ps(SQRT2));
    d[0] = _mm512_fnmadd_ps(d[2], most, _mm512_add_ps(d[0], d[4]));
    d[5] = _mm512_fnmadd_ps(d[3], most, _mm512_add_ps(d[1], d[5]));
    d[1] = _mm512_add_ps(e, o);
    d[2] = _mm512_sub_ps(e, o);
    d[3] = _mm512_add_ps(f, p);
    d[4] = _mm512_sub_ps(f, p);
}

/* Of 64 neighbouring values every fourth, from `first` on. */
TARGET_AVX512 INLINE_BODY __m512 fourth(const __m512 v[4], int first)
{
    const __m512i step =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i at = _mm512_add_epi32(step, _mm512_set1_epi32(first));
    __m512 low = _mm512_permutex2var_ps(v[0], at, v[1]);
    return _mm512_shuffle_f32x4(low, _mm512_permutex2var_ps(v[2], at, v[3]), 0x44);
}

TARGET_AVX512 static void tiles_avx512(const struct wino_tiles *t)
{
    const __mmask16 live = (__mmask16)((1u << t->n) - 1);
    __mmask16 in[4], next[4];
    for (int i = 0; i < 4; i++) {
        in[i] = inside(t->left + 16 * i, t->w);
        next[i] = inside(t->left + 16 * i + 4, t->w);
    }
    for (size_t k = 0; k < t->channels; k++) {
        __m512 d[6][6];
        for (size_t r = 0; r < 6; r++) {
            ptrdiff_t y = t->top + (ptrdiff_t)r;
            bool none = y < 0 || (size_t)y >= t->h;
            const float *x = t->x + k * t->h * t->w + (none ? 0 : (size_t)y * t->w);
            __m512 v[4], w[4];
            for (int i = 0; i < 4; i++) {
                v[i] = load16(x, t->left + 16 * i, none ? 0 : in[i]);
                w[i] = load16(x, t->left + 16 * i + 4, none ? 0 : next[i]);
            }
            for (int c = 0; c < 4; c++)
                d[r][c] = fourth(v, c);
            d[r][4] = fourth(w, 0);
            d[r][5] = fourth(w, 1);
            tile_line16(d[r]);
        }
        for (size_t c = 0; c < 6; c++) {
            __m512 e[6];
            for (size_t r = 0; r < 6; r++)
                e[r] = d[r][c];
            tile_line16(e);
            for (size_t r = 0; r < 6; r++)
                _mm512_mask_storeu_ps(t->v + (r * 6 + c) * t->step + k * t->ld, live, e[r]);
        }
    }
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

/* Lane i of the four becomes values 4 i .. 4 i + 3 of 64. */
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

TARGET_AVX512 static void pixels_avx512(const struct wino_pixels *t)
{
    const __mmask16 live = (__mmask16)((1u << t->n) - 1);
    __m512 s[4][6];
    for (size_t c = 0; c < 6; c++) {
        __m512 m[6], y[4];
        for (size_t r = 0; r < 6; r++)
            m[r] = _mm512_maskz_loadu_ps(live, t->m + (r * 6 + c) * t->step);
        pixel_line16(m, y);
        for (size_t r = 0; r < 4; r++)
            s[r][c] = y[r];
    }
    for (size_t r = 0; r < 4 && t->top + r < t->h; r++) {
        __m512 y[4];
        pixel_line16(s[r], y);
        weave(y);
        put_row(t, y, 4, r);
    }
}
#endif

const struct wino_kind *wino_4x4(enum cpu_level l)
{
    static const struct wino_kind levels[CPU_LEVELS] = {
        [CPU_PLAIN] = { 4, POINTS, filters_plain, tiles_plain, pixels_plain },
#if CPU_X86
        [CPU_AVX2] = { 4, POINTS, filters_avx2, tiles_avx2, pixels_avx2 },
        [CPU_AVX512] = { 4, POINTS, filters_avx512, tiles_avx512, pixels_avx512 },
#endif
    };
    return &levels[l];
}
