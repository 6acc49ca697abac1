#include "server/meter.h"

#include "base/hash.h"
#include "server/conn.h"
#include "server/worker_impl.h"

/* ---- the numbers ---- */

static void add_device(struct jsonout *j, const struct device *d)
{
    uint64_t bytes[DEV_KIND_COUNT], used = 0;
    dev_by_kind(d, bytes);
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        used += k == DEV_POOL_IDLE ? 0 : bytes[k];
    jo_open(j, NULL, '{');
    jo_str(j, "name", d->name);
    jo_str(j, "kind", d->phys->driver->name);
    jo_u64(j, "budget", d->budget);
    jo_u64(j, "used", used);
    jo_open(j, "by", '{');
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        jo_u64(j, dev_kind_name((enum dev_kind)k), bytes[k]);
    jo_close(j, '}');
    jo_close(j, '}');
}

/* All but the time and what follows from it: two of these are the same when nothing changed. The
 * last object is left open. */
static void add_numbers(const struct worker *w, const struct res_streamed *x, struct str *out)
{
    struct jsonout j = { .out = out, .depth = 2 };
    jo_open(&j, "devices", '[');
    for (size_t i = 0; i < devset_count(w->parts.devices); i++)
        add_device(&j, devset_at(w->parts.devices, i));
    jo_close(&j, ']');
    uint64_t exposed = x->exposed_ns < x->copy_ns ? x->exposed_ns : x->copy_ns; /* an estimate */
    jo_open(&j, "stream", '{');
    jo_u64(&j, "bytes", x->bytes);
    jo_fmt(&j, "seconds", "%.6f", (double)x->copy_ns / 1e9);
    jo_fmt(&j, "exposed_seconds", "%.6f", (double)exposed / 1e9);
}

static void add_message(struct server *s, const struct str *numbers, struct str *out)
{
    struct jsonout j = { .out = out };
    jo_open(&j, NULL, '{');
    jo_str(&j, "type", "berth.memory");
    jo_open(&j, "data", '{');
    jo_u64(&j, "time", clock_wall_ns(s->worker->clock) / 1000000);
    jo_raw(&j, NULL, str_c(numbers), numbers->n);
    j.depth++; /* "stream" */
    jo_fmt(&j, "gb_per_s", "%.6f", s->meter.gb_per_s);
    for (int i = 0; i < 3; i++)
        jo_close(&j, '}');
    out->bad |= numbers->bad;
}

static bool is_running(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool yes = w->job != NULL;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* ---- now and then ---- */

void meter_text(struct server *s, struct str *out)
{
    struct str numbers = { 0 };
    struct res_streamed x = res_streamed(s->worker->parts.res);
    if (!s->meter.ticking) {
        s->meter = (struct meter) { .ticking = true,
                                    .at = clock_mono_ns(clock_system()),
                                    .bytes = x.bytes };
        loop_tick(s, METER_MS);
    }
    add_numbers(s->worker, &x, &numbers);
    add_message(s, &numbers, out);
    str_release(&numbers);
}

void meter_tick(struct server *s)
{
    struct meter *m = &s->meter;
    m->ticking = hub_berth_wanted(s);
    if (!m->ticking)
        return;
    struct str numbers = { 0 }, text = { 0 };
    struct res_streamed x = res_streamed(s->worker->parts.res);
    uint64_t now = clock_mono_ns(clock_system());
    m->gb_per_s = now > m->at ? (double)(x.bytes - m->bytes) / (double)(now - m->at) : 0;
    m->at = now;
    m->bytes = x.bytes;
    add_numbers(s->worker, &x, &numbers);
    uint64_t hash = hash_xxh64(str_c(&numbers), numbers.n, m->gb_per_s > 0);
    bool running = is_running(s->worker);
    if (hash != m->sent_hash || running || m->ran) {
        add_message(s, &numbers, &text);
        hub_send_berth(s, true, &text);
        m->sent_hash = hash;
    }
    m->ran = running;
    str_release(&numbers);
    str_release(&text);
    loop_tick(s, METER_MS);
}
