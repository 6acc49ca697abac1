/* run: berth_engine_*, berth_run(): workflows for programs that embed us. */
#include "berth/ctx_impl.h"
#include "engine/engine.h"

struct berth_engine {
    berth_ctx *ctx;
    bool own_ctx;
    struct folders *folders;
    struct names tokenizers;
    char *media_helper; /* NULL: none */
    struct engine *engine; /* under the lock */
};

struct berth_flag {
    atomic_bool set;
};

/* ---- flags ---- */

berth_flag *berth_flag_new(void)
{
    return calloc(1, sizeof(berth_flag));
}

void berth_flag_set(berth_flag *f)
{
    atomic_store(&f->set, true);
}

void berth_flag_free(berth_flag *f)
{
    free(f);
}

/* ---- engines ---- */

static void reset_both(void *user)
{
    const berth_engine *e = user;
    engine_reset(e->engine);
    if (e->ctx->reset)
        e->ctx->reset(e->ctx->reset_user);
}

static berth_status open_ctx(berth_engine *e, const berth_engine_config *cfg, berth_err *err)
{
    const berth_config c = { .size = sizeof c,
                             .devices = cfg->devices,
                             .ram_budget = cfg->ram_budget,
                             .pin_budget = cfg->pin_budget,
                             .reserve = cfg->reserve,
                             .threads = cfg->threads,
                             .log = cfg->log,
                             .log_user = cfg->log_user,
                             .log_level = cfg->log_level };
    e->own_ctx = true;
    return berth_ctx_new(&c, &e->ctx, err);
}

static berth_status open_folders(berth_engine *e, const berth_engine_config *cfg, berth_err *err)
{
    const struct folders_config f = { .base = cfg->base,
                                      .input = cfg->input,
                                      .output = cfg->output,
                                      .temp = cfg->temp,
                                      .user = cfg->user,
                                      .yaml = cfg->model_paths,
                                      .yamls = cfg->model_path_count,
                                      .checkpoints = cfg->checkpoints,
                                      .log = &e->ctx->log };
    if (folders_new(&f, &e->folders, err))
        return err->code;
    struct str own = { 0 };
    str_addf(&own, "%s/tokenizers", folders_own(e->folders, FOLDERS_BASE));
    bool whole = !own.bad;
    for (size_t i = 0; whole && i < cfg->tokenizer_count; i++)
        whole = names_add(&e->tokenizers, cfg->tokenizers[i], strlen(cfg->tokenizers[i]));
    whole = whole && names_add(&e->tokenizers, str_c(&own), own.n);
    str_release(&own);
    return whole ? BERTH_OK : err_set(err, BERTH_ENOMEM, "the folders of an engine");
}

/* Under the lock. */
static berth_status open_engine(berth_engine *e, const berth_engine_config *cfg, berth_err *err)
{
    const struct engine_config c = { .res = e->ctx->res,
                                     .devices = e->ctx->devices,
                                     .pool = e->ctx->pool,
                                     .folders = e->folders,
                                     .tokenizers = (const char *const *)e->tokenizers.at,
                                     .tokenizers_n = e->tokenizers.n,
                                     .media_helper = e->media_helper,
                                     .log = &e->ctx->log,
                                     .numbers = node_numbers_own,
                                     .disable_metadata = cfg->no_metadata,
                                     .unload_after_prompt = cfg->unload_after_run };
    if (e->ctx->has_engine)
        return err_set(err, BERTH_EBUSY, "this context has an engine already");
    if (engine_new(&c, &e->engine, err))
        return err->code;
    e->ctx->has_engine = true;
    res_set_reset(e->ctx->res, reset_both, e);
    return BERTH_OK;
}

berth_status berth_engine_new(berth_ctx *ctx, const berth_engine_config *cfg, berth_engine **out,
                              berth_err *err)
{
    berth_engine_config own = { 0 };
    *out = NULL;
    if (ctx_read_struct("berth_engine_config", cfg, &own, sizeof own, err))
        return err->code;
    if (!own.base || !own.base[0])
        return err_set(err, BERTH_EINVAL, "berth_engine_config.base: which folder?");
    berth_engine *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, BERTH_ENOMEM, "an engine");
    e->ctx = ctx;
    berth_status s = ctx ? BERTH_OK : open_ctx(e, &own, err);
    if (!s && own.media_helper && !(e->media_helper = strdup(own.media_helper)))
        s = err_set(err, BERTH_ENOMEM, "an engine");
    if (!s)
        s = open_folders(e, &own, err);
    if (!s && !(s = ctx_lock(e->ctx, err))) {
        s = open_engine(e, &own, err);
        ctx_unlock(e->ctx, BERTH_OK);
    }
    if (s)
        berth_engine_free(e);
    else
        *out = e;
    return s;
}

