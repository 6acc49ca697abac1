/* The doors of the VAE: batches, and pictures <-> what the network takes. */
#include "model/vae_impl.h"

#include "base/sz.h"

#include <stdlib.h>

static berth_status check(const struct vae_job *j, bool decode, size_t h, size_t w, berth_err *err)
{
    if (!(decode ? j->vae->decoder : j->vae->encoder))
        return err_set(err, BERTH_EUNSUPPORTED, "this VAE has no %s",
                       decode ? "decoder" : "encoder");
    if (!h || !w || (!decode && (h % j->vae->latent.ratio || w % j->vae->latent.ratio)))
        return err_set(err, BERTH_EINVAL, "a %s of %zu x %zu for a VAE of ratio %u",
                       decode ? "latent" : "picture", w, h, j->vae->latent.ratio);
    return BERTH_OK;
}

/* Elements of an item's picture and of its latent; h and w are the latent's. */
static berth_status item_sizes(const struct vae_job *j, size_t h, size_t w, size_t *pixels,
                               size_t *latent, berth_err *err)
{
    size_t r = j->vae->latent.ratio;
    size_t frames = latent_frames(&j->vae->latent, vae_frames(j));
    if (!sz_mul(h, w, latent) || !sz_mul(*latent, 3 * r * r, pixels) ||
        !sz_mul(*pixels, frames, pixels) || !sz_mul(*latent, vae_frames(j), latent) ||
        !sz_mul(*latent, j->vae->latent.channels, latent) || *pixels > SIZE_MAX / sizeof(float))
        return err_set(err, BERTH_ELIMIT, "a latent of %zu x %zu", w, h);
    return BERTH_OK;
}

berth_status vae_decode(struct vae_job *j, const float *z, size_t n, size_t h, size_t w, float *out,
                        berth_err *err)
{
    struct vae_way way = vae_way(j, true);
    size_t pixels = 0, latent = 0;
    if (check(j, true, h, w, err) || item_sizes(j, h, w, &pixels, &latent, err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        if (vae_item(j, &way, (struct vae_progress) { i, n }, z + i * latent, h, w,
                     out + i * pixels, err))
            return err->code;
    return BERTH_OK;
}

berth_status vae_encode(struct vae_job *j, const float *x, size_t n, size_t h, size_t w, float *out,
                        berth_err *err)
{
    struct vae_way way = vae_way(j, false);
    size_t pixels = 0, latent = 0;
    if (check(j, false, h, w, err) ||
        item_sizes(j, h / j->vae->latent.ratio, w / j->vae->latent.ratio, &pixels, &latent, err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        if (vae_item(j, &way, (struct vae_progress) { i, n }, x + i * pixels, h, w,
                     out + i * latent, err))
            return err->code;
    return BERTH_OK;
}

berth_status vae_decode_image(struct vae_job *j, const float *z, size_t n, size_t h, size_t w,
                              float *out, berth_err *err)
{
    struct vae_way way = vae_way(j, true);
    size_t pixels = 0, latent = 0;
    if (check(j, true, h, w, err) || item_sizes(j, h, w, &pixels, &latent, err))
        return err->code;
    float *raw = malloc(pixels * sizeof *raw); /* [3, h * r, w * r] */
    if (!raw)
        return err_set(err, BERTH_ENOMEM, "a picture of %zu values", pixels);
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < n && !s; i++) {
        float *image = out + i * pixels;
        s = vae_item(j, &way, (struct vae_progress) { i, n }, z + i * latent, h, w, raw, err);
        for (size_t p = 0; p < pixels / 3 && !s; p++)
            for (size_t c = 0; c < 3; c++) {
                float y = (raw[c * (pixels / 3) + p] + 1.0f) / 2.0f;
                image[3 * p + c] = y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
            }
    }
    free(raw);
    return s;
}

void vae_encoded_size(const struct vae_net *v, size_t h, size_t w, size_t *lh, size_t *lw)
{
    *lh = h / v->latent.ratio;
    *lw = w / v->latent.ratio;
}

berth_status vae_encode_image(struct vae_job *j, const float *image, size_t n, size_t h, size_t w,
                              size_t c, float *out, berth_err *err)
{
    struct vae_way way = vae_way(j, false);
    size_t r = j->vae->latent.ratio, ch = h / r * r, cw = w / r * r, pixels = 0, latent = 0;
    if (c < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels for a VAE", c);
    if (check(j, false, ch, cw, err) || item_sizes(j, h / r, w / r, &pixels, &latent, err))
        return err->code;
    float *x = malloc(pixels * sizeof *x); /* [3, ch, cw] */
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a picture of %zu values", pixels);
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < n && !s; i++) {
        /* what is cut is cut at all sides alike */
        const float *from = image + i * h * w * c + (h % r / 2 * w + w % r / 2) * c;
        for (size_t y = 0; y < ch; y++)
            for (size_t p = 0; p < cw; p++)
                for (size_t k = 0; k < 3; k++)
                    x[(k * ch + y) * cw + p] = from[(y * w + p) * c + k] * 2.0f - 1.0f;
        s = vae_item(j, &way, (struct vae_progress) { i, n }, x, ch, cw, out + i * latent, err);
    }
    free(x);
    return s;
}

/* The forms of vae_tile.c: as asked, wide, tall. */
static berth_status predict(struct vae_job *j, bool decode, size_t h, size_t w, uint64_t *peak,
                            berth_err *err)
{
    size_t x = j->tile_x, y = j->tile_y ? j->tile_y : x;
    const size_t form[3][2] = { { x, y }, { 2 * x, y / 2 }, { x / 2, 2 * y } };
    *peak = 0;
    if (check(j, decode, h, w, err))
        return err->code;
    for (size_t i = 0; i < (x ? 3 : 1); i++) {
        uint64_t one;
        struct vae_pass p = { .vae = j->vae,
                              .frames = vae_frames(j),
                              .h = x && form[i][1] < h ? form[i][1] : h,
                              .w = x && form[i][0] < w ? form[i][0] : w };
        if (net_predict(j->net, vae_way(j, decode).forward, &p, &one, err))
            return err->code;
        *peak = one > *peak ? one : *peak;
    }
    return BERTH_OK;
}

berth_status vae_predict_decode(struct vae_job *j, size_t h, size_t w, uint64_t *peak,
                                berth_err *err)
{
    return predict(j, true, h, w, peak, err);
}

berth_status vae_predict_encode(struct vae_job *j, size_t h, size_t w, uint64_t *peak,
                                berth_err *err)
{
    return predict(j, false, h, w, peak, err);
}
