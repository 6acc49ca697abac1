/* kernel.cuh: what our own .cu files share: the three types of activations, 16 bytes of them at a
 * time, parameters of any type, sums over a warp and a block. Values are computed in F32 and
 * rounded once, to nearest. */
#pragma once

#include "op/cuda/args.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define DEV static __device__ __forceinline__

typedef uint64_t u64;
typedef uint32_t u32;

/* ENTRY(name, arguments, body, threads of a block, ...): a kernel that the host finds by its
 * name. */
#define ENTRY(name, args, body, ...)                                                               \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        name(const __grid_constant__ struct args a)                                                \
    {                                                                                              \
        body(a);                                                                                   \
    }
/* One kernel per type: name_f32, name_f16, name_bf16 of the template name_body<T>; or of 16 bits
 * alone. */
#define KERNELS(name, args, threads)                                                               \
    ENTRY(name##_f32, args, name##_body<float>, threads)                                           \
    KERNELS_16(name, args, threads)
#define KERNELS_16(name, args, threads)                                                            \
    ENTRY(name##_f16, args, name##_body<__half>, threads)                                          \
    ENTRY(name##_bf16, args, name##_body<__nv_bfloat16>, threads)
/* Those that read F32 and write 16 bits: name_of_f32_f16 and _bf16 of name_body<float, T>. */
#define KERNELS_OF_F32(name, args, threads)                                                        \
    ENTRY(name##_of_f32_f16, args, (name##_body<float, __half>), threads)                          \
    ENTRY(name##_of_f32_bf16, args, (name##_body<float, __nv_bfloat16>), threads)

/* ---- one element ---- */

DEV float to_f32(float x)
{
    return x;
}
DEV float to_f32(__half x)
{
    return __half2float(x);
}
DEV float to_f32(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <class T> DEV T of_f32(float x);
template <> __device__ __forceinline__ float of_f32<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __half of_f32<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ __forceinline__ __nv_bfloat16 of_f32<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* ---- 16 bytes ---- */

template <class T> struct vec {
    static constexpr int n = 16 / (int)sizeof(T);
};
static_assert(sizeof(uint4) == 16 && sizeof(__half) == 2 && sizeof(__nv_bfloat16) == 2, "sizes");

/* Two elements that lie in one word, the lower address in the lower half. */
template <class T> DEV void unpack2(u32 w, float *f);
template <> __device__ __forceinline__ void unpack2<__half>(u32 w, float *f)
{
    f[0] = __half2float(__ushort_as_half((unsigned short)(w & 0xffff)));
    f[1] = __half2float(__ushort_as_half((unsigned short)(w >> 16)));
}
template <> __device__ __forceinline__ void unpack2<__nv_bfloat16>(u32 w, float *f)
{
    f[0] = __uint_as_float(w << 16);
    f[1] = __uint_as_float(w & 0xffff0000u);
}
template <class T> DEV u32 pack2(float lower, float upper);
template <> __device__ __forceinline__ u32 pack2<__half>(float lower, float upper)
{
    return (u32)__half_as_ushort(__float2half_rn(lower)) |
           (u32)__half_as_ushort(__float2half_rn(upper)) << 16;
}
template <> __device__ __forceinline__ u32 pack2<__nv_bfloat16>(float lower, float upper)
{
    return (u32)__bfloat16_as_ushort(__float2bfloat16_rn(lower)) |
           (u32)__bfloat16_as_ushort(__float2bfloat16_rn(upper)) << 16;
}

template <class T> DEV void unpack(uint4 v, float *f) /* f[vec<T>::n] */
{
    unpack2<T>(v.x, f);
    unpack2<T>(v.y, f + 2);
    unpack2<T>(v.z, f + 4);
    unpack2<T>(v.w, f + 6);
}
template <> __device__ __forceinline__ void unpack<float>(uint4 v, float *f)
{
    f[0] = __uint_as_float(v.x);
    f[1] = __uint_as_float(v.y);
    f[2] = __uint_as_float(v.z);
    f[3] = __uint_as_float(v.w);
}
template <class T> DEV uint4 pack(const float *f)
{
    return make_uint4(pack2<T>(f[0], f[1]), pack2<T>(f[2], f[3]), pack2<T>(f[4], f[5]),
                      pack2<T>(f[6], f[7]));
}
template <> __device__ __forceinline__ uint4 pack<float>(const float *f)
{
    return make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]),
                      __float_as_uint(f[3]));
}

template <class T> DEV void load(const void *p, u64 unit, float *f)
{
    unpack<T>(((const uint4 *)p)[unit], f);
}
template <class T> DEV void store(void *p, u64 unit, const float *f)
{
    ((uint4 *)p)[unit] = pack<T>(f);
}
/* Eight elements: 16 bytes or twice that. */
template <class T> DEV void load8(const T *p, float *f)
{
    load<T>(p, 0, f);
    if constexpr (vec<T>::n == 4)
        load<T>(p, 1, f + 4);
}
template <class T> DEV void store8(T *p, const float *f)
{
    store<T>(p, 0, f);
    if constexpr (vec<T>::n == 4)
        store<T>(p, 1, f + 4);
}
/* N elements, which may be half of 16 bytes. */
template <class T, int N> DEV void store_n(void *p, u64 unit, const float *f)
{
    static_assert(N == vec<T>::n || 2 * N == vec<T>::n, "16 bytes or 8");
    if constexpr (N == vec<T>::n)
        store<T>(p, unit, f);
    else
        ((uint2 *)p)[unit] = make_uint2(pack2<T>(f[0], f[1]), pack2<T>(f[2], f[3]));
}

/* ---- parameters ---- */

DEV const void *item_of(const struct param *p, u64 item)
{
    return (const char *)p->p + item * p->stride;
}

/* Element i of what is stored at p. */
DEV float param_at(int type, const void *p, u64 i)
{
    if (type == CUDA_F32)
        return ((const float *)p)[i];
    if (type == CUDA_F16)
        return __half2float(((const __half *)p)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

/* Of a bias, which may be absent. */
DEV float bias_at(int type, const void *p, u64 i)
{
    return p ? param_at(type, p, i) : 0.0f;
}

/* N elements from element `unit * N` on; aligned to N elements. */
template <int N> DEV void param_load(int type, const void *p, u64 unit, float *f)
{
    static_assert(N == 4 || N == 8, "N elements of 16 or 32 bits");
    if (type == CUDA_F32) {
        for (int k = 0; k < N / 4; k++)
            unpack<float>(((const uint4 *)p)[unit * (N / 4) + k], f + 4 * k);
        return;
    }
    u32 w[N / 2];
    if constexpr (N == 8) {
        uint4 v = ((const uint4 *)p)[unit];
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    } else {
        uint2 v = ((const uint2 *)p)[unit];
        w[0] = v.x, w[1] = v.y;
    }
    for (int k = 0; k < N / 2; k++)
        if (type == CUDA_F16)
            unpack2<__half>(w[k], f + 2 * k);
        else
            unpack2<__nv_bfloat16>(w[k], f + 2 * k);
}

/* ---- where this thread is ---- */

DEV u64 thread_first(void)
{
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}
DEV u64 thread_step(void)
{
    return (u64)gridDim.x * blockDim.x;
}
#define EACH(i, count) for (u64 i = thread_first(); i < (count); i += thread_step())

/* ---- sums, in an order that follows from the number of threads alone ---- */

/* Over `lanes` neighbouring threads of a warp, a power of two; each gets it. All 32 take part. */
DEV float lanes_sum(float v, unsigned lanes)
{
    for (unsigned o = lanes / 2; o; o /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, (int)o);
    return v;
}
DEV float2 warp_sum(float2 v)
{
#pragma unroll
    for (int o = 16; o; o /= 2) {
        v.x += __shfl_xor_sync(0xffffffffu, v.x, o);
        v.y += __shfl_xor_sync(0xffffffffu, v.y, o);
    }
    return v;
}

/* Over the threads of one threadIdx.y, each gets it. blockDim.x is a multiple of 32; if it is more
 * than 32, blockDim.y is 1 and every thread of the block comes here. `turn` starts with 0 and
 * belongs to the kernel: sums use two buffers by turns, so that one barrier is enough: who writes
 * to a buffer again has passed the barrier of the sum between, and so has everyone who read it. */
DEV float2 row_sum(float2 v, int *turn)
{
    __shared__ float2 part[2][32];
    v = warp_sum(v);
    if (blockDim.x == 32)
        return v;
    float2 *mine = part[*turn];
    *turn ^= 1;
    if (threadIdx.x % 32 == 0)
        mine[threadIdx.x / 32] = v;
    __syncthreads();
    v = mine[0];
    for (u32 w = 1; w < blockDim.x / 32; w++) {
        v.x += mine[w].x;
        v.y += mine[w].y;
    }
    return v;
}

/* ---- functions ---- */

DEV float f_silu(float x)
{
    return x / (1.0f + expf(-x));
}
/* 1 + erf(z) as erfc(-z): it keeps its digits where erf is close to -1. */
DEV float f_gelu(float x)
{
    return 0.5f * x * erfcf(x * -0.70710678118654752440f);
}
/* x/2 (1 + tanh(u)) written as x / (1 + exp(-2u)): the same value without the difference that loses
 * all digits below -3. */
DEV float f_gelu_tanh(float x)
{
    float u = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * u));
}
