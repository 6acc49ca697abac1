#include "server/wsframe.h"

#include <libwebsockets.h>

enum { MESSAGE_MAX = 4 << 20, CONTROL_MAX = 125, KEEP_MAX = 4096 };

/* ---- frames ---- */

static enum ws_got bad(struct wsframe *w, unsigned why, unsigned *code)
{
    w->bad = why;
    *code = why;
    return WS_GOT_BAD;
}

static bool is_control(int op)
{
    return op >= WS_CLOSE;
}

/* The first two bytes. False: against the protocol. */
static bool read_start(struct wsframe *w)
{
    unsigned b0 = w->head[0], b1 = w->head[1], len = b1 & 0x7f;
    w->fin = (b0 & 0x80) != 0;
    w->op = (int)(b0 & 0x0f);
    if ((b0 & 0x70) || (bool)(b1 & 0x80) == w->client) /* nothing was negotiated; clients mask */
        return false;
    if (is_control(w->op))
        return w->op <= WS_PONG && w->fin && len <= CONTROL_MAX;
    return w->op == WS_CONT ? w->message_op != 0 : w->op <= WS_BINARY && !w->message_op;
}

static size_t head_bytes(const struct wsframe *w) /* once two are there */
{
    unsigned len = w->head[1] & 0x7f;
    return 2u + (len == 126 ? 2u : len == 127 ? 8u : 0u) + (w->client ? 0u : 4u);
}

/* All of the head is there. Returns 0 or the close code. */
static unsigned read_head(struct wsframe *w)
{
    unsigned len = w->head[1] & 0x7f;
    size_t at = 2, wide = len == 126 ? 2 : len == 127 ? 8 : 0;
    w->left = len;
    if (wide) {
        w->left = 0;
        while (at < 2 + wide)
            w->left = w->left << 8 | w->head[at++];
        if (w->left <= (wide == 2 ? 125 : UINT64_C(0xffff)) || w->left >> 63)
            return 1002; /* the shortest form is the only one */
    }
    if (!w->client) /* else it stays zero */
        memcpy(w->mask, w->head + at, 4);
    w->at = 0;
    size_t max = w->max_message ? w->max_message : MESSAGE_MAX;
    if (!is_control(w->op) && (w->message.n > max || w->left > max - w->message.n))
        return 1009;
    if (is_control(w->op))
        str_clear(&w->control);
    else if (w->op != WS_CONT)
        w->message_op = w->op;
    w->in_payload = true;
    return 0;
}

static void take_payload(struct wsframe *w, char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)((uint8_t)p[i] ^ w->mask[(w->at + i) & 3]);
    str_add(is_control(w->op) ? &w->control : &w->message, p, n);
    w->at += n;
    w->left -= n;
}

/* A close frame is empty, or a code and a reason. Returns 0 or the close code. */
static unsigned check_close(const struct str *s)
{
    if (!s->n)
        return 0;
    if (s->n == 1)
        return 1002;
    unsigned code = (unsigned)(uint8_t)s->p[0] << 8 | (uint8_t)s->p[1];
    bool known = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
                 (code >= 3000 && code <= 4999);
    return !known ? 1002 : str_is_utf8(s->p + 2, s->n - 2) ? 0 : 1007;
}

/* A frame is whole. */
static enum ws_got finish_frame(struct wsframe *w, enum ws_op *op, const char **data,
                                size_t *data_n, unsigned *code)
{
    w->head_n = 0;
    w->in_payload = false;
    if (w->message.bad || w->control.bad)
        return bad(w, 1011, code);
    if (is_control(w->op)) {
        unsigned wrong = w->op == WS_CLOSE ? check_close(&w->control) : 0;
        if (wrong)
            return bad(w, wrong, code);
        *op = (enum ws_op)w->op;
        *data = str_c(&w->control);
        *data_n = w->control.n;
        return WS_GOT_CONTROL;
    }
    if (!w->fin)
        return WS_GOT_MORE;
    if (w->message_op == WS_TEXT && !str_is_utf8(str_c(&w->message), w->message.n))
        return bad(w, 1007, code);
    *op = (enum ws_op)w->message_op;
    *data = str_c(&w->message);
    *data_n = w->message.n;
    w->message_op = 0;
    w->reported = true;
    return WS_GOT_MESSAGE;
}

/* The message that was reported is no longer needed. */
static void forget_message(struct wsframe *w)
{
    w->reported = false;
    if (w->message.cap > KEEP_MAX)
        str_release(&w->message);
    else
        str_clear(&w->message);
}

enum ws_got wsframe_feed(struct wsframe *w, char *p, size_t n, size_t *used, enum ws_op *op,
                         const char **data, size_t *data_n, unsigned *code)
{
    *used = 0;
    *data = NULL;
    *data_n = 0;
    *code = 0;
    if (w->bad)
        return bad(w, w->bad, code);
    if (w->reported)
        forget_message(w);
    while (*used < n) {
        if (!w->in_payload) {
            w->head[w->head_n++] = (uint8_t)p[(*used)++];
            if (w->head_n == 2 && !read_start(w))
                return bad(w, 1002, code);
            if (w->head_n < 2 || w->head_n < head_bytes(w))
                continue;
            unsigned wrong = read_head(w);
            if (wrong)
                return bad(w, wrong, code);
        } else {
            size_t take = n - *used;
            if (take > w->left)
                take = (size_t)w->left;
            take_payload(w, p + *used, take);
            *used += take;
        }
        if (w->left)
            continue;
        enum ws_got got = finish_frame(w, op, data, data_n, code);
        if (got != WS_GOT_MORE)
            return got;
    }
    return WS_GOT_MORE;
}

void wsframe_release(struct wsframe *w)
{
    const struct wsframe start = { .max_message = w->max_message, .client = w->client };
    str_release(&w->message);
    str_release(&w->control);
    *w = start;
}

size_t wsframe_head(enum ws_op op, uint64_t n, uint8_t out[10])
{
    size_t wide = n <= 125 ? 0 : n <= 0xffff ? 2 : 8;
    out[0] = (uint8_t)(0x80 | (unsigned)op);
    out[1] = (uint8_t)(wide == 0 ? n : wide == 2 ? 126 : 127);
    for (size_t i = 0; i < wide; i++)
        out[2 + i] = (uint8_t)(n >> 8 * (wide - 1 - i));
    return 2 + wide;
}

/* ---- the handshake ---- */

bool wsframe_accept(const char *key, char out[29])
{
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */
    enum { KEY = 24 }; /* 16 bytes in base64: 22 digits and "==" */
    uint8_t text[KEY + sizeof guid - 1], sum[20];
    if (strlen(key) != KEY || strspn(key, base64) != KEY - 2 || strcmp(key + KEY - 2, "==") != 0)
        return false;
    memcpy(text, key, KEY);
    memcpy(text + KEY, guid, sizeof guid - 1);
    lws_SHA1(text, sizeof text, sum); /* as a checksum: no secret rests on it */
    char room[40];                    /* the encoder wants more than it writes */
    lws_b64_encode_string((const char *)sum, sizeof sum, room, sizeof room);
    memcpy(out, room, 29);
    return true;
}
