/* binary.c: sums and products, element by element. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_binary *a)
{
    want_dense(c, "b", &a->b);
    want_act_or_f32(c, "a", &a->a);
    want_packed(c, "a", &a->a);
    want_act_or_f32(c, "y", &a->y);
    want_packed(c, "y", &a->y);
    if (a->y.dtype != DT_F32 && a->a.dtype != a->y.dtype)
        REFUSE(c, "y is %s, but a is F32", dtype_name(a->y.dtype));
    want_same_shape(c, "a", &a->a, "y", &a->y);
    want_dims(c, "b", &a->b, a->a.shape.ndim);
    if (c->s)
        return;
    for (int i = 0; i < a->b.shape.ndim; i++)
        if (a->b.shape.dim[i] != 1 && a->b.shape.dim[i] != a->a.shape.dim[i])
            REFUSE(c, "b %s does not spread over a %s", SHAPE(&a->b), SHAPE(&a->a));
    if ((unsigned)a->kind >= OP_BINARY_COUNT)
        REFUSE(c, "there is no kind %u", (unsigned)a->kind);
    if (a->a.dtype == a->y.dtype)
        want_same_or_apart(c, "y", &a->y, "a", &a->a);
    else
        want_apart(c, "y", &a->y, "a", &a->a);
    if (shape_eq(&a->a.shape, &a->b.shape) && a->b.dtype == a->y.dtype)
        want_same_or_apart(c, "y", &a->y, "b", &a->b);
    else /* elements of b are read again and again, or lie elsewhere */
        want_apart(c, "y", &a->y, "b", &a->b);
}

static berth_status reference(const struct op_env *env, const struct op_binary *a, berth_err *err)
{
    (void)env, (void)err;
    double scale = (double)op_scale(a->scale);
    const struct shape *s = &a->a.shape, *t = &a->b.shape;
    for (size_t i = 0, n = op_count(&a->a); i < n; i++) {
        size_t rest = i, at = 0, step = 1; /* element of b under element i of a */
        for (int d = s->ndim - 1; d >= 0; d--) {
            at += t->dim[d] > 1 ? rest % (size_t)s->dim[d] * step : 0;
            rest /= (size_t)s->dim[d];
            step *= (size_t)t->dim[d];
        }
        double x = (double)op_f32(&a->a)[i], b = (double)op_f32(&a->b)[at] * scale;
        double y = a->kind == OP_ADD        ? x + b
                   : a->kind == OP_SUB      ? x - b
                   : a->kind == OP_SILU_MUL ? ref_silu(x) * b
                   : a->kind == OP_LEAK     ? (x < 0 ? x * b : x)
                                            : x * b;
        op_f32(&a->y)[i] = (float)y;
    }
    return BERTH_OK;
}

OP_DEFINE(binary, .operand = { IN(op_binary, a), IN(op_binary, b), OUT(op_binary, y) });
