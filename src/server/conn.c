/* conn: requests in, replies out; see conn.h. */
#include "server/ws.h"

#include <errno.h>
#include <libwebsockets.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define DISCARD_MAX 65536 /* bytes of an unwanted body that are read to keep a connection */

/* ---- blobs and the output queue ---- */

struct blob *blob_new(struct str *taken)
{
    struct blob *b = taken->bad ? NULL : malloc(sizeof *b);
    if (b)
        *b = (struct blob) { .refs = 1, .n = taken->n, .p = taken->p };
    else
        str_release(taken);
    *taken = (struct str) { 0 };
    return b;
}

void blob_unref(struct blob *b)
{
    if (b && !--b->refs) {
        free(b->p);
        free(b);
    }
}

static void out_free(struct out *o)
{
    blob_unref(o->blob);
    if (o->fd >= 0)
        close(o->fd);
    free(o);
}

/* Including the piece itself: a pong has no other bytes. */
static size_t out_memory(const struct out *o)
{
    return sizeof *o + (o->blob ? o->blob->n : 0);
}

static void out_pop(struct conn *c)
{
    struct out *o = c->out;
    c->out = o->next;
    if (!c->out)
        c->out_last = NULL;
    if (c->waits[o->kind] == o)
        c->waits[o->kind] = NULL;
    c->out_bytes -= out_memory(o);
    if (o->kind == OUT_HTTP)
        c->server->loop->out_bytes -= out_memory(o);
    if (o->fd >= 0)
        c->server->loop->files--;
    out_free(o);
}

static void out_clear(struct conn *c)
{
    while (c->out)
        out_pop(c);
}

/* Output was queued, or some of it was sent: restarts the client's time limit. */
static void restart_write_limit(struct conn *c)
{
    const struct loop_limits *lim = &c->server->loop->limits;
    c->moved_ns = c->server->loop->now;
    conn_deadline(c, c->mode == CONN_WS ? lim->ws_write : lim->write);
}

/* A new last piece; NULL: no memory, the connection ends. */
static struct out *out_push(struct conn *c, enum out_kind kind)
{
    struct out *o = c->dead ? NULL : calloc(1, sizeof *o);
    if (!o) {
        conn_kill(c);
        return NULL;
    }
    o->kind = kind;
    o->fd = -1;
    if (!c->out) {
        c->out = o;
        restart_write_limit(c);
        conn_dirty(c);
    } else {
        c->out_last->next = o;
    }
    c->out_last = o;
    return o;
}

/* Call once a pushed piece has its bytes. */
static void out_count(struct conn *c, const struct out *o)
{
    c->out_bytes += out_memory(o);
    if (o->kind == OUT_HTTP)
        c->server->loop->out_bytes += out_memory(o);
}

void conn_send_str(struct conn *c, struct str *taken)
{
    struct blob *b = blob_new(taken);
    struct out *o = b ? out_push(c, OUT_HTTP) : NULL;
    if (!o) {
        blob_unref(b);
        conn_kill(c);
        return;
    }
    o->blob = b;
    out_count(c, o);
}

void conn_send_file(struct conn *c, int fd, uint64_t off, uint64_t n)
{
    struct out *o = out_push(c, OUT_HTTP);
    if (!o) {
        close(fd);
        return;
    }
    c->server->loop->files++;
    o->fd = fd;
    o->off = off;
    o->left = n;
    out_count(c, o);
}

static void set_frame(struct out *o, unsigned op, struct blob *b)
{
    o->head_n = (uint8_t)wsframe_head((enum ws_op)op, b->n, o->head);
    o->blob = b;
    b->refs++;
}

void conn_send_frame(struct conn *c, enum out_kind kind, unsigned op, uint64_t run, struct blob *b)
{
    struct out *o = out_push(c, kind);
    if (!o)
        return;
    o->run = run;
    set_frame(o, op, b);
    out_count(c, o);
    c->waits[kind] = o;
}

