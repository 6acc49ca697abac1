/* The forward pass of the UNet. B pictures of h x w, C channels, T = h * w positions, L tokens of
 * context.
 *
 * Memory: what a block no longer needs is dropped before its next layer asks for room, sums are
 * formed in the place of their first term, and the 1x1 shortcut of a res block is computed first:
 * then its many channels can be normalised in their own place. What input blocks leave for output
 * blocks is on the stack and must not be written to; `keep` says so.
 *
 * BF16: every block adds to what the block before left. Kept in BF16, that is rounded to 8 bits at
 * each addition, which is a quarter of a UNet's error; so sums are F32 there (`wide`): those of res
 * blocks with their shortcut, of transformers, and of the blocks in these. What layers read is
 * rounded on the way, and so is what lies on the stack. A shortcut and what surrounds a transformer
 * are linear layers over rows then, which can write F32; 3x3 convolutions are rounded before they
 * are added. F16 has 3 bits more and stays as it is. */
#include "model/unet/unet_impl.h"

#include <math.h>

#define GROUPS 32
#define EPS 1e-5f
#define EPS_TRANSFORMER 1e-6f /* of the group norm in front of transformers alone */

static struct shape shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

static struct shape shape4(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return (struct shape) { .ndim = 4, .dim = { a, b, c, d } };
}

/* Sums are F32, see above. */
static bool wide_sums(const struct net_run *r)
{
    return net_dtype(r) == DT_BF16;
}

bool unet_is_wide(const struct net_run *r, const struct act *x)
{
    return x->dtype != net_dtype(r);
}

/* As layers read it: takes x where it is wide, else it is x itself. */
static struct act narrow(struct net_run *r, struct act x)
{
    if (!unet_is_wide(r, &x))
        return x;
    struct act y = net_round(r, x);
    net_drop(r, &x);
    return y;
}

/* [B, C, h, w] -> [B, T, C]; x stays. */
static struct act rows_of(struct net_run *r, struct act x)
{
    struct shape s =
        shape3(x.shape.dim[0], x.shape.dim[1], x.shape.dim[2] * x.shape.dim[3]); /* [B, C, T] */
    return net_permute(r, net_reshape(r, x, &s), (const int[]) { 0, 2, 1 });
}

/* The same, and back; takes x. */
static struct act to_rows(struct net_run *r, struct act x)
{
    struct act y = rows_of(r, x);
    net_drop(r, &x);
    return y;
}

static struct act to_picture(struct net_run *r, struct act x, uint64_t h, uint64_t w)
{
    struct shape s = shape4(x.shape.dim[0], x.shape.dim[2], h, w);
    struct act y = net_permute(r, x, (const int[]) { 0, 2, 1 }); /* [B, C, T] */
    net_drop(r, &x);
    return net_reshape(r, y, &s);
}

/* The 1x1 shortcut of a res block; x stays. */
static struct act shortcut(struct net_run *r, struct act x)
{
    if (!wide_sums(r))
        return net_conv2d(r, x, "skip_connection", NET_1X1);
    struct act rows = narrow(r, rows_of(r, x)), y = net_linear_f32(r, rows, "skip_connection");
    net_drop(r, &rows);
    return to_picture(r, y, x.shape.dim[2], x.shape.dim[3]);
}

/* SiLU of x's norm; takes x, in its place unless that is wide. */
static struct act norm_silu(struct net_run *r, struct act x, const char *layer)
{
    struct act y = x;
    if (unet_is_wide(r, &x)) {
        y = net_group_norm(r, x, layer, GROUPS, EPS, true);
        net_drop(r, &x);
    } else {
        net_group_norm_in_place(r, &y, layer, GROUPS, EPS, true);
    }
    return y;
}

/* skip + h in F32, in skip's place if it is wide. Takes h, and skip unless it is to be kept. */
static struct act wide_sum(struct net_run *r, struct act skip, struct act h, bool keep)
{
    struct act y = skip;
    if (unet_is_wide(r, &skip)) {
        net_add(r, &y, h);
    } else {
        y = net_sum_f32(r, skip, h);
        if (!keep)
            net_drop(r, &skip);
    }
    net_drop(r, &h);
    return y;
}

/* x [B, in, h, w] -> [B, out, h, w]. Takes x unless it is to be kept, which what is wide never is:
 * it is not what lies on the stack. */
