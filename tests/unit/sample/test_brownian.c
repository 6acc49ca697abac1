/* The Brownian tree: values of an independent implementation, what the order of questions must not
 * change, and the ends. */
#include "support/oom.h"
#include "support/test.h"

#include "sample/rng.h"

#include <math.h>

#define LO 0.029167158f
#define HI 14.614641f

static struct brownian *tree(uint64_t seed, size_t n)
{
    struct brownian *b;
    berth_err err;
    assert_ok(brownian_new(seed, LO, HI, n, 0, &b, &err), err);
    return b;
}

static void noise(struct brownian *b, float from, float to, float *out)
{
    berth_err err;
    assert_ok(brownian_noise(b, from, to, out, &err), err);
}

/* torchsde's tree, written again in Python with torch's and numpy's own generators; the division by
 * a correctly rounded root. */
static void check_values(void **state)
{
    (void)state;
    static const float sigma[5] = { HI, 4.0817294f, 1.6128862f, 0.69320488f, LO };
    static const float want[4][5] = {
        { -0x1.04b82cp+0f, 0x1.01779cp+0f, -0x1.d2fbb8p-1f, 0x1.5093acp-1f, -0x1.358b28p+0f },
        { 0x1.756008p+1f, 0x1.dfc672p-2f, 0x1.64524ap-1f, -0x1.aef890p-4f, 0x1.a287f0p+0f },
        { -0x1.3553c8p-2f, 0x1.b9c218p-7f, 0x1.a0c8d6p-1f, -0x1.18cd04p+1f, -0x1.ff3c42p-1f },
        { 0x1.db9ddcp-1f, 0x1.7587aep+0f, -0x1.483024p+0f, 0x1.bc380ap-1f, 0x1.58d0a8p-1f },
    };
    struct brownian *b = tree(42, 5);
    for (size_t i = 0; i < 4; i++) {
        float got[5];
        noise(b, sigma[i], sigma[i + 1], got);
        for (size_t k = 0; k < 5; k++)
            if (got[k] != want[i][k])
                fail_msg("step %zu value %zu: %a, not %a", i, k, (double)got[k],
                         (double)want[i][k]);
    }
    brownian_free(b);
    float got[16];
    static const float large[4] = { -0x1.4bb4e6p-3f, -0x1.ef9158p-1f, -0x1.d9ea9ep-3f,
                                    0x1.1716dap-1f };
    b = tree((UINT64_C(1) << 33) + 5, 16); /* a seed of two words */
    noise(b, sigma[1], sigma[2], got);
    assert_memory_equal(got, large, sizeof large);
    brownian_free(b);
}

/* One path: what happens from a to c happens from a to b and from b to c. */
static void increments_add_up(void **state)
{
    (void)state;
    static const float at[] = { 14.0f, 7.3220f, 7.3219f, 3.5f, 1.0f, 0.5f, 0.03f };
    enum { N = 33 };
    struct brownian *b = tree(9, N);
    for (size_t i = 0; i < 7; i++)
        for (size_t j = i + 1; j < 7; j++)
            for (size_t k = j + 1; k < 7; k++) {
                float ac[N], ab[N], bc[N];
                noise(b, at[i], at[k], ac);
                noise(b, at[i], at[j], ab);
                noise(b, at[j], at[k], bc);
                for (size_t v = 0; v < N; v++) {
                    float sum = ab[v] * sqrtf(at[i] - at[j]) + bc[v] * sqrtf(at[j] - at[k]);
                    assert_float_equal(ac[v] * sqrtf(at[i] - at[k]), sum, 2e-5f);
                }
            }
    brownian_free(b);
}

/* Walks are kept between questions; answers must not depend on it. */
static void order_does_not_matter(void **state)
{
    (void)state;
    enum { N = 20, Q = 40 };
    struct brownian *kept = tree(1234, N);
    uint32_t r = 1;
    for (int i = 0; i < Q; i++) {
        float got[N], want[N];
        r = r * 1664525u + 1013904223u;
        float from = LO + (HI - LO) * (float)(r >> 8) * 0x1p-24f;
        r = r * 1664525u + 1013904223u;
        float to = i % 3 ? LO + (HI - LO) * (float)(r >> 8) * 0x1p-24f : from * 0.9f + 0.01f;
        struct brownian *fresh = tree(1234, N);
        noise(kept, from, to, got);
        noise(fresh, from, to, want);
        if (memcmp(got, want, sizeof got))
            fail_msg("question %d, %a to %a", i, (double)from, (double)to);
        brownian_free(fresh);
    }
    brownian_free(kept);
}

