/* image_transform.c: pictures turned, flipped, cut to a box, padded to a size and put side by
 * side. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <string.h>

/* ---- turned and flipped ---- */

static berth_status moved(struct node_call *c, struct htensor *t, bool swap, pixel_from_fn *from,
                          berth_err *err)
{
    size_t n = dim(t, 0), h = dim(t, 1), w = dim(t, 2), ch = dim(t, 3);
    struct htensor *o;
    if (image_tensor(n, swap ? w : h, swap ? h : w, ch, &o, err))
        return err->code;
    move_pixels(t->data, n, h, w, ch, swap, from, o->data);
    return out_tensor(c, 0, o, err);
}

static berth_status rotate_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    const char *how;
    if (in_image(c, "image", &t, err) || in_text(c, "rotation", &how, err))
        return err->code;
    switch (*how) {
    case '9':
        return moved(c, t, true, from_turned_90, err);
    case '1':
        return moved(c, t, false, from_turned_180, err);
    case '2':
        return moved(c, t, true, from_turned_270, err);
    }
    return out_tensor(c, 0, htensor_ref(t), err);
}

NODE_CLASS(ImageRotate, .display = "Rotate Image", .category = "image/transform", V3("images"),
           .essentials = "Image Tools",
           INS(SOCKET("image", "IMAGE"),
               COMBO_IN("rotation", CHOICES("none", "90 degrees", "180 degrees", "270 degrees"))),
           OUT(out_image), .run = rotate_run);

static berth_status flip_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    const char *how;
    if (in_image(c, "image", &t, err) || in_text(c, "flip_method", &how, err))
        return err->code;
    return moved(c, t, false, *how == 'x' ? from_flipped_rows : from_flipped_columns, err);
}

NODE_CLASS(ImageFlip, .display = "Flip Image", .category = "image/transform", V3("images"),
           INS(SOCKET("image", "IMAGE"),
               COMBO_IN("flip_method", CHOICES("x-axis: vertically", "y-axis: horizontally"))),
           OUT(out_image), .run = flip_run);

/* ---- boxes ---- */

/* One member of a box; what is not there has its default. */
static berth_status box_member(const json_t *box, const char *key, size_t def, size_t *out,
                               berth_err *err)
{
    const json_t *v = json_object_get(box, key);
    double x = (double)def;
    if (v && !js_get_f64(v, &x))
        return err_set(err, BERTH_EINVAL, "crop_region: '%s' is no number", key);
    if (!(x >= 0 && x <= (double)SIDE_MAX))
        return err_set(err, BERTH_EINVAL, "crop_region: '%s' is %g, not within 0 and %zu", key, x,
                       SIDE_MAX);
    *out = (size_t)x;
    return BERTH_OK;
}

static berth_status crop_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    struct part p;
    const struct value *v = in_value(c, "crop_region");
    if (in_image(c, "image", &t, err))
        return err->code;
    if (!v || v->kind != V_JSON || !json_is_object(v->json))
        return err_set(err, BERTH_EINVAL,
                       "input 'crop_region' wants a box: {\"x\", \"y\", \"width\", \"height\"}");
    if (box_member(v->json, "x", 0, &p.x, err) || box_member(v->json, "y", 0, &p.y, err) ||
        box_member(v->json, "width", 512, &p.w, err) ||
        box_member(v->json, "height", 512, &p.h, err))
        return err->code;
    size_t n = dim(t, 0), h = dim(t, 1), w = dim(t, 2), ch = dim(t, 3);
    p.x = p.x < w ? p.x : w - 1;
    p.y = p.y < h ? p.y : h - 1;
    p.w = p.w < w - p.x ? p.w : w - p.x;
    p.h = p.h < h - p.y ? p.h : h - p.y;
    if (!p.w || !p.h)
        return err_set(err, BERTH_EINVAL, "crop_region: a part of %zux%zu of a picture of %zux%zu",
                       p.w, p.h, w, h);
    if (image_tensor(n, p.h, p.w, ch, &o, err))
        return err->code;
    copy_part(t->data, h, w, ch, n, p, o->data);
    berth_status s = show_images(c, o, err);
    return give_tensor(c, s, o, err);
}

NODE_CLASS(ImageCropV2, .display = "Crop Image", .category = "image/transform",
           .module = MOD("images"), .flags = NODE_V3 | NODE_INTERMEDIATE,
           .essentials = "Image Tools", .description = "Cuts the pictures to a box.",
           INS(SOCKET("image", "IMAGE"),
               SOCKET("crop_region", "BOUNDING_BOX",
                      .more = "\"default\":{\"x\":0,\"y\":0,\"width\":512,\"height\":512},"
                              "\"socketless\":true,\"component\":\"ImageCrop\"")),
           OUT(out_image), .run = crop_run);

