/* The tensors of CLIPs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct clip_config { /* CLIP text encoders */
    uint64_t vocab, positions, width, mlp;
    int layers;
    bool projection; /* text_projection.weight */
};
extern const struct clip_config clip_l_tiny, clip_g_tiny;
void keys_clip(struct keys *k, const struct clip_config *c);     /* HF's names */
void keys_openclip(struct keys *k, const struct clip_config *c); /* OpenCLIP's: SD2, SDXL */

extern const struct preset clip_presets[]; /* of its descriptor */
