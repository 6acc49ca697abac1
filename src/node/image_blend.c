/* image_blend.c: two pictures, pixel by pixel: blend modes and Porter-Duff. */
#include "node/node_impl.h"

#include <math.h>
#include <string.h>

/* ---- ImageBlend ---- */

static float soft_light(float a, float b)
{
    float g = a <= 0.25f ? ((16.0f * a - 12.0f) * a + 4.0f) * a : sqrtf(a);
    return b <= 0.5f ? a - (1.0f - 2.0f * b) * a * (1.0f - a) : a + (2.0f * b - 1.0f) * (g - a);
}

static float blend_one(char mode, char second, float a, float b)
{
    switch (mode) {
    case 'm':
        return a * b;
    case 's': /* "screen", "soft_light" */
        return second == 'c' ? 1.0f - (1.0f - a) * (1.0f - b) : soft_light(a, b);
    case 'o':
        return a <= 0.5f ? 2.0f * a * b : 1.0f - 2.0f * (1.0f - a) * (1.0f - b);
    case 'd':
        return a - b;
    default:
        return b;
    }
}

/* b with as many channels as a has, and of its size: a new reference. An alpha that b lacks is
 * opaque. */
static berth_status blend_fit(struct node_call *c, const struct htensor *a, struct htensor *b,
                              struct htensor **out, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    size_t ca = dim(a, 3), cb = dim(b, 3);
    struct htensor *cut = NULL;
    berth_status s = BERTH_OK;
    if (ca > cb + 1)
        return err_set(err, BERTH_EINVAL, "image1 is %s and image2 %s: other channels",
                       shape_text(&a->shape, ta), shape_text(&b->shape, tb));
    if (ca < cb) {
        s = image_tensor(dim(b, 0), dim(b, 1), dim(b, 2), ca, &cut, err);
        for (size_t i = 0, n = s ? 0 : htensor_count(cut); i < n; i++)
            cut->data[i] = b->data[i / ca * cb + i % ca];
    } else {
        s = widen_image(b, ca, 1.0f, &cut, err);
    }
    if (s || (dim(a, 1) == dim(b, 1) && dim(a, 2) == dim(b, 2))) {
        *out = cut;
        return s;
    }
    s = scale_image(c, cut, dim(a, 2), dim(a, 1), "bicubic", true, out, err);
    htensor_unref(cut);
    return s;
}

static berth_status blend_run(struct node_call *c, berth_err *err)
{
    struct htensor *a, *b, *fit, *o = NULL;
    double f;
    const char *mode;
    berth_status s;
    if (in_image(c, "image1", &a, err) || in_image(c, "image2", &b, err) ||
        in_f64(c, "blend_factor", &f, err) || in_text(c, "blend_mode", &mode, err))
        return err->code;
    if (dim(a, 0) != dim(b, 0) && dim(a, 0) != 1 && dim(b, 0) != 1)
        return err_set(err, BERTH_EINVAL, "%zu pictures cannot be blended with %zu", dim(a, 0),
                       dim(b, 0));
    if (blend_fit(c, a, b, &fit, err))
        return err->code;
    size_t n = dim(a, 0) > dim(b, 0) ? dim(a, 0) : dim(b, 0);
    s = image_tensor(n, dim(a, 1), dim(a, 2), dim(a, 3), &o, err);
    float fa = (float)(1 - f), fb = (float)f;
    size_t na = htensor_count(a), nb = htensor_count(fit);
    for (size_t i = 0, all = s ? 0 : htensor_count(o); i < all; i++) {
        float x = a->data[i % na];
        o->data[i] = clamp01(x * fa + blend_one(mode[0], mode[1], x, fit->data[i % nb]) * fb);
    }
    htensor_unref(fit);
    return give_tensor(c, s, o, err);
}

NODE_CLASS(ImageBlend, .display = "Blend Images", .category = "image/filters",
           V3("post_processing"), .essentials = "Image Tools",
           INS(SOCKET("image1", "IMAGE"), SOCKET("image2", "IMAGE"),
               FLOAT_IN("blend_factor", 0.5, 0.0, 1.0, 0.01),
               COMBO_IN("blend_mode", CHOICES("normal", "multiply", "screen", "overlay",
                                              "soft_light", "difference"))),
           OUT(out_image), .run = blend_run);

/* ---- Porter-Duff: s, d premultiplied colours, a, b their alphas ---- */

enum duff {
    ADD,
    CLEAR,
    DARKEN,
    DST,
    DST_ATOP,
    DST_IN,
    DST_OUT,
    DST_OVER,
    LIGHTEN,
    MULTIPLY,
    OVERLAY,
    SCREEN,
    SRC,
    SRC_ATOP,
    SRC_IN,
    SRC_OUT,
    SRC_OVER,
    XOR
};
static const char *const duff_names[] = {
    "ADD",      "CLEAR",   "DARKEN",   "DST",     "DST_ATOP", "DST_IN", "DST_OUT",
    "DST_OVER", "LIGHTEN", "MULTIPLY", "OVERLAY", "SCREEN",   "SRC",    "SRC_ATOP",
    "SRC_IN",   "SRC_OUT", "SRC_OVER", "XOR",     NULL,
};

