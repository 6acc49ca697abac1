/* null_impl: what the files of null/ share.
 *
 *   null.c    the driver: memory, addresses, failing calls
 *   engine.c  streams, events, the queue and the drawn order
 *   hazard.c  vector clocks, access records, reports */
#pragma once

#include "base/vec.h"
#include "device/device_impl.h"
#include "device/null/null.h"

#include <stdatomic.h>

#define ACTORS (1 + NULL_STREAMS_MAX) /* actor 0 is the host */
#define HOST 0

/* at[a]: how many steps of actor a happen before this point. */
struct vclock {
    uint64_t at[ACTORS];
};

/* One access of the past that later ones must be ordered after. */
struct access {
    uint64_t lo, hi; /* [lo, hi) in device or host addresses */
    bool write;
    unsigned actor;
    uint64_t epoch; /* the actor's own step: done for whoever has at[actor] >= epoch */
    uint64_t op;    /* number and words for reports */
    const char *what;
};

struct interval {
    uint64_t lo, hi;
};

/* Bytes whose users are watched: one device allocation, or all host memory. */
struct shadow {
    struct vec access; /* struct access */
    struct vec dead;   /* struct interval, sorted, disjoint: handed back to the pool */
    struct vec blank;  /* the same: handed out, and no write was queued or made since */
};

struct block { /* one allocation of the driver */
    uint64_t addr;
    size_t n;
    char *host;       /* its bytes */
    size_t discarded; /* how many of them the device has back */
    bool pooled; /* a pool marks its ranges, and no mark was lost: what is not dead is handed out */
    struct shadow shadow;
};

struct op;
struct mark; /* engine.c */

struct null_event {
    struct dev_event base;
    struct mark *mark; /* NULL: never recorded */
};

struct null_stream {
    struct dev_stream base;
    unsigned actor;
    uint64_t serial; /* names it in reports, never reused */
    struct op *head, **tail;
    uint64_t now; /* virtual ns, when its last operation that ran was done */
};

struct world { /* the library: what all null devices of a set share */
    const struct log *log;
    struct null_config cfg;
    uint64_t rng;
    struct null_stream *stream[ACTORS]; /* by actor; [HOST] stays empty */
    struct vclock clock[ACTORS];
    uint64_t ops, streams; /* numbers given so far */
    size_t queued;
    uint64_t now; /* the host's, virtual ns */
    struct shadow host;
    struct vec pins; /* struct interval, each one of host_alloc, in the order they came */
    uint64_t hazards[NULL_HAZARD_COUNT];
    char last[512];
};

struct null_dev {
    struct phys base;
    struct world *world;
    uint64_t total;
    _Atomic uint64_t used; /* written by the owner, read by info on any thread */
    uint64_t first_addr, next_addr;
    struct vec blocks;                       /* struct block *, ascending addr */
    size_t host_blocks;                      /* live ones */
    _Atomic uint64_t calls[NULL_CALL_COUNT]; /* atomic: info counts on any thread */
    _Atomic uint64_t fail_at[NULL_CALL_COUNT];
};

static inline struct null_dev *null_of(struct phys *p)
{
    return (struct null_dev *)p;
}

/* null.c */
/* Counts the call; true when it is the one that fails. */
bool null_call_fails(struct null_dev *d, enum null_call call, berth_err *err);
struct block *null_block_at(struct null_dev *d, uint64_t addr); /* the one that contains addr */
/* Is some of [lo, hi) in one piece of pinned memory, and some outside of it? */
bool null_leaves_pin(const struct world *w, uint64_t lo, uint64_t hi);

/* hazard.c */
struct actor_op { /* who is acting now, for records and reports */
    struct world *world;
    unsigned actor;
    uint64_t epoch, op;
    const char *what;
    const struct vclock *clock; /* what happens before it */
    bool found;                 /* out: at least one hazard; the world has the text */
};

void vclock_join(struct vclock *to, const struct vclock *from);
void shadow_init(struct shadow *s);
void shadow_release(struct shadow *s);
/* Room for the records of one operation, so that shadow_access() cannot fail. */
WARN_UNUSED bool shadow_reserve(struct shadow *s);
/* Reports what is not ordered before this access of [lo, hi), without recording it. */
void shadow_check(struct shadow *s, struct actor_op *by, uint64_t lo, uint64_t hi, unsigned how);
/* Records the access for those to come. pre: shadow_reserve(). */
void shadow_access(struct shadow *s, const struct actor_op *by, uint64_t lo, uint64_t hi,
                   unsigned how);
/* The host gives [lo, hi) up: everything on it must be ordered before. Records there are
 * dropped. */
void shadow_free(struct shadow *s, struct actor_op *by, uint64_t lo, uint64_t hi);
/* Further use is a hazard; handed out again, blank: with nothing in it that may be read. False: no
 * memory to remember it. */
bool shadow_kill(struct shadow *s, uint64_t lo, uint64_t hi);
bool shadow_revive(struct shadow *s, uint64_t lo, uint64_t hi, bool blank);
uint64_t shadow_live(const struct shadow *s, uint64_t lo,
                     uint64_t hi); /* bytes not dead; all are inside */
void hazard_report(struct world *w, enum null_hazard kind, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The host's next step, as an actor. Only queued operations are numbered. */
struct actor_op host_op(struct world *w);

/* engine.c */
bool sim_step(struct world *w);
void sim_run(struct world *w);
berth_status null_stream_open(struct dev_stream *s, berth_err *err);
void null_stream_close(struct dev_stream *s);
berth_status null_stream_sync(struct dev_stream *s, berth_err *err);
berth_status null_stream_wait(struct dev_stream *s, struct dev_event *e, berth_err *err);
berth_status null_event_open(struct dev_event *e, berth_err *err);
void null_event_close(struct dev_event *e);
berth_status null_event_record(struct dev_event *e, struct dev_stream *s, berth_err *err);
berth_status null_event_query(struct dev_event *e, bool *done, berth_err *err);
berth_status null_event_sync(struct dev_event *e, berth_err *err);
berth_status null_event_elapsed(struct dev_event *from, struct dev_event *to, bool *done,
                                int64_t *ns, berth_err *err);
berth_status null_copy_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                           berth_err *err);
berth_status null_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err);
berth_status null_copy_d2d(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                           berth_err *err);
berth_status null_copy_peer(struct dev_stream *s, struct phys *dst_phys, uint64_t dst,
                            struct phys *src_phys, uint64_t src, size_t n, berth_err *err);
berth_status null_launch(struct dev_stream *s, dev_fn *fn, void *user,
                         const struct dev_access *access, size_t n, berth_err *err);
