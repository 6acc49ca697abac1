#include "tensor/coded.h"

#include "base/attr.h"
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#include <math.h>

#define AT_ONCE CODED_TURN_MAX /* columns at a time: whole groups and turns */
#define TILE_ROWS 128
#define TILE_COLS 4
#define TILE_QUARTER 32

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t coded_unit(const struct coded *c)
{
    return larger(larger(c->group, c->turn), dtype_desc(c->type)->elems);
}

static uint64_t blocks_in_row(const struct coded *c)
{
    uint64_t n = c->group ? (c->cols + c->group - 1) / c->group : 0;
    return c->swizzled ? (n + TILE_COLS - 1) / TILE_COLS * TILE_COLS : n;
}

uint64_t coded_blocks_stored(const struct coded *c, uint64_t rows)
{
    if (c->swizzled)
        rows = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    return rows * blocks_in_row(c);
}

size_t coded_block_at(const struct coded *c, uint64_t row, uint64_t block)
{
    uint64_t in_row = blocks_in_row(c);
    if (!c->swizzled)
        return (size_t)(row * in_row + block);
    uint64_t tile = row / TILE_ROWS * (in_row / TILE_COLS) + block / TILE_COLS;
    uint64_t r = row % TILE_ROWS;
    return (size_t)(tile * TILE_ROWS * TILE_COLS + r % TILE_QUARTER * (TILE_ROWS / 8) +
                    r / TILE_QUARTER * TILE_COLS + block % TILE_COLS);
}

static float block_scale(const struct coded *c, uint64_t row, uint64_t block)
{
    size_t at = coded_block_at(c, row, block);
    const uint8_t *b = c->blocks;
    if (c->block_type == DT_F32)
        return ld_f32(b, at);
    if (c->block_type == DT_F8_E4M3)
        return f32_from_bits(e4m3_widen_bits(b[at]));
    return b[at] ? f32_from_bits(e8m0_widen_bits(b[at])) : 0; /* 2^-127 by its type */
}

float coded_row_scale(const struct coded *c, uint64_t row)
{
    return c->rows ? ld_f32(c->rows, (size_t)row) * c->scale : c->scale;
}

/* ---- the Hadamard matrix ---- */

/* A stage: of every four numbers `step` apart half their sum, less the one opposite. */
INLINE_BODY void turn_stage(float *x, size_t n, size_t step)
{
    for (size_t i = 0; i < n; i += 4 * step)
        for (size_t k = i; k < i + step; k++) {
            float a = x[k], b = x[k + step], c = x[k + 2 * step], d = x[k + 3 * step];
            float half = ((a + b) + (c + d)) * 0.5F;
            x[k] = half - d;
            x[k + step] = half - c;
            x[k + 2 * step] = half - b;
            x[k + 3 * step] = half - a;
        }
}

void coded_turn(float *x, size_t n, uint32_t turn)
{
    for (size_t step = 1; step < turn; step *= 4)
        turn_stage(x, n, step);
}

/* ---- values ---- */

/* Codes as numbers. pre: at and n are whole bytes of the type. */
static void codes_of(const struct coded *c, uint64_t row, uint64_t at, size_t n, float *dst)
{
    const struct dtype_desc *t = dtype_desc(c->type);
    const uint8_t *src = c->codes;
    t->to_f32(src + (row * c->cols + at) / t->elems * t->bytes, dst, n);
    if (c->type != DT_U4)
        return;
    for (size_t i = 0; i < n; i++)
        dst[i] = c->booked ? c->book[(size_t)dst[i]] : dst[i] - CODED_BOOK / 2;
}

static void times(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

static float whole(float v)
{
    v = rintf(v);
    return v > 127 ? 127 : v < -127 ? -127 : v;
}

/* pre: whole units */
static void expand_units(const struct coded *c, uint64_t row, uint64_t at, size_t n, float *dst)
{
    float scale = coded_row_scale(c, row);
    codes_of(c, row, at, n, dst);
    for (size_t i = 0; c->how != BLOCKS_NONE && i < n; i += c->group) {
        float s = block_scale(c, row, (at + i) / c->group);
        if (c->how == BLOCKS_TIMES)
            times(dst + i, c->group, s * scale);
        else
            for (size_t k = i; k < i + c->group; k++)
                dst[k] = whole(dst[k] * s);
    }
    if (c->how != BLOCKS_TIMES && scale != 1)
        times(dst, n, scale);
    if (c->turn)
        coded_turn(dst, n, c->turn);
}

void coded_expand(const struct coded *c, uint64_t row, uint64_t at, size_t n, float *dst)
{
    const uint64_t unit = coded_unit(c);
    while (n) {
        uint64_t begin = at / unit * unit, skip = at - begin;
        size_t now = AT_ONCE - (size_t)skip < n ? AT_ONCE - (size_t)skip : n;
        float own[AT_ONCE];
        uint64_t whole_units = (skip + now + unit - 1) / unit * unit;
        if (skip == 0 && whole_units == now) {
            expand_units(c, row, at, now, dst);
        } else {
            expand_units(c, row, begin, (size_t)whole_units, own);
            memcpy(dst, own + skip, now * sizeof *dst);
        }
        at += now;
        dst += now;
        n -= now;
    }
}

/* ---- whole numbers ---- */

bool coded_is_int(const struct coded *c)
{
    return c->type == DT_I8 || c->type == DT_I4 || (c->type == DT_U4 && c->how == BLOCKS_STEPS);
}

void coded_ints(const struct coded *c, uint64_t row, uint64_t at, size_t n, int8_t *dst)
{
    struct coded plain = *c;
    float some[AT_ONCE];
    if (c->type == DT_I8) {
        memcpy(dst, (const int8_t *)c->codes + row * c->cols + at, n);
        return;
    }
    plain.rows = NULL;
    plain.scale = 1;
    plain.turn = 0;
    for (size_t now; n; at += now, dst += now, n -= now) {
        now = n < AT_ONCE ? n : AT_ONCE;
        coded_expand(&plain, row, at, now, some);
        for (size_t i = 0; i < now; i++)
            dst[i] = some[i] == some[i] ? (int8_t)some[i] : 0; /* a NaN has no whole number */
    }
}
