/* The forward pass of Mochi. B latents; I patches, D wide; L tokens of text, E wide; N = I + L.
 *
 * Memory: a pass holds most in a feed-forward: x, its normed copy and two of [B, I, mlp]; a thrifty
 * one does feed-forwards in quarters. */
#include "model/mochi/mochi.h"

#include "model/families.h"

#include <stdlib.h>

#define EPS 1e-6f
#define EPS_QK 1e-5f
#define QUARTERS 4

struct pass {
    const struct mochi_net *f;
    const struct family_batch *in;
    const struct mochi_host *host; /* NULL: sizes alone are asked for */
    uint64_t B, I, L, N;
    struct act c;             /* [B, D]: silu() of what modulations are made of */
    struct act table;         /* [I * heads, head / 2, 2] */
    struct net_product *each; /* [3 * B], for the layer that is next */
};

struct stream {
    struct act x;     /* [B, n, wide] */
    const char *name; /* "x", "y" */
    uint64_t n, wide, mlp;
    uint64_t at; /* among all tokens */
};

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

/* Rows begin..end of one item of a [B, tokens, wide], in the same place: [1, end - begin, wide]. */
static struct act rows_of(struct net_run *r, struct act a, uint64_t item, uint64_t begin,
                          uint64_t end)
{
    if (net_bad(r))
        return (struct act) { .addr = 0 };
    const uint64_t n = a.shape.dim[1], wide = a.shape.dim[2];
    struct shape flat = shape2(a.shape.dim[0] * n, wide), s = shape3(1, end - begin, wide);
    a = net_rows(r, net_reshape(r, a, &flat), item * n + begin, item * n + end);
    return net_reshape(r, a, &s);
}

/* Chunk k of a modulation, [B, wide] of [B, chunks * wide]. */
static struct view chunk(struct net_run *r, struct act mod, uint64_t k, uint64_t wide)
{
    return net_part(r, net_view(&mod), 1, k * wide, (k + 1) * wide);
}

/* rms_norm(x) * (1 + scale) */
static struct act modulate(struct net_run *r, const struct stream *s, struct act mod, uint64_t k)
{
    struct act y = net_new(r, &s->x.shape);
    net_rms_norm_to(r, &(struct net_norm) { .x = net_view(&s->x),
                                            .y = net_view(&y),
                                            .scale = chunk(r, mod, k, s->wide),
                                            .eps = EPS });
    return y;
}

/* x += tanh(gate) * rms_norm(z). Takes z. */
static void gate(struct net_run *r, const struct stream *s, struct act mod, uint64_t k,
                 struct act z)
{
    struct act g = net_slice(r, mod, 1, k * s->wide, (k + 1) * s->wide);
    net_unary(r, &g, OP_TANH);
    net_rms_norm_to(r, &(struct net_norm) { .x = net_view(&z), .y = net_view(&z), .eps = EPS });
    net_gate(r, net_view(&s->x), net_view(&g), z);
    net_drop(r, &g);
    net_drop(r, &z);
}

/* ---- attention ---- */

/* h [B, n, wide] as queries, keys and values in their places of qkv[3], [B, N, D] each. Takes h. */
static void stream_in(struct net_run *r, const struct pass *p, const struct stream *s, struct act h,
                      struct act *qkv)
{
    const uint64_t D = p->f->hidden;
    char layer[24];
    size_t k = 0;
    snprintf(layer, sizeof layer, "attn.qkv_%s", s->name);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++)
        for (uint64_t q = 0; q < 3; q++) {
            struct act from = rows_of(r, h, i, 0, s->n);
            struct act to = rows_of(r, qkv[q], i, s->at, s->at + s->n);
            p->each[k++] = (struct net_product) { .layer = layer,
                                                  .x = net_view(&from),
                                                  .y = net_view(&to),
                                                  .row = q * D,
                                                  .rows = D,
                                                  .no_bias = true };
        }
    net_products(r, p->each, k);
    net_drop(r, &h);
}

/* Heads of each token normed, and those of the video turned. */
static void norm_heads(struct net_run *r, const struct pass *p, struct act q, struct act k)
{
    const uint64_t head = p->f->hidden / p->f->heads;
    struct shape pictures = shape4(1, p->I * p->f->heads, 1, head);
    struct shape text = shape2(p->L * p->f->heads, head);
    const struct net_rope turn = {
        .wq = "attn.q_norm_x", .wk = "attn.k_norm_x", .table = p->table, .eps = EPS_QK
    };
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++) {
        struct act a = net_reshape(r, rows_of(r, q, i, 0, p->I), &pictures);
        struct act b = net_reshape(r, rows_of(r, k, i, 0, p->I), &pictures);
        net_rotate(r, net_view(&a), net_view(&b), &turn);
        a = net_reshape(r, rows_of(r, q, i, p->I, p->N), &text);
        b = net_reshape(r, rows_of(r, k, i, p->I, p->N), &text);
        net_rms_norm_to(
            r, &(struct net_norm) {
                   .layer = "attn.q_norm_y", .x = net_view(&a), .y = net_view(&a), .eps = EPS_QK });
        net_rms_norm_to(
            r, &(struct net_norm) {
                   .layer = "attn.k_norm_y", .x = net_view(&b), .y = net_view(&b), .eps = EPS_QK });
    }
}

