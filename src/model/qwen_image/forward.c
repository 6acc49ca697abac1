/* The forward pass of Qwen-Image. B latents; L tokens of text, I patches of the picture, R of those
 * to look at, T = L + I + R of which N are computed (all, or without kept refs); D wide, H heads, M
 * inside of feed-forwards.
 *
 * Memory: x [B, N, D] is one buffer from the first layer to the last, text first. Both streams of a
 * block are slices of it, and their queries, keys and values are slices of one [B, T, 3D], so
 * nothing is joined or taken apart. A thrifty pass does feed-forwards in two halves.
 *
 * A steered pass goes block by block: the tokens travel through host memory, where the network that
 * steers it takes its turn (control.c).
 *
 * A stream's tokens go piece by piece: of every item its own, and where pictures to look at count
 * as free of noise, those apart from the picture's, because they are modulated by another time.
 * Products do all pieces within one use of their layer. */
#include "model/qwen_image/qwen_image.h"

#include "model/control.h"

#include <stdlib.h>

#define EPS 1e-6f

struct piece { /* tokens that are modulated alike */
    uint64_t item, begin, end;
    uint64_t mod; /* row of the modulation */
};

struct pass {
    const struct qwen_image_net *q;
    const struct family_batch *in;
    const struct qwen_image_host *host; /* NULL: sizes alone are asked for */
    struct qwen_image_sizes size;
    uint64_t B, L, N, T;
    /* Of a steered pass, what goes on between its parts; NULL: it is one part. */
    struct qwen_image_between *between;
    uint32_t first,
        last;       /* blocks of this part; the first one has the way in, the last the way out */
    struct act x;   /* [B, N, D] */
    struct act vec; /* [B or 2B, D], SiLU applied: what every modulation wants; then of time 0 */
    struct act table;
    int32_t *zeros;                  /* [2B] */
    struct piece *piece;             /* [2B]: of the stream at hand */
    const struct control_turn *turn; /* of a control net; NULL: it is the model's own */
    struct act *a, *b;               /* [2B] each: acts of its pieces */
    struct net_product *each;        /* [2B] */
};

struct stream {               /* one of the two */
    const char *name;         /* of its modulation and feed-forward */
    const char *qkv[3], *out; /* layers of its attention */
    const char *norm_q, *norm_k;
    uint64_t begin, end; /* its tokens */
    uint64_t pieces;
};

static struct shape shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

/* Is there a second time, that of pictures without noise? And how many there are of all items. */
static bool two_times(const struct pass *p)
{
    return p->size.zero && !p->size.kept;
}

static uint64_t times(const struct pass *p)
{
    return two_times(p) ? 2 * p->B : p->B;
}

/* ---- pieces ---- */

/* p->piece becomes those of tokens begin..end of every item; from `zero` on they are apart. */
static uint64_t cut(const struct pass *p, uint64_t begin, uint64_t zero, uint64_t end)
{
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
    const uint64_t D = p->q->hidden;
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

/* Queries (0), keys (1) or values (2) of tokens begin..end: [B, tokens, H, head_dim]. */
static struct view qkv_view(struct net_run *r, const struct pass *p, struct act qkv, uint64_t which,
                            uint64_t begin, uint64_t end)
{
    const uint64_t D = p->q->hidden;
    struct view v = net_part(r, net_view(&qkv), 1, begin, end);
    return net_split(r, net_part(r, v, 2, which * D, (which + 1) * D), p->q->heads);
}

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 }; /* chunks of a stream's modulation */

/* The stream's queries, keys and values, normed and turned. */
static void stream_in(struct net_run *r, const struct pass *p, const struct stream *s,
                      struct act mod, struct act qkv)
{
    const uint64_t D = p->q->hidden;
    modulate(r, p, s->pieces, mod, SHIFT1, SCALE1);
    for (uint64_t k = 0; k < ARRAY_LEN(s->qkv); k++) {
        for (uint64_t i = 0; i < s->pieces; i++)
            p->each[i] = (struct net_product) { .layer = s->qkv[k],
                                                .x = net_view(&p->a[i]),
                                                .y = net_part(r, tokens_of(r, qkv, &p->piece[i]), 2,
                                                              k * D, (k + 1) * D) };
        net_products(r, p->each, (size_t)s->pieces);
    }
    drop(r, p->a, s->pieces);
    net_qk_rope(r, qkv_view(r, p, qkv, 0, s->begin, s->end),
                qkv_view(r, p, qkv, 1, s->begin, s->end), s->norm_q, s->norm_k,
                net_rows(r, p->table, s->begin, s->end), EPS);
}

