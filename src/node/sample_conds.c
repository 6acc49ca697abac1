/* sample_conds: conditionings as the guide wants them: areas in latent pixels, masks of the
 * latent's size, percents as noise levels, what inpainting networks see beside the latent.
 *
 * Order is ComfyUI's: resolved one by one, then paired (an area of one list gets a counterpart in
 * the others), then cut to the latent. Everything lives in the scene's arena. */
#include "model/gligen.h"
#include "node/compute.h"

#include <math.h>
#include <string.h>

#define BETWEEN_CHECKS 256 /* prompts, of CONDS_MAX */

static void *take(const struct cond_scene *scene, size_t count, size_t elem, berth_err *err)
{
    void *p = arena_array(scene->mem, count, elem);
    if (!p)
        err_set(err, BERTH_ENOMEM, "%zu x %zu bytes for conditionings", count, elem);
    return p;
}

/* ---- areas ---- */

/* What an area for videos is over this latent. ComfyUI counts its fractions from the first
 * dimension behind the channels on, so that over pictures that of frames is the height's. */
static berth_status area_of(const struct cond_entry *e, const struct cond_scene *scene,
                            double out[4], berth_err *err)
{
    memcpy(out, e->area, 4 * sizeof *out);
    if (e->area_kind != AREA_VIDEO)
        return BERTH_OK;
    if (scene->info->latent.rank != 3) {
        memcpy(out, (const double[]) { e->area_time[0], e->area[0], e->area_time[1], e->area[2] },
               4 * sizeof *out);
        return BERTH_OK;
    }
    double frames = (double)scene->shape.dim[2];
    if (nearbyint(e->area_time[0] * frames) >= frames && nearbyint(e->area_time[1] * frames) == 0)
        return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED,
                   "an area of some frames alone cannot be computed yet: temporal %g from z %g on",
                   e->area_time[0], e->area_time[1]);
}

/* h, w, y, x in latent pixels: as large as people want; conds_pair() compares them before they are
 * cut. */
static berth_status read_area(const struct cond_entry *e, const struct cond_scene *scene,
                              struct guide_area *out, berth_err *err)
{
    uint32_t to[4];
    double of[4];
    if (area_of(e, scene, of, err))
        return err->code;
    for (int i = 0; i < 4; i++) {
        double v = of[i];
        if (e->area_kind == AREA_PIXELS)
            v = floor(v / scene->info->latent.ratio);
        else /* halves to even, as Python rounds */
            v = nearbyint(v * (double)shape_last(&scene->shape, 2 - i % 2));
        if (e->area_kind != AREA_PIXELS && i < 2 && v < 1)
            v = 1;
        if (!(v >= 0 && v <= (double)SIDE_MAX))
            return err_set(err, BERTH_EINVAL, "an area with a side of %g latent pixels", v);
        to[i] = (uint32_t)v;
    }
    *out = (struct guide_area) { .h = to[0], .w = to[1], .y = to[2], .x = to[3] };
    return BERTH_OK;
}

/* Around what is not 0 in any of n masks; at least 8 x 8. */
static struct guide_area mask_box(const float *mask, size_t n, size_t h, size_t w)
{
    size_t y0 = h, y1 = 0, x0 = w, x1 = 0;
    for (size_t i = 0; i < n * h * w; i++) {
        size_t y = i / w % h, x = i % w;
        if (mask[i] == 0)
            continue;
        y0 = y < y0 ? y : y0;
        y1 = y > y1 ? y : y1;
        x0 = x < x0 ? x : x0;
        x1 = x > x1 ? x : x1;
    }
    if (y0 == h) /* empty: the smallest there is, it changes nothing */
        return (struct guide_area) { .h = 8, .w = 8 };
    size_t bh = y1 - y0 + 1, bw = x1 - x0 + 1;
    return (struct guide_area) { .h = (uint32_t)(bh > 8 ? bh : 8),
                                 .w = (uint32_t)(bw > 8 ? bw : 8),
                                 .y = (uint32_t)y0,
                                 .x = (uint32_t)x0 };
}

/* ---- masks ---- */

/* Planes of a mask, whatever its dimensions before the last two, of the latent's size. *n: of
 * them. */
