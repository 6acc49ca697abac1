/* lowrank: w += scale * up . down.
 *
 * The fast path walks panels of columns. Of a panel, `down` is copied to where its rows lie
 * behind one another (rows of a wide matrix are often a multiple of 4 KiB apart and would push each
 * other out of the cache), padded with zeros at the right edge. Then blocks of R rows keep their
 * sums in registers while k runs over the rank: each sum is built in the same order and
 * with the same roundings as in the reference, so the bits are the same. */
#include "op/op.h"

#define PANEL_MAX 32  /* columns */
#define PACK_RANK 128 /* ranks that are packed: 16 KiB of stack */
#define ROWS_MAX 8

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec8 __attribute__((vector_size(32)));
typedef float vec16 __attribute__((vector_size(64)));

/* R rows of w, one panel of two vectors wide. R is a constant wherever this is inlined: the loops
 * over it unroll and the sums become registers. A macro, because C has no other word for "the same
 * with another vector". */
#define BLOCK_OF(vec)                                                                              \
    INLINE_BODY void block_##vec(const size_t R, const struct op_lowrank *a)                       \
    {                                                                                              \
        const size_t lanes = sizeof(vec) / sizeof(float);                                          \
        vec sum[ROWS_MAX][2];                                                                      \
        for (size_t r = 0; r < R; r++)                                                             \
            sum[r][0] = sum[r][1] = (vec) { 0 };                                                   \
        for (size_t k = 0; k < a->rank; k++) {                                                     \
            vec d0, d1;                                                                            \
            memcpy(&d0, a->down + k * a->ld_down, sizeof d0);                                      \
            memcpy(&d1, a->down + k * a->ld_down + lanes, sizeof d1);                              \
            for (size_t r = 0; r < R; r++) {                                                       \
                sum[r][0] += a->up[r * a->ld_up + k] * d0;                                         \
                sum[r][1] += a->up[r * a->ld_up + k] * d1;                                         \
            }                                                                                      \
        }                                                                                          \
        for (size_t r = 0; r < R; r++) {                                                           \
            float *w = a->w + r * a->ld_w;                                                         \
            vec w0, w1;                                                                            \
            memcpy(&w0, w, sizeof w0);                                                             \
            memcpy(&w1, w + lanes, sizeof w1);                                                     \
            w0 += a->scale * sum[r][0];                                                            \
            w1 += a->scale * sum[r][1];                                                            \
            memcpy(w, &w0, sizeof w0);                                                             \
            memcpy(w + lanes, &w1, sizeof w1);                                                     \
        }                                                                                          \
    }
BLOCK_OF(vec4)
BLOCK_OF(vec8)
BLOCK_OF(vec16)

/* P, the panel's columns, is a constant too. */
INLINE_BODY void block(const size_t R, const size_t P, const struct op_lowrank *a)
{
    if (P == 32)
        block_vec16(R, a);
    else if (P == 16)
        block_vec8(R, a);
    else
        block_vec4(R, a);
}

/* All rows of one panel that begins at column `at`. */
INLINE_BODY void panel(const size_t R, const size_t P, const struct op_lowrank *t, size_t at,
                       const float *down, size_t ld_down)
{
    struct op_lowrank a = *t;
    a.w += at;
    a.down = down;
    a.ld_down = ld_down;
    size_t i = 0;
    for (; i + R <= t->rows; i += R, a.w += R * a.ld_w, a.up += R * a.ld_up)
        block(R, P, &a);
    for (; i < t->rows; i++, a.w += a.ld_w, a.up += a.ld_up)
        block(1, P, &a);
}

/* The right edge: `cols` columns, fewer than a panel, row by row through a panel of their own. */
INLINE_BODY void edge(const size_t P, const struct op_lowrank *t, size_t at, size_t cols,
                      const float *down)
{
    float w[PANEL_MAX] = { 0 };
    struct op_lowrank a = *t;
    a.w = w;
    a.down = down;
    a.ld_down = P;
    for (size_t i = 0; i < t->rows; i++, a.up += a.ld_up) {
        float *row = t->w + i * t->ld_w + at;
        memcpy(w, row, cols * sizeof *w);
        block(1, P, &a);
        memcpy(row, w, cols * sizeof *w);
    }
}

INLINE_BODY void pack(const size_t P, const struct op_lowrank *t, size_t at, size_t cols,
                      float *packed)
{
    for (size_t k = 0; k < t->rank; k++) {
        memcpy(packed + k * P, t->down + k * t->ld_down + at, cols * sizeof *packed);
        for (size_t j = cols; j < P; j++)
            packed[k * P + j] = 0;
    }
}

/* Columns that are left when nothing is packed: the reference's loops. */
INLINE_BODY void plain_columns(const struct op_lowrank *t, size_t at)
{
    for (size_t i = 0; i < t->rows; i++)
        for (size_t j = at; j < t->cols; j++) {
            float sum = 0;
            for (size_t k = 0; k < t->rank; k++)
                sum += t->up[i * t->ld_up + k] * t->down[k * t->ld_down + j];
            t->w[i * t->ld_w + j] += t->scale * sum;
        }
}

INLINE_BODY void tile(const size_t R, const size_t P, const struct op_lowrank *t)
{
    _Alignas(64) float packed[PACK_RANK * PANEL_MAX];
    size_t at = 0;
    if (t->rank > PACK_RANK) { /* rows of `down` are read where they are */
        for (; at + P <= t->cols; at += P)
            panel(R, P, t, at, t->down + at, t->ld_down);
        plain_columns(t, at);
        return;
    }
    for (; at + P <= t->cols; at += P) {
        pack(P, t, at, P, packed);
        panel(R, P, t, at, packed, P);
    }
    if (at < t->cols) {
        pack(P, t, at, t->cols - at, packed);
        edge(P, t, at, t->cols - at, packed);
    }
}

/* By the number and width of the vector registers: 16 of 16 bytes, 16 of 32, 32 of 64. */
static void tile_plain(const struct op_lowrank *t)
{
    tile(4, 8, t);
}

#if CPU_X86
TARGET_AVX2 static void tile_avx2(const struct op_lowrank *t)
{
    tile(4, 16, t);
}

TARGET_AVX512 static void tile_avx512(const struct op_lowrank *t)
{
    tile(8, 32, t);
}
#endif

op_lowrank_fn *const op_lowrank_levels[CPU_LEVELS] = LEVELS_OF(tile);

void op_lowrank_tile(const struct op_lowrank *t)
{
    op_lowrank_levels[cpu_level()](t);
}
