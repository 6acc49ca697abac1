/* q5_k: 256 elements in 176 bytes.
 *   0 d     2 dmin     4 scales: 8 pairs of 6 bits (k_pair)     16 h: 32 bytes     48 q: 128 bytes
 *   sub-block j of 32 elements: element l is nibble j % 2 of byte 32 (j / 2) + l, fifth bit is
 *   bit j of h[l]
 *   y = d * scale * q - dmin * minimum */
#include "tensor/quant_impl.h"

enum { ELEMS = 256, BYTES = 176 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
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

QUANT_TO_F32(q5_k, "Q5_K", 13)
