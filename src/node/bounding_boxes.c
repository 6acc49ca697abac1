/* bounding_boxes.c: CreateBoundingBoxes: boxes that people drew, as pixels, as elements of a prompt
 * and as a picture. */
#include "node/draw.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOXES_MAX 4096
#define PREVIEW_LONG_EDGE 1024
#define PREVIEW_DIM 0.25
#define SWATCHES 5

struct region {
    double x, y, w, h;                   /* fractions of the canvas; w and h may be negative */
    const json_t *text, *desc, *palette; /* borrowed; NULL: none */
    bool is_text;
};

struct regions {
    struct region at[BOXES_MAX];
    size_t n;
};

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "bounding boxes");
}

/* A number of an object; what is not there is 0. */
static berth_status number(const json_t *o, const char *key, double *out, berth_err *err)
{
    const json_t *v = json_object_get(o, key);
    *out = 0;
    if ((v && !js_get_f64(v, out)) || !isfinite(*out))
        return err_set(err, BERTH_EINVAL, "bboxes: '%s' is not a number", key);
    return BERTH_OK;
}

static json_int_t whole(double v) /* as Python rounds */
{
    double r = nearbyint(v);
    return r > 1e15 ? (json_int_t)1e15 : r < -1e15 ? -(json_int_t)1e15 : (json_int_t)r;
}

/* ---- what comes over the link ---- */

static bool is_element(const json_t *v)
{
    const json_t *b = json_object_get(v, "bbox");
    return json_is_array(b) && json_array_size(b) == 4;
}

static bool is_box(const json_t *v)
{
    return json_object_get(v, "x") && json_object_get(v, "y") && json_object_get(v, "width") &&
           json_object_get(v, "height");
}

/* {"x", "y", "width", "height"} and its metadata. */
static berth_status add_box(json_t *out, const json_t *box, berth_err *err)
{
    static const char *const key[] = { "x", "y", "width", "height" };
    json_t *o = json_object(), *meta = json_object_get(box, "metadata");
    bool ok = o;
    for (size_t i = 0; ok && i < ARRAY_LEN(key); i++) {
        json_t *v = json_object_get(box, key[i]);
        ok = !(v ? json_object_set(o, key[i], v) : json_object_set_new(o, key[i], json_integer(0)));
    }
    if (ok && json_is_object(meta))
        ok = !json_object_set(o, "metadata", meta);
    return !json_array_append_new(out, o) && ok ? BERTH_OK : no_memory(err);
}

/* [ymin, xmin, ymax, xmax] in thousandths as a box in pixels. */
static berth_status add_element(json_t *out, const json_t *e, size_t w, size_t h, berth_err *err)
{
    const json_t *list = json_object_get(e, "bbox"), *type = json_object_get(e, "type");
    double v[4];
    if (!w || !h)
        return err_set(err, BERTH_EINVAL,
                       "normalized element boxes need canvas_width and canvas_height to resolve to "
                       "pixels");
    for (size_t i = 0; i < 4; i++)
        if (!js_get_f64(json_array_get(list, i), &v[i]) || !isfinite(v[i]))
            return err_set(err, BERTH_EINVAL, "bboxes element 'bbox' must contain four numbers");
    bool text = json_is_string(type) && !strcmp(json_string_value(type), "text");
    json_t *said = json_object_get(e, "text"), *desc = json_object_get(e, "desc");
    json_t *colors = json_object_get(e, "color_palette");
    double W = (double)w / 1000, H = (double)h / 1000;
    json_t *box = json_pack(
        "{s:I,s:I,s:I,s:I,s:{s:s,s:o,s:o,s:o}}", "x", whole((v[1] < v[3] ? v[1] : v[3]) * W), "y",
        whole((v[0] < v[2] ? v[0] : v[2]) * H), "width", whole(fabs(v[3] - v[1]) * W), "height",
        whole(fabs(v[2] - v[0]) * H), "metadata", "type", text ? "text" : "obj", "text",
        text && said ? json_incref(said) : json_string(""), "desc",
        desc ? json_incref(desc) : json_string(""), "palette",
        json_is_array(colors) ? json_incref(colors) : json_array());
    return json_array_append_new(out, box) ? no_memory(err) : BERTH_OK;
}

/* Boxes of one frame, or elements. */
static berth_status add_list(json_t *out, const json_t *list, bool elements, size_t w, size_t h,
                             berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (!json_is_object(one))
            continue;
        if (elements && !is_element(one))
            return err_set(err, BERTH_EINVAL,
                           "bboxes element is missing a valid 'bbox' [ymin, xmin, ymax, xmax]");
        s = elements ? add_element(out, one, w, h, err) : add_box(out, one, err);
    }
    return s;
}

