/* ctx: a context wires the layers below together: devices, threads, the registry of models. */
#include "berth/ctx.h"
#include "berth/ctx_impl.h"

#include <errno.h>
#include <inttypes.h>

/* The two lists of levels are one; this fails to compile when they part. */
_Static_assert((int)BERTH_LOG_DEBUG == (int)LOG_DEBUG && (int)BERTH_LOG_INFO == (int)LOG_INFO &&
                   (int)BERTH_LOG_WARN == (int)LOG_WARN && (int)BERTH_LOG_ERROR == (int)LOG_ERROR &&
                   (int)BERTH_LOG_OFF == (int)LOG_OFF,
               "log levels");
_Static_assert(BERTH_NO_PINS == RES_NO_PINS, "no pins");

static void forward_log(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                        const char *text)
{
    const berth_ctx *ctx = user;
    ctx->log_fn(ctx->log_user, (berth_log_level)level, wall_ns, event, text);
}

berth_status ctx_lock(berth_ctx *ctx, berth_err *err)
{
    if (pthread_mutex_lock(&ctx->lock) == EDEADLK)
        return err_set(err, BERTH_EBUSY, "called from inside a callback of the same context");
    return BERTH_OK;
}

berth_status ctx_unlock(berth_ctx *ctx, berth_status s)
{
    pthread_mutex_unlock(&ctx->lock);
    return s;
}

berth_status ctx_read_struct(const char *name, const void *from, void *to, size_t known,
                             berth_err *err)
{
    size_t size;
    if (!from)
        return err_set(err, BERTH_EINVAL, "%s is NULL", name);
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > 65536)
        return err_set(err, BERTH_EINVAL, "%s.size is %zu: set it to sizeof(%s)", name, size, name);
    memcpy(to, from, size < known ? size : known);
    for (size_t i = known; i < size; i++)
        if (((const char *)from)[i])
            return err_set(err, BERTH_EUNSUPPORTED,
                           "%s has %zu bytes, this library knows %zu of them", name, size, known);
    return BERTH_OK;
}

static berth_status open_devices(berth_ctx *ctx, const berth_config *cfg, berth_err *err)
{
    struct spec spec;
    const char *text = cfg->devices && cfg->devices[0] ? cfg->devices : NULL;
    if (text && cfg->ram_budget)
        return err_set(err, BERTH_EINVAL,
                       "a RAM budget beside a list of devices: say cpu=%" PRIu64 " in '%.100s'",
                       cfg->ram_budget, text);
    if (text && spec_parse(text, strlen(text), false, &spec, err))
        return err->code;
    struct dev_env env = { .log = &ctx->log,
                           .host_budget = cfg->ram_budget,
                           .cuda_library = cfg->cuda_library,
                           .cuda_cards = cfg->cuda_cards };
    return devset_open(text ? &spec : NULL, &env, &ctx->devices, err);
}

static berth_status open_lock(berth_ctx *ctx, berth_err *err)
{
    pthread_mutexattr_t attr;
    int n = pthread_mutexattr_init(&attr);
    if (!n) {
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
        n = pthread_mutex_init(&ctx->lock, &attr);
        pthread_mutexattr_destroy(&attr);
    }
    if (n)
        return err_sys(err, BERTH_ENOMEM, n, "the lock of a context");
    ctx->lock_made = true;
    return BERTH_OK;
}

static const char *record_id(void *user, bool workflow)
{
    const berth_ctx *ctx = user;
    return ctx->json_log.id(ctx->json_log.user, workflow);
}

static berth_status open_registry(berth_ctx *ctx, const berth_config *cfg, berth_err *err)
{
    struct journal_config journal = {
        .log_lines = cfg->log_snapshots,
        .json_path = cfg->json_log.path,
        .json_level = journal_level_parse(cfg->json_log.level),
        .json_append = cfg->json_log.append,
        .json_static = cfg->json_log.fields,
        .json_id = cfg->json_log.id ? record_id : NULL,
        .json_user = ctx,
    };
    ctx->json_log = cfg->json_log;
    struct res_config res = {
        .devices = ctx->devices,
        .pool = ctx->pool,
        .log = &ctx->log,
        .pin_budget = cfg->pin_budget,
        .reserve = cfg->reserve,
        .when_unflagged = cfg->unload_when_unflagged ? RES_UNFLAGGED_UNLOAD : RES_UNFLAGGED_KEEP,
        .no_auto_cleanup = cfg->keep_ejectable,
        .pressure_percent = cfg->pressure_percent,
        .reset = cfg->reset,
        .reset_user = cfg->reset_user,
        .journal = &journal,
    };
    return residency_new(&res, &ctx->res, err);
}

