/* mem: the doors to memory, of devices and of the host for copies. Pool, ledger and retirement put
 * together. */
#include "base/str.h"
#include "base/sz.h"
#include "device/device_impl.h"
#include "device/pool.h"

#include <errno.h>
#include <inttypes.h>

#ifndef BERTH_CHECKS
#define BERTH_CHECKS 0
#endif

/* A full walk costs as much as there are ranges: every time while there are few, then now and
 * then. */
static void debug_check(const struct device *d)
{
    const struct dev_stats *s = pool_stats(d->pool);
    berth_err err;
    if (!BERTH_CHECKS || (s->ranges > 128 && (s->allocs + s->frees) % 512))
        return;
    if (dev_check(d, &err))
        BUG("%s", err.msg);
}

/* ---- the ledger ---- */

const char *dev_kind_name(enum dev_kind kind)
{
    static const char *const name[] = {
#define KIND_NAME(id, text) text,
        DEV_KIND_MAP(KIND_NAME)
#undef KIND_NAME
    };
    return (unsigned)kind < ARRAY_LEN(name) ? name[kind] : "?";
}

static void unlink_if_unused(struct ledger *l, struct dev_owner *o) /* lock held */
{
    if (o->opens || o->count)
        return;
    *(o->prev ? &o->prev->next : &l->lines) = o->next;
    if (o->next)
        o->next->prev = o->prev;
    free(o);
}

static struct dev_owner *find_owner(struct ledger *l, const char *name, enum dev_kind kind)
{
    struct dev_owner *o = l->lines;
    while (o && (o->kind != kind || strcmp(o->name, name) != 0))
        o = o->next;
    return o;
}

static berth_status owner_new(struct ledger *l, const char *name, size_t n, enum dev_kind kind,
                              struct dev_owner **out, berth_err *err)
{
    struct dev_owner *o = calloc(1, sizeof *o + n + 1);
    if (!o)
        return err_set(err, BERTH_ENOMEM, "%s: a ledger line for '%.64s'", l->device->name, name);
    o->ledger = l;
    o->kind = kind;
    o->opens = 1;
    memcpy(o->name, name, n + 1);
    pthread_mutex_lock(&l->lock);
    o->next = l->lines;
    if (o->next)
        o->next->prev = o;
    l->lines = o;
    pthread_mutex_unlock(&l->lock);
    *out = o;
    return BERTH_OK;
}

berth_status dev_owner_open(struct device *d, const char *name, enum dev_kind kind,
                            struct dev_owner **out, berth_err *err)
{
    struct ledger *l = d->ledger;
    size_t n = strlen(name);
    *out = NULL;
    if (!n || (unsigned)kind >= DEV_POOL_IDLE)
        return err_set(err, BERTH_EINVAL, "%s: owner '%.64s' of kind '%s'", d->name, name,
                       dev_kind_name(kind));
    if (n >= DEV_OWNER_MAX)
        return err_set(err, BERTH_ELIMIT, "%s: owner '%.64s...': %zu bytes of name, at most %d",
                       d->name, name, n, DEV_OWNER_MAX - 1);
    /* Lines come and go on the executor thread alone, so nothing is added between look and link. */
    pthread_mutex_lock(&l->lock);
    struct dev_owner *o = find_owner(l, name, kind);
    if (o)
        o->opens++;
    pthread_mutex_unlock(&l->lock);
    *out = o;
    return o ? BERTH_OK : owner_new(l, name, n, kind, out, err);
}

void dev_owner_close(struct dev_owner *o)
{
    if (!o)
        return;
    struct ledger *l = o->ledger;
    pthread_mutex_lock(&l->lock);
    if (!o->opens)
        BUG("owner '%s' closed more often than opened", o->name);
    o->opens--;
    unlink_if_unused(l, o);
    pthread_mutex_unlock(&l->lock);
}

