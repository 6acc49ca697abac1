/* Context windows against ComfyUI's (tools/golden/patches.py): their frames at every step, how much
 * each frame counts, and noise shuffled for them. */
#include "support/json_file.h"
#include "support/test.h"

#include "base/arena.h"
#include "sample/windows.h"

#include <math.h>

#define DATA BERTH_SOURCE_DIR "/tests/golden/node/data/windows.json"

static size_t number(const json_t *row, const char *key)
{
    return (size_t)json_integer_value(json_object_get(row, key));
}

static struct windows read_row(const json_t *row)
{
    static const char *const names[] = { "standard_static", "standard_uniform", "looped_uniform",
                                         "batched" };
    struct windows w = { .length = number(row, "length"),
                         .overlap = number(row, "overlap"),
                         .stride = number(row, "stride"),
                         .closed = json_is_true(json_object_get(row, "closed")),
                         .step = number(row, "step"),
                         .dim = 2 };
    const char *schedule = json_string_value(json_object_get(row, "schedule"));
    size_t i = 0;
    while (strcmp(names[i], schedule) != 0)
        assert_true(++i < ARRAY_LEN(names));
    w.schedule = (enum windows_schedule)i;
    return w;
}

static void weights_of(struct windows *w, const struct window *x, size_t at, const json_t *row)
{
    static const struct {
        const char *name;
        enum windows_fuse fuse;
    } kind[] = { { "pyramid", FUSE_PYRAMID },
                 { "flat", FUSE_FLAT },
                 { "overlap-linear", FUSE_OVERLAP } };
    float got[64];
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        const json_t *want =
            json_array_get(json_object_get(json_object_get(row, "weights"), kind[i].name), at);
        if (!want || (kind[i].fuse == FUSE_OVERLAP && w->overlap < 2))
            continue; /* a ramp of nothing, or of one: torch has its own idea of it */
        w->fuse = kind[i].fuse;
        windows_weights(w, x, number(row, "frames"), got);
        assert_int_equal(json_array_size(want), x->n);
        for (size_t k = 0; k < x->n; k++)
            assert_true(fabs((double)got[k] - json_number_value(json_array_get(want, k))) < 1e-6);
    }
}

static void every_row(void **state)
{
    json_t *rows;
    berth_err err = { 0 };
    (void)state;
    assert_ok(js_parse_file(DATA, NULL, &rows, &err), err);
    assert_true(json_array_size(rows) > 50);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *want = json_object_get(row, "windows");
        struct windows w = read_row(row);
        struct arena mem = { 0 };
        struct vec got = { .elem = sizeof(struct window) };
        const size_t frames = number(row, "frames");
        assert_ok(windows_make(&w, frames, &mem, &got, &err), err);
        assert_int_equal(got.n, json_array_size(want));
        for (size_t k = 0; k < got.n; k++) {
            const struct window *x = vec_at(&got, k);
            const json_t *list = json_array_get(want, k);
            assert_int_equal(x->n, json_array_size(list));
            for (size_t f = 0; f < x->n; f++)
                assert_int_equal(x->frame[f], json_integer_value(json_array_get(list, f)));
            weights_of(&w, x, k, row);
        }
        float noise[64];
        for (size_t k = 0; k < frames; k++)
            noise[k] = (float)k;
        const struct shape s = { 5, { 1, 1, frames, 1, 1 } };
        assert_ok(windows_noise(&w, number(row, "seed"), &s, noise, &err), err);
        for (size_t k = 0; k < frames; k++)
            assert_true((double)noise[k] ==
                        json_number_value(json_array_get(json_object_get(row, "noise"), k)));
        vec_release(&got);
        arena_release(&mem);
    }
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_row) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
