#include "store/store.h"

#include <stdlib.h>

static berth_status not_yet(berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "store: not there yet");
}

berth_status store_open(const struct store_config *cfg, struct store **out, berth_err *err)
{
    (void)cfg;
    *out = NULL;
    return not_yet(err);
}

void store_close(struct store *s)
{
    (void)s;
}

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

uint64_t store_next_number(struct store *s)
{
    (void)s;
    return 0;
}

berth_status store_add(struct store *s, struct store_job *job, store_done_fn *done, void *user,
                       berth_err *err)
{
    (void)s, (void)done, (void)user;
    store_job_release(job);
    return not_yet(err);
}

berth_status store_take(struct store *s, uint64_t deadline_ns, struct store_job *out, bool *got,
                        berth_err *err)
{
    (void)s, (void)deadline_ns, (void)out;
    *got = false;
    return not_yet(err);
}

void store_wake(struct store *s)
{
    (void)s;
}

berth_status store_finish(struct store *s, const struct store_result *r, berth_err *err)
{
    (void)s, (void)r;
    return not_yet(err);
}

berth_status store_park(struct store *s, berth_err *err)
{
    (void)s;
    return not_yet(err);
}

size_t store_remaining(struct store *s)
{
    (void)s;
    return 0;
}

size_t store_pending(struct store *s)
{
    (void)s;
    return 0;
}

bool store_running_id(struct store *s, struct str *id)
{
    (void)s, (void)id;
    return false;
}

void store_queue_json(struct store *s, struct str *out)
{
    (void)s, (void)out;
}

bool store_job_get(struct store *s, const char *id, struct store_job *out, bool *running)
{
    (void)s, (void)id, (void)out, (void)running;
    return false;
}

void store_each_job(struct store *s, store_job_fn *fn, void *user)
{
    (void)s, (void)fn, (void)user;
}

size_t store_delete(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    (void)s, (void)ids, (void)n, (void)err;
    return 0;
}

size_t store_clear(struct store *s, berth_err *err)
{
    (void)s, (void)err;
    return 0;
}

void store_pause(struct store *s, bool paused)
{
    (void)s, (void)paused;
}

bool store_paused(struct store *s)
{
    (void)s;
    return false;
}

berth_status store_history_json(struct store *s, const struct store_page *p, struct str *out,
                                berth_err *err)
{
    (void)s, (void)p, (void)out;
    return not_yet(err);
}

berth_status store_history_one(struct store *s, const char *id, struct str *out, berth_err *err)
{
    (void)s, (void)id, (void)out;
    return not_yet(err);
}

berth_status store_history_delete(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    (void)s, (void)ids, (void)n;
    return not_yet(err);
}

berth_status store_history_clear(struct store *s, berth_err *err)
{
    (void)s;
    return not_yet(err);
}

size_t store_history_count(struct store *s)
{
    (void)s;
    return 0;
}

berth_status store_each_entry(struct store *s, store_entry_fn *fn, void *user, berth_err *err)
{
    (void)s, (void)fn, (void)user;
    return not_yet(err);
}

berth_status store_entry_get(struct store *s, const char *id, store_entry_fn *fn, void *user,
                             berth_err *err)
{
    (void)s, (void)id, (void)fn, (void)user;
    return not_yet(err);
}
