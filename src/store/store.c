#include "store/store_impl.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SCHEMA = 1,
    APPLICATION = 0x42525448, /* "BRTH": in the database's header, so that we know our own */
    MAX_PENDING = 10000,
    MAX_HISTORY = 10000,
    PAGE_BYTES = 4096,
    CACHE_WRITE_KIB = 1024,
    CACHE_READ_KIB = 256,
    CACHE_CKPT_KIB = 64,
    SYNC_NS = 10000000, /* what was written waits this long for company before it is synced */
};

/* ---- transactions ---- */

struct tx {
    tx_fn *fn;
    tx_covers_fn *covers; /* NULL: none */
    void *arg;
    uint64_t bytes;           /* of texts that it adds */
    const struct debt *debts; /* the first `owed` of the list: they leave it only under db */
    size_t owed;
    uint64_t owed_bytes;
};

static bool covered(const struct tx *t, const struct debt *d)
{
    return t->covers && t->covers(t->arg, d);
}

/* all: every debt. Else only those that the change covers, of which nothing but the job is left to
 * remove. */
static berth_status pay_debts(struct store *s, const struct tx *t, bool all, berth_err *err)
{
    const struct debt *d = t->debts;
    for (size_t left = t->owed; left; left--) {
        struct store_result r = { d->e.outputs, d->e.status, d->e.meta };
        bool only_job = covered(t, d);
        if (all && !only_job && tx_entry(s, &d->e.job, &r, err))
            return err->code;
        if ((all || only_job) && tx_job_drop(s, d->e.job.seq, err))
            return err->code;
        if (left > 1) /* behind the last one somebody may be adding another */
            d = d->next;
    }
    return BERTH_OK;
}

/* Under the lock: what was paid goes out of the list; returns it. */
static struct debt *cut_debts(struct store *s, const struct tx *t, bool all)
{
    struct debt *paid = NULL, **last = &paid, **at = &s->debts;
    for (size_t i = 0; i < t->owed; i++) {
        struct debt *d = *at;
        if (!all && !covered(t, d)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        d->next = NULL;
        *last = d;
        last = &d->next;
    }
    return paid;
}

static berth_status run_plain(struct store *s, enum db_stmt which, berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, which, err);
    return st ? db_run(&s->write, st, err) : err->code;
}

static berth_status tx_once(struct store *s, const struct tx *t, bool all, berth_err *err)
{
    s->tx_entries = 0;
    if (run_plain(s, DB_BEGIN, err))
        return err->code;
    if (pay_debts(s, t, all, err) || t->fn(s, t->arg, err) || run_plain(s, DB_COMMIT, err)) {
        berth_err ignored; /* the first one matters; SQLite may have rolled back by itself */
        if (!sqlite3_get_autocommit(s->write.h))
            run_plain(s, DB_ROLLBACK, &ignored);
        return err->code;
    }
    atomic_store(&s->history_n, (size_t)((int64_t)atomic_load(&s->history_n) + s->tx_entries));
    return BERTH_OK;
}

/* Where there is room for what it adds. */
static berth_status tx_try(struct store *s, const struct tx *t, bool all, berth_err *err)
{
    berth_status st = room_for(s, t->bytes + (all ? t->owed_bytes : 0), err);
    return st ? st : tx_once(s, t, all, err);
}

/* With all debts; with the log moved into the file, whose own room is often what is left on a full
 * disk; then the change alone, as one debt that cannot be written must not keep out those that can,
 * and even less those that make room; then, of a small one, with the reserve. *all: the debts are
 * paid. Recovery, before there is a writer, has one try: it fills the queue as it goes. */
static berth_status tx_tries(struct store *s, const struct tx *t, bool *all, berth_err *err)
{
    *all = true;
    berth_status st = tx_try(s, t, true, err);
    bool more = s->started && !s->in_memory && !(st && db_locked(err));
    if (st == BERTH_EIO && more) {
        room_move_log(s, false);
        st = tx_try(s, t, true, err);
    }
    if (st && t->owed && !db_locked(err)) {
        *all = false;
        st = tx_try(s, t, false, err);
    }
    if (st == BERTH_EIO && more && !t->bytes && s->reserve) {
        *all = false;
        uint64_t had = room_release(s);
        room_move_log(s, true);
        st = tx_once(s, t, false, err);
        room_retake(s, had);
    }
    if (!st)
        err->code = BERTH_OK; /* of the tries before */
    return st;
}

