/* Resampling: what must hold for every size, with and without a pool, and when memory runs out. */
#include "support/oom.h"
#include "support/rng.h"
#include "support/test.h"

#include "op/resize.h"

#include <math.h>

static const enum resize methods[] = { RESIZE_NEAREST, RESIZE_BILINEAR, RESIZE_AREA, RESIZE_BICUBIC,
                                       RESIZE_LANCZOS };

static float *noise(struct rng *r, size_t n)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_u64(r) >> 40) / (float)(1 << 24);
    return x;
}

static berth_status resize(enum resize m, const struct resize_shape *s, const float *src,
                           float *dst, struct tpool *pool, berth_err *err)
{
    return m == RESIZE_BISLERP ? op_bislerp(s, src, dst, pool, NULL, err)
                               : op_resize(m, s, src, dst, pool, NULL, err);
}

static void names(void **state)
{
    (void)state;
    enum resize m;
    assert_true(resize_parse("nearest-exact", &m) && m == RESIZE_NEAREST);
    assert_true(resize_parse("bislerp", &m) && m == RESIZE_BISLERP);
    assert_false(resize_parse("nearest", &m));
    assert_false(resize_parse("", &m));
}

static void same_size_is_the_same(void **state)
{
    (void)state;
    struct rng r = { .state = 7 };
    struct resize_shape s = { 2, 5, 7, 4, 5, 7 };
    float *src = noise(&r, 280), dst[280];
    berth_err err;
    for (size_t k = 0; k <= RESIZE_BISLERP; k++) {
        assert_ok(resize((enum resize)k, &s, src, dst, NULL, &err), err);
        for (size_t i = 0; i < 280; i++) {
            float want = k == RESIZE_LANCZOS ? floorf(255 * src[i]) / 255 : src[i];
            assert_float_equal(dst[i], want, 1e-6f);
        }
    }
    free(src);
}

/* Where the centre of a pixel falls between two, the last bit decides, and torch has two ways to
 * it; numbers from torch, eight rows high. */
static void nearest_takes_the_side_torch_takes(void **state)
{
    (void)state;
    static const struct {
        size_t in, out, last[8]; /* of the first so many source pixels: the last that shows it */
    } cases[] = { { 2, 41, { 20, 40 } },
                  { 2, 121, { 59, 120 } },
                  { 4, 82, { 20, 40, 60, 81 } },
                  { 8, 164, { 19, 40, 60, 81, 101, 122, 143, 163 } },
                  { 6, 249, { 40, 82, 123, 165, 206, 248 } } };
    const float src[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    float dst[8 * 256];
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct resize_shape s = { 1, 1, cases[i].in, 1, 8, cases[i].out };
        assert_ok(resize(RESIZE_NEAREST, &s, src, dst, NULL, &err), err);
        for (size_t k = 0, from = 0; k < cases[i].out; k++) {
            if (dst[k] != src[from])
                fail_msg("%zu to %zu: pixel %zu shows %g, not %g", cases[i].in, cases[i].out, k,
                         (double)dst[k], (double)src[from]);
            from += k == cases[i].last[from];
        }
    }
}

/* A flat picture stays flat, whatever the sizes: weights add up to one. */
static void flat_stays_flat(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (int round = 0; round < 200; round++) {
        struct resize_shape s = { 1,
                                  1 + rng_below(&r, 40),
                                  1 + rng_below(&r, 40),
                                  (size_t[]) { 1, 3, 4 }[rng_below(&r, 3)],
                                  1 + rng_below(&r, 40),
                                  1 + rng_below(&r, 40) };
        size_t from = s.h * s.w * s.c, to = s.oh * s.ow * s.c;
        float *src = malloc(from * sizeof *src), *dst = malloc(to * sizeof *dst);
        assert_true(src && dst);
        for (size_t i = 0; i < from; i++)
            src[i] = 1;
        for (size_t k = 0; k < ARRAY_LEN(methods); k++) {
            assert_ok(op_resize(methods[k], &s, src, dst, NULL, NULL, &err), err);
            for (size_t i = 0; i < to; i++)
                if (fabsf(dst[i] - 1) > 1e-5f)
                    fail_msg("method %zu, %zu x %zu x %zu to %zu x %zu: %g", k, s.w, s.h, s.c, s.ow,
                             s.oh, (double)dst[i]);
        }
        free(src), free(dst);
    }
}

static void a_pool_changes_no_number(void **state)
{
    (void)state;
    struct rng r = { .state = 5 };
    struct resize_shape s = { 2, 61, 83, 4, 97, 131 };
    size_t from = s.n * s.h * s.w * s.c, to = s.n * s.oh * s.ow * s.c;
    float *src = noise(&r, from), *one = malloc(to * sizeof *one),
          *many = malloc(to * sizeof *many);
    struct tpool *pool;
    berth_err err;
    assert_true(one && many);
    assert_ok(tpool_new(4, &pool, &err), err);
    for (size_t k = 0; k <= RESIZE_BISLERP; k++) {
        assert_ok(resize((enum resize)k, &s, src, one, NULL, &err), err);
        memset(many, 0xff, to * sizeof *many);
        assert_ok(resize((enum resize)k, &s, src, many, pool, &err), err);
        assert_memory_equal(one, many, to * sizeof *one);
    }
    tpool_free(pool);
    free(src), free(one), free(many);
}

