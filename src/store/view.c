/* view: the queue as others see it. One prompt may have megabytes and a queue thousands of them, so
 * the lock is held only to take references; texts are written without it, and nobody who adds, takes
 * or asks for a number waits meanwhile. */
#include "store/store_impl.h"

#include "base/json.h"
#include "base/sz.h"

size_t store_pending(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    size_t n = s->pending.n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

size_t store_remaining(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    size_t n = s->pending.n + (s->running != NULL);
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool store_running_id(struct store *s, struct str *id)
{
    pthread_mutex_lock(&s->lock);
    bool any = s->running != NULL;
    if (any)
        str_adds(id, s->running->j.id);
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* ---- at one moment ---- */

struct seen {           /* one job */
    struct job *job;    /* referenced */
    struct store_job j; /* its texts, but the number, which is elsewhere */
    size_t number_at;   /* in view.numbers */
};

struct view {
    struct seen *at;
    size_t n;
    bool running;       /* the first one is */
    struct str numbers; /* each with its NUL: a move would change them */
};

static void see(struct view *v, struct job *j) /* under the lock; there is room */
{
    struct seen *x = &v->at[v->n++];
    atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
    *x = (struct seen) { .job = j, .j = j->j, .number_at = v->numbers.n };
    str_add(&v->numbers, j->j.number, strlen(j->j.number) + 1);
}

static void view_release(struct view *v)
{
    for (size_t i = 0; i < v->n; i++)
        job_unref(v->at[i].job);
    free(v->at);
    str_release(&v->numbers);
    *v = (struct view) { 0 };
}

/* The room for all is had without the lock, so it may have to be had again. */
static bool view_take(struct store *s, struct view *v)
{
    size_t cap = 0, bytes, wanted;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        wanted = s->pending.n + (s->running != NULL);
        if (wanted <= cap)
            break;
        pthread_mutex_unlock(&s->lock);
        free(v->at);
        cap = wanted + 16;
        v->at = sz_mul(cap, sizeof *v->at, &bytes) ? malloc(bytes) : NULL;
        if (!v->at)
            return false;
    }
    v->running = s->running != NULL;
    if (s->running)
        see(v, s->running);
    for (size_t i = 0; i < s->pending.n; i++)
        see(v, queue_at(&s->pending, i));
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < v->n && !v->numbers.bad; i++)
        v->at[i].j.number = v->numbers.p + v->at[i].number_at;
    return !v->numbers.bad;
}

bool store_each_job(struct store *s, store_job_fn *fn, void *user)
{
    struct view v = { 0 };
    bool ok = view_take(s, &v), on = ok;
    for (size_t i = 0; on && i < v.n; i++)
        on = fn(user, &v.at[i].j, v.running && !i);
    view_release(&v);
    return ok;
}

/* ---- as texts ---- */

void job_json(const struct store_job *j, struct str *out)
{
    str_addc(out, '[');
    str_adds(out, j->number);
    str_addc(out, ',');
    js_write_string(j->id, strlen(j->id), out);
    str_addc(out, ',');
    str_adds(out, j->prompt);
    str_addc(out, ',');
    str_adds(out, j->extra_data);
    str_addc(out, ',');
    str_adds(out, j->outputs);
    str_addc(out, ']');
}

struct listing {
    struct str *out;
    bool pending; /* the second list has begun */
    bool any;     /* in the current one */
};

static bool list_job(void *user, const struct store_job *j, bool running)
{
    struct listing *l = user;
    if (!running && !l->pending) {
        str_adds(l->out, "],\"queue_pending\":[");
        l->pending = true;
        l->any = false;
    }
    if (l->any)
        str_addc(l->out, ',');
    l->any = true;
    job_json(j, l->out);
    return !l->out->bad;
}

void store_queue_json(struct store *s, struct str *out)
{
    struct listing l = { .out = out };
    str_adds(out, "{\"queue_running\":[");
    out->bad |= !store_each_job(s, list_job, &l);
    str_adds(out, l.pending ? "]}" : "],\"queue_pending\":[]}");
}

/* ---- one of them ---- */

bool store_job_get(struct store *s, const char *id, struct store_job *out, bool *running)
{
    struct job *j = NULL;
    struct str number = { 0 };
    *out = (struct store_job) { 0 };
    pthread_mutex_lock(&s->lock);
    if (s->running && strcmp(s->running->j.id, id) == 0)
        j = s->running;
    *running = j != NULL;
    for (size_t i = 0; !j && i < s->pending.n; i++)
        if (strcmp(queue_at(&s->pending, i)->j.id, id) == 0)
            j = queue_at(&s->pending, i);
    struct store_job seen = { 0 };
    if (j) {
        atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
        str_adds(&number, j->j.number);
        seen = j->j;
    }
    pthread_mutex_unlock(&s->lock);
    seen.number = number.p;
    bool got = j && !number.bad && job_copy(&seen, out);
    job_unref(j);
    str_release(&number);
    return got;
}
