/* runs: which blocks travel together, and as which copies. Arithmetic only. */
#include "base/sz.h"
#include "stream/stream_impl.h"

#include <inttypes.h>

enum stream_source stream_source_of(const struct device *compute, const struct device *dev,
                                    bool pinned)
{
    bool host = pinned || dev_can(dev, BERTH_CAP_HOST_VISIBLE);
    if ((dev == compute && !pinned) || (host && dev_can(compute, BERTH_CAP_HOST_VISIBLE)))
        return STREAM_RESIDENT;
    return pinned ? STREAM_PINNED : host ? STREAM_PAGEABLE : STREAM_DEVICE;
}

/* ---- what came from outside meets its limits ---- */

static berth_status bad_item(const struct stream_args *a, size_t i, berth_status code,
                             const char *what, berth_err *err)
{
    const struct stream_item *it = &a->item[i];
    return err_set(err, code, "block '%s' (item %zu, %" PRIu64 " bytes on %s): %s",
                   it->name ? it->name : "?", i, it->span, it->dev ? it->dev->name : "?", what);
}

static bool readable(const struct device *compute, const struct device *dev)
{
    return dev->phys == compute->phys ||
           (dev_can(dev, BERTH_CAP_HOST_VISIBLE) && dev_can(compute, BERTH_CAP_HOST_VISIBLE));
}

/* *bytes: of its pieces; 0 for an item that stays where it is. */
static berth_status check_item(const struct stream_args *a, size_t i, uint64_t *bytes,
                               berth_err *err)
{
    const struct stream_item *it = &a->item[i];
    size_t span;
    uint64_t end = 0;
    *bytes = 0;
    if (!it->dev)
        return bad_item(a, i, BERTH_EINVAL, "no device", err);
    if (it->source == STREAM_RESIDENT && !readable(a->compute, it->dev))
        return bad_item(a, i, BERTH_EINVAL, "resident, but not where the layers run", err);
    if (it->source == STREAM_RESIDENT)
        return BERTH_OK;
    if (!sz_from_u64(it->span, &span) || it->addr > UINT64_MAX - it->span)
        return bad_item(a, i, BERTH_ELIMIT, "leaves the address space", err);
    for (uint32_t k = 0; k < it->pieces; k++) {
        const struct stream_piece *p = &it->piece[k];
        if (p->off < end || p->off > it->span || p->n > it->span - p->off)
            return bad_item(a, i, BERTH_EINVAL, "a piece lies outside of it or out of order", err);
        end = p->off + p->n;
        *bytes += p->n;
    }
    return BERTH_OK;
}

/* ---- cutting ---- */

static bool from_host(const struct stream_item *it)
{
    return it->source != STREAM_DEVICE;
}

