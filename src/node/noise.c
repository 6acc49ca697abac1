/* noise: NOISE, where a sampler's first noise comes from, and noise added to a latent. */
#include "node/compute.h"

#include <math.h>
#include <string.h>

static void free_noise(void *obj)
{
    free(obj);
}

const struct value_type type_noise = { .name = "NOISE", .free = free_noise };

static berth_status give(struct node_call *c, struct noise_source n, berth_err *err)
{
    struct noise_source *x = malloc(sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a source of noise");
    *x = n;
    return out_value(c, 0, value_object(&type_noise, x), err);
}

static berth_status run_random(struct node_call *c, berth_err *err)
{
    struct noise_source n = { 0 };
    return in_u64(c, "noise_seed", &n.seed, err) ? err->code : give(c, n, err);
}

CUSTOM_SAMPLING(RandomNoise, "/noise", INS(INT_IN("noise_seed", 0, 0, U64_MAX, 0, .more = CONTROL)),
                OUT_OF("NOISE"), .run = run_random);

static berth_status run_disable(struct node_call *c, berth_err *err)
{
    return give(c, (struct noise_source) { .none = true }, err);
}

CUSTOM_SAMPLING(DisableNoise, "/noise", OUT_OF("NOISE"), .run = run_disable);

struct adding { /* inputs */
    const struct model_ref *model;
    const struct noise_source *noise;
    const struct latent *latent;
    struct htensor *sigmas; /* from the first to the last: the noise level that is added */
};

static berth_status in_adding(struct node_call *c, struct adding *a, berth_err *err)
{
    const void *noise;
    if (in_model(c, "model", &a->model, err) || in_object(c, "noise", &type_noise, &noise, err) ||
        in_latent(c, "latent_image", &a->latent, err) || in_sigmas(c, &a->sigmas, err))
        return err->code;
    a->noise = noise;
    return BERTH_OK;
}

/* latent + noise, in the model's scale and out of it again, into *out. */
static berth_status add(struct node_call *c, const struct adding *a, const struct htensor *from,
                        struct latent *out, berth_err *err)
{
    struct diffusion_info info;
    struct msampling ms = { 0 };
    struct htensor *noise = NULL;
    struct torch_rng rng;
    const float *sigma = a->sigmas->data;
    size_t n = htensor_count(from), levels = dim(a->sigmas, 0); /* at least one */
    torch_seed(&rng, a->noise->seed);
    berth_status s = ready_info(a->model, &info, err);
    if (!s && (ready_msampling(a->model, &ms, err) || htensor_zeros(&from->shape, &noise, err) ||
               htensor_new(&from->shape, &out->samples, err)))
        s = err->code;
    if (!s && !a->noise->none)
        s = latent_noise(c, a->latent->batch_index, &from->shape, &rng, noise->data, err);
    if (!s) {
        float *x = out->samples->data;
        memcpy(x, from->data, n * sizeof *x);
        if (!all_zero(x, n))
            latent_in(&info.latent, x, &from->shape);
        float scale = levels > 1 ? fabsf(sigma[0] - sigma[levels - 1]) : sigma[0];
        ms_noise(&ms, scale, noise->data, x, false, x, n);
        latent_out(&info.latent, x, &from->shape);
        for (size_t i = 0; i < n; i++)
            x[i] = isfinite(x[i]) ? x[i] : 0;
    }
    htensor_unref(noise);
    ms_release(&ms);
    return s;
}

/* An empty list of levels: the latent as it came. */
static berth_status run_add(struct node_call *c, berth_err *err)
{
    struct adding a;
    struct diffusion_info info;
    struct htensor *from = NULL;
    struct latent out = { 0 };
    berth_status s;
    if ((s = in_adding(c, &a, err)) || (s = ready_info(a.model, &info, err)) ||
        (s = latent_fit(a.latent, &info, &from, err)) || (s = latent_like(a.latent, &out, err))) {
        htensor_unref(from);
        return s;
    }
    if (dim(a.sigmas, 0))
        s = add(c, &a, from, &out, err);
    else
        out.samples = htensor_ref(from);
    htensor_unref(from);
    return give_or_release(c, s, &out, err);
}

NODE_CLASS(AddNoise, .category = "_for_testing/custom_sampling/noise",
           .module = MOD("custom_sampler"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("model", "MODEL"), SOCKET("noise", "NOISE"), SOCKET("sigmas", "SIGMAS"),
               SOCKET("latent_image", "LATENT")),
           OUT_OF("LATENT"), .run = run_add);
