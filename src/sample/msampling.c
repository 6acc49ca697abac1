/* msampling.c: a model's own noise levels, and how x goes into the network and its answer comes out
 * (sampling.md 2, 3).
 *
 * torch's order of operations throughout: a Python number meets a tensor as float32, and `number /
 * tensor` is the tensor's reciprocal times the number. */
#include "sample/sigmas.h"

#include <math.h>
#include <stdlib.h>

#define DISCRETE 1000
#define FLUX 10000
#define LCM_STEPS 50
#define LCM_SKIP (DISCRETE / LCM_STEPS) /* of the discrete levels, each 20th was distilled */
#define EDM_TIME 0.25
#define PI 3.14159265358979323846

/* ---- tables ---- */

static double linspace_double(double a, double b, size_t n, size_t i)
{
    double step = (b - a) / (double)(n - 1);
    return i < n / 2 ? a + step * (double)i : b - step * (double)(n - 1 - i);
}

/* SD's: betas linear in their roots, all in double until the end. */
static void discrete_sigmas(double out[DISCRETE], bool zsnr)
{
    double product = 1; /* alphas multiplied up: what is left of the picture */
    for (size_t i = 0; i < DISCRETE; i++) {
        double root = linspace_double(sqrt(0.00085), sqrt(0.012), DISCRETE, i);
        product *= 1 - root * root;
        out[i] = sqrt((1 - product) / product);
    }
    if (!zsnr)
        return;
    double first = sqrt(1 / (out[0] * out[0] + 1));
    double last = sqrt(1 / (out[DISCRETE - 1] * out[DISCRETE - 1] + 1));
    for (size_t i = 0; i < DISCRETE; i++) {
        double s = (sqrt(1 / (out[i] * out[i] + 1)) - last) * (first / (first - last));
        double left = i + 1 < DISCRETE ? s * s : 4.8973451890853435e-08; /* 0 would be no number */
        out[i] = sqrt((1 - left) / left);
    }
}

static void fill_discrete(struct msampling *ms)
{
    double sigma[DISCRETE];
    discrete_sigmas(sigma, ms->cfg.zsnr);
    for (size_t i = 0; i < ms->n; i++)
        if (ms->cfg.lcm) {
            ms->sigma[i] = (float)sigma[i * LCM_SKIP + LCM_SKIP - 1];
            ms->log_sigma[i] = logf(ms->sigma[i]);
        } else {
            ms->sigma[i] = (float)sigma[i];
            ms->log_sigma[i] = (float)log(sigma[i]);
        }
}

static void fill_continuous(struct msampling *ms)
{
    double lo = log(ms->cfg.sigma_min), hi = log(ms->cfg.sigma_max);
    for (size_t i = 0; i < ms->n; i++) {
        ms->sigma[i] = expf(sigmas_linspace(lo, hi, ms->n, i));
        ms->log_sigma[i] = logf(ms->sigma[i]);
    }
}

static void fill_flow(struct msampling *ms)
{
    for (size_t i = 0; i < ms->n; i++) {
        float t = (float)(i + 1) / (float)ms->n;
        ms->sigma[i] = ms_sigma(ms, ms->cfg.table == MS_FLOW ? t * (float)ms->cfg.multiplier : t);
        ms->log_sigma[i] = logf(ms->sigma[i]);
    }
}

/* Stable Cascade's: a cosine, shifted in its logarithm. */
#define COSINE_S 8e-3f

static float cascade_start(void) /* how much of the picture is left at 0 */
{
    float c = cosf(COSINE_S / (1 + COSINE_S) * (float)PI * 0.5f);
    return c * c;
}

static float cascade_sigma(double shift, float t)
{
    float c = cosf((t + COSINE_S) / (1 + COSINE_S) * (float)PI * 0.5f);
    float left = c * c / cascade_start();
    if (shift != 1) {
        float snr = logf(left / (1 - left)) + 2 * logf(1 / (float)shift);
        left = 1 / (1 + expf(-snr));
    }
    left = left > 0.0001f ? left : 0.0001f;
    left = left < 0.9999f ? left : 0.9999f;
    return sqrtf((1 - left) / left);
}

