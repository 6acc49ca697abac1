/* sample_video: what conditionings say of videos, as networks want it: latents and masks beside the
 * one that is made, and what else a prompt brings along. */
#include "node/compute.h"

#include <string.h>

#define MASK_CHANNELS 4 /* one for each frame that a latent frame stands for */

/* Of a tensor [n, channels, t, h, w], item i of a batch. */
struct planes {
    size_t n, channels, frames;
    const float *x;
};

static const float *plane_of(const struct planes *p, size_t item, size_t channel, size_t frame,
                             size_t hw)
{
    return p->x + ((item * p->channels + channel) * p->frames + frame) * hw;
}

static float *take(const struct cond_scene *scene, size_t n, berth_err *err)
{
    float *p = arena_array(scene->mem, n, sizeof *p);
    if (!p)
        err_set(err, BERTH_ENOMEM, "%zu values beside a video", n);
    return p;
}

/* t [n, c, t, h, w] in the sides of the latent: bilinear, cut to its aspect. */
static berth_status sized(struct node_call *c, const struct htensor *t,
                          const struct cond_scene *scene, struct planes *out, berth_err *err)
{
    const size_t h = (size_t)shape_last(&scene->shape, 2), w = (size_t)shape_last(&scene->shape, 1);
    char text[SHAPE_TEXT_MAX];
    struct htensor *to = NULL;
    if (t->shape.ndim != 5 || !htensor_count(t))
        return err_set(err, BERTH_EINVAL, "a tensor %s beside a video: [n, channels, t, h, w] is",
                       shape_text(&t->shape, text));
    float *p = take(scene, htensor_count(t) / (dim(t, 3) * dim(t, 4)) * h * w, err);
    if (!p || scale_planes(c, t, w, h, "bilinear", true, &to, err))
        return err->code;
    memcpy(p, to->data, htensor_count(to) * sizeof *p);
    htensor_unref(to);
    *out = (struct planes) { .n = dim(t, 0), .channels = dim(t, 1), .frames = dim(t, 2), .x = p };
    return BERTH_OK;
}

/* Latents in the model's scale, of one after the other where there are several. */
static berth_status latents(struct node_call *c, const struct htensor *t,
                            const struct cond_scene *scene, struct planes *out, berth_err *err)
{
    const struct latent_format *f = &scene->info->latent;
    char text[SHAPE_TEXT_MAX];
    if (sized(c, t, scene, out, err))
        return err->code;
    if (out->channels % f->channels || out->frames != scene->shape.dim[2])
        return err_set(err, BERTH_EINVAL,
                       "a latent %s beside one of %llu frames; %s has latents of %u channels",
                       shape_text(&t->shape, text), (unsigned long long)scene->shape.dim[2],
                       scene->info->family, f->channels);
    const struct shape each = { 5,
                                { out->n * (out->channels / f->channels), f->channels, out->frames,
                                  scene->shape.dim[3], scene->shape.dim[4] } };
    latent_in(f, (float *)(uintptr_t)out->x, &each);
    return BERTH_OK;
}

/* The mask's planes: what is said with the latents, else the noise mask. channels 0: neither. */
static berth_status mask(struct node_call *c, const struct cond_entry *e,
                         const struct cond_scene *scene, struct planes *out, berth_err *err)
{
    const struct shape *s = &scene->shape;
    *out = (struct planes) { .n = 1 };
    if (e->concat_mask)
        return sized(c, e->concat_mask, scene, out, err);
    if (scene->mask)
        *out = (struct planes) { .n = (size_t)s->dim[0],
                                 .channels = (size_t)s->dim[1],
                                 .frames = (size_t)s->dim[2],
                                 .x = scene->mask };
    return BERTH_OK;
}

/* Channel k of an item's mask at a frame: 1 is what is known. Fewer than four channels are one,
 * their mean; frames that nothing is said of are to be made. */
static void fill_mask(const struct planes *m, size_t item, size_t k, size_t frame, size_t hw,
                      float *out)
{
    const bool own = m->channels == MASK_CHANNELS;
    memset(out, 0, hw * sizeof *out);
    if (!m->channels || frame >= m->frames)
        return;
    for (size_t c = own ? k : 0; c < (own ? k + 1 : m->channels); c++) {
        const float *from = plane_of(m, item, c, frame, hw);
        for (size_t i = 0; i < hw; i++)
            out[i] += from[i];
    }
    for (size_t i = 0; i < hw; i++)
        out[i] = 1.0f - (own ? out[i] : out[i] / (float)m->channels);
}

/* ComfyUI's rules (wan-variants.md 2): which of both there is follows from how many channels the
 * network has beside the latent. */
