/* The tensors of compact upscale models of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct compact_config {
    uint32_t filters, convs, scale; /* convs: those between the first and the last */
};
void keys_compact(struct keys *k, const struct compact_config *c);

extern const struct preset compact_presets[]; /* of its descriptor */
