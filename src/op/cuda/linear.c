/* linear: rows of x times rows of a stored weight.
 *
 * Ways     few     up to VEC_ROWS rows, y of x's type: a kernel of ours reads the weight as it is
 *                  stored, once, at the speed of memory (product.cu). Expanding it first would move
 *                  three to five times the bytes.
 *          fp8     where asked for, y of x's type: x rounded to fp8, too, cuBLASLt multiplies fp8
 *          else    cuBLASLt; a weight of another type than x is expanded in pieces of up to PIECE
 *                  bytes, each multiplied at once. Pieces follow from the shape alone, thrifty or
 *                  not: the same bits.
 * Refusals A product that cuBLASLt has no kernel for with its bias and GELU is computed without,
 *          and a kernel of ours does those; one it has none for at all is computed by ours, slowly.
 *          Both are logged when they are first met (blas.h).
 * Scratch  [bias in y's type | x in fp8 | a piece of w | workspace], as far as needed. */
#include "op/cuda/blas.h"
#include "op/cuda/expand_decode.h"
#include "op/cuda/own.h"

#include <limits.h>

#define PIECE ((size_t)64 << 20)
#define ROWS_STEP 256 /* of a piece: a multiple of the library's tiles */
#define GRID_Y 65535u

struct job {
    const struct op_linear *a;
    enum dtype type, to;            /* of x; of y, add and the bias that the library gets */
    size_t m, n, k;                 /* rows; of y and w; of x */
    size_t ld_x, ld_add, ld_y;      /* elements */
    size_t row_bytes;               /* of w as it is stored */
    bool expand;                    /* w is of another type */
    size_t piece;                   /* rows of w expanded at a time */
    size_t in_bias, in_x, in_piece; /* bytes of scratch, multiples of BLAS_PLACE; 0: not needed */
    size_t in_work;
};

/* Elements from row to row; a single row has any. */
static size_t leading(const struct view *v, size_t elem, size_t row)
{
    size_t rows, stride;
    if (!op_rows(v, &rows, &stride) || rows <= 1)
        return row;
    return stride / elem;
}

/* Weights that the kernels for few rows read. */
static bool reads_stored(enum dtype w, enum dtype type)
{
    return own_is_type(w) || w == DT_F8_E4M3 || w == DT_F8_E5M2 ||
           (dtype_is_quant(w) && type != DT_F32);
}

static size_t piece_rows(size_t n, size_t row)
{
    size_t most = PIECE / row;
    if (most >= n || n <= 8)
        return n;
    if (most < ROWS_STEP) /* slices of biases are to begin at multiples of 16 bytes */
        return most >= 8 ? most / 8 * 8 : 8;
    most = most / ROWS_STEP * ROWS_STEP;
    size_t pieces = (n + most - 1) / most, even = (n + pieces - 1) / pieces;
    return (even + ROWS_STEP - 1) / ROWS_STEP * ROWS_STEP; /* <= most, which is a multiple too */
}

static struct job job_of(const struct op_env *env, const struct op_linear *a)
{
    const struct dtype_desc *w = dtype_desc(a->w.dtype);
    struct job j = { .a = a, .type = a->x.dtype, .to = a->y.dtype };
    size_t elem = dtype_desc(j.type)->bytes, elem_to = dtype_desc(j.to)->bytes, stride;
    j.n = op_row(&a->y);
    j.k = op_row(&a->x);
    op_rows(&a->y, &j.m, &stride);
    j.ld_x = leading(&a->x, elem, j.k);
    j.ld_y = leading(&a->y, elem_to, j.n);
    j.ld_add = op_has(&a->add) ? leading(&a->add, elem_to, j.n) : 0;
    j.row_bytes = j.k / w->elems * w->bytes;
    if (j.m <= VEC_ROWS && j.to == j.type && reads_stored(a->w.dtype, j.type))
        return j;
    j.expand = a->w.dtype != j.type;
    j.piece = j.expand ? piece_rows(j.n, j.k * elem) : j.n;
    j.in_bias = op_has(&a->bias) ? blas_place(j.n * elem_to) : 0;
    j.in_x = env->fp8 && a->w.dtype == DT_F8_E4M3 && j.to == j.type ? blas_place(j.m * j.k) : 0;
    j.in_piece = j.expand ? blas_place(j.piece * j.k * elem) : 0;
    j.in_work = blas_workspace(j.m, j.n, 1);
    return j;
}

