/* gemm_tile: the kernels, one per number of rows and level, and the transposition that packing
 * needs.
 *
 * A tile keeps its sums in registers while k runs: 14 x 32 in 28 of the 32 AVX-512 registers, 6 x
 * 16 in 12 of 16 with AVX2, 4 x 8 in plain C. Fewer rows are a kernel of their own instead of rows
 * of zeros: down to two rows the multipliers stay as busy. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"

#include <string.h>

#if CPU_X86
#include <immintrin.h>
#endif

#ifdef __clang__ /* the loops over rows must vanish, or the sums are no registers */
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- plain ---- */

/* The sums of a tile to their place. */
INLINE_BODY void finish(const struct gemm_finish *f, const float *sum, const size_t rows,
                        const size_t nr)
{
    for (size_t i = 0; i < rows; i++, sum += nr) {
        float *c = f->c + i * f->ld_c;
        const float *add = f->add ? f->add + i * f->ld_add : NULL;
        float of_row = f->of_row ? f->of_row[i] : 0;
        for (size_t j = 0; j < f->cols; j++) {
            float v = sum[j] * f->scale + of_row + (f->of_col ? f->of_col[j] : 0);
            c[j] = add ? v + add[j] : v;
        }
    }
}

typedef float vec4 __attribute__((vector_size(16)));

INLINE_BODY void tile_plain(const size_t R, const float *a, const float *b, size_t k, float *sum,
                            bool first, const struct gemm_finish *f)
{
    vec4 s[4][2];
    UNROLL
    for (size_t r = 0; r < R; r++)
        s[r][0] = s[r][1] = (vec4) { 0 };
    for (; k; k--, a += R, b += 8) {
        vec4 b0, b1;
        memcpy(&b0, b, sizeof b0);
        memcpy(&b1, b + 4, sizeof b1);
        UNROLL
        for (size_t r = 0; r < R; r++) {
            s[r][0] += a[r] * b0;
            s[r][1] += a[r] * b1;
        }
    }
    UNROLL
    for (size_t r = 0; r < R; r++) {
        vec4 c0 = { 0 }, c1 = { 0 };
        if (!first) {
            memcpy(&c0, sum + r * 8, sizeof c0);
            memcpy(&c1, sum + r * 8 + 4, sizeof c1);
            s[r][0] += c0;
            s[r][1] += c1;
        }
        memcpy(sum + r * 8, &s[r][0], sizeof c0);
        memcpy(sum + r * 8 + 4, &s[r][1], sizeof c1);
    }
    if (f)
        finish(f, sum, R, 8);
}

static void turn_plain(const float *src, size_t ld_src, size_t rows, size_t n, float *dst,
                       size_t ld_dst, size_t pad)
{
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < rows; i++)
            dst[j * ld_dst + i] = src[i * ld_src + j];
        for (size_t i = rows; i < pad; i++)
            dst[j * ld_dst + i] = 0;
    }
}

#define TILE(name, R, target)                                                                      \
    target static void tile_##name##_##R(const float *a, const float *b, size_t k, float *sum,     \
                                         bool first, const struct gemm_finish *f)                  \
    {                                                                                              \
        tile_##name(R, a, b, k, sum, first, f);                                                    \
    }
#define NO_TARGET
TILE(plain, 1, NO_TARGET)
TILE(plain, 2, NO_TARGET)
TILE(plain, 3, NO_TARGET)
TILE(plain, 4, NO_TARGET)
static gemm_tile_fn *const tiles_plain[] = { NULL, tile_plain_1, tile_plain_2, tile_plain_3,
                                             tile_plain_4 };

#if CPU_X86
/* ---- AVX2 with FMA ---- */

TARGET_FMA INLINE_BODY void tile_avx2(const size_t R, const float *a, const float *b, size_t k,
                                      float *sum, bool first, const struct gemm_finish *f)
{
    __m256 s[6][2];
    UNROLL
    for (size_t r = 0; r < R; r++)
        s[r][0] = s[r][1] = _mm256_setzero_ps();
    for (; k; k--, a += R, b += 16) {
        __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
        UNROLL
        for (size_t r = 0; r < R; r++) {
            __m256 x = _mm256_broadcast_ss(a + r);
            s[r][0] = _mm256_fmadd_ps(x, b0, s[r][0]);
            s[r][1] = _mm256_fmadd_ps(x, b1, s[r][1]);
        }
    }
    UNROLL
    for (size_t r = 0; r < R; r++) {
        if (!first) {
            s[r][0] = _mm256_add_ps(_mm256_load_ps(sum + r * 16), s[r][0]);
            s[r][1] = _mm256_add_ps(_mm256_load_ps(sum + r * 16 + 8), s[r][1]);
        }
        _mm256_store_ps(sum + r * 16, s[r][0]);
        _mm256_store_ps(sum + r * 16 + 8, s[r][1]);
    }
    if (f)
        finish(f, sum, R, 16);
}

