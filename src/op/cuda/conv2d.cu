/* conv2d.cu: what surrounds a convolution of cuDNN: layouts of pictures and filters, bias,
 * addition.
 *
 * Tensor cores want the channels of a pixel side by side; pictures here are planes, one for each
 * channel. conv2d_pack turns a tile of 64 pixels by 64 channels through shared memory, two values
 * at a time, conv2d_unpack turns it back. What cuDNN did not add, bias and `add`, comes in there:
 * in F32, rounding once. */
#include "op/cuda/kernel.cuh"

namespace
{

constexpr int TILE = CONV_TILE, THREADS = CONV_THREADS;
constexpr int PITCH =
    TILE / 2 + 1; /* words of two values; every second row of a column: 16 banks */
static_assert(TILE == 64 && THREADS % 32 == 0, "a warp has a row of the tile");

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
__device__ void conv2d_pack_body(const conv_turn &a)
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

/* Two neighbouring pixels of a channel, with what is still to be added. */
template <typename T>
__device__ void put(const conv_turn &a, int64_t picture, uint32_t channel, int64_t p, uint32_t two)
{
    if (channel >= a.channels || p >= a.pixels)
        return;
    const int64_t at = picture + (int64_t)channel * a.plane + p;
    const bool second = p + 1 < a.pixels;
    if (a.bias || a.add) {
        const float bias = bias_at(a.bias_type, a.bias, channel);
        float x[2];
        unpack2<T>(two, x);
        x[0] += bias;
        x[1] += bias;
        if (a.add) {
            x[0] += to_f32(((const T *)a.add)[at]);
            x[1] += second ? to_f32(((const T *)a.add)[at + 1]) : 0.0f;
        }
        two = pack2<T>(x[0], x[1]);
    }
    uint16_t *dst = (uint16_t *)a.dst + at;
    if (a.pairs) {
        *(uint32_t *)dst = two;
        return;
    }
    dst[0] = (uint16_t)two;
    if (second)
        dst[1] = (uint16_t)(two >> 16);
}

template <typename T> __device__ void conv2d_unpack_body(const conv_turn &a)
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

template <typename T> __device__ void conv2d_bias_body(const conv_bias &a)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < a.padded)
        ((T *)a.dst)[i] = of_f32<T>(i < a.n ? bias_at(a.type, a.src, i) : 0.0f);
}

template <typename T> __device__ void conv2d_filter_body(const conv_filter &a)
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
        x = to_f32(((const T *)a.src)[(oc * a.in + ic) * a.window + rs]) * a.scale;
    ((T *)a.dst)[i] = of_f32<T>(x);
}

template <typename T> __device__ void conv2d_finish_body(const conv_finish &a)
{
    const int64_t plane = blockIdx.x / a.runs; /* of all pictures */
    const int64_t from = (int64_t)(blockIdx.x % a.runs) * CONV_RUN;
    const float bias = bias_at(a.bias_type, a.bias, (uint32_t)(plane % a.channels));
    for (int64_t p = from + threadIdx.x; p < a.plane && p < from + CONV_RUN; p += THREADS) {
        const int64_t at = plane * a.plane + p;
        float x = to_f32(((const T *)a.src)[at]) + bias;
        if (a.add)
            x += to_f32(((const T *)a.add)[at]);
        ((T *)a.dst)[at] = of_f32<T>(x);
    }
}

} // namespace

ENTRY(conv2d_pack, conv_turn, conv2d_pack_body, THREADS)
KERNELS_16(conv2d_unpack, conv_turn, THREADS)
KERNELS_16(conv2d_bias, conv_bias, THREADS)
KERNELS(conv2d_filter, conv_filter, THREADS)
KERNELS(conv2d_finish, conv_finish, THREADS)
