/* history: entries as readers see them, and ends that could not be written.
 *
 * On a full disk an end waits in memory as an `owed`. For the backend its job still runs. Readers
 * see its entry as if it were written: in the place of an older one with the same id, otherwise
 * last. The thread tries again every second and when the store closes. Deleting the entry, or
 * ending the same prompt anew, leaves only the job to be removed. */
#include "store/store_impl.h"

#include "base/json.h"

/* ---- owed ---- */

void owed_unref(struct owed *o)
{
    if (!o || atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1)
        return;
    store_job_release(&o->job);
    free(o->outputs);
    free(o->status);
    free(o->meta);
    free(o);
}

static bool keep_job(void *user, const struct store_job *j, bool running)
{
    struct owed *o = user;
    (void)running;
    if (!store_job_copy(j, &o->job))
        o->job = (struct store_job) { 0 };
    return false;
}

static bool note_entry(void *user, const struct store_entry *e)
{
    (void)e;
    *(bool *)user = true;
    return false;
}

/* Without memory for it the job is the backend's only, and runs again with the next start. */
static struct owed *owed_new(struct store *s, uint64_t seq, uint64_t attempt,
                             const struct store_result *r)
{
    struct owed *o = calloc(1, sizeof *o);
    struct store_pick p = { .seq = seq, .parts = STORE_WHOLE };
    berth_err ignored;
    if (!o)
        return NULL;
    atomic_init(&o->refs, 1);
    s->ops->jobs(s->b, &p, keep_job, o, &ignored);
    o->outputs = strdup(r->outputs);
    o->status = strdup(r->status);
    o->meta = strdup(r->meta);
    if (!o->job.id || o->job.attempt != attempt || !o->outputs || !o->status || !o->meta) {
        owed_unref(o);
        return NULL;
    }
    struct store_range older = { .id = o->job.id, .parts = STORE_BRIEF };
    s->ops->entries(s->b, &older, note_entry, &o->known, &ignored);
    return o;
}

/* Under the lock. */
static void drop(struct store *s, const char *id)
{
    for (struct owed *o = s->owed; o; o = o->next)
        o->dropped |= !id || strcmp(o->job.id, id) == 0;
}

void owed_drop(struct store *s, const char *id)
{
    pthread_mutex_lock(&s->lock);
    drop(s, id);
    pthread_mutex_unlock(&s->lock);
}

void owed_add(struct store *s, uint64_t seq, uint64_t attempt, const struct store_result *r)
{
    struct owed *o = owed_new(s, seq, attempt, r), **end = &s->owed;
    if (!o)
        return;
    pthread_mutex_lock(&s->lock);
    drop(s, o->job.id);
    while (*end)
        end = &(*end)->next;
    *end = o;
    pthread_mutex_unlock(&s->lock);
}

bool owed_any(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    bool any = s->owed != NULL;
    pthread_mutex_unlock(&s->lock);
    return any;
}

bool owed_has(struct store *s, uint64_t seq)
{
    pthread_mutex_lock(&s->lock);
    const struct owed *o = s->owed;
    while (o && o->job.seq != seq)
        o = o->next;
    pthread_mutex_unlock(&s->lock);
    return o != NULL;
}

static berth_status write_owed(struct store *s, const struct owed *o, bool dropped)
{
    struct store_result r = { o->outputs, o->status, o->meta };
    berth_err err;
    berth_status st = s->ops->finish(s->b, o->job.seq, o->job.attempt, dropped ? NULL : &r, &err);
    if (!st)
        log_info(s->log, "store.late", "prompt=%s", o->job.id);
    else if (st == BERTH_EINVAL)
        log_error(s->log, "store.late", "prompt=%s why=\"%s\"", o->job.id, err.msg);
    return st == BERTH_EINVAL ? BERTH_OK : st;
}

/* One that cannot be written keeps no other one out. Only here they leave the list. */
void owed_settle(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    for (struct owed **at = &s->owed, *o; (o = *at);) {
        bool dropped = o->dropped;
        pthread_mutex_unlock(&s->lock);
        berth_status st = write_owed(s, o, dropped);
        pthread_mutex_lock(&s->lock);
        if (st) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        owed_unref(o);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- walking ---- */

struct shown { /* an end that is not written, in a list that begins now */
    struct owed *o;
    bool known;
};

struct walk {
    struct shown *owed;
    size_t n, fresh; /* fresh: those without an older entry */
    uint64_t left;
    store_entry_fn *fn;
    void *user;
};

/* Almost always there are none. */
static berth_status walk_init(struct store *s, struct walk *w, berth_err *err)
{
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct owed *o = s->owed; o; o = o->next)
        n++;
    if (n && (w->owed = calloc(n, sizeof *w->owed)))
        for (struct owed *o = s->owed; o; o = o->next) {
            if (o->dropped)
                continue;
            atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
            w->owed[w->n++] = (struct shown) { o, o->known };
            w->fresh += !o->known;
        }
    pthread_mutex_unlock(&s->lock);
    return n && !w->owed ? err_set(err, BERTH_ENOMEM, "%zu entries of the history", n) : BERTH_OK;
}

static bool show(struct walk *w, const struct store_entry *e)
{
    w->left--;
    if (w->fn(w->user, e))
        return true;
    w->left = 0;
    return false;
}

static void show_owed(struct walk *w, const struct owed *o)
{
    show(w, &(struct store_entry) { o->job, o->outputs, o->status, o->meta });
}

static bool show_written(void *user, const struct store_entry *e)
{
    struct walk *w = user;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->owed[i].o->job.id, e->job.id) == 0) {
            w->owed[i].known = true; /* or written since we looked */
            show_owed(w, w->owed[i].o);
            return w->left;
        }
    return show(w, e);
}

