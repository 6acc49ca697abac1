#include "stream/stage.h"

#include "base/sz.h"

#include <errno.h>

/* ---- filling ---- */

/* Lock held; released while it fills. False: every piece of the buffer is taken. */
static bool fill_one_of(struct stage *g, unsigned b)
{
    if (g->buf[b].next == g->buf[b].pieces)
        return false;
    size_t piece = g->buf[b].next++;
    pthread_mutex_unlock(&g->lock);
    g->args.ops->fill(g->args.user, b, piece);
    pthread_mutex_lock(&g->lock);
    if (--g->buf[b].left == 0)
        pthread_cond_signal(&g->done);
    return true;
}

/* Likewise. False: every piece that is posted is taken. */
static bool fill_one(struct stage *g)
{
    for (uint64_t k = g->sent; k < g->posted; k++)
        if (fill_one_of(g, (unsigned)(k % g->args.bufs)))
            return true;
    return false;
}

static void *fill_on(void *arg)
{
    struct stage *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->stop)
        if (!fill_one(g))
            pthread_cond_wait(&g->work, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static bool is_full(struct stage *g, unsigned b)
{
    pthread_mutex_lock(&g->lock);
    bool yes = g->buf[b].left == 0;
    pthread_mutex_unlock(&g->lock);
    return yes;
}

void stage_wait(struct stage *g)
{
    unsigned b = (unsigned)(g->sent % g->args.bufs);
    if (g->sent == g->posted)
        return;
    pthread_mutex_lock(&g->lock);
    while (fill_one_of(g, b))
        ;
    while (g->buf[b].left)
        pthread_cond_wait(&g->done, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* ---- buffers ---- */

berth_status stage_take(struct stage *g, bool wait, unsigned *buf, berth_err *err)
{
    unsigned b = (unsigned)(g->posted % g->args.bufs);
    bool free = !g->copying[b];
    *buf = STAGE_NONE;
    if (g->posted - g->sent == g->args.bufs)
        return BERTH_OK;
    if (!free &&
        (wait ? dev_event_sync(g->copied[b], err) : dev_event_query(g->copied[b], &free, err)))
        return err->code;
    if (!free && !wait)
        return BERTH_OK;
    g->copying[b] = false;
    *buf = b;
    return BERTH_OK;
}

void stage_post(struct stage *g, size_t pieces)
{
    unsigned b = (unsigned)(g->posted % g->args.bufs);
    pthread_mutex_lock(&g->lock);
    g->buf[b].pieces = g->buf[b].left = pieces;
    g->buf[b].next = 0;
    g->posted++;
    if (pieces == 1)
        pthread_cond_signal(&g->work);
    else
        pthread_cond_broadcast(&g->work);
    pthread_mutex_unlock(&g->lock);
}

berth_status stage_mark(struct stage *g, unsigned buf, struct dev_stream *on, berth_err *err)
{
    if (dev_event_record(g->copied[buf], on, err))
        return err->code;
    g->copying[buf] = true;
    return BERTH_OK;
}

static void set_sent(struct stage *g, uint64_t sent)
{
    pthread_mutex_lock(&g->lock);
    g->sent = sent;
    pthread_mutex_unlock(&g->lock);
}

berth_status stage_pump(struct stage *g, berth_err *err)
{
    for (unsigned b; g->sent < g->posted && is_full(g, b = (unsigned)(g->sent % g->args.bufs));) {
        if (g->args.ops->send(g->args.user, b, err))
            return err->code;
        set_sent(g, g->sent + 1);
    }
    return BERTH_OK;
}

berth_status stage_drain(struct stage *g, berth_err *err)
{
    while (g->sent < g->posted) {
        stage_wait(g);
        if (stage_pump(g, err))
            return err->code;
    }
    return BERTH_OK;
}

void stage_reset(struct stage *g)
{
    while (g->sent < g->posted) {
        stage_wait(g);
        set_sent(g, g->sent + 1);
    }
    memset(g->copying, 0, sizeof g->copying);
}

/* ---- life ---- */

static void start_threads(struct stage *g)
{
    pthread_mutex_init(&g->lock, NULL); /* these three cannot fail with default attributes */
    pthread_cond_init(&g->work, NULL);
    pthread_cond_init(&g->done, NULL);
    g->made = true;
    for (; g->threads < g->args.threads; g->threads++) {
        int rc = pthread_create(&g->thread[g->threads], NULL, fill_on, g);
        if (rc)
            break; /* fewer will do, and so will the executor alone */
    }
}

berth_status stage_open(struct stage *g, const struct stage_args *args, berth_err *err)
{
    size_t all;
    *g = (struct stage) { .args = *args };
    if (args->bufs > STAGE_BUFS_MAX || args->threads > STAGE_THREADS_MAX)
        BUG("%u staging buffers, %u threads", args->bufs, args->threads);
    if (!sz_align(args->bytes, DEV_ALIGN_MIN, &g->args.bytes) ||
        !sz_mul(g->args.bytes, args->bufs, &all))
        return err_set(err, BERTH_ELIMIT, "%u staging buffers of %zu bytes", args->bufs,
                       args->bytes);
    if (dev_host_alloc(args->dev, args->owner, all, &g->mem, err))
        return err_add(err, "%u staging buffers of %zu bytes", args->bufs, g->args.bytes);
    for (unsigned b = 0; b < args->bufs; b++)
        if (dev_event_new(args->dev, &g->copied[b], err))
            return err->code;
    start_threads(g);
    return BERTH_OK;
}

void stage_close(struct stage *g)
{
    if (g->made) {
        pthread_mutex_lock(&g->lock);
        g->stop = true;
        pthread_cond_broadcast(&g->work);
        pthread_mutex_unlock(&g->lock);
        for (unsigned i = 0; i < g->threads; i++)
            pthread_join(g->thread[i], NULL);
        pthread_cond_destroy(&g->done);
        pthread_cond_destroy(&g->work);
        pthread_mutex_destroy(&g->lock);
    }
    for (unsigned b = 0; b < g->args.bufs; b++)
        dev_event_free(g->copied[b]);
    dev_host_free(&g->mem);
    *g = (struct stage) { 0 };
}
