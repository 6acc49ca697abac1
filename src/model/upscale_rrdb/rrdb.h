/* upscale_rrdb: ESRGAN and Real-ESRGAN, dense blocks inside of blocks (RRDBNet).
 *
 * Config   from names and shapes: filters, growth, blocks, how often the sides are doubled. A first
 *          convolution of 12 or 48 channels takes squares of 2x2 or 4x4 pixels as one: the network
 *          then works on a smaller picture, which x2 and x1 models have.
 * Names    Real-ESRGAN's are ours; ESRGAN's first ones ("model.1.sub.0.RDB1.conv1.0") and those of
 *          BSRGAN and RealSR ("RRDB_trunk.0.RDB1.conv1") are translated. ESRGAN+ has a 1x1
 *          convolution more in each dense block.
 * Files    family.c the descriptor, config.c, names.c, forward.c, presets.c */
#pragma once

#include "model/upscaler.h"

#define RRDB_BLOCKS_MAX 256
#define RRDB_UPS_MAX 4

enum rrdb_names { RRDB_NEW, RRDB_TRUNK, RRDB_OLD };
struct rrdb { /* upscaler_net.own */
    enum rrdb_names style;
    uint32_t filters, growth, blocks;
    uint32_t ups;     /* doublings */
    uint32_t squares; /* sides of those that are one pixel; 1: none */
    bool plus;        /* ESRGAN+ */
};
_Static_assert(sizeof(struct rrdb) <= UPSCALER_OWN_MAX, "an upscaler_net has room for it");

static inline struct rrdb *rrdb_of(struct upscaler_net *u)
{
    return (struct rrdb *)(void *)u->own;
}
static inline const struct rrdb *rrdb_in(const struct upscaler_net *u)
{
    return (const struct rrdb *)(const void *)u->own;
}

bool rrdb_detect(const struct weights *w, const char *root);
berth_status rrdb_config(const struct weights *w, const char *root, struct upscaler_net *out,
                         berth_err *err);
net_names_fn *rrdb_names(const struct upscaler_net *u);
net_forward_fn rrdb_forward;
