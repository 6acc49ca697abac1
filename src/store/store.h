/* store: the durable queue, and the history.
 *
 * Calls      store_open(); any thread: store_add(), which calls back once the job is durable;
 *            a worker: store_take() -> run -> store_finish(), or store_park() if it must stop;
 *            store_close().
 * Words      job      an accepted prompt: texts as the wire shows them, a number, a sequence
 *            pending  waiting, smallest (number, sequence) first
 *            running  taken by a worker; there may be several
 *            attempt  one taking of a job. Its number is never reused: finish, renew and park name
 *                     the attempt, and are refused if it is over
 *            entry    a finished job in the history
 * Backends   keep jobs and entries: backend.h is the contract, stores.def the list, sqlite/ the
 *            first one. Limits, batches of new jobs, waiting for work, and ends that could not be
 *            written are the same for all of them and live here.
 * Durable    A thread gives the backend all jobs that have arrived as one batch, and calls back
 *            when that is on disk; only then may a client hear "accepted". All other changes
 *            survive kill -9 when their call returns, and power loss when the backend says so.
 * Crashes    An added job is there again, a running one pending again in its place. A job that was
 *            started STORE_ATTEMPTS times and never finished, or once while the kernel's
 *            out-of-memory killer was at work (base/oomkill.h), becomes an entry with status error.
 *            store_finish() inserts the entry and removes the job as one change.
 * Full disk  A change that cannot be written is reported (BERTH_EIO with the path and the reason)
 *            and leaves the store as it was; later ones work again when there is room. The end of a
 *            job cannot be undone: its entry waits in memory, is shown to readers, and is written
 *            as soon as there is room (history.c).
 * Threads    Any. Callbacks run on the adder's thread; they may look at the queue but change
 *            nothing. Counts wait for no disk. Changes may wait for a batch and for a sync, and
 *            reading jobs or entries may wait for another reader.
 * Files      store.c open, take, finish; adder.c the thread; job.c jobs and their texts; history.c
 *            entries; order.c numbers for a job that moves; stores.c the list of backends. */
#pragma once

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"

#define STORE_ATTEMPTS 2

struct store;

/* What is left on the disk of a file, and what it has in all. False: that cannot be known. */
typedef bool store_disk_fn(const char *path, uint64_t *left, uint64_t *total);

struct store_config {
    /* Of the database file; its folder exists. "NAME:WHERE" is a place of the backend NAME, where
     * there is one; all others are SQLite's, and ":memory:" is its database without a file. */
    const char *path;
    size_t max_pending;        /* 0: 10000 */
    size_t max_history;        /* 0: 10000; the oldest go */
    size_t max_bytes;          /* of the texts of all jobs in the queue; 0: 1 GiB */
    uint64_t max_file;         /* bytes in use, queue included; 0: 2 GiB; the oldest entries go */
    const struct log *log;     /* borrowed; may be NULL */
    const struct clock *clock; /* borrowed; NULL: system */
    store_disk_fn *disk;       /* NULL: the system's; tests have one of their own */
    const char *root; /* borrowed; where proc/ and sys/ are, for tests; NULL: the machine's */
};
/* BERTH_EBUSY: another process has it. BERTH_EFORMAT: not our database, damaged, or another schema;
 * nothing is touched. BERTH_ENOTFOUND: no such folder. */
berth_status store_open(const struct store_config *cfg, struct store **out, berth_err *err);
/* Writes what is waiting, calls back, stops the thread. Nobody else is inside the store any more.
 * Jobs that still run count as started when the store is opened again, unless store_park() put them
 * back. NULL is fine. */
void store_close(struct store *s);

/* Texts are JSON, as queue and history show them. */
struct store_job {
    char *id;                            /* prompt_id; need not be unique */
    char *number;                        /* JSON number: "7", "7.0", "-3" */
    double order;                        /* its value */
    char *prompt, *extra_data, *outputs; /* objects, object, array of ids */
    char *client_id;                     /* NULL: none */
    uint64_t seq;                        /* set by the store: order of arrival, unique */
    uint64_t attempt;                    /* the one that runs it; 0: it waits */
    unsigned attempts;                   /* how often it was started, this time included */
    int64_t created_ms;                  /* 0: the store sets it */
};
void store_job_release(struct store_job *j); /* zeroed is fine */

/* The number for the next prompt, and counts it. After a restart it goes on behind that of every
 * accepted job, whatever became of them. Moves count too: a number n from here is behind those that
 * they gave, and -n before them, except for moves beside a number that a client made up, beyond
 * n. */
uint64_t store_next_number(struct store *s);

typedef void store_done_fn(void *user, berth_status st, const berth_err *err);
/* Takes *job's texts over (*job is zeroed), also after an error. BERTH_ELIMIT at once: the queue is
 * full, with both numbers; done (may be NULL) is not called after an error. Otherwise it is called
 * exactly once, from the adder's thread, also at store_close(). The job is seen in the queue from
 * just before, and can be taken from just after. */
berth_status store_add(struct store *s, struct store_job *job, store_done_fn *done, void *user,
                       berth_err *err);

