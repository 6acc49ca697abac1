/* device: streams, events, copies and launches; what happens when a driver leaves a slot empty;
 * host pages. */
#include "device/device_impl.h"

#include "base/clock.h"

#include <sys/mman.h>
#include <unistd.h>

const struct dev_driver *const *dev_drivers(void)
{
    static const struct dev_driver *const all[] = {
#define DEVICE(x) &driver_##x,
#include "device/devices.def"
#undef DEVICE
        NULL,
    };
    return all;
}

#ifndef BERTH_CUDA_ABSENT
#define BERTH_CUDA_ABSENT "not in this build"
#endif

const struct dev_absent *dev_not_built(void)
{
    static const struct dev_absent all[] = {
#define DEVICE(x)
#define DEVICE_ABSENT(x, why) { #x, why, false },
#include "device/devices.def"
#undef DEVICE
        { NULL, NULL, false },
    };
    return all;
}

/* ---- streams ---- */

berth_status phys_stream_new(struct phys *p, struct dev_stream **out, berth_err *err)
{
    const struct dev_driver *driver = p->driver;
    *out = NULL;
    struct dev_stream *s = calloc(1, driver->stream_size ? driver->stream_size : sizeof *s);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "%s: a stream", p->name);
    s->phys = p;
    if (driver->stream_open && driver->stream_open(s, err)) {
        free(s);
        return err->code;
    }
    s->next = p->streams;
    if (s->next)
        s->next->prev = s;
    p->streams = s;
    *out = s;
    return BERTH_OK;
}

berth_status dev_stream_new(struct device *d, struct dev_stream **out, berth_err *err)
{
    berth_status s = phys_stream_new(d->phys, out, err);
    return s ? err_add(err, "%s", d->name) : BERTH_OK;
}

