/* The two forward passes of Wan's VAEs, over pieces of a video one after the other. */
#include "model/vae_wan/vae_wan.h"

#include <math.h>

#define EPS 1e-12f /* the least length of a pixel's channels */

/* Convolutions over frames of a half: two of every member, of the middle's and at the ends. */
#define MEMORIES_MAX (2 * VAE_WAN_BLOCKS_MAX + 8)
#define REMEMBERED 2  /* frames: what a filter over three looks back at */
#define FIRST_PIECE 1 /* pictures of it */

struct walk { /* through one piece */
    struct net_run *r;
    bool first, last;                /* piece */
    size_t at;                       /* in memory */
    struct act memory[MEMORIES_MAX]; /* by convolution: the last frames it saw; empty: none yet */
};

static const struct net_frames over_time = { .plane = NET_1X1 };

/* ---- convolutions over frames ---- */

/* What the next piece's frames come after: the last ones of `before` and x. */
static struct act remembered(struct walk *k, struct act before, struct act x, uint64_t most)
{
    struct net_run *r = k->r;
    const uint64_t n = x.shape.dim[0], had = before.shape.ndim ? before.shape.dim[0] : 0;
    if (net_bad(r))
        return (struct act) { .addr = 0 };
    if (n >= most || !had)
        return net_slice(r, x, 0, n > most ? n - most : 0, n);
    const uint64_t old = most - n < had ? most - n : had;
    const struct act both[] = { net_rows(r, before, had - old, had), x };
    return net_concat(r, both, 2, 0);
}

/* Where the next convolution's memory is. */
static struct act *memory(struct walk *k)
{
    if (k->at == MEMORIES_MAX)
        net_fail(k->r, BERTH_ELIMIT, "more than %d convolutions over frames", MEMORIES_MAX);
    return &k->memory[k->at < MEMORIES_MAX ? k->at++ : 0];
}

/* The layer over x, behind what it saw before; add: NULL, or what is added, in its place. */
static struct act conv(struct walk *k, struct act x, const char *layer, struct net_frames f,
                       const struct act *add)
{
    struct act *mine = memory(k), old = *mine;
    f.before = old;
    struct act y = add ? net_conv3d_add(k->r, x, layer, f, *add) : net_conv3d(k->r, x, layer, f);
    *mine = k->last ? (struct act) { .addr = 0 } : remembered(k, old, x, REMEMBERED);
    net_drop(k->r, &old);
    return y;
}

static struct act conv_whole(struct walk *k, struct act x, const char *layer) /* takes x */
{
    struct act y = conv(k, x, layer, (struct net_frames) { .plane = NET_PAD1 }, NULL);
    net_drop(k->r, &x);
    return y;
}

/* One pixel, one frame: nothing to remember. Takes x. */
static struct act conv_point(struct net_run *r, struct act x, const char *layer)
{
    struct act y = net_conv3d(r, x, layer, over_time);
    net_drop(r, &x);
    return y;
}

/* ---- blocks ---- */

/* x [frames, in, h, w] -> [frames, out, h, w]; takes x. */
static struct act res_block(struct walk *k, struct act x)
{
    const struct net_frames whole = { .plane = NET_PAD1 };
    struct net_run *r = k->r;
    struct act skip = x, a;
    if (net_has(r, "shortcut")) {
        skip = net_conv3d(r, x, "shortcut", over_time);
        a = x; /* needed no more */
        net_channel_norm_in_place(r, &a, "residual.0", EPS, true);
    } else {
        a = net_channel_norm(r, x, "residual.0", EPS, true);
    }
    a = conv_whole(k, a, "residual.2");
    net_channel_norm_in_place(r, &a, "residual.3", EPS, true);
    x = conv(k, a, "residual.6", whole, &skip); /* in skip's place */
    net_drop(r, &a);
    return x;
}

