/* shape: dimensions, outermost first (row-major, as torch prints them). ndim 0 is a scalar. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHAPE_MAX_DIMS 8
#define SHAPE_TEXT_MAX 184 /* "[" + 8 * 20 digits + 7 * ", " + "]" + NUL, and a little air */

struct shape {
    int ndim;
    uint64_t dim[SHAPE_MAX_DIMS]; /* entries at and behind ndim are 0 */
};

/* Elements; 1 for a scalar, 0 when a dimension is 0. False when the product of the other dimensions
 * does not fit 64 bits, even beside a 0: the strides of such a shape could not be written down. */
WARN_UNUSED bool shape_count(const struct shape *s, uint64_t *out);
/* Elements of the dimensions from `from` on, of a shape whose count fits: those of an item behind
 * 0 or 1, latent pixels behind 2. */
uint64_t shape_inner(const struct shape *s, int from);
/* The i-th dimension from behind, from 1: w, then h. */
static inline uint64_t shape_last(const struct shape *s, int i)
{
    return s->dim[s->ndim - i];
}
bool shape_eq(const struct shape *a, const struct shape *b);
const char *shape_text(const struct shape *s, char buf[SHAPE_TEXT_MAX]); /* "[64, 3, 3]" */
