/* sample: from noise to a latent along a list of sigmas (sampling.md 8).
 *
 * Words      D         denoised: what the model thinks the clean latent is, at (x, sigma)
 *            job       one run of a sampler: x, sigmas, where D and noise come from
 *            guide     turns conditionings, cfg, areas and masks into D (guide.h)
 * Numbers    float32 arrays on the host, scalars in float32 as 0-dim tensors are; golden: every
 *            sampler of sample_sd15_tiny within 1e-3, analytic denoisers within 1e-5.
 * Noise      march_noise(): the job's generator, seed + 1 on the cpu, the seed itself on a card
 *            (1.3), or its Brownian tree with the seed as it is, which is the cpu's except for
 *            `_gpu` samplers on a card. Draw order is part of a sampler, also of noise that is
 *            multiplied by 0.
 * Flow       sample_run(): seed, tree, buffers; for each step D -> callback -> the sampler's step
 *            -> NaN check. A sampler is what happens between two sigmas (march.h); few have a loop
 *            of their own.
 * Adding     a sampler: a function in a file of its family and a line in samplers.def.
 * Threads    Executor; elementwise loops may spread over job->pool without changing a number.
 * Files      sample.c lists and the run; march.c what steps are written with;
 *            samplers_<family>.c */
#pragma once

#include "base/tpool.h"
#include "sample/rng.h"
#include "sample/sigmas.h"
#include "tensor/shape.h"

struct sample_options { /* of the Sampler* nodes; NAN / 0: the sampler's own default */
    double eta, s_noise, r, s_churn, s_tmin, s_tmax;
    int order;                      /* lms 1..100, dpm_adaptive 2 or 3 */
    bool heun;                      /* solver_type of dpmpp_2m_sde */
    double gamma;                   /* gradient_estimation */
    double s_noise_end, noise_clip; /* lcm: s_noise of the last step; in deviations, 0: none */
    struct sample_adaptive {        /* dpm_adaptive; said false: its defaults */
        bool said;
        double relative, absolute, first, p, i, d, accept;
    } adaptive;
    struct sample_er { /* er_sde; stages 0: its defaults */
        int stages;    /* 1..3 */
        enum { ER_OWN, ER_REVERSE, ER_ODE } noise;
    } er;
    struct sample_sa { /* sa_solver; said false: its defaults */
        bool said;
        int predictor, corrector; /* orders, 1..6 and 0..6 */
        double from, to;          /* noise between these levels alone */
        bool simple;              /* second orders by the simple formula */
    } sa;
};
#define SAMPLE_SA_ORDER 6
extern const struct sample_options sample_defaults; /* every field "own default" */

/* After the first model call of step i; from dpm_adaptive and uni_pc at the end of a step. */
struct sample_step {
    size_t i, total; /* i < total = sigmas - 1, also where dpm_adaptive takes more steps */
    float sigma;
    const float *x, *denoised;
};

struct sample_job {
    const struct msampling *ms;
    const float *sigma; /* [sigmas] */
    size_t sigmas;      /* fewer than 2: nothing to do */
    size_t n;           /* elements */
    float *x;           /* [n], noisy at sigma[0]; the result */
    uint64_t seed;
    /* Noise is drawn as on a card with so many threads at once (philox_seed()), where ComfyUI keeps
     * its latents when the model computes there; 0: as on the cpu. */
    uint32_t cuda;
    struct sample_options opt;
    struct tpool *pool; /* may be NULL */
    /* D at (x, sigma). uncond (NULL unless the sampler has SAMPLER_UNCOND): the negative's own
     * prediction. */
    berth_status (*denoise)(void *user, const float *x, float sigma, float *denoised, float *uncond,
                            berth_err *err);
    /* BERTH_ECANCELED: interrupted. May be NULL. */
    berth_status (*step)(void *user, const struct sample_step *s, berth_err *err);
    void *user;
    /* set by sample_run(): */
    /* The level x is at in the end, for ms_finish(): sigma[sigmas - 1], but 0.001 where uni_pc was
     * sent to 0. */
    float last;
    struct torch_rng rng; /* of march_noise(); afterwards it tells how much was drawn */
    struct philox_rng card;
};

enum {
    /* KSampler asks for one step more and drops the last but one */
    SAMPLER_DISCARD_PENULTIMATE = 1 << 0,
    SAMPLER_UNCOND = 1 << 1,     /* cfg++: needs the negative's prediction also with cfg 1 */
    SAMPLER_TREE = 1 << 2,       /* its noise is a Brownian tree */
    SAMPLER_MASK_NOISE = 1 << 3, /* ddim: an inpainting mask's noise is new, randn with seed + 1 */
    SAMPLER_CHURN = 1 << 4,      /* takes s_churn, s_tmin, s_tmax */
    SAMPLER_OFF_ONE = 1 << 5, /* a flow's first sigma of 1 moves a little: it has no log SNR (8) */
    SAMPLER_ORDER = 1 << 6,   /* its history is as long as its order */
    SAMPLER_TREE_THERE = 1 << 7, /* its tree grows where the latent is, not always on the cpu */
    SAMPLER_LOOPS = 1 << 8,      /* step is a loop of its own over all steps */
    SAMPLER_LANDS = 1 << 9,      /* a step to 0 is one to D */
    SAMPLER_MODEL_NOISE =
        1 << 10, /* its noise is as strong as the model's (ms_config.noise_scale) */
    SAMPLER_SDE = SAMPLER_TREE | SAMPLER_OFF_ONE | SAMPLER_LANDS | SAMPLER_MODEL_NOISE,
    SAMPLER_SDE_THERE = SAMPLER_SDE | SAMPLER_TREE_THERE,
};
#define SAMPLE_MAX_ORDER 100 /* of lms */
struct march;
struct sampler {
    const char *name;
    unsigned flags;
    unsigned scratch, history; /* buffers of the latent's size its steps want, see march.h */
    struct sample_options own; /* its defaults for what the job's options leave open */
    berth_status (*step)(struct march *m, berth_err *err); /* march.h */
};
size_t sampler_count(void);
const struct sampler *sampler_at(size_t i);           /* in the order people see */
const struct sampler *sampler_find(const char *name); /* NULL: none */
extern const struct sampler sampler_euler_pp;         /* of a node alone: not among those above */

/* Runs it over the job; takes the memory it needs before the first step. The job's x is undefined
 * after an error. BERTH_EINVAL "NaN in the latent after step 3 of 20 (sigma 1.613)" when values go
 * wrong; errors of denoise() get "step 3 of 20, sigma 1.613: " in front. */
berth_status sample_run(const struct sampler *s, struct sample_job *j, berth_err *err);
