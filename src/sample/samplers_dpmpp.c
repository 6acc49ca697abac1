/* samplers_dpmpp.c: DPM-Solver++, which steps from D to D in half the log SNR (lambda). */
#include "sample/march.h"

#include <math.h>

/* ---- dpmpp_2s_ancestral: D again half way ---- */
static berth_status two_s_flow(struct march *m, berth_err *err)
{
    float down, keep, up, *u = m->tmp[0], *D2 = m->tmp[1];
    march_ancestral_flow(m->s, m->t, m->opt.eta, &down, &keep, &up);
    if (m->t == 0) {
        march_slope(m, u, m->x, m->s, m->D);
        mix(m, m->x, { 1, m->x }, { down - m->s, u });
        return BERTH_OK;
    }
    float mid = 0.9999f;
    if (m->s != 1) {
        float from = logf((1 - m->s) / m->s), to = logf((1 - down) / down);
        mid = 1 / (expf(from + 0.5f * (to - from)) + 1);
    }
    float half = mid / m->s, whole = down / m->s;
    mix(m, u, { half, m->x }, { 1 - half, m->D });
    if (march_denoise(m, u, mid, D2, err))
        return err->code;
    mix(m, m->x, { whole, m->x }, { 1 - whole, D2 });
    if (!(m->t > 0 && m->opt.eta > 0))
        return BERTH_OK;
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    mix(m, m->x, { keep, m->x }, { (float)m->opt.s_noise * up, m->noise });
    return BERTH_OK;
}

/* cfg++ starts from x + (D - U). U is the newest one: after the second call, that of the second
 * call. */
static void start(struct march *m, float *out)
{
    if (m->U)
        mix(m, out, { 1, m->x }, { 1, m->D }, { -1, m->U });
    else
        march_set(m, out, m->x);
}

static berth_status two_s(struct march *m, berth_err *err)
{
    float down, up, *x2 = m->tmp[0], *D2 = m->tmp[1];
    march_ancestral(m->s, m->t, m->opt.eta, &down, &up);
    if (down == 0) {
        march_slope(m, x2, m->x, m->s, m->U ? m->U : m->D);
        if (m->U)
            mix(m, m->x, { 1, m->D }, { down, x2 });
        else
            mix(m, m->x, { 1, m->x }, { down - m->s, x2 });
    } else {
        float t = -logf(m->s), next = -logf(down), h = next - t, mid = expf(-(t + 0.5f * h));
        start(m, x2);
        mix(m, x2, { mid / expf(-t), x2 }, { -expm1f(-h * 0.5f), m->D });
        if (march_denoise(m, x2, mid, D2, err))
            return err->code;
        start(m, x2);
        mix(m, m->x, { expf(-next) / expf(-t), x2 }, { -expm1f(-h), D2 });
    }
    if (!(m->t > 0))
        return BERTH_OK;
    if (march_noise(m, m->s, m->t, err))
        return err->code;
    mix(m, m->x, { 1, m->x }, { (float)m->opt.s_noise * up, m->noise });
    return BERTH_OK;
}

static berth_status dpmpp_2s_ancestral(struct march *m, berth_err *err)
{
    return m->flow ? two_s_flow(m, err) : two_s(m, err);
}
const struct sampler sampler_dpmpp_2s_ancestral = { .name = "dpmpp_2s_ancestral",
                                                    .scratch = 2,
                                                    .own = { .eta = 1, .s_noise = 1 },
                                                    .step = dpmpp_2s_ancestral };
const struct sampler sampler_dpmpp_2s_ancestral_cfg_pp = { .name = "dpmpp_2s_ancestral_cfg_pp",
                                                           .flags = SAMPLER_UNCOND,
                                                           .scratch = 2,
                                                           .own = { .eta = 1, .s_noise = 1 },
                                                           .step = two_s };

/* ---- dpmpp_2m: D of the last step instead ---- */
static berth_status dpmpp_2m(struct march *m, berth_err *err)
{
    (void)err;
    float t = -logf(m->s), next = -logf(m->t), h = next - t;
    float a = expf(-next) / expf(-t), b = -expm1f(-h);
    if (!m->have || m->t == 0) {
        mix(m, m->x, { a, m->x }, { b, m->D });
    } else {
        float r = (t - -logf(m->sigma[m->i - 1])) / h, w = 1 / (2 * r);
        mix(m, m->tmp[0], { 1 + w, m->D }, { -w, m->old[0] });
        mix(m, m->x, { a, m->x }, { b, m->tmp[0] });
    }
    march_keep(m, &m->D);
    return BERTH_OK;
}
const struct sampler sampler_dpmpp_2m = {
    .name = "dpmpp_2m", .scratch = 1, .history = 1, .step = dpmpp_2m
};

