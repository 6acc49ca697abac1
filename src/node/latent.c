/* latent.c: latents from nothing, in batches, and what the other latent files share. */
#include "base/sz.h"
#include "node/node_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- shared ---- */

/* Of the items [from, from + n) of l, into room for them: its own, or numbers from `first` on. */
static void put_index(const struct latent *l, size_t from, size_t n, int64_t first, int64_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = l->batch_index ? l->batch_index[from + i] : first + (int64_t)i;
}

static berth_status new_index(size_t n, int64_t **out, berth_err *err)
{
    *out = calloc(n ? n : 1, sizeof **out);
    return *out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "indices of %zu latents", n);
}

static berth_status copy_index(const int64_t *from, size_t n, int64_t **out, berth_err *err)
{
    if (new_index(n, out, err))
        return err->code;
    memcpy(*out, from, n * sizeof **out);
    return BERTH_OK;
}

berth_status latent_like(const struct latent *l, struct latent *out, berth_err *err)
{
    *out = (struct latent) { 0 };
    if (l->batch_index) {
        if (copy_index(l->batch_index, dim(l->samples, 0), &out->batch_index, err))
            return err->code;
    }
    if (l->noise_mask)
        out->noise_mask = htensor_ref(l->noise_mask);
    for (size_t i = 0; i < LATENT_MORE; i++)
        if (l->more[i].noise_mask)
            out->more[i].noise_mask = htensor_ref(l->more[i].noise_mask);
    return BERTH_OK;
}

berth_status give_latent(struct node_call *c, struct latent *taken, berth_err *err)
{
    return out_value(c, 0, value_latent(taken), err);
}

berth_status give_samples(struct node_call *c, const struct latent *in, struct htensor *samples,
                          berth_err *err)
{
    struct latent l;
    berth_status s = latent_like(in, &l, err);
    if (s) {
        htensor_unref(samples);
        return s;
    }
    if (dim(samples, 0) != dim(in->samples, 0)) {
        free(l.batch_index);
        l.batch_index = NULL;
    }
    l.samples = samples;
    return give_latent(c, &l, err);
}

berth_status latent_match(struct node_call *c, const struct htensor *a, struct htensor *b,
                          struct htensor **out, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    int d = a->shape.ndim;
    struct htensor *fit = NULL;
    bool same = b->shape.ndim == d;
    for (int i = 1; same && i < d - 2; i++)
        same = dim(a, i) == dim(b, i);
    if (!same || d < 3)
        return err_set(err, BERTH_EINVAL, "latents %s and %s do not fit together",
                       shape_text(&a->shape, ta), shape_text(&b->shape, tb));
    if (dim(a, d - 1) == dim(b, d - 1) && dim(a, d - 2) == dim(b, d - 2))
        return tensor_repeat(b, dim(a, 0), out, err);
    berth_status s = scale_planes(c, b, dim(a, d - 1), dim(a, d - 2), "bilinear", true, &fit, err);
    if (!s)
        s = tensor_repeat(fit, dim(a, 0), out, err);
    htensor_unref(fit);
    return s;
}

berth_status give_or_release(struct node_call *c, berth_status s, struct latent *taken,
                             berth_err *err)
{
    if (!s)
        return give_latent(c, taken, err);
    latent_release(taken);
    return s;
}

berth_status tensor_repeat(struct htensor *t, size_t count, struct htensor **out, berth_err *err)
{
    if (dim(t, 0) == count) {
        *out = htensor_ref(t);
        return BERTH_OK;
    }
    struct shape s = t->shape;
    s.dim[0] = count;
    berth_status st = htensor_new(&s, out, err);
    size_t item = dim(t, 0) ? htensor_count(t) / dim(t, 0) : 0;
    for (size_t i = 0; !st && item && i < count; i++)
        memcpy((*out)->data + i * item, t->data + (i % dim(t, 0)) * item, item * sizeof(float));
    return st;
}

berth_status tensor_slice(const struct htensor *t, size_t from, size_t n, struct htensor **out,
                          berth_err *err)
{
    struct shape s = t->shape;
    size_t item = htensor_count(t) / dim(t, 0);
    s.dim[0] = n;
    berth_status st = htensor_new(&s, out, err);
    if (!st)
        memcpy((*out)->data, t->data + from * item, n * item * sizeof(float));
    return st;
}

