/* sigmas: noise levels. What a model's own levels are (struct msampling), and the schedules that
 * pick steps.
 *
 * Words      sigma      noise level, float32; timestep: what the network is told; table: a model's
 *                       own levels
 *            schedule   n steps -> n + 1 levels, the last one mostly 0
 * Numbers    float32 in the order sampling.md 2-5 writes them; 1e-5 against the reference at every
 *            value.
 * Adding     a schedule: a function and a line in schedulers.def (order: what people choose from).
 * Limits     1 to SCHEDULE_STEPS_MAX steps; more is BERTH_EINVAL.
 * Threads    any; a struct msampling does not change once it is made.
 * Files      msampling.c tables and scalings; schedules.c; beta.c the quantile of the beta
 *            schedule */
#pragma once

#include "base/err.h"
#include "base/vec.h"

#include <stdbool.h>

enum ms_type { /* what the network predicts (sampling.md 2) */
               MS_EPS,
               MS_V,
               MS_EDM,
               MS_X0,
               MS_CONST,
               MS_IMG_TO_IMG,      /* X0 from x as it is */
               MS_IMG_TO_IMG_FLOW, /* the same with a flow's levels: no noise, 1 - x in the end */
};
enum ms_table { MS_DISCRETE, MS_CONTINUOUS_EDM, MS_CONTINUOUS_V, MS_FLOW, MS_FLUX, MS_CASCADE };

/* An exponent either way: beyond it e^shift or its inverse is no float, and ComfyUI's levels are
 * NaN. */
#define MS_FLUX_SHIFT_MAX 88.72

struct ms_config { /* zero: SD's eps over its discrete table */
    enum ms_type type;
    enum ms_table table;
    bool zsnr;
    double sigma_min, sigma_max; /* MS_CONTINUOUS_* (0: 0.002, 120) */
    double sigma_data;           /* 0: 1 */
    double shift, multiplier;    /* MS_FLOW, MS_CASCADE (0: 1, 1000), MS_FLUX (0: 1.15) */
    bool shifted;                /* a shift of 0 is meant */
    double noise_scale;          /* of flows: how strong noise is; 0: 1 */
    bool lcm;                    /* ModelSamplingDiscrete "lcm": EPS over 50 distilled steps */
};
struct msampling { /* ms_release() */
    struct ms_config cfg;
    float *sigma, *log_sigma; /* [n] ascending */
    size_t n;
};
/* BERTH_EINVAL: numbers that give no table. *ms is empty then. */
berth_status ms_init(struct msampling *ms, const struct ms_config *cfg, berth_err *err);
void ms_release(struct msampling *ms); /* zeroed is fine */
float ms_sigma_min(const struct msampling *ms);
float ms_sigma_max(const struct msampling *ms);
float ms_timestep(const struct msampling *ms, float sigma);
float ms_sigma(const struct msampling *ms, float timestep);
double ms_percent(const struct msampling *ms, double percent); /* percent_to_sigma() */
bool ms_is_flow(const struct msampling *ms);                   /* CONST */
double ms_noise_scale(const struct msampling *ms);             /* 1 but where a flow says else */
/* The four columns of sampling.md 2, n values each; out may be x. */
void ms_input(const struct msampling *ms, float sigma, const float *x, float *out, size_t n);
void ms_denoised(const struct msampling *ms, float sigma, const float *model, const float *x,
                 float *out, size_t n);
void ms_noise(const struct msampling *ms, float sigma, const float *noise, const float *latent,
              bool max_denoise, float *out, size_t n);
void ms_finish(const struct msampling *ms, float sigma, float *x, size_t n);
/* The first sigma is the table's largest, within 1e-5. */
bool ms_max_denoise(const struct msampling *ms, float sigma);

/* ---- schedules; results are appended to a vec of float, which stays as it was on errors ---- */
#define SCHEDULE_STEPS_MAX 1000000 /* 10,000 steps at a denoise of 0.01 */

struct scheduler {
    const char *name;
    /* There is room for as many levels as there are steps, or in the table, and two more. */
    void (*make)(const struct msampling *ms, size_t steps, struct vec *out);
};
const struct scheduler *scheduler_at(size_t i);           /* in the order people see; NULL: end */
const struct scheduler *scheduler_find(const char *name); /* NULL: none */

/* The levels of n steps. */
berth_status sigmas_schedule(const struct msampling *ms, const struct scheduler *how, size_t steps,
                             struct vec *out, berth_err *err);
/* What KSampler uses: schedule, penultimate discard of the sampler, denoise (5). denoise <= 0: none
 * at all. */
berth_status sample_sigmas(const struct msampling *ms, const struct scheduler *s, size_t steps,
                           double denoise, bool discard_penultimate, struct vec *out,
                           berth_err *err);
/* start_at_step, end_at_step, and whether what is left of the noise goes (KSamplerAdvanced). In
 * place. *nothing: the latent is returned as it is. */
void sigmas_range(struct vec *sigmas, size_t start, size_t end, bool force_full_denoise,
                  bool *nothing);

/* Nodes' own: */
berth_status sigmas_beta(const struct msampling *ms, size_t steps, double alpha, double beta,
                         struct vec *out, berth_err *err);
berth_status sigmas_sd_turbo(const struct msampling *ms, size_t steps, double denoise,
                             struct vec *out, berth_err *err);
/* Level i < n of a formula that needs no model. */
float sigmas_linspace(double from, double to, size_t n,
                      size_t i); /* torch.linspace(from, to, n)[i] */
float sigmas_karras(double min, double max, double rho, size_t n, size_t i); /* rho not 0 */
float sigmas_exponential(double min, double max, size_t n, size_t i);        /* both above 0 */
/* The x for which the regularised incomplete beta function I_x(a, b) is p; a, b > 0. */
double beta_quantile(double p, double a, double b);
