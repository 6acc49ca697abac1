/* The tensors of ESRGANs of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct rrdb_config { /* in Real-ESRGAN's names */
    uint32_t filters, growth, blocks, ups, squares;
};
void keys_rrdb(struct keys *k, const struct rrdb_config *c);

extern const struct preset rrdb_presets[]; /* of its descriptor */
