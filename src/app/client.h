/* client: one request to a running server, for ps and free.
 * HTTP/1.0, so that every answer ends with its connection. Plain http only. */
#ifndef APP_CLIENT_H
#define APP_CLIENT_H

#include "app/app.h"
#include "base/json.h"

struct client {
    const char *url;   /* --server; NULL: $BERTH_URL, else http://127.0.0.1:8188 */
    const char *token; /* --token; NULL: $BERTH_TOKEN, else none */
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

/* body NULL: a GET, else a POST of JSON. *out is owned. Statuses other than 200 are errors that quote
 * what the server said; BERTH_EIO: nobody answers, and where it was asked. seconds: for the answer. */
berth_status client_json(const struct client *c, const char *path, const char *body,
                         unsigned seconds, json_t **out, berth_err *err);

/* The API's {"error", "node_errors"} as one line for people. */
void client_errors(const json_t *answer, struct str *out);

#endif
