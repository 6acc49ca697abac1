/* lm.c: the decoder (llm-encoders.md 1). */
#include "model/lm/lm.h"
#include "model/lm/delta.h"

#define MLP_ROWS 1024 /* of a feed-forward at a time: 2 * 18944 floats each in Qwen2.5-VL 7B */

struct state { /* of a pass */
    const struct lm_net *net;
    size_t n, len;
    struct act angles, local, crossed, still, mask;
    const struct lm_delta *delta; /* [layers]; NULL: none, or sizes alone are asked for */
    size_t past, room;            /* of tokens that are kept; no room: none are */
};

/* ---- what is kept of tokens: keys and values of layer 0, of layer 1 ... ---- */

static uint64_t kept_row(const struct lm_net *c)
{
    return (uint64_t)c->kv_heads * c->head_dim;
}

/* Of the layers that attend, which this one is. */
static uint32_t attending(const struct lm_net *c, uint32_t layer)
{
    return c->delta.heads ? layer / c->delta.full_every : layer;
}

uint64_t lm_kept_pieces(const struct lm_net *c)
{
    return UINT64_C(2) * attending(c, c->layers);
}

uint64_t lm_kept_bytes(const struct lm_net *c, size_t room, size_t bytes_of_act)
{
    uint64_t n;
    return __builtin_mul_overflow(kept_row(c), room, &n) ||
                   __builtin_mul_overflow(n, bytes_of_act, &n)
               ? UINT64_MAX
               : n;
}

/* Keys (0) or values (1) of all tokens up to the newest ones, x, which are put there. Drops x. */
static struct act keep(struct net_run *r, const struct state *s, uint32_t layer, uint64_t which,
                       struct act x)
{
    const struct lm_net *c = s->net;
    const uint64_t row = kept_row(c), bytes = dtype_desc(net_dtype(r))->bytes;
    const uint64_t at = ((uint64_t)attending(c, layer) * 2 + which) * s->room * row * bytes;
    const struct shape all = { .ndim = 3, .dim = { 1, s->past + s->len, row } };
    struct act kept = net_kept(r, at, &all);
    if (!net_bad(r))
        net_copy(r, net_view(&x), net_part(r, net_view(&kept), 1, s->past, s->past + s->len));
    net_drop(r, &x);
    return kept;
}

/* ---- layers ---- */

static struct act norm(struct net_run *r, const struct lm_net *c, struct act x, const char *layer)
{
    return c->kind->from_one ? net_rms_norm_from_one(r, x, layer, c->kind->eps)
                             : net_rms_norm(r, x, layer, c->kind->eps);
}

static struct act project(struct net_run *r, const struct lm_net *c, struct act x,
                          const char *layer)
{
    return c->bias ? net_linear(r, x, layer) : net_linear_no_bias(r, x, layer);
}

/* Does layer i look back only so far? */
static bool has_window(const struct lm_kind *k, uint32_t i)
{
    return k->window && (i + 1) % k->full_every != 0;
}

/* Queries [*, len, heads, head_dim], or (gate) what stands behind each in the same product. */
static struct view queries(struct net_run *r, const struct lm_net *c, const struct act *q,
                           bool gate)
{
    const uint64_t d = c->head_dim;
    struct view v = net_split(r, net_view(q), c->heads);
    return c->gated ? net_part(r, v, 3, gate ? d : 0, gate ? 2 * d : d) : v;
}

/* A copy of v, without gaps. */
static struct act packed(struct net_run *r, struct view v)
{
    struct act a = net_new(r, &v.shape);
    if (!net_bad(r))
        net_copy(r, v, net_view(&a));
    return a;
}

