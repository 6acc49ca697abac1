/* The doors to device memory: owners, budgets, retirement, what an out-of-memory says. */
#include "device/device_impl.h"
#include "device/pool.h"
#include "support/devices.h"
#include "support/oom.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB ((size_t)1 << 20)

static void books_every_byte(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *w = owner_of(d, "flux-dev", DEV_WEIGHTS);
    struct dev_owner *a = owner_of(d, "step", DEV_ACTIVATIONS);
    struct dev_ledger_row row[8];
    struct dev_stats sum;
    (void)state;
    struct dev_mem m[3] = { alloc_on(d, w, 1000), alloc_on(d, w, 3 * MIB), alloc_on(d, a, 1) };
    assert_int_equal(m[0].n, 1000);
    assert_ptr_equal(m[0].dev, d);
    assert_int_equal(dev_ledger(d, row, 8, &sum), 3);
    uint64_t bytes = 0, held = sum.in_use + sum.idle;
    for (int i = 0; i < 3; i++)
        bytes += row[i].bytes;
    assert_true(bytes == held);
    for (int i = 0; i < 3; i++) {
        if (row[i].kind == DEV_WEIGHTS) {
            assert_string_equal(row[i].owner, "flux-dev");
            assert_true(row[i].bytes == 1024 + 3 * MIB && row[i].requested == 1000 + 3 * MIB);
            assert_int_equal(row[i].count, 2);
        } else if (row[i].kind == DEV_ACTIVATIONS) {
            assert_true(row[i].bytes == 256 && row[i].requested == 1);
        } else {
            assert_int_equal(row[i].kind, DEV_POOL_IDLE);
            assert_string_equal(row[i].owner, "");
            assert_true(row[i].bytes == sum.idle);
        }
    }
    assert_int_equal(dev_ledger(d, row, 1, NULL), 3); /* counts what does not fit */
    assert_int_equal(dev_ledger(d, NULL, 0, NULL), 3);
    for (int i = 0; i < 3; i++)
        dev_free(&m[i]);
    assert_null(m[0].dev);
    dev_free(&m[0]); /* empty: fine */
    struct dev_trimmed t = dev_trim(d);
    assert_true(t.idle == 0 && t.released == held);
    assert_int_equal(dev_ledger(d, row, 8, &sum), 0);
    assert_true(sum.in_use == 0 && sum.idle == 0 && sum.segments == 0);
    assert_true(sum.peak == 1024 + 3 * MIB + 256);
    dev_owner_close(w);
    dev_owner_close(a);
    devset_close(set);
}

static void owners_are_lines(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *a = owner_of(d, "m", DEV_WEIGHTS), *b = owner_of(d, "m", DEV_WEIGHTS);
    struct dev_owner *c = owner_of(d, "m", DEV_STAGING), *bad;
    struct dev_ledger_row row[4];
    berth_err err = { 0 };
    char name[DEV_OWNER_MAX + 1];
    (void)state;
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    struct dev_mem m = alloc_on(d, a, 1);
    dev_owner_close(a);
    dev_owner_close(b);
    dev_owner_close(NULL);
    assert_int_equal(dev_ledger(d, row, 4, NULL), 2); /* the bytes keep their name */
    assert_string_equal(row[0].owner, "m");
    a = owner_of(d, "m", DEV_WEIGHTS); /* and are found again */
    struct dev_mem m2 = alloc_on(d, a, 1);
    dev_ledger(d, row, 4, NULL);
    assert_int_equal(row[0].count, 2);
    dev_owner_close(a);
    dev_free(&m);
    dev_free(&m2);
    dev_owner_close(c);
    assert_null(d->ledger->lines);
    memset(name, 'x', sizeof name);
    name[DEV_OWNER_MAX] = '\0';
    assert_fails(dev_owner_open(d, name, DEV_WEIGHTS, &bad, &err), err, BERTH_ELIMIT, "null:0");
    assert_null(bad);
    name[DEV_OWNER_MAX - 1] = '\0';
    dev_owner_close(owner_of(d, name, DEV_WEIGHTS));
    assert_fails(dev_owner_open(d, "", DEV_WEIGHTS, &bad, &err), err, BERTH_EINVAL, "owner");
    assert_fails(dev_owner_open(d, "x", DEV_POOL_IDLE, &bad, &err), err, BERTH_EINVAL, "pool-idle");
    devset_close(set);
}

