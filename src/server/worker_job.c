/* worker_job: one prompt, from its texts in the store to its entry in the history. */
#include "server/http.h"
#include "server/worker_impl.h"

#define PATIENCE_MS 2000 /* that a prompt waits in all for a client that reads slowly */

/* A job's texts as values. What does not parse can never run: it becomes a failed entry. */
struct parsed {
    json_t *prompt, *extra_data, *outputs;
};

static berth_status parse_one(const char *what, const char *text, enum js_kind kind, json_t **out,
                              berth_err *err)
{
    if (!text)
        return err_set(err, BERTH_EFORMAT, "%s: there is none", what);
    if (js_parse(text, strlen(text), NULL, out, err))
        return err_add(err, "%s", what);
    if (js_kind(*out) != kind)
        return err_set(err, BERTH_EFORMAT, "%s: not an %s", what,
                       kind == JS_OBJECT ? "object" : "array");
    return BERTH_OK;
}

static berth_status parse(const struct store_job *job, struct parsed *p, berth_err *err)
{
    if (parse_one("prompt", job->prompt, JS_OBJECT, &p->prompt, err) ||
        parse_one("outputs", job->outputs, JS_ARRAY, &p->outputs, err))
        return err->code;
    if (!job->extra_data)
        return BERTH_OK;
    return parse_one("extra_data", job->extra_data, JS_OBJECT, &p->extra_data, err);
}

static void parsed_release(struct parsed *p)
{
    json_decref(p->prompt);
    json_decref(p->extra_data);
    json_decref(p->outputs);
    *p = (struct parsed) { 0 };
}

/* ---- results ---- */

static void add_value(struct str *out, const json_t *v, const char *otherwise)
{
    if (v)
        js_write(v, 0, out);
    if (!v || out->bad) { /* no memory: the entry says what it can */
        str_release(out);
        str_adds(out, otherwise);
    }
}

/* The history first: a client that hears of the end finds the prompt there. */
static void store_result(struct worker *w, const struct store_job *job, const struct exec_result *r)
{
    static const char none[] = "{}";
    static const char failed[] = "{\"status_str\":\"error\",\"completed\":false,\"messages\":[]}";
    struct str outputs = { 0 }, status = { 0 }, meta = { 0 };
    berth_err err = { 0 };
    add_value(&outputs, r->outputs, none);
    add_value(&status, r->status, failed);
    add_value(&meta, r->meta, none);
    struct store_result texts = { .outputs = outputs.p ? outputs.p : none,
                                  .status = status.p ? status.p : failed,
                                  .meta = meta.p ? meta.p : none };
    if (store_finish(w->server->store, job->seq, job->attempt, &texts, &err))
        log_error(&w->server->log, "worker.finish", "%s", err.msg);
    str_release(&outputs);
    str_release(&status);
    str_release(&meta);
}

/* One line at the end of a prompt; of one that failed where and why. */
static void log_result(struct worker *w, const struct store_job *job, const struct exec_result *r,
                       uint64_t began)
{
    static const char *const event[] = { [EXEC_OK] = "prompt.done",
                                         [EXEC_FAILED] = "prompt.failed",
                                         [EXEC_STOPPED] = "prompt.interrupted" };
    const char *node = json_string_value(json_object_get(r->last_data, "node_id"));
    const char *cls = json_string_value(json_object_get(r->last_data, "node_type"));
    const char *why = json_string_value(json_object_get(r->last_data, "exception_message"));
    struct str line = { 0 };
    logs_pair(&line, "id", job->id);
    if (node && node[0])
        logs_pair(&line, "node", node);
    if (cls && cls[0])
        logs_pair(&line, "class", cls);
    str_addf(&line, " seconds=%.3f executed=%zu cached=%zu", (double)(worker_now(w) - began) / 1e9,
             r->executed, r->cached);
    if (why)
        logs_pair(&line, "why", r->why.code ? r->why.msg : why); /* with folders */
    log_event(&w->server->log, r->outcome == EXEC_FAILED ? LOG_WARN : LOG_INFO, event[r->outcome],
              "%s", line.bad ? "" : line.p + 1);
    str_release(&line);
}

static void count_result(struct worker *w, const struct exec_result *r)
{
    static const enum worker_count as[] = {
        [EXEC_OK] = COUNT_SUCCESS, [EXEC_FAILED] = COUNT_ERROR, [EXEC_STOPPED] = COUNT_INTERRUPTED
    };
    worker_add(w, as[r->outcome], 1);
    worker_add(w, COUNT_NODES_EXECUTED, r->executed);
    worker_add(w, COUNT_NODES_CACHED, r->cached);
}

/* ---- the run ---- */