/* What attention gave a stream, brought to its width: [B, n, wide]. */
static struct act stream_out(struct net_run *r, const struct pass *p, const struct stream *s,
                             struct act o)
{
    struct shape shape = shape3(p->B, s->n, s->wide);
    struct act z = net_new(r, &shape);
    char layer[24];
    size_t k = 0;
    snprintf(layer, sizeof layer, "attn.proj_%s", s->name);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++) {
        struct act from = rows_of(r, o, i, s->at, s->at + s->n), to = rows_of(r, z, i, 0, s->n);
        p->each[k++] =
            (struct net_product) { .layer = layer, .x = net_view(&from), .y = net_view(&to) };
    }
    net_products(r, p->each, k);
    return z;
}

/* w2(silu(a) * g), a and g being the halves of w1(h); in h's place. */
static void feed_forward(struct net_run *r, const struct pass *p, const struct stream *s,
                         struct act h)
{
    const uint64_t all = p->B * s->n;
    const uint64_t most = net_thrifty(r) ? (all + QUARTERS - 1) / QUARTERS : all;
    struct shape flat = shape2(all, s->wide);
    char up[16], down[16];
    snprintf(up, sizeof up, "mlp_%s.w1", s->name);
    snprintf(down, sizeof down, "mlp_%s.w2", s->name);
    h = net_reshape(r, h, &flat);
    for (uint64_t at = 0; at < all && !net_bad(r); at += most) {
        const uint64_t n = all - at < most ? all - at : most;
        struct shape wide = shape2(n, s->mlp);
        struct act some = net_rows(r, h, at, at + n), part[2];
        struct net_product two[2];
        for (uint64_t k = 0; k < 2; k++) {
            part[k] = net_new(r, &wide);
            two[k] = (struct net_product) { .layer = up,
                                            .x = net_view(&some),
                                            .y = net_view(&part[k]),
                                            .row = k * s->mlp,
                                            .rows = s->mlp,
                                            .no_bias = true };
        }
        net_products(r, two, 2);
        net_silu_mul(r, &part[0], part[1]);
        net_drop(r, &part[1]);
        net_product(
            r, &(struct net_product) {
                   .layer = down, .x = net_view(&part[0]), .y = net_view(&some), .no_bias = true });
        net_drop(r, &part[0]);
    }
}

/* ---- blocks ---- */

enum { SCALE1, GATE1, SCALE2, GATE2 }; /* of a modulation */

static void end_stream(struct net_run *r, const struct pass *p, const struct stream *s,
                       struct act mod, struct act o)
{
    gate(r, s, mod, GATE1, stream_out(r, p, s, o));
    struct act h = modulate(r, s, mod, SCALE2);
    feed_forward(r, p, s, h);
    gate(r, s, mod, GATE2, h);
}

