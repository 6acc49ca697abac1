/* The family of Flux.1: dev, which embeds the guidance, and schnell, which does not; and the tools,
 * which see a picture beside the latent (Canny, Depth) and where to paint into it (Fill). */
#include "model/families.h"

#include "model/encoder.h"
#include "model/flux/flux.h"
#include "model/flux/presets.h"
#include "model/lora_names_impl.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define DEV_SHIFT 1.15 /* of noise levels (flux.md 7) */
#define SCHNELL_SHIFT 1.0
#define MASK_FOLD 8 /* Fill: a latent pixel's mask is that of its 8 x 8 pixels */

struct own {             /* struct family_config.own */
    struct flux_net net; /* first: names are read with it */
    struct flux_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct flux_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    flux_host_release(&((struct own *)own)->host);
}

/* What placement and adapters may count on. Others with these blocks (Flux2, Chroma, Hunyuan) have
 * more in front of them. */
static bool is_flux(const struct weights *w, const char *root)
{
    static const char *const bfl[] = { "double_blocks.0.img_attn.norm.key_norm.scale",
                                       "img_in.weight", "time_in.in_layer.weight",
                                       "vector_in.in_layer.weight", "txt_in.weight" };
    static const char *const diffusers[] = { "transformer_blocks.0.attn.norm_added_k.weight",
                                             "single_transformer_blocks.0.proj_mlp.weight",
                                             "x_embedder.weight", "context_embedder.weight",
                                             "time_text_embed.text_embedder.linear_1.weight" };
    size_t ours = 0, theirs = 0;
    for (size_t i = 0; i < ARRAY_LEN(bfl); i++) {
        ours += arch_find(w, root, bfl[i]) != NULL;
        theirs += arch_find(w, root, diffusers[i]) != NULL;
    }
    return (ours == ARRAY_LEN(bfl) || theirs == ARRAY_LEN(diffusers)) &&
           !arch_find(w, root, "controlnet_blocks.0.weight");
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return flux_detect(w, cfg->root, &own_of(cfg)->net, err);
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct flux_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->out_channels != latent_flux.channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Flux transformer whose latents have %llu channels, not %u",
                       (unsigned long long)f->out_channels, latent_flux.channels);
    const uint64_t beside = f->in_channels - f->out_channels, mask = MASK_FOLD * MASK_FOLD;
    const bool fill = f->in_channels > f->out_channels && beside == f->out_channels + mask;
    if (beside && beside != f->out_channels && !fill)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Flux transformer of %llu channels in and %llu out: beside the latent it "
                       "would see neither a picture (control) nor a picture and a mask (Fill)",
                       (unsigned long long)f->in_channels, (unsigned long long)f->out_channels);
    *info = (struct diffusion_info) { .family = f->guidance ? "Flux" : "Flux schnell",
                                      .latent = latent_flux,
                                      .text = &text_set_flux,
                                      .predicts = PREDICT_FLOW,
                                      .shift = f->guidance ? DEV_SHIFT : SCHNELL_SHIFT,
                                      .multiplier = f->guidance ? 0.0 : 1.0,
                                      .in_channels = f->in_channels,
                                      .context_dim = f->context_dim,
                                      .adm_channels = f->vec_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F16,
                                      .guidance = f->guidance,
                                      .inpaint = fill,
                                      .scaled_edit = true,
                                      .mask_fold = fill ? MASK_FOLD : 0,
                                      .refs = !beside,
                                      .biases = true,
                                      .token_dim = f->hidden,
                                      .renamed = f->diffusers };
    return BERTH_OK;
}

static net_names_fn *names(const struct family_config *cfg)
{
    return flux_names(&own_of(cfg)->net);
}

/* The pooled text of CLIP-L; more than the network takes is left out, as the reference does. */
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

/* Without a picture the reference gives zeros, in the model's scale; without a mask, all of it. */
static void no_concat(const struct diffusion_info *info, size_t pixels, float *out)
{
    const size_t channels = info->latent.channels;
    struct shape s = { .ndim = 3, .dim = { 1, channels, pixels } };
    memset(out, 0, channels * pixels * sizeof *out);
    latent_in(&info->latent, out, &s);
    for (size_t i = channels * pixels, n = (info->in_channels - channels) * pixels; i < n; i++)
        out[i] = 1.0f;
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return flux_forward(net, &own->net, b, &own->host, peak, err);
}

const struct family family_flux = {
    .arch = { FAMILY_ARCH("flux", "Flux.1 transformer"), .detect = is_flux, .lora = flux_lora,
              .presets = flux_presets },
    .checkpoint =
        FAMILY_CHECKPOINT("flux-checkpoint",
                          "a Flux.1 checkpoint, or parts of one (transformer, text encoders, VAE)"),
    .bytes = sizeof(struct own),
    .places = PATCH_STREAM_BLOCKS | PATCH_JOINT_ATTENTION | PATCH_POSITIONS,
    .usual = { 4, { 1, 16, 128, 128 } },
    .usual_tokens = 512,
    .at = flux_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .vector = vector,
    .no_concat = no_concat,
    .forward = forward,
};
