/* SQLite's store: the contract of all, and what is its own. */
#include "support/fakeroot.h"
#include "unit/store/contract.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *fresh(void)
{
    static int n;
    char name[32];
    snprintf(name, sizeof name, "state%d.db", n++);
    return tmp_path(name);
}

static const char *fresh_and_named(void)
{
    static char path[512];
    snprintf(path, sizeof path, "sqlite:%s", fresh());
    return path;
}

static struct store *reopen(struct store *s, const char *path)
{
    store_close(s);
    return open_store(path);
}

/* ---- order ---- */

static void order_and_ties(void **state)
{
    (void)state;
    const char *path = fresh();
    struct store *s = open_store(path);
    assert_int_equal(store_next_number(s), 0);
    assert_int_equal(store_next_number(s), 1);
    add(s, "b", 1);
    add(s, "c", 2.5);
    add(s, "front", -7);
    add(s, "b2", 1); /* same number: arrival decides, not the id */
    add(s, "a", 1);
    add(s, "fronter", -8);
    queue_is(s, "fronter front b b2 a c ");
    s = reopen(s, path);
    queue_is(s, "fronter front b b2 a c ");
    assert_int_equal(store_next_number(s), 2);
    take(s, "fronter", 1);
    queue_is(s, "fronter: front b b2 a c ");
    assert_int_equal(store_remaining(s), 6);
    assert_int_equal(store_pending(s), 5);
    finish(s);
    take(s, "front", 1);
    finish(s);
    add(s, "again", 1);
    queue_is(s, "b b2 a again c ");
    history_is(s, "fronter front ");
    store_close(s);
}

static void items_as_on_the_wire(void **state)
{
    (void)state;
    struct store *s = open_store(":memory:");
    struct str got = { 0 };
    struct store_job j = { .id = text_of("a\"b"),
                           .number = text_of("7.0"),
                           .order = 7,
                           .prompt = text_of("{\"1\":18446744073709551615}"),
                           .extra_data = text_of("{}"),
                           .outputs = text_of("[\"1\"]") };
    bool running;
    berth_err err = { 0 };
    assert_ok(store_queue_json(s, &got, &err), err);
    assert_string_equal(got.p, "{\"queue_running\":[],\"queue_pending\":[]}");
    assert_ok(try_add(s, j, &err), err);
    str_clear(&got);
    assert_ok(store_queue_json(s, &got, &err), err);
    assert_string_equal(got.p, "{\"queue_running\":[],\"queue_pending\":[[7.0,\"a\\\"b\","
                               "{\"1\":18446744073709551615},{},[\"1\"]]]}");
    assert_true(store_job_get(s, "a\"b", &j, &running) && !running && j.created_ms > 0);
    assert_null(j.client_id);
    store_job_release(&j);
    assert_false(store_job_get(s, "x", &j, &running));
    take(s, "a\"b", 1);
    assert_true(store_job_get(s, "a\"b", &j, &running) && running && j.attempts == 1);
    store_job_release(&j);
    finish(s);
    str_clear(&got);
    assert_ok(store_history_one(s, "a\"b", &got, &err), err);
    assert_string_equal(
        got.p, "{\"a\\\"b\":{\"prompt\":[7.0,\"a\\\"b\",{\"1\":18446744073709551615},{},[\"1\"]],"
               "\"outputs\":{\"9\":{\"images\":[]}},\"status\":{\"status_str\":\"success\","
               "\"completed\":true,\"messages\":[]},\"meta\":{\"9\":{}}}}");
    str_clear(&got);
    assert_ok(store_history_one(s, "x", &got, &err), err);
    assert_string_equal(got.p, "{}");
    str_release(&got);
    store_close(s);
}

static void pausing_and_waking(void **state)
{
    (void)state;
    const char *path = fresh();
    struct store *s = open_store(path);
    berth_err err = { 0 };
    add(s, "a", 0);
    assert_ok(store_pause(s, true, &err), err);
    assert_true(store_paused(s));
    nothing_to_take(s);
    s = reopen(s, path);
    assert_true(store_paused(s));
    nothing_to_take(s);
    assert_ok(store_pause(s, false, &err), err);
    store_wake(s);
    nothing_to_take(s); /* once */
    take(s, "a", 1);
    struct store_job j;
    bool got;
    nothing_to_take(s);
    finish(s);
    assert_fails(try_finish(s, &fine, &err), err, BERTH_EINVAL, "no attempt at it is running");
    assert_fails(try_park(s, &err), err, BERTH_EINVAL, "no attempt at it is running");
    assert_ok(try_take(s, clock_mono_ns(clock_system()) + 1000000, &j, &got, &err), err);
    assert_false(got);
    store_close(s);
    took.wakes = 0;
}

