/* image_batch.c: pictures joined, repeated, cut and padded. */
#include "base/sz.h"
#include "node/node_impl.h"

#include <inttypes.h>
#include <string.h>

static berth_status batch_run(struct node_call *c, berth_err *err)
{
    struct htensor *in1, *in2, *a = NULL, *b = NULL, *fit = NULL, *o = NULL;
    berth_status s;
    if (in_image(c, "image1", &in1, err) || in_image(c, "image2", &in2, err))
        return err->code;
    size_t channels = dim(in1, 3) > dim(in2, 3) ? dim(in1, 3) : dim(in2, 3);
    if ((s = widen_image(in1, channels, 1.0f, &a, err)) ||
        (s = widen_image(in2, channels, 1.0f, &b, err)))
        goto done;
    if (dim(a, 1) != dim(b, 1) || dim(a, 2) != dim(b, 2)) {
        s = scale_image(c, b, dim(a, 2), dim(a, 1), "bilinear", true, &fit, err);
        if (s)
            goto done;
    }
    const struct htensor *second = fit ? fit : b;
    s = image_tensor(dim(a, 0) + dim(b, 0), dim(a, 1), dim(a, 2), channels, &o, err);
    if (s)
        goto done;
    size_t n = htensor_count(a);
    memcpy(o->data, a->data, n * sizeof(float));
    memcpy(o->data + n, second->data, htensor_count(second) * sizeof(float));
    s = out_tensor(c, 0, o, err);
done:
    htensor_unref(a);
    htensor_unref(b);
    htensor_unref(fit);
    return s;
}

NODE_CLASS(ImageBatch, .display = "Batch Images", .category = "image", .module = "nodes",
           .flags = NODE_DEPRECATED, INS(SOCKET("image1", "IMAGE"), SOCKET("image2", "IMAGE")),
           OUT(out_image), .run = batch_run);

static berth_status from_batch_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    size_t at, n;
    if (in_image(c, "image", &t, err) || in_batch_part(c, dim(t, 0), &at, &n, err))
        return err->code;
    return tensor_slice(t, at, n, &o, err) ? err->code : out_tensor(c, 0, o, err);
}

NODE_CLASS(ImageFromBatch, .category = "image/batch", V3("images"),
           INS(SOCKET("image", "IMAGE"), INT_IN("batch_index", 0, -MAX_SIDE, MAX_SIDE, 0),
               INT_IN("length", 1, 1, 4096, 0)),
           OUT(out_image), .run = from_batch_run);

static berth_status repeat_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t amount;
    size_t n;
    if (in_image(c, "image", &t, err) || in_u64(c, "amount", &amount, err))
        return err->code;
    if (!amount || !sz_mul(dim(t, 0), amount, &n))
        return err_set(err, BERTH_EINVAL, "%" PRIu64 " times %zu pictures", amount, dim(t, 0));
    return tensor_repeat(t, n, &o, err) ? err->code : out_tensor(c, 0, o, err);
}

NODE_CLASS(RepeatImageBatch, .category = "image/batch", V3("images"),
           INS(SOCKET("image", "IMAGE"), INT_IN("amount", 1, 1, 4096, 0)), OUT(out_image),
           .run = repeat_run);

static berth_status crop_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t w, h, x, y;
    if (in_image(c, "image", &t, err) || in_u64(c, "width", &w, err) ||
        in_u64(c, "height", &h, err) || in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err))
        return err->code;
    size_t n = dim(t, 0), ih = dim(t, 1), iw = dim(t, 2), ch = dim(t, 3);
    x = x < iw ? x : iw - 1;
    y = y < ih ? y : ih - 1;
    w = w < iw - x ? w : iw - x;
    h = h < ih - y ? h : ih - y;
    if (!w || !h)
        return err_set(err, BERTH_EINVAL, "a part of %" PRIu64 "x%" PRIu64, w, h);
    if (image_tensor(n, h, w, ch, &o, err))
        return err->code;
    copy_part(t->data, ih, iw, ch, n, (struct part) { y, x, h, w }, o->data);
    return out_tensor(c, 0, o, err);
}

