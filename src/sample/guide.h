/* guide: D from a network and conditionings: cfg, areas, masks, step ranges, inpainting
 * (sampling.md 5, 6).
 *
 * Words      part       a conditioning that is active at this noise level: where it counts and how
 *                       much
 *            crop       what of the latent a part sees; parts with crops of one size go into one
 *                       batch
 *            list       positive, negative, middle: each gives one prediction, the weighted mean of
 *                       its parts
 * Flow       guide_denoise(): x at the mask's places, else the picture with noise -> parts of the
 *            lists that cfg needs -> batches, negatives first -> net -> D of every part -> means ->
 *            cfg -> the picture where the mask says so.
 * Numbers    float32 in ComfyUI's order (calc_cond_batch): the last part of a batch is added first.
 *            Where nothing is active a prediction is 0.
 * It knows nothing of networks: `net` predicts for a batch of latents, each with one conditioning
 * (an opaque pointer), and may split it again.
 * Threads    Executor. A struct guide is constant while sampling; each call has its own scratch. */
#pragma once

#include "sample/sample.h"

struct guide_area {
    uint32_t h, w, y, x;
}; /* latent pixels */
struct guide_cond {
    const void *cond; /* handed to net */
    double strength;  /* 1 */
    bool has_area;
    struct guide_area area; /* cut to the latent; outside of it: never active */
    /* [mask_n, ..., h, w], of the latent's size but for its channels, 0..1; NULL: none. With a mask
     * the area's edges are not feathered */
    const float *mask;
    size_t mask_n;        /* 1, or the batch; 0 as 1 */
    double mask_strength; /* 1 */
    double sigma_start,
        sigma_end; /* active while end <= sigma <= start; start HUGE_VAL: from the beginning */
};

struct guide_batch {    /* crops of one size, each with its conditioning; arrays of n */
    struct shape shape; /* [n, c, ..., h, w] of x and out */
    const void **cond;
    size_t *item;            /* of the latent's batch */
    struct guide_area *area; /* which crop of that item, for channels beside the latent */
    float *x;                /* as ms_input() scales it */
    float *t;                /* timesteps */
    float *out;              /* what the network predicts */
};
typedef berth_status guide_net_fn(void *user, const struct guide_batch *b, berth_err *err);

struct guide { /* filled by the caller, constant while sampling; everything borrowed */
    const struct msampling *ms;
    struct shape shape; /* [b, c, ..., h, w]; areas are all of what is between c and h */
    const struct guide_cond *positive, *negative; /* negative may be empty: as cfg 1 */
    size_t positives, negatives;
    double cfg;
    bool always_uncond; /* cfg++ */
    double rescale;     /* RescaleCFG multiplier; 0: off */
    /* DualCFGGuider: a second positive list, `middle` ("cond2"). cfg is between positive and
     * middle, cfg_middle between middle and negative; nested: between (positive, middle) and
     * negative. */
    const struct guide_cond *middle;
    size_t middles;
    double cfg_middle;
    bool nested;
    /* inpainting; NULL: none */
    const float *mask;           /* of the latent's shape, 1 = denoise */
    const float *latent, *noise; /* in the model's scale; only with a mask */
    guide_net_fn *net;
    void *user;
};
/* sample_job.denoise with a struct guide as user. uncond: the prediction of the negative as cfg++
 * takes it (nested: of the middle), 0 where there is none. */
berth_status guide_denoise(void *guide, const float *x, float sigma, float *denoised, float *uncond,
                           berth_err *err);
