/* layers: the doors of a forward's layers. Each derives the shape of its result, gathers the
 * layer's tensors (use.h), and runs one op. */
#include "net/use.h"

#include "base/sz.h"

#include <inttypes.h>

static struct view view_of(struct act a)
{
    return a.addr ? net_view(&a) : (struct view) { 0 };
}

/* ---- products ---- */

static uint64_t last_dim(const struct shape *s)
{
    return s->ndim ? s->dim[s->ndim - 1] : 0;
}

/* All dimensions but the last as one. */
static uint64_t row_count(const struct shape *s)
{
    uint64_t n = s->ndim > 0;
    for (int i = 0; i < s->ndim - 1; i++)
        n *= s->dim[i]; /* fits: net_new() saw it */
    return n;
}

/* The act the result goes to: add's place if there is one, else a new one of type `to`. */
static struct act result_in(struct net_run *r, enum dtype to, const struct shape *s,
                            const struct act *add)
{
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (!add)
        return net_new_of(r, to, s);
    if (!r->bad && !shape_eq(s, &add->shape))
        net_fail(r, BERTH_EINVAL, "adding %s to %s", shape_text(&add->shape, have),
                 shape_text(s, want));
    return *add;
}

/* y after an op: nothing when the run went bad. */
static struct act result(struct use *u, struct act y)
{
    use_end(u);
    return u->r->bad ? (struct act) { 0 } : y;
}

/* The result is of type `to`; add: NULL, or what is added, of that type and in its place. */
static struct act linear(struct net_run *r, struct act x, const char *layer, bool bias,
                         enum dtype to, const struct act *add)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return (struct act) { 0 };
    struct shape w, s = x.shape;
    const struct net_layer *l = net_layer_with(r, layer, 2, bias, &w);
    if (!l)
        return (struct act) { 0 };
    if (s.ndim)
        s.dim[s.ndim - 1] = w.dim[0];
    struct act y = result_in(r, to, &s, add);
    u.keep = l->weight.block;
    struct op_linear a = { .x = view_of(x),
                           .y = view_of(y),
                           .add = add ? view_of(y) : (struct view) { 0 } };
    if (bias)
        a.bias = use_param(&u, &l->bias);
    a.scaled = l->scale.there;
    a.scale = l->scale_value;
    use_linear(&u, l, &l->weight, w, &a);
    return result(&u, y);
}

struct act net_linear(struct net_run *r, struct act x, const char *layer)
{
    return linear(r, x, layer, true, net_dtype(r), NULL);
}

struct act net_linear_no_bias(struct net_run *r, struct act x, const char *layer)
{
    return linear(r, x, layer, false, net_dtype(r), NULL);
}

struct act net_linear_f32(struct net_run *r, struct act x, const char *layer)
{
    return linear(r, x, layer, true, DT_F32, NULL);
}

struct act net_linear_add(struct net_run *r, struct act x, const char *layer, struct act add)
{
    return linear(r, x, layer, true, add.dtype, &add);
}

/* Rows [row, row + rows) of a tensor; rows 0: all. False: it has not so many, or they do not lie
 * together. */
static bool some_rows(const struct net_tensor *t, uint64_t row, uint64_t rows,
                      struct net_tensor *out)
{
    uint64_t each;
    *out = *t;
    if (!rows)
        return true;
    if (t->transpose || t->stored.ndim < 1 || row > t->stored.dim[0] ||
        rows > t->stored.dim[0] - row || !dtype_bytes(t->dtype, net_unit(&t->stored), &each))
        return false;
    out->row += row;
    out->off += row * each;
    out->bytes = rows * each;
    out->stored.dim[0] = out->shape.dim[0] = rows;
    return true;
}

static void product(struct use *u, const struct net_layer *l, struct shape ws,
                    const struct net_product *p)
{
    struct net_tensor w, bias;
    size_t before = u->places;
    if (!some_rows(&l->weight, p->row, p->rows, &w) ||
        (!p->no_bias && !some_rows(&l->bias, p->row, p->rows, &bias))) {
        net_fail(u->r, BERTH_EINVAL, "%s: no rows %" PRIu64 " to %" PRIu64 " in it", p->layer,
                 p->row, p->row + p->rows);
        return;
    }
    ws.dim[0] = p->rows ? p->rows : ws.dim[0];
    u->keep = w.block;
    struct op_linear a = {
        .x = p->x, .y = p->y, .after = p->after, .scaled = l->scale.there, .scale = l->scale_value
    };
    if (!p->no_bias)
        a.bias = use_param(u, &bias);
    use_linear(u, l, &w, ws, &a);
    use_give(u, before);
}