static struct act res_block(struct net_run *r, struct unet_pass *p, const char *name, struct act x,
                            bool keep)
{
    size_t mark = net_enter(r, "%s", name);
    bool conv = net_has(r, "skip_connection");
    keep = keep && !unet_is_wide(r, &x);
    struct act skip = conv ? shortcut(r, x) : x, a;
    if (conv && !keep) /* x is needed no more */
        a = norm_silu(r, x, "in_layers.0");
    else
        a = net_group_norm(r, x, "in_layers.0", GROUPS, EPS, true);
    struct act h = net_conv2d(r, a, "in_layers.2", NET_PAD1); /* [B, out, h, w] */
    net_drop(r, &a);
    struct act e = net_linear(r, p->emb, "emb_layers.1"); /* [B, out] */
    struct shape spread = shape4(e.shape.dim[0], e.shape.dim[1], 1, 1);
    e = net_reshape(r, e, &spread);
    net_add(r, &h, e);
    net_drop(r, &e);

    net_group_norm_in_place(r, &h, "out_layers.0", GROUPS, EPS, true);
    keep = keep && !conv; /* skip is x */
    if (wide_sums(r))
        a = wide_sum(r, skip, net_conv2d(r, h, "out_layers.3", NET_PAD1), keep);
    else if (keep)
        a = net_conv2d_plus(r, h, "out_layers.3", NET_PAD1, skip);
    else
        a = net_conv2d_add(r, h, "out_layers.3", NET_PAD1, skip); /* in skip's place */
    net_drop(r, &h);
    net_leave(r, mark);
    return a;
}

/* Rows of keys or values under the batch that patches gave the queries: as ComfyUI reads them, each
 * item's in as many pieces as it stands. */
static struct act like_queries(struct net_run *r, struct act k, const struct act *q)
{
    uint64_t B = q->shape.dim[0], all = k.shape.dim[0] * k.shape.dim[1];
    if (net_bad(r) || k.shape.dim[0] == B || !B || all % B)
        return k;
    struct shape s = shape3(B, all / B, k.shape.dim[2]);
    return net_reshape(r, k, &s);
}

/* q, k and v of an attention over norm(x) and ctx, as patches leave them. */
static void project(struct net_run *r, struct unet_pass *p, const char *norm, const char *name,
                    struct act x, struct act ctx, struct patch_attn *a, struct act qkv[3])
{
    struct act n = net_layer_norm(r, x, norm, EPS);
    bool self = ctx.shape.ndim == 0;
    *a = (struct patch_attn) {
        .q = n, .k = self ? n : ctx, .v = self ? n : ctx, .self = self, .draws = &p->draws
    };
    patch_attends(r, p->in, a);
    size_t mark = net_enter(r, "%s", name);
    qkv[0] = net_linear_no_bias(r, a->q, "to_q");
    qkv[1] = net_linear_no_bias(r, a->k, "to_k");
    qkv[2] = net_linear_no_bias(r, a->v, "to_v");
    qkv[1] = like_queries(r, qkv[1], &qkv[0]);
    qkv[2] = like_queries(r, qkv[2], &qkv[0]);
    net_leave(r, mark);
    if (a->own_q)
        net_drop(r, &a->q);
    if (a->own_k)
        net_drop(r, &a->k);
    if (a->own_v)
        net_drop(r, &a->v);
    net_drop(r, &n);
}

/* x + attention(norm(x), ctx), in x's place. x [B, T, C], ctx [B, L, ...]; empty: x's own. */
static struct act attention(struct net_run *r, struct unet_pass *p, const char *norm,
                            const char *name, struct act x, struct act ctx)
{
    const struct unet_net *u = p->u;
    uint64_t C = x.shape.dim[2], heads = u->heads ? u->heads : C / u->head_dim;
    struct patch_attn a;
    struct act qkv[3];
    project(r, p, norm, name, x, ctx, &a, qkv);
    struct act q = qkv[0], k = qkv[1], v = qkv[2];
    size_t mark = net_enter(r, "%s", name);
    float scale = heads ? 1.0f / sqrtf((float)(C / heads)) : 0.0f;
    struct net_attn how = { .heads = (uint32_t)heads, .scale = scale };
    const bool blind = a.self && patch_is_blind(p->in, &p->at);
    const bool attended = a.self && patch_wants_attended(p->in, false);
    if (a.self)
        patch_sees(r, p->in, &p->at, q, k, heads);
    struct act o = blind ? v : net_attention(r, q, k, v, how); /* [B, T, C] */
    net_drop(r, &q);
    net_drop(r, &k);
    if (!blind)
        net_drop(r, &v);
    if (attended || a.changed) {
        struct act y = net_linear(r, o, "to_out.0");
        net_drop(r, &o);
        o = patch_gives(r, p->in, &a, y);
        if (attended)
            o = patch_attended(r, p->in, o, false);
        net_add(r, &x, o);
    } else {
        x = net_linear_add(r, o, "to_out.0", x);
    }
    net_drop(r, &o);
    net_leave(r, mark);
    return x;
}

