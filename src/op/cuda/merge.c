/* merge.c: what adapters add to weights, by the kernel of merge.cu. */
#include "op/cuda/own.h"

enum { GRID_Y = 65535 };

static uint64_t apart(const struct view *v) /* floats from a row to the next */
{
    return v->shape.dim[0] > 1 ? v->stride[0] / sizeof(float) : v->shape.dim[1];
}

berth_status cuda_add_product(const struct op_env *env, const struct op_add_product *a,
                              berth_err *err)
{
    struct merge_args k = { .w = a->w.data,
                            .up = a->up.data,
                            .down = a->down.data,
                            .rows = a->w.shape.dim[0],
                            .cols = a->w.shape.dim[1],
                            .rank = a->down.shape.dim[0],
                            .ld_w = apart(&a->w),
                            .ld_up = apart(&a->up),
                            .ld_down = apart(&a->down),
                            .scale = a->scale };
    const unsigned high = own_blocks(k.rows, MERGE_TILE);
    const struct cuda_launch l = { .module = CUDA_MODULE_merge,
                                   .kernel = "add_product",
                                   .type = DT_NONE,
                                   .grid = { own_blocks(k.cols, MERGE_TILE),
                                             high < GRID_Y ? high : GRID_Y },
                                   .block = { MERGE_THREADS },
                                   .args = &k };
    return cuda_launch(env, &l, err);
}