static berth_status dpmpp_2m_cfg_pp(struct march *m, berth_err *err)
{
    (void)err;
    float t = -logf(m->s), h = -logf(m->t) - t, e = expf(-h);
    float *ahead = m->tmp[0];
    if (!m->have || m->t == 0) {
        mix(m, ahead, { -e, m->U });
    } else {
        float r = (t - -logf(m->sigma[m->i - 1])) / h, w = -expm1f(-h) * (1 / (2 * r));
        mix(m, ahead, { 1, m->D }, { -1, m->old[0] });
        mix(m, ahead, { -e, m->U }, { w, ahead });
    }
    mix(m, m->x, { 1, m->D }, { 1, ahead }, { e, m->x });
    march_keep(m, &m->U);
    return BERTH_OK;
}
const struct sampler sampler_dpmpp_2m_cfg_pp = { .name = "dpmpp_2m_cfg_pp",
                                                 .flags = SAMPLER_UNCOND,
                                                 .scratch = 1,
                                                 .history = 1,
                                                 .step = dpmpp_2m_cfg_pp };

/* ---- the SDE ones: noise of a Brownian tree, so that it belongs to levels rather than to
 *      steps ---- */
/* out = x moved from (s, lambda) to (to, lambda_to) with D, and noise; one half of dpmpp_sde. */
static berth_status sde_part(struct march *m, float lambda, float to, float lambda_to,
                             const float *D, float *out, berth_err *err)
{
    float down, up, alpha = m->s * expf(lambda), alpha_to = to * expf(lambda_to);
    march_ancestral(expf(-lambda), expf(-lambda_to), m->opt.eta, &down, &up);
    float h = -logf(down) - lambda;
    mix(m, out, { alpha_to / alpha * expf(-h), m->x }, { -alpha_to * expm1f(-h), D });
    if (!march_noisy(m))
        return BERTH_OK;
    if (march_noise(m, m->s, to, err))
        return err->code;
    mix(m, out, { 1, out }, { alpha_to * (float)m->opt.s_noise * up, m->noise });
    return BERTH_OK;
}

static berth_status dpmpp_sde(struct march *m, berth_err *err)
{
    float *x2 = m->tmp[0], *D2 = m->tmp[1];
    if (m->t == 0) {
        march_set(m, m->x, m->D);
        return BERTH_OK;
    }
    double r = m->opt.r, fac = 1 / (2 * r);
    float from = march_snr(m, m->s), to = march_snr(m, m->t), mid = from + (float)r * (to - from);
    float sigma_mid = march_snr_sigma(m, mid);
    if (sde_part(m, from, sigma_mid, mid, m->D, x2, err) ||
        march_denoise(m, x2, sigma_mid, D2, err))
        return err->code;
    mix(m, D2, { (float)(1 - fac), m->D }, { (float)fac, D2 });
    return sde_part(m, from, m->t, to, D2, m->x, err);
}

static berth_status dpmpp_2m_sde(struct march *m, berth_err *err)
{
    float *diff = m->tmp[0], eta = (float)m->opt.eta;
    if (m->t == 0) {
        march_set(m, m->x, m->D);
        march_keep(m, &m->D);
        return BERTH_OK;
    }
    float from = march_snr(m, m->s), to = march_snr(m, m->t), h = to - from;
    float he = h * (float)(m->opt.eta + 1), alpha = m->t * expf(to), b = -expm1f(-he);
    mix(m, m->x, { m->t / m->s * expf(-h * eta), m->x }, { alpha * b, m->D });
    if (m->have) {
        float r = m->carry[0] / h;
        float c = m->opt.heun ? alpha * (b / -he + 1) * (1 / r) : 0.5f * alpha * b * (1 / r);
        mix(m, diff, { 1, m->D }, { -1, m->old[0] });
        mix(m, m->x, { 1, m->x }, { c, diff });
    }
    if (march_noisy(m)) {
        if (march_noise(m, m->s, m->t, err))
            return err->code;
        float up = m->t * sqrtf(-expm1f(-2 * h * eta)) * (float)m->opt.s_noise;
        mix(m, m->x, { 1, m->x }, { up, m->noise });
    }
    march_keep(m, &m->D);
    m->carry[0] = h;
    return BERTH_OK;
}

