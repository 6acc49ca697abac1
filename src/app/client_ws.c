/* client_ws: the server's WebSocket as a client reads it.
 *
 * libcurl connects (TLS, proxies) and carries bytes; handshake and frames are ours: its own
 * curl_ws_*() are experimental before 8.11, and Debian's 7.88 is built without them. */
#include "app/client.h"
#include "server/wsframe.h"

#include <errno.h>
#include <poll.h>
#include <sys/random.h>

#define SECONDS 10
#define HEAD_MAX 16384
#define MESSAGE_MAX ((size_t)64 << 20) /* pictures come along and are dropped */

struct client_ws { /* owner: one thread */
    struct client_call call;
    curl_socket_t fd; /* of the call, to poll */
    struct wsframe frame;
    struct str in; /* received */
    size_t at;     /* of it was fed to the frame */
};

void client_ws_close(struct client_ws *w)
{
    if (!w)
        return;
    client_call_close(&w->call);
    wsframe_release(&w->frame);
    str_release(&w->in);
    free(w);
}

/* ---- bytes ---- */

static bool wait_for(struct client_ws *w, short events, int ms)
{
    struct pollfd p = { .fd = w->fd, .events = events };
    return poll(&p, 1, ms) > 0;
}

static bool send_all(struct client_ws *w, const char *p, size_t n)
{
    while (n) {
        size_t sent = 0;
        CURLcode code = w->call.lib.easy_send(w->call.curl, p, n, &sent);
        if (code && (code != CURLE_AGAIN || !wait_for(w, POLLOUT, SECONDS * 1000)))
            return false;
        p += sent;
        n -= sent;
    }
    return true;
}

/* Appends what has come to w->in, within ms. Asks before it polls: TLS may hold bytes that the
 * socket no longer has. */
static enum client_heard receive(struct client_ws *w, int ms)
{
    char buf[16384];
    size_t n = 0;
    CURLcode code = w->call.lib.easy_recv(w->call.curl, buf, sizeof buf, &n);
    if (code == CURLE_AGAIN) {
        if (!wait_for(w, POLLIN, ms))
            return CLIENT_HEARD_NOTHING;
        code = w->call.lib.easy_recv(w->call.curl, buf, sizeof buf, &n);
        if (code == CURLE_AGAIN)
            return CLIENT_HEARD_NOTHING; /* part of a TLS record */
    }
    if (code || !n)
        return CLIENT_HEARD_END;
    str_add(&w->in, buf, n);
    return w->in.bad ? CLIENT_HEARD_END : CLIENT_HEARD_MESSAGE;
}

/* ---- handshake ---- */

/* 16 bytes in base64: 22 digits, of which the last one has four bits to spare. */
static bool make_key(char out[25])
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t raw[21];
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return false;
    for (size_t i = 0; i < sizeof raw; i++)
        out[i] = digit[raw[i] & 63];
    memcpy(out + sizeof raw, "A==", 4);
    return true;
}

/* Reads up to the empty line; what lies behind it stays in w->in, from w->at on. */
static berth_status read_head(struct client_ws *w, const char *key, berth_err *err)
{
    const uint64_t end_ns = clock_mono_ns(clock_system()) + SECONDS * UINT64_C(1000000000);
    char accept[29];
    const char *end;
    while (!(end = strstr(str_c(&w->in), "\r\n\r\n"))) {
        enum client_heard h = receive(w, 100);
        if (h == CLIENT_HEARD_END || w->in.n > HEAD_MAX || signals_caught() ||
            clock_mono_ns(clock_system()) >= end_ns)
            return err_set(err, BERTH_EIO, "no answer to the handshake");
    }
    w->at = (size_t)(end - w->in.p) + 4;
    if (strncmp(w->in.p, "HTTP/1.1 101", 12) != 0 || !wsframe_accept(key, accept) ||
        !strstr(w->in.p, accept))
        return err_set(err, BERTH_EUNSUPPORTED, "no WebSocket there");
    return BERTH_OK;
}

