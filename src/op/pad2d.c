/* pad2d.c: zeros, the other side, the border itself, or a mirror there, around pictures. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_pad2d *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_dims_at_least(c, "x", &a->x, 2);
    want_dims(c, "y", &a->y, a->x.shape.ndim);
    if (c->s)
        return;
    int n = a->x.shape.ndim;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    for (int i = 0; i < n - 2; i++)
        if (x[i] != y[i])
            REFUSE(c, "x %s does not fit y %s", SHAPE(&a->x), SHAPE(&a->y));
    if (y[n - 2] < a->top || y[n - 2] - a->top < x[n - 2] || y[n - 1] < a->left ||
        y[n - 1] - a->left < x[n - 1])
        REFUSE(c, "x %s with %u above and %u to the left does not fit y %s", SHAPE(&a->x), a->top,
               a->left, SHAPE(&a->y));
    const uint64_t below = y[n - 2] - x[n - 2] - a->top, right = y[n - 1] - x[n - 1] - a->left;
    if (a->kind == OP_PAD_REFLECT && op_count(&a->y) &&
        (a->top >= x[n - 2] || below >= x[n - 2] || a->left >= x[n - 1] || right >= x[n - 1]))
        REFUSE(c, "a mirror of x %s as wide as y %s", SHAPE(&a->x), SHAPE(&a->y));
    if (a->kind != OP_PAD_ZERO && op_count(&a->y))
        want_filled(c, "x", &a->x);
    want_apart(c, "y", &a->y, "x", &a->x);
}

/* The element of a side of n that element i comes from, behind `before` of padding; n: none. */
static size_t from(size_t i, size_t before, size_t n, enum op_pad_kind kind)
{
    if (i >= before && i - before < n)
        return i - before;
    if (kind == OP_PAD_ZERO)
        return n;
    if (kind == OP_PAD_EDGE)
        return i < before ? 0 : n - 1;
    if (kind == OP_PAD_REFLECT)
        return i < before ? before - i : 2 * (n - 1) - (i - before);
    return (i + (before + n - 1) / n * n - before) % n; /* so many turns that nothing is below 0 */
}

void ref_pad2d_rows(const void *args, size_t begin, size_t end)
{
    const struct op_pad2d *a = args;
    int nd = a->x.shape.ndim;
    size_t h = (size_t)a->x.shape.dim[nd - 2], w = (size_t)a->x.shape.dim[nd - 1];
    size_t oh = (size_t)a->y.shape.dim[nd - 2], ow = (size_t)a->y.shape.dim[nd - 1];
    for (size_t r = begin; r < end; r++) {
        const float *plane = op_f32(&a->x) + r / oh * h * w;
        float *y = op_f32(&a->y) + r * ow;
        size_t i = from(r % oh, a->top, h, a->kind);
        for (size_t j = 0; j < ow; j++) {
            size_t k = from(j, a->left, w, a->kind);
            y[j] = i < h && k < w ? plane[i * w + k] : 0;
        }
    }
}

static berth_status reference(const struct op_env *env, const struct op_pad2d *a, berth_err *err)
{
    (void)env, (void)err;
    ref_pad2d_rows(a, 0, op_count(&a->y) / op_row(&a->y));
    return BERTH_OK;
}

OP_DEFINE(pad2d, .operand = { IN(op_pad2d, x), OUT(op_pad2d, y) });
