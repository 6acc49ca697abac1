/* guide.c: lists of conditionings into predictions, predictions into D. */
#include "sample/guide.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POSITIVE, MIDDLE, NEGATIVE, EMPTY, LISTS };

struct part {
    const struct guide_cond *cond;
    struct guide_area crop;
    int list;
    const void *how;   /* guide_batch.how */
    const float *rest; /* [b, t, h, w]: how much it counts, of one that counts otherwise; NULL */
};

struct scene { /* one call of guide_denoise(), or a window of it */
    const struct guide *g;
    struct shape shape;          /* of x */
    const struct window *beside; /* frames of what is beside x, in a window; NULL: all */
    double region;               /* where a window is that one prompt alone counts in; < 0: none */
    size_t b, c, t, h, w;        /* t: planes of a channel, 1 for pictures */
    float sigma;
    double cfg;      /* of this level */
    const void *how; /* of all parts; NULL: as patches say */
    const float *x;  /* [b, c, t, h, w] what the network is asked about */
    struct arena *mem;
    size_t batches;    /* computed so far */
    struct part *part; /* [parts] not yet computed, in the order of the lists */
    size_t parts;
    float *sum[LISTS]; /* [b, c, t, h, w] of weighted D, then their mean; NULL: a list not asked */
    float *count[LISTS]; /* [b, t, h, w] of weights; NULL: one plain part, the sum is the mean */
};

static berth_status no_memory(const struct scene *s, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    return err_set(err, BERTH_ENOMEM, "a batch of latents %s", shape_text(&s->shape, text));
}

static size_t pixels(const struct scene *s) /* of an item */
{
    return s->t * s->h * s->w;
}

static size_t elements(const struct scene *s)
{
    return s->b * s->c * pixels(s);
}

static bool is_one(double x) /* Python's math.isclose(x, 1.0) */
{
    return fabs(x - 1) <= 1e-9 * fmax(fabs(x), 1);
}

/* ---- where and how much a conditioning counts ---- */

#define FEATHER 8 /* latent pixels at most */

/* Whether c counts at sigma, and which crop of latents of this shape it sees. */
static bool part_active(const struct guide_cond *c, float sigma, const struct shape *s,
                        struct guide_area *crop)
{
    const uint64_t h = shape_last(s, 2), w = shape_last(s, 1);
    if (sigma > (float)c->sigma_start || sigma < (float)c->sigma_end)
        return false;
    struct guide_area a = { .h = (uint32_t)h, .w = (uint32_t)w };
    if (c->has_area) {
        a = c->area;
        if (a.y >= h || a.x >= w || !a.h || !a.w)
            return false;
        a.h = a.h < h - a.y ? a.h : (uint32_t)(h - a.y);
        a.w = a.w < w - a.x ? a.w : (uint32_t)(w - a.x);
    }
    *crop = a;
    return true;
}

/* 1 everywhere, so that nothing has to be multiplied. */
static bool part_is_plain(const struct guide_cond *c, const struct guide_area *crop,
                          const struct shape *s)
{
    return !c->mask && c->strength == 1 && crop->h == shape_last(s, 2) &&
           crop->w == shape_last(s, 1);
}

/* Rows (or columns) near an edge inside of the latent fade, so that areas blend: the one at
 * distance t from it, 0 <= t < ramp, counts (t + 1) / ramp. `stride` leads to the next one, `step`
 * along it. */
static void feather(float *edge, ptrdiff_t stride, size_t step, size_t count, size_t ramp)
{
    for (size_t t = 0; t < ramp; t++) {
        float by = (float)(1.0 / (double)ramp * (double)(t + 1));
        for (size_t i = 0; i < count; i++)
            edge[(ptrdiff_t)t * stride + (ptrdiff_t)(i * step)] *= by;
    }
}

static size_t ramp_of(size_t size)
{
    return size / 4 < FEATHER ? size / 4 : FEATHER;
}

