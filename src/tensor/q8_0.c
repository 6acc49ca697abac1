/* q8_0: 32 elements in 34 bytes.
 *   0 d     2 q int8[32]
 *   y[i] = d * q[i] */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 34 };

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b);
        for (size_t i = 0; i < ELEMS; i++)
            st_f32(y, i, d * (float)(int8_t)b[2 + i]);
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

/* GGML's rule: d maps the largest magnitude to 127, ties round away from zero. */
INLINE_BODY void quant(const float *src, void *dst, size_t n)
{
    const uint8_t *s = (const uint8_t *)src;
    uint8_t *b = dst;
    for (size_t k = 0; k < n / ELEMS; k++, s += ELEMS * sizeof(float), b += BYTES) {
        float x[ELEMS];
        float d = f32_from_bits(quant_load(s, x, ELEMS)) / 127;
        float inv = quant_scale(&d);
        st_u16(b, 0, f16_narrow(d));
        for (size_t i = 0; i < ELEMS; i++) {
            uint32_t u = f32_bits(x[i] * inv);
            float v = quant_clamp(f32_from_bits(u & ~F32_SIGN), 127);
            int q = (int)v;
            q += v - (float)q >= 0.5f;
            b[2 + i] = (uint8_t)(u & F32_SIGN ? -q : q);
        }
    }
}

FROM_F32_CLONES(from_f32, quant)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_q8_0 = {
    .name = "Q8_0",
    .ggml_id = 8,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
