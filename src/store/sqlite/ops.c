/* The slots of backend.h. */
#include "store/sqlite/sqlite_impl.h"

#include "base/vec.h"

enum {
    OOM_NS = 10000000,      /* a kill so short before a job began is taken for the job's doing */
    ATTEMPTS_AT_ONCE = 1000 /* marked as used, so that few jobs have to write that */
};

static struct sqlite *self(struct store_backend *b)
{
    return (struct sqlite *)b;
}

/* The connection to read with, locked. In memory there is only one. */
static struct db *reader_lock(struct sqlite *s)
{
    pthread_mutex_lock(s->in_memory ? &s->db : &s->read_lock);
    return s->in_memory ? &s->write : &s->read;
}

static void reader_unlock(struct sqlite *s)
{
    pthread_mutex_unlock(s->in_memory ? &s->db : &s->read_lock);
}

static uint64_t next_number(struct store_backend *b)
{
    struct sqlite *s = self(b);
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->counter++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void counts(struct store_backend *b, struct store_counts *out)
{
    struct sqlite *s = self(b);
    pthread_mutex_lock(&s->lock);
    *out = s->counts;
    pthread_mutex_unlock(&s->lock);
}

/* ---- in ---- */

struct adding {
    struct store_job *const *jobs;
    size_t n;
};

static berth_status tx_add(struct sqlite *s, void *arg, berth_err *err)
{
    const struct adding *a = arg;
    uint64_t seq = s->counts.last_seq, bytes = 0; /* changed under db only */
    for (size_t i = 0; i < a->n; i++)
        bytes += store_job_bytes(a->jobs[i]);
    if (room_for(s, bytes, err))
        return err->code;
    for (size_t i = 0; i < a->n; i++) {
        a->jobs[i]->seq = ++seq;
        if (tx_job_add(s, a->jobs[i], err))
            return err->code;
    }
    pthread_mutex_lock(&s->lock);
    uint64_t counter = s->counter;
    pthread_mutex_unlock(&s->lock);
    return tx_meta(s, "counter", (int64_t)counter, err) ? err->code
                                                        : tx_meta(s, "seq", (int64_t)seq, err);
}

static berth_status tx_undo(struct sqlite *s, void *arg, berth_err *err)
{
    const struct adding *a = arg;
    for (size_t i = 0; i < a->n; i++)
        if (tx_job_drop(s, a->jobs[i]->seq, NULL, err))
            return err->code;
    return BERTH_OK;
}

static berth_status add(struct store_backend *b, struct store_job *const *jobs, size_t n,
                        berth_err *err)
{
    struct sqlite *s = self(b);
    struct adding a = { jobs, n };
    berth_err other;
    pthread_mutex_lock(&s->db);
    berth_status st = tx_do_held(s, tx_add, &a, true, err);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        s->counts.last_seq = jobs[n - 1]->seq;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->db);
    if (st || !sync_log(s, err))
        return st;
    /* Written, but nobody knows for how long: not accepted, so it must not come back. */
    if (tx_do(s, tx_undo, &a, &other))
        log_error(s->log, "store.undo", "why=\"%s\"", other.msg);
    return err->code = BERTH_EDEVICE;
}

/* ---- through ---- */

struct taking {
    uint64_t upto;
    struct store_job *out;
    bool *got;
    struct oomkill oom;
    uint64_t attempt_most;
};

static berth_status read_next(struct sqlite *s, const struct taking *t, berth_err *err)
{
    struct store_job seen;
    sqlite3_stmt *st = db_get(&s->write, DB_JOB_NEXT, err, "");
    if (!st || db_step(&s->write, st, t->got, err))
        return err->code;
    *t->got = *t->got && (uint64_t)sqlite3_column_int64(st, 0) <= t->upto;
    bool ok = !*t->got || (db_see_job(st, &seen) && store_job_copy(&seen, t->out));
    db_done(st);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a prompt of '%s'", s->path);
}

