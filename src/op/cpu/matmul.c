#include "op/cpu/cpu_impl.h"

berth_status cpu_matmul(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    return op_ref.matmul(env, a, err);
}

size_t cpu_matmul_scratch(const struct op_env *env, const struct op_matmul *a)
{
    return op_ref.matmul_scratch ? op_ref.matmul_scratch(env, a) : 0;
}
