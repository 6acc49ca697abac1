/* channel_norm.c: launches the kernel of channel_norm.cu: a thread for every pixel. */
#include "op/cuda/own.h"

#include <math.h>

berth_status cuda_channel_norm(const struct op_env *env, const struct op_channel_norm *a,
                               berth_err *err)
{
    uint64_t channels = a->x.shape.dim[1], inner = op_count_of(&a->x, 2, a->x.shape.ndim);
    struct channel_norm_args k = { .x = a->x.data,
                                   .y = a->y.data,
                                   .w = own_param(&a->w),
                                   .scale = own_param(&a->scale),
                                   .shift = own_param(&a->shift),
                                   .channels = channels,
                                   .pixels = a->x.shape.dim[0] * inner,
                                   .inner = fast_div_of(inner),
                                   .root = sqrtf((float)channels),
                                   .eps = a->eps,
                                   .silu = a->silu,
                                   .rooted = a->rooted };
    return own_launch(env, CUDA_MODULE_channel_norm, "channel_norm", a->x.dtype, k.pixels, &k, err);
}
