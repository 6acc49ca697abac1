/* run_remote: the same workflow on a running server. */
#ifndef APP_RUN_REMOTE_H
#define APP_RUN_REMOTE_H

#include "app/client.h"

/* Queues `prompt` and waits for its entry in the history (*item, owned; NULL when *stop was set: then
 * the prompt was asked to stop). A refused workflow is BERTH_EINVAL with what the server says. */
berth_status run_remote(const struct client *c, const json_t *prompt, const json_t *extra,
                        const atomic_bool *stop, json_t **item, berth_err *err);

#endif