size_t cuda_linear_scratch(const struct op_env *env, const struct op_linear *a)
{
    struct job j = job_of(env, a);
    size_t bytes = j.in_bias + j.in_x + j.in_piece + j.in_work;
    return bytes ? bytes + BLAS_PLACE : 0; /* scratch itself may begin between places */
}

berth_status cuda_linear_ready(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    const struct job j = job_of(env, a);
    return j.in_work && blas_open(env, err) ? err_add(err, "linear") : BERTH_OK;
}

/* ---- kernels of ours ---- */

static unsigned tiles(size_t n, size_t tile)
{
    return (unsigned)((n + tile - 1) / tile);
}

static unsigned most_y(size_t n)
{
    return n < GRID_Y ? (unsigned)n : GRID_Y;
}

static const char *const vec1[DT_COUNT] = {
#define DTYPE(ID, id) [DT_##ID] = "product_vec1_" #id,
#include "tensor/dtypes.def"
#undef DTYPE
};
static const char *const vec4[DT_COUNT] = {
#define DTYPE(ID, id) [DT_##ID] = "product_vec4_" #id,
#include "tensor/dtypes.def"
#undef DTYPE
};

static berth_status few_rows(const struct op_env *env, const struct job *j, berth_err *err)
{
    const struct op_linear *a = j->a;
    enum dtype w = a->w.dtype;
    size_t elem = dtype_desc(j->type)->bytes;
    struct product_args p = { .x = a->x.data,
                              .w = a->w.data,
                              .bias = a->bias.data,
                              .add = a->add.data,
                              .y = a->y.data,
                              .m = j->m,
                              .n = j->n,
                              .k = j->k,
                              .ld_x = j->ld_x,
                              .ld_add = j->ld_add,
                              .ld_y = j->ld_y,
                              .w_row = j->row_bytes,
                              .scale = a->scaled ? a->scale : 1,
                              .bias_type = own_type(a->bias.dtype),
                              .gelu = a->after == OP_AFTER_GELU_TANH };
    if (dtype_is_quant(w) && (uintptr_t)p.w % DEC_ALIGN(dtype_desc(w)->bytes))
        return err_set(err, BERTH_EINVAL, "linear: %s at %p is not aligned", dtype_name(w), p.w);
    uintptr_t odd = (uintptr_t)p.x | (j->m > 1 ? j->ld_x * elem : 0);
    if (!dtype_is_quant(w))
        odd |= (uintptr_t)p.w | j->row_bytes;
    p.wide = odd % 16 == 0 && j->k % 8 == 0;
    return cuda_launch_blocks(env, CUDA_MODULE_product, j->m == 1 ? vec1[w] : vec4[w], j->type,
                              tiles(j->n, VEC_WARPS), 32 * VEC_WARPS, &p, err);
}

static berth_status launch(const struct op_env *env, const char *kernel, enum dtype type,
                           struct product_args *p, unsigned grid_x, unsigned grid_y,
                           unsigned threads, berth_err *err)
{
    const struct cuda_launch l = { CUDA_MODULE_product, kernel,      type,
                                   { grid_x, grid_y },  { threads }, p };
    return cuda_launch(env, &l, err);
}

/* ---- cuBLASLt ---- */

/* Computes p with the library, and with as much of the epilogue there as the library has. */
static berth_status multiply(const struct op_env *env, const struct blas_product *p, void *work,
                             bool *refused, berth_err *err)
{
    struct blas_product plain = *p;
    berth_status s = blas_run(env, p, work, refused, err);
    if (s || !*refused || (!p->bias && !p->gelu))
        return s;
    plain.bias = NULL;
    plain.gelu = false;
    s = blas_run(env, &plain, work, refused, err);
    if (s || *refused)
        return s;
    struct product_args f = { .y = p->y,
                              .m = p->m,
                              .n = p->n,
                              .ld_y = p->ld_y,
                              .bias = p->bias,
                              .bias_type = own_type(p->to),
                              .gelu = p->gelu };
    return launch(env, "product_finish", p->to, &f, tiles(p->n, FINISH_THREADS), most_y(p->m),
                  FINISH_THREADS, err);
}

struct parts { /* of scratch */
    void *bias, *x, *piece, *work;
};

static struct parts parts_of(const struct op_env *env, const struct job *j)
{
    char *at = (char *)blas_place((uintptr_t)env->scratch);
    return (struct parts) { .bias = at,
                            .x = at + j->in_bias,
                            .piece = at + j->in_bias + j->in_x,
                            .work = at + j->in_bias + j->in_x + j->in_piece };
}

