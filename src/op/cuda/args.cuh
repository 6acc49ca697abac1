/* args.cuh: what our own kernels get, one struct each, filled in by the .c file of the same name as
 * the .cu that reads it. C and CUDA see the same layout: only fixed-size members.
 *
 * Words   packed   elements go 16 bytes at a time; the host has seen that addresses, strides and
 *                  lengths allow it
 *         unit     what one thread moves at a time: an element, or 16 bytes of them where packed
 *         item     the outermost dimension, with modulations of its own */
#pragma once

#include "op/index.h"

enum { CUDA_F32, CUDA_F16, CUDA_BF16 }; /* types of parameters and biases */
/* The kinds of op/ops.h, which C++ does not read; pointwise.c asserts that they are the same. */
enum { CUDA_SILU, CUDA_GELU, CUDA_GELU_TANH, CUDA_QUICK_GELU, CUDA_RELU, CUDA_TANH, CUDA_SIGMOID };
enum { CUDA_ADD, CUDA_SUB, CUDA_MUL, CUDA_SILU_MUL, CUDA_LEAK };

struct param {       /* parameters, as they are stored */
    const void *p;   /* NULL: absent */
    uint64_t stride; /* bytes from one item to the next */
    int32_t type, pad;
};

/* ---- channel_norm.cu ---- */

struct channel_norm_args {
    const void *x;
    void *y;
    struct param w, scale, shift; /* p NULL: none */
    uint64_t channels, pixels;    /* pixels of all items */
    struct fast_div inner;     /* of one */
    float root, eps;              /* root of channels */
    uint32_t silu, rooted;
};

/* ---- norm.cu ---- */

struct row_norm_args {
    const void *x;
    void *y;
    uint64_t rows, row;
    struct param w, b;         /* [row] */
    struct param scale, shift; /* [items, row] */
    struct fast_div per_item;  /* rows of one */
    float eps;
    int32_t rms;
    float from; /* what w counts from: 0 or 1 */
    int32_t pad;
};

struct group_norm_args {
    const void *x;
    void *y;
    void *part; /* scratch: mean and sum of squares around it (float2) of every chunk */
    struct param w, b;
    uint64_t groups, per;   /* of one item; channels of one */
    uint64_t size;          /* elements of a group */
    uint64_t chunk;         /* elements of one, except for the last of a group */
    struct fast_div chunks; /* of a group */
    uint64_t all;           /* chunks of all groups */
    struct fast_div inner;  /* elements of a channel */
    float eps;
    int32_t silu;
    int32_t packed_sums, packed; /* a group's, a channel's elements are whole units */
};

struct qk_rope_args {
    void *x[2];            /* q, k */
    uint64_t stride[2][3]; /* bytes, of items, positions, heads */
    const void *table;     /* [T, D/2, 2] float */
    struct param w[2];
    struct fast_div T;
    uint64_t rows;    /* items * T */
    uint32_t H[2], D; /* heads of q, k */
    uint32_t lanes;   /* threads of a head, a power of two up to 32; 16 bytes each where packed */
    float eps, from;  /* from: what w counts from, 0 or 1 */
    int32_t halves;   /* pairs are half a head apart */
    int32_t pad;
};

/* ---- pointwise.cu ---- */

struct gate_args {
    const void *x, *z;
    void *y;
    uint64_t sx, sz, sy; /* bytes between rows */
    struct param gate;
    struct fast_div per_item; /* rows of one */
    struct fast_div row;      /* units of one */
    uint64_t n;               /* units in all */
    int32_t packed, pad;
};

struct unary_args {
    const void *x;
    void *y;
    uint64_t n; /* elements */
    int32_t kind, packed;
};

struct binary_args {
    const void *a, *b;
    void *y;
    uint64_t n;                        /* units */
    struct fast_div dim[STRIDED_DIMS]; /* of a, in units where packed */
    uint64_t sb[STRIDED_DIMS];         /* strides of b in elements; 0: repeats */
    int32_t nd, kind, packed;
    float scale;
    int32_t a_type, b_type; /* CUDA_F32 ...; of binary_to_f32 alone */
};

