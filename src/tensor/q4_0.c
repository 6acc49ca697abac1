/* q4_0: 32 elements in 18 bytes.
 *   0 d     2 q: 16 bytes of two nibbles, element i low in byte i, element 16 + i high
 *   y[i] = d * (q[i] - 8) */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 18 };

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b);
        VECTOR_LOOP
        for (size_t i = 0; i < 16; i++) {
            st_f32(y, i, d * (float)((b[2 + i] & 15) - 8));
            st_f32(y, 16 + i, d * (float)((b[2 + i] >> 4) - 8));
        }
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

/* GGML's rule: d maps the largest magnitude to -8, the longer side; halves round up. */
INLINE_BODY void quant(const float *src, void *dst, size_t n)
{
    const uint8_t *s = (const uint8_t *)src;
    uint8_t *b = dst;
    for (size_t k = 0; k < n / ELEMS; k++, s += ELEMS * sizeof(float), b += BYTES) {
        float x[ELEMS];
        float d = quant_extreme(x, quant_load(s, x, ELEMS)) / -8;
        float inv = quant_scale(&d);
        st_u16(b, 0, f16_narrow(d));
        int q[ELEMS];
        for (size_t i = 0; i < ELEMS; i++)
            q[i] = (int)quant_clamp(x[i] * inv + 8.5f, 15);
        VECTOR_LOOP
        for (size_t i = 0; i < 16; i++)
            b[2 + i] = (uint8_t)(q[i] | q[16 + i] << 4);
    }
}

FROM_F32_CLONES(from_f32, quant)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_q4_0 = {
    .name = "Q4_0",
    .ggml_id = 2,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
