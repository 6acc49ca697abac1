/* dev_copy between every pair of ends, on a stream of either, with and without direct ways. */
#include "support/devices.h"
#include "support/oom.h"

#define N ((size_t)(8 << 20) + 100) /* more than one staging buffer */

struct end {
    struct device *d;
    struct dev_owner *o;
    struct dev_mem m;
    struct dev_stream *s;
};

static struct end end_open(struct device *d)
{
    struct end e = { .d = d, .o = owner_of(d, "m", DEV_WEIGHTS), .s = stream_of(d) };
    e.m = alloc_on(d, e.o, N);
    return e;
}

static void end_close(struct end *e)
{
    dev_stream_free(e->s);
    dev_free(&e->m);
    dev_owner_close(e->o);
}

static void fill(struct end *e, const unsigned char *from)
{
    berth_err err = { 0 };
    assert_ok(dev_copy_h2d(e->s, e->m.addr, from, N, &err), err);
    assert_ok(dev_stream_sync(e->s, &err), err);
}

static void compare(struct end *e, const unsigned char *want)
{
    berth_err err = { 0 };
    unsigned char *got = malloc(N);
    assert_non_null(got);
    assert_ok(dev_copy_d2h(e->s, got, e->m.addr, N, &err), err);
    assert_ok(dev_stream_sync(e->s, &err), err);
    assert_memory_equal(got, want, N);
    free(got);
}

static void between(struct end *to, struct end *from, bool on_source, unsigned char *pattern)
{
    berth_err err = { 0 };
    struct dev_at dst = { to->d, to->m.addr }, src = { from->d, from->m.addr };
    struct dev_stream *s = on_source ? from->s : to->s;
    for (size_t i = 0; i < N; i += 61) /* another one each time */
        pattern[i] = (unsigned char)(pattern[i] * 31 + i + 1);
    fill(from, pattern);
    assert_ok(dev_copy(s, dst, src, N, &err), err);
    assert_ok(dev_copy(s, dst, src, 0, &err), err);
    assert_ok(dev_stream_sync(s, &err), err);
    compare(to, pattern);
}

static void every_pair(void **state)
{
    struct devset *set = open_devices("cpu=64m,null:0=64m,cuda:0@null:0=64m,null:1=64m,"
                                      "cuda:1@cpu=64m",
                                      NULL);
    unsigned char *pattern = calloc(1, N);
    struct end e[5];
    (void)state;
    for (size_t i = 0; i < 5; i++)
        e[i] = end_open(devset_at(set, i));
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 5; j++)
            if (i != j) {
                between(&e[i], &e[j], false, pattern);
                between(&e[i], &e[j], true, pattern);
            }
    assert_false(dev_can_peer(e[0].d, e[1].d));
    assert_true(dev_can_peer(e[1].d, e[2].d) && dev_can_peer(e[1].d, e[3].d));
    assert_true(null_hazards(e[1].d) == 0);
    for (size_t i = 0; i < 5; i++)
        end_close(&e[i]);
    free(pattern);
    devset_close(set);
}

static void staging_fails_cleanly(void **state)
{
    struct devset *set = open_devices("cpu=64m,null:0=64m", NULL);
    struct end cpu = end_open(devset_at(set, 0)), null = end_open(devset_at(set, 1));
    struct dev_at dst = { null.d, null.m.addr }, src = { cpu.d, cpu.m.addr };
    berth_err err = { 0 };
    (void)state;
    /* On the cpu's stream the null end needs a stream of its own: staged. */
    null_fail(null.d, NULL_STREAM_NEW, 1);
    assert_fails(dev_copy(cpu.s, dst, src, N, &err), err, BERTH_EDEVICE,
                 "copying 8388708 bytes from cpu to null:0: null:0: stream_new");
    null_fail(null.d, NULL_COPY, 2);
    assert_fails(dev_copy(cpu.s, dst, src, N, &err), err, BERTH_EDEVICE, "told to fail");
    null_fail(null.d, NULL_STREAM_SYNC, 1);
    assert_fails(dev_copy(cpu.s, dst, src, N, &err), err, BERTH_EDEVICE, "stream_sync");
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        oom_after(k);
        s = dev_copy(cpu.s, dst, src, N, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
    }
    assert_true(null_hazards(null.d) == 0);
    end_close(&cpu);
    end_close(&null);
    devset_close(set);
}

/* The staging buffer is host memory like any other: booked, and refused when the host is full. */
static void staging_is_accounted_for(void **state)
{
    struct devset *set = open_devices("cpu=16m,null:0=64m", NULL);
    struct end cpu = end_open(devset_at(set, 0)), null = end_open(devset_at(set, 1));
    struct dev_at dst = { null.d, null.m.addr }, src = { cpu.d, cpu.m.addr };
    struct dev_owner *o = owner_of(cpu.d, "x", DEV_PINNED);
    struct dev_host h;
    berth_err err = { 0 };
    (void)state;
    /* 8 MiB and 100 bytes are in use: another 8 MiB are 100 bytes too many. */
    assert_fails(dev_copy(cpu.s, dst, src, N, &err), err, BERTH_ENODEVMEM,
                 "copying 8388708 bytes from cpu to null:0: null:0: host memory for 'staged copy': "
                 "cpu is full: needs 8388608 B, 8388352 B of 16.0 MiB are left");
    assert_ok(dev_host_alloc(cpu.d, o, 4 << 20, &h, &err), err);
    assert_ok(dev_copy(cpu.s, dst, src, 2 << 20, &err), err);
    assert_fails(dev_copy(cpu.s, dst, src, 5 << 20, &err), err, BERTH_ENODEVMEM, "pinned 4194304");
    dev_host_free(&h);
    assert_ok(dev_copy(cpu.s, dst, src, 7 << 20, &err), err);
    assert_true(stats_of(cpu.d).pinned == 0 && stats_of(null.d).pinned == 0);
    dev_owner_close(o);
    assert_true(null_hazards(null.d) == 0);
    end_close(&cpu);
    end_close(&null);
    devset_close(set);
}

