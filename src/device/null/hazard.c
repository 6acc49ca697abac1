/* hazard: who touched which bytes, and whether the next one comes after it for certain.
 *
 * The usual happens-before bookkeeping. Every actor (the host, each stream) counts its own steps;
 * clock[a].at[b] is how many steps of b happen before a's next one. Queueing on a stream joins the
 * host's clock into the stream's; a mark copies the stream's clock, a wait joins that copy, and a
 * host that waited for work joins its clock. An earlier access is ordered before this one exactly
 * if its epoch is within our clock's count for its actor. */
#include "device/null/null_impl.h"

#include <inttypes.h>
#include <stdarg.h>

void vclock_join(struct vclock *to, const struct vclock *from)
{
    for (unsigned a = 0; a < ACTORS; a++)
        if (from->at[a] > to->at[a])
            to->at[a] = from->at[a];
}

struct actor_op host_op(struct world *w)
{
    struct vclock *c = &w->clock[HOST];
    return (struct actor_op) {
        .world = w, .actor = HOST, .epoch = ++c->at[HOST], .what = "the host", .clock = c
    };
}

/* ---- reports ---- */

void hazard_report(struct world *w, enum null_hazard kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->last, sizeof w->last, fmt, ap);
    va_end(ap);
    w->hazards[kind]++;
    if (w->cfg.on_hazard)
        w->cfg.on_hazard(w->cfg.user, kind, w->last);
    else
        log_error(w->log, "null.hazard", "what=\"%s\"", w->last);
}

static const char *hazard_text(enum null_hazard kind)
{
    static const char *const text[] = {
#define HAZARD_TEXT(name, words) words,
        NULL_HAZARD_MAP(HAZARD_TEXT)
#undef HAZARD_TEXT
    };
    return text[kind];
}

#define WHO_MAX 96

/* "h2d copy #12 on null:0 stream 3"; the host's own steps have no number */
static const char *who(const struct world *w, unsigned actor, uint64_t op, const char *what,
                       char buf[WHO_MAX])
{
    const struct null_stream *s = w->stream[actor];
    if (actor == HOST)
        snprintf(buf, WHO_MAX, "%s", what);
    else
        snprintf(buf, WHO_MAX, "%s #%" PRIu64 " on %s stream %" PRIu64, what, op,
                 s ? s->base.phys->name : "a freed", s ? s->serial : 0);
    return buf;
}

static void report_pair(struct actor_op *by, enum null_hazard kind, uint64_t lo, uint64_t hi,
                        const struct access *r)
{
    char a[WHO_MAX], b[WHO_MAX];
    by->found = true;
    hazard_report(by->world, kind,
                  "%s %s: [%#" PRIx64 ", +%" PRIu64 "), %s by %s at [%#" PRIx64 ", +%" PRIu64
                  "); no event or sync orders the two",
                  who(by->world, by->actor, by->op, by->what, a), hazard_text(kind), lo, hi - lo,
                  r->write ? "written" : "read", who(by->world, r->actor, r->op, r->what, b), r->lo,
                  r->hi - r->lo);
}

/* [lo, hi) meets bytes of a set: those are what `words` say. */
static void report_set(struct actor_op *by, enum null_hazard kind, uint64_t lo, uint64_t hi,
                       const char *words, const struct interval *set)
{
    char a[WHO_MAX];
    by->found = true;
    hazard_report(by->world, kind,
                  "%s %s: [%#" PRIx64 ", +%" PRIu64 "), %s [%#" PRIx64 ", +%" PRIu64 ")",
                  who(by->world, by->actor, by->op, by->what, a), hazard_text(kind), lo, hi - lo,
                  words, set->lo, set->hi - set->lo);
}

/* ---- sets of bytes: struct interval, sorted, disjoint, no two touch ---- */

