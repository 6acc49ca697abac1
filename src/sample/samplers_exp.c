/* samplers_exp.c: stochastic exponential integrators in half the log SNR: SEEDS, exponential Heun,
 * ER-SDE. */
#include "sample/march.h"

#include <math.h>

/* h phi_2(h) */
static float phi2(float h)
{
    return (expm1f(h) - h) / h;
}

/* ---- SEEDS: stages at shares r of a step of length h, the noise of one carried into the
 *      next ---- */
struct stage {
    float sigma, alpha;
};

static struct stage stage_at(const struct march *m, float from, float to, double r)
{
    float lambda = march_lerp(from, to, (float)r), sigma = march_snr_sigma(m, lambda);
    return (struct stage) { sigma, sigma * expf(lambda) };
}

/* x's share in what a stage starts from. */
static float shrink(const struct march *m, float sigma, double r, float h)
{
    return sigma / m->s * expf((float)-r * h * (float)m->opt.eta);
}

/* out += noise from r0 to r1, levels a to b, on top of what tmp[0] carries; r0 = 0: the first. */
static berth_status seeds_noise(struct march *m, float *out, double r0, double r1, float a, float b,
                                float h, berth_err *err)
{
    float *carried = m->tmp[0], eta = (float)m->opt.eta;
    if (!march_noisy(m))
        return BERTH_OK;
    if (march_noise(m, a, b, err))
        return err->code;
    if (r0 == 0) {
        mix(m, carried, { sqrtf(-expm1f((float)(-2 * r1) * h * eta)), m->noise });
    } else {
        float f = (float)(r0 - r1) * h * eta;
        mix(m, carried, { expf(f), carried }, { sqrtf(-expm1f(f * 2)), m->noise });
    }
    mix(m, out, { 1, out }, { b * (float)m->opt.s_noise, carried });
    return BERTH_OK;
}

static berth_status two_stages(struct march *m, bool second_order, berth_err *err)
{
    float *x2 = m->tmp[1], *D2 = m->tmp[2];
    double r = m->opt.r;
    float from = march_snr(m, m->s), to = march_snr(m, m->t), h = to - from;
    float he = h * (float)(m->opt.eta + 1), alpha = m->t * expf(to);
    struct stage one = stage_at(m, from, to, r);
    mix(m, x2, { shrink(m, one.sigma, r, h), m->x }, { -one.alpha * expm1f((float)-r * he), m->D });
    if (seeds_noise(m, x2, 0, r, m->s, one.sigma, h, err) ||
        march_denoise(m, x2, one.sigma, D2, err))
        return err->code;
    if (second_order) {
        float b2 = phi2(-he) / (float)r, b1 = expm1f(-he) - b2;
        mix(m, D2, { b1, m->D }, { b2, D2 });
        mix(m, m->x, { shrink(m, m->t, 1, h), m->x }, { -alpha, D2 });
    } else {
        float w = (float)(1 / (2 * r));
        mix(m, D2, { 1 - w, m->D }, { w, D2 });
        mix(m, m->x, { shrink(m, m->t, 1, h), m->x }, { -alpha * expm1f(-he), D2 });
    }
    return seeds_noise(m, m->x, r, 1, one.sigma, m->t, h, err);
}

berth_status step_seeds_2(struct march *m, berth_err *err)
{
    return two_stages(m, false, err);
}

berth_status step_exp_heun(struct march *m, berth_err *err)
{
    return two_stages(m, true, err);
}

