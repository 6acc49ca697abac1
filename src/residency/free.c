/* free: who goes, in which order, and whether those that stay really stayed.
 *
 * Everything the flow needs is allocated before its first step, so that a free cannot run out of
 * memory half way. Models are remembered by id: a step may end any of them. */
#include "device/cpu/meminfo.h"
#include "residency/residency_impl.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>

enum { STEPS = 4 }; /* unload, reset, retire, trim: each may find one violation per model */

/* Addresses of a model that is to stay, as they were before step 1. */
struct watch {
    struct res_receipt_model *line;
    uint64_t *addr; /* [n] by block */
    size_t n;
    uint64_t read, moved; /* counters of the model */
    bool over;            /* found dead, and said so */
};

struct flow {
    struct residency *r;
    const struct res_free_args *args;
    struct res_receipt *x;
    struct arena tmp;
    bool device[SPEC_MAX];       /* by set index: selected */
    struct device *of[SPEC_MAX]; /* those, as x->device has them */
    bool marked;                 /* some resident, selected model is marked eject */
    bool refused; /* models were named and all of them stay: nothing is freed at all */
    struct watch *watch;
    size_t watches;
};

/* A snapshot whose tag has a name or a number in it. */
static void PRINTF_LIKE(3, 4)
    snapshot_of(struct residency *r, const char *identifier, const char *fmt, ...)
{
    char tag[JOURNAL_NAME_MAX * 2]; /* the journal marks where it cuts */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(tag, sizeof tag, fmt, ap);
    va_end(ap);
    journal_snapshot(r->journal, identifier, tag);
}

/* ---- receipts ---- */

void res_receipt_release(struct res_receipt *x)
{
    arena_release(&x->mem);
    *x = (struct res_receipt) { 0 };
}

uint64_t res_kinds_sum(const uint64_t bytes[DEV_KIND_COUNT])
{
    uint64_t all = 0;
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        all += bytes[k];
    return all;
}

/* ---- memory pressure ----
 *
 * When the host's memory is nearly used up, the executor's caches are asked for. The numbers are
 * those of the hardware behind the host device, or behind a card's name on its memory (cuda:0@cpu)
 * where that is all there is: limits of control groups count where they are lower than the
 * machine's RAM. After a reset at P percent the next one needs P + hysteresis, otherwise a machine
 * that is simply full would be reset after every prompt. It is armed again as soon as usage has
 * been below threshold - hysteresis, or below the threshold right after a reset. */

#define PERCENT_DEFAULT 85.0
#define HYSTERESIS_DEFAULT 5.0

static double threshold(const struct residency *r)
{
    return r->cfg.pressure_percent > 0 ? r->cfg.pressure_percent : PERCENT_DEFAULT;
}

static double hysteresis(const struct residency *r)
{
    return r->cfg.pressure_hysteresis > 0 ? r->cfg.pressure_hysteresis : HYSTERESIS_DEFAULT;
}

const struct device *res_ram(const struct residency *r)
{
    if (r->host < r->n_devices)
        return devset_at(r->devices, r->host);
    for (size_t i = 0; i < r->n_devices; i++)
        if (dev_can(devset_at(r->devices, i), BERTH_CAP_HOST_VISIBLE))
            return devset_at(r->devices, i);
    return NULL;
}

static berth_status usage(const struct residency *r, double *percent, berth_err *err)
{
    struct dev_info info;
    const struct device *ram = res_ram(r);
    *percent = 0;
    if (!ram) /* nothing to run out of */
        return BERTH_OK;
    berth_status s = dev_info(ram, &info, err);
    if (s == BERTH_OK && info.total)
        *percent = 100.0 * (double)(info.total - info.free) / (double)info.total;
    return s;
}

berth_status res_pressure_check(struct residency *r, enum res_pressure *out, double *percent,
                                berth_err *err)
{
    double used;
    enum res_pressure found = RES_PRESSURE_LOW;
    berth_status s = usage(r, &used, err);
    if (s)
        return err_add(err, "memory pressure");
    if (used < threshold(r) - hysteresis(r))
        r->pressure_last = 0;
    if (used > threshold(r) && r->pressure_last > 0 && used <= r->pressure_last + hysteresis(r)) {
        found = RES_PRESSURE_BAND;
        snapshot_of(r, "cpu_monitor", "skip_hysteresis:%.1fpct", used);
    } else if (used > threshold(r)) {
        found = RES_PRESSURE_RESET;
        r->pressure_last = used;
        r->metrics.pressure_resets++;
        snapshot_of(r, "cpu_monitor", "trigger:%.1fpct", used);
        log_info(r->log, "res.pressure", "used=%.1f%% threshold=%.1f%%", used, threshold(r));
        r->asked |= RES_ASKED_PRESSURE;
    }
    if (out)
        *out = found;
    if (percent)
        *percent = used;
    return BERTH_OK;
}

