/* ltxv: nodes of LTX-Video: frame rates, pictures that a video begins with, and guides, which are
 * latent frames at its end that stand for other places (video-nodes.md 2). */
#include "node/compute.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CHANNELS 128
#define SIDE 32 /* pixels of a latent one */
#define TIME 8  /* frames of a latent one, but for the first */

/* ---- both prompts ---- */

struct pair {
    struct conditioning *at[2]; /* positive, negative: copies of the inputs */
};

static berth_status in_pair(struct node_call *c, struct pair *p, berth_err *err)
{
    static const char *const name[] = { "positive", "negative" };
    *p = (struct pair) { { NULL } };
    for (int i = 0; i < 2; i++) {
        const struct conditioning *x;
        if (in_conditioning(c, name[i], &x, err) || conditioning_copy(x, &p->at[i], err)) {
            conditioning_free(p->at[0]);
            return err->code;
        }
    }
    return BERTH_OK;
}

static void pair_release(struct pair *p)
{
    conditioning_free(p->at[0]);
    conditioning_free(p->at[1]);
    *p = (struct pair) { { NULL } };
}

/* Outputs 0 and 1, and 2 where there is a latent, if s is fine. Takes both. */
static berth_status give_pair(struct node_call *c, berth_status s, struct pair *p, struct latent *l,
                              berth_err *err)
{
    for (size_t i = 0; i < 2 && !s; i++) {
        struct conditioning *one = p->at[i];
        p->at[i] = NULL;
        s = out_conditioning(c, i, one, err);
    }
    pair_release(p);
    if (!s && l)
        return out_value(c, 2, value_latent(l), err);
    if (l)
        latent_release(l);
    return s;
}

/* ---- LTXVConditioning ---- */

static berth_status run_conditioning(struct node_call *c, berth_err *err)
{
    struct pair p;
    double rate;
    if (in_f64(c, "frame_rate", &rate, err))
        return err->code;
    if (!(rate > 0)) /* where ComfyUI divides by it */
        return err_set(err, BERTH_EINVAL, "a frame rate of %g", rate);
    if (in_pair(c, &p, err))
        return err->code;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < p.at[k]->n; i++)
            p.at[k]->at[i].frame_rate = rate;
    return give_pair(c, BERTH_OK, &p, NULL, err);
}

NODE_CLASS(LTXVConditioning, .category = "conditioning/video_models", V3("lt"),
           INS(PAIR_IN, FLOAT_IN("frame_rate", 25.0, 0.0, 1000.0, 0.01)), OUTS(PAIR_OUT),
           .run = run_conditioning);

/* ---- latents ---- */

/* Latent frames `from` on of z go to frames `to` on of l, in every item. */
static void put_frames(struct htensor *l, size_t to, const struct htensor *z, size_t from)
{
    const size_t C = dim(l, 1), plane = dim(l, 3) * dim(l, 4), n = dim(z, 2) - from;
    for (size_t i = 0; i < dim(l, 0) * C; i++)
        memcpy(l->data + (i * dim(l, 2) + to) * plane, z->data + (i % C * dim(z, 2) + from) * plane,
               n * plane * sizeof *l->data);
}

/* The pictures at a size, as one latent [1, 128, frames, h, w]. */
static berth_status encode_at(struct node_call *c, const struct htensor *image, size_t w, size_t h,
                              struct htensor **out, berth_err *err)
{
    const struct model_ref *vae;
    struct htensor *sized;
    char text[SHAPE_TEXT_MAX];
    *out = NULL;
    if (in_model(c, "vae", &vae, err) || scale_image(c, image, w, h, "bilinear", true, &sized, err))
        return err->code;
    berth_status s = encode_picture(c, vae, sized, out, err);
    htensor_unref(sized);
    if (!s && ((*out)->shape.ndim != 5 || dim(*out, 1) != CHANNELS || dim(*out, 3) != h / SIDE ||
               dim(*out, 4) != w / SIDE))
        s = err_set(err, BERTH_EINVAL, "the VAE makes latents %s, not LTX-Video's",
                    shape_text(&(*out)->shape, text));
    return htensor_made(s, out);
}

