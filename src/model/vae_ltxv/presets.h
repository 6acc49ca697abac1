/* The tensors of LTX-Video's VAEs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct vae_ltxv_config {
    uint64_t base;   /* channels at the pictures' end */
    uint64_t latent; /* channels */
    int version;     /* 0: 0.9; 1: 0.9.1; 2: 0.9.5 and later */
    int blocks;      /* of a member of a list; 0: as many as the real ones have */
};
void keys_vae_ltxv(struct keys *k, const struct vae_ltxv_config *c);

extern const struct preset vae_ltxv_presets[]; /* of its descriptor */
