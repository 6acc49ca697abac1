/* contract: what driver.h asks of every driver, held against the devices of a set. */
#ifndef UNIT_DEVICE_CONTRACT_H
#define UNIT_DEVICE_CONTRACT_H

#include "base/sz.h"
#include "support/devices.h"

#include <sys/mman.h>
#include <unistd.h>

#define CONTRACT_N ((size_t)100000)

static inline void a_phys_is_sound(struct devset *set)
{
    for (size_t i = 0; i < devset_count(set); i++) {
        struct phys *p = devset_at(set, i)->phys;
        uint64_t total, left, addr[3];
        berth_err err = { 0 };
        assert_non_null(p->driver);
        assert_true(sz_is_pow2(p->align) && p->align >= DEV_ALIGN_MIN);
        assert_true(sz_is_pow2(p->granularity) && p->granularity >= p->align);
        assert_int_equal(!(p->caps & BERTH_CAP_ASYNC), !p->driver->stream_open);
        assert_int_equal(!(p->caps & BERTH_CAP_LAUNCH), !p->driver->launch);
        assert_true(!(p->caps & BERTH_CAP_PINNED) || p->driver->host_alloc);
        assert_true(!(p->caps & BERTH_CAP_PEER) || (p->driver->can_peer && p->driver->copy_peer));
        assert_ok(p->driver->info(p, &total, &left, &err), err);
        assert_true(total > 0 && left <= total);
        for (int k = 0; k < 3; k++) {
            assert_ok(p->driver->alloc(p, p->align, &addr[k], &err), err);
            assert_true(addr[k] && addr[k] % p->granularity == 0);
            for (int j = 0; j < k; j++)
                assert_true(addr[k] >= addr[j] + p->align || addr[j] >= addr[k] + p->align);
        }
        for (int k = 0; k < 3; k++)
            p->driver->free(p, addr[k], p->align);
        size_t huge = (size_t)1 << 60;
        assert_fails(p->driver->alloc(p, huge, &addr[0], &err), err, BERTH_ENODEVMEM, p->name);
        assert_true(addr[0] == 0);
    }
}

static inline bool can_discard(struct phys *p) /* three granules of one allocation */
{
    uint64_t addr, at;
    size_t n = 3 * p->granularity;
    berth_err err = { 0 };
    if (!p->driver->discard || !p->driver->discardable)
        return p->driver->discard;
    assert_ok(p->driver->alloc(p, n, &addr, &err), err);
    at = addr;
    p->driver->discardable(p, &at, &n);
    p->driver->free(p, addr, 3 * p->granularity);
    assert_true(!n || (at == addr && n == 3 * p->granularity));
    return n;
}

/* Memory behind addresses goes and comes back; what is beside it stays. */
static inline void discards_and_restores(struct devset *set)
{
    for (size_t i = 0; i < devset_count(set); i++) {
        struct phys *p = devset_at(set, i)->phys;
        size_t g = p->granularity, total_n = 3 * g;
        unsigned char out[2] = { 0 }, in[2] = { 7, 9 };
        uint64_t addr;
        berth_err err = { 0 };
        if (!can_discard(p))
            continue;
        struct dev_stream *s = stream_of(devset_at(set, i));
        assert_ok(p->driver->alloc(p, total_n, &addr, &err), err);
        for (int k = 0; k < 3; k++)
            assert_ok(dev_copy_h2d(s, addr + (size_t)k * g, in, 2, &err), err);
        assert_ok(dev_stream_sync(s, &err), err);
        assert_true(p->driver->discard(p, addr + g, g));
        if (p->driver->restore)
            assert_ok(p->driver->restore(p, addr + g, g, &err), err);
        for (int k = 0; k < 3; k += 2) {
            assert_ok(dev_copy_d2h(s, out, addr + (size_t)k * g, 2, &err), err);
            assert_ok(dev_stream_sync(s, &err), err);
            assert_memory_equal(in, out, 2);
        }
        assert_ok(dev_copy_h2d(s, addr + g, in, 2, &err), err); /* usable again */
        assert_ok(dev_stream_sync(s, &err), err);
        assert_true(p->driver->discard(p, addr, 2 * g));
        p->driver->free(p, addr, total_n); /* as it is */
        dev_stream_free(s);
    }
}

