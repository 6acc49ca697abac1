/* hub: the WebSocket clients; see hub.h. Everything that is sent is posted to the loop and handed
 * to its sockets there, so that messages of one thread stay in order, and one text serves all. */
#include "server/ws.h"

#include "base/map.h"

#include <sys/random.h>

struct hub { /* owner: loop, except where marked */
    struct server *server;
    struct conn *first; /* every WebSocket */
    size_t n;
    struct map by_sid; /* sid -> struct conn *, the one that has the name; keys are ws->sid */
    atomic_size_t log_readers; /* any thread reads */
};

berth_status hub_open(struct server *s, berth_err *err)
{
    struct hub *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(err, BERTH_ENOMEM, "the hub");
    h->server = s;
    if (getrandom(&h->by_sid.seed, sizeof h->by_sid.seed, 0) < 0)
        h->by_sid.seed = clock_mono_ns(clock_system());
    s->hub = h;
    return BERTH_OK;
}

void hub_close(struct server *s)
{
    if (!s->hub)
        return;
    map_release(&s->hub->by_sid);
    free(s->hub);
    s->hub = NULL;
}

size_t hub_count(const struct server *s)
{
    return s->hub->n;
}

/* ---- names ---- */

static struct conn *by_sid(const struct hub *h, const char *sid)
{
    uint64_t v;
    return map_get(&h->by_sid, sid, strlen(sid), &v) ? (struct conn *)(uintptr_t)v : NULL;
}

/* The name is c's from now on; false: no memory. */
static bool take_name(struct hub *h, struct conn *c)
{
    const char *sid = c->ws->sid;
    struct conn *old = by_sid(h, sid);
    if (old) { /* it keeps its socket, and loses name, subscription and key */
        map_del(&h->by_sid, sid, strlen(sid));
        c->ws->logs = old->ws->logs;
        old->ws->logs = false;
    }
    return map_add(&h->by_sid, sid, strlen(sid), (uintptr_t)c) == MAP_ADDED;
}

static void set_logs(struct hub *h, struct conn *c, bool on)
{
    if (c->ws->logs == on)
        return;
    c->ws->logs = on;
    if (on)
        atomic_fetch_add(&h->log_readers, 1);
    else
        atomic_fetch_sub(&h->log_readers, 1);
}

void hub_closed(struct server *s, struct conn *c)
{
    struct hub *h = s->hub;
    struct ws *w = c->ws;
    if (!w->listed)
        return;
    set_logs(h, c, false);
    if (by_sid(h, w->sid) == c)
        map_del(&h->by_sid, w->sid, strlen(w->sid));
    if (w->prev)
        w->prev->ws->next = w->next;
    else
        h->first = w->next;
    if (w->next)
        w->next->ws->prev = w->prev;
    w->listed = false;
    h->n--;
}

/* ---- to one socket ---- */

static bool fits(const struct conn *c, size_t n)
{
    size_t max = loop_limits(c->server)->ws_bytes;
    return !c->out || (c->out_bytes <= max && n <= max - c->out_bytes);
}

/* At most one preview waits behind the one under way. A client that leaves too much unread loses
 * that one first, then it is closed. */
static void give(struct conn *c, enum out_kind kind, unsigned op, struct blob *b)
{
    if (c->dead || c->close_when_sent)
        return;
    if (kind == OUT_PREVIEW) {
        if (!conn_swap_preview(c, b))
            conn_send_frame(c, kind, op, b);
        return;
    }
    if (!fits(c, b->n))
        conn_drop_preview(c);
    if (fits(c, b->n)) {
        conn_send_frame(c, kind, op, b);
        return;
    }
    log_warn(&c->server->log, "hub.slow", "unread=%zu what=closed sid=\"%.80s\"", c->out_bytes,
             c->ws->sid);
    conn_kill(c);
}

static void give_text(struct conn *c, struct str *taken)
{
    struct blob *b = blob_new(taken);
    if (b)
        give(c, OUT_MESSAGE, WS_TEXT, b);
    else
        conn_kill(c); /* a gap would be worse than a reconnect */
    blob_unref(b);
}

