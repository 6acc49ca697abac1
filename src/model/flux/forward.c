/* The forward pass of Flux. B latents, L tokens of text, I patches of a picture, and R of those it
 * looks at, T = L + I + R; D wide, H heads, M inside of feed-forwards.
 *
 * Memory: x [B, T, D] is one buffer from the first layer to the last, text first. The streams of a
 * double block are slices of it, and their queries, keys and values are slices of one [B, T, 3D],
 * so nothing is joined or taken apart. In a single block, attention and feed-forward write columns
 * of one [B, T, D + M], which linear2 reads whole. A pass holds most in a single block: x, its
 * modulated copy, and these two. A thrifty pass does feed-forwards by rows, those of single blocks
 * after the attention; it then holds x, the copy, the queries, keys and values, and the attention's
 * result. It cuts the rows into no more pieces than that takes, because a streamed layer comes anew
 * for each.
 *
 * The rows of a batch's stream are not evenly apart, so what works on streams goes item by item;
 * products do so within one use of their layer. */
#include "model/flux/flux.h"

#include "model/control.h"

#include <stdlib.h>
#include <string.h>

#define EPS 1e-6f

struct pass {
    const struct flux_net *f;
    const struct family_batch *in;
    const struct flux_host *host;    /* NULL: sizes alone are asked for */
    const struct control_turn *turn; /* of a control net; NULL: it is the model's own */
    bool pixels;                     /* which looks at those */
    bool mode;                       /* and has a token for what they are, before the text */
    uint64_t B, L, I, T;
    struct act x;      /* [B, T, D] */
    struct act vec;    /* [B, D], SiLU applied: what every modulation wants */
    struct act table;  /* [T, head_dim / 2, 2] */
    struct act *a, *b; /* [B] each: acts of the items of a stream */
    struct bias *bias; /* [biases]: queries with what is added for them; NULL: nothing is */
    size_t biases;
    float *bias_row;          /* [biases, T] */
    struct net_product *each; /* [B] */
};

struct bias { /* queries begin..end, for whom attention adds the same */
    uint64_t begin, end;
    const float *row; /* [T]: to the keys */
    struct act mask;
};

struct stream { /* one of the two of a double block */
    const char *name;
    uint64_t begin, end; /* its tokens */
};

static struct shape shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

/* Tokens of one item: [1, end - begin, wide]. */
static struct view tokens_of(struct net_run *r, struct act a, uint64_t item, uint64_t begin,
                             uint64_t end)
{
    return net_part(r, net_part(r, net_view(&a), 0, item, item + 1), 1, begin, end);
}

/* Chunk k of a modulation [B, chunks * D], of items begin..end. */
static struct view chunk(struct net_run *r, const struct pass *p, struct act mod, uint64_t k,
                         uint64_t begin, uint64_t end)
{
    const uint64_t D = p->f->hidden;
    return net_part(r, net_part(r, net_view(&mod), 0, begin, end), 1, k * D, (k + 1) * D);
}

/* Rows begin..end of a's outermost dimension, in the same place. */
static struct act rows_of(struct act a, uint64_t begin, uint64_t end)
{
    struct view v = net_view(&a);
    a.addr += begin * v.stride[0];
    a.shape.dim[0] = end - begin;
    return a;
}

/* ---- a stream, item by item ---- */

/* p->a[i] = norm(x of item i) * (1 + scale) + shift, chunks k (shift) and k + 1 (scale) of mod. */
static void modulate(struct net_run *r, const struct pass *p, const struct stream *s,
                     struct act mod, uint64_t shift, uint64_t scale)
{
    for (uint64_t i = 0; i < p->B; i++)
        p->a[i] =
            net_modulate(r, tokens_of(r, p->x, i, s->begin, s->end),
                         chunk(r, p, mod, scale, i, i + 1), chunk(r, p, mod, shift, i, i + 1), EPS);
}

static void drop(struct net_run *r, const struct pass *p, struct act *list)
{
    for (uint64_t i = 0; i < p->B; i++)
        net_drop(r, &list[i]);
}

/* Columns begin..end of the stream's tokens in joint = layer(from[i]). */
static void product_into(struct net_run *r, const struct pass *p, const struct stream *s,
                         const char *layer, const struct act *from, struct act joint,
                         uint64_t begin, uint64_t end)
{
    for (uint64_t i = 0; i < p->B; i++)
        p->each[i] =
            (struct net_product) { .layer = layer,
                                   .x = net_view(&from[i]),
                                   .y = net_part(r, tokens_of(r, joint, i, s->begin, s->end), 2,
                                                 begin, end) };
    net_products(r, p->each, (size_t)p->B);
}

