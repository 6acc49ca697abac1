/* worker: the thread that runs prompts and owns executor, residency and devices.
 *
 * Loop       1 wait for a job, a request, the collection that is owed 10 s after the last one, or
 *              the time to send a berth.residency that was held back
 *            2 a job: status, engine_run(); when it has its result: store_finish, execution_success
 *              (or _error, _interrupted), status, executing null; at its end step 3 for what was
 *              asked during the prompt, where a free takes the place of the automatic cleanup
 *            3 requests, in the registry's queue (res_request()): frees, changes (retention, new
 *              plan, eject), looks. Plain flag requests, res_request_free(), add up to one free and
 *              come last; each with wait, selectors, tiers, dry_run or force is a free of its own
 *              with its receipt. Between the steps of a prompt those are served already that leave
 *              it alone: what a plan would bring, a dry run, a change of nothing but the retention,
 *              which is a mark and acts at its end
 *            4 publish what changed, send berth.residency
 * Requests   Any thread. Callbacks run on the loop, exactly once, also when the server stops
 *            (BERTH_ECANCELED), or when the one who asked has left before its turn (`left`).
 * State      Texts about models are published by the worker after every change, and every 200 ms of
 *            a load; anybody reads a copy without waiting for it. Devices and their ledgers answer
 *            any thread themselves.
 * Messages   berth.residency, {"reason","receipt","models":[...],"devices":[...]}, when models or
 *            their bytes changed and after every free, whose serial `receipt` then is, to those who
 *            asked (hub_send_berth()); at most five a second, the last one is never lost.
 * Stop       worker_stop(): the running prompt has grace_s to end, then it is canceled and parked:
 *            no message says that it ended, as it did not.
 * Files      worker.c the thread; worker_job.c one prompt; worker_request.c frees and changes;
 *            state.c what others may know; metrics.c; events.h messages of a prompt.
 *            worker_impl.h is theirs alone. */
#ifndef SERVER_WORKER_H
#define SERVER_WORKER_H

#include "base/err.h"
#include "base/jsonout.h"

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

struct worker_change { /* PATCH or DELETE /berth/models/{id} */
    uint64_t model;
    bool eject;                          /* DELETE */
    bool force;                          /* DELETE of a keep model */
    char *retention;                     /* "keep", "eject", "auto"; NULL: as it is */
    char *allocation, *layout, *compute; /* a new plan; NULL: as it is; allocation "": automatic */
    const atomic_bool *left;             /* as worker_free's */
};
void worker_change_release(struct worker_change *c);
/* The answer: the model as it is then, {"id","name","state":"gone"} when it is no more; of an eject
 * the receipt. BERTH_ENOTFOUND: no such model; BERTH_EBUSY: it is keep, and there is no force. */
void worker_post_change(struct server *s, struct worker_change *taken, worker_done_fn *done,
                        void *user);

/* What a change of the plan would bring: the plan as plan_as_json() has it, "now" and "after":
 * {device: bytes}, "moves": bytes that would go to another device. Also while a prompt runs: between
 * its steps. Errors as those of the change. */
void worker_post_look(struct server *s, struct worker_change *taken, worker_done_fn *done,
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
/* {"receipts":[{"time": ms since 1970, and what res_receipt_json() has},..]}: of the last 32 frees, the
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

#endif
