/* The tensors of Flux.2 transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct flux2_config {
    uint64_t channels, hidden, head_dim, context_dim;
    int depth, depth_single;
    bool guidance;    /* distilled guidance input (dev) */
    bool scale_names; /* norms of queries and keys are called "scale" */
};
void keys_flux2(struct keys *k, const struct flux2_config *c);

extern const struct preset flux2_presets[]; /* of its descriptor */
