/* vae_wan: the causal VAE of Wan 2.1, of pictures and video (spec: wan.md 6); Qwen-Image's, too;
 * and Wan 2.2's (wan-variants.md 10).
 *
 * Frames     are the batch of every activation: [frames, C, h, w]. What looks back in time are
 *            convolutions over frames (net_conv3d), which remember the last frames they saw.
 * Chunks     The network was trained on pieces of a video one after the other: one latent frame at
 *            a time to decode; the first picture and then four at a time to encode. The first
 *            piece is a picture, and what halves or doubles frames is left out of it.
 * Wan 2.2's  has stages of blocks in its lists, which means or repetitions of channels go past; a
 *            pixel of its pictures is 2 x 2, which the network has as channels.
 * Config     from names and shapes. A list's members show by their own tensors whether they
 *            halve or double, and what. A file may have the encoder or the decoder alone.
 * Files      family.c the descriptor, config.c detection, names.c, forward.c, presets.c */
#pragma once

#include "model/vae.h"

#define VAE_WAN_BLOCKS_MAX 64 /* of the encoder or the decoder */
#define VAE_WAN_CHANNELS_MAX (1 << 16)
#define VAE_WAN_FOLD 2 /* pixels a side that Wan 2.2's network has as channels */

struct vae_wan {                     /* vae_net.own */
    uint32_t enc_blocks, dec_blocks; /* of encoder.downsamples and decoder.upsamples */
    bool stages;                     /* those are stages (Wan 2.2) */
};
_Static_assert(sizeof(struct vae_wan) <= VAE_OWN_MAX, "a vae_net has room for it");

static inline struct vae_wan *vae_wan_of(struct vae_net *v)
{
    return (struct vae_wan *)(void *)v->own;
}
static inline const struct vae_wan *vae_wan_in(const struct vae_net *v)
{
    return (const struct vae_wan *)(const void *)v->own;
}

bool vae_wan_at(const struct weights *w, const char *root);
berth_status vae_wan_config(const struct weights *w, const char *root, struct vae_net *out,
                            berth_err *err);
net_names_fn *vae_wan_names(const struct vae_net *v);
net_forward_fn vae_wan_decode, vae_wan_encode;