static void no_room_says_the_numbers(void **state)
{
    struct devset *set = open_devices("null:0=16m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *w = owner_of(d, "w", DEV_WEIGHTS), *s = owner_of(d, "s", DEV_STAGING);
    berth_err err = { 0 };
    struct dev_mem m[2] = { alloc_on(d, w, 9 * MIB), alloc_on(d, s, 300) }, none;
    (void)state;
    assert_fails(dev_alloc(d, w, 8 * MIB, &none, &err), err, BERTH_ENODEVMEM,
                 "null:0 is full: needs 8.00 MiB, 7.00 MiB of 16.0 MiB are left: wanted ");
    assert_null(none.dev);
    static const char *const parts[] = { "wanted 8388608",
                                         "in use 9437696 (weights 9437184, staging 512,",
                                         " activations 0, of them retired 0)",
                                         "idle 7339520",
                                         "(largest range 7339520)",
                                         "pinned 0, left 0 of budget 16777216",
                                         "driver free 0",
                                         "the budget leaves 0 of" };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(err.msg, parts[i]))
            fail_msg("'%s' is not in '%s'", parts[i], err.msg);
    assert_fails(dev_alloc(d, w, 0, &none, &err), err, BERTH_EINVAL, "zero bytes");
    dev_free(&m[0]);
    dev_free(&m[1]);
    m[0] = alloc_on(d, w, 16 * MIB); /* the object is as good as before */
    dev_free(&m[0]);
    dev_owner_close(w);
    dev_owner_close(s);
    devset_close(set);
}

static uint64_t number_behind(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    unsigned long long n = 0;
    if (!at || sscanf(at + strlen(word), " %llu", &n) != 1)
        fail_msg("no number behind '%s' in '%s'", word, text);
    return n;
}

/* in use + idle + pinned + left == budget, whatever stood in the way. */
static void assert_adds_up(const char *msg, uint64_t budget)
{
    uint64_t in_use = number_behind(msg, ", in use"), idle = number_behind(msg, ", idle");
    uint64_t pinned = number_behind(msg, ", pinned"), left = number_behind(msg, ", left");
    assert_true(number_behind(msg, "of budget") == budget);
    if (in_use + idle + pinned + left != budget)
        fail_msg("does not add up: '%s'", msg);
}

static void the_numbers_add_up(void **state)
{
    struct devset *set = open_devices("cpu=16m,null:0=16m", NULL);
    struct device *cpu = devset_at(set, 0), *d = devset_at(set, 1);
    struct dev_owner *w = owner_of(cpu, "w", DEV_WEIGHTS), *p = owner_of(cpu, "p", DEV_PINNED);
    struct dev_owner *nw = owner_of(d, "w", DEV_WEIGHTS);
    struct dev_host h, no_host;
    berth_err err = { 0 };
    struct dev_mem none;
    (void)state;
    assert_ok(dev_host_alloc(d, p, 4 * MIB, &h, &err), err);
    struct dev_mem m = alloc_on(cpu, w, 3 * MIB), s = alloc_on(cpu, w, 100);
    struct dev_mem big = alloc_on(cpu, w, 5 * MIB);
    dev_free(&m);
    assert_fails(dev_alloc(cpu, w, 8 * MIB, &none, &err), err, BERTH_ENODEVMEM, "pinned 4194304,");
    assert_adds_up(err.msg, 16 * MIB);
    assert_true(number_behind(err.msg, ", in use") == 5 * MIB + 256);
    assert_fails(dev_host_alloc(cpu, p, 7 * MIB, &no_host, &err), err, BERTH_ENODEVMEM, "cpu is ");
    assert_adds_up(err.msg, 16 * MIB);
    struct dev_mem n = alloc_on(d, nw, 9 * MIB); /* refused in the end, after all it tried */
    assert_fails(dev_alloc(d, nw, 7 * MIB + 1, &none, &err), err, BERTH_ENODEVMEM, "null:0 is ");
    assert_adds_up(err.msg, 16 * MIB);
    null_fail(d, NULL_ALLOC, 1); /* and by the driver, with room in the budget */
    dev_trim(d);
    assert_fails(dev_alloc(d, nw, 7 * MIB + 1, &none, &err), err, BERTH_ENODEVMEM, "null:0 is ");
    assert_adds_up(err.msg, 16 * MIB);
    dev_free(&n);
    dev_free(&s);
    dev_free(&big);
    dev_host_free(&h);
    dev_owner_close(w);
    dev_owner_close(p);
    dev_owner_close(nw);
    devset_close(set);
}

