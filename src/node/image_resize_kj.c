/* image_resize_kj.c: KJNodes' "Resize Image v2": a box, and what to do when the aspect differs. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MASK_NONE 64 /* side of the mask when none is given */

struct fit {                         /* what becomes of one picture */
    size_t x, y, cw, ch;             /* the part of it that is used */
    size_t w, h;                     /* its new size */
    size_t left, top, right, bottom; /* padding around that */
};

/* How much of `room` lies before the picture: none, half or all, by the name of the position. */
static size_t before(size_t room, const char *position, const char *first, const char *last)
{
    return !strcmp(position, first) ? 0 : !strcmp(position, last) ? room : room / 2;
}

static void pad_to(struct fit *f, size_t w, size_t h, const char *position)
{
    size_t wide = w > f->w ? w - f->w : 0, high = h > f->h ? h - f->h : 0;
    f->left = before(wide, position, "left", "right");
    f->top = before(high, position, "top", "bottom");
    f->right = wide - f->left;
    f->bottom = high - f->top;
}

static void cut_to_aspect(struct fit *f, size_t iw, size_t ih, const char *position)
{
    double was = (double)iw / (double)ih, is = (double)f->w / (double)f->h;
    f->cw = was > is ? (size_t)nearbyint((double)ih * is) : iw;
    f->ch = was > is ? ih : (size_t)nearbyint((double)iw / is);
    f->cw = f->cw < 1 ? 1 : f->cw < iw ? f->cw : iw;
    f->ch = f->ch < 1 ? 1 : f->ch < ih ? f->ch : ih;
    f->x = before(iw - f->cw, position, "left", "right");
    f->y = before(ih - f->ch, position, "top", "bottom");
}

/* w, h: the box; 0: as wide (or high) as the rest says. */
static berth_status plan(struct fit *f, size_t iw, size_t ih, size_t w, size_t h, const char *keep,
                         const char *position, uint64_t divisor, berth_err *err)
{
    bool pads = !strncmp(keep, "pad", 3), total = !strcmp(keep, "total_pixels");
    double W = (double)iw, H = (double)ih;
    berth_status s = BERTH_OK;
    *f = (struct fit) { .cw = iw, .ch = ih, .w = w ? w : iw, .h = h ? h : ih };
    if (total) {
        f->w = (size_t)sqrt((double)w * (double)h * (W / H));
        f->h = (size_t)sqrt((double)w * (double)h / (W / H));
    } else if ((pads || !strcmp(keep, "resize")) && (w || h)) {
        double by = !w ? (double)h / H : !h ? (double)w / W : fmin((double)w / W, (double)h / H);
        if ((s = round_side(W * by, &f->w, err)) || (s = round_side(H * by, &f->h, err)))
            return s;
    }
    if (pads)
        pad_to(f, w, h, position);
    if (divisor > 1) {
        f->w -= f->w % divisor;
        f->h -= f->h % divisor;
    }
    if (!f->w || !f->h)
        return err_set(err, BERTH_EINVAL,
                       "%zux%zu in a box of %zux%zu, divisible by %" PRIu64 ", is nothing", iw, ih,
                       w, h, divisor);
    if (!strcmp(keep, "crop"))
        cut_to_aspect(f, iw, ih, position);
    if (divisor > 1 && f->left + f->top + f->right + f->bottom) {
        size_t over = (f->w + f->left + f->right) % divisor;
        f->right += over ? divisor - over : 0;
        over = (f->h + f->top + f->bottom) % divisor;
        f->bottom += over ? divisor - over : 0;
    }
    return BERTH_OK;
}

/* "r, g, b" of 0..255, or one number for all; what is missing is 0. */
static berth_status parse_color(const char *text, float out[3], berth_err *err)
{
    int n = 0;
    const char *p = text;
    out[0] = out[1] = out[2] = 0;
    while (*p && n < 3) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || !(v >= 0 && v <= 255))
            return err_set(err, BERTH_EINVAL, "pad_color '%.60s' is not \"r, g, b\" of 0 to 255",
                           text);
        out[n++] = (float)(v / 255.0);
        for (p = end; *p == ' ' || *p == ','; p++)
            ;
    }
    if (n == 1)
        out[1] = out[2] = out[0];
    return BERTH_OK;
}

