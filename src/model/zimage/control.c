/* Networks that steer Z-Image by a picture: Fun-Control's (z-image.md 8).
 *
 * One has blocks like the transformer's and runs beside it on the tokens of a picture of edges,
 * depths, poses. What it makes of the transformer's own tokens goes on from block to block by
 * itself; each block's result is added to the transformer's tokens after some of its layers. */
#include "model/zimage/zimage_impl.h"

#include "base/sz.h"
#include "model/arch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EMBEDDER "control_all_x_embedder.2-1"
#define ITEMS_MAX 16     /* latents of a steered batch */
#define BROKEN_LAYERS 15 /* of the files whose refiners were never trained */
#define SPREAD 30.0      /* layers that a network's blocks are spread over: those of Z-Image */

/* ---- config ---- */

struct control {           /* family_control.own */
    struct zimage_net net; /* first: names are read with it. What its blocks look like */
    uint64_t channels;     /* of the picture: latents; with them a mask and what is to stay */
    uint32_t layers, refiners;
    uint32_t every;    /* its block j is for layer j * every */
    bool steers_early; /* its refiners give something, too */
    bool broken;       /* they were never trained: its layers stand in for them */
};

static bool control_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, EMBEDDER ".weight") != NULL;
}

/* Is every value of it 0? Only asked of a file that could be one of the broken ones. */
static berth_status find_zero(const struct weights *w, const struct weights_entry *e, bool *out,
                              berth_err *err)
{
    uint8_t piece[4096];
    *out = true;
    for (uint64_t at = 0; *out && at < e->size; at += sizeof piece) {
        size_t n = e->size - at < sizeof piece ? (size_t)(e->size - at) : sizeof piece;
        if (weights_read(w, e, at, piece, n, err))
            return err->code;
        for (size_t i = 0; i < n; i++)
            *out = *out && !piece[i];
    }
    return BERTH_OK;
}

static berth_status control_config(const struct weights *w, const char *root,
                                   const struct family_config *cfg, void *own, berth_err *err)
{
    struct control *c = own;
    const struct zimage_net *f = cfg->own; /* of the family: its first member */
    const struct weights_entry *in = arch_find(w, root, EMBEDDER ".weight");
    const struct weights_entry *up = arch_find(w, root, "control_layers.0.feed_forward.w1.weight");
    const struct weights_entry *after =
        arch_find(w, root, "control_noise_refiner.0.after_proj.weight");
    const uint64_t pixels = ZIMAGE_PATCH * ZIMAGE_PATCH;
    *c = (struct control) { .net = *f, .layers = arch_layers(w, root, "control_layers") };
    c->net.diffusers = arch_find(w, root, "control_layers.0.attention.to_q.weight") != NULL;
    c->net.ffn = arch_dim(up, 0);
    c->channels = arch_dim(in, 1) / pixels;
    c->refiners = arch_layers(w, root, "control_noise_refiner");
    c->steers_early = after != NULL;
    if (f->lumina)
        return err_set(err, BERTH_EUNSUPPORTED, "a control network of Z-Image for a Lumina2 model");
    if (arch_dim(in, 0) != f->hidden || arch_dim(in, 1) % pixels || !c->net.ffn ||
        c->net.ffn > ZIMAGE_WIDTH_MAX || !c->layers ||
        c->layers + c->refiners > ZIMAGE_SKIPS_MAX / 2 ||
        (c->channels != f->in_channels && c->channels != 2 * f->in_channels + 1))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control network of width %llu with %u layers over %llu channels: not "
                       "one for this model, which is %llu wide",
                       (unsigned long long)arch_dim(in, 0), c->layers,
                       (unsigned long long)c->channels, (unsigned long long)f->hidden);
    c->every = (uint32_t)nearbyint(SPREAD / c->layers); /* to even, as Python rounds */
    c->every = c->every ? c->every : 1;
    return c->layers == BROKEN_LAYERS && after ? find_zero(w, after, &c->broken, err) : BERTH_OK;
}

static uint64_t control_channels(const struct weights *w, const char *root)
{
    return arch_dim(arch_find(w, root, EMBEDDER ".weight"), 1) / (ZIMAGE_PATCH * ZIMAGE_PATCH);
}

const struct control_class zimage_control = {
    .bytes = sizeof(struct control),
    .at = control_at,
    .config = control_config,
    .channels = control_channels,
    .names = zimage_names,
};

/* ---- a pass ---- */

