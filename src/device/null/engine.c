/* engine: what is queued on null streams, and the order in which it happens. */
#include "device/null/null_impl.h"

#include <inttypes.h>

/* A point in a stream, shared by the event that was recorded, the queued record and the queued
 * waits; the last one frees it. */
struct mark {
    unsigned refs;
    bool done;
    uint64_t time;       /* virtual, once it is done */
    struct vclock clock; /* of the stream when it was queued */
};

struct op {
    struct op *next;
    uint64_t from;              /* the host's time when it was queued */
    struct mark *record, *wait; /* at most one of the two, and then nothing else */
    dev_fn *fn;
    void *user;
    size_t n;    /* of a copy: bytes, from ptr[1] to ptr[0] */
    void *ptr[]; /* where the declared bytes are */
};

static struct null_stream *stream_of(struct dev_stream *s)
{
    return (struct null_stream *)s;
}

static struct null_event *event_of(struct dev_event *e)
{
    return (struct null_event *)e;
}

static struct world *world_of(struct phys *p)
{
    return null_of(p)->world;
}

static void mark_unref(struct mark *m)
{
    if (m && --m->refs == 0)
        free(m);
}

/* ---- running ---- */

static uint64_t draw(struct world *w) /* splitmix64 */
{
    uint64_t z = w->rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static bool runnable(const struct null_stream *s)
{
    return s && s->head && !(s->head->wait && !s->head->wait->done);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Virtual time: when o is done. */
static uint64_t time_of(const struct world *w, const struct null_stream *s, const struct op *o)
{
    uint64_t start = later(s->now, o->from);
    if (o->wait)
        return later(start, o->wait->time);
    if (o->record)
        return start;
    if (o->fn)
        return start + w->cfg.launch_ns;
    return w->cfg.copy_bytes_per_s
               ? start + (uint64_t)((double)o->n * 1e9 / (double)w->cfg.copy_bytes_per_s)
               : start;
}

static void run_head(struct world *w, struct null_stream *s)
{
    struct op *o = s->head;
    s->head = o->next;
    if (!s->head)
        s->tail = &s->head;
    w->queued--;
    s->now = time_of(w, s, o);
    if (o->record) {
        o->record->time = s->now;
        o->record->done = true;
    } else if (o->fn) {
        o->fn(o->user, o->ptr);
    } else if (!o->wait) {
        memmove(o->ptr[0], o->ptr[1], o->n);
    }
    mark_unref(o->record);
    mark_unref(o->wait);
    free(o);
}

bool sim_step(struct world *w)
{
    unsigned ready = 0;
    for (unsigned a = 0; a < ACTORS; a++)
        ready += runnable(w->stream[a]);
    if (!ready) {
        if (w->queued) /* a wait always refers to a record queued before it */
            BUG("null engine: %zu operations queued, none can run", w->queued);
        return false;
    }
    uint64_t pick = draw(w) % ready;
    for (unsigned a = 0; a < ACTORS; a++)
        if (runnable(w->stream[a]) && !pick--) {
            run_head(w, w->stream[a]);
            break;
        }
    return true;
}

void sim_run(struct world *w)
{
    while (sim_step(w))
        ;
}

/* ---- queueing ---- */

static void push(struct null_stream *s, struct op *o)
{
    struct world *w = world_of(s->base.phys);
    *s->tail = o;
    s->tail = &o->next;
    o->from = w->now;
    w->queued++;
}

static struct op *op_new(size_t ptrs)
{
    return calloc(1, sizeof(struct op) + ptrs * sizeof(void *));
}

/* The stream's next step: after everything on it, and after all the host did so far. */
static struct actor_op stream_op(struct null_stream *s, const char *what)
{
    struct world *w = world_of(s->base.phys);
    struct vclock *c = &w->clock[s->actor];
    vclock_join(c, &w->clock[HOST]);
    return (struct actor_op) { .world = w,
                               .actor = s->actor,
                               .epoch = ++c->at[s->actor],
                               .op = ++w->ops,
                               .what = what,
                               .clock = c };
}

struct touch { /* one access of an operation being queued */
    struct shadow *shadow;
    uint64_t lo;
    size_t n;
    unsigned how;
};

/* Where [addr, addr+n) of d is. NULL: nowhere; the hazard is reported. */
static void *locate(struct null_dev *d, struct actor_op *by, uint64_t addr, size_t n, unsigned how,
                    struct touch *t)
{
    struct block *b = null_block_at(d, addr);
    if (b && n <= b->n - (addr - b->addr)) {
        *t = (struct touch) { &b->shadow, addr, n, how };
        return b->host + (addr - b->addr);
    }
    bool was = !b && addr >= d->first_addr && addr < d->next_addr;
    by->found = true;
    hazard_report(by->world, was ? NULL_USE_FREED : NULL_UNKNOWN_ADDRESS,
                  "%s #%" PRIu64 " on %s touches [%#" PRIx64 ", +%zu), which %s", by->what, by->op,
                  d->base.name, addr, n,
                  b     ? "leaves its allocation"
                  : was ? "is not allocated (any more)"
                        : "was never allocated");
    return NULL;
}

/* Holds the touches against the past and, if all is well enough to go on, records them. known:
 * locate() found them all. */
static berth_status admit(struct actor_op *by, bool known, const struct touch *t, size_t n,
                          berth_err *err)
{
    if (!known)
        return err_set(err, BERTH_EDEVICE, "%s", by->world->last);
    for (size_t i = 0; i < n; i++)
        if (!shadow_reserve(t[i].shadow))
            return err_set(err, BERTH_ENOMEM, "null: an access record");
    for (size_t i = 0; i < n; i++)
        shadow_check(t[i].shadow, by, t[i].lo, t[i].lo + t[i].n, t[i].how);
    if (by->found && by->world->cfg.strict)
        return err_set(err, BERTH_EDEVICE, "%s", by->world->last);
    for (size_t i = 0; i < n; i++)
        shadow_access(t[i].shadow, by, t[i].lo, t[i].lo + t[i].n, t[i].how);
    return BERTH_OK;
}

/* The same for host memory, as drivers of cards see it: pinned in one piece, or not at all. */
static void *locate_host(struct actor_op *by, uint64_t at, size_t n)
{
    if (!null_leaves_pin(by->world, at, at + n))
        return (void *)(uintptr_t)at;
    by->found = true;
    hazard_report(by->world, NULL_UNKNOWN_ADDRESS,
                  "%s #%" PRIu64 " touches host memory [%#" PRIx64
                  ", +%zu), which leaves its pinned allocation",
                  by->what, by->op, at, n);
    return NULL;
}

/* A copy of n bytes; ends are host memory when their device is NULL. */
static berth_status copy(struct dev_stream *stream, const char *what, struct null_dev *to,
                         uint64_t dst, struct null_dev *from, uint64_t src, size_t n,
                         berth_err *err)
{
    struct null_stream *s = stream_of(stream);
    if (null_call_fails(null_of(s->base.phys), NULL_COPY, err))
        return err->code;
    struct op *o = op_new(2);
    if (!o)
        return err_set(err, BERTH_ENOMEM, "null: a queued copy");
    struct actor_op by = stream_op(s, what);
    struct touch t[2] = { { &by.world->host, dst, n, DEV_WRITE },
                          { &by.world->host, src, n, DEV_READ } };
    o->n = n;
    o->ptr[0] = to ? locate(to, &by, dst, n, DEV_WRITE, &t[0]) : locate_host(&by, dst, n);
    o->ptr[1] = from ? locate(from, &by, src, n, DEV_READ, &t[1]) : locate_host(&by, src, n);
    if (admit(&by, o->ptr[0] && o->ptr[1], t, 2, err)) {
        free(o);
        return err->code;
    }
    push(s, o);
    return BERTH_OK;
}

berth_status null_copy_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                           berth_err *err)
{
    return copy(s, "h2d copy", null_of(s->phys), dst, NULL, (uintptr_t)src, n, err);
}

berth_status null_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err)
{
    return copy(s, "d2h copy", NULL, (uintptr_t)dst, null_of(s->phys), src, n, err);
}

