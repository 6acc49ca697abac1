/* The family of LTX-Video. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/lora_names_impl.h"
#include "model/ltxv/ltxv.h"
#include "model/ltxv/presets.h"

#include <assert.h>
#include <stddef.h>

#define SHIFT 2.37 /* of noise levels: the mu of Flux's */

struct own {             /* struct family_config.own */
    struct ltxv_net net; /* first: names are read with it */
    struct ltxv_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct ltxv_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    ltxv_host_release(&((struct own *)own)->host);
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return ltxv_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static net_names_fn *names(const struct family_config *cfg)
{
    (void)cfg;
    return ltxv_names;
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct ltxv_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->channels != latent_ltxv.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "an LTX-Video transformer whose latents have %llu channels, not %u",
                       (unsigned long long)f->channels, latent_ltxv.channels);
    *info = (struct diffusion_info) { .family = "LTX-Video",
                                      .latent = latent_ltxv,
                                      .text = &text_set_ltxv,
                                      .predicts = PREDICT_FLOW,
                                      .shift = SHIFT,
                                      .in_channels = f->channels,
                                      .context_dim = f->context_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F32,
                                      .own_times = true,
                                      .clean = true,
                                      .guides = true };
    return BERTH_OK;
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return ltxv_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_ltxv = {
    .arch = { FAMILY_ARCH("ltxv", "LTX-Video transformer"), .detect = ltxv_at,
              .lora = lora_diffusion, .presets = ltxv_presets },
    .checkpoint = FAMILY_CHECKPOINT("ltxv-checkpoint",
                                    "an LTX-Video checkpoint, or parts of one (transformer, text "
                                    "encoder, VAE)"),
    .bytes = sizeof(struct own),
    .usual = { 5, { 1, 128, 13, 16, 24 } },
    .usual_tokens = 128,
    .at = ltxv_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .forward = forward,
};
