/* move.c: copies as simple as their layouts allow, looking up, padding, resizing. */
#include "op/cuda/own.h"

#include <assert.h>

static_assert(STRIDED_DIMS >= SHAPE_MAX_DIMS, "every view has room");

/* ---- copy, concat ---- */

/* Two dimensions turn over in tiles; `across` lies together in x, the last one in y. */
static berth_status copy_transposed(const struct op_env *env, const struct op_copy *a,
                                    const struct strided *s, int across, unsigned elem,
                                    berth_err *err)
{
    int last = s->nd - 1;
    struct turn_args k = { .x = a->x.data,
                           .y = a->y.data,
                           .across = s->dim[across],
                           .along = s->dim[last],
                           .sx_along = s->sx[last] / elem,
                           .sy_across = s->sy[across] / elem };
    uint64_t wide = (k.across + CUDA_TILE - 1) / CUDA_TILE;
    uint64_t high = (k.along + CUDA_TILE - 1) / CUDA_TILE;
    k.tiles_across = fast_div_of(wide);
    k.tiles_along = fast_div_of(high);
    k.tiles = wide * high;
    for (int i = 0; i < last; i++) {
        if (i == across)
            continue;
        k.dim[k.nd] = fast_div_of(s->dim[i]);
        k.sx[k.nd] = s->sx[i] / elem;
        k.sy[k.nd] = s->sy[i] / elem;
        k.nd++;
        k.tiles *= s->dim[i];
    }
    const struct cuda_launch l = { .module = CUDA_MODULE_move,
                                   .kernel = elem == 4 ? "turn_4" : "turn_2",
                                   .type = DT_NONE,
                                   .grid = { own_blocks(k.tiles, 1) },
                                   .block = { CUDA_TILE, OWN_THREADS / CUDA_TILE },
                                   .args = &k };
    return cuda_launch(env, &l, err);
}

/* Elements of one type from one layout to another of the same shape. */
static berth_status copy_strided(const struct op_env *env, const struct view *x,
                                 const struct view *y, berth_err *err)
{
    unsigned elem = dtype_desc(x->dtype)->bytes;
    struct strided s = { .nd = x->shape.ndim };
    for (int i = 0; i < s.nd; i++) {
        s.dim[i] = x->shape.dim[i];
        s.sx[i] = x->stride[i];
        s.sy[i] = s.dim[i] > 1 ? y->stride[i] : 0;
    }
    strided_merge(&s);
    strided_sort(&s);
    strided_merge(&s);
    int across = strided_turn(&s, elem);
    if (across >= 0)
        return copy_transposed(env, &(struct op_copy) { .x = *x, .y = *y }, &s, across, elem, err);
    unsigned unit = strided_unit(&s, (uintptr_t)x->data, (uintptr_t)y->data, elem);
    strided_in_units(&s, unit, elem);
    struct copy_args k = { .x = x->data, .y = y->data, .n = 1, .nd = s.nd };
    for (int i = 0; i < s.nd; i++) {
        k.dim[i] = fast_div_of(s.dim[i]);
        k.sx[i] = s.sx[i];
        k.sy[i] = s.sy[i];
        k.n *= s.dim[i];
    }
    const char *kernel = unit == 16  ? "copy_16"
                         : unit == 8 ? "copy_8"
                         : unit == 4 ? "copy_4"
                                     : "copy_2";
    return own_launch(env, CUDA_MODULE_move, kernel, DT_NONE, k.n, &k, err);
}

/* Without gaps on either side. */
static berth_status convert(const struct op_env *env, const struct op_copy *a, berth_err *err)
{
    size_t n = op_count(&a->y);
    if (!own_is_type(a->x.dtype))
        return cuda_expand(env, a->x.dtype, a->x.data, a->y.dtype, a->y.data, n, err);
    struct convert_args k = {
        .x = a->x.data, .y = a->y.data, .n = n, .from = own_type(a->x.dtype)
    };
    k.packed = own_aligned(k.x) && own_aligned(k.y);
    size_t per_unit = k.packed ? own_per_unit(a->y.dtype) : 1;
    return own_launch(env, CUDA_MODULE_move, "convert", a->y.dtype, n / per_unit + per_unit, &k,
                      err);
}

