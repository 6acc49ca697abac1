/* latent_math.c: latents added, scaled, mixed, joined and cut along an axis. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LATENT_NODE(c, ...)                                                                        \
    NODE_CLASS(c, .category = "model/latent/advanced", V3("latent"), OUT(out_latent), __VA_ARGS__)

static const struct node_input two_in[] = { SOCKET("samples1", "LATENT"),
                                            SOCKET("samples2", "LATENT") };

/* Both inputs, the second as the first: *fit is new. */
static berth_status in_two(struct node_call *c, const struct latent **a, struct htensor **fit,
                           berth_err *err)
{
    const struct latent *b;
    if (in_latent(c, "samples1", a, err) || in_latent(c, "samples2", &b, err))
        return err->code;
    return latent_match(c, (*a)->samples, b->samples, fit, err);
}

/* samples1 + by * samples2 */
static berth_status add_scaled(struct node_call *c, float by, berth_err *err)
{
    const struct latent *a;
    struct htensor *b, *o;
    if (in_two(c, &a, &b, err))
        return err->code;
    berth_status s = htensor_new(&a->samples->shape, &o, err);
    for (size_t i = 0, n = s ? 0 : htensor_count(o); i < n; i++)
        o->data[i] = a->samples->data[i] + by * b->data[i];
    htensor_unref(b);
    return s ? s : give_samples(c, a, o, err);
}

static berth_status add_run(struct node_call *c, berth_err *err)
{
    return add_scaled(c, 1.0f, err);
}
LATENT_NODE(LatentAdd, IN(two_in), .run = add_run);

static berth_status subtract_run(struct node_call *c, berth_err *err)
{
    return add_scaled(c, -1.0f, err);
}
LATENT_NODE(LatentSubtract, IN(two_in), .run = subtract_run);

static berth_status multiply_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct htensor *o;
    double by;
    if (in_latent(c, "samples", &in, err) || in_f64(c, "multiplier", &by, err) ||
        htensor_new(&in->samples->shape, &o, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(o); i < n; i++)
        o->data[i] = in->samples->data[i] * (float)by;
    return give_samples(c, in, o, err);
}
LATENT_NODE(LatentMultiply,
            INS(SOCKET("samples", "LATENT"), FLOAT_IN("multiplier", 1.0, -10.0, 10.0, 0.01)),
            .run = multiply_run);

/* ---- LatentInterpolate: directions and lengths of the channels' vectors, each for itself ----
 * ComfyUI's own fails for batches; here every item is done as its only one would be. */

static double length_at(const float *p, size_t channels, size_t stride)
{
    double sum = 0;
    for (size_t k = 0; k < channels; k++)
        sum += (double)p[k * stride] * (double)p[k * stride];
    return sqrt(sum);
}

/* The vectors at a and b, `stride` between their channels, into o. */
static void interpolate_one(const float *a, const float *b, float *o, size_t channels,
                            size_t stride, double r)
{
    double la = length_at(a, channels, stride), lb = length_at(b, channels, stride), sum = 0;
    double ra = la > 0 ? r / la : 0, rb = lb > 0 ? (1 - r) / lb : 0;
    for (size_t k = 0; k < channels * stride; k += stride) {
        double t = (double)a[k] * ra + (double)b[k] * rb;
        sum += t * t;
    }
    double length = la * r + lb * (1 - r), by = sum > 0 ? length / sqrt(sum) : 0;
    for (size_t k = 0; k < channels * stride; k += stride)
        o[k] = (float)(((double)a[k] * ra + (double)b[k] * rb) * by);
}

static berth_status interpolate_run(struct node_call *c, berth_err *err)
{
    const struct latent *a;
    struct htensor *b, *o;
    double ratio;
    if (in_f64(c, "ratio", &ratio, err) || in_two(c, &a, &b, err))
        return err->code;
    berth_status s = htensor_new(&a->samples->shape, &o, err);
    if (!s) {
        size_t ch = dim(o, 1), item = htensor_count(o) / dim(o, 0), stride = item / ch;
        for (size_t i = 0; i < dim(o, 0); i++)
            for (size_t p = 0; p < stride; p++)
                interpolate_one(a->samples->data + i * item + p, b->data + i * item + p,
                                o->data + i * item + p, ch, stride, ratio);
    }
    htensor_unref(b);
    return s ? s : give_samples(c, a, o, err);
}
LATENT_NODE(LatentInterpolate,
            INS(SOCKET("samples1", "LATENT"), SOCKET("samples2", "LATENT"),
                FLOAT_IN("ratio", 1.0, 0.0, 1.0, 0.01)),
            .run = interpolate_run);

