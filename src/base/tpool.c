#include "base/tpool.h"

#include "base/cores.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS_MAX = 1024 };

struct worker {
    struct tpool *pool;
    pthread_t thread;
    size_t index; /* 1 .. size-1; the caller of tpool_for() is 0 */
};

struct tpool {
    size_t size;
    size_t started; /* threads to join; smaller than size-1 only while opening fails */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a job was posted, or stop */
    pthread_cond_t done; /* busy reached 0 */
    /* under lock */
    uint64_t posted; /* jobs so far; a worker that has seen fewer has work */
    size_t busy;     /* workers that have not finished the current job */
    bool active, stop;
    pthread_t caller; /* of the active job */
    /* the current job: written before it is posted, constant until busy is 0 */
    tpool_fn *fn;
    void *user;
    size_t n;
    atomic_size_t next; /* first index nobody has claimed */
    struct worker worker[];
};

static void work(struct tpool *p, size_t index)
{
    size_t i;
    /* relaxed: the lock orders the job's data; this only hands out each number once */
    while ((i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
        p->fn(p->user, i, index);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct tpool *p = w->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->posted == seen && !p->stop)
            pthread_cond_wait(&p->wake, &p->lock);
        if (p->stop)
            break;
        seen = p->posted;
        pthread_mutex_unlock(&p->lock);
        work(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (--p->busy == 0)
            pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

berth_status tpool_new(size_t threads, struct tpool **out, berth_err *err)
{
    *out = NULL;
    if (threads > THREADS_MAX)
        return err_set(err, BERTH_EINVAL, "thread pool: %zu threads, at most %d", threads,
                       THREADS_MAX);
    size_t size = threads ? threads : cores_usable("");
    if (size > THREADS_MAX)
        size = THREADS_MAX;
    struct tpool *p = calloc(1, sizeof *p + (size - 1) * sizeof p->worker[0]);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "thread pool of %zu", size);
    p->size = size;
    pthread_mutex_init(&p->lock, NULL); /* these three cannot fail with default attributes */
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    for (; p->started < size - 1; p->started++) {
        struct worker *w = &p->worker[p->started];
        *w = (struct worker) { .pool = p, .index = p->started + 1 };
        int rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc) {
            err_sys(err, rc == EAGAIN ? BERTH_ELIMIT : BERTH_ENOMEM, rc,
                    "thread pool: starting thread %zu of %zu", w->index, size - 1);
            tpool_free(p);
            return err->code;
        }
    }
    *out = p;
    return BERTH_OK;
}

void tpool_free(struct tpool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->started; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

size_t tpool_size(const struct tpool *p)
{
    return p ? p->size : 1;
}

/* The worker number of the calling thread when it is inside a task of this pool. Lock held. */
static bool inside(const struct tpool *p, size_t *index)
{
    pthread_t self = pthread_self();
    if (p->active && pthread_equal(p->caller, self)) {
        *index = 0;
        return true;
    }
    for (size_t i = 0; i < p->size - 1; i++)
        if (pthread_equal(p->worker[i].thread, self)) {
            *index = p->worker[i].index;
            return true;
        }
    return false;
}

void tpool_for(struct tpool *p, size_t n, tpool_fn *fn, void *user)
{
    size_t index = 0;
    if (!p) {
        for (size_t i = 0; i < n; i++)
            fn(user, i, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    bool nested = inside(p, &index);
    if (!nested && p->active)
        BUG("tpool_for() from two threads at once");
    bool inline_only = nested || n <= 1 || p->size == 1;
    if (!nested) {
        p->active = true;
        p->caller = pthread_self();
    }
    if (!inline_only) {
        p->fn = fn;
        p->user = user;
        p->n = n;
        atomic_store_explicit(&p->next, 0, memory_order_relaxed);
        p->busy = p->size - 1;
        p->posted++;
        pthread_cond_broadcast(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);

    if (inline_only)
        for (size_t i = 0; i < n; i++)
            fn(user, i, index);
    else
        work(p, 0);
    if (nested)
        return;

    pthread_mutex_lock(&p->lock);
    while (p->busy)
        pthread_cond_wait(&p->done, &p->lock);
    p->active = false;
    pthread_mutex_unlock(&p->lock);
}