/* Halves of pairs that turn by different tables: each table on a copy, of which one half counts. */
static void turn_crossed(struct net_run *r, const struct state *s, struct view q, struct view k)
{
    const uint64_t half = s->net->turned / 2;
    struct act q2 = packed(r, q), k2 = packed(r, k);
    net_rotate(r, q, k, &(struct net_rope) { .table = s->angles, .halves = true });
    net_rotate(r, net_view(&q2), net_view(&k2),
               &(struct net_rope) { .table = s->crossed, .halves = true });
    net_copy(r, net_part(r, net_view(&q2), 3, half, 2 * half), net_part(r, q, 3, half, 2 * half));
    net_copy(r, net_part(r, net_view(&k2), 3, half, 2 * half), net_part(r, k, 3, half, 2 * half));
    net_drop(r, &q2);
    net_drop(r, &k2);
}

/* Queries and keys normed, and turned by their positions. */
static void turn(struct net_run *r, const struct state *s, bool local, struct view q, struct view k)
{
    const struct lm_net *c = s->net;
    const bool part = c->turned < c->head_dim;
    net_rotate(r, q, k,
               &(struct net_rope) { .wq = c->qk_norm ? "self_attn.q_norm" : NULL,
                                    .wk = c->qk_norm ? "self_attn.k_norm" : NULL,
                                    .table = part    ? s->still
                                             : local ? s->local
                                                     : s->angles,
                                    .eps = c->kind->eps,
                                    .halves = !c->adjacent,
                                    .from_one = c->kind->from_one });
    if (!part)
        return;
    q = net_part(r, q, 3, 0, c->turned);
    k = net_part(r, k, 3, 0, c->turned);
    if (s->crossed.shape.ndim)
        turn_crossed(r, s, q, k);
    else
        net_rotate(r, q, k, &(struct net_rope) { .table = s->angles, .halves = true });
}

/* y *= sigmoid of the gate that came with the queries. */
static void close_gate(struct net_run *r, const struct lm_net *c, struct act *y,
                       const struct act *q)
{
    struct act g = packed(r, queries(r, c, q, true));
    if (net_bad(r))
        return;
    g = net_reshape(r, g, &y->shape);
    net_unary(r, &g, OP_SIGMOID);
    net_mul(r, y, g);
    net_drop(r, &g);
}

static struct act attention(struct net_run *r, const struct state *s, uint32_t i, struct act h)
{
    const struct lm_net *c = s->net;
    bool local = has_window(c->kind, i);
    struct act q = project(r, c, h, "self_attn.q_proj");
    struct act k = project(r, c, h, "self_attn.k_proj");
    struct act v = project(r, c, h, "self_attn.v_proj");
    struct shape heads = q.shape;
    if (c->gated && heads.ndim)
        heads.dim[heads.ndim - 1] /= 2;
    struct act y = net_new(r, &heads);
    struct view qh = queries(r, c, &q, false);
    struct view kh = net_split(r, net_view(&k), c->kv_heads);
    turn(r, s, local, qh, kh);
    if (s->room) {
        k = keep(r, s, i, 0, k);
        v = keep(r, s, i, 1, v);
    }
    net_attend(r, qh, net_split(r, net_view(&k), c->kv_heads),
               net_split(r, net_view(&v), c->kv_heads), net_split(r, net_view(&y), c->heads),
               (struct net_attn) { .causal = true,
                                   .past = (uint32_t)s->past,
                                   .window = local ? c->kind->window : 0,
                                   .mask = s->mask });
    if (c->gated)
        close_gate(r, c, &y, &q);
    net_drop(r, &q);
    if (!s->room) {
        net_drop(r, &k);
        net_drop(r, &v);
    }
    struct act o = net_linear_no_bias(r, y, "self_attn.o_proj");
    net_drop(r, &y);
    return o;
}

struct act lm_rows(const struct act *a, uint64_t at, uint64_t n)
{
    uint64_t row = a->shape.ndim ? a->shape.dim[a->shape.ndim - 1] : 0;
    struct act part = *a;
    part.shape = (struct shape) { .ndim = 2, .dim = { n, row } };
    part.addr += at * row * (a->dtype == DT_NONE ? 0 : dtype_desc(a->dtype)->bytes);
    return part;
}