/* The executor was reset; armed again if that helped. */
static void pressure_after_reset(struct residency *r)
{
    double used;
    berth_err err = { 0 };
    if (r->pressure_last > 0 && usage(r, &used, &err) == BERTH_OK && used <= threshold(r))
        r->pressure_last = 0;
}

/* ---- who is meant ---- */

static bool model_is(const struct res_model *m, const char *text)
{
    uint64_t id;
    return strcmp(m->name, text) == 0 || strcmp(m->owner, text) == 0 ||
           (str_parse_u64(text, strlen(text), &id) && id == m->id);
}

static berth_status no_such_model(const struct residency *r, const char *text, berth_err *err)
{
    struct str names = { 0 };
    for (const struct res_model *m = r->first; m; m = m->next)
        str_addf(&names, "%s%s", names.n ? ", " : "", m->owner);
    err_set(err, BERTH_ENOTFOUND, "free: no model is called '%.100s'; there are: %.300s", text,
            names.n && !names.bad ? names.p : "none");
    str_release(&names);
    return err->code;
}

static berth_status check_selectors(struct flow *f, berth_err *err)
{
    const struct res_free_args *a = f->args;
    for (size_t i = 0; i < a->models_n; i++) {
        const struct res_model *m = f->r->first;
        while (m && !model_is(m, a->models[i]))
            m = m->next;
        if (!m)
            return no_such_model(f->r, a->models[i], err);
    }
    for (size_t i = 0; i < f->r->n_devices; i++)
        f->device[i] = a->devices_n == 0;
    for (size_t i = 0; i < a->devices_n; i++) {
        size_t at;
        if (devset_find(f->r->devices, a->devices[i], strlen(a->devices[i]), &at, err))
            return err_add(err, "free");
        f->device[at] = true;
    }
    return BERTH_OK;
}

static bool has_bytes(const struct res_model *m)
{
    return m->state == RES_RESIDENT || m->state == RES_LOADING;
}

static bool selected(const struct flow *f, const struct res_model *m)
{
    const struct res_free_args *a = f->args;
    bool named = a->models_n == 0, there = a->devices_n == 0;
    for (size_t i = 0; i < a->models_n && !named; i++)
        named = model_is(m, a->models[i]);
    for (size_t i = 0; i < f->r->n_devices && !there; i++)
        there = f->device[i] && m->bytes_on[i];
    return named && there;
}

static bool some_marked(const struct flow *f)
{
    for (const struct res_model *m = f->r->first; m; m = m->next)
        if (m->retention == RES_EJECT && selected(f, m) &&
            (m->state == RES_RESIDENT || (f->args->after_prompt && m->state == RES_LOADING)))
            return true;
    return false;
}

/* ---- verdicts: the table in residency.h ---- */

struct verdict {
    bool go;
    const char *why;
};

static struct verdict judge(const struct flow *f, const struct res_model *m)
{
    const struct res_free_args *a = f->args;
    if (a->after_prompt && res_only_lingers(m))
        return (struct verdict) { true, res_anchor_text(RES_ANCHOR_PROMPT) };
    if (!f->x->unload_models)
        return (struct verdict) { false, "no models were asked for" };
    if (!(f->x->tiers & RES_TIER_WEIGHTS))
        return (struct verdict) { false, "tier weights is not selected" };
    if (!selected(f, m))
        return (struct verdict) { false, "not selected" };
    if (a->force)
        return (struct verdict) { true, "force" };
    if (m->retention == RES_KEEP) {
        bool all = f->r->cfg.when_unflagged == RES_UNFLAGGED_UNLOAD;
        if (all && !f->marked && !a->automatic && a->models_n == 0)
            return (struct verdict) { true, "keep, but nothing is marked eject" };
        return (struct verdict) { false, res_anchor_text(RES_ANCHOR_KEEP) };
    }
    if (m->retention == RES_EJECT)
        return (struct verdict) { true, "marked eject" };
    if (a->automatic)
        return (struct verdict) { false, "auto: only marked ones go after a prompt" };
    if (a->models_n)
        return (struct verdict) { true, "asked for by name" };
    if (f->marked)
        return (struct verdict) { false, "auto: others are marked eject" };
    return (struct verdict) { true, "auto; goes because no model is marked eject" };
}

