/* image_save_advanced.c: SaveImageAdvanced: PNG of 8 or 16 bits, and EXR. */
#include "node/node_impl.h"

#include <math.h>
#include <string.h>

/* x, y of red, green, blue and white (D65). */
static const float rec709[8] = { 0.64f, 0.33f, 0.30f, 0.60f, 0.15f, 0.06f, 0.3127f, 0.3290f };
static const float rec2020[8] = {
    0.708f, 0.292f, 0.170f, 0.797f, 0.131f, 0.046f, 0.3127f, 0.3290f
};

struct advanced {
    struct saved to;
    bool exr, deep;
    const char *space; /* what the pixels are in: "sRGB", "HDR", "linear" */
};

static berth_status known_channels(const struct advanced *a, size_t channels, berth_err *err)
{
    if (channels == 1 || channels == 3 || channels == 4)
        return BERTH_OK;
    return err_set(err, BERTH_EINVAL,
                   "No %s encoder for %zu-channel images: supported channel counts are 1 "
                   "(grayscale), 3 (RGB) and 4 (RGBA).",
                   a->exr    ? "exr/32-bit float"
                   : a->deep ? "png/16-bit"
                             : "png/8-bit",
                   channels);
}

/* ---- PNG ---- */

static void put_deep(const float *x, size_t n, uint8_t *px)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * 65535.0f;
        uint16_t u = v > 0.0f ? (v < 65535.0f ? (uint16_t)v : 65535) : 0;
        px[2 * i] = (uint8_t)(u >> 8);
        px[2 * i + 1] = (uint8_t)u;
    }
}

/* Picture i; 16 bits live in an image of twice the width. */
static berth_status png_of(struct node_call *c, const struct advanced *a, const struct htensor *t,
                           size_t i, struct str *out, berth_err *err)
{
    size_t h = dim(t, 1), w = dim(t, 2), ch = dim(t, 3), n = h * w * ch;
    struct image im = { 0 };
    struct image_png_args args = { .level = 4,
                                   .text = a->to.text,
                                   .texts = a->to.texts,
                                   .cancel = cancel_of(c),
                                   .deep = a->deep };
    berth_status s;
    if (w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a PNG of %zux%zu", w, h);
    if (!a->deep) {
        s = image_8bit(t, i, &im, err);
    } else if (!(s = image_init(&im, (uint32_t)w * 2, (uint32_t)h, (unsigned)ch, err))) {
        put_deep(t->data + i * n, n, im.px);
        im.w /= 2;
    }
    if (!s)
        s = image_png(&im, &args, out, err);
    image_release(&im);
    return s;
}

/* ---- EXR ---- */

static float from_srgb(float v)
{
    return v <= 0.04045f ? v / 12.92f : (float)pow(((double)v + 0.055) / 1.055, 2.4);
}

static float from_hlg(float v)
{
    return v <= 0.5f ? v * v / 3.0f
                     : (float)((exp(((double)v - 0.55991072928) / 0.17883277) + 0.28466892) / 12);
}

static berth_status exr_of(struct node_call *c, const struct advanced *a, const struct htensor *t,
                           size_t i, struct str *out, berth_err *err)
{
    struct htensor *linear;
    size_t ch = dim(t, 3);
    bool hdr = !strcmp(a->space, "HDR"), srgb = !strcmp(a->space, "sRGB");
    if (dim(t, 2) > SIDE_MAX || dim(t, 1) > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "an EXR of %zux%zu", dim(t, 2), dim(t, 1));
    if (tensor_slice(t, i, 1, &linear, err))
        return err->code;
    for (size_t k = 0, n = htensor_count(linear); (hdr || srgb) && k < n; k++)
        if (ch != 4 || k % 4 != 3) /* alpha stays */
            linear->data[k] = hdr ? from_hlg(linear->data[k]) : from_srgb(linear->data[k]);
    struct image_exr_args args = { .w = (uint32_t)dim(t, 2),
                                   .h = (uint32_t)dim(t, 1),
                                   .channels = (unsigned)ch,
                                   .px = linear->data,
                                   .primaries = hdr ? rec2020 : rec709,
                                   .text = a->to.text,
                                   .texts = a->to.texts,
                                   .cancel = cancel_of(c) };
    if (c->env->disable_metadata)
        args.primaries = NULL;
    berth_status s = image_exr(&args, out, err);
    htensor_unref(linear);
    return s;
}

/* ---- the node ---- */

static berth_status save_all(struct node_call *c, struct advanced *a, const struct htensor *t,
                             berth_err *err)
{
    struct str file = { 0 };
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        str_clear(&file);
        s = a->exr ? exr_of(c, a, t, i, &file, err) : png_of(c, a, t, i, &file, err);
        if (!s)
            s = save_add(c, &a->to, i, a->exr ? ".exr" : ".png", "images", &file, err);
    }
    str_release(&file);
    return s;
}

static berth_status save_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    struct advanced a = { .space = "sRGB" };
    const char *prefix, *format, *depth;
    if (in_image(c, "images", &t, err) || in_text(c, "filename_prefix", &prefix, err) ||
        in_text(c, "format", &format, err) || in_text(c, "format.bit_depth", &depth, err) ||
        in_text(c, "format.input_color_space", &a.space, err))
        return err->code;
    a.exr = !strcmp(format, "exr");
    a.deep = !strcmp(depth, "16-bit");
    if (known_channels(&a, dim(t, 3), err) ||
        save_begin(c, "output", prefix, dim(t, 2), dim(t, 1), &a.to, err))
        return err->code;
    a.to.path.bare = true;
    berth_status s = save_all(c, &a, t, err);
    save_end(&a.to);
    return s ? s : out_tensor(c, 0, htensor_ref(t), err);
}

NODE_CLASS(SaveImageAdvanced, .display = "Save Image (Advanced)", .category = "image",
           .module = MOD("images"), .essentials = "Basics",
           .description = "Saves the pictures in the output folder, in a format of your choice.",
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI"),
               DYNCOMBO_IN("format", WITH(CHOICE("png",
                                                 COMBO_IN("bit_depth", CHOICES("8-bit", "16-bit"),
                                                          .sdef = "8-bit", .more = ADVANCED),
                                                 COMBO_IN("input_color_space", CHOICES("sRGB"),
                                                          .sdef = "sRGB", .more = ADVANCED)),
                                          CHOICE("exr",
                                                 COMBO_IN("bit_depth", CHOICES("32-bit float"),
                                                          .sdef = "32-bit float", .more = ADVANCED),
                                                 COMBO_IN("input_color_space",
                                                          CHOICES("sRGB", "HDR", "linear"),
                                                          .sdef = "sRGB", .more = ADVANCED))))),
           OUTS({ .type = "IMAGE", .name = "images" }), .run = save_run);
