/* The journal's texts, byte for byte, with a clock that stands still and devices without
 * hardware. */
#include "journal/journal.h"
#include "support/clock_manual.h"
#include "support/devices.h"
#include "support/oom.h"
#include "support/tmp.h"

#include "base/file.h"
#include "base/json.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define WALL UINT64_C(1763186400123456789) /* 2025-11-15T06:00:00.123456789Z */

struct world {
    struct clock_manual *clock; /* the journal keeps its address */
    struct devset *set;
    struct journal *j;
};

/* 4 GiB of RAM, half of it used, as a made-up /proc says. */
static const char *fake_root(void)
{
    static const char meminfo[] = "MemTotal: 4194304 kB\nMemAvailable: 2097152 kB\n";
    static char root[256]; /* devices keep the pointer */
    if (*root)
        return root;
    mkdir(tmp_path("root"), 0755);
    mkdir(tmp_path("root/proc"), 0755);
    tmp_write("root/proc/meminfo", meminfo, sizeof meminfo - 1);
    snprintf(root, sizeof root, "%s", tmp_path("root"));
    return root;
}

static struct world open_world(const char *devices, const struct journal_config *cfg,
                               const struct log *log)
{
    struct world w;
    berth_err err = { 0 };
    struct dev_env env = { .root = fake_root() };
    w.clock = malloc(sizeof *w.clock);
    assert_non_null(w.clock);
    clock_manual_init(w.clock, 0, WALL);
    w.set = open_devices(devices, &env);
    assert_ok(journal_new(cfg, w.set, log, &w.clock->base, &w.j, &err), err);
    return w;
}

static void close_world(struct world *w)
{
    journal_free(w->j);
    devset_close(w->set);
    free(w->clock);
}

/* What the summary has of one identifier, without the headline. */
static void add_series(struct journal *j, const char *identifier, struct str *out)
{
    struct str all = { 0 };
    char head[200];
    snprintf(head, sizeof head, "=== memory summary: %s ===\n", identifier);
    journal_summary(j, &all);
    const char *from = strstr(str_c(&all), head);
    const char *to = from ? strstr(from + strlen(head), "=== ") : NULL;
    if (from)
        str_add(out, from + strlen(head),
                (size_t)((to ? to : str_c(&all) + all.n) - from) - strlen(head));
    str_release(&all);
}

static void lines_read_exactly_so(void **state)
{
    struct world w = open_world("null:10=4g,null:2=1g,cpu=1g", NULL, NULL);
    struct str s = { 0 };
    (void)state;
    struct device *d = device_named(w.set, "null:2");
    struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
    struct dev_mem m = alloc_on(d, o, 256 * MIB);
    journal_snapshot(w.j, "free_memory", "pre");
    w.clock->wall += 1877000000; /* .000456789 of the second after next */
    journal_snapshot(w.j, "load_models_gpu_top_level_and_more", "start");
    dev_free(&m);
    dev_trim(d);
    journal_snapshot(w.j, "free_memory", "post");
    journal_summary(w.j, &s);
    assert_string_equal(
        str_c(&s), "=== memory summary: free_memory ===\n"
                   "2025-11-15T06:00:00.123Z free_memory_pre                     cpu|2.00 "
                   "null:10|0.00 null:2|0.25\n"
                   "2025-11-15T06:00:02.000Z free_memory_post                    cpu|2.00 "
                   "null:10|0.00 null:2|0.00\n"
                   "=== memory summary: load_models_gpu_top_level_and_more ===\n"
                   "2025-11-15T06:00:02.000Z load_models_gpu_top_level_and_more_start cpu|2.00 "
                   "null:10|0.00 null:2|0.25\n");
    str_clear(&s);
    add_series(w.j, "load_models_gpu_top_level_and_more", &s);
    assert_memory_equal(str_c(&s), "2025-11-15T06:00:02.000Z load", 29);
    str_clear(&s);
    add_series(w.j, "nobody", &s);
    assert_string_equal(str_c(&s), "");
    str_release(&s);
    dev_owner_close(o);
    close_world(&w);
}

static void a_device_that_is_silent_is_zero(void **state)
{
    struct world w = open_world("null:0=1g,null:1=2g", NULL, NULL);
    struct journal_entry e;
    (void)state;
    null_fail(devset_at(w.set, 0), NULL_INFO, 1);
    journal_snapshot(w.j, "x", "y");
    assert_int_equal(journal_query(w.j, 0, NULL, &e, 1, NULL), 1);
    assert_true(e.devices == 2 && e.total[0] == 0 && e.total[1] == (uint64_t)2 << 30);
    assert_int_equal(journal_dropped(w.j), 0);
    close_world(&w);
}

