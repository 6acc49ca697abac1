/* coded_store: rows of values as codes. */
#include "tensor/coded.h"

#include "base/attr.h"
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#include <math.h>

#define E4M3_MOST 448
#define E2M1_MOST 6
#define I8_MOST 127
#define I4_MOST 7
#define REFINE 2 /* times that levels and scale of a group are fitted to each other */

const float coded_usual_book[CODED_BOOK] = {
    -0.980602F, -0.794529F, -0.638165F, -0.500986F, -0.377321F, -0.263187F, -0.155210F, -0.050720F,
    0.052541F,  0.156985F,  0.265284F,  0.379533F,  0.502636F,  0.638953F,  0.794876F,  0.980671F,
};

static float most_of(const float *x, size_t n)
{
    float m = 0;
    for (size_t i = 0; i < n; i++)
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    return m;
}

static float at_least(float x, float least)
{
    return x > least ? x : least;
}

static float clamp(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

float coded_most(const struct coded *c)
{
    switch (c->type) {
    case DT_F8_E5M2:
        return 57344;
    case DT_F8_E4M3:
        return E4M3_MOST;
    case DT_F4_E2M1:
        return E4M3_MOST * E2M1_MOST;
    case DT_I4:
        return I4_MOST;
    default:
        return I8_MOST;
    }
}

/* ---- one scale for a row, or for all ---- */

static void put_ints(const float *x, size_t n, float scale, float lo, float hi, int8_t *q)
{
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)clamp(rintf(x[i] / scale), lo, hi);
}

static void encode_i8(const struct coded *c, bool own, const float *x, struct coded_row *out)
{
    out->scale = own ? at_least(most_of(x, (size_t)c->cols) / I8_MOST, 1e-30F) : c->scale;
    put_ints(x, (size_t)c->cols, out->scale, -I8_MOST - 1, I8_MOST, out->codes);
}

static void encode_i4(const struct coded *c, const float *x, struct coded_row *out)
{
    uint8_t *b = out->codes;
    out->scale = at_least(most_of(x, (size_t)c->cols), 1e-10F) / I4_MOST;
    for (size_t i = 0; i < c->cols; i += 2) {
        int8_t q[2];
        put_ints(x + i, 2, out->scale, -I4_MOST, I4_MOST, q);
        b[i / 2] = (uint8_t)((q[0] & 15) | (q[1] & 15) << 4);
    }
}

static void encode_f8(const struct coded *c, bool own, float *x, struct coded_row *out)
{
    float most = coded_most(c), amax = most_of(x, (size_t)c->cols);
    out->scale = !own ? c->scale : amax > 0 ? amax / most : 1;
    for (size_t i = 0; i < c->cols; i++)
        x[i] = clamp(x[i] / out->scale, -most, most);
    dtype_desc(c->type)->from_f32(x, out->codes, (size_t)c->cols);
}

/* ---- a scale for each block ---- */

