/* config_look: sizes of a network from the shapes of its tensors, for configs of families. */
#pragma once

#include "format/weights.h"

struct config_look { /* borrowed */
    const struct weights *w;
    const char *root; /* in front of names */
    const char *what; /* for messages: "a Krea 2 transformer" */
    uint64_t most;    /* of a dimension */
    berth_err *err;
};
/* A dimension of a tensor that must be there, 1..most. BERTH_EUNSUPPORTED: says what is wrong. */
berth_status config_dim(const struct config_look *k, const char *name, int ndim, int axis,
                        uint64_t *out);
/* Channels of a latent, from such a dimension that is the width of a patch. */
berth_status config_channels(const struct config_look *k, const char *name, int axis,
                             uint64_t pixels, uint64_t *out);
