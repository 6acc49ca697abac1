/* bf16: the upper half of an F32. */
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

INLINE_BODY void widen(const void *restrict src, float *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        st_u32(dst, i, (uint32_t)ld_u16(src, i) << 16);
}

INLINE_BODY void narrow(const float *restrict src, void *restrict dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        st_u16(dst, i, bf16_narrow(ld_f32(src, i)));
}

TO_F32_CLONES(to_f32, widen)
TO_F32_TABLE(to_f32, 1, 2)
FROM_F32_CLONES(from_f32, narrow)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_bf16 = {
    .name = "BF16",
    .st_name = "BF16",
    .ggml_id = 30,
    .elems = 1,
    .bytes = 2,
    .is_float = true,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
