/* sigmas.c: noise levels that need no model: schedules by formula and by table, and lists cut,
 * turned and typed by hand. SIGMAS is a tensor of one dimension, one value more than there are
 * steps.
 *
 * Numbers follow torch: float32 where it has tensors, double where it has Python's floats. */
#include "sample/sigmas.h"
#include "node/node_impl.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static berth_status sigmas_new(size_t n, struct htensor **out, berth_err *err)
{
    return htensor_new(&(struct shape) { .ndim = 1, .dim = { n } }, out, err);
}

static berth_status in_fraction(const struct node_call *c, const char *name, double *out,
                                berth_err *err)
{
    berth_status s = in_f64(c, name, out, err);
    if (!s && !(*out >= 0 && *out <= 1))
        s = err_set(err, BERTH_EINVAL, "%s is %g, not 0 to 1", name, *out);
    return s;
}

/* ---- by formula ---- */

struct range {
    uint64_t steps;
    double max, min, rho;
};

struct formula {
    float (*level)(const struct range *r, size_t i);
    bool rho;  /* has that input */
    bool logs; /* wants levels above 0 */
};

static float karras(const struct range *r, size_t i)
{
    return sigmas_karras(r->min, r->max, r->rho, r->steps, i);
}

static float exponential(const struct range *r, size_t i)
{
    return sigmas_exponential(r->min, r->max, r->steps, i);
}

static float polyexponential(const struct range *r, size_t i)
{
    double min = log(r->min), span = log(r->max) - min;
    float ramp = powf(sigmas_linspace(1, 0, r->steps, i), (float)r->rho);
    return expf(ramp * (float)span + (float)min);
}

static berth_status formula_run(struct node_call *c, berth_err *err)
{
    const struct formula *f = c->cls->own;
    struct range r = { .rho = 1 };
    struct htensor *t;
    if (in_steps(c, &r.steps, err) || in_f64(c, "sigma_max", &r.max, err) ||
        in_f64(c, "sigma_min", &r.min, err) || (f->rho && in_f64(c, "rho", &r.rho, err)))
        return err->code;
    if (f->logs && !(r.max > 0 && r.min > 0))
        return err_set(err, BERTH_EINVAL, "sigmas from %g to %g: their logarithms want more than 0",
                       r.max, r.min);
    if (!f->logs && r.rho == 0)
        return err_set(err, BERTH_EINVAL, "rho is 0");
    if (sigmas_new(r.steps + 1, &t, err))
        return err->code;
    for (size_t i = 0; i < r.steps; i++)
        t->data[i] = f->level(&r, i);
    t->data[r.steps] = 0;
    return out_tensor(c, 0, t, err);
}

#define FORMULA(...)                                                                               \
    OUT_OF("SIGMAS"), .run = formula_run, .own = &(const struct formula)                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define RANGE_IN                                                                                   \
    INT_IN("steps", 20, 1, 10000, 0),                                                              \
        FLOAT_IN("sigma_max", 14.614642, 0.0, 5000.0, 0.01, .round = "false"),                     \
        FLOAT_IN("sigma_min", 0.0291675, 0.0, 5000.0, 0.01, .round = "false")
#define RHO_IN(def) FLOAT_IN("rho", def, 0.0, 100.0, 0.01, .round = "false")

CUSTOM_SAMPLING(KarrasScheduler, "/schedulers", INS(RANGE_IN, RHO_IN(7.0)),
                FORMULA(karras, .rho = true));
CUSTOM_SAMPLING(ExponentialScheduler, "/schedulers", INS(RANGE_IN),
                FORMULA(exponential, .logs = true));
CUSTOM_SAMPLING(PolyexponentialScheduler, "/schedulers", INS(RANGE_IN, RHO_IN(1.0)),
                FORMULA(polyexponential, .rho = true, .logs = true));

/* ---- Ideogram4Scheduler: a logit-normal over the picture's size ---- */

