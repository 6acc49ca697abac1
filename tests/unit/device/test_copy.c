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
        cmocka_unit_test(streams_and_events_survive_oom),
        cmocka_unit_test(events_across_drivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
