/* merge.cu: what adapters add to weights, to the bit as the host adds it: each sum over the rank is
 * in order, product and sum are rounded each, nothing is fused. 128 x 128 of w a block, 8 x 8 a
 * thread. A thread's rows and columns are two groups of four, 64 apart, so that neighbours read
 * neighbouring words of shared memory. */
#include "op/cuda/expand_decode.h"
#include "op/cuda/kernel.cuh"

#define SIDE (MERGE_TILE / 8)
static_assert(SIDE * SIDE == MERGE_THREADS, "a thread for each 8 x 8");
static_assert(MERGE_TILE * MERGE_DEPTH % MERGE_THREADS == 0, "whole loads");

/* Number i of a thread's eight rows or columns. */
DEV unsigned place(unsigned t, unsigned i)
{
    return i / 4 * (MERGE_TILE / 2) + t * 4 + i % 4;
}

/* Grid: x over columns, y over rows (in turns, should there be more than a grid has). */
DEV void add_product_body(const merge_args &a)
{
    __shared__ float us[MERGE_DEPTH][MERGE_TILE + 4], ds[MERGE_DEPTH][MERGE_TILE + 4];
    const unsigned t = threadIdx.x, tc = t % SIDE, tr = t / SIDE;
    const u64 c0 = (u64)blockIdx.x * MERGE_TILE;
    for (u64 r0 = (u64)blockIdx.y * MERGE_TILE; r0 < a.rows;
         r0 += (u64)gridDim.y * MERGE_TILE) { /* the same for all threads */
        float sum[8][8] = {};
        for (u64 k0 = 0; k0 < a.rank; k0 += MERGE_DEPTH) {
            const unsigned deep = a.rank - k0 < MERGE_DEPTH ? (unsigned)(a.rank - k0) : MERGE_DEPTH;
            __syncthreads(); /* the last round is read */
            for (unsigned i = t; i < MERGE_TILE * MERGE_DEPTH; i += MERGE_THREADS) {
                unsigned k = i % MERGE_DEPTH, r = i / MERGE_DEPTH;
                us[k][r] = k < deep && r0 + r < a.rows ? a.up[(r0 + r) * a.ld_up + k0 + k] : 0.0f;
                k = i / MERGE_TILE, r = i % MERGE_TILE;
                ds[k][r] =
                    k < deep && c0 + r < a.cols ? a.down[(k0 + k) * a.ld_down + c0 + r] : 0.0f;
            }
            __syncthreads();
            for (unsigned k = 0; k < deep; k++) { /* not one more: 0 * infinity is none */
                float u[8], d[8];
#pragma unroll
                for (unsigned i = 0; i < 8; i++) {
                    u[i] = us[k][place(tr, i)];
                    d[i] = ds[k][place(tc, i)];
                }
#pragma unroll
                for (unsigned i = 0; i < 8; i++)
#pragma unroll
                    for (unsigned j = 0; j < 8; j++)
                        sum[i][j] = DEC_ADD(sum[i][j], DEC_MUL(u[i], d[j]));
            }
        }
#pragma unroll
        for (unsigned i = 0; i < 8; i++)
#pragma unroll
            for (unsigned j = 0; j < 8; j++) {
                const u64 r = r0 + place(tr, i), c = c0 + place(tc, j);
                if (r < a.rows && c < a.cols) {
                    float *w = a.w + r * a.ld_w + c;
                    *w = DEC_ADD(*w, DEC_MUL(a.scale, sum[i][j]));
                }
            }
    }
}
ENTRY(add_product, merge_args, add_product_body, MERGE_THREADS)
