/* stored.cuh: stored weights as kernels of expand.cu and product.cu read them, eight elements (a
 * chunk) at a time where they lie well.
 *
 *   struct plain_<id>    a type of one element a block: get(src, i), get8(src, chunk) of memory
 *                        aligned to 16 bytes
 *   struct block_<id>    a GGML type: CHUNKS of a block, get8(src, chunk)
 * Conversions are the processor's own: to nearest, ties to even, NaN stays NaN. */
#pragma once

#include "op/cuda/expand_decode.h"
#include "op/cuda/kernel.cuh"

#include <cuda_fp8.h>

#define INLINE DEV

template <class T> struct plain {
    INLINE float get(const uint8_t *src, size_t i)
    {
        return to_f32(((const T *)src)[i]);
    }
    INLINE void get8(const uint8_t *src, size_t chunk, float v[8])
    {
        load8((const T *)src + 8 * chunk, v);
    }
};
typedef plain<float> plain_f32;
typedef plain<__half> plain_f16;
typedef plain<__nv_bfloat16> plain_bf16;

INLINE float from_f16(uint32_t h)
{
    return __half2float(__ushort_as_half((unsigned short)h));
}

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
