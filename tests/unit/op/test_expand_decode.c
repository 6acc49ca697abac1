/* Kernels that decode stored types, compiled for this processor and held against tensor/: the same
 * bits. */
#include "op/cuda/expand_decode.h"

#include "support/rng.h"
#include "support/seed.h"
#include "support/test.h"
#include "tensor/convert.h"

#include <math.h>

enum { BLOCKS = 2000 };

static void same_bits(const char *type, size_t i, float want, float got)
{
    uint32_t w = dec_bits(want), g = dec_bits(got);
    if (w != g && !(isnan(want) && isnan(got)))
        fail_msg("%s: element %zu is %a (%08x), not %a (%08x)", type, i, (double)got, g,
                 (double)want, w);
}

/* ---- blocks ---- */

typedef void decode_fn(const uint8_t *b, unsigned c, float y[8]);

static const struct quant {
    const char *name;
    unsigned elems, bytes;
    decode_fn *decode;
} quants[] = {
#define QUANT(id, e, b) { #id, e, b, dec_##id },
    DEC_QUANTS(QUANT)
#undef QUANT
};

static void blocks(void **state)
{
    (void)state;
    struct rng rng = { running = rng_seed() };
    size_t types = 0;
    for (size_t t = 0; t < ARRAY_LEN(quants); t++) {
        const struct quant *q = &quants[t];
        enum dtype type = dtype_by_name(q->name, strlen(q->name));
        assert_true(type < DT_COUNT);
        const struct dtype_desc *d = dtype_desc(type);
        assert_int_equal(q->elems, d->elems);
        assert_int_equal(q->bytes, d->bytes);
        for (int k = 0; k < BLOCKS; k++) {
            _Alignas(16) uint8_t b[256];
            float want[256], got[8];
            for (unsigned i = 0; i < d->bytes; i++)
                b[i] = (uint8_t)rng_u64(&rng);
            d->to_f32(b, want, d->elems);
            for (unsigned c = 0; c < d->elems / 8u; c++) {
                q->decode(b, c, got);
                for (unsigned i = 0; i < 8; i++)
                    same_bits(d->name, 8 * c + i, want[8 * c + i], got[i]);
            }
        }
    }
    for (int t = 0; t < DT_COUNT; t++)
        types += dtype_desc((enum dtype)t)->elems > 2; /* pairs are codes: op/decode.c */
    assert_int_equal(ARRAY_LEN(quants), types);        /* a new quant needs a decoder */
    running = 0;
}

/* ---- small floats: every code ---- */

static void small_floats(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 0x10000; u++) {
        const uint16_t h = (uint16_t)u;
        const uint8_t b = (uint8_t)u;
        float want;
        dtype_desc(DT_F16)->to_f32(&h, &want, 1);
        assert_int_equal(dec_bits(want), dec_bits(dec_one_f16(u))); /* NaN too */
        dtype_desc(DT_BF16)->to_f32(&h, &want, 1);
        assert_int_equal(dec_bits(want), dec_bits(dec_one_bf16(u)));
        if (u > 0xff)
            continue;
        dtype_desc(DT_F8_E4M3)->to_f32(&b, &want, 1);
        assert_int_equal(dec_bits(want), dec_bits(dec_one_f8_e4m3(u)));
        dtype_desc(DT_F8_E5M2)->to_f32(&b, &want, 1);
        assert_int_equal(dec_bits(want), dec_bits(dec_one_f8_e5m2(u)));
        dtype_desc(DT_F8_E8M0)->to_f32(&b, &want, 1);
        assert_int_equal(dec_bits(want), dec_bits(dec_one_f8_e8m0(u)));
    }
}

/* ---- wide numbers: what becomes of them on the way to 16 bits ---- */

static void narrowed(enum dtype from, const void *src, float odd)
{
    static const enum dtype to[] = { DT_F16, DT_BF16 };
    for (size_t i = 0; i < ARRAY_LEN(to); i++) {
        uint16_t want, got;
        berth_err err;
        assert_int_equal(convert(from, src, to[i], &want, 1, &err), BERTH_OK);
        dtype_desc(to[i])->from_f32(&odd, &got, 1);
        if (want != got)
            fail_msg("%s to %s: %04x, not %04x", dtype_name(from), dtype_name(to[i]), got, want);
    }
}

static void wide_numbers(void **state)
{
    (void)state;
    struct rng rng = { running = rng_seed() };
    for (int k = 0; k < 200000; k++) {
        uint64_t u = rng_u64(&rng);
        uint64_t i = u >> rng_u64(&rng) % 64, negated = 0 - i;
        int64_t s;
        memcpy(&s, rng_u64(&rng) & 1 ? &negated : &i, sizeof s);
        narrowed(DT_U64, &i, dec_odd_int(i, 0));
        narrowed(DT_I64, &s, dec_odd_int(s < 0 ? 0 - (uint64_t)s : (uint64_t)s, s < 0));
        /* F64: any exponent at first, then those that 16 bits come near, halves among them */
        if (k % 2) {
            uint64_t e = 1023 - 160 + rng_u64(&rng) % 300;
            u = (u & UINT64_C(0x800fffffffffffff)) | e << 52;
        }
        if (k % 4 == 1)
            u &= UINT64_C(0xffffffff00000000);
        if (k % 8 == 1)
            u &= UINT64_C(0xfffff00000000000);
        double f;
        memcpy(&f, &u, sizeof f);
        narrowed(DT_F64, &f, dec_odd_f64(u));
    }
    const double edge[] = { 0.0,          -0.0,     INFINITY,  -INFINITY,       NAN,
                            0x1p-149,     0x1p-150, 0x1p-1074, 0x1.fffffefp127, 0x1p128,
                            65519.999999, 65520,    -1e300 };
    for (size_t k = 0; k < ARRAY_LEN(edge); k++) {
        uint64_t u;
        memcpy(&u, &edge[k], sizeof u);
        narrowed(DT_F64, &edge[k], dec_odd_f64(u));
    }
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(blocks, say_seed),
        cmocka_unit_test(small_floats),
        cmocka_unit_test_teardown(wide_numbers, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
