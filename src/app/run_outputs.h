/* run_outputs: what a workflow made, and what went wrong, for people and for programs. */
#ifndef APP_RUN_OUTPUTS_H
#define APP_RUN_OUTPUTS_H

#include "app/client.h"
#include "paths/folders.h"

struct run_place {                 /* where files are: here in folders, or at a server */
    const struct folders *folders; /* NULL: */
    const struct client *client;
};

/* outputs: {node: {key: [item, ...]}}, as the history has them. Files print as paths or addresses,
 * texts as text, on a terminal without what it would obey. show: pictures are drawn as well, where the terminal can. */
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

#endif
