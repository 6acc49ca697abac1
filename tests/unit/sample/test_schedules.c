/* Schedules: how steps, denoise and ranges cut them, and the quantile behind the beta schedule. The
 * values themselves: golden/sample/test_sigmas.c. */
#include "support/oom.h"
#include "support/test.h"

#include "sample/sigmas.h"

#include <math.h>

static int setup(void **state)
{
    static struct msampling ms;
    berth_err err;
    *state = &ms;
    return ms_init(&ms, &(struct ms_config) { 0 }, &err) != BERTH_OK;
}

static int teardown(void **state)
{
    ms_release(*state);
    return 0;
}

static struct vec levels(void)
{
    return (struct vec) { .elem = sizeof(float) };
}

static float at(const struct vec *v, size_t i)
{
    return *(float *)vec_at(v, i);
}

static struct vec make(const struct msampling *ms, const char *name, size_t steps, double denoise,
                       bool discard)
{
    struct vec v = levels();
    berth_err err;
    assert_non_null(scheduler_find(name));
    assert_ok(sample_sigmas(ms, scheduler_find(name), steps, denoise, discard, &v, &err), err);
    return v;
}

static void the_list(void **state)
{
    (void)state;
    assert_true(scheduler_at(8) && !scheduler_at(9));
    assert_string_equal(scheduler_at(0)->name, "simple");
    assert_null(scheduler_at(9));
    assert_null(scheduler_find("none"));
    for (size_t i = 0; scheduler_at(i); i++)
        assert_ptr_equal(scheduler_find(scheduler_at(i)->name), scheduler_at(i));
}

/* Whatever the schedule: falling, finite, ending in 0. */
static void every_schedule_falls_to_zero(void **state)
{
    static const size_t steps[] = { 1, 2, 3, 4, 7, 20, 50, 999, 1000, 1001, 3000 };
    static const struct ms_config config[] = {
        { 0 },
        { .zsnr = true },
        { .lcm = true },
        { .table = MS_CONTINUOUS_EDM },
        { .type = MS_CONST, .table = MS_FLOW, .shift = 8 },
        { .type = MS_CONST, .table = MS_FLUX },
    };
    (void)state;
    for (size_t c = 0; c < sizeof config / sizeof *config; c++) {
        struct msampling ms;
        berth_err err;
        assert_ok(ms_init(&ms, &config[c], &err), err);
        for (size_t i = 0; scheduler_at(i); i++)
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
                struct vec v = make(&ms, scheduler_at(i)->name, steps[k], 1, false);
                assert_true(v.n >= 2 && at(&v, v.n - 1) == 0);
                for (size_t j = 0; j + 1 < v.n; j++)
                    if (!isfinite(at(&v, j)) || at(&v, j) < at(&v, j + 1))
                        fail_msg("%s, %zu steps: level %zu is %g, then %g", scheduler_at(i)->name,
                                 steps[k], j, (double)at(&v, j), (double)at(&v, j + 1));
                vec_release(&v);
            }
        ms_release(&ms);
    }
}

static void denoise_keeps_the_end(void **state)
{
    struct vec all = make(*state, "normal", 40, 1, false);
    struct vec half = make(*state, "normal", 20, 0.5, false);
    assert_int_equal(half.n, 21);
    assert_memory_equal(half.p, (float *)all.p + 20, 21 * sizeof(float));
    vec_release(&all);
    vec_release(&half);
    all = make(*state, "karras", 13, 1, false); /* 13 / 0.97 is 13.4 */
    half = make(*state, "karras", 13, 0.97, false);
    assert_int_equal(half.n, 14);
    assert_memory_equal(half.p, all.p, 14 * sizeof(float));
    vec_release(&all);
    vec_release(&half);
    all = make(*state, "karras", 20001, 1, false);
    half = make(*state, "karras", 20001, 0.99995, false); /* as good as 1 */
    assert_memory_equal(half.p, all.p, 20002 * sizeof(float));
    vec_release(&all);
    vec_release(&half);
    half = make(*state, "karras", 13, 0, false);
    assert_int_equal(half.n, 0);
    vec_release(&half);
    half = make(*state, "ddim_uniform", 2000, 0.5, false); /* has fewer levels than asked for */
    assert_int_equal(half.n, 1000);
    vec_release(&half);
}

