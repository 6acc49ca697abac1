/* One item of a VAE job: whole where there is room, else in overlapping tiles (vae.md 7).
 *
 * Words   pass    a cover of the item with tiles of one size; three of them, with tiles of equal
 *                 area and different forms, are averaged, so that their seams fall on different
 *                 places. Of video there is one */
#include "model/vae_impl.h"

#include "base/log.h"
#include "base/sz.h"
#include "model/tiles.h"
#include "sample/rng.h"

#include <math.h>
#include <stdlib.h>

struct vae_way vae_way(const struct vae_job *j, bool decode)
{
    const struct vae_family *f = j->vae->family;
    const bool video = j->vae->latent.rank == 3;
    return decode ? (struct vae_way) { .name = "decode",
                                       .forward = f->decode,
                                       .up = true,
                                       .tile = video ? 32 : 64,
                                       .overlap = video ? 8 : 16,
                                       .tile_min = VAE_TILE_MIN }
                  : (struct vae_way) { .name = "encode",
                                       .forward = f->encode,
                                       .tile = video ? 256 : 512,
                                       .overlap = 64,
                                       .tile_min = VAE_TILE_MIN * (size_t)j->vae->latent.ratio };
}

struct work { /* of one item */
    struct vae_job *j;
    const struct vae_item *item;
    const struct vae_way *way;
    size_t done, total; /* tiles of the item, all passes */
    const float *in;    /* [channels, t, h, w] */
    size_t channels, t, h, w;
    size_t out_channels, ot, oh, ow; /* of the result */
    size_t tile_t, overlap_t;        /* frames of a tile: all of them, but where it was asked */
    float *tile_in, *tile_out;       /* room for the largest tile of a pass */
    float *sum, *weight;             /* [out_channels, ot, oh, ow], [weights, oh, ow] of a pass */
    size_t weights;                  /* ot, or 1 where every tile has all frames */
};
struct tile {
    size_t t, y, x, tt, th, tw; /* where it begins, and how large it is */
};

/* Sizes and places in the result; half to even, as the reference rounds. */
static size_t scaled(const struct work *k, size_t n)
{
    return k->way->up ? n * k->j->vae->latent.ratio
                      : (size_t)nearbyint((double)n / (double)k->j->vae->latent.ratio);
}

/* How many the network gives for n: an encoder cuts what does not fill a latent pixel. */
static size_t whole(const struct work *k, size_t n)
{
    return k->way->up ? n * k->j->vae->latent.ratio : n / k->j->vae->latent.ratio;
}

/* Frames that it gives for so many of a tile. */
static size_t whole_t(const struct work *k, size_t n)
{
    return n == k->t ? k->ot : latent_frames(&k->j->vae->latent, n);
}

/* Adds the tile, [channels, frames, h, w] in k->tile_out, at its place in the result. */
static void blend(struct work *k, const struct tile *at, size_t overlap)
{
    const size_t y = scaled(k, at->y), x = scaled(k, at->x), f = scaled(k, overlap);
    const size_t th = whole(k, at->th), tw = whole(k, at->tw), tt = whole_t(k, at->tt);
    const size_t t = at->t * k->j->vae->latent.time_ratio;
    const size_t ft = k->overlap_t ? latent_frames(&k->j->vae->latent, k->overlap_t) : tt;
    const size_t rows = th < k->oh - y ? th : k->oh - y, cols = tw < k->ow - x ? tw : k->ow - x;
    const size_t frames = tt < k->ot - t ? tt : k->ot - t;
    for (size_t a = 0; a < frames; a++)
        for (size_t i = 0; i < rows; i++) {
            const float fy = feather(i, th, f) * (k->weights > 1 ? feather(a, tt, ft) : 1.0f);
            float *weight = k->weight + ((k->weights > 1 ? t + a : 0) * k->oh + y + i) * k->ow + x;
            for (size_t q = 0; q < cols; q++) {
                const float m = fy * feather(q, tw, f);
                if (k->weights > 1 || !a)
                    weight[q] += m;
                for (size_t c = 0; c < k->out_channels; c++)
                    k->sum[((c * k->ot + t + a) * k->oh + y + i) * k->ow + x + q] +=
                        k->tile_out[((c * tt + a) * th + i) * tw + q] * m;
            }
        }
}

