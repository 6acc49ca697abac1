/* adapter: what an adapter is to those who merge it: an object that gives terms for a tensor.
 *
 * An adapter (lora/) is counted and shared by models. For a tensor it gives terms in the order they
 * apply. residency/patch.c merges them into a float32 copy of the base weight on the host, and says
 * in which type the result is stored.
 *
 *   W[row .. row+rows) viewed as [rows, cols], cols = elements of a row
 *   TERM_LOWRANK   W += scale * up[rows, rank] . down[rank, cols]
 *   TERM_HADAMARD  W += scale * (up . down) * (up2[rows, rank2] . down2[rank2, cols]), element by
 *                  element
 *   TERM_KRON      W[r, j*right_cols + k] += scale * up[i / right_rows, j] *
 *                  down[i % right_rows, k], i = (from + r) mod (left_rows * right_rows); up is the
 *                  left matrix, down the right
 *   TERM_MIX       W[r] += scale * sum over i of up[r, i] * W[r / rank * rank + i] as it was: every
 *                  `rank` rows become mixtures of themselves
 *   TERM_BUTTERFLY W += scale * (C - W); C is W after rank2 mixtures, times down[rows] where it is
 *                  there. Mixture s: rows stand in a new order, in which row a*2k + x*2 + g is
 *                  a*2k + g*k + x (g: 0, 1; k = rank/2 * 2^s); every `rank` of them, number b,
 *                  become up[s, b, rank, rank] . themselves; the old order
 *   TERM_INPUTS    W += scale * (W . up . down + up2[rows, rank2] . down2[rank2, cols]), with
 *                  up [cols/kernel, rank], down [rank, cols/kernel]: column c of W is input
 *                  c / kernel at place c % kernel, and each place is multiplied by itself
 *   TERM_ADD       W += scale * dense[rows, cols]
 *   TERM_SET       W  = dense (scale does not matter)
 *   TERM_SCALE     W *= scale
 *
 * Of a weight that has a TERM_MIX or TERM_BUTTERFLY every tile has all rows, of one that has a
 * TERM_INPUTS whole rows; a weight with both is refused (merge_take()).
 *
 * scale in a term already holds strength and alpha/rank. A term whose dora.size is set (not of the
 * last three kinds) holds alpha/rank only, and does one thing more:
 *
 *   C  = W changed as above; n = the norms of the rows of W as it was (dora.before) or of C; or of
 *        the columns (dora.columns), of dora.kernel of them together
 *   C *= size / (n + epsilon), each row or group of columns by its own
 *   W += dora.strength * (C - W); W = C where that is 1
 *
 * W is what the terms before it have made of it; rows outside [row, row+rows) have no part in it.
 *
 * Files  term.c one term; turn.c those that need whole rows or columns; norms.c what dora needs to
 *        know first; merge.c all terms into one tensor, tile by tile (merge.h). */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/vec.h"
#include "tensor/shape.h"

#include <stdatomic.h>

enum res_term_kind {
    TERM_LOWRANK,
    TERM_HADAMARD,
    TERM_KRON,
    TERM_MIX,
    TERM_BUTTERFLY,
    TERM_INPUTS,
    TERM_ADD,
    TERM_SET,
    TERM_SCALE
};

#define RES_MIX_ROWS 32768   /* most rows of a weight that a TERM_MIX or TERM_BUTTERFLY is for */
#define RES_INPUT_COLS 32768 /* most columns of one that a TERM_INPUTS is for, */
#define RES_INPUT_RANK 8192  /* and its largest rank */

struct res_dora {
    const float *size; /* [rows], or [cols / kernel]; NULL: none */
    bool columns, before;
    uint64_t kernel; /* divides cols */
    float strength;
    /* Scratch of merging. */
    double *sum; /* of squares: [rows] or [cols] */
    float *gain; /* size / norm */
};

struct res_term {
    enum res_term_kind kind;
    uint64_t row, rows, cols;
    uint32_t rank, rank2;
    uint64_t left_rows, left_cols, right_rows, right_cols, from; /* TERM_KRON */
    uint64_t kernel;                                             /* TERM_INPUTS */
    float scale;
    const float *up, *down, *up2, *down2, *dense; /* in the arena handed to terms() */
    struct res_dora dora;                         /* scratch is not for terms() to set */
};

/* The matrix a shape is seen as: a row for every index of the outermost dimension; a scalar is 1 x
 * 1. False: beyond 64 bits. */
WARN_UNUSED bool merge_matrix(const struct shape *s, uint64_t *rows, uint64_t *cols);

struct res_adapter;

struct res_adapter_ops {
    /* Does it touch this tensor? key: what ComfyUI calls it, whatever the file does
     * (res_tensor_key()). Cheap. */
    bool (*touches)(const struct res_adapter *a, const char *key, size_t n);
    /* Appends struct res_term to *out, factors converted to F32 in *tmp. shape: of the tensor.
     * BERTH_EFORMAT: factors that do not fit the shape, naming both. Any thread. */
    berth_status (*terms)(const struct res_adapter *a, const char *key, size_t n,
                          const struct shape *shape, float strength, struct arena *tmp,
                          struct vec *out, berth_err *err);
    void (*free)(struct res_adapter *a);
};

struct res_adapter { /* first member of an implementation's struct */
    const struct res_adapter_ops *ops;
    atomic_uint refs;
    uint64_t id;      /* hash of the file's identity and options: equal means equal effect */
    const char *name; /* for messages */
};
static inline void res_adapter_ref(struct res_adapter *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
}
static inline void res_adapter_unref(struct res_adapter *a) /* NULL is fine */
{
    if (a && atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) == 1)
        a->ops->free(a);
}

struct res_patch {
    struct res_adapter *adapter;
    float strength; /* 0: as if it were not there */
};

/* What adapter files call a model's tensors: a model knows its own (model/lora_names.h), lora/
 * looks them up. The two do not know each other, so the list they share is here. */
struct lora_name {
    const char *base; /* base name in adapter files: "lora_unet_conv_in" */
    const char *key;  /* of the tensor: "diffusion_model.input_blocks.0.0.weight" */
    uint64_t row;     /* the rows of it that are meant, along the outermost dimension; */
    uint64_t rows;    /* 0: all */
    uint64_t from; /* where the file keeps in one change what the model keeps in several tensors: */
    uint64_t of;   /* of a change of so many rows those from here on; 0: all of it */
    bool swap;     /* the halves of the change trade places (Flux: scale, shift) */
    bool transpose; /* the file keeps the matrix the other way round (OpenCLIP) */
};
struct lora_names { /* in map order: of two names for the same rows the later one wins */
    const struct lora_name *at;
    size_t n;
};
