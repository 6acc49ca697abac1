/* Tables, timesteps and scalings: values of the reference where the golden files have none, and
 * what must hold for every model. */
#include "support/oom.h"
#include "support/test.h"

#include "sample/sigmas.h"

#include <math.h>

static void init(struct msampling *ms, struct ms_config c)
{
    berth_err err;
    assert_ok(ms_init(ms, &c, &err), err);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 2e-6 * fmax(fabs(want), 1e-3)))
        fail_msg("%.9g, not %.9g", got, want);
}

static void near_all(const float *got, const double *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        near((double)got[i], want[i]);
}

static const float model_out[2] = { 0.3f, -1.2f }, input[2] = { 2, 5 };

static void discrete(void **state)
{
    (void)state;
    struct msampling ms;
    init(&ms, (struct ms_config) { .type = MS_V });
    assert_int_equal(ms.n, 1000);
    near(ms_sigma_min(&ms), 0.029167158);
    near(ms_sigma_max(&ms), 14.614641);
    near(ms.sigma[499], 1.6128862);
    assert_true(ms_timestep(&ms, 0.001f) == 0 && ms_timestep(&ms, 0.0353f) == 1);
    assert_true(ms_timestep(&ms, 1.6f) == 497 && ms_timestep(&ms, 99) == 999);
    near(ms_sigma(&ms, -3), 0.0291671604);
    near(ms_sigma(&ms, 0.5f), 0.0347134545);
    near(ms_sigma(&ms, 500.25f), 1.61963046);
    near(ms_sigma(&ms, 2000), 14.6146402);
    near(ms_percent(&ms, 0), 999999999.9);
    near(ms_percent(&ms, 0.2), 5.09240818);
    near(ms_percent(&ms, 0.999), 0.0413000323);
    assert_true(ms_percent(&ms, 1) == 0);
    float out[2];
    ms_denoised(&ms, 1.5f, model_out, input, out, 2);
    near_all(out, (double[]) { 0.365769535, 2.53692198 }, 2);
    ms_input(&ms, 1.5f, input, out, 2);
    near_all(out, (double[]) { 1.10940039, 2.77350092 }, 2);
    ms_noise(&ms, 1.5f, model_out, input, false, out, 2);
    near_all(out, (double[]) { 2.45, 3.2 }, 2);
    ms_noise(&ms, 1.5f, model_out, input, true, out, 2);
    near_all(out, (double[]) { 2.54083276, 2.83666921 }, 2);
    assert_false(ms_is_flow(&ms));
    ms_release(&ms);
    ms_release(&ms);
}

static void zero_terminal_snr(void **state)
{
    (void)state;
    struct msampling ms;
    init(&ms, (struct ms_config) { .zsnr = true });
    near(ms.sigma[0], 0.0291671585);
    near(ms.sigma[1], 0.042067565);
    near(ms.sigma[499], 1.76808023);
    near(ms.sigma[998], 2254.23804);
    near(ms.sigma[999], 4518.76367);
    ms_release(&ms);
}

static void distilled(void **state)
{
    (void)state;
    struct msampling ms;
    float out[2];
    init(&ms, (struct ms_config) { .lcm = true });
    assert_int_equal(ms.n, 50);
    near(ms.sigma[0], 0.134450674);
    near(ms.sigma[25], 1.72479403);
    near(ms.sigma[49], 14.6146412);
    assert_true(ms_timestep(&ms, 0.03f) == 19 && ms_timestep(&ms, 1) == 359);
    assert_true(ms_timestep(&ms, 14.7f) == 999);
    near(ms_sigma(&ms, 19), 0.134450659);
    near(ms_sigma(&ms, 30), 0.165562823);
    near(ms_sigma(&ms, 500), 1.61830509);
    ms_denoised(&ms, 1.5f, model_out, input, out, 2);
    near_all(out, (double[]) { 1.54999995, 6.80000019 }, 2);
    ms_release(&ms);
}