berth_status in_batch_part(struct node_call *c, size_t all, size_t *at, size_t *n, berth_err *err)
{
    int64_t from;
    uint64_t length;
    if (in_i64(c, "batch_index", &from, err) || in_u64(c, "length", &length, err))
        return err->code;
    if (from < 0)
        from = from < -(int64_t)all ? 0 : from + (int64_t)all;
    *at = (uint64_t)from < all ? (size_t)from : all - 1;
    *n = length < all - *at ? (size_t)length : all - *at;
    *n = *n ? *n : 1;
    return BERTH_OK;
}

/* ---- empty latents ---- */

struct empty { /* what EmptyXLatent nodes differ in */
    unsigned channels, side;
    unsigned frames; /* pixels' frames per latent one; 0: pictures */
};

static berth_status empty_run(struct node_call *c, berth_err *err)
{
    const struct empty *e = c->cls->own;
    uint64_t w, h, length = 1, n;
    struct latent l = { 0 };
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        (e->frames && in_u64(c, "length", &length, err)) || in_u64(c, "batch_size", &n, err))
        return err->code;
    if (!length || w / e->side == 0 || h / e->side == 0 || !n)
        return err_set(err, BERTH_EINVAL,
                       "a latent of %" PRIu64 "x%" PRIu64 ", %" PRIu64 " frames, is empty", w, h,
                       length);
    struct shape shape = { .ndim = 4, .dim = { n, e->channels, h / e->side, w / e->side } };
    if (e->frames)
        shape = (struct shape) { .ndim = 5,
                                 .dim = { n, e->channels, (length - 1) / e->frames + 1, h / e->side,
                                          w / e->side } };
    return htensor_zeros(&shape, &l.samples, err) ? err->code : give_latent(c, &l, err);
}

#define EMPTY(...)                                                                                 \
    OUT(out_latent), .run = empty_run, .own = &(const struct empty)                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

NODE_CLASS(EmptyLatentImage, .display = "Empty Latent Image", .category = "latent",
           .module = "nodes", .description = "Latents of nothing, to be denoised by a sampler.",
           INS(SIZE_IN(512, 512, 16, 8), BATCH_IN), EMPTY(.channels = 4, .side = USUAL_RATIO));

static const struct node_input sd3_in[] = { SIZE_IN(1024, 1024, 16, 16), BATCH_IN };
NODE_CLASS(EmptySD3LatentImage, .category = "latent/sd3", V3("sd3"), IN(sd3_in),
           EMPTY(.channels = 16, .side = USUAL_RATIO));

NODE_CLASS(EmptyFlux2LatentImage, .display = "Empty Flux 2 Latent", .category = "latent",
           V3("flux"), IN(sd3_in), EMPTY(.channels = 128, .side = 16));

NODE_CLASS(EmptyHunyuanImageLatent, .category = "latent", V3("hunyuan"),
           INS(SIZE_IN(2048, 2048, 64, 32), BATCH_IN), EMPTY(.channels = 64, .side = 32));

NODE_CLASS(EmptyMochiLatentVideo, .category = "latent/video", V3("mochi"),
           INS(SIZE_IN(848, 480, 16, 16), INT_IN("length", 25, 7, MAX_SIDE, 6), BATCH_IN),
           EMPTY(.channels = 12, .side = USUAL_RATIO, .frames = 6));

/* The picture as a whole, then its layers: frames of one latent. */
static berth_status layered_run(struct node_call *c, berth_err *err)
{
    uint64_t w, h, layers, n;
    struct latent l = { 0 };
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_u64(c, "layers", &layers, err) || in_u64(c, "batch_size", &n, err))
        return err->code;
    if (!n || w < USUAL_RATIO || h < USUAL_RATIO || layers > MAX_SIDE)
        return err_set(err, BERTH_EINVAL,
                       "%" PRIu64 " latents of %" PRIu64 "x%" PRIu64 " with %" PRIu64 " layers", n,
                       w, h, layers);
    struct shape shape = { .ndim = 5,
                           .dim = { n, 16, layers + 1, h / USUAL_RATIO, w / USUAL_RATIO } };
    return htensor_zeros(&shape, &l.samples, err) ? err->code : give_latent(c, &l, err);
}

