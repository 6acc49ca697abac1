/* iq4_nl: 32 elements in 18 bytes.
 *   0 d     2 q: nibbles as in q4_0, each the number of a step
 *   y[i] = d * step[q[i]] */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 18 };

static const int8_t step[16] = IQ4_STEPS;

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b);
        for (size_t i = 0; i < 16; i++) {
            st_f32(y, i, d * (float)step[b[2 + i] & 15]);
            st_f32(y, 16 + i, d * (float)step[b[2 + i] >> 4]);
        }
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

const struct dtype_desc dtype_iq4_nl = {
    .name = "IQ4_NL",
    .ggml_id = 20,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .to_f32_levels = to_f32_levels,
};
