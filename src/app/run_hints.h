/* run_hints: what to type when a workflow names a file that is not there. */
#ifndef APP_RUN_HINTS_H
#define APP_RUN_HINTS_H

#include "app/serve_folders.h"
#include "base/json.h"
#include "node/node.h"

/* Appends a line for each file that node_errors (of a validation) misses, a few at most: what there
 * is instead and the --set that takes it; or, where there is none, which folder wants one; of a .gguf
 * file which loader reads it. Only options that were not given are advised. Safe for a terminal. */
void run_hints(const struct node_env *env, const struct folder_options *o, json_t *node_errors,
               struct str *out);

#endif
