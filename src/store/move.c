/* move: a pending job changes its place.
 *
 * The order is that of numbers, as ComfyUI's clients sort by them, then of arrival. So a job that
 * moves gets a number between its new neighbours'. Where there is none, because clients gave several
 * prompts the same number, those behind it are numbered anew too, up to the first one that leaves
 * enough room.
 *
 * A prompt without a number of its own gets the counter's, or that with a minus if it goes first. So
 * the counter stays beyond every number given here, either way: who comes later runs behind what was
 * moved to the end, and who comes first before what was moved to the front.
 *
 * Memory and disk must say the same: db is held from the first look until the order in memory is the
 * new one. Meanwhile jobs may leave the queue (taken, deleted) but none is freed, as that needs db. If
 * a job's own change fails it comes back before or after the new order is there, and sorts by the
 * number it has then. New ones may join and change nothing here. */
#include "store/store_impl.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct renumbered {
    struct job *job;
    double order;
    char *number; /* owned */
};

struct move {
    const char *id, *before; /* before NULL: behind all */
    struct renumbered *at;
    size_t n;
    double anchor;    /* the neighbour's number that theirs come from */
    uint64_t counter; /* to be kept, with n */
    berth_status st;  /* why it cannot be, and then n is 0 */
    berth_err err;
};

static void forget(struct move *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->at[i].number);
    free(m->at);
    m->at = NULL;
    m->n = 0;
}

/* ---- numbers ---- */

/* Whole ones without a point, as the counter gives them; others with as many digits as bring them
 * back exactly. */