/* ---- along an axis ---- */

/* "x", "-y", "t": its dimension; x is the last. */
static berth_status axis_of(const struct htensor *t, const char *name, int *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    const char *at = strpbrk(name, "xyt");
    int d = t->shape.ndim - (!at || *at == 'x' ? 1 : *at == 'y' ? 2 : 3);
    if (d < 0)
        return err_set(err, BERTH_EINVAL, "a latent %s has no axis '%s'",
                       shape_text(&t->shape, text), name);
    *out = d;
    return BERTH_OK;
}

/* Elements of everything before dimension d, and of one step along it. */
static size_t count_before(const struct htensor *t, int d)
{
    size_t n = 1;
    for (int i = 0; i < d; i++)
        n *= dim(t, i);
    return n;
}
static size_t count_behind(const struct htensor *t, int d)
{
    size_t n = 1;
    for (int i = d + 1; i < t->shape.ndim; i++)
        n *= dim(t, i);
    return n;
}

/* a, then b along dimension d; the same shape except for it. */
static berth_status join_along(const struct htensor *a, const struct htensor *b, int d,
                               struct htensor **out, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    struct shape sa = a->shape, sb = b->shape;
    if (sa.ndim == sb.ndim)
        sa.dim[d] = sb.dim[d] = 0;
    if (!shape_eq(&sa, &sb))
        return err_set(err, BERTH_EINVAL, "latents %s and %s cannot be joined along dimension %d",
                       shape_text(&a->shape, ta), shape_text(&b->shape, tb), d);
    sa.dim[d] = a->shape.dim[d] + b->shape.dim[d];
    berth_status s = htensor_new(&sa, out, err);
    if (s)
        return s;
    size_t behind = count_behind(a, d), na = dim(a, d) * behind, nb = dim(b, d) * behind;
    for (size_t i = 0, n = count_before(a, d); i < n; i++) {
        float *at = (*out)->data + i * (na + nb);
        memcpy(at, a->data + i * na, na * sizeof *at);
        memcpy(at + na, b->data + i * nb, nb * sizeof *at);
    }
    return BERTH_OK;
}

static berth_status concat_run(struct node_call *c, berth_err *err)
{
    const struct latent *a, *b;
    struct htensor *more, *o = NULL;
    const char *name;
    int d;
    if (in_latent(c, "samples1", &a, err) || in_latent(c, "samples2", &b, err) ||
        in_text(c, "dim", &name, err) || axis_of(a->samples, name, &d, err) ||
        tensor_repeat(b->samples, dim(a->samples, 0), &more, err))
        return err->code;
    bool before = *name == '-';
    berth_status s = join_along(before ? more : a->samples, before ? a->samples : more, d, &o, err);
    htensor_unref(more);
    return s ? s : give_samples(c, a, o, err);
}
LATENT_NODE(LatentConcat,
            INS(SOCKET("samples1", "LATENT"), SOCKET("samples2", "LATENT"),
                COMBO_IN("dim", CHOICES("x", "-x", "y", "-y", "t", "-t"))),
            .run = concat_run);

static berth_status cut_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const char *name;
    int64_t at;
    uint64_t n;
    int d;
    struct htensor *o;
    if (in_latent(c, "samples", &in, err) || in_text(c, "dim", &name, err) ||
        in_i64(c, "index", &at, err) || in_u64(c, "amount", &n, err) ||
        axis_of(in->samples, name, &d, err))
        return err->code;
    const struct htensor *t = in->samples;
    size_t all = dim(t, d), from;
    if (at >= 0)
        from = (uint64_t)at < all ? (size_t)at : all - 1;
    else
        from = at < -(int64_t)all ? 0 : (size_t)((int64_t)all + at);
    n = n < all - from ? n : all - from;
    if (!n)
        return err_set(err, BERTH_EINVAL, "amount is 0");
    struct shape to = t->shape;
    to.dim[d] = n;
    if (htensor_new(&to, &o, err))
        return err->code;
    size_t behind = count_behind(t, d);
    for (size_t i = 0, rows = count_before(t, d); i < rows; i++)
        memcpy(o->data + i * n * behind, t->data + (i * all + from) * behind,
               n * behind * sizeof(float));
    return give_samples(c, in, o, err);
}
LATENT_NODE(LatentCut,
            INS(SOCKET("samples", "LATENT"), COMBO_IN("dim", CHOICES("x", "y", "t")),
                INT_IN("index", 0, -MAX_SIDE, MAX_SIDE, 1), INT_IN("amount", 1, 1, MAX_SIDE, 1)),
            .run = cut_run);

