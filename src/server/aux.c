/* aux: a thread per kind of slow work; see aux_run() in http.h. */
#include "server/server_impl.h"

#include <pthread.h>

#define WAITING_MAX 4096 /* per lane; a request waits in one of them at a time */

struct aux_job {
    struct aux_job *next;
    struct post post;
    aux_fn *fn, *done;
    void *arg;
};

struct lane {
    struct server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    bool started;
    bool stop;                    /* lock */
    struct aux_job *first, *last; /* lock */
    size_t waiting;               /* lock */
};

struct aux {
    struct lane lane[AUX_LANES];
};

static void call_done(struct server *s, void *arg)
{
    struct aux_job *j = arg;
    j->done(s, j->arg);
    free(j);
}

static struct aux_job *next_job(struct lane *a)
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

static void *lane_main(void *arg)
{
    struct lane *a = arg;
    for (struct aux_job *j; (j = next_job(a));) {
        j->fn(a->server, j->arg);
        loop_post(a->server, &j->post, call_done, j);
    }
    return NULL;
}

bool aux_run(struct server *s, enum aux_lane lane, aux_fn *fn, aux_fn *done, void *arg)
{
    struct lane *a = s->aux ? &s->aux->lane[lane] : NULL; /* NULL: the server is being freed */
    struct aux_job *j = a ? malloc(sizeof *j) : NULL;
    if (!j)
        return false;
    *j = (struct aux_job) { .fn = fn, .done = done, .arg = arg };
    pthread_mutex_lock(&a->lock);
    bool room = a->waiting < WAITING_MAX && !a->stop;
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

static int lane_open(struct lane *a, struct server *s)
{
    *a = (struct lane) { .server = s,
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .more = PTHREAD_COND_INITIALIZER };
    int e = pthread_create(&a->thread, NULL, lane_main, a);
    a->started = !e;
    return e;
}

berth_status aux_open(struct server *s, berth_err *err)
{
    int e = 0;
    s->aux = calloc(1, sizeof *s->aux);
    if (!s->aux)
        return err_set(err, BERTH_ENOMEM, "the aux threads");
    for (size_t i = 0; i < AUX_LANES && !e; i++)
        e = lane_open(&s->aux->lane[i], s);
    return e ? err_sys(err, BERTH_EIO, e, "starting the aux threads") : BERTH_OK;
}

static void lane_close(struct lane *a)
{
    if (!a->started)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->more);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
}

void aux_close(struct server *s)
{
    if (!s->aux)
        return;
    for (size_t i = 0; i < AUX_LANES; i++)
        lane_close(&s->aux->lane[i]);
    free(s->aux);
    s->aux = NULL;
}