/* The part of n pictures [ih, iw, c] that the plan uses; a reference to t when that is all. */
static berth_status cut(struct htensor *t, const struct fit *f, struct htensor **out,
                        berth_err *err)
{
    size_t n = dim(t, 0), ih = dim(t, 1), iw = dim(t, 2), c = dim(t, 3);
    if (f->cw == iw && f->ch == ih) {
        *out = htensor_ref(t);
        return BERTH_OK;
    }
    berth_status s = image_tensor(n, f->ch, f->cw, c, out, err);
    for (size_t i = 0; !s && i < n * f->ch; i++)
        memcpy((*out)->data + i * f->cw * c,
               t->data + (((i / f->ch) * ih + f->y + i % f->ch) * iw + f->x) * c,
               f->cw * c * sizeof(float));
    return s;
}

static size_t clamp_to(size_t at, size_t before_it, size_t n)
{
    return at < before_it ? 0 : at - before_it < n ? at - before_it : n - 1;
}

/* [n,h,w,c] with padding: of `color`, or of the pixel at the edge (color NULL). t stays. */
static berth_status pad(const struct htensor *t, const struct fit *f, const float *color,
                        struct htensor **out, berth_err *err)
{
    size_t n = dim(t, 0), h = dim(t, 1), w = dim(t, 2), c = dim(t, 3);
    size_t H = h + f->top + f->bottom, W = w + f->left + f->right;
    berth_status s = image_tensor(n, H, W, c, out, err);
    for (size_t i = 0; !s && i < n * H; i++) {
        size_t y = i % H;
        for (size_t x = 0; x < W; x++) {
            bool in = y >= f->top && y < f->top + h && x >= f->left && x < f->left + w;
            const float *from =
                t->data +
                (((i / H) * h + clamp_to(y, f->top, h)) * w + clamp_to(x, f->left, w)) * c;
            float *to = (*out)->data + (i * W + x) * c;
            for (size_t k = 0; k < c; k++)
                to[k] = in || !color ? from[k] : k < 3 ? color[k] : 1.0f;
        }
    }
    return s;
}

/* One picture or mask (seen as [n,h,w,1]) through the plan. color NULL: edges repeat. */
static berth_status apply(struct node_call *c, struct htensor *t, const struct fit *f,
                          const char *method, const float *color, struct htensor **out,
                          berth_err *err)
{
    struct htensor *part = NULL, *sized = NULL;
    berth_status s = cut(t, f, &part, err);
    if (!s)
        s = scale_image(c, part, f->w, f->h, method, false, &sized, err);
    if (!s && f->left + f->top + f->right + f->bottom)
        s = pad(sized, f, color, out, err);
    else if (!s)
        *out = htensor_ref(sized);
    htensor_unref(part);
    htensor_unref(sized);
    return s;
}

static berth_status mask_of(struct node_call *c, const struct fit *f, const char *method, size_t n,
                            struct htensor **out, berth_err *err)
{
    struct htensor *m = NULL, *as_image = NULL;
    berth_status s = BERTH_OK;
    if (in_given(c, "mask")) {
        if ((s = in_mask(c, "mask", &m, err)) ||
            (s = image_tensor(dim(m, 0), dim(m, 1), dim(m, 2), 1, &as_image, err)))
            return s;
        memcpy(as_image->data, m->data, htensor_count(m) * sizeof(float));
        s = apply(c, as_image, f, method, NULL, out, err);
        htensor_unref(as_image);
        if (!s) /* ours alone, so that it may become a mask */
            (*out)->shape =
                (struct shape) { .ndim = 3, .dim = { dim(*out, 0), dim(*out, 1), dim(*out, 2) } };
        return s;
    }
    if (!(f->left + f->top + f->right + f->bottom))
        return htensor_zeros(&(struct shape) { .ndim = 3, .dim = { 1, MASK_NONE, MASK_NONE } }, out,
                             err);
    size_t H = f->h + f->top + f->bottom, W = f->w + f->left + f->right;
    s = mask_tensor(n, H, W, out, err); /* what was added is masked */
    for (size_t i = 0; !s && i < n * H * W; i++) {
        size_t y = i / W % H, x = i % W;
        bool in = y >= f->top && y < f->top + f->h && x >= f->left && x < f->left + f->w;
        (*out)->data[i] = in ? 0.0f : 1.0f;
    }
    return s;
}

