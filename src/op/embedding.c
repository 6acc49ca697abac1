/* embedding.c: rows of a table. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_embedding *a)
{
    want_dense(c, "y", &a->y);
    want_operand(c, "ids", &a->ids);
    want_dims(c, "table", &a->table, 2);
    want_dims(c, "ids", &a->ids, 1);
    want_dims(c, "y", &a->y, 2);
    if (c->s)
        return;
    if (a->ids.dtype != DT_I32 || !view_contiguous(&a->ids))
        REFUSE(c, "ids %s is %s, not I32 without gaps", SHAPE(&a->ids), dtype_name(a->ids.dtype));
    want_weight(c, "table", &a->table, a->table.shape.dim[1]);
    if (a->y.shape.dim[0] != a->ids.shape.dim[0] || a->y.shape.dim[1] != a->table.shape.dim[1])
        REFUSE(c, "y %s is not that of ids %s and table %s", SHAPE(&a->y), SHAPE(&a->ids),
               SHAPE(&a->table));
    want_apart(c, "y", &a->y, "ids", &a->ids);
    want_apart(c, "y", &a->y, "table", &a->table);
}

static berth_status reference(const struct op_env *env, const struct op_embedding *a,
                              berth_err *err)
{
    (void)env;
    const struct dtype_desc *t = dtype_desc(a->table.dtype);
    size_t D = op_row(&a->y), rows = (size_t)a->table.shape.dim[0], bytes = D / t->elems * t->bytes;
    const int32_t *id = a->ids.data;
    for (size_t i = 0; i < (size_t)a->ids.shape.dim[0]; i++) {
        if (id[i] < 0 || (size_t)id[i] >= rows)
            return err_set(err, BERTH_EINVAL, "embedding: id %d at %zu, the table has %zu rows",
                           (int)id[i], i, rows);
        const char *row = (const char *)a->table.data + (size_t)id[i] * bytes;
        t->to_f32(row, op_f32(&a->y) + i * D, D);
    }
    return BERTH_OK;
}

OP_DEFINE(embedding,
          .operand = { IN(op_embedding, table), IN(op_embedding, ids), OUT(op_embedding, y) });