static float duff_alpha(enum duff m, float a, float b)
{
    switch (m) {
    case ADD:
        return clamp01(a + b);
    case CLEAR:
        return 0.0f;
    case DST:
    case SRC_ATOP:
        return b;
    case SRC:
    case DST_ATOP:
        return a;
    case DST_IN:
    case SRC_IN:
    case MULTIPLY:
        return a * b;
    case DST_OUT:
        return (1.0f - a) * b;
    case SRC_OUT:
        return (1.0f - b) * a;
    case DST_OVER:
        return b + (1.0f - b) * a;
    case SRC_OVER:
        return a + (1.0f - a) * b;
    case XOR:
        return (1.0f - b) * a + (1.0f - a) * b;
    case DARKEN:
    case LIGHTEN:
    case OVERLAY:
    case SCREEN:
        break;
    }
    return a + b - a * b;
}

static float duff_color(enum duff m, float s, float d, float a, float b)
{
    float both = (1.0f - b) * s + (1.0f - a) * d;
    switch (m) {
    case ADD:
        return clamp01(s + d);
    case CLEAR:
        return 0.0f;
    case DARKEN:
        return both + (s < d ? s : d);
    case LIGHTEN:
        return both + (s > d ? s : d);
    case DST:
        return d;
    case SRC:
        return s;
    case DST_ATOP:
        return a * d + (1.0f - b) * s;
    case SRC_ATOP:
        return b * s + (1.0f - a) * d;
    case DST_IN:
        return d * a;
    case SRC_IN:
        return s * b;
    case DST_OUT:
        return (1.0f - a) * d;
    case SRC_OUT:
        return (1.0f - b) * s;
    case DST_OVER:
        return d + (1.0f - b) * s;
    case SRC_OVER:
        return s + (1.0f - a) * d;
    case MULTIPLY:
        return s * d;
    case SCREEN:
        return s + d - s * d;
    case OVERLAY:
        return 2.0f * d < b ? 2.0f * s * d : a * b - 2.0f * (b - s) * (a - d);
    case XOR:
        break;
    }
    return both;
}

/* A new reference to t, or t in the size h x w. */
static berth_status duff_fit(struct node_call *c, struct htensor *t, bool image, size_t w, size_t h,
                             struct htensor **out, berth_err *err)
{
    if (dim(t, 1) == h && dim(t, 2) == w) {
        *out = htensor_ref(t);
        return BERTH_OK;
    }
    return image ? scale_image(c, t, w, h, "bicubic", true, out, err)
                 : scale_planes(c, t, w, h, "bicubic", true, out, err);
}

struct duff_in {
    struct htensor *s, *sa, *d, *da; /* pictures and their masks, all of one size */
};

static void duff_pixels(enum duff m, const struct duff_in *x, struct htensor *o, struct htensor *om)
{
    size_t ch = dim(o, 3);
    for (size_t p = 0, n = htensor_count(om); p < n; p++) {
        float a = 1.0f - x->sa->data[p], b = 1.0f - x->da->data[p];
        float alpha = duff_alpha(m, a, b);
        for (size_t k = p * ch; k < (p + 1) * ch; k++) {
            float v = duff_color(m, x->s->data[k] * a, x->d->data[k] * b, a, b);
            o->data[k] = alpha > 1e-5f ? clamp01(v / alpha) : 0.0f;
        }
        om->data[p] = 1.0f - alpha;
    }
}

static berth_status duff_run(struct node_call *c, berth_err *err)
{
    struct htensor *s, *sa, *d, *da, *o = NULL, *om = NULL;
    struct duff_in x = { 0 };
    const char *mode;
    if (in_image(c, "source", &s, err) || in_mask(c, "source_alpha", &sa, err) ||
        in_image(c, "destination", &d, err) || in_mask(c, "destination_alpha", &da, err) ||
        in_text(c, "mode", &mode, err))
        return err->code;
    if (dim(s, 3) != dim(d, 3))
        return err_set(err, BERTH_EINVAL, "source has %zu channels, destination %zu", dim(s, 3),
                       dim(d, 3));
    size_t n = dim(s, 0), h = dim(d, 1), w = dim(d, 2), m = 0;
    const struct htensor *other[] = { sa, d, da };
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        n = dim(other[i], 0) < n ? dim(other[i], 0) : n;
    while (m < XOR && strcmp(duff_names[m], mode))
        m++;
    berth_status st = duff_fit(c, s, true, w, h, &x.s, err);
    if (!st)
        st = duff_fit(c, sa, false, w, h, &x.sa, err);
    if (!st)
        st = duff_fit(c, da, false, w, h, &x.da, err);
    x.d = d;
    if (!st)
        st = image_tensor(n, h, w, dim(d, 3), &o, err);
    if (!st)
        st = mask_tensor(n, h, w, &om, err);
    if (!st)
        duff_pixels((enum duff)m, &x, o, om);
    htensor_unref(x.s);
    htensor_unref(x.sa);
    htensor_unref(x.da);
    if (!st)
        return give_tensors(c, o, om, err);
    htensor_unref(o);
    return st;
}

NODE_CLASS(PorterDuffImageComposite, .display = "Porter-Duff Image Composite",
           .category = "image/compositing", V3("compositing"),
           INS(SOCKET("source", "IMAGE"), SOCKET("source_alpha", "MASK"),
               SOCKET("destination", "IMAGE"), SOCKET("destination_alpha", "MASK"),
               COMBO_IN("mode", duff_names, .sdef = "DST")),
           OUT(out_image_mask), .run = duff_run);
