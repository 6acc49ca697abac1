/* winograd_turn: the three transforms of F(2x2, 3x3), 16 filters or tiles side by side. Plain C
 * works on small arrays and leaves vectors to the compiler; AVX-512 takes columns apart and
 * together in registers. */
#include "op/cpu/winograd_impl.h"

#include <string.h>

#define POINTS 16

/* ---- plain C ---- */

/* G g G' of 16 filters. */
INLINE_BODY void filter16(const float *g, lanes *u)
{
    lanes t[4][3]; /* G g */
    for (size_t c = 0; c < 3; c++)
        EACH(i)
        {
            float g0 = g[c * 16 + i], g1 = g[(3 + c) * 16 + i], g2 = g[(6 + c) * 16 + i];
            float s = (g0 + g2) * 0.5f, h = g1 * 0.5f;
            t[0][c][i] = g0;
            t[1][c][i] = s + h;
            t[2][c][i] = s - h;
            t[3][c][i] = g2;
        }
    for (size_t r = 0; r < 4; r++)
        EACH(i)
        {
            float s = (t[r][0][i] + t[r][2][i]) * 0.5f, h = t[r][1][i] * 0.5f;
            u[r * 4][i] = t[r][0][i];
            u[r * 4 + 1][i] = s + h;
            u[r * 4 + 2][i] = s - h;
            u[r * 4 + 3][i] = t[r][2][i];
        }
}

INLINE_BODY void filters_body(const struct wino_filters *f)
{
    lanes u[POINTS];
    for (size_t k = 0; k < f->n; k++) {
        filter16(f->g + k * 9 * 16, u);
        for (size_t p = 0; p < POINTS; p++)
            for (size_t i = 0; i < f->rows; i++)
                f->u[p * f->step + k * f->rows + i] = u[p][i];
    }
}

/* B' d B of 16 tiles; d[row * 4 + column]. */
INLINE_BODY void tile16(lanes *d)
{
    for (size_t c = 0; c < 4; c++)
        EACH(i)
        {
            float d0 = d[c][i], d1 = d[4 + c][i], d2 = d[8 + c][i], d3 = d[12 + c][i];
            d[c][i] = d0 - d2;
            d[4 + c][i] = d1 + d2;
            d[8 + c][i] = d2 - d1;
            d[12 + c][i] = d1 - d3;
        }
    for (size_t r = 0; r < 4; r++)
        EACH(i)
        {
            lanes *e = d + r * 4;
            float d0 = e[0][i], d1 = e[1][i], d2 = e[2][i], d3 = e[3][i];
            e[0][i] = d0 - d2;
            e[1][i] = d1 + d2;
            e[2][i] = d2 - d1;
            e[3][i] = d1 - d3;
        }
}

INLINE_BODY void tiles_body(const struct wino_tiles *t)
{
    lanes d[POINTS];
    for (size_t k = 0; k < t->channels; k++) {
        const float *x = t->x + k * t->h * t->w;
        memset(d, 0, sizeof d);
        for (size_t r = 0; r < 4; r++) {
            ptrdiff_t y = t->top + (ptrdiff_t)r;
            if (y < 0 || (size_t)y >= t->h)
                continue;
            for (size_t c = 0; c < 2 * t->n + 2; c++) { /* tiles overlap by two columns */
                ptrdiff_t at = t->left + (ptrdiff_t)c;
                float v = at < 0 || (size_t)at >= t->w ? 0 : x[(size_t)y * t->w + (size_t)at];
                if (c / 2 < t->n)
                    d[r * 4 + c % 2][c / 2] = v;
                if (c >= 2)
                    d[r * 4 + 2 + c % 2][c / 2 - 1] = v;
            }
        }
        tile16(d);
        for (size_t p = 0; p < POINTS; p++)
            memcpy(t->v + p * t->step + k * t->ld, d[p], t->n * sizeof(float));
    }
}