/* x += what two or one step back add. */
static void three_m(struct march *m, float h, float he, float alpha)
{
    float *a = m->tmp[0], *b = m->tmp[1], r0 = m->carry[0] / h, r1 = m->carry[1] / h;
    float phi2 = expm1f(-he) / he + 1, phi3 = phi2 / he - 0.5f;
    march_slope(m, a, m->D, r0, m->old[0]); /* (D - D1) / r0 */
    if (m->have == 1) {
        mix(m, m->x, { 1, m->x }, { alpha * phi2, a });
        return;
    }
    march_slope(m, b, m->old[0], r1, m->old[1]);
    mix(m, b, { 1, a }, { -1, b });
    mix(m, a, { 1, a }, { r0 / (r0 + r1), b });
    mix(m, m->x, { 1, m->x }, { alpha * phi2, a }, { -(alpha * phi3) / (r0 + r1), b });
}

static berth_status dpmpp_3m_sde(struct march *m, berth_err *err)
{
    float eta = (float)m->opt.eta;
    if (m->t == 0) {
        march_set(m, m->x, m->D);
        return BERTH_OK;
    }
    float from = march_snr(m, m->s), to = march_snr(m, m->t), h = to - from;
    float he = h * (float)(m->opt.eta + 1), alpha = m->t * expf(to);
    mix(m, m->x, { m->t / m->s * expf(-h * eta), m->x }, { alpha * -expm1f(-he), m->D });
    if (m->have)
        three_m(m, h, he, alpha);
    if (march_noisy(m)) {
        if (march_noise(m, m->s, m->t, err))
            return err->code;
        float up = m->t * sqrtf(-expm1f(-2 * h * eta)) * (float)m->opt.s_noise;
        mix(m, m->x, { 1, m->x }, { up, m->noise });
    }
    march_keep(m, &m->D);
    m->carry[1] = m->carry[0];
    m->carry[0] = h;
    return BERTH_OK;
}

/* The `_gpu` ones grow their tree where the latent is; on the host they are the same. */
#define TREE (SAMPLER_TREE | SAMPLER_OFF_ONE)
#define TREE_THERE (TREE | SAMPLER_TREE_THERE)
#define SDE                                                                                        \
    {                                                                                              \
        .eta = 1, .s_noise = 1, .r = 0.5                                                           \
    }
#define SDE_HEUN                                                                                   \
    {                                                                                              \
        .eta = 1, .s_noise = 1, .heun = true                                                       \
    }
const struct sampler sampler_dpmpp_sde = {
    .name = "dpmpp_sde", .flags = TREE, .scratch = 2, .own = SDE, .step = dpmpp_sde
};
const struct sampler sampler_dpmpp_sde_gpu = {
    .name = "dpmpp_sde_gpu", .flags = TREE_THERE, .scratch = 2, .own = SDE, .step = dpmpp_sde
};
const struct sampler sampler_dpmpp_2m_sde = { .name = "dpmpp_2m_sde",
                                              .flags = TREE,
                                              .scratch = 1,
                                              .history = 1,
                                              .own = SDE,
                                              .step = dpmpp_2m_sde };
const struct sampler sampler_dpmpp_2m_sde_gpu = { .name = "dpmpp_2m_sde_gpu",
                                                  .flags = TREE_THERE,
                                                  .scratch = 1,
                                                  .history = 1,
                                                  .own = SDE,
                                                  .step = dpmpp_2m_sde };
const struct sampler sampler_dpmpp_2m_sde_heun = { .name = "dpmpp_2m_sde_heun",
                                                   .flags = TREE,
                                                   .scratch = 1,
                                                   .history = 1,
                                                   .own = SDE_HEUN,
                                                   .step = dpmpp_2m_sde };
const struct sampler sampler_dpmpp_2m_sde_heun_gpu = { .name = "dpmpp_2m_sde_heun_gpu",
                                                       .flags = TREE_THERE,
                                                       .scratch = 1,
                                                       .history = 1,
                                                       .own = SDE_HEUN,
                                                       .step = dpmpp_2m_sde };
const struct sampler sampler_dpmpp_3m_sde = { .name = "dpmpp_3m_sde",
                                              .flags = TREE,
                                              .scratch = 2,
                                              .history = 2,
                                              .own = SDE,
                                              .step = dpmpp_3m_sde };
const struct sampler sampler_dpmpp_3m_sde_gpu = { .name = "dpmpp_3m_sde_gpu",
                                                  .flags = TREE_THERE,
                                                  .scratch = 2,
                                                  .history = 2,
                                                  .own = SDE,
                                                  .step = dpmpp_3m_sde };
