/* The family of Z-Image, base and Turbo, and of Lumina-Image 2.0. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/lora_names_impl.h"
#include "model/zimage/presets.h"
#include "model/zimage/zimage.h"

#include <assert.h>
#include <stddef.h>

#define SHIFT 3.0 /* of noise levels (z-image.md 1) */
#define LUMINA_SHIFT 6.0

struct own {               /* struct family_config.own */
    struct zimage_net net; /* first: names are read with it */
    struct zimage_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct zimage_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    zimage_host_release(&((struct own *)own)->host);
}

/* What placement and adapters may count on. */
static bool is_zimage(const struct weights *w, const char *root)
{
    return zimage_at(w, root) && arch_find(w, root, "t_embedder.mlp.0.weight") &&
           arch_find(w, root, "layers.0.feed_forward.w1.weight");
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return zimage_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct zimage_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->out_channels != latent_flux.channels || f->in_channels != f->out_channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Z-Image transformer of %llu channels in and %llu out, not %u both",
                       (unsigned long long)f->in_channels, (unsigned long long)f->out_channels,
                       latent_flux.channels);
    *info = (struct diffusion_info) { .family = f->pooled_dim   ? "NewBie"
                                                : f->lumina     ? "Lumina2"
                                                : f->siglip_dim ? "Z-Image Omni"
                                                                : "Z-Image",
                                      .latent = latent_flux,
                                      .text = f->lumina ? &text_set_lumina2 : &text_set_z_image,
                                      .predicts = PREDICT_FLOW,
                                      .shift = f->lumina ? LUMINA_SHIFT : SHIFT,
                                      .multiplier = 1.0,
                                      .in_channels = f->in_channels,
                                      .context_dim = f->context_dim,
                                      .adm_channels = f->pooled_dim ? f->pooled_dim + 1 : 0,
                                      .act = DT_BF16,
                                      .act_else = DT_F32,
                                      .refs = !f->lumina && f->pad_to > 1,
                                      .beside = !f->lumina && f->pad_to > 1,
                                      .seen_dim = f->siglip_dim,
                                      .renamed = f->diffusers };
    return BERTH_OK;
}

static net_names_fn *names(const struct family_config *cfg)
{
    (void)cfg;
    return zimage_names;
}

/* The pooled text of NewBie, and behind it whether there is one: without, its projection is left
 * out. */
static berth_status vector(const struct diffusion_info *info, const struct diffusion_cond *c,
                           const struct shape *latents, float *y, berth_err *err)
{
    size_t n = (size_t)info->adm_channels - 1;
    (void)latents;
    if (c->pooled && c->pooled_n != n)
        return err_set(err, BERTH_EINVAL,
                       "%s wants a pooled text of %zu values, this conditioning has %zu: is it of "
                       "another model's text encoder?",
                       info->family, n, c->pooled_n);
    for (size_t i = 0; i < n; i++)
        y[i] = c->pooled ? c->pooled[i] : 0;
    y[n] = c->pooled ? 1 : 0;
    return BERTH_OK;
}

static void usual_more(const struct family_config *cfg, struct family_batch *b)
{
    zimage_usual_more(&own_of(cfg)->net, b);
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return zimage_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_zimage = {
    .arch = { FAMILY_ARCH("z-image", "Z-Image or Lumina2 transformer"), .detect = is_zimage,
              .lora = zimage_lora, .presets = zimage_presets },
    .checkpoint =
        FAMILY_CHECKPOINT("z-image-checkpoint", "a Z-Image or Lumina2 checkpoint, or parts of one "
                                                "(transformer, text encoder, VAE)"),
    .bytes = sizeof(struct own),
    .usual = { 4, { 1, 16, 126, 130 } }, /* with pads, so that those are asked for, too */
    .usual_tokens = 100,
    .usual_more = usual_more,
    .at = zimage_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .vector = vector,
    .control = &zimage_control,
    .forward = forward,
};
