/* The tensors of Krea 2 transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct krea2_config {
    uint64_t channels, hidden, heads, kv_heads;
    uint64_t text_dim, text_heads, taps;
    int depth;
};
void keys_krea2(struct keys *k, const struct krea2_config *c);

extern const struct preset krea2_presets[]; /* of its descriptor */
