/* op: what merging adapters needs, on host memory: lowrank.c and fp8_round.c. It gives the same
 * bits on every machine and allocates nothing. The ops of networks are in ops.h, resizing of
 * pictures and latents in resize.h. */
#pragma once

#include "base/err.h"
#include "tensor/cpu.h"
#include "tensor/dtype.h"

/* w[rows, cols] += scale * up[rows, rank] . down[rank, cols], row-major float32, nothing overlaps,
 * on this thread. The sum over rank is in order, one rounding per step: product, sum, product with
 * scale, sum. Each may be a piece of a larger matrix. ld_*: elements from one row to the next, at
 * least as many as a row has. */
struct op_lowrank {
    float *w;
    size_t rows, cols, ld_w;
    const float *up, *down;
    size_t rank, ld_up, ld_down;
    float scale;
};
void op_lowrank_tile(const struct op_lowrank *t);

/* n values of x to F8_E4M3 or F8_E5M2 (`to`; BUG() on others), each rounded up or down by chance,
 * as ComfyUI does it: x becomes F16, the exponent is floor(log2 |x|) with the logarithm rounded to
 * F16, the mantissa in units of the last place plus a uniform number from [0, 1) is rounded to F16
 * and cut off. Too large becomes the largest finite value, infinities too (where the reference's
 * F16 overflows into NaN as well); NaN stays NaN.
 *   chance  n draws, the lowest 8 bits of each count: k / 256
 * x, chance and dst do not overlap. */
void op_fp8_round(enum dtype to, const float *x, const uint32_t *chance, void *dst, size_t n);

/* ---- for tests: the versions of each processor level ---- */

typedef void op_lowrank_fn(const struct op_lowrank *t);
extern op_lowrank_fn *const op_lowrank_levels[CPU_LEVELS];

void op_fp8_round_at(enum cpu_level level, enum dtype to, const float *x, const uint32_t *chance,
                     void *dst, size_t n);
