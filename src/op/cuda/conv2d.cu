/* conv2d.cu: what surrounds a convolution of cuDNN: layouts of pictures and filters, bias,
 * addition.
 *
 * Tensor cores want the channels of a pixel side by side; pictures here are planes, one for each
 * channel. conv2d_pack turns a tile of 64 pixels by 64 channels through shared memory, two values
 * at a time, conv2d_unpack turns it back. What cuDNN did not add, bias and `add`, comes in there:
 * in F32, rounding once. */
#include "op/cuda/conv2d_args.h"
#include "op/cuda/types.cuh"

namespace
{

constexpr int TILE = CONV_TILE, THREADS = CONV_THREADS;
constexpr int PITCH =
    TILE / 2 + 1; /* words of two values; every second row of a column: 16 banks */
static_assert(TILE == 64 && THREADS % 32 == 0, "a warp has a row of the tile");

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

__device__ uint32_t bits_of(__half x)
{
    return __half_as_ushort(x);
}
__device__ uint32_t bits_of(__nv_bfloat16 x)
{
    return __bfloat16_as_ushort(x);
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

/* Halves of two words: the low ones, the high ones. */
__device__ uint32_t low_halves(uint32_t a, uint32_t b)
{
    return __byte_perm(a, b, 0x5410);
}
__device__ uint32_t high_halves(uint32_t a, uint32_t b)
{
    return __byte_perm(a, b, 0x7632);
}

/* Block: x tiles of pixels, y tiles of channels, z pictures. A warp has a row of the tile: its
 * threads two neighbours each. Two rows of the tile then are two columns of the result. */
__device__ void pack(const conv_turn &a)
{
    __shared__ uint32_t tile[TILE * PITCH]; /* [channel][two pixels] */
    const int64_t p0 = (int64_t)blockIdx.x * TILE;
    const uint32_t c0 = blockIdx.y * TILE;
    const uint32_t across = threadIdx.x % 32, down = threadIdx.x / 32;
    const uint16_t *src =
        (const uint16_t *)a.src + (int64_t)blockIdx.z * a.channels * a.plane + a.from;
    uint16_t *dst = (uint16_t *)a.dst + (int64_t)blockIdx.z * a.pixels * a.padded;
    for (uint32_t c = down; c < TILE; c += THREADS / 32) {
        const int64_t p = p0 + 2 * across, at = (int64_t)(c0 + c) * a.plane + p;
        uint32_t two = 0;
        if (c0 + c < a.channels && p < a.pixels) {
            if (a.pairs)
                two = *(const uint32_t *)(src + at);
            else
                two = src[at] | (p + 1 < a.pixels ? (uint32_t)src[at + 1] << 16 : 0u);
        }
        tile[c * PITCH + across] = two;
    }
    __syncthreads();
    const uint32_t c = 2 * across;
    if (c0 + c >= a.padded)
        return;
    for (uint32_t i = down; i < TILE / 2; i += THREADS / 32) {
        const int64_t p = p0 + 2 * i;
        const uint32_t u = tile[c * PITCH + i], v = tile[(c + 1) * PITCH + i];
        uint16_t *to = dst + p * a.padded + c0 + c;
        if (p < a.pixels)
            *(uint32_t *)to = low_halves(u, v);
        if (p + 1 < a.pixels)
            *(uint32_t *)(to + a.padded) = high_halves(u, v);
    }
}

/* One value of the result with what is still to be added; its bits. */
template <typename T>
__device__ uint32_t with_more(const conv_turn &a, uint32_t bits, float bias, int64_t at)
{
    float x = bits_to_float<T>((uint16_t)bits) + bias;
    if (a.add)
        x += to_float(((const T *)a.add)[at]);
    T rounded;
    from_float(&rounded, x);
    return bits_of(rounded);
}

/* Two neighbouring pixels of a channel. */
template <typename T>
__device__ void put(const conv_turn &a, int64_t picture, uint32_t channel, int64_t p, uint32_t two)
{
    if (channel >= a.channels || p >= a.pixels)
        return;
    const int64_t at = picture + (int64_t)channel * a.plane + p;
    const bool second = p + 1 < a.pixels;
    uint32_t low = two & 0xffffu, high = two >> 16;
    if (a.bias || a.add) {
        const float bias = bias_at(a.bias, a.bias_type, channel);
        low = with_more<T>(a, low, bias, at);
        high = second ? with_more<T>(a, high, bias, at + 1) : 0;
    }
    uint16_t *dst = (uint16_t *)a.dst + at;
    if (a.pairs) {
        *(uint32_t *)dst = low | high << 16;
        return;
    }
    dst[0] = (uint16_t)low;
    if (second)
        dst[1] = (uint16_t)high;
}

template <typename T> __device__ void unpack(const conv_turn &a)
{
    __shared__ uint32_t tile[TILE * PITCH]; /* [pixel][two channels] */
    static_assert(sizeof(T) == sizeof(uint16_t), "16 bits");
    const int64_t p0 = (int64_t)blockIdx.x * TILE;
    const uint32_t c0 = blockIdx.y * TILE;
    const uint32_t across = threadIdx.x % 32, down = threadIdx.x / 32;
    const uint16_t *src = (const uint16_t *)a.src + (int64_t)blockIdx.z * a.pixels * a.padded;
    const int64_t picture = (int64_t)blockIdx.z * a.channels * a.plane + a.from;
    for (uint32_t i = down; i < TILE; i += THREADS / 32) {
        const int64_t p = p0 + i;
        const uint32_t c = c0 + 2 * across;
        const bool in = p < a.pixels && c < a.padded;
        tile[i * PITCH + across] = in ? *(const uint32_t *)(src + p * a.padded + c) : 0u;
    }
    __syncthreads();
    const uint32_t i = 2 * across;
    for (uint32_t c = down; c < TILE / 2; c += THREADS / 32) {
        const uint32_t u = tile[i * PITCH + c], v = tile[(i + 1) * PITCH + c];
        put<T>(a, picture, c0 + 2 * c, p0 + i, low_halves(u, v));
        put<T>(a, picture, c0 + 2 * c + 1, p0 + i, high_halves(u, v));
    }
}

template <typename T> __device__ void bias_of_type(const conv_bias &a)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < a.padded)
        from_float((T *)a.dst + i, i < a.n ? bias_at(a.src, a.type, i) : 0.0f);
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
extern "C" __global__ void __launch_bounds__(CONV_THREADS)
    conv2d_bias_f16(const __grid_constant__ conv_bias a)
{
    bias_of_type<__half>(a);
}
extern "C" __global__ void __launch_bounds__(CONV_THREADS)
    conv2d_bias_bf16(const __grid_constant__ conv_bias a)
{
    bias_of_type<__nv_bfloat16>(a);
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
