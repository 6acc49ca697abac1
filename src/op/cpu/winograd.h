/* winograd: 3x3 convolutions at stride 1 with 2.25 times fewer multiplications, F(2x2, 3x3).
 *
 * Words   tile     2x2 pixels of the result; it needs 4x4 of the picture
 *         point    one of the 16 numbers a transformed filter or tile consists of
 * Flow    filters -> U[point][oc, ic], tiles of the picture -> V[point][ic, tile], 16 products
 *         M[point] = U[point] . V[point], then M -> the tile's pixels, * scale + bias + add.
 *           V = B'dB   B' = 1  0 -1  0      U = GgG'   G = 1   0   0     Y = A'MA   A' = 1  1  1  0
 *                           0  1  1  0                     1/2 1/2 1/2                   0  1 -1 -1
 *                           0 -1  1  0                     1/2 -1/2 1/2
 *                           0  1  0 -1                     0   0   1
 *         Both sides are transformed straight into panels of gemm.h, by all workers; a task then makes all 16
 *         products of some rows and one panel of tiles, and turns them into pixels while they are in its cache.
 * Bits    As gemm.h says, with ic for k. Whether a convolution comes here follows from the shapes of its
 *         filters and of one picture. Errors are about twice those of the plain sum.
 * Files   winograd.c driver; winograd_turn.c the three transforms per level. */
#ifndef OP_CPU_WINOGRAD_H
#define OP_CPU_WINOGRAD_H

#include "op/cpu/gemm.h"

#define WINO_POINTS 16
#define WINO_LANES 16 /* tiles, or filters, that a transform takes at a time */

bool winograd_suits(const struct op_conv2d *a);
size_t winograd_scratch(const struct gemm_level *l, const struct op_env *env,
                        const struct op_conv2d *a);
berth_status winograd_run(const struct gemm_level *l, const struct op_env *env,
                          const struct op_conv2d *a, berth_err *err);

/* ---- transforms ---- */

/* n channels of `rows` filters: g[(channel * 9 + tap) * 16 + row] -> u[point * step + channel * rows + row] */
struct wino_filters {
    const float *g;
    size_t n, rows, step;
    float *u;
};
/* n <= 16 neighbouring tiles of a row in `channels` channels; x is the first channel's plane, (top, left)
 * the first tile's corner, which may lie outside -> v[point * step + channel * ld + tile] */
struct wino_tiles {
    const float *x;
    size_t h, w, channels, n;
    ptrdiff_t top, left;
    float *v;
    size_t step, ld;
};
/* n <= 16 neighbouring tiles of one channel: m[point * step + tile] -> pixels (2 * top ..., 2 * left ...)
 * of the plane y; add: a plane, or NULL. */
struct wino_pixels {
    const float *m;
    size_t step, n;
    size_t h, w, top, left;
    float scale, bias;
    const float *add;
    float *y;
};
struct wino_level {
    void (*filters)(const struct wino_filters *t);
    void (*tiles)(const struct wino_tiles *t);
    void (*pixels)(const struct wino_pixels *t);
};
const struct wino_level *wino_level(enum cpu_level l);

#endif
