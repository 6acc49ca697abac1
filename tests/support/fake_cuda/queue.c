/* What is queued: streams, events, copies, kernels. */
#include "support/fake_cuda/impl.h"

#include <stdlib.h>
#include <string.h>

struct op {
    struct op *next;
    CUevent record, wait;
    uint64_t serial; /* of the record, or the one waited for */
    void *dst;
    const void *src;
    size_t n;
    bool spoil;
    struct fake_work *work;
};

struct CUstream_st {
    CUstream next;
    CUcontext ctx;
    struct op *head, **tail;
};

struct CUevent_st {
    CUevent next;
    CUcontext ctx;
    uint64_t serial, reached; /* of records: the latest queued, the latest that happened */
    uint64_t at;
    bool destroyed;
};

static CUstream streams;
static CUevent events;

void fake_queue_reset(void)
{
    while (streams) {
        CUstream s;
        POP(streams, s);
        while (s->head) {
            struct op *o;
            POP(s->head, o);
            free(o->work);
            free(o);
        }
        free(s);
    }
    while (events) {
        CUevent e;
        POP(events, e);
        free(e);
    }
}

/* ---- streams ---- */

static void run_until(CUstream s, const struct op *last); /* all: NULL */

/* A record that did not happen yet is in the queue of a stream: that runs up to it. */
static void reach(CUevent e, uint64_t serial)
{
    if (e->reached >= serial)
        return;
    for (CUstream s = streams; s; s = s->next)
        for (const struct op *o = s->head; o; o = o->next)
            if (o->record == e && o->serial == serial) {
                run_until(s, o);
                return;
            }
}

static void event_done(CUevent e) /* frees what was destroyed and is in no queue any more */
{
    if (!e->destroyed || e->reached < e->serial)
        return;
    for (CUstream s = streams; s; s = s->next)
        for (const struct op *o = s->head; o; o = o->next)
            if (o->wait == e || o->record == e)
                return;
    CUevent *at = &events;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    free(e);
}

static void run_head(CUstream s)
{
    struct op *o = s->head;
    CUevent e = o->record ? o->record : o->wait;
    if (o->wait)
        reach(o->wait, o->serial);
    s->head = o->next;
    if (!s->head)
        s->tail = &s->head;
    if (o->n && !s->ctx->lost) {
        memmove(o->dst, o->src, o->n);
        if (o->spoil)
            *(unsigned char *)o->dst ^= 0x55;
        fake_machine.now += o->n;
    }
    if (o->work && !s->ctx->lost)
        fake_work_run(o->work);
    if (o->record && o->serial > o->record->reached) {
        o->record->reached = o->serial;
        o->record->at = fake_machine.now;
    }
    free(o->work);
    free(o);
    if (e)
        event_done(e);
}

static void run_until(CUstream s, const struct op *last)
{
    bool there = false;
    while (s->head && !there) {
        there = s->head == last;
        run_head(s);
    }
}

static void some_time_passes(void)
{
    for (CUstream s = streams; s && !fake_machine.hold; s = s->next)
        run_until(s, NULL);
}

static CUresult push(CUstream s, const struct op *op)
{
    struct op *o = malloc(sizeof *o);
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = *op;
    o->next = NULL;
    *s->tail = o;
    s->tail = &o->next;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    ENTER_CONTEXT();
    CHECK(flags == CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    CUstream s = calloc(1, sizeof *s);
    CHECK(s, CUDA_ERROR_OUT_OF_MEMORY);
    s->ctx = c;
    s->tail = &s->head;
    s->next = streams;
    streams = s;
    fake_machine.streams++;
    *out = s;
    return fake_leave(CUDA_SUCCESS);
}

/* Even of a lost card a stream is gone afterwards. */
CUresult cuStreamDestroy(CUstream s)
{
    CUresult r = fake_enter(__func__);
    if (!r && fake_top() != s->ctx)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r)
        return fake_leave(r);
    run_until(s, NULL);
    CUstream *at = &streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
    fake_machine.streams--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    run_until(s, NULL);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    (void)flags;
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(!e->ctx->lost, (CUresult)e->ctx->lost);
    return fake_leave(push(s, &(struct op) { .wait = e, .serial = e->serial }));
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    ENTER_CONTEXT();
    CHECK(!(flags & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_VALUE);
    CUevent e = calloc(1, sizeof *e);
    CHECK(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->ctx = c;
    e->next = events;
    events = e;
    fake_machine.events++;
    *out = e;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuEventDestroy(CUevent e)
{
    CUresult r = fake_enter(__func__);
    if (!r && fake_top() != e->ctx)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r)
        return fake_leave(r);
    e->destroyed = true;
    fake_machine.events--;
    event_done(e);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(e->ctx == c && s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    r = push(s, &(struct op) { .record = e, .serial = e->serial + 1 });
    e->serial += !r;
    return fake_leave(r);
}

CUresult cuEventQuery(CUevent e)
{
    ENTER_CONTEXT();
    some_time_passes();
    return fake_leave(e->reached == e->serial ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult cuEventSynchronize(CUevent e)
{
    ENTER_CONTEXT();
    reach(e, e->serial);
    return fake_leave(CUDA_SUCCESS);
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    ENTER_CONTEXT();
    CHECK(from->serial && to->serial, CUDA_ERROR_INVALID_HANDLE);
    CHECK(from->reached == from->serial && to->reached == to->serial, CUDA_ERROR_NOT_READY);
    *ms = (float)(((double)to->at - (double)from->at) / 1e6);
    return fake_leave(CUDA_SUCCESS);
}

/* ---- copies ---- */

static void *at(CUdeviceptr p)
{
    return (void *)(uintptr_t)p;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c && fake_reachable(c->card, dst, n) && fake_host_whole(src, n),
          CUDA_ERROR_INVALID_VALUE);
    fake_machine.copies++;
    return fake_leave(push(s, &(struct op) { .dst = at(dst), .src = src, .n = n }));
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c && fake_reachable(c->card, src, n) && fake_host_whole(dst, n),
          CUDA_ERROR_INVALID_VALUE);
    fake_machine.copies++;
    return fake_leave(push(s, &(struct op) { .dst = dst, .src = at(src), .n = n }));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c && fake_reachable(c->card, src, n) && fake_reachable(c->card, dst, n),
          CUDA_ERROR_INVALID_VALUE);
    fake_machine.copies++;
    return fake_leave(push(s, &(struct op) { .dst = at(dst), .src = at(src), .n = n }));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n,
                           CUstream s)
{
    ENTER_CONTEXT();
    CHECK(!to->lost, (CUresult)to->lost);
    CHECK(!from->lost, (CUresult)from->lost);
    CHECK(s->ctx == c && fake_reachable(from->card, src, n) && fake_reachable(to->card, dst, n),
          CUDA_ERROR_INVALID_VALUE);
    CHECK(fake_machine.no_vmm ||
              (fake_reachable(c->card, src, n) && fake_reachable(c->card, dst, n)),
          CUDA_ERROR_INVALID_VALUE);
    fake_machine.peer_copies++;
    bool direct = to->peer[from->card] || from->peer[to->card];
    return fake_leave(push(s, &(struct op) { .dst = at(dst),
                                             .src = at(src),
                                             .n = n,
                                             .spoil = direct && fake_machine.peer_lies }));
}

/* ---- kernels ---- */

CUresult fake_push_work(CUstream s, CUcontext c, struct fake_work *w)
{
    return s->ctx == c ? push(s, &(struct op) { .work = w }) : CUDA_ERROR_INVALID_CONTEXT;
}
