/* run_hints: what to do about a workflow that is refused: a file or node that is not there. */
#ifndef APP_RUN_HINTS_H
#define APP_RUN_HINTS_H

#include "app/serve_folders.h"
#include "base/json.h"
#include "node/node.h"

/* Appends a line for each file that node_errors (of a validation) misses, a few at most: what there
 * is instead and the --set that takes it; or, where there is none, which folder wants one; of a .gguf
 * file which loader reads it. Of other choices that are too many for the error itself, all there are.
 * Of a node whose taker cannot be computed anyway, that. Only options that were not given
 * are advised. Safe for a terminal. env NULL (then o, too): a server's answer, whose folders are not
 * known: only what it lists. */
void run_hints(const struct node_env *env, const struct folder_options *o, json_t *prompt,
               json_t *node_errors, struct str *out);
/* Appends a line on what is wrong with the prompt as a whole (`error` of its validation; NULL:
 * nothing): a class that does not exist, no output. Safe for a terminal. */
void run_hints_whole(const json_t *error, json_t *prompt, struct str *out);

#endif