static berth_status tx_take(struct sqlite *s, void *arg, berth_err *err)
{
    const struct taking *t = arg;
    store_job_release(t->out); /* of a try before */
    if (read_next(s, t, err))
        return err->code;
    if (!*t->got)
        return BERTH_OK;
    t->out->attempts++;
    t->out->attempt = s->attempt + 1;
    if (tx_oom_mark(s, &t->oom, err) || (t->attempt_most != s->attempt_most &&
                                         tx_meta(s, "attempt", (int64_t)t->attempt_most, err)))
        return err->code;
    return tx_job_set(s, t->out->seq, t->out->attempts, t->out->attempt, err);
}

static berth_status take(struct store_backend *b, uint64_t upto, struct store_job *out, bool *got,
                         berth_err *err)
{
    struct sqlite *s = self(b);
    struct taking t = { .upto = upto, .out = out, .got = got };
    struct store_counts c;
    uint64_t now = clock_mono_ns(clock_system());
    *out = (struct store_job) { 0 };
    *got = false;
    counts(b, &c);
    if (!c.pending || c.paused) /* the usual case waits for nobody */
        return BERTH_OK;
    pthread_mutex_lock(&s->db);
    t.oom = s->oom;
    if (now >= s->oom_due) {
        oomkill_read(s->root, &t.oom);
        s->oom_due = now + OOM_NS;
    }
    t.attempt_most = s->attempt_most + (s->attempt == s->attempt_most ? ATTEMPTS_AT_ONCE : 0);
    berth_status st = s->counts.paused ? BERTH_OK : tx_do_held(s, tx_take, &t, false, err);
    if (!st && *got) {
        s->attempt = out->attempt;
        s->attempt_most = t.attempt_most;
        s->oom = t.oom;
    } else {
        s->oom_due = 0; /* what was read is not written */
    }
    pthread_mutex_unlock(&s->db);
    if (st) {
        store_job_release(out);
        *got = false;
    }
    return st;
}

struct running { /* an attempt */
    uint64_t seq, attempt;
    const struct store_result *r;
};

static berth_status check(struct db *d, const struct running *x, struct job_state *now,
                          berth_err *err)
{
    if (job_state_get(d, x->seq, now, err))
        return err->code;
    if (!now->attempt || (uint64_t)now->attempt != x->attempt)
        return store_stale(x->seq, x->attempt, (uint64_t)now->attempt, err);
    return BERTH_OK;
}

/* Leases do not run out while this process has the file's lock; so all there is to renew is the
 * knowledge that the attempt is still the one. */
static berth_status renew(struct store_backend *b, uint64_t seq, uint64_t attempt, berth_err *err)
{
    struct running x = { seq, attempt, NULL };
    struct job_state now;
    berth_status st = check(reader_lock(self(b)), &x, &now, err);
    reader_unlock(self(b));
    return st;
}

static berth_status tx_finish(struct sqlite *s, void *arg, berth_err *err)
{
    const struct running *x = arg;
    const struct store_result *r = x->r;
    struct job_state now;
    if (check(&s->write, x, &now, err))
        return err->code;
    if (r &&
        (room_for(s, (uint64_t)now.bytes + strlen(r->outputs) + strlen(r->status) + strlen(r->meta),
                  err) ||
         tx_entry(s, x->seq, r, err)))
        return err->code;
    return tx_job_drop(s, x->seq, &now, err);
}

static berth_status finish(struct store_backend *b, uint64_t seq, uint64_t attempt,
                           const struct store_result *r, berth_err *err)
{
    struct sqlite *s = self(b);
    struct running x = { seq, attempt, r };
    if (!r)
        return tx_do_making_room(s, tx_finish, &x, err);
    pthread_mutex_lock(&s->db);
    berth_status st = tx_do_held(s, tx_finish, &x, true, err);
    pthread_mutex_unlock(&s->db);
    return st;
}

static berth_status tx_park(struct sqlite *s, void *arg, berth_err *err)
{
    const struct running *x = arg;
    struct job_state now;
    return check(&s->write, x, &now, err)
               ? err->code
               : tx_job_set(s, x->seq, (unsigned)now.attempts - 1, 0, err);
}

