/* ws: a WebSocket on a connection: handshake, frames, ping, pong and close. The hub decides who
 * gets what. */
#include "server/ws.h"

#include "server/conn.h"
#include "server/routes.h"

void ws_free(struct ws *w)
{
    if (!w)
        return;
    wsframe_release(&w->frame);
    free(w->sid);
    free(w);
}

/* ---- handshake ---- */

/* 32 hexadecimal digits for a client that did not name itself. */
static void make_id(struct str *out)
{
    char id[UUID_TEXT];
    uuid4_text(id);
    for (const char *c = id; *c; c++)
        if (*c != '-')
            str_addc(out, *c);
}

static struct ws *ws_new(struct http_req *r)
{
    struct str id = { 0 };
    struct ws *w = calloc(1, sizeof *w);
    if (!http_query(r, "clientId", &id) || !id.n || id.n > WS_SID_MAX || !str_is_utf8(id.p, id.n)) {
        str_clear(&id);
        make_id(&id);
    }
    if (w)
        w->sid = str_take(&id);
    str_release(&id);
    if (w && !w->sid) {
        free(w);
        w = NULL;
    }
    return w;
}

void route_ws(struct http_req *r)
{
    char accept[29];
    const char *key = http1_get(r->h, "sec-websocket-key");
    const char *version = http1_get(r->h, "sec-websocket-version");
    struct conn *c = r->conn;
    if (r->head || !r->h->upgrade || !key || !wsframe_accept(key, accept)) {
        http_reply_text(r, 400,
                        "No WebSocket UPGRADE hdr: None\n Can \"Upgrade\" only to \"WebSocket\".");
        return;
    }
    if (!version || strcmp(version, "13")) {
        http_header(r, "Sec-WebSocket-Version", "13");
        http_reply_text(r, 400, "Unsupported version: only Sec-WebSocket-Version 13");
        return;
    }
    struct ws *w = ws_new(r);
    if (!w) {
        http_status(r, 503);
        return;
    }
    http_header(r, "Upgrade", "websocket");
    http_header(r, "Connection", "Upgrade");
    http_header(r, "Sec-WebSocket-Accept", accept);
    http_reply_empty(r, 101);
    c->mode = CONN_WS; /* from now on frames */
    c->ws = w;
    hub_opened(r->server, c, w->sid);
}

/* ---- frames ---- */

static void send_control(struct conn *c, unsigned op, const char *p, size_t n)
{
    struct str text = { 0 };
    str_add(&text, p, n);
    struct blob *b = blob_new(&text);
    if (!b) {
        conn_kill(c);
        return;
    }
    conn_send_frame(c, OUT_MESSAGE, op, 0, b);
    blob_unref(b);
}

void ws_close(struct conn *c, unsigned code)
{
    const char text[2] = { (char)(code >> 8), (char)(code & 255) };
    if (c->close_when_sent)
        return;
    send_control(c, WS_CLOSE, text, code ? 2 : 0);
    c->close_when_sent = true;
}

static void take_control(struct conn *c, enum ws_op op, const char *p, size_t n)
{
    if (op == WS_PING) {
        if (c->out_bytes < c->server->loop->limits.ws_behind) /* else it would not read it */
            send_control(c, WS_PONG, p, n);
    } else if (op == WS_CLOSE) { /* its own code back */
        c->ws->closed = true;
        ws_close(c, n >= 2 ? (unsigned)(uint8_t)p[0] << 8 | (uint8_t)p[1] : 0);
    }
}

bool ws_rx(struct conn *c, char *p, size_t n)
{
    size_t used, data_n;
    const char *data;
    enum ws_op op;
    unsigned code;
    while (!c->dead && !c->close_when_sent) {
        enum ws_got got = wsframe_feed(&c->ws->frame, p, n, &used, &op, &data, &data_n, &code);
        p += used;
        n -= used;
        if (got == WS_GOT_MESSAGE && op == WS_TEXT)
            hub_received(c->server, c, data, data_n);
        else if (got == WS_GOT_CONTROL)
            take_control(c, op, data, data_n);
        else if (got == WS_GOT_BAD)
            ws_close(c, code);
        else if (got == WS_GOT_MORE)
            break;
    }
    return true;
}
