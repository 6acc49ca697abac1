/* term_impl: what the files of a term share. For this folder. */
#pragma once

#include "merge/merge.h"
#include "op/op.h"

#define TERM_PIECE (8 * MERGE_TILE_COLS) /* floats computed beside a tile: 32 KiB of stack */

/* Does it lie inside a matrix of this size, with all it needs? */
berth_status term_check(const struct res_term *t, uint64_t rows, uint64_t cols, berth_err *err);
/* Its scratch, if it needs any. False: out of memory. */
WARN_UNUSED bool term_scratch(struct res_term *t, struct arena *mem);

struct part { /* of a tile: the rows that a term is about */
    float *w; /* [rows, cols], one row behind the other */
    size_t rows, cols;
    size_t first; /* row of the term that the first one is */
    size_t col;
};

/* Does it mix rows, or columns? Then a part has all of them. */
static inline bool term_mixes_rows(const struct res_term *t)
{
    return t->kind == TERM_MIX || t->kind == TERM_BUTTERFLY;
}
static inline bool term_turns(const struct res_term *t)
{
    return term_mixes_rows(t) || t->kind == TERM_INPUTS;
}
/* One that turns, without its dora. was: p's weights as they are, in other memory. */
void term_turn(const struct res_term *x, const struct part *p, const float *was);
