/* image_scale.c: pictures to another size. */
#include "node/node_impl.h"

#include <math.h>
#include <string.h>

static berth_status scaled(struct node_call *c, const struct htensor *t, size_t w, size_t h,
                           const char *method, bool center, berth_err *err)
{
    struct htensor *o;
    return scale_image(c, t, w, h, method, center, &o, err) ? err->code : out_tensor(c, 0, o, err);
}

/* ---- ImageScale: a side of 0 keeps the ratio ---- */

static berth_status scale_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    const char *method, *crop;
    uint64_t w, h;
    berth_status s = BERTH_OK;
    if (in_image(c, "image", &t, err) || in_text(c, "upscale_method", &method, err) ||
        in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_text(c, "crop", &crop, err))
        return err->code;
    if (!w && !h)
        return out_tensor(c, 0, htensor_ref(t), err);
    double iw = (double)dim(t, 2), ih = (double)dim(t, 1);
    size_t ow = w, oh = h;
    if (!w)
        s = round_side(iw * (double)h / ih, &ow, err);
    else if (!h)
        s = round_side(ih * (double)w / iw, &oh, err);
    if (s)
        return s;
    return scaled(c, t, ow ? ow : 1, oh ? oh : 1, method, !strcmp(crop, "center"), err);
}

NODE_CLASS(ImageScale, .display = "Upscale Image", .category = "image/upscaling", .module = "nodes",
           INS(SOCKET("image", "IMAGE"), COMBO_IN("upscale_method", list_resize_image),
               SIZE_IN(512, 512, 0, 1), COMBO_IN("crop", list_crop)),
           OUT(out_image), .run = scale_run);

static berth_status scale_by_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    const char *method;
    double by;
    size_t w, h;
    if (in_image(c, "image", &t, err) || in_text(c, "upscale_method", &method, err) ||
        in_f64(c, "scale_by", &by, err) || round_side((double)dim(t, 2) * by, &w, err) ||
        round_side((double)dim(t, 1) * by, &h, err))
        return err->code;
    return scaled(c, t, w, h, method, false, err);
}

NODE_CLASS(ImageScaleBy, .display = "Upscale Image By", .category = "image/upscaling",
           .module = "nodes",
           INS(SOCKET("image", "IMAGE"), COMBO_IN("upscale_method", list_resize_image),
               FLOAT_IN("scale_by", 1.0, 0.01, 8.0, 0.01)),
           OUT(out_image), .run = scale_by_run);

static berth_status total_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    const char *method;
    double mega;
    uint64_t steps;
    size_t w, h;
    if (in_image(c, "image", &t, err) || in_text(c, "upscale_method", &method, err) ||
        in_f64(c, "megapixels", &mega, err) || in_u64(c, "resolution_steps", &steps, err))
        return err->code;
    if (!steps || steps > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "resolution_steps is %llu", (unsigned long long)steps);
    double iw = (double)dim(t, 2), ih = (double)dim(t, 1), step = (double)steps;
    double by = sqrt(mega * 1024 * 1024 / (iw * ih));
    if (round_side(iw * by / step, &w, err) || round_side(ih * by / step, &h, err))
        return err->code;
    return scaled(c, t, w * steps, h * steps, method, false, err);
}

NODE_CLASS(ImageScaleToTotalPixels, .category = "image/upscaling", V3("post_processing"),
           INS(SOCKET("image", "IMAGE"), COMBO_IN("upscale_method", list_resize_image),
               FLOAT_IN("megapixels", 1.0, 0.01, 16.0, 0.01),
               INT_IN("resolution_steps", 1, 1, 256, 0)),
           OUT(out_image), .run = total_run);

static berth_status largest_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    const char *method;
    uint64_t size;
    berth_status s = BERTH_OK;
    if (in_image(c, "image", &t, err) || in_text(c, "upscale_method", &method, err) ||
        in_u64(c, "largest_size", &size, err))
        return err->code;
    double iw = (double)dim(t, 2), ih = (double)dim(t, 1);
    size_t w = size, h = size;
    if (ih > iw)
        s = round_side(iw / ih * (double)size, &w, err);
    else if (iw > ih)
        s = round_side(ih / iw * (double)size, &h, err);
    return s ? s : scaled(c, t, w, h, method, false, err);
}

/* ComfyUI's list, with its repetition: positions of choices are what people see. */
NODE_CLASS(ImageScaleToMaxDimension, .category = "image/upscaling", V3("images"),
           INS(SOCKET("image", "IMAGE"),
               COMBO_IN("upscale_method", CHOICES("area", "lanczos", "bilinear", "nearest-exact",
                                                  "bilinear", "bicubic")),
               INT_IN("largest_size", 512, 0, MAX_SIDE, 1)),
           OUT(out_image), .run = largest_run);

/* ---- FluxKontextImageScale: the size the model was trained on that is nearest in aspect ---- */

static berth_status kontext_run(struct node_call *c, berth_err *err)
{
    static const struct {
        unsigned short w, h;
    } size[] = { /* by width: of two as near the narrower wins */
                 { 672, 1568 }, { 688, 1504 }, { 720, 1456 }, { 752, 1392 },  { 800, 1328 },
                 { 832, 1248 }, { 880, 1184 }, { 944, 1104 }, { 1024, 1024 }, { 1104, 944 },
                 { 1184, 880 }, { 1248, 832 }, { 1328, 800 }, { 1392, 752 },  { 1456, 720 },
                 { 1504, 688 }, { 1568, 672 }
    };
    struct htensor *t;
    if (in_image(c, "image", &t, err))
        return err->code;
    double aspect = (double)dim(t, 2) / (double)dim(t, 1), best = INFINITY;
    size_t at = 0;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        double d = fabs(aspect - (double)size[i].w / size[i].h);
        if (d < best) {
            best = d;
            at = i;
        }
    }
    return scaled(c, t, size[at].w, size[at].h, "lanczos", true, err);
}

NODE_CLASS(FluxKontextImageScale, .category = "advanced/conditioning/flux", V3("flux"),
           .description = "Resizes to a size that Flux Kontext likes.",
           INS(SOCKET("image", "IMAGE")), OUT(out_image), .run = kontext_run);
