/* cpu.c: the kernels of the CPU, for the best level and for each alone. */
#include "op/cpu/cpu_impl.h"

#define KERNEL(x) .x = cpu_##x,
#define SIZED(x) .x = cpu_##x, .x##_scratch = cpu_##x##_scratch,

const struct op_backend op_cpu = {
    .name = "cpu",
#include "op/cpu/kernels.def"
};

const struct op_backend op_cpu_at[CPU_LEVELS] = {
    [CPU_PLAIN] = {
        .name = "cpu-plain",
#include "op/cpu/kernels.def"
    },
#if CPU_X86
    [CPU_AVX2] = {
        .name = "cpu-avx2",
#include "op/cpu/kernels.def"
    },
    [CPU_AVX512] = {
        .name = "cpu-avx512",
#include "op/cpu/kernels.def"
    },
#endif
};

enum cpu_level cpu_kernels(const struct op_env *env)
{
    for (size_t i = 0; i < CPU_LEVELS; i++)
        if (env->backend == &op_cpu_at[i])
            return (enum cpu_level)i;
    enum cpu_level best = cpu_level();
#if CPU_X86
    if (best == CPU_AVX2 && !__builtin_cpu_supports("fma"))
        return CPU_PLAIN;
#endif
    return best;
}

void cpu_for(const struct op_env *env, size_t n, tpool_fn *fn, void *user)
{
    if (env->pool)
        tpool_for(env->pool, n, fn, user);
    else
        for (size_t i = 0; i < n; i++)
            fn(user, i, 0);
}

struct ranges {
    cpu_range_fn *fn;
    const void *user;
    size_t n, each; /* each: of a task */
};

static void range_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct ranges *r = user;
    size_t from = i * r->each;
    r->fn(r->user, from, from + cpu_least(r->each, r->n - from));
}

void cpu_ranges(const struct op_env *env, size_t n, size_t size, cpu_range_fn *fn, const void *user)
{
    struct ranges r = { fn, user, n, size < CPU_PIECE ? CPU_PIECE / size : 1 };
    struct op_env here = *env;
    if (n * size <= (size_t)2 * CPU_PIECE)
        here.pool = NULL;
    cpu_for(&here, cpu_over(n, r.each), range_task, &r);
}