static uint64_t resident_bytes(const struct res_model *m)
{
    uint64_t n = 0;
    for (size_t i = 0; i < m->res->n_devices; i++)
        n += m->bytes_on[i];
    return n;
}

/* One line of the receipt per model with bytes. */
static berth_status judge_all(struct flow *f, berth_err *err)
{
    struct res_receipt *x = f->x;
    size_t n = 0;
    for (const struct res_model *m = f->r->first; m; m = m->next)
        n += has_bytes(m);
    x->model = arena_array(&x->mem, n, sizeof *x->model);
    if (n && !x->model)
        return err_set(err, BERTH_ENOMEM, "free: a receipt of %zu models", n);
    f->marked = some_marked(f);
    for (const struct res_model *m = f->r->first; m; m = m->next) {
        if (!has_bytes(m))
            continue;
        struct verdict v = judge(f, m);
        const char *name = arena_strndup(&x->mem, m->name, strlen(m->name));
        const char *role = arena_strndup(&x->mem, m->role, strlen(m->role));
        if (!name || !role)
            return err_set(err, BERTH_ENOMEM, "free: the name of model %s", m->owner);
        bool busy = v.go && !f->args->after_prompt && res_model_busy(m);
        x->model[x->models++] = (struct res_receipt_model) {
            .id = m->id,
            .name = name,
            .role = role,
            .converted = weights_converted(m->weights),
            .retention = m->retention,
            .verdict = busy   ? RES_BUSY
                       : v.go ? RES_EJECTED_BY_FREE
                              : RES_KEPT,
            .why = !busy     ? v.why
                   : m->uses ? "in use"
                             : "is being loaded",
            .bytes = resident_bytes(m),
        };
    }
    return BERTH_OK;
}

/* A free that names models is about those. If all of them stay, kept or in use, emptying caches and
 * pools would cost the caller something and gain nothing. */
static bool is_refused(const struct flow *f)
{
    bool stays = false;
    for (size_t i = 0; i < f->x->models; i++) {
        const struct res_receipt_model *line = &f->x->model[i];
        if (line->verdict == RES_EJECTED_BY_FREE)
            return false;
        stays |= selected(f, res_model_by_id(f->r, line->id));
    }
    return f->args->models_n && f->x->tiers & RES_TIER_WEIGHTS && stays;
}

/* ---- those that stay ---- */

static berth_status watch_all(struct flow *f, berth_err *err)
{
    struct res_receipt *x = f->x;
    f->watch = arena_array(&f->tmp, x->models, sizeof *f->watch);
    x->violation = arena_array(&x->mem, x->models * STEPS, sizeof *x->violation);
    if (x->models && (!f->watch || !x->violation))
        return err_set(err, BERTH_ENOMEM, "free: watching %zu models", x->models);
    for (size_t i = 0; i < x->models; i++) {
        const struct res_model *m = res_model_by_id(f->r, x->model[i].id);
        if (x->model[i].verdict == RES_EJECTED_BY_FREE || m->state != RES_RESIDENT)
            continue;
        struct watch *w = &f->watch[f->watches++];
        w->line = &x->model[i];
        w->n = m->blocks.n;
        w->read = m->read;
        w->moved = m->moved;
        w->addr = arena_array(&f->tmp, w->n, sizeof *w->addr);
        if (w->n && !w->addr)
            return err_set(err, BERTH_ENOMEM, "free: addresses of model %s", m->owner);
        for (size_t b = 0; b < w->n; b++)
            w->addr[b] = res_block_addr(&m->block[b]);
    }
    return BERTH_OK;
}

