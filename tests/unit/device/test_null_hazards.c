/* The null engine notices hazards whatever order it happens to draw. */
#include "unit/device/null_bench.h"

static void read_before_the_copy_is_done(void **state)
{
    struct bench *t = start_filled(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 100, err));
    ok(dev_copy_d2h(t->b, t->back, t->m.addr + 99, 1, err));
    expect(t, 1, NULL_READ_UNWRITTEN, "d2h copy #5 on null:0 stream 2 reads bytes whose write",
           "written by h2d copy #4 on null:0 stream 1");
    ok(dev_copy_d2h(t->b, t->back + 8, t->m.addr + 100, 1, err)); /* the byte behind it is fine */
    stop(t, 1);
}

static void luck_does_not_help(void **state)
{
    struct bench *t = start(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 100, err));
    null_run(t->d); /* it did run, but nobody asked: the host does not know */
    ok(dev_copy_d2h(t->b, t->back, t->m.addr, 100, err));
    expect(t, 1, NULL_READ_UNWRITTEN, "stream 2", "stream 1");
    bool done;
    ok(dev_event_record(t->e, t->a, err));
    null_run(t->d);
    ok(dev_event_query(t->e, &done, err)); /* asking is knowing */
    assert_true(done);
    ok(dev_copy_d2h(t->b, t->back + 100, t->m.addr, 100, err));
    stop(t, 1);
}

static void host_reads_too_early(void **state)
{
    struct bench *t = start_filled(false);
    (void)state;
    ok(dev_copy_d2h(t->a, t->back, t->m.addr, 100, err));
    dev_host_access(t->d, t->back + 50, 10, DEV_READ);
    expect(t, 1, NULL_READ_UNWRITTEN, "the host reads",
           "written by d2h copy #4 on null:0 stream 1");
    ok(dev_stream_sync(t->a, err));
    dev_host_access(t->d, t->back, 100, DEV_READ | DEV_WRITE);
    stop(t, 1);
}

static void host_overwrites_a_source(void **state)
{
    struct bench *t = start(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 100, err));
    dev_host_access(t->d, t->host, 100, DEV_READ); /* two readers are fine */
    assert_true(null_hazards(t->d) == 0);
    dev_host_access(t->d, t->host + 99, 100, DEV_WRITE);
    expect(t, 1, NULL_OVERWRITE_READ, "the host overwrites", "read by h2d copy #1");
    stop(t, 1);
}

static void overwrites_what_is_being_read(void **state)
{
    struct bench *t = start_filled(false);
    (void)state;
    ok(dev_copy_d2h(t->a, t->back, t->m.addr, 4096, err));
    ok(dev_copy_h2d(t->b, t->m.addr + 1000, t->host, 10, err));
    expect(t, 1, NULL_OVERWRITE_READ,
           "h2d copy #5 on null:0 stream 2 overwrites bytes that may still",
           "read by d2h copy #4 on null:0 stream 1");
    stop(t, 1);
}

static void two_writers(void **state)
{
    struct bench *t = start(false);
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 100, err));
    ok(dev_copy_h2d(t->b, t->m.addr, t->host, 100, err));
    expect(t, 1, NULL_OVERWRITE_WRITE, "h2d copy #2", "written by h2d copy #1");
    stop(t, 1);
}

static void peers_are_watched_too(void **state)
{
    struct bench *t = start(false);
    struct dev_stream *s2 = stream_of(t->d2);
    struct dev_event *e2 = event_of(t->d2);
    struct dev_at near = { t->d, t->m.addr }, far = { t->d2, t->far.addr };
    (void)state;
    ok(dev_copy_h2d(s2, t->far.addr, t->host, 100, err));
    ok(dev_copy(t->a, near, far, 100, err));
    expect(t, 1, NULL_READ_UNWRITTEN, "peer copy #2 on null:0 stream 1",
           "h2d copy #1 on null:1 stream 3");
    ok(dev_copy_h2d(s2, t->far.addr + 200, t->host, 100, err));
    ok(dev_event_record(e2, s2, err)); /* an event of one device orders a stream of the other */
    ok(dev_stream_wait(t->a, e2, err));
    ok(dev_copy(t->a, (struct dev_at) { t->d, t->m.addr + 200 },
                (struct dev_at) { t->d2, t->far.addr + 200 }, 100, err));
    dev_event_free(e2); /* with the wait still queued */
    dev_stream_free(s2);
    stop(t, 1);
}

