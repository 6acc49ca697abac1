#include "op/cpu/vmath.h"

#define LEVEL(x) x##_plain
#define TARGET
#define WIDTH 4
#define VECS 3
#define ROWS 4
#define MR 4

typedef float vf
    __attribute__((vector_size(16))); /* what every processor has in one way or another */

INLINE_BODY vf vf_all(float x)
{
    return (vf) { x, x, x, x };
}

INLINE_BODY vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

INLINE_BODY vf vf_max(vf a, vf b)
{
    for (int i = 0; i < WIDTH; i++)
        a[i] = a[i] > b[i] ? a[i] : b[i];
    return a;
}

INLINE_BODY vf vf_exp2(vf x)
{
    for (int i = 0; i < WIDTH; i++)
        x[i] = vm_exp2(false, x[i]);
    return x;
}

#include "op/cpu/level.inc"