static berth_status cut_to_batch_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    const char *name;
    uint64_t size;
    int d;
    struct htensor *o;
    if (in_latent(c, "samples", &in, err) || in_text(c, "dim", &name, err) ||
        in_u64(c, "slice_size", &size, err) || axis_of(in->samples, name, &d, err))
        return err->code;
    if (d < 2)
        return give_samples(c, in, htensor_ref(in->samples), err);
    const struct htensor *t = in->samples;
    size_t all = dim(t, d), slice = size && size < all ? (size_t)size : all;
    size_t pieces = all / slice, n = dim(t, 0), behind = count_behind(t, d);
    size_t rows = count_before(t, d) / n; /* of an item */
    struct shape to = t->shape;
    to.dim[0] = n * pieces;
    to.dim[d] = slice;
    if (htensor_new(&to, &o, err))
        return err->code;
    size_t one = slice * behind;
    for (size_t i = 0; i < n * pieces * rows; i++) {
        size_t row = i % rows, piece = i / rows % pieces, item = i / rows / pieces;
        memcpy(o->data + i * one, t->data + ((item * rows + row) * all + piece * slice) * behind,
               one * sizeof(float));
    }
    return give_samples(c, in, o, err);
}
LATENT_NODE(LatentCutToBatch,
            INS(SOCKET("samples", "LATENT"), COMBO_IN("dim", CHOICES("t", "x", "y")),
                INT_IN("slice_size", 1, 1, MAX_SIDE, 1)),
            .run = cut_to_batch_run);

/* ---- which noise each of a batch gets ---- */

static berth_status seeds_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct latent l;
    const char *how;
    if (in_latent(c, "samples", &in, err) || in_text(c, "seed_behavior", &how, err) ||
        latent_like(in, &l, err))
        return err->code;
    size_t n = dim(in->samples, 0);
    int64_t first = l.batch_index ? l.batch_index[0] : 0;
    free(l.batch_index);
    l.batch_index = NULL;
    l.samples = htensor_ref(in->samples);
    if (*how == 'r')
        return give_latent(c, &l, err);
    l.batch_index = calloc(n, sizeof *l.batch_index);
    for (size_t i = 0; l.batch_index && i < n; i++)
        l.batch_index[i] = first;
    return give_or_release(
        c, l.batch_index ? BERTH_OK : err_set(err, BERTH_ENOMEM, "indices of %zu latents", n), &l,
        err);
}
LATENT_NODE(LatentBatchSeedBehavior,
            INS(SOCKET("samples", "LATENT"),
                COMBO_IN("seed_behavior", CHOICES("random", "fixed"), .sdef = "fixed")),
            .run = seeds_run);

/* ---- ReplaceVideoLatentFrames ---- */

/* Frames of `from` over those of `to` from `at` on; one item is for all. */
static berth_status put_frames(const struct htensor *from, size_t at, struct htensor *to,
                               berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    bool same = from->shape.ndim == to->shape.ndim &&
                (dim(from, 0) == 1 || dim(from, 0) == dim(to, 0)) && dim(from, 1) == dim(to, 1);
    for (int i = 3; same && i < to->shape.ndim; i++)
        same = dim(from, i) == dim(to, i);
    if (!same)
        return err_set(err, BERTH_EINVAL, "frames of a latent %s cannot be put into %s",
                       shape_text(&from->shape, ta), shape_text(&to->shape, tb));
    size_t frame = count_behind(to, 2), n = dim(from, 2) * frame, rows = dim(from, 0) * dim(to, 1);
    for (size_t i = 0; i < dim(to, 0) * dim(to, 1); i++)
        memcpy(to->data + (i * dim(to, 2) + at) * frame, from->data + i % rows * n,
               n * sizeof(float));
    return BERTH_OK;
}

