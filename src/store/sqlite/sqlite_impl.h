/* sqlite_impl: what the files of store/sqlite/ share. SQLite stops here.
 *
 * Disk       One database, WAL: tables job (pending and running, with attempts), history, meta
 *            (counters, paused). Beside it `<path>.lock`, locked while the store is open, so that
 *            leases never run out: a job's process is this one, or has ended. `<path>.reserve` is
 *            room.c's, -wal and -shm are SQLite's.
 * Durable    "Written" is in the log: it survives kill -9. "On disk" is synced too: it survives
 *            power loss. New jobs are on disk when add() returns. All other changes are written
 *            when their call returns, and on disk some 10 ms later (tend()): a worker that waited
 *            for two syncs a job could run no more jobs than half the syncs of the disk. So power
 *            loss can undo what happened just now, except for new jobs: a job that had ended runs
 *            again.
 * Full disk  Each change has a second try, after the log was moved into the file, and small ones a
 *            third with the room of the reserve: so jobs can always be taken and deleted, and
 *            entries cleared, which then gives back what room it can before it returns.
 *
 * Three connections to one file: `write` for every change, `read` for the queue and the history,
 * and the store's thread's own for checkpoints, so that moving the log into the file stops nobody.
 *
 * Locks      db     the write connection; held over a transaction, and over a sync at two moments:
 *                   the end of a checkpoint, and the one that a failed write tries to make room
 *                   with. A change may wait for the disk, so the server's loop makes none
 *            read   the read connection; held over one entry or one list of jobs, and on a full
 *                   disk while the log is moved, which a reader would keep from beginning anew
 *            lock   counts and marks; a leaf, never held over a call into SQLite
 *            Order: db, read, lock.
 * Files      sqlite.c opening and recovery; ops.c the slots of backend.h; tx.c transactions and
 *            what is written in them; tend.c syncs, checkpoints and giving room back; db.c SQLite
 *            with our errors; room.c room on the disk. */
#pragma once

#include "base/clock.h"
#include "base/oomkill.h"
#include "store/backend.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#define SQLITE_LOG_PAGES 1000 /* of 4 KiB in the log, before it is moved into the file */
#define SQLITE_PAGE 4096

/* ---- db.c: SQLite with our errors ---- */

enum db_stmt {
#define STATEMENT(name, text) DB_##name,
#include "store/sqlite/statements.def"
#undef STATEMENT
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
/* A statement to step, made on first use; NULL: err. db_done() when finished with it. kinds: of its
 * parameters, a letter each: n int64_t, d double, t const char *, which stays until then. */
sqlite3_stmt *db_get(struct db *d, enum db_stmt which, berth_err *err, const char *kinds, ...);
void db_done(sqlite3_stmt *st);
/* *row: whether there is one. After an error the statement is reset. */
berth_status db_step(struct db *d, sqlite3_stmt *st, bool *row, berth_err *err);
/* All of a statement whose rows do not matter. */
berth_status db_do(struct db *d, enum db_stmt which, berth_err *err, const char *kinds, ...);
berth_status db_fail(const struct db *d, int rc, berth_err *err);
bool db_locked(const berth_err *err); /* of db_fail(): by another program; no room would help */
bool db_see_job(sqlite3_stmt *st, struct store_job *j); /* columns 0 to 10, borrowed; false: no
                                                         * memory */
/* The first columns of the first row of a statement with at most one parameter, a text or (NULL) a
 * number; *found (may be NULL): there is one, otherwise they are 0. */
berth_status db_find(struct db *d, enum db_stmt which, const char *text, int64_t n, int64_t *out,
                     int columns, bool *found, berth_err *err);

/* ---- the backend ---- */

struct sqlite {
    struct store_backend base;
    char *path;
    bool in_memory, ready; /* ready: recovery is over */
    size_t max_history;
    uint64_t max_file;
    const struct log *log;
    const char *root;            /* borrowed */
    int lock_fd, wal_fd;         /* -1: none */
    int (*_Atomic sync)(int fd); /* fdatasync, or a test's */
    store_disk_fn *disk;
    int reserve_fd; /* -1: none */