/* The pool does not know of pinned and retired bytes: those stay as they are. Lock held. */
static void publish_locked(struct ledger *l)
{
    uint64_t pinned = l->stats.pinned, retired = l->stats.retired;
    l->stats = *pool_stats(l->device->pool);
    l->stats.pinned = pinned;
    l->stats.retired = retired;
}

/* What the pool has now. Nothing is booked: idle segments may have gone. */
static void publish(struct device *d)
{
    pthread_mutex_lock(&d->ledger->lock);
    publish_locked(d->ledger);
    pthread_mutex_unlock(&d->ledger->lock);
}

enum booking { IN, OUT };

/* One range of so many bytes, rounded and as requested, and what the pool has then. OUT: the line
 * may be gone afterwards. */
static void book(struct dev_owner *o, enum booking way, uint64_t bytes, uint64_t requested)
{
    struct ledger *l = o->ledger;
    pthread_mutex_lock(&l->lock);
    if (way == OUT && (o->bytes < bytes || o->requested < requested || !o->count))
        BUG("owner '%s' gives back %" PRIu64 " bytes of %" PRIu64, o->name, bytes, o->bytes);
    o->bytes += way == IN ? bytes : 0 - bytes;
    o->requested += way == IN ? requested : 0 - requested;
    o->count += way == IN ? 1 : UINT64_MAX;
    if (o->kind == DEV_PINNED)
        l->stats.pinned += way == IN ? bytes : 0 - bytes;
    publish_locked(l);
    unlink_if_unused(l, o);
    pthread_mutex_unlock(&l->lock);
}

static void book_retired(struct ledger *l, enum booking way, uint64_t bytes)
{
    pthread_mutex_lock(&l->lock);
    l->stats.retired += way == IN ? bytes : 0 - bytes;
    pthread_mutex_unlock(&l->lock);
}

static struct dev_stats stats_of(struct ledger *l)
{
    pthread_mutex_lock(&l->lock);
    struct dev_stats s = l->stats;
    pthread_mutex_unlock(&l->lock);
    return s;
}

void dev_by_kind(const struct device *d, uint64_t in[DEV_KIND_COUNT])
{
    struct ledger *l = d->ledger;
    memset(in, 0, DEV_KIND_COUNT * sizeof *in);
    pthread_mutex_lock(&l->lock);
    for (const struct dev_owner *o = l->lines; o; o = o->next)
        in[o->kind] += o->bytes;
    in[DEV_POOL_IDLE] = l->stats.idle;
    pthread_mutex_unlock(&l->lock);
}

size_t dev_ledger(const struct device *d, struct dev_ledger_row *row, size_t cap,
                  struct dev_stats *sum)
{
    struct ledger *l = d->ledger;
    size_t n = 0;
    pthread_mutex_lock(&l->lock);
    for (const struct dev_owner *o = l->lines; o; o = o->next) {
        if (!o->count)
            continue;
        if (n < cap) {
            row[n] = (struct dev_ledger_row) {
                .kind = o->kind, .bytes = o->bytes, .requested = o->requested, .count = o->count
            };
            memcpy(row[n].owner, o->name, strlen(o->name) + 1);
        }
        n++;
    }
    if (l->stats.idle) {
        if (n < cap)
            row[n] = (struct dev_ledger_row) { .kind = DEV_POOL_IDLE,
                                               .bytes = l->stats.idle,
                                               .requested = l->stats.idle };
        n++;
    }
    if (sum)
        *sum = l->stats;
    pthread_mutex_unlock(&l->lock);
    return n;
}

