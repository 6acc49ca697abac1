/* cuda_mem: a card's memory, taken apart in granules; pinned host memory.
 *
 * A segment is one reserved range of addresses with pieces mapped behind it. A piece costs three
 * driver calls (create, map, release: the mapping keeps it) and work on page tables, about 45 us on
 * an H200, and it goes back whole or not at all. Pieces of two MiB would be 12,000 for a model of
 * 24 GB and take as long as its copy; one piece per segment could never be trimmed. So:
 *
 *   segments up to MIXED granules, where the pool mixes owners: each granule is a piece
 *   larger ones, which the pool fills with one range, or all but the last ninth: pieces of up to
 *   PIECE_MAX, and small ones in the last ninth (granules in segments of up to 512 MiB)
 *
 * Access is set and memory unmapped with one call for a run of pieces.
 *
 * Cards without virtual memory management (some virtual ones) get plain allocations, which go back
 * when they are wholly idle. */
#include "base/cores.h"
#include "base/sz.h"
#include "device/cuda/cuda_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>

#define MIXED 16     /* granules, as the next one */
#define PIECE_MAX 16 /* of a piece */
#define TAIL 256     /* pieces that all of a segment would be as small ones */

static struct cuda_segment *segment_at(const struct cuda_dev *d, size_t i)
{
    return vec_at(&d->segments, i);
}

