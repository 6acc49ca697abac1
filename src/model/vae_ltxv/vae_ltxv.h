/* vae_ltxv: the video VAE of LTX-Video 0.9, 0.9.1 and 0.9.5 and later (spec: ltxv.md 7).
 *
 * Frames     are the batch of every activation: [frames, C, h, w]. Pictures are taken apart into
 *            cells of 4 x 4 pixels first, whose pixels are channels.
 * Pieces     A video goes through piece by piece, so that memory does not grow with it: what a
 *            convolution over frames needs of the ones before is kept. The encoder looks back
 *            alone. The decoder looks one frame ahead, in every convolution; so each gives its
 *            results one frame late, and what is added to them waits (forward.c). That is the
 *            same as the whole video at once.
 * Config     The lists of blocks show by their tensors what each block is. What no tensor says,
 *            how much a block halves or doubles, follows from the channels around it; metadata
 *            ("config", "vae") says the rest, if it is there.
 * Noise      Decoders that know noise levels get a little noise, and those of 0.9.1 some in every
 *            block. ComfyUI draws it unseeded; here it is the same every time.
 * Files      family.c the descriptor, config.c detection, names.c, forward.c, presets.c */
#pragma once

#include "model/vae.h"

#define VAE_LTXV_BLOCKS_MAX 20 /* of a list */
#define VAE_LTXV_CHANNELS_MAX (1 << 14)
#define VAE_LTXV_PATCH 4
#define VAE_LTXV_TIME_WIDTH 256 /* of the embedding of one number */

/* What a member of a list does. Bits of a change of size: of frames, of both sides. */
enum vae_ltxv_block {
    VAE_LTXV_RES = 0,     /* blocks alike, of any number */
    VAE_LTXV_WIDER = 1,   /* one block with another number of channels */
    VAE_LTXV_STRIDED = 2, /* a convolution with steps; decoder: cells to pixels, nothing beside */
    VAE_LTXV_FOLDED = 3, /* pixels to cells, beside their mean; decoder: cells to pixels likewise */
    VAE_LTXV_TIME = 4,
    VAE_LTXV_SPACE = 8,
};

struct vae_ltxv {                                               /* vae_net.own */
    uint8_t enc[VAE_LTXV_BLOCKS_MAX], dec[VAE_LTXV_BLOCKS_MAX]; /* VAE_LTXV_* */
    uint8_t dec_blocks[VAE_LTXV_BLOCKS_MAX];                    /* of members that have any */
    uint8_t encs, decs;
    bool noisy;    /* blocks of the decoder want noise */
    bool timed;    /* the decoder knows noise levels */
    bool causal;   /* the decoder looks back alone */
    uint8_t space; /* enum net_outside of the decoder */
    uint8_t enc_space;
    float noise; /* part of what is decoded that is noise */
    float time;  /* the level that the decoder is told */
};
_Static_assert(sizeof(struct vae_ltxv) <= VAE_OWN_MAX, "a vae_net has room for it");

static inline struct vae_ltxv *vae_ltxv_of(struct vae_net *v)
{
    return (struct vae_ltxv *)(void *)v->own;
}
static inline const struct vae_ltxv *vae_ltxv_in(const struct vae_net *v)
{
    return (const struct vae_ltxv *)(const void *)v->own;
}

bool vae_ltxv_at(const struct weights *w, const char *root);
berth_status vae_ltxv_config(const struct weights *w, const char *root, struct vae_net *out,
                             berth_err *err);
net_names_fn *vae_ltxv_names(const struct vae_net *v);
/* As of struct vae_family. */
size_t vae_ltxv_noise(const struct vae_net *v, const struct shape *latents);
net_forward_fn vae_ltxv_decode, vae_ltxv_encode;
