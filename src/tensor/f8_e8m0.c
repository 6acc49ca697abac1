/* f8_e8m0: powers of two, the scales of block formats. */
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

INLINE_BODY void widen(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++)
        st_u32(dst, i, e8m0_widen_bits(s[i]));
}

INLINE_BODY void narrow(const float *restrict src, void *restrict dst, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = e8m0_narrow(ld_f32(src, i));
}

TO_F32_CLONES(to_f32, widen)
TO_F32_TABLE(to_f32, 1, 1)
FROM_F32_CLONES(from_f32, narrow)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_f8_e8m0 = {
    .name = "F8_E8M0",
    .st_name = "F8_E8M0",
    .ggml_id = -1,
    .elems = 1,
    .bytes = 1,
    .is_float = true,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
