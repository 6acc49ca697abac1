/* stores: a store in the test's folder, and jobs for it. */
#ifndef SUPPORT_STORES_H
#define SUPPORT_STORES_H

#include "store/store.h"
#include "support/test.h"
#include "support/tmp.h"

#include <pthread.h>

/* Waits for one or several store_add(). */
struct told {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    size_t n, failed;
    berth_err err; /* of the last failure */
};
#define TOLD_INIT                                                                                  \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER                        \
    }

static inline void told_done(void *user, berth_status st, const berth_err *err)
{
    struct told *t = user;
    pthread_mutex_lock(&t->lock);
    t->n++;
    if (st) {
        t->failed++;
        t->err = *err;
    }
    pthread_cond_broadcast(&t->cond);
    pthread_mutex_unlock(&t->lock);
}

static inline void told_wait(struct told *t, size_t n)
{
    pthread_mutex_lock(&t->lock);
    while (t->n < n)
        pthread_cond_wait(&t->cond, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static inline struct store *open_store(const char *path)
{
    struct store_config cfg = { .path = path };
    struct store *s;
    berth_err err = { 0 };
    assert_ok(store_open(&cfg, &s, &err), err);
    return s;
}

static inline char *text_of(const char *fmt, ...) PRINTF_LIKE(1, 2);
static inline char *text_of(const char *fmt, ...)
{
    char *p = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&p, fmt, ap) < 0)
        abort();
    va_end(ap);
    return p;
}

static inline struct store_job job_of(const char *id, double number)
{
    return (struct store_job) { .id = text_of("%s", id),
                                .number = text_of("%.17g", number),
                                .order = number,
                                .prompt = text_of("{\"1\":{\"class_type\":\"%s\"}}", id),
                                .extra_data = text_of("{\"create_time\":1}"),
                                .outputs = text_of("[\"1\"]"),
                                .client_id = text_of("c-%s", id) };
}

/* Adds and waits; the status of whichever said no. */
static inline berth_status try_add(struct store *s, struct store_job j, berth_err *err)
{
    struct told t = TOLD_INIT;
    berth_status st = store_add(s, &j, told_done, &t, err);
    if (st)
        return st;
    told_wait(&t, 1);
    *err = t.err;
    return t.failed ? t.err.code : BERTH_OK;
}

static inline void add(struct store *s, const char *id, double number)
{
    berth_err err = { 0 };
    assert_ok(try_add(s, job_of(id, number), &err), err);
}

static _Thread_local struct { /* what this thread took last */
    uint64_t seq, attempt;
    uint64_t wakes; /* of store_take(); a thread that was woken and opens another store zeroes it */
} took;

/* store_take(), and remembers which job that was. */
static inline berth_status try_take(struct store *s, uint64_t deadline_ns, struct store_job *j,
                                    bool *got, berth_err *err)
{
    berth_status st = store_take(s, &took.wakes, deadline_ns, j, got, err);
    if (!st && *got) {
        took.seq = j->seq;
        took.attempt = j->attempt;
    }
    return st;
}

static inline berth_status try_finish(struct store *s, const struct store_result *r, berth_err *err)
{
    return store_finish(s, took.seq, took.attempt, r, err);
}

static inline berth_status try_park(struct store *s, berth_err *err)
{
    return store_park(s, took.seq, took.attempt, err);
}

/* The next job must be there and have this id; attempts 0: any. */
static inline void take(struct store *s, const char *id, unsigned attempts)
{
    struct store_job j;
    bool got;
    berth_err err = { 0 };
    assert_ok(try_take(s, UINT64_MAX, &j, &got, &err), err);
    assert_true(got);
    assert_string_equal(j.id, id);
    if (attempts)
        assert_int_equal(j.attempts, attempts);
    store_job_release(&j);
}

static const struct store_result fine = { "{\"9\":{\"images\":[]}}",
                                          "{\"status_str\":\"success\",\"completed\":true,"
                                          "\"messages\":[]}",
                                          "{\"9\":{}}" };

static inline void finish(struct store *s)
{
    berth_err err = { 0 };
    assert_ok(try_finish(s, &fine, &err), err);
}

static inline void run_through(struct store *s, const char *id)
{
    add(s, id, 0);
    take(s, id, 0);
    finish(s);
}

#endif
