/* samplers_dpm.c: DPM-Solver in the noise's form: two steps in one, the fast list of orders, the
 * adaptive one. */
#include "base/arena.h"
#include "sample/march.h"

#include <math.h>

/* ---- dpm_2: a second slope half way in log sigma ---- */
static berth_status midpoint(struct march *m, float to, berth_err *err)
{
    float *d = m->tmp[0], *x2 = m->tmp[1], *D2 = m->tmp[2];
    march_slope(m, d, m->x, m->s, m->D);
    if (to == 0) {
        mix(m, m->x, { 1, m->x }, { to - m->s, d });
        return BERTH_OK;
    }
    float mid = expf(march_lerp(logf(m->s), logf(to), 0.5f));
    mix(m, x2, { 1, m->x }, { mid - m->s, d });
    if (march_denoise(m, x2, mid, D2, err))
        return err->code;
    march_slope(m, d, x2, mid, D2);
    mix(m, m->x, { 1, m->x }, { to - m->s, d });
    return BERTH_OK;
}

berth_status step_dpm_2(struct march *m, berth_err *err)
{
    return midpoint(m, m->t, err);
}

berth_status step_dpm_2_ancestral(struct march *m, berth_err *err)
{
    float down, up, keep = 1;
    if (m->flow)
        march_ancestral_flow(m->s, m->t, m->opt.eta, &down, &keep, &up);
    else
        march_ancestral(m->s, m->t, m->opt.eta, &down, &up);
    if (midpoint(m, down, err))
        return err->code;
    if (down == 0)
        return BERTH_OK;
    return march_add_noise(m, m->x, keep, m->t, (float)m->opt.s_noise * up, err);
}

/* ---- one step of order 1, 2 or 3 in t = -log sigma ---- */
enum { EPS, DIFF, DIFF2, AT, LOW, HIGH, PREV, BUFFERS }; /* tmp[] */

static float time_of(float sigma)
{
    return -logf(sigma);
}

static float sigma_of(float t)
{
    return expf(-t);
}

/* tmp[out] = noise seen at (x, t), less tmp[EPS] unless that is the one asked for. */
static berth_status eps(struct march *m, int out, const float *x, float t, berth_err *err)
{
    float *e = m->tmp[out], *D = out == EPS ? m->D : e;
    if (march_denoise(m, x, sigma_of(t), D, err))
        return err->code;
    march_slope(m, e, x, sigma_of(t), D);
    if (out != EPS)
        mix(m, e, { 1, e }, { -1, m->tmp[EPS] });
    return BERTH_OK;
}

/* Needs tmp[EPS] at (x, t); each leaves what the next order can use. */
static void order_1(struct march *m, float t, float next, float *out)
{
    mix(m, out, { 1, m->x }, { -sigma_of(next) * expm1f(next - t), m->tmp[EPS] });
}

static berth_status second_eps(struct march *m, float t, float h, double r, berth_err *err)
{
    float s1 = t + (float)r * h;
    mix(m, m->tmp[AT], { 1, m->x }, { -sigma_of(s1) * expm1f((float)r * h), m->tmp[EPS] });
    return eps(m, DIFF, m->tmp[AT], s1, err);
}

static void order_2(struct march *m, float t, float next, double r, float *out)
{
    float to = sigma_of(next), e = expm1f(next - t);
    mix(m, out, { 1, m->x }, { -to * e, m->tmp[EPS] },
        { -(to / (float)(2 * r)) * e, m->tmp[DIFF] });
}

static berth_status order_3(struct march *m, float t, float next, float *out, berth_err *err)
{
    const double r1 = 1.0 / 3, r2 = 2.0 / 3;
    float h = next - t, r2h = (float)r2 * h, s2 = t + r2h, to = sigma_of(next);
    float ahead = -sigma_of(s2) * (float)(r2 / r1) * (expm1f(r2h) / r2h - 1);
    mix(m, m->tmp[AT], { 1, m->x }, { -sigma_of(s2) * expm1f(r2h), m->tmp[EPS] },
        { ahead, m->tmp[DIFF] });
    if (eps(m, DIFF2, m->tmp[AT], s2, err))
        return err->code;
    mix(m, out, { 1, m->x }, { -to * expm1f(h), m->tmp[EPS] },
        { -(to / (float)r2) * (expm1f(h) / h - 1), m->tmp[DIFF2] });
    return BERTH_OK;
}

/* From the first level to the last one above 0. */
static berth_status ends(const struct march *m, float *t, float *end, berth_err *err)
{
    float lo = m->sigma[m->steps], hi = m->sigma[0];
    if (lo == 0)
        lo = m->sigma[m->steps - 1];
    if (!(lo > 0 && hi > 0))
        return err_set(err, BERTH_EINVAL, "levels from %g to %g, they must be above 0", (double)hi,
                       (double)lo);
    *t = time_of(hi);
    *end = time_of(lo);
    return BERTH_OK;
}