static berth_status run_held(struct store *s, struct tx *t, berth_err *err)
{
    bool all;
    pthread_mutex_lock(&s->lock); /* debts leave the list only under db; new ones join its end */
    t->debts = s->debts;
    for (const struct debt *d = t->debts; d; d = d->next) {
        t->owed++;
        t->owed_bytes += covered(t, d) ? 0 : d->bytes;
    }
    pthread_mutex_unlock(&s->lock);
    berth_status st = tx_tries(s, t, &all, err);
    struct debt *paid = NULL;
    pthread_mutex_lock(&s->lock);
    if (!st) {
        paid = cut_debts(s, t, all);
        bool first = s->written++ == s->synced, move = s->wal_pages >= s->log_pages;
        if (first)
            s->sync_due = clock_mono_ns(clock_system()) + SYNC_NS;
        if (first || (move && !s->checkpoint))
            pthread_cond_signal(&s->work);
        s->checkpoint |= move;
    }
    pthread_mutex_unlock(&s->lock);
    for (struct debt *next; paid; paid = next) {
        next = paid->next;
        log_info(s->log, "store.late", "prompt=%s", paid->e.job.id);
        debt_free(paid);
    }
    return st ? err_add(err, "writing the queue") : BERTH_OK;
}

berth_status tx_do_held(struct store *s, tx_fn *fn, tx_covers_fn *covers, void *arg, berth_err *err)
{
    return run_held(s, &(struct tx) { .fn = fn, .covers = covers, .arg = arg }, err);
}

berth_status tx_grow(struct store *s, tx_fn *fn, tx_covers_fn *covers, void *arg, uint64_t bytes,
                     berth_err *err)
{
    struct tx t = { .fn = fn, .covers = covers, .arg = arg, .bytes = bytes };
    pthread_mutex_lock(&s->db);
    berth_status st = run_held(s, &t, err);
    pthread_mutex_unlock(&s->db);
    return st;
}

berth_status tx_do(struct store *s, tx_fn *fn, void *arg, berth_err *err)
{
    return tx_grow(s, fn, NULL, arg, 0, err);
}

/* Binds 1..10. Texts are borrowed until db_run(). */
static int bind_job(sqlite3_stmt *st, const struct store_job *j)
{
    const char *texts[] = { j->id, j->number, j->client_id, j->prompt, j->extra_data, j->outputs };
    int rc = sqlite3_bind_int64(st, 1, (int64_t)j->seq);
    rc = rc ? rc : sqlite3_bind_double(st, 2, j->order);
    rc = rc ? rc : sqlite3_bind_int64(st, 3, j->attempts);
    rc = rc ? rc : sqlite3_bind_int64(st, 4, j->created_ms);
    for (int i = 0; i < 6; i++)
        rc = rc ? rc : sqlite3_bind_text(st, 5 + i, texts[i], -1, SQLITE_STATIC);
    return rc;
}

berth_status tx_job_add(struct store *s, const struct store_job *j, berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_JOB_ADD, err);
    if (!st)
        return err->code;
    int rc = bind_job(st, j);
    return rc ? db_fail(&s->write, rc, err) : db_run(&s->write, st, err);
}

berth_status tx_job_set(struct store *s, uint64_t seq, unsigned attempts, bool running,
                        berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_JOB_SET, err);
    if (!st)
        return err->code;
    sqlite3_bind_int64(st, 1, attempts);
    sqlite3_bind_int64(st, 2, running);
    sqlite3_bind_int64(st, 3, (int64_t)seq);
    return db_run(&s->write, st, err);
}

berth_status tx_job_move(struct store *s, uint64_t seq, double order, const char *number,
                         berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_JOB_MOVE, err);
    if (!st)
        return err->code;
    sqlite3_bind_double(st, 1, order);
    sqlite3_bind_text(st, 2, number, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, (int64_t)seq);
    return db_run(&s->write, st, err);
}

berth_status tx_job_drop(struct store *s, uint64_t seq, berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_JOB_DROP, err);
    if (!st)
        return err->code;
    sqlite3_bind_int64(st, 1, (int64_t)seq);
    return db_run(&s->write, st, err);
}

berth_status tx_meta(struct store *s, const char *key, int64_t value, berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_META_SET, err);
    if (!st)
        return err->code;
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, value);
    return db_run(&s->write, st, err);
}

