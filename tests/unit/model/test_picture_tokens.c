/* Tokens of pictures: which pixel goes where, odd sides, batches, angles of every place, room. */
#include "support/oom.h"
#include "support/test.h"

#include "model/families.h"
#include "model/picture_tokens.h"
#include "model/rope_table.h"

#define C 3
#define FEATURES (C * TOKENS_PATCH * TOKENS_PATCH)

/* Every pixel says where it is. */
static float pixel(size_t c, size_t t, size_t i, size_t j)
{
    return (float)(((c * 8 + t) * 32 + i) * 32 + j);
}

static float *latent(const struct shape *s)
{
    uint64_t n;
    assert_true(shape_count(s, &n));
    float *x = malloc((size_t)n * sizeof *x), *at = x;
    assert_non_null(x);
    for (size_t c = 0; c < s->dim[1]; c++)
        for (size_t t = 0; t < s->dim[2]; t++)
            for (size_t i = 0; i < s->dim[3]; i++)
                for (size_t j = 0; j < s->dim[4]; j++)
                    *at++ = pixel(c, t, i, j);
    return x;
}

static void pixels_go_to_tokens_and_back(void **state)
{
    static const struct shape list[] = { { 5, { 1, C, 1, 4, 6 } },
                                         { 5, { 1, C, 2, 5, 3 } },
                                         { 5, { 1, C, 1, 1, 1 } } };
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(list); k++) {
        const struct shape *s = &list[k];
        const size_t h = (size_t)s->dim[3], w = (size_t)s->dim[4];
        const size_t rows = (h + 1) / 2, cols = (w + 1) / 2, n = (size_t)tokens_count(s);
        float *x = latent(s), *tokens = malloc(n * FEATURES * sizeof *tokens);
        assert_int_equal(n, s->dim[2] * rows * cols);
        assert_non_null(tokens);
        assert_ptr_equal(tokens_from(x, s, tokens), tokens + n * FEATURES);
        for (size_t i = 0; i < n * FEATURES; i++) {
            const size_t token = i / FEATURES, f = i % FEATURES, at = token % (rows * cols);
            const size_t row = at / cols * 2 + f / 2 % 2, col = at % cols * 2 + f % 2;
            assert_true(tokens[i] == pixel(f / 4, token / (rows * cols), row % h, col % w));
        }
        uint64_t all;
        assert_true(shape_count(s, &all));
        float *back = calloc((size_t)all, sizeof *back);
        assert_non_null(back);
        assert_ptr_equal(tokens_to(tokens, s, back), tokens + n * FEATURES);
        assert_memory_equal(back, x, (size_t)all * sizeof *x);
        free(x), free(tokens), free(back);
    }
}

/* Items one behind the other, each with its own pictures behind it. */
static void batches_have_their_pictures_behind_them(void **state)
{
    const struct shape small = { 5, { 1, C, 1, 2, 2 } };
    float x[2 * FEATURES], ref[4][FEATURES], out[2 * 3 * FEATURES], back[2 * FEATURES];
    struct diffusion_ref list[4];
    (void)state;
    for (size_t i = 0; i < 2 * FEATURES; i++)
        x[i] = (float)i;
    for (size_t r = 0; r < 4; r++) {
        list[r] = (struct diffusion_ref) { .shape = small, .x = ref[r] };
        for (size_t i = 0; i < FEATURES; i++)
            ref[r][i] = (float)(1000 * (r + 1) + i);
    }
    const struct family_batch b = {
        .shape = { 5, { 2, C, 1, 2, 2 } }, .x = x, .ref = list, .refs = 2, .out = back
    };
    for (size_t refs = 0; refs <= 2; refs++) {
        tokens_from_batch(&b, refs, out);
        for (size_t item = 0; item < 2; item++) {
            const float *at = out + item * (1 + refs) * FEATURES;
            assert_memory_equal(at, x + item * FEATURES, sizeof x / 2);
            for (size_t r = 0; r < refs; r++)
                assert_memory_equal(at + (1 + r) * FEATURES, ref[item * 2 + r], sizeof ref[0]);
        }
    }
    tokens_from_batch(&b, 0, out);
    tokens_to_batch(out, C, &b);
    assert_memory_equal(back, x, sizeof x);
}

static void every_token_has_the_angles_of_its_place(void **state)
{
    static const uint32_t axis[TOKENS_AXES] = { 4, 6, 2 };
    static const struct shape list[] = { { 5, { 1, C, 1, 5, 6 } }, { 5, { 1, C, 3, 4, 3 } } };
    const struct tokens_place from = { .layer = 2, .row = -1, .column = 5 };
    enum { WIDE = 12 };
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(list); k++) {
        const size_t n = (size_t)tokens_count(&list[k]), cols = (size_t)tokens_side(list[k].dim[4]),
                     rows = (size_t)tokens_side(list[k].dim[3]);
        float *table = calloc(n, WIDE * sizeof *table), want[WIDE];
        assert_non_null(table);
        assert_ptr_equal(tokens_angles(1000, axis, &list[k], from, table), table + n * WIDE);
        for (size_t i = 0; i < n; i++) {
            const double frame = (double)(i / (rows * cols));
            rope_angles(1000, list[k].dim[2] > 1 ? frame : from.layer, axis[0], want);
            rope_angles(1000, from.row + (double)(i / cols % rows), axis[1], want + 4);
            rope_angles(1000, from.column + (double)(i % cols), axis[2], want + 10);
            assert_memory_equal(table + i * WIDE, want, sizeof want);
        }
        free(table);
    }
}

static void room_grows_and_is_bounded(void **state)
{
    struct tokens_room r = { 0 };
    (void)state;
    assert_true(tokens_room(&r, 2, 3, 4));
    const float *first = r.p;
    assert_true(tokens_room(&r, 2, 3, 1)); /* what is there will do */
    assert_ptr_equal(r.p, first);
    assert_false(tokens_room(&r, UINT64_MAX / 2, 3, 1));
    assert_false(tokens_room(&r, UINT64_MAX / 8, 2, 2));
    oom_after(0);
    assert_false(tokens_room(&r, 5, 5, 5));
    oom_off();
    assert_true(r.cap == 0 && !r.p);
    assert_true(tokens_room(&r, 5, 5, 5));
    assert_int_equal(r.cap, 125);
    free(r.p);
    assert_true(tokens_moderate(&(struct shape) { 5, { 1, 16, 1, 1024, 1024 } }));
    assert_false(tokens_moderate(&(struct shape) { 5, { 1, 16, 1, 1 << 20, 1 << 20 } }));
    assert_false(tokens_moderate(&(struct shape) { 5, { 1, 16, 1, 1, 1ull << 40 } }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_go_to_tokens_and_back),
        cmocka_unit_test(batches_have_their_pictures_behind_them),
        cmocka_unit_test(every_token_has_the_angles_of_its_place),
        cmocka_unit_test(room_grows_and_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
