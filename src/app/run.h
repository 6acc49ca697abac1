/* run: the pieces of `berth run`, one file each; what it shows meanwhile is run_view.h. */
#pragma once

#include "app/client.h"
#include "app/serve_folders.h"
#include "graph/graph.h"
#include "node/node.h"

/* ---- run_workflow.c: a workflow file and what the command line changes in it ---- */

/* The API format: {id: {class_type, inputs}}, or {"prompt": {...}} around it as clients post it;
 * then *extra (owned, may be NULL) is its extra_data. The editor's own format (nodes and links) is
 * BERTH_EUNSUPPORTED with how to export the other. A PNG is what was saved in it ("prompt"), or
 * BERTH_EUNSUPPORTED. path "-": standard input. */
berth_status run_workflow_read(const char *path, json_t **prompt, json_t **extra, berth_err *err);

/* NODE.INPUT=VALUE. NODE: an id, or else the node with that title (_meta.title) or class; of
 * several the one that has such an input. VALUE: as it stands for texts and choices; for the rest
 * JSON if it reads as JSON, else text. The input need not be there yet if the class has it. INPUT
 * may be one that another brings: NODE.mode.width. BERTH_EINVAL names what there is. */
berth_status run_workflow_set(json_t *prompt, const char *assignment, berth_err *err);

/* ---- run_dynamic.c: inputs of a node that others of its inputs bring ("mode.width") ---- */

/* May the node have this one, by the choices in its `inputs`? A combo that has no choice yet gets
 * the first that brings it; if it has another, that is an error. */
berth_status run_dynamic_check(const struct node_class *c, json_t *inputs, const char *input,
                               berth_err *err);
/* IN_SOCKET: not known. */
enum input_kind run_dynamic_kind(const struct node_class *c, json_t *inputs, const char *input);
/* Adds the inputs that a combo's choice requires and the node lacks, with their defaults. */
berth_status run_dynamic_fill(const struct node_class *c, json_t *inputs, const char *combo,
                              berth_err *err);

/* ---- run_remote.c: the same workflow on a running server ---- */

struct remote_run { /* borrowed for the call */
    struct client *client;
    json_t *prompt, *extra; /* extra may be NULL */
    const atomic_bool *stop;
    /* What the server's WebSocket says, as an executor here would: CACHED, NODE_START, PROGRESS,
     * NODE_DONE. Where there is no WebSocket nothing is reported, and the history alone says that
     * it ended. */
    exec_event_fn *event;
    void (*queued)(void *user); /* once, when others run first */
    /* Once, when it was taken without some of its outputs. */
    void (*partly)(void *user, json_t *node_errors);
    void *user;
};

/* Queues the prompt and waits for its entry in the history (*item, owned; NULL when *stop was set:
 * then the prompt was asked to stop). A refused workflow is an error with what the server says. */
berth_status run_remote(const struct remote_run *r, json_t **item, berth_err *err);

/* ---- run_outputs.c: what a workflow made, and what went wrong, for people and for programs
 * ---- */

struct run_place {                 /* where files are: here in folders, or at a server */
    const struct folders *folders; /* NULL: */
    const struct client *client;
};

/* outputs: {node: {key: [item, ...]}}, as the history has them. Files print as paths or
 * addresses, texts as text, on a terminal without what it would obey. show: pictures are drawn as
 * well, where the terminal can. */
void run_outputs_print(const struct app *a, const struct run_place *at, bool show,
                       const json_t *outputs);
/* One object: files, outputs, status, node_errors (those that are not NULL). */
void run_outputs_json(const struct run_place *at, json_t *outputs, json_t *status,
                      json_t *node_errors);
/* status: as the history has it. On standard error a line for each node whose VAE had no room for a
 * whole picture: what it made is not quite what it would have been. */
void run_tiles_print(const struct app *a, const json_t *status);
/* data: of execution_error. */
void run_failure_print(const struct app *a, const json_t *data);

/* ---- run_hints.c: what to do about a workflow that is refused: a file or node that is not
 * there ---- */

/* Appends a line for each file that node_errors (of a validation) misses, a few at most: which of
 * those that are there could be used and the --set that takes it, or why none of them can; or,
 * where there is none, which folder wants one; of a .gguf file which loader reads it. Of other
 * choices that are too many for the error itself, all there are. Of a node whose taker cannot be
 * computed anyway, that. Only options that were not given are advised. Safe for a terminal. env
 * NULL (then o, too): a server's answer, whose folders are not known: only what it lists. */
void run_hints(const struct node_env *env, const struct folder_options *o, json_t *prompt,
               json_t *node_errors, struct str *out);
/* Appends a line on what is wrong with the prompt as a whole (`error` of its validation; NULL:
 * nothing): a class that does not exist, no output. Safe for a terminal. */
void run_hints_whole(const json_t *error, json_t *prompt, struct str *out);
