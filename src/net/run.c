/* run: one execution of a forward, dry and real; the slab it lives in, and what is done when there
 * is no room for it.
 *
 * A pass   prepare(): dry run -> peak -> slab, or the ladder; then real_run(): the same calls on
 *          real memory. Steps of a sampler are all alike: once two dry runs in a row have put the
 *          same bytes at the same places, the next pass goes without one (unproven). Its ops are
 *          checked as they come, every place is held against the one foreseen, and at the first
 *          that differs the pass is given up and run again, dry first. A pass that fails because a
 *          device call failed (a copy of a streamed block) or because the device had no room for
 *          what a call took by itself is prepared and run once more: all it wrote was the slab, and
 *          what net_output() gave is written again.
 * Ladder   prepare() walks it. Rung 1 is in slab_try() (res_alloc), 2 is be_thrifty(), 3
 *          own_blocks(); 4, the error, is for the caller. After each of them the slab is tried
 *          again.
 * Outside  Modules, libraries' handles and plans take memory of a card that no pool has. Ops get
 *          them ready in dry runs (op_x_ready()), so a want of it comes up before the slab is
 *          there; then room_outside() and rung 3 make room, which goes back to the driver. */
#include "net/net_impl.h"

#include "base/hash.h"
#include "base/sz.h"
#include "op/op_def.h"

#include <inttypes.h>
#include <stdarg.h>

/* Not 0: an act without an address is an empty one. Above what weights of dry runs claim to be at,
 * so that none seems to overlap an act. */
#define DRY_BASE (UINT64_C(1) << 48)

/* ---- errors ---- */

bool net_thrifty(const struct net_run *r)
{
    return r->thrifty;
}

bool net_bad(const struct net_run *r)
{
    return r->bad;
}

void net_failed(struct net_run *r, const char *layer)
{
    size_t n = r->prefix_len;
    r->bad = true;
    if (!layer[0] && n && r->prefix[n - 1] == '.')
        n--; /* "input_blocks.1: ..." */
    if (n || layer[0])
        err_add(&r->err, "%.*s%s", (int)n, r->prefix, layer);
}

void net_fail(struct net_run *r, berth_status s, const char *fmt, ...)
{
    char text[sizeof r->err.msg];
    va_list ap;
    if (r->bad)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&r->err, s, "%s", text);
    net_failed(r, "");
}

bool net_stop(struct net_run *r)
{
    if (!r->bad && r->n->cancel && atomic_load_explicit(r->n->cancel, memory_order_relaxed))
        net_fail(r, BERTH_ECANCELED, "canceled");
    return r->bad;
}

/* ---- places ---- */

/* A dry run notes where everything is, for real ones to be held against. */
static bool place_note(struct net_foreseen *f, struct net_spot at)
{
    size_t cap = f->cap ? f->cap * 2 : 256, bytes;
    if (f->n == f->cap) {
        struct net_spot *p = sz_mul(cap, sizeof *p, &bytes) ? realloc(f->at, bytes) : NULL;
        if (!p)
            return false;
        f->at = p;
        f->cap = cap;
    }
    f->at[f->n++] = at;
    f->hash = hash_xxh64(&at, sizeof at, f->hash);
    return true;
}

static bool place_same(const struct net_run *r, uint64_t off, uint64_t bytes)
{
    const struct net_foreseen *f = &r->n->seen;
    return r->taken < f->n && f->at[r->taken].off == off && f->at[r->taken].bytes == bytes;
}

static uint64_t hash_view(const struct view *v, uint64_t hash)
{
    uint64_t all[2 + 2 * SHAPE_MAX_DIMS] = { v->dtype, (uint64_t)v->shape.ndim };
    size_t n = 2;
    for (int i = 0; i < v->shape.ndim; i++) {
        all[n++] = v->shape.dim[i];
        all[n++] = v->shape.dim[i] > 1 ? v->stride[i] : 0; /* else it means nothing */
    }
    return hash_xxh64(all, n * sizeof *all, hash);
}

