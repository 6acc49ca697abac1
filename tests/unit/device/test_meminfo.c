/* Memory limits as the kernel tells them, read from made-up /proc and /sys folders. */
#include "device/cpu/meminfo.h"
#include "support/test.h"
#include "support/tmp.h"

#include <sys/stat.h>

#define GIB (UINT64_C(1) << 30)

static char root[256];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", strrchr(root, '/') + 1, path);
    for (char *c = strchr(full, '/'); c; c = strchr(c + 1, '/')) {
        *c = '\0';
        mkdir(tmp_path(full), 0755);
        *c = '/';
    }
    tmp_write(full, text, strlen(text));
}

/* A fresh root per test with 64 GiB of RAM, 48 of it available. */
static int setup(void **state)
{
    static int number;
    char name[32];
    (void)state;
    snprintf(name, sizeof name, "root%d", number++);
    snprintf(root, sizeof root, "%s", tmp_path(name));
    mkdir(root, 0755);
    put("proc/meminfo", "MemTotal:       67108864 kB\n"
                        "MemFree:        10485760 kB\n"
                        "MemAvailable:   50331648 kB\nBuffers: 1 kB\n");
    return 0;
}

static void expect(uint64_t total, uint64_t free_bytes)
{
    uint64_t t, f;
    berth_err err = { 0 };
    assert_ok(meminfo_read(root, &t, &f, &err), err);
    assert_true(t == total);
    assert_true(f == free_bytes);
}

static void plain_machine(void **state)
{
    (void)state;
    expect(64 * GIB, 48 * GIB);
    put("proc/self/cgroup", "0::/\n");
    expect(64 * GIB, 48 * GIB); /* no memory.max: no limit */
}

static void group_v2(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/user.slice/berth.scope\n");
    put("sys/fs/cgroup/user.slice/berth.scope/memory.max", "8589934592\n");
    put("sys/fs/cgroup/user.slice/berth.scope/memory.current", "3221225472\n");
    expect(8 * GIB, 5 * GIB);
    put("sys/fs/cgroup/user.slice/berth.scope/memory.stat",
        "anon 1\nactive_file 5\ninactive_file 1073741824\n");
    expect(8 * GIB, 6 * GIB); /* cache that goes first counts as free */
    put("sys/fs/cgroup/user.slice/memory.max", "4294967296\n"); /* the parent is tighter */
    put("sys/fs/cgroup/user.slice/memory.current", "4294967295\n");
    expect(4 * GIB, 1);
    put("sys/fs/cgroup/user.slice/memory.max", "max\n");
    expect(8 * GIB, 6 * GIB);
}

static void group_v1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:devices:/\n4:cpu,memory:/box/a\n0::/\n");
    put("sys/fs/cgroup/memory/box/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/box/a/memory.usage_in_bytes", "1073741824\n");
    expect(64 * GIB, 48 * GIB); /* "no limit" of version 1 */
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "17179869184\n");
    put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/box/memory.stat",
        "inactive_file 1\ntotal_inactive_file 1073741824\n");
    expect(16 * GIB, 15 * GIB);
}

/* What a limit leaves to the process itself, and how far it is away. */
static void inside_a_limit(void **state)
{
    (void)state;
    assert_true(meminfo_spare(root) == 0 && meminfo_headroom(root) == UINT64_MAX); /* none */
    put("proc/self/cgroup", "0::/box\n");
    put("sys/fs/cgroup/box/memory.max", "134217728\n");
    put("sys/fs/cgroup/box/memory.current", "12582912\n");
    put("sys/fs/cgroup/box/memory.stat", "inactive_file 4194304\n");
    assert_int_equal(meminfo_spare(root), 64 << 20);
    assert_int_equal(meminfo_headroom(root), 120 << 20);
    put("sys/fs/cgroup/box/memory.max", "67108864\n"); /* half of a small one */
    assert_int_equal(meminfo_spare(root), 32 << 20);
    put("sys/fs/cgroup/box/memory.max", "8589934592\n"); /* an eighth of a large one */
    assert_true(meminfo_spare(root) == GIB);
    put("sys/fs/cgroup/box/memory.max", "137438953472\n"); /* more than the machine has */
    assert_true(meminfo_spare(root) == 0 && meminfo_headroom(root) == UINT64_MAX);
    assert_true(meminfo_spare("/nowhere") == 0 && meminfo_headroom("/nowhere") == UINT64_MAX);
}

/* The headroom becomes a limit for good: what the kernel takes back first, and what others on the
 * machine have just now, must not lower it. */
static void what_passes_is_room(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/box\n");
    put("sys/fs/cgroup/box/memory.max", "8589934592\n");
    put("sys/fs/cgroup/box/memory.current", "8489271296\n"); /* a model was fetched and checked */
    put("sys/fs/cgroup/box/memory.stat", "inactive_file 0\nactive_file 7516192768\n");
    assert_true(meminfo_headroom(root) == 8 * GIB - (UINT64_C(8489271296) - 7 * GIB) - (32 << 20));
    put("sys/fs/cgroup/box/memory.stat", "inactive_file 0\nactive_file 16777216\n"); /* our own */
    assert_int_equal(meminfo_headroom(root), 96 << 20);
    put("sys/fs/cgroup/box/memory.current", "0\n");
    put("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 1048576 kB\n");
    assert_true(meminfo_headroom(root) == 8 * GIB);
    expect(8 * GIB, GIB); /* for a budget that is asked for again it counts */
}

