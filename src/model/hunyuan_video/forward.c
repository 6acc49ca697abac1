/* The forward pass of HunyuanVideo. B latents; L tokens of text, I patches, N = L + I; D wide.
 *
 * Memory: a pass holds most in a single block: x, its normed copy, [B, N, 3 D] of queries, keys and
 * values and [B, N, D + mlp] of what its last layer takes. A thrifty pass does feed-forwards of
 * double blocks in quarters. */
#include "model/hunyuan_video/hunyuan_video.h"

#include "model/families.h"

#include <stdlib.h>

#define EPS 1e-6f
#define QUARTERS 4

struct pass {
    const struct hunyuan_net *f;
    const struct family_batch *in;
    const struct hunyuan_host *host; /* NULL: sizes alone are asked for */
    uint64_t B, L, I, N;
    struct act x;             /* [B, N, D] */
    struct act vec;           /* [B, D]: silu() of what modulations are made of */
    struct act table;         /* [N, head / 2, 2] */
    struct net_product *each; /* [3 * B], for the layer that is next */
};

static struct shape shape2(uint64_t a, uint64_t b)
{
    return (struct shape) { .ndim = 2, .dim = { a, b } };
}

static struct shape shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

/* ---- slices ---- */

/* Columns [at, at + n) of a [B, N, wide], of the tokens begin..end of one item. */
static struct view part(struct net_run *r, const struct act *a, uint64_t item, uint64_t begin,
                        uint64_t end, uint64_t at, uint64_t n)
{
    struct view v = net_part(r, net_view(a), 0, item, item + 1);
    return net_part(r, net_part(r, v, 1, begin, end), 2, at, at + n);
}

/* Chunk k of an item's modulation, [1, D] of [B, chunks * D]. */
static struct view chunk(struct net_run *r, const struct pass *p, struct act mod, uint64_t item,
                         uint64_t k)
{
    const uint64_t D = p->f->hidden;
    struct view v = net_part(r, net_view(&mod), 0, item, item + 1);
    return net_part(r, v, 1, k * D, (k + 1) * D);
}

/* Tokens begin..end of x, normed and modulated: [B, end - begin, D]. */
static struct act modulate(struct net_run *r, const struct pass *p, uint64_t begin, uint64_t end,
                           struct act mod, uint64_t shift, uint64_t scale)
{
    const uint64_t D = p->f->hidden, n = end - begin;
    struct shape s = shape3(p->B, n, D);
    struct act y = net_new(r, &s);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++)
        net_norm_to(r, &(struct net_norm) { .x = part(r, &p->x, i, begin, end, 0, D),
                                            .y = part(r, &y, i, 0, n, 0, D),
                                            .scale = chunk(r, p, mod, i, scale),
                                            .shift = chunk(r, p, mod, i, shift),
                                            .eps = EPS });
    return y;
}

/* Tokens begin..end of x += gate * z [B, end - begin, D]. Takes z. */
static void gate(struct net_run *r, const struct pass *p, uint64_t begin, uint64_t end,
                 struct act mod, uint64_t g, struct act z)
{
    const uint64_t D = p->f->hidden, n = end - begin;
    struct shape one = shape3(1, n, D), rows = shape2(p->B * n, D);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++) {
        struct act mine = net_rows(r, net_reshape(r, z, &rows), i * n, (i + 1) * n);
        net_gate(r, part(r, &p->x, i, begin, end, 0, D), chunk(r, p, mod, i, g),
                 net_reshape(r, mine, &one));
    }
    net_drop(r, &z);
}

/* ---- double blocks ---- */

struct stream {
    const char *name;    /* "img", "txt" */
    uint64_t begin, end; /* its tokens */
};

/* Its queries, keys and values into qkv [B, N, 3D], turned. */
static void stream_in(struct net_run *r, const struct pass *p, const struct stream *s,
                      struct act mod, struct act qkv)
{
    const uint64_t D = p->f->hidden, n = s->end - s->begin;
    char layer[32], wq[48], wk[48];
    struct act h = modulate(r, p, s->begin, s->end, mod, 0, 1);
    snprintf(layer, sizeof layer, "%s_attn.qkv", s->name);
    snprintf(wq, sizeof wq, "%s_attn.norm.query_norm", s->name);
    snprintf(wk, sizeof wk, "%s_attn.norm.key_norm", s->name);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++)
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = part(r, &h, i, 0, n, 0, D),
                                            .y = part(r, &qkv, i, s->begin, s->end, 0, 3 * D) };
    net_products(r, p->each, (size_t)p->B);
    net_drop(r, &h);
    const struct act table = net_rows(r, p->table, s->begin, s->end);
    const struct net_rope turn = { .wq = wq, .wk = wk, .table = table, .eps = EPS };
    struct view all = net_part(r, net_view(&qkv), 1, s->begin, s->end);
    net_rotate(r, net_split(r, net_part(r, all, 2, 0, D), p->f->heads),
               net_split(r, net_part(r, all, 2, D, 2 * D), p->f->heads), &turn);
}

