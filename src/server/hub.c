/* hub: the WebSocket clients; see hub.h. Messages are posted to the loop and handed to sockets
 * there: so messages of one thread stay in order, and one text serves all clients. */
#include "server/ws.h"

#include "base/map.h"

#include <pthread.h>
#include <sys/random.h>

#define STALLED_NS (UINT64_C(1000) * 1000000) /* without any bytes taken */
#define WAIT_MS 250                           /* the most that one hub_wait() waits */

struct hub { /* owner: loop, except where marked */
    struct server *server;
    struct conn *first; /* every WebSocket */
    atomic_size_t n;    /* any thread reads */
    pthread_mutex_t lock;
    /* sid -> struct conn *, the one that has the name; keys are ws->sid. The loop changes it under
     * the lock, others read it under the lock. */
    struct map by_sid;
    atomic_size_t log_readers;   /* any thread reads */
    atomic_size_t berth_readers; /* any thread reads */
    atomic_size_t posted;        /* any thread: bytes on their way to the loop */
};

berth_status hub_open(struct server *s, berth_err *err)
{
    struct hub *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(err, BERTH_ENOMEM, "the hub");
    h->server = s;
    s->hub = h;
    h->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (getrandom(&h->by_sid.seed, sizeof h->by_sid.seed, 0) < 0)
        h->by_sid.seed = clock_mono_ns(clock_system());
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
    return atomic_load(&s->hub->n);
}

/* ---- names ---- */

static struct conn *by_sid(const struct hub *h, const char *sid)
{
    uint64_t v;
    return map_get(&h->by_sid, sid, strlen(sid), &v) ? (struct conn *)(uintptr_t)v : NULL;
}

bool hub_listens(struct server *s, const char *sid)
{
    struct hub *h = s->hub;
    if (!sid || !atomic_load(&h->n))
        return atomic_load(&h->n);
    pthread_mutex_lock(&h->lock);
    bool yes = by_sid(h, sid);
    pthread_mutex_unlock(&h->lock);
    return yes;
}

/* Gives c its name. False: no memory. */
static bool take_name(struct hub *h, struct conn *c)
{
    const char *sid = c->ws->sid;
    struct conn *old = by_sid(h, sid);
    pthread_mutex_lock(&h->lock);
    if (old) /* its socket stays open, but loses name and subscription */
        map_del(&h->by_sid, sid, strlen(sid));
    bool ok = map_add(&h->by_sid, sid, strlen(sid), (uintptr_t)c) == MAP_ADDED;
    pthread_mutex_unlock(&h->lock);
    if (ok && old) {
        c->ws->logs = old->ws->logs;
        old->ws->logs = false;
    }
    return ok;
}

static void drop_name(struct hub *h, struct conn *c)
{
    const char *sid = c->ws->sid;
    if (by_sid(h, sid) != c)
        return;
    pthread_mutex_lock(&h->lock);
    map_del(&h->by_sid, sid, strlen(sid));
    pthread_mutex_unlock(&h->lock);
}

/* Turns a kind of message on or off for a socket; *readers counts those that get it. */
static void set_reads(bool *reads, atomic_size_t *readers, bool on)
{
    if (on && !*reads)
        atomic_fetch_add(readers, 1);
    else if (!on && *reads)
        atomic_fetch_sub(readers, 1);
    *reads = on;
}

static void set_behind(struct hub *h, struct conn *c, bool on)
{
    if (c->ws->behind == on)
        return;
    pthread_mutex_lock(&h->lock);
    c->ws->behind = on;
    pthread_mutex_unlock(&h->lock);
}

void hub_closed(struct server *s, struct conn *c)
{
    struct hub *h = s->hub;
    struct ws *w = c->ws;
    if (!w->listed)
        return;
    set_reads(&w->logs, &h->log_readers, false);
    set_reads(&w->berth, &h->berth_readers, false);
    drop_name(h, c);
    if (w->prev)
        w->prev->ws->next = w->next;
    else
        h->first = w->next;
    if (w->next)
        w->next->ws->prev = w->prev;
    w->listed = false;
    atomic_fetch_sub(&h->n, 1);
}

