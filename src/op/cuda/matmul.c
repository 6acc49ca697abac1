/* matmul: products of activations, all of a batch at once, by cuBLASLt; what it has no kernel for
 * by product.cu's. Scratch is its workspace. */
#include "op/cuda/blas.h"
#include "op/cuda/own.h"

#include <limits.h>

#define GRID_YZ 65535u

size_t cuda_matmul_scratch(const struct op_env *env, const struct op_matmul *a)
{
    const uint64_t *y = a->y.shape.dim;
    (void)env;
    return blas_workspace((size_t)y[1], (size_t)y[2], (size_t)y[0]);
}

berth_status cuda_matmul_ready(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    (void)a;
    return blas_open(env, err) ? err_add(err, "matmul") : BERTH_OK;
}

berth_status blas_by_ours(const struct op_env *env, const struct blas_product *p, berth_err *err)
{
    size_t elem = dtype_desc(p->type)->bytes;
    const char *kernel = p->to == p->type ? "product_gemm" : "product_gemm_to_f32";
    size_t across = (p->n + GEMM_TILE - 1) / GEMM_TILE, down = (p->m + GEMM_TILE - 1) / GEMM_TILE;
    if (across > INT_MAX)
        return err_set(err, BERTH_ELIMIT, "product of %zu columns", p->n);
    for (size_t from = 0; from < p->batch; from += GRID_YZ) {
        size_t now = p->batch - from < GRID_YZ ? p->batch - from : GRID_YZ;
        struct product_args g = { .x = (const char *)p->x + from * p->of_x * elem,
                                  .w = (const char *)p->w + from * p->of_w * elem,
                                  .bias = p->bias,
                                  .add = p->add,
                                  .y = (char *)p->y + from * p->of_y * elem,
                                  .m = p->m,
                                  .n = p->n,
                                  .k = p->k,
                                  .ld_x = p->ld_x,
                                  .ld_add = p->ld_add,
                                  .ld_y = p->ld_y,
                                  .w_n = p->w_turned ? 1 : p->ld_w,
                                  .w_k = p->w_turned ? p->ld_w : 1,
                                  .of_x = p->of_x,
                                  .of_w = p->of_w,
                                  .of_y = p->of_y,
                                  .scale = p->scale,
                                  .bias_type = own_type(p->to),
                                  .gelu = p->gelu };
        unsigned high = down < GRID_YZ ? (unsigned)down : GRID_YZ;
        const struct cuda_launch l = {
            CUDA_MODULE_product, kernel, p->type, { (unsigned)across, high, (unsigned)now },
            { GEMM_THREADS },    &g
        };
        if (cuda_launch(env, &l, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status cuda_matmul(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    size_t batch = (size_t)a->y.shape.dim[0], m = (size_t)a->y.shape.dim[1];
    size_t n = (size_t)a->y.shape.dim[2], k = (size_t)a->a.shape.dim[2];
    const struct blas_product p = {
        .m = m,
        .n = n,
        .k = k,
        .batch = batch,
        .type = a->y.dtype,
        .to = a->y.dtype,
        .w_turned = !a->b_transposed,
        .x = a->a.data,
        .w = a->b.data,
        .y = a->y.data,
        .ld_x = k,
        .ld_w = a->b_transposed ? k : n,
        .ld_y = n,
        .of_x = m * k,
        .of_w = n * k,
        .of_y = m * n,
        .scale = 1,
    };
    bool refused;
    if (m == 0 || n == 0 || batch == 0)
        return BERTH_OK;
    if (blas_run(env, &p, env->scratch, &refused, err) || (refused && blas_by_ours(env, &p, err)))
        return err_add(err, "matmul");
    return BERTH_OK;
}
