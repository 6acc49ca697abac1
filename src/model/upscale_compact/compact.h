/* upscale_compact: Real-ESRGAN's small networks (SRVGGNetCompact): convolutions in a row at the
 * picture's own size. The last one gives the pixels of each square, which are added to the picture
 * made larger.
 *
 * Files    compact.c the descriptor and the network, presets.c */
#pragma once

#include "model/upscaler.h"

#define COMPACT_LAYERS_MAX 1024

struct compact {     /* upscaler_net.own */
    uint32_t layers; /* convolutions and activations between them */
};
_Static_assert(sizeof(struct compact) <= UPSCALER_OWN_MAX, "an upscaler_net has room for it");

static inline struct compact *compact_of(struct upscaler_net *u)
{
    return (struct compact *)(void *)u->own;
}
static inline const struct compact *compact_in(const struct upscaler_net *u)
{
    return (const struct compact *)(const void *)u->own;
}
