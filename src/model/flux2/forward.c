/* The forward pass of Flux.2. B latents; L tokens of text, I of the picture, R of those to look at,
 * T = L + I + R of which N are computed (all, or without kept refs); D wide, H heads, M inside of
 * feed-forwards.
 *
 * Memory: x [B, N, D] is one buffer from the first layer to the last, text first. The streams of a
 * double block are slices of it, and their queries, keys and values are slices of one [B, T, 3D],
 * so nothing is joined or taken apart. A single block holds most: x, its modulated copy, and behind
 * linear1 3D + 2M a token. A thrifty pass does feed-forwards by rows, those of single blocks after
 * the attention, in no more pieces than that takes, because a streamed layer comes anew for each.
 *
 * A stream's tokens go piece by piece: of every item its own, and where pictures to look at count
 * as free of noise, those apart from the rest, because they are modulated by another time. Products
 * do all pieces within one use of their layer. */
#include "model/flux2/flux2.h"

#include "model/families.h"

#include <stdlib.h>

#define EPS 1e-6f
#define HEAD_EPS 1.1920929e-7f /* of queries and keys: the default of torch */
#define THRIFTY_PIECES 4       /* so that 2M + D + M of a piece fit where the 3D were before them */

struct piece { /* tokens that are modulated alike */
    uint64_t item, begin, end;
    uint64_t mod; /* row of the modulation */
};

struct pass {
    const struct flux2_net *f;
    const struct family_batch *in;
    const struct flux2_host *host; /* NULL: sizes alone are asked for */
    struct flux2_sizes size;
    uint64_t B, L, N, T;
    struct act x;   /* [B, N, D] */
    struct act vec; /* [B or 2B, D], SiLU applied: what every modulation wants; then of time 0 */
    struct act table;
    struct piece *piece;      /* [2B]: of the stream at hand */
    struct view *rows;        /* [2B]: some of theirs */
    uint64_t *of;             /* [2B]: of which piece those are */
    struct act *a, *b, *c;    /* [2B] each: acts of its pieces */
    struct net_product *each; /* [6B] */
};

struct stream { /* one of the two of a double block */
    const char *name;
    uint64_t begin, end; /* its tokens */
    uint64_t pieces;
};

static struct shape shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

/* ---- pieces ---- */

/* p->piece becomes those of tokens begin..end of every item; refs are apart where they count as
 * free of noise. */
static uint64_t cut(const struct pass *p, uint64_t begin, uint64_t end)
{
    const uint64_t zero = p->size.zero && !p->size.kept ? p->L + p->size.picture : p->T;
    uint64_t n = 0;
    for (uint64_t i = 0; i < p->B; i++)
        p->piece[n++] = (struct piece) { i, begin, zero < end ? zero : end, i };
    for (uint64_t i = 0; zero < end && i < p->B; i++)
        p->piece[n++] = (struct piece) { i, zero, end, p->B + i };
    return n;
}

/* Tokens of one item: [1, end - begin, wide]. */
static struct view tokens_of(struct net_run *r, struct act a, const struct piece *c)
{
    return net_part(r, net_part(r, net_view(&a), 0, c->item, c->item + 1), 1, c->begin, c->end);
}

/* Chunk k of the piece's modulation, [1, D] of [rows, chunks * D]. */
static struct view chunk(struct net_run *r, const struct pass *p, struct act mod,
                         const struct piece *c, uint64_t k)
{
    const uint64_t D = p->f->hidden;
    return net_part(r, net_part(r, net_view(&mod), 0, c->mod, c->mod + 1), 1, k * D, (k + 1) * D);
}

/* p->a[i] = norm(x of piece i) * (1 + scale) + shift, which are chunks of mod. */
static void modulate(struct net_run *r, const struct pass *p, uint64_t n, struct act mod,
                     uint64_t shift, uint64_t scale)
{
    for (uint64_t i = 0; i < n; i++)
        p->a[i] =
            net_modulate(r, tokens_of(r, p->x, &p->piece[i]), chunk(r, p, mod, &p->piece[i], scale),
                         chunk(r, p, mod, &p->piece[i], shift), EPS);
}

