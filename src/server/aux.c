/* aux: one thread for slow file work; see aux_run() in http.h. */
#include "server/server_impl.h"

#include <errno.h>
#include <pthread.h>

#define AUX_WAITING_MAX 1024

struct aux_job {
    struct aux_job *next;
    struct server *server;
    aux_fn *fn, *done;
    void *arg;
};

struct aux {
    struct server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    bool lock_made, more_made, started;
    bool stop;                    /* lock */
    struct aux_job *first, *last; /* lock */
    size_t waiting;               /* lock */
};

static void call_done(struct server *s, void *arg)
{
    struct aux_job *j = arg;
    if (j->done)
        j->done(s, j->arg);
    free(j);
}

static struct aux_job *next_job(struct aux *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->first && !a->stop)
        pthread_cond_wait(&a->more, &a->lock);
    struct aux_job *j = a->first; /* what waits is done before the end, too */
    if (j) {
        a->first = j->next;
        a->last = a->first ? a->last : NULL;
        a->waiting--;
    }
    pthread_mutex_unlock(&a->lock);
    return j;
}

static void *aux_main(void *arg)
{
    struct aux *a = arg;
    for (struct aux_job *j; (j = next_job(a));) {
        j->fn(a->server, j->arg);
        loop_post(a->server, call_done, j);
    }
    return NULL;
}

bool aux_run(struct server *s, aux_fn *fn, aux_fn *done, void *arg)
{
    struct aux *a = s->aux; /* NULL: the server is being freed */
    struct aux_job *j = a ? malloc(sizeof *j) : NULL;
    if (!j)
        return false;
    *j = (struct aux_job) { .server = s, .fn = fn, .done = done, .arg = arg };
    pthread_mutex_lock(&a->lock);
    bool room = a->waiting < AUX_WAITING_MAX && !a->stop;
    if (room) {
        if (a->first)
            a->last->next = j;
        else
            a->first = j;
        a->last = j;
        a->waiting++;
        pthread_cond_signal(&a->more);
    }
    pthread_mutex_unlock(&a->lock);
    if (!room)
        free(j);
    return room;
}

berth_status aux_open(struct server *s, berth_err *err)
{
    struct aux *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, BERTH_ENOMEM, "the aux thread");
    s->aux = a;
    a->server = s;
    a->lock_made = !pthread_mutex_init(&a->lock, NULL);
    a->more_made = !pthread_cond_init(&a->more, NULL);
    int e = a->lock_made && a->more_made ? pthread_create(&a->thread, NULL, aux_main, a) : ENOMEM;
    a->started = !e;
    return e ? err_sys(err, BERTH_EIO, e, "starting the aux thread") : BERTH_OK;
}

void aux_close(struct server *s)
{
    struct aux *a = s->aux;
    if (!a)
        return;
    if (a->started) {
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        pthread_cond_signal(&a->more);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    if (a->more_made)
        pthread_cond_destroy(&a->more);
    if (a->lock_made)
        pthread_mutex_destroy(&a->lock);
    free(a);
    s->aux = NULL;
}
