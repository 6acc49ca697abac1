/* engine: what frames a run: the nodes' environment, the executor, the frees behind a prompt. */
#include "engine/engine.h"

#include <sys/random.h>

struct engine {
    struct engine_config cfg;
    const char **device_names; /* in device order; the names are the set's */
    struct node_env check_env; /* constant; any thread */
    struct node_env env;       /* of runs: with models, and what nodes keep between runs */
    struct executor *executor;
    const struct engine_events *events; /* of the run in progress; NULL: none */
};

static void on_event(void *user, const struct exec_event *x)
{
    const struct engine *e = user;
    if (e->events->event)
        e->events->event(e->events->user, x);
}

/* ---- life ---- */

static berth_status fill_env(struct engine *e, berth_err *err)
{
    const struct engine_config *c = &e->cfg;
    struct node_env *env = &e->check_env;
    size_t n = devset_count(c->devices);
    e->device_names = calloc(n + 1, sizeof *e->device_names);
    env->looks = node_looks_new();
    if (!e->device_names || !env->looks)
        return err_set(err, BERTH_ENOMEM, "an environment for nodes");
    for (size_t i = 0; i < n; i++)
        e->device_names[i] = devset_at(c->devices, i)->name;
    env->folders = c->folders;
    env->devices = e->device_names;
    env->devices_n = n;
    env->clock = c->clock;
    env->log = c->log;
    env->tokenizers = c->tokenizers;
    env->tokenizers_n = c->tokenizers_n;
    env->media_helper = c->media_helper;
    env->numbers = c->numbers;
    env->disable_metadata = c->disable_metadata;
    if (getrandom(&env->temp_seed, sizeof env->temp_seed, 0) < 0)
        env->temp_seed = clock_wall_ns(c->clock);
    e->env = *env;
    e->env.res = c->res;
    e->env.pool = c->pool;
    e->env.saves = save_cache_new();
    e->env.assets = node_assets_new();
    if (!e->env.saves || !e->env.assets)
        return err_set(err, BERTH_ENOMEM, "a memory of saved names and tokenizers");
    return BERTH_OK;
}

static berth_status open_executor(struct engine *e, berth_err *err)
{
    const struct executor_config cfg = { .env = &e->env,
                                         .cache = e->cfg.cache,
                                         .lru = e->cfg.cache_lru,
                                         .ram_gb = e->cfg.cache_ram_gb,
                                         .event = on_event,
                                         .event_user = e,
                                         .alone = e->cfg.alone,
                                         .hide_folders = e->cfg.hide_folders };
    berth_status s = executor_new(&cfg, &e->executor, err);
    if (!s)
        res_set_reset(e->cfg.res, executor_reset, e->executor);
    return s;
}

berth_status engine_new(const struct engine_config *cfg, struct engine **out, berth_err *err)
{
    *out = NULL;
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, BERTH_ENOMEM, "an engine");
    e->cfg = *cfg;
    e->cfg.clock = cfg->clock ? cfg->clock : clock_system();
    if (fill_env(e, err) || open_executor(e, err)) {
        engine_free(e);
        return err->code;
    }
    *out = e;
    return BERTH_OK;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    if (e->executor)
        res_set_reset(e->cfg.res, NULL, NULL);
    executor_free(e->executor);
    node_assets_free(e->env.assets);
    save_cache_free(e->env.saves);
    node_looks_free(e->check_env.looks);
    free(e->device_names);
    free(e);
}

void engine_reset(struct engine *e)
{
    executor_reset(e->executor);
}

const struct node_env *engine_env(const struct engine *e)
{
    return &e->check_env;
}

struct executor_info engine_info(const struct engine *e)
{
    return executor_info(e->executor);
}

void engine_set_classes(struct engine *e, const struct node_class *(*find)(const char *name))
{
    e->env.find = find;
}

/* ---- prompts ---- */

berth_status engine_unwrap(json_t *all, json_t **prompt, json_t **extra, berth_err *err)
{
    json_t *inner = json_object_get(all, "prompt");
    *prompt = *extra = NULL;
    if (workflow_is_editors(all))
        return err_set(err, BERTH_EUNSUPPORTED, WORKFLOW_OF_EDITOR);
    if (!json_is_object(all))
        return err_set(err, BERTH_EFORMAT, "a workflow is a JSON object of nodes");
    if (json_is_object(inner) && !json_object_get(inner, "class_type")) {
        *prompt = json_incref(inner);
        *extra = json_incref(json_object_get(all, "extra_data"));
    } else {
        *prompt = json_incref(all);
    }
    return BERTH_OK;
}