/* x += gate * p->a[i], which goes. */
static void gate(struct net_run *r, const struct pass *p, uint64_t n, struct act mod, uint64_t k)
{
    for (uint64_t i = 0; i < n; i++) {
        net_gate(r, tokens_of(r, p->x, &p->piece[i]), chunk(r, p, mod, &p->piece[i], k), p->a[i]);
        net_drop(r, &p->a[i]);
    }
}

static void drop(struct net_run *r, struct act *list, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        net_drop(r, &list[i]);
}

/* ---- attention ---- */

/* Columns begin..end of qkv [B, T, 3D], in units of D, of some of its tokens. */
static struct view columns(struct net_run *r, const struct pass *p, struct act qkv, uint64_t begin,
                           uint64_t end, uint64_t first, uint64_t last)
{
    const uint64_t D = p->f->hidden;
    return net_part(r, net_part(r, net_view(&qkv), 1, first, last), 2, begin * D, end * D);
}

/* Queries (0), keys (1) or values (2) of tokens begin..end: [B, tokens, H, head_dim]. */
static struct view heads_of(struct net_run *r, const struct pass *p, struct act qkv, uint64_t which,
                            uint64_t begin, uint64_t end)
{
    return net_split(r, columns(r, p, qkv, which, which + 1, begin, end), p->f->heads);
}

/* Norms of queries and keys, and their rotation by position, in place. */
static void apply_rope(struct net_run *r, const struct pass *p, struct act qkv, uint64_t begin,
                       uint64_t end, const char *norm)
{
    char wq[64], wk[64];
    snprintf(wq, sizeof wq, "%s.query_norm", norm);
    snprintf(wk, sizeof wk, "%s.key_norm", norm);
    net_qk_rope(r, heads_of(r, p, qkv, 0, begin, end), heads_of(r, p, qkv, 1, begin, end), wq, wk,
                net_rows(r, p->table, begin, end), HEAD_EPS);
}

/* What every computed token sees of all, [B, N, D]; n: which attention of the pass it is. Takes
 * qkv. */
static struct act attend(struct net_run *r, const struct pass *p, struct act qkv, uint64_t n)
{
    struct shape s = shape3(p->B, p->N, p->f->hidden);
    if (p->size.refs)
        ref_cache_kv(r, p->host ? &p->host->cache : NULL, n,
                     columns(r, p, qkv, 1, 3, p->T - p->size.refs, p->T));
    struct act o = net_new(r, &s);
    net_attend(r, heads_of(r, p, qkv, 0, 0, p->N), heads_of(r, p, qkv, 1, 0, p->T),
               heads_of(r, p, qkv, 2, 0, p->T), net_split(r, net_view(&o), p->f->heads),
               (struct net_attn) { .scale = 0 });
    net_drop(r, &qkv);
    return patch_attended(r, p->in, o, true);
}

/* ---- feed-forwards ---- */

/* Part k of so many of an act's rows [1, rows, wide]; they may be none. */
static struct view rows_of(struct net_run *r, struct act a, uint64_t k, uint64_t parts)
{
    const uint64_t n = a.shape.ndim ? a.shape.dim[1] : 0, each = (n + parts - 1) / parts;
    const uint64_t begin = k * each < n ? k * each : n, end = n - begin < each ? n : begin + each;
    return net_part(r, net_view(&a), 1, begin, end);
}

/* p->rows: part k of so many of each of p->a[0..pieces) that has rows there. How many. */
static uint64_t take_rows(struct net_run *r, const struct pass *p, uint64_t pieces, uint64_t k,
                          uint64_t parts)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < pieces && !net_bad(r); i++) {
        struct view v = rows_of(r, p->a[i], k, parts);
        if (!v.shape.dim[1])
            continue;
        p->of[n] = i;
        p->rows[n++] = v;
    }
    return n;
}

/* Adds products of p->rows[i] with the gate and with what it lets through, rows `row` and following
 * of the layer: into new acts p->b[i], p->c[i]. */
