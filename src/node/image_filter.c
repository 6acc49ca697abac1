/* image_filter.c: neighbourhoods of pixels: blur and edges. */
#include "node/node_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- separable convolution, with the picture mirrored at its edges (the edge itself once) ---- */

#define RADIUS_MAX 31

struct conv { /* planes [rows, w] of c channels next to each other */
    const float *src;
    float *dst;
    size_t h, w, c;
    int radius;
    double tap[2 * RADIUS_MAX + 1];
};

static size_t mirror(ptrdiff_t i, size_t n) /* pre: |overshoot| < n */
{
    if (i < 0)
        return (size_t)-i;
    return (size_t)i < n ? (size_t)i : 2 * (n - 1) - (size_t)i;
}

static void row_across(void *user, size_t row, size_t worker)
{
    const struct conv *k = user;
    const float *s = k->src + row * k->w * k->c;
    float *d = k->dst + row * k->w * k->c;
    (void)worker;
    for (size_t x = 0; x < k->w; x++)
        for (size_t c = 0; c < k->c; c++) {
            double sum = 0;
            for (int i = -k->radius; i <= k->radius; i++)
                sum += k->tap[i + k->radius] * (double)s[mirror((ptrdiff_t)x + i, k->w) * k->c + c];
            d[x * k->c + c] = (float)sum;
        }
}

static void row_down(void *user, size_t row, size_t worker)
{
    const struct conv *k = user;
    size_t line = k->w * k->c, y = row % k->h;
    const float *s = k->src + (row - y) * line;
    float *d = k->dst + row * line;
    (void)worker;
    for (size_t x = 0; x < line; x++) {
        double sum = 0;
        for (int i = -k->radius; i <= k->radius; i++)
            sum += k->tap[i + k->radius] * (double)s[mirror((ptrdiff_t)y + i, k->h) * line + x];
        d[x] = (float)sum;
    }
}

/* dst: as src, [n, h, w, c]; both sides longer than the radius. */
static berth_status blur(struct node_call *call, struct conv *k, size_t n, berth_err *err)
{
    struct htensor *half;
    const float *src = k->src;
    float *dst = k->dst;
    if (k->h <= (size_t)k->radius || k->w <= (size_t)k->radius)
        return err_set(err, BERTH_EINVAL, "a radius of %d needs more than %zux%zu pixels",
                       k->radius, k->w, k->h);
    if (image_tensor(n, k->h, k->w, k->c, &half, err))
        return err->code;
    k->dst = half->data;
    berth_status s = call_rows(call, n * k->h, row_across, k, err);
    k->src = half->data;
    k->dst = dst;
    if (!s)
        s = call_rows(call, n * k->h, row_down, k, err);
    k->src = src;
    htensor_unref(half);
    return s;
}

berth_status blur_pixels(struct node_call *c, const struct blur_shape *b, const float *src,
                         float *dst, berth_err *err)
{
    double sum = 0;
    struct conv k = { .src = src, .dst = dst, .h = b->h, .w = b->w, .c = b->c };
    if (!b->radius || b->radius > RADIUS_MAX || !(b->sigma > 0))
        return err_set(err, BERTH_EINVAL, "a kernel of radius %llu, sigma %g",
                       (unsigned long long)b->radius, b->sigma);
    k.radius = (int)b->radius;
    for (int i = 0; i <= 2 * k.radius; i++) { /* the kernel reaches from -1 to 1 */
        double x = (double)(i - k.radius) / k.radius;
        sum += k.tap[i] = exp(-x * x / (2 * b->sigma * b->sigma));
    }
    for (int i = 0; i <= 2 * k.radius; i++)
        k.tap[i] /= sum;
    return blur(c, &k, b->n, err);
}

/* "image" blurred, not yet given; *out NULL: a radius of 0 leaves it alone. */
static berth_status blurred(struct node_call *c, const char *radius, struct htensor *t,
                            struct htensor **out, berth_err *err)
{
    struct blur_shape b = { .n = dim(t, 0), .h = dim(t, 1), .w = dim(t, 2), .c = dim(t, 3) };
    *out = NULL;
    if (in_u64(c, radius, &b.radius, err) || in_f64(c, "sigma", &b.sigma, err))
        return err->code;
    if (!b.radius)
        return BERTH_OK;
    berth_status s = htensor_new(&t->shape, out, err);
    return s ? s : htensor_made(blur_pixels(c, &b, t->data, (*out)->data, err), out);
}

