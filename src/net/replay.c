/* replay: the kernels of a pass, recorded once and launched as a whole.
 *
 * Steps of a sampler launch the same kernels with the same arguments again and again. One by one
 * they cost the host time, and where weights stream they cost the card time as well: it fetches
 * every launch over the link that the weights come by. So the first pass that goes as foreseen
 * (run.c) records its kernels, and those after it launch the recording.
 *
 * Segment  Calls of ops that follow one another on the stream and nothing else between them. The
 *          device tells, before anything else is queued (dev_stream_hook()): a wait for a block, a
 *          mark behind its last reader, a copy. There a segment is cut, and launched.
 * Proof    A pass that plays runs its forward as ever, only its ops launch nothing: each call is
 *          held against the recorded one, with all of its arguments, addresses included. The first
 *          that differs gives the pass up, which is then run again, dry first. Addresses repeat
 *          because weights stay where they are, streamed ones too (stream/ring.c), and because
 *          pools give the same slab again.
 * Limits   An op that waits or copies by itself (op/bounce.c) cannot be recorded: then nothing of
 *          the net is. A net whose passes keep changing is recorded RECORDINGS times at most. */
#include "net/net_impl.h"

#include "base/hash.h"
#include "op/op_def.h"

#define RECORDINGS 4
#define ARGS_MAX 1024 /* bytes of an op's arguments */

struct replay_segment {
    size_t to; /* it ends in front of this call */
    struct dev_graph *graph;
};

static struct replay_segment *segment_at(const struct net_replay *p, size_t i)
{
    return vec_at(&p->segments, i);
}

static void forget(struct net_replay *p)
{
    for (; p->segments.n; vec_pop(&p->segments))
        dev_graph_free(segment_at(p, p->segments.n - 1)->graph);
    p->calls.n = 0;
    p->whole = false;
}

void replay_close(struct net_replay *p)
{
    forget(p);
    vec_release(&p->segments);
    vec_release(&p->calls);
}

/* ---- what a call is ---- */

static uint64_t hash_view(const struct view *v, uint64_t hash)
{
    uint64_t all[3 + 2 * SHAPE_MAX_DIMS] = { v->dtype, (uint64_t)v->shape.ndim,
                                             (uintptr_t)v->data };
    size_t n = 3;
    for (int i = 0; i < v->shape.ndim; i++) {
        all[n++] = v->shape.dim[i];
        all[n++] = v->stride[i];
    }
    return hash_xxh64(all, n * sizeof *all, hash);
}

/* Views by what they mean, the rest of the arguments by their bytes: those between members may
 * differ where nothing does, which costs a recording and no more. */
static uint64_t hash_args(const struct op_operand *operand, size_t size, const void *args,
                          uint64_t hash)
{
    unsigned char rest[ARGS_MAX];
    if (size > sizeof rest)
        BUG("%zu bytes of arguments", size);
    memcpy(rest, args, size);
    for (size_t i = 0; i < OP_OPERANDS_MAX && operand[i].how; i++) {
        const struct op_operand *o = &operand[i];
        const void *at = (const char *)args + o->at;
        const struct view *v = at;
        size_t n = 1;
        if (o->how & OP_LIST) {
            memcpy(&v, at, sizeof v);
            memcpy(&n, (const char *)args + o->count, sizeof n);
        }
        memset(rest + o->at, 0, o->how & OP_LIST ? sizeof v : sizeof *v);
        for (size_t k = 0; k < n; k++)
            hash = hash_view(v + k, hash);
    }
    return hash_xxh64(rest, size, hash);
}

/* ---- segments ---- */

static berth_status give_up(struct net_replay *p, berth_err *err)
{
    p->mode = REPLAY_OFF;
    p->whole = false;
    p->missed = true;
    return err_set(err, BERTH_EINVAL, "the pass is not the one that was recorded");
}

static void never_again(struct net *n, const char *why)
{
    n->replay.mode = REPLAY_OFF;
    n->replay.whole = false;
    n->replay.recordings = RECORDINGS;
    log_debug(n->log, "net.replay", "model=%s dev=%s why=\"%s\"", res_info(n->m).name,
              n->compute->name, why);
}

static berth_status launch(struct net *n, struct dev_graph *g, berth_err *err)
{
    berth_status s = dev_graph_launch(g, n->queue, err);
    if (s)
        never_again(n, err->msg);
    return s;
}