berth_status cuda_copy(const struct op_env *env, const struct op_copy *a, berth_err *err)
{
    if (a->x.dtype != a->y.dtype)
        return convert(env, a, err);
    struct view y;
    if (op_copy_target(a, &y, err))
        return err->code;
    return copy_strided(env, &a->x, &y, err);
}

berth_status cuda_concat(const struct op_env *env, const struct op_concat *a, berth_err *err)
{
    return op_concat_by(env, a, cuda_copy, err);
}

/* ---- embedding ---- */

/* Stored rows wait in scratch to be expanded. */
static bool embedding_expands(const struct op_embedding *a)
{
    return !own_is_type(a->table.dtype);
}

static uint64_t row_bytes(const struct op_embedding *a)
{
    const struct dtype_desc *t = dtype_desc(a->table.dtype);
    return op_row(&a->y) / t->elems * t->bytes;
}

size_t cuda_embedding_scratch(const struct op_env *env, const struct op_embedding *a)
{
    (void)env;
    return embedding_expands(a) ? op_mul(row_bytes(a), a->ids.shape.dim[0]) : 0;
}

/* Rows as they are stored, to dst. */
static berth_status gather(const struct op_env *env, const struct op_embedding *a, void *dst,
                           berth_err *err)
{
    uint64_t bytes = row_bytes(a);
    unsigned unit = own_aligned(a->table.data) && own_aligned(dst) && own_whole(bytes) ? 16
                    : ((uintptr_t)a->table.data | (uintptr_t)dst | bytes) % 2          ? 1
                                                                                       : 2;
    struct gather_args k = { .table = a->table.data,
                             .ids = a->ids.data,
                             .y = dst,
                             .n = a->ids.shape.dim[0] * (bytes / unit),
                             .rows = a->table.shape.dim[0],
                             .row = fast_div_of(bytes / unit) };
    const char *kernel = unit == 16 ? "gather_16" : unit == 2 ? "gather_2" : "gather_1";
    return own_launch(env, CUDA_MODULE_move, kernel, DT_NONE, k.n, &k, err);
}

berth_status cuda_embedding(const struct op_env *env, const struct op_embedding *a, berth_err *err)
{
    enum dtype from = a->table.dtype, to = a->y.dtype;
    if (from == to)
        return gather(env, a, a->y.data, err);
    if (embedding_expands(a)) {
        if (gather(env, a, env->scratch, err) ||
            cuda_expand(env, from, env->scratch, to, a->y.data, op_count(&a->y), err))
            return err_add(err, "embedding");
        return BERTH_OK;
    }
    struct gather_args k = { .table = a->table.data,
                             .ids = a->ids.data,
                             .y = a->y.data,
                             .n = op_count(&a->y),
                             .rows = a->table.shape.dim[0],
                             .row = fast_div_of(op_row(&a->y)),
                             .from = own_type(from) };
    return own_launch(env, CUDA_MODULE_move, "embedding", to, k.n, &k, err);
}

/* ---- resize2d, pad2d ---- */

berth_status cuda_resize2d(const struct op_env *env, const struct op_resize2d *a, berth_err *err)
{
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim; /* sides: up to 2^22, says the check */
    struct resize2d_args k = { .x = a->x.data,
                               .y = a->y.data,
                               .n = op_count(&a->y),
                               .h = fast_div_of(y[2]),
                               .w = fast_div_of(y[3]),
                               .in_h = (uint32_t)x[2],
                               .in_w = (uint32_t)x[3],
                               .scale_h = (float)x[2] / (float)y[2],
                               .scale_w = (float)x[3] / (float)y[3],
                               .bilinear = a->kind == OP_BILINEAR };
    return own_launch(env, CUDA_MODULE_move, "resize2d", a->y.dtype, k.n, &k, err);
}

berth_status cuda_pad2d(const struct op_env *env, const struct op_pad2d *a, berth_err *err)
{
    int nd = a->x.shape.ndim;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    struct pad2d_args k = { .x = a->x.data,
                            .y = a->y.data,
                            .n = op_count(&a->y),
                            .h = fast_div_of(y[nd - 2]),
                            .w = fast_div_of(y[nd - 1]),
                            .in_h = x[nd - 2],
                            .in_w = x[nd - 1],
                            .top = a->top,
                            .left = a->left,
                            .kind = (int32_t)a->kind };
    return own_launch(env, CUDA_MODULE_move, "pad2d", a->y.dtype, k.n, &k, err);
}
