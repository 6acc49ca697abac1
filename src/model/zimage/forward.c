/* The forward pass of Z-Image and Lumina2. B latents, L tokens of text and I of a picture, pads
 * included, T = L + I; D wide, H heads of queries, K of keys and values, F inside of feed-forwards.
 *
 * Memory: a pass holds most in a feed-forward: x, its normed copy and two of [B, T, F]. A thrifty
 * pass does feed-forwards by rows, in as many pieces as it takes to stay below what attention needs
 * (x, queries, keys and values, its result), and no more: a streamed layer comes anew for each. */
#include "model/zimage/zimage_impl.h"

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
        net_gate(r, net_view(&x), net_view(&gate), n);
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
    struct act h = net_rms_modulate(r, x, "attention_norm1", chunk(r, p, mod, SCALE1), EPS);
    h = attention(r, p, h, table);
    add_normed(r, p, x, h, "attention_norm2", mod, GATE1);
    h = net_rms_modulate(r, x, "ffn_norm1", chunk(r, p, mod, SCALE2), EPS);
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
    struct act a =
        net_timestep(r, p->host ? p->host->time : NULL, (size_t)p->z.B, ZIMAGE_TIME_WIDTH);
    struct act h = net_linear(r, a, "t_embedder.mlp.0");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    p->silu = net_linear(r, h, "t_embedder.mlp.2");
    net_drop(r, &h);
    if (p->f->pooled_dim)
        p->silu = add_pooled(r, p, p->silu);
    p->vec = p->f->lumina ? p->silu : net_slice(r, p->silu, 0, 0, p->z.B);
    net_unary(r, &p->silu, OP_SILU);
}

/* x [B, n, D] with pad tokens up to `to` of them. Takes x. */
static struct act padded(struct net_run *r, const struct zimage_pass *p, struct act x,
                         const char *token, uint64_t n, uint64_t to)
{
    if (n == to)
        return x;
    struct shape s = zimage_shape3(p->z.B, to - n, p->f->hidden);
    struct act pads =
        net_embedding(r, p->host ? p->host->zeros : NULL, (size_t)(p->z.B * (to - n)), token);
    struct act pair[2] = { x, net_reshape(r, pads, &s) };
    struct act y = net_concat(r, pair, 2, 1);
    net_drop(r, &x);
    net_drop(r, &pads);
    return y;
}

static struct act embed_text(struct net_run *r, const struct zimage_pass *p)
{
    struct shape s = zimage_shape3(p->z.B, p->z.text, p->f->context_dim);
    struct act in = net_input(r, &s, p->in->context);
    struct act h = net_rms_norm(r, in, "cap_embedder.0", EPS);
    net_drop(r, &in);
    struct act x = net_linear(r, h, "cap_embedder.1");
    net_drop(r, &h);
    return padded(r, p, x, "cap_pad_token", p->z.text, p->z.L);
}

static struct act embed_picture(struct net_run *r, const struct zimage_pass *p)
{
    struct shape s =
        zimage_shape3(p->z.B, p->z.picture, p->f->in_channels * ZIMAGE_PATCH * ZIMAGE_PATCH);
    struct act in = net_input(r, &s, p->host ? p->host->patches : NULL);
    struct act x = net_linear(r, in, "x_embedder");
    net_drop(r, &in);
    return padded(r, p, x, "x_pad_token", p->z.picture, p->z.I);
}

/* Every token of x as a patch; those of text are not looked at. */
static struct act way_out(struct net_run *r, const struct zimage_pass *p, struct act x)
{
    struct act scale = net_linear(r, p->silu, "final_layer.adaLN_modulation.1"); /* [B, D] */
    struct act h =
        net_modulate(r, net_view(&x), net_view(&scale), (struct view) { .data = NULL }, LAST_EPS);
    net_drop(r, &scale);
    struct act y = net_linear(r, h, "final_layer.linear");
    net_drop(r, &h);
    return y;
}

/* ---- passes ---- */

static struct act positions(struct net_run *r, const struct zimage_pass *p)
{
    struct shape s = zimage_shape3(p->z.L + p->z.I, p->f->head_dim / 2, 2);
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
            struct act to = rows_of(x, b, b + 1), from = rows_of(add, b, b + 1);
            to.addr += first * net_view(&x).stride[1];
            to.shape.dim[1] = n;
            net_add(r, &to, from);
        }
        net_drop(r, &add);
    }
}

/* Text and picture, each refined by itself, as one. */
static struct act refined(struct net_run *r, const struct zimage_pass *p, struct act table)
{
    const struct zimage_net *f = p->f;
    const uint64_t L = p->z.L, T = p->z.L + p->z.I;
    struct act text = embed_text(r, p);
    for (uint32_t i = 0; i < f->context_refiners && !net_bad(r); i++)
        zimage_block(r, p, "context_refiner", i, false, text, rows_of(table, 0, L));
    struct act picture = embed_picture(r, p);
    for (uint32_t i = 0; i < f->noise_refiners && !net_bad(r); i++) {
        zimage_block(r, p, "noise_refiner", i, true, picture, rows_of(table, L, T));
        add_skips(r, p, true, i, picture, 0);
    }
    struct act pair[2] = { text, picture }, x = net_concat(r, pair, 2, 1);
    net_drop(r, &text);
    net_drop(r, &picture);
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
    p.z.I = p.z.picture; /* without pads */
    struct act x = embed_picture(r, &p);
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
    struct shape s = zimage_shape3(p.z.B, p.z.L + p.z.I, p.f->hidden);
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
        zimage_unpatchify(host->result, p.z.L + p.z.I, p.z.L, &out, b->out);
    return s;
}
