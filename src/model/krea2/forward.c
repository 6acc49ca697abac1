/* The forward pass of Krea 2. B latents; L tokens of text, each C wide in every of its taps; I
 * patches of the picture, R of those to look at, T = L + I + R; D wide.
 *
 * Memory: a pass holds most in a feed-forward: x, its normed copy and two of [B, T, 8/3 D]. A
 * thrifty pass does feed-forwards in two halves, which is below what attention needs.
 *
 * Everything goes over all tokens at once but modulations and gates, which go piece by piece where
 * pictures to look at count as free of noise: those have a modulation of their own then. */
#include "model/krea2/krea2.h"

#include "model/families.h"

#define EPS 1e-5f

struct pass {
    const struct krea2_net *f;
    const struct family_batch *in;
    const struct krea2_host *host; /* NULL: sizes alone are asked for */
    struct krea2_sizes size;
    uint64_t B, L, T;
    struct act time; /* [B or 2B, D]: the embedded noise level; then of level 0 */
    struct act mod;  /* [B or 2B, 6D]: what all blocks' modulations begin with */
    struct act table;
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

/* ---- pieces ---- */

struct piece {        /* tokens that are modulated alike */
    uint64_t items;   /* 1, or all where they are one behind the other */
    uint64_t item;    /* the first */
    uint64_t at, end; /* tokens of each */
    uint64_t mod;     /* row of the first one's modulation */
};

static uint64_t pieces(const struct pass *p)
{
    return p->size.zero ? 2 * p->B : 1;
}

static struct piece piece_at(const struct pass *p, uint64_t k)
{
    const uint64_t zero = p->T - p->size.refs, item = k % p->B;
    if (!p->size.zero)
        return (struct piece) { p->B, 0, 0, p->T, 0 };
    return k < p->B ? (struct piece) { 1, item, 0, zero, k }
                    : (struct piece) { 1, item, zero, p->T, k };
}

/* Its tokens of a [B, tokens, wide], in the same place. */
static struct act tokens_of(struct net_run *r, struct act a, const struct piece *c)
{
    if (net_bad(r))
        return (struct act) { .addr = 0 };
    const uint64_t n = a.shape.dim[1], wide = a.shape.dim[2];
    struct shape flat = shape2(a.shape.dim[0] * n, wide);
    struct shape s = shape3(c->items, c->end - c->at, wide);
    if (c->items > 1)
        return a;
    a = net_rows(r, net_reshape(r, a, &flat), c->item * n + c->at, c->item * n + c->end);
    return net_reshape(r, a, &s);
}

/* Chunk k of its modulation, [items, D] of [rows, chunks * D]. */
static struct view chunk(struct net_run *r, const struct pass *p, struct act mod,
                         const struct piece *c, uint64_t k)
{
    const uint64_t D = p->f->hidden;
    struct view rows = net_part(r, net_view(&mod), 0, c->mod, c->mod + c->items);
    return net_part(r, rows, 1, k * D, (k + 1) * D);
}

/* norm(x) * (1 + scale) + shift, which are chunks of mod. */
static struct act modulate(struct net_run *r, const struct pass *p, struct act x, const char *norm,
                           struct act mod, uint64_t scale, uint64_t shift)
{
    struct act y = net_new(r, &x.shape);
    for (uint64_t k = 0; k < pieces(p) && !net_bad(r); k++) {
        const struct piece c = piece_at(p, k);
        struct act from = tokens_of(r, x, &c), to = tokens_of(r, y, &c);
        net_rms_norm_to(r, &(struct net_norm) { .layer = norm,
                                                .x = net_view(&from),
                                                .y = net_view(&to),
                                                .scale = chunk(r, p, mod, &c, scale),
                                                .shift = chunk(r, p, mod, &c, shift),
                                                .eps = EPS,
                                                .from_one = true });
    }
    return y;
}

/* x += gate * z, the gate being a chunk of mod. Takes z. */
static void gate(struct net_run *r, const struct pass *p, struct act x, struct act mod, uint64_t g,
                 struct act z)
{
    for (uint64_t k = 0; k < pieces(p) && !net_bad(r); k++) {
        const struct piece c = piece_at(p, k);
        struct act to = tokens_of(r, x, &c);
        net_gate(r, net_view(&to), chunk(r, p, mod, &c, g), tokens_of(r, z, &c));
    }
    net_drop(r, &z);
}

/* ---- what all blocks are made of ---- */

/* Of h [*, tokens, wide], which it takes. batch: whose patches look at what attention gave; NULL:
 * none do. */
static struct act attention(struct net_run *r, const struct krea2_heads *heads, struct act h,
                            struct act table, const struct family_batch *batch)
{
    const struct net_rope turn = { .wq = "attn.qknorm.qnorm",
                                   .wk = "attn.qknorm.knorm",
                                   .table = table,
                                   .eps = EPS,
                                   .from_one = true };
    struct act o = net_new(r, &h.shape);
    struct act q = net_linear_no_bias(r, h, "attn.wq"), k = net_linear_no_bias(r, h, "attn.wk");
    struct act v = net_linear_no_bias(r, h, "attn.wv"), g = net_linear_no_bias(r, h, "attn.gate");
    net_drop(r, &h);
    struct view qs = net_split(r, net_view(&q), heads->q);
    struct view ks = net_split(r, net_view(&k), heads->kv);
    net_rotate(r, qs, ks, &turn);
    net_attend(r, qs, ks, net_split(r, net_view(&v), heads->kv),
               net_split(r, net_view(&o), heads->q), (struct net_attn) { .scale = 0 });
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    if (batch && patch_wants_attended(batch, true))
        o = patch_attended(r, batch, o, true);
    net_unary(r, &g, OP_SIGMOID);
    net_mul(r, &o, g);
    net_drop(r, &g);
    struct act z = net_linear_no_bias(r, o, "attn.wo");
    net_drop(r, &o);
    return z;
}

/* In h's place. */
static void feed_forward(struct net_run *r, struct act h)
{
    net_swiglu(r, h, "mlp.gate", "mlp.up", "mlp.down");
}

/* ---- text ---- */

/* x [*, tokens, C] looks at its own tokens alone, wherever they stand. */
static void text_block(struct net_run *r, const struct pass *p, const char *list, uint32_t n,
                       struct act x, struct act still)
{
    size_t mark = net_enter(r, "txtfusion.%s.%u.", list, n);
    struct act h = net_rms_norm_from_one(r, x, "prenorm", EPS);
    h = attention(r, &p->f->text_heads, h, still, NULL);
    net_add(r, &x, h);
    net_drop(r, &h);
    h = net_rms_norm_from_one(r, x, "postnorm", EPS);
    feed_forward(r, h);
    net_add(r, &x, h);
    net_drop(r, &h);
    net_leave(r, mark);
}

/* What a prompt's taps are as one: [B, L, C]. */
static struct act fuse(struct net_run *r, const struct pass *p, struct act still)
{
    static const int across[] = { 0, 2, 1 };
    const struct krea2_net *f = p->f;
    struct shape taps = shape3(p->B * p->L, f->taps, f->text_dim);
    struct shape one = shape3(p->B, p->L, f->text_dim);
    struct act x = net_input(r, &taps, p->in->context);
    for (uint32_t i = 0; i < f->layerwise && !net_bad(r); i++)
        text_block(r, p, "layerwise_blocks", i, x, net_rows(r, still, 0, f->taps));
    struct act turned = net_permute(r, x, across);
    net_drop(r, &x);
    x = net_linear_no_bias(r, turned, "txtfusion.projector");
    net_drop(r, &turned);
    return net_reshape(r, x, &one);
}

/* The prompt as D wide tokens [B, L, D]. */
static struct act text_in(struct net_run *r, const struct pass *p)
{
    const uint64_t n = p->L > p->f->taps ? p->L : p->f->taps;
    struct shape s = shape3(n, p->f->text_heads.wide / 2, 2);
    struct act still = net_input_f32(r, &s, p->host ? p->host->still.p : NULL);
    struct act x = fuse(r, p, still);
    for (uint32_t i = 0; i < p->f->refiners && !net_bad(r); i++)
        text_block(r, p, "refiner_blocks", i, x, net_rows(r, still, 0, p->L));
    net_drop(r, &still);
    struct act h = net_rms_norm_from_one(r, x, "txtmlp.0", EPS);
    net_drop(r, &x);
    x = net_linear(r, h, "txtmlp.1");
    net_drop(r, &h);
    net_unary(r, &x, OP_GELU_TANH);
    h = net_linear(r, x, "txtmlp.3");
    net_drop(r, &x);
    return h;
}

/* ---- blocks ---- */

enum { SCALE1, SHIFT1, GATE1, SCALE2, SHIFT2, GATE2 }; /* of a modulation */

static void block(struct net_run *r, const struct pass *p, uint32_t n, struct act x)
{
    const uint64_t rows = p->size.zero ? 2 * p->B : p->B;
    size_t mark = net_enter(r, "blocks.%u.", n);
    struct act mod = net_slice(r, p->mod, 0, 0, rows);
    struct act own = net_embedding(r, table_rows, 1, "mod.lin");
    net_add(r, &mod, own);
    net_drop(r, &own);
    struct act h = modulate(r, p, x, "prenorm", mod, SCALE1, SHIFT1);
    h = attention(r, &p->f->heads, h, p->table, p->in);
    gate(r, p, x, mod, GATE1, h);
    h = modulate(r, p, x, "postnorm", mod, SCALE2, SHIFT2);
    feed_forward(r, h);
    gate(r, p, x, mod, GATE2, h);
    net_drop(r, &mod);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

static void embed_time(struct net_run *r, struct pass *p)
{
    const uint64_t rows = p->size.zero ? 2 * p->B : p->B;
    struct act a =
        net_timestep(r, p->host ? p->host->time.p : NULL, (size_t)rows, KREA2_TIME_WIDTH);
    struct act h = net_linear(r, a, "tmlp.0");
    net_drop(r, &a);
    net_unary(r, &h, OP_GELU_TANH);
    p->time = net_linear(r, h, "tmlp.2");
    net_drop(r, &h);
    h = net_slice(r, p->time, 0, 0, rows);
    net_unary(r, &h, OP_GELU_TANH);
    p->mod = net_linear(r, h, "tproj.1");
    net_drop(r, &h);
}

static struct act pictures_in(struct net_run *r, const struct pass *p)
{
    struct shape s = shape3(p->B, p->T - p->L, p->f->in_channels * KREA2_PATCH * KREA2_PATCH);
    struct act in = net_input(r, &s, p->host ? p->host->patches.p : NULL);
    struct act x = net_linear(r, in, "first");
    net_drop(r, &in);
    return x;
}

/* The noise level as `row` of the last layer's table changes it: [B, D]. */
static struct act last_chunk(struct net_run *r, const struct pass *p, const int32_t *row)
{
    struct act a = net_slice(r, p->time, 0, 0, p->B);
    struct act own = net_embedding(r, row, 1, "last.modulation.lin");
    net_add(r, &a, own);
    net_drop(r, &own);
    return a;
}

/* The picture's tokens as patches [B, I, 4 * channels]. */
static struct act way_out(struct net_run *r, const struct pass *p, struct act x)
{
    struct shape s = shape3(p->B, p->size.picture, p->f->hidden);
    struct act scale = last_chunk(r, p, &table_rows[0]), shift = last_chunk(r, p, &table_rows[1]);
    struct act h = net_new(r, &s);
    for (uint64_t i = 0; i < p->B && !net_bad(r); i++) {
        const struct piece c = { 1, i, p->L, p->L + p->size.picture, 0 };
        const struct piece all = { 1, i, 0, p->size.picture, 0 };
        struct act from = tokens_of(r, x, &c), to = tokens_of(r, h, &all);
        net_rms_norm_to(r, &(struct net_norm) { .layer = "last.norm",
                                                .x = net_view(&from),
                                                .y = net_view(&to),
                                                .scale = net_part(r, net_view(&scale), 0, i, i + 1),
                                                .shift = net_part(r, net_view(&shift), 0, i, i + 1),
                                                .eps = EPS,
                                                .from_one = true });
    }
    net_drop(r, &scale);
    net_drop(r, &shift);
    struct act y = net_linear(r, h, "last.linear");
    net_drop(r, &h);
    return y;
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    struct shape ts = shape3(p.T, p.f->heads.wide / 2, 2);
    embed_time(r, &p);
    struct act part[2] = { text_in(r, &p), { .addr = 0 } };
    part[1] = pictures_in(r, &p);
    struct act x = net_concat(r, part, 2, 1);
    net_drop(r, &part[0]);
    net_drop(r, &part[1]);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    for (uint32_t i = 0; i < p.f->depth && !net_bad(r); i++)
        block(r, &p, i, x);
    net_drop(r, &p.table);
    net_drop(r, &p.mod);
    struct act y = way_out(r, &p, x);
    net_drop(r, &p.time);
    net_drop(r, &x);
    net_finite(r, y, "Krea 2's output");
    net_output(r, y, p.host ? p.host->result.p : NULL);
    net_drop(r, &y);
}

berth_status krea2_forward(struct net *net, const struct krea2_net *f, const struct family_batch *b,
                           struct krea2_host *host, uint64_t *peak, berth_err *err)
{
    struct pass p = { .f = f, .in = b, .host = peak ? NULL : host, .B = b->shape.dim[0] };
    if (krea2_sizes(b, &p.size, err))
        return err->code;
    p.L = p.size.text;
    p.T = p.L + p.size.picture + p.size.refs;
    if (peak)
        return net_predict(net, forward, &p, peak, err);
    berth_status s = krea2_host_fill(host, f, b, &p.size, err);
    if (!s)
        s = net_forward(net, forward, &p, err);
    if (!s)
        tokens_to_batch(host->result.p, f->out_channels, b);
    return s;
}
