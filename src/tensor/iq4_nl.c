/* iq4_nl: 32 elements in 18 bytes.
 *   0 d     2 q: nibbles as in q4_0, each the number of a step
 *   y[i] = d * step[q[i]] */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 18 };

static const int8_t step[16] = IQ4_STEPS;

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b);
    for (size_t i = 0; i < 16; i++) {
        st_f32(y, i, d * (float)step[b[2 + i] & 15]);
        st_f32(y, 16 + i, d * (float)step[b[2 + i] >> 4]);
    }
}

QUANT_TO_F32(iq4_nl, "IQ4_NL", 20)
