/* samplers_sa.c: SA-Solver, a stochastic Adams method with predictor and corrector.
 *
 * m->x is the predicted state, the one the network sees; tmp[0] the corrected one, which
 * predictions start from. Its order falls near the end of a list that ends in 0. */
#include "sample/march.h"

#include <math.h>

#define MOST SAMPLE_SA_ORDER

enum { STATE, NOISE }; /* tmp[] */
enum { TAU };          /* carry[]: of the last prediction */

/* (1 + tau^2) times the integrals from s to t of e^((1 + tau^2) l) l^p, p < n, e^((1 + tau^2) t)
 * taken out. */
static void integrals(float s, float t, float tau, size_t n, float *out)
{
    float mul = 1 + tau * tau, h = t - s, fade = expf(-mul * h), term[MOST];
    float log_fact[MOST] = { 0, 0, logf(2), logf(6), logf(24), logf(120) };
    for (size_t p = 0; p < n; p++)
        term[p] = powf(t, (float)p) - powf(s, (float)p) * fade;
    for (size_t p = 0; p < n; p++) { /* by parts, all the way down */
        out[p] = 0;
        for (size_t q = 0; q <= p; q++) {
            float c = log_fact[p] - log_fact[q] - (tau > 0 ? (float)(p - q) * logf(mul) : 0);
            out[p] += ((p - q) % 2 ? -expf(c) : expf(c)) * term[q];
        }
    }
}

/* b[k] for the D of level i - k, k < n, on the way from level a to level b. */
static void coefficients(const struct march *m, size_t n, size_t a, size_t to, float tau, float *b)
{
    float vander[MOST * MOST], z[MOST];
    float lambda = march_snr(m, m->sigma[to]), alpha = m->sigma[to] * expf(lambda);
    for (size_t k = 0; k < n; k++) {
        float l = march_snr(m, m->sigma[m->i + 1 - n + k]), power = 1;
        for (size_t p = 0; p < n; p++, power *= l)
            vander[p * n + k] = power;
    }
    integrals(march_snr(m, m->sigma[a]), lambda, tau, n, z);
    march_solve(vander, z, n);
    for (size_t k = 0; k < n; k++)
        b[n - 1 - k] = alpha * z[k];
}

/* The same for two D's, by the formulas that the paper's authors use themselves. from + 1 is m->i
 * in a correction. */
static void simple_coefficients(const struct march *m, size_t from, float tau, float *b)
{
    float start = march_snr(m, m->sigma[from]), end = march_snr(m, m->sigma[from + 1]);
    float h = end - start, mul = 1 + tau * tau, alpha = m->sigma[from + 1] * expf(end);
    float all = alpha * -expm1f(-h * mul);
    if (from + 1 == m->i) {
        b[0] = alpha * (0.5f * mul * h);
        b[1] = all - b[0];
    } else {
        b[1] = alpha * (0.5f * mul * (h * h)) / (march_snr(m, m->sigma[m->i - 1]) - start);
        b[0] = all - b[1];
    }
}

/* out = state shrunk + the D's so weighted: from level `from` to the one behind it. */
static void adams(struct march *m, size_t n, size_t from, float tau, float *out)
{
    float b[MOST], h = march_snr(m, m->sigma[from + 1]) - march_snr(m, m->sigma[from]);
    struct term term[MOST + 1];
    if (m->opt.sa.simple && n == 2)
        simple_coefficients(m, from, tau, b);
    else
        coefficients(m, n, from, from + 1, tau, b);
    term[0] = (struct term) { m->sigma[from + 1] / m->sigma[from] * expf(-(tau * tau) * h),
                              m->tmp[STATE] };
    for (size_t k = 0; k < n; k++)
        term[1 + k] = (struct term) { b[k], m->old[k] };
    march_mix(m, out, term, n + 1);
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t predictor(const struct march *m)
{
    return m->opt.sa.said ? (size_t)m->opt.sa.predictor : 3;
}

static size_t corrector(const struct march *m)
{
    return m->opt.sa.said ? (size_t)m->opt.sa.corrector : 4;
}

/* tmp[STATE] and D of it. */
static berth_status correct(struct march *m, bool pece, berth_err *err)
{
    size_t order = m->i == 0 || (m->t == 0 && !pece) ? 0 : at_most(corrector(m), m->have);
    if (m->sigma[m->steps] == 0)
        order = at_most(order, m->steps - m->i);
    if (order == 0) {
        march_set(m, m->tmp[STATE], m->x);
        return BERTH_OK;
    }
    adams(m, order, m->i - 1, m->carry[TAU], m->tmp[STATE]);
    if (m->carry[TAU] > 0 && m->opt.s_noise > 0)
        mix(m, m->tmp[STATE], { 1, m->tmp[STATE] }, { 1, m->tmp[NOISE] });
    return pece ? march_denoise(m, m->tmp[STATE], m->s, m->old[0], err) : BERTH_OK;
}

static berth_status predict(struct march *m, berth_err *err)
{
    size_t order = at_most(predictor(m), m->have);
    if (m->sigma[m->steps] == 0)
        order = at_most(order, m->steps - 1 - m->i);
    if (m->t == 0) {
        march_set(m, m->x, m->old[0]);
        return BERTH_OK;
    }
    double sigma = (double)m->t; /* noise in the middle of the way only */
    double from = m->opt.sa.said ? m->opt.sa.from : ms_percent(m->j->ms, 0.2);
    double to = m->opt.sa.said ? m->opt.sa.to : ms_percent(m->j->ms, 0.8);
    bool inside = from >= sigma && sigma >= to;
    float tau = inside ? (float)m->opt.eta : 0;
    adams(m, order, m->i, tau, m->x);
    m->carry[TAU] = tau;
    if (!(tau > 0 && m->opt.s_noise > 0))
        return BERTH_OK;
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    float h = march_snr(m, m->t) - march_snr(m, m->s);
    float up = m->t * sqrtf(-expm1f(-2 * (tau * tau) * h)) * (float)m->opt.s_noise;
    mix(m, m->tmp[NOISE], { up, m->noise });
    mix(m, m->x, { 1, m->x }, { 1, m->tmp[NOISE] });
    return BERTH_OK;
}

berth_status step_sa_solver(struct march *m, berth_err *err)
{
    march_keep(m, &m->D);
    return correct(m, false, err) ? err->code : predict(m, err);
}

berth_status step_sa_solver_pece(struct march *m, berth_err *err)
{
    march_keep(m, &m->D);
    return correct(m, true, err) ? err->code : predict(m, err);
}
