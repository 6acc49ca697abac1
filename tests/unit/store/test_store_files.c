/* What store_open() finds on disk, and what running out of memory does to it. */
#include "support/oom.h"
#include "support/stores.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static berth_status try_open(const char *path, struct store **s, berth_err *err)
{
    struct store_config cfg = { .path = path };
    return store_open(&cfg, s, err);
}

static char *slurp(const char *path, size_t *n)
{
    static char buf[2][1 << 20];
    static int which;
    char *p = buf[which++ % 2];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *n = fread(p, 1, sizeof buf[0], f);
    fclose(f);
    return p;
}

/* Refused with this code and text, and not a byte of it changed. */
static void refused(const char *path, berth_status code, const char *text)
{
    size_t n, m;
    char *was = slurp(path, &n), *is;
    struct store *s;
    berth_err err = { 0 };
    assert_fails(try_open(path, &s, &err), err, code, text);
    assert_non_null(strstr(err.msg, path));
    assert_null(s);
    is = slurp(path, &m);
    assert_int_equal(n, m);
    assert_memory_equal(was, is, n);
}

static void change(const char *path, const char *sql)
{
    sqlite3 *h;
    assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
    assert_int_equal(sqlite3_exec(h, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(h);
}

static void garbage(void **state)
{
    (void)state;
    static char noise[8192];
    memset(noise, 0x5a, sizeof noise);
    refused(tmp_write("noise.db", noise, sizeof noise), BERTH_EFORMAT, "Nothing was deleted");
    refused(tmp_write("text.db", "not a database, a letter", 24), BERTH_EFORMAT, "no database");
    memcpy(noise, "SQLite format 3", 16);
    refused(tmp_write("head.db", noise, sizeof noise), BERTH_EFORMAT, "no database");
}

static void other_databases(void **state)
{
    (void)state;
    const char *path = tmp_path("other.db");
    change(path, "CREATE TABLE t (x); INSERT INTO t VALUES (1)");
    refused(path, BERTH_EFORMAT, "not one of ours");
    path = tmp_path("newer.db");
    store_close(open_store(path));
    change(path, "PRAGMA user_version = 2");
    refused(path, BERTH_EFORMAT, "schema 2, this program knows 1");
}

/* A file as programs wrote it that had one worker: no indexes, no numbers of attempts, and
 * `running` was 0 or 1. */
static void an_older_file(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("older.db"));
    change(
        path,
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE job (seq INTEGER PRIMARY KEY, ord REAL NOT NULL, attempts INTEGER NOT NULL,"
        " running INTEGER NOT NULL DEFAULT 0, created_ms INTEGER NOT NULL, id TEXT NOT NULL,"
        " number TEXT NOT NULL, client_id TEXT, prompt TEXT NOT NULL, extra_data TEXT NOT NULL,"
        " wanted TEXT NOT NULL);"
        "CREATE TABLE history (place INTEGER PRIMARY KEY, seq INTEGER NOT NULL, ord REAL NOT NULL,"
        " attempts INTEGER NOT NULL, created_ms INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,"
        " number TEXT NOT NULL, client_id TEXT, prompt TEXT NOT NULL, extra_data TEXT NOT NULL,"
        " wanted TEXT NOT NULL, outputs TEXT NOT NULL, status TEXT NOT NULL, meta TEXT NOT NULL);"
        "INSERT INTO meta VALUES ('counter', 7), ('seq', 9);"
        "INSERT INTO job VALUES (6, 2, 0, 0, 5, 'late', '2', NULL, '{}', '{}', '[]'),"
        " (7, 1, 1, 1, 5, 'ran', '1', 'me', '{}', '{}', '[]'),"
        " (8, 0, 2, 1, 5, 'twice', '0', 'me', '{}', '{}', '[]');"
        "INSERT INTO history VALUES (1, 3, 0, 1, 5, 'done', '0', NULL, '{}', '{}', '[]', '{}',"
        " '{}', '{}');"
        "PRAGMA application_id = 0x42525448; PRAGMA user_version = 1");
    for (int i = 0; i < 2; i++) { /* and once more as we left it */
        struct store *s = open_store(path);
        assert_int_equal(store_remaining(s), 2);
        assert_int_equal(store_history_count(s), 2); /* "twice" is not tried again */
        assert_int_equal(store_next_number(s), 7 + i);
        take(s, "ran", 2);
        assert_true(took.attempt > 0 && took.seq == 7);
        berth_err err = { 0 };
        assert_ok(try_park(s, &err), err);
        store_close(s);
    }
}

/* Every page but the first is overwritten in turn: an error that names the file, or no harm
 * seen. */
static void damaged(void **state)
{
    (void)state;
    const char *path = tmp_path("damaged.db");
    struct store *s = open_store(path);
    char id[32];
    for (int i = 0; i < 30; i++) {
        snprintf(id, sizeof id, "%d", i);
        add(s, id, i);
    }
    store_close(s);
    size_t n, bad = 0;
    static char whole[1 << 20];
    memcpy(whole, slurp(path, &n), sizeof whole);
    for (size_t at = 4096; at < n; at += 4096) {
        berth_err err = { 0 };
        int fd = open(path, O_WRONLY | O_TRUNC);
        assert_true(fd >= 0 && write(fd, whole, n) == (ssize_t)n);
        assert_int_equal(pwrite(fd, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, (off_t)at), 8);
        close(fd);
        if (try_open(path, &s, &err)) {
            assert_int_equal(err.code, BERTH_EFORMAT);
            assert_non_null(strstr(err.msg, "damaged.db"));
            bad++;
        }
        store_close(s);
    }
    assert_true(bad > 0);
    assert_int_equal(truncate(path, 4096), 0);
    berth_err err = { 0 };
    assert_fails(try_open(path, &s, &err), err, BERTH_EFORMAT, "damaged.db");
}

static void places(void **state)
{
    (void)state;
    struct store *s;
    berth_err err = { 0 };
    struct stat st;
    assert_fails(try_open(tmp_path("no/such/state.db"), &s, &err), err, BERTH_ENOTFOUND, "no/such");
    const char *path = tmp_path("folder.db");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(try_open(path, &s, &err) && strstr(err.msg, "folder.db"));
    path = tmp_path("fifo.db");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(try_open(path, &s, &err), err, BERTH_EINVAL, "regular");
    path = tmp_path("private.db");
    store_close(open_store(path));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(open_store(tmp_write("empty.db", "", 0)));
    assert_fails(try_open("nope:one", &s, &err), err, BERTH_EINVAL,
                 "there is no kind of store called 'nope'; a file of that name is './nope:one'");
    store_close(NULL);
}

/* The lock dies with the process that has it. */
static void another_process(void **state)
{
    (void)state;
    char path[512];
    int up[2];
    struct store *s;
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s", tmp_path("theirs.db"));
    assert_int_equal(pipe(up), 0);
    pid_t child = fork();
    if (!child) {
        if (try_open(path, &s, &err) || write(up[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    char c, want[40];
    assert_int_equal(read(up[0], &c, 1), 1);
    snprintf(want, sizeof want, "by process %ld", (long)child);
    assert_fails(try_open(path, &s, &err), err, BERTH_EBUSY, want);
    assert_int_equal(kill(child, SIGKILL), 0);
    waitpid(child, NULL, 0);
    store_close(open_store(path));
    close(up[0]);
    close(up[1]);
}

static void leave_work(const char *path)
{
    struct store *s = open_store(path);
    add(s, "a", 1);
    add(s, "b", 2);
    run_through(s, "c");
    take(s, "a", 0);
    store_close(s);
}

static void open_survives_oom(void **state)
{
    (void)state;
    const char *path = tmp_path("oom.db");
    leave_work(path);
    leave_work(path); /* a job at its last attempt */
    berth_status st = BERTH_ENOMEM;
    long k = 0;
    for (; st; k++) {
        struct store *s = NULL;
        berth_err err = { 0 };
        oom_after(k);
        st = try_open(path, &s, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && !s && err.msg[0]));
        if (s) {
            assert_int_equal(store_remaining(s), 3);
            assert_int_equal(store_history_count(s), 2);
        }
        store_close(s);
    }
    assert_true(k > 10);
}

/* Every call, with every allocation failing once: an error, or done; never half. */
static void calls_survive_oom(void **state)
{
    (void)state;
    bool clean = false;
    for (long k = 0; !clean; k++) {
        struct store *s = open_store(":memory:");
        struct str text = { 0 };
        struct store_job j = job_of("a", 1), got_job = { 0 };
        struct store_page all = { 0 };
        bool got = false;
        berth_err err = { 0 };
        static const char *const ids[] = { "a", "z", "y" };
        add(s, "y", 9);
        add(s, "z", 9);
        oom_once(k);
        clean = !store_add(s, &j, NULL, NULL, &err);
        assert_null(j.id);
        clean = !store_move(s, "z", "y", &err) && clean;
        clean = !try_take(s, UINT64_MAX, &got_job, &got, &err) && clean;
        if (got)
            clean = !try_finish(s, &fine, &err) && clean;
        clean = !store_queue_json(s, &text, &err) && clean;
        str_clear(&text);
        clean = !store_history_json(s, &all, &text, &err) && clean;
        store_delete(s, ids, 3, &err);
        clean = err.code == BERTH_OK && clean;
        clean = oom_seen() <= k && clean;
        oom_off();
        assert_true(store_remaining(s) <= 3);
        store_job_release(&got_job);
        str_release(&text);
        store_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage),
        cmocka_unit_test(other_databases),
        cmocka_unit_test(an_older_file),
        cmocka_unit_test(damaged),
        cmocka_unit_test(places),
        cmocka_unit_test(another_process),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(calls_survive_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
