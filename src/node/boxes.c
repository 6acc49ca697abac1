/* boxes: pictures and the boxes that detectors found in them: drawn, or cut out. Boxes come as one
 * {"x", "y", "width", "height", "label"?, "score"?}, a list of such, or a list for each picture. */
#include "node/draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOX_IN                                                                                     \
    SOCKET("bboxes", "BOUNDING_BOX",                                                               \
           .more = "\"default\":{\"x\":0,\"y\":0,\"width\":512,\"height\":512},"                   \
                   "\"socketless\":true,\"forceInput\":true")
#define BOXES_MAX 65536

struct box {
    double x, y, w, h, score;
    const char *label; /* borrowed from the input; NULL: none that is known */
    size_t class;      /* its number */
    size_t at;         /* in its list: boxes of one score stay in order */
};

/* What detectors call things, in the order of their colours. */
static const char *const classes[] = {
    "person",        "bicycle",      "car",
    "motorcycle",    "airplane",     "bus",
    "train",         "truck",        "boat",
    "traffic light", "fire hydrant", "stop sign",
    "parking meter", "bench",        "bird",
    "cat",           "dog",          "horse",
    "sheep",         "cow",          "elephant",
    "bear",          "zebra",        "giraffe",
    "backpack",      "umbrella",     "handbag",
    "tie",           "suitcase",     "frisbee",
    "skis",          "snowboard",    "sports ball",
    "kite",          "baseball bat", "baseball glove",
    "skateboard",    "surfboard",    "tennis racket",
    "bottle",        "wine glass",   "cup",
    "fork",          "knife",        "spoon",
    "bowl",          "banana",       "apple",
    "sandwich",      "orange",       "broccoli",
    "carrot",        "hot dog",      "pizza",
    "donut",         "cake",         "chair",
    "couch",         "potted plant", "bed",
    "dining table",  "toilet",       "tv",
    "laptop",        "mouse",        "remote",
    "keyboard",      "cell phone",   "microwave",
    "oven",          "toaster",      "sink",
    "refrigerator",  "book",         "clock",
    "vase",          "scissors",     "teddy bear",
    "hair drier",    "toothbrush",
};

static berth_status number(const json_t *o, const char *key, const double *otherwise, double *out,
                           berth_err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v && otherwise) {
        *out = *otherwise;
        return BERTH_OK;
    }
    return v && js_get_f64(v, out) && fabs(*out) <= 1e9
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL, "bboxes: a box without '%s'", key);
}

static berth_status read_box(const json_t *o, struct box *b, berth_err *err)
{
    const double one = 1;
    const char *label = json_string_value(json_object_get(o, "label"));
    *b = (struct box) { 0 };
    if (!json_is_object(o))
        return err_set(err, BERTH_EINVAL, "bboxes: something that is no box");
    if (number(o, "x", NULL, &b->x, err) || number(o, "y", NULL, &b->y, err) ||
        number(o, "width", NULL, &b->w, err) || number(o, "height", NULL, &b->h, err) ||
        number(o, "score", &one, &b->score, err))
        return err->code;
    for (size_t i = 0; label && i < ARRAY_LEN(classes); i++)
        if (strcmp(label, classes[i]) == 0) {
            b->label = classes[i];
            b->class = i;
        }
    return BERTH_OK;
}

/* The boxes of a list; free() them. */
static berth_status read_boxes(const json_t *list, struct box **out, size_t *n, berth_err *err)
{
    *n = json_array_size(list);
    *out = NULL;
    if (!list)
        return err_set(err, BERTH_ENOMEM, "a list of boxes");
    *out = *n <= BOXES_MAX ? calloc(*n + 1, sizeof **out) : NULL;
    if (!*out)
        return err_set(err, *n > BOXES_MAX ? BERTH_ELIMIT : BERTH_ENOMEM, "%zu boxes", *n);
    for (size_t i = 0; i < *n; i++) {
        if (read_box(json_array_get(list, i), &(*out)[i], err)) {
            free(*out);
            *out = NULL;
            return err->code;
        }
        (*out)[i].at = i;
    }
    return BERTH_OK;
}

