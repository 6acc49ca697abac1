/* scale.c: pictures and latents to another size, as ComfyUI's nodes ask for it. */
#include "node/node_impl.h"
#include "op/resize.h"

#include <math.h>
#include <string.h>

berth_status round_side(double x, size_t *out, berth_err *err)
{
    double r = nearbyint(x); /* to even, as Python rounds */
    if (!(r >= 0 && r <= (double)SIDE_MAX))
        return err_set(err, BERTH_EINVAL, "a side of %g pixels", x);
    *out = (size_t)r;
    return BERTH_OK;
}

static berth_status parse(const char *method, size_t w, size_t h, enum resize *m, berth_err *err)
{
    if (!resize_parse(method, m))
        return err_set(err, BERTH_EINVAL, "'%s' is no way to resize", method);
    if (!w || !h || w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a size of %zux%zu", w, h);
    return BERTH_OK;
}

/* The part `r` of n pictures [h, w, c]; `to` is new. */
static berth_status crop(const struct htensor *t, size_t n, size_t h, size_t w, size_t c,
                         const struct resize_crop *r, struct htensor **to, berth_err *err)
{
    berth_status s = image_tensor(n, r->h, r->w, c, to, err);
    if (!s)
        copy_part(t->data, h, w, c, n, (struct part) { r->y, r->x, r->h, r->w }, (*to)->data);
    return s;
}

/* t seen as n pictures [h, w, c], cut to the new aspect if asked for, and resized into dst. */
static berth_status resize(struct node_call *call, enum resize m, const struct htensor *t,
                           struct resize_shape d, bool center, struct htensor *dst, berth_err *err)
{
    const float *src = t->data;
    struct htensor *cut = NULL;
    berth_status s = call_check(call, err);
    if (!s && center) {
        struct resize_crop r = resize_center(d.w, d.h, d.ow, d.oh);
        if (r.w != d.w || r.h != d.h) {
            s = crop(t, d.n, d.h, d.w, d.c, &r, &cut, err);
            src = s ? NULL : cut->data;
            d.w = r.w;
            d.h = r.h;
        }
    }
    if (!s)
        s = op_resize(m, &d, src, dst->data, call->env->pool, cancel_of(call), err);
    htensor_unref(cut);
    return s;
}

berth_status scale_image(struct node_call *c, const struct htensor *t, size_t w, size_t h,
                         const char *method, bool center, struct htensor **out, berth_err *err)
{
    enum resize m;
    berth_status s = parse(method, w, h, &m, err);
    *out = NULL;
    if (!s)
        s = image_tensor(dim(t, 0), h, w, dim(t, 3), out, err);
    if (s)
        return s;
    struct resize_shape d = {
        .n = dim(t, 0), .h = dim(t, 1), .w = dim(t, 2), .c = dim(t, 3), .oh = h, .ow = w
    };
    return htensor_made(resize(c, m, t, d, center, *out, err), out);
}

/* [n, c, frames, h, w]: each frame on its own, with its channels together. */
static berth_status bislerp(struct node_call *call, const struct htensor *t, struct resize_shape d,
                            size_t frames, struct htensor *dst, berth_err *err)
{
    size_t in = d.h * d.w, out = d.oh * d.ow;
    struct htensor *a = NULL, *b = NULL;
    struct resize_shape one = d;
    one.n = 1;
    if (frames == 1)
        return op_bislerp(&d, t->data, dst->data, call->env->pool, cancel_of(call), err);
    berth_status s = mask_tensor(d.c, d.h, d.w, &a, err);
    if (!s)
        s = mask_tensor(d.c, d.oh, d.ow, &b, err);
    for (size_t i = 0; !s && i < d.n * frames; i++) {
        size_t n = i / frames, f = i % frames;
        for (size_t c = 0; c < d.c; c++)
            memcpy(a->data + c * in, t->data + ((n * d.c + c) * frames + f) * in,
                   in * sizeof(float));
        s = call_check(call, err);
        if (!s)
            s = op_bislerp(&one, a->data, b->data, call->env->pool, cancel_of(call), err);
        for (size_t c = 0; !s && c < d.c; c++)
            memcpy(dst->data + ((n * d.c + c) * frames + f) * out, b->data + c * out,
                   out * sizeof(float));
    }
    htensor_unref(a);
    htensor_unref(b);
    return s;
}

berth_status scale_planes(struct node_call *c, const struct htensor *t, size_t w, size_t h,
                          const char *method, bool center, struct htensor **out, berth_err *err)
{
    enum resize m;
    int nd = t->shape.ndim;
    struct shape to = t->shape;
    berth_status s = parse(method, w, h, &m, err);
    *out = NULL;
    if (s || nd < 2)
        return s ? s : err_set(err, BERTH_EINVAL, "a tensor of %d dimensions has no sides", nd);
    to.dim[nd - 2] = h;
    to.dim[nd - 1] = w;
    if (htensor_new(&to, out, err))
        return err->code;
    struct resize_shape d = { .h = dim(t, nd - 2), .w = dim(t, nd - 1), .c = 1, .oh = h, .ow = w };
    size_t plane = d.h * d.w;
    d.n = plane ? htensor_count(t) / plane : 0;
    if (!d.n) {
        s = err_set(err, BERTH_EINVAL, "an empty tensor cannot be resized");
    } else if (m != RESIZE_BISLERP) {
        s = resize(c, m, t, d, center, *out, err);
    } else if (nd < 4) {
        s = err_set(err, BERTH_EINVAL, "bislerp wants channels");
    } else {
        struct htensor *cut = NULL;
        struct resize_crop r = resize_center(d.w, d.h, w, h);
        if (center && (r.w != d.w || r.h != d.h)) {
            s = crop(t, d.n, d.h, d.w, 1, &r, &cut, err);
            d.w = r.w;
            d.h = r.h;
        }
        size_t frames = d.n / (dim(t, 0) * dim(t, 1));
        d.n = dim(t, 0);
        d.c = dim(t, 1);
        if (!s)
            s = bislerp(c, cut ? cut : t, d, frames, *out, err);
        htensor_unref(cut);
    }
    return htensor_made(s, out);
}
