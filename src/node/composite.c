/* composite.c: pictures over pictures, and with transparency. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <string.h>

struct paste {                           /* source over destination at (x, y), mixed by mask */
    const struct htensor *source, *mask; /* [n,h,w,c], [m,h,w]; mask NULL: all */
    size_t x, y;
};

static void paste_into(struct htensor *o, const struct paste *p)
{
    size_t H = dim(o, 1), W = dim(o, 2), C = dim(o, 3);
    size_t h = dim(p->source, 1), w = dim(p->source, 2), cs = dim(p->source, 3);
    h = p->y < H ? (h < H - p->y ? h : H - p->y) : 0;
    w = p->x < W ? (w < W - p->x ? w : W - p->x) : 0;
    for (size_t i = 0; i < dim(o, 0); i++)
        for (size_t y = 0; y < h; y++)
            for (size_t x = 0; x < w; x++) {
                size_t from = i % dim(p->source, 0);
                const float *s =
                    p->source->data + ((from * dim(p->source, 1) + y) * dim(p->source, 2) + x) * cs;
                float *d = o->data + ((i * H + p->y + y) * W + p->x + x) * C;
                float m = 1.0f;
                if (p->mask)
                    m = p->mask
                            ->data[((i % dim(p->mask, 0)) * dim(p->mask, 1) + y) * dim(p->mask, 2) +
                                   x];
                for (size_t k = 0; k < C; k++) /* an alpha the source lacks is opaque */
                    d[k] = m * (k < cs ? s[k] : 1.0f) + (1.0f - m) * d[k];
            }
}

static berth_status masked_run(struct node_call *c, berth_err *err)
{
    struct htensor *d, *src, *mask = NULL, *fit = NULL, *mfit = NULL, *o = NULL;
    uint64_t x, y;
    bool resize;
    berth_status s = BERTH_OK;
    if (in_image(c, "destination", &d, err) || in_image(c, "source", &src, err) ||
        in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err) ||
        in_bool(c, "resize_source", &resize, err) ||
        (in_given(c, "mask") && in_mask(c, "mask", &mask, err)))
        return err->code;
    struct paste p = { .source = src, .x = x, .y = y };
    if (resize) {
        s = scale_image(c, src, dim(d, 2), dim(d, 1), "bilinear", false, &fit, err);
        p.source = fit;
    }
    if (!s && mask) {
        s = scale_planes(c, mask, dim(p.source, 2), dim(p.source, 1), "bilinear", false, &mfit,
                         err);
        p.mask = mfit;
    }
    if (!s)
        s = htensor_copy(d, &o, err);
    if (!s) {
        paste_into(o, &p);
        s = out_tensor(c, 0, o, err);
    }
    htensor_unref(fit);
    htensor_unref(mfit);
    return s;
}

NODE_CLASS(ImageCompositeMasked, .category = "image", V3("mask"),
           INS(SOCKET("destination", "IMAGE"), SOCKET("source", "IMAGE"),
               INT_IN("x", 0, 0, MAX_SIDE, 1), INT_IN("y", 0, 0, MAX_SIDE, 1),
               BOOL_IN("resize_source", false), OPTIONAL("mask", "MASK")),
           OUT(out_image), .run = masked_run);

/* ---- alpha: a mask is what is not there ---- */

static berth_status join_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *m, *fit, *o = NULL;
    if (in_image(c, "image", &t, err) || in_mask(c, "alpha", &m, err))
        return err->code;
    size_t n = dim(t, 0) > dim(m, 0) ? dim(t, 0) : dim(m, 0), ch = dim(t, 3);
    size_t px = dim(t, 1) * dim(t, 2), images = dim(t, 0) * px, masks = dim(m, 0) * px;
    if (ch < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels has no colours", ch);
    if (scale_planes(c, m, dim(t, 2), dim(t, 1), "bilinear", false, &fit, err))
        return err->code;
    berth_status s = image_tensor(n, dim(t, 1), dim(t, 2), 4, &o, err);
    for (size_t i = 0; !s && i < n * px; i++) {
        memcpy(o->data + 4 * i, t->data + i % images * ch, 3 * sizeof(float));
        o->data[4 * i + 3] = 1.0f - fit->data[i % masks];
    }
    htensor_unref(fit);
    return s ? s : out_tensor(c, 0, o, err);
}

NODE_CLASS(JoinImageWithAlpha, .display = "Join Image with Alpha", .category = "mask/compositing",
           V3("compositing"), INS(SOCKET("image", "IMAGE"), SOCKET("alpha", "MASK")),
           OUT(out_image), .run = join_run);

static berth_status split_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o, *m;
    if (in_image(c, "image", &t, err))
        return err->code;
    size_t ch = dim(t, 3), keep = ch < 3 ? ch : 3;
    if (image_tensor(dim(t, 0), dim(t, 1), dim(t, 2), keep, &o, err))
        return err->code;
    berth_status s = mask_tensor(dim(t, 0), dim(t, 1), dim(t, 2), &m, err);
    if (s) {
        htensor_unref(o);
        return s;
    }
    for (size_t i = 0, n = htensor_count(m); i < n; i++) {
        memcpy(o->data + keep * i, t->data + ch * i, keep * sizeof(float));
        m->data[i] = 1.0f - (ch > 3 ? t->data[ch * i + 3] : 1.0f);
    }
    return give_tensors(c, o, m, err);
}

NODE_CLASS(SplitImageWithAlpha, .display = "Split Image with Alpha", .category = "mask/compositing",
           V3("compositing"), INS(SOCKET("image", "IMAGE")), OUT(out_image_mask), .run = split_run);