static void the_counter_never_goes_back(void **state)
{
    (void)state;
    const char *path = fresh();
    struct store *s = open_store(path);
    berth_err err = { 0 };
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(store_next_number(s), i);
    add(s, "a", 4);
    assert_int_equal(store_clear(s, &err), 1);
    assert_ok(store_history_clear(s, &err), err);
    for (uint64_t i = 5; i < 8; i++) {
        s = reopen(s, path);
        assert_int_equal(store_next_number(s), i);
    }
    store_close(s);
}

static void a_full_queue(void **state)
{
    (void)state;
    struct store_config cfg = { .path = ":memory:", .max_pending = 2, .max_bytes = 1000 };
    struct store *s;
    berth_err err = { 0 };
    assert_ok(store_open(&cfg, &s, &err), err);
    add(s, "a", 0);
    take(s, "a", 1);
    add(s, "b", 0);
    add(s, "c", 0);
    assert_fails(try_add(s, job_of("d", 0), &err), err, BERTH_ELIMIT,
                 "2 prompts wait, and no more than 2");
    finish(s);
    take(s, "b", 1);
    struct store_job big = job_of("big", 0);
    free(big.prompt);
    big.prompt = text_of("{\"%1000d\":0}", 0);
    assert_fails(try_add(s, big, &err), err, BERTH_ELIMIT, "over 1000");
    struct store_job odd = job_of("odd", 0);
    odd.order = 0.0 / (odd.order * 0);
    assert_fails(try_add(s, odd, &err), err, BERTH_EINVAL, "'0'");
    add(s, "d", 0);
    queue_is(s, "b: c d ");
    store_close(s);
}

/* ---- history ---- */

static void history_is_bounded(void **state)
{
    (void)state;
    struct store_config cfg = { .path = fresh(), .max_history = 3 };
    struct store *s;
    berth_err err = { 0 };
    char id[16];
    assert_ok(store_open(&cfg, &s, &err), err);
    for (int i = 0; i < 6; i++) {
        snprintf(id, sizeof id, "%d", i);
        run_through(s, id);
    }
    run_through(s, "4");
    history_is(s, "3 4 5 ");
    store_close(s);
    cfg.max_history = 1;
    assert_ok(store_open(&cfg, &s, &err), err);
    history_is(s, "5 ");
    assert_int_equal(store_history_count(s), 1);
    store_close(s);
}

static off_t file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* In bytes too; and what a clear leaves is not kept for ever. */
static void history_is_bounded_in_bytes(void **state)
{
    (void)state;
    enum { EACH = 1 << 20, BOUND = 10 * EACH };
    struct store_config cfg = { .path = fresh(), .max_file = BOUND };
    struct store *s;
    berth_err err = { 0 };
    char id[16];
    char *large = text_of("{\"a\":\"%*d\"}", EACH, 1);
    struct store_result r = { large, fine.status, fine.meta };
    assert_ok(store_open(&cfg, &s, &err), err);
    for (int i = 0; i < 30; i++) {
        snprintf(id, sizeof id, "%d", i);
        add(s, id, 0);
        take(s, id, 0);
        assert_ok(try_finish(s, &r, &err), err);
        assert_int_equal(store_history_count(s), i < 9 ? i + 1 : 9); /* a tenth would be over it */
    }
    history_is(s, "21 22 23 24 25 26 27 28 29 ");
    store_close(s);
    assert_in_range(file_bytes(cfg.path), 9 * EACH, BOUND + EACH);
    cfg.max_file = 4096; /* less than one: the newest stays */
    assert_ok(store_open(&cfg, &s, &err), err);
    history_is(s, "29 ");
    store_close(s);
    off_t full = file_bytes(cfg.path);
    assert_ok(store_open(&cfg, &s, &err), err);
    assert_ok(store_history_clear(s, &err), err);
    store_close(s);
    assert_true(file_bytes(cfg.path) < full - 3 * EACH);
    free(large);
}

