/* host: host memory for copies, who pays for it, and what happens to host memory, told to the
 * devices of the set that check the order of its users. */
#include "base/sz.h"
#include "device/device_impl.h"
#include "device/ledger.h"
#include "device/pool.h"

#include <errno.h>
#include <inttypes.h>

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

void dev_host_gone(struct device *d, const void *ptr, size_t n)
{
    dev_host_note(d->phys, ptr, n, DEV_HOST_GONE);
}

void dev_stream_host_gone(struct dev_stream *s, const void *ptr, size_t n)
{
    dev_host_note(s->phys, ptr, n, DEV_HOST_GONE);
}

/* ---- memory ---- */

static bool counts(const struct device *payer) /* against its budget */
{
    return dev_can(payer, BERTH_CAP_HOST_VISIBLE);
}

/* Host memory is the host's, whoever asked for it: one ledger, one budget. */
static struct device *payer_of(const struct dev_owner *o)
{
    struct device *d = o->ledger->device;
    const struct dev_hub *hub = d->phys->hub;
    return counts(d) || !hub || !hub->host ? d : hub->host;
}

/* The pool gives up `bytes` of the payer's budget beyond what is pinned now. */
static berth_status reserve_more(struct device *payer, void *bytes, berth_err *err)
{
    uint64_t all;
    if (__builtin_add_overflow(ledger_stats(payer->ledger).pinned, *(size_t *)bytes, &all) ||
        !pool_reserve(payer->pool, all))
        return err_set(err, BERTH_ENODEVMEM, "host memory for copies counts there");
    return BERTH_OK;
}

static void reserve_pinned(struct device *payer) /* after it became less, or did not become more */
{
    if (counts(payer) && !pool_reserve(payer->pool, ledger_stats(payer->ledger).pinned))
        BUG("%s: a smaller reserve does not fit", payer->name);
    ledger_publish(payer->ledger, pool_stats(payer->pool));
    dev_debug_check(payer);
}

static berth_status map(struct phys *p, size_t n, void **out, berth_err *err)
{
    if (p->driver->host_alloc)
        return p->driver->host_alloc(p, n, out, err);
    *out = dev_pages_map(n);
    return *out ? BERTH_OK : err_sys(err, BERTH_ENOMEM, errno, "%zu bytes of host memory", n);
}

/* requested: of n bytes, what the ledger is to say that was asked for. */
static berth_status host_alloc(struct device *d, struct dev_owner *o, size_t n, size_t requested,
                               struct dev_host *out, berth_err *err)
{
    struct device *payer = payer_of(o);
    struct dev_owner *line;
    size_t size;
    void *ptr;
    *out = (struct dev_host) { 0 };
    if (o->kind != DEV_PINNED)
        BUG("owner '%s' of host memory has kind %s", o->name, dev_kind_name(o->kind));
    if (!n || !sz_align(n, dev_page_size(), &size))
        return err_set(err, BERTH_EINVAL, "%s: %zu bytes of host memory", d->name, n);
    if (dev_owner_open(payer, o->name, DEV_PINNED, &line, err))
        return err->code;
    berth_status s = counts(payer) ? dev_try_hard(payer, reserve_more, &size, err) : BERTH_OK;
    if (s == BERTH_ENODEVMEM) {
        ledger_publish(payer->ledger, pool_stats(payer->pool)); /* idle segments may have gone */
        s = dev_no_room(payer, n, err);
    } else if (!s) {
        s = map(d->phys, size, &ptr, err);
    }
    if (s) {
        reserve_pinned(payer);
        dev_owner_close(line);
        return err_add(err, "%s: host memory for '%s'", d->name, o->name);
    }
    ledger_add(line, size, requested, pool_stats(payer->pool));
    *out = (struct dev_host) { .phys = d->phys, .ptr = ptr, .n = n, .held = size, .owner = line };
    dev_debug_check(payer);
    return BERTH_OK;
}

berth_status dev_host_alloc(struct device *d, struct dev_owner *o, size_t n, struct dev_host *out,
                            berth_err *err)
{
    return host_alloc(d, o, n, n, out, err);
}

static void host_free(struct dev_host *h, size_t requested)
{
    struct device *payer = h->owner->ledger->device;
    dev_host_note(h->phys, h->ptr, h->held, DEV_HOST_GONE);
    if (h->phys->driver->host_free)
        h->phys->driver->host_free(h->phys, h->ptr, h->held);
    else
        dev_pages_unmap(h->ptr, h->held);
    ledger_sub(h->owner, h->held, requested, NULL);
    dev_owner_close(h->owner);
    reserve_pinned(payer);
}

/* ---- several in one ---- */

struct dev_pins {
    struct dev_host all;
    size_t used;  /* from its start, by parts, freed or not */
    size_t holds; /* parts, and who opened it */
};

berth_status dev_pins_new(struct device *d, struct dev_owner *o, size_t n, struct dev_pins **out,
                          berth_err *err)
{
    *out = NULL;
    struct dev_pins *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "a note of pinned memory");
    if (host_alloc(d, o, n, 0, &p->all, err)) {
        free(p);
        return err->code;
    }
    p->holds = 1;
    *out = p;
    return BERTH_OK;
}

void dev_pins_close(struct dev_pins *p)
{
    if (!p || --p->holds)
        return;
    host_free(&p->all, 0);
    free(p);
}

void dev_pins_part(struct dev_pins *p, size_t n, struct dev_host *out)
{
    size_t at;
    if (!n || !sz_align(p->used, p->all.phys->align, &at) || at > p->all.n || n > p->all.n - at)
        BUG("%zu more bytes of %zu, of which %zu are used", n, p->all.n, p->used);
    p->used = at + n;
    p->holds++;
    ledger_add(p->all.owner, 0, n, NULL);
    *out = (struct dev_host) { .phys = p->all.phys,
                               .ptr = (char *)p->all.ptr + at,
                               .n = n,
                               .held = n,
                               .owner = p->all.owner,
                               .pins = p };
}

uint64_t dev_host_base(const struct dev_host *h)
{
    return (uintptr_t)(h->pins ? h->pins->all.ptr : h->ptr);
}

void dev_host_free(struct dev_host *h)
{
    if (!h->ptr)
        return;
    if (h->pins) {
        dev_host_note(h->phys, h->ptr, h->n, DEV_HOST_IDLE);
        ledger_sub(h->owner, 0, h->n, NULL);
        dev_pins_close(h->pins);
    } else {
        host_free(h, h->n);
    }
    *h = (struct dev_host) { 0 };
}
