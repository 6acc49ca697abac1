/* coded: weights whose stored numbers are codes, and what makes values of them. The layouts that
 * ComfyUI's quantised files have (format/layout.h) are all told by one struct:
 *
 *   value[n, k] = turned(code[n, k] * block scale * row scale * scale)
 *
 *   code         I8, I4, U4, E2M1 or fp8; U4 counts from -8, or picks from a book of 16 numbers
 *   block scale  of `group` columns of a row: fp8, powers of two (E8M0, 0 being 0), or F32. TIMES:
 *                a factor. STEPS: code and scale make a whole number of -127 .. 127, which is the
 *                code then
 *   swizzled     block scales lie in tiles of 128 rows x 4 columns, 512 bytes each, tiles row by
 *                row; of a tile the scale (r, c) is number r % 32 * 16 + r / 32 * 4 + c
 *   turned       each `turn` columns were multiplied by the regular Hadamard matrix before they
 *                were coded, and are again: it is its own inverse. turn is a power of 4, at most
 *                CODED_TURN_MAX
 *
 * Products are F32, each rounded, in the order that ComfyUI's reference takes them.
 * Threads any; nothing is allocated. Files coded.c values, coded_store.c codes. */
#pragma once

#include "tensor/dtype.h"

#define CODED_TURN_MAX 1024
#define CODED_BOOK 16

enum coded_blocks { BLOCKS_NONE, BLOCKS_TIMES, BLOCKS_STEPS };

struct coded {
    enum dtype type;   /* of the codes */
    const void *codes; /* rows of `cols`, behind one another; nothing here need be aligned */
    uint64_t cols;     /* as stored, padding included: whole groups and turns */
    float scale;
    const void *rows; /* F32 for each row; NULL: none */
    enum coded_blocks how;
    enum dtype block_type;
    const void *blocks;
    uint32_t group;
    bool swizzled;
    uint32_t turn; /* 0: not turned */
    bool booked;
    float book[CODED_BOOK];
};

/* Columns that belong together: ranges that begin and end on multiples are the fastest. */
uint64_t coded_unit(const struct coded *c);
/* Where the scale of (row, block) is among the block scales. */
size_t coded_block_at(const struct coded *c, uint64_t row, uint64_t block);
/* How many block scales there are, those in the padding included. */
uint64_t coded_blocks_stored(const struct coded *c, uint64_t rows);
/* Columns [at, at + n) of a row. */
void coded_expand(const struct coded *c, uint64_t row, uint64_t at, size_t n, float *dst);
/* The codes alone as whole numbers: what integer products take. pre: coded_is_int(). */
void coded_ints(const struct coded *c, uint64_t row, uint64_t at, size_t n, int8_t *dst);
bool coded_is_int(const struct coded *c);
/* The scale of a whole row: without blocks that are factors. */
float coded_row_scale(const struct coded *c, uint64_t row);
/* x multiplied by the Hadamard matrix of `turn`, in place, group by group; n: whole groups. */
void coded_turn(float *x, size_t n, uint32_t turn);

/* ---- the other way: codes of values, as ComfyUI's writers choose them ---- */

/* One row. rows_scaled: it gets a scale of its own, else c->scale is everybody's. c->codes, rows
 * and blocks are not looked at. */
struct coded_row {
    void *codes;  /* c->cols of them */
    float scale;  /* of the row */
    void *blocks; /* of c->block_type, in order; NULL: there are none */
};
/* x: c->cols numbers, zeros in the padding; they are turned in place. Steps have a book. */
void coded_encode(const struct coded *c, bool rows_scaled, float *x, struct coded_row *out);
/* The largest code times the largest block scale: what the largest weight is divided by for the
 * scale of all. */
float coded_most(const struct coded *c);
/* The book of asymmetric codes that writers use unless the weight has long tails. */
extern const float coded_usual_book[CODED_BOOK];
