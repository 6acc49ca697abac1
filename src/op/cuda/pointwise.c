/* pointwise.c */
#include "op/cuda/cuda_op.h"

berth_status cuda_gate(const struct op_env *env, const struct op_gate *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "gate: not there yet");
}

berth_status cuda_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "unary: not there yet");
}

berth_status cuda_binary(const struct op_env *env, const struct op_binary *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "binary: not there yet");
}

berth_status cuda_geglu(const struct op_env *env, const struct op_geglu *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "geglu: not there yet");
}

berth_status cuda_timestep(const struct op_env *env, const struct op_timestep *a, berth_err *err)
{
    (void)env, (void)a;
    return err_set(err, BERTH_EUNSUPPORTED, "timestep: not there yet");
}