static size_t count_lines(const char *s)
{
    size_t n = 0;
    for (; (s = strchr(s, '\n')); s++)
        n++;
    return n;
}

static void rings_forget_the_oldest(void **state)
{
    struct journal_config cfg = { .ring = 3, .timeline = 20 };
    struct world w = open_world("null:0=1g", &cfg, NULL);
    struct journal_entry e[32];
    struct str s = { 0 };
    uint64_t lost;
    char tag[16];
    (void)state;
    assert_int_equal(journal_query(w.j, 0, NULL, e, 32, &lost), 0);
    assert_int_equal(lost, 0);
    for (int i = 1; i <= 50; i++) {
        snprintf(tag, sizeof tag, "t%d", i);
        journal_snapshot(w.j, i % 10 ? "often" : "seldom", tag);
    }
    add_series(w.j, "often", &s);
    assert_int_equal(count_lines(str_c(&s)), 3);
    assert_non_null(strstr(str_c(&s), "often_t47 "));
    assert_non_null(strstr(str_c(&s), "often_t49 "));
    str_clear(&s);
    add_series(w.j, "seldom", &s); /* outlives the timeline */
    assert_int_equal(count_lines(str_c(&s)), 3);
    assert_non_null(strstr(str_c(&s), "seldom_t30 "));

    assert_int_equal(journal_query(w.j, 0, NULL, e, 32, &lost), 20);
    assert_true(e[0].seq == 31 && e[19].seq == 50 && lost == 30);
    assert_string_equal(e[0].tag, "t31");
    assert_int_equal(journal_query(w.j, 45, NULL, e, 3, &lost), 3);
    assert_true(e[0].seq == 46 && e[2].seq == 48 && lost == 0);
    assert_int_equal(journal_query(w.j, 0, "seldom", e, 32, NULL), 2);
    assert_true(e[0].seq == 40 && e[1].seq == 50);
    assert_int_equal(journal_query(w.j, 50, NULL, e, 32, &lost), 0);
    assert_int_equal(lost, 0);
    assert_int_equal(journal_query(w.j, UINT64_MAX, NULL, e, 32, &lost), 0);
    assert_int_equal(lost, 0);
    str_release(&s);
    close_world(&w);
}

static void the_quietest_identifier_gives_way(void **state)
{
    struct world w = open_world("null:0=1g", NULL, NULL);
    struct str s = { 0 };
    char name[32];
    (void)state;
    for (int i = 0; i < JOURNAL_SERIES_MAX; i++) {
        snprintf(name, sizeof name, "id%d", i);
        journal_snapshot(w.j, name, "a");
    }
    journal_snapshot(w.j, "id0", "b");
    journal_snapshot(w.j, "new", "c"); /* id1 was quiet longest */
    add_series(w.j, "id1", &s);
    assert_string_equal(str_c(&s), "");
    add_series(w.j, "id0", &s);
    add_series(w.j, "new", &s);
    assert_int_equal(count_lines(str_c(&s)), 3);
    str_release(&s);
    close_world(&w);
}

/* Names come from workflows: they cannot break a line, drive a terminal or be endless. */
static void hostile_names_stay_one_line(void **state)
{
    struct world w = open_world("null:0=1g", NULL, NULL);
    struct journal_entry e;
    struct str s = { 0 };
    char name[300];
    (void)state;
    memset(name, 'n', sizeof name);
    memcpy(name, "a\nb\033[2J\xff", 8);
    name[sizeof name - 1] = '\0';
    journal_snapshot(w.j, name, "tag\r\n");
    journal_snapshot(w.j, NULL, NULL);
    assert_int_equal(journal_query(w.j, 0, name, &e, 1, NULL), 1); /* found under its own name */
    assert_memory_equal(e.identifier, "a?b?[2J?nn", 10);
    assert_int_equal(strlen(e.identifier), JOURNAL_NAME_MAX - 1);
    assert_string_equal(e.identifier + JOURNAL_NAME_MAX - 4, "...");
    assert_string_equal(e.tag, "tag??");
    journal_line(w.j, &e, &s);
    assert_int_equal(count_lines(str_c(&s)), 0);
    str_release(&s);
    close_world(&w);
}

