/* card: what nvcc knows by itself, for g++: included before a .cu file of op/cuda. CUDA's headers
 * bring their types and conversions for the host; the rest is here. */
#ifndef SUPPORT_CUDA_SIMT_CARD_H
#define SUPPORT_CUDA_SIMT_CARD_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "support/cuda_simt/simt.h"

#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#undef __shared__
#undef __device__
#undef __host__
#define __device__
#define __host__
#define __grid_constant__
#ifdef SIMT_LIST /* kernels.sh looks for these */
#define __global__ SIMT_KERNEL
#define __launch_bounds__(...) SIMT_BOUNDS(__VA_ARGS__)
#else
#define __global__
#define __launch_bounds__(...)
#endif
#define __shared__ static /* there is one block at a time */

#define __syncthreads() simt_barrier(__LINE__)

static inline uint32_t __float_as_uint(float f)
{
    uint32_t u;
    std::memcpy(&u, &f, sizeof u);
    return u;
}
static inline float __uint_as_float(uint32_t u)
{
    float f;
    std::memcpy(&f, &u, sizeof f);
    return f;
}
/* Only of whole warps: lanes are named by nobody here. */
static inline float __shfl_xor_sync(unsigned lanes, float v, int mask)
{
    static_cast<void>(lanes);
    return __uint_as_float(simt_shuffle_xor(__float_as_uint(v), static_cast<unsigned>(mask)));
}
/* The library's is a call, slow where the processor has no such instruction. A product of floats is
 * exact in double; a sum that is rounded there and then to float is off in one case of 2^29. */
static inline float simt_fmaf(float a, float b, float c)
{
    return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) +
                              static_cast<double>(c));
}
#define fmaf simt_fmaf
/* Four bytes of the eight of a and b, a digit of `which` each. */
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t which)
{
    const uint64_t all = static_cast<uint64_t>(b) << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= static_cast<uint32_t>(all >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
static inline float __ull2float_rn(unsigned long long v)
{
    return static_cast<float>(v);
}
static inline float __double2float_rn(double v)
{
    return static_cast<float>(v);
}

/* A kernel as the driver sees it: sizes of its arguments, and a call with their addresses. */
template <class... A> struct simt_signature {
    static constexpr size_t bytes[] = { sizeof(A)..., 0 };
    template <void (*F)(A...), size_t... I> static void with(void **args, std::index_sequence<I...>)
    {
        F(*static_cast<const A *>(args[I])...);
    }
    template <void (*F)(A...)> static void call(void **args)
    {
        with<F>(args, std::index_sequence_for<A...>());
    }
};
template <class... A> simt_signature<A...> simt_signature_of(void (*)(A...));

static constexpr unsigned simt_first(unsigned threads, unsigned = 0)
{
    return threads;
}

/* A row of a module's table. */
#define SIMT_ROW(name, ...)                                                                        \
    { #name, decltype(simt_signature_of(name))::bytes,                                             \
      decltype(simt_signature_of(name))::call<name>, simt_first(__VA_ARGS__), 0 },

#endif
