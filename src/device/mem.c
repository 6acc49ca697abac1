/* mem: the doors to device memory: pool, ledger and retirement put together. */
#include "base/str.h"
#include "device/device_impl.h"
#include "device/ledger.h"
#include "device/pool.h"

#include <inttypes.h>

#ifdef BERTH_CHECKS
/* A full walk costs as much as there are ranges: every time while there are few, then now and then.
 */
void dev_debug_check(const struct device *d)
{
    const struct dev_stats *s = pool_stats(d->pool);
    berth_err err;
    if (s->ranges > 128 && (s->allocs + s->frees) % 512)
        return;
    if (dev_check(d, &err))
        BUG("%s", err.msg);
}
#else
void dev_debug_check(const struct device *d)
{
    (void)d;
}
#endif

/* ---- life ---- */

berth_status dev_open(const struct dev_config *cfg, struct device **out, berth_err *err)
{
    *out = NULL;
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, BERTH_ENOMEM, "device %s", cfg->name);
    snprintf(d->name, sizeof d->name, "%s", cfg->name);
    d->phys = cfg->phys;
    d->budget = cfg->budget;
    d->log = cfg->log;
    d->retired_end = &d->retired;
    struct pool_config pc = { .phys = cfg->phys, .budget = cfg->budget, .stress = cfg->stress };
    if (pool_new(&pc, &d->pool, err) || ledger_new(d, &d->ledger, err)) {
        pool_free(d->pool);
        free(d);
        return err_add(err, "opening %s", cfg->name);
    }
    *out = d;
    return BERTH_OK;
}

void dev_close(struct device *d)
{
    if (!d)
        return;
    berth_err err;
    if (dev_drain(d, NULL, &err))
        log_error(d->log, "dev.close", "dev=%s why=\"%s\"", d->name, err.msg);
    struct pool_range *next;
    for (struct pool_range *r = d->retired; r; r = next) { /* the device did not let go: we do */
        next = r->waiting;
        dev_event_release(r->event);
    }
    for (const struct dev_owner *o = d->ledger->lines; o; o = o->next)
        if (o->count)
            log_error(d->log, "dev.leak",
                      "dev=%s owner=\"%s\" kind=%s bytes=%" PRIu64 " ranges=%" PRIu64, d->name,
                      o->name, dev_kind_name(o->kind), o->bytes, o->count);
    pool_free(d->pool);
    ledger_free(d->ledger);
    free(d);
}

berth_status dev_owner_open(struct device *d, const char *name, enum dev_kind kind,
                            struct dev_owner **out, berth_err *err)
{
    berth_status s = ledger_line_open(d->ledger, name, kind, out, err);
    return s ? err_add(err, "%s", d->name) : BERTH_OK;
}

void dev_owner_close(struct dev_owner *o)
{
    if (o)
        ledger_line_close(o);
}

/* ---- alloc, free ---- */

const char *dev_full(const struct device *d, uint64_t wanted, uint64_t left, char buf[DEV_FULL_MAX])
{
    char needs[STR_BYTES_MAX], has[STR_BYTES_MAX], budget[STR_BYTES_MAX];
    str_bytes_two(wanted, left, needs, has);
    snprintf(buf, DEV_FULL_MAX, "%s is full: needs %s%s, %s of %s are left", d->name, needs,
             wanted <= left ? " in one piece" : "", has, str_bytes(d->budget, budget));
    return buf;
}

berth_status dev_no_room(struct device *d, size_t n, berth_err *err)
{
    uint64_t in[DEV_KIND_COUNT], total, driver_free;
    char full[DEV_FULL_MAX], free_text[32] = "unknown", why[sizeof err->msg];
    const struct dev_stats s = ledger_stats(d->ledger);
    uint64_t pinned = dev_can(d, BERTH_CAP_HOST_VISIBLE) ? s.pinned : 0; /* as the budget has it */
    berth_err ignored;
    snprintf(why, sizeof why, "%s", err->msg);
    if (!d->phys->driver->info(d->phys, &total, &driver_free, &ignored))
        snprintf(free_text, sizeof free_text, "%" PRIu64, driver_free);
    ledger_by_kind(d->ledger, in);
    err_set(err, BERTH_ENODEVMEM,
            "%s: wanted %zu, in use %" PRIu64 " (weights %" PRIu64 ", staging %" PRIu64
            ", activations %" PRIu64 ", of them retired %" PRIu64 "), idle %" PRIu64
            " (largest range %zu), pinned %" PRIu64 ", left %" PRIu64 " of budget %" PRIu64
            ", driver free %s; %s",
            dev_full(d, n, d->budget - s.in_use - pinned, full), n, s.in_use, in[DEV_WEIGHTS],
            in[DEV_STAGING], in[DEV_ACTIVATIONS], s.retired, s.idle, pool_largest_idle(d->pool),
            pinned, d->budget - s.in_use - s.idle - pinned, d->budget, free_text, why);
    return err_on_device(err, d->name, n);
}

