/* The null device: fake memory, the order of streams, calls that fail on purpose. */
#include "unit/device/null_bench.h"

static void bytes_round_trip(void **state)
{
    struct bench *t = start(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 4096, err));
    ok(dev_copy(t->a, (struct dev_at) { t->d, t->n.addr }, (struct dev_at) { t->d, t->m.addr },
                4096, err));
    ok(dev_copy(t->a, (struct dev_at) { t->d2, t->far.addr }, (struct dev_at) { t->d, t->n.addr },
                4096, err));
    assert_int_equal(null_queued(t->d), 3);
    assert_int_equal(t->back[1], 0); /* nothing happened yet */
    ok(dev_stream_sync(t->a, err));
    assert_int_equal(null_queued(t->d), 0);
    struct dev_stream *s2 = stream_of(t->d2);
    ok(dev_copy_d2h(s2, t->back, t->far.addr, 4096, err));
    ok(dev_stream_sync(s2, err));
    dev_stream_free(s2);
    assert_memory_equal(t->host, t->back, 4096);
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 0, err)); /* nothing to do, nothing queued */
    assert_int_equal(null_queued(t->d), 0);
    assert_true(dev_can_peer(t->d, t->d2));
    stop(t, 0);
}

static void addresses_are_never_used_twice(void **state)
{
    struct devset *set = open_devices("null:0=64m,null:1=64m", NULL);
    struct phys *p = devset_at(set, 0)->phys, *q = devset_at(set, 1)->phys;
    uint64_t a, b, c;
    berth_err err = { 0 };
    (void)state;
    assert_ok(p->driver->alloc(p, 4096, &a, &err), err);
    p->driver->free(p, a, 4096);
    assert_ok(p->driver->alloc(p, 4096, &b, &err), err);
    assert_ok(p->driver->alloc(q, 4096, &c, &err), err);
    assert_true(b > a + 4096 && c > b + (UINT64_C(1) << 40));
    assert_int_equal(b % 256, 0);
    p->driver->free(p, b, 4096);
    q->driver->free(q, c, 4096);
    devset_close(set);
}

static void effects_come_in_stream_order(void **state)
{
    struct bench *t = start(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 16, err));
    ok(dev_copy_h2d(t->a, t->m.addr, t->host + 16, 16, err)); /* same stream: ordered */
    ok(dev_event_record(t->e, t->a, err));
    ok(dev_stream_wait(t->b, t->e, err));
    ok(dev_copy_d2h(t->b, t->back, t->m.addr, 16, err));
    bool done;
    ok(dev_event_query(t->e, &done, err));
    assert_false(done);
    int steps = 0;
    while (null_step(t->d))
        steps++;
    assert_int_equal(steps, 5);
    ok(dev_event_query(t->e, &done, err));
    assert_true(done);
    ok(dev_stream_sync(t->b, err));
    assert_memory_equal(t->back, t->host + 16, 16);
    stop(t, 0);
}

static void an_unrecorded_event_is_complete(void **state)
{
    struct bench *t = start(false);
    bool done;
    (void)state;
    ok(dev_event_query(t->e, &done, err));
    assert_true(done);
    ok(dev_event_sync(t->e, err));
    ok(dev_stream_wait(t->a, t->e, err));
    assert_int_equal(null_queued(t->d), 0);
    stop(t, 0);
}

static void a_wait_means_the_record_of_its_time(void **state)
{
    struct bench *t = start(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 16, err));
    ok(dev_event_record(t->e, t->a, err));
    ok(dev_stream_wait(t->b, t->e, err));
    ok(dev_copy_h2d(t->a, t->n.addr, t->host, 16, err));
    ok(dev_event_record(t->e, t->a, err)); /* after the wait: the wait does not cover it */
    ok(dev_copy_d2h(t->b, t->back, t->m.addr, 16, err));
    assert_true(null_hazards(t->d) == 0);
    ok(dev_copy_d2h(t->b, t->back + 16, t->n.addr, 16, err));
    expect(t, 1, NULL_READ_UNWRITTEN, "d2h copy", "h2d copy");
    stop(t, 1);
}

static void nothing(void *user, void *const *ptr)
{
    (void)user, (void)ptr;
}

