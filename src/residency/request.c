/* request: the queue of what waits for the end of a prompt, what is done there, and what a free
 * says it did. */
#include "residency/residency_impl.h"

#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>

/* ---- the queue ---- */

void res_request_free(struct residency *r, bool unload_models, bool free_memory, bool force)
{
    unsigned bits = (unload_models ? RES_ASKED_UNLOAD : 0u) | (free_memory ? RES_ASKED_FREE : 0u) |
                    (force ? RES_ASKED_FORCE : 0u);
    pthread_mutex_lock(&r->posting);
    r->posted_flags |= bits;
    atomic_store(&r->has_posted, true);
    pthread_mutex_unlock(&r->posting);
}

void res_request(struct residency *r, struct res_request *q)
{
    pthread_mutex_lock(&r->posting);
    q->asked_before = r->posted_flags;
    r->posted_flags = 0;
    q->next = r->posted;
    r->posted = q;
    atomic_store(&r->has_posted, true);
    pthread_mutex_unlock(&r->posting);
}

/* Takes over what other threads have posted so far, in the order they did. */
static void collect(struct residency *r)
{
    if (!atomic_load(&r->has_posted))
        return;
    pthread_mutex_lock(&r->posting);
    struct res_request *newest = r->posted, *oldest = NULL;
    unsigned flags = r->posted_flags;
    r->posted = NULL;
    r->posted_flags = 0;
    atomic_store(&r->has_posted, false);
    pthread_mutex_unlock(&r->posting);
    for (struct res_request *q; (q = newest);) {
        newest = q->next;
        q->next = oldest;
        oldest = q;
    }
    if (oldest) { /* what was asked for before these came */
        oldest->asked_before |= r->asked;
        r->asked = 0;
    }
    struct res_request **last = &r->waiting;
    while (*last)
        last = &(*last)->next;
    *last = oldest;
    r->asked |= flags;
}

bool res_has_requests(const struct residency *r)
{
    return r->asked || r->waiting || atomic_load(&r->has_posted);
}

/* Of two requests about a model the later one has the last word, so it must come last. */
static bool overtakes(const struct residency *r, const struct res_request *q)
{
    for (const struct res_request *p = r->waiting; q->model && p != q; p = p->next)
        if (p->model == q->model)
            return true;
    return false;
}

/* While a prompt runs: those that leave it alone. A free that came before one of them still comes
 * before the next. */
static void run_quick(struct residency *r)
{
    struct res_request **at = &r->waiting;
    for (struct res_request *q; (q = *at);) {
        if (!q->quick || overtakes(r, q)) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        *(q->next ? &q->next->asked_before : &r->asked) |= q->asked_before;
        q->run(q, false);
    }
}

/* Up to the first that was posted after a free. */
static void run_until_free(struct residency *r)
{
    for (struct res_request *q; (q = r->waiting) && !q->asked_before;) {
        r->waiting = q->next;
        q->run(q, false);
    }
}

void res_run_requests(struct residency *r)
{
    collect(r);
    if (r->prompt_running)
        run_quick(r);
    else
        run_until_free(r);
}

void res_cancel_requests(struct residency *r)
{
    collect(r);
    r->asked = 0;
    for (struct res_request *q; (q = r->waiting);) {
        r->waiting = q->next;
        q->run(q, true);
    }
}

/* ---- prompts ---- */

void res_prompt_begin(struct residency *r)
{
    r->prompt_running = true;
    for (struct res_model *m = r->first; m; m = m->next)
        m->used_in_prompt = false;
}

void res_prompt_done(struct residency *r)
{
    collect(r);
    res_linger_end(r); /* what only this prompt could have wanted is no part of a free */
    r->prompt_done = true;
}

static bool used_marked_models(const struct residency *r)
{
    for (const struct res_model *m = r->first; m; m = m->next)
        if (m->used_in_prompt && m->retention == RES_EJECT && m->state == RES_RESIDENT)
            return true;
    return false;
}

/* The flags of the free whose turn it is, in front of the first request or behind the last. */
static unsigned *next_flags(struct residency *r)
{
    return r->waiting ? &r->waiting->asked_before : &r->asked;
}

/* A free in the place of the one before it. One that failed is tried again, behind all others. */
static berth_status free_asked(struct residency *r, struct res_receipt *out, bool *reset,
                               berth_err *err)
{
    unsigned bits = *next_flags(r);
    *next_flags(r) = 0;
    struct res_free_args args = { .unload_models = bits & RES_ASKED_UNLOAD,
                                  .free_memory = bits & (RES_ASKED_FREE | RES_ASKED_PRESSURE),
                                  .force = bits & RES_ASKED_FORCE,
                                  .reason = !(bits & RES_ASKED_PRESSURE) ? "requested"
                                            : bits == RES_ASKED_PRESSURE
                                                ? "pressure"
                                                : "requested, and pressure" };
    res_receipt_release(out);
    berth_status s = res_free(r, &args, out, err);
    if (s)
        r->asked |= bits;
    *reset |= !s && args.free_memory;
    return s;
}