/* ---- pressure ---- */

static bool stalled(const struct conn *c)
{
    return c->server->loop->now - c->moved_ns > STALLED_NS;
}

void hub_moved(struct server *s, struct conn *c)
{
    if (c->out_bytes < s->loop->limits.ws_full / 2)
        set_behind(s->hub, c, false);
}

void hub_swept(struct server *s, struct conn *c)
{
    if (stalled(c))
        set_behind(s->hub, c, false);
}

/* Is the client far behind, but reading? Any thread. */
static bool is_behind(struct hub *h, const char *sid)
{
    if (!sid)
        return false;
    pthread_mutex_lock(&h->lock);
    const struct conn *c = by_sid(h, sid);
    bool yes = c && c->ws->behind;
    pthread_mutex_unlock(&h->lock);
    return yes;
}

void hub_wait(struct server *s, const char *sid, unsigned *left_ms)
{
    struct hub *h = s->hub;
    size_t full = s->loop->limits.ws_full;
    for (int i = 0; i < WAIT_MS && *left_ms && !atomic_load(&s->stopping); i++) {
        if (atomic_load(&h->posted) < full && !is_behind(h, sid))
            return;
        nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
        --*left_ms;
    }
}

/* ---- to one socket ---- */

static bool fits(const struct conn *c, size_t n)
{
    size_t max = c->server->loop->limits.ws_bytes;
    return !c->out || (c->out_bytes <= max && n <= max - c->out_bytes);
}

/* At most one preview waits behind the one being sent. A client that leaves too much unread first
 * loses that preview, then its connection. */
static void give(struct conn *c, enum out_kind kind, unsigned op, uint64_t run, struct blob *b)
{
    const struct loop_limits *lim = &c->server->loop->limits;
    if (c->dead || c->close_when_sent)
        return;
    if ((kind == OUT_PREVIEW || kind == OUT_MEMORY ||
         (kind == OUT_STATE && c->out_bytes >= lim->ws_behind)) &&
        conn_swap_frame(c, kind, op, run, b))
        return;
    bool room = kind == OUT_PREVIEW || fits(c, b->n);
    if (!room) {
        conn_drop_preview(c);
        room = fits(c, b->n);
    }
    if (!room) {
        log_warn(&c->server->log, "hub.slow", "unread=%zu what=closed sid=\"%.80s\"", c->out_bytes,
                 c->ws->sid);
        conn_kill(c);
        return;
    }
    conn_send_frame(c, kind, op, run, b);
    if (c->out_bytes >= lim->ws_full && !stalled(c))
        set_behind(c->server->hub, c, true);
}

static void give_text(struct conn *c, struct str *taken)
{
    struct blob *b = blob_new(taken);
    if (b)
        give(c, OUT_MESSAGE, WS_TEXT, 0, b);
    else
        conn_kill(c); /* a gap would be worse than a reconnect */
    blob_unref(b);
}

/* ---- posted messages ---- */

enum to { TO_SID, TO_ALL, TO_LOGS, TO_BERTH, TO_TEXTS };

struct letter { /* made anywhere, opened on the loop */
    struct post post;
    enum to to;
    enum out_kind kind;
    unsigned op;
    uint64_t run;
    struct blob *blob;
    struct blob *plain, *progress; /* of a preview: form 1, and the message of its step, if any */
    size_t bytes;                  /* of hub.posted */
    char sid[];
};

static void deliver_to(struct letter *m, struct conn *c)
{
    bool rich = m->blob && (!m->plain || c->ws->preview_metadata);
    if (rich)
        give(c, m->kind, m->op, m->run, m->blob);
    if (m->progress)
        give(c, OUT_MESSAGE, WS_TEXT, 0, m->progress);
    if (!rich)
        give(c, m->kind, m->op, m->run, m->plain);
}

static void letter_free(struct letter *m)
{
    if (!m)
        return;
    blob_unref(m->blob);
    blob_unref(m->plain);
    blob_unref(m->progress);
    free(m);
}

