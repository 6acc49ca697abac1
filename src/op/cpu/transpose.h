/* transpose: small matrices, four by four in registers of any processor. */
#pragma once

#include "tensor/cpu.h"

#include <stddef.h>
#include <string.h>

/* Four rows of four, transposed, without leaving registers. */
typedef float quad __attribute__((vector_size(16)));

INLINE_BODY void transpose4(const float *x, size_t ldx, float *y, size_t ldy)
{
    quad r[4], s[4];
    for (size_t i = 0; i < 4; i++)
        memcpy(&r[i], x + i * ldx, sizeof(quad));
    s[0] = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    s[1] = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    s[2] = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    s[3] = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(s[0], s[2], 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(s[0], s[2], 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(s[1], s[3], 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(s[1], s[3], 2, 3, 6, 7);
    for (size_t i = 0; i < 4; i++)
        memcpy(y + i * ldy, &r[i], sizeof(quad));
}

/* y[j, i] = x[i, j] for i < n, j < m; x's rows are ldx apart, y's ldy. */
INLINE_BODY void transpose(const float *x, size_t ldx, float *y, size_t ldy, size_t n, size_t m)
{
    size_t n4 = n & ~(size_t)3, m4 = m & ~(size_t)3;
    for (size_t j = 0; j < m4; j += 4)
        for (size_t i = 0; i < n4; i += 4)
            transpose4(x + i * ldx + j, ldx, y + j * ldy + i, ldy);
    for (size_t j = 0; j < m; j++)
        for (size_t i = j < m4 ? n4 : 0; i < n; i++)
            y[j * ldy + i] = x[i * ldx + j];
}