NODE_CLASS(EmptyQwenImageLayeredLatentImage, .display = "Empty Qwen Image Layered Latent",
           .category = "latent/qwen", V3("qwen"),
           INS(SIZE_IN(640, 640, 16, 16), INT_IN("layers", 3, 0, MAX_SIDE, 1), BATCH_IN),
           OUT(out_latent), .run = layered_run);

static const struct node_input hunyuan_in[] = {
    SIZE_IN(848, 480, 16, 16),
    INT_IN("length", 25, 1, MAX_SIDE, 4),
    BATCH_IN,
};
NODE_CLASS(EmptyHunyuanLatentVideo, .display = "Empty HunyuanVideo 1.0 Latent",
           .category = "latent/video", V3("hunyuan"), IN(hunyuan_in),
           EMPTY(.channels = 16, .side = USUAL_RATIO, .frames = 4));

NODE_CLASS(EmptyCosmosLatentVideo, .category = "model/latent/cosmos", V3("cosmos"),
           INS(SIZE_IN(1280, 704, 16, 16), INT_IN("length", 121, 1, MAX_SIDE, 8), BATCH_IN),
           EMPTY(.channels = 16, .side = USUAL_RATIO, .frames = 8));
NODE_CLASS(EmptyARVideoLatent, .category = "model/latent/autoregressive", V3("ar_video"),
           INS(INT_IN("width", 832, 16, 8192, 16), INT_IN("height", 480, 16, 8192, 16),
               INT_IN("length", 81, 1, 1024, 4), INT_IN("batch_size", 1, 1, 64, 0)),
           EMPTY(.channels = 16, .side = USUAL_RATIO, .frames = 4));
/* Of models that paint pixels themselves. */
NODE_CLASS(EmptyChromaRadianceLatentImage, .category = "model/latent/chroma radiance",
           V3("chroma_radiance"), IN(sd3_in), EMPTY(.channels = 3, .side = 1));
NODE_CLASS(EmptyHiDreamO1LatentImage, .display = "Empty HiDream-O1 Latent Image",
           .category = "model/latent/hidream", V3("hidream_o1"),
           .description = "Pixels of nothing for HiDream-O1, which has no latents.",
           INS(INT_IN("width", 2048, 64, 4096, 32), INT_IN("height", 2048, 64, 4096, 32),
               INT_IN("batch_size", 1, 1, 64, 0)),
           EMPTY(.channels = 3, .side = 1));

/* Two stages, the first of which is as small as it is told. */
static berth_status cascade_run(struct node_call *c, berth_err *err)
{
    uint64_t w, h, by, n;
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_u64(c, "compression", &by, err) || in_u64(c, "batch_size", &n, err))
        return err->code;
    if (!by || !n || w / by == 0 || h / by == 0 || w < 4 || h < 4)
        return err_set(err, BERTH_EINVAL, "a latent of %" PRIu64 "x%" PRIu64 " is empty", w, h);
    const struct shape shape[2] = { { 4, { n, 16, h / by, w / by } },
                                    { 4, { n, 4, h / 4, w / 4 } } };
    for (size_t i = 0; i < ARRAY_LEN(shape); i++) {
        struct latent l = { 0 };
        if (htensor_zeros(&shape[i], &l.samples, err) || out_value(c, i, value_latent(&l), err))
            return err->code;
    }
    return BERTH_OK;
}

NODE_CLASS(StableCascade_EmptyLatentImage, .category = "model/latent/stable cascade",
           V3("stable_cascade"),
           INS(SIZE_IN(1024, 1024, 256, 8), INT_IN("compression", 42, 4, 128, 1, .more = ADVANCED),
               BATCH_IN),
           OUTS({ .type = "LATENT", .name = "stage_c" }, { .type = "LATENT", .name = "stage_b" }),
           .run = cascade_run);

NODE_CLASS(EmptyHunyuanVideo15Latent, .display = "Empty HunyuanVideo 1.5 Latent",
           .category = "latent/video", V3("hunyuan"), IN(hunyuan_in),
           EMPTY(.channels = 32, .side = 16, .frames = 4));

