/* stub.c: a device as docs/adding.md tells it, with the calls of device/driver.h that are not
 * optional and nothing else. Its addresses are not the host's. */
#include "device/driver.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULE = 4096 };
static const uint64_t FAR = UINT64_C(1) << 60; /* from a pointer to its address */

struct stub {
    struct phys base;
    uint64_t total, used;
};

static void *at(uint64_t addr)
{
    return (void *)(uintptr_t)(addr - FAR);
}

/* Elastic, so none is there by itself: what is counted here is in everybody's default set. */
static unsigned stub_count(void *library)
{
    (void)library;
    return 0;
}

static berth_status stub_open(void *library, const struct dev_env *env, unsigned index,
                              uint64_t total, struct phys **out, berth_err *err)
{
    (void)library, (void)env, (void)index;
    struct stub *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return err_set(err, BERTH_ENOMEM, "stub:0");
    s->base = (struct phys) {
        .driver = &driver_stub, .name = "stub:0", .align = DEV_ALIGN_MIN, .granularity = GRANULE
    };
    s->total = total;
    *out = &s->base;
    return BERTH_OK;
}

static void stub_close(struct phys *p)
{
    free(p);
}

static berth_status stub_alloc(struct phys *p, size_t n, uint64_t *addr, berth_err *err)
{
    struct stub *s = (struct stub *)p;
    size_t whole = (n + GRANULE - 1) / GRANULE * GRANULE;
    void *ptr = whole <= s->total - s->used ? aligned_alloc(GRANULE, whole) : NULL;
    *addr = 0;
    if (!ptr)
        return err_set(err, BERTH_ENODEVMEM, "%s: %zu bytes, %llu of %llu are in use", p->name, n,
                       (unsigned long long)s->used, (unsigned long long)s->total);
    s->used += whole;
    *addr = (uintptr_t)ptr + FAR;
    return BERTH_OK;
}

static void stub_free(struct phys *p, uint64_t addr, size_t n)
{
    ((struct stub *)p)->used -= (n + GRANULE - 1) / GRANULE * GRANULE;
    free(at(addr));
}

static berth_status stub_info(struct phys *p, uint64_t *total, uint64_t *left, berth_err *err)
{
    const struct stub *s = (const struct stub *)p;
    (void)err;
    *total = s->total;
    *left = s->total - s->used;
    return BERTH_OK;
}

static berth_status stub_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                             berth_err *err)
{
    (void)s, (void)err;
    memcpy(at(dst), src, n);
    return BERTH_OK;
}

static berth_status stub_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n,
                             berth_err *err)
{
    (void)s, (void)err;
    memcpy(dst, at(src), n);
    return BERTH_OK;
}

static berth_status stub_d2d(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                             berth_err *err)
{
    return stub_h2d(s, dst, at(src), n, err);
}

const struct dev_driver driver_stub = {
    .name = "stub",
    .indexed = true,
    .elastic = true,
    .count = stub_count,
    .open = stub_open,
    .close = stub_close,
    .alloc = stub_alloc,
    .free = stub_free,
    .info = stub_info,
    .copy_h2d = stub_h2d,
    .copy_d2h = stub_d2h,
    .copy_d2d = stub_d2d,
};
