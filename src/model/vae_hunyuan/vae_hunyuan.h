/* vae_hunyuan: the causal video VAE of HunyuanVideo 1.0 (spec: hunyuan-video.md 8).
 *
 * Frames     are the batch of every activation: [frames, C, h, w]. What looks back in time are
 *            convolutions over frames, which go on at their edges.
 * Pieces     The network's norms are over all frames of a piece, so the pieces are part of it: the
 *            first picture, then eight at a time to encode; two latent frames at a time to decode.
 *            In the middle, and on the latents' side, all of a video is one.
 * Config     from names and shapes. Which levels halve frames, too, no tensor says: all but the one
 *            next to the pictures. A file may have the encoder or the decoder alone.
 * Files      family.c the descriptor, config.c detection, forward.c, presets.c */
#pragma once

#include "model/vae.h"

#define VAE_HUNYUAN_LEVELS_MAX 8
#define VAE_HUNYUAN_CHANNELS_MAX (1 << 14)

struct vae_hunyuan {        /* vae_net.own */
    uint32_t levels, timed; /* of them the deepest ones halve frames, too: so many times */
    bool quant;             /* layers between latents and what the halves make of them */
};
_Static_assert(sizeof(struct vae_hunyuan) <= VAE_OWN_MAX, "a vae_net has room for it");

static inline struct vae_hunyuan *vae_hunyuan_of(struct vae_net *v)
{
    return (struct vae_hunyuan *)(void *)v->own;
}
static inline const struct vae_hunyuan *vae_hunyuan_in(const struct vae_net *v)
{
    return (const struct vae_hunyuan *)(const void *)v->own;
}

bool vae_hunyuan_at(const struct weights *w, const char *root);
berth_status vae_hunyuan_config(const struct weights *w, const char *root, struct vae_net *out,
                                berth_err *err);
net_forward_fn vae_hunyuan_decode, vae_hunyuan_encode;