/* Waits until a job is there and the store is not paused, store_wake() was called, or the monotonic
 * deadline has passed (0: does not wait; UINT64_MAX: none). *got false: no job. Several threads may
 * wait; each job goes to one. The job is running, written; *out is the caller's,
 * store_job_release(). After an error (a full disk, say) the job is where it was: wait before
 * trying again. *wakes is the taker's own and begins as 0: the calls of store_wake() it has seen,
 * so that none is missed between two calls. */
berth_status store_take(struct store *s, uint64_t *wakes, uint64_t deadline_ns,
                        struct store_job *out, bool *got, berth_err *err);
void store_wake(struct store *s); /* every taker returns soon, once */
/* The attempt goes on: a backend whose leases run out gives it more time. BERTH_EINVAL: it is over,
 * and what it computes will be refused. */
berth_status store_renew(struct store *s, uint64_t seq, uint64_t attempt, berth_err *err);

struct store_result {                    /* JSON texts, borrowed */
    const char *outputs, *status, *meta; /* as in a history item */
};
/* The job ends: entry in, job out. BERTH_EINVAL: this attempt is over, nothing has changed. When it
 * cannot be written (full disk): the error, the job leaves the queue all the same, the entry is
 * kept in memory, shown, and written as soon as that works. A job with the same id in the history
 * is overwritten, in its place. */
berth_status store_finish(struct store *s, uint64_t seq, uint64_t attempt,
                          const struct store_result *r, berth_err *err);
/* The job goes back to where it was in the queue, not counting as started (shutdown).
 * BERTH_EINVAL: this attempt is over. */
berth_status store_park(struct store *s, uint64_t seq, uint64_t attempt, berth_err *err);

/* Queue, seen and changed. */
size_t store_remaining(struct store *s); /* pending + running */
size_t store_pending(struct store *s);
size_t store_running(struct store *s);
/* Appends {"queue_running":[...],"queue_pending":[...]}, items as arrays of five, sorted. */
berth_status store_queue_json(struct store *s, struct str *out, berth_err *err);
/* One job by id, running or pending; *running tells. False: none, or it cannot be read. */
bool store_job_get(struct store *s, const char *id, struct store_job *out, bool *running);
/* All of them as they were at one moment, running first then pending in order. prompt and outputs
 * may be empty, and extra_data unless it is asked for. fn returns false to stop; it must not call
 * the store. */
typedef bool store_job_fn(void *user, const struct store_job *j, bool running);
berth_status store_each_job(struct store *s, bool extra_data, store_job_fn *fn, void *user,
                            berth_err *err);
/* Pending jobs only, for each id the first one; returns how many went. Written before it returns;
 * when that fails 0, and err->code says so (BERTH_OK otherwise). */
size_t store_delete(struct store *s, const char *const *ids, size_t n, berth_err *err);
size_t store_clear(struct store *s, berth_err *err);
/* The pending job `id` goes before another one, or (NULL) behind all; of several with that id the
 * first. Its number becomes one between its neighbours', a whole one where there is one, so that
 * whoever sorts by numbers sees the same order; where neighbours have the same number those behind
 * it get new ones too. Written before it returns. BERTH_ENOTFOUND: one of them is not waiting (any
 * more); BERTH_ELIMIT: there are no numbers left. After an error the order is as it was. */
berth_status store_move(struct store *s, const char *id, const char *before, berth_err *err);
/* Pending jobs wait; survives a restart. Written before it returns. After an error it is as it
 * was. */
berth_status store_pause(struct store *s, bool paused, berth_err *err);
bool store_paused(struct store *s);

/* History. Items as comfyui-api.md 4.4. */
struct store_page {
    bool has_max, has_offset;
    int64_t max, offset; /* as the query had them; 4.4 says what they mean */
};
berth_status store_history_json(struct store *s, const struct store_page *p, struct str *out,
                                berth_err *err); /* {"id": item, ...} */
/* {"id": item}, or {} */
berth_status store_history_one(struct store *s, const char *id, struct str *out, berth_err *err);
berth_status store_history_delete(struct store *s, const char *const *ids, size_t n,
                                  berth_err *err);
berth_status store_history_clear(struct store *s, berth_err *err);
size_t store_history_count(struct store *s);
/* An entry as its parts, borrowed; for /api/jobs. fn returns false to stop. No lock is held. */
struct store_entry {
    struct store_job job;
    const char *outputs, *status, *meta;
};
typedef bool store_entry_fn(void *user, const struct store_entry *e);
/* Each, oldest first, without the large texts, which thousands of entries would copy for nothing:
 * prompt, outputs of both kinds and meta may be empty, and extra_data unless it is asked for.
 * Entries that come or go meanwhile may or may not be seen. */
berth_status store_each_brief(struct store *s, bool extra_data, store_entry_fn *fn, void *user,
                              berth_err *err);
berth_status store_entry_get(struct store *s, const char *id, store_entry_fn *fn, void *user,
                             berth_err *err); /* BERTH_ENOTFOUND */
