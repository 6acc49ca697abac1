/* wan.c: nodes that tell Wan of pictures: where a video starts, where it ends, what it follows
 * (video-nodes.md 1). */
#include "node/video_cond.h"

#include <string.h>

#define LATENT_OUT                                                                                 \
    {                                                                                              \
        .type = "LATENT", .name = "latent"                                                         \
    }
#define PAIR_AND_LATENT OUTS(PAIR_OUT, LATENT_OUT)
#define VIDEO_SIZE_IN SIZE_IN(832, 480, 16, 16), INT_IN("length", 81, 1, MAX_SIDE, 4), BATCH_IN
#define VIDEO_IN PAIR_IN, SOCKET("vae", "VAE"), VIDEO_SIZE_IN

/* Of Wan 2.1, whatever the VAE. */
static struct shape latent_of(const struct video_size *z)
{
    return (struct shape) {
        5, { z->batch, latent_wan21.channels, z->t, z->h / USUAL_RATIO, z->w / USUAL_RATIO }
    };
}

/* ---- image to video ---- */

/* What the first frames are, encoded, and a mask that is 0 there. Neither where none is given. */
static berth_status start_of(struct node_call *c, const struct video_size *z,
                             struct video_said *out, berth_err *err)
{
    struct htensor *start, *canvas;
    if (in_frames(c, "start_image", z, z->frames, FRAMES_FIRST, &start, err) || !start)
        return err->code;
    const size_t known = (dim(start, 0) - 1) / VIDEO_EVERY + 1;
    berth_status s = canvas_new(z, &canvas, err);
    if (!s)
        canvas_put(canvas, start, 0);
    htensor_unref(start);
    if (s)
        return s;
    s = video_encode(c, canvas, &out->latent, err);
    htensor_unref(canvas);
    if (s)
        return s;
    const size_t hw = dim(out->latent, 3) * dim(out->latent, 4);
    const struct shape shape = { 5, { 1, 1, z->t, dim(out->latent, 3), dim(out->latent, 4) } };
    if (htensor_zeros(&shape, &out->mask, err))
        return err->code;
    for (size_t i = known * hw; i < z->t * hw; i++)
        out->mask->data[i] = 1.0f;
    return BERTH_OK;
}

static void said_release(struct video_said *s)
{
    htensor_unref(s->latent);
    htensor_unref(s->mask);
    htensor_unref(s->ref);
    for (size_t i = 0; i < EXTRA_KINDS; i++)
        htensor_unref(s->extra[i]);
    *s = (struct video_said) { .latent = NULL };
}

/* The prompts with that, and an empty latent; releases *s. bad: how its making ended. */
static berth_status give(struct node_call *c, berth_status bad, struct video_said *s,
                         const struct shape *latent, berth_err *err)
{
    if (!bad)
        bad = video_set(c, s, err);
    if (!bad)
        bad = video_empty(c, 2, latent, err);
    said_release(s);
    return bad;
}

static berth_status image_to_video(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct video_said s = { .latent = NULL };
    if (in_video_size(c, USUAL_RATIO, &z, err))
        return err->code;
    const struct shape latent = latent_of(&z);
    berth_status bad = in_seen(c, "clip_vision_output", &s.extra[EXTRA_SEEN], err);
    if (!bad)
        bad = start_of(c, &z, &s, err);
    return give(c, bad, &s, &latent, err);
}

NODE_CLASS(WanImageToVideo, .category = "conditioning/video_models", V3("wan"),
           INS(VIDEO_IN, OPTIONAL("clip_vision_output", "CLIP_VISION_OUTPUT"),
               OPTIONAL("start_image", "IMAGE")),
           PAIR_AND_LATENT, .run = image_to_video);

/* ---- first and last frames ---- */

