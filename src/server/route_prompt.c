/* POST /prompt: JSON, number, id, validation, then the store. The 200 is sent only once the store
 * says that the prompt is on disk.
 *
 * Threads    judge() runs on AUX_PROMPTS, as a body may have 50 MB and validation reads folders.
 *            Then the store's thread, then the loop. One lane keeps prompts in order. */
#include "graph/graph.h"
#include "server/routes.h"

struct incoming { /* owner: the loop, then the lane, the writer, and the loop again */
    struct post post;
    struct server *server;
    struct http_req *r; /* held */
    struct str text;    /* of the body */
    char *usage;        /* what the client calls itself, Comfy-Usage-Source; NULL: nothing */
    int64_t now_ms;
    /* what it says, while it is judged */
    json_t *body; /* owned; the next two borrow from it */
    json_t *prompt, *extra;
    json_t *number; /* owned */
    struct str id;
    struct validation v;
    /* the verdict */
    int status; /* of a refusal; 0: job is to be stored, then reply goes out with 200 */
    struct str reply;
    struct str said; /* of it in the log, when it is stored */
    struct store_job job;
    /* of the store */
    berth_status st;
    berth_err err;
    struct incoming *next; /* among those whose id is claimed */
    bool claimed;
};

/* Freeing the tree of a large body takes time: not on the loop. */
static void forget(struct incoming *in)
{
    validation_release(&in->v);
    str_release(&in->text);
    json_decref(in->number);
    json_decref(in->body);
    in->number = in->body = in->prompt = in->extra = NULL;
}

/* ---- ids ---- */

/* Reserves the id until it is visible in the queue, or refused. False: another prompt has it. */
static bool claim(struct incoming *in)
{
    struct server *s = in->server;
    pthread_mutex_lock(&s->ids_lock);
    const struct incoming *at = s->ids;
    while (at && strcmp(str_c(&at->id), str_c(&in->id)))
        at = at->next;
    in->claimed = !at;
    if (!at) {
        in->next = s->ids;
        s->ids = in;
    }
    pthread_mutex_unlock(&s->ids_lock);
    return !at;
}

static void unclaim(struct incoming *in)
{
    struct server *s = in->server;
    if (!in->claimed)
        return;
    pthread_mutex_lock(&s->ids_lock);
    struct incoming **at = &s->ids;
    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
    pthread_mutex_unlock(&s->ids_lock);
    in->claimed = false;
}

static bool same_id(void *user, const struct store_entry *e)
{
    (void)user, (void)e;
    return false;
}

/* Where a prompt with this id is; NULL: nowhere. Jobs go from the queue to the history and never
 * back, so one found in neither, in this order, does not exist; and all new ones pass this lane. */
static const char *taken_by(struct incoming *in)
{
    struct store *st = in->server->store;
    struct store_job job;
    bool running;
    berth_err err = { 0 };
    if (!claim(in))
        return "is being queued";
    if (store_job_get(st, str_c(&in->id), &job, &running)) {
        store_job_release(&job);
        return running ? "is running" : "is in the queue";
    }
    return store_entry_get(st, str_c(&in->id), same_id, NULL, &err) ? NULL : "is in the history";
}

static void incoming_free(struct incoming *in)
{
    unclaim(in);
    http_unhold(in->r);
    forget(in);
    free(in->usage);
    str_release(&in->id);
    str_release(&in->reply);
    str_release(&in->said);
    store_job_release(&in->job);
    free(in);
}

/* ---- refusals ---- */

static void refuse_json(struct incoming *in, int status, json_t *taken)
{
    in->status = status;
    str_clear(&in->reply);
    http_add_json(taken, &in->reply);
}

/* {"error":{type,message,details,extra_info},"node_errors":{}} */
static void refuse(struct incoming *in, int status, const char *type, const char *message,
                   const char *details)
{
    refuse_json(in, status,
                json_pack("{s:{s:s,s:s,s:s,s:{}},s:{}}", "error", "type", type, "message", message,
                          "details", details, "extra_info", "node_errors"));
}

static void refuse_err(struct incoming *in, int status, const berth_err *err)
{
    in->status = status ? status : err_http_status(err);
    str_clear(&in->reply);
    err_http_json(err, &in->reply);
}

static void refuse_disk(struct incoming *in, const berth_err *err)
{
    struct str why = { 0 };
    err_without_folders(err, &why);
    refuse(in, err_http_status(err), "storage_error", "The prompt could not be stored",
           str_c(&why));
    str_release(&why);
}

static void refuse_memory(struct incoming *in)
{
    refuse_json(in, 500, NULL);
}