static void timeline_as_json(void **state)
{
    struct world w = open_world("null:0=1g", NULL, NULL);
    struct str s = { 0 };
    json_t *v;
    berth_err err = { 0 };
    (void)state;
    journal_timeline_json(w.j, 0, 10, &s);
    assert_string_equal(str_c(&s), "[]");
    str_clear(&s);
    journal_snapshot(w.j, "a\"b", "t");
    journal_timeline_json(w.j, 0, 10, &s);
    assert_string_equal(
        str_c(&s), "[{\"seq\":1,\"time\":\"2025-11-15T06:00:00.123Z\",\"identifier\":\"a\\\"b\","
                   "\"tag\":\"t\",\"devices\":[{\"device\":\"null:0\",\"used\":0,"
                   "\"total\":1073741824}]}]");
    for (int i = 0; i < 40; i++)
        journal_snapshot(w.j, "x", "y");
    str_clear(&s);
    journal_timeline_json(w.j, 5, 30, &s);
    assert_ok(js_parse(s.p, s.n, NULL, &v, &err), err);
    assert_int_equal(json_array_size(v), 30);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(v, 29), "seq")), 35);
    json_decref(v);
    str_release(&s);
    close_world(&w);
}

static void levels(void **state)
{
    static const struct {
        const char *text;
        int level;
    } row[] = {
        { NULL, 25 },       { "", 25 },       { "focus", 25 },   { "FOCUS", 25 },
        { "Debug", 10 },    { " INFO ", 20 }, { "WARNING", 30 }, { "error", 40 },
        { "CRITICAL", 50 }, { "17", 17 },     { "0", 1 },        { "-5", 1 },
        { "warn", 25 },     { "2x", 25 },     { "--1", 25 },     { "99999999999", 2147483647 }
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (journal_level_parse(row[i].text) != row[i].level)
            fail_msg("'%s' is %d", row[i].text ? row[i].text : "NULL",
                     journal_level_parse(row[i].text));
}

/* ---- the JSON log ---- */

static const char *id_of(void *user, bool workflow)
{
    return workflow ? user : "p-1";
}

static char *read_text(const char *path)
{
    char *text;
    size_t n;
    berth_err err = { 0 };
    assert_ok(file_read_all(path, 1 << 20, &text, &n, &err), err);
    return text;
}

static void json_log_reads_exactly_so(void **state)
{
    static const char *const fields[] = { "component", "mo\xc3\xa9l", "prompt_id", "mine", NULL };
    const char *path = tmp_path("deep/er/log.jsonl");
    struct journal_config cfg = {
        .json_path = path,
        .json_static = "{\"host\": \"b\\u00fc\", \"level\": [1, 2.5, null, {\"a\": true}], \"n\": "
                       "18446744073709551615}",
        .json_id = id_of,
        .json_user = (void *)(uintptr_t) "w-1",
    };
    struct world w = open_world("cpu=1g", &cfg, NULL);
    (void)state;
    journal_snapshot(w.j, "cpu_monitor", "trigger:91.5pct");
    journal_record(w.j, JOURNAL_ERROR, "[A b] \"q\" \\ \n \x01 \x7f \xf0\x9f\x98\x80 \xff", fields);
    journal_record(w.j, JOURNAL_INFO, "below the level", NULL);
    journal_record(w.j, 33, "plain", NULL);
    char *text = read_text(path);
    assert_string_equal(
        text,
        "{\"timestamp\": \"2025-11-15T06:00:00.123456Z\", \"level\": [1, 2.5, null, {\"a\": "
        "true}], "
        "\"name\": \"MultiGPU\", \"message\": \"[MultiGPU Model Management] "
        "2025-11-15T06:00:00.123Z cpu_monitor_trigger:91.5pct         cpu|2.00\", "
        "\"event_category\": \"MultiGPU Model Management\", \"component\": \"model_management\", "
        "\"workflow_id\": \"w-1\", \"prompt_id\": \"p-1\", \"host\": \"b\\u00fc\", "
        "\"n\": 18446744073709551615}\n"
        "{\"timestamp\": \"2025-11-15T06:00:00.123456Z\", \"level\": [1, 2.5, null, {\"a\": "
        "true}], "
        "\"name\": \"MultiGPU\", \"message\": \"[A b] \\\"q\\\" \\\\ \\n \\u0001 \\u007f "
        "\\ud83d\\ude00 \\ufffd\", \"event_category\": \"A b\", \"component\": \"mo\\u00e9l\", "
        "\"prompt_id\": \"mine\", \"workflow_id\": \"w-1\", \"host\": \"b\\u00fc\", "
        "\"n\": 18446744073709551615}\n"
        "{\"timestamp\": \"2025-11-15T06:00:00.123456Z\", \"level\": [1, 2.5, null, {\"a\": "
        "true}], "
        "\"name\": \"MultiGPU\", \"message\": \"plain\", \"workflow_id\": \"w-1\", "
        "\"prompt_id\": \"p-1\", \"host\": \"b\\u00fc\", \"n\": 18446744073709551615}\n");
    assert_int_equal(journal_json_failures(w.j), 0);
    free(text);
    close_world(&w);
}

static void json_levels_have_names(void **state)
{
    static const struct {
        int level;
        const char *want;
    } row[] = { { 10, "DEBUG" }, { 20, "INFO" },     { 25, "FOCUS" },   { 30, "WARNING" },
                { 40, "ERROR" }, { 50, "CRITICAL" }, { 33, "Level 33" } };
    struct journal_config cfg = { .json_path = tmp_path("levels.jsonl"), .json_level = 1 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char want[40];
        struct world w = open_world("null:0=1g", &cfg, NULL);
        journal_record(w.j, row[i].level, "[] m", NULL);
        close_world(&w);
        char *text = read_text(cfg.json_path); /* truncated each time: one line */
        snprintf(want, sizeof want, "\"level\": \"%s\", ", row[i].want);
        assert_non_null(strstr(text, want));
        assert_null(strstr(text, "event_category"));
        assert_int_equal(count_lines(text), 1);
        free(text);
    }
}

static void json_appends_or_truncates(void **state)
{
    struct journal_config cfg = { .json_path = tmp_path("twice.jsonl") };
    (void)state;
    for (int i = 0; i < 3; i++) {
        cfg.json_append = i == 1;
        struct world w = open_world("null:0=1g", &cfg, NULL);
        journal_record(w.j, JOURNAL_ERROR, "m", NULL);
        close_world(&w);
        char *text = read_text(cfg.json_path);
        assert_int_equal(count_lines(text), i == 1 ? 2 : 1);
        free(text);
    }
}

struct heard {
    char text[4][400];
    size_t n;
};

static void hear(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                 const char *text)
{
    struct heard *h = user;
    (void)wall_ns;
    if (h->n < 4)
        snprintf(h->text[h->n++], sizeof h->text[0], "%d %s %s", (int)level, event, text);
}

static void nothing_to_say_empties_no_log(void **state)
{
    struct journal_config cfg = { .json_path = tmp_write("old.jsonl", "old\n", 4) };
    struct world w = open_world("null:0=1g", &cfg, NULL);
    (void)state;
    journal_record(w.j, JOURNAL_DEBUG, "not important enough", NULL);
    close_world(&w);
    char *text = read_text(cfg.json_path);
    assert_string_equal(text, "old\n");
    free(text);
}

static void trouble_with_the_json_log_is_a_warning(void **state)
{
    static const char *const bad[] = { "{", "[1]", "{\"a\":1} x", "nonsense", "{\"a\":" };
    struct heard h = { 0 };
    struct log log = { .level = LOG_DEBUG, .write = hear, .user = &h };
    (void)state;
    struct journal_config cfg = { .json_path = "/proc/nowhere/x/log.jsonl" };
    struct world w = open_world("null:0=1g", &cfg, &log);
    assert_int_equal(h.n, 0);        /* opened with the first record */
    journal_snapshot(w.j, "a", "b"); /* the rings work all the same */
    journal_snapshot(w.j, "a", "c");
    assert_int_equal(journal_json_failures(w.j), 1); /* said once */
    assert_int_equal(h.n, 1);
    assert_non_null(strstr(h.text[0], "path=\"/proc/nowhere/x/log.jsonl\""));
    assert_int_equal(journal_dropped(w.j), 0);
    close_world(&w);

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        h.n = 0;
        cfg = (struct journal_config) { .json_path = tmp_path("s.jsonl"), .json_static = bad[i] };
        w = open_world("null:0=1g", &cfg, &log);
        assert_int_equal(h.n, 1);
        assert_non_null(strstr(h.text[0], "journal.static"));
        journal_record(w.j, JOURNAL_ERROR, "m", NULL);
        close_world(&w);
        char *text = read_text(cfg.json_path);
        assert_int_equal(count_lines(text), 1);
        free(text);
    }
    cfg = (struct journal_config) { .json_path = "/dev/full" }; /* writes fail, and are counted */
    w = open_world("null:0=1g", &cfg, &log);
    journal_record(w.j, JOURNAL_ERROR, "m", NULL);
    journal_snapshot(w.j, "a", "b");
    assert_int_equal(journal_json_failures(w.j), 2);
    close_world(&w);
}

