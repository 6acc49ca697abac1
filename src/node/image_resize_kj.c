/* image_resize_kj.c: KJNodes' "Resize Image v2": a box, and what to do when the aspect differs. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MASK_NONE 64 /* side of the mask when none is given */

struct fit {                         /* what becomes of one picture */
    bool cuts;                       /* "crop": a part of it is used, and the same of its mask */
    size_t x, y, cw, ch;             /* that part; else all of it */
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
    f->cuts = true;
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
    bool pads = !strncmp(keep, "pad", 3) || !strcmp(keep, "pillarbox_blur"),
         total = !strcmp(keep, "total_pixels");
    double W = (double)iw, H = (double)ih;
    *f = (struct fit) { .cw = iw, .ch = ih, .w = w ? w : iw, .h = h ? h : ih };
    if (total) {
        f->w = (size_t)sqrt((double)w * (double)h * (W / H));
        f->h = (size_t)sqrt((double)w * (double)h / (W / H));
    } else if ((pads || !strcmp(keep, "resize")) && (w || h)) {
        double by = !w ? (double)h / H : !h ? (double)w / W : fmin((double)w / W, (double)h / H);
        if (round_side(W * by, &f->w, err) || round_side(H * by, &f->h, err))
            return err->code;
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

/* The part of n pictures [ih, iw, c] that the plan uses; a reference to t when that is all. A mask
 * may have another size than its picture: what does not reach as far as the part is refused, as
 * KJNodes' narrow() does. */
static berth_status cut(struct htensor *t, const struct fit *f, struct htensor **out,
                        berth_err *err)
{
    size_t n = dim(t, 0), ih = dim(t, 1), iw = dim(t, 2), c = dim(t, 3);
    if (f->cuts && (f->x + f->cw > iw || f->y + f->ch > ih))
        return err_set(err, BERTH_EINVAL,
                       "the part %zux%zu at %zu, %zu of the picture is not within its mask of "
                       "%zux%zu",
                       f->cw, f->ch, f->x, f->y, iw, ih);
    if (!f->cuts || (f->cw == iw && f->ch == ih)) {
        *out = htensor_ref(t);
        return BERTH_OK;
    }
    berth_status s = image_tensor(n, f->ch, f->cw, c, out, err);
    if (!s)
        copy_part(t->data, ih, iw, c, n, (struct part) { f->y, f->x, f->ch, f->cw }, (*out)->data);
    return s;
}

static size_t clamp_to(size_t at, size_t before_it, size_t n)
{
    return at < before_it ? 0 : at - before_it < n ? at - before_it : n - 1;
}

enum pad_kind { PAD_COLOR, PAD_EDGE_PIXEL, PAD_EDGE_MEAN, PAD_BLUR };

struct pad {
    enum pad_kind kind;
    float color[3]; /* PAD_COLOR */
};

static bool padded(const struct fit *f)
{
    return f->left + f->top + f->right + f->bottom;
}

static bool is_inside(const struct fit *f, size_t y, size_t x)
{
    return y >= f->top && y < f->top + f->h && x >= f->left && x < f->left + f->w;
}

/* The pixel of picture i at the edge that is nearest to (y, x) of the padded one. */
static const float *edge_pixel(const struct htensor *t, const struct fit *f, size_t i, size_t y,
                               size_t x)
{
    size_t h = dim(t, 1), w = dim(t, 2);
    return t->data + ((i * h + clamp_to(y, f->top, h)) * w + clamp_to(x, f->left, w)) * dim(t, 3);
}

/* Mean of channel k along an edge of picture i: `n` pixels from (y, x), down or to the right. */
static float edge_mean(const struct htensor *t, size_t i, size_t y, size_t x, bool down, size_t k)
{
    size_t h = dim(t, 1), w = dim(t, 2), c = dim(t, 3), n = down ? h : w;
    double sum = 0;
    for (size_t at = 0; at < n; at++)
        sum += (double)t->data[((i * h + (down ? at : y)) * w + (down ? x : at)) * c + k];
    return (float)(sum / (double)n);
}

/* Above and below the mean of the first and last row, beside it those of the columns, which go on
 * to the corners. */
static void pad_mean(const struct htensor *t, const struct fit *f, size_t i, float *out)
{
    size_t h = dim(t, 1), w = dim(t, 2), c = dim(t, 3);
    size_t H = h + f->top + f->bottom, W = w + f->left + f->right;
    for (size_t k = 0; k < c; k++) {
        float top = edge_mean(t, i, 0, 0, false, k), bottom = edge_mean(t, i, h - 1, 0, false, k);
        float left = edge_mean(t, i, 0, 0, true, k), right = edge_mean(t, i, 0, w - 1, true, k);
        for (size_t y = 0; y < H; y++)
            for (size_t x = 0; x < W; x++)
                if (!is_inside(f, y, x))
                    out[(y * W + x) * c + k] = x < f->left        ? left
                                               : x >= f->left + w ? right
                                               : y < f->top       ? top
                                                                  : bottom;
    }
}

/* ---- pillarbox_blur: the box filled by the picture itself, blurred, paler and darker ---- */

#define BLUR_MIX 0.20f /* of grey */
#define BLUR_DIM 0.35f

struct blur { /* one direction; what is outside counts as 0 */
    const float *src;
    float *dst; /* [h, w, c] both */
    size_t h, w, c, radius;
    bool down;
    const float *tap; /* 2 * radius + 1 */
};

static void blur_row(void *user, size_t y, size_t worker)
{
    const struct blur *b = user;
    size_t n = b->down ? b->h : b->w, step = b->down ? b->w * b->c : b->c;
    (void)worker;
    for (size_t x = 0; x < b->w; x++) {
        size_t at = b->down ? y : x, from = at < b->radius ? 0 : at - b->radius;
        size_t to = at + b->radius < n ? at + b->radius : n - 1;
        const float *tap = b->tap + b->radius - (at - from);
        for (size_t k = 0; k < b->c; k++) {
            const float *s = b->src + (y * b->w + x) * b->c + k - (at - from) * step;
            float sum = 0;
            for (size_t i = 0; i <= to - from; i++)
                sum += tap[i] * s[i * step];
            b->dst[(y * b->w + x) * b->c + k] = sum;
        }
    }
}

/* In place, through a plane of its own. */
static berth_status blur(struct node_call *c, float *px, size_t h, size_t w, size_t ch,
                         berth_err *err)
{
    double sigma = 0.006 * (double)(h < w ? h : w), sum = 0;
    sigma = sigma > 1 ? sigma : 1;
    size_t radius = (size_t)(3 * sigma);
    float *tap = malloc((2 * radius + 1) * sizeof *tap);
    struct htensor *half = NULL;
    if (!tap)
        return err_set(err, BERTH_ENOMEM, "a blur of radius %zu", radius);
    for (size_t i = 0; i <= 2 * radius; i++) {
        double x = (double)i - (double)radius;
        tap[i] = (float)exp(-x * x / (2 * sigma * sigma));
        sum += (double)tap[i];
    }
    for (size_t i = 0; i <= 2 * radius; i++)
        tap[i] /= (float)sum;
    berth_status s = image_tensor(1, h, w, ch, &half, err);
    struct blur b = { .h = h, .w = w, .c = ch, .radius = radius, .tap = tap, .src = px };
    if (!s) {
        b.dst = half->data;
        s = call_rows(c, h, blur_row, &b, err);
    }
    if (!s) {
        b.src = half->data;
        b.dst = px;
        b.down = true;
        s = call_rows(c, h, blur_row, &b, err);
    }
    htensor_unref(half);
    free(tap);
    return s;
}

/* Picture i, large enough for the box [H, W], its middle part into out. */
static berth_status background(struct node_call *c, const struct htensor *t, size_t i, size_t H,
                               size_t W, float *out, berth_err *err)
{
    size_t h = dim(t, 1), w = dim(t, 2), ch = dim(t, 3), bh, bw;
    double by = fmax((double)W / (double)w, (double)H / (double)h);
    struct htensor *one = NULL, *large = NULL;
    if (round_side((double)w * by, &bw, err) || round_side((double)h * by, &bh, err) ||
        image_tensor(1, h, w, ch, &one, err))
        return err->code;
    memcpy(one->data, t->data + i * h * w * ch, h * w * ch * sizeof(float));
    berth_status s = scale_image(c, one, bw ? bw : 1, bh ? bh : 1, "bilinear", false, &large, err);
    htensor_unref(one);
    if (s)
        return s;
    bh = dim(large, 1);
    bw = dim(large, 2);
    size_t y0 = bh > H ? (bh - H) / 2 : 0, x0 = bw > W ? (bw - W) / 2 : 0;
    size_t above = H > bh ? (H - bh) / 2 : 0, beside = W > bw ? (W - bw) / 2 : 0;
    for (size_t y = 0; y < H; y++) /* rounding may leave it a pixel short: the edge repeats */
        for (size_t x = 0; x < W; x++)
            memcpy(out + (y * W + x) * ch,
                   large->data +
                       (clamp_to(y + y0, above, bh) * bw + clamp_to(x + x0, beside, bw)) * ch,
                   ch * sizeof(float));
    htensor_unref(large);
    return BERTH_OK;
}

static berth_status pad_blur(struct node_call *c, const struct htensor *t, size_t i, size_t H,
                             size_t W, float *out, berth_err *err)
{
    size_t ch = dim(t, 3);
    berth_status s =
        background(c, t, i, H, W, out, err) || blur(c, out, H, W, ch, err) ? err->code : BERTH_OK;
    for (float *p = out; !s && p < out + H * W * ch; p += ch) {
        float grey = ch < 3 ? 0 : 0.2126f * p[0] + 0.7152f * p[1] + 0.0722f * p[2];
        for (size_t k = 0; k < ch; k++) {
            float v = ch >= 3 && k < 3 ? p[k] * (1 - BLUR_MIX) + grey * BLUR_MIX : p[k];
            v *= BLUR_DIM;
            p[k] = v > 0 ? (v < 1 ? v : 1) : 0;
        }
    }
    return s;
}

/* [n,h,w,c] with padding. t stays. */
static berth_status pad(struct node_call *call, const struct htensor *t, const struct fit *f,
                        const struct pad *how, struct htensor **out, berth_err *err)
{
    size_t n = dim(t, 0), h = dim(t, 1), w = dim(t, 2), c = dim(t, 3);
    size_t H = h + f->top + f->bottom, W = w + f->left + f->right;
    berth_status s = image_tensor(n, H, W, c, out, err);
    for (size_t i = 0; !s && i < n; i++) {
        float *to = (*out)->data + i * H * W * c;
        if (how->kind == PAD_BLUR)
            s = pad_blur(call, t, i, H, W, to, err);
        else if (how->kind == PAD_EDGE_MEAN)
            pad_mean(t, f, i, to);
        for (size_t y = 0; !s && y < H; y++)
            for (size_t x = 0; x < W; x++) {
                const float *from = edge_pixel(t, f, i, y, x);
                bool in = is_inside(f, y, x);
                for (size_t k = 0; k < c; k++)
                    if (in || how->kind == PAD_EDGE_PIXEL)
                        to[(y * W + x) * c + k] = from[k];
                    else if (how->kind == PAD_COLOR)
                        to[(y * W + x) * c + k] = k < 3 ? how->color[k] : 1.0f;
            }
        if (!s)
            s = call_check(call, err);
    }
    return htensor_made(s, out);
}

/* One picture or mask (seen as [n,h,w,1]) through the plan. */
static berth_status apply(struct node_call *c, struct htensor *t, const struct fit *f,
                          const char *method, const struct pad *how, struct htensor **out,
                          berth_err *err)
{
    struct htensor *part = NULL, *sized = NULL;
    berth_status s = cut(t, f, &part, err);
    if (!s)
        s = scale_image(c, part, f->w, f->h, method, false, &sized, err);
    if (!s && padded(f))
        s = pad(c, sized, f, how, out, err);
    else if (!s)
        *out = htensor_ref(sized);
    htensor_unref(part);
    htensor_unref(sized);
    return s;
}

/* Masks what was added, unless a given mask reaches the edges (all but pillarbox_blur). */
static berth_status mask_of(struct node_call *c, const struct fit *f, const char *method, size_t n,
                            bool blurred, struct htensor **out, berth_err *err)
{
    struct htensor *m = NULL, *as_image = NULL;
    berth_status s = BERTH_OK;
    if (in_given(c, "mask")) {
        if (in_mask(c, "mask", &m, err) ||
            image_tensor(dim(m, 0), dim(m, 1), dim(m, 2), 1, &as_image, err))
            return err->code;
        memcpy(as_image->data, m->data, htensor_count(m) * sizeof(float));
        const struct pad how = { .kind = blurred ? PAD_COLOR : PAD_EDGE_PIXEL, .color = { 1 } };
        s = apply(c, as_image, f, method, &how, out, err);
        htensor_unref(as_image);
        if (!s) /* ours alone, so that it may become a mask */
            (*out)->shape =
                (struct shape) { .ndim = 3, .dim = { dim(*out, 0), dim(*out, 1), dim(*out, 2) } };
        return s;
    }
    if (!padded(f))
        return htensor_zeros(&(struct shape) { .ndim = 3, .dim = { 1, MASK_NONE, MASK_NONE } }, out,
                             err);
    size_t H = f->h + f->top + f->bottom, W = f->w + f->left + f->right;
    s = mask_tensor(n, H, W, out, err);
    for (size_t i = 0; !s && i < n * H * W; i++)
        (*out)->data[i] = is_inside(f, i / W % H, i % W) ? 0.0f : 1.0f;
    return s;
}

static berth_status resize_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o = NULL, *m = NULL;
    const char *method, *keep, *color, *position;
    uint64_t w, h, divisor;
    struct pad how = { .kind = PAD_COLOR };
    struct fit f;
    if (in_image(c, "image", &t, err) || in_u64(c, "width", &w, err) ||
        in_u64(c, "height", &h, err) || in_text(c, "upscale_method", &method, err) ||
        in_text(c, "keep_proportion", &keep, err) || in_text(c, "pad_color", &color, err) ||
        in_text(c, "crop_position", &position, err) || in_u64(c, "divisible_by", &divisor, err) ||
        parse_color(color, how.color, err))
        return err->code;
    how.kind = !strcmp(keep, "pad_edge_pixel")   ? PAD_EDGE_PIXEL
               : !strcmp(keep, "pad_edge")       ? PAD_EDGE_MEAN
               : !strcmp(keep, "pillarbox_blur") ? PAD_BLUR
                                                 : PAD_COLOR;
    if (w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a box of %" PRIu64 "x%" PRIu64, w, h);
    if (plan(&f, dim(t, 2), dim(t, 1), w, h, keep, position, divisor, err) ||
        apply(c, t, &f, method, &how, &o, err))
        return err->code;
    size_t ow = dim(o, 2), oh = dim(o, 1);
    berth_status s = mask_of(c, &f, method, dim(t, 0), how.kind == PAD_BLUR, &m, err);
    if (s) {
        htensor_unref(o);
        return s;
    }
    s = out_tensor(c, 0, o, err);
    if (!s && (out_value(c, 1, value_int((int64_t)ow), err) ||
               out_value(c, 2, value_int((int64_t)oh), err)))
        s = err->code;
    if (s)
        htensor_unref(m);
    return s ? s : out_tensor(c, 3, m, err);
}

NODE_CLASS(ImageResizeKJv2, .display = "Resize Image v2", .category = "KJNodes/image",
           .module = "custom_nodes.ComfyUI-KJNodes", .flags = NODE_UNIQUE_ID,
           .description = "Resizes into a box; what does not fit is stretched, cut or padded.",
           INS(SOCKET("image", "IMAGE"), SIZE_IN(512, 512, 0, 1),
               COMBO_IN("upscale_method", list_resize_image),
               COMBO_IN("keep_proportion",
                        CHOICES("stretch", "resize", "pad", "pad_edge", "pad_edge_pixel", "crop",
                                "pillarbox_blur", "total_pixels")),
               TEXT_IN("pad_color", "0, 0, 0"),
               COMBO_IN("crop_position", CHOICES("center", "top", "bottom", "left", "right")),
               INT_IN("divisible_by", 2, 0, 512, 1), OPTIONAL("mask", "MASK"),
               COMBO_IN("device", CHOICES("cpu", "gpu"), .optional = true)),
           OUTS({ .type = "IMAGE" }, { .type = "INT", .name = "width" },
                { .type = "INT", .name = "height" }, { .type = "MASK", .name = "mask" }),
           .run = resize_run);
