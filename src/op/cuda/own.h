/* own: what the files that launch our own kernels share: their arguments and how many blocks they
 * take. For this folder. */
#pragma once

#include "op/cuda/args.cuh"
#include "op/cuda/cuda_op.h"

enum { OWN_THREADS = 256, OWN_UNIT = 16 }; /* of a block; bytes of a packed unit */

/* Blocks for n pieces of work, `per` a block. There are at most 2^31 - 1 of them; kernels go on
 * with what is left, so any n will do. */
static inline unsigned own_blocks(uint64_t n, uint64_t per)
{
    uint64_t blocks = n / per + (n % per != 0);
    return blocks < INT32_MAX ? (unsigned)blocks : INT32_MAX;
}

/* An address, a stride or a length in bytes that whole units begin at. */
static inline bool own_whole(uint64_t n)
{
    return n % OWN_UNIT == 0;
}

static inline bool own_aligned(const void *p)
{
    return own_whole((uintptr_t)p);
}

/* Elements of a packed unit. pre: F32, F16, BF16. */
static inline size_t own_per_unit(enum dtype t)
{
    return (size_t)OWN_UNIT / dtype_desc(t)->bytes;
}

/* CUDA_F32 ...; an absent bias has any type. */
static inline int32_t own_type(enum dtype t)
{
    return t == DT_F32 ? CUDA_F32 : t == DT_F16 ? CUDA_F16 : CUDA_BF16;
}

static inline bool own_is_type(enum dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16;
}

/* Parameters [n], or [items, n] with any stride between them; absent ones have no address. */
static inline struct param own_param(const struct view *v)
{
    struct param p = { 0 };
    if (!v->data)
        return p;
    p.p = v->data;
    p.stride = v->shape.ndim == 2 && v->shape.dim[0] > 1 ? v->stride[0] : 0;
    p.type = own_type(v->dtype);
    return p;
}

/* True of absent ones, too. */
static inline bool own_param_whole(const struct param *p)
{
    return own_aligned(p->p) && own_whole(p->stride);
}

/* A kernel whose threads take one of n pieces of work each. args: its struct. */
static inline berth_status own_launch(const struct op_env *env, enum cuda_module module,
                                      const char *kernel, enum dtype type, uint64_t n, void *args,
                                      berth_err *err)
{
    return cuda_launch_blocks(env, module, kernel, type, own_blocks(n, OWN_THREADS), OWN_THREADS,
                              args, err);
}
