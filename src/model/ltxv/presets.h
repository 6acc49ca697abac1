/* The tensors of LTX-Video transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct ltxv_config {
    uint64_t channels, hidden, context_dim;
    int depth;
};
void keys_ltxv(struct keys *k, const struct ltxv_config *c);

extern const struct preset ltxv_presets[]; /* of its descriptor */
