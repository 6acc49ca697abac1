/* Factors of matrices: they give back what has so small a rank, are the nearest of others, and
 * vectors are of length 1 at right angles. */
#include "merge/factor.h"
#include "support/oom.h"
#include "support/rng.h"
#include "support/test.h"

#include <math.h>

/* A matrix of this rank whose values fall by a factor each. */
static float *matrix(size_t rows, size_t cols, size_t rank, double fall)
{
    struct rng g = { .state = rows * 1000 + cols };
    float *a = calloc(rows * cols, sizeof *a), *u = malloc(rows * sizeof *u),
          *v = malloc(cols * sizeof *v);
    double by = 1;
    assert_true(a && u && v);
    for (size_t r = 0; r < rank; r++, by *= fall) {
        for (size_t i = 0; i < rows; i++)
            u[i] = (float)((double)(rng_u64(&g) >> 11) / 9007199254740992.0 - 0.5);
        for (size_t i = 0; i < cols; i++)
            v[i] = (float)((double)(rng_u64(&g) >> 11) / 9007199254740992.0 - 0.5);
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < cols; k++)
                a[i * cols + k] += (float)by * u[i] * v[k];
    }
    free(u);
    free(v);
    return a;
}

/* The norm of a - up . down, over that of a. */
static double off(const float *a, const float *up, const float *down, size_t rows, size_t cols,
                  size_t rank)
{
    double sum = 0, all = 0;
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < cols; k++) {
            double x = (double)a[i * cols + k];
            all += x * x;
            for (size_t r = 0; r < rank; r++)
                x -= (double)up[i * rank + r] * (double)down[r * cols + k];
            sum += x * x;
        }
    return sqrt(sum / all);
}

static void check(size_t rows, size_t cols, size_t rank, size_t has, double fall, double most)
{
    float *a = matrix(rows, cols, has, fall), *up = malloc(rows * rank * sizeof *up),
          *down = malloc(rank * cols * sizeof *down);
    berth_err err = { 0 };
    const struct factor_args x = { .a = a, .rows = rows, .cols = cols, .rank = rank };
    assert_ok(factor(&x, up, down, &err), err);
    double is = off(a, up, down, rows, cols, rank);
    if (!(is <= most))
        fail_msg("%zu x %zu of rank %zu by %zu: %g off", rows, cols, has, rank, is);
    for (size_t r = 0; r < rank && r < has; r++)
        for (size_t s = 0; s <= r; s++) {
            double sum = 0;
            for (size_t k = 0; k < cols; k++)
                sum += (double)down[r * cols + k] * (double)down[s * cols + k];
            assert_true(fabs(sum - (r == s)) < 1e-5);
        }
    free(a);
    free(up);
    free(down);
}

static void small_ranks_come_back(void **state)
{
    (void)state;
    check(7, 5, 3, 3, 0.5, 1e-6);
    check(5, 9, 5, 5, 0.7, 1e-6);
    check(40, 30, 4, 2, 0.5, 1e-6); /* more than it has */
    check(1, 8, 1, 1, 1, 1e-6);
    check(400, 380, 6, 6, 0.8, 1e-6); /* through a subspace */
    check(380, 700, 5, 5, 0.8, 1e-6);
}

/* What is left over is no more than the values that were not taken: 0.5^4 and on. */
static void others_are_near(void **state)
{
    (void)state;
    check(60, 50, 4, 30, 0.5, 0.09);
    check(420, 400, 4, 60, 0.5, 0.09);
}

static void zeros_have_factors(void **state)
{
    float a[12] = { 0 }, up[6], down[8];
    berth_err err = { 0 };
    const struct factor_args x = { .a = a, .rows = 3, .cols = 4, .rank = 2 };
    (void)state;
    assert_ok(factor(&x, up, down, &err), err);
    for (size_t i = 0; i < 6; i++)
        assert_true(up[i] == 0);
    a[5] = NAN;
    assert_fails(factor(&x, up, down, &err), err, BERTH_EINVAL, "not finite");
}

static void quantiles_lie_between_values(void **state)
{
    float v[] = { 5, 1, 4, 2, 3 }, one[] = { 7 };
    (void)state;
    assert_true(factor_quantile(v, 5, 0.5) == 3);
    assert_true(fabsf(factor_quantile(v, 5, 0.9) - 4.6f) < 1e-6f);
    assert_true(factor_quantile(one, 1, 0.99) == 7);
}

static void failing_allocations(void **state)
{
    float a[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3 }, up[6], down[8];
    const struct factor_args x = { .a = a, .rows = 3, .cols = 4, .rank = 2 };
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = factor(&x, up, down, &err);
        oom_off();
        assert_true(!s || s == BERTH_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ranks_come_back),        cmocka_unit_test(others_are_near),
        cmocka_unit_test(zeros_have_factors),           cmocka_unit_test(failing_allocations),
        cmocka_unit_test(quantiles_lie_between_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