/* What was seen of two pictures, one behind the other; either may be missing. */
static berth_status both_seen(struct node_call *c, const char *first, const char *last,
                              struct htensor **out, berth_err *err)
{
    struct htensor *a = NULL, *b = NULL;
    char one[SHAPE_TEXT_MAX], two[SHAPE_TEXT_MAX];
    if (in_seen(c, first, &a, err) || (last && in_seen(c, last, &b, err)))
        goto out;
    if (!a || !b) {
        *out = a ? a : b;
        return BERTH_OK;
    }
    if (dim(a, 2) != dim(b, 2) || dim(a, 0) != dim(b, 0)) {
        err_set(err, BERTH_EINVAL, "pictures seen as %s and %s do not go together",
                shape_text(&a->shape, one), shape_text(&b->shape, two));
        goto out;
    }
    const struct shape s = { 3, { dim(a, 0), dim(a, 1) + dim(b, 1), dim(a, 2) } };
    const size_t n = dim(a, 1) * dim(a, 2), m = dim(b, 1) * dim(b, 2);
    if (htensor_new(&s, out, err))
        goto out;
    for (size_t i = 0; i < dim(a, 0); i++) {
        memcpy((*out)->data + i * (n + m), a->data + i * n, n * sizeof(float));
        memcpy((*out)->data + i * (n + m) + n, b->data + i * m, m * sizeof(float));
    }
out:
    htensor_unref(a);
    htensor_unref(b);
    return err->code;
}

/* Frames at both ends of a canvas. */
static berth_status ends_of(struct node_call *c, const struct video_size *z, size_t *known,
                            size_t *end, struct htensor **canvas, berth_err *err)
{
    struct htensor *first = NULL, *last = NULL;
    berth_status s = in_frames(c, "start_image", z, z->frames, FRAMES_FIRST, &first, err);
    if (!s)
        s = in_frames(c, "end_image", z, z->frames, FRAMES_LAST, &last, err);
    if (!s)
        s = canvas_new(z, canvas, err);
    if (!s && first)
        canvas_put(*canvas, first, 0);
    if (!s && last)
        canvas_put(*canvas, last, z->frames - dim(last, 0));
    *known = first ? dim(first, 0) + VIDEO_EVERY - 1 : 0;
    *end = last ? dim(last, 0) : 0;
    htensor_unref(first);
    htensor_unref(last);
    return s;
}

/* seen: inputs of what CLIP vision saw; the second may be NULL. */
static berth_status first_and_last(struct node_call *c, const char *const seen[2], berth_err *err)
{
    struct video_size z;
    struct video_said s = { .latent = NULL };
    struct shape latent = { .ndim = 5 };
    struct htensor *canvas = NULL;
    size_t known, end;
    if (in_video_size(c, USUAL_RATIO, &z, err))
        return err->code;
    berth_status bad = both_seen(c, seen[0], seen[1], &s.extra[EXTRA_SEEN], err);
    if (!bad)
        bad = ends_of(c, &z, &known, &end, &canvas, err);
    if (!bad)
        bad = video_encode(c, canvas, &s.latent, err);
    htensor_unref(canvas);
    if (!bad) {
        latent = s.latent->shape;
        latent.dim[0] = z.batch;
        latent.dim[2] = z.t;
        bad = video_mask4(z.t, dim(s.latent, 3), dim(s.latent, 4), known, end, &s.mask, err);
    }
    return give(c, bad, &s, &latent, err);
}

static berth_status run_first_last(struct node_call *c, berth_err *err)
{
    return first_and_last(
        c, (const char *const[2]) { "clip_vision_start_image", "clip_vision_end_image" }, err);
}

NODE_CLASS(WanFirstLastFrameToVideo, .category = "conditioning/video_models", V3("wan"),
           INS(VIDEO_IN, OPTIONAL("clip_vision_start_image", "CLIP_VISION_OUTPUT"),
               OPTIONAL("clip_vision_end_image", "CLIP_VISION_OUTPUT"),
               OPTIONAL("start_image", "IMAGE"), OPTIONAL("end_image", "IMAGE")),
           PAIR_AND_LATENT, .run = run_first_last);

