/* f4_e2m1: floats of four bits, two in a byte, the first in its high half (coded.h).
 *   a sign, an exponent of two bits, one of mantissa: 0 0.5 1 1.5 2 3 4 6 and their negatives */
#include "tensor/quant_impl.h"

enum { ELEMS = 2, BYTES = 1 };

/* Twice the magnitude is a whole number. */
INLINE_BODY float e2m1(int c)
{
    int e = c >> 1 & 3, m = c & 1;
    float f = (float)(e ? (2 + m) << (e - 1) : m) * 0.5F;
    return c & 8 ? -f : f;
}

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    st_f32(y, 0, e2m1(*b >> 4));
    st_f32(y, 1, e2m1(*b & 15));
}

QUANT_TO_F32(f4_e2m1, "E2M1", -1)
