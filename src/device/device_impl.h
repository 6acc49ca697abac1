/* device_impl: what the files of device/ share and nobody else needs. */
#ifndef DEVICE_DEVICE_IMPL_H
#define DEVICE_DEVICE_IMPL_H

#include "device/device.h"

/* A retirement refers to e: it outlives dev_event_free() until the last release. device.c */
void dev_event_hold(struct dev_event *e);
void dev_event_release(struct dev_event *e);

/* Tries, and as long as that ends in BERTH_ENODEVMEM and d has retired memory, takes some of it
 * back and tries again; first what is done, then what has to be waited for. mem.c */
typedef berth_status dev_try_fn(struct device *d, void *wish, berth_err *err);
berth_status dev_try_hard(struct device *d, dev_try_fn *try, void *wish, berth_err *err);
/* BERTH_ENODEVMEM for n bytes on d: all the numbers, behind them what err said. mem.c */
berth_status dev_no_room(struct device *d, size_t n, berth_err *err);
/* Builds with BERTH_CHECKS stop when dev_check() fails; others do nothing. mem.c */
void dev_debug_check(const struct device *d);

static inline bool dev_host_watched(const struct phys *p)
{
    return p->hub && p->hub->watchers;
}

/* For the watchers of p's set; nothing happens without one. host.c */
void dev_host_touch(const struct phys *p, const void *ptr, size_t n, unsigned how);
void dev_host_note(const struct phys *p, const void *ptr, size_t n, enum dev_host_mark mark);

/* Plain pages, zeroed. n is rounded up by the kernel; (ptr, n) go back together. pages.c */
void *dev_pages_map(size_t n);                /* NULL: errno says why */
void *dev_pages_map_near(void *at, size_t n); /* the same, at `at` if nothing is there */
void dev_pages_unmap(void *ptr, size_t n);
bool dev_pages_discard(void *ptr, size_t n); /* whole pages; zeroed ones come when touched again */
size_t dev_page_size(void);

#endif