static void penultimate_is_dropped(void **state)
{
    struct vec more = make(*state, "karras", 9, 1, false), got = make(*state, "karras", 8, 1, true);
    assert_int_equal(got.n, 9);
    assert_memory_equal(got.p, more.p, 8 * sizeof(float));
    assert_true(at(&got, 8) == 0);
    vec_release(&more);
    vec_release(&got);
}

/* Results are appended; what was there stays. */
static void appends(void **state)
{
    struct vec v = levels();
    berth_err err;
    *(float *)vec_add(&v) = 77;
    assert_ok(sample_sigmas(*state, scheduler_find("simple"), 4, 0.5, true, &v, &err), err);
    assert_int_equal(v.n, 6);
    assert_true(at(&v, 0) == 77 && at(&v, 5) == 0 && at(&v, 1) > at(&v, 2));
    assert_fails(sample_sigmas(*state, scheduler_find("simple"), 0, 1, false, &v, &err), err,
                 BERTH_EINVAL, "0 steps");
    assert_int_equal(v.n, 6);
    vec_release(&v);
}

static void steps_meet_their_limit(void **state)
{
    struct vec v = levels();
    berth_err err;
    const struct scheduler *s = scheduler_find("simple");
    assert_fails(sample_sigmas(*state, s, SCHEDULE_STEPS_MAX + 1, 1, false, &v, &err), err,
                 BERTH_EINVAL, "1000001 steps");
    assert_fails(sample_sigmas(*state, s, 10000, 1e-9, false, &v, &err), err, BERTH_EINVAL,
                 "denoise of 1e-09");
    assert_fails(sample_sigmas(*state, s, SIZE_MAX, 0.5, false, &v, &err), err, BERTH_EINVAL,
                 "steps");
    assert_fails(sample_sigmas(*state, s, SIZE_MAX, 1, true, &v, &err), err, BERTH_EINVAL, "steps");
    assert_fails(sigmas_beta(*state, 0, 1, 1, &v, &err), err, BERTH_EINVAL, "0 steps");
    assert_fails(sigmas_beta(*state, 5, 0, 1, &v, &err), err, BERTH_EINVAL, "alpha 0");
    assert_fails(sigmas_beta(*state, 5, 1, NAN, &v, &err), err, BERTH_EINVAL, "beta nan");
    assert_fails(sigmas_sd_turbo(*state, 5, 2, &v, &err), err, BERTH_EINVAL, "denoise is 2");
    assert_int_equal(v.n, 0);
    vec_release(&v);
}

