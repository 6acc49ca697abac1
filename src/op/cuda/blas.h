/* blas: products by cuBLASLt.
 *
 * Words      product   y[b][m][n] = gelu(sum over k of x[b][m][k] w[b][n][k] * scale + bias[n]) +
 *                      add[b][m][n]: rows of x times rows of w, which may lie turned
 *            choice    the algorithm for sizes, types, strides, epilogue and alignments: the
 *                      library's first proposal, kept for the life of the card; or that it has none
 * Sides      cuBLASLt counts columns first. Its D is y turned: rows n, columns m; its A is w, its B
 *            is x, and its bias along the rows of D is ours along n.
 * Sums       are F32: algorithms that add parts in the type of the result are not wanted.
 * Refusals   What the library has no algorithm for is logged once (op.slow: a warning, or a notice
 *            where only an epilogue is missing). Everything else is an error, among it a library
 *            that has no kernels for the card at all.
 * Library    libcublasLt.so.13, .so.12 or .so, where dlopen finds it; else BERTH_EUNSUPPORTED.
 * Threads    Executor. */
#pragma once

#include "op/cuda/cuda_op.h"

struct blas_product {
    size_t m, n, k, batch;
    enum dtype type;   /* of x and w: F32, F16, BF16, F8_E4M3 */
    enum dtype to;     /* of y, bias and add: `type`; or F32; or of fp8 F16, BF16 */
    bool w_turned;     /* w lies as [k][n] */
    const void *x, *w; /* addresses of the card, as all below */
    const void *bias;  /* may be NULL */
    const void *add;   /* may be NULL, or y */
    void *y;
    size_t ld_x, ld_w, ld_add, ld_y; /* elements from row to row */
    size_t of_x, of_w, of_add, of_y; /* and from one of the batch to the next */
    float scale;
    bool gelu; /* the tanh form */
};

/* Whether the library can be opened here; no card is needed. */
berth_status blas_library(berth_err *err);

/* The library, for env's card. */
berth_status blas_open(const struct op_env *env, berth_err *err);

/* Bytes of workspace for a product of these sizes; a multiple of 256. */
size_t blas_workspace(size_t m, size_t n, size_t batch);

/* Parts of scratch, and rows of scores, begin at multiples of this. */
#define BLAS_PLACE 256
static inline size_t blas_place(uint64_t bytes)
{
    return (size_t)((bytes + BLAS_PLACE - 1) / BLAS_PLACE * BLAS_PLACE);
}

/* Queues it on env->stream. *refused: the library has no algorithm for it, nothing was queued, and
 * the status is BERTH_OK: compute it another way.
 *   work  blas_workspace() bytes, 16-byte aligned */
berth_status blas_run(const struct op_env *env, const struct blas_product *p, void *work,
                      bool *refused, berth_err *err);
/* The same by a kernel of ours, slowly; matmul.c has it. A batch has neither bias nor add. */
berth_status blas_by_ours(const struct op_env *env, const struct blas_product *p, berth_err *err);
