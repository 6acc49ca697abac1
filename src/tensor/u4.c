/* u4: codes of 0 .. 15, two in a byte, the first in its low half (coded.h). */
#include "tensor/quant_impl.h"

enum { ELEMS = 2, BYTES = 1 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    st_f32(y, 0, (float)(*b & 15));
    st_f32(y, 1, (float)(*b >> 4));
}

QUANT_TO_F32(u4, "U4", -1)
