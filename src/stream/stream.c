/* stream: the slots of the ring and the passes over them.
 *
 * A slot is free, being filled (run set, !ready: a staged run on its way), or ready (all its copies
 * are queued and marked by filled). It becomes free again when every item of its run was released
 * once and nobody holds one, or when its run is given up; if somebody read it, drained is recorded
 * then, and whoever writes there next waits for it on a lane, not on the host: ring.c. */
#include "stream/stream_impl.h"

#include <inttypes.h>

static const char *item_name(const struct stream *s, size_t i)
{
    return s->args.item[i].name ? s->args.item[i].name : "?";
}

berth_status stream_broke(struct stream *s, uint32_t run, berth_err *err)
{
    const struct stream_run *r = &s->cut.run[run];
    s->broken = true;
    return err_add(err, "%s: %u blocks from '%s' (item %u, %zu bytes) on their way from %s to %s",
                   s->args.name, r->items, item_name(s, r->first), r->first, r->bytes, r->dev->name,
                   s->args.compute->name);
}

/* Are its copies done when they are queued? On a device that knows no others, and from another
 * driver's device, see dev_copy(). */
static bool copies_wait(const struct stream *s, const struct stream_run *r)
{
    const struct phys *p = s->lane[r->lane]->phys;
    return !(p->caps & BERTH_CAP_ASYNC) || (!r->host && r->dev->phys->driver != p->driver);
}

static uint64_t now(const struct stream *s)
{
    return clock_mono_ns(s->clock);
}

bool stream_under_way(const struct stream *s, uint32_t run)
{
    return s->cut.run[run].first <= s->at && s->at <= s->cut.run[run].last;
}

static uint32_t newest(const struct stream *s)
{
    return s->cut.place[s->at].newest;
}

uint32_t stream_distance(const struct stream *s, uint32_t run)
{
    if (stream_under_way(s, run))
        return run != s->cut.place[s->at].run;
    uint32_t to = newest(s);
    return 1 + (run > to ? run - to : run + (s->cut.runs - to));
}

/* ---- filling ---- */

berth_status stream_slot_filled(struct stream *s, struct stream_slot *t, berth_err *err)
{
    if (time_filled(s, t, err) || dev_event_record(t->filled[t->lane], s->lane[t->lane], err))
        return stream_broke(s, t->run, err);
    t->open = false;
    t->ready = true;
    s->stats.runs++;
    return BERTH_OK;
}

static berth_status queue_copies(struct stream *s, struct stream_slot *t, berth_err *err)
{
    const struct stream_run *r = &s->cut.run[t->run];
    struct dev_stream *lane = s->lane[r->lane];
    for (uint32_t k = 0; k < r->copies; k++) {
        const struct stream_copy *c = &s->cut.copy[r->copy + k];
        struct dev_at dst = { s->args.compute, s->ring.addr + t->from + c->dst };
        const void *host = (const void *)(uintptr_t)c->src;
        if (r->host ? dev_copy_h2d(lane, dst.addr, host, c->n, err)
                    : dev_copy(lane, dst, (struct dev_at) { r->dev, c->src }, c->n, err))
            return err->code;
        s->stats.copies++;
        stream_count(s, c->bytes);
        t->copied += c->bytes;
    }
    return BERTH_OK;
}

/* Run r goes into the free slot t; a staged one only gets in line for that. */
static berth_status fill(struct stream *s, struct stream_slot *t, uint32_t r, berth_err *err)
{
    const struct stream_run *run = &s->cut.run[r];
    if (ring_take(s, t, r, err))
        return err->code;
    s->live++;
    t->run = r;
    t->serial = ++s->serial;
    t->left = run->items;
    t->copied = 0;
    t->ready = t->touched = t->waited = false;
    t->stage_copy = 0;
    t->stage_off = 0;
    t->stage_to = run->staged ? run->bytes : 0;
    s->run_slot[r] = (uint32_t)(t - s->slot);
    time_get(s, t);
    if (run->staged)
        return BERTH_OK;
    bool wait = copies_wait(s, run);
    uint64_t start = wait ? now(s) : 0;
    if (stream_slot_open(s, t, run->lane, err) || queue_copies(s, t, err))
        return stream_broke(s, r, err);
    uint64_t waited = wait ? now(s) - start : 0;
    s->stats.wait_ns += waited;
    if (!(s->lane[run->lane]->phys->caps & BERTH_CAP_ASYNC))
        stream_count_time(s, run->bytes, waited, waited);
    return stream_slot_filled(s, t, err);
}

