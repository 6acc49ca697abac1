/* attention.cu: attention of every kind that no library is asked for: F32, masks, odd strides; and
 * what stands between the products of wide heads.
 *
 * A block of 256 threads has 64 queries of one head and one slice of the result's columns. It walks
 * over the keys 64 at a time: scores from slices of D in shared memory, exponentials relative to
 * the largest score so far (what was summed before is scaled down when a larger one comes), then
 * the weighted sum of values. Nothing of size Tq x Tk is ever in memory. All of it in F32, plain
 * multiply-adds: F32 operands keep their 24 bits. A head wider than a slice has its scores computed
 * once per slice. An error of a score is a relative one of its weight, so scores are sums of sums
 * of RUN products: scores of 50 out of 80 products in a row were 1e-5 off, so they are 4e-6.
 *
 * Threads    tid = 16 * ty + tx. A thread has queries 4 ty .. 4 ty + 3; of a tile's keys 4 tx .. 4
 *            tx + 3; of the columns 64 c + 4 tx .. + 3. The 16 threads that share queries are half
 *            a warp.
 * Shared     first the slices of q and k, [d][row], then in the same place the weights,
 *            [key][query]; and some rows of v. Rows are 68 floats: 16-byte aligned, and 8 values of
 *            d by 4 rows fall into 32 different banks.
 * Order      Sums run over keys in their order, 64 at a time, whatever runs beside: the same bits
 *            each time. */
#include "op/cuda/kernel.cuh"

namespace
{

constexpr int BQ = ATTENTION_QUERIES, BK = ATTENTION_KEYS, THREADS = ATTENTION_THREADS;
constexpr int DS = 32;        /* of D in shared memory at a time */
constexpr int RUN = 16;       /* products that are summed in one go */
constexpr int VS = 16;        /* rows of v in shared memory at a time */
constexpr int PITCH = BQ + 4; /* floats from one row of q, k or weights to the next */
static_assert(BQ == 64 && BK == 64 && THREADS == 256, "threads are laid out for these");
static_assert(2 * DS * PITCH == BK * PITCH, "weights lie where q and k were");
static_assert(DS % RUN == 0 && BK % VS == 0 && PITCH % 4 == 0, "whole pieces, float4");

/* Rows [row0, row0 + 64) by columns [d0, d0 + DS) of x, turned: dst[d][row]; zeros outside. A warp
 * reads 8 neighbours of 4 rows at a time and writes 32 banks. */
template <typename T>
__device__ void load_turned(float *dst, const T *x, int64_t stride, uint32_t row0, uint32_t rows,
                            uint32_t d0, uint32_t D)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t dl = lane % 8, rl = lane / 8;
#pragma unroll
    for (uint32_t r = warp * 4 + rl; r < BQ; r += THREADS / 8) {
        const bool in = row0 + r < rows;
        const T *from = x + (int64_t)(row0 + r) * stride;
#pragma unroll
        for (uint32_t d = dl; d < DS; d += 8)
            dst[d * PITCH + r] = in && d0 + d < D ? to_f32(from[d0 + d]) : 0.0f;
    }
}

/* Rows [row0, row0 + VS) by columns [c0, c0 + DV) of x: dst[row][DV]; zeros outside. */
template <typename T, int DV>
__device__ void load_rows(float *dst, const T *x, int64_t stride, uint32_t row0, uint32_t rows,
                          uint32_t c0, uint32_t D)
{
#pragma unroll
    for (uint32_t i = threadIdx.x; i < VS * DV; i += THREADS) {
        const uint32_t r = row0 + i / DV, c = c0 + i % DV;
        dst[i] = r < rows && c < D ? to_f32(x[(int64_t)r * stride + c]) : 0.0f;
    }
}

