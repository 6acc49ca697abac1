/* linear: products with weights, by cuBLASLt. */
#include "op/cuda/cuda_op.h"

size_t cuda_linear_scratch(const struct op_env *env, const struct op_linear *a)
{
    (void)env;
    (void)a;
    return 0;
}

berth_status cuda_linear(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    (void)env;
    (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "linear on cuda: not there yet");
}
