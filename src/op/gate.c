/* gate.c: x + gate * z. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_gate *a)
{
    want_even_act(c, "x", &a->x);
    want_even_act(c, "z", &a->z);
    want_even_act(c, "y", &a->y);
    want_dims_at_least(c, "x", &a->x, 2);
    want_same_shape(c, "x", &a->x, "z", &a->z);
    want_same_shape(c, "x", &a->x, "y", &a->y);
    want_per_item(c, "gate", &a->gate, &a->x);
    want_same_or_apart(c, "y", &a->y, "x", &a->x);
    want_apart(c, "y", &a->y, "z", &a->z);
    want_apart(c, "y", &a->y, "gate", &a->gate);
}

static berth_status reference(const struct op_env *env, const struct op_gate *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = op_row(&a->x), rows, sx, sz, sy;
    op_rows(&a->x, &rows, &sx);
    op_rows(&a->z, &rows, &sz);
    op_rows(&a->y, &rows, &sy);
    for (size_t r = 0; r < rows; r++) {
        const float *x = op_bytes_on(&a->x, r * sx), *z = op_bytes_on(&a->z, r * sz);
        const float *gate = op_row_at(&a->gate, r / (rows / (size_t)a->x.shape.dim[0]));
        float *y = op_bytes_on(&a->y, r * sy);
        for (size_t i = 0; i < n; i++)
            y[i] = (float)((double)x[i] + (double)gate[i] * (double)z[i]);
    }
    return BERTH_OK;
}

OP_DEFINE(gate, .operand = { IN(op_gate, x), IN(op_gate, gate), IN(op_gate, z), OUT(op_gate, y) });
