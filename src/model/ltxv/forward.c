/* The forward pass of LTX-Video. B latents of T tokens, D wide; L tokens of text.
 *
 * Memory: a pass holds most in a feed-forward: x, its normed copy and [B, T, 4 D]; a thrifty one
 * does feed-forwards in quarters. Modulations go piece by piece (struct ltxv_piece). */
#include "model/ltxv/ltxv.h"

#include "model/families.h"

#define EPS 1e-6f
#define EPS_QK 1e-5f
#define QUARTERS 4

struct pass {
    const struct ltxv_net *f;
    const struct family_batch *in;
    const struct ltxv_host *host; /* NULL: sizes alone are asked for */
    struct ltxv_sizes size;
    uint64_t B, T, L;
    struct act time;  /* [rows, D]: embedded noise levels */
    struct act mod;   /* [rows, 6D]: what all blocks' modulations begin with */
    struct act table; /* [T * heads, D / heads / 2, 2] */
    struct act text;  /* [B, L, D] */
    struct act noisy; /* [1, 1, 1, T]: masks of guides; empty: none */
    struct act looks; /* [1, 1, rows of all ltxv_look, T] */
};

static const int32_t table_rows[] = { 0, 1 }; /* to look up */

static struct shape shape2(uint64_t a, uint64_t b)
{
    return (struct shape) { .ndim = 2, .dim = { a, b } };
}

static struct shape shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

static struct shape shape4(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return (struct shape) { .ndim = 4, .dim = { a, b, c, d } };
}

/* ---- pieces ---- */

static uint64_t pieces(const struct pass *p)
{
    return p->host ? p->host->pieces : 1;
}

static uint64_t rows(const struct pass *p)
{
    return p->host ? p->host->rows : p->B;
}

static struct ltxv_piece piece_at(const struct pass *p, uint64_t k)
{
    return p->host ? p->host->piece[k] : (struct ltxv_piece) { .items = p->B, .tokens = p->T };
}

/* Its tokens of a [B, T, wide], in the same place: [items, tokens, wide]. */
static struct act tokens_of(struct net_run *r, const struct pass *p, struct act a,
                            const struct ltxv_piece *c)
{
    if (net_bad(r))
        return (struct act) { .addr = 0 };
    const uint64_t wide = a.shape.dim[2];
    struct shape flat = shape2(p->B * p->T, wide), s = shape3(c->items, c->tokens, wide);
    a = net_rows(r, net_reshape(r, a, &flat), c->at, c->at + c->items * c->tokens);
    return net_reshape(r, a, &s);
}

/* Chunk k of its modulation, [items, D] of [rows, chunks * D]. */
static struct view chunk(struct net_run *r, const struct pass *p, struct act mod,
                         const struct ltxv_piece *c, uint64_t k)
{
    const uint64_t D = p->f->hidden;
    struct view of = net_part(r, net_view(&mod), 0, c->row, c->row + c->items);
    return net_part(r, of, 1, k * D, (k + 1) * D);
}

/* rms_norm(x) * (1 + scale) + shift, which are chunks of mod. */
static struct act modulate(struct net_run *r, const struct pass *p, struct act x, struct act mod,
                           uint64_t scale, uint64_t shift)
{
    struct act y = net_new(r, &x.shape);
    for (uint64_t k = 0; k < pieces(p) && !net_bad(r); k++) {
        const struct ltxv_piece c = piece_at(p, k);
        struct act from = tokens_of(r, p, x, &c), to = tokens_of(r, p, y, &c);
        net_rms_norm_to(r, &(struct net_norm) { .x = net_view(&from),
                                                .y = net_view(&to),
                                                .scale = chunk(r, p, mod, &c, scale),
                                                .shift = chunk(r, p, mod, &c, shift),
                                                .eps = EPS });
    }
    return y;
}

/* x += gate * z, the gate being a chunk of mod. Takes z. */
static void gate(struct net_run *r, const struct pass *p, struct act x, struct act mod, uint64_t g,
                 struct act z)
{
    for (uint64_t k = 0; k < pieces(p) && !net_bad(r); k++) {
        const struct ltxv_piece c = piece_at(p, k);
        struct act to = tokens_of(r, p, x, &c);
        net_gate(r, net_view(&to), chunk(r, p, mod, &c, g), tokens_of(r, p, z, &c));
    }
    net_drop(r, &z);
}

/* A modulation with the rows of `table` in the order of its chunks: [rows, chunks * D]. */
static struct act with_table(struct net_run *r, struct act of, const char *table,
                             const int32_t *row)
{
    struct act mod = net_slice(r, of, 0, 0, of.shape.dim[0]);
    struct act own = net_embedding(r, row, 1, table);
    net_add(r, &mod, own);
    net_drop(r, &own);
    return mod;
}

/* ---- attention ---- */