struct turn { /* of one network: a run of its blocks */
    struct zimage_pass p;
    const struct control *c;
    const struct family_control *by;
    const float *hint;        /* [picture, 4 * channels] */
    const float *tokens;      /* [B, picture, D] of the transformer */
    float *state;             /* [B, picture, D]: what goes on from turn to turn */
    bool begins;              /* there is no state yet */
    bool early;               /* at the refiners; else at the layers */
    struct zimage_skip *skip; /* [skips]: filled */
};

static struct act patches_in(struct net_run *r, const struct turn *t)
{
    const uint64_t wide = t->c->channels * ZIMAGE_PATCH * ZIMAGE_PATCH;
    struct shape s = zimage_shape3(1, t->p.z.picture, wide);
    struct act in = net_input(r, &s, t->hint), y = net_linear(r, in, EMBEDDER), all[ITEMS_MAX];
    net_drop(r, &in);
    if (t->p.z.B == 1)
        return y;
    for (size_t i = 0; i < t->p.z.B; i++)
        all[i] = y;
    struct act x = net_concat(r, all, (size_t)t->p.z.B, 0);
    net_drop(r, &y);
    return x;
}

/* Block n of a list on the state x: what it has for the transformer goes to skip, unless NULL. */
static struct act control_block(struct net_run *r, const struct turn *t, const char *list,
                                uint32_t n, struct act x, struct act table,
                                const struct zimage_skip *skip)
{
    struct shape s = zimage_shape3(t->p.z.B, t->p.z.picture, t->p.f->hidden),
                 one = { 3, { 1, 1, 1 } };
    size_t mark = net_enter(r, "%s.%u.", list, n);
    if (n == 0) {
        struct act y = net_linear_add(r, x, "before_proj", net_input(r, &s, t->tokens));
        net_drop(r, &x);
        x = y;
    }
    net_leave(r, mark);
    zimage_block(r, &t->p, list, n, true, x, table);
    if (!skip)
        return x;
    mark = net_enter(r, "%s.%u.", list, n);
    struct act y = net_linear(r, x, "after_proj");
    if (t->by->strength != 1.0f) {
        struct act k = net_input(r, &one, &t->by->strength);
        net_mul(r, &y, k);
        net_drop(r, &k);
    }
    net_output(r, y, skip->x);
    net_drop(r, &y);
    net_leave(r, mark);
    return x;
}

/* The blocks of a turn: at the refiners these, or what stands in for them; at the layers those, and
 * before them refiners that steer nothing. */
static struct act turn_blocks(struct net_run *r, const struct turn *t, struct act x,
                              struct act table)
{
    const struct control *c = t->c;
    if (!t->early) {
        for (uint32_t i = 0; i < c->refiners && t->begins && !net_bad(r); i++)
            zimage_block(r, &t->p, "control_noise_refiner", i, true, x, table);
        for (uint32_t i = 0; i < c->layers && !net_bad(r); i++)
            x = control_block(r, t, "control_layers", i, x, table, &t->skip[i]);
        return x;
    }
    if (!c->broken) {
        for (uint32_t i = 0; i < c->refiners && !net_bad(r); i++)
            x = control_block(r, t, "control_noise_refiner", i, x, table, &t->skip[i]);
        return x;
    }
    for (uint32_t i = 0; i < c->layers && !net_bad(r); i++)
        x = control_block(r, t, "control_layers", i, x, table, i < 2 ? &t->skip[i] : NULL);
    return x;
}

static void turn_forward(struct net_run *r, void *user)
{
    struct turn t = *(const struct turn *)user;
    const struct zimage_sizes *z = &t.p.z;
    const uint64_t D = t.p.f->hidden, half = t.p.f->head_dim / 2;
    struct shape ts = zimage_shape3(z->picture, half, 2), s = zimage_shape3(z->B, z->picture, D);
    struct shape vs = { .ndim = 2, .dim = { z->B, t.p.f->mod } };
    t.p.vec = net_input(r, &vs, t.p.steer->vec);
    struct act table = net_input_f32(r, &ts, t.p.host->table + z->L * t.p.f->head_dim);
    struct act x = t.begins ? patches_in(r, &t) : net_input(r, &s, t.state);
    x = turn_blocks(r, &t, x, table);
    net_drop(r, &table);
    net_drop(r, &t.p.vec);
    net_output(r, x, t.state);
    net_drop(r, &x);
}

/* ---- the whole ---- */

struct memory { /* what is handed over, carved out of host->steer */
    float *at;
};

static float *carve(struct memory *m, uint64_t n)
{
    float *p = m->at;
    m->at += n;
    return p;
}

static const struct control *of(const struct family_control *by)
{
    return by->own;
}

static size_t skips_of(const struct control *c)
{
    return c->layers + (c->steers_early ? c->refiners : 0);
}