/* The last of its kind, unless some of it was sent. */
static struct out *waiting(const struct conn *c, enum out_kind kind)
{
    struct out *o = c->waits[kind];
    return o && !o->head_at ? o : NULL;
}

bool conn_swap_frame(struct conn *c, enum out_kind kind, unsigned op, uint64_t run, struct blob *b)
{
    struct out *o = waiting(c, kind);
    if (!o || o->run != run)
        return false;
    c->out_bytes -= out_memory(o);
    blob_unref(o->blob);
    set_frame(o, op, b);
    out_count(c, o);
    return true;
}

void conn_drop_preview(struct conn *c)
{
    struct out *o = waiting(c, OUT_PREVIEW), *before = c->out;
    if (!o || o == c->out) /* the first one is about to be sent */
        return;
    while (before->next != o)
        before = before->next;
    before->next = o->next;
    if (c->out_last == o)
        c->out_last = before;
    c->waits[OUT_PREVIEW] = NULL;
    c->out_bytes -= out_memory(o);
    out_free(o);
}

/* ---- writing ---- */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies bytes of the first piece to `to`. False: its file could not be read. */
static bool out_copy(struct conn *c, struct out *o, uint8_t *to, size_t room, size_t *n)
{
    size_t k = min_size(room, (size_t)(o->head_n - o->head_at));
    memcpy(to, o->head + o->head_at, k);
    o->head_at = (uint8_t)(o->head_at + k);
    *n = k;
    if (o->blob) {
        k = min_size(room - *n, o->blob->n - o->at);
        if (k)
            memcpy(to + *n, o->blob->p + o->at, k);
        o->at += k;
        *n += k;
    }
    if (o->fd < 0 || !o->left || *n == room)
        return true;
    k = o->left < room - *n ? (size_t)o->left : room - *n;
    ssize_t got = pread(o->fd, to + *n, k, (off_t)o->off);
    if (got <= 0) {
        log_warn(&c->server->log, "http.file", "at=%ju left=%ju errno=%d what=\"cut short\"",
                 (uintmax_t)o->off, (uintmax_t)o->left, got ? errno : 0);
        return false;
    }
    o->off += (uint64_t)got;
    o->left -= (uint64_t)got;
    *n += (size_t)got;
    return true;
}

static bool out_whole(const struct out *o)
{
    return o->head_at == o->head_n && (!o->blob || o->at == o->blob->n) && !o->left;
}

static bool write_some(struct conn *c)
{
    uint8_t *buf = c->server->loop->scratch;
    size_t n = 0, k;
    while (c->out && n < LOOP_WRITE_MAX) {
        if (!out_copy(c, c->out, buf + n, LOOP_WRITE_MAX - n, &k))
            return false;
        n += k;
        if (!out_whole(c->out))
            break;
        out_pop(c);
    }
    return !n || lws_write(c->wsi, buf, n, LWS_WRITE_RAW) >= 0;
}

/* Reading is off while a reply is pending, and while libwebsockets holds output of ours: it would
 * ignore what arrives, and spin. */
static void update_rx(struct conn *c)
{
    bool off = c->mode == CONN_HTTP && c->req && c->body_done;
    off = off || lws_partial_buffered(c->wsi);
    if (off == c->rx_off)
        return;
    c->rx_off = off;
    lws_rx_flow_control(c->wsi, !off);
}

static void sent(struct conn *c);

bool conn_writeable(struct conn *c)
{
    if (c->dead)
        return false;
    if (c->out) {
        if (!write_some(c))
            return false;
        restart_write_limit(c);
        if (c->ws)
            hub_moved(c->server, c);
    }
    if (c->out || lws_partial_buffered(c->wsi))
        lws_callback_on_writable(c->wsi);
    else
        sent(c);
    update_rx(c);
    return !c->dead;
}

/* ---- life ---- */

struct conn *conn_new(struct server *s, struct lws *wsi, bool tls)
{
    struct conn *c = calloc(1, sizeof *c);
    if (c) {
        c->server = s;
        c->wsi = wsi;
        c->tls = tls;
    }
    return c;
}