static size_t add_gated(struct net_run *r, const struct pass *p, const char *layer, uint64_t row,
                        uint64_t i, size_t n)
{
    const uint64_t M = p->f->mlp;
    struct shape wide = shape3(1, p->rows[i].shape.dim[1], M);
    struct net_product a = { .layer = layer, .x = p->rows[i], .rows = M, .no_bias = true };
    p->b[i] = net_new(r, &wide);
    p->c[i] = net_new(r, &wide);
    a.row = row;
    a.y = net_view(&p->b[i]);
    p->each[n++] = a;
    a.row = row + M;
    a.y = net_view(&p->c[i]);
    p->each[n++] = a;
    return n;
}

/* p->b[i] = silu(p->b[i]) * p->c[i]; the latter go. */
static void join_gated(struct net_run *r, const struct pass *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        net_silu_mul(r, &p->b[i], p->c[i]);
        net_drop(r, &p->c[i]);
    }
}

/* p->a[i] = mlp(p->a[i]), in its place. */
static void feed_forward(struct net_run *r, const struct pass *p, const struct stream *s)
{
    const uint64_t parts = net_thrifty(r) ? 2 : 1;
    char up[32], down[32];
    snprintf(up, sizeof up, "%s_mlp.0", s->name);
    snprintf(down, sizeof down, "%s_mlp.2", s->name);
    for (uint64_t k = 0; k < parts && !net_bad(r); k++) {
        const uint64_t n = take_rows(r, p, s->pieces, k, parts);
        size_t products = 0;
        for (uint64_t i = 0; i < n; i++)
            products = add_gated(r, p, up, 0, i, products);
        net_products(r, p->each, products);
        join_gated(r, p, n);
        for (uint64_t i = 0; i < n; i++)
            p->each[i] = (struct net_product) {
                .layer = down, .x = net_view(&p->b[i]), .y = p->rows[i], .no_bias = true
            };
        net_products(r, p->each, (size_t)n);
        drop(r, p->b, n);
    }
}

/* ---- double blocks ---- */

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 }; /* chunks of a stream's modulation */

/* The stream's queries, keys and values, normed and turned. */
static void stream_in(struct net_run *r, const struct pass *p, struct stream *s, struct act mod,
                      struct act qkv)
{
    char layer[32];
    s->pieces = cut(p, s->begin, s->end);
    modulate(r, p, s->pieces, mod, SHIFT1, SCALE1);
    snprintf(layer, sizeof layer, "%s_attn.qkv", s->name);
    for (uint64_t i = 0; i < s->pieces; i++)
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = net_view(&p->a[i]),
                                            .y = tokens_of(r, qkv, &p->piece[i]),
                                            .no_bias = true };
    net_products(r, p->each, (size_t)s->pieces);
    drop(r, p->a, s->pieces);
    snprintf(layer, sizeof layer, "%s_attn.norm", s->name);
    apply_rope(r, p, qkv, s->begin, s->end, layer);
}

/* What attention gave the stream, and its feed-forward. */
static void stream_out(struct net_run *r, const struct pass *p, const struct stream *s,
                       struct act mod, struct act o)
{
    char layer[32];
    cut(p, s->begin, s->end);
    snprintf(layer, sizeof layer, "%s_attn.proj", s->name);
    for (uint64_t i = 0; i < s->pieces; i++) {
        struct shape z = shape3(1, p->piece[i].end - p->piece[i].begin, p->f->hidden);
        p->a[i] = net_new(r, &z);
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = tokens_of(r, o, &p->piece[i]),
                                            .y = net_view(&p->a[i]),
                                            .no_bias = true };
    }
    net_products(r, p->each, (size_t)s->pieces);
    gate(r, p, s->pieces, mod, GATE1);
    modulate(r, p, s->pieces, mod, SHIFT2, SCALE2);
    feed_forward(r, p, s);
    gate(r, p, s->pieces, mod, GATE2);
}

