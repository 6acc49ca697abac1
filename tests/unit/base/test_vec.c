#include "support/oom.h"
#include "support/test.h"

#include "base/vec.h"

struct item {
    uint32_t a;
    char tail[9];
};

static void grows_with_zeroed_elements(void **state)
{
    (void)state;
    struct vec v = { .elem = sizeof(struct item) };
    for (uint32_t i = 0; i < 5000; i++) {
        struct item *e = vec_add(&v);
        assert_non_null(e);
        assert_int_equal(e->a, 0);
        assert_int_equal(e->tail[8], 0);
        e->a = i;
        memset(e->tail, 0xff, sizeof e->tail);
    }
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(((struct item *)vec_at(&v, i))->a, i);
    vec_pop(&v);
    assert_int_equal(v.n, 4999);
    struct item *again = vec_add(&v); /* zeroed although it was used before */
    assert_int_equal(again->tail[0], 0);
    vec_release(&v);
    assert_int_equal(v.n, 0);
    assert_int_equal(v.elem, sizeof(struct item));
    assert_non_null(vec_add(&v));
    vec_release(&v);
}

static void reserving_keeps_addresses(void **state)
{
    (void)state;
    struct vec v = { .elem = 8 };
    assert_true(vec_reserve(&v, 100));
    void *first = vec_add(&v);
    for (int i = 1; i < 100; i++)
        assert_non_null(vec_add(&v));
    assert_ptr_equal(vec_at(&v, 0), first);
    assert_true(vec_reserve(&v, 10));
    vec_release(&v);
}

static void impossible_sizes_and_exhaustion(void **state)
{
    (void)state;
    struct vec v = { .elem = 16 };
    assert_false(vec_reserve(&v, SIZE_MAX / 8));
    oom_after(0);
    assert_null(vec_add(&v));
    oom_off();
    assert_int_equal(v.n, 0);
    for (int i = 0; i < 8; i++)
        assert_non_null(vec_add(&v));
    oom_after(0);
    assert_null(vec_add(&v));
    oom_off();
    assert_int_equal(v.n, 8); /* nothing lost */
    assert_non_null(vec_add(&v));
    vec_release(&v);
}

static void pushes_copies(void **state)
{
    (void)state;
    struct vec v = { .elem = sizeof(uint32_t) };
    for (uint32_t i = 0; i < 8; i++)
        assert_true(vec_push(&v, &i));
    oom_after(0);
    assert_false(vec_push(&v, &(uint32_t) { 8 }));
    oom_off();
    assert_int_equal(v.n, 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(*(uint32_t *)vec_at(&v, i), i);
    vec_release(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_with_zeroed_elements),
        cmocka_unit_test(reserving_keeps_addresses),
        cmocka_unit_test(impossible_sizes_and_exhaustion),
        cmocka_unit_test(pushes_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
