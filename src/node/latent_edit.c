/* latent_edit.c: latents resized, turned, cut, mixed and masked. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <string.h>

static berth_status four_dims(const struct latent *l, const char *what, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (l->samples->shape.ndim != 4)
        return err_set(err, BERTH_EINVAL, "%s wants a latent [n, c, h, w] and got %s", what,
                       shape_text(&l->samples->shape, text));
    return BERTH_OK;
}

static berth_status upscale_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const char *method, *crop;
    uint64_t w, h;
    struct htensor *o;
    berth_status s = BERTH_OK;
    if (in_latent(c, "samples", &in, err) || in_text(c, "upscale_method", &method, err) ||
        in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_text(c, "crop", &crop, err))
        return err->code;
    if (!w && !h)
        return give_samples(c, in, htensor_ref(in->samples), err);
    int d = in->samples->shape.ndim;
    double iw = (double)dim(in->samples, d - 1), ih = (double)dim(in->samples, d - 2);
    size_t ow = w > 64 ? w : 64, oh = h > 64 ? h : 64;
    if (!w)
        s = round_side(iw * (double)oh / ih, &ow, err);
    else if (!h)
        s = round_side(ih * (double)ow / iw, &oh, err);
    ow = ow > 64 ? ow : 64;
    oh = oh > 64 ? oh : 64;
    if (!s)
        s = scale_planes(c, in->samples, ow / USUAL_RATIO, oh / USUAL_RATIO, method,
                         !strcmp(crop, "center"), &o, err);
    return s ? s : give_samples(c, in, o, err);
}

NODE_CLASS(LatentUpscale, .display = "Upscale Latent", .category = "latent", .module = "nodes",
           INS(SOCKET("samples", "LATENT"), COMBO_IN("upscale_method", list_resize_latent),
               SIZE_IN(512, 512, 0, 8), COMBO_IN("crop", list_crop)),
           OUT(out_latent), .run = upscale_run);

static berth_status upscale_by_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const char *method;
    double by;
    size_t w, h;
    struct htensor *o;
    if (in_latent(c, "samples", &in, err) || in_text(c, "upscale_method", &method, err) ||
        in_f64(c, "scale_by", &by, err))
        return err->code;
    int d = in->samples->shape.ndim;
    if (round_side((double)dim(in->samples, d - 1) * by, &w, err) ||
        round_side((double)dim(in->samples, d - 2) * by, &h, err) ||
        scale_planes(c, in->samples, w, h, method, false, &o, err))
        return err->code;
    return give_samples(c, in, o, err);
}

NODE_CLASS(LatentUpscaleBy, .display = "Upscale Latent By", .category = "latent", .module = "nodes",
           INS(SOCKET("samples", "LATENT"), COMBO_IN("upscale_method", list_resize_latent),
               FLOAT_IN("scale_by", 1.5, 0.01, 8.0, 0.01)),
           OUT(out_latent), .run = upscale_by_run);

static berth_status move_planes(struct node_call *c, const struct latent *in, bool swap,
                                pixel_from_fn *from, berth_err *err)
{
    const struct htensor *t = in->samples;
    int d = t->shape.ndim;
    size_t h = dim(t, d - 2), w = dim(t, d - 1);
    struct shape to = t->shape;
    struct htensor *o;
    if (swap) {
        to.dim[d - 2] = w;
        to.dim[d - 1] = h;
    }
    if (htensor_new(&to, &o, err))
        return err->code;
    size_t plane = h * w, planes = plane ? htensor_count(t) / plane : 0;
    move_pixels(t->data, planes, h, w, 1, swap, from, o->data);
    return give_samples(c, in, o, err);
}

static berth_status rotate_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const char *how;
    if (in_latent(c, "samples", &in, err) || in_text(c, "rotation", &how, err) ||
        four_dims(in, "LatentRotate", err))
        return err->code;
    switch (*how) {
    case '9':
        return move_planes(c, in, true, from_turned_90, err);
    case '1':
        return move_planes(c, in, false, from_turned_180, err);
    case '2':
        return move_planes(c, in, true, from_turned_270, err);
    }
    return give_samples(c, in, htensor_ref(in->samples), err);
}

NODE_CLASS(LatentRotate, .display = "Rotate Latent", .category = "latent/transform",
           .module = "nodes",
           INS(SOCKET("samples", "LATENT"),
               COMBO_IN("rotation", CHOICES("none", "90 degrees", "180 degrees", "270 degrees"))),
           OUT(out_latent), .run = rotate_run);

static berth_status flip_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const char *how;
    if (in_latent(c, "samples", &in, err) || in_text(c, "flip_method", &how, err) ||
        four_dims(in, "LatentFlip", err))
        return err->code;
    return move_planes(c, in, false, *how == 'x' ? from_flipped_rows : from_flipped_columns, err);
}

NODE_CLASS(LatentFlip, .display = "Flip Latent", .category = "latent/transform", .module = "nodes",
           INS(SOCKET("samples", "LATENT"),
               COMBO_IN("flip_method", CHOICES("x-axis: vertically", "y-axis: horizontally"))),
           OUT(out_latent), .run = flip_run);

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static berth_status crop_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    uint64_t w, h, x, y;
    struct htensor *o;
    if (in_latent(c, "samples", &in, err) || in_u64(c, "width", &w, err) ||
        in_u64(c, "height", &h, err) || in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err) ||
        four_dims(in, "LatentCrop", err))
        return err->code;
    const struct htensor *t = in->samples;
    size_t planes = dim(t, 0) * dim(t, 1), ih = dim(t, 2), iw = dim(t, 3);
    /* at least 8 x 8 latent pixels stay, if there are as many */
    size_t xmax = iw > 8 ? iw - 8 : 0, ymax = ih > 8 ? ih - 8 : 0;
    x = least(x / USUAL_RATIO, xmax);
    y = least(y / USUAL_RATIO, ymax);
    w = least(w / USUAL_RATIO, iw - x);
    h = least(h / USUAL_RATIO, ih - y);
    if (!w || !h)
        return err_set(err, BERTH_EINVAL, "a part of %" PRIu64 "x%" PRIu64, w, h);
    if (htensor_new(&(struct shape) { .ndim = 4, .dim = { dim(t, 0), dim(t, 1), h, w } }, &o, err))
        return err->code;
    copy_part(t->data, ih, iw, 1, planes, (struct part) { y, x, h, w }, o->data);
    return give_samples(c, in, o, err);
}

