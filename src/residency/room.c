/* room: who leaves a device that is short, and in which order.
 *
 * By bytes on the device that is short, one step per call of res_make_room(), the next one only
 * when the allocation still fails:
 *   0  memory that was retired and is no longer read
 *   1  idle bytes of the other logical devices on the same hardware (the device's own pool gives
 *      its idle bytes up by itself)
 *   2  eject models go whole, and those that only linger (res_linger()): nobody wants them any more
 *      once the prompt ends, so that moving their blocks would be for nothing
 *   3  auto models: as many blocks as are needed move to the plan's other devices, else to the
 *      host, where there is room for all of them without asking anybody; the model that was not
 *      used for longest first, its last blocks in execution order first
 *   4  auto models go whole, see cost()
 *   5  steps 2 to 4 again for the models that the running prompt has used: it may want them again,
 *      also those that are to go when it ends
 *   6  keep models go whole, only when the request says so; those of the running prompt last
 * Never: models in use, the model that the memory is for, and anything at all when even all of it
 * would not be enough, counted from what the driver really has (res_left_on()). What is left then
 * is res_make_way(): who computes with a model and can stop using it for a moment lets its own
 * blocks step aside (net/run.c), and by these steps others leave where those blocks go. */
#include "residency/residency_impl.h"

#include <inttypes.h>
#include <stdarg.h>

/* ---- who may go ---- */

static bool may_go(const struct res_model *m, const struct res_model *for_model)
{
    return m != for_model && !res_model_busy(m) && m->state == RES_RESIDENT;
}

bool res_only_lingers(const struct res_model *m)
{
    return m->anchor[RES_ANCHOR_PROMPT] && !m->handles && !m->anchor[RES_ANCHOR_USER] &&
           !m->anchor[RES_ANCHOR_SURVIVED] && m->retention == RES_AUTO;
}

/* Bytes of the device that a model's leaving would free, and a little more: a pool's ranges may be
 * up to an eighth larger than what was asked for. */
static uint64_t held_on(const struct res_model *m, size_t d)
{
    uint64_t sum = 0;
    for (size_t i = 0; m->bytes_on[d] && i < m->blocks.n; i++)
        if (m->block[i].device == d)
            sum += (m->block[i].span + DEV_ALIGN_MIN - 1) & ~(uint64_t)(DEV_ALIGN_MIN - 1);
    return sum + sum / 8;
}

bool res_could_suffice(const struct residency *r, size_t d, uint64_t wanted,
                       const struct res_model *for_model, bool evict_keep)
{
    struct dev_stats s;
    dev_ledger(res_device(r, d), NULL, 0, &s);
    uint64_t sum = res_left_on(r, d) + s.retired;
    for (const struct res_model *m = r->first; m && sum < wanted; m = m->next)
        if (may_go(m, for_model) && (m->retention != RES_KEEP || evict_keep))
            sum += held_on(m, d);
    return sum >= wanted;
}

/* One set of models that may go: those with bytes on d, of one retention, used by the running
 * prompt or not. */
struct group {
    size_t d;
    const struct res_model *for_model;
    enum res_retention which;
    bool in_prompt;
};

static bool in_group(const struct res_model *m, const struct group *g)
{
    enum res_retention as = res_only_lingers(m) ? RES_EJECT : m->retention;
    return as == g->which && m->bytes_on[g->d] && may_go(m, g->for_model) &&
           (m->res->prompt_running && m->used_in_prompt) == g->in_prompt;
}

/* How much is lost when m goes from d, per idle second and byte that it frees there:
 *     bytes to read again / (seconds since its last use * bytes it frees on d)
 * The smallest goes first; of equals the one with the fewest bytes to read again, then the
 * oldest. */
struct cost {
    double rate;
    uint64_t reload, id;
};

static struct cost cost(const struct res_model *m, size_t d)
{
    const struct residency *r = m->res;
    uint64_t now = res_now(r);
    double idle = now > m->last_use ? (double)(now - m->last_use) : 0;
    return (struct cost) { .rate = (double)m->blocks.bytes /
                                   ((idle + 1) * (double)(m->bytes_on[d] ? m->bytes_on[d] : 1)),
                           .reload = m->blocks.bytes,
                           .id = m->id };
}