/* The weights of one picture, or of one frame. mask: its own; NULL: none. */
static void plane_weights(const struct guide_cond *c, const struct guide_area *crop, size_t h,
                          size_t w, const float *mask, float *out)
{
    size_t ch = crop->h, cw = crop->w;
    float strength = (float)c->strength, mask_strength = (float)c->mask_strength;
    for (size_t y = 0; y < ch; y++)
        for (size_t x = 0; x < cw; x++) {
            float m = mask ? mask[(crop->y + y) * w + crop->x + x] * mask_strength : 1.0f;
            out[y * cw + x] = m * strength;
        }
    if (mask || !c->has_area)
        return;
    if (crop->y)
        feather(out, (ptrdiff_t)cw, 1, cw, ramp_of(ch));
    if (crop->y + ch < h)
        feather(out + (ch - 1) * cw, -(ptrdiff_t)cw, 1, cw, ramp_of(ch));
    if (crop->x)
        feather(out, 1, cw, ch, ramp_of(cw));
    if (crop->x + cw < w)
        feather(out + cw - 1, -1, cw, ch, ramp_of(cw));
}

/* How much c counts at each pixel of its crop in one item: out [..., crop.h, crop.w]. */
static void part_weights(const struct guide_cond *c, const struct guide_area *crop,
                         const struct shape *s, size_t item, float *out)
{
    size_t h = (size_t)shape_last(s, 2), w = (size_t)shape_last(s, 1);
    size_t planes = (size_t)shape_inner(s, 2) / (h * w), masks = c->mask_n ? c->mask_n : 1;
    const float *mask = c->mask ? c->mask + item % masks * planes * h * w : NULL;
    for (size_t i = 0; i < planes; i++, out += (size_t)crop->h * crop->w)
        plane_weights(c, crop, h, w, mask ? mask + i * h * w : NULL, out);
}

/* ---- lists ---- */

static bool wants_uncond(const struct guide *g)
{
    for (size_t i = 0; i < g->patches; i++)
        if (g->patch[i].is->uncond)
            return true;
    return g->always_uncond;
}

/* Which lists count, in ComfyUI's order: the last one is computed first. */
static size_t lists_of(const struct scene *s, bool uncond, int order[LISTS])
{
    const struct guide *g = s->g;
    bool always = wants_uncond(g) || uncond;
    size_t n = 0;
    if (!g->middle) {
        order[n++] = POSITIVE;
        if (g->negatives && (always || !is_one(s->cfg)))
            order[n++] = NEGATIVE;
        if (g->empties)
            order[n++] = EMPTY;
        return n;
    }
    bool negative = g->nested || always || !is_one(g->cfg_middle);
    if (negative && g->negatives)
        order[n++] = NEGATIVE;
    if (negative || !is_one(s->cfg))
        order[n++] = MIDDLE;
    order[n++] = POSITIVE;
    return n;
}

static size_t conds_of(const struct guide *g, int list, const struct guide_cond **out)
{
    const struct guide_cond *const at[LISTS] = { g->positive, g->middle, g->negative, g->empty };
    const size_t n[LISTS] = { g->positives, g->middles, g->negatives, g->empties };
    *out = at[list];
    return n[list];
}

/* How the network is run for a list; NULL: as usual. */
static const void *how_of(const struct scene *s, int list)
{
    const struct guide *g = s->g;
    const void *how = s->how;
    for (size_t i = 0; list == NEGATIVE && !s->how && i < g->patches; i++)
        if (g->patch[i].is->negative && g->patch[i].is->negative(&g->patch[i], s->sigma))
            how = g->patch[i].how;
    return how;
}

/* What parts [first, parts) leave of 1 at each pixel: [b, t, h, w]; NULL: nothing. */
static berth_status rest_of(const struct scene *s, size_t first, const float **out, berth_err *err)
{
    size_t each = pixels(s), all = s->b * each;
    float *rest = arena_array(s->mem, all, sizeof *rest);
    float *weight = rest ? arena_array(s->mem, each, sizeof *weight) : NULL;
    *out = NULL;
    if (!weight)
        return no_memory(s, err);
    for (size_t i = 0; i < all; i++)
        rest[i] = 1;
    for (size_t k = first; k < s->parts; k++)
        for (size_t item = 0; item < s->b; item++) {
            const struct guide_area *a = &s->part[k].crop;
            part_weights(s->part[k].cond, a, &s->shape, item, weight);
            for (size_t y = 0; y < s->t * a->h; y++)
                for (size_t x = 0; x < a->w; x++)
                    rest[item * each + (y / a->h * s->h + a->y + y % a->h) * s->w + a->x + x] -=
                        weight[y * a->w + x];
        }
    for (size_t i = 0; i < all; i++) {
        rest[i] = rest[i] > 0 ? rest[i] : 0;
        if (rest[i] > 0)
            *out = rest;
    }
    return BERTH_OK;
}