static berth_status lane_of(const struct stream_args *a, struct stream_cut *c,
                            const struct stream_item *it, uint32_t *out, berth_err *err)
{
    struct device *donor = from_host(it) ? NULL : it->dev;
    for (*out = 0; *out < c->lanes; ++*out)
        if (c->lane[*out] == donor)
            return BERTH_OK;
    if (c->lanes == STREAM_LANES_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %d donors", STREAM_LANES_MAX);
    /* A card's memory reaches the host on one of its own streams, not on one of the host's. */
    bool theirs = donor && dev_can(a->compute, BERTH_CAP_HOST_VISIBLE);
    c->lane[c->lanes] = donor;
    c->lane_on[c->lanes] = theirs ? donor : a->compute;
    c->lanes++;
    return BERTH_OK;
}

/* Through staging only if it is faster memory than where the block is. */
static bool is_staged(const struct stream_args *a, const struct stream_item *it)
{
    return it->source == STREAM_PAGEABLE && dev_can(a->compute, BERTH_CAP_PINNED);
}

static bool same_donor(const struct stream_args *a, const struct stream_run *r,
                       const struct stream_item *it)
{
    return r->dev == it->dev && r->host == from_host(it) && r->staged == is_staged(a, it);
}

/* Pinned blocks lie as far from one another as they will in the slot: what alignment leaves between
 * them travels too, and nobody reads it. */
static bool joins(const struct stream_args *a, const struct stream_run *r,
                  const struct stream_copy *last, const struct stream_copy *next)
{
    uint64_t from = next->src - (last->src + last->n), to = next->dst - (last->dst + last->n);
    size_t most = r->host && !r->staged ? a->compute->phys->align : 1;
    return last->base == next->base && from == to && from < most;
}

/* Pieces that follow one another in source and slot are one copy, within one allocation: drivers
 * refuse a copy that leaves the one it begins in, however near the next. */
static void add_pieces(const struct stream_args *a, struct stream_cut *c, struct stream_run *r,
                       const struct stream_item *it, size_t off)
{
    for (uint32_t k = 0; k < it->pieces; k++) {
        size_t n = (size_t)it->piece[k].n;
        struct stream_copy p = { .src = it->addr + it->piece[k].off,
                                 .base = it->base,
                                 .dst = off + (size_t)it->piece[k].off,
                                 .n = n,
                                 .bytes = n };
        struct stream_copy *last = r->copies ? &c->copy[r->copy + r->copies - 1] : NULL;
        if (!n)
            continue;
        if (last && joins(a, r, last, &p)) {
            last->n = p.dst + n - last->dst;
            last->bytes += n;
        } else {
            c->copy[r->copy + r->copies++] = p;
        }
        r->bytes += n;
    }
}

/* ---- several donors ----
 *
 * Layout `spread` deals the blocks of several donors out in turn. If a run ended where another
 * donor's block comes, it would be one block long. So one run may be open per track, and there is a
 * track for each donor; their runs interleave in execution order. A run holds its slot from its
 * first item to its last, so there are slots - 1 tracks (1 with a ring of 1 or 2): every run under
 * way has a slot, and one is left for what comes next. With more donors than tracks, the donor that
 * was met longest ago loses its track, and runs get short again.
 *
 * A run that shares its time with others also ends by position: `stop`, in donor bytes of all
 * tracks, at most (tracks + 1) * run_bytes behind its beginning. A donor that is rarely met must
 * not hold a slot while the rest turns many times. Track k stops at (k + j * tracks) * run_bytes:
 * if all ended at the same item, each would want the one free slot at that moment, and all but one
 * of the copies would be exposed (bench/stream, two donors: 0.1 % of the copies' time against 30
 * %). */

struct track {
    uint32_t run;   /* open on it; STREAM_NONE: none yet */
    uint32_t first; /* its first item, counted among donor items */
    uint32_t last;  /* the latest */
    uint64_t stop;
};

struct cutter {
    const struct stream_args *args;
    struct stream_cut *cut;
    uint64_t run_bytes;
    uint32_t tracks;
    struct track track[STREAM_SLOTS_MAX];
    uint32_t item; /* donor items so far */
    uint64_t pos;  /* their bytes */
};

/* The track of its donor, else one nobody has, else that of the donor met longest ago. */
static uint32_t track_of(const struct cutter *x, const struct stream_item *it)
{
    uint32_t best = 0;
    for (uint32_t k = 0; k < x->tracks; k++) {
        const struct track *t = &x->track[k], *b = &x->track[best];
        if (t->run != STREAM_NONE && same_donor(x->args, &x->cut->run[t->run], it))
            return k;
        if (b->run != STREAM_NONE && (t->run == STREAM_NONE || t->last < b->last))
            best = k;
    }
    return best;
}

/* Where `it` would lie at the end of run r. False: no room. */
static bool fits(const struct cutter *x, const struct stream_run *r, const struct stream_item *it,
                 size_t *off)
{
    size_t span;
    return sz_align(r->span, x->args->compute->phys->align, off) &&
           sz_add(*off, (size_t)it->span, &span) && span <= x->run_bytes;
}

static uint64_t times(uint64_t n, uint64_t unit) /* beyond 64 bits: never reached */
{
    uint64_t out;
    return __builtin_mul_overflow(n, unit, &out) ? UINT64_MAX : out;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The next one of track k that is at least `least` bytes away. */
static uint64_t next_stop(const struct cutter *x, uint32_t k, uint64_t least)
{
    uint64_t j = x->pos / x->run_bytes + 1;
    j += (k + x->tracks - j % x->tracks) % x->tracks;
    uint64_t stop = times(j, x->run_bytes);
    return stop - x->pos < least ? plus(stop, times(x->tracks, x->run_bytes)) : stop;
}

static berth_status begin_run(struct cutter *x, uint32_t k, size_t i, bool full, berth_err *err)
{
    const struct stream_item *it = &x->args->item[i];
    struct stream_run next = { .dev = it->dev,
                               .host = from_host(it),
                               .staged = is_staged(x->args, it),
                               .first = (uint32_t)i };
    if (lane_of(x->args, x->cut, it, &next.lane, err))
        return err->code;
    /* A donor with more than its share fills runs by itself: they are not cut short for the sake of
     * a stop that is near. */
    uint64_t stop = next_stop(x, k, full ? x->run_bytes : x->run_bytes / 2);
    x->track[k] = (struct track) { .run = x->cut->runs, .first = x->item, .stop = stop };
    x->cut->run[x->cut->runs++] = next;
    return BERTH_OK;
}

/* Item i joins the run of its donor, or begins the next one. */
static berth_status add_item(struct cutter *x, size_t i, berth_err *err)
{
    struct stream_cut *c = x->cut;
    const struct stream_item *it = &x->args->item[i];
    uint32_t k = track_of(x, it);
    struct track *t = &x->track[k];
    const struct stream_run *open = t->run == STREAM_NONE ? NULL : &c->run[t->run];
    size_t off = 0;
    bool ours = open && same_donor(x->args, open, it), full = ours && !fits(x, open, it, &off);
    bool alone = ours && t->first + open->items == x->item; /* nobody else's came between */
    if (!ours || full || !(alone || plus(x->pos, it->span) <= t->stop)) {
        if (begin_run(x, k, i, full, err))
            return err->code;
        off = 0;
    }
    struct stream_run *r = &c->run[t->run];
    c->place[i] = (struct stream_place) { .run = t->run, .newest = c->runs - 1, .off = off };
    r->items++;
    r->last = (uint32_t)i;
    r->span = off + (size_t)it->span;
    r->copies += it->pieces; /* at most; add_copies() counts */
    t->last = x->item++;
    x->pos += it->span;
    return BERTH_OK;
}

static void add_copies(const struct stream_args *a, struct stream_cut *c)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < c->runs; k++) {
        c->run[k].copy = at;
        at += c->run[k].copies;
        c->run[k].copies = 0;
    }
    for (size_t i = 0; i < a->n; i++)
        if (c->place[i].run != STREAM_NONE)
            add_pieces(a, c, &c->run[c->place[i].run], &a->item[i], c->place[i].off);
}

