/* The forward pass of Z-Image and Lumina2. B latents, L tokens of text, V of what was seen, R of
 * pictures to look at and I of the one that is made, pads included, T of all; D wide, H heads of
 * queries, K of keys and values, F inside of feed-forwards.
 *
 * Everything goes over all tokens at once but modulations and gates: where there are pictures to
 * look at, those go piece by piece, as the prompt and the picture that is made have a modulation
 * of their own.
 *
 * Memory: a pass holds most in a feed-forward: x, its normed copy and two of [B, T, F]. A thrifty
 * pass does feed-forwards by rows, in as many pieces as it takes to stay below what attention needs
 * (x, queries, keys and values, its result), and no more: a streamed layer comes anew for each. */
#include "model/zimage/zimage_impl.h"

#include <string.h>

#define EPS 1e-5f              /* of blocks and of the text's norm */
#define HEAD_EPS 1.1920929e-7f /* of queries and keys: the default of torch */
#define LAST_EPS 1e-6f

/* Rows begin..end of a's outermost dimension, in the same place. */
static struct act rows_of(struct act a, uint64_t begin, uint64_t end)
{
    struct view v = net_view(&a);
    a.addr += begin * v.stride[0];
    a.shape.dim[0] = end - begin;
    return a;
}

/* Tokens begin..end of item b of a [B, tokens, wide], in the same place. */
static struct act tokens_of(struct act a, uint64_t b, uint64_t begin, uint64_t end)
{
    const uint64_t token = net_view(&a).stride[1];
    a = rows_of(a, b, b + 1);
    a.addr += begin * token;
    a.shape.dim[1] = end - begin;
    return a;
}

/* ---- pieces ---- */

#define PIECES 4 /* of an item's sequence */
struct piece {   /* tokens of an item that are modulated alike */
    uint64_t at, end;
    bool noisy; /* as the picture that is made; else as what is free of noise */
};

/* Of a sequence of n tokens: all of it, or its pictures. */
static size_t pieces(const struct zimage_pass *p, uint64_t n, struct piece out[PIECES])
{
    const struct zimage_sizes *z = &p->z;
    const struct piece all[PIECES] = { { 0, z->told, false },
                                       { z->told, z->L, true },
                                       { z->L, n - z->I, false },
                                       { n - z->I, n, true } };
    if (n != z->T) {
        out[0] = (struct piece) { 0, n - z->I, false };
        out[1] = (struct piece) { n - z->I, n, true };
        return 2;
    }
    memcpy(out, all, sizeof all);
    return PIECES;
}

/* Chunk k of item b's modulation [B or 2B, 4D]; noisy: as above. */
static struct view own_chunk(struct net_run *r, const struct zimage_pass *p, struct act mod,
                             uint64_t b, bool noisy, uint64_t k)
{
    const uint64_t D = p->f->hidden, row = noisy ? b : p->z.B + b;
    struct view rows = net_part(r, net_view(&mod), 0, row, row + 1);
    return net_part(r, rows, 1, k * D, (k + 1) * D);
}

/* ---- blocks ---- */

enum { SCALE1, GATE1, SCALE2, GATE2 }; /* chunks of a modulation [B, 4D] */

/* Chunk k of a modulation; empty if there is none. */
static struct view chunk(struct net_run *r, const struct zimage_pass *p, struct act mod, uint64_t k)
{
    const uint64_t D = p->f->hidden;
    if (!mod.shape.ndim)
        return (struct view) { .data = NULL };
    return net_part(r, net_view(&mod), 1, k * D, (k + 1) * D);
}

/* Queries, keys or values in a [B, T, (H + 2K) * head_dim]. */
static struct view part_of(struct net_run *r, const struct zimage_pass *p, struct act qkv,
                           unsigned part)
{
    uint64_t row, rows;
    zimage_rows(p->f, part, &row, &rows);
    return net_part(r, net_view(&qkv), 2, row, row + rows);
}

static struct view heads_of(struct net_run *r, const struct zimage_pass *p, struct act qkv,
                            unsigned part)
{
    return net_split(r, part_of(r, p, qkv, part), part == ZIMAGE_Q ? p->f->heads : p->f->kv_heads);
}