/* A mask [n, 1, frames, h, w] that is 1, for latents like these. */
static berth_status mask_new(size_t n, size_t frames, size_t h, size_t w, struct htensor **out,
                             berth_err *err)
{
    const struct shape s = { 5, { n, 1, frames, h, w } };
    if (htensor_new(&s, out, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(*out); i++)
        (*out)->data[i] = 1;
    return BERTH_OK;
}

/* ---- LTXVImgToVideo ---- */

static berth_status image_latent(struct node_call *c, struct latent *out, berth_err *err)
{
    uint64_t w, h, length, batch;
    double strength;
    struct htensor *image, *z;
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_u64(c, "length", &length, err) || in_u64(c, "batch_size", &batch, err) ||
        in_f64(c, "strength", &strength, err) || in_image(c, "image", &image, err))
        return err->code;
    const size_t frames = ((size_t)length - 1) / TIME + 1;
    const struct shape s = { 5, { batch, CHANNELS, frames, h / SIDE, w / SIDE } };
    if (w / SIDE == 0 || h / SIDE == 0 || !length)
        return err_set(err, BERTH_EINVAL, "a video of %" PRIu64 " x %" PRIu64, w, h);
    if (encode_at(c, image, (size_t)w / SIDE * SIDE, (size_t)h / SIDE * SIDE, &z, err))
        return err->code;
    const size_t known = dim(z, 2);
    berth_status st =
        known > frames ? err_set(err, BERTH_EINVAL,
                                 "%zu pictures are more than the %" PRIu64 " frames of the video",
                                 dim(image, 0), length)
                       : htensor_zeros(&s, &out->samples, err);
    if (!st)
        st = mask_new((size_t)batch, frames, 1, 1, &out->noise_mask, err);
    for (size_t i = 0; !st && i < (size_t)batch * frames; i++)
        if (i % frames < known)
            out->noise_mask->data[i] = (float)(1.0 - strength);
    if (!st)
        put_frames(out->samples, 0, z, 0);
    htensor_unref(z);
    return st;
}

static berth_status run_image(struct node_call *c, berth_err *err)
{
    struct latent l = { 0 };
    struct pair p;
    if (in_pair(c, &p, err))
        return err->code;
    return give_pair(c, image_latent(c, &l, err), &p, &l, err);
}

NODE_CLASS(LTXVImgToVideo, .category = "conditioning/video_models", V3("lt"),
           INS(PAIR_IN, SOCKET("vae", "VAE"), SOCKET("image", "IMAGE"), SIZE_IN(768, 512, 64, 32),
               INT_IN("length", 97, 9, MAX_SIDE, 8), BATCH_IN,
               FLOAT_IN("strength", 1.0, 0.0, 1.0, 0)),
           OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }), .run = run_image);

/* ---- guides ---- */

static uint64_t guide_frames(const struct conditioning *x)
{
    uint64_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        if (x->at[i].guide) { /* the first prompt's that has any */
            for (const struct cond_guide *g = x->at[i].guide; g; g = g->before)
                n += g->frames;
            break;
        }
    return n;
}

/* The latent's mask [n, 1, frames, h, w] with `more` frames behind it; both sides may be 1. */
static berth_status mask_more(const struct latent *l, size_t more, float value,
                              struct htensor **out, berth_err *err)
{
    const struct htensor *m = l->noise_mask;
    char text[SHAPE_TEXT_MAX];
    const size_t n = m ? dim(m, 0) : dim(l->samples, 0), frames = dim(l->samples, 2);
    if (m && (m->shape.ndim != 5 || dim(m, 1) != 1 || dim(m, 2) != frames))
        return err_set(err, BERTH_EINVAL, "a noise mask %s for %zu latent frames",
                       shape_text(&m->shape, text), frames);
    const size_t h = m ? dim(m, 3) : 1, w = m ? dim(m, 4) : 1, had = frames * h * w;
    if (mask_new(n, frames + more, h, w, out, err))
        return err->code;
    for (size_t i = 0; i < n; i++) {
        float *to = (*out)->data + i * (frames + more) * h * w;
        if (m)
            memcpy(to, m->data + i * had, had * sizeof *to);
        for (size_t k = 0; k < more * h * w; k++)
            to[had + k] = value;
    }
    return BERTH_OK;
}

static berth_status latent_more(const struct htensor *t, const struct htensor *z, size_t from,
                                struct htensor **out, berth_err *err)
{
    struct shape s = t->shape;
    s.dim[2] += dim(z, 2) - from;
    if (htensor_new(&s, out, err))
        return err->code;
    const size_t each = (size_t)shape_inner(&t->shape, 2), all = (size_t)shape_inner(&s, 2);
    for (size_t i = 0; i < dim(t, 0) * dim(t, 1); i++)
        memcpy((*out)->data + i * all, t->data + i * each, each * sizeof *t->data);
    put_frames(*out, dim(t, 2), z, from);
    return BERTH_OK;
}

/* ---- how much places of a guide count ---- */

/* Frame f of the mask as cells: means over what lies in each. */
static void area_means(const struct htensor *m, size_t f, size_t h, size_t w, float *out)
{
    const size_t H = dim(m, 1), W = dim(m, 2);
    for (size_t y = 0; y < h; y++)
        for (size_t x = 0; x < w; x++) {
            const size_t y0 = y * H / h, y1 = ((y + 1) * H + h - 1) / h;
            const size_t x0 = x * W / w, x1 = ((x + 1) * W + w - 1) / w;
            double sum = 0;
            for (size_t i = y0; i < y1; i++)
                for (size_t k = x0; k < x1; k++)
                    sum += (double)m->data[(f * H + i) * W + k];
            out[y * w + x] = (float)(sum / (double)((y1 - y0) * (x1 - x0)));
        }
}