static berth_status sized_mask(struct node_call *c, const struct htensor *t,
                               const struct cond_scene *scene, bool center, size_t *n,
                               const float **out, berth_err *err)
{
    size_t h = (size_t)shape_last(&scene->shape, 2), w = (size_t)shape_last(&scene->shape, 1);
    int nd = t->shape.ndim;
    struct htensor *to = NULL;
    if (nd < 2 || !htensor_count(t))
        return err_set(err, BERTH_EINVAL, "a mask without pixels");
    *n = htensor_count(t) / (dim(t, nd - 2) * dim(t, nd - 1));
    float *p = take(scene, *n * h * w, sizeof *p, err);
    if (!p)
        return err->code;
    *out = p;
    if (dim(t, nd - 2) == h && dim(t, nd - 1) == w) {
        memcpy(p, t->data, *n * h * w * sizeof *p);
        return BERTH_OK;
    }
    if (scale_planes(c, t, w, h, "bilinear", center, &to, err))
        return err->code;
    memcpy(p, to->data, *n * h * w * sizeof *p);
    htensor_unref(to);
    return BERTH_OK;
}

/* n masks for every video of a batch: of its frames, or one for all of them. */
static berth_status video_mask(const struct cond_scene *scene, size_t *n, const float **mask,
                               berth_err *err)
{
    size_t each = (size_t)shape_inner(&scene->shape, 2), frames = (size_t)scene->shape.dim[2];
    size_t have = *n * (each / frames);
    if (*n != 1 && *n != frames)
        return err_set(err, BERTH_EINVAL, "%zu masks for a video of %zu latent frames", *n, frames);
    float *p = take(scene, each, sizeof *p, err);
    if (!p)
        return err->code;
    for (size_t at = 0; at < each; at += have)
        memcpy(p + at, *mask, have * sizeof *p);
    *mask = p;
    *n = 1;
    return BERTH_OK;
}

/* n masks for a batch: 1, or one for each item: the first ones, or all of them over and over. */
static berth_status batch_mask(const struct cond_scene *scene, size_t *n, const float **mask,
                               berth_err *err)
{
    size_t b = (size_t)scene->shape.dim[0], hw = (size_t)shape_inner(&scene->shape, 2);
    if (scene->info->latent.rank == 3)
        return video_mask(scene, n, mask, err);
    if (*n >= b)
        *n = b;
    if (*n == 1 || *n == b)
        return BERTH_OK;
    if (b % *n)
        return err_set(err, BERTH_EINVAL, "%zu masks for a batch of %zu", *n, b);
    float *p = take(scene, b * hw, sizeof *p, err);
    if (!p)
        return err->code;
    for (size_t i = 0; i < b; i++)
        memcpy(p + i * hw, *mask + i % *n * hw, hw * sizeof *p);
    *mask = p;
    *n = b;
    return BERTH_OK;
}

static berth_status resolve_mask(struct node_call *c, const struct cond_entry *e,
                                 const struct cond_scene *scene, struct guide_cond *g,
                                 berth_err *err)
{
    if (sized_mask(c, e->mask, scene, false, &g->mask_n, &g->mask, err))
        return err->code;
    if (e->mask_bounds) {
        g->has_area = true;
        g->area = mask_box(g->mask, g->mask_n, (size_t)shape_last(&scene->shape, 2),
                           (size_t)shape_last(&scene->shape, 1));
    }
    return batch_mask(scene, &g->mask_n, &g->mask, err);
}

/* ---- what inpainting networks see ---- */

size_t cond_spread(size_t i, size_t have, size_t want)
{
    if (have == want || want <= 1)
        return i;
    double at = want < have ? nearbyint((double)i * ((double)(have - 1) / (double)(want - 1)))
                            : floor(((double)i + 0.5) * ((double)have / (double)want));
    return (size_t)at < have ? (size_t)at : have - 1;
}

/* The picture's latents, [*n, c, h, w] of the latent's size; scaled: with the model's process in.
 * None: what is painted into. */
static berth_status concat_latent(struct node_call *c, const struct cond_entry *e,
                                  const struct cond_scene *scene, bool scaled, size_t *n,
                                  const float **out, berth_err *err)
{
    const struct shape *s = &scene->shape;
    struct htensor *t = e->concat_latent, *to = NULL;
    char text[SHAPE_TEXT_MAX];
    *n = (size_t)s->dim[0];
    *out = scene->latent;
    if (!t)
        return BERTH_OK;
    if (!latent_is(&scene->info->latent, &t->shape) ||
        (t->shape.ndim == 5 && t->shape.dim[2] != s->dim[2]))
        return err_set(err, BERTH_EINVAL, "a latent %s to paint into; the model has %llu channels",
                       shape_text(&t->shape, text), (unsigned long long)s->dim[1]);
    *n = dim(t, 0);
    size_t h = (size_t)shape_last(s, 2), w = (size_t)shape_last(s, 1);
    size_t each = (size_t)shape_inner(s, 1);
    float *p = take(scene, *n * each, sizeof *p, err);
    if (!p)
        return err->code;
    if (shape_last(&t->shape, 2) == h && shape_last(&t->shape, 1) == w)
        to = htensor_ref(t);
    else if (scale_planes(c, t, w, h, "bilinear", true, &to, err))
        return err->code;
    memcpy(p, to->data, *n * each * sizeof *p);
    struct shape shape = to->shape;
    htensor_unref(to);
    if (scaled) /* linear in each value: after resizing is the same */
        latent_in(&scene->info->latent, p, &shape);
    *out = p;
    return BERTH_OK;
}