void net_products(struct net_run *r, const struct net_product *p, size_t n)
{
    struct use u;
    struct shape ws;
    if (!n || !use_begin(&u, r, p->layer))
        return;
    const struct net_layer *l = net_layer_with(r, p->layer, 2, !p->no_bias, &ws);
    for (size_t i = 0; i < n && l && !r->bad; i++) {
        if (strcmp(p[i].layer, p->layer) != 0)
            BUG("products of '%s' and '%s' at once", p->layer, p[i].layer);
        product(&u, l, ws, &p[i]);
    }
    use_end(&u);
}

void net_product(struct net_run *r, const struct net_product *p)
{
    net_products(r, p, 1);
}

/* add: NULL, or what is added; `in`: in its place. */
static struct act conv2d(struct net_run *r, struct act x, const char *layer, struct net_conv c,
                         bool bias, const struct act *add, bool in)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return (struct act) { 0 };
    struct shape ws;
    const struct net_layer *l = net_layer_with(r, layer, 4, bias, &ws);
    if (!l)
        return (struct act) { 0 };
    const uint64_t *w = ws.dim, *d = x.shape.dim;
    uint32_t stride = c.stride ? c.stride : 1;
    const struct shape s = { .ndim = 4,
                             .dim = { d[0], w[0], op_conv_side(d[2], c.top, c.bottom, w[2], stride),
                                      op_conv_side(d[3], c.left, c.right, w[3], stride) } };
    struct act y = result_in(r, net_dtype(r), &s, in ? add : NULL);
    u.keep = l->weight.block;
    struct op_conv2d a = { .x = view_of(x),
                           .y = view_of(y),
                           .add = add ? view_of(*add) : (struct view) { 0 },
                           .stride = stride,
                           .top = c.top,
                           .left = c.left,
                           .bottom = c.bottom,
                           .right = c.right };
    if (bias)
        a.bias = use_param(&u, &l->bias);
    a.scaled = l->scale.there;
    a.scale = l->scale_value;
    a.w = use_weight(&u, &l->weight, &ws);
    use_op_conv2d(&u, &a);
    return result(&u, y);
}

struct act net_conv2d(struct net_run *r, struct act x, const char *layer, struct net_conv c)
{
    return conv2d(r, x, layer, c, true, NULL, false);
}

struct act net_conv2d_no_bias(struct net_run *r, struct act x, const char *layer, struct net_conv c)
{
    return conv2d(r, x, layer, c, false, NULL, false);
}

struct act net_conv2d_add(struct net_run *r, struct act x, const char *layer, struct net_conv c,
                          struct act add)
{
    return conv2d(r, x, layer, c, true, &add, true);
}

struct act net_conv2d_plus(struct net_run *r, struct act x, const char *layer, struct net_conv c,
                           struct act add)
{
    return conv2d(r, x, layer, c, true, &add, false);
}

/* [B, T, heads * D] as [B, T, heads, D]. */
static struct view heads_of(struct act x, uint32_t heads)
{
    struct view v = view_of(x);
    if (v.shape.ndim != 3 || !heads || v.shape.dim[2] % heads)
        return v; /* the op's check says it */
    v.shape.ndim = 4;
    v.shape.dim[3] = v.shape.dim[2] / heads;
    v.shape.dim[2] = heads;
    v.stride[3] = net_type_bytes(v.dtype);
    v.stride[2] = v.shape.dim[3] * v.stride[3];
    return v;
}

struct act net_attention(struct net_run *r, struct act q, struct act k, struct act v,
                         struct net_attn n)
{
    struct use u;
    if (!use_begin(&u, r, "attention"))
        return (struct act) { 0 };
    struct act y = net_new(r, &q.shape);
    struct op_attention a = { .q = heads_of(q, n.heads),
                              .k = heads_of(k, n.heads),
                              .v = heads_of(v, n.heads),
                              .y = heads_of(y, n.heads),
                              .mask = view_of(n.mask),
                              .scale = n.scale,
                              .causal = n.causal,
                              .past = n.past,
                              .window = n.window };
    use_op_attention(&u, &a);
    return result(&u, y);
}