static bool cheaper(const struct cost *a, const struct cost *b)
{
    if (a->rate < b->rate || a->rate > b->rate)
        return a->rate < b->rate;
    return a->reload != b->reload ? a->reload < b->reload : a->id < b->id;
}

static struct res_model *cheapest(const struct residency *r, const struct group *g)
{
    struct res_model *best = NULL;
    struct cost least = { 0 };
    for (struct res_model *m = r->first; m; m = m->next) {
        if (!in_group(m, g))
            continue;
        struct cost c = cost(m, g->d);
        if (!best || cheaper(&c, &least)) {
            best = m;
            least = c;
        }
    }
    return best;
}

static bool eject_one(const struct residency *r, const struct group *g)
{
    struct res_model *m = cheapest(r, g);
    if (m)
        res_eject_for(m, g->d, "room");
    return m != NULL;
}

/* ---- moving out of the way ---- */

/* Where m's blocks of device d may go for for_model, best first: devices of its plan that do not
 * compute, then the host; none that eject_others clears for its load. Returns how many. */
static size_t shelters(const struct res_model *m, size_t d, const struct res_model *for_model,
                       size_t out[ALLOC_ENTRIES_MAX + 1])
{
    const struct residency *r = m->res;
    bool clears = for_model && for_model->eject_others && for_model->state == RES_LOADING;
    size_t n = 0, cleared = clears ? for_model->compute : SIZE_MAX;
    for (size_t i = 0; i < m->plan.quotas.n; i++) {
        size_t at = m->plan.quotas.at[i].device;
        if (at != d && at != m->compute && at != r->host && at != cleared)
            out[n++] = at;
    }
    if (r->host < r->n_devices && r->host != d && r->host != cleared)
        out[n++] = r->host;
    return n;
}

/* Block i to the first shelter that takes it, or, with `push`, that others leave for it; false: none
 * does. */
static bool shelter_block(struct res_model *m, size_t i, const size_t *to, size_t n, bool push)
{
    const struct residency *r = m->res;
    for (size_t k = 0; k < n; k++) {
        berth_err err;
        if (!push && res_left_on(r, to[k]) < m->block[i].span)
            continue;
        berth_status s = res_block_move(m, i, to[k], push, &err);
        if (!s)
            return true;
        if (s != BERTH_ENODEVMEM)
            log_warn(r->log, "res.demote", "model=%s why=\"%s\"", m->owner, err.msg);
    }
    return false;
}

/* Moves m's blocks away from d, to its donors or the host, until `wanted` bytes are free or nothing
 * more can be moved: without making room there, or with `push` by making it. Returns the bytes that
 * left. */
static uint64_t demote(struct res_model *m, size_t d, const struct res_model *for_model,
                       uint64_t wanted, bool push, const char *why)
{
    struct residency *r = m->res;
    size_t to[ALLOC_ENTRIES_MAX + 1], n = shelters(m, d, for_model, to);
    uint64_t freed = 0, bytes = 0, blocks = 0;
    for (size_t i = m->blocks.n; n && i-- > 0 && freed < wanted;) {
        struct res_block *b = &m->block[i];
        if (b->device != d || !b->span)
            continue;
        uint64_t span = b->span, size = b->bytes;
        if (!shelter_block(m, i, to, n, push))
            break; /* smaller ones may still fit, but then a model goes in crumbs */
        freed += span;
        bytes += size;
        blocks++;
    }
    if (!blocks)
        return 0;
    r->metrics.demotions += blocks;
    r->metrics.demoted_bytes += bytes;
    log_info(r->log, "res.demote", "model=%s blocks=%" PRIu64 " bytes=%" PRIu64 " dev=%s why=%s",
             m->owner, blocks, bytes, res_device(r, d)->name, why);
    return freed;
}

static struct res_model *longest_unused(const struct residency *r, const struct group *g,
                                        uint64_t after, uint64_t after_id)
{
    struct res_model *best = NULL;
    for (struct res_model *m = r->first; m; m = m->next) {
        if (!in_group(m, g))
            continue;
        if (m->last_use < after || (m->last_use == after && m->id <= after_id))
            continue;
        if (!best || m->last_use < best->last_use)
            best = m;
    }
    return best;
}

/* Is there room for what m would have to move? Copying a part of it and then throwing all of it out
 * would be the worst of both. */