/* Those of a list that count where the others do not. */
static berth_status add_rest(struct scene *s, int list, const struct guide_cond *c, size_t n,
                             size_t first, berth_err *err)
{
    const float *rest = NULL;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        struct part p = { .cond = &c[i], .list = list, .how = how_of(s, list) };
        if (!c[i].otherwise || !part_active(&c[i], s->sigma, &s->shape, &p.crop))
            continue;
        if (p.crop.h != s->h || p.crop.w != s->w)
            return err_set(err, BERTH_EINVAL, "a default prompt with an area of its own");
        if (!found++ && rest_of(s, first, &rest, err))
            return err->code;
        p.rest = rest;
        if (rest)
            s->part[s->parts++] = p;
    }
    return BERTH_OK;
}

/* The active parts of a list, and where they will be added up. */
static berth_status list_open(struct scene *s, int list, berth_err *err)
{
    const struct guide_cond *c;
    size_t n = conds_of(s->g, list, &c), first = s->parts;
    if (s->region >= 0 && n > 1) {
        size_t at = (size_t)(s->region * (double)n);
        c += at < n ? at : n - 1;
        n = 1;
    }
    for (size_t i = 0; i < n; i++) {
        struct part *p = &s->part[s->parts];
        *p = (struct part) { .cond = &c[i], .list = list, .how = how_of(s, list) };
        s->parts += !c[i].otherwise && part_active(&c[i], s->sigma, &s->shape, &p->crop);
    }
    if (add_rest(s, list, c, n, first, err))
        return err->code;
    const struct part *p = &s->part[first];
    bool plain = s->parts - first == 1 && !p->rest && part_is_plain(p->cond, &p->crop, &s->shape);
    s->sum[list] = arena_array(s->mem, elements(s), sizeof(float)); /* zeroed */
    if (!s->sum[list])
        return no_memory(s, err);
    if (plain)
        return BERTH_OK;
    size_t all = s->b * pixels(s);
    s->count[list] = arena_array(s->mem, all, sizeof(float));
    if (!s->count[list])
        return no_memory(s, err);
    for (size_t i = 0; i < all; i++)
        s->count[list][i] = 1e-37f; /* nothing active: 0 / this */
    return BERTH_OK;
}

static void list_close(struct scene *s, int list)
{
    float *sum = s->sum[list];
    const float *count = s->count[list];
    size_t each = pixels(s);
    if (!sum || !count)
        return;
    for (size_t i = 0; i < s->b; i++)
        for (size_t c = 0; c < s->c; c++, sum += each)
            for (size_t k = 0; k < each; k++)
                sum[k] /= count[i * each + k];
}

/* ---- batches ---- */

/* A crop of one item out of [c, t, h, w]. */
static void crop_take(const struct scene *s, const struct guide_area *a, const float *from,
                      float *out)
{
    for (size_t c = 0; c < s->c * s->t; c++)
        for (size_t y = 0; y < a->h; y++, out += a->w)
            memcpy(out, from + (c * s->h + a->y + y) * s->w + a->x, a->w * sizeof *out);
}

/* d [c, t, crop.h, crop.w], D of one part in one item, into its list's sum. */
static void part_add(struct scene *s, const struct part *p, size_t item, const float *d,
                     const float *weight)
{
    const struct guide_area *a = &p->crop;
    size_t each = pixels(s), rows = s->t * a->h;
    float *sum = s->sum[p->list] + item * s->c * each;
    if (!s->count[p->list]) {
        memcpy(sum, d, s->c * each * sizeof *sum);
        return;
    }
    for (size_t y = 0; y < rows; y++) {
        const float *wt = weight + y * a->w;
        size_t at = (y / a->h * s->h + a->y + y % a->h) * s->w + a->x;
        for (size_t c = 0; c < s->c; c++)
            for (size_t x = 0; x < a->w; x++)
                sum[c * each + at + x] += d[(c * rows + y) * a->w + x] * wt[x];
        for (size_t x = 0; x < a->w; x++)
            s->count[p->list][item * each + at + x] += wt[x];
    }
}

struct batch { /* parts x items, part after part */
    struct guide_batch in;
    size_t n, each;       /* items, and values of one */
    float *crop, *weight; /* of one item: x there, and how much D counts */
};

