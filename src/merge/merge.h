/* merge: terms of adapters, merged into one tensor. Host pointers only; knows no devices or models.
 *
 *     struct merge m = { .from = &form, .base = &of, .to = ..., .rows, .cols, .seed };
 *     merge_take(&m, &terms, ...)    every adapter's
 *     merge_chances(&m)              room for draws
 *     merge_norms(&m, pool)          what DoRA has to know first
 *     merge_look(&m, pool)           what the stored form has to know first
 *     merge_run(&m, pool)
 *
 * A merge walks the tensor in tiles that stay in a core's cache: stored form -> float32 (form.h),
 * every term in order, float32 -> stored form. Tiles are independent, so the bits do not depend on
 * threads; only the draws of stochastic rounding come one after another, in row-major order. */
#pragma once

#include "base/tpool.h"
#include "merge/adapter.h"
#include "merge/form.h"

/* It changes no weight by more. Infinite of mixtures and factors, whose size is the weights'; not
 * of dora. */
double term_bound(const struct res_term *t);

#define MERGE_TILE_ELEMS 32768 /* floats: 128 KiB on the stack of whoever works */
#define MERGE_TILE_COLS 1024   /* most columns of a tile */
struct merge_tile {
    uint64_t row, col;
    size_t rows, cols;
    float *w; /* [rows, cols] */
};
/* Of a mixture the tile has all rows, of a TERM_INPUTS whole rows. */
void term_apply(const struct res_term *x, const struct merge_tile *t);
void term_change(const struct res_term *x, const struct merge_tile *t); /* without its dora */

struct merge { /* everything borrowed */
    const struct merge_form *from, *to;
    const void *base;    /* of `from` */
    void *result;        /* of `to` */
    uint64_t rows, cols; /* of the tensor as a matrix; cols > 0 */
    const struct res_term *term;
    size_t terms;
    /* `to` rounds by chance: the generator's seed, and room for merge_chances() draws. */
    uint32_t seed;
    uint32_t *chance;
};

/* Takes the terms from number `first` on, which are for m's rows and columns: each has to lie
 * inside them with all it needs, and is given its scratch out of *mem; those before were taken
 * already.
 * BERTH_EFORMAT: one does not fit. BERTH_EUNSUPPORTED: they cannot be merged together. */
berth_status merge_take(struct merge *m, struct vec *terms, size_t first, struct arena *mem,
                        berth_err *err);
/* Are there mixtures of rows among the terms? Then tiles have all rows, and few columns. */
bool merge_mixes(const struct merge *m);
/* Mixtures of columns? Then tiles have whole rows. */
bool merge_spans(const struct merge *m);
/* Is a tensor of type t stored wider in a block that is patched into type `patched`? 16-bit floats
 * in one of F32; quants, and fp8 for high precision, in one of F16 or BF16. */
bool merge_widens(enum dtype t, enum dtype patched);
/* Draws that m->chance must have room for; m's form, shape and terms are set. 0: none are
 * needed. */
uint64_t merge_chances(const struct merge *m);
/* The tile as the first `terms` of m->term leave it; its place and size are set. */
void merge_tile_to(const struct merge *m, const struct merge_tile *t, size_t terms);
/* Looks at the weights once for every term with dora, in order: rows and columns have to be known
 * as a whole before a tile can be merged. First of all, and once. Allocates nothing. */
void merge_norms(const struct merge *m, struct tpool *pool);
/* Lets the form look at what will be stored, where it wants to. */
void merge_look(const struct merge *m, struct tpool *pool);
/* pre: terms lie inside the matrix. Allocates nothing. pool NULL: this thread only. */
void merge_run(const struct merge *m, struct tpool *pool);
/* The largest |value| of the merged tensor; NaN does not count. Writes nothing. */
float merge_amax(const struct merge *m, struct tpool *pool);
