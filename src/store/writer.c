/* The writer thread: new jobs go to disk in batches; what others wrote is synced soon after; the
 * log is moved into the file now and then; what could not be written is tried again; room that
 * deleted entries leave goes back to the disk. */
#include "store/store_impl.h"

#include <errno.h>
#include <unistd.h>

enum { BATCH_JOBS = 512, BATCH_BYTES = 4 << 20, RETRY_NS = 1000000000 };
enum { SPARE_PAGES = 1024 }; /* that a file keeps for what comes next */

/* ---- a batch ---- */

struct batch {
    struct job *first;
    uint64_t seq, last; /* last: seq of its last job */
};

/* Under the lock: the jobs that arrived first. */
static void cut_batch(struct store *s, struct batch *b)
{
    struct job **end = &s->first;
    size_t bytes = 0;
    for (size_t n = 0; *end && n < BATCH_JOBS && bytes < BATCH_BYTES; n++) {
        bytes += (*end)->bytes;
        b->last = (*end)->j.seq;
        end = &(*end)->next;
    }
    b->first = end == &s->first ? NULL : s->first;
    b->seq = s->seq;
    if (b->first) {
        s->first = *end;
        *end = NULL;
    }
    if (!s->first)
        s->last = &s->first;
}

static berth_status tx_batch(struct store *s, void *arg, berth_err *err)
{
    const struct batch *b = arg;
    for (const struct job *j = b->first; j; j = j->next)
        if (tx_job_add(s, &j->j, err))
            return err->code;
    pthread_mutex_lock(&s->lock);
    uint64_t counter = s->counter; /* of now: a move may have raised it since the batch was cut */
    pthread_mutex_unlock(&s->lock);
    return tx_meta(s, "counter", (int64_t)counter, err) ? err->code
                                                        : tx_meta(s, "seq", (int64_t)b->seq, err);
}

static berth_status tx_undo(struct store *s, void *arg, berth_err *err)
{
    const struct batch *b = arg;
    for (const struct job *j = b->first; j; j = j->next)
        if (!j->st && tx_job_drop(s, j->j.seq, err))
            return err->code;
    return BERTH_OK;
}

static berth_status tx_nothing(struct store *s, void *arg, berth_err *err)
{
    (void)s, (void)arg, (void)err;
    return BERTH_OK;
}

/* All that was written so far is on disk, or *err. */
static berth_status sync_log(struct store *s, berth_err *err)
{
    pthread_mutex_lock(&s->lock);
    uint64_t upto = s->written;
    pthread_mutex_unlock(&s->lock);
    int (*sync)(int fd) = atomic_load(&s->sync);
    int why = s->wal_fd >= 0 && sync(s->wal_fd) ? errno : 0;
    pthread_mutex_lock(&s->lock);
    s->synced = upto; /* also after an error: the next change tries again */
    pthread_mutex_unlock(&s->lock);
    return why ? err_sys(err, BERTH_EIO, why, "syncing '%s-wal'", s->path) : BERTH_OK;
}

/* Callbacks, then the jobs may be taken: what is said about a job comes after "accepted". Jobs that
 * failed are freed. */
static void publish(struct store *s, struct batch *b, const berth_err *err)
{
    struct told {
        store_done_fn *done;
        void *user;
        berth_status st;
    } told[BATCH_JOBS];
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (struct job *j = b->first, *next; j; j = next) {
        next = j->next;
        j->next = NULL;
        told[n++] = (struct told) { j->done, j->user, j->st };
        j->done = NULL;
        s->arriving--;
        if (!j->st) {
            queue_insert(&s->pending, j);
            continue;
        }
        s->bytes -= j->bytes;
        job_unref(j);
    }
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++)
        if (told[i].done)
            told[i].done(told[i].user, told[i].st, err);
    pthread_mutex_lock(&s->lock);
    s->told_seq = b->last;
    pthread_cond_broadcast(&s->ready);
    pthread_mutex_unlock(&s->lock);
}

/* Commits the batch; when that fails each job has a try of its own, as one may be too large for the
 * room that others still find. err is the last failure's. */
static void commit_batch(struct store *s, struct batch *b, berth_err *err)
{
    uint64_t bytes = 0;
    for (const struct job *j = b->first; j; j = j->next)
        bytes += j->bytes;
    if (!tx_grow(s, tx_batch, NULL, b, bytes, err)) {
        for (struct job *j = b->first; j; j = j->next)
            j->st = BERTH_OK;
        return;
    }
    for (struct job *j = b->first; j; j = j->next) {
        struct job *next = j->next;
        struct batch single = { j, b->seq, 0 };
        j->next = NULL;
        j->st =
            b->first == j && !next ? err->code : tx_grow(s, tx_batch, NULL, &single, j->bytes, err);
        j->next = next;
    }
}

