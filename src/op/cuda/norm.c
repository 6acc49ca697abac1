/* norm.c: which of norm.cu's kernels computes a norm, and in what pieces. */
#include "op/cuda/own.h"

#include <assert.h>

enum {
    WARP = 32,
    BLOCK_MOST = 1024, /* threads */
    ROW_PIECES = 4,    /* units a thread of row_norm holds: PIECES of norm.cu */
    ROW_WARPS = 4,     /* rows of a block where a warp is enough for one */
    CHUNK = 8192,      /* elements, the least a block of group_norm takes */
    CHUNKS_MOST = 256, /* of a group: each block that writes reads them all */
};
static_assert(CHUNK % 8 == 0, "chunks are whole units");

static unsigned whole_warps(uint64_t threads)
{
    return (unsigned)((threads + WARP - 1) / WARP * WARP);
}

berth_status cuda_row_norm(const struct op_env *env, const struct op_row_norm *a, berth_err *err)
{
    enum dtype type = a->x.dtype;
    bool narrows = type != a->y.dtype; /* F32 to 16 bits; units are those of x */
    uint64_t row = op_row(&a->x), rows = op_count(&a->x) / row, items = a->x.shape.dim[0];
    struct row_norm_args k = { .x = a->x.data,
                               .y = a->y.data,
                               .rows = rows,
                               .row = row,
                               .w = own_param(&a->w),
                               .b = own_param(&a->b),
                               .scale = own_param(&a->scale),
                               .shift = own_param(&a->shift),
                               .per_item = fast_div_of(a->x.shape.ndim > 1 ? rows / items : 1),
                               .eps = a->eps,
                               .rms = a->rms,
                               .from = a->from_one ? 1 : 0 };
    uint64_t per_unit = own_per_unit(type), units = row / per_unit;
    uint64_t threads = (units + ROW_PIECES - 1) / ROW_PIECES;
    bool packed = row % per_unit == 0 && threads <= BLOCK_MOST && own_aligned(k.x) &&
                  own_aligned(k.y) && own_param_whole(&k.w) && own_param_whole(&k.b) &&
                  own_param_whole(&k.scale) && own_param_whole(&k.shift);
    struct cuda_launch l = { .module = CUDA_MODULE_norm,
                             .kernel = packed    ? narrows ? "row_norm_of_f32" : "row_norm"
                                       : narrows ? "row_norm_any_of_f32"
                                                 : "row_norm_any",
                             .type = a->y.dtype,
                             .args = &k };
    if (packed && threads <= WARP) {
        l.block[0] = WARP;
        l.block[1] = ROW_WARPS;
        l.grid[0] = own_blocks(rows, ROW_WARPS);
    } else {
        l.block[0] = packed              ? whole_warps(threads)
                     : row < OWN_THREADS ? whole_warps(row)
                                         : OWN_THREADS;
        l.grid[0] = own_blocks(rows, 1);
    }
    return cuda_launch(env, &l, err);
}

/* ---- group_norm ---- */

struct pieces {             /* of the sums */
    uint64_t size, groups;  /* elements of a group; groups of all items */
    uint64_t chunk, chunks; /* elements; of a group */
};

static struct pieces pieces_of(const struct op_group_norm *a)
{
    struct pieces p = { .groups = a->x.shape.dim[0] * a->groups };
    p.size = op_count(&a->x) / p.groups;
    uint64_t least = (p.size + CHUNKS_MOST - 1) / CHUNKS_MOST;
    p.chunk = (least + CHUNK - 1) / CHUNK * CHUNK;
    p.chunks = (p.size + p.chunk - 1) / p.chunk;
    return p;
}

/* Two floats a chunk. */
size_t cuda_group_norm_scratch(const struct op_env *env, const struct op_group_norm *a)
{
    (void)env;
    struct pieces p = pieces_of(a);
    return op_mul(op_mul(p.groups, p.chunks), 2 * sizeof(float));
}

berth_status cuda_group_norm(const struct op_env *env, const struct op_group_norm *a,
                             berth_err *err)
{
    enum dtype type = a->x.dtype;
    struct pieces p = pieces_of(a);
    uint64_t inner = op_count_of(&a->x, 2, a->x.shape.ndim), per_unit = own_per_unit(type);
    struct group_norm_args k = { .x = a->x.data,
                                 .y = a->y.data,
                                 .part = env->scratch,
                                 .w = own_param(&a->w),
                                 .b = own_param(&a->b),
                                 .groups = a->groups,
                                 .per = a->x.shape.dim[1] / a->groups,
                                 .size = p.size,
                                 .chunk = p.chunk,
                                 .chunks = fast_div_of(p.chunks),
                                 .all = p.groups * p.chunks,
                                 .inner = fast_div_of(inner),
                                 .eps = a->eps,
                                 .silu = a->silu };
    k.packed_sums = own_aligned(k.x) && p.size % per_unit == 0;
    k.packed = k.packed_sums && own_aligned(k.y) && inner % per_unit == 0;
    unsigned blocks = own_blocks(k.all, 1);
    if (cuda_launch_blocks(env, CUDA_MODULE_norm, "group_sums", type, blocks, OWN_THREADS, &k, err))
        return err->code;
    return cuda_launch_blocks(env, CUDA_MODULE_norm,
                              type == a->y.dtype ? "group_norm" : "group_norm_of_f32", a->y.dtype,
                              blocks, OWN_THREADS, &k, err);
}

/* ---- qk_rope ---- */

/* Strides of the first three dimensions; those of one element do not matter. */
static bool strides_of(const struct view *v, uint64_t *stride)
{
    bool whole = own_aligned(v->data);
    for (int i = 0; i < 3; i++) {
        stride[i] = v->shape.dim[i] > 1 ? v->stride[i] : 0;
        whole = whole && own_whole(stride[i]);
    }
    return whole;
}

berth_status cuda_qk_rope(const struct op_env *env, const struct op_qk_rope *a, berth_err *err)
{
    const uint64_t *dim = a->q.shape.dim; /* B, T, H, D */
    const uint64_t heads = dim[2], of_k = a->k.shape.dim[2];
    if (heads >= UINT32_MAX / 4 || of_k >= UINT32_MAX / 4)
        return err_set(err, BERTH_EUNSUPPORTED, "qk_rope: %llu and %llu heads",
                       (unsigned long long)heads, (unsigned long long)of_k);
    enum dtype type = a->q.dtype;
    struct qk_rope_args k = { .x = { a->q.data, a->k.data },
                              .table = a->table.data,
                              .w = { own_param(&a->wq), own_param(&a->wk) },
                              .T = fast_div_of(dim[1]),
                              .rows = dim[0] * dim[1],
                              .H = { (uint32_t)heads, (uint32_t)of_k },
                              .D = (uint32_t)dim[3],
                              .eps = a->eps,
                              .from = a->from_one ? 1 : 0,
                              .halves = a->halves };
    bool packed = strides_of(&a->q, k.stride[0]);
    packed = strides_of(&a->k, k.stride[1]) && packed;
    packed = packed && own_param_whole(&k.w[0]) && own_param_whole(&k.w[1]) &&
             own_aligned(k.table) && dim[3] % own_per_unit(type) == 0;
    uint64_t lanes = dim[3] / own_per_unit(type);
    packed = packed && lanes <= WARP && (lanes & (lanes - 1)) == 0 && !a->halves;
    k.lanes = packed ? (uint32_t)lanes : WARP;
    return cuda_launch_blocks(env, CUDA_MODULE_norm, packed ? "qk_rope" : "qk_rope_any", type,
                              own_blocks(k.rows, 1), OWN_THREADS, &k, err);
}