static berth_status blur_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    if (in_image(c, "image", &t, err) || blurred(c, "blur_radius", t, &o, err))
        return err->code;
    return out_tensor(c, 0, o ? o : htensor_ref(t), err);
}

NODE_CLASS(ImageBlur, .category = "image/postprocessing", V3("post_processing"),
           INS(SOCKET("image", "IMAGE"), INT_IN("blur_radius", 1, 1, 31, 1),
               FLOAT_IN("sigma", 1.0, 0.1, 10.0, 0.1)),
           OUT(out_image), .run = blur_run);

/* What a blur takes away comes back tenfold: x + 10 * alpha * (x - blurred). */
static berth_status sharpen_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    double alpha;
    if (in_image(c, "image", &t, err) || in_f64(c, "alpha", &alpha, err) ||
        blurred(c, "sharpen_radius", t, &o, err))
        return err->code;
    for (size_t i = 0, n = o ? htensor_count(o) : 0; i < n; i++) {
        double x = (double)t->data[i];
        o->data[i] = clamp01((float)(x + 10 * alpha * (x - (double)o->data[i])));
    }
    return out_tensor(c, 0, o ? o : htensor_ref(t), err);
}

NODE_CLASS(ImageSharpen, .display = "Sharpen Image", .category = "image/filters",
           V3("post_processing"),
           INS(SOCKET("image", "IMAGE"), INT_IN("sharpen_radius", 1, 1, 31, 1, .more = ADVANCED),
               FLOAT_IN("sigma", 1.0, 0.1, 10.0, 0.01, .more = ADVANCED),
               FLOAT_IN("alpha", 1.0, 0.0, 5.0, 0.01, .more = ADVANCED)),
           OUT(out_image), .run = sharpen_run);

/* ---- Canny ----
 * grey -> blurred (5 x 5, sigma 1) -> Sobel -> thinned along the gradient -> two thresholds; a weak
 * pixel counts when a path of weak ones leads to a strong one. */

struct canny {
    size_t h, w;
    const float *grey; /* blurred */
    float *mag;        /* of the gradient */
    uint8_t *dir;      /* 0..7: its direction in eighths, from "to the right" clockwise */
    uint8_t *edge;     /* 0, 1 weak, 2 strong */
    uint32_t *stack;   /* strong pixels whose neighbours are not looked at yet */
};

static float clamped(const struct canny *k, ptrdiff_t y, ptrdiff_t x)
{
    size_t cy = y < 0 ? 0 : (size_t)y < k->h ? (size_t)y : k->h - 1;
    size_t cx = x < 0 ? 0 : (size_t)x < k->w ? (size_t)x : k->w - 1;
    return k->grey[cy * k->w + cx];
}

static void canny_gradient(void *user, size_t row, size_t worker)
{
    const struct canny *k = user;
    ptrdiff_t y = (ptrdiff_t)row;
    (void)worker;
    for (ptrdiff_t x = 0; x < (ptrdiff_t)k->w; x++) {
        float p[3][3];
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                p[dy + 1][dx + 1] = clamped(k, y + dy, x + dx);
        float gx = (p[0][2] - p[0][0]) + 2.0f * (p[1][2] - p[1][0]) + (p[2][2] - p[2][0]);
        float gy = (p[2][0] - p[0][0]) + 2.0f * (p[2][1] - p[0][1]) + (p[2][2] - p[0][2]);
        size_t i = row * k->w + (size_t)x;
        k->mag[i] = sqrtf(gx * gx + gy * gy + 1e-6f);
        int eighth = (int)nearbyint(atan2((double)gy, (double)gx) * 4 / 3.14159265358979323846);
        k->dir[i] = (uint8_t)((eighth + 8) % 8);
    }
}

/* Magnitude of the neighbour in direction d; nothing outside. */
static float neighbour(const struct canny *k, size_t y, size_t x, unsigned d)
{
    static const signed char dx[8] = { 1, 1, 0, -1, -1, -1, 0, 1 };
    static const signed char dy[8] = { 0, 1, 1, 1, 0, -1, -1, -1 };
    ptrdiff_t ny = (ptrdiff_t)y + dy[d], nx = (ptrdiff_t)x + dx[d];
    if (ny < 0 || nx < 0 || ny >= (ptrdiff_t)k->h || nx >= (ptrdiff_t)k->w)
        return 0.0f;
    return k->mag[(size_t)ny * k->w + (size_t)nx];
}

