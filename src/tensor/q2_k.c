/* q2_k: 256 elements in 84 bytes.
 *   0 scales: 16 bytes, sub-block g of 16 elements: scale low, minimum high nibble
 *   16 q: 64 bytes of four bit pairs     80 d     82 dmin
 *   element i = 128 half + 32 k + l: pair k of byte 32 half + l, sub-block i / 16
 *   y[i] = d * scale * q - dmin * minimum */
#include "tensor/quant_impl.h"

enum { ELEMS = 256, BYTES = 84 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b + 80), dmin = ld_half(b + 82);
    for (size_t g = 0; g < 16; g++) {
        float scale = d * (float)(b[g] & 15), min = dmin * (float)(b[g] >> 4);
        const uint8_t *q = b + 16 + g / 8 * 32 + g % 2 * 16;
        unsigned shift = g / 2 % 4 * 2;
        VECTOR_LOOP
        for (size_t i = 0; i < 16; i++)
            st_f32(y, 16 * g + i, scale * (float)(q[i] >> shift & 3) - min);
    }
}

QUANT_TO_F32(q2_k, "Q2_K", 10)
