#include "store/store_impl.h"

enum { MAX_PENDING = 10000, MAX_HISTORY = 10000, SOON_NS = 10000000 };

/* ---- life ---- */

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

/* The backend of a path; *path becomes what it is to open. A word and a colon name one: a typing
 * error must not become a file of that name, with an empty queue in it. */
static berth_status find_backend(const char **path, const struct store_ops **out, berth_err *err)
{
    size_t n = strspn(*path, "abcdefghijklmnopqrstuvwxyz");
    *out = store_backends[0];
    if (n < 2 || (*path)[n] != ':')
        return BERTH_OK;
    for (size_t i = 0; store_backends[i]; i++)
        if (strlen(store_backends[i]->name) == n && !strncmp(*path, store_backends[i]->name, n)) {
            *path += n + 1;
            *out = store_backends[i];
            return BERTH_OK;
        }
    return err_set(err, BERTH_EINVAL,
                   "'%.80s': there is no kind of store called '%.*s'; a file of that name is "
                   "'./%.80s'",
                   *path, (int)(n < 40 ? n : 40), *path, *path);
}

static struct store_config fill_in(const struct store_config *from)
{
    struct store_config c = *from;
    c.max_pending = c.max_pending ? c.max_pending : MAX_PENDING;
    c.max_history = c.max_history ? c.max_history : MAX_HISTORY;
    c.max_bytes = c.max_bytes ? c.max_bytes : (size_t)1 << 30;
    c.max_file = c.max_file ? c.max_file : (uint64_t)2 << 30;
    c.clock = c.clock ? c.clock : clock_system();
    c.root = c.root ? c.root : "";
    return c;
}