static void lines_go_to_the_log_when_asked(void **state)
{
    struct heard h = { 0 };
    struct log log = { .level = LOG_DEBUG, .write = hear, .user = &h };
    struct journal_config cfg = { .log_lines = true };
    struct world w = open_world("null:0=1g", &cfg, &log);
    (void)state;
    journal_snapshot(w.j, "general", "post-soft-empty");
    assert_int_equal(h.n, 1);
    assert_string_equal(h.text[0], "1 res.memory [MultiGPU Model Management] "
                                   "2025-11-15T06:00:00.123Z general_post-soft-empty             "
                                   "null:0|0.00");
    close_world(&w);
    w = open_world("null:0=1g", NULL, &log); /* off by default */
    journal_snapshot(w.j, "general", "x");
    assert_int_equal(h.n, 1);
    close_world(&w);
}

/* ---- exhausted memory, threads ---- */

static void new_survives_oom(void **state)
{
    struct devset *set = open_devices("null:0=1g", NULL);
    struct journal_config cfg = { .json_path = tmp_path("oom.jsonl"),
                                  .json_static = "{\"a\":{\"b\":[1,\"x\"]},\"c\":2}" };
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    (void)state;
    for (; s != BERTH_OK; k++) {
        struct journal *j = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = journal_new(&cfg, set, NULL, NULL, &j, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !j && err.msg[0]));
        journal_free(j);
    }
    assert_true(k > 5);
    devset_close(set);
}

