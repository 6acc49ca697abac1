/* samplers_multistep.c: one network call a step, and slopes (or D) of earlier steps to bend the
 * path. */
#include "sample/march.h"

#include <math.h>

/* ---- lms: Adams-Bashforth over uneven levels ---- */
#define NODES (SAMPLE_MAX_ORDER / 2)

/* Gauss-Legendre on -1..1: n nodes integrate degree 2n - 1 exactly. */
static void gauss(size_t n, double *at, double *weight)
{
    const double pi = 3.14159265358979323846;
    for (size_t i = 0; i < n; i++) {
        double z = cos(pi * ((double)i + 0.75) / ((double)n + 0.5)), slope = 1;
        for (int newton = 0; newton < 50; newton++) {
            double p = 1, before = 0;
            for (size_t k = 0; k < n; k++) { /* Legendre's recurrence */
                double next = ((2 * (double)k + 1) * z * p - (double)k * before) / (double)(k + 1);
                before = p;
                p = next;
            }
            slope = (double)n * (z * p - before) / (z * z - 1);
            z -= p / slope;
            if (fabs(p / slope) < 1e-15)
                break;
        }
        at[i] = z;
        weight[i] = 2 / ((1 - z * z) * slope * slope);
    }
}

/* The integral from s to t of Lagrange's polynomial j over the last `order` levels. */
static double adams(const struct march *m, size_t order, size_t j, const double *at,
                    const double *weight)
{
    double s = (double)m->s, t = (double)m->t, sum = 0;
    const float *level = m->sigma + m->i;
    for (size_t q = 0; q < (order + 1) / 2; q++) {
        double tau = s + (t - s) * (at[q] + 1) / 2, prod = 1;
        for (size_t k = 0; k < order; k++)
            if (k != j)
                prod *= (tau - (double)level[-(ptrdiff_t)k]) /
                        ((double)level[-(ptrdiff_t)j] - (double)level[-(ptrdiff_t)k]);
        sum += weight[q] * prod;
    }
    return sum * (t - s) / 2;
}

berth_status step_lms(struct march *m, berth_err *err)
{
    (void)err;
    march_slope(m, m->tmp[0], m->x, m->s, m->D);
    march_keep(m, &m->tmp[0]);
    if (m->t == 0) {
        march_set(m, m->x, m->D);
        return BERTH_OK;
    }
    double at[NODES], weight[NODES];
    struct term term[SAMPLE_MAX_ORDER];
    gauss((m->have + 1) / 2, at, weight);
    for (size_t j = 0; j < m->have; j++)
        term[j] = (struct term) { (float)adams(m, m->have, j, at, weight), m->old[j] };
    march_mix(m, m->tmp[0], term, m->have);
    mix(m, m->x, { 1, m->x }, { 1, m->tmp[0] });
    return BERTH_OK;
}

/* ---- x += dt (c0 d + c1 d1 + ...), d's of the last three steps ---- */
static berth_status adams_step(struct march *m, float dt, const float c[4])
{
    float *d = m->tmp[0], *sum = m->tmp[1];
    march_slope(m, d, m->x, m->s, m->D);
    if (m->t == 0) {
        march_set(m, m->x, m->D);
    } else {
        struct term term[4] = { { c[0], d } };
        for (size_t k = 0; k < m->have; k++)
            term[k + 1] = (struct term) { c[k + 1], m->old[k] };
        march_mix(m, sum, term, m->have + 1);
        mix(m, m->x, { 1, m->x }, { dt, sum });
    }
    march_keep(m, &m->tmp[0]);
    return BERTH_OK;
}

berth_status step_ipndm(struct march *m, berth_err *err)
{
    static const float of[4][4] = {
        { 1 }, { 3, -1 }, { 23, -16, 5 }, { 55, -59, 37, -9 } /* as if the levels were even */
    };
    static const float over[4] = { 1, 2, 12, 24 };
    (void)err;
    return adams_step(m, (m->t - m->s) / over[m->have], of[m->have]);
}

/* The same for uneven levels: h, then the steps before it. */
berth_status step_ipndm_v(struct march *m, berth_err *err)
{
    const float *level = m->sigma + m->i;
    float h = m->t - m->s, h1 = m->have > 0 ? m->s - level[-1] : 1;
    float h2 = m->have > 1 ? level[-1] - level[-2] : 1,
          h3 = m->have > 2 ? level[-2] - level[-3] : 1;
    float c[4] = { 1 };
    (void)err;
    if (m->have > 0) {
        c[0] = (2 + h / h1) / 2;
        c[1] = -(h / h1) / 2;
    }
    if (m->have > 1) {
        float a = (1 - h / (3 * (h + h1)) * (h * (h + h1)) / (h1 * (h1 + h2))) / 2;
        c[0] += a;
        c[1] -= (1 + h1 / h2) * a;
        c[2] = a * h1 / h2;
    }
    if (m->have > 2) {
        float b =
            ((1 - h / (3 * (h + h1))) / 2 + (1 - h / (2 * (h + h1))) * h / (6 * (h + h1 + h2))) *
            (h * (h + h1) * (h + h1 + h2)) / (h1 * (h1 + h2) * (h1 + h2 + h3));
        float q = h1 * (h1 + h2) / (h2 * (h2 + h3));
        c[0] += b;
        c[1] -= (1 + h1 / h2 + q) * b;
        c[2] += (h1 / h2 + q * (1 + h2 / h3)) * b;
        c[3] = -b * q * h1 / h2;
    }
    return adams_step(m, h, c);
}

