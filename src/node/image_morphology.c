/* image_morphology.c: the largest and the smallest value around each pixel, and what is made of
 * them. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Extremes over windows of k values along one line: blocks of k are gone through forwards and
 * backwards, and each window is the end of one run and the beginning of another. Its time does not
 * depend on k. An even window reaches further back for the smallest, further ahead for the largest:
 * what one adds, the other takes away. */
struct lines {
    const float *src;
    float *dst, *room; /* room: for every worker 2 * (n + 2 * k) */
    size_t n, stride;  /* of a line */
    size_t inner;      /* lines beside each other */
    size_t k;
    bool largest;
};

static float extreme(const struct lines *l, float a, float b)
{
    return l->largest ? (a > b ? a : b) : (a < b ? a : b);
}

/* The line padded by what changes nothing: i of it, or the neutral value. */
static float line_at(const struct lines *l, const float *s, size_t i)
{
    size_t before = l->largest ? (l->k - 1) / 2 : l->k / 2;
    if (i < before || i - before >= l->n)
        return l->largest ? -INFINITY : INFINITY;
    return s[(i - before) * l->stride];
}

static void line_extremes(void *user, size_t line, size_t worker)
{
    const struct lines *l = user;
    size_t padded = l->n + l->k - 1, at = line / l->inner * l->inner * l->n + line % l->inner;
    const float *s = l->src + at;
    float *d = l->dst + at, *fore = l->room + worker * 2 * (l->n + 2 * l->k);
    float *back = fore + l->n + 2 * l->k;
    for (size_t i = 0; i < padded; i++) {
        float v = line_at(l, s, i);
        fore[i] = i % l->k ? extreme(l, fore[i - 1], v) : v;
    }
    for (size_t i = padded; i-- > 0;) {
        float v = line_at(l, s, i);
        back[i] = i + 1 == padded || (i + 1) % l->k == 0 ? v : extreme(l, back[i + 1], v);
    }
    for (size_t i = 0; i < l->n; i++)
        d[i * l->stride] = extreme(l, back[i], fore[i + l->k - 1]);
}

berth_status spread_pixels(struct node_call *c, const struct htensor *t, size_t k, bool largest,
                           struct htensor **out, berth_err *err)
{
    size_t n = dim(t, 0), h = dim(t, 1), w = dim(t, 2), ch = dim(t, 3), longest = h > w ? h : w;
    size_t workers = c->env->pool ? tpool_size(c->env->pool) : 1;
    struct htensor *half = NULL;
    float *room = calloc(workers * 2, (longest + 2 * k) * sizeof *room);
    berth_status s = room ? BERTH_OK : err_set(err, BERTH_ENOMEM, "lines of %zu", longest);
    *out = NULL;
    if (!s)
        s = htensor_new(&t->shape, &half, err);
    if (!s)
        s = htensor_new(&t->shape, out, err);
    if (!s) {
        struct lines across = { t->data, half->data, room, w, ch, ch, k, largest };
        s = call_rows(c, n * h * ch, line_extremes, &across, err);
    }
    if (!s) {
        struct lines down = { half->data, (*out)->data, room, h, w * ch, w * ch, k, largest };
        s = call_rows(c, n * w * ch, line_extremes, &down, err);
    }
    htensor_unref(half);
    free(room);
    return htensor_made(s, out);
}

/* t spread twice, the other way the second time. */
static berth_status spread_back(struct node_call *c, const struct htensor *t, size_t k,
                                bool largest, struct htensor **out, berth_err *err)
{
    struct htensor *half;
    if (spread_pixels(c, t, k, largest, &half, err))
        return err->code;
    berth_status s = spread_pixels(c, half, k, !largest, out, err);
    htensor_unref(half);
    return s;
}

/* o = a - b; a may be o, b too. */
static void subtract(const struct htensor *a, const struct htensor *b, struct htensor *o)
{
    for (size_t i = 0, n = htensor_count(o); i < n; i++)
        o->data[i] = a->data[i] - b->data[i];
}

static berth_status gradient(struct node_call *c, const struct htensor *t, size_t k,
                             struct htensor **out, berth_err *err)
{
    struct htensor *low;
    if (spread_pixels(c, t, k, false, &low, err))
        return err->code;
    berth_status s = spread_pixels(c, t, k, true, out, err);
    if (!s)
        subtract(*out, low, *out);
    htensor_unref(low);
    return s;
}

static berth_status morphology_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o = NULL;
    const char *op;
    uint64_t k;
    berth_status s;
    if (in_image(c, "image", &t, err) || in_text(c, "operation", &op, err) ||
        in_u64(c, "kernel_size", &k, err))
        return err->code;
    if (!k || k > MAX_SIDE)
        return err_set(err, BERTH_EINVAL, "kernel_size is %" PRIu64, k);
    bool open = !strcmp(op, "open") || !strcmp(op, "top_hat");
    if (!strcmp(op, "erode") || !strcmp(op, "dilate"))
        s = spread_pixels(c, t, k, *op == 'd', &o, err);
    else if (!strcmp(op, "gradient"))
        s = gradient(c, t, k, &o, err);
    else
        s = spread_back(c, t, k, !open, &o, err);
    if (!s && !strcmp(op, "top_hat"))
        subtract(t, o, o);
    else if (!s && !strcmp(op, "bottom_hat"))
        subtract(o, t, o);
    return give_tensor(c, s, o, err);
}

NODE_CLASS(Morphology, .display = "Apply Morphology", .category = "image/filters", V3("morphology"),
           INS(SOCKET("image", "IMAGE"),
               COMBO_IN("operation", CHOICES("erode", "dilate", "open", "close", "gradient",
                                             "bottom_hat", "top_hat")),
               INT_IN("kernel_size", 3, 3, 999, 1)),
           OUT(out_image), .run = morphology_run);
