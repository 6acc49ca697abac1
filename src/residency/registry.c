/* registry: opening a model, or finding the one there is; looking at those there are. */
#include "residency/residency_impl.h"

#include "plan/convert.h"

#include <inttypes.h>
#include <strings.h>

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

/* ---- life of a model ---- */

/* The file's name without folder and endings. */
static char *name_from_path(const char *path)
{
    static const char *const ending[] = { ".safetensors.index.json", ".safetensors", ".sft",
                                          ".gguf" };
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    for (size_t i = 0; i < ARRAY_LEN(ending); i++)
        if (str_ends(base, n, ending[i]) && n > strlen(ending[i])) {
            n -= strlen(ending[i]);
            break;
        }
    return strndup(base, n);
}

static bool copy_texts(struct res_model *m, const struct res_open_args *args)
{
    m->name = args->name && *args->name ? strdup(args->name) : name_from_path(args->path);
    m->role = strdup(args->role ? args->role : "model");
    m->path = strdup(args->path);
    m->part = strdup(args->part ? args->part : "");
    m->options = strdup(args->options ? args->options : "");
    if (!m->name || !m->role || !m->path || !m->part || !m->options)
        return false;
    snprintf(m->owner, sizeof m->owner, "%.200s#%" PRIu64, m->name, m->id);
    return true;
}

static void link_last(struct residency *r, struct res_model *m)
{
    m->prev = r->last;
    *(r->last ? &r->last->next : &r->first) = m;
    r->last = m;
    r->models++;
}

static unsigned anchors_of(const struct res_model *m)
{
    unsigned n = 0;
    for (size_t i = 0; i < RES_ANCHOR_COUNT; i++)
        n += m->anchor[i];
    return n;
}

/* ---- open ---- */

/* The tables of a model whose file and plan are known. */
static berth_status fill_tables(struct res_model *m, berth_err *err)
{
    size_t n = m->blocks.n, devices = m->res->n_devices;
    m->block = calloc(n ? n : 1, sizeof *m->block);
    m->bytes_on = calloc(devices, sizeof *m->bytes_on);
    m->owners = calloc(devices, sizeof *m->owners);
    if (!m->block || !m->bytes_on || !m->owners)
        return err_set(err, BERTH_ENOMEM, "%zu blocks of '%s'", n, m->name);
    for (size_t i = 0; i < n; i++)
        m->block[i] = (struct res_block) { .device = RES_NOWHERE,
                                           .home = m->plan.device[i],
                                           .patched = DT_NONE,
                                           .bytes = m->blocks.at[i].bytes,
                                           .span = m->blocks.at[i].span };
    m->compute = m->plan.quotas.compute;
    return BERTH_OK;
}

/* Takes *w and *key in every case. */
static berth_status model_new(struct residency *r, const struct res_open_args *args,
                              struct weights *w, struct res_key *key, struct res_model **out,
                              berth_err *err)
{
    struct res_model *m = calloc(1, sizeof *m);
    if (!m) {
        weights_close(w);
        free(key->text);
        return err_set(err, BERTH_ENOMEM, "a model");
    }
    m->res = r;
    m->id = r->next_id;
    m->weights = w;
    m->arch = args->arch ? args->arch(w, args->part) : NULL;
    if (m->arch && m->arch->aliases)
        m->aliases = m->arch->aliases(w, args->part, m->alias, RES_ALIASES);
    m->key_text = key->text;
    m->base_len = key->base_len;
    m->base_key = key->base;
    m->key = key->full;
    m->patches.elem = sizeof(struct res_patch);
    m->high_precision = args->high_precision;
    m->asked = args->dtype ? res_convert_type(args->dtype) : DT_NONE;
    berth_status s = copy_texts(m, args) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a model's names");
    if (!s)
        s = blocks_from_weights(w, m->part, m->arch, &m->blocks, err);
    if (!s)
        s = res_make_plan(r, &m->blocks, &args->plan, true, &m->plan, err);
    if (!s)
        s = fill_tables(m, err);
    if (s) {
        res_model_free(m);
        return s;
    }
    r->next_id++;
    link_last(r, m);
    *out = m;
    return BERTH_OK;
}

static struct res_model *find_same(const struct residency *r, const struct res_key *key)
{
    for (struct res_model *m = r->first; m; m = m->next)
        if (res_key_is(m, key, false))
            return m;
    return NULL;
}

/* The same weights under another plan, and nobody who would mind a change of it. */
static struct res_model *find_adoptable(const struct residency *r, const struct res_key *key)
{
    for (struct res_model *m = r->first; m; m = m->next)
        if (res_key_is(m, key, true) && !m->handles && !res_model_busy(m))
            return m;
    return NULL;
}