void conn_kill(struct conn *c)
{
    if (c->dead)
        return;
    c->dead = true;
    lws_set_timeout(c->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
}

static bool sends_no_more(const struct conn *c)
{
    struct tcp_info info = { 0 };
    socklen_t n = sizeof info;
    return !getsockopt((int)lws_get_socket_fd(c->wsi), IPPROTO_TCP, TCP_INFO, &info, &n) &&
           info.tcpi_state == TCP_CLOSE_WAIT;
}

/* True: its reply is pending, and it may keep waiting. */
static bool may_wait(struct conn *c)
{
    const struct loop_limits *lim = &c->server->loop->limits;
    if (c->mode != CONN_HTTP || !c->req || !c->body_done || c->req->replied || c->half ||
        c->server->loop->end_ns)
        return false;
    c->half = sends_no_more(c);
    if (c->half)
        atomic_store(&c->req->hung_up, true);
    conn_deadline(c, c->half ? lim->half : lim->look);
    return true;
}

void conn_expired(struct conn *c)
{
    if (may_wait(c))
        return;
    log_debug(&c->server->log, "conn.slow", "mode=%d request=%d unsent=%d", (int)c->mode,
              c->req != NULL, c->out != NULL);
    conn_kill(c);
}

static void free_head(struct conn *c)
{
    if (c->h1) {
        http1_release(c->h1);
        free(c->h1);
        c->h1 = NULL;
    }
}

static void give_file(struct conn *c)
{
    if (c->file)
        c->server->loop->files--;
    c->file = false;
}

static void abort_sink(struct conn *c)
{
    if (c->route && c->route->sink && c->req && !c->body_done && c->req->sink)
        c->route->sink->abort(c->req);
    c->route = NULL;
    give_file(c);
}

void conn_gone(struct conn *c)
{
    c->dead = true;
    if (c->ws) {
        hub_closed(c->server, c);
        ws_free(c->ws);
    }
    if (c->req) {
        abort_sink(c);
        c->req->conn = NULL;
        atomic_store(&c->req->left, true);
        atomic_store(&c->req->hung_up, true);
        c->req->own = c->h1; /* path, query and fields stay valid while somebody holds it */
        c->h1 = NULL;
        http_req_unref(c->req);
    }
    free_head(c);
    out_clear(c);
    str_release(&c->in);
    free(c);
}

void conn_linger(struct conn *c)
{
    bool silent = c->mode == CONN_WS ? c->ws->closed : !c->req || c->body_done;
    c->mode = CONN_LINGER;
    conn_deadline(c, c->server->loop->limits.linger);
    if (c->tls && silent) /* nothing more will arrive: close, with TLS's own goodbye */
        conn_kill(c);
    else if (!c->tls && shutdown((int)lws_get_socket_fd(c->wsi), SHUT_WR))
        conn_kill(c);
}

/* ---- requests ---- */

static bool has_body(const struct http1 *h)
{
    return h->chunked || h->length;
}

bool conn_can_keep(const struct conn *c)
{
    if (!c->keep || atomic_load(&c->server->stopping))
        return false;
    return c->body_done || (!c->h1->expect_continue && c->h1->length <= DISCARD_MAX);
}

/* Drops the rest of the body. Call after a reply, and not from inside a sink. */
static void refuse_rest(struct conn *c)
{
    abort_sink(c);
    str_release(&c->req->body);
    c->server->loop->body_bytes -= c->req->body_held;
    c->req->body_held = 0;
}

/* The request is over. */
static void finish(struct conn *c)
{
    struct http_req *r = c->req;
    give_file(c);
    c->req = NULL;
    c->route = NULL;
    if (r->refs > 1) { /* held: its texts stay */
        r->conn = NULL;
        r->own = c->h1;
        c->h1 = NULL;
    }
    r->conn = NULL;
    http_req_unref(r);
    free_head(c);
}

static void call_handler(struct conn *c)
{
    struct http_req *r = c->req;
    const struct route *route = c->route;
    c->body_done = true;
    /* From now on the client waits for us, as long as it likes. */
    conn_deadline(c, c->server->loop->limits.look);
    if (!route || r->replied) {
        conn_dirty(c); /* the reply may be out already */
        return;
    }
    r->refs++;
    route->handler(r);
    if (!r->replied && r->refs == 2) {
        log_error(&c->server->log, "http.silent", "path=\"%.100s\" what=\"no reply\"", r->path);
        http_status(r, 500);
    }
    http_req_unref(r);
    if (c->mode == CONN_WS) /* it was an upgrade, and no request any more */
        finish(c);
}

static bool wants_body(const struct route *route)
{
    return route->flags & (ROUTE_BODY | ROUTE_STREAM);
}

/* False: refused, and it replied. */
static bool begin_sink(struct conn *c)
{
    if (c->server->loop->files >= c->server->loop->files_max) {
        http_reply_text(c->req, 503, "503: too many files are being written");
    } else {
        c->server->loop->files++;
        c->file = true;
        if (c->route->sink->begin(c->req))
            return true;
    }
    refuse_rest(c);
    return false;
}

static void begin_body(struct conn *c)
{
    struct http_req *r = c->req;
    conn_deadline(c, c->server->loop->limits.body);
    if (c->h1->length > c->server->cfg.max_upload)
        return; /* http1_feed() says so next */
    if (c->route->flags & ROUTE_STREAM && !begin_sink(c))
        return;
    if (!has_body(c->h1))
        return;
    if (!wants_body(c->route) && c->h1->length > DISCARD_MAX) {
        c->keep = false;
        http_status(r, 413);
    } else if (c->h1->expect_continue) {
        struct str go = { 0 };
        str_adds(&go, "HTTP/1.1 100 Continue\r\n\r\n");
        conn_send_str(c, &go);
    }
}

static void take_head(struct conn *c)
{
    struct http_req *r = calloc(1, sizeof *r);
    unsigned allow = 0;
    if (!r) {
        conn_kill(c);
        return;
    }
    c->req = r;
    c->body_done = c->half = false;
    c->body_step = c->body_waste = 0;
    c->keep = c->h1->keep_alive;
    http_begin(r, c, true);
    if (!guard_origin(r, false))
        return;
    if (r->method == HTTP_OPTIONS) {
        http_reply_empty(r, 200);
        return;
    }
    const struct loop *l = c->server->loop;
    enum route_found found = router_find(l->routes, l->routes_n, r, &c->route, &allow);
    const struct route *route = c->route;
    c->route = NULL; /* refused, unless all is well */
    if (!guard_token(r, route))
        return;
    if (found == ROUTE_FOUND) {
        c->route = route;
        begin_body(c);
    } else if (found == ROUTE_NOT_ALLOWED) {
        http_not_allowed(r, allow);
    } else {
        http_status(r, found == ROUTE_MALFORMED ? 400 : 404);
    }
}

/* Reads and drops an unwanted body if it is small, so that the connection can be kept. */
static void waste_body(struct conn *c, size_t n)
{
    c->body_waste += n;
    if (c->body_waste <= DISCARD_MAX || !c->keep)
        return;
    c->keep = false;
    if (!c->req->replied)
        http_status(c->req, 413);
    conn_dirty(c); /* the reply may be out already */
}

static void take_body(struct conn *c, const char *p, size_t n)
{
    struct http_req *r = c->req;
    c->body_step += n;
    if (c->body_step >= LOOP_BODY_STEP) {
        c->body_step = 0;
        conn_deadline(c, c->server->loop->limits.body);
    }
    if (!c->route || r->replied || !wants_body(c->route)) {
        waste_body(c, n);
        return;
    }
    if (c->route->flags & ROUTE_STREAM) {
        if (!c->route->sink->write(r, p, n) || r->replied)
            refuse_rest(c);
        return;
    }
    bool room = loop_body_take(c->server, n);
    r->body_held += room ? n : 0;
    if (room)
        str_add(&r->body, p, n);
    if (!room || r->body.bad) {
        c->keep = false;
        http_status(r, 503);
        refuse_rest(c);
    }
}

static void take_bad(struct conn *c, int status)
{
    struct http_req *r = c->req;
    c->keep = false;
    if (!r) {
        r = c->req = calloc(1, sizeof *r);
        if (!r) {
            conn_kill(c);
            return;
        }
        http_begin(r, c, false);
    }
    if (r->replied)
        return;
    if (status == 413) {
        char text[80];
        snprintf(text, sizeof text, "Maximum request body size %ju exceeded",
                 (uintmax_t)c->server->cfg.max_upload);
        http_reply_text(r, status, text);
    } else {
        http_status(r, status);
    }
    refuse_rest(c);
}

/* Feeds bytes until the request is complete. Returns how many were used. */
static size_t feed(struct conn *c, const char *p, size_t n)
{
    size_t at = 0, used, piece_n;
    const char *piece;
    int status;
    while (!c->dead && c->mode == CONN_HTTP && !(c->req && c->body_done)) {
        if (!c->h1) {
            if (at == n)
                break;
            c->h1 = malloc(sizeof *c->h1);
            if (!c->h1) {
                conn_kill(c);
                break;
            }
            http1_init(c->h1);
            conn_deadline(c, c->server->loop->limits.head);
        }
        enum http1_got got = http1_feed(c->h1, p + at, n - at, c->server->cfg.max_upload, &used,
                                        &piece, &piece_n, &status);
        at += used;
        if (got == HTTP1_HEAD)
            take_head(c);
        else if (got == HTTP1_BODY)
            take_body(c, piece, piece_n);
        else if (got == HTTP1_END)
            call_handler(c);
        else if (got == HTTP1_BAD) {
            take_bad(c, status);
            return n; /* the rest means nothing */
        } else
            break;
    }
    return at;
}

static void next_request(struct conn *c)
{
    conn_deadline(c, c->server->loop->limits.idle);
    if (!c->in.n)
        return;
    struct str in = c->in;
    c->in = (struct str) { 0 };
    size_t used = feed(c, in.p, in.n);
    if (used < in.n && !c->dead)
        str_add(&c->in, in.p + used, in.n - used);
    str_release(&in);
    if (c->in.bad)
        conn_kill(c);
}

static void sent(struct conn *c)
{
    const struct loop_limits *lim = &c->server->loop->limits;
    struct http_req *r = c->req;
    if (c->dead || c->mode == CONN_LINGER)
        return;
    if (c->close_when_sent) {
        conn_linger(c);
    } else if (c->mode == CONN_WS) {
        conn_deadline(c, 0);
    } else if (r && !r->replied) { /* that was the 100 */
        conn_deadline(c, c->body_done ? lim->look : lim->body);
    } else if (r && !c->keep) {
        abort_sink(c);
        conn_linger(c);
    } else if (r && c->body_done) {
        finish(c);
        next_request(c);
    } else if (r) { /* the rest of a refused body */
        conn_deadline(c, lim->body);
    }
}

bool conn_rx(struct conn *c, char *p, size_t n)
{
    if (c->dead)
        return false;
    if (c->tls) /* libwebsockets gives a handshake five seconds, and would go on counting */
        lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0);
    if (c->mode == CONN_WS) {
        if (!ws_rx(c, p, n))
            return false;
    } else if (c->mode == CONN_HTTP) {
        size_t used = c->in.n ? 0 : feed(c, p, n);
        if (c->mode == CONN_WS) { /* frames may follow the upgrade at once */
            if (used < n && !ws_rx(c, p + used, n - used))
                return false;
        } else if (used < n && !c->dead) {
            str_add(&c->in, p + used, n - used);
        }
        if (c->in.bad)
            return false;
    }
    if (!c->dead && !c->dirty)
        update_rx(c);
    return !c->dead;
}
