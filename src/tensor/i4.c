/* i4: codes of -8 .. 7 in two's complement, two in a byte, the first in its low half. Codes are no
 * weights by themselves: coded.h says what to multiply them by. */
#include "tensor/quant_impl.h"

enum { ELEMS = 2, BYTES = 1 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    int low = *b & 15, high = *b >> 4;
    st_f32(y, 0, (float)((low ^ 8) - 8));
    st_f32(y, 1, (float)((high ^ 8) - 8));
}

QUANT_TO_F32(i4, "I4", -1)