/* is 0: the model is gone. */
static void add_violation(struct flow *f, const struct watch *w, const char *step,
                          const char *block, uint64_t was, uint64_t is, size_t moved)
{
    struct residency *r = f->r;
    char now[24] = "gone";
    if (is)
        snprintf(now, sizeof now, "0x%" PRIx64, is);
    const char *copy = arena_strndup(&f->x->mem, block, strlen(block));
    f->x->violation[f->x->violations++] = (struct res_receipt_violation) {
        .of = w->line, .step = step, .block = copy ? copy : "", .was = was, .is = is, .gone = !is
    };
    r->metrics.retention_violations++;
    log_error(r->log, "res.retention.violated",
              "step=%s was=0x%" PRIx64 " is=%s blocks=%zu id=%" PRIu64 " model=\"%s\" block=\"%s\"",
              step, was, now, moved, w->line->id, w->line->name, block);
    char text[512];
    snprintf(text, sizeof text,
             "[MultiGPU Model Management] retention violated in step %s: model %.200s%s%.100s, "
             "0x%" PRIx64 " -> %s",
             step, w->line->name, is ? ", block " : " is gone", block, was, now);
    static const char *const fields[] = { "component", "model_management", NULL };
    journal_record(r->journal, JOURNAL_ERROR, text, fields);
}

static void failed_to_stay(struct flow *f, const struct watch *w, const char *step)
{
    const char *why = arena_printf(&f->x->mem, "gone in step %s", step);
    w->line->verdict = RES_FAILED;
    w->line->why = why ? why : "gone";
}

/* Every retained model is alive at its old addresses, or the world hears of it, once per change. */
static void check_watches(struct flow *f, const char *step)
{
    for (size_t i = 0; i < f->watches; i++) {
        struct watch *w = &f->watch[i];
        const struct res_model *m = w->over ? NULL : res_model_by_id(f->r, w->line->id);
        if (w->over)
            continue;
        if (!m || m->state != RES_RESIDENT || m->blocks.n != w->n) {
            w->over = true;
            add_violation(f, w, step, "", w->n ? w->addr[0] : 0, 0, w->n);
            failed_to_stay(f, w, step);
            continue;
        }
        w->line->read = m->read - w->read;
        w->line->moved = m->moved - w->moved;
        size_t first = 0, moved = 0;
        for (size_t b = w->n; b-- > 0;)
            if (res_block_addr(&m->block[b]) != w->addr[b]) {
                first = b;
                moved++;
            }
        if (!moved)
            continue;
        add_violation(f, w, step, m->blocks.at[first].name, w->addr[first],
                      res_block_addr(&m->block[first]), moved);
        for (size_t b = 0; b < w->n; b++)
            w->addr[b] = res_block_addr(&m->block[b]);
    }
}

/* What a reset must not take away is held by an anchor. keep models have theirs, one in use is held
 * by that and goes with it, and a cleanup after a prompt that finds nothing to eject leaves models
 * alone, unless a reset comes with it. */
static void anchor_survivors(struct flow *f)
{
    if (f->args->automatic && !f->args->force && !f->args->free_memory && !f->marked)
        return;
    for (size_t i = 0; i < f->x->models; i++) {
        const struct res_receipt_model *line = &f->x->model[i];
        struct res_model *m = res_model_by_id(f->r, line->id);
        if (line->verdict != RES_KEPT)
            continue;
        if (m->retention == RES_AUTO)
            m->anchor[RES_ANCHOR_SURVIVED] = 1;
        else if (m->retention == RES_EJECT && m->state == RES_RESIDENT)
            m->anchor[RES_ANCHOR_MARKED] = 1;
    }
}

/* ---- the steps ---- */

static void step_unload(struct flow *f)
{
    for (size_t i = 0; i < f->x->models; i++) {
        struct res_receipt_model *line = &f->x->model[i];
        struct res_model *m = res_model_by_id(f->r, line->id);
        berth_err why = { 0 };
        if (line->verdict != RES_EJECTED_BY_FREE || res_eject(m, &why) == BERTH_OK)
            continue;
        const char *text = arena_printf(&f->x->mem, "%s", why.msg);
        line->verdict = RES_FAILED;
        line->why = text ? text : "failed";
        log_warn(f->r->log, "res.free.failed", "model=%s %s", m->owner, why.msg);
    }
}

static void step_reset(struct flow *f)
{
    struct residency *r = f->r;
    if (!r->cfg.reset)
        return;
    snapshot_of(r, "executor_reset", "pre-trigger (%s)", f->x->reason);
    r->cfg.reset(r->cfg.reset_user);
    r->metrics.resets++;
    snapshot_of(r, "executor_reset", "post-trigger (%s)", f->x->reason);
}

