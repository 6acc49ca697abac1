/* CPU quotas as the kernel tells them, read from made-up /proc and /sys folders. */
#include "base/cores.h"
#include "support/fakeroot.h"
#include "support/oom.h"
#include "support/test.h"

#include <sched.h>
#include <stdbool.h>

#define NONE UINT64_MAX

static int setup(void **state)
{
    (void)state;
    fakeroot_new();
    return 0;
}

static size_t here(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return (size_t)CPU_COUNT(&set);
}

/* The quota, and what it makes of the cores of whatever machine this is. */
static void expect(uint64_t quota)
{
    size_t cores = here();
    assert_true(cores_quota(fakeroot()) == quota);
    assert_int_equal(cores_usable(fakeroot()), quota < cores ? quota : cores);
}

static void plain_machine(void **state)
{
    (void)state;
    expect(NONE); /* no control groups at all */
    fakeroot_puts("proc/self/cgroup", "0::/\n");
    expect(NONE);
    fakeroot_puts("proc/self/cgroup", "0::/user.slice/a.scope\n");
    fakeroot_puts("sys/fs/cgroup/user.slice/a.scope/cpu.max", "max 100000\n");
    fakeroot_puts("sys/fs/cgroup/user.slice/a.scope/cpu.weight", "1\n");
    expect(NONE);
}