/* A' m A of n tiles. */
INLINE_BODY void pixels_body(const struct wino_pixels *t)
{
    lanes y[4] = { { 0 } }; /* row * 2 + column */
    for (size_t i = 0; i < t->n; i++) {
        float s[2][4];
        for (size_t c = 0; c < 4; c++) {
            const float *m = t->m + c * t->step + i;
            float m0 = m[0], m1 = m[4 * t->step], m2 = m[8 * t->step], m3 = m[12 * t->step];
            s[0][c] = m0 + m1 + m2;
            s[1][c] = m1 - m2 - m3;
        }
        for (size_t r = 0; r < 2; r++) {
            y[r * 2][i] = s[r][0] + s[r][1] + s[r][2];
            y[r * 2 + 1][i] = s[r][1] - s[r][2] - s[r][3];
        }
    }
    put_tiles(t, y, 2);
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

TARGET_AVX512 static void filters_avx512(const struct wino_filters *t)
{
    const __m512 half = _mm512_set1_ps(0.5f);
    const __mmask16 rows = (__mmask16)((1u << t->rows) - 1);
    const float *g = t->g;
    for (size_t k = 0; k < t->n; k++, g += 9 * 16) {
        __m512 a[4][3];
        for (size_t c = 0; c < 3; c++) {
            __m512 g0 = _mm512_loadu_ps(g + c * 16), g1 = _mm512_loadu_ps(g + (3 + c) * 16);
            __m512 g2 = _mm512_loadu_ps(g + (6 + c) * 16);
            __m512 s = _mm512_mul_ps(_mm512_add_ps(g0, g2), half), h = _mm512_mul_ps(g1, half);
            a[0][c] = g0;
            a[1][c] = _mm512_add_ps(s, h);
            a[2][c] = _mm512_sub_ps(s, h);
            a[3][c] = g2;
        }
        float *u = t->u + k * t->rows;
        for (size_t r = 0; r < 4; r++, u += 4 * t->step) {
            __m512 s = _mm512_mul_ps(_mm512_add_ps(a[r][0], a[r][2]), half);
            __m512 h = _mm512_mul_ps(a[r][1], half);
            _mm512_mask_storeu_ps(u, rows, a[r][0]);
            _mm512_mask_storeu_ps(u + t->step, rows, _mm512_add_ps(s, h));
            _mm512_mask_storeu_ps(u + 2 * t->step, rows, _mm512_sub_ps(s, h));
            _mm512_mask_storeu_ps(u + 3 * t->step, rows, a[r][2]);
        }
    }
}

TARGET_AVX512 static void tiles_avx512(const struct wino_tiles *t)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __mmask16 live = (__mmask16)((1u << t->n) - 1);
    const __mmask16 in[4] = { inside(t->left, t->w), inside(t->left + 16, t->w),
                              inside(t->left + 2, t->w), inside(t->left + 18, t->w) };
    for (size_t k = 0; k < t->channels; k++) {
        __m512 d[4][4];
        for (size_t r = 0; r < 4; r++) {
            ptrdiff_t y = t->top + (ptrdiff_t)r;
            __m512 v[4];
            bool none = y < 0 || (size_t)y >= t->h;
            const float *x = t->x + k * t->h * t->w + (none ? 0 : (size_t)y * t->w);
            for (size_t i = 0; i < 4; i++)
                v[i] = load16(x, t->left + (ptrdiff_t)(i % 2 * 16 + i / 2 * 2), none ? 0 : in[i]);
            d[r][0] = _mm512_permutex2var_ps(v[0], even, v[1]);
            d[r][1] = _mm512_permutex2var_ps(v[0], odd, v[1]);
            d[r][2] = _mm512_permutex2var_ps(v[2], even, v[3]);
            d[r][3] = _mm512_permutex2var_ps(v[2], odd, v[3]);
        }
        __m512 e[4][4];
        for (size_t c = 0; c < 4; c++) {
            e[0][c] = _mm512_sub_ps(d[0][c], d[2][c]);
            e[1][c] = _mm512_add_ps(d[1][c], d[2][c]);
            e[2][c] = _mm512_sub_ps(d[2][c], d[1][c]);
            e[3][c] = _mm512_sub_ps(d[1][c], d[3][c]);
        }
        float *o = t->v + k * t->ld;
        for (size_t r = 0; r < 4; r++, o += 4 * t->step) {
            _mm512_mask_storeu_ps(o, live, _mm512_sub_ps(e[r][0], e[r][2]));
            _mm512_mask_storeu_ps(o + t->step, live, _mm512_add_ps(e[r][1], e[r][2]));
            _mm512_mask_storeu_ps(o + 2 * t->step, live, _mm512_sub_ps(e[r][2], e[r][1]));
            _mm512_mask_storeu_ps(o + 3 * t->step, live, _mm512_sub_ps(e[r][1], e[r][3]));
        }
    }
}

TARGET_AVX512 static void pixels_avx512(const struct wino_pixels *t)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __mmask16 live = (__mmask16)((1u << t->n) - 1);
    __m512 s[2][4];
    for (size_t c = 0; c < 4; c++) {
        const float *m = t->m + c * t->step;
        __m512 m0 = _mm512_maskz_loadu_ps(live, m),
               m1 = _mm512_maskz_loadu_ps(live, m + 4 * t->step);
        __m512 m2 = _mm512_maskz_loadu_ps(live, m + 8 * t->step);
        __m512 m3 = _mm512_maskz_loadu_ps(live, m + 12 * t->step);
        s[0][c] = _mm512_add_ps(_mm512_add_ps(m0, m1), m2);
        s[1][c] = _mm512_sub_ps(_mm512_sub_ps(m1, m2), m3);
    }
    for (size_t r = 0; r < 2 && t->top + r < t->h; r++) {
        __m512 y0 = _mm512_add_ps(_mm512_add_ps(s[r][0], s[r][1]), s[r][2]);
        __m512 y1 = _mm512_sub_ps(_mm512_sub_ps(s[r][1], s[r][2]), s[r][3]);
        __m512 y[2] = { _mm512_permutex2var_ps(y0, low, y1), _mm512_permutex2var_ps(y0, high, y1) };
        put_row(t, y, 2, r);
    }
}
#endif

const struct wino_kind *wino_2x2(enum cpu_level l)
{
    static const struct wino_kind levels[CPU_LEVELS] = {
        [CPU_PLAIN] = { 2, POINTS, filters_plain, tiles_plain, pixels_plain },
#if CPU_X86
        [CPU_AVX2] = { 2, POINTS, filters_avx2, tiles_avx2, pixels_avx2 },
        [CPU_AVX512] = { 2, POINTS, filters_avx512, tiles_avx512, pixels_avx512 },
#endif
    };
    return &levels[l];
}
