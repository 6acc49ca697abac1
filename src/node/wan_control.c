/* wan_control.c: nodes that steer Wan's videos: by others (VACE), by subjects (Phantom), by a
 * camera (video-nodes.md 1). */
#include "node/video_cond.h"

#include <math.h>
#include <string.h>

#define LATENT_OUT                                                                                 \
    {                                                                                              \
        .type = "LATENT", .name = "latent"                                                         \
    }
#define VIDEO_IN                                                                                   \
    PAIR_IN, SOCKET("vae", "VAE"), SIZE_IN(832, 480, 16, 16),                                      \
        INT_IN("length", 81, 1, MAX_SIDE, 4), BATCH_IN
#define CELL 8 /* pixels a side that a mask has as channels */

static struct shape latent_of(const struct video_size *z)
{
    return (struct shape) {
        5, { z->batch, latent_wan21.channels, z->t, z->h / USUAL_RATIO, z->w / USUAL_RATIO }
    };
}

/* ---- VACE ---- */

struct follow {                   /* owned */
    struct htensor *video, *mask; /* [frames, h, w, 3], [frames, h, w] */
    struct htensor *latents, *cells, *ref;
};

static void follow_release(struct follow *f)
{
    htensor_unref(f->video);
    htensor_unref(f->mask);
    htensor_unref(f->latents);
    htensor_unref(f->cells);
    htensor_unref(f->ref);
    *f = (struct follow) { .video = NULL };
}

/* What is followed, continued with grey; and where, continued with everywhere. */
static berth_status in_follow(struct node_call *c, const struct video_size *z, struct follow *f,
                              berth_err *err)
{
    struct htensor *frames, *mask, *some, *sized;
    if (in_frames(c, "control_video", z, z->frames, FRAMES_FIRST, &frames, err))
        return err->code;
    berth_status s = canvas_new(z, &f->video, err);
    if (!s && frames)
        canvas_put(f->video, frames, 0);
    htensor_unref(frames);
    if (!s)
        s = mask_tensor(z->frames, z->h, z->w, &f->mask, err);
    for (size_t i = 0; !s && i < htensor_count(f->mask); i++)
        f->mask->data[i] = 1.0f;
    if (s || !in_given(c, "control_masks"))
        return s;
    if (in_mask(c, "control_masks", &mask, err) ||
        tensor_slice(mask, 0, dim(mask, 0) < z->frames ? dim(mask, 0) : z->frames, &some, err))
        return err->code;
    s = scale_planes(c, some, z->w, z->h, "bilinear", true, &sized, err);
    htensor_unref(some);
    if (s)
        return s;
    memcpy(f->mask->data, sized->data, htensor_count(sized) * sizeof(float));
    htensor_unref(sized);
    return BERTH_OK;
}

/* The video where the mask is, or where it is not, and grey elsewhere, encoded. */
static berth_status half(struct node_call *c, const struct follow *f, bool masked,
                         struct htensor **out, berth_err *err)
{
    struct htensor *t;
    if (htensor_new(&f->video->shape, &t, err))
        return err->code;
    for (size_t i = 0; i < htensor_count(t); i++) {
        const float m = f->mask->data[i / 3], v = f->video->data[i] - 0.5f;
        t->data[i] = v * (masked ? m : 1.0f - m) + 0.5f;
    }
    berth_status s = video_encode(c, t, out, err);
    htensor_unref(t);
    return s;
}

static berth_status encode_ref(struct node_call *c, const struct video_size *z, struct follow *f,
                               berth_err *err)
{
    struct htensor *image;
    if (in_frames(c, "reference_image", z, 1, FRAMES_FIRST, &image, err) || !image)
        return err->code;
    berth_status s = video_encode(c, image, &f->ref, err);
    htensor_unref(image);
    return s;
}

