/* f8_e4m3: four exponent and three mantissa bits, bias 7, no infinity, NaN 0x7f, up to 448 ("fn").
 */
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

INLINE_BODY void widen(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++)
        st_u32(dst, i, e4m3_widen_bits(s[i]));
}

INLINE_BODY void narrow(const float *restrict src, void *restrict dst, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = e4m3_narrow(ld_f32(src, i));
}

TO_F32_CLONES(to_f32, widen)
TO_F32_TABLE(to_f32, 1, 1)
FROM_F32_CLONES(from_f32, narrow)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_f8_e4m3 = {
    .name = "F8_E4M3",
    .st_name = "F8_E4M3",
    .ggml_id = -1,
    .elems = 1,
    .bytes = 1,
    .is_float = true,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
