/* gemm: the product of matrices that linear, matmul and conv2d are made of.
 *
 * Words   C[m, n] = A[m, k] . B[k, n]: rows of A, columns of B; F32 throughout.
 *         panel    a strip of A (up to `mr` rows) or B (`nr` columns) as the kernel reads it: for
 *                  each k its values side by side. Packing also widens, transposes or gathers, so
 *                  weights of any stored type and windows of a convolution cost one copy.
 *         fixed    the side packed once for everybody, over the whole of k: the weights
 *         moving   the side each task packs for itself, one block of k at a time: activations
 *         task     some panels of the fixed side times some of the moving one
 *         batch    copies of the problem with the same fixed side: pictures of a convolution
 * Sum     Over k in blocks whose size follows from k alone (gemm_k_block()); in a block from 0
 *         upwards with one fused multiply-add per step (product and sum at the plain level), then
 *         block after block: the same bits whatever m, n, batch, edges, tasks and threads are, and
 *         whichever side is called rows. Then * scale, + bias, + add, one rounding each, then
 *         `after` of the whole.
 * Memory  fixed panels in chunks of a few MiB (of one when thrifty), and per worker a block of
 *         moving panels and one task's sums: gemm_scratch(). Sums stay there until they are
 *         complete, so `add` may be the output itself.
 * Files   gemm.c driver; gemm_level.c transposition and levels; gemm_kernel.inc the kernels,
 *         compiled for a level by level_<x>.c. */
#pragma once

#include "op/ops.h"
#include "tensor/cpu.h"

#define GEMM_NR_MAX 32
#define GEMM_K_MAX 384 /* steps of a block */

/* Where a finished tile goes: c = sum * scale + bias + add. */
struct gemm_finish {
    size_t cols; /* of the tile, at most nr; its rows are the kernel's */
    float *c;
    size_t ld_c, ld_add;
    const float *of_row, *of_col,
        *add; /* biases from the tile's first row or column on, or NULL; add or NULL */
    float scale;
};
/* sum[rows][nr] = (or += unless first) a[k][rows] . b[k][nr]. With f the sums go there, and `sum`
 * is left as it was, or not. b and sum: 64-byte aligned. */
typedef void gemm_tile_fn(const float *a, const float *b, size_t k, float *sum, bool first,
                          const struct gemm_finish *f);
/* dst[j * ld_dst + i] = src[i * ld_src + j] for i < rows <= 16, j < n; 0 for rows <= i < pad <=
 * 16. */
typedef void gemm_transpose_fn(const float *src, size_t ld_src, size_t rows, size_t n, float *dst,
                               size_t ld_dst, size_t pad);

struct gemm_level {
    size_t mr, nr;
    gemm_tile_fn *const *tile; /* [rows], 1..mr */
    gemm_transpose_fn *transpose;
    enum cpu_level level;
};
const struct gemm_level *gemm_level(enum cpu_level l); /* the caller knows that it can run here */
extern gemm_tile_fn *const gemm_tiles_plain[], *const gemm_tiles_avx2[], *const gemm_tiles_avx512[];

/* In front of loops over the rows of a tile: they must vanish, or its sums are no registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* One panel of the steps k0 <= k < k0 + kn. of_a: dst[k][rows], rows <= mr; of_b: dst[k][nr],
 * columns from `cols` on zero. Called from any worker. */
typedef void gemm_pack_fn(const void *user, size_t batch, size_t at, size_t rows_or_cols, size_t k0,
                          size_t kn, float *dst);

/* y = f(x) for each of n values, y being x: results while they are near. */
typedef void gemm_after_fn(const float *x, float *y, size_t n);

struct gemm {
    const struct gemm_level *level;
    size_t m, n, k, batch;
    bool fixed_rows; /* A is the fixed side (packed with batch 0); else B */
    gemm_pack_fn *pack_a, *pack_b;
    const void *user;
    /* the result */
    float *c;
    const float *add;        /* NULL: none; may be c */
    const float *bias;       /* NULL: none */
    size_t ld_c, ld_add;     /* elements from row to row */
    size_t step_c, step_add; /* and from one of the batch to the next */
    bool bias_rows;          /* bias[m], else bias[n] */
    float scale;
    gemm_after_fn *after; /* NULL: none */
};
berth_status gemm_run(const struct op_env *env, const struct gemm *g, berth_err *err);
/* Bytes at env->scratch; of g only the level, the sizes and fixed_rows count. */
size_t gemm_scratch(const struct op_env *env, const struct gemm *g);

size_t gemm_k_block(size_t k);

/* Rows of stored weights, widened: panel of `rows` <= 32 rows (elements [at, at + n) of each)
 * turned into dst[j * ld_dst + i]; 0 for rows <= i < pad. `at` and n fall on blocks of the type. */
struct gemm_rows {
    const struct gemm_level *level;
    enum dtype dtype;
    const uint8_t *data;
    size_t row_bytes; /* from row to row */
};
void gemm_pack_rows(const struct gemm_rows *w, size_t row, size_t rows, size_t at, size_t n,
                    float *dst, size_t ld_dst, size_t pad);
