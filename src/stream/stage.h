/* stage: sends bytes to a device through a few pinned buffers. Everything that is not pinned
 * already goes this way: pageable blocks of a pass (staged.c), weights from the file and what
 * adapters make of them (residency/).
 *
 * Flow     stage_open(). The executor takes a free buffer (stage_take()) and posts it with the
 *          number of pieces it will hold (stage_post()). Threads fill pieces, the oldest buffer's
 *          first. stage_pump() sends full buffers in the order they were posted; each is free again
 *          when the copies that read it are done. stage_drain() until all are sent; stage_close().
 * Buffers  Number k of all that were posted uses buffer k % bufs; sent <= posted <= sent + bufs.
 * Threads  The stage starts its own and joins them in stage_close(); they call fill() and no
 *          device. All else is the executor's. It fills too while it waits, but only pieces of the
 *          buffer that goes next: so a stage without threads works as well. One lock, a leaf, for
 *          the hand-over; whoever posts declares the accesses (dev_host_access). */
#pragma once

#include "device/device.h"

#include <limits.h>
#include <pthread.h>

#define STAGE_BUFS_MAX 64
#define STAGE_THREADS_MAX 64
#define STAGE_NONE UINT_MAX

struct stage_ops {
    /* Fills piece i of the buffer. Any thread. */
    void (*fill)(void *user, unsigned buf, size_t piece);
    /* The buffer is full: queues the copies that read it, then stage_mark(); without that nothing
     * reads it. Executor. */
    berth_status (*send)(void *user, unsigned buf, berth_err *err);
};

struct stage_args {
    struct device *dev;      /* whose streams the copies are queued on */
    struct dev_owner *owner; /* PINNED line that pays */
    size_t bytes;            /* of a buffer, > 0 */
    unsigned bufs, threads;  /* bufs > 0 */
    const struct stage_ops *ops;
    void *user;
};

struct stage { /* zeroed: not open. Owner: executor, except under lock */
    struct stage_args args;
    struct dev_host mem;
    struct dev_event *copied[STAGE_BUFS_MAX]; /* the copies that read the buffer are done */
    bool copying[STAGE_BUFS_MAX];             /* copied was recorded and not seen complete */
    pthread_t thread[STAGE_THREADS_MAX];
    unsigned threads;
    bool made; /* lock and conditions are */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    /* under lock; these two are written by the executor only, which may read them without */
    uint64_t posted, sent;
    struct {
        size_t pieces, next, left; /* in all, first that nobody took, not filled yet */
    } buf[STAGE_BUFS_MAX];
    bool stop;
};

/* stage_close() after an error too. */
berth_status stage_open(struct stage *g, const struct stage_args *args, berth_err *err);
void stage_close(struct stage *g); /* pre: the copies that read it are done. Zeroed is fine */

static inline char *stage_at(const struct stage *g, unsigned buf)
{
    return (char *)g->mem.ptr + buf * g->args.bytes;
}
/* The buffer to post next. wait: for the copies that read it. STAGE_NONE: it is not free. */
berth_status stage_take(struct stage *g, bool wait, unsigned *buf, berth_err *err);
/* Hands the buffer that stage_take() gave to the threads. */
void stage_post(struct stage *g, size_t pieces);
/* For send(): the copies of the buffer were queued on this stream. */
berth_status stage_mark(struct stage *g, unsigned buf, struct dev_stream *on, berth_err *err);
/* Sends what is full. Does not wait. */
berth_status stage_pump(struct stage *g, berth_err *err);
/* Fills, or waits for, the buffer that goes next; at once when none is posted. */
void stage_wait(struct stage *g);
berth_status stage_drain(struct stage *g, berth_err *err);
/* Forgets what is posted. pre: the copies that read it are done. */
void stage_reset(struct stage *g);
