/* Writes that fail: each one in turn, once or from then on; a disk that is really full; syncs. */
#include "support/stores.h"
#include "support/vfs.h"

#include "store/store_impl.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what must be there ---- */

struct model {
    struct str pending; /* "a b " in order */
    struct str history;
    bool failed; /* some call */
};

static bool list_pending(void *user, const struct store_job *j, bool running)
{
    if (!running)
        str_addf(user, "%s ", j->id);
    return true;
}

static bool list_entry(void *user, const struct store_entry *e)
{
    str_addf(user, "%s ", e->job.id);
    return true;
}

static void is_as(struct store *s, const struct model *m, long k, const char *when)
{
    struct str pending = { 0 }, history = { 0 };
    berth_err err = { 0 };
    store_each_job(s, list_pending, &pending);
    assert_ok(store_each_entry(s, list_entry, &history, &err), err);
    if (strcmp(str_c(&pending), str_c(&m->pending)) || strcmp(str_c(&history), str_c(&m->history)))
        fail_msg("write %ld, %s: queue '%s', wanted '%s'; history '%s', wanted '%s'", k, when,
                 str_c(&pending), str_c(&m->pending), str_c(&history), str_c(&m->history));
    str_release(&pending);
    str_release(&history);
}

static bool worked(struct model *m, berth_status st, const berth_err *err)
{
    if (st) {
        assert_true(st == BERTH_EIO && strstr(err->msg, "faults.db") && strstr(err->msg, "full"));
        m->failed = true;
    }
    return !st;
}

static bool try_adding(struct store *s, struct model *m, const char *id, double number)
{
    berth_err err = { 0 };
    return worked(m, try_add(s, job_of(id, number), &err), &err);
}

static bool try_taking(struct store *s, struct model *m)
{
    struct store_job j;
    bool got = false;
    berth_err err = { 0 };
    bool ok = worked(m, store_take(s, 0, &j, &got, &err), &err);
    store_job_release(&j);
    return ok && got;
}

/* One of everything; the model follows. Numbers keep "a" < "b" < "c". */
static void work(struct store *s, struct model *m)
{
    berth_err err = { 0 };
    static const char *const b = "b", *const h = "h";
    bool has_a = try_adding(s, m, "a", 1), has_b = try_adding(s, m, "b", 2);
    bool done_a = false;
    if (has_a && try_taking(s, m)) {
        worked(m, store_finish(s, &fine, &err), &err); /* ends in any case */
        done_a = true;
    }
    bool has_c = try_adding(s, m, "c", 3);
    if (try_taking(s, m) && !worked(m, store_park(s, &err), &err)) {
        vfs_disarm(); /* a job that cannot be parked stays running */
        assert_ok(store_park(s, &err), err);
    }
    if (has_b)
        has_b = store_delete(s, &b, 1, &err) != 1;
    m->failed |= has_b;
    bool has_h = !worked(m, store_history_delete(s, &h, 1, &err), &err);
    str_addf(&m->pending, "%s%s%s", has_a && !done_a ? "a " : "", has_b ? "b " : "",
             has_c ? "c " : "");
    str_addf(&m->history, "%s%s", has_h ? "h " : "", done_a ? "a " : "");
}

static int no_sync(int fd)
{
    (void)fd;
    return 0;
}

static void remove_db(const char *path)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char name[600];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

/* The k-th write fails and `count` - 1 after it, for every k until nothing fails any more. */
static void each_write(long count)
{
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("faults.db"));
    bool failed = true;
    long k = 0;
    for (; failed; k++) {
        remove_db(path);
        struct store *s = open_store(path);
        struct model m = { 0 };
        s->sync = no_sync;
        run_through(s, "h");
        vfs_arm(k, count);
        work(s, &m);
        is_as(s, &m, k, "at once");
        vfs_disarm();
        failed = m.failed;
        add(s, "z", 9); /* and what was owed is written with it */
        str_adds(&m.pending, "z ");
        is_as(s, &m, k, "with room again");
        store_close(s);
        s = open_store(path);
        is_as(s, &m, k, "opened again");
        store_close(s);
        str_release(&m.pending);
        str_release(&m.history);
    }
    assert_true(k > 15);
}