/* One head over the pixels of each frame. x [frames, C, h, w] -> the same; takes x. */
static struct act attention(struct net_run *r, struct act x)
{
    const uint64_t F = x.shape.dim[0], C = x.shape.dim[1], h = x.shape.dim[2], w = x.shape.dim[3];
    const struct shape rows = { 3, { F, C, h * w } }, picture = { 4, { F, C, h, w } };
    const int swap[] = { 0, 2, 1 };
    struct act n = net_channel_norm(r, x, "norm", EPS, false);
    struct act t = net_permute(r, net_reshape(r, n, &rows), swap); /* [F, T, C] */
    net_drop(r, &n);
    struct act qkv = net_linear(r, t, "to_qkv"); /* [F, T, 3C] */
    struct view part[3];
    for (uint64_t i = 0; i < 3; i++)
        part[i] = net_split(r, net_part(r, net_view(&qkv), 2, i * C, (i + 1) * C), 1);
    net_attend(r, part[0], part[1], part[2], net_split(r, net_view(&t), 1),
               (struct net_attn) { .scale = C ? 1.0f / sqrtf((float)C) : 0.0f });
    net_drop(r, &qkv);
    struct act y = net_permute(r, net_reshape(r, x, &rows), swap);
    net_drop(r, &x);
    y = net_linear_add(r, t, "proj", y);
    net_drop(r, &t);
    x = net_reshape(r, net_permute(r, y, swap), &picture);
    net_drop(r, &y);
    return x;
}

static struct act middle(struct walk *k, struct act x)
{
    size_t mark = net_enter(k->r, "middle.0.");
    x = res_block(k, x);
    net_leave(k->r, mark);
    mark = net_enter(k->r, "middle.1.");
    x = attention(k->r, x);
    net_leave(k->r, mark);
    mark = net_enter(k->r, "middle.2.");
    x = res_block(k, x);
    net_leave(k->r, mark);
    return x;
}

/* Sides doubled; frames, too, where there is a layer for it: but the first piece stays a picture,
 * and later pieces start without a memory of it. Takes x. */
static struct act grow(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    if (net_has(r, "time_conv") && k->first) {
        memory(k); /* stays empty */
    } else if (net_has(r, "time_conv")) {
        struct act two = conv(k, x, "time_conv", over_time, NULL); /* [frames, 2C, h, w] */
        struct shape s = two.shape;
        net_drop(r, &x);
        s.dim[0] *= 2;
        s.dim[1] /= 2;
        x = net_reshape(r, two, &s);
    }
    struct act big = net_nearest(r, x, 2 * x.shape.dim[2], 2 * x.shape.dim[3]);
    net_drop(r, &x);
    x = net_conv2d(r, big, "resample.1", NET_PAD1);
    net_drop(r, &big);
    return x;
}

/* Sides halved, and frames: the first piece is only remembered. Takes x. */
static struct act shrink(struct walk *k, struct act x)
{
    /* zeros to the right and below alone */
    static const struct net_conv down = { .stride = 2, .bottom = 1, .right = 1 };
    struct net_run *r = k->r;
    struct act y = net_conv2d(r, x, "resample.1", down);
    net_drop(r, &x);
    if (!net_has(r, "time_conv"))
        return y;
    struct act *mine = memory(k), old = *mine;
    *mine = k->last ? (struct act) { .addr = 0 } : remembered(k, (struct act) { .addr = 0 }, y, 1);
    if (k->first)
        return y;
    x = net_conv3d(r, y, "time_conv",
                   (struct net_frames) { .plane = NET_1X1, .before = old, .step = 2 });
    net_drop(r, &old);
    net_drop(r, &y);
    return x;
}

/* The members of a half's list, each a block or a change of size. Takes x. */
static struct act members(struct walk *k, struct act x, const char *list, uint32_t n,
                          struct act (*resize)(struct walk *k, struct act x))
{
    for (uint32_t i = 0; i < n && !net_bad(k->r); i++) {
        size_t mark = net_enter(k->r, "%s.%u.", list, i);
        x = net_has(k->r, "resample.1") ? resize(k, x) : res_block(k, x);
        net_leave(k->r, mark);
    }
    return x;
}

/* ---- stages (Wan 2.2) ---- */

/* What a stage does to sides and frames: 1 or 2. */
struct factors {
    uint64_t side, time;
};

/* Members of a stage, as long as there are any. Takes x. */
static struct act stage_members(struct walk *k, struct act x, const char *list,
                                struct act (*resize)(struct walk *k, struct act x))
{
    struct net_run *r = k->r;
    for (uint32_t i = 0; i < VAE_WAN_BLOCKS_MAX && !net_bad(r); i++) {
        size_t mark = net_enter(r, "%s.%u.", list, i);
        const bool resizes = net_has(r, "resample.1"), there = resizes || net_has(r, "residual.2");
        if (there)
            x = resizes ? resize(k, x) : res_block(k, x);
        net_leave(r, mark);
        if (!there)
            break;
    }
    return x;
}