/* x [B, T, C], in its place. */
static struct act transformer_block(struct net_run *r, struct unet_pass *p, uint32_t i,
                                    struct act x)
{
    size_t mark = net_enter(r, "transformer_blocks.%u.", i);
    x = attention(r, p, "norm1", "attn1.", x, (struct act) { .addr = 0 });
    if (p->in->gligen)
        x = gligen_fuse(r, p->in->gligen, x, p->objects);
    x = attention(r, p, "norm2", "attn2.", x, p->context);

    struct act n = net_layer_norm(r, x, "norm3", EPS);
    x = net_feed_forward(r, n, "ff.net.0.proj", "ff.net.2", x); /* takes n */
    net_leave(r, mark);
    return x;
}

/* x [B, C, h, w] -> the same; takes x. */
static struct act transformer(struct net_run *r, struct unet_pass *p, uint32_t depth, struct act x)
{
    const bool linear = p->u->linear_proj || wide_sums(r);
    uint64_t h = x.shape.dim[2], w = x.shape.dim[3];
    size_t mark = net_enter(r, "1.");
    struct act n = net_group_norm(r, x, "norm", GROUPS, EPS_TRANSFORMER, false), t;
    if (linear) {
        n = to_rows(r, n); /* [B, T, C] */
        t = wide_sums(r) ? net_linear_f32(r, n, "proj_in") : net_linear(r, n, "proj_in");
        net_drop(r, &n);
    } else {
        t = net_conv2d(r, n, "proj_in", NET_1X1);
        net_drop(r, &n);
        t = to_rows(r, t);
    }
    for (uint32_t i = 0; i < depth && !net_bad(r); i++)
        t = transformer_block(r, p, i, t);
    t = narrow(r, t);
    if (linear) { /* added to rows, so that the sum is rounded once */
        x = net_linear_add(r, t, "proj_out", to_rows(r, x));
        net_drop(r, &t);
        x = to_picture(r, x, h, w);
    } else {
        t = to_picture(r, t, h, w);
        x = net_conv2d_add(r, t, "proj_out", NET_1X1, x);
        net_drop(r, &t);
    }
    net_leave(r, mark);
    return x;
}

struct act unet_embed(struct net_run *r, const struct unet_net *u, const struct family_batch *in,
                      struct act more)
{
    struct act t = net_timestep(r, in->t, (size_t)in->shape.dim[0], u->model_channels); /* [B, M] */
    struct act a = net_linear(r, t, "time_embed.0"); /* [B, 4M] */
    net_drop(r, &t);
    net_unary(r, &a, OP_SILU);
    struct act emb = net_linear(r, a, "time_embed.2");
    net_drop(r, &a);
    if (more.shape.ndim)
        net_add(r, &emb, more);
    if (u->adm_channels) {
        struct shape s = { .ndim = 2, .dim = { in->shape.dim[0], u->adm_channels } };
        struct act y = net_input(r, &s, in->y);
        a = net_linear(r, y, "label_emb.0.0");
        net_drop(r, &y);
        net_unary(r, &a, OP_SILU);
        emb = net_linear_add(r, a, "label_emb.0.2", emb);
        net_drop(r, &a);
    }
    net_unary(r, &emb, OP_SILU);
    return emb;
}

static const struct net_conv down = { .stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1 };

/* Onto the stack: itself, or a rounded copy of what is wide. */
static void push(struct net_run *r, struct unet_pass *p, struct act x)
{
    p->skip[p->skips++] = unet_is_wide(r, &x) ? net_round(r, x) : x;
}

/* Which block patches are asked about. */
static void enter_block(struct unet_pass *p, enum patch_part part, uint32_t i)
{
    p->at = (struct patch_at) { .part = part, .block = i, .width = p->u->model_channels };
}

/* h onto the stack, as patches leave it; what goes on from there may be another one. *own: it is
 * not what lies on the stack. */
static struct act keep(struct net_run *r, struct unet_pass *p, struct act h, bool *own)
{
    bool fresh = true; /* nobody else has h yet */
    h = patch_kept(r, p->in, &p->at, h, false, &fresh);
    push(r, p, h);
    *own = unet_is_wide(r, &h);
    return patch_kept(r, p->in, &p->at, h, true, own);
}

struct act unet_input_block(struct net_run *r, struct unet_pass *p, uint32_t i, struct act x,
                            bool own)
{
    size_t mark = net_enter(r, "input_blocks.%u.", i);
    struct act h;
    if (net_has(r, "0.op") && own && !unet_is_wide(r, &x)) {
        h = net_conv2d(r, x, "0.op", down);
        net_drop(r, &x);
    } else if (net_has(r, "0.op")) {
        if (unet_is_wide(r, &x))
            net_drop(r, &x);
        struct act top = p->skip[p->skips - 1];
        h = net_conv2d(r, top, "0.op", down); /* [B, C, ceil(h / 2), ceil(w / 2)] */
    } else {
        h = res_block(r, p, "0.", x, !own);
        if (p->u->depth_in[i])
            h = transformer(r, p, p->u->depth_in[i], h);
    }
    net_leave(r, mark);
    return h;
}

