/* stream_stage: pageable blocks on their way through pinned memory.
 *
 * A staged run is handled in chunks of at most one staging buffer. The executor posts a chunk when
 * its buffer is free (the copies that read it last are done), a loader thread packs the chunk's
 * bytes into the buffer, the executor queues the copies to the slot and the mark that frees the
 * buffer again. Chunks are numbered; number k uses buffer k % bufs, so
 *
 *     issued <= posted <= issued + bufs       taken <= posted
 *
 * A chunk whose slot was given to another run meanwhile is loaded and then thrown away. */
#include "base/sz.h"
#include "stream/stream_impl.h"

#include <errno.h>

static char *buffer(const struct stream_stage *g, unsigned b)
{
    return (char *)g->mem.ptr + b * g->buf_n;
}

/* ---- loaders ---- */

static void load(const struct stream_cut *cut, const struct stage_chunk *k, char *to)
{
    const struct stream_copy *c = &cut->copy[k->copy];
    size_t off = k->off;
    for (size_t done = 0, n; done < k->n; done += n, c++, off = 0) {
        n = c->n - off < k->n - done ? c->n - off : k->n - done;
        memcpy(to + done, (const char *)(uintptr_t)c->src + off, n);
    }
}

static void *loader_main(void *arg)
{
    struct stream_stage *g = arg;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        while (g->taken == g->posted && !g->stop)
            pthread_cond_wait(&g->work, &g->lock);
        if (g->stop)
            break;
        unsigned b = (unsigned)(g->taken++ % g->bufs);
        pthread_mutex_unlock(&g->lock);
        load(g->cut, &g->chunk[b], buffer(g, b));
        pthread_mutex_lock(&g->lock);
        g->loaded[b] = true;
        pthread_cond_signal(&g->done);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static bool is_loaded(struct stream_stage *g, unsigned b)
{
    pthread_mutex_lock(&g->lock);
    bool yes = g->loaded[b];
    pthread_mutex_unlock(&g->lock);
    return yes;
}

static void wait_loaded(struct stream_stage *g, unsigned b)
{
    pthread_mutex_lock(&g->lock);
    while (!g->loaded[b])
        pthread_cond_wait(&g->done, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* ---- handing out ---- */

/* The staged run that is needed first and has bytes nobody loads yet. */
static struct stream_slot *next_to_load(struct stream *s)
{
    struct stream_slot *best = NULL;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        if (t->run != STREAM_NONE && t->stage_to &&
            (!best || stream_distance(s, t->run) < stream_distance(s, best->run)))
            best = t;
    }
    return best;
}

/* The next chunk of t. The loader's accesses are declared here: what checks the order of accesses
 * knows one host thread, and the hand-over is where ours ends and the loader's begins. */
static struct stage_chunk cut_chunk(struct stream *s, struct stream_slot *t, char *buf)
{
    struct device *d = s->args.compute;
    const struct stream_run *r = &s->cut.run[t->run];
    size_t n = t->stage_to < s->stage.buf_n ? t->stage_to : s->stage.buf_n;
    struct stage_chunk k = { .slot = (uint32_t)(t - s->slot),
                             .run = t->run,
                             .serial = t->serial,
                             .copy = r->copy + t->stage_copy,
                             .off = t->stage_off,
                             .n = n };
    t->stage_to -= n;
    dev_host_access(d, buf, n, DEV_WRITE);
    while (n) {
        const struct stream_copy *c = &s->cut.copy[r->copy + t->stage_copy];
        size_t part = c->n - t->stage_off < n ? c->n - t->stage_off : n;
        dev_host_access(d, (const char *)(uintptr_t)c->src + t->stage_off, part, DEV_READ);
        n -= part;
        t->stage_off += part;
        if (t->stage_off == c->n) {
            t->stage_copy++;
            t->stage_off = 0;
        }
    }
    return k;
}

static berth_status post(struct stream *s, berth_err *err)
{
    struct stream_stage *g = &s->stage;
    struct stream_slot *t;
    while (g->posted - g->issued < g->bufs && (t = next_to_load(s))) {
        unsigned b = (unsigned)(g->posted % g->bufs);
        bool free = !g->copying[b];
        if (!free && dev_event_query(g->copied[b], &free, err))
            return stream_broke(s, t->run, err);
        if (!free)
            break;
        g->copying[b] = false;
        g->chunk[b] = cut_chunk(s, t, buffer(g, b));
        pthread_mutex_lock(&g->lock);
        g->loaded[b] = false;
        g->posted++;
        pthread_cond_signal(&g->work);
        pthread_mutex_unlock(&g->lock);
    }
    return BERTH_OK;
}

/* ---- queueing copies ---- */

/* Bytes of the chunk that lie behind one another in the slot go as one copy: in the buffer they
 * always do. */
static berth_status copy_chunk(struct stream *s, struct stream_slot *t, const struct stage_chunk *k,
                               const char *buf, berth_err *err)
{
    const struct stream_copy *c = &s->cut.copy[k->copy];
    struct dev_stream *lane = s->lane[t->lane];
    size_t off = k->off;
    for (size_t done = 0, n = 0; done < k->n; done += n) {
        size_t dst = c->dst + off;
        for (n = 0; done + n < k->n && c->dst + off == dst + n; c++, off = 0) {
            size_t left = k->n - done - n, part = c->n - off < left ? c->n - off : left;
            n += part;
            if (part < c->n - off) /* the chunk ends inside this one */
                break;
        }
        if (dev_copy_h2d(lane, s->ring.addr + t->from + dst, buf + done, n, err))
            return err->code;
        s->stats.copies++;
        stream_count(s, n);
        s->stats.staged += n;
        t->copied += n;
    }
    return BERTH_OK;
}

static berth_status issue_chunk(struct stream *s, unsigned b, berth_err *err)
{
    struct stream_stage *g = &s->stage;
    const struct stage_chunk *k = &g->chunk[b];
    struct stream_slot *t = &s->slot[k->slot];
    if (t->run == STREAM_NONE || t->serial != k->serial)
        return BERTH_OK;
    const struct stream_run *r = &s->cut.run[k->run];
    if (stream_slot_open(s, t, r->lane, err) || copy_chunk(s, t, k, buffer(g, b), err) ||
        dev_event_record(g->copied[b], s->lane[r->lane], err))
        return stream_broke(s, k->run, err);
    g->copying[b] = true;
    return t->copied == r->bytes ? stream_slot_filled(s, t, err) : BERTH_OK;
}

berth_status stage_pump(struct stream *s, berth_err *err)
{
    struct stream_stage *g = &s->stage;
    if (!g->bufs)
        return BERTH_OK;
    for (unsigned b; g->issued < g->posted && is_loaded(g, b = (unsigned)(g->issued % g->bufs));
         g->issued++)
        if (issue_chunk(s, b, err))
            return err->code;
    return post(s, err);
}

berth_status stage_finish(struct stream *s, struct stream_slot *t, berth_err *err)
{
    struct stream_stage *g = &s->stage;
    for (;;) {
        if (stage_pump(s, err))
            return err->code;
        if (t->ready)
            return BERTH_OK;
        unsigned b = (unsigned)((g->issued < g->posted ? g->issued : g->posted) % g->bufs);
        if (g->issued < g->posted) {
            wait_loaded(g, b);
        } else { /* t has bytes to load, and the next buffer is still being copied from */
            if (dev_event_sync(g->copied[b], err))
                return stream_broke(s, t->run, err);
            g->copying[b] = false;
        }
    }
}

void stage_reset(struct stream *s)
{
    struct stream_stage *g = &s->stage;
    for (; g->issued < g->posted; g->issued++)
        wait_loaded(g, (unsigned)(g->issued % g->bufs));
    memset(g->copying, 0, sizeof g->copying);
}

/* ---- life ---- */

static berth_status start_loaders(struct stream *s, unsigned n, berth_err *err)
{
    struct stream_stage *g = &s->stage;
    pthread_mutex_init(&g->lock, NULL); /* these three cannot fail with default attributes */
    pthread_cond_init(&g->work, NULL);
    pthread_cond_init(&g->done, NULL);
    g->made = true;
    for (; g->threads < n; g->threads++) {
        int rc = pthread_create(&g->thread[g->threads], NULL, loader_main, g);
        if (rc)
            return err_sys(err, rc == EAGAIN ? BERTH_ELIMIT : BERTH_ENOMEM, rc,
                           "starting loader thread %u of %u", g->threads + 1, n);
    }
    return BERTH_OK;
}

/* Chunks of one pass: more buffers than that would never be used. */
static uint64_t chunks(const struct stream_cut *c, size_t buf_n)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < c->runs; k++)
        if (c->run[k].staged)
            n += (c->run[k].bytes - 1) / buf_n + 1;
    return n;
}