/* Puts the range back where it came from. pre: nothing reads it any more. */
static void give(struct device *d, struct pool_range *r)
{
    struct dev_owner *o = r->owner;
    uint64_t bytes = r->n, requested = r->requested;
    pool_give(d->pool, r);
    ledger_sub(o, bytes, requested, pool_stats(d->pool));
    dev_debug_check(d);
}

berth_status dev_try_hard(struct device *d, dev_try_fn *try, void *wish, berth_err *err)
{
    uint64_t freed = 0;
    berth_status s = try(d, wish, err);
    if (s != BERTH_ENODEVMEM || !d->retired)
        return s;
    if (dev_poll(d, &freed, err))
        return err->code;
    if (freed)
        s = try(d, wish, err);
    while (s == BERTH_ENODEVMEM && d->retired) {
        if (dev_event_sync(d->retired->event, err) || dev_poll(d, NULL, err))
            return err->code;
        s = try(d, wish, err);
    }
    return s;
}

struct wish {
    size_t n;
    struct pool_range *range; /* out */
};

static berth_status take(struct device *d, void *user, berth_err *err)
{
    struct wish *w = user;
    return pool_take(d->pool, w->n, &w->range, err);
}

berth_status dev_alloc(struct device *d, struct dev_owner *o, size_t n, struct dev_mem *out,
                       berth_err *err)
{
    struct wish w = { .n = n };
    *out = (struct dev_mem) { 0 };
    if (o->ledger != d->ledger || o->kind == DEV_PINNED)
        BUG("owner '%s' (%s) is not one of %s's", o->name, dev_kind_name(o->kind), d->name);
    berth_status s = dev_try_hard(d, take, &w, err);
    if (s) {
        ledger_publish(d->ledger, pool_stats(d->pool)); /* idle segments may have gone */
        return s == BERTH_ENODEVMEM ? dev_no_room(d, n, err)
                                    : err_add(err, "%s: %zu bytes for '%s'", d->name, n, o->name);
    }
    w.range->owner = o;
    ledger_add(o, w.range->n, n, pool_stats(d->pool));
    *out = (struct dev_mem) { .dev = d, .addr = w.range->addr, .n = n, .range = w.range };
    dev_debug_check(d);
    return BERTH_OK;
}

uint64_t dev_mem_base(const struct dev_mem *m)
{
    return m->range ? pool_segment_of(m->range) : m->addr;
}

static struct pool_range *take_apart(struct dev_mem *m)
{
    struct pool_range *r = m->range;
    if (!r->busy || r->addr != m->addr || r->event)
        BUG("%s: memory at %#" PRIx64 " was given up before", m->dev->name, m->addr);
    *m = (struct dev_mem) { 0 };
    return r;
}

void dev_free(struct dev_mem *m)
{
    struct device *d = m->dev;
    if (d)
        give(d, take_apart(m));
}

/* ---- retire ---- */

void dev_retire(struct dev_mem *m, struct dev_event *e)
{
    struct device *d = m->dev;
    if (!d)
        return;
    struct pool_range *r = take_apart(m);
    dev_event_hold(e);
    r->event = e;
    r->waiting = NULL;
    *d->retired_end = r;
    d->retired_end = &r->waiting;
    ledger_retired(d->ledger, r->n, 0);
}

/* Frees the retired range *at, which the queue then no longer has. */
static uint64_t free_retired(struct device *d, struct pool_range **at)
{
    struct pool_range *r = *at;
    struct dev_event *e = r->event;
    uint64_t n = r->n;
    *at = r->waiting;
    if (!*at)
        d->retired_end = at;
    ledger_retired(d->ledger, 0, n);
    give(d, r);
    dev_event_release(e);
    return n;
}