/* [batch, c, h, w]: the picture that instructions are about (InstructPix2Pix). Without one: the
 * network's own, zeros. */
static berth_status resolve_edited(struct node_call *c, const struct cond_entry *e,
                                   const struct cond_scene *scene, const float **out,
                                   berth_err *err)
{
    const struct shape *s = &scene->shape;
    size_t b = (size_t)s->dim[0], each = (size_t)shape_inner(s, 1), latents;
    const float *latent;
    if (!e->concat_latent)
        return BERTH_OK;
    if (concat_latent(c, e, scene, scene->info->scaled_edit, &latents, &latent, err))
        return err->code;
    float *p = take(scene, b * each, sizeof *p, err);
    if (!p)
        return err->code;
    for (size_t i = 0; i < b; i++)
        memcpy(p + i * each, latent + cond_spread(i, latents, b) * each, each * sizeof *p);
    *out = p;
    return BERTH_OK;
}

/* Planes of fold * h x fold * w: the mask of the picture's pixels, as the prompt or the latent has
 * it. NULL: there is none. */
static berth_status pixel_mask(struct node_call *c, const struct cond_entry *e,
                               const struct cond_scene *scene, struct htensor **out, berth_err *err)
{
    const struct shape *s = &scene->shape;
    const size_t hw = (size_t)shape_inner(s, 2), fold = scene->info->mask_fold;
    struct htensor *from = e->concat_mask ? htensor_ref(e->concat_mask) : NULL;
    *out = NULL;
    if (!from && !scene->mask)
        return BERTH_OK;
    if (!from) { /* channels have it alike: the first one's */
        struct shape m = { 3, { s->dim[0], s->dim[2], s->dim[3] } };
        if (htensor_new(&m, &from, err))
            return err->code;
        for (size_t i = 0; i < (size_t)s->dim[0]; i++)
            memcpy(from->data + i * hw, scene->mask + i * (size_t)s->dim[1] * hw,
                   hw * sizeof *from->data);
    }
    berth_status bad =
        htensor_count(from) ? BERTH_OK : err_set(err, BERTH_EINVAL, "a mask without pixels");
    if (!bad)
        bad = scale_planes(c, from, fold * (size_t)s->dim[3], fold * (size_t)s->dim[2], "bilinear",
                           true, out, err);
    htensor_unref(from);
    return bad;
}

/* out [fold * fold, h, w]: the pixels of every latent pixel, row by row, as its channels. */
static void fold_mask(const float *mask, size_t h, size_t w, size_t fold, float *out)
{
    for (size_t k = 0; k < fold * fold; k++)
        for (size_t y = 0; y < h; y++)
            for (size_t x = 0; x < w; x++)
                *out++ = mask[(y * fold + k / fold) * (w * fold) + x * fold + k % fold];
}

/* One item of it: latent NULL: zeros in the model's scale; mask NULL: all is to be painted. */
static void fill_item(const struct cond_scene *scene, const float *latent, const float *mask,
                      float *out)
{
    const size_t h = (size_t)scene->shape.dim[2], w = (size_t)scene->shape.dim[3];
    const size_t fold = scene->info->mask_fold, n = (size_t)shape_inner(&scene->shape, 1);
    struct shape one = scene->shape;
    one.dim[0] = 1;
    if (latent) {
        memcpy(out, latent, n * sizeof *out);
    } else {
        memset(out, 0, n * sizeof *out);
        latent_in(&scene->info->latent, out, &one);
    }
    if (mask)
        fold_mask(mask, h, w, fold, out + n);
    for (size_t k = 0; !mask && k < fold * fold * h * w; k++)
        out[n + k] = 1.0f;
}

/* [batch, c + fold * fold, h, w]: what is there, and where to paint, by the pixel. None of both
 * said: the network's own. */
