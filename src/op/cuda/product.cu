/* product.cu: products that cuBLASLt is not asked for, or refuses, and what goes
 * around those it does.
 *
 *   vec1, vec4   few rows of x: the weight is read once, as it is stored, at the speed of memory. A
 *                warp has a row of w; its lanes take chunks of eight elements in turn, and their
 *                sums are added in a fixed order. Modulations of Flux are such products, and a
 *                quarter of the model's bytes.
 *   gemm         any shape, stride and alignment, in F32 arithmetic without tensor cores: slow. For
 *                what the library has no kernel for.
 *   finish       bias and GELU, where the library has no epilogue for them
 *   round        activations to fp8
 * The order of a sum follows from k and the weight's type alone: the same bits for each row,
 * whatever is computed with it. */
#include "op/cuda/kernel.cuh"
#include "op/cuda/product_args.h"
#include "op/cuda/stored.cuh"

INLINE float bias_at(const product_args &a, uint64_t n)
{
    if (!a.bias)
        return 0;
    if (a.bias_type == PRODUCT_F32)
        return ((const float *)a.bias)[n];
    uint32_t h = ((const uint16_t *)a.bias)[n];
    return a.bias_type == PRODUCT_F16 ? from_f16(h) : dec_one_bf16(h);
}

/* What becomes of a sum; A: type of y and add. */
template <class A> INLINE void put_result(const product_args &a, uint64_t m, uint64_t n, float sum)
{
    typedef typename A::T T;
    float v = sum * a.scale + bias_at(a, n);
    if (a.gelu)
        v = f_gelu_tanh(v);
    if (a.add)
        v += A::get((const T *)a.add + m * a.ld_add + n);
    A::put((T *)a.y + m * a.ld_y + n, v);
}

/* ---- few rows ---- */

/* WIDE: eight elements of x lie at multiples of 16 bytes, and so do those of a plain w; k is a
 * multiple of 8. Else one element after the other, zeros behind the end. */
template <class P> struct from_plain {
    static constexpr int AHEAD = 4; /* chunks whose loads are on their way */
    template <bool WIDE>
    INLINE void get8(const uint8_t *row, uint64_t chunk, uint64_t k, float v[8])
    {
        if constexpr (WIDE) {
            P::get8(row, chunk, v);
        } else {
            for (int i = 0; i < 8; i++)
                v[i] = 8 * chunk + i < k ? P::get(row, 8 * chunk + i) : 0.0f;
        }
    }
};

template <class B> struct from_block {
    static constexpr int AHEAD = 2;
    template <bool WIDE> INLINE void get8(const uint8_t *row, uint64_t chunk, uint64_t, float v[8])
    {
        B::get8(row, chunk, v);
    }
};

template <class A, bool WIDE>
INLINE void x_get8(const typename A::T *row, uint64_t chunk, uint64_t k, float v[8])
{
    if constexpr (WIDE) {
        A::get8(row + 8 * chunk, v);
    } else {
        for (int i = 0; i < 8; i++)
            v[i] = 8 * chunk + i < k ? A::get(row + 8 * chunk + i) : 0.0f;
    }
}

/* A lane's share of row . x[r]. */
template <class W, class A, int ROWS, bool WIDE>
INLINE void few_sums(const uint8_t *__restrict__ row, const typename A::T *const *x, uint64_t k,
                     float *sum)
{
    const uint64_t chunks = (k + 7) / 8;
    constexpr int AHEAD = WIDE ? W::AHEAD : 1;
#pragma unroll AHEAD
    for (uint64_t c = threadIdx.x % 32; c < chunks; c += 32) {
        float w[8], v[8];
        W::template get8<WIDE>(row, c, k, w);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            x_get8<A, WIDE>(x[r], c, k, v);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[r] = fmaf(v[i], w[i], sum[r]);
        }
    }
}

/* ROWS of x at once; rows beyond a.m repeat the last one and are thrown away. */
template <class W, class A, int ROWS> INLINE void few(const product_args &a)
{
    typedef typename A::T T;
    const unsigned lane = threadIdx.x % 32;
    const uint64_t n = (uint64_t)blockIdx.x * VEC_WARPS + threadIdx.x / 32;
    if (n >= a.n) /* all of a warp */
        return;
    const uint8_t *row = (const uint8_t *)a.w + n * a.w_row;
    const T *x[ROWS];
    float sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        x[r] = (const T *)a.x + ((uint64_t)r < a.m ? (uint64_t)r : a.m - 1) * a.ld_x;
        sum[r] = 0;
    }
    if (a.wide)
        few_sums<W, A, ROWS, true>(row, x, a.k, sum);
    else
        few_sums<W, A, ROWS, false>(row, x, a.k, sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int d = 16; d; d /= 2)
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], d);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (lane == (unsigned)r && (uint64_t)r < a.m)
            put_result<A>(a, r, n, sum[r]);
}

