/* resize2d.c: pictures to another size. */
#include "op/op_def.h"
#include "op/resize_impl.h"

#include <math.h>

static void check(struct op_check *c, const struct op_resize2d *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_dims(c, "x", &a->x, 4);
    want_dims(c, "y", &a->y, 4);
    if (c->s)
        return;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    if (x[0] != y[0] || x[1] != y[1])
        REFUSE(c, "x %s and y %s are not as many planes", SHAPE(&a->x), SHAPE(&a->y));
    if (op_count(&a->y))
        want_filled(c, "x", &a->x);
    for (int i = 2; i < 4; i++) /* coordinates are floats, as in the reference */
        if (x[i] > 1 << 22 || y[i] > 1 << 22)
            REFUSE(c, "x %s to y %s: sides up to %d", SHAPE(&a->x), SHAPE(&a->y), 1 << 22);
    if ((unsigned)a->kind > OP_BILINEAR)
        REFUSE(c, "there is no kind %u", (unsigned)a->kind);
    want_apart(c, "y", &a->y, "x", &a->x);
}

/* torch's "nearest": the position in float, rounded down. */
static size_t nearest(size_t i, size_t in, size_t out)
{
    size_t at = (size_t)floorf((float)i * ((float)in / (float)out));
    return at < in ? at : in - 1;
}

void ref_resize2d_rows(const void *args, size_t from, size_t to)
{
    const struct op_resize2d *a = args;
    size_t h = (size_t)a->x.shape.dim[2], w = (size_t)a->x.shape.dim[3];
    size_t oh = (size_t)a->y.shape.dim[2], ow = (size_t)a->y.shape.dim[3];
    for (size_t r = from; r < to; r++) {
        const float *x = op_f32(&a->x) + r / oh * h * w;
        float *y = op_f32(&a->y) + r * ow;
        if (a->kind == OP_NEAREST) {
            x += nearest(r % oh, h, oh) * w;
            for (size_t j = 0; j < ow; j++)
                y[j] = x[nearest(j, w, ow)];
            continue;
        }
        const struct resize_axis down = resize_axis(h, oh), across = resize_axis(w, ow);
        struct resize_pair v = resize_pair_at(&down, r % oh);
        const float *row[2] = { x + v.i0 * w, x + v.i1 * w };
        for (size_t j = 0; j < ow; j++) {
            struct resize_pair u = resize_pair_at(&across, j);
            float upper = u.w0 * row[0][u.i0] + u.w1 * row[0][u.i1];
            float lower = u.w0 * row[1][u.i0] + u.w1 * row[1][u.i1];
            y[j] = v.w0 * upper + v.w1 * lower;
        }
    }
}

static berth_status reference(const struct op_env *env, const struct op_resize2d *a, berth_err *err)
{
    (void)env, (void)err;
    ref_resize2d_rows(a, 0, op_count_of(&a->y, 0, 3));
    return BERTH_OK;
}

OP_DEFINE(resize2d, .operand = { IN(op_resize2d, x), OUT(op_resize2d, y) });
