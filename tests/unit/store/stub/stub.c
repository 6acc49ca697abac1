/* stub: a store in a few arrays, as docs/adding.md tells a stranger to begin. "stub:NAME" opens the
 * one of that name, which is there until the program ends: closing it is the crash of its
 * process. The table of names is what a disk is to others, and the only thing here that is not to
 * be copied: a store keeps what it has in its own struct. */
#include "store/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100 };

struct stub_entry {
    struct store_job job;
    char *outputs, *status, *meta;
};

struct stub {
    struct store_backend base;
    char name[64];
    pthread_mutex_t lock;
    size_t max_history;
    struct store_job jobs[MOST]; /* in order */
    struct stub_entry entries[MOST];
    struct store_counts counts;
    uint64_t counter, attempt;
    struct stub *next;
};

static struct stub *stubs;

static struct stub *enter(struct store_backend *b)
{
    struct stub *s = (struct stub *)b;
    pthread_mutex_lock(&s->lock);
    return s;
}

static berth_status leave(struct stub *s, berth_status st)
{
    pthread_mutex_unlock(&s->lock);
    return st;
}

static size_t job_count(const struct stub *s)
{
    return s->counts.pending + s->counts.running;
}

static struct store_job *job_at(struct stub *s, uint64_t seq, uint64_t attempt, berth_err *err)
{
    uint64_t now = 0;
    for (size_t i = 0; i < job_count(s); i++)
        if (s->jobs[i].seq == seq) {
            if (s->jobs[i].attempt && s->jobs[i].attempt == attempt)
                return &s->jobs[i];
            now = s->jobs[i].attempt;
        }
    store_stale(seq, attempt, now, err);
    return NULL;
}

/* Its texts are somebody else's now, or freed. */
static void cut_job(struct stub *s, struct store_job *j)
{
    *(j->attempt ? &s->counts.running : &s->counts.pending) -= 1;
    memmove(j, j + 1, (size_t)(s->jobs + job_count(s) - j) * sizeof *j);
}

static void put_entry(struct stub *s, struct store_job *j, const struct store_result *r)
{
    struct stub_entry *e = s->entries, *end = e + s->counts.history;
    while (e < end && strcmp(e->job.id, j->id) != 0)
        e++;
    if (e == end) {
        s->counts.history++;
    } else {
        store_job_release(&e->job);
        free(e->outputs);
        free(e->status);
        free(e->meta);
    }
    *e = (struct stub_entry) { *j, strdup(r->outputs), strdup(r->status), strdup(r->meta) };
    s->counts.bytes -= store_job_bytes(j);
    cut_job(s, j);
}

static void cut_entry(struct stub *s, struct stub_entry *e)
{
    store_job_release(&e->job);
    free(e->outputs);
    free(e->status);
    free(e->meta);
    s->counts.history--;
    memmove(e, e + 1, (size_t)(s->entries + s->counts.history - e) * sizeof *e);
}

