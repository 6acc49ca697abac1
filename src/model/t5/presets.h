/* The tensors of T5 encoders of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct t5_config { /* with gated feed-forward */
    uint64_t vocab, width, inner, ff, heads, buckets;
    int layers;
    bool own_bias; /* every block has its own table of positions (umT5) */
};
void keys_t5(struct keys *k, const struct t5_config *c);

extern const struct preset t5_presets[], umt5_presets[]; /* of their descriptors */
