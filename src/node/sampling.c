/* sampling: KSampler and its kin. */
#include "node/compute.h"

#include <inttypes.h>
#include <string.h>

/* ---- what they share ---- */

/* Links bring what no validation saw; what is none of the names is the first of them, as in
 * ComfyUI. */
static berth_status in_sampler(const struct node_call *c, const struct sampler **out,
                               berth_err *err)
{
    const char *name;
    berth_status s = in_text(c, "sampler_name", &name, err);
    *out = s ? NULL : sampler_find(name);
    if (!s && !*out)
        *out = sampler_at(0);
    return s;
}

static berth_status in_scheduler(const struct node_call *c, const struct scheduler **out,
                                 berth_err *err)
{
    const char *name;
    berth_status s = in_text(c, "scheduler", &name, err);
    *out = s ? NULL : scheduler_find(name);
    if (!s && !*out)
        *out = scheduler_at(0);
    return s;
}

/* The noise levels of a KSampler. *out: of floats. */
static berth_status in_schedule(const struct node_call *c, const struct sampling_request *q,
                                double denoise, struct vec *out, berth_err *err)
{
    const struct scheduler *how;
    struct msampling ms = { 0 };
    uint64_t steps;
    if (in_scheduler(c, &how, err) || in_steps(c, &steps, err))
        return err->code;
    berth_status s = ready_msampling(q->model, &ms, err);
    if (!s)
        s = sample_sigmas(&ms, how, steps, denoise,
                          (q->sampler->flags & SAMPLER_DISCARD_PENULTIMATE) != 0, out, err);
    ms_release(&ms);
    return s;
}

static berth_status in_request(const struct node_call *c, const char *seed,
                               struct sampling_request *q, berth_err *err)
{
    *q = (struct sampling_request) { .opt = sample_defaults };
    if (in_model(c, "model", &q->model, err) || in_u64(c, seed, &q->seed, err) ||
        in_f64(c, "cfg", &q->cfg, err) || in_conditioning(c, "positive", &q->positive, err) ||
        in_conditioning(c, "negative", &q->negative, err) ||
        in_latents(c, "latent_image", &q->latent, err))
        return err->code;
    return BERTH_OK;
}

static berth_status give_sampled(struct node_call *c, struct sampling_request *q,
                                 const struct vec *sigmas, berth_err *err)
{
    struct latent out;
    q->sigmas = sigmas->p;
    q->n = sigmas->n;
    return sample_latent(c, q, &out, NULL, err) ? err->code : give_latent(c, &out, err);
}

static berth_status run_ksampler(struct node_call *c, berth_err *err)
{
    struct sampling_request q;
    struct vec sigmas = { .elem = sizeof(float) };
    double denoise;
    if (in_request(c, "seed", &q, err) || in_sampler(c, &q.sampler, err) ||
        in_f64(c, "denoise", &denoise, err))
        return err->code;
    berth_status s = in_schedule(c, &q, denoise, &sigmas, err);
    if (!s)
        s = give_sampled(c, &q, &sigmas, err);
    vec_release(&sigmas);
    return s;
}