static berth_status replace_run(struct node_call *c, berth_err *err)
{
    const struct latent *to, *from;
    int64_t at;
    struct htensor *o;
    if (in_latent(c, "destination", &to, err) || in_i64(c, "index", &at, err))
        return err->code;
    if (!in_given(c, "source"))
        return give_samples(c, to, htensor_ref(to->samples), err);
    if (in_latent(c, "source", &from, err))
        return err->code;
    if (to->samples->shape.ndim < 3 || from->samples->shape.ndim < 3)
        return err_set(err, BERTH_EINVAL, "latents of %d and %d dimensions have no frames",
                       to->samples->shape.ndim, from->samples->shape.ndim);
    int64_t have = (int64_t)dim(to->samples, 2), more = (int64_t)dim(from->samples, 2);
    int64_t first = at < 0 ? at + have : at;
    if (first < 0)
        return err_set(err, BERTH_EINVAL, "index %" PRId64 " of %" PRId64 " frames", at, have);
    if (first > have - more) {
        log_warn(c->env->log, "node.latent", "node=%s %lld frames at %lld do not fit into %lld",
                 c->id, (long long)more, (long long)first, (long long)have);
        return give_samples(c, to, htensor_ref(to->samples), err);
    }
    if (htensor_copy(to->samples, &o, err))
        return err->code;
    berth_status s = put_frames(from->samples, (size_t)first, o, err);
    if (s) {
        htensor_unref(o);
        return s;
    }
    return give_samples(c, from, o, err); /* its mask stays, not the destination's: as in ComfyUI */
}

NODE_CLASS(ReplaceVideoLatentFrames, .display = "Replace Video Latent Frames",
           .category = "model/latent/batch", V3("latent"),
           INS(SOCKET("destination", "LATENT"), INT_IN("index", 0, -MAX_SIDE, MAX_SIDE, 1),
               OPTIONAL("source", "LATENT")),
           OUT(out_latent), .run = replace_run);

/* ---- LatentCompositeMasked ---- */

struct latent_paste { /* in latent pixels; mask [n, h, w] as large as source, or NULL */
    const struct htensor *source, *mask;
    size_t x, y;
};

static void latent_paste(struct htensor *o, const struct latent_paste *p)
{
    int d = o->shape.ndim;
    size_t H = dim(o, d - 2), W = dim(o, d - 1), sh = dim(p->source, d - 2);
    size_t sw = dim(p->source, d - 1);
    size_t h = p->y < H ? (sh < H - p->y ? sh : H - p->y) : 0;
    size_t w = p->x < W ? (sw < W - p->x ? sw : W - p->x) : 0;
    size_t planes = htensor_count(o) / (H * W), each = planes / dim(o, 0);
    for (size_t i = 0; i < planes; i++) {
        size_t item = i / each, from = item % dim(p->source, 0);
        const float *s = p->source->data + (from * each + i % each) * sh * sw;
        const float *m = p->mask ? p->mask->data + item % dim(p->mask, 0) * sh * sw : NULL;
        for (size_t y = 0; y < h; y++)
            for (size_t x = 0; x < w; x++) {
                float *to = o->data + (i * H + p->y + y) * W + p->x + x;
                float by = m ? m[y * sw + x] : 1.0f;
                *to = by * s[y * sw + x] + (1.0f - by) * *to;
            }
    }
}

static berth_status composite_run(struct node_call *c, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    const struct latent *to, *from;
    struct htensor *mask = NULL, *fit = NULL, *mfit = NULL, *o = NULL;
    uint64_t x, y;
    bool resize;
    if (in_latent(c, "destination", &to, err) || in_latent(c, "source", &from, err) ||
        in_u64(c, "x", &x, err) || in_u64(c, "y", &y, err) ||
        in_bool(c, "resize_source", &resize, err) ||
        (in_given(c, "mask") && in_mask(c, "mask", &mask, err)))
        return err->code;
    const struct htensor *a = to->samples, *b = from->samples;
    int d = a->shape.ndim;
    bool same = b->shape.ndim == d && d >= 3;
    for (int i = 1; same && i < d - 2; i++)
        same = dim(a, i) == dim(b, i);
    if (!same)
        return err_set(err, BERTH_EINVAL, "a latent %s cannot be put onto %s",
                       shape_text(&b->shape, ta), shape_text(&a->shape, tb));
    struct latent_paste p = { .source = b, .x = x / USUAL_RATIO, .y = y / USUAL_RATIO };
    berth_status s = BERTH_OK;
    if (resize) {
        s = scale_planes(c, b, dim(a, d - 1), dim(a, d - 2), "bilinear", false, &fit, err);
        p.source = fit;
    }
    if (!s && mask) {
        s = scale_planes(c, mask, dim(p.source, d - 1), dim(p.source, d - 2), "bilinear", false,
                         &mfit, err);
        p.mask = mfit;
    }
    if (!s)
        s = htensor_copy(a, &o, err);
    if (!s)
        latent_paste(o, &p);
    htensor_unref(fit);
    htensor_unref(mfit);
    return s ? s : give_samples(c, to, o, err);
}