static void sum_up(struct stream_cut *c)
{
    for (uint32_t k = 0; k < c->runs; k++) {
        const struct stream_run *r = &c->run[k];
        c->span = r->span > c->span ? r->span : c->span;
        c->bytes += r->bytes;
        if (r->staged && r->bytes > c->staged)
            c->staged = r->bytes;
    }
}

/* ---- the ring they need ---- */

/* Runs that are under way at once, at most: where one of them begins. */
static uint32_t most_under_way(const struct stream_cut *c)
{
    uint32_t last[STREAM_SLOTS_MAX], n = 0, most = 0;
    for (uint32_t k = 0; k < c->runs; k++) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i++)
            if (last[i] >= c->run[k].first)
                last[kept++] = last[i];
        n = kept;
        if (n == STREAM_SLOTS_MAX)
            BUG("more than %u runs under way", n);
        last[n++] = c->run[k].last;
        most = n > most ? n : most;
    }
    return most;
}

/* Runs behind one another that have room in the ring at once, at most. */
static uint32_t most_in_ring(const struct stream_cut *c)
{
    uint32_t most = 0;
    size_t sum = 0;
    for (uint32_t from = 0, to = 0; to < c->runs; to++) { /* [from, to] */
        sum += c->run[to].room;
        for (; sum > c->ring; from++)
            sum -= c->run[from].room;
        most = to - from + 1 > most ? to - from + 1 : most;
    }
    return most;
}