/* Parts of one pinned allocation: neighbours, each booked as it was asked for, and all of it held
 * until the last one goes. One copy may span them. */
static void pinned_parts(void **state)
{
    struct devset *set = open_devices("null:0=16m,cpu=16m", NULL);
    struct device *d = devset_at(set, 0), *cpu = devset_at(set, 1);
    struct dev_owner *p = owner_of(d, "parts", DEV_PINNED), *o = owner_of(d, "m", DEV_STAGING);
    struct dev_stream *s = stream_of(d);
    struct dev_mem m = alloc_on(d, o, 8192);
    struct dev_host h[3];
    struct dev_pins *pins, *none;
    struct dev_ledger_row row;
    berth_err err = { 0 };
    (void)state;
    assert_fails(dev_pins_new(d, p, 17 * MIB, &none, &err), err, BERTH_ENODEVMEM, "cpu is full");
    assert_null(none);
    null_fail(d, NULL_HOST_ALLOC, 1);
    assert_fails(dev_pins_new(d, p, MIB, &none, &err), err, BERTH_ENOMEM, "null:0");
    assert_ok(dev_pins_new(d, p, 512 + 4096, &pins, &err), err);
    dev_pins_part(pins, 100, &h[0]);
    dev_pins_part(pins, 10, &h[1]);
    dev_pins_part(pins, 4096, &h[2]);
    dev_pins_close(pins); /* its parts have it now */
    assert_ptr_equal(h[1].ptr, (char *)h[0].ptr + 256);
    assert_ptr_equal(h[2].ptr, (char *)h[0].ptr + 512);
    for (int i = 0; i < 3; i++)
        assert_true(dev_host_base(&h[i]) == (uintptr_t)h[0].ptr);
    assert_int_equal(dev_ledger(cpu, &row, 1, NULL), 1);
    assert_true(row.kind == DEV_PINNED && row.requested == 4206 && row.bytes == 8192);
    assert_sound(cpu);
    memset(h[0].ptr, 1, 512 + 4096);
    assert_ok(dev_copy_h2d(s, m.addr, h[0].ptr, 512 + 4096, &err), err);
    assert_ok(dev_stream_sync(s, &err), err);
    dev_host_free(&h[2]);
    dev_host_free(&h[0]);
    assert_null(h[0].ptr);
    dev_host_free(&h[0]);
    assert_int_equal(dev_ledger(cpu, &row, 1, NULL), 1);
    assert_true(row.requested == 10 && row.bytes == 8192 && stats_of(cpu).pinned == 8192);
    assert_sound(cpu);
    assert_int_equal(null_hazards(d), 0);
    assert_ok(dev_copy_h2d(s, m.addr, (char *)h[1].ptr - 256, 10, &err),
              err); /* of one that went */
    assert_int_equal(null_hazards(d), 1);
    assert_ok(dev_stream_sync(s, &err), err);
    dev_host_free(&h[1]);
    assert_true(stats_of(cpu).pinned == 0 && dev_ledger(cpu, &row, 1, NULL) == 0);
    dev_free(&m);
    dev_stream_free(s);
    dev_owner_close(o);
    dev_owner_close(p);
    devset_close(set);
}

