/* windows: context windows: a long latent is predicted in windows along one of its dimensions,
 * which overlap and are blended together again. The windows may change from step to step.
 *
 * Words      frame    an index of that dimension
 *            anchor   the frame before a window, predicted with it and then dropped (causal)
 * Threads    Executor. Constant while sampling except for `step`. */
#pragma once

#include "base/vec.h"
#include "sample/rng.h"
#include "tensor/shape.h"

enum windows_schedule { WINDOWS_STATIC, WINDOWS_UNIFORM, WINDOWS_LOOPED, WINDOWS_BATCHED };
enum windows_fuse { FUSE_PYRAMID, FUSE_RELATIVE, FUSE_FLAT, FUSE_OVERLAP };
#define WINDOWS_RETAINED 64

struct windows {
    size_t length, overlap, stride; /* length 0: none; overlap < length */
    enum windows_schedule schedule;
    enum windows_fuse fuse;
    bool closed, causal, split;
    bool free_noise; /* noise beyond the first window is the first one's, shuffled */
    int dim;
    /* Frames that every window keeps at their own place: of its conditioning, and of the latent. */
    size_t retain_cond[WINDOWS_RETAINED], retain_conds;
    size_t retain_latent[WINDOWS_RETAINED], retain_latents;
    size_t step; /* of the run; set by windows_at() */
};
struct window {
    size_t *frame; /* [n] */
    size_t n;
};
/* Sets the step whose noise level this is; between two levels it stays. */
void windows_at(struct windows *w, const float *sigmas, size_t n, float sigma);
/* Appends struct window for so many frames, more than w->length; frames in mem. BERTH_EINVAL: there
 * are not more, or a frame is in no window. */
struct arena;
berth_status windows_make(const struct windows *w, size_t frames, struct arena *mem,
                          struct vec *out, berth_err *err);
/* The weight of each frame of a window: out [x->n]. Not for FUSE_RELATIVE. */
void windows_weights(const struct windows *w, const struct window *x, size_t frames, float *out);
/* FUSE_RELATIVE: the weight of frame i of a window. */
double windows_bias(const struct window *x, size_t i);
/* free_noise over a latent of this shape. */
berth_status windows_noise(const struct windows *w, uint64_t seed, const struct shape *s,
                           float *noise, berth_err *err);
