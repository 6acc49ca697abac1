/* speed: the devices as plans see them, and how fast bytes get from one to another. */
#include "residency/residency_impl.h"

enum { PROBE_BYTES = 16 << 20 };

struct probe { /* a copy of n bytes from one device to another, done twice: once to warm up */
    struct residency *r;
    size_t from, to;
    size_t n;
    struct dev_owner *owner[3]; /* source, destination, pinned source */
    struct dev_mem src, dst;
    struct dev_host pinned;
    struct dev_stream *stream;
};

static void probe_close(struct probe *p)
{
    res_stream_settle(p->r, p->to);
    dev_free(&p->src);
    dev_free(&p->dst);
    dev_host_free(&p->pinned);
    for (size_t i = 0; i < ARRAY_LEN(p->owner); i++)
        dev_owner_close(p->owner[i]);
}

/* Weights of a card's model are pinned in host memory, so that is what is timed. */
static bool pins(const struct probe *p)
{
    return dev_can(res_device(p->r, p->from), BERTH_CAP_HOST_VISIBLE) &&
           dev_can(res_device(p->r, p->to), BERTH_CAP_PINNED) && p->r->pin_budget;
}

static berth_status probe_open(struct probe *p, berth_err *err)
{
    struct device *from = res_device(p->r, p->from), *to = res_device(p->r, p->to);
    berth_status s = dev_owner_open(to, "link speed", DEV_STAGING, &p->owner[1], err);
    if (!s)
        s = dev_alloc(to, p->owner[1], p->n, &p->dst, err);
    if (!s && pins(p)) {
        s = dev_owner_open(to, "link speed", DEV_PINNED, &p->owner[2], err);
        return s ? s : dev_host_alloc(to, p->owner[2], p->n, &p->pinned, err);
    }
    if (!s)
        s = dev_owner_open(from, "link speed", DEV_STAGING, &p->owner[0], err);
    return s ? s : dev_alloc(from, p->owner[0], p->n, &p->src, err);
}

/* Bytes that a copy may read. */
static berth_status probe_fill(struct probe *p, berth_err *err)
{
    struct device *from = res_device(p->r, p->from);
    struct dev_stream *s;
    void *host = p->pinned.ptr;
    if (!host && dev_can(from, BERTH_CAP_HOST_VISIBLE))
        host = (void *)(uintptr_t)p->src.addr;
    if (host) {
        dev_host_access(from, host, p->n, DEV_WRITE);
        memset(host, 1, p->n);
        return BERTH_OK;
    }
    void *zero = calloc(1, p->n);
    if (!zero)
        return err_set(err, BERTH_ENOMEM, "%zu bytes", p->n);
    berth_status st = res_stream_of(p->r, p->from, &s, err);
    if (!st)
        st = dev_copy_h2d(s, p->src.addr, zero, p->n, err);
    if (!st)
        st = dev_stream_sync(s, err);
    if (st)
        res_stream_settle(p->r, p->from);
    dev_host_gone(from->phys, zero, p->n);
    free(zero);
    return st;
}

static berth_status probe_copy(struct probe *p, berth_err *err)
{
    berth_status s;
    if (p->pinned.ptr)
        s = dev_copy_h2d(p->stream, p->dst.addr, p->pinned.ptr, p->n, err);
    else
        s = dev_copy(p->stream, (struct dev_at) { res_device(p->r, p->to), p->dst.addr },
                     (struct dev_at) { res_device(p->r, p->from), p->src.addr }, p->n, err);
    return s ? s : dev_stream_sync(p->stream, err);
}

static berth_status probe_run(struct probe *p, double *speed, berth_err *err)
{
    if (res_stream_of(p->r, p->to, &p->stream, err) || probe_open(p, err) || probe_fill(p, err) ||
        probe_copy(p, err))
        return err->code;
    uint64_t began = res_now(p->r);
    if (probe_copy(p, err))
        return err->code;
    uint64_t ns = res_now(p->r) - began;
    *speed = ns ? (double)p->n * 1e9 / (double)ns : 0;
    return BERTH_OK;
}

/* What cannot be measured stays unmeasured: a plan can do without. */
static double measure(struct residency *r, size_t from, size_t to)
{
    struct probe p = { .r = r, .from = from, .to = to, .n = PROBE_BYTES };
    uint64_t left[] = { res_left_on(r, from), res_left_on(r, to),
                        r->host < r->n_devices ? res_left_on(r, r->host) : PROBE_BYTES };
    double speed = 0;
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(left); i++)
        if (left[i] / 8 < p.n)
            p.n = (size_t)(left[i] / 8);
    if (!p.n)
        return 0;
    if (probe_run(&p, &speed, &err))
        log_debug(r->log, "res.speed", "from=%s to=%s why=\"%s\"", res_device(r, from)->name,
                  res_device(r, to)->name, err.msg);
    probe_close(&p);
    dev_trim(res_device(r, from)); /* looking leaves nothing behind */
    dev_trim(res_device(r, to));
    return speed;
}

size_t res_default_compute(const struct residency *r)
{
    return r->host == 0 && r->n_devices > 1 ? 1 : 0;
}

berth_status res_plan_devices(struct residency *r, const char *compute, bool measured,
                              struct plan_devices *out, berth_err *err)
{
    size_t to = res_default_compute(r);
    out->n = 0;
    if (compute && *compute && devset_find(r->devices, compute, strlen(compute), &to, err))
        return err->code;
    for (size_t i = 0; i < r->n_devices; i++) {
        const struct device *d = res_device(r, i);
        double *speed = &r->speed[i * r->n_devices + to];
        if (measured && i != to && !(*speed > 0))
            *speed = measure(r, i, to);
        struct plan_device *x = &out->at[out->n++];
        *x = (struct plan_device) {
            .total = d->budget, .budget = d->budget, .host = i == r->host, .speed = *speed
        };
        memcpy(x->name, d->name, sizeof x->name);
    }
    return BERTH_OK;
}
