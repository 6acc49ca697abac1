/* vae_mochi: the causal video VAE of Mochi 1 (spec: mochi.md 6).
 *
 * Frames     are the batch of every activation: [frames, C, h, w], and norms are of each frame.
 * Pieces     The decoder looks back alone, so a video goes through it a latent frame at a time, and
 *            what convolutions saw last is kept: the same as all of it at once. The encoder's
 *            pixels look at themselves in all frames, so it takes a video whole.
 * Config     from names and shapes. A file may have the encoder or the decoder alone, then also
 *            without "encoder." or "decoder." in front of its names.
 * Files      family.c the descriptor, config.c detection, names.c, forward.c, presets.c */
#pragma once

#include "model/vae.h"

#define VAE_MOCHI_LEVELS_MAX 8
#define VAE_MOCHI_CHANNELS_MAX (1 << 15)

struct vae_mochi {  /* vae_net.own */
    uint8_t levels; /* that change sides, of each half */
    uint8_t grow[VAE_MOCHI_LEVELS_MAX],
        shrink[VAE_MOCHI_LEVELS_MAX]; /* by how much they change frames */
    uint8_t enc_layers;               /* of the encoder's list */
    bool bare;                        /* names have no "decoder." or "encoder." in front */
};
_Static_assert(sizeof(struct vae_mochi) <= VAE_OWN_MAX, "a vae_net has room for it");

static inline struct vae_mochi *vae_mochi_of(struct vae_net *v)
{
    return (struct vae_mochi *)(void *)v->own;
}
static inline const struct vae_mochi *vae_mochi_in(const struct vae_net *v)
{
    return (const struct vae_mochi *)(const void *)v->own;
}

bool vae_mochi_at(const struct weights *w, const char *root);
berth_status vae_mochi_config(const struct weights *w, const char *root, struct vae_net *out,
                              berth_err *err);
net_names_fn *vae_mochi_names(const struct vae_net *v);
net_forward_fn vae_mochi_decode, vae_mochi_encode;
