/* The tensors of HunyuanVideo transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct hunyuan_config {
    uint64_t channels, hidden, context_dim, vector_dim;
    int depth, single;
    bool guidance;
};
void keys_hunyuan(struct keys *k, const struct hunyuan_config *c);

extern const struct preset hunyuan_presets[]; /* of its descriptor */
