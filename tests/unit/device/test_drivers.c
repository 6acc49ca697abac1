/* What driver.h asks of every driver: a new one is tested by being in devices.def. */
#include "base/sz.h"
#include "support/devices.h"

#define N ((size_t)100000)

static void slots_come_in_groups(void **state)
{
    (void)state;
    assert_non_null(dev_drivers()[0]);
    for (const struct dev_driver *const *p = dev_drivers(); *p; p++) {
        const struct dev_driver *d = *p;
        struct spec_name name;
        char text[DEV_NAME_MAX];
        berth_err err = { 0 };
        snprintf(text, sizeof text, "%s%s", d->name, d->indexed ? ":0" : "");
        assert_ok(spec_parse_name(text, strlen(text), &name, &err), err); /* can be asked for */
        assert_int_equal(name.indexed, d->indexed);
        assert_true(d->count && d->open && d->close && d->alloc && d->free && d->info);
        assert_int_equal(!d->host_access, !d->host_mark);
        assert_true(d->discard || !d->restore);
        assert_true(d->copy_h2d && d->copy_d2h && d->copy_d2d);
        assert_int_equal(!d->library_open, !d->library_close);
        assert_int_equal(!d->host_alloc, !d->host_free);
        bool async = d->stream_new != NULL;
        assert_true(async == !!d->stream_free && async == !!d->stream_sync &&
                    async == !!d->stream_wait && async == !!d->event_new &&
                    async == !!d->event_free && async == !!d->event_record &&
                    async == !!d->event_query && async == !!d->event_sync);
    }
}

/* Everything that can be opened here: the default set and one of each elastic driver. */
static struct devset *open_all(void)
{
    struct devset *set;
    struct spec spec = { .n = 0 };
    struct dev_env env = { 0 };
    struct str text = { 0 };
    berth_err err = { 0 };
    assert_ok(devset_open(NULL, &env, &set, &err), err);
    for (size_t i = 0; i < devset_count(set); i++)
        str_addf(&text, "%s%s=64m", i ? "," : "", devset_at(set, i)->name);
    devset_close(set);
    for (const struct dev_driver *const *p = dev_drivers(); *p; p++)
        if ((*p)->elastic)
            str_addf(&text, ",%s%s=64m", (*p)->name, (*p)->indexed ? ":0" : "");
    assert_ok(spec_parse(str_c(&text), text.n, false, &spec, &err), err);
    str_release(&text);
    assert_ok(devset_open(&spec, &env, &set, &err), err);
    return set;
}

static void a_phys_is_sound(void **state)
{
    struct devset *set = open_all();
    (void)state;
    for (size_t i = 0; i < devset_count(set); i++) {
        struct phys *p = devset_at(set, i)->phys;
        uint64_t total, left, addr[3];
        berth_err err = { 0 };
        assert_non_null(p->driver);
        assert_true(sz_is_pow2(p->align) && p->align >= DEV_ALIGN_MIN);
        assert_true(sz_is_pow2(p->granularity) && p->granularity >= p->align);
        assert_int_equal(!(p->caps & BERTH_CAP_ASYNC), !p->driver->stream_new);
        assert_int_equal(!(p->caps & BERTH_CAP_LAUNCH), !p->driver->launch);
        assert_true(!(p->caps & BERTH_CAP_PINNED) || p->driver->host_alloc);
        assert_true(!(p->caps & BERTH_CAP_PEER) || (p->driver->can_peer && p->driver->copy_peer));
        assert_ok(p->driver->info(p, &total, &left, &err), err);
        assert_true(total > 0 && left <= total);
        for (int k = 0; k < 3; k++) {
            assert_ok(p->driver->alloc(p, p->align, &addr[k], &err), err);
            assert_true(addr[k] && addr[k] % p->granularity == 0);
            for (int j = 0; j < k; j++)
                assert_true(addr[k] >= addr[j] + p->align || addr[j] >= addr[k] + p->align);
        }
        for (int k = 0; k < 3; k++)
            p->driver->free(p, addr[k], p->align);
        size_t huge = (size_t)1 << 60;
        assert_fails(p->driver->alloc(p, huge, &addr[0], &err), err, BERTH_ENODEVMEM, p->name);
        assert_true(addr[0] == 0);
    }
    devset_close(set);
}