void net_attend(struct net_run *r, struct view q, struct view k, struct view v, struct view y,
                struct net_attn n)
{
    struct use u;
    if (!use_begin(&u, r, "attention"))
        return;
    use_op_attention(&u, &(struct op_attention) { .q = q,
                                                  .k = k,
                                                  .v = v,
                                                  .y = y,
                                                  .mask = view_of(n.mask),
                                                  .scale = n.scale,
                                                  .causal = n.causal,
                                                  .past = n.past,
                                                  .window = n.window });
    use_end(&u);
}

void net_rotate(struct net_run *r, struct view q, struct view k, const struct net_rope *how)
{
    const char *wq = how->wq, *wk = how->wk;
    struct use u;
    if (!use_begin(&u, r, wq ? wq : "rope"))
        return;
    struct op_qk_rope a = { .q = q,
                            .k = k,
                            .table = view_of(how->table),
                            .eps = how->eps,
                            .halves = how->halves,
                            .from_one = how->from_one };
    const struct net_layer *lq = wq ? net_layer_plain(r, wq, 1, false) : NULL;
    const struct net_layer *lk = wq ? net_layer_plain(r, wk, 1, false) : NULL;
    if (wq && (!lq || !lk))
        return;
    if (wq) {
        u.keep = lk->weight.block;
        a.wq = use_param(&u, &lq->weight);
        a.wk = use_param(&u, &lk->weight);
    }
    use_op_qk_rope(&u, &a);
    use_end(&u);
}

void net_qk_rope(struct net_run *r, struct view q, struct view k, const char *wq, const char *wk,
                 struct act table, float eps)
{
    net_rotate(r, q, k, &(struct net_rope) { .wq = wq, .wk = wk, .table = table, .eps = eps });
}

/* ---- norms ---- */

/* Into y; y may be x. */
static struct act group_norm(struct net_run *r, struct act x, struct act y, const char *layer,
                             uint32_t groups, float eps, bool silu)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return (struct act) { 0 };
    const struct net_layer *l = net_layer_plain(r, layer, 1, true);
    if (!l)
        return (struct act) { 0 };
    u.keep = l->weight.block;
    struct op_group_norm a = { .x = view_of(x), .y = view_of(y), .groups = groups, .eps = eps };
    a.silu = silu;
    a.b = use_param(&u, &l->bias);
    a.w = use_param(&u, &l->weight);
    use_op_group_norm(&u, &a);
    return result(&u, y);
}

struct act net_group_norm(struct net_run *r, struct act x, const char *layer, uint32_t groups,
                          float eps, bool silu)
{
    return group_norm(r, x, net_new(r, &x.shape), layer, groups, eps, silu);
}

void net_group_norm_in_place(struct net_run *r, struct act *x, const char *layer, uint32_t groups,
                             float eps, bool silu)
{
    *x = group_norm(r, *x, *x, layer, groups, eps, silu);
}

/* All its values as one vector; empty stays empty. */
static struct view vector_of(struct act a)
{
    uint64_t n;
    if (!a.shape.ndim || !shape_count(&a.shape, &n))
        return (struct view) { 0 };
    a.shape = (struct shape) { 1, { n } };
    return view_of(a);
}

void net_channel_modulate(struct net_run *r, struct act *x, struct act scale, struct act shift,
                          float eps, bool silu)
{
    struct use u;
    if (!use_begin(&u, r, "channel norm"))
        return;
    use_op_channel_norm(&u, &(struct op_channel_norm) { .x = view_of(*x),
                                                        .y = view_of(*x),
                                                        .scale = vector_of(scale),
                                                        .shift = vector_of(shift),
                                                        .eps = eps,
                                                        .rooted = true,
                                                        .silu = silu });
    use_end(&u);
}