/* Ends the segment that is being recorded, and runs it. What cannot be recorded has not run either:
 * the pass is to be run again. */
static berth_status cut_recorded(struct net *n, berth_err *err)
{
    struct net_replay *p = &n->replay;
    struct replay_segment *s = segment_at(p, p->segments.n - 1);
    p->open = false;
    s->to = p->calls.n;
    if (dev_record_end(n->queue, &s->graph, err)) {
        never_again(n, err->msg);
        return give_up(p, err);
    }
    return launch(n, s->graph, err);
}

static berth_status cut_played(struct net *n, berth_err *err)
{
    struct net_replay *p = &n->replay;
    if (p->at == p->segments.n || segment_at(p, p->at)->to != p->next)
        return give_up(p, err);
    p->from = p->next;
    return launch(n, segment_at(p, p->at++)->graph, err);
}

/* dev_stream_hook(): something else is about to be queued. */
static berth_status cut(void *user, berth_err *err)
{
    struct net *n = user;
    const struct net_replay *p = &n->replay;
    if (p->mode == REPLAY_RECORD && p->open)
        return cut_recorded(n, err);
    return p->mode == REPLAY_PLAY && p->next > p->from ? cut_played(n, err) : BERTH_OK;
}

/* ---- passes ---- */

void replay_begin(struct net *n, bool foreseen, uint64_t slab)
{
    struct net_replay *p = &n->replay;
    p->mode = REPLAY_OFF;
    p->open = p->missed = false;
    p->from = p->next = p->at = 0;
    if (!foreseen || n->times || n->host || !dev_can_record(n->queue))
        return;
    if (p->whole && p->slab == slab) {
        p->mode = REPLAY_PLAY;
    } else if (p->recordings < RECORDINGS) {
        forget(p);
        p->segments.elem = sizeof(struct replay_segment);
        p->calls.elem = sizeof(uint64_t);
        p->recordings++;
        p->slab = slab;
        p->mode = REPLAY_RECORD;
    }
    dev_stream_hook(n->queue, cut, n);
}

/* False: the op is to run. */
static bool play(struct net_run *r, uint64_t hash)
{
    struct net_replay *p = &r->n->replay;
    if (p->next == p->calls.n || *(const uint64_t *)vec_at(&p->calls, p->next) != hash) {
        give_up(p, &r->err);
        net_failed(r, "");
    }
    p->next++;
    return true;
}

static bool record(struct net_run *r, uint64_t hash)
{
    struct net *n = r->n;
    struct net_replay *p = &n->replay;
    uint64_t *call = vec_add(&p->calls);
    berth_err err;
    if (!call || (!p->open && !vec_add(&p->segments))) {
        net_fail(r, BERTH_ENOMEM, "a list of calls");
        return true;
    }
    *call = hash;
    if (!p->open && dev_record_begin(n->queue, &err))
        never_again(n, err.msg);
    else
        p->open = true;
    return false;
}

bool replay_call(struct net_run *r, const struct op_operand *operand, size_t size,
                 const struct op_env *env, const void *args)
{
    enum replay_mode mode = r->n->replay.mode;
    if (mode == REPLAY_OFF)
        return false;
    uint64_t with[] = { (uintptr_t)operand, (uintptr_t)env->scratch, env->scratch_bytes };
    uint64_t hash = hash_args(operand, size, args, hash_xxh64(with, sizeof with, 0));
    return mode == REPLAY_PLAY ? play(r, hash) : record(r, hash);
}

void replay_called(struct net_run *r, const char *op)
{
    if (r->n->replay.mode == REPLAY_RECORD && !r->n->replay.open)
        never_again(r->n, op);
}

berth_status replay_end(struct net *n, bool ok, berth_err *err)
{
    struct net_replay *p = &n->replay;
    struct dev_graph *rest = NULL;
    berth_err ignored;
    berth_status s = ok ? cut(n, err) : BERTH_OK;
    if (p->open && !dev_record_end(n->queue, &rest, &ignored))
        dev_graph_free(rest);
    p->open = false;
    if (p->mode == REPLAY_RECORD)
        p->whole = ok && !s;
    n->rep.replayed += ok && !s && p->mode == REPLAY_PLAY;
    if (p->mode != REPLAY_PLAY && !p->whole)
        forget(p);
    dev_stream_hook(n->queue, NULL, NULL);
    p->mode = REPLAY_OFF;
    return s;
}
