/* The tensors of Wan VAEs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct vae_wan_config {
    uint64_t dim, z_channels;
    uint64_t colours; /* 3, or 4: Qwen-Image-Layered's */
    uint64_t dec_dim; /* of the decoder, where it has stages (Wan 2.2); 0: it has none */
};
void keys_vae_wan(struct keys *k, const struct vae_wan_config *c);

extern const struct preset vae_wan_presets[]; /* of its descriptor */
