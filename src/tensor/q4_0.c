/* q4_0: 32 elements in 18 bytes.
 *   0 d     2 q: 16 bytes of two nibbles, element i low in byte i, element 16 + i high
 *   y[i] = d * (q[i] - 8) */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 18 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b);
    VECTOR_LOOP
    for (size_t i = 0; i < 16; i++) {
        st_f32(y, i, d * (float)((b[2 + i] & 15) - 8));
        st_f32(y, 16 + i, d * (float)((b[2 + i] >> 4) - 8));
    }
}

/* GGML's rule: d maps the largest magnitude to -8, the longer side; halves round up. */
INLINE_BODY void quant(const uint8_t *s, uint8_t *b)
{
    float x[ELEMS];
    float d = quant_extreme(x, quant_load(s, x, ELEMS)) / -8;
    float inv = quant_scale(&d);
    st_u16(b, 0, f16_narrow(d));
    int q[ELEMS];
    for (size_t i = 0; i < ELEMS; i++)
        q[i] = (int)quant_clamp(x[i] * inv + 8.5f, 15);
    VECTOR_LOOP
    for (size_t i = 0; i < 16; i++)
        b[2 + i] = (uint8_t)(q[i] | q[16 + i] << 4);
}

QUANT_BOTH_WAYS(q4_0, "Q4_0", 2)
