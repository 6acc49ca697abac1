/* Prompts come in here. The way of one: JSON, number, validation, then the store; the 200 goes out
 * when the store says that it is on disk, and not before. */
#include "graph/graph.h"
#include "server/routes.h"

#include <stdlib.h>
#include <string.h>

#define PROMPT_ID_MAX 512 /* bytes; a uuid has 36 */

/* {"error":{type,message,details,extra_info},"node_errors":{}} */
static void refuse(struct http_req *r, int status, const char *type, const char *message,
                   const char *details)
{
    http_reply_json(r, status,
                    json_pack("{s:{s:s,s:s,s:s,s:{}},s:{}}", "error", "type", type, "message",
                              message, "details", details, "extra_info", "node_errors"));
}

/* ---- the answer, when the prompt is safe ---- */

struct accepting { /* the writer fills st and err, then it is the loop's */
    struct server *server;
    struct http_req *r; /* held */
    struct str reply;
    berth_status st;
    berth_err err;
};

static void accepting_free(struct accepting *a)
{
    http_unhold(a->r);
    str_release(&a->reply);
    free(a);
}

static void refuse_disk(struct http_req *r, const berth_err *err)
{
    refuse(r, err_http_status(err), "storage_error", "The prompt could not be stored", err->msg);
}

static void accepted(struct server *s, void *arg) /* loop */
{
    struct accepting *a = arg;
    if (a->st) {
        log_error(&s->log, "prompt.lost", "status=%s why=%s", berth_status_name(a->st), a->err.msg);
        refuse_disk(a->r, &a->err);
    } else {
        http_reply_json_text(a->r, 200, &a->reply);
    }
    accepting_free(a);
}

static void stored(void *user, berth_status st, const berth_err *err) /* writer thread */
{
    struct accepting *a = user;
    a->st = st;
    if (st)
        a->err = *err;
    else
        hub_send_status(a->server); /* here: the worker, which may take it next, sends its own */
    loop_post(a->server, accepted, a);
}

/* ---- what a body says ---- */

struct incoming {
    json_t *body; /* owned; the rest borrows from it */
    json_t *prompt, *extra;
    json_t *number; /* owned */
    struct str id;
    struct validation v;
};

static void incoming_release(struct incoming *in)
{
    validation_release(&in->v);
    str_release(&in->id);
    json_decref(in->number);
    json_decref(in->body);
}

/* float(number); text counts if it is a number. NULL: it is none. */
static json_t *number_given(const json_t *v)
{
    double d;
    json_t *parsed = NULL, *out = NULL;
    berth_err err = { 0 };
    if (js_kind(v) == JS_STRING &&
        !js_parse(json_string_value(v), json_string_length(v), NULL, &parsed, &err))
        v = parsed;
    if (js_kind(v) == JS_BOOL)
        out = json_real(json_is_true(v) ? 1 : 0);
    else if (js_get_f64(v, &d))
        out = json_real(d);
    json_decref(parsed);
    return out;
}

/* A body without a number takes the next one, whatever becomes of the prompt. */
static bool take_number(struct http_req *r, struct incoming *in)
{
    const json_t *given = json_object_get(in->body, "number");
    if (given) {
        in->number = number_given(given);
        if (!in->number)
            refuse(r, 400, "invalid_prompt", "number is not a number", "number");
        return in->number;
    }
    uint64_t n = store_next_number(r->server->store);
    int64_t i = n > INT64_MAX ? INT64_MAX : (int64_t)n;
    in->number = json_integer(py_truth(json_object_get(in->body, "front")) ? -i : i);
    if (!in->number)
        http_reply_json(r, 500, NULL);
    return in->number;
}

static bool take_id(struct http_req *r, struct incoming *in)
{
    const json_t *given = json_object_get(in->body, "prompt_id");
    if (given) {
        py_str(given, &in->id);
    } else {
        char id[UUID_TEXT];
        uuid4_text(id);
        str_adds(&in->id, id);
    }
    if (in->id.bad)
        http_reply_json(r, 500, NULL);
    else if (in->id.n > PROMPT_ID_MAX)
        refuse(r, 400, "invalid_prompt", "prompt_id is too long", "prompt_id");
    else
        return true;
    return false;
}

/* extra_data with client_id and create_time in it, and without the secrets, which nobody here needs:
 * they go to no disk, no queue and no picture. */
