/* gemm_level: the transposition that packing needs, and what each level has. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"

#if CPU_X86
#include <immintrin.h>
#endif

static void transpose_plain(const float *src, size_t ld_src, size_t rows, size_t n, float *dst,
                            size_t ld_dst, size_t pad)
{
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < rows; i++)
            dst[j * ld_dst + i] = src[i * ld_src + j];
        for (size_t i = rows; i < pad; i++)
            dst[j * ld_dst + i] = 0;
    }
}

#if CPU_X86
/* 16 x 16 in registers: pairs of columns, then fours, then 128-bit lanes. */
TARGET_AVX512 INLINE_BODY void transpose16(__m512 v[16])
{
    __m512 t[16];
    UNROLL
    for (size_t i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
    UNROLL
    for (size_t i = 0; i < 16; i += 4) { /* v[i + c]: column c of each lane, rows i .. i + 3 */
        v[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL
    for (size_t c = 0; c < 4; c++) {
        __m512 a = _mm512_shuffle_f32x4(v[c], v[4 + c], 0x88);
        __m512 b = _mm512_shuffle_f32x4(v[c], v[4 + c], 0xdd);
        __m512 d = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0x88);
        __m512 e = _mm512_shuffle_f32x4(v[8 + c], v[12 + c], 0xdd);
        t[c] = _mm512_shuffle_f32x4(a, d, 0x88);
        t[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
        t[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
    UNROLL
    for (size_t i = 0; i < 16; i++)
        v[i] = t[i];
}

TARGET_AVX512 static void transpose_avx512(const float *src, size_t ld_src, size_t rows, size_t n,
                                           float *dst, size_t ld_dst, size_t pad)
{
    __mmask16 lanes = (__mmask16)((1u << pad) - 1);
    for (size_t j = 0; j < n; j += 16, dst += 16 * ld_dst) {
        size_t now = n - j < 16 ? n - j : 16;
        __mmask16 part = (__mmask16)((1u << now) - 1);
        __m512 v[16];
        UNROLL
        for (size_t i = 0; i < 16; i++)
            v[i] =
                i < rows ? _mm512_maskz_loadu_ps(part, src + i * ld_src + j) : _mm512_setzero_ps();
        transpose16(v);
        if (now == 16) {
            UNROLL
            for (size_t i = 0; i < 16; i++)
                _mm512_mask_storeu_ps(dst + i * ld_dst, lanes, v[i]);
        } else {
            UNROLL
            for (size_t i = 0; i < 16; i++)
                if (i < now)
                    _mm512_mask_storeu_ps(dst + i * ld_dst, lanes, v[i]);
        }
    }
}
#endif

const struct gemm_level *gemm_level(enum cpu_level l)
{
    static const struct gemm_level levels[CPU_LEVELS] = {
        [CPU_PLAIN] = { 4, 8, gemm_tiles_plain, transpose_plain, CPU_PLAIN },
#if CPU_X86
        [CPU_AVX2] = { 6, 16, gemm_tiles_avx2, transpose_plain, CPU_AVX2 },
        [CPU_AVX512] = { 14, 32, gemm_tiles_avx512, transpose_avx512, CPU_AVX512 },
#endif
    };
    return &levels[l];
}
