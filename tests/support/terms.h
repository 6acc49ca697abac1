/* terms: what a term of an adapter is made of, for tests that read or compare all of it. */
#ifndef SUPPORT_TERMS_H
#define SUPPORT_TERMS_H

#include "merge/merge.h"

/* The arrays a term is made of, in one fixed order; returns how many. */
#define TERM_ARRAYS 5
struct term_array {
    const float **at;
    size_t n;
};

static inline size_t term_arrays(struct res_term *t, struct term_array out[TERM_ARRAYS])
{
    size_t n = 0;
    switch (t->kind) {
    case TERM_LOWRANK:
        out[n++] = (struct term_array) { &t->up, (size_t)(t->rows * t->rank) };
        out[n++] = (struct term_array) { &t->down, (size_t)(t->rank * t->cols) };
        break;
    case TERM_HADAMARD:
        out[n++] = (struct term_array) { &t->up, (size_t)(t->rows * t->rank) };
        out[n++] = (struct term_array) { &t->down, (size_t)(t->rank * t->cols) };
        out[n++] = (struct term_array) { &t->up2, (size_t)(t->rows * t->rank2) };
        out[n++] = (struct term_array) { &t->down2, (size_t)(t->rank2 * t->cols) };
        break;
    case TERM_KRON:
        out[n++] = (struct term_array) { &t->up, (size_t)(t->left_rows * t->left_cols) };
        out[n++] = (struct term_array) { &t->down, (size_t)(t->right_rows * t->right_cols) };
        break;
    case TERM_MIX:
        out[n++] = (struct term_array) { &t->up, (size_t)(t->rows * t->rank) };
        break;
    case TERM_BUTTERFLY:
        out[n++] = (struct term_array) { &t->up, (size_t)(t->rank2 * t->rows * t->rank) };
        if (t->down)
            out[n++] = (struct term_array) { &t->down, (size_t)t->rows };
        break;
    case TERM_INPUTS:
        out[n++] = (struct term_array) { &t->up, (size_t)(t->cols / t->kernel * t->rank) };
        out[n++] = (struct term_array) { &t->down, (size_t)(t->cols / t->kernel * t->rank) };
        out[n++] = (struct term_array) { &t->up2, (size_t)(t->rows * t->rank2) };
        out[n++] = (struct term_array) { &t->down2, (size_t)(t->rank2 * t->cols) };
        break;
    case TERM_ADD:
    case TERM_SET:
        out[n++] = (struct term_array) { &t->dense, (size_t)(t->rows * t->cols) };
        break;
    case TERM_SCALE:
        break;
    }
    if (t->dora.size)
        out[n++] =
            (struct term_array) { &t->dora.size,
                                  (size_t)(t->dora.columns ? t->cols / t->dora.kernel : t->rows) };
    return n;
}

#endif