static void outside_values(void **state)
{
    (void)state;
    const float src[4] = { NAN, INFINITY, -INFINITY, 0.5f };
    struct resize_shape s = { 1, 1, 4, 1, 1, 4 };
    float dst[4];
    berth_err err;
    assert_ok(op_resize(RESIZE_LANCZOS, &s, src, dst, NULL, NULL, &err), err);
    assert_true(dst[0] == 0 && dst[1] == 1 && dst[2] == 0);
    assert_float_equal(dst[3], 127.0f / 255, 1e-7f);
}

static void refused(void **state)
{
    (void)state;
    float x[16] = { 0 }, d[16];
    berth_err err;
    struct resize_shape s = { 1, 2, 2, 1, 0, 2 };
    assert_fails(op_resize(RESIZE_AREA, &s, x, d, NULL, NULL, &err), err, BERTH_EINVAL, "to 2 x 0");
    s = (struct resize_shape) { 1, 2, 2, 2, 2, 2 };
    assert_fails(op_resize(RESIZE_LANCZOS, &s, x, d, NULL, NULL, &err), err, BERTH_EINVAL,
                 "2 channels");
    assert_fails(op_resize(RESIZE_BISLERP, &s, x, d, NULL, NULL, &err), err, BERTH_EINVAL,
                 "planar");
    s = (struct resize_shape) { SIZE_MAX / 2, 2, 2, 1, 2, 2 };
    assert_fails(op_resize(RESIZE_AREA, &s, x, d, NULL, NULL, &err), err, BERTH_ELIMIT, "2 x 2");
    s = (struct resize_shape) { 1, 1, 1, 1, 1, (size_t)1 << 30 };
    assert_fails(op_bislerp(&s, x, d, NULL, NULL, &err), err, BERTH_ELIMIT, "a side");
    s = (struct resize_shape) { 0, 2, 2, 1, 2, 2 };
    assert_ok(op_resize(RESIZE_BICUBIC, &s, x, d, NULL, NULL, &err), err);
}

static void survives_exhaustion(void **state)
{
    (void)state;
    struct rng r = { .state = 9 };
    struct resize_shape s = { 1, 6, 5, 4, 9, 3 };
    float *src = noise(&r, 120), dst[108];
    for (size_t k = 0; k <= RESIZE_BISLERP; k++) {
        berth_status st = BERTH_ENOMEM;
        for (long left = 0; st; left++) {
            berth_err err = { 0 };
            oom_after(left);
            st = resize((enum resize)k, &s, src, dst, NULL, &err);
            oom_off();
            assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && err.msg[0]));
        }
    }
    free(src);
}

/* Numbers of ComfyUI's common_upscale(crop="center"). */
static void center(void **state)
{
    (void)state;
    static const struct {
        size_t w, h, ow, oh;
        struct resize_crop want;
    } t[] = {
        { 100, 50, 50, 50, { 25, 0, 50, 50 } },
        { 50, 100, 50, 50, { 0, 25, 50, 50 } },
        { 64, 64, 512, 512, { 0, 0, 64, 64 } },
        { 101, 50, 50, 50, { 26, 0, 49, 50 } },
        { 1920, 1080, 1024, 1024, { 420, 0, 1080, 1080 } },
        { 7, 5, 3, 4, { 2, 0, 3, 5 } },
        { 103, 50, 50, 50, { 26, 0, 51, 50 } },
        { 13, 9, 16, 9, { 0, 1, 13, 7 } },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct resize_crop c = resize_center(t[i].w, t[i].h, t[i].ow, t[i].oh);
        if (memcmp(&c, &t[i].want, sizeof c) != 0)
            fail_msg("%zu x %zu for %zu x %zu: %zu %zu %zu %zu", t[i].w, t[i].h, t[i].ow, t[i].oh,
                     c.x, c.y, c.w, c.h);
    }
    struct resize_crop c = resize_center(2, 1000, 1000, 1); /* never nothing */
    assert_true(c.w == 2 && c.h >= 1);
    c = resize_center(2, 1, 1, 1000);
    assert_true(c.w >= 1 && c.x + c.w <= 2);
}

/* A cancel is looked at before every row: with one set, no pixel is made. */
static void canceled(void **state)
{
    const struct resize_shape s = { 1, 6, 5, 4, 9, 3 };
    float src[120], dst[108];
    atomic_bool cancel;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(src); i++)
        src[i] = (float)i / 120.0f;
    for (int m = RESIZE_NEAREST; m <= RESIZE_BISLERP; m++)
        for (int on = 1; on >= 0; on--) {
            berth_err err;
            bool bislerp = m == RESIZE_BISLERP;
            atomic_init(&cancel, on);
            for (size_t i = 0; i < ARRAY_LEN(dst); i++)
                dst[i] = 7;
            berth_status st = bislerp
                                  ? op_bislerp(&s, src, dst, NULL, &cancel, &err)
                                  : op_resize((enum resize)m, &s, src, dst, NULL, &cancel, &err);
            assert_int_equal(st, on ? BERTH_ECANCELED : BERTH_OK);
            for (size_t i = 0; i < ARRAY_LEN(dst); i++)
                assert_true((dst[i] == 7) == (on == 1));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canceled),
        cmocka_unit_test(names),
        cmocka_unit_test(same_size_is_the_same),
        cmocka_unit_test(nearest_takes_the_side_torch_takes),
        cmocka_unit_test(flat_stays_flat),
        cmocka_unit_test(a_pool_changes_no_number),
        cmocka_unit_test(outside_values),
        cmocka_unit_test(refused),
        cmocka_unit_test(survives_exhaustion),
        cmocka_unit_test(center),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
