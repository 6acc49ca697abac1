/* model_patch: networks that steer a diffusion model by a picture, and what they are given to look
 * at (z-image.md 8).
 *
 * The picture becomes a latent when a sampler knows the size, so nodes only note what is wanted;
 * steer_hints() encodes it before the diffusion model is loaded, steer() opens the networks beside
 * it. */
#include "node/compute.h"
#include "op/resize.h"

#include <math.h>
#include <string.h>

#define GREY 0.5f /* where there is no picture */

/* ---- nodes ---- */

/* An optional tensor, as a reference; NULL: not given. */
static berth_status in_optional(const struct node_call *c, const char *name, bool mask,
                                struct htensor **out, berth_err *err)
{
    struct htensor *t = NULL;
    *out = NULL;
    if (!in_given(c, name))
        return BERTH_OK;
    berth_status s = mask ? in_mask(c, name, &t, err) : in_image(c, name, &t, err);
    if (!s)
        *out = htensor_ref(t);
    return s;
}

/* What it looks at must be one picture: how several would be shared out over a batch is not
 * defined. */
static berth_status check_pictures(const struct model_control *k, berth_err *err)
{
    const struct htensor *const all[] = { k->image, k->inpaint, k->mask };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i] && dim(all[i], 0) != 1)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "%zu pictures for a control network; it takes one", dim(all[i], 0));
    return k->image || k->inpaint
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL, "a control network wants a picture to look at");
}

/* From here on 1 is what stays of a picture. */
static berth_status invert(struct htensor **mask, berth_err *err)
{
    struct htensor *t;
    if (htensor_copy(*mask, &t, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = 1.0f - t->data[i];
    htensor_unref(*mask);
    *mask = t;
    return BERTH_OK;
}

static berth_status fill_control(struct node_call *c, bool inpaints, struct model_control *k,
                                 berth_err *err)
{
    uint64_t channels;
    if (in_f64(c, "strength", &k->strength, err) ||
        in_optional(c, "image", false, &k->image, err) ||
        (inpaints && in_optional(c, "inpaint_image", false, &k->inpaint, err)) ||
        in_optional(c, "mask", true, &k->mask, err) || check_pictures(k, err) ||
        in_model_copy(c, "model_patch", &k->net, err) || in_model_copy(c, "vae", &k->vae, err))
        return err->code;
    if (k->mask && invert(&k->mask, err))
        return err->code;
    if (!k->net.parts)
        return err_set(err, BERTH_EINVAL, "a model patch without weights");
    struct res_model *m = k->net.part[0];
    return diffusion_control_channels(res_weights(m), res_info(m).part, &channels, err);
}

static berth_status give_control(struct node_call *c, bool inpaints, berth_err *err)
{
    struct model_ref m;
    struct model_control *k = model_control_new();
    berth_status s =
        k ? fill_control(c, inpaints, k, err) : err_set(err, BERTH_ENOMEM, "a control network");
    if (!s)
        s = in_model_copy(c, "model", &m, err);
    if (s) {
        model_control_unref(k);
        return s;
    }
    k->before = m.control;
    m.control = k;
    return out_value(c, 0, value_model(&m), err);
}

static berth_status run_diffsynth(struct node_call *c, berth_err *err)
{
    return give_control(c, false, err);
}

static berth_status run_fun(struct node_call *c, berth_err *err)
{
    return give_control(c, true, err);
}

#define STRENGTH_IN FLOAT_IN("strength", 1.0, -10.0, 10.0, 0.01)

NODE_CLASS(QwenImageDiffsynthControlnet, .category = "advanced/loaders/qwen",
           .module = MOD("model_patch"), .flags = NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), SOCKET("model_patch", "MODEL_PATCH"), SOCKET("vae", "VAE"),
               SOCKET("image", "IMAGE"), STRENGTH_IN, OPTIONAL("mask", "MASK")),
           OUT_OF("MODEL"), .run = run_diffsynth);

NODE_CLASS(ZImageFunControlnet, .display = "Apply Z-Image Fun ControlNet",
           .category = "model/patch/z-image", .module = MOD("model_patch"),
           .flags = NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), SOCKET("model_patch", "MODEL_PATCH"), SOCKET("vae", "VAE"),
               STRENGTH_IN, OPTIONAL("image", "IMAGE"), OPTIONAL("inpaint_image", "IMAGE"),
               OPTIONAL("mask", "MASK")),
           OUT_OF("MODEL"), .run = run_fun);

/* ---- what they look at ---- */

struct sight { /* of one network */
    struct node_call *c;
    const struct model_control *k;
    const struct latent_format *format;
    size_t w, h;     /* of latents */
    size_t channels; /* of a latent */
};

