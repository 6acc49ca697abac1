/* attention_args: what attention.c tells the kernels of attention.cu, and how their blocks divide
 * the work. C and CUDA. */
#ifndef OP_CUDA_ATTENTION_ARGS_H
#define OP_CUDA_ATTENTION_ARGS_H

#include <stdint.h>

#ifdef __CUDACC__
#define ATTENTION_FN static __host__ __device__ inline
#else
#define ATTENTION_FN static inline
#endif

enum {
    ATTENTION_QUERIES = 64, /* of a block */
    ATTENTION_KEYS = 64,    /* it looks at a time */
    ATTENTION_THREADS = 256
};

enum attention_mask { ATTENTION_NO_MASK, ATTENTION_MASK_F32, ATTENTION_MASK_LIKE_Q };

struct attention_args {
    const void *q, *k, *v, *mask;
    void *y;
    int64_t qs[3], ks[3], vs[3], ys[3]; /* elements from one B, T, H to the next */
    int64_t ms[3];                      /* of the mask: B, H, Tq; 0 where it repeats */
    uint32_t B, H, Tq, Tk, D;
    uint32_t tiles;  /* of queries */
    uint32_t slices; /* of columns of the result: a block has one, and looks at all of D for it */
    uint32_t mask_kind, causal;
    float scale;
};

/* Rows of scores that become weights, a block each. */
struct attention_rows {
    const float *scores; /* pitch floats from row to row */
    void *weights;       /* may be the scores, where they are F32 */
    int64_t pitch;       /* elements of either */
    uint32_t keys;
    float size; /* what the weights of a row add up to */
};

/* Block i's share: heads outermost, so that blocks that run together read the same keys. */
struct attention_share {
    uint32_t b, h, slice, tile;
};
ATTENTION_FN struct attention_share attention_share_of(const struct attention_args *a, uint32_t i)
{
    struct attention_share s;
    s.tile = i % a->tiles;
    i /= a->tiles;
    s.slice = i % a->slices;
    i /= a->slices;
    s.h = i % a->H;
    s.b = i / a->H;
    return s;
}

/* Keys that any query of a tile sees. */
ATTENTION_FN uint32_t attention_keys(const struct attention_args *a, uint32_t tile)
{
    uint64_t end = ((uint64_t)tile + 1) * ATTENTION_QUERIES;
    return a->causal && end < a->Tk ? (uint32_t)end : a->Tk;
}

#endif
