#include "store/store_impl.h"

#include "base/json.h"
#include "base/map.h"
#include "base/sz.h"

#include <errno.h>

/* ---- jobs ---- */

void store_job_release(struct store_job *j)
{
    free(j->id);
    free(j->number);
    free(j->prompt);
    free(j->extra_data);
    free(j->outputs);
    free(j->client_id);
    *j = (struct store_job) { 0 };
}

struct job *job_new(void)
{
    struct job *j = calloc(1, sizeof *j);
    if (j)
        atomic_init(&j->refs, 1);
    return j;
}

void job_unref(struct job *j)
{
    if (!j || atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1)
        return;
    store_job_release(&j->j);
    free(j);
}

size_t job_bytes(const struct store_job *j)
{
    return strlen(j->id) + strlen(j->number) + strlen(j->prompt) + strlen(j->extra_data) +
           strlen(j->outputs) + (j->client_id ? strlen(j->client_id) : 0);
}

static bool copy_text(const char *from, char **to)
{
    *to = from ? strdup(from) : NULL;
    return !from == !*to;
}

bool job_copy(const struct store_job *from, struct store_job *to)
{
    *to = (struct store_job) { .order = from->order,
                               .seq = from->seq,
                               .attempts = from->attempts,
                               .created_ms = from->created_ms };
    if (copy_text(from->id, &to->id) && copy_text(from->number, &to->number) &&
        copy_text(from->prompt, &to->prompt) && copy_text(from->extra_data, &to->extra_data) &&
        copy_text(from->outputs, &to->outputs) && copy_text(from->client_id, &to->client_id))
        return true;
    store_job_release(to);
    return false;
}

/* ---- the sorted array ---- */

struct job *queue_at(const struct queue *q, size_t i)
{
    return q->at[q->head + i];
}

bool queue_reserve(struct queue *q, size_t total)
{
    size_t bytes, cap = q->cap < 16 ? 16 : q->cap;
    if (total <= q->cap)
        return true;
    while (cap < total)
        if (!sz_mul(cap, 2, &cap))
            return false;
    if (!sz_mul(cap, sizeof *q->at, &bytes))
        return false;
    struct job **p = realloc(q->at, bytes);
    if (!p)
        return false;
    q->at = p;
    q->cap = cap;
    return true;
}

bool job_before(const struct store_job *a, const struct store_job *b)
{
    return a->order < b->order || (a->order == b->order && a->seq < b->seq);
}

/* The usual ones are cheap: at the end, and back to the front. */
void queue_insert(struct queue *q, struct job *j)
{
    size_t lo = 0, hi = q->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (job_before(&queue_at(q, mid)->j, &j->j))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (q->head + q->n == q->cap && q->head) {
        memmove(q->at, q->at + q->head, q->n * sizeof *q->at);
        q->head = 0;
    }
    if (q->head && lo < q->n / 2) {
        q->head--;
        memmove(q->at + q->head, q->at + q->head + 1, lo * sizeof *q->at);
    } else {
        struct job **p = q->at + q->head + lo;
        memmove(p + 1, p, (q->n - lo) * sizeof *q->at);
    }
    q->at[q->head + lo] = j;
    q->n++;
}

struct job *queue_remove(struct queue *q, size_t i)
{
    struct job *j = queue_at(q, i);
    if (i == 0) {
        q->head++;
    } else {
        struct job **p = q->at + q->head + i;
        memmove(p, p + 1, (q->n - i - 1) * sizeof *q->at);
    }
    if (!--q->n)
        q->head = 0;
    return j;
}

/* ---- in ---- */