static void continuous(void **state)
{
    (void)state;
    struct msampling ms;
    float out[2];
    init(&ms, (struct ms_config) { .type = MS_EDM,
                                   .table = MS_CONTINUOUS_EDM,
                                   .sigma_min = 0.002,
                                   .sigma_max = 80,
                                   .sigma_data = 0.5 });
    near(ms.sigma[0], 0.002);
    near(ms.sigma[500], 0.402127177);
    near(ms.sigma[999], 80);
    near(ms_timestep(&ms, 2), 0.173286796);
    near(ms_sigma(&ms, 0.3f), 3.320117);
    near(ms_percent(&ms, 0.25), 5.65685415);
    near(ms_percent(&ms, 0.9), 0.00577079924);
    ms_input(&ms, 1.5f, input, out, 2);
    near_all(out, (double[]) { 1.26491106, 3.1622777 }, 2);
    ms_denoised(&ms, 1.5f, model_out, input, out, 2);
    near_all(out, (double[]) { 0.342302501, -0.0692099929 }, 2);
    ms_release(&ms);
    init(&ms, (struct ms_config) { .table = MS_CONTINUOUS_EDM });
    near(ms_sigma_min(&ms), 0.002);
    near(ms_sigma_max(&ms), 120);
    ms_release(&ms);
}

static void flow(void **state)
{
    (void)state;
    struct msampling ms;
    float out[2] = { 2, 5 };
    init(&ms, (struct ms_config) { .type = MS_CONST, .table = MS_FLOW, .shift = 8 });
    near(ms.sigma[0], 0.00794439018);
    near(ms.sigma[499], 0.888888896);
    near(ms.sigma[999], 1);
    assert_true(ms_timestep(&ms, 0.5f) == 500 && ms_is_flow(&ms));
    near(ms_sigma(&ms, 500), 0.888888896);
    near(ms_percent(&ms, 0.3), 0.949152529);
    near(ms_percent(&ms, 0.7), 0.774193525);
    assert_true(ms_percent(&ms, 0) == 1 && ms_percent(&ms, 1) == 0);
    ms_finish(&ms, 0.25f, out, 2);
    near_all(out, (double[]) { 2.66666675, 6.66666651 }, 2);
    ms_noise(&ms, 0.7f, model_out, input, true, out, 2); /* flows have no other form */
    near_all(out, (double[]) { 0.810000062, 0.659999967 }, 2);
    ms_denoised(&ms, 0.7f, model_out, input, out, 2);
    near_all(out, (double[]) { 1.78999996, 5.84000015 }, 2);
    ms_input(&ms, 0.7f, input, out, 2);
    assert_memory_equal(out, input, sizeof out);
    ms_release(&ms);
    init(&ms, (struct ms_config) { .type = MS_CONST, .table = MS_FLUX });
    assert_int_equal(ms.n, 10000);
    near(ms_sigma(&ms, 0.3f), 0.575102985);
    near(ms_percent(&ms, 0.3), 0.880513072);
    assert_true(ms_timestep(&ms, 0.3f) == 0.3f);
    ms_release(&ms);
    init(&ms, (struct ms_config) { .type = MS_CONST, .table = MS_FLUX, .shifted = true });
    near(ms.sigma[0], 0.0001);
    near(ms.sigma[4999], 0.5);
    ms_release(&ms);
    for (int sign = -1; sign <= 1; sign += 2) { /* as far as levels are numbers */
        init(&ms, (struct ms_config) {
                      .type = MS_CONST, .table = MS_FLUX, .shift = sign * MS_FLUX_SHIFT_MAX });
        for (size_t i = 0; i < ms.n; i++)
            assert_true(ms.sigma[i] > 0 && ms.sigma[i] < 1.0001f && isfinite(ms.log_sigma[i]));
        ms_release(&ms);
    }
}

static void predictions_of_the_picture(void **state)
{
    (void)state;
    struct msampling ms;
    float out[2];
    init(&ms, (struct ms_config) { .type = MS_X0 });
    ms_denoised(&ms, 3, model_out, input, out, 2);
    assert_memory_equal(out, model_out, sizeof out);
    ms_input(&ms, 3, input, out, 2);
    near((double)out[0], 2 / sqrt(10));
    ms_release(&ms);
    init(&ms, (struct ms_config) { .type = MS_IMG_TO_IMG });
    ms_input(&ms, 3, input, out, 2);
    assert_memory_equal(out, input, sizeof out);
    ms_denoised(&ms, 3, model_out, input, out, 2);
    assert_memory_equal(out, model_out, sizeof out);
    ms_release(&ms);
}

/* Perfect predictions of noise e in x = x0 + sigma e give x0 back, whatever the model says it
 * predicts. */
