/* model: berth_model_*, berth_adapter_*: handles on the registry's models. */
#include "berth/ctx_impl.h"
#include "lora/lora.h"
#include "model/arch.h"
#include "model/lora_names.h"

#include <inttypes.h>
#include <math.h>

_Static_assert((int)BERTH_AUTO == (int)RES_AUTO && (int)BERTH_KEEP == (int)RES_KEEP &&
                   (int)BERTH_EJECT == (int)RES_EJECT,
               "retention");
_Static_assert((int)BERTH_SPREAD == (int)PLAN_SPREAD && (int)BERTH_TAIL == (int)PLAN_TAIL,
               "layouts");

static berth_status check_choices(int retention, int layout, berth_err *err)
{
    if (retention < BERTH_AUTO || retention > BERTH_EJECT)
        return err_set(err, BERTH_EINVAL, "retention %d is none of auto, keep, eject", retention);
    if (layout != BERTH_SPREAD && layout != BERTH_TAIL)
        return err_set(err, BERTH_EINVAL, "layout %d is none of spread, tail", layout);
    return BERTH_OK;
}

berth_status ctx_check_config(const berth_model_config *cfg, berth_err *err)
{
    if (!cfg || !cfg->path)
        return err_set(err, BERTH_EINVAL, "a model without a path");
    return check_choices((int)cfg->retention, (int)cfg->layout, err);
}

berth_status berth_model_open(berth_ctx *ctx, const berth_model_config *cfg, berth_model **out,
                              berth_err *err)
{
    *out = NULL;
    if (ctx_check_config(cfg, err))
        return err->code;
    berth_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, BERTH_ENOMEM, "a handle on '%s'", cfg->path);
    struct res_open_args args = { .path = cfg->path,
                                  .part = cfg->part,
                                  .name = cfg->name,
                                  .role = cfg->role,
                                  .arch = arch_blocks,
                                  .high_precision = cfg->high_precision,
                                  .dtype = cfg->dtype && *cfg->dtype ? cfg->dtype : NULL,
                                  .plan = { .alloc = cfg->alloc,
                                            .compute = cfg->compute,
                                            .layout = (enum plan_layout)cfg->layout,
                                            .reserve = UINT64_MAX },
                                  .retention = (enum res_retention)cfg->retention,
                                  .eject_others = cfg->eject_others };
    m->ctx = ctx;
    if (ctx_lock(ctx, err)) {
        free(m);
        return err->code;
    }
    berth_status s = res_open(ctx->res, &args, &m->model, NULL, err);
    ctx_unlock(ctx, BERTH_OK);
    if (s) {
        free(m);
        return s;
    }
    *out = m;
    return BERTH_OK;
}

void berth_model_close(berth_model *m)
{
    berth_err err = { 0 };
    if (!m)
        return;
    bool inside = ctx_lock(m->ctx, &err) != BERTH_OK; /* a callback: this thread has the lock */
    res_unref(m->model);
    if (!inside)
        ctx_unlock(m->ctx, BERTH_OK);
    free(m);
}

static void give_result(const struct res_load_result *from, const struct res_model_info *info,
                        berth_load_result *to)
{
    if (to)
        *to = (berth_load_result) { .read = from->read,
                                    .moved = from->moved,
                                    .demoted = info->demoted,
                                    .was_resident = from->was_resident };
}

berth_status berth_model_load(berth_model *m, const berth_load_config *cfg,
                              berth_load_result *result, berth_err *err)
{
    struct res_load_result got = { 0 };
    struct res_load_args args = { .cancel = &m->cancel };
    struct res_model_info info = { 0 };
    if (cfg) {
        args.progress = cfg->progress;
        args.progress_user = cfg->progress_user;
        args.evict_keep = cfg->evict_keep;
    }
    if (result)
        *result = (berth_load_result) { 0 };
    if (!atomic_fetch_add(&m->loads, 1))
        atomic_store(&m->cancel, false); /* it came too late for the last load: not for this one */
    berth_status s = ctx_lock(m->ctx, err);
    if (!s) {
        s = res_load(m->model, &args, &got, err);
        info = res_info(m->model);
        ctx_unlock(m->ctx, BERTH_OK);
    }
    atomic_fetch_sub(&m->loads, 1);
    give_result(&got, &info, result);
    return s;
}

