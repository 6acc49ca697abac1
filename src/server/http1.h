/* http1: HTTP/1.1 requests out of bytes, without I/O. Fuzzed.
 *
 * http1_feed() takes bytes as they come and reports one thing at a time: the head, pieces of the
 * body, the end. Chunked bodies and trailers are undone here. How the bytes were cut into pieces
 * changes nothing.
 * Flow       got = http1_feed(...), go on behind *used, until HTTP1_MORE: then read the socket.
 *            Call again also when no bytes are left: what is already known (END, 413) comes then.
 *            The body's limit counts from the call after HTTP1_HEAD on, so that it may depend on
 *            the route; answer Expect after that call.
 * Refused    Whatever two parsers could read in two ways: lines that do not end with CR LF, bare
 *            CR, NUL, folded lines, space before a colon, two Content-Length or Transfer-Encoding
 *            fields or both, anything but plain digits, codings other than "chunked", space after a
 *            chunk's size, no or two Host fields, an absolute target for another host.
 * Threads    Owner only. */
#pragma once

#include "base/err.h"

#define HTTP1_HEAD_MAX 32768 /* bytes of request line and fields, or of trailers */
#define HTTP1_LINE_MAX 16384 /* bytes of the request line */
#define HTTP1_FIELDS_MAX 100

struct http1_field {
    const char *name,
        *value; /* in the head's buffer; names lower-cased, values trimmed, both NUL-ended */
};
struct http1 {
    /* the head, valid from HTTP1_HEAD until http1_release() */
    const char *method; /* "GET" */
    const char *path;   /* raw, still percent-encoded, without query; "*" only for OPTIONS */
    const char *query;  /* behind '?'; "" when there is none */
    bool http10, keep_alive, chunked, has_length;
    bool expect_continue; /* and there is a body to wait for */
    bool upgrade;         /* to a WebSocket */
    uint64_t length;      /* Content-Length */
    struct http1_field field[HTTP1_FIELDS_MAX];
    size_t fields;
    /* private */
    char *buf;
    size_t n, cap, line; /* line: where the current one begins */
    int state, bad;      /* bad: its status */
    unsigned lead, digits;
    size_t extra;        /* bytes of chunk extensions, then of trailers */
    uint64_t left, body; /* of the chunk or body to come; of the body seen */
};
enum http1_got {
    HTTP1_MORE, /* everything was consumed, feed more */
    HTTP1_HEAD, /* the head is there */
    HTTP1_BODY, /* *piece, *piece_n: some of the body, inside the input */
    HTTP1_END,  /* the request is whole; what follows is the next one: http1_release() first. Until
                   then END again, and likewise BAD */
    HTTP1_BAD,  /* *status: what to answer (400, 413, 414, 431, 501, 505, or 503 when memory ran
                   out), then close */
};
void http1_init(struct http1 *h);
void http1_release(struct http1 *h); /* ready for the next request */
/* Consumes *used of p[0..n). max_body: HTTP1_BAD with 413 beyond it, also by Content-Length alone;
 * the head comes first. */
enum http1_got http1_feed(struct http1 *h, const char *p, size_t n, uint64_t max_body, size_t *used,
                          const char **piece, size_t *piece_n, int *status);
const char *http1_get(const struct http1 *h, const char *name); /* first field; NULL: none */
/* Comma-separated lists, in all fields of that name: is `token` (any case) one of the members? */
bool http1_has(const struct http1 *h, const char *name, const char *token);