/* ---- posted messages ---- */

enum to { TO_SID, TO_ALL, TO_LOGS };

struct letter { /* made anywhere, opened on the loop */
    enum to to;
    enum out_kind kind;
    unsigned op;
    struct blob *blob, *plain; /* plain: what clients without preview metadata get */
    char sid[];
};

static void deliver_to(struct letter *m, struct conn *c)
{
    struct blob *b = m->plain && !c->ws->preview_metadata ? m->plain : m->blob;
    if (b)
        give(c, m->kind, m->op, b);
}

static void deliver(struct server *s, void *arg)
{
    struct letter *m = arg;
    struct hub *h = s->hub;
    struct conn *c = m->to == TO_SID ? by_sid(h, m->sid) : NULL;
    if (c)
        deliver_to(m, c);
    for (c = m->to == TO_SID ? NULL : h->first; c; c = c->ws->next)
        if (m->to == TO_ALL || c->ws->logs)
            deliver_to(m, c);
    blob_unref(m->blob);
    blob_unref(m->plain);
    free(m);
}

/* Takes both texts. Without memory the message is lost: whoever sent it cannot help that either. */
static void post(struct server *s, enum to to, const char *sid, enum out_kind kind, unsigned op,
                 struct str *taken, struct str *plain)
{
    size_t n = sid ? strlen(sid) : 0;
    struct letter *m = malloc(sizeof *m + n + 1);
    struct blob *b = taken ? blob_new(taken) : NULL, *b2 = plain ? blob_new(plain) : NULL;
    if (!m || (taken && !b) || (plain && !b2)) {
        blob_unref(b);
        blob_unref(b2);
        free(m);
        return;
    }
    *m = (struct letter) { .to = to, .kind = kind, .op = op, .blob = b, .plain = b2 };
    memcpy(m->sid, sid ? sid : "", n + 1);
    loop_post(s, deliver, m);
}

void hub_send(struct server *s, const char *sid, struct str *taken)
{
    post(s, sid ? TO_SID : TO_ALL, sid, OUT_MESSAGE, WS_TEXT, taken, NULL);
}

static void wrap(const char *type, const char *data, struct str *out)
{
    str_adds(out, "{\"type\": ");
    js_write_string(type, strlen(type), out);
    str_adds(out, ", \"data\": ");
    str_adds(out, data);
    str_addc(out, '}');
}

void hub_send_message(struct server *s, const char *sid, const char *type, const char *data)
{
    struct str text = { 0 };
    wrap(type, data, &text);
    hub_send(s, sid, &text);
}

void hub_send_logs(struct server *s, struct str *taken)
{
    post(s, TO_LOGS, NULL, OUT_MESSAGE, WS_TEXT, taken, NULL);
}

bool hub_logs_wanted(const struct server *s)
{
    return s->hub && atomic_load(&s->hub->log_readers);
}

/* ---- binary ---- */