berth_status null_copy_d2d(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                           berth_err *err)
{
    return copy(s, "d2d copy", null_of(s->phys), dst, null_of(s->phys), src, n, err);
}

berth_status null_copy_peer(struct dev_stream *s, struct phys *dst_phys, uint64_t dst,
                            struct phys *src_phys, uint64_t src, size_t n, berth_err *err)
{
    return copy(s, "peer copy", null_of(dst_phys), dst, null_of(src_phys), src, n, err);
}

berth_status null_launch(struct dev_stream *stream, dev_fn *fn, void *user,
                         const struct dev_access *access, size_t n, berth_err *err)
{
    struct null_stream *s = stream_of(stream);
    struct null_dev *d = null_of(s->base.phys);
    struct touch t[DEV_LAUNCH_ACCESS_MAX];
    if (null_call_fails(d, NULL_LAUNCH, err))
        return err->code;
    struct op *o = op_new(n);
    if (!o)
        return err_set(err, BERTH_ENOMEM, "null: a queued launch");
    struct actor_op by = stream_op(s, "launch");
    bool known = true;
    size_t touches = 0;
    for (size_t i = 0; i < n; i++) {
        if (!access[i].n) /* touches nothing, wherever it points */
            continue;
        o->ptr[i] = locate(d, &by, access[i].addr, access[i].n, access[i].how, &t[touches++]);
        known &= o->ptr[i] != NULL;
    }
    o->fn = fn;
    o->user = user;
    if (admit(&by, known, t, touches, err)) {
        free(o);
        return err->code;
    }
    push(s, o);
    return BERTH_OK;
}

/* ---- streams ---- */