static void note_kept(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                      const char *text)
{
    (void)level, (void)wall_ns, (void)text;
    if (strcmp(event, "dev.kept") == 0)
        ++*(int *)user;
}

/* Two null devices whose driver has no way between them; a failure leaves a copy queued on the
 * caller's stream, into the staging buffer. */
static void staging_outlives_what_is_queued(void **state)
{
    struct null_config lazy = { .lazy = true };
    struct dev_driver no_peer = driver_null;
    int kept = 0;
    struct log log = { .write = note_kept, .user = &kept };
    struct dev_env env = { .null = &lazy, .log = &log };
    berth_err err = { 0 };
    (void)state;
    no_peer.copy_peer = NULL;
    no_peer.can_peer = NULL;
    for (int twice = 0; twice < 2; twice++) {
        struct devset *set = open_devices("null:0=64m,null:1=64m,cpu=64m", &env);
        struct end a = end_open(devset_at(set, 0)), b = end_open(devset_at(set, 1));
        struct device *cpu = devset_at(set, 2);
        struct dev_at dst = { b.d, b.m.addr }, src = { a.d, a.m.addr };
        unsigned char *pattern = calloc(1, N);
        fill(&a, pattern);
        null_fail(a.d, NULL_STREAM_SYNC, 2); /* the one behind the first piece */
        if (twice)
            null_fail(a.d, NULL_ANY, 4); /* sync, copy, sync; and the one that would mend it */
        a.d->phys->driver = b.d->phys->driver = &no_peer;
        berth_status s = dev_copy(a.s, dst, src, N, &err);
        a.d->phys->driver = b.d->phys->driver = &driver_null;
        assert_int_equal(s, BERTH_EDEVICE);
        assert_int_equal(kept, twice);
        assert_true((null_queued(a.d) != 0) == twice); /* waited for, or still to come */
        assert_true(stats_of(cpu).pinned == (twice ? 8 << 20 : 0)); /* and then still booked */
        assert_true(null_hazards(a.d) == 0);
        assert_ok(dev_stream_sync(a.s, &err), err); /* writes to it */
        end_close(&a);
        end_close(&b);
        free(pattern);
        devset_close(set);
    }
}

static void streams_and_events_survive_oom(void **state)
{
    struct devset *set = open_devices("cpu=64m,null:0=64m", NULL);
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct device *d = devset_at(set, i);
        struct dev_stream *s = NULL;
        struct dev_event *e = NULL;
        berth_err err = { 0 };
        oom_after(0);
        berth_status a = dev_stream_new(d, &s, &err), b = dev_event_new(d, &e, &err);
        oom_off();
        assert_int_equal(a, BERTH_ENOMEM);
        assert_int_equal(b, BERTH_ENOMEM);
        assert_true(!s && !e && strstr(err.msg, d->name));
    }
    devset_close(set);
}

static void events_across_drivers(void **state)
{
    struct null_config lazy = { .lazy = true };
    struct dev_env env = { .null = &lazy };
    struct devset *set = open_devices("cpu=64m,null:0=64m", &env);
    struct devset *other = open_devices("null:0=64m", &env);
    struct end cpu = end_open(devset_at(set, 0)), null = end_open(devset_at(set, 1));
    struct dev_stream *foreign = stream_of(devset_at(other, 0));
    struct dev_event *e = event_of(null.d), *cpu_e = event_of(cpu.d);
    static char zero[64];
    berth_err err = { 0 };
    bool done;
    (void)state;
    assert_ok(dev_copy_h2d(null.s, null.m.addr, zero, sizeof zero, &err), err);
    assert_ok(dev_event_record(e, null.s, &err), err);
    assert_ok(dev_stream_wait(cpu.s, e, &err), err); /* cpu cannot queue: the host waited */
    assert_ok(dev_event_query(e, &done, &err), err);
    assert_true(done);
    assert_ok(dev_event_record(cpu_e, cpu.s, &err), err);
    assert_ok(dev_stream_wait(null.s, cpu_e, &err), err);
    assert_ok(dev_copy_h2d(null.s, null.m.addr, zero, sizeof zero, &err), err);
    assert_ok(dev_event_record(e, null.s, &err), err);
    assert_ok(dev_stream_wait(foreign, e, &err), err); /* another context: the same */
    assert_ok(dev_event_query(e, &done, &err), err);
    assert_true(done);
    dev_event_free(e);
    dev_event_free(cpu_e);
    dev_stream_free(foreign);
    end_close(&cpu);
    end_close(&null);
    devset_close(other);
    devset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair),
        cmocka_unit_test(staging_fails_cleanly),
        cmocka_unit_test(staging_is_accounted_for),
        cmocka_unit_test(staging_outlives_what_is_queued),
        cmocka_unit_test(streams_and_events_survive_oom),
        cmocka_unit_test(events_across_drivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