/* x += gate * z[i] */
static void gate(struct net_run *r, const struct pass *p, const struct stream *s, struct act mod,
                 uint64_t k, const struct act *z)
{
    for (uint64_t i = 0; i < p->B; i++)
        net_gate(r, tokens_of(r, p->x, i, s->begin, s->end), chunk(r, p, mod, k, i, i + 1), z[i]);
}

/* ---- attention ---- */

/* Queries (0), keys (1) or values (2) of tokens begin..end: [B, tokens, H, head_dim]. */
static struct view qkv_view(struct net_run *r, const struct pass *p, struct act qkv, uint64_t which,
                            uint64_t begin, uint64_t end)
{
    const uint64_t D = p->f->hidden;
    struct view v = net_part(r, net_view(&qkv), 1, begin, end);
    return net_split(r, net_part(r, v, 2, which * D, (which + 1) * D), p->f->heads);
}

/* Norms of queries and keys, and their rotation by position, in place. */
static void apply_rope(struct net_run *r, const struct pass *p, struct act qkv, uint64_t begin,
                       uint64_t end, const char *norm)
{
    char wq[64], wk[64];
    snprintf(wq, sizeof wq, "%s.query_norm", norm);
    snprintf(wk, sizeof wk, "%s.key_norm", norm);
    net_qk_rope(r, qkv_view(r, p, qkv, 0, begin, end), qkv_view(r, p, qkv, 1, begin, end), wq, wk,
                rows_of(p->table, begin, end), EPS);
}

/* The queries of one bias after the other: what is added for them is a row, not a matrix. */
static void attend_biased(struct net_run *r, const struct pass *p, struct act qkv, struct view y)
{
    for (size_t i = 0; i < p->biases && !net_bad(r); i++) {
        const struct bias *b = &p->bias[i];
        net_attend(r, qkv_view(r, p, qkv, 0, b->begin, b->end), qkv_view(r, p, qkv, 1, 0, p->T),
                   qkv_view(r, p, qkv, 2, 0, p->T),
                   net_split(r, net_part(r, y, 1, b->begin, b->end), p->f->heads),
                   (struct net_attn) { .mask = b->mask });
    }
}

/* y [B, T, D]: a view, any strides. */
static void attend(struct net_run *r, const struct pass *p, struct act qkv, struct view y)
{
    if (p->bias) {
        attend_biased(r, p, qkv, y);
        return;
    }
    net_attend(r, qkv_view(r, p, qkv, 0, 0, p->T), qkv_view(r, p, qkv, 1, 0, p->T),
               qkv_view(r, p, qkv, 2, 0, p->T), net_split(r, y, p->f->heads),
               (struct net_attn) { .scale = 0 });
}

/* ---- double blocks ---- */

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 }; /* chunks of a stream's modulation */

static void stream_in(struct net_run *r, const struct pass *p, const struct stream *s,
                      struct act mod, struct act qkv)
{
    static const char *const part[] = { "q", "k", "v" };
    const uint64_t D = p->f->hidden;
    char layer[64];
    modulate(r, p, s, mod, SHIFT1, SCALE1);
    if (p->f->diffusers) {
        for (uint64_t k = 0; k < ARRAY_LEN(part); k++) {
            snprintf(layer, sizeof layer, "%s_attn.%s", s->name, part[k]);
            product_into(r, p, s, layer, p->a, qkv, k * D, (k + 1) * D);
        }
    } else {
        snprintf(layer, sizeof layer, "%s_attn.qkv", s->name);
        product_into(r, p, s, layer, p->a, qkv, 0, 3 * D);
    }
    drop(r, p, p->a);
    snprintf(layer, sizeof layer, "%s_attn.norm", s->name);
    apply_rope(r, p, qkv, s->begin, s->end, layer);
}

