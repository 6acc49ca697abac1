/* The two forward passes of LTX-Video's VAE, over pieces of a video one after the other.
 *
 * A layer may have nothing to give for a piece, because it waits for the next one: then it is given
 * and gives an empty act, and all layers behind it do nothing. */
#include "model/vae_ltxv/vae_ltxv.h"

#define EPS 1e-8f
#define EPS_NORM 1e-6f

#define SLOTS_MAX 512 /* of a half: what layers keep from piece to piece */
#define REMEMBERED 2  /* frames: what a filter over three looks back at */
#define LATENTS 2     /* of the decoder's pieces */

struct slot {          /* of a layer */
    struct act before; /* frames it looked at last */
    struct act waits;  /* what is to be added to results that are not there yet */
    bool began;
};

struct walk { /* through one piece */
    struct net_run *r;
    const struct vae_ltxv *v;
    enum net_outside space;
    bool late; /* convolutions look one frame ahead */
    bool last; /* of the frames that come to a layer */
    size_t at; /* in slot */
    struct slot slot[SLOTS_MAX];
    const float *noise; /* of blocks, one after the other; NULL: none, or dry */
    size_t used;        /* of it, before the block that is next */
    uint64_t h, w;      /* of frames, where it is */
    struct act all;     /* what is decoded, [3, frames, H, W] */
    uint64_t done;      /* frames of it */
    uint64_t some;      /* latent frames that layers hold at a time, about */
};

static const struct act none = { .addr = 0 };
static const int32_t table_rows[] = { 0, 1, 2, 3 }; /* to look up */

static uint64_t frames(struct act x)
{
    return x.shape.ndim ? x.shape.dim[0] : 0;
}

static struct slot *take_slot(struct walk *k)
{
    if (k->at == SLOTS_MAX)
        net_fail(k->r, BERTH_ELIMIT, "more than %d layers over frames", SLOTS_MAX);
    return &k->slot[k->at < SLOTS_MAX ? k->at++ : 0];
}

/* ---- frames ---- */

/* Both behind each other; takes a. */
static struct act behind(struct net_run *r, struct act a, struct act b)
{
    if (!frames(a) || !frames(b))
        return frames(a) ? a : frames(b) ? net_slice(r, b, 0, 0, frames(b)) : none;
    const struct act both[] = { a, b };
    struct act y = net_concat(r, both, 2, 0);
    net_drop(r, &a);
    return y;
}

