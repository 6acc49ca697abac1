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

static void report_dead(struct actor_op *by, uint64_t lo, uint64_t hi, const struct interval *d)
{
    char a[WHO_MAX];
    by->found = true;
    hazard_report(by->world, NULL_USE_FREED,
                  "%s %s: [%#" PRIx64 ", +%" PRIu64 "), free is [%#" PRIx64 ", +%" PRIu64 ")",
                  who(by->world, by->actor, by->op, by->what, a), hazard_text(NULL_USE_FREED), lo,
                  hi - lo, d->lo, d->hi - d->lo);
}

/* ---- shadows ---- */

void shadow_release(struct shadow *s)
{
    vec_release(&s->access);
    vec_release(&s->dead);
}

bool shadow_reserve(struct shadow *s)
{
    size_t need = s->access.n + DEV_LAUNCH_ACCESS_MAX + 1;
    return need <= s->access.cap || vec_reserve(&s->access, 2 * need);
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
    for (size_t i = 0; i < s->dead.n; i++) {
        const struct interval *d = vec_at(&s->dead, i);
        if (overlaps(lo, hi, d->lo, d->hi)) {
            report_dead(by, lo, hi, d);
            break;
        }
    }
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

/* Both keep `dead` sorted and disjoint. When host memory for it runs out something freed is simply
 * no longer watched: a hazard may be missed, none is invented. */
bool shadow_revive(struct shadow *s, uint64_t lo, uint64_t hi)
{
    size_t kept = 0, n = s->dead.n;
    struct interval tail = { 0, 0 };
    for (size_t i = 0; i < n; i++) {
        struct interval d = *(struct interval *)vec_at(&s->dead, i);
        struct interval *to = vec_at(&s->dead, kept);
        if (!overlaps(lo, hi, d.lo, d.hi)) {
            *to = d;
            kept++;
            continue;
        }
        if (d.lo < lo && d.hi > hi)
            tail = (struct interval) { hi, d.hi }; /* cut in two: at most once, they are disjoint */
        if (d.lo < lo)
            *to = (struct interval) { d.lo, lo };
        else if (d.hi > hi)
            *to = (struct interval) { hi, d.hi };
        kept += d.lo < lo || d.hi > hi;
    }
    s->dead.n = kept;
    if (!tail.hi)
        return true;
    if (!vec_add(&s->dead))
        return false;
    size_t at = s->dead.n - 1;
    struct interval *d = s->dead.p;
    for (; at > 0 && d[at - 1].lo > tail.lo; at--)
        d[at] = d[at - 1];
    d[at] = tail;
    return true;
}

bool shadow_kill(struct shadow *s, uint64_t lo, uint64_t hi)
{
    struct interval *d = s->dead.p;
    size_t at = 0;
    while (at < s->dead.n && d[at].hi < lo)
        at++;
    size_t end = at;
    while (end < s->dead.n && d[end].lo <= hi) { /* touching ones become one */
        lo = d[end].lo < lo ? d[end].lo : lo;
        hi = d[end].hi > hi ? d[end].hi : hi;
        end++;
    }
    if (end == at) {
        if (!vec_add(&s->dead))
            return false;
        d = s->dead.p;
        memmove(d + at + 1, d + at, (s->dead.n - 1 - at) * sizeof *d);
    } else if (end > at + 1) {
        memmove(d + at + 1, d + end, (s->dead.n - end) * sizeof *d);
        s->dead.n -= end - at - 1;
    }
    d[at] = (struct interval) { lo, hi };
    return true;
}