/* Into y; y may be x. */
static struct act channel_norm(struct net_run *r, struct act x, struct act y, const char *layer,
                               float eps, bool silu)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return (struct act) { 0 };
    const struct net_layer *l = net_layer_plain(r, layer, 1, false);
    if (!l)
        return (struct act) { 0 };
    u.keep = l->weight.block;
    struct op_channel_norm a = { .x = view_of(x), .y = view_of(y), .eps = eps, .silu = silu };
    a.w = use_param(&u, &l->weight);
    use_op_channel_norm(&u, &a);
    return result(&u, y);
}

struct act net_channel_norm(struct net_run *r, struct act x, const char *layer, float eps,
                            bool silu)
{
    return channel_norm(r, x, net_new(r, &x.shape), layer, eps, silu);
}

void net_channel_norm_in_place(struct net_run *r, struct act *x, const char *layer, float eps,
                               bool silu)
{
    *x = channel_norm(r, *x, *x, layer, eps, silu);
}

/* a: all but the layer's parameters. */
static bool norm_rows(struct net_run *r, const char *layer, struct op_row_norm a)
{
    struct use u;
    if (!use_begin(&u, r, layer ? layer : "norm"))
        return false;
    const struct net_layer *l = layer ? net_layer_plain(r, layer, 1, !a.rms) : NULL;
    if (layer && !l)
        return false;
    if (l) {
        u.keep = l->weight.block;
        if (!a.rms)
            a.b = use_param(&u, &l->bias);
        a.w = use_param(&u, &l->weight);
    }
    use_op_row_norm(&u, &a);
    use_end(&u);
    return !r->bad;
}

/* scale: empty, or what modulates it. */
static struct act row_norm(struct net_run *r, struct act x, const char *layer, struct view scale,
                           float eps, bool rms, bool from_one)
{
    struct act y = net_new(r, &x.shape);
    const struct op_row_norm a = { .x = view_of(x),
                                   .y = view_of(y),
                                   .scale = scale,
                                   .eps = eps,
                                   .rms = rms,
                                   .from_one = from_one };
    return norm_rows(r, layer, a) ? y : (struct act) { 0 };
}

void net_rms_norm_to(struct net_run *r, const struct net_norm *n)
{
    norm_rows(r, n->layer,
              (struct op_row_norm) { .x = n->x,
                                     .y = n->y,
                                     .scale = n->scale,
                                     .shift = n->shift,
                                     .eps = n->eps,
                                     .rms = true,
                                     .from_one = n->from_one });
}

void net_norm_to(struct net_run *r, const struct net_norm *n)
{
    norm_rows(r, n->layer,
              (struct op_row_norm) {
                  .x = n->x, .y = n->y, .scale = n->scale, .shift = n->shift, .eps = n->eps });
}

struct act net_layer_norm(struct net_run *r, struct act x, const char *layer, float eps)
{
    return row_norm(r, x, layer, (struct view) { 0 }, eps, false, false);
}

struct act net_rms_norm(struct net_run *r, struct act x, const char *layer, float eps)
{
    return row_norm(r, x, layer, (struct view) { 0 }, eps, true, false);
}

struct act net_rms_norm_from_one(struct net_run *r, struct act x, const char *layer, float eps)
{
    return row_norm(r, x, layer, (struct view) { 0 }, eps, true, true);
}

struct act net_rms_modulate(struct net_run *r, struct act x, const char *layer, struct view scale,
                            float eps)
{
    return row_norm(r, x, layer, scale, eps, true, false);
}

struct act net_modulate(struct net_run *r, struct view x, struct view scale, struct view shift,
                        float eps)
{
    struct use u;
    if (!use_begin(&u, r, "modulate"))
        return (struct act) { 0 };
    struct act y = net_new(r, &x.shape);
    use_op_row_norm(&u, &(struct op_row_norm) {
                            .x = x, .y = view_of(y), .scale = scale, .shift = shift, .eps = eps });
    return result(&u, y);
}

/* ---- element by element ---- */

void net_unary(struct net_run *r, struct act *x, enum op_unary_kind kind)
{
    struct use u;
    if (!use_begin(&u, r, "unary"))
        return;
    use_op_unary(&u, &(struct op_unary) { .kind = kind, .x = view_of(*x), .y = view_of(*x) });
    use_end(&u);
}

static void binary(struct net_run *r, enum op_binary_kind kind, const char *what, struct act a,
                   struct act b, struct act y)
{
    struct use u;
    if (!use_begin(&u, r, what))
        return;
    use_op_binary(&u, &(struct op_binary) {
                          .kind = kind, .a = view_of(a), .b = view_of(b), .y = view_of(y) });
    use_end(&u);
}

