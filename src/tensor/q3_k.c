/* q3_k: 256 elements in 110 bytes.
 *   0 mask: 32 bytes, one bit of each of eight elements     32 q: 64 bytes of four bit pairs
 *   96 scales: 16 of 6 bits in 12 bytes     108 d
 *   element i = 128 half + 32 k + l: pair k of byte 32 half + l, bit 4 half + k of mask[l],
 *   sub-block g = i / 16; the bit is the third of q, stored inverted as "take away 4"
 *   scale g: low 4 bits in nibble g / 8 of byte g % 8, high 2 bits in pair g / 4 of byte 8 + g % 4
 *   y[i] = d * (scale - 32) * (q - (bit ? 0 : 4)) */
#include "tensor/quant_impl.h"

enum { ELEMS = 256, BYTES = 110 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b + 108);
    for (size_t g = 0; g < 16; g++) {
        int low = b[96 + g % 8] >> g / 8 * 4 & 15, high = b[104 + g % 4] >> g / 4 * 2 & 3;
        float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *q = b + 32 + g / 8 * 32 + g % 2 * 16, *mask = b + g % 2 * 16;
        unsigned shift = g / 2 % 4 * 2, bit = g / 2 % 8;
        for (size_t i = 0; i < 16; i++) {
            int v = (q[i] >> shift & 3) - (mask[i] >> bit & 1 ? 0 : 4);
            st_f32(y, 16 * g + i, scale * (float)v);
        }
    }
}

QUANT_TO_F32(q3_k, "Q3_K", 11)
