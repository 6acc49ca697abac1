/* The family of Krea 2. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/krea2/krea2.h"
#include "model/krea2/presets.h"

#include <assert.h>
#include <stddef.h>

#define SHIFT 1.15 /* of noise levels */

struct own {              /* struct family_config.own */
    struct krea2_net net; /* first: names are read with it */
    struct krea2_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct krea2_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    krea2_host_release(&((struct own *)own)->host);
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return krea2_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static net_names_fn *names(const struct family_config *cfg)
{
    (void)cfg;
    return krea2_names;
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct krea2_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->in_channels != latent_wan21.channels || f->out_channels != latent_wan21.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Krea 2 transformer whose latents have %llu channels in and %llu out, "
                       "not %u",
                       (unsigned long long)f->in_channels, (unsigned long long)f->out_channels,
                       latent_wan21.channels);
    *info = (struct diffusion_info) { .family = "Krea 2",
                                      .latent = latent_wan21,
                                      .text = &text_set_krea2,
                                      .predicts = PREDICT_FLOW,
                                      .shift = SHIFT,
                                      .in_channels = f->in_channels,
                                      .context_dim = f->taps * f->text_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F16,
                                      .refs = true };
    return BERTH_OK;
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return krea2_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_krea2 = {
    .arch = { FAMILY_ARCH("krea2", "Krea 2 transformer"), .detect = krea2_at, .lora = krea2_lora,
              .presets = krea2_presets },
    .checkpoint = FAMILY_CHECKPOINT("krea2-checkpoint",
                                    "a Krea 2 checkpoint, or parts of one (transformer, text "
                                    "encoder, VAE)"),
    .bytes = sizeof(struct own),
    .places = PATCH_JOINT_ATTENTION,
    .usual = { 5, { 1, 16, 1, 128, 128 } },
    .usual_tokens = 128,
    .at = krea2_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .forward = forward,
};