struct geglu_args {
    const void *x;
    void *y;
    uint64_t n;          /* units of y */
    struct fast_div row; /* units of y's */
    int32_t tanh, packed;
};

struct timestep_args {
    const float *t;
    void *y;
    uint64_t n, dim;
    struct fast_div half; /* dim / 2, at least 1 */
    float log_period;     /* -ln(period) */
    int32_t sin_first;
};

/* ---- move.cu ---- */

struct copy_args { /* n units; strides in bytes */
    const void *x;
    void *y;
    uint64_t n;
    struct fast_div dim[STRIDED_DIMS];
    uint64_t sx[STRIDED_DIMS], sy[STRIDED_DIMS];
    int32_t nd, pad;
};

#define CUDA_TILE 32
struct turn_args { /* tiles of two dimensions: `across` lies together in x, `along` in y */
    const void *x;
    void *y;
    uint64_t across, along;       /* elements */
    uint64_t sx_along, sy_across; /* elements; the other strides are 1 */
    struct fast_div tiles_across, tiles_along;
    uint64_t tiles; /* in all, the other dimensions included */
    struct fast_div dim[STRIDED_DIMS];
    uint64_t sx[STRIDED_DIMS], sy[STRIDED_DIMS]; /* elements, of the other dimensions */
    int32_t nd, pad;
};

struct convert_args {
    const void *x;
    void *y;
    uint64_t n; /* elements */
    int32_t from, packed;
};

struct gather_args { /* y[i] = table[ids[i]], zeros where there is no such row */
    const void *table, *ids;
    void *y;
    uint64_t n, rows;
    struct fast_div row; /* units (gather) or elements (embedding) */
    int32_t from, pad;   /* embedding: the table's type */
};

struct resize2d_args {
    const void *x;
    void *y;
    uint64_t n;           /* elements of y */
    struct fast_div h, w; /* of y */
    uint32_t in_h, in_w;
    float scale_h, scale_w; /* of x to y */
    int32_t bilinear, pad;
};

struct pad2d_args {
    const void *x;
    void *y;
    uint64_t n;           /* elements of y */
    struct fast_div h, w; /* of y */
    uint64_t in_h, in_w, top, left;
    int32_t kind, pad; /* enum op_pad_kind */
};

/* ---- expand.cu ---- */

#define EXPAND_THREADS 256 /* of a block; each has two chunks of eight elements */

struct expand_args {
    const uint8_t *src;
    void *dst;
    uint64_t n;         /* elements, or chunks of blocks */
    int32_t wide, type; /* what moves by 16 bytes lies at multiples of it; expand_any: of src */
};

/* ---- decode.cu ---- */

#define DECODE_THREADS 256 /* of a block; each turns four columns */
#define DECODE_COLS (4 * DECODE_THREADS)

struct decode_args { /* rows of y, as struct coded says */
    const uint8_t *codes;
    const float *rows; /* NULL: none, as blocks and ids */
    const uint8_t *blocks;
    const int32_t *ids;
    void *y;
    uint64_t tiles, across; /* in all, of a row */
    uint64_t first, n;      /* row of y's first, without ids; rows of codes */
    uint64_t cols, out;     /* of codes, of y */
    uint64_t in_row;        /* block scales */
    float scale, book[16];
    int32_t type, pairs;     /* enum dtype; two codes in a byte */
    int32_t how, block_type; /* enum coded_blocks, enum dtype */
    int32_t group_log, swizzled, booked;
    uint32_t turn;
};

/* ---- product.cu ---- */

/* y[m][n] = after(sum over k of x[m][k] w[n][k] * scale + bias[n]) + add[m][n], for each of a batch
 * (grid z). Leading dimensions in elements: from row to row. */