void berth_model_cancel(berth_model *m)
{
    if (atomic_load(&m->loads))
        atomic_store(&m->cancel, true);
}

berth_status berth_model_use_begin(berth_model *m, berth_err *err)
{
    if (ctx_lock(m->ctx, err))
        return err->code;
    return ctx_unlock(m->ctx, res_use_begin(m->model, err));
}

void berth_model_use_end(berth_model *m)
{
    berth_err err = { 0 };
    if (ctx_lock(m->ctx, &err))
        BUG("berth_model_use_end: %s", err.msg);
    res_use_end(m->model);
    ctx_unlock(m->ctx, BERTH_OK);
}

berth_status berth_model_eject(berth_model *m, berth_err *err)
{
    if (ctx_lock(m->ctx, err))
        return err->code;
    return ctx_unlock(m->ctx, res_eject(m->model, err));
}

berth_status berth_model_set_retention(berth_model *m, berth_retention retention, berth_err *err)
{
    if (check_choices((int)retention, BERTH_SPREAD, err) || ctx_lock(m->ctx, err))
        return err->code;
    res_set_retention(m->model, (enum res_retention)retention);
    return ctx_unlock(m->ctx, BERTH_OK);
}

berth_status berth_model_replan(berth_model *m, const char *alloc, const char *compute,
                                berth_layout layout, berth_load_result *result, berth_err *err)
{
    struct res_load_result got = { 0 };
    struct plan_args args = { .alloc = alloc,
                              .compute = compute,
                              .layout = (enum plan_layout)layout,
                              .reserve = UINT64_MAX };
    if (check_choices(BERTH_AUTO, (int)layout, err) || ctx_lock(m->ctx, err))
        return err->code;
    berth_status s = res_replan(m->model, &args, &got, err);
    struct res_model_info info = res_info(m->model);
    ctx_unlock(m->ctx, BERTH_OK);
    give_result(&got, &info, result);
    return s;
}

static void anchors_text(const struct res_model_info *i, char *buf, size_t cap)
{
    size_t n = 0;
    buf[0] = '\0';
    for (int a = 0; a < RES_ANCHOR_COUNT && n < cap; a++)
        if (i->anchor[a])
            n += (size_t)snprintf(buf + n, cap - n, "%s%s x%u", n ? ", " : "",
                                  res_anchor_text((enum res_anchor)a), i->anchor[a]);
}

void ctx_model_info(struct res_model *m, berth_model_info *out)
{
    struct res_model_info i = res_info(m);
    *out = (berth_model_info) { .id = i.id,
                                .key = i.key,
                                .handles = i.handles,
                                .blocks = i.blocks,
                                .demoted = i.demoted,
                                .adapters = i.patches,
                                .bytes = i.bytes,
                                .resident = i.resident,
                                .loads = i.loads,
                                .read = i.read,
                                .moved = i.moved,
                                .attached = i.attached };
    snprintf(out->name, sizeof out->name, "%s", i.name);
    snprintf(out->state, sizeof out->state, "%s", res_state_name(i.state));
    snprintf(out->retention, sizeof out->retention, "%s", res_retention_name(i.retention));
    anchors_text(&i, out->anchors, sizeof out->anchors);
}

berth_status berth_model_get_info(berth_model *m, berth_model_info *out, berth_err *err)
{
    *out = (berth_model_info) { 0 };
    if (ctx_lock(m->ctx, err))
        return err->code;
    ctx_model_info(m->model, out);
    return ctx_unlock(m->ctx, BERTH_OK);
}

size_t berth_ctx_model_count(berth_ctx *ctx)
{
    berth_err err = { 0 };
    if (ctx_lock(ctx, &err))
        return 0;
    size_t n = res_model_count(ctx->res);
    ctx_unlock(ctx, BERTH_OK);
    return n;
}

berth_status berth_ctx_model_info(berth_ctx *ctx, size_t index, berth_model_info *out,
                                  berth_err *err)
{
    *out = (berth_model_info) { 0 };
    if (ctx_lock(ctx, err))
        return err->code;
    size_t n = res_model_count(ctx->res);
    berth_status s = BERTH_OK;
    if (index < n)
        ctx_model_info(res_model_at(ctx->res, index), out);
    else
        s = err_set(err, BERTH_EINVAL, "model %zu of %zu", index, n);
    return ctx_unlock(ctx, s);
}

