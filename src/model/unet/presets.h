/* The tensors of UNets of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct unet_config { /* SD1.x, SDXL */
    uint64_t in_channels, out_channels, model_channels;
    uint64_t context_dim;
    uint64_t adm_channels; /* width of the extra vector (SDXL); 0: none */
    int levels;
    uint8_t mult[4];  /* channels of a level / model_channels */
    uint8_t depth[4]; /* transformer blocks after each res block of a level; 0: none */
    uint8_t depth_middle;
    uint8_t res_blocks; /* per level on the way down; one more on the way up */
    bool linear_proj;   /* proj_in and proj_out are linear layers instead of 1x1 convolutions */
};
void keys_unet(struct keys *k, const struct unet_config *c);
/* Of a ControlNet for such a UNet. hint: channels of its picture. */
void keys_unet_control(struct keys *k, const struct unet_config *c, uint64_t hint);

extern const struct preset unet_presets[];         /* of its descriptor */
extern const struct preset unet_control_presets[]; /* of ControlNets' */
extern const struct preset unet_adapter_presets[]; /* of T2I adapters' */
