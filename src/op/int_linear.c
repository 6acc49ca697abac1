/* int_linear.c: products of whole numbers: rows of x rounded to 8 bits, each by a scale of its
 * own. */
#include "op/op_def.h"

#include <inttypes.h>

#define ROUNDER 12582912.0F /* 1.5 * 2^23: adding it rounds to whole numbers, ties to even */

static void check(struct op_check *c, const struct op_int_linear *a)
{
    want_act(c, "x", &a->x);
    want_even_rows(c, "x", &a->x);
    want_act(c, "y", &a->y);
    want_even_rows(c, "y", &a->y);
    want_operand(c, "codes", &a->codes);
    want_dims(c, "codes", &a->codes, 2);
    want_dims_at_least(c, "y", &a->y, 1);
    want_dims(c, "x", &a->x, a->y.shape.ndim);
    if (c->s)
        return;
    const struct coded how = int_coded_of(a);
    const uint64_t *w = a->codes.shape.dim, n = op_row(&a->y);
    if (!coded_is_int(&how) || how.type != a->codes.dtype)
        REFUSE(c, "codes of %s are no whole numbers", dtype_name(a->codes.dtype));
    want_weight(c, "codes", &a->codes, w[1]);
    if (w[1] != op_row(&a->x) || w[1] > OP_INT_COLUMNS || a->row > w[0] || n > w[0] - a->row)
        REFUSE(c, "x %s and y %s do not fit rows %" PRIu64 " and on of codes %s", SHAPE(&a->x),
               SHAPE(&a->y), a->row, SHAPE(&a->codes));
    for (int i = 0; i < a->y.shape.ndim - 1 && !c->s; i++)
        if (a->x.shape.dim[i] != a->y.shape.dim[i])
            REFUSE(c, "x %s does not fit y %s", SHAPE(&a->x), SHAPE(&a->y));
    if (how.turn && (w[1] % how.turn || how.turn > CODED_TURN_MAX))
        REFUSE(c, "codes %s turned in groups of %u", SHAPE(&a->codes), how.turn);
    if (how.how != BLOCKS_NONE && op_count(&a->blocks) != coded_blocks_stored(&how, w[0]))
        REFUSE(c, "blocks %s are not those of codes %s", SHAPE(&a->blocks), SHAPE(&a->codes));
    if (op_has(&a->rows) && (a->rows.dtype != DT_F32 || op_count(&a->rows) != w[0]))
        REFUSE(c, "rows %s are not for codes %s", SHAPE(&a->rows), SHAPE(&a->codes));
    if (op_has(&a->bias))
        want_param(c, "bias", &a->bias, n);
    if (op_has(&a->add)) {
        want_act(c, "add", &a->add);
        want_even_rows(c, "add", &a->add);
        want_same_shape(c, "add", &a->add, "y", &a->y);
        want_same_or_apart(c, "y", &a->y, "add", &a->add);
    }
    if (a->after != OP_AFTER_NONE && op_has(&a->add))
        REFUSE(c, "a function behind a sum");
    want_apart(c, "y", &a->y, "x", &a->x);
    want_apart(c, "y", &a->y, "codes", &a->codes);
}

float ref_int_row(float *x, size_t n, uint32_t turn, int8_t *q)
{
    float most = 0;
    bool nan = false;
    if (turn)
        coded_turn(x, n, turn);
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        most = a > most ? a : most;
        nan |= a != a;
    }
    const float scale = most / 127 > 1e-30F ? most / 127 : 1e-30F;
    for (size_t i = 0; i < n; i++) {
        float v = x[i] / scale;
        v = v > 127 ? 127 : v > -128 ? v : -128; /* NaN: the scale says it */
        q[i] = (int8_t)((v + ROUNDER) - ROUNDER);
    }
    return nan ? NAN : scale; /* infinity is its own scale: 0 times it is NaN */
}

static size_t scratch(const struct op_env *env, const struct op_int_linear *a)
{
    (void)env;
    return op_mul(op_row(&a->x), sizeof(float) + 2); /* a row, and codes of it and of a weight's */
}

static berth_status reference(const struct op_env *env, const struct op_int_linear *a,
                              berth_err *err)
{
    const struct coded how = int_coded_of(a);
    size_t rows, unused, of_x = 0, of_y = 0, of_add = 0, k = op_row(&a->x), n = op_row(&a->y);
    float *x = env->scratch;
    int8_t *q = (int8_t *)(x + k), *w = q + k;
    op_rows(&a->x, &rows, &of_x);
    op_rows(&a->y, &rows, &of_y);
    op_rows(&a->add, &unused, &of_add);
    for (size_t m = 0; m < rows; m++) {
        if (op_cancelled(env))
            return ref_cancelled("int_linear", err);
        memcpy(x, op_bytes_on(&a->x, m * of_x), k * sizeof *x);
        const float sx = ref_int_row(x, k, how.turn, q);
        float *y = op_bytes_on(&a->y, m * of_y);
        for (size_t j = 0; j < n; j++) {
            int32_t sum = 0;
            coded_ints(&how, a->row + j, 0, k, w);
            for (size_t i = 0; i < k; i++)
                sum += q[i] * w[i];
            float v = (float)sum * (sx * coded_row_scale(&how, a->row + j));
            v += a->bias.data ? op_f32(&a->bias)[j] : 0;
            v += a->add.data ? op_bytes_on(&a->add, m * of_add)[j] : 0;
            y[j] = a->after == OP_AFTER_GELU_TANH ? (float)ref_gelu_tanh((double)v) : v;
        }
    }
    return BERTH_OK;
}

OP_DEFINE(int_linear, .scratch = scratch,
          .operand = { IN(op_int_linear, x), IN(op_int_linear, codes), IN(op_int_linear, rows),
                       IN(op_int_linear, blocks), IN(op_int_linear, bias), IN(op_int_linear, add),
                       OUT(op_int_linear, y) });