static berth_status resolve_fill(struct node_call *c, const struct cond_entry *e,
                                 const struct cond_scene *scene, const float **out, berth_err *err)
{
    const size_t b = (size_t)scene->shape.dim[0], n = (size_t)shape_inner(&scene->shape, 1);
    const size_t fold = scene->info->mask_fold;
    const size_t m = fold * fold * (size_t)shape_inner(&scene->shape, 2);
    const float *latent = NULL;
    struct htensor *mask = NULL;
    size_t latents = 0;
    if (!e->concat_latent && !e->concat_mask && !scene->mask)
        return BERTH_OK;
    if ((e->concat_latent && concat_latent(c, e, scene, true, &latents, &latent, err)) ||
        pixel_mask(c, e, scene, &mask, err))
        return err->code;
    float *p = take(scene, b * (n + m), sizeof *p, err);
    const size_t masks = mask ? htensor_count(mask) / m : 0;
    for (size_t i = 0; p && i < b; i++)
        fill_item(scene, latent ? latent + cond_spread(i, latents, b) * n : NULL,
                  mask ? mask->data + cond_spread(i, masks, b) * m : NULL, p + i * (n + m));
    htensor_unref(mask);
    *out = p;
    return p ? BERTH_OK : err->code;
}

/* [batch, 1 + c, h, w]: where to paint, and what is there. None of both said: the network's own. */
static berth_status resolve_concat(struct node_call *c, const struct cond_entry *e,
                                   const struct cond_scene *scene, const float **out,
                                   berth_err *err)
{
    const struct shape *s = &scene->shape;
    size_t b = (size_t)s->dim[0], ch = (size_t)s->dim[1], hw = (size_t)shape_inner(s, 2);
    size_t masks = b, latents, apart = e->concat_mask ? hw : ch * hw; /* the first channel's */
    const float *mask = scene->mask, *latent;
    *out = NULL;
    if (scene->info->video_concat)
        return video_concat(c, e, scene, out, err);
    if (!scene->info->inpaint && scene->info->in_channels == 2 * ch)
        return resolve_edited(c, e, scene, out, err);
    if (scene->info->mask_fold)
        return resolve_fill(c, e, scene, out, err);
    if (!scene->info->inpaint || (!mask && !e->concat_mask))
        return BERTH_OK;
    if (scene->info->in_channels != 2 * ch + 1)
        return err_set(err, BERTH_EUNSUPPORTED, "a network with %llu input channels",
                       (unsigned long long)scene->info->in_channels);
    if (e->concat_mask && (sized_mask(c, e->concat_mask, scene, true, &masks, &mask, err) ||
                           (s->ndim == 5 && video_mask(scene, &masks, &mask, err))))
        return err->code;
    if (concat_latent(c, e, scene, true, &latents, &latent, err))
        return err->code;
    float *p = take(scene, b * (1 + ch) * hw, sizeof *p, err);
    if (!p)
        return err->code;
    *out = p;
    for (size_t i = 0; i < b; i++, p += (1 + ch) * hw) {
        for (size_t k = 0; k < hw; k++)
            p[k] = nearbyintf(mask[cond_spread(i, masks, b) * apart + k]);
        memcpy(p + hw, latent + cond_spread(i, latents, b) * ch * hw, ch * hw * sizeof *p);
    }
    return BERTH_OK;
}

/* ---- pictures to look at ---- */

/* First to last; of a batch of pictures that were seen the first counts. */
static berth_status resolve_rows(const struct cond_ref *from, const struct cond_scene *scene,
                                 const struct diffusion_rows **out, size_t *count, berth_err *err)
{
    size_t n = cond_refs(from);
    struct diffusion_rows *list = n ? take(scene, n, sizeof *list, err) : NULL;
    if (n && !list)
        return err->code;
    *out = list;
    *count = n;
    for (; from; from = from->before) {
        const struct shape *s = &from->latent->shape;
        const bool seen = s->ndim == 4;
        if (seen && s->dim[0] > 1)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "%llu pictures seen at once: one picture at a time is looked at here",
                           (unsigned long long)s->dim[0]);
        list[--n] = (struct diffusion_rows) { .x = from->latent->data,
                                              .n = seen ? s->dim[1] * s->dim[2] : s->dim[1],
                                              .width = s->dim[s->ndim - 1],
                                              .rows = seen ? s->dim[1] : 0,
                                              .cols = seen ? s->dim[2] : 0 };
    }
    return BERTH_OK;
}

