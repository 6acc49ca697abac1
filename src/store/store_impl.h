/* store_impl: what the files of store/ share.
 *
 * Three connections to one file: `write` for every change, `read` for the history, and the writer
 * thread's own for checkpoints, so that moving the log into the file stops nobody.
 *
 * Locks      db     the write connection; held over a transaction, and over a sync at two moments:
 *                   the end of a checkpoint, and the one that a failed write tries to make room
 *                   with. Who changes something may wait for the disk: the loop must not
 *            read   the read connection; held over one row, and on a full disk while the log is moved,
 *                   which a reader would keep from beginning anew
 *            lock   everything in memory; a leaf, never held over a call into SQLite
 *            Order: db, read, lock. */
#ifndef STORE_STORE_IMPL_H
#define STORE_STORE_IMPL_H

#include "base/clock.h"
#include "base/oomkill.h"
#include "store/store.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#define STORE_LOG_PAGES 1000 /* of 4 KiB in the log, before it is moved into the file */

/* ---- db.c: SQLite with our errors ---- */

enum db_stmt {
    DB_BEGIN,
    DB_COMMIT,
    DB_ROLLBACK,
    DB_META_GET,
    DB_META_SET,
    DB_JOBS,
    DB_JOB_ADD,
    DB_JOB_SET,
    DB_JOB_MOVE,
    DB_JOB_DROP,
    DB_ENTRY_FIND,
    DB_ENTRY_ADD,
    DB_ENTRY_SET,
    DB_ENTRY_DROP,
    DB_ENTRY_TRIM,
    DB_ENTRY_CLEAR,
    DB_ENTRY_COUNT,
    DB_ENTRY_NEXT,  /* at or behind a place */
    DB_ENTRY_BRIEF, /* the same, of store_each_brief() */
    DB_ENTRY_SKIP,  /* place of the n-th oldest */
    DB_ENTRY_LAST,  /* place of the n-th newest */
    DB_USED,        /* pages that hold something */
    DB_UNUSED,      /* pages that do not */
    DB_SHRINK,      /* gives some of those back */
    DB_SHRINK_LITTLE,
    DB_STMTS
};

struct db { /* zeroed: closed */
    sqlite3 *h;
    const char *path; /* borrowed */
    sqlite3_stmt *st[DB_STMTS];
};

berth_status db_open(const char *path, int cache_kib, struct db *out, berth_err *err);
void db_close(struct db *d); /* zeroed is fine */
berth_status db_exec(struct db *d, const char *sql, berth_err *err);
/* A statement to bind and step, made on first use; NULL: err. db_done() when finished with it. */
sqlite3_stmt *db_get(struct db *d, enum db_stmt which, berth_err *err);
void db_done(sqlite3_stmt *st);
/* *row: whether there is one. After an error the statement is reset. */
berth_status db_step(struct db *d, sqlite3_stmt *st, bool *row, berth_err *err);
/* For statements without rows; resets. */
berth_status db_run(struct db *d, sqlite3_stmt *st, berth_err *err);
berth_status db_fail(const struct db *d, int rc, berth_err *err);
bool db_locked(const berth_err *err); /* of db_fail(): by another program; no room would help */
bool db_read_job(sqlite3_stmt *st, struct store_job *j); /* columns 0 to 9; false: no memory */
bool db_read_text(sqlite3_stmt *st, int column, char **out);
berth_status db_number(struct db *d, const char *sql, int64_t *out, berth_err *err);
/* The first column of a statement without parameters; 0: no row. */
berth_status db_count(struct db *d, enum db_stmt which, int64_t *out, berth_err *err);

/* ---- memory ---- */

/* Pending, running, or on its way to disk. Its texts never change, but for the number, which
 * move.c changes under db and lock; so who has a reference reads the others without either. */
struct job {
    struct store_job j;
    atomic_uint refs; /* the queue's, and those of who looks at it: view.c */
    size_t bytes;     /* of its texts */
    struct job *next;
    store_done_fn *done; /* until it was called */
    void *user;
    berth_status st; /* of the batch */
};

struct queue {       /* sorted by (order, seq) */
    struct job **at; /* n of them from head on */
    size_t head, n, cap;
};

struct entry { /* owned */
    int64_t place;
    struct store_job job;
    char *outputs, *status, *meta;
};

/* A job that ended while the disk was full: its entry waits here, its row is still in the database.
 * */
struct debt {
    struct entry e;
    struct job *owner; /* of the texts of e.job; NULL: they are its own */
    size_t bytes;      /* of its texts */
    bool known; /* there is an older entry of this id, which this one overwrites in its place */
    struct debt *next;
};

struct store {
    char *path;
    bool in_memory;
    size_t max_pending, max_history, max_bytes;
    uint64_t max_file;
    const struct log *log;
    const struct clock *clock;
    const char *root;    /* borrowed */
    struct oomkill oom;  /* as the database has it; recovery's, then store_take()'s thread's */
    int lock_fd, wal_fd; /* -1: none */
    int (*_Atomic sync)(int fd); /* fdatasync, or a test's */
    store_disk_fn *disk;
    int reserve_fd; /* -1: none */