struct gate { /* work that a test holds back simply by not running the engine */
    struct devset *set;
    struct device *d;
    struct dev_stream *s;
    struct dev_event *e;
    struct dev_owner *o;
};

static struct gate gate_open(const char *text)
{
    static const struct null_config lazy = { .lazy = true };
    static const struct dev_env env = { .null = &lazy };
    struct gate g = { .set = open_devices(text, &env) };
    g.d = devset_at(g.set, 0);
    g.s = stream_of(g.d);
    g.e = event_of(g.d);
    g.o = owner_of(g.d, "m", DEV_WEIGHTS);
    return g;
}

static void gate_close(struct gate *g)
{
    dev_owner_close(g->o);
    dev_event_free(g->e);
    dev_stream_free(g->s);
    assert_true(null_hazards(g->d) == 0);
    devset_close(g->set);
}

/* Memory that the stream fills, retired on an event recorded behind that. */
static void retire_one(struct gate *g, size_t n)
{
    static char zero[64];
    berth_err err = { 0 };
    struct dev_mem m = alloc_on(g->d, g->o, n);
    assert_ok(dev_copy_h2d(g->s, m.addr, zero, sizeof zero, &err), err);
    assert_ok(dev_event_record(g->e, g->s, &err), err);
    dev_retire(&m, g->e);
    assert_null(m.dev);
}

static void retired_waits_for_its_event(void **state)
{
    struct gate g = gate_open("null:0=64m");
    berth_err err = { 0 };
    uint64_t freed;
    (void)state;
    retire_one(&g, 1000);
    assert_true(stats_of(g.d).retired == 1024 && stats_of(g.d).in_use == 1024);
    assert_ok(dev_poll(g.d, &freed, &err), err);
    assert_true(freed == 0);
    null_run(g.d);
    assert_ok(dev_poll(g.d, &freed, &err), err);
    assert_true(freed == 1024);
    assert_true(stats_of(g.d).retired == 0 && stats_of(g.d).in_use == 0);
    struct dev_mem none = { 0 };
    dev_retire(&none, g.e); /* empty: fine */
    retire_one(&g, 1);
    retire_one(&g, 1);
    assert_ok(dev_drain(g.d, &freed, &err), err); /* waits by itself */
    assert_true(freed == 512 && stats_of(g.d).in_use == 0);
    gate_close(&g);
}

static void retired_in_any_order(void **state)
{
    struct gate g = gate_open("null:0=64m");
    struct dev_stream *s2 = stream_of(g.d);
    struct dev_event *e2 = event_of(g.d);
    berth_err err = { 0 };
    uint64_t freed;
    char zero[256] = { 0 };
    (void)state;
    retire_one(&g, 256);
    struct dev_mem m = alloc_on(g.d, g.o, 512);
    assert_ok(dev_copy_h2d(s2, m.addr, zero, 256, &err), err);
    assert_ok(dev_event_record(e2, s2, &err), err);
    dev_retire(&m, e2);
    retire_one(&g, 768); /* the same event recorded again: it delays the first too */
    assert_ok(dev_event_sync(e2, &err), err);
    assert_ok(dev_poll(g.d, &freed, &err), err);
    assert_true(freed == 512 || freed == 512 + 256 + 768); /* the engine may have gone further */
    assert_sound(g.d);
    null_run(g.d);
    assert_ok(dev_poll(g.d, NULL, &err), err);
    assert_true(stats_of(g.d).in_use == 0);
    dev_event_free(e2);
    dev_stream_free(s2);
    gate_close(&g);
}

