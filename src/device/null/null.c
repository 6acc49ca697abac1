/* null: the driver of devices that do not exist: invented addresses over host pages. */
#include "device/null/null_impl.h"

#include <errno.h>
#include <inttypes.h>

static const char *call_name(enum null_call call)
{
    static const char *const name[] = {
#define CALL_NAME(id, text) text,
        NULL_CALL_MAP(CALL_NAME)
#undef CALL_NAME
    };
    return name[call];
}

bool null_call_fails(struct null_dev *d, enum null_call call, berth_err *err)
{
    uint64_t n = atomic_fetch_add(&d->calls[call], 1) + 1;
    uint64_t any = atomic_fetch_add(&d->calls[NULL_ANY], 1) + 1;
    if (n != atomic_load(&d->fail_at[call]) && any != atomic_load(&d->fail_at[NULL_ANY]))
        return false;
    berth_status code = call == NULL_ALLOC || call == NULL_RESTORE ? BERTH_ENODEVMEM
                        : call == NULL_HOST_ALLOC                  ? BERTH_ENOMEM
                                                                   : BERTH_EDEVICE;
    err_set(err, code, "%s: %s number %" PRIu64 " was told to fail", d->base.name, call_name(call),
            n);
    return true;
}

/* ---- library ---- */

static berth_status library_open(const struct dev_env *env, void **out, berth_err *err)
{
    *out = NULL;
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, BERTH_ENOMEM, "the null engine");
    w->log = env->log;
    if (env->null)
        w->cfg = *env->null;
    w->rng = w->cfg.seed;
    shadow_init(&w->host);
    w->pins.elem = sizeof(struct interval);
    *out = w;
    return BERTH_OK;
}

static void library_close(void *library)
{
    struct world *w = library;
    if (!w)
        return;
    shadow_release(&w->host);
    vec_release(&w->pins);
    free(w);
}

static unsigned count(void *library)
{
    (void)library;
    return 0;
}

/* ---- life ---- */

static berth_status null_open(void *library, const struct dev_env *env, unsigned index,
                              uint64_t total, struct phys **out, berth_err *err)
{
    struct world *w = library;
    (void)env;
    *out = NULL;
    struct null_dev *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, BERTH_ENOMEM, "null:%u", index);
    snprintf(d->base.name, sizeof d->base.name, "null:%u", index);
    d->base.driver = &driver_null;
    d->base.caps = BERTH_CAP_ASYNC | BERTH_CAP_PINNED | BERTH_CAP_PEER | BERTH_CAP_LAUNCH;
    d->base.align = DEV_ALIGN_MIN;
    d->base.granularity = dev_page_size();
    d->world = w;
    d->total = total ? total : NULL_TOTAL_DEFAULT;
    d->first_addr = (uint64_t)(index + 1) << 48; /* far from host addresses and from each other */
    d->next_addr = d->first_addr;
    d->blocks.elem = sizeof(struct block *);
    atomic_store(&d->fail_at[w->cfg.fail_call], w->cfg.fail_at);
    if (null_call_fails(d, NULL_OPEN, err)) {
        free(d);
        return err->code;
    }
    *out = &d->base;
    return BERTH_OK;
}

static void block_free(struct block *b)
{
    shadow_release(&b->shadow);
    free(b);
}

