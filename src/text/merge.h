/* merge: byte pairs: symbols of a word merged two by two, the best pair first. For text/ alone.
 *
 *     merge_begin(&w);  merge_add(&w, id, bytes); ...  merge_all(&w, join, user)
 *     for (const struct symbol *s = merge_first(&w); s; s = merge_next(&w, s)) ...
 *
 * Words      pair    two neighbours;  rank: the lowest is merged first, of equal ones the leftmost
 * Time       n log n for n symbols, whatever the pairs are.
 * Threads    struct merge_work: one owner; struct pairs is immutable once filled. */
#pragma once

#include "base/attr.h"
#include "base/vec.h"

#include <stdbool.h>
#include <stdint.h>

struct symbol {
    int32_t id;          /* -1: unknown */
    uint32_t at, n;      /* bytes of the word that it stands for */
    uint32_t prev, next; /* private */
    bool fixed;          /* is never merged */
};
struct merge_work { /* MERGE_WORK; merge_release() */
    struct vec symbol, heap;
};
struct joined {
    uint64_t rank;
    int32_t id;
};
/* What l and r, its right neighbour, become. False: they stay apart. */
typedef bool join_fn(const void *user, const struct symbol *l, const struct symbol *r,
                     struct joined *out);

struct merge_work merge_init(void);
void merge_release(struct merge_work *w);
void merge_begin(struct merge_work *w); /* a new word */
WARN_UNUSED bool merge_add(struct merge_work *w, int32_t id, size_t bytes, bool fixed);
WARN_UNUSED bool merge_all(struct merge_work *w, join_fn *join, const void *user);
/* What is left, in order; NULL: no more. */
const struct symbol *merge_first(const struct merge_work *w);
const struct symbol *merge_next(const struct merge_work *w, const struct symbol *s);

/* ---- merges that a file lists ---- */
struct pair_slot;
struct pairs { /* a zeroed one is empty */
    struct pair_slot *slot;
    size_t cap, n;
};
/* The last one said about a pair counts. False: memory is exhausted. */
WARN_UNUSED bool pairs_set(struct pairs *p, int32_t left, int32_t right, uint32_t rank, int32_t to);
bool pairs_get(const struct pairs *p, int32_t left, int32_t right, struct joined *out);
void pairs_release(struct pairs *p);
join_fn pairs_join; /* user: struct pairs */