static int in_order(const void *a, const void *b)
{
    const struct store_job *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* ---- the slots ---- */

static berth_status stub_open(const struct store_config *cfg, struct store_backend **out,
                              berth_err *err)
{
    struct stub *s = stubs;
    while (s && strcmp(s->name, cfg->path) != 0)
        s = s->next;
    if (!s) {
        if (!(s = calloc(1, sizeof *s)))
            return err_set(err, BERTH_ENOMEM, "a stub");
        snprintf(s->name, sizeof s->name, "%s", cfg->path);
        s->next = stubs;
        stubs = s;
    }
    s->base.ops = &store_stub;
    s->max_history = cfg->max_history;
    pthread_mutex_init(&s->lock, NULL);
    for (size_t i = job_count(s); i--;) {
        struct store_job *j = &s->jobs[i];
        struct str status = { 0 };
        if (!j->attempt)
            continue;
        if (store_judge(cfg, j, false, &status)) {
            j->attempt = 0;
            s->counts.running--;
            s->counts.pending++;
        } else {
            put_entry(s, j, &(struct store_result) { "{}", str_c(&status), "{}" });
        }
        str_release(&status);
    }
    *out = &s->base;
    return BERTH_OK;
}

static void stub_close(struct store_backend *b)
{
    pthread_mutex_destroy(&((struct stub *)b)->lock);
}

static uint64_t stub_next_number(struct store_backend *b)
{
    struct stub *s = enter(b);
    uint64_t n = s->counter++;
    leave(s, BERTH_OK);
    return n;
}

static void stub_counts(struct store_backend *b, struct store_counts *out)
{
    struct stub *s = enter(b);
    *out = s->counts;
    leave(s, BERTH_OK);
}

static berth_status stub_add(struct store_backend *b, struct store_job *const *jobs, size_t n,
                             berth_err *err)
{
    struct stub *s = enter(b);
    if (job_count(s) + n > MOST)
        return leave(s, err_set(err, BERTH_EIO, "'%s' is full", s->name));
    for (size_t i = 0; i < n; i++) {
        jobs[i]->seq = ++s->counts.last_seq;
        if (!store_job_copy(jobs[i], &s->jobs[job_count(s)]))
            abort();
        s->counts.pending++;
        s->counts.bytes += store_job_bytes(jobs[i]);
    }
    qsort(s->jobs, job_count(s), sizeof *s->jobs, in_order);
    return leave(s, BERTH_OK);
}

static berth_status stub_take(struct store_backend *b, uint64_t upto, struct store_job *out,
                              bool *got, berth_err *err)
{
    struct stub *s = enter(b);
    struct store_job *j = s->jobs, *end = j + job_count(s);
    while (j < end && j->attempt)
        j++;
    *got = j < end && !s->counts.paused && j->seq <= upto;
    if (!*got)
        return leave(s, BERTH_OK);
    if (!store_job_copy(j, out))
        return leave(s, err_set(err, BERTH_ENOMEM, "a job"));
    out->attempts = ++j->attempts;
    out->attempt = j->attempt = ++s->attempt;
    s->counts.pending--;
    s->counts.running++;
    return leave(s, BERTH_OK);
}

static berth_status stub_renew(struct store_backend *b, uint64_t seq, uint64_t attempt,
                               berth_err *err)
{
    struct stub *s = enter(b);
    return leave(s, job_at(s, seq, attempt, err) ? BERTH_OK : err->code);
}

static berth_status stub_finish(struct store_backend *b, uint64_t seq, uint64_t attempt,
                                const struct store_result *r, berth_err *err)
{
    struct stub *s = enter(b);
    struct store_job *j = job_at(s, seq, attempt, err);
    if (!j)
        return leave(s, err->code);
    if (r) {
        put_entry(s, j, r);
        while (s->counts.history > s->max_history)
            cut_entry(s, s->entries);
    } else {
        s->counts.bytes -= store_job_bytes(j);
        struct store_job gone = *j;
        cut_job(s, j);
        store_job_release(&gone);
    }
    return leave(s, BERTH_OK);
}

static berth_status stub_park(struct store_backend *b, uint64_t seq, uint64_t attempt,
                              berth_err *err)
{
    struct stub *s = enter(b);
    struct store_job *j = job_at(s, seq, attempt, err);
    if (!j)
        return leave(s, err->code);
    j->attempt = 0;
    j->attempts--;
    s->counts.running--;
    s->counts.pending++;
    return leave(s, BERTH_OK);
}

static berth_status stub_remove(struct store_backend *b, const char *const *ids, size_t n,
                                size_t *gone, berth_err *err)
{
    struct stub *s = enter(b);
    (void)err;
    *gone = 0;
    for (size_t k = 0; k < (ids ? n : MOST); k++)
        for (size_t i = 0; i < job_count(s); i++) {
            struct store_job j = s->jobs[i];
            if (j.attempt || (ids && strcmp(j.id, ids[k]) != 0))
                continue;
            s->counts.bytes -= store_job_bytes(&j);
            cut_job(s, &s->jobs[i]);
            store_job_release(&j);
            ++*gone;
            break;
        }
    return leave(s, BERTH_OK);
}

static berth_status stub_move(struct store_backend *b, const char *id, const char *before,
                              berth_err *err)
{
    struct stub *s = enter(b);
    struct order_job pending[MOST];
    struct order_change *changes;
    size_t n = 0, changed;
    for (size_t i = 0; i < job_count(s); i++)
        if (!s->jobs[i].attempt)
            pending[n++] = (struct order_job) { s->jobs[i].seq, s->jobs[i].order, s->jobs[i].id };
    if (order_move(pending, n, id, before, &s->counter, &changes, &changed, err))
        return leave(s, err->code);
    for (size_t i = 0; i < changed; i++)
        for (size_t k = 0; k < job_count(s); k++)
            if (s->jobs[k].seq == changes[i].seq) {
                free(s->jobs[k].number);
                s->jobs[k].number = strdup(changes[i].number);
                s->jobs[k].order = changes[i].order;
            }
    free(changes);
    qsort(s->jobs, job_count(s), sizeof *s->jobs, in_order);
    return leave(s, BERTH_OK);
}

static berth_status stub_pause(struct store_backend *b, bool paused, berth_err *err)
{
    struct stub *s = enter(b);
    (void)err;
    s->counts.paused = paused;
    return leave(s, BERTH_OK);
}

static berth_status stub_jobs(struct store_backend *b, const struct store_pick *pick,
                              store_job_fn *fn, void *user, berth_err *err)
{
    struct stub *s = enter(b);
    bool on = true;
    (void)err;
    for (int running = 1; running >= 0; running--)
        for (size_t i = 0; on && i < job_count(s); i++) {
            const struct store_job *j = &s->jobs[i];
            if ((j->attempt != 0) == running && (!pick->seq || j->seq == pick->seq) &&
                (!pick->id || strcmp(j->id, pick->id) == 0))
                on = fn(user, j, running);
        }
    return leave(s, BERTH_OK);
}

/* One at a time, so that no lock is held over fn. */
static bool read_entry(struct stub *s, const struct store_range *r, size_t at,
                       struct stub_entry *out)
{
    enter(&s->base);
    bool there = at < s->counts.history;
    const struct stub_entry *e = &s->entries[there ? at : 0];
    if (there)
        *out = (struct stub_entry) { .outputs = strdup(e->outputs),
                                     .status = strdup(e->status),
                                     .meta = strdup(e->meta) };
    if (there && !store_job_copy(&e->job, &out->job))
        abort();
    leave(s, BERTH_OK);
    (void)r;
    return there;
}

static berth_status stub_entries(struct store_backend *b, const struct store_range *r,
                                 store_entry_fn *fn, void *user, berth_err *err)
{
    struct stub *s = (struct stub *)b;
    struct stub_entry e;
    bool on = true;
    (void)err;
    enter(b);
    size_t n = s->counts.history;
    leave(s, BERTH_OK);
    uint64_t left = r->id ? UINT64_MAX : r->count;
    size_t at = r->id                       ? 0
                : r->newest && r->count < n ? n - (size_t)r->count
                : r->skip < n               ? (size_t)r->skip
                                            : n;
    for (; on && left && read_entry(s, r, at, &e); at++) {
        if (!r->id || strcmp(e.job.id, r->id) == 0) {
            on = fn(user, &(struct store_entry) { e.job, e.outputs, e.status, e.meta }) && !r->id;
            left--;
        }
        store_job_release(&e.job);
        free(e.outputs);
        free(e.status);
        free(e.meta);
    }
    return BERTH_OK;
}

static berth_status stub_forget(struct store_backend *b, const char *const *ids, size_t n,
                                berth_err *err)
{
    struct stub *s = enter(b);
    (void)err;
    for (size_t i = s->counts.history; i--;)
        for (size_t k = 0; k < (ids ? n : 1); k++)
            if (!ids || strcmp(s->entries[i].job.id, ids[k]) == 0) {
                cut_entry(s, &s->entries[i]);
                break;
            }
    return leave(s, BERTH_OK);
}

const struct store_ops store_stub = {
    .name = "stub",
    .open = stub_open,
    .close = stub_close,
    .next_number = stub_next_number,
    .counts = stub_counts,
    .add = stub_add,
    .take = stub_take,
    .renew = stub_renew,
    .finish = stub_finish,
    .park = stub_park,
    .remove = stub_remove,
    .move = stub_move,
    .pause = stub_pause,
    .jobs = stub_jobs,
    .entries = stub_entries,
    .forget = stub_forget,
};
