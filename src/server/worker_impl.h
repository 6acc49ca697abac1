/* worker_impl: what worker*.c, state.c and metrics.c share. */
#pragma once

#include "base/vec.h"
#include "berth/ctx.h"
#include "server/events.h"
#include "server/server_impl.h"

#include <pthread.h>

#define WORKER_COLLECT_NS (UINT64_C(10) * 1000000000) /* between collections that are owed */
#define WORKER_TELL_NS (UINT64_C(200) * 1000000)      /* between berth.residency, and of a load */

enum worker_count { /* for /metrics */
                    COUNT_SUCCESS,
                    COUNT_ERROR,
                    COUNT_INTERRUPTED,
                    COUNT_PARKED,
                    COUNT_NODES_EXECUTED,
                    COUNT_NODES_CACHED,
                    COUNT_DROPPED, /* messages lost for want of memory */
                    COUNT_COUNT
};

/* Something for the worker to do between prompts, or between steps. */
struct request {          /* owner: whoever has it: the queue, the worker, then the loop */
    struct res_request q; /* first */
    struct post post;
    struct server *server;
    enum { REQUEST_FREE, REQUEST_CHANGE, REQUEST_LOOK } kind;
    struct worker_free f;
    struct worker_change c;
    worker_done_fn *done; /* NULL: nobody waits */
    void *user;
    berth_status status;
    berth_err err;
    struct str text;
};

struct model_text { /* one published model */
    uint64_t id;
    struct str text;   /* without its blocks and the last brace */
    struct str blocks; /* the array of them */
    size_t blocks_n;
};

#define RECEIPTS_MAX 32
struct receipt_text {
    uint64_t time; /* ms since 1970, when it was written */
    struct str text;
};

struct worker {
    struct server *server;
    const struct clock *clock; /* constant */
    struct ctx_parts parts;    /* constant; registry and devices are the worker's */
    pthread_t thread;
    bool started;       /* server thread */
    atomic_bool cancel; /* the executor looks at it; set under the lock */
    atomic_uint_least64_t count[COUNT_COUNT];

    pthread_mutex_t lock; /* a leaf, for the fields from here ... */
    pthread_cond_t cond;  /* it ended, a prompt ended, or there is something to do */
    bool stopping, park, ended;
    const struct store_job *job; /* running; NULL: none */
    char *early; /* prompt_id that was interrupted before its run began; "": any; NULL: none */
    char node[GRAPH_ID_MAX + 1], display_node[GRAPH_ID_MAX + 1]; /* executing; "": none */
    double value, max;                         /* how far it is; max 0: it has not said */
    struct vec models;                         /* struct model_text */
    struct receipt_text receipt[RECEIPTS_MAX]; /* number i at i % RECEIPTS_MAX */
    size_t receipts;                           /* so far */
    struct res_metrics metrics;
    struct executor_info cache;
    struct plan_devices plan_devices; /* ... to here */

    /* the worker's own */
    struct events events;     /* of the running prompt */
    bool freed;               /* a free of the prompt's own ran, and was not published */
    unsigned patience_ms;     /* what it may still wait for its client to read: hub_wait() */
    uint64_t signature;       /* of what was published */
    uint64_t published, told; /* clock_mono_ns */
    const char *untold;       /* reason of a berth.residency that waits; NULL: none */
    uint64_t receipt_last;    /* serial of the latest free; 0: none */
    bool told_taesd;          /* that previews of this kind are not there */
    bool owed;                /* a collection */
    uint64_t collected;       /* clock_mono_ns of the last one */
    bool complained;          /* about the store; once per trouble */
    uint64_t wakes;           /* of store_take() */
};

static inline uint64_t worker_now(const struct worker *w)
{
    return clock_mono_ns(w->clock);
}

static inline void worker_add(struct worker *w, enum worker_count c, uint64_t n)
{
    atomic_fetch_add_explicit(&w->count[c], n, memory_order_relaxed);
}

/* worker_job.c: a job from its texts to its history entry. Takes nothing; job outlives the call. */
void worker_run_job(struct worker *w, const struct store_job *job);
void worker_on_event(void *user, const struct exec_event *x); /* worker.c; user: the worker */

/* worker_request.c */
void request_free(struct request *r);      /* NULL is fine */
void worker_do_requests(struct worker *w); /* between prompts: all that wait */

/* state.c */
/* Publishes models if they changed, or always, and sends berth.residency now or within
 * WORKER_TELL_NS. */
void state_publish(struct worker *w, const char *reason, bool always);
void state_tick(struct worker *w); /* the above, now and then during loads and steps */
/* Sends a berth.residency that was held back, once it is due. *due: when; UINT64_MAX: none. */
void state_tell(struct worker *w, uint64_t *due);
void state_release(struct worker *w);
void receipts_add(struct worker *w, const struct res_receipt *x); /* serial 0: does nothing */