static float cascade_time(float sigma)
{
    float left = 1 / (sigma * sigma + 1);
    return acosf(sqrtf(left * cascade_start())) / (float)(PI * 0.5) * (1 + COSINE_S) - COSINE_S;
}

static void fill_cascade(struct msampling *ms)
{
    for (size_t i = 0; i < ms->n; i++) {
        ms->sigma[i] = cascade_sigma(ms->cfg.shift, (float)((double)(i + 1) / (double)ms->n));
        ms->log_sigma[i] = logf(ms->sigma[i]);
    }
}

static double or_else(double x, double otherwise)
{
    return x != 0 ? x : otherwise;
}

/* Zeros become what they stand for; numbers come from workflows. */
static berth_status complete(struct ms_config *c, berth_err *err)
{
    bool edm = c->table == MS_CONTINUOUS_EDM || c->table == MS_CONTINUOUS_V;
    c->sigma_min = or_else(c->sigma_min, 0.002);
    c->sigma_max = or_else(c->sigma_max, 120);
    c->sigma_data = or_else(c->sigma_data, 1);
    if (!c->shifted)
        c->shift = or_else(c->shift, c->table == MS_FLUX ? 1.15 : 1);
    c->multiplier = or_else(c->multiplier, 1000);
    c->noise_scale = or_else(c->noise_scale, 1);
    if (!(c->noise_scale > 0 && isfinite(c->noise_scale)))
        return err_set(err, BERTH_EINVAL, "a noise scale of %g", c->noise_scale);
    if (edm && !(c->sigma_min > 0 && c->sigma_max > c->sigma_min && isfinite(c->sigma_max)))
        return err_set(err, BERTH_EINVAL, "noise levels from %g to %g", c->sigma_min, c->sigma_max);
    if (!(c->sigma_data > 0 && isfinite(c->sigma_data)))
        return err_set(err, BERTH_EINVAL, "sigma_data is %g", c->sigma_data);
    /* A Flux shift is an exponent, any other one a factor. */
    if (!(c->table == MS_FLUX ? fabs(c->shift) <= MS_FLUX_SHIFT_MAX
                              : c->shift > 0 && c->shift <= 1e6))
        return err_set(err, BERTH_EINVAL, "a shift of %g", c->shift);
    if (!(c->multiplier > 0 && c->multiplier <= 1e9))
        return err_set(err, BERTH_EINVAL, "a timestep multiplier of %g", c->multiplier);
    return BERTH_OK;
}

berth_status ms_init(struct msampling *ms, const struct ms_config *cfg, berth_err *err)
{
    *ms = (struct msampling) { .cfg = *cfg };
    if (complete(&ms->cfg, err))
        return err->code;
    bool discrete = cfg->table == MS_DISCRETE;
    ms->n = discrete && cfg->lcm                                ? LCM_STEPS
            : cfg->table == MS_FLUX || cfg->table == MS_CASCADE ? FLUX
                                                                : DISCRETE;
    ms->sigma = malloc(ms->n * sizeof(float));
    ms->log_sigma = malloc(ms->n * sizeof(float));
    if (!ms->sigma || !ms->log_sigma) {
        ms_release(ms);
        return err_set(err, BERTH_ENOMEM, "a table of noise levels");
    }
    switch (cfg->table) {
    case MS_DISCRETE:
        fill_discrete(ms);
        break;
    case MS_CONTINUOUS_EDM:
    case MS_CONTINUOUS_V:
        fill_continuous(ms);
        break;
    case MS_FLOW:
    case MS_FLUX:
        fill_flow(ms);
        break;
    case MS_CASCADE:
        fill_cascade(ms);
        break;
    }
    return BERTH_OK;
}

