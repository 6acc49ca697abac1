/* form.c: plain numbers, and fp8. */
#include "merge/form.h"

#include "base/err.h"
#include "op/op.h"
#include "tensor/convert.h"

#include <float.h>
#include <math.h>

#define QUANT_MAX 256 /* elements of the largest block of a quant */
#define STEP 1024     /* numbers converted at a time */

bool merge_by_chance(enum dtype t)
{
    return t == DT_F8_E4M3 || t == DT_F8_E5M2;
}

float merge_fp8_most(enum dtype t)
{
    return t == DT_F8_E5M2 ? 57344 : 448;
}

bool merge_stores(enum dtype t)
{
    return t == DT_F64 || t == DT_F32 || t == DT_F16 || t == DT_BF16 || merge_by_chance(t);
}

const struct merge_form *merge_form_of(enum dtype t)
{
    return merge_by_chance(t) ? &merge_fp8 : &merge_plain;
}

/* ---- to float32 ---- */

/* Of a base that its file has in another type. */
static void widen_converted(const struct merge_plain *p, uint64_t at, float *dst, size_t n)
{
    uint16_t code[STEP]; /* fp8 or 16 bits each */
    size_t each = dtype_desc(p->stored)->bytes;
    const uint8_t *src = (const uint8_t *)p->data + at * each;
    berth_err none;
    for (size_t now; n; src += now * each, dst += now, n -= now) {
        now = n < STEP ? n : STEP;
        if (convert(p->stored, src, p->type, code, now, &none))
            BUG("%s", none.msg);
        dtype_desc(p->type)->to_f32(code, dst, now);
    }
}

/* A quant may begin and end inside its blocks. */
static void widen_stored(const struct merge_plain *p, uint64_t at, float *dst, size_t n)
{
    const struct dtype_desc *d = dtype_desc(p->type);
    const uint8_t *src = p->data;
    size_t skip = (size_t)(at % d->elems);
    src += at / d->elems * d->bytes;
    if (!skip && n % d->elems == 0) {
        d->to_f32(src, dst, n);
        return;
    }
    float block[QUANT_MAX];
    for (; n; src += d->bytes, skip = 0) {
        size_t now = d->elems - skip < n ? d->elems - skip : n;
        d->to_f32(src, block, d->elems);
        memcpy(dst, block + skip, now * sizeof *dst);
        dst += now;
        n -= now;
    }
}

static void widen(const void *of, uint64_t at, float *dst, size_t n)
{
    const struct merge_plain *p = of;
    if (p->stored != p->type)
        widen_converted(p, at, dst, n);
    else
        widen_stored(p, at, dst, n);
    for (size_t i = 0; p->scale != 1 && i < n; i++)
        dst[i] *= p->scale;
}

/* ---- and back ---- */

static void unscale(const struct merge_plain *p, float *x, size_t n)
{
    const float by = 1 / p->scale;
    for (size_t i = 0; p->scale != 1 && i < n; i++)
        x[i] *= by;
}

static void store(const void *of, uint64_t at, float *x, size_t n, const uint32_t *chance)
{
    (void)chance;
    const struct merge_plain *p = of;
    const struct dtype_desc *d = dtype_desc(p->type);
    unscale(p, x, n);
    d->from_f32(x, (uint8_t *)p->data + at * d->bytes, n);
}

static void store_fp8(const void *of, uint64_t at, float *x, size_t n, const uint32_t *chance)
{
    const struct merge_plain *p = of;
    unscale(p, x, n);
    op_fp8_round(p->type, x, chance, (uint8_t *)p->data + at, n);
}

static float through(enum dtype t, float x)
{
    uint8_t raw[8];
    dtype_desc(t)->from_f32(&x, raw, 1);
    dtype_desc(t)->to_f32(raw, &x, 1);
    return x;
}

/* As the scale's type has it: codes chosen for any other number would all be off by its rounding.
 * Never 0 and never infinite, nor is what codes are chosen by. */
static void choose_scale(void *of, float amax)
{
    struct merge_plain *p = of;
    float scale = (amax < FLT_MAX ? amax : FLT_MAX) / merge_fp8_most(p->type);
    if (!(amax > 0))
        scale = 1;
    while (!isfinite(through(p->scale_type, scale)))
        scale /= 2;
    while (!isfinite(1 / through(p->scale_type, scale)))
        scale = scale > 0 ? scale * 2 : FLT_MIN;
    p->scale = through(p->scale_type, scale);
}

/* By rows, of which the first and the last may be a part. */
static void widen_coded(const void *of, uint64_t at, float *dst, size_t n)
{
    const struct coded *c = of;
    for (size_t now; n; at += now, dst += now, n -= now) {
        const uint64_t col = at % c->cols;
        now = c->cols - col < n ? (size_t)(c->cols - col) : n;
        coded_expand(c, at / c->cols, col, now, dst);
    }
}

const struct merge_form merge_coded = { .name = "codes", .widen = widen_coded };
const struct merge_form merge_plain = { .name = "numbers", .widen = widen, .store = store };
const struct merge_form merge_fp8 = {
    .name = "fp8", .widen = widen, .store = store_fp8, .chance = true
};
const struct merge_form merge_fp8_scaled = {
    .name = "scaled fp8", .widen = widen, .look = choose_scale, .store = store_fp8, .chance = true
};
