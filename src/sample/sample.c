/* sample.c: which samplers there are, and what a run of any of them consists of. */
#include "sample/sample.h"

#include "base/arena.h"
#include "sample/march.h"

#include <math.h>
#include <string.h>

#define SAMPLER(n, how, buffers, olds, what, ...)                                                  \
    { .name = #n,                                                                                  \
      .flags = what,                                                                               \
      .scratch = buffers,                                                                          \
      .history = olds,                                                                             \
      .own = { __VA_ARGS__ },                                                                      \
      .step = step_##how },
#define SAMPLER_LOOP(n, how, buffers, olds, what, ...)                                             \
    SAMPLER(n, how, buffers, olds, (what) | SAMPLER_LOOPS, __VA_ARGS__)
static const struct sampler all[] = {
#include "sample/samplers.def"
};
#undef SAMPLER
#undef SAMPLER_LOOP

const struct sample_options sample_defaults = { .eta = NAN,
                                                .s_noise = NAN,
                                                .r = NAN,
                                                .s_churn = NAN,
                                                .s_tmin = NAN,
                                                .s_tmax = NAN,
                                                .gamma = NAN,
                                                .s_noise_end = NAN };

size_t sampler_count(void)
{
    return sizeof all / sizeof *all;
}

const struct sampler *sampler_at(size_t i)
{
    if (i >= sampler_count())
        BUG("sampler %zu of %zu", i, sampler_count());
    return &all[i];
}

const struct sampler *sampler_find(const char *name)
{
    for (size_t i = 0; i < sampler_count(); i++)
        if (!strcmp(all[i].name, name))
            return &all[i];
    return NULL;
}

/* ---- what a march asks of the outside ---- */
berth_status march_denoise(struct march *m, const float *x, float sigma, float *D, berth_err *err)
{
    berth_status s = m->j->denoise(m->j->user, x, sigma, D, m->U, err);
    return s && s != BERTH_ECANCELED
               ? err_add(err, "step %zu of %zu, sigma %.4g", m->i + 1, m->steps, (double)sigma)
               : s;
}

bool march_noisy(const struct march *m)
{
    return m->opt.eta > 0 && m->opt.s_noise > 0;
}

berth_status march_noise(struct march *m, float sigma, float sigma_next, berth_err *err)
{
    if (m->tree)
        return brownian_noise(m->tree, sigma, sigma_next, m->noise, err);
    if (m->how->flags & SAMPLER_TREE)
        return err_set(err, BERTH_EINVAL, "%s needs two different sigmas above 0 for its noise",
                       m->how->name);
    if (m->j->cuda)
        philox_randn(&m->j->card, m->noise, m->n);
    else
        torch_randn(&m->j->rng, m->noise, m->n);
    return BERTH_OK;
}

berth_status march_add_noise(struct march *m, float *x, float keep, float to, float by,
                             berth_err *err)
{
    if (march_noise(m, m->s, to, err))
        return err->code;
    mix(m, x, { keep, x }, { by, m->noise });
    return BERTH_OK;
}

berth_status march_tell(struct march *m, size_t i, float sigma, const float *x, const float *D,
                        berth_err *err)
{
    struct sample_step step = { .i = i < m->steps ? i : m->steps - 1,
                                .total = m->steps,
                                .sigma = sigma,
                                .x = x,
                                .denoised = D };
    return m->j->step ? m->j->step(m->j->user, &step, err) : BERTH_OK;
}

berth_status march_check(struct march *m, size_t i, float sigma, berth_err *err)
{
    for (size_t k = 0; k < m->n; k++)
        if (!isfinite(m->x[k]))
            return err_set(err, BERTH_EINVAL, "%s in the latent after step %zu of %zu (sigma %.4g)",
                           isnan(m->x[k]) ? "NaN" : "infinity", i + 1, m->steps, (double)sigma);
    return BERTH_OK;
}

/* ---- the run ---- */
static double asked_or_own(double asked, double own)
{
    return isnan(asked) ? own : asked;
}

static struct sample_options resolve(const struct sample_options *o,
                                     const struct sample_options *own)
{
    static const struct sample_adaptive adaptive = {
        .relative = 0.05, .absolute = 0.0078, .first = 0.05, .i = 1, .accept = 0.81
    };
    double s_noise = asked_or_own(o->s_noise, own->s_noise);
    return (struct sample_options) { .eta = asked_or_own(o->eta, own->eta),
                                     .s_noise = s_noise,
                                     .s_noise_end = asked_or_own(o->s_noise_end, s_noise),
                                     .noise_clip = o->noise_clip,
                                     .adaptive = o->adaptive.said ? o->adaptive : adaptive,
                                     .er = { .stages = o->er.stages ? o->er.stages : 3,
                                             .noise = o->er.noise },
                                     .sa = o->sa,
                                     .r = asked_or_own(o->r, own->r),
                                     .s_churn = asked_or_own(o->s_churn, 0),
                                     .s_tmin = asked_or_own(o->s_tmin, 0),
                                     .s_tmax = asked_or_own(o->s_tmax, HUGE_VAL),
                                     .order = o->order ? o->order : own->order,
                                     .heun = o->heun || own->heun,
                                     .gamma = asked_or_own(o->gamma, own->gamma) };
}

static berth_status buffer(struct march *m, float **out, berth_err *err)
{
    *out = arena_array(m->mem, m->n, sizeof **out);
    return *out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a buffer of %zu numbers", m->n);
}

static berth_status buffers(struct march *m, berth_err *err)
{
    const struct sampler *s = m->how;
    if (s->scratch > MARCH_SCRATCH)
        BUG("%s wants %u buffers of %d", s->name, s->scratch, MARCH_SCRATCH);
    if (buffer(m, &m->D, err) || buffer(m, &m->noise, err) ||
        ((s->flags & SAMPLER_UNCOND) && buffer(m, &m->U, err)))
        return err->code;
    for (size_t i = 0; i < s->scratch; i++)
        if (buffer(m, &m->tmp[i], err))
            return err->code;
    m->olds = s->history;
    if (s->flags & SAMPLER_ORDER)
        m->olds = (size_t)m->opt.order < m->steps ? (size_t)m->opt.order : m->steps;
    m->old = arena_array(m->mem, m->olds ? m->olds : 1, sizeof *m->old);
    if (!m->old)
        return err_set(err, BERTH_ENOMEM, "%zu steps of history", m->olds);
    for (size_t i = 0; i < m->olds; i++)
        if (buffer(m, &m->old[i], err))
            return err->code;
    return BERTH_OK;
}

/* The levels, with the first one a flow's logarithms can live with. */
static berth_status levels(struct march *m, berth_err *err)
{
    const struct sample_job *j = m->j;
    m->sigma = j->sigma;
    if (!(m->how->flags & SAMPLER_OFF_ONE) || !m->flow || !(j->sigma[0] >= 1))
        return BERTH_OK;
    float *own = arena_array(m->mem, j->sigmas, sizeof *own);
    if (!own)
        return err_set(err, BERTH_ENOMEM, "%zu sigmas", j->sigmas);
    memcpy(own, j->sigma, j->sigmas * sizeof *own);
    own[0] = (float)ms_percent(j->ms, 1e-4);
    m->sigma = own;
    return BERTH_OK;
}

/* Between the smallest level above 0 and the largest; none when these are one. */
static berth_status plant(struct march *m, berth_err *err)
{
    float lo = HUGE_VALF, hi = 0;
    for (size_t i = 0; i < m->j->sigmas; i++) {
        float s = m->j->sigma[i];
        lo = s > 0 && s < lo ? s : lo;
        hi = s > hi ? s : hi;
    }
    if (!(lo < hi))
        return BERTH_OK;
    return brownian_new(m->j->seed, lo, hi, m->n,
                        m->how->flags & SAMPLER_TREE_THERE ? m->j->cuda : 0, &m->tree, err);
}

/* Noise of its own before a step (Karras' algorithm 2): the level rises to m->s. The reference
 * takes it from the generators that are there anyway: the cpu's has made the latent's noise, the
 * card's was seeded with it and is fresh. */
static void churn(struct march *m)
{
    const struct sample_options *o = &m->opt;
    double gamma = fmin(o->s_churn / (double)m->steps, sqrt(2) - 1);
    if (!(o->s_churn > 0 && o->s_tmin <= (double)m->s && (double)m->s <= o->s_tmax))
        return;
    float s = m->s;
    m->s = s * (float)(gamma + 1);
    if (m->j->cuda)
        philox_randn(&m->churn_card, m->noise, m->n);
    else
        torch_randn(&m->churn, m->noise, m->n);
    mix(m, m->x, { 1, m->x }, { (float)o->s_noise * sqrtf(m->s * m->s - s * s), m->noise });
}

static berth_status walk(struct march *m, berth_err *err)
{
    for (m->i = 0; m->i < m->steps; m->i++) {
        float s = m->sigma[m->i];
        m->s = s;
        m->t = m->sigma[m->i + 1];
        if (m->how->flags & SAMPLER_CHURN)
            churn(m);
        bool lands = m->t == 0 && m->how->flags & SAMPLER_LANDS;
        if (march_denoise(m, m->x, m->s, m->D, err) || march_tell(m, m->i, s, m->x, m->D, err))
            return err->code;
        if (lands)
            march_set(m, m->x, m->D);
        if ((!lands && m->how->step(m, err)) || march_check(m, m->i, s, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status sample_run(const struct sampler *s, struct sample_job *j, berth_err *err)
{
    struct arena mem = { 0 };
    j->last = j->sigmas ? j->sigma[j->sigmas - 1] : 0;
    torch_seed(&j->rng, j->seed + 1);
    philox_seed(&j->card, j->seed, j->cuda);
    if (j->sigmas < 2)
        return BERTH_OK;
    struct march m = { .j = j,
                       .how = s,
                       .n = j->n,
                       .steps = j->sigmas - 1,
                       .x = j->x,
                       .opt = resolve(&j->opt, &s->own),
                       .flow = ms_is_flow(j->ms),
                       .mem = &mem };
    if (s->flags & SAMPLER_MODEL_NOISE)
        m.opt.s_noise *= ms_noise_scale(j->ms);
    if ((s->flags & SAMPLER_ORDER) && (m.opt.order < 1 || m.opt.order > SAMPLE_MAX_ORDER))
        return err_set(err, BERTH_EINVAL, "%s: order %d is not 1..%d", s->name, m.opt.order,
                       SAMPLE_MAX_ORDER);
    berth_status rc = buffers(&m, err);
    if (!rc)
        rc = levels(&m, err);
    if (!rc && (s->flags & SAMPLER_TREE))
        rc = plant(&m, err);
    if (!rc && (s->flags & SAMPLER_CHURN) && m.opt.s_churn > 0) {
        philox_seed(&m.churn_card, j->seed, j->cuda);
        torch_seed(&m.churn, j->seed);
        torch_randn(&m.churn, m.noise, m.n); /* the latent's */
    }
    if (!rc)
        rc = s->flags & SAMPLER_LOOPS ? s->step(&m, err) : walk(&m, err);
    brownian_free(m.tree);
    arena_release(&mem);
    return rc ? err_add(err, "%s", s->name) : BERTH_OK;
}