static void launches_declare_what_they_touch(void **state)
{
    struct bench *t = start(false);
    size_t n = 64;
    struct dev_access access[] = { { t->n.addr, n, DEV_WRITE }, { t->m.addr, n, DEV_READ } };
    struct dev_access too_many[DEV_LAUNCH_ACCESS_MAX + 1] = { { 0 } };
    berth_err e = { 0 };
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, n, err));
    ok(dev_launch(t->a, add_one, &n, access, 2, err));
    ok(dev_copy_d2h(t->a, t->back, t->n.addr, n, err));
    ok(dev_stream_sync(t->a, err));
    for (size_t i = 0; i < n; i++)
        assert_int_equal((unsigned char)t->back[i], (unsigned char)(t->host[i] + 1));
    ok(dev_launch(t->a, add_one, &n, access, 2, err));
    ok(dev_launch(t->b, add_one, &n, access, 2, err));
    expect(t, 1, NULL_OVERWRITE_WRITE, "launch", "written by launch");
    assert_fails(dev_launch(t->a, add_one, &n, too_many, ARRAY_LEN(too_many), &e), e, BERTH_ELIMIT,
                 "17 declared accesses");
    stop(t, 1);
}

static void in_place_is_no_conflict_with_itself(void **state)
{
    struct bench *t = start_filled(false);
    size_t n = 64;
    struct dev_access access[] = { { t->m.addr, n, DEV_READ | DEV_WRITE },
                                   { t->m.addr, n, DEV_READ } };
    (void)state;
    ok(dev_launch(t->a, add_one, &n, access, 2, err));
    ok(dev_launch(t->a, add_one, &n, access, 2, err));
    stop(t, 0);
}

static void nothing_of_it_is_no_conflict(void **state)
{
    struct bench *t = start_filled(false);
    size_t n = 0;
    struct dev_access access[] = { { t->m.addr + 8, 0, DEV_WRITE }, { 12345, 0, DEV_READ } };
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 64, err));
    ok(dev_launch(t->b, add_one, &n, access, 2, err)); /* in the middle of a pending write */
    stop(t, 0);
}

/* ---- bytes that nobody wrote ---- */

static void used_before_its_copy(void **state)
{
    struct bench *t = start(false);
    size_t n = 64;
    struct dev_access access[] = { { t->n.addr, n, DEV_WRITE }, { t->m.addr, n, DEV_READ } };
    (void)state;
    ok(dev_launch(t->a, add_one, &n, access, 2, err)); /* the wrong way round, on one stream: */
    expect(t, 1, NULL_READ_BLANK, "launch #1 on null:0 stream 1 reads bytes nobody wrote", "+64)");
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, n, err)); /* ordered, but too late */
    ok(dev_launch(t->a, add_one, &n, access, 2, err));
    ok(dev_copy_d2h(t->a, t->back, t->n.addr, n, err));
    ok(dev_copy_d2h(t->a, t->back + 64, t->n.addr, n + 1, err)); /* one byte too many */
    expect(t, 2, NULL_READ_BLANK, "d2h copy #5", "+4032)");
    stop(t, 2);
}

static void old_contents_are_nobodys(void **state)
{
    struct bench *t = start(false);
    static const char secret[] = "secret";
    (void)state;
    struct dev_mem m = alloc_on(t->d, t->o, sizeof secret);
    uint64_t addr = m.addr;
    ok(dev_copy_h2d(t->a, m.addr, secret, sizeof secret, err));
    ok(dev_copy_d2h(t->a, t->back, m.addr, sizeof secret, err));
    ok(dev_stream_sync(t->a, err));
    assert_true(null_hazards(t->d) == 0);
    dev_free(&m);
    m = alloc_on(t->d, t->o, sizeof secret);
    assert_true(m.addr == addr);
    ok(dev_copy_d2h(t->a, t->back, m.addr, sizeof secret, err));
    expect(t, 1, NULL_READ_BLANK, "d2h copy", "never written");
    ok(dev_stream_sync(t->a, err));
    dev_free(&m);
    stop(t, 1);
}

