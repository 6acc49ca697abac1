/* Every version of the low-rank product against the plain loops, bit for bit, on odd shapes. */
#include "support/op_ref.h"
#include "support/rng.h"
#include "support/test.h"

#include "op/op.h"

struct sizes {
    size_t rows, cols, rank;
};

/* Around the panels (8, 16, 32 columns), blocks of rows (4, 8), tiles (64 x 1024), packed ranks
 * (128). */
static const struct sizes shapes[] = {
    { 1, 1, 1 },    { 1, 1, 0 },      { 3, 7, 2 },      { 4, 8, 4 },     { 5, 31, 3 },
    { 8, 32, 16 },  { 9, 33, 5 },     { 7, 65, 1 },     { 64, 96, 16 },  { 65, 97, 8 },
    { 17, 47, 64 }, { 12, 1025, 4 },  { 66, 1031, 7 },  { 3, 40, 127 },  { 5, 45, 128 },
    { 9, 70, 129 }, { 2, 2060, 200 }, { 130, 2049, 3 }, { 70, 1024, 16 }
};

static float *random_floats(struct rng *r, size_t n)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((int64_t)(rng_u64(r) >> 40) - (1 << 23)) * 0x1p-22f;
    if (n > 2) /* what rounding and signs may get wrong */
        p[n / 2] = -0.0f, p[n / 3] = 1e-40f, p[n - 1] = 3e38f;
    return p;
}

static void check(const float *got, const float *want, const struct sizes *s, const char *who)
{
    for (size_t i = 0; i < s->rows * s->cols; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s, %zu x %zu rank %zu: element %zu is %a, reference %a", who, s->rows,
                     s->cols, s->rank, i, (double)got[i], (double)want[i]);
}

static void every_version_equals_the_reference(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct sizes s = shapes[i];
        size_t bytes = s.rows * s.cols * sizeof(float);
        float *w = random_floats(&r, s.rows * s.cols), *up = random_floats(&r, s.rows * s.rank);
        float *down = random_floats(&r, s.rank * s.cols), *want = malloc(bytes),
              *got = malloc(bytes);
        assert_true(want && got);
        memcpy(want, w, bytes);
        ref_lowrank_add(want, s.rows, s.cols, up, down, s.rank, -0.7f);
        for (int level = 0; level <= (int)cpu_level(); level++) {
            struct op_lowrank t = { .w = got,
                                    .rows = s.rows,
                                    .cols = s.cols,
                                    .ld_w = s.cols,
                                    .up = up,
                                    .down = down,
                                    .rank = s.rank,
                                    .ld_up = s.rank,
                                    .ld_down = s.cols,
                                    .scale = -0.7f };
            memcpy(got, w, bytes);
            op_lowrank_levels[level](&t);
            check(got, want, &s, cpu_level_name((enum cpu_level)level));
        }
        free(w), free(up), free(down), free(want), free(got);
    }
}

/* A piece in the middle of larger matrices: nothing outside of it is touched. */
static void a_tile_stays_inside(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    const struct sizes all = { 40, 90, 6 };
    float *w = random_floats(&r, 40 * 90), *up = random_floats(&r, 40 * 6);
    float *down = random_floats(&r, 6 * 90), *want = malloc(40 * 90 * sizeof *want);
    assert_non_null(want);
    memcpy(want, w, 40 * 90 * sizeof *want);
    const size_t r0 = 5, rows = 21, c0 = 11, cols = 71;
    for (size_t i = r0; i < r0 + rows; i++)
        for (size_t j = c0; j < c0 + cols; j++)
            ref_lowrank_add(&want[i * 90 + j], 1, 1, &up[i * 6],
                            (const float[]) { down[j], down[90 + j], down[180 + j], down[270 + j],
                                              down[360 + j], down[450 + j] },
                            6, 0.5f);
    op_lowrank_tile(&(struct op_lowrank) { .w = w + r0 * 90 + c0,
                                           .rows = rows,
                                           .cols = cols,
                                           .ld_w = 90,
                                           .up = up + r0 * 6,
                                           .down = down + c0,
                                           .rank = 6,
                                           .ld_up = 6,
                                           .ld_down = 90,
                                           .scale = 0.5f });
    check(w, want, &all, "tile");
    free(w), free(up), free(down), free(want);
}

static void nothing_is_fine(void **state)
{
    (void)state;
    float w = 1, factor[15] = { 0 };
    struct op_lowrank t = { .w = &w, .up = factor, .down = factor, .rank = 3, .scale = 1 };
    t.ld_up = 3;
    t.ld_down = t.cols = 5;
    op_lowrank_tile(&t);
    t.rows = 5;
    t.cols = 0;
    op_lowrank_tile(&t);
    assert_true(w == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_version_equals_the_reference),
        cmocka_unit_test(a_tile_stays_inside),
        cmocka_unit_test(nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
