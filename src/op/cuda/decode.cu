/* decode.cu: values of weights whose numbers are codes (tensor/coded.h), with its bits: the same
 * products in the same order.
 *
 * A block takes DECODE_COLS columns of a row at a time, whole groups of a rotation, which happens
 * in shared memory: of each four numbers `step` apart a thread makes their turned ones. */
#include "op/cuda/stored.cuh"

#include "tensor/coded.h"

INLINE float code_at(const struct decode_args &a, u64 i)
{
    u32 b = a.codes[a.pairs ? i / 2 : i];
    switch (a.type) {
    case DT_I8:
        return (float)(int8_t)b;
    case DT_F8_E4M3:
        return dec_one_f8_e4m3(b);
    case DT_F8_E5M2:
        return from_f16(b << 8);
    case DT_I4:
        b = i % 2 ? b >> 4 : b & 15;
        return (float)((int)(b ^ 8) - 8);
    case DT_U4:
        b = i % 2 ? b >> 4 : b & 15;
        return a.booked ? a.book[b] : (float)((int)b - 8);
    default: /* DT_F4_E2M1 */
        b = i % 2 ? b & 15 : b >> 4;
        int e = b >> 1 & 3, m = b & 1;
        float f = (float)(e ? (2 + m) << (e - 1) : m) * 0.5f;
        return b & 8 ? -f : f;
    }
}

INLINE float block_scale(const struct decode_args &a, u64 row, u64 block)
{
    u64 at = row * a.in_row + block;
    if (a.swizzled) {
        u32 r = (u32)(row % 128);
        at = (row / 128 * (a.in_row / 4) + block / 4) * 512 + r % 32 * 16 + r / 32 * 4 + block % 4;
    }
    if (a.block_type == DT_F32)
        return ((const float *)a.blocks)[at];
    if (a.block_type == DT_F8_E4M3)
        return dec_one_f8_e4m3(a.blocks[at]);
    return a.blocks[at] ? dec_one_f8_e8m0(a.blocks[at]) : 0.0f;
}

INLINE float value_at(const struct decode_args &a, u64 row, u64 k, float scale)
{
    float v = code_at(a, row * a.cols + k);
    if (a.how == BLOCKS_NONE)
        return DEC_MUL(v, scale);
    float s = block_scale(a, row, k >> a.group_log);
    if (a.how == BLOCKS_TIMES)
        return DEC_MUL(v, DEC_MUL(s, scale));
    v = rintf(DEC_MUL(v, s));
    v = v > 127 ? 127 : v < -127 ? -127 : v;
    return DEC_MUL(v, scale);
}

/* A stage over the block's columns. */
INLINE void turn(float *x, u32 step)
{
    u32 i = threadIdx.x, at = i / step * (4 * step) + i % step;
    float p = x[at], q = x[at + step], r = x[at + 2 * step], s = x[at + 3 * step];
    float half = DEC_MUL(DEC_ADD(DEC_ADD(p, q), DEC_ADD(r, s)), 0.5f);
    x[at] = DEC_SUB(half, s);
    x[at + step] = DEC_SUB(half, r);
    x[at + 2 * step] = DEC_SUB(half, q);
    x[at + 3 * step] = DEC_SUB(half, p);
}

template <class T> DEV void decode_body(const struct decode_args &a)
{
    __shared__ float x[DECODE_COLS];
    for (u64 tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        u64 i = tile / a.across, from = tile % a.across * DECODE_COLS, row = a.first + i;
        bool there = true;
        if (a.ids) {
            row = (u64)(u32)a.ids[i];
            there = a.ids[i] >= 0 && row < a.n;
        }
        float scale = !there ? 0.0f : a.rows ? DEC_MUL(a.rows[row], a.scale) : a.scale;
        for (u32 k = threadIdx.x; k < DECODE_COLS; k += blockDim.x)
            x[k] = there && from + k < a.cols ? value_at(a, row, from + k, scale) : 0.0f;
        __syncthreads();
        for (u32 step = 1; step < a.turn; step *= 4) {
            turn(x, step);
            __syncthreads();
        }
        for (u32 k = threadIdx.x; k < DECODE_COLS && from + k < a.out; k += blockDim.x)
            ((T *)a.y)[i * a.out + from + k] = of_f32<T>(x[k]);
        __syncthreads(); /* before the next tile overwrites this one */
    }
}
KERNELS(decode, decode_args, DECODE_THREADS)
