/* guide: D from a network and conditionings: cfg, areas, masks, step ranges, inpainting
 * (sampling.md 5, 6).
 *
 * Words      part       a conditioning that is active at this noise level: where it counts and how
 *                       much
 *            crop       what of the latent a part sees; parts with crops of one size go into one
 *                       batch
 *            list       positive, negative, middle, empty: each gives one prediction, the weighted
 *                       mean of its parts
 *            patch      what a node does to predictions: before cfg, in its place, or after it
 * Flow       guide_denoise(): x at the mask's places, else the picture with noise -> parts of the
 *            lists that cfg needs -> batches, negatives first -> net -> D of every part -> means ->
 *            patches and cfg -> the picture where the mask says so.
 * Numbers    float32 in ComfyUI's order (calc_cond_batch): the last part of a batch is added first.
 *            Where nothing is active a prediction is 0.
 * It knows nothing of networks: `net` predicts for a batch of latents, each with one conditioning
 * (an opaque pointer), and may split it again.
 * Adding     a patch: a function in guidance.c and a line in guidance.def.
 * Threads    Executor. A struct guide is constant while sampling; each call has its own scratch.
 *            What patches remember from step to step is in guide.memory.
 * Files      guide.c lists, batches, cfg; guidance.c patches */
#pragma once

#include "sample/cache.h"
#include "sample/sample.h"
#include "sample/windows.h"

struct guide_area {
    uint32_t h, w, y, x;
}; /* latent pixels */
struct guide_cond {
    const void *cond; /* handed to net */
    double strength;  /* 1 */
    bool has_area;
    struct guide_area area; /* cut to the latent; outside of it: never active */
    /* [mask_n, ..., h, w], of the latent's size except for its channels, 0..1; NULL: none. With a
     * mask the area's edges are not feathered */
    const float *mask;
    size_t mask_n;        /* 1, or the batch; 0 as 1 */
    double mask_strength; /* 1 */
    double sigma_start,
        sigma_end; /* active while end <= sigma <= start; start HUGE_VAL: from the beginning */
    /* Counts as much as the others of its list leave room for at each pixel, whatever its own mask
     * and strength. It has no area then. */
    bool otherwise;
};

struct guide_batch {    /* crops of one size, each with its conditioning; arrays of n */
    struct shape shape; /* [n, c, ..., h, w] of x and out */
    const void **cond;
    size_t *item;            /* of the latent's batch */
    struct guide_area *area; /* which crop of that item, for channels beside the latent */
    float *x;                /* as ms_input() scales it */
    float *t;                /* timesteps */
    float *out;              /* what the network predicts */
    const void *how; /* guide_patch.how of a pass that a patch asked for; NULL: the usual ones */
    float sigma;
    bool first; /* of the batches that a prediction takes */
    /* Context windows along a dimension behind the channels: which of the latent's indexes of it
     * are in x, for what is beside it. NULL: all. */
    const size_t *frame;
    size_t frames;
    int frame_dim;
};
typedef berth_status guide_net_fn(void *user, const struct guide_batch *b, berth_err *err);

/* ---- patches ---- */

struct guide_patch;
struct guide_memory { /* of one patch in one run; zeroed at first */
    float *kept;      /* malloc(); guide_memory_release() */
    float sigma;
    bool any;
};
struct
    guide_moment { /* one call of the network's, as patches see it; arrays [b, c, planes, h, w] */
    size_t b, c, planes, h, w;
    size_t item, n; /* values of one of b, and of all */
    size_t last3;   /* values of the last three dimensions together */
    float sigma;
    const struct msampling *ms;
    double cfg;
    const float *x;
    float *cond, *uncond; /* D; uncond is 0 where it was not asked for (both false) */
    bool both;
    const float *empty; /* D of guide.empty; NULL: there is none */
    float *out;         /* the prediction so far: of cfg and the patches before */
    struct arena *mem;
    struct guide_memory *memory; /* the patch's own */
    const void *scene;
};
/* D of the positive (or the negative) again, of another x, with the network run as `how` says. */
berth_status guide_again(const struct guide_moment *m, bool negative, const float *x,
                         const void *how, float *out, berth_err *err);
float *guide_floats(const struct guide_moment *m, size_t n, berth_err *err); /* zeroed scratch */

typedef berth_status guide_patch_fn(struct guide_moment *m, const struct guide_patch *p,
                                    berth_err *err);
struct guide_patch_kind {
    const char *name;
    bool uncond;             /* the negative is asked also with cfg 1 */
    bool own_passes;         /* asks for passes as guide_patch.how says */
    guide_patch_fn *before;  /* changes cond and uncond */
    guide_patch_fn *instead; /* gives out, in place of cfg; of several the last one counts */
    guide_patch_fn *after;   /* changes out */
    /* The cfg of a noise level. Of several the last one counts; false: not at this level. */
    bool (*scale)(const struct guide_patch *p, float sigma, double *cfg);
    /* Whether the negative is asked with the network run as guide_patch.how says. */
    bool (*negative)(const struct guide_patch *p, float sigma);
};
#define GUIDE_PARAMS 8
struct guide_patch {
    const struct guide_patch_kind *is;
    double p[GUIDE_PARAMS];        /* as guidance.def says */
    const void *how;               /* of the passes it asks for; borrowed */
    const struct guide_seen *seen; /* what it goes by; borrowed; NULL: nothing */
};
/* How much each token of the negative's pictures was looked at by a network's self-attention,
 * summed over queries and averaged over heads: [items, tokens]. Whoever runs it fills it in. */
struct guide_seen {
    float *of; /* malloc(); NULL: nothing yet */
    size_t items, tokens;
};
#define GUIDE_PATCH(name, ...) extern const struct guide_patch_kind guide_##name;
#include "sample/guidance.def"
#undef GUIDE_PATCH
/* Its net passes are other ones than the usual: guide_patch.how says which. */
static inline bool guide_has_passes(const struct guide_patch_kind *k)
{
    return k && (k->negative || k->own_passes);
}
/* [patches] of it. */
void guide_memory_release(struct guide_memory *m, size_t patches);

struct guide { /* filled by the caller, constant while sampling; everything borrowed */
    const struct msampling *ms;
    struct shape shape; /* [b, c, ..., h, w]; areas are all of what is between c and h */
    const struct guide_cond *positive, *negative; /* negative may be empty: as cfg 1 */
    size_t positives, negatives;
    double cfg;
    bool always_uncond;              /* cfg++ */
    bool apart;                      /* DualModelGuider: patches before cfg do not run */
    const struct guide_patch *patch; /* [patches] in the order nodes added them */
    size_t patches;
    struct guide_memory *memory;    /* [patches] */
    const struct guide_cond *empty; /* what Perp-Neg measures against; NULL: none */
    size_t empties;
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
    bool clean;                  /* what the mask keeps is seen without noise */
    struct windows *windows;     /* a latent longer than these is predicted in pieces; NULL: none */
    const float *sigmas;         /* [levels] of the run, for them */
    size_t levels;
    struct step_cache *cache; /* of whole predictions (cache.h); NULL: none */
    guide_net_fn *net;
    void *user;
};
/* sample_job.denoise with a struct guide as user. uncond: the prediction of the negative as cfg++
 * takes it (nested: of the middle), 0 where there is none. */
berth_status guide_denoise(void *guide, const float *x, float sigma, float *denoised, float *uncond,
                           berth_err *err);