/* Both halves, one's channels behind the other's; in front of them the picture, beside nothing. */
static berth_status encode_both(struct node_call *c, const struct video_size *z, struct follow *f,
                                berth_err *err)
{
    struct htensor *a = NULL, *b = NULL;
    char text[SHAPE_TEXT_MAX];
    berth_status s = encode_ref(c, z, f, err);
    if (!s)
        s = half(c, f, false, &a, err);
    if (!s)
        s = half(c, f, true, &b, err);
    const size_t ahead = f->ref ? dim(f->ref, 2) : 0, C = latent_wan21.channels;
    struct shape shape = latent_of(z);
    shape.dim[0] = 1;
    shape.dim[1] = 2 * C;
    shape.dim[2] += ahead;
    if (!s && (dim(a, 1) != C || dim(a, 2) != z->t || dim(a, 3) != shape.dim[3] ||
               dim(a, 4) != shape.dim[4]))
        s = err_set(err, BERTH_EINVAL, "the VAE gives latents %s: Wan 2.1's is wanted",
                    shape_text(&a->shape, text));
    if (!s)
        s = video_nothing(&latent_wan21, &shape, &f->latents, err);
    if (!s) {
        if (f->ref)
            video_put(f->latents, f->ref, 0, 0);
        video_put(f->latents, a, 0, ahead);
        video_put(f->latents, b, C, ahead);
    }
    htensor_unref(a);
    htensor_unref(b);
    return s;
}

/* The mask's pixels as channels of latent ones, of the frame nearest to each latent one; in front
 * of them nothing is masked. */
static berth_status fold_mask(const struct video_size *z, struct follow *f, berth_err *err)
{
    const size_t ahead = f->ref ? dim(f->ref, 2) : 0, h = z->h / CELL, w = z->w / CELL;
    const struct shape s = { 5, { 1, CELL * CELL, z->t + ahead, h, w } };
    if (htensor_zeros(&s, &f->cells, err))
        return err->code;
    for (size_t k = 0; k < CELL * CELL; k++)
        for (size_t t = 0; t < z->t; t++) {
            const size_t from = (size_t)(((float)t + 0.5f) * ((float)z->frames / (float)z->t));
            float *out = f->cells->data + ((k * (z->t + ahead)) + ahead + t) * h * w;
            for (size_t i = 0; i < h * w; i++)
                out[i] = f->mask->data[((from < z->frames ? from : z->frames - 1) * z->h +
                                        i / w * CELL + k / CELL) *
                                           z->w +
                                       i % w * CELL + k % CELL];
        }
    return BERTH_OK;
}

static berth_status run_vace(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct follow f = { .video = NULL };
    double strength;
    if (in_video_size(c, USUAL_RATIO, &z, err) || in_finite(c, "strength", &strength, err))
        return err->code;
    if (z.w % CELL || z.h % CELL)
        return err_set(err, BERTH_EINVAL,
                       "a video of %zux%zu: VACE's have sides of multiples of %d", z.w, z.h, CELL);
    berth_status s = in_follow(c, &z, &f, err);
    if (!s)
        s = encode_both(c, &z, &f, err);
    if (!s)
        s = fold_mask(&z, &f, err);
    if (!s) {
        const struct cond_vace v = { .frames = f.latents, .mask = f.cells, .strength = strength };
        s = video_set(c, &(struct video_said) { .vace = &v }, err);
    }
    const size_t ahead = f.ref ? dim(f.ref, 2) : 0;
    struct shape latent = latent_of(&z);
    latent.dim[2] += ahead;
    follow_release(&f);
    if (!s)
        s = video_empty(c, 2, &latent, err);
    return s ? s : out_value(c, 3, value_int((int64_t)ahead), err);
}

NODE_CLASS(WanVaceToVideo, .category = "conditioning/video_models", V3("wan"),
           INS(VIDEO_IN, FLOAT_IN("strength", 1.0, 0.0, 1000.0, 0.01),
               OPTIONAL("control_video", "IMAGE"), OPTIONAL("control_masks", "MASK"),
               OPTIONAL("reference_image", "IMAGE")),
           OUTS(PAIR_OUT, LATENT_OUT, { .type = "INT", .name = "trim_latent" }), .run = run_vace);

/* ---- subjects ---- */

