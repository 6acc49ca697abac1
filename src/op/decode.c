/* decode.c: values of weights whose numbers are codes (tensor/coded.h). */
#include "op/op_def.h"

#include <inttypes.h>

static bool is_code(enum dtype t)
{
    return t == DT_I8 || t == DT_I4 || t == DT_U4 || t == DT_F4_E2M1 || t == DT_F8_E4M3 ||
           t == DT_F8_E5M2;
}

static bool is_power_of(uint32_t n, uint32_t of)
{
    while (n > 1 && n % of == 0)
        n /= of;
    return n == 1;
}

static void check_blocks(struct op_check *c, const struct op_decode *a)
{
    const struct coded how = coded_of(a);
    want_operand(c, "blocks", &a->blocks);
    if (c->s)
        return;
    if (a->blocks.dtype != how.block_type ||
        (how.block_type != DT_F8_E4M3 && how.block_type != DT_F8_E8M0 && how.block_type != DT_F32))
        REFUSE(c, "blocks are %s, not %s", dtype_name(a->blocks.dtype), dtype_name(how.block_type));
    if (how.group > CODED_TURN_MAX || !is_power_of(how.group, 2) || how.cols % how.group)
        REFUSE(c, "groups of %u of codes %s", how.group, SHAPE(&a->codes));
    else if (op_count(&a->blocks) != coded_blocks_stored(&how, a->codes.shape.dim[0]) ||
             !view_contiguous(&a->blocks))
        REFUSE(c, "blocks %s are not those of codes %s", SHAPE(&a->blocks), SHAPE(&a->codes));
}

static void check_ids(struct op_check *c, const struct op_decode *a)
{
    want_operand(c, "ids", &a->ids);
    want_dims(c, "ids", &a->ids, 1);
    if (!c->s && (a->ids.dtype != DT_I32 || !view_contiguous(&a->ids) ||
                  a->ids.shape.dim[0] != a->y.shape.dim[0]))
        REFUSE(c, "ids %s of %s are not for y %s", SHAPE(&a->ids), dtype_name(a->ids.dtype),
               SHAPE(&a->y));
    want_apart(c, "y", &a->y, "ids", &a->ids);
}

static void check(struct op_check *c, const struct op_decode *a)
{
    want_dense(c, "y", &a->y);
    want_dims(c, "y", &a->y, 2);
    want_operand(c, "codes", &a->codes);
    want_dims(c, "codes", &a->codes, 2);
    if (c->s)
        return;
    const struct coded how = coded_of(a);
    const uint64_t *w = a->codes.shape.dim, *y = a->y.shape.dim;
    if (!is_code(a->codes.dtype) || how.type != a->codes.dtype)
        REFUSE(c, "codes of %s", dtype_name(a->codes.dtype));
    want_weight(c, "codes", &a->codes, w[1]);
    if (y[1] > w[1] || (!op_has(&a->ids) && (a->row > w[0] || y[0] > w[0] - a->row)))
        REFUSE(c, "codes %s have no rows %" PRIu64 " and on for y %s", SHAPE(&a->codes), a->row,
               SHAPE(&a->y));
    if (how.turn && (how.turn > CODED_TURN_MAX || !is_power_of(how.turn, 4) || w[1] % how.turn))
        REFUSE(c, "codes %s turned in groups of %u", SHAPE(&a->codes), how.turn);
    if (op_has(&a->rows))
        want_f32(c, "rows", &a->rows);
    if (op_has(&a->rows) && !c->s && (op_count(&a->rows) != w[0] || !view_contiguous(&a->rows)))
        REFUSE(c, "rows %s are not for codes %s", SHAPE(&a->rows), SHAPE(&a->codes));
    if (how.how != BLOCKS_NONE)
        check_blocks(c, a);
    if (op_has(&a->ids))
        check_ids(c, a);
    want_apart(c, "y", &a->y, "codes", &a->codes);
}

berth_status ref_decode_rows(const struct op_decode *a, size_t from, size_t to, berth_err *err)
{
    const struct coded how = coded_of(a);
    const int32_t *id = a->ids.data;
    size_t k = op_row(&a->y);
    for (size_t i = from; i < to; i++) {
        uint64_t row = id ? (uint64_t)id[i] : a->row + i;
        if (id && (id[i] < 0 || row >= a->codes.shape.dim[0]))
            return err_set(err, BERTH_EINVAL, "decode: id %d at %zu, there are %" PRIu64 " rows",
                           (int)id[i], i, a->codes.shape.dim[0]);
        coded_expand(&how, row, 0, k, op_f32(&a->y) + i * k);
    }
    return BERTH_OK;
}

static berth_status reference(const struct op_env *env, const struct op_decode *a, berth_err *err)
{
    (void)env;
    return ref_decode_rows(a, 0, (size_t)a->y.shape.dim[0], err);
}

OP_DEFINE(decode, .operand = { IN(op_decode, codes), IN(op_decode, rows), IN(op_decode, blocks),
                               IN(op_decode, ids), OUT(op_decode, y) });
