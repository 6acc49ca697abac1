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
    return march_add_noise(m, m->x, keep, m->t, (float)m->opt.s_noise * up, err);
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

berth_status step_two_s(struct march *m, berth_err *err)
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
    return march_add_noise(m, m->x, 1, m->t, (float)m->opt.s_noise * up, err);
}

berth_status step_dpmpp_2s_ancestral(struct march *m, berth_err *err)
{
    return m->flow ? two_s_flow(m, err) : step_two_s(m, err);
}

/* ---- dpmpp_2m: D of the last step instead ---- */
berth_status step_dpmpp_2m(struct march *m, berth_err *err)
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

berth_status step_dpmpp_2m_cfg_pp(struct march *m, berth_err *err)
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
    return march_add_noise(m, out, 1, to, alpha_to * (float)m->opt.s_noise * up, err);
}

berth_status step_dpmpp_sde(struct march *m, berth_err *err)
{
    float *x2 = m->tmp[0], *D2 = m->tmp[1];
    double r = m->opt.r, fac = 1 / (2 * r);
    float from = march_snr(m, m->s), to = march_snr(m, m->t), mid = from + (float)r * (to - from);
    float sigma_mid = march_snr_sigma(m, mid);
    if (sde_part(m, from, sigma_mid, mid, m->D, x2, err) ||
        march_denoise(m, x2, sigma_mid, D2, err))
        return err->code;
    mix(m, D2, { (float)(1 - fac), m->D }, { (float)fac, D2 });
    return sde_part(m, from, m->t, to, D2, m->x, err);
}

berth_status step_dpmpp_2m_sde(struct march *m, berth_err *err)
{
    float *diff = m->tmp[0], eta = (float)m->opt.eta;
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
        float up = m->t * sqrtf(-expm1f(-2 * h * eta)) * (float)m->opt.s_noise;
        if (march_add_noise(m, m->x, 1, m->t, up, err))
            return err->code;
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

berth_status step_dpmpp_3m_sde(struct march *m, berth_err *err)
{
    float eta = (float)m->opt.eta;
    float from = march_snr(m, m->s), to = march_snr(m, m->t), h = to - from;
    float he = h * (float)(m->opt.eta + 1), alpha = m->t * expf(to);
    mix(m, m->x, { m->t / m->s * expf(-h * eta), m->x }, { alpha * -expm1f(-he), m->D });
    if (m->have)
        three_m(m, h, he, alpha);
    if (march_noisy(m)) {
        float up = m->t * sqrtf(-expm1f(-2 * h * eta)) * (float)m->opt.s_noise;
        if (march_add_noise(m, m->x, 1, m->t, up, err))
            return err->code;
    }
    march_keep(m, &m->D);
    m->carry[1] = m->carry[0];
    m->carry[0] = h;
    return BERTH_OK;
}
