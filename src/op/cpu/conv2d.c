#include "op/cpu/cpu_impl.h"

berth_status cpu_conv2d(const struct op_env *env, const struct op_conv2d *a, berth_err *err)
{
    return op_ref.conv2d(env, a, err);
}

size_t cpu_conv2d_scratch(const struct op_env *env, const struct op_conv2d *a)
{
    return op_ref.conv2d_scratch ? op_ref.conv2d_scratch(env, a) : 0;
}