static void holes_stay_blank(void **state)
{
    struct bench *t = start(true);
    berth_err e = { 0 };
    (void)state;
    for (size_t i = 0; i < 16; i++) /* every other 16 bytes */
        ok(dev_copy_h2d(t->a, t->m.addr + 32 * i, t->host, 16, err));
    for (size_t i = 0; i < 16; i++) {
        ok(dev_copy_d2h(t->a, t->back, t->m.addr + 32 * i, 16, err));
        assert_fails(dev_copy_d2h(t->a, t->back, t->m.addr + 32 * i + 15, 2, &e), e, BERTH_EDEVICE,
                     "nobody wrote");
        assert_fails(dev_copy_d2h(t->a, t->back, t->m.addr + 32 * i + 31, 1, &e), e, BERTH_EDEVICE,
                     "nobody wrote");
    }
    ok(dev_copy_h2d(t->a, t->m.addr + 8, t->host, 512 - 8, err)); /* closes them all but the last */
    ok(dev_copy_d2h(t->a, t->back, t->m.addr, 512, err));
    stop(t, 32);
}

static void freed_while_in_use(void **state)
{
    struct bench *t = start(false);
    (void)state;
    struct dev_mem m = alloc_on(t->d, t->o, 20 * MIB);
    ok(dev_copy_h2d(t->a, m.addr, t->host, 4096, err));
    dev_free(&m); /* should have been retired */
    expect(t, 1, NULL_FREE_PENDING, "the host frees bytes that queued work touches",
           "written by h2d copy #1");
    assert_true(dev_trim(t->d).released == 20 * MIB);
    ok(dev_stream_sync(t->a, err)); /* the segment is gone, the process is not */
    m = alloc_on(t->d, t->o, 4096);
    ok(dev_copy_h2d(t->a, m.addr, t->host, 4096, err));
    ok(dev_stream_sync(t->a, err));
    dev_free(&m);
    stop(t, 1);
}

static void use_after_free(void **state)
{
    struct bench *t = start(false);
    struct phys *p = t->d->phys;
    uint64_t addr;
    berth_err e = { 0 };
    (void)state;
    struct dev_mem m = alloc_on(t->d, t->o, 4096);
    addr = m.addr;
    dev_free(&m);
    ok(dev_copy_h2d(t->a, addr, t->host, 16, err)); /* the pool still has it, nobody else does */
    expect(t, 1, NULL_USE_FREED, "h2d copy", "free is [");
    ok(p->driver->alloc(p, 4096, &addr, err));
    p->driver->free(p, addr, 4096);
    assert_fails(dev_copy_d2h(t->a, t->back, addr, 16, &e), e, BERTH_EDEVICE, "not allocated");
    expect(t, 2, NULL_USE_FREED, "d2h copy", "null:0");
    assert_fails(dev_copy_d2h(t->a, t->back, 12345, 16, &e), e, BERTH_EDEVICE, "never allocated");
    expect(t, 3, NULL_UNKNOWN_ADDRESS, "d2h copy", "0x3039");
    ok(p->driver->alloc(p, 4096, &addr, err));
    assert_fails(dev_copy_d2h(t->a, t->back, addr + 4000, 97, &e), e, BERTH_EDEVICE, "leaves its");
    expect(t, 4, NULL_UNKNOWN_ADDRESS, "d2h copy", "+97");
    p->driver->free(p, addr, 4096);
    stop(t, 4);
}

static void driver_free_with_work_queued(void **state)
{
    struct bench *t = start(false);
    struct phys *p = t->d->phys;
    uint64_t addr;
    (void)state;
    ok(p->driver->alloc(p, 4096, &addr, err));
    ok(dev_copy_h2d(t->a, addr, t->host, 4096, err));
    p->driver->free(p, addr, 4096);
    expect(t, 1, NULL_FREE_PENDING, "the host frees", "h2d copy");
    null_run(t->d); /* the bytes are kept: the report is all that happens */
    stop(t, 1);
}