/* ---- feed-forward ---- */

/* Part `half` of two, or all of it, of the rows of p->a[i]. */
static struct view rows_at(struct net_run *r, struct act a, bool halves, uint64_t half)
{
    const uint64_t n = a.shape.dim[1], mid = halves ? (n + 1) / 2 : n;
    return net_part(r, net_view(&a), 1, half ? mid : 0, half ? n : mid);
}

/* p->a[i] = mlp(p->a[i]), in its place. */
static void feed_forward(struct net_run *r, const struct pass *p, const struct stream *s)
{
    const bool halves = net_thrifty(r);
    char up[32], down[32];
    snprintf(up, sizeof up, "%s_mlp.net.0.proj", s->name);
    snprintf(down, sizeof down, "%s_mlp.net.2", s->name);
    for (uint64_t half = 0; half < (halves ? 2 : 1) && !net_bad(r); half++) {
        size_t n = 0;
        for (uint64_t i = 0; i < s->pieces; i++) {
            struct view x = rows_at(r, p->a[i], halves, half);
            struct shape wide = shape3(1, x.shape.dim[1], p->q->mlp);
            if (!wide.dim[1])
                continue; /* a single row has no second half */
            p->b[n] = net_new(r, &wide);
            p->each[n] = (struct net_product) {
                .layer = up, .x = x, .y = net_view(&p->b[n]), .after = OP_AFTER_GELU_TANH
            };
            n++;
        }
        net_products(r, p->each, n);
        for (size_t i = 0; i < n; i++) {
            p->each[i].layer = down;
            p->each[i].y = p->each[i].x;
            p->each[i].x = net_view(&p->b[i]);
            p->each[i].after = OP_AFTER_NONE;
        }
        net_products(r, p->each, n);
        drop(r, p->b, n);
    }
}

/* ---- blocks ---- */

/* What attention gave the stream, and its feed-forward. */
static void stream_out(struct net_run *r, const struct pass *p, const struct stream *s,
                       struct act mod, struct act o)
{
    for (uint64_t i = 0; i < s->pieces; i++) {
        struct shape z = shape3(1, p->piece[i].end - p->piece[i].begin, p->q->hidden);
        p->a[i] = net_new(r, &z);
        p->each[i] = (struct net_product) { .layer = s->out,
                                            .x = tokens_of(r, o, &p->piece[i]),
                                            .y = net_view(&p->a[i]) };
    }
    net_products(r, p->each, (size_t)s->pieces);
    gate(r, p, s->pieces, mod, GATE1);
    modulate(r, p, s->pieces, mod, SHIFT2, SCALE2);
    feed_forward(r, p, s);
    gate(r, p, s->pieces, mod, GATE2);
}

