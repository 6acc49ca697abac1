/* iq4_xs: 256 elements in 136 bytes.
 *   0 d     2 high: 8 bit pairs     4 low: 8 nibbles     8 q: 128 bytes of two nibbles
 *   sub-block j of 32 elements: scale = low[j] + 16 high[j] - 32; its bytes 16 j.., nibbles as in
 *   q4_0, each the number of a step
 *   y = d * scale * step[q] */
#include "tensor/quant_impl.h"

enum { ELEMS = 256, BYTES = 136 };

static const int8_t step[16] = IQ4_STEPS;

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b);
    unsigned high = ld_u16(b + 2, 0);
    for (size_t j = 0; j < 8; j++) {
        int sc = (b[4 + j / 2] >> j % 2 * 4 & 15) | (int)(high >> 2 * j & 3) << 4;
        float scale = d * (float)(sc - 32);
        const uint8_t *q = b + 8 + 16 * j;
        for (size_t i = 0; i < 16; i++) {
            st_f32(y, 32 * j + i, scale * (float)step[q[i] & 15]);
            st_f32(y, 32 * j + 16 + i, scale * (float)step[q[i] >> 4]);
        }
    }
}

QUANT_TO_F32(iq4_xs, "IQ4_XS", 23)