/* Going up is going down with the other sign, and what lies outside counts as the end. */
static void signs_and_ends(void **state)
{
    (void)state;
    struct brownian *b = tree(3, 16);
    float down[16], up[16], all[16], more[16];
    noise(b, 5, 2, down);
    noise(b, 2, 5, up);
    for (int i = 0; i < 16; i++)
        assert_true(down[i] == -up[i]);
    noise(b, HI, LO, all);
    noise(b, HI, 0, more); /* the same increment over a longer way */
    for (int i = 0; i < 16; i++)
        assert_float_equal(all[i] * sqrtf(HI - LO), more[i] * sqrtf(HI), 1e-4f);
    noise(b, 2, 2, all);
    noise(b, 3, 3.0000001f, more); /* nothing, after rounding to 6 decimals */
    for (int i = 0; i < 16; i++)
        assert_true(all[i] == 0 && more[i] == 0);
    brownian_free(b);
}

/* On a card the tree is the same, and what is drawn for its nodes is the card's: without a split it
 * is the root alone. */
static void on_a_card(void **state)
{
    (void)state;
    enum { N = 600 };
    berth_err err;
    float ac[N], ab[N], bc[N], root[N];
    struct brownian *b, *host = tree(9, N);
    struct philox_rng g;
    assert_ok(brownian_new(9, LO, HI, N, 512, &b, &err), err);
    noise(b, HI, LO, ac);
    noise(b, HI, 3, ab);
    noise(b, 3, LO, bc);
    for (size_t v = 0; v < N; v++) {
        float sum = ab[v] * sqrtf(HI - 3) + bc[v] * sqrtf(3 - LO);
        assert_float_equal(ac[v] * sqrtf(HI - LO), sum, 2e-5f);
    }
    noise(host, HI, LO, bc);
    assert_true(memcmp(ac, bc, sizeof ac) != 0);
    philox_seed(&g, 0xe0d7d156u, 512); /* numpy's SeedSequence(9, pool_size=24) */
    philox_randn(&g, root, N);
    for (size_t v = 0; v < N; v++)
        assert_float_equal(ac[v], -root[v], 1e-5f);
    brownian_free(b);
    brownian_free(host);
}

/* One level alone: nothing to be had, and nobody stumbles. */
static void an_empty_interval(void **state)
{
    (void)state;
    struct brownian *b;
    berth_err err;
    float x[4];
    assert_ok(brownian_new(1, 2, 2, 4, 0, &b, &err), err);
    noise(b, 2, 0, x);
    assert_true(x[0] == 0);
    brownian_free(b);
    brownian_free(NULL);
}

/* The deepest trees: zero terminal SNR, and the largest there may be. */
static void far_apart(void **state)
{
    (void)state;
    static const float hi[] = { 4518.76f, 1e6f, 9e11f };
    for (size_t i = 0; i < 3; i++) {
        struct brownian *b;
        berth_err err;
        float x[20];
        assert_ok(brownian_new(1, 0.0003f, hi[i], 20, 0, &b, &err), err);
        noise(b, hi[i], 0.7f, x);
        noise(b, 0.7f, 0.000301f, x);
        for (int k = 0; k < 20; k++)
            assert_true(isfinite(x[k]) && fabsf(x[k]) < 10);
        brownian_free(b);
    }
}

static void bad_levels_are_refused(void **state)
{
    (void)state;
    struct brownian *b;
    berth_err err;
    float x[4];
    assert_fails(brownian_new(1, 0, 1, 4, 0, &b, &err), err, BERTH_EINVAL, "from sigma 0 to 1");
    assert_fails(brownian_new(1, 2, 1, 4, 0, &b, &err), err, BERTH_EINVAL, "from sigma 2 to 1");
    assert_fails(brownian_new(1, 1, 1e13f, 4, 0, &b, &err), err, BERTH_EINVAL, "1e+13");
    assert_fails(brownian_new(1, NAN, 1, 4, 0, &b, &err), err, BERTH_EINVAL, "nan");
    assert_null(b);
    b = tree(1, 4);
    assert_fails(brownian_noise(b, NAN, 1, x, &err), err, BERTH_EINVAL, "nan");
    assert_fails(brownian_noise(b, INFINITY, 1, x, &err), err, BERTH_EINVAL, "inf");
    brownian_free(b);
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    berth_status s = BERTH_ENOMEM;
    float x[20], want[20];
    struct brownian *b = tree(5, 20);
    noise(b, 3, 1, want);
    brownian_free(b);
    for (long k = 0; s; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = brownian_new(5, LO, HI, 20, 0, &b, &err);
        if (!s)
            s = brownian_noise(b, 3, 1, x, &err);
        oom_off();
        assert_true(!s || (s == BERTH_ENOMEM && err.msg[0]));
        if (s && b) { /* and is of use again */
            noise(b, 3, 1, x);
            assert_memory_equal(x, want, sizeof x);
        }
        brownian_free(b);
    }
    assert_memory_equal(x, want, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_values),
        cmocka_unit_test(increments_add_up),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(signs_and_ends),
        cmocka_unit_test(an_empty_interval),
        cmocka_unit_test(far_apart),
        cmocka_unit_test(bad_levels_are_refused),
        cmocka_unit_test(survives_exhausted_memory),
        cmocka_unit_test(on_a_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