static void a_write_fails(void **state)
{
    (void)state;
    each_write(1);
}

static void all_writes_fail_from_there(void **state)
{
    (void)state;
    each_write(LONG_MAX);
}

/* Opening a new file, and one with work in it. */
static void open_survives(void **state)
{
    (void)state;
    char path[512];
    struct store_config cfg = { .path = path };
    snprintf(path, sizeof path, "%s", tmp_path("openfaults.db"));
    for (int old = 0; old < 2; old++) {
        berth_status st = BERTH_EIO;
        long k = 0;
        for (; st; k++) {
            struct store *s;
            berth_err err = { 0 };
            remove_db(path);
            if (old) {
                s = open_store(path);
                add(s, "a", 0);
                take(s, "a", 1);
                store_close(s);
            }
            vfs_arm(k, LONG_MAX);
            st = store_open(&cfg, &s, &err);
            vfs_disarm();
            assert_true(!st || (!s && strstr(err.msg, "openfaults.db")));
            store_close(s);
            s = open_store(path);
            assert_int_equal(store_remaining(s), old);
            if (old)
                take(s, "a", 2);
            store_close(s);
        }
        assert_true(k > 1);
    }
}

/* ---- syncs ---- */

static atomic_int sync_error, syncs;

static int faulty_sync(int fd)
{
    atomic_fetch_add(&syncs, 1);
    errno = atomic_load(&sync_error);
    return errno ? -1 : fdatasync(fd);
}

static void a_sync_fails(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("sync.db"));
    struct store *s = open_store(path);
    berth_err err = { 0 };
    add(s, "a", 0);
    s->sync = faulty_sync;
    atomic_store(&sync_error, EIO);
    assert_fails(try_add(s, job_of("b", 1), &err), err, BERTH_EIO, "syncing");
    assert_int_equal(store_remaining(s), 1);
    take(s, "a", 1); /* is written all the same */
    finish(s);
    atomic_store(&sync_error, 0);
    add(s, "c", 2);
    assert_true(atomic_load(&syncs) >= 2); /* nobody is told before a sync */
    store_close(s);
    s = open_store(path);
    take(s, "c", 1); /* "b" was refused and does not come back */
    finish(s);
    assert_int_equal(store_remaining(s), 0);
    store_close(s);
}

/* ---- a real limit ---- */

static void allow(rlim_t bytes)
{
    struct rlimit l;
    getrlimit(RLIMIT_FSIZE, &l);
    l.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &l);
}

static int in_a_child(const char *path)
{
    struct store *s;
    struct store_config cfg = { .path = path };
    berth_err err = { 0 };
    size_t accepted = 0, refused = 0;
    signal(SIGXFSZ, SIG_IGN);
    if (store_open(&cfg, &s, &err))
        return 2;
    for (int round = 0; round < 2; round++) {
        allow(round ? RLIM_INFINITY : 300000);
        for (int i = 0; i < 30; i++) {
            struct store_job j = job_of("x", i);
            free(j.prompt);
            j.prompt = text_of("{\"a\":\"%20000d\"}", i);
            berth_status st = try_add(s, j, &err);
            if (st && (st != BERTH_EIO || round || !strstr(err.msg, path)))
                return 3;
            accepted += !st;
            refused += st != BERTH_OK;
        }
    }
    if (!accepted || !refused || store_remaining(s) != accepted)
        return 4;
    store_close(s);
    if (store_open(&cfg, &s, &err) || store_remaining(s) != accepted)
        return 5;
    store_close(s);
    return 0;
}

static void a_full_disk(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("limit.db"));
    pid_t child = fork();
    if (!child)
        _exit(in_a_child(path));
    int code;
    waitpid(child, &code, 0);
    assert_int_equal(code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_fails), cmocka_unit_test(all_writes_fail_from_there),
        cmocka_unit_test(open_survives), cmocka_unit_test(a_sync_fails),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, vfs_install, NULL);
}