static bool is_for(const struct letter *m, const struct conn *c)
{
    return m->to == TO_ALL || (m->to == TO_LOGS && c->ws->logs) ||
           (m->to == TO_BERTH && c->ws->berth) || (m->to == TO_TEXTS && c->ws->texts);
}

static void deliver(struct server *s, void *arg)
{
    struct letter *m = arg;
    struct hub *h = s->hub;
    struct conn *c = m->to == TO_SID ? by_sid(h, m->sid) : NULL;
    if (c)
        deliver_to(m, c);
    for (c = m->to == TO_SID ? NULL : h->first; c; c = c->ws->next)
        if (is_for(m, c))
            deliver_to(m, c);
    atomic_fetch_sub(&h->posted, m->bytes);
    letter_free(m);
}

/* Takes the text. NULL: no memory, and the message is lost. */
static struct letter *letter_new(enum to to, const char *sid, enum out_kind kind, unsigned op,
                                 struct str *taken)
{
    size_t n = sid ? strlen(sid) : 0;
    struct letter *m = malloc(sizeof *m + n + 1);
    struct blob *b = blob_new(taken);
    if (!m || !b) {
        blob_unref(b);
        free(m);
        return NULL;
    }
    *m = (struct letter) { .to = to, .kind = kind, .op = op, .blob = b };
    memcpy(m->sid, sid ? sid : "", n + 1);
    return m;
}

static size_t blob_bytes(const struct blob *b)
{
    return b ? b->n : 0;
}

static void post(struct server *s, struct letter *taken) /* NULL is fine */
{
    if (!taken)
        return;
    taken->bytes = sizeof *taken + blob_bytes(taken->blob) + blob_bytes(taken->plain) +
                   blob_bytes(taken->progress);
    atomic_fetch_add(&s->hub->posted, taken->bytes);
    loop_post(s, &taken->post, deliver, taken);
}

void hub_send(struct server *s, const char *sid, struct str *taken)
{
    post(s, letter_new(sid ? TO_SID : TO_ALL, sid, OUT_MESSAGE, WS_TEXT, taken));
}

void hub_send_state(struct server *s, const char *sid, uint64_t run, struct str *taken)
{
    struct letter *m = letter_new(sid ? TO_SID : TO_ALL, sid, OUT_STATE, WS_TEXT, taken);
    if (m)
        m->run = run;
    post(s, m);
}

void hub_send_logs(struct server *s, struct str *taken)
{
    post(s, letter_new(TO_LOGS, NULL, OUT_MESSAGE, WS_TEXT, taken));
}

bool hub_logs_wanted(const struct server *s)
{
    return s->hub && atomic_load(&s->hub->log_readers);
}

void hub_send_berth(struct server *s, bool memory, struct str *taken)
{
    post(s, letter_new(TO_BERTH, NULL, memory ? OUT_MEMORY : OUT_MESSAGE, WS_TEXT, taken));
}

bool hub_berth_wanted(const struct server *s)
{
    return atomic_load(&s->hub->berth_readers);
}

/* ---- binary ---- */

