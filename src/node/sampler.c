/* sampler: SAMPLER, a way of sampling and its numbers. */
#include "node/compute.h"

#include <string.h>

static void free_sampler(void *obj)
{
    free(obj);
}

const struct value_type type_sampler = { .name = "SAMPLER", .free = free_sampler };

/* Output 0. */
static berth_status give(struct node_call *c, const char *name, const struct sample_options *opt,
                         berth_err *err)
{
    const struct sampler *how = sampler_find(name);
    struct sampler_choice *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "sampler '%s'", name);
    *x = (struct sampler_choice) { .sampler = how ? how : sampler_at(0), .opt = *opt };
    return out_value(c, 0, value_object(&type_sampler, x), err);
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
