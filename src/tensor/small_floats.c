/* small_floats: BF16 and the F8 types, value by value as minifloat.h has them.
 *
 *   BF16     the upper half of an F32
 *   F8_E4M3  bias 7, no infinity, NaN 0x7f, up to 448 ("fn")
 *   F8_E5M2  the upper byte of an F16, up to 57344
 *   F8_E8M0  powers of two, the scales of block formats */
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#define FLOAT_DTYPE(id, NAME, GGML, T, WIDEN, NARROW)                                              \
    INLINE_BODY void id##_widen_all(const void *restrict src, float *restrict dst, size_t n)       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T v;                                                                                   \
            memcpy(&v, (const uint8_t *)src + i * sizeof v, sizeof v);                             \
            st_u32(dst, i, WIDEN(v));                                                              \
        }                                                                                          \
    }                                                                                              \
    INLINE_BODY void id##_narrow_all(const float *restrict src, void *restrict dst, size_t n)      \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T v = NARROW(ld_f32(src, i));                                                          \
            memcpy((uint8_t *)dst + i * sizeof v, &v, sizeof v);                                   \
        }                                                                                          \
    }                                                                                              \
    TO_F32_CLONES(id##_to_f32, id##_widen_all)                                                     \
    TO_F32_TABLE(id##_to_f32, 1, sizeof(T))                                                        \
    FROM_F32_CLONES(id##_from_f32, id##_narrow_all)                                                \
    FROM_F32_TABLE(id##_from_f32)                                                                  \
    const struct dtype_desc dtype_##id = {                                                         \
        .name = NAME,                                                                              \
        .st_name = NAME,                                                                           \
        .ggml_id = GGML,                                                                           \
        .elems = 1,                                                                                \
        .bytes = sizeof(T),                                                                        \
        .is_float = true,                                                                          \
        .to_f32 = id##_to_f32,                                                                     \
        .from_f32 = id##_from_f32,                                                                 \
        .to_f32_levels = id##_to_f32_levels,                                                       \
        .from_f32_levels = id##_from_f32_levels,                                                   \
    };

FLOAT_DTYPE(bf16, "BF16", 30, uint16_t, bf16_widen_bits, bf16_narrow)
FLOAT_DTYPE(f8_e4m3, "F8_E4M3", -1, uint8_t, e4m3_widen_bits, e4m3_narrow)
FLOAT_DTYPE(f8_e5m2, "F8_E5M2", -1, uint8_t, e5m2_widen_bits, e5m2_narrow)
FLOAT_DTYPE(f8_e8m0, "F8_E8M0", -1, uint8_t, e8m0_widen_bits, e8m0_narrow)
