/* client: requests to a running server, for ps, free and run --server, and its WebSocket.
 *
 * libcurl does the talking: http and https, proxies from the environment (but none for this machine
 * itself, unless --proxy says so). Every request has a connection of its own.
 * A server that was just started is waited for: until somebody answered once, a refused connection
 * is tried again for CLIENT_PATIENCE_S seconds. Errors begin with the address that was asked.
 * Threads  One at a time.
 * Files    client.c requests, client_url.c addresses, client_curl.c libcurl, client_ws.c the
 *          WebSocket */
#pragma once

#include "app/app.h"
#include "app/client_curl.h"
#include "base/json.h"

#define CLIENT_PATIENCE_S 5

struct client {
    const char *url;    /* --server; NULL: $BERTH_URL, else http://127.0.0.1:8188 */
    const char *token;  /* --token; NULL: $BERTH_TOKEN, else none */
    const char *cacert; /* --cacert; NULL: $CURL_CA_BUNDLE, $SSL_CERT_FILE, else the system's */
    const char *proxy;  /* --proxy; NULL: the environment's, none for this machine; "": none */
    bool quiet;         /* says nothing when it waits */
    bool met;           /* somebody answered */
    json_t **refusal;   /* where a refusal's JSON goes, the caller's to release; NULL: nowhere */
};
#define CLIENT_WAY_OPTIONS(c)                                                                      \
    opt_text("cacert", "FILE",                                                                     \
             "certificates to trust for https, in PEM; default $CURL_CA_BUNDLE, "                  \
             "$SSL_CERT_FILE, else the system's",                                                  \
             &(c)->cacert),                                                                        \
        opt_text("proxy", "URL",                                                                   \
                 "default $http_proxy, $https_proxy, $no_proxy, and none for this machine; "       \
                 "'' for none",                                                                    \
                 &(c)->proxy)
#define CLIENT_OPTIONS(c)                                                                          \
    opt_text("server", "URL", "default $BERTH_URL, else http://127.0.0.1:8188", &(c)->url),        \
        opt_text("token", "TEXT", "default $BERTH_TOKEN; what the server was started with",        \
                 &(c)->token),                                                                     \
        CLIENT_WAY_OPTIONS(c)

/* body NULL: a GET, else a POST of JSON. *out is owned. Statuses other than 200 are errors that
 * quote what the server said; BERTH_EIO: nobody answers, and where it was asked. seconds: for the
 * answer. */
berth_status client_json(struct client *c, const char *path, const char *body, unsigned seconds,
                         json_t **out, berth_err *err);

/* Of an answer: a text ("?" where it is none), a number (0), and all of it on stdout, indented. */
const char *client_text(const json_t *o, const char *key);
uint64_t client_u64(const json_t *o, const char *key);
void client_print(const json_t *v);

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

/* ---- client_url.c: addresses ---- */

struct client_url {
    char host[256]; /* without the brackets of IPv6 */
    char port[8];
    struct str base; /* "https://host:8188/prefix" */
    struct str path; /* of a request, query and all: "/prefix/free" */
    bool local;      /* this machine */
};
/* People paste the dashboard's address, which ends in /berth; behind a proxy that hands out /x
 * it is /x/berth. Without a scheme it is http, without a port 8188 for http and 443 for https.
 * client_url_release() it, also after an error. */
berth_status client_url_read(const char *url, const char *path, struct client_url *out,
                             berth_err *err);
void client_url_release(struct client_url *u);

/* ---- for client_ws.c: a connection ---- */

struct client_call { /* client_call_open(); client_call_close() */
    struct client_curl lib;
    CURL *curl;
    struct client_url url;
    const char *token; /* NULL: none */
    char said[CURL_ERROR_SIZE];
};
/* A zeroed *call is closed; close it, also after an error. */
berth_status client_call_open(struct client *c, const char *path, unsigned seconds,
                              struct client_call *call, berth_err *err);
/* curl_easy_perform() with our patience and our words. */
berth_status client_call_perform(struct client *c, struct client_call *call, unsigned seconds,
                                 berth_err *err);
void client_call_close(struct client_call *call);

/* ---- the WebSocket: what the server says of prompts that were queued with this client_id ---- */

struct client_ws;
berth_status client_ws_open(struct client *c, const char *client_id, struct client_ws **out,
                            berth_err *err);
enum client_heard { CLIENT_HEARD_NOTHING, CLIENT_HEARD_MESSAGE, CLIENT_HEARD_END };
/* The next text message, *out (owned); NOTHING: none within ms, or a signal came. END: it is closed
 * or broken, and says no more. */
enum client_heard client_ws_next(struct client_ws *w, int ms, json_t **out);
void client_ws_close(struct client_ws *w); /* NULL is fine */
