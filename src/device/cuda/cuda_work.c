/* cuda_work: streams, events, copies. */
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

berth_status cuda_stream_open(struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuStreamCreate(&stream_of(s)->stream, CU_STREAM_NON_BLOCKING), err);
}

void cuda_stream_close(struct dev_stream *s)
{
    struct cuda_dev *d = cuda_dev(s->phys);
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    CUDA_LOG_FAILURE(d, cuStreamSynchronize(cuda_stream(s)));
    CUDA_LOG_FAILURE(d, cuStreamDestroy(cuda_stream(s)));
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

/* ---- events ---- */

berth_status cuda_event_open(struct dev_event *e, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuEventCreate(&event_of(e)->event, CU_EVENT_DEFAULT), err);
}

void cuda_event_close(struct dev_event *e)
{
    struct cuda_dev *d = cuda_dev(e->phys);
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    CUDA_LOG_FAILURE(d, cuEventDestroy(event_of(e)->event));
}

berth_status cuda_event_record(struct dev_event *e, struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    if (cuda_current(p, err))
        return err->code;
    return CUDA_TRY(p, cuEventRecord(event_of(e)->event, cuda_stream(s)), err);
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

berth_status cuda_event_elapsed(struct dev_event *from, struct dev_event *to, bool *done,
                                int64_t *ns, berth_err *err)
{
    struct cuda_phys *p = cuda_of(to->phys);
    float ms = 0;
    if (cuda_current(p, err))
        return err->code;
    CUresult r = p->api->cuEventElapsedTime(&ms, event_of(from)->event, event_of(to)->event);
    *done = r == CUDA_SUCCESS;
    *ns = *done ? (int64_t)((double)ms * 1e6) : 0;
    return r == CUDA_ERROR_NOT_READY ? BERTH_OK : cuda_check(p, r, "cuEventElapsedTime", err);
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
    if (phys_stream_new(&d->pub.base, &d->own, err) ||
        CUDA_TRY(&d->pub, cuEventCreate(&d->probe, CU_EVENT_DEFAULT), err))
        return err->code;
    return CUDA_TRY(&d->pub, cuEventRecord(d->probe, cuda_stream(d->own)), err);
}

void cuda_work_close(struct cuda_dev *d)
{
    struct phys *p = &d->pub.base;
    size_t streams = 0, events = 0;
    if (d->probe)
        CUDA_LOG_FAILURE(d, cuEventDestroy(d->probe));
    dev_stream_free(d->own);
    for (; p->events; events++)
        dev_event_free(p->events);
    for (; p->streams; streams++)
        dev_stream_free(p->streams);
    if (streams || events)
        log_error(d->log, "dev.leak", "dev=%s streams=%zu events=%zu", p->name, streams, events);
}