/* What such members would do to it. */
static struct factors stage_factors(struct walk *k, const char *list)
{
    struct factors f = { 1, 1 };
    for (uint32_t i = 0; i < VAE_WAN_BLOCKS_MAX; i++) {
        size_t mark = net_enter(k->r, "%s.%u.", list, i);
        const bool resizes = net_has(k->r, "resample.1");
        const bool there = resizes || net_has(k->r, "residual.2");
        if (resizes)
            f = (struct factors) { 2, net_has(k->r, "time_conv") ? 2 : 1 };
        net_leave(k->r, mark);
        if (!there)
            break;
    }
    return f;
}

/* As many frames of zeros in front as make them a multiple of `time`. A new act. */
static struct act pad_front(struct net_run *r, struct act x, uint64_t time)
{
    const uint64_t n = x.shape.dim[0], more = n ? (time - n % time) % time : 0;
    struct act zero = net_slice(r, x, 0, 0, more ? more : n);
    if (!more)
        return zero;
    net_add_scaled(r, &zero, net_rows(r, x, 0, more), -1.0f);
    const struct act both[] = { zero, x };
    struct act y = net_concat(r, both, 2, 0);
    net_drop(r, &zero);
    return y;
}

/* [frames, C, h, w] -> [frames / time, C * time * side^2, h / side, w / side], channel, frame, row,
 * column: a pixel's neighbours become its channels. Takes x. */
static struct act fold(struct net_run *r, struct act x, struct factors f)
{
    static const int order[] = { 0, 2, 1, 4, 6, 3, 5 };
    const uint64_t *d = x.shape.dim, F = d[0] / f.time, h = d[2] / f.side, w = d[3] / f.side;
    const struct shape apart = { 7, { F, f.time, d[1], h, f.side, w, f.side } };
    const struct shape made = { 4, { F, d[1] * f.time * f.side * f.side, h, w } };
    if (net_bad(r))
        return x;
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &made);
}

/* Sums of neighbouring channels, so many of them that C are left, and how many each is of. Takes
 * x. */
static struct act sum_channels(struct net_run *r, struct act x, uint64_t C, uint64_t *of)
{
    const uint64_t *d = x.shape.dim, n = C ? d[1] / C : 0;
    const struct shape apart = { 5, { d[0], C, n, d[2], d[3] } };
    const struct shape made = { 4, { d[0], C, d[2], d[3] } };
    *of = n ? n : 1;
    if (net_bad(r))
        return x;
    if (!n || d[1] % C) {
        net_fail(r, BERTH_EUNSUPPORTED, "%llu channels are no whole means of %llu",
                 (unsigned long long)C, (unsigned long long)d[1]);
        return x;
    }
    x = net_reshape(r, x, &apart);
    struct act sum = net_slice(r, x, 2, 0, 1);
    for (uint64_t i = 1; i < n && !net_bad(r); i++) {
        struct act one = net_slice(r, x, 2, i, i + 1);
        net_add(r, &sum, one);
        net_drop(r, &one);
    }
    net_drop(r, &x);
    return net_reshape(r, sum, &made);
}

/* A stage and, past it, means of what went in. Takes x. */
static struct act stage_down(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    const struct factors f = stage_factors(k, "downsamples");
    uint64_t of;
    struct act past = fold(r, pad_front(r, x, f.time), f);
    x = stage_members(k, x, "downsamples", shrink);
    past = sum_channels(r, past, x.shape.dim[1], &of);
    net_add_scaled(r, &x, past, 1.0f / (float)of);
    net_drop(r, &past);
    return x;
}

/* y, as [frames, time, C, h, side, w, side], gets x [frames, C * n, h, w] at one of its places: of
 * each C the channel that stands there. */
