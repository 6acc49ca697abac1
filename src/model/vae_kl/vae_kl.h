/* vae_kl: AutoencoderKL, the VAE of SD1, SDXL, SD3, Flux and Flux.2 (spec: vae.md, flux2.md 8).
 *
 * Config     from names and shapes; diffusers' names are translated (names.c).
 * Whole      A half exists if any tensor of it does. Its first pass says what is missing, so a file
 *            with one whole half will do. Quant convolutions come as a pair, or for the halves that
 *            are there.
 * Packed     Latents of Flux.2 are those of the network with 2 x 2 pixels as channels of one, each
 *            channel scaled to mean 0 and deviation 1: the file has both beside the network, as a
 *            batch norm ("bn."). Its decoder may be narrower than its encoder.
 * Files      family.c the descriptor, config.c detection (through canonical.h), names.c, forward.c,
 *            presets.c */
#pragma once

#include "model/vae.h"

#define VAE_LEVELS_MAX 8
#define VAE_BLOCKS_MAX 16
#define VAE_CHANNELS_MAX (1 << 16)
#define VAE_PACKED 2 /* pixels a side of one of Flux.2's latents */
/* Layers of one row each, for net_embedding(); in files they are vectors. */
#define VAE_MEAN "bn.running_mean"
#define VAE_VARIANCE "bn.running_var"

struct vae_kl { /* vae_net.own */
    uint32_t levels;
    uint32_t enc_blocks, dec_blocks; /* res blocks per level */
    bool quant, post_quant;
    bool diffusers;     /* the file has diffusers' names */
    bool old_attention; /* those of its first years: "query" for "to_q" */
    bool nested_quant;  /* "encoder.quant_conv", "decoder.post_quant_conv" */
    bool packed;        /* Flux.2's latents */
    uint32_t channels;  /* of latents as the network has them */
};
_Static_assert(sizeof(struct vae_kl) <= VAE_OWN_MAX, "a vae_net has room for it");

static inline struct vae_kl *vae_kl_of(struct vae_net *v)
{
    return (struct vae_kl *)(void *)v->own;
}
static inline const struct vae_kl *vae_kl_in(const struct vae_net *v)
{
    return (const struct vae_kl *)(const void *)v->own;
}

berth_status vae_kl_config(const struct weights *w, const char *root, struct vae_net *out,
                           berth_err *err);
net_names_fn *vae_kl_names(const struct vae_net *v);
net_forward_fn vae_kl_decode, vae_kl_encode;
