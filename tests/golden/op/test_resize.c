/* Resampling against torch, Pillow and ComfyUI: data/, made by tools/golden/resize.py. */
#include "support/test.h"

#include "op/resize.h"

#include <math.h>

#define DATA BERTH_SOURCE_DIR "/tests/golden/op/data/"

static void fill(float *x, size_t n, bool latent)
{
    for (size_t i = 0; i < n; i++) {
        float v = (float)((uint32_t)(i * 2654435761u) >> 8) / (float)(1 << 24) * 1.25f - 0.125f;
        x[i] = latent ? v * 6 - 3 : v;
    }
}

/* Rows 3 and 4 are zero, column 6 is column 5 the other way: what resize.py does to its first. */
static void special(float *x, const struct resize_shape *s)
{
    for (size_t k = 0; k < s->c; k++)
        for (size_t y = 0; y < s->h; y++) {
            float *row = x + (k * s->h + y) * s->w;
            for (size_t i = 0; i < s->w; i++)
                row[i] = y == 3 || y == 4 ? 0 : i == 6 ? -row[5] : row[i];
        }
}

/* How far a result may be off, relative where it is above 1. torch adds in another order than we
 * do, for area only when one pixel is left; lanczos and nearest have only one way. */
static double tolerance(enum resize m)
{
    static const double of[] = { [RESIZE_BILINEAR] = 2e-6,
                                 [RESIZE_BICUBIC] = 1e-5,
                                 [RESIZE_AREA] = 1e-6,
                                 [RESIZE_BISLERP] = 5e-5 };
    return of[m];
}

static void compare(const char *line, enum resize m, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]) / fmax(1, fabs((double)want[i]));
        if (!(off <= tolerance(m)))
            fail_msg("%s: value %zu is %.9g, reference %.9g", line, i, (double)got[i],
                     (double)want[i]);
    }
}

static size_t one_case(const char *line, FILE *bin, struct tpool *pool, bool first_latent)
{
    char name[32];
    struct resize_shape s;
    enum resize m;
    berth_err err;
    assert_int_equal(
        sscanf(line, "%31s %zu %zu %zu %zu %zu %zu", name, &s.n, &s.h, &s.w, &s.c, &s.oh, &s.ow),
        7);
    assert_true(resize_parse(name, &m));
    size_t from = s.n * s.h * s.w * s.c, to = s.n * s.oh * s.ow * s.c;
    float *src = malloc(from * sizeof *src), *got = malloc(to * sizeof *got);
    float *want = malloc(to * sizeof *want);
    assert_true(src && got && want);
    assert_int_equal(fread(want, sizeof *want, to, bin), to); /* x86 and ARM: little-endian */
    fill(src, from, m == RESIZE_BISLERP);
    if (first_latent)
        special(src, &s);
    for (int round = 0; round < 2; round++) {
        struct tpool *p = round ? pool : NULL;
        memset(got, 0xff, to * sizeof *got);
        if (m == RESIZE_BISLERP)
            assert_ok(op_bislerp(&s, src, got, p, NULL, &err), err);
        else
            assert_ok(op_resize(m, &s, src, got, p, NULL, &err), err);
        compare(line, m, got, want, to);
    }
    free(src), free(got), free(want);
    return m == RESIZE_BISLERP;
}

static void equals_the_reference(void **state)
{
    (void)state;
    FILE *index = fopen(DATA "resize.txt", "r"), *bin = fopen(DATA "resize.bin", "rb");
    assert_true(index && bin);
    struct tpool *pool;
    berth_err err;
    assert_ok(tpool_new(3, &pool, &err), err);
    char line[128];
    size_t cases = 0, latents = 0;
    while (fgets(line, sizeof line, index)) {
        line[strcspn(line, "\n")] = 0;
        bool first = latents == 0 && strncmp(line, "bislerp", 7) == 0;
        latents += one_case(line, bin, pool, first);
        cases++;
    }
    assert_true(cases > 75 && latents == 7);
    assert_int_equal(fgetc(bin), EOF);
    tpool_free(pool);
    fclose(index), fclose(bin);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equals_the_reference) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
