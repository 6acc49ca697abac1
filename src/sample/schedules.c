/* schedules.c: which noise levels a run goes through (sampling.md 4, 5). Each function is the
 * formula of its name; float32 where the reference has tensors, double where it has Python's
 * numbers. */
#include "sample/sigmas.h"

#include <math.h>
#include <string.h>

/* ---- lists ---- */

static bool near_zero(float x)
{
    return fabs((double)x) <= 1e-5;
}

/* make_room() was there before. */
static void add(struct vec *out, float sigma)
{
    float *at = vec_add(out);
    if (!at)
        BUG("no room for level %zu", out->n);
    *at = sigma;
}

/* For any schedule; every way in: the number of steps is an outsider's. */
static berth_status make_room(const struct msampling *ms, size_t steps, struct vec *out,
                              berth_err *err)
{
    if (steps < 1 || steps > SCHEDULE_STEPS_MAX)
        return err_set(err, BERTH_EINVAL, "%zu steps, not 1 to %d", steps, SCHEDULE_STEPS_MAX);
    if (!vec_reserve(out, out->n + (steps > ms->n ? steps : ms->n) + 2))
        return err_set(err, BERTH_ENOMEM, "a list of %zu noise levels", steps + 1);
    return BERTH_OK;
}

/* ---- formulas that need no model ---- */

float sigmas_linspace(double from, double to, size_t n, size_t i)
{
    float a = (float)from, b = (float)to;
    float step = n > 1 ? (b - a) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? a + step * (float)i : b - step * (float)(n - 1 - i);
}

float sigmas_karras(double min, double max, double rho, size_t n, size_t i)
{
    double from = pow(max, 1 / rho), to = pow(min, 1 / rho);
    return powf((float)from + sigmas_linspace(0, 1, n, i) * (float)(to - from), (float)rho);
}

float sigmas_exponential(double min, double max, size_t n, size_t i)
{
    return expf(sigmas_linspace(log(max), log(min), n, i));
}

/* ---- schedules ---- */

/* From timestep to timestep in equal strides. */
static void add_timesteps(const struct msampling *ms, size_t points, size_t take, struct vec *out)
{
    float from = ms_timestep(ms, ms_sigma_max(ms)), to = ms_timestep(ms, ms_sigma_min(ms));
    for (size_t i = 0; i < take; i++)
        add(out, ms_sigma(ms, sigmas_linspace(from, to, points, i)));
}

static void make_normal(const struct msampling *ms, size_t steps, struct vec *out)
{
    bool own_zero = near_zero(ms_sigma(ms, ms_timestep(ms, ms_sigma_min(ms))));
    size_t points = own_zero ? steps + 1 : steps;
    add_timesteps(ms, points, points, out);
    if (!own_zero)
        add(out, 0);
}

static void make_sgm_uniform(const struct msampling *ms, size_t steps, struct vec *out)
{
    add_timesteps(ms, steps + 1, steps, out);
    add(out, 0);
}

static void make_simple(const struct msampling *ms, size_t steps, struct vec *out)
{
    double stride = (double)ms->n / (double)steps;
    for (size_t i = 0; i < steps; i++) {
        size_t back = 1 + (size_t)((double)i * stride);
        add(out, ms->sigma[back < ms->n ? ms->n - back : 0]);
    }
    add(out, 0);
}

static void make_ddim_uniform(const struct msampling *ms, size_t steps, struct vec *out)
{
    bool own_zero = near_zero(ms->sigma[1]);
    size_t stride = ms->n / (own_zero ? steps + 1 : steps);
    stride = stride ? stride : 1;
    size_t last = (ms->n - 2) / stride * stride + 1; /* of 1, 1 + stride, ... below n */
    for (size_t i = last; i >= 1 && i <= last; i -= stride)
        add(out, ms->sigma[i]);
    if (!own_zero)
        add(out, 0);
}

static void make_karras(const struct msampling *ms, size_t steps, struct vec *out)
{
    for (size_t i = 0; i < steps; i++)
        add(out, sigmas_karras(ms_sigma_min(ms), ms_sigma_max(ms), 7, steps, i));
    add(out, 0);
}

static void make_exponential(const struct msampling *ms, size_t steps, struct vec *out)
{
    for (size_t i = 0; i < steps; i++)
        add(out, sigmas_exponential(ms_sigma_min(ms), ms_sigma_max(ms), steps, i));
    add(out, 0);
}

/* Steps dense at both ends: quantiles of a beta distribution. What falls on one level is one
 * step. */
static void beta_spaced(const struct msampling *ms, size_t steps, double alpha, double beta,
                        struct vec *out)
{
    double stride = 1.0 / (double)steps, last = -1;
    for (size_t i = 0; i < steps; i++) {
        double x = beta_quantile(1 - (double)i * stride, alpha, beta);
        double at = nearbyint(x * (double)(ms->n - 1));
        if (at != last)
            add(out, ms->sigma[(size_t)at]);
        last = at;
    }
    add(out, 0);
}

static void make_beta(const struct msampling *ms, size_t steps, struct vec *out)
{
    beta_spaced(ms, steps, 0.6, 0.6, out);
}