static void event_may_go_first(void **state)
{
    struct gate g = gate_open("null:0=64m");
    berth_err err = { 0 };
    (void)state;
    retire_one(&g, 100);
    dev_event_free(g.e);
    g.e = event_of(g.d);
    assert_ok(dev_poll(g.d, NULL, &err), err);
    assert_true(stats_of(g.d).retired == 256);
    null_run(g.d);
    assert_ok(dev_poll(g.d, NULL, &err), err);
    assert_true(stats_of(g.d).retired == 0);
    retire_one(&g, 100); /* and close waits for what is still retired */
    dev_event_free(g.e);
    g.e = NULL;
    gate_close(&g);
}

static void alloc_waits_for_retired_memory(void **state)
{
    struct gate g = gate_open("null:0=32m");
    berth_err err = { 0 };
    struct dev_mem m;
    (void)state;
    retire_one(&g, 20 * MIB);
    m = alloc_on(g.d, g.o, 24 * MIB); /* nobody ran the engine: alloc did */
    assert_true(stats_of(g.d).retired == 0);
    dev_free(&m);
    retire_one(&g, 20 * MIB);
    null_fail(g.d, NULL_EVENT_QUERY, 1);
    assert_fails(dev_alloc(g.d, g.o, 24 * MIB, &m, &err), err, BERTH_EDEVICE, "told to fail");
    assert_true(stats_of(g.d).retired == 20 * MIB); /* still there */
    null_fail(g.d, NULL_EVENT_SYNC, 1);
    assert_fails(dev_alloc(g.d, g.o, 24 * MIB, &m, &err), err, BERTH_EDEVICE, "told to fail");
    assert_sound(g.d);
    m = alloc_on(g.d, g.o, 24 * MIB);
    dev_free(&m);
    null_fail(g.d, NULL_EVENT_SYNC, 1); /* a device that does not answer at close: we let go */
    retire_one(&g, 100);
    null_run(g.d);
    gate_close(&g);
}

static void host_memory_is_counted(void **state)
{
    struct devset *set = open_devices("null:0=8m,cpu=8m", NULL);
    struct device *d = devset_at(set, 0), *cpu = devset_at(set, 1);
    struct dev_owner *on_null = owner_of(d, "ring", DEV_PINNED);
    struct dev_owner *on_cpu = owner_of(cpu, "model", DEV_PINNED);
    struct dev_owner *weights = owner_of(cpu, "model", DEV_WEIGHTS);
    struct dev_host h[2], none;
    berth_err err = { 0 };
    (void)state;
    assert_true(dev_can(d, BERTH_CAP_PINNED) && !dev_can(cpu, BERTH_CAP_PINNED));
    /* Whoever asks, it is host memory: in the host's ledger, against the host's budget, once. */
    assert_fails(dev_host_alloc(d, on_null, 12 * MIB, &none, &err), err, BERTH_ENODEVMEM,
                 "null:0: host memory for 'ring': cpu is full: needs 12.0 MiB, ");
    assert_ok(dev_host_alloc(d, on_null, 2 * MIB, &h[0], &err), err);
    assert_int_equal((uintptr_t)h[0].ptr % 4096, 0);
    memset(h[0].ptr, 1, h[0].n);
    assert_true(stats_of(d).pinned == 0 && stats_of(cpu).pinned == 2 * MIB);
    struct dev_ledger_row row[2];
    assert_int_equal(dev_ledger(d, NULL, 0, NULL), 0);
    assert_int_equal(dev_ledger(cpu, row, 2, NULL), 1);
    assert_string_equal(row[0].owner, "ring");
    assert_true(row[0].kind == DEV_PINNED && row[0].bytes == 2 * MIB);
    assert_ok(dev_host_alloc(d, on_cpu, 3 * MIB + 1, &h[1], &err), err);
    assert_true(stats_of(cpu).pinned == 5 * MIB + 4096);
    struct dev_mem m;
    assert_fails(dev_alloc(cpu, weights, 3 * MIB, &m, &err), err, BERTH_ENODEVMEM,
                 "budget 8388608");
    m = alloc_on(cpu, weights, 3 * MIB - 4096);
    assert_fails(dev_host_alloc(cpu, on_cpu, 1, &none, &err), err, BERTH_ENODEVMEM,
                 "pinned 5246976, left 0 of");
    assert_null(none.ptr);
    assert_sound(cpu);
    dev_host_free(&h[1]);
    assert_null(h[1].ptr);
    dev_host_free(&h[1]);
    assert_true(stats_of(cpu).pinned == 2 * MIB);
    assert_ok(dev_host_alloc(cpu, on_cpu, 1, &h[1], &err),
              err); /* cpu has plain pages of its own */
    dev_host_access(cpu, h[1].ptr, 1, DEV_WRITE);
    null_fail(d, NULL_HOST_ALLOC, 1);
    assert_fails(dev_host_alloc(d, on_cpu, MIB, &none, &err), err, BERTH_ENOMEM, "null:0");
    assert_true(stats_of(cpu).pinned == 2 * MIB + 4096);
    assert_fails(dev_host_alloc(d, on_null, 0, &none, &err), err, BERTH_EINVAL, "0 bytes");
    assert_fails(dev_host_alloc(d, on_null, SIZE_MAX, &none, &err), err, BERTH_EINVAL, "bytes");
    assert_fails(dev_host_alloc(cpu, on_cpu, SIZE_MAX / 2, &none, &err), err, BERTH_ENODEVMEM, "");
    dev_host_free(&h[0]);
    dev_host_free(&h[1]);
    dev_free(&m);
    dev_owner_close(on_null);
    dev_owner_close(on_cpu);
    dev_owner_close(weights);
    assert_true(null_hazards(d) == 0);
    devset_close(set);
}

