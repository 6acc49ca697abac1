/* acts: activations: making and dropping them, host floats in and out, what is not finite. */
#include "net/net_impl.h"

#include "base/sz.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool act_bytes(const struct shape *s, uint64_t *out)
{
    uint64_t count;
    return shape_count(s, &count) && dtype_bytes(DT_F32, count, out);
}

struct act net_new(struct net_run *r, const struct shape *s)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t bytes;
    if (r->bad)
        return (struct act) { 0 };
    if (!act_bytes(s, &bytes)) {
        net_fail(r, BERTH_ELIMIT, "an activation %s", shape_text(s, text));
        return (struct act) { 0 };
    }
    uint64_t addr = net_take(r, bytes);
    return addr ? (struct act) { .shape = *s, .addr = addr } : (struct act) { 0 };
}

void net_drop(struct net_run *r, struct act *a)
{
    net_give(r, a->addr);
    *a = (struct act) { 0 };
}

struct view net_view(const struct act *a)
{
    struct view v = { .dtype = DT_F32, .shape = a->shape, .data = (void *)(uintptr_t)a->addr };
    size_t n = sizeof(float);
    for (int i = a->shape.ndim - 1; i >= 0; i--) {
        v.stride[i] = n;
        n *= a->shape.dim[i] ? a->shape.dim[i] : 1; /* fits: net_new() saw it */
    }
    return v;
}

struct act net_reshape(struct net_run *r, struct act a, const struct shape *s)
{
    char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
    uint64_t have, want;
    if (r->bad)
        return (struct act) { 0 };
    if (!shape_count(&a.shape, &have) || !shape_count(s, &want) || have != want) {
        net_fail(r, BERTH_EINVAL, "reshape: %s has not as many elements as %s",
                 shape_text(&a.shape, from), shape_text(s, to));
        return (struct act) { 0 };
    }
    a.shape = *s;
    return a;
}

/* ---- host floats ---- */

struct act net_input(struct net_run *r, const struct shape *s, const float *src)
{
    struct act a = net_new(r, s);
    uint64_t bytes;
    if (r->bad || r->dry || !act_bytes(s, &bytes))
        return a;
    if (dev_copy_h2d(r->n->queue, a.addr, src, (size_t)bytes, &r->err))
        net_failed(r, "input");
    return a;
}

void net_output(struct net_run *r, struct act a, float *dst)
{
    uint64_t bytes;
    if (net_stop(r) || r->dry || !act_bytes(&a.shape, &bytes))
        return;
    if (dev_copy_d2h(r->n->queue, dst, a.addr, (size_t)bytes, &r->err) ||
        dev_stream_sync(r->n->queue, &r->err))
        net_failed(r, "output");
}

/* ---- NaN ---- */

#define LOOK ((size_t)4096) /* floats at a time */

/* Index of the first value of n that is not finite, or n. */
static size_t not_finite(const float *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(p[i]))
            return i;
    return n;
}

static void where(const struct shape *s, uint64_t at, char *buf, size_t cap)
{
    struct shape index = { .ndim = s->ndim };
    char text[SHAPE_TEXT_MAX];
    for (int i = s->ndim - 1; i >= 0; i--) {
        index.dim[i] = at % s->dim[i];
        at /= s->dim[i];
    }
    snprintf(buf, cap, "%s", shape_text(&index, text));
}

void net_finite(struct net_run *r, struct act a, const char *what)
{
    float look[LOOK];
    uint64_t count;
    if (r->bad || r->dry || !shape_count(&a.shape, &count))
        return;
    for (uint64_t at = 0; at < count; at += LOOK) {
        size_t n = count - at < LOOK ? (size_t)(count - at) : LOOK;
        if (dev_copy_d2h(r->n->queue, look, a.addr + at * sizeof *look, n * sizeof *look,
                         &r->err) ||
            dev_stream_sync(r->n->queue, &r->err)) {
            net_failed(r, what);
            return;
        }
        size_t bad = not_finite(look, n);
        if (bad == n)
            continue;
        char text[SHAPE_TEXT_MAX];
        where(&a.shape, at + bad, text, sizeof text);
        net_fail(r, BERTH_EINVAL, "%s: %s at %s", what, isnan(look[bad]) ? "NaN" : "infinity",
                 text);
        return;
    }
}
