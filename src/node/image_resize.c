/* image_resize.c: ResizeImageMaskNode: a picture or a mask in a size that is said in one of many
 * ways. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct resizing {
    struct htensor *t; /* [n,h,w,c], or [n,h,w] */
    size_t w, h;       /* of it */
    size_t ow, oh;     /* wanted; 0: as it is */
    bool center;
};

static bool is_image(const struct htensor *t)
{
    return t->shape.ndim == 4;
}

/* A picture or a mask; its sides. */
static berth_status in_either(const struct node_call *c, const char *name, struct htensor **t,
                              size_t *w, size_t *h, berth_err *err)
{
    const struct value *v = in_value(c, name);
    bool image = v && v->kind == V_TENSOR && is_image(v->tensor);
    if (image ? in_image(c, name, t, err) : in_mask(c, name, t, err))
        return err->code;
    *h = dim(*t, 1);
    *w = dim(*t, 2);
    return BERTH_OK;
}

/* ---- what size ---- */

static berth_status in_side(struct node_call *c, const char *name, size_t *out, berth_err *err)
{
    uint64_t v;
    if (in_u64(c, name, &v, err))
        return err->code;
    if (v > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "'%s' is %" PRIu64 ", more than %zu", name, v, SIDE_MAX);
    *out = v;
    return BERTH_OK;
}

static berth_status in_crop(struct node_call *c, struct resizing *r, berth_err *err)
{
    const char *crop;
    if (in_text(c, "resize_type.crop", &crop, err))
        return err->code;
    r->center = !strcmp(crop, "center");
    return BERTH_OK;
}

/* A side of 0 follows from the other and the ratio; both 0: as it is. */
static berth_status keep_ratio(struct resizing *r, berth_err *err)
{
    berth_status s = BERTH_OK;
    if (!r->ow && r->oh)
        s = round_side((double)r->w * (double)r->oh / (double)r->h, &r->ow, err);
    else if (r->ow && !r->oh)
        s = round_side((double)r->h * (double)r->ow / (double)r->w, &r->oh, err);
    else
        return s;
    r->ow = r->ow ? r->ow : 1;
    r->oh = r->oh ? r->oh : 1;
    return s;
}

static berth_status by_dimensions(struct node_call *c, struct resizing *r, berth_err *err)
{
    if (in_side(c, "resize_type.width", &r->ow, err) ||
        in_side(c, "resize_type.height", &r->oh, err) || in_crop(c, r, err))
        return err->code;
    return keep_ratio(r, err);
}

static berth_status by_width(struct node_call *c, struct resizing *r, berth_err *err)
{
    return in_side(c, "resize_type.width", &r->ow, err) ? err->code : keep_ratio(r, err);
}

static berth_status by_height(struct node_call *c, struct resizing *r, berth_err *err)
{
    return in_side(c, "resize_type.height", &r->oh, err) ? err->code : keep_ratio(r, err);
}

/* Both sides times `by`; nothing of one is an error. */
static berth_status by_factor(struct resizing *r, double by, berth_err *err)
{
    if (round_side((double)r->w * by, &r->ow, err) || round_side((double)r->h * by, &r->oh, err))
        return err->code;
    return r->ow && r->oh
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL, "nothing is left of %zux%zu times %g", r->w, r->h, by);
}

static berth_status by_multiplier(struct node_call *c, struct resizing *r, berth_err *err)
{
    double by;
    return in_f64(c, "resize_type.multiplier", &by, err) ? err->code : by_factor(r, by, err);
}

static berth_status by_pixels(struct node_call *c, struct resizing *r, berth_err *err)
{
    double mega;
    if (in_f64(c, "resize_type.megapixels", &mega, err))
        return err->code;
    return by_factor(r, sqrt(trunc(mega * 1024 * 1024) / ((double)r->w * (double)r->h)), err);
}

/* The longer side, or the shorter, becomes `size`. */
static berth_status by_edge(struct node_call *c, struct resizing *r, const char *name, bool longer,
                            berth_err *err)
{
    size_t size;
    berth_status s = in_side(c, name, &size, err);
    if (s)
        return s;
    if (!size)
        return err_set(err, BERTH_EINVAL, "'%s' is 0", name);
    r->ow = r->oh = size;
    if (r->h != r->w && (r->h > r->w) == longer)
        s = round_side((double)r->w / (double)r->h * (double)size, &r->ow, err);
    else if (r->h != r->w)
        s = round_side((double)r->h / (double)r->w * (double)size, &r->oh, err);
    return s;
}

static berth_status by_longer(struct node_call *c, struct resizing *r, berth_err *err)
{
    return by_edge(c, r, "resize_type.longer_size", true, err);
}

static berth_status by_shorter(struct node_call *c, struct resizing *r, berth_err *err)
{
    return by_edge(c, r, "resize_type.shorter_size", false, err);
}