/* Memory behind addresses goes and comes back; what is beside it stays. */
static void discards_and_restores(void **state)
{
    struct devset *set = open_all();
    (void)state;
    for (size_t i = 0; i < devset_count(set); i++) {
        struct phys *p = devset_at(set, i)->phys;
        size_t g = p->granularity, total_n = 3 * g;
        unsigned char out[2] = { 0 }, in[2] = { 7, 9 };
        uint64_t addr;
        berth_err err = { 0 };
        if (!p->driver->discard)
            continue;
        struct dev_stream *s = stream_of(devset_at(set, i));
        assert_ok(p->driver->alloc(p, total_n, &addr, &err), err);
        for (int k = 0; k < 3; k++)
            assert_ok(dev_copy_h2d(s, addr + (size_t)k * g, in, 2, &err), err);
        assert_ok(dev_stream_sync(s, &err), err);
        assert_true(p->driver->discard(p, addr + g, g));
        if (p->driver->restore)
            assert_ok(p->driver->restore(p, addr + g, g, &err), err);
        for (int k = 0; k < 3; k += 2) {
            assert_ok(dev_copy_d2h(s, out, addr + (size_t)k * g, 2, &err), err);
            assert_ok(dev_stream_sync(s, &err), err);
            assert_memory_equal(in, out, 2);
        }
        assert_ok(dev_copy_h2d(s, addr + g, in, 2, &err), err); /* usable again */
        assert_ok(dev_stream_sync(s, &err), err);
        assert_true(p->driver->discard(p, addr, 2 * g));
        p->driver->free(p, addr, total_n); /* as it is */
        dev_stream_free(s);
    }
    devset_close(set);
}

/* Bytes go h2d, d2d, d2h over two streams and an event, and arrive. */
static void bytes_arrive(void **state)
{
    struct devset *set = open_all();
    unsigned char *in = malloc(N), *out = calloc(1, N);
    (void)state;
    assert_true(in && out);
    for (size_t i = 0; i < N; i++)
        in[i] = (unsigned char)(i * 31 + i / 256);
    for (size_t i = 0; i < devset_count(set); i++) {
        struct device *d = devset_at(set, i);
        struct dev_owner *o = owner_of(d, "m", DEV_STAGING), *po = owner_of(d, "p", DEV_PINNED);
        struct dev_stream *a = stream_of(d), *b = stream_of(d);
        struct dev_event *e = event_of(d);
        struct dev_mem m = alloc_on(d, o, N), n = alloc_on(d, o, N);
        struct dev_host h;
        bool done = true;
        berth_err err = { 0 };
        assert_ok(dev_event_query(e, &done, &err), err);
        assert_true(done); /* never recorded */
        assert_ok(dev_host_alloc(d, po, N, &h, &err), err);
        memcpy(h.ptr, in, N);
        assert_ok(dev_copy_h2d(a, m.addr, h.ptr, N, &err), err);
        assert_ok(dev_event_record(e, a, &err), err);
        assert_ok(dev_stream_wait(b, e, &err), err);
        assert_ok(
            dev_copy(b, (struct dev_at) { d, n.addr }, (struct dev_at) { d, m.addr }, N, &err),
            err);
        assert_ok(dev_copy_d2h(b, out, n.addr, N, &err), err);
        assert_ok(dev_event_record(e, b, &err), err);
        assert_ok(dev_event_sync(e, &err), err);
        assert_ok(dev_event_query(e, &done, &err), err);
        assert_true(done);
        uint64_t first, second;
        assert_ok(dev_event_time(e, &done, &first, &err), err);
        assert_true(done);
        assert_ok(dev_event_record(e, b, &err), err);
        assert_ok(dev_event_sync(e, &err), err);
        assert_ok(dev_event_time(e, &done, &second, &err), err);
        assert_true(done && first <= second);
        dev_host_access(d, out, N, DEV_READ);
        assert_memory_equal(in, out, N);
        memset(out, 0, N);
        dev_host_free(&h); /* a waits for nothing else: e on b came after all of it */
        dev_retire(&m, e);
        dev_event_free(e);
        assert_ok(dev_poll(d, NULL, &err), err);
        dev_free(&n);
        dev_stream_free(a);
        dev_stream_free(b);
        dev_owner_close(o);
        dev_owner_close(po);
        assert_true(dev_trim(d).idle == 0);
        assert_sound(d);
    }
    devset_close(set);
    free(in);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_come_in_groups),
        cmocka_unit_test(a_phys_is_sound),
        cmocka_unit_test(discards_and_restores),
        cmocka_unit_test(bytes_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