static void block(struct net_run *r, const struct pass *p, uint32_t n, const struct stream *x,
                  const struct stream *y)
{
    const bool last = n + 1 == p->f->depth; /* text is needed no more */
    struct shape s = shape3(p->B, p->N, p->f->hidden);
    size_t mark = net_enter(r, "blocks.%u.", n);
    struct act mod_x = net_linear(r, p->c, "mod_x"), mod_y = net_linear(r, p->c, "mod_y"), qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = net_new(r, &s);
    stream_in(r, p, x, modulate(r, x, mod_x, SCALE1), qkv);
    stream_in(r, p, y, modulate(r, y, mod_y, SCALE1), qkv);
    norm_heads(r, p, qkv[0], qkv[1]);
    struct act o = net_new(r, &s);
    net_attend(r, net_split(r, net_view(&qkv[0]), p->f->heads),
               net_split(r, net_view(&qkv[1]), p->f->heads),
               net_split(r, net_view(&qkv[2]), p->f->heads),
               net_split(r, net_view(&o), p->f->heads), (struct net_attn) { .scale = 0 });
    for (int i = 0; i < 3; i++)
        net_drop(r, &qkv[i]);
    end_stream(r, p, x, mod_x, o);
    if (!last)
        end_stream(r, p, y, mod_y, o);
    net_drop(r, &o);
    net_drop(r, &mod_x);
    net_drop(r, &mod_y);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

/* One vector of a text [B, 1 + L, C], of which the first row asks all of them: [B, D]. */
static struct act pool(struct net_run *r, const struct pass *p, struct act text)
{
    const uint64_t C = p->f->context_dim;
    struct shape one = shape3(p->B, 1, C), flat = shape2(p->B, C);
    size_t mark = net_enter(r, "t5_y_embedder.");
    struct act mean = net_slice(r, text, 1, 0, 1), q = net_linear(r, mean, "to_q");
    struct act kv = net_linear(r, text, "to_kv"), o = net_new(r, &one);
    net_drop(r, &mean);
    net_attend(r, net_split(r, net_view(&q), MOCHI_POOL_HEADS),
               net_split(r, net_part(r, net_view(&kv), 2, 0, C), MOCHI_POOL_HEADS),
               net_split(r, net_part(r, net_view(&kv), 2, C, 2 * C), MOCHI_POOL_HEADS),
               net_split(r, net_view(&o), MOCHI_POOL_HEADS), (struct net_attn) { .scale = 0 });
    net_drop(r, &q);
    net_drop(r, &kv);
    struct act y = net_linear(r, net_reshape(r, o, &flat), "to_out");
    net_drop(r, &o);
    net_leave(r, mark);
    return y;
}

static struct act embed_time(struct net_run *r, const struct pass *p)
{
    struct act a =
        net_timestep(r, p->host ? p->host->time.p : NULL, (size_t)p->B, MOCHI_TIME_WIDTH);
    struct act h = net_linear(r, a, "t_embedder.mlp.0");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    struct act y = net_linear(r, h, "t_embedder.mlp.2");
    net_drop(r, &h);
    return y;
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    const uint64_t D = p.f->hidden, head = D / p.f->heads;
    struct shape ps = shape3(p.B, p.I, p.f->channels * MOCHI_PATCH * MOCHI_PATCH);
    struct shape cs = shape3(p.B, 1 + p.L, p.f->context_dim);
    struct shape ts = shape3(p.I * p.f->heads, head / 2, 2);
    struct stream x = { .name = "x", .n = p.I, .wide = D, .mlp = p.f->mlp };
    struct stream y = {
        .name = "y", .n = p.L, .wide = p.f->text_hidden, .mlp = p.f->text_mlp, .at = p.I
    };
    struct act in = net_input(r, &ps, p.host ? p.host->patches.p : NULL);
    x.x = net_linear(r, in, "x_embedder.proj");
    net_drop(r, &in);
    p.c = embed_time(r, &p);
    in = net_input(r, &cs, p.host ? p.host->context.p : NULL);
    struct act pooled = pool(r, &p, in), text = net_slice(r, in, 1, 1, 1 + p.L);
    net_add(r, &p.c, pooled);
    net_drop(r, &pooled);
    net_drop(r, &in);
    net_unary(r, &p.c, OP_SILU);
    y.x = net_linear(r, text, "t5_yproj");
    net_drop(r, &text);
    struct act frequencies = net_param(r, "pos_frequencies"); /* the host has made the table */
    net_drop(r, &frequencies);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    for (uint32_t i = 0; i < p.f->depth && !net_bad(r); i++)
        block(r, &p, i, &x, &y);
    net_drop(r, &p.table);
    net_drop(r, &y.x);
    struct act mod = net_linear(r, p.c, "final_layer.mod"); /* [B, 2D]: shift, scale */
    net_drop(r, &p.c);
    struct act h = net_modulate(r, net_view(&x.x), chunk(r, mod, 1, D), chunk(r, mod, 0, D), EPS);
    net_drop(r, &mod);
    net_drop(r, &x.x);
    struct act out = net_linear(r, h, "final_layer.linear");
    net_drop(r, &h);
    net_finite(r, out, "Mochi's output");
    net_output(r, out, p.host ? p.host->result.p : NULL);
    net_drop(r, &out);
}

berth_status mochi_forward(struct net *net, const struct mochi_net *f, const struct family_batch *b,
                           struct mochi_host *host, uint64_t *peak, berth_err *err)
{
    struct pass p = { .f = f, .in = b, .host = peak ? NULL : host, .B = b->shape.dim[0] };
    struct mochi_sizes size;
    if (mochi_sizes(b, &size, err))
        return err->code;
    p.I = size.picture;
    p.L = size.text;
    p.N = p.I + p.L;
    p.each = calloc(3 * p.B, sizeof *p.each);
    berth_status s = p.each ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a batch of latents");
    if (!s && peak)
        s = net_predict(net, forward, &p, peak, err);
    if (!s && !peak)
        s = mochi_host_fill(host, f, b, &size, err);
    if (!s && !peak)
        s = net_forward(net, forward, &p, err);
    if (!s && !peak)
        mochi_host_give(host, f, b);
    free(p.each);
    return s;
}
