/* cuda_work: streams, events, their times, copies. */
#include "base/clock.h"
#include "device/cuda/cuda_impl.h"

static struct cuda_stream *stream_of(const struct dev_stream *s)
{
    return (struct cuda_stream *)s;
}

static struct cuda_event *event_of(struct dev_event *e)
{
    return (struct cuda_event *)e;
}

CUstream cuda_stream(const struct dev_stream *s)
{
    return stream_of(s)->stream;
}

/* ---- streams ---- */

berth_status cuda_stream_new(struct phys *p, struct dev_stream **out, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(p);
    *out = NULL;
    if (cuda_current(&d->pub, err))
        return err->code;
    struct cuda_stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "%s: a stream", p->name);
    s->base.phys = p;
    if (CUDA_TRY(&d->pub, cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), err)) {
        free(s);
        return err->code;
    }
    s->next = d->streams;
    if (s->next)
        s->next->prev = s;
    d->streams = s;
    *out = &s->base;
    return BERTH_OK;
}

void cuda_stream_free(struct dev_stream *stream)
{
    struct cuda_stream *s = stream_of(stream);
    struct cuda_dev *d = cuda_dev(stream->phys);
    cuda_tell(d, d->pub.api->cuCtxSetCurrent(d->pub.ctx), "cuCtxSetCurrent");
    CUDA_TELL(d, cuStreamSynchronize(s->stream));
    CUDA_TELL(d, cuStreamDestroy(s->stream));
    if (s->prev)
        s->prev->next = s->next;
    else
        d->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
    free(s);
}

berth_status cuda_stream_sync(struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuStreamSynchronize(cuda_stream(s)), err);
}

berth_status cuda_stream_wait(struct dev_stream *s, struct dev_event *e, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(s->phys), *other = cuda_dev(e->phys);
    if (cuda_lost(other, err) || cuda_current(&d->pub, err))
        return err->code;
    CUresult r = d->pub.api->cuStreamWaitEvent(cuda_stream(s), event_of(e)->event, 0);
    return cuda_check_among(d, &other, 1, r, "cuStreamWaitEvent", err);
}

/* ---- the device's clock ----
 * cuEventElapsedTime() gives milliseconds between two events as a float, 24 bits: microseconds are
 * gone after a minute. So a new mark is recorded on an idle stream every MARK_NS, its own time is
 * the one before plus the float between them, and an event counts from the mark that was the latest
 * when it was recorded. Nothing waits: a time that rests on a mark not yet reached is not there yet.
 * What is left to lose is the time from recording an event until its stream gets there: a second of
 * queued work costs 60 ns, ten a microsecond, about what the card's own clock is good for.
 */

#define MARK_NS UINT64_C(1000000000)
#define FIRST_ORIGIN INT64_C(1000000000) /* an event may be reached a little before its mark */

static void mark_unref(struct cuda_dev *d, struct cuda_mark *m)
{
    while (m && --m->refs == 0) {
        struct cuda_mark *prev = m->prev;
        CUDA_TELL(d, cuEventDestroy(m->event));
        free(m);
        m = prev;
    }
}

static int64_t float_ms_to_ns(float ms)
{
    double ns = (double)ms * 1e6;
    return (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
}

static berth_status mark_new(struct cuda_dev *d, struct cuda_mark **out, berth_err *err)
{
    struct cuda_phys *p = &d->pub;
    *out = NULL;
    struct cuda_mark *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, BERTH_ENOMEM, "%s: a mark of its clock", p->base.name);
    if (CUDA_TRY(p, cuEventCreate(&m->event, CU_EVENT_DEFAULT), err)) {
        free(m);
        return err->code;
    }
    m->refs = 1;
    if (CUDA_TRY(p, cuEventRecord(m->event, d->clock->stream), err)) {
        mark_unref(d, m);
        return err->code;
    }
    *out = m;
    return BERTH_OK;
}

/* Finds m's place in time, if it was reached. pre: its predecessor's is known. */
static berth_status mark_place(struct cuda_dev *d, struct cuda_mark *m, berth_err *err)
{
    struct cuda_phys *p = &d->pub;
    float ms;
    if (m->known)
        return BERTH_OK;
    CUresult r = p->api->cuEventQuery(m->event);
    if (r == CUDA_ERROR_NOT_READY)
        return BERTH_OK;
    if (cuda_check(p, r, "cuEventQuery", err) ||
        CUDA_TRY(p, cuEventElapsedTime(&ms, m->prev->event, m->event), err))
        return err->code;
    m->origin = m->prev->origin + float_ms_to_ns(ms);
    m->known = true;
    mark_unref(d, m->prev);
    m->prev = NULL;
    return BERTH_OK;
}

/* A new mark when the latest is old. Without one the old serves on: times are then less exact. */
static void mark_renew(struct cuda_dev *d)
{
    uint64_t now = clock_mono_ns(d->host_clock);
    struct cuda_mark *m;
    berth_err err;
    if (now - d->now_at < MARK_NS)
        return;
    d->now_at = now;
    if (mark_place(d, d->now, &err) || !d->now->known || mark_new(d, &m, &err))
        return;
    m->prev = d->now; /* with the reference that was ours */
    d->now = m;
}

/* ---- events ---- */

