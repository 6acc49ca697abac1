#include "store/sqlite/sqlite_impl.h"

#include <stdarg.h>

#define JOB_COLUMNS                                                                                \
    "seq, ord, attempts, created_ms, id, number, client_id, prompt, extra_data, wanted"
#define JOB_BRIEF(extra)                                                                           \
    "seq, ord, attempts, created_ms, id, number, client_id, '', iif(" extra ", extra_data, ''), "  \
    "''"
#define ENTRY_COLUMNS JOB_COLUMNS ", outputs, status, meta"
#define BYTES                                                                                      \
    "length(CAST(id || ifnull(client_id, '') AS BLOB)) + length(CAST(prompt AS BLOB)) +"           \
    " length(CAST(extra_data AS BLOB)) + length(CAST(wanted AS BLOB))"

static const char *const sql[DB_STMTS] = {
#define STATEMENT(name, text) text,
#include "store/sqlite/statements.def"
#undef STATEMENT
};

enum { BUSY_MS = 5000 };

bool db_locked(const berth_err *err)
{
    int rc = err->native & 0xff;
    return err->code == BERTH_EIO && (rc == SQLITE_BUSY || rc == SQLITE_LOCKED);
}

berth_status db_fail(const struct db *d, int rc, berth_err *err)
{
    int full = d->h ? sqlite3_extended_errcode(d->h) : rc,
        sys = d->h ? sqlite3_system_errno(d->h) : 0;
    const char *text = d->h ? sqlite3_errmsg(d->h) : sqlite3_errstr(rc);
    berth_status code = BERTH_EIO;
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        code = BERTH_ENOMEM;
        break;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return err_set_at(err, __FILE__, __LINE__, BERTH_EFORMAT, full,
                          "'%s' is no database of ours, or damaged: %s. Nothing was deleted; move "
                          "it away to start with an empty queue",
                          d->path, text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set_at(err, __FILE__, __LINE__, BERTH_EIO, full,
                          "'%s' is locked by another program, for more than %d s now; try again",
                          d->path, BUSY_MS / 1000);
    case SQLITE_TOOBIG:
        code = BERTH_ELIMIT;
        break;
    default:
        break;
    }
    bool more = (rc & 0xff) == SQLITE_IOERR && sys;
    return err_set_at(err, __FILE__, __LINE__, code, full, "'%s': %s%s%s", d->path, text,
                      more ? ": " : "", more ? strerror(sys) : "");
}

berth_status db_exec(struct db *d, const char *text, berth_err *err)
{
    int rc = sqlite3_exec(d->h, text, NULL, NULL, NULL);
    return rc ? db_fail(d, rc, err) : BERTH_OK;
}

berth_status db_open(const char *path, int cache_kib, struct db *out, berth_err *err)
{
    *out = (struct db) { .path = path };
    int rc = sqlite3_open_v2(
        path, &out->h, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc) {
        db_fail(out, rc, err);
        db_close(out);
        return err->code;
    }
    sqlite3_extended_result_codes(out->h, 1);
    sqlite3_busy_timeout(out->h, BUSY_MS); /* somebody looks at the file with another program */
    char text[200];
    snprintf(text, sizeof text,
             "PRAGMA cache_size = -%d; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;"
             "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = FAST",
             cache_kib);
    if (db_exec(out, text, err)) {
        db_close(out);
        return err->code;
    }
    return BERTH_OK;
}

void db_close(struct db *d)
{
    for (size_t i = 0; i < DB_STMTS; i++)
        sqlite3_finalize(d->st[i]);
    if (d->h && sqlite3_close(d->h) != SQLITE_OK)
        BUG("store: '%s' closed with a statement left", d->path);
    *d = (struct db) { 0 };
}

static int bind(sqlite3_stmt *st, const char *kinds, va_list ap)
{
    int rc = SQLITE_OK;
    for (int i = 1; !rc && kinds[i - 1]; i++)
        switch (kinds[i - 1]) {
        case 'n':
            rc = sqlite3_bind_int64(st, i, va_arg(ap, int64_t));
            break;
        case 'd':
            rc = sqlite3_bind_double(st, i, va_arg(ap, double));
            break;
        default:
            rc = sqlite3_bind_text(st, i, va_arg(ap, const char *), -1, SQLITE_STATIC);
        }
    return rc;
}

static sqlite3_stmt *get(struct db *d, enum db_stmt which, berth_err *err, const char *kinds,
                         va_list ap)
{
    int rc = SQLITE_OK;
    if (!d->st[which])
        rc = sqlite3_prepare_v3(d->h, sql[which], -1, SQLITE_PREPARE_PERSISTENT, &d->st[which],
                                NULL);
    if (!rc && !(rc = bind(d->st[which], kinds, ap)))
        return d->st[which];
    db_fail(d, rc, err);
    return NULL;
}

sqlite3_stmt *db_get(struct db *d, enum db_stmt which, berth_err *err, const char *kinds, ...)
{
    va_list ap;
    va_start(ap, kinds);
    sqlite3_stmt *st = get(d, which, err, kinds, ap);
    va_end(ap);
    return st;
}

void db_done(sqlite3_stmt *st)
{
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
}

berth_status db_step(struct db *d, sqlite3_stmt *st, bool *row, berth_err *err)
{
    int rc = sqlite3_step(st);
    *row = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        return BERTH_OK;
    db_fail(d, rc, err);
    db_done(st);
    return err->code;
}

berth_status db_do(struct db *d, enum db_stmt which, berth_err *err, const char *kinds, ...)
{
    va_list ap;
    va_start(ap, kinds);
    sqlite3_stmt *st = get(d, which, err, kinds, ap);
    va_end(ap);
    for (bool row = true; row;)
        if (!st || db_step(d, st, &row, err))
            return err->code;
    db_done(st);
    return BERTH_OK;
}

berth_status db_find(struct db *d, enum db_stmt which, const char *text, int64_t n, int64_t *out,
                     int columns, bool *found, berth_err *err)
{
    bool row = false, one = strchr(sql[which], '?');
    sqlite3_stmt *st = !one   ? db_get(d, which, err, "")
                       : text ? db_get(d, which, err, "t", text)
                              : db_get(d, which, err, "n", n);
    if (!st || db_step(d, st, &row, err))
        return err->code;
    for (int i = 0; i < columns; i++)
        out[i] = row ? sqlite3_column_int64(st, i) : 0;
    if (found)
        *found = row;
    db_done(st);
    return BERTH_OK;
}

bool db_see_job(sqlite3_stmt *st, struct store_job *j)
{
    *j = (struct store_job) { .seq = (uint64_t)sqlite3_column_int64(st, 0),
                              .order = sqlite3_column_double(st, 1),
                              .attempts = (unsigned)sqlite3_column_int64(st, 2),
                              .created_ms = sqlite3_column_int64(st, 3),
                              .attempt = (uint64_t)sqlite3_column_int64(st, 10) };
    char **const text[] = { &j->id,     &j->number,     &j->client_id,
                            &j->prompt, &j->extra_data, &j->outputs };
    for (int i = 0; i < 6; i++)
        *text[i] = (char *)sqlite3_column_text(st, 4 + i);
    return j->id && j->number && j->prompt && j->extra_data && j->outputs;
}
