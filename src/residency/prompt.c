/* prompt: frees act between prompts: requests, the end of a prompt, the button that asks for all. */
#include "residency/residency_impl.h"

void res_request_free(struct residency *r, bool unload_models, bool free_memory, bool force)
{
    unsigned bits = (unload_models ? RES_ASKED_UNLOAD : 0u) | (free_memory ? RES_ASKED_FREE : 0u) |
                    (force ? RES_ASKED_FORCE : 0u);
    atomic_fetch_or(&r->requested, bits);
}

bool res_free_requested(struct residency *r)
{
    return atomic_load(&r->requested) != 0;
}

void res_prompt_begin(struct residency *r)
{
    r->prompt_running = true;
    for (struct res_model *m = r->first; m; m = m->next)
        m->used_in_prompt = false;
}

static bool used_marked_models(const struct residency *r)
{
    for (const struct res_model *m = r->first; m; m = m->next)
        if (m->used_in_prompt && m->retention == RES_EJECT && m->state == RES_RESIDENT)
            return true;
    return false;
}

/* A free in the place of the one before it. A request that failed is not forgotten. */
static berth_status take_requested(struct residency *r, struct res_receipt *out, bool *reset,
                                   berth_err *err)
{
    unsigned bits = atomic_exchange(&r->requested, 0);
    if (!bits)
        return BERTH_OK;
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
        atomic_fetch_or(&r->requested, bits);
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
    if (res_free_requested(r))
        s = take_requested(r, out, &reset, err);
    else if (automatic)
        s = res_free(r, &cleanup, out, err);
    if (s || reset)
        return s;
    enum res_pressure pressure;
    berth_err why = { 0 };
    if (res_pressure_check(r, false, &pressure, NULL, &why)) {
        log_warn(r->log, "res.pressure", "not known: %s", why.msg);
        return BERTH_OK; /* frees are done; not knowing is no failure of theirs */
    }
    return pressure == RES_PRESSURE_RESET ? take_requested(r, out, &reset, err) : BERTH_OK;
}

static berth_status settle_into(struct residency *r, bool automatic, struct res_receipt *out,
                                berth_err *err)
{
    struct res_receipt own = { 0 };
    if (r->in_free)
        return err_set(err, BERTH_EBUSY, "settling inside a free, by its reset callback");
    berth_status s = r->prompt_running ? BERTH_OK : settle(r, automatic, out ? out : &own, err);
    res_receipt_release(&own);
    return s;
}

berth_status res_settle(struct residency *r, struct res_receipt *out, berth_err *err)
{
    if (out)
        *out = (struct res_receipt) { 0 };
    return settle_into(r, false, out, err);
}

berth_status res_prompt_end(struct residency *r, struct res_receipt *out, berth_err *err)
{
    if (out)
        *out = (struct res_receipt) { 0 };
    r->prompt_running = false;
    res_linger_end(r); /* what only this prompt could have wanted is no part of a free */
    bool automatic = !r->cfg.no_auto_cleanup && used_marked_models(r);
    return settle_into(r, automatic, out, err);
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
