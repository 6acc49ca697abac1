/* blas: products by cuBLASLt.
 *
 * Words      product   y[b][m][n] = gelu(sum over k of x[b][m][k] w[b][n][k] * scale + bias[n]) +
 *                      add[b][m][n]: rows of x times rows of w, which may lie turned
 *            key       what the library's choice depends on: sizes, types, strides, epilogue, and
 *                      how the operands are aligned
 *            choice    the algorithm of a key, kept for the life of the card, so that the same key
 *                      gives the same bits; or that the library has none
 * Sides      cuBLASLt counts columns first. Its D is y turned: rows n, columns m; its A is w, its B
 *            is x, and its bias along the rows of D is ours along n.
 * Choosing   The library's first proposal. Algorithms that add parts of a sum in the type of the
 *            result are not wanted: all sums are F32.
 * Refusals   A key that the library has no algorithm for is logged once (op.slow: a warning, or for
 *            one with an epilogue, which goes without, a notice) and kept. Everything else is an
 *            error, among it a library that has no kernels for the card at all.
 * Library    libcublasLt.so.13, .so.12 or .so, opened by blas_open() or at the first product of a
 *            card where dlopen finds it: ldconfig's folders, and those of LD_LIBRARY_PATH. Without
 *            it BERTH_EUNSUPPORTED with what was looked for.
 * Memory     Workspace comes from the caller, blas_workspace() bytes.
 * Threads    Executor. Files: blas.c library, choices and products; blas_api.def its functions */
#ifndef OP_CUDA_BLAS_H
#define OP_CUDA_BLAS_H

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

/* Queues it on env->stream. *refused: the library has no algorithm for it, nothing was queued, and
 * the status is BERTH_OK: compute it another way.
 *   work  blas_workspace() bytes, 16-byte aligned */
berth_status blas_run(const struct op_env *env, const struct blas_product *p, void *work,
                      bool *refused, berth_err *err);

#endif