static void put_place(struct net_run *r, struct act x, uint64_t n, uint64_t channel, struct act y,
                      const uint64_t place[3])
{
    const uint64_t *d = x.shape.dim;
    const struct shape apart = { 5, { d[0], d[1] / n, n, d[2], d[3] } };
    const struct shape one = { 7, { d[0], 1, d[1] / n, d[2], 1, d[3], 1 } };
    struct act channels = net_reshape(r, x, &apart);
    struct act from = net_slice(r, channels, 2, channel, channel + 1);
    struct view to = net_part(r, net_view(&y), 1, place[0], place[0] + 1);
    to = net_part(r, net_part(r, to, 4, place[1], place[1] + 1), 6, place[2], place[2] + 1);
    from = net_reshape(r, from, &one);
    net_copy(r, net_view(&from), to);
    net_drop(r, &from);
}

/* x [frames, in, h, w] spread over C channels of larger pictures and more frames, each channel over
 * as many places; of a first piece the last frame alone. A new act. */
static struct act spread(struct walk *k, struct act x, uint64_t C, struct factors f)
{
    struct net_run *r = k->r;
    const uint64_t *d = x.shape.dim, first = k->first ? f.time - 1 : 0, time = f.time - first;
    const uint64_t places = f.time * f.side * f.side, n = C ? d[1] / C : 0;
    const struct shape apart = { 7, { d[0], time, C, d[2], f.side, d[3], f.side } };
    const struct shape made = { 4, { d[0] * time, C, d[2] * f.side, d[3] * f.side } };
    if (net_bad(r))
        return (struct act) { .addr = 0 };
    if (!n || d[1] % C || places % n) {
        net_fail(r, BERTH_EUNSUPPORTED, "%llu channels are not spread over %llu",
                 (unsigned long long)d[1], (unsigned long long)C);
        return (struct act) { .addr = 0 };
    }
    struct act y = net_new(r, &apart);
    for (uint64_t p = first * f.side * f.side; p < places && !net_bad(r); p++) {
        const uint64_t place[3] = { p / (f.side * f.side) - first, p / f.side % f.side,
                                    p % f.side };
        put_place(r, x, n, p * n / places, y, place);
    }
    return net_reshape(r, y, &made);
}

/* A stage and, past it, what went in, spread; the last one has nothing past it. Takes x. */
static struct act stage_up(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    const struct factors f = stage_factors(k, "upsamples");
    if (f.side == 1)
        return stage_members(k, x, "upsamples", grow);
    struct act in = net_slice(r, x, 0, 0, x.shape.dim[0]);
    x = stage_members(k, x, "upsamples", grow);
    struct act past = spread(k, in, x.shape.dim[1], f);
    net_drop(r, &in);
    net_add(r, &x, past);
    net_drop(r, &past);
    return x;
}

/* A half's list of stages. Takes x. */
static struct act stages(struct walk *k, struct act x, const char *list, uint32_t n,
                         struct act (*stage)(struct walk *k, struct act x))
{
    for (uint32_t i = 0; i < n && !net_bad(k->r); i++) {
        size_t mark = net_enter(k->r, "%s.%u.", list, i);
        x = stage(k, x);
        net_leave(k->r, mark);
    }
    return x;
}

/* Pixels as channels, a column's before a row's; and back. Both take x. */
static struct act fold_pixels(struct net_run *r, struct act x)
{
    static const int order[] = { 0, 1, 5, 3, 2, 4 };
    const uint64_t *d = x.shape.dim, q = VAE_WAN_FOLD;
    const struct shape apart = { 6, { d[0], d[1], d[2] / q, q, d[3] / q, q } };
    const struct shape made = { 4, { d[0], d[1] * q * q, d[2] / q, d[3] / q } };
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &made);
}

static struct act unfold_pixels(struct net_run *r, struct act x)
{
    static const int order[] = { 0, 1, 4, 3, 5, 2 };
    const uint64_t *d = x.shape.dim, q = VAE_WAN_FOLD;
    const struct shape apart = { 6, { d[0], d[1] / (q * q), q, q, d[2], d[3] } };
    const struct shape made = { 4, { d[0], d[1] / (q * q), d[2] * q, d[3] * q } };
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &made);
}

/* ---- halves ---- */

static struct act head(struct walk *k, struct act x)
{
    net_channel_norm_in_place(k->r, &x, "head.0", EPS, true);
    return conv_whole(k, x, "head.2");
}

/* ---- pieces ---- */

