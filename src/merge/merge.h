/* merge: terms of adapters, merged into one tensor. Host pointers only; knows no devices or models.
 *
 * A merge walks the tensor in tiles that stay in a core's cache: base type -> float32, every term
 * in order, float32 -> stored type. Tiles are independent, so the bits do not depend on threads;
 * only the draws of stochastic rounding come one after another, in row-major order. */
#pragma once

#include "base/tpool.h"
#include "merge/adapter.h"
#include "tensor/dtype.h"

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
    enum dtype from, to;
    const void *src;
    bool converted;    /* src is of type `stored`: each value is rounded to `from` first */
    enum dtype stored; /* both plain floats, `from` of one byte */
    void *dst;
    uint64_t rows, cols; /* of the tensor as a matrix; cols > 0 */
    const struct res_term *term;
    size_t terms;
    /* fp8 with a scale beside it: value = code * scale. 1: none. */
    float src_scale, dst_scale;
    /* Type `to` is fp8: the generator's seed, and room for merge_chances() draws. */
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
bool merge_stores(enum dtype t); /* can patched weights be stored in it? */
bool merge_by_chance(enum dtype t);
/* Is a tensor of type t stored wider in a block that is patched into type `patched`? 16-bit floats
 * in one of F32; quants, and fp8 for high precision, in one of F16 or BF16. */
bool merge_widens(enum dtype t, enum dtype patched);
float merge_fp8_most(enum dtype t); /* the largest value of an fp8 type */
/* Draws that m->chance must have room for; m's type and shape are set. 0: none are needed. */
uint64_t merge_chances(const struct merge *m);
/* The tile as the first `terms` of m->term leave it; its place and size are set. */
void merge_tile_to(const struct merge *m, const struct merge_tile *t, size_t terms);
/* Looks at the weights once for every term with dora, in order: rows and columns have to be known
 * as a whole before a tile can be merged. First of all, and once. Allocates nothing. */
void merge_norms(const struct merge *m, struct tpool *pool);
/* pre: terms lie inside the matrix. Allocates nothing. pool NULL: this thread only. */
void merge_run(const struct merge *m, struct tpool *pool);
/* The largest |value| of the merged tensor before dst_scale; NaN does not count. Writes nothing. */
float merge_amax(const struct merge *m, struct tpool *pool);