NODE_CLASS(EmptyLTXVLatentVideo, .category = "latent/video/ltxv", V3("lt"),
           INS(SIZE_IN(768, 512, 64, 32), INT_IN("length", 97, 1, MAX_SIDE, 8), BATCH_IN),
           EMPTY(.channels = 128, .side = 32, .frames = 8));

/* ---- batches ---- */

static berth_status from_batch_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct latent l = { 0 };
    size_t at, n;
    if (in_latent(c, "samples", &in, err) || in_batch_part(c, dim(in->samples, 0), &at, &n, err))
        return err->code;
    size_t all = dim(in->samples, 0);
    berth_status s = tensor_slice(in->samples, at, n, &l.samples, err);
    if (!s && in->noise_mask && dim(in->noise_mask, 0) == 1) {
        l.noise_mask = htensor_ref(in->noise_mask);
    } else if (!s && in->noise_mask) {
        struct htensor *full = NULL;
        size_t have = dim(in->noise_mask, 0);
        s = tensor_repeat(in->noise_mask, have < all ? all : have, &full, err);
        if (!s)
            s = tensor_slice(full, at, n, &l.noise_mask, err);
        htensor_unref(full);
    }
    if (!s && !(s = new_index(n, &l.batch_index, err)))
        put_index(in, at, n, (int64_t)at, l.batch_index);
    return give_or_release(c, s, &l, err);
}

NODE_CLASS(LatentFromBatch, .display = "Latent From Batch", .category = "latent/batch",
           .module = "nodes",
           INS(SOCKET("samples", "LATENT"), INT_IN("batch_index", 0, -MAX_SIDE, MAX_SIDE, 0),
               INT_IN("length", 1, 1, 64, 0)),
           OUT(out_latent), .run = from_batch_run);

/* Each repetition's indices go on where the one before ended. */
static berth_status repeat_index(const struct latent *in, size_t amount, int64_t **out,
                                 berth_err *err)
{
    size_t n = dim(in->samples, 0);
    int64_t lo = in->batch_index[0], hi = lo;
    for (size_t i = 0; i < n; i++) {
        lo = in->batch_index[i] < lo ? in->batch_index[i] : lo;
        hi = in->batch_index[i] > hi ? in->batch_index[i] : hi;
    }
    if (new_index(n * amount, out, err))
        return err->code;
    for (size_t i = 0; i < n * amount; i++)
        (*out)[i] = in->batch_index[i % n] + (int64_t)(i / n) * (hi - lo + 1);
    return BERTH_OK;
}

static berth_status repeat_run(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct latent l = { 0 };
    uint64_t amount;
    size_t n;
    if (in_latent(c, "samples", &in, err) || in_u64(c, "amount", &amount, err))
        return err->code;
    if (!amount || !sz_mul(dim(in->samples, 0), amount, &n))
        return err_set(err, BERTH_EINVAL, "%" PRIu64 " times %zu latents", amount,
                       dim(in->samples, 0));
    berth_status s = tensor_repeat(in->samples, n, &l.samples, err);
    if (!s && in->noise_mask && dim(in->noise_mask, 0) > 1)
        s = tensor_repeat(in->noise_mask, dim(in->noise_mask, 0) * amount, &l.noise_mask, err);
    else if (!s && in->noise_mask)
        l.noise_mask = htensor_ref(in->noise_mask);
    if (!s && in->batch_index)
        s = repeat_index(in, amount, &l.batch_index, err);
    return give_or_release(c, s, &l, err);
}

NODE_CLASS(RepeatLatentBatch, .display = "Repeat Latent Batch", .category = "latent/batch",
           .module = "nodes", INS(SOCKET("samples", "LATENT"), INT_IN("amount", 1, 1, 64, 0)),
           OUT(out_latent), .run = repeat_run);

