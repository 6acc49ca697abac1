/* torch's generator where the golden files do not look: the cached half of a pair, uniform numbers,
 * both versions of the kernel. */
#include "support/test.h"

#include "sample/rng.h"
#include "sample/rng_impl.h"

#include <math.h>

#define N 1000

static void check_values(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        size_t n;
        float want[4];
    } table[] = {
        { 0, 16, { -1.1258398f, -1.1523602f, -0.2505786f, -0.4338788f } },
        { 42, 16, { 1.9269153f, 1.4872841f, 0.9007172f, -2.1055210f } },
        { 42, 4, { 0.3366904f, 0.1288094f, 0.2344624f, 0.2303333f } },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct torch_rng g;
        float got[16];
        torch_seed(&g, table[i].seed);
        torch_randn(&g, got, table[i].n);
        for (size_t k = 0; k < 4; k++)
            assert_float_equal(got[k], table[i].want[k], 1e-6);
    }
}

/* Below 16 each value is drawn by itself: 3 + 2 of them are the same five, whatever a big draw took
 * in between, but for the words it took. */
static void the_second_half_of_a_pair_waits(void **state)
{
    (void)state;
    struct torch_rng a, b;
    float one[5], two[5], big[64];
    torch_seed(&a, 7);
    torch_seed(&b, 7);
    torch_randn(&a, one, 4);
    torch_randn(&b, two, 3);
    torch_randn(&b, big, 64);
    torch_randn(&b, two + 3, 1);
    for (int i = 0; i < 4; i++)
        assert_true(one[i] == two[i]);
    assert_false(b.has_cached);
    torch_seed(&b, 7); /* and a seed forgets it */
    torch_randn(&b, two, 1);
    assert_true(b.has_cached);
    torch_seed(&b, 7);
    assert_false(b.has_cached);
}

static void only_the_lower_half_of_a_seed_counts(void **state)
{
    (void)state;
    struct torch_rng a, b;
    float x[20], y[20];
    torch_seed(&a, 5);
    torch_seed(&b, (UINT64_C(77) << 32) + 5);
    torch_randn(&a, x, 20);
    torch_randn(&b, y, 20);
    assert_memory_equal(x, y, sizeof x);
}

static void uniform_numbers(void **state)
{
    (void)state;
    struct torch_rng g;
    float x[N];
    double sum = 0;
    torch_seed(&g, 42);
    torch_rand(&g, x, N);
    assert_float_equal(x[0], 0.8822692633f, 1e-7); /* torch.manual_seed(42); torch.rand(2) */
    assert_float_equal(x[1], 0.9150039554f, 1e-7);
    for (size_t i = 0; i < N; i++) {
        assert_true(x[i] >= 0 && x[i] < 1);
        sum += x[i];
    }
    assert_float_equal((float)(sum / N), 0.5, 0.05);
}

/* The tail is drawn anew over the last 16: the values before it are those of the longer list's
 * start. */
static void a_tail_overwrites_the_end(void **state)
{
    (void)state;
    struct torch_rng a, b;
    float x[40], y[48];
    torch_seed(&a, 3);
    torch_seed(&b, 3);
    torch_randn(&a, x, 40);
    torch_randn(&b, y, 48);
    assert_memory_equal(x, y, 24 * sizeof *x);
    assert_memory_not_equal(x + 24, y + 24, 16 * sizeof *x);
}

static void values_are_normal(void **state)
{
    (void)state;
    static float x[100003];
    struct torch_rng g;
    double sum = 0, square = 0;
    size_t n = sizeof x / sizeof *x;
    torch_seed(&g, 1);
    torch_randn(&g, x, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(x[i]));
        sum += x[i];
        square += (double)x[i] * x[i];
    }
    assert_float_equal((float)(sum / (double)n), 0, 0.02);
    assert_float_equal((float)(square / (double)n), 1, 0.02);
}

/* Every processor gives the same bits: the fast kernel against the plain one, with the ends of the
 * range. */
static void both_kernels_agree(void **state)
{
    (void)state;
    static float a[16 * 500], b[16 * 500];
    size_t n = sizeof a / sizeof *a;
    struct torch_rng g;
    torch_seed(&g, 11);
    torch_rand(&g, a, n);
    for (size_t i = 0; i < 16; i++) {
        a[i] = 0;
        a[16 + i] = 1 - 0x1p-24f; /* the largest there is */
        a[32 + i] = (float)i / 16;
    }
    memcpy(b, a, sizeof a);
    randn_blocks(a, n / 16);
    randn_blocks_plain(b, n / 16);
    for (size_t i = 0; i < n; i++) {
        assert_true(isfinite(a[i]));
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("value %zu: %a, plain %a", i, (double)a[i], (double)b[i]);
    }
}

static void none_is_none(void **state)
{
    (void)state;
    struct torch_rng g, h;
    float x = 5;
    torch_seed(&g, 1);
    h = g;
    torch_randn(&g, &x, 0);
    torch_rand(&g, &x, 0);
    assert_true(x == 5);
    assert_memory_equal(&g.mt, &h.mt, sizeof g.mt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_values),
        cmocka_unit_test(the_second_half_of_a_pair_waits),
        cmocka_unit_test(only_the_lower_half_of_a_seed_counts),
        cmocka_unit_test(uniform_numbers),
        cmocka_unit_test(a_tail_overwrites_the_end),
        cmocka_unit_test(values_are_normal),
        cmocka_unit_test(both_kernels_agree),
        cmocka_unit_test(none_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