static berth_status check_ledger(struct ledger *l, const struct dev_stats *pool, berth_err *err)
{
    uint64_t bytes = 0, requested = 0, pinned = 0;
    bool lines = true;
    pthread_mutex_lock(&l->lock);
    for (const struct dev_owner *o = l->lines; o; o = o->next) {
        lines &= o->ledger == l && (o->opens || o->count) && o->requested <= o->bytes;
        lines &= (o->next == NULL || o->next->prev == o) && (o->count != 0) == (o->bytes != 0);
        if (o->kind == DEV_PINNED) {
            pinned += o->bytes;
        } else {
            bytes += o->bytes;
            requested += o->requested;
        }
    }
    struct dev_stats s = l->stats;
    pthread_mutex_unlock(&l->lock);
    if (!lines)
        return err_set(err, BERTH_EDEVICE, "a ledger line is inconsistent");
    if (bytes != pool->in_use || requested != pool->requested)
        return err_set(err, BERTH_EDEVICE,
                       "ledger has %" PRIu64 " bytes (%" PRIu64 " asked for), the pool %" PRIu64
                       " (%" PRIu64 ")",
                       bytes, requested, pool->in_use, pool->requested);
    if (pinned != s.pinned || s.in_use != pool->in_use || s.idle != pool->idle)
        return err_set(err, BERTH_EDEVICE,
                       "published sums lag: in use %" PRIu64 "/%" PRIu64 " idle %" PRIu64
                       "/%" PRIu64 " pinned %" PRIu64 "/%" PRIu64,
                       s.in_use, pool->in_use, s.idle, pool->idle, s.pinned, pinned);
    return BERTH_OK;
}

/* ---- life ---- */

static struct ledger *ledger_new(struct device *d) /* NULL: no memory */
{
    struct ledger *l = calloc(1, sizeof *l);
    if (!l || pthread_mutex_init(&l->lock, NULL)) {
        free(l);
        return NULL;
    }
    l->device = d;
    return l;
}

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
    berth_status s = pool_new(cfg->phys, cfg->budget, cfg->stress, &d->pool, err);
    d->ledger = s ? NULL : ledger_new(d);
    if (!d->ledger) {
        pool_free(d->pool);
        free(d);
        return s ? err_add(err, "opening %s", cfg->name)
                 : err_set(err, BERTH_ENOMEM, "opening %s: a ledger", cfg->name);
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
    for (struct dev_owner *o = d->ledger->lines, *after; o; o = after) {
        after = o->next;
        if (o->count)
            log_error(d->log, "dev.leak",
                      "dev=%s owner=\"%s\" kind=%s bytes=%" PRIu64 " ranges=%" PRIu64, d->name,
                      o->name, dev_kind_name(o->kind), o->bytes, o->count);
        free(o);
    }
    pool_free(d->pool);
    pthread_mutex_destroy(&d->ledger->lock);
    free(d->ledger);
    free(d);
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

/* BERTH_ENODEVMEM for n bytes on d: all the numbers, behind them what err said. */
static berth_status no_room(struct device *d, size_t n, berth_err *err)
{
    uint64_t in[DEV_KIND_COUNT], total, driver_free;
    char full[DEV_FULL_MAX], free_text[32] = "unknown", why[sizeof err->msg];
    const struct dev_stats s = stats_of(d->ledger);
    uint64_t pinned = dev_can(d, BERTH_CAP_HOST_VISIBLE) ? s.pinned : 0; /* as the budget has it */
    berth_err ignored;
    snprintf(why, sizeof why, "%s", err->msg);
    if (!d->phys->driver->info(d->phys, &total, &driver_free, &ignored))
        snprintf(free_text, sizeof free_text, "%" PRIu64, driver_free);
    dev_by_kind(d, in);
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
    book(o, OUT, bytes, requested);
    debug_check(d);
}

/* Tries, and as long as that ends in BERTH_ENODEVMEM and d has retired memory, takes some of it
 * back and tries again; first what is done, then what has to be waited for. */
typedef berth_status try_fn(struct device *d, void *wish, berth_err *err);
static berth_status try_hard(struct device *d, try_fn *try, void *wish, berth_err *err)
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
    berth_status s = try_hard(d, take, &w, err);
    if (s) {
        publish(d);
        return s == BERTH_ENODEVMEM ? no_room(d, n, err)
                                    : err_add(err, "%s: %zu bytes for '%s'", d->name, n, o->name);
    }
    w.range->owner = o;
    book(o, IN, w.range->n, n);
    *out = (struct dev_mem) { .dev = d, .addr = w.range->addr, .n = n, .range = w.range };
    debug_check(d);
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
    book_retired(d->ledger, IN, r->n);
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
    book_retired(d->ledger, OUT, n);
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
    publish(d);
    debug_check(d);
    log_debug(d->log, "dev.trim", "dev=%s released=%" PRIu64 " discarded=%" PRIu64 " idle=%" PRIu64,
              d->name, t.released, t.discarded, t.idle);
    return t;
}