static void add_u32(struct str *out, size_t v)
{
    const char b[4] = { (char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v };
    str_add(out, b, sizeof b);
}

static void add_plain(const struct hub_preview *p, struct str *out)
{
    add_u32(out, 1);
    add_u32(out, p->png ? 2 : 1);
    str_add(out, str_c(&p->bytes), p->bytes.n);
}

static void add_full(const struct hub_preview *taken, struct str *out)
{
    struct str meta = { 0 };
    struct jsonout j = { .out = &meta, .spaced = true };
    jo_open(&j, NULL, '{');
    jo_str(&j, "node_id", taken->node);
    jo_str(&j, "prompt_id", taken->prompt_id);
    jo_str(&j, "display_node_id", taken->display_node ? taken->display_node : taken->node);
    jo_str(&j, "parent_node_id", taken->parent_node);
    jo_str(&j, "real_node_id", taken->real_node ? taken->real_node : taken->node);
    jo_str(&j, "image_type", taken->png ? "image/png" : "image/jpeg");
    jo_close(&j, '}');
    add_u32(out, 4);
    add_u32(out, meta.n);
    str_add(out, str_c(&meta), meta.n);
    str_add(out, str_c(&taken->bytes), taken->bytes.n);
    out->bad = out->bad || meta.bad;
    str_release(&meta);
}

/* A message to all uses form 1, which every client understands. */
void hub_send_preview(struct server *s, const char *sid, struct hub_preview *taken)
{
    struct str full = { 0 }, plain = { 0 };
    bool told = taken->progress.n || taken->progress.bad;
    add_plain(taken, &plain);
    if (sid)
        add_full(taken, &full);
    plain.bad = plain.bad || taken->bytes.bad;
    struct letter *m =
        letter_new(sid ? TO_SID : TO_ALL, sid, taken->png ? OUT_MESSAGE : OUT_PREVIEW, WS_BINARY,
                   sid ? &full : &plain);
    if (m && !sid) { /* form 1 follows the progress */
        m->plain = m->blob;
        m->blob = NULL;
    } else if (m) {
        m->plain = blob_new(&plain);
    }
    if (m && told)
        m->progress = blob_new(&taken->progress);
    if (m && (!m->plain || (told && !m->progress))) {
        letter_free(m);
        m = NULL;
    }
    post(s, m);
    str_release(&plain);
    str_release(&taken->bytes);
    str_release(&taken->progress);
}

void hub_send_text(struct server *s, const char *node, const char *p, size_t n)
{
    struct str b = { 0 };
    add_u32(&b, 3);
    add_u32(&b, strlen(node));
    str_adds(&b, node);
    str_add(&b, p, n);
    post(s, letter_new(TO_TEXTS, NULL, OUT_MESSAGE, WS_BINARY, &b));
}

/* ---- messages of its own ---- */

/* An open message, whose "data" comes next; end() closes what is open. */
static struct jsonout begin(struct str *out, const char *type)
{
    struct jsonout j = { .out = out, .spaced = true };
    jo_open(&j, NULL, '{');
    jo_str(&j, "type", type);
    return j;
}

static void end(struct jsonout *j)
{
    while (j->depth)
        jo_close(j, '}');
}

static void add_status(struct server *s, const char *sid, struct str *out)
{
    struct jsonout j = begin(out, "status");
    jo_open(&j, "data", '{');
    jo_open(&j, "status", '{');
    jo_open(&j, "exec_info", '{');
    jo_u64(&j, "queue_remaining", store_remaining(s->store));
    jo_close(&j, '}');
    jo_close(&j, '}');
    if (sid)
        jo_str(&j, "sid", sid);
    end(&j);
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
    struct str text = { 0 };
    if (!take_name(h, c)) {
        conn_kill(c);
        return;
    }
    w->next = h->first;
    if (h->first)
        h->first->ws->prev = c;
    h->first = c;
    w->listed = true;
    atomic_fetch_add(&h->n, 1);
    add_status(s, client_id, &text);
    give_text(c, &text);
    struct jsonout j = begin(&text, "executing");
    jo_raw(&j, "data", "", 0);
    struct jsonout data = { .out = &text }; /* compact, as clients have always seen it */
    if (worker_executing_json(s, client_id, NULL, &data)) {
        end(&j);
        give_text(c, &text);
    }
    str_release(&text);
}

static void answer_flags(struct server *s, struct conn *c, const json_t *data)
{
    struct str text = { 0 };
    struct jsonout j = begin(&text, "feature_flags");
    c->ws->preview_metadata = json_is_true(json_object_get(data, "supports_preview_metadata"));
    c->ws->texts = json_is_true(json_object_get(data, "supports_progress_text_metadata")) ||
                   json_is_true(json_object_get(data, "supports_manager_v4_ui"));
    hub_features(s, "data", &j);
    end(&j);
    give_text(c, &text);
    set_reads(&c->ws->berth, &s->hub->berth_readers, json_is_true(json_object_get(data, "berth")));
    if (c->ws->berth) {
        meter_text(s, &text);
        give_text(c, &text);
    }
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
        set_reads(&c->ws->logs, &s->hub->log_readers, on);
}