/* out += frame f of the mask, times by. */
static void add_means(const struct htensor *m, size_t f, size_t h, size_t w, float by, float *one,
                      float *out)
{
    area_means(m, f, h, w, one);
    for (size_t i = 0; i < h * w; i++)
        out[i] += one[i] * by;
}

/* The mask [frames, H, W] over latent frames: the first is the first's, the others share the rest
 * in equal groups. */
static berth_status weigh(const struct htensor *m, size_t frames, size_t h, size_t w,
                          struct htensor **out, berth_err *err)
{
    const struct shape s = { 3, { frames, h, w } };
    const size_t have = dim(m, 0), rest = have - 1;
    float *one = malloc(h * w * sizeof *one);
    if (!one || htensor_zeros(&s, out, err)) {
        free(one);
        return err_set(err, BERTH_ENOMEM, "a mask of %zu frames", frames);
    }
    for (size_t t = 0; t < frames; t++) {
        float *to = (*out)->data + t * h * w;
        const size_t group = frames > 1 ? rest / (frames - 1) : 0;
        if (!t || !rest)
            add_means(m, 0, h, w, 1, one, to);
        else if (!group)
            add_means(m, 1 + (t - 1) * rest / (frames - 1), h, w, 1, one, to);
        for (size_t k = 0; t && k < group; k++)
            add_means(m, 1 + (t - 1) * group + k, h, w, 1.0f / (float)group, one, to);
    }
    free(one);
    return BERTH_OK;
}

/* ---- LTXVAddGuide ---- */

struct adding { /* of a guide */
    const struct latent *latent;
    struct htensor *image;
    int64_t at; /* frame_idx, resolved */
    double strength;
    bool first;  /* its first latent frame stands for a single one */
    size_t keep; /* pictures of it, if it is at the beginning */
};

static berth_status read_adding(struct node_call *c, const struct pair *p, struct adding *a,
                                berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (in_latent(c, "latent", &a->latent, err) || in_image(c, "image", &a->image, err) ||
        in_i64(c, "frame_idx", &a->at, err) || in_f64(c, "strength", &a->strength, err))
        return err->code;
    if (in_given(c, "iclora_parameters"))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "guides for IC-LoRAs with a smaller grid cannot be made yet");
    const struct htensor *t = a->latent->samples;
    if (t->shape.ndim != 5 || dim(t, 1) != CHANNELS || a->latent->more[0].samples)
        return err_set(err, BERTH_EINVAL, "a latent %s is none of LTX-Video's",
                       shape_text(&t->shape, text));
    const uint64_t guided = guide_frames(p->at[0]), frames = t->shape.dim[2];
    if (guided >= frames)
        return err_set(err, BERTH_EINVAL, "guides of %" PRIu64 " of %" PRIu64 " latent frames",
                       guided, frames);
    a->keep = (dim(a->image, 0) - 1) / TIME * TIME + 1;
    if (a->at < 0) {
        const int64_t last = (int64_t)(frames - guided - 1) * TIME + 1;
        a->at = last + a->at > 0 ? last + a->at : 0;
    }
    a->first = a->at == 0 || a->keep == 1;
    return BERTH_OK;
}

/* The guide's latent, of as many pictures as fill latent frames. In the middle of a video the first
 * one is there twice, and its latent is dropped: else the guide's own first latent frame would
 * stand for one picture alone. *from: how many are dropped. */
static berth_status encode_guide(struct node_call *c, const struct adding *a, struct htensor **out,
                                 size_t *from, berth_err *err)
{
    const size_t h = dim(a->latent->samples, 3) * SIDE, w = dim(a->latent->samples, 4) * SIDE;
    const struct htensor *image = a->image;
    const size_t each = htensor_count(image) / dim(image, 0);
    struct shape s = image->shape;
    struct htensor *longer;
    *from = a->first ? 0 : 1;
    s.dim[0] += *from;
    if (htensor_new(&s, &longer, err))
        return err->code;
    memcpy(longer->data, image->data, each * sizeof *image->data);
    memcpy(longer->data + *from * each, image->data, htensor_count(image) * sizeof *image->data);
    berth_status st = encode_at(c, longer, w, h, out, err);
    htensor_unref(longer);
    if (!st && dim(*out, 2) <= *from)
        st = err_set(err, BERTH_EINVAL, "a guide of %zu pictures", dim(image, 0));
    return htensor_made(st, out);
}