static void add_u32(struct str *out, size_t v)
{
    const char b[4] = { (char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v };
    str_add(out, b, sizeof b);
}

static void add_member(struct str *out, const char *name, const char *value)
{
    str_addf(out, "%s\"%s\": ", out->n > 1 ? ", " : "", name);
    if (value)
        js_write_string(value, strlen(value), out);
    else
        str_adds(out, "null");
}

void hub_send_preview(struct server *s, const char *sid, struct hub_preview *taken)
{
    struct str meta = { 0 }, full = { 0 }, plain = { 0 };
    const char *display = taken->display_node ? taken->display_node : taken->node;
    str_addc(&meta, '{');
    add_member(&meta, "node_id", taken->node);
    add_member(&meta, "prompt_id", taken->prompt_id);
    add_member(&meta, "display_node_id", display);
    add_member(&meta, "parent_node_id", taken->parent_node);
    add_member(&meta, "real_node_id", taken->real_node ? taken->real_node : taken->node);
    add_member(&meta, "image_type", taken->png ? "image/png" : "image/jpeg");
    str_addc(&meta, '}');
    add_u32(&plain, 1);
    add_u32(&plain, taken->png ? 2 : 1);
    str_add(&plain, str_c(&taken->bytes), taken->bytes.n);
    add_u32(&full, 4);
    add_u32(&full, meta.n);
    str_add(&full, str_c(&meta), meta.n);
    str_add(&full, str_c(&taken->bytes), taken->bytes.n);
    if (taken->bytes.bad || meta.bad)
        plain.bad = full.bad = true;
    if (!sid) /* to all: the form everybody understands */
        str_release(&full);
    post(s, sid ? TO_SID : TO_ALL, sid, OUT_PREVIEW, WS_BINARY, sid ? &full : &plain,
         sid ? &plain : NULL);
    str_release(&meta);
    str_release(&taken->bytes);
}

void hub_send_text(struct server *s, const char *node, const char *p, size_t n)
{
    struct str b = { 0 };
    add_u32(&b, 3);
    add_u32(&b, strlen(node));
    str_adds(&b, node);
    str_add(&b, p, n);
    post(s, TO_ALL, NULL, OUT_MESSAGE, WS_BINARY, &b, NULL);
}

/* ---- status ---- */

static void add_status(struct server *s, const char *sid, struct str *out)
{
    str_addf(out,
             "{\"type\": \"status\", \"data\": {\"status\": {\"exec_info\": {\"queue_remaining\": "
             "%zu}}",
             store_remaining(s->store));
    if (sid) {
        str_adds(out, ", \"sid\": ");
        js_write_string(sid, strlen(sid), out);
    }
    str_adds(out, "}}");
}

void hub_send_status(struct server *s)
{
    struct str text = { 0 };
    add_status(s, NULL, &text);
    hub_send(s, NULL, &text);
}

/* ---- clients ---- */

void hub_opened(struct server *s, struct conn *c, const char *client_id)
{
    struct hub *h = s->hub;
    struct ws *w = c->ws;
    struct str text = { 0 }, node = { 0 };
    if (!take_name(h, c)) {
        conn_kill(c);
        return;
    }
    w->next = h->first;
    if (h->first)
        h->first->ws->prev = c;
    h->first = c;
    w->listed = true;
    h->n++;
    add_status(s, client_id, &text);
    give_text(c, &text);
    if (worker_executing_json(s, client_id, &node)) {
        wrap("executing", str_c(&node), &text);
        give_text(c, &text);
    }
    str_release(&node);
}

static void answer_flags(struct server *s, struct conn *c, const json_t *data)
{
    struct str flags = { 0 }, text = { 0 };
    c->ws->preview_metadata = json_is_true(json_object_get(data, "supports_preview_metadata"));
    hub_features(s, &flags);
    wrap("feature_flags", str_c(&flags), &text);
    give_text(c, &text);
    str_release(&flags);
}

void hub_features(const struct server *s, struct str *out)
{
    str_addf(out,
             "{\"supports_preview_metadata\": true, \"max_upload_size\": %ju, "
             "\"extension\": {\"manager\": {\"supports_v4\": true}}}",
             (uintmax_t)s->cfg.max_upload);
}

void hub_received(struct server *s, struct conn *c, const char *p, size_t n)
{
    json_t *v = NULL;
    berth_err err;
    if (js_parse(p, n, NULL, &v, &err)) {
        log_debug(&s->log, "hub.json", "sid=\"%.40s\" why=\"%s\"", c->ws->sid, err.msg);
        return;
    }
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *data = json_object_get(v, "data");
    if (!c->ws->spoke && type && !strcmp(type, "feature_flags"))
        answer_flags(s, c, data);
    c->ws->spoke = true;
    json_decref(v);
}

void hub_subscribe_logs(struct server *s, const char *sid, bool on)
{
    struct conn *c = by_sid(s->hub, sid);
    if (c)
        set_logs(s->hub, c, on);
}
