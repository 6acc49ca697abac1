/* The forward pass of Wan. B latents; L tokens of video, a picture to look at in front of them; D
 * wide; C tokens of text, and S of what CLIP vision saw in front of those. F times of each item,
 * each of as many tokens.
 *
 * Memory: a pass holds most in self-attention, five of [B, L, D] at once, or where feed-forwards
 * are wider than 3 D in those, two and what is inside. A thrifty pass does them in two halves. */
#include "model/wan/wan.h"

#include "model/families.h"

#define EPS 1e-6f
#define EPS_SEEN 1e-5f

struct pass {
    const struct wan_net *f;
    const struct family_batch *in;
    const struct wan_host *host; /* NULL: sizes alone are asked for */
    struct wan_sizes size;
    uint64_t B, L, F;
    struct act time;     /* [B * F, D]: the embedded noise levels */
    struct act mod;      /* [B * F, 6 D]: what all blocks' modulations begin with */
    struct act text;     /* [B, C, D] */
    struct act pictures; /* [B, S, D]; empty: none */
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

/* ---- modulation ---- */

/* Chunk k of rows begin..end of a modulation [rows, chunks * D]. */
static struct view chunk(struct net_run *r, const struct pass *p, struct act mod, uint64_t begin,
                         uint64_t end, uint64_t k)
{
    const uint64_t D = p->f->hidden;
    return net_part(r, net_part(r, net_view(&mod), 0, begin, end), 1, k * D, (k + 1) * D);
}

/* Tokens of x [B, L, D] as each time has them. */
static struct act by_time(struct net_run *r, const struct pass *p, struct act x)
{
    const struct shape s = shape3(p->B * p->F, p->L / p->F, p->f->hidden);
    return net_reshape(r, x, &s);
}

static struct act by_item(struct net_run *r, const struct pass *p, struct act x)
{
    const struct shape s = shape3(p->B, p->L, p->f->hidden);
    return net_reshape(r, x, &s);
}

/* norm(x) * (1 + scale) + shift, which are chunks of mod. */
static struct act modulate(struct net_run *r, const struct pass *p, struct act x, struct act mod,
                           uint64_t shift, uint64_t scale)
{
    const uint64_t n = p->B * p->F;
    struct act rows = by_time(r, p, x);
    return by_item(r, p,
                   net_modulate(r, net_view(&rows), chunk(r, p, mod, 0, n, scale),
                                chunk(r, p, mod, 0, n, shift), EPS));
}

/* x += gate * z, the gate being a chunk of mod. Takes z. */
static void gate(struct net_run *r, const struct pass *p, struct act x, struct act mod, uint64_t k,
                 struct act z)
{
    struct act rows = by_time(r, p, x);
    net_gate(r, net_view(&rows), chunk(r, p, mod, 0, p->B * p->F, k), by_time(r, p, z));
    net_drop(r, &z);
}

/* ---- attention ---- */

/* norm(layer(x)): over all heads at once. */
static struct act normed(struct net_run *r, struct act x, const char *layer, const char *norm)
{
    struct act a = net_linear(r, x, layer), y = net_rms_norm(r, a, norm, EPS);
    net_drop(r, &a);
    return y;
}

static struct view in_heads(struct net_run *r, const struct pass *p, const struct act *a)
{
    return net_split(r, net_view(a), p->f->heads);
}

/* Of h, which it takes. */
static struct act self_attention(struct net_run *r, const struct pass *p, struct act h)
{
    size_t mark = net_enter(r, "self_attn.");
    struct act q = normed(r, h, "q", "norm_q"), k = normed(r, h, "k", "norm_k");
    struct act v = net_linear(r, h, "v");
    net_qk_rope(r, in_heads(r, p, &q), in_heads(r, p, &k), NULL, NULL, p->table, EPS);
    net_attend(r, in_heads(r, p, &q), in_heads(r, p, &k), in_heads(r, p, &v), in_heads(r, p, &h),
               (struct net_attn) { .scale = 0 });
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    struct act z = net_linear(r, h, "o");
    net_drop(r, &h);
    net_leave(r, mark);
    return z;
}

/* What the queries q find in x, by these layers; a new act. */
static struct act look(struct net_run *r, const struct pass *p, struct act q, struct act x,
                       const char *key, const char *norm, const char *value)
{
    struct act k = normed(r, x, key, norm), v = net_linear(r, x, value);
    struct act o = net_new(r, &q.shape);
    net_attend(r, in_heads(r, p, &q), in_heads(r, p, &k), in_heads(r, p, &v), in_heads(r, p, &o),
               (struct net_attn) { .scale = 0 });
    net_drop(r, &k);
    net_drop(r, &v);
    return o;
}

/* x += what it finds in the text, and in pictures. A network that could see pictures and is given
 * none looks at the text twice, as ComfyUI's does. */
static void cross_attention(struct net_run *r, const struct pass *p, struct act x)
{
    struct act h = net_layer_norm(r, x, "norm3", EPS);
    size_t mark = net_enter(r, "cross_attn.");
    struct act q = normed(r, h, "q", "norm_q");
    net_drop(r, &h);
    struct act o = look(r, p, q, p->text, "k", "norm_k", "v");
    if (p->f->sees) {
        struct act seen = look(r, p, q, p->pictures.shape.ndim ? p->pictures : p->text, "k_img",
                               "norm_k_img", "v_img");
        net_add(r, &o, seen);
        net_drop(r, &seen);
    }
    net_drop(r, &q);
    net_linear_add(r, o, "o", x);
    net_drop(r, &o);
    net_leave(r, mark);
}

/* ---- feed-forward ---- */

/* In h's place. */
static void feed_forward(struct net_run *r, const struct pass *p, struct act h)
{
    const uint64_t all = p->B * p->L, most = net_thrifty(r) ? (all + 1) / 2 : all;
    const struct shape flat = shape2(all, p->f->hidden);
    h = net_reshape(r, h, &flat);
    for (uint64_t at = 0; at < all && !net_bad(r); at += most) {
        const uint64_t end = at + most < all ? at + most : all;
        const struct shape s = shape2(end - at, p->f->mlp);
        struct act part = net_rows(r, h, at, end), wide = net_new(r, &s);
        net_product(r, &(struct net_product) { .layer = "ffn.0",
                                               .x = net_view(&part),
                                               .y = net_view(&wide),
                                               .after = OP_AFTER_GELU_TANH });
        net_product(r, &(struct net_product) {
                           .layer = "ffn.2", .x = net_view(&wide), .y = net_view(&part) });
        net_drop(r, &wide);
    }
}

/* ---- blocks ---- */

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 }; /* of a modulation */

