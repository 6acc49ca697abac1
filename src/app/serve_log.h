/* serve_log: what --verbose says, in ComfyUI's words: LEVEL for the terminal, LEVEL FILE for a file
 * that gets events of that level beside it. Several may be given; of those for the terminal the one
 * that says most counts. --log-level takes precedence over them. */
#pragma once

#include "app/app.h"
#include "app/args.h"

struct log_out { /* a file */
    enum log_level level;
    struct log_file file;
};
struct serve_log {
    struct log terminal; /* a->log, before there were files */
    struct log_out *out;
    size_t n;
};
/* given: "LEVEL" or "LEVEL,FILE" each. Sets a->log up. Returns 0 or the exit code of what it named;
 * close it in both cases, and log nothing to a->log after that from other threads. */
int serve_log_open(struct app *a, const struct opt_list *given, struct serve_log *out);
void serve_log_close(struct app *a, struct serve_log *l);
