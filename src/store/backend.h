/* backend: what a store is kept in. A new one is a `const struct store_ops store_<x>` in a file or
 * folder of its own and the line STORE(x) in stores.def. Nobody but store/ calls these slots;
 * everybody else uses store.h.
 *
 * Calls come from any thread and at the same time; a backend has its own locks. Each change is one
 * transaction: done and able to survive kill -9 when the call returns BERTH_OK, or not done at all.
 * BERTH_EIO is trouble that may pass (a full disk), and the same call may be made again. Several
 * workers take jobs; several processes may, where the backend has a way to share them.
 *
 * tests/unit/store/contract.h holds a backend to this. */
#pragma once

#include "store/store.h"

/* Embedded first in a backend's own struct. */
struct store_backend {
    const struct store_ops *ops;
};

/* Of this moment, without waiting for a disk. */
struct store_counts {
    size_t pending, running, history;
    size_t bytes;      /* of the texts of pending and running jobs: store_job_bytes() */
    uint64_t last_seq; /* the largest that was ever given */
    bool paused;
};

enum store_parts { STORE_WHOLE, STORE_BRIEF, STORE_BRIEF_EXTRA }; /* see store_each_brief() */

struct store_pick { /* which jobs */
    const char *id; /* NULL: any */
    uint64_t seq;   /* 0: any */
    enum store_parts parts;
};

struct store_range {      /* which entries, oldest first */
    const char *id;       /* not NULL: this one only, and nothing below counts but parts */
    uint64_t skip, count; /* so many of the oldest are left out; at most so many are shown */
    bool newest;          /* skip is 0, and the newest `count` are meant */
    enum store_parts parts;
};

struct store_ops {
    const char *name; /* what stands before the colon of a path */

    /* cfg is filled in: no zeros and no NULL but log, and path without the name. What was running
     * when its process ended is judged by store_judge(). */
    berth_status (*open)(const struct store_config *cfg, struct store_backend **out,
                         berth_err *err);
    void (*close)(struct store_backend *b);

    uint64_t (*next_number)(struct store_backend *b);
    void (*counts)(struct store_backend *b, struct store_counts *out);

    /* All of them or none, on disk when it returns. Sets their seq, one after the other and above
     * that of any job there ever was. BERTH_EDEVICE: written, but a sync failed, so that they were
     * taken out again; a sync that succeeds after it proves nothing. */
    berth_status (*add)(struct store_backend *b, struct store_job *const *jobs, size_t n,
                        berth_err *err);
    /* The first pending job runs from now on, with one more in attempts and a new number in
     * attempt. *got false: there is none, or the queue is paused, or it is above `upto`: then it
     * was added here just now, and its sender has not been told yet. */
    berth_status (*take)(struct store_backend *b, uint64_t upto, struct store_job *out, bool *got,
                         berth_err *err);
    /* Of a job that runs in this attempt; else store_stale(). */
    berth_status (*renew)(struct store_backend *b, uint64_t seq, uint64_t attempt, berth_err *err);
    berth_status (*finish)(struct store_backend *b, uint64_t seq, uint64_t attempt,
                           const struct store_result *r, /* NULL: the job goes without an entry */
                           berth_err *err);
    berth_status (*park)(struct store_backend *b, uint64_t seq, uint64_t attempt, berth_err *err);

    /* Pending jobs; ids NULL: all of them; else for each id the first one. */
    berth_status (*remove)(struct store_backend *b, const char *const *ids, size_t n, size_t *gone,
                           berth_err *err);
    berth_status (*move)(struct store_backend *b, const char *id, const char *before,
                         berth_err *err); /* store_move(), with order_move() */
    berth_status (*pause)(struct store_backend *b, bool paused, berth_err *err);
    /* Running ones first, then pending in order, at one moment. Locks may be held over fn. */
    berth_status (*jobs)(struct store_backend *b, const struct store_pick *pick, store_job_fn *fn,
                         void *user, berth_err *err);

    /* No lock is held over fn, which may call anything. */
    berth_status (*entries)(struct store_backend *b, const struct store_range *r,
                            store_entry_fn *fn, void *user, berth_err *err);
    berth_status (*forget)(struct store_backend *b, const char *const *ids, size_t n,
                           berth_err *err); /* entries; ids NULL: all */

    /* Optional. Work that no call waits for (syncs, giving room back), from the store's thread:
     * soon after each change, and at the time it returned last (CLOCK_MONOTONIC, UINT64_MAX: not).
     * closing: what cannot be done later. */
    uint64_t (*tend)(struct store_backend *b, bool closing);
};

#ifndef STORES_DEF /* a test has a list with a line more */
#define STORES_DEF "store/stores.def"
#endif
#define STORE(x) extern const struct store_ops store_##x;
#include STORES_DEF
#undef STORE
extern const struct store_ops *const store_backends[]; /* stores.def; NULL ends it */

/* ---- what backends share ---- */

bool store_job_copy(const struct store_job *from, struct store_job *to); /* false: no memory */
size_t
store_job_bytes(const struct store_job *j); /* of its texts, but the number, which may change */

/* The attempt is not the one that runs: the error for it. now: the one that does, 0: none. */
berth_status store_stale(uint64_t seq, uint64_t attempt, uint64_t now, berth_err *err);

/* A job whose process ended while it was running: true if it is to be tried again. Otherwise
 * *status is that of its entry, unless that is bad. oom: the kernel killed for want of memory. */
bool store_judge(const struct store_config *cfg, const struct store_job *j, bool oom,
                 struct str *status);

/* order.c: numbers for store_move(). */
struct order_job { /* a pending one */
    uint64_t seq;
    double order;
    char *id;
};
struct order_change {
    uint64_t seq;
    double order;
    char number[40];
};
/* Which jobs get which numbers, so that `id` is in its new place; *out is to be freed. *counter is
 * raised beyond them where it must be. */
berth_status order_move(const struct order_job *jobs, size_t n, const char *id, const char *before,
                        uint64_t *counter, struct order_change **out, size_t *changed,
                        berth_err *err);