/* The last ones of `before` (taken) and x. */
static struct act remembered(struct net_run *r, struct act before, struct act x)
{
    const uint64_t n = frames(x), had = frames(before);
    struct act y;
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

/* All but the first frame; takes x. */
static struct act without_first(struct net_run *r, struct act x)
{
    const uint64_t n = frames(x);
    struct act y = n > 1 ? net_slice(r, x, 0, 1, n) : none;
    net_drop(r, &x);
    return y;
}

/* ---- convolutions ---- */

/* Behind the frames it saw before. Takes x. */
static struct act conv(struct walk *k, struct slot *s, struct act x, const char *layer,
                       struct net_frames f)
{
    f.before = s->before;
    f.time = NET_EDGE;
    f.space = k->space;
    struct act y = net_conv3d(k->r, x, layer, f);
    s->before = k->last ? (net_drop(k->r, &s->before), none) : remembered(k->r, s->before, x);
    net_drop(k->r, &x);
    return y;
}

/* Of three frames around each: those of the next one's are given when that is there. Takes x. */
static struct act around(struct walk *k, struct act x, const char *layer)
{
    struct net_run *r = k->r;
    struct slot *s = take_slot(k);
    if (k->late && k->last && (frames(x) || frames(s->before))) { /* the last one goes on */
        const struct act from = frames(x) ? x : s->before;
        x = behind(r, x, net_rows(r, from, frames(from) - 1, frames(from)));
    }
    if (!frames(x) || net_bad(r))
        return none;
    const bool first = k->late && !s->began;
    s->began = true;
    struct act y = conv(k, s, x, layer, (struct net_frames) { .plane = NET_PAD1 });
    return first ? without_first(r, y) : y;
}

/* x, so many frames of it as there are results; the rest waits. Takes x. */
static struct act in_step(struct walk *k, struct slot *s, struct act x, uint64_t n)
{
    struct net_run *r = k->r;
    struct act all = behind(r, s->waits, x);
    net_drop(r, &x);
    const uint64_t have = frames(all);
    s->waits = none;
    if (net_bad(r))
        return none;
    if (n > have) {
        net_fail(r, BERTH_EINVAL, "%d frames to add to %d", (int)have, (int)n);
        return none;
    }
    if (n == have)
        return all;
    s->waits = net_slice(r, all, 0, n, have);
    struct act some = n ? net_slice(r, all, 0, 0, n) : none;
    net_drop(r, &all);
    return some;
}

/* ---- blocks ---- */

struct level { /* how a block is told the noise level: [4, C], or nothing */
    struct act table;
};

static struct act row_of(struct net_run *r, const struct level *l, uint64_t i)
{
    return l->table.shape.ndim ? net_rows(r, l->table, i, i + 1) : none;
}

/* silu(norm(x)), with rows `shift` and the one behind it of the level. */
static void norm(struct net_run *r, struct act *x, const struct level *l, uint64_t shift)
{
    net_channel_modulate(r, x, row_of(r, l, shift + 1), row_of(r, l, shift), EPS, true);
}

/* The same noise over every frame, as much of it as each channel wants. */
static void add_noise(struct walk *k, struct act x, const char *factors)
{
    struct net_run *r = k->r;
    if (net_bad(r) || !net_has(r, factors))
        return;
    const float *mine = k->noise ? k->noise + k->used : NULL;
    k->used += (size_t)(k->h * k->w);
    if (!frames(x))
        return;
    const uint64_t C = x.shape.dim[1];
    const struct shape column = { 2, { C, 1 } }, picture = { 4, { 1, C, k->h, k->w } };
    struct act each = net_param(r, factors);
    struct act n = net_linear_given(r, net_reshape(r, each, &column), mine, NULL, k->h * k->w);
    net_drop(r, &each);
    net_add(r, &x, net_reshape(r, n, &picture));
    net_drop(r, &n);
}

/* table: the embedded level of all blocks like this one; empty: they know none. */
static struct level level_of(struct net_run *r, struct act all)
{
    struct level l = { none };
    if (!all.shape.ndim)
        return l;
    struct act own = net_embedding(r, table_rows, 4, "scale_shift_table");
    if (net_bad(r))
        return l;
    struct act same = net_reshape(r, all, &own.shape);
    net_add(r, &own, same);
    l.table = own;
    return l;
}

/* Takes x [frames, C, h, w]. */
static struct act res_block(struct walk *k, struct act x, struct act time)
{
    struct net_run *r = k->r;
    const bool any = frames(x) > 0;
    struct level l = any || k->last ? level_of(r, time) : (struct level) { none };
    struct act a = any ? net_slice(r, x, 0, 0, frames(x)) : none;
    if (any)
        norm(r, &a, &l, 0);
    a = around(k, a, "conv1.conv");
    add_noise(k, a, "per_channel_scale1");
    if (frames(a))
        norm(r, &a, &l, 2);
    a = around(k, a, "conv2.conv");
    add_noise(k, a, "per_channel_scale2");
    net_drop(r, &l.table);
    struct act skip = in_step(k, take_slot(k), x, frames(a));
    if (frames(a))
        net_add(r, &a, skip);
    net_drop(r, &skip);
    return a;
}

/* One with another number of channels: what is added is normed, and brought to as many. */
static struct act wider_block(struct walk *k, struct act x)
{
    static const int last[] = { 0, 2, 1 };
    static const struct net_frames point = { .plane = NET_1X1 };
    struct net_run *r = k->r;
    const struct level unknown = { none };
    struct act a = frames(x) ? net_slice(r, x, 0, 0, frames(x)) : none;
    if (frames(a))
        norm(r, &a, &unknown, 0);
    a = around(k, a, "conv1.conv");
    if (frames(a))
        norm(r, &a, &unknown, 0);
    a = around(k, a, "conv2.conv");
    struct act skip = in_step(k, take_slot(k), x, frames(a));
    if (frames(a) && net_has(r, "conv_shortcut")) {
        const struct shape s = skip.shape;
        const struct shape flat = { 3, { s.dim[0], s.dim[1], s.dim[2] * s.dim[3] } };
        struct act rows = net_permute(r, net_reshape(r, skip, &flat), last);
        net_drop(r, &skip);
        struct act n = net_layer_norm(r, rows, "norm3.norm", EPS_NORM);
        net_drop(r, &rows);
        rows = net_reshape(r, net_permute(r, n, last), &s);
        net_drop(r, &n);
        skip = net_conv3d(r, rows, "conv_shortcut", point);
        net_drop(r, &rows);
    }
    if (frames(a))
        net_add(r, &a, skip);
    net_drop(r, &skip);
    return a;
}

/* ---- changes of size ---- */

static uint64_t steps(uint8_t kind, uint8_t bit)
{
    return kind & bit ? 2 : 1;
}

/* Pixels and frames of a cell become channels, those of one behind each other. Takes x. */
static struct act to_cells(struct net_run *r, struct act x, uint64_t t, uint64_t s)
{
    const uint64_t *d = x.shape.dim;
    if (net_bad(r) || !frames(x))
        return x;
    const struct shape apart = { 7, { d[0] / t, t, d[1], d[2] / s, s, d[3] / s, s } };
    const struct shape cells = { 4, { d[0] / t, d[1] * t * s * s, d[2] / s, d[3] / s } };
    /* [F, t, C, h, s, w, s] -> [F, C, t, s, s, h, w] */
    static const int to[] = { 0, 2, 1, 4, 6, 3, 5 };
    struct act y = net_reshape(r, net_permute(r, net_reshape(r, x, &apart), to), &cells);
    net_drop(r, &x);
    return y;
}

/* The way back. Takes x. */
static struct act from_cells(struct net_run *r, struct act x, uint64_t t, uint64_t s)
{
    const uint64_t *d = x.shape.dim;
    if (net_bad(r) || !frames(x))
        return x;
    const uint64_t C = d[1] / (t * s * s);
    const struct shape apart = { 7, { d[0], C, t, s, s, d[2], d[3] } };
    const struct shape pixels = { 4, { d[0] * t, C, d[2] * s, d[3] * s } };
    static const int to[] = { 0, 2, 1, 5, 3, 6, 4 }; /* [F, t, C, h, s, w, s] */
    struct act y = net_reshape(r, net_permute(r, net_reshape(r, x, &apart), to), &pixels);
    net_drop(r, &x);
    return y;
}

/* y += the mean of each of its channels' neighbours in x, which has n times as many. Takes x. */
static void add_means(struct net_run *r, struct act *y, struct act x)
{
    static const int groups_first[] = { 2, 0, 1, 3 };
    if (net_bad(r))
        return;
    const uint64_t *d = y->shape.dim, n = x.shape.dim[1] / d[1];
    const struct shape apart = { 4, { d[0], d[1], n, d[2] * d[3] } };
    struct act g = net_permute(r, net_reshape(r, x, &apart), groups_first);
    net_drop(r, &x);
    for (uint64_t i = 0; i < n && !net_bad(r); i++) {
        struct act one = net_reshape(r, net_rows(r, g, i, i + 1), &y->shape);
        net_add_scaled(r, y, one, 1.0f / (float)n);
    }
    net_drop(r, &g);
}

/* As many copies of its channels behind each other as make up y's, added to those. Takes x. */
static void add_repeated(struct net_run *r, struct act *y, struct act x)
{
    struct act many[VAE_LTXV_PATCH * 2];
    if (net_bad(r))
        return;
    const uint64_t n = y->shape.dim[1] / x.shape.dim[1];
    if (!n || n > ARRAY_LEN(many) || y->shape.dim[1] % x.shape.dim[1])
        net_fail(r, BERTH_EINVAL, "channels to add");
    for (uint64_t i = 0; i < n && !net_bad(r); i++)
        many[i] = x;
    if (!net_bad(r)) {
        struct act all = net_concat(r, many, n, 1);
        net_add(r, y, all);
        net_drop(r, &all);
    }
    net_drop(r, &x);
}

static struct act shrink(struct walk *k, struct act x, uint8_t kind)
{
    struct net_run *r = k->r;
    const uint64_t t = steps(kind, VAE_LTXV_TIME), s = steps(kind, VAE_LTXV_SPACE);
    struct slot *slot = take_slot(k);
    const bool first = !slot->began;
    slot->began = true;
    if ((kind & 3) == VAE_LTXV_STRIDED) {
        struct net_conv plane = NET_PAD1;
        plane.stride = (uint32_t)s;
        return conv(
            k, slot, x, "conv",
            (struct net_frames) { .plane = plane, .step = (uint32_t)t, .from_first = first });
    }
    if (first && t > 1) { /* the first frame is there twice */
        struct act one = net_slice(r, x, 0, 0, 1), two = behind(r, one, x);
        net_drop(r, &x);
        x = two;
    }
    struct act copy = net_slice(r, x, 0, 0, frames(x));
    struct act y = conv(k, slot, x, "conv.conv", (struct net_frames) { .plane = NET_PAD1 });
    y = to_cells(r, y, t, s);
    add_means(r, &y, to_cells(r, copy, t, s));
    return y;
}

static struct act grow(struct walk *k, struct act x, uint8_t kind)
{
    struct net_run *r = k->r;
    const uint64_t t = steps(kind, VAE_LTXV_TIME), s = steps(kind, VAE_LTXV_SPACE);
    const bool beside = (kind & 3) == VAE_LTXV_FOLDED;
    struct slot *slot = take_slot(k);
    struct act copy = beside && frames(x) ? net_slice(r, x, 0, 0, frames(x)) : none;
    struct act y = around(k, x, "conv.conv");
    const uint64_t n = frames(y);
    const bool first = t > 1 && n && !slot->began; /* of the first frame there is but one */
    slot->began = slot->began || n;
    y = from_cells(r, y, t, s);
    if (first)
        y = without_first(r, y);
    if (!beside)
        return y;
    copy = from_cells(r, in_step(k, slot, copy, n), t, s);
    if (first)
        copy = without_first(r, copy);
    if (frames(y))
        add_repeated(r, &y, copy);
    else
        net_drop(r, &copy);
    return y;
}

/* The level that blocks of a list's member are told, [1, 4C]; empty: they know none. */
static struct act embed_time(struct walk *k, const char *embedder)
{
    struct net_run *r = k->r;
    if (!k->v->timed)
        return none;
    size_t mark = net_enter(r, "%s.timestep_embedder.", embedder);
    struct act a = net_timestep(r, &k->v->time, 1, VAE_LTXV_TIME_WIDTH);
    struct act h = net_linear(r, a, "linear_1");
    net_drop(r, &a);
    net_unary(r, &h, OP_SILU);
    struct act y = net_linear(r, h, "linear_2");
    net_drop(r, &h);
    net_leave(r, mark);
    return y;
}

static struct act res_group(struct walk *k, struct act x, const char *list, uint32_t n, bool timed)
{
    struct net_run *r = k->r;
    size_t mark = net_enter(r, "%s.%u.", list, n);
    struct act time = timed ? embed_time(k, "time_embedder") : none;
    for (uint32_t i = 0; !net_bad(r); i++) {
        size_t inner = net_enter(r, "res_blocks.%u.", i);
        const bool there = net_has(r, "conv1.conv");
        if (there)
            x = res_block(k, x, time);
        net_leave(r, inner);
        if (!there)
            break;
    }
    net_drop(r, &time);
    net_leave(r, mark);
    return x;
}

static struct act member(struct walk *k, struct act x, uint32_t i, bool up)
{
    const uint8_t kind = up ? k->v->dec[i] : k->v->enc[i];
    const char *list = up ? "up_blocks" : "down_blocks";
    if (kind == VAE_LTXV_RES)
        return res_group(k, x, list, i, up);
    size_t mark = net_enter(k->r, "%s.%u.", list, i);
    x = kind == VAE_LTXV_WIDER ? wider_block(k, x) : up ? grow(k, x, kind) : shrink(k, x, kind);
    net_leave(k->r, mark);
    return x;
}

/* ---- pieces ---- */

/* Where member i of the decoder's list has its slots; noise that is used, and sides, before it. */
static void go_to(struct walk *k, uint32_t i, uint64_t h, uint64_t w)
{
    enum { OF_BLOCK = 3, OF_GROWTH = 2 };
    k->at = 1; /* the way in has the first */
    k->used = 0;
    k->h = h;
    k->w = w;
    for (uint32_t n = 0; n < i; n++) {
        const uint8_t kind = k->v->dec[n];
        const uint64_t s = steps(kind, VAE_LTXV_SPACE);
        k->at += kind == VAE_LTXV_RES     ? (size_t)OF_BLOCK * k->v->dec_blocks[n]
                 : kind == VAE_LTXV_WIDER ? OF_BLOCK
                                          : OF_GROWTH;
        if (kind == VAE_LTXV_RES)
            k->used += 2 * (size_t)(k->h * k->w) * k->v->dec_blocks[n];
        k->h *= s;
        k->w *= s;
    }
}

static void put_pictures(struct net_run *r, struct act x, uint64_t at, struct act all);

/* Behind the last member. Takes x. */
static void way_out(struct walk *k, struct act x)
{
    struct net_run *r = k->r;
    struct level last = { embed_time(k, "last_time_embedder") };
    if (k->v->timed) {
        struct act own = net_embedding(r, table_rows, 2, "last_scale_shift_table");
        if (!net_bad(r))
            net_add(r, &own, net_reshape(r, last.table, &own.shape));
        net_drop(r, &last.table);
        last.table = own;
    }
    if (frames(x))
        norm(r, &x, &last, 0);
    net_drop(r, &last.table);
    x = around(k, x, "conv_out.conv");
    const uint64_t n = frames(x);
    if (n)
        put_pictures(r, x, k->done, k->all);
    k->done += n;
}

/* x through member i and all behind it, a few frames at a time. Takes x. */
static void push(struct walk *k, struct act x, uint32_t i, uint64_t h, uint64_t w, bool last)
{
    struct net_run *r = k->r;
    go_to(k, i, h, w);
    k->last = last;
    if (i == k->v->decs) {
        way_out(k, x);
        return;
    }
    x = member(k, x, i, true);
    const uint64_t n = frames(x);
    uint64_t most = k->some;
    for (uint32_t m = 0; m <= i; m++)
        most *= steps(k->v->dec[m], VAE_LTXV_TIME);
    if (n <= most) {
        if (n || last)
            push(k, x, i + 1, h, w, last);
        return;
    }
    for (uint64_t at = 0; at < n && !net_bad(r); at += most) {
        const uint64_t to = n - at < most ? n : at + most;
        push(k, net_slice(r, x, 0, at, to), i + 1, h, w, last && to == n);
    }
    net_drop(r, &x);
}

static struct act encode_piece(struct walk *k, struct act x, uint32_t latents)
{
    struct net_run *r = k->r;
    const struct level unknown = { none };
    size_t mark = net_enter(r, "encoder.");
    x = around(k, x, "conv_in.conv");
    for (uint32_t i = 0; i < k->v->encs && !net_bad(r); i++)
        x = member(k, x, i, false);
    norm(r, &x, &unknown, 0);
    x = around(k, x, "conv_out.conv");
    net_leave(r, mark);
    struct act mean = net_slice(r, x, 1, 0, latents); /* the variance is not used */
    net_drop(r, &x);
    return mean;
}

/* ---- pictures, latents ---- */

/* Cells of 4 x 4 pixels as channels: colour, column, row. Takes x [F, 3, H, W]. */
static struct act patches(struct net_run *r, struct act x)
{
    static const int to[] = { 0, 1, 5, 3, 2, 4 };
    const uint64_t p = VAE_LTXV_PATCH, *d = x.shape.dim;
    if (net_bad(r))
        return x;
    const struct shape apart = { 6, { d[0], d[1], d[2] / p, p, d[3] / p, p } };
    const struct shape cells = { 4, { d[0], d[1] * p * p, d[2] / p, d[3] / p } };
    struct act y = net_reshape(r, net_permute(r, net_reshape(r, x, &apart), to), &cells);
    net_drop(r, &x);
    return y;
}

/* To their places in `all` [3, F, H, W], from frame `at` on. Takes x [f, 48, h, w]. */
static void put_pictures(struct net_run *r, struct act x, uint64_t at, struct act all)
{
    static const int to[] = { 1, 0, 4, 3, 5, 2 }; /* colour, frame, h, row, w, column */
    const uint64_t p = VAE_LTXV_PATCH, *d = x.shape.dim;
    if (net_bad(r))
        return;
    const struct shape apart = { 6, { d[0], d[1] / (p * p), p, p, d[2], d[3] } };
    const struct shape pictures = { 4, { d[1] / (p * p), d[0], d[2] * p, d[3] * p } };
    const uint64_t n = d[0];
    struct act y = net_reshape(r, net_permute(r, net_reshape(r, x, &apart), to), &pictures);
    net_drop(r, &x);
    net_copy(r, net_view(&y), net_part(r, net_view(&all), 1, at, at + n));
    net_drop(r, &y);
}

/* Latents as the networks have them, and back: the statistics are the file's. [C, n], of which the
 * last two columns are deviation and mean. */
static void normalize(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                      const void *user)
{
    const size_t C = (size_t)ys->dim[0], n = (size_t)ys->dim[1], row = (size_t)xs->dim[1];
    (void)user;
    for (size_t c = 0; c < C; c++)
        for (size_t i = 0; i < n; i++)
            y[c * n + i] = (x[c * row + i] - x[c * row + n + 1]) / x[c * row + n];
}

static void unnormalize(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                        const void *user)
{
    const size_t C = (size_t)ys->dim[0], n = (size_t)ys->dim[1], row = (size_t)xs->dim[1];
    (void)user;
    for (size_t c = 0; c < C; c++)
        for (size_t i = 0; i < n; i++)
            y[c * n + i] = x[c * row + i] * x[c * row + n] + x[c * row + n + 1];
}

/* x [C, ...] as fn makes it; takes x. */
static struct act with_statistics(struct net_run *r, struct act x, net_host_fn *fn)
{
    uint64_t n;
    if (net_bad(r) || !shape_count(&x.shape, &n))
        return x;
    const struct shape was = x.shape, flat = { 2, { was.dim[0], n / was.dim[0] } };
    const struct shape column = { 2, { was.dim[0], 1 } };
    struct act by = net_param(r, "per_channel_statistics.std-of-means");
    struct act plus = net_param(r, "per_channel_statistics.mean-of-means");
    const struct act parts[] = { net_reshape(r, x, &flat), net_reshape(r, by, &column),
                                 net_reshape(r, plus, &column) };
    struct act all = net_concat(r, parts, 3, 1);
    net_drop(r, &x);
    net_drop(r, &by);
    net_drop(r, &plus);
    struct act y = net_host(r, all, &flat, fn, NULL);
    net_drop(r, &all);
    return net_reshape(r, y, &was);
}

/* [C, F, h, w] to [F, C, h, w], or back. Takes x. */
static struct act turned(struct net_run *r, struct act x)
{
    static const int swap[] = { 1, 0, 2, 3 };
    struct act y = net_permute(r, x, swap);
    net_drop(r, &x);
    return y;
}

/* The latents with a little noise. */
static struct act latents_in(struct net_run *r, const struct vae_pass *p, float noise)
{
    const uint64_t *d = p->shape.dim;
    const struct shape planes = { 4, { d[1], d[2], d[3], d[4] } };
    struct act z = net_input(r, &planes, p->in);
    if (noise > 0) {
        struct act n = net_input(r, &planes, p->noise);
        net_add_scaled(r, &z, z, -noise);
        net_add_scaled(r, &z, n, noise);
        net_drop(r, &n);
    }
    return turned(r, with_statistics(r, z, unnormalize));
}

static void give(struct net_run *r, struct act all, const char *what, float *out)
{
    net_finite(r, all, what);
    net_output(r, all, out);
    net_drop(r, &all);
}

static void end(struct walk *k)
{
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        net_drop(k->r, &k->slot[i].before);
        net_drop(k->r, &k->slot[i].waits);
    }
}