struct act unet_middle(struct net_run *r, struct unet_pass *p, struct act x, bool own)
{
    size_t mark = net_enter(r, "middle_block.");
    struct act h = res_block(r, p, "0.", x, !own);
    if (p->u->middle_attention) {
        h = transformer(r, p, p->u->depth_middle, h);
        h = res_block(r, p, "2.", h, false);
    }
    net_leave(r, mark);
    return h;
}

/* Block i of the way up: takes x and the top of the stack. `own`: x is not that top itself. */
static struct act output_block(struct net_run *r, struct unet_pass *p, uint32_t i, struct act x,
                               bool own)
{
    size_t mark = net_enter(r, "output_blocks.%u.", i);
    struct act skip = p->skip[--p->skips];
    control_add(r, p->in, CONTROL_OUTPUT, p->skips, 0, &skip);
    own = own || unet_is_wide(r, &x);
    x = narrow(r, x);
    patch_output(r, p->in, &p->at, &x, &own, &skip);
    struct act pair[2] = { x, skip };
    struct act h = net_concat(r, pair, 2, 1); /* [B, C + C of the skip, h, w] */
    net_drop(r, &skip);
    if (own)
        net_drop(r, &x);
    h = res_block(r, p, "0.", h, false);
    uint32_t depth = p->u->depth_out[i];
    if (depth)
        h = transformer(r, p, depth, h);
    const char *up = depth ? "2.conv" : "1.conv";
    if (p->skips && net_has(r, up)) {
        /* To the size of what comes next on the stack: odd sizes come back exactly. */
        const struct shape *to = &p->skip[p->skips - 1].shape;
        h = narrow(r, h);
        struct act big = net_nearest(r, h, to->dim[2], to->dim[3]);
        net_drop(r, &h);
        h = net_conv2d(r, big, up, NET_PAD1);
        net_drop(r, &big);
    }
    net_leave(r, mark);
    return h;
}

static void forward(struct net_run *r, void *user)
{
    struct unet_pass p = *(const struct unet_pass *)user, *after = user;
    const struct unet_net *u = p.u;
    const struct family_batch *in = p.in;
    if (in->patches.run)
        p.draws = in->patches.run->rng;
    struct shape xs = in->shape, cs = shape3(xs.dim[0], in->tokens, u->context_dim);
    xs.dim[1] = u->in_channels;
    p.emb = unet_embed(r, u, in, (struct act) { .addr = 0 });
    p.context = net_input(r, &cs, in->context);
    if (in->gligen)
        p.objects = gligen_objects(r, in->gligen, in->boxes, xs.dim[0]);

    struct act x = net_input(r, &xs, in->x);
    struct act h = net_conv2d(r, x, "input_blocks.0.0", NET_PAD1); /* [B, M, h, w] */
    net_drop(r, &x);
    bool own;
    enter_block(&p, PATCH_INPUT, 0);
    control_add(r, in, CONTROL_INPUT, 0, 0, &h);
    h = keep(r, &p, h, &own);
    for (uint32_t i = 1; i < u->input_blocks && !net_bad(r); i++) {
        enter_block(&p, PATCH_INPUT, i);
        h = unet_input_block(r, &p, i, h, own);
        control_add(r, in, CONTROL_INPUT, i, 0, &h);
        h = keep(r, &p, h, &own);
    }
    enter_block(&p, PATCH_MIDDLE, 0);
    if (u->middle) {
        h = unet_middle(r, &p, h, own);
        control_add(r, in, CONTROL_MIDDLE, 0, 0, &h);
    }
    for (uint32_t i = 0; i < u->output_blocks && !net_bad(r); i++) {
        enter_block(&p, PATCH_OUTPUT, i);
        h = output_block(r, &p, i, h, own || i > 0 || u->middle);
    }

    net_drop(r, &p.emb);
    net_drop(r, &p.context);
    net_drop(r, &p.objects);
    h = norm_silu(r, h, "out.0");
    x = net_conv2d(r, h, "out.2", NET_PAD1); /* [B, out_channels, h, w] */
    net_drop(r, &h);
    net_finite(r, x, "the UNet's output");
    net_output(r, x, in->out);
    net_drop(r, &x);
    after->draws = p.draws;
}

berth_status unet_forward(struct net *net, const struct unet_net *u, const struct family_batch *b,
                          uint64_t *peak, berth_err *err)
{
    struct unet_pass p = { .u = u, .in = b };
    if (peak)
        return net_predict(net, forward, &p, peak, err);
    berth_status s = net_forward(net, forward, &p, err);
    if (!s && b->patches.run)
        b->patches.run->rng = p.draws;
    return s;
}