/* Copies of 1000 bytes take 1 us, launches 300 ns; the numbers do not depend on the drawn order. */
static void virtual_time(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct null_config cfg = {
            .seed = seed, .lazy = true, .copy_bytes_per_s = 1000000000, .launch_ns = 300
        };
        struct dev_env env = { .null = &cfg };
        struct devset *set = open_devices("null:0=1m", &env);
        struct device *d = devset_at(set, 0);
        struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
        struct dev_mem m = alloc_on(d, o, 4096);
        struct dev_stream *a = stream_of(d), *b = stream_of(d);
        struct dev_event *e[5], *start = event_of(d);
        static char host[4096];
        for (size_t i = 0; i < ARRAY_LEN(e); i++)
            e[i] = event_of(d);
        ok(dev_event_record(start, a, err));
        ok(dev_copy_h2d(a, m.addr, host, 2000, err));
        ok(dev_event_record(e[0], a, err));
        ok(dev_launch(b, nothing, NULL, NULL, 0, err));
        ok(dev_event_record(e[1], b, err)); /* does not wait */
        ok(dev_stream_wait(b, e[0], err));
        ok(dev_event_record(e[2], b, err));
        ok(dev_launch(b, nothing, NULL, NULL, 0, err));
        ok(dev_event_record(e[3], b, err));
        ok(dev_stream_wait(a, e[1], err)); /* was there long ago */
        bool done = true;
        int64_t ns = 1;
        ok(dev_event_elapsed(start, e[0], &done, &ns, err)); /* asking runs nothing */
        assert_true(!done && !ns && null_queued(d) == 10);
        ok(dev_event_sync(e[3], err));
        ok(dev_copy_h2d(a, m.addr, host, 500, err)); /* not before the host said so */
        ok(dev_event_record(e[4], a, err));
        ok(dev_stream_sync(a, err));
        static const int64_t want[] = { 2000, 300, 2000, 2300, 2800 };
        for (size_t i = 0; i < ARRAY_LEN(e); i++) {
            ok(dev_event_elapsed(start, e[i], &done, &ns, err));
            assert_true(done);
            assert_int_equal(ns, want[i]);
            dev_event_free(e[i]);
        }
        dev_event_free(start);
        dev_stream_free(a);
        dev_stream_free(b);
        dev_free(&m);
        dev_owner_close(o);
        assert_true(null_hazards(d) == 0);
        devset_close(set);
    }
}

/* Knowing when something was done is not waiting for it: what follows is still unordered. */
static void a_time_orders_nothing(void **state)
{
    struct bench *t = start(false);
    bool done = false;
    int64_t ns = 1;
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 16, err));
    ok(dev_event_record(t->e, t->a, err));
    null_run(t->d);
    ok(dev_event_elapsed(t->e, t->e, &done, &ns, err));
    assert_true(done && !ns); /* no speed, no time */
    ok(dev_copy_d2h(t->b, t->back, t->m.addr, 16, err));
    expect(t, 1, NULL_READ_UNWRITTEN, "d2h copy", "h2d copy");
    stop(t, 1);
}

/* ---- each hazard, found when the second operation is queued, before anything has run ---- */

static void the_kth_call_fails(void **state)
{
    struct bench *t = start(false);
    berth_err e = { 0 };
    struct dev_stream *s = NULL;
    struct dev_event *v = NULL;
    struct dev_info info;
    size_t n = 1;
    bool done;
    struct dev_access access[2] = { { t->n.addr, n, DEV_WRITE }, { t->m.addr, n, DEV_READ } };
    (void)state;
    null_fail(t->d, NULL_COPY, 2);
    uint64_t before = null_calls(t->d, NULL_COPY);
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 1, err));
    assert_fails(dev_copy_h2d(t->a, t->m.addr, t->host, 1, &e), e, BERTH_EDEVICE,
                 "null:0: copy number 2 was told to fail");
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 1, err)); /* once */
    assert_true(null_calls(t->d, NULL_COPY) == before + 3);
    null_fail(t->d, NULL_STREAM_NEW, 1);
    assert_fails(dev_stream_new(t->d, &s, &e), e, BERTH_EDEVICE, "stream_new");
    assert_null(s);
    null_fail(t->d, NULL_EVENT_NEW, 1);
    assert_fails(dev_event_new(t->d, &v, &e), e, BERTH_EDEVICE, "event_new");
    assert_null(v);
    null_fail(t->d, NULL_EVENT_RECORD, 1);
    assert_fails(dev_event_record(t->e, t->a, &e), e, BERTH_EDEVICE, "event_record");
    null_fail(t->d, NULL_EVENT_QUERY, 1);
    assert_fails(dev_event_query(t->e, &done, &e), e, BERTH_EDEVICE, "event_query");
    null_fail(t->d, NULL_EVENT_SYNC, 1);
    assert_fails(dev_event_sync(t->e, &e), e, BERTH_EDEVICE, "event_sync");
    null_fail(t->d, NULL_EVENT_ELAPSED, 1);
    int64_t ns = 1;
    assert_fails(dev_event_elapsed(t->e, t->e, &done, &ns, &e), e, BERTH_EDEVICE, "event_elapsed");
    assert_true(!done && !ns);
    null_fail(t->d, NULL_STREAM_WAIT, 1);
    assert_fails(dev_stream_wait(t->b, t->e, &e), e, BERTH_EDEVICE, "stream_wait");
    null_fail(t->d, NULL_STREAM_SYNC, 1);
    assert_fails(dev_stream_sync(t->a, &e), e, BERTH_EDEVICE, "stream_sync");
    null_fail(t->d, NULL_LAUNCH, 1);
    assert_fails(dev_launch(t->a, add_one, &n, access, 2, &e), e, BERTH_EDEVICE, "launch");
    null_fail(t->d, NULL_INFO, 1);
    assert_fails(dev_info(t->d, &info, &e), e, BERTH_EDEVICE, "info");
    null_fail(t->d, NULL_ANY, 2);
    ok(dev_event_sync(t->e, err));
    assert_fails(dev_stream_sync(t->a, &e), e, BERTH_EDEVICE, "stream_sync");
    null_fail(t->d, NULL_ANY, 1);
    null_fail(t->d, NULL_ANY, 0); /* taken back */
    ok(dev_stream_sync(t->a, err));
    stop(t, 0);
}

