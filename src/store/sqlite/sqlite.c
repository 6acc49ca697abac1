#include "store/sqlite/sqlite_impl.h"

#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SCHEMA = 1,
    APPLICATION = 0x42525448, /* "BRTH": in the database's header, so that we know our own */
    CACHE_WRITE_KIB = 1024,
    CACHE_READ_KIB = 256,
    CACHE_CKPT_KIB = 64,
};

/* ---- opening ---- */

/* Held until the process ends, however it ends. Never removed: another process may have opened it
 * already, and would then hold the lock of a file that is gone. */
static berth_status take_lock(struct sqlite *s, berth_err *err)
{
    struct str path = { 0 };
    str_addf(&path, "%s.lock", s->path);
    if (path.bad)
        return err_set(err, BERTH_ENOMEM, "the name of a lock file");
    s->lock_fd = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int why = errno;
    char pid[32] = "";
    berth_status st = BERTH_OK;
    if (s->lock_fd < 0) {
        st = err_sys(err, why == ENOENT ? BERTH_ENOTFOUND : BERTH_EIO, why, "'%s'", path.p);
    } else if (flock(s->lock_fd, LOCK_EX | LOCK_NB)) {
        why = errno;
        ssize_t n = read(s->lock_fd, pid, sizeof pid - 1);
        pid[n > 0 ? n : 0] = '\0';
        pid[strspn(pid, "0123456789")] = '\0';
        st = why == EWOULDBLOCK ? err_set(err, BERTH_EBUSY, "'%s' is in use by process %s", s->path,
                                          *pid ? pid : "?")
                                : err_sys(err, BERTH_EIO, why, "locking '%s'", path.p);
    } else {
        int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
        if (!ftruncate(s->lock_fd, 0)) /* for the message above; a full disk does not matter */
            (void)!write(s->lock_fd, pid, (size_t)n);
    }
    str_release(&path);
    return st;
}

/* Prompts are their owner's business: the file is made before SQLite would make it for all to
 * read. */
static berth_status make_file(const char *path, berth_err *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    bool regular = !fstat(fd, &st) && S_ISREG(st.st_mode);
    close(fd);
    return regular ? BERTH_OK : err_set(err, BERTH_EINVAL, "'%s' is not a regular file", path);
}

/* Is it ours, or empty? Nothing is written before this is known. */
static berth_status check_schema(struct sqlite *s, bool *fresh, berth_err *err)
{
    int64_t app, version, things;
    if (db_find(&s->write, DB_APPLICATION, NULL, 0, &app, 1, NULL, err) ||
        db_find(&s->write, DB_VERSION, NULL, 0, &version, 1, NULL, err) ||
        db_find(&s->write, DB_THINGS, NULL, 0, &things, 1, NULL, err))
        return err->code;
    *fresh = !app && !version && !things;
    if (!*fresh && app != APPLICATION)
        return err_set(err, BERTH_EFORMAT, "'%s' is a database, but not one of ours", s->path);
    if (!*fresh && version != SCHEMA)
        return err_set(err, BERTH_EFORMAT,
                       "'%s' has schema %" PRId64 ", this program knows %d; nothing was changed",
                       s->path, version, SCHEMA);
    return BERTH_OK;
}