/* As many random numbers as decoding wants; NULL: none. */
static berth_status make_noise(const struct vae_net *v, const struct shape *latents, float **out,
                               berth_err *err)
{
    struct torch_rng rng;
    const size_t n = v->family->noise(v, latents);
    if (!n)
        return BERTH_OK;
    *out = malloc(n * sizeof **out);
    if (!*out)
        return err_set(err, BERTH_ENOMEM, "noise of %zu values", n);
    torch_seed(&rng, 0);
    torch_randn(&rng, *out, n);
    return BERTH_OK;
}

/* All of an item, or a tile of it: t frames of a video. */
static berth_status forward(struct vae_job *j, const struct vae_item *item, size_t t, size_t h,
                            size_t w, const float *in, float *out, berth_err *err)
{
    struct vae_pass p = { .vae = j->vae, .shape = item->in, .in = in, .out = out };
    if (p.shape.ndim == 5)
        p.shape.dim[2] = t;
    p.shape.dim[p.shape.ndim - 2] = h;
    p.shape.dim[p.shape.ndim - 1] = w;
    float *noise = NULL;
    if (item->way->up && j->vae->family->noise && make_noise(j->vae, &p.shape, &noise, err))
        return err->code;
    p.noise = noise;
    berth_status s = net_forward(j->net, item->way->forward, &p, err);
    free(noise);
    return s;
}

static berth_status one_tile(struct work *k, const struct tile *at, size_t overlap, berth_err *err)
{
    const size_t tt = at->tt, th = at->th, tw = at->tw;
    for (size_t c = 0; c < k->channels; c++)
        for (size_t a = 0; a < tt; a++)
            for (size_t i = 0; i < th; i++)
                memcpy(k->tile_in + ((c * tt + a) * th + i) * tw,
                       k->in + ((c * k->t + at->t + a) * k->h + at->y + i) * k->w + at->x,
                       tw * sizeof(float));
    /* A rest that fills no latent pixel is no tile; its neighbours reach over it, or pass() says
     * so. */
    bool some = whole(k, th) && whole(k, tw);
    if (some && forward(k->j, k->item, tt, th, tw, k->tile_in, k->tile_out, err))
        return err->code;
    if (some)
        blend(k, at, overlap);
    k->done++;
    return k->j->step ? k->j->step(k->j->user, k->item->i * k->total + k->done,
                                   k->item->items * k->total, err)
                      : BERTH_OK;
}

/* Every tile of a pass, frames first. */
static berth_status tiles(struct work *k, size_t tile_x, size_t tile_y, size_t overlap,
                          berth_err *err)
{
    struct cover ct = cover(k->t, k->tile_t, k->overlap_t), cy = cover(k->h, tile_y, overlap),
                 cx = cover(k->w, tile_x, overlap);
    if (k->h <= tile_y && k->w <= tile_x && k->t <= k->tile_t) /* all of it: no feathers */
        return one_tile(k, &(struct tile) { 0, 0, 0, k->t, k->h, k->w }, k->h + k->w, err);
    for (size_t a = 0; a < ct.n; a++)
        for (size_t i = 0; i < cy.n; i++)
            for (size_t q = 0; q < cx.n; q++) {
                struct tile at;
                at.t = cover_at(&ct, a, &at.tt);
                at.y = cover_at(&cy, i, &at.th);
                at.x = cover_at(&cx, q, &at.tw);
                if (one_tile(k, &at, overlap, err))
                    return err->code;
            }
    return BERTH_OK;
}