static void snapshots_survive_oom(void **state)
{
    struct journal_config cfg = { .json_path = tmp_path("oom2.jsonl"), .json_static = "{\"a\":1}" };
    (void)state;
    for (long k = 0;; k++) {
        struct world w = open_world("null:0=1g", &cfg, NULL);
        struct str s = { 0 };
        oom_after(k);
        journal_snapshot(w.j, "x", "y");
        journal_summary(w.j, &s);
        long seen = oom_seen();
        oom_off();
        bool whole = seen <= k;
        assert_true(whole == (!s.bad && !journal_dropped(w.j) && !journal_json_failures(w.j)));
        str_clear(&s); /* and it works again */
        journal_snapshot(w.j, "x", "z");
        add_series(w.j, "x", &s);
        assert_non_null(strstr(str_c(&s), "x_z "));
        str_release(&s);
        close_world(&w);
        if (whole)
            break;
    }
}

static void *read_on(void *user)
{
    struct journal *j = user;
    struct journal_entry e[4];
    for (int i = 0; i < 200; i++) {
        struct str s = { 0 };
        uint64_t lost, after = 0;
        size_t n = journal_query(j, after, NULL, e, 4, &lost);
        for (size_t k = 1; k < n; k++)
            if (e[k].seq != e[k - 1].seq + 1)
                return j;
        journal_summary(j, &s);
        journal_record(j, JOURNAL_ERROR, "[x] from another thread", NULL);
        str_release(&s);
    }
    return NULL;
}

static void any_thread_reads(void **state)
{
    struct journal_config cfg = { .ring = 16, .timeline = 32, .json_path = tmp_path("mt.jsonl") };
    struct world w = open_world("null:0=1g,null:1=1g", &cfg, NULL);
    pthread_t t[2];
    void *wrong[2];
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_on, w.j), 0);
    for (int i = 0; i < 400; i++)
        journal_snapshot(w.j, i % 3 ? "a" : "b", "t");
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &wrong[i]);
        assert_null(wrong[i]);
    }
    close_world(&w);
    char *text = read_text(cfg.json_path);
    assert_int_equal(count_lines(text), 800);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_true(line[0] == '{' && end[-1] == '}'); /* whole */
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_read_exactly_so),
        cmocka_unit_test(a_device_that_is_silent_is_zero),
        cmocka_unit_test(rings_forget_the_oldest),
        cmocka_unit_test(the_quietest_identifier_gives_way),
        cmocka_unit_test(hostile_names_stay_one_line),
        cmocka_unit_test(timeline_as_json),
        cmocka_unit_test(levels),
        cmocka_unit_test(json_log_reads_exactly_so),
        cmocka_unit_test(json_levels_have_names),
        cmocka_unit_test(json_appends_or_truncates),
        cmocka_unit_test(nothing_to_say_empties_no_log),
        cmocka_unit_test(trouble_with_the_json_log_is_a_warning),
        cmocka_unit_test(lines_go_to_the_log_when_asked),
        cmocka_unit_test(new_survives_oom),
        cmocka_unit_test(snapshots_survive_oom),
        cmocka_unit_test(any_thread_reads),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