/* h [B, n, D] in its place; its rows are those of all items. */
static void feed_forward(struct net_run *r, const struct pass *p, const struct stream *s,
                         struct act h)
{
    const uint64_t D = p->f->hidden, all = p->B * (s->end - s->begin);
    const uint64_t most = net_thrifty(r) ? (all + QUARTERS - 1) / QUARTERS : all;
    struct shape flat = shape2(all, D);
    char up[32], down[32];
    snprintf(up, sizeof up, "%s_mlp.0", s->name);
    snprintf(down, sizeof down, "%s_mlp.2", s->name);
    h = net_reshape(r, h, &flat);
    for (uint64_t at = 0; at < all && !net_bad(r); at += most) {
        const uint64_t n = all - at < most ? all - at : most;
        struct shape wide = shape2(n, p->f->mlp);
        struct act some = net_rows(r, h, at, at + n), y = net_new(r, &wide);
        net_product(r, &(struct net_product) { .layer = up,
                                               .x = net_view(&some),
                                               .y = net_view(&y),
                                               .after = OP_AFTER_GELU_TANH });
        net_product(
            r, &(struct net_product) { .layer = down, .x = net_view(&y), .y = net_view(&some) });
        net_drop(r, &y);
    }
}

/* What attention gave it, and its feed-forward. */
static void stream_out(struct net_run *r, const struct pass *p, const struct stream *s,
                       struct act mod, struct act o)
{
    const uint64_t D = p->f->hidden, n = s->end - s->begin;
    struct shape shape = shape3(p->B, n, D);
    char layer[32];
    struct act z = net_new(r, &shape);
    snprintf(layer, sizeof layer, "%s_attn.proj", s->name);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++)
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = part(r, &o, i, s->begin, s->end, 0, D),
                                            .y = part(r, &z, i, 0, n, 0, D) };
    net_products(r, p->each, (size_t)p->B);
    gate(r, p, s->begin, s->end, mod, 2, z);
    struct act h = modulate(r, p, s->begin, s->end, mod, 3, 4);
    feed_forward(r, p, s, h);
    gate(r, p, s->begin, s->end, mod, 5, h);
}

/* Attention of all tokens; o: a view [B, N, D]. Drops qkv. */
static void attend(struct net_run *r, const struct pass *p, struct act qkv, struct view o)
{
    const uint64_t D = p->f->hidden;
    struct view v[3];
    for (uint64_t i = 0; i < 3; i++)
        v[i] = net_split(r, net_part(r, net_view(&qkv), 2, i * D, (i + 1) * D), p->f->heads);
    net_attend(r, v[0], v[1], v[2], net_split(r, o, p->f->heads), (struct net_attn) { .scale = 0 });
    net_drop(r, &qkv);
}

static void double_block(struct net_run *r, const struct pass *p, uint32_t n)
{
    const struct stream img = { "img", p->L, p->N }, txt = { "txt", 0, p->L };
    struct shape wide = shape3(p->B, p->N, 3 * p->f->hidden), s = shape3(p->B, p->N, p->f->hidden);
    size_t mark = net_enter(r, "double_blocks.%u.", n);
    struct act img_mod = net_linear(r, p->vec, "img_mod.lin"); /* [B, 6D] */
    struct act txt_mod = net_linear(r, p->vec, "txt_mod.lin");
    struct act qkv = net_new(r, &wide);
    stream_in(r, p, &img, img_mod, qkv);
    stream_in(r, p, &txt, txt_mod, qkv);
    struct act o = net_new(r, &s);
    attend(r, p, qkv, net_view(&o));
    stream_out(r, p, &img, img_mod, o);
    stream_out(r, p, &txt, txt_mod, o);
    net_drop(r, &o);
    net_drop(r, &img_mod);
    net_drop(r, &txt_mod);
    net_leave(r, mark);
}

/* ---- single blocks ---- */