uint64_t dev_trim_leaves(const struct device *d, dev_goes_fn *goes, void *user)
{
    return pool_trim_leaves(d->pool, goes, user);
}

/* ---- reports ---- */

berth_status dev_info(const struct device *d, struct dev_info *out, berth_err *err)
{
    *out = (struct dev_info) { .budget = d->budget };
    berth_status s = d->phys->driver->info(d->phys, &out->total, &out->free, err);
    if (s)
        return err_add(err, "%s", d->name);
    out->stats = stats_of(d->ledger);
    return BERTH_OK;
}

berth_status dev_check(const struct device *d, berth_err *err)
{
    const struct dev_stats *s = pool_stats(d->pool);
    if (pool_check(d->pool, err) || check_ledger(d->ledger, s, err))
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
    const struct dev_stats pub = stats_of(d->ledger);
    uint64_t pinned = dev_can(d, BERTH_CAP_HOST_VISIBLE) ? pub.pinned : 0;
    if (retired != pub.retired || busy != s->in_use)
        return err_set(err, BERTH_EDEVICE, "%s: retired %" PRIu64 " counted %" PRIu64, d->name,
                       retired, pub.retired);
    if (pinned > d->budget || s->in_use + s->idle > d->budget - pinned)
        return err_set(err, BERTH_EDEVICE, "%s: held %" PRIu64 " of %" PRIu64, d->name,
                       s->in_use + s->idle + pinned, d->budget);
    return BERTH_OK;
}

/* ---- host memory for copies ---- */

static bool counts(const struct device *payer) /* against its budget */
{
    return dev_can(payer, BERTH_CAP_HOST_VISIBLE);
}

/* Host memory is the host's, whoever asked for it: one ledger, one budget. */
static struct device *payer_of(const struct dev_owner *o)
{
    struct device *d = o->ledger->device;
    const struct dev_hub *hub = d->phys->hub;
    return counts(d) || !hub || !hub->host ? d : hub->host;
}

/* The pool gives up `bytes` of the payer's budget beyond what is pinned now. */
static berth_status reserve_more(struct device *payer, void *bytes, berth_err *err)
{
    uint64_t all;
    if (__builtin_add_overflow(stats_of(payer->ledger).pinned, *(size_t *)bytes, &all) ||
        !pool_reserve(payer->pool, all))
        return err_set(err, BERTH_ENODEVMEM, "host memory for copies counts there");
    return BERTH_OK;
}

static void reserve_pinned(struct device *payer) /* after it became less, or did not become more */
{
    if (counts(payer) && !pool_reserve(payer->pool, stats_of(payer->ledger).pinned))
        BUG("%s: a smaller reserve does not fit", payer->name);
    publish(payer);
    debug_check(payer);
}

static berth_status map_host(struct phys *p, size_t n, void **out, berth_err *err)
{
    if (p->driver->host_alloc)
        return p->driver->host_alloc(p, n, out, err);
    *out = dev_pages_map(n);
    return *out ? BERTH_OK : err_sys(err, BERTH_ENOMEM, errno, "%zu bytes of host memory", n);
}

