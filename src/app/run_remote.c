#include "app/run.h"

#include <sys/random.h>
#include <unistd.h>

#define SECONDS 60
#define LOOK_EVERY_US 50000              /* into the history, without a WebSocket */
#define LISTEN_NS (UINT64_C(1000000000)) /* and with one: should it fall silent */
#define LISTEN_MS 100                    /* at a time: a signal may come in between */

struct watch { /* what is known of the prompt */
    const struct remote_run *r;
    const char *id;
    struct client_ws *ws; /* NULL: none, or no more */
    char node[GRAPH_ID_MAX + 1];
    bool started, over, told;
};

static berth_status ask(struct client *c, const char *path, json_t *body, json_t **out,
                        berth_err *err)
{
    struct str text = { 0 };
    js_write(body, -1, &text);
    berth_status s = body && !text.bad ? client_json(c, path, str_c(&text), SECONDS, out, err)
                                       : err_set(err, BERTH_ENOMEM, "the request");
    str_release(&text);
    json_decref(body);
    return s;
}

static berth_status look(struct client *c, const char *id, json_t **item, berth_err *err)
{
    char path[128];
    json_t *history = NULL;
    snprintf(path, sizeof path, "/history/%.64s", id);
    berth_status s = client_json(c, path, NULL, SECONDS, &history, err);
    *item = json_incref(json_object_get(history, id));
    json_decref(history);
    return s;
}

/* ---- the WebSocket ---- */

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void send_event(const struct watch *w, enum exec_event_kind kind, const json_t *data)
{
    const json_t *node = json_object_get(w->r->prompt, w->node);
    const char *shown = text_of(data, "display_node"); /* of a node that another one brought in */
    if (!node && shown)
        node = json_object_get(w->r->prompt, shown);
    const struct exec_event e = { .kind = kind,
                                  .prompt_id = w->id,
                                  .node = w->node,
                                  .class_type = text_of(node, "class_type"),
                                  .value = json_number_value(json_object_get(data, "value")),
                                  .max = json_number_value(json_object_get(data, "max")),
                                  .data = data };
    w->r->event(w->r->user, &e);
}

/* No message says that a node ended, but the next one begins. */
static void executing(struct watch *w, const json_t *data)
{
    const char *node = text_of(data, "node");
    if (w->node[0])
        send_event(w, EXEC_NODE_DONE, NULL);
    w->over = !node;
    snprintf(w->node, sizeof w->node, "%s", node ? node : "");
    if (node)
        send_event(w, EXEC_NODE_START, data);
}

static void handle_message(struct watch *w, const json_t *message)
{
    const json_t *data = json_object_get(message, "data");
    const char *type = text_of(message, "type"), *of = text_of(data, "prompt_id");
    if (!type || !of || strcmp(of, w->id) != 0)
        return;
    w->started = true;
    if (!strcmp(type, "execution_cached"))
        send_event(w, EXEC_CACHED, data);
    else if (!strcmp(type, "executing"))
        executing(w, data);
    else if (!strcmp(type, "progress") && w->node[0])
        send_event(w, EXEC_PROGRESS, data);
    else if (!strcmp(type, "execution_error") || !strcmp(type, "execution_interrupted"))
        w->over = true; /* the node did not end */
}

/* Until it is over, the socket is, or it is time to look into the history all the same. */
static void listen_on(struct watch *w)
{
    const struct clock *clock = clock_system();
    uint64_t end = clock_mono_ns(clock) + LISTEN_NS;
    while (w->ws && !w->over && !atomic_load(w->r->stop) && clock_mono_ns(clock) < end) {
        json_t *message;
        enum client_heard h = client_ws_next(w->ws, LISTEN_MS, &message);
        if (h == CLIENT_HEARD_MESSAGE)
            handle_message(w, message);
        json_decref(message);
        if (h == CLIENT_HEARD_END || w->over) {
            client_ws_close(w->ws);
            w->ws = NULL;
        }
    }
}

static berth_status wait_for(struct watch *w, json_t **item, berth_err *err)
{
    berth_status s = BERTH_OK;
    while (!s && !*item && !atomic_load(w->r->stop)) {
        listen_on(w);
        s = look(w->r->client, w->id, item, err);
        if (s || *item)
            break;
        if (!w->ws)
            usleep(LOOK_EVERY_US);
        else if (!w->started && !w->told) {
            w->told = true;
            w->r->queued(w->r->user);
        }
    }
    return s;
}

/* Stops it. Out of the queue first, so that it cannot start meanwhile. */
static berth_status call_off(struct client *c, const char *id, berth_err *err)
{
    json_t *ignored = NULL;
    berth_status s = ask(c, "/queue", json_pack("{s:[s]}", "delete", id), &ignored, err);
    json_decref(ignored);
    ignored = NULL;
    if (!s)
        s = ask(c, "/interrupt", json_pack("{s:s}", "prompt_id", id), &ignored, err);
    json_decref(ignored);
    return s;
}

static void make_client_id(char out[33])
{
    uint8_t raw[16] = { 0 };
    (void)getrandom(raw, sizeof raw, 0); /* a name, no secret */
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(out + 2 * i, 3, "%02x", raw[i]);
}

berth_status run_remote(const struct remote_run *r, json_t **item, berth_err *err)
{
    struct watch w = { .r = r };
    json_t *answer = NULL;
    char me[33];
    *item = NULL;
    make_client_id(me);
    if (client_ws_open(r->client, me, &w.ws, err) && !r->client->met)
        return atomic_load(r->stop) ? BERTH_OK : err->code; /* nobody there */
    json_t *body =
        json_pack("{s:O, s:O*, s:s}", "prompt", r->prompt, "extra_data", r->extra, "client_id", me);
    berth_status s = ask(r->client, "/prompt", body, &answer, err);
    w.id = text_of(answer, "prompt_id");
    if (!s && !w.id)
        s = err_set(err, BERTH_EFORMAT, "the server's answer has no prompt_id");
    json_t *left_out = json_object_get(answer, "node_errors");
    if (!s && json_object_size(left_out))
        r->partly(r->user, left_out);
    if (!s)
        s = wait_for(&w, item, err);
    if (!s && !*item)
        s = call_off(r->client, w.id, err);
    client_ws_close(w.ws);
    json_decref(answer);
    return s;
}
