/* int_linear: products of 8-bit numbers. Rows of x are rounded first, all of them, then each worker
 * takes panels of the weight's rows, unpacks them once, and goes through all rows of x.
 *
 * Sums are whole numbers, so every level gives the same bits. The processor's own dot product
 * (VNNI) wants one side without sign: x is stored 128 higher, and 128 times the sum of the
 * weight's row comes off again. */
#include "op/cpu/cpu_impl.h"

#if CPU_X86
#include <immintrin.h>
#endif

enum { PANEL = 16, STEP = 64 /* columns that are padded to */, LIFT = 128, TILE = 4 };

/* Dot products of `rows` rows of x, lifted, with PANEL rows of the panel; k: whole steps. */
typedef void dots_fn(const uint8_t *x, size_t rows, const int8_t *w, size_t k,
                     int32_t sum[][PANEL]);

INLINE_BODY void dots_body(const uint8_t *x, size_t rows, const int8_t *w, size_t k,
                           int32_t sum[][PANEL])
{
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < PANEL; j++) {
            int32_t s = 0;
            for (size_t i = 0; i < k; i++)
                s += (int16_t)x[r * k + i] * (int16_t)w[j * k + i];
            sum[r][j] = s;
        }
}

static void dots_plain(const uint8_t *x, size_t rows, const int8_t *w, size_t k,
                       int32_t sum[][PANEL])
{
    dots_body(x, rows, w, k, sum);
}

#if CPU_X86
TARGET_AVX2 static inline int32_t sum_of(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

TARGET_AVX2 static void dots_avx2(const uint8_t *x, size_t rows, const int8_t *w, size_t k,
                                  int32_t sum[][PANEL])
{
    enum { COLS = 2, WIDE = 16 };
    for (size_t r = 0; r < rows; r += TILE)
        for (size_t j = 0; j < PANEL; j += COLS) {
            size_t now = rows - r < TILE ? rows - r : TILE;
            __m256i s[TILE][COLS];
            memset(s, 0, sizeof s);
            for (size_t i = 0; i < k; i += WIDE)
                for (size_t c = 0; c < COLS; c++) {
                    __m256i b = _mm256_cvtepi8_epi16(
                        _mm_loadu_si128((const __m128i *)(const void *)(w + (j + c) * k + i)));
                    for (size_t t = 0; t < now; t++) {
                        __m256i a = _mm256_cvtepu8_epi16(
                            _mm_loadu_si128((const __m128i *)(const void *)(x + (r + t) * k + i)));
                        s[t][c] = _mm256_add_epi32(s[t][c], _mm256_madd_epi16(a, b));
                    }
                }
            for (size_t t = 0; t < now; t++)
                for (size_t c = 0; c < COLS; c++)
                    sum[r + t][j + c] = sum_of(s[t][c]);
        }
}

#define TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

/* ROWS rows of x against four of the panel. */
#define VNNI_TILE(ROWS)                                                                            \
    TARGET_VNNI static void tile_##ROWS(const uint8_t *x, const int8_t *w, size_t k,               \
                                        int32_t sum[][PANEL], size_t j)                            \
    {                                                                                              \
        __m512i s[ROWS][TILE];                                                                     \
        for (int r = 0; r < ROWS; r++)                                                             \
            for (int c = 0; c < TILE; c++)                                                         \
                s[r][c] = _mm512_setzero_si512();                                                  \
        for (size_t i = 0; i < k; i += STEP) {                                                     \
            __m512i b[TILE];                                                                       \
            _Pragma("GCC unroll 4") for (int c = 0; c < TILE; c++) b[c] =                          \
                _mm512_loadu_si512(w + (size_t)c * k + i);                                         \
            _Pragma("GCC unroll 4") for (int r = 0; r < ROWS; r++)                                 \
            {                                                                                      \
                __m512i a = _mm512_loadu_si512(x + (size_t)r * k + i);                             \
                _Pragma("GCC unroll 4") for (int c = 0; c < TILE; c++) s[r][c] =                   \
                    _mm512_dpbusd_epi32(s[r][c], a, b[c]);                                         \
            }                                                                                      \
        }                                                                                          \
        for (int r = 0; r < ROWS; r++)                                                             \
            for (int c = 0; c < TILE; c++)                                                         \
                sum[r][j + (size_t)c] = _mm512_reduce_add_epi32(s[r][c]);                          \
    }
VNNI_TILE(1)
VNNI_TILE(2)
VNNI_TILE(3)
VNNI_TILE(4)

static void dots_vnni(const uint8_t *x, size_t rows, const int8_t *w, size_t k,
                      int32_t sum[][PANEL])
{
    static void (*const tile[])(const uint8_t *x, const int8_t *w, size_t k, int32_t sum[][PANEL],
                                size_t j) = { tile_1, tile_2, tile_3, tile_4 };
    for (size_t r = 0; r < rows; r += TILE) {
        size_t now = rows - r < TILE ? rows - r : TILE;
        for (size_t j = 0; j < PANEL; j += TILE)
            tile[now - 1](x + r * k, w + j * k, k, sum + r, j);
    }
}
#endif

static dots_fn *dots_at(enum cpu_level level)
{
#if CPU_X86
    if (level == CPU_AVX512 && __builtin_cpu_supports("avx512vnni"))
        return dots_vnni;
    if (level >= CPU_AVX2)
        return dots_avx2;
#endif
    (void)level;
    return dots_plain;
}

