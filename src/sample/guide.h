/* guide: D from a network and conditionings: cfg, areas, masks, step ranges, inpainting (sampling.md 5, 6).
 *
 * It knows nothing of networks: `net` predicts for n latents at once, each with one conditioning (an opaque pointer).
 * Batches are made of conditionings whose crops have one size, uncond first; net may split them again.
 * Files   guide.c, guide_area.c */
#ifndef SAMPLE_GUIDE_H
#define SAMPLE_GUIDE_H

#include "sample/sample.h"

struct guide_area {
    uint32_t h, w, y, x;
}; /* latent pixels */
struct guide_cond {
    const void *cond; /* handed to net */
    double strength;  /* 1 */
    bool has_area;
    struct guide_area area; /* must lie in the latent; guide_resolve() clips */
    const float *mask;      /* [mask_n, h, w] of the latent's size, 0..1; NULL: none */
    size_t mask_n;          /* 1, or the batch */
    double mask_strength;   /* 1 */
    double sigma_start,
        sigma_end; /* active while end <= sigma <= start; start HUGE_VAL: from the beginning */
};

/* n predictions; each of x is [c, h, w] of one batch item's crop. t: timesteps. area: which crop (for concat channels). */
typedef berth_status guide_net_fn(void *user, size_t n, const void *const *cond, const size_t *item,
                                  const struct guide_area *area, size_t c, size_t h, size_t w,
                                  const float *x, const float *t, float *out, berth_err *err);

struct guide { /* filled by the caller, constant while sampling */
    const struct msampling *ms;
    struct shape shape;                           /* [b, c, h, w] */
    const struct guide_cond *positive, *negative; /* negative may be empty: as cfg 1 */
    size_t positives, negatives;
    double cfg;
    bool always_uncond; /* cfg++ */
    double rescale;     /* RescaleCFG multiplier; 0: off */
    /* DualCFGGuider: a second positive list */
    const struct guide_cond *middle;
    size_t middles;
    double cfg_middle;
    bool nested;
    /* inpainting; NULL: none */
    const float *mask;           /* [b, h, w] or one per item, 1 = denoise */
    const float *latent, *noise; /* [b, c, h, w], in the model's scale */
    guide_net_fn *net;
    void *user;
    struct tpool *pool;
};
/* sample_job.denoise with a struct guide as user. */
berth_status guide_denoise(void *guide, const float *x, float sigma, float *denoised, float *uncond,
                           berth_err *err);

#endif