static struct view heads_of(struct net_run *r, const struct pass *p, const struct act *a)
{
    return net_split(r, net_view(a), p->f->heads);
}

/* Tokens n of a [B, T, heads, wide]. */
static struct view queries(struct net_run *r, struct view v, uint64_t at, uint64_t n)
{
    return net_part(r, v, 1, at, at + n);
}

/* Guides are looked at as much as was said, and look at the rest as much; at each other as ever. */
static void attend_weighed(struct net_run *r, const struct pass *p, struct view q, struct view k,
                           struct view v, struct view y)
{
    const uint64_t rest = p->T - p->size.guides;
    uint64_t row = 0;
    net_attend(r, queries(r, q, 0, rest), k, v, queries(r, y, 0, rest),
               (struct net_attn) { .mask = p->noisy });
    for (size_t i = 0; p->host && i < p->host->look_n && !net_bad(r); i++) {
        const struct ltxv_look *l = &p->host->look[i];
        struct shape flat = shape2(p->looks.shape.dim[2], p->T), s = shape4(1, 1, l->rows, p->T);
        struct act mask = net_reshape(r, p->looks, &flat);
        mask = net_reshape(r, net_rows(r, mask, row, row + l->rows), &s);
        net_attend(r, queries(r, q, l->at, l->n), k, v, queries(r, y, l->at, l->n),
                   (struct net_attn) { .mask = mask });
        row += l->rows;
    }
}

/* Keys and values of `from` [B, n, D]. own: of x itself, which it takes. */
static struct act attention(struct net_run *r, const struct pass *p, const char *name, struct act x,
                            struct act from, bool own)
{
    const uint64_t wide = p->f->hidden / p->f->heads;
    size_t mark = net_enter(r, "%s.", name);
    struct act q = net_linear(r, x, "to_q"), nq = net_rms_norm(r, q, "q_norm", EPS_QK);
    net_drop(r, &q);
    struct act k = net_linear(r, from, "to_k"), nk = net_rms_norm(r, k, "k_norm", EPS_QK);
    net_drop(r, &k);
    struct act v = net_linear(r, from, "to_v");
    if (own)
        net_drop(r, &x);
    if (own) { /* every head of every token has angles of its own */
        struct shape each = shape4(p->B, p->T * p->f->heads, 1, wide);
        struct act a = net_reshape(r, nq, &each), b = net_reshape(r, nk, &each);
        net_rotate(r, net_view(&a), net_view(&b), &(struct net_rope) { .table = p->table });
    }
    struct act o = net_new(r, &nq.shape);
    if (own && p->size.weighed && p->host)
        attend_weighed(r, p, heads_of(r, p, &nq), heads_of(r, p, &nk), heads_of(r, p, &v),
                       heads_of(r, p, &o));
    else
        net_attend(r, heads_of(r, p, &nq), heads_of(r, p, &nk), heads_of(r, p, &v),
                   heads_of(r, p, &o), (struct net_attn) { .scale = 0 });
    net_drop(r, &nq);
    net_drop(r, &nk);
    net_drop(r, &v);
    struct act z = net_linear(r, o, "to_out.0");
    net_drop(r, &o);
    net_leave(r, mark);
    return z;
}

/* ---- blocks ---- */

/* In h's place [B, T, D]. */
static void feed_forward(struct net_run *r, const struct pass *p, struct act h)
{
    const uint64_t all = p->B * p->T, D = p->f->hidden;
    const uint64_t most = net_thrifty(r) ? (all + QUARTERS - 1) / QUARTERS : all;
    struct shape flat = shape2(all, D);
    h = net_reshape(r, h, &flat);
    for (uint64_t at = 0; at < all && !net_bad(r); at += most) {
        const uint64_t n = all - at < most ? all - at : most;
        struct shape wide = shape2(n, p->f->mlp);
        struct act some = net_rows(r, h, at, at + n), up = net_new(r, &wide);
        net_product(r, &(struct net_product) { .layer = "ff.net.0.proj",
                                               .x = net_view(&some),
                                               .y = net_view(&up),
                                               .after = OP_AFTER_GELU_TANH });
        net_product(r, &(struct net_product) {
                           .layer = "ff.net.2", .x = net_view(&up), .y = net_view(&some) });
        net_drop(r, &up);
    }
}

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 }; /* of a modulation */

