/* registry: the models there are. Opening one, or finding it; the plan it gets, and later another;
 * looking. */
#include "residency/residency_impl.h"

#include "base/hash.h"
#include "plan/alloc.h"
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
    r->posting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
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
    pthread_mutex_destroy(&r->posting);
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

/* ---- keys: what makes two opens the same model ---- */

/* Strings from outside with their length in front: no text can look like two. */
static void add_text(struct str *s, const char *name, const char *text)
{
    text = text ? text : "";
    str_addf(s, "|%s=%zu:%s", name, strlen(text), text);
}

/* The device that computes, as far as the texts say: one spelling for one device. text (may be
 * NULL): gets the one spelling of the allocation string. */
static berth_status compute_of(const struct residency *r, const struct plan_args *plan, size_t *out,
                               struct str *text, berth_err *err)
{
    struct alloc a;
    const char *name = plan->compute && *plan->compute ? plan->compute : NULL;
    *out = res_default_compute(r);
    if (plan->alloc && *plan->alloc) {
        if (alloc_parse(plan->alloc, strlen(plan->alloc), &a, err))
            return err->code;
        name = a.compute[0] ? a.compute : name;
        if (text)
            alloc_canonical(&a, text);
    }
    if (name && devset_find(r->devices, name, strlen(name), out, err))
        return err_add(err, "compute device");
    return BERTH_OK;
}

static berth_status key_make(const struct residency *r, const struct weights *w, const char *part,
                             const char *options, bool high_precision, const struct plan_args *plan,
                             struct res_key *out, berth_err *err)
{
    bool is_auto = !plan->alloc || !*plan->alloc;
    size_t compute;
    struct str s = { 0 }, alloc = { 0 };
    *out = (struct res_key) { 0 };
    if (compute_of(r, plan, &compute, &alloc, err)) {
        str_release(&alloc);
        return err->code;
    }
    for (size_t i = 0; i < weights_shards(w); i++) {
        struct file_id id = weights_shard(w, i)->id;
        str_addf(&s, "%s%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64, i ? "," : "file=", id.dev,
                 id.inode, id.size, id.mtime_ns);
    }
    add_text(&s, "part", part);
    add_text(&s, "options", options);
    if (weights_converted(w) != DT_NONE) /* of a file that has the type it is the same model */
        add_text(&s, "dtype", dtype_name(weights_converted(w)));
    if (high_precision)
        str_adds(&s, "|high_precision");
    for (size_t i = 0; i < weights_count(w); i++)
        if (weights_at(w, i)->copy) {
            add_text(&s, "wide", weights_at(w, i)->name);
            str_addf(&s, ".%" PRIu64, weights_at(w, i)->shape.dim[1]);
        }
    out->base_len = s.n;
    add_text(&s, "compute", res_device(r, compute)->name);
    add_text(&s, "alloc", str_c(&alloc));
    str_addf(&s, "|layout=%s", plan_layout_name(plan->layout));
    if (is_auto) /* a string says itself what stays free */
        str_addf(&s, "|reserve=%" PRIu64, plan->reserve);
    s.bad |= alloc.bad;
    str_release(&alloc);
    out->text = str_take(&s);
    if (!out->text) {
        str_release(&s);
        return err_set(err, BERTH_ENOMEM, "the key of '%s'", weights_path(w));
    }
    out->base = hash_xxh64(out->text, out->base_len, 0);
    out->full = hash_xxh64(out->text, strlen(out->text), 0);
    return BERTH_OK;
}

/* Does m have this key, or with base_only its base key? */
static bool key_is(const struct res_model *m, const struct res_key *k, bool base_only)
{
    if (m->key.base_len != k->base_len || m->key.base != k->base)
        return false;
    if (base_only)
        return memcmp(m->key.text, k->text, k->base_len) == 0;
    return m->key.full == k->full && strcmp(m->key.text, k->text) == 0;
}

static struct res_model *find_same(const struct residency *r, const struct res_key *key)
{
    for (struct res_model *m = r->first; m; m = m->next)
        if (key_is(m, key, false))
            return m;
    return NULL;
}

