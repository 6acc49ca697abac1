/* The family of Flux.1: dev, which has an embedding of the guidance, and schnell, which has none. */
#include "model/diffusion_impl.h"

#include "model/flux.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define RATIO 8        /* pixels per latent pixel */
#define DEV_SHIFT 1.15 /* of noise levels (flux.md 7) */
#define SCHNELL_SHIFT 1.0

struct own {             /* struct diffusion_config.own */
    struct flux_net net; /* first: names are read with it */
    struct flux_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct flux_net");

static struct own *own_of(const struct diffusion_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    flux_host_release(&((struct own *)own)->host);
}

/* What stands in front of the names: in checkpoints, in files of the transformer alone. */
static bool find_root(const struct weights *w, const char *part, char root[ARCH_ROOT_MAX])
{
    static const char *const lead[] = { "", "model.diffusion_model.", "model.", "net.",
                                        "transformer." };
    for (size_t i = 0; i < ARRAY_LEN(lead); i++) {
        int n = snprintf(root, ARCH_ROOT_MAX, "%s%s", part, lead[i]);
        if (n >= 0 && n < ARCH_ROOT_MAX && flux_at(w, root))
            return true;
    }
    return false;
}

static berth_status detect(const struct weights *w, const char *part, struct diffusion_config *cfg,
                           struct diffusion_info *info, berth_err *err)
{
    struct flux_net *f = &own_of(cfg)->net;
    if (!find_root(w, part, cfg->root))
        return err_set(err, BERTH_ENOTFOUND, "no Flux transformer");
    if (flux_detect(w, cfg->root, f, err))
        return err->code;
    if (f->out_channels != latent_flux.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Flux transformer whose latents have %llu channels, not %u",
                       (unsigned long long)f->out_channels, latent_flux.channels);
    if (f->in_channels != f->out_channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Flux transformer of %llu channels in, %llu beside the latent (Fill, "
                       "control): not supported yet",
                       (unsigned long long)f->in_channels,
                       (unsigned long long)(f->in_channels > f->out_channels
                                                ? f->in_channels - f->out_channels
                                                : 0));
    *info = (struct diffusion_info) { .family = f->guidance ? "Flux" : "Flux schnell",
                                      .latent = latent_flux,
                                      .predicts = PREDICT_FLOW,
                                      .shift = f->guidance ? DEV_SHIFT : SCHNELL_SHIFT,
                                      .multiplier = f->guidance ? 0.0 : 1.0,
                                      .in_channels = f->in_channels,
                                      .context_dim = f->context_dim,
                                      .adm_channels = f->vec_dim,
                                      .ratio = RATIO,
                                      .act = DT_BF16,
                                      .act_else = DT_F16,
                                      .guidance = f->guidance };
    return BERTH_OK;
}

static net_names_fn *names(const struct diffusion_config *cfg)
{
    return flux_names(&own_of(cfg)->net);
}

/* The pooled text of CLIP-L; more than the network takes is left out, as the reference does. */
static berth_status vector(const struct diffusion_info *info, const struct diffusion_cond *c,
                           size_t h, size_t w, float *y, berth_err *err)
{
    size_t n = (size_t)info->adm_channels;
    (void)h, (void)w;
    if (c->pooled && c->pooled_n < n)
        return err_set(err, BERTH_EINVAL,
                       "%s wants a pooled text of %zu values, this conditioning has %zu: is it of "
                       "another model's text encoder?",
                       info->family, n, c->pooled_n);
    if (c->pooled)
        memcpy(y, c->pooled, n * sizeof *y);
    else
        memset(y, 0, n * sizeof *y);
    return BERTH_OK;
}

static berth_status forward(struct net *net, const struct diffusion_config *cfg,
                            const struct diffusion_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    struct flux_in in = { .n = b->n,
                          .h = b->h,
                          .w = b->w,
                          .x = b->x,
                          .t = b->t,
                          .context = b->context,
                          .tokens = b->tokens,
                          .y = b->y,
                          .guidance = b->guidance,
                          .exact_guidance = b->exact_guidance,
                          .out = b->out };
    return peak ? flux_predict(net, &own->net, &in, peak, err)
                : flux_forward(net, &own->net, &in, &own->host, err);
}

const struct diffusion_family diffusion_flux = {
    .name = "flux",
    .bytes = sizeof(struct own),
    .detect = detect,
    .release = release,
    .names = names,
    .vector = vector,
    .forward = forward,
};