/* requested: of n bytes, what the ledger is to say that was asked for. */
static berth_status host_alloc(struct device *d, struct dev_owner *o, size_t n, size_t requested,
                               struct dev_host *out, berth_err *err)
{
    struct device *payer = payer_of(o);
    struct dev_owner *line;
    size_t size;
    void *ptr;
    *out = (struct dev_host) { 0 };
    if (o->kind != DEV_PINNED)
        BUG("owner '%s' of host memory has kind %s", o->name, dev_kind_name(o->kind));
    if (!n || !sz_align(n, dev_page_size(), &size))
        return err_set(err, BERTH_EINVAL, "%s: %zu bytes of host memory", d->name, n);
    if (dev_owner_open(payer, o->name, DEV_PINNED, &line, err))
        return err->code;
    berth_status s = counts(payer) ? try_hard(payer, reserve_more, &size, err) : BERTH_OK;
    if (s == BERTH_ENODEVMEM) {
        publish(payer);
        s = no_room(payer, n, err);
    } else if (!s) {
        s = map_host(d->phys, size, &ptr, err);
    }
    if (s) {
        reserve_pinned(payer);
        dev_owner_close(line);
        return err_add(err, "%s: host memory for '%s'", d->name, o->name);
    }
    book(line, IN, size, requested);
    *out = (struct dev_host) { .phys = d->phys, .ptr = ptr, .n = n, .held = size, .owner = line };
    debug_check(payer);
    return BERTH_OK;
}

berth_status dev_host_alloc(struct device *d, struct dev_owner *o, size_t n, struct dev_host *out,
                            berth_err *err)
{
    return host_alloc(d, o, n, n, out, err);
}

static void host_free(struct dev_host *h, size_t requested)
{
    struct device *payer = h->owner->ledger->device;
    dev_host_note(h->phys, h->ptr, h->held, DEV_HOST_GONE);
    if (h->phys->driver->host_free)
        h->phys->driver->host_free(h->phys, h->ptr, h->held);
    else
        dev_pages_unmap(h->ptr, h->held);
    book(h->owner, OUT, h->held, requested);
    dev_owner_close(h->owner);
    reserve_pinned(payer);
}

/* ---- several in one ---- */

struct dev_pins {
    struct dev_host all;
    size_t used;  /* from its start, by parts, freed or not */
    size_t holds; /* parts, and who opened it */
};

berth_status dev_pins_new(struct device *d, struct dev_owner *o, size_t n, struct dev_pins **out,
                          berth_err *err)
{
    *out = NULL;
    struct dev_pins *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "a note of pinned memory");
    if (host_alloc(d, o, n, 0, &p->all, err)) {
        free(p);
        return err->code;
    }
    p->holds = 1;
    *out = p;
    return BERTH_OK;
}

void dev_pins_close(struct dev_pins *p)
{
    if (!p || --p->holds)
        return;
    host_free(&p->all, 0);
    free(p);
}

void dev_pins_part(struct dev_pins *p, size_t n, struct dev_host *out)
{
    size_t at;
    if (!n || !sz_align(p->used, p->all.phys->align, &at) || at > p->all.n || n > p->all.n - at)
        BUG("%zu more bytes of %zu, of which %zu are used", n, p->all.n, p->used);
    p->used = at + n;
    p->holds++;
    book(p->all.owner, IN, 0, n);
    *out = (struct dev_host) { .phys = p->all.phys,
                               .ptr = (char *)p->all.ptr + at,
                               .n = n,
                               .held = n,
                               .owner = p->all.owner,
                               .pins = p };
}

uint64_t dev_host_base(const struct dev_host *h)
{
    return (uintptr_t)(h->pins ? h->pins->all.ptr : h->ptr);
}

void dev_host_free(struct dev_host *h)
{
    if (!h->ptr)
        return;
    if (h->pins) {
        dev_host_note(h->phys, h->ptr, h->n, DEV_HOST_IDLE);
        book(h->owner, OUT, 0, h->n);
        dev_pins_close(h->pins);
    } else {
        host_free(h, h->n);
    }
    *h = (struct dev_host) { 0 };
}