berth_status berth_ctx_set_retention(berth_ctx *ctx, uint64_t id, berth_retention retention,
                                     berth_err *err)
{
    if (check_choices((int)retention, BERTH_SPREAD, err) || ctx_lock(ctx, err))
        return err->code;
    struct res_model *m = res_model_by_id(ctx->res, id);
    berth_status s = BERTH_OK;
    if (m)
        res_set_retention(m, (enum res_retention)retention);
    else
        s = err_set(err, BERTH_ENOTFOUND, "no model has the id %" PRIu64, id);
    return ctx_unlock(ctx, s);
}

/* Under the lock. */
static berth_status block_info(const berth_model *m, size_t index, berth_block_info *out,
                               berth_err *err)
{
    const struct blocks *blocks = res_blocks(m->model);
    if (index >= blocks->n)
        return err_set(err, BERTH_EINVAL, "block %zu of %zu", index, blocks->n);
    const struct plan *plan = res_plan(m->model);
    out->name = blocks->at[index].name;
    out->bytes = blocks->at[index].bytes;
    snprintf(out->home, sizeof out->home, "%s", plan->devices.at[plan->device[index]].name);
    struct res_block_at at;
    berth_err not_resident = { 0 };
    if (res_block_at(m->model, index, &at, &not_resident))
        return BERTH_OK; /* nowhere is an answer */
    snprintf(out->device, sizeof out->device, "%s", at.dev->name);
    out->bytes = at.bytes;
    out->address = at.addr;
    return BERTH_OK;
}

berth_status berth_model_block(berth_model *m, size_t index, berth_block_info *out, berth_err *err)
{
    *out = (berth_block_info) { 0 };
    if (ctx_lock(m->ctx, err))
        return err->code;
    return ctx_unlock(m->ctx, block_info(m, index, out, err));
}

berth_status berth_model_checksum(berth_model *m, uint64_t *out, berth_err *err)
{
    *out = 0;
    if (ctx_lock(m->ctx, err))
        return err->code;
    return ctx_unlock(m->ctx, res_checksum(m->model, out, err));
}

/* ---- adapters ---- */

struct berth_adapter {
    struct res_adapter *adapter;
};

berth_status berth_adapter_open(berth_model *m, const char *path, berth_adapter **out,
                                berth_err *err)
{
    *out = NULL;
    berth_adapter *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, BERTH_ENOMEM, "adapter '%s'", path);
    struct lora_table table = { 0 };
    if (ctx_lock(m->ctx, err)) {
        free(a);
        return err->code;
    }
    berth_status s = lora_names_file(&table, res_weights(m->model), res_info(m->model).part, err);
    struct lora_names names = lora_table_names(&table);
    if (!s)
        s = lora_open(path, &names, &m->ctx->log, &a->adapter, err);
    ctx_unlock(m->ctx, BERTH_OK);
    lora_table_release(&table);
    if (s) {
        free(a);
        return s;
    }
    *out = a;
    return BERTH_OK;
}

void berth_adapter_get_info(const berth_adapter *a, berth_adapter_info *out)
{
    struct lora_info i = lora_info(a->adapter);
    *out =
        (berth_adapter_info) { .targets = i.targets, .tensors = i.tensors, .unknown = i.unknown };
}

void berth_adapter_close(berth_adapter *a)
{
    if (!a)
        return;
    res_adapter_unref(a->adapter);
    free(a);
}

berth_status berth_model_set_adapters(berth_model *m, const berth_adapter_use *use, size_t count,
                                      berth_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!use || !use[i].adapter)
            return err_set(err, BERTH_EINVAL, "adapter %zu of %zu is NULL", i, count);
        if (!isfinite(use[i].strength))
            return err_set(err, BERTH_EINVAL, "adapter '%s': strength %f is no number",
                           use[i].adapter->adapter->name, (double)use[i].strength);
    }
    struct res_patch *patch = calloc(count ? count : 1, sizeof *patch);
    if (!patch)
        return err_set(err, BERTH_ENOMEM, "a list of %zu adapters", count);
    for (size_t i = 0; i < count; i++)
        patch[i] = (struct res_patch) { use[i].adapter->adapter, use[i].strength };
    berth_status s = ctx_lock(m->ctx, err);
    if (!s)
        s = ctx_unlock(m->ctx, res_set_patches(m->model, patch, count, err));
    free(patch);
    return s;
}