/* a and b one after the other; the same shape except for dimension 0. */
static berth_status join(const struct htensor *a, const struct htensor *b, struct htensor **out,
                         berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    struct shape s = a->shape, other = b->shape;
    s.dim[0] = other.dim[0] = 0;
    if (!shape_eq(&s, &other))
        return err_set(err, BERTH_EINVAL, "latents %s and %s do not fit together",
                       shape_text(&a->shape, ta), shape_text(&b->shape, tb));
    s.dim[0] = a->shape.dim[0] + b->shape.dim[0];
    berth_status st = htensor_new(&s, out, err);
    if (st)
        return st;
    memcpy((*out)->data, a->data, htensor_count(a) * sizeof(float));
    memcpy((*out)->data + htensor_count(a), b->data, htensor_count(b) * sizeof(float));
    return BERTH_OK;
}

static berth_status batch_run(struct node_call *c, berth_err *err)
{
    const struct latent *a, *b;
    struct htensor *fit = NULL;
    struct latent l = { 0 };
    berth_status s = BERTH_OK;
    if (in_latent(c, "samples1", &a, err) || in_latent(c, "samples2", &b, err))
        return err->code;
    const struct shape *sa = &a->samples->shape, *sb = &b->samples->shape;
    int d = sa->ndim;
    if (sb->ndim == d && (sa->dim[d - 1] != sb->dim[d - 1] || sa->dim[d - 2] != sb->dim[d - 2]))
        s = scale_planes(c, b->samples, sa->dim[d - 1], sa->dim[d - 2], "bilinear", true, &fit,
                         err);
    if (!s)
        s = join(a->samples, fit ? fit : b->samples, &l.samples, err);
    htensor_unref(fit);
    size_t na = dim(a->samples, 0), nb = dim(b->samples, 0);
    if (!s && !(s = new_index(na + nb, &l.batch_index, err))) {
        put_index(a, 0, na, 0, l.batch_index);
        put_index(b, 0, nb, 0, l.batch_index + na);
        l.noise_mask = a->noise_mask ? htensor_ref(a->noise_mask) : NULL;
    }
    return give_or_release(c, s, &l, err);
}

NODE_CLASS(LatentBatch, .category = "latent/batch", .module = MOD("latent"),
           .flags = NODE_V3 | NODE_DEPRECATED,
           INS(SOCKET("samples1", "LATENT"), SOCKET("samples2", "LATENT")), OUT(out_latent),
           .run = batch_run);

/* ---- RebatchLatents: the list regrouped ---- */

static bool same_sides(const struct htensor *a, const struct htensor *b)
{
    int d = a->shape.ndim;
    return d == b->shape.ndim && a->shape.dim[d - 1] == b->shape.dim[d - 1] &&
           a->shape.dim[d - 2] == b->shape.dim[d - 2];
}

/* The next of the list with an index for each item; masks are kept only where all have one. */
static berth_status fetch(const struct latent *in, int64_t offset, struct latent *out,
                          berth_err *err)
{
    size_t n = dim(in->samples, 0);
    *out = (struct latent) { .samples = htensor_ref(in->samples) };
    if (new_index(n, &out->batch_index, err))
        return err->code;
    put_index(in, 0, n, offset, out->batch_index);
    return in->noise_mask ? tensor_repeat(in->noise_mask, n, &out->noise_mask, err) : BERTH_OK;
}

/* A mask of ones for items that have none: [n, 1, 8h, 8w], as ComfyUI makes it. */
static berth_status ones(const struct htensor *samples, const struct htensor *like,
                         struct htensor **out, berth_err *err)
{
    struct shape s = like->shape;
    s.dim[0] = samples->shape.dim[0];
    berth_status st = htensor_new(&s, out, err);
    for (size_t i = 0, n = st ? 0 : htensor_count(*out); i < n; i++)
        (*out)->data[i] = 1.0f;
    return st;
}

static berth_status append(struct latent *to, struct latent *more, berth_err *err)
{
    struct latent l = { 0 };
    size_t a = dim(to->samples, 0), b = dim(more->samples, 0);
    berth_status s = join(to->samples, more->samples, &l.samples, err);
    if (!s && (to->noise_mask || more->noise_mask)) {
        if (!to->noise_mask)
            s = ones(to->samples, more->noise_mask, &to->noise_mask, err);
        else if (!more->noise_mask)
            s = ones(more->samples, to->noise_mask, &more->noise_mask, err);
        if (!s)
            s = join(to->noise_mask, more->noise_mask, &l.noise_mask, err);
    }
    if (s || new_index(a + b, &l.batch_index, err)) {
        latent_release(&l);
        return err->code;
    }
    put_index(to, 0, a, 0, l.batch_index);
    put_index(more, 0, b, 0, l.batch_index + a);
    latent_release(to);
    *to = l;
    return BERTH_OK;
}