void berth_engine_free(berth_engine *e)
{
    berth_err err = { 0 };
    if (!e)
        return;
    if (e->engine) {
        bool inside = ctx_lock(e->ctx, &err) != BERTH_OK; /* a callback: this thread has the lock */
        engine_free(e->engine);
        res_set_reset(e->ctx->res, e->ctx->reset, e->ctx->reset_user);
        e->ctx->has_engine = false;
        if (!inside)
            ctx_unlock(e->ctx, BERTH_OK);
    }
    names_release(&e->tokenizers);
    free(e->media_helper);
    folders_free(e->folders);
    if (e->own_ctx)
        berth_ctx_free(e->ctx);
    free(e);
}

berth_ctx *berth_engine_ctx(const berth_engine *e)
{
    return e->ctx;
}

/* ---- results ---- */

struct output_file {
    char *node, *path, *kind;
};

struct berth_result {
    struct str outputs, status, node_errors;
    struct vec files;    /* struct output_file */
    struct vec receipts; /* berth_receipt * */
    size_t executed, cached;
    bool bad; /* memory did not suffice for all of it */
};

static berth_result *result_new(void)
{
    berth_result *r = calloc(1, sizeof *r);
    if (r) {
        r->files.elem = sizeof(struct output_file);
        r->receipts.elem = sizeof(berth_receipt *);
    }
    return r;
}

void berth_result_free(berth_result *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->files.n; i++) {
        const struct output_file *f = vec_at(&r->files, i);
        free(f->node);
        free(f->path);
        free(f->kind);
    }
    for (size_t i = 0; i < r->receipts.n; i++)
        berth_receipt_free(*(berth_receipt **)vec_at(&r->receipts, i));
    vec_release(&r->files);
    vec_release(&r->receipts);
    str_release(&r->outputs);
    str_release(&r->status);
    str_release(&r->node_errors);
    free(r);
}

static void add_json(berth_result *r, struct str *out, const json_t *v)
{
    if (v)
        js_write(v, 0, out);
    r->bad |= out->bad;
}

static void add_file(berth_result *r, const struct folders *f, const char *node, const json_t *item)
{
    struct str path = { 0 };
    if (engine_file_path(f, item, &path)) {
        struct output_file *to = vec_add(&r->files);
        if (to)
            *to = (struct output_file) { .node = strdup(node),
                                         .path = str_take(&path),
                                         .kind = strdup(
                                             json_string_value(json_object_get(item, "type"))) };
        r->bad |= !to || !to->node || !to->path || !to->kind;
    }
    str_release(&path);
}

static void add_files(berth_result *r, const struct folders *f, json_t *outputs)
{
    const char *id, *key;
    json_t *ui, *list, *item;
    size_t i;
    json_object_foreach(outputs, id, ui) json_object_foreach(ui, key, list)
        json_array_foreach(list, i, item) add_file(r, f, id, item);
}

static const char *text_or_none(const struct str *s)
{
    return s->n ? str_c(s) : "{}";
}

const char *berth_result_outputs(const berth_result *r)
{
    return text_or_none(&r->outputs);
}

const char *berth_result_status(const berth_result *r)
{
    return text_or_none(&r->status);
}

const char *berth_result_node_errors(const berth_result *r)
{
    return text_or_none(&r->node_errors);
}

size_t berth_result_file_count(const berth_result *r)
{
    return r->files.n;
}

berth_status berth_result_file(const berth_result *r, size_t index, berth_output_file *out,
                               berth_err *err)
{
    berth_output_file own = { 0 };
    if (ctx_read_struct("berth_output_file", out, &own, sizeof own, err))
        return err->code;
    size_t size = out->size;
    if (index >= r->files.n)
        return err_set(err, BERTH_EINVAL, "file %zu of %zu", index, r->files.n);
    const struct output_file *f = vec_at(&r->files, index);
    own = (berth_output_file) { size, f->node, f->path, f->kind };
    memcpy(out, &own, size < sizeof own ? size : sizeof own);
    return BERTH_OK;
}

size_t berth_result_receipt_count(const berth_result *r)
{
    return r->receipts.n;
}

const berth_receipt *berth_result_receipt(const berth_result *r, size_t index)
{
    return index < r->receipts.n ? *(berth_receipt **)vec_at(&r->receipts, index) : NULL;
}

size_t berth_result_executed(const berth_result *r)
{
    return r->executed;
}

size_t berth_result_cached(const berth_result *r)
{
    return r->cached;
}

/* ---- events ---- */

struct run { /* one call of berth_run() */
    berth_engine *e;
    berth_events events; /* with zeros where the caller wants none */
    json_t *prompt;
    berth_result *result;
    struct str text; /* scratch */
};