void ms_release(struct msampling *ms)
{
    free(ms->sigma);
    free(ms->log_sigma);
    ms->sigma = ms->log_sigma = NULL;
    ms->n = 0;
}

float ms_sigma_min(const struct msampling *ms)
{
    return ms->sigma[0];
}

float ms_sigma_max(const struct msampling *ms)
{
    return ms->sigma[ms->n - 1];
}

bool ms_is_flow(const struct msampling *ms)
{
    return ms->cfg.type == MS_CONST || ms->cfg.type == MS_IMG_TO_IMG_FLOW;
}

double ms_noise_scale(const struct msampling *ms)
{
    return ms_is_flow(ms) ? ms->cfg.noise_scale : 1;
}

/* ---- between noise levels and what the network is told ---- */

/* The level nearest in its logarithm, the lower one of two. NaN: 0. */
static size_t nearest(const struct msampling *ms, float sigma)
{
    float log_sigma = logf(sigma), best = INFINITY;
    size_t at = 0;
    for (size_t i = 0; i < ms->n; i++) {
        float far = fabsf(log_sigma - ms->log_sigma[i]);
        if (far < best) {
            best = far;
            at = i;
        }
    }
    return at;
}

float ms_timestep(const struct msampling *ms, float sigma)
{
    switch (ms->cfg.table) {
    case MS_DISCRETE:
        return (float)(ms->cfg.lcm ? nearest(ms, sigma) * LCM_SKIP + LCM_SKIP - 1
                                   : nearest(ms, sigma));
    case MS_CONTINUOUS_EDM:
        return (float)EDM_TIME * logf(sigma);
    case MS_CONTINUOUS_V:
        return atanf(sigma) / (float)PI * 2;
    case MS_FLOW:
        return sigma * (float)ms->cfg.multiplier;
    case MS_CASCADE:
        return cascade_time(sigma);
    case MS_FLUX:
        break;
    }
    return sigma;
}

static float discrete_sigma(const struct msampling *ms, float t)
{
    if (ms->cfg.lcm)
        t = (t - (LCM_SKIP - 1)) / LCM_SKIP;
    t = t > 0 ? t : 0; /* NaN, too */
    t = t < (float)(ms->n - 1) ? t : (float)(ms->n - 1);
    size_t low = (size_t)floorf(t), high = (size_t)ceilf(t);
    float w = t - truncf(t);
    return expf((1 - w) * ms->log_sigma[low] + w * ms->log_sigma[high]);
}

float ms_sigma(const struct msampling *ms, float timestep)
{
    switch (ms->cfg.table) {
    case MS_DISCRETE:
        return discrete_sigma(ms, timestep);
    case MS_CONTINUOUS_EDM:
        return expf(timestep / (float)EDM_TIME);
    case MS_CONTINUOUS_V:
        return tanf(timestep * (float)PI / 2);
    case MS_FLOW: {
        float t = timestep / (float)ms->cfg.multiplier, shift = (float)ms->cfg.shift;
        return ms->cfg.shift == 1 ? t : shift * t / (1 + (float)(ms->cfg.shift - 1) * t);
    }
    case MS_CASCADE:
        return cascade_sigma(ms->cfg.shift, timestep);
    case MS_FLUX:
        break;
    }
    float e = (float)exp(ms->cfg.shift);
    return 1 / (e + (1 / timestep - 1)) * e;
}

double ms_percent(const struct msampling *ms, double percent)
{
    bool shifted = ms->cfg.table == MS_FLOW || ms->cfg.table == MS_FLUX;
    if (percent <= 0)
        return shifted ? 1 : 999999999.9;
    if (percent >= 1)
        return 0;
    double t = 1 - percent, shift = ms->cfg.shift, e;
    switch (ms->cfg.table) {
    case MS_FLOW:
        return shift == 1 ? t : shift * t / (1 + (shift - 1) * t);
    case MS_FLUX:
        e = exp(shift);
        return e / (e + (1 / t - 1));
    case MS_CONTINUOUS_EDM:
    case MS_CONTINUOUS_V: {
        double lo = log(ms_sigma_min(ms)), hi = log(ms_sigma_max(ms));
        return exp((hi - lo) * t + lo);
    }
    case MS_CASCADE:
        return cascade_sigma(shift, (float)t);
    case MS_DISCRETE:
        break;
    }
    return ms_sigma(ms, (float)(t * 999.0));
}

