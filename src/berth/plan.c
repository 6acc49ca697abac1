/* plan: berth_plan_*, plans for people who embed us. */
#include "berth/ctx.h"
#include "berth/ctx_impl.h"
#include "model/arch.h"
#include "plan/convert.h"

struct berth_plan {
    struct weights *weights; /* the blocks' names point into it */
    struct blocks blocks;
    struct plan plan;
    struct str string;
    size_t device[ALLOC_ENTRIES_MAX]; /* those with bytes, and the compute device */
    size_t devices;
};

berth_status ctx_plan_devices(berth_ctx *ctx, const char *compute, bool measure,
                              struct plan_devices *out, berth_err *err)
{
    if (ctx_lock(ctx, err))
        return err->code;
    return ctx_unlock(ctx, res_plan_devices(ctx->res, compute, measure, out, err));
}

static void list_devices(berth_plan *p)
{
    for (size_t i = 0; i < p->plan.devices.n; i++)
        if (p->plan.share[i].blocks || i == p->plan.quotas.compute)
            p->device[p->devices++] = i;
}

berth_status berth_plan_make(berth_ctx *ctx, const berth_model_config *cfg,
                             const char *hypothetical, berth_plan **out, berth_err *err)
{
    *out = NULL;
    struct plan_devices devices;
    if (ctx_check_config(cfg, err))
        return err->code;
    if (!ctx && !hypothetical)
        return err_set(err, BERTH_EINVAL, "a plan needs a context or hypothetical devices");
    if (hypothetical ? plan_devices_parse(hypothetical, strlen(hypothetical), &devices, err)
                     : ctx_plan_devices(ctx, cfg->compute, true, &devices, err))
        return err->code;
    berth_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, BERTH_ENOMEM, "a plan of '%s'", cfg->path);
    struct plan_args args = { .alloc = cfg->alloc,
                              .compute = cfg->compute,
                              .layout = (enum plan_layout)cfg->layout,
                              .reserve = UINT64_MAX };
    if (weights_open(cfg->path, NULL, &p->weights, err) ||
        (cfg->dtype && *cfg->dtype && res_convert(p->weights, cfg->part, cfg->dtype, err)) ||
        blocks_from_weights(p->weights, cfg->part, arch_blocks(p->weights, cfg->part), &p->blocks,
                            err) ||
        plan_from_args(&p->blocks, &devices, &args, &p->plan, err)) {
        berth_plan_free(p);
        return err_add(err, "planning '%s'", cfg->path);
    }
    plan_string(&p->plan, &p->string);
    if (p->string.bad) {
        berth_plan_free(p);
        return err_set(err, BERTH_ENOMEM, "the string of a plan of '%s'", cfg->path);
    }
    list_devices(p);
    *out = p;
    return BERTH_OK;
}

void berth_plan_free(berth_plan *p)
{
    if (!p)
        return;
    str_release(&p->string);
    plan_release(&p->plan);
    blocks_release(&p->blocks);
    weights_close(p->weights);
    free(p);
}

uint64_t berth_plan_bytes(const berth_plan *p)
{
    return p->plan.bytes;
}

const char *berth_plan_compute(const berth_plan *p)
{
    return p->plan.devices.at[p->plan.quotas.compute].name;
}

const char *berth_plan_string(const berth_plan *p)
{
    return str_c(&p->string);
}

size_t berth_plan_device_count(const berth_plan *p)
{
    return p->devices;
}

size_t berth_plan_block_count(const berth_plan *p)
{
    return p->blocks.n;
}

berth_status berth_plan_device_at(const berth_plan *p, size_t index, berth_plan_device *out,
                                  berth_err *err)
{
    *out = (berth_plan_device) { 0 };
    if (index >= p->devices)
        return err_set(err, BERTH_EINVAL, "device %zu of a plan with %zu", index, p->devices);
    size_t i = p->device[index];
    const struct plan_share *share = &p->plan.share[i];
    *out =
        (berth_plan_device) { .device = p->plan.devices.at[i].name,
                              .bytes = share->bytes,
                              .blocks = share->blocks,
                              .share = p->plan.bytes ? (double)share->bytes / (double)p->plan.bytes
                                                     : 0 };
    return BERTH_OK;
}

berth_status berth_plan_block_at(const berth_plan *p, size_t index, berth_plan_block *out,
                                 berth_err *err)
{
    *out = (berth_plan_block) { 0 };
    if (index >= p->blocks.n)
        return err_set(err, BERTH_EINVAL, "block %zu of a plan with %zu", index, p->blocks.n);
    const struct block *b = &p->blocks.at[index];
    *out = (berth_plan_block) { .name = b->name,
                                .bytes = b->bytes,
                                .device = p->plan.devices.at[p->plan.device[index]].name };
    return BERTH_OK;
}