static void pinned_freed_with_work_queued(void **state)
{
    struct bench *t = start(false);
    struct dev_owner *o = owner_of(t->d, "ring", DEV_PINNED);
    struct dev_host h;
    (void)state;
    ok(dev_host_alloc(t->d, o, 4096, &h, err));
    ok(dev_copy_h2d(t->a, t->m.addr, h.ptr, 4096, err));
    dev_host_free(&h);
    expect(t, 1, NULL_FREE_PENDING, "the host frees", "read by h2d copy");
    null_run(t->d);
    dev_owner_close(o);
    stop(t, 1);
}

/* ---- host memory: the cpu device, pinned memory, whatever else ---- */

struct donor { /* a bench of its own with cpu memory beside the null device, in ranges of 20 MiB */
    struct bench t;
    struct device *cpu;
    struct dev_stream *cs;
    struct dev_owner *co;
    struct dev_mem cm, cn;
};

static struct donor *donor_open(void)
{
    struct donor *x = calloc(1, sizeof *x);
    assert_non_null(x);
    struct bench *t = &x->t;
    struct null_config cfg = { .seed = 7, .lazy = true, .on_hazard = note, .user = t };
    struct dev_env env = { .null = &cfg };
    t->set = open_devices("cpu=64m,null:0=64m", &env);
    x->cpu = devset_at(t->set, 0);
    x->cs = stream_of(x->cpu);
    x->co = owner_of(x->cpu, "donor", DEV_WEIGHTS);
    x->cm = alloc_on(x->cpu, x->co, 20 * MIB);
    x->cn = alloc_on(x->cpu, x->co, 20 * MIB);
    t->d = devset_at(t->set, 1);
    t->a = stream_of(t->d);
    t->o = owner_of(t->d, "m", DEV_WEIGHTS);
    t->m = alloc_on(t->d, t->o, 4096);
    memset(at(x->cm.addr), 5, 4096);
    return x;
}

static void donor_close(struct donor *x, uint64_t hazards)
{
    struct bench *t = &x->t;
    null_run(t->d);
    dev_stream_free(t->a);
    dev_stream_free(x->cs);
    dev_free(&t->m);
    dev_free(&x->cm);
    dev_free(&x->cn);
    dev_owner_close(t->o);
    dev_owner_close(x->co);
    assert_true(null_hazards(t->d) == hazards);
    devset_close(t->set);
    free(x);
}

static void donor_freed_under_a_copy(void **state)
{
    struct donor *x = donor_open();
    struct bench *t = &x->t;
    (void)state;
    uint64_t gone = x->cm.addr;
    ok(dev_copy_h2d(t->a, t->m.addr, at(gone), 4096, err));
    dev_free(&x->cm);
    expect(t, 1, NULL_FREE_PENDING, "the host frees", "read by h2d copy #1 on null:0 stream 1");
    assert_true(dev_trim(x->cpu).released == 20 * MIB);
    ok(dev_stream_sync(t->a, err)); /* the pages are gone, the process is not */
    ok(dev_copy_d2h(t->a, t->back, t->m.addr, 4096, err));
    ok(dev_stream_sync(t->a, err));
    assert_int_equal(t->back[4095], 5);
    donor_close(x, 1);
}

static void donor_used_after_free(void **state)
{
    struct donor *x = donor_open();
    struct bench *t = &x->t;
    (void)state;
    uint64_t addr = x->cm.addr;
    dev_free(&x->cm); /* the pool keeps the pages */
    ok(dev_copy_h2d(t->a, t->m.addr, at(addr), 4096, err));
    expect(t, 1, NULL_USE_FREED, "h2d copy #1", "free is [");
    ok(dev_copy_h2d(x->cs, x->cn.addr, at(addr), 64, err));
    expect(t, 2, NULL_USE_FREED, "the host touches bytes that are free", "free is [");
    ok(dev_stream_sync(t->a, err));
    x->cm = alloc_on(x->cpu, x->co, 20 * MIB); /* handed out again: fine again */
    assert_true(x->cm.addr == addr);
    ok(dev_copy_h2d(t->a, t->m.addr, at(addr), 4096, err));
    ok(dev_stream_sync(t->a, err));
    donor_close(x, 2);
}

