/* Writes that fail: each one in turn, once or from then on; a disk that is really full; syncs. */
#include "support/stores.h"
#include "support/vfs.h"

#include "support/sqlite_store.h"

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
    assert_ok(store_each_job(s, false, list_pending, &pending, &err), err);
    assert_ok(store_each_brief(s, false, list_entry, &history, &err), err);
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
    bool ok = worked(m, try_take(s, 0, &j, &got, &err), &err);
    store_job_release(&j);
    return ok && got;
}

/* One of everything; the model follows. Numbers keep "a" < "b" < "c"; "y" stays until it moves. */
static void work(struct store *s, struct model *m)
{
    berth_err err = { 0 };
    static const char *const b = "b", *const h = "h";
    bool has_a = try_adding(s, m, "a", 1), has_b = try_adding(s, m, "b", 2);
    bool done_a = false;
    if (has_a && try_taking(s, m)) {
        worked(m, try_finish(s, &fine, &err), &err); /* ends in any case */
        done_a = true;
    }
    bool has_c = try_adding(s, m, "c", 3);
    if (try_taking(s, m) && !worked(m, try_park(s, &err), &err)) {
        vfs_disarm(); /* a job that cannot be parked stays running */
        assert_ok(try_park(s, &err), err);
    }
    if (has_b)
        has_b = store_delete(s, &b, 1, &err) != 1;
    m->failed |= has_b;
    bool has_h = !worked(m, store_history_delete(s, &h, 1, &err), &err);
    bool moved = has_c && worked(m, store_move(s, "y", "c", &err), &err);
    str_addf(&m->pending, "%s%s%s%s%s", has_a && !done_a ? "a " : "", has_b ? "b " : "",
             moved ? "y " : "", has_c ? "c " : "", moved ? "" : "y ");
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
    bool reached = true;
    long k = 0;
    for (; reached; k++) {
        remove_db(path);
        struct store *s = open_store(path);
        struct model m = { 0 };
        sqlite_of(s)->sync = no_sync;
        run_through(s, "h");
        add(s, "y", 8);
        vfs_arm(k, count);
        work(s, &m);
        is_as(s, &m, k, "at once");
        reached = atomic_load(&vfs_writes) > k;
        vfs_disarm();
        assert_true(count > 1 || !m.failed); /* there is a second try */
        add(s, "z", 9);                      /* and what was owed is written with it */
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
    sqlite_of(s)->sync = faulty_sync;
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

static atomic_int failures_left;

static int sync_failing_once(int fd)
{
    if (atomic_fetch_sub(&failures_left, 1) != 1)
        return fdatasync(fd);
    errno = EIO;
    return -1;
}

static void fail_next_sync(void *user, berth_status st, const berth_err *err)
{
    atomic_store(&failures_left, 1);
    told_done(user, st, err);
}

/* The next sync may succeed without what this one lost, so none of a batch is tried again. */
static void a_sync_fails_once(void **state)
{
    (void)state;
    struct store *s = open_store(tmp_path("once.db"));
    struct sqlite *q = sqlite_of(s);
    struct told first = TOLD_INIT, rest = TOLD_INIT;
    struct store_job a = job_of("a", 0), b = job_of("b", 1), c = job_of("c", 2);
    berth_err err = { 0 };
    q->sync = sync_failing_once;
    pthread_mutex_lock(&q->db); /* "a" is held up, so that the others make one batch */
    assert_ok(store_add(s, &a, fail_next_sync, &first, &err), err);
    for (bool cut = false; !cut;) {
        pthread_mutex_lock(&s->lock);
        cut = !s->first;
        pthread_mutex_unlock(&s->lock);
    }
    assert_ok(store_add(s, &b, told_done, &rest, &err), err);
    assert_ok(store_add(s, &c, told_done, &rest, &err), err);
    pthread_mutex_unlock(&q->db);
    told_wait(&first, 1);
    told_wait(&rest, 2);
    assert_int_equal(first.failed, 0);
    assert_int_equal(rest.failed, 2);
    assert_int_equal(rest.err.code, BERTH_EIO);
    assert_int_equal(store_remaining(s), 1);
    add(s, "d", 3);
    store_close(s);
}

/* Nobody adds anything any more, and what was written is on disk all the same. */
static void every_change_is_synced(void **state)
{
    (void)state;
    struct store *s = open_store(tmp_path("soon.db"));
    struct sqlite *q = sqlite_of(s);
    berth_err err = { 0 };
    for (int i = 0; i < 60; i++) {
        bool synced = false;
        if (i % 3 == 0)
            run_through(s, "a");
        else
            assert_ok(store_pause(s, i % 3 == 1, &err), err);
        for (int k = 0; k < 3000 && !synced; k++) {
            pthread_mutex_lock(&q->lock);
            synced = q->synced == q->written;
            pthread_mutex_unlock(&q->lock);
            usleep(synced ? 0 : 10000);
        }
        assert_true(synced);
    }
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

/* ---- an end that cannot be written ---- */

/* "big" has ended, and its entry is larger than the room there is. */
static struct store *with_owed(const char *path)
{
    struct store *s = open_store(path);
    berth_err err = { 0 };
    char *large = text_of("{\"a\":\"%800000d\"}", 1);
    struct store_result r = { large, fine.status, fine.meta };
    sqlite_of(s)->sync = no_sync;
    run_through(s, "h");
    add(s, "big", 1);
    take(s, "big", 1);
    atomic_store(&vfs_room, 400000);
    assert_int_equal(try_finish(s, &r, &err), BERTH_EIO);
    assert_int_equal(store_history_count(s), 2);
    free(large);
    return s;
}

static void history_is(struct store *s, const char *want)
{
    struct str ids = { 0 };
    berth_err err = { 0 };
    assert_ok(store_each_brief(s, false, list_entry, &ids, &err), err);
    assert_string_equal(str_c(&ids), want);
    str_release(&ids);
}

/* Closes with room again, and looks what is left. */
static void left_over(struct store *s, const char *path, size_t jobs, const char *history)
{
    atomic_store(&vfs_room, LONG_MAX);
    store_close(s);
    s = open_store(path);
    assert_int_equal(store_remaining(s), jobs);
    history_is(s, history);
    store_close(s);
}

/* It keeps nobody else out, and goes where it is deleted. */
static void an_owed_end_in_the_way(void **state)
{
    (void)state;
    static const char *const big = "big";
    berth_err err = { 0 };
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("debt.db"));
    remove_db(path);
    struct store *s = with_owed(path);
    add(s, "small", 1);
    run_through(s, "quick");
    assert_ok(store_pause(s, true, &err), err);
    history_is(s, "h quick big ");
    assert_ok(store_history_delete(s, &big, 1, &err), err);
    history_is(s, "h quick ");
    left_over(s, path, 1, "h quick ");

    remove_db(path);
    s = with_owed(path);
    assert_ok(store_history_clear(s, &err), err);
    assert_int_equal(store_history_count(s), 0);
    left_over(s, path, 0, "");

    remove_db(path);
    s = with_owed(path); /* nobody deletes it: written when there is room */
    left_over(s, path, 0, "h big ");
}

/* The same prompt ends again, and that can be written: the older end does not come back. */
static void an_owed_end_is_overtaken(void **state)
{
    (void)state;
    char path[512];
    struct str item = { 0 };
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s", tmp_path("overtaken.db"));
    remove_db(path);
    struct store *s = with_owed(path);
    run_through(s, "big");
    atomic_store(&vfs_room, LONG_MAX);
    add(s, "x", 1);
    assert_ok(store_history_one(s, "big", &item, &err), err);
    assert_true(item.n < 1000);
    str_release(&item);
    left_over(s, path, 1, "h big ");
}

static void a_pause_that_cannot_be_written(void **state)
{
    (void)state;
    berth_err err = { 0 };
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("pause.db"));
    remove_db(path);
    struct store *s = open_store(path);
    vfs_arm(0, LONG_MAX);
    assert_int_equal(store_pause(s, true, &err), BERTH_EIO);
    assert_false(store_paused(s));
    vfs_disarm();
    assert_ok(store_pause(s, true, &err), err);
    assert_true(store_paused(s));
    store_close(s);
}

/* A job whose end is owed has ended: nobody ends, parks or renews it a second time. */
static void an_owed_end_is_one(void **state)
{
    (void)state;
    berth_err err = { 0 };
    char path[512];
    snprintf(path, sizeof path, "%s", tmp_path("twice.db"));
    remove_db(path);
    struct store *s = with_owed(path);
    assert_int_equal(store_remaining(s), 0);
    assert_fails(try_finish(s, &fine, &err), err, BERTH_EINVAL, "is over");
    assert_fails(try_park(s, &err), err, BERTH_EINVAL, "is over");
    assert_fails(store_renew(s, took.seq, took.attempt, &err), err, BERTH_EINVAL, "is over");
    assert_false(try_taking(s, &(struct model) { 0 }));
    left_over(s, path, 0, "h big ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_fails),
        cmocka_unit_test(all_writes_fail_from_there),
        cmocka_unit_test(open_survives),
        cmocka_unit_test(a_sync_fails),
        cmocka_unit_test(a_sync_fails_once),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(an_owed_end_in_the_way),
        cmocka_unit_test(an_owed_end_is_overtaken),
        cmocka_unit_test(a_pause_that_cannot_be_written),
        cmocka_unit_test(an_owed_end_is_one),
        cmocka_unit_test(every_change_is_synced),
    };
    return cmocka_run_group_tests(tests, vfs_install, NULL);
}