berth_status video_concat(struct node_call *c, const struct cond_entry *e,
                          const struct cond_scene *scene, const float **out, berth_err *err)
{
    const struct diffusion_info *info = scene->info;
    const struct shape *s = &scene->shape;
    const size_t extra = (size_t)(info->in_channels - s->dim[1]), b = (size_t)s->dim[0];
    const size_t frames = (size_t)s->dim[2], hw = (size_t)shape_inner(s, 3);
    struct planes image, m = { .n = 1 };
    if (!e->concat_latent)
        return BERTH_OK;
    if (latents(c, e->concat_latent, scene, &image, err))
        return err->code;
    bool masked =
        extra == image.channels + MASK_CHANNELS || (info->video_masked && extra != image.channels);
    size_t channels = image.channels;
    if (masked && extra >= MASK_CHANNELS && channels > extra - MASK_CHANNELS)
        channels = extra - MASK_CHANNELS;
    if (channels + (masked ? MASK_CHANNELS : 0) != extra)
        return err_set(err, BERTH_EINVAL,
                       "latents of %zu channels beside the one that is made; %s takes %zu",
                       image.channels, info->family, extra);
    if (masked && mask(c, e, scene, &m, err))
        return err->code;
    const size_t first = e->concat_mask_index < channels ? e->concat_mask_index : channels;
    float *p = take(scene, b * extra * frames * hw, err);
    *out = p;
    for (size_t i = 0; p && i < b; i++)
        for (size_t k = 0; k < extra; k++)
            for (size_t f = 0; f < frames; f++, p += hw) {
                const size_t behind = masked ? MASK_CHANNELS : 0;
                if (masked && k >= first && k < first + MASK_CHANNELS)
                    fill_mask(&m, cond_spread(i, m.n, b), k - first, f, hw, p);
                else
                    memcpy(p,
                           plane_of(&image, cond_spread(i, image.n, b), k < first ? k : k - behind,
                                    f, hw),
                           hw * sizeof *p);
            }
    return *out ? BERTH_OK : err->code;
}

/* ---- what else a prompt brings along ---- */

static const struct {
    const char *what;
    bool latent; /* in the VAE's scale */
} kinds[EXTRA_KINDS] = {
    [EXTRA_SEEN] = { "what CLIP vision saw", false },
    [EXTRA_SUBJECTS] = { "subjects", true },
    [EXTRA_CAMERA] = { "a camera", false },
    [EXTRA_VACE] = { "videos to follow", false }, /* those are a list of their own */
};

static void left_out(struct node_call *c, const struct cond_scene *scene,
                     enum diffusion_extra_kind kind) /* as in ComfyUI; here it is said */
{
    log_warn(c->env->log, "node.conditioning", "node=%s why=\"%s takes nothing of %s: left out\"",
             c->id, scene->info->family, kinds[kind].what);
}

static bool takes(const struct cond_scene *scene, enum diffusion_extra_kind kind)
{
    return scene->info->extras >> kind & 1;
}

/* Latents in the model's scale, and behind their channels the mask's. */
static berth_status follow(const struct cond_vace *v, const struct cond_scene *scene,
                           struct diffusion_extra *out, berth_err *err)
{
    const struct latent_format *f = &scene->info->latent;
    const struct shape *s = &v->frames->shape;
    struct shape each = *s, made = *s;
    const size_t n = htensor_count(v->frames), m = htensor_count(v->mask);
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    made.dim[1] += v->mask->shape.dim[1];
    each.dim[0] *= each.dim[1] / f->channels;
    each.dim[1] = f->channels;
    if (s->ndim != 5 || s->dim[0] != 1 || s->dim[1] % f->channels || v->mask->shape.ndim != 5 ||
        shape_inner(&v->mask->shape, 2) != shape_inner(s, 2))
        return err_set(err, BERTH_EINVAL, "videos to follow %s with masks %s", shape_text(s, a),
                       shape_text(&v->mask->shape, b));
    float *x = take(scene, n + m, err);
    if (!x)
        return err->code;
    memcpy(x, v->frames->data, n * sizeof *x);
    latent_in(f, x, &each);
    memcpy(x + n, v->mask->data, m * sizeof *x);
    *out = (struct diffusion_extra) {
        .kind = EXTRA_VACE, .shape = made, .x = x, .strength = (float)v->strength
    };
    return BERTH_OK;
}

/* First to last. */
static berth_status follow_all(struct node_call *c, const struct cond_entry *e,
                               const struct cond_scene *scene, struct diffusion_extra *list,
                               size_t n, berth_err *err)
{
    if (n && !takes(scene, EXTRA_VACE))
        left_out(c, scene, EXTRA_VACE);
    for (const struct cond_vace *v = e->vace; takes(scene, EXTRA_VACE) && v; v = v->before)
        if (follow(v, scene, &list[--n], err))
            return err->code;
    return BERTH_OK;
}

berth_status video_extras(struct node_call *c, const struct cond_entry *e,
                          const struct cond_scene *scene, struct diffusion_cond *to, berth_err *err)
{
    size_t n = 0;
    for (const struct cond_vace *v = e->vace; v; v = v->before)
        n++;
    struct diffusion_extra *list = arena_array(scene->mem, EXTRA_KINDS + n, sizeof *list);
    if (!list)
        return err_set(err, BERTH_ENOMEM, "what a prompt brings along");
    if (follow_all(c, e, scene, list, n, err))
        return err->code;
    to->extra = list;
    to->extras = takes(scene, EXTRA_VACE) ? n : 0;
    for (enum diffusion_extra_kind i = 0; i < EXTRA_KINDS; i++) {
        const struct htensor *t = e->extra[i];
        if (!t)
            continue;
        if (!takes(scene, i)) {
            left_out(c, scene, i);
            continue;
        }
        float *own = kinds[i].latent ? take(scene, htensor_count(t), err) : NULL;
        if (kinds[i].latent && !own)
            return err->code;
        if (own) {
            memcpy(own, t->data, htensor_count(t) * sizeof *own);
            latent_in(&scene->info->latent, own, &t->shape);
        }
        list[to->extras++] = (struct diffusion_extra) {
            .kind = i, .shape = t->shape, .x = own ? own : t->data, .strength = 1
        };
    }
    return BERTH_OK;
}