/* ---- deis: the same idea in the time of a VP process from 0.002 to 80, integrated in 10000
 *      points ---- */
#define DEIS_POINTS 10000

struct vp {
    float beta_d, beta_min;
};

static struct vp deis_vp(void)
{
    const float eps = 1e-3f, lo = logf(0.002f * 0.002f + 1), hi = logf(80.0f * 80.0f + 1);
    float d = 2 * (lo / eps - hi) / (float)(1e-3 - 1);
    return (struct vp) { d, hi - 0.5f * d };
}

static float vp_time(struct vp v, float sigma)
{
    float root = sqrtf(v.beta_min * v.beta_min + 2 * v.beta_d * logf(sigma * sigma + 1));
    return (root - v.beta_min) / v.beta_d;
}

/* c[k] for the slope k steps ago. */
static void deis_coefficients(const struct march *m, size_t order, float c[3])
{
    struct vp v = deis_vp();
    float t[3], next = vp_time(v, m->t), b0 = v.beta_min, b1 = v.beta_d + v.beta_min;
    double sum[3] = { 0 };
    for (size_t k = 0; k < order; k++)
        t[k] = vp_time(v, m->sigma[m->i - k]);
    float step = (next - t[0]) / (DEIS_POINTS - 1);
    for (size_t p = 0; p < DEIS_POINTS; p++) {
        float tau = p < DEIS_POINTS / 2 ? t[0] + (float)p * step
                                        : next - (float)(DEIS_POINTS - 1 - p) * step;
        float alpha = expf(-0.5f * (tau * tau) * (b1 - b0) - tau * b0);
        float slope = -((b1 - b0) * tau) - b0; /* of log alpha */
        float value = -0.5f * slope / sqrtf(alpha * (1 - alpha));
        for (size_t j = 0; j < order; j++) {
            float poly = 1;
            for (size_t k = 0; k < order; k++)
                if (k != j)
                    poly *= (tau - t[k]) / (t[j] - t[k]);
            sum[j] += (double)(value * poly);
        }
    }
    for (size_t j = 0; j < order; j++)
        c[j] = (float)sum[j] * ((next - t[0]) / DEIS_POINTS);
}

berth_status step_deis(struct march *m, berth_err *err)
{
    float *d = m->tmp[0], c[3];
    size_t order = m->t > 0 ? m->have + 1 : 1;
    (void)err;
    march_slope(m, d, m->x, m->s, m->D);
    if (order > 1)
        deis_coefficients(m, order, c);
    if (order == 1)
        mix(m, m->x, { 1, m->x }, { m->t - m->s, d });
    else if (order == 2)
        mix(m, m->x, { 1, m->x }, { c[0], d }, { c[1], m->old[0] });
    else
        mix(m, m->x, { 1, m->x }, { c[0], d }, { c[1], m->old[0] }, { c[2], m->old[1] });
    march_keep(m, &m->tmp[0]);
    return BERTH_OK;
}

/* ---- res_multistep: second order from the last D ---- */
static void res_second_order(struct march *m, const float *D, float down)
{
    float t = -logf(m->s), h = -logf(down) - t;
    float c2 = (-logf(m->sigma[m->i - 1]) - -logf(m->carry[0])) / h;
    float phi1 = expm1f(-h) / -h, phi2 = (phi1 - 1) / -h;
    float b1 = march_no_nan(phi1 - phi2 / c2), b2 = march_no_nan(phi2 / c2), *sum = m->tmp[0];
    if (m->U) { /* sums are rounded: the reference's order, here and below */
        mix(m, sum, { 1, m->D }, { -1, m->U });
        mix(m, m->x, { 1, m->x }, { 1, sum });
    }
    mix(m, sum, { b1, D }, { b2, m->old[0] });
    mix(m, m->x, { expf(-h), m->x }, { h, sum });
}

berth_status step_res_multistep(struct march *m, berth_err *err)
{
    float down, up, *d = m->tmp[0], **D = m->U ? &m->U : &m->D;
    march_ancestral(m->s, m->t, m->opt.eta, &down, &up);
    if (down != 0 && m->have) {
        res_second_order(m, *D, down);
    } else {
        march_slope(m, d, m->x, m->s, *D);
        if (m->U)
            mix(m, m->x, { 1, m->D }, { down, d });
        else
            mix(m, m->x, { 1, m->x }, { down - m->s, d });
    }
    if (m->t > 0) { /* drawn also where up is 0 */
        if (march_add_noise(m, m->x, 1, m->t, (float)m->opt.s_noise * up, err))
            return err->code;
    }
    march_keep(m, D);
    m->carry[0] = down;
    return BERTH_OK;
}

/* ---- gradient_estimation: Euler, and gamma - 1 times how the slope changed ---- */
berth_status step_gradient_estimation(struct march *m, berth_err *err)
{
    float *d = m->tmp[0], *change = m->tmp[1], dt = m->t - m->s;
    (void)err;
    march_slope(m, d, m->x, m->s, m->U ? m->U : m->D);
    if (m->t == 0) {
        march_set(m, m->x, m->D);
    } else {
        if (m->U)
            mix(m, m->x, { 1, m->D }, { m->t, d });
        else
            mix(m, m->x, { 1, m->x }, { dt, d });
        if (m->have) {
            mix(m, change, { 1, d }, { -1, m->old[0] });
            mix(m, m->x, { 1, m->x }, { (float)(m->opt.gamma - 1) * dt, change });
        }
    }
    march_keep(m, &m->tmp[0]);
    return BERTH_OK;
}
