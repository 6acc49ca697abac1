/* sample: from noise to a latent along a list of sigmas (sampling.md 8).
 *
 * Words      D         denoised: what the model thinks the clean latent is, at (x, sigma)
 *            job       one run of a sampler: x, sigmas, where D and noise come from
 *            guide     turns conditionings, cfg, areas and masks into D (guide.h)
 * Numbers    float32 arrays on the host, scalars in float32 as 0-dim tensors are; golden: every sampler of
 *            sample_sd15_tiny within 1e-3, analytic denoisers within 1e-5.
 * Noise      sample_noise(): the job's generator; seed + 1 on the cpu (1.3). Draw order is part of a sampler.
 * Adding     a sampler: `const struct sampler sampler_<x>` in a file of its family and a line in samplers.def.
 * Threads    Executor; elementwise loops may spread over job->pool without changing a number.
 * Files      sample.c lists, runs, shared arithmetic; samplers_<family>.c */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H

#include "base/tpool.h"
#include "sample/rng.h"
#include "sample/sigmas.h"
#include "tensor/shape.h"

struct sample_options { /* of the Sampler* nodes; NAN / 0: the sampler's own default */
    double eta, s_noise, r, s_churn, s_tmin, s_tmax;
    int order;
    bool heun;    /* solver_type of dpmpp_2m_sde */
    double gamma; /* gradient_estimation */
};
extern const struct sample_options sample_defaults; /* every field "own default" */

struct sample_step { /* after the first model call of step i */
    size_t i, total; /* total = sigmas - 1 */
    float sigma;
    const float *x, *denoised;
};

struct sample_job {
    const struct msampling *ms;
    const float *sigma; /* [sigmas], at least 2 */
    size_t sigmas;
    struct shape shape; /* of the latent; its first dimension is the batch */
    size_t n;           /* elements */
    float *x;           /* [n], noisy at sigma[0]; the result */
    uint64_t seed;
    struct sample_options opt;
    struct tpool *pool; /* may be NULL */
    /* D at (x, sigma). uncond (NULL unless the sampler has SAMPLER_UNCOND): the negative's own prediction. */
    berth_status (*denoise)(void *user, const float *x, float sigma, float *denoised, float *uncond,
                            berth_err *err);
    /* BERTH_ECANCELED: interrupted. May be NULL. */
    berth_status (*step)(void *user, const struct sample_step *s, berth_err *err);
    void *user;
    /* for samplers: */
    struct torch_rng rng; /* seeded by sample_run() */
    struct arena *mem;    /* of the run: history, scratch */
    struct brownian *tree;
};

enum {
    SAMPLER_DISCARD_PENULTIMATE =
        1 << 0,              /* KSampler asks for one step more and drops the last but one */
    SAMPLER_UNCOND = 1 << 1, /* cfg++: needs the negative's prediction also with cfg 1 */
    SAMPLER_TREE = 1 << 2,   /* its noise is a Brownian tree */
};
struct sampler {
    const char *name;
    unsigned flags;
    berth_status (*run)(struct sample_job *j, berth_err *err);
};
size_t sampler_count(void);
const struct sampler *sampler_at(size_t i);           /* in the order people see */
const struct sampler *sampler_find(const char *name); /* NULL: none */

/* Runs it over the job. BERTH_EINVAL "NaN in the latent after step 3 of 20 (sigma 1.613)" when values go wrong. */
berth_status sample_run(const struct sampler *s, struct sample_job *j, berth_err *err);

#endif
