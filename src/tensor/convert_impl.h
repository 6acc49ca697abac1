/* convert_impl: how a conversion is compiled for several processors. For this folder, its tests and
 * benchmarks.
 *
 * Words   level: see cpu.h; every level must give the same bits as CPU_PLAIN, NaN payloads
 *         included. body: an INLINE_BODY function in plain C; the *_CLONES macros compile it once
 *         per level and leave the vectors to the compiler. Where the processor has an instruction
 *         for the job (F16) the levels are written out instead.
 * Flow    desc->to_f32() -> to_f32_run() -> levels[cpu_level()], block by block through a small
 *         buffer and streaming stores when the destination is larger than any cache.
 * Memory  Sources and destinations may be unaligned: only memcpy and unaligned loads touch them. */
#pragma once

#include "tensor/cpu.h"
#include "tensor/dtype.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, so are we");

/* Every descriptor, by the name of its line in dtypes.def. */
#define DTYPE(ID, id) extern const struct dtype_desc dtype_##id;
#include "tensor/dtypes.def"
#undef DTYPE

/* n elements in blocks of `elems` elements and `bytes` bytes through levels[cpu_level()]. */
void to_f32_run(to_f32_fn *const levels[CPU_LEVELS], size_t elems, size_t bytes, const void *src,
                float *dst, size_t n);

/* Converts n elements of a wide plain type to any plain type but F32, rounding once. In wide.c. */
void wide_convert(enum dtype from, const void *src, enum dtype to, void *dst, size_t n);

/* TO_F32_CLONES(f, body): f_plain(), f_avx2(), f_avx512(), all with that body.
 * TO_F32_TABLE(f, elems, bytes): f_levels[] of those three, and f(), the one that chooses. */
#if CPU_X86
#define CLONES_OF(f, body, S, D)                                                                   \
    static void f##_plain(const S *src, D *dst, size_t n)                                          \
    {                                                                                              \
        body(src, dst, n);                                                                         \
    }                                                                                              \
    TARGET_AVX2 static void f##_avx2(const S *src, D *dst, size_t n)                               \
    {                                                                                              \
        body(src, dst, n);                                                                         \
    }                                                                                              \
    TARGET_AVX512 static void f##_avx512(const S *src, D *dst, size_t n)                           \
    {                                                                                              \
        body(src, dst, n);                                                                         \
    }
#else
#define CLONES_OF(f, body, S, D)                                                                   \
    static void f##_plain(const S *src, D *dst, size_t n)                                          \
    {                                                                                              \
        body(src, dst, n);                                                                         \
    }
#endif
#define TO_F32_CLONES(f, body) CLONES_OF(f, body, void, float)
#define FROM_F32_CLONES(f, body) CLONES_OF(f, body, float, void)

#define TO_F32_TABLE(f, elems, bytes)                                                              \
    static to_f32_fn *const f##_levels[CPU_LEVELS] = LEVELS_OF(f);                                 \
    static void f(const void *src, float *dst, size_t n)                                           \
    {                                                                                              \
        to_f32_run(f##_levels, elems, bytes, src, dst, n);                                         \
    }
#define FROM_F32_TABLE(f)                                                                          \
    static from_f32_fn *const f##_levels[CPU_LEVELS] = LEVELS_OF(f);                               \
    static void f(const float *src, void *dst, size_t n)                                           \
    {                                                                                              \
        f##_levels[cpu_level()](src, dst, n);                                                      \
    }

/* ld_x(p, i) and st_x(p, i, v): element i behind p, aligned or not. */
#define ELEMENT(x, T)                                                                              \
    static inline T ld_##x(const void *p, size_t i)                                                \
    {                                                                                              \
        T v;                                                                                       \
        memcpy(&v, (const uint8_t *)p + i * sizeof v, sizeof v);                                   \
        return v;                                                                                  \
    }                                                                                              \
    static inline void st_##x(void *p, size_t i, T v)                                              \
    {                                                                                              \
        memcpy((uint8_t *)p + i * sizeof v, &v, sizeof v);                                         \
    }
ELEMENT(u16, uint16_t)
ELEMENT(u32, uint32_t)
ELEMENT(f32, float)
