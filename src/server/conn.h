/* conn: one connection: bytes to requests, replies to bytes. Private to server/.
 *
 * Modes      HTTP    requests, one after the other. The next one is read once the reply to the last
 *                    has left; until then early bytes wait in a buffer and no more are read. So a
 *                    pipelining client costs one buffer, and one that closed its half still gets
 *                    its reply.
 *            WS      frames (ws.c)
 *            LINGER  we have sent everything; what still arrives is dropped until the client
 *                    closes, otherwise the kernel sends a reset and the client never sees our last
 *                    bytes. TLS cannot close half a connection: it lingers only if more may come
 * Request    idle -> first byte -> head -> (100 Continue) -> body -> end -> handler -> reply ->
 *            sent -> idle. A refusal may be sent before the body is complete: a small rest is read
 *            and dropped, a large one ends the connection. So does a body no route asked for.
 * Waiting    Nothing is read while a reply is pending, and libwebsockets does not report a close
 *            then. So we check now and then: a client that sends no more may still read, and gets
 *            some time to.
 * Output     A queue of pieces: shared memory, or a range of a file that is read when there is room
 *            for it. At most LOOP_WRITE_MAX bytes are in flight.
 * Closing    conn_kill() marks the connection, libwebsockets closes it later; only conn_gone()
 *            frees it.
 * Threads    Loop. */
#pragma once

#include "server/loop.h"

enum conn_mode { CONN_HTTP, CONN_WS, CONN_LINGER };

/* Bytes that several connections send. Made on any thread, then the loop's. */
struct blob {
    unsigned refs;
    size_t n;
    char *p; /* NULL is fine when n is 0 */
};
struct blob *blob_new(struct str *taken); /* NULL: out of memory, or the text is bad */
void blob_unref(struct blob *b);          /* NULL is fine */

/* STATE, MEMORY and PREVIEW: a newer one may take the place of one that waits. */
enum out_kind { OUT_HTTP, OUT_MESSAGE, OUT_STATE, OUT_MEMORY, OUT_PREVIEW, OUT_KINDS };

struct out { /* one piece of output */
    struct out *next;
    enum out_kind kind;
    uint64_t run;     /* OUT_STATE: the prompt's */
    uint8_t head[10]; /* of a WebSocket frame; sent first */
    uint8_t head_n, head_at;
    struct blob *blob; /* NULL: none; sent from `at` on */
    size_t at;
    int fd; /* -1: none; then `left` bytes from `off` */
    uint64_t off, left;
};

struct ws;

struct conn { /* owner: loop */
    struct server *server;
    struct lws *wsi;
    struct conn *prev, *next; /* all of the loop's */
    struct conn *dirty_next;
    bool dirty;
    enum conn_mode mode;
    bool tls, rx_off, dead;
    bool local; /* it came to a loopback address */
    bool close_when_sent;
    uint64_t deadline_ns; /* 0: none */
    /* HTTP */
    struct http1 *h1; /* NULL between requests */
    struct str in;    /* came too early */
    struct http_req *req;
    const struct route *route; /* whose handler is called at the end; NULL: it was refused */
    bool keep;                 /* the connection outlives this request */
    bool body_done;
    bool half;         /* it was seen that the client sends no more, while its reply is awaited */
    bool file;         /* the body goes to a file: one of the loop's allowance */
    size_t body_step;  /* bytes since the deadline was moved */
    size_t body_waste; /* bytes of it that nobody wanted */
    /* output */
    struct out *out, *out_last;
    struct out *waits[OUT_KINDS]; /* the last of its kind; NULL when it has left */
    size_t out_bytes;             /* in memory */
    uint64_t moved_ns;            /* when bytes of it left last, or there were none */
    struct ws *ws;                /* CONN_WS */
};

/* For loop.c. conn_new() NULL: out of memory. conn_rx() and conn_writeable(): false: close it. */
struct conn *conn_new(struct server *s, struct lws *wsi, bool tls);
WARN_UNUSED bool conn_rx(struct conn *c, char *p, size_t n);
WARN_UNUSED bool conn_writeable(struct conn *c);
void conn_gone(struct conn *c); /* the socket is closed; frees c */
void conn_expired(struct conn *c);

void conn_kill(struct conn *c);
void conn_dirty(struct conn *c); /* conn_writeable() when the current call is over */
void conn_deadline(struct conn *c, unsigned ms); /* 0: none */
/* Queued in this order. Both take what they get, also when memory is out: then the connection
 * dies. */
void conn_send_str(struct conn *c, struct str *taken);
void conn_send_file(struct conn *c, int fd, uint64_t off, uint64_t n);
/* A frame; b: another reference is taken. kind: not OUT_HTTP. */
void conn_send_frame(struct conn *c, enum out_kind kind, unsigned op, uint64_t run, struct blob *b);
/* One that waits and has not begun is replaced by this newer one. False: none waits. */
bool conn_swap_frame(struct conn *c, enum out_kind kind, unsigned op, uint64_t run, struct blob *b);
void conn_drop_preview(struct conn *c); /* the one that waits, if any */

/* Will the rest of the request's body be read, so that the connection can go on? */
bool conn_can_keep(const struct conn *c);
void conn_linger(struct conn *c);

/* ws.c */
void ws_free(struct ws *w);
WARN_UNUSED bool ws_rx(struct conn *c, char *p, size_t n);
void ws_close(struct conn *c, unsigned code); /* sends close, then ends the connection */

/* guard.c: false: it replied. */
bool guard_origin(struct http_req *r, bool cookie); /* cookie: one let it in */
bool guard_token(struct http_req *r, const struct route *route);
berth_status guard_config(const struct server_config *cfg, berth_err *err);
bool guard_loopback(const char *host, size_t n); /* of a Host: without port, or an address */
/* The client; headers it did not send are NULL, except for host. */
struct guard_ask {
    bool local;  /* the connection came to a loopback address */
    bool tls;    /* it is encrypted */
    bool cookie; /* one let it in */
    const char *host, *origin, *proto /* X-Forwarded- */, *site, *mode /* Sec-Fetch- */;
};
bool guard_allows(const struct server_config *cfg, const struct guard_ask *a);

/* router.c */
enum route_found { ROUTE_FOUND, ROUTE_NOT_THERE, ROUTE_NOT_ALLOWED, ROUTE_MALFORMED };
/* Fills param and params of r. NOT_ALLOWED: *allow has the methods there are. */
enum route_found router_find(const struct route *table, size_t n, struct http_req *r,
                             const struct route **out, unsigned *allow);
const struct route *router_table(size_t *n); /* of routes.def, /ws and the static files */
enum http_method router_method(const char *name);
void router_methods(unsigned allow, struct str *out); /* "GET,HEAD,POST" */

/* http.c */
void http_begin(struct http_req *r, struct conn *c, bool ok); /* from c->h1, if that is ok */
void http_status(struct http_req *r, int status); /* "404: Not Found", as ComfyUI words it */
void http_not_allowed(struct http_req *r, unsigned allow);
/* n bytes of fd, which is taken, from `from` on. */
void http_reply_fd(struct http_req *r, int status, const char *type, int fd, uint64_t from,
                   uint64_t n);
void http_req_unref(struct http_req *r);

/* static.c, ws.c */
/* If-None-Match: is it in the list, compared weakly? "*", "a", W/"b". */
bool http_etag_listed(const char *list, const char *etag);
void route_static(struct http_req *r);
void route_ws(struct http_req *r);