/* Other shapes may take the same bytes, and for those nothing was made ready. */
bool net_note_call(struct net_run *r, const struct op_operand *operand, const void *args)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < OP_OPERANDS_MAX && operand[i].how; i++) {
        const void *at = (const char *)args + operand[i].at;
        const struct view *v = at;
        size_t n = 1;
        if (operand[i].how & OP_LIST) {
            memcpy(&v, at, sizeof v);
            memcpy(&n, (const char *)args + operand[i].count, sizeof n);
        }
        for (size_t k = 0; k < n; k++)
            hash = hash_view(v + k, hash);
    }
    struct net_spot call = { hash, UINT64_MAX };
    if (r->dry && !place_note(&r->n->seen, call)) {
        net_fail(r, BERTH_ENOMEM, "a list of calls");
    } else if (!r->dry && !place_same(r, call.off, call.bytes)) {
        r->missed = true;
        net_fail(r, BERTH_EINVAL, "the pass is not the one that was predicted");
    }
    r->taken++;
    return !r->bad;
}

uint64_t net_take(struct net_run *r, uint64_t bytes)
{
    uint64_t off;
    if (r->bad)
        return 0;
    enum slab_result got = slab_take(&r->n->slab, bytes, &off);
    struct net_spot at = { got ? 0 : off, bytes };
    if (got == SLAB_NOMEM || (!got && r->dry && !place_note(&r->n->seen, at))) {
        net_fail(r, BERTH_ENOMEM, "a list of activations");
    } else if (got && r->dry) {
        net_fail(r, BERTH_ELIMIT, "%" PRIu64 " bytes of activations", bytes);
    } else if (got || (!r->dry && !place_same(r, off, bytes))) {
        r->missed = true;
        net_fail(r, BERTH_EINVAL, "the pass is not the one that was predicted");
    }
    r->taken++;
    return r->bad ? 0 : r->base + off;
}

void net_give(struct net_run *r, uint64_t addr)
{
    if (addr && !slab_give(&r->n->slab, addr - r->base) && !r->bad)
        BUG("dropping an activation that is not there");
}

/* ---- runs ---- */

struct pass { /* one net_forward() */
    struct net *n;
    net_forward_fn *fn;
    void *user;
    struct dev_mem slab;
    uint64_t peak;
    bool stale;       /* the last dry run was not the one that the slab is for */
    bool again;       /* not the first attempt: it is run dry in any case */
    bool unproven;    /* it was not: places are those of the pass before */
    bool missed;      /* and they were not right */
    uint64_t outside; /* bytes that the device is to have beside its pools; 0: nobody missed any */
};

static void run_begin(struct net *n, struct net_run *r)
{
    slab_clear(&n->slab);
    r->n = r->from = n;
    r->thrifty = n->thrifty;
}

/* Shapes and sizes only. *peak: bytes of slab that the pass takes. */
static berth_status dry_run(struct net *n, bool thrifty, net_forward_fn *fn, void *user,
                            uint64_t *peak, berth_err *err)
{
    struct net_run r = { .dry = true, .base = DRY_BASE };
    struct net_foreseen *f = &n->seen, before = *f;
    *f = (struct net_foreseen) { .at = f->at, .cap = f->cap };
    *peak = 0;
    run_begin(n, &r);
    r.thrifty = thrifty;
    fn(&r, user);
    if (r.bad) {
        *err = r.err;
        return err->code;
    }
    *peak = f->peak = n->slab.peak;
    f->fn = fn;
    f->thrifty = thrifty;
    f->steady = before.fn == fn && before.thrifty == thrifty && before.peak == f->peak &&
                before.n == f->n && before.hash == f->hash;
    return BERTH_OK;
}

/* The net's own, and its guest's. */
static berth_status begin_streams(struct net *n, berth_err *err)
{
    berth_err unsaid;
    if (stream_begin(n->stream, n->queue, err))
        return err->code;
    if (n->guest && stream_begin(n->guest->stream, n->queue, err)) {
        stream_end(n->stream, &unsaid);
        return err->code;
    }
    return BERTH_OK;
}

static berth_status end_streams(struct net *n, berth_err *err)
{
    berth_err second;
    berth_status s = stream_end(n->stream, err);
    if (!n->guest || !stream_end(n->guest->stream, s ? &second : err))
        return s;
    return err->code;
}