/* ---- giving up ---- */

static void set_free(struct stream *s, struct stream_slot *t)
{
    if (!t->touched)
        s->stats.dropped += t->copied;
    time_let_go(t);
    s->run_slot[t->run] = STREAM_NONE;
    s->live--;
    t->run = STREAM_NONE;
    if (t->lane == STREAM_NONE) /* nothing was written, so nothing was read */
        ring_forget(t);
    t->copied = 0;
    t->stage_to = 0;
    t->ready = t->touched = t->waited = false;
}

/* pre: nobody holds it. */
static berth_status give_up(struct stream *s, struct stream_slot *t, berth_err *err)
{
    if (t->touched) {
        if (dev_event_record(t->drained, s->compute, err))
            return stream_broke(s, t->run, err);
        t->drain = true;
    }
    if (t->open) { /* half filled: mark where its copies end, another lane may write next */
        if (dev_event_record(t->filled[t->lane], s->lane[t->lane], err))
            return stream_broke(s, t->run, err);
        t->open = false;
    }
    set_free(s, t);
    return BERTH_OK;
}

/* The run that is needed last. NULL: all are held. */
static struct stream_slot *farthest(struct stream *s)
{
    struct stream_slot *best = NULL;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        if (t->run != STREAM_NONE && !t->held &&
            (!best || stream_distance(s, t->run) > stream_distance(s, best->run)))
            best = t;
    }
    return best;
}

/* After a jump, or where runs were left out, what lies in the run's place may be for later than the
 * run itself. */