static berth_status park(struct store_backend *b, uint64_t seq, uint64_t attempt, berth_err *err)
{
    return tx_do(self(b), tx_park, &(struct running) { seq, attempt, NULL }, err);
}

/* ---- out ---- */

struct removing {
    const char *const *ids; /* NULL: all */
    size_t n, gone;
};

static berth_status tx_remove_all(struct sqlite *s, struct removing *r, berth_err *err)
{
    int64_t row[2]; /* how many, and their bytes */
    if (db_find(&s->write, DB_JOBS_COUNT, NULL, 0, row, 2, NULL, err) ||
        db_do(&s->write, DB_JOBS_CLEAR, err, ""))
        return err->code;
    r->gone = (size_t)row[0];
    s->delta.pending -= row[0];
    s->delta.bytes -= row[1];
    return BERTH_OK;
}

static berth_status tx_remove(struct sqlite *s, void *arg, berth_err *err)
{
    struct removing *r = arg;
    r->gone = 0;
    if (!r->ids)
        return tx_remove_all(s, r, err);
    for (size_t i = 0; i < r->n; i++) {
        int64_t seq;
        bool found;
        if (db_find(&s->write, DB_JOB_FIRST, r->ids[i], 0, &seq, 1, &found, err) ||
            (found && tx_job_drop(s, (uint64_t)seq, NULL, err)))
            return err->code;
        r->gone += found;
    }
    return BERTH_OK;
}

static berth_status remove_jobs(struct store_backend *b, const char *const *ids, size_t n,
                                size_t *gone, berth_err *err)
{
    struct removing r = { .ids = ids, .n = n };
    berth_status st = tx_do_making_room(self(b), tx_remove, &r, err);
    *gone = st ? 0 : r.gone;
    return st;
}

static berth_status tx_forget(struct sqlite *s, void *arg, berth_err *err)
{
    const struct removing *f = arg;
    if (!f->ids) {
        if (db_do(&s->write, DB_ENTRY_CLEAR, err, ""))
            return err->code;
        s->delta.history = -(int64_t)s->counts.history;
        return BERTH_OK;
    }
    for (size_t i = 0; i < f->n; i++) {
        if (db_do(&s->write, DB_ENTRY_DROP, err, "t", f->ids[i]))
            return err->code;
        s->delta.history -= sqlite3_changes(s->write.h);
    }
    return BERTH_OK;
}

static berth_status forget(struct store_backend *b, const char *const *ids, size_t n,
                           berth_err *err)
{
    return tx_do_making_room(self(b), tx_forget, &(struct removing) { ids, n, 0 }, err);
}

/* ---- changed ---- */

struct moving {
    const char *id, *before;
};

static void release_places(struct vec *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(((struct order_job *)vec_at(v, i))->id);
    vec_release(v);
}

static berth_status read_places(struct sqlite *s, struct vec *out, berth_err *err)
{
    bool row;
    sqlite3_stmt *st = db_get(&s->write, DB_JOBS_PLACES, err, "");
    for (;;) {
        if (!st || db_step(&s->write, st, &row, err))
            return err->code;
        if (!row)
            break;
        struct order_job *j = vec_add(out);
        const char *id = (const char *)sqlite3_column_text(st, 2);
        if (!j || !id || !(j->id = strdup(id))) {
            db_done(st);
            return err_set(err, BERTH_ENOMEM, "the order of the prompts");
        }
        j->seq = (uint64_t)sqlite3_column_int64(st, 0);
        j->order = sqlite3_column_double(st, 1);
    }
    db_done(st);
    return BERTH_OK;
}

static berth_status write_changes(struct sqlite *s, const struct order_change *c, size_t n,
                                  uint64_t counter, berth_err *err)
{
    if (n && tx_meta(s, "counter", (int64_t)counter, err))
        return err->code;
    for (size_t i = 0; i < n; i++)
        if (db_do(&s->write, DB_JOB_MOVE, err, "dtn", c[i].order, c[i].number, (int64_t)c[i].seq))
            return err->code;
    return BERTH_OK;
}

