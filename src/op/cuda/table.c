/* table.c: the kernels of NVIDIA cards. Every slot is filled: nothing falls to the reference, which
 * would follow a card's addresses. */
#include "op/cuda/cuda_op.h"

extern const struct op_backend op_cuda; /* declared by backends.def */

#define SIZED(x) .x = cuda_##x, .x##_scratch = cuda_##x##_scratch
#define KERNEL(x) .x = cuda_##x

const struct op_backend op_cuda = {
    .name = "cuda",
    .acts = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
    .params = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
    SIZED(linear),
    SIZED(matmul),
    SIZED(conv2d),
    SIZED(attention),
    SIZED(group_norm),
    KERNEL(row_norm),
    KERNEL(unary),
    KERNEL(binary),
    KERNEL(geglu),
    SIZED(embedding),
    KERNEL(timestep),
    KERNEL(resize2d),
    KERNEL(concat),
    KERNEL(pad2d),
    KERNEL(copy),
    KERNEL(qk_rope),
    KERNEL(gate),
};