static berth_status boxes_from(const json_t *v, size_t w, size_t h, json_t *out, berth_err *err)
{
    const json_t *first = json_array_get(v, 0);
    if (json_is_object(v)) {
        if (is_element(v))
            return add_element(out, v, w, h, err);
        return is_box(v) ? add_box(out, v, err)
                         : err_set(err, BERTH_EINVAL,
                                   "bboxes dict must be a bounding box (x, y, width, height) or an "
                                   "element (with a 'bbox')");
    }
    if (!json_is_array(v))
        return err_set(err, BERTH_EINVAL,
                       "bboxes input must be bounding boxes, elements, or a JSON string");
    if (!first)
        return BERTH_OK;
    if (json_is_array(first)) /* frames: the first */
        return add_list(out, first, false, w, h, err);
    if (!json_is_object(first) || (!is_element(first) && !is_box(first)))
        return err_set(
            err, BERTH_EINVAL,
            "bboxes items must be bounding boxes (x, y, width, height) or elements (with "
            "a 'bbox')");
    return add_list(out, v, is_element(first), w, h, err);
}

berth_status in_boxes(struct node_call *c, size_t w, size_t h, json_t **out, berth_err *err)
{
    const struct value *v = in_value(c, "bboxes");
    json_t *parsed = NULL;
    berth_err why = { 0 };
    *out = json_array();
    if (!*out)
        return no_memory(err);
    if (!v || v->kind == V_NULL)
        return BERTH_OK;
    if (v->kind == V_STRING) {
        if (!v->s.p[strspn(v->s.p, " \t\r\n\f\v")])
            return BERTH_OK;
        if (js_parse(v->s.p, v->s.n, NULL, &parsed, &why))
            return err_set(err, BERTH_EINVAL, "bboxes string input is not valid JSON: %s", why.msg);
    } else if (v->kind != V_JSON) {
        return err_set(err, BERTH_EINVAL,
                       "bboxes input must be bounding boxes, elements, or a JSON string");
    }
    berth_status s = boxes_from(parsed ? parsed : v->json, w, h, *out, err);
    json_decref(parsed);
    return s;
}

/* Numbers by value: 1 and 1.0 are the same. */
static bool same(const json_t *a, const json_t *b)
{
    double x, y;
    if (!a || !b)
        return false;
    if (js_get_f64(a, &x) && js_get_f64(b, &y))
        return x == y;
    if (json_is_array(a) && json_is_array(b)) {
        bool ok = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; ok && i < json_array_size(a); i++)
            ok = same(json_array_get(a, i), json_array_get(b, i));
        return ok;
    }
    if (!json_is_object(a) || !json_is_object(b))
        return json_equal(a, b);
    bool ok = json_object_size(a) == json_object_size(b);
    json_t *o = (json_t *)(uintptr_t)a;
    for (void *i = json_object_iter(o); ok && i; i = json_object_iter_next(o, i))
        ok = same(json_object_iter_value(i), json_object_get(b, json_object_iter_key(i)));
    return ok;
}

/* ---- regions ---- */

static const json_t *json_input(struct node_call *c, const char *name)
{
    const struct value *v = in_value(c, name);
    return v && v->kind == V_JSON && json_is_array(v->json) ? v->json : NULL;
}

static berth_status regions_of(const json_t *boxes, size_t w, size_t h, struct regions *out,
                               berth_err *err)
{
    for (size_t i = 0; i < json_array_size(boxes); i++) {
        const json_t *box = json_array_get(boxes, i), *meta = json_object_get(box, "metadata");
        double x, y, bw, bh;
        if (!json_is_object(box))
            continue;
        if (out->n == BOXES_MAX)
            return err_set(err, BERTH_ELIMIT, "more than %d bounding boxes", BOXES_MAX);
        if (number(box, "x", &x, err) || number(box, "y", &y, err) ||
            number(box, "width", &bw, err) || number(box, "height", &bh, err))
            return err->code;
        const char *type = json_string_value(json_object_get(meta, "type"));
        out->at[out->n++] = (struct region) { .x = x / (double)w,
                                              .y = y / (double)h,
                                              .w = bw / (double)w,
                                              .h = bh / (double)h,
                                              .text = json_object_get(meta, "text"),
                                              .desc = json_object_get(meta, "desc"),
                                              .palette = json_object_get(meta, "palette"),
                                              .is_text = type && !strcmp(type, "text") };
    }
    return BERTH_OK;
}