static bool batch_new(const struct scene *s, size_t parts, const struct guide_area *like,
                      struct batch *b)
{
    struct guide_batch *in = &b->in;
    struct shape shape = s->shape;
    shape.dim[0] = parts * s->b; /* parts of what is in memory already */
    shape.dim[shape.ndim - 2] = like->h;
    shape.dim[shape.ndim - 1] = like->w;
    *b = (struct batch) { .in.shape = shape,
                          .n = (size_t)shape.dim[0],
                          .each = (size_t)shape_inner(&shape, 1) };
    in->cond = arena_array(s->mem, b->n, sizeof *in->cond);
    in->item = arena_array(s->mem, b->n, sizeof *in->item);
    in->area = arena_array(s->mem, b->n, sizeof *in->area);
    in->t = arena_array(s->mem, b->n, sizeof *in->t);
    in->x = arena_array(s->mem, b->n, b->each * sizeof *in->x);
    in->out = arena_array(s->mem, b->n, b->each * sizeof *in->out);
    b->crop = arena_array(s->mem, b->each, sizeof *b->crop);
    b->weight = arena_array(s->mem, b->each / s->c, sizeof *b->weight);
    return in->cond && in->item && in->area && in->t && in->x && in->out && b->crop && b->weight;
}

static void batch_fill(const struct scene *s, const struct part *const *part, struct batch *b)
{
    struct guide_batch *in = &b->in;
    float t = ms_timestep(s->g->ms, s->sigma);
    in->how = part[0]->how;
    in->sigma = s->sigma;
    in->first = s->batches == 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct part *p = part[i / s->b];
        in->cond[i] = p->cond->cond;
        size_t item = i % s->b;
        in->item[i] = s->beside && s->g->windows->dim == 0 ? s->beside->frame[item] : item;
        in->area[i] = p->crop;
        in->t[i] = t;
        crop_take(s, &p->crop, s->x + item * s->c * pixels(s), in->x + i * b->each);
    }
    if (s->beside && s->g->windows->dim > 1) {
        in->frame = s->beside->frame;
        in->frames = s->beside->n;
        in->frame_dim = s->g->windows->dim;
    }
    ms_input(s->g->ms, s->sigma, in->x, in->x, b->n * b->each);
}

static void batch_add(struct scene *s, const struct part *const *part, const struct batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        const struct part *p = part[i / s->b];
        size_t item = i % s->b;
        float *d = b->in.out + i * b->each;
        crop_take(s, &p->crop, s->x + item * s->c * pixels(s), b->crop);
        ms_denoised(s->g->ms, s->sigma, d, b->crop, d, b->each);
        if (!p->rest)
            part_weights(p->cond, &p->crop, &s->shape, item, b->weight);
        part_add(s, p, item, d, p->rest ? p->rest + item * pixels(s) : b->weight);
    }
}

static bool together(const struct part *a, const struct part *b)
{
    return a->crop.h == b->crop.h && a->crop.w == b->crop.w && a->how == b->how;
}

/* Computes the parts whose crops are as large as the first one's, the last of them first, and takes
 * them off the list. */
static berth_status run_batch(struct scene *s, berth_err *err)
{
    const struct part like = s->part[0];
    const struct part **mine = arena_array(s->mem, s->parts, sizeof *mine);
    struct part *rest = arena_array(s->mem, s->parts, sizeof *rest);
    size_t n = 0, left = 0;
    if (!mine || !rest)
        return no_memory(s, err);
    for (size_t i = s->parts; i-- > 0;)
        if (together(&s->part[i], &like))
            mine[n++] = &s->part[i];
    for (size_t i = 0; i < s->parts; i++)
        if (!together(&s->part[i], &like))
            rest[left++] = s->part[i];
    struct batch b;
    if (!batch_new(s, n, &like.crop, &b))
        return no_memory(s, err);
    batch_fill(s, mine, &b);
    berth_status st = s->g->net(s->g->user, &b.in, err);
    if (st)
        return st;
    batch_add(s, mine, &b);
    s->batches++;
    s->part = rest;
    s->parts = left;
    return BERTH_OK;
}