/* ---- ResizeAndPadImage: as large as it goes, the rest in one colour ---- */

static void fill(struct htensor *t, float v)
{
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        t->data[i] = v;
}

/* Pictures of `from` at (y, x) of those of `to`, which has as many and is larger. */
static void put_part(const struct htensor *from, struct htensor *to, size_t y, size_t x)
{
    size_t h = dim(from, 1), row = dim(from, 2) * dim(from, 3), W = dim(to, 2), c = dim(to, 3);
    for (size_t i = 0; i < dim(from, 0) * h; i++)
        memcpy(to->data + ((i / h * dim(to, 1) + y + i % h) * W + x) * c, from->data + i * row,
               row * sizeof(float));
}

static berth_status pad_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *fit, *o = NULL;
    uint64_t w, h;
    const char *color, *method;
    if (in_image(c, "image", &t, err) || in_u64(c, "target_width", &w, err) ||
        in_u64(c, "target_height", &h, err) || in_text(c, "padding_color", &color, err) ||
        in_text(c, "interpolation", &method, err))
        return err->code;
    if (!w || !h || w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a target of %" PRIu64 "x%" PRIu64, w, h);
    double across = (double)w / (double)dim(t, 2), down = (double)h / (double)dim(t, 1);
    double by = across < down ? across : down;
    size_t nw = (size_t)((double)dim(t, 2) * by), nh = (size_t)((double)dim(t, 1) * by);
    if (!nw || !nh)
        return err_set(err, BERTH_EINVAL,
                       "nothing is left of %zux%zu in a target of %" PRIu64 "x%" PRIu64, dim(t, 2),
                       dim(t, 1), w, h);
    if (scale_image(c, t, nw, nh, method, false, &fit, err))
        return err->code;
    berth_status s = image_tensor(dim(t, 0), h, w, dim(t, 3), &o, err);
    if (!s) {
        fill(o, *color == 'b' ? 0.0f : 1.0f);
        put_part(fit, o, (h - nh) / 2, (w - nw) / 2);
    }
    htensor_unref(fit);
    return give_tensor(c, s, o, err);
}

NODE_CLASS(ResizeAndPadImage, .display = "Resize And Pad Image", .category = "image/transform",
           V3("images"),
           INS(SOCKET("image", "IMAGE"), INT_IN("target_width", 512, 1, MAX_SIDE, 1),
               INT_IN("target_height", 512, 1, MAX_SIDE, 1),
               COMBO_IN("padding_color", CHOICES("white", "black"), .more = ADVANCED),
               COMBO_IN("interpolation",
                        CHOICES("area", "bicubic", "nearest-exact", "bilinear", "lanczos"),
                        .more = ADVANCED)),
           OUT(out_image), .run = pad_run);

/* ---- ImageStitch: two pictures side by side, with a bar between them ---- */

struct stitch {
    const struct htensor *t[2]; /* in the order they stand */
    bool across;                /* beside each other; else one above the other */
    float pad;                  /* around the smaller one */
    size_t bar;
    float color[3]; /* of the bar */
    size_t n, h, w, c;
};

/* Picture i of one side into its place at `at`, which is as high or wide as the whole. */
static void stitch_side(const struct stitch *s, const struct htensor *t, size_t i, size_t at,
                        struct htensor *o)
{
    size_t h = dim(t, 1), w = dim(t, 2), c = dim(t, 3);
    size_t boxh = s->across ? s->h : h, boxw = s->across ? w : s->w;
    size_t top = (boxh - h) / 2, left = (boxw - w) / 2;
    size_t from = i < dim(t, 0) ? i : dim(t, 0) - 1; /* the last one repeats */
    for (size_t y = 0; y < boxh; y++)
        for (size_t x = 0; x < boxw; x++) {
            bool in = y >= top && y < top + h && x >= left && x < left + w;
            const float *p = in ? t->data + ((from * h + y - top) * w + x - left) * c : NULL;
            float *d =
                o->data +
                ((i * s->h + y + (s->across ? 0 : at)) * s->w + x + (s->across ? at : 0)) * s->c;
            for (size_t k = 0; k < s->c; k++)
                d[k] = k >= c ? 1.0f : in ? p[k] : s->pad;
        }
}

