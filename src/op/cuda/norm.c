/* norm.c */
#include "op/cuda/cuda_op.h"

berth_status cuda_group_norm(const struct op_env *env, const struct op_group_norm *a,
                             berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "group_norm: not there yet");
}

berth_status cuda_row_norm(const struct op_env *env, const struct op_row_norm *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "row_norm: not there yet");
}

berth_status cuda_qk_rope(const struct op_env *env, const struct op_qk_rope *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "qk_rope: not there yet");
}

size_t cuda_group_norm_scratch(const struct op_env *env, const struct op_group_norm *a)
{
    (void)env, (void)a;
    return 0;
}