NODE_CLASS(LatentCompositeMasked, .display = "Latent Composite Masked", .category = "model/latent",
           V3("mask"),
           INS(SOCKET("destination", "LATENT"), SOCKET("source", "LATENT"),
               INT_IN("x", 0, 0, MAX_SIDE, 8), INT_IN("y", 0, 0, MAX_SIDE, 8),
               BOOL_IN("resize_source", false), OPTIONAL("mask", "MASK")),
           OUT(out_latent), .run = composite_run);

/* ---- NormalizeVideoLatentStart: the first frames as bright and as lively as those behind ---- */

struct moments {
    double mean, std; /* over n - 1 */
};

/* Of frames [from, to) of item i, all channels together. */
static struct moments moments_of(const struct htensor *t, size_t i, size_t from, size_t to)
{
    size_t frames = dim(t, 2), each = dim(t, 3) * dim(t, 4), n = dim(t, 1) * (to - from) * each;
    double sum = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++) {
        double mean = sum / (double)n;
        for (size_t k = 0; k < dim(t, 1); k++)
            for (size_t v = from * each; v < to * each; v++) {
                double x = (double)t->data[(i * dim(t, 1) + k) * frames * each + v];
                if (pass)
                    squares += (x - mean) * (x - mean);
                else
                    sum += x;
            }
    }
    return (struct moments) { sum / (double)n, sqrt(squares / (double)(n - 1)) };
}

/* Of all items. */
static struct moments moments_of_all(const struct htensor *t, size_t from, size_t to)
{
    double n = (double)(dim(t, 1) * (to - from) * dim(t, 3) * dim(t, 4)), b = (double)dim(t, 0);
    double mean = 0, squares = 0;
    for (size_t i = 0; i < dim(t, 0); i++)
        mean += moments_of(t, i, from, to).mean / b;
    for (size_t i = 0; i < dim(t, 0); i++) {
        struct moments m = moments_of(t, i, from, to);
        squares += m.std * m.std * (n - 1) + n * (m.mean - mean) * (m.mean - mean);
    }
    return (struct moments) { mean, sqrt(squares / (n * b - 1)) };
}

static double between(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static void normalize_frame(struct htensor *t, size_t i, size_t f, struct moments want)
{
    size_t frames = dim(t, 2), each = dim(t, 3) * dim(t, 4);
    struct moments is = moments_of(t, i, f, f + 1);
    double mean = between(want.mean, is.mean - 0.3, is.mean + 0.35);
    double std = between(want.std, is.std - 0.35, is.std + 0.5);
    for (size_t k = 0; k < dim(t, 1); k++) {
        float *x = t->data + ((i * dim(t, 1) + k) * frames + f) * each;
        for (size_t v = 0; v < each; v++)
            x[v] = (x[v] - (float)is.mean) / ((float)is.std + 1e-8f) * (float)std + (float)mean;
    }
}

static berth_status start_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct htensor *o;
    uint64_t start, reference;
    if (in_latent(c, "latent", &in, err) || in_u64(c, "start_frame_count", &start, err) ||
        in_u64(c, "reference_frame_count", &reference, err))
        return err->code;
    const struct htensor *t = in->samples;
    if (t->shape.ndim == 4 || dim(t, 2) <= 1)
        return out_input(c, 0, "latent", err);
    size_t frames = dim(t, 2);
    reference = reference < frames - 1 ? reference : frames - 1;
    size_t to = start + reference < frames ? (size_t)(start + reference) : frames;
    if (!start || start >= to || dim(t, 1) * dim(t, 3) * dim(t, 4) < 2)
        return err_set(err, BERTH_EINVAL, "no frames behind the first %llu of %zu",
                       (unsigned long long)start, frames);
    if (htensor_copy(t, &o, err))
        return err->code;
    struct moments want = moments_of_all(t, (size_t)start, to);
    for (size_t i = 0; i < dim(t, 0); i++)
        for (size_t f = 0; f < start; f++)
            normalize_frame(o, i, f, want);
    return give_samples(c, in, o, err);
}

NODE_CLASS(NormalizeVideoLatentStart, .category = "model/conditioning", V3("kandinsky5"),
           .description = "Makes the first frames of a video as bright and as lively as those "
                          "that follow.",
           INS(SOCKET("latent", "LATENT"), INT_IN("start_frame_count", 4, 1, MAX_SIDE, 1),
               INT_IN("reference_frame_count", 5, 1, MAX_SIDE, 1)),
           OUTS({ .type = "LATENT", .name = "latent" }), .run = start_run);
