/* device_impl: what the files of device/ share and nobody else needs. */
#pragma once

#include "device/device.h"

#include <pthread.h>

/* Every live byte of one device by owner and kind. Changed by the executor thread; all of it is
 * read and written under `lock`, a leaf, together with the pool's statistics of the same moment, so
 * that whoever looks sees sums that agree. */
struct ledger {
    struct device *device; /* constant; whose it is */
    pthread_mutex_t lock;  /* of everything below and of the lines */
    struct dev_owner *lines;
    struct dev_stats stats; /* the pool's, as of the last change, plus pinned and retired */
};

struct dev_owner { /* one line; lives while it is open or has bytes */
    struct ledger *ledger;
    struct dev_owner *prev, *next;
    enum dev_kind kind;
    unsigned opens;
    uint64_t bytes, requested, count;
    char name[]; /* NUL-terminated */
};

/* As dev_stream_new(), without a device. device.c */
berth_status phys_stream_new(struct phys *p, struct dev_stream **out, berth_err *err);

/* A retirement refers to e: it outlives dev_event_free() until the last release. device.c */
void dev_event_hold(struct dev_event *e);
void dev_event_release(struct dev_event *e);

static inline bool dev_host_watched(const struct phys *p)
{
    return p->hub && p->hub->watchers;
}

/* For the watchers of p's set; nothing happens without one. device.c */
void dev_host_touch(const struct phys *p, const void *ptr, size_t n, unsigned how);
void dev_host_note(const struct phys *p, const void *ptr, size_t n, enum dev_host_mark mark);

/* Plain pages, zeroed. n is rounded up by the kernel; (ptr, n) go back together. device.c */
void *dev_pages_map(size_t n);                /* NULL: errno says why */
void *dev_pages_map_near(void *at, size_t n); /* the same, at `at` if nothing is there */
void dev_pages_unmap(void *ptr, size_t n);
bool dev_pages_discard(void *ptr, size_t n); /* whole pages; zeroed ones come when touched again */
size_t dev_page_size(void);
