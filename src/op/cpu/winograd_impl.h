/* winograd_impl: what the transforms of both tile sizes share; nobody else includes it. */
#ifndef OP_CPU_WINOGRAD_IMPL_H
#define OP_CPU_WINOGRAD_IMPL_H

#include "op/cpu/cpu_impl.h"
#include "op/cpu/winograd.h"

#if CPU_X86
#include <immintrin.h>
#endif

typedef float lanes[WINO_LANES];

#define EACH(i) for (size_t i = 0; i < WINO_LANES; i++)

/* Writes n tiles, each of side x side pixels: y[row * side + column][tile]. What of them lies
 * beyond the plane's edges is left out. */
INLINE_BODY void put_tiles(const struct wino_pixels *t, const lanes *y, size_t side)
{
    for (size_t r = 0; r < side && t->top + r < t->h; r++)
        for (size_t c = 0; c < side * t->n && t->left + c < t->w; c++) {
            size_t at = (t->top + r) * t->w + t->left + c;
            float v = y[r * side + c % side][c / side] * t->scale + t->bias;
            t->y[at] = t->add ? v + t->add[at] : v;
        }
}

#if CPU_X86
/* Lanes whose column at + lane lies in [0, w). */
static inline __mmask16 inside(ptrdiff_t at, size_t w)
{
    ptrdiff_t skip = at < 0 ? -at : 0, end = (ptrdiff_t)w - at;
    uint32_t upto = end <= 0 ? 0 : end >= 16 ? 0xffff : (1u << end) - 1;
    return (__mmask16)(skip >= 16 ? 0 : upto & (0xffffu << skip));
}

/* 16 values of a row from column `at` on; lanes outside the mask are not touched, so that the
 * address may lie outside of the row. */
TARGET_AVX512 INLINE_BODY __m512 load16(const float *row, ptrdiff_t at, __mmask16 live)
{
    uintptr_t from = (uintptr_t)row + (uintptr_t)at * sizeof(float);
    return _mm512_maskz_loadu_ps(live, (const void *)from);
}

/* Up to 16 values of a row of the result. */
TARGET_AVX512 INLINE_BODY void put16(const struct wino_pixels *t, __m512 v, size_t at, size_t n)
{
    __mmask16 live = (__mmask16)((1u << n) - 1);
    v = _mm512_add_ps(_mm512_mul_ps(v, _mm512_set1_ps(t->scale)), _mm512_set1_ps(t->bias));
    if (t->add)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(live, t->add + at));
    _mm512_mask_storeu_ps(t->y + at, live, v);
}

/* Row r of n tiles of so many columns each, which stand side by side in y. */
TARGET_AVX512 INLINE_BODY void put_row(const struct wino_pixels *t, const __m512 *y, size_t side,
                                       size_t r)
{
    size_t cols = t->w - t->left < side * t->n ? t->w - t->left : side * t->n;
    size_t at = (t->top + r) * t->w + t->left;
    for (size_t i = 0; i * 16 < cols; i++)
        put16(t, y[i], at + i * 16, cols - i * 16 < 16 ? cols - i * 16 : 16);
}
#endif

#endif