/* p->a[i] = mlp(p->a[i]), in its place. */
static void feed_forward(struct net_run *r, const struct pass *p, const struct stream *s)
{
    const uint64_t rows = s->end - s->begin, piece = net_thrifty(r) ? (rows + 1) / 2 : rows;
    char up[64], down[64];
    snprintf(up, sizeof up, "%s_mlp.0", s->name);
    snprintf(down, sizeof down, "%s_mlp.2", s->name);
    for (uint64_t at = 0; at < rows && !net_bad(r); at += piece) {
        const uint64_t n = rows - at < piece ? rows - at : piece;
        struct shape wide = shape3(1, n, p->f->mlp);
        for (uint64_t i = 0; i < p->B; i++) {
            p->b[i] = net_new(r, &wide);
            p->each[i] = (struct net_product) { .layer = up,
                                                .x = tokens_of(r, p->a[i], 0, at, at + n),
                                                .y = net_view(&p->b[i]),
                                                .after = OP_AFTER_GELU_TANH };
        }
        net_products(r, p->each, (size_t)p->B);
        for (uint64_t i = 0; i < p->B; i++)
            p->each[i] = (struct net_product) { .layer = down,
                                                .x = net_view(&p->b[i]),
                                                .y = tokens_of(r, p->a[i], 0, at, at + n) };
        net_products(r, p->each, (size_t)p->B);
        drop(r, p, p->b);
    }
}

/* What attention gave the stream, and its feed-forward. */
static void stream_out(struct net_run *r, const struct pass *p, const struct stream *s,
                       struct act mod, struct act o)
{
    char layer[64];
    snprintf(layer, sizeof layer, "%s_attn.proj", s->name);
    struct shape z = shape3(1, s->end - s->begin, p->f->hidden);
    for (uint64_t i = 0; i < p->B; i++) {
        p->a[i] = net_new(r, &z);
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = tokens_of(r, o, i, s->begin, s->end),
                                            .y = net_view(&p->a[i]) };
    }
    net_products(r, p->each, (size_t)p->B);
    gate(r, p, s, mod, GATE1, p->a);
    drop(r, p, p->a);

    modulate(r, p, s, mod, SHIFT2, SCALE2);
    feed_forward(r, p, s);
    gate(r, p, s, mod, GATE2, p->a);
    drop(r, p, p->a);
}

static void double_block(struct net_run *r, const struct pass *p, uint32_t n)
{
    const struct stream img = { "img", p->L, p->T }, txt = { "txt", 0, p->L };
    const uint64_t D = p->f->hidden;
    struct shape wide = shape3(p->B, p->T, 3 * D), s = shape3(p->B, p->T, D);
    size_t mark = net_enter(r, "double_blocks.%u.", n);
    struct act img_mod = net_linear(r, p->vec, "img_mod.lin"); /* [B, 6D] */
    struct act txt_mod = net_linear(r, p->vec, "txt_mod.lin");
    struct act qkv = net_new(r, &wide);
    stream_in(r, p, &img, img_mod, qkv);
    stream_in(r, p, &txt, txt_mod, qkv);
    struct act o = net_new(r, &s);
    attend(r, p, qkv, net_view(&o));
    net_drop(r, &qkv);
    o = patch_attended(r, p->in, o, true);
    stream_out(r, p, &img, img_mod, o);
    stream_out(r, p, &txt, txt_mod, o);
    net_drop(r, &o);
    net_drop(r, &img_mod);
    net_drop(r, &txt_mod);
    net_leave(r, mark);
}

/* ---- single blocks ---- */

enum { SHIFT, SCALE, GATE }; /* chunks of a modulation */

/* gelu of what the feed-forward has of x [.., D], in y [.., M]. */
static void linear1_mlp(struct net_run *r, const struct pass *p, struct view x, struct view y)
{
    struct net_product a = { .layer = "linear1.mlp", .x = x, .y = y, .after = OP_AFTER_GELU_TANH };
    if (!p->f->diffusers) {
        a.layer = "linear1";
        a.row = 3 * p->f->hidden;
        a.rows = p->f->mlp;
    }
    net_product(r, &a);
}

/* Queries, keys and values of h [B, T, D]; and, unless y is empty, the feed-forward's gelu of it in
 * y [B, T, M]. */
