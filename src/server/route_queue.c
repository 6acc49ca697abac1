/* Queue and history, seen and changed. Everything here asks the store; listings that may be long are
 * made on the aux thread. */
#include "server/routes.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_NOW 200 /* history entries that the loop lists itself */

/* ---- queue ---- */

void route_queue_get(struct http_req *r)
{
    struct str out = { 0 };
    store_queue_json(r->server->store, &out);
    http_reply_json_text(r, 200, &out);
}

/* An object, or something that acts like an empty one: false and a 400 for the rest. */
static bool body_object(struct http_req *r, const char *empty, json_t **out)
{
    if (!http_json(r, empty, out))
        return false;
    if (json_is_object(*out))
        return true;
    json_decref(*out);
    http_reply_text(r, 400, "the body is not a JSON object");
    return false;
}

void route_queue_post(struct http_req *r)
{
    struct server *s = r->server;
    berth_err err = { 0 };
    json_t *body;
    if (!body_object(r, NULL, &body))
        return;
    size_t gone = 0, n = 0;
    const char **ids = NULL;
    if (py_truth(json_object_get(body, "clear")))
        gone += store_clear(s->store, &err);
    if (!err.code && json_ids(json_object_get(body, "delete"), &ids, &n) && n)
        gone += store_delete(s->store, ids, n, &err);
    free(ids);
    json_decref(body);
    if (err.code)
        reply_trouble(r, &err);
    else
        http_reply_empty(r, 200);
    if (gone)
        hub_send_status(s);
}

/* Berth's own: waiting prompts may be held back. */
void route_queue_state_get(struct http_req *r)
{
    struct store *st = r->server->store;
    struct str out = { 0 };
    size_t pending = store_pending(st), all = store_remaining(st);
    str_addf(&out, "{\"paused\":%s,\"running\":%zu,\"pending\":%zu,\"history\":%zu}",
             store_paused(st) ? "true" : "false", all > pending ? all - pending : 0, pending,
             store_history_count(st));
    http_reply_json_text(r, 200, &out);
}

void route_queue_state_post(struct http_req *r)
{
    json_t *body;
    if (!body_object(r, NULL, &body))
        return;
    json_t *paused = json_object_get(body, "paused");
    if (!json_is_boolean(paused)) {
        http_reply_text(r, 400, "wanted: {\"paused\": true} or {\"paused\": false}");
    } else {
        store_pause(r->server->store, json_is_true(paused));
        worker_wake(r->server);
        route_queue_state_get(r);
    }
    json_decref(body);
}

/* Whatever the body is, the answer is 200; what is no object with a prompt_id means "whatever runs".
 */
void route_interrupt(struct http_req *r)
{
    json_t *body = NULL;
    berth_err err = { 0 };
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

static void listing_release(struct later *l)
{
    free(l);
}

static void listing_work(struct later *l)
{
    struct listing *x = (struct listing *)l;
    berth_err err = { 0 };
    if (store_history_json(l->server->store, &x->page, &l->body, &err)) {
        later_err(l, 0, &err);
        return;
    }
    l->status = 200;
    l->type = "application/json; charset=utf-8";
}

void route_history_get(struct http_req *r)
{
    struct store_page page = { 0 };
    if (!query_int(r, "max_items", &page.has_max, &page.max) ||
        !query_int(r, "offset", &page.has_offset, &page.offset)) {
        http_reply_text(r, 400, "max_items and offset must be integers");
        return;
    }
    bool small =
        (page.has_max && page.max <= PAGE_NOW) || store_history_count(r->server->store) <= PAGE_NOW;
    if (!small) {
        struct listing *x = calloc(1, sizeof *x);
        if (!x) {
            http_reply_json(r, 500, NULL);
            return;
        }
        x->base.work = listing_work;
        x->base.release = listing_release;
        x->page = page;
        later_run(r, &x->base);
        return;
    }
    struct str out = { 0 };
    berth_err err = { 0 };
    if (store_history_json(r->server->store, &page, &out, &err)) {
        str_release(&out);
        reply_trouble(r, &err);
        return;
    }
    http_reply_json_text(r, 200, &out);
}

void route_history_one(struct http_req *r)
{
    struct str out = { 0 };
    berth_err err = { 0 };
    if (store_history_one(r->server->store, str_c(&r->param[0]), &out, &err)) {
        str_release(&out);
        reply_trouble(r, &err);
        return;
    }
    http_reply_json_text(r, 200, &out);
}

void route_history_post(struct http_req *r)
{
    struct store *st = r->server->store;
    berth_err err = { 0 };
    json_t *body;
    if (!body_object(r, NULL, &body))
        return;
    size_t n = 0;
    const char **ids = NULL;
    berth_status s = BERTH_OK;
    if (py_truth(json_object_get(body, "clear")))
        s = store_history_clear(st, &err);
    if (!s && json_ids(json_object_get(body, "delete"), &ids, &n) && n)
        s = store_history_delete(st, ids, n, &err);
    free(ids);
    json_decref(body);
    if (s)
        reply_trouble(r, &err);
    else
        http_reply_empty(r, 200);
}