static bool take_extra(struct http_req *r, struct incoming *in, int64_t now_ms)
{
    json_t *x = json_object_get(in->body, "extra_data"), *client;
    if (!x || json_is_null(x)) {
        x = json_object();
        if (!x || json_object_set_new(in->body, "extra_data", x)) {
            http_reply_json(r, 500, NULL);
            return false;
        }
    }
    if (!json_is_object(x)) {
        refuse(r, 400, "invalid_prompt", "extra_data is not an object", "extra_data");
        return false;
    }
    json_object_del(x, "auth_token_comfy_org");
    json_object_del(x, "api_key_comfy_org");
    client = json_object_get(in->body, "client_id");
    if ((client && json_object_set(x, "client_id", client)) ||
        json_object_set_new(x, "create_time", json_integer(now_ms))) {
        http_reply_json(r, 500, NULL);
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
static bool fill_job(const struct incoming *in, int64_t now_ms, struct store_job *job)
{
    const json_t *client = json_object_get(in->extra, "client_id");
    struct str sid = { 0 };
    job->id = strdup(str_c(&in->id));
    job->number = json_text(in->number);
    js_get_f64(in->number, &job->order);
    job->prompt = json_text(in->prompt);
    job->extra_data = json_text(in->extra);
    job->outputs = json_text(in->v.outputs);
    job->created_ms = now_ms;
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
    str_adds(out, "{\"prompt_id\":");
    js_write_string(str_c(&in->id), in->id.n, out);
    str_adds(out, ",\"number\":");
    js_write(in->number, 0, out);
    str_adds(out, ",\"node_errors\":");
    js_write(in->v.node_errors, 0, out);
    str_addc(out, '}');
}

static void enqueue(struct http_req *r, const struct incoming *in, int64_t now_ms)
{
    struct store_job job = { 0 };
    berth_err err = { 0 };
    struct accepting *a = calloc(1, sizeof *a);
    if (a)
        reply_text_of(in, &a->reply);
    if (!a || a->reply.bad || !fill_job(in, now_ms, &job)) {
        store_job_release(&job);
        if (a)
            str_release(&a->reply);
        free(a);
        http_reply_json(r, 500, NULL);
        return;
    }
    a->server = r->server;
    a->r = http_hold(r);
    berth_status st = store_add(r->server->store, &job, stored, a, &err);
    if (!st)
        return; /* stored() has it now, maybe accepted() already */
    if (st == BERTH_ELIMIT)
        refuse(r, 429, "queue_full", "The queue is full", err.msg);
    else
        refuse_disk(r, &err);
    accepting_free(a);
}

static void refuse_invalid(struct http_req *r, struct incoming *in)
{
    const json_t *message = json_object_get(in->v.error, "message");
    log_warn(&r->server->log, "prompt.invalid", "id=%s why=%s", str_c(&in->id),
             json_is_string(message) ? json_string_value(message) : "?");
    json_t *out = json_object();
    if (json_object_set(out, "error", in->v.error) ||
        json_object_set(out, "node_errors", in->v.node_errors)) {
        json_decref(out);
        out = NULL;
    }
    http_reply_json(r, 400, out);
}

void route_prompt_post(struct http_req *r)
{
    struct incoming in = { 0 };
    berth_err err = { 0 };
    int64_t now_ms = (int64_t)(clock_wall_ns(r->server->cfg.clock) / 1000000);
    if (!http_json(r, NULL, &in.body))
        return;
    if (!take_number(r, &in) || !take_id(r, &in))
        goto done;
    in.prompt = json_object_get(in.body, "prompt");
    if (!in.prompt) {
        refuse(r, 400, "no_prompt", "No prompt provided", "No prompt provided");
        goto done;
    }
    if (!take_extra(r, &in, now_ms))
        goto done;
    if (graph_validate(&r->server->env, in.prompt,
                       json_object_get(in.body, "partial_execution_targets"), &in.v, &err))
        http_reply_err(r, 0, &err);
    else if (!in.v.ok)
        refuse_invalid(r, &in);
    else
        enqueue(r, &in, now_ms);
done:
    incoming_release(&in);
}

void route_prompt_get(struct http_req *r)
{
    struct str out = { 0 };
    str_addf(&out, "{\"exec_info\":{\"queue_remaining\":%zu}}", store_remaining(r->server->store));
    http_reply_json_text(r, 200, &out);
}
