/* cpu: which instructions a version of a kernel may use.
 *
 * Words   level: a set of instructions. CPU_PLAIN is portable C and the reference.
 *         body: an INLINE_BODY function in plain C, compiled once per level by functions that carry
 *         TARGET_<level>; LEVELS_OF(f) is the list f_plain, f_avx2, f_avx512 to index with a level.
 * Threads any. */
#pragma once

#if defined(__x86_64__)
#define CPU_X86 1
#define TARGET_AVX2 __attribute__((target("avx2,f16c")))
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
enum cpu_level { CPU_PLAIN, CPU_AVX2, CPU_AVX512, CPU_LEVELS };
#define LEVELS_OF(f)                                                                               \
    {                                                                                              \
        f##_plain, f##_avx2, f##_avx512                                                            \
    }
#else
#define CPU_X86 0
enum cpu_level { CPU_PLAIN, CPU_LEVELS };
#define LEVELS_OF(f)                                                                               \
    {                                                                                              \
        f##_plain                                                                                  \
    }
#endif

#define INLINE_BODY static inline __attribute__((always_inline))

enum cpu_level cpu_level(void); /* the best one this processor has */
const char *cpu_level_name(enum cpu_level l);
