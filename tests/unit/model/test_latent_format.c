/* Latents into networks and out of them, and their previews. */
#include "support/test.h"

#include "model/diffusion.h"

#include <math.h>

static const struct latent_format *const all[] = { &latent_sd1, &latent_sdxl, &latent_playground,
                                                   &latent_sd3, &latent_flux };

static void out_undoes_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        size_t c = all[i]->channels, hw = 6, n = 2;
        float z[2 * 16 * 6] = { 0 }, was[2 * 16 * 6] = { 0 };
        for (size_t k = 0; k < n * c * hw; k++)
            z[k] = was[k] = (float)k / 7 - 5;
        latent_in(all[i], z, n, c, hw);
        assert_true(fabsf(z[0] - was[0]) > 1e-3f);
        latent_out(all[i], z, n, c, hw);
        for (size_t k = 0; k < n * c * hw; k++)
            assert_true(fabsf(z[k] - was[k]) < 1e-4f);
    }
}

static void into_the_model(void **state)
{
    float sd1[4] = { 1, 2, 3, 4 }, flux[16] = { 1 }, edm[4] = { 1, 1, 1, 1 };
    (void)state;
    latent_in(&latent_sd1, sd1, 1, 4, 1);
    assert_true(fabsf(sd1[1] - 2 * 0.18215f) < 1e-7f);
    latent_in(&latent_flux, flux, 1, 16, 1);
    assert_true(fabsf(flux[0] - (1 - 0.1159f) * 0.3611f) < 1e-7f);
    latent_in(&latent_playground, edm, 1, 4, 1);
    assert_true(fabsf(edm[0] - (1 + 1.6574f) * 0.5f / 8.4927f) < 1e-7f);
    assert_true(fabsf(edm[3] - (1 - 2.5155f) * 0.5f / 5.2299f) < 1e-7f);
}

static void previews_are_cut_to_bytes(void **state)
{
    /* two positions: black where values are far below, and a sum by hand */
    float z[8] = { -100, 1, -100, 0, 0, 0, 0, 0 };
    uint8_t rgb[6];
    struct latent_format none = { .channels = 4 };
    (void)state;
    assert_true(latent_preview(&latent_sd1, z, 2, rgb));
    assert_int_equal(rgb[0], 0);
    assert_int_equal(rgb[3], (int)(255.0 * (1 + 0.3512) / 2));
    assert_int_equal(rgb[4], (int)(255.0 * (1 + 0.2297) / 2));
    assert_true(latent_preview(&latent_sdxl, z, 2, rgb));
    assert_int_equal(rgb[3], (int)(255.0 * (1 + 0.3651 + 0.1084) / 2));
    z[0] = 1e30f, z[1] = NAN;
    assert_true(latent_preview(&latent_sd1, z, 2, rgb));
    assert_int_equal(rgb[0], 255);
    assert_int_equal(rgb[3], 0);
    assert_false(latent_preview(&none, z, 2, rgb));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_undoes_in),
        cmocka_unit_test(into_the_model),
        cmocka_unit_test(previews_are_cut_to_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
