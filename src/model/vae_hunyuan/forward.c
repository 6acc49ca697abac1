/* The two forward passes of HunyuanVideo's VAE, over pieces of a video one after the other. */
#include "model/vae_hunyuan/vae_hunyuan.h"

#include <math.h>

#define EPS 1e-6f
#define GROUPS 32

#define SLOTS_MAX 256 /* convolutions over frames of a half */
#define REMEMBERED 2  /* frames: what a filter over three looks back at */
#define LATER 8       /* pictures of the encoder's pieces behind the first one */
#define LATENTS 2     /* of the decoder's pieces */
#define FRAMES_MAX 16 /* of a piece, where they are doubled */

struct walk { /* through one piece */
    struct net_run *r;
    const struct vae_hunyuan *v;
    bool first, last;             /* piece */
    size_t at;                    /* in before */
    struct act before[SLOTS_MAX]; /* by convolution: the last frames it saw; empty: none yet */
};

static const struct act none = { .addr = 0 };
static const struct net_frames point = { .plane = NET_1X1 };

/* ---- convolutions ---- */

/* The last ones of `before` (taken) and x. */
static struct act remembered(struct net_run *r, struct act before, struct act x)
{
    const uint64_t n = x.shape.dim[0], had = before.shape.ndim ? before.shape.dim[0] : 0;
    struct act y = none;
    if (net_bad(r))
        return none;
    if (n >= REMEMBERED || !had) {
        y = net_slice(r, x, 0, n > REMEMBERED ? n - REMEMBERED : 0, n);
    } else {
        const uint64_t old = REMEMBERED - n < had ? REMEMBERED - n : had;
        const struct act both[] = { net_rows(r, before, had - old, had), x };
        y = net_concat(r, both, 2, 0);
    }
    net_drop(r, &before);
    return y;
}

/* Behind what it saw before, its edges going on. step: of frames and of sides. Takes x. */
static struct act stepped(struct walk *k, struct act x, const char *layer, uint32_t time,
                          uint32_t side)
{
    struct net_run *r = k->r;
    struct net_frames f = {
        .plane = NET_PAD1, .step = time, .from_first = true, .time = NET_EDGE, .space = NET_EDGE
    };
    if (k->at == SLOTS_MAX)
        net_fail(r, BERTH_ELIMIT, "more than %d convolutions over frames", SLOTS_MAX);
    struct act *mine = &k->before[k->at < SLOTS_MAX ? k->at++ : 0];
    f.plane.stride = side;
    f.before = *mine;
    struct act y = net_conv3d(r, x, layer, f);
    if (k->last) {
        net_drop(r, mine);
        *mine = none;
    } else {
        *mine = remembered(r, *mine, x);
    }
    net_drop(r, &x);
    return y;
}

static struct act conv(struct walk *k, struct act x, const char *layer)
{
    return stepped(k, x, layer, 1, 1);
}

/* ---- blocks ---- */

/* Over all frames of the piece together, in place. */
static void norm(struct net_run *r, struct act *x, const char *layer, bool silu)
{
    static const int swap[] = { 1, 0, 2, 3 };
    if (net_bad(r))
        return;
    const uint64_t F = x->shape.dim[0], C = x->shape.dim[1], h = x->shape.dim[2],
                   w = x->shape.dim[3];
    if (F == 1) {
        net_group_norm_in_place(r, x, layer, GROUPS, EPS, silu);
        return;
    }
    const struct shape one = { 3, { 1, C, F * h * w } }, planes = { 4, { C, F, h, w } };
    struct act y = net_permute(r, *x, swap);
    net_drop(r, x);
    y = net_reshape(r, y, &one);
    net_group_norm_in_place(r, &y, layer, GROUPS, EPS, silu);
    y = net_reshape(r, y, &planes);
    *x = net_permute(r, y, swap);
    net_drop(r, &y);
}

/* Takes x [frames, C, h, w]. */
static struct act res_block(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    struct act a = net_slice(r, x, 0, 0, x.shape.ndim ? x.shape.dim[0] : 0);
    norm(r, &a, "norm1", true);
    a = conv(k, a, "conv1.conv");
    norm(r, &a, "norm2", true);
    a = conv(k, a, "conv2.conv");
    if (net_has(r, "nin_shortcut.conv")) {
        struct act skip = net_conv3d(r, x, "nin_shortcut.conv", point);
        net_drop(r, &x);
        x = skip;
    }
    net_add(r, &a, x);
    net_drop(r, &x);
    return a;
}