void net_add_scaled(struct net_run *r, struct act *x, struct act b, float scale)
{
    struct use u;
    if (!use_begin(&u, r, "add"))
        return;
    use_op_binary(
        &u,
        &(struct op_binary) {
            .kind = OP_ADD, .a = view_of(*x), .b = view_of(b), .y = view_of(*x), .scale = scale });
    use_end(&u);
}

void net_leak(struct net_run *r, struct act x, struct act slope, struct act y)
{
    binary(r, OP_LEAK, "leak", x, slope, y);
}

void net_prelu(struct net_run *r, struct act *x, const char *layer)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return;
    const struct net_layer *l = net_layer_plain(r, layer, 1, false);
    if (!l)
        return;
    u.keep = l->weight.block;
    struct op_binary a = { .kind = OP_LEAK, .a = view_of(*x), .y = view_of(*x) };
    const struct view slope = use_param(&u, &l->weight);
    struct shape s = { .ndim = x->shape.ndim };
    for (int i = 0; i < s.ndim; i++)
        s.dim[i] = i == 1 ? l->weight.shape.dim[0] : 1;
    a.b = net_packed(slope.dtype, &s, slope.data);
    use_op_binary(&u, &a);
    use_end(&u);
}

void net_add(struct net_run *r, struct act *x, struct act b)
{
    binary(r, OP_ADD, "add", *x, b, *x);
}

struct act net_sum_f32(struct net_run *r, struct act a, struct act b)
{
    struct act y = net_new_of(r, DT_F32, &a.shape);
    binary(r, OP_ADD, "add", a, b, y);
    return r->bad ? (struct act) { 0 } : y;
}

void net_mul(struct net_run *r, struct act *x, struct act b)
{
    binary(r, OP_MUL, "mul", *x, b, *x);
}

void net_silu_mul(struct net_run *r, struct act *x, struct act b)
{
    binary(r, OP_SILU_MUL, "silu_mul", *x, b, *x);
}

void net_gate(struct net_run *r, struct view x, struct view gate, struct act z)
{
    struct use u;
    if (!use_begin(&u, r, "gate"))
        return;
    use_op_gate(&u, &(struct op_gate) { .x = x, .gate = gate, .z = view_of(z), .y = x });
    use_end(&u);
}

void net_copy(struct net_run *r, struct view x, struct view y)
{
    struct use u;
    if (!use_begin(&u, r, "convert"))
        return;
    use_op_copy(&u, &(struct op_copy) { .x = x, .y = y });
    use_end(&u);
}

struct act net_round(struct net_run *r, struct act x)
{
    struct act y = net_new(r, &x.shape);
    net_copy(r, view_of(x), view_of(y));
    return r->bad ? (struct act) { 0 } : y;
}

struct act net_geglu(struct net_run *r, struct act x)
{
    struct use u;
    if (!use_begin(&u, r, "geglu"))
        return (struct act) { 0 };
    struct shape s = x.shape;
    if (s.ndim)
        s.dim[s.ndim - 1] = last_dim(&x.shape) / 2;
    struct act y = net_new(r, &s);
    use_op_geglu(&u, &(struct op_geglu) { .x = view_of(x), .y = view_of(y) });
    return result(&u, y);
}

/* n rows of a from `at` on, as a matrix in the same place. */
static struct act rows_of(const struct act *a, uint64_t at, uint64_t n)
{
    uint64_t row = last_dim(&a->shape);
    return (struct act) { .shape = { .ndim = 2, .dim = { n, row } },
                          .addr = a->addr + at * row * net_type_bytes(a->dtype),
                          .dtype = a->dtype };
}

#define THRIFTY_ROWS 512 /* few enough for 8 * C of them, enough for products to be fast */

