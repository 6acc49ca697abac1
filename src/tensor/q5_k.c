/* q5_k: 256 elements in 176 bytes.
 *   0 d     2 dmin     4 scales: 8 pairs of 6 bits (k_pair)     16 h: 32 bytes     48 q: 128 bytes
 *   sub-block j of 32 elements: element l is nibble j % 2 of byte 32 (j / 2) + l, fifth bit is
 *   bit j of h[l]
 *   y = d * scale * q - dmin * minimum */
#include "tensor/quant_impl.h"

enum { ELEMS = 256, BYTES = 176 };

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b), dmin = ld_half(b + 2);
        for (size_t j = 0; j < 8; j++) {
            uint8_t sc, mn;
            k_pair(b + 4, j, &sc, &mn);
            float scale = d * sc, min = dmin * mn;
            const uint8_t *h = b + 16, *q = b + 48 + j / 2 * 32;
            for (size_t i = 0; i < 32; i++) {
                int v = (q[i] >> j % 2 * 4 & 15) | (h[i] >> j & 1) << 4;
                st_f32(y, 32 * j + i, scale * (float)v - min);
            }
        }
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

const struct dtype_desc dtype_q5_k = {
    .name = "Q5_K",
    .ggml_id = 13,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .to_f32_levels = to_f32_levels,
};