static void canny_thin(struct canny *k, float low, float high)
{
    size_t n = 0;
    for (size_t y = 0; y < k->h; y++)
        for (size_t x = 0; x < k->w; x++) {
            size_t i = y * k->w + x;
            float m = k->mag[i];
            unsigned d = k->dir[i];
            bool ridge = m > neighbour(k, y, x, d) && m > neighbour(k, y, x, (d + 4) % 8);
            k->edge[i] = !ridge ? 0 : m > high ? 2 : m > low ? 1 : 0;
            if (k->edge[i] == 2)
                k->stack[n++] = (uint32_t)i;
        }
    while (n) { /* each pixel becomes strong at most once, so the stack is long enough */
        size_t at = k->stack[--n], y = at / k->w, x = at % k->w;
        for (size_t ny = y ? y - 1 : 0; ny <= y + 1 && ny < k->h; ny++)
            for (size_t nx = x ? x - 1 : 0; nx <= x + 1 && nx < k->w; nx++)
                if (k->edge[ny * k->w + nx] == 1) {
                    k->edge[ny * k->w + nx] = 2;
                    k->stack[n++] = (uint32_t)(ny * k->w + nx);
                }
    }
}

static void grey_of(const float *px, size_t channels, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++, px += channels)
        out[i] = channels < 3 ? px[0] : 0.299f * px[0] + 0.587f * px[1] + 0.114f * px[2];
}

/* Picture i of t into the same one of o. */
static berth_status canny_one(struct node_call *c, const struct htensor *t, size_t i,
                              const float threshold[2], struct canny *k, struct htensor *plane,
                              struct htensor *o, berth_err *err)
{
    size_t px = k->h * k->w;
    struct conv g = { .h = k->h, .w = k->w, .c = 1, .radius = 2 };
    double sum = 0;
    for (int x = -2; x <= 2; x++)
        sum += g.tap[x + 2] = exp(-0.5 * x * x);
    for (int x = 0; x < 5; x++)
        g.tap[x] /= sum;
    grey_of(t->data + i * px * dim(t, 3), dim(t, 3), px, plane->data);
    g.src = plane->data;
    g.dst = plane->data; /* rows go through a plane of blur()'s own in between */
    if (blur(c, &g, 1, err))
        return err->code;
    k->grey = plane->data;
    if (call_rows(c, k->h, canny_gradient, k, err))
        return err->code;
    canny_thin(k, threshold[0], threshold[1]);
    float *d = o->data + i * px * 3;
    for (size_t p = 0; p < px; p++, d += 3)
        d[0] = d[1] = d[2] = k->edge[p] == 2 ? 1.0f : 0.0f;
    return BERTH_OK;
}

static berth_status canny_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o = NULL, *plane = NULL, *mag = NULL;
    double low, high;
    struct canny k = { 0 };
    if (in_image(c, "image", &t, err) || in_f64(c, "low_threshold", &low, err) ||
        in_f64(c, "high_threshold", &high, err))
        return err->code;
    if (low > high)
        return err_set(err, BERTH_EINVAL, "low_threshold %g is above high_threshold %g", low, high);
    k.h = dim(t, 1);
    k.w = dim(t, 2);
    if (k.h > UINT16_MAX || k.w > UINT16_MAX) /* indices of pixels are 32 bits */
        return err_set(err, BERTH_ELIMIT, "edges of %zux%zu pixels", k.w, k.h);
    berth_status s = image_tensor(dim(t, 0), k.h, k.w, 3, &o, err);
    if (!s && (mask_tensor(1, k.h, k.w, &plane, err) || mask_tensor(1, k.h, k.w, &mag, err)))
        s = err->code;
    k.dir = malloc(k.h * k.w);
    k.edge = malloc(k.h * k.w);
    k.stack = malloc(k.h * k.w * sizeof *k.stack);
    if (!s && !(k.dir && k.edge && k.stack))
        s = err_set(err, BERTH_ENOMEM, "edges of %zux%zu pixels", k.w, k.h);
    k.mag = mag ? mag->data : NULL;
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        s = call_check(c, err);
        if (!s)
            s = canny_one(c, t, i, (float[2]) { (float)low, (float)high }, &k, plane, o, err);
    }
    free(k.dir);
    free(k.edge);
    free(k.stack);
    htensor_unref(plane);
    htensor_unref(mag);
    return give_tensor(c, s, o, err);
}

NODE_CLASS(Canny, .category = "image/preprocessors", V3("canny"),
           INS(SOCKET("image", "IMAGE"), FLOAT_IN("low_threshold", 0.4, 0.01, 0.99, 0.01),
               FLOAT_IN("high_threshold", 0.8, 0.01, 0.99, 0.01)),
           OUT(out_image), .run = canny_run);
