/* events: turns what the executor reports into messages (comfyui-api.md 2.3, in the order of 2.5).
 *
 * Recipients  C      the prompt's client; nobody if the prompt named none
 *             C/ALL  the client, or every socket if the prompt named none
 * Text        progress_state lists every node that has begun or ended, so each prompt keeps a table
 *             of them and the text of those that ended: a chain of 3,000 nodes sends 6,000 such
 *             messages, most of which is copied rather than written again. If nobody listens no
 *             text is made and no picture encoded.
 * Memory      A message that does not fit in memory is dropped and counted.
 * Threads     Worker only.
 * Files       events.c the messages, preview.c pictures */
#pragma once

#include "base/map.h"
#include "base/vec.h"
#include "graph/graph.h"
#include "server/hub.h"

/* Where messages go: the hub's functions, or a test's. sid NULL: all sockets. */
struct events_out {
    struct server *server;
    bool (*listens)(struct server *s, const char *sid); /* anybody at all */
    void (*text)(struct server *s, const char *sid, struct str *taken);
    /* A progress_state: a newer one of the same run says all that this one does. */
    void (*state)(struct server *s, const char *sid, uint64_t run, struct str *taken);
    void (*preview)(struct server *s, const char *sid, struct hub_preview *taken);
    void (*label)(struct server *s, const char *node, const char *p, size_t n); /* binary 3 */
};

struct events { /* one prompt's */
    struct events_out out;
    const char *prompt_id; /* borrowed until events_end() */
    const char *client_id; /* borrowed; NULL: the prompt has no client */
    uint64_t run;          /* another number for each prompt */
    unsigned preview_size; /* pixels of the longer side; PNG previews keep their size */
    struct tpool *pool;    /* may be NULL */
    struct vec node;       /* struct events_node of events.c, in the order they began */
    struct map index;      /* node id -> place in it */
    struct str done;       /* what is sent of the first done_n nodes, which finished */
    size_t done_n;
    size_t dropped; /* messages that memory did not suffice for */
};

/* out, prompt_id, client_id, run, preview_size and pool are set, the rest is zero. */
void events_send(struct events *e, const struct exec_event *x);
void events_end(struct events *e);    /* executing null; forgets the nodes */
void events_forget(struct events *e); /* only that: the prompt has not ended */

/* The picture as clients get it: PNG as it is, else JPEG of quality 95 that fits a square of `size`
 * pixels, shrunk or grown. Appends. */
berth_status preview_encode(const struct image *im, bool png, unsigned size, struct tpool *pool,
                            struct str *out, berth_err *err);
