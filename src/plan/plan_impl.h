/* plan_impl: what alloc.c, plan.c, layout.c and plan_auto.c share. */
#pragma once

#include "plan/plan.h"

/* ---- alloc.c: texts ---- */

/* Where in the text a mistake is: entries before the "#", or those behind it. Borrowed text. */
struct alloc_spot {
    const char *part; /* what is meant there, as in "compute device"; NULL: nothing to say */
    size_t number;    /* 1..; 0: the mistake is in no text, a caller gave it */
    const char *text;
    size_t n;
};

/* `expert_mode_allocations: <part>: <what> (entry N: "<text>")`, long texts cut; `<part>: <what>`
 * for what is in no text. Returns the code. */
berth_status alloc_fail(berth_err *err, berth_status code, struct alloc_spot at, const char *fmt,
                        ...) PRINTF_LIKE(4, 5);
struct alloc_spot alloc_spot_of(const struct alloc *a, const struct alloc_entry *e);
/* The entry of the suffix with that number, counted behind "#": 1 compute, 2 gigabytes, 3
 * donors. */
struct alloc_spot alloc_field(const struct alloc *a, size_t number);
void alloc_trim(const char **s, size_t *n); /* takes the blanks around it off */
char alloc_lower(char c);                   /* ASCII, in every locale */
unsigned __int128 alloc_ten_to(unsigned scale);

/* ---- plan.c ---- */

unsigned long alloc_device_number(const char *name); /* N of "cuda:N"; 0 without one */
/* The device a caller named, or without a name the default one: the first that is not the host. */
berth_status plan_compute_find(const struct plan_devices *d, const char *name, size_t *out,
                               berth_err *err);

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

/* ---- layout.c ---- */

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
