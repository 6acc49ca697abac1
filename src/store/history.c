#include "store/store_impl.h"

#include "base/json.h"

void entry_release(struct entry *e)
{
    store_job_release(&e->job);
    free(e->outputs);
    free(e->status);
    free(e->meta);
    *e = (struct entry) { 0 };
}

void debt_free(struct debt *d)
{
    if (!d)
        return;
    if (d->owner) /* the job's texts are its own */
        d->e.job = (struct store_job) { 0 };
    entry_release(&d->e);
    job_unref(d->owner);
    free(d);
}

/* ---- rows ---- */

/* The connection to read with, locked. In memory there is only one. */
static struct db *reader_lock(struct store *s)
{
    pthread_mutex_lock(s->in_memory ? &s->db : &s->read_lock);
    return s->in_memory ? &s->write : &s->read;
}

static void reader_unlock(struct store *s)
{
    pthread_mutex_unlock(s->in_memory ? &s->db : &s->read_lock);
}

/* First column of a statement with one number or text bound; *found false: no row. */
static berth_status find_place(struct store *s, enum db_stmt which, const char *text, int64_t n,
                               int64_t *place, bool *found, berth_err *err)
{
    *found = false;
    struct db *d = reader_lock(s);
    sqlite3_stmt *st = db_get(d, which, err);
    berth_status status = st ? BERTH_OK : err->code;
    if (st) {
        if (text)
            sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
        else
            sqlite3_bind_int64(st, 1, n);
        status = db_step(d, st, found, err);
        if (!status) {
            *place = *found ? sqlite3_column_int64(st, 0) : 0;
            db_done(st);
        }
    }
    reader_unlock(s);
    return status;
}

bool history_has(struct store *s, const char *id)
{
    int64_t place;
    bool found;
    berth_err ignored;
    return !find_place(s, DB_ENTRY_FIND, id, 0, &place, &found, &ignored) && found;
}

enum parts { WHOLE, BRIEF, BRIEF_AND_EXTRA }; /* of an entry; see store_each_brief() */

/* The entry at `place` or the first behind it. */
static berth_status read_entry(struct store *s, int64_t place, enum parts parts, struct entry *e,
                               bool *found, berth_err *err)
{
    *e = (struct entry) { 0 };
    *found = false;
    struct db *d = reader_lock(s);
    sqlite3_stmt *st = db_get(d, parts == WHOLE ? DB_ENTRY_NEXT : DB_ENTRY_BRIEF, err);
    berth_status status = st ? BERTH_OK : err->code;
    if (st) {
        sqlite3_bind_int64(st, 1, place);
        if (parts != WHOLE)
            sqlite3_bind_int(st, 2, parts == BRIEF_AND_EXTRA);
        status = db_step(d, st, found, err);
        if (!status) {
            e->place = *found ? sqlite3_column_int64(st, 13) : 0;
            if (*found && (!db_read_job(st, &e->job) || !db_read_text(st, 10, &e->outputs) ||
                           !db_read_text(st, 11, &e->status) || !db_read_text(st, 12, &e->meta)))
                status = err_set(err, BERTH_ENOMEM, "an entry of the history");
            db_done(st);
        }
    }
    reader_unlock(s);
    if (status)
        entry_release(e);
    return status;
}

/* ---- debts, which readers see as if they were written ---- */

static bool copy_debt(const struct debt *from, struct debt **to)
{
    struct debt *d = calloc(1, sizeof *d);
    *to = d;
    if (!d)
        return false;
    d->known = from->known;
    d->e.outputs = strdup(from->e.outputs);
    d->e.status = strdup(from->e.status);
    d->e.meta = strdup(from->e.meta);
    return job_copy(&from->e.job, &d->e.job) && d->e.outputs && d->e.status && d->e.meta;
}

static void free_debts(struct debt *d)
{
    for (struct debt *next; d; d = next) {
        next = d->next;
        debt_free(d);
    }
}

/* Copies of them, in order; almost always none. */
static berth_status copy_debts(struct store *s, struct debt **out, berth_err *err)
{
    struct debt **end = out;
    bool ok = true;
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    for (const struct debt *d = s->debts; ok && d; d = d->next) {
        ok = copy_debt(d, end);
        if (*end)
            end = &(*end)->next;
    }
    pthread_mutex_unlock(&s->lock);
    if (ok)
        return BERTH_OK;
    free_debts(*out);
    *out = NULL;
    return err_set(err, BERTH_ENOMEM, "the newest of the history");
}

