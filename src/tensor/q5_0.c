/* q5_0: 32 elements in 22 bytes.
 *   0 d     2 h: 32 bits, the fifth bit of element i     6 q: nibbles as in q4_0
 *   y[i] = d * (q[i] + 16 * h[i] - 16) */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 22 };

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b);
        uint32_t h = ld_u32(b + 2, 0);
        for (size_t i = 0; i < 16; i++) {
            int lo = (b[6 + i] & 15) | (int)(h >> i & 1) << 4;
            int hi = b[6 + i] >> 4 | (int)(h >> (16 + i) & 1) << 4;
            st_f32(y, i, d * (float)(lo - 16));
            st_f32(y, 16 + i, d * (float)(hi - 16));
        }
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

/* GGML's rule: d maps the largest magnitude to -16, the longer side; halves round up. */
INLINE_BODY void quant(const float *src, void *dst, size_t n)
{
    const uint8_t *s = (const uint8_t *)src;
    uint8_t *b = dst;
    for (size_t k = 0; k < n / ELEMS; k++, s += ELEMS * sizeof(float), b += BYTES) {
        float x[ELEMS];
        float d = quant_extreme(x, quant_load(s, x, ELEMS)) / -16;
        float inv = quant_scale(&d);
        uint32_t q[ELEMS], h = 0;
        for (size_t i = 0; i < ELEMS; i++)
            q[i] = (uint32_t)(int)quant_clamp(x[i] * inv + 16.5f, 31);
        for (size_t i = 0; i < ELEMS; i++)
            h |= q[i] >> 4 << i;
        VECTOR_LOOP
        for (size_t i = 0; i < 16; i++)
            b[6 + i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
        st_u16(b, 0, f16_narrow(d));
        st_u32(b + 2, 0, h);
    }
}

FROM_F32_CLONES(from_f32, quant)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_q5_0 = {
    .name = "Q5_0",
    .ggml_id = 6,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
