/* decode: arguments of the kernels of decode.cu. */
#include "op/cuda/own.h"
#include "op/ops_impl.h"

static int32_t log_of(uint32_t n)
{
    int32_t k = 0;
    while (n >> k > 1)
        k++;
    return k;
}

berth_status cuda_decode(const struct op_env *env, const struct op_decode *a, berth_err *err)
{
    const struct coded how = coded_of(a);
    const uint64_t rows = a->y.shape.dim[0], stored = a->codes.shape.dim[0];
    struct decode_args k = { .codes = a->codes.data,
                             .rows = a->rows.data,
                             .blocks = a->blocks.data,
                             .ids = a->ids.data,
                             .y = a->y.data,
                             .first = a->row,
                             .n = stored,
                             .cols = how.cols,
                             .out = op_row(&a->y),
                             .scale = how.scale,
                             .type = (int32_t)how.type,
                             .pairs = dtype_desc(how.type)->elems == 2,
                             .how = (int32_t)how.how,
                             .block_type = (int32_t)how.block_type,
                             .group_log = log_of(how.group),
                             .swizzled = how.swizzled,
                             .booked = how.booked,
                             .turn = how.turn };
    if (how.how != BLOCKS_NONE) /* of a row alone, and of the rows that a tile has */
        k.in_row = coded_blocks_stored(&how, 128) / 128;
    memcpy(k.book, how.book, sizeof k.book);
    k.across = (k.out + DECODE_COLS - 1) / DECODE_COLS;
    k.tiles = rows * k.across;
    return cuda_launch_blocks(env, CUDA_MODULE_decode, "decode", a->y.dtype, own_blocks(k.tiles, 1),
                              DECODE_THREADS, &k, err);
}
