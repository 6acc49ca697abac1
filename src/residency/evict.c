/* evict: who holds a model, and who leaves a device that is short, in which order. The one place
 * that decides it.
 *
 * res_evict() takes one step per call, the next one only when the allocation still fails:
 *   0  memory that was retired and is no longer read
 *   1  idle bytes of the other logical devices on the same hardware (the device's own pool gives
 *      its idle bytes up by itself)
 *   2  models marked eject go whole, and those that only linger (res_linger()): nobody wants them
 *      once the prompt ends, so moving their blocks would be wasted
 *   3  auto models: as many blocks as needed move to the plan's other devices, else to the host,
 *      where there is room for all of them without evicting anybody; the least recently used model
 *      first, its last blocks in execution order first
 *   4  auto models go whole, see cost()
 *   5  steps 2 to 4 again for the models that the running prompt has used: it may want them again,
 *      including those that are to go when it ends
 *   6  keep models go whole, only when the request says so; those of the running prompt last
 * Never: models in use, the model that the memory is for, and anything at all when evicting
 * everything evictable would not be enough, counted from what the driver really has
 * (res_left_on()). What is left then is res_evict_own(): whoever computes with a model and can stop
 * using it for a moment lets the model's own blocks leave (net/run.c), and others leave by the
 * steps above where those blocks go. */
#include "residency/residency_impl.h"

#include <inttypes.h>
#include <stdarg.h>

/* ---- the end of a model ---- */

void res_model_free(struct res_model *m)
{
    for (size_t d = 0; m->owners && d < m->res->n_devices; d++) {
        dev_owner_close(m->owners[d].weights);
        dev_owner_close(m->owners[d].pinned);
    }
    for (size_t i = 0; i < m->patches.n; i++)
        res_adapter_unref(((struct res_patch *)vec_at(&m->patches, i))->adapter);
    vec_release(&m->patches);
    free(m->owners);
    free(m->bytes_on);
    free(m->block);
    free(m->key.text);
    free(m->name);
    free(m->role);
    free(m->path);
    free(m->part);
    free(m->options);
    free(m->wide);
    plan_release(&m->plan);
    blocks_release(&m->blocks);
    weights_close(m->weights);
    free(m);
}

void res_model_gone(struct res_model *m)
{
    struct residency *r = m->res;
    if (m->handles || res_model_busy(m))
        BUG("model '%s' goes with %u handles and %u uses", m->owner, m->handles, m->uses);
    res_drop_all(m);
    *(m->prev ? &m->prev->next : &r->first) = m->next;
    *(m->next ? &m->next->prev : &r->last) = m->prev;
    r->models--;
    log_debug(r->log, "res.gone", "model=%s", m->owner);
    res_model_free(m);
}

unsigned res_anchors(const struct res_model *m)
{
    unsigned n = 0;
    for (size_t i = 0; i < RES_ANCHOR_COUNT; i++)
        n += m->anchor[i];
    return n;
}

struct res_model *res_model_by_id(const struct residency *r, uint64_t id)
{
    struct res_model *m = r->first;
    while (m && m->id != id)
        m = m->next;
    return m;
}

bool res_model_held(const struct res_model *m)
{
    return m->handles || res_model_busy(m) || (res_anchors(m) && m->state == RES_RESIDENT);
}

bool res_model_maybe_gone(struct res_model *m)
{
    if (res_model_held(m))
        return false;
    res_model_gone(m);
    return true;
}

bool res_only_lingers(const struct res_model *m)
{
    return m->anchor[RES_ANCHOR_PROMPT] && !m->handles && !m->anchor[RES_ANCHOR_SURVIVED] &&
           m->retention == RES_AUTO;
}

/* ---- handles ---- */

void res_ref(struct res_model *m)
{
    m->handles++;
}

void res_unref(struct res_model *m)
{
    if (!m)
        return;
    struct residency *r = m->res;
    if (!m->handles)
        BUG("model '%s' has no handle to give back", m->owner);
    m->handles--;
    res_model_maybe_gone(m);
    res_check_now(r);
}

