#include "store/store_impl.h"

#include "base/json.h"

#include <inttypes.h>

void store_job_release(struct store_job *j)
{
    free(j->id);
    free(j->number);
    free(j->prompt);
    free(j->extra_data);
    free(j->outputs);
    free(j->client_id);
    *j = (struct store_job) { 0 };
}

size_t store_job_bytes(const struct store_job *j)
{
    return strlen(j->id) + strlen(j->prompt) + strlen(j->extra_data) + strlen(j->outputs) +
           (j->client_id ? strlen(j->client_id) : 0);
}

static bool copy_text(const char *from, char **to)
{
    *to = from ? strdup(from) : NULL;
    return !from == !*to;
}

bool store_job_copy(const struct store_job *from, struct store_job *to)
{
    *to = (struct store_job) { .order = from->order,
                               .seq = from->seq,
                               .attempt = from->attempt,
                               .attempts = from->attempts,
                               .created_ms = from->created_ms };
    if (copy_text(from->id, &to->id) && copy_text(from->number, &to->number) &&
        copy_text(from->prompt, &to->prompt) && copy_text(from->extra_data, &to->extra_data) &&
        copy_text(from->outputs, &to->outputs) && copy_text(from->client_id, &to->client_id))
        return true;
    store_job_release(to);
    return false;
}

void raw_json(struct jsonout *j, const char *key, const char *text)
{
    jo_raw(j, key, text, strlen(text));
}

void job_json(struct jsonout *j, const char *key, const struct store_job *job)
{
    jo_open(j, key, '[');
    raw_json(j, NULL, job->number);
    jo_str(j, NULL, job->id);
    raw_json(j, NULL, job->prompt);
    raw_json(j, NULL, job->extra_data);
    raw_json(j, NULL, job->outputs);
    jo_close(j, ']');
}

/* ---- what backends share ---- */

berth_status store_stale(uint64_t seq, uint64_t attempt, uint64_t now, berth_err *err)
{
    if (!now)
        return err_set(err, BERTH_EINVAL,
                       "attempt %" PRIu64 " of job %" PRIu64
                       " is over: no attempt at it is running",
                       attempt, seq);
    return err_set(err, BERTH_EINVAL,
                   "attempt %" PRIu64 " of job %" PRIu64 " is over: attempt %" PRIu64
                   " is running it",
                   attempt, seq, now);
}

static void open_message(struct jsonout *w, const char *type, const char *prompt_id)
{
    jo_open(w, NULL, '[');
    jo_str(w, NULL, type);
    jo_open(w, NULL, '{');
    jo_str(w, "prompt_id", prompt_id);
}

static void close_message(struct jsonout *w, uint64_t ms)
{
    jo_u64(w, "timestamp", ms);
    jo_close(w, '}');
    jo_close(w, ']');
}

static void write_why(struct jsonout *w, unsigned attempts, bool oom)
{
    char why[320];
    snprintf(why, sizeof why,
             "The server died %u time%s while this prompt was running%s; it is not tried again.\n",
             attempts, attempts == 1 ? "" : "s",
             oom ? ", and the kernel had to kill for want of memory: give the server more of it, "
                   "or a smaller --ram-budget, or draw a smaller picture"
                 : "");
    jo_str(w, "exception_message", why);
}

/* The entry of a job that took the process down with it as often as it may. */
static void write_death(const struct store_config *cfg, const struct store_job *j, bool oom,
                        struct str *status)
{
    uint64_t ms = clock_wall_ns(cfg->clock) / 1000000;
    struct jsonout w = { .out = status };
    jo_open(&w, NULL, '{');
    jo_str(&w, "status_str", "error");
    jo_bool(&w, "completed", false);
    jo_open(&w, "messages", '[');
    open_message(&w, "execution_start", j->id);
    close_message(&w, ms);
    open_message(&w, "execution_error", j->id);
    jo_str(&w, "node_id", "");
    jo_str(&w, "node_type", "");
    jo_raw(&w, "executed", "[]", 2);
    write_why(&w, j->attempts, oom);
    jo_str(&w, "exception_type", "ServerDied");
    jo_raw(&w, "traceback", "[]", 2);
    jo_raw(&w, "current_inputs", "{}", 2);
    jo_raw(&w, "current_outputs", "[]", 2);
    close_message(&w, ms);
    jo_close(&w, ']');
    jo_close(&w, '}');
}

bool store_judge(const struct store_config *cfg, const struct store_job *j, bool oom,
                 struct str *status)
{
    bool again = j->attempts < STORE_ATTEMPTS && !oom;
    log_warn(cfg->log, "store.recover", "attempts=%u again=%d out_of_memory=%d prompt=%s",
             j->attempts, again, oom, j->id);
    if (!again)
        write_death(cfg, j, oom, status);
    return again;
}