static char *number_text(double v)
{
    char text[40];
    if (v == trunc(v) && fabs(v) < 9007199254740992.0) {
        snprintf(text, sizeof text, "%" PRId64, (int64_t)v);
        return strdup(text);
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return strdup(text);
}

/* Strictly between, the simplest: a whole number if there is one. False: there is none. */
static bool between(double a, double b, double *out)
{
    double whole = floor(a) + 1, middle = a / 2 + b / 2;
    *out = whole > a && whole < b ? whole : middle;
    return *out > a && *out < b;
}

/* k numbers above `from`, ascending, and below `to` (INFINITY: no bound): the next whole ones if they
 * fit. False: there are not so many. */
static bool spread(double from, double to, size_t k, double *out)
{
    bool whole = floor(from) + (double)k < to;
    double step = whole ? 1 : (to - from) / (double)(k + 1), start = whole ? floor(from) : from;
    double last = from;
    for (size_t i = 0; i < k; i++) {
        double v = start + step * (double)(i + 1);
        if (!(v > last)) /* so far out whole numbers are the same */
            v = nextafter(last, INFINITY);
        if (!(v < to) || isinf(v))
            return false;
        out[i] = last = v;
    }
    return true;
}

/* ---- places ---- */

static berth_status not_waiting(const char *id, berth_err *err)
{
    return err_set(err, BERTH_ENOTFOUND, "no prompt '%.80s' is waiting", id);
}

static size_t find(const struct store *s, const char *id)
{
    size_t i = 0;
    while (i < s->pending.n && strcmp(queue_at(&s->pending, i)->j.id, id) != 0)
        i++;
    return i;
}

/* The i-th of the queue without the job at `without`. */
static struct job *other(const struct store *s, size_t without, size_t i)
{
    return queue_at(&s->pending, i < without ? i : i + 1);
}

static berth_status renumber(struct move *m, struct job *const *job, const double *order, size_t n,
                             berth_err *err)
{
    m->at = calloc(n, sizeof *m->at);
    for (size_t i = 0; m->at && i < n; i++) {
        m->at[i] = (struct renumbered) { job[i], order[i], number_text(order[i]) };
        m->n++;
        if (!m->at[i].number)
            return err_set(err, BERTH_ENOMEM, "new numbers of %zu prompts", n);
    }
    return m->at ? BERTH_OK : err_set(err, BERTH_ENOMEM, "new numbers of %zu prompts", n);
}

/* The job and those behind it, as many as it takes until their numbers fit in front of the next. Each
 * try has twice as many as the last: thousands of numbers without room would else be thousands of
 * tries, under the lock. */
static berth_status push_behind(const struct store *s, struct move *m, size_t from, size_t to,
                                double low, berth_err *err)
{
    size_t others = s->pending.n - 1, most = others - to + 1, k = 1;
    struct job **job = calloc(most, sizeof(*job));
    double *order = calloc(most, sizeof *order);
    if (!job || !order) {
        free(job);
        free(order);
        return err_set(err, BERTH_ENOMEM, "new numbers of %zu prompts", most);
    }
    job[0] = queue_at(&s->pending, from);
    for (size_t i = 1; i < most; i++)
        job[i] = other(s, from, to + i - 1);
    bool fits = false;
    for (;; k = k > most / 2 ? most : 2 * k) {
        double next = k == most ? INFINITY : job[k]->j.order;
        fits = next > low && spread(low, next, k, order);
        if (fits || k == most)
            break;
    }
    berth_status st =
        fits ? renumber(m, job, order, k, err)
             : err_set(err, BERTH_ELIMIT, "prompt '%.80s' cannot move: no number is left behind %g",
                       m->id, low);
    free(job);
    free(order);
    return st;
}

/* Who gets which number. Under the lock. */
static berth_status decide(const struct store *s, struct move *m, berth_err *err)
{
    size_t n = s->pending.n, from = find(s, m->id), to = m->before ? find(s, m->before) : n;
    if (from == n || (m->before && to == n))
        return not_waiting(from == n ? m->id : m->before, err);
    to -= to > from; /* among the others */
    if (to == from)
        return BERTH_OK; /* it is there already */
    struct job *job = queue_at(&s->pending, from);
    const struct job *prev = to ? other(s, from, to - 1) : NULL;
    const struct job *next = to < n - 1 ? other(s, from, to) : NULL;
    double order, low = prev ? prev->j.order : 0;
    m->anchor = prev ? low : next->j.order; /* there is one: else it would be there already */
    if (!next || (prev && !between(low, next->j.order, &order)))
        return push_behind(s, m, from, to, low, err);
    if (!prev) {
        order = ceil(next->j.order) - 1;
        order = order < next->j.order ? order : nextafter(next->j.order, -INFINITY);
        if (isinf(order))
            return err_set(err, BERTH_ELIMIT,
                           "prompt '%.80s' cannot move: no number is left before %g", m->id,
                           next->j.order);
    }
    return renumber(m, &job, &order, 1, err);
}

/* ---- both at once ---- */

/* Under the lock. Numbers beside one that a client made up, beyond the counter, are beyond it too: who
 * comes later runs before them, as before the client's. */
static void raise_counter(struct store *s, struct move *m)
{
    double top = 0;
    for (size_t i = 0; i < m->n; i++)
        top = fmax(top, fabs(m->at[i].order));
    if (m->n && fabs(m->anchor) <= (double)s->counter && top >= (double)s->counter)
        s->counter = (uint64_t)top + 1; /* no more than the queue's length away: it fits */
    m->counter = s->counter;
}

static berth_status tx_move(struct store *s, void *arg, berth_err *err)
{
    struct move *m = arg;
    forget(m); /* of a try before */
    pthread_mutex_lock(&s->lock);
    m->st = decide(s, m, &m->err);
    if (m->st)
        forget(m);
    raise_counter(s, m);
    pthread_mutex_unlock(&s->lock);
    if (m->n && tx_meta(s, "counter", (int64_t)m->counter, err))
        return err->code;
    for (size_t i = 0; i < m->n; i++)
        if (tx_job_move(s, m->at[i].job->j.seq, m->at[i].order, m->at[i].number, err))
            return err->code;
    return BERTH_OK;
}

static int compare(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;
    return job_before(&x->j, &y->j) ? -1 : job_before(&y->j, &x->j);
}

/* Under the lock. Also of those that were taken or are being deleted meanwhile: they may come back.
 * Who reads a running job's number without the lock has db. */
static void apply(struct store *s, struct move *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct job *j = m->at[i].job;
        char *old = j->j.number;
        j->j.order = m->at[i].order;
        j->j.number = m->at[i].number;
        m->at[i].number = old;
        size_t bytes = job_bytes(&j->j);
        s->bytes = s->bytes - j->bytes + bytes;
        j->bytes = bytes;
    }
    if (m->n)
        qsort(s->pending.at + s->pending.head, s->pending.n, sizeof *s->pending.at, compare);
}

berth_status store_move(struct store *s, const char *id, const char *before, berth_err *err)
{
    struct move m = { .id = id, .before = before };
    pthread_mutex_lock(&s->db);
    berth_status st = tx_do_held(s, tx_move, NULL, &m, err);
    if (!st) {
        pthread_mutex_lock(&s->lock);
        apply(s, &m);
        if (m.n && m.at[0].job == s->running) /* too late */
            m.st = not_waiting(id, &m.err);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&s->db);
    forget(&m);
    if (!st && m.st)
        *err = m.err;
    return st ? st : m.st;
}
