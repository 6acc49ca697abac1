/* prompt: the queue of what waits for the end of a prompt, and what is done there. */
#include "residency/residency_impl.h"

/* ---- the queue ---- */

void res_request_free(struct residency *r, bool unload_models, bool free_memory, bool force)
{
    unsigned bits = (unload_models ? RES_ASKED_UNLOAD : 0u) | (free_memory ? RES_ASKED_FREE : 0u) |
                    (force ? RES_ASKED_FORCE : 0u);
    atomic_fetch_or(&r->posted_flags, bits);
}

void res_request(struct residency *r, struct res_request *q)
{
    q->next = atomic_load(&r->posted);
    while (!atomic_compare_exchange_weak(&r->posted, &q->next, q))
        ;
}

/* Takes over what other threads have posted so far, in the order they did. */
static void collect(struct residency *r)
{
    struct res_request *newest = atomic_exchange(&r->posted, NULL), *oldest = NULL;
    for (struct res_request *q; (q = newest);) {
        newest = q->next;
        q->next = oldest;
        oldest = q;
    }
    struct res_request **last = &r->waiting;
    while (*last)
        last = &(*last)->next;
    *last = oldest;
    r->asked |= atomic_exchange(&r->posted_flags, 0);
}

bool res_has_requests(const struct residency *r)
{
    return r->asked || r->waiting || atomic_load(&r->posted_flags) || atomic_load(&r->posted);
}

/* Of two requests about a model the later one has the last word, so it must come last. */
static bool overtakes(const struct residency *r, const struct res_request *q)
{
    for (const struct res_request *p = r->waiting; q->model && p != q; p = p->next)
        if (p->model == q->model)
            return true;
    return false;
}

static void run_waiting(struct residency *r, bool quick_only)
{
    struct res_request **at = &r->waiting;
    for (struct res_request *q; (q = *at);) {
        if (quick_only && (!q->quick || overtakes(r, q))) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        q->run(q, false);
    }
}

void res_run_requests(struct residency *r)
{
    collect(r);
    run_waiting(r, r->prompt_running);
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

void res_prompt_over(struct residency *r)
{
    collect(r);
    res_linger_end(r); /* what only this prompt could have wanted is no part of a free */
    r->prompt_over = true;
}

static bool used_marked_models(const struct residency *r)
{
    for (const struct res_model *m = r->first; m; m = m->next)
        if (m->used_in_prompt && m->retention == RES_EJECT && m->state == RES_RESIDENT)
            return true;
    return false;
}

/* A free in the place of the one before it. A request that failed is not forgotten. */
static berth_status free_asked(struct residency *r, struct res_receipt *out, bool *reset,
                               berth_err *err)
{
    unsigned bits = r->asked;
    struct res_free_args args = { .unload_models = bits & RES_ASKED_UNLOAD,
                                  .free_memory = bits & (RES_ASKED_FREE | RES_ASKED_PRESSURE),
                                  .force = bits & RES_ASKED_FORCE,
                                  .reason = !(bits & RES_ASKED_PRESSURE) ? "requested"
                                            : bits == RES_ASKED_PRESSURE
                                                ? "pressure"
                                                : "requested, and pressure" };
    res_receipt_release(out);
    berth_status s = res_free(r, &args, out, err);
    if (!s)
        r->asked = 0;
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
    if (r->asked)
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
    return pressure == RES_PRESSURE_RESET ? free_asked(r, out, &reset, err) : BERTH_OK;
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
    run_waiting(r, false);
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
    if (!r->prompt_over)
        res_prompt_over(r);
    r->prompt_running = r->prompt_over = false;
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