static void write_batch(struct store *s, struct batch *b)
{
    berth_err err = { 0 }, other;
    commit_batch(s, b, &err);
    if (sync_log(s, &other)) {
        /* Written, but nobody knows for how long: not accepted, so it must not come back. */
        err = other;
        if (tx_do(s, tx_undo, b, &other))
            log_error(s->log, "store.undo", "why=\"%s\"", other.msg);
        for (struct job *j = b->first; j; j = j->next)
            j->st = j->st ? j->st : err.code;
    }
    publish(s, b, &err);
}

/* ---- the log ---- */

/* Most of it while others go on writing; the rest while they wait, a few pages, so that the log can
 * begin anew and does not grow for ever under load. */
static void checkpoint(struct store *s)
{
    int rc = sqlite3_wal_checkpoint_v2(s->ckpt.h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    pthread_mutex_lock(&s->db);
    if (!rc)
        rc = sqlite3_wal_checkpoint_v2(s->ckpt.h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    s->wal_pages = 0;
    pthread_mutex_unlock(&s->db);
    if (rc && rc != SQLITE_BUSY && rc != SQLITE_LOCKED)
        log_warn(s->log, "store.checkpoint", "why=\"%s\"", sqlite3_errmsg(s->ckpt.h));
}

/* A slice of what is not used goes, so that others wait for no more than that, and the log is no
 * longer than usual. *more: there is. True: something went. A file of a program that did not know of
 * this keeps its size. */
static bool shrink(struct store *s, bool *more)
{
    int64_t before = 0, after = 0;
    berth_err err;
    pthread_mutex_lock(&s->db);
    int64_t spare = room_low(s) ? 0 : SPARE_PAGES;
    sqlite3_stmt *st = db_get(&s->write, DB_SHRINK, &err);
    bool ok = st && !db_count(&s->write, DB_UNUSED, &before, &err);
    if (ok && before > spare)
        ok = !db_run(&s->write, st, &err) && !db_count(&s->write, DB_UNUSED, &after, &err);
    else
        after = before;
    pthread_mutex_unlock(&s->db);
    if (!ok)
        log_warn(s->log, "store.shrink", "why=\"%s\"", err.msg);
    bool went = ok && after < before;
    *more = went && after > spare;
    return went;
}

/* What had no room. Who owes knows already. */
static void try_again(struct store *s)
{
    berth_err ignored;
    pthread_mutex_lock(&s->lock);
    bool owes = s->debts != NULL;
    pthread_mutex_unlock(&s->lock);
    if (owes)
        tx_grow(s, tx_nothing, NULL, NULL, 1, &ignored);
    pthread_mutex_lock(&s->db);
    room_refill(s);
    pthread_mutex_unlock(&s->db);
}

/* ---- the thread ---- */

/* Waits on `work` until that time. False: it has come. */
static bool wait_until(struct store *s, uint64_t ns)
{
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };
    return pthread_cond_timedwait(&s->work, &s->lock, &t) != ETIMEDOUT;
}

/* Under the lock. What others wrote waits a moment for new jobs, whose sync covers it: a sync of
 * its own would only make those wait. False: nothing is left and the store closes. */
static bool wait_for_work(struct store *s, bool *retry)
{
    *retry = false;
    while (!s->first && !s->checkpoint && !s->shrink) {
        if (s->written != s->synced) {
            if (s->stop || !wait_until(s, s->sync_due))
                return true;
        } else if (s->stop) {
            return false;
        } else if (!s->debts && !atomic_load(&s->reserve_short)) {
            pthread_cond_wait(&s->work, &s->lock);
        } else if (!wait_until(s, clock_mono_ns(clock_system()) + RETRY_NS)) {
            *retry = true;
            return true;
        }
    }
    return true;
}

static void *writer_main(void *arg)
{
    struct store *s = arg;
    bool retry;
    berth_err err;
    pthread_mutex_lock(&s->lock);
    while (wait_for_work(s, &retry)) {
        struct batch b = { 0 };
        cut_batch(s, &b);
        bool move = s->checkpoint && !s->in_memory, smaller = s->shrink && !s->in_memory;
        s->checkpoint = s->shrink = false;
        pthread_mutex_unlock(&s->lock);
        if (b.first)
            write_batch(s, &b);
        else if (retry)
            try_again(s);
        else if (sync_log(s, &err))
            log_error(s->log, "store.sync", "why=\"%s\"", err.msg);
        if (move)
            checkpoint(s);
        bool more = false, went = smaller && shrink(s, &more);
        pthread_mutex_lock(&s->lock);
        s->checkpoint |= went; /* only then the file is smaller */
        s->shrink |= more && !s->stop;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

berth_status writer_start(struct store *s, berth_err *err)
{
    int rc = pthread_create(&s->writer, NULL, writer_main, s);
    if (rc)
        return err_sys(err, BERTH_ENOMEM, rc, "a thread that writes '%s'", s->path);
    s->started = true;
    return BERTH_OK;
}

void writer_stop(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->writer, NULL);
}