static void block(struct net_run *r, const struct pass *p, uint32_t n)
{
    const uint64_t D = p->q->hidden, zero = two_times(p) ? p->L + p->size.picture : p->T;
    struct stream img = { .name = "img",
                          .qkv = { "attn.to_q", "attn.to_k", "attn.to_v" },
                          .out = "attn.to_out.0",
                          .norm_q = "attn.norm_q",
                          .norm_k = "attn.norm_k",
                          .begin = p->L,
                          .end = p->N };
    struct stream txt = { .name = "txt",
                          .qkv = { "attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj" },
                          .out = "attn.to_add_out",
                          .norm_q = "attn.norm_added_q",
                          .norm_k = "attn.norm_added_k",
                          .end = p->L };
    struct shape wide = shape3(p->B, p->T, 3 * D), s = shape3(p->B, p->N, D);
    size_t mark = net_enter(r, "transformer_blocks.%u.", n);
    struct act img_mod = net_linear(r, p->vec, "img_mod.1"); /* [B or 2B, 6D] */
    struct act txt_mod = net_linear(r, net_rows(r, p->vec, 0, p->B), "txt_mod.1");
    struct act qkv = net_new(r, &wide);
    img.pieces = cut(p, img.begin, zero, img.end);
    stream_in(r, p, &img, img_mod, qkv);
    txt.pieces = cut(p, txt.begin, p->T, txt.end);
    stream_in(r, p, &txt, txt_mod, qkv);
    if (p->size.refs)
        ref_cache_kv(
            r, p->host ? &p->host->cache : NULL, n,
            net_part(r, net_part(r, net_view(&qkv), 1, p->T - p->size.refs, p->T), 2, D, 3 * D));
    struct act o = net_new(r, &s);
    net_attend(r, qkv_view(r, p, qkv, 0, 0, p->N), qkv_view(r, p, qkv, 1, 0, p->T),
               qkv_view(r, p, qkv, 2, 0, p->T), net_split(r, net_view(&o), p->q->heads),
               (struct net_attn) { .scale = 0 });
    net_drop(r, &qkv);
    cut(p, img.begin, zero, img.end);
    stream_out(r, p, &img, img_mod, o);
    cut(p, txt.begin, p->T, txt.end);
    stream_out(r, p, &txt, txt_mod, o);
    net_drop(r, &o);
    net_drop(r, &img_mod);
    net_drop(r, &txt_mod);
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

static struct act embed(struct net_run *r, const struct pass *p)
{
    const size_t n = (size_t)times(p);
    size_t mark = net_enter(r, "time_text_embed.");
    struct act a = net_timestep(r, p->host ? p->host->time.p : NULL, n, QWEN_IMAGE_TIME_WIDTH);
    struct act h = net_linear(r, a, "timestep_embedder.linear_1");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    struct act vec = net_linear(r, h, "timestep_embedder.linear_2");
    net_drop(r, &h);
    if (p->q->layered) { /* of its two rows ComfyUI uses only the first as well */
        a = net_embedding(r, p->zeros, n, "addition_t_embedding");
        net_add(r, &vec, a);
        net_drop(r, &a);
    }
    net_unary(r, &vec, OP_SILU);
    net_leave(r, mark);
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
                                            .y = tokens_of(r, p->x, &to) };
    }
    net_products(r, p->each, (size_t)p->B);
    net_drop(r, &in);
}

static void text_in(struct net_run *r, const struct pass *p)
{
    const float *from = !p->host ? NULL : p->in->hidden ? p->host->context.p : p->in->context;
    struct shape s = shape3(p->B, p->L, p->q->context_dim);
    struct act c = net_input(r, &s, from);
    struct act n = net_rms_norm(r, c, "txt_norm", EPS);
    net_drop(r, &c);
    way_in(r, p, "txt_in", n, 0, p->L);
}

/* The picture's tokens as patches [B, I, 4 * channels]. */
static struct act way_out(struct net_run *r, const struct pass *p)
{
    const uint64_t pixels = QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH, I = p->size.picture;
    struct shape s = shape3(p->B, I, p->q->out_channels * pixels);
    const uint64_t n = cut(p, p->L, p->T, p->L + I);
    struct act mod = net_linear(r, net_rows(r, p->vec, 0, p->B), "norm_out.linear"); /* [B, 2D] */
    modulate(r, p, n, mod, 1, 0); /* scale comes first here */
    net_drop(r, &mod);
    struct act y = net_new(r, &s);
    for (uint64_t i = 0; i < n; i++) {
        const struct piece to = { i, 0, I, 0 };
        p->each[i] = (struct net_product) { .layer = "proj_out",
                                            .x = net_view(&p->a[i]),
                                            .y = tokens_of(r, y, &to) };
    }
    net_products(r, p->each, (size_t)n);
    drop(r, p->a, n);
    return y;
}

static void give(struct net_run *r, const struct pass *p)
{
    struct act y = way_out(r, p);
    net_finite(r, y, "Qwen-Image's output");
    net_output(r, y, p->host ? p->host->result.p : NULL);
    net_drop(r, &y);
}

/* The picture's tokens with what control nets give for block i. */
static void steer(struct net_run *r, const struct pass *p, uint32_t i)
{
    const uint64_t end = p->L + p->size.picture;
    if (!p->in->steers)
        return;
    struct act y = net_slice(r, p->x, 1, p->L, end);
    control_add(r, p->in, CONTROL_INPUT, i, p->q->depth, &y);
    net_copy(r, net_view(&y), net_part(r, net_view(&p->x), 1, p->L, end));
    net_drop(r, &y);
}