/* The predictions of these lists. */
static berth_status predict_whole(struct scene *s, const int *order, size_t lists, berth_err *err)
{
    const struct guide *g = s->g;
    size_t most = g->positives + g->middles + g->negatives + g->empties;
    s->part = arena_array(s->mem, most + 1, sizeof *s->part);
    if (!s->part)
        return no_memory(s, err);
    for (size_t i = 0; i < lists; i++)
        if (list_open(s, order[i], err))
            return err->code;
    while (s->parts)
        if (run_batch(s, err))
            return err->code;
    for (int i = 0; i < LISTS; i++)
        list_close(s, i);
    return BERTH_OK;
}

/* ---- shapes and windows ---- */

static berth_status scene_shape(struct scene *s, const struct shape *sh, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t n;
    if (sh->ndim < 4 || !shape_count(sh, &n) || !n)
        return err_set(err, BERTH_EINVAL, "%s is no batch of latents", shape_text(sh, text));
    s->shape = *sh;
    s->b = (size_t)sh->dim[0];
    s->c = (size_t)sh->dim[1];
    s->h = (size_t)shape_last(sh, 2);
    s->w = (size_t)shape_last(sh, 1);
    s->t = (size_t)shape_inner(sh, 2) / (s->h * s->w);
    if (s->h > UINT32_MAX || s->w > UINT32_MAX)
        return err_set(err, BERTH_EINVAL, "%s: latents that large", shape_text(sh, text));
    return BERTH_OK;
}

/* A latent as [outer, frames, inner] of a dimension. */
struct along {
    size_t outer, frames, inner;
};

static struct along along_of(const struct shape *s, int dim)
{
    size_t frames = (size_t)s->dim[dim], inner = (size_t)shape_inner(s, dim + 1);
    return (struct along) { (size_t)shape_inner(s, 0) / (frames * inner), frames, inner };
}

/* Frame `from` of x to frame `to` of y, or added there by weight. */
static void take_frame(const struct along *a, const float *x, size_t from, const struct along *b,
                       float *y, size_t to)
{
    for (size_t o = 0; o < a->outer; o++)
        memcpy(y + (o * b->frames + to) * b->inner, x + (o * a->frames + from) * a->inner,
               a->inner * sizeof *y);
}

static void blend_frame(const struct along *a, const float *x, size_t from, const struct along *b,
                        float *y, size_t to, float keep, float by)
{
    for (size_t o = 0; o < a->outer; o++) {
        const float *v = x + (o * a->frames + from) * a->inner;
        float *at = y + (o * b->frames + to) * b->inner;
        for (size_t i = 0; i < a->inner; i++)
            at[i] = at[i] * keep + v[i] * by;
    }
}

/* A window's frames with its anchor in front, and those that are retained in their own places. */
static struct window *with_anchor(const struct scene *s, const struct window *x, bool anchor,
                                  const size_t *retain, size_t retains)
{
    struct window *y = arena_array(s->mem, 1, sizeof *y);
    size_t *frame = y ? arena_array(s->mem, x->n + 1, sizeof *frame) : NULL;
    if (!frame)
        return NULL;
    *y = (struct window) { .frame = frame, .n = x->n + anchor };
    if (anchor)
        frame[0] = x->frame[0] - 1;
    memcpy(frame + anchor, x->frame, x->n * sizeof *frame);
    for (size_t i = 0; i < retains; i++)
        if (retain[i] < y->n)
            frame[retain[i]] = retain[i];
    return y;
}

struct fusing {    /* windows put together again */
    float *count;  /* [frames] of weights */
    double *bias;  /* [frames], FUSE_RELATIVE */
    float *weight; /* of one window */
};

