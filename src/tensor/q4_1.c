/* q4_1: 32 elements in 20 bytes.
 *   0 d     2 m     4 q: 16 bytes of two nibbles, element i low in byte i, element 16 + i high
 *   y[i] = d * q[i] + m */
#include "tensor/quant_impl.h"

enum { ELEMS = 32, BYTES = 20 };

INLINE_BODY void dequant(const void *restrict src, float *restrict dst, size_t n)
{
    const uint8_t *b = src;
    uint8_t *y = (uint8_t *)dst;
    for (size_t k = 0; k < n / ELEMS; k++, b += BYTES, y += ELEMS * sizeof(float)) {
        float d = ld_half(b), m = ld_half(b + 2);
        VECTOR_LOOP
        for (size_t i = 0; i < 16; i++) {
            st_f32(y, i, d * (float)(b[4 + i] & 15) + m);
            st_f32(y, 16 + i, d * (float)(b[4 + i] >> 4) + m);
        }
    }
}

TO_F32_CLONES(to_f32, dequant)
TO_F32_TABLE(to_f32, ELEMS, BYTES)

const struct dtype_desc dtype_q4_1 = {
    .name = "Q4_1",
    .ggml_id = 3,
    .elems = ELEMS,
    .bytes = BYTES,
    .to_f32 = to_f32,
    .to_f32_levels = to_f32_levels,
};
