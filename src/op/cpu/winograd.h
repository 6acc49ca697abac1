/* winograd: 3x3 convolutions at stride 1 with fewer multiplications: F(2x2, 3x3) has 2.25 times
 * fewer, F(4x4, 3x3) 4 times.
 *
 * Words   tile     2x2 or 4x4 pixels of the result; it needs 4x4 or 6x6 of the picture
 *         point    one of the 16 or 36 numbers a transformed filter or tile consists of
 * Flow    filters -> U[point][oc, ic], tiles of the picture -> V[point][ic, tile], a product for
 *         each M[point] = U[point] . V[point], then M -> the tile's pixels, * scale + bias + add.
 *           V = B'dB   B' = 1  0 -1  0      U = GgG'   G = 1   0   0     Y = A'MA   A' = 1  1  1  0
 *                           0  1  1  0                     1/2 1/2 1/2                   0  1 -1 -1
 *                           0 -1  1  0                     1/2 -1/2 1/2
 *                           0  1  0 -1                     0   0   1
 *         and for 4x4 the matrices that belong to 0, +-1/sqrt(2), +-sqrt(2) and infinity
 *         (winograd_4x4.c): with these the errors are less than half of those with the usual 0,
 *         +-1, +-2.
 *         Both sides are transformed straight into panels of gemm.h; a task then makes all products
 *         of some rows and one panel of tiles, and turns them into pixels while they are in its
 *         cache.
 * Bits    As gemm.h says, with ic for k. Whether a convolution comes here, and with which tiles,
 *         follows from the shapes of its filters and of one picture. Errors relative to the largest
 *         value at 1280 channels: 8e-7 as a plain sum, 8e-7 with 2x2, 6e-6 with 4x4. Points are
 *         sums over the whole tile, and what is not a pixel's own cancels only up to rounding: a
 *         single value A leaves about 3e-6 A in the rest of its tile with 4x4, 1e-10 A with 2x2
 *         (tests/unit/op/test_gemm.c, outliers), a NaN or infinity a NaN.
 * Files   winograd.c driver; winograd_2x2.c, winograd_4x4.c the transforms, with
 *         winograd_kernel.inc around them. */
#pragma once

#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"

#if CPU_X86
#include <immintrin.h>
#endif

#define WINO_LANES 16 /* tiles, or filters, that a transform takes at a time */

bool winograd_suits(const struct op_conv2d *a);
size_t winograd_scratch(const struct gemm_level *l, const struct op_env *env,
                        const struct op_conv2d *a);
berth_status winograd_run(const struct gemm_level *l, const struct op_env *env,
                          const struct op_conv2d *a, berth_err *err);

/* ---- transforms ---- */

/* n channels of `rows` filters: g[(channel * 9 + tap) * 16 + row] -> u[point * step + channel *
 * rows + row] */
struct wino_filters {
    const float *g;
    size_t n, rows, step;
    float *u;
};
/* n <= 16 neighbouring tiles of a row in `channels` channels; x is the first channel's plane, (top,
 * left) the first tile's corner, which may lie outside -> v[point * step + channel * ld + tile] */
struct wino_tiles {
    const float *x;
    size_t h, w, channels, n;
    ptrdiff_t top, left;
    float *v;
    size_t step, ld;
};
/* n <= 16 neighbouring tiles of one channel: m[point * step + tile] -> pixels (top ..., left ...)
 * of the plane y; add: a plane, or NULL. */
struct wino_pixels {
    const float *m;
    size_t step, n;
    size_t h, w, top, left;
    float scale, bias;
    const float *add;
    float *y;
};
struct wino_kind {
    size_t side, points; /* pixels along a tile; (side + 2) squared */
    void (*filters)(const struct wino_filters *t);
    void (*tiles)(const struct wino_tiles *t);
    void (*pixels)(const struct wino_pixels *t);
};
extern const struct wino_kind wino_2x2[CPU_LEVELS], wino_4x4[CPU_LEVELS];

typedef float lanes[WINO_LANES];
#define EACH(i) for (size_t i = 0; i < WINO_LANES; i++)
