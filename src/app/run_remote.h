/* run_remote: the same workflow on a running server. */
#ifndef APP_RUN_REMOTE_H
#define APP_RUN_REMOTE_H

#include "app/client.h"
#include "graph/graph.h"

struct remote_run { /* borrowed for the call */
    struct client *client;
    json_t *prompt, *extra; /* extra may be NULL */
    const atomic_bool *stop;
    /* What the server's WebSocket says, as an executor here would: CACHED, NODE_START, PROGRESS,
     * NODE_DONE. Where there is no WebSocket nothing is told, and the history alone says that it
     * ended. */
    exec_event_fn *event;
    void (*queued)(void *user); /* once, when others run first */
    /* Once, when it was taken without some of its outputs. */
    void (*partly)(void *user, json_t *node_errors);
    void *user;
};

/* Queues the prompt and waits for its entry in the history (*item, owned; NULL when *stop was set:
 * then the prompt was asked to stop). A refused workflow is an error with what the server says. */
berth_status run_remote(const struct remote_run *r, json_t **item, berth_err *err);

#endif