#define VEC(id, from, of, name)                                                                    \
    extern "C" __global__ void __launch_bounds__(32 * VEC_WARPS)                                   \
        product_vec1_##id##_##name(const __grid_constant__ product_args a)                         \
    {                                                                                              \
        few<from<of##_##id>, act_##name, 1>(a);                                                    \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(32 * VEC_WARPS)                                   \
        product_vec4_##id##_##name(const __grid_constant__ product_args a)                         \
    {                                                                                              \
        few<from<of##_##id>, act_##name, VEC_ROWS>(a);                                             \
    }
#define PLAIN(id)                                                                                  \
    VEC(id, from_plain, plain, f32)                                                                \
    VEC(id, from_plain, plain, f16)                                                                \
    VEC(id, from_plain, plain, bf16)
#define BLOCK(id, elems, bytes)                                                                    \
    VEC(id, from_block, block, f16)                                                                \
    VEC(id, from_block, block, bf16)
STORED_PLAINS(PLAIN)
DEC_QUANTS(BLOCK) /* in F32 they are expanded: nobody computes in F32 for speed */

/* ---- any product: 64 x 64 of y a block, 4 x 4 a thread ---- */

#define SIDE (GEMM_TILE / 4)
static_assert(SIDE * SIDE == GEMM_THREADS, "a thread for each 4 x 4");
static_assert(GEMM_TILE * GEMM_DEPTH % GEMM_THREADS == 0, "whole loads");

/* w is of A's type, y and add of Y's. Grid: x over n, y over m (in turns, should there be more rows
 * than a grid has), z over the batch. */
template <class A, class Y = A> INLINE void gemm(const product_args &all)
{
    typedef typename A::T T;
    __shared__ float xs[GEMM_DEPTH][GEMM_TILE + 4], ws[GEMM_DEPTH][GEMM_TILE + 4];
    const unsigned t = threadIdx.x, tn = t % SIDE, tm = t / SIDE;
    const uint64_t n0 = (uint64_t)blockIdx.x * GEMM_TILE;
    const T *x = (const T *)all.x + blockIdx.z * all.of_x;
    const T *w = (const T *)all.w + blockIdx.z * all.of_w;
    product_args a = all;
    a.y = (typename Y::T *)all.y + blockIdx.z * all.of_y;

    for (uint64_t m0 = (uint64_t)blockIdx.y * GEMM_TILE; m0 < a.m;
         m0 += (uint64_t)gridDim.y * GEMM_TILE) { /* the same for all threads */
        float sum[4][4] = {};
        for (uint64_t k0 = 0; k0 < a.k; k0 += GEMM_DEPTH) {
            __syncthreads(); /* the last round is read */
            for (unsigned i = t; i < GEMM_TILE * GEMM_DEPTH; i += GEMM_THREADS) {
                unsigned k = i % GEMM_DEPTH, r = i / GEMM_DEPTH;
                bool in = k0 + k < a.k;
                xs[k][r] = in && m0 + r < a.m ? A::get(x + (m0 + r) * a.ld_x + k0 + k) : 0.0f;
                ws[k][r] =
                    in && n0 + r < a.n ? A::get(w + (n0 + r) * a.w_n + (k0 + k) * a.w_k) : 0.0f;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < GEMM_DEPTH; k++)
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        sum[i][j] = fmaf(xs[k][tm * 4 + i], ws[k][tn * 4 + j], sum[i][j]);
        }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                uint64_t m = m0 + tm * 4 + i, n = n0 + tn * 4 + j;
                if (m < a.m && n < a.n)
                    put_result<Y>(a, m, n, sum[i][j]);
            }
    }
}

/* y = gelu(y + bias), rounded once more. Grid: x over n, y over m in turns. */
template <class A> INLINE void finish(const product_args &a)
{
    typedef typename A::T T;
    uint64_t n = (uint64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    if (n >= a.n)
        return;
    float bias = bias_at(a, n);
    for (uint64_t m = blockIdx.y; m < a.m; m += gridDim.y) {
        T *y = (T *)a.y + m * a.ld_y + n;
        float v = A::get(y) + bias;
        A::put(y, a.gelu ? f_gelu_tanh(v) : v);
    }
}

/* y[m][k], packed, is x in fp8: to nearest, beyond 448 the largest. Grid: x over k, y over m in
 * turns. */
template <class A> INLINE void round_e4m3(const product_args &a)
{
    uint64_t k = (uint64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    if (k >= a.k)
        return;
    for (uint64_t m = blockIdx.y; m < a.m; m += gridDim.y) {
        float v = A::get((const typename A::T *)a.x + m * a.ld_x + k);
        ((uint8_t *)a.y)[m * a.k + k] = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
    }
}

#define OTHERS(name)                                                                               \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS)                                     \
        product_gemm_##name(const __grid_constant__ product_args a)                                \
    {                                                                                              \
        gemm<act_##name>(a);                                                                       \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(FINISH_THREADS)                                   \
        product_finish_##name(const __grid_constant__ product_args a)                              \
    {                                                                                              \
        finish<act_##name>(a);                                                                     \
    }
OTHERS(f32)
OTHERS(f16)
OTHERS(bf16)

#define OF_16_BITS(name)                                                                           \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS)                                     \
        product_gemm_to_f32_##name(const __grid_constant__ product_args a)                         \
    {                                                                                              \
        gemm<act_##name, act_f32>(a);                                                              \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(FINISH_THREADS)                                   \
        product_round_##name(const __grid_constant__ product_args a)                               \
    {                                                                                              \
        round_e4m3<act_##name>(a);                                                                 \
    }
OF_16_BITS(f16)
OF_16_BITS(bf16)
