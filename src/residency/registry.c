/* registry: the models there are. Who holds one, when it goes, what it looks like. Nothing here
 * moves a byte but by ending a model. */
#include "residency/residency_impl.h"

/* ---- life of a registry ---- */

/* RAM itself: host memory under its own name. A card's name on it (cuda:0@cpu) is a card. */
static size_t find_host(const struct devset *set)
{
    for (size_t i = 0; i < devset_count(set); i++) {
        const struct device *d = devset_at(set, i);
        if (dev_can(d, BERTH_CAP_HOST_VISIBLE) && strcmp(d->name, d->phys->name) == 0)
            return i;
    }
    return devset_count(set);
}

static uint64_t pin_budget_of(const struct residency *r)
{
    if (r->cfg.pin_budget == RES_NO_PINS || r->host == r->n_devices)
        return 0;
    return r->cfg.pin_budget ? r->cfg.pin_budget : res_device(r, r->host)->budget / 4;
}

berth_status residency_new(const struct res_config *cfg, struct residency **out, berth_err *err)
{
    *out = NULL;
    if (!cfg->devices || !devset_count(cfg->devices))
        return err_set(err, BERTH_EINVAL, "a registry without devices");
    if (devset_count(cfg->devices) >= RES_NOWHERE)
        return err_set(err, BERTH_ELIMIT, "%zu devices, at most %d", devset_count(cfg->devices),
                       RES_NOWHERE - 1);
    struct residency *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(err, BERTH_ENOMEM, "a registry");
    r->cfg = *cfg;
    r->devices = cfg->devices;
    r->n_devices = devset_count(cfg->devices);
    r->host = find_host(cfg->devices);
    r->log = cfg->log;
    r->clock = cfg->clock ? cfg->clock : clock_system();
    r->pool = cfg->pool;
    r->next_id = 1;
    r->pin_budget = pin_budget_of(r);
    r->stream = calloc(r->n_devices, sizeof(struct dev_stream *));
    r->speed = calloc(r->n_devices * r->n_devices, sizeof *r->speed);
    if (!r->stream || !r->speed) {
        err_set(err, BERTH_ENOMEM, "a registry of %zu devices", r->n_devices);
        goto fail;
    }
    if (journal_new(cfg->journal, r->devices, r->log, r->clock, &r->journal, err))
        goto fail;
    r->cfg.journal = NULL; /* it was borrowed for this call */
    *out = r;
    return BERTH_OK;
fail:
    residency_free(r);
    return err->code;
}

void residency_free(struct residency *r)
{
    if (!r)
        return;
    while (r->first)
        res_model_gone(r->first);
    for (size_t i = 0; r->stream && i < r->n_devices; i++)
        dev_stream_free(r->stream[i]);
    free(r->stream);
    free(r->speed);
    journal_free(r->journal);
    free(r);
}

struct journal *res_journal(struct residency *r)
{
    return r->journal;
}

void res_set_reset(struct residency *r, res_reset_fn *fn, void *user)
{
    r->cfg.reset = fn;
    r->cfg.reset_user = user;
}

struct res_metrics res_metrics(const struct residency *r)
{
    return r->metrics;
}

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

static unsigned anchors_of(const struct res_model *m)
{
    unsigned n = 0;
    for (size_t i = 0; i < RES_ANCHOR_COUNT; i++)
        n += m->anchor[i];
    return n;
}

bool res_model_held(const struct res_model *m)
{
    return m->handles || res_model_busy(m) || (anchors_of(m) && m->state == RES_RESIDENT);
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

/* ---- looking ---- */

struct res_model_info res_info(const struct res_model *m)
{
    struct res_model_info x = { .id = m->id,
                                .name = m->name,
                                .role = m->role,
                                .path = m->path,
                                .part = m->part,
                                .converted = weights_converted(m->weights),
                                .key = m->key.full,
                                .state = m->state,
                                .retention = m->retention,
                                .plan_by_hand = m->plan_by_hand,
                                .handles = m->handles,
                                .uses = m->uses,
                                .anchors = anchors_of(m),
                                .blocks = m->blocks.n,
                                .patches = m->patches.n,
                                .bytes = m->blocks.bytes,
                                .last_use = m->last_use,
                                .loads = m->loads,
                                .read = m->read,
                                .moved = m->moved,
                                .attached = m->attached };
    memcpy(x.anchor, m->anchor, sizeof x.anchor);
    for (size_t d = 0; d < m->res->n_devices; d++)
        x.resident += m->bytes_on[d];
    for (size_t i = 0; i < m->blocks.n && m->state == RES_RESIDENT; i++)
        x.demoted += m->block[i].device != m->block[i].home;
    return x;
}

uint64_t res_bytes_on(const struct res_model *m, size_t device)
{
    return device < m->res->n_devices ? m->bytes_on[device] : 0;
}

struct res_block_place res_block_place(const struct res_model *m, size_t block)
{
    const struct res_block *b = &m->block[block];
    bool there = b->device != RES_NOWHERE;
    return (struct res_block_place) { .device = there ? b->device : RES_NO_DEVICE,
                                      .home = b->home,
                                      .bytes = there ? b->bytes : m->blocks.at[block].bytes };
}

const struct weights *res_weights(const struct res_model *m)
{
    return m->weights;
}

const struct blocks *res_blocks(const struct res_model *m)
{
    return &m->blocks;
}

const struct plan *res_plan(const struct res_model *m)
{
    return &m->plan;
}

struct device *res_compute(const struct res_model *m)
{
    return res_device(m->res, m->compute);
}

struct devset *res_devices(const struct residency *r)
{
    return r->devices;
}

size_t res_model_count(const struct residency *r)
{
    return r->models;
}

struct res_model *res_model_at(const struct residency *r, size_t i)
{
    struct res_model *m = r->first;
    while (m && i--)
        m = m->next;
    if (!m)
        BUG("a model beyond the %zu there are", r->models);
    return m;
}

struct res_model *res_model_by_id(const struct residency *r, uint64_t id)
{
    struct res_model *m = r->first;
    while (m && m->id != id)
        m = m->next;
    return m;
}
