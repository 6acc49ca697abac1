/* ring: where runs lie in the ring's memory, and in which order its bytes are used.
 *
 * The ring is one piece of memory in which every run has a place of its own, its home. It is the
 * same in every pass, so that recorded kernels find it at the same address again (net/replay.c).
 * Homes follow one another in the order of the runs, round and round (find_homes() in runs.c):
 *
 *     0                                          ring bytes
 *     | run 4  | run 5  |       run 6      | 7 |.|        8 would not fit behind 7: it lies at 0
 *     | run 0  | run 1 | run 2 |    run 3     |..|
 *
 * Room     A run may come as soon as nobody lies in its home. In order that always happens in time:
 *          the homes of runs that are under way together do not overlap.
 * Traces   A slot whose run has left keeps its range as a trace: who read it (drained) and which
 *          lane wrote it (filled). Whoever writes there next waits for both on its lane, and what
 *          is written over leaves the trace. When a slot with a trace is taken for another run,
 *          every lane waits for it at once. A staged run that left before its first chunk was
 *          queued has touched nothing and leaves no trace. */
#include "stream/stream_impl.h"

/* ---- room ---- */

static bool overlaps(const struct stream_slot *t, size_t from, size_t to)
{
    return t->from < to && from < t->to;
}

bool ring_in_home(const struct stream *s, const struct stream_slot *t, uint32_t run)
{
    const struct stream_run *r = &s->cut.run[run];
    return t->run != STREAM_NONE && overlaps(t, r->home, r->home + r->room);
}

/* Does nobody lie in the run's home? held: only runs with acquired items count. */
static bool is_free(const struct stream *s, uint32_t run, bool held)
{
    for (uint32_t i = 0; i < s->slots; i++)
        if (ring_in_home(s, &s->slot[i], run) && (!held || s->slot[i].held))
            return false;
    return true;
}

bool ring_could_place(const struct stream *s, uint32_t run)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < s->slots; i++)
        held += s->slot[i].run != STREAM_NONE && s->slot[i].held;
    return held < s->slots && is_free(s, run, true);
}

/* Without a trace, or else with the oldest. NULL: a run is in each. */
static struct stream_slot *free_slot(struct stream *s)
{
    struct stream_slot *best = NULL;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        if (t->run != STREAM_NONE)
            continue;
        if (t->from == t->to)
            return t;
        best = best && best->serial < t->serial ? best : t;
    }
    return best;
}

struct stream_slot *ring_place(struct stream *s, uint32_t run)
{
    return is_free(s, run, false) ? free_slot(s) : NULL;
}

/* ---- traces ---- */

/* Invariant 1: the lane writes where t's run was after those who read it, and after those who wrote
 * it elsewhere. */
static berth_status wait_for(struct stream *s, uint32_t lane, const struct stream_slot *t,
                             berth_err *err)
{
    struct dev_stream *to = s->lane[lane];
    if (t->drain && dev_stream_wait(to, t->drained, err))
        return err->code;
    if (t->lane != lane && t->lane != STREAM_NONE)
        return dev_stream_wait(to, t->filled[t->lane], err);
    return BERTH_OK;
}

void ring_forget(struct stream_slot *t)
{
    t->from = t->to = 0;
    t->drain = false;
    t->lane = STREAM_NONE;
}

berth_status ring_take(struct stream *s, struct stream_slot *t, uint32_t run, berth_err *err)
{
    for (uint32_t k = 0; t->from < t->to && k < s->cut.lanes; k++)
        if (wait_for(s, k, t, err))
            return stream_broke(s, run, err);
    ring_forget(t);
    t->from = s->cut.run[run].home;
    t->to = t->from + s->cut.run[run].room;
    return BERTH_OK;
}

/* [from, to) belongs to others now. What lies in the middle stays as a whole: too much is safe. */
static void write_over(struct stream_slot *t, size_t from, size_t to)
{
    if (from <= t->from && t->to <= to)
        ring_forget(t);
    else if (from <= t->from)
        t->from = to;
    else if (t->to <= to)
        t->to = from;
}

berth_status stream_slot_open(struct stream *s, struct stream_slot *t, uint32_t lane,
                              berth_err *err)
{
    if (t->open)
        return BERTH_OK;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *was = &s->slot[i];
        if (was->run != STREAM_NONE || !overlaps(was, t->from, t->to))
            continue;
        if (wait_for(s, lane, was, err))
            return err->code;
        write_over(was, t->from, t->to);
    }
    t->lane = lane;
    t->open = true;
    return time_begin(s, t, err);
}

/* ---- life ---- */

static berth_status open_slot(struct stream *s, struct stream_slot *t, berth_err *err)
{
    t->run = t->lane = STREAM_NONE;
    if (dev_event_new(s->args.compute, &t->drained, err))
        return err->code;
    for (uint32_t k = 0; k < s->cut.lanes; k++)
        if (dev_event_new(s->cut.lane_on[k], &t->filled[k], err))
            return err->code;
    return BERTH_OK;
}

berth_status ring_open(struct stream *s, berth_err *err)
{
    struct device *d = s->args.compute;
    size_t n = s->cut.ring;
    s->slot = arena_array(&s->cut.mem, s->cut.places, sizeof *s->slot);
    if (!s->slot)
        return err_set(err, BERTH_ENOMEM, "a ring of %u places", s->cut.places);
    if (s->args.alloc ? s->args.alloc(s->args.alloc_user, d, s->args.owner, n, &s->ring, err)
                      : dev_alloc(d, s->args.owner, n, &s->ring, err))
        return err_add(err, "a ring of %zu bytes for runs of up to %zu", n, s->cut.span);
    s->stats.ring_bytes = n;
    s->stats.ring_spare = s->cut.spare;
    for (; s->slots < s->cut.places; s->slots++)
        if (open_slot(s, &s->slot[s->slots], err)) {
            s->slots++; /* what it has of it goes back too */
            return err_add(err, "place %u of %u in the ring", s->slots, s->cut.places);
        }
    return BERTH_OK;
}

/* Layers that read the slot may still be queued. False: the device will not be waited for; drained
 * is when they are done. */
static bool settled(struct stream *s, struct stream_slot *t)
{
    berth_err err;
    bool open = t->touched; /* read, and no mark yet: in a pass nobody ended */
    if (open && dev_stream_sync(s->compute, &err) &&
        dev_event_record(t->drained, s->compute, &err)) {
        err_add(&err, "%s", s->args.name);
        log_error(s->args.cfg.log, "stream.close", "dev=%s bytes=%zu why=\"%s\"",
                  s->args.compute->name, t->to - t->from, err.msg);
    }
    return !t->drained || !dev_event_sync(t->drained, &err);
}

/* pre: the lanes are idle. A device that will not be waited for gets the memory back when it says
 * that it is done: with the latest mark, behind which the others are. */
void ring_close(struct stream *s)
{
    struct stream_slot *late = NULL;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        if (!settled(s, t) && (!late || t->serial > late->serial))
            late = t;
    }
    if (late && s->ring.n)
        dev_retire(&s->ring, late->drained);
    dev_free(&s->ring);
    for (uint32_t i = 0; i < s->slots; i++) {
        dev_event_free(s->slot[i].drained);
        for (uint32_t k = 0; k < s->cut.lanes; k++)
            dev_event_free(s->slot[i].filled[k]);
    }
}