static void host_memory_without_a_host_device(void **state)
{
    struct devset *set = open_devices("null:0=8m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "ring", DEV_PINNED);
    struct dev_host h;
    berth_err err = { 0 };
    (void)state;
    assert_ok(dev_host_alloc(d, o, 12 * MIB, &h, &err), err); /* no part of the device's budget */
    assert_true(stats_of(d).pinned == 12 * MIB && stats_of(d).in_use == 0);
    dev_owner_close(o);
    assert_true(dev_ledger(d, NULL, 0, NULL) == 1); /* the bytes keep their line */
    dev_host_free(&h);
    assert_null(d->ledger->lines);
    devset_close(set);
    /* Two devices in host memory, none called cpu: the first pays. */
    set = open_devices("null:0=8m,cuda:0@cpu=4m,cuda:1@cpu=4m", NULL);
    d = devset_at(set, 0);
    o = owner_of(d, "ring", DEV_PINNED);
    assert_ok(dev_host_alloc(d, o, 1, &h, &err), err);
    assert_true(stats_of(devset_at(set, 1)).pinned == 4096);
    dev_host_free(&h);
    dev_owner_close(o);
    devset_close(set);
}

/* cpu memory that a queued copy reads is retired: pinned memory waits for it, as any other does. */
static void host_alloc_waits_for_retired_memory(void **state)
{
    struct gate g = gate_open("null:0=32m,cpu=32m");
    struct device *cpu = devset_at(g.set, 1);
    struct dev_owner *w = owner_of(cpu, "w", DEV_WEIGHTS), *p = owner_of(cpu, "p", DEV_PINNED);
    struct dev_mem dst = alloc_on(g.d, g.o, 4096);
    struct dev_host h;
    berth_err err = { 0 };
    (void)state;
    for (int fail = 0; fail < 2; fail++) {
        struct dev_mem m = alloc_on(cpu, w, 20 * MIB);
        assert_ok(dev_copy_h2d(g.s, dst.addr, (void *)(uintptr_t)m.addr, 4096, &err), err);
        assert_ok(dev_event_record(g.e, g.s, &err), err);
        dev_retire(&m, g.e);
        if (fail) {
            null_fail(g.d, NULL_EVENT_SYNC, 1);
            assert_fails(dev_host_alloc(g.d, p, 24 * MIB, &h, &err), err, BERTH_EDEVICE, "told");
            assert_true(stats_of(cpu).retired == 20 * MIB && stats_of(cpu).pinned == 0);
        }
        assert_ok(dev_host_alloc(g.d, p, 24 * MIB, &h, &err), err);
        assert_true(stats_of(cpu).retired == 0 && stats_of(cpu).pinned == 24 * MIB);
        dev_host_free(&h);
    }
    dev_free(&dst);
    dev_owner_close(w);
    dev_owner_close(p);
    gate_close(&g);
}

static void host_alloc_survives_oom(void **state)
{
    struct devset *set = open_devices("cpu=8m,null:0=8m", NULL);
    struct device *cpu = devset_at(set, 0), *d = devset_at(set, 1);
    struct dev_owner *o = owner_of(d, "ring", DEV_PINNED);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        struct dev_host h;
        berth_err err = { 0 };
        oom_after(k);
        s = dev_host_alloc(d, o, MIB, &h, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !h.ptr && err.msg[0]));
        assert_true(s == BERTH_OK || stats_of(cpu).pinned == 0);
        assert_sound(cpu);
        dev_host_free(&h);
    }
    dev_owner_close(o);
    devset_close(set);
}

