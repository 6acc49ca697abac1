/* cuda_peer: cards that read each other's memory. What the driver says is tried: a pattern must
 * arrive in both directions, or the cards are no peers. */
#include "device/cuda/cuda_impl.h"

#include <inttypes.h>

#define TEST_BYTES ((size_t)256 << 10)

bool cuda_can_peer(const struct phys *to, const struct phys *from)
{
    const struct vec *peers = &((const struct cuda_dev *)to)->peers;
    for (size_t i = 0; i < peers->n; i++)
        if (&(*(struct cuda_dev **)vec_at(peers, i))->pub.base == from)
            return true;
    return false;
}

static bool can_access(struct cuda_dev *a, struct cuda_dev *b)
{
    int can = 0;
    return !a->pub.api->cuDeviceCanAccessPeer(&can, a->pub.dev, b->pub.dev) && can;
}

static berth_status enable(struct cuda_dev *a, struct cuda_dev *b, berth_err *err)
{
    if (cuda_current(&a->pub, err))
        return err->code;
    CUresult r = a->pub.api->cuCtxEnablePeerAccess(b->pub.ctx, 0);
    if (r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) /* another set of this process did */
        return BERTH_OK;
    return cuda_check_among(a, &b, 1, r, "cuCtxEnablePeerAccess", err);
}

/* Both lists or none. */
static bool join(struct cuda_dev *a, struct cuda_dev *b)
{
    if (!vec_reserve(&a->peers, a->peers.n + 1) || !vec_reserve(&b->peers, b->peers.n + 1))
        return false;
    struct cuda_dev **in_a = vec_add(&a->peers), **in_b = vec_add(&b->peers);
    if (!in_a || !in_b)
        BUG("reserved above");
    *in_a = b;
    *in_b = a;
    return true;
}

static void leave(struct cuda_dev *a, const struct cuda_dev *b)
{
    struct cuda_dev **all = a->peers.p;
    for (size_t i = 0; i < a->peers.n; i++)
        if (all[i] == b) {
            all[i] = all[a->peers.n - 1];
            vec_pop(&a->peers);
            return;
        }
}

/* ---- the test ---- */

static void pattern(uint32_t *p, uint32_t seed)
{
    for (size_t i = 0; i < TEST_BYTES / sizeof *p; i++)
        p[i] = (seed + (uint32_t)i) * UINT32_C(2654435761);
}

struct trial {
    struct cuda_dev *from, *to;
    uint64_t src, dst;
    uint32_t *sent, *got; /* TEST_BYTES each */
};

static berth_status carry(const struct trial *t, uint32_t seed, bool *arrived, berth_err *err)
{
    struct dev_stream *s = t->from->own, *there = t->to->own;
    pattern(t->sent, seed);
    pattern(t->got, ~seed); /* what the receiver has before: something else */
    if (cuda_copy_h2d(there, t->dst, t->got, TEST_BYTES, err) || cuda_stream_sync(there, err) ||
        cuda_copy_h2d(s, t->src, t->sent, TEST_BYTES, err) ||
        cuda_copy_peer(s, &t->to->pub.base, t->dst, &t->from->pub.base, t->src, TEST_BYTES, err) ||
        cuda_stream_sync(s, err) || cuda_copy_d2h(there, t->got, t->dst, TEST_BYTES, err) ||
        cuda_stream_sync(there, err))
        return err->code;
    *arrived = memcmp(t->sent, t->got, TEST_BYTES) == 0;
    return BERTH_OK;
}

/* Queued copies are waited for, whatever happened. False: they may still run. */
static bool settled(struct cuda_dev *a, struct cuda_dev *b)
{
    berth_err err;
    bool one = !cuda_stream_sync(a->own, &err);
    return !cuda_stream_sync(b->own, &err) && one;
}

static berth_status try_both(struct cuda_dev *a, struct cuda_dev *b, bool *arrived, berth_err *err)
{
    uint64_t at_a = 0, at_b = 0;
    size_t n = a->pub.base.granularity, m = b->pub.base.granularity;
    void *buf = NULL;
    *arrived = false;
    berth_status s = cuda_host_alloc(&a->pub.base, 2 * TEST_BYTES, &buf, err);
    if (!s)
        s = cuda_alloc(&a->pub.base, n, &at_a, err);
    if (!s)
        s = cuda_alloc(&b->pub.base, m, &at_b, err);
    uint32_t *sent = buf, *got = buf ? sent + TEST_BYTES / sizeof *sent : NULL;
    if (!s)
        s = carry(&(struct trial) { a, b, at_a, at_b, sent, got }, 1, arrived, err);
    if (!s && *arrived)
        s = carry(&(struct trial) { b, a, at_b, at_a, sent, got }, 2, arrived, err);
    if (s && !settled(a, b)) /* what they touch stays until the cards are closed */
        return s;
    if (at_a)
        cuda_free(&a->pub.base, at_a, n);
    if (at_b)
        cuda_free(&b->pub.base, at_b, m);
    if (buf)
        cuda_host_free(&a->pub.base, buf, 2 * TEST_BYTES);
    return s;
}

/* ---- life ---- */

static void no_peers(struct cuda_dev *a, struct cuda_dev *b, const char *why)
{
    log_warn(a->log, "cuda.peer", "dev=%s with=%s copies=staged why=\"%s\"", a->pub.base.name,
             b->pub.base.name, why);
}

static void connect_to(struct cuda_dev *d, struct cuda_dev *o)
{
    berth_err err;
    bool arrived = false;
    if (!can_access(d, o) || !can_access(o, d))
        return;
    if (!join(d, o)) {
        no_peers(d, o, "no host memory");
        return;
    }
    berth_status s = enable(d, o, &err);
    if (!s)
        s = enable(o, d, &err);
    if (!s)
        s = cuda_share(o, &err);
    if (!s)
        s = try_both(d, o, &arrived, &err);
    if (!s && arrived) {
        d->pub.base.caps |= BERTH_CAP_PEER;
        o->pub.base.caps |= BERTH_CAP_PEER;
        return;
    }
    no_peers(d, o, s ? err.msg : "a pattern copied over did not arrive");
    leave(d, o);
    leave(o, d);
}

berth_status cuda_peer_open(struct cuda_dev *d, berth_err *err)
{
    for (struct cuda_dev *o = d->library->open; o; o = o->next) {
        if (atomic_load(&o->pub.lost))
            continue;
        connect_to(d, o);
        if (cuda_lost(d, err) || cuda_lost(o, err))
            return err_add(err, "%s: access to %s", d->pub.base.name, o->pub.base.name);
    }
    return BERTH_OK;
}

void cuda_peer_close(struct cuda_dev *d)
{
    while (d->peers.n) {
        struct cuda_dev *o = *(struct cuda_dev **)vec_at(&d->peers, d->peers.n - 1);
        leave(o, d);
        leave(d, o);
    }
    vec_release(&d->peers);
}