/* s[i][j] += q[4 ty + i] . k[4 tx + j] over the DS columns that are in shared memory. */
__device__ void add_scores(float s[4][4], const float *qs, const float *ks, uint32_t ty,
                           uint32_t tx)
{
#pragma unroll 1
    for (int d0 = 0; d0 < DS; d0 += RUN) {
        float part[4][4] = {};
#pragma unroll
        for (int d = d0; d < d0 + RUN; d++) {
            const float4 q = *(const float4 *)(qs + d * PITCH + 4 * ty);
            const float4 k = *(const float4 *)(ks + d * PITCH + 4 * tx);
            const float qa[4] = { q.x, q.y, q.z, q.w }, ka[4] = { k.x, k.y, k.z, k.w };
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    part[i][j] = fmaf(qa[i], ka[j], part[i][j]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[i][j] += part[i][j];
    }
}

template <typename T> __device__ float mask_at(const attention_args &a, int64_t i)
{
    return a.mask_kind == ATTENTION_MASK_F32 ? ((const float *)a.mask)[i]
                                             : to_f32(((const T *)a.mask)[i]);
}

/* Scale, mask, and nothing of keys that are not there. */
template <typename T>
__device__ void finish_scores(const attention_args &a, float s[4][4], uint32_t b, uint32_t h,
                              uint32_t query, uint32_t key)
{
    const float nothing = -INFINITY;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t qi = query + i;
        const int64_t row = (int64_t)b * a.ms[0] + (int64_t)h * a.ms[1] + (int64_t)qi * a.ms[2];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t kj = key + j;
            const uint64_t own = (uint64_t)a.past + qi; /* the query's own key */
            if (qi >= a.Tq || kj >= a.Tk || (a.causal && kj > own) ||
                (a.window && (uint64_t)kj + a.window <= own)) {
                s[i][j] = nothing;
                continue;
            }
            const bool masked = a.mask_kind != ATTENTION_NO_MASK;
            s[i][j] = fmaf(s[i][j], a.scale, masked ? mask_at<T>(a, row + kj) : 0.0f);
        }
    }
}

/* Over the 16 threads that share a query. */
__device__ float row_max(float x)
{
#pragma unroll
    for (int step = 8; step; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
__device__ float row_sum(float x)
{
#pragma unroll
    for (int step = 8; step; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Scores become weights; `top` and `sum` of each query follow, and shrink[i] is what everything
 * summed so far is to be multiplied by. While a query has seen no key, top is -inf and stays out of
 * differences. */
__device__ void weigh(float s[4][4], float top[4], float sum[4], float shrink[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float here = row_max(fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])));
        const float now = fmaxf(top[i], here);
        const float from = now == -INFINITY ? 0.0f : now;
        shrink[i] = expf(top[i] - from);
        float part = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            s[i][j] = expf(s[i][j] - from);
            part += s[i][j];
        }
        sum[i] = sum[i] * shrink[i] + row_sum(part);
        top[i] = now;
    }
}