/* Attention and feed-forward side by side: one layer before both, one behind. */
static void single_block(struct net_run *r, const struct pass *p, uint32_t n)
{
    const uint64_t D = p->f->hidden;
    struct shape wide = shape3(p->B, p->N, 3 * D), both = shape3(p->B, p->N, D + p->f->mlp);
    struct shape s = shape3(p->B, p->N, D);
    size_t mark = net_enter(r, "single_blocks.%u.", n);
    struct act mod = net_linear(r, p->vec, "modulation.lin"); /* [B, 3D] */
    struct act h = modulate(r, p, 0, p->N, mod, 0, 1);
    struct act qkv = net_new(r, &wide), y = net_new(r, &both);
    size_t k = 0;
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++) {
        const struct view x = part(r, &h, i, 0, p->N, 0, D);
        p->each[k++] = (struct net_product) {
            .layer = "linear1", .x = x, .y = part(r, &qkv, i, 0, p->N, 0, 3 * D), .rows = 3 * D
        };
        p->each[k++] = (struct net_product) { .layer = "linear1",
                                              .x = x,
                                              .y = part(r, &y, i, 0, p->N, D, p->f->mlp),
                                              .row = 3 * D,
                                              .rows = p->f->mlp,
                                              .after = OP_AFTER_GELU_TANH };
    }
    net_products(r, p->each, k);
    net_drop(r, &h);
    const struct net_rope turn = {
        .wq = "norm.query_norm", .wk = "norm.key_norm", .table = p->table, .eps = EPS
    };
    net_rotate(r, net_split(r, net_part(r, net_view(&qkv), 2, 0, D), p->f->heads),
               net_split(r, net_part(r, net_view(&qkv), 2, D, 2 * D), p->f->heads), &turn);
    attend(r, p, qkv, net_part(r, net_view(&y), 2, 0, D));
    struct act z = net_new(r, &s);
    net_product(r,
                &(struct net_product) { .layer = "linear2", .x = net_view(&y), .y = net_view(&z) });
    net_drop(r, &y);
    gate(r, p, 0, p->N, mod, 2, z);
    net_drop(r, &mod);
    net_leave(r, mark);
}

/* ---- text ---- */

/* out_layer(silu(in_layer(x))); takes x. */
static struct act embedder(struct net_run *r, const char *name, struct act x)
{
    size_t mark = net_enter(r, "%s.", name);
    struct act h = net_linear(r, x, "in_layer");
    net_drop(r, &x);
    net_unary(r, &h, OP_SILU);
    struct act y = net_linear(r, h, "out_layer");
    net_drop(r, &h);
    net_leave(r, mark);
    return y;
}

static struct act timestep(struct net_run *r, const struct pass *p, uint64_t at)
{
    return net_timestep(r, p->host ? p->host->number.p + at : NULL, (size_t)p->B,
                        HUNYUAN_TIME_WIDTH);
}

/* t [B, L, D] += gate * z, the gate being half k of mod [B, 2D]. Takes z. */
static void gate_text(struct net_run *r, const struct pass *p, struct act t, struct act mod,
                      uint64_t k, struct act z)
{
    const uint64_t D = p->f->hidden;
    net_gate(r, net_view(&t), net_part(r, net_view(&mod), 1, k * D, (k + 1) * D), z);
    net_drop(r, &z);
}

/* c [B, D]: silu() of what gates are made of. */
static void refiner(struct net_run *r, const struct pass *p, uint32_t n, struct act t, struct act c)
{
    const uint64_t D = p->f->hidden;
    size_t mark = net_enter(r, "individual_token_refiner.blocks.%u.", n);
    struct act mod = net_linear(r, c, "adaLN_modulation.1");
    struct act h = net_layer_norm(r, t, "norm1", EPS), qkv = net_linear(r, h, "self_attn.qkv");
    struct view v[3];
    for (uint64_t i = 0; i < 3; i++)
        v[i] = net_split(r, net_part(r, net_view(&qkv), 2, i * D, (i + 1) * D), p->f->heads);
    net_attend(r, v[0], v[1], v[2], net_split(r, net_view(&h), p->f->heads),
               (struct net_attn) { .scale = 0 });
    net_drop(r, &qkv);
    gate_text(r, p, t, mod, 0, net_linear(r, h, "self_attn.proj"));
    net_drop(r, &h);
    h = net_layer_norm(r, t, "norm2", EPS);
    struct act up = net_linear(r, h, "mlp.0");
    net_drop(r, &h);
    net_unary(r, &up, OP_SILU);
    gate_text(r, p, t, mod, 1, net_linear(r, up, "mlp.2"));
    net_drop(r, &up);
    net_drop(r, &mod);
    net_leave(r, mark);
}

