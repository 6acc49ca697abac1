/* cuda: one card: its errors, streams, events and copies, its context. */
#include "device/cuda/cuda_impl.h"

#include <inttypes.h>

/* ---- errors ---- */

/* After these the context answers everything with the same error: there is nothing left to try. */
static bool is_fatal(CUresult r)
{
    switch (r) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
#if CUDA_VERSION >= 12080
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
#endif
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

static int name_length(const char *call) /* "cuMemCreate(&h, ...)": up to the parenthesis */
{
    return (int)strcspn(call, "(");
}

berth_status cuda_lost(struct cuda_dev *d, berth_err *err)
{
    char cause[sizeof d->cause];
    if (!atomic_load(&d->pub.lost))
        return BERTH_OK;
    pthread_mutex_lock(&d->lock);
    memcpy(cause, d->cause, sizeof cause);
    pthread_mutex_unlock(&d->lock);
    return err_set_at(err, __FILE__, __LINE__, BERTH_EDEVICE, atomic_load(&d->pub.lost),
                      "%s is lost: %s", d->pub.base.name, cause);
}

/* The first cause stays. */
static void mark_lost(struct cuda_dev *d, CUresult r, const char *what)
{
    char text[CUDA_ERROR_TEXT_MAX];
    cuda_error_text(d->pub.api, r, text);
    pthread_mutex_lock(&d->lock);
    bool first = !d->cause[0];
    if (first) {
        snprintf(d->cause, sizeof d->cause, "%.*s: %s", name_length(what), what, text);
        atomic_store(&d->pub.lost, (int)r);
    }
    pthread_mutex_unlock(&d->lock);
    if (first)
        log_error(d->log, "dev.lost", "dev=%s why=\"%.*s: %s\"", d->pub.base.name,
                  name_length(what), what, text);
}

berth_status cuda_check(struct cuda_phys *p, CUresult r, const char *what, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(&p->base);
    char text[CUDA_ERROR_TEXT_MAX];
    if (r == CUDA_SUCCESS)
        return BERTH_OK;
    if (is_fatal(r))
        mark_lost(d, r, what);
    if (cuda_lost(d, err))
        return err->code;
    cuda_error_text(p->api, r, text);
    size_t unused = 0, total = 0;
    if (r != CUDA_ERROR_OUT_OF_MEMORY || p->api->cuMemGetInfo(&unused, &total))
        return err_set_at(err, __FILE__, __LINE__,
                          r == CUDA_ERROR_OUT_OF_MEMORY ? BERTH_ENODEVMEM : BERTH_EDEVICE, (int)r,
                          "%s: %.*s: %s", p->base.name, name_length(what), what, text);
    return err_set_at(err, __FILE__, __LINE__, BERTH_ENODEVMEM, (int)r,
                      "%s: %.*s: %s, %zu of %zu bytes free", p->base.name, name_length(what), what,
                      text, unused, total);
}

/* Asks whether the card is lost, with a call that involves no other card and does not wait. */
static bool is_lost(struct cuda_dev *d, const char *what)
{
    const struct cuda_api *api = d->pub.api;
    CUcontext was;
    if (atomic_load(&d->pub.lost))
        return true;
    CUresult r = api->cuCtxPushCurrent(d->pub.ctx);
    if (!r) {
        r = api->cuEventQuery(d->probe);
        (void)api->cuCtxPopCurrent(&was);
    }
    if (is_fatal(r))
        mark_lost(d, r, what);
    return is_fatal(r);
}

berth_status cuda_check_among(struct cuda_dev *d, struct cuda_dev *const *others, size_t n,
                              CUresult r, const char *what, berth_err *err)
{
    char text[CUDA_ERROR_TEXT_MAX];
    if (!is_fatal(r))
        return cuda_check(&d->pub, r, what, err);
    struct cuda_dev *sick = is_lost(d, what) ? d : NULL;
    for (size_t i = 0; i < n; i++)
        if (is_lost(others[i], what) && !sick)
            sick = others[i];
    if (sick && cuda_lost(sick, err))
        return sick == d ? err->code : err_add(err, "%s", d->pub.base.name);
    return err_set_at(err, __FILE__, __LINE__, BERTH_EDEVICE, (int)r,
                      "%s: %.*s: %s, of which no card that had part in it knows", d->pub.base.name,
                      name_length(what), what, cuda_error_text(d->pub.api, r, text));
}

void cuda_log_failure(struct cuda_dev *d, CUresult r, const char *what)
{
    berth_err err;
    bool was = atomic_load(&d->pub.lost);
    if (cuda_check(&d->pub, r, what, &err) && !was)
        log_error(d->log, "dev.refused", "dev=%s why=\"%s\"", d->pub.base.name, err.msg);
}

berth_status cuda_current(struct cuda_phys *p, berth_err *err)
{
    if (cuda_lost(cuda_dev(&p->base), err))
        return err->code;
    return CUDA_TRY(p, cuCtxSetCurrent(p->ctx), err);
}

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

static berth_status cuda_stream_open(struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    return CUDA_CALL(p, cuStreamCreate(&stream_of(s)->stream, CU_STREAM_NON_BLOCKING), err);
}

static void cuda_stream_close(struct dev_stream *s)
{
    struct cuda_dev *d = cuda_dev(s->phys);
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    CUDA_LOG_FAILURE(d, cuStreamSynchronize(cuda_stream(s)));
    CUDA_LOG_FAILURE(d, cuStreamDestroy(cuda_stream(s)));
}

berth_status cuda_stream_sync(struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    return CUDA_CALL(p, cuStreamSynchronize(cuda_stream(s)), err);
}

static berth_status cuda_stream_wait(struct dev_stream *s, struct dev_event *e, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(s->phys), *other = cuda_dev(e->phys);
    if (cuda_lost(other, err) || cuda_current(&d->pub, err))
        return err->code;
    CUresult r = d->pub.api->cuStreamWaitEvent(cuda_stream(s), event_of(e)->event, 0);
    return cuda_check_among(d, &other, 1, r, "cuStreamWaitEvent", err);
}

/* ---- events ---- */

static berth_status cuda_event_open(struct dev_event *e, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    return CUDA_CALL(p, cuEventCreate(&event_of(e)->event, CU_EVENT_DEFAULT), err);
}

static void cuda_event_close(struct dev_event *e)
{
    struct cuda_dev *d = cuda_dev(e->phys);
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    CUDA_LOG_FAILURE(d, cuEventDestroy(event_of(e)->event));
}

static berth_status cuda_event_record(struct dev_event *e, struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    return CUDA_CALL(p, cuEventRecord(event_of(e)->event, cuda_stream(s)), err);
}

static berth_status cuda_event_query(struct dev_event *e, bool *done, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    *done = false;
    if (cuda_current(p, err))
        return err->code;
    CUresult r = p->api->cuEventQuery(event_of(e)->event);
    *done = r == CUDA_SUCCESS;
    return r == CUDA_ERROR_NOT_READY ? BERTH_OK : cuda_check(p, r, "cuEventQuery", err);
}

static berth_status cuda_event_sync(struct dev_event *e, berth_err *err)
{
    struct cuda_phys *p = cuda_of(e->phys);
    return CUDA_CALL(p, cuEventSynchronize(event_of(e)->event), err);
}

static berth_status cuda_event_elapsed(struct dev_event *from, struct dev_event *to, bool *done,
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
    return CUDA_CALL(p, cuMemcpyHtoDAsync(dst, src, n, cuda_stream(s)), err);
}

berth_status cuda_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    return CUDA_CALL(p, cuMemcpyDtoHAsync(dst, src, n, cuda_stream(s)), err);
}