berth_status cuda_event_new(struct phys *p, struct dev_event **out, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(p);
    *out = NULL;
    if (cuda_current(&d->pub, err))
        return err->code;
    struct cuda_event *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, BERTH_ENOMEM, "%s: an event", p->name);
    e->base.phys = p;
    if (CUDA_TRY(&d->pub, cuEventCreate(&e->event, CU_EVENT_DEFAULT), err)) {
        free(e);
        return err->code;
    }
    e->next = d->events;
    if (e->next)
        e->next->prev = e;
    d->events = e;
    *out = &e->base;
    return BERTH_OK;
}

void cuda_event_free(struct dev_event *event)
{
    struct cuda_event *e = event_of(event);
    struct cuda_dev *d = cuda_dev(event->phys);
    cuda_tell(d, d->pub.api->cuCtxSetCurrent(d->pub.ctx), "cuCtxSetCurrent");
    CUDA_TELL(d, cuEventDestroy(e->event));
    mark_unref(d, e->mark);
    if (e->prev)
        e->prev->next = e->next;
    else
        d->events = e->next;
    if (e->next)
        e->next->prev = e->prev;
    free(e);
}

berth_status cuda_event_record(struct dev_event *event, struct dev_stream *s, berth_err *err)
{
    struct cuda_event *e = event_of(event);
    struct cuda_dev *d = cuda_dev(event->phys);
    if (cuda_current(&d->pub, err))
        return err->code;
    mark_renew(d);
    if (CUDA_TRY(&d->pub, cuEventRecord(e->event, cuda_stream(s)), err))
        return err->code;
    d->now->refs++;
    mark_unref(d, e->mark);
    e->mark = d->now;
    return BERTH_OK;
}

berth_status cuda_event_query(struct dev_event *e, bool *done, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    *done = false;
    if (cuda_current(p, err))
        return err->code;
    CUresult r = p->api->cuEventQuery(event_of(e)->event);
    *done = r == CUDA_SUCCESS;
    return r == CUDA_ERROR_NOT_READY ? BERTH_OK : cuda_check(p, r, "cuEventQuery", err);
}

berth_status cuda_event_sync(struct dev_event *e, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuEventSynchronize(event_of(e)->event), err);
}

berth_status cuda_event_time(struct dev_event *event, bool *done, uint64_t *ns, berth_err *err)
{
    struct cuda_event *e = event_of(event);
    struct cuda_dev *d = cuda_dev(event->phys);
    bool reached;
    float ms;
    *done = false;
    *ns = 0;
    if (!e->mark) {
        *done = true;
        return BERTH_OK;
    }
    if (cuda_event_query(event, &reached, err) || mark_place(d, e->mark, err))
        return err->code;
    if (!reached || !e->mark->known)
        return BERTH_OK;
    if (CUDA_TRY(&d->pub, cuEventElapsedTime(&ms, e->mark->event, e->event), err))
        return err->code;
    *done = true;
    *ns = (uint64_t)(e->mark->origin + float_ms_to_ns(ms));
    return BERTH_OK;
}

/* ---- copies ---- */

berth_status cuda_copy_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                           berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuMemcpyHtoDAsync(dst, src, n, cuda_stream(s)), err);
}

berth_status cuda_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuMemcpyDtoHAsync(dst, src, n, cuda_stream(s)), err);
}

berth_status cuda_copy_d2d(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                           berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuMemcpyDtoDAsync(dst, src, n, cuda_stream(s)), err);
}

berth_status cuda_copy_peer(struct dev_stream *s, struct phys *dst_phys, uint64_t dst,
                            struct phys *src_phys, uint64_t src, size_t n, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(s->phys);
    struct cuda_dev *ends[] = { cuda_dev(dst_phys), cuda_dev(src_phys) };
    if (cuda_lost(ends[0], err) || cuda_lost(ends[1], err) || cuda_current(&d->pub, err))
        return err->code;
    CUresult r = d->pub.api->cuMemcpyPeerAsync(dst, ends[0]->pub.ctx, src, ends[1]->pub.ctx, n,
                                               cuda_stream(s));
    return cuda_check_among(d, ends, 2, r, "cuMemcpyPeerAsync", err);
}

/* ---- life ---- */

berth_status cuda_work_open(struct cuda_dev *d, berth_err *err)
{
    struct dev_stream *s;
    if (cuda_stream_new(&d->pub.base, &s, err))
        return err->code;
    d->clock = stream_of(s);
    if (mark_new(d, &d->now, err))
        return err->code;
    d->now->known = true;
    d->now->origin = FIRST_ORIGIN;
    d->now_at = clock_mono_ns(d->host_clock);
    return BERTH_OK;
}

void cuda_work_close(struct cuda_dev *d)
{
    size_t streams = 0, events = 0;
    for (struct cuda_event *e = d->events; e; e = d->events, events++)
        cuda_event_free(&e->base);
    mark_unref(d, d->now);
    d->now = NULL;
    for (struct cuda_stream *s = d->streams; s; s = d->streams) {
        streams += s != d->clock;
        cuda_stream_free(&s->base);
    }
    d->clock = NULL;
    if (streams || events)
        log_error(d->log, "dev.leak", "dev=%s streams=%zu events=%zu", d->pub.base.name, streams,
                  events);
}