static void note_leak(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                      const char *text)
{
    (void)level, (void)wall_ns;
    if (strcmp(event, "dev.leak") == 0)
        snprintf(user, 256, "%s", text);
}

static void leaks_are_named(void **state)
{
    char seen[256] = "";
    struct log log = { .write = note_leak, .user = seen };
    struct dev_env env = { .log = &log };
    struct devset *set = open_devices("cpu=8m", &env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "sd15.safetensors", DEV_WEIGHTS);
    (void)state;
    (void)alloc_on(d, o, 1000);
    devset_close(set);
    assert_string_equal(seen,
                        "dev=cpu owner=\"sd15.safetensors\" kind=weights bytes=1024 ranges=1");
}

static void logical_devices_share_a_phys(void **state)
{
    struct devset *set = open_devices("cuda:0@null:3=8m,cuda:1@null:3=24m", NULL);
    struct device *a = devset_at(set, 0), *b = devset_at(set, 1);
    struct dev_owner *oa = owner_of(a, "m", DEV_WEIGHTS), *ob = owner_of(b, "m", DEV_WEIGHTS);
    struct dev_mem m, n, none;
    struct dev_info info;
    berth_err err = { 0 };
    (void)state;
    assert_ptr_equal(a->phys, b->phys);
    m = alloc_on(a, oa, 8 * MIB);
    n = alloc_on(b, ob, 20 * MIB);
    assert_fails(dev_alloc(a, oa, 1, &none, &err), err, BERTH_ENODEVMEM,
                 "cuda:0 is full: needs 1 B, 0 B of 8.00 MiB are left");
    assert_ok(dev_info(b, &info, &err), err);
    assert_true(info.total == 32 * MIB && info.free == 4 * MIB && info.budget == 24 * MIB);
    assert_true(info.stats.in_use == 20 * MIB); /* each has its own ledger */
    dev_free(&n);
    dev_free(&m);
    dev_owner_close(oa);
    dev_owner_close(ob);
    devset_close(set);
}

/* Other threads look while the owner works: what they see must add up. */
struct watch {
    struct device *d;
    atomic_bool stop;
    atomic_int bad;
    atomic_int looks;
};

static void *watch_sums(void *user)
{
    struct watch *w = user;
    struct dev_ledger_row row[8];
    struct dev_stats sum;
    struct dev_info info;
    berth_err err;
    while (!atomic_load(&w->stop)) {
        size_t n = dev_ledger(w->d, row, 8, &sum);
        uint64_t bytes = 0;
        for (size_t i = 0; i < n && i < 8; i++)
            bytes += row[i].bytes;
        if (n > 8 || bytes != sum.in_use + sum.idle || dev_info(w->d, &info, &err))
            atomic_fetch_add(&w->bad, 1);
        atomic_fetch_add(&w->looks, 1);
    }
    return NULL;
}