/* Until the next call. */
static const char *write_json(struct run *r, const json_t *v)
{
    str_clear(&r->text);
    if (v)
        js_write(v, 0, &r->text);
    r->result->bad |= r->text.bad;
    return v && !r->text.bad ? str_c(&r->text) : "{}";
}

static void on_cached(struct run *r, const json_t *nodes)
{
    size_t n = json_array_size(nodes);
    const char **ids = r->events.cached && n ? calloc(n, sizeof *ids) : NULL;
    for (size_t i = 0; ids && i < n; i++)
        ids[i] = json_string_value(json_array_get(nodes, i));
    if (ids)
        r->events.cached(r->events.user, ids, n);
    else
        r->result->bad |= r->events.cached && n;
    free(ids);
}

static void on_progress(const struct run *r, const berth_node *node, const struct exec_event *x)
{
    if (r->events.progress)
        r->events.progress(r->events.user, node, x->value, x->max);
    const struct image *im = x->picture;
    if (im && r->events.preview) {
        const berth_picture p = { sizeof p, im->w, im->h, im->channels, x->png, im->px };
        r->events.preview(r->events.user, node, &p);
    }
}

static void on_event(void *user, const struct exec_event *x)
{
    struct run *r = user;
    const berth_events *ev = &r->events;
    const berth_node node = { sizeof node, x->node, x->class_type ? x->class_type : "" };
    switch (x->kind) {
    case EXEC_CACHED:
        on_cached(r, json_object_get(x->data, "nodes"));
        break;
    case EXEC_NODE_START:
        if (ev->node_begins)
            ev->node_begins(ev->user, &node);
        break;
    case EXEC_PROGRESS:
        on_progress(r, &node, x);
        break;
    case EXEC_TEXT:
        if (ev->text)
            ev->text(ev->user, &node, x->text, x->text_n);
        break;
    case EXEC_EXECUTED:
        if (ev->executed)
            ev->executed(ev->user, &node, x->output ? write_json(r, x->output) : "null");
        break;
    case EXEC_NODE_DONE:
        if (ev->node_ends)
            ev->node_ends(ev->user, &node);
        break;
    case EXEC_START:
    case EXEC_SUCCESS:
    case EXEC_ERROR:
    case EXEC_INTERRUPTED: /* the first says nothing new, the others are the result's */
        break;
    }
}

static void on_receipt(void *user, struct res_receipt *x)
{
    berth_result *r = ((struct run *)user)->result;
    berth_receipt *one = NULL, **to;
    berth_err ignored;
    (void)ctx_receipt(x, &one, &ignored);
    *x = (struct res_receipt) { 0 };
    if (one && (to = vec_add(&r->receipts))) {
        *to = one;
        return;
    }
    berth_receipt_free(one);
    r->bad = true;
}

/* Tells of an error. The first one becomes err's message, as far as its first line goes. */
static void tell_error(struct run *r, berth_status code, const char *node, const char *cls,
                       const char *type, const char *message, const json_t *json, berth_err *err)
{
    const berth_run_error e = { .size = sizeof e,
                                .code = code,
                                .node = node && *node ? node : NULL,
                                .class_type = cls && *cls ? cls : NULL,
                                .type = type ? type : "",
                                .message = message ? message : "",
                                .json = write_json(r, json) };
    if (err->code == BERTH_OK) {
        err_set(err, code, "%.*s", (int)strcspn(e.message, "\n"), e.message);
        if (e.node)
            err_add(err, "node %s (%s)", e.node, e.class_type ? e.class_type : "?");
    }
    if (r->events.error)
        r->events.error(r->events.user, &e);
}