static void double_block(struct net_run *r, const struct pass *p, uint32_t n, struct act img_mod,
                         struct act txt_mod)
{
    struct stream img = { "img", p->L, p->N, 0 }, txt = { "txt", 0, p->L, 0 };
    struct shape wide = shape3(p->B, p->T, 3 * p->f->hidden);
    size_t mark = net_enter(r, "double_blocks.%u.", n);
    struct act qkv = net_new(r, &wide);
    stream_in(r, p, &img, img_mod, qkv);
    stream_in(r, p, &txt, txt_mod, qkv);
    struct act o = attend(r, p, qkv, n);
    stream_out(r, p, &img, img_mod, o);
    stream_out(r, p, &txt, txt_mod, o);
    net_drop(r, &o);
    net_leave(r, mark);
}

/* ---- single blocks ---- */

enum { SHIFT, SCALE, GATE }; /* chunks of their modulation */

/* linear1 of p->a: queries, keys and values; with `gated` the feed-forward's way in, too, in p->b,
 * for which p->a go. */
static void linear1(struct net_run *r, const struct pass *p, uint64_t pieces, struct act qkv,
                    bool gated)
{
    const uint64_t D = p->f->hidden;
    size_t n = 0;
    for (uint64_t i = 0; i < pieces; i++)
        p->each[n++] = (struct net_product) { .layer = "linear1",
                                              .x = net_view(&p->a[i]),
                                              .y = tokens_of(r, qkv, &p->piece[i]),
                                              .rows = 3 * D,
                                              .no_bias = true };
    if (gated) {
        take_rows(r, p, pieces, 0, 1);
        for (uint64_t i = 0; i < pieces && !net_bad(r); i++)
            n = add_gated(r, p, "linear1", 3 * D, i, n);
    }
    net_products(r, p->each, n);
    if (gated) {
        drop(r, p->a, pieces);
        join_gated(r, p, pieces);
    }
}

/* Rows of what attention gave, beside the feed-forward's: [1, rows, D + M]. Takes m. */
static struct act beside(struct net_run *r, struct view o, struct act m)
{
    struct act pair[2] = { m, m };
    pair[0].addr = (uint64_t)(uintptr_t)o.data;
    pair[0].shape = o.shape;
    struct act both = net_concat(r, pair, 2, 2);
    net_drop(r, &m);
    return both;
}

/* p->a[i] = linear2 of attention and feed-forward. Takes o, p->b. */
static void linear2(struct net_run *r, const struct pass *p, uint64_t pieces, struct act o)
{
    for (uint64_t i = 0; i < pieces && !net_bad(r); i++)
        p->b[i] = beside(r, tokens_of(r, o, &p->piece[i]), p->b[i]);
    net_drop(r, &o);
    for (uint64_t i = 0; i < pieces; i++) {
        struct shape z = shape3(1, p->piece[i].end - p->piece[i].begin, p->f->hidden);
        p->a[i] = net_new(r, &z);
        p->each[i] = (struct net_product) {
            .layer = "linear2", .x = net_view(&p->b[i]), .y = net_view(&p->a[i]), .no_bias = true
        };
    }
    net_products(r, p->each, (size_t)pieces);
    drop(r, p->b, pieces);
}

/* The same from the feed-forward's beginning on, by rows, in p->a's place. Takes o. */
static void both_thrifty(struct net_run *r, const struct pass *p, uint64_t pieces, struct act o)
{
    for (uint64_t k = 0; k < THRIFTY_PIECES && !net_bad(r); k++) {
        const uint64_t n = take_rows(r, p, pieces, k, THRIFTY_PIECES);
        size_t products = 0;
        for (uint64_t i = 0; i < n; i++)
            products = add_gated(r, p, "linear1", 3 * p->f->hidden, i, products);
        net_products(r, p->each, products);
        join_gated(r, p, n);
        for (uint64_t i = 0; i < n && !net_bad(r); i++) {
            struct act from = p->a[p->of[i]]; /* the piece's rows of o, as an act */
            from.addr = (uint64_t)(uintptr_t)tokens_of(r, o, &p->piece[p->of[i]]).data;
            p->b[i] = beside(r, rows_of(r, from, k, THRIFTY_PIECES), p->b[i]);
        }
        for (uint64_t i = 0; i < n; i++)
            p->each[i] = (struct net_product) {
                .layer = "linear2", .x = net_view(&p->b[i]), .y = p->rows[i], .no_bias = true
            };
        net_products(r, p->each, (size_t)n);
        drop(r, p->b, n);
    }
    net_drop(r, &o);
}

