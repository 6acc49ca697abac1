/* Operations on latents: numbers worked out by hand, and what they refuse. */
#include "sample/guide.h"
#include "sample/latent_operation.h"
#include "support/test.h"

#include <math.h>

static void long_vectors_are_drawn_in(void **state)
{
    /* one channel, lengths 1 and 3: mean 2, sample deviation sqrt(2) */
    struct latent_operation op = { .kind = LATENT_TONEMAP, .multiplier = 0.5 };
    struct shape s = { .ndim = 4, .dim = { 1, 1, 1, 2 } };
    float x[] = { -1, 3 };
    double top = (5 * sqrt(2) + 2) / 2;
    berth_err err;
    (void)state;
    assert_ok(latent_operation_run(&op, &s, x, x, &err), err);
    assert_true(fabs((double)x[0] + 1 / (1 / top + 1)) < 1e-6);
    assert_true(fabs((double)x[1] - 3 / (3 / top + 1)) < 1e-6);
}

static void directions_are_sharpened(void **state)
{
    /* one channel: directions are signs; a kernel of 1/3 each where sigma is large */
    struct latent_operation op = {
        .kind = LATENT_SHARPEN, .radius = 1, .sigma = 1e6, .alpha = 0.1
    };
    struct shape s = { .ndim = 4, .dim = { 1, 1, 2, 3 } };
    float x[] = { 2, -4, 2, 2, -4, 2 }, out[6];
    berth_err err;
    (void)state;
    assert_ok(latent_operation_run(&op, &s, x, out, &err), err);
    /* blurred: -1/3 at the edge (mirrored), 1/3 in the middle; x + 1 * (x - blurred) */
    assert_true(fabs((double)out[0] - 2 * (2 + 1.0 / 3)) < 1e-4);
    assert_true(fabs((double)out[1] + 4 * (2 + 1.0 / 3)) < 1e-4);
}

static void what_cannot_be_sharpened(void **state)
{
    struct latent_operation op = { .kind = LATENT_SHARPEN, .radius = 2, .sigma = 1 };
    struct shape small = { .ndim = 4, .dim = { 1, 1, 2, 9 } };
    struct shape video = { .ndim = 5, .dim = { 1, 1, 2, 9, 9 } };
    float x[162] = { 0 };
    berth_err err;
    (void)state;
    assert_fails(latent_operation_run(&op, &small, x, x, &err), err, BERTH_EINVAL, "[1, 1, 2, 9]");
    assert_fails(latent_operation_run(&op, &video, x, x, &err), err, BERTH_EINVAL, "radius 2");
    op.radius = 32;
    assert_fails(latent_operation_run(&op, &small, x, x, &err), err, BERTH_EINVAL, "radius 32");
}

/* LatentApplyOperationCFG: on the difference, before cfg; numbers travel in a patch. */
static void guidance_is_operated_on(void **state)
{
    struct latent_operation op = { .kind = LATENT_TONEMAP, .multiplier = 2 };
    struct shape s = { .ndim = 4, .dim = { 1, 2, 1, 2 } };
    struct guide_patch p = { .is = &guide_latent_operation };
    float cond[] = { 1, 2, -3, 4 }, uncond[] = { 0.5f, -1, 2, 0 }, want[4];
    struct guide_moment m = {
        .b = 1, .c = 2, .planes = 1, .h = 1, .w = 2, .n = 4, .cond = cond, .uncond = uncond
    };
    berth_err err;
    (void)state;
    for (int i = 0; i < 4; i++)
        want[i] = cond[i] - uncond[i];
    assert_ok(latent_operation_run(&op, &s, want, want, &err), err);
    latent_operation_put(&op, p.p);
    assert_ok(p.is->before(&m, &p, &err), err);
    for (int i = 0; i < 4; i++)
        assert_true(cond[i] == want[i] + uncond[i]);
    op = (struct latent_operation) { .kind = LATENT_SHARPEN, .radius = 3, .sigma = 1, .alpha = 2 };
    latent_operation_put(&op, p.p);
    assert_fails(p.is->before(&m, &p, &err), err, BERTH_EINVAL, "radius 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_vectors_are_drawn_in),
        cmocka_unit_test(directions_are_sharpened),
        cmocka_unit_test(what_cannot_be_sharpened),
        cmocka_unit_test(guidance_is_operated_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
