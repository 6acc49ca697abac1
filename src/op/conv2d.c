/* conv2d.c: filters over pictures. */
#include "op/op_def.h"

uint64_t op_conv_side(uint64_t n, uint32_t before, uint32_t after, uint64_t k, uint32_t stride)
{
    uint64_t around = (uint64_t)before + after, padded;
    if (__builtin_add_overflow(n, around, &padded) || padded < k)
        return 0;
    return (padded - k) / stride + 1;
}

static void check(struct op_check *c, const struct op_conv2d *a)
{
    want_dense(c, "x", &a->x);
    want_dense(c, "y", &a->y);
    want_dims(c, "x", &a->x, 4);
    want_dims(c, "w", &a->w, 4);
    want_dims(c, "y", &a->y, 4);
    if (c->s)
        return;
    const uint64_t *x = a->x.shape.dim, *w = a->w.shape.dim, *y = a->y.shape.dim;
    uint32_t stride = op_or_one(a->stride), groups = op_or_one(a->groups);
    want_operand(c, "w", &a->w);
    want_filled(c, "w", &a->w);
    want_filled(c, "x", &a->x);
    if (c->s)
        return;
    want_weight(c, "w", &a->w, w[1] * w[2] * w[3]);
    if (x[1] % groups || w[0] % groups || x[1] / groups != w[1])
        REFUSE(c, "x %s does not fit w %s in %u groups", SHAPE(&a->x), SHAPE(&a->w), groups);
    if (y[0] != x[0] || y[1] != w[0] ||
        y[2] != op_conv_side(x[2], a->top, a->bottom, w[2], stride) ||
        y[3] != op_conv_side(x[3], a->left, a->right, w[3], stride))
        REFUSE(c, "y %s is not that of x %s and w %s, stride %u, padding %u %u %u %u", SHAPE(&a->y),
               SHAPE(&a->x), SHAPE(&a->w), stride, a->top, a->left, a->bottom, a->right);
    if (op_has(&a->bias))
        want_param(c, "bias", &a->bias, w[0]);
    if (op_has(&a->add)) {
        want_dense(c, "add", &a->add);
        want_same_shape(c, "add", &a->add, "y", &a->y);
        want_same_or_apart(c, "y", &a->y, "add", &a->add);
    }
    want_apart(c, "y", &a->y, "x", &a->x);
}

static size_t scratch(const struct op_env *env, const struct op_conv2d *a)
{
    (void)env;
    return op_mul(op_count_of(&a->w, 1, 4), sizeof(float));
}

/* The sum under one position of a filter w[C, kh, kw] on x[C, h, w]; y0, x0 may lie in the
 * padding. */
struct window {
    const float *x, *w;
    size_t C, h, wd, kh, kw;
};

static double window_sum(const struct window *f, ptrdiff_t y0, ptrdiff_t x0)
{
    double s = 0;
    for (size_t c = 0; c < f->C; c++)
        for (size_t i = 0; i < f->kh; i++) {
            ptrdiff_t y = y0 + (ptrdiff_t)i;
            if (y < 0 || y >= (ptrdiff_t)f->h)
                continue;
            const float *row = f->x + (c * f->h + (size_t)y) * f->wd;
            const float *w = f->w + (c * f->kh + i) * f->kw;
            for (size_t j = 0; j < f->kw; j++) {
                ptrdiff_t x = x0 + (ptrdiff_t)j;
                if (x >= 0 && x < (ptrdiff_t)f->wd)
                    s += (double)row[x] * (double)w[j];
            }
        }
    return s;
}

static berth_status reference(const struct op_env *env, const struct op_conv2d *a, berth_err *err)
{
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim, *w = a->w.shape.dim;
    size_t OC = (size_t)w[0], oh = (size_t)y[2], ow = (size_t)y[3];
    size_t stride = op_or_one(a->stride), per_group = OC / op_or_one(a->groups);
    double scale = a->scaled ? (double)a->scale : 1;
    float *filter = env->scratch; /* [C, kh, kw] */
    struct window f = { .w = filter,
                        .C = (size_t)w[1],
                        .h = (size_t)x[2],
                        .wd = (size_t)x[3],
                        .kh = (size_t)w[2],
                        .kw = (size_t)w[3] };
    for (size_t oc = 0; oc < OC; oc++) {
        ref_widen(&a->w, oc, f.C * f.kh * f.kw, filter);
        double bias = a->bias.data ? (double)op_f32(&a->bias)[oc] : 0;
        for (size_t n = 0; n < (size_t)x[0]; n++) {
            if (op_cancelled(env))
                return ref_cancelled("conv2d", err);
            f.x = op_f32(&a->x) + (n * (size_t)x[1] + oc / per_group * f.C) * f.h * f.wd;
            size_t at = (n * OC + oc) * oh * ow;
            for (size_t i = 0; i < oh; i++)
                for (size_t j = 0; j < ow; j++, at++) {
                    ptrdiff_t y0 = (ptrdiff_t)(i * stride) - (ptrdiff_t)a->top;
                    ptrdiff_t x0 = (ptrdiff_t)(j * stride) - (ptrdiff_t)a->left;
                    double s = window_sum(&f, y0, x0) * scale + bias;
                    if (a->add.data)
                        s += (double)op_f32(&a->add)[at];
                    op_f32(&a->y)[at] = (float)s;
                }
        }
    }
    return BERTH_OK;
}

OP_DEFINE(conv2d, .scratch = scratch,
          .operand = { IN(op_conv2d, x), IN(op_conv2d, w), IN(op_conv2d, bias), IN(op_conv2d, add),
                       OUT(op_conv2d, y) });
