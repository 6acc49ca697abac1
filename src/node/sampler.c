/* sampler: SAMPLER, a way of sampling and its numbers. */
#include "node/compute.h"

#include <string.h>

static void free_sampler(void *obj)
{
    free(obj);
}

const struct value_type type_sampler = { .name = "SAMPLER", .free = free_sampler };

/* Output 0. */
static berth_status give_sampler(struct node_call *c, const struct sampler *how,
                                 const struct sample_options *opt, berth_err *err)
{
    struct sampler_choice *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "sampler '%s'", how->name);
    *x = (struct sampler_choice) { .sampler = how, .opt = *opt };
    return out_value(c, 0, value_object(&type_sampler, x), err);
}

static berth_status give(struct node_call *c, const char *name, const struct sample_options *opt,
                         berth_err *err)
{
    const struct sampler *how = sampler_find(name);
    return give_sampler(c, how ? how : sampler_at(0), opt, err);
}

static berth_status run_select(struct node_call *c, berth_err *err)
{
    const char *name;
    return in_text(c, "sampler_name", &name, err) ? err->code
                                                  : give(c, name, &sample_defaults, err);
}

CUSTOM_SAMPLING(KSamplerSelect, "/samplers", INS(COMBO_IN("sampler_name", list_samplers)),
                OUT_OF("SAMPLER"), .run = run_select);

static berth_status in_eta_noise(struct node_call *c, struct sample_options *opt, berth_err *err)
{
    *opt = sample_defaults;
    return in_f64(c, "eta", &opt->eta, err) ? err->code : in_f64(c, "s_noise", &opt->s_noise, err);
}

static berth_status run_euler_ancestral(struct node_call *c, berth_err *err)
{
    struct sample_options opt;
    return in_eta_noise(c, &opt, err) ? err->code : give(c, "euler_ancestral", &opt, err);
}

CUSTOM_SAMPLING(SamplerEulerAncestral, "/samplers",
                INS(FLOAT_IN("eta", 1.0, 0.0, 100.0, 0.01, .round = "false"),
                    FLOAT_IN("s_noise", 1.0, 0.0, 100.0, 0.01, .round = "false")),
                OUT_OF("SAMPLER"), .run = run_euler_ancestral);

static berth_status run_dpmpp_2m_sde(struct node_call *c, berth_err *err)
{
    struct sample_options opt;
    const char *solver, *device;
    if (in_eta_noise(c, &opt, err) || in_text(c, "solver_type", &solver, err) ||
        in_text(c, "noise_device", &device, err))
        return err->code;
    opt.heun = strcmp(solver, "heun") == 0;
    return give(c, strcmp(device, "cpu") == 0 ? "dpmpp_2m_sde" : "dpmpp_2m_sde_gpu", &opt, err);
}

CUSTOM_SAMPLING(SamplerDPMPP_2M_SDE, "/samplers",
                INS(COMBO_IN("solver_type", CHOICES("midpoint", "heun")),
                    FLOAT_IN("eta", 1.0, 0.0, 100.0, 0.01, .round = "false"),
                    FLOAT_IN("s_noise", 1.0, 0.0, 100.0, 0.01, .round = "false"),
                    COMBO_IN("noise_device", CHOICES("gpu", "cpu"))),
                OUT_OF("SAMPLER"), .run = run_dpmpp_2m_sde);

static berth_status run_lms(struct node_call *c, berth_err *err)
{
    struct sample_options opt = sample_defaults;
    int64_t order;
    berth_status s = in_i64(c, "order", &order, err);
    if (!s && (order < 1 || order > 100))
        s = err_set(err, BERTH_EINVAL, "an order of %lld, not 1 to 100", (long long)order);
    if (s)
        return s;
    opt.order = (int)order;
    return give(c, "lms", &opt, err);
}

CUSTOM_SAMPLING(SamplerLMS, "/samplers", INS(INT_IN("order", 4, 1, 100, 0)), OUT_OF("SAMPLER"),
                .run = run_lms);

/* ---- more of them: eta, s_noise, and where noise is drawn ---- */

