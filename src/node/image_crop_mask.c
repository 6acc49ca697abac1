/* image_crop_mask.c: ImageCropToMask: what a mask shows, in the middle of a picture of its own. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define FAINT 0.05f /* below it a mask is nothing */
#define SOLID 204   /* of 255: above it the subject is there */

struct subject {                  /* one picture; tensors owned */
    struct htensor *image, *mask; /* [1,h,w,3], [1,h,w,1] */
    size_t w, h;                  /* of the result */
    double pad;
    int64_t grow;
    float back[3];
};

static void subject_release(struct subject *s)
{
    htensor_unref(s->image);
    htensor_unref(s->mask);
    s->image = s->mask = NULL;
}

/* Takes the place of what was there. */
static void put(struct htensor **at, struct htensor *taken)
{
    htensor_unref(*at);
    *at = taken;
}

static double mean_of(const struct htensor *m, struct part p)
{
    double sum = 0;
    for (size_t y = p.y; y < p.y + p.h; y++)
        for (size_t x = p.x; x < p.x + p.w; x++)
            sum += (double)m->data[y * dim(m, 2) + x];
    return sum;
}

/* Bright around a dark middle: it shows what is not wanted. */
static bool is_inverted(const struct htensor *m)
{
    size_t h = dim(m, 1), w = dim(m, 2);
    struct part middle = { h / 4, w / 4, h - 2 * (h / 4), w - 2 * (w / 4) };
    double border =
        mean_of(m, (struct part) { 0, 0, 1, w }) + mean_of(m, (struct part) { h - 1, 0, 1, w }) +
        mean_of(m, (struct part) { 0, 0, h, 1 }) + mean_of(m, (struct part) { 0, w - 1, h, 1 });
    return border / (2.0 * (double)(w + h)) > 0.5 &&
           mean_of(m, middle) / (double)(middle.w * middle.h) < 0.5;
}

static void invert(struct htensor *m)
{
    for (size_t i = 0, n = htensor_count(m); i < n; i++)
        m->data[i] = 1.0f - m->data[i];
}

static berth_status prepare_mask(struct node_call *c, struct subject *s, berth_err *err)
{
    if (is_inverted(s->mask))
        invert(s->mask);
    if (s->grow) {
        struct htensor *grown;
        size_t k = 2 * (size_t)(s->grow < 0 ? -s->grow : s->grow) + 1;
        if (spread_pixels(c, s->mask, k, s->grow > 0, &grown, err))
            return err->code;
        put(&s->mask, grown);
    }
    for (size_t i = 0, n = htensor_count(s->mask); i < n; i++)
        s->mask->data[i] = s->mask->data[i] < FAINT ? 0.0f : s->mask->data[i];
    return BERTH_OK;
}

/* No side longer than the result's longer one. */
static berth_status limit_size(struct node_call *c, struct subject *s, berth_err *err)
{
    size_t h = dim(s->image, 1), w = dim(s->image, 2), most = s->w > s->h ? s->w : s->h;
    size_t longer = h > w ? h : w;
    struct htensor *small;
    if (longer <= most)
        return BERTH_OK;
    double by = (double)most / (double)longer;
    size_t nw = (size_t)((double)w * by), nh = (size_t)((double)h * by);
    if (scale_image(c, s->image, nw, nh, "lanczos", false, &small, err))
        return err->code;
    put(&s->image, small);
    if (scale_image(c, s->mask, nw, nh, "lanczos", false, &small, err))
        return err->code;
    put(&s->mask, small);
    return BERTH_OK;
}

/* Where the mask is solid (or, inverted, where it is not there): first and last row and column.
 * False: nowhere. */