berth_status berth_ctx_new(const berth_config *cfg, berth_ctx **out, berth_err *err)
{
    berth_config own = { 0 };
    *out = NULL;
    if (cfg && ctx_read_struct("berth_config", cfg, &own, sizeof own, err))
        return err->code;
    cfg = &own;
    berth_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return err_set(err, BERTH_ENOMEM, "a context");
    ctx->log_fn = cfg->log;
    ctx->log_user = cfg->log_user;
    ctx->reset = cfg->reset;
    ctx->reset_user = cfg->reset_user;
    ctx->log = (struct log) { .level = cfg->log ? (enum log_level)cfg->log_level : LOG_OFF,
                              .write = cfg->log ? forward_log : NULL,
                              .user = ctx };
    if (open_devices(ctx, cfg, err) || open_lock(ctx, err) ||
        tpool_new(cfg->threads, &ctx->pool, err) || open_registry(ctx, cfg, err)) {
        berth_ctx_free(ctx);
        return err->code;
    }
    *out = ctx;
    return BERTH_OK;
}

void berth_ctx_free(berth_ctx *ctx)
{
    if (!ctx)
        return;
    residency_free(ctx->res);
    tpool_free(ctx->pool);
    if (ctx->lock_made)
        pthread_mutex_destroy(&ctx->lock);
    devset_close(ctx->devices);
    free(ctx);
}

size_t berth_ctx_device_count(const berth_ctx *ctx)
{
    return devset_count(ctx->devices);
}

static void caps_text(uint32_t caps, char *buf, size_t cap)
{
    static const struct {
        uint32_t bit;
        const char *text;
    } words[] = {
#define CAP_WORD(name, bit, text) { BERTH_CAP_##name, text },
        BERTH_CAP_MAP(CAP_WORD)
#undef CAP_WORD
    };
    size_t n = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (caps & words[i].bit && n < cap)
            n += (size_t)snprintf(buf + n, cap - n, "%s%s", n ? " " : "", words[i].text);
}

berth_status berth_ctx_device_info(berth_ctx *ctx, size_t index, berth_device_info *out,
                                   berth_err *err)
{
    *out = (berth_device_info) { 0 };
    if (index >= devset_count(ctx->devices))
        return err_set(err, BERTH_EINVAL, "device %zu of %zu", index, devset_count(ctx->devices));
    const struct device *d = devset_at(ctx->devices, index);
    struct dev_info info;
    if (dev_info(d, &info, err))
        return err->code;
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->kind, sizeof out->kind, "%s", d->phys->driver->name);
    snprintf(out->physical, sizeof out->physical, "%s", d->phys->name);
    snprintf(out->model, sizeof out->model, "%s", d->phys->model);
    caps_text(d->phys->caps, out->caps_text, sizeof out->caps_text);
    out->caps = d->phys->caps;
    out->total = info.total;
    out->free = info.free;
    out->budget = info.budget;
    out->in_use = info.stats.in_use;
    out->idle = info.stats.idle;
    out->peak = info.stats.peak;
    out->pinned = info.stats.pinned;
    return BERTH_OK;
}

int berth_ctx_absent(const berth_ctx *ctx, size_t index, const char **kind, const char **why)
{
    struct dev_absent a;
    bool there = devset_absent(ctx->devices, index, &a);
    *kind = there ? a.kind : NULL;
    *why = there ? a.why : NULL;
    return there;
}

berth_status berth_ctx_device_find(const berth_ctx *ctx, const char *name, size_t *index,
                                   berth_err *err)
{
    return devset_find(ctx->devices, name, strlen(name), index, err);
}

struct ctx_parts ctx_parts(berth_ctx *ctx)
{
    return (struct ctx_parts) {
        .res = ctx->res, .devices = ctx->devices, .pool = ctx->pool, .log = &ctx->log
    };
}
