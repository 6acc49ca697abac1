/* The tensors of Mochi's VAEs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct vae_mochi_config {
    uint64_t encoder, decoder; /* channels at the pictures' end; multiples of 32 */
    uint64_t latents;
    int blocks; /* of every level; 0: as many as the real one has */
};
void keys_vae_mochi(struct keys *k, const struct vae_mochi_config *c);

extern const struct preset vae_mochi_presets[]; /* of its descriptor */