static berth_status shake_hands(struct client_ws *w, berth_err *err)
{
    const struct client_url *u = &w->call.url;
    const char *token = w->call.token;
    bool v6 = strchr(u->host, ':');
    char key[25];
    struct str head = { 0 };
    if (!make_key(key))
        return err_set(err, BERTH_EIO, "no random bytes");
    str_addf(&head,
             "GET %s HTTP/1.1\r\nHost: %s%s%s:%s\r\n%s%s%sUpgrade: websocket\r\n"
             "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
             str_c(&u->path), v6 ? "[" : "", u->host, v6 ? "]" : "", u->port,
             token ? "Authorization: Bearer " : "", token ? token : "", token ? "\r\n" : "", key);
    berth_status s = head.bad                       ? err_set(err, BERTH_ENOMEM, "the handshake")
                     : !send_all(w, head.p, head.n) ? err_set(err, BERTH_EIO, "sending the request")
                                                    : read_head(w, key, err);
    str_release(&head);
    return s;
}

berth_status client_ws_open(struct client *c, const char *client_id, struct client_ws **out,
                            berth_err *err)
{
    char path[128];
    struct client_ws *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w)
        return err_set(err, BERTH_ENOMEM, "a WebSocket");
    w->frame = (struct wsframe) { .client = true, .max_message = MESSAGE_MAX };
    snprintf(path, sizeof path, "/ws?clientId=%.64s", client_id);
    berth_status s = client_call_open(c, path, SECONDS, &w->call, err);
    if (!s) {
        (void)w->call.lib.easy_setopt(w->call.curl, CURLOPT_CONNECT_ONLY, 1L);
        (void)w->call.lib.easy_setopt(w->call.curl, CURLOPT_HTTPPROXYTUNNEL, 1L);
        s = client_call_perform(c, &w->call, SECONDS, err);
    }
    if (!s && w->call.lib.easy_getinfo(w->call.curl, CURLINFO_ACTIVESOCKET, &w->fd))
        s = err_set(err, BERTH_EIO, "no socket");
    if (!s)
        s = shake_hands(w, err);
    if (s && w->call.url.base.n)
        err_add(err, "%s", str_c(&w->call.url.base));
    if (s)
        client_ws_close(w);
    else
        *out = w;
    return s;
}

/* ---- messages ---- */

/* A ping's payload back, masked as all that clients send. */
static bool pong(struct client_ws *w, const char *p, size_t n)
{
    uint8_t frame[6 + 125];
    if (n > 125 || getrandom(frame + 2, 4, 0) != 4)
        return false;
    frame[0] = 0x80 | WS_PONG;
    frame[1] = (uint8_t)(0x80 | n);
    for (size_t i = 0; i < n; i++)
        frame[6 + i] = (uint8_t)p[i] ^ frame[2 + i % 4];
    return send_all(w, (const char *)frame, 6 + n);
}

/* What was received and not yet looked at. NOTHING: all of it was. */
static enum client_heard take(struct client_ws *w, json_t **out)
{
    while (w->at < w->in.n) {
        size_t used, n;
        enum ws_op op;
        const char *data;
        unsigned code;
        berth_err unread;
        enum ws_got got =
            wsframe_feed(&w->frame, w->in.p + w->at, w->in.n - w->at, &used, &op, &data, &n, &code);
        w->at += used;
        if (got == WS_GOT_BAD)
            return CLIENT_HEARD_END;
        if (got == WS_GOT_CONTROL && (op == WS_CLOSE || (op == WS_PING && !pong(w, data, n))))
            return CLIENT_HEARD_END;
        if (got == WS_GOT_MESSAGE && op == WS_TEXT && !js_parse(data, n, NULL, out, &unread))
            return CLIENT_HEARD_MESSAGE;
    }
    str_clear(&w->in);
    w->at = 0;
    return CLIENT_HEARD_NOTHING;
}

enum client_heard client_ws_next(struct client_ws *w, int ms, json_t **out)
{
    *out = NULL;
    for (;;) {
        enum client_heard h = take(w, out);
        if (h == CLIENT_HEARD_NOTHING)
            h = receive(w, ms);
        if (h != CLIENT_HEARD_MESSAGE || *out)
            return h;
    }
}
