/* image_batches.c: as many pictures, masks or latents as people connect, in one batch. */
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 50

struct batch { /* what was made ready, in order: references */
    struct htensor *at[BATCH_MAX];
    size_t n;
};

static void batch_release(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        htensor_unref(b->at[i]);
    *b = (struct batch) { 0 };
}

/* One behind the other; the same shape except for dimension 0. */
static berth_status batch_join(const struct batch *b, struct htensor **out, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    struct shape s = b->at[0]->shape;
    uint64_t items = 0;
    for (size_t i = 0; i < b->n; i++) {
        struct shape other = b->at[i]->shape;
        items += other.dim[0];
        other.dim[0] = s.dim[0];
        if (!shape_eq(&s, &other))
            return err_set(err, BERTH_EINVAL, "%s and %s cannot be in one batch",
                           shape_text(&b->at[0]->shape, ta), shape_text(&b->at[i]->shape, tb));
    }
    s.dim[0] = items;
    berth_status st = htensor_new(&s, out, err);
    float *to = st ? NULL : (*out)->data;
    for (size_t i = 0; !st && i < b->n; to += htensor_count(b->at[i]), i++)
        memcpy(to, b->at[i]->data, htensor_count(b->at[i]) * sizeof *to);
    return st;
}

/* What is connected, one after the other; NULL: no more. The template has BATCH_MAX members. */
static const struct value *next_of(struct node_call *c, const char *group, size_t *at,
                                   const char **name)
{
    const struct values *all = in_member(c, group, at, name);
    return all ? all->at[0] : NULL;
}

static berth_status no_tensor(const char *name, const struct value *v, int ndim, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    bool is = v->kind == V_TENSOR;
    return err_set(err, BERTH_EINVAL, "input '%s' is no %s%s%s", name, ndim == 4 ? "IMAGE" : "MASK",
                   is ? " but a tensor " : "", is ? shape_text(&v->tensor->shape, text) : "");
}

/* All members as tensors of ndim dimensions. */
static berth_status gather(struct node_call *c, const char *group, int ndim, struct batch *b,
                           berth_err *err)
{
    const struct value *v;
    const char *name = NULL;
    for (size_t at = 0; b->n < BATCH_MAX && (v = next_of(c, group, &at, &name));) {
        if (v->kind != V_TENSOR || v->tensor->shape.ndim != ndim || !htensor_count(v->tensor))
            return no_tensor(name, v, ndim, err);
        b->at[b->n++] = htensor_ref(v->tensor);
    }
    return b->n ? BERTH_OK : err_set(err, BERTH_EINVAL, "nothing is connected to '%s'", group);
}

/* b->at[i] becomes what was made of it. */
static void replace(struct batch *b, size_t i, struct htensor *taken)
{
    htensor_unref(b->at[i]);
    b->at[i] = taken;
}

/* Pictures with fewer channels than others get one more, of ones: an alpha. */
static berth_status same_channels(struct batch *b, berth_err *err)
{
    size_t most = 0;
    for (size_t i = 0; i < b->n; i++)
        most = dim(b->at[i], 3) > most ? dim(b->at[i], 3) : most;
    for (size_t i = 0; i < b->n; i++) {
        struct htensor *wide;
        if (dim(b->at[i], 3) == most)
            continue;
        if (widen_image(b->at[i], dim(b->at[i], 3) + 1, 1.0f, &wide, err))
            return err->code;
        replace(b, i, wide);
    }
    return BERTH_OK;
}

/* In the sides of the first. */
static berth_status same_sides(struct node_call *c, struct batch *b, berth_err *err)
{
    size_t h = dim(b->at[0], 1), w = dim(b->at[0], 2);
    for (size_t i = 1; i < b->n; i++) {
        struct htensor *t = b->at[i], *fit;
        if (dim(t, 1) == h && dim(t, 2) == w)
            continue;
        berth_status s = t->shape.ndim == 4 ? scale_image(c, t, w, h, "bilinear", true, &fit, err)
                                            : scale_planes(c, t, w, h, "bilinear", true, &fit, err);
        if (s)
            return s;
        replace(b, i, fit);
    }
    return BERTH_OK;
}

