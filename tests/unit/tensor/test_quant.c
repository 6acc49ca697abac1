/* Block types: every cpu level gives the same bits, quantisers give GGML's bytes, and nothing that
 * comes in as a number goes out as something else. Values of dequantised blocks are held to golden
 * numbers in tests/golden/format/test_gguf_quants.c. */
#include "support/rng.h"
#include "support/test.h"

#include "base/hash.h"
#include "tensor/convert_impl.h"

#include <float.h>
#include <math.h>

static const enum dtype quantisers[] = { DT_Q8_0, DT_Q5_0, DT_Q4_0, DT_Q4_K };

static bool same(const uint8_t *a, const uint8_t *b, size_t n) /* floats; any NaN equals any NaN */
{
    for (size_t i = 0; i < n; i++) {
        float x, y;
        memcpy(&x, a + 4 * i, 4);
        memcpy(&y, b + 4 * i, 4);
        if (memcmp(&x, &y, 4) && !(isnan(x) && isnan(y)))
            return false;
    }
    return true;
}

static void every_level_dequantises_the_same(void **state)
{
    (void)state;
    enum { BLOCKS = 9, BYTES = BLOCKS * 256 };
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    static uint8_t src[BYTES + 4], want[BLOCKS * 256 * 4 + 8], got[BLOCKS * 256 * 4 + 8];
    int checked = 0;
    for (int t = 0; t < DT_COUNT; t++) {
        const struct dtype_desc *d = dtype_desc((enum dtype)t);
        if (d->elems == 1)
            continue;
        assert_non_null(d->to_f32_levels);
        for (int round = 0; round < 300; round++) {
            size_t at = rng_below(&r, 4), to = rng_below(&r, 4), n = rng_below(&r, BLOCKS + 1);
            for (size_t i = 0; i < sizeof src; i++)
                src[i] = (uint8_t)rng_u64(&r); /* also scales that are infinite or NaN */
            memset(want, 0x5a, sizeof want);
            d->to_f32_levels[CPU_PLAIN](src + at, (float *)(void *)want, n * d->elems);
            for (int l = 1; l <= (int)cpu_level(); l++) {
                memset(got, 0x5a, sizeof got);
                d->to_f32_levels[l](src + at, (float *)(void *)(got + to), n * d->elems);
                if (!same(got + to, want, n * d->elems) || got[to + 4 * n * d->elems] != 0x5a)
                    fail_msg("%s at level %s (BERTH_SEED=%llu)", d->name,
                             cpu_level_name((enum cpu_level)l), (unsigned long long)seed);
            }
        }
        checked++;
    }
    assert_int_equal(checked, 15);
}

static void every_level_quantises_the_same(void **state)
{
    (void)state;
    enum { N = 256 * 40 };
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    static uint8_t x[N * 4 + 1], want[N * 2], got[N * 2];
    for (size_t q = 0; q < ARRAY_LEN(quantisers); q++) {
        const struct dtype_desc *d = dtype_desc(quantisers[q]);
        for (int round = 0; d->from_f32_levels && round < 10; round++) {
            for (size_t i = 0; i < N; i++) {
                float v = (float)(int32_t)rng_u64(&r) * 0x1p-30f;
                if (round > 5) { /* any bits at all */
                    uint32_t u = (uint32_t)rng_u64(&r);
                    memcpy(&v, &u, 4);
                }
                memcpy(x + 1 + 4 * i, &v, 4);
            }
            const float *in = (const float *)(const void *)(x + 1);
            d->from_f32_levels[CPU_PLAIN](in, want, N);
            for (int l = 1; l <= (int)cpu_level(); l++) {
                d->from_f32_levels[l](in, got, N);
                if (memcmp(got, want, (size_t)(N / d->elems * d->bytes)))
                    fail_msg("%s at level %s (BERTH_SEED=%llu)", d->name,
                             cpu_level_name((enum cpu_level)l), (unsigned long long)seed);
            }
        }
    }
}

/* Hashes of what the Python package gguf 0.19.0 (gguf.quants.quantize) makes of the same input:
 * 41 magnitudes, many ties, blocks of zeros. */
