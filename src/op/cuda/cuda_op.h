/* cuda_op: what the files of op/cuda share: a card's handles and caches, kernels, launching.
 *
 * Words      card     what op/ keeps for one phys (cuda_phys.op): modules, cuBLASLt, cuDNN, plans
 *            module   one .cu file, compiled by nvcc for every architecture when Berth was built
 *                     and embedded; loaded at the first launch of one of its kernels
 * Kernels    extern "C" __global__ functions in *.cu, found by name: "<op>_<type>" with type f32,
 *            f16, bf16. They compute in F32, round once and trust their arguments; indexes are 64
 *            bits wide where a product of dimensions may exceed 2^31, and what does not fit a grid
 *            of 2^31 - 1 blocks goes around in a loop. Ours move 16 bytes at a time where the host
 *            has seen that addresses, strides and lengths allow it, else element by element (norms
 *            add up in another order then).
 * Sums       are taken in an order that follows from a row's or group's shape alone, without
 *            atomics: the same input gives the same bits, whatever is computed with it.
 * Libraries  cuBLASLt and cuDNN 9 are opened with dlopen at the first op that needs them. Without
 *            them those ops fail with BERTH_EUNSUPPORTED saying which library was looked for and
 *            where to get it; nothing is computed another way in silence. Attention alone has
 *            kernels of its own for what cuDNN does not take and for when it is missing:
 *            cuda_attention_how() (dnn.h) says which it is.
 * Choices    Which kernel of cuBLASLt or engine of cuDNN computes a shape is decided once for a
 *            card, shape and type and kept: the same shape gives the same bits for as long as the
 *            program runs, wherever operands lie (all are aligned to 256 bytes; where one is not,
 *            that is part of the shape).
 * Scratch    Workspaces of the libraries and expanded weights are op_env.scratch, told beforehand
 *            by op_x_scratch(); nothing is allocated on the card in a pass.
 * Threads    Executor.
 * Files      cuda_op.c card, modules, launching; table.c the backend. Own kernels: norm.c norm.cu,
 *            pointwise.c pointwise.cu, move.c move.cu with own.h (host), kernel.cuh (types, sums),
 *            args.cuh (what a kernel gets) and index.cuh (divisions, layouts). Products: blas.c
 *            linear.c matmul.c product.cu; stored types: expand.c expand.cu stored.cuh. cuDNN:
 *            dnn.c dnn_graph.c attention.c conv2d.c, with conv2d.cu around it and attention.cu
 *            in its place */
#ifndef OP_CUDA_CUDA_OP_H
#define OP_CUDA_CUDA_OP_H

#include "device/cuda/cuda.h"
#include "op/ops_impl.h"

struct cuda_card; /* private to cuda_op.c but for what is below */

/* The card of the stream's phys, made at first use; its context is current after this. */
berth_status cuda_card(const struct op_env *env, struct cuda_card **out, berth_err *err);
struct cuda_phys *cuda_card_phys(struct cuda_card *c);

/* Slots for what other files keep for a card: made at first use, closed with the card. */
enum cuda_slot { CUDA_SLOT_BLAS, CUDA_SLOT_DNN, CUDA_SLOTS };
struct cuda_keep {
    void *p;
    void (*close)(void *p);
};
struct cuda_keep *cuda_keep(struct cuda_card *c, enum cuda_slot slot);

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

struct cuda_launch {
    enum cuda_module module;
    const char *kernel;         /* without the type */
    enum dtype type;            /* F32, F16, BF16: "_f32" ...; DT_NONE: the name is complete */
    unsigned grid[3], block[3]; /* 0 counts as 1 */
    unsigned shared;            /* bytes */
    void **args;                /* as cuLaunchKernel */
};
/* Queued on env->stream. Kernels are looked up once and kept. */
berth_status cuda_launch(const struct op_env *env, const struct cuda_launch *l, berth_err *err);

/* "f32", "f16", "bf16". */
const char *cuda_type_name(enum dtype t);

/* One function per op, and the scratch of those that need some; table.c has them. */
#define OP(x)                                                                                      \
    berth_status cuda_##x(const struct op_env *env, const struct op_##x *a, berth_err *err);       \
    size_t cuda_##x##_scratch(const struct op_env *env, const struct op_##x *a);
#include "op/ops.def"
#undef OP

/* Stored weights to a type of activations, n elements in whole blocks of `from`: queued. linear.c,
 * conv2d.c and move.c use it. src begins at a block, dst at an element; better at 16 bytes. */
berth_status cuda_expand(const struct op_env *env, enum dtype from, const void *src, enum dtype to,
                         void *dst, size_t n, berth_err *err);

#endif
