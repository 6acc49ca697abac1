/* op_impl: the versions of a kernel, one per enum cpu_level (tensor/cpu.h). For this folder,
 * its tests and benchmarks. */
#ifndef OP_OP_IMPL_H
#define OP_OP_IMPL_H

#include "op/op.h"
#include "tensor/cpu.h"

typedef void op_lowrank_fn(const struct op_lowrank *t);
extern op_lowrank_fn *const op_lowrank_levels[CPU_LEVELS];

/* One level of op_fp8_round(). */
void op_fp8_round_at(enum cpu_level level, enum dtype to, const float *x, const uint32_t *chance,
                     void *dst, size_t n);

#endif