/* The text, as far as it is to be seen, into the first tokens of x. */
static void text_in(struct net_run *r, const struct pass *p)
{
    struct shape s = shape3(p->B, p->L, p->f->context_dim), ms = shape2(p->B, p->f->context_dim);
    size_t mark = net_enter(r, "txt_in.");
    struct act c = embedder(r, "t_embedder", timestep(r, p, 0));
    struct act mean = net_input(r, &ms, p->host ? p->host->mean.p : NULL);
    mean = embedder(r, "c_embedder", mean);
    net_add(r, &c, mean);
    net_drop(r, &mean);
    net_unary(r, &c, OP_SILU);
    struct act in = net_input(r, &s, p->host ? p->host->context.p : NULL);
    struct act t = net_linear(r, in, "input_embedder");
    net_drop(r, &in);
    for (uint32_t i = 0; i < p->f->refiners && !net_bad(r); i++)
        refiner(r, p, i, t, c);
    net_drop(r, &c);
    net_leave(r, mark);
    net_copy(r, net_view(&t), net_part(r, net_view(&p->x), 1, 0, p->L));
    net_drop(r, &t);
}

/* ---- way in, way out ---- */

static void pictures_in(struct net_run *r, const struct pass *p)
{
    const uint64_t wide = p->f->in_channels * HUNYUAN_PATCH * HUNYUAN_PATCH;
    struct shape s = shape3(p->B, p->I, wide);
    struct act in = net_input(r, &s, p->host ? p->host->patches.p : NULL);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++)
        p->each[i] = (struct net_product) { .layer = "img_in.proj",
                                            .x = part(r, &in, i, 0, p->I, 0, wide),
                                            .y = part(r, &p->x, i, p->L, p->N, 0, p->f->hidden) };
    net_products(r, p->each, (size_t)p->B);
    net_drop(r, &in);
}

static struct act embed(struct net_run *r, const struct pass *p)
{
    struct act vec = embedder(r, "time_in", timestep(r, p, 0));
    struct act more[2] = { { .addr = 0 }, { .addr = 0 } };
    if (p->f->vector_dim) {
        struct shape s = shape2(p->B, p->f->vector_dim);
        more[0] = embedder(r, "vector_in", net_input(r, &s, p->host ? p->in->y : NULL));
    }
    if (p->f->guidance && p->in->guidance)
        more[1] = embedder(r, "guidance_in", timestep(r, p, p->B));
    for (size_t i = 0; i < 2; i++) {
        if (more[i].shape.ndim)
            net_add(r, &vec, more[i]);
        net_drop(r, &more[i]);
    }
    net_unary(r, &vec, OP_SILU);
    return vec;
}

static void way_out(struct net_run *r, const struct pass *p)
{
    size_t mark = net_enter(r, "final_layer.");
    struct act mod = net_linear(r, p->vec, "adaLN_modulation.1"); /* [B, 2D]: shift, scale */
    struct act h = modulate(r, p, p->L, p->N, mod, 0, 1);
    net_drop(r, &mod);
    struct act y = net_linear(r, h, "linear");
    net_drop(r, &h);
    net_leave(r, mark);
    net_finite(r, y, "HunyuanVideo's output");
    net_output(r, y, p->host ? p->host->result.p : NULL);
    net_drop(r, &y);
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    struct shape xs = shape3(p.B, p.N, p.f->hidden);
    struct shape ts = shape3(p.N, p.f->hidden / p.f->heads / 2, 2);
    p.x = net_new(r, &xs);
    pictures_in(r, &p);
    p.vec = embed(r, &p);
    text_in(r, &p);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    for (uint32_t i = 0; i < p.f->depth && !net_bad(r); i++)
        double_block(r, &p, i);
    for (uint32_t i = 0; i < p.f->single && !net_bad(r); i++)
        single_block(r, &p, i);
    net_drop(r, &p.table);
    way_out(r, &p);
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
}

berth_status hunyuan_forward(struct net *net, const struct hunyuan_net *f,
                             const struct family_batch *b, struct hunyuan_host *host,
                             uint64_t *peak, berth_err *err)
{
    struct pass p = { .f = f, .in = b, .host = peak ? NULL : host, .B = b->shape.dim[0] };
    struct hunyuan_sizes size;
    if (hunyuan_sizes(b, &size, err))
        return err->code;
    p.L = size.text;
    p.I = size.picture;
    p.N = p.L + p.I;
    p.each = calloc(2 * p.B, sizeof *p.each);
    berth_status s = p.each ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a batch of latents");
    if (!s && peak)
        s = net_predict(net, forward, &p, peak, err);
    if (!s && !peak)
        s = hunyuan_host_fill(host, f, b, &size, net_act(net), err);
    if (!s && !peak)
        s = net_forward(net, forward, &p, err);
    if (!s && !peak)
        tokens_to_batch(host->result.p, f->out_channels, b);
    free(p.each);
    return s;
}
