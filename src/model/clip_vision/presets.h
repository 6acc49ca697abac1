/* The tensors of CLIP's encoders of pictures of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct clip_vision_config {
    uint64_t width, mlp, patch, tokens;
    int layers;
    bool siglip;
    uint64_t projection; /* width behind visual_projection; 0: none */
    uint64_t llava;      /* width behind the projector for a language model; 0: none */
};
void keys_clip_vision(struct keys *k, const struct clip_vision_config *c);     /* HF's names */
void keys_openclip_vision(struct keys *k, const struct clip_vision_config *c); /* "visual." */

extern const struct preset clip_vision_presets[]; /* of its descriptor */