berth_status tx_oom_mark(struct store *s, const struct oomkill *x, berth_err *err)
{
    if (memcmp(x, &s->oom, sizeof *x) == 0)
        return BERTH_OK;
    if (tx_meta(s, "oom_boot", (int64_t)x->boot, err) ||
        tx_meta(s, "oom_machine", (int64_t)x->machine, err) ||
        tx_meta(s, "oom_group", (int64_t)x->group, err))
        return err->code;
    return tx_meta(s, "oom_in_group", (int64_t)x->in_group, err);
}

static berth_status drop_oldest(struct store *s, int64_t n, berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_ENTRY_TRIM, err);
    if (!st)
        return err->code;
    sqlite3_bind_int64(st, 1, n);
    if (db_run(&s->write, st, err))
        return err->code;
    s->tx_entries -= sqlite3_changes64(s->write.h);
    return BERTH_OK;
}

/* Beyond the bounds the oldest go, but for the last one. */
static berth_status trim(struct store *s, berth_err *err)
{
    int64_t there = (int64_t)atomic_load(&s->history_n), pages = 0,
            over = there + s->tx_entries - (int64_t)s->max_history;
    if (over > 0 && drop_oldest(s, over, err))
        return err->code;
    while (there + s->tx_entries > 1) {
        if (db_count(&s->write, DB_USED, &pages, err)) /* as the transaction would leave it */
            return err->code;
        if (pages <= (int64_t)(s->max_file / PAGE_BYTES))
            break;
        if (drop_oldest(s, 1, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status tx_entry(struct store *s, const struct store_job *j, const struct store_result *r,
                      berth_err *err)
{
    bool there;
    sqlite3_stmt *st = db_get(&s->write, DB_ENTRY_FIND, err);
    if (!st)
        return err->code;
    sqlite3_bind_text(st, 1, j->id, -1, SQLITE_STATIC);
    if (db_step(&s->write, st, &there, err))
        return err->code;
    int64_t place = there ? sqlite3_column_int64(st, 0) : 0;
    db_done(st);
    st = db_get(&s->write, there ? DB_ENTRY_SET : DB_ENTRY_ADD, err);
    if (!st)
        return err->code;
    int rc = bind_job(st, j);
    rc = rc ? rc : sqlite3_bind_text(st, 11, r->outputs, -1, SQLITE_STATIC);
    rc = rc ? rc : sqlite3_bind_text(st, 12, r->status, -1, SQLITE_STATIC);
    rc = rc ? rc : sqlite3_bind_text(st, 13, r->meta, -1, SQLITE_STATIC);
    if (!rc && there)
        rc = sqlite3_bind_int64(st, 14, place);
    if (rc)
        return db_fail(&s->write, rc, err);
    if (db_run(&s->write, st, err))
        return err->code;
    s->tx_entries += !there;
    return trim(s, err);
}

/* ---- opening ---- */

/* Held until the process ends, however it ends. Never removed: whoever removed it would lock a file
 * that another is about to create anew. */
static berth_status take_lock(struct store *s, berth_err *err)
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

/* Prompts are their owner's business: the file is made before SQLite would make it for all to read.
 * */
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
static berth_status check_schema(struct store *s, bool *fresh, berth_err *err)
{
    int64_t app, version, things;
    if (db_number(&s->write, "PRAGMA application_id", &app, err) ||
        db_number(&s->write, "PRAGMA user_version", &version, err) ||
        db_number(&s->write, "SELECT count(*) FROM sqlite_master", &things, err))
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

static berth_status make_schema(struct store *s, berth_err *err)
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
    struct store *s = user;
    (void)h, (void)name;
    s->wal_pages = pages;
    return SQLITE_OK;
}

static berth_status open_database(struct store *s, berth_err *err)
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
             fresh ? "PRAGMA auto_vacuum = INCREMENTAL;" : "", s->log_pages * PAGE_BYTES);
    if (db_exec(&s->write, text, err))
        return err->code;
    sqlite3_wal_hook(s->write.h, count_pages, s); /* in place of SQLite's own checkpoints */
    return fresh ? make_schema(s, err) : BERTH_OK;
}

/* The other two connections, and a descriptor of the log to sync it with. The log's file stays the
 * same one as long as a connection is open, SQLite keeps no locks on it that a close could lose,
 * and it has synced the folder when recover() made the log. */
static berth_status open_others(struct store *s, berth_err *err)
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

/* The entry of a job that took the process down with it as often as it may. */
static void write_death(const struct store *s, const struct store_job *j, bool oom,
                        struct str *status)
{
    uint64_t ms = clock_wall_ns(s->clock) / 1000000;
    str_adds(status, "{\"status_str\":\"error\",\"completed\":false,\"messages\":"
                     "[[\"execution_start\",{\"prompt_id\":");
    js_write_string(j->id, strlen(j->id), status);
    str_addf(status, ",\"timestamp\":%" PRIu64 "}],[\"execution_error\",{\"prompt_id\":", ms);
    js_write_string(j->id, strlen(j->id), status);
    str_addf(
        status,
        ",\"node_id\":\"\",\"node_type\":\"\",\"executed\":[],\"exception_message\":"
        "\"The server died %u time%s while this prompt was running%s; it is not tried "
        "again.\\n\",\"exception_type\":\"ServerDied\",\"traceback\":[],"
        "\"current_inputs\":{},\"current_outputs\":[],\"timestamp\":%" PRIu64 "}]]}",
        j->attempts, j->attempts == 1 ? "" : "s",
        oom ? ", and the kernel had to kill for want of memory: give the server more of it, or "
              "a smaller --ram-budget, or draw a smaller picture"
            : "",
        ms);
}

/* A job that was running goes back to its place, or into the history. */
static berth_status recover_running(struct store *s, const struct store_job *j, bool oom,
                                    bool *again, berth_err *err)
{
    *again = j->attempts < STORE_ATTEMPTS && !oom;
    log_warn(s->log, "store.recover", "attempts=%u again=%d out_of_memory=%d prompt=%s",
             j->attempts, *again, oom, j->id);
    if (*again)
        return tx_job_set(s, j->seq, j->attempts, false, err);
    struct str status = { 0 };
    write_death(s, j, oom, &status);
    struct store_result r = { "{}", str_c(&status), "{}" };
    if (status.bad)
        err_set(err, BERTH_ENOMEM, "the status of '%s'", j->id);
    else if (!tx_entry(s, j, &r, err) && !tx_job_drop(s, j->seq, err))
        err->code = BERTH_OK;
    str_release(&status);
    return err->code;
}

/* Everything is read before anything is changed. Those that were running go to *ran. */
static berth_status read_jobs(struct store *s, struct job **ran, berth_err *err)
{
    sqlite3_stmt *st = db_get(&s->write, DB_JOBS, err);
    bool row;
    if (!st)
        return err->code;
    for (;;) {
        if (db_step(&s->write, st, &row, err))
            return err->code;
        if (!row)
            break;
        struct job *j = job_new();
        if (!j || !db_read_job(st, &j->j) || !queue_reserve(&s->pending, s->pending.n + 1)) {
            job_unref(j);
            db_done(st);
            return err_set(err, BERTH_ENOMEM, "the jobs in '%s'", s->path);
        }
        s->seq = j->j.seq > s->seq ? j->j.seq : s->seq;
        j->bytes = job_bytes(&j->j);
        s->bytes += j->bytes;
        queue_insert(&s->pending, j);
        if (sqlite3_column_int64(st, 10)) {
            j->next = *ran;
            *ran = j;
        }
    }
    db_done(st);
    return BERTH_OK;
}

static void forget_job(struct store *s, struct job *j)
{
    for (size_t i = 0; i < s->pending.n; i++)
        if (queue_at(&s->pending, i) == j) {
            queue_remove(&s->pending, i);
            break;
        }
    s->bytes -= j->bytes;
    job_unref(j);
}

static berth_status meta_get(struct store *s, const char *key, uint64_t *out, berth_err *err)
{
    bool row;
    sqlite3_stmt *st = db_get(&s->write, DB_META_GET, err);
    if (!st)
        return err->code;
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    if (db_step(&s->write, st, &row, err))
        return err->code;
    *out = row ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    db_done(st);
    return BERTH_OK;
}

static berth_status recover(struct store *s, void *arg, berth_err *err)
{
    uint64_t paused = 0;
    bool row;
    (void)arg;
    if (meta_get(s, "counter", &s->counter, err) || meta_get(s, "seq", &s->seq, err) ||
        meta_get(s, "paused", &paused, err) || meta_get(s, "oom_boot", &s->oom.boot, err) ||
        meta_get(s, "oom_machine", &s->oom.machine, err) ||
        meta_get(s, "oom_group", &s->oom.group, err) ||
        meta_get(s, "oom_in_group", &s->oom.in_group, err))
        return err->code;
    s->paused = paused != 0;
    struct oomkill now;
    oomkill_read(s->root, &now);
    bool oom = oomkill_between(&s->oom, &now);
    sqlite3_stmt *st = db_get(&s->write, DB_ENTRY_COUNT, err);
    if (!st || db_step(&s->write, st, &row, err))
        return err->code;
    atomic_store(&s->history_n, (size_t)sqlite3_column_int64(st, 0));
    db_done(st);
    struct job *ran = NULL;
    if (read_jobs(s, &ran, err))
        return err->code;
    for (struct job *next; ran; ran = next) {
        next = ran->next;
        ran->next = NULL;
        bool again;
        if (recover_running(s, &ran->j, oom, &again, err))
            return err->code;
        if (!again)
            forget_job(s, ran);
    }
    s->told_seq = s->seq;
    if (trim(s, err)) /* the bound may be a smaller one now */
        return err->code;
    return tx_meta(s, "seq", (int64_t)s->seq, err); /* a write in any case: the log is there now */
}

/* ---- the doors ---- */

static bool make_conds(struct store *s)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a))
        return false;
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    bool ok = !pthread_cond_init(&s->work, &a);
    if (ok && pthread_cond_init(&s->ready, &a)) {
        pthread_cond_destroy(&s->work);
        ok = false;
    }
    pthread_condattr_destroy(&a);
    return ok;
}