static berth_status resize_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o = NULL, *m = NULL;
    const char *method, *keep, *color, *position;
    uint64_t w, h, divisor;
    float rgb[3];
    struct fit f;
    berth_status s;
    if ((s = in_image(c, "image", &t, err)) || (s = in_u64(c, "width", &w, err)) ||
        (s = in_u64(c, "height", &h, err)) || (s = in_text(c, "upscale_method", &method, err)) ||
        (s = in_text(c, "keep_proportion", &keep, err)) ||
        (s = in_text(c, "pad_color", &color, err)) ||
        (s = in_text(c, "crop_position", &position, err)) ||
        (s = in_u64(c, "divisible_by", &divisor, err)) || (s = parse_color(color, rgb, err)))
        return s;
    if (!strcmp(keep, "pillarbox_blur") || !strcmp(keep, "pad_edge"))
        return err_set(err, BERTH_EUNSUPPORTED, "keep_proportion '%s' cannot be computed yet",
                       keep);
    if (w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a box of %" PRIu64 "x%" PRIu64, w, h);
    if ((s = plan(&f, dim(t, 2), dim(t, 1), w, h, keep, position, divisor, err)) ||
        (s = apply(c, t, &f, method, strcmp(keep, "pad_edge_pixel") ? rgb : NULL, &o, err)))
        return s;
    size_t ow = dim(o, 2), oh = dim(o, 1);
    s = mask_of(c, &f, method, dim(t, 0), &m, err);
    if (s) {
        htensor_unref(o);
        return s;
    }
    s = out_tensor(c, 0, o, err);
    if (!s)
        s = out_value(c, 1, value_int((int64_t)ow), err);
    if (!s)
        s = out_value(c, 2, value_int((int64_t)oh), err);
    if (s)
        htensor_unref(m);
    return s ? s : out_tensor(c, 3, m, err);
}

static const char *const proportions[] = { "stretch",        "resize",         "pad",
                                           "pad_edge",       "pad_edge_pixel", "crop",
                                           "pillarbox_blur", "total_pixels",   NULL };
static const char *const positions[] = { "center", "top", "bottom", "left", "right", NULL };
static const char *const places[] = { "cpu", "gpu", NULL };
static const struct node_input resize_in[] = {
    SOCKET("image", "IMAGE"),
    INT_IN("width", 512, 0, MAX_SIDE, 1),
    INT_IN("height", 512, 0, MAX_SIDE, 1),
    COMBO_IN("upscale_method", list_resize_image),
    COMBO_IN("keep_proportion", proportions),
    TEXT_IN("pad_color", "0, 0, 0"),
    COMBO_IN("crop_position", positions),
    INT_IN("divisible_by", 2, 0, 512, 1),
    SOCKET("mask", "MASK", .optional = true),
    COMBO_IN("device", places, .optional = true),
};
static const struct node_output resize_out[] = {
    { .type = "IMAGE" },
    { .type = "INT", .name = "width" },
    { .type = "INT", .name = "height" },
    { .type = "MASK", .name = "mask" },
};
NODE_CLASS(ImageResizeKJv2, .display = "Resize Image v2", .category = "KJNodes/image",
           .module = "custom_nodes.ComfyUI-KJNodes", .flags = NODE_UNIQUE_ID,
           .description = "Resizes into a box; what does not fit is stretched, cut or padded.",
           IN(resize_in), OUT(resize_out), .run = resize_run);