static bool solid_box(const struct htensor *m, bool inverted, ptrdiff_t box[4])
{
    bool any = false;
    for (size_t y = 0; y < dim(m, 1); y++)
        for (size_t x = 0; x < dim(m, 2); x++) {
            int v = (int)(clamp01(m->data[y * dim(m, 2) + x]) * 255.0f);
            if ((inverted ? 255 - v : v) <= SOLID)
                continue;
            ptrdiff_t at[4] = { (ptrdiff_t)x, (ptrdiff_t)y, (ptrdiff_t)x, (ptrdiff_t)y };
            for (int k = 0; k < 4; k++)
                box[k] = !any ? at[k] : (k < 2 ? at[k] < box[k] : at[k] > box[k]) ? at[k] : box[k];
            any = true;
        }
    return any;
}

/* The part to cut: left, top, right, bottom; it may reach beyond the picture. */
static void part_of(struct subject *s, ptrdiff_t out[4])
{
    ptrdiff_t box[4] = { 0 };
    bool solid = solid_box(s->mask, false, box);
    if (!solid && solid_box(s->mask, true, box)) {
        invert(s->mask);
        solid = true;
    }
    if (!solid) {
        memcpy(out,
               ((ptrdiff_t[4]) { 0, 0, (ptrdiff_t)dim(s->mask, 2), (ptrdiff_t)dim(s->mask, 1) }),
               4 * sizeof *out);
        return;
    }
    double w = (double)(box[2] - box[0] + 1), h = (double)(box[3] - box[1] + 1);
    double aspect = (double)s->w / (double)s->h;
    double cw = trunc((w / h >= aspect ? w : h * aspect) * s->pad);
    double ch = trunc((w / h >= aspect ? w / aspect : h) * s->pad);
    double half_w = ceil(cw / 2), half_h = ceil(ch / 2);
    out[0] = (ptrdiff_t)trunc((double)(box[0] + box[2]) / 2 - half_w);
    out[1] = (ptrdiff_t)trunc((double)(box[1] + box[3]) / 2 - half_h);
    out[2] = out[0] + 2 * (ptrdiff_t)half_w;
    out[3] = out[1] + 2 * (ptrdiff_t)half_h;
}

/* That part over the background; outside of the picture there is only background. */
static berth_status composite(const struct subject *s, const ptrdiff_t p[4], struct htensor **out,
                              berth_err *err)
{
    size_t w = (size_t)(p[2] - p[0]), h = (size_t)(p[3] - p[1]);
    size_t W = dim(s->image, 2), H = dim(s->image, 1);
    if (p[2] <= p[0] || p[3] <= p[1])
        return err_set(err, BERTH_EINVAL, "nothing to cut from %zux%zu", W, H);
    if (image_tensor(1, h, w, 3, out, err))
        return err->code;
    for (size_t i = 0; i < w * h; i++) {
        ptrdiff_t x = p[0] + (ptrdiff_t)(i % w), y = p[1] + (ptrdiff_t)(i / w);
        bool in = x >= 0 && y >= 0 && (size_t)x < W && (size_t)y < H;
        size_t at = in ? (size_t)y * W + (size_t)x : 0;
        float m = in ? s->mask->data[at] : 0.0f;
        for (int k = 0; k < 3; k++)
            (*out)->data[3 * i + (size_t)k] = clamp01(
                (in ? s->image->data[3 * at + (size_t)k] : 0.0f) * m + s->back[k] * (1.0f - m));
    }
    return BERTH_OK;
}

/* Picture i, three channels of it, and its mask: both within 0..1. */
static berth_status take(const struct htensor *images, const struct htensor *masks, size_t i,
                         struct subject *s, berth_err *err)
{
    size_t px = dim(images, 1) * dim(images, 2), ch = dim(images, 3);
    if (image_tensor(1, dim(images, 1), dim(images, 2), 3, &s->image, err) ||
        image_tensor(1, dim(images, 1), dim(images, 2), 1, &s->mask, err))
        return err->code;
    for (size_t p = 0; p < px; p++) {
        for (size_t k = 0; k < 3; k++)
            s->image->data[3 * p + k] = clamp01(images->data[(i * px + p) * ch + k]);
        s->mask->data[p] = clamp01(masks->data[i % dim(masks, 0) * px + p]);
    }
    return BERTH_OK;
}

