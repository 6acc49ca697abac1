/* Work that no call waits for, on the store's thread: syncs what was written, moves the log into
 * the file now and then, and returns the room of deleted rows to the disk. */
#include "store/sqlite/sqlite_impl.h"

#include <errno.h>
#include <unistd.h>

enum { SPARE_PAGES = 1024 }; /* that a file keeps for what comes next */
enum { REFILL_NS = 1000000000 };

berth_status sync_log(struct sqlite *s, berth_err *err)
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

/* Most of it while others go on writing; the rest while they wait, a few pages, so that the log can
 * begin anew and does not grow for ever under load. */
static void checkpoint(struct sqlite *s)
{
    pthread_mutex_lock(&s->moving);
    int rc = sqlite3_wal_checkpoint_v2(s->ckpt.h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    pthread_mutex_unlock(&s->moving);
    pthread_mutex_lock(&s->db);
    if (!rc)
        rc = sqlite3_wal_checkpoint_v2(s->ckpt.h, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    s->wal_pages = 0;
    pthread_mutex_unlock(&s->db);
    if (rc && rc != SQLITE_BUSY && rc != SQLITE_LOCKED)
        log_warn(s->log, "store.checkpoint", "why=\"%s\"", sqlite3_errmsg(s->ckpt.h));
}

/* A slice of what is not used goes, so that others wait for no more than that, and the log is no
 * longer than usual. *more: there is. True: something went. A file of a program that did not know
 * of this keeps its size. */
static bool shrink(struct sqlite *s, bool *more)
{
    int64_t before = 0, after = 0;
    berth_err err;
    pthread_mutex_lock(&s->db);
    int64_t spare = room_low(s) ? 0 : SPARE_PAGES;
    bool ok = !db_find(&s->write, DB_UNUSED, NULL, 0, &before, 1, NULL, &err);
    if (ok && before > spare)
        ok = !db_do(&s->write, DB_SHRINK, &err, "") &&
             !db_find(&s->write, DB_UNUSED, NULL, 0, &after, 1, NULL, &err);
    else
        after = before;
    pthread_mutex_unlock(&s->db);
    if (!ok)
        log_warn(s->log, "store.shrink", "why=\"%s\"", err.msg);
    bool went = ok && after < before;
    *more = went && after > spare;
    return went;
}

uint64_t sqlite_tend(struct store_backend *b, bool closing)
{
    struct sqlite *s = (struct sqlite *)b;
    uint64_t now = clock_mono_ns(clock_system()), due = UINT64_MAX;
    berth_err err;
    pthread_mutex_lock(&s->lock);
    bool sync = s->written != s->synced && (closing || now >= s->sync_due);
    bool move = s->checkpoint && !s->in_memory, smaller = s->shrink && !s->in_memory;
    bool full = atomic_load(&s->reserve_short) && now >= s->refill_due;
    s->checkpoint = s->shrink = false;
    if (full)
        s->refill_due = now + REFILL_NS;
    pthread_mutex_unlock(&s->lock);
    if (sync && sync_log(s, &err))
        log_error(s->log, "store.sync", "why=\"%s\"", err.msg);
    if (move)
        checkpoint(s);
    if (full) {
        pthread_mutex_lock(&s->db);
        room_refill(s);
        pthread_mutex_unlock(&s->db);
    }
    bool more = false, went = smaller && shrink(s, &more);
    pthread_mutex_lock(&s->lock);
    s->checkpoint |= went; /* only then the file is smaller */
    s->shrink |= more;
    if (s->checkpoint || s->shrink)
        due = 0;
    else if (s->written != s->synced)
        due = s->sync_due;
    else if (atomic_load(&s->reserve_short))
        due = s->refill_due;
    pthread_mutex_unlock(&s->lock);
    return due;
}
