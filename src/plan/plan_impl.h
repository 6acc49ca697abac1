/* plan_impl: what plan.c, layout.c and plan_auto.c share. */
#ifndef PLAN_PLAN_IMPL_H
#define PLAN_PLAN_IMPL_H

#include "plan/plan.h"

#define PLAN_BYTES_MAX (UINT64_C(1) << 60) /* 64 times the square of it is below 2^127 */

/* Blocks too small to be worth a transfer of their own; all: bytes of the whole model. */
static inline bool plan_tiny(uint64_t bytes, uint64_t all)
{
    return (unsigned __int128)bytes * 10000 < all;
}

/* A block's memory: no device aligns to less. */
static inline uint64_t plan_held(const struct block *b)
{
    return (b->span + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
}

/* What a layout works on. Blocks whose `why` is PLAN_QUOTA are its to place: it writes `device` of
 * each and turns `why` of those beyond every quota into PLAN_ORPHAN. */
struct layout {
    const struct blocks *b;
    const struct quotas *q;
    uint64_t left[ALLOC_ENTRIES_MAX]; /* of each quota, embeddings already taken off */
    uint64_t bytes;                   /* of the blocks to place */
    uint8_t *device, *why;
};
void layout_tail(struct layout *l);
void layout_spread(struct layout *l);

#endif