static const char *text_of(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

/* The first error of the first node that has one, else what is wrong with the whole. */
static void log_invalid(const struct incoming *in)
{
    const char *id;
    json_t *node;
    struct str line = { 0 }, why = { 0 };
    const json_t *e = in->v.error;
    logs_pair(&line, "id", str_c(&in->id));
    json_object_foreach(in->v.node_errors, id, node)
    {
        const json_t *first = json_array_get(json_object_get(node, "errors"), 0);
        if (!first)
            continue;
        const char *input = text_of(json_object_get(first, "extra_info"), "input_name");
        e = first;
        logs_pair(&line, "node", id);
        logs_pair(&line, "class", text_of(node, "class_type"));
        if (input[0])
            logs_pair(&line, "input", input);
        break;
    }
    const char *details = text_of(e, "details");
    str_addf(&why, "%s%s%s", text_of(e, "message"), details[0] ? ": " : "", details);
    logs_pair(&line, "why", str_c(&why));
    log_warn(&in->server->log, "prompt.invalid", "%s", line.bad ? "" : line.p + 1);
    str_release(&line);
    str_release(&why);
}

static void refuse_invalid(struct incoming *in)
{
    log_invalid(in);
    json_t *out = json_object();
    if (json_object_set(out, "error", in->v.error) ||
        json_object_set(out, "node_errors", in->v.node_errors)) {
        json_decref(out);
        out = NULL;
    }
    refuse_json(in, 400, out);
}

/* ---- what a body says ---- */

/* A body without a number takes the next one, whatever becomes of the prompt. */
static bool take_number(struct incoming *in)
{
    const json_t *given = json_object_get(in->body, "number");
    double d;
    if (given && !py_to_float(given, &d)) {
        refuse(in, 400, "invalid_prompt", "number is not a number", "number");
        return false;
    }
    if (given) {
        in->number = json_real(d);
        if (!in->number)
            refuse_memory(in);
        return in->number;
    }
    uint64_t n = store_next_number(in->server->store);
    int64_t i = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    in->number = json_integer(py_truth(json_object_get(in->body, "front")) ? -i : i);
    if (!in->number)
        refuse_memory(in);
    return in->number;
}

static bool is_free(struct incoming *in)
{
    const char *where = taken_by(in);
    if (!where)
        return true;
    struct str details = { 0 };
    str_addf(&details, "prompt '%s' %s; one that is sent again needs an id of its own",
             str_c(&in->id), where);
    refuse(in, 409, "duplicate_prompt_id", "prompt_id is taken", str_c(&details));
    str_release(&details);
    return false;
}

static bool take_id(struct incoming *in)
{
    const json_t *given = json_object_get(in->body, "prompt_id");
    bool ours = !given || json_is_null(given);
    char id[UUID_TEXT];
    if (!ours && !is_uuid(given)) {
        refuse(in, 400, "invalid_prompt_id", "prompt_id must be a valid UUID",
               "prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it to "
               "let the server generate one");
        return false;
    }
    if (ours)
        uuid4_text(id);
    str_adds(&in->id, ours ? id : json_string_value(given));
    if (in->id.bad)
        refuse_memory(in);
    return !in->id.bad && (ours || is_free(in));
}

/* Adds client_id and create_time to extra_data, and drops its secrets: nothing here needs them, and
 * they must not reach the disk, the queue or a picture. */
static bool take_extra(struct incoming *in)
{
    json_t *x = json_object_get(in->body, "extra_data"), *client;
    if (!x || json_is_null(x)) {
        x = json_object();
        if (!x || json_object_set_new(in->body, "extra_data", x)) {
            refuse_memory(in);
            return false;
        }
    }
    if (!json_is_object(x)) {
        refuse(in, 400, "invalid_prompt", "extra_data is not an object", "extra_data");
        return false;
    }
    json_object_del(x, "auth_token_comfy_org");
    json_object_del(x, "api_key_comfy_org");
    client = json_object_get(in->body, "client_id");
    json_t *usage = in->usage && !json_object_get(x, "comfy_usage_source") ? json_string(in->usage)
                                                                           : NULL; /* or no UTF-8 */
    if (usage && json_object_set_new(x, "comfy_usage_source", usage)) {
        refuse_memory(in);
        return false;
    }
    if ((client && json_object_set(x, "client_id", client)) ||
        json_object_set_new(x, "create_time", json_integer(in->now_ms))) {
        refuse_memory(in);
        return false;
    }
    in->extra = x;
    return true;
}

static char *json_text(const json_t *v)
{
    struct str s = { 0 };
    js_write(v, 0, &s);
    char *p = str_take(&s);
    str_release(&s);
    return p;
}

/* False: no memory. */
static bool fill_job(const struct incoming *in, struct store_job *job)
{
    const json_t *client = json_object_get(in->extra, "client_id");
    struct str sid = { 0 };
    job->id = strdup(str_c(&in->id));
    job->number = json_text(in->number);
    js_get_f64(in->number, &job->order);
    job->prompt = json_text(in->prompt);
    job->extra_data = json_text(in->extra);
    job->outputs = json_text(in->v.outputs);
    job->created_ms = in->now_ms;
    if (client && !json_is_null(client)) {
        py_str(client, &sid);
        job->client_id = str_take(&sid);
        str_release(&sid);
        if (!job->client_id)
            return false;
    }
    return job->id && job->number && job->prompt && job->extra_data && job->outputs;
}

static void reply_text_of(const struct incoming *in, struct str *out)
{
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_text(&j, "prompt_id", str_c(&in->id), in->id.n);
    jo_value(&j, "number", in->number);
    jo_value(&j, "node_errors", in->v.node_errors);
    jo_close(&j, '}');
}

static bool read_body(struct incoming *in)
{
    berth_err err = { 0 };
    if (!http_body_json(&in->text, NULL, &in->body, &err))
        return true;
    if (err.code == BERTH_ENOMEM)
        refuse_err(in, 503, &err);
    else
        refuse(in, 400, "invalid_json", "The body is not JSON that can be read", err.msg);
    return false;
}

static void judge_prompt(struct incoming *in)
{
    berth_err err = { 0 };
    if (!read_body(in) || !take_number(in) || !take_id(in))
        return;
    in->prompt = json_object_get(in->body, "prompt");
    if (!in->prompt) {
        refuse_json(in, 400, validation_no_prompt(in->body));
        return;
    }
    if (!take_extra(in))
        return;
    if (engine_check(in->server->engine, in->prompt,
                     json_object_get(in->body, "partial_execution_targets"), &in->v, &err)) {
        refuse_err(in, 0, &err);
    } else if (!in->v.ok) {
        refuse_invalid(in);
    } else {
        reply_text_of(in, &in->reply);
        logs_pair(&in->said, "id", str_c(&in->id));
        if (in->reply.bad || !fill_job(in, &in->job))
            refuse_memory(in);
        else
            str_addf(&in->said, " number=%s nodes=%zu", in->job.number,
                     json_object_size(in->prompt));
    }
}

static void judge(struct server *s, void *arg) /* AUX_PROMPTS */
{
    struct incoming *in = arg;
    (void)s;
    judge_prompt(in);
    forget(in);
}

/* ---- into the store ---- */

static void answer(struct server *s, void *arg) /* loop */
{
    struct incoming *in = arg;
    if (in->st) {
        log_error(&s->log, "prompt.lost", "status=%s why=%s", berth_status_name(in->st),
                  in->err.msg);
        refuse_disk(in, &in->err);
    }
    http_reply_json_text(in->r, in->status ? in->status : 200, &in->reply);
    incoming_free(in);
}

static void stored(void *user, berth_status st, const berth_err *err) /* the store's thread */
{
    struct incoming *in = user;
    in->st = st;
    unclaim(in); /* it is seen in the queue now */
    if (st) {
        in->err = *err;
    } else { /* here: the worker, which may take it next, says its own */
        log_info(&in->server->log, "prompt.accepted", "%s", in->said.bad ? "" : in->said.p + 1);
        hub_send_status(in->server);
    }
    loop_post(in->server, &in->post, answer, in);
}

static void judged(struct server *s, void *arg) /* loop */
{
    struct incoming *in = arg;
    berth_err err = { 0 };
    if (!in->status) {
        berth_status st = store_add(s->store, &in->job, stored, in, &err);
        if (!st)
            return; /* stored() has it now */
        if (st == BERTH_ELIMIT)
            refuse(in, 429, "queue_full", "The queue is full", err.msg);
        else
            refuse_disk(in, &err);
    }
    answer(s, in);
}

void route_prompt_post(struct http_req *r)
{
    struct incoming *in = calloc(1, sizeof *in);
    if (!in) {
        http_reply_json(r, 500, NULL);
        return;
    }
    in->server = r->server;
    in->r = http_hold(r);
    in->now_ms = (int64_t)(clock_wall_ns(r->server->cfg.clock) / 1000000);
    in->text = r->body;
    const char *usage = http1_get(r->h, "comfy-usage-source");
    in->usage = usage ? strdup(usage) : NULL;
    r->body = (struct str) { 0 };
    if (aux_run(r->server, AUX_PROMPTS, judge, judged, in))
        return;
    http_reply_text(r, 503, "too much is waiting, try again");
    incoming_free(in);
}

void prompt_queue_json(struct server *s, struct str *out)
{
    struct jsonout w = { .out = out };
    jo_open(&w, NULL, '{');
    jo_open(&w, "exec_info", '{');
    jo_u64(&w, "queue_remaining", store_remaining(s->store));
    jo_close(&w, '}');
    jo_close(&w, '}');
}
