/* q4_1: 32 elements in 20 bytes.
 *   0 d     2 m     4 q: 16 bytes of two nibbles, element i low in byte i, element 16 + i high
 *   y[i] = d * q[i] + m */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 20 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b), m = ld_half(b + 2);
    VECTOR_LOOP
    for (size_t i = 0; i < 16; i++) {
        st_f32(y, i, d * (float)(b[4 + i] & 15) + m);
        st_f32(y, 16 + i, d * (float)(b[4 + i] >> 4) + m);
    }
}

QUANT_TO_F32(q4_1, "Q4_1", 3)
