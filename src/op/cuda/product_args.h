/* product_args: what linear.c and matmul.c hand to the kernels of product.cu. */
#ifndef OP_CUDA_PRODUCT_ARGS_H
#define OP_CUDA_PRODUCT_ARGS_H

#include <stdint.h>

enum { PRODUCT_F32, PRODUCT_F16, PRODUCT_BF16 }; /* types of a bias */

/* y[m][n] = after(sum over k of x[m][k] w[n][k] * scale + bias[n]) + add[m][n], for each of a batch
 * (grid z). Leading dimensions in elements: from row to row. */
struct product_args {
    const void *x, *w, *bias, *add; /* bias, add: NULL is none */
    void *y;
    uint64_t m, n, k;
    uint64_t ld_x, ld_add, ld_y;
    uint64_t w_row;            /* vec: bytes of a row of w, as stored */
    uint64_t w_n, w_k;         /* gemm: elements of w from n to n + 1, from k to k + 1 */
    uint64_t of_x, of_w, of_y; /* gemm: elements from one of the batch to the next */
    float scale;
    int32_t bias_type; /* PRODUCT_* */
    int32_t gelu;      /* after: the tanh form */
    int32_t wide;      /* vec: rows of x and w begin at multiples of 16 bytes, k is one of 8 */
};

#define VEC_ROWS 4    /* of x that product_vec4 takes; product_vec1 takes one */
#define VEC_WARPS 8   /* of a block, a row of w each */
#define GEMM_TILE 64  /* rows and columns of y of a block */
#define GEMM_DEPTH 16 /* of k at a time */
#define GEMM_THREADS 256
#define FINISH_THREADS 256

#endif