struct act net_feed_forward(struct net_run *r, struct act x, const char *up, const char *down,
                            struct act add)
{
    uint64_t of_x = row_count(&x.shape), rows = row_count(&add.shape);
    if (!r->bad && rows != of_x)
        net_fail(r, BERTH_EINVAL, "%s: %" PRIu64 " rows for %" PRIu64, up, of_x, rows);
    uint64_t piece = r->thrifty ? THRIFTY_ROWS : rows;
    for (uint64_t at = 0; at < rows && !r->bad; at += piece) {
        uint64_t n = rows - at < piece ? rows - at : piece;
        struct act f = net_linear(r, rows_of(&x, at, n), up);
        if (at + n == rows)
            net_drop(r, &x);
        struct act g = net_geglu(r, f);
        net_drop(r, &f);
        net_linear_add(r, g, down, rows_of(&add, at, n));
        net_drop(r, &g);
    }
    net_drop(r, &x);
    return r->bad ? (struct act) { 0 } : add;
}

#define THRIFTY_PIECES 2

void net_swiglu(struct net_run *r, struct act x, const char *gate, const char *up, const char *down)
{
    const uint64_t rows = row_count(&x.shape), pieces = r->thrifty ? THRIFTY_PIECES : 1,
                   piece = (rows + pieces - 1) / pieces;
    for (uint64_t at = 0; at < rows && !r->bad; at += piece) {
        struct act part = rows_of(&x, at, rows - at < piece ? rows - at : piece);
        struct act g = net_linear_no_bias(r, part, gate), u = net_linear_no_bias(r, part, up);
        net_silu_mul(r, &g, u);
        net_drop(r, &u);
        net_product(r, &(struct net_product) {
                           .layer = down, .x = view_of(g), .y = view_of(part), .no_bias = true });
        net_drop(r, &g);
    }
}

/* ---- looking up and moving ---- */

/* n elements of host memory in the slab, until the use ends. */
static struct view host_operand(struct use *u, enum dtype t, const void *src, size_t n)
{
    struct net_run *r = u->r;
    const struct shape s = { .ndim = 1, .dim = { n } };
    size_t bytes;
    if (!sz_mul(n, dtype_desc(t)->bytes, &bytes)) {
        net_fail(r, BERTH_ELIMIT, "%zu numbers", n);
        return (struct view) { 0 };
    }
    struct view v = net_packed(t, &s, (void *)(uintptr_t)use_place(u, bytes));
    r->queued |= !r->dry && !r->n->host;
    if (!r->bad && !r->dry && dev_copy_h2d(r->n->queue, (uintptr_t)v.data, src, bytes, &r->err))
        use_failed(u);
    return v;
}

struct act net_linear_given(struct net_run *r, struct act x, const float *w, const float *bias,
                            uint64_t rows)
{
    struct use u;
    struct shape s = x.shape;
    if (!use_begin(&u, r, "a layer beside the file's"))
        return (struct act) { 0 };
    struct shape ws = { .ndim = 2, .dim = { rows, s.dim[s.ndim - 1] } };
    s.dim[s.ndim - 1] = rows;
    struct act y = net_new(r, &s);
    struct view held = host_operand(&u, DT_F32, w, (size_t)(ws.dim[0] * ws.dim[1]));
    struct op_linear a = { .x = view_of(x),
                           .y = view_of(y),
                           .w = net_packed(DT_F32, &ws, held.data) };
    if (bias)
        a.bias = host_operand(&u, DT_F32, bias, (size_t)rows);
    use_op_linear(&u, &a);
    return result(&u, y);
}

struct act net_param(struct net_run *r, const char *layer)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return (struct act) { 0 };
    const struct net_layer *l = net_layer_plain(r, layer, 1, false);
    if (!l)
        return (struct act) { 0 };
    u.keep = l->weight.block;
    struct act y = net_new(r, &l->weight.shape);
    use_op_copy(&u, &(struct op_copy) { .x = use_param(&u, &l->weight), .y = view_of(y) });
    return result(&u, y);
}