uint64_t store_next_number(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->counter++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Under the lock. Makes room in memory for every job there is, so that one can go back. */
static berth_status admit(struct store *s, size_t bytes, berth_err *err)
{
    size_t waiting = s->pending.n + s->arriving;
    if (waiting >= s->max_pending)
        return err_set(err, BERTH_ELIMIT, "%zu prompts wait, and no more than %zu may", waiting,
                       s->max_pending);
    if (bytes > s->max_bytes || s->bytes > s->max_bytes - bytes)
        return err_set(err, BERTH_ELIMIT,
                       "%zu prompts hold %zu bytes, and with %zu more it would be over %zu",
                       waiting, s->bytes, bytes, s->max_bytes);
    if (!queue_reserve(&s->pending, waiting + 2))
        return err_set(err, BERTH_ENOMEM, "a queue of %zu prompts", waiting + 1);
    return BERTH_OK;
}

berth_status store_add(struct store *s, struct store_job *job, store_done_fn *done, void *user,
                       berth_err *err)
{
    struct job *j = job_new();
    if (!j || !(job->order <= 0 || job->order > 0)) {
        berth_status st = !j ? err_set(err, BERTH_ENOMEM, "a prompt")
                             : err_set(err, BERTH_EINVAL, "the number '%s' is none", job->number);
        job_unref(j);
        store_job_release(job);
        return st;
    }
    j->j = *job;
    *job = (struct store_job) { 0 };
    j->bytes = job_bytes(&j->j);
    j->done = done;
    j->user = user;
    j->j.attempts = 0;
    if (!j->j.created_ms)
        j->j.created_ms = (int64_t)(clock_wall_ns(s->clock) / 1000000);
    pthread_mutex_lock(&s->lock);
    berth_status st = admit(s, j->bytes, err);
    if (!st) {
        j->j.seq = ++s->seq;
        s->bytes += j->bytes;
        s->arriving++;
        *s->last = j;
        s->last = &j->next;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (st)
        job_unref(j);
    return st;
}

/* ---- through ---- */

/* Waits on `ready` until the deadline of the store's clock. False: it has passed. */
static bool wait_until(struct store *s, uint64_t deadline_ns)
{
    uint64_t now = clock_mono_ns(s->clock);
    if (deadline_ns == UINT64_MAX)
        return !pthread_cond_wait(&s->ready, &s->lock);
    if (now >= deadline_ns)
        return false;
    uint64_t real = clock_mono_ns(clock_system()), left = deadline_ns - now;
    uint64_t end = real > UINT64_MAX - left ? UINT64_MAX : real + left;
    struct timespec t = { .tv_sec = (time_t)(end / 1000000000),
                          .tv_nsec = (long)(end % 1000000000) };
    pthread_cond_timedwait(&s->ready, &s->lock, &t);
    return true; /* whether it was time is asked again */
}

static bool can_take(const struct store *s)
{
    return !s->paused && s->pending.n && queue_at(&s->pending, 0)->j.seq <= s->told_seq;
}

struct taking {
    const struct job *job;
    struct oomkill oom;
};

static berth_status tx_take(struct store *s, void *arg, berth_err *err)
{
    const struct taking *t = arg;
    return tx_oom_mark(s, &t->oom, err)
               ? err->code
               : tx_job_set(s, t->job->j.seq, t->job->j.attempts, true, err);
}

/* Out of `running`, back to its place. */
static void put_back(struct store *s, struct job *j)
{
    pthread_mutex_lock(&s->lock);
    j->j.attempts--;
    s->running = NULL;
    queue_insert(&s->pending, j);
    pthread_mutex_unlock(&s->lock);
}

berth_status store_take(struct store *s, uint64_t deadline_ns, struct store_job *out, bool *got,
                        berth_err *err)
{
    struct job *j = NULL;
    berth_status st = BERTH_OK;
    *out = (struct store_job) { 0 };
    *got = false;
    pthread_mutex_lock(&s->lock);
    if (s->running)
        st = err_set(err, BERTH_EBUSY, "prompt '%s' is running", s->running->j.id);
    while (!st && !s->wake && !can_take(s) && wait_until(s, deadline_ns))
        ;
    if (!st && s->wake) {
        s->wake = false;
    } else if (!st && can_take(s)) {
        j = queue_at(&s->pending, 0);
        if (job_copy(&j->j, out)) {
            s->running = queue_remove(&s->pending, 0);
            out->attempts = ++j->j.attempts;
        } else {
            st = err_set(err, BERTH_ENOMEM, "prompt '%s'", j->j.id);
            j = NULL;
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (!j)
        return st;
    struct taking t = { .job = j };
    oomkill_read(s->root, &t.oom);
    st = tx_do(s, tx_take, &t, err);
    if (st) {
        put_back(s, j);
        store_job_release(out);
        return st;
    }
    s->oom = t.oom;
    *got = true;
    return BERTH_OK;
}

void store_wake(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->wake = true;
    pthread_cond_broadcast(&s->ready);
    pthread_mutex_unlock(&s->lock);
}

/* The running job, whose texts nobody changes while it runs. */
static struct job *get_running(struct store *s, berth_err *err)
{
    pthread_mutex_lock(&s->lock);
    struct job *j = s->running;
    pthread_mutex_unlock(&s->lock);
    if (!j)
        err_set(err, BERTH_EINVAL, "no prompt is running");
    return j;
}

struct finish {
    struct job *j;
    const struct store_result *r;
};

static berth_status tx_finish(struct store *s, void *arg, berth_err *err)
{
    const struct finish *f = arg;
    return tx_entry(s, &f->j->j, f->r, err) ? err->code : tx_job_drop(s, f->j->j.seq, err);
}

/* An older end of the same prompt that was not written yet is overwritten by this one. */
static bool finish_covers(const void *arg, const struct debt *d)
{
    const struct finish *f = arg;
    return strcmp(d->e.job.id, f->j->j.id) == 0;
}

/* For an entry that could not be written; its job's texts come later. NULL: no memory either, then
 * the job is in the database only and runs again with the next start. */
static struct debt *make_debt(struct store *s, const struct job *j, const struct store_result *r)
{
    struct debt *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->known = history_has(s, j->j.id);
    if (!copy_text(r->outputs, &d->e.outputs) || !copy_text(r->status, &d->e.status) ||
        !copy_text(r->meta, &d->e.meta)) {
        debt_free(d);
        return NULL;
    }
    return d;
}

berth_status store_finish(struct store *s, const struct store_result *r, berth_err *err)
{
    struct job *j = get_running(s, err);
    if (!j)
        return err->code;
    struct finish f = { j, r };
    size_t bytes = j->bytes + strlen(r->outputs) + strlen(r->status) + strlen(r->meta);
    berth_status st = tx_grow(s, tx_finish, finish_covers, &f, bytes, err);
    struct debt *d = st ? make_debt(s, j, r) : NULL;
    pthread_mutex_lock(&s->lock); /* until here others may look at the running job */
    s->running = NULL;
    s->bytes -= j->bytes;
    if (d) {
        struct debt **end = &s->debts;
        for (; *end; end = &(*end)->next)
            d->known |= strcmp((*end)->e.job.id, j->j.id) == 0;
        d->e.job = j->j;
        d->owner = j;
        d->bytes = bytes;
        *end = d;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (!d)
        job_unref(j);
    return st;
}

static berth_status tx_park(struct store *s, void *arg, berth_err *err)
{
    const struct job *j = arg;
    return tx_job_set(s, j->j.seq, j->j.attempts - 1, false, err);
}

berth_status store_park(struct store *s, berth_err *err)
{
    struct job *j = get_running(s, err);
    if (!j || tx_do(s, tx_park, j, err))
        return err->code;
    put_back(s, j);
    return BERTH_OK;
}

/* ---- out ---- */

struct victims { /* pending jobs on their way out, linked by next */
    struct job *first;
    size_t n;
};

static berth_status tx_drop(struct store *s, void *arg, berth_err *err)
{
    const struct victims *v = arg;
    for (const struct job *j = v->first; j; j = j->next)
        if (tx_job_drop(s, j->j.seq, err))
            return err->code;
    return BERTH_OK;
}

/* They are out of the queue already; when that cannot be written they come back. */
static size_t drop(struct store *s, struct victims *v, berth_err *err)
{
    if (!v->n)
        return 0;
    berth_status st = tx_do_making_room(s, tx_drop, NULL, v, err);
    pthread_mutex_lock(&s->lock);
    for (struct job *j = v->first, *next; j; j = next) {
        next = j->next;
        j->next = NULL;
        if (st) {
            queue_insert(&s->pending, j);
            continue;
        }
        s->bytes -= j->bytes;
        job_unref(j);
    }
    s->arriving -= v->n; /* had kept their room */
    pthread_mutex_unlock(&s->lock);
    return st ? 0 : v->n;
}

static void pull(struct store *s, struct job *j, struct victims *v) /* under the lock */
{
    j->next = v->first;
    v->first = j;
    v->n++;
    s->arriving++;
}

/* How often each id was asked for. */
static bool count_ids(const char *const *ids, size_t n, struct map *m)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t k = 0;
        size_t len = strlen(ids[i]);
        map_get(m, ids[i], len, &k);
        if (k ? !map_set(m, ids[i], len, k + 1) : map_add(m, ids[i], len, 1) == MAP_NOMEM)
            return false;
    }
    return true;
}

/* Under the lock. The first match goes for each time that an id was asked for. */
static void pull_counted(struct store *s, struct map *want, struct victims *v)
{
    struct queue *q = &s->pending;
    size_t n = q->n, kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct job *j = queue_at(q, i);
        size_t len = strlen(j->j.id);
        uint64_t k;
        if (map_get(want, j->j.id, len, &k) && k) {
            map_set(want, j->j.id, len, k - 1);
            pull(s, j, v);
        } else {
            q->at[q->head + kept++] = j;
        }
    }
    q->n = kept;
}

size_t store_delete(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    struct map want = { .seed = (uint64_t)(uintptr_t)s };
    struct victims v = { 0 };
    err->code = BERTH_OK;
    if (!count_ids(ids, n, &want)) {
        err_set(err, BERTH_ENOMEM, "%zu prompt ids", n);
        map_release(&want);
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    pull_counted(s, &want, &v);
    pthread_mutex_unlock(&s->lock);
    map_release(&want);
    return drop(s, &v, err);
}

size_t store_clear(struct store *s, berth_err *err)
{
    struct victims v = { 0 };
    err->code = BERTH_OK;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->pending.n; i++)
        pull(s, queue_at(&s->pending, i), &v);
    s->pending.n = s->pending.head = 0;
    pthread_mutex_unlock(&s->lock);
    return drop(s, &v, err);
}

static berth_status tx_pause(struct store *s, void *arg, berth_err *err)
{
    return tx_meta(s, "paused", *(const bool *)arg, err);
}

static bool set_paused(struct store *s, bool paused) /* what it was */
{
    pthread_mutex_lock(&s->lock);
    bool before = s->paused;
    s->paused = paused;
    pthread_cond_broadcast(&s->ready);
    pthread_mutex_unlock(&s->lock);
    return before;
}

berth_status store_pause(struct store *s, bool paused, berth_err *err)
{
    bool before = set_paused(s, paused);
    berth_status st = tx_do(s, tx_pause, &paused, err);
    if (st)
        set_paused(s, before);
    return st;
}

bool store_paused(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    bool p = s->paused;
    pthread_mutex_unlock(&s->lock);
    return p;
}