static berth_status add_guide(struct node_call *c, const struct adding *a, struct pair *p,
                              struct latent *out, berth_err *err)
{
    struct htensor *z, *mask = NULL, *weight = NULL;
    size_t from;
    berth_status s = BERTH_OK;
    if ((in_given(c, "attention_mask") && in_mask(c, "attention_mask", &mask, err)) ||
        encode_guide(c, a, &z, &from, err))
        return err->code;
    const struct htensor *t = a->latent->samples;
    const size_t frames = dim(z, 2) - from;
    int64_t at = a->at;
    if (a->keep > 1 && at != 0)
        at = (at - 1) / TIME * TIME + 1;
    if ((uint64_t)(at + TIME - 1) / TIME + frames > t->shape.dim[2])
        s = err_set(err, BERTH_EINVAL,
                    "a guide of %zu latent frames at frame %" PRId64 " goes beyond the %zu of the "
                    "video",
                    frames, at, dim(t, 2));
    if (!s && mask)
        s = weigh(mask, frames, dim(t, 3), dim(t, 4), &weight, err);
    const struct cond_guide g = { .frames = frames,
                                  .rows = t->shape.dim[3],
                                  .columns = t->shape.dim[4],
                                  .at = at,
                                  .first = a->first,
                                  .spread = 1,
                                  .strength = a->strength,
                                  .weight = weight };
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < p->at[k]->n && !s; i++)
            s = cond_guide_add(&p->at[k]->at[i].guide, g, err);
    if (!s)
        s = latent_more(t, z, from, &out->samples, err);
    if (!s)
        s = mask_more(a->latent, frames, (float)fmax(0, 1.0 - a->strength), &out->noise_mask, err);
    htensor_unref(weight);
    htensor_unref(z);
    return s;
}

static berth_status run_add_guide(struct node_call *c, berth_err *err)
{
    struct latent l = { 0 };
    struct adding a = { 0 };
    struct pair p;
    if (in_pair(c, &p, err))
        return err->code;
    berth_status s = read_adding(c, &p, &a, err);
    if (!s)
        s = add_guide(c, &a, &p, &l, err);
    return give_pair(c, s, &p, &l, err);
}

NODE_CLASS(LTXVAddGuide, .category = "conditioning/video_models", V3("lt"),
           INS(PAIR_IN, SOCKET("vae", "VAE"), SOCKET("latent", "LATENT"), SOCKET("image", "IMAGE"),
               INT_IN("frame_idx", 0, -9999, 9999, 0), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
               OPTIONAL("attention_mask", "MASK"),
               OPTIONAL("iclora_parameters", "IC_LORA_PARAMETERS")),
           OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }), .run = run_add_guide);

/* ---- LTXVCropGuides ---- */

/* The first frames of [n, c, t, h, w]. */
static berth_status first_frames(const struct htensor *t, size_t frames, struct htensor **out,
                                 berth_err *err)
{
    struct shape s = t->shape;
    const size_t each = (size_t)shape_inner(&t->shape, 2), plane = each / dim(t, 2);
    s.dim[2] = frames;
    if (htensor_new(&s, out, err))
        return err->code;
    for (size_t i = 0; i < dim(t, 0) * dim(t, 1); i++)
        memcpy((*out)->data + i * frames * plane, t->data + i * each,
               frames * plane * sizeof *t->data);
    return BERTH_OK;
}

static berth_status crop(const struct latent *in, struct pair *p, struct latent *out,
                         berth_err *err)
{
    const struct htensor *t = in->samples;
    const uint64_t guided = guide_frames(p->at[0]);
    struct htensor *mask;
    char text[SHAPE_TEXT_MAX];
    if (t->shape.ndim != 5 || guided >= t->shape.dim[2])
        return err_set(err, BERTH_EINVAL, "%" PRIu64 " latent frames of guides in a latent %s",
                       guided, shape_text(&t->shape, text));
    const size_t keep = dim(t, 2) - (size_t)guided;
    if (mask_more(in, 0, 1, &mask, err))
        return err->code;
    berth_status s = first_frames(t, keep, &out->samples, err);
    if (!s)
        s = first_frames(mask, keep, &out->noise_mask, err);
    htensor_unref(mask);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < p->at[k]->n && !s; i++)
            cond_guides_drop(&p->at[k]->at[i].guide);
    return s;
}

static berth_status run_crop(struct node_call *c, berth_err *err)
{
    const struct latent *in;
    struct latent l = { 0 };
    struct pair p;
    if (in_latent(c, "latent", &in, err) || in_pair(c, &p, err))
        return err->code;
    return give_pair(c, crop(in, &p, &l, err), &p, &l, err);
}

NODE_CLASS(LTXVCropGuides, .category = "conditioning/video_models", V3("lt"),
           INS(PAIR_IN, SOCKET("latent", "LATENT")),
           OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }), .run = run_crop);