struct stochastic {
    const char *name, *name_gpu; /* name_gpu NULL: it has no choice */
    bool r;                      /* has that input */
};

static berth_status run_stochastic(struct node_call *c, berth_err *err)
{
    const struct stochastic *how = c->cls->own;
    struct sample_options opt;
    const char *device = "cpu";
    if (in_eta_noise(c, &opt, err) || (how->r && in_f64(c, "r", &opt.r, err)) ||
        (how->name_gpu && in_text(c, "noise_device", &device, err)))
        return err->code;
    return give(c, strcmp(device, "cpu") == 0 ? how->name : how->name_gpu, &opt, err);
}

#define STOCHASTIC(...)                                                                            \
    OUT_OF("SAMPLER"), .run = run_stochastic, .own = &(const struct stochastic)                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SAMPLER_NODE(c, ...)                                                                       \
    NODE_CLASS(c, .category = "model/sampling/samplers", V3("custom_sampler"), __VA_ARGS__)
#define FREE_IN(n, def, most) FLOAT_IN(n, def, 0.0, most, 0.01, .round = "false", .more = ADVANCED)
#define NOISE_DEVICE_IN COMBO_IN("noise_device", CHOICES("gpu", "cpu"), .more = ADVANCED)

SAMPLER_NODE(SamplerDPMPP_3M_SDE,
             INS(FREE_IN("eta", 1.0, 100.0), FREE_IN("s_noise", 1.0, 100.0), NOISE_DEVICE_IN),
             STOCHASTIC("dpmpp_3m_sde", "dpmpp_3m_sde_gpu", false));
SAMPLER_NODE(SamplerDPMPP_SDE,
             INS(FREE_IN("eta", 1.0, 100.0), FREE_IN("s_noise", 1.0, 100.0),
                 FREE_IN("r", 0.5, 100.0), NOISE_DEVICE_IN),
             STOCHASTIC("dpmpp_sde", "dpmpp_sde_gpu", true));
SAMPLER_NODE(SamplerDPMPP_2S_Ancestral,
             INS(FLOAT_IN("eta", 1.0, 0.0, 100.0, 0.01, .round = "false"),
                 FLOAT_IN("s_noise", 1.0, 0.0, 100.0, 0.01, .round = "false")),
             STOCHASTIC("dpmpp_2s_ancestral", NULL, false));
SAMPLER_NODE(SamplerEulerAncestralCFGPP, .display = "SamplerEulerAncestralCFG++",
             INS(FLOAT_IN("eta", 1.0, 0.0, 1.0, 0.01, .round = "false"),
                 FLOAT_IN("s_noise", 1.0, 0.0, 10.0, 0.01, .round = "false")),
             STOCHASTIC("euler_ancestral_cfg_pp", NULL, false));

static berth_status run_seeds_2(struct node_call *c, berth_err *err)
{
    struct sample_options opt;
    const char *solver;
    if (in_eta_noise(c, &opt, err) || in_f64(c, "r", &opt.r, err) ||
        in_text(c, "solver_type", &solver, err))
        return err->code;
    if (!(opt.r > 0))
        return err_set(err, BERTH_EINVAL, "a share r of %g", opt.r);
    return give(c, strcmp(solver, "phi_2") == 0 ? "exp_heun_2_x0_sde" : "seeds_2", &opt, err);
}

SAMPLER_NODE(SamplerSEEDS2,
             INS(COMBO_IN("solver_type", CHOICES("phi_1", "phi_2")), FREE_IN("eta", 1.0, 100.0),
                 FREE_IN("s_noise", 1.0, 100.0),
                 FLOAT_IN("r", 0.5, 0.01, 1.0, 0.01, .round = "false", .more = ADVANCED)),
             OUT_OF("SAMPLER"), .run = run_seeds_2);

static berth_status in_order(const struct node_call *c, const char *name, int64_t least,
                             int64_t most, int *out, berth_err *err)
{
    int64_t v;
    if (in_i64(c, name, &v, err))
        return err->code;
    if (v < least || v > most)
        return err_set(err, BERTH_EINVAL, "%s is %lld, not %lld to %lld", name, (long long)v,
                       (long long)least, (long long)most);
    *out = (int)v;
    return BERTH_OK;
}