void lm_add_by_rows(struct net_run *r, lm_layer_fn *layer, const void *net, struct act h,
                    struct act x, uint64_t at_a_time)
{
    uint64_t rows = x.shape.ndim ? 1 : 0;
    for (int d = 0; d + 1 < x.shape.ndim; d++)
        rows *= x.shape.dim[d];
    for (uint64_t at = 0; at < rows && !net_bad(r); at += at_a_time) {
        uint64_t n = rows - at < at_a_time ? rows - at : at_a_time;
        struct act to = lm_rows(&x, at, n);
        struct act y = layer(r, net, lm_rows(&h, at, n));
        net_add(r, &to, y);
        net_drop(r, &y);
    }
}

/* What a layer gives, normed where there are norms behind layers. Takes y. */
static struct act normed(struct net_run *r, const struct lm_net *c, struct act y,
                         const char *behind)
{
    if (!c->kind->sandwich)
        return y;
    struct act z = norm(r, c, y, behind);
    net_drop(r, &y);
    return z;
}

/* down(act(gate(h)) * up(h)) */
static struct act feed_forward(struct net_run *r, const void *net, struct act h)
{
    const struct lm_net *c = net;
    struct act gate = net_linear_no_bias(r, h, "mlp.gate_proj");
    net_unary(r, &gate, c->kind->act);
    struct act up = net_linear_no_bias(r, h, "mlp.up_proj");
    net_mul(r, &gate, up);
    net_drop(r, &up);
    struct act y = net_linear_no_bias(r, gate, "mlp.down_proj");
    net_drop(r, &gate);
    return normed(r, c, y, "post_feedforward_layernorm");
}