struct act net_embedding(struct net_run *r, const int32_t *ids, size_t n, const char *layer)
{
    struct use u;
    if (!use_begin(&u, r, layer))
        return (struct act) { 0 };
    const struct net_layer *l = net_layer_table(r, layer);
    if (!l)
        return (struct act) { 0 };
    const struct net_tensor *t = &l->weight;
    const struct shape s = { .ndim = 2, .dim = { n, t->shape.dim[1] } };
    if (r->n->trace)
        trace_lookup(r->n, t->index);
    for (size_t i = 0; i < n && !r->dry; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= t->shape.dim[0]) {
            net_fail(r, BERTH_EINVAL, "%s: id %d, the table has %" PRIu64 " rows", layer, ids[i],
                     t->shape.dim[0]);
            return (struct act) { 0 };
        }
    struct act y = net_new(r, &s);
    struct op_embedding a = { .y = view_of(y), .ids = host_operand(&u, DT_I32, ids, n) };
    if (t->coded) {
        u.keep = t->block;
        struct view rows = use_decoded_rows(&u, t, &a.ids, y.dtype);
        use_op_copy(&u, &(struct op_copy) { .x = rows, .y = a.y });
        return result(&u, y);
    }
    a.table = use_weight(&u, t, &t->shape);
    use_op_embedding(&u, &a);
    return result(&u, y);
}

struct act net_timestep(struct net_run *r, const float *t, size_t n, uint64_t dim)
{
    struct use u;
    if (!use_begin(&u, r, "timestep"))
        return (struct act) { 0 };
    const struct shape s = { .ndim = 2, .dim = { n, dim } };
    struct act y = net_new(r, &s);
    struct op_timestep a = { .y = view_of(y), .t = host_operand(&u, DT_F32, t, n) };
    if (r->n->act != DT_F32) /* computed in F32, then rounded */
        a.y = net_packed(DT_F32, &s, (void *)(uintptr_t)use_place(&u, n * dim * sizeof(float)));
    use_op_timestep(&u, &a);
    if (r->n->act != DT_F32)
        use_op_copy(&u, &(struct op_copy) { .x = a.y, .y = view_of(y) });
    return result(&u, y);
}

struct act net_nearest(struct net_run *r, struct act x, uint64_t h, uint64_t w)
{
    struct use u;
    if (!use_begin(&u, r, "nearest"))
        return (struct act) { 0 };
    struct shape s = x.shape;
    if (s.ndim == 4) {
        s.dim[2] = h;
        s.dim[3] = w;
    }
    struct act y = net_new(r, &s);
    use_op_resize2d(&u,
                    &(struct op_resize2d) { .kind = OP_NEAREST, .x = view_of(x), .y = view_of(y) });
    return result(&u, y);
}

#define CONCAT_MAX 16

struct act net_concat(struct net_run *r, const struct act *x, size_t n, int axis)
{
    struct view from[CONCAT_MAX];
    struct use u;
    if (!use_begin(&u, r, "concat"))
        return (struct act) { 0 };
    if (!n || n > CONCAT_MAX || axis < 0 || axis >= x[0].shape.ndim) {
        net_fail(r, BERTH_EINVAL, "concat: %zu activations along axis %d", n, axis);
        return (struct act) { 0 };
    }
    struct shape s = x[0].shape;
    s.dim[axis] = 0;
    for (size_t i = 0; i < n; i++) {
        from[i] = view_of(x[i]);
        s.dim[axis] += axis < x[i].shape.ndim ? x[i].shape.dim[axis] : 0;
    }
    struct act y = net_new(r, &s);
    use_op_concat(&u, &(struct op_concat) { .x = from, .n = n, .axis = axis, .y = view_of(y) });
    return result(&u, y);
}

/* A copy of x as `from` sees it. */
static struct act copied(struct use *u, const struct view *from)
{
    struct act y = net_new_of(u->r, from->dtype, &from->shape);
    use_op_copy(u, &(struct op_copy) { .x = *from, .y = view_of(y) });
    return result(u, y);
}

struct act net_permute(struct net_run *r, struct act x, const int *axis)
{
    struct use u;
    struct view v = view_of(x);
    if (!use_begin(&u, r, "permute"))
        return (struct act) { 0 };
    if (view_permute(&v, axis, &v, &r->err)) {
        net_failed(r, "");
        return (struct act) { 0 };
    }
    return copied(&u, &v);
}

struct act net_slice(struct net_run *r, struct act x, int axis, uint64_t begin, uint64_t end)
{
    struct use u;
    struct view v = view_of(x);
    if (!use_begin(&u, r, "slice"))
        return (struct act) { 0 };
    if (view_slice(&v, axis, begin, end, &v, &r->err)) {
        net_failed(r, "");
        return (struct act) { 0 };
    }
    return copied(&u, &v);
}