/* Each picture encoded alone: [1, channels, n, h, w]. */
static berth_status encode_subjects(struct node_call *c, const struct video_size *z,
                                    struct htensor **out, berth_err *err)
{
    struct htensor *images, *one, *z1;
    if (in_frames(c, "images", z, z->frames, FRAMES_FIRST, &images, err))
        return err->code;
    if (!images)
        return err_set(err, BERTH_EINVAL, "no pictures of subjects: connect 'images'");
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < dim(images, 0); i++) {
        s = tensor_slice(images, i, 1, &one, err);
        if (s)
            break;
        s = video_encode(c, one, &z1, err);
        htensor_unref(one);
        if (s)
            break;
        struct shape shape = z1->shape;
        shape.dim[2] = dim(images, 0);
        if (!*out)
            s = htensor_new(&shape, out, err);
        if (!s)
            video_put(*out, z1, 0, i);
        htensor_unref(z1);
    }
    htensor_unref(images);
    return s;
}

static berth_status run_phantom(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct htensor *subjects = NULL, *nobody = NULL;
    if (in_video_size(c, USUAL_RATIO, &z, err))
        return err->code;
    const struct shape latent = latent_of(&z);
    berth_status s = encode_subjects(c, &z, &subjects, err);
    if (!s && dim(subjects, 1) != latent_wan21.channels)
        s = err_set(err, BERTH_EINVAL, "a VAE of %zu channels: Wan 2.1's is wanted",
                    dim(subjects, 1));
    if (!s)
        s = video_nothing(&latent_wan21, &subjects->shape, &nobody, err);
    const struct video_said all = { .extra = { [EXTRA_SUBJECTS] = subjects } };
    const struct video_said none = { .extra = { [EXTRA_SUBJECTS] = nobody } };
    if (!s)
        s = video_say(c, "positive", 0, &all, err);
    if (!s)
        s = video_say(c, "negative", 1, &all, err);
    if (!s)
        s = video_say(c, "negative", 2, &none, err);
    htensor_unref(subjects);
    htensor_unref(nobody);
    return s ? s : video_empty(c, 3, &latent, err);
}

NODE_CLASS(WanPhantomSubjectToVideo, .category = "model/conditioning/wan/phantom subject",
           V3("wan"), INS(VIDEO_IN, OPTIONAL("images", "IMAGE")),
           OUTS({ .type = "CONDITIONING", .name = "positive" },
                { .type = "CONDITIONING", .name = "negative_text" },
                { .type = "CONDITIONING", .name = "negative_img_text" }, LATENT_OUT),
           .run = run_phantom);

/* ---- cameras ---- */

/* Where it starts, and a mask of its frames; neither where nothing is said. */
static berth_status camera_start(struct node_call *c, const struct video_size *z,
                                 const struct shape *latent, struct video_said *s, berth_err *err)
{
    struct htensor *start, *encoded;
    char text[SHAPE_TEXT_MAX];
    if (in_frames(c, "start_image", z, z->frames, FRAMES_FIRST, &start, err) || !start)
        return err->code;
    const size_t known = dim(start, 0) + VIDEO_EVERY - 1;
    berth_status bad = video_encode(c, start, &encoded, err);
    htensor_unref(start);
    if (bad)
        return bad;
    if (dim(encoded, 1) != latent->dim[1] || dim(encoded, 3) != latent->dim[3] ||
        dim(encoded, 4) != latent->dim[4])
        bad = err_set(err, BERTH_EINVAL, "the VAE gives latents %s: Wan 2.1's is wanted",
                      shape_text(&encoded->shape, text));
    if (!bad)
        bad = video_nothing(&latent_wan21, latent, &s->latent, err);
    if (!bad)
        video_put(s->latent, encoded, 0, 0);
    htensor_unref(encoded);
    return bad ? bad
               : video_mask4(z->t, (size_t)latent->dim[3], (size_t)latent->dim[4], known, 0,
                             &s->mask, err);
}

static berth_status in_camera(struct node_call *c, struct htensor **out, berth_err *err)
{
    struct value *v = in_value(c, "camera_conditions");
    *out = NULL;
    if (!v)
        return BERTH_OK;
    if (v->kind != V_TENSOR || v->tensor->shape.ndim != 5)
        return err_set(err, BERTH_EINVAL, "camera_conditions is no WAN_CAMERA_EMBEDDING");
    *out = v->tensor;
    return BERTH_OK;
}

