/* The tensors of HunyuanVideo's VAEs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct vae_hunyuan_config {
    uint64_t ch; /* channels at the pictures' end; a multiple of 32 */
    uint64_t z_channels;
    int blocks; /* of a level of the encoder; the decoder has one more */
};
void keys_vae_hunyuan(struct keys *k, const struct vae_hunyuan_config *c);

extern const struct preset vae_hunyuan_presets[]; /* of its descriptor */