/* Rows [from, from + n) of w, which lie at `w` in `type`. */
static struct blas_product product_of(const struct job *j, enum dtype type, const void *x,
                                      size_t ld_x, const void *w, const void *bias, size_t from,
                                      size_t n)
{
    const struct op_linear *a = j->a;
    size_t elem = dtype_desc(j->to)->bytes;
    return (struct blas_product) {
        .m = j->m,
        .n = n,
        .k = j->k,
        .batch = 1,
        .type = type,
        .to = j->to,
        .x = x,
        .w = w,
        .bias = bias ? (const char *)bias + from * elem : NULL,
        .add = a->add.data ? (const char *)a->add.data + from * elem : NULL,
        .y = (char *)a->y.data + from * elem,
        .ld_x = ld_x,
        .ld_w = j->k,
        .ld_add = j->ld_add,
        .ld_y = j->ld_y,
        .scale = a->scaled ? a->scale : 1,
        .gelu = a->after == OP_AFTER_GELU_TANH,
    };
}

/* fp8 products need everything in sixteens, and a chip that has them (sm_89). */
static bool fits_fp8(const struct op_env *env, const struct job *j)
{
    const struct cuda_phys *phys = cuda_of(env->stream->phys);
    size_t elem = dtype_desc(j->type)->bytes;
    return j->in_x && j->type != DT_F32 && phys->sm >= 89 && j->k % 16 == 0 && j->n % 16 == 0 &&
           (uintptr_t)j->a->w.data % 16 == 0 && (uintptr_t)j->a->y.data % 16 == 0 &&
           j->ld_y * elem % 16 == 0 &&
           (!j->a->add.data || ((uintptr_t)j->a->add.data % 16 == 0 && j->ld_add * elem % 16 == 0));
}

static berth_status in_fp8(const struct op_env *env, const struct job *j, const struct parts *at,
                           const void *bias, bool *refused, berth_err *err)
{
    struct product_args r = {
        .x = j->a->x.data, .y = at->x, .m = j->m, .k = j->k, .ld_x = j->ld_x
    };
    if (launch(env, "product_round", j->type, &r, tiles(j->k, FINISH_THREADS), most_y(j->m),
               FINISH_THREADS, err))
        return err->code;
    struct blas_product p = product_of(j, DT_F8_E4M3, at->x, j->k, j->a->w.data, bias, 0, j->n);
    return multiply(env, &p, at->work, refused, err);
}

static berth_status in_pieces(const struct op_env *env, const struct job *j, const struct parts *at,
                              const void *bias, berth_err *err)
{
    const struct op_linear *a = j->a;
    for (size_t from = 0; from < j->n; from += j->piece) {
        size_t n = j->n - from < j->piece ? j->n - from : j->piece;
        const void *w = (const char *)a->w.data + from * j->row_bytes;
        bool refused = false;
        if (j->expand) {
            if (cuda_expand(env, a->w.dtype, w, j->type, at->piece, n * j->k, err))
                return err->code;
            w = at->piece;
        }
        struct blas_product p = product_of(j, j->type, a->x.data, j->ld_x, w, bias, from, n);
        if (multiply(env, &p, at->work, &refused, err) || (refused && blas_by_ours(env, &p, err)))
            return err->code;
    }
    return BERTH_OK;
}

berth_status cuda_linear(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    const struct job j = job_of(env, a);
    if (j.m == 0)
        return BERTH_OK;
    if (j.n > INT_MAX)
        return err_set(err, BERTH_ELIMIT, "linear: %zu rows of a weight", j.n);
    if (!j.in_work)
        return few_rows(env, &j, err);
    const struct parts at = parts_of(env, &j);
    const void *bias = a->bias.data;
    /* The library reads a bias of y's type at a multiple of 16 bytes. */
    if (bias && (a->bias.dtype != j.to || (uintptr_t)bias % 16)) {
        if (cuda_expand(env, a->bias.dtype, bias, j.to, at.bias, j.n, err))
            return err_add(err, "linear: bias");
        bias = at.bias;
    }
    bool refused = true;
    if (fits_fp8(env, &j) && in_fp8(env, &j, &at, bias, &refused, err))
        return err_add(err, "linear");
    if (refused && in_pieces(env, &j, &at, bias, err))
        return err_add(err, "linear");
    return BERTH_OK;
}
