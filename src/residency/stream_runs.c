/* stream_runs: which blocks travel together, and as which copies. Arithmetic only. */
#include "base/sz.h"
#include "residency/stream_impl.h"

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

/* Pieces that follow one another in source and slot are one copy. */
static void add_pieces(struct stream_cut *c, struct stream_run *r, const struct stream_item *it,
                       size_t off)
{
    for (uint32_t k = 0; k < it->pieces; k++) {
        struct stream_copy p = { .src = it->addr + it->piece[k].off,
                                 .dst = off + (size_t)it->piece[k].off,
                                 .n = (size_t)it->piece[k].n };
        struct stream_copy *last = r->copies ? &c->copy[r->copy + r->copies - 1] : NULL;
        if (!p.n)
            continue;
        if (last && last->src + last->n == p.src && last->dst + last->n == p.dst)
            last->n += p.n;
        else
            c->copy[r->copy + r->copies++] = p;
        r->bytes += p.n;
    }
}

/* Where `it` would lie at the end of run r. False: it does not fit, or comes from elsewhere. */
static bool joins(const struct stream_args *a, const struct stream_run *r,
                  const struct stream_item *it, uint64_t run_bytes, size_t *off)
{
    size_t span;
    return same_donor(a, r, it) && sz_align(r->span, a->compute->phys->align, off) &&
           sz_add(*off, (size_t)it->span, &span) && span <= run_bytes;
}

/* Item i joins the last run, or begins the next one. */
static berth_status add_item(const struct stream_args *a, struct stream_cut *c, size_t i,
                             uint64_t run_bytes, berth_err *err)
{
    const struct stream_item *it = &a->item[i];
    size_t off = 0;
    if (!c->runs || !joins(a, &c->run[c->runs - 1], it, run_bytes, &off)) {
        const struct stream_run *last = c->runs ? &c->run[c->runs - 1] : NULL;
        struct stream_run next = { .dev = it->dev,
                                   .host = from_host(it),
                                   .staged = is_staged(a, it),
                                   .first = (uint32_t)i,
                                   .copy = last ? last->copy + last->copies : 0 };
        if (lane_of(a, c, it, &next.lane, err))
            return err->code;
        off = 0;
        c->run[c->runs++] = next;
    }
    struct stream_run *r = &c->run[c->runs - 1];
    c->place[i] = (struct stream_place) { .run = c->runs - 1, .off = off };
    r->items++;
    r->span = off + (size_t)it->span;
    add_pieces(c, r, it, off);
    return BERTH_OK;
}

static void sum_up(struct stream_cut *c)
{
    for (uint32_t k = 0; k < c->runs; k++) {
        const struct stream_run *r = &c->run[k];
        c->span = r->span > c->span ? r->span : c->span;
        c->bytes += r->bytes;
        c->staged_runs += r->staged;
        if (r->staged && r->bytes > c->staged)
            c->staged = r->bytes;
    }
}

berth_status stream_cut(const struct stream_args *a, uint64_t run_bytes, struct stream_cut *out,
                        berth_err *err)
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
    for (size_t i = 0; i < a->n; i++) {
        out->place[i].run = STREAM_NONE;
        (void)check_item(a, i, &bytes, err);
        if (bytes && add_item(a, out, i, run_bytes, err))
            return err->code;
    }
    sum_up(out);
    return BERTH_OK;
}

void stream_cut_release(struct stream_cut *c)
{
    arena_release(&c->mem);
    *c = (struct stream_cut) { 0 };
}
