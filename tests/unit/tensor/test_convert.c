/* convert(): every pair of plain types against exact arithmetic, errors, blocks, large arrays. */
#include "support/rng.h"
#include "support/test.h"

#include "tensor/convert.h"
#include "tensor/convert_impl.h"
#include "unit/tensor/slow.h"

enum { SAMPLES = 1500 };

/* Integer types: sign and size, from the name. */
static bool is_int(enum dtype t, bool *is_signed)
{
    const char *name = dtype_name(t);
    *is_signed = name[0] == 'I';
    return name[0] == 'I' || name[0] == 'U';
}

static bool is_plain(enum dtype t)
{
    return dtype_desc(t)->elems == 1;
}

/* The exact value of the element at p. */
static long double value_of(enum dtype t, const uint8_t *p)
{
    unsigned bytes = dtype_desc(t)->bytes;
    bool is_signed;
    if (t == DT_F64) {
        double v;
        memcpy(&v, p, sizeof v);
        return (long double)v;
    }
    if (t == DT_BOOL)
        return p[0] != 0;
    uint64_t u = 0;
    memcpy(&u, p, bytes);
    if (!is_int(t, &is_signed))
        return slow_value(slow_fmt(t), (uint32_t)u);
    if (is_signed && u >> (8 * bytes - 1))
        return -(long double)(UINT64_MAX - (u | (bytes < 8 ? UINT64_MAX << 8 * bytes : 0))) - 1;
    return (long double)u;
}

/* Bits of x, not NaN, as an element of type t. */
static uint64_t element_of(enum dtype t, long double x)
{
    unsigned bits = 8u * dtype_desc(t)->bytes;
    bool is_signed;
    if (t == DT_F64) {
        double v = (double)x;
        uint64_t u;
        memcpy(&u, &v, sizeof u);
        return u;
    }
    if (t == DT_BOOL)
        return x != 0;
    if (!is_int(t, &is_signed))
        return slow_code(slow_fmt(t), x);
    long double lo = is_signed ? -ldexpl(1, (int)bits - 1) : 0;
    long double hi = ldexpl(1, (int)bits - is_signed) - 1;
    x = rintl(x);
    x = x < lo ? lo : x > hi ? hi : x;
    uint64_t u = x < 0 ? 0 - (uint64_t)-x : (uint64_t)x; /* mod 2^64: -2^63 too */
    return bits < 64 ? u & ((UINT64_C(1) << bits) - 1) : u;
}

/* Something of every magnitude: bit patterns, and small numbers with a fraction for floats. */
static void sample(enum dtype t, struct rng *r, size_t i, uint8_t out[8])
{
    uint64_t u = rng_u64(r);
    if (i % 4 == 1)
        u = (uint64_t)((int64_t)u >> rng_below(r, 64)); /* small integers of either sign */
    if (i % 4 == 2)
        u <<= rng_below(r, 64); /* few bits set: ties */
    if (i < 3)
        u = (uint64_t)i - 1; /* 0, 1, all ones */
    if (t == DT_F64 && i % 2) {
        double v = ldexp((double)(int64_t)u, -(int)rng_below(r, 80)); /* where integers live */
        if (i % 3 == 0)
            v = (double)(float)v; /* what F32 holds, then a little more or less */
        memcpy(&u, &v, sizeof u);
        u += rng_below(r, 3) - 1;
    }
    if (t == DT_F32 && i % 2) {
        float v = ldexpf((float)(int32_t)u, -(int)rng_below(r, 40));
        memcpy(&u, &v, sizeof v);
    }
    memcpy(out, &u, 8);
}