static berth_status cuda_copy_d2d(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                                  berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    return CUDA_CALL(p, cuMemcpyDtoDAsync(dst, src, n, cuda_stream(s)), err);
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

static berth_status work_open(struct cuda_dev *d, berth_err *err)
{
    if (phys_stream_new(&d->pub.base, &d->own, err) ||
        CUDA_TRY(&d->pub, cuEventCreate(&d->probe, CU_EVENT_DEFAULT), err))
        return err->code;
    return CUDA_TRY(&d->pub, cuEventRecord(d->probe, cuda_stream(d->own)), err);
}

static void work_close(struct cuda_dev *d)
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

/* ---- life ---- */

static berth_status attribute(struct cuda_phys *p, CUdevice_attribute which, int *out,
                              berth_err *err)
{
    *out = 0;
    return CUDA_TRY(p, cuDeviceGetAttribute(out, which, p->dev), err);
}

static berth_status properties(struct cuda_dev *d, berth_err *err)
{
    struct cuda_phys *p = &d->pub;
    int major, minor, vmm;
    if (CUDA_TRY(p, cuDeviceGetName(p->base.model, (int)sizeof p->base.model - 1, p->dev), err) ||
        attribute(p, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major, err) ||
        attribute(p, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor, err) ||
        attribute(p, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &p->multiprocessors, err) ||
        attribute(p, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &p->threads_per_mp, err) ||
        attribute(p, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &vmm, err))
        return err->code;
    p->sm = major * 10 + minor;
    if (p->multiprocessors > 0 && p->threads_per_mp > 0)
        p->base.threads = (uint32_t)p->multiprocessors * (uint32_t)p->threads_per_mp;
    d->vmm = vmm != 0;
    return BERTH_OK;
}

static berth_status set_up(struct cuda_dev *d, unsigned ordinal, berth_err *err)
{
    struct cuda_phys *p = &d->pub;
    if (CUDA_TRY(p, cuDeviceGet(&p->dev, (int)ordinal), err) || properties(d, err) ||
        CUDA_TRY(p, cuDevicePrimaryCtxRetain(&p->ctx, p->dev), err))
        return err->code;
    d->has_context = true;
    if (cuda_current(p, err) || cuda_mem_open(d, err))
        return err->code;
    return work_open(d, err);
}

static void cuda_close(struct phys *base)
{
    struct cuda_dev *d = base ? cuda_dev(base) : NULL;
    struct cuda_phys *p = base ? cuda_of(base) : NULL;
    if (!d)
        return;
    if (d->has_context)
        CUDA_LOG_FAILURE(d, cuCtxSetCurrent(p->ctx));
    if (p->op_close)
        p->op_close(p->op);
    cuda_peer_close(d);
    work_close(d);
    cuda_mem_close(d);
    if (d->has_context) {
        CUDA_LOG_FAILURE(d, cuCtxSetCurrent(NULL));
        CUDA_LOG_FAILURE(d, cuDevicePrimaryCtxRelease(p->dev));
    }
    for (struct cuda_dev **at = &d->library->open; *at; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static berth_status cuda_open(void *library, const struct dev_env *env, unsigned index,
                              uint64_t total, struct phys **out, berth_err *err)
{
    struct cuda_library *l = library;
    (void)total;
    *out = NULL;
    struct cuda_dev *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, BERTH_ENOMEM, "cuda:%u", index);
    int e = pthread_mutex_init(&d->lock, NULL);
    if (e) {
        free(d);
        return err_sys(err, BERTH_ENOMEM, e, "cuda:%u: a lock", index);
    }
    d->library = l;
    d->log = env->log;
    d->segments.elem = sizeof(struct cuda_segment);
    d->pinned.elem = sizeof(struct cuda_pinned);
    d->peers.elem = sizeof(struct cuda_dev *);
    d->pub.api = &l->api;
    d->pub.card = d->pub.base.model;
    d->pub.base = (struct phys) { .driver = &driver_cuda,
                                  .caps = BERTH_CAP_ASYNC | BERTH_CAP_PINNED,
                                  .align = DEV_ALIGN_MIN,
                                  .granularity = CUDA_GRANULE };
    snprintf(d->pub.base.name, sizeof d->pub.base.name, "cuda:%u", index);
    if (set_up(d, l->ordinal[index], err) || cuda_peer_open(d, err)) {
        cuda_close(&d->pub.base);
        return err->code;
    }
    d->next = l->open;
    l->open = d;
    log_info(d->log, "cuda.open", "dev=%s card=\"%s\" sm=%d driver=%d ordinal=%u vmm=%d peers=%zu",
             d->pub.base.name, d->pub.base.model, d->pub.sm, l->api.driver, l->ordinal[index],
             d->vmm, d->peers.n);
    *out = &d->pub.base;
    return BERTH_OK;
}

const struct dev_driver driver_cuda = {
    .name = "cuda",
    .indexed = true,
    .library_open = cuda_library_open,
    .library_close = cuda_library_close,
    .count = cuda_library_count,
    .why_none = cuda_library_why_none,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .info = cuda_info,
    .discardable = cuda_discardable,
    .discard = cuda_discard,
    .restore = cuda_restore,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .stream_size = sizeof(struct cuda_stream),
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .stream_sync = cuda_stream_sync,
    .stream_wait = cuda_stream_wait,
    .event_size = sizeof(struct cuda_event),
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_sync = cuda_event_sync,
    .event_elapsed = cuda_event_elapsed,
    .copy_h2d = cuda_copy_h2d,
    .copy_d2h = cuda_copy_d2h,
    .copy_d2d = cuda_copy_d2d,
    .can_peer = cuda_can_peer,
    .copy_peer = cuda_copy_peer,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
};