/* ---- plans over the registry's devices ---- */

static uint64_t reserve_of(const struct residency *r, const struct plan_args *args)
{
    if (args->reserve != UINT64_MAX)
        return args->reserve;
    return r->cfg.reserve ? r->cfg.reserve : UINT64_MAX;
}

/* Only an automatic plan that spills over to one of several donors asks which is faster. */
static bool wants_speeds(const struct residency *r, const struct blocks *b, size_t compute,
                         const struct plan_args *args)
{
    uint64_t budget = res_device(r, compute)->budget, reserve = reserve_of(r, args);
    if ((args->alloc && *args->alloc) || r->n_devices < 3)
        return false;
    if (reserve == UINT64_MAX)
        reserve = plan_reserve_default(budget, compute == r->host);
    return reserve >= budget || b->bytes > budget - reserve;
}

/* Memory of device d that no load may push out: of keep models and models in use, but the one that
 * these blocks are of. */
static uint64_t settled_on(const struct residency *r, size_t d, const struct blocks *but)
{
    uint64_t sum = 0;
    for (const struct res_model *m = r->first; m; m = m->next) {
        if (&m->blocks == but || (m->retention != RES_KEEP && !m->uses) || !m->bytes_on[d])
            continue;
        for (size_t i = 0; i < m->blocks.n; i++)
            if (m->block[i].device == d)
                sum += m->block[i].host.ptr
                           ? m->block[i].host.held
                           : (m->block[i].span + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    }
    return sum;
}

/* A string is what somebody wants, whoever is there. An automatic plan goes around those who cannot
 * be pushed out; where that leaves too little it is made as if they were not there, because the
 * load may be allowed to push them out, or they are gone by then. */
static berth_status plan_around_others(const struct residency *r, const struct blocks *b,
                                       const struct plan_devices *devices,
                                       const struct plan_args *args, struct plan *out,
                                       berth_err *err)
{
    struct plan_devices left = *devices;
    bool settled = false;
    for (size_t d = 0; d < devices->n && !(args->alloc && *args->alloc); d++) {
        uint64_t taken = settled_on(r, d, b), *budget = &left.at[d].budget;
        *budget -= taken < *budget ? taken : *budget;
        settled |= taken > 0;
    }
    berth_status s = settled ? plan_from_args(b, &left, args, out, err) : BERTH_ELIMIT;
    return s == BERTH_ELIMIT ? plan_from_args(b, devices, args, out, err) : s;
}

/* A plan was made without measuring: applying it measures, and may then prefer other donors. */
static void note_unmeasured(struct plan *p)
{
    bool all = true;
    for (size_t i = 0; i < p->devices.n; i++)
        all &= i == p->quotas.compute || p->devices.at[i].speed > 0;
    if (!all)
        quotas_note(&p->quotas, true,
                    "links are not measured while a prompt runs: the donor may differ");
}

/* A plan over the registry's devices; NULL in args->compute and reserve UINT64_MAX filled in.
 * measure: links that it would like to know of are timed, which takes memory and a while. */
static berth_status make_plan(struct residency *r, const struct blocks *b,
                              const struct plan_args *args, bool measure, struct plan *out,
                              berth_err *err)
{
    struct plan_args a = *args;
    struct plan_devices devices;
    size_t compute;
    *out = (struct plan) { 0 };
    if (compute_of(r, args, &compute, NULL, err))
        return err->code;
    bool speeds = wants_speeds(r, b, compute, args);
    a.compute = res_device(r, compute)->name;
    a.reserve = reserve_of(r, args);
    if (res_plan_devices(r, a.compute, measure && speeds, &devices, err) ||
        plan_around_others(r, b, &devices, &a, out, err))
        return err->code;
    if (speeds && !measure)
        note_unmeasured(out);
    return BERTH_OK;
}

/* ---- another plan ---- */

/* A block that is on device d and has to leave it waits on the host until there is room where it
 * belongs. False: there is no such block, or no room for it. */
static bool step_aside(struct res_model *m, const uint8_t *home, size_t d)
{
    const struct residency *r = m->res;
    berth_err err;
    if (r->host == r->n_devices || r->host == d)
        return false;
    for (size_t i = 0; i < m->blocks.n; i++)
        if (m->block[i].device == d && home[i] != d && m->block[i].span)
            return res_left_on(r, r->host) >= m->block[i].span &&
                   !res_block_move(m, i, r->host, &err);
    return false;
}

/* Two rounds of moves that fit by themselves, since every block that leaves makes room for one that
 * comes; then what is left: blocks that wait for each other's places, or for somebody else's. */
static berth_status move_to(struct res_model *m, const uint8_t *home, berth_err *err)
{
    enum { QUIET_ROUNDS = 2 };
    for (int round = 0; round <= QUIET_ROUNDS; round++)
        for (size_t i = 0; i < m->blocks.n; i++) {
            bool last = round == QUIET_ROUNDS;
            if (m->block[i].device == home[i] ||
                (!last && res_left_on(m->res, home[i]) < m->block[i].span))
                continue;
            berth_status s = res_block_move(m, i, home[i], err);
            while (last && s == BERTH_ENODEVMEM && step_aside(m, home, home[i]))
                s = res_block_move(m, i, home[i], err);
            if (last && s == BERTH_ENODEVMEM)
                s = res_evict_for_move(m, i, home[i], err);
            if (s && (last || s != BERTH_ENODEVMEM))
                return s;
        }
    /* Those that stepped aside after their turn. */
    for (size_t i = 0; i < m->blocks.n; i++)
        if (m->block[i].device != home[i] && res_evict_for_move(m, i, home[i], err))
            return err->code;
    return BERTH_OK;
}

/* Fails before a block moves if evicting everything evictable would not be enough. */
static berth_status could_move(const struct res_model *m, const uint8_t *home, berth_err *err)
{
    const struct residency *r = m->res;
    for (size_t d = 0; d < r->n_devices; d++) {
        uint64_t come = 0, leave = 0;
        size_t first = 0;
        for (size_t i = m->blocks.n; i-- > 0;) {
            if (m->block[i].device == home[i])
                continue;
            come += home[i] == d ? m->block[i].span : 0;
            leave += m->block[i].device == d ? m->block[i].span : 0;
            first = home[i] == d ? i : first;
        }
        leave += leave / 8; /* a pool's ranges may be so much larger */
        const struct res_need need = { d, come > leave ? come - leave : 0, m, false };
        if (need.bytes && !res_evict_could(r, &need)) {
            res_evict_failed(r, &need, err);
            return res_block_err(m, first, d, err);
        }
    }
    return BERTH_OK;
}

struct next { /* what a model gets with its new plan; all of it before the first block moves */
    struct plan plan;
    struct res_key key;
};

static void next_release(struct next *x)
{
    plan_release(&x->plan);
    free(x->key.text);
    *x = (struct next) { 0 };
}

static berth_status next_make(struct res_model *m, const struct plan_args *args, bool measure,
                              struct next *x, berth_err *err)
{
    struct residency *r = m->res;
    if (key_make(r, m->weights, m->part, m->options, m->high_precision, args, &x->key, err) ||
        make_plan(r, &m->blocks, args, measure, &x->plan, err))
        return err->code;
    const struct res_model *same = find_same(r, &x->key);
    return same && same != m
               ? err_set(err, BERTH_EBUSY, "model %s has that plan already", same->owner)
               : BERTH_OK;
}

/* Swaps, so that releasing x releases what m had. */
static void next_take(struct res_model *m, struct next *x)
{
    struct next old = { .plan = m->plan, .key = m->key };
    m->plan = x->plan;
    m->key = x->key;
    m->compute = m->plan.quotas.compute;
    for (size_t i = 0; i < m->blocks.n; i++) {
        m->block[i].home = m->plan.device[i];
        /* What adapters make of a block depends on who computes: the next load derives it again. */
        if (m->state == RES_RESIDENT && m->patches.n)
            m->patches_changed |= m->block[i].patch != res_patch_signature(m, i);
    }
    *x = old;
}

berth_status res_replan(struct res_model *m, const struct plan_args *plan,
                        struct res_load_result *result, berth_err *err)
{
    struct next next = { 0 };
    uint64_t moved = m->moved;
    if (result)
        *result = (struct res_load_result) { .was_resident = m->state == RES_RESIDENT };
    if (res_model_busy(m))
        return err_set(err, BERTH_EBUSY, "model %s is in use: its plan stays", m->owner);
    berth_status s = next_make(m, plan, true, &next, err);
    if (!s && m->state == RES_RESIDENT)
        s = could_move(m, next.plan.device, err);
    if (!s && m->state == RES_RESIDENT)
        s = move_to(m, next.plan.device, err);
    if (!s)
        next_take(m, &next);
    next_release(&next);
    if (result)
        result->moved = m->moved - moved;
    log_info(m->res->log, "res.replan", "model=%s moved=%" PRIu64 " status=%s", m->owner,
             m->moved - moved, berth_status_name(s));
    res_check_now(m->res);
    return s ? err_add(err, "planning model %.80s again", m->owner) : BERTH_OK;
}

berth_status res_replan_look(struct res_model *m, const struct plan_args *plan,
                             struct res_look *out, berth_err *err)
{
    struct next next = { 0 };
    *out = (struct res_look) { 0 };
    berth_status s = next_make(m, plan, !m->res->prompt_running, &next, err);
    if (!s && m->state == RES_RESIDENT)
        s = could_move(m, next.plan.device, err);
    for (size_t i = 0; !s && i < m->blocks.n; i++) {
        const struct res_block *b = &m->block[i];
        bool there = b->device != RES_NOWHERE;
        out->after[next.plan.device[i]] += there ? b->bytes : m->blocks.at[i].bytes;
        out->moves += there && b->device != next.plan.device[i] ? b->bytes : 0;
    }
    out->plan = next.plan;
    next.plan = (struct plan) { 0 };
    next_release(&next);
    return s ? err_add(err, "planning model %.80s", m->owner) : BERTH_OK;
}

/* ---- a new model ---- */

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

static berth_status copy_texts(struct res_model *m, const struct res_open_args *args,
                               berth_err *err)
{
    m->name = args->name && *args->name ? strdup(args->name) : name_from_path(args->path);
    m->role = strdup(args->role ? args->role : "model");
    m->path = strdup(args->path);
    m->part = strdup(args->part ? args->part : "");
    m->options = strdup(args->options ? args->options : "");
    m->wide = args->wide ? strdup(args->wide) : NULL;
    m->wide_cols = args->wide ? args->wide_cols : 0;
    if (!m->name || !m->role || !m->path || !m->part || !m->options || (args->wide && !m->wide))
        return err_set(err, BERTH_ENOMEM, "a model's names");
    snprintf(m->owner, sizeof m->owner, "%.200s#%" PRIu64, m->name, m->id);
    return BERTH_OK;
}

static void link_last(struct residency *r, struct res_model *m)
{
    m->prev = r->last;
    *(r->last ? &r->last->next : &r->first) = m;
    r->last = m;
    r->models++;
}

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
    m->find_arch = args->arch;
    m->arch = args->arch ? args->arch(w, args->part) : NULL;
    if (m->arch && m->arch->aliases)
        m->aliases = m->arch->aliases(w, args->part, m->alias, RES_ALIASES);
    m->key = *key;
    m->patches.elem = sizeof(struct res_patch);
    m->high_precision = args->high_precision;
    m->asked = args->dtype ? res_convert_type(args->dtype) : DT_NONE;
    if (copy_texts(m, args, err) || blocks_from_weights(w, m->part, m->arch, &m->blocks, err) ||
        make_plan(r, &m->blocks, &args->plan, true, &m->plan, err) || fill_tables(m, err)) {
        res_model_free(m);
        return err->code;
    }
    r->next_id++;
    link_last(r, m);
    *out = m;
    return BERTH_OK;
}

