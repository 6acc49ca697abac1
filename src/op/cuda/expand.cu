/* expand.cu: stored types to those of activations.
 *
 * A thread decodes chunks of eight elements, two of them so that the loads of both are on their
 * way, and writes each with one 16-byte store; a warp reads and writes memory without holes. Blocks
 * of 18 or 34 bytes lie badly for wide loads, but neighbours read the same sectors at the same
 * time, so the first level of cache makes up for it and no shared memory is needed.
 *
 * A block of EXPAND_THREADS threads has twice as many chunks. */
#include "op/cuda/stored.cuh"

#include "tensor/dtype.h"

template <class T> INLINE void put_chunk(T *dst, const float v[8], int wide)
{
    if (wide) {
        store8(dst, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        dst[i] = of_f32<T>(v[i]);
}

template <class B, class T> INLINE void blocks(const struct expand_args &a)
{
    const uint8_t *__restrict__ src = a.src;
    T *__restrict__ dst = (T *)a.dst;
    size_t first = (size_t)blockIdx.x * (2 * EXPAND_THREADS), c = first + threadIdx.x;
    size_t d = c + EXPAND_THREADS;
    float v[8], w[8];
    if (first + 2 * EXPAND_THREADS <= a.n) {
        B::get8(src, c, v);
        B::get8(src, d, w);
        put_chunk(dst + 8 * c, v, a.wide);
        put_chunk(dst + 8 * d, w, a.wide);
        return;
    }
    if (c < a.n) {
        B::get8(src, c, v);
        put_chunk(dst + 8 * c, v, a.wide);
    }
    if (d < a.n) {
        B::get8(src, d, w);
        put_chunk(dst + 8 * d, w, a.wide);
    }
}

template <class P, class T> INLINE void plains(const struct expand_args &a)
{
    const uint8_t *__restrict__ src = a.src;
    T *__restrict__ dst = (T *)a.dst;
    size_t first = (size_t)blockIdx.x * (2 * EXPAND_THREADS), c = first + threadIdx.x;
    if (a.wide && 8 * (first + 2 * EXPAND_THREADS) <= a.n) {
        float v[8], w[8];
        P::get8(src, c, v);
        P::get8(src, c + EXPAND_THREADS, w);
        store8(dst + 8 * c, v);
        store8(dst + 8 * (c + EXPAND_THREADS), w);
        return;
    }
    size_t end = 8 * (first + 2 * EXPAND_THREADS);
    end = end < a.n ? end : a.n;
    for (size_t i = 8 * first + threadIdx.x; i < end; i += EXPAND_THREADS)
        dst[i] = of_f32<T>(P::get(src, i));
}

#define TYPES(id, body, of)                                                                        \
    ENTRY(expand_##id##_f32, expand_args, (body<of##_##id, float>), EXPAND_THREADS)                \
    ENTRY(expand_##id##_f16, expand_args, (body<of##_##id, __half>), EXPAND_THREADS)               \
    ENTRY(expand_##id##_bf16, expand_args, (body<of##_##id, __nv_bfloat16>), EXPAND_THREADS)
#define PLAIN(id) TYPES(id, plains, plain)
#define BLOCK(id, elems, bytes) TYPES(id, blocks, block)
STORED_PLAINS(PLAIN)
DEC_QUANTS(BLOCK)

/* ---- types that hardly any weight has: one kernel for all of them, an element a thread ---- */

/* Rounded to F32, or to odd for a type that is rounded to next. */
INLINE float rounded_int(uint64_t abs, bool negative, bool odd)
{
    if (odd)
        return dec_odd_int(abs, negative);
    float f = __ull2float_rn(abs); /* to nearest is the same on both sides of zero */
    return negative ? -f : f;
}

INLINE float rounded(const uint8_t *src, size_t i, int type, bool odd)
{
    int64_t v;
    switch (type) {
    case DT_F64:
        if (odd)
            return dec_odd_f64(((const uint64_t *)src)[i]);
        return __double2float_rn(((const double *)src)[i]);
    case DT_F8_E8M0:
        return dec_one_f8_e8m0(src[i]);
    case DT_BOOL:
        return src[i] ? 1.0f : 0.0f;
    case DT_U64:
        return rounded_int(((const uint64_t *)src)[i], false, odd);
    case DT_I64:
        v = ((const int64_t *)src)[i];
        break;
    case DT_I32:
        v = ((const int32_t *)src)[i];
        break;
    case DT_U32:
        v = ((const uint32_t *)src)[i];
        break;
    case DT_I16:
        v = ((const int16_t *)src)[i];
        break;
    case DT_U16:
        v = ((const uint16_t *)src)[i];
        break;
    case DT_I8:
        v = ((const int8_t *)src)[i];
        break;
    default: /* DT_U8 */
        v = src[i];
        break;
    }
    return rounded_int(v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0, odd);
}

template <class T> INLINE void expand_any_body(const struct expand_args &a)
{
    size_t i = (size_t)blockIdx.x * EXPAND_THREADS + threadIdx.x;
    if (i < a.n)
        ((T *)a.dst)[i] = of_f32<T>(rounded(a.src, i, a.type, sizeof(T) < sizeof(float)));
}
KERNELS(expand_any, expand_args, EXPAND_THREADS)
