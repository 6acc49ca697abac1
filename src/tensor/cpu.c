#include "tensor/cpu.h"

enum cpu_level cpu_level(void)
{
#if CPU_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return CPU_AVX512;
#ifdef __clang__ /* knows no "f16c"; every processor with AVX2 has it, F16C came first */
    if (__builtin_cpu_supports("avx2"))
        return CPU_AVX2;
#else
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        return CPU_AVX2;
#endif
#endif
    return CPU_PLAIN;
}

const char *cpu_level_name(enum cpu_level l)
{
#if CPU_X86
    if (l == CPU_AVX512)
        return "avx512";
    if (l == CPU_AVX2)
        return "avx2";
#endif
    return l == CPU_PLAIN ? "plain" : "?";
}