/* requested, or else automatic; then, unless there was a reset just now, pressure. */
static berth_status settle(struct residency *r, bool automatic, struct res_receipt *out,
                           berth_err *err)
{
    static const struct res_free_args cleanup = { .automatic = true,
                                                  .reason = "automatic cleanup" };
    bool reset = false;
    berth_status s = BERTH_OK;
    if (*next_flags(r))
        s = free_asked(r, out, &reset, err);
    else if (automatic)
        s = res_free(r, &cleanup, out, err);
    if (s || reset)
        return s;
    enum res_pressure pressure;
    berth_err why = { 0 };
    if (res_pressure_check(r, &pressure, NULL, &why)) {
        log_warn(r->log, "res.pressure", "not known: %s", why.msg);
        return BERTH_OK; /* frees are done; not knowing is no failure of theirs */
    }
    if (pressure != RES_PRESSURE_RESET)
        return BERTH_OK;
    r->asked &= ~(unsigned)RES_ASKED_PRESSURE;
    *next_flags(r) |= RES_ASKED_PRESSURE;
    return free_asked(r, out, &reset, err);
}

/* ended: with the prompt whose end this is, the automatic cleanup. */
static berth_status settle_into(struct residency *r, bool ended, struct res_receipt *out,
                                berth_err *err)
{
    struct res_receipt own = { 0 };
    out = out ? out : &own;
    *out = (struct res_receipt) { 0 };
    if (r->in_free)
        return err_set(err, BERTH_EBUSY, "settling inside a free, by its reset callback");
    if (r->prompt_running)
        return BERTH_OK;
    run_until_free(r);
    bool automatic = ended && !r->cfg.no_auto_cleanup && used_marked_models(r);
    berth_status s = settle(r, automatic, out, err);
    res_receipt_release(&own);
    return s;
}

berth_status res_settle(struct residency *r, struct res_receipt *out, berth_err *err)
{
    collect(r);
    return settle_into(r, false, out, err);
}

berth_status res_prompt_end(struct residency *r, struct res_receipt *out, berth_err *err)
{
    if (!r->prompt_done)
        res_prompt_done(r);
    r->prompt_running = r->prompt_done = false;
    return settle_into(r, true, out, err);
}

static size_t count_resident(const struct residency *r)
{
    size_t n = 0;
    for (const struct res_model *m = r->first; m; m = m->next)
        n += m->state == RES_RESIDENT;
    return n;
}

static double host_used_mib(const struct residency *r)
{
    struct dev_info info;
    berth_err err = { 0 };
    const struct device *ram = res_ram(r);
    if (!ram || dev_info(ram, &info, &err))
        return 0;
    return (double)(info.total - info.free) / 1048576.0;
}

berth_status res_force_full_cleanup(struct residency *r, const char *reason, bool force,
                                    struct str *summary, berth_err *err)
{
    char tag[JOURNAL_NAME_MAX];
    berth_status s = BERTH_OK;
    bool skip = r->prompt_running && !force; /* force: even if a prompt runs; keep models stay */
    reason = reason ? reason : "manual";
    size_t before = count_resident(r);
    double used = host_used_mib(r);
    snprintf(tag, sizeof tag, "start:%s", reason);
    journal_snapshot(r->journal, "full_cleanup", tag);
    if (r->prompt_running || r->in_free) {
        if (!skip)
            res_request_free(r, true, true, false); /* never under a running prompt's feet */
    } else {
        struct res_free_args args = { .unload_models = true,
                                      .free_memory = true,
                                      .reason = reason };
        s = res_free(r, &args, NULL, err);
    }
    if (!skip) {
        snprintf(tag, sizeof tag, "requested:%s", reason);
        journal_snapshot(r->journal, "full_cleanup", tag);
    }
    if (summary)
        str_addf(summary, "reason=%s models=%zu->%zu cpu_delta_mb=%.2f%s", reason, before,
                 count_resident(r), host_used_mib(r) - used,
                 skip                ? " skipped: a prompt runs"
                 : r->prompt_running ? " requested: acts after the prompt"
                                     : "");
    return s;
}

/* ---- receipts as JSON ---- */

