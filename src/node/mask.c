/* mask.c: masks made, combined and turned into pictures and back. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MASK_NODE(c, ...) NODE_CLASS(c, .category = "mask", V3("mask"), __VA_ARGS__)

static const struct node_input mask_in[] = { SOCKET("mask", "MASK") };

/* ---- pictures and masks ---- */

static berth_status to_image_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    if (in_mask(c, "mask", &t, err) || image_tensor(dim(t, 0), dim(t, 1), dim(t, 2), 3, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        o->data[3 * i] = o->data[3 * i + 1] = o->data[3 * i + 2] = t->data[i];
    return out_tensor(c, 0, o, err);
}
MASK_NODE(MaskToImage, .display = "Convert Mask to Image", IN(mask_in), OUT(out_image),
          .run = to_image_run);

static const char *const channels[] = { "red", "green", "blue", "alpha", NULL };

static berth_status from_image_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    const char *name;
    if (in_image(c, "image", &t, err) || in_text(c, "channel", &name, err))
        return err->code;
    size_t k = 0, ch = dim(t, 3);
    while (channels[k] && strcmp(channels[k], name))
        k++;
    if (k >= ch)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels has no '%s'", ch, name);
    if (mask_tensor(dim(t, 0), dim(t, 1), dim(t, 2), &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(o); i < n; i++)
        o->data[i] = t->data[i * ch + k];
    return out_tensor(c, 0, o, err);
}
MASK_NODE(ImageToMask, .display = "Convert Image to Mask",
          INS(SOCKET("image", "IMAGE"), COMBO_IN("channel", channels)), OUT(out_mask),
          .run = from_image_run);

static uint64_t eight_bits(float v)
{
    return (uint64_t)nearbyintf((v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f) * 255.0f);
}

static berth_status color_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t color;
    if (in_image(c, "image", &t, err) || in_u64(c, "color", &color, err))
        return err->code;
    size_t ch = dim(t, 3);
    if (ch < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels has no colours", ch);
    if (mask_tensor(dim(t, 0), dim(t, 1), dim(t, 2), &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(o); i < n; i++) {
        const float *p = t->data + i * ch;
        uint64_t is = eight_bits(p[0]) << 16 | eight_bits(p[1]) << 8 | eight_bits(p[2]);
        o->data[i] = is == color ? 1.0f : 0.0f;
    }
    return out_tensor(c, 0, o, err);
}
MASK_NODE(ImageColorToMask,
          INS(SOCKET("image", "IMAGE"),
              INT_IN("color", 0, 0, 0xffffff, 1, .more = "\"display\":\"number\"")),
          OUT(out_mask), .run = color_run);

/* ---- each pixel for itself ---- */

static berth_status solid_run(struct node_call *c, berth_err *err)
{
    struct htensor *o;
    double v;
    uint64_t w, h;
    if (in_f64(c, "value", &v, err) || in_u64(c, "width", &w, err) ||
        in_u64(c, "height", &h, err) || mask_tensor(1, h, w, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(o); i < n; i++)
        o->data[i] = (float)v;
    return out_tensor(c, 0, o, err);
}
MASK_NODE(SolidMask, INS(FLOAT_IN("value", 1.0, 0.0, 1.0, 0.01), SIZE_IN(512, 512, 1, 1)),
          OUT(out_mask), .run = solid_run);

static berth_status invert_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    if (in_mask(c, "mask", &t, err) || htensor_new(&t->shape, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        o->data[i] = 1.0f - t->data[i];
    return out_tensor(c, 0, o, err);
}
MASK_NODE(InvertMask, IN(mask_in), OUT(out_mask), .run = invert_run);

static berth_status threshold_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    double v;
    if (in_mask(c, "mask", &t, err) || in_f64(c, "value", &v, err) ||
        htensor_new(&t->shape, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        o->data[i] = t->data[i] > (float)v ? 1.0f : 0.0f;
    return out_tensor(c, 0, o, err);
}
MASK_NODE(ThresholdMask, INS(SOCKET("mask", "MASK"), FLOAT_IN("value", 0.5, 0.0, 1.0, 0.01)),
          OUT(out_mask), .run = threshold_run);

/* ---- geometry ---- */

static berth_status crop_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t x, y, w, h;
    if (in_mask(c, "mask", &t, err) || in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err) ||
        in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err))
        return err->code;
    size_t n = dim(t, 0), ih = dim(t, 1), iw = dim(t, 2);
    if (x >= iw || y >= ih || !w || !h)
        return err_set(err, BERTH_EINVAL,
                       "nothing of a mask of %zux%zu lies at %" PRIu64 ",%" PRIu64, iw, ih, x, y);
    w = w < iw - x ? w : iw - x;
    h = h < ih - y ? h : ih - y;
    if (mask_tensor(n, h, w, &o, err))
        return err->code;
    copy_part(t->data, ih, iw, 1, n, (struct part) { y, x, h, w }, o->data);
    return out_tensor(c, 0, o, err);
}
MASK_NODE(CropMask,
          INS(SOCKET("mask", "MASK"), INT_IN("x", 0, 0, MAX_SIDE, 1),
              INT_IN("y", 0, 0, MAX_SIDE, 1), SIZE_IN(512, 512, 1, 1)),
          OUT(out_mask), .run = crop_run);

static float combine(char op1, char op2, float d, float s)
{
    bool a = nearbyintf(d) != 0.0f, b = nearbyintf(s) != 0.0f;
    switch (op1) {
    case 'm':
        return d * s;
    case 'a':
        return op2 == 'n' ? (float)(a && b) : d + s; /* "and", "add" */
    case 's':
        return d - s;
    case 'o':
        return (float)(a || b);
    default:
        return (float)(a != b);
    }
}

static berth_status composite_run(struct node_call *c, berth_err *err)
{
    struct htensor *d, *src, *o;
    uint64_t x, y;
    const char *op;
    if (in_mask(c, "destination", &d, err) || in_mask(c, "source", &src, err) ||
        in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err) || in_text(c, "operation", &op, err))
        return err->code;
    if (dim(src, 0) != 1 && dim(src, 0) != dim(d, 0))
        return err_set(err, BERTH_EINVAL, "%zu masks cannot be put onto %zu", dim(src, 0),
                       dim(d, 0));
    if (htensor_copy(d, &o, err))
        return err->code;
    size_t H = dim(d, 1), W = dim(d, 2), h = dim(src, 1), w = dim(src, 2);
    for (size_t i = 0; i < dim(d, 0); i++)
        for (size_t r = 0; y < H && r < h && r < H - y; r++)
            for (size_t k = 0; x < W && k < w && k < W - x; k++) {
                float *at = o->data + (i * H + y + r) * W + x + k;
                size_t from = dim(src, 0) == 1 ? 0 : i;
                *at = combine(op[0], op[1], *at, src->data[(from * h + r) * w + k]);
            }
    for (size_t i = 0, n = htensor_count(o); i < n; i++)
        o->data[i] = o->data[i] > 0.0f ? (o->data[i] < 1.0f ? o->data[i] : 1.0f) : 0.0f;
    return out_tensor(c, 0, o, err);
}
MASK_NODE(MaskComposite,
          INS(SOCKET("destination", "MASK"), SOCKET("source", "MASK"),
              INT_IN("x", 0, 0, MAX_SIDE, 1), INT_IN("y", 0, 0, MAX_SIDE, 1),
              COMBO_IN("operation", CHOICES("multiply", "add", "subtract", "and", "or", "xor"))),
          OUT(out_mask), .run = composite_run);

static void scale_column(struct htensor *o, size_t x, float by)
{
    size_t w = dim(o, 2), rows = dim(o, 0) * dim(o, 1);
    for (size_t i = 0; i < rows; i++)
        o->data[i * w + x] *= by;
}

static void scale_row(struct htensor *o, size_t y, float by)
{
    size_t h = dim(o, 1), w = dim(o, 2);
    for (size_t i = 0; i < dim(o, 0); i++)
        for (size_t x = 0; x < w; x++)
            o->data[(i * h + y) * w + x] *= by;
}

/* ComfyUI counts right and bottom from "minus x" on, so that their first step falls on the first
 * column or row; existing workflows look that way, hence so does this. */
static berth_status feather_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t l, u, r, b;
    if (in_mask(c, "mask", &t, err) || in_u64(c, "left", &l, err) || in_u64(c, "top", &u, err) ||
        in_u64(c, "right", &r, err) || in_u64(c, "bottom", &b, err) || htensor_copy(t, &o, err))
        return err->code;
    size_t h = dim(t, 1), w = dim(t, 2);
    l = l < w ? l : w;
    r = r < w ? r : w;
    u = u < h ? u : h;
    b = b < h ? b : h;
    for (size_t x = 0; x < l; x++)
        scale_column(o, x, (float)((double)(x + 1) / (double)l));
    for (size_t x = 0; x < r; x++)
        scale_column(o, (w - x) % w, (float)((double)(x + 1) / (double)r));
    for (size_t y = 0; y < u; y++)
        scale_row(o, y, (float)((double)(y + 1) / (double)u));
    for (size_t y = 0; y < b; y++)
        scale_row(o, (h - y) % h, (float)((double)(y + 1) / (double)b));
    return out_tensor(c, 0, o, err);
}
MASK_NODE(FeatherMask,
          INS(SOCKET("mask", "MASK"), INT_IN("left", 0, 0, MAX_SIDE, 1),
              INT_IN("top", 0, 0, MAX_SIDE, 1), INT_IN("right", 0, 0, MAX_SIDE, 1),
              INT_IN("bottom", 0, 0, MAX_SIDE, 1)),
          OUT(out_mask), .run = feather_run);