/* [[{"x", "y", "width", "height"}, ...]]: one frame, or none. */
static json_t *pixel_boxes(const struct regions *r, size_t w, size_t h)
{
    json_t *frame = json_array();
    double W = (double)w, H = (double)h;
    for (size_t i = 0; frame && i < r->n; i++) {
        const struct region *g = &r->at[i];
        double x = g->w < 0 ? g->x + g->w : g->x, y = g->h < 0 ? g->y + g->h : g->y;
        if (json_array_append_new(frame, json_pack("{s:I,s:I,s:I,s:I}", "x", whole(x * W), "y",
                                                   whole(y * H), "width", whole(fabs(g->w) * W),
                                                   "height", whole(fabs(g->h) * H)))) {
            json_decref(frame);
            return NULL;
        }
    }
    if (!frame || r->n)
        return frame ? json_pack("[o]", frame) : NULL;
    return frame;
}

static json_int_t thousandth(double v)
{
    json_int_t t = whole(v * 1000);
    return t < 0 ? 0 : t > 1000 ? 1000 : t;
}

/* Colours in capitals, at most SWATCHES; NULL: none, or no memory. */
static json_t *palette_json(const json_t *palette)
{
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(palette); i++) {
        const char *text = json_string_value(json_array_get(palette, i));
        char upper[32];
        size_t n = text ? strlen(text) : 0;
        if (!n || n >= sizeof upper || json_array_size(out) == SWATCHES)
            continue;
        for (size_t k = 0; k <= n; k++)
            upper[k] = (char)toupper((unsigned char)text[k]);
        json_array_append_new(out, json_string(upper));
    }
    if (out && !json_array_size(out)) {
        json_decref(out);
        out = NULL;
    }
    return out;
}

static json_t *text_or_blank(const json_t *v)
{
    return v ? json_incref((json_t *)(uintptr_t)v) : json_string("");
}

