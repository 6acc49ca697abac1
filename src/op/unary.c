/* unary.c: a function of each element. */
#include "op/op_def.h"

#include <math.h>

static void check(struct op_check *c, const struct op_unary *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_same_shape(c, "x", &a->x, "y", &a->y);
    if ((unsigned)a->kind >= OP_UNARY_COUNT)
        REFUSE(c, "there is no kind %u", (unsigned)a->kind);
    want_same_or_apart(c, "y", &a->y, "x", &a->x);
}

static double unary(enum op_unary_kind kind, double x)
{
    switch (kind) {
    case OP_SILU:
        return ref_silu(x);
    case OP_GELU:
        return ref_gelu(x);
    case OP_GELU_TANH:
        return ref_gelu_tanh(x);
    case OP_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case OP_RELU:
        return x < 0 ? 0 : x; /* NaN stays */
    case OP_TANH:
        return tanh(x);
    case OP_SIGMOID:
        return 1 / (1 + exp(-x));
    case OP_UNARY_COUNT:
        break;
    }
    BUG("unary kind %d", (int)kind);
}

static berth_status reference(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    (void)env, (void)err;
    for (size_t i = 0, n = op_count(&a->x); i < n; i++)
        op_f32(&a->y)[i] = (float)unary(a->kind, (double)op_f32(&a->x)[i]);
    return BERTH_OK;
}

OP_DEFINE(unary, .operand = { IN(op_unary, x), OUT(op_unary, y) });