static void one_pair(enum dtype from, enum dtype to, struct rng *r, uint64_t seed)
{
    const struct dtype_desc *f = dtype_desc(from), *t = dtype_desc(to);
    static uint8_t src[SAMPLES * 8 + 1], dst[SAMPLES * 8 + 1];
    for (size_t i = 0; i < SAMPLES; i++) {
        uint8_t e[8];
        sample(from, r, i, e);
        memcpy(src + 1 + i * f->bytes, e, f->bytes);
    }
    berth_err err;
    assert_ok(convert(from, src + 1, to, dst + 1, SAMPLES, &err), err);
    for (size_t i = 0; i < SAMPLES; i++) {
        uint64_t in = 0, got = 0;
        memcpy(&in, src + 1 + i * f->bytes, f->bytes);
        memcpy(&got, dst + 1 + i * t->bytes, t->bytes);
        long double x = value_of(from, src + 1 + i * f->bytes);
        bool right;
        bool is_signed;
        if (from == to)
            right = got == in;
        else if (!isnan(x))
            right = got == element_of(to, x);
        else if (is_int(to, &is_signed))
            right = got == 0;
        else if (to == DT_BOOL)
            right = got == 1;
        else
            right = isnan(value_of(to, dst + 1 + i * t->bytes));
        if (!right)
            fail_msg("%s %#llx (%.20Lg) became %s %#llx (BERTH_SEED=%llu)", f->name,
                     (unsigned long long)in, x, t->name, (unsigned long long)got,
                     (unsigned long long)seed);
    }
}

static void every_pair_rounds_once(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    for (int from = 0; from < DT_COUNT; from++)
        for (int to = 0; to < DT_COUNT; to++)
            if (is_plain((enum dtype)from) && is_plain((enum dtype)to))
                one_pair((enum dtype)from, (enum dtype)to, &r, seed);
}

/* The cases that rounding twice gets wrong. */
static void no_double_rounding(void **state)
{
    (void)state;
    berth_err err;
    uint16_t h;
    /* A hair above the tie between 1 and the next F16: F32 would round it onto the tie. */
    double d = 1 + 0x1p-11 + 0x1p-40;
    assert_ok(convert(DT_F64, &d, DT_F16, &h, 1, &err), err);
    assert_int_equal(h, 0x3c01);
    /* 2^61 + the tie of BF16 + 1: neither F64 nor F32 holds it. */
    int64_t i = (INT64_C(1) << 61) + (INT64_C(1) << 53) + 1;
    assert_ok(convert(DT_I64, &i, DT_BF16, &h, 1, &err), err);
    assert_int_equal(h, 0x5e01);
    i = -i;
    assert_ok(convert(DT_I64, &i, DT_BF16, &h, 1, &err), err);
    assert_int_equal(h, 0xde01);
    /* An F64 below every F32 is still not zero to BOOL, and rounds to zero in BF16. */
    d = 0x1p-1000;
    uint8_t b = 7;
    assert_ok(convert(DT_F64, &d, DT_BOOL, &b, 1, &err), err);
    assert_int_equal(b, 1);
    assert_ok(convert(DT_F64, &d, DT_BF16, &h, 1, &err), err);
    assert_int_equal(h, 0);
    /* 64-bit integers pass whole. */
    uint64_t u = UINT64_MAX - 1;
    assert_ok(convert(DT_U64, &u, DT_I64, &i, 1, &err), err);
    assert_true(i == INT64_MAX);
    i = INT64_MAX - 5;
    assert_ok(convert(DT_I64, &i, DT_U64, &u, 1, &err), err);
    assert_true(u == (uint64_t)INT64_MAX - 5);
}

static void errors_name_types_and_counts(void **state)
{
    (void)state;
    berth_err err;
    uint8_t src[1024] = { 0 }, dst[1024], untouched[1024];
    memset(dst, 0x5a, sizeof dst);
    memset(untouched, 0x5a, sizeof untouched);
    assert_fails(convert(DT_F32, src, DT_Q6_K, dst, 256, &err), err, BERTH_EUNSUPPORTED, "Q6_K");
    assert_fails(convert(DT_Q8_0, src, DT_F16, dst, 33, &err), err, BERTH_EINVAL, "33");
    assert_fails(convert(DT_F16, src, DT_Q4_0, dst, 16, &err), err, BERTH_EINVAL, "Q4_0");
    assert_fails(convert(DT_Q8_0, src, DT_Q4_K, dst, 128, &err), err, BERTH_EINVAL, "256");
    assert_memory_equal(dst, untouched, sizeof dst);
    assert_ok(convert(DT_F16, NULL, DT_F32, NULL, 0, &err), err);
    assert_ok(convert(DT_Q6_K, src, DT_Q6_K, dst, 256, &err), err); /* a copy needs no quantiser */
    assert_memory_equal(dst, src, 210);
    assert_int_equal(dst[210], 0x5a);
    assert_true(convert_possible(DT_Q6_K, DT_Q6_K));
    assert_true(convert_possible(DT_Q6_K, DT_F8_E4M3));
    assert_false(convert_possible(DT_F32, DT_Q6_K));
}