/* Texts around pictures, and what an encoder saw of them. */
static berth_status resolve_beside(const struct cond_entry *e, const struct cond_scene *scene,
                                   struct diffusion_cond *to, berth_err *err)
{
    if (!scene->info->beside || (!e->ref_text && !e->ref_seen))
        return BERTH_OK;
    struct diffusion_beside *b = take(scene, 1, sizeof *b, err);
    if (!b)
        return err->code;
    *b = (struct diffusion_beside) { .texts = 0 };
    to->beside = b;
    if (scene->info->seen_dim && resolve_rows(e->ref_seen, scene, &b->seen, &b->seens, err))
        return err->code;
    return resolve_rows(e->ref_text, scene, &b->text, &b->texts, err);
}

/* In the model's scale, first to last. A picture is video of one frame. */
static berth_status resolve_refs(struct node_call *c, const struct cond_entry *e,
                                 const struct cond_scene *scene, struct diffusion_cond *to,
                                 berth_err *err)
{
    const struct latent_format *f = &scene->info->latent;
    size_t n = cond_refs(e->ref);
    if (!n)
        return BERTH_OK;
    if (!scene->info->refs) { /* as in ComfyUI; here it is said */
        log_warn(c->env->log, "node.conditioning",
                 "node=%s pictures=%zu why=\"%s takes none to look at: left out\"", c->id, n,
                 scene->info->family);
        return BERTH_OK;
    }
    struct diffusion_ref *list = take(scene, n, sizeof *list, err);
    if (!list)
        return err->code;
    to->ref = list;
    to->refs = n;
    to->ref_method = e->ref_method;
    for (const struct cond_ref *r = e->ref; r; r = r->before) {
        struct shape s = r->latent->shape;
        float *x = take(scene, htensor_count(r->latent), sizeof *x, err);
        if (!x)
            return err->code;
        if (s.ndim == 4 && f->rank == 3)
            s = (struct shape) { 5, { s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3] } };
        memcpy(x, r->latent->data, htensor_count(r->latent) * sizeof *x);
        latent_in(f, x, &s);
        list[--n] = (struct diffusion_ref) { .shape = s, .x = x };
    }
    return resolve_beside(e, scene, to, err);
}

/* ---- frames at the end of a video ---- */

static berth_status resolve_guides(struct node_call *c, const struct cond_entry *e,
                                   const struct cond_scene *scene, struct diffusion_cond *to,
                                   berth_err *err)
{
    size_t n = cond_guides(e->guide);
    if (!n)
        return BERTH_OK;
    if (!scene->info->guides) { /* as in ComfyUI; here it is said */
        log_warn(c->env->log, "node.conditioning",
                 "node=%s guides=%zu why=\"%s takes none: left out\"", c->id, n,
                 scene->info->family);
        return BERTH_OK;
    }
    if (e->area_kind != AREA_NONE)
        return err_set(err, BERTH_EUNSUPPORTED, "guides together with areas of prompts");
    struct diffusion_guide *list = take(scene, n, sizeof *list, err);
    if (!list)
        return err->code;
    to->guide = list;
    to->guides = n;
    for (const struct cond_guide *g = e->guide; g; g = g->before)
        list[--n] =
            (struct diffusion_guide) { .frames = g->frames,
                                       .rows = g->rows,
                                       .columns = g->columns,
                                       .at = g->at,
                                       .first = g->first,
                                       .spread = g->spread,
                                       .strength = (float)g->strength,
                                       .weight = g->weight ? g->weight->data : NULL,
                                       .weights = g->weight ? htensor_count(g->weight) : 0 };
    return BERTH_OK;
}

/* ---- boxes with texts ---- */

static berth_status resolve_boxes(const struct cond_entry *e, const struct cond_scene *scene,
                                  struct sampled_cond *to, berth_err *err)
{
    size_t n = cond_boxes(e->box);
    if (!n)
        return BERTH_OK;
    struct gligen_box *list = take(scene, n, sizeof *list, err);
    if (!list)
        return err->code;
    to->cond.box = list;
    to->cond.boxes = n;
    to->gligen = &e->gligen->model;
    for (const struct cond_box *b = e->box; b; b = b->before)
        list[--n] = (struct gligen_box) {
            .text = b->text->data, .h = b->h, .w = b->w, .y = b->y, .x = b->x
        };
    return BERTH_OK;
}

/* What one says, with the boxes of the other. NULL: no memory. */
static const struct sampled_cond *boxed_as(const struct cond_scene *scene,
                                           const struct sampled_cond *says,
                                           const struct sampled_cond *as, berth_err *err)
{
    if (says->cond.box == as->cond.box)
        return says;
    struct sampled_cond *made = take(scene, 1, sizeof *made, err);
    if (!made)
        return NULL;
    *made = *says;
    made->gligen = as->gligen;
    made->cond.box = as->cond.box;
    made->cond.boxes = as->cond.boxes;
    return made;
}

