/* The cpu device: host memory that really comes and goes. */
#include "base/clock.h"
#include "support/devices.h"

#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

struct fixture {
    struct devset *set;
    struct device *d;
    struct dev_owner *o;
};

static struct fixture start(const char *text)
{
    struct fixture f = { .set = open_devices(text, NULL) };
    f.d = devset_at(f.set, 0);
    f.o = owner_of(f.d, "m", DEV_WEIGHTS);
    return f;
}

static void stop(struct fixture *f)
{
    dev_owner_close(f->o);
    devset_close(f->set);
}

static char *ptr(const struct dev_mem *m)
{
    return (char *)(uintptr_t)m->addr;
}

/* Pages of [p, p+n) that are in memory. */
static size_t resident(const void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    unsigned char vec[4096];
    assert_true(n / page <= sizeof vec);
    if (mincore((void *)(uintptr_t)p, n, vec))
        return 0; /* not mapped */
    for (size_t i = 0; i < n / page; i++)
        count += vec[i] & 1;
    return count;
}

static void says_what_it_is(void **state)
{
    struct fixture f = start("cpu");
    struct dev_info info;
    berth_err err = { 0 };
    (void)state;
    assert_ok(dev_info(f.d, &info, &err), err);
    assert_true(info.total > 0 && info.free <= info.total && info.budget == info.total);
    assert_true(dev_can(f.d, BERTH_CAP_HOST_VISIBLE | BERTH_CAP_LAUNCH));
    assert_false(dev_can(f.d, BERTH_CAP_ASYNC));
    assert_false(dev_can(f.d, BERTH_CAP_PINNED));
    stop(&f);
}

static void trim_gives_pages_back(void **state)
{
    struct fixture f = start("cpu=64m");
    (void)state;
    struct dev_mem keep = alloc_on(f.d, f.o, MIB), big = alloc_on(f.d, f.o, 20 * MIB);
    struct dev_mem small = alloc_on(f.d, f.o, MIB / 2);
    char *gone = ptr(&big), *hole = ptr(&small);
    memset(gone, 1, 16 * MIB);
    memset(hole, 2, MIB / 2);
    memset(ptr(&keep), 3, MIB);
    assert_true(resident(gone, 16 * MIB) > 0);
    dev_free(&big);
    dev_free(&small);
    assert_true(resident(gone, 16 * MIB) > 0); /* cached */
    struct dev_trimmed t = dev_trim(f.d);
    assert_true(t.released == 20 * MIB); /* the large range had its own segment */
    assert_int_equal(resident(gone, 16 * MIB), 0);
    /* The rest of the small segment stays, its pages do not. */
    assert_true(t.idle == 0 && t.discarded == MIB);
    assert_int_equal(resident(hole, MIB / 2), 0);
    assert_true(stats_of(f.d).discarded == MIB);
    assert_int_equal(ptr(&keep)[12345], 3);
    t = dev_trim(f.d);
    assert_true(t.released == 0 && t.discarded == 0 && t.idle == 0); /* nothing twice */
    small = alloc_on(f.d, f.o, MIB / 2);                             /* usable again */
    memset(ptr(&small), 4, MIB / 2);
    assert_true(stats_of(f.d).discarded == MIB / 2);
    dev_free(&small);
    assert_true(stats_of(f.d).discarded == MIB / 2 && stats_of(f.d).idle == MIB / 2);
    t = dev_trim(f.d);
    assert_true(t.discarded == MIB / 2 && t.idle == 0); /* only those that were touched again */
    assert_int_equal(resident(hole, MIB / 2), 0);
    dev_free(&keep);
    assert_true(dev_trim(f.d).idle == 0);
    assert_true(stats_of(f.d).idle == 0 && stats_of(f.d).segments == 0);
    stop(&f);
}

static void add_up(void *user, void *const *p)
{
    const int32_t *a = p[0], *b = p[1];
    *(int32_t *)p[2] = a[0] + b[0];
    *(bool *)user = true;
}