void dev_stream_free(struct dev_stream *s)
{
    if (!s)
        return;
    if (s->phys->driver->stream_close)
        s->phys->driver->stream_close(s);
    *(s->prev ? &s->prev->next : &s->phys->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    free(s);
}

void dev_stream_hook(struct dev_stream *s, berth_status (*hook)(void *user, berth_err *err),
                     void *user)
{
    s->hook = hook;
    s->hook_user = user;
}

static berth_status hooked(struct dev_stream *s, berth_err *err)
{
    return s->hook ? s->hook(s->hook_user, err) : BERTH_OK;
}

berth_status dev_record_begin(struct dev_stream *s, berth_err *err)
{
    if (!dev_can_record(s))
        return err_set(err, BERTH_EUNSUPPORTED, "%s records no work", s->phys->name);
    return s->phys->driver->record_begin(s, err);
}

bool dev_can_record(const struct dev_stream *s)
{
    return s->phys->driver->record_begin != NULL;
}

berth_status dev_record_end(struct dev_stream *s, struct dev_graph **out, berth_err *err)
{
    return s->phys->driver->record_end(s, out, err);
}

berth_status dev_graph_launch(struct dev_graph *g, struct dev_stream *s, berth_err *err)
{
    return s->phys->driver->graph_launch(g, s, err);
}

void dev_graph_free(struct dev_graph *g)
{
    if (g)
        g->phys->driver->graph_free(g);
}

berth_status dev_stream_sync(struct dev_stream *s, berth_err *err)
{
    if (hooked(s, err))
        return err->code;
    return s->phys->driver->stream_sync ? s->phys->driver->stream_sync(s, err) : BERTH_OK;
}

berth_status dev_stream_wait(struct dev_stream *s, struct dev_event *e, berth_err *err)
{
    if (hooked(s, err))
        return err->code;
    if (s->phys->driver != e->phys->driver)
        return dev_event_sync(e, err);
    return s->phys->driver->stream_wait ? s->phys->driver->stream_wait(s, e, err) : BERTH_OK;
}

/* ---- events ---- */

berth_status dev_event_new(struct device *d, struct dev_event **out, berth_err *err)
{
    struct phys *p = d->phys;
    *out = NULL;
    struct dev_event *e = calloc(1, p->driver->event_size ? p->driver->event_size : sizeof *e);
    if (!e)
        return err_set(err, BERTH_ENOMEM, "%s: an event", d->name);
    e->phys = p;
    if (p->driver->event_open && p->driver->event_open(e, err)) {
        free(e);
        return err_add(err, "%s", d->name);
    }
    e->next = p->events;
    if (e->next)
        e->next->prev = e;
    p->events = e;
    *out = e;
    return BERTH_OK;
}

void dev_event_free(struct dev_event *e)
{
    if (!e)
        return;
    if (e->retiring) {
        e->orphan = true; /* dev_event_release() comes back here */
        return;
    }
    if (e->phys->driver->event_close)
        e->phys->driver->event_close(e);
    *(e->prev ? &e->prev->next : &e->phys->events) = e->next;
    if (e->next)
        e->next->prev = e->prev;
    free(e);
}

void dev_event_hold(struct dev_event *e)
{
    e->retiring++;
}

void dev_event_release(struct dev_event *e)
{
    if (--e->retiring == 0 && e->orphan)
        dev_event_free(e);
}

berth_status dev_event_record(struct dev_event *e, struct dev_stream *s, berth_err *err)
{
    if (e->phys != s->phys)
        BUG("event of %s recorded on a stream of %s", e->phys->name, s->phys->name);
    if (hooked(s, err))
        return err->code;
    const struct dev_driver *driver = s->phys->driver;
    if (driver->event_record && driver->event_record(e, s, err))
        return err->code;
    if (!driver->event_elapsed)
        e->recorded = clock_mono_ns(clock_system());
    return BERTH_OK;
}

berth_status dev_event_query(struct dev_event *e, bool *done, berth_err *err)
{
    *done = true;
    return e->phys->driver->event_query ? e->phys->driver->event_query(e, done, err) : BERTH_OK;
}

berth_status dev_event_sync(struct dev_event *e, berth_err *err)
{
    return e->phys->driver->event_sync ? e->phys->driver->event_sync(e, err) : BERTH_OK;
}

berth_status dev_event_elapsed(struct dev_event *from, struct dev_event *to, bool *done,
                               int64_t *ns, berth_err *err)
{
    bool reached = false;
    *done = false;
    *ns = 0;
    if (from->phys != to->phys)
        BUG("time between events of %s and %s", from->phys->name, to->phys->name);
    if (to->phys->driver->event_elapsed)
        return to->phys->driver->event_elapsed(from, to, done, ns, err);
    if (dev_event_query(from, &reached, err) || dev_event_query(to, done, err))
        return err->code;
    *done &= reached;
    *ns = *done ? (int64_t)(to->recorded - from->recorded) : 0;
    return BERTH_OK;
}

/* ---- what happens to host memory, for those who check it ---- */

void dev_host_touch(const struct phys *p, const void *ptr, size_t n, unsigned how)
{
    const struct dev_hub *hub = p->hub;
    for (size_t i = 0; hub && n && i < hub->watchers; i++)
        if (hub->watcher[i].driver->host_access)
            hub->watcher[i].driver->host_access(hub->watcher[i].library, ptr, n, how);
}

void dev_host_note(const struct phys *p, const void *ptr, size_t n, enum dev_host_mark mark)
{
    const struct dev_hub *hub = p->hub;
    for (size_t i = 0; hub && n && i < hub->watchers; i++)
        if (hub->watcher[i].driver->host_mark)
            hub->watcher[i].driver->host_mark(hub->watcher[i].library, ptr, n, mark);
}

void dev_host_access(struct device *d, const void *ptr, size_t n, unsigned how)
{
    dev_host_touch(d->phys, ptr, n, how);
}

void dev_host_gone(struct phys *p, const void *ptr, size_t n)
{
    dev_host_note(p, ptr, n, DEV_HOST_GONE);
}

/* ---- copies ---- */

static void *host_ptr(uint64_t addr) /* of a host-visible device */
{
    return (void *)(uintptr_t)addr;
}

/* Both ends are host memory when s belongs to a host-visible device, and it is done now. */
static void announce_copy(const struct dev_stream *s, const void *dst, const void *src, size_t n)
{
    if (!(s->phys->caps & BERTH_CAP_HOST_VISIBLE))
        return;
    dev_host_touch(s->phys, src, n, DEV_READ);
    dev_host_touch(s->phys, dst, n, DEV_WRITE);
}

berth_status dev_copy_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                          berth_err *err)
{
    if (!n)
        return BERTH_OK;
    if (hooked(s, err))
        return err->code;
    announce_copy(s, host_ptr(dst), src, n);
    return s->phys->driver->copy_h2d(s, dst, src, n, err);
}

berth_status dev_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err)
{
    if (!n)
        return BERTH_OK;
    if (hooked(s, err))
        return err->code;
    announce_copy(s, dst, host_ptr(src), n);
    return s->phys->driver->copy_d2h(s, dst, src, n, err);
}

bool dev_can_peer(const struct device *to, const struct device *from)
{
    if (to->phys == from->phys)
        return true;
    const struct dev_driver *driver = to->phys->driver;
    return driver == from->phys->driver && driver->can_peer &&
           driver->can_peer(to->phys, from->phys);
}

#define BOUNCE_BYTES ((size_t)8 << 20)

/* One piece at a time through the buffer. s is a stream of either end; the other end gets one for
 * the time of the copy. */
