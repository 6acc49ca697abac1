#include "node/video_cond.h"

#include <string.h>

berth_status in_video_size(const struct node_call *c, size_t ratio, struct video_size *out,
                           berth_err *err)
{
    uint64_t w, h, frames, batch;
    if (in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_u64(c, "length", &frames, err) || in_u64(c, "batch_size", &batch, err))
        return err->code;
    if (w / ratio == 0 || h / ratio == 0 || !frames || !batch || w > SIDE_MAX || h > SIDE_MAX ||
        frames > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a video of %llux%llu, %llu frames",
                       (unsigned long long)w, (unsigned long long)h, (unsigned long long)frames);
    *out = (struct video_size) { .w = (size_t)w,
                                 .h = (size_t)h,
                                 .frames = (size_t)frames,
                                 .t = (size_t)(frames - 1) / VIDEO_EVERY + 1,
                                 .batch = (size_t)batch };
    return BERTH_OK;
}

/* ---- frames ---- */

berth_status in_frames(struct node_call *c, const char *input, const struct video_size *z,
                       size_t most, enum frames_end end, struct htensor **out, berth_err *err)
{
    struct htensor *image, *some;
    *out = NULL;
    if (!in_given(c, input))
        return BERTH_OK;
    if (in_image(c, input, &image, err))
        return err->code;
    const size_t n = dim(image, 0), take = n < most ? n : most;
    if (dim(image, 3) < 3)
        return err_set(err, BERTH_EINVAL, "pictures of %zu channels; a VAE encodes 3",
                       dim(image, 3));
    if (tensor_slice(image, end == FRAMES_FIRST ? 0 : n - take, take, &some, err))
        return err->code;
    berth_status s = scale_image(c, some, z->w, z->h, "bilinear", true, out, err);
    htensor_unref(some);
    return s;
}

berth_status canvas_new(const struct video_size *z, struct htensor **out, berth_err *err)
{
    if (image_tensor(z->frames, z->h, z->w, 3, out, err))
        return err->code;
    for (size_t i = 0, n = htensor_count(*out); i < n; i++)
        (*out)->data[i] = 0.5f;
    return BERTH_OK;
}

void canvas_put(struct htensor *canvas, const struct htensor *frames, size_t at)
{
    const size_t each = dim(canvas, 1) * dim(canvas, 2), c = dim(frames, 3);
    float *to = canvas->data + at * each * 3;
    for (size_t i = 0, n = dim(frames, 0) * each; i < n; i++)
        memcpy(to + 3 * i, frames->data + c * i, 3 * sizeof *to);
}

berth_status in_vae_net(struct node_call *c, struct vae_net *out, berth_err *err)
{
    const struct model_ref *vae;
    char root[ARCH_ROOT_MAX];
    if (in_model(c, "vae", &vae, err))
        return err->code;
    if (!vae->parts || vae->said.no_network)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.80s' is no VAE of video", ready_name(vae));
    return vae_find(res_weights(vae->part[0]), res_info(vae->part[0]).part, root, out, err);
}

berth_status video_encode(struct node_call *c, const struct htensor *frames, struct htensor **out,
                          berth_err *err)
{
    const struct model_ref *vae;
    char text[SHAPE_TEXT_MAX];
    *out = NULL;
    if (in_model(c, "vae", &vae, err) || encode_picture(c, vae, frames, out, err))
        return err->code;
    if ((*out)->shape.ndim == 5)
        return BERTH_OK;
    err_set(err, BERTH_EINVAL, "the VAE is none of video: it gives latents %s",
            shape_text(&(*out)->shape, text));
    htensor_unref(*out);
    *out = NULL;
    return err->code;
}

/* ---- latents ---- */

berth_status video_nothing(const struct latent_format *f, const struct shape *s,
                           struct htensor **out, berth_err *err)
{
    struct shape each = *s;
    if (htensor_zeros(s, out, err))
        return err->code;
    each.dim[0] *= each.dim[1] / f->channels;
    each.dim[1] = f->channels;
    latent_out(f, (*out)->data, &each);
    return BERTH_OK;
}

void video_put(struct htensor *t, const struct htensor *from, size_t channel, size_t frame)
{
    const size_t hw = dim(t, 3) * dim(t, 4), room = dim(t, 2) - frame;
    const size_t n = dim(from, 2) < room ? dim(from, 2) : room;
    for (size_t b = 0; b < dim(t, 0); b++)
        for (size_t k = 0; k < dim(from, 1); k++)
            memcpy(t->data + ((b * dim(t, 1) + channel + k) * dim(t, 2) + frame) * hw,
                   from->data + k * dim(from, 2) * hw, n * hw * sizeof(float));
}

berth_status video_mask4(size_t t, size_t h, size_t w, size_t known, size_t end,
                         struct htensor **out, berth_err *err)
{
    const struct shape s = { 5, { 1, VIDEO_EVERY, t, h, w } };
    const size_t all = VIDEO_EVERY * t;
    if (htensor_zeros(&s, out, err))
        return err->code;
    for (size_t i = known; i + end < all; i++) {
        float *at = (*out)->data + (i % VIDEO_EVERY * t + i / VIDEO_EVERY) * h * w;
        for (size_t k = 0; k < h * w; k++)
            at[k] = 1.0f;
    }
    return BERTH_OK;
}

/* ---- prompts ---- */

static void put(struct htensor **at, struct htensor *t)
{
    if (!t)
        return;
    htensor_unref(*at);
    *at = htensor_ref(t);
}

static berth_status say(struct cond_entry *e, const struct video_said *s, berth_err *err)
{
    if (s->mask_index)
        e->concat_mask_index = s->mask_index;
    put(&e->concat_latent, s->latent);
    put(&e->concat_mask, s->mask);
    for (size_t i = 0; i < EXTRA_KINDS; i++)
        put(&e->extra[i], s->extra[i]);
    if (s->vace && cond_vace_add(&e->vace, *s->vace, err))
        return err->code;
    return s->ref ? cond_ref_add(&e->ref, s->ref, err) : BERTH_OK;
}

berth_status video_say(struct node_call *c, const char *input, size_t i, const struct video_said *s,
                       berth_err *err)
{
    const struct conditioning *in;
    struct conditioning *x;
    berth_status bad = BERTH_OK;
    if (in_conditioning(c, input, &in, err) || conditioning_copy(in, &x, err))
        return err->code;
    for (size_t k = 0; k < x->n && !bad; k++)
        bad = say(&x->at[k], s, err);
    if (!bad)
        return out_conditioning(c, i, x, err);
    conditioning_free(x);
    return bad;
}

berth_status video_set(struct node_call *c, const struct video_said *s, berth_err *err)
{
    berth_status bad = video_say(c, "positive", 0, s, err);
    return bad ? bad : video_say(c, "negative", 1, s, err);
}

berth_status video_empty(struct node_call *c, size_t i, const struct shape *s, berth_err *err)
{
    struct latent l = { 0 };
    return htensor_zeros(s, &l.samples, err) ? err->code : out_value(c, i, value_latent(&l), err);
}

berth_status in_seen(struct node_call *c, const char *input, struct htensor **out, berth_err *err)
{
    const struct vision_output *seen;
    *out = NULL;
    if (!in_given(c, input))
        return BERTH_OK;
    if (in_vision_output(c, input, &seen, err))
        return err->code;
    *out = htensor_ref(seen->penultimate);
    return BERTH_OK;
}