/* A model that went loses the anchor that an earlier free gave it. Also one that had lost its bytes
 * before, to make room: otherwise it would stay known. */
static void step_retire(struct flow *f)
{
    for (size_t i = 0; i < f->x->models; i++) {
        struct res_model *m = res_model_by_id(f->r, f->x->model[i].id);
        if (m && f->x->model[i].verdict == RES_EJECTED_BY_FREE && m->state != RES_RESIDENT)
            m->anchor[RES_ANCHOR_SURVIVED] = 0;
    }
    for (struct res_model *m = f->r->first, *next; m; m = next) {
        next = m->next;
        if (!has_bytes(m) && judge(f, m).go)
            m->anchor[RES_ANCHOR_SURVIVED] = 0;
        res_model_maybe_gone(m);
    }
}

static void step_trim(struct flow *f)
{
    struct residency *r = f->r;
    bool host = r->host < r->n_devices ? f->device[r->host] : f->args->devices_n == 0;
    bool empty = f->x->tiers & RES_TIER_IDLE;
    for (size_t i = 0; i < f->x->devices; i++) {
        struct device *d = f->of[i];
        berth_err err = { 0 };
        if (empty)
            snapshot_of(r, "general", "pre-empty:%s", d->name);
        if (f->args->wait ? dev_drain(d, NULL, &err) : dev_poll(d, NULL, &err))
            log_warn(r->log, "res.free.poll", "dev=%s retired memory stays: %s", d->name, err.msg);
        if (!empty)
            continue;
        dev_trim(d);
        snapshot_of(r, "general", "post-empty:%s", d->name);
    }
    if (host && empty)
        malloc_trim(0); /* what the process itself no longer uses; all arenas */
}

/* ---- the receipt ---- */

static berth_status open_devices(struct flow *f, berth_err *err)
{
    struct res_receipt *x = f->x;
    size_t n = 0;
    for (size_t i = 0; i < f->r->n_devices; i++)
        n += f->device[i];
    x->device = arena_array(&x->mem, n, sizeof *x->device);
    for (size_t i = 0; x->device && i < f->r->n_devices; i++) {
        struct device *d = devset_at(f->r->devices, i);
        if (!f->device[i])
            continue;
        x->device[x->devices].name = arena_strndup(&x->mem, d->name, strlen(d->name));
        if (!x->device[x->devices].name)
            break;
        dev_by_kind(d, x->device[x->devices].before);
        f->of[x->devices++] = d;
    }
    return x->devices == n ? BERTH_OK
                           : err_set(err, BERTH_ENOMEM, "free: a receipt of %zu devices", n);
}

/* Bytes that a device no longer holds went back to its driver or the OS, pinned ones too. */
static void count_released(struct res_receipt_device *d)
{
    uint64_t before = res_kinds_sum(d->before), after = res_kinds_sum(d->after);
    d->released = before > after ? before - after : 0;
}

static void close_devices(struct flow *f)
{
    for (size_t i = 0; i < f->x->devices; i++) {
        dev_by_kind(f->of[i], f->x->device[i].after);
        count_released(&f->x->device[i]);
    }
}

static berth_status prepare(struct flow *f, berth_err *err)
{
    const struct res_free_args *a = f->args;
    struct res_receipt *x = f->x;
    const char *reason = a->reason ? a->reason : "free";
    x->tiers = a->tiers ? a->tiers & RES_TIER_ALL : RES_TIER_ALL;
    x->unload_models =
        a->unload_models || a->free_memory || a->force || a->automatic || a->models_n;
    x->free_memory = a->free_memory;
    x->force = a->force;
    x->automatic = a->automatic;
    x->dry_run = a->dry_run;
    x->rss_before = meminfo_rss();
    x->reason = arena_strndup(&x->mem, reason, strlen(reason));
    if (!x->reason)
        return err_set(err, BERTH_ENOMEM, "free: a receipt");
    berth_status s = check_selectors(f, err);
    s = s ? s : judge_all(f, err);
    f->refused = !s && is_refused(f);
    x->free_memory &= !f->refused;
    s = s ? s : watch_all(f, err);
    return s ? s : open_devices(f, err);
}

