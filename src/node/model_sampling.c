/* model_sampling: what nodes say about how a MODEL is sampled (model_ref.said), and schedules
 * that ask a model for its noise levels. */
#include "node/compute.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- said about a model ---- */

/* The input with other noise levels as output 0; how strong a flow's noise is was said before. */
static berth_status give_sampling(struct node_call *c, struct ms_config sampling, bool playground,
                                  berth_err *err)
{
    struct model_ref m;
    if (in_model_copy(c, "model", &m, err))
        return err->code;
    if (m.said.sampled)
        sampling.noise_scale = m.said.sampling.noise_scale;
    m.said.sampled = true;
    m.said.sampling = sampling;
    m.said.playground = playground;
    return out_value(c, 0, value_model(&m), err);
}

/* What is none of the names is eps: links may bring anything. */
static enum ms_type type_of(const char *name)
{
    static const char *const names[] = { [MS_V] = "v_prediction",
                                         [MS_EDM] = "edm",
                                         [MS_X0] = "x0",
                                         [MS_IMG_TO_IMG] = "img_to_img",
                                         [MS_IMG_TO_IMG_FLOW] = "img_to_img_flow" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i] && strcmp(name, names[i]) == 0)
            return (enum ms_type)i;
    return MS_EPS;
}

static berth_status run_discrete(struct node_call *c, berth_err *err)
{
    const char *type;
    struct ms_config cfg = { 0 };
    if (in_text(c, "sampling", &type, err) || in_bool(c, "zsnr", &cfg.zsnr, err))
        return err->code;
    cfg.type = type_of(type);
    cfg.lcm = strcmp(type, "lcm") == 0;
    return give_sampling(c, cfg, false, err);
}

NODE_CLASS(ModelSamplingDiscrete, .category = "advanced/model", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"),
               COMBO_IN("sampling", CHOICES("eps", "v_prediction", "lcm", "x0", "img_to_img",
                                            "img_to_img_flow")),
               BOOL_IN("zsnr", false)),
           OUT_OF("MODEL"), .run = run_discrete);

static berth_status run_continuous(struct node_call *c, berth_err *err)
{
    const char *type;
    struct ms_config cfg = { .table = MS_CONTINUOUS_EDM };
    if (in_text(c, "sampling", &type, err) || in_f64(c, "sigma_max", &cfg.sigma_max, err) ||
        in_f64(c, "sigma_min", &cfg.sigma_min, err))
        return err->code;
    bool playground = strcmp(type, "edm_playground_v2.5") == 0;
    if (strcmp(type, "cosmos_rflow") == 0)
        return err_set(err, BERTH_EUNSUPPORTED, "sampling '%s' cannot be computed yet", type);
    if (!(cfg.sigma_max > 0 && cfg.sigma_min > 0 && cfg.sigma_min < cfg.sigma_max))
        return err_set(err, BERTH_EINVAL, "noise levels from %g to %g", cfg.sigma_max,
                       cfg.sigma_min);
    cfg.type = playground ? MS_EDM : type_of(type);
    cfg.sigma_data = cfg.type == MS_EDM ? 0.5 : 1.0;
    return give_sampling(c, cfg, playground, err);
}

NODE_CLASS(ModelSamplingContinuousEDM, .category = "advanced/model",
           .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"),
               COMBO_IN("sampling", CHOICES("v_prediction", "edm", "edm_playground_v2.5", "eps",
                                            "cosmos_rflow")),
               FLOAT_IN("sigma_max", 120.0, 0.0, 1000.0, 0.001, .round = "false"),
               FLOAT_IN("sigma_min", 0.002, 0.0, 1000.0, 0.001, .round = "false")),
           OUT_OF("MODEL"), .run = run_continuous);

