/* Which folders limit a process, from made-up /proc/self/cgroup files. */
#include "base/cgroup.h"
#include "support/fakeroot.h"
#include "support/test.h"

static char seen[16384]; /* "2/a/b 2/a 2 1/cpu": version and what follows /sys/fs/cgroup */

static int setup(void **state)
{
    (void)state;
    fakeroot_new();
    return 0;
}

static void note(void *user, const char *dir, enum cgroup_version version)
{
    size_t root = strlen(fakeroot()), n = strlen(seen);
    assert_ptr_equal(user, seen);
    assert_memory_equal(dir, fakeroot(), root);
    assert_memory_equal(dir + root, "/sys/fs/cgroup", 14);
    snprintf(seen + n, sizeof seen - n, "%s%d%s", n ? " " : "", (int)version, dir + root + 14);
}

static void expect(const char *groups, const char *want)
{
    seen[0] = '\0';
    fakeroot_puts("proc/self/cgroup", groups);
    cgroup_each(fakeroot(), "cpu", note, seen);
    assert_string_equal(seen, want);
}

static void the_group_and_all_above(void **state)
{
    (void)state;
    cgroup_each(fakeroot(), "cpu", note, seen);
    assert_string_equal(seen, ""); /* no file: a kernel without control groups */
    expect("0::/\n", "2/ 2");
    expect("0::/a/b/c\n", "2/a/b/c 2/a/b 2/a 2");
    expect("0::/a/b/c", "2/a/b/c 2/a/b 2/a 2");
}

static void version_1_by_controller(void **state)
{
    (void)state;
    expect("5:cpuset:/x\n4:cpu,cpuacct:/box/a\n3:memory:/y\n", "1/cpu/box/a 1/cpu/box 1/cpu");
    expect("4:cpuacct,cpu:/b\n", "1/cpu/b 1/cpu");
    expect("1:name=cpu:/b\n2:cp:/b\n3:cpus:/b\n4:,:/b\n", "");
    expect("4:cpu:/a\n0::/b\n", "1/cpu/a 1/cpu 2/b 2"); /* both at once */
}

static void a_path_that_climbs(void **state)
{
    (void)state;
    expect("0::/..\n", "2");
    expect("0::/../../elsewhere\n", "2");
    expect("4:cpu:/a/../../../etc\n", "1/cpu");
    expect("0::/a..b/c.\n", "2/a..b/c. 2/a..b 2");
}

static void odd_lines(void **state)
{
    static const char *const odd[] = { "",     "\n",     "0\n",    "0:\n",     "0::\n",
                                       "::\n", "0::x\n", ":cpu:",  "a:b:c\n",  "x",
                                       "0:/",  "cpu",    "0:cpu/", ":\n:\n:\n" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(odd); i++)
        expect(odd[i], "");
    expect("\n\n0\n0::/a\n:\n", "2/a 2"); /* a good one among them */
    expect("0::/a/\n", "2/a/ 2/a 2");
    expect("0:://a:b\n", "2//a:b 2/ 2"); /* a colon may be part of a name */
}

static void deep_and_long_paths(void **state)
{
    char line[4096] = "0::";
    size_t n = 3;
    (void)state;
    for (int i = 0; i < 40; i++, n += 2)
        memcpy(line + n, "/a", 3);
    fakeroot_puts("proc/self/cgroup", line);
    seen[0] = '\0';
    cgroup_each(fakeroot(), "cpu", note, seen);
    size_t shown = 1;
    for (const char *s = seen; (s = strchr(s, ' ')); s++)
        shown++;
    assert_int_equal(shown, 32); /* nobody nests deeper; it ends in any case */
    for (int i = 0; i < 1000; i++, n += 2)
        memcpy(line + n, "/a", 3);
    expect(line, "2"); /* does not fit: the mount still counts */
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\0';
    seen[0] = '\0';
    cgroup_each(line, "cpu", note, seen); /* nor does the root */
    assert_string_equal(seen, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_group_and_all_above, setup),
        cmocka_unit_test_setup(version_1_by_controller, setup),
        cmocka_unit_test_setup(a_path_that_climbs, setup),
        cmocka_unit_test_setup(odd_lines, setup),
        cmocka_unit_test_setup(deep_and_long_paths, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
