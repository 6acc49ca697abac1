/* q5_0: 32 elements in 22 bytes.
 *   0 d     2 h: 32 bits, the fifth bit of element i     6 q: nibbles as in q4_0
 *   y[i] = d * (q[i] + 16 * h[i] - 16) */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 22 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b);
    uint32_t h = ld_u32(b + 2, 0);
    for (size_t i = 0; i < 16; i++) {
        int lo = (b[6 + i] & 15) | (int)(h >> i & 1) << 4;
        int hi = b[6 + i] >> 4 | (int)(h >> (16 + i) & 1) << 4;
        st_f32(y, i, d * (float)(lo - 16));
        st_f32(y, 16 + i, d * (float)(hi - 16));
    }
}

/* GGML's rule: d maps the largest magnitude to -16, the longer side; halves round up. */
INLINE_BODY void quant(const uint8_t *s, uint8_t *b)
{
    float x[ELEMS];
    float d = quant_extreme(x, quant_load(s, x, ELEMS)) / -16;
    float inv = quant_scale(&d);
    uint32_t q[ELEMS], h = 0;
    for (size_t i = 0; i < ELEMS; i++)
        q[i] = (uint32_t)(int)quant_clamp(x[i] * inv + 16.5f, 31);
    for (size_t i = 0; i < ELEMS; i++)
        h |= q[i] >> 4 << i;
    VECTOR_LOOP
    for (size_t i = 0; i < 16; i++)
        b[6 + i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
    st_u16(b, 0, f16_narrow(d));
    st_u32(b + 2, 0, h);
}

QUANT_BOTH_WAYS(q5_0, "Q5_0", 6)
