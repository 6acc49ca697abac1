/* q5_1: 32 elements in 24 bytes.
 *   0 d     2 m     4 h: 32 bits, the fifth bit of element i     8 q: nibbles as in q4_0
 *   y[i] = d * (q[i] + 16 * h[i]) + m */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 24 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b), m = ld_half(b + 2);
    uint32_t h = ld_u32(b + 4, 0);
    for (size_t i = 0; i < 16; i++) {
        int lo = (b[8 + i] & 15) | (int)(h >> i & 1) << 4;
        int hi = b[8 + i] >> 4 | (int)(h >> (16 + i) & 1) << 4;
        st_f32(y, i, d * (float)lo + m);
        st_f32(y, 16 + i, d * (float)hi + m);
    }
}

QUANT_TO_F32(q5_1, "Q5_1", 7)
