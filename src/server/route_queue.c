/* Queue and history, seen and changed. Everything here asks the store. One prompt may have
 * megabytes, so all that lists prompts is made on AUX_LISTS. Changes may wait for the disk:
 * AUX_FILES. */
#include "server/body.h"
#include "server/routes.h"

#define INTERRUPT_MAX 65536u /* bytes of a body that are looked at */

/* ---- queue ---- */

void later_queue_get(struct later *l)
{
    l->failed = store_queue_json(l->server->store, &l->body, &l->err);
}

struct change { /* of queue or history; base.json is the body, an object */
    struct later base;
    size_t gone; /* prompts that left the queue */
};

/* Takes the body. */
static void change_start(struct http_req *r, json_t *body, later_fn *work, later_fn *after)
{
    struct change *x = later_new_json(r, sizeof *x, AUX_FILES, work, body);
    if (!x)
        return;
    x->base.after = after;
    later_run(&x->base);
}

static void change_run(struct http_req *r, later_fn *work, later_fn *after)
{
    json_t *body;
    if (!http_json(r, NULL, &body))
        return;
    if (json_is_object(body)) {
        change_start(r, body, work, after);
        return;
    }
    json_decref(body);
    http_reply_text(r, 400, "the body is not a JSON object");
}

static void queue_change(struct later *l)
{
    struct change *x = (struct change *)l;
    struct store *st = l->server->store;
    size_t n = 0;
    const char **ids = NULL;
    if (py_truth(json_object_get(l->json, "clear")))
        x->gone += store_clear(st, &l->err);
    if (!l->err.code && json_ids(json_object_get(l->json, "delete"), &ids, &n) && n)
        x->gone += store_delete(st, ids, n, &l->err);
    l->failed = l->err.code;
    free(ids);
}

static void queue_changed(struct later *l)
{
    if (((struct change *)l)->gone)
        hub_send_status(l->server);
}

void route_queue_post(struct http_req *r)
{
    change_run(r, queue_change, queue_changed);
}

/* Berth's own: waiting prompts may be held back, and change places. */
void queue_state_json(struct server *s, struct str *out)
{
    struct store *st = s->store;
    size_t pending = store_pending(st), all = store_remaining(st);
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_bool(&j, "paused", store_paused(st));
    jo_u64(&j, "running", all > pending ? all - pending : 0);
    jo_u64(&j, "pending", pending);
    jo_u64(&j, "history", store_history_count(st));
    worker_running_json(s, "executing", &j);
    jo_close(&j, '}');
}

/* One of the two; both were looked at before. */
static void queue_state_change(struct later *l)
{
    const json_t *move = json_object_get(l->json, "move");
    struct store *st = l->server->store;
    berth_err err = { 0 };
    if (move ? store_move(st, json_string_value(json_object_get(move, "prompt_id")),
                          json_string_value(json_object_get(move, "before")), &err)
             : store_pause(st, json_is_true(json_object_get(l->json, "paused")), &err))
        later_err_json(l, err.code == BERTH_ELIMIT ? 409 : 0, &err); /* no number is left there */
    else
        queue_state_json(l->server, &l->body);
}

/* Clients that show the queue or the history fetch them again after a status. */
static void queue_state_changed(struct later *l)
{
    if (l->status == 200)
        hub_send_status(l->server);
}

static berth_status check_state_change(const json_t *body, berth_err *err)
{
    static const char *const known[] = { "paused", "move", NULL };
    static const char *const of_move[] = { "prompt_id", "before", NULL };
    const json_t *paused = json_object_get(body, "paused"), *move = json_object_get(body, "move");
    const json_t *before = json_object_get(move, "before");
    if (body_check(body, known, err))
        return err->code;
    if (!paused == !move || (paused && !json_is_boolean(paused)))
        return err_set(err, BERTH_EINVAL,
                       "wanted: {\"paused\": true}, {\"paused\": false} or {\"move\": "
                       "{\"prompt_id\": id, \"before\": id or null}}");
    if (!move)
        return BERTH_OK;
    if (body_check(move, of_move, err))
        return err_add(err, "move");
    if (js_kind(json_object_get(move, "prompt_id")) != JS_STRING)
        return err_set(err, BERTH_EINVAL, "move: prompt_id is not a text");
    if (!before || (js_kind(before) != JS_STRING && js_kind(before) != JS_NULL))
        return err_set(err, BERTH_EINVAL, "move: before is neither a prompt_id nor null");
    return BERTH_OK;
}

void route_queue_state_post(struct http_req *r)
{
    json_t *body;
    berth_err err = { 0 };
    if (!http_json(r, NULL, &body))
        return;
    if (!check_state_change(body, &err)) {
        change_start(r, body, queue_state_change, queue_state_changed);
        return;
    }
    http_reply_err(r, 400, &err);
    json_decref(body);
}

/* Whatever the body is, the answer is 200; what is no object with a prompt_id means "whatever
 * runs". */
void route_interrupt(struct http_req *r)
{
    json_t *body = NULL;
    berth_err err = { 0 };
    if (r->body.n <= INTERRUPT_MAX)
        js_parse(str_c(&r->body), r->body.n, NULL, &body, &err);
    const json_t *id = json_object_get(body, "prompt_id");
    if (!py_truth(id))
        worker_interrupt(r->server, NULL);
    else if (js_kind(id) == JS_STRING)
        worker_interrupt(r->server, json_string_value(id));
    json_decref(body);
    http_reply_empty(r, 200);
}

/* ---- history ---- */

struct listing {
    struct later base;
    struct store_page page;
};

static void listing_work(struct later *l)
{
    struct listing *x = (struct listing *)l;
    l->failed = store_history_json(l->server->store, &x->page, &l->body, &l->err);
}

void route_history_get(struct http_req *r)
{
    struct store_page page = { 0 };
    if (!query_int(r, "max_items", &page.has_max, &page.max) ||
        !query_int(r, "offset", &page.has_offset, &page.offset)) {
        http_reply_text(r, 400, "max_items and offset must be integers");
        return;
    }
    struct listing *x = later_new(r, sizeof *x, AUX_LISTS, listing_work);
    if (!x)
        return;
    x->page = page;
    later_run(&x->base);
}

void later_history_one(struct later *l)
{
    l->failed = store_history_one(l->server->store, str_c(&l->r->param[0]), &l->body, &l->err);
}

static void history_change(struct later *l)
{
    struct store *st = l->server->store;
    size_t n = 0;
    const char **ids = NULL;
    if (py_truth(json_object_get(l->json, "clear")))
        l->failed = store_history_clear(st, &l->err);
    if (!l->failed && json_ids(json_object_get(l->json, "delete"), &ids, &n) && n)
        l->failed = store_history_delete(st, ids, n, &l->err);
    free(ids);
}

void route_history_post(struct http_req *r)
{
    change_run(r, history_change, queue_state_changed);
}
