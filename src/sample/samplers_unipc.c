/* samplers_unipc.c: UniPC, a predictor and corrector of order 3 in the VP form of the process.
 *
 * x is scaled by 1 / sqrt(1 + sigma^2) while it runs. The scalars are evaluated in float in exactly
 * this form: with small sigmas they cancel, and a nicer form gives other pictures (sampling.md
 * 8). */
#include "sample/march.h"

#include <math.h>

#define ORDER 3
#define LAST 0.001f /* the level that stands for 0 */

enum {
    X0,
    MODEL,
    AT,
    SUM,
    DIFF
}; /* tmp[]: X0 before the order's terms; DIFF and the next: (m_k - m0) / r_k */
#define SCRATCH (DIFF + ORDER - 1)

struct vp { /* one level */
    float sigma, log_alpha, alpha, std, lambda;
};

static struct vp vp_at(float sigma)
{
    struct vp v = { .sigma = sigma, .log_alpha = 0.5f * logf(1 / (sigma * sigma + 1)) };
    v.alpha = expf(v.log_alpha);
    v.std = sqrtf(1 - expf(2 * v.log_alpha));
    v.lambda = v.log_alpha - 0.5f * logf(1 - expf(2 * v.log_alpha));
    return v;
}

/* out = the clean latent as it is seen at (x, v). */
static berth_status clean(struct march *m, const float *x, const struct vp *v, float *out,
                          berth_err *err)
{
    float *at = m->tmp[AT];
    mix(m, at, { sqrtf(v->sigma * v->sigma + 1), x });
    if (march_denoise(m, at, v->sigma, out, err))
        return err->code;
    march_slope(m, out, at, v->sigma, out);
    mix(m, at, { v->std, out });
    march_slope(m, out, x, v->alpha, at);
    return BERTH_OK;
}

/* What a step of order p has: the levels behind it, newest first, and the weights of UniPC's
 * paper. */
struct uni {
    struct vp to, from[ORDER];
    size_t order;
    float B;                        /* B(h) */
    float pred[ORDER], corr[ORDER]; /* rho; corr's last is the new one's */
};

static void weights(struct uni *u, bool bh2)
{
    float h = u->to.lambda - u->from[0].lambda, hh = -h, phi = expm1f(hh) / hh - 1;
    float rk[ORDER], R[ORDER * ORDER], square[ORDER * ORDER], b[ORDER], fact = 1;
    size_t p = u->order;
    for (size_t k = 0; k + 1 < p; k++)
        rk[k] = (u->from[k + 1].lambda - u->from[0].lambda) / h;
    rk[p - 1] = 1;
    u->B = bh2 ? expm1f(hh) : hh;
    for (size_t i = 0; i < p; i++) {
        b[i] = phi * fact / u->B;
        fact *= (float)(i + 2);
        phi = phi / hh - 1 / fact;
        for (size_t k = 0; k < p; k++)
            R[i * p + k] = i == 0 ? 1 : powf(rk[k], (float)i);
    }
    for (size_t i = 0; i + 1 < p; i++) { /* the predictor knows nothing of the new one */
        u->pred[i] = b[i];
        for (size_t k = 0; k + 1 < p; k++)
            square[i * (p - 1) + k] = R[i * p + k];
    }
    if (p == 2)
        u->pred[0] = 0.5f;
    else if (p > 2)
        march_solve(square, u->pred, p - 1);
    for (size_t i = 0; i < p; i++)
        u->corr[i] = b[i];
    if (p == 1)
        u->corr[0] = 0.5f;
    else
        march_solve(R, u->corr, p);
}

/* m->x to u->to; tmp[MODEL] is what the network says there, if it is corrected. */
static berth_status update(struct march *m, struct uni *u, bool bh2, bool correct, berth_err *err)
{
    float **diff = m->tmp + DIFF, *sum = m->tmp[SUM], *model = m->tmp[MODEL];
    size_t p = u->order;
    weights(u, bh2);
    float h = u->to.lambda - u->from[0].lambda, a = -(u->to.alpha * u->B);
    for (size_t k = 0; k + 1 < p; k++)
        march_slope(m, diff[k], m->old[k + 1], (u->from[k + 1].lambda - u->from[0].lambda) / h,
                    m->old[0]);
    mix(m, m->tmp[X0], { u->to.std / u->from[0].std, m->x },
        { -(u->to.alpha * expm1f(-h)), m->old[0] });
    struct term term[ORDER];
    for (size_t k = 0; k + 1 < p; k++)
        term[k] = (struct term) { u->pred[k], diff[k] };
    if (p > 1) {
        march_mix(m, sum, term, p - 1);
        mix(m, m->x, { 1, m->tmp[X0] }, { a, sum });
    } else {
        march_set(m, m->x, m->tmp[X0]);
    }
    if (!correct)
        return BERTH_OK;
    if (clean(m, m->x, &u->to, model, err))
        return err->code;
    for (size_t k = 0; k + 1 < p; k++)
        term[k].c = u->corr[k];
    mix(m, m->tmp[AT], { 1, model }, { -1, m->old[0] });
    term[p - 1] = (struct term) { u->corr[p - 1], m->tmp[AT] };
    march_mix(m, sum, term, p);
    mix(m, m->x, { 1, m->tmp[X0] }, { a, sum });
    return BERTH_OK;
}

/* One update to level k: of low order at first and at the end, not corrected at the very end. */
static berth_status advance(struct march *m, struct uni *u, size_t k, float sigma, size_t order,
                            bool bh2, berth_err *err)
{
    size_t left = m->steps + 1 - k;
    bool correct = k < m->steps;
    u->to = vp_at(sigma);
    u->order = k < order ? k : order < left ? order : left;
    if (update(m, u, bh2, correct, err))
        return err->code;
    for (size_t i = ORDER - 1; i > 0; i--)
        u->from[i] = u->from[i - 1];
    u->from[0] = u->to;
    if (correct)
        march_keep(m, &m->tmp[MODEL]);
    return BERTH_OK;
}

static berth_status unipc(struct march *m, bool bh2, berth_err *err)
{
    size_t order = m->steps - 1 < ORDER ? m->steps - 1 : ORDER;
    float last = m->sigma[m->steps] == 0 ? LAST : m->sigma[m->steps];
    struct uni u = { .from[0] = vp_at(m->sigma[0]) };
    m->j->last = last;
    march_slope(m, m->x, m->x, sqrtf(1 + m->sigma[0] * m->sigma[0]), NULL);
    for (m->i = 0; m->i < m->steps; m->i++) {
        size_t i = m->i;
        m->s = m->sigma[i];
        if (i == 0) {
            if (clean(m, m->x, &u.from[0], m->tmp[MODEL], err))
                return err->code;
            march_keep(m, &m->tmp[MODEL]);
        } else if (advance(m, &u, i, m->s, order, bh2, err)) {
            return err->code;
        }
        if (i > 0 && i + 1 == m->steps && advance(m, &u, m->steps, last, order, bh2, err))
            return err->code;
        if (march_tell(m, i, m->s, m->x, m->old[0], err) || march_check(m, i, m->s, err))
            return err->code;
    }
    march_slope(m, m->x, m->x, vp_at(last).alpha, NULL);
    return BERTH_OK;
}

berth_status step_bh1(struct march *m, berth_err *err)
{
    return unipc(m, false, err);
}

berth_status step_bh2(struct march *m, berth_err *err)
{
    return unipc(m, true, err);
}