static berth_status run_fun_inpaint(struct node_call *c, berth_err *err)
{
    return first_and_last(c, (const char *const[2]) { "clip_vision_output", NULL }, err);
}

NODE_CLASS(WanFunInpaintToVideo, .category = "model/conditioning/wan/fun inpaint", V3("wan"),
           INS(VIDEO_IN, OPTIONAL("clip_vision_output", "CLIP_VISION_OUTPUT"),
               OPTIONAL("start_image", "IMAGE"), OPTIONAL("end_image", "IMAGE")),
           PAIR_AND_LATENT, .run = run_fun_inpaint);

/* ---- Fun control ---- */

/* Frames of an input, encoded, into channels of t from this one on. */
static berth_status put_encoded(struct node_call *c, const char *input, const struct video_size *z,
                                size_t channel, struct htensor *t, berth_err *err)
{
    struct htensor *frames, *encoded;
    if (in_frames(c, input, z, z->frames, FRAMES_FIRST, &frames, err) || !frames)
        return err->code;
    berth_status s = video_encode(c, frames, &encoded, err);
    htensor_unref(frames);
    if (s)
        return s;
    if (channel + dim(encoded, 1) <= dim(t, 1) && dim(encoded, 3) == dim(t, 3) &&
        dim(encoded, 4) == dim(t, 4))
        video_put(t, encoded, channel, 0);
    else
        s = err_set(err, BERTH_EINVAL, "a VAE of %zu channels; the model wants another",
                    dim(encoded, 1));
    htensor_unref(encoded);
    return s;
}

static berth_status fun_control(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct video_said s = { .latent = NULL };
    if (in_video_size(c, USUAL_RATIO, &z, err))
        return err->code;
    const struct shape latent = latent_of(&z);
    struct shape two = latent;
    two.dim[1] *= 2; /* what is followed, and where it starts */
    berth_status bad = in_seen(c, "clip_vision_output", &s.extra[EXTRA_SEEN], err);
    if (!bad)
        bad = video_nothing(&latent_wan21, &two, &s.latent, err);
    if (!bad)
        bad = put_encoded(c, "start_image", &z, latent_wan21.channels, s.latent, err);
    if (!bad)
        bad = put_encoded(c, "control_video", &z, 0, s.latent, err);
    return give(c, bad, &s, &latent, err);
}

NODE_CLASS(WanFunControlToVideo, .category = "model/conditioning/wan/fun control", V3("wan"),
           INS(VIDEO_IN, OPTIONAL("clip_vision_output", "CLIP_VISION_OUTPUT"),
               OPTIONAL("start_image", "IMAGE"), OPTIONAL("control_video", "IMAGE")),
           PAIR_AND_LATENT, .run = fun_control);

/* Of Wan 2.2, whose VAE says which latents those are: what is followed, a mask between that and
 * where it starts, and a picture to look at. */
static berth_status fun_control22(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct vae_net vae;
    struct video_said s = { .latent = NULL };
    struct htensor *ref = NULL;
    if (in_vae_net(c, &vae, err) || in_video_size(c, vae.latent.ratio, &z, err))
        return err->code;
    const struct latent_format *f =
        vae.latent.channels == latent_wan22.channels ? &latent_wan22 : &latent_wan21;
    if (vae.latent.channels != f->channels || vae.latent.rank != f->rank)
        return err_set(err, BERTH_EINVAL, "a VAE of %s: Wan's is wanted", vae.latent.name);
    const struct shape latent = {
        5, { z.batch, f->channels, z.t, z.h / vae.latent.ratio, z.w / vae.latent.ratio }
    };
    struct shape two = latent;
    two.dim[1] *= 2;
    s.mask_index = f->channels;
    berth_status bad = video_nothing(f, &two, &s.latent, err);
    if (!bad)
        bad = video_mask4(z.t, (size_t)latent.dim[3], (size_t)latent.dim[4], 0, 0, &s.mask, err);
    if (!bad)
        bad = put_encoded(c, "control_video", &z, 0, s.latent, err);
    if (!bad)
        bad = in_frames(c, "ref_image", &z, 1, FRAMES_FIRST, &ref, err);
    if (!bad && ref)
        bad = video_encode(c, ref, &s.ref, err);
    htensor_unref(ref);
    return give(c, bad, &s, &latent, err);
}

