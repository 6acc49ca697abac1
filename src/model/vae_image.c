/* The doors of the VAE: batches, and pictures <-> what the network takes. */
#include "model/vae_impl.h"

#include "base/sz.h"

#include <stdlib.h>

/* ---- shapes ---- */

struct shape vae_decoded(const struct vae_net *v, const struct shape *latents)
{
    struct shape s = *latents;
    s.dim[1] = v->colours;
    if (v->latent.rank == 3)
        s.dim[2] = latent_frames(&v->latent, (size_t)s.dim[2]);
    s.dim[s.ndim - 2] *= v->latent.ratio;
    s.dim[s.ndim - 1] *= v->latent.ratio;
    return s;
}

struct shape vae_encoded(const struct vae_net *v, const struct shape *pictures)
{
    struct shape s = *pictures;
    s.dim[1] = v->latent.channels;
    if (v->latent.rank == 3)
        s.dim[2] = (s.dim[2] + v->latent.time_ratio - 1) / v->latent.time_ratio;
    s.dim[s.ndim - 2] /= v->latent.ratio;
    s.dim[s.ndim - 1] /= v->latent.ratio;
    return s;
}

struct shape vae_pictures(const struct vae_net *v, const struct shape *image)
{
    struct shape s = *image;
    for (int i = s.ndim - 1; i > 1; i--)
        s.dim[i] = image->dim[i - 1];
    s.dim[1] = v->colours;
    s = vae_encoded(v, &s);
    return vae_decoded(v, &s);
}

/* What comes in and out of the whole batch fits, and is what this half takes. */
static berth_status check(const struct vae_job *j, bool decode, const struct shape *s,
                          berth_err *err)
{
    const struct latent_format *f = &j->vae->latent;
    char text[SHAPE_TEXT_MAX];
    uint64_t n;
    if (!(decode ? j->vae->decoder : j->vae->encoder))
        return err_set(err, BERTH_EUNSUPPORTED, "this VAE has no %s",
                       decode ? "decoder" : "encoder");
    if (s->ndim != 2 + f->rank || s->dim[1] != (decode ? f->channels : j->vae->colours))
        return err_set(err, BERTH_EINVAL, "%s is no batch of %s of this VAE", shape_text(s, text),
                       decode ? "latents" : "pictures");
    uint64_t h = shape_last(s, 2), w = shape_last(s, 1);
    struct shape other = decode ? vae_decoded(j->vae, s) : vae_encoded(j->vae, s);
    struct shape back = decode ? *s : vae_decoded(j->vae, &other);
    if ((shape_count(s, &n) && !n) || !shape_eq(&back, s))
        return err_set(err, BERTH_EINVAL, "a %s of %llu x %llu for a VAE of ratio %u",
                       decode ? "latent" : "picture", (unsigned long long)w, (unsigned long long)h,
                       f->ratio);
    /* Sides that a picture could not have could overflow in vae_decoded(). */
    if (h > UINT32_MAX || w > UINT32_MAX || !shape_count(decode ? &other : s, &n) ||
        n > SIZE_MAX / sizeof(float))
        return err_set(err, BERTH_ELIMIT, "a latent of %llu x %llu", (unsigned long long)w,
                       (unsigned long long)h);
    return BERTH_OK;
}

/* ---- pictures ---- */

/* [c, ..., h, w] to [..., h, w, c]. */
static void to_image(const float *raw, const struct shape *s, float *image)
{
    size_t pixels = (size_t)shape_inner(s, 2), colours = (size_t)s->dim[1];
    for (size_t p = 0; p < pixels; p++)
        for (size_t c = 0; c < colours; c++) {
            float y = (raw[c * pixels + p] + 1.0f) / 2.0f;
            image[colours * p + c] = y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
        }
}

/* [..., h, w, c] of `image` to [colours, ..., h, w] of `s`, which is cut at both sides alike. Where
 * it has fewer channels the rest is 1. */
