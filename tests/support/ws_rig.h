/* ws_rig: a WebSocket client for the server of http_rig.h, frame by frame. */
#ifndef SUPPORT_WS_RIG_H
#define SUPPORT_WS_RIG_H

#include "support/http_rig.h"

static const char ws_handshake[] =
    "Host: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n";

static inline int ws_dial(unsigned port, const char *path)
{
    struct str text = { 0 };
    int fd = dial(port);
    str_addf(&text, "GET %s HTTP/1.1\r\n%s", path, ws_handshake);
    say(fd, text.p, text.n);
    str_release(&text);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 101);
    assert_string_equal(field(&a, "Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_string_equal(field(&a, "Upgrade"), "websocket");
    assert_null(field(&a, "Content-Length"));
    answer_release(&a);
    return fd;
}

static inline void ws_frame(int fd, unsigned first, const char *p, size_t n)
{
    static const uint8_t mask[4] = { 1, 2, 3, 4 };
    struct str f = { 0 };
    str_addc(&f, (char)first);
    if (n < 126) {
        str_addc(&f, (char)(0x80 | n));
    } else if (n < 65536) {
        str_addc(&f, (char)(0x80 | 126));
        str_addc(&f, (char)(n >> 8));
        str_addc(&f, (char)n);
    } else {
        str_addc(&f, (char)(0x80 | 127));
        for (int i = 7; i >= 0; i--)
            str_addc(&f, (char)((uint64_t)n >> (8 * i)));
    }
    str_add(&f, (const char *)mask, 4);
    for (size_t i = 0; i < n; i++)
        str_addc(&f, (char)(p[i] ^ mask[i & 3]));
    say(fd, f.p, f.n);
    str_release(&f);
}

static inline void ws_say(int fd, const char *text)
{
    ws_frame(fd, 0x81, text, strlen(text));
}

struct frame {
    unsigned op; /* 0: closed without a frame */
    struct str data;
};

static inline struct frame ws_hear(int fd)
{
    struct frame f = { 0 };
    uint8_t h[10];
    if (recv(fd, h, 2, MSG_WAITALL) != 2)
        return f;
    assert_true(h[0] & 0x80 && !(h[1] & 0x80));
    uint64_t n = h[1];
    size_t more = n == 126 ? 2 : n == 127 ? 8 : 0;
    if (more) {
        assert_int_equal(recv(fd, h + 2, more, MSG_WAITALL), more);
        n = 0;
        for (size_t i = 0; i < more; i++)
            n = n << 8 | h[2 + i];
    }
    f.op = h[0] & 15u;
    read_bytes(fd, n, &f.data);
    return f;
}

static inline void ws_expect(int fd, unsigned op, const char *text)
{
    struct frame f = ws_hear(fd);
    if (f.op != op || (text && strcmp(str_c(&f.data), text)))
        fail_msg("got %u '%.200s', wanted %u '%s'", f.op, str_c(&f.data), op,
                 text ? text : "(any)");
    str_release(&f.data);
}

static inline void ws_expect_close(int fd, unsigned code)
{
    struct frame f = ws_hear(fd);
    unsigned got = f.data.n >= 2 ? (unsigned)(uint8_t)f.data.p[0] << 8 | (uint8_t)f.data.p[1] : 0;
    if (f.op != WS_CLOSE || got != code)
        fail_msg("got %u with code %u, wanted close %u", f.op, got, code);
    assert_true(is_closed(fd));
    str_release(&f.data);
    close(fd);
}

static inline void ws_end(int fd)
{
    ws_frame(fd, 0x88, "\x03\xe8", 2);
    ws_expect_close(fd, 1000);
}

#define STATUS(n, sid)                                                                             \
    "{\"type\": \"status\", \"data\": {\"status\": {\"exec_info\": {\"queue_remaining\": " n       \
    "}}, "                                                                                         \
    "\"sid\": \"" sid "\"}}"

static inline int ws_named(unsigned port, const char *sid)
{
    char path[100], want[200];
    snprintf(path, sizeof path, "/ws?clientId=%s", sid);
    snprintf(want, sizeof want, STATUS("0", "%s"), sid);
    int fd = ws_dial(port, path);
    ws_expect(fd, WS_TEXT, want);
    return fd;
}

#endif