static void linear1(struct net_run *r, const struct pass *p, struct act h, struct act qkv,
                    struct view y)
{
    static const char *const part[] = { "linear1.q", "linear1.k", "linear1.v" };
    const uint64_t D = p->f->hidden;
    const struct net_product list[] = {
        { .layer = "linear1", .x = net_view(&h), .y = net_view(&qkv), .rows = 3 * D },
        { .layer = "linear1",
          .x = net_view(&h),
          .y = y,
          .row = 3 * D,
          .rows = p->f->mlp,
          .after = OP_AFTER_GELU_TANH }
    };
    if (!p->f->diffusers) {
        net_products(r, list, y.shape.ndim ? 2 : 1);
        return;
    }
    for (uint64_t k = 0; k < ARRAY_LEN(part); k++)
        net_product(
            r, &(struct net_product) { .layer = part[k],
                                       .x = net_view(&h),
                                       .y = net_part(r, net_view(&qkv), 2, k * D, (k + 1) * D) });
    if (y.shape.ndim)
        linear1_mlp(r, p, net_view(&h), y);
}

/* Attention and feed-forward of h, through linear2: [B, T, D]. Takes h. */
static struct act single_whole(struct net_run *r, const struct pass *p, struct act h)
{
    const uint64_t D = p->f->hidden, M = p->f->mlp;
    struct shape three = shape3(p->B, p->T, 3 * D), wide = shape3(p->B, p->T, D + M);
    struct act qkv = net_new(r, &three), both = net_new(r, &wide);
    linear1(r, p, h, qkv, net_part(r, net_view(&both), 2, D, D + M));
    net_drop(r, &h);
    apply_rope(r, p, qkv, 0, p->T, "norm");
    attend(r, p, qkv, net_part(r, net_view(&both), 2, 0, D));
    net_drop(r, &qkv);
    struct act z = net_linear(r, both, "linear2");
    net_drop(r, &both);
    return z;
}

#define THRIFTY_PIECES 4 /* so that M + (D + M) of a piece fit where the 3D were before them */

/* The same in less memory, in h's place. */
static struct act single_thrifty(struct net_run *r, const struct pass *p, struct act h)
{
    const uint64_t D = p->f->hidden, rows = p->B * p->T,
                   piece = (rows + THRIFTY_PIECES - 1) / THRIFTY_PIECES;
    struct shape three = shape3(p->B, p->T, 3 * D), flat = shape3(1, rows, D);
    struct act qkv = net_new(r, &three);
    linear1(r, p, h, qkv, (struct view) { .data = NULL });
    apply_rope(r, p, qkv, 0, p->T, "norm");
    struct act o = net_new(r, &h.shape);
    attend(r, p, qkv, net_view(&o));
    net_drop(r, &qkv);
    o = patch_attended(r, p->in, o, true);
    struct act h_rows = net_reshape(r, h, &flat), o_rows = net_reshape(r, o, &flat);
    for (uint64_t at = 0; at < rows && !net_bad(r); at += piece) {
        const uint64_t n = rows - at < piece ? rows - at : piece;
        struct shape wide = shape3(1, n, p->f->mlp);
        struct view x = tokens_of(r, h_rows, 0, at, at + n);
        struct act m = net_new(r, &wide);
        linear1_mlp(r, p, x, net_view(&m));
        struct act part = o_rows;
        part.addr = (uint64_t)(uintptr_t)tokens_of(r, o_rows, 0, at, at + n).data;
        part.shape.dim[1] = n;
        struct act pair[2] = { part, m };
        struct act both = net_concat(r, pair, 2, 2); /* [1, n, D + M] */
        net_drop(r, &m);
        net_product(r, &(struct net_product) { .layer = "linear2", .x = net_view(&both), .y = x });
        net_drop(r, &both);
    }
    net_drop(r, &o);
    return h;
}