static berth_status make_room(const struct zimage_pass *p, struct zimage_host *host, berth_err *err)
{
    const struct zimage_sizes *z = &p->z;
    uint64_t rows = z->L + z->I + z->picture, skips = 0, wide = 0;
    size_t n, extra;
    for (size_t i = 0; i < p->in->controls; i++) {
        const struct control *c = of(&p->in->control[i]);
        skips += skips_of(c);
        rows += (skips_of(c) + 1) * z->picture;
        wide += c->channels * ZIMAGE_PATCH * ZIMAGE_PATCH;
    }
    if (skips > ZIMAGE_SKIPS_MAX || z->B > ITEMS_MAX)
        return err_set(err, BERTH_ELIMIT, "%llu blocks of control networks, %llu latents",
                       (unsigned long long)skips, (unsigned long long)z->B);
    if (!sz_mul((size_t)(rows * z->B), (size_t)p->f->hidden, &n) ||
        !sz_mul((size_t)z->picture, (size_t)wide, &extra) || !sz_add(n, extra, &n) ||
        !sz_add(n, (size_t)(z->B * p->f->mod), &n) || !zimage_host_steer(host, n))
        return err_set(err, BERTH_ENOMEM, "what a control network gives for %llu tokens",
                       (unsigned long long)rows);
    return BERTH_OK;
}

/* Skips of a turn, behind those that are there. */
static void add_skips(struct zimage_steer *s, struct memory *m, const struct turn *t)
{
    const struct control *c = t->c;
    uint32_t n = t->early ? c->refiners : c->layers;
    for (uint32_t i = 0; i < n; i++)
        s->skip[s->skips++] =
            (struct zimage_skip) { .refiner = t->early,
                                   .block = t->early ? i : i * c->every,
                                   .x = carve(m, t->p.z.B * t->p.z.picture * t->p.f->hidden) };
}

/* The picture's tokens of every item, without pads and text, out of `joined`. */
static void take_picture(const struct zimage_pass *p)
{
    const struct zimage_sizes *z = &p->z;
    const size_t D = (size_t)p->f->hidden, T = (size_t)(z->L + z->I), n = (size_t)z->picture;
    for (size_t b = 0; b < z->B; b++)
        memcpy(p->steer->embedded + b * n * D, p->steer->joined + (b * T + (size_t)z->L) * D,
               n * D * sizeof(float));
}

static berth_status take_turn(struct turn *t, struct memory *m, berth_err *err)
{
    t->skip = t->p.steer->skip + t->p.steer->skips;
    add_skips(t->p.steer, m, t);
    berth_status s = net_forward(t->by->net, turn_forward, t, err);
    t->begins = false;
    return s ? err_add(err, "the control network") : BERTH_OK;
}

berth_status zimage_steered(struct net *net, struct zimage_pass *p, struct zimage_host *host,
                            berth_err *err)
{
    struct zimage_steer steer = { .skips = 0 };
    struct turn turn[FAMILY_CONTROLS];
    struct memory m;
    const struct family_batch *in = p->in;
    const uint64_t each = p->z.B * p->z.picture * p->f->hidden;
    bool early = false;
    if (make_room(p, host, err))
        return err->code;
    m.at = host->steer;
    p->steer = &steer;
    steer.vec = carve(&m, p->z.B * p->f->mod);
    steer.embedded = carve(&m, each);
    steer.joined = carve(&m, p->z.B * (p->z.L + p->z.I) * p->f->hidden);
    for (size_t i = 0; i < in->controls; i++) {
        const struct family_control *by = &in->control[i];
        const struct control *c = of(by);
        struct shape s = { 4, { 1, c->channels, by->h, by->w } };
        float *hint = carve(&m, p->z.picture * c->channels * ZIMAGE_PATCH * ZIMAGE_PATCH);
        zimage_patchify(by->hint, &s, hint);
        turn[i] = (struct turn) { .p = *p, .c = c, .by = by, .hint = hint, .begins = true };
        turn[i].p.f = &c->net;
        turn[i].tokens = steer.embedded;
        turn[i].state = carve(&m, each);
        early |= turn[i].early = c->steers_early;
    }
    berth_status s = early ? net_forward(net, zimage_embed, p, err) : BERTH_OK;
    for (size_t i = 0; !s && i < in->controls; i++)
        s = turn[i].early ? take_turn(&turn[i], &m, err) : BERTH_OK;
    if (!s)
        s = net_forward(net, zimage_refine, p, err);
    if (!s)
        take_picture(p);
    for (size_t i = 0; !s && i < in->controls; i++) {
        turn[i].early = false;
        s = take_turn(&turn[i], &m, err);
    }
    return s ? s : net_forward(net, zimage_layers, p, err);
}
