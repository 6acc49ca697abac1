/* Kernel counters before and after a restart, from made-up /proc and /sys files. */
#include "base/oomkill.h"
#include "support/fakeroot.h"
#include "support/test.h"

#include <unistd.h>

static struct oomkill then, now;

static int setup(void **state)
{
    (void)state;
    fakeroot_new();
    fakeroot_puts("proc/sys/kernel/random/boot_id", "7a0c\n");
    return 0;
}

static void machine(unsigned kills)
{
    char text[120];
    snprintf(text, sizeof text, "nr_free_pages 7\noom_kill_x 9\noom_kill %u\ndrop_slab 3\n", kills);
    fakeroot_puts("proc/vmstat", text);
}

static void group_2(const char *path, unsigned kills)
{
    char text[160], file[160];
    snprintf(text, sizeof text, "0::%s\n", path);
    fakeroot_puts("proc/self/cgroup", text);
    snprintf(file, sizeof file, "sys/fs/cgroup%s/memory.events", path);
    snprintf(text, sizeof text, "low 0\noom 5\noom_kill %u\noom_group_kill 0\n", kills);
    fakeroot_puts(file, text);
}

static bool between(void)
{
    oomkill_read(fakeroot(), &now);
    return oomkill_between(&then, &now);
}

static void nothing_is_known(void **state)
{
    (void)state;
    oomkill_read(fakeroot(), &then); /* no vmstat */
    assert_int_equal(then.boot, 0);
    machine(3);
    assert_false(between());
}

static void a_machine_without_groups(void **state)
{
    (void)state;
    machine(3);
    oomkill_read(fakeroot(), &then);
    assert_false(between());
    machine(4);
    assert_true(between());
    fakeroot_puts("proc/sys/kernel/random/boot_id", "7a0d\n"); /* started again: counted anew */
    assert_false(between());
}

static void the_groups_own_counter_decides(void **state)
{
    (void)state;
    machine(3);
    group_2("/box", 1);
    oomkill_read(fakeroot(), &then);
    machine(4);
    assert_false(between()); /* somebody else */
    group_2("/box", 2);
    assert_true(between());
    machine(3);
    assert_false(between());
}

static void a_new_group_leaves_the_machine(void **state)
{
    (void)state;
    machine(3);
    group_2("/box", 1);
    oomkill_read(fakeroot(), &then);
    group_2("/other", 0);
    assert_false(between()); /* nobody was killed */
    machine(4);
    assert_true(between());
}

static void version_1(void **state)
{
    (void)state;
    machine(3);
    fakeroot_puts("proc/self/cgroup", "4:memory:/box\n0::/\n");
    fakeroot_puts("sys/fs/cgroup/memory/box/memory.oom_control",
                  "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
    fakeroot_puts("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 7\n");
    oomkill_read(fakeroot(), &then);
    assert_int_equal(then.in_group, 0); /* of the group itself, not of one above it */
    machine(4);
    assert_false(between());
    fakeroot_puts("sys/fs/cgroup/memory/box/memory.oom_control", "oom_kill 1\n");
    assert_true(between());
}

static void this_machine(void **state)
{
    (void)state;
    oomkill_read("", &then);
    oomkill_read("", &now);
    assert_int_equal(then.boot, now.boot);
    assert_int_equal(then.group, now.group);
    assert_true(then.boot <= INT64_MAX && then.group <= INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_known, setup),
        cmocka_unit_test_setup(a_machine_without_groups, setup),
        cmocka_unit_test_setup(the_groups_own_counter_decides, setup),
        cmocka_unit_test_setup(a_new_group_leaves_the_machine, setup),
        cmocka_unit_test_setup(version_1, setup),
        cmocka_unit_test_setup(this_machine, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