/* The value that a share p of a normal's numbers are below: Newton's steps from a rough one. */
static double normal_quantile(double p)
{
    if (p <= 0 || p >= 1)
        return p <= 0 ? -HUGE_VAL : HUGE_VAL;
    double q = p < 0.5 ? p : 1 - p, t = sqrt(-2 * log(q));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    for (int i = 0; i < 8; i++) { /* of the tail beyond x */
        double tail = 0.5 * erfc(x / sqrt(2.0));
        x += (tail - q) / (exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846));
    }
    return p < 0.5 ? -x : x;
}

static berth_status ideogram_run(struct node_call *c, berth_err *err)
{
    uint64_t steps, w, h;
    double mu, std;
    struct htensor *t;
    if (in_steps(c, &steps, err) || in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err) ||
        in_f64(c, "mu", &mu, err) || in_f64(c, "std", &std, err))
        return err->code;
    if (!steps || !w || !h || !isfinite(mu) || !isfinite(std))
        return err_set(err, BERTH_EINVAL, "%" PRIu64 " steps over %" PRIu64 "x%" PRIu64, steps, w,
                       h);
    if (sigmas_new(steps + 1, &t, err))
        return err->code;
    double mean = mu + 0.5 * log((double)w * (double)h / (512.0 * 512.0));
    double low = 1 / (1 + exp(9.0)), high = 1 / (1 + exp(-7.5)); /* of log SNRs from -15 to 18 */
    for (size_t i = 0; i < steps; i++) {
        double u = 1 - (double)i / (double)steps;
        double v = 1 - 1 / (1 + exp(-(mean + std * normal_quantile(u))));
        v = v < low ? low : v > high ? high : v;
        t->data[i] = (float)(1 - v);
    }
    t->data[steps] = 0;
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(Ideogram4Scheduler, .display = "Ideogram 4 Scheduler",
           .category = "model/sampling/schedulers", V3("ideogram4"),
           INS(INT_IN("steps", 20, 1, 200, 0), INT_IN("width", 1024, 256, 8192, 16),
               INT_IN("height", 1024, 256, 8192, 16), FLOAT_IN("mu", 0.0, -10.0, 10.0, 0.05),
               FLOAT_IN("std", 1.75, 0.1, 5.0, 0.05)),
           OUT_OF("SIGMAS"), .run = ideogram_run);

/* ---- LaplaceScheduler, VPScheduler ---- */