static struct act decode_piece(struct walk *k, const struct vae_wan *v, struct act z)
{
    struct act x = net_conv3d(k->r, z, "conv2", over_time);
    size_t top = net_enter(k->r, "decoder.");
    x = conv_whole(k, x, "conv1");
    x = middle(k, x);
    x = v->stages ? stages(k, x, "upsamples", v->dec_blocks, stage_up)
                  : members(k, x, "upsamples", v->dec_blocks, grow);
    x = head(k, x);
    net_leave(k->r, top);
    return v->stages ? unfold_pixels(k->r, x) : x;
}

static struct act encode_piece(struct walk *k, const struct vae_wan *v, uint32_t latents,
                               struct act pictures)
{
    struct net_run *r = k->r;
    size_t top = net_enter(r, "encoder.");
    struct act in =
        v->stages ? fold_pixels(r, net_slice(r, pictures, 0, 0, pictures.shape.dim[0])) : pictures;
    struct act x = conv(k, in, "conv1", (struct net_frames) { .plane = NET_PAD1 }, NULL);
    if (v->stages)
        net_drop(r, &in);
    x = v->stages ? stages(k, x, "downsamples", v->enc_blocks, stage_down)
                  : members(k, x, "downsamples", v->enc_blocks, shrink);
    x = middle(k, x);
    x = head(k, x);
    net_leave(r, top);
    x = conv_point(r, x, "conv1");                    /* [frames, 2 * latents, h, w] */
    struct act mean = net_slice(r, x, 1, 0, latents); /* the log variance is not used */
    net_drop(r, &x);
    return mean;
}

/* Frames at .. at + n [n, C, h, w] of what comes in as [1, C, frames, h, w]. */
static struct act frames_in(struct net_run *r, const struct vae_pass *p, uint64_t at, uint64_t n)
{
    const uint64_t *d = p->shape.dim, hw = d[3] * d[4], C = d[1];
    const struct shape plane = { 4, { n, 1, d[3], d[4] } }, all = { 4, { n, C, d[3], d[4] } };
    if (d[2] == 1)
        return net_input(r, &all, p->in);
    struct act x = net_new(r, &all);
    for (uint64_t c = 0; c < C && !net_bad(r); c++) {
        struct act one = net_input(r, &plane, p->in ? p->in + (c * d[2] + at) * hw : NULL);
        net_copy(r, net_view(&one), net_part(r, net_view(&x), 1, c, c + 1));
        net_drop(r, &one);
    }
    return x;
}

/* Frames of a piece to their places, behind `done` of those that are made in all. Takes x. */
static void frames_out(struct net_run *r, struct act x, const char *what, uint64_t done,
                       const struct shape *made, float *out)
{
    const uint64_t hw = made->dim[3] * made->dim[4];
    for (uint64_t c = 0; made->dim[2] > 1 && c < made->dim[1] && !net_bad(r); c++) {
        struct act one = net_slice(r, x, 1, c, c + 1);
        net_finite(r, one, what);
        net_output(r, one, out ? out + (c * made->dim[2] + done) * hw : NULL);
        net_drop(r, &one);
    }
    if (made->dim[2] == 1) {
        net_finite(r, x, what);
        net_output(r, x, out);
    }
    net_drop(r, &x);
}

/* Memory is that of a piece, however long the video is. */
static void run(struct net_run *r, const struct vae_pass *p, bool decode)
{
    const char *what = decode ? "the decoded picture" : "the encoded latent";
    const struct vae_wan *v = vae_wan_in(p->vae);
    const struct shape made =
        decode ? vae_decoded(p->vae, &p->shape) : vae_encoded(p->vae, &p->shape);
    const uint64_t frames = p->shape.dim[2], later = decode ? 1 : p->vae->latent.time_ratio;
    struct walk k = { .r = r };
    for (uint64_t at = 0, n, done = 0; at < frames && !net_bad(r); at += n) {
        n = at ? later : FIRST_PIECE;
        k.first = at == 0;
        k.last = at + n >= frames;
        k.at = 0;
        struct act piece = frames_in(r, p, at, n);
        struct act x = decode ? decode_piece(&k, v, piece)
                              : encode_piece(&k, v, p->vae->latent.channels, piece);
        net_drop(r, &piece);
        const uint64_t some = net_bad(r) ? 0 : x.shape.dim[0];
        frames_out(r, x, what, done, &made, p->out);
        done += some;
    }
}

void vae_wan_decode(struct net_run *r, void *user)
{
    run(r, user, true);
}

void vae_wan_encode(struct net_run *r, void *user)
{
    run(r, user, false);
}