static berth_status batch_tensors(struct node_call *c, const char *group, int ndim, berth_err *err)
{
    struct batch b = { 0 };
    struct htensor *o = NULL;
    berth_status s = gather(c, group, ndim, &b, err);
    if (!s && ndim == 4)
        s = same_channels(&b, err);
    if (!s)
        s = same_sides(c, &b, err);
    if (!s)
        s = batch_join(&b, &o, err);
    batch_release(&b);
    return give_tensor(c, s, o, err);
}

static berth_status images_run(struct node_call *c, berth_err *err)
{
    return batch_tensors(c, "images", 4, err);
}
NODE_CLASS(BatchImagesNode, .display = "Batch Images", .category = "image/batch",
           V3("post_processing"), .essentials = "Image Tools",
           INS(AUTOGROW_IN("images", "image", 1, BATCH_MAX, SOCKET("image", "IMAGE"))),
           OUT(out_image), .run = images_run);

static berth_status masks_run(struct node_call *c, berth_err *err)
{
    return batch_tensors(c, "masks", 3, err);
}
NODE_CLASS(BatchMasksNode, .display = "Batch Masks", .category = "image/mask",
           V3("post_processing"),
           INS(AUTOGROW_IN("masks", "mask", 1, BATCH_MAX, SOCKET("mask", "MASK"))), OUT(out_mask),
           .run = masks_run);

/* ---- latents: each brings the numbers of its items ---- */

struct latents {
    struct batch b;
    const struct latent *from[BATCH_MAX];
};

/* All members, in the sides of the first. */
static berth_status gather_latents(struct node_call *c, struct latents *l, berth_err *err)
{
    const struct value *v;
    const char *name = NULL;
    for (size_t at = 0; l->b.n < BATCH_MAX && (v = next_of(c, "latents", &at, &name));) {
        if (v->kind != V_LATENT)
            return err_set(err, BERTH_EINVAL, "input '%s' is no LATENT", name);
        if (latent_single(name, &v->latent, err))
            return err->code;
        struct htensor *t = v->latent.samples, *fit = NULL;
        const struct htensor *first = l->b.n ? l->b.at[0] : t;
        int d = first->shape.ndim;
        if (d >= 3 && t->shape.ndim == d &&
            (dim(t, d - 1) != dim(first, d - 1) || dim(t, d - 2) != dim(first, d - 2)) &&
            scale_planes(c, t, dim(first, d - 1), dim(first, d - 2), "bilinear", true, &fit, err))
            return err->code;
        l->from[l->b.n] = &v->latent;
        l->b.at[l->b.n++] = fit ? fit : htensor_ref(t);
    }
    return l->b.n ? BERTH_OK : err_set(err, BERTH_EINVAL, "nothing is connected to 'latents'");
}

static berth_status latents_index(const struct latents *l, size_t items, int64_t **out,
                                  berth_err *err)
{
    int64_t *to = *out = calloc(items ? items : 1, sizeof *to);
    if (!to)
        return err_set(err, BERTH_ENOMEM, "indices of %zu latents", items);
    for (size_t i = 0; i < l->b.n; i++)
        for (size_t k = 0; k < dim(l->from[i]->samples, 0); k++)
            *to++ = l->from[i]->batch_index ? l->from[i]->batch_index[k] : (int64_t)k;
    return BERTH_OK;
}

static berth_status latents_run(struct node_call *c, berth_err *err)
{
    struct latents l = { 0 };
    struct latent o = { 0 };
    berth_status s = gather_latents(c, &l, err);
    if (!s)
        s = batch_join(&l.b, &o.samples, err);
    if (!s)
        s = latents_index(&l, dim(o.samples, 0), &o.batch_index, err);
    if (!s && l.from[0]->noise_mask)
        o.noise_mask = htensor_ref(l.from[0]->noise_mask);
    batch_release(&l.b);
    return give_or_release(c, s, &o, err);
}
NODE_CLASS(BatchLatentsNode, .display = "Batch Latents", .category = "model/latent/batch",
           V3("post_processing"),
           INS(AUTOGROW_IN("latents", "latent", 1, BATCH_MAX, SOCKET("latent", "LATENT"))),
           OUT(out_latent), .run = latents_run);