static void block(struct net_run *r, const struct pass *p, struct act x)
{
    struct act mod = net_slice(r, p->mod, 0, 0, p->B * p->F);
    struct act own = net_embedding(r, table_rows, 1, "modulation");
    net_add(r, &mod, own);
    net_drop(r, &own);
    struct act h = modulate(r, p, x, mod, SHIFT1, SCALE1);
    gate(r, p, x, mod, GATE1, self_attention(r, p, h));
    cross_attention(r, p, x);
    h = modulate(r, p, x, mod, SHIFT2, SCALE2);
    feed_forward(r, p, h);
    gate(r, p, x, mod, GATE2, h);
    net_drop(r, &mod);
}

/* Rows of patches through a layer: [B, n, D]. */
static struct act embed(struct net_run *r, const struct pass *p, const char *layer, uint64_t n,
                        uint64_t channels, const float *from)
{
    const struct shape s = shape3(p->B, n, channels * WAN_PATCH * WAN_PATCH);
    struct act in = net_input(r, &s, from);
    struct act x = net_linear(r, in, layer);
    net_drop(r, &in);
    return x;
}

/* ---- VACE ---- */

/* Tokens of what is followed: [B, L, D] each, begun with those of the video. */
static void vace_in(struct net_run *r, const struct pass *p, struct act x, struct act *c)
{
    const uint64_t each = p->B * p->L * p->f->vace_channels * WAN_PATCH * WAN_PATCH;
    for (uint64_t j = 0; j < p->size.vace; j++) {
        struct act in = embed(r, p, "vace_patch_embedding", p->L, p->f->vace_channels,
                              p->host ? p->host->vace.p + j * each : NULL);
        size_t mark = net_enter(r, "vace_blocks.0.");
        c[j] = net_linear(r, in, "before_proj");
        net_leave(r, mark);
        net_drop(r, &in);
        net_add(r, &c[j], x);
    }
}

