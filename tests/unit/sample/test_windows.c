/* Context windows whose frames or sizes do not add up. What they are otherwise is in
 * tests/golden/node/test_windows.c. */
#include "support/oom.h"
#include "support/test.h"

#include "base/arena.h"
#include "sample/windows.h"

static berth_status make(const struct windows *w, size_t frames, bool *all, berth_err *err)
{
    struct arena mem = { 0 };
    struct vec list = { .elem = sizeof(struct window) };
    berth_status s = windows_make(w, frames, &mem, &list, err);
    *all = true;
    for (size_t f = 0; f < frames; f++) {
        bool seen = false;
        for (size_t i = 0; i < list.n; i++)
            for (size_t k = 0; k < ((struct window *)vec_at(&list, i))->n; k++)
                seen |= ((struct window *)vec_at(&list, i))->frame[k] == f;
        *all &= seen;
    }
    vec_release(&list);
    arena_release(&mem);
    return s;
}

/* Windows are good for every frame, or are refused by name: no prediction is divided by nothing. */
static void every_frame_has_a_window(void **state)
{
    (void)state;
    size_t refused = 0, made = 0;
    for (size_t schedule = WINDOWS_STATIC; schedule <= WINDOWS_BATCHED; schedule++)
        for (size_t i = 0; i < 4000; i++) {
            struct windows w = { .schedule = (enum windows_schedule)schedule,
                                 .length = 1 + i % 7,
                                 .stride = 1 + i / 7 % 4,
                                 .closed = i / 28 % 2,
                                 .step = i / 56 % 9 };
            size_t frames = w.length + 1 + i / 504 % 13;
            w.overlap = i % w.length;
            bool all;
            berth_err err = { 0 };
            berth_status s = make(&w, frames, &all, &err);
            if (s) {
                assert_int_equal(s, BERTH_EINVAL);
                assert_non_null(strstr(err.msg, schedule == WINDOWS_LOOPED ? "looped_uniform"
                                                                           : "standard_uniform"));
                refused++;
            } else {
                assert_true(all);
                made++;
            }
        }
    assert_true(made > 8000 && refused > 0);
}

static void a_frame_without_one_is_named(void **state)
{
    (void)state;
    const struct windows w = {
        .schedule = WINDOWS_UNIFORM, .length = 6, .overlap = 2, .stride = 2, .step = 2
    };
    bool all;
    berth_err err = { 0 };
    assert_fails(make(&w, 13, &all, &err), err, BERTH_EINVAL,
                 "no context window of the standard_uniform schedule has frame 1 of 13 at step 2");
    assert_false(all);
}

/* Looped windows take the logarithm of frames / length, which must not be negative. */
static void sizes_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        size_t length, overlap, frames;
    } row[] = { { 8, 2, 8 }, { 8, 2, 3 }, { 8, 2, 0 }, { 4, 4, 9 }, { 0, 0, 9 } };
    for (size_t schedule = WINDOWS_STATIC; schedule <= WINDOWS_BATCHED; schedule++)
        for (size_t i = 0; i < ARRAY_LEN(row); i++) {
            const struct windows w = { .schedule = (enum windows_schedule)schedule,
                                       .length = row[i].length,
                                       .overlap = row[i].overlap,
                                       .stride = 2 };
            bool all;
            berth_err err = { 0 };
            assert_fails(make(&w, row[i].frames, &all, &err), err, BERTH_EINVAL,
                         "context windows of");
        }
}

static void failing_allocations(void **state)
{
    (void)state;
    const struct windows w = {
        .schedule = WINDOWS_UNIFORM, .length = 4, .overlap = 1, .stride = 2
    };
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        bool all;
        berth_err err = { 0 };
        assert_true(k < 1000);
        oom_once(k);
        s = make(&w, 9, &all, &err);
        oom_off();
        assert_true(!s || s == BERTH_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_frame_has_a_window),
        cmocka_unit_test(a_frame_without_one_is_named),
        cmocka_unit_test(sizes_that_do_not_fit),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
