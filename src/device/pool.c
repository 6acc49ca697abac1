#include "device/pool.h"

#include "base/sz.h"
#include "device/device_impl.h"

#include <inttypes.h>

#define SL_BITS 5 /* bins per power of two, as a power of two */
#define SL_COUNT (1u << SL_BITS)
#define FL_COUNT 53   /* sizes below 2^64 in units of at least 2^8 bytes, see bin_of() */
#define LOOK 16       /* ranges of the size's own bin that are looked at before a fuller bin */
#define CHUNK 64      /* tags per allocation of host memory */
#define TAGS_NEEDED 2 /* one take uses at most: the new segment's range and the rest of a split */

static const struct {
    size_t max;     /* largest range of the class */
    size_t segment; /* 0: the size itself */
} classes[] = {
    { (size_t)1 << 20, (size_t)2 << 20 },
    { (size_t)16 << 20, (size_t)32 << 20 },
    { SIZE_MAX, 0 },
};
#define CLASS_COUNT ARRAY_LEN(classes)
#define SNUG 8 /* of a large range at most 1/SNUG is left over when it is reused */

struct pool_segment {
    struct pool_segment *prev, *next;
    uint64_t addr;
    size_t n;
    size_t busy; /* ranges; 0: one idle range covers the segment */
    unsigned class;
    struct pool_range *first;
    uint64_t *gone; /* bit i: granule i was discarded; NULL: none ever was */
    size_t gone_n;  /* bits set */
};

struct bins {
    uint64_t fl; /* bit f: some bin of row f has ranges */
    uint32_t sl[FL_COUNT];
    struct pool_range *head[FL_COUNT][SL_COUNT];
};

struct tags {
    struct tags *next;
    struct pool_range range[CHUNK];
};

struct pool {
    struct phys *phys;
    uint64_t budget, reserved;
    bool stress;
    unsigned shift; /* log2 of the alignment, the unit of bin sizes */
    struct pool_segment *segments;
    struct tags *tags;
    struct pool_range *spare; /* unused tags, by bin_next */
    size_t spares;
    struct dev_stats stats;
    struct bins bins[CLASS_COUNT];
};

/* ---- tags ---- */

static bool tags_reserve(struct pool *p)
{
    if (p->spares >= TAGS_NEEDED)
        return true;
    struct tags *t = calloc(1, sizeof *t);
    if (!t)
        return false;
    t->next = p->tags;
    p->tags = t;
    for (size_t i = 0; i < CHUNK; i++) {
        t->range[i].bin_next = p->spare;
        p->spare = &t->range[i];
    }
    p->spares += CHUNK;
    return true;
}

static struct pool_range *tag_take(struct pool *p) /* pre: tags_reserve() */
{
    struct pool_range *r = p->spare;
    p->spare = r->bin_next;
    p->spares--;
    *r = (struct pool_range) { 0 };
    p->stats.ranges++;
    return r;
}

static void tag_give(struct pool *p, struct pool_range *r)
{
    *r = (struct pool_range) { .bin_next = p->spare };
    p->spare = r;
    p->spares++;
    p->stats.ranges--;
}

/* ---- bins ---- */

