/* Transactions, and what is written in them. */
#include "store/sqlite/sqlite_impl.h"

enum { SYNC_NS = 10000000 }; /* what was written waits this long for company before it is synced */

/* ---- one transaction ---- */

static void apply(struct sqlite *s)
{
    struct store_counts *c = &s->counts;
    const struct sqlite_delta *d = &s->delta;
    pthread_mutex_lock(&s->lock);
    c->pending = (size_t)((int64_t)c->pending + d->pending);
    c->running = (size_t)((int64_t)c->running + d->running);
    c->history = (size_t)((int64_t)c->history + d->history);
    c->bytes = (size_t)((int64_t)c->bytes + d->bytes);
    if (s->written++ == s->synced)
        s->sync_due = clock_mono_ns(clock_system()) + SYNC_NS;
    s->checkpoint |= s->wal_pages >= s->log_pages;
    pthread_mutex_unlock(&s->lock);
}

static berth_status tx_once(struct sqlite *s, tx_fn *fn, void *arg, berth_err *err)
{
    s->delta = (struct sqlite_delta) { 0 };
    if (db_do(&s->write, DB_BEGIN, err, ""))
        return err->code;
    if (fn(s, arg, err) || db_do(&s->write, DB_COMMIT, err, "")) {
        berth_err ignored; /* the first one matters; SQLite may have rolled back by itself */
        if (!sqlite3_get_autocommit(s->write.h))
            db_do(&s->write, DB_ROLLBACK, &ignored, "");
        return err->code;
    }
    apply(s);
    return BERTH_OK;
}

/* Again with the log moved into the file, whose own room is often what is left on a full disk;
 * then, of a small one, with the reserve. One that grows has no third try, so it waits for readers
 * in the second. Recovery has one try: it must not judge a job twice. */
berth_status tx_do_held(struct sqlite *s, tx_fn *fn, void *arg, bool grows, berth_err *err)
{
    berth_status st = tx_once(s, fn, arg, err);
    bool more = s->ready && !s->in_memory && !(st && db_locked(err));
    if (st == BERTH_EIO && more) {
        room_move_log(s, grows);
        st = tx_once(s, fn, arg, err);
    }
    if (st == BERTH_EIO && more && !grows && s->reserve) {
        uint64_t had = room_release(s);
        room_move_log(s, true);
        st = tx_once(s, fn, arg, err);
        room_retake(s, had);
    }
    if (st)
        return st == BERTH_EIO ? err_add(err, "writing the queue") : st;
    err->code = BERTH_OK; /* of the tries before */
    return BERTH_OK;
}

berth_status tx_do(struct sqlite *s, tx_fn *fn, void *arg, berth_err *err)
{
    pthread_mutex_lock(&s->db);
    berth_status st = tx_do_held(s, fn, arg, false, err);
    pthread_mutex_unlock(&s->db);
    return st;
}

/* ---- jobs ---- */

berth_status tx_job_add(struct sqlite *s, const struct store_job *j, berth_err *err)
{
    if (db_do(&s->write, DB_JOB_ADD, err, "ndnntttttt", (int64_t)j->seq, j->order,
              (int64_t)j->attempts, j->created_ms, j->id, j->number, j->client_id, j->prompt,
              j->extra_data, j->outputs))
        return err->code;
    s->delta.pending++;
    s->delta.bytes += (int64_t)store_job_bytes(j);
    return BERTH_OK;
}

berth_status tx_job_set(struct sqlite *s, uint64_t seq, unsigned attempts, uint64_t attempt,
                        berth_err *err)
{
    if (db_do(&s->write, DB_JOB_SET, err, "nnn", (int64_t)attempts, (int64_t)attempt, (int64_t)seq))
        return err->code;
    s->delta.pending += attempt ? -1 : 1;
    s->delta.running += attempt ? 1 : -1;
    return BERTH_OK;
}

berth_status job_state_get(struct db *d, uint64_t seq, struct job_state *out, berth_err *err)
{
    int64_t row[3];
    if (db_find(d, DB_JOB_STATE, NULL, (int64_t)seq, row, 3, NULL, err))
        return err->code;
    *out = (struct job_state) { row[0], row[1], row[2] };
    return BERTH_OK;
}

/* What is not there is gone already. */
berth_status tx_job_drop(struct sqlite *s, uint64_t seq, const struct job_state *x, berth_err *err)
{
    struct job_state read;
    if (!x && job_state_get(&s->write, seq, &read, err))
        return err->code;
    x = x ? x : &read;
    if (db_do(&s->write, DB_JOB_DROP, err, "n", (int64_t)seq))
        return err->code;
    if (!sqlite3_changes(s->write.h))
        return BERTH_OK;
    s->delta.bytes -= x->bytes;
    s->delta.pending -= !x->attempt;
    s->delta.running -= x->attempt != 0;
    return BERTH_OK;
}

/* ---- the history ---- */

static berth_status drop_oldest(struct sqlite *s, int64_t n, berth_err *err)
{
    if (db_do(&s->write, DB_ENTRY_TRIM, err, "n", n))
        return err->code;
    s->delta.history -= sqlite3_changes64(s->write.h);
    return BERTH_OK;
}

/* Are more pages in use than may be, as the transaction would leave it? */
static berth_status is_large(struct sqlite *s, bool *out, berth_err *err)
{
    int64_t most = (int64_t)(s->max_file / SQLITE_PAGE), pages, unused = 0;
    if (db_find(&s->write, DB_PAGES, NULL, 0, &pages, 1, NULL, err) ||
        (pages > most && db_find(&s->write, DB_UNUSED, NULL, 0, &unused, 1, NULL, err)))
        return err->code;
    *out = pages - unused > most;
    return BERTH_OK;
}

/* Beyond the bounds the oldest go, except for the last one. */
berth_status tx_trim(struct sqlite *s, berth_err *err)
{
    int64_t there = (int64_t)s->counts.history; /* changed under db only */
    int64_t over = there + s->delta.history - (int64_t)s->max_history;
    bool large;
    if (over > 0 && drop_oldest(s, over, err))
        return err->code;
    while (there + s->delta.history > 1) {
        if (is_large(s, &large, err))
            return err->code;
        if (!large)
            break;
        if (drop_oldest(s, 1, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status tx_entry(struct sqlite *s, uint64_t seq, const struct store_result *r, berth_err *err)
{
    sqlite3_set_last_insert_rowid(s->write.h, 0);
    if (db_do(&s->write, DB_ENTRY_PUT, err, "nttt", (int64_t)seq, r->outputs, r->status, r->meta))
        return err->code;
    s->delta.history += sqlite3_last_insert_rowid(s->write.h) != 0; /* an update sets none */
    return tx_trim(s, err);
}

/* ---- the rest ---- */

berth_status tx_meta(struct sqlite *s, const char *key, int64_t value, berth_err *err)
{
    return db_do(&s->write, DB_META_SET, err, "tn", key, value);
}

berth_status tx_oom_mark(struct sqlite *s, const struct oomkill *x, berth_err *err)
{
    if (memcmp(x, &s->oom, sizeof *x) == 0)
        return BERTH_OK;
    if (tx_meta(s, "oom_boot", (int64_t)x->boot, err) ||
        tx_meta(s, "oom_machine", (int64_t)x->machine, err) ||
        tx_meta(s, "oom_group", (int64_t)x->group, err))
        return err->code;
    return tx_meta(s, "oom_in_group", (int64_t)x->in_group, err);
}