berth_status engine_check(const struct engine *e, json_t *prompt, const json_t *targets,
                          struct validation *out, berth_err *err)
{
    return graph_validate(&e->check_env, prompt, targets, out, err);
}

bool engine_file_path(const struct folders *f, const json_t *item, struct str *out)
{
    const char *name = json_string_value(json_object_get(item, "filename"));
    const char *sub = json_string_value(json_object_get(item, "subfolder"));
    const char *kind = json_string_value(json_object_get(item, "type"));
    const char *root = kind ? folders_by_kind(f, kind) : NULL;
    if (!name || !root)
        return false;
    str_addf(out, "%s/%s%s%s", root, sub ? sub : "", sub && *sub ? "/" : "", name);
    return true;
}

/* ---- a run ---- */

static json_t *failure_data(const struct engine *e, const char *prompt_id, const berth_err *why)
{
    const char *type = node_exception(why->code);
    struct str message = { 0 };
    if (e->cfg.hide_folders)
        err_without_folders(why, &message);
    else
        str_adds(&message, why->msg);
    str_addc(&message, '\n'); /* as the reference does */
    json_t *data =
        json_pack("{s:s, s:s, s:s, s:[], s:s, s:s, s:[], s:{}, s:[], s:I}", "prompt_id", prompt_id,
                  "node_id", "", "node_type", "", "executed", "exception_message", str_c(&message),
                  "exception_type", type, "traceback", "current_inputs", "current_outputs",
                  "timestamp", (json_int_t)(clock_wall_ns(e->cfg.clock) / 1000000));
    str_release(&message);
    return data;
}

/* The result of a prompt that the executor never saw, or had no memory to finish. */
static void fail_result(const struct engine *e, const char *prompt_id, const berth_err *why,
                        struct exec_result *r)
{
    exec_result_release(r);
    *r = (struct exec_result) { .outcome = EXEC_FAILED, .code = why->code };
    r->last_data = failure_data(e, prompt_id, why);
    r->last =
        (struct exec_event) { .kind = EXEC_ERROR, .prompt_id = prompt_id, .data = r->last_data };
    r->status = json_pack("{s:s, s:b, s:[[s, O?]]}", "status_str", "error", "completed", 0,
                          "messages", "execution_error", r->last_data);
}

static void give_receipt(const struct engine *e, struct res_receipt *x)
{
    if (x->serial && e->events->receipt) /* 0: no free ran */
        e->events->receipt(e->events->user, x);
    res_receipt_release(x);
}

/* All that may go. Twice: a free that finds models marked eject takes only those, the next one the
 * others. */
static void unload_all(const struct engine *e, const char *reason)
{
    bool marked = true;
    for (int i = 0; i < 2 && marked; i++) {
        struct res_free_args args = { .unload_models = true, .reason = reason };
        struct res_receipt x = { 0 };
        berth_err err = { 0 };
        if (res_free(e->cfg.res, &args, &x, &err))
            log_warn(e->cfg.log, "engine.free", "%s", err.msg);
        marked = false;
        for (size_t k = 0; k < x.models; k++)
            marked |= x.model[k].retention == RES_EJECT;
        give_receipt(e, &x);
    }
}

static void finish(const struct engine *e, const struct exec_result *r)
{
    const struct engine_events *ev = e->events;
    struct res_receipt x = { 0 };
    berth_err err = { 0 };
    res_prompt_done(e->cfg.res); /* before any free, and before anybody hears of the end */
    if (ev->ended)
        ev->ended(ev->user, r);
    if (r->out_of_memory || e->cfg.unload_after_prompt)
        unload_all(e, r->out_of_memory ? "out of memory" : "the prompt ended");
    if (res_prompt_end(e->cfg.res, &x, &err))
        log_warn(e->cfg.log, "engine.settle", "%s", err.msg);
    give_receipt(e, &x);
}

static void begin(struct engine *e, const struct engine_events *events)
{
    static const struct engine_events none;
    e->events = events ? events : &none;
    e->env.previews = e->events->previews;
    res_prompt_begin(e->cfg.res);
}

berth_status engine_run(struct engine *e, const struct exec_request *q,
                        const struct engine_events *events, struct exec_result *out, berth_err *err)
{
    begin(e, events);
    berth_status s = executor_run(e->executor, q, out, err);
    if (s && !out->status)
        fail_result(e, q->prompt_id, err, out);
    finish(e, out);
    e->events = NULL;
    return s;
}

void engine_refuse(struct engine *e, const char *prompt_id, const berth_err *why,
                   const struct engine_events *events, struct exec_result *out)
{
    *out = (struct exec_result) { 0 };
    begin(e, events);
    fail_result(e, prompt_id, why, out);
    finish(e, out);
    e->events = NULL;
}