static void ranges(void **state)
{
    static const struct {
        size_t start, end;
        bool full, nothing;
        size_t n;
        float first, last; /* which levels of 4 3 2 1 0; -1: 0 */
    } table[] = {
        { 0, 10000, false, false, 5, 4, 0 }, { 0, 10000, true, false, 5, 4, 0 },
        { 0, 2, false, false, 3, 4, 2 },     { 0, 2, true, false, 3, 4, 0 },
        { 1, 3, false, false, 3, 3, 1 },     { 2, 4, true, false, 3, 2, 0 },
        { 4, 10000, false, true, 0, 0, 0 },  { 2, 2, false, true, 0, 0, 0 },
        { 3, 1, true, true, 0, 0, 0 },       { 0, 0, true, true, 0, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct vec v = levels();
        bool nothing;
        for (int k = 4; k >= 0; k--)
            *(float *)vec_add(&v) = (float)k;
        sigmas_range(&v, table[i].start, table[i].end, table[i].full, &nothing);
        assert_int_equal(nothing, table[i].nothing);
        if (!nothing) {
            assert_int_equal(v.n, table[i].n);
            assert_true(at(&v, 0) == table[i].first && at(&v, v.n - 1) == table[i].last);
        }
        vec_release(&v);
    }
    struct vec v = levels();
    bool nothing = false;
    sigmas_range(&v, 0, 10000, true, &nothing);
    assert_true(nothing && v.n == 0);
}

static void turbo(void **state)
{
    const struct msampling *ms = *state;
    struct vec v = levels();
    berth_err err;
    assert_ok(sigmas_sd_turbo(ms, 2, 0.5, &v, &err), err); /* timesteps 499, 399 */
    assert_int_equal(v.n, 3);
    assert_float_equal(at(&v, 0), ms->sigma[499], 1e-6f);
    assert_float_equal(at(&v, 1), ms->sigma[399], 1e-6f);
    assert_true(at(&v, 2) == 0);
    vec_release(&v);
    assert_ok(sigmas_sd_turbo(ms, 10, 0, &v, &err), err);
    assert_int_equal(v.n, 1);
    vec_release(&v);
}

static void beta_of_ones_is_even(void **state)
{
    const struct msampling *ms = *state;
    struct vec v = levels();
    berth_err err;
    assert_ok(sigmas_beta(ms, 3, 1, 1, &v, &err), err); /* 999, 666, 333 */
    assert_int_equal(v.n, 4);
    assert_true(at(&v, 0) == ms->sigma[999] && at(&v, 1) == ms->sigma[666]);
    assert_true(at(&v, 2) == ms->sigma[333] && at(&v, 3) == 0);
    vec_release(&v);
    assert_ok(sigmas_beta(ms, 1000, 0.01, 0.01, &v, &err), err); /* many fall together */
    assert_true(v.n < 900 && at(&v, 0) == ms->sigma[999]);
    vec_release(&v);
}

/* Computed with 30 digits. */
static void quantiles(void **state)
{
    static const struct {
        double p, a, b, want;
    } table[] = {
        { 0.25, 0.6, 0.6, 0.17568037865269502 },
        { 0.95, 0.6, 0.6, 0.98744554312638859 },
        { 0.01, 5, 2, 0.29431367168029249 },
        { 0.3, 50, 50, 0.473732509814982 },
        { 0.7, 0.1, 3, 0.0067686028110242084 },
        { 0.2, 1, 1, 0.2 },
        { 0.9, 0.5, 30, 0.044450074431959815 },
        { 0.5, 0.6, 0.6, 0.5 },
        { 0, 2, 3, 0 },
        { 1, 2, 3, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        double got = beta_quantile(table[i].p, table[i].a, table[i].b);
        if (!(fabs(got - table[i].want) <= 1e-13))
            fail_msg("quantile %g of beta(%g, %g): %.17g, not %.17g", table[i].p, table[i].a,
                     table[i].b, got, table[i].want);
    }
    double last = 0;
    for (int i = 0; i <= 1000; i++) {
        double x = beta_quantile(i / 1000.0, 0.37, 12);
        assert_true(x >= last && x <= 1);
        last = x;
    }
}

static void linspace_counts_from_both_ends(void **state)
{
    (void)state;
    assert_true(sigmas_linspace(0, 1, 1, 0) == 0);
    assert_true(sigmas_linspace(3, 7, 5, 0) == 3 && sigmas_linspace(3, 7, 5, 4) == 7);
    assert_true(sigmas_linspace(0, 0.1, 1000, 999) == 0.1f);
}

static void survives_exhausted_memory(void **state)
{
    for (size_t i = 0; scheduler_at(i); i++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s; k++) {
            struct vec v = levels();
            berth_err err = { 0 };
            oom_after(k);
            s = sample_sigmas(*state, scheduler_at(i), 4, 1, false, &v, &err);
            oom_off();
            assert_true(!s || (s == BERTH_ENOMEM && v.n == 0 && err.msg[0]));
            vec_release(&v);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list),
        cmocka_unit_test(every_schedule_falls_to_zero),
        cmocka_unit_test(denoise_keeps_the_end),
        cmocka_unit_test(penultimate_is_dropped),
        cmocka_unit_test(appends),
        cmocka_unit_test(steps_meet_their_limit),
        cmocka_unit_test(ranges),
        cmocka_unit_test(turbo),
        cmocka_unit_test(beta_of_ones_is_even),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(linspace_counts_from_both_ends),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
