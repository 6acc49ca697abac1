/* The two forward passes of Mochi's VAE. */
#include "model/vae_mochi/vae_mochi.h"

#include <math.h>

#define EPS 1e-5f
#define EPS_LENGTH 1e-12f
#define GROUPS 32
#define HEAD 32 /* wide: of attentions over time */
#define COLOURS 3
#define FREQUENCIES 2 /* of each: 2 pi times 2^6 and 2^7 */
#define FIRST_FREQUENCY 6
#define SIDES 2

#define SLOTS_MAX 256 /* convolutions over frames of a half */
#define REMEMBERED 2  /* frames: what a filter over three looks back at */

struct walk { /* through one piece */
    struct net_run *r;
    bool first, last;             /* piece */
    size_t at;                    /* in before */
    struct act before[SLOTS_MAX]; /* by convolution: the last frames it saw; empty: none yet */
};

static const struct act none = { .addr = 0 };

/* ---- blocks ---- */

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

/* Behind what it saw before, its edges going on. Takes x. */
static struct act conv(struct walk *k, struct act x, const char *layer)
{
    struct net_run *r = k->r;
    struct net_frames f = { .plane = NET_PAD1, .time = NET_EDGE, .space = NET_EDGE };
    if (k->at == SLOTS_MAX)
        net_fail(r, BERTH_ELIMIT, "more than %d convolutions over frames", SLOTS_MAX);
    struct act *mine = &k->before[k->at < SLOTS_MAX ? k->at++ : 0];
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

/* Heads of length 1; so many times as long are the rows that are left. */
static void same_length(struct net_run *r, struct act x)
{
    uint64_t n;
    if (net_bad(r) || !shape_count(&x.shape, &n))
        return;
    const struct shape heads = { 2, { n / HEAD, HEAD } };
    struct act rows = net_reshape(r, x, &heads);
    net_rms_norm_to(
        r, &(struct net_norm) { .x = net_view(&rows), .y = net_view(&rows), .eps = EPS_LENGTH });
}

/* Every pixel looks at itself in all frames. x [frames, C, h, w] += that. */
static void look_through_time(struct net_run *r, struct act *x)
{
    static const int pixels_first[] = { 2, 3, 0, 1 };
    if (net_bad(r))
        return;
    const uint64_t *d = x->shape.dim, C = d[1];
    const struct shape rows = { 3, { d[2] * d[3], d[0], C } };
    const struct shape apart = { 4, { d[2], d[3], d[0], C } };
    struct act n = net_group_norm(r, *x, "norm", GROUPS, EPS, false), part[3];
    struct act t = net_reshape(r, net_permute(r, n, pixels_first), &rows);
    struct net_product each[3];
    net_drop(r, &n);
    for (uint64_t i = 0; i < 3; i++) {
        part[i] = net_new(r, &rows);
        each[i] = (struct net_product) { .layer = "attn.qkv",
                                         .x = net_view(&t),
                                         .y = net_view(&part[i]),
                                         .row = i * C,
                                         .rows = C,
                                         .no_bias = true };
    }
    net_products(r, each, 3);
    same_length(r, part[0]);
    same_length(r, part[1]);
    const uint32_t heads = (uint32_t)(C / HEAD);
    net_attend(r, net_split(r, net_view(&part[0]), heads), net_split(r, net_view(&part[1]), heads),
               net_split(r, net_view(&part[2]), heads), net_split(r, net_view(&t), heads),
               (struct net_attn) { .scale = 1.0f / (HEAD * sqrtf((float)HEAD)) });
    for (int i = 0; i < 3; i++)
        net_drop(r, &part[i]);
    struct act y = net_linear(r, t, "attn.out");
    net_drop(r, &t);
    t = net_permute(r, net_reshape(r, y, &apart), pixels_first); /* the same back again */
    net_drop(r, &y);
    net_add(r, x, t);
    net_drop(r, &t);
}

/* Takes x [frames, C, h, w]. */
static struct act res_block(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    struct act a = net_group_norm(r, x, "stack.0", GROUPS, EPS, true);
    a = conv(k, a, "stack.2");
    net_group_norm_in_place(r, &a, "stack.3", GROUPS, EPS, true);
    a = conv(k, a, "stack.5");
    net_add(r, &a, x);
    net_drop(r, &x);
    size_t mark = net_enter(r, "attn_block.");
    if (net_has(r, "attn.qkv"))
        look_through_time(r, &a);
    net_leave(r, mark);
    return a;
}

/* Those behind `list` from number `from` on. Takes x. */
static struct act some_blocks(struct walk *k, struct act x, const char *list, unsigned from)
{
    for (unsigned i = from; !net_bad(k->r); i++) {
        size_t mark = net_enter(k->r, "%s%u.", list, i);
        const bool there = net_has(k->r, "stack.2");
        if (there)
            x = res_block(k, x);
        net_leave(k->r, mark);
        if (!there)
            break;
    }
    return x;
}

/* ---- decoder ---- */

/* Cells to pixels and frames; of the first frame there is but one. Takes x. */
static struct act spread(struct walk *k, struct act x, uint64_t t)
{
    static const int to[] = { 0, 2, 1, 5, 3, 6, 4 };
    struct net_run *r = k->r;
    if (net_bad(r))
        return x;
    const uint64_t *d = x.shape.dim, C = d[1] / (t * SIDES * SIDES), n = d[0] * t;
    const struct shape cells = { 7, { d[0], C, t, SIDES, SIDES, d[2], d[3] } };
    const struct shape pixels = { 4, { n, C, d[2] * SIDES, d[3] * SIDES } };
    struct act y = net_reshape(r, net_permute(r, net_reshape(r, x, &cells), to), &pixels);
    net_drop(r, &x);
    if (!k->first || t == 1)
        return y;
    x = net_slice(r, y, 0, t - 1, n);
    net_drop(r, &y);
    return x;
}

static struct act decode_piece(struct walk *k, const struct vae_mochi *v, struct act z)
{
    static const struct net_frames point = { .plane = NET_1X1 };
    struct net_run *r = k->r;
    struct act x = net_conv3d(r, z, "blocks.0.0", point);
    x = some_blocks(k, x, "blocks.0.", 1);
    for (uint8_t i = 0; i < v->levels && !net_bad(r); i++) {
        size_t mark = net_enter(r, "blocks.%u.", i + 1u);
        x = some_blocks(k, x, "blocks.", 0);
        struct act y = net_conv2d(r, x, "proj", NET_1X1);
        net_drop(r, &x);
        x = spread(k, y, v->grow[i]);
        net_leave(r, mark);
    }
    size_t mark = net_enter(r, "blocks.%u.", v->levels + 1u);
    x = some_blocks(k, x, "", 0);
    net_leave(r, mark);
    net_unary(r, &x, OP_SILU);
    struct act y = net_conv2d(r, x, "output_proj", NET_1X1);
    net_drop(r, &x);
    return y;
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

void vae_mochi_decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const struct vae_mochi *v = vae_mochi_in(p->vae);
    const uint64_t *d = p->shape.dim, T = d[2];
    const struct shape in = { 4, { d[1], T, d[3], d[4] } };
    const struct shape made = vae_decoded(p->vae, &p->shape);
    const struct shape planes = { 4, { made.dim[1], made.dim[2], made.dim[3], made.dim[4] } };
    struct act x = turned(r, net_input(r, &in, p->in)), all = net_new(r, &planes);
    struct walk k = { .r = r };
    size_t mark = net_enter(r, "decoder.");
    for (uint64_t at = 0, done = 0; at < T && !net_bad(r); at++) {
        k.first = at == 0;
        k.last = at + 1 == T;
        k.at = 0;
        struct act y = turned(r, decode_piece(&k, v, net_rows(r, x, at, at + 1)));
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

/* ---- encoder ---- */

/* Colours [3, n], then sines and cosines of each at two frequencies. */
static void waves(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                  const void *user)
{
    const size_t n = (size_t)xs->dim[1], many = COLOURS * FREQUENCIES;
    (void)ys, (void)user;
    for (size_t i = 0; i < COLOURS * n; i++)
        y[i] = x[i];
    for (size_t c = 0; c < COLOURS; c++)
        for (size_t k = 0; k < FREQUENCIES; k++) {
            const float w = ldexpf((float)(2 * M_PI), FIRST_FREQUENCY + (int)k);
            float *sine = y + (COLOURS + c * FREQUENCIES + k) * n, *cosine = sine + many * n;
            for (size_t i = 0; i < n; i++) {
                const float at = w * x[c * n + i];
                sine[i] = (float)sin((double)at);
                cosine[i] = (float)cos((double)at);
            }
        }
}

/* [frames, 15, h, w] */
static struct act pictures_in(struct net_run *r, const struct vae_pass *p)
{
    const uint64_t *d = p->shape.dim, each = d[2] * d[3] * d[4];
    const uint64_t many = COLOURS * (1 + 2 * FREQUENCIES);
    const struct shape flat = { 2, { COLOURS, each } }, more = { 2, { many, each } };
    const struct shape planes = { 4, { many, d[2], d[3], d[4] } };
    struct act in = net_input_f32(r, &flat, p->in), x = net_host(r, in, &more, waves, NULL);
    net_drop(r, &in);
    return turned(r, net_reshape(r, x, &planes));
}

/* Sides halved, and frames; the first one stands for itself alone. Takes x. */
static struct act shrink(struct net_run *r, struct act x, uint8_t time)
{
    const struct net_frames f = {
        .plane = { .stride = SIDES }, .step = time, .from_first = true, .time = NET_EDGE
    };
    struct act y = net_conv3d(r, x, "layers.0", f);
    net_drop(r, &x);
    return y;
}

void vae_mochi_encode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const struct vae_mochi *v = vae_mochi_in(p->vae);
    struct walk k = { .r = r, .first = true, .last = true };
    struct act in = pictures_in(r, p);
    size_t mark = net_enter(r, "encoder.");
    struct act x = net_conv2d(r, in, "layers.0", NET_1X1);
    net_drop(r, &in);
    for (unsigned i = 1, level = 0; i < v->enc_layers && !net_bad(r); i++) {
        size_t inner = net_enter(r, "layers.%u.", i);
        if (net_has(r, "layers.0")) {
            x = shrink(r, x, v->shrink[level++]);
            x = some_blocks(&k, x, "layers.", 1);
        } else {
            x = res_block(&k, x);
        }
        net_leave(r, inner);
    }
    net_group_norm_in_place(r, &x, "output_norm", GROUPS, EPS, true);
    struct act y = net_conv2d_no_bias(r, x, "output_proj", NET_1X1);
    net_leave(r, mark);
    net_drop(r, &x);
    struct act mean = net_slice(r, y, 1, 0, p->vae->latent.channels); /* no variance */
    net_drop(r, &y);
    give(r, turned(r, mean), "the encoded latent", p->out);
}
