/* run: one prompt while it runs: executor.c goes from node to node, run_node.c calls one, result.c
 * tells what happened. */
#pragma once

#include "graph/cache.h"
#include "graph/order.h"

struct executor { /* owner: executor thread */
    struct executor_config cfg;
    struct cache cache;
    uint64_t seed[2]; /* of keys */
    bool running;
    bool reset_wanted; /* while running */
};

struct run {
    struct executor *x;
    const struct exec_request *q;
    struct exec_result *out;
    struct workflow wf;
    struct order order;
    struct arena mem;     /* of what there is per node, here and in order */
    struct node_key *key; /* per node */
    struct entry **have;  /* per node: its outputs while somebody may need them; a reference */
    unsigned *want;       /* per node: those that may still ask for its outputs, the client too */
    bool *reached;        /* per node: counted in want */
    bool *asked;          /* per node: a requested output */
    struct vec dead;      /* size_t: nodes whose wishes are to be made or taken back; scratch */
    size_t node;          /* that runs; SIZE_MAX: none */
    const char *raised;   /* exception_type of its error, static; NULL: by the code */
    bool *ran;            /* per node: in this prompt */
    json_t *executed;     /* ids of those */
    json_t *messages;     /* [[event, data], ...] */
    json_t *networks;     /* [{...}]: what networks did, for the history; NULL: none yet */
};

enum run_step {
    RUN_DONE,  /* the node's outputs are in run->have */
    RUN_AGAIN, /* lazy inputs were asked for */
    RUN_ERROR, /* err says what; BERTH_ECANCELED: interrupted */
    RUN_BROKE, /* our own trouble: no memory */
};

/* run_node.c: one node, from START to what it gave. current (owned by the caller): the inputs it
 * was called with, {name: [...]}, after RUN_ERROR; NULL if there was no memory for them. */
enum run_step run_node(struct run *r, size_t node, json_t **current, berth_err *err);

/* result.c: events and what history keeps. */
struct exec_event run_event_of(const struct run *r, enum exec_event_kind kind, size_t node);
void run_send(const struct run *r, const struct exec_event *e);
void run_event(struct run *r, enum exec_event_kind kind, size_t node, const json_t *output);
/* {"node_id", "display_node", "parent_node", "real_node_id"} and the ui, into outputs and meta. */
berth_status run_ui(struct run *r, size_t node, const json_t *ui, berth_err *err);
berth_status run_start(struct run *r, berth_err *err);
berth_status run_cached(struct run *r, berth_err *err);
/* Clients hear that the node was not called, and why; the prompt goes on. */
berth_status run_blocked(struct run *r, size_t node, const char *message, berth_err *err);
berth_status run_success(struct run *r, berth_err *err);
/* why: of node (SIZE_MAX: of none). Takes current. ECANCELED becomes execution_interrupted. */
berth_status run_failure(struct run *r, size_t node, const berth_err *why, json_t *current,
                         berth_err *err);
berth_status run_status(struct run *r, berth_err *err); /* result.status from the messages */
/* One more network's numbers; takes it. Dropped when there are too many. */
void run_network(struct run *r, json_t *taken);
