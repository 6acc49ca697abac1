/* The tensors of Mochi transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct mochi_config {
    uint64_t channels, hidden, text_hidden, context_dim, heads, mlp, text_mlp;
    int depth;
};
void keys_mochi(struct keys *k, const struct mochi_config *c);

extern const struct preset mochi_presets[]; /* of its descriptor */