NODE_CLASS(ImageCrop, .display = "Image Crop", .category = "image/transform",
           .module = MOD("images"), .flags = NODE_V3 | NODE_DEPRECATED,
           INS(SOCKET("image", "IMAGE"), SIZE_IN(512, 512, 1, 1), INT_IN("x", 0, 0, MAX_SIDE, 1),
               INT_IN("y", 0, 0, MAX_SIDE, 1)),
           OUT(out_image), .run = crop_run);

struct pad { /* the picture h x w lies at (top, left) in H x W */
    uint64_t left, top, right, bottom;
    size_t h, w, H, W;
};

/* How much of (y, x) of the picture is to be painted over: 1 at an edge that was padded, falling
 * with the square of the distance. */
static float feather_at(const struct pad *p, size_t y, size_t x, uint64_t feather)
{
    size_t d = p->top ? y : p->h, e = p->bottom ? p->h - y : p->h;
    d = e < d ? e : d;
    e = p->left ? x : p->w;
    d = e < d ? e : d;
    e = p->right ? p->w - x : p->w;
    d = e < d ? e : d;
    if (d >= feather)
        return 0.0f;
    double v = (double)(feather - d) / (double)feather;
    return (float)(v * v);
}

static void pad_mask(const struct pad *p, uint64_t feather, float *m)
{
    bool soft =
        feather > 0 && feather < p->h && feather < p->w && feather * 2 < p->h && feather * 2 < p->w;
    for (size_t y = 0; y < p->H; y++)
        for (size_t x = 0; x < p->W; x++) {
            bool in = y >= p->top && y < p->top + p->h && x >= p->left && x < p->left + p->w;
            if (!in)
                m[y * p->W + x] = 1.0f;
            else
                m[y * p->W + x] = soft ? feather_at(p, y - p->top, x - p->left, feather) : 0.0f;
        }
}

static berth_status pad_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o, *m;
    struct pad p;
    uint64_t feather;
    if (in_image(c, "image", &t, err) || in_u64(c, "left", &p.left, err) ||
        in_u64(c, "top", &p.top, err) || in_u64(c, "right", &p.right, err) ||
        in_u64(c, "bottom", &p.bottom, err) || in_u64(c, "feathering", &feather, err))
        return err->code;
    if (p.left > SIDE_MAX || p.top > SIDE_MAX || p.right > SIDE_MAX || p.bottom > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "padding of more than %zu pixels", SIDE_MAX);
    size_t n = dim(t, 0), ch = dim(t, 3);
    p.h = dim(t, 1);
    p.w = dim(t, 2);
    p.H = p.h + p.top + p.bottom;
    p.W = p.w + p.left + p.right;
    if (image_tensor(n, p.H, p.W, ch, &o, err))
        return err->code;
    berth_status s = mask_tensor(1, p.H, p.W, &m, err);
    if (s) {
        htensor_unref(o);
        return s;
    }
    for (size_t i = 0, count = htensor_count(o); i < count; i++)
        o->data[i] = 0.5f;
    for (size_t i = 0; i < n * p.h; i++)
        memcpy(o->data + (((i / p.h) * p.H + p.top + i % p.h) * p.W + p.left) * ch,
               t->data + i * p.w * ch, p.w * ch * sizeof(float));
    pad_mask(&p, feather, m->data);
    return give_tensors(c, o, m, err);
}

NODE_CLASS(ImagePadForOutpaint, .display = "Pad Image for Outpainting", .category = "image",
           .module = "nodes",
           INS(SOCKET("image", "IMAGE"), INT_IN("left", 0, 0, MAX_SIDE, 8),
               INT_IN("top", 0, 0, MAX_SIDE, 8), INT_IN("right", 0, 0, MAX_SIDE, 8),
               INT_IN("bottom", 0, 0, MAX_SIDE, 8), INT_IN("feathering", 40, 0, MAX_SIDE, 1)),
           OUT(out_image_mask), .run = pad_run);

