/* preview: a step's picture as clients get it. */
#include "base/sz.h"
#include "op/resize.h"
#include "server/events.h"

#define QUALITY 95

/* The largest size of the same aspect inside a square, at least one pixel each way. */
static void fit(const struct image *im, unsigned size, uint32_t *w, uint32_t *h)
{
    uint64_t longer = im->w > im->h ? im->w : im->h;
    *w = (uint32_t)(((uint64_t)im->w * size * 2 + longer) / (longer * 2));
    *h = (uint32_t)(((uint64_t)im->h * size * 2 + longer) / (longer * 2));
    *w = *w ? *w : 1;
    *h = *h ? *h : 1;
}

/* 8 bits -> floats -> another size -> 8 bits. */
static berth_status resize(const struct image *im, struct image *out, struct tpool *pool,
                           berth_err *err)
{
    struct resize_shape s = {
        .n = 1, .h = im->h, .w = im->w, .c = im->channels, .oh = out->h, .ow = out->w
    };
    size_t from = s.h * s.w * s.c, to = s.oh * s.ow * s.c, all; /* both images exist: they fit */
    float *src = NULL;
    if (sz_add(from, to, &all) && sz_mul(all, sizeof *src, &all))
        src = malloc(all);
    if (!src)
        return err_set(err, BERTH_ENOMEM, "a preview of %u x %u", out->w, out->h);
    float *dst = src + from;
    for (size_t i = 0; i < from; i++)
        src[i] = im->px[i];
    bool shrinks = out->w < im->w || out->h < im->h;
    berth_status st =
        op_resize(shrinks ? RESIZE_AREA : RESIZE_BILINEAR, &s, src, dst, pool, NULL, err);
    for (size_t i = 0; !st && i < to; i++) {
        float v = dst[i] + 0.5f;
        out->px[i] = v < 1 ? 0 : v >= 255 ? 255 : (uint8_t)v;
    }
    free(src);
    return st;
}

berth_status preview_encode(const struct image *im, bool png, unsigned size, struct tpool *pool,
                            struct str *out, berth_err *err)
{
    uint32_t w, h;
    if (!im->w || !im->h)
        return err_set(err, BERTH_EINVAL, "a preview of %u x %u pixels", im->w, im->h);
    if (png)
        return image_png(im, &(struct image_png_args) { .level = 1 }, out, err);
    fit(im, size, &w, &h);
    if (w == im->w && h == im->h)
        return image_jpeg(im, QUALITY, out, err);
    struct image small = { 0 };
    berth_status st = image_init(&small, w, h, im->channels, err);
    st = st ? st : resize(im, &small, pool, err);
    st = st ? st : image_jpeg(&small, QUALITY, out, err);
    image_release(&small);
    return st ? err_add(err, "preview") : BERTH_OK;
}