static berth_status one(struct node_call *c, struct subject *s, float *out, berth_err *err)
{
    struct htensor *cut = NULL, *fit = NULL;
    ptrdiff_t p[4];
    berth_status st = prepare_mask(c, s, err);
    if (!st)
        st = limit_size(c, s, err);
    if (!st) {
        part_of(s, p);
        st = composite(s, p, &cut, err);
    }
    if (!st)
        st = scale_image(c, cut, s->w, s->h, "lanczos", false, &fit, err);
    if (!st)
        memcpy(out, fit->data, htensor_count(fit) * sizeof *out);
    htensor_unref(cut);
    htensor_unref(fit);
    return st;
}

static berth_status in_settings(struct node_call *c, struct subject *s, berth_err *err)
{
    const struct value *v = in_value(c, "background");
    uint8_t rgb[3] = { 0, 0, 0 };
    uint64_t w, h;
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_f64(c, "pad_factor", &s->pad, err) || in_i64(c, "grow_mask", &s->grow, err))
        return err->code;
    if (!w || !h || w > SIDE_MAX || h > SIDE_MAX || !(s->pad > 0 && s->pad < 1000) ||
        s->grow < -MAX_SIDE || s->grow > MAX_SIDE)
        return err_set(err, BERTH_EINVAL,
                       "%" PRIu64 "x%" PRIu64 " with pad_factor %g and grow_mask %" PRId64, w, h,
                       s->pad, s->grow);
    s->w = w;
    s->h = h;
    const char *text = v && v->kind == V_STRING ? v->s.p : "";
    text += strspn(text, "#");
    if (strlen(text) == 6 && !parse_hex_color(text, 3, rgb))
        return err_set(err, BERTH_EINVAL, "background '%.40s' is no colour", text);
    for (int k = 0; k < 3; k++)
        s->back[k] = (float)rgb[k] / 255.0f;
    return BERTH_OK;
}

static berth_status run(struct node_call *c, berth_err *err)
{
    struct htensor *images, *masks, *fit = NULL, *o = NULL;
    struct subject s = { 0 };
    if (in_image(c, "images", &images, err) || in_mask(c, "masks", &masks, err) ||
        in_settings(c, &s, err))
        return err->code;
    if (dim(images, 3) < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels has no colours",
                       dim(images, 3));
    if (dim(masks, 0) != 1 && dim(masks, 0) != dim(images, 0))
        return err_set(err, BERTH_EINVAL, "Mask batch %zu does not match image batch %zu",
                       dim(masks, 0), dim(images, 0));
    berth_status st =
        scale_planes(c, masks, dim(images, 2), dim(images, 1), "bilinear", false, &fit, err);
    if (!st)
        st = image_tensor(dim(images, 0), s.h, s.w, 3, &o, err);
    for (size_t i = 0; !st && i < dim(images, 0); i++) {
        st = take(images, fit, i, &s, err);
        if (!st)
            st = one(c, &s, o->data + i * s.w * s.h * 3, err);
        subject_release(&s);
    }
    htensor_unref(fit);
    return give_tensor(c, st, o, err);
}

NODE_CLASS(ImageCropToMask, .display = "Crop Image to Mask", .category = "image/transform",
           V3("images"),
           INS(SOCKET("images", "IMAGE"), SOCKET("masks", "MASK"),
               INT_IN("width", 1024, 64, 4096, 8), INT_IN("height", 1024, 64, 4096, 8),
               FLOAT_IN("pad_factor", 1.0, 1.0, 2.0, 0.01), INT_IN("grow_mask", 0, -32, 32, 1),
               COLOR_IN("background", "#000000")),
           OUTS({ .type = "IMAGE", .name = "images" }), .run = run);
