/* Memory pressure, on a machine whose /proc and control groups are made up. */
#include "support/res_rig.h"

#include <sys/stat.h>

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

/* 1 GiB of RAM, so many tenths of a percent of it used. */
static void use(unsigned permille)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: 1000000 kB\nMemAvailable: %u kB\n",
             1000000 - permille * 1000);
    put("proc/meminfo", text);
}

static struct rig *open_rig_on(const char *devices, double percent, double hysteresis)
{
    static int number;
    static const struct dev_env env = { .root = root };
    struct res_config cfg = { .pressure_percent = percent, .pressure_hysteresis = hysteresis };
    char name[32];
    snprintf(name, sizeof name, "root%d", number++);
    snprintf(root, sizeof root, "%s", tmp_path(name));
    mkdir(root, 0755);
    use(100);
    return rig_open(devices, &env, &cfg);
}

static struct rig *open_rig(double percent, double hysteresis)
{
    return open_rig_on("cpu=256m,null:0=64m", percent, hysteresis);
}

static enum res_pressure look(struct rig *g)
{
    enum res_pressure p;
    berth_err err = { 0 };
    assert_ok(res_pressure_check(g->r, &p, NULL, &err), err);
    return p;
}

static void expect_tag(struct rig *g, size_t at, const char *tag)
{
    struct journal_entry e[16];
    size_t n = journal_query(res_journal(g->r), 0, "cpu_monitor", e, 16, NULL);
    assert_true(n == at + 1);
    assert_string_equal(e[at].tag, tag);
}

static void settle(struct rig *g, uint64_t serial)
{
    struct res_receipt x;
    berth_err err = { 0 };
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_int_equal(x.serial, serial);
    res_receipt_release(&x);
}

static void percent_of_what(void **state)
{
    struct rig *g = open_rig(85, 5);
    double percent;
    berth_err err = { 0 };
    (void)state;
    use(423);
    assert_ok(res_pressure_check(g->r, NULL, &percent, &err), err);
    assert_true(percent > 42.29 && percent < 42.31);
    put("proc/self/cgroup", "0::/box\n"); /* a group with less than the machine */
    put("sys/fs/cgroup/box/memory.max", "104857600\n");
    put("sys/fs/cgroup/box/memory.current", "94371840\n");
    enum res_pressure p;
    assert_ok(res_pressure_check(g->r, &p, &percent, &err), err);
    assert_int_equal(p, RES_PRESSURE_RESET);
    assert_true(percent > 89.99 && percent < 90.01);
    put("sys/fs/cgroup/box/memory.max", "104857600000000\n"); /* with more: the machine counts */
    assert_ok(res_pressure_check(g->r, &p, &percent, &err), err);
    assert_true(percent > 42.29 && percent < 42.31);
    put("proc/meminfo", "nonsense");
    assert_fails(res_pressure_check(g->r, &p, &percent, &err), err, BERTH_EFORMAT,
                 "memory pressure: cpu: ");
    use(100);
    rig_close(g);
}

/* Above the threshold: once; again only after 5 points more; armed again below 80. */
static void hysteresis_and_re_arming(void **state)
{
    struct rig *g = open_rig(-1, 0); /* the defaults: 85 and 5 */
    (void)state;
    use(850);
    assert_int_equal(look(g), RES_PRESSURE_LOW); /* not above */
    use(851);
    assert_int_equal(look(g), RES_PRESSURE_RESET);
    expect_tag(g, 0, "trigger:85.1pct");
    assert_true(res_has_requests(g->r));
    use(900);
    assert_int_equal(look(g), RES_PRESSURE_BAND);
    expect_tag(g, 1, "skip_hysteresis:90.0pct");
    use(902);
    assert_int_equal(look(g), RES_PRESSURE_RESET); /* 85.1 + 5 < 90.2 */
    use(820);
    assert_int_equal(look(g), RES_PRESSURE_LOW); /* below, but not enough to arm */
    use(930);
    assert_int_equal(look(g), RES_PRESSURE_BAND);
    use(990);
    assert_int_equal(look(g), RES_PRESSURE_RESET);
    use(1000);
    assert_int_equal(look(g), RES_PRESSURE_BAND); /* upstream: never again */
    use(799);
    assert_int_equal(look(g), RES_PRESSURE_LOW);
    use(851);
    assert_int_equal(look(g), RES_PRESSURE_RESET);
    assert_int_equal(res_metrics(g->r).pressure_resets, 4);
    rig_close(g);
}

static unsigned lower_to; /* what the reset below leaves in use */

static void relieve(struct rig *g)
{
    (void)g;
    use(lower_to);
}

static void a_reset_that_helped_arms_again(void **state)
{
    struct rig *g = open_rig(85, 5);
    (void)state;
    g->at_reset = relieve;
    use(900);
    lower_to = 840; /* above 80, but below the threshold: it helped */
    settle(g, 1);
    assert_int_equal(g->resets, 1);
    use(860);
    settle(g, 2);
    assert_int_equal(g->resets, 2);
    lower_to = 860; /* does not help any more */
    use(900);
    settle(g, 3);
    use(880);
    settle(g, 0); /* within the band of 90: leave it alone */
    assert_int_equal(g->resets, 3);
    assert_int_equal(res_metrics(g->r).resets, 3);
    assert_int_equal(res_metrics(g->r).pressure_resets, 3);
    rig_close(g);
}

