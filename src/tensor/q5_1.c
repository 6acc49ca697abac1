/* q5_1: 32 elements in 24 bytes.
 *   0 d     2 m     4 h: 32 bits, the fifth bit of element i     8 q: nibbles as in q4_0
 *   y[i] = d * (q[i] + 16 * h[i]) + m */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 24 };

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b), m = ld_half(b + 2);
        uint32_t h = ld_u32(b + 4, 0);
        for (size_t i = 0; i < 16; i++) {
            int lo = (b[8 + i] & 15) | (int)(h >> i & 1) << 4;
            int hi = b[8 + i] >> 4 | (int)(h >> (16 + i) & 1) << 4;
            st_f32(y, i, d * (float)lo + m);
            st_f32(y, 16 + i, d * (float)hi + m);
        }
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

const struct dtype_desc dtype_q5_1 = {
    .name = "Q5_1",
    .ggml_id = 7,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .to_f32_levels = to_f32_levels,
};