static berth_status clear_home(struct stream *s, uint32_t run, berth_err *err)
{
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        if (ring_in_home(s, t, run) && !t->held &&
            stream_distance(s, t->run) > stream_distance(s, run) && give_up(s, t, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- ahead ---- */

/* The next runs in order go where there is room, up to the last of this pass and then the first of
 * the next one; there a run that is still under way in this pass has to end first. Runs of this
 * pass that have ended are left out. */
static berth_status pump(struct stream *s, berth_err *err)
{
    uint32_t runs = s->cut.runs;
    while (s->live < runs) {
        uint32_t r = (uint32_t)(s->next % runs);
        bool ended = s->next < runs && s->cut.run[r].last < s->at;
        if (s->run_slot[r] == STREAM_NONE && !ended) {
            struct stream_slot *t = ring_place(s, r);
            if (!t && s->next < runs && clear_home(s, r, err))
                return err->code;
            if (!t && !(t = ring_place(s, r)))
                break;
            if (fill(s, t, r, err))
                return err->code;
        } else if (s->next >= runs && stream_under_way(s, r)) {
            break;
        }
        s->next++;
    }
    return staged_pump(s, err);
}

/* The run that is acquired now is not there: the ring goes on from it. */
static berth_status jump(struct stream *s, size_t i, berth_err *err)
{
    uint32_t run = s->cut.place[i].run;
    struct stream_slot *t;
    if (!ring_could_place(s, run))
        return err_set(err, BERTH_EBUSY,
                       "%s: block '%s' (item %zu, a run of %zu bytes): no room in a ring of %zu "
                       "beside what is held",
                       s->args.name, item_name(s, i), i, s->cut.run[run].span, s->cut.ring);
    s->stats.out_of_order++;
    while (!(t = ring_place(s, run)))
        if (give_up(s, farthest(s), err))
            return err->code;
    s->next = 0; /* others may be under way there, too */
    return fill(s, t, run, err);
}

/* Item i, of a run, is the current one. */
static berth_status go_to(struct stream *s, size_t i, berth_err *err)
{
    uint32_t run = s->cut.place[i].run, before = s->at;
    bool absent = s->run_slot[run] == STREAM_NONE, other = run != s->cut.place[before].run;
    s->at = (uint32_t)i;
    if (absent && jump(s, i, err)) {
        s->at = before;
        return err->code;
    }
    return absent || other ? pump(s, err) : BERTH_OK;
}

/* ---- recovery ---- */

static void rewind_order(struct stream *s)
{
    s->next = 0;
    s->at = s->cut.runs ? s->cut.run[0].first : 0;
}

/* Waits for everything on every stream and forgets what was on its way. What cannot be waited for
 * stays as it is, and broken. */
static berth_status quiesce(struct stream *s, berth_err *err)
{
    s->broken = true;
    if (s->compute && dev_stream_sync(s->compute, err))
        return err_add(err, "%s: waiting for the layers on %s", s->args.name,
                       s->args.compute->name);
    for (uint32_t k = 0; k < s->cut.lanes; k++)
        if (dev_stream_sync(s->lane[k], err))
            return err_add(err, "%s: waiting for copies to %s", s->args.name,
                           s->args.compute->name);
    stage_reset(&s->stage);
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        t->lane = STREAM_NONE;
        t->held = 0;
        t->open = false;
        if (t->run != STREAM_NONE)
            set_free(s, t);
        else if (!t->drain) /* else: the layers of an earlier pass may be on another stream */
            ring_forget(t);
    }
    if (s->held)
        memset(s->held, 0, s->args.n * sizeof *s->held);
    rewind_order(s);
    s->broken = false;
    return BERTH_OK;
}

static bool is_ahead(const struct stream *s, uint32_t run) /* read by nobody yet */
{
    return s->run_slot[run] != STREAM_NONE && !s->slot[s->run_slot[run]].touched;
}

/* The ring as the next pass wants it: its first runs without a hole, so that none comes after a
 * later one. */
static berth_status wind_back(struct stream *s, berth_err *err)
{
    uint32_t keep = 0;
    while (keep < s->cut.runs && is_ahead(s, keep))
        keep++;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        t->held = 0;
        if (t->run != STREAM_NONE && t->run >= keep && give_up(s, t, err))
            return err->code;
    }
    rewind_order(s);
    return BERTH_OK;
}

/* ---- passes ---- */

berth_status stream_begin(struct stream *s, struct dev_stream *compute, berth_err *err)
{
    if (s->active)
        return err_set(err, BERTH_EINVAL, "%s: a pass is running", s->args.name);
    if (compute->phys != s->args.compute->phys)
        BUG("%s computes on %s, not on %s", s->args.name, s->args.compute->name,
            compute->phys->name);
    if (s->broken && quiesce(s, err))
        return err->code;
    s->began = now(s);
    if (s->slots && pump(s, err))
        return err->code;
    s->compute = compute;
    s->active = true;
    s->stats.passes++;
    return BERTH_OK;
}

static berth_status usable(const struct stream *s, size_t i, berth_err *err)
{
    if (i >= s->args.n)
        return err_set(err, BERTH_EINVAL, "%s: item %zu of %zu", s->args.name, i, s->args.n);
    if (!s->active)
        return err_set(err, BERTH_EINVAL, "%s: item %zu outside of a pass", s->args.name, i);
    if (s->broken)
        return err_set(err, BERTH_EDEVICE, "%s: item %zu after a failure; the pass has to end",
                       s->args.name, i);
    return BERTH_OK;
}

static bool host_waits(const struct stream *s, const struct stream_slot *t)
{
    return s->lane[t->lane]->phys->driver != s->compute->phys->driver;
}

/* Invariant 2: once a run and pass, the compute stream waits for filled. */
static berth_status wait_filled(struct stream *s, struct stream_slot *t, berth_err *err)
{
    bool wait = !t->ready || host_waits(s, t);
    uint64_t start = wait ? now(s) : 0;
    if (time_reached(s, t, err))
        return stream_broke(s, t->run, err);
    if (!t->ready && staged_finish(s, t, err))
        return err->code;
    if (dev_stream_wait(s->compute, t->filled[t->lane], err))
        return stream_broke(s, t->run, err);
    t->waited = true;
    uint64_t waited = wait ? now(s) - start : 0;
    s->stats.wait_ns += waited;
    stream_count_time(s, 0, 0, time_compares(s, t->run) ? 0 : waited);
    return BERTH_OK;
}

berth_status stream_acquire(struct stream *s, size_t i, uint64_t *addr, berth_err *err)
{
    *addr = 0;
    if (usable(s, i, err))
        return err->code;
    uint32_t r = s->slots ? s->cut.place[i].run : STREAM_NONE;
    if (r == STREAM_NONE) {
        *addr = s->args.item[i].addr;
        return BERTH_OK;
    }
    if (go_to(s, i, err))
        return err->code;
    struct stream_slot *t = &s->slot[s->run_slot[r]];
    if (!t->waited && wait_filled(s, t, err))
        return err->code;
    t->touched = true;
    t->held++;
    s->held[i]++;
    *addr = s->ring.addr + t->from + s->cut.place[i].off;
    return BERTH_OK;
}

berth_status stream_release(struct stream *s, size_t i, berth_err *err)
{
    if (usable(s, i, err))
        return err->code;
    uint32_t r = s->slots ? s->cut.place[i].run : STREAM_NONE;
    if (r == STREAM_NONE)
        return BERTH_OK;
    if (!s->held[i])
        return err_set(err, BERTH_EINVAL, "%s: item %zu was not acquired", s->args.name, i);
    struct stream_slot *t = &s->slot[s->run_slot[r]];
    s->held[i]--;
    t->held--;
    if (s->done[i] != t->serial) {
        s->done[i] = t->serial;
        t->left--;
    }
    if (!t->left && !t->held && give_up(s, t, err))
        return err->code;
    return pump(s, err);
}

berth_status stream_end(struct stream *s, berth_err *err)
{
    if (!s->active && !s->broken)
        return err_set(err, BERTH_EINVAL, "%s: no pass is running", s->args.name);
    if (s->active)
        s->stats.pass_ns += now(s) - s->began;
    s->active = false;
    if (!s->broken && s->held)
        memset(s->held, 0, s->args.n * sizeof *s->held);
    if (!s->broken && wind_back(s, err)) /* nobody else will say it if waiting mends it */
        log_warn(s->args.cfg.log, "stream.end", "dev=%s why=\"%s\"", s->args.compute->name,
                 err->msg);
    if (s->broken && quiesce(s, err))
        return err->code;
    s->compute = NULL; /* marks are read when they are needed again: here the device would idle */
    return BERTH_OK;
}

bool stream_resident(const struct stream *s, size_t i)
{
    return i < s->args.n && (!s->slots || s->cut.place[i].run == STREAM_NONE);
}

struct stream_stats stream_stats(struct stream *s)
{
    time_collect(s);
    struct stream_stats x = s->stats;
    for (uint32_t i = 0; i < s->slots; i++)
        if (s->slot[i].run != STREAM_NONE && !s->slot[i].touched)
            x.ahead += s->slot[i].copied;
    return x;
}

/* ---- life ---- */

static berth_status config(struct stream *s, berth_err *err)
{
    struct stream_config *c = &s->args.cfg;
    c->run_bytes = c->run_bytes ? c->run_bytes : STREAM_RUN_DEFAULT;
    c->stage_slots = c->stage_slots ? c->stage_slots : STREAM_STAGE_DEFAULT;
    c->stage_bytes = c->stage_bytes ? c->stage_bytes : STREAM_STAGE_BYTES_DEFAULT;
    c->loaders = c->loaders ? c->loaders : STREAM_LOADERS_DEFAULT;
    s->clock = c->clock ? c->clock : clock_system();
    if (c->slots > STREAM_SLOTS_MAX || c->stage_slots > STREAM_STAGE_MAX ||
        c->loaders > STREAM_LOADERS_MAX)
        return err_set(err, BERTH_ELIMIT,
                       "%u slots, %u staging buffers, %u loaders; at most %d, %d, %d", c->slots,
                       c->stage_slots, c->loaders, STREAM_SLOTS_MAX, STREAM_STAGE_MAX,
                       STREAM_LOADERS_MAX);
    return BERTH_OK;
}

static berth_status open_runs(struct stream *s, berth_err *err)
{
    struct arena *mem = &s->cut.mem;
    if (!s->args.owner)
        BUG("%s: blocks to stream and nobody to pay for the ring", s->args.name);
    s->run_slot = arena_array(mem, s->cut.runs, sizeof *s->run_slot);
    s->held = arena_array(mem, s->args.n, sizeof *s->held);
    s->done = arena_array(mem, s->args.n, sizeof *s->done);
    if (!s->run_slot || !s->held || !s->done)
        return err_set(err, BERTH_ENOMEM, "the ring for %u runs", s->cut.runs);
    memset(s->run_slot, 0xff, s->cut.runs * sizeof *s->run_slot); /* STREAM_NONE */
    for (uint32_t k = 0; k < s->cut.lanes; k++)
        if (dev_stream_new(s->cut.lane_on[k], &s->lane[k], err))
            return err->code;
    rewind_order(s);
    return ring_open(s, err) || time_open(s, err) || staged_open(s, err) ? err->code : BERTH_OK;
}

berth_status stream_open(const struct stream_args *args, struct stream **out, berth_err *err)
{
    const char *name = args->name ? args->name : "blocks";
    *out = NULL;
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "streaming %s", name);
    s->args = *args;
    s->args.name = name;
    s->args.on_close = NULL; /* until it is open */
    if (config(s, err) ||
        stream_cut(&s->args, s->args.cfg.run_bytes, s->args.cfg.slots, &s->cut, err) ||
        (s->cut.runs && open_runs(s, err))) {
        stream_close(s);
        return err_add(err, "streaming %s to %s", name, args->compute->name);
    }
    s->args.on_close = args->on_close;
    s->stats.slots = s->cut.slots;
    s->stats.stage_bytes = s->stage.mem.n;
    s->stats.donor_bytes = s->cut.bytes;
    *out = s;
    return BERTH_OK;
}

static void report(struct stream *s)
{
    for (uint32_t i = 0; i < s->slots; i++)
        time_let_go(&s->slot[i]);
    time_collect(s);
    const struct stream_stats *x = &s->stats;
    log_debug(s->args.cfg.log, "stream.done",
              "dev=%s passes=%" PRIu64 " bytes=%" PRIu64 " gb_per_s=%.2f exposed_percent=%.1f "
              "waited_percent=%.1f out_of_order=%" PRIu64 " dropped=%" PRIu64 " model=\"%s\"",
              s->args.compute->name, x->passes, x->bytes, stream_gbps(x), 100.0 * stream_exposed(x),
              x->pass_ns ? 100.0 * (double)x->wait_ns / (double)x->pass_ns : 0, x->out_of_order,
              x->dropped, s->args.name);
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    for (uint32_t k = 0; k < s->cut.lanes; k++)
        dev_stream_free(s->lane[k]); /* waits */
    if (s->stats.passes && s->slots)
        report(s);
    time_close(s);
    stage_close(&s->stage);
    ring_close(s);
    stream_cut_release(&s->cut);
    if (s->args.on_close)
        s->args.on_close(s->args.close_user);
    free(s);
}