/* Boxes of `from` go to the prompts of `to` that have no area, one after the other and over again:
 * the negative looks at the positive's. What has an area keeps its own. */
static berth_status spread_boxes(const struct cond_list *from, struct cond_list *to,
                                 const struct cond_scene *scene, berth_err *err)
{
    size_t takers = 0, given = 0;
    for (size_t i = 0; i < to->at.n; i++) {
        const struct guide_cond *g = vec_at(&to->at, i);
        if (!g->has_area && ((const struct sampled_cond *)g->cond)->gligen)
            return BERTH_OK; /* it has some of its own */
        takers += !g->has_area;
    }
    for (size_t i = 0; takers && i < from->at.n; i++) {
        const struct guide_cond *g = vec_at(&from->at, i);
        const struct sampled_cond *s = g->cond;
        if (g->has_area || !s->gligen)
            continue;
        for (size_t k = 0, at = given++ % takers; k < to->at.n; k++) {
            struct guide_cond *taker = vec_at(&to->at, k);
            if (taker->has_area || at--)
                continue;
            if (!(taker->cond = boxed_as(scene, taker->cond, s, err)))
                return err->code;
            break;
        }
    }
    return BERTH_OK;
}

/* ---- padding of prompts ---- */

static berth_status resolve_shown(const struct cond_entry *e, const struct cond_scene *scene,
                                  struct diffusion_cond *to, berth_err *err)
{
    if (!e->shown)
        return BERTH_OK;
    if (htensor_count(e->shown) != to->tokens)
        return err_set(err, BERTH_EINVAL,
                       "a prompt of %zu tokens; what of them is text is said for %zu", to->tokens,
                       htensor_count(e->shown));
    bool *hidden = take(scene, to->tokens, sizeof *hidden, err);
    if (!hidden)
        return err->code;
    for (size_t i = 0; i < to->tokens; i++)
        hidden[i] = e->shown->data[i] == 0;
    to->hidden = hidden;
    return BERTH_OK;
}

/* ---- what attention adds ---- */

static berth_status resolve_bias(const struct cond_entry *e, const struct cond_scene *scene,
                                 struct diffusion_cond *to, berth_err *err)
{
    if (!e->bias)
        return BERTH_OK;
    if (!scene->info->biases)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "%s takes no bias for tokens of a prompt (strength_type attn_bias)",
                       scene->info->family);
    if (dim(e->bias, 0) != to->tokens + 1 || dim(e->bias, 1) != to->tokens + 1)
        return err_set(err, BERTH_EINVAL,
                       "a prompt of %zu tokens; what attention adds is said for %zu", to->tokens,
                       dim(e->bias, 0) - 1);
    to->bias = e->bias->data;
    return BERTH_OK;
}

/* ---- pictures that unCLIP is told of ---- */

static berth_status resolve_unclip(struct node_call *c, const struct cond_entry *e,
                                   const struct cond_scene *scene, struct diffusion_cond *to,
                                   berth_err *err)
{
    const struct diffusion_info *info = scene->info;
    float *told;
    if (info->adm == ADM_UNCLIP) { /* of texts it is told nothing but their tokens */
        to->pooled = NULL;
        to->pooled_n = 0;
    }
    if (!e->unclip)
        return BERTH_OK;
    if (!info->unclip) { /* as in ComfyUI; here it is said */
        log_warn(c->env->log, "node.conditioning",
                 "node=%s why=\"%s is not told of pictures (unCLIP): left out\"", c->id,
                 info->family);
        return BERTH_OK;
    }
    if (unclip_vector(e->unclip, info, scene->seed, scene->mem, &told, err))
        return err->code;
    to->pooled = told;
    to->pooled_n = (size_t)info->unclip * (info->adm == ADM_UNCLIP ? 2 : 1);
    return BERTH_OK;
}

/* ---- what control nets are told ---- */

static berth_status resolve_told(const struct cond_entry *e, const struct cond_scene *scene,
                                 struct diffusion_cond *to, berth_err *err)
{
    const struct htensor *t = e->control_text;
    if (!t)
        return BERTH_OK;
    if (dim(t, 2) != scene->info->context_dim || !dim(t, 1))
        return err_set(err, BERTH_EINVAL,
                       "a text for control nets of width %zu; %s wants %llu: is it of another "
                       "model's text encoder?",
                       dim(t, 2), scene->info->family,
                       (unsigned long long)scene->info->context_dim);
    to->control_context = t->data;
    to->control_tokens = dim(t, 1);
    return BERTH_OK;
}

/* ---- one prompt ---- */

