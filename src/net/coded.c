/* Layers whose weights are codes (format/layout.h): found with what stands beside them, and
 * expanded for the op that runs. */
#include "net/use.h"

#include "format/layout.h"

#define PIECE_HOST ((size_t)8 << 20) /* bytes of values at a time: they stay in a cache */
#define PIECE_CARD ((size_t)64 << 20)
#define PIECE_ROWS 256 /* slices of biases and results then begin where libraries want them */

/* ---- finding ---- */

/* A tensor that stands beside a weight, in its block. */
static struct net_tensor beside(const struct net *n, const struct weights_entry *e)
{
    uint64_t at;
    if (!e || !map_get(&n->tensors, e->name, e->name_len, &at))
        return (struct net_tensor) { 0 };
    size_t block = (size_t)(at >> 32), k = (size_t)(at & UINT32_MAX);
    struct res_tensor_at t = res_tensor_at(n->m, block, k);
    return (struct net_tensor) { .there = true,
                                 .block = (uint32_t)block,
                                 .index = res_blocks(n->m)->at[block].first + k,
                                 .dtype = t.dtype,
                                 .off = t.off,
                                 .bytes = t.bytes,
                                 .stored = e->shape,
                                 .shape = e->shape };
}

/* Rows that are padding go where a bias says how many there are. */
static void crop_rows(struct net_layer *l, uint32_t pad)
{
    struct net_tensor *w = &l->weight;
    uint64_t n = l->bias.there && l->bias.shape.ndim == 1 ? l->bias.shape.dim[0] : 0;
    if (pad > 1 && n && n < w->shape.dim[0] && w->shape.dim[0] - n < pad)
        w->shape.dim[0] = w->stored.dim[0] = n;
}

berth_status net_find_codes(struct net *n, const struct weights_entry *e, struct net_layer *l,
                            berth_err *err)
{
    const struct weights_layout *how = e->layout;
    struct net_tensor *w = &l->weight;
    if (!how || e->shape.ndim != 2)
        return BERTH_OK;
    w->pad = how->kind->pad;
    crop_rows(l, w->pad);
    if (n->trace)
        return BERTH_OK;
    l->pre = beside(n, how->pre);
    if (w->dtype != e->dtype) /* adapters were merged into it: they are values now */
        return BERTH_OK;
    struct net_coded *c = arena_alloc(&n->mem, sizeof *c);
    if (!c)
        return err_set(err, BERTH_ENOMEM, "a layer's codes");
    if (layout_coded(n->w, e, &c->how, err))
        return err->code;
    c->codes = beside(n, e);
    c->rows = beside(n, how->rows);
    c->blocks = beside(n, how->blocks);
    c->blocks.dtype = how->block_type;
    c->by_scale = layout_is_plain(how);
    c->exact = how->exact;
    if (c->by_scale && l->scale.there)
        c->how.scale = l->scale_value; /* a merge may have chosen another */
    uint64_t count;
    if (!shape_count(&c->rows.shape, &count) || count == 1)
        c->rows.there = false; /* it is c->how.scale */
    w->coded = c;
    return BERTH_OK;
}

/* ---- expanding ---- */

static struct view packed_part(struct use *u, const struct net_tensor *t)
{
    return t->there ? net_packed(t->dtype, &t->shape, use_bytes(u, t)) : (struct view) { 0 };
}

/* Where they go; the layer's block is acquired then. */
static struct op_decode decoding(struct use *u, const struct net_coded *c, enum dtype to,
                                 const struct shape *s)
{
    uint64_t n = s->dim[0] * s->dim[1] * net_type_bytes(to);
    void *at = (void *)(uintptr_t)use_place(u, n);
    return (struct op_decode) { .codes = packed_part(u, &c->codes),
                                .rows = packed_part(u, &c->rows),
                                .blocks = packed_part(u, &c->blocks),
                                .y = net_packed(to, s, at),
                                .how = c->how };
}

struct view use_decoded(struct use *u, const struct net_tensor *t, uint64_t row,
                        const struct shape *s, enum dtype to)
{
    struct op_decode a = decoding(u, t->coded, to, s);
    a.row = t->row + row;
    use_op_decode(u, &a);
    return a.y;
}

struct view use_decoded_rows(struct use *u, const struct net_tensor *t, const struct view *ids,
                             enum dtype to)
{
    const struct shape s = { .ndim = 2, .dim = { ids->shape.dim[0], t->shape.dim[1] } };
    struct op_decode a = decoding(u, t->coded, to, &s);
    a.ids = *ids;
    use_op_decode(u, &a);
    return a.y;
}

/* ---- products ---- */