/* A picture of w x h pixels: `from` cut and scaled, or grey. */
static berth_status sized(const struct sight *s, const struct htensor *from, struct htensor **out,
                          berth_err *err)
{
    const size_t w = s->w * s->format->ratio, h = s->h * s->format->ratio;
    const struct shape grey = { 4, { 1, h, w, 3 } };
    if (from && dim(from, 2) == w && dim(from, 1) == h)
        return htensor_copy(from, out, err);
    if (from)
        return scale_image(s->c, from, w, h, "area", true, out, err);
    if (htensor_new(&grey, out, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(*out); i++)
        (*out)->data[i] = GREY;
    return BERTH_OK;
}

/* What the mask leaves of a picture; the rest is grey. */
static berth_status masked(const struct sight *s, struct htensor *t, berth_err *err)
{
    struct htensor *m;
    const size_t channels = dim(t, 3);
    if (!s->k->mask)
        return BERTH_OK;
    if (scale_planes(s->c, s->k->mask, dim(t, 2), dim(t, 1), "bilinear", true, &m, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (t->data[i] - GREY) * rintf(m->data[i / channels]) + GREY;
    htensor_unref(m);
    return BERTH_OK;
}

/* A picture's latent in the model's scale, to `out`. */
static berth_status look(const struct sight *s, const struct htensor *from, bool leave, float *out,
                         berth_err *err)
{
    struct htensor *t = NULL, *z = NULL;
    berth_status st = sized(s, from, &t, err);
    if (!st && leave)
        st = masked(s, t, err);
    if (!st)
        st = encode_picture(s->c, &s->k->vae, t, &z, err);
    const struct shape still = { 4, { 1, s->channels, s->h, s->w } };
    const struct shape frame = { 5, { 1, s->channels, 1, s->h, s->w } };
    const struct shape want = s->format->rank == 3 ? frame : still;
    char text[SHAPE_TEXT_MAX];
    if (!st && !shape_eq(&z->shape, &want))
        st = err_set(err, BERTH_EINVAL, "this VAE's latents are %s, not the model's",
                     shape_text(&z->shape, text));
    if (!st) {
        memcpy(out, z->data, htensor_count(z) * sizeof *out);
        latent_in(s->format, out, &want);
    }
    htensor_unref(t);
    htensor_unref(z);
    return st;
}

/* The pixel that pixel i of `to` is taken from, as torch's "nearest" has it. */
static size_t nearest(size_t i, size_t from, size_t to)
{
    size_t at = (size_t)floorf((float)i * ((float)from / (float)to));
    return at < from ? at : from - 1;
}

/* The mask at a latent's pixels, cut to its aspect; zeros without one. */
static void look_at_mask(const struct sight *s, float *out)
{
    const struct htensor *m = s->k->mask;
    memset(out, 0, s->w * s->h * sizeof *out);
    if (!m)
        return;
    const struct resize_crop r = resize_center(dim(m, 2), dim(m, 1), s->w, s->h);
    for (size_t i = 0; i < s->w * s->h; i++) {
        size_t y = r.y + nearest(i / s->w, r.h, s->h), x = r.x + nearest(i % s->w, r.w, s->w);
        out[i] = m->data[y * dim(m, 2) + x];
    }
}

/* The mask stretched to the latent's sides, as DiffSynth's look at it; ones without one. */
static berth_status stretch_mask(const struct sight *s, float *out, berth_err *err)
{
    struct htensor *m = NULL;
    if (s->k->mask && scale_planes(s->c, s->k->mask, s->w, s->h, "bilinear", false, &m, err))
        return err->code;
    for (size_t i = 0; i < s->w * s->h; i++)
        out[i] = m ? m->data[i] : 1.0f;
    htensor_unref(m);
    return BERTH_OK;
}

static size_t controls_of(const struct model_ref *ref)
{
    size_t n = 0;
    for (const struct model_control *k = ref->control; k; k = k->before)
        n++;
    return n;
}

static berth_status hint_of(const struct sight *s, float **out, struct arena *mem, berth_err *err)
{
    struct res_model *m = s->k->net.part[0];
    const size_t each = s->w * s->h;
    uint64_t channels;
    if (diffusion_control_channels(res_weights(m), res_info(m).part, &channels, err))
        return err->code;
    if (channels != s->channels && channels != s->channels + 1 && channels != 2 * s->channels + 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control network over %llu channels, which are neither a latent, nor one "
                       "with a mask, nor what Fun-Control paints into",
                       (unsigned long long)channels);
    float *x = *out = arena_array(mem, (size_t)channels, each * sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a control network's picture");
    if (look(s, s->k->image, false, x, err))
        return err->code;
    if (channels == s->channels)
        return BERTH_OK;
    x += s->channels * each;
    if (channels == s->channels + 1)
        return stretch_mask(s, x, err);
    look_at_mask(s, x);
    return look(s, s->k->inpaint, true, x + each, err);
}

berth_status steer_hints(struct node_call *c, const struct model_ref *ref,
                         const struct diffusion_info *info, const struct shape *latents,
                         struct arena *mem, struct steering *out, berth_err *err)
{
    const uint64_t h = shape_last(latents, 2), w = shape_last(latents, 1);
    *out = (struct steering) { .n = controls_of(ref) };
    if (out->n > STEERING_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu control networks; at most %d are taken", out->n,
                       STEERING_MAX);
    struct sight s = { .c = c,
                       .format = &info->latent,
                       .w = (size_t)(w + w % 2),
                       .h = (size_t)(h + h % 2),
                       .channels = info->latent.channels };
    s.k = ref->control;
    for (size_t i = out->n; i-- > 0; s.k = s.k->before) {
        float *hint = NULL;
        if (hint_of(&s, &hint, mem, err))
            return err->code;
        out->at[i] = (struct diffusion_control) { .m = s.k->net.part[0],
                                                  .part = res_info(s.k->net.part[0]).part,
                                                  .hint = hint,
                                                  .h = s.h,
                                                  .w = s.w,
                                                  .strength = (float)s.k->strength };
        out->net[i] = &s.k->net;
    }
    return BERTH_OK;
}

/* Does one before it have the same network? That is in use then, and needs no loading. */
static bool is_open(const struct steering *s, size_t i)
{
    size_t k = 0;
    while (k < i && s->at[k].m != s->at[i].m)
        k++;
    return k < i;
}

berth_status steer(struct node_call *c, const struct steering *s, struct diffusion *d,
                   berth_err *err)
{
    for (size_t i = 0; i < s->n; i++)
        if ((!is_open(s, i) && ready_load(c, s->net[i], 0, err)) ||
            diffusion_add_control(d, &s->at[i], err))
            return err->code;
    return BERTH_OK;
}