/* What is left after the last block of a steered pass. */
static void forward_end(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    struct shape xs = shape3(p.B, p.N, p.q->hidden);
    struct shape vs = { .ndim = 2, .dim = { times(&p), p.q->hidden } };
    p.x = net_input(r, &xs, p.between->x);
    p.vec = net_input(r, &vs, p.between->vec);
    give(r, &p);
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    const struct qwen_image_net *q = p.q;
    struct shape xs = shape3(p.B, p.N, q->hidden);
    struct shape ps = shape3(p.B, p.N - p.L, q->in_channels * QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH);
    struct shape ts = shape3(p.T, q->head_dim / 2, 2);
    struct shape vs = { .ndim = 2, .dim = { times(&p), q->hidden } };
    if (p.first) {
        p.x = net_input(r, &xs, p.between->x);
        p.vec = net_input(r, &vs, p.between->vec);
    } else {
        p.x = net_new(r, &xs);
        way_in(r, &p, "img_in", net_input(r, &ps, p.host ? p.host->patches.p : NULL), p.L, p.N);
        text_in(r, &p);
        p.vec = embed(r, &p);
    }
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    for (uint32_t i = p.first; i < p.last && !net_bad(r); i++) {
        block(r, &p, i);
        steer(r, &p, i);
    }
    net_drop(r, &p.table);
    if (p.between) {
        net_output(r, p.x, p.between->x_out);
        if (!p.first)
            net_output(r, p.vec, p.between->vec);
    } else {
        give(r, &p);
    }
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
}

/* ---- control nets ---- */

/* The patches of latents, with what those of the picture add to them. */
static void look(struct net_run *r, const struct pass *p)
{
    const struct shape *h = &p->turn->hint_shape;
    const uint64_t pixels = QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH, I = p->T - p->L;
    struct shape ps = shape3(p->B, I, p->q->in_channels * pixels);
    struct shape hs = shape3(h->dim[0], I, h->dim[1] * pixels);
    struct act in = net_input(r, &ps, p->host ? p->host->patches.p : NULL);
    struct act y = net_linear(r, in, "img_in");
    net_drop(r, &in);
    in = net_input(r, &hs, p->host ? p->host->hint.p : NULL);
    struct act more = net_linear(r, in, "controlnet_x_embedder");
    net_drop(r, &in);
    net_add(r, &y, more);
    net_drop(r, &more);
    net_copy(r, net_view(&y), net_part(r, net_view(&p->x), 1, p->L, p->T));
    net_drop(r, &y);
}

static void forward_turn(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    struct shape xs = shape3(p.B, p.T, p.q->hidden), ts = shape3(p.T, p.q->head_dim / 2, 2);
    p.x = net_new(r, &xs);
    look(r, &p);
    text_in(r, &p);
    p.vec = embed(r, &p);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    for (uint32_t i = 0; i < p.last && !net_bad(r); i++) {
        char layer[48];
        block(r, &p, i);
        struct act y = net_slice(r, p.x, 1, p.L, p.T);
        snprintf(layer, sizeof layer, "controlnet_blocks.%u", i);
        control_give(r, p.turn, CONTROL_INPUT, i, net_linear(r, y, layer));
        net_drop(r, &y);
    }
    net_drop(r, &p.table);
    net_drop(r, &p.vec);
    net_drop(r, &p.x);
}

/* ---- doors ---- */

static berth_status pass_open(struct pass *p, const struct qwen_image_net *q,
                              const struct family_batch *in, const struct qwen_image_host *host,
                              berth_err *err)
{
    const uint64_t n = in->shape.dim[0];
    *p = (struct pass) { .q = q, .in = in, .host = host, .B = n, .last = q->depth };
    if (qwen_image_sizes(q, in, &p->size, err))
        return err->code;
    p->L = p->size.text;
    p->N = p->T = p->L + p->size.picture + p->size.refs;
    p->zeros = calloc(2 * n, sizeof *p->zeros);
    p->piece = calloc(2 * n, sizeof *p->piece);
    p->a = calloc(2 * n, sizeof *p->a);
    p->b = calloc(2 * n, sizeof *p->b);
    p->each = calloc(2 * n, sizeof *p->each);
    return p->zeros && p->piece && p->a && p->b && p->each
               ? BERTH_OK
               : err_set(err, BERTH_ENOMEM, "%llu latents", (unsigned long long)n);
}