NODE_CLASS(Wan22FunControlToVideo, .category = "model/conditioning/wan/fun control", V3("wan"),
           INS(VIDEO_IN, OPTIONAL("ref_image", "IMAGE"), OPTIONAL("control_video", "IMAGE")),
           PAIR_AND_LATENT, .run = fun_control22);

/* ---- 5B ---- */

/* t, of one item, `batch` times. Takes it. */
static berth_status repeat(struct htensor **t, size_t batch, berth_err *err)
{
    struct htensor *more;
    if (tensor_repeat(*t, batch, &more, err))
        return err->code;
    htensor_unref(*t);
    *t = more;
    return BERTH_OK;
}

/* Its first frames are those of a picture, and stay so: a noise mask keeps them. */
static berth_status put_start(struct node_call *c, const struct video_size *z, struct latent *l,
                              berth_err *err)
{
    struct htensor *start, *encoded;
    const struct shape *s = &l->samples->shape;
    const struct shape one = { 5, { 1, 1, s->dim[2], s->dim[3], s->dim[4] } };
    if (in_frames(c, "start_image", z, z->frames, FRAMES_FIRST, &start, err) || !start)
        return err->code;
    berth_status bad = video_encode(c, start, &encoded, err);
    htensor_unref(start);
    if (bad)
        return bad;
    char text[SHAPE_TEXT_MAX];
    if (dim(encoded, 1) != s->dim[1] || dim(encoded, 3) != s->dim[3] ||
        dim(encoded, 4) != s->dim[4])
        bad = err_set(err, BERTH_EINVAL, "the VAE gives latents %s: Wan 2.2's of 5B is wanted",
                      shape_text(&encoded->shape, text));
    struct htensor *nothing = NULL;
    if (!bad)
        bad = video_nothing(&latent_wan22, s, &nothing, err);
    if (!bad) {
        htensor_unref(l->samples);
        l->samples = nothing;
        video_put(nothing, encoded, 0, 0);
        bad = htensor_zeros(&one, &l->noise_mask, err);
    }
    const size_t hw = (size_t)(one.dim[3] * one.dim[4]), frames = (size_t)one.dim[2];
    for (size_t i = bad ? frames * hw : dim(encoded, 2) * hw; i < frames * hw; i++)
        l->noise_mask->data[i] = 1.0f;
    htensor_unref(encoded);
    return bad;
}

static berth_status start_latent(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct latent l = { 0 };
    if (in_video_size(c, latent_wan22.ratio, &z, err))
        return err->code;
    const struct shape s = {
        5, { 1, latent_wan22.channels, z.t, z.h / latent_wan22.ratio, z.w / latent_wan22.ratio }
    };
    berth_status bad = htensor_zeros(&s, &l.samples, err);
    if (!bad)
        bad = put_start(c, &z, &l, err);
    if (!bad && l.noise_mask && z.batch > 1)
        bad = repeat(&l.samples, z.batch, err);
    if (!bad && l.noise_mask && z.batch > 1)
        bad = repeat(&l.noise_mask, z.batch, err);
    return give_or_release(c, bad, &l, err);
}

NODE_CLASS(Wan22ImageToVideoLatent, .category = "conditioning/inpaint", V3("wan"),
           INS(SOCKET("vae", "VAE"), SIZE_IN(1280, 704, 32, 32),
               INT_IN("length", 49, 1, MAX_SIDE, 4), BATCH_IN, OPTIONAL("start_image", "IMAGE")),
           OUT_OF("LATENT"), .run = start_latent);
