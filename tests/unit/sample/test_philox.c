/* torch's CUDA generator: known values, its layout over threads against a plain writing of it,
 * offsets. */
#include "support/rng.h"
#include "support/test.h"

#include "sample/rng.h"
#include "sample/rng_impl.h"

#include <math.h>

/* torch.randn(8, generator=torch.Generator("cuda").manual_seed(42)), as published. */
static void check_values(void **state)
{
    (void)state;
    static const float want[8] = { 0.1940f,  2.1614f, -0.1721f, 0.8491f,
                                   -1.9244f, 0.6530f, -0.6494f, -0.8175f };
    struct philox_rng g;
    float got[8];
    philox_seed(&g, 42, 0);
    philox_randn(&g, got, 8);
    for (size_t i = 0; i < 8; i++)
        assert_float_equal(got[i], want[i], 5.1e-5);
    assert_int_equal(g.offset, 4);
}

/* ---- the same, written down element by element ---- */

static void words(uint64_t seed, uint64_t count, uint64_t thread, uint32_t out[4])
{
    const uint64_t m[2] = { 0xD2511F53u, 0xCD9E8D57u };
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t c[4] = { (uint32_t)count, (uint32_t)(count >> 32), (uint32_t)thread,
                      (uint32_t)(thread >> 32) };
    for (int round = 0; round < 10; round++) {
        uint64_t a = m[0] * c[0], b = m[1] * c[2];
        uint32_t to[4] = { (uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                           (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a };
        memcpy(c, to, sizeof c);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* Number i of a draw of n, in double from u and v on. */
static double element(uint64_t seed, uint64_t offset, uint64_t most, uint64_t n, uint64_t i)
{
    uint64_t blocks = (n + 255) / 256, grid = blocks < most / 256 ? blocks : most / 256;
    uint64_t threads = grid * 256, part = i / threads % 4;
    uint32_t w[4];
    words(seed, offset / 4 + i / (4 * threads), i % threads, w);
    const float unit = 2.3283064e-10f, turn = 2.3283064e-10f * 6.2831855f; /* u is coarse at 1 */
    double u = (double)fmaf((float)w[part / 2 * 2], unit, unit / 2);
    double v = (double)fmaf((float)w[part / 2 * 2 + 1], turn, turn / 2);
    double s = sqrt(-2 * log(u));
    return part % 2 ? s * cos(v) : s * sin(v);
}

static void layout(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1,    3,    255,  256,  257,  511,  512,  513,   1023,
                                    1024, 1025, 2047, 2048, 2049, 4097, 6000, 10007, 16384 };
    static const uint32_t threads[] = { 256, 512, 768, 1024, 108 * 2048, 0 };
    static const uint64_t seeds[] = { 0, 42, (UINT64_C(1) << 32) + 5, UINT64_MAX };
    float *got = malloc(16384 * sizeof *got);
    assert_non_null(got);
    for (size_t a = 0; a < ARRAY_LEN(sizes); a++)
        for (size_t t = 0; t < ARRAY_LEN(threads); t++)
            for (size_t k = 0; k < ARRAY_LEN(seeds); k++) {
                struct philox_rng g;
                uint64_t most = threads[t] ? threads[t] : PHILOX_THREADS, n = sizes[a];
                philox_seed(&g, seeds[k], threads[t]);
                g.offset = 8;
                philox_randn(&g, got, n);
                for (size_t i = 0; i < n; i++) {
                    double want = element(seeds[k], 8, most, n, i);
                    if (fabs((double)got[i] - want) > 4e-6)
                        fail_msg("n %zu threads %llu seed %llu: [%zu] is %g, not %g", (size_t)n,
                                 (unsigned long long)most, (unsigned long long)seeds[k], i,
                                 (double)got[i], want);
                }
                uint64_t used = (n + 255) / 256 * 256 < most ? (n + 255) / 256 * 256 : most;
                assert_int_equal(g.offset, 8 + 4 * ((n - 1) / (4 * used) + 1));
            }
    free(got);
}

/* A second draw goes on where the first ended; nothing was drawn for nothing. */
static void offsets(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct philox_rng a, b;
    static float one[N], two[N];
    philox_seed(&a, 9, 512);
    philox_randn(&a, one, N);
    assert_int_equal(a.offset, 12); /* 2048 numbers a count */
    philox_randn(&a, one, N);
    philox_seed(&b, 9, 512);
    b.offset = 12;
    philox_randn(&b, two, N);
    assert_memory_equal(one, two, sizeof one);
    philox_randn(&b, two, 0);
    assert_int_equal(b.offset, 24);
    philox_seed(&b, 9, 512);
    b.offset = (UINT64_C(1) << 34) + 4; /* into the second word of the counter */
    philox_randn(&b, two, 1);
    assert_float_equal(two[0], element(9, (UINT64_C(1) << 34) + 4, 512, 1, 0), 4e-6);
}

static void both_versions_agree(void **state)
{
    (void)state;
    struct rng r = { 7 };
    for (int i = 0; i < 40; i++) {
        static float one[9000], two[9000];
        uint64_t seed = rng_u64(&r);
        size_t n = 1 + (size_t)(rng_u64(&r) % 9000);
        uint32_t threads = 256u * (1 + (uint32_t)(rng_u64(&r) % 9));
        struct philox_rng a, b;
        philox_seed(&a, seed, threads);
        philox_seed(&b, seed, threads);
        philox_randn(&a, one, n);
        philox_randn_plain(&b, two, n);
        assert_memory_equal(one, two, n * sizeof *one);
        assert_int_equal(a.offset, b.offset);
    }
}

static void they_are_normal(void **state)
{
    (void)state;
    enum { N = 400000 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    struct philox_rng g;
    double m[5] = { 0 };
    philox_seed(&g, 1, 0);
    philox_randn(&g, x, N);
    for (size_t i = 0; i < N; i++)
        for (int k = 1; k < 5; k++)
            m[k] += pow((double)x[i], k) / N;
    assert_float_equal(m[1], 0, 0.01);
    assert_float_equal(m[2], 1, 0.01);
    assert_float_equal(m[3], 0, 0.03);
    assert_float_equal(m[4], 3, 0.06);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_values),    cmocka_unit_test(layout),
        cmocka_unit_test(offsets),         cmocka_unit_test(both_versions_agree),
        cmocka_unit_test(they_are_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