NODE_CLASS(LatentCrop, .display = "Crop Latent", .category = "latent/transform", .module = "nodes",
           INS(SOCKET("samples", "LATENT"), SIZE_IN(512, 512, 64, 8),
               INT_IN("x", 0, 0, MAX_SIDE, 8), INT_IN("y", 0, 0, MAX_SIDE, 8)),
           OUT(out_latent), .run = crop_run);

/* Strength of the pasted latent at (y, x) of its visible part h x w: it fades over `feather` pixels
 * towards edges that lie inside the other one. */
static float fade(size_t y, size_t x, size_t h, size_t w, size_t feather, const bool inside[4])
{
    float m = 1.0f;
    size_t far[4] = { y, h - 1 - y, x, w - 1 - x };
    for (int e = 0; e < 4; e++)
        if (inside[e] && far[e] < feather)
            m *= (float)((1.0 / (double)feather) * (double)(far[e] + 1));
    return m;
}

static berth_status composite_run(struct node_call *c, berth_err *err)
{
    const struct latent *to, *from;
    uint64_t x, y, feather;
    struct htensor *o;
    if (in_latent(c, "samples_to", &to, err) || in_latent(c, "samples_from", &from, err) ||
        in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err) || in_u64(c, "feather", &feather, err) ||
        four_dims(to, "LatentComposite", err) || four_dims(from, "LatentComposite", err))
        return err->code;
    const struct htensor *a = to->samples, *b = from->samples;
    if (dim(a, 1) != dim(b, 1) || (dim(b, 0) != 1 && dim(a, 0) != dim(b, 0)))
        return err_set(err, BERTH_EINVAL,
                       "%zu latents of %zu channels cannot be put onto %zu of %zu", dim(b, 0),
                       dim(b, 1), dim(a, 0), dim(a, 1));
    if (htensor_copy(a, &o, err))
        return err->code;
    size_t H = dim(a, 2), W = dim(a, 3), bh = dim(b, 2), bw = dim(b, 3);
    x /= USUAL_RATIO;
    y /= USUAL_RATIO;
    feather /= USUAL_RATIO;
    size_t h = y < H ? least(bh, H - y) : 0, w = x < W ? least(bw, W - x) : 0;
    const bool inside[4] = { y != 0, y + h < H, x != 0, x + w < W };
    for (size_t p = 0; p < dim(a, 0) * dim(a, 1); p++) {
        size_t q = dim(b, 0) == 1 ? p % dim(b, 1) : p;
        for (size_t i = 0; i < h; i++)
            for (size_t k = 0; k < w; k++) {
                float *d = o->data + (p * H + y + i) * W + x + k;
                float v = b->data[(q * bh + i) * bw + k];
                float m = feather ? fade(i, k, h, w, feather, inside) : 1.0f;
                *d = feather ? v * m + *d * (1.0f - m) : v;
            }
    }
    return give_samples(c, to, o, err);
}

