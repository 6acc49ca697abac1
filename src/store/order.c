/* order: numbers for a pending job that changes its place.
 *
 * The order is that of numbers, as ComfyUI's clients sort by them, then of arrival. So a job that
 * moves gets a number between its new neighbours'. Where there is none, because clients gave
 * several prompts the same number, those behind it are numbered anew too, up to the first one that
 * leaves enough room.
 *
 * A prompt without a number of its own gets the counter's, or that with a minus if it goes first.
 * So the counter stays beyond every number given here, either way: a prompt that comes later runs
 * behind what was moved to the end, and one that comes to the front before what was moved there. */
#include "store/backend.h"

#include <inttypes.h>
#include <math.h>

/* ---- numbers ---- */

/* Whole ones without a point, as the counter gives them; others with as many digits as bring them
 * back exactly. */
static void write_number(double v, char text[40])
{
    if (v == trunc(v) && fabs(v) < 9007199254740992.0) {
        snprintf(text, 40, "%" PRId64, (int64_t)v);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, 40, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
}

/* Strictly between, the simplest: a whole number if there is one. False: there is none. */
static bool between(double a, double b, double *out)
{
    double whole = floor(a) + 1, middle = a / 2 + b / 2;
    *out = whole > a && whole < b ? whole : middle;
    return *out > a && *out < b;
}

/* k numbers above `from`, ascending, and below `to` (INFINITY: no bound): the next whole ones if
 * they fit. False: there are not so many. */
static bool spread(double from, double to, size_t k, struct order_change *out)
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
        out[i].order = last = v;
    }
    return true;
}

/* ---- places ---- */

struct move {
    const struct order_job *jobs;
    size_t n, from, to; /* to: among the others */
    const char *id;
    struct order_change *out; /* room for all */
};

static size_t find(const struct order_job *jobs, size_t n, const char *id)
{
    size_t i = 0;
    while (i < n && strcmp(jobs[i].id, id) != 0)
        i++;
    return i;
}

/* The i-th job without the one that moves. */
static const struct order_job *other(const struct move *m, size_t i)
{
    return &m->jobs[i < m->from ? i : i + 1];
}

/* The job and those behind it, as many as it takes until their numbers fit in front of the next.
 * Each try has twice as many as the last: thousands of numbers without room would otherwise be
 * thousands of tries. */
static berth_status push_behind(const struct move *m, double low, size_t *changed, berth_err *err)
{
    size_t most = m->n - m->to, k = 1; /* it, and all behind its new place */
    for (;; k = k > most / 2 ? most : 2 * k) {
        double next = k == most ? INFINITY : other(m, m->to + k - 1)->order;
        if (next > low && spread(low, next, k, m->out))
            break;
        if (k == most)
            return err_set(err, BERTH_ELIMIT,
                           "prompt '%.80s' cannot move: no number is left behind %g", m->id, low);
    }
    for (size_t i = 1; i < k; i++)
        m->out[i].seq = other(m, m->to + i - 1)->seq;
    *changed = k;
    return BERTH_OK;
}

/* *anchor: the neighbour's number that the new ones come from. */
static berth_status decide(const struct move *m, double *anchor, size_t *changed, berth_err *err)
{
    const struct order_job *prev = m->to ? other(m, m->to - 1) : NULL;
    const struct order_job *next = m->to < m->n - 1 ? other(m, m->to) : NULL;
    double order, low = prev ? prev->order : 0;
    *anchor = prev ? low : next->order; /* there is one, otherwise it would be there already */
    m->out[0].seq = m->jobs[m->from].seq;
    if (!next || (prev && !between(low, next->order, &order)))
        return push_behind(m, low, changed, err);
    if (!prev) {
        order = ceil(next->order) - 1;
        order = order < next->order ? order : nextafter(next->order, -INFINITY);
        if (isinf(order))
            return err_set(err, BERTH_ELIMIT,
                           "prompt '%.80s' cannot move: no number is left before %g", m->id,
                           next->order);
    }
    m->out[0].order = order;
    *changed = 1;
    return BERTH_OK;
}

/* Numbers beside one that a client made up, beyond the counter, are beyond it too: a prompt that
 * comes later runs before them, as before the client's. */
static void raise_counter(const struct order_change *at, size_t n, double anchor, uint64_t *counter)
{
    double top = 0;
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs(at[i].order));
    if (n && fabs(anchor) <= (double)*counter && top >= (double)*counter)
        *counter = (uint64_t)top + 1; /* no more than the queue's length away: it fits */
}

berth_status order_move(const struct order_job *jobs, size_t n, const char *id, const char *before,
                        uint64_t *counter, struct order_change **out, size_t *changed,
                        berth_err *err)
{
    size_t from = find(jobs, n, id), to = before ? find(jobs, n, before) : n;
    *out = NULL;
    *changed = 0;
    if (from == n || (before && to == n))
        return err_set(err, BERTH_ENOTFOUND, "no prompt '%.80s' is waiting",
                       from == n ? id : before);
    to -= to > from;
    if (to == from)
        return BERTH_OK; /* it is there already */
    struct move m = { jobs, n, from, to, id, calloc(n, sizeof *m.out) };
    if (!m.out)
        return err_set(err, BERTH_ENOMEM, "new numbers of %zu prompts", n);
    double anchor;
    if (decide(&m, &anchor, changed, err)) {
        free(m.out);
        return err->code;
    }
    for (size_t i = 0; i < *changed; i++)
        write_number(m.out[i].order, m.out[i].number);
    raise_counter(m.out, *changed, anchor, counter);
    *out = m.out;
    return BERTH_OK;
}
