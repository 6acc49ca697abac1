/* args.cuh: what our own kernels get, one struct each, filled in by the .c file of the same name as
 * the .cu that reads it. C and CUDA see the same layout: only fixed-size members.
 *
 * Words   packed   elements go 16 bytes at a time; the host has seen that addresses, strides and
 *                  lengths allow it
 *         unit     what one thread moves at a time: an element, or 16 bytes of them where packed
 *         item     the outermost dimension, with modulations of its own */
#ifndef OP_CUDA_ARGS_CUH
#define OP_CUDA_ARGS_CUH

#include "op/cuda/index.cuh"

enum { CUDA_F32, CUDA_F16, CUDA_BF16 }; /* param.type */
/* The kinds of op/ops.h, which C++ does not read; pointwise.c asserts that they are the same. */
enum { CUDA_SILU, CUDA_GELU, CUDA_GELU_TANH, CUDA_QUICK_GELU, CUDA_RELU, CUDA_TANH, CUDA_SIGMOID };
enum { CUDA_ADD, CUDA_SUB, CUDA_MUL };

struct param {       /* parameters, as they are stored */
    const void *p;   /* NULL: absent */
    uint64_t stride; /* bytes from one item to the next */
    int32_t type, pad;
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
};

struct group_norm_args {
    const void *x;
    void *y;
    void *part; /* scratch: mean and sum of squares around it (float2) of every chunk */
    struct param w, b;
    uint64_t groups, per;   /* of one item; channels of one */
    uint64_t size;          /* elements of a group */
    uint64_t chunk;         /* elements of one, but for the last of a group */
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
    uint64_t rows; /* items * T */
    uint32_t H, D;
    uint32_t lanes; /* threads of a head, a power of two up to 32; 16 bytes each where packed */
    float eps;
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
    int32_t circular, pad;
};

#endif