static void cpu_work_before_the_event(void **state)
{
    struct donor *x = donor_open();
    struct bench *t = &x->t;
    size_t n = 64;
    struct dev_access access[] = { { x->cn.addr, n, DEV_WRITE }, { x->cm.addr, n, DEV_READ } };
    struct dev_at cm = { x->cpu, x->cm.addr }, cn = { x->cpu, x->cn.addr };
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 4096, err));
    ok(dev_copy_d2h(t->a, at(x->cm.addr), t->m.addr, 4096, err));
    ok(dev_copy(x->cs, cn, cm, 64, err)); /* cpu work happens at once, the copy did not */
    expect(t, 1, NULL_READ_UNWRITTEN, "the host reads", "written by d2h copy #2");
    ok(dev_copy_h2d(x->cs, x->cm.addr + 4000, t->host, 97, err));
    expect(t, 2, NULL_OVERWRITE_WRITE, "the host overwrites", "written by d2h copy #2");
    ok(dev_copy_d2h(x->cs, t->back, x->cm.addr, 1, err));
    expect(t, 3, NULL_READ_UNWRITTEN, "the host reads", "written by d2h copy #2");
    ok(dev_launch(x->cs, add_one, &n, access, 2, err));
    expect(t, 4, NULL_READ_UNWRITTEN, "the host reads", "written by d2h copy #2");
    struct dev_event *e = event_of(t->d);
    ok(dev_event_record(e, t->a, err));
    ok(dev_stream_wait(x->cs, e, err)); /* the way it should be */
    ok(dev_launch(x->cs, add_one, &n, access, 2, err));
    ok(dev_copy_d2h(x->cs, t->back, x->cm.addr, 4096, err));
    dev_event_free(e);
    donor_close(x, 4);
}

static void retired_donors_are_fine(void **state)
{
    struct donor *x = donor_open();
    struct bench *t = &x->t;
    uint64_t freed;
    (void)state;
    struct dev_event *e = event_of(t->d);
    ok(dev_copy_h2d(t->a, t->m.addr, at(x->cm.addr), 4096, err));
    ok(dev_event_record(e, t->a, err));
    dev_retire(&x->cm, e); /* cpu memory, waiting for a null event */
    ok(dev_poll(x->cpu, &freed, err));
    assert_true(freed == 0);
    null_run(t->d);
    ok(dev_poll(x->cpu, &freed, err));
    assert_true(freed == 20 * MIB);
    assert_true(dev_trim(x->cpu).released == 20 * MIB);
    dev_event_free(e);
    donor_close(x, 0);
}

static void host_memory_that_goes_away(void **state)
{
    struct donor *x = donor_open();
    struct bench *t = &x->t;
    struct dev_owner *o = owner_of(x->cpu, "ring", DEV_PINNED);
    struct dev_host h;
    (void)state;
    ok(dev_host_alloc(x->cpu, o, 4096, &h, err)); /* the cpu's own: plain pages */
    ok(dev_copy_h2d(t->a, t->m.addr, h.ptr, 4096, err));
    dev_host_free(&h);
    expect(t, 1, NULL_FREE_PENDING, "the host frees", "read by h2d copy #1");
    ok(dev_stream_sync(t->a, err));
    void *file = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(file != MAP_FAILED);
    ok(dev_copy_h2d(t->a, t->m.addr, file, 4096, err));
    dev_host_gone(x->cpu->phys, file, 4096); /* any device of the set will do */
    assert_int_equal(munmap(file, 4096), 0);
    expect(t, 2, NULL_FREE_PENDING, "the host frees", "read by h2d copy #2");
    ok(dev_stream_sync(t->a, err));
    dev_owner_close(o);
    donor_close(x, 2);
}

