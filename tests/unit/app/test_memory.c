/* The process's own limit inside a control group. */
#include "app/app.h"
#include "support/test.h"

#define MIB ((uint64_t)1 << 20)

static void something_is_left_to_the_kernel(void **state)
{
    (void)state;
    assert_int_equal(app_memory_most(60 * MIB, 120 * MIB), 172 * MIB);
    assert_int_equal(app_memory_most(0, 1600 * MIB), 1500 * MIB);
    assert_int_equal(app_memory_most(60 * MIB, 8 * MIB), 60 * MIB);
    assert_int_equal(app_memory_most(60 * MIB, 0), 60 * MIB); /* full already: no more */
    assert_true(app_memory_most(UINT64_MAX - 5, 64 * MIB) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(something_is_left_to_the_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