static struct debt *debt_of(struct debt *d, const char *id)
{
    struct debt *last = NULL; /* the newest counts */
    for (; d; d = d->next)
        if (strcmp(d->e.job.id, id) == 0)
            last = d;
    return last;
}

static size_t new_debts(const struct debt *d)
{
    size_t n = 0;
    for (; d; d = d->next)
        n += !d->known;
    return n;
}

/* ---- walking ---- */

struct range {
    uint64_t skip, count; /* of the oldest; of those to show */
    bool newest;          /* skip: none but the newest `count` are shown */
    enum parts parts;
};

typedef bool walk_fn(void *user, const struct entry *e); /* false: stop */

/* Where in the database to begin; *skip: entries behind it to leave out. */
static berth_status walk_start(struct store *s, const struct range *r, size_t unwritten,
                               int64_t *place, bool *any, uint64_t *skip, berth_err *err)
{
    bool found;
    *place = INT64_MIN;
    *any = true;
    *skip = 0;
    if (r->newest && r->count <= unwritten) {
        *any = false;
        *skip = unwritten - r->count;
        return BERTH_OK;
    }
    if (r->newest) { /* not found: fewer are there, show all */
        uint64_t n = r->count - unwritten - 1;
        if (n > INT64_MAX)
            return BERTH_OK;
        if (find_place(s, DB_ENTRY_LAST, NULL, (int64_t)n, place, &found, err))
            return err->code;
        if (!found)
            *place = INT64_MIN;
        return BERTH_OK;
    }
    if (!r->skip)
        return BERTH_OK;
    if (find_place(s, DB_ENTRY_SKIP, NULL, (int64_t)r->skip, place, any, err))
        return err->code;
    size_t there = atomic_load(&s->history_n);
    *skip = *any || r->skip < there ? 0 : r->skip - there;
    return BERTH_OK;
}

static berth_status walk_with(struct store *s, const struct range *r, struct debt *debts,
                              walk_fn *fn, void *user, berth_err *err)
{
    int64_t place;
    bool any;
    uint64_t skip, left = r->count;
    if (walk_start(s, r, new_debts(debts), &place, &any, &skip, err))
        return err->code;
    while (any && left) {
        struct entry e;
        if (read_entry(s, place, r->parts, &e, &any, err))
            return err->code;
        if (!any)
            break;
        struct debt *later = debt_of(debts, e.job.id);
        if (later)
            later->known = true; /* or paid since we looked */
        place = e.place + 1;
        left--;
        bool on = fn(user, later ? &later->e : &e);
        entry_release(&e);
        if (!on)
            return BERTH_OK;
    }
    for (const struct debt *d = debts; d && left; d = d->next) {
        if (d->known)
            continue;
        if (skip) {
            skip--;
            continue;
        }
        left--;
        if (!fn(user, &debt_of(debts, d->e.job.id)->e))
            break;
    }
    return BERTH_OK;
}

static berth_status walk(struct store *s, const struct range *r, walk_fn *fn, void *user,
                         berth_err *err)
{
    struct debt *debts;
    if (copy_debts(s, &debts, err))
        return err->code;
    berth_status st = walk_with(s, r, debts, fn, user, err);
    free_debts(debts);
    return st ? err_add(err, "reading the history") : BERTH_OK;
}

/* One entry by id. */
static berth_status walk_one(struct store *s, const char *id, walk_fn *fn, void *user, bool *found,
                             berth_err *err)
{
    struct debt *debts;
    struct entry e = { 0 };
    int64_t place;
    if (copy_debts(s, &debts, err))
        return err->code;
    const struct debt *d = debt_of(debts, id);
    berth_status st = BERTH_OK;
    *found = d != NULL;
    if (d) {
        fn(user, &d->e);
    } else {
        st = find_place(s, DB_ENTRY_FIND, id, 0, &place, found, err);
        if (!st && *found)
            st = read_entry(s, place, WHOLE, &e, found, err);
        /* deleted between the two: the one behind it is not meant */
        *found = !st && *found && strcmp(e.job.id, id) == 0;
        if (*found)
            fn(user, &e);
    }
    entry_release(&e);
    free_debts(debts);
    return st ? err_add(err, "reading the history") : BERTH_OK;
}

/* ---- the doors ---- */

struct writing {
    struct str *out;
    bool any;
};

