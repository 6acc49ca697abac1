/* march: one run along the sigmas, as the samplers see it. For src/sample/samplers_*.c alone.
 *
 * Words     s, t      this step's levels: from s to t, t == 0 mostly in the last one
 *           D, U      denoised at (x, s), and the negative's own prediction (SAMPLER_UNCOND)
 *           scratch   buffers of the sampler, tmp; they stay as they are between steps
 *           old       what it keeps of its last steps, newest first
 * Numbers   a coefficient is computed in float in the order the reference computes its 0-dim
 *           tensors; mix() adds its terms from left to right, each product rounded by itself.
 *           Python's numbers, which stay double until they meet a tensor, are double here.
 * Memory    everything is there before the first step; a step fails in the network, on its tree, or
 *           in the callback.
 * Files     sample.c the loop and the outside; march.c arrays and scalars */
#pragma once

#include "sample/sample.h"

#define MARCH_SCRATCH 8

struct arena;
struct march {
    struct sample_job *j;
    const struct sampler *how;
    size_t n;           /* elements of a buffer */
    size_t i, steps;    /* step i of steps */
    const float *sigma; /* [steps + 1]: the job's, the first one off 1 with SAMPLER_OFF_ONE */
    float s, t;         /* sigma[i], risen by churn; sigma[i + 1] */
    float *x;           /* the job's */
    float *D, *U, *noise;
    float *tmp[MARCH_SCRATCH]; /* how->scratch of them */
    float **old;               /* [olds], have of them filled */
    size_t olds, have;
    float carry[4];            /* numbers from step to step; zero at first */
    struct sample_options opt; /* none open */
    bool flow;                 /* CONST */
    struct brownian *tree;
    struct torch_rng churn;
    struct philox_rng churn_card;
    struct arena *mem; /* of the run */
};

/* ---- arrays of n ---- */
struct term {
    float c;
    const float *v;
};
/* out = c0 v0 + c1 v1 + ...; out may be one of them. */
void march_mix(const struct march *m, float *out, const struct term *term, size_t terms);
/* A macro, since a function cannot count: mix(m, x, { 1, x }, { dt, d }); */
#define mix(m, out, ...)                                                                           \
    march_mix(m, out, (const struct term[]) { __VA_ARGS__ },                                       \
              sizeof((const struct term[]) { __VA_ARGS__ }) / sizeof(struct term))
void march_set(const struct march *m, float *out, const float *v);
/* (x - D) / sigma: the slope of the ODE, and other differences over a number. D NULL: x / sigma. */
void march_slope(const struct march *m, float *out, const float *x, float sigma, const float *D);
/* *newest becomes old[0], the others move on; *newest is a buffer to write into again. */
void march_keep(struct march *m, float **newest);

/* ---- outside ---- */
/* D, and U with SAMPLER_UNCOND, at (x, sigma). */
berth_status march_denoise(struct march *m, const float *x, float sigma, float *D, berth_err *err);
/* m->noise between two levels. march_noisy(): whether the options of an SDE want any. */
bool march_noisy(const struct march *m);
berth_status march_noise(struct march *m, float sigma, float sigma_next, berth_err *err);
/* x = keep x + by noise, of that from m->s to `to`. */
berth_status march_add_noise(struct march *m, float *x, float keep, float to, float by,
                             berth_err *err);
/* For samplers with `run`: the callback, and the check at the end of step i. */
berth_status march_tell(struct march *m, size_t i, float sigma, const float *x, const float *D,
                        berth_err *err);
berth_status march_check(struct march *m, size_t i, float sigma, berth_err *err);

/* ---- scalars ---- */
/* An ancestral step from s to t: down to *down, then up by noise of *up. */
void march_ancestral(float s, float t, double eta, float *down, float *up);
/* The same for flows: down, x * *keep, + noise * *up. */
void march_ancestral_flow(float s, float t, double eta, float *down, float *keep, float *up);
float march_snr(const struct march *m, float sigma);     /* lambda, half the log SNR */
float march_snr_sigma(const struct march *m, float snr); /* and back */
float march_lerp(float a, float b, float w);
float march_no_nan(float v); /* 0 for NaN, the largest numbers for infinities */
/* Solves A z = b for z, n equations, A row by row; both are spoilt, b holds z. */
void march_solve(float *a, float *b, size_t n);

/* ---- steps: from m->s to m->t with D at hand; of SAMPLER_LOOP() the whole way ---- */
#define SAMPLER(n, how, ...) berth_status step_##how(struct march *m, berth_err *err);
#define SAMPLER_LOOP SAMPLER
#include "sample/samplers.def"
#undef SAMPLER
#undef SAMPLER_LOOP