static berth_status by_match(struct node_call *c, struct resizing *r, berth_err *err)
{
    struct htensor *other;
    if (in_either(c, "resize_type.match", &other, &r->ow, &r->oh, err))
        return err->code;
    return in_crop(c, r, err);
}

/* ---- in that size ---- */

static berth_status resized(struct node_call *c, const struct resizing *r, const char *method,
                            struct htensor **out, berth_err *err)
{
    if (!r->ow && !r->oh) {
        *out = htensor_ref(r->t);
        return BERTH_OK;
    }
    return is_image(r->t) ? scale_image(c, r->t, r->ow, r->oh, method, r->center, out, err)
                          : scale_planes(c, r->t, r->ow, r->oh, method, r->center, out, err);
}

/* Sides divisible by `multiple`: scaled until both are covered, and what is over is cut off. */
static berth_status to_multiple(struct node_call *c, struct resizing *r, const char *method,
                                struct htensor **out, berth_err *err)
{
    size_t multiple;
    struct htensor *fit;
    if (in_side(c, "resize_type.multiple", &multiple, err))
        return err->code;
    size_t w = multiple ? r->w / multiple * multiple : 0;
    size_t h = multiple ? r->h / multiple * multiple : 0;
    if (multiple <= 1 || !w || !h || (w == r->w && h == r->h))
        return resized(c, r, method, out, err);
    double across = (double)w / (double)r->w, down = (double)h / (double)r->h;
    size_t covers = (size_t)ceil(across >= down ? (double)r->h * across : (double)r->w * down);
    r->ow = across >= down || covers < w ? w : covers;
    r->oh = across < down || covers < h ? h : covers;
    if (resized(c, r, method, &fit, err))
        return err->code;
    struct shape to = fit->shape;
    to.dim[1] = h;
    to.dim[2] = w;
    berth_status s = htensor_new(&to, out, err);
    struct part p = { (r->oh - h) / 2, (r->ow - w) / 2, h, w };
    if (!s)
        copy_part(fit->data, r->oh, r->ow, is_image(fit) ? dim(fit, 3) : 1, dim(fit, 0), p,
                  (*out)->data);
    htensor_unref(fit);
    return s;
}

static const struct {
    const char *key;
    berth_status (*size)(struct node_call *c, struct resizing *r, berth_err *err);
} ways[] = {
    { "scale dimensions", by_dimensions },
    { "scale by multiplier", by_multiplier },
    { "scale longer dimension", by_longer },
    { "scale shorter dimension", by_shorter },
    { "scale width", by_width },
    { "scale height", by_height },
    { "scale total pixels", by_pixels },
    { "match size", by_match },
    { "scale to multiple", NULL },
};

static berth_status resize_run(struct node_call *c, berth_err *err)
{
    struct resizing r = { 0 };
    const char *how, *method;
    struct htensor *o = NULL;
    size_t i = 0;
    if (in_either(c, "input", &r.t, &r.w, &r.h, err) || in_text(c, "resize_type", &how, err) ||
        in_text(c, "scale_method", &method, err))
        return err->code;
    while (i < ARRAY_LEN(ways) - 1 && strcmp(ways[i].key, how))
        i++;
    berth_status s = ways[i].size ? ways[i].size(c, &r, err) : BERTH_OK;
    if (!s)
        s = ways[i].size ? resized(c, &r, method, &o, err) : to_multiple(c, &r, method, &o, err);
    return give_tensor(c, s, o, err);
}

#define SIDE(n) INT_IN(n, 512, 0, MAX_SIDE, 1)
#define CROP COMBO_IN("crop", list_crop, .sdef = "center")
NODE_CLASS(ResizeImageMaskNode, .display = "Resize Image/Mask", .category = "image/transform",
           V3("post_processing"), .description = "Resizes pictures or masks.",
           INS(MATCH_IN("input", "input_type", "IMAGE,MASK"),
               DYNCOMBO_IN(
                   "resize_type",
                   WITH(CHOICE("scale dimensions", SIDE("width"), SIDE("height"), CROP),
                        CHOICE("scale by multiplier", FLOAT_IN("multiplier", 1.0, 0.01, 8.0, 0.01)),
                        CHOICE("scale longer dimension", SIDE("longer_size")),
                        CHOICE("scale shorter dimension", SIDE("shorter_size")),
                        CHOICE("scale width", SIDE("width")),
                        CHOICE("scale height", SIDE("height")),
                        CHOICE("scale total pixels", FLOAT_IN("megapixels", 1.0, 0.01, 16.0, 0.01)),
                        CHOICE("match size", SOCKET("match", "IMAGE,MASK"), CROP),
                        CHOICE("scale to multiple", INT_IN("multiple", 8, 1, MAX_SIDE, 1)))),
               COMBO_IN("scale_method", list_resize_image, .sdef = "area")),
           OUTS(MATCH_OUT("resized", "input_type")), .run = resize_run);
