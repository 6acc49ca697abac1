/* The store's thread: hands new jobs to the backend in batches and calls back; tends the backend;
 * tries again to write ends that had no room. */
#include "store/store_impl.h"

enum { BATCH_JOBS = 512, BATCH_BYTES = 4 << 20, RETRY_NS = 1000000000 };

/* ---- a batch ---- */

struct batch {
    struct arrival *at[BATCH_JOBS];
    size_t n;
};

/* Under the lock: the jobs that arrived first. */
static void cut_batch(struct store *s, struct batch *b)
{
    size_t bytes = 0;
    for (b->n = 0; s->first && b->n < BATCH_JOBS && bytes < BATCH_BYTES;
         s->first = s->first->next) {
        bytes += s->first->bytes;
        b->at[b->n++] = s->first;
    }
    if (!s->first)
        s->last = &s->first;
}

/* When the batch fails each job has a try of its own, as one may be too large for the room that
 * others still find; not after a failed sync, as the next one may succeed without what this one
 * lost. */
static void write_batch(struct store *s, struct batch *b)
{
    struct store_job *jobs[BATCH_JOBS];
    berth_err err = { 0 };
    for (size_t i = 0; i < b->n; i++)
        jobs[i] = &b->at[i]->job;
    berth_status st = s->ops->add(s->b, jobs, b->n, &err);
    for (size_t i = 0; i < b->n; i++) {
        struct arrival *a = b->at[i];
        a->err = err;
        a->st =
            st && st != BERTH_EDEVICE && b->n > 1 ? s->ops->add(s->b, &jobs[i], 1, &a->err) : st;
        if (a->st == BERTH_EDEVICE)
            a->st = a->err.code = BERTH_EIO; /* the difference is ours alone */
    }
}

/* Callbacks, then the jobs may be taken: what is said about a job comes after "accepted". */
static void publish(struct store *s, const struct batch *b)
{
    uint64_t told = 0;
    for (size_t i = 0; i < b->n; i++) {
        struct arrival *a = b->at[i];
        if (!a->st)
            told = a->job.seq;
        if (a->done)
            a->done(a->user, a->st, &a->err);
        store_job_release(&a->job);
        free(a);
    }
    pthread_mutex_lock(&s->lock);
    s->told_seq = told > s->told_seq ? told : s->told_seq;
    s->changes++;
    pthread_cond_broadcast(&s->ready);
    pthread_mutex_unlock(&s->lock);
}

static void do_batch(struct store *s, struct batch *b)
{
    struct store_counts c;
    write_batch(s, b);
    s->ops->counts(s->b, &c);
    pthread_mutex_lock(&s->lock);
    s->counted_seq = c.last_seq;
    s->arriving -= b->n;
    for (size_t i = 0; i < b->n; i++)
        s->arriving_bytes -= b->at[i]->bytes;
    pthread_mutex_unlock(&s->lock);
    publish(s, b);
}

/* ---- the thread ---- */

/* Under the lock. False: nothing is left to do and the store closes. */
static bool wait_for_work(struct store *s)
{
    while (!s->first && !s->stop && !s->poked) {
        if (s->due == UINT64_MAX) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        if (clock_mono_ns(clock_system()) >= s->due)
            break;
        struct timespec t = { .tv_sec = (time_t)(s->due / 1000000000),
                              .tv_nsec = (long)(s->due % 1000000000) };
        pthread_cond_timedwait(&s->work, &s->lock, &t);
    }
    s->poked = false;
    return s->first || !s->stop;
}

/* Ends that had no room, now and then. Returns when to come back. */
static uint64_t settle(struct store *s, uint64_t when)
{
    uint64_t now = clock_mono_ns(clock_system());
    if (!owed_any(s))
        return UINT64_MAX;
    if (when != UINT64_MAX && now < when)
        return when;
    if (when != UINT64_MAX) {
        pthread_mutex_lock(&s->settling);
        owed_settle(s);
        pthread_mutex_unlock(&s->settling);
    }
    return now + RETRY_NS;
}

static void *adder_main(void *arg)
{
    struct store *s = arg;
    uint64_t retry = UINT64_MAX;
    struct batch b;
    pthread_mutex_lock(&s->lock);
    while (wait_for_work(s)) {
        cut_batch(s, &b);
        s->due = UINT64_MAX; /* later writers set it again */
        pthread_mutex_unlock(&s->lock);
        if (b.n)
            do_batch(s, &b);
        uint64_t due = s->ops->tend ? s->ops->tend(s->b, false) : UINT64_MAX;
        retry = settle(s, retry);
        pthread_mutex_lock(&s->lock);
        s->due = due < retry ? due : retry;
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&s->settling);
    owed_settle(s);
    pthread_mutex_unlock(&s->settling);
    if (s->ops->tend)
        s->ops->tend(s->b, true);
    return NULL;
}

berth_status adder_start(struct store *s, berth_err *err)
{
    int rc = pthread_create(&s->thread, NULL, adder_main, s);
    if (rc)
        return err_sys(err, BERTH_ENOMEM, rc, "a thread that adds jobs");
    s->started = true;
    return BERTH_OK;
}

void adder_stop(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}
