/* Room on the disk. Beside the database lies `<path>.reserve`, a file that holds nothing but room.
 *
 * Needs      A change, even one that deletes, goes through the log, and the log can begin anew only
 *            when the database has room for what is in it. So on a full disk nothing would work any
 *            more, clearing least of all. Small changes therefore have the reserve: it goes, the
 *            log is moved, the change is written, and what is left becomes the reserve again.
 * Growing    What adds texts (a prompt, the end of one) never gets at it, and must leave as much
 *            room as moving the log will want: else it is refused as on a full disk.
 * Clearing   Where there is little room it gives back all it can before it returns: pages, log, and
 *            the reserve except for a quarter, so that a picture has room. The rest is made again
 *            when there is room for it and as much beside it.
 *
 * Somebody else may take the room in the moment when the reserve is gone: then it is as without
 * one. */
#include "store/sqlite/sqlite_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    RESERVE_MIN = 1 << 20,
    RESERVE_MAX = 16 << 20,
    RESERVE_SHARE = 4, /* of a small disk, at most one part of so many */
    MARGIN = 64 << 10, /* names, the log's index, rounding */
};

bool room_of_disk(const char *path, uint64_t *left, uint64_t *total)
{
    struct statvfs v;
    if (statvfs(path, &v))
        return false;
    *left = (uint64_t)v.f_bavail * v.f_frsize;
    *total = (uint64_t)v.f_blocks * v.f_frsize;
    return true;
}

static bool free_room(struct sqlite *s, uint64_t *out)
{
    uint64_t total;
    return s->reserve_fd >= 0 && s->disk(s->path, out, &total);
}

bool room_low(struct sqlite *s)
{
    uint64_t left;
    return free_room(s, &left) && left < 2 * s->reserve_most;
}

berth_status room_for(struct sqlite *s, uint64_t bytes, berth_err *err)
{
    uint64_t left, want = (uint64_t)s->wal_pages * SQLITE_PAGE + 2 * bytes + MARGIN;
    if (!bytes || !free_room(s, &left) || left >= want)
        return BERTH_OK;
    return err_set(err, BERTH_EIO,
                   "'%s': the disk is full: %llu bytes are left, and %llu are wanted here", s->path,
                   (unsigned long long)left, (unsigned long long)want);
}

/* ---- the reserve ---- */

static void set_size(struct sqlite *s, uint64_t bytes)
{
    if (s->reserve_fd < 0 || bytes == s->reserve)
        return;
    bool grow = bytes > s->reserve;
    int why = grow ? posix_fallocate(s->reserve_fd, 0, (off_t)bytes)
                   : (ftruncate(s->reserve_fd, (off_t)bytes) ? errno : 0);
    if (!why)
        s->reserve = bytes;
    else if (grow && ftruncate(s->reserve_fd, (off_t)s->reserve)) /* what it got of it */
        log_warn(s->log, "store.reserve", "why=\"%s\"", strerror(errno));
    atomic_store(&s->reserve_short, s->reserve < s->reserve_most);
}

void room_refill(struct sqlite *s)
{
    uint64_t left, least = s->reserve_most / 4, bytes = s->reserve;
    if (s->reserve >= s->reserve_most || !free_room(s, &left))
        return;
    if (left > s->reserve_most) /* others have as much */
        bytes += left - s->reserve_most;
    if (bytes < least)
        bytes = s->reserve + left < least ? s->reserve + left : least;
    bytes = bytes > s->reserve_most ? s->reserve_most : bytes;
    set_size(s, bytes / SQLITE_PAGE * SQLITE_PAGE);
}

uint64_t room_release(struct sqlite *s)
{
    uint64_t had = s->reserve;
    set_size(s, 0);
    return had;
}

void room_retake(struct sqlite *s, uint64_t bytes)
{
    uint64_t left;
    if (bytes && free_room(s, &left))
        set_size(s, (left < bytes ? left : bytes) / SQLITE_PAGE * SQLITE_PAGE);
}

void room_move_log(struct sqlite *s, bool wait)
{
    int pages = 0, moved = 0;
    if (wait)
        pthread_mutex_lock(&s->read_lock);
    pthread_mutex_lock(&s->moving);
    if (!sqlite3_wal_checkpoint_v2(s->write.h, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &moved) &&
        pages == moved)
        s->wal_pages = 0;
    pthread_mutex_unlock(&s->moving);
    if (wait)
        pthread_mutex_unlock(&s->read_lock);
}

/* All pages that hold nothing, and the log, are the disk's again. */
static void give_all_back(struct sqlite *s)
{
    berth_err err;
    int64_t before = INT64_MAX, after = 0;
    while (!db_find(&s->write, DB_UNUSED, NULL, 0, &after, 1, NULL, &err) && after &&
           after < before) {
        before = after;
        if (db_do(&s->write, DB_SHRINK_LITTLE, &err, ""))
            break;
        if (s->wal_pages >= s->log_pages)
            room_move_log(s, true);
    }
    pthread_mutex_lock(&s->read_lock);
    pthread_mutex_lock(&s->moving);
    if (!sqlite3_wal_checkpoint_v2(s->write.h, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL))
        s->wal_pages = 0;
    pthread_mutex_unlock(&s->moving);
    pthread_mutex_unlock(&s->read_lock);
}

berth_status tx_do_making_room(struct sqlite *s, tx_fn *fn, void *arg, berth_err *err)
{
    pthread_mutex_lock(&s->db);
    bool low = !s->in_memory && room_low(s);
    uint64_t had = low ? room_release(s) : 0, least = s->reserve_most / 4;
    berth_status st = tx_do_held(s, fn, arg, false, err);
    if (low && !st)
        give_all_back(s);
    if (low) {
        room_retake(s, st || had < least ? had : least);
        room_refill(s);
    }
    pthread_mutex_unlock(&s->db);
    if (st)
        return st;
    pthread_mutex_lock(&s->lock);
    s->shrink = true;
    pthread_mutex_unlock(&s->lock);
    return BERTH_OK;
}

void room_open(struct sqlite *s)
{
    struct str path = { 0 };
    struct stat st;
    uint64_t left = 0, total = 0;
    str_addf(&path, "%s.reserve", s->path);
    if (!path.bad)
        s->reserve_fd = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->reserve_fd < 0 || fstat(s->reserve_fd, &st) || !S_ISREG(st.st_mode) ||
        !s->disk(s->path, &left, &total)) {
        log_warn(s->log, "store.reserve", "why=\"%s\" path=%s.reserve", strerror(errno), s->path);
        room_close(s);
    } else {
        uint64_t most = total / RESERVE_SHARE;
        most = most < RESERVE_MIN ? RESERVE_MIN : most > RESERVE_MAX ? RESERVE_MAX : most;
        s->reserve_most = most / SQLITE_PAGE * SQLITE_PAGE;
        s->reserve = (uint64_t)st.st_size;
        if ((uint64_t)st.st_blocks * 512 < s->reserve) /* holes have no room */
            set_size(s, 0);
        int pages = (int)(s->reserve_most / 2 / SQLITE_PAGE);
        s->log_pages = pages < SQLITE_LOG_PAGES ? pages : SQLITE_LOG_PAGES;
    }
    str_release(&path);
}

void room_close(struct sqlite *s)
{
    if (s->reserve_fd >= 0)
        close(s->reserve_fd);
    s->reserve_fd = -1;
}