static void work_is_done_when_the_call_returns(void **state)
{
    struct fixture f = start("cpu=8m");
    struct dev_stream *s = stream_of(f.d);
    struct dev_event *e = event_of(f.d);
    struct dev_mem m = alloc_on(f.d, f.o, 4096), n = alloc_on(f.d, f.o, 4096);
    int32_t in[2] = { 40, 2 }, out = 0;
    bool done = false, ran = false;
    berth_err err = { 0 };
    (void)state;
    assert_ok(dev_copy_h2d(s, m.addr, in, sizeof in, &err), err);
    assert_memory_equal(ptr(&m), in, sizeof in);
    assert_ok(dev_copy(s, (struct dev_at) { f.d, n.addr }, (struct dev_at) { f.d, m.addr },
                       sizeof in, &err),
              err);
    struct dev_access access[] = { { n.addr, 4, DEV_READ },
                                   { n.addr + 4, 4, DEV_READ },
                                   { n.addr + 8, 4, DEV_WRITE } };
    assert_ok(dev_launch(s, add_up, &ran, access, 3, &err), err);
    assert_true(ran);
    assert_ok(dev_copy_d2h(s, &out, n.addr + 8, 4, &err), err);
    assert_int_equal(out, 42);
    assert_ok(dev_event_record(e, s, &err), err);
    assert_ok(dev_event_query(e, &done, &err), err);
    assert_true(done);
    struct dev_event *later = event_of(f.d);
    uint64_t before = clock_mono_ns(clock_system());
    int64_t ns;
    assert_ok(dev_event_record(e, s, &err), err);
    assert_ok(dev_event_record(later, s, &err), err);
    assert_ok(dev_event_elapsed(e, later, &done, &ns, &err), err); /* on the host's clock */
    assert_true(done && ns >= 0 && (uint64_t)ns <= clock_mono_ns(clock_system()) - before);
    dev_event_free(later);
    assert_ok(dev_stream_wait(s, e, &err), err);
    assert_ok(dev_event_sync(e, &err), err);
    assert_ok(dev_stream_sync(s, &err), err);
    dev_retire(&m, e); /* freed by the next poll */
    assert_true(stats_of(f.d).retired == 4096);
    dev_event_free(e);
    uint64_t freed;
    assert_ok(dev_poll(f.d, &freed, &err), err);
    assert_true(freed == 4096);
    dev_free(&n);
    dev_stream_free(s);
    dev_stream_free(NULL);
    dev_event_free(NULL);
    stop(&f);
}

static void the_os_says_no(void **state)
{
    struct fixture f = start("cpu=8m");
    struct phys *p = f.d->phys;
    uint64_t addr = 1;
    berth_err err = { 0 };
    (void)state;
    assert_fails(p->driver->alloc(p, (size_t)1 << 56, &addr, &err), err, BERTH_ENODEVMEM,
                 "cpu: mapping 72057594037927936 bytes");
    assert_true(addr == 0);
    stop(&f);
}

static void logical_names_on_cpu(void **state)
{
    struct devset *set = open_devices("cpu=1m,cuda:0@cpu=8m,cuda:1@cpu=4m", NULL);
    struct device *d = device_named(set, "cuda:1");
    struct dev_owner *o = owner_of(d, "m", DEV_WEIGHTS);
    (void)state;
    assert_string_equal(d->name, "cuda:1");
    assert_string_equal(d->phys->name, "cpu");
    assert_true(dev_can(d, BERTH_CAP_HOST_VISIBLE));
    struct dev_mem m = alloc_on(d, o, 4 * MIB), none;
    memset(ptr(&m), 1, 4 * MIB);
    berth_err err = { 0 };
    assert_fails(dev_alloc(d, o, 1, &none, &err), err, BERTH_ENODEVMEM, "cuda:1 is full");
    assert_true(stats_of(device_named(set, "cuda:0")).in_use == 0);
    assert_true(dev_can_peer(d, device_named(set, "cuda:0")));
    dev_free(&m);
    dev_owner_close(o);
    devset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(trim_gives_pages_back),
        cmocka_unit_test(the_os_says_no),
        cmocka_unit_test(work_is_done_when_the_call_returns),
        cmocka_unit_test(logical_names_on_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