/* ---- where they lie in it ---- */

struct placed { /* homes of runs that are under way with the next one */
    const struct stream_run *run[STREAM_SLOTS_MAX];
    uint32_t n;
};

static bool is_apart(const struct placed *p, size_t from, size_t n)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->run[i]->home < from + n && from < p->run[i]->home + p->run[i]->room)
            return false;
    return true;
}

/* The first gap from the head on, round a lap: it begins there, at 0 or where a run ends. There
 * always is one: p has at most u - 1 runs (u: most that are under way at once), which leave at most
 * u gaps; a lap of 2u - 1 times the largest run, M, has (2u - 1)M - (u - 1)M = uM bytes in them, so
 * one of them has M. */
static size_t gap_for(const struct placed *p, size_t lap, size_t head, size_t room)
{
    size_t best = SIZE_MAX, found = 0;
    for (uint32_t i = 0; i < p->n + 2; i++) {
        size_t at = i == 0 ? head : i == 1 ? 0 : p->run[i - 2]->home + p->run[i - 2]->room;
        size_t way = at >= head ? at - head : lap - head + at;
        if (way < best && room <= lap && at <= lap - room && is_apart(p, at, room)) {
            best = way;
            found = at;
        }
    }
    if (best == SIZE_MAX)
        BUG("no place for %zu bytes in a lap of %zu", room, lap);
    return found;
}

/* Behind one another, and on at the start where the end of the lap is too near. Returns where the
 * last one ends. */
static size_t find_homes(struct stream_cut *c, size_t lap)
{
    struct placed p = { .n = 0 };
    size_t head = 0;
    for (uint32_t k = 0; k < c->runs; k++) {
        struct stream_run *r = &c->run[k];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < p.n; i++)
            if (p.run[i]->last >= r->first)
                p.run[kept++] = p.run[i];
        p.n = kept;
        r->home = gap_for(&p, lap, head, r->room);
        head = r->home + r->room;
        p.run[p.n++] = r; /* most_under_way() counted them */
    }
    return head;
}

#define LAPS_TRIED 32

/* A pass goes round the ring several times. The first runs of the next one lie where its last lap
 * began: if that is a short one they have to wait for its end, and copies come to a halt. So laps
 * may be shorter than the ring, by what a missing lap takes when all of them share it: whatever
 * lets copies be ahead the most, everywhere. */
static void choose_homes(struct stream_cut *c, size_t all, size_t least)
{
    size_t best = c->ring, most = 0, laps = (all - 1) / c->ring + 1;
    for (size_t i = 0; i < LAPS_TRIED; i++) {
        size_t lap = c->ring - c->ring / laps / LAPS_TRIED * i;
        if (lap < least)
            break;
        size_t end = find_homes(c, lap), ahead = end < lap ? end : lap;
        if (ahead > most) {
            most = ahead;
            best = lap;
        }
    }
    (void)find_homes(c, best);
}

static berth_status size_ring(const struct stream_args *a, struct stream_cut *c, berth_err *err)
{
    uint32_t way = most_under_way(c), units = 2 * way - 1 > c->slots ? 2 * way - 1 : c->slots;
    size_t largest = 0, all = 0;
    bool fits = true;
    for (uint32_t k = 0; k < c->runs && fits; k++) {
        struct stream_run *r = &c->run[k];
        fits = sz_align(r->span, a->compute->phys->align, &r->room) && sz_add(all, r->room, &all);
        largest = r->room > largest ? r->room : largest;
    }
    if (!fits || !sz_mul(largest, units, &c->ring))
        return err_set(err, BERTH_ELIMIT, "a ring for %u of %zu bytes", units, c->span);
    size_t need = c->ring < all ? c->ring : all;
    if (c->ring < a->cfg.ring_least)
        c->ring = (size_t)(a->cfg.ring_least < all ? a->cfg.ring_least : all);
    c->ring = all <= c->ring ? all : c->ring;
    c->spare = c->ring - need;
    choose_homes(c, all, (2 * way - 1) * largest);
    uint32_t places = 2 * most_in_ring(c) + way; /* there, and as many that have just left */
    c->places = places < STREAM_PLACES_MAX ? places : STREAM_PLACES_MAX;
    return BERTH_OK;
}

