/* samplers_euler.c: Euler and Heun steps along the ODE, and their ancestral forms. */
#include "sample/march.h"

#include <math.h>

berth_status step_euler(struct march *m, berth_err *err)
{
    (void)err;
    march_slope(m, m->tmp[0], m->x, m->s, m->D);
    mix(m, m->x, { 1, m->x }, { m->t - m->s, m->tmp[0] });
    return BERTH_OK;
}

static berth_status euler_flow(struct march *m, berth_err *err)
{
    float down, keep, up;
    if (m->t == 0) {
        march_set(m, m->x, m->D);
        return BERTH_OK;
    }
    march_ancestral_flow(m->s, m->t, m->opt.eta, &down, &keep, &up);
    float to = down / m->s;
    mix(m, m->x, { to, m->x }, { 1 - to, m->D });
    if (!(m->opt.eta > 0))
        return BERTH_OK;
    return march_add_noise(m, m->x, keep, m->t, (float)m->opt.s_noise * up, err);
}

berth_status step_euler_ancestral(struct march *m, berth_err *err)
{
    float down, up, *d = m->tmp[0];
    if (m->flow)
        return euler_flow(m, err);
    march_ancestral(m->s, m->t, m->opt.eta, &down, &up);
    if (down == 0) {
        march_set(m, m->x, m->D);
        return BERTH_OK;
    }
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    march_slope(m, d, m->x, m->s, m->D);
    mix(m, m->x, { 1, m->x }, { down - m->s, d }, { (float)m->opt.s_noise * up, m->noise });
    return BERTH_OK;
}

/* cfg++: to D, and from there along the noise the negative sees. Levels over alpha, 1 for all but
 * flows. */
berth_status step_euler_ancestral_cfg_pp(struct march *m, berth_err *err)
{
    float down, up, *d = m->tmp[0];
    float as = m->s * expf(march_snr(m, m->s)), at = m->t * expf(march_snr(m, m->t));
    mix(m, d, { as, m->U });
    march_slope(m, d, m->x, m->s, d);
    march_ancestral(m->s / as, m->t / at, m->opt.eta, &down, &up);
    mix(m, m->x, { at, m->D }, { at * down, d });
    if (!march_noisy(m))
        return BERTH_OK;
    return march_add_noise(m, m->x, 1, m->t, at * (float)m->opt.s_noise * up, err);
}

/* SamplerEulerCFGpp "alternative": Euler from where the negative's D would be. */
static berth_status step_euler_pp(struct march *m, berth_err *err)
{
    float *d = m->tmp[0];
    (void)err;
    mix(m, d, { 1, m->x }, { -1, m->D }, { 1, m->U });
    march_slope(m, d, d, m->s, m->D);
    mix(m, m->x, { 1, m->x }, { m->t - m->s, d });
    return BERTH_OK;
}

const struct sampler sampler_euler_pp = {
    .name = "euler_pp", .flags = SAMPLER_UNCOND, .scratch = 1, .step = step_euler_pp
};

berth_status step_heun(struct march *m, berth_err *err)
{
    float *d = m->tmp[0], *x2 = m->tmp[1], *D2 = m->tmp[2], dt = m->t - m->s;
    if (m->t == 0)
        return step_euler(m, err);
    march_slope(m, d, m->x, m->s, m->D);
    mix(m, x2, { 1, m->x }, { dt, d });
    if (march_denoise(m, x2, m->t, D2, err))
        return err->code;
    march_slope(m, x2, x2, m->t, D2);
    mix(m, d, { 0.5f, d }, { 0.5f, x2 });
    mix(m, m->x, { 1, m->x }, { dt, d });
    return BERTH_OK;
}

/* Two slopes ahead, weighted by their levels; fewer near the end of the list. */
berth_status step_heunpp2(struct march *m, berth_err *err)
{
    float *d = m->tmp[0], *x2 = m->tmp[1], *d2 = m->tmp[2], *d3 = m->tmp[3];
    float end = m->sigma[m->steps], dt = m->t - m->s, first = m->sigma[0];
    if (m->t == end)
        return step_euler(m, err);
    float u = m->sigma[m->i + 2];
    march_slope(m, d, m->x, m->s, m->D);
    mix(m, x2, { 1, m->x }, { dt, d });
    if (march_denoise(m, x2, m->t, d2, err))
        return err->code;
    march_slope(m, d2, x2, m->t, d2);
    if (u == end) {
        float w2 = m->t / (2 * first);
        mix(m, d, { 1 - w2, d }, { w2, d2 });
    } else {
        mix(m, x2, { 1, x2 }, { u - m->t, d2 });
        if (march_denoise(m, x2, u, d3, err))
            return err->code;
        march_slope(m, d3, x2, u, d3);
        float w2 = m->t / (3 * first), w3 = u / (3 * first);
        mix(m, d, { 1 - w2 - w3, d }, { w2, d2 }, { w3, d3 });
    }
    mix(m, m->x, { 1, m->x }, { dt, d });
    return BERTH_OK;
}

/* At most so many deviations of its own. */
static void clip(float *v, size_t n, double deviations)
{
    double mean = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        mean += (double)v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        sum += ((double)v[i] - mean) * ((double)v[i] - mean);
    float most = (float)deviations * (float)sqrt(sum / (double)(n - 1));
    for (size_t i = 0; i < n; i++)
        v[i] = fminf(fmaxf(v[i], -most), most);
}

/* Straight to the clean latent, and noise again. */
berth_status step_lcm(struct march *m, berth_err *err)
{
    march_set(m, m->x, m->D);
    if (!(m->t > 0))
        return BERTH_OK;
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    double share = m->steps > 1 ? (double)m->i / (double)(m->steps - 1) : 0;
    double by = m->opt.s_noise + (m->opt.s_noise_end - m->opt.s_noise) * share;
    if (m->opt.noise_clip > 0)
        clip(m->noise, m->n, m->opt.noise_clip);
    if (by != 1)
        mix(m, m->noise, { (float)by, m->noise });
    ms_noise(m->j->ms, m->t, m->noise, m->x, false, m->x, m->n);
    return BERTH_OK;
}

/* One step of the Markov chain over alpha-bar. In this order: from a high level to 0 it cancels. */
berth_status step_ddpm(struct march *m, berth_err *err)
{
    float *y = m->tmp[0], *e = m->tmp[1];
    float now = 1 / (m->s * m->s + 1), next = 1 / (m->t * m->t + 1), a = now / next;
    march_slope(m, y, m->x, sqrtf(1 + m->s * m->s), NULL);
    march_slope(m, e, m->x, m->s, m->D);
    mix(m, e, { 1 - a, e });
    march_slope(m, e, e, sqrtf(1 - now), NULL);
    mix(m, m->x, { 1, y }, { -1, e });
    mix(m, m->x, { sqrtf(1 / a), m->x });
    if (m->t > 0) {
        if (march_add_noise(m, m->x, 1, m->t, sqrtf((1 - a) * (1 - next) / (1 - now)), err))
            return err->code;
    }
    if (m->t != 0)
        mix(m, m->x, { sqrtf(1 + m->t * m->t), m->x });
    return BERTH_OK;
}
