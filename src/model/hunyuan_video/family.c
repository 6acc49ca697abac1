/* The family of HunyuanVideo. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/hunyuan_video/hunyuan_video.h"
#include "model/hunyuan_video/presets.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define SHIFT 7.0 /* of noise levels */
#define TIMES 1000.0
#define GUIDANCE 6.0 /* where nobody says any */

struct own {                /* struct family_config.own */
    struct hunyuan_net net; /* first: names are read with it */
    struct hunyuan_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct hunyuan_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    hunyuan_host_release(&((struct own *)own)->host);
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return hunyuan_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static net_names_fn *names(const struct family_config *cfg)
{
    (void)cfg;
    return hunyuan_names;
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct hunyuan_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->in_channels != latent_hunyuan_video.channels ||
        f->out_channels != latent_hunyuan_video.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a HunyuanVideo transformer whose latents have %llu channels in and %llu "
                       "out, not %u%s",
                       (unsigned long long)f->in_channels, (unsigned long long)f->out_channels,
                       latent_hunyuan_video.channels,
                       f->in_channels > latent_hunyuan_video.channels
                           ? ": those that take a picture beside them cannot be computed yet"
                           : "");
    *info = (struct diffusion_info) { .family = "HunyuanVideo",
                                      .latent = latent_hunyuan_video,
                                      .text = &text_set_hunyuan_video,
                                      .predicts = PREDICT_FLOW,
                                      .shift = SHIFT,
                                      .multiplier = TIMES,
                                      .in_channels = f->in_channels,
                                      .context_dim = f->context_dim,
                                      .adm_channels = f->vector_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F32,
                                      .guidance = f->guidance,
                                      .usual_guidance = GUIDANCE,
                                      .clean = true,
                                      .renamed = f->authors };
    return BERTH_OK;
}

/* The pooled text, of which the first values count. */
static berth_status vector(const struct diffusion_info *info, const struct diffusion_cond *c,
                           const struct shape *latents, float *y, berth_err *err)
{
    size_t n = (size_t)info->adm_channels;
    (void)latents;
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

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return hunyuan_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_hunyuan_video = {
    .arch = { FAMILY_ARCH("hyvid", "HunyuanVideo transformer"), .detect = hunyuan_at,
              .lora = hunyuan_lora, .presets = hunyuan_presets },
    .checkpoint = FAMILY_CHECKPOINT("hyvid-checkpoint",
                                    "a HunyuanVideo checkpoint, or parts of one (transformer, text "
                                    "encoders, VAE)"),
    .bytes = sizeof(struct own),
    .usual = { 5, { 1, 16, 9, 60, 106 } },
    .usual_tokens = 256,
    .at = hunyuan_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .vector = vector,
    .forward = forward,
};