static struct diffusion_size size_of(const struct cond_entry *e, const struct cond_scene *scene)
{
    struct diffusion_size z = e->size;
    if (!z.said) { /* of the whole picture, also where a prompt has an area of it */
        z.said = true;
        z.width = (uint32_t)shape_last(&scene->shape, 1) * scene->info->latent.ratio;
        z.height = (uint32_t)shape_last(&scene->shape, 2) * scene->info->latent.ratio;
        z.target_width = z.width;
        z.target_height = z.height;
    }
    return z;
}

static berth_status resolve(struct node_call *c, const struct cond_entry *e, bool negative,
                            const struct cond_scene *scene, struct guide_cond *g, berth_err *err)
{
    struct sampled_cond *x = take(scene, 1, sizeof *x, err);
    if (!x)
        return err->code;
    *x = (struct sampled_cond) { .cond = { .context = e->cond->data,
                                           .tokens = dim(e->cond, 1),
                                           .width = dim(e->cond, 2),
                                           .pooled = e->pooled ? e->pooled->data : NULL,
                                           .pooled_n = e->pooled ? htensor_count(e->pooled) : 0,
                                           .size = size_of(e, scene),
                                           .negative = negative,
                                           .frame_rate = e->frame_rate,
                                           .guided = e->guided,
                                           .guidance = (float)e->guidance },
                                 .with = scene->model,
                                 .hooks = e->hooks,
                                 .control = e->control,
                                 .control_to_all = e->control_to_all };
    *g = (struct guide_cond) { .cond = x,
                               .strength = e->strength,
                               .mask_strength = e->mask_strength,
                               .has_area = e->area_kind != AREA_NONE,
                               .sigma_start = HUGE_VAL };
    if (resolve_refs(c, e, scene, &x->cond, err) || resolve_shown(e, scene, &x->cond, err) ||
        resolve_guides(c, e, scene, &x->cond, err) || resolve_bias(e, scene, &x->cond, err) ||
        resolve_unclip(c, e, scene, &x->cond, err) || resolve_boxes(e, scene, x, err) ||
        resolve_told(e, scene, &x->cond, err) || video_extras(c, e, scene, &x->cond, err))
        return err->code;
    if (scene->several) {
        if (g->has_area || e->mask || e->concat_latent || e->concat_mask || e->control)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "areas, masks, pictures and control nets of prompts cannot be used with "
                           "several latents at once");
    } else if (resolve_concat(c, e, scene, &x->concat, err)) {
        return err->code;
    }
    if (g->has_area && read_area(e, scene, &g->area, err))
        return err->code;
    if (e->mask && resolve_mask(c, e, scene, g, err))
        return err->code;
    g->otherwise = e->otherwise;
    double start = e->ranged ? e->start_percent : 0, end = e->ranged ? e->end_percent : 1;
    if (e->clip_ranged) {
        start = fmax(start, e->clip_start);
        end = fmin(end, e->clip_end);
    }
    if (e->ranged || e->clip_ranged) {
        g->sigma_start = ms_percent(scene->ms, start);
        g->sigma_end = ms_percent(scene->ms, end);
    }
    return BERTH_OK;
}

berth_status conds_resolve(struct node_call *c, const struct conditioning *x, bool negative,
                           const struct cond_scene *scene, struct cond_list *out, berth_err *err)
{
    out->at.elem = sizeof(struct guide_cond);
    for (size_t i = 0; x && i < x->n; i++) {
        if (i % BETWEEN_CHECKS == 0 && call_check(c, err))
            return err->code;
        struct guide_cond *g = vec_add(&out->at);
        if (!g)
            return err_set(err, BERTH_ENOMEM, "%zu prompts", x->n);
        if (resolve(c, &x->at[i], negative, scene, g, err))
            return err_add(err, "prompt %zu of a conditioning", i + 1);
    }
    return BERTH_OK;
}

/* ---- pairs ---- */

static bool inside(const struct guide_area *a, const struct guide_area *b)
{
    return a->y >= b->y && a->x >= b->x && a->y + a->h <= b->y + b->h && a->x + a->w <= b->x + b->w;
}

static bool same_area(const struct guide_area *a, const struct guide_area *b)
{
    return a->h == b->h && a->w == b->w && a->y == b->y && a->x == b->x;
}

/* What stands against c in a list: its prompt with the smallest area around c's. NULL: none. */
static const struct guide_cond *against(const struct cond_list *list, const struct guide_cond *c)
{
    const struct guide_cond *best = NULL;
    for (size_t i = 0; i < list->at.n; i++) {
        const struct guide_cond *x = vec_at(&list->at, i);
        if (!x->has_area)
            best = best ? best : x;
        else if (inside(&c->area, &x->area) &&
                 (!best || !best->has_area ||
                  (uint64_t)best->area.h * best->area.w > (uint64_t)x->area.h * x->area.w))
            best = x;
    }
    return best;
}