static berth_status tx_move(struct sqlite *s, void *arg, berth_err *err)
{
    const struct moving *m = arg;
    struct vec places = { .elem = sizeof(struct order_job) };
    struct order_change *changes = NULL;
    size_t n = 0;
    berth_status st = read_places(s, &places, err);
    if (!st) {
        pthread_mutex_lock(&s->lock); /* nobody gets a number meanwhile */
        st = order_move(places.p, places.n, m->id, m->before, &s->counter, &changes, &n, err);
        uint64_t counter = s->counter;
        pthread_mutex_unlock(&s->lock);
        st = st ? st : write_changes(s, changes, n, counter, err);
    }
    free(changes);
    release_places(&places);
    return st;
}

static berth_status move(struct store_backend *b, const char *id, const char *before,
                         berth_err *err)
{
    return tx_do(self(b), tx_move, &(struct moving) { id, before }, err);
}

static berth_status tx_pause(struct sqlite *s, void *arg, berth_err *err)
{
    return tx_meta(s, "paused", *(const bool *)arg, err);
}

static berth_status pause_jobs(struct store_backend *b, bool paused, berth_err *err)
{
    struct sqlite *s = self(b);
    pthread_mutex_lock(&s->db);
    berth_status st = tx_do_held(s, tx_pause, &paused, false, err);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        s->counts.paused = paused;
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->db);
    return st;
}

/* ---- jobs, seen ---- */

/* Rows of a statement that is bound. *on: fn wants more. */
static berth_status see_jobs(struct db *d, sqlite3_stmt *st, store_job_fn *fn, void *user, bool *on,
                             berth_err *err)
{
    while (*on) {
        struct store_job j;
        bool row;
        if (db_step(d, st, &row, err))
            return err->code;
        if (!row)
            break;
        if (!db_see_job(st, &j)) {
            db_done(st);
            return err_set(err, BERTH_ENOMEM, "a prompt of '%s'", d->path);
        }
        *on = fn(user, &j, j.attempt != 0);
    }
    db_done(st);
    return BERTH_OK;
}