static berth_status real_run(struct pass *p, berth_err *err)
{
    struct net *n = p->n;
    struct net_run r = { .base = p->slab.addr, .unproven = p->unproven };
    uint64_t peak = p->peak;
    berth_err end;
    run_begin(n, &r);
    n->slab.limit = peak ? peak : 1; /* 0 would be no limit */
    berth_status s = begin_streams(n, err);
    if (s)
        return err_add(err, "beginning a pass");
    replay_begin(n, p->unproven, r.base);
    p->fn(&r, p->user);
    if (replay_end(n, !r.bad, &r.err))
        net_failed(&r, "");
    p->missed = r.missed || n->replay.missed;
    n->rep.peak = n->slab.peak;
    n->rep.backward = r.backward;
    /* The slab goes back to the pool: nothing may be on its way any more. */
    if (r.queued && dev_stream_sync(n->queue, &end) && dev_stream_sync(n->queue, &end)) {
        log_error(n->log, "net.kept", "model=%s dev=%s bytes=%" PRIu64 " why=\"%s\"",
                  res_info(n->m).name, n->compute->name, peak, end.msg);
        p->slab = (struct dev_mem) { 0 }; /* nobody's any more: work may still write there */
        p->missed = false;
        if (!r.bad) {
            r.err = end;
            net_failed(&r, "waiting for the pass");
        }
    } else {
        net_rooms_free(&r);
    }
    if (r.watched && !r.bad)
        BUG("%s was to be looked at and never came to the host", r.watch);
    s = end_streams(n, &end);
    if (r.bad)
        *err = r.err;
    else if (s)
        *err = end;
    else if ((p->missed = n->slab.peak != peak || r.taken != n->seen.n))
        err_set(err, BERTH_EINVAL, "the pass took %" PRIu64 " bytes, %" PRIu64 " were predicted",
                n->slab.peak, peak);
    else
        return BERTH_OK;
    return err->code;
}

/* ---- the ladder ---- */

static void rung(struct net *n, const char *what, uint64_t wanted, uint64_t number)
{
    n->rep.rungs++;
    log_info(n->log, "net.rung", "model=%s dev=%s rung=%s wanted=%" PRIu64 " to=%" PRIu64,
             res_info(n->m).name, n->compute->name, what, wanted, number);
}

/* Rung 0: nobody else goes for what the ring has beyond its need. */
static berth_status give_ring_spare(struct pass *p, berth_err *err)
{
    struct net *n = p->n;
    rung(n, "spare", p->peak, stream_stats(n->stream).ring_spare);
    stream_close(n->stream);
    n->stream = NULL;
    n->tight = true;
    return net_stream_open(n, err);
}

static berth_status slab_try(struct pass *p, berth_err *err)
{
    struct net *n = p->n;
    size_t bytes;
    n->rep.predicted = p->peak;
    if (!p->peak)
        return BERTH_OK;
    if (!sz_from_u64(p->peak, &bytes))
        return err_set(err, BERTH_ELIMIT, "%" PRIu64 " bytes of activations", p->peak);
    if (n->stream && stream_stats(n->stream).ring_spare) {
        berth_status s = dev_alloc(n->compute, n->owner, bytes, &p->slab, err);
        if (s != BERTH_ENODEVMEM || (s = give_ring_spare(p, err)))
            return s;
    }
    return res_alloc(n->res, &(struct res_alloc_args) { n->compute, n->owner, bytes, n->m },
                     &p->slab, err);
}

/* Rung 2. False: it is, or that would not lower the peak. An error of the dry run is left to the
 * next one. */
static bool be_thrifty(struct pass *p)
{
    struct net *n = p->n;
    uint64_t peak;
    berth_err err;
    if (n->thrifty)
        return false;
    p->stale = true;
    if (dry_run(n, true, p->fn, p->user, &peak, &err) || peak >= p->peak)
        return false;
    rung(n, "thrifty", p->peak, peak);
    n->thrifty = true;
    p->stale = false;
    p->peak = peak;
    return true;
}

/* How much a device takes for modules and libraries is not known beforehand: this is room for the
 * handles and kernels of both libraries of a card. Small devices give less. */
#define OUTSIDE_MOST ((uint64_t)256 << 20)

