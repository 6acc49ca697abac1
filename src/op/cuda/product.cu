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
#include "op/cuda/stored.cuh"

/* What becomes of a sum; T: type of y and add. */
template <class T> INLINE void put_result(const product_args &a, uint64_t m, uint64_t n, float sum)
{
    float v = sum * a.scale + bias_at(a.bias_type, a.bias, n);
    if (a.gelu)
        v = f_gelu_tanh(v);
    if (a.add)
        v += to_f32(((const T *)a.add)[m * a.ld_add + n]);
    ((T *)a.y)[m * a.ld_y + n] = of_f32<T>(v);
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

/* A lane's share of row . x[r]. */
template <class W, class T, int ROWS, bool WIDE>
INLINE void few_sums(const uint8_t *__restrict__ row, const T *const *x, uint64_t k, float *sum)
{
    const uint64_t chunks = (k + 7) / 8;
    constexpr int AHEAD = WIDE ? W::AHEAD : 1;
#pragma unroll AHEAD
    for (uint64_t c = threadIdx.x % 32; c < chunks; c += 32) {
        float w[8], v[8];
        W::template get8<WIDE>(row, c, k, w);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            from_plain<plain<T>>::template get8<WIDE>((const uint8_t *)x[r], c, k, v);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum[r] = fmaf(v[i], w[i], sum[r]);
        }
    }
}

/* ROWS of x at once; rows beyond a.m repeat the last one and are thrown away. */
template <class W, class T, int ROWS> INLINE void few(const product_args &a)
{
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
        few_sums<W, T, ROWS, true>(row, x, a.k, sum);
    else
        few_sums<W, T, ROWS, false>(row, x, a.k, sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int d = 16; d; d /= 2)
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], d);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (lane == (unsigned)r && (uint64_t)r < a.m)
            put_result<T>(a, r, n, sum[r]);
}

#define VEC(id, from, of, name, T)                                                                 \
    ENTRY(product_vec1_##id##_##name, product_args, (few<from<of##_##id>, T, 1>), 32 * VEC_WARPS)  \
    ENTRY(product_vec4_##id##_##name, product_args, (few<from<of##_##id>, T, VEC_ROWS>),           \
          32 * VEC_WARPS)
#define PLAIN(id)                                                                                  \
    VEC(id, from_plain, plain, f32, float)                                                         \
    VEC(id, from_plain, plain, f16, __half)                                                        \
    VEC(id, from_plain, plain, bf16, __nv_bfloat16)
#define BLOCK(id, elems, bytes)                                                                    \
    VEC(id, from_block, block, f16, __half)                                                        \
    VEC(id, from_block, block, bf16, __nv_bfloat16)
STORED_PLAINS(PLAIN)
DEC_QUANTS(BLOCK) /* in F32 they are expanded: nobody computes in F32 for speed */

/* ---- any product: 64 x 64 of y a block, 4 x 4 a thread ---- */

#define SIDE (GEMM_TILE / 4)
static_assert(SIDE * SIDE == GEMM_THREADS, "a thread for each 4 x 4");
static_assert(GEMM_TILE * GEMM_DEPTH % GEMM_THREADS == 0, "whole loads");

/* w is of type T, y and add of Y. Grid: x over n, y over m (in turns, should there be more rows
 * than a grid has), z over the batch. */
template <class T, class Y> INLINE void gemm(const product_args &all)
{
    __shared__ float xs[GEMM_DEPTH][GEMM_TILE + 4], ws[GEMM_DEPTH][GEMM_TILE + 4];
    const unsigned t = threadIdx.x, tn = t % SIDE, tm = t / SIDE;
    const uint64_t n0 = (uint64_t)blockIdx.x * GEMM_TILE;
    const T *x = (const T *)all.x + blockIdx.z * all.of_x;
    const T *w = (const T *)all.w + blockIdx.z * all.of_w;
    product_args a = all;
    a.y = (Y *)all.y + blockIdx.z * all.of_y;

    for (uint64_t m0 = (uint64_t)blockIdx.y * GEMM_TILE; m0 < a.m;
         m0 += (uint64_t)gridDim.y * GEMM_TILE) { /* the same for all threads */
        float sum[4][4] = {};
        for (uint64_t k0 = 0; k0 < a.k; k0 += GEMM_DEPTH) {
            __syncthreads(); /* the last round is read */
            for (unsigned i = t; i < GEMM_TILE * GEMM_DEPTH; i += GEMM_THREADS) {
                unsigned k = i % GEMM_DEPTH, r = i / GEMM_DEPTH;
                bool in = k0 + k < a.k;
                xs[k][r] = in && m0 + r < a.m ? to_f32(x[(m0 + r) * a.ld_x + k0 + k]) : 0.0f;
                ws[k][r] =
                    in && n0 + r < a.n ? to_f32(w[(n0 + r) * a.w_n + (k0 + k) * a.w_k]) : 0.0f;
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

template <class T> INLINE void product_gemm_body(const product_args &a)
{
    gemm<T, T>(a);
}
KERNELS(product_gemm, product_args, GEMM_THREADS)

template <class T> INLINE void product_gemm_to_f32_body(const product_args &a)
{
    gemm<T, float>(a);
}
KERNELS_16(product_gemm_to_f32, product_args, GEMM_THREADS)

/* y = gelu(y + bias), rounded once more. Grid: x over n, y over m in turns. */
template <class T> INLINE void product_finish_body(const product_args &a)
{
    uint64_t n = (uint64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    if (n >= a.n)
        return;
    float bias = bias_at(a.bias_type, a.bias, n);
    for (uint64_t m = blockIdx.y; m < a.m; m += gridDim.y) {
        T *y = (T *)a.y + m * a.ld_y + n;
        float v = to_f32(*y) + bias;
        *y = of_f32<T>(a.gelu ? f_gelu_tanh(v) : v);
    }
}
KERNELS(product_finish, product_args, FINISH_THREADS)

/* y[m][k], packed, is x in fp8: to nearest, beyond 448 the largest. Grid: x over k, y over m in
 * turns. */
template <class T> INLINE void product_round_body(const product_args &a)
{
    uint64_t k = (uint64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    if (k >= a.k)
        return;
    for (uint64_t m = blockIdx.y; m < a.m; m += gridDim.y) {
        float v = to_f32(((const T *)a.x)[m * a.ld_x + k]);
        ((uint8_t *)a.y)[m * a.k + k] = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
    }
}
KERNELS_16(product_round, product_args, FINISH_THREADS)