static bool is_leaving(void *user, const char *owner, enum dev_kind kind)
{
    const struct flow *f = user;
    for (size_t k = 0; kind == DEV_WEIGHTS && k < f->x->models; k++)
        if (f->x->model[k].verdict == RES_EJECTED_BY_FREE &&
            strcmp(res_model_by_id(f->r, f->x->model[k].id)->owner, owner) == 0)
            return true;
    return false;
}

/* What the devices would look like: the ledger without those that would go, and what trimming
 * cannot give back between those that stay. */
static berth_status forecast(struct flow *f, berth_err *err)
{
    struct res_receipt *x = f->x;
    for (size_t i = 0; i < x->devices; i++) {
        const struct device *d = f->of[i];
        struct res_receipt_device *line = &x->device[i];
        size_t n = dev_ledger(d, NULL, 0, NULL);
        struct dev_ledger_row *row = arena_array(&f->tmp, n ? n : 1, sizeof *row);
        if (!row)
            return err_set(err, BERTH_ENOMEM, "free: %zu lines of the ledger of %s", n, d->name);
        dev_ledger(d, row, n, NULL);
        memcpy(line->after, line->before, sizeof line->after);
        if (f->refused)
            continue;
        for (size_t k = 0; k < n; k++) { /* pinned memory goes straight back to the system */
            bool weights = row[k].kind == DEV_WEIGHTS;
            if ((!weights && row[k].kind != DEV_PINNED) ||
                !is_leaving(f, row[k].owner, DEV_WEIGHTS))
                continue;
            line->after[row[k].kind] -= row[k].bytes;
            line->after[DEV_POOL_IDLE] += weights ? row[k].bytes : 0;
        }
        if (x->tiers & RES_TIER_IDLE)
            line->after[DEV_POOL_IDLE] = dev_trim_leaves(d, is_leaving, f);
        count_released(line);
    }
    x->rss_after = x->rss_before;
    return BERTH_OK;
}

static void empty(struct flow *f)
{
    struct residency *r = f->r;
    r->in_free = true;
    journal_snapshot(r->journal, "general", "pre-unload");
    if (f->x->unload_models)
        anchor_survivors(f);
    step_unload(f);
    journal_snapshot(r->journal, "general", "post-unload");
    check_watches(f, "unload");
    if (f->args->free_memory) {
        step_reset(f);
        check_watches(f, "reset");
    }
    journal_snapshot(r->journal, "general", "post-reset"); /* past that point, asked for or not */
    step_retire(f);
    check_watches(f, "retire");
    step_trim(f);
    journal_snapshot(r->journal, "general", "post-soft-empty");
    check_watches(f, "trim");
    r->in_free = false;
}

static void run(struct flow *f)
{
    struct residency *r = f->r;
    if (!f->refused)
        empty(f);
    close_devices(f);
    f->x->rss_after = meminfo_rss();
    f->x->serial = ++r->frees;
    r->metrics.frees++;
    if (f->x->free_memory)
        pressure_after_reset(r);
}

static void log_free(const struct flow *f)
{
    const struct res_receipt *x = f->x;
    uint64_t released = 0, ejected = 0;
    for (size_t i = 0; i < x->devices; i++)
        released += x->device[i].released;
    for (size_t i = 0; i < x->models; i++)
        ejected += x->model[i].verdict == RES_EJECTED_BY_FREE;
    log_info(f->r->log, "res.free",
             "serial=%" PRIu64 " ejected=%" PRIu64 " of=%zu released=%" PRIu64 " rss=%" PRIu64
             " violations=%zu reason=\"%s\"",
             x->serial, ejected, x->models, released, x->rss_after, x->violations, x->reason);
}

berth_status res_free(struct residency *r, const struct res_free_args *args,
                      struct res_receipt *out, berth_err *err)
{
    struct res_receipt own;
    struct flow f = { .r = r, .args = args, .x = out ? out : &own };
    uint64_t start = clock_mono_ns(r->clock);
    *f.x = (struct res_receipt) { 0 };
    if (r->in_free)
        return err_set(err, BERTH_EBUSY, "free: called from inside a free, by its reset callback");
    berth_status s = prepare(&f, err);
    if (!s && args->dry_run)
        s = forecast(&f, err);
    else if (!s)
        run(&f);
    f.x->ns = clock_mono_ns(r->clock) - start;
    if (!s && !args->dry_run)
        log_free(&f);
    arena_release(&f.tmp);
    if (s || !out)
        res_receipt_release(f.x);
    res_check_now(r);
    return s;
}
