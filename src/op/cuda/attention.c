#include "op/cuda/cuda_op.h"

berth_status cuda_attention(const struct op_env *env, const struct op_attention *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}

size_t cuda_attention_scratch(const struct op_env *env, const struct op_attention *a)
{
    (void)env, (void)a;
    return 0;
}