static berth_status laplace_run(struct node_call *c, berth_err *err)
{
    uint64_t steps;
    double max, min, mu, beta;
    struct htensor *t;
    if (in_steps(c, &steps, err) || in_f64(c, "sigma_max", &max, err) ||
        in_f64(c, "sigma_min", &min, err) || in_f64(c, "mu", &mu, err) ||
        in_f64(c, "beta", &beta, err) || sigmas_new(steps, &t, err))
        return err->code;
    for (size_t i = 0; i < steps; i++) { /* no 0 behind them: so it is in the reference */
        float far = 0.5f - sigmas_linspace(0, 1, steps, i);
        float sign = far > 0 ? 1.0f : far < 0 ? -1.0f : 0.0f;
        float l = (float)mu - (float)beta * sign * logf(1 - 2 * fabsf(far) + 1e-5f);
        t->data[i] = fminf(fmaxf(expf(l), (float)min), (float)max);
    }
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(
    LaplaceScheduler, .category = "model/sampling/schedulers", V3("custom_sampler"),
    INS(INT_IN("steps", 20, 1, 10000, 0),
        FLOAT_IN("sigma_max", 14.614642, 0.0, 5000.0, 0.01, .round = "false", .more = ADVANCED),
        FLOAT_IN("sigma_min", 0.0291675, 0.0, 5000.0, 0.01, .round = "false", .more = ADVANCED),
        FLOAT_IN("mu", 0.0, -10.0, 10.0, 0.1, .round = "false", .more = ADVANCED),
        FLOAT_IN("beta", 0.5, 0.0, 10.0, 0.1, .round = "false", .more = ADVANCED)),
    OUT_OF("SIGMAS"), .run = laplace_run);

static berth_status vp_run(struct node_call *c, berth_err *err)
{
    uint64_t steps;
    double beta_d, beta_min, eps;
    struct htensor *t;
    if (in_steps(c, &steps, err) || in_f64(c, "beta_d", &beta_d, err) ||
        in_f64(c, "beta_min", &beta_min, err) || in_f64(c, "eps_s", &eps, err) ||
        sigmas_new(steps + 1, &t, err))
        return err->code;
    for (size_t i = 0; i < steps; i++) {
        float x = sigmas_linspace(1, eps, steps, i);
        t->data[i] = sqrtf(expm1f((float)beta_d * (x * x) / 2 + (float)beta_min * x));
    }
    t->data[steps] = 0;
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(VPScheduler, .category = "model/sampling/schedulers", V3("custom_sampler"),
           INS(INT_IN("steps", 20, 1, 10000, 0),
               FLOAT_IN("beta_d", 19.9, 0.0, 5000.0, 0.01, .round = "false", .more = ADVANCED),
               FLOAT_IN("beta_min", 0.1, 0.0, 5000.0, 0.01, .round = "false", .more = ADVANCED),
               FLOAT_IN("eps_s", 0.001, 0.0, 1.0, 0.0001, .round = "false", .more = ADVANCED)),
           OUT_OF("SIGMAS"), .run = vp_run);

/* ---- LTXVScheduler: shifted by the number of tokens ---- */

static berth_status in_tokens(const struct node_call *c, double *out, berth_err *err)
{
    const struct latent *l;
    *out = 4096;
    if (!in_given(c, "latent"))
        return BERTH_OK;
    if (in_latent(c, "latent", &l, err))
        return err->code;
    *out = 1;
    for (int i = 2; i < l->samples->shape.ndim; i++)
        *out *= (double)dim(l->samples, i);
    return BERTH_OK;
}

/* The last level that is not 0 becomes `terminal`, the first one stays 1. */
static void stretch(float *p, size_t n, double terminal)
{
    size_t last = n;
    while (last > 0 && p[last - 1] == 0)
        last--;
    float by = last ? (1.0f - p[last - 1]) / (float)(1.0 - terminal) : 0;
    /* One step alone: nothing to stretch. The reference divides by 0, or by what rounding left. */
    for (size_t i = 0; i < last && by > 1e-6f; i++)
        p[i] = 1.0f - (1.0f - p[i]) / by;
}

/* Levels of `steps` steps from 1 to 0, evenly apart except for a shift whose exponential is e. */
static void shifted(float e, uint64_t steps, float *out)
{
    for (size_t i = 0; i <= steps; i++) {
        float x = sigmas_linspace(1, 0, steps + 1, i);
        out[i] = x != 0 ? e * (1 / (e + (1 / x - 1))) : 0;
    }
}

static berth_status ltxv_run(struct node_call *c, berth_err *err)
{
    uint64_t steps;
    double max, base, terminal, tokens;
    bool stretched;
    struct htensor *t;
    if (in_steps(c, &steps, err) || in_f64(c, "max_shift", &max, err) ||
        in_f64(c, "base_shift", &base, err) || in_bool(c, "stretch", &stretched, err) ||
        in_f64(c, "terminal", &terminal, err) || in_tokens(c, &tokens, err))
        return err->code;
    double slope = (max - base) / (4096 - 1024), shift = tokens * slope + (base - slope * 1024);
    float e = (float)exp(shift);
    if (!isfinite(e))
        return err_set(err, BERTH_EINVAL,
                       "max_shift %g and base_shift %g make a shift of %g at %.0f tokens: noise "
                       "levels are no numbers there; take a smaller or shorter video",
                       max, base, shift, tokens);
    if (sigmas_new(steps + 1, &t, err))
        return err->code;
    shifted(e, steps, t->data);
    if (stretched)
        stretch(t->data, steps + 1, terminal);
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(LTXVScheduler, .category = "sampling/custom_sampling/schedulers", V3("lt"),
           INS(INT_IN("steps", 20, 1, 10000, 0), FLOAT_IN("max_shift", 2.05, 0.0, 100.0, 0.01),
               FLOAT_IN("base_shift", 0.95, 0.0, 100.0, 0.01), BOOL_IN("stretch", true),
               FLOAT_IN("terminal", 0.1, 0.0, 0.99, 0.01), OPTIONAL("latent", "LATENT")),
           OUT_OF("SIGMAS"), .run = ltxv_run);

/* ---- Flux2Scheduler: shifted by the size of the picture and the number of steps ---- */

#define FLUX2_PATCH (16.0 * 16.0) /* pixels of a token */
#define FLUX2_MANY 4300           /* tokens; from here on steps do not count */

/* Two lines over the number of tokens, for 10 and for 200 steps, and between them a third. */
static double flux2_shift(double tokens, double steps)
{
    double of_200 = 0.00016927 * tokens + 0.45666666;
    double of_10 = 8.73809524e-05 * tokens + 1.89833333, slope = (of_200 - of_10) / 190.0;
    return tokens > FLUX2_MANY ? of_200 : slope * steps + (of_200 - 200.0 * slope);
}

static berth_status flux2_run(struct node_call *c, berth_err *err)
{
    uint64_t steps, w, h;
    struct htensor *t;
    if (in_steps(c, &steps, err) || in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err))
        return err->code;
    double tokens = nearbyint((double)w * (double)h / FLUX2_PATCH);
    float e = (float)exp(flux2_shift(tokens, (double)steps));
    if (!isfinite(e) || !(e > 0))
        return err_set(err, BERTH_EINVAL, "a picture of %.0f tokens in %" PRIu64 " steps", tokens,
                       steps);
    if (sigmas_new(steps + 1, &t, err))
        return err->code;
    shifted(e, steps, t->data);
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(Flux2Scheduler, .category = "model/sampling/schedulers", V3("flux"),
           INS(INT_IN("steps", 20, 1, 4096, 0), INT_IN("width", 1024, 16, MAX_SIDE, 1),
               INT_IN("height", 1024, 16, MAX_SIDE, 1)),
           OUT_OF("SIGMAS"), .run = flux2_run);

/* ---- AlignYourStepsScheduler: published levels for ten steps, log-linear between them ---- */

#define ALIGNED 11

static const double *aligned_table(const char *model)
{
    static const struct {
        const char *model;
        double at[ALIGNED];
    } table[] = {
        { "SD1",
          { 14.6146412293, 6.4745760956, 3.8636745985, 2.6946151520, 1.8841921177, 1.3943805092,
            0.9642583904, 0.6523686016, 0.3977456272, 0.1515232662, 0.0291671582 } },
        { "SDXL",
          { 14.6146412293, 6.3184485287, 3.7681790315, 2.1811480769, 1.3405244945, 0.8620721141,
            0.5550693289, 0.3798540708, 0.2332364134, 0.1114188177, 0.0291671582 } },
        { "SVD", { 700.0, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002 } },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(model, table[i].model))
            return table[i].at;
    return NULL;
}

/* Level i of `steps` steps. */
static double aligned_at(const double *table, uint64_t steps, uint64_t i)
{
    if (steps + 1 == ALIGNED)
        return table[i];
    double x = (double)i / (double)steps * (ALIGNED - 1);
    size_t k = (size_t)x < ALIGNED - 1 ? (size_t)x : ALIGNED - 2;
    double a = log(table[k]), b = log(table[k + 1]);
    return exp(a + (b - a) * (x - (double)k));
}

static berth_status aligned_run(struct node_call *c, berth_err *err)
{
    uint64_t steps;
    double denoise;
    const char *model;
    struct htensor *t;
    if (in_steps(c, &steps, err) || in_fraction(c, "denoise", &denoise, err) ||
        in_text(c, "model_type", &model, err))
        return err->code;
    const double *table = aligned_table(model);
    if (!table)
        return err_set(err, BERTH_EINVAL, "'%s' has no table", model);
    bool none = denoise <= 0;
    uint64_t left = (uint64_t)nearbyint((double)steps * denoise);
    if (sigmas_new(none ? 0 : left + 1, &t, err))
        return err->code;
    for (uint64_t i = 0; !none && i <= left; i++)
        t->data[i] = i < left ? (float)aligned_at(table, steps, steps - left + i) : 0;
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(AlignYourStepsScheduler, .category = "sampling/custom_sampling/schedulers",
           V3("align_your_steps"),
           INS(COMBO_IN("model_type", CHOICES("SD1", "SDXL", "SVD")),
               INT_IN("steps", 10, 1, 10000, 0), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
           OUT_OF("SIGMAS"), .run = aligned_run);

/* ---- lists as they are ---- */

/* [from, to) of t, cut to what is there, as output i. */
static berth_status out_part(struct node_call *c, size_t i, const struct htensor *t, size_t from,
                             size_t to, berth_err *err)
{
    struct htensor *o;
    size_t n = dim(t, 0);
    to = to < n ? to : n;
    from = from < to ? from : to;
    if (sigmas_new(to - from, &o, err))
        return err->code;
    if (to > from)
        memcpy(o->data, t->data + from, (to - from) * sizeof(float));
    return out_tensor(c, i, o, err);
}

static berth_status split_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    uint64_t step;
    if (in_sigmas(c, &t, err) || in_u64(c, "step", &step, err))
        return err->code;
    step = step < dim(t, 0) ? step : dim(t, 0);
    return out_part(c, 0, t, 0, step + 1, err) ? err->code
                                               : out_part(c, 1, t, step, dim(t, 0), err);
}

CUSTOM_SAMPLING(SplitSigmas, "/sigmas",
                INS(SOCKET("sigmas", "SIGMAS"), INT_IN("step", 0, 0, 10000, 0)),
                OUTS({ .type = "SIGMAS", .name = "high_sigmas" },
                     { .type = "SIGMAS", .name = "low_sigmas" }),
                .run = split_run);

/* denoise 0: nothing is high, and the last level alone is low, as Python cuts at -0. */
static berth_status split_denoise_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    double denoise;
    if (in_sigmas(c, &t, err) || in_fraction(c, "denoise", &denoise, err))
        return err->code;
    size_t n = dim(t, 0), steps = n ? n - 1 : 0;
    size_t low = (size_t)nearbyint((double)steps * denoise);
    return out_part(c, 0, t, 0, low ? n - low : 0, err)
               ? err->code
               : out_part(c, 1, t, n ? n - low - 1 : 0, n, err);
}

CUSTOM_SAMPLING(SplitSigmasDenoise, "/sigmas",
                INS(SOCKET("sigmas", "SIGMAS"), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
                OUTS({ .type = "SIGMAS", .name = "high_sigmas" },
                     { .type = "SIGMAS", .name = "low_sigmas" }),
                .run = split_denoise_run);

static berth_status flip_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    if (in_sigmas(c, &t, err) || sigmas_new(dim(t, 0), &o, err))
        return err->code;
    size_t n = dim(t, 0);
    for (size_t i = 0; i < n; i++)
        o->data[i] = t->data[n - 1 - i];
    if (n && o->data[0] == 0)
        o->data[0] = 0.0001f; /* a sampler cannot start at 0 */
    return out_tensor(c, 0, o, err);
}

CUSTOM_SAMPLING(FlipSigmas, "/sigmas", INS(SOCKET("sigmas", "SIGMAS")), OUT_OF("SIGMAS"),
                .run = flip_run);

static berth_status first_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    double sigma;
    if (in_sigmas(c, &t, err) || in_f64(c, "sigma", &sigma, err))
        return err->code;
    if (!dim(t, 0))
        return err_set(err, BERTH_EINVAL, "an empty list of noise levels has no first one");
    if (sigmas_new(dim(t, 0), &o, err))
        return err->code;
    memcpy(o->data, t->data, dim(t, 0) * sizeof(float));
    o->data[0] = (float)sigma;
    return out_tensor(c, 0, o, err);
}

CUSTOM_SAMPLING(SetFirstSigma, "/sigmas",
                INS(SOCKET("sigmas", "SIGMAS"),
                    FLOAT_IN("sigma", 136.0, 0.0, 20000.0, 0.001, .round = "false")),
                OUT_OF("SIGMAS"), .run = first_run);

/* ---- ExtendIntermediateSigmas ---- */

static double spaced(const char *how, double x)
{
    const double quarter = 3.14159265358979323846 / 2;
    return strcmp(how, "cosine") == 0 ? sin(x * quarter)
           : strcmp(how, "sine") == 0 ? 1 - cos(x * quarter)
                                      : x;
}

static berth_status extend_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t steps;
    double from, to;
    const char *how;
    if (in_sigmas(c, &t, err) || in_steps(c, &steps, err) ||
        in_f64(c, "start_at_sigma", &from, err) || in_f64(c, "end_at_sigma", &to, err) ||
        in_text(c, "spacing", &how, err))
        return err->code;
    size_t n = dim(t, 0), many = 0, at = 0;
    from = from < 0 ? HUGE_VAL : from;
    for (size_t i = 0; i + 1 < n; i++)
        many += to <= (double)t->data[i] && (double)t->data[i] <= from;
    if (many > STEPS_MAX / steps)
        return err_set(err, BERTH_ELIMIT, "%zu levels with %" PRIu64 " steps each", many, steps);
    if (sigmas_new(n + many * (steps - 1), &o, err))
        return err->code;
    for (size_t i = 0; i < n; i++) {
        float s = o->data[at++] = t->data[i];
        bool more = i + 1 < n && to <= (double)s && (double)s <= from;
        for (uint64_t k = 1; more && k < steps; k++)
            o->data[at++] = (float)spaced(how, (double)sigmas_linspace(0, 1, steps + 1, k)) *
                                (t->data[i + 1] - s) +
                            s;
    }
    return out_tensor(c, 0, o, err);
}

NODE_CLASS(ExtendIntermediateSigmas, .category = "model/sampling/sigmas", V3("custom_sampler"),
           INS(SOCKET("sigmas", "SIGMAS"), INT_IN("steps", 2, 1, 100, 0),
               FLOAT_IN("start_at_sigma", -1.0, -1.0, 20000.0, 0.01, .round = "false"),
               FLOAT_IN("end_at_sigma", 12.0, 0.0, 20000.0, 0.01, .round = "false"),
               COMBO_IN("spacing", CHOICES("linear", "cosine", "sine"))),
           OUT_OF("SIGMAS"), .run = extend_run);

static size_t run_of(const char *p, bool dots)
{
    size_t n = 0;
    while (dots ? p[n] == '.' : isdigit((unsigned char)p[n]))
        n++;
    return n;
}

/* Length of the number at p, 0: none. What the reference looks for: a sign, digits, dots, digits;
 * the last of which there must be. So "1e-3" is 1 and -3. */
static size_t number_at(const char *p)
{
    size_t sign = *p == '-' || *p == '+', whole = run_of(p + sign, false);
    size_t dots = run_of(p + sign + whole, true);
    size_t rest = run_of(p + sign + whole + dots, false);
    return rest ? sign + whole + dots + rest : whole ? sign + whole : 0;
}

/* out NULL: only counts. */
static berth_status manual(const char *text, float *out, size_t *count, berth_err *err)
{
    *count = 0;
    while (*text) {
        char *end;
        size_t n = number_at(text);
        if (!n) {
            text++;
            continue;
        }
        double v = strtod(text, &end); /* may go on behind it, with an exponent: see below */
        const char *dot = memchr(text, '.', n);
        if (dot && memchr(dot + 1, '.', n - (size_t)(dot + 1 - text)))
            return err_set(err, BERTH_EINVAL, "could not convert string to float: '%.*s'",
                           (int)(n < 60 ? n : 60), text);
        if ((size_t)(end - text) > n) { /* "1e5", "0x1": the number ends before */
            char part[32];
            snprintf(part, sizeof part, "%.*s", (int)(n < 31 ? n : 31), text);
            v = strtod(part, NULL);
        }
        if (out)
            out[*count] = (float)v;
        ++*count;
        text += n;
    }
    return BERTH_OK;
}

static berth_status manual_run(struct node_call *c, berth_err *err)
{
    const char *text;
    struct htensor *t;
    size_t n;
    if (in_text(c, "sigmas", &text, err) || manual(text, NULL, &n, err) || sigmas_new(n, &t, err))
        return err->code;
    manual(text, t->data, &n, err);
    return out_tensor(c, 0, t, err);
}

NODE_CLASS(ManualSigmas, .category = "_for_testing/custom_sampling",
           .module = MOD("custom_sampler"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(TEXT_IN("sigmas", "1, 0.5")), OUT_OF("SIGMAS"), .run = manual_run);

/* ---- CreateCFGScheduleFloatList: guidance per step, 1 outside of a span ---- */

static double two_decimals(double x) /* as Python's round(x, 2) */
{
    char text[64];
    snprintf(text, sizeof text, "%.2f", x);
    return strtod(text, NULL);
}

static berth_status cfg_run(struct node_call *c, berth_err *err)
{
    uint64_t steps;
    double from, to, start, end;
    const char *how;
    if (in_steps(c, &steps, err) || in_f64(c, "cfg_scale_start", &from, err) ||
        in_f64(c, "cfg_scale_end", &to, err) || in_text(c, "interpolation", &how, err) ||
        in_fraction(c, "start_percent", &start, err) || in_fraction(c, "end_percent", &end, err))
        return err->code;
    json_t *list = json_array();
    uint64_t a = (uint64_t)((double)steps * start), b = (uint64_t)((double)steps * end);
    a = a < steps ? a : steps - 1;
    b = b < steps ? b : steps - 1;
    for (uint64_t i = 0; i < steps; i++) {
        double t = b > a && i > a ? (double)(i - a) / (double)(b - a) : 0;
        t = !strcmp(how, "ease_in") ? t * t : !strcmp(how, "ease_out") ? t * (2 - t) : t;
        bool in = i >= a && i <= b && !(i == 0 && start > 0);
        if (json_array_append_new(list, json_real(in ? two_decimals(from + (to - from) * t) : 1))) {
            json_decref(list);
            return err_set(err, BERTH_ENOMEM, "a list of %" PRIu64 " numbers", steps);
        }
    }
    return out_value(c, 0, value_json(list), err);
}

NODE_CLASS(CreateCFGScheduleFloatList, .display = "Create CFG Schedule Float List",
           .category = "WanVideoWrapper", .module = "custom_nodes.ComfyUI-WanVideoWrapper",
           .flags = NODE_UNIQUE_ID,
           INS(INT_IN("steps", 30, 2, 1000, 1),
               FLOAT_IN("cfg_scale_start", 5.0, 0.0, 30.0, 0.01, .round = "0.01"),
               FLOAT_IN("cfg_scale_end", 5.0, 0.0, 30.0, 0.01, .round = "0.01"),
               COMBO_IN("interpolation", CHOICES("linear", "ease_in", "ease_out"),
                        .sdef = "linear"),
               FLOAT_IN("start_percent", 0.0, 0.0, 1.0, 0.01),
               FLOAT_IN("end_percent", 1.0, 0.0, 1.0, 0.01)),
           OUTS({ .type = "FLOAT", .name = "float_list" }), .run = cfg_run);
