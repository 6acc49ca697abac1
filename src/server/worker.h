/* worker: the thread that runs prompts and owns executor, residency and devices.
 *
 * Loop       1 wait for a job, a request, or the 10 s collection that is owed
 *            2 a job: res_prompt_begin, executor_run, store_finish, status, executing null,
 *              res_prompt_end
 *            3 free requests, in order: several flag requests without wait add up to one; each with
 *              wait, selectors, dry_run or force is a free of its own with its receipt
 *            4 changes (retention, new plan, eject): between prompts, in order
 *            5 publish the state (state.h part below), send berth.residency when something changed
 * Requests   Any thread. Callbacks run on the loop, exactly once, also when the server stops
 *            (BERTH_ECANCELED).
 * State      JSON texts of models, devices and memory that the worker publishes after every change
 *            and every second of a load; anybody reads a copy without waiting for the worker.
 * Stop       worker_stop(): the running prompt has grace_s to end, then it is canceled and parked. */
#ifndef SERVER_WORKER_H
#define SERVER_WORKER_H

#include "base/err.h"
#include "base/str.h"

#include <jansson.h>

struct server;

struct worker_free { /* POST /free; texts are owned copies */
    bool unload_models, free_memory, force, dry_run, wait;
    char **models, **devices;
    size_t models_n, devices_n;
    unsigned tiers;
    char *reason;
};
void worker_free_release(struct worker_free *f);

/* text: JSON of the answer (receipt, model), empty after an error. Loop thread. */
typedef void worker_done_fn(struct server *s, void *user, berth_status st, const berth_err *err,
                            struct str *text);
/* Takes *f. done NULL: nobody waits. A dry_run while a prompt runs waits for its end like the rest. */
void worker_post_free(struct server *s, struct worker_free *f, worker_done_fn *done, void *user);

struct worker_change { /* PATCH or DELETE /berth/models/{id} */
    uint64_t model;
    bool eject;                          /* DELETE */
    bool force;                          /* DELETE of a keep model */
    char *retention;                     /* "keep", "eject", "auto"; NULL: as it is */
    char *allocation, *layout, *compute; /* a new plan; NULL: as it is */
};
void worker_post_change(struct server *s, struct worker_change *taken, worker_done_fn *done,
                        void *user);

/* The running prompt: any, or only the one with this id. True: it was running. */
bool worker_interrupt(struct server *s, const char *prompt_id);
void worker_wake(struct server *s);

/* Published texts; each appends JSON. */
void worker_models_json(struct server *s, struct str *out);  /* {"models":[...]} */
void worker_devices_json(struct server *s, struct str *out); /* {"devices":[...]} */
void worker_memory_json(struct server *s,
                        struct str *out); /* {"devices":[ledger..],"timeline":[...]} */
void worker_stats_json(struct server *s, struct str *out);   /* devices of /system_stats */
void worker_metrics_text(struct server *s, struct str *out); /* Prometheus lines */
/* Node now executing for sid's prompt, for reconnects: {"node","display_node","prompt_id"}; false: none. */
bool worker_executing_json(struct server *s, const char *sid, struct str *out);

berth_status worker_start(struct server *s, berth_err *err);
void worker_stop(struct server *s, unsigned grace_s); /* returns when the thread has ended */

#endif
