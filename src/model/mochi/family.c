/* The family of Mochi. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/mochi/mochi.h"
#include "model/mochi/presets.h"

#include <assert.h>
#include <stddef.h>

#define SHIFT 6.0 /* of noise levels */
#define TIMES 1.0 /* as the network gets them */

struct own {              /* struct family_config.own */
    struct mochi_net net; /* first: names are read with it */
    struct mochi_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct mochi_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    mochi_host_release(&((struct own *)own)->host);
    mochi_release(&((struct own *)own)->net);
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return mochi_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static net_names_fn *names(const struct family_config *cfg)
{
    (void)cfg;
    return mochi_names;
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct mochi_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->channels != latent_mochi.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Mochi transformer whose latents have %llu channels, not %u",
                       (unsigned long long)f->channels, latent_mochi.channels);
    *info = (struct diffusion_info) { .family = "Mochi",
                                      .latent = latent_mochi,
                                      .text = &text_set_mochi,
                                      .predicts = PREDICT_FLOW,
                                      .shift = SHIFT,
                                      .multiplier = TIMES,
                                      .in_channels = f->channels,
                                      .context_dim = f->context_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F32 };
    return BERTH_OK;
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return mochi_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_mochi = {
    .arch = { FAMILY_ARCH("mochi", "Mochi transformer"), .detect = mochi_at, .lora = mochi_lora,
              .presets = mochi_presets },
    .checkpoint = FAMILY_CHECKPOINT("mochi-checkpoint",
                                    "a Mochi checkpoint, or parts of one (transformer, text "
                                    "encoder, VAE)"),
    .bytes = sizeof(struct own),
    .usual = { 5, { 1, 12, 5, 60, 106 } },
    .usual_tokens = 128,
    .at = mochi_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .forward = forward,
};
