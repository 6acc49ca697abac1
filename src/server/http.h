/* http: what a route sees: a request, and the ways to answer it.
 *
 * Life       The loop creates a request once its head is complete, finds the route, reads the body
 *            the way the route wants it, and calls the handler once. The handler replies, now or
 *            later: to reply later it takes a reference (http_hold()), which is returned on the
 *            loop with http_reply*() and http_unhold(). Replies to a client that has left go
 *            nowhere; that is no error.
 * Threads    Loop only. aux_run() takes work to another thread and back. From the handler's call on
 *            params, query, user and body do not change: whoever holds the request may read them on
 *            any thread. */
#pragma once

#include "base/json.h"
#include "base/str.h"
#include "paths/paths.h"
#include "server/http1.h"

#include <stdatomic.h>

struct server;
struct conn;

enum http_method {
    HTTP_GET = 1,
    HTTP_POST = 2,
    HTTP_PUT = 4,
    HTTP_PATCH = 8,
    HTTP_DELETE = 16,
    HTTP_OPTIONS = 32,
    HTTP_HEAD = 64,
    HTTP_OTHER = 128
};

#define HTTP_PARAMS_MAX 4

struct http_req { /* owner: loop */
    struct server *server;
    struct conn *conn; /* NULL: the client left */
    unsigned refs;
    enum http_method method; /* HEAD arrives as GET, `head` set: the body is left out */
    bool head;
    const struct http1 *h; /* as long as the request, like path and query; NULL: it was malformed */
    const char *path, *query;
    struct str param[HTTP_PARAMS_MAX]; /* {x} of the pattern, percent-decoded once */
    size_t params;
    struct str body;  /* ROUTE_BODY */
    void *sink;       /* ROUTE_STREAM: what the route's begin() made */
    const char *user; /* "default", or of the comfy-user header with --multi-user; NULL: unknown */
    bool replied;
    /* Any thread may read it: the connection is gone. */
    atomic_bool left;
    /* Or it was seen, within a second, that the client sends no more. Most who do that while they
     * wait have gone, and TCP does not say who has not. */
    atomic_bool hung_up;
    struct str extra; /* header lines to add, "Name: value\r\n" */
    bool packed;      /* the body that comes next is gzip already: http_pack() said so */
    bool as_is;       /* it is not to be packed: its headers say already what it is */
    /* private */
    struct http1 *own; /* the head, when the connection is gone */
    bool cache_set;    /* a Cache-Control is among extra */
    size_t body_held;  /* bytes of the loop's allowance; given back with the request */
};

/* Query member, decoded; false: not there, or with a NUL in it. */
bool http_query(const struct http_req *r, const char *name, struct str *out);

/* Does it end with one of these (the last is NULL), in any case? Any thread. */
bool http_ends_with(const char *s, size_t n, const char *const *ends);

/* ---- answers; each ends the request ---- */
void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t n);
void http_reply_take(struct http_req *r, int status, const char *type,
                     struct str *taken);               /* no copy */
void http_reply_empty(struct http_req *r, int status); /* Content-Length: 0, no type */
void http_reply_text(struct http_req *r, int status, const char *text);
void http_reply_json(struct http_req *r, int status, json_t *taken); /* NULL: no memory, 503 */
void http_add_json(json_t *taken, struct str *out); /* appends; NULL: out is bad. Any thread */
void http_reply_json_text(struct http_req *r, int status, struct str *taken);
/* The status of an error: 400 for a wrong request, 404, 409 while something is in use, 413 beyond a
 * limit, 507 for a full disk, 503 for what is temporary, else 500. Any thread. */
int err_http_status(const berth_err *err);
void err_http_json(const berth_err *err, struct str *out); /* {"error": err_without_folders()} */
/* {"error": message}; status 0: err_http_status(). */
void http_reply_err(struct http_req *r, int status, const berth_err *err);
/* A file with ETag, Last-Modified, ranges, conditions. disposition NULL: none. 404 when it is not a
 * regular file. */
