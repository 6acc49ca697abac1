/* row_norm.c: layer norm and RMS norm, with parameters or modulated. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_row_norm *a)
{
    want_dense(c, "y", &a->y);
    want_norm_input(c, &a->x, &a->y);
    want_dims_at_least(c, "x", &a->x, 1);
    if (c->s)
        return;
    if (op_has(&a->w))
        want_param(c, "w", &a->w, op_row(&a->x));
    if (op_has(&a->b))
        want_param(c, "b", &a->b, op_row(&a->x));
    if (op_has(&a->shift) && !op_has(&a->scale))
        REFUSE(c, "shift without scale");
    if (op_has(&a->scale) && op_has(&a->b))
        REFUSE(c, "scale is not for one call with b");
    if (op_has(&a->scale)) {
        want_per_item(c, "scale", &a->scale, &a->x);
        want_apart(c, "y", &a->y, "scale", &a->scale);
    }
    if (op_has(&a->shift)) {
        want_per_item(c, "shift", &a->shift, &a->x);
        want_apart(c, "y", &a->y, "shift", &a->shift);
    }
}

static berth_status reference(const struct op_env *env, const struct op_row_norm *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = op_row(&a->x), rows = op_count(&a->x) / n;
    for (size_t r = 0; r < rows; r++) {
        const float *x = op_f32(&a->x) + r * n;
        float *y = op_f32(&a->y) + r * n;
        double mean, inv;
        ref_moments(x, n, (double)a->eps, a->rms, &mean, &inv);
        const float *scale = NULL, *shift = NULL;
        if (a->scale.data) {
            size_t item = r / (rows / (size_t)a->x.shape.dim[0]);
            scale = op_row_at(&a->scale, item);
            shift = a->shift.data ? op_row_at(&a->shift, item) : NULL;
        }
        for (size_t i = 0; i < n; i++) {
            double v = ((double)x[i] - mean) * inv;
            if (a->w.data)
                v *= (double)op_f32(&a->w)[i] + (a->from_one ? 1 : 0);
            if (a->b.data)
                v += (double)op_f32(&a->b)[i];
            if (scale)
                v *= 1 + (double)scale[i];
            if (shift)
                v += (double)shift[i];
            y[i] = (float)v;
        }
    }
    return BERTH_OK;
}

OP_DEFINE(row_norm,
          .operand = { IN(op_row_norm, x), IN(op_row_norm, w), IN(op_row_norm, b),
                       IN(op_row_norm, scale), IN(op_row_norm, shift), OUT(op_row_norm, y) });
