/* Latents into networks and out of them, and their previews. */
#include "support/test.h"

#include "model/latent_format.h"

#include <math.h>
#include <stdlib.h>

static const struct latent_format *const all[] = { &latent_sd1, &latent_sdxl, &latent_playground,
                                                   &latent_sd3, &latent_flux };

static void out_undoes_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        size_t c = all[i]->channels, hw = 6, n = 2;
        float z[2 * 16 * 6] = { 0 }, was[2 * 16 * 6] = { 0 };
        const struct shape s = { 4, { n, c, 2, hw / 2 } };
        assert_true(latent_is(all[i], &s));
        for (size_t k = 0; k < n * c * hw; k++)
            z[k] = was[k] = (float)k / 7 - 5;
        latent_in(all[i], z, &s);
        assert_true(fabsf(z[0] - was[0]) > 1e-3f);
        latent_out(all[i], z, &s);
        for (size_t k = 0; k < n * c * hw; k++)
            assert_true(fabsf(z[k] - was[k]) < 1e-4f);
    }
}

static void into_the_model(void **state)
{
    float sd1[4] = { 1, 2, 3, 4 }, flux[16] = { 1 }, edm[4] = { 1, 1, 1, 1 };
    (void)state;
    latent_in(&latent_sd1, sd1, &(struct shape) { 4, { 1, 4, 1, 1 } });
    assert_true(fabsf(sd1[1] - 2 * 0.18215f) < 1e-7f);
    latent_in(&latent_flux, flux, &(struct shape) { 4, { 1, 16, 1, 1 } });
    assert_true(fabsf(flux[0] - (1 - 0.1159f) * 0.3611f) < 1e-7f);
    latent_in(&latent_playground, edm, &(struct shape) { 4, { 1, 4, 1, 1 } });
    assert_true(fabsf(edm[0] - (1 + 1.6574f) * 0.5f / 8.4927f) < 1e-7f);
    assert_true(fabsf(edm[3] - (1 - 2.5155f) * 0.5f / 5.2299f) < 1e-7f);
}

static void previews_are_cut_to_bytes(void **state)
{
    /* two positions: black where values are far below, and a sum by hand */
    float z[8] = { -100, 1, -100, 0, 0, 0, 0, 0 };
    uint8_t rgb[6];
    const struct latent_format none = { .channels = 4, .rank = 2 };
    const struct shape s = { 4, { 1, 4, 1, 2 } };
    (void)state;
    assert_true(latent_preview(&latent_sd1, z, &s, rgb));
    assert_int_equal(rgb[0], 0);
    assert_int_equal(rgb[3], (int)(255.0 * (1 + 0.3512) / 2));
    assert_int_equal(rgb[4], (int)(255.0 * (1 + 0.2297) / 2));
    assert_true(latent_preview(&latent_sdxl, z, &s, rgb));
    assert_int_equal(rgb[3], (int)(255.0 * (1 + 0.3651 + 0.1084) / 2));
    z[0] = 1e30f, z[1] = NAN;
    assert_true(latent_preview(&latent_sd1, z, &s, rgb));
    assert_int_equal(rgb[0], 255);
    assert_int_equal(rgb[3], 0);
    assert_false(latent_preview(&none, z, &s, rgb));
}

/* Flux.2's have four pixels in one: a preview has twice their sides. */
static void previews_unpack(void **state)
{
    enum { H = 2, W = 3, N = 128 * H * W };
    const struct shape s = { 4, { 1, 128, H, W } };
    float *z = calloc(N, sizeof *z);
    uint8_t rgb[3 * 4 * H * W];
    (void)state;
    assert_non_null(z);
    assert_int_equal(latent_preview_side(&latent_flux2, W), 2 * W);
    assert_int_equal(latent_preview_side(&latent_flux, W), W);
    /* channel 3 of the pixel (1, 0) of latent (1, 2) is at row 3, column 4 of the picture */
    z[(3 * 4 + 2) * H * W + 1 * W + 2] = 1;
    assert_true(latent_preview(&latent_flux2, z, &s, rgb));
    const double none[3] = { -0.0329, -0.0718, -0.0851 }, one[3] = { 0.2144, 0.3009, 0.3652 };
    for (size_t i = 0; i < 4 * H * W; i++)
        for (size_t k = 0; k < 3; k++) {
            double v = none[k] + (i == 3 * (2 * W) + 4 ? one[k] : 0);
            assert_int_equal(rgb[3 * i + k], (int)(255.0 * (1 + v) / 2));
        }
    free(z);
}

/* Of video: its first frame, the channels of which lie a film apart. */
static void previews_show_the_first_frame(void **state)
{
    struct latent_format video = latent_sd1;
    const struct shape one = { 4, { 1, 4, 1, 2 } }, film = { 5, { 2, 4, 3, 1, 2 } };
    float z[2 * 4 * 3 * 2], first[8];
    uint8_t want[6], got[6];
    (void)state;
    video.rank = 3;
    for (size_t i = 0; i < ARRAY_LEN(z); i++)
        z[i] = (float)(i % 11) / 5 - 1;
    for (size_t c = 0; c < 4; c++)
        memcpy(first + 2 * c, z + 6 * c, 2 * sizeof *z);
    assert_true(latent_is(&video, &film) && !latent_is(&video, &one));
    assert_true(latent_is(&latent_sd1, &one) && !latent_is(&latent_sd1, &film));
    assert_true(latent_preview(&latent_sd1, first, &one, want));
    assert_true(latent_preview(&video, z, &film, got));
    assert_memory_equal(got, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_undoes_in),
        cmocka_unit_test(into_the_model),
        cmocka_unit_test(previews_are_cut_to_bytes),
        cmocka_unit_test(previews_unpack),
        cmocka_unit_test(previews_show_the_first_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
