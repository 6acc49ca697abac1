/* client_ws: the server's WebSocket as a client reads it. */
#include "app/client.h"
#include "server/wsframe.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECONDS 10
#define HEAD_MAX 16384
#define MESSAGE_MAX ((size_t)64 << 20) /* pictures come along and are dropped */

struct client_ws { /* owner: one thread */
    int fd;
    struct wsframe frame;
    struct str in; /* received */
    size_t at;     /* of it was fed to the frame */
};

void client_ws_close(struct client_ws *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    wsframe_release(&w->frame);
    str_release(&w->in);
    free(w);
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
    char accept[29], buf[1024];
    const char *end;
    while (!(end = strstr(str_c(&w->in), "\r\n\r\n"))) {
        ssize_t n = recv(w->fd, buf, sizeof buf, 0);
        if (n < 0 && errno == EINTR && !signals_caught())
            continue;
        if (n <= 0 || w->in.n > HEAD_MAX)
            return err_set(err, BERTH_EIO, "no answer to the handshake");
        str_add(&w->in, buf, (size_t)n);
        if (w->in.bad)
            return err_set(err, BERTH_ENOMEM, "the handshake");
    }
    w->at = (size_t)(end - w->in.p) + 4;
    if (strncmp(w->in.p, "HTTP/1.1 101", 12) != 0 || !wsframe_accept(key, accept) ||
        !strstr(w->in.p, accept))
        return err_set(err, BERTH_EUNSUPPORTED, "no WebSocket there");
    return BERTH_OK;
}

berth_status client_ws_open(struct client *c, const char *client_id, struct client_ws **out,
                            berth_err *err)
{
    char key[25], path[128], lines[256];
    struct client_ws *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w || !make_key(key)) {
        free(w);
        return err_set(err, BERTH_ENOMEM, "a WebSocket");
    }
    w->frame = (struct wsframe) { .client = true, .max_message = MESSAGE_MAX };
    snprintf(path, sizeof path, "/ws?clientId=%.64s", client_id);
    snprintf(lines, sizeof lines,
             "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
             "Sec-WebSocket-Key: %s\r\n",
             key);
    const struct client_ask ask = { .path = path, .upgrade = lines, .seconds = SECONDS };
    berth_status s = client_send(c, &ask, &w->fd, err);
    if (!s)
        s = read_head(w, key, err);
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
    berth_err unread;
    if (n > 125 || getrandom(frame + 2, 4, 0) != 4)
        return false;
    frame[0] = 0x80 | WS_PONG;
    frame[1] = (uint8_t)(0x80 | n);
    for (size_t i = 0; i < n; i++)
        frame[6 + i] = (uint8_t)p[i] ^ frame[2 + i % 4];
    return !client_send_all(w->fd, (const char *)frame, 6 + n, &unread);
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
    char buf[16384];
    *out = NULL;
    for (;;) {
        enum client_heard h = take(w, out);
        if (h != CLIENT_HEARD_NOTHING)
            return h;
        struct pollfd p = { .fd = w->fd, .events = POLLIN };
        int ready = poll(&p, 1, ms);
        if (ready <= 0)
            return !ready || errno == EINTR ? CLIENT_HEARD_NOTHING : CLIENT_HEARD_END;
        ssize_t n = recv(w->fd, buf, sizeof buf, 0);
        if (n <= 0)
            return n < 0 && errno == EINTR ? CLIENT_HEARD_NOTHING : CLIENT_HEARD_END;
        str_add(&w->in, buf, (size_t)n);
        if (w->in.bad)
            return CLIENT_HEARD_END;
    }
}