static void single_block(struct net_run *r, const struct pass *p, uint32_t n)
{
    size_t mark = net_enter(r, "single_blocks.%u.", n);
    struct act mod = net_linear(r, p->vec, "modulation.lin"); /* [B, 3D] */
    struct act h = net_modulate(r, net_view(&p->x), chunk(r, p, mod, SCALE, 0, p->B),
                                chunk(r, p, mod, SHIFT, 0, p->B), EPS);
    /* Patches take attention by itself, as it is in a thrifty pass. */
    bool apart = net_thrifty(r) || patch_wants_attended(p->in, true);
    h = apart ? single_thrifty(r, p, h) : single_whole(r, p, h);
    net_gate(r, net_view(&p->x), chunk(r, p, mod, GATE, 0, p->B), h);
    net_drop(r, &h);
    net_drop(r, &mod);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

/* Numbers as they are embedded, on the host. */
static void numbers(struct net_run *r, const struct pass *p, float *time, float *guidance)
{
    for (size_t i = 0; i < p->B; i++) {
        time[i] = p->in->t[i] * FLUX_TIMES;
        if (p->in->guidance)
            guidance[i] =
                flux_guidance(p->in->guidance[i], p->in->exact_guidance ? DT_F32 : net_dtype(r));
    }
}

/* out_layer(silu(in_layer(a))) + to, in its place if it is there. Takes a. */
static struct act embedder(struct net_run *r, const char *name, struct act a, struct act to)
{
    size_t mark = net_enter(r, "%s.", name);
    struct act h = net_linear(r, a, "in_layer"); /* [B, D] */
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    struct act y =
        to.shape.ndim ? net_linear_add(r, h, "out_layer", to) : net_linear(r, h, "out_layer");
    net_drop(r, &h);
    net_leave(r, mark);
    return y;
}

static struct act embed(struct net_run *r, const struct pass *p)
{
    const struct family_batch *in = p->in;
    float *time = p->host ? p->host->number : NULL, *guidance = time ? time + p->B : NULL;
    struct shape s = { .ndim = 2, .dim = { p->B, p->f->vec_dim } };
    if (time)
        numbers(r, p, time, guidance);
    struct act a = net_timestep(r, time, (size_t)p->B, FLUX_TIME_WIDTH);
    struct act vec = embedder(r, "time_in", a, (struct act) { .addr = 0 });
    if (p->f->guidance && in->guidance) {
        a = net_timestep(r, guidance, (size_t)p->B, FLUX_TIME_WIDTH);
        vec = embedder(r, "guidance_in", a, vec);
    }
    vec = embedder(r, "vector_in", net_input(r, &s, in->y), vec);
    net_unary(r, &vec, OP_SILU);
    return vec;
}

/* Rows of in[item] through layer into the tokens begin..end of x. Takes in [B, tokens, wide]. */
static void way_in(struct net_run *r, const struct pass *p, const char *layer, struct act in,
                   uint64_t begin, uint64_t end)
{
    for (uint64_t i = 0; i < p->B; i++)
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = tokens_of(r, in, i, 0, end - begin),
                                            .y = tokens_of(r, p->x, i, begin, end) };
    net_products(r, p->each, (size_t)p->B);
    net_drop(r, &in);
}

/* The picture's tokens as patches [B, I, 4 * channels]. */
static struct act way_out(struct net_run *r, const struct pass *p)
{
    const struct stream img = { "img", p->L, p->L + p->I };
    const bool other = p->f->diffusers; /* (scale, shift) instead of (shift, scale) */
    struct shape s = shape3(p->B, p->I, p->f->out_channels * FLUX_PATCH * FLUX_PATCH);
    struct act mod = net_linear(r, p->vec, "final_layer.adaLN_modulation.1"); /* [B, 2D] */
    modulate(r, p, &img, mod, other ? SCALE : SHIFT, other ? SHIFT : SCALE);
    net_drop(r, &mod);
    struct act y = net_new(r, &s);
    for (uint64_t i = 0; i < p->B; i++)
        p->each[i] = (struct net_product) { .layer = "final_layer.linear",
                                            .x = net_view(&p->a[i]),
                                            .y = tokens_of(r, y, i, 0, p->I) };
    net_products(r, p->each, (size_t)p->B);
    drop(r, p, p->a);
    return y;
}

/* The picture's tokens with what control nets give for block i of so many. */
static void steer(struct net_run *r, const struct pass *p, enum control_at at, uint32_t i,
                  uint32_t blocks)
{
    if (!p->in->steers)
        return;
    struct act y = net_slice(r, p->x, 1, p->L, p->L + p->I);
    control_add(r, p->in, at, i, blocks, &y);
    net_copy(r, net_view(&y), net_part(r, net_view(&p->x), 1, p->L, p->L + p->I));
    net_drop(r, &y);
}