/* ---- sizes ---- */

static berth_status out_size(struct node_call *c, size_t i, size_t n, berth_err *err)
{
    return out_value(c, i, value_int((int64_t)n), err);
}

static berth_status size_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    char text[120];
    if (in_image(c, "image", &t, err))
        return err->code;
    int n = snprintf(text, sizeof text, "width: %zu, height: %zu\n batch size: %zu", dim(t, 2),
                     dim(t, 1), dim(t, 0));
    call_text(c, text, (size_t)n);
    if (out_size(c, 0, dim(t, 2), err) || out_size(c, 1, dim(t, 1), err))
        return err->code;
    return out_size(c, 2, dim(t, 0), err);
}

static const struct node_input size_in[] = { SOCKET("image", "IMAGE") };
NODE_CLASS(GetImageSize, .display = "Get Image Size", .category = "image", .module = MOD("images"),
           .description = "Width, height and number of the pictures.",
           .flags = NODE_V3 | NODE_UNIQUE_ID, IN(size_in),
           OUTS({ .type = "INT", .name = "width" }, { .type = "INT", .name = "height" },
                { .type = "INT", .name = "batch_size" }),
           .run = size_run);

static berth_status size_count_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    if (in_image(c, "image", &t, err) || out_tensor(c, 0, htensor_ref(t), err) ||
        out_size(c, 1, dim(t, 2), err) || out_size(c, 2, dim(t, 1), err))
        return err->code;
    return out_size(c, 3, dim(t, 0), err);
}

NODE_CLASS(GetImageSizeAndCount, .display = "Get Image Size & Count", .category = "KJNodes/image",
           .module = "custom_nodes.ComfyUI-KJNodes",
           .description = "Width, height and number of the pictures, which are handed on.",
           IN(size_in),
           OUTS({ .type = "IMAGE", .name = "image" }, { .type = "INT", .name = "width" },
                { .type = "INT", .name = "height" }, { .type = "INT", .name = "count" }),
           .run = size_count_run);

/* ---- ImageConcatMulti: pictures side by side ---- */

/* One more picture beside `a`, the smaller one centred across. direction: right, down, left, up. */
static berth_status join_two(struct htensor *a, struct htensor *b, char direction,
                             struct htensor **out, berth_err *err)
{
    bool across = direction == 'r' || direction == 'l'; /* next to each other */
    const struct htensor *t[2] = { a, b };
    if (direction == 'l' || direction == 'u') {
        t[0] = b;
        t[1] = a;
    }
    size_t n = dim(a, 0) > dim(b, 0) ? dim(a, 0) : dim(b, 0), ch = dim(a, 3);
    size_t h = across ? (dim(a, 1) > dim(b, 1) ? dim(a, 1) : dim(b, 1)) : dim(a, 1) + dim(b, 1);
    size_t w = across ? dim(a, 2) + dim(b, 2) : (dim(a, 2) > dim(b, 2) ? dim(a, 2) : dim(b, 2));
    if (htensor_zeros(&(struct shape) { .ndim = 4, .dim = { n, h, w, ch } }, out, err))
        return err->code;
    for (int k = 0; k < 2; k++) {
        size_t ih = dim(t[k], 1), iw = dim(t[k], 2);
        size_t y0 = across ? (h - ih) / 2 : (k ? h - ih : 0);
        size_t x0 = across ? (k ? w - iw : 0) : (w - iw) / 2;
        for (size_t i = 0; i < n; i++) {
            size_t from = i < dim(t[k], 0) ? i : dim(t[k], 0) - 1; /* the last one repeats */
            for (size_t y = 0; y < ih; y++)
                memcpy((*out)->data + ((i * h + y0 + y) * w + x0) * ch,
                       t[k]->data + (from * ih + y) * iw * ch, iw * ch * sizeof(float));
        }
    }
    return BERTH_OK;
}

/* `b` ready to stand beside `a`: as high (or wide) as the first picture if asked for, and both with
 * the same channels. New references in out[0], out[1]. */