static berth_status run_camera(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct video_said s = { .latent = NULL };
    struct htensor *camera;
    if (in_video_size(c, USUAL_RATIO, &z, err) || in_camera(c, &camera, err))
        return err->code;
    const struct shape latent = latent_of(&z);
    berth_status bad = in_seen(c, "clip_vision_output", &s.extra[EXTRA_SEEN], err);
    s.extra[EXTRA_CAMERA] = camera;
    if (!bad)
        bad = camera_start(c, &z, &latent, &s, err);
    if (!bad)
        bad = video_set(c, &s, err);
    htensor_unref(s.latent);
    htensor_unref(s.mask);
    htensor_unref(s.extra[EXTRA_SEEN]);
    return bad ? bad : video_empty(c, 2, &latent, err);
}

NODE_CLASS(WanCameraImageToVideo, .category = "model/conditioning/wan/camera", V3("wan"),
           INS(VIDEO_IN, OPTIONAL("clip_vision_output", "CLIP_VISION_OUTPUT"),
               OPTIONAL("start_image", "IMAGE"),
               OPTIONAL("camera_conditions", "WAN_CAMERA_EMBEDDING")),
           OUTS(PAIR_OUT, LATENT_OUT), .run = run_camera);

static const struct pose {
    const char *name;
    double turn, move[3]; /* about the line of sight; where to */
} poses[] = {
    { "Static", 0, { 0, 0, 0 } },         { "Pan Up", 0, { 0, -1, 0 } },
    { "Pan Down", 0, { 0, 1, 0 } },       { "Pan Left", 0, { -1, 0, 0 } },
    { "Pan Right", 0, { 1, 0, 0 } },      { "Zoom In", 0, { 0, 0, 2 } },
    { "Zoom Out", 0, { 0, 0, -2 } },      { "Anti Clockwise (ACW)", -1, { 0, 0, 0 } },
    { "ClockWise (CW)", 1, { 0, 0, 0 } },
};
static const char *const pose_names[] = { "Static",         "Pan Up",
                                          "Pan Down",       "Pan Left",
                                          "Pan Right",      "Zoom In",
                                          "Zoom Out",       "Anti Clockwise (ACW)",
                                          "ClockWise (CW)", NULL };
#define TURN (3.14159265358979323846 / 3) /* of a whole video, at speed 1 */
#define MOVE 1.5
#define ASPECT (1280.0 / 720.0) /* that fx and fy are for */
#define PLUCKER 6               /* numbers of a ray */

struct lens { /* of pixels */
    float fx, fy, cx, cy;
};