/* Behind block i, if it is one's turn: x += what its block makes of each, as strong as was said. */
static void vace_turn(struct net_run *r, const struct pass *p, uint32_t i, struct act x,
                      struct act *c)
{
    const uint32_t step = p->f->depth / p->f->vace_blocks;
    if (i % step)
        return;
    size_t mark = net_enter(r, "vace_blocks.%u.", i / step);
    for (uint64_t j = 0; j < p->size.vace && !net_bad(r); j++) {
        block(r, p, c[j]);
        struct act z = net_linear(r, c[j], "after_proj");
        net_add_scaled(r, &x, z, p->size.strength[j]);
        net_drop(r, &z);
    }
    net_leave(r, mark);
}

/* ---- way in, way out ---- */

static void embed_time(struct net_run *r, struct pass *p)
{
    struct act a =
        net_timestep(r, p->host ? p->host->time.p : NULL, (size_t)(p->B * p->F), WAN_TIME_WIDTH);
    struct act h = net_linear(r, a, "time_embedding.0");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    p->time = net_linear(r, h, "time_embedding.2");
    net_drop(r, &h);
    h = net_slice(r, p->time, 0, 0, p->B * p->F);
    net_unary(r, &h, OP_SILU);
    p->mod = net_linear(r, h, "time_projection.1");
    net_drop(r, &h);
}

static void text_in(struct net_run *r, struct pass *p)
{
    const struct shape s = shape3(p->B, p->in->tokens, p->f->context_dim);
    struct act c = net_input(r, &s, p->in->context);
    struct act h = net_linear(r, c, "text_embedding.0");
    net_drop(r, &c);
    net_unary(r, &h, OP_GELU_TANH);
    p->text = net_linear(r, h, "text_embedding.2");
    net_drop(r, &h);
}

/* Of every row its own. */
static void add_positions(struct net_run *r, const struct pass *p, struct act *x)
{
    struct act pos =
        net_embedding(r, p->host ? p->host->row : NULL, (size_t)p->size.seen, "emb_pos");
    const struct shape s = shape3(1, p->size.seen, WAN_SEEN_WIDTH);
    net_add(r, x, net_reshape(r, pos, &s));
    net_drop(r, &pos);
}

static void pictures_in(struct net_run *r, struct pass *p)
{
    const struct shape s = shape3(p->B, p->size.seen, WAN_SEEN_WIDTH);
    size_t mark = net_enter(r, "img_emb.");
    struct act x = net_input(r, &s, p->host ? p->host->seen.p : NULL);
    if (p->f->seen_most)
        add_positions(r, p, &x);
    struct act h = net_layer_norm(r, x, "proj.0", EPS_SEEN);
    net_drop(r, &x);
    x = net_linear(r, h, "proj.1");
    net_drop(r, &h);
    net_unary(r, &x, OP_GELU);
    h = net_linear(r, x, "proj.3");
    net_drop(r, &x);
    p->pictures = net_layer_norm(r, h, "proj.4", EPS_SEEN);
    net_drop(r, &h);
    net_leave(r, mark);
}

/* x += how the camera stands to the pixels of each token, as their neighbours see it. */
static void camera_in(struct net_run *r, const struct pass *p, struct act x)
{
    static const int swap[] = { 0, 2, 1 };
    const uint64_t D = p->f->hidden, frames = p->B * p->size.frames;
    const uint64_t hw = p->size.rows * p->size.columns;
    const uint64_t pixels = WAN_CAMERA_SIDE * WAN_CAMERA_SIDE / (WAN_PATCH * WAN_PATCH);
    const struct shape rows = shape3(frames, hw, D), planes = shape3(frames, D, hw);
    const struct shape pictures = { 4, { frames, D, p->size.rows, p->size.columns } };
    size_t mark = net_enter(r, "control_adapter.");
    struct act in = embed(r, p, "conv", p->size.video, p->f->camera * pixels,
                          p->host ? p->host->camera.p : NULL);
    struct act y = net_permute(r, net_reshape(r, in, &rows), swap);
    net_drop(r, &in);
    y = net_reshape(r, y, &pictures);
    struct act h = net_conv2d(r, y, "residual_blocks.0.conv1", NET_PAD1);
    net_unary(r, &h, OP_RELU);
    y = net_conv2d_add(r, h, "residual_blocks.0.conv2", NET_PAD1, y);
    net_drop(r, &h);
    h = by_item(r, p, net_permute(r, net_reshape(r, y, &planes), swap));
    net_drop(r, &y);
    net_add(r, &x, h);
    net_drop(r, &h);
    net_leave(r, mark);
}