/* From one block type to another, and to types beside F32: the same as by hand through F32. */
static void quants_pass_through_f32(void **state)
{
    (void)state;
    enum { N = 256 * 9 };
    static float x[N], y[N];
    static uint8_t q8[N * 2], q4[N], want[N * 2], half[N * 2], want_half[N * 2];
    static double wide[N];
    struct rng r = { 5 };
    for (int i = 0; i < N; i++)
        x[i] = (float)((double)(rng_u64(&r) >> 11) * 0x1p-53 - 0.5);
    berth_err err;
    assert_ok(convert(DT_F32, x, DT_Q8_0, q8, N, &err), err);
    assert_ok(convert(DT_Q8_0, q8, DT_F32, y, N, &err), err);
    for (int i = 0; i < N; i++)
        assert_true(fabsf(x[i] - y[i]) < 0.5f / 127);
    dtype_desc(DT_Q4_K)->from_f32(y, want, N);
    assert_ok(convert(DT_Q8_0, q8, DT_Q4_K, q4, N, &err), err);
    assert_memory_equal(q4, want, N / 256 * 144);
    dtype_desc(DT_F16)->from_f32(y, want_half, N);
    assert_ok(convert(DT_Q8_0, q8, DT_F16, half, N, &err), err);
    assert_memory_equal(half, want_half, N * 2);
    assert_ok(convert(DT_Q8_0, q8, DT_F64, wide, N, &err), err);
    for (int i = 0; i < N; i++)
        assert_true(wide[i] == (double)y[i]);
    for (int i = 0; i < N; i++)
        wide[i] = (double)x[i];
    assert_ok(convert(DT_F64, wide, DT_Q8_0, want, N, &err), err);
    assert_memory_equal(want, q8, N / 32 * 34);
}

/* Large destinations are written around the cache, in blocks and a rest; smaller ones are not. */
static void large_arrays_are_the_same(void **state)
{
    (void)state;
    size_t n = ((size_t)64 << 20) / 4 + 1024 + 96; /* above STREAM_MIN, and an odd tail */
    uint16_t *src = malloc(n * 2 + 2);
    uint8_t *dst = malloc(n * 4 + 32);
    assert_true(src && dst);
    for (size_t i = 0; i < n + 1; i++)
        src[i] = (uint16_t)(i * 40503u >> 3);
    for (size_t at = 0; at <= 16; at += 4) { /* 4, 8, 12: no streaming; 0, 16: streaming */
        memset(dst, 0xa5, n * 4 + 32);
        dtype_desc(DT_BF16)->to_f32(src + 1, (float *)(void *)(dst + at), n);
        for (size_t i = 0; i < n; i++) {
            uint32_t u;
            memcpy(&u, dst + at + 4 * i, 4);
            if (u != (uint32_t)src[i + 1] << 16)
                fail_msg("offset %zu, element %zu: %#x from %#x", at, i, u, src[i + 1]);
        }
        assert_int_equal(dst[at + 4 * n], 0xa5);
    }
    /* Blocks of 18 bytes: the same values as in pieces. */
    size_t quant = n / 32 * 32, piece = 4096;
    float *whole = (float *)(void *)dst, small[4096];
    dtype_desc(DT_Q4_0)->to_f32(src, whole, quant);
    for (size_t i = 0; i < quant; i += piece) {
        size_t now = quant - i < piece ? quant - i : piece;
        dtype_desc(DT_Q4_0)->to_f32((uint8_t *)src + i / 32 * 18, small, now);
        assert_memory_equal(whole + i, small, now * 4);
    }
    free(src);
    free(dst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_rounds_once),       cmocka_unit_test(no_double_rounding),
        cmocka_unit_test(errors_name_types_and_counts), cmocka_unit_test(quants_pass_through_f32),
        cmocka_unit_test(large_arrays_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