struct http_file {
    const char *path, *type, *disposition;
};
void http_reply_file(struct http_req *r, const struct http_file *f);
/* Adds a header line to the answer to come; CR, LF and NUL in value end it. */
void http_header(struct http_req *r, const char *name, const char *value);
/* Text is packed for clients that accept gzip: all of it with --enable-compress-response-body, else
 * larger answers of /berth/. Large ones are packed off the loop: ask http_gzip_from() on the loop
 * from how many bytes on (SIZE_MAX: never), then pack with http_pack() on any thread, and set
 * r->packed if it returns true. */
size_t http_gzip_from(const struct http_req *r);
bool http_pack(const char *type, struct str *body);

struct http_req *http_hold(struct http_req *r); /* another reference */
void http_unhold(struct http_req *r); /* replies 500 when it was the last and nobody replied */

/* The body as JSON, within the server's limits. False: it replied 400 with line and column, or 413
 * for a body too large to parse on the loop. empty: what an empty body means; NULL: an error. */
bool http_json(struct http_req *r, const char *empty, json_t **out);
/* The same without a reply, for bodies that are parsed off the loop. Any thread. */
berth_status http_body_json(const struct str *body, const char *empty, json_t **out,
                            berth_err *err);

/* ---- routes ---- */
typedef void http_handler(struct http_req *r);

enum {                        /* flags of a route */
       ROUTE_DOUBLE = 1 << 0, /* also under /api */
       ROUTE_BODY = 1 << 1,   /* the body is wanted, in memory */
       ROUTE_STREAM = 1 << 2, /* the body goes to the route's sink as it comes */
       ROUTE_OPEN = 1 << 3,   /* no token needed */
       ROUTE_WS = 1 << 4,     /* upgrade */
       ROUTE_PAGE = 1 << 5,   /* opened in a browser: ?token= lets in, and gives the cookie */
};
/* A sink for bodies that go to disk. A begin() that replied (an error) gets no body. */
struct http_sink {
    bool (*begin)(struct http_req *r);                          /* false: replied */
    bool (*write)(struct http_req *r, const char *p, size_t n); /* false: replied */
    void (*abort)(struct http_req *r); /* the client left, or false was returned: free r->sink */
};                                     /* at the end the handler is called */
struct http_answer {                   /* always the same */
    int status;
    const char *type, *text; /* NULL: without a body */
};
struct route {
    unsigned methods;    /* HTTP_GET implies HEAD */
    const char *pattern; /* "/userdata/{file}/move/{dest}"; "{x:.*}" takes the rest, slashes too */
    unsigned flags;
    http_handler *handler;
    const struct http_sink *sink;                    /* ROUTE_STREAM */
    const struct http_answer *answer;                /* of http_reply_fixed() */
    void (*fill)(struct server *s, struct str *out); /* of http_reply_filled() */
    const struct route_work *work;                   /* of route_later() */
};
/* The answer of the request's route; to a setting (?value=), which is not kept, an empty 200. */
void http_reply_fixed(struct http_req *r);
void http_reply_filled(struct http_req *r); /* 200, and the JSON that the route's fill() writes */

/* ---- slow work ---- */
/* Each lane is a thread, so that one kind of work does not delay another. Work in one lane runs in
 * order and never overlaps. */
enum aux_lane {
    AUX_FILES,    /* settings, user data, uploads: what is read, changed and written */
    AUX_PROMPTS,  /* prompts parsed and validated, in the order they came */
    AUX_LISTS,    /* folders, node definitions, queue, history: only read */
    AUX_PICTURES, /* previews, masks, plans: seconds of computing each */
    AUX_LANES
};
/* Runs fn on the lane's thread, then done on the loop, in order; both get arg. False: too much is
 * waiting (reply 503), and neither is called. Thread: loop. */
typedef void aux_fn(struct server *s, void *arg);
WARN_UNUSED bool aux_run(struct server *s, enum aux_lane lane, aux_fn *fn, aux_fn *done, void *arg);
/* Any thread: fn(s, arg) on the loop, soon, in order. p, which may be part of *arg, is the loop's
 * until then. After server_run() ended the rest is called by server_free(). */
struct post { /* loop.c's */
    struct post *next;
    aux_fn *fn;
    void *arg;
};
void loop_post(struct server *s, struct post *p, aux_fn *fn, void *arg);