static berth_status walk_all(struct store *s, const struct store_range *r, struct walk *w,
                             berth_err *err)
{
    struct store_range written = *r;
    uint64_t skip = 0; /* of those that are not written */
    w->left = r->count;
    if (r->newest) {
        written.count = r->count > w->fresh ? r->count - w->fresh : 0;
        skip = w->fresh > r->count ? w->fresh - r->count : 0;
    } else if (r->skip) {
        struct store_counts c;
        s->ops->counts(s->b, &c);
        skip = r->skip > c.history ? r->skip - c.history : 0;
    }
    if (written.count && s->ops->entries(s->b, &written, show_written, w, err))
        return err->code;
    for (size_t i = 0; i < w->n && w->left; i++) {
        if (w->owed[i].known)
            continue;
        if (skip)
            skip--;
        else
            show_owed(w, w->owed[i].o);
    }
    return BERTH_OK;
}

static berth_status walk_one(struct store *s, const struct store_range *r, struct walk *w,
                             berth_err *err)
{
    w->left = 1;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->owed[i].o->job.id, r->id) == 0) {
            show_owed(w, w->owed[i].o);
            return BERTH_OK;
        }
    return s->ops->entries(s->b, r, show_written, w, err);
}

/* w has fn and user; afterwards left says how many fewer there were than wanted. */
static berth_status walk(struct store *s, const struct store_range *r, struct walk *w,
                         berth_err *err)
{
    berth_status st = walk_init(s, w, err);
    if (!st)
        st = r->id ? walk_one(s, r, w, err) : walk_all(s, r, w, err);
    for (size_t i = 0; i < w->n; i++)
        owed_unref(w->owed[i].o);
    free(w->owed);
    return st ? err_add(err, "reading the history") : BERTH_OK;
}

/* ---- the doors ---- */

static bool write_item(void *user, const struct store_entry *e)
{
    struct jsonout *j = user;
    jo_open(j, e->job.id, '{');
    job_json(j, "prompt", &e->job);
    raw_json(j, "outputs", e->outputs);
    raw_json(j, "status", e->status);
    raw_json(j, "meta", e->meta);
    jo_close(j, '}');
    return !j->out->bad;
}

static berth_status write_items(struct store *s, const struct store_range *r, struct str *out,
                                berth_err *err)
{
    struct jsonout j = { .out = out };
    struct walk w = { .fn = write_item, .user = &j };
    jo_open(&j, NULL, '{');
    if ((r->id || r->count) && walk(s, r, &w, err))
        return err->code;
    jo_close(&j, '}');
    return out->bad ? err_set(err, BERTH_ENOMEM, "%zu bytes of history", out->n) : BERTH_OK;
}

berth_status store_history_json(struct store *s, const struct store_page *p, struct str *out,
                                berth_err *err)
{
    struct store_range r = { .count = UINT64_MAX };
    bool offset = p->has_offset && p->offset >= 0;
    if (p->has_max)
        r.count = p->max > 0 ? (uint64_t)p->max : 0;
    if (offset)
        r.skip = (uint64_t)p->offset;
    r.newest = p->has_max && !offset;
    return write_items(s, &r, out, err);
}

berth_status store_history_one(struct store *s, const char *id, struct str *out, berth_err *err)
{
    return write_items(s, &(struct store_range) { .id = id }, out, err);
}

berth_status store_each_brief(struct store *s, bool extra_data, store_entry_fn *fn, void *user,
                              berth_err *err)
{
    struct store_range all = { .count = UINT64_MAX,
                               .parts = extra_data ? STORE_BRIEF_EXTRA : STORE_BRIEF };
    return walk(s, &all, &(struct walk) { .fn = fn, .user = user }, err);
}

berth_status store_entry_get(struct store *s, const char *id, store_entry_fn *fn, void *user,
                             berth_err *err)
{
    struct walk w = { .fn = fn, .user = user };
    struct store_range one = { .id = id };
    if (walk(s, &one, &w, err))
        return err->code;
    return !w.left ? BERTH_OK : err_set(err, BERTH_ENOTFOUND, "no prompt '%s' in the history", id);
}

size_t store_history_count(struct store *s)
{
    struct store_counts c;
    s->ops->counts(s->b, &c);
    pthread_mutex_lock(&s->lock);
    for (const struct owed *o = s->owed; o; o = o->next)
        c.history += !o->known && !o->dropped;
    pthread_mutex_unlock(&s->lock);
    return c.history;
}

/* ---- deleting ---- */

static berth_status forget(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    pthread_mutex_lock(&s->settling);
    berth_status st = s->ops->forget(s->b, ids, n, err);
    if (!st && owed_any(s)) {
        for (size_t i = 0; i < (ids ? n : 1); i++)
            owed_drop(s, ids ? ids[i] : NULL);
        owed_settle(s);
    }
    pthread_mutex_unlock(&s->settling);
    store_poke(s);
    return st;
}

berth_status store_history_delete(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    return n ? forget(s, ids, n, err) : BERTH_OK;
}

berth_status store_history_clear(struct store *s, berth_err *err)
{
    return forget(s, NULL, 0, err);
}
