/* The tensors of T5 encoders of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct t5_config { /* with gated feed-forward */
    uint64_t vocab, width, inner, ff, heads, buckets;
    int layers;
};
void keys_t5(struct keys *k, const struct t5_config *c);

extern const struct preset t5_presets[]; /* of its descriptor */
