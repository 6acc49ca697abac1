/* The tensors of Flux transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct flux_config {
    uint64_t in_channels; /* latent channels x 4: a patch of 2x2 */
    uint64_t beside;      /* more of them, of what it sees beside the latent */
    uint64_t hidden, head_dim, context_dim, vec_dim;
    int depth, depth_single;
    bool guidance;   /* distilled guidance input (dev) */
    bool no_way_out; /* of a control net */
};
void keys_flux(struct keys *k, const struct flux_config *c);

extern const struct preset flux_instantx_presets[], flux_xlabs_presets[]; /* of control nets' */
extern const struct preset flux_presets[];                                /* of its descriptor */