static bool finds_shelter(const struct res_model *m, const struct group *g, uint64_t need)
{
    size_t to[ALLOC_ENTRIES_MAX + 1], d = g->d, n = shelters(m, d, g->for_model, to);
    uint64_t left = 0;
    for (size_t k = 0; k < n; k++)
        left += res_left_on(m->res, to[k]);
    return left >= (need < m->bytes_on[d] ? need : m->bytes_on[d]);
}

static bool demote_some(const struct residency *r, const struct group *g, uint64_t wanted)
{
    size_t d = g->d;
    uint64_t left = res_left_on(r, d), freed = 0, last = 0, id = 0;
    uint64_t need = wanted > left ? wanted - left : wanted; /* enough by the budget: fragments */
    for (struct res_model *m; freed < need; last = m->last_use, id = m->id) {
        m = longest_unused(r, g, last, id);
        if (!m)
            break;
        if (finds_shelter(m, g, need - freed))
            freed += demote(m, d, g->for_model, need - freed, false, "room");
    }
    return freed > 0;
}

/* ---- steps ---- */

static bool take_retired(const struct residency *r, size_t d)
{
    uint64_t freed = 0;
    berth_err err;
    if (dev_drain(res_device(r, d), &freed, &err))
        log_warn(r->log, "res.room", "dev=%s why=\"%s\"", res_device(r, d)->name, err.msg);
    return freed > 0;
}

static bool trim_neighbours(const struct residency *r, size_t d)
{
    bool gave = false;
    for (size_t i = 0; i < r->n_devices; i++) {
        struct dev_stats s;
        struct device *n = res_device(r, i);
        if (i == d || n->phys != res_device(r, d)->phys)
            continue;
        dev_ledger(n, NULL, 0, &s);
        if (!s.idle)
            continue;
        struct dev_trimmed t = dev_trim(n);
        gave |= t.released + t.discarded > 0;
    }
    return gave;
}

bool res_make_room(struct residency *r, size_t d, uint64_t wanted,
                   const struct res_model *for_model, bool evict_keep)
{
    if (take_retired(r, d) || trim_neighbours(r, d))
        return true;
    if (!res_could_suffice(r, d, wanted, for_model, evict_keep))
        return false;
    for (int in_prompt = 0; in_prompt < 2; in_prompt++) {
        const struct group marked = { d, for_model, RES_EJECT, in_prompt };
        const struct group others = { d, for_model, RES_AUTO, in_prompt };
        if (eject_one(r, &marked) || demote_some(r, &others, wanted) || eject_one(r, &others))
            return true;
    }
    const struct group kept = { d, for_model, RES_KEEP, false };
    const struct group kept_in_prompt = { d, for_model, RES_KEEP, true };
    return evict_keep && (eject_one(r, &kept) || eject_one(r, &kept_in_prompt));
}

uint64_t res_make_way(struct res_model *m, uint64_t wanted)
{
    size_t d = m->compute;
    if (res_model_busy(m) || m->state != RES_RESIDENT)
        return 0;
    uint64_t own = held_on(m, d);
    if (!res_could_suffice(m->res, d, wanted > own ? wanted - own : 0, m, false))
        return 0;
    uint64_t left = res_left_on(m->res, d);
    /* Enough by the budget, but in pieces, or not for more than `wanted`: one block, then ask
     * again. */
    uint64_t freed = demote(m, d, m, wanted > left ? wanted - left : 1, false, "activations");
    if (!freed) /* whoever left may have left d, too: one block, then ask again */
        freed = demote(m, d, m, 1, true, "activations");
    res_check_now(m->res);
    return freed;
}

void res_eject_others(struct res_model *m)
{
    struct residency *r = m->res;
    size_t d = m->compute;
    for (struct res_model *o = r->first, *next; o; o = next) {
        next = o->next; /* o may be gone below */
        if (o->retention == RES_KEEP || !o->bytes_on[d] || !may_go(o, m))
            continue;
        if (o->retention == RES_AUTO && !res_only_lingers(o))
            demote(o, d, m, UINT64_MAX, false, "eject_others");
        if (o->bytes_on[d])
            res_eject_for(o, d, "eject_others");
    }
}

/* ---- the door ---- */

struct list { /* text in a buffer, cut with "..." */
    char *p;
    size_t n, cap;
};