static void stitch_bar(const struct stitch *s, size_t i, size_t at, struct htensor *o)
{
    size_t h = s->across ? s->h : s->bar, w = s->across ? s->bar : s->w;
    for (size_t y = 0; y < h; y++)
        for (size_t x = 0; x < w; x++) {
            float *d =
                o->data +
                ((i * s->h + y + (s->across ? 0 : at)) * s->w + x + (s->across ? at : 0)) * s->c;
            for (size_t k = 0; k < s->c; k++)
                d[k] = k < 3 ? s->color[k] : 1.0f;
        }
}

static berth_status stitch(struct stitch *s, struct htensor **out, berth_err *err)
{
    const struct htensor *a = s->t[0], *b = s->t[1];
    size_t along = dim(a, s->across ? 2 : 1), more = dim(b, s->across ? 2 : 1);
    size_t wide = dim(a, s->across ? 1 : 2), other = dim(b, s->across ? 1 : 2);
    size_t sum = along + s->bar + more;
    wide = wide > other ? wide : other;
    s->n = dim(a, 0) > dim(b, 0) ? dim(a, 0) : dim(b, 0);
    s->c = dim(a, 3) > dim(b, 3) ? dim(a, 3) : dim(b, 3);
    s->h = s->across ? wide : sum;
    s->w = s->across ? sum : wide;
    berth_status st = image_tensor(s->n, s->h, s->w, s->c, out, err);
    for (size_t i = 0; !st && i < s->n; i++) {
        stitch_side(s, a, i, 0, *out);
        stitch_bar(s, i, along, *out);
        stitch_side(s, b, i, along + s->bar, *out);
    }
    return st;
}

/* The second picture as high, or as wide, as the first. */
static berth_status stitch_fit(struct node_call *c, const struct htensor *a,
                               const struct htensor *b, bool across, struct htensor **out,
                               berth_err *err)
{
    double aspect = (double)dim(b, 2) / (double)dim(b, 1);
    size_t h = dim(a, 1), w = dim(a, 2);
    if (across)
        w = (size_t)((double)h * aspect);
    else
        h = (size_t)((double)w / aspect);
    return scale_image(c, b, w, h, "lanczos", false, out, err);
}

static berth_status stitch_run(struct node_call *c, berth_err *err)
{
    static const char letters[] = "rgb";
    struct htensor *a, *b, *fit = NULL, *o = NULL;
    const char *direction, *color;
    bool match;
    uint64_t bar;
    if (in_image(c, "image1", &a, err))
        return err->code;
    if (!in_given(c, "image2"))
        return out_tensor(c, 0, htensor_ref(a), err);
    if (in_image(c, "image2", &b, err) || in_text(c, "direction", &direction, err) ||
        in_bool(c, "match_image_size", &match, err) || in_u64(c, "spacing_width", &bar, err) ||
        in_text(c, "spacing_color", &color, err))
        return err->code;
    if (bar > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "spacing_width is %" PRIu64, bar);
    struct stitch s = { .across = *direction == 'r' || *direction == 'l', .bar = bar + bar % 2 };
    s.pad = *color == 'w' ? 1.0f : 0.0f; /* colours pad black, as ComfyUI does it */
    for (int k = 0; k < 3; k++)
        s.color[k] =
            *color == 'w' || (*color == letters[k] && strcmp(color, "black")) ? 1.0f : 0.0f;
    if (match && stitch_fit(c, a, b, s.across, &fit, err))
        return err->code;
    bool first = *direction == 'l' || *direction == 'u'; /* image2 */
    s.t[first] = a;
    s.t[!first] = fit ? fit : b;
    berth_status st = stitch(&s, &o, err);
    htensor_unref(fit);
    return give_tensor(c, st, o, err);
}

NODE_CLASS(ImageStitch, .display = "Stitch Images", .category = "image/transform", V3("images"),
           .description = "Puts a second picture beside the first.",
           INS(SOCKET("image1", "IMAGE"),
               COMBO_IN("direction", CHOICES("right", "down", "left", "up"), .sdef = "right"),
               BOOL_IN("match_image_size", true),
               INT_IN("spacing_width", 0, 0, 1024, 2, .more = ADVANCED),
               COMBO_IN("spacing_color", CHOICES("white", "black", "red", "green", "blue"),
                        .sdef = "white", .more = ADVANCED),
               OPTIONAL("image2", "IMAGE")),
           OUT(out_image), .run = stitch_run);
