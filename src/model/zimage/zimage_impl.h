/* zimage_impl: what the passes of a transformer and of the networks that steer it share.
 *
 * A steered pass takes turns with those networks through host memory: what one gives the other
 * reads, whichever device each computes on. They look at a picture's tokens where it enters the
 * refiners and where it enters the layers, never in between, so a pass is cut there and only there
 * (control.c). */
#pragma once

#include "model/families.h"
#include "model/zimage/zimage.h"

#define ZIMAGE_SKIPS_MAX 64 /* of all networks that steer a pass */

struct zimage_skip { /* what is added to the picture's tokens after a block */
    bool refiner;    /* of the noise refiner; else of the layers */
    uint32_t block;
    float *x; /* [B, picture, D] */
};

struct zimage_steer { /* what passes hand over; host memory, borrowed */
    struct zimage_skip skip[ZIMAGE_SKIPS_MAX];
    size_t skips;
    float *vec;      /* [B, mod]: what modulations take */
    float *embedded; /* [B, picture, D]: the picture as it enters the refiners */
    float *joined;   /* [B, L + I, D]: text and picture as they enter the layers */
};

struct zimage_pass {
    const struct zimage_net *f;
    const struct family_batch *in;
    const struct zimage_host *host; /* NULL: sizes alone are asked for */
    struct zimage_sizes z;
    struct zimage_steer *steer; /* NULL: nobody steers */
    struct act vec;             /* [B, *]: what modulations of blocks take */
    struct act silu;            /* the same through SiLU: what the last one takes */
};

static inline struct shape zimage_shape3(uint64_t a, uint64_t b, uint64_t c)
{
    return (struct shape) { .ndim = 3, .dim = { a, b, c } };
}

/* Block n of a list, in x's place; table: positions of its tokens. */
void zimage_block(struct net_run *r, const struct zimage_pass *p, const char *list, uint32_t n,
                  bool modulated, struct act x, struct act table);

/* Passes of a steered transformer, in this order; p->steer is set. */
net_forward_fn zimage_embed;  /* -> vec, embedded */
net_forward_fn zimage_refine; /* skips of refiners -> vec, joined */
net_forward_fn zimage_layers; /* joined, skips of layers -> host->result */

/* All of them, with the networks of b->control in between; results in host->result. */
berth_status zimage_steered(struct net *net, struct zimage_pass *p, struct zimage_host *host,
                            berth_err *err);