/* One pass; its result is added to out. */
static berth_status pass(struct work *k, size_t tile_x, size_t tile_y, size_t overlap, float *out,
                         berth_err *err)
{
    const size_t area = k->oh * k->ow, planes = k->out_channels * k->ot;
    memset(k->sum, 0, planes * area * sizeof(float));
    memset(k->weight, 0, k->weights * area * sizeof(float));
    if (tiles(k, tile_x, tile_y, overlap, err))
        return err->code;
    for (size_t i = 0; i < k->weights * area; i++)
        if (!(k->weight[i] > 0))
            return err_set(err, BERTH_EINVAL,
                           "tiles of %zu x %zu overlapping by %zu leave a gap at %zu, %zu of the "
                           "latent: multiples of %u have none",
                           tile_x, tile_y, overlap, i % k->ow, i / k->ow % k->oh,
                           k->j->vae->latent.ratio);
    for (size_t c = 0; c < planes; c++)
        for (size_t i = 0; i < area; i++)
            out[c * area + i] +=
                k->sum[c * area + i] / k->weight[(c % k->ot % k->weights) * area + i];
    return BERTH_OK;
}

struct form {
    size_t x, y;
};

static void work_release(struct work *k)
{
    free(k->tile_in);
    free(k->tile_out);
    free(k->sum);
    free(k->weight);
    *k = (struct work) { 0 };
}

/* Buffers for the largest tile of these forms, and for the result. */
static berth_status work_init(struct work *k, const struct form *form, size_t forms, berth_err *err)
{
    size_t tile = 0, out_tile = 0, area, in_bytes, out_bytes, sum_bytes, weight_bytes;
    bool fits = true;
    for (size_t i = 0; i < forms; i++) {
        size_t w = form[i].x < k->w ? form[i].x : k->w, h = form[i].y < k->h ? form[i].y : k->h, n;
        fits = fits && sz_mul(w, h, &n);
        tile = fits && n > tile ? n : tile;
        fits = fits && sz_mul(scaled(k, w) + 1, scaled(k, h) + 1, &n);
        out_tile = fits && n > out_tile ? n : out_tile;
    }
    const size_t tt = k->t < k->tile_t ? k->t : k->tile_t;
    if (!fits || !sz_mul(k->oh, k->ow, &area) ||
        !sz_mul(tile, k->channels * tt * sizeof(float), &in_bytes) ||
        !sz_mul(out_tile, k->out_channels * whole_t(k, tt) * sizeof(float), &out_bytes) ||
        !sz_mul(area, k->out_channels * k->ot * sizeof(float), &sum_bytes) ||
        !sz_mul(area, k->weights * sizeof(float), &weight_bytes))
        return err_set(err, BERTH_ELIMIT, "%zu x %zu is too large to %s", k->w, k->h, k->way->name);
    k->tile_in = malloc(in_bytes);
    k->tile_out = malloc(out_bytes);
    k->sum = malloc(sum_bytes);
    k->weight = malloc(weight_bytes);
    if (!k->tile_in || !k->tile_out || !k->sum || !k->weight)
        return err_set(err, BERTH_ENOMEM,
                       "out of host memory: %zu bytes for tiles and their sums to %s %zu x %zu",
                       in_bytes + out_bytes + sum_bytes + weight_bytes, k->way->name, k->w, k->h);
    return BERTH_OK;
}

