/* form: how the numbers of a weight are stored: what merging asks of a stored type.
 *
 *     widen(of, at, dst, n)      what the file has -> float32
 *     look(of, amax)             where a scale has to be known first: the largest merged |value|
 *     store(of, at, x, n, ...)   merged float32 -> what the block holds, by all threads at once
 *
 * `of` is the form's own: where the bytes lie, scales. A form of numbers with scales beside them
 * writes those where `of` says; whoever made `of` puts them into the block behind the weight
 * (residency/patch.c). Numbers are counted row by row; nothing here knows of files or devices.
 *
 * Codes    quantised layouts (tensor/coded.h) are widened and stay so: rounded back to their codes
 *          without chance, most of what an adapter adds would be lost.
 * Adding   a form is one const struct, and an `of` of its own; set_forms() of residency/patch.c
 *          chooses it. Requantising as ComfyUI does it means a look() that chooses the scale anew,
 *          and a store() that rounds by chance. */
#pragma once

#include "tensor/coded.h"

struct merge_form {
    const char *name;
    void (*widen)(const void *of, uint64_t at, float *dst, size_t n);
    void (*look)(void *of, float amax); /* NULL: nothing has to be known */
    /* x may be changed. chance: a draw for every number (merge.h says whose); only if `chance`. */
    void (*store)(const void *of, uint64_t at, float *x, size_t n, const uint32_t *chance);
    bool chance;
    bool rows; /* store() is given whole rows */
};

/* Numbers of a type of tensor/dtype.h, perhaps times one scale. */
struct merge_plain {
    enum dtype type;
    void *data;        /* not written by widen() */
    enum dtype stored; /* of the data: each number is rounded to `type` first; both plain floats */
    float scale;       /* value = number * scale */
    enum dtype scale_type; /* how look() has to be able to store the scale */
};

/* Rounded to nearest. Quants can only be widened. */
extern const struct merge_form merge_plain;
/* Fp8, rounded by chance as ComfyUI does it; or with a scale that look() chooses so that the
 * largest value is the largest code. */
extern const struct merge_form merge_fp8, merge_fp8_scaled;

/* Codes with scales beside them; of: struct coded, with its addresses. Can only be widened. */
extern const struct merge_form merge_coded;

/* A type alone: `stored` is the type, the scale 1. */
static inline struct merge_plain merge_numbers(enum dtype type, const void *data)
{
    return (struct merge_plain) { type, (void *)(uintptr_t)data, type, 1, DT_F32 };
}
bool merge_stores(enum dtype t);    /* can patched weights be stored in it? */
bool merge_by_chance(enum dtype t); /* fp8 */
/* merge_plain or merge_fp8. */
const struct merge_form *merge_form_of(enum dtype t);
float merge_fp8_most(enum dtype t); /* the largest value of an fp8 type */
