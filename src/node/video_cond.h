/* video_cond: what nodes have in common that tell a video model of pictures: sizes, frames on a
 * canvas, and what becomes of the two prompts.
 *
 *     struct video_size z;
 *     in_video_size(c, &z, err)
 *     in_frames(c, "start_image", &z, FRAMES_FIRST, &t, err)      resized; NULL: not given
 *     canvas_new(&z, &canvas, err); canvas_put(canvas, t, 0)
 *     video_set(c, &(struct video_said) { .latent = ..., ... }, err)     outputs 0 and 1
 *     video_empty(c, 2, &shape, err) */
#pragma once

#include "node/compute.h"

struct video_size {
    size_t w, h;   /* pixels */
    size_t frames; /* of pixels: the input "length" */
    size_t t;      /* of latents: each stands for four, the first one for one */
    size_t batch;
};
#define VIDEO_EVERY 4 /* frames of a latent one */
/* Inputs "width", "height", "length", "batch_size". BERTH_EINVAL: no latent pixel of `ratio` is
 * left. */
berth_status in_video_size(const struct node_call *c, size_t ratio, struct video_size *out,
                           berth_err *err);

enum frames_end { FRAMES_FIRST, FRAMES_LAST };
/* As many of the input's pictures as the video has, or `most`, resized to it and cut in the middle;
 * *out is new, NULL: not given. */
berth_status in_frames(struct node_call *c, const char *input, const struct video_size *z,
                       size_t most, enum frames_end end, struct htensor **out, berth_err *err);
/* [frames, h, w, 3], all 0.5. */
berth_status canvas_new(const struct video_size *z, struct htensor **out, berth_err *err);
/* Three channels of frames into the canvas, from frame `at` on; they fit. */
void canvas_put(struct htensor *canvas, const struct htensor *frames, size_t at);
/* What the VAE at input "vae" is, from its header. */
berth_status in_vae_net(struct node_call *c, struct vae_net *out, berth_err *err);
/* By that VAE; *out is new. */
berth_status video_encode(struct node_call *c, const struct htensor *frames, struct htensor **out,
                          berth_err *err);
/* [n, groups * channels, t, h, w] of nothing as such a network sees it. */
berth_status video_nothing(const struct latent_format *f, const struct shape *s,
                           struct htensor **out, berth_err *err);
/* Frames of `from`, as many as fit, to the first ones of t from this channel on; one item each. */
void video_put(struct htensor *t, const struct htensor *from, size_t channel, size_t frame);

/* A mask over frames of pixels, for a latent of t frames: [1, 4, t, h, w], 1 but for the first
 * `known` frames and the last `end` ones of 4 t. */
berth_status video_mask4(size_t t, size_t h, size_t w, size_t known, size_t end,
                         struct htensor **out, berth_err *err);

struct video_said { /* of a prompt; NULL: as it was */
    struct htensor *latent, *mask;
    size_t mask_index; /* 0: as it was */
    struct htensor *extra[EXTRA_KINDS];
    struct htensor *ref;          /* one more latent to look at */
    const struct cond_vace *vace; /* one more video to follow */
};
/* Input `input` with all of it said, as output i. */
berth_status video_say(struct node_call *c, const char *input, size_t i, const struct video_said *s,
                       berth_err *err);
/* "positive" and "negative", as outputs 0 and 1. */
berth_status video_set(struct node_call *c, const struct video_said *s, berth_err *err);
/* Zeros as the latent of output i. */
berth_status video_empty(struct node_call *c, size_t i, const struct shape *s, berth_err *err);
/* What CLIP vision saw: shared; NULL: not given. */
berth_status in_seen(struct node_call *c, const char *input, struct htensor **out, berth_err *err);
