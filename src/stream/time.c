/* time: how long copies ran, and how long layers waited for them, on the device's clock.
 *
 * Each filling of a slot has three marks: begun and filled on its lane, around the copies, and
 * reached on the compute stream, just before it waits for filled. Whoever comes by later reads
 * them, and nobody waits for them. Each run has two sets, so that the host may be two passes ahead
 * of the device; beyond that a filling goes untimed, and stats.timed does not count its bytes.
 *
 * Marks are not free: FLUX.1-dev with a fifth of it in RAM took 0.7 % longer with one in front of
 * each of 91 runs. So of many runs about MARKED are timed in a pass, others in the next, and they
 * count for all. Steps of the golden ratio decide which, so that neither repeating layers nor the
 * number of runs makes some of them come more often.
 *
 * A lane without BERTH_CAP_ASYNC has no marks: fill() has the time, and all of it is exposed. Where
 * lane and layers have different clocks (a cpu that computes), exposed is what the host waited. */
#include "stream/stream_impl.h"

#define MARKED 4      /* of more than ... */
#define MARKED_ALL 16 /* ... so many; of fewer all */

static bool has_marks(const struct stream *s, uint32_t run)
{
    return s->lane[s->cut.run[run].lane]->phys->caps & BERTH_CAP_ASYNC;
}

bool time_compares(const struct stream *s, uint32_t run)
{
    return has_marks(s, run) && s->lane[s->cut.run[run].lane]->phys == s->args.compute->phys;
}

berth_status time_open(struct stream *s, berth_err *err)
{
    s->time = arena_array(&s->cut.mem, s->cut.runs, sizeof *s->time);
    if (!s->time)
        return err_set(err, BERTH_ENOMEM, "the times of %u runs", s->cut.runs);
    for (uint32_t k = 0; k < s->cut.runs; k++) {
        struct device *lane = s->cut.lane_on[s->cut.run[k].lane];
        for (int i = 0; i < STREAM_TIMES && has_marks(s, k); i++) {
            struct stream_time *x = &s->time[k][i];
            if (dev_event_new(lane, &x->begun, err) || dev_event_new(lane, &x->filled, err) ||
                (time_compares(s, k) && dev_event_new(s->args.compute, &x->reached, err)))
                return err->code;
        }
    }
    return BERTH_OK;
}

void time_close(struct stream *s)
{
    for (uint32_t k = 0; s->time && k < s->cut.runs; k++)
        for (int i = 0; i < STREAM_TIMES; i++) {
            dev_event_free(s->time[k][i].begun);
            dev_event_free(s->time[k][i].filled);
            dev_event_free(s->time[k][i].reached);
        }
}

/* ---- counters ---- */

static void add(atomic_uint_least64_t *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

void stream_count(struct stream *s, uint64_t bytes)
{
    s->stats.bytes += bytes;
    if (s->args.cfg.total)
        add(&s->args.cfg.total->bytes, bytes);
}

void stream_count_time(struct stream *s, uint64_t timed, uint64_t copy_ns, uint64_t exposed_ns)
{
    s->stats.timed += timed;
    s->stats.copy_ns += copy_ns;
    s->stats.exposed_ns += exposed_ns;
    if (s->args.cfg.total) {
        add(&s->args.cfg.total->copy_ns, copy_ns);
        add(&s->args.cfg.total->exposed_ns, exposed_ns);
    }
}

/* ---- marks ---- */

/* Once in runs / MARKED passes. */
static bool is_marked(const struct stream *s, uint32_t run)
{
    if (s->cut.runs <= MARKED_ALL)
        return true;
    uint64_t window = (UINT64_C(1) << 32) * MARKED / s->cut.runs;
    uint32_t place = run * UINT32_C(0x9E3779B9) - (uint32_t)(s->stats.passes * window);
    return place < window;
}

static uint64_t for_all(const struct stream *s, uint64_t n)
{
    return s->cut.runs > MARKED_ALL ? n * s->cut.runs / MARKED : n;
}

/* Adds it up and makes it free again. False: somebody needs it, or the device has not reached it.
 * A time that the device refuses is left out. */
static bool take(struct stream *s, struct stream_time *x)
{
    int64_t copied, exposed = 0;
    bool c, e = true;
    berth_err err;
    if (x->busy)
        return false;
    if (!x->is_filled)
        return true;
    if (!dev_event_elapsed(x->begun, x->filled, &c, &copied, &err) &&
        !(x->is_reached && dev_event_elapsed(x->reached, x->filled, &e, &exposed, &err))) {
        if (!c || !e)
            return false;
        stream_count_time(s, for_all(s, x->bytes), for_all(s, (uint64_t)copied),
                          for_all(s, exposed > 0 ? (uint64_t)exposed : 0));
    }
    x->is_filled = x->is_reached = false;
    return true;
}

void time_get(struct stream *s, struct stream_slot *t)
{
    struct stream_time *of_run = s->time[t->run];
    bool marked = is_marked(s, t->run);
    for (int i = 0; i < STREAM_TIMES && has_marks(s, t->run) && !t->time; i++)
        if (take(s, &of_run[i]) && marked) /* of the last time it was marked, if nobody looked */
            t->time = &of_run[i];
    if (t->time)
        t->time->busy = true;
}

berth_status time_begin(struct stream *s, struct stream_slot *t, berth_err *err)
{
    return t->time ? dev_event_record(t->time->begun, s->lane[t->lane], err) : BERTH_OK;
}

berth_status time_filled(struct stream *s, struct stream_slot *t, berth_err *err)
{
    if (!t->time)
        return BERTH_OK;
    if (dev_event_record(t->time->filled, s->lane[t->lane], err))
        return err->code;
    t->time->is_filled = true;
    t->time->bytes = t->copied;
    return BERTH_OK;
}

berth_status time_reached(struct stream *s, struct stream_slot *t, berth_err *err)
{
    if (!t->time || !t->time->reached)
        return BERTH_OK;
    if (dev_event_record(t->time->reached, s->compute, err))
        return err->code;
    t->time->is_reached = true;
    return BERTH_OK;
}

void time_let_go(struct stream_slot *t)
{
    if (t->time)
        t->time->busy = false;
    t->time = NULL;
}

void time_collect(struct stream *s)
{
    for (uint32_t k = 0; s->time && k < s->cut.runs; k++)
        for (int i = 0; i < STREAM_TIMES; i++)
            (void)take(s, &s->time[k][i]);
}

double stream_gbps(const struct stream_stats *x)
{
    return x->copy_ns ? (double)x->timed / (double)x->copy_ns : 0;
}

double stream_exposed(const struct stream_stats *x)
{
    double share = x->copy_ns ? (double)x->exposed_ns / (double)x->copy_ns : 0;
    return share < 1 ? share : 1; /* of a few marks it may come out as more */
}