/* Queries, keys and values of h. Takes h. */
static struct act project(struct net_run *r, const struct zimage_pass *p, struct act h)
{
    static const char *const part[] = { "attention.q", "attention.k", "attention.v" };
    if (!p->f->diffusers) {
        struct act all = net_linear_no_bias(r, h, "attention.qkv");
        net_drop(r, &h);
        return all;
    }
    struct shape s = h.shape;
    if (s.ndim)
        s.dim[2] = (uint64_t)(p->f->heads + 2 * p->f->kv_heads) * p->f->head_dim;
    struct act qkv = net_new(r, &s);
    for (unsigned k = 0; k < ARRAY_LEN(part); k++)
        net_product(r, &(struct net_product) { .layer = part[k],
                                               .x = net_view(&h),
                                               .y = part_of(r, p, qkv, k),
                                               .no_bias = true });
    net_drop(r, &h);
    return qkv;
}

/* norm(x) * (1 + chunk k of mod). */
static struct act modulate(struct net_run *r, const struct zimage_pass *p, struct act x,
                           const char *norm, struct act mod, uint64_t k)
{
    struct piece piece[PIECES];
    if (!p->z.R || !mod.shape.ndim || net_bad(r))
        return net_rms_modulate(r, x, norm, chunk(r, p, mod, k), EPS);
    struct act y = net_new(r, &x.shape);
    const size_t n = pieces(p, x.shape.dim[1], piece);
    for (size_t i = 0; i < n * p->z.B && !net_bad(r); i++) {
        const struct piece *c = &piece[i % n];
        const uint64_t b = i / n;
        if (c->at == c->end)
            continue;
        struct act from = tokens_of(x, b, c->at, c->end), to = tokens_of(y, b, c->at, c->end);
        net_rms_norm_to(r, &(struct net_norm) { .layer = norm,
                                                .x = net_view(&from),
                                                .y = net_view(&to),
                                                .scale = own_chunk(r, p, mod, b, c->noisy, k),
                                                .eps = EPS });
    }
    return y;
}

/* x += gate * z; gate [B or 2B, D]. */
static void add_gated(struct net_run *r, const struct zimage_pass *p, struct act x, struct act gate,
                      struct act z)
{
    struct piece piece[PIECES];
    if (!p->z.R || net_bad(r)) {
        net_gate(r, net_view(&x), net_view(&gate), z);
        return;
    }
    const size_t n = pieces(p, x.shape.dim[1], piece);
    for (size_t i = 0; i < n * p->z.B && !net_bad(r); i++) {
        const struct piece *c = &piece[i % n];
        const uint64_t b = i / n;
        if (c->at == c->end)
            continue;
        struct act to = tokens_of(x, b, c->at, c->end);
        net_gate(r, net_view(&to), own_chunk(r, p, gate, b, c->noisy, 0),
                 tokens_of(z, b, c->at, c->end));
    }
}

/* Takes h [B, tokens, D]; table: of its tokens. */
static struct act attention(struct net_run *r, const struct zimage_pass *p, struct act h,
                            struct act table)
{
    struct shape s = h.shape;
    struct act qkv = project(r, p, h);
    struct view q = heads_of(r, p, qkv, ZIMAGE_Q), k = heads_of(r, p, qkv, ZIMAGE_K);
    net_qk_rope(r, q, k, "attention.q_norm", "attention.k_norm", table, HEAD_EPS);
    struct act o = net_new(r, &s);
    net_attend(r, q, k, heads_of(r, p, qkv, ZIMAGE_V), net_split(r, net_view(&o), p->f->heads),
               (struct net_attn) { .scale = 0 });
    net_drop(r, &qkv);
    struct act z = net_linear_no_bias(r, o, "attention.out");
    net_drop(r, &o);
    return z;
}

/* x += tanh(gate) * norm(z), without the gate where there is no modulation. Takes z. */
static void add_normed(struct net_run *r, const struct zimage_pass *p, struct act x, struct act z,
                       const char *norm, struct act mod, uint64_t k)
{
    const uint64_t D = p->f->hidden;
    struct act n = net_rms_norm(r, z, norm, EPS);
    net_drop(r, &z);
    if (mod.shape.ndim) {
        struct act gate = net_slice(r, mod, 1, k * D, (k + 1) * D);
        net_unary(r, &gate, OP_TANH);
        add_gated(r, p, x, gate, n);
        net_drop(r, &gate);
    } else {
        net_add(r, &x, n);
    }
    net_drop(r, &n);
}