/* 2^(e - 127) is the least power of two that brings amax to 448 or below. */
static uint8_t power_for(float amax)
{
    int e;
    if (!(amax > 0))
        return 0;
    float m = frexpf(at_least(amax / E4M3_MOST, 0x1p-127F), &e); /* m in [0.5, 1) */
    e += 127 - (m == 0.5F);
    return (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
}

static void encode_powers(const struct coded *c, float *x, struct coded_row *out)
{
    uint8_t *scale = out->blocks;
    for (size_t i = 0; i < c->cols; i += c->group) {
        uint8_t e = power_for(most_of(x + i, c->group));
        for (size_t k = i; k < i + c->group; k++)
            x[k] = e ? clamp(ldexpf(x[k], 127 - e), -E4M3_MOST, E4M3_MOST) : 0;
        scale[i / c->group] = e;
    }
    out->scale = 1;
    dtype_desc(c->type)->from_f32(x, out->codes, (size_t)c->cols);
}

/* The nearest of 0 0.5 1 1.5 2 3 4 6, ties to the even code. */
static uint8_t e2m1_of(float v)
{
    float a = fabsf(v);
    uint8_t code = a <= 0.25F   ? 0
                   : a < 0.75F  ? 1
                   : a <= 1.25F ? 2
                   : a < 1.75F  ? 3
                   : a <= 2.5F  ? 4
                   : a < 3.5F   ? 5
                   : a <= 5     ? 6
                                : 7;
    return (uint8_t)(code | (signbit(v) ? 8 : 0));
}

static void encode_f4(const struct coded *c, const float *x, struct coded_row *out)
{
    uint8_t *b = out->codes, *scale = out->blocks;
    float most = c->scale;
    out->scale = most;
    for (size_t i = 0; i < c->cols; i += c->group) {
        float s = most > 0 ? most_of(x + i, c->group) / E2M1_MOST / most : 0;
        uint8_t code = e4m3_narrow(s < E4M3_MOST ? s : E4M3_MOST);
        float by = most * f32_from_bits(e4m3_widen_bits(code));
        scale[i / c->group] = code;
        for (size_t k = i; k < i + c->group; k += 2) {
            uint8_t hi = by > 0 ? e2m1_of(x[k] / by) : 0, lo = by > 0 ? e2m1_of(x[k + 1] / by) : 0;
            b[k / 2] = (uint8_t)(hi << 4 | lo);
        }
    }
}

/* ---- levels of a book ---- */

static size_t nearest(const float *level, float v)
{
    size_t at = 0;
    for (size_t i = 1; i < CODED_BOOK; i++)
        if (fabsf(v - level[i]) < fabsf(v - level[at]))
            at = i;
    return at;
}

/* The scale that brings a group nearest to its levels; *reach: the largest value that gives. */
static float fit_group(const float *level, const float *x, size_t n, float *reach)
{
    float s = at_least(most_of(x, n), 1e-8F);
    for (int pass = 0; pass < REFINE; pass++) {
        float wl = 0, ll = 0;
        for (size_t i = 0; i < n; i++) {
            float l = level[nearest(level, x[i] / s)];
            wl += x[i] * l;
            ll += l * l;
        }
        s = at_least(wl / at_least(ll, 1e-8F), 1e-8F);
    }
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(level[nearest(level, x[i] / s)] * s);
        *reach = v > *reach ? v : *reach;
    }
    return s;
}

static void encode_steps(const struct coded *c, float *x, struct coded_row *out)
{
    uint8_t *b = out->codes, *scale = out->blocks;
    float level[CODED_BOOK], reach = 0;
    for (int i = 0; i < CODED_BOOK; i++)
        level[i] = c->book[i];
    for (size_t i = 0; i < c->cols; i += c->group)
        (void)fit_group(level, x + i, c->group, &reach);
    out->scale = at_least(reach / I8_MOST, 1e-8F);
    memset(b, 0, (size_t)c->cols / 2);
    for (size_t i = 0; i < c->cols; i += c->group) {
        float ignored = 0, step[CODED_BOOK];
        uint8_t code = e4m3_narrow(fit_group(level, x + i, c->group, &ignored) / out->scale);
        scale[i / c->group] = code;
        for (int k = 0; k < CODED_BOOK; k++)
            step[k] =
                clamp(rintf(level[k] * f32_from_bits(e4m3_widen_bits(code))), -I8_MOST, I8_MOST);
        for (size_t k = i; k < i + c->group; k++)
            b[k / 2] |= (uint8_t)(nearest(step, x[k] / out->scale) << (k % 2 * 4));
    }
}

void coded_encode(const struct coded *c, bool rows_scaled, float *x, struct coded_row *out)
{
    if (c->turn)
        coded_turn(x, (size_t)c->cols, c->turn);
    if (c->type == DT_I8)
        encode_i8(c, rows_scaled, x, out);
    else if (c->type == DT_I4)
        encode_i4(c, x, out);
    else if (c->type == DT_U4)
        encode_steps(c, x, out);
    else if (c->type == DT_F4_E2M1)
        encode_f4(c, x, out);
    else if (c->how == BLOCKS_TIMES)
        encode_powers(c, x, out);
    else
        encode_f8(c, rows_scaled, x, out);
}