static berth_status match(struct node_call *c, struct htensor *a, struct htensor *b,
                          const struct htensor *first, bool resize, char direction,
                          struct htensor *out[2], berth_err *err)
{
    struct htensor *fit = NULL;
    berth_status s = BERTH_OK;
    if (resize) {
        double aspect = (double)dim(b, 2) / (double)dim(b, 1);
        size_t h = dim(first, 1), w = dim(first, 2);
        if (direction == 'r' || direction == 'l')
            w = (size_t)((double)h * aspect);
        else
            h = (size_t)((double)w / aspect);
        s = scale_image(c, b, w, h, "lanczos", false, &fit, err);
    }
    size_t channels = dim(a, 3) > dim(b, 3) ? dim(a, 3) : dim(b, 3);
    if (!s && (widen_image(a, channels, 1.0f, &out[0], err) ||
               widen_image(fit ? fit : b, channels, 1.0f, &out[1], err)))
        s = err->code;
    htensor_unref(fit);
    return s;
}

static berth_status concat_run(struct node_call *c, berth_err *err)
{
    struct htensor *first, *all;
    uint64_t count;
    const char *direction;
    bool resize;
    berth_status s = BERTH_OK;
    if (in_image(c, "image_1", &first, err) || in_u64(c, "inputcount", &count, err) ||
        in_text(c, "direction", &direction, err) || in_bool(c, "match_image_size", &resize, err))
        return err->code;
    if (count > c->cls->ins - 3)
        return err_set(err, BERTH_ELIMIT, "%" PRIu64 " pictures, this build joins up to %zu", count,
                       c->cls->ins - 3);
    all = htensor_ref(first);
    for (uint64_t i = 2; !s && i <= count; i++) {
        char name[24];
        struct htensor *next = NULL, *pair[2] = { NULL, NULL }, *joined = NULL;
        snprintf(name, sizeof name, "image_%" PRIu64, i);
        if (!in_given(c, name))
            s = htensor_zeros(&first->shape, &next, err);
        else if (!(s = in_image(c, name, &next, err)))
            htensor_ref(next);
        if (!s && (match(c, all, next, first, resize, *direction, pair, err) ||
                   join_two(pair[0], pair[1], *direction, &joined, err)))
            s = err->code;
        htensor_unref(pair[0]);
        htensor_unref(pair[1]);
        htensor_unref(next);
        if (!s) {
            htensor_unref(all);
            all = joined;
        }
    }
    return give_tensor(c, s, all, err);
}

/* KJNodes says 1000; a class has at most NODE_INPUTS_MAX inputs, and we say what works. */
#define CONCAT_MAX 60
#define MORE(n) SOCKET("image_" #n, "IMAGE", .optional = true, .unlisted = true)
#define MORE_TEN(d)                                                                                \
    MORE(d##0), MORE(d##1), MORE(d##2), MORE(d##3), MORE(d##4), MORE(d##5), MORE(d##6),            \
        MORE(d##7), MORE(d##8), MORE(d##9)
NODE_CLASS(ImageConcatMulti, .display = "Image Concatenate Multi", .category = "KJNodes/image",
           .module = "custom_nodes.ComfyUI-KJNodes",
           .description = "Pictures side by side; a smaller one is centred.",
           INS(INT_IN("inputcount", 2, 2, CONCAT_MAX, 1), SOCKET("image_1", "IMAGE"),
               COMBO_IN("direction", CHOICES("right", "down", "left", "up"), .sdef = "right"),
               BOOL_IN("match_image_size", false), OPTIONAL("image_2", "IMAGE"), MORE(3), MORE(4),
               MORE(5), MORE(6), MORE(7), MORE(8), MORE(9), MORE_TEN(1), MORE_TEN(2), MORE_TEN(3),
               MORE_TEN(4), MORE_TEN(5), MORE(60)),
           OUTS({ .type = "IMAGE", .name = "images" }), .run = concat_run);