/* One window: predicted as a latent of its own, and added to the sums of the whole one. */
static berth_status add_window(struct scene *s, const struct window *x, const int *order,
                               size_t lists, const struct fusing *f, berth_err *err)
{
    struct windows *w = s->g->windows;
    struct arena mem = { 0 };
    const bool anchor = w->causal && x->frame[0] > 0;
    const struct window *latent = with_anchor(s, x, anchor, w->retain_latent, w->retain_latents);
    const struct window *beside = with_anchor(s, x, anchor, w->retain_cond, w->retain_conds);
    struct scene sub = { .g = s->g,
                         .sigma = s->sigma,
                         .cfg = s->cfg,
                         .how = s->how,
                         .beside = beside,
                         .batches = s->batches,
                         .region = -1,
                         .mem = &mem };
    struct shape shape = s->shape;
    shape.dim[w->dim] = x->n + anchor;
    struct along all = along_of(&s->shape, w->dim), part = along_of(&shape, w->dim);
    float *cut = arena_array(&mem, part.outer * part.frames, part.inner * sizeof *cut);
    berth_status st = latent && beside && cut ? scene_shape(&sub, &shape, err) : no_memory(s, err);
    for (size_t i = 0; !st && i < latent->n; i++)
        take_frame(&all, s->x, latent->frame[i], &part, cut, i);
    sub.x = cut;
    if (w->split) {
        size_t low = x->frame[0], high = low;
        for (size_t i = 0; i < x->n; i++) {
            low = x->frame[i] < low ? x->frame[i] : low;
            high = x->frame[i] > high ? x->frame[i] : high;
        }
        sub.region = (double)(low + high) / (2 * (double)all.frames);
    }
    if (!st)
        st = predict_whole(&sub, order, lists, err);
    if (w->fuse != FUSE_RELATIVE)
        windows_weights(w, x, all.frames, f->weight);
    for (size_t i = 0; !st && i < x->n; i++) {
        size_t to = x->frame[i];
        double bias = windows_bias(x, i), sum = f->bias[to] + bias;
        bool relative = w->fuse == FUSE_RELATIVE;
        for (size_t k = 0; k < lists; k++)
            blend_frame(&part, sub.sum[order[k]], i + anchor, &all, s->sum[order[k]], to,
                        relative ? (float)(f->bias[to] / sum) : 1,
                        relative ? (float)(bias / sum) : f->weight[i]);
        f->count[to] += relative ? 0 : f->weight[i];
        f->bias[to] = sum;
    }
    s->batches = sub.batches;
    arena_release(&mem);
    return st;
}

static berth_status predict_windows(struct scene *s, const int *order, size_t lists, berth_err *err)
{
    struct windows *w = s->g->windows;
    struct vec list = { .elem = sizeof(struct window) };
    struct along all = along_of(&s->shape, w->dim);
    struct fusing f = { arena_array(s->mem, all.frames, sizeof *f.count),
                        arena_array(s->mem, all.frames, sizeof *f.bias),
                        arena_array(s->mem, w->length + 1, sizeof *f.weight) };
    berth_status st = f.count && f.bias && f.weight ? BERTH_OK : no_memory(s, err);
    for (size_t k = 0; !st && k < lists; k++) {
        const struct guide_cond *c;
        for (size_t i = 0, n = conds_of(s->g, order[k], &c); i < n; i++)
            if (c[i].mask)
                return err_set(err, BERTH_EUNSUPPORTED,
                               "masks of prompts cannot be used with context windows yet");
        s->sum[order[k]] = arena_array(s->mem, elements(s), sizeof(float));
        if (!s->sum[order[k]])
            st = no_memory(s, err);
    }
    windows_at(w, s->g->sigmas, s->g->levels, s->sigma);
    if (!st)
        st = windows_make(w, all.frames, s->mem, &list, err);
    for (size_t i = 0; !st && i < list.n; i++)
        st = add_window(s, vec_at(&list, i), order, lists, &f, err);
    for (size_t k = 0; !st && w->fuse != FUSE_RELATIVE && k < lists; k++)
        for (size_t i = 0; i < elements(s); i++)
            s->sum[order[k]][i] /= f.count[i / all.inner % all.frames];
    vec_release(&list);
    return st;
}

static berth_status predict(struct scene *s, const int *order, size_t lists, berth_err *err)
{
    const struct windows *w = s->g->windows;
    bool pieces = w && w->dim < s->shape.ndim && s->shape.dim[w->dim] > w->length;
    return pieces ? predict_windows(s, order, lists, err) : predict_whole(s, order, lists, err);
}

/* ---- patches ---- */

berth_status guide_again(const struct guide_moment *m, bool negative, const float *x,
                         const void *how, float *out, berth_err *err)
{
    const struct scene *s = m->scene;
    struct arena mem = { 0 };
    struct scene again = {
        .g = s->g, .sigma = s->sigma, .cfg = s->cfg, .how = how, .x = x, .region = -1, .mem = &mem
    };
    const int list = negative ? NEGATIVE : POSITIVE;
    berth_status st = scene_shape(&again, &s->shape, err);
    if (!st)
        st = predict(&again, &list, 1, err);
    if (!st)
        memcpy(out, again.sum[list], m->n * sizeof *out);
    arena_release(&mem);
    return st;
}