static void not_while_a_prompt_runs(void **state)
{
    struct rig *g = open_rig(85, 5);
    struct res_receipt x;
    berth_err err = { 0 };
    (void)state;
    use(950);
    res_prompt_begin(g->r);
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_int_equal(x.serial, 0);
    assert_int_equal(g->resets, 0);
    assert_ok(res_prompt_end(g->r, &x, &err), err); /* and right after it */
    assert_true(x.serial == 1 && x.free_memory);
    res_receipt_release(&x);
    assert_int_equal(g->resets, 1);
    expect_tag(g, 0, "trigger:95.0pct");
    res_prompt_begin(g->r); /* within the band of that reset */
    assert_ok(res_prompt_end(g->r, NULL, &err), err);
    expect_tag(g, 1, "skip_hysteresis:95.0pct");
    assert_int_equal(g->resets, 1);
    rig_close(g);
}

/* Somebody's free reset the executor already: memory is still full, another reset would not
 * help. */
static void no_second_reset(void **state)
{
    struct rig *g = open_rig(85, 5);
    (void)state;
    use(950);
    res_request_free(g->r, false, true, false);
    settle(g, 1);
    assert_int_equal(g->resets, 1);
    assert_int_equal(res_metrics(g->r).pressure_resets, 0);
    res_request_free(g->r, true, false, false); /* a free without a reset, then pressure's own */
    settle(g, 3);
    assert_int_equal(g->resets, 2);
    rig_close(g);
}

static void a_reset_asks_like_any_other_free(void **state)
{
    struct rig *g = open_rig(85, 5);
    struct res_receipt x;
    berth_err err = { 0 };
    (void)state;
    rig_load(g, (struct rig_model) { rig_file("k.safetensors", 4, MIB), NULL, "null:0", RES_KEEP },
             NULL, NULL);
    rig_load(g, (struct rig_model) { rig_file("a.safetensors", 4, MIB), NULL, "null:0", RES_AUTO },
             NULL, NULL);
    use(900);
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_verdict(&x, "k", RES_KEPT, "marked keep");
    assert_verdict(&x, "a", RES_EJECTED_BY_FREE, "no model is marked eject");
    res_receipt_release(&x);
    put("proc/meminfo", "nonsense"); /* not knowing is a warning, not the end of a prompt */
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_int_equal(x.serial, 0);
    use(100);
    rig_close(g);
}

static void the_receipt_says_who_asked(void **state)
{
    struct rig *g = open_rig(85, 5);
    struct res_receipt x;
    berth_err err = { 0 };
    (void)state;
    use(900);
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_string_equal(x.reason, "pressure");
    assert_true(x.free_memory && !x.force);
    res_receipt_release(&x);
    use(960);
    assert_int_equal(look(g), RES_PRESSURE_RESET);
    res_request_free(g->r, true, false, false); /* somebody else, before it is settled */
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_string_equal(x.reason, "requested, and pressure");
    assert_true(x.unload_models && x.free_memory && !x.force);
    res_receipt_release(&x);
    res_request_free(g->r, false, true, false);
    assert_ok(res_settle(g->r, &x, &err), err);
    assert_string_equal(x.reason, "requested");
    res_receipt_release(&x);
    rig_close(g);
}

/* A card's name on the host's memory: nobody is called cpu, RAM can run out all the same. */
static void ram_under_another_name(void **state)
{
    struct rig *g = open_rig_on("null:0=64m,cuda:0@cpu=64m", 85, 5);
    struct str line = { 0 };
    double percent;
    berth_err err = { 0 };
    (void)state;
    use(423);
    assert_ok(res_pressure_check(g->r, NULL, &percent, &err), err);
    assert_true(percent > 42.29 && percent < 42.31);
    use(900);
    settle(g, 1);
    assert_int_equal(g->resets, 1);
    use(100);
    g->at_reset = relieve; /* the button's summary reads the same numbers */
    lower_to = 612;        /* 51.2 % of 1,000,000 KiB more */
    assert_ok(res_force_full_cleanup(g->r, NULL, false, &line, &err), err);
    assert_non_null(strstr(str_c(&line), "cpu_delta_mb=500.00"));
    str_release(&line);
    rig_close(g);
}

static void a_threshold_below_the_hysteresis(void **state)
{
    struct rig *g = open_rig(2, 5);
    (void)state;
    use(40);
    assert_int_equal(look(g), RES_PRESSURE_RESET);
    use(90);
    assert_int_equal(look(g), RES_PRESSURE_BAND);
    use(91);
    assert_int_equal(look(g), RES_PRESSURE_RESET);
    rig_close(g);
}

static void a_set_without_ram(void **state)
{
    struct rig *g = rig_open("null:0=64m", NULL, &(struct res_config) { .pressure_percent = 1 });
    double percent = 5;
    enum res_pressure p;
    berth_err err = { 0 };
    (void)state;
    assert_ok(res_pressure_check(g->r, &p, &percent, &err), err);
    assert_int_equal(p, RES_PRESSURE_LOW);
    assert_true(percent == 0);
    rig_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percent_of_what),
        cmocka_unit_test(hysteresis_and_re_arming),
        cmocka_unit_test(a_reset_that_helped_arms_again),
        cmocka_unit_test(not_while_a_prompt_runs),
        cmocka_unit_test(no_second_reset),
        cmocka_unit_test(a_reset_asks_like_any_other_free),
        cmocka_unit_test(the_receipt_says_who_asked),
        cmocka_unit_test(ram_under_another_name),
        cmocka_unit_test(a_threshold_below_the_hysteresis),
        cmocka_unit_test(a_set_without_ram),
    };
    return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
