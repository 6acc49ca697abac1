/* F16, BF16 and F8 to and from F32: every code, and every F32 where rounding could go wrong, at
 * every cpu level, against the definition in slow.h. */
#include "support/rng.h"
#include "support/test.h"

#include "tensor/convert_impl.h"
#include "unit/tensor/slow.h"

static const enum dtype small[] = { DT_F16, DT_BF16, DT_F8_E4M3, DT_F8_E5M2, DT_F8_E8M0 };

static uint32_t get_code(const uint8_t *p, size_t i, unsigned bytes)
{
    uint32_t c = 0;
    memcpy(&c, p + i * bytes, bytes);
    return c;
}

/* What widening must give: the exact value; NaN quiet with sign and payload, but for BF16, which
 * only moves bits. */
static uint32_t widened(const struct slow_fmt *f, uint32_t code)
{
    long double v = slow_value(f, code);
    if (!isnan(v))
        return slow_bits((float)v); /* exact */
    uint32_t sign = code & f->sign ? 0x80000000 : 0;
    uint32_t payload = f->ieee ? (code << (23 - f->mant)) & 0x7fffff : 0;
    uint32_t quiet = f->dtype == DT_BF16 ? 0 : 0x400000;
    return sign | 0x7f800000 | payload | quiet;
}

static void every_code_widens_exactly(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(small); k++) {
        const struct slow_fmt *f = slow_fmt(small[k]);
        const struct dtype_desc *d = dtype_desc(small[k]);
        uint32_t codes = 1u << (8 * d->bytes);
        uint8_t *src = malloc(codes * d->bytes);
        uint32_t *dst = malloc(codes * sizeof *dst);
        assert_true(src && dst);
        for (uint32_t c = 0; c < codes; c++)
            memcpy(src + c * d->bytes, &c, d->bytes);
        for (int l = 0; l <= (int)cpu_level(); l++) {
            memset(dst, 0xcc, codes * sizeof *dst);
            d->to_f32_levels[l](src, (float *)dst, codes);
            for (uint32_t c = 0; c < codes; c++)
                if (dst[c] != widened(f, c))
                    fail_msg("%s %s: code %#x became %#x, not %#x", d->name,
                             cpu_level_name((enum cpu_level)l), c, dst[c], widened(f, c));
        }
        free(src);
        free(dst);
    }
}

/* Inputs for narrowing to f. */
struct inputs {
    uint32_t *bits;
    size_t n, cap;
};

static void add(struct inputs *in, uint32_t bits)
{
    if (in->n == in->cap) {
        in->cap = in->cap ? 2 * in->cap : 1 << 16;
        in->bits = realloc(in->bits, in->cap * sizeof *in->bits);
        assert_non_null(in->bits);
    }
    in->bits[in->n++] = bits;
}

static void add_around(struct inputs *in, long double v, bool with_sign)
{
    uint32_t u = slow_bits((float)v);
    for (uint32_t d = 0; d < 3; d++) {
        uint32_t b = u ? u - 1 + d : u + d;
        add(in, b);
        if (with_sign)
            add(in, b | 0x80000000);
    }
}

static struct inputs narrow_inputs(const struct slow_fmt *f, struct rng *r)
{
    struct inputs in = { 0 };
    for (uint32_t em = 0; em <= f->max; em++) { /* every value and every midpoint, and neighbours */
        long double v = slow_finite(f, em), next = slow_finite(f, em + 1);
        add_around(&in, v, true);
        add_around(&in, v / 2 + next / 2, true);
    }
    add_around(&in, slow_finite(f, f->max + 1), true);
    static const uint32_t mant[] = { 0,        1,        0x1fff,   0x2000,   0x3fffff,
                                     0x400000, 0x400001, 0x5fffff, 0x600000, 0x7fffff };
    for (uint32_t e = 0; e < 256; e++) /* every exponent; 255: infinities, quiet and loud NaNs */
        for (size_t m = 0; m < ARRAY_LEN(mant); m++) {
            add(&in, e << 23 | mant[m]);
            add(&in, e << 23 | mant[m] | 0x80000000);
        }
    for (int i = 0; i < 200000; i++)
        add(&in, (uint32_t)rng_u64(r));
    return in;
}

