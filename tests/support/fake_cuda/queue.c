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
    CUgraph capture; /* NULL: what is queued runs */
};

struct CUgraph_st {
    struct op *head, **tail;
    bool spoiled; /* by what cannot be kept */
};

struct CUgraphExec_st {
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

static void ops_free(struct op *list)
{
    while (list) {
        struct op *o;
        POP(list, o);
        fake_work_unref(o->work);
        free(o);
    }
}

void fake_queue_reset(void)
{
    while (streams) {
        CUstream s;
        POP(streams, s);
        ops_free(s->head);
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
    fake_work_unref(o->work);
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

static CUresult append(struct op ***tail, const struct op *op)
{
    struct op *o = malloc(sizeof *o);
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *o = *op;
    o->next = NULL;
    **tail = o;
    *tail = &o->next;
    return CUDA_SUCCESS;
}

/* Of a stream that is captured kernels are kept, and anything else spoils it. */
static CUresult push(CUstream s, const struct op *op)
{
    if (!s->capture)
        return append(&s->tail, op);
    if (op->work && !s->capture->spoiled)
        return append(&s->capture->tail, op);
    s->capture->spoiled = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
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
    if (s->capture)
        s->capture->spoiled = true;
    CHECK(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
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

/* ---- graphs ---- */

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(!s->capture && mode == CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    s->capture = calloc(1, sizeof *s->capture);
    CHECK(s->capture, CUDA_ERROR_OUT_OF_MEMORY);
    s->capture->tail = &s->capture->head;
    fake_machine.graphs++;
    return fake_leave(CUDA_SUCCESS);
}

static void graph_free(CUgraph g)
{
    ops_free(g->head);
    free(g);
    fake_machine.graphs--;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    *out = NULL;
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(s->capture, CUDA_ERROR_ILLEGAL_STATE);
    CUgraph g = s->capture;
    s->capture = NULL;
    if (g->spoiled) {
        graph_free(g);
        return fake_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    *out = g;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphDestroy(CUgraph g)
{
    ENTER();
    graph_free(g);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    ENTER_CONTEXT();
    CHECK(!flags, CUDA_ERROR_INVALID_VALUE);
    CUgraphExec x = calloc(1, sizeof *x);
    CHECK(x, CUDA_ERROR_OUT_OF_MEMORY);
    x->tail = &x->head;
    for (struct op *o = g->head; o && !r; o = o->next) {
        fake_work_ref(o->work);
        r = append(&x->tail, o);
    }
    CHECK(!r, r);
    fake_machine.graphs++;
    *out = x;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphExecDestroy(CUgraphExec x)
{
    ENTER();
    ops_free(x->head);
    free(x);
    fake_machine.graphs--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphLaunch(CUgraphExec x, CUstream s)
{
    ENTER_CONTEXT();
    CHECK(s->ctx == c, CUDA_ERROR_INVALID_CONTEXT);
    CHECK(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    for (struct op *o = x->head; o && !r; o = o->next) {
        fake_work_ref(o->work);
        r = append(&s->tail, o);
    }
    fake_machine.graph_launches += !r;
    return fake_leave(r);
}
