/* op: checked operations with a plain-C reference; a device's own kernels where it has them.
 *
 * Here: what merging adapters needs. Everything works on host memory, gives the same bits on every
 * machine and for every number of threads, and allocates nothing. The ops of networks have a door
 * of their own, ops.h; pictures and latents to another size, too: resize.h.
 * Files  lowrank.c W += s * up . down; fp8_round.c stochastic rounding to fp8; op_impl.h the
 *        versions of a kernel for several processors, for this folder, its tests and benchmarks. */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/err.h"
#include "base/tpool.h"
#include "tensor/dtype.h"

/* w[rows, cols] += scale * up[rows, rank] . down[rank, cols], row-major float32, nothing overlaps.
 * The sum over rank is in order, one rounding per step: product, sum, product with scale, sum.
 * pool NULL: this thread only. */
void op_lowrank_add(float *w, size_t rows, size_t cols, const float *up, const float *down,
                    size_t rank, float scale, struct tpool *pool);

/* The same on a piece of such a matrix, on this thread: what a caller uses who has the piece in its
 * cache already. ld_*: elements from one row to the next, at least as many as a row has. */
struct op_lowrank {
    float *w;
    size_t rows, cols, ld_w;
    const float *up, *down;
    size_t rank, ld_up, ld_down;
    float scale;
};
void op_lowrank_tile(const struct op_lowrank *t);

/* The plain loops that the fast path is held against. */
void op_lowrank_add_ref(float *w, size_t rows, size_t cols, const float *up, const float *down,
                        size_t rank, float scale);

/* n values of x to F8_E4M3 or F8_E5M2 (`to`; BUG() on others), each rounded up or down by chance,
 * as ComfyUI does it: x becomes F16, the exponent is floor(log2 |x|) with the logarithm rounded to
 * F16, the mantissa in units of the last place plus a uniform number from [0, 1) is rounded to F16
 * and cut off. Too large becomes the largest finite value, infinities too (where the reference's
 * F16 overflows into NaN as well); NaN stays NaN.
 *   chance  n draws, the lowest 11 bits of each count: k / 2048
 * x, chance and dst do not overlap. */
void op_fp8_round(enum dtype to, const float *x, const uint32_t *chance, void *dst, size_t n);
/* One value at a time, with library functions: the reference. */
void op_fp8_round_ref(enum dtype to, const float *x, const uint32_t *chance, void *dst, size_t n);

#endif