/* n > 1 points, as torch's: from both ends, so that both are met. */
static void linspace(float a, float b, size_t n, float *out)
{
    float step = (b - a) / (float)(n - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = i < n / 2 ? a + (float)i * step : b - (float)(n - 1 - i) * step;
}

/* ---- dpm_fast: as many network calls as the list has steps, in thirds ---- */
berth_status step_dpm_fast(struct march *m, berth_err *err)
{
    size_t calls = m->steps, spans = calls / 3 + 1, threes = calls % 3 ? spans - 1 : spans - 2;
    float from = 0, to = 0, *ts = arena_array(m->mem, spans + 1, sizeof *ts);
    if (!ts)
        return err_set(err, BERTH_ENOMEM, "%zu times", spans + 1);
    if (ends(m, &from, &to, err))
        return err->code;
    linspace(from, to, spans + 1, ts);
    for (size_t i = 0; i < spans; i++) {
        m->i = i;
        float t = ts[i], next = ts[i + 1];
        size_t order = i < threes ? 3 : calls % 3 ? calls % 3 : spans - i; /* the end: 2, then 1 */
        if (eps(m, EPS, m->x, t, err) || march_tell(m, i, sigma_of(t), m->x, m->D, err))
            return err->code;
        if (order > 1 && second_eps(m, t, next - t, order == 3 ? 1.0 / 3 : 0.5, err))
            return err->code;
        if (order == 1)
            order_1(m, t, next, m->x);
        else if (order == 2)
            order_2(m, t, next, 0.5, m->x);
        else if (order_3(m, t, next, m->x, err))
            return err->code;
        if (march_noise(m, sigma_of(t), sigma_of(next), err) || /* drawn, and not used */
            march_check(m, i, sigma_of(t), err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- dpm_adaptive: two orders, and the step their difference allows ---- */
/* How far two results lie apart, in tolerances. */
static double apart(const struct march *m, const float *low, const float *high, const float *prev)
{
    float relative = (float)m->opt.adaptive.relative, least = (float)m->opt.adaptive.absolute;
    double sum = 0;
    for (size_t i = 0; i < m->n; i++) {
        float d =
            (low[i] - high[i]) / fmaxf(least, relative * fmaxf(fabsf(low[i]), fabsf(prev[i])));
        sum += (double)d * (double)d;
    }
    return sqrt(sum) / sqrt((double)m->n);
}

/* tmp[LOW] and tmp[HIGH] at `next`; tmp[EPS] is there. */
static berth_status both(struct march *m, float t, float next, berth_err *err)
{
    bool three = m->opt.order == 3;
    double r = three ? 1.0 / 3 : 0.5;
    if (second_eps(m, t, next - t, r, err))
        return err->code;
    if (three) {
        order_2(m, t, next, r, m->tmp[LOW]);
        return order_3(m, t, next, m->tmp[HIGH], err);
    }
    order_1(m, t, next, m->tmp[LOW]);
    order_2(m, t, next, r, m->tmp[HIGH]);
    return BERTH_OK;
}

/* How much longer the next step may be, by the errors of this one and the last ones that were
 * taken (proportional, integral, differential): 1 / error each, newest first; *last is set. */
static double step_factor(const struct march *m, double off, double order, double last[3])
{
    const struct sample_adaptive *a = &m->opt.adaptive;
    double inverse = 1 / (off + 1e-8);
    for (size_t i = 0; i < 3 && !(last[i] > 0); i++)
        last[i] = inverse;
    last[0] = inverse;
    double f = pow(last[0], (a->p + a->i + a->d) / order) *
               pow(last[1], -(a->p + 2 * a->d) / order) * pow(last[2], a->d / order);
    return 1 + atan(f - 1);
}

berth_status step_dpm_adaptive(struct march *m, berth_err *err)
{
    float t = 0, end = 0, up = 0;
    double eta = m->opt.eta, h = fabs(m->opt.adaptive.first), last[3] = { 0 };
    if (m->opt.order != 2 && m->opt.order != 3)
        return err_set(err, BERTH_EINVAL, "order %d is neither 2 nor 3", m->opt.order);
    if (ends(m, &t, &end, err))
        return err->code;
    bool forward = end > t;
    if (!forward && eta != 0)
        return err_set(err, BERTH_EINVAL, "eta must be 0 when the levels rise");
    h = forward ? h : -h;
    march_set(m, m->tmp[PREV], m->x);
    for (size_t i = 0; forward ? t < end - 1e-5f : t > end + 1e-5f; i++) {
        m->i = i < m->steps ? i : m->steps - 1;
        float next = t + (float)h;
        next = forward == (next > end) ? end : next;
        if (next == t || isnan(next))
            return err_set(err, BERTH_EINVAL, "step %zu: no step from sigma %.4g is small enough",
                           i + 1, (double)sigma_of(t));
        float to = next;
        if (eta != 0) {
            float down;
            march_ancestral(sigma_of(t), sigma_of(next), eta, &down, &up);
            to = fminf(end, time_of(down));
            up = sqrtf(sigma_of(next) * sigma_of(next) - sigma_of(to) * sigma_of(to));
        }
        if (eps(m, EPS, m->x, t, err) || both(m, t, to, err))
            return err->code;
        double off = (double)(float)apart(m, m->tmp[LOW], m->tmp[HIGH], m->tmp[PREV]);
        double factor = step_factor(m, off, eta != 0 ? 1.5 : (double)m->opt.order, last);
        h *= factor;
        if (factor >= m->opt.adaptive.accept) {
            last[2] = last[1];
            last[1] = last[0];
            march_set(m, m->tmp[PREV], m->tmp[LOW]);
            if (march_noise(m, sigma_of(t), sigma_of(next), err))
                return err->code;
            mix(m, m->x, { 1, m->tmp[HIGH] }, { (float)m->opt.s_noise * up, m->noise });
            t = next;
        } else if (isnan(factor)) {
            march_set(m, m->x, m->tmp[HIGH]); /* where the NaN is: the check says so */
        }
        if (march_tell(m, i, sigma_of(t), m->x, m->D, err) || march_check(m, i, sigma_of(t), err))
            return err->code;
    }
    return BERTH_OK;
}