berth_status dev_poll(struct device *d, uint64_t *freed, berth_err *err)
{
    uint64_t n = 0;
    berth_status s = BERTH_OK;
    const struct dev_event *last = NULL; /* blocks of one layer share their event: ask it once */
    bool done = false;
    for (struct pool_range **at = &d->retired; *at && !s;) {
        if ((*at)->event != last) {
            last = (*at)->event;
            s = dev_event_query((*at)->event, &done, err);
        }
        if (s || !done)
            at = &(*at)->waiting;
        else {
            unsigned holds = (*at)->event->retiring;
            n += free_retired(d, at);
            if (holds == 1) /* the event may be gone, and its address may come again */
                last = NULL;
        }
    }
    if (freed)
        *freed = n;
    return s ? err_add(err, "%s: retired memory", d->name) : BERTH_OK;
}

berth_status dev_drain(struct device *d, uint64_t *freed, berth_err *err)
{
    uint64_t n = 0;
    berth_status s = BERTH_OK;
    while (!s && d->retired) {
        s = dev_event_sync(d->retired->event, err);
        if (!s)
            n += free_retired(d, &d->retired);
    }
    if (freed)
        *freed = n;
    return s ? err_add(err, "%s: retired memory", d->name) : BERTH_OK;
}

struct dev_trimmed dev_trim(struct device *d)
{
    struct dev_trimmed t = pool_trim(d->pool);
    ledger_publish(d->ledger, pool_stats(d->pool));
    dev_debug_check(d);
    log_debug(d->log, "dev.trim", "dev=%s released=%" PRIu64 " discarded=%" PRIu64 " idle=%" PRIu64,
              d->name, t.released, t.discarded, t.idle);
    return t;
}

struct leaving {
    dev_goes_fn *goes;
    void *user;
};

static bool range_goes(void *user, const struct pool_range *r)
{
    const struct leaving *l = user;
    return l->goes(l->user, r->owner->name, r->owner->kind);
}

uint64_t dev_trim_leaves(const struct device *d, dev_goes_fn *goes, void *user)
{
    struct leaving l = { goes, user };
    return pool_trim_leaves(d->pool, range_goes, &l);
}

/* ---- reports ---- */

berth_status dev_info(const struct device *d, struct dev_info *out, berth_err *err)
{
    *out = (struct dev_info) { .budget = d->budget };
    berth_status s = d->phys->driver->info(d->phys, &out->total, &out->free, err);
    if (s)
        return err_add(err, "%s", d->name);
    out->stats = ledger_stats(d->ledger);
    return BERTH_OK;
}

size_t dev_ledger(const struct device *d, struct dev_ledger_row *row, size_t cap,
                  struct dev_stats *sum)
{
    return ledger_rows(d->ledger, row, cap, sum);
}

void dev_by_kind(const struct device *d, uint64_t bytes[DEV_KIND_COUNT])
{
    ledger_by_kind(d->ledger, bytes);
}

berth_status dev_check(const struct device *d, berth_err *err)
{
    const struct dev_stats *s = pool_stats(d->pool);
    if (pool_check(d->pool, err) || ledger_check(d->ledger, s, err))
        return err_add(err, "%s", d->name);
    uint64_t retired = 0, busy = 0;
    for (const struct pool_range *r = d->retired; r; r = r->waiting) {
        if (!r->busy || !r->event || !r->owner)
            return err_set(err, BERTH_EDEVICE, "%s: a retired range is not in use", d->name);
        retired += r->n;
    }
    for (const struct pool_range *r = pool_next_busy(d->pool, NULL); r;
         r = pool_next_busy(d->pool, r)) {
        if (!r->owner || r->owner->ledger != d->ledger)
            return err_set(err, BERTH_EDEVICE, "%s: a range without an owner", d->name);
        busy += r->n;
    }
    const struct dev_stats pub = ledger_stats(d->ledger);
    uint64_t pinned = dev_can(d, BERTH_CAP_HOST_VISIBLE) ? pub.pinned : 0;
    if (retired != pub.retired || busy != s->in_use)
        return err_set(err, BERTH_EDEVICE, "%s: retired %" PRIu64 " counted %" PRIu64, d->name,
                       retired, pub.retired);
    if (pinned > d->budget || s->in_use + s->idle > d->budget - pinned)
        return err_set(err, BERTH_EDEVICE, "%s: held %" PRIu64 " of %" PRIu64, d->name,
                       s->in_use + s->idle + pinned, d->budget);
    return BERTH_OK;
}