NODE_CLASS(KSampler, .category = "sampling", .module = "nodes",
           INS(SOCKET("model", "MODEL"), INT_IN("seed", 0, 0, U64_MAX, 0, .more = CONTROL),
               INT_IN("steps", 20, 1, 10000, 0),
               FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
               COMBO_IN("sampler_name", list_samplers), COMBO_IN("scheduler", list_schedulers),
               PAIR_IN, SOCKET("latent_image", "LATENT"), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
           OUT_OF("LATENT"), .run = run_ksampler);

static berth_status run_advanced(struct node_call *c, berth_err *err)
{
    struct sampling_request q;
    struct vec sigmas = { .elem = sizeof(float) };
    uint64_t start, end;
    const char *add_noise, *leftover;
    bool nothing = false;
    if (in_request(c, "noise_seed", &q, err) || in_sampler(c, &q.sampler, err) ||
        in_text(c, "add_noise", &add_noise, err) || in_u64(c, "start_at_step", &start, err) ||
        in_u64(c, "end_at_step", &end, err) ||
        in_text(c, "return_with_leftover_noise", &leftover, err))
        return err->code;
    q.no_noise = strcmp(add_noise, "disable") == 0;
    berth_status s = in_schedule(c, &q, 1.0, &sigmas, err);
    if (!s)
        sigmas_range(&sigmas, start, end, strcmp(leftover, "enable") != 0, &nothing);
    if (!s && nothing)
        sigmas.n = 0;
    if (!s)
        s = give_sampled(c, &q, &sigmas, err);
    vec_release(&sigmas);
    return s;
}

NODE_CLASS(KSamplerAdvanced, .display = "KSampler (Advanced)", .category = "sampling",
           .module = "nodes",
           INS(SOCKET("model", "MODEL"), COMBO_IN("add_noise", CHOICES("enable", "disable")),
               INT_IN("noise_seed", 0, 0, U64_MAX, 0, .more = CONTROL),
               INT_IN("steps", 20, 1, 10000, 0),
               FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
               COMBO_IN("sampler_name", list_samplers), COMBO_IN("scheduler", list_schedulers),
               PAIR_IN, SOCKET("latent_image", "LATENT"), INT_IN("start_at_step", 0, 0, 10000, 0),
               INT_IN("end_at_step", 10000, 0, 10000, 0),
               COMBO_IN("return_with_leftover_noise", CHOICES("disable", "enable"))),
           OUT_OF("LATENT"), .run = run_advanced);

/* ---- custom sampling ---- */

static berth_status in_custom(const struct node_call *c, struct sampling_request *q, berth_err *err)
{
    const void *obj;
    struct htensor *sigmas;
    if (in_object(c, "sampler", &type_sampler, &obj, err) || in_sigmas(c, &sigmas, err))
        return err->code;
    q->sampler = ((const struct sampler_choice *)obj)->sampler;
    q->opt = ((const struct sampler_choice *)obj)->opt;
    q->growth = ((const struct sampler_choice *)obj)->growth;
    q->sigmas = sigmas->data;
    q->n = dim(sigmas, 0);
    return BERTH_OK;
}

static berth_status give_both(struct node_call *c, const struct sampling_request *q, berth_err *err)
{
    struct latent out, denoised;
    if (sample_latent(c, q, &out, &denoised, err))
        return err->code;
    berth_status s = out_value(c, 0, value_latent(&out), err);
    if (!s)
        return out_value(c, 1, value_latent(&denoised), err);
    latent_release(&denoised);
    return s;
}

static berth_status run_custom(struct node_call *c, berth_err *err)
{
    struct sampling_request q;
    bool add_noise;
    if (in_request(c, "noise_seed", &q, err) || in_custom(c, &q, err) ||
        in_bool(c, "add_noise", &add_noise, err))
        return err->code;
    q.no_noise = !add_noise;
    return give_both(c, &q, err);
}

CUSTOM_SAMPLING(SamplerCustom, "",
                INS(SOCKET("model", "MODEL"), BOOL_IN("add_noise", true),
                    INT_IN("noise_seed", 0, 0, U64_MAX, 0, .more = CONTROL),
                    FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"), PAIR_IN,
                    SOCKET("sampler", "SAMPLER"), SOCKET("sigmas", "SIGMAS"),
                    SOCKET("latent_image", "LATENT")),
                OUTS({ .type = "LATENT", .name = "output" },
                     { .type = "LATENT", .name = "denoised_output" }),
                .run = run_custom);

static berth_status run_custom_advanced(struct node_call *c, berth_err *err)
{
    struct sampling_request q = { 0 };
    const void *noise, *guide;
    if (in_object(c, "noise", &type_noise, &noise, err) ||
        in_object(c, "guider", &type_guider, &guide, err) || in_custom(c, &q, err) ||
        in_latents(c, "latent_image", &q.latent, err))
        return err->code;
    const struct guider *g = guide;
    q.seed = ((const struct noise_source *)noise)->seed;
    q.no_noise = ((const struct noise_source *)noise)->none;
    q.model = &g->model;
    q.positive = g->positive;
    q.middle = g->middle;
    q.negative = g->negative;
    q.cfg = g->cfg;
    q.cfg_middle = g->cfg_middle;
    q.nested = g->nested;
    q.empty = g->empty;
    q.perp = g->perp;
    q.model_negative = g->model_negative.parts ? &g->model_negative : NULL;
    return give_both(c, &q, err);
}

CUSTOM_SAMPLING(SamplerCustomAdvanced, "",
                INS(SOCKET("noise", "NOISE"), SOCKET("guider", "GUIDER"),
                    SOCKET("sampler", "SAMPLER"), SOCKET("sigmas", "SIGMAS"),
                    SOCKET("latent_image", "LATENT")),
                OUTS({ .type = "LATENT", .name = "output" },
                     { .type = "LATENT", .name = "denoised_output" }),
                .run = run_custom_advanced);
