/* ctx_impl: what the files of berth/ share.
 *
 * Lock    ctx->lock is held for the whole of every call that touches models or memory: devices and
 *         registry want one thread at a time, and this makes one of many. It checks errors, so that
 *         a callback that calls back gets BERTH_EBUSY instead of waiting for itself. */
#pragma once

#include "base/log.h"
#include "base/tpool.h"
#include "journal/journal.h"
#include "residency/residency.h"

#include <pthread.h>

struct berth_ctx {
    struct log log; /* constant */
    berth_log_fn *log_fn;
    void *log_user;
    berth_json_log json_log;   /* constant; its texts were borrowed */
    struct devset *devices;    /* the set is constant, its devices know their threads */
    struct tpool *pool;        /* used under the lock */
    struct residency *res;     /* under the lock */
    void (*reset)(void *user); /* of the configuration */
    void *reset_user;
    bool has_engine; /* under the lock */
    bool in_prompt;  /* between berth_prompt_begin() and _end(); under the lock */
    pthread_mutex_t lock;
    bool lock_made;
};

struct berth_model { /* a handle */
    berth_ctx *ctx;
    struct res_model *model; /* under the lock */
    atomic_bool cancel;      /* any thread */
    atomic_uint loads;       /* that run or wait for the lock: what a cancel is for */
};

/* BERTH_EBUSY: this thread is inside a call already, in one of its callbacks. */
berth_status ctx_lock(berth_ctx *ctx, berth_err *err);
berth_status ctx_unlock(berth_ctx *ctx, berth_status s); /* returns s */

/* Reads a caller's struct, whose first member is its size: `to` has `known` bytes, of which those
 * the caller does not have stay zero. BERTH_EUNSUPPORTED: it asks for something that came later. */
berth_status ctx_read_struct(const char *name, const void *from, void *to, size_t known,
                             berth_err *err);

/* memory.c: takes *got; out NULL: nobody wants it. What happened has happened: a caller that cannot
 * have its receipt is told, no more. */
berth_status ctx_receipt(struct res_receipt *got, berth_receipt **out, berth_err *err);

/* model.c */
berth_status ctx_check_config(const berth_model_config *cfg, berth_err *err);
/* Under the lock. */
void ctx_model_info(struct res_model *m, berth_model_info *out);
