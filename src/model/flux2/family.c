/* The family of Flux.2: dev, which embeds the guidance, and klein, which does not. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/flux2/flux2.h"
#include "model/flux2/presets.h"

#include <assert.h>
#include <stddef.h>

#define SHIFT 2.02     /* of noise levels (flux2.md 2) */
#define TEXT_LEAST 512 /* tokens; shorter prompts have zeros in front */
#define KLEIN_8B 12288 /* context of the larger klein, whose text encoder is Qwen3 8B */

struct own {              /* struct family_config.own */
    struct flux2_net net; /* first: names are read with it */
    struct flux2_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct flux2_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    flux2_host_release(&((struct own *)own)->host);
}

/* What placement and adapters may count on. */
static bool is_flux2(const struct weights *w, const char *root)
{
    return flux2_at(w, root) && arch_find(w, root, "time_in.in_layer.weight") &&
           arch_find(w, root, "txt_in.weight") &&
           arch_find(w, root, "single_stream_modulation.lin.weight");
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return flux2_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct flux2_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->in_channels != latent_flux2.channels || f->out_channels != latent_flux2.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Flux.2 transformer whose latents have %llu channels in and %llu out, not "
                       "%u",
                       (unsigned long long)f->in_channels, (unsigned long long)f->out_channels,
                       latent_flux2.channels);
    *info = (struct diffusion_info) { .family = f->guidance ? "Flux.2" : "Flux.2 klein",
                                      .latent = latent_flux2,
                                      .text = f->guidance                  ? &text_set_flux2
                                              : f->context_dim == KLEIN_8B ? &text_set_klein_8b
                                                                           : &text_set_klein_4b,
                                      .predicts = PREDICT_FLOW,
                                      .shift = SHIFT,
                                      .in_channels = f->in_channels,
                                      .context_dim = f->context_dim,
                                      .least_tokens = TEXT_LEAST,
                                      .shows_pads = true,
                                      .act = DT_BF16,
                                      .act_else = DT_F32, /* F16 has not the range */
                                      .guidance = f->guidance,
                                      .refs = true };
    return BERTH_OK;
}

static net_names_fn *names(const struct family_config *cfg)
{
    return flux2_names(&own_of(cfg)->net);
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return flux2_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_flux2 = {
    .arch = { FAMILY_ARCH("flux2", "Flux.2 transformer"), .detect = is_flux2, .lora = flux2_lora,
              .presets = flux2_presets },
    .checkpoint =
        FAMILY_CHECKPOINT("flux2-checkpoint",
                          "a Flux.2 checkpoint, or parts of one (transformer, text encoder, VAE)"),
    .bytes = sizeof(struct own),
    .places = PATCH_STREAM_BLOCKS | PATCH_JOINT_ATTENTION | PATCH_POSITIONS | PATCH_REFS,
    .usual = { 4, { 1, 128, 64, 64 } },
    .usual_tokens = TEXT_LEAST,
    .at = flux2_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .forward = forward,
};
