/* attention_wide: attention of wide heads, as that of a VAE, by cuBLASLt: scores of some queries,
 * their weights, the weighted sum of values, then the next queries. 16,384 tokens and one head of
 * 512 are 550 GFLOP for plain multiply-adds without it. The parts follow from the shape alone. */
#ifndef OP_CUDA_ATTENTION_WIDE_H
#define OP_CUDA_ATTENTION_WIDE_H

#include "op/cuda/blas.h"

/* Whether it is for this one: heads of more than 256, every query sees every key. */
bool wide_fits(const struct op_attention *a);
/* pre, as below: wide_fits(). */
size_t wide_scratch(const struct op_attention *a);
/* *refused: the library has no algorithm, and y is undefined: compute it another way. */
berth_status wide_run(const struct op_env *env, const struct op_attention *a, float scale,
                      bool *refused, berth_err *err);

#endif