static void leaks_at_close(void **state)
{
    struct bench t = { .kind = 0 };
    struct null_config cfg = { .on_hazard = note, .user = &t };
    struct dev_env env = { .null = &cfg };
    (void)state;
    struct devset *set = open_devices("null:0=64m", &env);
    struct device *d = devset_at(set, 0);
    (void)stream_of(d);
    (void)event_of(d);
    devset_close(set);
    assert_int_equal(t.kind, NULL_LEAK);
    assert_string_equal(t.text, "an event of null:0 was not freed before close");
    set = open_devices("null:0=64m", &env);
    struct phys *p = devset_at(set, 0)->phys;
    uint64_t addr;
    ok(p->driver->alloc(p, 4096, &addr, err));
    devset_close(set);
    assert_non_null(strstr(t.text, "1 allocations of null:0 were not freed"));
    set = open_devices("null:0=64m", &env);
    struct dev_stream *s = stream_of(devset_at(set, 0));
    (void)s;
    devset_close(set);
    assert_string_equal(t.text, "null:0 stream 1 was not freed before close");
    set = open_devices("null:0=64m", &env);
    p = devset_at(set, 0)->phys;
    void *ptr;
    ok(p->driver->host_alloc(p, 4096, &ptr, err));
    devset_close(set);
    assert_non_null(strstr(t.text, "1 pinned ranges of null:0"));
    set = open_devices("null:0=64m", &env);
    struct dev_owner *o = owner_of(devset_at(set, 0), "m", DEV_WEIGHTS);
    struct dev_mem m = alloc_on(devset_at(set, 0), o, 1000), gone = alloc_on(m.dev, o, 1000);
    dev_free(&gone);
    devset_close(set); /* from the pool, by its owner */
    assert_non_null(strstr(t.text, "goes back with 1024 bytes of it handed out"));
    assert_int_equal(munmap(ptr, 4096), 0);
}

static void strict_refuses(void **state)
{
    struct bench *t = start(true);
    berth_err e = { 0 };
    (void)state;
    ok(dev_copy_h2d(t->a, t->m.addr, t->host, 100, err));
    assert_fails(dev_copy_d2h(t->b, t->back, t->m.addr, 100, &e), e, BERTH_EDEVICE,
                 "reads bytes whose write is not ordered before it");
    assert_int_equal(null_queued(t->d), 1); /* the second was not queued */
    ok(dev_stream_sync(t->a, err));
    ok(dev_copy_d2h(t->b, t->back, t->m.addr, 100, err)); /* and left no trace */
    stop(t, 1);
}

static void write_event(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                        const char *text)
{
    (void)wall_ns, (void)text;
    if (level == LOG_ERROR && strcmp(event, "null.hazard") == 0)
        ++*(int *)user;
}

static void reports_go_to_the_log_without_a_callback(void **state)
{
    int seen = 0;
    struct log log = { .write = write_event, .user = &seen };
    struct dev_env env = { .log = &log };
    (void)state;
    struct devset *set = open_devices("null:0=64m", &env);
    (void)event_of(devset_at(set, 0));
    devset_close(set);
    assert_int_equal(seen, 1);
}

/* ---- failing calls ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_before_the_copy_is_done),
        cmocka_unit_test(luck_does_not_help),
        cmocka_unit_test(host_reads_too_early),
        cmocka_unit_test(host_overwrites_a_source),
        cmocka_unit_test(overwrites_what_is_being_read),
        cmocka_unit_test(two_writers),
        cmocka_unit_test(peers_are_watched_too),
        cmocka_unit_test(launches_declare_what_they_touch),
        cmocka_unit_test(in_place_is_no_conflict_with_itself),
        cmocka_unit_test(nothing_of_it_is_no_conflict),
        cmocka_unit_test(used_before_its_copy),
        cmocka_unit_test(old_contents_are_nobodys),
        cmocka_unit_test(holes_stay_blank),
        cmocka_unit_test(freed_while_in_use),
        cmocka_unit_test(use_after_free),
        cmocka_unit_test(driver_free_with_work_queued),
        cmocka_unit_test(pinned_freed_with_work_queued),
        cmocka_unit_test(donor_freed_under_a_copy),
        cmocka_unit_test(donor_used_after_free),
        cmocka_unit_test(cpu_work_before_the_event),
        cmocka_unit_test(retired_donors_are_fine),
        cmocka_unit_test(host_memory_that_goes_away),
        cmocka_unit_test(leaks_at_close),
        cmocka_unit_test(strict_refuses),
        cmocka_unit_test(reports_go_to_the_log_without_a_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