static berth_status run_continuous_v(struct node_call *c, berth_err *err)
{
    struct ms_config cfg = { .type = MS_V, .table = MS_CONTINUOUS_V };
    if (in_f64(c, "sigma_max", &cfg.sigma_max, err) || in_f64(c, "sigma_min", &cfg.sigma_min, err))
        return err->code;
    if (!(cfg.sigma_min > 0 && cfg.sigma_min < cfg.sigma_max))
        return err_set(err, BERTH_EINVAL, "noise levels from %g to %g", cfg.sigma_max,
                       cfg.sigma_min);
    return give_sampling(c, cfg, false, err);
}

NODE_CLASS(ModelSamplingContinuousV, .category = "model/patch", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), COMBO_IN("sampling", CHOICES("v_prediction")),
               FLOAT_IN("sigma_max", 500.0, 0.0, 1000.0, 0.001, .round = "false", .more = ADVANCED),
               FLOAT_IN("sigma_min", 0.03, 0.0, 1000.0, 0.001, .round = "false", .more = ADVANCED)),
           OUT_OF("MODEL"), .run = run_continuous_v);

/* Flows, whatever the model's own levels are. Values of a link may be any number. */
static berth_status give_flow(struct node_call *c, enum ms_table table, double shift,
                              double multiplier, berth_err *err)
{
    const struct ms_config cfg = {
        .type = MS_CONST, .table = table, .shift = shift, .shifted = true, .multiplier = multiplier
    };
    return isfinite(shift) ? give_sampling(c, cfg, false, err)
                           : err_set(err, BERTH_EINVAL, "a shift of %g", shift);
}

static berth_status run_sd3(struct node_call *c, berth_err *err)
{
    double shift;
    return in_f64(c, "shift", &shift, err) ? err->code : give_flow(c, MS_FLOW, shift, 1000, err);
}

NODE_CLASS(ModelSamplingSD3, .category = "advanced/model", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("shift", 3.0, 0.0, 100.0, 0.01)), OUT_OF("MODEL"),
           .run = run_sd3);

static berth_status run_aura_flow(struct node_call *c, berth_err *err)
{
    double shift;
    return in_f64(c, "shift", &shift, err) ? err->code : give_flow(c, MS_FLOW, shift, 1, err);
}

NODE_CLASS(ModelSamplingAuraFlow, .category = "advanced/model", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("shift", 1.73, 0.0, 100.0, 0.01)),
           OUT_OF("MODEL"), .run = run_aura_flow);

/* A shift that grows with the picture: base at 256 tokens of 16 x 16 pixels, max at 4096. */
static berth_status run_flux(struct node_call *c, berth_err *err)
{
    double max, base;
    uint64_t w, h;
    if (in_f64(c, "max_shift", &max, err) || in_f64(c, "base_shift", &base, err) ||
        in_u64(c, "width", &w, err) || in_u64(c, "height", &h, err))
        return err->code;
    double by = (max - base) / (4096 - 256);
    double shift = (double)w * (double)h / (16 * 16) * by + (base - by * 256);
    if (!(fabs(shift) <= MS_FLUX_SHIFT_MAX)) /* where ComfyUI's noise levels are NaN */
        return err_set(err, BERTH_EINVAL,
                       "max_shift %g and base_shift %g make a shift of %g at %" PRIu64 " x %" PRIu64
                       ": it cannot be more than %g",
                       max, base, shift, w, h, MS_FLUX_SHIFT_MAX);
    return give_flow(c, MS_FLUX, shift, 0, err);
}

NODE_CLASS(ModelSamplingFlux, .category = "advanced/model", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("max_shift", 1.15, 0.0, 100.0, 0.01),
               FLOAT_IN("base_shift", 0.5, 0.0, 100.0, 0.01), SIZE_IN(1024, 1024, 16, 8)),
           OUT_OF("MODEL"), .run = run_flux);

