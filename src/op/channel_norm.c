/* channel_norm.c: norm of the channels of each pixel, without a mean. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_channel_norm *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_same_shape(c, "x", &a->x, "y", &a->y);
    want_dims_at_least(c, "x", &a->x, 2);
    if (op_has(&a->scale) != op_has(&a->shift))
        REFUSE(c, "scale and shift come together");
    if (!c->s && op_has(&a->w))
        want_param(c, "w", &a->w, a->x.shape.dim[1]);
    if (!c->s && op_has(&a->scale)) {
        want_param(c, "scale", &a->scale, a->x.shape.dim[1]);
        want_param(c, "shift", &a->shift, a->x.shape.dim[1]);
    }
}

/* What channel c is multiplied with. */
static double weight(const struct op_channel_norm *a, size_t c)
{
    const double w = op_has(&a->w) ? (double)op_f32(&a->w)[c] : 1;
    return op_has(&a->scale) ? w * (1 + (double)op_f32(&a->scale)[c]) : w;
}

static berth_status reference(const struct op_env *env, const struct op_channel_norm *a,
                              berth_err *err)
{
    (void)env, (void)err;
    size_t C = (size_t)a->x.shape.dim[1], inner = op_count_of(&a->x, 2, a->x.shape.ndim);
    for (size_t i = 0; i < (size_t)a->x.shape.dim[0] * inner; i++) {
        size_t first = i / inner * C * inner + i % inner;
        const float *x = op_f32(&a->x) + first;
        float *y = op_f32(&a->y) + first;
        double sum = 0;
        for (size_t c = 0; c < C; c++)
            sum += (double)x[c * inner] * (double)x[c * inner];
        double by = a->rooted ? 1 / sqrt(sum / (double)C + (double)a->eps)
                              : sqrt((double)C) / fmax(sqrt(sum), (double)a->eps);
        for (size_t c = 0; c < C; c++) {
            double v = (double)x[c * inner] * by * weight(a, c);
            v += op_has(&a->shift) ? (double)op_f32(&a->shift)[c] : 0;
            y[c * inner] = (float)(a->silu ? ref_silu(v) : v);
        }
    }
    return BERTH_OK;
}

const struct op_channel_norm_def op_channel_norm_def = {
    .check = check,
    .reference = reference,
    .size = sizeof(struct op_channel_norm),
    .operand = { IN(op_channel_norm, x), IN(op_channel_norm, w), IN(op_channel_norm, scale),
                 IN(op_channel_norm, shift), OUT(op_channel_norm, y) },
};
