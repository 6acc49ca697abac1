/* stored.cuh: activations and stored weights as kernels of expand.cu and product.cu read and write
 * them, eight elements (a chunk) at a time where they lie well.
 *
 *   struct act_<type>    T, one element; get, put; get8, put8 of 16-byte aligned memory
 *   struct plain_<id>    a type of one element a block: get(src, i), get8(src, chunk) of memory
 *                        aligned to 16 bytes
 *   struct block_<id>    a GGML type: CHUNKS of a block, get8(src, chunk)
 * Conversions are the processor's own: to nearest, ties to even, NaN stays NaN. */
#ifndef OP_CUDA_STORED_CUH
#define OP_CUDA_STORED_CUH

#include "op/cuda/expand_decode.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#define INLINE static __device__ __forceinline__

INLINE float from_f16(uint32_t h)
{
    return __half2float(__ushort_as_half((unsigned short)h));
}

INLINE uint32_t two_f16(float lo, float hi)
{
    __half2 h = __floats2half2_rn(lo, hi);
    return (uint32_t)__half_as_ushort(h.x) | (uint32_t)__half_as_ushort(h.y) << 16;
}

INLINE uint32_t two_bf16(float lo, float hi)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return (uint32_t)__bfloat16_as_ushort(h.x) | (uint32_t)__bfloat16_as_ushort(h.y) << 16;
}

/* Eight elements of 16 bits in four words. */
#define SIXTEEN(name, widen, two)                                                                  \
    struct act_##name {                                                                            \
        typedef uint16_t T;                                                                        \
        INLINE float get(const T *p)                                                               \
        {                                                                                          \
            return widen(*p);                                                                      \
        }                                                                                          \
        INLINE void put(T *p, float v)                                                             \
        {                                                                                          \
            *p = (uint16_t)two(v, 0);                                                              \
        }                                                                                          \
        INLINE void get8(const T *p, float v[8])                                                   \
        {                                                                                          \
            uint4 u = *(const uint4 *)p;                                                           \
            v[0] = widen(u.x & 0xffff), v[1] = widen(u.x >> 16);                                   \
            v[2] = widen(u.y & 0xffff), v[3] = widen(u.y >> 16);                                   \
            v[4] = widen(u.z & 0xffff), v[5] = widen(u.z >> 16);                                   \
            v[6] = widen(u.w & 0xffff), v[7] = widen(u.w >> 16);                                   \
        }                                                                                          \
        INLINE void put8(T *p, const float v[8])                                                   \
        {                                                                                          \
            *(uint4 *)p =                                                                          \
                make_uint4(two(v[0], v[1]), two(v[2], v[3]), two(v[4], v[5]), two(v[6], v[7]));    \
        }                                                                                          \
    };
SIXTEEN(f16, from_f16, two_f16)
SIXTEEN(bf16, dec_one_bf16, two_bf16)
#undef SIXTEEN

struct act_f32 {
    typedef float T;
    INLINE float get(const T *p)
    {
        return *p;
    }
    INLINE void put(T *p, float v)
    {
        *p = v;
    }
    INLINE void get8(const T *p, float v[8])
    {
        float4 lo = ((const float4 *)p)[0], hi = ((const float4 *)p)[1];
        v[0] = lo.x, v[1] = lo.y, v[2] = lo.z, v[3] = lo.w;
        v[4] = hi.x, v[5] = hi.y, v[6] = hi.z, v[7] = hi.w;
    }
    INLINE void put8(T *p, const float v[8])
    {
        ((float4 *)p)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
};

/* ---- plain weights ---- */

#define WIDE_PLAIN(name)                                                                           \
    struct plain_##name {                                                                          \
        INLINE float get(const uint8_t *src, size_t i)                                             \
        {                                                                                          \
            return act_##name::get((const act_##name::T *)src + i);                                \
        }                                                                                          \
        INLINE void get8(const uint8_t *src, size_t chunk, float v[8])                             \
        {                                                                                          \
            act_##name::get8((const act_##name::T *)src + 8 * chunk, v);                           \
        }                                                                                          \
    };
WIDE_PLAIN(f32)
WIDE_PLAIN(f16)
WIDE_PLAIN(bf16)
#undef WIDE_PLAIN

/* Two bytes: lower, upper. Chips that multiply fp8 also widen it, two at a time. */
template <__nv_fp8_interpretation_t KIND> INLINE void two_f8(uint32_t b, float *lo, float *hi)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)b, KIND);
    *lo = from_f16(h.x);
    *hi = from_f16(h.y);
#else
    *lo = KIND == __NV_E4M3 ? dec_one_f8_e4m3(b & 0xff) : from_f16((b & 0xff) << 8);
    *hi = KIND == __NV_E4M3 ? dec_one_f8_e4m3(b >> 8 & 0xff) : from_f16(b & 0xff00);
#endif
}

template <__nv_fp8_interpretation_t KIND> struct plain_f8 {
    INLINE float get(const uint8_t *src, size_t i)
    {
        float lo, hi;
        two_f8<KIND>(src[i], &lo, &hi);
        return lo;
    }
    INLINE void get8(const uint8_t *src, size_t chunk, float v[8])
    {
        uint2 u = ((const uint2 *)src)[chunk];
        two_f8<KIND>(u.x & 0xffff, v + 0, v + 1);
        two_f8<KIND>(u.x >> 16, v + 2, v + 3);
        two_f8<KIND>(u.y & 0xffff, v + 4, v + 5);
        two_f8<KIND>(u.y >> 16, v + 6, v + 7);
    }
};
typedef plain_f8<__NV_E4M3> plain_f8_e4m3;
typedef plain_f8<__NV_E5M2> plain_f8_e5m2;

#define STORED_PLAINS(X) X(f32) X(f16) X(bf16) X(f8_e4m3) X(f8_e5m2)

/* ---- blocks ---- */

#define BLOCK(id, elems, bytes)                                                                    \
    struct block_##id {                                                                            \
        INLINE void get8(const uint8_t *src, size_t chunk, float v[8])                             \
        {                                                                                          \
            static_assert(elems % 8 == 0 && bytes % DEC_ALIGN(bytes) == 0, #id);                   \
            dec_##id(src + chunk / (elems / 8) * bytes, (unsigned)(chunk % (elems / 8)), v);       \
        }                                                                                          \
    };
DEC_QUANTS(BLOCK)
#undef BLOCK

#endif