static size_t segment_index(const struct cuda_dev *d, uint64_t addr) /* first that lies beyond */
{
    size_t lo = 0, hi = d->segments.n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (segment_at(d, mid)->addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The segment that holds [addr, addr+n). */
static struct cuda_segment *find(const struct cuda_dev *d, uint64_t addr, size_t n)
{
    size_t i = segment_index(d, addr);
    struct cuda_segment *g = i ? segment_at(d, i - 1) : NULL;
    if (!g || addr - g->addr > g->n || n > g->n - (addr - g->addr))
        BUG("%s: [%#" PRIx64 ", +%zu) is no memory of it", d->pub.base.name, addr, n);
    return g;
}

struct run { /* granules of a segment */
    size_t from, to;
};

static struct run run_of(const struct cuda_dev *d, const struct cuda_segment *g, uint64_t addr,
                         size_t n)
{
    size_t size = d->pub.base.granularity;
    if ((addr | n) & (size - 1))
        BUG("%s: [%#" PRIx64 ", +%zu) is not whole granules", d->pub.base.name, addr, n);
    size_t from = (size_t)(addr - g->addr) / size;
    return (struct run) { from, from + n / size };
}

/* ---- pieces ---- */

static CUmemAllocationProp on_card(const struct cuda_dev *d)
{
    return (CUmemAllocationProp) {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->pub.dev },
    };
}

static CUdeviceptr address(const struct cuda_dev *d, const struct cuda_segment *g, size_t granule)
{
    return g->addr + granule * d->pub.base.granularity;
}

/* pre: the run is whole pieces. False: told, and nothing changed. */
static bool unmap(struct cuda_dev *d, struct cuda_segment *g, struct run r)
{
    size_t bytes = (r.to - r.from) * d->pub.base.granularity;
    if (r.from == r.to)
        return true;
    CUresult e = d->pub.api->cuMemUnmap(address(d, g, r.from), bytes);
    cuda_log_failure(d, e, "cuMemUnmap");
    if (e)
        return false;
    memset(g->length + r.from, 0, (r.to - r.from) * sizeof *g->length);
    return true;
}

static berth_status map_piece(struct cuda_dev *d, struct cuda_segment *g, size_t at, size_t n,
                              berth_err *err)
{
    struct cuda_phys *p = &d->pub;
    CUmemAllocationProp prop = on_card(d);
    CUmemGenericAllocationHandle h;
    size_t bytes = n * p->base.granularity;
    if (CUDA_TRY(p, cuMemCreate(&h, bytes, &prop, 0), err))
        return err->code;
    berth_status s = CUDA_TRY(p, cuMemMap(address(d, g, at), bytes, 0, h, 0), err);
    CUDA_LOG_FAILURE(d, cuMemRelease(h));
    if (!s)
        g->length[at] = (uint32_t)n;
    return s;
}

/* Who may touch memory of d: itself and its peers, except for those that are lost. */
static size_t who_may(const struct cuda_dev *d, CUmemAccessDesc desc[CUDA_CARDS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i <= d->peers.n; i++) {
        const struct cuda_dev *who = i ? *(struct cuda_dev **)vec_at(&d->peers, i - 1) : d;
        if (who != d && atomic_load(&who->pub.lost))
            continue;
        desc[n++] = (CUmemAccessDesc) {
            .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = who->pub.dev },
            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
    }
    return n;
}

/* A peer that turns out to be lost here is left out: the memory is ours. */
static berth_status set_access(struct cuda_dev *d, const struct cuda_segment *g, struct run r,
                               berth_err *err)
{
    CUmemAccessDesc desc[CUDA_CARDS_MAX];
    size_t n, left = who_may(d, desc), bytes = (r.to - r.from) * d->pub.base.granularity;
    berth_status s;
    do {
        n = left;
        CUresult e = d->pub.api->cuMemSetAccess(address(d, g, r.from), bytes, desc, n);
        s = cuda_check_among(d, d->peers.p, d->peers.n, e, "cuMemSetAccess", err);
        left = who_may(d, desc);
    } while (s && left < n && !atomic_load(&d->pub.lost));
    return s;
}

/* Granules of the piece that begins with number `at`. */
static size_t piece_at(const struct cuda_segment *g, size_t at)
{
    size_t body = g->granules > MIXED ? g->granules / 9 * 8 + g->granules % 9 * 8 / 9 : 0;
    size_t small = (g->granules + TAIL - 1) / TAIL, most = at < body ? body - at : small;
    return most < PIECE_MAX ? most : PIECE_MAX;
}

/* Memory behind the run. pre: none of it has. A failure leaves it so. */
static berth_status fill(struct cuda_dev *d, struct cuda_segment *g, struct run r, berth_err *err)
{
    size_t at = r.from;
    berth_status s = BERTH_OK;
    while (!s && at < r.to) {
        size_t most = piece_at(g, at), n = r.to - at < most ? r.to - at : most;
        s = map_piece(d, g, at, n, err);
        at += s ? 0 : n;
    }
    if (!s)
        s = set_access(d, g, r, err);
    if (s)
        (void)unmap(d, g, (struct run) { r.from, at });
    return s;
}

berth_status cuda_share(struct cuda_dev *d, berth_err *err)
{
    berth_status s = cuda_current(&d->pub, err);
    for (size_t i = 0; !s && i < d->segments.n; i++) {
        const struct cuda_segment *g = segment_at(d, i);
        for (size_t at = 0; !s && !g->plain && at < g->granules; at++)
            if (g->length[at])
                s = set_access(d, g, (struct run) { at, at + g->length[at] }, err);
    }
    return s;
}

/* ---- segments ---- */

static void segment_release(struct cuda_dev *d, struct cuda_segment *g)
{
    if (g->plain)
        CUDA_LOG_FAILURE(d, cuMemFree(g->plain));
    for (size_t at = 0, to; g->length && at < g->granules; at = to) { /* runs that have memory */
        for (to = at; to < g->granules && g->length[to]; to += g->length[to])
            ;
        (void)unmap(d, g, (struct run) { at, to });
        to += to == at;
    }
    if (g->addr && !g->plain)
        CUDA_LOG_FAILURE(d, cuMemAddressFree(g->addr, g->n));
    free(g->length);
    *g = (struct cuda_segment) { 0 };
}

static berth_status segment_virtual(struct cuda_dev *d, struct cuda_segment *g, berth_err *err)
{
    CUdeviceptr at = 0;
    g->granules = g->n / d->pub.base.granularity;
    g->length = calloc(g->granules, sizeof *g->length);
    if (!g->length)
        return err_set(err, BERTH_ENOMEM, "%s: notes of a segment", d->pub.base.name);
    if (CUDA_TRY(&d->pub, cuMemAddressReserve(&at, g->n, d->pub.base.granularity, 0, 0), err))
        return err->code;
    g->addr = at;
    return fill(d, g, (struct run) { 0, g->granules }, err);
}

/* Large allocations are aligned to granules as it is; where one is not, some is left out. */
static berth_status segment_plain(struct cuda_dev *d, struct cuda_segment *g, berth_err *err)
{
    struct cuda_phys *p = &d->pub;
    size_t mask = p->base.granularity - 1, more;
    if (CUDA_TRY(p, cuMemAlloc(&g->plain, g->n), err))
        return err->code;
    if (g->plain & mask) {
        CUDA_LOG_FAILURE(d, cuMemFree(g->plain));
        g->plain = 0;
        if (!sz_add(g->n, mask, &more))
            return err_set(err, BERTH_ENODEVMEM, "%s: %zu bytes", p->base.name, g->n);
        if (CUDA_TRY(p, cuMemAlloc(&g->plain, more), err))
            return err->code;
    }
    g->addr = (g->plain + mask) & ~(CUdeviceptr)mask;
    return BERTH_OK;
}

/* Asked before anything is taken: of a wish that cannot be met most of the pieces would come, and
 * would have to go again. */
static berth_status has_room(struct cuda_dev *d, size_t n, berth_err *err)
{
    size_t unused = 0, total = 0;
    if (CUDA_TRY(&d->pub, cuMemGetInfo(&unused, &total), err))
        return err->code;
    return n <= unused ? BERTH_OK
                       : err_set(err, BERTH_ENODEVMEM, "%s: %zu bytes wanted, %zu of %zu free",
                                 d->pub.base.name, n, unused, total);
}

berth_status cuda_alloc(struct phys *p, size_t n, uint64_t *addr, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(p);
    struct cuda_segment g = { 0 };
    *addr = 0;
    if (cuda_current(&d->pub, err) || has_room(d, n, err))
        return err->code;
    if (!sz_align(n, p->granularity, &g.n))
        return err_set(err, BERTH_ENODEVMEM, "%s: %zu bytes wanted", p->name, n);
    if (!vec_reserve(&d->segments, d->segments.n + 1))
        return err_set(err, BERTH_ENOMEM, "%s: a segment", p->name);
    if (d->vmm ? segment_virtual(d, &g, err) : segment_plain(d, &g, err)) {
        segment_release(d, &g);
        return err_add(err, "%zu bytes wanted", n);
    }
    size_t i = segment_index(d, g.addr), after = d->segments.n - i;
    if (!vec_add(&d->segments))
        BUG("reserved above");
    struct cuda_segment *at = segment_at(d, i);
    memmove(at + 1, at, after * sizeof *at);
    *at = g;
    *addr = g.addr;
    return BERTH_OK;
}

void cuda_free(struct phys *p, uint64_t addr, size_t n)
{
    struct cuda_dev *d = cuda_dev(p);
    struct cuda_segment *g = find(d, addr, n);
    size_t i = segment_index(d, addr) - 1;
    if (g->addr != addr || g->n - n >= p->granularity)
        BUG("%s: free of [%#" PRIx64 ", +%zu), which is no allocation", p->name, addr, n);
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    segment_release(d, g);
    memmove(g, g + 1, (d->segments.n - i - 1) * sizeof *g);
    vec_pop(&d->segments);
}

/* ---- parts of segments ---- */

static size_t piece_of(const struct cuda_segment *g, size_t granule) /* its first granule */
{
    while (!g->length[granule])
        granule--; /* the first of a segment that has memory here starts a piece */
    return granule;
}

void cuda_discardable(struct phys *p, uint64_t *addr, size_t *n)
{
    struct cuda_dev *d = cuda_dev(p);
    const struct cuda_segment *g = find(d, *addr, *n);
    struct run r = run_of(d, g, *addr, *n);
    if (g->plain || r.from == r.to) {
        *n = 0;
        return;
    }
    size_t first = piece_of(g, r.from), last = piece_of(g, r.to - 1);
    if (first < r.from)
        r.from = first + g->length[first];
    if (last + g->length[last] > r.to)
        r.to = last;
    if (r.to <= r.from) { /* no whole piece */
        *n = 0;
        return;
    }
    *addr = address(d, g, r.from);
    *n = (r.to - r.from) * p->granularity;
}

bool cuda_discard(struct phys *p, uint64_t addr, size_t n)
{
    struct cuda_dev *d = cuda_dev(p);
    struct cuda_segment *g = find(d, addr, n);
    struct run r = run_of(d, g, addr, n);
    berth_err err;
    uint64_t at = addr;
    size_t whole = n;
    cuda_discardable(p, &at, &whole);
    if (at != addr || whole != n || cuda_current(&d->pub, &err))
        return false;
    return unmap(d, g, r);
}

berth_status cuda_restore(struct phys *p, uint64_t addr, size_t n, berth_err *err)
{
    struct cuda_dev *d = cuda_dev(p);
    struct cuda_segment *g = find(d, addr, n);
    if (cuda_current(&d->pub, err) || has_room(d, n, err))
        return err->code;
    return fill(d, g, run_of(d, g, addr, n), err) ? err_add(err, "%zu bytes wanted", n) : BERTH_OK;
}

berth_status cuda_info(struct phys *p, uint64_t *total, uint64_t *free_bytes, berth_err *err)
{
    struct cuda_phys *c = cuda_of(p);
    size_t unused = 0, all = 0;
    CUcontext was;
    if (cuda_lost(cuda_dev(p), err) || CUDA_TRY(c, cuCtxPushCurrent(c->ctx), err))
        return err->code;
    berth_status s = CUDA_TRY(c, cuMemGetInfo(&unused, &all), err);
    (void)c->api->cuCtxPopCurrent(&was);
    *total = all;
    *free_bytes = unused < all ? unused : all;
    return s;
}

/* ---- pinned host memory ----
 *
 * The driver's own allocator gets and clears its pages on one thread, 1.7 GB/s where copies run at
 * 55: pinning a model would take as long as reading it from a disk. Large pieces therefore are our
 * pages, huge ones where the kernel has some, touched by several threads at once and then
 * registered (measured: 4 GiB in 0.8 s instead of 2.4). What is small, and what a driver will not
 * register, comes from the driver. */

#define HUGE_PAGE ((size_t)2 << 20)
#define OWN_LEAST HUGE_PAGE            /* smaller ones are the driver's */
#define TOUCH_LEAST ((size_t)16 << 20) /* for one thread */
#define TOUCH_THREADS 8                /* beyond that the memory is busy */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

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

static void unpin(struct cuda_dev *d, const struct cuda_pinned *x)
{
    if (!x->ours) {
        CUDA_LOG_FAILURE(d, cuMemFreeHost(x->ptr));
        return;
    }
    CUDA_LOG_FAILURE(d, cuMemHostUnregister(x->ptr));
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
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    unpin(d, &x);
}

/* ---- life ---- */

berth_status cuda_mem_open(struct cuda_dev *d, berth_err *err)
{
    CUmemAllocationProp prop = on_card(d);
    size_t least = 0;
    if (!d->vmm)
        return BERTH_OK;
    if (CUDA_TRY(&d->pub,
                 cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 err))
        return err->code;
    if (!least || least & (least - 1))
        d->vmm = false;
    else if (least > CUDA_GRANULE)
        d->pub.base.granularity = least;
    return BERTH_OK;
}

void cuda_mem_close(struct cuda_dev *d)
{
    if (d->segments.n || d->pinned.n)
        log_error(d->log, "dev.leak", "dev=%s segments=%zu pinned=%zu", d->pub.base.name,
                  d->segments.n, d->pinned.n);
    for (size_t i = 0; i < d->segments.n; i++)
        segment_release(d, segment_at(d, i));
    for (size_t i = 0; i < d->pinned.n; i++)
        unpin(d, vec_at(&d->pinned, i));
    vec_release(&d->segments);
    vec_release(&d->pinned);
}