static void block(struct net_run *r, const struct pass *p, uint32_t n, struct act x)
{
    size_t mark = net_enter(r, "transformer_blocks.%u.", n);
    struct act mod = with_table(r, p->mod, "scale_shift_table", table_rows);
    struct act h = modulate(r, p, x, mod, SCALE1, SHIFT1);
    struct act z = attention(r, p, "attn1", h, h, true);
    gate(r, p, x, mod, GATE1, z);
    z = attention(r, p, "attn2", x, p->text, false);
    net_add(r, &x, z);
    net_drop(r, &z);
    h = modulate(r, p, x, mod, SCALE2, SHIFT2);
    feed_forward(r, p, h);
    gate(r, p, x, mod, GATE2, h);
    net_drop(r, &mod);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

static void embed_times(struct net_run *r, struct pass *p)
{
    size_t mark = net_enter(r, "adaln_single.");
    struct act a =
        net_timestep(r, p->host ? p->host->time.p : NULL, (size_t)rows(p), LTXV_TIME_WIDTH);
    struct act h = net_linear(r, a, "emb.timestep_embedder.linear_1");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    p->time = net_linear(r, h, "emb.timestep_embedder.linear_2");
    net_drop(r, &h);
    h = net_slice(r, p->time, 0, 0, rows(p));
    net_unary(r, &h, OP_SILU);
    p->mod = net_linear(r, h, "linear");
    net_drop(r, &h);
    net_leave(r, mark);
}

static void text_in(struct net_run *r, struct pass *p)
{
    struct shape s = shape3(p->B, p->L, p->f->context_dim);
    struct act c = net_input(r, &s, p->host ? p->host->context.p : NULL);
    struct act h = net_linear(r, c, "caption_projection.linear_1");
    net_drop(r, &c);
    net_unary(r, &h, OP_GELU_TANH);
    p->text = net_linear(r, h, "caption_projection.linear_2");
    net_drop(r, &h);
}

static struct act tokens_in(struct net_run *r, const struct pass *p)
{
    struct shape s = shape3(p->B, p->T, p->f->channels);
    struct act in = net_input(r, &s, p->host ? p->host->tokens.p : NULL);
    struct act x = net_linear(r, in, "patchify_proj");
    net_drop(r, &in);
    return x;
}

static void masks_in(struct net_run *r, struct pass *p)
{
    if (!p->size.weighed || !p->host)
        return;
    uint64_t n = 0;
    for (size_t i = 0; i < p->host->look_n; i++)
        n += p->host->look[i].rows;
    struct shape s = shape4(1, 1, 1, p->T), all = shape4(1, 1, n, p->T);
    p->noisy = net_input_f32(r, &s, p->host->noisy.p);
    p->looks = net_input_f32(r, &all, p->host->looks.p);
}

/* norm(x) * (1 + scale) + shift, here a layer norm, with the noise level itself. Takes x. */
static struct act way_out(struct net_run *r, const struct pass *p, struct act x)
{
    struct act h = net_new(r, &x.shape);
    struct act shift = with_table(r, p->time, "scale_shift_table", &table_rows[0]);
    struct act scale = with_table(r, p->time, "scale_shift_table", &table_rows[1]);
    for (uint64_t k = 0; k < pieces(p) && !net_bad(r); k++) {
        const struct ltxv_piece c = piece_at(p, k);
        struct act from = tokens_of(r, p, x, &c), to = tokens_of(r, p, h, &c);
        struct act some = net_modulate(r, net_view(&from), chunk(r, p, scale, &c, 0),
                                       chunk(r, p, shift, &c, 0), EPS);
        net_copy(r, net_view(&some), net_view(&to));
        net_drop(r, &some);
    }
    net_drop(r, &shift);
    net_drop(r, &scale);
    net_drop(r, &x);
    struct act y = net_linear(r, h, "proj_out");
    net_drop(r, &h);
    return y;
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    struct shape ts = shape3(p.T * p.f->heads, p.f->hidden / p.f->heads / 2, 2);
    struct act x = tokens_in(r, &p);
    embed_times(r, &p);
    text_in(r, &p);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    masks_in(r, &p);
    for (uint32_t i = 0; i < p.f->depth && !net_bad(r); i++)
        block(r, &p, i, x);
    net_drop(r, &p.noisy);
    net_drop(r, &p.looks);
    net_drop(r, &p.table);
    net_drop(r, &p.text);
    net_drop(r, &p.mod);
    struct act y = way_out(r, &p, x);
    net_drop(r, &p.time);
    net_finite(r, y, "LTX-Video's output");
    net_output(r, y, p.host ? p.host->result.p : NULL);
    net_drop(r, &y);
}

berth_status ltxv_forward(struct net *net, const struct ltxv_net *f, const struct family_batch *b,
                          struct ltxv_host *host, uint64_t *peak, berth_err *err)
{
    struct pass p = { .f = f, .in = b, .host = peak ? NULL : host, .B = b->shape.dim[0] };
    if (ltxv_sizes(b, &p.size, err))
        return err->code;
    p.T = p.size.tokens;
    p.L = p.size.text;
    if (peak)
        return net_predict(net, forward, &p, peak, err);
    berth_status s = ltxv_host_fill(host, f, b, &p.size, err);
    if (!s)
        s = net_forward(net, forward, &p, err);
    if (!s)
        ltxv_host_give(host, b, &p.size);
    return s;
}
