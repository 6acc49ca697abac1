/* memory: berth_free() with its receipt, berth_snapshot_*. */
#include "berth/ctx_impl.h"

struct berth_receipt {
    struct res_receipt receipt;
    struct str text, json;
};

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
    berth_receipt *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(err, BERTH_ENOMEM, "a receipt");
    berth_status s = ctx_lock(ctx, err);
    if (!s) {
        s = res_free(ctx->res, &args, &r->receipt, err);
        ctx_unlock(ctx);
    }
    if (!s) {
        res_receipt_text(&r->receipt, &r->text);
        res_receipt_json(&r->receipt, &r->json);
    }
    if (!s && receipt)
        *receipt = r;
    else
        berth_receipt_free(r);
    return s;
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

/* ---- snapshots ---- */

void berth_snapshot(berth_ctx *ctx, const char *identifier, const char *tag)
{
    berth_err err = { 0 };
    if (ctx_lock(ctx, &err))
        return; /* from a callback: the call that runs it takes its own */
    journal_snapshot(res_journal(ctx->res), identifier, tag);
    ctx_unlock(ctx);
}

static berth_status give_text(struct str *text, char **out, berth_err *err)
{
    str_adds(text, ""); /* empty is a text too */
    *out = str_take(text);
    str_release(text);
    return *out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a text about memory");
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