static void bytes_are_those_of_ggml(void **state)
{
    (void)state;
    enum { N = 32 * 4096 };
    static const struct {
        enum dtype t;
        uint64_t hash;
    } want[] = {
        { DT_Q8_0, UINT64_C(0x66c07f5ebe175173) },
        { DT_Q5_0, UINT64_C(0x966c49eff579c953) },
        { DT_Q4_0, UINT64_C(0x02570eaea3ed1ebe) },
    };
    static float x[N];
    static uint8_t q[N * 2];
    struct rng r = { 1 };
    for (int i = 0; i < N; i++) {
        int block = i / 32, v = (int)(rng_u64(&r) >> 40) - (1 << 23);
        if (block % 3 == 0)
            v &= ~0x3ffff; /* few steps: ties */
        if (block % 64 == 7)
            v = 0;
        x[i] = ldexpf((float)v, block % 41 - 46);
    }
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct dtype_desc *d = dtype_desc(want[i].t);
        d->from_f32(x, q, N);
        uint64_t hash = hash_fnv1a64(q, (size_t)(N / d->elems * d->bytes));
        if (hash != want[i].hash)
            fail_msg("%s: hash %#llx", d->name, (unsigned long long)hash);
    }
}

/* One block of each quantiser: in, out. */
static void there_and_back(const struct dtype_desc *d, const float *x, float *y)
{
    uint8_t q[256];
    d->from_f32(x, q, d->elems);
    d->to_f32(q, y, d->elems);
}

static void zeros_stay_zeros(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(quantisers); k++) {
        const struct dtype_desc *d = dtype_desc(quantisers[k]);
        float x[256] = { 0 }, y[256];
        x[3] = -0.0f;
        x[5] = NAN; /* counts as zero */
        x[6] = -NAN;
        there_and_back(d, x, y);
        for (int i = 0; i < d->elems; i++)
            assert_true(y[i] == 0);
    }
}

static void constants_come_back(void **state)
{
    (void)state;
    static const float c[] = { 1, -1, 0.37f, -0.37f, 1000, -1000, 6e-5f, -6e-5f };
    for (size_t k = 0; k < ARRAY_LEN(quantisers); k++) {
        const struct dtype_desc *d = dtype_desc(quantisers[k]);
        for (size_t j = 0; j < ARRAY_LEN(c); j++) {
            float x[256], y[256];
            for (int i = 0; i < 256; i++)
                x[i] = c[j];
            there_and_back(d, x, y);
            /* Half a step, or what a scale as small as the last one's loses in F16. */
            for (int i = 0; i < d->elems; i++)
                if (!(fabsf(y[i] - c[j]) <= fabsf(c[j]) * 0.02f))
                    fail_msg("%s: %g became %g", d->name, (double)c[j], (double)y[i]);
        }
    }
}

static void extremes_saturate_and_stay_finite(void **state)
{
    (void)state;
    static const float big[] = { INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e30f, -1e9f };
    for (size_t k = 0; k < ARRAY_LEN(quantisers); k++) {
        const struct dtype_desc *d = dtype_desc(quantisers[k]);
        float mixed[256], y[256];
        for (size_t j = 0; j < ARRAY_LEN(big); j++) {
            float x[256];
            for (int i = 0; i < 256; i++)
                x[i] = i % 7 == 0 ? big[j] : (float)i;
            there_and_back(d, x, y);
            for (int i = 0; i < d->elems; i++)
                assert_true(isfinite(y[i]));
            if (fabsf(y[0]) < 100000 || signbit(y[0]) != signbit(big[j]))
                fail_msg("%s: %g became %g", d->name, (double)big[j], (double)y[0]);
        }
        for (int i = 0; i < 256; i++) /* both infinities in one sub-block */
            mixed[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : 1;
        there_and_back(d, mixed, y);
        for (int i = 0; i < d->elems; i++)
            assert_true(i % 3 == 0 ? y[i] > 100000 : i % 3 == 1 ? y[i] < -100000 : isfinite(y[i]));
        /* Down to the smallest subnormal: F16 scales cannot follow, but nothing blows up. */
        for (int e = -149; e < -10; e++) {
            float x[256];
            for (int i = 0; i < 256; i++)
                x[i] = ldexpf((float)(i % 5 - 2), e);
            there_and_back(d, x, y);
            for (int i = 0; i < d->elems; i++)
                if (!(fabsf(y[i] - x[i]) <= 0.07f * ldexpf(2, e) + 6e-5f))
                    fail_msg("%s 2^%d: %g became %g", d->name, e, (double)x[i], (double)y[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_dequantises_the_same),
        cmocka_unit_test(every_level_quantises_the_same),
        cmocka_unit_test(bytes_are_those_of_ggml),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(constants_come_back),
        cmocka_unit_test(extremes_saturate_and_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
