#include "support/clock_manual.h"
#include "support/test.h"

#include "base/clock.h"

static void system_clock_moves(void **state)
{
    (void)state;
    const struct clock *c = clock_system();
    uint64_t last = clock_mono_ns(c);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_mono_ns(c);
        assert_true(now >= last);
        last = now;
    }
    assert_true(clock_wall_ns(c) > UINT64_C(1700000000) * 1000000000); /* after 2023 */
}

static void manual_clock_moves_when_told(void **state)
{
    (void)state;
    struct clock_manual m;
    clock_manual_init(&m, 5, 1000);
    assert_true(clock_mono_ns(&m.base) == 5 && clock_wall_ns(&m.base) == 1000);
    assert_true(clock_mono_ns(&m.base) == 5);
    clock_manual_advance(&m, 7);
    assert_true(clock_mono_ns(&m.base) == 12 && clock_wall_ns(&m.base) == 1007);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_clock_moves),
        cmocka_unit_test(manual_clock_moves_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
