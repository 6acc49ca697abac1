/* worker: the thread that runs prompts and owns engine, residency and devices.
 *
 * Loop       1 wait for a job, a request, the collection due 10 s after the last one, or a
 *              berth.residency that was held back
 *            2 job: status, engine_run(). When it has its result: store_finish, execution_success
 *              (or _error, _interrupted), status, executing null. At its end step 3 for requests
 *              made during the prompt; a free replaces the automatic cleanup
 *            3 requests, in the registry's queue (res_request()): frees, changes (retention, new
 *              plan, eject), looks. Plain flag requests (res_request_free()) add up to one free,
 *              and come last; one with wait, selectors, tiers, dry_run or force is a free with its
 *              own receipt. Requests that leave a running prompt alone are served between its
 *              steps: what a plan would do, a dry run, a change of retention (which takes effect at
 *              the end)
 *            4 publish changes, send berth.residency
 * Requests   Any thread. Callbacks run on the loop, exactly once, also when the server stops
 *            (BERTH_ECANCELED) or the client left before its turn (`left`).
 * State      The worker publishes texts about models after every change, and every 200 ms during a
 *            load; any thread copies them without waiting. Devices and ledgers are read directly.
 * Messages   berth.residency, {"reason","receipt","models":[...],"devices":[...]}, when models or
 *            their bytes changed and after every free, with its serial in `receipt`. To clients
 *            that asked (hub_send_berth()), at most five a second; the last one is never lost.
 * Stop       worker_stop(): the running prompt has grace_s to end, then it is canceled and parked.
 *            No message says that it ended, because it did not.
 * Files      worker.c the thread; worker_job.c one prompt; worker_request.c frees and changes;
 *            state.c what others may see; metrics.c; events.h a prompt's messages. worker_impl.h is
 *            private to them. */
#pragma once

#include "base/err.h"
#include "base/jsonout.h"
#include "residency/residency.h"

#include <stdatomic.h>

struct plan_devices;
struct server;

struct worker_free { /* POST /free; texts are owned copies */
    bool unload_models, free_memory, force, dry_run, wait;
    char **models, **devices;
    size_t models_n, devices_n;
    unsigned tiers;
    char *reason;
    const atomic_bool *left; /* borrowed until done; set: it is not begun. NULL: it is anyway */
};
void worker_free_release(struct worker_free *f);

/* text: JSON of the answer (receipt, model), empty after an error; may be taken. Loop thread. */
typedef void worker_done_fn(struct server *s, void *user, berth_status st, const berth_err *err,
                            struct str *text);
/* Takes *f. done NULL: nobody waits. A dry_run while a prompt runs says what would happen at its
 * end. */
void worker_post_free(struct server *s, struct worker_free *f, worker_done_fn *done, void *user);

struct worker_change { /* PATCH or DELETE /berth/models/{id}, POST /berth/plan */
    uint64_t model;
    bool look;  /* change nothing: what would a new plan do? */
    bool eject; /* DELETE */
    bool force; /* DELETE of a keep model */
    bool sets_retention, sets_layout;
    enum res_retention retention;
    enum plan_layout layout;
    char *allocation, *compute; /* a new plan; NULL: as it is; allocation "": automatic */
    const atomic_bool *left;    /* as worker_free's */
};
void worker_change_release(struct worker_change *c);
/* The answer: the model as it is then, {"id","name","state":"gone"} when it is no more; of an eject
 * the receipt. BERTH_ENOTFOUND: no such model; BERTH_EBUSY: it is keep, and there is no force.
 * Of a look: the plan as plan_as_json() writes it, "now" and "after": {device: bytes}, "moves":
 * bytes that would move to another device. It is served between the steps of a running prompt. */
void worker_post_change(struct server *s, struct worker_change *taken, worker_done_fn *done,
                        void *user);

/* The running prompt: any, or only the one with this id. True: it was running. */
bool worker_interrupt(struct server *s, const char *prompt_id);

/* Each appends JSON. Any thread. */
void worker_models_json(struct server *s, struct str *out); /* {"models":[...]} */
/* blocks: its member `blocks` is the list of them, {"name","bytes","device","planned"} in execution
 * order (device null: not in memory), else how many there are. False: there is no such model. */
bool worker_model_json(struct server *s, uint64_t id, bool blocks, struct str *out);
/* {"started": ms since 1970,"devices":[...]}; started is another one for each run of the server */
void worker_devices_json(struct server *s, struct str *out);
/* {"receipts":[{"time": ms since 1970, then res_receipt_json()'s members}, ..]}: the last 32 frees,
 * newest first. */
void worker_receipts_json(struct server *s, struct str *out);
/* {"devices":[ledger..],"last":N,"timeline":[...]}: snapshots with a number above `after`, at most
 * cap; after UINT64_MAX: the latest cap ones. */
void worker_memory_json(struct server *s, uint64_t after, size_t cap, struct str *out);
void worker_stats_json(struct server *s, struct str *out);   /* "devices" of /system_stats */
void worker_metrics_text(struct server *s, struct str *out); /* Prometheus lines; loop thread */
/* Node now executing for sid's prompt, for reconnects: {"node","display_node","prompt_id"}; false:
 * none. */
bool worker_executing_json(struct server *s, const char *sid, const char *key, struct jsonout *j);
/* What runs: {"prompt_id","node","display_node","value","max"}, max 0 until the node says how far
 * it is; else null. */
void worker_running_json(struct server *s, const char *key, struct jsonout *j);
/* The devices as plans see them, with the speeds measured so far. */
void worker_plan_devices(struct server *s, struct plan_devices *out);

berth_status worker_start(struct server *s, berth_err *err);
/* Returns when the thread has ended. What was published can still be read, requests are
 * canceled. */
void worker_stop(struct server *s, unsigned grace_s);
void worker_close(struct server *s); /* stops it if need be; nobody asks any more */