void zimage_block(struct net_run *r, const struct zimage_pass *p, const char *list, uint32_t n,
                  bool modulated, struct act x, struct act table)
{
    size_t mark = net_enter(r, "%s.%u.", list, n);
    struct act mod = { .addr = 0 };
    if (modulated)
        mod = net_linear(r, p->vec, p->f->lumina ? "adaLN_modulation.1" : "adaLN_modulation.0");
    struct act h = modulate(r, p, x, "attention_norm1", mod, SCALE1);
    h = attention(r, p, h, table);
    add_normed(r, p, x, h, "attention_norm2", mod, GATE1);
    h = modulate(r, p, x, "ffn_norm1", mod, SCALE2);
    net_swiglu(r, h, "feed_forward.w1", "feed_forward.w3", "feed_forward.w2");
    add_normed(r, p, x, h, "ffn_norm2", mod, GATE2);
    net_drop(r, &mod);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

/* time_text_embed(silu([time | pooled text])); takes time. */
static struct act add_pooled(struct net_run *r, const struct zimage_pass *p, struct act time)
{
    const uint64_t n = p->f->pooled_dim;
    struct shape s = { .ndim = 2, .dim = { p->z.B, n + 1 } };
    struct act y = net_input(r, &s, p->in->y), pooled = net_slice(r, y, 1, 0, n);
    struct act there = net_slice(r, y, 1, n, n + 1);
    net_drop(r, &y);
    struct act h = net_rms_norm(r, pooled, "clip_text_pooled_proj.0", EPS);
    net_drop(r, &pooled);
    struct act pair[2] = { time, net_linear(r, h, "clip_text_pooled_proj.1") };
    net_drop(r, &h);
    net_mul(r, &pair[1], there);
    net_drop(r, &there);
    struct act both = net_concat(r, pair, 2, 1);
    net_drop(r, &pair[0]);
    net_drop(r, &pair[1]);
    net_unary(r, &both, OP_SILU);
    struct act c = net_linear(r, both, "time_text_embed.1");
    net_drop(r, &both);
    return c;
}

static void embed_time(struct net_run *r, struct zimage_pass *p)
{
    const uint64_t rows = p->z.R ? 2 * p->z.B : p->z.B;
    struct act a = net_timestep(r, p->host ? p->host->time : NULL, (size_t)rows, ZIMAGE_TIME_WIDTH);
    struct act h = net_linear(r, a, "t_embedder.mlp.0");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    p->silu = net_linear(r, h, "t_embedder.mlp.2");
    net_drop(r, &h);
    if (p->f->pooled_dim)
        p->silu = add_pooled(r, p, p->silu);
    p->vec = p->f->lumina ? p->silu : net_slice(r, p->silu, 0, 0, rows);
    net_unary(r, &p->silu, OP_SILU);
}

/* Rows from..from + n of every item of x to where they begin at `at` in those of y. */
static void put(struct net_run *r, const struct zimage_pass *p, struct act x, uint64_t from,
                struct act y, uint64_t at, uint64_t n)
{
    for (uint64_t b = 0; n && b < p->z.B && !net_bad(r); b++) {
        struct act source = tokens_of(x, b, from, from + n), to = tokens_of(y, b, at, at + n);
        net_copy(r, net_view(&source), net_view(&to));
    }
}

/* x [B, rows, D], all of a kind, as tokens: each part filled up with pads. Takes x. */
static struct act padded(struct net_run *r, const struct zimage_pass *p, struct act x,
                         enum zimage_kind kind, const char *token, uint64_t tokens)
{
    const struct shape s = zimage_shape3(p->z.B, tokens, p->f->hidden);
    const size_t n = zimage_parts(p->f, p->in, kind);
    uint64_t from = 0, at = 0;
    if (p->z.rows[kind] == tokens)
        return x;
    struct act y = net_new(r, &s);
    for (size_t k = 0; k < n && !net_bad(r); k++) {
        const struct zimage_part part = zimage_part(p->f, p->in, kind, k);
        const uint64_t pads = part.tokens - part.rows;
        put(r, p, x, from, y, at, part.rows);
        from += part.rows;
        at += part.rows;
        if (!pads)
            continue;
        const struct shape of = zimage_shape3(p->z.B, pads, p->f->hidden);
        struct act pad =
            net_embedding(r, p->host ? p->host->zeros : NULL, (size_t)(p->z.B * pads), token);
        pad = net_reshape(r, pad, &of);
        put(r, p, pad, 0, y, at, pads);
        net_drop(r, &pad);
        at += pads;
    }
    net_drop(r, &x);
    return y;
}

/* linear(norm(rows)) [B, n, D] of rows [B, n, wide], which may be none: `name`.1 of `name`.0. */
static struct act normed_in(struct net_run *r, const struct zimage_pass *p, const float *rows,
                            uint64_t n, uint64_t wide, const char *norm, const char *layer)
{
    const struct shape s = zimage_shape3(p->z.B, n, wide);
    if (!n)
        return (struct act) { .addr = 0 };
    struct act in = net_input(r, &s, rows);
    struct act h = net_rms_norm(r, in, norm, EPS);
    net_drop(r, &in);
    struct act x = net_linear(r, h, layer);
    net_drop(r, &h);
    return x;
}

static struct act embed_text(struct net_run *r, const struct zimage_pass *p)
{
    const float *rows = p->z.R && p->host ? p->host->texts : p->in->context;
    struct act x = normed_in(r, p, rows, p->z.rows[ZIMAGE_TEXT], p->f->context_dim,
                             "cap_embedder.0", "cap_embedder.1");
    return padded(r, p, x, ZIMAGE_TEXT, "cap_pad_token", p->z.L);
}

static struct act embed_seen(struct net_run *r, const struct zimage_pass *p)
{
    struct act x = normed_in(r, p, p->host ? p->host->seen : NULL, p->z.rows[ZIMAGE_SEEN],
                             p->f->siglip_dim, "siglip_embedder.0", "siglip_embedder.1");
    return padded(r, p, x, ZIMAGE_SEEN, "siglip_pad_token", p->z.V);
}

/* Without pads. */
static struct act embed_patches(struct net_run *r, const struct zimage_pass *p)
{
    struct shape s = zimage_shape3(p->z.B, p->z.rows[ZIMAGE_PICTURE],
                                   p->f->in_channels * ZIMAGE_PATCH * ZIMAGE_PATCH);
    struct act in = net_input(r, &s, p->host ? p->host->patches : NULL);
    struct act x = net_linear(r, in, "x_embedder");
    net_drop(r, &in);
    return x;
}

/* The tokens of the picture that is made, as patches. */
static struct act way_out(struct net_run *r, const struct zimage_pass *p, struct act x)
{
    struct act scale = net_linear(r, p->silu, "final_layer.adaLN_modulation.1"); /* [B or 2B, D] */
    struct act made = net_slice(r, x, 1, p->z.T - p->z.I, p->z.T);
    struct act h = net_modulate(r, net_view(&made), net_part(r, net_view(&scale), 0, 0, p->z.B),
                                (struct view) { .data = NULL }, LAST_EPS);
    net_drop(r, &made);
    net_drop(r, &scale);
    struct act y = net_linear(r, h, "final_layer.linear");
    net_drop(r, &h);
    return y;
}

/* ---- passes ---- */

static struct act positions(struct net_run *r, const struct zimage_pass *p)
{
    struct shape s = zimage_shape3(p->z.T, p->f->head_dim / 2, 2);
    return net_input_f32(r, &s, p->host ? p->host->table : NULL);
}

/* What others have for the picture's tokens after this block, which are `first` and those behind it
 * in each item of x [B, *, D]. */
static void add_skips(struct net_run *r, const struct zimage_pass *p, bool refiner, uint32_t block,
                      struct act x, uint64_t first)
{
    const uint64_t n = p->z.picture, D = p->f->hidden;
    struct shape s = zimage_shape3(p->z.B, n, D);
    for (size_t i = 0; p->steer && i < p->steer->skips; i++) {
        const struct zimage_skip *skip = &p->steer->skip[i];
        if (skip->refiner != refiner || skip->block != block)
            continue;
        struct act add = net_input(r, &s, skip->x);
        for (uint64_t b = 0; b < p->z.B && !net_bad(r); b++) {
            struct act to = tokens_of(x, b, first, first + n);
            net_add(r, &to, rows_of(add, b, b + 1));
        }
        net_drop(r, &add);
    }
}

/* Texts, what was seen, and pictures, each refined by itself, as one. */
static struct act refined(struct net_run *r, const struct zimage_pass *p, struct act table)
{
    const struct zimage_net *f = p->f;
    const uint64_t L = p->z.L, V = p->z.V, T = p->z.T;
    struct act part[3];
    size_t n = 0;
    part[n++] = embed_text(r, p);
    for (uint32_t i = 0; i < f->context_refiners && !net_bad(r); i++)
        zimage_block(r, p, "context_refiner", i, false, part[0], rows_of(table, 0, L));
    if (V)
        part[n++] = embed_seen(r, p);
    for (uint32_t i = 0; V && i < f->siglip_refiners && !net_bad(r); i++)
        zimage_block(r, p, "siglip_refiner", i, false, part[1], rows_of(table, L, L + V));
    struct act picture =
        padded(r, p, embed_patches(r, p), ZIMAGE_PICTURE, "x_pad_token", p->z.R + p->z.I);
    for (uint32_t i = 0; i < f->noise_refiners && !net_bad(r); i++) {
        zimage_block(r, p, "noise_refiner", i, true, picture, rows_of(table, L + V, T));
        add_skips(r, p, true, i, picture, 0);
    }
    part[n++] = picture;
    struct act x = net_concat(r, part, n, 1);
    for (size_t i = 0; i < n; i++)
        net_drop(r, &part[i]);
    return x;
}

/* The layers over x and what is behind them. Takes x, table. */
static void to_result(struct net_run *r, const struct zimage_pass *p, struct act x,
                      struct act table)
{
    for (uint32_t i = 0; i < p->f->layers && !net_bad(r); i++) {
        zimage_block(r, p, "layers", i, true, x, table);
        add_skips(r, p, false, i, x, p->z.L);
    }
    net_drop(r, &table);
    struct act y = way_out(r, p, x);
    net_drop(r, &x);
    net_finite(r, y, "Z-Image's output");
    net_output(r, y, p->host ? p->host->result : NULL);
    net_drop(r, &y);
}

static void drop_time(struct net_run *r, struct zimage_pass *p)
{
    if (!p->f->lumina)
        net_drop(r, &p->vec);
    net_drop(r, &p->silu);
}

static void forward(struct net_run *r, void *user)
{
    struct zimage_pass p = *(const struct zimage_pass *)user;
    embed_time(r, &p);
    struct act table = positions(r, &p);
    to_result(r, &p, refined(r, &p, table), table);
    drop_time(r, &p);
}

void zimage_embed(struct net_run *r, void *user)
{
    struct zimage_pass p = *(const struct zimage_pass *)user;
    embed_time(r, &p);
    net_output(r, p.vec, p.steer->vec);
    drop_time(r, &p);
    struct act x = embed_patches(r, &p);
    net_output(r, x, p.steer->embedded);
    net_drop(r, &x);
}

void zimage_refine(struct net_run *r, void *user)
{
    struct zimage_pass p = *(const struct zimage_pass *)user;
    embed_time(r, &p);
    net_output(r, p.vec, p.steer->vec);
    struct act table = positions(r, &p), x = refined(r, &p, table);
    net_drop(r, &table);
    net_output(r, x, p.steer->joined);
    net_drop(r, &x);
    drop_time(r, &p);
}

void zimage_layers(struct net_run *r, void *user)
{
    struct zimage_pass p = *(const struct zimage_pass *)user;
    struct shape s = zimage_shape3(p.z.B, p.z.T, p.f->hidden);
    embed_time(r, &p);
    struct act table = positions(r, &p);
    to_result(r, &p, net_input(r, &s, p.steer->joined), table);
    drop_time(r, &p);
}

/* ---- door ---- */

berth_status zimage_forward(struct net *net, const struct zimage_net *f,
                            const struct family_batch *b, struct zimage_host *host, uint64_t *peak,
                            berth_err *err)
{
    struct zimage_pass p = { .f = f, .in = b, .host = peak ? NULL : host };
    struct shape out = b->shape;
    out.dim[1] = f->out_channels;
    berth_status s = zimage_sizes(f, b, &p.z, err);
    if (!s && peak)
        return net_predict(net, forward, &p, peak, err);
    if (!s)
        s = zimage_host_fill(host, f, b, err);
    if (!s)
        s = b->controls ? zimage_steered(net, &p, host, err) : net_forward(net, forward, &p, err);
    if (!s)
        zimage_unpatchify(host->result, p.z.I, 0, &out, b->out);
    return s;
}