static void list_add(struct list *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void list_add(struct list *l, const char *fmt, ...)
{
    char item[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(item, sizeof item, fmt, ap);
    va_end(ap);
    size_t n = strlen(item);
    if (l->n + n + sizeof ", ..." > l->cap) {
        if (l->n + sizeof ", ..." <= l->cap && !(l->n >= 3 && l->p[l->n - 1] == '.'))
            l->n += (size_t)snprintf(l->p + l->n, l->cap - l->n, ", ...");
        return;
    }
    l->n += (size_t)snprintf(l->p + l->n, l->cap - l->n, "%s%s", l->n ? ", " : "", item);
}

/* What others than models hold there, by kind. */
static void list_kinds(const struct residency *r, size_t d, struct list *l)
{
    struct dev_ledger_row row[64];
    uint64_t sum[DEV_KIND_COUNT] = { 0 }, models = 0;
    char text[STR_BYTES_MAX];
    size_t n = dev_ledger(res_device(r, d), row, ARRAY_LEN(row), NULL);
    for (size_t i = 0; i < n && i < ARRAY_LEN(row); i++)
        sum[row[i].kind] += row[i].bytes;
    for (const struct res_model *m = r->first; m; m = m->next)
        for (size_t i = 0; d == r->host && i < m->blocks.n; i++)
            models += m->block[i].host.held;
    sum[DEV_PINNED] -= models < sum[DEV_PINNED] ? models : sum[DEV_PINNED];
    for (size_t k = 0; k < DEV_KIND_COUNT; k++)
        if (sum[k] && k != DEV_WEIGHTS && k != DEV_POOL_IDLE)
            list_add(l, "%s %s", dev_kind_name((enum dev_kind)k), str_bytes(sum[k], text));
}

void res_in_the_way(const struct residency *r, size_t d, const struct res_model *for_model,
                    char *buf, size_t cap)
{
    struct list l = { .p = buf, .cap = cap };
    char text[STR_BYTES_MAX];
    buf[0] = 0;
    list_kinds(r, d, &l);
    /* Largest first, so that what is cut matters least. */
    uint64_t last = UINT64_MAX, last_id = 0;
    for (;;) {
        const struct res_model *best = NULL;
        for (const struct res_model *m = r->first; m; m = m->next) {
            uint64_t n = m->bytes_on[d];
            bool behind = n < last || (n == last && m->id > last_id);
            if (n && behind && (!best || n > best->bytes_on[d]))
                best = m;
        }
        if (!best)
            break;
        last = best->bytes_on[d];
        last_id = best->id;
        list_add(&l, "%.48s %s %s%s", best->owner, res_retention_name(best->retention),
                 str_bytes(last, text),
                 best == for_model ? " (itself)"
                 : best->uses      ? " (in use)"
                                   : "");
    }
    if (!buf[0])
        snprintf(buf, cap, "nothing");
}

berth_status res_no_room(const struct residency *r, size_t d, uint64_t wanted,
                         const struct res_model *for_model, berth_err *err)
{
    const struct device *dev = res_device(r, d);
    char way[220], full[DEV_FULL_MAX];
    uint64_t left = res_left_on(r, d);
    struct dev_stats s;
    dev_ledger(dev, NULL, 0, &s);
    bool others = dev->budget > s.in_use + left && !dev_can(dev, BERTH_CAP_HOST_VISIBLE);
    res_in_the_way(r, d, for_model, way, sizeof way);
    return err_set(err, BERTH_ENODEVMEM, "%s%s; in the way: %s", dev_full(dev, wanted, left, full),
                   others ? " by its driver" : "", way);
}

static size_t index_of(const struct residency *r, const struct device *d)
{
    size_t i = 0;
    while (i < r->n_devices && res_device(r, i) != d)
        i++;
    if (i == r->n_devices)
        BUG("device %s is not of this registry", d->name);
    return i;
}

berth_status res_alloc(struct residency *r, struct device *d, struct dev_owner *o, size_t n,
                       const struct res_model *for_model, bool evict_keep, struct dev_mem *out,
                       berth_err *err)
{
    size_t i = index_of(r, d);
    berth_status s = dev_alloc(d, o, n, out, err);
    while (s == BERTH_ENODEVMEM && res_make_room(r, i, n, for_model, evict_keep))
        s = dev_alloc(d, o, n, out, err);
    return s == BERTH_ENODEVMEM ? res_no_room(r, i, n, for_model, err) : s;
}
