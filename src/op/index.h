/* index: index arithmetic of the host and of kernels: copies between strided layouts made as simple
 * as they are, and division by numbers known before a launch. C and CUDA; nothing here needs a
 * card, so tests/unit/op/test_cuda_index.c looks at all of it. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define CUDA_BOTH __host__ __device__ static inline
#else
#define CUDA_BOTH static inline
#endif

/* ---- n / d without dividing ---- */

/* q = (n * mul / 2^32 + n) / 2^shift is exact for n and d below 2^32; beyond, the plain division is
 * taken. */
struct fast_div {
    uint64_t d;
    uint32_t mul, shift;
};

/* pre: d > 0. */
CUDA_BOTH struct fast_div fast_div_of(uint64_t d)
{
    struct fast_div f;
    f.d = d;
    f.mul = 0;
    f.shift = 0;
    if (d >> 32)
        return f;
    while (f.shift < 32 && ((uint64_t)1 << f.shift) < d)
        f.shift++;
    f.mul = (uint32_t)(((((uint64_t)1 << f.shift) - d) << 32) / d + 1);
    return f;
}

CUDA_BOTH uint64_t fast_div_by(const struct fast_div *f, uint64_t n)
{
    if ((n | f->d) >> 32)
        return n / f->d;
    return ((((uint64_t)(uint32_t)n * f->mul) >> 32) + n) >> f->shift;
}

/* *n becomes the quotient; the remainder is returned. */
CUDA_BOTH uint64_t fast_div_mod(const struct fast_div *f, uint64_t *n)
{
    uint64_t q = fast_div_by(f, *n), r = *n - q * f->d;
    *n = q;
    return r;
}

/* ---- strided layouts ---- */

#define STRIDED_DIMS 8

/* The same elements in two layouts, x and y: dimensions outermost first, strides in bytes. */
struct strided {
    int nd;
    uint64_t dim[STRIDED_DIMS], sx[STRIDED_DIMS], sy[STRIDED_DIMS];
};

/* Fewer dimensions with the same pairs of addresses: those of 1 go, neighbours that are evenly
 * apart on both sides become one. Neither side may have two elements in one place; but x may have
 * strides of 0 (elements that repeat), if they do on a whole dimension. pre: nothing is empty. What
 * is left has at least one dimension. */
CUDA_BOTH void strided_merge(struct strided *s)
{
    int n = 0;
    for (int i = 0; i < s->nd; i++) {
        if (s->dim[i] == 1)
            continue;
        int p = n - 1; /* the dimension outside of i */
        if (n && s->sx[p] == s->sx[i] * s->dim[i] && s->sy[p] == s->sy[i] * s->dim[i]) {
            s->dim[p] *= s->dim[i];
            s->sx[p] = s->sx[i];
            s->sy[p] = s->sy[i];
        } else {
            s->dim[n] = s->dim[i];
            s->sx[n] = s->sx[i];
            s->sy[n] = s->sy[i];
            n++;
        }
    }
    if (n == 0) {
        s->dim[0] = 1;
        s->sx[0] = s->sy[0] = 0;
        n = 1;
    }
    s->nd = n;
}

/* Dimensions in the order of y's memory, the closest elements last: neighbours are then written
 * together. Where y's strides are equal (dimensions of 1) the order stays. */
CUDA_BOTH void strided_sort(struct strided *s)
{
    for (int i = 1; i < s->nd; i++)
        for (int k = i; k > 0 && s->sy[k - 1] < s->sy[k]; k--) {
            uint64_t dim = s->dim[k], sx = s->sx[k], sy = s->sy[k];
            s->dim[k] = s->dim[k - 1];
            s->sx[k] = s->sx[k - 1];
            s->sy[k] = s->sy[k - 1];
            s->dim[k - 1] = dim;
            s->sx[k - 1] = sx;
            s->sy[k - 1] = sy;
        }
}

/* The widest piece that moves as one: 16, 8, 4, 2 or 1 bytes that lie together on both sides,
 * aligned there, and of which the last dimension is a multiple; at least `elem` bytes. x, y:
 * addresses. pre: merged, elements of `elem` bytes. */
CUDA_BOTH unsigned strided_unit(const struct strided *s, uint64_t x, uint64_t y, unsigned elem)
{
    int last = s->nd - 1;
    if (s->dim[last] > 1 && (s->sx[last] != elem || s->sy[last] != elem))
        return elem;
    uint64_t all = x | y | (s->dim[last] * elem);
    for (int i = 0; i < last; i++)
        all |= s->sx[i] | s->sy[i];
    unsigned unit = 16;
    while (unit > elem && all % unit)
        unit /= 2;
    return unit;
}

/* The last dimension counted in units from here on. pre: unit is from strided_unit(). */
CUDA_BOTH void strided_in_units(struct strided *s, unsigned unit, unsigned elem)
{
    int last = s->nd - 1;
    if (unit > elem) {
        s->dim[last] = s->dim[last] * elem / unit;
        s->sx[last] = s->sy[last] = unit;
    }
}

/* The dimension whose elements lie together in x while others do in y: then both sides are read and
 * written in order if a tile of the two turns over in between. -1: there is none, or one of the two
 * is so short that it does not pay. */
CUDA_BOTH int strided_turn(const struct strided *s, unsigned elem)
{
    enum { SHORT = 8 };
    int last = s->nd - 1;
    if (s->sy[last] != elem || s->sx[last] == elem || s->dim[last] < SHORT)
        return -1;
    for (int i = 0; i < last; i++)
        if (s->sx[i] == elem && s->dim[i] >= SHORT)
            return i;
    return -1;
}
