/* conv2d.cu: what surrounds a convolution of cuDNN: layouts of pictures and filters, bias,
 * addition.
 *
 * Tensor cores want the channels of a pixel side by side; pictures here are planes, one for each
 * channel. conv2d_pack turns a tile of 64 pixels by 64 channels through shared memory,
 * conv2d_unpack turns it back and adds bias and `add` on the way, in F32, rounding once. */
#include "op/cuda/conv2d_args.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

constexpr int TILE = CONV_TILE, THREADS = CONV_THREADS;
constexpr int PITCH =
    TILE + 2; /* 16-bit values: a column of the tile falls into 32 different banks */
static_assert(PITCH / 2 % 2 == 1, "an odd number of banks from row to row");
static_assert(TILE == 64 && THREADS % TILE == 0, "threads are laid out for these");

__device__ float to_float(float x)
{
    return x;
}
__device__ float to_float(__half x)
{
    return __half2float(x);
}
__device__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ void from_float(float *p, float x)
{
    *p = x;
}
__device__ void from_float(__half *p, float x)
{
    *p = __float2half_rn(x);
}
__device__ void from_float(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

/* 16 bits as they lie in memory. */
template <typename T> __device__ float bits_to_float(uint16_t bits);
template <> __device__ float bits_to_float<__half>(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}
template <> __device__ float bits_to_float<__nv_bfloat16>(uint16_t bits)
{
    return __bfloat162float(__ushort_as_bfloat16(bits));
}

__device__ float bias_at(const void *bias, uint32_t type, uint32_t i)
{
    if (!bias)
        return 0.0f;
    if (type == 1)
        return to_float(((const __half *)bias)[i]);
    if (type == 2)
        return to_float(((const __nv_bfloat16 *)bias)[i]);
    return ((const float *)bias)[i];
}

/* Block: x tiles of pixels, y tiles of channels, z pictures. */
__device__ void pack(const conv_turn &a)
{
    __shared__ uint16_t tile[TILE * PITCH]; /* [channel][pixel] */
    const int64_t p0 = (int64_t)blockIdx.x * TILE;
    const uint32_t c0 = blockIdx.y * TILE;
    const uint32_t across = threadIdx.x % TILE, down = threadIdx.x / TILE;
    const uint16_t *src =
        (const uint16_t *)a.src + (int64_t)blockIdx.z * a.channels * a.plane + a.from;
    uint16_t *dst = (uint16_t *)a.dst + (int64_t)blockIdx.z * a.pixels * a.padded;
    for (uint32_t c = down; c < TILE; c += THREADS / TILE) {
        const int64_t p = p0 + across;
        const bool in = c0 + c < a.channels && p < a.pixels;
        tile[c * PITCH + across] = in ? src[(int64_t)(c0 + c) * a.plane + p] : (uint16_t)0;
    }
    __syncthreads();
    for (uint32_t i = down; i < TILE; i += THREADS / TILE) {
        const int64_t p = p0 + i;
        if (p < a.pixels && c0 + across < a.padded)
            dst[p * a.padded + c0 + across] = tile[across * PITCH + i];
    }
}

template <typename T> __device__ void unpack(const conv_turn &a)
{
    __shared__ uint16_t tile[TILE * PITCH]; /* [pixel][channel] */
    static_assert(sizeof(T) == sizeof(uint16_t), "16 bits");
    const int64_t p0 = (int64_t)blockIdx.x * TILE;
    const uint32_t c0 = blockIdx.y * TILE;
    const uint32_t across = threadIdx.x % TILE, down = threadIdx.x / TILE;
    const uint16_t *src = (const uint16_t *)a.src + (int64_t)blockIdx.z * a.pixels * a.padded;
    const int64_t picture = (int64_t)blockIdx.z * a.channels * a.plane + a.from;
    for (uint32_t i = down; i < TILE; i += THREADS / TILE) {
        const int64_t p = p0 + i;
        const bool in = p < a.pixels && c0 + across < a.padded;
        tile[i * PITCH + across] = in ? src[p * a.padded + c0 + across] : (uint16_t)0;
    }
    __syncthreads();
    for (uint32_t c = down; c < TILE; c += THREADS / TILE) {
        const int64_t p = p0 + across;
        if (c0 + c >= a.channels || p >= a.pixels)
            continue;
        const int64_t at = picture + (int64_t)(c0 + c) * a.plane + p;
        float x = bits_to_float<T>(tile[across * PITCH + c]);
        x += bias_at(a.bias, a.bias_type, c0 + c);
        if (a.add)
            x += to_float(((const T *)a.add)[at]);
        from_float((T *)a.dst + at, x);
    }
}

template <typename T> __device__ void filter(const conv_filter &a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n)
        return;
    const uint32_t ic = (uint32_t)(i % a.in_padded);
    const int64_t rest = i / a.in_padded;
    const uint32_t rs = (uint32_t)(rest % a.window);
    const int64_t oc = rest / a.window;
    float x = 0;
    if (oc < a.out && ic < a.in)
        x = to_float(((const T *)a.src)[(oc * a.in + ic) * a.window + rs]) * a.scale;
    from_float((T *)a.dst + i, x);
}

template <typename T> __device__ void finish(const conv_finish &a)
{
    const int64_t plane = blockIdx.x / a.runs; /* of all pictures */
    const int64_t from = (int64_t)(blockIdx.x % a.runs) * CONV_RUN;
    const float bias = bias_at(a.bias, a.bias_type, (uint32_t)(plane % a.channels));
    for (int64_t p = from + threadIdx.x; p < a.plane && p < from + CONV_RUN; p += THREADS) {
        const int64_t at = plane * a.plane + p;
        float x = to_float(((const T *)a.src)[at]) + bias;
        if (a.add)
            x += to_float(((const T *)a.add)[at]);
        from_float((T *)a.dst + at, x);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(CONV_THREADS)
    conv2d_pack(const __grid_constant__ conv_turn a)
{
    pack(a);
}
extern "C" __global__ void __launch_bounds__(CONV_THREADS)
    conv2d_unpack_f16(const __grid_constant__ conv_turn a)
{
    unpack<__half>(a);
}
extern "C" __global__ void __launch_bounds__(CONV_THREADS)
    conv2d_unpack_bf16(const __grid_constant__ conv_turn a)
{
    unpack<__nv_bfloat16>(a);
}

#define EACH_TYPE(suffix, T)                                                                       \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS)                                     \
        conv2d_filter_##suffix(const __grid_constant__ conv_filter a)                              \
    {                                                                                              \
        filter<T>(a);                                                                              \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(CONV_THREADS)                                     \
        conv2d_finish_##suffix(const __grid_constant__ conv_finish a)                              \
    {                                                                                              \
        finish<T>(a);                                                                              \
    }
EACH_TYPE(f32, float)
EACH_TYPE(f16, __half)
EACH_TYPE(bf16, __nv_bfloat16)
