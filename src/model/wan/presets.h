/* The tensors of Wan transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct wan_config {
    uint64_t hidden, ffn, in, out, context_dim;
    int depth;
    bool sees;     /* what CLIP vision saw */
    uint64_t seen; /* tokens of it that have positions */
    int vace;      /* blocks of VACE's */
    bool camera;
    uint64_t ref; /* channels of a picture to look at */
};
void keys_wan(struct keys *k, const struct wan_config *c);

extern const struct preset wan_presets[]; /* of its descriptor */