static void streams_end(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_stream *s[NULL_STREAMS_MAX], *more;
    berth_err err = { 0 };
    (void)state;
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_LEN(s); i++)
            s[i] = stream_of(d);
        assert_fails(dev_stream_new(d, &more, &err), err, BERTH_EDEVICE, "more than 63 streams");
        for (size_t i = 0; i < ARRAY_LEN(s); i++)
            dev_stream_free(s[i]);
    }
    devset_close(set);
}

static void reused_stream_slots_do_not_inherit(void **state)
{
    struct bench *t = start(false);
    struct dev_stream *c = stream_of(t->d), *d;
    (void)state;
    ok(dev_copy_h2d(c, t->m.addr, t->host, 100, err));
    dev_stream_free(c); /* waits: the host knows */
    d = stream_of(t->d);
    ok(dev_copy_d2h(t->a, t->back, t->m.addr, 100, err));
    ok(dev_copy_h2d(d, t->m.addr, t->host, 100, err));
    expect(t, 1, NULL_OVERWRITE_READ, "h2d copy", "d2h copy");
    dev_stream_free(d);
    stop(t, 1);
}

/* Every call of a small program, with each allocation of host memory failing in turn. */
static berth_status small_program(struct device *d, struct dev_owner *o, berth_err *err)
{
    static char host[256];
    struct dev_stream *s = NULL, *s2 = NULL;
    struct dev_event *e = NULL;
    struct dev_mem m = { 0 };
    size_t n = 16;
    berth_status st = dev_stream_new(d, &s, err);
    st = st ? st : dev_stream_new(d, &s2, err);
    st = st ? st : dev_event_new(d, &e, err);
    st = st ? st : dev_alloc(d, o, 4096, &m, err);
    struct dev_access access[2] = { { m.addr + 64, n, DEV_WRITE }, { m.addr, n, DEV_READ } };
    st = st ? st : dev_copy_h2d(s, m.addr, host, 64, err);
    st = st ? st : dev_launch(s, add_one, &n, access, 2, err);
    st = st ? st : dev_event_record(e, s, err);
    st = st ? st : dev_stream_wait(s2, e, err);
    st = st ? st : dev_copy_d2h(s2, host + 64, m.addr + 64, n, err);
    berth_err sync_err;
    if (s2 && dev_stream_sync(s2, &sync_err) && !st) {
        *err = sync_err;
        st = err->code;
    }
    dev_event_free(e);
    dev_stream_free(s2);
    dev_stream_free(s);
    dev_free(&m);
    return st;
}

static void survives_oom(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = small_program(d, o, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        assert_true(null_hazards(d) == 0);
        dev_trim(d);
    }
    dev_owner_close(o);
    devset_close(set);
}

static void survives_every_failing_call(void **state)
{
    struct devset *set = open_devices("null:0=64m", NULL);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
    berth_status s = BERTH_EDEVICE;
    int failures = 0;
    (void)state;
    for (uint64_t k = 1; k < 100; k++) {
        berth_err err = { 0 };
        uint64_t before = null_calls(d, NULL_ANY);
        null_fail(d, NULL_ANY, k);
        s = small_program(d, o, &err);
        if (null_calls(d, NULL_ANY) < before + k)
            break; /* the program makes fewer calls than that */
        failures += s != BERTH_OK;
        assert_true(s == BERTH_OK || err.msg[0]);
        assert_true(null_hazards(d) == 0);
        assert_sound(d);
        null_fail(d, NULL_ANY, 0);
        dev_trim(d);
    }
    assert_int_equal(s, BERTH_OK);
    assert_true(failures >= 9);
    dev_owner_close(o);
    devset_close(set);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_round_trip),
        cmocka_unit_test(addresses_are_never_used_twice),
        cmocka_unit_test(effects_come_in_stream_order),
        cmocka_unit_test(an_unrecorded_event_is_complete),
        cmocka_unit_test(a_wait_means_the_record_of_its_time),
        cmocka_unit_test(virtual_time),
        cmocka_unit_test(a_time_orders_nothing),
        cmocka_unit_test(the_kth_call_fails),
        cmocka_unit_test(streams_end),
        cmocka_unit_test(reused_stream_slots_do_not_inherit),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(survives_every_failing_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