/* The first half falls in a line by 0.025 in all, the second half on a parabola to 0. */
static double linear_quadratic(size_t steps, size_t i)
{
    double n = (double)steps, threshold = 0.025, half = (double)(steps / 2), x = (double)i;
    if (i == 0)
        return 0;
    if (i == steps)
        return 1;
    if (i < steps / 2)
        return x * threshold / half;
    double diff = half - threshold * n, rest = n - half;
    double a = diff / (half * (rest * rest)), b = threshold / half - 2 * diff / (rest * rest);
    return a * (x * x) + b * x + a * (half * half);
}

static void make_linear_quadratic(const struct msampling *ms, size_t steps, struct vec *out)
{
    for (size_t i = 0; i <= steps; i++)
        add(out, (float)(1 - linear_quadratic(steps, i)) * ms_sigma_max(ms));
}

static void make_kl_optimal(const struct msampling *ms, size_t steps, struct vec *out)
{
    float lo = (float)atan(ms_sigma_min(ms)), hi = (float)atan(ms_sigma_max(ms));
    for (size_t i = 0; i < steps; i++) {
        float r = steps > 1 ? (float)i / (float)(steps - 1) : 0; /* the reference: 0 / 0 */
        add(out, tanf(r * lo + (1 - r) * hi));
    }
    add(out, 0);
}

/* ---- the list people choose from ---- */

static const struct scheduler all[] = {
#define SCHEDULER(n) { #n, make_##n },
#include "sample/schedulers.def"
#undef SCHEDULER
};

const struct scheduler *scheduler_at(size_t i)
{
    return i < ARRAY_LEN(all) ? &all[i] : NULL;
}

const struct scheduler *scheduler_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (!strcmp(all[i].name, name))
            return &all[i];
    return NULL;
}

/* ---- what nodes ask for ---- */

/* Takes [from, to) out of the list. */
static void cut(struct vec *v, size_t from, size_t to)
{
    char *p = v->p;
    if (from == to)
        return;
    memmove(p + from * v->elem, p + to * v->elem, (v->n - to) * v->elem);
    v->n -= to - from;
}

berth_status sigmas_schedule(const struct msampling *ms, const struct scheduler *how, size_t steps,
                             struct vec *out, berth_err *err)
{
    if (make_room(ms, steps, out, err))
        return err_add(err, "schedule '%s'", how->name);
    how->make(ms, steps, out);
    return BERTH_OK;
}

static berth_status schedule(const struct msampling *ms, const struct scheduler *how, size_t steps,
                             bool discard_penultimate, struct vec *out, berth_err *err)
{
    size_t before = out->n;
    if (sigmas_schedule(ms, how, discard_penultimate ? steps + 1 : steps, out, err))
        return err->code;
    if (discard_penultimate && out->n - before >= 2)
        cut(out, out->n - 2, out->n - 1);
    return BERTH_OK;
}

berth_status sample_sigmas(const struct msampling *ms, const struct scheduler *s, size_t steps,
                           double denoise, bool discard_penultimate, struct vec *out,
                           berth_err *err)
{
    if (denoise > 0.9999)
        return schedule(ms, s, steps, discard_penultimate, out, err);
    if (!(denoise > 0))
        return BERTH_OK;
    double wanted = (double)steps / denoise;
    if (!(wanted <= SCHEDULE_STEPS_MAX))
        return err_set(err, BERTH_EINVAL, "%zu steps at a denoise of %g: more than %d in all",
                       steps, denoise, SCHEDULE_STEPS_MAX);
    size_t before = out->n;
    if (schedule(ms, s, (size_t)wanted, discard_penultimate, out, err))
        return err->code;
    size_t got = out->n - before;
    if (got > steps + 1)
        cut(out, before, out->n - (steps + 1));
    return BERTH_OK;
}

void sigmas_range(struct vec *sigmas, size_t start, size_t end, bool force_full_denoise,
                  bool *nothing)
{
    *nothing = false;
    if (sigmas->n && end < sigmas->n - 1) {
        sigmas->n = end + 1;
        if (force_full_denoise)
            *(float *)vec_at(sigmas, end) = 0;
    }
    if (sigmas->n && start < sigmas->n - 1)
        cut(sigmas, 0, start);
    else
        *nothing = true;
}

berth_status sigmas_beta(const struct msampling *ms, size_t steps, double alpha, double beta,
                         struct vec *out, berth_err *err)
{
    if (!(alpha > 0 && alpha <= 1000 && beta > 0 && beta <= 1000))
        return err_set(err, BERTH_EINVAL, "alpha %g and beta %g, not above 0 and up to 1000", alpha,
                       beta);
    if (make_room(ms, steps, out, err))
        return err->code;
    beta_spaced(ms, steps, alpha, beta, out);
    return BERTH_OK;
}

berth_status sigmas_sd_turbo(const struct msampling *ms, size_t steps, double denoise,
                             struct vec *out, berth_err *err)
{
    if (!(denoise >= 0 && denoise <= 1))
        return err_set(err, BERTH_EINVAL, "denoise is %g, not 0 to 1", denoise);
    if (make_room(ms, steps, out, err))
        return err->code;
    for (size_t first = 10 - (size_t)(10 * denoise), i = first; i < 10 && i - first < steps; i++)
        add(out, ms_sigma(ms, (float)((10 - i) * 100 - 1)));
    add(out, 0);
    return BERTH_OK;
}