/* One head over all pixels of all frames. Takes x [frames, C, h, w]. */
static struct act attention(struct net_run *r, struct act x)
{
    static const int channels_last[] = { 0, 2, 3, 1 }, channels_second[] = { 0, 3, 1, 2 };
    static const char *const layer[] = { "q", "k", "v" };
    if (net_bad(r))
        return x;
    const uint64_t *d = x.shape.dim, C = d[1], T = d[0] * d[2] * d[3];
    const struct shape tokens = { 3, { 1, T, C } }, pixels = { 4, { d[0], d[2], d[3], C } };
    struct act n = net_slice(r, x, 0, 0, d[0]), part[3];
    norm(r, &n, "norm", false);
    struct act t = net_reshape(r, net_permute(r, n, channels_last), &tokens);
    net_drop(r, &n);
    for (int i = 0; i < 3; i++)
        part[i] = net_linear(r, t, layer[i]);
    net_attend(r, net_split(r, net_view(&part[0]), 1), net_split(r, net_view(&part[1]), 1),
               net_split(r, net_view(&part[2]), 1), net_split(r, net_view(&t), 1),
               (struct net_attn) { .scale = 1.0f / sqrtf((float)C) });
    for (int i = 0; i < 3; i++)
        net_drop(r, &part[i]);
    struct act y = net_linear(r, t, "proj_out");
    net_drop(r, &t);
    t = net_permute(r, net_reshape(r, y, &pixels), channels_second);
    net_drop(r, &y);
    net_add(r, &t, x);
    net_drop(r, &x);
    return t;
}

/* Of all of a video. */
static struct act middle(struct walk *k, struct act x)
{
    size_t mark = net_enter(k->r, "mid.block_1.");
    x = res_block(k, x);
    net_leave(k->r, mark);
    mark = net_enter(k->r, "mid.attn_1.");
    x = attention(k->r, x);
    net_leave(k->r, mark);
    mark = net_enter(k->r, "mid.block_2.");
    x = res_block(k, x);
    net_leave(k->r, mark);
    return x;
}

static struct act blocks(struct walk *k, struct act x)
{
    for (uint32_t i = 0; !net_bad(k->r); i++) {
        size_t mark = net_enter(k->r, "block.%u.", i);
        const bool there = net_has(k->r, "conv1.conv");
        if (there)
            x = res_block(k, x);
        net_leave(k->r, mark);
        if (!there)
            break;
    }
    return x;
}

/* Each frame twice, but for the first of a video. Takes x. */
static struct act double_frames(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    struct act many[2 * FRAMES_MAX];
    const uint64_t n = net_bad(r) ? 0 : x.shape.dim[0];
    size_t at = 0;
    if (n > FRAMES_MAX)
        net_fail(r, BERTH_ELIMIT, "%d frames of a piece", (int)n);
    for (uint64_t i = 0; i < n && !net_bad(r); i++)
        for (int twice = i || !k->first; twice >= 0; twice--)
            many[at++] = net_rows(r, x, i, i + 1);
    struct act y = net_bad(r) ? none : net_concat(r, many, at, 0);
    net_drop(r, &x);
    return y;
}

/* Sides doubled, and frames where the level has them. Takes x. */
static struct act grow(struct walk *k, struct act x, bool time)
{
    struct net_run *r = k->r;
    if (time)
        x = double_frames(k, x);
    if (net_bad(r))
        return x;
    struct act big = net_nearest(r, x, 2 * x.shape.dim[2], 2 * x.shape.dim[3]);
    net_drop(r, &x);
    return conv(k, big, "upsample.conv.conv");
}

/* ---- pieces ---- */

static struct act decode_piece(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    for (uint32_t i = k->v->levels; i-- > 0 && !net_bad(r);) {
        size_t mark = net_enter(r, "up.%u.", i);
        x = blocks(k, x);
        if (i)
            x = grow(k, x, i <= k->v->timed);
        net_leave(r, mark);
    }
    norm(r, &x, "norm_out", true);
    return conv(k, x, "conv_out.conv");
}

static struct act encode_piece(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    x = conv(k, x, "conv_in.conv");
    for (uint32_t i = 0; i < k->v->levels && !net_bad(r); i++) {
        const bool time = k->v->levels - 1 - i <= k->v->timed;
        size_t mark = net_enter(r, "down.%u.", i);
        x = blocks(k, x);
        if (i + 1 < k->v->levels)
            x = stepped(k, x, "downsample.conv.conv", time ? 2 : 1, 2);
        net_leave(r, mark);
    }
    return x;
}