berth_status null_stream_open(struct dev_stream *stream, berth_err *err)
{
    struct null_stream *s = stream_of(stream);
    struct world *w = world_of(stream->phys);
    unsigned a = 1;
    if (null_call_fails(null_of(stream->phys), NULL_STREAM_NEW, err))
        return err->code;
    while (a < ACTORS && w->stream[a])
        a++;
    if (a == ACTORS)
        return err_set(err, BERTH_EDEVICE, "%s: more than %d streams", stream->phys->name,
                       NULL_STREAMS_MAX);
    s->actor = a; /* a former stream of this slot was waited for: its steps are the host's past */
    s->serial = ++w->streams;
    s->tail = &s->head;
    w->stream[a] = s;
    return BERTH_OK;
}

/* The host knows now that all before that clock is done, at that time. */
static void learn(struct world *w, const struct vclock *clock, uint64_t time)
{
    vclock_join(&w->clock[HOST], clock);
    w->now = later(w->now, time);
}

/* Runs until the stream is empty; the host then knows all of it. */
static void finish(struct null_stream *s)
{
    struct world *w = world_of(s->base.phys);
    while (s->head)
        sim_step(w);
    learn(w, &w->clock[s->actor], s->now);
}

void null_stream_close(struct dev_stream *s)
{
    finish(stream_of(s));
    world_of(s->phys)->stream[stream_of(s)->actor] = NULL;
}

berth_status null_stream_sync(struct dev_stream *s, berth_err *err)
{
    if (null_call_fails(null_of(s->phys), NULL_STREAM_SYNC, err))
        return err->code;
    finish(stream_of(s));
    return BERTH_OK;
}

berth_status null_stream_wait(struct dev_stream *stream, struct dev_event *e, berth_err *err)
{
    struct null_stream *s = stream_of(stream);
    struct world *w = world_of(s->base.phys);
    struct mark *m = event_of(e)->mark;
    if (null_call_fails(null_of(s->base.phys), NULL_STREAM_WAIT, err))
        return err->code;
    if (world_of(e->phys) != w) /* of another set: only the host can wait for both */
        return null_event_sync(e, err);
    if (!m)
        return BERTH_OK;
    struct op *o = op_new(0);
    if (!o)
        return err_set(err, BERTH_ENOMEM, "null: a queued wait");
    m->refs++;
    o->wait = m;
    vclock_join(&w->clock[s->actor], &m->clock);
    push(s, o);
    return BERTH_OK;
}

/* ---- events ---- */

berth_status null_event_open(struct dev_event *e, berth_err *err)
{
    return null_call_fails(null_of(e->phys), NULL_EVENT_NEW, err) ? err->code : BERTH_OK;
}

void null_event_close(struct dev_event *e)
{
    mark_unref(event_of(e)->mark);
}

berth_status null_event_record(struct dev_event *e, struct dev_stream *stream, berth_err *err)
{
    struct null_stream *s = stream_of(stream);
    struct world *w = world_of(s->base.phys);
    if (null_call_fails(null_of(e->phys), NULL_EVENT_RECORD, err))
        return err->code;
    struct mark *m = calloc(1, sizeof *m);
    struct op *o = m ? op_new(0) : NULL;
    if (!o) {
        free(m);
        return err_set(err, BERTH_ENOMEM, "null: a queued record");
    }
    vclock_join(&w->clock[s->actor], &w->clock[HOST]);
    m->clock = w->clock[s->actor];
    m->refs = 2; /* the event and the queue */
    o->record = m;
    push(s, o);
    mark_unref(event_of(e)->mark);
    event_of(e)->mark = m;
    return BERTH_OK;
}

berth_status null_event_query(struct dev_event *e, bool *done, berth_err *err)
{
    struct world *w = world_of(e->phys);
    const struct mark *m = event_of(e)->mark;
    *done = false;
    if (null_call_fails(null_of(e->phys), NULL_EVENT_QUERY, err))
        return err->code;
    if (m && !m->done && !w->cfg.lazy)
        sim_step(w);
    *done = !m || m->done;
    if (m && m->done)
        learn(w, &m->clock, m->time);
    return BERTH_OK;
}

berth_status null_event_sync(struct dev_event *e, berth_err *err)
{
    struct world *w = world_of(e->phys);
    const struct mark *m = event_of(e)->mark;
    if (null_call_fails(null_of(e->phys), NULL_EVENT_SYNC, err))
        return err->code;
    while (m && !m->done)
        sim_step(w);
    if (m)
        learn(w, &m->clock, m->time);
    return BERTH_OK;
}

berth_status null_event_elapsed(struct dev_event *from, struct dev_event *to, bool *done,
                                int64_t *ns, berth_err *err)
{
    const struct mark *a = event_of(from)->mark, *b = event_of(to)->mark;
    if (null_call_fails(null_of(to->phys), NULL_EVENT_ELAPSED, err))
        return err->code;
    *done = a->done && b->done;
    *ns = *done ? (int64_t)(b->time - a->time) : 0;
    return BERTH_OK;
}