/* x times what inputs of the layer are multiplied by, a copy. */
static struct view with_pre(struct use *u, const struct net_layer *l, struct view x)
{
    struct shape s = x.shape, row = { .ndim = s.ndim }, flat = { .ndim = 1 };
    uint64_t n = 1;
    for (int i = 0; i < s.ndim; i++) {
        n *= s.dim[i]; /* fits: x lies in memory */
        row.dim[i] = i == s.ndim - 1 ? s.dim[i] : 1;
    }
    flat.dim[0] = s.ndim ? s.dim[s.ndim - 1] : 0;
    const size_t each = net_type_bytes(x.dtype);
    if (l->pre.shape.dim[0] != flat.dim[0]) {
        char text[SHAPE_TEXT_MAX];
        net_fail(u->r, BERTH_EINVAL, "%s: a factor for each of %llu columns, x is %s", u->layer,
                 (unsigned long long)l->pre.shape.dim[0], shape_text(&s, text));
        return x;
    }
    struct view y = net_packed(x.dtype, &s, (void *)(uintptr_t)use_place(u, n * each));
    struct view p = net_packed(x.dtype, &flat, (void *)(uintptr_t)use_place(u, flat.dim[0] * each));
    use_op_copy(u, &(struct op_copy) { .x = packed_part(u, &l->pre), .y = p });
    use_op_copy(u, &(struct op_copy) { .x = x, .y = y });
    use_op_binary(u, &(struct op_binary) {
                         .kind = OP_MUL, .a = y, .b = net_packed(x.dtype, &row, p.data), .y = y });
    return y;
}

static uint64_t piece_rows(const struct use *u, const struct shape *w, enum dtype to)
{
    const size_t piece = u->r->n->host ? PIECE_HOST : PIECE_CARD;
    uint64_t row = w->dim[1] * net_type_bytes(to), n = row ? piece / row : 0;
    n = n < PIECE_ROWS ? PIECE_ROWS : n / PIECE_ROWS * PIECE_ROWS;
    return n < w->dim[0] ? n : w->dim[0];
}

static struct view part(struct use *u, const struct view *v, uint64_t at, uint64_t n)
{
    return v->shape.ndim ? net_part(u->r, *v, v->shape.ndim - 1, at, at + n) : *v;
}

/* Rows of the weight, some at a time, each multiplied at once. */
static void in_pieces(struct use *u, const struct net_tensor *t, const struct shape *w,
                      const struct op_linear *a)
{
    const uint64_t piece = piece_rows(u, w, a->x.dtype);
    for (uint64_t at = 0; at < w->dim[0] && !u->r->bad; at += piece) {
        size_t before = u->places;
        uint64_t n = w->dim[0] - at < piece ? w->dim[0] - at : piece;
        const struct shape s = { .ndim = 2, .dim = { n, w->dim[1] } };
        struct op_linear some = *a;
        some.w = use_decoded(u, t, at, &s, a->x.dtype);
        some.y = part(u, &a->y, at, n);
        some.add = part(u, &a->add, at, n);
        some.bias = part(u, &a->bias, at, n);
        use_op_linear(u, &some);
        use_give(u, before);
    }
}

/* Products of whole numbers, where that is wanted and can be. */
static bool in_ints(struct use *u, const struct net_tensor *t, const struct shape *w,
                    const struct op_linear *a)
{
    const struct net *n = u->r->n;
    const struct net_coded *c = t->coded;
    if (!n->int8 || !n->host || c->exact || !coded_is_int(&c->how) || a->x.dtype != DT_F32 ||
        a->y.dtype != DT_F32 || w->dim[1] != c->codes.shape.dim[1] || w->dim[1] > OP_INT_COLUMNS)
        return false;
    use_op_int_linear(u, &(struct op_int_linear) { .x = a->x,
                                                   .codes = packed_part(u, &c->codes),
                                                   .rows = packed_part(u, &c->rows),
                                                   .blocks = packed_part(u, &c->blocks),
                                                   .bias = a->bias,
                                                   .add = a->add,
                                                   .y = a->y,
                                                   .row = t->row,
                                                   .how = c->how,
                                                   .after = a->after });
    return true;
}

void use_linear(struct use *u, const struct net_layer *l, const struct net_tensor *t,
                struct shape w, struct op_linear *a)
{
    const uint64_t cols = a->x.shape.ndim ? a->x.shape.dim[a->x.shape.ndim - 1] : 0;
    if (t->pad && cols < w.dim[1] && w.dim[1] - cols < t->pad)
        w.dim[1] = cols; /* what is behind them is padding */
    if (l->pre.there)
        a->x = with_pre(u, l, a->x);
    if (t->coded && !t->coded->by_scale && !t->transpose && shape_eq(&t->shape, &t->stored)) {
        if (!in_ints(u, t, &w, a))
            in_pieces(u, t, &w, a);
        return;
    }
    a->w = use_weight(u, t, &w);
    use_op_linear(u, a);
}
