#include "op/cpu/cpu_impl.h"

berth_status cpu_linear(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    return op_ref.linear(env, a, err);
}

size_t cpu_linear_scratch(const struct op_env *env, const struct op_linear *a)
{
    return op_ref.linear_scratch ? op_ref.linear_scratch(env, a) : 0;
}