/* ---- uses, anchors, retention ---- */

berth_status res_use_begin(struct res_model *m, berth_err *err)
{
    if (m->state != RES_RESIDENT)
        return err_set(err, BERTH_EINVAL, "model %s is %s: only a resident one can be used",
                       m->owner, res_state_name(m->state));
    if (m->patches_changed)
        return err_set(err, BERTH_EINVAL, "model %s: its adapters changed: load it first",
                       m->owner);
    m->uses++;
    m->used_in_prompt = true;
    res_touch(m);
    return BERTH_OK;
}

void res_use_end(struct res_model *m)
{
    struct residency *r = m->res;
    if (!m->uses)
        BUG("model '%s' is not in use", m->owner);
    m->uses--;
    res_touch(m);
    res_model_maybe_gone(m);
    res_check_now(r);
}

void res_set_retention(struct res_model *m, enum res_retention x)
{
    struct residency *r = m->res;
    if (x != m->retention)
        log_info(r->log, "res.retention", "model=%s was=%s is=%s", m->owner,
                 res_retention_name(m->retention), res_retention_name(x));
    m->retention = x;
    bool said = m->anchor[RES_ANCHOR_KEEP] || m->anchor[RES_ANCHOR_MARKED];
    bool stays = said || m->anchor[RES_ANCHOR_SURVIVED];
    m->anchor[RES_ANCHOR_KEEP] = x == RES_KEEP;
    m->anchor[RES_ANCHOR_MARKED] = 0;
    if (x == RES_AUTO && said)
        m->anchor[RES_ANCHOR_SURVIVED] = 1;
    if (x == RES_EJECT) {
        memset(m->anchor, 0, sizeof m->anchor);
        m->anchor[RES_ANCHOR_MARKED] = stays && m->state == RES_RESIDENT && !res_model_held(m);
    }
    res_model_maybe_gone(m);
    res_check_now(r);
}

void res_linger(struct res_model *m)
{
    if (m->res->prompt_running && m->retention == RES_AUTO && m->state == RES_RESIDENT)
        m->anchor[RES_ANCHOR_PROMPT] = 1;
}

void res_linger_end(struct residency *r)
{
    for (struct res_model *m = r->first, *next; m; m = next) {
        next = m->next;
        if (m->anchor[RES_ANCHOR_PROMPT]) {
            m->anchor[RES_ANCHOR_PROMPT] = 0;
            res_model_maybe_gone(m);
        }
    }
}

/* ---- who may go ---- */