/* The same over tokens: base at 1024 of them, max at 4096. */
static berth_status run_ltxv(struct node_call *c, berth_err *err)
{
    double max, base, tokens = 4096;
    const struct latent *latent = NULL;
    if (in_f64(c, "max_shift", &max, err) || in_f64(c, "base_shift", &base, err) ||
        (in_given(c, "latent") && in_latent(c, "latent", &latent, err)))
        return err->code;
    if (latent)
        tokens = (double)shape_inner(&latent->samples->shape, 2);
    double by = (max - base) / (4096 - 1024), shift = tokens * by + (base - by * 1024);
    if (!(fabs(shift) <= MS_FLUX_SHIFT_MAX))
        return err_set(err, BERTH_EINVAL,
                       "max_shift %g and base_shift %g make a shift of %g at %.0f tokens: it "
                       "cannot be more than %g",
                       max, base, shift, tokens, MS_FLUX_SHIFT_MAX);
    return give_flow(c, MS_FLUX, shift, 0, err);
}

NODE_CLASS(ModelSamplingLTXV, .category = "advanced/model", V3("lt"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("max_shift", 2.05, 0.0, 100.0, 0.01),
               FLOAT_IN("base_shift", 0.95, 0.0, 100.0, 0.01), OPTIONAL("latent", "LATENT")),
           OUT_OF("MODEL"), .run = run_ltxv);

static berth_status run_cascade(struct node_call *c, berth_err *err)
{
    struct ms_config cfg = { .type = MS_EPS, .table = MS_CASCADE, .shifted = true };
    if (in_f64(c, "shift", &cfg.shift, err))
        return err->code;
    return cfg.shift > 0 && isfinite(cfg.shift)
               ? give_sampling(c, cfg, false, err)
               : err_set(err, BERTH_EINVAL, "a shift of %g: noise levels are those above 0",
                         cfg.shift);
}

NODE_CLASS(ModelSamplingStableCascade, .category = "model/patch/stable cascade",
           .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("shift", 2.0, 0.0, 100.0, 0.01)), OUT_OF("MODEL"),
           .run = run_cascade);

/* A number, and the model to say it about. */
static berth_status in_number(struct node_call *c, const char *input, double *out,
                              struct model_ref *m, berth_err *err)
{
    if (in_f64(c, input, out, err))
        return err->code;
    return isfinite(*out) ? in_model_copy(c, "model", m, err)
                          : err_set(err, BERTH_EINVAL, "input '%s' is no number", input);
}

/* How strong a flow's noise is; its levels stay. */
static berth_status run_noise_scale(struct node_call *c, berth_err *err)
{
    struct model_ref m;
    struct msampling ms;
    double scale;
    if (in_number(c, "noise_scale", &scale, &m, err))
        return err->code;
    berth_status s = ready_msampling(&m, &ms, err);
    if (!s && !ms_is_flow(&ms))
        s = err_set(err, BERTH_EUNSUPPORTED, "'%.80s' is no flow model: its noise has one strength",
                    ready_name(&m));
    if (s) {
        model_ref_release(&m);
        ms_release(&ms);
        return s;
    }
    m.said.sampled = true;
    m.said.sampling = ms.cfg;
    m.said.sampling.shifted = true;
    m.said.sampling.noise_scale = scale > 0 ? scale : DBL_MIN; /* 0 would stand for 1 */
    ms_release(&ms);
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(ModelNoiseScale, .category = "model/patch", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("noise_scale", 1.0, 0.0, 64.0, 0.01)),
           OUT_OF("MODEL"), .run = run_noise_scale);

static berth_status run_compute_dtype(struct node_call *c, berth_err *err)
{
    static const struct {
        const char *name;
        enum dtype type;
    } known[] = { { "fp32", DT_F32 }, { "fp16", DT_F16 }, { "bf16", DT_BF16 } };
    struct model_ref m;
    const char *name;
    if (in_text(c, "dtype", &name, err) || in_model_copy(c, "model", &m, err))
        return err->code;
    m.said.act = DT_NONE;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(name, known[i].name) == 0)
            m.said.act = known[i].type;
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(ModelComputeDtype, .category = "advanced/debug", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"),
               COMBO_IN("dtype", CHOICES("default", "fp32", "fp16", "bf16"), .more = ADVANCED)),
           OUT_OF("MODEL"), .run = run_compute_dtype);