/* Room for that, by rung 1: memory for it and for the slab is taken, and all that is idle then goes
 * back to the driver. False: others do not have it. */
static bool room_outside(struct pass *p)
{
    struct net *n = p->n;
    struct dev_mem room = { 0 };
    size_t bytes;
    berth_err err;
    p->outside = n->compute->budget / 32 < OUTSIDE_MOST ? n->compute->budget / 32 : OUTSIDE_MOST;
    bool got = sz_from_u64(p->peak + p->outside, &bytes) &&
               !res_alloc(n->res, &(struct res_alloc_args) { n->compute, n->owner, bytes, n->m },
                          &room, &err);
    dev_free(&room);
    struct dev_trimmed t = dev_trim(n->compute);
    if (got)
        rung(n, "outside", p->outside, t.released + t.discarded);
    return got;
}

/* Rung 3. The stream is closed meanwhile: blocks move only while nobody uses them. What they leave
 * is for the pass, so the ring that brings them back is a small one from now on. *helped: blocks
 * moved, or the ring got smaller. The status is that of opening the stream again. */
static berth_status own_blocks(struct pass *p, bool *helped, berth_err *err)
{
    struct net *n = p->n;
    uint64_t ring = n->stream ? stream_stats(n->stream).ring_bytes : 0;
    stream_close(n->stream);
    n->stream = NULL;
    uint64_t wanted = p->peak + p->outside, freed = res_evict_own(n->m, wanted);
    if (freed)
        rung(n, "blocks", wanted, freed);
    if (p->outside)
        dev_trim(n->compute);
    bool smaller = (freed && !n->ring) || (!freed && ring && n->ring < NET_RINGS - 1);
    n->ring += smaller;
    *helped = freed || smaller;
    return net_stream_open(n, err);
}

/* The dry run of a pass. BERTH_ENODEVMEM: no room outside, and others could not make any. */
static berth_status measure(struct pass *p, berth_err *err)
{
    struct net *n = p->n;
    berth_status s = n->stream || n->trace ? BERTH_OK : net_stream_open(n, err);
    if (s)
        return s;
    s = dry_run(n, n->thrifty, p->fn, p->user, &p->peak, err);
    if (s == BERTH_ENODEVMEM && room_outside(p)) {
        s = dry_run(n, n->thrifty, p->fn, p->user, &p->peak, err);
        p->outside = s == BERTH_ENODEVMEM ? p->outside : 0; /* what was missing is there */
    }
    return s;
}

/* Without a dry run: memory for the pass that was foreseen, if nobody has to make room for it. */
static bool prepare_foreseen(struct pass *p)
{
    struct net *n = p->n;
    const struct net_foreseen *f = &n->seen;
    berth_err err;
    if (!n->stream || !f->steady || f->fn != p->fn || f->thrifty != n->thrifty)
        return false;
    n->rep.predicted = p->peak = f->peak;
    return !f->peak || !dev_alloc(n->compute, n->owner, (size_t)f->peak, &p->slab, &err);
}

/* Dry run, and memory for what it found. */
static berth_status prepare(struct pass *p, berth_err *err)
{
    struct net *n = p->n;
    bool thrifty = n->thrifty;
    if ((p->unproven = !p->again && prepare_foreseen(p)))
        return BERTH_OK;
    berth_status s = measure(p, err);
    if (s && s != BERTH_ENODEVMEM)
        return s;
    if (!s)
        s = slab_try(p, err);
    if (s == BERTH_ENODEVMEM && p->peak && n->stream && be_thrifty(p))
        s = slab_try(p, err);
    for (bool helped = true; s == BERTH_ENODEVMEM && helped;) {
        berth_err reopen;
        berth_status opened = own_blocks(p, &helped, &reopen);
        if (opened) {
            *err = reopen;
            s = opened;      /* no room for the ring: more blocks may go */
        } else if (helped) { /* parameters that were read where they lay may have to be copied */
            p->stale = false;
            s = dry_run(n, n->thrifty, p->fn, p->user, &p->peak, err);
            if (!s)
                s = slab_try(p, err);
        }
    }
    if (s) {
        char what[64] = "making a pass ready", bytes[STR_BYTES_MAX];
        n->thrifty = thrifty; /* in vain: another pass may have room as it is */
        if (p->peak)
            snprintf(what, sizeof what, "a pass of %s", str_bytes(p->peak, bytes));
        return err_add(err, "model %.60s, %s on %s", res_info(n->m).name, what, n->compute->name);
    }
    if (p->outside)
        dev_trim(n->compute); /* what the pool took for the slab and did not need */
    return p->stale ? dry_run(n, n->thrifty, p->fn, p->user, &p->peak, err) : BERTH_OK;
}