static struct store *store_new(const struct store_config *cfg)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->lock_fd = s->wal_fd = s->reserve_fd = -1;
    s->log_pages = STORE_LOG_PAGES;
    s->disk = cfg->disk ? cfg->disk : room_of_disk;
    s->path = strdup(cfg->path);
    s->in_memory = strcmp(cfg->path, ":memory:") == 0;
    s->max_pending = cfg->max_pending ? cfg->max_pending : MAX_PENDING;
    s->max_history = cfg->max_history ? cfg->max_history : MAX_HISTORY;
    s->max_file = cfg->max_file ? cfg->max_file : (uint64_t)2 << 30;
    s->max_bytes = cfg->max_bytes ? cfg->max_bytes : (size_t)1 << 30;
    s->log = cfg->log;
    s->clock = cfg->clock ? cfg->clock : clock_system();
    s->root = cfg->root ? cfg->root : "";
    s->sync = fdatasync;
    s->last = &s->first;
    if (!s->path || !make_conds(s)) {
        free(s->path);
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->db, NULL);
    pthread_mutex_init(&s->read_lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

berth_status store_open(const struct store_config *cfg, struct store **out, berth_err *err)
{
    *out = NULL;
    struct store *s = store_new(cfg);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "a store for '%s'", cfg->path);
    berth_status st = open_database(s, err);
    st = st ? st : tx_do(s, recover, NULL, err);
    st = st ? st : open_others(s, err);
    if (!st && room_low(s))
        room_move_log(s, true);
    room_refill(s); /* also where it was released for nothing */
    if (st || writer_start(s, err)) {
        store_close(s);
        return err_add(err, "opening the queue");
    }
    log_info(s->log, "store.open", "pending=%zu history=%zu paused=%d path=%s", s->pending.n,
             atomic_load(&s->history_n), s->paused, s->path);
    *out = s;
    return BERTH_OK;
}

static berth_status put_counters(struct store *s, void *arg, berth_err *err)
{
    (void)arg;
    return tx_meta(s, "counter", (int64_t)s->counter, err)
               ? err->code
               : tx_meta(s, "seq", (int64_t)s->seq, err);
}

void store_close(struct store *s)
{
    berth_err err;
    if (!s)
        return;
    if (s->started) {
        writer_stop(s);
        if (tx_do(s, put_counters, NULL, &err))
            log_error(s->log, "store.close", "why=\"%s\"", err.msg);
    }
    db_close(&s->ckpt);
    db_close(&s->read);
    db_close(&s->write); /* the last one: SQLite moves the log into the file and removes it */
    if (s->wal_fd >= 0)
        close(s->wal_fd);
    room_close(s);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    for (size_t i = 0; i < s->pending.n; i++)
        job_unref(queue_at(&s->pending, i));
    free(s->pending.at);
    job_unref(s->running);
    for (struct debt *next; s->debts; s->debts = next) {
        next = s->debts->next;
        debt_free(s->debts); /* still a job in the database: it runs again */
    }
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->db);
    pthread_mutex_destroy(&s->read_lock);
    pthread_mutex_destroy(&s->lock);
    free(s->path);
    free(s);
}
