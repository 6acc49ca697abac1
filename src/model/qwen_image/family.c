/* The family of Qwen-Image. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/qwen_image/presets.h"
#include "model/qwen_image/qwen_image.h"

#define SHIFT 1.15 /* of noise levels */

struct own { /* struct family_config.own */
    struct qwen_image_net net;
    struct qwen_image_host host;
};

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    qwen_image_host_release(&((struct own *)own)->host);
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return qwen_image_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static const char *name_of(const struct qwen_image_net *q)
{
    return q->refs == REF_NEGATIVE_INDEX        ? "Qwen-Image-Layered"
           : q->refs == REF_INDEX_TIMESTEP_ZERO ? "Qwen-Image-Edit"
                                                : "Qwen-Image";
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct qwen_image_net *q = &own_of(cfg)->net;
    (void)w, (void)part;
    if (q->in_channels != latent_wan21.channels || q->out_channels != latent_wan21.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Qwen-Image transformer whose latents have %llu channels in and %llu out, "
                       "not %u",
                       (unsigned long long)q->in_channels, (unsigned long long)q->out_channels,
                       latent_wan21.channels);
    *info = (struct diffusion_info) { .family = name_of(q),
                                      .latent = latent_wan21,
                                      .text = &text_set_qwen_image,
                                      .predicts = PREDICT_FLOW,
                                      .shift = SHIFT,
                                      .in_channels = q->in_channels,
                                      .context_dim = q->context_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F32,
                                      .refs = true };
    return BERTH_OK;
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return qwen_image_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_qwen_image = {
    .arch = { FAMILY_ARCH("qwen_image", "Qwen-Image transformer"), .detect = qwen_image_at,
              .lora = qwen_image_lora, .presets = qwen_image_presets },
    .checkpoint = FAMILY_CHECKPOINT("qwen_image-checkpoint",
                                    "a Qwen-Image checkpoint, or parts of one (transformer, text "
                                    "encoder, VAE)"),
    .bytes = sizeof(struct own),
    .places = PATCH_REFS,
    .usual = { 5, { 1, 16, 1, 166, 166 } },
    .usual_tokens = 256,
    .at = qwen_image_at,
    .config = config,
    .describe = describe,
    .release = release,
    .control = &qwen_image_control,
    .forward = forward,
};
