/* memory: berth_free() with its receipt, berth_snapshot_*. */
#include "berth/ctx_impl.h"

struct berth_receipt {
    struct res_receipt receipt;
    struct str text, json;
};

berth_status ctx_receipt(struct res_receipt *got, berth_receipt **out, berth_err *err)
{
    berth_receipt *r = out ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        res_receipt_release(got);
        return out ? err_set(err, BERTH_ENOMEM, "the receipt of a free that was done") : BERTH_OK;
    }
    r->receipt = *got;
    res_receipt_text(&r->receipt, &r->text);
    res_receipt_json(&r->receipt, &r->json);
    *out = r;
    return BERTH_OK;
}

/* "weights, pool-idle" -> bits of the tiers. */
static berth_status parse_tiers(const char *text, unsigned *out, berth_err *err)
{
    *out = 0;
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        const char *word = p;
        size_t len = n;
        p += n + (p[n] == ',');
        while (len && *word == ' ')
            word++, len--;
        while (len && word[len - 1] == ' ')
            len--;
        unsigned bit = 0;
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            if (str_eq(word, len, dev_kind_name((enum dev_kind)k)))
                bit = 1u << k;
        if (!bit)
            return err_set(err, BERTH_EINVAL,
                           "tier '%.*s' is none of weights, staging, activations, pinned, "
                           "pool-idle",
                           (int)(len < 40 ? len : 40), word);
        *out |= bit;
    }
    return BERTH_OK;
}

berth_status berth_free(berth_ctx *ctx, const berth_free_config *cfg, berth_receipt **receipt,
                        berth_err *err)
{
    if (!cfg)
        return err_set(err, BERTH_EINVAL, "a free without saying of what");
    struct res_free_args args = { .unload_models = cfg->unload_models,
                                  .free_memory = cfg->free_memory,
                                  .force = cfg->force,
                                  .dry_run = cfg->dry_run,
                                  .wait = cfg->wait,
                                  .models = cfg->models,
                                  .models_n = cfg->model_count,
                                  .devices = cfg->devices,
                                  .devices_n = cfg->device_count,
                                  .reason = cfg->reason };
    if (receipt)
        *receipt = NULL;
    if (parse_tiers(cfg->tiers, &args.tiers, err))
        return err->code;
    struct res_receipt got = { 0 };
    berth_status s = ctx_lock(ctx, err);
    if (!s)
        s = ctx_unlock(ctx, res_free(ctx->res, &args, &got, err));
    return s ? s : ctx_receipt(&got, receipt, err);
}

const char *berth_receipt_text(const berth_receipt *r)
{
    return str_c(&r->text);
}

const char *berth_receipt_json(const berth_receipt *r)
{
    return str_c(&r->json);
}

size_t berth_receipt_ejected(const berth_receipt *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->receipt.models; i++)
        n += r->receipt.model[i].verdict == RES_EJECTED_BY_FREE;
    return n;
}

size_t berth_receipt_violations(const berth_receipt *r)
{
    return r->receipt.violations;
}

void berth_receipt_free(berth_receipt *r)
{
    if (!r)
        return;
    res_receipt_release(&r->receipt);
    str_release(&r->text);
    str_release(&r->json);
    free(r);
}

/* ---- prompts ---- */

static berth_status give_text(struct str *text, char **out, berth_err *err)
{
    str_adds(text, ""); /* empty is a text too */
    *out = str_take(text);
    str_release(text);
    return *out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a text about memory");
}

void berth_request_free(berth_ctx *ctx, int unload_models, int free_memory, int force)
{
    res_request_free(ctx->res, unload_models, free_memory, force);
}

berth_status berth_prompt_begin(berth_ctx *ctx, berth_err *err)
{
    if (ctx_lock(ctx, err))
        return err->code;
    res_prompt_begin(ctx->res);
    ctx->in_prompt = true;
    return ctx_unlock(ctx, BERTH_OK);
}

static berth_status
settle(berth_ctx *ctx, berth_status (*fn)(struct residency *, struct res_receipt *, berth_err *),
       berth_receipt **receipt, berth_err *err)
{
    struct res_receipt got = { 0 };
    if (receipt)
        *receipt = NULL;
    berth_status s = ctx_lock(ctx, err);
    if (!s) {
        ctx->in_prompt &= fn != res_prompt_end;
        s = fn(ctx->res, &got, err);
        ctx_unlock(ctx, BERTH_OK);
    }
    if (s || !got.serial) { /* 0: no free ran */
        res_receipt_release(&got);
        return s;
    }
    return ctx_receipt(&got, receipt, err);
}

berth_status berth_prompt_end(berth_ctx *ctx, berth_receipt **receipt, berth_err *err)
{
    return settle(ctx, res_prompt_end, receipt, err);
}

berth_status berth_settle(berth_ctx *ctx, berth_receipt **receipt, berth_err *err)
{
    return settle(ctx, res_settle, receipt, err);
}

berth_status berth_force_full_cleanup(berth_ctx *ctx, const char *reason, int force, char **summary,
                                      berth_err *err)
{
    struct str line = { 0 };
    if (summary)
        *summary = NULL;
    berth_status s = ctx_lock(ctx, err);
    if (!s)
        s = ctx_unlock(ctx, res_force_full_cleanup(ctx->res, reason, force, &line, err));
    if (!s && summary)
        return give_text(&line, summary, err);
    str_release(&line);
    return s;
}

berth_status berth_ctx_metrics(berth_ctx *ctx, berth_metrics *out, berth_err *err)
{
    *out = (berth_metrics) { 0 };
    if (ctx_lock(ctx, err))
        return err->code;
    struct res_metrics x = res_metrics(ctx->res);
    ctx_unlock(ctx, BERTH_OK);
    *out = (berth_metrics) { .loads = x.loads,
                             .load_failures = x.load_failures,
                             .attaches = x.attaches,
                             .ejects = x.ejects,
                             .frees = x.frees,
                             .resets = x.resets,
                             .pressure_resets = x.pressure_resets,
                             .demoted_blocks = x.demotions,
                             .demoted_bytes = x.demoted_bytes,
                             .moved_bytes = x.moved_bytes,
                             .read_bytes = x.read_bytes,
                             .retention_violations = x.retention_violations };
    return BERTH_OK;
}

/* ---- snapshots ---- */

void berth_snapshot(berth_ctx *ctx, const char *identifier, const char *tag)
{
    berth_err err = { 0 };
    if (ctx_lock(ctx, &err))
        return; /* from a callback: the call that runs it takes its own */
    journal_snapshot(res_journal(ctx->res), identifier, tag);
    ctx_unlock(ctx, BERTH_OK);
}

berth_status berth_snapshot_summary(berth_ctx *ctx, char **out, berth_err *err)
{
    struct str text = { 0 };
    journal_summary(res_journal(ctx->res), &text);
    return give_text(&text, out, err);
}

berth_status berth_snapshot_json(berth_ctx *ctx, uint64_t after, char **out, berth_err *err)
{
    struct str text = { 0 };
    journal_timeline_json(res_journal(ctx->res), after, SIZE_MAX, &text);
    return give_text(&text, out, err);
}

void berth_text_free(char *text)
{
    free(text);
}
