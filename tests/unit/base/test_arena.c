#include "support/oom.h"
#include "support/test.h"

#include "base/arena.h"

#include <stdbool.h>

static bool is_zero(const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        if (b[i])
            return false;
    return true;
}

static void memory_is_zeroed_aligned_and_disjoint(void **state)
{
    (void)state;
    struct arena a = { 0 };
    enum { N = 2000 };
    unsigned char *p[N];
    size_t len[N];
    for (size_t i = 0; i < N; i++) {
        len[i] = i * i % 4001; /* small ones, and ones larger than a chunk */
        p[i] = arena_alloc(&a, len[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        assert_true(is_zero(p[i], len[i]));
        memset(p[i], (int)(i % 255 + 1), len[i]);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < len[i]; k++)
            assert_int_equal(p[i][k], i % 255 + 1);
    assert_true(a.used <= a.total);
    arena_release(&a);
    assert_int_equal(a.used + a.total, 0);
    assert_non_null(arena_alloc(&a, 1)); /* usable again */
    arena_release(&a);
}

static void waste_stays_bounded(void **state)
{
    (void)state;
    struct arena a = { 0 };
    for (int i = 0; i < 100000; i++)
        assert_non_null(arena_alloc(&a, 100));
    assert_true(a.total < a.used + a.used / 4 + (2u << 20));
    arena_release(&a);
    assert_non_null(arena_alloc(&a, 10));
    assert_true(a.total < 8192); /* a small arena is small */
    arena_release(&a);
}

static void a_large_block_does_not_waste_the_head(void **state)
{
    (void)state;
    struct arena a = { 0 };
    char *first = arena_alloc(&a, 16);
    assert_non_null(first);
    assert_non_null(arena_alloc(&a, 1 << 22));
    assert_ptr_equal(arena_alloc(&a, 16), first + 16);
    arena_release(&a);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct arena a = { 0 };
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 15));
    assert_null(arena_alloc(&a, SIZE_MAX - 40));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    int *v = arena_array(&a, 10, sizeof *v);
    assert_non_null(v);
    assert_true(is_zero(v, 10 * sizeof *v));
    arena_release(&a);
}

static void strings(void **state)
{
    (void)state;
    struct arena a = { 0 };
    char *s = arena_strndup(&a, "hello world", 5);
    assert_string_equal(s, "hello");
    assert_string_equal(arena_strndup(&a, NULL, 0), "");
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 42), "x-42");
    assert_string_equal(arena_printf(&a, "%s", ""), "");
    char *big = arena_printf(&a, "%10000d", 7);
    assert_int_equal(strlen(big), 10000);
    arena_release(&a);
}

static void exhaustion(void **state)
{
    (void)state;
    for (long k = 0;; k++) {
        struct arena a = { 0 };
        oom_after(k);
        bool ok = arena_alloc(&a, 100) && arena_alloc(&a, 1 << 16) &&
                  arena_printf(&a, "%5000d", 1) && arena_strndup(&a, "abc", 3);
        oom_off();
        assert_non_null(arena_alloc(&a, 64)); /* still usable */
        arena_release(&a);
        assert_true(k < 100);
        if (ok)
            break;
        assert_true(k < 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_disjoint),
        cmocka_unit_test(waste_stays_bounded),
        cmocka_unit_test(a_large_block_does_not_waste_the_head),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(strings),
        cmocka_unit_test(exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