float *guide_floats(const struct guide_moment *m, size_t n, berth_err *err)
{
    float *p = arena_array(m->mem, n, sizeof *p);
    if (!p)
        no_memory(m->scene, err);
    return p;
}

void guide_memory_release(struct guide_memory *m, size_t patches)
{
    for (size_t i = 0; m && i < patches; i++)
        free(m[i].kept);
}

/* The cfg of this level. */
static double cfg_now(const struct guide *g, float sigma)
{
    double cfg = g->cfg;
    for (size_t i = g->patches; i-- > 0;)
        if (g->patch[i].is->scale && g->patch[i].is->scale(&g->patch[i], sigma, &cfg))
            break;
    return cfg;
}

/* cond and uncond as patches may change them; a list that was not asked is 0. */
static berth_status moment_open(const struct scene *s, float *cond, float *uncond, double cfg,
                                struct guide_moment *m, berth_err *err)
{
    const struct shape *sh = &s->shape;
    *m = (struct guide_moment) { .b = s->b,
                                 .c = s->c,
                                 .planes = s->t,
                                 .h = s->h,
                                 .w = s->w,
                                 .item = s->c * pixels(s),
                                 .n = elements(s),
                                 .last3 = (size_t)shape_inner(sh, sh->ndim - 3),
                                 .sigma = s->sigma,
                                 .ms = s->g->ms,
                                 .cfg = cfg,
                                 .x = s->x,
                                 .cond = cond,
                                 .uncond = uncond,
                                 .both = uncond != NULL,
                                 .empty = s->sum[EMPTY],
                                 .mem = s->mem,
                                 .scene = s };
    if (!uncond)
        m->uncond = guide_floats(m, m->n, err);
    return m->uncond ? BERTH_OK : err->code;
}

static berth_status patch_with(struct guide_moment *m, const struct guide *g, size_t i,
                               guide_patch_fn *fn, berth_err *err)
{
    if (!fn)
        return BERTH_OK;
    m->memory = &g->memory[i];
    berth_status s = fn(m, &g->patch[i], err);
    return s && s != BERTH_ECANCELED ? err_add(err, "%s", g->patch[i].is->name) : s;
}

static berth_status patches_before(struct guide_moment *m, const struct guide *g, berth_err *err)
{
    for (size_t i = 0; i < g->patches; i++)
        if (patch_with(m, g, i, g->patch[i].is->before, err))
            return err->code;
    return BERTH_OK;
}

/* ---- cfg ---- */

/* uncond + (cond - uncond) * scale, or what a patch has instead, and what patches make of it. A
 * list that was not asked is 0. out is neither of them. */
static berth_status combine(const struct scene *s, float *cond, float *uncond, double scale,
                            float *out, berth_err *err)
{
    const struct guide *g = s->g;
    struct guide_moment m;
    size_t n = elements(s), instead = g->patches;
    for (size_t i = 0; i < g->patches; i++)
        instead = g->patch[i].is->instead ? i : instead;
    if (!g->patches && !uncond) { /* cfg 1 */
        memcpy(out, cond, n * sizeof *out);
        return BERTH_OK;
    }
    if (moment_open(s, cond, uncond, scale, &m, err))
        return err->code;
    m.out = out;
    if (instead < g->patches) {
        if (patch_with(&m, g, instead, g->patch[instead].is->instead, err))
            return err->code;
    } else {
        float by = uncond ? (float)scale : 1.0f;
        for (size_t i = 0; i < n; i++)
            out[i] = m.uncond[i] + (cond[i] - m.uncond[i]) * by;
    }
    for (size_t i = 0; i < g->patches; i++)
        if (patch_with(&m, g, i, g->patch[i].is->after, err))
            return err->code;
    return BERTH_OK;
}