static void every_type_undoes_its_noise(void **state)
{
    (void)state;
    static const enum ms_type type[] = { MS_EPS, MS_V, MS_EDM, MS_X0, MS_CONST };
    const double x0 = 0.7, e = -1.3;
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        for (int k = 0; k < 5; k++) {
            struct msampling ms;
            float sigma = (float[]) { 0.05f, 0.3f, 0.9f, 0.5f, 0.99f }[k];
            bool is_flow = type[i] == MS_CONST;
            double data = type[i] == MS_EDM ? 0.5 : 1, s = sigma, var = s * s + data * data;
            init(&ms, (struct ms_config) { .type = type[i],
                                           .table = is_flow ? MS_FLOW : MS_DISCRETE,
                                           .sigma_data = data });
            float latent = (float)x0, noise = (float)e, x, d;
            ms_noise(&ms, sigma, &noise, &latent, false, &x, 1);
            double said[] = { [MS_EPS] = e,
                              [MS_V] = (x * data * data / var - x0) / (s * data / sqrt(var)),
                              [MS_EDM] = (x0 - x * data * data / var) / (s * data / sqrt(var)),
                              [MS_X0] = x0,
                              [MS_CONST] = e - x0 };
            float out = (float)said[type[i]];
            ms_denoised(&ms, sigma, &out, &x, &d, 1);
            assert_float_equal(d, (float)x0, 1e-5f);
            ms_release(&ms);
        }
}

static void the_most_noise(void **state)
{
    (void)state;
    struct msampling ms;
    init(&ms, (struct ms_config) { 0 });
    assert_true(ms_max_denoise(&ms, ms_sigma_max(&ms)));
    assert_true(ms_max_denoise(&ms, 14.6145f) && ms_max_denoise(&ms, 20));
    assert_false(ms_max_denoise(&ms, 14.61f));
    ms_release(&ms);
}

/* Timesteps and levels are each other's inverse, in every table. */
static void there_and_back(void **state)
{
    (void)state;
    static const struct ms_config all[] = {
        { .table = MS_DISCRETE },
        { .table = MS_DISCRETE, .lcm = true },
        { .table = MS_CONTINUOUS_EDM },
        { .table = MS_FLOW, .type = MS_CONST },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct msampling ms;
        init(&ms, all[i]);
        for (size_t k = 0; k < ms.n; k++) {
            near((double)ms_sigma(&ms, ms_timestep(&ms, ms.sigma[k])), (double)ms.sigma[k]);
            assert_true(k == 0 || ms.sigma[k] > ms.sigma[k - 1]);
        }
        ms_release(&ms);
    }
}

static void bad_numbers_are_refused(void **state)
{
    (void)state;
    struct msampling ms;
    berth_err err;
    struct ms_config c = { .table = MS_CONTINUOUS_EDM, .sigma_min = 5, .sigma_max = 2 };
    assert_fails(ms_init(&ms, &c, &err), err, BERTH_EINVAL, "from 5 to 2");
    c = (struct ms_config) { .table = MS_FLOW, .shift = -1 };
    assert_fails(ms_init(&ms, &c, &err), err, BERTH_EINVAL, "shift of -1");
    c = (struct ms_config) { .table = MS_FLUX, .shift = 900 };
    assert_fails(ms_init(&ms, &c, &err), err, BERTH_EINVAL, "shift of 900");
    c = (struct ms_config) { .table = MS_FLUX, .shift = 88.73 };
    assert_fails(ms_init(&ms, &c, &err), err, BERTH_EINVAL, "shift of 88.73");
    c = (struct ms_config) { .table = MS_FLOW, .multiplier = NAN };
    assert_fails(ms_init(&ms, &c, &err), err, BERTH_EINVAL, "multiplier of nan");
    c = (struct ms_config) { .sigma_data = -1 };
    assert_fails(ms_init(&ms, &c, &err), err, BERTH_EINVAL, "sigma_data is -1");
    assert_null(ms.sigma);
    ms_release(&ms);
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        struct msampling ms;
        berth_err err = { 0 };
        oom_after(k);
        s = ms_init(&ms, &(struct ms_config) { 0 }, &err);
        oom_off();
        assert_true(!s || (s == BERTH_ENOMEM && !ms.sigma && err.msg[0]));
        ms_release(&ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(discrete),
        cmocka_unit_test(zero_terminal_snr),
        cmocka_unit_test(distilled),
        cmocka_unit_test(continuous),
        cmocka_unit_test(flow),
        cmocka_unit_test(predictions_of_the_picture),
        cmocka_unit_test(every_type_undoes_its_noise),
        cmocka_unit_test(the_most_noise),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(bad_numbers_are_refused),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