struct seen {
    struct store *s;
    struct str ids;
    size_t stop;
    bool extra;
};

static bool see(struct seen *v, const struct store_entry *e)
{
    str_addf(&v->ids, "%s ", e->job.id);
    assert_true(e->job.seq > 0 && e->job.attempts == 1 && !strncmp(e->job.client_id, "c-", 2));
    assert_string_equal(e->status, fine.status);
    store_history_count(v->s); /* no lock is held */
    struct str text = { 0 };
    berth_err err = { 0 };
    assert_ok(store_history_one(v->s, e->job.id, &text, &err), err);
    str_release(&text);
    return --v->stop > 0;
}

static bool see_entry(void *user, const struct store_entry *e)
{
    assert_string_equal(e->outputs, fine.outputs);
    return see(user, e);
}

/* id, status and the rest of the small columns; extra_data if that was asked for. */
static bool see_brief(void *user, const struct store_entry *e)
{
    struct seen *v = user;
    assert_true(e->job.created_ms > 0 && e->job.number[0]);
    assert_string_equal(e->job.prompt, "");
    assert_string_equal(e->job.outputs, "");
    assert_string_equal(e->outputs, "");
    assert_string_equal(e->meta, "");
    assert_int_equal(e->job.extra_data[0], v->extra ? '{' : '\0');
    return see(v, e);
}

static void entries(void **state)
{
    (void)state;
    struct store *s = open_store(fresh());
    struct seen v = { .s = s, .stop = 9 };
    berth_err err = { 0 };
    run_through(s, "a");
    run_through(s, "b");
    run_through(s, "c");
    assert_ok(store_each_brief(s, v.extra, see_brief, &v, &err), err);
    assert_string_equal(v.ids.p, "a b c ");
    v.stop = 2;
    v.extra = true;
    str_clear(&v.ids);
    assert_ok(store_each_brief(s, v.extra, see_brief, &v, &err), err);
    assert_string_equal(v.ids.p, "a b ");
    str_clear(&v.ids);
    assert_ok(store_entry_get(s, "b", see_entry, &v, &err), err);
    assert_string_equal(v.ids.p, "b ");
    assert_fails(store_entry_get(s, "x", see_entry, &v, &err), err, BERTH_ENOTFOUND, "'x'");
    str_release(&v.ids);
    store_close(s);
}

/* ---- recovery ---- */

static void put_kills(const char *machine, const char *group)
{
    fakeroot_puts("proc/vmstat", machine);
    fakeroot_puts("sys/fs/cgroup/box/memory.events", group);
}

static void open_in_box(struct store_config *cfg, const char *path, struct store **s)
{
    berth_err err = { 0 };
    *cfg = (struct store_config) { .path = path, .root = fakeroot_new() };
    fakeroot_puts("proc/sys/kernel/random/boot_id", "7a0c\n");
    fakeroot_puts("proc/self/cgroup", "0::/box\n");
    put_kills("oom_kill 4\n", "oom_kill 1\n");
    assert_ok(store_open(cfg, s, &err), err);
}

/* The counts are not read for every job of a quick sequence, but often enough. */
static void a_kill_before_a_job_is_not_its_doing(void **state)
{
    char path[512];
    struct store_config cfg;
    struct store *s;
    berth_err err = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s", fresh());
    open_in_box(&cfg, path, &s);
    add(s, "a", 1);
    add(s, "b", 2);
    take(s, "a", 1);
    finish(s);
    put_kills("oom_kill 5\n", "oom_kill 2\n");
    usleep(50000);
    take(s, "b", 1);
    store_close(s); /* left running */
    assert_ok(store_open(&cfg, &s, &err), err);
    queue_is(s, "b ");
    store_close(s);
}

/* A server that the kernel killed for its memory does not try what it ran again; one that was ended
 * otherwise does, also where others were killed meanwhile. */