TILE(avx2, 1, TARGET_FMA)
TILE(avx2, 2, TARGET_FMA)
TILE(avx2, 3, TARGET_FMA)
TILE(avx2, 4, TARGET_FMA)
TILE(avx2, 5, TARGET_FMA)
TILE(avx2, 6, TARGET_FMA)
static gemm_tile_fn *const tiles_avx2[] = { NULL,        tile_avx2_1, tile_avx2_2, tile_avx2_3,
                                            tile_avx2_4, tile_avx2_5, tile_avx2_6 };

/* ---- AVX-512 ---- */

/* One row of a tile straight from its registers: bursts of stores to memory would stall the next
 * tile. */
TARGET_AVX512 INLINE_BODY void finish_avx512(const struct gemm_finish *f, size_t row, size_t at,
                                             __mmask16 live, __m512 v)
{
    v = _mm512_mul_ps(v, _mm512_set1_ps(f->scale));
    v = _mm512_add_ps(v, _mm512_set1_ps(f->of_row ? f->of_row[row] : 0));
    v = _mm512_add_ps(v, f->of_col ? _mm512_maskz_loadu_ps(live, f->of_col + at)
                                   : _mm512_setzero_ps());
    if (f->add)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(live, f->add + row * f->ld_add + at));
    _mm512_mask_storeu_ps(f->c + row * f->ld_c + at, live, v);
}

TARGET_AVX512 INLINE_BODY void tile_avx512(const size_t R, const float *a, const float *b, size_t k,
                                           float *sum, bool first, const struct gemm_finish *f)
{
    __m512 s[14][2];
    UNROLL
    for (size_t r = 0; r < R; r++)
        s[r][0] = s[r][1] = _mm512_setzero_ps();
    for (; k; k--, a += R, b += 32) {
        __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + 16);
        UNROLL
        for (size_t r = 0; r < R; r++) {
            __m512 x = _mm512_set1_ps(a[r]);
            s[r][0] = _mm512_fmadd_ps(x, b0, s[r][0]);
            s[r][1] = _mm512_fmadd_ps(x, b1, s[r][1]);
        }
    }
    UNROLL
    for (size_t r = 0; r < R; r++) {
        if (!first) {
            s[r][0] = _mm512_add_ps(_mm512_load_ps(sum + r * 32), s[r][0]);
            s[r][1] = _mm512_add_ps(_mm512_load_ps(sum + r * 32 + 16), s[r][1]);
        }
    }
    if (!f) {
        UNROLL
        for (size_t r = 0; r < R; r++) {
            _mm512_store_ps(sum + r * 32, s[r][0]);
            _mm512_store_ps(sum + r * 32 + 16, s[r][1]);
        }
        return;
    }
    __mmask16 m0 = (__mmask16)(f->cols < 16 ? (1u << f->cols) - 1 : 0xffff);
    __mmask16 m1 = (__mmask16)(f->cols > 16 ? 0xffffu >> (32 - f->cols) : 0);
    UNROLL
    for (size_t r = 0; r < R; r++) {
        finish_avx512(f, r, 0, m0, s[r][0]);
        finish_avx512(f, r, 16, m1, s[r][1]);
    }
}

TILE(avx512, 1, TARGET_AVX512)
TILE(avx512, 2, TARGET_AVX512)
TILE(avx512, 3, TARGET_AVX512)
TILE(avx512, 4, TARGET_AVX512)
TILE(avx512, 5, TARGET_AVX512)
TILE(avx512, 6, TARGET_AVX512)
TILE(avx512, 7, TARGET_AVX512)
TILE(avx512, 8, TARGET_AVX512)
TILE(avx512, 9, TARGET_AVX512)
TILE(avx512, 10, TARGET_AVX512)
TILE(avx512, 11, TARGET_AVX512)
TILE(avx512, 12, TARGET_AVX512)
TILE(avx512, 13, TARGET_AVX512)
TILE(avx512, 14, TARGET_AVX512)
static gemm_tile_fn *const tiles_avx512[] = { NULL,           tile_avx512_1,  tile_avx512_2,
                                              tile_avx512_3,  tile_avx512_4,  tile_avx512_5,
                                              tile_avx512_6,  tile_avx512_7,  tile_avx512_8,
                                              tile_avx512_9,  tile_avx512_10, tile_avx512_11,
                                              tile_avx512_12, tile_avx512_13, tile_avx512_14 };

/* 16 x 16 in registers: pairs of columns, then fours, then 128-bit lanes. */
TARGET_AVX512 INLINE_BODY void turn16(__m512 v[16])
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

TARGET_AVX512 static void turn_avx512(const float *src, size_t ld_src, size_t rows, size_t n,
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
        turn16(v);
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
        [CPU_PLAIN] = { 4, 8, tiles_plain, turn_plain, CPU_PLAIN },
#if CPU_X86
        [CPU_AVX2] = { 6, 16, tiles_avx2, turn_plain, CPU_AVX2 },
        [CPU_AVX512] = { 14, 32, tiles_avx512, turn_avx512, CPU_AVX512 },
#endif
    };
    return &levels[l];
}