static struct store *store_new(const struct store_config *cfg)
{
    struct store *s = calloc(1, sizeof *s);
    if (!s || !make_conds(s)) {
        free(s);
        return NULL;
    }
    s->max_pending = cfg->max_pending;
    s->max_bytes = cfg->max_bytes;
    s->log = cfg->log;
    s->clock = cfg->clock;
    s->last = &s->first;
    s->due = UINT64_MAX;
    pthread_mutex_init(&s->settling, NULL);
    pthread_mutex_init(&s->admitting, NULL);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

berth_status store_open(const struct store_config *given, struct store **out, berth_err *err)
{
    struct store_config cfg = fill_in(given);
    const struct store_ops *ops;
    *out = NULL;
    if (find_backend(&cfg.path, &ops, err))
        return err->code;
    struct store *s = store_new(&cfg);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "a store for '%s'", cfg.path);
    s->ops = ops;
    if (s->ops->open(&cfg, &s->b, err)) {
        store_close(s);
        return err_add(err, "opening the queue");
    }
    struct store_counts c;
    s->ops->counts(s->b, &c);
    s->told_seq = s->counted_seq = c.last_seq;
    if (adder_start(s, err)) {
        store_close(s);
        return err_add(err, "opening the queue");
    }
    log_info(s->log, "store.open", "pending=%zu history=%zu paused=%d path=%s", c.pending,
             c.history, c.paused, given->path);
    *out = s;
    return BERTH_OK;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    if (s->started)
        adder_stop(s);
    if (s->b)
        s->ops->close(s->b);
    for (struct owed *o; (o = s->owed);) { /* still jobs for the backend: they run again */
        s->owed = o->next;
        owed_unref(o);
    }
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->settling);
    pthread_mutex_destroy(&s->admitting);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void store_poke(struct store *s)
{
    uint64_t soon = clock_mono_ns(clock_system()) + SOON_NS;
    pthread_mutex_lock(&s->lock);
    if (s->due > soon && !s->poked) {
        s->poked = true;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

/* A job may be there for store_take() that was not before. */
static void more_to_take(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->changes++;
    pthread_cond_broadcast(&s->ready);
    pthread_mutex_unlock(&s->lock);
}

/* ---- in ---- */

uint64_t store_next_number(struct store *s)
{
    return s->ops->next_number(s->b);
}

/* Under admitting, so that nothing arrives between the two counts. Jobs that the backend was given
 * since the last batch was counted are in both, so their bytes count twice for that moment: the
 * loop, which asks, must not wait for the disk. */
static berth_status admit(struct store *s, size_t bytes, berth_err *err)
{
    struct store_counts c;
    pthread_mutex_lock(&s->lock);
    size_t waiting = s->arriving, held = s->arriving_bytes;
    uint64_t counted = s->counted_seq;
    pthread_mutex_unlock(&s->lock);
    s->ops->counts(s->b, &c);
    waiting -= c.last_seq - counted < waiting ? (size_t)(c.last_seq - counted) : waiting;
    waiting += c.pending;
    held += c.bytes;
    if (waiting >= s->max_pending)
        return err_set(err, BERTH_ELIMIT, "%zu prompts wait, and no more than %zu may", waiting,
                       s->max_pending);
    if (bytes > s->max_bytes || held > s->max_bytes - bytes)
        return err_set(err, BERTH_ELIMIT,
                       "%zu prompts hold %zu bytes, and with %zu more it would be over %zu",
                       waiting, held, bytes, s->max_bytes);
    return BERTH_OK;
}

static berth_status arrive(struct store *s, struct arrival *a, berth_err *err)
{
    pthread_mutex_lock(&s->admitting);
    berth_status st = admit(s, a->bytes, err);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        s->arriving++;
        s->arriving_bytes += a->bytes;
        *s->last = a;
        s->last = &a->next;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->admitting);
    return st;
}

berth_status store_add(struct store *s, struct store_job *job, store_done_fn *done, void *user,
                       berth_err *err)
{
    struct arrival *a = calloc(1, sizeof *a);
    if (!a || !(job->order <= 0 || job->order > 0)) {
        berth_status st = !a ? err_set(err, BERTH_ENOMEM, "a prompt")
                             : err_set(err, BERTH_EINVAL, "the number '%s' is none", job->number);
        free(a);
        store_job_release(job);
        return st;
    }
    *a =
        (struct arrival) { .job = *job, .bytes = store_job_bytes(job), .done = done, .user = user };
    *job = (struct store_job) { 0 };
    a->job.attempt = a->job.attempts = 0;
    if (!a->job.created_ms)
        a->job.created_ms = (int64_t)(clock_wall_ns(s->clock) / 1000000);
    berth_status st = arrive(s, a, err);
    if (st) {
        store_job_release(&a->job);
        free(a);
    }
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

/* Under the lock, and back under it. */
static berth_status wait_and_take(struct store *s, uint64_t *wakes, uint64_t deadline_ns,
                                  struct store_job *out, bool *got, berth_err *err)
{
    while (s->wakes == *wakes) {
        uint64_t seen = s->changes, upto = s->told_seq;
        pthread_mutex_unlock(&s->lock);
        berth_status st = s->ops->take(s->b, upto, out, got, err);
        pthread_mutex_lock(&s->lock);
        if (st || *got)
            return st;
        if (s->changes == seen && s->wakes == *wakes && !wait_until(s, deadline_ns))
            return BERTH_OK;
    }
    *wakes = s->wakes;
    return BERTH_OK;
}

berth_status store_take(struct store *s, uint64_t *wakes, uint64_t deadline_ns,
                        struct store_job *out, bool *got, berth_err *err)
{
    *out = (struct store_job) { 0 };
    *got = false;
    pthread_mutex_lock(&s->lock);
    berth_status st = wait_and_take(s, wakes, deadline_ns, out, got, err);
    pthread_mutex_unlock(&s->lock);
    if (*got)
        store_poke(s);
    return st;
}

void store_wake(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->wakes++;
    pthread_cond_broadcast(&s->ready);
    pthread_mutex_unlock(&s->lock);
}

berth_status store_renew(struct store *s, uint64_t seq, uint64_t attempt, berth_err *err)
{
    return owed_has(s, seq) ? store_stale(seq, attempt, 0, err)
                            : s->ops->renew(s->b, seq, attempt, err);
}

static bool copy_id(void *user, const struct store_job *j, bool running)
{
    (void)running;
    str_adds(user, j->id);
    return false;
}

berth_status store_finish(struct store *s, uint64_t seq, uint64_t attempt,
                          const struct store_result *r, berth_err *err)
{
    struct store_pick p = { .seq = seq, .parts = STORE_BRIEF };
    struct str id = { 0 };
    berth_err ignored;
    if (owed_has(s, seq))
        return store_stale(seq, attempt, 0, err);
    pthread_mutex_lock(&s->settling);
    if (owed_any(s)) /* an older end of the same prompt may be among them */
        s->ops->jobs(s->b, &p, copy_id, &id, &ignored);
    berth_status st = s->ops->finish(s->b, seq, attempt, r, err);
    if (!st && id.n)
        owed_drop(s, str_c(&id));
    if (st && st != BERTH_EINVAL)
        owed_add(s, seq, attempt, r);
    pthread_mutex_unlock(&s->settling);
    str_release(&id);
    store_poke(s);
    return st;
}

berth_status store_park(struct store *s, uint64_t seq, uint64_t attempt, berth_err *err)
{
    if (owed_has(s, seq))
        return store_stale(seq, attempt, 0, err);
    berth_status st = s->ops->park(s->b, seq, attempt, err);
    if (st)
        return st;
    more_to_take(s);
    store_poke(s);
    return BERTH_OK;
}

/* ---- out ---- */

size_t store_delete(struct store *s, const char *const *ids, size_t n, berth_err *err)
{
    size_t gone = 0;
    err->code = BERTH_OK;
    if (s->ops->remove(s->b, ids, n, &gone, err))
        return 0;
    store_poke(s);
    return gone;
}

size_t store_clear(struct store *s, berth_err *err)
{
    return store_delete(s, NULL, 0, err);
}

berth_status store_move(struct store *s, const char *id, const char *before, berth_err *err)
{
    berth_status st = s->ops->move(s->b, id, before, err);
    store_poke(s);
    return st;
}

berth_status store_pause(struct store *s, bool paused, berth_err *err)
{
    berth_status st = s->ops->pause(s->b, paused, err);
    more_to_take(s);
    store_poke(s);
    return st;
}

/* ---- seen ---- */

bool store_paused(struct store *s)
{
    struct store_counts c;
    s->ops->counts(s->b, &c);
    return c.paused;
}

size_t store_pending(struct store *s)
{
    struct store_counts c;
    s->ops->counts(s->b, &c);
    return c.pending;
}

/* Those that run, without those whose end is known and could not be written yet. */
static size_t count_running(struct store *s, const struct store_counts *c)
{
    size_t ended = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct owed *o = s->owed; o; o = o->next)
        ended++;
    pthread_mutex_unlock(&s->lock);
    return c->running > ended ? c->running - ended : 0;
}

size_t store_running(struct store *s)
{
    struct store_counts c;
    s->ops->counts(s->b, &c);
    return count_running(s, &c);
}

size_t store_remaining(struct store *s)
{
    struct store_counts c;
    s->ops->counts(s->b, &c);
    return c.pending + count_running(s, &c);
}

struct looking { /* at the jobs that have not ended */
    struct store *s;
    store_job_fn *fn;
    void *user;
};

static bool look(void *user, const struct store_job *j, bool running)
{
    const struct looking *l = user;
    return (running && owed_has(l->s, j->seq)) || l->fn(l->user, j, running);
}

static berth_status each(struct store *s, const struct store_pick *pick, store_job_fn *fn,
                         void *user, berth_err *err)
{
    struct looking l = { s, fn, user };
    return s->ops->jobs(s->b, pick, look, &l, err) ? err_add(err, "reading the queue") : BERTH_OK;
}

berth_status store_each_job(struct store *s, bool extra_data, store_job_fn *fn, void *user,
                            berth_err *err)
{
    struct store_pick all = { .parts = extra_data ? STORE_BRIEF_EXTRA : STORE_BRIEF };
    return each(s, &all, fn, user, err);
}

struct listing {
    struct jsonout json;
    bool pending; /* the second list has begun */
};

static void list_pending(struct listing *l)
{
    jo_close(&l->json, ']');
    jo_open(&l->json, "queue_pending", '[');
    l->pending = true;
}

static bool list_job(void *user, const struct store_job *j, bool running)
{
    struct listing *l = user;
    if (!running && !l->pending)
        list_pending(l);
    job_json(&l->json, NULL, j);
    return !l->json.out->bad;
}

berth_status store_queue_json(struct store *s, struct str *out, berth_err *err)
{
    struct listing l = { .json.out = out };
    struct store_pick all = { .parts = STORE_WHOLE };
    jo_open(&l.json, NULL, '{');
    jo_open(&l.json, "queue_running", '[');
    if (each(s, &all, list_job, &l, err))
        return err->code;
    if (!l.pending)
        list_pending(&l);
    jo_close(&l.json, ']');
    jo_close(&l.json, '}');
    return out->bad ? err_set(err, BERTH_ENOMEM, "%zu bytes of the queue", out->n) : BERTH_OK;
}

struct one_job {
    struct store_job *out;
    bool *running, got;
};

static bool copy_job(void *user, const struct store_job *j, bool running)
{
    struct one_job *o = user;
    *o->running = running;
    o->got = store_job_copy(j, o->out);
    return false;
}

bool store_job_get(struct store *s, const char *id, struct store_job *out, bool *running)
{
    struct one_job o = { out, running, false };
    struct store_pick p = { .id = id, .parts = STORE_WHOLE };
    berth_err ignored;
    *out = (struct store_job) { 0 };
    *running = false;
    return !each(s, &p, copy_job, &o, &ignored) && o.got;
}
