/* acts: activations: making and dropping them, host floats in and out, what is not finite. */
#include "net/net_impl.h"

#include <inttypes.h>
#include <math.h>

size_t net_type_bytes(enum dtype t)
{
    return dtype_desc(t)->bytes;
}

enum dtype net_dtype(const struct net_run *r)
{
    return r->n->act;
}

static bool act_bytes(enum dtype t, const struct shape *s, uint64_t *out)
{
    uint64_t count;
    return shape_count(s, &count) && dtype_bytes(t, count, out);
}

struct act net_new_of(struct net_run *r, enum dtype t, const struct shape *s)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t bytes;
    if (r->bad)
        return (struct act) { 0 };
    if (!act_bytes(t, s, &bytes)) {
        net_fail(r, BERTH_ELIMIT, "an activation %s", shape_text(s, text));
        return (struct act) { 0 };
    }
    uint64_t addr = net_take(r, bytes);
    return addr ? (struct act) { .shape = *s, .addr = addr, .dtype = t } : (struct act) { 0 };
}

struct act net_new(struct net_run *r, const struct shape *s)
{
    return net_new_of(r, r->n->act, s);
}

/* Where nobody is in a dry run: neither weights nor acts. */
#define DRY_KEPT (UINT64_C(1) << 52)

struct act net_kept(struct net_run *r, uint64_t at, const struct shape *s)
{
    const struct net *n = r->n;
    uint64_t bytes, end;
    char text[SHAPE_TEXT_MAX];
    if (r->bad)
        return (struct act) { 0 };
    if (!act_bytes(n->act, s, &bytes) || __builtin_add_overflow(at, bytes, &end) ||
        (!n->trace && end > n->kept_bytes)) {
        net_fail(r, BERTH_EINVAL, "%s at byte %" PRIu64 " of %" PRIu64 " that are kept",
                 shape_text(s, text), at, n->kept_bytes);
        return (struct act) { 0 };
    }
    return (struct act) { .shape = *s,
                          .addr = (r->dry ? DRY_KEPT : n->kept.addr) + at,
                          .dtype = n->act };
}

void net_drop(struct net_run *r, struct act *a)
{
    net_give(r, a->addr);
    *a = (struct act) { 0 };
}

struct view net_view(const struct act *a)
{
    struct view v = { .dtype = a->dtype, .shape = a->shape, .data = (void *)(uintptr_t)a->addr };
    size_t n = net_type_bytes(a->dtype);
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

/* ---- slices ---- */

struct view net_part(struct net_run *r, struct view v, int axis, uint64_t begin, uint64_t end)
{
    if (!r->bad && view_slice(&v, axis, begin, end, &v, &r->err))
        net_failed(r, "");
    return v;
}

struct view net_split(struct net_run *r, struct view v, uint32_t heads)
{
    char text[SHAPE_TEXT_MAX];
    if (r->bad)
        return v;
    if (v.shape.ndim != 3 || !heads || v.shape.dim[2] % heads) {
        net_fail(r, BERTH_EINVAL, "%s is not %u heads", shape_text(&v.shape, text), heads);
        return v;
    }
    v.shape.ndim = 4;
    v.shape.dim[3] = v.shape.dim[2] / heads;
    v.shape.dim[2] = heads;
    v.stride[3] = v.stride[2];
    v.stride[2] = (size_t)v.shape.dim[3] * v.stride[3];
    return v;
}

/* ---- host floats ---- */

struct act net_input_f32(struct net_run *r, const struct shape *s, const float *src)
{
    struct act a = net_new_of(r, DT_F32, s);
    uint64_t bytes;
    if (r->bad || r->dry || !act_bytes(DT_F32, s, &bytes))
        return a;
    r->queued = !r->n->host;
    if (dev_copy_h2d(r->n->queue, a.addr, src, (size_t)bytes, &r->err))
        net_failed(r, "input");
    return a;
}

struct act net_input(struct net_run *r, const struct shape *s, const float *src)
{
    if (r->n->act == DT_F32)
        return net_input_f32(r, s, src);
    struct act a = net_new(r, s), wide = net_input_f32(r, s, src);
    if (!r->bad)
        net_copy(r, net_view(&wide), net_view(&a));
    net_drop(r, &wide);
    return a;
}

static void look(struct net_run *r, const struct act *a, const float *v);

void net_output(struct net_run *r, struct act a, float *dst)
{
    uint64_t bytes;
    if (net_stop(r) || !act_bytes(DT_F32, &a.shape, &bytes))
        return;
    struct act wide = a;
    if (a.dtype != DT_F32) {
        wide = net_new_of(r, DT_F32, &a.shape);
        if (!r->bad)
            net_copy(r, net_view(&a), net_view(&wide));
    }
    if (!r->bad && !r->dry) {
        if (dev_copy_d2h(r->n->queue, dst, wide.addr, (size_t)bytes, &r->err) ||
            dev_stream_sync(r->n->queue, &r->err)) {
            net_failed(r, "output");
        } else {
            r->queued = false;
            look(r, &a, dst);
        }
    }
    if (wide.addr != a.addr)
        net_drop(r, &wide);
}

/* Host memory until the pass has ended. NULL: dry, or the run is bad. */
static float *net_room(struct net_run *r, uint64_t values)
{
    struct net_room *room = r->bad || r->dry ? NULL : malloc(sizeof *room + values * sizeof(float));
    if (!room && !r->bad && !r->dry)
        net_fail(r, BERTH_ENOMEM, "%" PRIu64 " values on the host", values);
    if (!room)
        return NULL;
    room->next = r->rooms;
    r->rooms = room;
    return room->at;
}

void net_rooms_free(struct net_run *r)
{
    while (r->rooms) {
        struct net_room *next = r->rooms->next;
        free(r->rooms);
        r->rooms = next;
    }
}

struct act net_host(struct net_run *r, struct act x, const struct shape *as, net_host_fn *fn,
                    const void *user)
{
    uint64_t in, out;
    if (r->bad)
        return (struct act) { 0 };
    if (!shape_count(&x.shape, &in) || !shape_count(as, &out) || in + out > SIZE_MAX / 8) {
        net_fail(r, BERTH_ELIMIT, "a step on the host: too many values");
        return (struct act) { 0 };
    }
    float *from = net_room(r, in + out), *to = from ? from + in : NULL;
    net_output(r, x, from);
    if (from && !r->bad)
        fn(from, &x.shape, to, as, user);
    return net_input(r, as, to);
}

/* ---- NaN ---- */

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

/* Values that are on the host now, if net_finite() was told to look at them. */
static void look(struct net_run *r, const struct act *a, const float *v)
{
    uint64_t count;
    char text[SHAPE_TEXT_MAX];
    if (r->watched != a->addr || !shape_count(&a->shape, &count))
        return;
    r->watched = 0;
    size_t bad = not_finite(v, (size_t)count);
    if (bad == count)
        return;
    where(&a->shape, bad, text, sizeof text);
    net_fail(r, BERTH_EINVAL, "%s: %s at %s", r->watch, isnan(v[bad]) ? "NaN" : "infinity", text);
}

void net_finite(struct net_run *r, struct act a, const char *what)
{
    if (r->bad || r->dry)
        return;
    r->watched = a.addr;
    r->watch = what;
}
