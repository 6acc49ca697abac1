/* What the passes of the UNet and of its control nets share (forward.c). */
#pragma once

#include "model/control.h"
#include "model/unet/unet.h"

struct unet_pass {
    const struct unet_net *u;
    const struct family_batch *in;
    struct act emb;     /* [B, 4M], SiLU applied: what every res block wants */
    struct act context; /* [B, L, context_dim] */
    struct act objects; /* of gligen_objects(); empty: no boxes */
    struct act skip[UNET_BLOCKS_MAX];
    uint32_t skips;
    struct patch_at at;     /* the block that runs */
    struct torch_rng draws; /* for patches: every run of a pass draws the same */
};

/* An act that is an F32 sum beside acts of BF16: never on the stack. */
bool unet_is_wide(const struct net_run *r, const struct act *x);
/* The embedding of time, of `more` (an act to add, or empty) and of SDXL's vector, behind the SiLU
 * that every res block begins with. */
struct act unet_embed(struct net_run *r, const struct unet_net *u, const struct family_batch *in,
                      struct act more);
/* Block i of the way down. x is on the stack and stays, or the caller's own: then it is taken. */
struct act unet_input_block(struct net_run *r, struct unet_pass *p, uint32_t i, struct act x,
                            bool own);
/* own: x is not the last of the stack itself. */
struct act unet_middle(struct net_run *r, struct unet_pass *p, struct act x, bool own);