berth_status stage_open(struct stream *s, berth_err *err)
{
    const struct stream_config *cfg = &s->args.cfg;
    struct stream_stage *g = &s->stage;
    size_t all;
    if (!s->cut.staged)
        return BERTH_OK;
    if (!s->args.host_owner)
        BUG("stream: pageable blocks and nobody to pay for staging");
    g->cut = &s->cut;
    g->buf_n = cfg->stage_bytes < s->cut.staged ? (size_t)cfg->stage_bytes : s->cut.staged;
    uint64_t most = chunks(&s->cut, g->buf_n);
    g->bufs = most < cfg->stage_slots ? (unsigned)most : cfg->stage_slots;
    if (!sz_align(g->buf_n, DEV_ALIGN_MIN, &g->buf_n) || !sz_mul(g->buf_n, g->bufs, &all))
        return err_set(err, BERTH_ELIMIT, "%u staging buffers of %zu bytes", g->bufs, g->buf_n);
    if (dev_host_alloc(s->args.compute, s->args.host_owner, all, &g->mem, err))
        return err_add(err, "%u staging buffers of %zu bytes", g->bufs, g->buf_n);
    for (unsigned b = 0; b < g->bufs; b++)
        if (dev_event_new(s->args.compute, &g->copied[b], err))
            return err->code;
    return start_loaders(s, cfg->loaders < g->bufs ? cfg->loaders : g->bufs, err);
}

void stage_close(struct stream *s)
{
    struct stream_stage *g = &s->stage;
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
    for (unsigned b = 0; b < g->bufs; b++)
        dev_event_free(g->copied[b]);
    dev_host_free(&g->mem);
    *g = (struct stream_stage) { 0 };
}