static void every_rounding_is_to_nearest_even(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    for (size_t k = 0; k < ARRAY_LEN(small); k++) {
        const struct slow_fmt *f = slow_fmt(small[k]);
        const struct dtype_desc *d = dtype_desc(small[k]);
        struct inputs in = narrow_inputs(f, &r);
        uint32_t *want = malloc(in.n * sizeof *want);
        uint8_t *got = malloc(in.n * d->bytes);
        assert_true(want && got);
        for (size_t i = 0; i < in.n; i++) {
            float x = slow_f32(in.bits[i]);
            want[i] = isnan(x) ? slow_nan(f, in.bits[i]) : slow_code(f, (long double)x);
        }
        for (int l = 0; l <= (int)cpu_level(); l++) {
            memset(got, 0xcc, in.n * d->bytes);
            d->from_f32_levels[l]((const float *)in.bits, got, in.n);
            for (size_t i = 0; i < in.n; i++)
                if (get_code(got, i, d->bytes) != want[i])
                    fail_msg("%s %s: F32 %#x became %#x, not %#x (BERTH_SEED=%llu)", d->name,
                             cpu_level_name((enum cpu_level)l), in.bits[i],
                             get_code(got, i, d->bytes), want[i], (unsigned long long)seed);
        }
        free(in.bits);
        free(want);
        free(got);
    }
}

/* Every length up to a few vectors and every misalignment: same bits as one element at a time, and
 * not a byte beyond. */
static void odd_lengths_and_addresses(void **state)
{
    (void)state;
    enum { MOST = 70, SLACK = 8 };
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    for (size_t k = 0; k < ARRAY_LEN(small); k++) {
        const struct dtype_desc *d = dtype_desc(small[k]);
        uint8_t codes[MOST * 2 + 8], wide[MOST * 4 + 8], out[MOST * 4 + 8 + SLACK];
        for (size_t i = 0; i < sizeof codes; i++)
            codes[i] = (uint8_t)rng_u64(&r);
        for (size_t i = 0; i < sizeof wide; i++)
            wide[i] = (uint8_t)rng_u64(&r);
        for (int l = 0; l <= (int)cpu_level(); l++)
            for (size_t n = 0; n <= MOST; n++)
                for (size_t at = 0; at < 4; at++) {
                    size_t s = n % 4; /* the other side's offset */
                    float one;
                    memset(out, 0xa5, sizeof out);
                    d->to_f32_levels[l](codes + s, (float *)(void *)(out + at), n);
                    for (size_t i = 0; i < n; i++) {
                        d->to_f32_levels[CPU_PLAIN](codes + s + i * d->bytes, &one, 1);
                        assert_memory_equal(out + at + 4 * i, &one, 4);
                    }
                    assert_int_equal(out[at + 4 * n], 0xa5);
                    memset(out, 0xa5, sizeof out);
                    d->from_f32_levels[l]((const float *)(const void *)(wide + s), out + at, n);
                    for (size_t i = 0; i < n; i++) {
                        uint8_t code[2];
                        memcpy(&one, wide + s + 4 * i, 4);
                        d->from_f32_levels[CPU_PLAIN](&one, code, 1);
                        assert_memory_equal(out + at + i * d->bytes, code, d->bytes);
                    }
                    assert_int_equal(out[at + n * d->bytes], 0xa5);
                }
    }
}

static void codes_survive_the_round_trip(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(small); k++) {
        const struct slow_fmt *f = slow_fmt(small[k]);
        const struct dtype_desc *d = dtype_desc(small[k]);
        for (uint32_t c = 0; c < 1u << (8 * d->bytes); c++) {
            float x;
            uint32_t back = 0, want = c;
            d->to_f32(&c, &x, 1);
            d->from_f32(&x, &back, 1);
            if (isnan(x) && f->ieee)
                want |= f->nan; /* quiet */
            if (isinf(x) && !f->inf)
                want = f->max | (c & f->sign); /* F8_E5M2: writing saturates */
            if (back != want)
                fail_msg("%s: %#x came back as %#x, not %#x", d->name, c, back, want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_widens_exactly),
        cmocka_unit_test(every_rounding_is_to_nearest_even),
        cmocka_unit_test(odd_lengths_and_addresses),
        cmocka_unit_test(codes_survive_the_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
