/* cpu_impl: the kernels of the CPU backend, for this folder, its tests and benchmarks.
 *
 * Words   level: a set of instructions (tensor/cpu.h); kernels choose the best one when they are
 *         called.
 * Trust   op_x() has checked shapes, types and layouts already (op/ops.h).
 * Memory  Nothing is allocated: what a kernel needs beside its operands is cpu_x_scratch() bytes at
 *         env->scratch. It follows from shapes, types, the size of env->pool and env->thrifty
 *         alone.
 * Files   kernels.def which ops, cpu.c their table; gemm*.c the product all others are made of;
 *         level_<x>.c, level.inc what is compiled for each level; vmath.h their functions. */
#pragma once

#include "op/ops_impl.h"
#include "tensor/cpu.h"

#if CPU_X86 /* the level's own set and fused multiply-add, which kernels may use: cpu_kernels()
               sees to it */
#define TARGET_FMA __attribute__((target("avx2,f16c,fma")))
#endif

/* The level kernels of this call run at: the best there is, or the one whose table env->backend
 * is. */
enum cpu_level cpu_kernels(const struct op_env *env);
/* The same kernels kept to one level, for tests and benchmarks: "cpu-avx2". Only those up to
 * cpu_kernels() of an env without backend can run here. */
extern const struct op_backend op_cpu_at[CPU_LEVELS];

enum { CPU_PIECE = 16384 }; /* elements per task of ops that do little with each */

static inline size_t cpu_workers(const struct op_env *env)
{
    return env->pool ? tpool_size(env->pool) : 1;
}
/* fn for every i < n, on the pool when there is one. */
void cpu_for(const struct op_env *env, size_t n, tpool_fn *fn, void *user);
/* fn for ranges of [0, n) that are worth a task; each of the n has `size` elements. On this thread
 * when there are so few that waking others would take longer. A range of elements (size 1) begins
 * at whole blocks of every type. pre: neither is 0, as no kernel is called that has nothing to
 * write. */
typedef void cpu_range_fn(const void *user, size_t from, size_t to);
void cpu_ranges(const struct op_env *env, size_t n, size_t size, cpu_range_fn *fn,
                const void *user);

/* Sizes of scratch, as op_mul() has them. */
static inline size_t cpu_add(size_t a, size_t b)
{
    size_t n;
    return sz_add(a, b, &n) ? n : SIZE_MAX;
}
static inline size_t cpu_whole(size_t floats) /* vectors of 64 bytes */
{
    size_t n;
    return sz_align(floats, 16, &n) ? n : SIZE_MAX;
}
static inline size_t cpu_over(size_t n, size_t unit) /* n / unit, rounded up */
{
    return n / unit + (n % unit != 0);
}
static inline size_t cpu_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* cpu_<op>() and cpu_<op>_scratch() of each. */
#define KERNEL(x)                                                                                  \
    berth_status cpu_##x(const struct op_env *env, const struct op_##x *a, berth_err *err);
#define SIZED(x)                                                                                   \
    KERNEL(x) size_t cpu_##x##_scratch(const struct op_env *env, const struct op_##x *a);
#include "op/cpu/kernels.def"
#undef KERNEL
#undef SIZED

/* gelu_tanh of n values, y may be x: pointwise.c's, for what ends with it. */
void (*cpu_gelu_tanh(enum cpu_level l))(const float *x, float *y, size_t n);