static const char *member(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static void tell_refusal(struct run *r, const char *node, const char *cls, const json_t *e,
                         berth_err *err)
{
    struct str message = { 0 };
    const char *what = member(e, "message"), *details = member(e, "details");
    str_adds(&message, what ? what : "the workflow is not valid");
    if (details && *details)
        str_addf(&message, ": %s", details);
    tell_error(r, BERTH_EINVAL, node, cls, member(e, "type"), str_c(&message), e, err);
    str_release(&message);
}

/* Every error of validation; *err is the first. */
static berth_status refuse(struct run *r, const struct validation *v, berth_err *err)
{
    const char *id;
    json_t *node, *e;
    size_t i;
    *err = (berth_err) { 0 };
    json_object_foreach(v->node_errors, id, node)
        json_array_foreach(json_object_get(node, "errors"), i, e)
            tell_refusal(r, id, member(node, "class_type"), e, err);
    if (v->error && !json_object_size(v->node_errors))
        tell_refusal(r, NULL, NULL, v->error, err);
    return err->code;
}

/* ---- a run ---- */

static berth_status judge(struct run *r, const struct exec_result *x, berth_err *err)
{
    const json_t *d = x->last_data;
    *err = (berth_err) { 0 };
    switch (x->outcome) {
    case EXEC_OK:
        return BERTH_OK;
    case EXEC_STOPPED:
        return err_set(err, BERTH_ECANCELED, "stopped at node %.100s (%.100s)",
                       member(d, "node_id") ? member(d, "node_id") : "-",
                       member(d, "node_type") ? member(d, "node_type") : "-");
    case EXEC_FAILED:
        break;
    }
    tell_error(r, x->code, member(d, "node_id"), member(d, "node_type"),
               member(d, "exception_type"), member(d, "exception_message"), d, err);
    err->native = x->why.native;
    return err_on_device(err, x->why.device, x->why.number);
}

/* pre: the lock is held. */
static berth_status execute(struct run *r, const berth_run_config *cfg, const json_t *extra,
                            const struct validation *v, berth_err *err)
{
    static const berth_flag never;
    const struct exec_request q = { .prompt_id = cfg->id ? cfg->id : "run",
                                    .prompt = r->prompt,
                                    .extra_data = extra,
                                    .outputs = v->outputs,
                                    .cancel = cfg->cancel ? &cfg->cancel->set : &never.set };
    const struct engine_events events = {
        .user = r, .previews = cfg->previews, .event = on_event, .receipt = on_receipt
    };
    struct exec_result x;
    berth_status s = engine_run(r->e->engine, &q, &events, &x, err);
    add_json(r->result, &r->result->outputs, x.outputs);
    add_json(r->result, &r->result->status, x.status);
    add_files(r->result, r->e->folders, x.outputs);
    r->result->executed = x.executed;
    r->result->cached = x.cached;
    if (!s)
        s = judge(r, &x, err);
    else /* no memory even to say it as JSON, maybe */
        tell_error(r, s, member(x.last_data, "node_id"), member(x.last_data, "node_type"),
                   member(x.last_data, "exception_type"), err->msg, x.last_data, err);
    exec_result_release(&x);
    return s;
}

static berth_status check_and_execute(struct run *r, const berth_run_config *cfg,
                                      const json_t *extra, berth_err *err)
{
    struct validation v = { 0 };
    if (r->e->ctx->in_prompt)
        return err_set(err, BERTH_EBUSY, "berth_prompt_end() was not called yet");
    berth_status s = engine_check(r->e->engine, r->prompt, NULL, &v, err);
    if (!s) {
        berth_err first;
        add_json(r->result, &r->result->node_errors, v.node_errors);
        s = refuse(r, &v, &first);
        if (s && v.ok && cfg->partial)
            s = BERTH_OK;
        s = s ? (*err = first, s) : execute(r, cfg, extra, &v, err);
    }
    validation_release(&v);
    if (!s && r->result->bad)
        s = err_set(err, BERTH_ENOMEM, "the result of a run that was done");
    return s;
}

static berth_status read_prompt(const berth_run_config *cfg, json_t **prompt, json_t **extra,
                                berth_err *err)
{
    json_t *all = NULL;
    size_t n = cfg->prompt && !cfg->prompt_bytes ? strlen(cfg->prompt) : cfg->prompt_bytes;
    if (!cfg->prompt)
        return err_set(err, BERTH_EINVAL, "berth_run_config.prompt: which workflow?");
    berth_status s = js_parse(cfg->prompt, n, NULL, &all, err);
    if (!s)
        s = engine_unwrap(all, prompt, extra, err);
    if (!s && *extra && !json_is_object(*extra))
        s = err_set(err, BERTH_EFORMAT, "extra_data is not an object");
    json_decref(all);
    return s ? err_add(err, "the workflow") : BERTH_OK;
}

berth_status berth_run(berth_engine *e, const berth_run_config *cfg, berth_result **out,
                       berth_err *err)
{
    berth_run_config own = { 0 };
    struct run r = { .e = e };
    json_t *extra = NULL;
    if (out)
        *out = NULL;
    if (ctx_read_struct("berth_run_config", cfg, &own, sizeof own, err) ||
        (own.events &&
         ctx_read_struct("berth_events", own.events, &r.events, sizeof r.events, err)))
        return err->code;
    berth_status s = read_prompt(&own, &r.prompt, &extra, err);
    if (!s && !(r.result = result_new()))
        s = err_set(err, BERTH_ENOMEM, "a result");
    bool began = !s && !(s = ctx_lock(e->ctx, err));
    if (began) {
        s = check_and_execute(&r, &own, extra, err);
        ctx_unlock(e->ctx, BERTH_OK);
    }
    if (began && out)
        *out = r.result;
    else
        berth_result_free(r.result);
    json_decref(r.prompt);
    json_decref(extra);
    str_release(&r.text);
    return s;
}