/* One attempt. *again: another may succeed. */
static berth_status attempt(struct pass *p, bool *again, berth_err *err)
{
    berth_status s = prepare(p, err);
    *again = s == BERTH_EDEVICE;
    if (s)
        return s;
    s = real_run(p, err);
    *again = s == BERTH_EDEVICE || s == BERTH_ENODEVMEM;
    return s;
}

berth_status net_forward(struct net *n, net_forward_fn *fn, void *user, berth_err *err)
{
    struct pass p = { .n = n, .fn = fn, .user = user };
    bool again, helped;
    berth_status s = attempt(&p, &again, err);
    dev_free(&p.slab);
    p.again = true;
    if (p.unproven && p.missed) { /* other calls than before: all it wrote was the slab */
        s = attempt(&p, &again, err);
        dev_free(&p.slab);
    }
    if (again) {
        berth_err ignored; /* the next attempt opens the stream and says it */
        log_warn(n->log, "net.again", "model=%s dev=%s why=\"%s\"", res_info(n->m).name,
                 n->compute->name, err->msg);
        if (s == BERTH_ENODEVMEM && !room_outside(&p))
            own_blocks(&p, &helped, &ignored);
        s = attempt(&p, &again, err);
        dev_free(&p.slab);
    }
    if (s)
        return s;
#ifdef BERTH_CHECKS
    uint64_t peak = 0;
    berth_err why; /* canceled, for one */
    if (p.unproven && !dry_run(n, n->thrifty, fn, user, &peak, &why) && !n->seen.steady)
        BUG("a pass of %" PRIu64 " bytes went as foreseen, but its dry run takes %" PRIu64, p.peak,
            peak);
#endif
    n->rep.passes++;
    if (n->rep.peak > n->rep.largest) {
        n->rep.largest = n->rep.peak;
        n->rep.largest_predicted = n->rep.predicted;
    }
    return BERTH_OK;
}

berth_status net_predict(struct net *n, net_forward_fn *fn, void *user, uint64_t *peak,
                         berth_err *err)
{
    struct pass p = { .n = n, .fn = fn, .user = user };
    berth_status s = measure(&p, err);
    *peak = p.peak;
    return s;
}

/* ---- guests ---- */

berth_status net_invite(struct net *n, struct net *guest, berth_err *err)
{
    if (n->compute != guest->compute)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.80s' computes on %s and '%.80s' on %s: both must be on one device",
                       res_info(guest->m).name, guest->compute->name, res_info(n->m).name,
                       n->compute->name);
    if (n->guest && n->guest != guest)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.80s' has the layers of '%.80s' already",
                       res_info(n->m).name, res_info(n->guest->m).name);
    n->guest = guest;
    n->seen = (struct net_foreseen) { .at = n->seen.at, .cap = n->seen.cap };
    return BERTH_OK;
}

void net_visit(struct net_run *r, bool guest)
{
    if (guest && !r->n->guest)
        BUG("a layer of a guest, and there is none");
    r->from = guest ? r->n->guest : r->n;
}

/* ---- names of layers ---- */

size_t net_enter(struct net_run *r, const char *fmt, ...)
{
    size_t mark = r->prefix_len, room = sizeof r->prefix - mark;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(r->prefix + mark, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room) {
        r->prefix[mark] = 0;
        net_fail(r, BERTH_ELIMIT, "a layer's name of more than %zu bytes", sizeof r->prefix - 1);
    } else {
        r->prefix_len += (size_t)n;
    }
    return mark;
}

void net_leave(struct net_run *r, size_t mark)
{
    r->prefix_len = mark;
    r->prefix[mark] = 0;
}