static void what_killed_the_server_is_not_tried_again(void **state)
{
    static const struct {
        const char *vmstat, *events;
        bool again;
    } cases[] = {
        { "oom_kill 4\n", "oom_kill 1\n", true },
        { "oom_kill 5\n", "oom_kill 1\n", true }, /* another group */
        { "oom_kill 5\n", "oom_kill 2\n", false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s", fresh());
        struct store_config cfg;
        struct store *s;
        struct str text = { 0 };
        berth_err err = { 0 };
        open_in_box(&cfg, path, &s);
        add(s, "a", 1);
        add(s, "b", 2);
        take(s, "a", 1);
        store_close(s); /* left running */
        put_kills(cases[i].vmstat, cases[i].events);
        assert_ok(store_open(&cfg, &s, &err), err);
        queue_is(s, cases[i].again ? "a b " : "b ");
        history_is(s, cases[i].again ? "" : "a ");
        assert_ok(store_history_one(s, "a", &text, &err), err);
        assert_int_equal(!strstr(str_c(&text), "died 1 time while"), cases[i].again);
        assert_int_equal(!strstr(str_c(&text), "want of memory"), cases[i].again);
        take(s, cases[i].again ? "a" : "b", cases[i].again ? 2 : 1);
        finish(s);
        str_release(&text);
        store_close(s);
    }
}

static void attempts_and_parking(void **state)
{
    (void)state;
    const char *path = fresh();
    struct store *s = open_store(path);
    berth_err err = { 0 };
    add(s, "first", 1);
    add(s, "a", 2);
    add(s, "last", 3);
    run_through(s, "x"); /* number 0 */
    take(s, "first", 1);
    finish(s);
    for (int i = 0; i < 3; i++) { /* parked: no attempt, however often */
        for (int k = 0; k < 2; k++) {
            take(s, "a", 1);
            assert_ok(try_park(s, &err), err);
            queue_is(s, "a last ");
        }
        s = reopen(s, path);
    }
    take(s, "a", 1);
    s = reopen(s, path); /* left running: the first attempt */
    queue_is(s, "a last ");
    take(s, "a", 2);
    s = reopen(s, path); /* the second, and last */
    queue_is(s, "last ");
    history_is(s, "x first a ");
    struct str text = { 0 };
    json_t *v;
    assert_ok(store_history_one(s, "a", &text, &err), err);
    assert_ok(js_parse(text.p, text.n, NULL, &v, &err), err);
    json_t *status = json_object_get(json_object_get(v, "a"), "status");
    assert_string_equal(json_string_value(json_object_get(status, "status_str")), "error");
    assert_true(json_is_false(json_object_get(status, "completed")));
    json_t *m = json_array_get(json_object_get(status, "messages"), 1);
    assert_string_equal(json_string_value(json_array_get(m, 0)), "execution_error");
    m = json_array_get(m, 1);
    assert_non_null(strstr(json_string_value(json_object_get(m, "exception_message")), "2 times"));
    assert_string_equal(json_string_value(json_object_get(m, "prompt_id")), "a");
    json_decref(v);
    str_release(&text);
    s = reopen(s, path); /* once */
    history_is(s, "x first a ");
    queue_is(s, "last ");
    store_close(s);
}

static void one_store_a_file(void **state)
{
    (void)state;
    struct store_config cfg = { .path = fresh() };
    struct store *s = open_store(cfg.path), *other;
    berth_err err = { 0 };
    char me[32];
    snprintf(me, sizeof me, "by process %ld", (long)getpid());
    add(s, "a", 0);
    assert_fails(store_open(&cfg, &other, &err), err, BERTH_EBUSY, me);
    assert_null(other);
    add(s, "b", 0);
    s = reopen(s, cfg.path);
    queue_is(s, "a b ");
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONTRACT_TESTS,
        cmocka_unit_test(order_and_ties),
        cmocka_unit_test(items_as_on_the_wire),
        cmocka_unit_test(pausing_and_waking),
        cmocka_unit_test(the_counter_never_goes_back),
        cmocka_unit_test(a_full_queue),
        cmocka_unit_test(history_is_bounded),
        cmocka_unit_test(history_is_bounded_in_bytes),
        cmocka_unit_test(entries),
        cmocka_unit_test(a_kill_before_a_job_is_not_its_doing),
        cmocka_unit_test(attempts_and_parking),
        cmocka_unit_test(what_killed_the_server_is_not_tried_again),
        cmocka_unit_test(one_store_a_file),
    };
    contract_place = fresh_and_named;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