static berth_status see_all(struct db *d, enum store_parts parts, store_job_fn *fn, void *user,
                            berth_err *err)
{
    bool on = true;
    int64_t extra = parts == STORE_BRIEF_EXTRA;
    for (int64_t running = 1; running >= 0; running--) {
        sqlite3_stmt *st = parts == STORE_WHOLE
                               ? db_get(d, DB_JOBS, err, "n", running)
                               : db_get(d, DB_JOBS_BRIEF, err, "nn", running, extra);
        if (!st || see_jobs(d, st, fn, user, &on, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status see_picked(struct db *d, const struct store_pick *pick, store_job_fn *fn,
                               void *user, berth_err *err)
{
    bool on = true;
    sqlite3_stmt *st = pick->id ? db_get(d, DB_JOB_BY_ID, err, "t", pick->id)
                                : db_get(d, DB_JOB_BY_SEQ, err, "n", (int64_t)pick->seq);
    return st ? see_jobs(d, st, fn, user, &on, err) : err->code;
}

/* One transaction, so that a job that is taken meanwhile is not seen twice. */
static berth_status jobs(struct store_backend *b, const struct store_pick *pick, store_job_fn *fn,
                         void *user, berth_err *err)
{
    struct sqlite *s = self(b);
    berth_err ignored;
    struct db *d = reader_lock(s);
    berth_status st = db_do(d, DB_BEGIN_READ, err, "");
    if (!st) {
        st = pick->id || pick->seq ? see_picked(d, pick, fn, user, err)
                                   : see_all(d, pick->parts, fn, user, err);
        db_do(d, DB_ROLLBACK, &ignored, ""); /* nothing was written */
    }
    reader_unlock(s);
    return st;
}

/* ---- entries, seen ---- */

struct entry { /* owned */
    int64_t place;
    struct store_job job;
    char *outputs, *status, *meta;
};

static void entry_release(struct entry *e)
{
    store_job_release(&e->job);
    free(e->outputs);
    free(e->status);
    free(e->meta);
    *e = (struct entry) { 0 };
}

static bool copy_column(sqlite3_stmt *st, int i, char **out)
{
    const char *p = (const char *)sqlite3_column_text(st, i);
    *out = p ? strdup(p) : NULL;
    return *out;
}

static berth_status copy_entry(struct db *d, sqlite3_stmt *st, struct entry *e, berth_err *err)
{
    struct store_job seen;
    e->place = sqlite3_column_int64(st, 14);
    if (db_see_job(st, &seen) && store_job_copy(&seen, &e->job) &&
        copy_column(st, 11, &e->outputs) && copy_column(st, 12, &e->status) &&
        copy_column(st, 13, &e->meta))
        return BERTH_OK;
    entry_release(e);
    return err_set(err, BERTH_ENOMEM, "an entry of the history in '%s'", d->path);
}

/* The entry at `place` or the first behind it. */
static berth_status read_entry(struct sqlite *s, int64_t place, enum store_parts parts,
                               struct entry *e, bool *found, berth_err *err)
{
    *e = (struct entry) { 0 };
    *found = false;
    struct db *d = reader_lock(s);
    int64_t extra = parts == STORE_BRIEF_EXTRA;
    sqlite3_stmt *st = parts == STORE_WHOLE ? db_get(d, DB_ENTRY_NEXT, err, "n", place)
                                            : db_get(d, DB_ENTRY_BRIEF, err, "nn", place, extra);
    berth_status status = st ? BERTH_OK : err->code;
    if (st) {
        status = db_step(d, st, found, err);
        if (!status && *found)
            status = copy_entry(d, st, e, err);
        db_done(st);
    }
    reader_unlock(s);
    return status;
}

static berth_status find_place(struct sqlite *s, enum db_stmt which, const char *text, uint64_t n,
                               int64_t *place, bool *found, berth_err *err)
{
    struct db *d = reader_lock(s);
    berth_status st = db_find(d, which, text, (int64_t)n, place, 1, found, err);
    reader_unlock(s);
    return st;
}

/* Where to begin; *any false: there is nothing to show. */
static berth_status find_start(struct sqlite *s, const struct store_range *r, int64_t *place,
                               bool *any, berth_err *err)
{
    bool found;
    *place = INT64_MIN;
    *any = true;
    if (r->id)
        return find_place(s, DB_ENTRY_FIND, r->id, 0, place, any, err);
    if (r->newest && r->count - 1 <= INT64_MAX) {
        if (find_place(s, DB_ENTRY_LAST, NULL, r->count - 1, place, &found, err))
            return err->code;
        if (!found) /* fewer are there: all */
            *place = INT64_MIN;
        return BERTH_OK;
    }
    return r->skip ? find_place(s, DB_ENTRY_SKIP, NULL, r->skip, place, any, err) : BERTH_OK;
}

static berth_status entries(struct store_backend *b, const struct store_range *r,
                            store_entry_fn *fn, void *user, berth_err *err)
{
    struct sqlite *s = self(b);
    int64_t place;
    bool any;
    if (find_start(s, r, &place, &any, err))
        return err->code;
    for (uint64_t left = r->id ? 1 : r->count; any && left; left--) {
        struct entry e;
        if (read_entry(s, place, r->parts, &e, &any, err))
            return err->code;
        if (!any)
            break;
        place = e.place + 1;
        if (r->id && strcmp(e.job.id, r->id) != 0)
            any = false; /* it was deleted since: the one behind it is not meant */
        else
            any = fn(user, &(struct store_entry) { e.job, e.outputs, e.status, e.meta });
        entry_release(&e);
    }
    return BERTH_OK;
}

const struct store_ops store_sqlite = {
    .name = "sqlite",
    .open = sqlite_open,
    .close = sqlite_close,
    .next_number = next_number,
    .counts = counts,
    .add = add,
    .take = take,
    .renew = renew,
    .finish = finish,
    .park = park,
    .remove = remove_jobs,
    .move = move,
    .pause = pause_jobs,
    .jobs = jobs,
    .entries = entries,
    .forget = forget,
    .tend = sqlite_tend,
};
