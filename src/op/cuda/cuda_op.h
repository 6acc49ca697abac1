/* cuda_op: what the files of op/cuda share: a card's handles and caches, kernels, launching.
 *
 * Words      card     what op/ keeps for one phys (cuda_phys.op): modules, cuBLASLt, cuDNN, plans
 *            module   one .cu file, compiled by nvcc for every architecture and embedded; loaded by
 *                     cuda_ready(), or when one of its kernels is first launched
 * Kernels    are found by name: "<op>_<type>" with type f32, f16, bf16. They compute in F32, round
 *            once and trust their arguments. Indexes are 64 bits wide where a product of dimensions
 *            may exceed 2^31; what does not fit a grid goes around in a loop. Where addresses,
 *            strides and lengths allow it, 16 bytes move at a time (norms then add up in another
 *            order). Sums follow from the shape of a row or group alone, without atomics.
 * Libraries  cuBLASLt and cuDNN 9 are opened with dlopen by cuda_ready() or by the first op that
 *            needs them. Without them such an op fails with BERTH_EUNSUPPORTED and says what to
 *            install; a product that cuBLASLt has no kernel for is logged (op.slow). Only attention
 *            has kernels of its own for everything.
 * Choices    Which kernel of a library computes a shape is decided once for a card, shape and type,
 *            and kept: a shape gives the same bits as long as the program runs, wherever operands
 *            lie (all are aligned to 256 bytes; where one is not, that is part of the shape).
 * Memory     Workspaces and expanded weights are op_env.scratch. Modules, handles and plans take
 *            memory of the card in cuda_ready() and op_x_ready(), before a pass. Driver and
 *            libraries load some kernels when they first run; if there is no room for them, the
 *            error is BERTH_ENODEVMEM (cuda_short()), whatever the library calls it.
 * Threads    Executor.
 * Files      cuda_op.c card, modules, launching; kernels.def, table.c the backend; own.h, args.cuh
 *            and kernel.cuh for our kernels; <x>.c launches those of <x>.cu. blas.c and dnn*.c are
 *            the libraries; expand*, stored.cuh stored types. */
#pragma once

#include "base/map.h"
#include "device/cuda/cuda.h"
#include "op/ops_impl.h"

/* The embedded modules, one for each .cu file, by its name. */
#define MODULE(x) extern const unsigned char cuda_module_##x[];
#include "op/cuda/modules.def"
#undef MODULE
enum cuda_module {
#define MODULE(x) CUDA_MODULE_##x,
#include "op/cuda/modules.def"
#undef MODULE
    CUDA_MODULES
};

/* Slots for what other files keep for a card: made at first use, closed with the card. */
enum cuda_slot { CUDA_SLOT_BLAS, CUDA_SLOT_DNN, CUDA_SLOTS };
struct cuda_keep {
    void *p;
    void (*close)(void *p);
};

struct cuda_card { /* owner: executor */
    struct cuda_phys *phys;
    CUmodule module[CUDA_MODULES]; /* NULL: not loaded yet */
    struct map kernels;            /* key -> struct kernel *, owned; looked up so far */
    bool ready;                    /* cuda_ready() was */
    struct cuda_keep keep[CUDA_SLOTS];
};

/* The card of the stream's phys, made at first use; its context is current after this. */
berth_status cuda_card(const struct op_env *env, struct cuda_card **out, berth_err *err);
/* op_backend.ready: every module is loaded, both libraries are opened where they are there. */
berth_status cuda_ready(const struct op_env *env, berth_err *err);

/* Libraries call want of memory many names, "not initialized" and "internal error" among them.
 * Whether a failure of one may be that: the card has less than CUDA_LITTLE bytes left. *left: how
 * many; *total: of the card. pre: its context is current. */
#define CUDA_LITTLE ((size_t)256 << 20)
bool cuda_short(struct cuda_phys *p, size_t *left, size_t *total);
/* A plan that failed when op_x_scratch() asked and is there now needs scratch that nobody gave.
 * BERTH_ENODEVMEM, so that the pass is made ready once more. */
berth_status cuda_scratch_is_there(const struct op_env *env, const char *op, size_t need,
                                   berth_err *err);

struct cuda_launch {
    enum cuda_module module;
    const char *kernel;         /* without the type */
    enum dtype type;            /* F32, F16, BF16: "_f32" ...; DT_NONE: the name is complete */
    unsigned grid[3], block[3]; /* 0 counts as 1 */
    void *args;                 /* its struct */
};
/* Queued on env->stream. Kernels are looked up once and kept. */
berth_status cuda_launch(const struct op_env *env, const struct cuda_launch *l, berth_err *err);
/* The same in one dimension. */
berth_status cuda_launch_blocks(const struct op_env *env, enum cuda_module module,
                                const char *kernel, enum dtype type, unsigned blocks,
                                unsigned threads, void *args, berth_err *err);

/* "f32", "f16", "bf16". */
const char *cuda_type_name(enum dtype t);

/* cuda_<op>() of each, and cuda_<op>_scratch() and cuda_<op>_ready() of some. */
#define KERNEL(x)                                                                                  \
    berth_status cuda_##x(const struct op_env *env, const struct op_##x *a, berth_err *err);
#define SIZED(x)                                                                                   \
    KERNEL(x) size_t cuda_##x##_scratch(const struct op_env *env, const struct op_##x *a);
#define PLANNED(x)                                                                                 \
    SIZED(x)                                                                                       \
    berth_status cuda_##x##_ready(const struct op_env *env, const struct op_##x *a, berth_err *err);
#include "op/cuda/kernels.def"
#undef KERNEL
#undef SIZED
#undef PLANNED

/* Stored weights to a type of activations, n elements in whole blocks of `from`: queued. linear.c,
 * conv2d.c and move.c use it. src begins at a block, dst at an element; better at 16 bytes. */
berth_status cuda_expand(const struct op_env *env, enum dtype from, const void *src, enum dtype to,
                         void *dst, size_t n, berth_err *err);
