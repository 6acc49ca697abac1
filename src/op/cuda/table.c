/* table.c: the kernels of NVIDIA cards. */
#include "op/cuda/blas.h"
#include "op/cuda/dnn.h"

#define KERNEL(x) .x = cuda_##x,
#define SIZED(x) KERNEL(x).x##_scratch = cuda_##x##_scratch,
#define PLANNED(x) SIZED(x).x##_ready = cuda_##x##_ready,

enum { SM_BF16 = 80 }; /* Ampere */

static uint64_t acts_of(const struct device *d)
{
    return OP_TYPE(DT_F16) | (cuda_of(d->phys)->sm >= SM_BF16 ? OP_TYPE(DT_BF16) : 0);
}

static bool library(unsigned i, berth_err *why)
{
    static berth_status (*const look[])(berth_err * err) = { blas_library, dnn_library };
    if (i >= ARRAY_LEN(look))
        return false;
    (void)look[i](why);
    return true;
}

const struct op_backend op_cuda = {
    .name = "cuda",
    .acts_of = acts_of,
    .library = library,
    .acts = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
    .params = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
    .ready = cuda_ready,
#include "op/cuda/kernels.def"
};
