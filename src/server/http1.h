/* http1: HTTP/1.1 requests out of bytes, without I/O. Fuzzed.
 *
 * http1_feed() takes bytes as they come and reports one thing at a time: the head, pieces of the
 * body, the end. Chunked bodies and trailers are undone here. Limits on request line, head and number
 * of fields; obs-fold, bare CR, NUL, conflicting lengths, Transfer-Encoding together with
 * Content-Length and whatever else smuggles requests are refused.
 * Threads    Owner only. */
#ifndef SERVER_HTTP1_H
#define SERVER_HTTP1_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define HTTP1_HEAD_MAX 32768 /* bytes of request line and fields */
#define HTTP1_FIELDS_MAX 100

struct http1_field {
    const char *name,
        *value; /* in the head's buffer; names lower-cased, values trimmed, both NUL-ended */
};
struct http1 {
    /* the head, valid from HTTP1_HEAD until http1_reset() */
    const char *method; /* "GET" */
    const char *path;   /* raw, still percent-encoded, without query */
    const char *query;  /* behind '?'; "" when there is none */
    bool http10, keep_alive, expect_continue, chunked, has_length, upgrade;
    uint64_t length; /* Content-Length */
    struct http1_field field[HTTP1_FIELDS_MAX];
    size_t fields;
    /* private */
    char *buf;
    size_t n, cap, scanned;
    int state;
    uint64_t left, body;
};
enum http1_got {
    HTTP1_MORE, /* everything was consumed, feed more */
    HTTP1_HEAD, /* the head is there */
    HTTP1_BODY, /* *piece, *piece_n: some of the body, inside the input */
    HTTP1_END,  /* the request is whole; what follows is the next one: http1_reset() first */
    HTTP1_BAD,  /* *status: what to answer (400, 413, 414, 431, 501, 505), then close */
};
void http1_init(struct http1 *h);
void http1_release(struct http1 *h);
void http1_reset(struct http1 *h); /* for the next request; keeps memory if small */
/* Consumes *used of p[0..n). max_body: HTTP1_BAD with 413 beyond it, also by Content-Length alone. */
enum http1_got http1_feed(struct http1 *h, const char *p, size_t n, uint64_t max_body, size_t *used,
                          const char **piece, size_t *piece_n, int *status);
const char *http1_get(const struct http1 *h, const char *name); /* first field; NULL: none */
/* Comma-separated lists: does `name` hold `token` (any case)? */
bool http1_has(const struct http1 *h, const char *name, const char *token);

#endif
