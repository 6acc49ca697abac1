/* group_norm.c: norm over groups of channels. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_group_norm *a)
{
    want_dense(c, "y", &a->y);
    want_norm_input(c, &a->x, &a->y);
    want_dims_at_least(c, "x", &a->x, 2);
    if (c->s)
        return;
    uint64_t channels = a->x.shape.dim[1];
    want_param(c, "w", &a->w, channels);
    want_param(c, "b", &a->b, channels);
    if (a->groups == 0 || channels % a->groups)
        REFUSE(c, "x %s has no %u equal groups of channels", SHAPE(&a->x), a->groups);
}

static berth_status reference(const struct op_env *env, const struct op_group_norm *a,
                              berth_err *err)
{
    (void)env, (void)err;
    size_t C = (size_t)a->x.shape.dim[1], inner = op_count_of(&a->x, 2, a->x.shape.ndim);
    size_t per = C / a->groups, n = per * inner;
    for (size_t g = 0; g < (size_t)a->x.shape.dim[0] * a->groups; g++) {
        const float *x = op_f32(&a->x) + g * n;
        float *y = op_f32(&a->y) + g * n;
        double mean, inv;
        ref_moments(x, n, (double)a->eps, false, &mean, &inv);
        for (size_t i = 0; i < n; i++) {
            size_t c = g % a->groups * per + i / inner;
            double v =
                ((double)x[i] - mean) * inv * (double)op_f32(&a->w)[c] + (double)op_f32(&a->b)[c];
            y[i] = (float)(a->silu ? ref_silu(v) : v);
        }
    }
    return BERTH_OK;
}

OP_DEFINE(group_norm, .operand = { IN(op_group_norm, x), IN(op_group_norm, w), IN(op_group_norm, b),
                                   OUT(op_group_norm, y) });