static berth_status bounce(struct dev_stream *s, struct dev_at dst, struct dev_at src, size_t n,
                           const struct dev_host *buf, berth_err *err)
{
    struct dev_stream *other;
    bool from_s = s->phys == src.dev->phys;
    berth_status st = phys_stream_new(from_s ? dst.dev->phys : src.dev->phys, &other, err);
    if (st)
        return st;
    struct dev_stream *in = from_s ? s : other, *out = from_s ? other : s;
    st = dev_stream_sync(s, err);
    for (size_t done = 0, piece; !st && done < n; done += piece) {
        piece = n - done < buf->n ? n - done : buf->n;
        if (dev_copy_d2h(in, buf->ptr, src.addr + done, piece, err) || dev_stream_sync(in, err) ||
            dev_copy_h2d(out, dst.addr + done, buf->ptr, piece, err) || dev_stream_sync(out, err))
            st = err->code;
    }
    dev_stream_free(other); /* waits */
    return st;
}

static berth_status copy_staged(struct dev_stream *s, struct dev_at dst, struct dev_at src,
                                size_t n, berth_err *err)
{
    bool pins = dev_can(dst.dev, BERTH_CAP_PINNED) || !dev_can(src.dev, BERTH_CAP_PINNED);
    struct device *d = pins ? dst.dev : src.dev;
    struct dev_owner *o;
    struct dev_host buf;
    berth_err sync_err;
    if (dev_owner_open(d, "staged copy", DEV_PINNED, &o, err))
        return err->code;
    berth_status st = dev_host_alloc(d, o, n < BOUNCE_BYTES ? n : BOUNCE_BYTES, &buf, err);
    dev_owner_close(o);
    if (st)
        return st;
    st = bounce(s, dst, src, n, &buf, err);
    if (st && dev_stream_sync(s, &sync_err)) /* a copy of ours may be queued on it */
        log_error(d->log, "dev.kept", "dev=%s bytes=%zu why=\"%s\"", d->name, buf.held,
                  sync_err.msg);
    else
        dev_host_free(&buf);
    return st;
}

static berth_status copy_way(struct dev_stream *s, struct dev_at dst, struct dev_at src, size_t n,
                             berth_err *err)
{
    const struct dev_driver *driver = s->phys->driver;
    if (hooked(s, err))
        return err->code;
    if (dst.dev->phys == src.dev->phys) {
        announce_copy(s, host_ptr(dst.addr), host_ptr(src.addr), n);
        return driver->copy_d2d(s, dst.addr, src.addr, n, err);
    }
    if (s->phys == dst.dev->phys && dev_can(src.dev, BERTH_CAP_HOST_VISIBLE))
        return dev_copy_h2d(s, dst.addr, host_ptr(src.addr), n, err);
    if (s->phys == src.dev->phys && dev_can(dst.dev, BERTH_CAP_HOST_VISIBLE))
        return dev_copy_d2h(s, host_ptr(dst.addr), src.addr, n, err);
    if (dev_can_peer(dst.dev, src.dev) && driver->copy_peer)
        return driver->copy_peer(s, dst.dev->phys, dst.addr, src.dev->phys, src.addr, n, err);
    return copy_staged(s, dst, src, n, err);
}

berth_status dev_copy(struct dev_stream *s, struct dev_at dst, struct dev_at src, size_t n,
                      berth_err *err)
{
    if (s->phys != dst.dev->phys && s->phys != src.dev->phys)
        BUG("copy from %s to %s on a stream of %s", src.dev->name, dst.dev->name, s->phys->name);
    if (!n)
        return BERTH_OK;
    berth_status st = copy_way(s, dst, src, n, err);
    return st ? err_add(err, "copying %zu bytes from %s to %s", n, src.dev->name, dst.dev->name)
              : BERTH_OK;
}

berth_status dev_launch(struct dev_stream *s, dev_fn *fn, void *user,
                        const struct dev_access *access, size_t n, berth_err *err)
{
    if (hooked(s, err))
        return err->code;
    if (!s->phys->driver->launch)
        return err_set(err, BERTH_EUNSUPPORTED, "%s does not run host functions", s->phys->name);
    if (n > DEV_LAUNCH_ACCESS_MAX)
        return err_set(err, BERTH_ELIMIT, "%s: %zu declared accesses, at most %d", s->phys->name, n,
                       DEV_LAUNCH_ACCESS_MAX);
    for (size_t i = 0; i < n && s->phys->caps & BERTH_CAP_HOST_VISIBLE; i++)
        dev_host_touch(s->phys, host_ptr(access[i].addr), access[i].n, access[i].how);
    return s->phys->driver->launch(s, fn, user, access, n, err);
}

/* ---- pages: straight from the kernel, so that giving them back really does ---- */

size_t dev_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

void *dev_pages_map(size_t n)
{
    return dev_pages_map_near(NULL, n);
}

void *dev_pages_map_near(void *at, size_t n)
{
    /* NORESERVE: budgets decide what fits, and a 24 GiB null device must not need 24 GiB. */
    void *p =
        mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void dev_pages_unmap(void *ptr, size_t n)
{
    if (ptr && munmap(ptr, n))
        BUG("munmap(%p, %zu)", ptr, n);
}

bool dev_pages_discard(void *ptr, size_t n)
{
    return madvise(ptr, n, MADV_DONTNEED) == 0;
}
