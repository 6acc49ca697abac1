/* The tensors of VAEs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct vae_config { /* AutoencoderKL */
    uint64_t ch, z_channels;
    uint64_t decoder_ch; /* 0: as ch */
    int levels;
    uint8_t mult[4];
    uint8_t res_blocks; /* per level in the encoder; one more in the decoder */
    bool quant_convs;   /* SD1, SDXL: 1x1 convolutions around the latent */
    bool packed;        /* Flux.2: the batch norm of its latents */
};
extern const struct vae_config vae_sd, vae_sd_tiny; /* of SD1, SD2 and SDXL */
void keys_vae(struct keys *k, const struct vae_config *c);

extern const struct preset vae_kl_presets[]; /* of its descriptor */