/* How many donors have blocks small enough to share a run, and is that all there is? */
static bool count_small(const struct stream_args *a, uint64_t run_bytes, uint32_t *donors)
{
    const struct stream_item *met[STREAM_SLOTS_MAX];
    *donors = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct stream_item *it = &a->item[i];
        uint32_t k = 0;
        if (it->source == STREAM_RESIDENT)
            continue;
        if (it->span > run_bytes)
            return false;
        while (k < *donors && !(met[k]->dev == it->dev && from_host(met[k]) == from_host(it) &&
                                is_staged(a, met[k]) == is_staged(a, it)))
            k++;
        if (k == *donors && k < STREAM_SLOTS_MAX && it->span <= run_bytes / 2)
            met[(*donors)++] = it;
    }
    return true;
}

/* A slot of one run more for each donor that would have no track, where slots are no larger than
 * that. */
static uint32_t default_slots(const struct stream_args *a, uint64_t run_bytes)
{
    uint32_t donors;
    if (!count_small(a, run_bytes, &donors) || donors < STREAM_SLOTS_DEFAULT)
        return STREAM_SLOTS_DEFAULT;
    return donors < STREAM_SLOTS_MAX ? donors + 1 : STREAM_SLOTS_MAX;
}

static berth_status cut_items(const struct stream_args *a, uint64_t run_bytes, uint32_t slots,
                              struct stream_cut *out, berth_err *err)
{
    struct cutter x = { .args = a, .cut = out, .run_bytes = run_bytes };
    uint64_t bytes;
    x.tracks = slots > 2 ? slots - 1 : 1;
    for (uint32_t k = 0; k < x.tracks; k++)
        x.track[k].run = STREAM_NONE;
    for (size_t i = 0; i < a->n; i++) {
        out->place[i].run = STREAM_NONE;
        (void)check_item(a, i, &bytes, err);
        if (bytes && add_item(&x, i, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status stream_cut(const struct stream_args *a, uint64_t run_bytes, uint32_t slots,
                        struct stream_cut *out, berth_err *err)
{
    uint64_t bytes, all = 0;
    size_t donors = 0, pieces = 0;
    *out = (struct stream_cut) { 0 };
    if (a->n >= STREAM_NONE)
        return err_set(err, BERTH_ELIMIT, "%zu blocks", a->n);
    for (size_t i = 0; i < a->n; i++) {
        if (check_item(a, i, &bytes, err))
            return err->code;
        if (!bytes)
            continue;
        donors++;
        pieces += a->item[i].pieces; /* counts of things in memory: they fit */
        if (__builtin_add_overflow(all, a->item[i].span, &all) || pieces >= STREAM_NONE)
            return bad_item(a, i, BERTH_ELIMIT, "too many bytes or pieces in all", err);
    }
    if (!donors)
        return BERTH_OK;
    out->place = arena_array(&out->mem, a->n, sizeof *out->place);
    out->run = arena_array(&out->mem, donors, sizeof *out->run);
    out->copy = arena_array(&out->mem, pieces, sizeof *out->copy);
    if (!out->place || !out->run || !out->copy)
        return err_set(err, BERTH_ENOMEM, "the runs of %zu blocks", a->n);
    slots = slots ? slots : default_slots(a, run_bytes);
    if (cut_items(a, run_bytes, slots, out, err))
        return err->code;
    add_copies(a, out);
    sum_up(out);
    out->slots = slots < out->runs ? slots : out->runs;
    return size_ring(a, out, err);
}

void stream_cut_release(struct stream_cut *c)
{
    arena_release(&c->mem);
    *c = (struct stream_cut) { 0 };
}
