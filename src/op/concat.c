/* concat.c: tensors one behind the other. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_concat *a)
{
    want_act(c, "y", &a->y);
    want_whole_strides(c, "y", &a->y);
    if (a->n == 0 || a->axis < 0 || a->axis >= a->y.shape.ndim)
        REFUSE(c, "%zu operands along axis %d of y %s", a->n, a->axis, SHAPE(&a->y));
    uint64_t sum = 0;
    for (size_t i = 0; i < a->n && !c->s; i++) {
        want_act(c, "x", &a->x[i]);
        want_whole_strides(c, "x", &a->x[i]);
        want_dims(c, "x", &a->x[i], a->y.shape.ndim);
        if (c->s)
            return;
        struct shape rest = a->x[i].shape;
        sum += rest.dim[a->axis];
        rest.dim[a->axis] = a->y.shape.dim[a->axis];
        if (!shape_eq(&rest, &a->y.shape))
            REFUSE(c, "x[%zu] %s does not fit y %s", i, SHAPE(&a->x[i]), SHAPE(&a->y));
        want_apart(c, "y", &a->y, "x", &a->x[i]);
    }
    if (!c->s && sum != a->y.shape.dim[a->axis])
        REFUSE(c, "operands have %llu of y %s along axis %d", (unsigned long long)sum, SHAPE(&a->y),
               a->axis);
}

berth_status op_concat_by(const struct op_env *env, const struct op_concat *a, op_copy_fn *copy,
                          berth_err *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t n = a->x[i].shape.dim[a->axis];
        struct op_copy part = { .x = a->x[i] };
        if (view_slice(&a->y, a->axis, at, at + n, &part.y, err) ||
            (op_count(&part.y) && copy(env, &part, err)))
            return err_add(err, "concat");
        at += n;
    }
    return BERTH_OK;
}

static berth_status reference(const struct op_env *env, const struct op_concat *a, berth_err *err)
{
    return op_concat_by(env, a, op_copy_def.reference, err);
}

OP_DEFINE(concat, .operand = { LIST(op_concat, x, n), OUT(op_concat, y) });
