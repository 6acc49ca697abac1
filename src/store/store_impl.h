/* store_impl: what the files of store/ share, above any backend.
 *
 * Locks      settling  writing ends that had no room, and changes that concern them; held over
 *                      calls of the backend
 *            admitting held from the look at the limits until the job counts as arriving
 *            lock      everything in memory; a leaf, never held over a call of the backend, whose
 *                      own locks may be held over it
 *            Order: settling, admitting, lock. */
#pragma once

#include "base/clock.h"
#include "base/jsonout.h"
#include "store/backend.h"

#include <pthread.h>
#include <stdatomic.h>

struct arrival { /* a job that was added and is not on disk yet */
    struct store_job job;
    size_t bytes; /* of its texts */
    store_done_fn *done;
    void *user;
    berth_status st; /* of its being written, and why it could not be */
    berth_err err;
    struct arrival *next;
};

/* A job that has ended and whose end could not be written: for the backend it still runs. */
struct owed {
    struct store_job job;
    char *outputs, *status, *meta;
    bool known;   /* there is an older entry of this id, which this one overwrites in its place */
    bool dropped; /* its entry was deleted or overtaken: only the job is left to remove */
    atomic_uint refs; /* the list's and the readers' */
    struct owed *next;
};

struct store {
    const struct store_ops *ops;
    struct store_backend *b;
    size_t max_pending, max_bytes;
    const struct log *log;
    const struct clock *clock;
    pthread_mutex_t settling, admitting;

    pthread_mutex_t lock; /* all below */
    pthread_cond_t work;  /* for the thread */
    pthread_cond_t ready; /* for store_take() */
    struct arrival *first, **last;
    size_t arriving, arriving_bytes; /* those, and those in the batch under way */
    uint64_t counted_seq;            /* the last job that no longer counts as arriving */
    uint64_t told_seq;               /* whose callbacks have returned: may be taken */
    uint64_t changes;                /* that may have given store_take() something */
    struct owed *owed;
    uint64_t due;   /* when the thread looks again by itself; CLOCK_MONOTONIC */
    bool poked;     /* it is to look now */
    uint64_t wakes; /* calls of store_wake() */
    bool stop;
    bool started;
    pthread_t thread;
};

/* store.c */
void store_poke(struct store *s); /* something was written: the backend may want to be tended */

/* adder.c */
berth_status adder_start(struct store *s, berth_err *err);
void adder_stop(struct store *s); /* after everything was written */

/* history.c */
void owed_unref(struct owed *o);
/* A job has ended and that could not be written. */
void owed_add(struct store *s, uint64_t seq, uint64_t attempt, const struct store_result *r);
bool owed_any(struct store *s);
/* Under settling: tries to write each; and drops those with this id, or (NULL) all. */
void owed_settle(struct store *s);
void owed_drop(struct store *s, const char *id);
bool owed_has(struct store *s, uint64_t seq); /* it runs no more, whatever the backend says */

/* job.c */
void raw_json(struct jsonout *j, const char *key, const char *text);            /* of JSON */
void job_json(struct jsonout *j, const char *key, const struct store_job *job); /* array of five */
