/* q8_0: 32 elements in 34 bytes.
 *   0 d     2 q int8[32]
 *   y[i] = d * q[i] */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 34 };

INLINE_BODY void dequant(const uint8_t *restrict b, uint8_t *restrict y)
{
    float d = ld_half(b);
    for (size_t i = 0; i < ELEMS; i++)
        st_f32(y, i, d * (float)(int8_t)b[2 + i]);
}

/* GGML's rule: d maps the largest magnitude to 127, ties round away from zero. */
INLINE_BODY void quant(const uint8_t *s, uint8_t *b)
{
    float x[ELEMS];
    float d = f32_from_bits(quant_load(s, x, ELEMS)) / 127;
    float inv = quant_scale(&d);
    st_u16(b, 0, f16_narrow(d));
    for (size_t i = 0; i < ELEMS; i++) {
        uint32_t u = f32_bits(x[i] * inv);
        float v = quant_clamp(f32_from_bits(u & ~F32_SIGN), 127);
        int q = (int)v;
        q += v - (float)q >= 0.5f;
        b[2 + i] = (uint8_t)(u & F32_SIGN ? -q : q);
    }
}

QUANT_BOTH_WAYS(q8_0, "Q8_0", 8)