/* The same weights, under a plan that somebody set for the device which is asked for. */
static struct res_model *find_by_hand(const struct residency *r, const struct res_key *key,
                                      const char *compute)
{
    for (struct res_model *m = r->first; m; m = m->next)
        if (m->plan_by_hand && res_key_is(m, key, true) &&
            (!compute || strcasecmp(compute, res_device(r, m->compute)->name) == 0))
            return m;
    return NULL;
}

static void attach(struct res_model *m, const struct res_open_args *args)
{
    /* A new owner did not ask for the adapters of the one before. The bytes stay as they are until
     * his load: if he sets the same ones, nothing has to be read. */
    if (!m->handles && !m->loading && m->patches.n)
        res_take_patches(m, &(struct vec) { .elem = sizeof(struct res_patch) });
    m->handles++;
    m->eject_others |= args->eject_others; /* a plain open does not take another one's wish back */
    res_touch(m);
    if (m->state == RES_RESIDENT) {
        m->attached++;
        m->res->metrics.attaches++;
    }
    log_debug(m->res->log, "res.attach", "model=%s state=%s", m->owner, res_state_name(m->state));
}

/* The same of a file that was replaced or written again since, perhaps in the type that the old one
 * was converted to. */
static bool is_outdated(const struct res_model *o, const struct res_model *m)
{
    return o != m && o->base_key != m->base_key && o->high_precision == m->high_precision &&
           o->asked == m->asked && strcmp(o->path, m->path) == 0 && strcmp(o->part, m->part) == 0 &&
           strcmp(o->options, m->options) == 0;
}

/* No open finds what is left of a file that is gone: it stays for those who hold it and for nobody
 * else. What people said of it they said of the file: the new model takes its mark over. */
static void replace_outdated(struct res_model *m)
{
    for (struct res_model *o = m->res->first, *next; o; o = next) {
        next = o->next;
        if (!is_outdated(o, m))
            continue;
        enum res_retention mark = o->retention;
        log_info(m->res->log, "res.outdated", "model=%s by=%s", o->owner, m->owner);
        o->retention = RES_AUTO;
        for (size_t i = 0; i < RES_ANCHOR_COUNT; i++)
            if (i != RES_ANCHOR_USER)
                o->anchor[i] = 0;
        res_model_maybe_gone(o);
        if (mark != RES_AUTO)
            res_set_retention(m, mark);
    }
}

static berth_status open_key(struct residency *r, const struct res_open_args *args,
                             struct weights *w, struct res_key *key, struct res_model **out,
                             berth_err *err)
{
    struct res_model *m = find_same(r, key);
    if (!m && args->plan_may_stay)
        m = find_by_hand(r, key, args->plan.compute);
    struct res_model *old = m ? NULL : find_adoptable(r, key);
    if (!m && !old)
        return model_new(r, args, w, key, out, err);
    weights_close(w);
    free(key->text);
    if (old && res_replan(old, &args->plan, NULL, err))
        return err_add(err, "adopting the anchored model %s", old->owner);
    *out = m ? m : old;
    if (old || !args->plan_may_stay)
        (*out)->plan_by_hand = false;
    return BERTH_OK;
}

berth_status res_open(struct residency *r, const struct res_open_args *args, struct res_model **out,
                      bool *attached, berth_err *err)
{
    struct weights *w;
    struct res_key key;
    struct res_model *m = NULL;
    *out = NULL;
    if (attached)
        *attached = false;
    if (weights_open(args->path, NULL, &w, err))
        return err->code;
    berth_status s = args->dtype ? res_convert(w, args->part, args->dtype, err) : BERTH_OK;
    if (!s)
        s = res_key_make(r, w, args->part, args->options, args->high_precision, &args->plan, &key,
                         err);
    if (s) {
        weights_close(w);
        return err_add(err, "opening '%s'", args->path);
    }
    if (open_key(r, args, w, &key, &m, err))
        return err_add(err, "opening '%s'", args->path);
    attach(m, args);
    replace_outdated(m);
    if (args->retention != RES_AUTO)
        res_set_retention(m, args->retention);
    if (attached)
        *attached = m->state == RES_RESIDENT;
    *out = m;
    res_check_now(r);
    return BERTH_OK;
}

void res_plan_by_hand(struct res_model *m)
{
    struct plan_args none = { .reserve = UINT64_MAX };
    struct res_key key = { 0 };
    berth_err unread = { 0 }; /* no memory for the comparison: better a plan that stays */
    m->plan_by_hand = res_key_make(m->res, m->weights, m->part, m->options, m->high_precision,
                                   &none, &key, &unread) ||
                      !res_key_is(m, &key, false);
    free(key.text);
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
                                .key = m->key,
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
