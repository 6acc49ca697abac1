/* Everybody at once: adders, two workers, one who deletes, readers; also on a disk that is full now
 * and then. For ThreadSanitizer, and to see that every job ends in exactly one place. */
#include "support/stores.h"
#include "support/vfs.h"

#include <sched.h>
#include <stdatomic.h>

enum { ADDERS = 3, EACH = 200, JOBS = ADDERS * EACH };

struct shared {
    struct store *s;
    struct told told;
    atomic_size_t adder, deleted, finished;
    atomic_bool over;
    bool full; /* now and then */
};

/* Fine, or the disk was full. */
static bool worked(const struct shared *x, berth_status st)
{
    if (st && !(x->full && st == BERTH_EIO))
        abort();
    return !st;
}

static void *adding(void *arg)
{
    struct shared *x = arg;
    size_t me = atomic_fetch_add(&x->adder, 1);
    for (size_t i = 0; i < EACH; i++) {
        char id[32];
        berth_err err;
        snprintf(id, sizeof id, "%zu.%zu", me, i);
        struct store_job j = job_of(id, (double)store_next_number(x->s));
        if (store_add(x->s, &j, told_done, &x->told, &err))
            abort();
        if (i % 50 == 0)
            told_wait(&x->told, i / 2);
    }
    return NULL;
}

static void *working(void *arg)
{
    struct shared *x = arg;
    for (size_t i = 1; !atomic_load(&x->over); i++) {
        struct store_job j;
        bool got;
        berth_err err;
        worked(x, try_take(x->s, UINT64_MAX, &j, &got, &err));
        store_job_release(&j);
        if (!got)
            continue;
        if (i % 7 == 0 && worked(x, try_park(x->s, &err)))
            continue;
        worked(x, try_finish(x->s, &fine, &err)); /* has ended in any case */
        atomic_fetch_add(&x->finished, 1);
    }
    return NULL;
}

static void *deleting(void *arg)
{
    struct shared *x = arg;
    for (size_t i = 0; !atomic_load(&x->over); i++) {
        char id[32];
        const char *ids = id;
        berth_err err;
        snprintf(id, sizeof id, "%zu.%zu", i % ADDERS, i * 7 % EACH);
        atomic_fetch_add(&x->deleted, store_delete(x->s, &ids, 1, &err));
        if (i % 64 == 0)
            store_pause(x->s, i % 128 == 0, &err); /* or not, where the disk is full */
    }
    while (store_pause(x->s, false, &(berth_err) { 0 }))
        ;
    return NULL;
}

static void *moving(void *arg)
{
    struct shared *x = arg;
    for (size_t i = 0; !atomic_load(&x->over); i++) {
        char id[32], before[32];
        berth_err err;
        snprintf(id, sizeof id, "%zu.%zu", i % ADDERS, i * 11 % EACH);
        snprintf(before, sizeof before, "%zu.%zu", i * 5 % ADDERS, i * 13 % EACH);
        store_move(x->s, id, i % 8 ? before : NULL, &err); /* if they are there */
    }
    return NULL;
}

static bool list_id(void *user, const struct store_job *j, bool running)
{
    (void)running;
    str_addf(user, "%s %s, ", j->number, j->id);
    return true;
}

static void *filling(void *arg)
{
    struct shared *x = arg;
    for (long i = 0; !atomic_load(&x->over); i++) {
        if (x->full)
            vfs_arm(i % 13, 1 + i % 5);
        sched_yield();
    }
    vfs_disarm();
    return NULL;
}

static bool count_entry(void *user, const struct store_entry *e)
{
    (void)e;
    return ++*(size_t *)user < 20;
}

static void *reading(void *arg)
{
    struct shared *x = arg;
    struct str text = { 0 };
    while (!atomic_load(&x->over)) {
        struct store_page p = { .has_max = true, .max = 5 };
        struct store_job j;
        bool running;
        size_t n = 0;
        berth_err err;
        str_clear(&text);
        if (store_queue_json(x->s, &text, &err) || store_history_json(x->s, &p, &text, &err) ||
            text.bad || store_each_brief(x->s, false, count_entry, &n, &err))
            abort();
        if (store_job_get(x->s, "1.50", &j, &running))
            store_job_release(&j);
        store_history_count(x->s);
        store_wake(x->s);
    }
    str_release(&text);
    return NULL;
}

static void together(const char *path, bool full)
{
    static void *(*const roles[])(void *) = { adding,   adding, adding,  working, working,
                                              deleting, moving, filling, reading, reading };
    struct shared x = { .s = open_store(path), .told = TOLD_INIT, .full = full };
    pthread_t t[ARRAY_LEN(roles)];
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        assert_int_equal(pthread_create(&t[i], NULL, roles[i], &x), 0);
    told_wait(&x.told, JOBS);
    while (atomic_load(&x.finished) < 50 && store_remaining(x.s))
        sched_yield();
    atomic_store(&x.over, true);
    store_wake(x.s); /* both workers */
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_true(full || !x.told.failed);
    assert_int_equal(store_remaining(x.s) + x.finished + x.deleted + x.told.failed, JOBS);
    assert_int_equal(store_history_count(x.s), x.finished);
    assert_true(store_next_number(x.s) >= JOBS); /* moves take numbers, too */
    size_t left = store_remaining(x.s);
    struct str was = { 0 }, is = { 0 };
    berth_err err = { 0 };
    assert_ok(store_each_job(x.s, false, list_id, &was, &err), err);
    store_close(x.s);
    if (strcmp(path, ":memory:") == 0) {
        str_release(&was);
        return;
    }
    x.s = open_store(path);
    assert_ok(store_each_job(x.s, false, list_id, &is, &err), err);
    assert_string_equal(str_c(&is), str_c(&was)); /* memory and disk had the same order */
    str_release(&was);
    str_release(&is);
    assert_int_equal(store_remaining(x.s), left);
    assert_int_equal(store_history_count(x.s), x.finished);
    store_close(x.s);
}

static void on_disk(void **state)
{
    (void)state;
    together(tmp_path("threads.db"), false);
}

static void on_a_disk_that_is_full_now_and_then(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "full%d.db", i);
        together(tmp_path(name), true);
    }
}

static void in_memory(void **state)
{
    (void)state;
    together(":memory:", false);
}

static void *taking(void *arg)
{
    struct store_job j;
    bool got;
    berth_err err;
    if (try_take(arg, UINT64_MAX, &j, &got, &err) || got)
        abort();
    return NULL;
}

/* One call is for all takers, whether they wait already or are on their way. */
static void a_wake_is_for_everybody(void **state)
{
    (void)state;
    struct store *s = open_store(":memory:");
    pthread_t t[4];
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_int_equal(pthread_create(&t[i], NULL, taking, s), 0);
    store_wake(s);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_disk),
        cmocka_unit_test(on_a_disk_that_is_full_now_and_then),
        cmocka_unit_test(in_memory),
        cmocka_unit_test(a_wake_is_for_everybody),
    };
    return cmocka_run_group_tests(tests, vfs_install, NULL);
}