static void decode(struct net_run *r, const struct vae_pass *p, struct walk *k)
{
    const struct vae_ltxv *v = vae_ltxv_in(p->vae);
    const uint64_t T = p->shape.dim[2], h = p->shape.dim[3], w = p->shape.dim[4];
    const struct shape made = vae_decoded(p->vae, &p->shape);
    const struct shape planes = { 4, { made.dim[1], made.dim[2], made.dim[3], made.dim[4] } };
    struct act in = latents_in(r, p, v->timed ? v->noise : 0);
    size_t mark = net_enter(r, "decoder.");
    if (v->timed) { /* part of v->time already, which the host has */
        struct act by = net_param(r, "timestep_scale_multiplier");
        net_drop(r, &by);
    }
    k->space = (enum net_outside)v->space;
    k->late = !v->causal;
    k->noise = p->noise ? p->noise + (size_t)shape_inner(&p->shape, 0) : NULL;
    k->some = net_thrifty(r) ? 1 : LATENTS;
    k->all = net_new(r, &planes);
    for (uint64_t at = 0, n; at < T && !net_bad(r); at += n) {
        n = T - at < k->some ? T - at : k->some;
        k->at = 0;
        k->last = at + n == T;
        const bool last = k->last;
        struct act x = around(k, net_slice(r, in, 0, at, at + n), "conv_in.conv");
        if (frames(x) || last)
            push(k, x, 0, h, w, last);
    }
    if (!net_bad(r) && k->done != planes.dim[1])
        net_fail(r, BERTH_EINVAL, "%d frames of %d", (int)k->done, (int)planes.dim[1]);
    net_leave(r, mark);
    net_drop(r, &in);
    end(k);
    give(r, k->all, "the decoded video", p->out);
}