const char *res_verdict_name(enum res_verdict v)
{
    static const char *const name[] = {
        [RES_EJECTED_BY_FREE] = "ejected",
        [RES_KEPT] = "kept",
        [RES_BUSY] = "busy",
        [RES_FAILED] = "failed",
    };
    return name[v];
}

static void add_kinds(struct jsonout *j, const char *key, const uint64_t bytes[DEV_KIND_COUNT])
{
    jo_open(j, key, '{');
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        jo_u64(j, dev_kind_name((enum dev_kind)k), bytes[k]);
    jo_close(j, '}');
}

static void add_model(struct jsonout *j, const struct res_receipt_model *m)
{
    jo_open(j, NULL, '{');
    jo_u64(j, "id", m->id);
    jo_str(j, "name", m->name);
    jo_str(j, "role", m->role);
    jo_str(j, "converted", m->converted != DT_NONE ? dtype_name(m->converted) : NULL);
    jo_str(j, "retention", res_retention_name(m->retention));
    jo_str(j, "verdict", res_verdict_name(m->verdict));
    jo_str(j, "why", m->why);
    jo_u64(j, "bytes", m->bytes);
    jo_u64(j, "read", m->read);
    jo_u64(j, "moved", m->moved);
    jo_close(j, '}');
}

static void add_device(struct jsonout *j, const struct res_receipt_device *d)
{
    jo_open(j, NULL, '{');
    jo_str(j, "device", d->name);
    add_kinds(j, "before", d->before);
    add_kinds(j, "after", d->after);
    jo_u64(j, "released", d->released);
    jo_close(j, '}');
}

static void add_violation(struct jsonout *j, const struct res_receipt_violation *v)
{
    jo_open(j, NULL, '{');
    jo_u64(j, "model", v->of->id);
    jo_str(j, "name", v->of->name);
    jo_str(j, "step", v->step);
    jo_str(j, "block", v->block);
    jo_fmt(j, "was", "\"0x%" PRIx64 "\"", v->was);
    jo_fmt(j, "is", "\"0x%" PRIx64 "\"", v->is);
    jo_bool(j, "gone", v->gone);
    jo_close(j, '}');
}

void res_receipt_json(const struct res_receipt *x, struct str *out)
{
    struct jsonout writer = { .out = out }, *j = &writer;
    jo_open(j, NULL, '{');
    jo_u64(j, "serial", x->serial);
    jo_str(j, "reason", x->reason);
    jo_bool(j, "unload_models", x->unload_models);
    jo_bool(j, "free_memory", x->free_memory);
    jo_bool(j, "force", x->force);
    jo_bool(j, "automatic", x->automatic);
    jo_bool(j, "dry_run", x->dry_run);
    jo_open(j, "tiers", '[');
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        if (x->tiers & 1u << k)
            jo_str(j, NULL, dev_kind_name((enum dev_kind)k));
    jo_close(j, ']');
    jo_open(j, "models", '[');
    for (size_t i = 0; i < x->models; i++)
        add_model(j, &x->model[i]);
    jo_close(j, ']');
    jo_open(j, "devices", '[');
    for (size_t i = 0; i < x->devices; i++)
        add_device(j, &x->device[i]);
    jo_close(j, ']');
    jo_open(j, "rss", '{');
    jo_u64(j, "before", x->rss_before);
    jo_u64(j, "after", x->rss_after);
    jo_close(j, '}');
    jo_open(j, "violations", '[');
    for (size_t i = 0; i < x->violations; i++)
        add_violation(j, &x->violation[i]);
    jo_close(j, ']');
    jo_fmt(j, "seconds", "%.6f", (double)x->ns / 1e9);
    jo_close(j, '}');
}

/* ---- and for people ---- */

/* Text from outside, fit for a terminal. */
static void add_clean(struct str *out, const char *text)
{
    size_t from = out->n;
    str_adds(out, text);
    if (!out->bad)
        utf8_sanitize(out->p + from, out->n - from);
}

static size_t columns(const char *s, size_t n) /* characters of clean text */
{
    size_t c = 0;
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)s[i] & 0xc0) != 0x80;
    return c;
}

/* What was appended since `from` is at least this wide. */
static void pad(struct str *out, size_t from, size_t width)
{
    size_t wide = out->bad ? width : columns(out->p + from, out->n - from);
    for (; wide < width; wide++)
        str_addc(out, ' ');
}

/* "flux as F8_E4M3": one file may be held in two types. */
static void add_called(struct str *out, const struct res_receipt_model *m)
{
    add_clean(out, m->name);
    if (m->converted != DT_NONE)
        str_addf(out, " as %s", dtype_name(m->converted));
}