    pthread_mutex_t db;
    struct db write;
    struct oomkill oom;             /* as the database has it */
    uint64_t oom_due;               /* CLOCK_MONOTONIC: from then on it is read again */
    uint64_t attempt;               /* the last that was given */
    uint64_t attempt_most;          /* the last that the database knows to be in use */
    uint64_t reserve, reserve_most; /* bytes it has, and should have */
    atomic_bool reserve_short;      /* changed under db: it has less */
    int wal_pages;                  /* since the last checkpoint */
    int log_pages;                  /* from which on there is one */
    struct sqlite_delta {           /* what the transaction under way changes in the counts */
        int64_t pending, running, history, bytes;
    } delta;
    pthread_mutex_t read_lock;
    struct db read;
    struct db ckpt; /* the store's thread */
    pthread_mutex_t moving; /* the log is being moved; a leaf, taken after db and read_lock */

    pthread_mutex_t lock; /* all below */
    struct store_counts counts;
    uint64_t counter;
    uint64_t written, synced; /* transactions; the difference waits for a sync */
    uint64_t sync_due;        /* CLOCK_MONOTONIC */
    uint64_t refill_due;      /* of the reserve */
    bool checkpoint;          /* the log is long */
    bool shrink;              /* something was deleted: the file may be smaller */
};

/* tx.c: one transaction. fn writes through s->write; it may be called several times. */
typedef berth_status tx_fn(struct sqlite *s, void *arg, berth_err *err);
berth_status tx_do(struct sqlite *s, tx_fn *fn, void *arg, berth_err *err);
/* The same under db. grows: it adds texts, so it asks room_for() and gets nothing of the
 * reserve. */
berth_status tx_do_held(struct sqlite *s, tx_fn *fn, void *arg, bool grows, berth_err *err);
/* What a change needs to know of a job. All zeros: there is no such job. */
struct job_state {
    int64_t attempt, attempts, bytes; /* attempt 0: it waits */
};
berth_status job_state_get(struct db *d, uint64_t seq, struct job_state *out, berth_err *err);
berth_status tx_job_add(struct sqlite *s, const struct store_job *j, berth_err *err);
berth_status tx_job_set(struct sqlite *s, uint64_t seq, unsigned attempts, uint64_t attempt,
                        berth_err *err);
/* x: its state, NULL: to be read. */
berth_status tx_job_drop(struct sqlite *s, uint64_t seq, const struct job_state *x, berth_err *err);
berth_status tx_entry(struct sqlite *s, uint64_t seq, const struct store_result *r, berth_err *err);
berth_status tx_trim(struct sqlite *s, berth_err *err); /* entries beyond the bounds */
berth_status tx_meta(struct sqlite *s, const char *key, int64_t value, berth_err *err);
/* Stores the kernel's counts so far, where the database lacks them: for the recovery. */
berth_status tx_oom_mark(struct sqlite *s, const struct oomkill *x, berth_err *err);

/* ops.c; the rest of it is the table's */
/* sqlite.c */
berth_status sqlite_open(const struct store_config *cfg, struct store_backend **out,
                         berth_err *err);
void sqlite_close(struct store_backend *b);

/* tend.c */
berth_status sync_log(struct sqlite *s, berth_err *err); /* all that was written is on disk */
uint64_t sqlite_tend(struct store_backend *b, bool closing);

/* room.c; except for the last one under db, or before anybody else is here */
void room_open(struct sqlite *s); /* without it: no reserve, which the log says */
void room_close(struct sqlite *s);
bool room_of_disk(const char *path, uint64_t *left, uint64_t *total); /* the system's */
bool room_low(struct sqlite *s); /* little more than the reserve is left */
/* May so many bytes of texts be added, and the log still be moved? BERTH_EIO: the disk is full. */
berth_status room_for(struct sqlite *s, uint64_t bytes, berth_err *err);
uint64_t room_release(struct sqlite *s);            /* the bytes it had */
void room_retake(struct sqlite *s, uint64_t bytes); /* or what is left */
void room_refill(struct sqlite *s);                 /* as far as there is enough beside it */
/* Into the file, so that it begins anew. wait: for readers, which would prevent that. */
void room_move_log(struct sqlite *s, bool wait);
/* A change that deletes. Where there is little room it gives back what it can before it returns,
 * otherwise soon after. */
berth_status tx_do_making_room(struct sqlite *s, tx_fn *fn, void *arg, berth_err *err);