/* Items [from, from + n) of `l` become one value of the output. */
static berth_status emit(struct node_call *c, const struct latent *l, size_t from, size_t n,
                         berth_err *err)
{
    struct latent o = { 0 };
    berth_status s = tensor_slice(l->samples, from, n, &o.samples, err);
    if (!s && l->noise_mask) {
        bool plain = true;
        s = tensor_slice(l->noise_mask, from, n, &o.noise_mask, err);
        for (size_t i = 0, k = s ? 0 : htensor_count(o.noise_mask); plain && i < k; i++)
            plain = o.noise_mask->data[i] == 1.0f;
        if (!s && plain) {
            htensor_unref(o.noise_mask);
            o.noise_mask = NULL;
        }
    }
    if (!s)
        s = copy_index(l->batch_index + from, n, &o.batch_index, err);
    return give_or_release(c, s, &o, err);
}

/* Gives all full batches of `cur` and keeps what is left; all: that too. */
static berth_status flush(struct node_call *c, struct latent *cur, size_t size, bool all,
                          berth_err *err)
{
    if (!cur->samples)
        return BERTH_OK;
    size_t n = dim(cur->samples, 0), at = 0;
    berth_status s = BERTH_OK;
    if (n <= size && !all)
        return BERTH_OK; /* an exact batch waits too, as in ComfyUI: the next one may not fit */
    for (; !s && n - at >= size; at += size)
        s = emit(c, cur, at, size, err);
    if (!s && all && at < n)
        s = emit(c, cur, at, n - at, err);
    if (s)
        return s;
    struct latent rest = { 0 };
    if (!all && at < n) {
        s = tensor_slice(cur->samples, at, n - at, &rest.samples, err);
        if (!s && cur->noise_mask)
            s = tensor_slice(cur->noise_mask, at, n - at, &rest.noise_mask, err);
        if (!s)
            s = copy_index(cur->batch_index + at, n - at, &rest.batch_index, err);
    }
    latent_release(cur);
    *cur = rest;
    return s;
}

static berth_status rebatch_run(struct node_call *c, berth_err *err)
{
    size_t at = node_input_index(c->cls, "latents");
    struct latent cur = { 0 };
    uint64_t size;
    int64_t seen = 0;
    berth_status s = in_u64(c, "batch_size", &size, err);
    if (s)
        return s;
    size = size ? size : 1;
    for (size_t i = 0; !s && i < c->in[at].n; i++) {
        const struct value *v = c->in[at].at[i];
        struct latent next = { 0 };
        if (v->kind != V_LATENT) {
            s = err_set(err, BERTH_EINVAL, "input 'latents' wants LATENT");
            break;
        }
        if ((s = latent_single("latents", &v->latent, err)))
            break;
        s = fetch(&v->latent, seen, &next, err);
        seen += (int64_t)dim(v->latent.samples, 0);
        if (!s && cur.samples && !same_sides(cur.samples, next.samples))
            s = flush(c, &cur, size, true, err);
        if (!s && cur.samples) {
            s = append(&cur, &next, err);
            latent_release(&next);
        } else if (!s) {
            cur = next;
        } else {
            latent_release(&next);
        }
        if (!s)
            s = flush(c, &cur, size, false, err);
    }
    if (!s)
        s = flush(c, &cur, size, true, err);
    latent_release(&cur);
    return s;
}

NODE_CLASS(RebatchLatents, .display = "Rebatch Latents", .category = "latent/batch",
           .module = MOD("rebatch"), .flags = NODE_V3 | NODE_INPUT_IS_LIST,
           INS(SOCKET("latents", "LATENT"), BATCH_IN), OUTS({ .type = "LATENT", .is_list = true }),
           .run = rebatch_run);
