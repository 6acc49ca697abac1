/* image_color.c: colours: adjusted, in other spaces, counted, picked. */
#include "node/node_impl.h"

#include <string.h>

#define DATASET_NODE(c, shown, cat, ...)                                                           \
    NODE_CLASS(c, .display = shown, .category = cat, .module = MOD("dataset"),                     \
               .flags = NODE_V3 | NODE_EXPERIMENTAL, OUTS({ .type = "IMAGE", .name = "images" }),  \
               __VA_ARGS__)

/* ---- each value for itself ---- */

static berth_status normalize_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    double mean, std;
    if (in_image(c, "images", &t, err) || in_f64(c, "mean", &mean, err) ||
        in_f64(c, "std", &std, err))
        return err->code;
    if (std == 0)
        return err_set(err, BERTH_EINVAL, "std is 0");
    if (htensor_new(&t->shape, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        o->data[i] = (t->data[i] - (float)mean) / (float)std;
    return out_tensor(c, 0, o, err);
}
DATASET_NODE(NormalizeImages, "Normalize Image Colors", "image/color",
             INS(SOCKET("images", "IMAGE"), FLOAT_IN("mean", 0.5, 0.0, 1.0, 0, .more = ADVANCED),
                 FLOAT_IN("std", 0.5, 0.001, 1.0, 0, .more = ADVANCED)),
             .run = normalize_run);

/* (x - around) * factor + around */
static berth_status adjust(struct node_call *c, float around, berth_err *err)
{
    struct htensor *t, *o;
    double factor;
    if (in_image(c, "images", &t, err) || in_f64(c, "factor", &factor, err) ||
        htensor_new(&t->shape, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(t); i < n; i++)
        o->data[i] = clamp01((t->data[i] - around) * (float)factor + around);
    return out_tensor(c, 0, o, err);
}

static const struct node_input adjust_in[] = { SOCKET("images", "IMAGE"),
                                               FLOAT_IN("factor", 1.0, 0.0, 2.0, 0) };

static berth_status brightness_run(struct node_call *c, berth_err *err)
{
    return adjust(c, 0.0f, err);
}
DATASET_NODE(AdjustBrightness, "Adjust Brightness", "image/adjustments", IN(adjust_in),
             .run = brightness_run);

static berth_status contrast_run(struct node_call *c, berth_err *err)
{
    return adjust(c, 0.5f, err);
}
DATASET_NODE(AdjustContrast, "Adjust Contrast", "image/adjustments", IN(adjust_in),
             .run = contrast_run);

/* ---- YUV, as Kornia has it ---- */

static void to_yuv(const float *p, float out[3])
{
    float y = 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
    out[0] = y;
    out[1] = (p[2] - y) * 0.564f + 0.5f;
    out[2] = (p[0] - y) * 0.713f + 0.5f;
}

static berth_status rgb_to_yuv_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o[3] = { NULL, NULL, NULL };
    if (in_image(c, "image", &t, err))
        return err->code;
    if (dim(t, 3) != 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels is not RGB", dim(t, 3));
    berth_status s = BERTH_OK;
    for (int k = 0; !s && k < 3; k++)
        s = htensor_new(&t->shape, &o[k], err);
    for (size_t i = 0, n = s ? 0 : htensor_count(t); i < n; i += 3) {
        float yuv[3];
        to_yuv(t->data + i, yuv);
        for (int k = 0; k < 3; k++)
            o[k]->data[i] = o[k]->data[i + 1] = o[k]->data[i + 2] = yuv[k];
    }
    for (int k = 0; k < 3; k++)
        if (!s)
            s = out_tensor(c, (size_t)k, o[k], err);
        else
            htensor_unref(o[k]);
    return s;
}
NODE_CLASS(ImageRGBToYUV, .display = "Image RGB to YUV", .category = "image/color",
           V3("morphology"), INS(SOCKET("image", "IMAGE")),
           OUTS({ .type = "IMAGE", .name = "Y" }, { .type = "IMAGE", .name = "U" },
                { .type = "IMAGE", .name = "V" }),
           .run = rgb_to_yuv_run);

static float mean_of(const float *p, size_t n)
{
    float sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        sum += p[i];
    return sum / (float)n;
}

static berth_status yuv_to_rgb_run(struct node_call *c, berth_err *err)
{
    static const char *const name[] = { "Y", "U", "V" };
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    struct htensor *in[3], *o;
    for (int k = 0; k < 3; k++) {
        if (in_image(c, name[k], &in[k], err))
            return err->code;
        if (memcmp(in[k]->shape.dim, in[0]->shape.dim, 3 * sizeof *in[0]->shape.dim))
            return err_set(err, BERTH_EINVAL, "Y is %s and %s is %s: other sizes",
                           shape_text(&in[0]->shape, ta), name[k], shape_text(&in[k]->shape, tb));
    }
    if (image_tensor(dim(in[0], 0), dim(in[0], 1), dim(in[0], 2), 3, &o, err))
        return err->code;
    for (size_t p = 0, n = htensor_count(o) / 3; p < n; p++) {
        float v[3];
        for (int k = 0; k < 3; k++)
            v[k] = mean_of(in[k]->data + p * dim(in[k], 3), dim(in[k], 3));
        float y = v[0], cb = v[1] - 0.5f, cr = v[2] - 0.5f, *d = o->data + 3 * p;
        d[0] = clamp01(y + 1.4025245f * cr);
        d[1] = clamp01(y - 0.7144035f * cr - 0.3443401f * cb);
        d[2] = clamp01(y + 1.7730496f * cb);
    }
    return out_tensor(c, 0, o, err);
}
NODE_CLASS(ImageYUVToRGB, .display = "Image YUV to RGB", .category = "image/color",
           V3("morphology"), INS(SOCKET("Y", "IMAGE"), SOCKET("U", "IMAGE"), SOCKET("V", "IMAGE")),
           OUT(out_image), .run = yuv_to_rgb_run);

/* ---- ImageHistogram: how often each of 256 values is there, in the first picture ---- */

enum { HIST_RGB, HIST_LUMINANCE, HIST_RED, HIST_GREEN, HIST_BLUE, HISTS };

static size_t bin_of(float v)
{
    v *= 255.0f;
    return v > 0.0f ? (v < 255.0f ? (size_t)v : 255) : 0;
}

static json_t *hist_json(const json_int_t bins[256])
{
    json_t *list = json_array();
    for (int i = 0; list && i < 256; i++)
        if (json_array_append_new(list, json_integer(bins[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static berth_status histogram_run(struct node_call *c, berth_err *err)
{
    json_int_t hist[HISTS][256] = { { 0 } };
    struct htensor *t;
    if (in_image(c, "image", &t, err))
        return err->code;
    size_t ch = dim(t, 3), px = dim(t, 1) * dim(t, 2);
    if (ch < 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels has no colours", ch);
    for (size_t i = 0; i < px; i++) {
        const float *p = t->data + i * ch;
        hist[HIST_LUMINANCE][bin_of(0.2126f * p[0] + 0.7152f * p[1] + 0.0722f * p[2])]++;
        for (int k = 0; k < 3; k++)
            hist[HIST_RED + k][bin_of(p[k])]++;
    }
    for (int i = 0; i < 256; i++)
        hist[HIST_RGB][i] = (hist[HIST_RED][i] + hist[HIST_GREEN][i] + hist[HIST_BLUE][i]) / 3;
    berth_status s = BERTH_OK;
    for (size_t k = 0; !s && k < HISTS; k++)
        s = out_value(c, k, value_json(hist_json(hist[k])), err);
    return s;
}
NODE_CLASS(ImageHistogram, .display = "Image Histogram", .category = "utilities", V3("curve"),
           INS(SOCKET("image", "IMAGE")),
           OUTS({ .type = "HISTOGRAM", .name = "rgb" },
                { .type = "HISTOGRAM", .name = "luminance" },
                { .type = "HISTOGRAM", .name = "red" }, { .type = "HISTOGRAM", .name = "green" },
                { .type = "HISTOGRAM", .name = "blue" }),
           .run = histogram_run);

/* ---- CurveEditor ---- */

/* Points are pairs of numbers, in an object or a bare list. */
static berth_status check_curve(const json_t *curve, berth_err *err)
{
    const json_t *points = json_is_object(curve) ? json_object_get(curve, "points") : curve;
    double v;
    if (!json_is_array(points))
        return err_set(err, BERTH_EINVAL, "input 'curve' has no points");
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *p = json_array_get(points, i);
        if (json_array_size(p) != 2 || !js_get_f64(json_array_get(p, 0), &v) ||
            !js_get_f64(json_array_get(p, 1), &v))
            return err_set(err, BERTH_EINVAL, "input 'curve': point %zu is no pair of numbers", i);
    }
    return BERTH_OK;
}

static berth_status curve_run(struct node_call *c, berth_err *err)
{
    struct value *v = in_value(c, "curve"), *hist = in_value(c, "histogram");
    if (!v || v->kind != V_JSON || check_curve(v->json, err))
        return v && v->kind == V_JSON ? err->code
                                      : err_set(err, BERTH_EINVAL, "input 'curve' is no CURVE");
    if (hist && hist->kind == V_JSON && json_is_array(hist->json)) {
        c->ui = c->ui ? c->ui : json_object();
        if (json_object_set(c->ui, "histogram", hist->json))
            return err_set(err, BERTH_ENOMEM, "ui of %s", c->cls->name);
    }
    return out_value(c, 0, value_ref(v), err);
}
NODE_CLASS(CurveEditor, .display = "Curve Editor", .category = "utilities", .module = MOD("curve"),
           .flags = NODE_V3 | NODE_INTERMEDIATE,
           INS(SOCKET("curve", "CURVE",
                      .more = "\"default\":{\"points\":[[0.0,0.0],[1.0,1.0]],"
                              "\"interpolation\":\"monotone_cubic\"}," SOCKETLESS),
               OPTIONAL("histogram", "HISTOGRAM")),
           OUTS({ .type = "CURVE", .name = "curve" }), .run = curve_run);

/* ---- colours as text ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool parse_hex_color(const char *text, size_t bytes, uint8_t *out)
{
    for (size_t i = 0; i < bytes; i++) {
        int hi = hex_digit(text[2 * i]), lo = hi < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (lo < 0)
            return false;
        out[i] = (uint8_t)(hi * 16 + lo);
    }
    return true;
}