static json_t *element_of(const struct region *g)
{
    json_int_t b[4] = { thousandth(g->y), thousandth(g->x), thousandth(g->y + g->h),
                        thousandth(g->x + g->w) };
    for (int k = 0; k < 2; k++)
        if (b[k] > b[k + 2]) {
            json_int_t low = b[k + 2];
            b[k + 2] = b[k];
            b[k] = low;
        }
    json_t *o = json_pack("{s:s,s:[I,I,I,I]}", "type", g->is_text ? "text" : "obj", "bbox", b[0],
                          b[1], b[2], b[3]);
    json_t *colors = palette_json(g->palette);
    bool ok = o && (!g->is_text || !json_object_set_new(o, "text", text_or_blank(g->text)));
    ok = ok && !json_object_set_new(o, "desc", text_or_blank(g->desc));
    if (colors && ok)
        ok = !json_object_set(o, "color_palette", colors);
    json_decref(colors);
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *elements_of(const struct regions *r)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < r->n; i++)
        if (json_array_append_new(list, element_of(&r->at[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* ---- the preview ---- */

struct preview {
    struct node_call *call;
    struct image layer;
    unsigned size, tag; /* of texts */
};

static void hex_color(const char *text, uint8_t rgba[4])
{
    memset(rgba, 255, 4);
    text += strspn(text, "#");
    if (strlen(text) == 6 && !parse_hex_color(text, 3, rgba))
        memset(rgba, 255, 4);
}

/* Colours a text can be read in over something dark. */
static void readable(const uint8_t rgba[4], uint8_t out[4])
{
    double light = 0.299 * rgba[0] + 0.587 * rgba[1] + 0.114 * rgba[2];
    double t = light < 130 ? (130 - light) / (255 - light) : 0;
    for (int k = 0; k < 3; k++)
        out[k] = (uint8_t)nearbyint(rgba[k] + (255 - rgba[k]) * t);
    out[3] = 255;
}

static long clipped(double v, uint32_t most)
{
    double r = nearbyint(v);
    return r < 0 ? 0 : r > (double)most ? (long)most : (long)r;
}

/* The n-th colour that is one; NULL: no more. */
static const char *color_at(const struct region *g, size_t n)
{
    for (size_t i = 0; i < json_array_size(g->palette); i++) {
        const char *text = json_string_value(json_array_get(g->palette, i));
        if (text && *text && !n--)
            return text;
    }
    return NULL;
}

static void draw_swatches(struct preview *p, const struct region *g, struct rect r)
{
    size_t n = 0;
    uint8_t rgba[4];
    long high = p->size / 2 > 5 ? (long)p->size / 2 : 5;
    while (n < SWATCHES && color_at(g, n))
        n++;
    if (!n || r.x1 - r.x0 <= 2)
        return;
    double seg = (double)(r.x1 - r.x0) / (double)n;
    for (size_t i = 0; i < n; i++) {
        hex_color(color_at(g, i), rgba);
        layer_rect(&p->layer,
                   (struct rect) { r.x0 + (long)nearbyint((double)i * seg), r.y0,
                                   r.x0 + (long)nearbyint((double)(i + 1) * seg), r.y0 + high },
                   rgba);
    }
}

static berth_status draw_tag(struct preview *p, size_t i, struct rect r, const uint8_t rgba[4],
                             berth_err *err)
{
    char tag[24];
    int n = snprintf(tag, sizeof tag, "%02zu", i + 1);
    double light = 0.299 * rgba[0] + 0.587 * rgba[1] + 0.114 * rgba[2];
    uint8_t v = light > 140 ? 0 : 255, ink[4] = { v, v, v, 255 };
    int w = font_width(tag, (size_t)n, p->tag);
    layer_rect(&p->layer, (struct rect) { r.x0, r.y0, r.x0 + w + 6, r.y0 + (long)p->size + 2 },
               rgba);
    return layer_text(&p->layer, tag, (size_t)n,
                      (struct font_at) { (int)r.x0 + 3, (int)r.y0 + 1, p->tag, 0 }, ink, err);
}

static berth_status draw_body(struct preview *p, const struct region *g, struct rect r,
                              const uint8_t rgba[4], berth_err *err)
{
    const char *desc = json_string_value(g->desc), *text = json_string_value(g->text);
    struct wrapping w = { .size = p->size, .width = (int)(r.x1 - r.x0) - 8 };
    struct text_lines lines;
    struct str body = { 0 };
    uint8_t ink[4];
    if (g->is_text && text && *text)
        str_addf(&body, "\"%s\"%s", text, desc && *desc ? " \xe2\x80\x94 " : "");
    str_adds(&body, desc ? desc : "");
    berth_status s = body.bad ? no_memory(err) : BERTH_OK;
    if (!s && body.n && r.x1 - r.x0 > 8 &&
        !(s = wrap_text(p->call, str_c(&body), &w, &lines, err))) {
        long y = r.y0 + (long)p->size + 5;
        readable(rgba, ink);
        for (size_t i = 0; !s && i < lines.n && y <= r.y1; i++, y += (long)p->size + 2)
            s = layer_text(&p->layer, str_c(&lines.at[i]), lines.at[i].n,
                           (struct font_at) { (int)r.x0 + 4, (int)y, p->size, 0 }, ink, err);
        text_lines_release(&lines);
    }
    str_release(&body);
    return s;
}

static berth_status draw_region(struct preview *p, const struct region *g, size_t i, berth_err *err)
{
    uint8_t rgba[4] = { 140, 140, 140, 255 };
    double W = p->layer.w, H = p->layer.h;
    struct rect r = { clipped(g->x * W, p->layer.w), clipped(g->y * H, p->layer.h),
                      clipped((g->x + g->w) * W, p->layer.w),
                      clipped((g->y + g->h) * H, p->layer.h) };
    if (color_at(g, 0))
        hex_color(color_at(g, 0), rgba);
    if (r.x1 < r.x0)
        r = (struct rect) { r.x1, r.y0, r.x0, r.y1 };
    if (r.y1 < r.y0)
        r = (struct rect) { r.x0, r.y1, r.x1, r.y0 };
    layer_frame(&p->layer, r, 2, rgba);
    draw_swatches(p, g, r);
    berth_status s = draw_tag(p, i, r, rgba, err);
    return s ? s : draw_body(p, g, r, rgba, err);
}

/* The background, small and dark, or grey: [1,h,w,3]. */
static berth_status base_of(struct node_call *c, size_t w, size_t h, struct htensor **out,
                            berth_err *err)
{
    struct htensor *t = NULL, *one = NULL;
    if (in_given(c, "background")) {
        if (in_image(c, "background", &t, err))
            return err->code;
        w = dim(t, 2);
        h = dim(t, 1);
    }
    double by = (double)PREVIEW_LONG_EDGE / (double)(w > h ? w : h);
    double rw = nearbyint((double)w * (by < 1 ? by : 1)),
           rh = nearbyint((double)h * (by < 1 ? by : 1));
    size_t nw = rw > 1 ? (size_t)rw : 1, nh = rh > 1 ? (size_t)rh : 1;
    if (!t) {
        berth_status s = image_tensor(1, nh, nw, 3, out, err);
        for (size_t i = 0, n = s ? 0 : htensor_count(*out); i < n; i++)
            (*out)->data[i] = 32.0f / 255.0f;
        return s;
    }
    if (dim(t, 3) < 3)
        return err_set(err, BERTH_EINVAL, "the background cannot have %zu channels", dim(t, 3));
    if (image_tensor(1, h, w, 3, &one, err))
        return err->code;
    for (size_t i = 0; i < h * w * 3; i++)
        one->data[i] = t->data[i / 3 * dim(t, 3) + i % 3];
    berth_status s = scale_image(c, one, nw, nh, "lanczos", false, out, err);
    htensor_unref(one);
    for (size_t i = 0, n = s ? 0 : htensor_count(*out); i < n; i++)
        (*out)->data[i] = (float)(int)((double)(*out)->data[i] * 255 * PREVIEW_DIM + 1e-4) / 255.0f;
    return s;
}

static berth_status draw_preview(struct node_call *c, const struct regions *r, size_t w, size_t h,
                                 struct htensor **out, berth_err *err)
{
    struct preview p = { .call = c };
    berth_status s = base_of(c, w, h, out, err);
    if (s)
        return s;
    s = layer_init(&p.layer, dim(*out, 2), dim(*out, 1), err);
    double size = nearbyint((double)dim(*out, 1) / 64);
    p.size = size > 10 ? (unsigned)size : 10;
    p.tag = p.size - 2 > 9 ? p.size - 2 : 9;
    for (size_t i = 0; !s && i < r->n; i++) {
        s = call_check(c, err);
        if (!s)
            s = draw_region(&p, &r->at[i], i, err);
    }
    for (size_t i = 0, n = s ? 0 : htensor_count(*out); i < n; i++) {
        const uint8_t *px = p.layer.px + i / 3 * 4;
        float a = (float)px[3] / 255.0f;
        (*out)->data[i] = (*out)->data[i] * (1.0f - a) + (float)px[i % 3] / 255.0f * a;
    }
    image_release(&p.layer);
    return htensor_made(s, out);
}

/* ---- the node ---- */

static berth_status tell_ui(struct node_call *c, size_t w, size_t h, json_t *incoming,
                            berth_err *err)
{
    if (ui_add(c, "dims", json_integer((json_int_t)w), err) ||
        ui_add(c, "dims", json_integer((json_int_t)h), err))
        return err->code;
    if (json_array_size(incoming) && json_object_set(c->ui, "input_bboxes", incoming))
        return no_memory(err);
    return BERTH_OK;
}

static berth_status boxes_run(struct node_call *c, berth_err *err)
{
    static const json_t *const none = NULL;
    uint64_t w, h;
    json_t *incoming = NULL;
    struct htensor *preview = NULL;
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err))
        return err->code;
    if (!w || !h || w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "the canvas cannot be %" PRIu64 "x%" PRIu64 " pixels", w,
                       h);
    struct regions *r = calloc(1, sizeof *r);
    berth_status s = r ? in_boxes(c, w, h, &incoming, err) : no_memory(err);
    if (!s) {
        const json_t *applied = json_input(c, "last_incoming");
        bool changed = json_array_size(incoming) && !(applied && same(incoming, applied));
        const json_t *drawn = json_input(c, "editor_state");
        s = regions_of(changed ? incoming : drawn ? drawn : none, w, h, r, err);
    }
    if (!s)
        s = draw_preview(c, r, w, h, &preview, err);
    if (!s)
        s = tell_ui(c, w, h, incoming, err);
    s = give_tensor(c, s, preview, err);
    if (!s)
        s = out_value(c, 1, value_json(pixel_boxes(r, w, h)), err);
    if (!s)
        s = out_value(c, 2, value_json(elements_of(r)), err);
    json_decref(incoming);
    free(r);
    return s;
}

#define NO_BOXES "\"default\":[],\"socketless\":"
NODE_CLASS(
    CreateBoundingBoxes, .display = "Create Bounding Boxes", .category = "utilities",
    .module = MOD("bounding_boxes"),
    .description = "Boxes drawn on a canvas, for prompts that place things.",
    .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO,
    INS(INT_IN("width", 1024, 64, MAX_SIDE, 16), INT_IN("height", 1024, 64, MAX_SIDE, 16),
        SOCKET("editor_state", "BOUNDING_BOXES", .more = NO_BOXES "false"),
        OPTIONAL("background", "IMAGE"), OPTIONAL("bboxes", "BOUNDING_BOX,ARRAY,STRING"),
        SOCKET("last_incoming", "BOUNDING_BOXES", .optional = true, .more = NO_BOXES "true")),
    OUTS({ .type = "IMAGE", .name = "preview" }, { .type = "BOUNDING_BOX", .name = "bboxes" },
         { .type = "ARRAY", .name = "elements" }),
    .run = boxes_run);