static struct act video_in(struct net_run *r, const struct pass *p)
{
    const struct wan_host *host = p->host;
    struct act x = embed(r, p, "patch_embedding", p->size.video, p->f->in_channels,
                         host ? host->patches.p : NULL);
    if (p->size.camera)
        camera_in(r, p, x);
    if (!p->size.ref)
        return x;
    struct act part[] = {
        embed(r, p, "ref_conv", p->size.ref, p->f->ref_channels, host ? host->ref.p : NULL), x
    };
    struct act all = net_concat(r, part, 2, 1);
    net_drop(r, &part[0]);
    net_drop(r, &part[1]);
    return all;
}

/* The noise levels as `row` of the last layer's table changes them: [B * F, D]. */
static struct act last_chunk(struct net_run *r, const struct pass *p, const int32_t *row)
{
    struct act a = net_slice(r, p->time, 0, 0, p->B * p->F);
    struct act own = net_embedding(r, row, 1, "head.modulation");
    net_add(r, &a, own);
    net_drop(r, &own);
    return a;
}

/* The latent's tokens as patches, [B, kept, 4 * channels]. Takes x. */
static struct act way_out(struct net_run *r, const struct pass *p, struct act x)
{
    struct act shift = last_chunk(r, p, &table_rows[0]), scale = last_chunk(r, p, &table_rows[1]);
    struct act rows = by_time(r, p, x);
    struct act h = net_modulate(r, net_view(&rows), net_view(&scale), net_view(&shift), EPS);
    h = by_item(r, p, h);
    net_drop(r, &shift);
    net_drop(r, &scale);
    net_drop(r, &x);
    if (p->L > p->size.kept) {
        struct act kept = net_slice(r, h, 1, p->size.ref, p->size.ref + p->size.kept);
        net_drop(r, &h);
        h = kept;
    }
    struct act y = net_linear(r, h, "head.head");
    net_drop(r, &h);
    return y;
}

static void forward(struct net_run *r, void *user)
{
    struct pass p = *(const struct pass *)user;
    const struct shape ts = shape3(p.L, WAN_HEAD / 2, 2);
    struct act x = video_in(r, &p);
    embed_time(r, &p);
    text_in(r, &p);
    if (p.size.seen)
        pictures_in(r, &p);
    p.table = net_input_f32(r, &ts, p.host ? p.host->table.p : NULL);
    struct act followed[WAN_VACE_MAX];
    vace_in(r, &p, x, followed);
    for (uint32_t i = 0; i < p.f->depth && !net_bad(r); i++) {
        size_t mark = net_enter(r, "blocks.%u.", i);
        if (!patch_leaves_out(p.in, PATCH_DOUBLE, i))
            block(r, &p, x);
        net_leave(r, mark);
        if (p.size.vace)
            vace_turn(r, &p, i, x, followed);
    }
    for (uint64_t j = 0; j < p.size.vace; j++)
        net_drop(r, &followed[j]);
    net_drop(r, &p.table);
    net_drop(r, &p.text);
    net_drop(r, &p.pictures);
    net_drop(r, &p.mod);
    struct act y = way_out(r, &p, x);
    net_drop(r, &p.time);
    net_finite(r, y, "Wan's output");
    net_output(r, y, p.host ? p.host->result.p : NULL);
    net_drop(r, &y);
}

berth_status wan_forward(struct net *net, const struct wan_net *f, const struct family_batch *b,
                         struct wan_host *host, uint64_t *peak, berth_err *err)
{
    struct pass p = { .f = f, .in = b, .host = peak ? NULL : host, .B = b->shape.dim[0] };
    if (wan_sizes(f, b, &p.size, err))
        return err->code;
    p.L = p.size.ref + p.size.video;
    p.F = p.size.times;
    if (peak)
        return net_predict(net, forward, &p, peak, err);
    berth_status s = wan_host_fill(host, f, b, &p.size, err);
    if (!s)
        s = net_forward(net, forward, &p, err);
    if (!s)
        wan_host_give(host, f, b);
    return s;
}