/* One step: each pixel becomes the largest (or smallest) of its neighbours and itself; outside
 * there is nothing. False: nothing changed any more. */
static bool grow_step(const float *in, float *out, size_t h, size_t w, bool grow, bool corners)
{
    bool changed = false;
    for (size_t y = 0; y < h; y++)
        for (size_t x = 0; x < w; x++) {
            float v = in[y * w + x];
            for (int dy = -1; dy <= 1; dy++)
                for (int dx = -1; dx <= 1; dx++) {
                    if ((dy && dx && !corners) || (dy < 0 && !y) || (dx < 0 && !x) ||
                        (dy > 0 && y + 1 == h) || (dx > 0 && x + 1 == w))
                        continue;
                    float u = in[(size_t)((ptrdiff_t)y + dy) * w + (size_t)((ptrdiff_t)x + dx)];
                    v = grow ? (u > v ? u : v) : (u < v ? u : v);
                }
            changed = changed || v != in[y * w + x];
            out[y * w + x] = v;
        }
    return changed;
}

static berth_status grow_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *a = NULL, *b = NULL;
    int64_t by;
    bool tapered;
    if (in_mask(c, "mask", &t, err) || in_i64(c, "expand", &by, err) ||
        in_bool(c, "tapered_corners", &tapered, err) || htensor_copy(t, &a, err))
        return err->code;
    berth_status s = htensor_copy(t, &b, err);
    size_t h = dim(t, 1), w = dim(t, 2);
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        float *from = a->data + i * h * w, *to = b->data + i * h * w, *mine = from;
        for (int64_t k = 0; !s && k != by; k += by < 0 ? -1 : 1) {
            s = call_check(c, err);
            if (s || !grow_step(from, to, h, w, by > 0, !tapered))
                break; /* unchanged: further steps would not either */
            float *swap = from;
            from = to;
            to = swap;
        }
        if (!s && from != mine)
            memcpy(mine, from, h * w * sizeof(float));
    }
    htensor_unref(b);
    return give_tensor(c, s, a, err);
}
MASK_NODE(GrowMask, .display = "Grow Mask",
          INS(SOCKET("mask", "MASK"), INT_IN("expand", 0, -MAX_SIDE, MAX_SIDE, 1),
              BOOL_IN("tapered_corners", true)),
          OUT(out_mask), .run = grow_run);