static void from_image(const float *image, const struct shape *is, const struct shape *s,
                       float *raw)
{
    const size_t ih = (size_t)shape_last(is, 3), iw = (size_t)shape_last(is, 2);
    const size_t h = (size_t)shape_last(s, 2), w = (size_t)shape_last(s, 1);
    const size_t c = (size_t)shape_last(is, 1), frames = (size_t)shape_inner(s, 2) / (h * w);
    const float *from = image + ((ih - h) / 2 * iw + (iw - w) / 2) * c;
    for (size_t k = 0; k < (size_t)s->dim[1]; k++)
        for (size_t f = 0; f < frames; f++)
            for (size_t y = 0; y < h; y++)
                for (size_t x = 0; x < w; x++)
                    *raw++ = k < c ? from[((f * ih + y) * iw + x) * c + k] * 2.0f - 1.0f : 1.0f;
}

/* ---- batches ---- */

/* image: of pictures as nodes have them, on their side of the VAE; NULL: as the network has
 * them. */
static berth_status run(struct vae_job *j, bool decode, const float *in, const struct shape *s,
                        float *out, const struct shape *image, berth_err *err)
{
    const struct vae_way way = vae_way(j, decode);
    struct vae_item item = { .way = &way, .in = *s, .items = (size_t)s->dim[0] };
    if (check(j, decode, s, err))
        return err->code;
    item.in.dim[0] = 1;
    item.out = decode ? vae_decoded(j->vae, &item.in) : vae_encoded(j->vae, &item.in);
    const size_t ins = (size_t)shape_inner(image && !decode ? image : s, 1);
    const size_t outs = (size_t)shape_inner(&item.out, 1);
    const size_t pixels = (size_t)shape_inner(decode ? &item.out : s, 1);
    float *raw = image ? malloc(pixels * sizeof *raw) : NULL;
    if (image && !raw)
        return err_set(err, BERTH_ENOMEM, "a picture of %zu values", pixels);
    berth_status st = BERTH_OK;
    for (; item.i < item.items && !st; item.i++) {
        const float *from = in + item.i * ins;
        float *to = out + item.i * outs;
        if (raw && !decode)
            from_image(from, image, &item.in, raw);
        st = vae_item(j, &item, raw && !decode ? raw : from, raw && decode ? raw : to, err);
        if (raw && decode && !st)
            to_image(raw, &item.out, to);
    }
    free(raw);
    return st;
}

berth_status vae_decode(struct vae_job *j, const float *z, const struct shape *s, float *out,
                        berth_err *err)
{
    return run(j, true, z, s, out, NULL, err);
}

berth_status vae_encode(struct vae_job *j, const float *x, const struct shape *s, float *out,
                        berth_err *err)
{
    return run(j, false, x, s, out, NULL, err);
}

berth_status vae_decode_image(struct vae_job *j, const float *z, const struct shape *s, float *out,
                              berth_err *err)
{
    return run(j, true, z, s, out, s, err);
}

berth_status vae_encode_image(struct vae_job *j, const float *image, const struct shape *s,
                              float *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (s->ndim != 2 + j->vae->latent.rank)
        return err_set(err, BERTH_EINVAL, "%s are no pictures for this VAE", shape_text(s, text));
    if (shape_last(s, 1) < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %llu channels for a VAE",
                       (unsigned long long)shape_last(s, 1));
    const struct shape cut = vae_pictures(j->vae, s);
    return run(j, false, image, &cut, out, s, err);
}

/* The forms of vae_tile.c: as asked, wide, tall; of video the first alone. */
berth_status vae_predict(struct vae_job *j, bool decode, const struct shape *s, uint64_t *peak,
                         berth_err *err)
{
    size_t x = j->tile_x, y = j->tile_y ? j->tile_y : x;
    const size_t form[3][2] = { { y, x }, { y / 2, 2 * x }, { 2 * y, x / 2 } };
    *peak = 0;
    if (check(j, decode, s, err))
        return err->code;
    for (size_t i = 0; i < (x ? vae_forms(j->vae) : 1); i++) {
        uint64_t one;
        struct vae_pass p = { .vae = j->vae, .shape = *s };
        p.shape.dim[0] = 1;
        for (int k = 0; k < 2 && x; k++) {
            uint64_t *side = &p.shape.dim[s->ndim - 2 + k];
            *side = form[i][k] < *side ? form[i][k] : *side;
        }
        if (net_predict(j->net, vae_way(j, decode).forward, &p, &one, err))
            return err->code;
        *peak = one > *peak ? one : *peak;
    }
    return BERTH_OK;
}