struct product_args {
    const void *x, *w, *bias, *add; /* bias, add: NULL is none */
    void *y;
    uint64_t m, n, k;
    uint64_t ld_x, ld_add, ld_y;
    uint64_t w_row;            /* vec: bytes of a row of w, as stored */
    uint64_t w_n, w_k;         /* gemm: elements of w from n to n + 1, from k to k + 1 */
    uint64_t of_x, of_w, of_y; /* gemm: elements from one of the batch to the next */
    float scale;
    int32_t bias_type; /* CUDA_F32 ... */
    int32_t gelu;      /* after: the tanh form */
    int32_t wide;      /* vec: rows of x and w begin at multiples of 16 bytes, k is one of 8 */
};

#define VEC_ROWS 4    /* of x that product_vec4 takes; product_vec1 takes one */
#define VEC_WARPS 8   /* of a block, a row of w each */
#define GEMM_TILE 64  /* rows and columns of y of a block */
#define GEMM_DEPTH 16 /* of k at a time */
#define GEMM_THREADS 256
#define FINISH_THREADS 256

/* ---- merge.cu ---- */

/* w[rows, cols] += scale * up[rows, rank] . down[rank, cols]; ld: floats from row to row. */
struct merge_args {
    float *w;
    const float *up, *down;
    uint64_t rows, cols, rank;
    uint64_t ld_w, ld_up, ld_down;
    float scale;
    int32_t pad;
};

#define MERGE_TILE 128 /* rows and columns of w of a block */
#define MERGE_DEPTH 16 /* of the rank at a time */
#define MERGE_THREADS 256

/* ---- attention.cu ---- */

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
    uint32_t past, window; /* op_attention */
    uint32_t group;        /* heads of q that share one of k and v */
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
CUDA_BOTH struct attention_share attention_share_of(const struct attention_args *a, uint32_t i)
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

/* Keys that any query of a tile sees: up to these, from a whole tile of keys on. */
CUDA_BOTH uint32_t attention_keys(const struct attention_args *a, uint32_t tile)
{
    uint64_t end = a->past + ((uint64_t)tile + 1) * ATTENTION_QUERIES;
    return a->causal && end < a->Tk ? (uint32_t)end : a->Tk;
}
CUDA_BOTH uint32_t attention_first_key(const struct attention_args *a, uint32_t tile)
{
    uint64_t own = a->past + (uint64_t)tile * ATTENTION_QUERIES + 1;
    if (!a->window || own <= a->window)
        return 0;
    own = (own - a->window) / ATTENTION_KEYS * ATTENTION_KEYS;
    return own < a->Tk ? (uint32_t)own : a->Tk;
}

/* ---- conv2d.cu ---- */

enum {
    CONV_THREADS = 256,
    CONV_TILE = 64,
    CONV_RUN = 1024 /* elements of a block of conv2d_finish */
};

/* Pixels of planes to pixels of channels and back: the planes are [n, channels, plane], of which
 * pixels [from, from + pixels) count; the pixels are [n, pixels, padded], aligned to 4 bytes. */
struct conv_turn {
    const void *src;
    void *dst;
    const void *bias, *add; /* back only; NULL: none. add lies as dst does, and may be dst */
    int64_t plane, from, pixels;
    uint32_t channels, padded; /* padded is even */
    int32_t bias_type;         /* CUDA_F32 ... */
    uint32_t pairs;            /* planes can be read and written two pixels at a time */
};

/* dst[i] = src[i] in the type of dst, zeros from n on; src NULL: zeros. */
struct conv_bias {
    const void *src;
    void *dst;
    uint32_t n, padded;
    int32_t type; /* CUDA_F32 ... */
};

/* dst[oc, rs, ic] = src[oc, ic, rs] * scale, zeros where oc or ic is beyond those of src. */
struct conv_filter {
    const void *src;
    void *dst;
    int64_t n; /* of dst */
    uint32_t out, in, in_padded, window;
    float scale;
};

/* dst = src + bias of the channel + add, all [n, channels, plane]. */
struct conv_finish {
    const void *src, *bias, *add;
    void *dst;
    int64_t plane;
    uint32_t channels, runs; /* of CONV_RUN elements in a plane */
    int32_t bias_type;
};
