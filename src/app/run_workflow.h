/* run_workflow: a workflow file and what the command line changes in it. */
#ifndef APP_RUN_WORKFLOW_H
#define APP_RUN_WORKFLOW_H

#include "base/err.h"
#include "base/json.h"

/* The API format: {id: {class_type, inputs}}, or {"prompt": {...}} around it as clients post it;
 * then *extra (owned, may be NULL) is its extra_data. The editor's own format (nodes and links) is
 * BERTH_EUNSUPPORTED with how to export the other. A PNG is what was saved in it ("prompt"), or
 * BERTH_EUNSUPPORTED. path "-": standard input. */
berth_status run_workflow_read(const char *path, json_t **prompt, json_t **extra, berth_err *err);

/* NODE.INPUT=VALUE. NODE: an id, or else the node with that title (_meta.title) or class; of
 * several the one that has such an input. VALUE: as it stands for texts and choices; for the rest
 * JSON if it reads as JSON, else text. The input need not be there yet if the class has it.
 * BERTH_EINVAL names what there is. */
berth_status run_workflow_set(json_t *prompt, const char *assignment, berth_err *err);

#endif