static void single_block(struct net_run *r, const struct pass *p, uint32_t n, struct act mod)
{
    const bool thrifty = net_thrifty(r);
    struct shape wide = shape3(p->B, p->T, 3 * p->f->hidden);
    size_t mark = net_enter(r, "single_blocks.%u.", n);
    const uint64_t pieces = cut(p, 0, p->N);
    modulate(r, p, pieces, mod, SHIFT, SCALE);
    struct act qkv = net_new(r, &wide);
    linear1(r, p, pieces, qkv, !thrifty);
    apply_rope(r, p, qkv, 0, p->N, "norm");
    struct act o = attend(r, p, qkv, p->f->depth + n);
    if (thrifty)
        both_thrifty(r, p, pieces, o);
    else
        linear2(r, p, pieces, o);
    gate(r, p, pieces, mod, GATE);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

/* out_layer(silu(in_layer(of these numbers))): [n, D]. */
static struct act embedder(struct net_run *r, const char *name, const float *number, size_t n)
{
    size_t mark = net_enter(r, "%s.", name);
    struct act a = net_timestep(r, number, n, FLUX2_TIME_WIDTH);
    struct act h = net_linear_no_bias(r, a, "in_layer");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    struct act y = net_linear_no_bias(r, h, "out_layer");
    net_drop(r, &h);
    net_leave(r, mark);
    return y;
}

static struct act embed(struct net_run *r, const struct pass *p)
{
    const float *number = p->host ? p->host->number.p : NULL;
    const uint64_t times = p->size.zero && !p->size.kept ? 2 : 1;
    struct act vec = embedder(r, "time_in", number, (size_t)(times * p->B));
    if (p->f->guidance && p->in->guidance) {
        struct act g = embedder(r, "guidance_in", number ? number + 2 * p->B : NULL, (size_t)p->B);
        for (uint64_t k = 0; k < times; k++) {
            struct act of = net_rows(r, vec, k * p->B, (k + 1) * p->B);
            net_add(r, &of, g);
        }
        net_drop(r, &g);
    }
    net_unary(r, &vec, OP_SILU);
    return vec;
}

/* Rows of in[item] through layer into the tokens begin..end of x. Takes in [B, tokens, wide]. */
static void way_in(struct net_run *r, const struct pass *p, const char *layer, struct act in,
                   uint64_t begin, uint64_t end)
{
    for (uint64_t i = 0; i < p->B; i++) {
        const struct piece from = { i, 0, end - begin, 0 }, to = { i, begin, end, 0 };
        p->each[i] = (struct net_product) { .layer = layer,
                                            .x = tokens_of(r, in, &from),
                                            .y = tokens_of(r, p->x, &to),
                                            .no_bias = true };
    }
    net_products(r, p->each, (size_t)p->B);
    net_drop(r, &in);
}

/* The picture's tokens, [B, I, channels]. */
static struct act way_out(struct net_run *r, const struct pass *p)
{
    const uint64_t I = p->size.picture, n = cut(p, p->L, p->L + I);
    struct shape s = shape3(p->B, I, p->f->out_channels);
    struct act mod = net_linear_no_bias(r, net_rows(r, p->vec, 0, p->B),
                                        "final_layer.adaLN_modulation.1"); /* [B, 2D] */
    modulate(r, p, n, mod, SHIFT, SCALE);
    net_drop(r, &mod);
    struct act y = net_new(r, &s);
    for (uint64_t i = 0; i < n; i++) {
        const struct piece to = { i, 0, I, 0 };
        p->each[i] = (struct net_product) { .layer = "final_layer.linear",
                                            .x = net_view(&p->a[i]),
                                            .y = tokens_of(r, y, &to),
                                            .no_bias = true };
    }
    net_products(r, p->each, (size_t)n);
    drop(r, p->a, n);
    return y;
}

static void double_blocks(struct net_run *r, const struct pass *p)
{
    struct act img = net_linear_no_bias(r, p->vec, "double_stream_modulation_img.lin");
    struct act txt = net_linear_no_bias(r, net_rows(r, p->vec, 0, p->B),
                                        "double_stream_modulation_txt.lin"); /* [B, 6D] */
    for (uint32_t i = 0; i < p->f->depth && !net_bad(r); i++)
        if (!patch_leaves_out(p->in, PATCH_DOUBLE, i))
            double_block(r, p, i, img, txt);
    net_drop(r, &img);
    net_drop(r, &txt);
}

static void single_blocks(struct net_run *r, const struct pass *p)
{
    struct act mod = net_linear_no_bias(r, p->vec, "single_stream_modulation.lin");
    for (uint32_t i = 0; i < p->f->depth_single && !net_bad(r); i++)
        if (!patch_leaves_out(p->in, PATCH_SINGLE, i))
            single_block(r, p, i, mod);
    net_drop(r, &mod);
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    const struct flux2_net *f = p.f;
    struct shape xs = shape3(p.B, p.N, f->hidden), ts = shape3(p.T, f->head_dim / 2, 2);
    struct shape is = shape3(p.B, p.N - p.L, f->in_channels);
    struct shape cs = shape3(p.B, p.L, f->context_dim);
    p.x = net_new(r, &xs);
    way_in(r, &p, "img_in", net_input(r, &is, p.host ? p.host->tokens.p : NULL), p.L, p.N);
    p.vec = embed(r, &p);
    way_in(r, &p, "txt_in", net_input(r, &cs, p.in->context), 0, p.L);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    double_blocks(r, &p);
    single_blocks(r, &p);
    net_drop(r, &p.table);
    struct act y = way_out(r, &p);
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
    net_finite(r, y, "Flux.2's output");
    net_output(r, y, p.host ? p.host->result.p : NULL);
    net_drop(r, &y);
}

/* ---- doors ---- */

static berth_status pass_open(struct pass *p, const struct flux2_net *f,
                              const struct family_batch *in, const struct flux2_host *host,
                              berth_err *err)
{
    const uint64_t n = in->shape.dim[0];
    *p = (struct pass) { .f = f, .in = in, .host = host, .B = n };
    if (flux2_sizes(in, &p->size, err))
        return err->code;
    p->L = p->size.text;
    p->N = p->T = p->L + p->size.picture + p->size.refs;
    p->piece = calloc(2 * n, sizeof *p->piece);
    p->rows = calloc(2 * n, sizeof *p->rows);
    p->of = calloc(2 * n, sizeof *p->of);
    p->a = calloc(2 * n, sizeof *p->a);
    p->b = calloc(2 * n, sizeof *p->b);
    p->c = calloc(2 * n, sizeof *p->c);
    p->each = calloc(6 * n, sizeof *p->each);
    return p->piece && p->rows && p->of && p->a && p->b && p->c && p->each
               ? BERTH_OK
               : err_set(err, BERTH_ENOMEM, "%llu latents", (unsigned long long)n);
}

static void pass_close(struct pass *p)
{
    free(p->piece);
    free(p->rows);
    free(p->of);
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->each);
}

static berth_status run(struct net *net, struct pass *p, struct flux2_host *host, berth_err *err)
{
    const uint64_t attentions = (uint64_t)p->f->depth + p->f->depth_single;
    if (ref_cache_begin(&host->cache, net, p->in, p->size.refs, p->f->hidden, attentions, err))
        return err->code;
    p->size.kept = host->cache.state == REF_CACHE_SERVES;
    p->N = p->size.kept ? p->T - p->size.refs : p->T;
    if (flux2_host_fill(host, p->f, p->in, &p->size, net_act(net), err) ||
        net_forward(net, forward, p, err))
        return err->code;
    ref_cache_end(&host->cache);
    flux2_host_give(host, p->f, p->in);
    return BERTH_OK;
}

berth_status flux2_forward(struct net *net, const struct flux2_net *f, const struct family_batch *b,
                           struct flux2_host *host, uint64_t *peak, berth_err *err)
{
    struct pass p;
    berth_status s = pass_open(&p, f, b, peak ? NULL : host, err);
    if (!s)
        s = peak ? net_predict(net, forward, &p, peak, err) : run(net, &p, host, err);
    pass_close(&p);
    return s;
}