/* [C, F, h, w] to [F, C, h, w], or back. Takes x. */
static struct act turned(struct net_run *r, struct act x)
{
    static const int swap[] = { 1, 0, 2, 3 };
    struct act y = net_permute(r, x, swap);
    net_drop(r, &x);
    return y;
}

static void give(struct net_run *r, struct act all, const char *what, float *out)
{
    net_finite(r, all, what);
    net_output(r, all, out);
    net_drop(r, &all);
}

/* A layer over all of a video, which looks back at nothing before. */
static struct walk whole(struct net_run *r, const struct vae_hunyuan *v)
{
    return (struct walk) { .r = r, .v = v, .first = true, .last = true };
}

static struct act pointed(struct net_run *r, struct act x, const char *layer) /* takes x */
{
    struct act y = net_conv3d(r, x, layer, point);
    net_drop(r, &x);
    return y;
}

void vae_hunyuan_decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const struct vae_hunyuan *v = vae_hunyuan_in(p->vae);
    const uint64_t *d = p->shape.dim, T = d[2];
    const struct shape in = { 4, { d[1], T, d[3], d[4] } };
    const struct shape made = vae_decoded(p->vae, &p->shape);
    const struct shape planes = { 4, { made.dim[1], made.dim[2], made.dim[3], made.dim[4] } };
    struct act x = turned(r, net_input(r, &in, p->in)), all = net_new(r, &planes);
    if (v->quant)
        x = pointed(r, x, "post_quant_conv");
    size_t mark = net_enter(r, "decoder.");
    struct walk deep = whole(r, v), k = { .r = r, .v = v };
    x = middle(&deep, conv(&deep, x, "conv_in.conv"));
    for (uint64_t at = 0, n, done = 0; at < T && !net_bad(r); at += n) {
        n = T - at < LATENTS ? T - at : LATENTS;
        k.first = at == 0;
        k.last = at + n == T;
        k.at = 0;
        struct act y = turned(r, decode_piece(&k, net_slice(r, x, 0, at, at + n)));
        if (net_bad(r))
            break;
        const uint64_t some = y.shape.dim[1];
        net_copy(r, net_view(&y), net_part(r, net_view(&all), 1, done, done + some));
        net_drop(r, &y);
        done += some;
    }
    net_leave(r, mark);
    net_drop(r, &x);
    give(r, all, "the decoded video", p->out);
}

void vae_hunyuan_encode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const struct vae_hunyuan *v = vae_hunyuan_in(p->vae);
    const struct shape made = vae_encoded(p->vae, &p->shape);
    const uint64_t *d = p->shape.dim, T = made.dim[2];
    const uint64_t frames = (T - 1) * p->vae->latent.time_ratio + 1;
    const struct shape planes = { 4, { d[1], d[2], d[3], d[4] } };
    struct act in = net_input(r, &planes, p->in), all = none;
    struct walk deep = whole(r, v), k = { .r = r, .v = v };
    size_t mark = net_enter(r, "encoder.");
    for (uint64_t at = 0, n, done = 0; at < frames && !net_bad(r); at += n) {
        n = !at ? 1 : frames - at < LATER ? frames - at : LATER;
        k.first = at == 0;
        k.last = at + n == frames;
        k.at = 0;
        struct act y = encode_piece(&k, turned(r, net_slice(r, in, 1, at, at + n)));
        if (net_bad(r))
            break;
        const uint64_t some = y.shape.dim[0];
        if (!all.shape.ndim) {
            struct shape s = y.shape;
            s.dim[0] = T;
            all = net_new(r, &s);
        }
        net_copy(r, net_view(&y), net_part(r, net_view(&all), 0, done, done + some));
        net_drop(r, &y);
        done += some;
    }
    net_drop(r, &in);
    all = middle(&deep, all);
    norm(r, &all, "norm_out", true);
    all = conv(&deep, all, "conv_out.conv");
    net_leave(r, mark);
    if (v->quant)
        all = pointed(r, all, "quant_conv");
    struct act mean = net_slice(r, all, 1, 0, p->vae->latent.channels); /* no variance */
    net_drop(r, &all);
    give(r, turned(r, mean), "the encoded latent", p->out);
}