berth_status step_seeds_3(struct march *m, berth_err *err)
{
    const double r1 = 1.0 / 3, r2 = 2.0 / 3;
    float *at = m->tmp[1], *D2 = m->tmp[2];
    float from = march_snr(m, m->s), to = march_snr(m, m->t), h = to - from;
    float he = h * (float)(m->opt.eta + 1), alpha = m->t * expf(to);
    struct stage one = stage_at(m, from, to, r1), two = stage_at(m, from, to, r2);

    mix(m, at, { shrink(m, one.sigma, r1, h), m->x },
        { -one.alpha * expm1f((float)-r1 * he), m->D });
    if (seeds_noise(m, at, 0, r1, m->s, one.sigma, h, err) ||
        march_denoise(m, at, one.sigma, D2, err))
        return err->code;

    float a2 = (float)(r2 / r1) * phi2((float)-r2 * he), a1 = expm1f((float)-r2 * he) - a2;
    mix(m, D2, { a1, m->D }, { a2, D2 });
    mix(m, at, { shrink(m, two.sigma, r2, h), m->x }, { -two.alpha, D2 });
    if (seeds_noise(m, at, r1, r2, one.sigma, two.sigma, h, err) ||
        march_denoise(m, at, two.sigma, D2, err))
        return err->code;

    float b3 = phi2(-he) / (float)r2, b1 = expm1f(-he) - b3;
    mix(m, D2, { b1, m->D }, { b3, D2 });
    mix(m, m->x, { shrink(m, m->t, 1, h), m->x }, { -alpha, D2 });
    return seeds_noise(m, m->x, r2, 1, two.sigma, m->t, h, err);
}

/* ---- er_sde: up to three D's, with the noise scaled by f(lambda), lambda = sigma / alpha
 *      here ---- */
#define ER_POINTS 200

static float er_scale(const struct march *m, float v)
{
    float eta = (float)m->opt.eta;
    if (m->opt.er.noise == ER_ODE)
        return v;
    if (m->opt.er.noise == ER_REVERSE)
        return powf(v, eta + 1);
    float by = expf(powf(v, 0.3f)) + 10;
    return v * (eta == 1 ? by : powf(by, eta));
}

static float er_lambda(const struct march *m, size_t i)
{
    return expf(-march_snr(m, m->sigma[i]));
}

/* The two sums over the interval, from t back to s. */
static void er_sums(const struct march *m, float s, float t, float *one, float *two)
{
    float step = -(t - s) / ER_POINTS;
    double sum = 0, weighted = 0;
    for (int k = 0; k < ER_POINTS; k++) {
        float p = t + (float)k * step, f = er_scale(m, p);
        sum += (double)(1 / f);
        weighted += (double)((p - s) / f);
    }
    *one = (float)sum * step;
    *two = (float)weighted * step;
}

berth_status step_er_sde(struct march *m, berth_err *err)
{
    float *Dd = m->tmp[0], *Du = m->tmp[2]; /* tmp[1]: Dd of the step before */
    float s = er_lambda(m, m->i), t = er_lambda(m, m->i + 1);
    float alpha_s = m->s / s, alpha = m->t / t, r = er_scale(m, t) / er_scale(m, s);
    mix(m, m->x, { alpha / alpha_s * r, m->x }, { alpha * (1 - r), m->D });
    if (m->i >= 1 && m->opt.er.stages >= 2) {
        float dt = t - s, sum, weighted;
        er_sums(m, s, t, &sum, &weighted);
        march_slope(m, Dd, m->D, s - er_lambda(m, m->i - 1), m->old[0]);
        mix(m, m->x, { 1, m->x }, { alpha * (dt + sum * er_scale(m, t)), Dd });
        if (m->i >= 2 && m->opt.er.stages >= 3) {
            march_slope(m, Du, Dd, (s - er_lambda(m, m->i - 2)) / 2, m->tmp[1]);
            mix(m, m->x, { 1, m->x }, { alpha * (dt * dt / 2 + weighted * er_scale(m, t)), Du });
        }
        m->tmp[0] = m->tmp[1];
        m->tmp[1] = Dd;
    }
    if (m->opt.s_noise > 0) {
        float up = sqrtf(t * t - s * s * (r * r));
        if (march_add_noise(m, m->x, 1, m->t, alpha * (float)m->opt.s_noise * march_no_nan(up),
                            err))
            return err->code;
    }
    march_keep(m, &m->D);
    return BERTH_OK;
}