static void swap_is_room_too(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 50331648 kB\nSwapFree: 262144 kB\n");
    put("proc/self/cgroup", "0::/box\n");
    put("sys/fs/cgroup/box/memory.max", "134217728\n");
    put("sys/fs/cgroup/box/memory.current", "0\n");
    assert_int_equal(meminfo_headroom(root), 384 << 20);
    put("sys/fs/cgroup/box/memory.swap.max", "67108864\n");
    put("sys/fs/cgroup/box/memory.swap.current", "33554432\n");
    assert_int_equal(meminfo_headroom(root), 160 << 20);
    put("sys/fs/cgroup/box/memory.swap.max", "0\n");
    assert_int_equal(meminfo_headroom(root), 128 << 20);
    put("proc/self/cgroup", "4:memory:/box\n"); /* version 1: memory and swap as one number */
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "134217728\n");
    put("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "33554432\n");
    put("sys/fs/cgroup/memory/box/memory.memsw.limit_in_bytes", "201326592\n");
    put("sys/fs/cgroup/memory/box/memory.memsw.usage_in_bytes", "50331648\n");
    assert_int_equal(meminfo_headroom(root), (96 + 48) << 20);
}

static void container_sees_only_its_mount(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/../../elsewhere\n");
    put("sys/fs/cgroup/memory.max", "2147483648\n");
    put("sys/fs/cgroup/memory.current", "0\n");
    expect(2 * GIB, 2 * GIB);
    put("proc/self/cgroup", "0::/docker/0123456789abcdef\n"); /* a path of the host */
    expect(2 * GIB, 2 * GIB);
}

static void odd_files_set_no_limit(void **state)
{
    static const char *const groups[] = {
        "",         "\n",      "0\n",          "0:\n", "0::\n",    "::\n",      "0::x\n",
        ":memory:", "a:b:c\n", "0:memory:/\n", "x",    "0::/a/b/", "0::/\n\n\n"
    };
    static const char *const limits[] = { "", "max", "-1", "1x", "0", "99999999999999999999999" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        put("proc/self/cgroup", groups[i]);
        expect(64 * GIB, 48 * GIB);
    }
    put("proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        put("sys/fs/cgroup/memory.max", limits[i]);
        expect(64 * GIB, 48 * GIB);
    }
    put("sys/fs/cgroup/memory.max", "1073741824");
    expect(GIB, GIB); /* usage unknown */
    put("sys/fs/cgroup/memory.current", "2147483648");
    expect(GIB, 0); /* over its limit */
}

static void deep_and_long_paths(void **state)
{
    char line[4096] = "0::";
    size_t n = 3;
    (void)state;
    for (int i = 0; i < 1000; i++, n += 2)
        memcpy(line + n, "/a", 3);
    put("proc/self/cgroup", line);
    put("sys/fs/cgroup/memory.max", "1073741824\n");
    put("sys/fs/cgroup/memory.current", "0\n");
    expect(GIB, GIB); /* the path does not fit, the mount still counts */
}

static void old_kernel(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 1024 kB\nMemFree: 512 kB\n");
    expect(1 << 20, 512 << 10);
    put("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 9999999 kB\n");
    expect(1 << 20, 1 << 20);
}

static void unreadable(void **state)
{
    uint64_t t, f;
    berth_err err = { 0 };
    char far[2000];
    (void)state;
    static const char *const texts[] = { "",
                                         "MemTotal: kB\n",
                                         "MemTotal: 0 kB\nMemFree: 1 kB\n",
                                         "MemTotal: 18446744073709551615 kB\nMemFree: 1 kB\n",
                                         "MemTotalX: 5 kB\n",
                                         "MemTotal: 5 kB\n" };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        put("proc/meminfo", texts[i]);
        assert_fails(meminfo_read(root, &t, &f, &err), err, BERTH_EFORMAT, "/proc/meminfo");
    }
    assert_fails(meminfo_read(tmp_path("nowhere"), &t, &f, &err), err, BERTH_EIO, "proc/meminfo");
    memset(far, 'x', sizeof far);
    far[sizeof far - 1] = '\0';
    assert_fails(meminfo_read(far, &t, &f, &err), err, BERTH_ELIMIT, "too long");
}

static void this_machine(void **state)
{
    uint64_t t, f;
    berth_err err = { 0 };
    (void)state;
    assert_ok(meminfo_read("", &t, &f, &err), err);
    assert_true(t > 0 && f <= t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(plain_machine, setup),
        cmocka_unit_test_setup(group_v2, setup),
        cmocka_unit_test_setup(group_v1, setup),
        cmocka_unit_test_setup(inside_a_limit, setup),
        cmocka_unit_test_setup(what_passes_is_room, setup),
        cmocka_unit_test_setup(swap_is_room_too, setup),
        cmocka_unit_test_setup(container_sees_only_its_mount, setup),
        cmocka_unit_test_setup(odd_files_set_no_limit, setup),
        cmocka_unit_test_setup(deep_and_long_paths, setup),
        cmocka_unit_test_setup(old_kernel, setup),
        cmocka_unit_test_setup(unreadable, setup),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