static bool may_go(const struct res_model *m, const struct res_model *for_model)
{
    return m != for_model && !res_model_busy(m) && m->state == RES_RESIDENT;
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

bool res_evict_could(const struct residency *r, const struct res_need *need)
{
    struct dev_stats s;
    dev_ledger(res_device(r, need->device), NULL, 0, &s);
    uint64_t sum = res_left_on(r, need->device) + s.retired;
    for (const struct res_model *m = r->first; m && sum < need->bytes; m = m->next)
        if (may_go(m, need->for_model) && (m->retention != RES_KEEP || need->evict_keep))
            sum += held_on(m, need->device);
    return sum >= need->bytes;
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

/* ---- ejecting ---- */

/* RESIDENT -> EJECTED, or gone when nothing but its bytes' anchors held it. pre: not in use.
 * device: the one that is short, or n_devices; why: for the log, "asked", "room" ... */
static void eject_for(struct res_model *m, size_t device, const char *why)
{
    struct residency *r = m->res;
    uint64_t bytes = 0;
    for (size_t d = 0; d < r->n_devices; d++)
        bytes += device == r->n_devices || d == device ? m->bytes_on[d] : 0;
    log_info(r->log, "res.evict", "model=%s bytes=%" PRIu64 " dev=%s why=%s", m->owner, bytes,
             device < r->n_devices ? res_device(r, device)->name : "all", why);
    res_drop_all(m);
    m->state = RES_EJECTED;
    m->anchor[RES_ANCHOR_MARKED] = 0; /* what it was marked for has happened */
    r->metrics.ejects++;
    res_model_maybe_gone(m);
}

berth_status res_eject(struct res_model *m, berth_err *err)
{
    struct residency *r = m->res;
    if (res_model_busy(m))
        return err_set(err, BERTH_EBUSY, "model %s is in use (%u) and stays", m->owner, m->uses);
    if (m->state == RES_RESIDENT)
        eject_for(m, r->n_devices, "asked");
    res_check_now(r);
    return BERTH_OK;
}

static bool eject_one(const struct residency *r, const struct group *g)
{
    struct res_model *m = cheapest(r, g);
    if (m)
        eject_for(m, g->d, "room");
    return m != NULL;
}

/* ---- moving out of the way ---- */

static bool is_among(size_t d, const size_t *at, size_t n)
{
    while (n && at[n - 1] != d)
        n--;
    return n > 0;
}

/* Where m's blocks of device d may go for for_model, best first: devices of its plan that do not
 * compute, then the host; none that eject_others clears for its load. For m's own activations,
 * where nobody said how to place it, any other device comes last: a plan made for less memory would
 * have put blocks there, and more must not fail where less succeeds. Returns how many. */
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
    for (size_t i = 0; for_model == m && m->plan.quotas.automatic && i < r->n_devices; i++)
        if (i != d && i != cleared && n < ALLOC_ENTRIES_MAX + 1 && !is_among(i, out, n))
            out[n++] = i;
    return n;
}

typedef berth_status move_fn(struct res_model *m, size_t i, size_t d, berth_err *err);

/* Block i to a shelter, by `move`. */
static bool shelter_block(struct res_model *m, size_t i, size_t to, move_fn *move)
{
    berth_err err;
    berth_status s = move(m, i, to, &err);
    if (s && s != BERTH_ENODEVMEM)
        log_warn(m->res->log, "res.demote", "model=%s why=\"%s\"", m->owner, err.msg);
    return !s;
}

struct demoted { /* what left a device so far */
    uint64_t blocks, bytes, spans;
};

static void count_demoted(struct res_model *m, size_t d, const struct demoted *x, const char *why)
{
    struct residency *r = m->res;
    if (!x->blocks)
        return;
    r->metrics.demotions += x->blocks;
    r->metrics.demoted_bytes += x->bytes;
    log_info(r->log, "res.demote", "model=%s blocks=%" PRIu64 " bytes=%" PRIu64 " dev=%s why=%s",
             m->owner, x->blocks, x->bytes, res_device(r, d)->name, why);
}

/* The last block of m on d that has memory there, before block `end`; end: none. */
static size_t last_on(const struct res_model *m, size_t d, size_t end)
{
    for (size_t i = end; i-- > 0;)
        if (m->block[i].device == d && m->block[i].span)
            return i;
    return end;
}

/* Moves m's blocks away from d, to its donors or the host, until `wanted` bytes are free or nothing
 * more can be moved without evicting anybody there. Returns the bytes that left. */
static uint64_t demote(struct res_model *m, const struct res_need *need, const char *why)
{
    size_t to[ALLOC_ENTRIES_MAX + 1], n = shelters(m, need->device, need->for_model, to);
    struct demoted x = { 0 };
    size_t end = m->blocks.n;
    for (size_t i; n && x.spans < need->bytes; end = i) {
        size_t k = 0;
        if ((i = last_on(m, need->device, end)) == end)
            break;
        uint64_t span = m->block[i].span, size = m->block[i].bytes;
        while (k < n &&
               (res_left_on(m->res, to[k]) < span || !shelter_block(m, i, to[k], res_block_move)))
            k++;
        if (k == n)
            break; /* smaller ones may still fit, but then a model leaves in crumbs */
        x.spans += span;
        x.bytes += size;
        x.blocks++;
    }
    count_demoted(m, need->device, &x, why);
    return x.spans;
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
            freed += demote(m, &(struct res_need) { d, need - freed, g->for_model, false }, "room");
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

bool res_evict(struct residency *r, const struct res_need *need)
{
    size_t d = need->device;
    if (take_retired(r, d) || trim_neighbours(r, d))
        return true;
    if (!res_evict_could(r, need))
        return false;
    for (int in_prompt = 0; in_prompt < 2; in_prompt++) {
        const struct group marked = { d, need->for_model, RES_EJECT, in_prompt };
        const struct group others = { d, need->for_model, RES_AUTO, in_prompt };
        if (eject_one(r, &marked) || demote_some(r, &others, need->bytes) || eject_one(r, &others))
            return true;
    }
    const struct group kept = { d, need->for_model, RES_KEEP, false };
    const struct group kept_in_prompt = { d, need->for_model, RES_KEEP, true };
    return need->evict_keep && (eject_one(r, &kept) || eject_one(r, &kept_in_prompt));
}

void res_evict_others(struct res_model *m)
{
    struct residency *r = m->res;
    size_t d = m->compute;
    for (struct res_model *o = r->first, *next; o; o = next) {
        next = o->next; /* o may be gone below */
        if (o->retention == RES_KEEP || !o->bytes_on[d] || !may_go(o, m))
            continue;
        if (o->retention == RES_AUTO && !res_only_lingers(o))
            demote(o, &(struct res_need) { d, UINT64_MAX, m, false }, "eject_others");
        if (o->bytes_on[d])
            eject_for(o, d, "eject_others");
    }
}

/* ---- what to say when it is not enough ---- */

#define HOLDERS_MAX 210 /* bytes of a list of holders, which ends in "..." where it is cut */

static void list_add(struct str *list, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void list_add(struct str *list, const char *fmt, ...)
{
    char item[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(item, sizeof item, fmt, ap);
    va_end(ap);
    if (list->n + strlen(item) <= HOLDERS_MAX)
        str_addf(list, "%s%s", list->n ? ", " : "", item);
    else if (!str_ends(list->p, list->n, "..."))
        str_adds(list, ", ...");
}

/* What others than models hold there, by kind. */
static void list_kinds(const struct residency *r, size_t d, struct str *l)
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

/* "flux#1 keep 4.0 GiB, ...": who has the device's memory, largest first. */
static void list_holders(const struct residency *r, size_t d, const struct res_model *for_model,
                         struct str *l)
{
    char text[STR_BYTES_MAX];
    list_kinds(r, d, l);
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
        list_add(l, "%.48s %s %s%s", best->owner, res_retention_name(best->retention),
                 str_bytes(last, text),
                 best == for_model ? " (itself)"
                 : best->uses      ? " (in use)"
                                   : "");
    }
    if (!l->n)
        str_adds(l, "nothing");
}

/* Where else the model's plan has blocks, and what is left there: a full device is rarely the whole
 * story. */
static void append_plan(const struct residency *r, const struct res_need *need, berth_err *err)
{
    const struct res_model *m = need->for_model;
    char holds[STR_BYTES_MAX], left[STR_BYTES_MAX], budget[STR_BYTES_MAX];
    for (size_t d = 0; m && d < r->n_devices && d < m->plan.devices.n; d++) {
        uint64_t held = m->plan.share[d].held;
        if (d != need->device && held)
            err_append(err, "; its plan has %s on %s, where %s of %s are left",
                       str_bytes(held, holds), res_device(r, d)->name,
                       str_bytes(res_left_on(r, d), left),
                       str_bytes(res_device(r, d)->budget, budget));
    }
}

berth_status res_evict_failed(const struct residency *r, const struct res_need *need,
                              berth_err *err)
{
    const struct device *dev = res_device(r, need->device);
    char full[DEV_FULL_MAX];
    struct str holders = { 0 };
    uint64_t left = res_left_on(r, need->device);
    struct dev_stats s;
    dev_ledger(dev, NULL, 0, &s);
    bool others = dev->budget > s.in_use + left && !dev_can(dev, BERTH_CAP_HOST_VISIBLE);
    list_holders(r, need->device, need->for_model, &holders);
    err_set(err, BERTH_ENODEVMEM, "%s%s; in the way: %s", dev_full(dev, need->bytes, left, full),
            others ? " by its driver" : "", str_c(&holders));
    str_release(&holders);
    append_plan(r, need, err);
    return err_on_device(err, dev->name, need->bytes);
}

/* ---- memory, evicting others where it must ---- */

static size_t index_of(const struct residency *r, const struct device *d)
{
    size_t i = 0;
    while (i < r->n_devices && res_device(r, i) != d)
        i++;
    if (i == r->n_devices)
        BUG("device %s is not of this registry", d->name);
    return i;
}

berth_status res_alloc(struct residency *r, const struct res_alloc_args *a, struct dev_mem *out,
                       berth_err *err)
{
    const struct res_need need = { index_of(r, a->dev), a->bytes, a->for_model, false };
    berth_status s = dev_alloc(a->dev, a->owner, a->bytes, out, err);
    while (s == BERTH_ENODEVMEM && res_evict(r, &need))
        s = dev_alloc(a->dev, a->owner, a->bytes, out, err);
    return s == BERTH_ENODEVMEM ? res_evict_failed(r, &need, err) : s;
}

berth_status res_evict_for_block(struct res_model *m, size_t i, const struct res_place *at,
                                 bool evict_keep, struct res_block *out, berth_err *err)
{
    const struct res_need need = { at->device, at->span, m, evict_keep };
    berth_status s = res_block_alloc(m, i, at, out, err);
    while (s == BERTH_ENODEVMEM && res_evict(m->res, &need))
        s = res_block_alloc_unpinned(m, i, at, out, err);
    if (s != BERTH_ENODEVMEM)
        return s;
    res_evict_failed(m->res, &need, err);
    return res_block_err(m, i, at->device, err);
}

berth_status res_evict_for_move(struct res_model *m, size_t i, size_t d, berth_err *err)
{
    struct res_block to;
    const struct res_place at = { .device = d, .span = m->block[i].span };
    if (res_evict_for_block(m, i, &at, false, &to, err))
        return res_moving_err(m, i, err);
    return res_block_move_to(m, i, &to, err);
}

/* ---- a model's own blocks ---- */

/* One block of m leaves d for a shelter that others leave for it. Returns the bytes that left. */
static uint64_t push_one(struct res_model *m, size_t d, const char *why)
{
    size_t to[ALLOC_ENTRIES_MAX + 1], n = shelters(m, d, m, to), i = last_on(m, d, m->blocks.n);
    if (i == m->blocks.n)
        return 0;
    const struct demoted x = { 1, m->block[i].bytes, m->block[i].span };
    for (size_t k = 0; k < n; k++)
        if (shelter_block(m, i, to[k], res_evict_for_move)) {
            count_demoted(m, d, &x, why);
            return x.spans;
        }
    return 0;
}

uint64_t res_evict_own(struct res_model *m, uint64_t wanted)
{
    size_t d = m->compute;
    if (res_model_busy(m) || m->state != RES_RESIDENT)
        return 0;
    uint64_t own = held_on(m, d);
    struct res_need need = { d, wanted > own ? wanted - own : 0, m, false };
    if (!res_evict_could(m->res, &need))
        return 0;
    uint64_t left = res_left_on(m->res, d);
    /* Enough by the budget, but in pieces, or not for more than `wanted`: one block, then ask
     * again. */
    need.bytes = wanted > left ? wanted - left : 1;
    uint64_t freed = demote(m, &need, "activations");
    if (!freed) /* whoever left may have left d, too: one block, then ask again */
        freed = push_one(m, d, "activations");
    res_check_now(m->res);
    return freed;
}