static bool write_item(void *user, const struct entry *e)
{
    struct writing *w = user;
    struct str *out = w->out;
    if (w->any)
        str_addc(out, ',');
    w->any = true;
    js_write_string(e->job.id, strlen(e->job.id), out);
    str_adds(out, ":{\"prompt\":");
    job_json(&e->job, out);
    str_adds(out, ",\"outputs\":");
    str_adds(out, e->outputs);
    str_adds(out, ",\"status\":");
    str_adds(out, e->status);
    str_adds(out, ",\"meta\":");
    str_adds(out, e->meta);
    str_addc(out, '}');
    return !out->bad;
}

static berth_status wrote(const struct str *out, berth_err *err)
{
    return out->bad ? err_set(err, BERTH_ENOMEM, "%zu bytes of history", out->n) : BERTH_OK;
}

berth_status store_history_json(struct store *s, const struct store_page *p, struct str *out,
                                berth_err *err)
{
    struct writing w = { .out = out };
    struct range r = { .count = UINT64_MAX };
    bool offset = p->has_offset && p->offset >= 0;
    if (p->has_max)
        r.count = p->max > 0 ? (uint64_t)p->max : 0;
    if (offset)
        r.skip = (uint64_t)p->offset;
    r.newest = p->has_max && !offset;
    str_addc(out, '{');
    if (r.count && walk(s, &r, write_item, &w, err))
        return err->code;
    str_addc(out, '}');
    return wrote(out, err);
}

berth_status store_history_one(struct store *s, const char *id, struct str *out, berth_err *err)
{
    struct writing w = { .out = out };
    bool found;
    str_addc(out, '{');
    if (walk_one(s, id, write_item, &w, &found, err))
        return err->code;
    str_addc(out, '}');
    return wrote(out, err);
}

struct handing {
    store_entry_fn *fn;
    void *user;
};

static bool hand_over(void *user, const struct entry *e)
{
    const struct handing *h = user;
    struct store_entry x = { e->job, e->outputs, e->status, e->meta };
    return h->fn(h->user, &x);
}

berth_status store_each_brief(struct store *s, bool extra_data, store_entry_fn *fn, void *user,
                              berth_err *err)
{
    struct handing h = { fn, user };
    struct range all = { .count = UINT64_MAX, .parts = extra_data ? BRIEF_AND_EXTRA : BRIEF };
    return walk(s, &all, hand_over, &h, err);
}

berth_status store_entry_get(struct store *s, const char *id, store_entry_fn *fn, void *user,
                             berth_err *err)
{
    struct handing h = { fn, user };
    bool found;
    if (walk_one(s, id, hand_over, &h, &found, err))
        return err->code;
    return found ? BERTH_OK : err_set(err, BERTH_ENOTFOUND, "no prompt '%s' in the history", id);
}

size_t store_history_count(struct store *s)
{
    size_t n = atomic_load(&s->history_n);
    pthread_mutex_lock(&s->lock);
    n += new_debts(s->debts);
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- deleting ---- */

struct ids {
    const char *const *at; /* NULL: all */
    size_t n;
};

static berth_status tx_forget(struct store *s, void *arg, berth_err *err)
{
    const struct ids *ids = arg;
    if (!ids->at) {
        sqlite3_stmt *st = db_get(&s->write, DB_ENTRY_CLEAR, err);
        if (!st || db_run(&s->write, st, err))
            return err->code;
        s->tx_entries = -(int64_t)atomic_load(&s->history_n);
        return BERTH_OK;
    }
    for (size_t i = 0; i < ids->n; i++) {
        sqlite3_stmt *st = db_get(&s->write, DB_ENTRY_DROP, err);
        if (!st)
            return err->code;
        sqlite3_bind_text(st, 1, ids->at[i], -1, SQLITE_STATIC);
        if (db_run(&s->write, st, err))
            return err->code;
        s->tx_entries -= sqlite3_changes(s->write.h);
    }
    return BERTH_OK;
}

/* An entry that was not written yet goes too: it need not be written for that. */
static bool forget_covers(const void *arg, const struct debt *d)
{
    const struct ids *ids = arg;
    for (size_t i = 0; ids->at && i < ids->n; i++)
        if (strcmp(ids->at[i], d->e.job.id) == 0)
            return true;
    return !ids->at;
}

static berth_status forget(struct store *s, struct ids *ids, berth_err *err)
{
    return tx_do_making_room(s, tx_forget, forget_covers, ids, err);
}

berth_status store_history_delete(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    struct ids want = { ids, n };
    return n ? forget(s, &want, err) : BERTH_OK;
}

berth_status store_history_clear(struct store *s, berth_err *err)
{
    struct ids all = { 0 };
    return forget(s, &all, err);
}
