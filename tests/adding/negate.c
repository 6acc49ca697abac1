/* negate.c: the other sign. */
#include "adding/negate.h"

#include "op/op_def.h"

static void check(struct op_check *c, const struct op_negate *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_same_shape(c, "x", &a->x, "y", &a->y);
    want_same_or_apart(c, "y", &a->y, "x", &a->x);
}

static berth_status reference(const struct op_env *env, const struct op_negate *a, berth_err *err)
{
    (void)env, (void)err;
    for (size_t i = 0, n = op_count(&a->x); i < n; i++)
        op_f32(&a->y)[i] = -op_f32(&a->x)[i];
    return BERTH_OK;
}

OP_DEFINE(negate, .operand = { IN(op_negate, x), OUT(op_negate, y) });