/* Row 0 holds sizes of 1..31 units one by one; row f >= 1 splits [2^(f+4), 2^(f+5)) into 32. */
static void bin_of(const struct pool *p, size_t n, unsigned *fl, unsigned *sl)
{
    uint64_t units = n >> p->shift;
    if (units < SL_COUNT) {
        *fl = 0;
        *sl = (unsigned)units;
        return;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(units);
    *fl = top - SL_BITS + 1;
    *sl = (unsigned)(units >> (top - SL_BITS)) & (SL_COUNT - 1);
}

/* Both count all of r as idle; discarded parts of it are taken out by whoever discards, and for a
 * moment `idle` may wrap around below zero while r is in no bin. */
static void bin_add(struct pool *p, struct pool_range *r)
{
    unsigned fl, sl;
    struct bins *b = &p->bins[r->segment->class];
    bin_of(p, r->n, &fl, &sl);
    r->bin_prev = NULL;
    r->bin_next = b->head[fl][sl];
    if (r->bin_next)
        r->bin_next->bin_prev = r;
    b->head[fl][sl] = r;
    b->fl |= UINT64_C(1) << fl;
    b->sl[fl] |= UINT32_C(1) << sl;
    p->stats.idle += r->n;
}

static void bin_del(struct pool *p, struct pool_range *r)
{
    unsigned fl, sl;
    struct bins *b = &p->bins[r->segment->class];
    bin_of(p, r->n, &fl, &sl);
    *(r->bin_prev ? &r->bin_prev->bin_next : &b->head[fl][sl]) = r->bin_next;
    if (r->bin_next)
        r->bin_next->bin_prev = r->bin_prev;
    if (!b->head[fl][sl]) {
        b->sl[fl] &= ~(UINT32_C(1) << sl);
        if (!b->sl[fl])
            b->fl &= ~(UINT64_C(1) << fl);
    }
    r->bin_prev = r->bin_next = NULL;
    p->stats.idle -= r->n;
}

/* The smallest of the first `look` ranges of the size's own bin that are large enough, else any
 * range of the next fuller bin: there everything is. */
static struct pool_range *bins_find(const struct pool *p, unsigned class, size_t n, size_t look)
{
    unsigned fl, sl;
    const struct bins *b = &p->bins[class];
    struct pool_range *best = NULL;
    bin_of(p, n, &fl, &sl);
    for (struct pool_range *r = b->head[fl][sl]; r && look; r = r->bin_next, look--) {
        if (r->n == n)
            return r;
        if (r->n > n && (!best || r->n < best->n))
            best = r;
    }
    if (best)
        return best;
    uint32_t in_row = sl + 1 < SL_COUNT ? b->sl[fl] & (UINT32_MAX << (sl + 1)) : 0;
    if (!in_row) {
        uint64_t rows = b->fl & (UINT64_MAX << (fl + 1));
        if (!rows)
            return NULL;
        fl = (unsigned)__builtin_ctzll(rows);
        in_row = b->sl[fl];
    }
    return b->head[fl][__builtin_ctz(in_row)];
}

/* ---- segments ---- */

static uint64_t held(const struct pool *p)
{
    return p->stats.in_use + p->stats.idle;
}

static uint64_t room(const struct pool *p)
{
    return p->budget - p->reserved - held(p);
}

static void mark(struct pool *p, uint64_t addr, size_t n, bool live)
{
    if (p->phys->driver->mark)
        p->phys->driver->mark(p->phys, addr, n, live);
    if (p->phys->caps & BERTH_CAP_HOST_VISIBLE && dev_host_watched(p->phys))
        dev_host_note(p->phys, (const void *)(uintptr_t)addr, n,
                      live ? DEV_HOST_LIVE : DEV_HOST_IDLE);
}

static void driver_free(struct pool *p, uint64_t addr, size_t n)
{
    if (p->phys->caps & BERTH_CAP_HOST_VISIBLE)
        dev_host_note(p->phys, (const void *)(uintptr_t)addr, n, DEV_HOST_GONE);
    p->phys->driver->free(p->phys, addr, n);
}

static void note_held(struct pool *p) /* it may have grown */
{
    if (held(p) > p->stats.peak_held)
        p->stats.peak_held = held(p);
}

/* A new segment of n bytes as one idle range. pre: n <= room, tags_reserve(). */
static berth_status segment_new(struct pool *p, unsigned class, size_t n, struct pool_range **out,
                                berth_err *err)
{
    struct pool_segment *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(err, BERTH_ENOMEM, "a pool segment's tag");
    p->stats.driver_allocs++;
    berth_status s = p->phys->driver->alloc(p->phys, n, &g->addr, err);
    if (s) {
        p->stats.driver_refusals++;
        free(g);
        return s;
    }
    mark(p, g->addr, n, false);
    struct pool_range *r = tag_take(p);
    r->segment = g;
    r->addr = g->addr;
    r->n = n;
    g->n = n;
    g->class = class;
    g->first = r;
    g->next = p->segments;
    if (g->next)
        g->next->prev = g;
    p->segments = g;
    p->stats.segments++;
    bin_add(p, r);
    note_held(p);
    *out = r;
    return BERTH_OK;
}

static uint64_t segment_held(const struct pool *p, const struct pool_segment *g)
{
    return g->n - (uint64_t)g->gone_n * p->phys->granularity;
}

static void segment_free(struct pool *p, struct pool_segment *g) /* pre: wholly idle */
{
    uint64_t discarded = g->n - segment_held(p, g);
    bin_del(p, g->first);
    p->stats.idle += discarded;
    p->stats.discarded -= discarded;
    tag_give(p, g->first);
    driver_free(p, g->addr, g->n);
    p->stats.driver_frees++;
    p->stats.segments--;
    *(g->prev ? &g->prev->next : &p->segments) = g->next;
    if (g->next)
        g->next->prev = g->prev;
    free(g->gone);
    free(g);
}

/* Gives wholly idle segments back until `want` bytes went or none is left: each time the smallest
 * that is enough, else the largest, so that few driver calls do and the cache keeps the rest. */
static uint64_t release_idle(struct pool *p, uint64_t want)
{
    uint64_t gone = 0;
    while (gone < want) {
        struct pool_segment *pick = NULL;
        uint64_t pick_n = 0;
        for (struct pool_segment *g = p->segments; g; g = g->next) {
            uint64_t n = segment_held(p, g);
            if (g->busy)
                continue;
            bool enough = n >= want - gone, pick_enough = pick_n >= want - gone;
            if (!pick || (enough && !pick_enough) ||
                (enough == pick_enough && (enough ? n < pick_n : n > pick_n))) {
                pick = g;
                pick_n = n;
            }
        }
        if (!pick)
            break;
        gone += pick_n;
        segment_free(p, pick);
    }
    return gone;
}

/* Tries the class's usual segment size, then what the range itself needs. pre: n <= room. */
static berth_status grow(struct pool *p, unsigned class, size_t n, struct pool_range **out,
                         berth_err *err)
{
    size_t least, usual = classes[class].segment;
    if (!sz_align(n, p->phys->granularity, &least) || least > room(p))
        least = n; /* the driver may waste some; the budget is exact */
    if (usual < least)
        usual = least;
    if (usual > room(p))
        usual = (size_t)room(p) & ~(p->phys->align - 1);
    berth_status s = segment_new(p, class, usual, out, err);
    if (s == BERTH_ENODEVMEM && usual > least)
        s = segment_new(p, class, least, out, err);
    return s;
}

static berth_status over_budget(const struct pool *p, uint64_t n, berth_err *err)
{
    return err_set(err, BERTH_ENODEVMEM, "the budget leaves %" PRIu64 " of %" PRIu64, room(p), n);
}

static berth_status grow_if_allowed(struct pool *p, unsigned class, size_t n,
                                    struct pool_range **out, berth_err *err)
{
    return n <= room(p) ? grow(p, class, n, out, err) : over_budget(p, n, err);
}

/* An idle range of at least n bytes in a segment that did not exist before, making room for it by
 * giving idle segments back: first what is missing, then everything. */
static berth_status grow_or_make_room(struct pool *p, unsigned class, size_t n,
                                      struct pool_range **out, berth_err *err)
{
    berth_status s = BERTH_ENODEVMEM;
    if (p->stress)
        err_set(err, s, "stress: every first try fails");
    else
        s = grow_if_allowed(p, class, n, out, err);
    for (int all = 0; s == BERTH_ENODEVMEM && all < 2; all++) {
        uint64_t want = all ? UINT64_MAX : n <= room(p) ? n : n - room(p);
        if (!release_idle(p, want) && !(p->stress && !all))
            continue;
        s = grow_if_allowed(p, class, n, out, err);
    }
    return s;
}

/* ---- discarding ----
 * In granules of the driver, counted from the segment's start. A discarded one lies inside one idle
 * range: it went while it was idle, and comes back before any byte of it is handed out. */

struct granules {
    size_t from, to;
};

static struct granules granules_inside(const struct pool *p, const struct pool_range *r)
{
    uint64_t at = r->addr - r->segment->addr, size = p->phys->granularity;
    struct granules i = { (size_t)((at + size - 1) / size), (size_t)((at + r->n) / size) };
    return i.from < i.to ? i : (struct granules) { 0, 0 };
}

/* Those that the first n bytes of r touch. */
static struct granules granules_touched(const struct pool *p, const struct pool_range *r, size_t n)
{
    uint64_t at = r->addr - r->segment->addr, size = p->phys->granularity;
    return (struct granules) { (size_t)(at / size), (size_t)((at + n + size - 1) / size) };
}

static bool is_gone(const struct pool_segment *g, size_t i)
{
    return g->gone && g->gone[i / 64] >> (i % 64) & 1;
}

/* The next run of granules of i that are gone, or not; i then starts behind it. False: none. */
static bool next_run(const struct pool_segment *g, struct granules *i, bool gone,
                     struct granules *run)
{
    while (i->from < i->to && is_gone(g, i->from) != gone)
        i->from++;
    run->from = i->from;
    while (i->from < i->to && is_gone(g, i->from) == gone)
        i->from++;
    run->to = i->from;
    return run->from < run->to;
}

static size_t count_gone(const struct pool_segment *g, struct granules i)
{
    size_t n = 0;
    for (struct granules run; g->gone_n && next_run(g, &i, true, &run);)
        n += run.to - run.from;
    return n;
}

/* The run came back, or went. */
static void flip(struct pool *p, struct pool_segment *g, struct granules run)
{
    uint64_t bytes = (uint64_t)(run.to - run.from) * p->phys->granularity;
    bool back = is_gone(g, run.from);
    for (size_t i = run.from; i < run.to; i++)
        g->gone[i / 64] ^= UINT64_C(1) << (i % 64);
    g->gone_n += back ? run.from - run.to : run.to - run.from;
    p->stats.idle += back ? bytes : 0 - bytes;
    p->stats.discarded += back ? 0 - bytes : bytes;
    note_held(p);
}

/* Bytes of the run that the driver would take back, from *addr on. */
static size_t discardable(const struct pool *p, const struct pool_segment *g, struct granules run,
                          uint64_t *addr)
{
    size_t n = (run.to - run.from) * p->phys->granularity;
    *addr = g->addr + run.from * p->phys->granularity;
    if (p->phys->driver->discardable)
        p->phys->driver->discardable(p->phys, addr, &n);
    return n;
}

/* What can go of one idle range. Without host memory to note it, it stays. */
static uint64_t discard_range(struct pool *p, struct pool_range *r)
{
    struct pool_segment *g = r->segment;
    const struct phys *ph = p->phys;
    struct granules i = granules_inside(p, r), run;
    uint64_t gone = 0;
    if (i.from == i.to)
        return 0;
    if (!g->gone)
        g->gone = calloc(g->n / ph->granularity / 64 + 1, sizeof *g->gone);
    while (g->gone && next_run(g, &i, false, &run)) {
        uint64_t addr;
        size_t n = discardable(p, g, run, &addr);
        if (!n || !ph->driver->discard(p->phys, addr, n))
            continue;
        run.from = (size_t)(addr - g->addr) / ph->granularity;
        run.to = run.from + n / ph->granularity;
        flip(p, g, run);
        gone += n;
    }
    return gone;
}

/* From idle ranges of segments that are partly in use, until `want` bytes went. */
static uint64_t discard_idle(struct pool *p, uint64_t want)
{
    uint64_t gone = 0;
    if (!p->phys->driver->discard)
        return 0;
    for (struct pool_segment *g = p->segments; g && gone < want; g = g->next)
        for (struct pool_range *r = g->first; r && gone < want; r = r->next)
            gone += r->busy ? 0 : discard_range(p, r);
    return gone;
}

/* Brings back what the first n bytes of the idle range need, within the budget. */
static berth_status restore(struct pool *p, struct pool_range *r, size_t n, berth_err *err)
{
    struct pool_segment *g = r->segment;
    const struct phys *ph = p->phys;
    if (!g->gone_n)
        return BERTH_OK;
    struct granules i = granules_touched(p, r, n), run;
    uint64_t need = (uint64_t)count_gone(g, i) * ph->granularity;
    if (need > room(p))
        return over_budget(p, need, err);
    while (need && next_run(g, &i, true, &run)) {
        uint64_t addr = g->addr + run.from * ph->granularity;
        size_t bytes = (run.to - run.from) * ph->granularity;
        if (ph->driver->restore && ph->driver->restore(p->phys, addr, bytes, err))
            return err->code;
        flip(p, g, run);
    }
    return BERTH_OK;
}

size_t pool_largest_idle(const struct pool *p)
{
    size_t largest = 0;
    for (const struct pool_segment *g = p->segments; g; g = g->next)
        for (const struct pool_range *r = g->first; r; r = r->next) {
            size_t gone =
                r->busy ? r->n : count_gone(g, granules_inside(p, r)) * p->phys->granularity;
            largest = r->n - gone > largest ? r->n - gone : largest;
        }
    return largest;
}

/* ---- take and give ---- */

static void split(struct pool *p, struct pool_range *r, size_t n) /* r: not in a bin */
{
    if (r->n == n)
        return;
    struct pool_range *rest = tag_take(p);
    rest->segment = r->segment;
    rest->addr = r->addr + n;
    rest->n = r->n - n;
    rest->prev = r;
    rest->next = r->next;
    if (rest->next)
        rest->next->prev = rest;
    r->next = rest;
    r->n = n;
    bin_add(p, rest);
}

static void make_busy(struct pool *p, struct pool_range *r, size_t n, size_t requested)
{
    bin_del(p, r);
    split(p, r, n);
    r->busy = true;
    r->requested = requested;
    r->segment->busy++;
    p->stats.in_use += n;
    p->stats.requested += requested;
    p->stats.allocs++;
    if (p->stats.in_use > p->stats.peak)
        p->stats.peak = p->stats.in_use;
    mark(p, r->addr, n, true);
}

/* An idle range of the class whose first n bytes are there; NULL: none, or they cannot be brought
 * back now. Unless `any` will do, a much larger one stays whole: else a small piece of it would
 * keep the segment from going back as long as it lives. */
static struct pool_range *idle_range(struct pool *p, unsigned class, size_t n, size_t look,
                                     bool any, berth_err *err)
{
    struct pool_range *r = bins_find(p, class, n, look);
    if (!r || (!any && !classes[class].segment && r->n - n > n / SNUG))
        return NULL;
    return restore(p, r, n, err) ? NULL : r;
}

static struct pool_range *any_idle_range(struct pool *p, size_t n, berth_err *err)
{
    struct pool_range *r = NULL;
    for (unsigned c = 0; !r && c < CLASS_COUNT; c++)
        r = idle_range(p, c, n, SIZE_MAX, true, err);
    return r;
}

/* None of the idle ranges was right. A new segment, if need be at the expense of idle ones; else
 * whatever is large enough; else a new segment at the expense of all that is idle anywhere. */
static berth_status take_hard(struct pool *p, unsigned class, size_t n, struct pool_range **out,
                              berth_err *err)
{
    /* A range is there but too large: such ones must not pile up beyond what is in use. */
    if (p->stats.idle > p->stats.in_use && bins_find(p, class, n, LOOK)) {
        uint64_t over = p->stats.idle - p->stats.in_use;
        release_idle(p, over < n ? over : n);
    }
    berth_status s = grow_or_make_room(p, class, n, out, err);
    if (s != BERTH_ENODEVMEM)
        return s;
    berth_err ignored; /* what stood in the way of a new segment says more */
    *out = any_idle_range(p, n, &ignored);
    if (!*out && discard_idle(p, UINT64_MAX)) {
        s = grow_if_allowed(p, class, n, out, err);
        if (s == BERTH_ENODEVMEM)
            *out = any_idle_range(p, n, &ignored);
    }
    return *out ? BERTH_OK : s;
}

berth_status pool_take(struct pool *p, size_t requested, struct pool_range **out, berth_err *err)
{
    size_t n;
    *out = NULL;
    if (!requested)
        return err_set(err, BERTH_EINVAL, "zero bytes wanted");
    /* What can never fit is refused before anything idle is given up for it. */
    if (!sz_align(requested, p->phys->align, &n) || n > p->budget - p->reserved - p->stats.in_use)
        return over_budget(p, requested, err);
    if (!tags_reserve(p))
        return err_set(err, BERTH_ENOMEM, "pool tags");
    unsigned class = 0;
    while (n > classes[class].max)
        class ++;

    uint64_t discarded = p->stats.discarded;
    berth_err ignored;
    struct pool_range *r = idle_range(p, class, n, LOOK, false, &ignored);
    p->stats.hits += r && discarded == p->stats.discarded;
    if (!r && take_hard(p, class, n, &r, err))
        return err->code;
    make_busy(p, r, n, requested);
    *out = r;
    return BERTH_OK;
}

/* b is right behind a, both idle and in no bin. */
static void merge(struct pool *p, struct pool_range *a, struct pool_range *b)
{
    a->n += b->n;
    a->next = b->next;
    if (a->next)
        a->next->prev = a;
    tag_give(p, b);
}

void pool_give(struct pool *p, struct pool_range *r)
{
    if (!r->busy)
        BUG("range %#" PRIx64 " of %s given back twice", r->addr, p->phys->name);
    mark(p, r->addr, r->n, false);
    p->stats.in_use -= r->n;
    p->stats.requested -= r->requested;
    p->stats.frees++;
    r->segment->busy--;
    r->busy = false;
    r->owner = NULL;
    r->event = NULL;
    if (r->next && !r->next->busy) {
        bin_del(p, r->next);
        merge(p, r, r->next);
    }
    if (r->prev && !r->prev->busy) {
        struct pool_range *before = r->prev;
        bin_del(p, before);
        merge(p, before, r);
        r = before;
    }
    bin_add(p, r);
}

struct dev_trimmed pool_trim(struct pool *p)
{
    uint64_t released = release_idle(p, UINT64_MAX), discarded = discard_idle(p, UINT64_MAX);
    return (
        struct dev_trimmed) { .released = released, .discarded = discarded, .idle = p->stats.idle };
}

/* How many bytes of a range would be gone after discard_range(), of one that is only planned. */
static uint64_t would_be_gone(const struct pool *p, const struct pool_range *r)
{
    const struct pool_segment *g = r->segment;
    const struct phys *ph = p->phys;
    struct granules i = granules_inside(p, r), run;
    uint64_t bytes = (uint64_t)count_gone(g, i) * ph->granularity;
    while (ph->driver->discard && next_run(g, &i, false, &run)) {
        uint64_t addr;
        size_t n = discardable(p, g, run, &addr);
        bytes += n;
    }
    return bytes;
}

static bool goes_or_idle(const struct pool_range *r, dev_goes_fn *goes, void *user)
{
    return !r->busy || goes(user, r->owner->name, r->owner->kind);
}

uint64_t pool_trim_leaves(const struct pool *p, dev_goes_fn *goes, void *user)
{
    uint64_t left = 0;
    for (const struct pool_segment *g = p->segments; g; g = g->next)
        for (const struct pool_range *r = g->first; r;) {
            struct pool_range idle = *r; /* as merge() would make it */
            idle.n = 0;
            for (; r && goes_or_idle(r, goes, user); r = r->next)
                idle.n += r->n;
            if (idle.n && idle.n < g->n) /* else the segment goes */
                left += idle.n - would_be_gone(p, &idle);
            while (r && !goes_or_idle(r, goes, user))
                r = r->next;
        }
    return left;
}

bool pool_reserve(struct pool *p, uint64_t bytes)
{
    if (bytes > p->budget || p->stats.in_use > p->budget - bytes)
        return false;
    uint64_t left = p->budget - bytes;
    if (held(p) > left)
        release_idle(p, held(p) - left);
    if (held(p) > left)
        discard_idle(p, held(p) - left);
    if (held(p) > left)
        return false;
    p->reserved = bytes;
    return true;
}

/* ---- life ---- */

berth_status pool_new(struct phys *phys, uint64_t budget, bool stress, struct pool **out,
                      berth_err *err)
{
    *out = NULL;
    struct pool *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "a pool for %s", phys->name);
    p->phys = phys;
    p->budget = budget;
    p->stress = stress;
    p->shift = (unsigned)__builtin_ctzll(phys->align);
    *out = p;
    return BERTH_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    for (struct pool_segment *g = p->segments, *next; g; g = next) {
        next = g->next;
        driver_free(p, g->addr, g->n);
        free(g->gone);
        free(g);
    }
    for (struct tags *t = p->tags, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    free(p);
}

const struct dev_stats *pool_stats(const struct pool *p)
{
    return &p->stats;
}

uint64_t pool_segment_of(const struct pool_range *r)
{
    return r->segment->addr;
}

struct pool_range *pool_next_busy(const struct pool *p, const struct pool_range *after)
{
    const struct pool_segment *g = after ? after->segment : p->segments;
    struct pool_range *r = after ? after->next : g ? g->first : NULL;
    for (;;) {
        while (r && !r->busy)
            r = r->next;
        if (r || !g)
            return r;
        g = g->next;
        r = g ? g->first : NULL;
    }
}

/* ---- check ---- */

static bool range_in_bin(const struct pool *p, const struct pool_range *wanted)
{
    unsigned fl, sl;
    bin_of(p, wanted->n, &fl, &sl);
    const struct pool_range *r = p->bins[wanted->segment->class].head[fl][sl];
    while (r && r != wanted)
        r = r->bin_next;
    return r != NULL;
}

/* Ranges tile the segment and are linked both ways; no two idle neighbours. Adds to `sum`. */
static const char *check_segment(const struct pool *p, const struct pool_segment *g,
                                 struct dev_stats *sum)
{
    size_t at = 0, busy = 0, gone_n = 0;
    for (const struct pool_range *r = g->first; r; r = r->next) {
        if (r->segment != g || r->addr != g->addr + at || !r->n || r->n % p->phys->align)
            return "a range does not continue its neighbour";
        if (r->n > g->n - at)
            return "a range leaves its segment";
        if ((r->prev ? r->prev->next : g->first) != r)
            return "neighbours disagree";
        if (!r->busy && ((r->prev && !r->prev->busy) || !range_in_bin(p, r)))
            return "an idle range is not merged or not in its bin";
        if (r->busy && (r->requested > r->n || r->n - r->requested >= p->phys->align))
            return "a busy range is not the size that was asked for";
        at += r->n;
        busy += r->busy;
        sum->ranges++;
        sum->in_use += r->busy ? r->n : 0;
        sum->requested += r->busy ? r->requested : 0;
        struct granules inside = r->busy ? (struct granules) { 0, 0 } : granules_inside(p, r);
        size_t gone = count_gone(g, inside);
        if (gone != count_gone(g, granules_touched(p, r, r->n)))
            return "a discarded granule is not idle";
        sum->idle += r->busy ? 0 : r->n - gone * p->phys->granularity;
        sum->discarded += gone * p->phys->granularity;
        gone_n += gone;
    }
    if (gone_n != g->gone_n)
        return "discarded granules are not counted right";
    return at != g->n        ? "ranges do not fill the segment"
           : busy != g->busy ? "busy count is wrong"
                             : NULL;
}

static size_t count_bins(const struct pool *p, bool *sound)
{
    size_t n = 0;
    for (unsigned c = 0; c < CLASS_COUNT; c++) {
        for (unsigned f = 0; f < FL_COUNT; f++) {
            *sound &= (p->bins[c].fl >> f & 1) == (p->bins[c].sl[f] != 0);
            for (unsigned s = 0; s < SL_COUNT; s++) {
                const struct pool_range *r = p->bins[c].head[f][s];
                *sound &= (p->bins[c].sl[f] >> s & 1) == (r != NULL);
                for (; r; r = r->bin_next, n++)
                    *sound &= !r->busy && (!r->bin_next || r->bin_next->bin_prev == r);
            }
        }
    }
    return n;
}

berth_status pool_check(const struct pool *p, berth_err *err)
{
    struct dev_stats sum = { 0 };
    const struct dev_stats *s = &p->stats;
    size_t idle_ranges = 0;
    bool sound = true;
    for (const struct pool_segment *g = p->segments; g; g = g->next) {
        const char *what = (g->next && g->next->prev != g) ? "segment list" : NULL;
        if (!what)
            what = check_segment(p, g, &sum);
        if (what)
            return err_set(err, BERTH_EDEVICE, "pool of %s, segment %#" PRIx64 ": %s",
                           p->phys->name, g->addr, what);
        for (const struct pool_range *r = g->first; r; r = r->next)
            idle_ranges += !r->busy;
        sum.segments++;
    }
    if (count_bins(p, &sound) != idle_ranges || !sound)
        return err_set(err, BERTH_EDEVICE, "pool of %s: bins and bitmaps disagree", p->phys->name);
    if (sum.in_use != s->in_use || sum.idle != s->idle || sum.requested != s->requested ||
        sum.ranges != s->ranges || sum.segments != s->segments || sum.discarded != s->discarded ||
        s->driver_allocs - s->driver_refusals - s->driver_frees != s->segments)
        return err_set(err, BERTH_EDEVICE, "pool of %s: counters are not the sums", p->phys->name);
    if (p->reserved > p->budget || held(p) > p->budget - p->reserved || s->peak < s->in_use ||
        s->peak_held < held(p))
        return err_set(err, BERTH_EDEVICE,
                       "pool of %s: held %" PRIu64 " + reserved %" PRIu64 ", budget %" PRIu64,
                       p->phys->name, held(p), p->reserved, p->budget);
    return BERTH_OK;
}