/* What x says, steered as c is. NULL: no memory. */
static const struct sampled_cond *steered_as(const struct cond_scene *scene, const void *x,
                                             const void *c)
{
    const struct sampled_cond *says = x, *as = c;
    if (says->control == as->control)
        return says;
    struct sampled_cond *made = arena_array(scene->mem, 1, sizeof *made);
    if (!made)
        return NULL;
    *made = *says;
    made->control = as->control;
    return made;
}

static berth_status pair(struct cond_list *list, const struct guide_cond *c,
                         const struct cond_scene *scene, berth_err *err)
{
    const struct guide_cond *x = against(list, c);
    if (!x || (x->has_area && same_area(&x->area, &c->area)))
        return BERTH_OK;
    /* Where and when it counts, which boxes it has and what steers it are c's, what it says is
     * x's. */
    struct guide_cond made = *c;
    const struct sampled_cond *boxed = boxed_as(scene, x->cond, c->cond, err);
    if (!boxed)
        return err->code;
    made.cond = steered_as(scene, boxed, c->cond);
    struct guide_cond *at = made.cond ? vec_add(&list->at) : NULL;
    if (!at)
        return err_set(err, BERTH_ENOMEM, "%zu prompts", list->at.n);
    *at = made;
    return BERTH_OK;
}

static berth_status cut(struct guide_cond *g, const struct shape *s, berth_err *err)
{
    struct guide_area *a = &g->area;
    uint64_t h = shape_last(s, 2), w = shape_last(s, 1);
    if (!g->has_area)
        return BERTH_OK;
    if (a->y >= h || a->x >= w || !a->h || !a->w)
        return err_set(err, BERTH_EINVAL,
                       "an area of %ux%u at %u, %u lies outside of a latent of %llux%llu", a->w,
                       a->h, a->x, a->y, (unsigned long long)w, (unsigned long long)h);
    a->h = a->h < h - a->y ? a->h : (uint32_t)(h - a->y);
    a->w = a->w < w - a->x ? a->w : (uint32_t)(w - a->x);
    return BERTH_OK;
}

/* Controls of `from` that are for all go to the prompts of `to` that have no area, one after the
 * other and over again; unless one of those has some of its own. */
static berth_status spread_controls(const struct cond_list *from, struct cond_list *to,
                                    const struct cond_scene *scene, berth_err *err)
{
    size_t takers = 0, given = 0;
    for (size_t i = 0; i < to->at.n; i++) {
        const struct guide_cond *g = vec_at(&to->at, i);
        const struct sampled_cond *s = g->cond;
        if (!g->has_area && s->control)
            return BERTH_OK;
        takers += !g->has_area;
    }
    for (size_t i = 0; takers && i < from->at.n; i++) {
        const struct guide_cond *g = vec_at(&from->at, i);
        const struct sampled_cond *s = g->cond;
        if (g->has_area || !s->control || !s->control_to_all)
            continue;
        for (size_t k = 0, at = given++ % takers; k < to->at.n; k++) {
            struct guide_cond *taker = vec_at(&to->at, k);
            if (taker->has_area || at--)
                continue;
            if (!(taker->cond = steered_as(scene, taker->cond, g->cond)))
                return err_set(err, BERTH_ENOMEM, "a prompt");
            break;
        }
    }
    return BERTH_OK;
}

berth_status conds_pair(struct node_call *c, struct cond_list *list, size_t lists,
                        const struct cond_scene *scene, berth_err *err)
{
    for (size_t k = 0; k < lists; k++)
        for (size_t i = 0; i < list[k].at.n; i++) {
            struct guide_cond g = *(struct guide_cond *)vec_at(&list[k].at, i);
            if (i % BETWEEN_CHECKS == 0 && call_check(c, err))
                return err->code;
            for (size_t o = 0; g.has_area && o < lists; o++)
                if (o != k && pair(&list[o], &g, scene, err))
                    return err->code;
        }
    for (size_t k = 1; k < lists; k++)
        if (spread_controls(&list[0], &list[k], scene, err) ||
            spread_boxes(&list[0], &list[k], scene, err))
            return err->code;
    for (size_t k = 0; k < lists; k++)
        for (size_t i = 0; i < list[k].at.n; i++)
            if (cut(vec_at(&list[k].at, i), &scene->shape, err))
                return err->code;
    return BERTH_OK;
}
