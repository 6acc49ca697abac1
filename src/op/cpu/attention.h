/* attention: softmax attention as online softmax over blocks of keys, lanes being queries.
 *
 * Words   lane      one query in one place of a vector register
 *         group     the queries that are computed side by side: a few vectors of lanes
 *         piece     the queries [first, first + n) of one head of one picture; work of one thread
 *         block     ATTN_KEYS keys; the running maximum and sum are brought up to date block by
 *                   block
 * Layout  Everything in a group is transposed, so that a row holds one value of every lane:
 *             qT[D, lanes]   queries times scale times log2(e)
 *             s [keys, lanes]  scores, then 2^(score - largest)
 *             oT[D, lanes]   sum of s * v so far
 *         A product is then rows of lanes times single numbers of k and v, read where they lie:
 *         nothing of k and v is packed, no sum crosses lanes, and maxima and sums are vectors, too.
 * Bits    What a lane gets depends on its query and all keys in order, nothing else; groups and
 *         blocks begin at fixed queries and keys. Scores are in units of log2(e): 2^x is cheaper.
 * Files   attention.c splits the work; attention_kernel.inc the arithmetic, compiled for one level
 *         by level_<x>.c. */
#pragma once

#include "op/cpu/cpu_impl.h"

enum { ATTN_KEYS = 64 };

struct attn_piece {
    const float *q, *k, *v; /* first query of the piece, first key; one head */
    float *y;
    const float *mask;          /* first query's row of [Tk]; NULL: none */
    size_t ldq, ldk, ldv, ldy;  /* floats from one row to the next */
    size_t ldm;                 /* likewise, of the mask */
    size_t first, n, keys, dim; /* first: index of its own key, for causal */
    size_t window;              /* 0: none */
    float scale;
    bool causal;
    float *scratch; /* attn_scratch() floats, 64-byte aligned */
};

struct attn_kernel {
    size_t lanes; /* of a group */
    void (*run)(const struct attn_piece *p);
};
extern const struct attn_kernel attn_plain, attn_avx2, attn_avx512;

/* Floats for a piece of n queries, n a multiple of lanes: s, then per group qT, oT, maxima,
 * sums. */
static inline size_t attn_scratch(size_t lanes, size_t n, size_t dim)
{
    return ATTN_KEYS * lanes + n * (2 * dim + 2);
}
