/* The tensors of Z-Image and Lumina2 transformers of any size: what presets and tests are made
 * of. */
#pragma once

#include "model/preset.h"

struct zimage_config {
    uint64_t hidden, ffn, context_dim, head_dim, heads, kv_heads;
    uint64_t time; /* width inside of the time's embedding */
    uint64_t mod;  /* of what modulations take */
    int layers, refiners;
    bool lumina;     /* no pad tokens, another name of modulations */
    uint64_t pooled; /* NewBie: of its pooled text; 0: none */
    uint64_t siglip; /* Omni: of a patch as an encoder of pictures sees it; 0: none */
};
void keys_zimage(struct keys *k, const struct zimage_config *c);

extern const struct preset zimage_presets[]; /* of its descriptor */