static berth_status in_json(const struct node_call *c, const json_t **out, berth_err *err)
{
    const struct value *v = in_value(c, "bboxes");
    *out = v && v->kind == V_JSON ? v->json : NULL;
    return *out ? BERTH_OK
                : err_set(err, BERTH_EINVAL,
                          "input 'bboxes' wants bounding boxes and got "
                          "something else");
}

/* ---- drawn ---- */

static int by_score(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* The list for picture i; a box, or a list of boxes, counts for all of them. *own is a new list
 * around a single box. NULL: no memory for that. */
static const json_t *list_for(const json_t *v, size_t i, json_t **own)
{
    const json_t *first = json_array_get(v, 0);
    if (json_is_object(v))
        return *own = json_pack("[O]", v);
    if (!first || json_is_object(first))
        return v;
    size_t n = json_array_size(v);
    return i < n || n == 1 ? json_array_get(v, n == 1 ? 0 : i) : (*own = json_array());
}

static long cut(double v) /* towards 0, as int() of Python; to what a picture may have */
{
    return v > (double)SIDE_MAX    ? (long)SIDE_MAX
           : v < -(double)SIDE_MAX ? -(long)SIDE_MAX
                                   : (long)v;
}

/* What is drawn lies over the picture. */
static void lay_over(const struct image *layer, struct image *im)
{
    for (size_t i = 0; i < (size_t)im->w * im->h; i++) {
        const uint8_t *from = layer->px + 4 * i;
        uint8_t *to = im->px + im->channels * i;
        for (unsigned k = 0; k < 3; k++)
            to[k] = (uint8_t)((from[k] * from[3] + to[k] * (255 - from[3]) + 127) / 255);
        if (im->channels == 4 && from[3])
            to[3] = 255;
    }
}

/* Text is in the built-in typeface, of the size that Pillow's own has. */
#define LABEL_SIZE 10

static berth_status draw_box(struct image *layer, const struct box *b, berth_err *err)
{
    static const uint8_t colors[][4] = {
        { 255, 0, 0, 255 },   { 0, 200, 0, 255 },   { 0, 0, 255, 255 },    { 255, 165, 0, 255 },
        { 128, 0, 128, 255 }, { 0, 255, 255, 255 }, { 255, 20, 147, 255 }, { 100, 149, 237, 255 },
    };
    const uint8_t *color = colors[b->class % ARRAY_LEN(colors)];
    char text[64];
    struct rect r = { cut(b->x), cut(b->y), cut(b->x + b->w), cut(b->y + b->h) };
    if (r.x1 < r.x0 || r.y1 < r.y0)
        return err_set(err, BERTH_EINVAL, "a box of %g x %g", b->w, b->h);
    layer_frame(layer, r, 3, color);
    if (!b->label)
        return BERTH_OK;
    int n = snprintf(text, sizeof text, "%s %.2f", b->label, b->score);
    return layer_text(
        layer, text, (size_t)n,
        (struct font_at) { .x = (int)r.x0 + 2, .y = (int)r.y0 + 2, .size = LABEL_SIZE }, color,
        err);
}

static berth_status draw_boxes(struct image *im, const json_t *list, berth_err *err)
{
    struct image layer = { 0 };
    struct box *b;
    size_t n;
    if (read_boxes(list, &b, &n, err))
        return err->code;
    berth_status s = n ? layer_init(&layer, im->w, im->h, err) : BERTH_OK;
    qsort(b, n, sizeof *b, by_score);
    for (size_t i = 0; !s && i < n; i++)
        s = draw_box(&layer, &b[i], err);
    if (!s && n)
        lay_over(&layer, im);
    image_release(&layer);
    free(b);
    return s;
}

/* Black, as large as the boxes reach. */
static berth_status canvas(const json_t *v, struct htensor **out, berth_err *err)
{
    json_t *own = NULL;
    struct box *b;
    size_t n;
    long w = 0, h = 0;
    berth_status s = read_boxes(list_for(v, 0, &own), &b, &n, err);
    json_decref(own);
    if (s)
        return s;
    for (size_t i = 0; i < n; i++) {
        w = cut(b[i].x + b[i].w) > w ? cut(b[i].x + b[i].w) : w;
        h = cut(b[i].y + b[i].h) > h ? cut(b[i].y + b[i].h) : h;
    }
    free(b);
    if (n && (w < 1 || h < 1))
        return err_set(err, BERTH_EINVAL, "boxes that reach to %ld x %ld", w, h);
    return htensor_zeros(
        &(struct shape) { 4, { 1, n ? (uint64_t)h : 640, n ? (uint64_t)w : 640, 3 } }, out, err);
}

static berth_status draw_all(struct node_call *c, const json_t *v, const struct htensor *t,
                             struct htensor *to, berth_err *err)
{
    size_t each = dim(t, 1) * dim(t, 2) * dim(t, 3);
    for (size_t i = 0; i < dim(t, 0); i++) {
        struct image im = { 0 };
        json_t *own = NULL;
        berth_status s = call_check(c, err);
        if (!s)
            s = image_8bit(t, i, &im, err);
        if (!s)
            s = draw_boxes(&im, list_for(v, i, &own), err);
        json_decref(own);
        for (size_t k = 0; !s && k < each; k++)
            to->data[i * each + k] = (float)im.px[k] / 255.0f;
        image_release(&im);
        if (s)
            return s;
    }
    return BERTH_OK;
}

static berth_status run_draw(struct node_call *c, berth_err *err)
{
    const json_t *v;
    struct htensor *t = NULL, *to = NULL;
    if (in_json(c, &v, err))
        return err->code;
    bool given = in_given(c, "image");
    berth_status s = given ? in_image(c, "image", &t, err) : canvas(v, &t, err);
    t = s ? NULL : given ? htensor_ref(t) : t;
    if (!s && dim(t, 3) != 3 && dim(t, 3) != 4)
        s = err_set(err, BERTH_EINVAL, "boxes on pictures of %zu channels", dim(t, 3));
    if (!s)
        s = htensor_new(&t->shape, &to, err);
    if (!s)
        s = draw_all(c, v, t, to, err);
    htensor_unref(t);
    return give_tensor(c, s, to, err);
}

NODE_CLASS(DrawBBoxes, .display = "Draw BBoxes", .category = "image/detection", V3("rtdetr"),
           INS(BOX_IN, OPTIONAL("image", "IMAGE")), OUTS({ .type = "IMAGE", .name = "out_image" }),
           .run = run_draw);

/* ---- cut out ---- */

/* Around all boxes of a picture; false: there is nothing to cut out. */
static bool around(const struct box *b, size_t n, long padding, long h, long w, struct part *out)
{
    long x0 = SIDE_MAX, y0 = SIDE_MAX, x1 = -(long)SIDE_MAX, y1 = -(long)SIDE_MAX;
    for (size_t i = 0; i < n; i++) {
        x0 = cut(b[i].x) < x0 ? cut(b[i].x) : x0;
        y0 = cut(b[i].y) < y0 ? cut(b[i].y) : y0;
        x1 = cut(b[i].x + b[i].w) > x1 ? cut(b[i].x + b[i].w) : x1;
        y1 = cut(b[i].y + b[i].h) > y1 ? cut(b[i].y + b[i].h) : y1;
    }
    x0 = x0 - padding > 0 ? x0 - padding : 0;
    y0 = y0 - padding > 0 ? y0 - padding : 0;
    x1 = x1 + padding < w ? x1 + padding : w;
    y1 = y1 + padding < h ? y1 + padding : h;
    if (x1 <= x0 || y1 <= y0) { /* a square where faces usually are */
        long side = (long)((double)(h < w ? h : w) * 0.3);
        x0 = (w - side) / 2;
        y0 = (long)((double)h * 0.1);
        x1 = x0 + side < w ? x0 + side : w;
        y1 = y0 + side < h ? y0 + side : h;
    }
    if (x1 <= x0 || y1 <= y0)
        return false;
    *out = (struct part) { (size_t)y0, (size_t)x0, (size_t)(y1 - y0), (size_t)(x1 - x0) };
    return true;
}

/* The part of picture i into a black picture of to's size, all of it or with bars. */
static berth_status put_part(struct node_call *c, const struct htensor *t, size_t i, struct part p,
                             bool bars, struct htensor *to, size_t at, berth_err *err)
{
    size_t ch = dim(t, 3), h = dim(to, 1), w = dim(to, 2), sh = h, sw = w;
    struct htensor *piece, *sized = NULL;
    if (bars) {
        double by = fmin((double)w / (double)p.w, (double)h / (double)p.h);
        if (round_side((double)p.w * by, &sw, err) || round_side((double)p.h * by, &sh, err))
            return err->code;
    }
    if (image_tensor(1, p.h, p.w, ch, &piece, err))
        return err->code;
    copy_part(t->data + i * dim(t, 1) * dim(t, 2) * ch, dim(t, 1), dim(t, 2), ch, 1, p,
              piece->data);
    berth_status s = scale_image(c, piece, sw, sh, "area", false, &sized, err);
    htensor_unref(piece);
    float *from = s ? NULL : sized->data;
    size_t left = s ? 0 : (w - sw) / 2, top = s ? 0 : (h - sh) / 2;
    for (size_t y = 0; !s && y < sh; y++)
        memcpy(to->data + ((at * h + top + y) * w + left) * ch, from + y * sw * ch,
               sw * ch * sizeof *from);
    htensor_unref(sized);
    return s;
}

/* The list for picture i, of those for each of them. NULL: no memory for one around a box. */
static const json_t *frame_list(const json_t *v, size_t i, json_t **own)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return *own = json_pack("[O]", v);
    return json_array_get(v, i < n ? i : n - 1);
}