/* How frame i of n sees a pixel: the ray's moment, then its direction. */
static void ray(const struct pose *p, double part, const struct lens *l, size_t x, size_t y,
                float out[PLUCKER])
{
    const double turn = part * TURN * p->turn;
    const float cosine = (float)cos(turn), sine = (float)sin(turn);
    const float o[3] = { (float)(part * MOVE * p->move[0]), (float)(part * MOVE * p->move[1]),
                         (float)(part * MOVE * p->move[2]) };
    float v[3] = { ((float)x + 0.5f - l->cx) / l->fx, ((float)y + 0.5f - l->cy) / l->fy, 1 };
    const float length = sqrtf(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    for (int i = 0; i < 3; i++)
        v[i] /= length;
    const float d[3] = { cosine * v[0] - sine * v[1], sine * v[0] + cosine * v[1], v[2] };
    for (int i = 0; i < 3; i++) {
        out[i] = o[(i + 1) % 3] * d[(i + 2) % 3] - o[(i + 2) % 3] * d[(i + 1) % 3];
        out[3 + i] = d[i];
    }
}

/* [1, 24, t, h, w]: numbers of rays, four frames of pixels side by side; the first one four
 * times. */
static berth_status embed_camera(struct node_call *c, const struct pose *p, double speed,
                                 const struct video_size *z, const struct lens *l,
                                 struct htensor **out, berth_err *err)
{
    const size_t hw = z->h * z->w;
    const struct shape s = { 5, { 1, PLUCKER * VIDEO_EVERY, z->t, z->h, z->w } };
    if (htensor_new(&s, out, err))
        return err->code;
    for (size_t f = 0; f < VIDEO_EVERY * z->t; f++) {
        const size_t at = f < VIDEO_EVERY ? 0 : f - VIDEO_EVERY + 1;
        const double part = (double)at / (double)z->frames * speed;
        if (call_check(c, err))
            return err->code;
        for (size_t i = 0; i < hw; i++) {
            float v[PLUCKER];
            ray(p, part, l, i % z->w, i / z->w, v);
            for (size_t k = 0; k < PLUCKER; k++)
                (*out)->data[((k * VIDEO_EVERY + f % VIDEO_EVERY) * z->t + f / VIDEO_EVERY) * hw +
                             i] = v[k];
        }
    }
    return BERTH_OK;
}

static berth_status in_lens(struct node_call *c, const struct video_size *z, struct lens *out,
                            berth_err *err)
{
    const double w = (double)z->w, h = (double)z->h;
    double fx, fy, cx, cy;
    if (in_finite(c, "fx", &fx, err) || in_finite(c, "fy", &fy, err) ||
        in_finite(c, "cx", &cx, err) || in_finite(c, "cy", &cy, err))
        return err->code;
    if (!(fx > 0) || !(fy > 0))
        return err_set(err, BERTH_EINVAL, "a lens of %g and %g: both are above 0", fx, fy);
    if (ASPECT > w / h)
        fx = h * ASPECT * fx / w;
    else
        fy = w / ASPECT * fy / h;
    *out = (struct lens) { (float)(fx * w), (float)(fy * h), (float)(cx * w), (float)(cy * h) };
    return BERTH_OK;
}

static berth_status run_embedding(struct node_call *c, berth_err *err)
{
    struct video_size z;
    struct lens lens = { .fx = 1, .fy = 1 };
    struct htensor *t = NULL;
    const char *name;
    double speed;
    uint64_t w, h, frames;
    size_t i = 0;
    if (in_text(c, "camera_pose", &name, err) || in_u64(c, "width", &w, err) ||
        in_u64(c, "height", &h, err) || in_u64(c, "length", &frames, err) ||
        in_finite(c, "speed", &speed, err))
        return err->code;
    while (i < ARRAY_LEN(poses) && strcmp(poses[i].name, name) != 0)
        i++;
    if (i == ARRAY_LEN(poses) || !w || !h || w > SIDE_MAX || h > SIDE_MAX || frames > SIDE_MAX ||
        frames % VIDEO_EVERY != 1)
        return err_set(err, BERTH_EINVAL,
                       "a camera '%.40s' of %llux%llu, %llu frames: their number is 4 n + 1", name,
                       (unsigned long long)w, (unsigned long long)h, (unsigned long long)frames);
    z = (struct video_size) { .w = (size_t)w,
                              .h = (size_t)h,
                              .frames = (size_t)frames,
                              .t = (size_t)frames / VIDEO_EVERY + 1,
                              .batch = 1 };
    berth_status s = in_lens(c, &z, &lens, err);
    if (!s)
        s = embed_camera(c, &poses[i], speed, &z, &lens, &t, err);
    if (s) {
        htensor_unref(t);
        return s;
    }
    s = out_tensor(c, 0, t, err);
    if (!s)
        s = out_value(c, 1, value_int((int64_t)w), err);
    if (!s)
        s = out_value(c, 2, value_int((int64_t)h), err);
    return s ? s : out_value(c, 3, value_int((int64_t)frames), err);
}

NODE_CLASS(WanCameraEmbedding, .category = "model/conditioning/wan/camera", V3("camera_trajectory"),
           INS({ .name = "camera_pose", .kind = IN_COMBO, .options = pose_names, .sdef = "Static" },
               SIZE_IN(832, 480, 16, 16), INT_IN("length", 81, 1, MAX_SIDE, 4),
               FLOAT_IN("speed", 1.0, 0.0, 10.0, 0.1, .optional = true),
               FLOAT_IN("fx", 0.5, 0.0, 1.0, 0.000000001, .optional = true, .more = ADVANCED),
               FLOAT_IN("fy", 0.5, 0.0, 1.0, 0.000000001, .optional = true, .more = ADVANCED),
               FLOAT_IN("cx", 0.5, 0.0, 1.0, 0.01, .optional = true, .more = ADVANCED),
               FLOAT_IN("cy", 0.5, 0.0, 1.0, 0.01, .optional = true, .more = ADVANCED)),
           OUTS({ .type = "WAN_CAMERA_EMBEDDING", .name = "camera_embedding" },
                { .type = "INT", .name = "width" }, { .type = "INT", .name = "height" },
                { .type = "INT", .name = "length" }),
           .run = run_embedding);