static void block(struct net_run *r, const struct state *s, uint32_t i, struct act x)
{
    const struct lm_net *c = s->net;
    size_t mark = net_enter(r, "model.layers.%u.", i);
    struct act h = norm(r, c, x, "input_layernorm");
    struct act y = !lm_is_delta(c, i)
                       ? attention(r, s, i, h)
                       : lm_delta_layer(r, c, s->delta ? &s->delta[i] : NULL, s->n, s->len, h);
    net_drop(r, &h);
    y = normed(r, c, y, "post_attention_layernorm");
    net_add(r, &x, y);
    net_drop(r, &y);
    h = norm(r, c, x, c->kind->sandwich ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    lm_add_by_rows(r, feed_forward, c, h, x, MLP_ROWS);
    net_drop(r, &h);
    net_leave(r, mark);
}

/* ---- results ---- */

static void give(struct net_run *r, const struct encoder_pass *p, struct act x, float *to)
{
    net_finite(r, x, p->is->name);
    net_output(r, x, to);
}

/* x through the last norm, if it has one. Drops x. */
static struct act last_norm(struct net_run *r, const struct lm_net *c, struct act x)
{
    if (!c->final_norm)
        return x;
    struct act z = norm(r, c, x, "model.norm");
    net_drop(r, &x);
    return z;
}

/* Gives x, what enters layer i, if that is the next tap. */
static void tap(struct net_run *r, const struct encoder_pass *p, uint32_t i, struct act x,
                uint32_t *taken)
{
    const struct encoder_want *w = p->want;
    uint32_t next = w->taps == TEXT_TAPS_ALL ? *taken : *taken < w->taps ? w->tap[*taken] : i + 1;
    if (next != i)
        return;
    give(r, p, x, p->z + (size_t)*taken * p->in.n * p->in.len * p->in.width);
    ++*taken;
}

/* Is nothing wanted of layer i and those behind it? */
static bool is_done(const struct encoder_pass *p, uint32_t i, uint32_t taken)
{
    const struct encoder_want *w = p->want;
    if (w->taps)
        return w->taps != TEXT_TAPS_ALL && taken == w->taps;
    return p->hidden >= 0 && i > p->hidden;
}

/* Features of pictures that are added behind the first layers. */
static void deepen(struct net_run *r, const struct picture_rows *picture, size_t pictures,
                   uint32_t layer, struct act x)
{
    for (size_t i = 0; i < pictures && x.shape.ndim == 3; i++) {
        const struct picture_rows *pic = &picture[i];
        const uint64_t width = x.shape.dim[2];
        const struct shape s = { .ndim = 2, .dim = { pic->n, width } };
        if (layer >= pic->deep)
            continue;
        struct act to = lm_rows(&x, pic->at, pic->n);
        struct act f = net_input(r, &s, pic->deeper + (size_t)layer * pic->n * width);
        net_add(r, &to, f);
        net_drop(r, &f);
    }
}

static struct act table(struct net_run *r, const struct state *s, uint32_t dim, const float *from)
{
    const struct shape shape = { .ndim = 3, .dim = { s->len, dim / 2, 2 } };
    return from ? net_input_f32(r, &shape, from) : (struct act) { 0 };
}

static void take_tables(struct net_run *r, struct state *s, const struct lm_host *host)
{
    s->angles = table(r, s, s->net->turned, host->angles);
    s->local = table(r, s, s->net->turned, host->local);
    s->crossed = table(r, s, s->net->turned, host->crossed);
    s->still = table(r, s, s->net->head_dim, host->still);
    s->delta = host->delta;
}

static void drop_tables(struct net_run *r, struct state *s)
{
    net_drop(r, &s->angles);
    net_drop(r, &s->local);
    net_drop(r, &s->crossed);
    net_drop(r, &s->still);
}

void lm_forward(struct net_run *r, const struct encoder_pass *p)
{
    const struct lm_net *c = p->config;
    const struct lm_host *host = p->own;
    struct state s = { .net = c, .n = p->in.n, .len = p->in.len };
    const struct shape keys = { .ndim = 4, .dim = { s.n, 1, 1, s.len } };
    struct act x = slots_embed(r, &p->in, "model.embed_tokens");
    take_tables(r, &s, host);
    if (host->mask)
        s.mask = net_input_f32(r, &keys, host->mask);
    uint32_t i = 0, taken = 0;
    for (; i < c->layers && !net_bad(r); i++) {
        if (p->want->taps)
            tap(r, p, i, x, &taken);
        if (is_done(p, i, taken))
            break;
        block(r, &s, i, x);
        deepen(r, p->picture, p->pictures, i, x);
    }
    bool whole = i == c->layers && (p->hidden < 0 || p->want->taps);
    if (whole || (p->want->norm_hidden && !p->want->taps))
        x = last_norm(r, c, x);
    if (!p->want->taps)
        give(r, p, x, p->z);
    else if (whole)
        tap(r, p, i, x, &taken);
    drop_tables(r, &s);
    net_drop(r, &s.mask);
    net_drop(r, &x);
}

void lm_step_forward(struct net_run *r, void *step)
{
    const struct lm_step *t = step;
    const struct lm_net *c = t->net;
    struct state s = { .net = c, .n = 1, .len = t->in.len, .past = t->past, .room = t->room };
    struct act x = slots_embed(r, &t->in, "model.embed_tokens");
    take_tables(r, &s, t->host);
    for (uint32_t i = 0; i < c->layers && !net_bad(r); i++) {
        block(r, &s, i, x);
        deepen(r, t->picture, t->pictures, i, x);
    }
    drop_tables(r, &s);
    struct act last = norm(r, c, lm_rows(&x, s.len - 1, 1), "model.norm");
    net_drop(r, &x);
    struct act z = net_linear_no_bias(r, last, c->head ? "model.lm_head" : "model.embed_tokens");
    net_drop(r, &last);
    net_finite(r, z, c->kind->name);
    net_output(r, z, t->logits);
    net_drop(r, &z);
}