/* DualCFGGuider. */
static berth_status combine_three(const struct scene *s, float *out, berth_err *err)
{
    const struct guide *g = s->g;
    float *pos = s->sum[POSITIVE], *mid = s->sum[MIDDLE], *neg = s->sum[NEGATIVE];
    size_t n = elements(s);
    if (!mid) { /* both are 1 */
        memcpy(out, pos, n * sizeof *out);
        return BERTH_OK;
    }
    if (g->nested) {
        float by = (float)g->cfg_middle;
        if (combine(s, pos, mid, s->cfg, out, err))
            return err->code;
        for (size_t i = 0; neg && i < n; i++)
            out[i] = neg[i] + by * (out[i] - neg[i]);
        return BERTH_OK;
    }
    if (combine(s, mid, neg, g->cfg_middle, out, err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        out[i] += (pos[i] - mid[i]) * (float)s->cfg;
    return BERTH_OK;
}

static berth_status finish(const struct scene *s, float *out, float *uncond, berth_err *err)
{
    const struct guide *g = s->g;
    struct guide_moment m;
    const float *u = g->middle && g->nested ? s->sum[MIDDLE] : s->sum[NEGATIVE];
    if (!g->middle && !g->apart && g->patches &&
        (moment_open(s, s->sum[POSITIVE], s->sum[NEGATIVE], s->cfg, &m, err) ||
         patches_before(&m, g, err)))
        return err->code;
    if (uncond && u)
        memcpy(uncond, u, elements(s) * sizeof *uncond);
    else if (uncond)
        memset(uncond, 0, elements(s) * sizeof *uncond);
    if (g->middle)
        return combine_three(s, out, err);
    return combine(s, s->sum[POSITIVE], s->sum[NEGATIVE], s->cfg, out, err);
}

/* ---- inpainting ---- */

/* x where the mask is 1, y where it is 0. */
static void blend(const struct scene *s, const float *x, const float *y, float *out)
{
    const float *m = s->g->mask;
    for (size_t i = 0; i < elements(s); i++)
        out[i] = x[i] * m[i] + y[i] * (1.0f - m[i]);
}

/* Outside of the mask the network sees the picture, as noisy as the rest is by now, or clean. */
static berth_status mask_in(struct scene *s, berth_err *err)
{
    float *known = arena_array(s->mem, elements(s), sizeof *known);
    if (!known)
        return no_memory(s, err);
    if (s->g->clean) {
        blend(s, s->x, s->g->latent, known);
    } else {
        ms_noise(s->g->ms, s->sigma, s->g->noise, s->g->latent, false, known, elements(s));
        blend(s, s->x, known, known);
    }
    s->x = known;
    return BERTH_OK;
}

/* ---- the door ---- */

static berth_status scene_open(struct scene *s, berth_err *err)
{
    if (s->g->mask && (!s->g->latent || !s->g->noise))
        BUG("a guide with a mask and nothing behind it");
    s->region = -1;
    return scene_shape(s, &s->g->shape, err);
}

/* All of it: predictions, patches, cfg. */
static berth_status answer(struct scene *s, float *denoised, float *uncond, berth_err *err)
{
    int order[LISTS];
    s->cfg = cfg_now(s->g, s->sigma);
    size_t lists = lists_of(s, uncond != NULL, order);
    berth_status st = predict(s, order, lists, err);
    return st ? st : finish(s, denoised, uncond, err);
}

/* The same through a cache of whole predictions. A sampler's uncond stays what it was where the
 * network is not asked. */
static berth_status answer_cached(struct scene *s, float *denoised, float *uncond, berth_err *err)
{
    const void *key = s->g;
    struct step_cache_call call = { .sigma = s->sigma,
                                    .first = true,
                                    .parts = 1,
                                    .key = &key,
                                    .each = elements(s),
                                    .h = s->h,
                                    .w = s->w,
                                    .x = s->x,
                                    .out = denoised };
    bool skip = false;
    if (!s->g->cache)
        return answer(s, denoised, uncond, err);
    if (step_cache_begin(s->g->cache, &call, &skip, err) || skip ||
        answer(s, denoised, uncond, err))
        return skip ? BERTH_OK : err->code;
    return step_cache_end(s->g->cache, &call, err);
}

berth_status guide_denoise(void *guide, const float *x, float sigma, float *denoised, float *uncond,
                           berth_err *err)
{
    struct arena mem = { 0 };
    struct scene s = { .g = guide, .x = x, .sigma = sigma, .mem = &mem };
    berth_status st = scene_open(&s, err);
    if (!st && s.g->mask)
        st = mask_in(&s, err);
    if (!st)
        st = answer_cached(&s, denoised, uncond, err);
    if (!st && s.g->mask)
        blend(&s, denoised, s.g->latent, denoised);
    arena_release(&mem);
    return st;
}