bool ms_max_denoise(const struct msampling *ms, float sigma)
{
    double max = ms_sigma_max(ms), s = sigma;
    return s > max || fabs(max - s) <= 1e-5 * fmax(fabs(max), fabs(s));
}

/* ---- scalings ---- */

/* sigma^2 + sigma_data^2 */
static float variance(const struct msampling *ms, float sigma)
{
    return sigma * sigma + (float)(ms->cfg.sigma_data * ms->cfg.sigma_data);
}

static void copy(const float *x, float *out, size_t n)
{
    for (size_t i = 0; out != x && i < n; i++)
        out[i] = x[i];
}

void ms_input(const struct msampling *ms, float sigma, const float *x, float *out, size_t n)
{
    if (ms_is_flow(ms) || ms->cfg.type == MS_IMG_TO_IMG) {
        copy(x, out, n);
        return;
    }
    float by = sqrtf(variance(ms, sigma));
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] / by;
}

/* LCM: x0 fades into x as the timestep nears 0. */
static void lcm_denoised(const struct msampling *ms, float sigma, const float *model,
                         const float *x, float *out, size_t n)
{
    float t = ms_timestep(ms, sigma) * 10, data = 0.25f; /* 0.5 squared */
    float skip = 1 / (t * t + data) * data, keep = t / sqrtf(t * t + data);
    for (size_t i = 0; i < n; i++)
        out[i] = keep * (x[i] - model[i] * sigma) + skip * x[i];
}

/* sign: -1 V, 1 EDM. */
static void v_denoised(const struct msampling *ms, float sigma, float sign, const float *model,
                       const float *x, float *out, size_t n)
{
    double d = ms->cfg.sigma_data;
    float var = variance(ms, sigma), data = (float)d, data2 = (float)(d * d), by = sqrtf(var);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * data2 / var + sign * (model[i] * sigma * data / by);
}

void ms_denoised(const struct msampling *ms, float sigma, const float *model, const float *x,
                 float *out, size_t n)
{
    switch (ms->cfg.type) {
    case MS_V:
    case MS_EDM:
        v_denoised(ms, sigma, ms->cfg.type == MS_V ? -1.0f : 1.0f, model, x, out, n);
        return;
    case MS_X0:
    case MS_IMG_TO_IMG:
    case MS_IMG_TO_IMG_FLOW:
        copy(model, out, n);
        return;
    case MS_EPS:
    case MS_CONST:
        break;
    }
    if (ms->cfg.lcm && ms->cfg.type == MS_EPS) {
        lcm_denoised(ms, sigma, model, x, out, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] - model[i] * sigma;
}

void ms_noise(const struct msampling *ms, float sigma, const float *noise, const float *latent,
              bool max_denoise, float *out, size_t n)
{
    float by = max_denoise && !ms_is_flow(ms) ? sqrtf(1 + sigma * sigma) : sigma;
    float keep = ms_is_flow(ms) ? 1 - sigma : 1, scale = (float)ms_noise_scale(ms);
    if (ms->cfg.type == MS_IMG_TO_IMG_FLOW) {
        copy(latent, out, n);
        return;
    }
    if (scale != 1) {
        for (size_t i = 0; i < n; i++)
            out[i] = by * (scale * noise[i]) + keep * latent[i];
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = noise[i] * by + keep * latent[i];
}

void ms_finish(const struct msampling *ms, float sigma, float *x, size_t n)
{
    if (!ms_is_flow(ms))
        return;
    for (size_t i = 0; i < n; i++)
        x[i] = ms->cfg.type == MS_CONST ? x[i] / (1 - sigma) : 1 - x[i];
}
