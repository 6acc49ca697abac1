/* geglu.c: one half times gelu of the other. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_geglu *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_dims_at_least(c, "x", &a->x, 1);
    if (c->s)
        return;
    struct shape want = a->x.shape;
    uint64_t *row = &want.dim[want.ndim - 1];
    if (*row % 2)
        REFUSE(c, "x %s has no halves", SHAPE(&a->x));
    *row /= 2;
    if (!shape_eq(&want, &a->y.shape))
        REFUSE(c, "y %s is not half of x %s", SHAPE(&a->y), SHAPE(&a->x));
    want_apart(c, "y", &a->y, "x", &a->x);
}

static berth_status reference(const struct op_env *env, const struct op_geglu *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = op_row(&a->y), rows = op_count(&a->y) / n;
    for (size_t r = 0; r < rows; r++) {
        const float *x = op_f32(&a->x) + r * 2 * n;
        float *y = op_f32(&a->y) + r * n;
        for (size_t i = 0; i < n; i++) {
            double g = (double)x[n + i];
            y[i] = (float)((double)x[i] * (a->tanh ? ref_gelu_tanh(g) : ref_gelu(g)));
        }
    }
    return BERTH_OK;
}

OP_DEFINE(geglu, .operand = { IN(op_geglu, x), OUT(op_geglu, y) });
