/* wsframe: RFC 6455 without I/O, on the server's side and on the client's. Fuzzed.
 *
 * wsframe_feed() unmasks in place, joins fragments up to a limit, checks UTF-8 of text, and reports
 * messages and control frames. What breaks the protocol yields the close code to send, again and
 * again. A length that is announced allocates nothing; what was large is given back after use.
 * How the bytes were cut into pieces changes nothing. Call until WS_GOT_MORE, each time behind
 * *used.
 * Threads    Owner only. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum ws_op { WS_CONT = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

struct wsframe {        /* zeroed: start */
    size_t max_message; /* 0: 4 MiB */
    bool client;        /* reads what a server sends: nothing is masked then, else everything is */
    struct str message; /* fragments so far */
    uint8_t head[14];
    size_t head_n;
    uint64_t left, at; /* payload to come, bytes of it seen */
    int op, message_op;
    bool fin, in_payload;
    uint8_t mask[4];
    struct str control; /* payload of a control frame */
    bool reported;      /* message was reported, the next call forgets it */
    unsigned bad;       /* close code; 0: fine */
};
enum ws_got { WS_GOT_MORE, WS_GOT_MESSAGE, WS_GOT_CONTROL, WS_GOT_BAD };
/* MESSAGE: *op WS_TEXT or WS_BINARY, *data valid until the next call. CONTROL: *op, payload
 * likewise; that of WS_CLOSE is empty or begins with a valid code. BAD: *code is 1002, 1007, 1009,
 * or 1011 when memory ran out. */
enum ws_got wsframe_feed(struct wsframe *w, char *p, size_t n, size_t *used, enum ws_op *op,
                         const char **data, size_t *data_n, unsigned *code);
void wsframe_release(struct wsframe *w); /* at the start again, max_message and client kept */
/* Frame head of an unmasked, unfragmented message; returns its length (2, 4 or 10). */
size_t wsframe_head(enum ws_op op, uint64_t n, uint8_t out[10]);
/* Sec-WebSocket-Accept for a key; false: not 16 bytes in base64. */
bool wsframe_accept(const char *key, char out[29]);
