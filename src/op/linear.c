/* linear.c: x . w^T with the weight as it is stored. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_linear *a)
{
    want_even_act(c, "x", &a->x);
    want_act_or_f32(c, "y", &a->y);
    want_even_rows(c, "y", &a->y);
    want_dims_at_least(c, "x", &a->x, 1);
    want_dims(c, "w", &a->w, 2);
    if (c->s)
        return;
    uint64_t k = op_row(&a->x), n = a->w.shape.dim[0];
    want_weight(c, "w", &a->w, k);
    if (a->w.shape.dim[1] != k)
        REFUSE(c, "x %s does not fit w %s", SHAPE(&a->x), SHAPE(&a->w));
    struct shape want = a->x.shape;
    want.dim[want.ndim - 1] = n;
    if (!shape_eq(&want, &a->y.shape))
        REFUSE(c, "y %s is not that of x %s and w %s", SHAPE(&a->y), SHAPE(&a->x), SHAPE(&a->w));
    if (op_has(&a->bias))
        want_param(c, "bias", &a->bias, n);
    if (op_has(&a->add)) {
        want_operand(c, "add", &a->add);
        if (a->add.dtype != a->y.dtype)
            REFUSE(c, "add is %s, but y is %s", dtype_name(a->add.dtype), dtype_name(a->y.dtype));
        want_even_rows(c, "add", &a->add);
        want_same_shape(c, "add", &a->add, "y", &a->y);
        want_same_or_apart(c, "y", &a->y, "add", &a->add);
    }
    if ((unsigned)a->after > OP_AFTER_GELU_TANH)
        REFUSE(c, "there is no function %u", (unsigned)a->after);
    if (a->after != OP_AFTER_NONE && op_has(&a->add))
        REFUSE(c, "a function and something to add are not for one call");
    want_filled(c, "w", &a->w);
    want_apart(c, "y", &a->y, "x", &a->x);
}

static size_t scratch(const struct op_env *env, const struct op_linear *a)
{
    (void)env;
    return op_mul(op_row(&a->x), sizeof(float));
}

static berth_status reference(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    size_t k = op_row(&a->x), n = op_row(&a->y), rows, sx, sy, sadd = 0;
    float *w = env->scratch; /* [K] */
    double scale = a->scaled ? (double)a->scale : 1;
    op_rows(&a->x, &rows, &sx);
    if (a->add.data)
        op_rows(&a->add, &rows, &sadd);
    op_rows(&a->y, &rows, &sy);
    for (size_t j = 0; j < n; j++) {
        if (op_cancelled(env))
            return ref_cancelled("linear", err);
        ref_widen(&a->w, j, k, w);
        double bias = a->bias.data ? (double)op_f32(&a->bias)[j] : 0;
        for (size_t i = 0; i < rows; i++) {
            double s = ref_dot(op_bytes_on(&a->x, i * sx), w, k) * scale + bias;
            if (a->add.data)
                s += (double)op_bytes_on(&a->add, i * sadd)[j];
            if (a->after == OP_AFTER_GELU_TANH)
                s = ref_gelu_tanh(s);
            op_bytes_on(&a->y, i * sy)[j] = (float)s;
        }
    }
    return BERTH_OK;
}

OP_DEFINE(linear, .scratch = scratch,
          .operand = { IN(op_linear, x), IN(op_linear, w), IN(op_linear, bias), IN(op_linear, add),
                       OUT(op_linear, y) });
