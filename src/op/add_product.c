/* add_product.c: w + scale * up . down, what adapters add to a weight. */
#include "op/op_def.h"

static void want_matrix(struct op_check *c, const char *name, const struct view *v)
{
    want_f32(c, name, v);
    want_dims(c, name, v, 2);
    want_even_rows(c, name, v);
}

static void check(struct op_check *c, const struct op_add_product *a)
{
    want_matrix(c, "w", &a->w);
    want_matrix(c, "up", &a->up);
    want_matrix(c, "down", &a->down);
    if (c->s)
        return;
    const uint64_t *w = a->w.shape.dim, *up = a->up.shape.dim, *down = a->down.shape.dim;
    if (up[0] != w[0] || down[1] != w[1] || up[1] != down[0])
        REFUSE(c, "up %s and down %s do not make w %s", SHAPE(&a->up), SHAPE(&a->down),
               SHAPE(&a->w));
    want_apart(c, "w", &a->w, "up", &a->up);
    want_apart(c, "w", &a->w, "down", &a->down);
}

/* In F32 and in order, as ops.h says. */
static berth_status reference(const struct op_env *env, const struct op_add_product *a,
                              berth_err *err)
{
    (void)env, (void)err;
    const size_t rows = (size_t)a->w.shape.dim[0], cols = (size_t)a->w.shape.dim[1],
                 rank = (size_t)a->down.shape.dim[0];
    for (size_t r = 0; r < rows; r++) {
        float *w = op_row_at(&a->w, r);
        const float *up = op_row_at(&a->up, r);
        for (size_t c = 0; c < cols; c++) {
            float sum = 0;
            for (size_t k = 0; k < rank; k++)
                sum += up[k] * op_row_at(&a->down, k)[c];
            w[c] += a->scale * sum;
        }
    }
    return BERTH_OK;
}

OP_DEFINE(add_product, .operand = { INOUT(op_add_product, w), IN(op_add_product, up),
                                    IN(op_add_product, down) });