/* Bytes go h2d, d2d, d2h over two streams and an event, and arrive. */
static inline void bytes_arrive(struct devset *set)
{
    unsigned char *in = malloc(CONTRACT_N), *out = calloc(1, CONTRACT_N);
    assert_true(in && out);
    for (size_t i = 0; i < CONTRACT_N; i++)
        in[i] = (unsigned char)(i * 31 + i / 256);
    for (size_t i = 0; i < devset_count(set); i++) {
        struct device *d = devset_at(set, i);
        struct dev_owner *o = owner_of(d, "m", DEV_STAGING), *po = owner_of(d, "p", DEV_PINNED);
        struct dev_stream *a = stream_of(d), *b = stream_of(d);
        struct dev_event *e = event_of(d);
        struct dev_mem m = alloc_on(d, o, CONTRACT_N), n = alloc_on(d, o, CONTRACT_N);
        struct dev_host h;
        bool done = true;
        berth_err err = { 0 };
        assert_ok(dev_event_query(e, &done, &err), err);
        assert_true(done); /* never recorded */
        assert_ok(dev_host_alloc(d, po, CONTRACT_N, &h, &err), err);
        memcpy(h.ptr, in, CONTRACT_N);
        assert_ok(dev_copy_h2d(a, m.addr, h.ptr, CONTRACT_N, &err), err);
        assert_ok(dev_event_record(e, a, &err), err);
        assert_ok(dev_stream_wait(b, e, &err), err);
        assert_ok(dev_copy(b, (struct dev_at) { d, n.addr }, (struct dev_at) { d, m.addr },
                           CONTRACT_N, &err),
                  err);
        assert_ok(dev_copy_d2h(b, out, n.addr, CONTRACT_N, &err), err);
        assert_ok(dev_event_record(e, b, &err), err);
        assert_ok(dev_event_sync(e, &err), err);
        assert_ok(dev_event_query(e, &done, &err), err);
        assert_true(done);
        struct dev_event *later = event_of(d);
        int64_t ns, back;
        assert_ok(dev_event_record(later, b, &err), err);
        assert_ok(dev_event_sync(later, &err), err);
        assert_ok(dev_event_elapsed(e, later, &done, &ns, &err), err);
        assert_true(done && ns >= 0);
        assert_ok(dev_event_elapsed(later, e, &done, &back, &err), err);
        assert_true(done && back == -ns);
        dev_event_free(later);
        dev_host_access(d, out, CONTRACT_N, DEV_READ);
        assert_memory_equal(in, out, CONTRACT_N);
        memset(out, 0, CONTRACT_N);
        dev_host_free(&h); /* a waits for nothing else: e on b came after all of it */
        dev_retire(&m, e);
        dev_event_free(e);
        assert_ok(dev_poll(d, NULL, &err), err);
        dev_free(&n);
        dev_stream_free(a);
        dev_stream_free(b);
        dev_owner_close(o);
        dev_owner_close(po);
        assert_true(dev_trim(d).idle == 0);
        assert_sound(d);
    }
    free(in);
    free(out);
}

#define CONTRACT_PINS 64

/* Two of them that are neighbours: at[0] lies right before at[1]. */
static inline bool find_neighbours(const struct dev_host *pin, size_t n, size_t at[2])
{
    for (at[0] = 0; at[0] < n; at[0]++)
        for (at[1] = 0; at[1] < n; at[1]++)
            if ((char *)pin[at[0]].ptr + pin[at[0]].held == pin[at[1]].ptr)
                return true;
    return false;
}

/* n bytes at `host` to d's memory and back, waiting for each. */
static inline berth_status there_and_back(struct dev_stream *s, uint64_t addr, char *host, size_t n,
                                          berth_err *err)
{
    if (dev_copy_h2d(s, addr, host, n, err) || dev_stream_sync(s, err))
        return err->code;
    return dev_copy_d2h(s, host, addr, n, err) ? err->code : dev_stream_sync(s, err);
}

/* No copy goes from one pinned allocation into another, nor from one into plain memory or back. */
static inline void copies_stay_in_one_pin(struct devset *set)
{
    for (size_t i = 0; i < devset_count(set); i++) {
        struct device *d = devset_at(set, i);
        struct dev_host pin[CONTRACT_PINS] = { 0 };
        size_t at[2], page = (size_t)sysconf(_SC_PAGESIZE), all = 2 * page;
        berth_err err = { 0 };
        if (dev_can(d, BERTH_CAP_HOST_VISIBLE) || !dev_can(d, BERTH_CAP_PINNED))
            continue;
        struct dev_owner *o = owner_of(d, "m", DEV_STAGING), *po = owner_of(d, "p", DEV_PINNED);
        struct dev_stream *s = stream_of(d);
        struct dev_mem m = alloc_on(d, o, all);
        for (size_t k = 0; k < CONTRACT_PINS; k++)
            assert_ok(dev_host_alloc(d, po, page, &pin[k], &err), err);
        assert_true(find_neighbours(pin, CONTRACT_PINS, at));
        char *low = pin[at[0]].ptr, *high = pin[at[1]].ptr;
        memset(low, 1, page);
        memset(high, 2, page);
        assert_ok(there_and_back(s, m.addr, low, page, &err), err);
        assert_ok(there_and_back(s, m.addr + page, high, page, &err), err);
        for (int plain = 0; plain < 2; plain++) { /* the second time `high` is plain memory */
            assert_fails(dev_copy_h2d(s, m.addr, low, all, &err), err, BERTH_EDEVICE, "");
            assert_fails(dev_copy_h2d(s, m.addr, high - 1, 2, &err), err, BERTH_EDEVICE, "");
            assert_fails(dev_copy_d2h(s, low + 1, m.addr, page, &err), err, BERTH_EDEVICE, "");
            if (plain)
                break;
            dev_host_free(&pin[at[1]]);
            assert_ptr_equal(mmap(high, page, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                             high);
        }
        memset(high, 3, page);
        assert_ok(there_and_back(s, m.addr, high, page, &err), err);
        munmap(high, page);
        for (size_t k = 0; k < CONTRACT_PINS; k++)
            dev_host_free(&pin[k]);
        dev_free(&m);
        dev_stream_free(s);
        dev_owner_close(o);
        dev_owner_close(po);
        assert_sound(d);
    }
}

#endif