static berth_status make_schema(struct sqlite *s, berth_err *err)
{
    static const char text[] =
        "BEGIN IMMEDIATE;"
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE job (seq INTEGER PRIMARY KEY, ord REAL NOT NULL, attempts INTEGER NOT NULL,"
        " running INTEGER NOT NULL DEFAULT 0, created_ms INTEGER NOT NULL, id TEXT NOT NULL,"
        " number TEXT NOT NULL, client_id TEXT, prompt TEXT NOT NULL, extra_data TEXT NOT NULL,"
        " wanted TEXT NOT NULL);"
        "CREATE TABLE history (place INTEGER PRIMARY KEY, seq INTEGER NOT NULL, ord REAL NOT NULL,"
        " attempts INTEGER NOT NULL, created_ms INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,"
        " number TEXT NOT NULL, client_id TEXT, prompt TEXT NOT NULL, extra_data TEXT NOT NULL,"
        " wanted TEXT NOT NULL, outputs TEXT NOT NULL, status TEXT NOT NULL, meta TEXT NOT NULL);";
    char end[120];
    snprintf(end, sizeof end, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
             APPLICATION, SCHEMA);
    if (db_exec(&s->write, text, err) || db_exec(&s->write, end, err)) {
        berth_err ignored;
        if (!sqlite3_get_autocommit(s->write.h))
            db_exec(&s->write, "ROLLBACK", &ignored);
        return err->code;
    }
    return BERTH_OK;
}

static int count_pages(void *user, sqlite3 *h, const char *name, int pages)
{
    struct sqlite *s = user;
    (void)h, (void)name;
    s->wal_pages = pages;
    return SQLITE_OK;
}

static berth_status open_database(struct sqlite *s, berth_err *err)
{
    bool fresh;
    if (!s->in_memory && (take_lock(s, err) || make_file(s->path, err)))
        return err->code;
    if (db_open(s->path, CACHE_WRITE_KIB, &s->write, err))
        return err->code;
    /* until we know that it is ours, its log stays as it is too */
    sqlite3_db_config(s->write.h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (check_schema(s, &fresh, err))
        return err->code;
    sqlite3_db_config(s->write.h, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (!s->in_memory)
        room_open(s);
    if (room_low(s)) /* recovery writes too */
        room_release(s);
    char text[160];
    /* auto_vacuum can only be said before there is a table */
    snprintf(text, sizeof text, "%sPRAGMA journal_mode = WAL; PRAGMA journal_size_limit = %d",
             fresh ? "PRAGMA auto_vacuum = INCREMENTAL;" : "", s->log_pages * SQLITE_PAGE);
    if (db_exec(&s->write, text, err))
        return err->code;
    sqlite3_wal_hook(s->write.h, count_pages, s); /* in place of SQLite's own checkpoints */
    return fresh ? make_schema(s, err) : BERTH_OK;
}

/* The other two connections, and a descriptor of the log to sync it with. The log's file stays the
 * same one as long as a connection is open, SQLite keeps no locks on it that a close could lose,
 * and it has synced the folder when recover() made the log. */
static berth_status open_others(struct sqlite *s, berth_err *err)
{
    struct str wal = { 0 };
    if (s->in_memory)
        return BERTH_OK;
    if (db_open(s->path, CACHE_READ_KIB, &s->read, err) ||
        db_open(s->path, CACHE_CKPT_KIB, &s->ckpt, err))
        return err->code;
    str_addf(&wal, "%s-wal", s->path);
    if (wal.bad)
        return err_set(err, BERTH_ENOMEM, "the name of a log");
    s->wal_fd = open(wal.p, O_RDONLY | O_CLOEXEC);
    int why = errno;
    str_release(&wal);
    return s->wal_fd < 0 ? err_sys(err, BERTH_EIO, why, "'%s-wal'", s->path) : BERTH_OK;
}

/* ---- recovery ---- */

static berth_status read_counters(struct sqlite *s, berth_err *err)
{
    static const char *const keys[] = { "counter",  "seq",         "attempt",   "paused",
                                        "oom_boot", "oom_machine", "oom_group", "oom_in_group" };
    int64_t v[ARRAY_LEN(keys)], row[2], jobs[2], largest;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (db_find(&s->write, DB_META_GET, keys[i], 0, &v[i], 1, NULL, err))
            return err->code;
    s->counter = (uint64_t)v[0];
    s->attempt = s->attempt_most = (uint64_t)v[2];
    s->oom = (struct oomkill) { (uint64_t)v[4], (uint64_t)v[5], (uint64_t)v[6], (uint64_t)v[7] };
    if (db_find(&s->write, DB_ENTRY_COUNT, NULL, 0, &row[0], 1, NULL, err) ||
        db_find(&s->write, DB_JOB_LAST, NULL, 0, &largest, 1, NULL, err))
        return err->code;
    s->counts = (struct store_counts) { .history = (size_t)row[0],
                                        .paused = v[3] != 0,
                                        .last_seq = (uint64_t)(v[1] > largest ? v[1] : largest) };
    for (int running = 0; running < 2; running++) {
        if (db_find(&s->write, DB_JOBS_COUNT, NULL, running, row, 2, NULL, err))
            return err->code;
        jobs[running] = row[0];
        s->counts.bytes += (size_t)row[1];
    }
    s->counts.pending = (size_t)jobs[0];
    s->counts.running = (size_t)jobs[1];
    return BERTH_OK;
}

/* Those that were running when their process ended; to be released. */
static berth_status read_running(struct sqlite *s, struct vec *out, berth_err *err)
{
    bool row;
    sqlite3_stmt *st = db_get(&s->write, DB_JOBS_BRIEF, err, "nn", (int64_t)1, (int64_t)0);
    for (;;) {
        struct store_job seen, *j;
        if (!st || db_step(&s->write, st, &row, err))
            return err->code;
        if (!row)
            break;
        if (!db_see_job(st, &seen) || !(j = vec_add(out)) || !store_job_copy(&seen, j)) {
            db_done(st);
            return err_set(err, BERTH_ENOMEM, "the jobs in '%s'", s->path);
        }
    }
    db_done(st);
    return BERTH_OK;
}

/* Back to its place, or into the history. */
static berth_status recover_job(struct sqlite *s, const struct store_config *cfg,
                                const struct store_job *j, bool oom, berth_err *err)
{
    struct str status = { 0 };
    berth_status st;
    if (store_judge(cfg, j, oom, &status)) {
        st = tx_job_set(s, j->seq, j->attempts, 0, err);
    } else if (status.bad) {
        st = err_set(err, BERTH_ENOMEM, "the status of '%s'", j->id);
    } else {
        struct store_result r = { "{}", str_c(&status), "{}" };
        st = tx_entry(s, j->seq, &r, err);
        st = st ? st : tx_job_drop(s, j->seq, NULL, err);
    }
    str_release(&status);
    return st;
}

static berth_status recover(struct sqlite *s, void *arg, berth_err *err)
{
    struct vec ran = { .elem = sizeof(struct store_job) };
    struct oomkill now;
    if (read_counters(s, err))
        return err->code;
    oomkill_read(s->root, &now);
    bool oom = oomkill_between(&s->oom, &now);
    berth_status st = read_running(s, &ran, err);
    for (size_t i = 0; !st && i < ran.n; i++)
        st = recover_job(s, arg, vec_at(&ran, i), oom, err);
    for (size_t i = 0; i < ran.n; i++)
        store_job_release(vec_at(&ran, i));
    vec_release(&ran);
    st = st ? st : tx_trim(s, err); /* the bound may be a smaller one now */
    /* a write in any case: the log is there now */
    return st ? st : tx_meta(s, "seq", (int64_t)s->counts.last_seq, err);
}

/* They only save time, and files of older programs have none: a full disk must not keep the queue
 * from being opened. */
static void make_indexes(struct sqlite *s)
{
    static const char *const text[] = { "CREATE INDEX IF NOT EXISTS job_ord ON job (ord)",
                                        "CREATE INDEX IF NOT EXISTS job_id ON job (id)" };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        if (db_exec(&s->write, text[i], &err))
            log_warn(s->log, "store.index", "why=\"%s\"", err.msg);
}

/* ---- the doors ---- */

static struct sqlite *sqlite_new(const struct store_config *cfg)
{
    struct sqlite *s = calloc(1, sizeof *s);
    if (!s || !(s->path = strdup(cfg->path))) {
        free(s);
        return NULL;
    }
    s->base.ops = &store_sqlite;
    s->lock_fd = s->wal_fd = s->reserve_fd = -1;
    s->log_pages = SQLITE_LOG_PAGES;
    s->disk = cfg->disk ? cfg->disk : room_of_disk;
    s->in_memory = strcmp(cfg->path, ":memory:") == 0;
    s->max_history = cfg->max_history;
    s->max_file = cfg->max_file;
    s->log = cfg->log;
    s->root = cfg->root;
    s->sync = fdatasync;
    pthread_mutex_init(&s->db, NULL);
    pthread_mutex_init(&s->read_lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->moving, NULL);
    return s;
}

berth_status sqlite_open(const struct store_config *cfg, struct store_backend **out, berth_err *err)
{
    struct store_config c = *cfg;
    *out = NULL;
    struct sqlite *s = sqlite_new(cfg);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "a store for '%s'", cfg->path);
    berth_status st = open_database(s, err);
    st = st ? st : tx_do(s, recover, &c, err);
    st = st ? st : open_others(s, err);
    if (!st)
        make_indexes(s);
    if (!st && room_low(s))
        room_move_log(s, true);
    room_refill(s); /* also where it was released for nothing */
    if (st) {
        sqlite_close(&s->base);
        return st;
    }
    s->ready = true;
    *out = &s->base;
    return BERTH_OK;
}

static berth_status put_counters(struct sqlite *s, void *arg, berth_err *err)
{
    (void)arg;
    return tx_meta(s, "counter", (int64_t)s->counter, err)
               ? err->code
               : tx_meta(s, "seq", (int64_t)s->counts.last_seq, err);
}

void sqlite_close(struct store_backend *b)
{
    struct sqlite *s = (struct sqlite *)b;
    berth_err err;
    if (s->ready && tx_do(s, put_counters, NULL, &err))
        log_error(s->log, "store.close", "why=\"%s\"", err.msg);
    db_close(&s->ckpt);
    db_close(&s->read);
    db_close(&s->write); /* the last one: SQLite moves the log into the file and removes it */
    if (s->wal_fd >= 0)
        close(s->wal_fd);
    room_close(s);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    pthread_mutex_destroy(&s->db);
    pthread_mutex_destroy(&s->read_lock);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->moving);
    free(s->path);
    free(s);
}
