/* copy.c: elements into another layout or type. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_copy *a)
{
    want_act(c, "y", &a->y);
    want_operand(c, "x", &a->x);
    if (c->s)
        return;
    bool plain = a->x.dtype == a->y.dtype;
    want_whole_strides(c, "y", &a->y);
    if (plain)
        want_whole_strides(c, "x", &a->x);
    else
        want_weight(c, "x", &a->x, op_row(&a->x));
    if (!shape_eq(&a->x.shape, &a->y.shape) &&
        (!view_contiguous(&a->y) || op_count(&a->x) != op_count(&a->y)))
        REFUSE(c, "x %s does not fit y %s", SHAPE(&a->x), SHAPE(&a->y));
    if (!plain && !c->s && (!view_contiguous(&a->x) || !view_contiguous(&a->y)))
        REFUSE(c, "x %s of %s or y %s of %s has gaps", SHAPE(&a->x), dtype_name(a->x.dtype),
               SHAPE(&a->y), dtype_name(a->y.dtype));
    want_apart(c, "y", &a->y, "x", &a->x);
}

berth_status op_copy_target(const struct op_copy *a, struct view *y, berth_err *err)
{
    *y = a->y;
    if (shape_eq(&a->x.shape, &y->shape))
        return BERTH_OK;
    return view_init(y->dtype, &a->x.shape, y->data, view_span(y), y, err) ? err_add(err, "copy")
                                                                           : BERTH_OK;
}

/* x's elements into y under the same shape, any strides. */
static void copy_strided(const struct view *x, const struct view *y)
{
    int nd = x->shape.ndim;
    size_t row = op_row(x), rows = op_count(x) / row;
    size_t sx = nd ? x->stride[nd - 1] : 0, sy = nd ? y->stride[nd - 1] : 0;
    for (size_t r = 0; r < rows; r++) {
        const char *from = x->data;
        char *to = y->data;
        size_t rest = r;
        for (int d = nd - 2; d >= 0; d--) {
            size_t n = (size_t)x->shape.dim[d];
            from += rest % n * x->stride[d];
            to += rest % n * y->stride[d];
            rest /= n;
        }
        for (size_t i = 0; i < row; i++)
            memcpy(to + i * sy, from + i * sx, sizeof(float));
    }
}

static berth_status reference(const struct op_env *env, const struct op_copy *a, berth_err *err)
{
    (void)env;
    if (a->x.dtype != DT_F32) { /* without gaps on either side */
        dtype_desc(a->x.dtype)->to_f32(a->x.data, op_f32(&a->y), op_count(&a->y));
        return BERTH_OK;
    }
    struct view y;
    if (op_copy_target(a, &y, err))
        return err->code;
    copy_strided(&a->x, &y);
    return BERTH_OK;
}

OP_DEFINE(copy, .operand = { IN(op_copy, x), OUT(op_copy, y) });
