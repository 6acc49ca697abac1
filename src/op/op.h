/* op: checked operations with a plain-C reference; a device's own kernels where it has them.
 *
 * So far: what merging adapters needs. Files lowrank.c W += s * up . down; fp8_round.c stochastic
 * rounding to fp8. */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/err.h"
#include "base/tpool.h"
#include "tensor/dtype.h"

/* w[rows, cols] += scale * up[rows, rank] . down[rank, cols], row-major float32, nothing overlaps.
 * The sum over rank is in order, one rounding per step: the same bits on every machine and for
 * every number of threads. pool NULL: this thread only. */
void op_lowrank_add(float *w, size_t rows, size_t cols, const float *up, const float *down,
                    size_t rank, float scale, struct tpool *pool);

/* The plain loops that the fast path is held against. */
void op_lowrank_add_ref(float *w, size_t rows, size_t cols, const float *up, const float *down,
                        size_t rank, float scale);

#endif