/* ---- what is about PyTorch: the model as it is ---- */

static berth_status run_same(struct node_call *c, berth_err *err)
{
    struct model_ref m;
    return in_model_copy(c, "model", &m, err) ? err->code : out_value(c, 0, value_model(&m), err);
}

/* Any name is fine, as in ComfyUI, which takes its default for those it does not know. */
static berth_status any_attention(const struct node_check *k, berth_err *err)
{
    (void)k;
    (void)err;
    return BERTH_OK;
}

NODE_CLASS(ModelAttentionBackend, .category = "model/patch", .module = MOD("model_advanced"),
           INS(SOCKET("model", "MODEL"), COMBO_IN("attention", CHOICES("pytorch attention"))),
           OUT_OF("MODEL"), .run = run_same, .validate = any_attention, .validates = "attention");

NODE_CLASS(TorchCompileModel, .category = "experimental", .module = MOD("torch_compile"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"),
               COMBO_IN("backend", CHOICES("inductor", "cudagraphs"), .more = ADVANCED)),
           OUT_OF("MODEL"), .run = run_same);

NODE_CLASS(wanBlockSwap, .category = "", .module = MOD("nop"), .flags = NODE_V3 | NODE_DEPRECATED,
           INS(SOCKET("model", "MODEL")), OUT_OF("MODEL"), .run = run_same);

static berth_status run_differential(struct node_call *c, berth_err *err)
{
    struct model_ref m;
    double strength;
    if (in_number(c, "strength", &strength, &m, err))
        return err->code;
    m.said.differs = true;
    m.said.differential = strength;
    return out_value(c, 0, value_model(&m), err);
}

NODE_CLASS(DifferentialDiffusion, .display = "Differential Diffusion", .category = "_for_testing",
           .module = MOD("differential_diffusion"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"),
               FLOAT_IN("strength", 1.0, 0.0, 1.0, 0.01, .optional = true)),
           OUT_OF("MODEL"), .run = run_differential);

/* ---- schedules ---- */

/* Output 0: the last `keep` of these levels, whose making ended with s. Takes ms and v. */
static berth_status give_sigmas(struct node_call *c, berth_status s, struct msampling *ms,
                                struct vec *v, size_t keep, berth_err *err)
{
    size_t n = v->n < keep ? v->n : keep;
    struct htensor *t;
    if (!s)
        s = htensor_new(&(struct shape) { .ndim = 1, .dim = { n } }, &t, err);
    if (!s && n)
        memcpy(t->data, (const float *)v->p + (v->n - n), n * sizeof(float));
    vec_release(v);
    ms_release(ms);
    return s ? s : out_tensor(c, 0, t, err);
}

static berth_status in_levels(struct node_call *c, struct msampling *out, berth_err *err)
{
    const struct model_ref *ref;
    return in_model(c, "model", &ref, err) ? err->code : ready_msampling(ref, out, err);
}

static berth_status run_basic(struct node_call *c, berth_err *err)
{
    struct msampling ms = { 0 };
    struct vec v = { .elem = sizeof(float) };
    const char *name;
    uint64_t steps;
    double denoise;
    if (in_text(c, "scheduler", &name, err) || in_steps(c, &steps, err) ||
        in_f64(c, "denoise", &denoise, err))
        return err->code;
    const struct scheduler *how = scheduler_find(name);
    if (!how)
        return err_set(err, BERTH_EINVAL, "error invalid scheduler %.60s", name);
    if (!(denoise > 0))
        return give_sigmas(c, BERTH_OK, &ms, &v, 0, err);
    double total = denoise < 1 ? (double)steps / denoise : (double)steps;
    if (total > SCHEDULE_STEPS_MAX)
        return err_set(err, BERTH_ELIMIT, "%" PRIu64 " steps at a denoise of %g are more than %d",
                       steps, denoise, SCHEDULE_STEPS_MAX);
    berth_status s = in_levels(c, &ms, err) || sigmas_schedule(&ms, how, (size_t)total, &v, err)
                         ? err->code
                         : BERTH_OK;
    return give_sigmas(c, s, &ms, &v, steps + 1, err);
}