static berth_status run_adaptive(struct node_call *c, berth_err *err)
{
    struct sample_options opt;
    struct sample_adaptive *a = &opt.adaptive;
    if (in_eta_noise(c, &opt, err) || in_order(c, "order", 2, 3, &opt.order, err) ||
        in_f64(c, "rtol", &a->relative, err) || in_f64(c, "atol", &a->absolute, err) ||
        in_f64(c, "h_init", &a->first, err) || in_f64(c, "pcoeff", &a->p, err) ||
        in_f64(c, "icoeff", &a->i, err) || in_f64(c, "dcoeff", &a->d, err) ||
        in_f64(c, "accept_safety", &a->accept, err))
        return err->code;
    a->said = true;
    return give(c, "dpm_adaptive", &opt, err);
}

SAMPLER_NODE(SamplerDPMAdaptative,
             INS(INT_IN("order", 3, 2, 3, 0, .more = ADVANCED), FREE_IN("rtol", 0.05, 100.0),
                 FREE_IN("atol", 0.0078, 100.0), FREE_IN("h_init", 0.05, 100.0),
                 FREE_IN("pcoeff", 0.0, 100.0), FREE_IN("icoeff", 1.0, 100.0),
                 FREE_IN("dcoeff", 0.0, 100.0), FREE_IN("accept_safety", 0.81, 100.0),
                 FREE_IN("eta", 0.0, 100.0), FREE_IN("s_noise", 1.0, 100.0)),
             OUT_OF("SAMPLER"), .run = run_adaptive);

static berth_status run_er_sde(struct node_call *c, berth_err *err)
{
    struct sample_options opt;
    const char *solver;
    if (in_eta_noise(c, &opt, err) || in_order(c, "max_stage", 1, 3, &opt.er.stages, err) ||
        in_text(c, "solver_type", &solver, err))
        return err->code;
    opt.er.noise = strcmp(solver, "Reverse-time SDE") == 0 ? ER_REVERSE : ER_OWN;
    if (strcmp(solver, "ODE") == 0 || opt.eta == 0) {
        opt.er.noise = ER_ODE;
        opt.s_noise = 0;
    }
    return give(c, "er_sde", &opt, err);
}

SAMPLER_NODE(SamplerER_SDE,
             INS(COMBO_IN("solver_type", CHOICES("ER-SDE", "Reverse-time SDE", "ODE")),
                 INT_IN("max_stage", 3, 1, 3, 0, .more = ADVANCED), FREE_IN("eta", 1.0, 10.0),
                 FREE_IN("s_noise", 1.0, 100.0)),
             OUT_OF("SAMPLER"), .run = run_er_sde);

static berth_status run_sa_solver(struct node_call *c, berth_err *err)
{
    const struct model_ref *model;
    struct sample_options opt;
    struct sample_sa *sa = &opt.sa;
    struct msampling ms;
    double from, to;
    bool pece;
    if (in_eta_noise(c, &opt, err) || in_model(c, "model", &model, err) ||
        in_f64(c, "sde_start_percent", &from, err) || in_f64(c, "sde_end_percent", &to, err) ||
        in_order(c, "predictor_order", 1, SAMPLE_SA_ORDER, &sa->predictor, err) ||
        in_order(c, "corrector_order", 0, SAMPLE_SA_ORDER, &sa->corrector, err) ||
        in_bool(c, "use_pece", &pece, err) || in_bool(c, "simple_order_2", &sa->simple, err) ||
        ready_msampling(model, &ms, err))
        return err->code;
    sa->said = true;
    sa->from = ms_percent(&ms, from);
    sa->to = ms_percent(&ms, to);
    ms_release(&ms);
    return give(c, pece ? "sa_solver_pece" : "sa_solver", &opt, err);
}

