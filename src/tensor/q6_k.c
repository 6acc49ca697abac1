/* q6_k: 256 elements in 210 bytes.
 *   0 ql: 128 bytes of two nibbles     128 qh: 64 bytes of four bit pairs
 *   192 scales: int8[16], one per 16 elements     208 d
 *   element i = 128 half + 32 k + l: nibble k / 2 of ql[64 half + 32 (k % 2) + l], above it pair k
 *   of qh[32 half + l]
 *   y[i] = d * scale * (q - 32) */
#include "tensor/quant_impl.h"

enum { ELEMS = 256, BYTES = 210 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b + 208);
    for (size_t g = 0; g < 16; g++) {
        size_t half = g / 8, j = g / 2 % 4, at = g % 2 * 16; /* j: k of the formula */
        const uint8_t *ql = b + 64 * half + 32 * (j % 2) + at, *qh = b + 128 + 32 * half + at;
        float scale = d * (float)(int8_t)b[192 + g];
        VECTOR_LOOP
        for (size_t i = 0; i < 16; i++) {
            int v = (ql[i] >> j / 2 * 4 & 15) | (qh[i] >> 2 * j & 3) << 4;
            st_f32(y, 16 * g + i, scale * (float)(v - 32));
        }
    }
}

QUANT_TO_F32(q6_k, "Q6_K", 14)
