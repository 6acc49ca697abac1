/* tensor: element types, shapes, views on memory, conversions.
 *
 * Words   dtype: how an element is stored (dtype.h). shape: the dimensions, outermost first
 *         (shape.h). view: a dtype, a shape and a stride per dimension laid over memory that
 *         somebody else owns. block: the smallest unit of a dtype; one element, or 32 or 256 for
 *         quants.
 * Views   Blocks of a quant lie along the last dimension. There the stride counts from block to
 *         block, a slice begins and ends at blocks, and a permutation leaves the dimension last.
 *         Nothing here follows `data`: it may be an address on a device.
 * Rules   (1) every element lies within the bytes handed to view_init()   (2) no two elements share
 *         bytes: there are no broadcast strides   Every function below keeps both, or fails with
 *         EINVAL (EUNSUPPORTED where only a copy would help) and leaves *out alone.
 * Threads A view is a value; copy it. Any thread.
 * Files   dtype.c lookup, shape.c, view.c; cpu.c processor levels (cpu.h); convert.c conversions
 *         (convert.h) and the types themselves. */
#pragma once

#include "base/err.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

struct view {
    enum dtype dtype;
    struct shape shape;
    size_t
        stride[SHAPE_MAX_DIMS]; /* bytes; any value where the dimension is 1 or nothing is in it */
    void *data;                 /* borrowed; the element with all indices 0 */
};

/* Row-major over `bytes` bytes at data, which must hold the whole shape. */
berth_status view_init(enum dtype t, const struct shape *s, void *data, size_t bytes,
                       struct view *out, berth_err *err);

bool view_contiguous(const struct view *v); /* row-major without gaps */
size_t view_span(const struct view *v);     /* bytes from data to the end of the last element */

/* In all of these `out` may be `v`. */

/* Dimension i of out is dimension axis[i] of v; axis has v->shape.ndim entries, each once. */
berth_status view_permute(const struct view *v, const int *axis, struct view *out, berth_err *err);
/* Keeps indices begin <= i < end of one dimension. */
berth_status view_slice(const struct view *v, int axis, uint64_t begin, uint64_t end,
                        struct view *out, berth_err *err);
