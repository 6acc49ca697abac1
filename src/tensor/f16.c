/* f16: IEEE half precision. x86 has instructions for it, also in AVX-512 proper. */
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#if CPU_X86
#include <immintrin.h>
#endif

static void to_f32_plain(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        st_u32(dst, i, f16_widen_bits(ld_u16(src, i)));
}

static void from_f32_plain(const float *src, void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        st_u16(dst, i, f16_narrow(ld_f32(src, i)));
}

#if CPU_X86
TARGET_AVX2 static void to_f32_avx2(const void *src, float *dst, size_t n)
{
    const uint8_t *s = src;
    uint8_t *d = (uint8_t *)dst;
    size_t whole = n & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i_u *)(s + 2 * i));
        _mm256_storeu_si256((__m256i_u *)(d + 4 * i), _mm256_castps_si256(_mm256_cvtph_ps(h)));
    }
    to_f32_plain(s + 2 * whole, (float *)(void *)(d + 4 * whole), n - whole);
}

TARGET_AVX512 static void to_f32_avx512(const void *src, float *dst, size_t n)
{
    const uint8_t *s = src;
    uint8_t *d = (uint8_t *)dst;
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        __m256i h = _mm256_maskz_loadu_epi16(m, s + 2 * i);
        _mm512_mask_storeu_ps(d + 4 * i, m, _mm512_cvtph_ps(h));
    }
}

TARGET_AVX2 static void from_f32_avx2(const float *src, void *dst, size_t n)
{
    const uint8_t *s = (const uint8_t *)src;
    uint8_t *d = dst;
    size_t whole = n & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        __m256i f = _mm256_loadu_si256((const __m256i_u *)(s + 4 * i));
        __m128i h = _mm256_cvtps_ph(_mm256_castsi256_ps(f), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i_u *)(d + 2 * i), h);
    }
    from_f32_plain((const float *)(const void *)(s + 4 * whole), d + 2 * whole, n - whole);
}

TARGET_AVX512 static void from_f32_avx512(const float *src, void *dst, size_t n)
{
    const uint8_t *s = (const uint8_t *)src;
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        __m512 f = _mm512_maskz_loadu_ps(m, s + 4 * i);
        _mm256_mask_storeu_epi16(d + 2 * i, m, _mm512_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT));
    }
}
#endif

TO_F32_TABLE(to_f32, 1, 2)
FROM_F32_TABLE(from_f32)

const struct dtype_desc dtype_f16 = {
    .name = "F16",
    .st_name = "F16",
    .ggml_id = 1,
    .elems = 1,
    .bytes = 2,
    .is_float = true,
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .to_f32_levels = to_f32_levels,
    .from_f32_levels = from_f32_levels,
};