static void text_models(const struct res_receipt *x, struct str *out)
{
    size_t width = 5;
    struct str called = { 0 };
    for (size_t i = 0; i < x->models; i++) {
        str_clear(&called);
        add_called(&called, &x->model[i]);
        size_t n = columns(str_c(&called), called.n);
        if (n > width)
            width = n < 40 ? n : 40;
    }
    str_release(&called);
    str_addf(out, "  %-*s  %-8s  %-9s  %-7s  %9s  why\n", (int)width, "model", "role", "retention",
             "verdict", "bytes");
    for (size_t i = 0; i < x->models; i++) {
        const struct res_receipt_model *m = &x->model[i];
        char bytes[STR_BYTES_MAX];
        str_adds(out, "  ");
        size_t from = out->n;
        add_called(out, m);
        pad(out, from, width);
        str_adds(out, "  ");
        from = out->n;
        add_clean(out, m->role);
        pad(out, from, 8);
        str_addf(out, "  %-9s  %-7s  %9s  ", res_retention_name(m->retention),
                 res_verdict_name(m->verdict), str_bytes(m->bytes, bytes));
        add_clean(out, m->why);
        str_addc(out, '\n');
    }
}

static void text_devices(const struct res_receipt *x, struct str *out)
{
    char a[STR_BYTES_MAX], b[STR_BYTES_MAX], c[STR_BYTES_MAX];
    str_addf(out, "  %-12s  %9s  %9s  %9s\n", "device", "before", "after", "released");
    for (size_t i = 0; i < x->devices; i++) {
        const struct res_receipt_device *d = &x->device[i];
        str_addf(out, "  %-12s  %9s  %9s  %9s", d->name, str_bytes(res_kinds_sum(d->before), a),
                 str_bytes(res_kinds_sum(d->after), b), str_bytes(d->released, c));
        const char *between = "  now ";
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            if (d->after[k]) {
                str_addf(out, "%s%s %s", between, dev_kind_name((enum dev_kind)k),
                         str_bytes(d->after[k], a));
                between = ", ";
            }
        str_addc(out, '\n');
    }
}

/* What was asked for, and where the tiers say otherwise, that too. */
static void text_asked(const struct res_receipt *x, struct str *out)
{
    bool trim = x->tiers & RES_TIER_IDLE;
    str_addf(out, "%s%s%s%s", x->unload_models ? " unload_models" : "",
             x->free_memory ? " free_memory" : "", x->force ? " force" : "",
             x->automatic ? " automatic" : "");
    if (!x->unload_models && !x->free_memory)
        str_adds(out, trim ? " trim only" : " nothing");
    if (x->tiers == RES_TIER_ALL)
        return;
    str_adds(out, ", tiers ");
    const char *between = "";
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        if (x->tiers & 1u << k) {
            str_addf(out, "%s%s", between, dev_kind_name((enum dev_kind)k));
            between = "+";
        }
    str_adds(out, x->tiers ? "" : "none");
    if (x->unload_models && !(x->tiers & RES_TIER_WEIGHTS))
        str_adds(out, " (not weights: models stay)");
    if (x->unload_models && !trim)
        str_adds(out, " (not pool-idle: no trim)");
}

static void text_violation(const struct res_receipt_violation *v, struct str *out)
{
    str_adds(out, "  VIOLATION: ");
    add_called(out, v->of);
    str_adds(out, ", ");
    add_clean(out, v->of->role);
    str_addc(out, ',');
    if (v->gone) {
        str_addf(out, " was to stay, but after step '%s' it is gone (was at 0x%" PRIx64 ")\n",
                 v->step, v->was);
        return;
    }
    str_addf(out, " was to stay, but after step '%s' block '", v->step);
    add_clean(out, v->block);
    str_addf(out, "' of it moved from 0x%" PRIx64 " to 0x%" PRIx64 "\n", v->was, v->is);
}

void res_receipt_text(const struct res_receipt *x, struct str *out)
{
    if (x->dry_run)
        str_adds(out, "dry run (");
    else
        str_addf(out, "free %" PRIu64 " (", x->serial);
    add_clean(out, x->reason);
    str_adds(out, x->dry_run ? "), nothing was changed:" : "):");
    text_asked(x, out);
    str_addf(out, " in %.3f s\n", (double)x->ns / 1e9);
    if (x->models)
        text_models(x, out);
    text_devices(x, out);
    if (x->rss_before) {
        char was[STR_BYTES_MAX], is[STR_BYTES_MAX];
        str_addf(out, "  %-12s  %9s  %9s  resident memory of this process\n", "process",
                 str_bytes(x->rss_before, was), str_bytes(x->rss_after, is));
    }
    for (size_t i = 0; i < x->violations; i++)
        text_violation(&x->violation[i], out);
}