enum { ROWS_AT_ONCE = 32 /* of x: their sums are on the stack */ };

struct job {
    const struct op_env *env;
    const struct op_int_linear *a;
    struct coded how;
    size_t m, n, k, wide; /* wide: k padded to steps */
    size_t of_x, of_y, of_add;
    dots_fn *dots;
    void (*gelu)(const float *x, float *y, size_t n);
    /* in scratch */
    float *scale; /* [m] */
    uint8_t *x;   /* [m, wide], lifted */
    char *own;    /* of worker 0: a panel, or a row in F32 and its codes */
    size_t own_bytes;
};

static struct job job_of(const struct op_env *env, const struct op_int_linear *a)
{
    struct job j = { .env = env, .a = a, .how = int_coded_of(a), .k = op_row(&a->x) };
    size_t unused;
    j.n = op_row(&a->y);
    op_rows(&a->x, &j.m, &j.of_x);
    op_rows(&a->y, &j.m, &j.of_y);
    op_rows(&a->add, &unused, &j.of_add);
    j.wide = cpu_over(j.k, STEP) * STEP;
    j.own_bytes = (PANEL * sizeof(int8_t) + sizeof(float)) * j.wide;
    return j;
}

size_t cpu_int_linear_scratch(const struct op_env *env, const struct op_int_linear *a)
{
    const struct job j = job_of(env, a);
    size_t scales = op_mul(cpu_whole(j.m), sizeof(float));
    return cpu_add(cpu_add(scales, op_mul(j.m, j.wide)), op_mul(cpu_workers(env), j.own_bytes));
}

static void round_row(void *user, size_t i, size_t worker)
{
    const struct job *j = user;
    float *row = (float *)(void *)(j->own + worker * j->own_bytes);
    int8_t *q = (int8_t *)(row + j->wide);
    uint8_t *x = j->x + i * j->wide;
    memcpy(row, op_bytes_on(&j->a->x, i * j->of_x), j->k * sizeof *row);
    j->scale[i] = ref_int_row(row, j->k, j->how.turn, q);
    for (size_t k = 0; k < j->k; k++)
        x[k] = (uint8_t)(q[k] + LIFT);
    memset(x + j->k, LIFT, j->wide - j->k);
}

/* A row's results from its sums. */
static void finish(const struct job *j, size_t m, size_t at, size_t cols, const int32_t *sum,
                   const float *scale, const int32_t *lifted)
{
    const struct op_int_linear *a = j->a;
    const float *bias = a->bias.data ? op_f32(&a->bias) + at : NULL;
    const float *add = a->add.data ? op_bytes_on(&a->add, m * j->of_add) + at : NULL;
    float *y = op_bytes_on(&a->y, m * j->of_y) + at;
    for (size_t c = 0; c < cols; c++) {
        float v = (float)(sum[c] - lifted[c]) * (j->scale[m] * scale[c]);
        v += bias ? bias[c] : 0;
        y[c] = v + (add ? add[c] : 0);
    }
    if (j->gelu)
        j->gelu(y, y, cols);
}

static void panel(void *user, size_t i, size_t worker)
{
    const struct job *j = user;
    int8_t *w = (int8_t *)(j->own + worker * j->own_bytes);
    const size_t at = i * PANEL, cols = cpu_least(PANEL, j->n - at);
    float scale[PANEL] = { 0 };
    int32_t lifted[PANEL] = { 0 };
    if (op_cancelled(j->env))
        return;
    memset(w, 0, PANEL * j->wide);
    for (size_t c = 0; c < cols; c++) {
        int8_t *row = w + c * j->wide;
        int32_t s = 0;
        coded_ints(&j->how, j->a->row + at + c, 0, j->k, row);
        for (size_t k = 0; k < j->k; k++)
            s += row[k];
        lifted[c] = LIFT * s;
        scale[c] = coded_row_scale(&j->how, j->a->row + at + c);
    }
    for (size_t m = 0; m < j->m; m += ROWS_AT_ONCE) {
        int32_t sum[ROWS_AT_ONCE][PANEL];
        size_t rows = cpu_least(ROWS_AT_ONCE, j->m - m);
        j->dots(j->x + m * j->wide, rows, w, j->wide, sum);
        for (size_t r = 0; r < rows; r++)
            finish(j, m + r, at, cols, sum[r], scale, lifted);
    }
}

berth_status cpu_int_linear(const struct op_env *env, const struct op_int_linear *a, berth_err *err)
{
    struct job j = job_of(env, a);
    j.dots = dots_at(cpu_kernels(env));
    if (a->after == OP_AFTER_GELU_TANH)
        j.gelu = cpu_gelu_tanh(cpu_kernels(env));
    j.scale = env->scratch;
    j.x = (uint8_t *)(j.scale + cpu_whole(j.m));
    j.own = (char *)j.x + j.m * j.wide;
    cpu_for(env, j.m, round_row, &j);
    cpu_for(env, cpu_over(j.n, PANEL), panel, &j);
    return op_cancelled(env)
               ? err_set(err, BERTH_ECANCELED, "product of %zu x %zu x %zu", j.m, j.n, j.k)
               : BERTH_OK;
}
