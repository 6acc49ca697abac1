/* cpu: the host's own memory as a device. Segments are anonymous mappings, so that a trim is felt
 * by the OS; everything runs at once in the calling thread, so streams and events need no code
 * here. */
#include "device/cpu/meminfo.h"
#include "device/device_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

struct cpu {
    struct phys base;
    const char *root; /* borrowed from the environment of the set */
};

static struct cpu *cpu_of(struct phys *p)
{
    return (struct cpu *)p;
}

static unsigned cpu_count(void *library)
{
    (void)library;
    return 1;
}

static berth_status cpu_open(void *library, const struct dev_env *env, unsigned index,
                             uint64_t bytes, struct phys **out, berth_err *err)
{
    (void)library, (void)index, (void)bytes;
    *out = NULL;
    struct cpu *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, BERTH_ENOMEM, "cpu");
    c->root = env->root ? env->root : "";
    c->base = (struct phys) { .driver = &driver_cpu,
                              .name = "cpu",
                              .caps = BERTH_CAP_HOST_VISIBLE | BERTH_CAP_LAUNCH,
                              .align = DEV_ALIGN_MIN,
                              .granularity = dev_page_size() };
    *out = &c->base;
    return BERTH_OK;
}

static void cpu_close(struct phys *p)
{
    free(p);
}

static berth_status cpu_info(struct phys *p, uint64_t *total, uint64_t *free_bytes, berth_err *err)
{
    return meminfo_read(cpu_of(p)->root, total, free_bytes, err);
}

static uint64_t cpu_spare(struct phys *p)
{
    return meminfo_spare(cpu_of(p)->root);
}

#define HUGE_PAGE ((size_t)2 << 20)

static berth_status cpu_alloc(struct phys *p, size_t n, uint64_t *addr, berth_err *err)
{
    *addr = 0;
    void *ptr = dev_pages_map(n);
    if (!ptr)
        return err_sys(err, BERTH_ENODEVMEM, errno, "%s: mapping %zu bytes", p->name, n);
    if (n >= HUGE_PAGE)
        (void)madvise(ptr, n, MADV_HUGEPAGE); /* fewer faults and TLB misses; a wish, not a need */
    *addr = (uintptr_t)ptr;
    return BERTH_OK;
}

static void cpu_free(struct phys *p, uint64_t addr, size_t n)
{
    (void)p;
    dev_pages_unmap((void *)(uintptr_t)addr, n);
}

static bool cpu_discard(struct phys *p, uint64_t addr, size_t n)
{
    (void)p;
    return dev_pages_discard((void *)(uintptr_t)addr, n);
}

static berth_status cpu_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                            berth_err *err)
{
    (void)s, (void)err;
    memcpy((void *)(uintptr_t)dst, src, n);
    return BERTH_OK;
}

static berth_status cpu_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err)
{
    (void)s, (void)err;
    memcpy(dst, (const void *)(uintptr_t)src, n);
    return BERTH_OK;
}

static berth_status cpu_d2d(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                            berth_err *err)
{
    return cpu_h2d(s, dst, (const void *)(uintptr_t)src, n, err);
}

static berth_status cpu_launch(struct dev_stream *s, dev_fn *fn, void *user,
                               const struct dev_access *access, size_t n, berth_err *err)
{
    void *ptr[DEV_LAUNCH_ACCESS_MAX];
    (void)s, (void)err;
    for (size_t i = 0; i < n; i++)
        ptr[i] = (void *)(uintptr_t)access[i].addr;
    fn(user, ptr);
    return BERTH_OK;
}

const struct dev_driver driver_cpu = {
    .name = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .info = cpu_info,
    .spare = cpu_spare,
    .discard = cpu_discard,
    .copy_h2d = cpu_h2d,
    .copy_d2h = cpu_d2h,
    .copy_d2d = cpu_d2d,
    .launch = cpu_launch,
};
