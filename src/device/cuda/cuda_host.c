/* cuda_host: pinned host memory.
 *
 * The driver's own allocator gets and clears its pages on one thread, 1.7 GB/s where copies run at
 * 55: pinning a model would take as long as reading it from a disk. Large pieces therefore are our
 * pages, huge ones where the kernel has some, touched by several threads at once and then
 * registered (measured: 4 GiB in 0.8 s instead of 2.4). What is small, and what a driver will not
 * register, comes from the driver. */
#include "device/cuda/cuda_impl.h"

#include "base/cores.h"

#include <errno.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define OWN_LEAST HUGE_PAGE            /* smaller ones are the driver's */
#define TOUCH_LEAST ((size_t)16 << 20) /* for one thread */
#define TOUCH_THREADS 8                /* beyond that the memory is busy */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* ---- touching ---- */

struct part {
    pthread_t thread;
    bool started;
    char *at;
    size_t n;
    int error; /* errno; 0: every page is there */
};

static void *touch(void *arg)
{
    struct part *p = arg;
    if (!madvise(p->at, p->n, MADV_POPULATE_WRITE))
        return NULL;
    if (errno != EINVAL) { /* no memory, or broken memory: touching it would end the process */
        p->error = errno;
        return NULL;
    }
    for (size_t i = 0, page = dev_page_size(); i < p->n; i += page) /* an older kernel */
        *(volatile char *)(p->at + i) = 0;
    return NULL;
}

static size_t threads_for(size_t n)
{
    size_t useful = n / TOUCH_LEAST < TOUCH_THREADS ? n / TOUCH_LEAST : TOUCH_THREADS;
    if (useful < 2) /* also: does not ask the system for every small piece */
        return 1;
    size_t cores = cores_usable("");
    return useful < cores ? useful : cores;
}

/* 0, or errno. Whoever cannot be started is replaced by the caller. */
static int touch_all(char *at, size_t n)
{
    struct part part[TOUCH_THREADS];
    size_t parts = threads_for(n), each = (n / parts + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    int error = 0;
    for (size_t i = 0; i < parts; i++) {
        size_t from = i * each < n ? i * each : n;
        part[i] = (struct part) { .at = at + from, .n = n - from < each ? n - from : each };
        if (i + 1 == parts)
            part[i].n = n - from;
        part[i].started = i && part[i].n && !pthread_create(&part[i].thread, NULL, touch, &part[i]);
    }
    for (size_t i = 0; i < parts; i++)
        if (!part[i].started && part[i].n)
            touch(&part[i]);
    for (size_t i = 0; i < parts; i++) {
        if (part[i].started)
            pthread_join(part[i].thread, NULL);
        error = error ? error : part[i].error;
    }
    return error;
}

/* ---- pages ---- */

/* n bytes from a multiple of a huge page on. NULL: errno says why. */
static char *map_aligned(size_t n)
{
    char *all = n > SIZE_MAX - HUGE_PAGE ? NULL : dev_pages_map(n + HUGE_PAGE);
    if (!all) {
        errno = ENOMEM;
        return NULL;
    }
    size_t before = -(uintptr_t)all & (HUGE_PAGE - 1), after = HUGE_PAGE - before;
    if (before)
        dev_pages_unmap(all, before);
    if (after)
        dev_pages_unmap(all + before + n, after);
    return all + before;
}

/* A child of fork() would make the next write here go to a copy, and the card read the original. */
static berth_status map_pages(size_t n, void **out, berth_err *err)
{
    char *p = map_aligned(n);
    if (!p)
        return err_sys(err, BERTH_ENOMEM, errno, "mapping pages");
    (void)madvise(p, n, MADV_HUGEPAGE); /* advice: where there are none small ones do */
    (void)madvise(p, n, MADV_DONTFORK);
    int error = touch_all(p, n);
    if (error) {
        dev_pages_unmap(p, n);
        return err_sys(err, BERTH_ENOMEM, error, "getting pages");
    }
    *out = p;
    return BERTH_OK;
}

/* ---- the two ways ---- */

/* *out NULL with BERTH_OK: this driver does not register memory. */
static berth_status own(struct cuda_dev *d, size_t n, void **out, berth_err *err)
{
    void *p = NULL;
    if (map_pages(n, &p, err))
        return err->code;
    if (!CUDA_TRY(&d->pub, cuMemHostRegister(p, n, CU_MEMHOSTREGISTER_PORTABLE), err)) {
        *out = p;
        return BERTH_OK;
    }
    dev_pages_unmap(p, n);
    return err->native == CUDA_ERROR_NOT_SUPPORTED || err->native == CUDA_ERROR_NOT_PERMITTED
               ? BERTH_OK
               : err->code;
}

berth_status cuda_host_alloc(struct phys *p, size_t n, void **out, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(p);
    berth_status s = BERTH_OK;
    *out = NULL;
    if (cuda_current(&d->pub, err))
        return err->code;
    if (!vec_reserve(&d->pinned, d->pinned.n + 1))
        return err_set(err, BERTH_ENOMEM, "%s: a note of pinned memory", p->name);
    if (n >= OWN_LEAST)
        s = own(d, n, out, err);
    bool ours = *out != NULL;
    if (!s && !ours)
        s = CUDA_TRY(&d->pub, cuMemHostAlloc(out, n, CU_MEMHOSTALLOC_PORTABLE), err);
    if (s) {
        *out = NULL;
        if (err->code == BERTH_ENODEVMEM) /* of the host's */
            err->code = BERTH_ENOMEM;
        return err_add(err, "%zu bytes of pinned host memory", n);
    }
    struct cuda_pinned *note = vec_add(&d->pinned);
    if (!note)
        BUG("reserved above");
    *note = (struct cuda_pinned) { .ptr = *out, .ours = ours ? n : 0 };
    return BERTH_OK;
}

void cuda_unpin(struct cuda_dev *d, const struct cuda_pinned *x)
{
    if (!x->ours) {
        CUDA_TELL(d, cuMemFreeHost(x->ptr));
        return;
    }
    CUDA_TELL(d, cuMemHostUnregister(x->ptr));
    dev_pages_unmap(x->ptr, x->ours);
}

void cuda_host_free(struct phys *p, void *ptr, size_t n)
{
    struct cuda_dev *d = cuda_dev(p);
    struct cuda_pinned *all = d->pinned.p;
    size_t i = d->pinned.n;
    while (i && all[i - 1].ptr != ptr)
        i--;
    if (!i || (all[i - 1].ours && all[i - 1].ours != n))
        BUG("%s: %zu bytes at %p were not pinned by it", p->name, n, ptr);
    struct cuda_pinned x = all[i - 1];
    all[i - 1] = all[d->pinned.n - 1];
    vec_pop(&d->pinned);
    cuda_tell(d, d->pub.api->cuCtxSetCurrent(d->pub.ctx), "cuCtxSetCurrent");
    cuda_unpin(d, &x);
}