/* What stands in front of the text. */
static void tokens_before(struct net_run *r, const struct pass *p)
{
    const uint64_t n = p->in->tokens_before_n;
    const struct shape s = shape3(1, n, p->f->hidden);
    if (!n)
        return;
    struct act a = net_input(r, &s, p->in->tokens_before);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++)
        net_copy(r, net_view(&a), tokens_of(r, p->x, i, 0, n));
    net_drop(r, &a);
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    const struct flux_net *f = p.f;
    const struct family_batch *in = p.in;
    struct shape xs = shape3(p.B, p.T, f->hidden);
    struct shape ps = shape3(p.B, p.T - p.L, f->in_channels * FLUX_PATCH * FLUX_PATCH);
    struct shape cs = shape3(p.B, in->tokens, f->context_dim);
    struct shape ts = shape3(p.T, f->head_dim / 2, 2);
    struct shape ms = { 4, { 1, 1, 1, p.T } };
    p.x = net_new(r, &xs);
    way_in(r, &p, "img_in", net_input(r, &ps, p.host ? p.host->patches : NULL), p.L, p.T);
    p.vec = embed(r, &p);
    way_in(r, &p, "txt_in", net_input(r, &cs, in->context), in->tokens_before_n, p.L);
    tokens_before(r, &p);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table : NULL);
    for (size_t i = 0; i < p.biases; i++)
        p.bias[i].mask = net_input_f32(r, &ms, p.bias[i].row);
    for (uint32_t i = 0; i < f->depth && !net_bad(r); i++) {
        if (!patch_leaves_out(in, PATCH_DOUBLE, i))
            double_block(r, &p, i);
        steer(r, &p, CONTROL_INPUT, i, f->depth);
    }
    for (uint32_t i = 0; i < f->depth_single && !net_bad(r); i++) {
        if (!patch_leaves_out(in, PATCH_SINGLE, i))
            single_block(r, &p, i);
        steer(r, &p, CONTROL_OUTPUT, i, f->depth_single);
    }
    net_drop(r, &p.table);
    for (size_t i = 0; i < p.biases; i++)
        net_drop(r, &p.bias[i].mask);
    struct act y = way_out(r, &p);
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
    net_finite(r, y, "Flux's output");
    net_output(r, y, p.host ? p.host->result : NULL);
    net_drop(r, &y);
}

/* ---- control nets ---- */

static void patches_of(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                       const void *user)
{
    (void)ys, (void)user;
    flux_patchify(x, xs, y);
}

#define HINT_CONVS 8 /* with SiLU between them; at the third, fifth and seventh sides are halved */

/* Patches of what the net looks at: [1 or B, I, 4 * channels]. */
static struct act hint_in(struct net_run *r, const struct pass *p)
{
    const struct shape *s = &p->turn->hint_shape;
    const float *from = p->host ? p->host->hint : NULL;
    struct shape ps = shape3(s->dim[0], p->I, s->dim[1] * FLUX_PATCH * FLUX_PATCH);
    if (!p->pixels)
        return net_input(r, &ps, from);
    struct act x = net_input(r, s, from);
    for (uint32_t i = 0; i < HINT_CONVS && !net_bad(r); i++) {
        struct net_conv how = NET_PAD1;
        char layer[32];
        how.stride = i && i % 2 == 0 ? 2 : 1;
        snprintf(layer, sizeof layer, "input_hint_block.%u", 2 * i);
        struct act y = net_conv2d(r, x, layer, how);
        net_drop(r, &x);
        x = y;
        if (i + 1 < HINT_CONVS)
            net_unary(r, &x, OP_SILU);
    }
    ps.dim[2] = x.shape.dim[1] * FLUX_PATCH * FLUX_PATCH;
    struct act y = net_host(r, x, &ps, patches_of, NULL);
    net_drop(r, &x);
    return y;
}

/* The patches of latents, with what those of the picture add to them. */
static void look(struct net_run *r, const struct pass *p)
{
    struct shape ps = shape3(p->B, p->I, p->f->in_channels * FLUX_PATCH * FLUX_PATCH);
    struct act in = net_input(r, &ps, p->host ? p->host->patches : NULL);
    struct act y = net_linear(r, in, "img_in");
    net_drop(r, &in);
    in = hint_in(r, p);
    struct act more = net_linear(r, in, "pos_embed_input");
    net_drop(r, &in);
    net_add(r, &y, more);
    net_drop(r, &more);
    net_copy(r, net_view(&y), net_part(r, net_view(&p->x), 1, p->L, p->T));
    net_drop(r, &y);
}