/* acc[i][4 c + j] += weights of VS keys times their rows of v. */
template <int DV>
__device__ void add_values(float (*acc)[DV / 16], const float *ps, const float *vs, uint32_t ty,
                           uint32_t tx)
{
#pragma unroll 4
    for (int k = 0; k < VS; k++) {
        const float4 p = *(const float4 *)(ps + k * PITCH + 4 * ty);
        const float pa[4] = { p.x, p.y, p.z, p.w };
#pragma unroll
        for (int c = 0; c < DV / 64; c++) {
            const float4 v = *(const float4 *)(vs + k * DV + 64 * c + 4 * tx);
            const float va[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    acc[i][4 * c + j] = fmaf(pa[i], va[j], acc[i][4 * c + j]);
        }
    }
}

template <typename T, int DV> __device__ void attention(const attention_args &a)
{
    static_assert(DV % 64 == 0, "columns of a slice");
    __shared__ __align__(16) float qk[2 * DS * PITCH]; /* q, k; then the weights */
    __shared__ __align__(16) float vs[VS * DV];
    const attention_share w = attention_share_of(&a, blockIdx.x);
    const uint32_t ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    const uint32_t query0 = w.tile * BQ, column0 = w.slice * DV;
    const T *q = (const T *)a.q + (int64_t)w.b * a.qs[0] + (int64_t)w.h * a.qs[2];
    const uint32_t of = w.h / a.group; /* head of k and v */
    const T *k = (const T *)a.k + (int64_t)w.b * a.ks[0] + (int64_t)of * a.ks[2];
    const T *v = (const T *)a.v + (int64_t)w.b * a.vs[0] + (int64_t)of * a.vs[2];
    float acc[4][DV / 16], top[4], sum[4], shrink[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
#pragma unroll
        for (int j = 0; j < DV / 16; j++)
            acc[i][j] = 0;
    }

    const uint32_t keys = attention_keys(&a, w.tile);
    for (uint32_t key0 = attention_first_key(&a, w.tile); key0 < keys; key0 += BK) {
        float s[4][4] = {};
        for (uint32_t d0 = 0; d0 < a.D; d0 += DS) {
            __syncthreads(); /* what lies there has been read: weights, or the slice before */
            load_turned(qk, q, a.qs[1], query0, a.Tq, d0, a.D);
            load_turned(qk + DS * PITCH, k, a.ks[1], key0, a.Tk, d0, a.D);
            __syncthreads();
            add_scores(s, qk, qk + DS * PITCH, ty, tx);
        }
        finish_scores<T>(a, s, w.b, w.h, query0 + 4 * ty, key0 + 4 * tx);
        weigh(s, top, sum, shrink);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < DV / 16; j++)
                acc[i][j] *= shrink[i];

        __syncthreads(); /* q and k have been read */
#pragma unroll
        for (int j = 0; j < 4; j++)
            *(float4 *)(qk + (4 * tx + j) * PITCH + 4 * ty) =
                make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
        for (uint32_t k0 = 0; k0 < BK; k0 += VS) {
            if (k0)
                __syncthreads(); /* the rows before have been read */
            load_rows<T, DV>(vs, v, a.vs[1], key0 + k0, a.Tk, column0, a.D);
            __syncthreads(); /* and the weights are there, the first time */
            add_values<DV>(acc, qk + k0 * PITCH, vs, ty, tx);
        }
    }

#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t query = query0 + 4 * ty + i;
        if (query >= a.Tq)
            continue;
        T *y =
            (T *)a.y + (int64_t)w.b * a.ys[0] + (int64_t)query * a.ys[1] + (int64_t)w.h * a.ys[2];
        const float by = sum[i] == 0.0f ? 0.0f : 1.0f / sum[i];
#pragma unroll
        for (int j = 0; j < DV / 16; j++) {
            const uint32_t column = column0 + 64 * (j / 4) + 4 * tx + j % 4;
            if (column < a.D)
                y[column] = of_f32<T>(acc[i][j] * by);
        }
    }
}

/* ---- weights of wide heads: attention_wide.c ---- */

template <bool MAX> __device__ float of_block(float x, float *part)
{
#pragma unroll
    for (int step = 16; step; step /= 2) {
        const float y = __shfl_xor_sync(0xffffffffu, x, step);
        x = MAX ? fmaxf(x, y) : x + y;
    }
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
    for (int w = 1; w < THREADS / 32; w++)
        x = MAX ? fmaxf(x, part[w]) : x + part[w];
    return x;
}

/* A thread writes what it alone has read, so weights may lie where the scores do. */
template <typename T> __device__ void attention_weights_body(const attention_rows &a)
{
    __shared__ float tops[THREADS / 32], sums[THREADS / 32];
    const float *s = a.scores + (int64_t)blockIdx.x * a.pitch;
    T *w = (T *)a.weights + (int64_t)blockIdx.x * a.pitch;
    float top = -INFINITY, sum = 0;
    for (uint32_t k = threadIdx.x; k < a.keys; k += THREADS)
        top = fmaxf(top, s[k]);
    top = of_block<true>(top, tops);
    for (uint32_t k = threadIdx.x; k < a.keys; k += THREADS)
        sum += expf(s[k] - top);
    const float by = a.size / of_block<false>(sum, sums);
    for (uint32_t k = threadIdx.x; k < a.keys; k += THREADS)
        w[k] = of_f32<T>(expf(s[k] - top) * by);
}

} // namespace

KERNELS(attention_weights, attention_rows, THREADS)

#define ATTENTION(type, T)                                                                         \
    ENTRY(attention_64_##type, attention_args, (attention<T, 64>), THREADS, 2)                     \
    ENTRY(attention_128_##type, attention_args, (attention<T, 128>), THREADS, 2)                   \
    ENTRY(attention_256_##type, attention_args, (attention<T, 256>), THREADS, 1)
ATTENTION(f32, float)
ATTENTION(f16, __half)
ATTENTION(bf16, __nv_bfloat16)