static void group_v2(void **state)
{
    (void)state;
    fakeroot_puts("proc/self/cgroup", "0::/user.slice/berth.scope\n");
    fakeroot_puts("sys/fs/cgroup/user.slice/berth.scope/cpu.max", "6400000 100000\n");
    expect(64);
    fakeroot_puts("sys/fs/cgroup/user.slice/cpu.max",
                  "1500000 500000\n"); /* the parent is tighter */
    expect(3);
    fakeroot_puts("sys/fs/cgroup/cpu.max", "100000 100000\n"); /* and the mount */
    expect(1);
    fakeroot_puts("sys/fs/cgroup/cpu.max", "800000 100000\n"); /* one above that is wider */
    expect(3);
    fakeroot_puts("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    expect(8);
}

static void group_v1(void **state)
{
    (void)state;
    fakeroot_puts("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/box/a\n0::/\n");
    fakeroot_puts("sys/fs/cgroup/cpu/box/a/cpu.cfs_quota_us", "-1\n");
    fakeroot_puts("sys/fs/cgroup/cpu/box/a/cpu.cfs_period_us", "100000\n");
    expect(NONE);
    fakeroot_puts("sys/fs/cgroup/cpu/box/a/cpu.cfs_quota_us", "400000\n");
    expect(4);
    fakeroot_puts("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000\n");
    expect(4); /* of what period is not known */
    fakeroot_puts("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "50000\n");
    expect(2);
    fakeroot_puts("sys/fs/cgroup/cpu.max", "100000 100000\n"); /* the other version beside it */
    expect(1);
}

static void parts_of_a_core(void **state)
{
    static const struct {
        const char *max;
        uint64_t cores;
    } cases[] = {
        { "50000 100000", 1 },  { "1000 1000000", 1 },  { "100000 100000", 1 },
        { "100001 100000", 2 }, { "150000 100000", 2 }, { "199999 100000", 2 },
        { "200000 100000", 2 }, { "250000 100000", 3 }, { "10 3", 4 },
    };
    (void)state;
    fakeroot_puts("proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fakeroot_puts("sys/fs/cgroup/cpu.max", cases[i].max);
        expect(cases[i].cores);
    }
}

static void container_sees_only_its_mount(void **state)
{
    (void)state;
    fakeroot_puts("proc/self/cgroup", "0::/../../elsewhere\n");
    fakeroot_puts("sys/fs/cgroup/cpu.max", "200000 100000\n");
    fakeroot_puts("sys/elsewhere/cpu.max", "100000 100000\n"); /* where the path would lead */
    expect(2);
    fakeroot_puts("proc/self/cgroup", "0::/docker/0123456789abcdef\n"); /* a path of the host */
    expect(2);
}

static void odd_files_set_no_limit(void **state)
{
    static const char *const odd[] = { "",
                                       "\n",
                                       "max",
                                       "max\n",
                                       "200000",
                                       "200000\n",
                                       "200000 ",
                                       " 200000",
                                       "200000 x\n",
                                       "x 100000\n",
                                       "200000  100000",
                                       "200000\t100000",
                                       "-1 100000",
                                       "1 -1",
                                       "0 100000",
                                       "200000 0\n",
                                       "0 0",
                                       "200000\n100000",
                                       "2.5 1",
                                       "1e5 100000",
                                       "max max",
                                       "1 1 1\n",
                                       "0x10 0x10",
                                       "1 1\r\n",
                                       "18446744073709551616 1",
                                       "1 18446744073709551616",
                                       "999999999999999999999999 1" };
    (void)state;
    fakeroot_puts("proc/self/cgroup", "0::/\n4:cpu:/\n");
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        fakeroot_puts("sys/fs/cgroup/cpu.max", odd[i]);
        expect(NONE);
    }
    fakeroot_puts("sys/fs/cgroup/cpu.max", "200000 100000"); /* an odd one hides no other */
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        bool number = strcspn(odd[i], "\n") == 6 && !memcmp(odd[i], "200000", 6); /* not odd here */
        fakeroot_puts("sys/fs/cgroup/cpu/cpu.cfs_quota_us", odd[i]);
        fakeroot_puts("sys/fs/cgroup/cpu/cpu.cfs_period_us", "200000");
        expect(number ? 1 : 2);
        fakeroot_puts("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "1");
        fakeroot_puts("sys/fs/cgroup/cpu/cpu.cfs_period_us", odd[i]);
        expect(number ? 1 : 2);
    }
}

static void huge_numbers(void **state)
{
    static const struct {
        const char *max;
        uint64_t cores;
    } cases[] = {
        { "18446744073709551615 1", UINT64_MAX },
        { "18446744073709551615 2", UINT64_C(1) << 63 },
        { "18446744073709551615 18446744073709551615", 1 },
        { "18446744073709551615 18446744073709551614", 2 },
        { "1 18446744073709551615", 1 },
        { "4294967296 1", UINT64_C(1) << 32 },
    };
    (void)state;
    fakeroot_puts("proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        fakeroot_puts("sys/fs/cgroup/cpu.max", cases[i].max);
        expect(cases[i].cores);
    }
}

static void affinity_counts_too(void **state)
{
    cpu_set_t was, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof was, &was), 0);
    fakeroot_puts("proc/self/cgroup", "0::/\n");
    fakeroot_puts("sys/fs/cgroup/cpu.max", "6400000 100000\n");
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &was))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    size_t cores = cores_usable(fakeroot());
    assert_int_equal(sched_setaffinity(0, sizeof was, &was), 0);
    assert_int_equal(cores, 1);
}

static void needs_no_memory(void **state)
{
    (void)state;
    fakeroot_puts("proc/self/cgroup", "0::/a\n");
    fakeroot_puts("sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    oom_after(0);
    uint64_t quota = cores_quota(fakeroot());
    oom_off();
    assert_true(quota == 1);
}

static void this_machine(void **state)
{
    (void)state;
    size_t cores = cores_usable("");
    assert_true(cores >= 1 && cores <= here());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plain_machine, setup),
        cmocka_unit_test_setup(group_v2, setup),
        cmocka_unit_test_setup(group_v1, setup),
        cmocka_unit_test_setup(parts_of_a_core, setup),
        cmocka_unit_test_setup(container_sees_only_its_mount, setup),
        cmocka_unit_test_setup(odd_files_set_no_limit, setup),
        cmocka_unit_test_setup(huge_numbers, setup),
        cmocka_unit_test_setup(affinity_counts_too, setup),
        cmocka_unit_test_setup(needs_no_memory, setup),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
