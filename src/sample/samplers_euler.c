/* samplers_euler.c: Euler and Heun steps along the ODE, and their ancestral forms. */
#include "sample/march.h"

#include <math.h>

static berth_status euler(struct march *m, berth_err *err)
{
    (void)err;
    march_slope(m, m->tmp[0], m->x, m->s, m->D);
    mix(m, m->x, { 1, m->x }, { m->t - m->s, m->tmp[0] });
    return BERTH_OK;
}
const struct sampler sampler_euler = {
    .name = "euler", .flags = SAMPLER_CHURN, .scratch = 1, .own = { .s_noise = 1 }, .step = euler
};
const struct sampler sampler_ddim = { .name = "ddim",
                                      .flags = SAMPLER_CHURN | SAMPLER_MASK_NOISE,
                                      .scratch = 1,
                                      .own = { .s_noise = 1 },
                                      .step = euler };

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
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    mix(m, m->x, { keep, m->x }, { (float)m->opt.s_noise * up, m->noise });
    return BERTH_OK;
}

static berth_status euler_ancestral(struct march *m, berth_err *err)
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
const struct sampler sampler_euler_ancestral = { .name = "euler_ancestral",
                                                 .scratch = 1,
                                                 .own = { .eta = 1, .s_noise = 1 },
                                                 .step = euler_ancestral };

/* cfg++: to D, and from there along the noise the negative sees. Levels over alpha, 1 for all but
 * flows. */
static berth_status euler_ancestral_cfg_pp(struct march *m, berth_err *err)
{
    float down, up, *d = m->tmp[0];
    if (m->t == 0) {
        march_set(m, m->x, m->D);
        return BERTH_OK;
    }
    float as = m->s * expf(march_snr(m, m->s)), at = m->t * expf(march_snr(m, m->t));
    mix(m, d, { as, m->U });
    march_slope(m, d, m->x, m->s, d);
    march_ancestral(m->s / as, m->t / at, m->opt.eta, &down, &up);
    mix(m, m->x, { at, m->D }, { at * down, d });
    if (!march_noisy(m))
        return BERTH_OK;
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    mix(m, m->x, { 1, m->x }, { at * (float)m->opt.s_noise * up, m->noise });
    return BERTH_OK;
}
const struct sampler sampler_euler_ancestral_cfg_pp = { .name = "euler_ancestral_cfg_pp",
                                                        .flags = SAMPLER_UNCOND,
                                                        .scratch = 1,
                                                        .own = { .eta = 1, .s_noise = 1 },
                                                        .step = euler_ancestral_cfg_pp };
const struct sampler sampler_euler_cfg_pp = {
    .name = "euler_cfg_pp", .flags = SAMPLER_UNCOND, .scratch = 1, .step = euler_ancestral_cfg_pp
};

static berth_status heun(struct march *m, berth_err *err)
{
    float *d = m->tmp[0], *x2 = m->tmp[1], *D2 = m->tmp[2], dt = m->t - m->s;
    if (m->t == 0)
        return euler(m, err);
    march_slope(m, d, m->x, m->s, m->D);
    mix(m, x2, { 1, m->x }, { dt, d });
    if (march_denoise(m, x2, m->t, D2, err))
        return err->code;
    march_slope(m, x2, x2, m->t, D2);
    mix(m, d, { 0.5f, d }, { 0.5f, x2 });
    mix(m, m->x, { 1, m->x }, { dt, d });
    return BERTH_OK;
}
const struct sampler sampler_heun = {
    .name = "heun", .flags = SAMPLER_CHURN, .scratch = 3, .own = { .s_noise = 1 }, .step = heun
};

/* Two slopes ahead, weighted by their levels; fewer near the end of the list. */
static berth_status heunpp2(struct march *m, berth_err *err)
{
    float *d = m->tmp[0], *x2 = m->tmp[1], *d2 = m->tmp[2], *d3 = m->tmp[3];
    float end = m->sigma[m->steps], dt = m->t - m->s, first = m->sigma[0];
    if (m->t == end)
        return euler(m, err);
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
const struct sampler sampler_heunpp2 = { .name = "heunpp2",
                                         .flags = SAMPLER_CHURN,
                                         .scratch = 4,
                                         .own = { .s_noise = 1 },
                                         .step = heunpp2 };

/* Straight to the clean latent, and noise again. */
static berth_status lcm(struct march *m, berth_err *err)
{
    march_set(m, m->x, m->D);
    if (!(m->t > 0))
        return BERTH_OK;
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    ms_noise(m->j->ms, m->t, m->noise, m->x, false, m->x, m->n);
    return BERTH_OK;
}
const struct sampler sampler_lcm = { .name = "lcm", .step = lcm };

/* One step of the Markov chain over alpha-bar. In this order: from a high level to 0 it cancels. */
static berth_status ddpm(struct march *m, berth_err *err)
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
        if (march_noise(m, m->s, m->t, err))
            return err->code;
        mix(m, m->x, { 1, m->x }, { sqrtf((1 - a) * (1 - next) / (1 - now)), m->noise });
    }
    if (m->t != 0)
        mix(m, m->x, { sqrtf(1 + m->t * m->t), m->x });
    return BERTH_OK;
}
const struct sampler sampler_ddpm = { .name = "ddpm", .scratch = 2, .step = ddpm };
