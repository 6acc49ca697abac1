/* client: requests to a running server, for ps, free and run --server, and its WebSocket.
 *
 * Requests are HTTP/1.0, so that every answer ends with its connection. Plain http only.
 * A server that was just started is waited for: until somebody answered once, a refused connection
 * is tried again for CLIENT_PATIENCE_S seconds.
 * Threads  One at a time.
 * Files    client.c requests, client_ws.c the WebSocket */
#ifndef APP_CLIENT_H
#define APP_CLIENT_H

#include "app/app.h"
#include "base/json.h"

#define CLIENT_PATIENCE_S 5

struct client {
    const char *url;   /* --server; NULL: $BERTH_URL, else http://127.0.0.1:8188 */
    const char *token; /* --token; NULL: $BERTH_TOKEN, else none */
    bool quiet;        /* says nothing when it waits */
    bool met;          /* somebody answered */
    json_t **refusal;  /* where a refusal's JSON goes, the caller's to release; NULL: nowhere */
};
#define CLIENT_OPTIONS(c)                                                                          \
    { .name = "server",                                                                            \
      .kind = OPT_TEXT,                                                                            \
      .value = "URL",                                                                              \
      .help = "default $BERTH_URL, else http://127.0.0.1:8188",                                    \
      .to = &(c)->url },                                                                           \
    {                                                                                              \
        .name = "token", .kind = OPT_TEXT, .value = "TEXT",                                        \
        .help = "default $BERTH_TOKEN; what the server was started with", .to = &(c)->token        \
    }

/* body NULL: a GET, else a POST of JSON. *out is owned. Statuses other than 200 are errors that
 * quote what the server said; BERTH_EIO: nobody answers, and where it was asked. seconds: for the
 * answer. */
berth_status client_json(struct client *c, const char *path, const char *body, unsigned seconds,
                         json_t **out, berth_err *err);

/* The API's {"error", "node_errors"} for people, safe for a terminal: what is wrong with the whole,
 * then `between` and "node ID (CLASS): why" for every error of a node. */
void client_errors(const json_t *answer, const char *between, struct str *out);

/* The bytes of a GET, appended; at most what an answer may have. */
berth_status client_bytes(struct client *c, const char *path, unsigned seconds, struct str *out,
                          berth_err *err);

/* Where a file of its folders is on the server: "/view?filename=...". Appends. */
void client_view_path(const char *name, const char *subfolder, const char *type, struct str *out);
/* Where a file of its folders can be had: "http://host:8188/view?filename=...". Appends. */
void client_view_url(const struct client *c, const char *name, const char *subfolder,
                     const char *type, struct str *out);

/* For client_ws.c: connects and sends. */
struct client_ask {
    const char *path, *body; /* body NULL: a GET */
    const char *upgrade;     /* further lines of an HTTP/1.1 request; NULL: HTTP/1.0 */
    unsigned seconds;        /* for the answer */
};
berth_status client_send(struct client *c, const struct client_ask *ask, int *fd, berth_err *err);
berth_status client_send_all(int fd, const char *p, size_t n, berth_err *err);

/* ---- the WebSocket: what the server says of prompts that were queued with this client_id ---- */

struct client_ws;
berth_status client_ws_open(struct client *c, const char *client_id, struct client_ws **out,
                            berth_err *err);
enum client_heard { CLIENT_HEARD_NOTHING, CLIENT_HEARD_MESSAGE, CLIENT_HEARD_END };
/* The next text message, *out (owned); NOTHING: none within ms, or a signal came. END: it is closed
 * or broken, and says no more. */
enum client_heard client_ws_next(struct client_ws *w, int ms, json_t **out);
void client_ws_close(struct client_ws *w); /* NULL is fine */

#endif