/* An interrupt from before has no effect, except for one that meant this prompt. */
static void begin(struct worker *w, const struct store_job *job)
{
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->cancel,
                 w->park || (w->early && (!w->early[0] || strcmp(w->early, job->id) == 0)));
    char *early = w->early;
    w->early = NULL;
    w->job = job;
    w->node[0] = w->display_node[0] = '\0';
    pthread_mutex_unlock(&w->lock);
    free(early);
    w->events.prompt_id = job->id;
    w->events.client_id = job->client_id;
    w->events.run = job->seq;
    w->patience_ms = PATIENCE_MS;
    w->events.index.seed = engine_env(w->server->engine)->temp_seed ^ job->seq;
    w->freed = false;
}

/* True: the server stops and the prompt was cut short for that; it will run again. */
static bool is_parked(struct worker *w, const struct exec_result *r)
{
    pthread_mutex_lock(&w->lock);
    bool park = w->park && r->outcome == EXEC_STOPPED;
    pthread_mutex_unlock(&w->lock);
    return park;
}

static void nobody_runs(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->job = NULL;
    w->node[0] = w->display_node[0] = '\0';
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

/* The prompt's own word, if it is one; else the server's. TAESD's decoders are not there: the quick
 * way for all, as ComfyUI does it without them. */
static bool wants_previews(struct worker *w, const json_t *extra)
{
    static const char *const known[] = { "none", "auto", "latent2rgb", "taesd" };
    const char *method = w->server->cfg.preview_method;
    const char *own = json_string_value(json_object_get(extra, "preview_method"));
    for (size_t i = 0; own && i < ARRAY_LEN(known); i++)
        if (!strcmp(own, known[i]))
            method = own;
    if (!strcmp(method, "taesd") && !w->told_taesd) {
        w->told_taesd = true;
        log_warn(&w->server->log, "worker.preview",
                 "method=taesd instead=latent2rgb why=\"decoders of TAESD are not built in\"");
    }
    return strcmp(method, "none") != 0;
}

static void park(struct worker *w, const struct store_job *job)
{
    berth_err err = { 0 };
    struct str line = { 0 };
    worker_add(w, COUNT_PARKED, 1);
    logs_pair(&line, "id", job->id);
    log_info(&w->server->log, "prompt.parked", "%s", line.bad ? "" : line.p + 1);
    str_release(&line);
    if (store_park(w->server->store, job->seq, job->attempt, &err))
        log_error(&w->server->log, "worker.park", "%s", err.msg);
}

/* What the engine calls back with. */
struct ending {
    struct worker *w;
    const struct store_job *job;
    uint64_t began; /* worker_now() */
};

static void on_event(void *user, const struct exec_event *x)
{
    worker_on_event(((struct ending *)user)->w, x);
}

static void on_ended(void *user, const struct exec_result *r)
{
    const struct ending *e = user;
    struct worker *w = e->w;
    bool parked = is_parked(w, r);
    if (parked) {
        park(w, e->job);
    } else {
        count_result(w, r);
        log_result(w, e->job, r, e->began);
        store_result(w, e->job, r);
        events_send(&w->events, &r->last);
    }
    nobody_runs(w);
    if (parked) { /* it has not ended: clients hear nothing until it runs again */
        events_forget(&w->events);
    } else {
        hub_send_status(w->server);
        events_end(&w->events);
    }
    worker_add(w, COUNT_DROPPED, w->events.dropped);
    w->events.dropped = 0;
}

static void on_receipt(void *user, struct res_receipt *x)
{
    struct worker *w = ((struct ending *)user)->w;
    receipts_add(w, x);
    w->freed = true;
}

static void execute(struct worker *w, const struct store_job *job, const struct parsed *p,
                    const struct engine_events *events)
{
    const struct exec_request q = { .prompt_id = job->id,
                                    .prompt = p->prompt,
                                    .extra_data = p->extra_data,
                                    .outputs = p->outputs,
                                    .cancel = &w->cancel };
    struct exec_result r;
    berth_err err = { 0 };
    if (engine_run(w->server->engine, &q, events, &r, &err))
        log_error(&w->server->log, "worker.job", "prompt=%s %s", job->id, err.msg);
    exec_result_release(&r);
}

static void refuse(struct worker *w, const struct store_job *job, const berth_err *why,
                   const struct engine_events *events)
{
    struct exec_result r;
    log_error(&w->server->log, "worker.job", "prompt=%s cannot run: %s", job->id, why->msg);
    engine_refuse(w->server->engine, job->id, why, events, &r);
    exec_result_release(&r);
}

void worker_run_job(struct worker *w, const struct store_job *job)
{
    struct ending ending = { .w = w, .job = job, .began = worker_now(w) };
    struct engine_events events = {
        .user = &ending, .event = on_event, .ended = on_ended, .receipt = on_receipt
    };
    struct parsed p = { 0 };
    berth_err err = { 0 };
    begin(w, job);
    hub_send_status(w->server);
    if (parse(job, &p, &err)) {
        refuse(w, job, &err, &events);
    } else {
        events.previews = wants_previews(w, p.extra_data);
        execute(w, job, &p, &events);
    }
    parsed_release(&p);
    w->owed = true;
    state_publish(w, w->freed ? "free" : "prompt", w->freed);
}