static void pass_close(struct pass *p)
{
    free(p->zeros);
    free(p->piece);
    free(p->a);
    free(p->b);
    free(p->each);
}

/* Block by block, each followed by what steers it. */
static berth_status steered(struct net *net, struct pass *p, struct qwen_image_host *host,
                            berth_err *err)
{
    struct qwen_image_between between = { .q = p->q, .in = p->in, .size = p->size };
    berth_status s = qwen_image_between_open(&between, host, err);
    p->between = &between;
    for (uint32_t i = 0; !s && i < p->q->depth; i++) {
        p->first = i;
        p->last = i + 1;
        s = net_forward(net, forward, p, err);
        if (!s)
            s = qwen_image_steer(&between, i, err);
    }
    return s ? s : net_forward(net, forward_end, p, err);
}

/* The picture's latents as patches. */
static berth_status fill_hint(struct qwen_image_host *host, const struct control_turn *t,
                              berth_err *err)
{
    const struct shape *h = &t->hint_shape;
    const uint64_t pixels = QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH;
    const size_t each = (size_t)shape_inner(h, 1);
    if (!tokens_room(&host->hint, h->dim[0], tokens_count(h), h->dim[1] * pixels))
        return err_set(err, BERTH_ENOMEM, "what a control net looks at");
    float *to = host->hint.p;
    for (size_t i = 0; i < (size_t)h->dim[0]; i++)
        to = tokens_from(t->hint + i * each, h, to);
    return BERTH_OK;
}

berth_status qwen_image_turn(struct net *net, const struct qwen_image_net *q,
                             struct control_turn *t, struct qwen_image_host *host, uint64_t *peak,
                             berth_err *err)
{
    struct pass p;
    berth_status s = pass_open(&p, q, t->b, peak ? NULL : host, err);
    p.turn = t;
    if (!s && tokens_count(&t->hint_shape) != p.size.picture)
        s = err_set(err, BERTH_EUNSUPPORTED,
                    "a control net of Qwen-Image for latents of other frames than its picture's");
    if (!s && peak)
        s = net_predict(net, forward_turn, &p, peak, err);
    if (!s && !peak)
        s = qwen_image_host_fill(host, q, t->b, &p.size, err);
    if (!s && !peak)
        s = fill_hint(host, t, err);
    if (!s && !peak)
        s = net_forward(net, forward_turn, &p, err);
    pass_close(&p);
    return s;
}

static berth_status run(struct net *net, struct pass *p, struct qwen_image_host *host,
                        berth_err *err)
{
    if (p->in->controls && patch_keeps_refs(&p->in->patches))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "FluxKVCache together with a network that steers Qwen-Image");
    if (ref_cache_begin(&host->cache, net, p->in, p->size.refs, p->q->hidden, p->q->depth, err))
        return err->code;
    p->size.kept = host->cache.state == REF_CACHE_SERVES;
    p->N = p->size.kept ? p->T - p->size.refs : p->T;
    if (qwen_image_host_fill(host, p->q, p->in, &p->size, err) ||
        (p->in->controls ? steered(net, p, host, err) : net_forward(net, forward, p, err)))
        return err->code;
    ref_cache_end(&host->cache);
    tokens_to_batch(host->result.p, p->q->out_channels, p->in);
    return BERTH_OK;
}

berth_status qwen_image_forward(struct net *net, const struct qwen_image_net *q,
                                const struct family_batch *b, struct qwen_image_host *host,
                                uint64_t *peak, berth_err *err)
{
    struct pass p;
    berth_status s = pass_open(&p, q, b, peak ? NULL : host, err);
    if (!s && b->controls && b->steers)
        s = err_set(err, BERTH_EUNSUPPORTED,
                    "a model patch and control nets of prompts at once cannot be computed yet");
    if (!s && peak)
        s = net_predict(net, forward, &p, peak, err);
    if (!s && !peak)
        s = run(net, &p, host, err);
    pass_close(&p);
    return s;
}