static size_t set_find(const struct vec *s, uint64_t at) /* the first that ends at or behind it */
{
    const struct interval *v = s->p;
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (v[mid].hi < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* NULL: none of [lo, hi) is in it. */
static const struct interval *set_meets(const struct vec *s, uint64_t lo, uint64_t hi)
{
    size_t i = set_find(s, lo + 1);
    const struct interval *v = s->p;
    return i < s->n && v[i].lo < hi ? &v[i] : NULL;
}

/* Both: false when there is no memory for another interval; then some of the bytes are not in the
 * set. A hazard may be missed, none is invented. */
static bool set_add(struct vec *s, uint64_t lo, uint64_t hi)
{
    struct interval *v = s->p;
    size_t at = set_find(s, lo), end = at;
    while (end < s->n && v[end].lo <= hi) { /* touching ones become one */
        lo = v[end].lo < lo ? v[end].lo : lo;
        hi = v[end].hi > hi ? v[end].hi : hi;
        end++;
    }
    if (end == at) {
        if (!vec_add(s))
            return false;
        v = s->p;
        memmove(v + at + 1, v + at, (s->n - 1 - at) * sizeof *v);
    } else {
        memmove(v + at + 1, v + end, (s->n - end) * sizeof *v);
        s->n -= end - at - 1;
    }
    v[at] = (struct interval) { lo, hi };
    return true;
}

static bool set_del(struct vec *s, uint64_t lo, uint64_t hi)
{
    struct interval *v = s->p;
    size_t at = set_find(s, lo + 1), end = at;
    while (end < s->n && v[end].lo < hi)
        end++;
    if (at == end)
        return true;
    struct interval head = { v[at].lo, lo }, tail = { hi, v[end - 1].hi };
    bool has_head = head.lo < head.hi, has_tail = tail.lo < tail.hi;
    if (has_head && has_tail && end - at == 1) { /* cut in two */
        if (!vec_add(s)) {
            v[at] = head;
            return false;
        }
        v = s->p;
        memmove(v + end + 1, v + end, (s->n - 1 - end) * sizeof *v);
        end++;
    }
    if (has_head)
        v[at++] = head;
    if (has_tail)
        v[at++] = tail;
    memmove(v + at, v + end, (s->n - end) * sizeof *v);
    s->n -= end - at;
    return true;
}

/* ---- shadows ---- */

void shadow_init(struct shadow *s)
{
    *s = (struct shadow) { .access.elem = sizeof(struct access),
                           .dead.elem = sizeof(struct interval),
                           .blank.elem = sizeof(struct interval) };
}

void shadow_release(struct shadow *s)
{
    vec_release(&s->access);
    vec_release(&s->dead);
    vec_release(&s->blank);
}

static bool reserve(struct vec *v) /* for all that one operation adds */
{
    size_t need = v->n + DEV_LAUNCH_ACCESS_MAX + 1;
    return need <= v->cap || vec_reserve(v, 2 * need);
}

bool shadow_reserve(struct shadow *s)
{
    return reserve(&s->access) && reserve(&s->blank);
}

static bool ordered(const struct access *r, const struct vclock *c)
{
    return r->epoch <= c->at[r->actor];
}

static bool overlaps(uint64_t lo, uint64_t hi, uint64_t lo2, uint64_t hi2)
{
    return lo < hi2 && lo2 < hi;
}

void shadow_check(struct shadow *s, struct actor_op *by, uint64_t lo, uint64_t hi, unsigned how)
{
    bool write = (how & DEV_WRITE) != 0;
    for (size_t i = 0; i < s->access.n; i++) {
        const struct access *r = vec_at(&s->access, i);
        if (!overlaps(lo, hi, r->lo, r->hi) || !(write || r->write) || ordered(r, by->clock))
            continue;
        report_pair(by,
                    !write     ? NULL_READ_UNWRITTEN
                    : r->write ? NULL_OVERWRITE_WRITE
                               : NULL_OVERWRITE_READ,
                    lo, hi, r);
    }
    const struct interval *dead = set_meets(&s->dead, lo, hi);
    const struct interval *blank = how & DEV_READ ? set_meets(&s->blank, lo, hi) : NULL;
    if (dead)
        report_set(by, NULL_USE_FREED, lo, hi, "free is", dead);
    if (blank)
        report_set(by, NULL_READ_BLANK, lo, hi, "never written since they were handed out:", blank);
}

/* Keeps the records for which keep stays true, in place. */
static void drop(struct shadow *s, size_t *kept, size_t i, bool keep)
{
    if (keep && *kept != i)
        memcpy(vec_at(&s->access, *kept), vec_at(&s->access, i), sizeof(struct access));
    *kept += keep;
}

void shadow_access(struct shadow *s, const struct actor_op *by, uint64_t lo, uint64_t hi,
                   unsigned how)
{
    const struct vclock *host = &by->world->clock[HOST];
    bool write = (how & DEV_WRITE) != 0;
    size_t kept = 0;
    for (size_t i = 0; i < s->access.n; i++) {
        const struct access *r = vec_at(&s->access, i);
        bool inside = lo <= r->lo && r->hi <= hi;
        /* Gone: what the host knows is done, since all later work is queued after that; what this
         * write covers, since whoever is ordered after the write is ordered after it too, and
         * whoever is not clashes with the write itself; this actor's own earlier read. Two accesses
         * of one operation (same epoch) do not replace each other. */
        bool own = r->actor == by->actor && r->epoch == by->epoch;
        drop(s, &kept, i,
             own || !(ordered(r, host) || (inside && write) ||
                      (inside && !r->write && r->actor == by->actor)));
    }
    s->access.n = kept;
    struct access *r = vec_add(&s->access);
    if (!r)
        BUG("no room for an access record");
    *r = (struct access) { .lo = lo,
                           .hi = hi,
                           .write = write,
                           .actor = by->actor,
                           .epoch = by->epoch,
                           .op = by->op,
                           .what = by->what };
    /* Whoever reads them from now on must be ordered after this write: the record sees to that. */
    if (write && !set_del(&s->blank, lo, hi))
        BUG("no room to note written bytes");
}

void shadow_free(struct shadow *s, struct actor_op *by, uint64_t lo, uint64_t hi)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->access.n; i++) {
        const struct access *r = vec_at(&s->access, i);
        bool touched = overlaps(lo, hi, r->lo, r->hi);
        if (touched && !ordered(r, by->clock))
            report_pair(by, NULL_FREE_PENDING, lo, hi, r);
        drop(s, &kept, i, !(touched && lo <= r->lo && r->hi <= hi));
    }
    s->access.n = kept;
}

bool shadow_kill(struct shadow *s, uint64_t lo, uint64_t hi)
{
    bool a = set_del(&s->blank, lo, hi), b = set_add(&s->dead, lo, hi);
    return a && b;
}

bool shadow_revive(struct shadow *s, uint64_t lo, uint64_t hi, bool blank)
{
    bool a = set_del(&s->dead, lo, hi), b = !blank || set_add(&s->blank, lo, hi);
    return a && b;
}

uint64_t shadow_live(const struct shadow *s, uint64_t lo, uint64_t hi)
{
    uint64_t n = hi - lo;
    for (size_t i = 0; i < s->dead.n; i++) {
        const struct interval *d = vec_at(&s->dead, i);
        n -= d->hi - d->lo;
    }
    return n;
}