/* The text, behind a token for what the picture is where the net has such. */
static void told(struct net_run *r, const struct pass *p)
{
    struct shape one = shape3(1, 1, p->f->hidden);
    struct shape cs = shape3(p->B, p->L - p->mode, p->f->context_dim);
    if (p->mode) {
        struct act e = net_embedding(r, &p->turn->type, 1, "controlnet_mode_embedder");
        e = net_reshape(r, e, &one);
        for (uint64_t i = 0; i < p->B; i++)
            net_copy(r, net_view(&e), tokens_of(r, p->x, i, 0, 1));
        net_drop(r, &e);
    }
    way_in(r, p, "txt_in", net_input(r, &cs, p->turn->b->context), p->mode, p->L);
}

/* What the picture's tokens have for the model. */
static void hand_over(struct net_run *r, const struct pass *p, enum control_at at, const char *list,
                      uint32_t i)
{
    char layer[48];
    struct act y = net_slice(r, p->x, 1, p->L, p->T);
    snprintf(layer, sizeof layer, "%s.%u", list, i);
    control_give(r, p->turn, at, i, net_linear(r, y, layer));
    net_drop(r, &y);
}

static void forward_turn(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    const struct flux_net *f = p.f;
    struct shape xs = shape3(p.B, p.T, f->hidden), ts = shape3(p.T, f->head_dim / 2, 2);
    p.x = net_new(r, &xs);
    look(r, &p);
    p.vec = embed(r, &p);
    told(r, &p);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table : NULL);
    for (uint32_t i = 0; i < f->depth && !net_bad(r); i++) {
        double_block(r, &p, i);
        hand_over(r, &p, CONTROL_INPUT, "controlnet_blocks", i);
    }
    for (uint32_t i = 0; i < f->depth_single && !net_bad(r); i++) {
        single_block(r, &p, i);
        hand_over(r, &p, CONTROL_OUTPUT, "controlnet_single_blocks", i);
    }
    net_drop(r, &p.table);
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
}

/* ---- doors ---- */

static berth_status check_refs(const struct family_batch *in, berth_err *err)
{
    uint64_t values;
    if (in->refs && in->ref_method == REF_INDEX_TIMESTEP_ZERO)
        return err_set(
            err, BERTH_EUNSUPPORTED,
            "index_timestep_zero is a way of Qwen-Image-Edit to look at pictures; for Flux "
            "it is not supported");
    if (in->refs > FLUX_REFS_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu pictures to look at, more than %d", in->refs,
                       FLUX_REFS_MAX);
    for (size_t i = 0; i < in->refs; i++)
        if (!shape_count(&in->ref[i].shape, &values) || values > UINT32_MAX)
            return err_set(err, BERTH_ELIMIT, "a latent of %llu x %llu to look at",
                           (unsigned long long)in->ref[i].shape.dim[3],
                           (unsigned long long)in->ref[i].shape.dim[2]);
    return BERTH_OK;
}

/* Does token i, the last being the picture, add the same as the one before it? */
static bool adds_alike(const float *bias, size_t side, size_t i)
{
    return i && !memcmp(bias + (i - 1) * side, bias + i * side, side * sizeof *bias);
}

static void fill_bias(struct pass *p, const float *of, size_t side)
{
    struct bias *b = p->bias;
    for (size_t i = 0; i < side; i++) {
        if (!adds_alike(of, side, i)) {
            float *row = p->bias_row + (size_t)(b - p->bias) * (size_t)p->T;
            for (size_t k = 0; k < (size_t)p->T; k++)
                row[k] = of[i * side + (k < side - 1 ? k : side - 1)];
            *b++ = (struct bias) { .begin = i, .row = row };
        }
        b[-1].end = i < side - 1 ? i + 1 : p->T;
    }
}

/* Tokens that add the same and follow each other go together. */
static berth_status open_bias(struct pass *p, berth_err *err)
{
    const size_t side = (size_t)p->L + 1;
    const float *of = p->in->bias;
    if (!of)
        return BERTH_OK;
    if (p->in->tokens_before_n)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a style of USO together with a bias for tokens (attn_bias)");
    if (p->in->refs)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "pictures to look at together with a bias for tokens (attn_bias)");
    for (size_t i = 0; i < side; i++)
        p->biases += !adds_alike(of, side, i);
    p->bias = calloc(p->biases, sizeof *p->bias);
    p->bias_row = p->T <= SIZE_MAX / sizeof *of / p->biases
                      ? calloc(p->biases * (size_t)p->T, sizeof *of)
                      : NULL;
    if (!p->bias || !p->bias_row)
        return err_set(err, BERTH_ENOMEM, "what attention adds for %zu tokens", side);
    fill_bias(p, of, side);
    return BERTH_OK;
}

