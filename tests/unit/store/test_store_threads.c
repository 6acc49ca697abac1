/* Everybody at once: adders, the worker, one who deletes, readers. For ThreadSanitizer, and to see
 * that every job ends in exactly one place. */
#include "support/stores.h"

#include <sched.h>
#include <stdatomic.h>

enum { ADDERS = 3, EACH = 200, JOBS = ADDERS * EACH };

struct shared {
    struct store *s;
    struct told told;
    atomic_size_t adder, deleted, finished;
    atomic_bool over;
};

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
        if (store_take(x->s, UINT64_MAX, &j, &got, &err))
            abort();
        store_job_release(&j);
        if (!got)
            continue;
        if (i % 7 == 0 ? store_park(x->s, &err) : store_finish(x->s, &fine, &err))
            abort();
        atomic_fetch_add(&x->finished, i % 7 != 0);
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
            store_pause(x->s, i % 128 == 0);
    }
    store_pause(x->s, false);
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
        store_queue_json(x->s, &text);
        store_running_id(x->s, &text);
        if (store_history_json(x->s, &p, &text, &err) || text.bad ||
            store_each_entry(x->s, count_entry, &n, &err))
            abort();
        if (store_job_get(x->s, "1.50", &j, &running))
            store_job_release(&j);
        store_history_count(x->s);
        store_wake(x->s);
    }
    str_release(&text);
    return NULL;
}

static void together(const char *path)
{
    static void *(*const roles[])(void *) = { adding,   adding,  adding, working,
                                              deleting, reading, reading };
    struct shared x = { .s = open_store(path), .told = TOLD_INIT };
    pthread_t t[ARRAY_LEN(roles)];
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        assert_int_equal(pthread_create(&t[i], NULL, roles[i], &x), 0);
    told_wait(&x.told, JOBS);
    while (atomic_load(&x.finished) < 50)
        sched_yield();
    atomic_store(&x.over, true);
    store_wake(x.s);
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        store_wake(x.s);
        assert_int_equal(pthread_join(t[i], NULL), 0);
    }
    assert_int_equal(x.told.failed, 0);
    assert_int_equal(store_remaining(x.s) + x.finished + x.deleted, JOBS);
    assert_int_equal(store_history_count(x.s), x.finished);
    assert_int_equal(store_next_number(x.s), JOBS);
    store_close(x.s);
}

static void on_disk(void **state)
{
    (void)state;
    together(tmp_path("threads.db"));
}

static void in_memory(void **state)
{
    (void)state;
    together(":memory:");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(on_disk), cmocka_unit_test(in_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