SAMPLER_NODE(SamplerSASolver,
             INS(SOCKET("model", "MODEL"), FREE_IN("eta", 1.0, 10.0),
                 FLOAT_IN("sde_start_percent", 0.2, 0.0, 1.0, 0.001, .more = ADVANCED),
                 FLOAT_IN("sde_end_percent", 0.8, 0.0, 1.0, 0.001, .more = ADVANCED),
                 FREE_IN("s_noise", 1.0, 100.0),
                 INT_IN("predictor_order", 3, 1, 6, 0, .more = ADVANCED),
                 INT_IN("corrector_order", 4, 0, 6, 0, .more = ADVANCED),
                 BOOL_IN("use_pece", false, .no_default = true, .more = ADVANCED),
                 BOOL_IN("simple_order_2", false, .no_default = true, .more = ADVANCED)),
             OUT_OF("SAMPLER"), .run = run_sa_solver);

static berth_status run_lcm(struct node_call *c, berth_err *err)
{
    struct sample_options opt = sample_defaults;
    if (in_f64(c, "s_noise", &opt.s_noise, err) ||
        in_f64(c, "s_noise_end", &opt.s_noise_end, err) ||
        in_f64(c, "noise_clip_std", &opt.noise_clip, err))
        return err->code;
    return give(c, "lcm", &opt, err);
}

NODE_CLASS(SamplerLCM, .category = "model/sampling/samplers", V3("advanced_samplers"),
           INS(FLOAT_IN("s_noise", 1.0, 0.0, 64.0, 0.01),
               FLOAT_IN("s_noise_end", 1.0, 0.0, 64.0, 0.01),
               FLOAT_IN("noise_clip_std", 0.0, 0.0, 10.0, 0.01)),
           OUT_OF("SAMPLER"), .run = run_lcm);

static const char *const growing[] = { "bislerp", "nearest-exact", "bilinear",
                                       "area",    "bicubic",       NULL };

/* LCM whose latent grows while it is sampled. */
static berth_status run_lcm_upscale(struct node_call *c, berth_err *err)
{
    struct sampler_choice *x = calloc(1, sizeof *x);
    struct sampler_growth g = { 0 };
    const char *method;
    berth_status s =
        x ? in_text(c, "upscale_method", &method, err) : err_set(err, BERTH_ENOMEM, "a sampler");
    for (size_t i = 0; !s && growing[i]; i++)
        if (strcmp(method, growing[i]) == 0)
            g.method = growing[i];
    if (!s &&
        (in_finite(c, "scale_ratio", &g.ratio, err) || in_i64(c, "scale_steps", &g.steps, err)))
        s = err->code;
    if (!s && (!g.method || !(g.ratio > 0 && g.ratio <= 100) || g.steps > 100000))
        s = err_set(err, BERTH_EINVAL, "a latent that grows to %g times its size by '%.40s'",
                    g.ratio, method);
    if (s) {
        free(x);
        return s;
    }
    *x = (struct sampler_choice) { .sampler = sampler_find("lcm"),
                                   .opt = sample_defaults,
                                   .growth = g };
    return out_value(c, 0, value_object(&type_sampler, x), err);
}

NODE_CLASS(SamplerLCMUpscale, .category = "model/sampling/samplers", V3("advanced_samplers"),
           INS(FLOAT_IN("scale_ratio", 1.0, 0.1, 20.0, 0.01, .more = ADVANCED),
               INT_IN("scale_steps", -1, -1, 1000, 1, .more = ADVANCED),
               COMBO_IN("upscale_method", growing)),
           OUT_OF("SAMPLER"), .run = run_lcm_upscale);

static berth_status run_euler_cfg_pp(struct node_call *c, berth_err *err)
{
    const char *version;
    if (in_text(c, "version", &version, err))
        return err->code;
    return strcmp(version, "alternative") == 0
               ? give_sampler(c, &sampler_euler_pp, &sample_defaults, err)
               : give(c, "euler_cfg_pp", &sample_defaults, err);
}

NODE_CLASS(SamplerEulerCFGpp, .display = "SamplerEulerCFG++", .category = "experimental",
           .module = MOD("advanced_samplers"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(COMBO_IN("version", CHOICES("regular", "alternative"), .more = ADVANCED)),
           OUT_OF("SAMPLER"), .run = run_euler_cfg_pp);
