#include "device/ledger.h"

#include <inttypes.h>

const char *dev_kind_name(enum dev_kind kind)
{
    static const char *const name[] = {
#define KIND_NAME(id, text) text,
        DEV_KIND_MAP(KIND_NAME)
#undef KIND_NAME
    };
    return (unsigned)kind < ARRAY_LEN(name) ? name[kind] : "?";
}

berth_status ledger_new(struct device *d, struct ledger **out, berth_err *err)
{
    *out = NULL;
    struct ledger *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "a ledger");
    int e = pthread_mutex_init(&l->lock, NULL);
    if (e) {
        free(l);
        return err_sys(err, BERTH_ENOMEM, e, "a ledger's lock");
    }
    l->device = d;
    *out = l;
    return BERTH_OK;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    for (struct dev_owner *o = l->lines, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void unlink_if_unused(struct ledger *l, struct dev_owner *o) /* lock held */
{
    if (o->opens || o->count)
        return;
    if (o->prev)
        o->prev->next = o->next;
    else
        l->lines = o->next;
    if (o->next)
        o->next->prev = o->prev;
    free(o);
}

static struct dev_owner *find(struct ledger *l, const char *name, enum dev_kind kind)
{
    struct dev_owner *o = l->lines;
    while (o && (o->kind != kind || strcmp(o->name, name) != 0))
        o = o->next;
    return o;
}

berth_status ledger_line_open(struct ledger *l, const char *name, enum dev_kind kind,
                              struct dev_owner **out, berth_err *err)
{
    *out = NULL;
    size_t n = strlen(name);
    if (!n || (unsigned)kind >= DEV_POOL_IDLE)
        return err_set(err, BERTH_EINVAL, "owner '%.64s' of kind '%s'", name, dev_kind_name(kind));
    if (n >= DEV_OWNER_MAX)
        return err_set(err, BERTH_ELIMIT, "owner '%.64s...': %zu bytes of name, at most %d", name,
                       n, DEV_OWNER_MAX - 1);
    /* Lines come and go on the executor thread alone, so nothing is added between look and link. */
    pthread_mutex_lock(&l->lock);
    struct dev_owner *o = find(l, name, kind);
    if (o)
        o->opens++;
    pthread_mutex_unlock(&l->lock);
    if (!o) {
        o = calloc(1, sizeof *o + n + 1);
        if (!o)
            return err_set(err, BERTH_ENOMEM, "a ledger line for '%.64s'", name);
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
    }
    *out = o;
    return BERTH_OK;
}

void ledger_line_close(struct dev_owner *o)
{
    struct ledger *l = o->ledger;
    pthread_mutex_lock(&l->lock);
    if (!o->opens)
        BUG("owner '%s' closed more often than opened", o->name);
    o->opens--;
    unlink_if_unused(l, o);
    pthread_mutex_unlock(&l->lock);
}

/* The pool does not know of pinned and retired bytes: those stay as they are. */
static void publish(struct ledger *l, const struct dev_stats *pool) /* lock held */
{
    uint64_t pinned = l->stats.pinned, retired = l->stats.retired;
    l->stats = *pool;
    l->stats.pinned = pinned;
    l->stats.retired = retired;
}

void ledger_add(struct dev_owner *o, uint64_t bytes, uint64_t requested,
                const struct dev_stats *pool)
{
    struct ledger *l = o->ledger;
    pthread_mutex_lock(&l->lock);
    o->bytes += bytes;
    o->requested += requested;
    o->count++;
    if (o->kind == DEV_PINNED)
        l->stats.pinned += bytes;
    if (pool)
        publish(l, pool);
    pthread_mutex_unlock(&l->lock);
}

void ledger_sub(struct dev_owner *o, uint64_t bytes, uint64_t requested,
                const struct dev_stats *pool)
{
    struct ledger *l = o->ledger;
    pthread_mutex_lock(&l->lock);
    if (o->bytes < bytes || o->requested < requested || !o->count)
        BUG("owner '%s' gives back %" PRIu64 " bytes of %" PRIu64, o->name, bytes, o->bytes);
    o->bytes -= bytes;
    o->requested -= requested;
    o->count--;
    if (o->kind == DEV_PINNED)
        l->stats.pinned -= bytes;
    if (pool)
        publish(l, pool);
    unlink_if_unused(l, o);
    pthread_mutex_unlock(&l->lock);
}

void ledger_publish(struct ledger *l, const struct dev_stats *pool)
{
    pthread_mutex_lock(&l->lock);
    publish(l, pool);
    pthread_mutex_unlock(&l->lock);
}

void ledger_retired(struct ledger *l, uint64_t add, uint64_t sub)
{
    pthread_mutex_lock(&l->lock);
    l->stats.retired += add;
    l->stats.retired -= sub;
    pthread_mutex_unlock(&l->lock);
}

struct dev_stats ledger_stats(struct ledger *l)
{
    pthread_mutex_lock(&l->lock);
    struct dev_stats s = l->stats;
    pthread_mutex_unlock(&l->lock);
    return s;
}

void ledger_by_kind(struct ledger *l, uint64_t in[DEV_KIND_COUNT])
{
    memset(in, 0, DEV_KIND_COUNT * sizeof *in);
    pthread_mutex_lock(&l->lock);
    for (const struct dev_owner *o = l->lines; o; o = o->next)
        in[o->kind] += o->bytes;
    in[DEV_POOL_IDLE] = l->stats.idle;
    pthread_mutex_unlock(&l->lock);
}

size_t ledger_rows(struct ledger *l, struct dev_ledger_row *row, size_t cap, struct dev_stats *sum)
{
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

berth_status ledger_check(struct ledger *l, const struct dev_stats *pool, berth_err *err)
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