static berth_status pass_open(struct pass *p, const struct flux_net *f,
                              const struct family_batch *in, const struct flux_host *host,
                              berth_err *err)
{
    const uint64_t n = in->shape.dim[0], h = in->shape.dim[2], w = in->shape.dim[3];
    *p = (struct pass) { .f = f,
                         .in = in,
                         .host = host,
                         .B = n,
                         .L = in->tokens + in->tokens_before_n,
                         .a = calloc(n, sizeof *p->a),
                         .b = calloc(n, sizeof *p->b),
                         .each = calloc(n, sizeof *p->each) };
    if (check_refs(in, err))
        return err->code;
    if (h > UINT32_MAX || w > UINT32_MAX || in->tokens > UINT32_MAX) /* so that T fits */
        return err_set(err, BERTH_ELIMIT, "latents of %llu x %llu with %zu tokens",
                       (unsigned long long)w, (unsigned long long)h, in->tokens);
    p->I = flux_side(h) * flux_side(w);
    p->T = p->L + p->I + flux_refs(in);
    return p->a && p->b && p->each
               ? open_bias(p, err)
               : err_set(err, BERTH_ENOMEM, "%llu latents", (unsigned long long)n);
}

static void pass_close(struct pass *p)
{
    free(p->a);
    free(p->b);
    free(p->each);
    free(p->bias);
    free(p->bias_row);
}

berth_status flux_forward(struct net *net, const struct flux_net *f, const struct family_batch *b,
                          struct flux_host *host, uint64_t *peak, berth_err *err)
{
    struct pass p;
    struct shape out = b->shape;
    out.dim[1] = f->out_channels;
    berth_status s = pass_open(&p, f, b, peak ? NULL : host, err);
    if (!s && peak)
        s = net_predict(net, forward, &p, peak, err);
    if (!s && !peak)
        s = flux_host_fill(host, f, b, err);
    if (!s && !peak)
        s = net_forward(net, forward, &p, err);
    if (!s && !peak)
        flux_unpatchify(host->result, &out, b->out);
    pass_close(&p);
    return s;
}

/* The picture as it is looked at: a latent's patches, or pixels from -1 to 1. */
static berth_status fill_hint(struct flux_host *host, const struct control_turn *t, bool pixels,
                              berth_err *err)
{
    const struct shape *s = &t->hint_shape;
    const uint64_t tokens = flux_side(s->dim[2]) * flux_side(s->dim[3]);
    const size_t n = (size_t)(s->dim[0] * s->dim[1]) *
                     (size_t)(pixels ? s->dim[2] * s->dim[3] : tokens * FLUX_PATCH * FLUX_PATCH);
    if (n > host->hint_cap) {
        free(host->hint);
        host->hint_cap = 0;
        if (!(host->hint = calloc(n, sizeof *host->hint)))
            return err_set(err, BERTH_ENOMEM, "what a control net looks at");
        host->hint_cap = n;
    }
    if (!pixels)
        flux_patchify(t->hint, s, host->hint);
    for (size_t i = 0; pixels && i < n; i++)
        host->hint[i] = t->hint[i] * 2.0f - 1.0f;
    return BERTH_OK;
}

berth_status flux_turn(struct net *net, const struct flux_net *f, struct control_turn *t,
                       bool pixels, struct flux_host *host, uint64_t *peak, berth_err *err)
{
    struct family_batch b = *t->b; /* with the token for what the picture is */
    struct pass p;
    const bool mode = t->type >= 0;
    if (pixels && (b.shape.dim[2] % FLUX_PATCH || b.shape.dim[3] % FLUX_PATCH))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "this control net for latents of odd sides: none that it was made for has");
    b.tokens += mode;
    berth_status s = pass_open(&p, f, &b, peak ? NULL : host, err);
    p.turn = t;
    p.pixels = pixels;
    p.mode = mode;
    if (!s && peak)
        s = net_predict(net, forward_turn, &p, peak, err);
    if (!s && !peak)
        s = flux_host_fill(host, f, &b, err);
    if (!s && !peak)
        s = fill_hint(host, t, pixels, err);
    if (!s && !peak)
        s = net_forward(net, forward_turn, &p, err);
    pass_close(&p);
    return s;
}
