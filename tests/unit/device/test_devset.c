/* Opening what a text describes: budgets, logical devices, what is refused, what fails half-way. */
#include "support/devices.h"
#include "support/fakeroot.h"
#include "support/oom.h"
#include "support/tmp.h"

#include <sys/stat.h>

#define GIB (UINT64_C(1) << 30)

/* A machine of 16 GiB, so that the numbers in messages are known. */
static struct dev_env small_machine(void)
{
    static const char text[] = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n";
    mkdir(tmp_path("machine"), 0755);
    mkdir(tmp_path("machine/proc"), 0755);
    tmp_write("machine/proc/meminfo", text, sizeof text - 1);
    static char root[512];
    snprintf(root, sizeof root, "%s", tmp_path("machine"));
    return (struct dev_env) { .root = root, .cuda_library = "none" };
}

static void opens_in_order(void **state)
{
    struct dev_env env = small_machine();
    struct devset *set =
        open_devices("null:1=12g,cuda:0@cpu=4g,cpu,null:0=24g,cuda:1@null:0=1g", &env);
    static const struct {
        const char *name, *phys;
        uint64_t budget, total;
    } want[] = {
        { "null:1", "null:1", 12 * GIB, 12 * GIB }, { "cuda:0", "cpu", 4 * GIB, 16 * GIB },
        { "cpu", "cpu", 12 * GIB, 16 * GIB },       { "null:0", "null:0", 24 * GIB, 25 * GIB },
        { "cuda:1", "null:0", 1 * GIB, 25 * GIB },
    };
    (void)state;
    assert_int_equal(devset_count(set), ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct device *d = devset_at(set, i);
        struct dev_info info;
        berth_err err = { 0 };
        assert_string_equal(d->name, want[i].name);
        assert_string_equal(d->phys->name, want[i].phys);
        assert_ok(dev_info(d, &info, &err), err);
        assert_true(info.budget == want[i].budget && info.total == want[i].total);
    }
    assert_ptr_equal(devset_at(set, 1)->phys, devset_at(set, 2)->phys); /* opened once */
    devset_close(set);
}

static void default_is_what_is_there(void **state)
{
    struct dev_env env = small_machine();
    struct devset *set;
    berth_err err = { 0 };
    (void)state;
    assert_ok(devset_open(NULL, &env, &set, &err), err);
    assert_true(devset_count(set) >= 1);
    assert_string_equal(devset_at(set, 0)->name, "cpu");
    assert_true(devset_at(set, 0)->budget == 16 * GIB);
    for (size_t i = 0; i < devset_count(set); i++)
        assert_null(strstr(devset_at(set, i)->name, "null"));
    devset_close(set);
}

static void refuses(void **state)
{
    static const struct {
        const char *text;
        berth_status code;
        const char *why;
    } cases[] = {
        { "cpu=1g,xpu:0=4g", BERTH_EUNSUPPORTED,
          "devices: entry 2 'xpu:0=4g': no device xpu:0 here; there is: cpu" },
        { "cuda:255=4g", BERTH_EUNSUPPORTED, "no device cuda:255 here" },
        { "opencl:0", BERTH_EUNSUPPORTED,
          "devices: entry 1 'opencl:0': no device opencl:0 here; there is: cpu (" },
        { "gpu", BERTH_EUNSUPPORTED, "no device gpu here; there is: cpu" },
        { "mps", BERTH_EUNSUPPORTED, "no device mps here; there is: cpu" },
        { "cpu=1g,cuda:0@npu:0=4g", BERTH_EUNSUPPORTED, "no device npu:0 here" },
        { "cpu=17g", BERTH_ELIMIT,
          "devices: entry 1 'cpu=17g': cpu has 16.0 GiB (17179869184 bytes), its devices want "
          "17.0 GiB (18253611008)" },
        { "cpu=10g,cuda:0@cpu=7g", BERTH_ELIMIT, "its devices want 17.0 GiB" },
        { "cpu=16g,cuda:0@cpu", BERTH_ELIMIT, "want 16.0 GiB (17179869184) and a rest" },
        { "cpu=17179869183g,cuda:0@cpu=17179869183g", BERTH_ELIMIT, "do not fit in 64 bits" },
    };
    (void)state;
    struct dev_env env = small_machine();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct devset *set;
        berth_err err = { 0 };
        assert_fails(try_devices(cases[i].text, &env, &set, &err), err, cases[i].code,
                     cases[i].why);
        assert_null(set);
    }
}

/* A smaller host for the default set, and for a text that leaves its size open. */
static void host_budget(void **state)
{
    static const struct {
        const char *text; /* NULL: the default set */
        uint64_t budget, cpu;
    } cases[] = {
        { NULL, 4 * GIB, 4 * GIB },
        { NULL, 16 * GIB, 16 * GIB },
        { "cpu", 4 * GIB, 4 * GIB },
        { "cpu=2g", 4 * GIB, 2 * GIB }, /* said is said */
        { "cpu,cuda:0@cpu=8g", 4 * GIB, 4 * GIB },
        { "cpu,cuda:0@cpu=8g", 0, 8 * GIB },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct dev_env env = small_machine();
        struct devset *set;
        berth_err err = { 0 };
        env.host_budget = cases[i].budget;
        assert_ok(cases[i].text ? try_devices(cases[i].text, &env, &set, &err)
                                : devset_open(NULL, &env, &set, &err),
                  err);
        assert_true(device_named(set, "cpu")->budget == cases[i].cpu);
        if (devset_count(set) > 1 && cases[i].text)
            assert_true(device_named(set, "cuda:0")->budget == 8 * GIB);
        devset_close(set);
    }
    struct dev_env env = small_machine();
    struct devset *set;
    berth_err err = { 0 };
    env.host_budget = 16 * GIB + 1;
    assert_fails(devset_open(NULL, &env, &set, &err), err, BERTH_ELIMIT,
                 "a host budget of 16.0 GiB (17179869185 bytes), and cpu has 16.0 GiB "
                 "(17179869184) for it");
    env.host_budget = 9 * GIB;
    assert_fails(try_devices("cpu,cuda:0@cpu=8g", &env, &set, &err), err, BERTH_ELIMIT,
                 "cpu has 8.00 GiB (8589934592) for it");
}