CUSTOM_SAMPLING(BasicScheduler, "/schedulers",
                INS(SOCKET("model", "MODEL"), COMBO_IN("scheduler", list_schedulers),
                    INT_IN("steps", 20, 1, 10000, 0), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
                OUT_OF("SIGMAS"), .run = run_basic);

static berth_status run_turbo(struct node_call *c, berth_err *err)
{
    struct msampling ms = { 0 };
    struct vec v = { .elem = sizeof(float) };
    uint64_t steps;
    double denoise;
    if (in_steps(c, &steps, err) || in_f64(c, "denoise", &denoise, err) || in_levels(c, &ms, err))
        return err->code;
    berth_status s = sigmas_sd_turbo(&ms, steps, denoise, &v, err);
    return give_sigmas(c, s, &ms, &v, SIZE_MAX, err);
}

CUSTOM_SAMPLING(SDTurboScheduler, "/schedulers",
                INS(SOCKET("model", "MODEL"), INT_IN("steps", 1, 1, 10, 0),
                    FLOAT_IN("denoise", 1.0, 0, 1.0, 0.01)),
                OUT_OF("SIGMAS"), .run = run_turbo);

static berth_status run_beta(struct node_call *c, berth_err *err)
{
    struct msampling ms = { 0 };
    struct vec v = { .elem = sizeof(float) };
    uint64_t steps;
    double alpha, beta;
    if (in_steps(c, &steps, err) || in_f64(c, "alpha", &alpha, err) ||
        in_f64(c, "beta", &beta, err) || in_levels(c, &ms, err))
        return err->code;
    berth_status s = sigmas_beta(&ms, steps, alpha, beta, &v, err);
    return give_sigmas(c, s, &ms, &v, SIZE_MAX, err);
}

CUSTOM_SAMPLING(BetaSamplingScheduler, "/schedulers",
                INS(SOCKET("model", "MODEL"), INT_IN("steps", 20, 1, 10000, 0),
                    FLOAT_IN("alpha", 0.6, 0.0, 50.0, 0.01, .round = "false"),
                    FLOAT_IN("beta", 0.6, 0.0, 50.0, 0.01, .round = "false")),
                OUT_OF("SIGMAS"), .run = run_beta);

static berth_status run_percent(struct node_call *c, berth_err *err)
{
    struct msampling ms;
    double percent;
    bool actual;
    if (in_f64(c, "sampling_percent", &percent, err) ||
        in_bool(c, "return_actual_sigma", &actual, err) || in_levels(c, &ms, err))
        return err->code;
    double sigma = ms_percent(&ms, percent);
    if (actual && percent == 0)
        sigma = (double)ms_sigma_max(&ms);
    if (actual && percent == 1)
        sigma = (double)ms_sigma_min(&ms);
    ms_release(&ms);
    return out_value(c, 0, value_float(sigma), err);
}

NODE_CLASS(SamplingPercentToSigma, .category = "model/sampling/sigmas", V3("custom_sampler"),
           INS(SOCKET("model", "MODEL"), FLOAT_IN("sampling_percent", 0.0, 0.0, 1.0, 0.0001),
               BOOL_IN("return_actual_sigma", false)),
           OUTS({ .type = "FLOAT", .name = "sigma_value" }), .run = run_percent);