static berth_status tiled(struct vae_job *j, const struct vae_item *item, const float *in,
                          struct form t, size_t overlap, float *out, berth_err *err)
{
    const struct vae_way *way = item->way;
    const struct form wide = { 2 * t.x, t.y / 2 }, tall = { t.x / 2, 2 * t.y };
    /* sums are rounded: the reference's order */
    const struct form three[] = { way->up ? tall : t, wide, way->up ? t : tall };
    const size_t forms = vae_forms(j->vae);
    const struct form *order = forms == 1 ? &t : three;
    const size_t h = (size_t)shape_last(&item->in, 2), w = (size_t)shape_last(&item->in, 1);
    struct work k = { .j = j, .item = item, .way = way, .in = in, .h = h, .w = w };
    k.channels = (size_t)item->in.dim[1];
    k.t = (size_t)shape_inner(&item->in, 2) / (h * w);
    k.oh = scaled(&k, h);
    k.ow = scaled(&k, w);
    size_t n = (size_t)shape_inner(&item->out, 1);
    k.out_channels = (size_t)item->out.dim[1];
    k.ot = n / (k.out_channels * k.oh * k.ow);
    const bool frames = way->up && j->tile_t && k.t > j->tile_t;
    k.tile_t = frames ? j->tile_t : k.t;
    k.overlap_t = frames ? j->overlap_t : 0;
    k.weights = frames ? k.ot : 1;
    if (frames && (!k.overlap_t || k.overlap_t >= k.tile_t))
        return err_set(err, BERTH_EINVAL, "tiles of %zu latent frames overlapping by %zu", k.tile_t,
                       k.overlap_t);
    if (t.x / 2 <= overlap || t.y / 2 <= overlap || (!way->up && t.x / 2 < j->vae->latent.ratio) ||
        (!way->up && t.y / 2 < j->vae->latent.ratio))
        return err_set(err, BERTH_EINVAL,
                       "tiles of %zu x %zu overlapping by %zu: half a tile must be more than that",
                       t.x, t.y, overlap);
    for (size_t i = 0; i < forms; i++)
        k.total += cover(h, order[i].y, overlap).n * cover(w, order[i].x, overlap).n *
                   cover(k.t, k.tile_t, k.overlap_t).n;
    if (j->tiled)
        j->tiles = k.total;
    berth_status s = work_init(&k, order, forms, err);
    memset(out, 0, n * sizeof(float));
    for (size_t i = 0; i < forms && !s; i++)
        s = pass(&k, order[i].x, order[i].y, overlap, out, err);
    for (size_t i = 0; i < n && !s; i++)
        out[i] /= (float)forms;
    work_release(&k);
    return s;
}

berth_status vae_item(struct vae_job *j, const struct vae_item *item, const float *in, float *out,
                      berth_err *err)
{
    const struct vae_way *way = item->way;
    const size_t h = (size_t)shape_last(&item->in, 2), w = (size_t)shape_last(&item->in, 1);
    struct form t = { j->tile_x, j->tile_y ? j->tile_y : j->tile_x };
    size_t overlap = j->overlap;
    if (!t.x) {
        berth_status s = j->tiled ? BERTH_ENODEVMEM
                                  : forward(j, item, (size_t)item->in.dim[2], h, w, in, out, err);
        if (s == BERTH_OK && j->step)
            s = j->step(j->user, item->i + 1, item->items, err);
        if (s != BERTH_ENODEVMEM)
            return s;
        t = (struct form) { way->tile, way->tile };
        overlap = way->overlap;
        while (t.x / 2 >= way->tile_min && t.x >= h && t.x >= w) { /* that was the whole */
            t = (struct form) { t.x / 2, t.y / 2 };
            overlap /= 2;
        }
    }
    for (;; t = (struct form) { t.x / 2, t.y / 2 }, overlap /= 2) {
        if (j->tile_x != t.x) { /* nobody asked for these */
            j->tiled = true;
            j->rungs++;
            log_warn(j->log, "vae.tiled",
                     "what=%s width=%zu height=%zu tile=%zu overlap=%zu why=\"no room for the "
                     "whole: the "
                     "picture differs where tiles meet\"",
                     way->name, w, h, t.x, overlap);
        }
        berth_status s = tiled(j, item, in, t, overlap, out, err);
        if (s != BERTH_ENODEVMEM || t.x / 2 < way->tile_min || t.y / 2 < way->tile_min)
            return s ? err_add(err, "VAE %s of %zu x %zu", way->name, w, h) : BERTH_OK;
    }
}