/* Pictures that fill no latent frame are left out. */
static void encode(struct net_run *r, const struct vae_pass *p, struct walk *k)
{
    const struct vae_ltxv *v = vae_ltxv_in(p->vae);
    const struct shape made = vae_encoded(p->vae, &p->shape);
    const uint64_t *d = p->shape.dim, latents = made.dim[2];
    const struct shape planes = { 4, { d[1], d[2], d[3], d[4] } };
    const struct shape whole = { 4, { latents, made.dim[1], made.dim[3], made.dim[4] } };
    struct act in = net_input(r, &planes, p->in), all = net_new(r, &whole);
    k->space = (enum net_outside)v->enc_space;
    const uint64_t each = p->vae->latent.time_ratio;
    for (uint64_t at = 0, i = 0, n; i < latents && !net_bad(r); at += n, i++) {
        n = i ? each : 1;
        k->last = i + 1 == latents;
        k->at = 0;
        struct act piece = turned(r, net_slice(r, in, 1, at, at + n));
        struct act z = encode_piece(k, patches(r, piece), p->vae->latent.channels);
        net_copy(r, net_view(&z), net_part(r, net_view(&all), 0, i, i + 1));
        net_drop(r, &z);
    }
    net_drop(r, &in);
    end(k);
    all = with_statistics(r, turned(r, all), normalize);
    give(r, all, "the encoded latent", p->out);
}

void vae_ltxv_decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    struct walk k = { .r = r, .v = vae_ltxv_in(p->vae) };
    decode(r, p, &k);
}

void vae_ltxv_encode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    struct walk k = { .r = r, .v = vae_ltxv_in(p->vae) };
    encode(r, p, &k);
}

/* Of the latents, and twice for every block that wants some. */
size_t vae_ltxv_noise(const struct vae_net *vae, const struct shape *latents)
{
    const struct vae_ltxv *v = vae_ltxv_in(vae);
    uint64_t n = shape_inner(latents, 0), each = latents->dim[3] * latents->dim[4];
    if (!v->timed)
        return 0;
    for (uint32_t i = 0; v->noisy && i < v->decs; i++) {
        n += 2 * each * v->dec_blocks[i];
        each *= v->dec[i] & VAE_LTXV_SPACE ? 4 : 1;
    }
    return (size_t)n;
}