NODE_CLASS(LatentComposite, .display = "Latent Composite", .category = "latent", .module = "nodes",
           INS(SOCKET("samples_to", "LATENT"), SOCKET("samples_from", "LATENT"),
               INT_IN("x", 0, 0, MAX_SIDE, 8), INT_IN("y", 0, 0, MAX_SIDE, 8),
               INT_IN("feather", 0, 0, MAX_SIDE, 8)),
           OUT(out_latent), .run = composite_run);

static berth_status blend_run(struct node_call *c, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    const struct latent *a, *b;
    struct htensor *fit = NULL, *o = NULL;
    double f;
    berth_status s = BERTH_OK;
    if (in_latent(c, "samples1", &a, err) || in_latent(c, "samples2", &b, err) ||
        in_f64(c, "blend_factor", &f, err))
        return err->code;
    const struct htensor *t = b->samples;
    if (!shape_eq(&a->samples->shape, &t->shape)) {
        if (four_dims(a, "LatentBlend", err) || four_dims(b, "LatentBlend", err) ||
            scale_planes(c, t, dim(a->samples, 3), dim(a->samples, 2), "bicubic", true, &fit, err))
            return err->code;
        t = fit;
    }
    if (t->shape.dim[1] != a->samples->shape.dim[1] ||
        (t->shape.dim[0] != 1 && t->shape.dim[0] != a->samples->shape.dim[0]))
        s = err_set(err, BERTH_EINVAL, "latents %s and %s cannot be mixed",
                    shape_text(&a->samples->shape, ta), shape_text(&t->shape, tb));
    if (!s)
        s = htensor_new(&a->samples->shape, &o, err);
    if (!s) {
        float fa = (float)f, fb = (float)(1 - f);
        for (size_t i = 0, n = htensor_count(o), m = htensor_count(t); i < n; i++)
            o->data[i] = a->samples->data[i] * fa + t->data[i % m] * fb;
    }
    htensor_unref(fit);
    return s ? s : give_samples(c, a, o, err);
}

NODE_CLASS(LatentBlend, .display = "Latent Blend", .category = "_for_testing", .module = "nodes",
           INS(SOCKET("samples1", "LATENT"), SOCKET("samples2", "LATENT"),
               FLOAT_IN("blend_factor", 0.5, 0.0, 1.0, 0.01)),
           OUT(out_latent), .run = blend_run);

static berth_status noise_mask_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct latent l = { 0 };
    struct htensor *m, *copy;
    if (in_latent(c, "samples", &in, err) || in_mask(c, "mask", &m, err))
        return err->code;
    struct shape to = { .ndim = 4, .dim = { dim(m, 0), 1, dim(m, 1), dim(m, 2) } };
    if (htensor_new(&to, &copy, err))
        return err->code;
    memcpy(copy->data, m->data, htensor_count(m) * sizeof(float));
    berth_status s = latent_like(in, &l, err);
    htensor_unref(l.noise_mask);
    l.noise_mask = copy;
    if (s) {
        latent_release(&l);
        return s;
    }
    l.samples = htensor_ref(in->samples);
    return give_latent(c, &l, err);
}

NODE_CLASS(SetLatentNoiseMask, .display = "Set Latent Noise Mask", .category = "latent/inpaint",
           .module = "nodes", INS(SOCKET("samples", "LATENT"), SOCKET("mask", "MASK")),
           OUT(out_latent), .run = noise_mask_run);

static berth_status trim_run(struct node_call *c, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    const struct latent *in;
    uint64_t n;
    struct htensor *o;
    if (in_latent(c, "samples", &in, err) || in_u64(c, "trim_amount", &n, err))
        return err->code;
    const struct htensor *t = in->samples;
    if (t->shape.ndim < 3 || n >= dim(t, 2))
        return err_set(err, BERTH_EINVAL, "%" PRIu64 " frames cannot be cut from %s", n,
                       shape_text(&t->shape, text));
    struct shape to = t->shape;
    to.dim[2] -= n;
    if (htensor_new(&to, &o, err))
        return err->code;
    size_t rows = dim(t, 0) * dim(t, 1), all = htensor_count(t) / rows;
    size_t skip = all / dim(t, 2) * n, keep = all - skip;
    for (size_t i = 0; i < rows; i++)
        memcpy(o->data + i * keep, t->data + i * all + skip, keep * sizeof(float));
    return give_samples(c, in, o, err);
}

NODE_CLASS(TrimVideoLatent, .category = "latent/video", V3("wan"),
           INS(SOCKET("samples", "LATENT"), INT_IN("trim_amount", 0, 0, 99999, 0)), OUT(out_latent),
           .run = trim_run);