    pthread_mutex_t db;
    struct db write;
    uint64_t reserve, reserve_most; /* bytes it has, and shall have */
    atomic_bool reserve_short;      /* changed under db: it has less */
    int wal_pages;                  /* since the last checkpoint */
    int log_pages;                  /* from which on there is one */
    atomic_size_t history_n;        /* changed under db */
    int64_t tx_entries;             /* what the transaction under way adds to it */
    pthread_mutex_t read_lock;
    struct db read;
    struct db ckpt; /* writer thread */

    pthread_mutex_t lock; /* all below */
    pthread_cond_t work;  /* for the writer */
    pthread_cond_t ready; /* for store_take() */
    struct queue pending;
    size_t bytes; /* of texts, pending, running and arriving */
    struct job *running;
    struct job *first, **last; /* arriving: added, not yet on disk */
    size_t arriving;           /* those, and those in the batch under way */
    struct debt *debts;
    uint64_t counter, seq;
    uint64_t told_seq;        /* whose callbacks have returned: may be taken */
    uint64_t written, synced; /* transactions; the difference waits for a sync */
    uint64_t sync_due;        /* CLOCK_MONOTONIC */
    bool paused, wake, stop, checkpoint;
    bool shrink;  /* entries were deleted: the file may be smaller */
    bool started; /* the writer */
    pthread_t writer;
};

/* queue.c */
bool queue_reserve(struct queue *q, size_t total);
void queue_insert(struct queue *q, struct job *j); /* there is room */
struct job *queue_at(const struct queue *q, size_t i);
struct job *queue_remove(struct queue *q, size_t i);
struct job *job_new(void);                                             /* NULL: no memory */
void job_unref(struct job *j);                                         /* NULL is fine */
bool job_before(const struct store_job *a, const struct store_job *b); /* in the queue */
size_t job_bytes(const struct store_job *j);
void job_json(const struct store_job *j, struct str *out); /* the array of five */
bool job_copy(const struct store_job *from, struct store_job *to);

/* store.c: one transaction. fn writes through s->write. Debts are paid in it first; when that fails
 * fn has a try without them, so it may be called several times. covers: debts whose entry this change
 * deletes or replaces; they are never written, and are gone with it. */
typedef berth_status tx_fn(struct store *s, void *arg, berth_err *err);
typedef bool tx_covers_fn(const void *arg, const struct debt *d);
berth_status tx_do(struct store *s, tx_fn *fn, void *arg, berth_err *err);
/* The same, for who holds db already, because memory must follow before anybody else writes. */
berth_status tx_do_held(struct store *s, tx_fn *fn, tx_covers_fn *covers, void *arg,
                        berth_err *err);
/* One that adds so many bytes of texts: it has no part of the reserve (room.c). */
berth_status tx_grow(struct store *s, tx_fn *fn, tx_covers_fn *covers, void *arg, uint64_t bytes,
                     berth_err *err);
berth_status tx_job_add(struct store *s, const struct store_job *j, berth_err *err);
berth_status tx_job_set(struct store *s, uint64_t seq, unsigned attempts, bool running,
                        berth_err *err);
berth_status tx_job_move(struct store *s, uint64_t seq, double order, const char *number,
                         berth_err *err);
berth_status tx_job_drop(struct store *s, uint64_t seq, berth_err *err);
berth_status tx_entry(struct store *s, const struct store_job *j, const struct store_result *r,
                      berth_err *err);
/* What the kernel has counted so far, where the database does not have it yet: for the recovery. */
berth_status tx_oom_mark(struct store *s, const struct oomkill *x, berth_err *err);
berth_status tx_meta(struct store *s, const char *key, int64_t value, berth_err *err);

/* room.c; but for the last one under db, or before anybody else is here */
void room_open(struct store *s); /* without it: no reserve, which the log says */
void room_close(struct store *s);
bool room_of_disk(const char *path, uint64_t *left, uint64_t *total); /* the system's */
bool room_low(struct store *s); /* little more than the reserve is left */
/* May so many bytes of texts be added, and the log still be moved? BERTH_EIO: the disk is full. */
berth_status room_for(struct store *s, uint64_t bytes, berth_err *err);
uint64_t room_release(struct store *s);            /* the bytes it had */
void room_retake(struct store *s, uint64_t bytes); /* or what is left */
void room_refill(struct store *s);                 /* as far as there is enough beside it */
/* Into the file, so that it begins anew. wait: for who reads, and so keeps it from that. */
void room_move_log(struct store *s, bool wait);
/* A change that deletes. Where there is little room it gives back what it can before
 * it returns, else soon after. */
berth_status tx_do_making_room(struct store *s, tx_fn *fn, tx_covers_fn *covers, void *arg,
                               berth_err *err);

/* writer.c */
berth_status writer_start(struct store *s, berth_err *err);
void writer_stop(struct store *s); /* after everything was written */

/* history.c */
void entry_release(struct entry *e);
void debt_free(struct debt *d);
bool history_has(struct store *s, const char *id);

#endif