/* The same weights under another plan that no handle or use depends on. */
static struct res_model *find_adoptable(const struct residency *r, const struct res_key *key)
{
    for (struct res_model *m = r->first; m; m = m->next)
        if (key_is(m, key, true) && !m->handles && !res_model_busy(m))
            return m;
    return NULL;
}

/* The same weights, under a plan that somebody set for the device which is asked for. */
static struct res_model *find_by_hand(const struct residency *r, const struct res_key *key,
                                      const char *compute)
{
    for (struct res_model *m = r->first; m; m = m->next)
        if (m->plan_by_hand && key_is(m, key, true) &&
            (!compute || strcasecmp(compute, res_device(r, m->compute)->name) == 0))
            return m;
    return NULL;
}

static void attach(struct res_model *m, const struct res_open_args *args)
{
    /* A new owner did not ask for the adapters of the one before. The bytes stay as they are until
     * the next load: if the same adapters are set by then, nothing has to be read. */
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
    return o != m && o->key.base != m->key.base && o->high_precision == m->high_precision &&
           o->asked == m->asked && strcmp(o->path, m->path) == 0 && strcmp(o->part, m->part) == 0 &&
           strcmp(o->options, m->options) == 0 && o->wide_cols == m->wide_cols &&
           (!m->wide || strcmp(o->wide, m->wide) == 0);
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
        memset(o->anchor, 0, sizeof o->anchor);
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

static berth_status widen(struct weights *w, const struct res_open_args *args, berth_err *err)
{
    const struct weights_entry *e = weights_find(w, args->wide, strlen(args->wide));
    if (!e)
        return err_set(err, BERTH_ENOTFOUND, "no tensor '%.100s' to make wider", args->wide);
    return weights_widen(w, (size_t)(e - weights_at(w, 0)), args->wide_cols, err);
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
    if (!s && args->wide)
        s = widen(w, args, err);
    if (!s)
        s = key_make(r, w, args->part, args->options, args->high_precision, &args->plan, &key, err);
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

/* Blocks on several devices: the text of m's own plan; else all of it where it computes. */
berth_status res_open_wider(struct res_model *m, const char *tensor, uint64_t cols,
                            struct res_model **out, berth_err *err)
{
    const char *compute = res_device(m->res, m->compute)->name;
    struct str alloc = { 0 };
    for (size_t i = 0; i < m->blocks.n && !alloc.n; i++)
        if (m->block[i].home != m->compute)
            plan_string(&m->plan, &alloc);
    const struct res_open_args args = { .path = m->path,
                                        .part = m->part,
                                        .name = m->name,
                                        .role = m->role,
                                        .options = m->options,
                                        .dtype = m->asked != DT_NONE ? dtype_name(m->asked) : NULL,
                                        .wide = tensor,
                                        .wide_cols = cols,
                                        .high_precision = m->high_precision,
                                        .arch = m->find_arch,
                                        .plan = { .alloc = alloc.n ? alloc.p : NULL,
                                                  .compute = compute,
                                                  .automatic = !alloc.n,
                                                  .layout = m->plan.layout,
                                                  .reserve = UINT64_MAX } };
    *out = NULL;
    berth_status s = alloc.bad ? err_set(err, BERTH_ENOMEM, "the plan of '%.100s'", m->name)
                               : res_open(m->res, &args, out, NULL, err);
    str_release(&alloc);
    return s;
}

void res_plan_by_hand(struct res_model *m)
{
    struct plan_args none = { .reserve = UINT64_MAX };
    struct res_key key = { 0 };
    berth_err unread = { 0 }; /* no memory for the comparison: better a plan that stays */
    m->plan_by_hand = key_make(m->res, m->weights, m->part, m->options, m->high_precision, &none,
                               &key, &unread) ||
                      !key_is(m, &key, false);
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
                                .wide = m->wide,
                                .wide_cols = m->wide_cols,
                                .key = m->key.full,
                                .state = m->state,
                                .retention = m->retention,
                                .plan_by_hand = m->plan_by_hand,
                                .handles = m->handles,
                                .uses = m->uses,
                                .anchors = res_anchors(m),
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