static void null_close(struct phys *p)
{
    if (!p)
        return;
    struct null_dev *d = null_of(p);
    struct world *w = d->world;
    while (p->streams) {
        const struct null_stream *s = (struct null_stream *)p->streams;
        hazard_report(w, NULL_LEAK, "%s stream %" PRIu64 " was not freed before close", p->name,
                      s->serial);
        dev_stream_free(p->streams);
    }
    while (p->events) {
        hazard_report(w, NULL_LEAK, "an event of %s was not freed before close", p->name);
        dev_event_free(p->events);
    }
    if (d->host_blocks)
        hazard_report(w, NULL_LEAK, "%zu pinned ranges of %s were not freed before close",
                      d->host_blocks, p->name);
    if (d->blocks.n) {
        sim_run(w); /* queued work of other devices may touch them */
        const struct block *b = *(struct block **)vec_at(&d->blocks, 0);
        hazard_report(w, NULL_LEAK,
                      "%zu allocations of %s were not freed before close, the first is [%#" PRIx64
                      ", +%zu)",
                      d->blocks.n, p->name, b->addr, b->n);
    }
    for (size_t i = 0; i < d->blocks.n; i++) {
        struct block *b = *(struct block **)vec_at(&d->blocks, i);
        dev_pages_unmap(b->host, b->n);
        block_free(b);
    }
    vec_release(&d->blocks);
    free(d);
}

/* ---- memory ---- */

static uint64_t left_of(struct null_dev *d)
{
    return d->total - atomic_load(&d->used);
}

static berth_status no_memory(struct null_dev *d, size_t n, berth_err *err)
{
    return err_set(err, BERTH_ENODEVMEM, "%s: %zu bytes wanted, %" PRIu64 " of %" PRIu64 " free",
                   d->base.name, n, left_of(d), d->total);
}

static berth_status null_info(struct phys *p, uint64_t *total, uint64_t *free_bytes, berth_err *err)
{
    struct null_dev *d = null_of(p);
    if (null_call_fails(d, NULL_INFO, err))
        return err->code;
    *total = d->total;
    *free_bytes = left_of(d);
    return BERTH_OK;
}