/* In a container of 128 MiB: whoever gives no number leaves room for the process itself. */
static void room_for_the_process(void **state)
{
    static const struct {
        const char *text;
        uint64_t said, cpu;
    } cases[] = {
        { NULL, 0, 64 << 20 },          { "cpu", 0, 64 << 20 },
        { "cpu=*", 0, 64 << 20 },       { "cpu=100m", 0, 100 << 20 },
        { NULL, 128 << 20, 128 << 20 }, { "cpu,cuda:0@cpu=64m", 0, 32 << 20 },
        { "cpu=128m", 0, 128 << 20 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct dev_env env = { .root = fakeroot_new(), .cuda_library = "none" };
        struct devset *set;
        berth_err err = { 0 };
        fakeroot_puts("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
        fakeroot_puts("proc/self/cgroup", "0::/\n");
        fakeroot_puts("sys/fs/cgroup/memory.max", "134217728\n");
        env.host_budget = cases[i].said;
        assert_ok(cases[i].text ? try_devices(cases[i].text, &env, &set, &err)
                                : devset_open(NULL, &env, &set, &err),
                  err);
        assert_int_equal(device_named(set, "cpu")->budget, cases[i].cpu);
        devset_close(set);
    }
}

static void finds_by_name(void **state)
{
    struct dev_env env = small_machine();
    struct devset *set = open_devices("cpu=1g,null:0=1g,cuda:0@cpu=1g", &env);
    size_t i;
    berth_err err = { 0 };
    (void)state;
    assert_ok(devset_find(set, " CUDA:0 ", 8, &i, &err), err);
    assert_int_equal(i, 2);
    assert_fails(devset_find(set, "cuda:1", 6, &i, &err), err, BERTH_ENOTFOUND,
                 "no device cuda:1; there is: cpu, null:0, cuda:0");
    assert_fails(devset_find(set, "gpu", 3, &i, &err), err, BERTH_ENOTFOUND,
                 "no device gpu; there is: cpu, null:0, cuda:0");
    assert_fails(devset_find(set, "gpu0", 4, &i, &err), err, BERTH_EINVAL, "not a device name");
    devset_close(set);
    struct str text = { 0 };
    for (int k = 0; k < SPEC_MAX; k++)
        str_addf(&text, "%snull:%d=1m", k ? "," : "", k);
    set = open_devices(str_c(&text), &env);
    assert_int_equal(devset_count(set), SPEC_MAX);
    assert_fails(devset_find(set, "cpu", 3, &i, &err), err, BERTH_ENOTFOUND, ", ...");
    assert_true(strlen(err.msg) < 300);
    devset_close(set);
    devset_close(NULL);
    str_release(&text);
}

static void survives_oom(void **state)
{
    struct dev_env env = small_machine();
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    (void)state;
    for (; s != BERTH_OK; k++) {
        struct devset *set = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = try_devices("cpu=1g,null:0=1g,cuda:0@null:0=1g,null:1", &env, &set, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !set && err.msg[0]));
        devset_close(set);
    }
    assert_true(k > 10); /* set, engine, phys, and device, pool, ledger of each */
}

static void survives_failing_calls(void **state)
{
    berth_status s = BERTH_EDEVICE;
    uint64_t k = 1;
    (void)state;
    for (; s != BERTH_OK; k++) {
        struct null_config null = { .fail_call = NULL_ANY, .fail_at = k };
        struct dev_env env = small_machine();
        env.null = &null;
        struct devset *set = NULL;
        berth_err err = { 0 };
        s = try_devices("cpu=1g,null:0=1g,cuda:0@null:0=1g", &env, &set, &err);
        assert_true(s == BERTH_OK || (s == BERTH_EDEVICE && !set && strstr(err.msg, "null:0")));
        devset_close(set);
    }
    assert_true(k > 2);
}

static void unreadable_machine(void **state)
{
    struct dev_env env = { .root = "/nowhere/at/all" };
    struct devset *set;
    berth_err err = { 0 };
    (void)state;
    assert_fails(devset_open(NULL, &env, &set, &err), err, BERTH_EIO, "/proc/meminfo");
    assert_fails(devset_open(NULL, &env, &set, &err), err, BERTH_EIO, "entry 1 'cpu'");
}

static void stress_works_everywhere(void **state)
{
    struct dev_env env = small_machine();
    env.stress = true;
    struct devset *set = open_devices("cpu=1g,null:0=1g", &env);
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct device *d = devset_at(set, i);
        struct dev_owner *o = owner_of(d, "m", DEV_STAGING);
        for (size_t n = 1; n < (size_t)64 << 20; n *= 3) {
            struct dev_mem m = alloc_on(d, o, n);
            dev_free(&m);
        }
        assert_sound(d);
        dev_owner_close(o);
    }
    devset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_in_order),
        cmocka_unit_test(default_is_what_is_there),
        cmocka_unit_test(refuses),
        cmocka_unit_test(host_budget),
        cmocka_unit_test(room_for_the_process),
        cmocka_unit_test(finds_by_name),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(survives_failing_calls),
        cmocka_unit_test(unreadable_machine),
        cmocka_unit_test(stress_works_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