static void others_see_sums_that_agree(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct watch w = { .d = devset_at(set, 0) };
    pthread_t t;
    (void)state;
    assert_int_equal(pthread_create(&t, NULL, watch_sums, &w), 0);
    for (int i = 0; i < 2000 || atomic_load(&w.looks) < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i % 3);
        struct dev_owner *o = owner_of(w.d, name, i % 2 ? DEV_WEIGHTS : DEV_STAGING);
        struct dev_mem m = alloc_on(w.d, o, (size_t)(i % 7 + 1) * 1000);
        struct dev_mem m2 = alloc_on(w.d, o, (size_t)(i % 5 + 1) * MIB);
        dev_owner_close(o);
        dev_free(&m);
        dev_free(&m2);
        if (i % 10 == 0)
            dev_trim(w.d);
    }
    atomic_store(&w.stop, true);
    pthread_join(t, NULL);
    assert_int_equal(atomic_load(&w.bad), 0);
    devset_close(set);
}

static void ledger_check_notices(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
    struct dev_mem m = alloc_on(d, o, 1000);
    berth_err err = { 0 };
    (void)state;
    o->bytes += 256;
    assert_fails(dev_check(d, &err), err, BERTH_EDEVICE, "null:0: ledger has 1280 bytes");
    o->bytes -= 256;
    o->requested--;
    assert_fails(dev_check(d, &err), err, BERTH_EDEVICE, "(999 asked for)");
    o->requested++;
    d->ledger->stats.idle++;
    assert_fails(dev_check(d, &err), err, BERTH_EDEVICE, "lag");
    d->ledger->stats.idle--;
    d->ledger->stats.retired = 5;
    assert_fails(dev_check(d, &err), err, BERTH_EDEVICE, "retired");
    d->ledger->stats.retired = 0;
    o->count = 0;
    assert_fails(dev_check(d, &err), err, BERTH_EDEVICE, "line");
    o->count = 1;
    m.range->owner = NULL;
    assert_fails(dev_check(d, &err), err, BERTH_EDEVICE, "without an owner");
    m.range->owner = o;
    assert_sound(d);
    dev_free(&m);
    dev_owner_close(o);
    devset_close(set);
}

static void owner_open_survives_oom(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        struct dev_owner *o = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = dev_owner_open(d, "m", DEV_WEIGHTS, &o, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !o && strstr(err.msg, "null:0")));
        dev_owner_close(o);
    }
    devset_close(set);
}

static void alloc_survives_oom(void **state)
{
    struct devset *set = open_devices("null:0=64m,cpu=64m", NULL);
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct device *d = devset_at(set, i);
        struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            struct dev_mem m;
            berth_err err = { 0 };
            oom_after(k);
            s = dev_alloc(d, o, 20 * MIB, &m, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !m.dev && err.msg[0]));
            assert_sound(d);
            dev_free(&m);
            dev_trim(d);
        }
        dev_owner_close(o);
    }
    devset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books_every_byte),
        cmocka_unit_test(owners_are_lines),
        cmocka_unit_test(no_room_says_the_numbers),
        cmocka_unit_test(retired_waits_for_its_event),
        cmocka_unit_test(retired_in_any_order),
        cmocka_unit_test(event_may_go_first),
        cmocka_unit_test(alloc_waits_for_retired_memory),
        cmocka_unit_test(host_memory_is_counted),
        cmocka_unit_test(the_numbers_add_up),
        cmocka_unit_test(host_memory_without_a_host_device),
        cmocka_unit_test(host_alloc_waits_for_retired_memory),
        cmocka_unit_test(host_alloc_survives_oom),
        cmocka_unit_test(leaks_are_named),
        cmocka_unit_test(logical_devices_share_a_phys),
        cmocka_unit_test(others_see_sums_that_agree),
        cmocka_unit_test(pinned_parts),
        cmocka_unit_test(ledger_check_notices),
        cmocka_unit_test(owner_open_survives_oom),
        cmocka_unit_test(alloc_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