static berth_status cut_all(struct node_call *c, const json_t *v, const struct htensor *t,
                            long padding, bool bars, struct htensor *to, size_t *made,
                            berth_err *err)
{
    for (size_t i = 0; i < dim(t, 0); i++) {
        json_t *own = NULL;
        struct box *b = NULL;
        struct part p;
        size_t n = 0;
        const json_t *list = frame_list(v, i, &own);
        berth_status s = list && !json_is_array(list)
                             ? err_set(err, BERTH_EINVAL, "bboxes are a list for each picture")
                             : read_boxes(list, &b, &n, err);
        json_decref(own);
        if (!s && n && around(b, n, padding, (long)dim(t, 1), (long)dim(t, 2), &p))
            s = put_part(c, t, i, p, bars, to, *made, err);
        *made += !s && n;
        free(b);
        if (s || call_check(c, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status run_crop(struct node_call *c, berth_err *err)
{
    const json_t *v;
    struct htensor *t, *to = NULL, *some = NULL;
    uint64_t w, h;
    int64_t padding;
    const char *aspect;
    size_t made = 0;
    if (in_image(c, "image", &t, err) || in_json(c, &v, err) ||
        in_u64(c, "output_width", &w, err) || in_u64(c, "output_height", &h, err) ||
        in_i64(c, "padding", &padding, err) || in_text(c, "keep_aspect", &aspect, err))
        return err->code;
    if (!w || !h || w > SIDE_MAX || h > SIDE_MAX || padding < 0 || padding > (int64_t)SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "crops of %llu x %llu with a padding of %lld",
                       (unsigned long long)w, (unsigned long long)h, (long long)padding);
    if (json_is_array(v) && !json_array_size(v))
        return out_input(c, 0, "image", err);
    berth_status s = htensor_zeros(&(struct shape) { 4, { dim(t, 0), h, w, dim(t, 3) } }, &to, err);
    if (!s)
        s = cut_all(c, v, t, (long)padding, strcmp(aspect, "pad") == 0, to, &made, err);
    if (!s && made && made < dim(t, 0))
        s = tensor_slice(to, 0, made, &some, err);
    if (!s && !made) {
        htensor_unref(to);
        return out_input(c, 0, "image", err);
    }
    if (some)
        htensor_unref(to);
    return give_tensor(c, s, some ? some : to, err);
}

NODE_CLASS(CropByBBoxes, .display = "Crop By Bounding Boxes", .category = "image/transform",
           V3("sdpose"),
           .description = "Cuts out of each picture what its boxes are around, in one size.",
           INS(SOCKET("image", "IMAGE"), BOX_IN, INT_IN("output_width", 512, 64, 4096, 8),
               INT_IN("output_height", 512, 64, 4096, 8), INT_IN("padding", 0, 0, 1024, 1),
               COMBO_IN("keep_aspect", CHOICES("stretch", "pad"), .sdef = "stretch")),
           OUT(out_image), .run = run_crop);