static size_t block_index(const struct null_dev *d, uint64_t addr) /* first with addr beyond it */
{
    size_t lo = 0, hi = d->blocks.n;
    struct block *const *b = d->blocks.p;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (b[mid]->addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct block *null_block_at(struct null_dev *d, uint64_t addr)
{
    size_t i = block_index(d, addr);
    struct block *b = i ? *(struct block **)vec_at(&d->blocks, i - 1) : NULL;
    return b && addr - b->addr < b->n ? b : NULL;
}

static berth_status null_alloc(struct phys *p, size_t n, uint64_t *addr, berth_err *err)
{
    struct null_dev *d = null_of(p);
    *addr = 0;
    if (null_call_fails(d, NULL_ALLOC, err))
        return err->code;
    if (n > left_of(d))
        return no_memory(d, n, err);
    struct block *b = calloc(1, sizeof *b);
    struct block **slot = b ? vec_add(&d->blocks) : NULL;
    if (!slot) {
        free(b);
        return err_set(err, BERTH_ENOMEM, "%s: a block", p->name);
    }
    b->addr = d->next_addr;
    b->n = n;
    shadow_init(&b->shadow);
    bool noted = shadow_revive(&b->shadow, b->addr, b->addr + n, true);
    b->host = noted ? dev_pages_map(n) : NULL;
    if (!b->host) {
        vec_pop(&d->blocks);
        block_free(b);
        return noted ? err_sys(err, BERTH_ENODEVMEM, errno, "%s: mapping %zu bytes", p->name, n)
                     : err_set(err, BERTH_ENOMEM, "%s: a block's notes", p->name);
    }
    /* A gap: running over the end meets nobody. */
    d->next_addr = (d->next_addr + n + 2 * p->granularity - 1) & ~(uint64_t)(p->granularity - 1);
    *slot = b;
    atomic_fetch_add(&d->used, n);
    *addr = b->addr;
    return BERTH_OK;
}

/* The host gives bytes up. If queued work touches them it is reported, and runs now, which is as
 * good an order as any: the report then is all that happens. */
static void give_up(struct shadow *s, struct actor_op *by, uint64_t lo, uint64_t hi)
{
    shadow_free(s, by, lo, hi);
    if (by->found)
        sim_run(by->world);
}

static void null_free(struct phys *p, uint64_t addr, size_t n)
{
    struct null_dev *d = null_of(p);
    struct block *b = null_block_at(d, addr);
    if (!b || b->addr != addr || b->n != n)
        BUG("%s: free of [%#" PRIx64 ", +%zu), which is no allocation", p->name, addr, n);
    struct actor_op by = host_op(d->world);
    uint64_t handed_out = shadow_live(&b->shadow, addr, addr + n);
    if (b->pooled && handed_out)
        hazard_report(d->world, NULL_LEAK,
                      "%s: segment [%#" PRIx64 ", +%zu) goes back with %" PRIu64
                      " bytes of it handed out",
                      p->name, addr, n, handed_out);
    give_up(&b->shadow, &by, addr, addr + n);
    dev_pages_unmap(b->host, n);
    size_t i = block_index(d, addr) - 1;
    struct block **blocks = d->blocks.p;
    memmove(blocks + i, blocks + i + 1, (d->blocks.n - i - 1) * sizeof *blocks);
    vec_pop(&d->blocks);
    atomic_fetch_sub(&d->used, n - b->discarded);
    block_free(b);
}

static bool null_discard(struct phys *p, uint64_t addr, size_t n)
{
    struct null_dev *d = null_of(p);
    struct block *b = null_block_at(d, addr);
    if (!b || n > b->n - (addr - b->addr) || (addr | n) & (p->granularity - 1))
        BUG("%s: discard of [%#" PRIx64 ", +%zu)", p->name, addr, n);
    if (!dev_pages_discard(b->host + (addr - b->addr), n))
        return false;
    b->discarded += n;
    atomic_fetch_sub(&d->used, n);
    return true;
}

static berth_status null_restore(struct phys *p, uint64_t addr, size_t n, berth_err *err)
{
    struct null_dev *d = null_of(p);
    struct block *b = null_block_at(d, addr);
    if (!b || n > b->discarded)
        BUG("%s: restore of [%#" PRIx64 ", +%zu), which is not discarded", p->name, addr, n);
    if (null_call_fails(d, NULL_RESTORE, err))
        return err->code;
    if (n > left_of(d))
        return no_memory(d, n, err);
    b->discarded -= n;
    atomic_fetch_add(&d->used, n);
    return BERTH_OK;
}

static void null_mark(struct phys *p, uint64_t addr, size_t n, bool live)
{
    struct null_dev *d = null_of(p);
    struct block *b = null_block_at(d, addr);
    if (!b || n > b->n - (addr - b->addr))
        BUG("%s: mark of [%#" PRIx64 ", +%zu), which is not allocated", p->name, addr, n);
    bool whole = !live && addr == b->addr && n == b->n; /* a new segment: nothing handed out yet */
    bool noted;
    if (live) {
        noted = shadow_revive(&b->shadow, addr, addr + n, true);
    } else {
        struct actor_op by = host_op(d->world);
        give_up(&b->shadow, &by, addr, addr + n);
        noted = shadow_kill(&b->shadow, addr, addr + n);
    }
    b->pooled = noted && (b->pooled || whole);
}

/* ---- pinned memory ----
 * One lies right behind another, as a driver of cards has it, and as there no copy may go from one
 * into the other. */

/* Where the next one would be the last one's neighbour; the first begins in a large hole. */
static void *behind_the_last(const struct world *w)
{
    const size_t hole = (size_t)1 << 30;
    const struct interval *last = w->pins.n ? vec_at(&w->pins, w->pins.n - 1) : NULL;
    void *at = last ? NULL : dev_pages_map(hole);
    if (at)
        dev_pages_unmap(at, hole);
    return last ? (void *)(uintptr_t)last->hi : at;
}

bool null_leaves_pin(const struct world *w, uint64_t lo, uint64_t hi)
{
    for (size_t i = 0; i < w->pins.n; i++) {
        const struct interval *pin = vec_at(&w->pins, i);
        if (lo < pin->hi && pin->lo < hi && !(pin->lo <= lo && hi <= pin->hi))
            return true;
    }
    return false;
}

static berth_status null_host_alloc(struct phys *p, size_t n, void **out, berth_err *err)
{
    struct world *w = null_of(p)->world;
    *out = NULL;
    if (null_call_fails(null_of(p), NULL_HOST_ALLOC, err))
        return err->code;
    void *near = behind_the_last(w);
    struct interval *pin = vec_add(&w->pins);
    if (!pin)
        return err_set(err, BERTH_ENOMEM, "%s: a note of pinned memory", p->name);
    *out = dev_pages_map_near(near, n);
    if (!*out) {
        vec_pop(&w->pins);
        return err_sys(err, BERTH_ENOMEM, errno, "%s: mapping %zu host bytes", p->name, n);
    }
    *pin = (struct interval) { (uintptr_t)*out, (uintptr_t)*out + n };
    null_of(p)->host_blocks++;
    return BERTH_OK;
}

static void null_host_free(struct phys *p, void *ptr, size_t n)
{
    struct vec *pins = &null_of(p)->world->pins;
    struct interval *pin = pins->p;
    size_t i = 0;
    while (i < pins->n && pin[i].lo != (uintptr_t)ptr)
        i++;
    if (i == pins->n || pin[i].hi - pin[i].lo != n)
        BUG("%s: %zu bytes at %p were not pinned by it", p->name, n, ptr);
    memmove(pin + i, pin + i + 1, (pins->n - i - 1) * sizeof *pin);
    vec_pop(pins);
    dev_pages_unmap(ptr, n); /* who still uses it was asked by host_mark() */
    null_of(p)->host_blocks--;
}

static void null_host_access(void *library, const void *ptr, size_t n, unsigned how)
{
    struct world *w = library;
    struct actor_op by = host_op(w);
    shadow_check(&w->host, &by, (uintptr_t)ptr, (uintptr_t)ptr + n, how);
    /* Not recorded: all that is queued later comes after what the host did before. */
}

/* Contents are not watched here: the host writes through pointers and need not say so. */
static void null_host_mark(void *library, const void *ptr, size_t n, enum dev_host_mark mark)
{
    struct world *w = library;
    uint64_t lo = (uintptr_t)ptr, hi = lo + n;
    struct actor_op by = host_op(w);
    if (mark != DEV_HOST_LIVE)
        give_up(&w->host, &by, lo, hi);
    if (mark == DEV_HOST_IDLE)
        (void)shadow_kill(&w->host, lo, hi);
    else
        (void)shadow_revive(&w->host, lo, hi, false); /* GONE: anybody's, the OS may reuse it */
}

static bool null_can_peer(const struct phys *to, const struct phys *from)
{
    return ((const struct null_dev *)to)->world == ((const struct null_dev *)from)->world;
}

const struct dev_driver driver_null = {
    .name = "null",
    .indexed = true,
    .elastic = true,
    .library_open = library_open,
    .library_close = library_close,
    .count = count,
    .open = null_open,
    .close = null_close,
    .alloc = null_alloc,
    .free = null_free,
    .info = null_info,
    .discard = null_discard,
    .restore = null_restore,
    .mark = null_mark,
    .host_alloc = null_host_alloc,
    .host_free = null_host_free,
    .host_access = null_host_access,
    .host_mark = null_host_mark,
    .stream_size = sizeof(struct null_stream),
    .stream_open = null_stream_open,
    .stream_close = null_stream_close,
    .stream_sync = null_stream_sync,
    .stream_wait = null_stream_wait,
    .event_size = sizeof(struct null_event),
    .event_open = null_event_open,
    .event_close = null_event_close,
    .event_record = null_event_record,
    .event_query = null_event_query,
    .event_sync = null_event_sync,
    .event_elapsed = null_event_elapsed,
    .copy_h2d = null_copy_h2d,
    .copy_d2h = null_copy_d2h,
    .copy_d2d = null_copy_d2d,
    .can_peer = null_can_peer,
    .copy_peer = null_copy_peer,
    .launch = null_launch,
};
