/* What a use holds: its block, its places, its scratch; and how it runs an op. */
#include "net/use.h"

#include "base/clock.h"
#include "op/op_def.h"

bool use_begin(struct use *u, struct net_run *r, const char *layer)
{
    *u = (struct use) { .r = r, .layer = layer, .keep = UINT64_MAX, .block = UINT64_MAX };
    u->env = (struct op_env) { .backend = r->n->backend,
                               .pool = r->n->pool,
                               .stream = r->n->host ? NULL : r->n->queue,
                               .cancel = r->n->cancel,
                               .log = r->n->log,
                               .thrifty = r->thrifty,
                               .checked = !r->dry, /* by the dry run, or right before (use_op) */
                               .fp8 = r->n->fp8 };
    r->layer = NET_NO_LAYER;
    return !net_stop(r);
}

void use_failed(struct use *u)
{
    net_failed(u->r, u->layer);
}

static void use_let_go(struct use *u)
{
    berth_err err;
    if (u->block != UINT64_MAX && !u->r->dry &&
        stream_release(u->r->from->stream, (size_t)u->block, &err) && !u->r->bad) {
        u->r->err = err;
        use_failed(u);
    }
    u->block = UINT64_MAX;
}

void use_give(struct use *u, size_t but)
{
    for (size_t i = u->places; i-- > but;)
        net_give(u->r, u->place[i]);
    u->places = but;
}

void use_end(struct use *u)
{
    use_let_go(u);
    use_give(u, 0);
}

uint64_t use_place(struct use *u, uint64_t bytes)
{
    uint64_t addr = net_take(u->r, bytes);
    if (addr && u->places == USE_PLACES)
        BUG("%zu places for one op", u->places);
    if (addr)
        u->place[u->places++] = addr;
    return addr;
}

void *use_bytes(struct use *u, const struct net_tensor *t)
{
    struct net_run *r = u->r;
    if (r->bad)
        return NULL;
    if (u->block != t->block) {
        use_let_go(u);
        if (!r->dry && stream_acquire(r->from->stream, t->block, &u->addr, &r->err)) {
            use_failed(u);
            return NULL;
        }
        u->block = t->block;
        r->backward += t->block < r->block;
        r->block = t->block;
    }
    if (r->dry)
        return (void *)(uintptr_t)SLAB_ALIGN; /* somewhere: nobody follows it */
    void *p = (void *)(uintptr_t)(u->addr + t->off);
    if (r->n->host)
        dev_host_access(r->n->compute, p, (size_t)t->bytes, DEV_READ);
    return p;
}

void *use_resident_bytes(struct use *u, const struct net_tensor *t)
{
    struct net_run *r = u->r;
    uint64_t addr = 0;
    if (r->bad)
        return NULL;
    if (r->dry)
        return (void *)(uintptr_t)SLAB_ALIGN;
    if (stream_acquire(r->from->stream, t->block, &addr, &r->err) ||
        stream_release(r->from->stream, t->block, &r->err)) {
        use_failed(u);
        return NULL;
    }
    void *p = (void *)(uintptr_t)(addr + t->off);
    if (r->n->host)
        dev_host_access(r->n->compute, p, (size_t)t->bytes, DEV_READ);
    return p;
}

static bool use_scratch(struct use *u, size_t bytes)
{
    u->env.scratch_bytes = bytes;
    u->env.scratch = bytes ? (void *)(uintptr_t)use_place(u, bytes) : NULL;
    return !u->r->bad;
}

/* ---- times, where somebody asked for them ---- */

static uint64_t time_begin(const struct use *u)
{
    berth_err err; /* the op's own call says it again */
    if (!u->r->n->times || u->r->dry || (!u->r->n->host && dev_stream_sync(u->r->n->queue, &err)))
        return 0;
    return clock_mono_ns(clock_system());
}

static void time_end(const struct use *u, const char *op, uint64_t begin)
{
    struct net_times *t = u->r->n->times;
    char what[sizeof t->at[0].what];
    berth_err err;
    size_t i = 0;
    if (!begin || (!u->r->n->host && dev_stream_sync(u->r->n->queue, &err)))
        return;
    uint64_t ns = clock_mono_ns(clock_system()) - begin;
    snprintf(what, sizeof what, "%s %.40s", op, u->layer);
    while (i < t->n && strcmp(t->at[i].what, what) != 0)
        i++;
    if (i == t->n && t->n < NET_TIMES_MAX)
        memcpy(t->at[t->n++].what, what, sizeof what);
    i = i < NET_TIMES_MAX ? i : NET_TIMES_MAX - 1;
    t->at[i].count++;
    t->at[i].ns += ns;
}

/* ---- ops ---- */

#define OP(x)                                                                                      \
    void use_op_##x(struct use *u, const struct op_##x *a)                                         \
    {                                                                                              \
        struct net_run *r = u->r;                                                                  \
        if (r->bad)                                                                                \
            return;                                                                                \
        uint64_t begin = time_begin(u);                                                            \
        r->queued |= !r->dry && !r->n->host;                                                       \
        if (!net_note_call(r, op_##x##_def.operand, a))                                            \
            return;                                                                                \
        if ((r->dry && op_##x##_ready(&u->env, a, &r->err)) ||                                     \
            (r->unproven && op_##x##_check(&u->env, a, &r->err)) ||                                \
            (use_scratch(u, op_##x##_scratch(&u->env, a)) && !r->dry &&                            \
             !replay_call(r, op_##x##_def.operand, op_##x##_def.size, &u->env, a) &&               \
             op_##x(&u->env, a, &r->err)))                                                         \
            use_failed(u);                                                                         \
        else if (r->n->trace)                                                                      \
            trace_op_##x(r, a);                                                                    \
        replay_called(r, #x);                                                                      \
        time_end(u, #x, begin);                                                                    \
    }
#include "op/ops.def"
#undef OP
