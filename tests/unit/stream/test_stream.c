/* The ring, step by step: what is where after which call, what is refused, what a failure leaves.
 * Random plans are in tests/property/residency/test_stream.c. */
#include "stream/stream.h"
#include "support/devices.h"
#include "support/oom.h"

#define N 6
#define BYTES 1000

/* N blocks of BYTES, each a run by itself unless run_bytes says otherwise, the byte k of block i is
 * i + k. */
struct bench {
    struct devset *set;
    struct null_config null;
    struct device *compute, *cpu, *peer;
    struct dev_owner *ring, *pinned, *weights, *far;
    struct dev_stream *s;
    struct dev_host host;
    struct dev_mem mem[N];
    struct stream_item item[N];
    struct stream_piece piece;
    struct stream_args args;
    unsigned closed; /* on_close calls */
    unsigned wrong;  /* layers that saw other bytes */
};

static void on_close(void *user)
{
    ((struct bench *)user)->closed++;
}

static unsigned char byte_of(size_t i, size_t k)
{
    return (unsigned char)(i * 50 + k);
}

static void fill(struct bench *b, size_t i)
{
    struct stream_item *it = &b->item[i];
    unsigned char bytes[BYTES];
    berth_err err = { 0 };
    for (size_t k = 0; k < BYTES; k++)
        bytes[k] = byte_of(i, k);
    if (it->source == STREAM_PINNED || it->source == STREAM_PAGEABLE) {
        memcpy((char *)(uintptr_t)it->addr, bytes, BYTES);
        return;
    }
    struct dev_stream *s = stream_of(it->dev);
    assert_ok(dev_copy_h2d(s, it->addr, bytes, BYTES, &err), err);
    dev_stream_free(s);
    dev_host_gone(it->dev->phys, bytes, BYTES);
}

/* kinds: one letter per block, r resident, p pinned, m pageable, d on null:1. A copy of one block
 * takes 1000 ns of virtual time. */
static struct bench *start_timed(const char *devices, const char *kinds, uint64_t launch_ns)
{
    struct bench *b = calloc(1, sizeof *b);
    berth_err err = { 0 };
    assert_non_null(b);
    b->null = (struct null_config) { .seed = 5,
                                     .lazy = true,
                                     .copy_bytes_per_s = (uint64_t)BYTES * 1000000,
                                     .launch_ns = launch_ns };
    struct dev_env env = { .null = &b->null };
    b->set = open_devices(devices, &env);
    b->compute = devset_at(b->set, 0);
    b->cpu = device_named(b->set, "cpu");
    b->peer = devset_at(b->set, devset_count(b->set) - 1);
    b->ring = owner_of(b->compute, "ring", DEV_STAGING);
    b->pinned = owner_of(b->cpu, "pins", DEV_PINNED);
    b->piece = (struct stream_piece) { 0, BYTES };
    assert_ok(dev_host_alloc(b->compute, b->pinned, (size_t)N * 1024, &b->host, &err), err);
    for (size_t i = 0; i < N; i++) {
        char k = kinds[i];
        struct stream_item *it = &b->item[i];
        *it = (struct stream_item) { .span = BYTES, .piece = &b->piece, .pieces = 1, .name = "b" };
        it->source = k == 'r'   ? STREAM_RESIDENT
                     : k == 'p' ? STREAM_PINNED
                     : k == 'm' ? STREAM_PAGEABLE
                                : STREAM_DEVICE;
        it->dev = k == 'r' ? b->compute : k == 'd' ? b->peer : b->cpu;
        it->addr = (uintptr_t)b->host.ptr + i * 1024;
        if (k != 'p') {
            struct dev_owner *o = owner_of(it->dev, "weights", DEV_WEIGHTS);
            b->mem[i] = alloc_on(it->dev, o, BYTES);
            dev_owner_close(o);
            it->addr = b->mem[i].addr;
        }
        fill(b, i);
    }
    b->s = stream_of(b->compute);
    b->args = (struct stream_args) { .name = "flux",
                                     .compute = b->compute,
                                     .item = b->item,
                                     .n = N,
                                     .owner = b->ring,
                                     .host_owner = b->pinned,
                                     .on_close = on_close,
                                     .close_user = b,
                                     .cfg = { .run_bytes = 1 } };
    return b;
}

static struct bench *start(const char *devices, const char *kinds)
{
    return start_timed(devices, kinds, 0);
}

static void stop(struct bench *b)
{
    assert_int_equal(b->wrong, 0);
    dev_stream_free(b->s);
    dev_owner_close(b->ring);
    dev_owner_close(b->pinned);
    for (size_t i = 0; i < N; i++)
        dev_free(&b->mem[i]);
    dev_host_free(&b->host);
    for (size_t i = 0; i < devset_count(b->set); i++) {
        struct device *d = devset_at(b->set, i);
        struct dev_stats sum;
        (void)dev_ledger(d, NULL, 0, &sum);
        assert_int_equal(sum.in_use + sum.pinned, 0);
        if (d->phys->driver == &driver_null && null_hazards(d))
            fail_msg("%s", null_last_hazard(d));
    }
    devset_close(b->set);
    free(b);
}

static struct stream *open_stream(struct bench *b)
{
    struct stream *s;
    berth_err err = { 0 };
    assert_ok(stream_open(&b->args, &s, &err), err);
    return s;
}

struct look { /* user of a layer */
    struct bench *b;
    size_t i;
};

static void layer(void *user, void *const *ptr)
{
    struct look *l = user;
    const unsigned char *p = ptr[0];
    for (size_t k = 0; k < l->b->item[l->i].piece->n; k++)
        if (p[k] != byte_of(l->i, k)) {
            l->b->wrong++;
            break;
        }
}

static struct look looks[N];

/* A layer over block i: acquire, launch, release. Its address. */
static berth_status use(struct bench *b, struct stream *s, size_t i, uint64_t *addr, berth_err *err)
{
    looks[i] = (struct look) { b, i };
    if (stream_acquire(s, i, addr, err))
        return err->code;
    struct dev_access a = { *addr, b->item[i].piece->n, DEV_READ };
    if (dev_launch(b->s, layer, &looks[i], &a, 1, err))
        return err->code;
    return stream_release(s, i, err);
}

static berth_status whole_pass(struct bench *b, struct stream *s, berth_err *err)
{
    uint64_t addr;
    if (stream_begin(s, b->s, err))
        return err->code;
    for (size_t i = 0; i < N; i++)
        if (use(b, s, i, &addr, err))
            return err->code;
    return stream_end(s, err);
}

/* ---- */

#define ok(call)                                                                                   \
    do {                                                                                           \
        berth_err err_ = { 0 };                                                                    \
        berth_err *err = &err_;                                                                    \
        assert_ok(call, err_);                                                                     \
    } while (0)

static void ring_goes_round(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    struct stream *s = open_stream(b);
    uint64_t addr[N];
    for (int pass = 0; pass < 3; pass++) {
        ok(stream_begin(s, b->s, err));
        struct stream_stats x = stream_stats(s);
        assert_int_equal(x.ahead, 3 * BYTES); /* the ring is full before the first layer */
        assert_int_equal(x.bytes, pass * N * BYTES + 3 * BYTES);
        for (size_t i = 0; i < N; i++) {
            ok(use(b, s, i, &addr[i], err));
            if (i >= 3)
                assert_true(addr[i] == addr[i - 3]);
            assert_int_equal(stream_stats(s).ahead, 3 * BYTES); /* released: the next is queued */
        }
        ok(stream_end(s, err));
    }
    struct stream_stats x = stream_stats(s);
    assert_true(addr[0] != addr[1] && addr[1] != addr[2] && addr[0] != addr[2]);
    assert_int_equal(x.passes, 3);
    assert_int_equal(x.slots, 3);
    assert_int_equal(x.ring_bytes, 3 * 1024); /* whole lines */
    assert_int_equal(x.stage_bytes, 0);
    assert_int_equal(x.bytes - x.ahead, 3 * N * BYTES);
    assert_int_equal(x.copies, 3 * N + 3);
    assert_int_equal(x.runs, 3 * N + 3);
    assert_int_equal(x.out_of_order + x.dropped + x.staged, 0);
    assert_int_equal(null_queued(b->compute) > 0, 1); /* nobody waited for anything */
    stream_close(s);
    assert_int_equal(b->closed, 1);
    stop(b);
}

/* Runs lie behind one another, here in two laps of about the same length: the large one and 1, then
 * all the others. Each comes as soon as its place is free, which is the same in every pass. */
static void small_runs_share_the_ring(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    static const struct stream_piece small = { 0, 200 };
    uint64_t addr[N], first[N];
    for (size_t i = 1; i < N; i++) {
        b->item[i].span = 200;
        b->item[i].piece = &small;
    }
    b->args.cfg.slots = 2;
    struct stream *s = open_stream(b);
    assert_int_equal(stream_stats(s).ring_bytes, 2 * 1024);
    for (int pass = 0; pass < 3; pass++) {
        ok(stream_begin(s, b->s, err));
        assert_int_equal(stream_stats(s).ahead, BYTES + 200);
        for (size_t i = 0; i < N; i++) {
            ok(use(b, s, i, &addr[i], err));
            if (i == 0) /* 2 to 5 lie where 0 was */
                assert_int_equal(stream_stats(s).ahead, 5 * 200);
            first[i] = pass ? first[i] : addr[i];
            assert_true(addr[i] == first[i]);
        }
        assert_true(addr[2] == addr[0] && addr[5] == addr[2] + 3 * 256);
        ok(stream_end(s, err));
    }
    assert_int_equal(stream_stats(s).out_of_order + stream_stats(s).dropped, 0);
    stream_close(s);
    stop(b);
}

/* A ring as large as all runs together is no larger than that, and every one keeps its place. */
static void all_runs_have_room(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    static const struct stream_piece small = { 0, 200 };
    uint64_t addr[N], first[N];
    for (size_t i = 1; i < N; i++) {
        b->item[i].span = 200;
        b->item[i].piece = &small;
    }
    struct stream *s = open_stream(b);
    assert_int_equal(stream_stats(s).ring_bytes, 1024 + 5 * 256);
    for (int pass = 0; pass < 3; pass++) {
        ok(stream_begin(s, b->s, err));
        assert_int_equal(stream_stats(s).ahead, BYTES + 5 * 200);
        for (size_t i = N; i-- > 0;) { /* no order disturbs it */
            ok(use(b, s, i, &addr[i], err));
            first[i] = pass ? first[i] : addr[i];
            assert_true(addr[i] == first[i]);
        }
        ok(stream_end(s, err));
    }
    assert_int_equal(stream_stats(s).out_of_order, 0);
    stream_close(s);
    stop(b);
}

/* Nothing is allocated, no stream, no event, no thread; a wrong owner does not matter. */
static void resident_moves_nothing(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "rrrrrr");
    uint64_t calls = null_calls(b->compute, NULL_ANY), addr;
    b->args.owner = b->args.host_owner = NULL;
    struct stream *s = open_stream(b);
    ok(stream_begin(s, b->s, err));
    for (size_t i = 0; i < N; i++) {
        ok(stream_acquire(s, i, &addr, err));
        assert_true(addr == b->mem[i].addr);
        ok(stream_release(s, i, err));
    }
    ok(stream_end(s, err));
    assert_int_equal(null_calls(b->compute, NULL_ANY), calls);
    struct stream_stats x = stream_stats(s);
    assert_int_equal(x.bytes + x.copies + x.ring_bytes + x.stage_bytes + x.slots, 0);
    stream_close(s);
    stop(b);
}

static void cpu_computes_where_blocks_are(void **state)
{
    (void)state;
    struct bench *b = start("cpu=4m", "pmmpmm");
    for (size_t i = 0; i < N; i++)
        b->item[i].source = stream_source_of(b->cpu, b->item[i].dev, b->item[i].addr % 3 == 0);
    struct dev_stats before = stats_of(b->cpu);
    struct stream *s = open_stream(b);
    ok(whole_pass(b, s, err));
    assert_int_equal(stream_stats(s).bytes, 0);
    assert_int_equal(stats_of(b->cpu).allocs, before.allocs);
    stream_close(s);
    stop(b);
}

/* On cpu nothing is simulated, so every malloc there is would be the engine's own. */
static void passes_do_not_allocate(void **state)
{
    (void)state;
    struct bench *b = start("cpu=4m", "pmpmpm");
    struct stream *s = open_stream(b);
    oom_after(0);
    berth_err err = { 0 };
    berth_status a = whole_pass(b, s, &err), c = whole_pass(b, s, &err);
    long seen = oom_seen();
    oom_off();
    assert_ok(a ? a : c, err);
    assert_int_equal(seen, 0);
    assert_int_equal(stream_stats(s).bytes - stream_stats(s).ahead, 2 * N * BYTES);
    stream_close(s);
    stop(b);
}

static void staging_in_chunks(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "mmmmmm");
    b->args.cfg.stage_bytes = 300; /* four chunks a block */
    b->args.cfg.run_bytes = 2500;  /* two blocks a run */
    b->args.cfg.stage_slots = 2;
    struct stream *s = open_stream(b);
    for (int pass = 1; pass <= 3; pass++) {
        ok(whole_pass(b, s, err));
        struct stream_stats x = stream_stats(s);
        assert_int_equal(x.bytes - x.ahead, pass * N * BYTES);
        assert_int_equal(x.staged, x.bytes);
    }
    assert_int_equal(stream_stats(s).stage_bytes, 2 * 512); /* 300 in whole lines */
    stream_close(s);
    stop(b);
}

/* Two neighbours in one run: the slot stays until both were released, in any order, and however
 * often one of them is asked for again. */
static void a_run_stays_until_all_of_it_was_used(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    uint64_t a0, a1, again;
    b->args.cfg.run_bytes = 2100;
    b->args.cfg.slots = 1;
    struct stream *s = open_stream(b);
    ok(stream_begin(s, b->s, err));
    ok(use(b, s, 1, &a1, err));
    ok(use(b, s, 1, &again, err));
    assert_true(a1 == again);
    ok(use(b, s, 0, &a0, err));
    assert_true(a1 == a0 + 1024);
    assert_int_equal(stream_stats(s).out_of_order, 0);
    assert_int_equal(stream_stats(s).bytes, 4 * BYTES); /* the next run is on its way */
    ok(use(b, s, 0, &a0, err));                         /* gone meanwhile */
    assert_int_equal(stream_stats(s).out_of_order, 1);
    assert_int_equal(stream_stats(s).dropped, 2 * BYTES);
    ok(stream_end(s, err));
    stream_close(s);
    stop(b);
}

/* Runs of two donors interleave: both are under way at once, each pass copies each once. */
static void donors_in_turn(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m,null:1=1m", "pdpdpd");
    uint64_t a0, a1, addr;
    b->args.cfg.run_bytes = 4000;
    struct stream *s = open_stream(b);
    assert_int_equal(stream_stats(s).slots, 3); /* 0 2 4, 1 3, 5: the second donor ends apart */
    for (uint64_t pass = 1; pass <= 3; pass++) {
        ok(whole_pass(b, s, err));
        struct stream_stats x = stream_stats(s);
        assert_int_equal(x.bytes - x.ahead, pass * N * BYTES);
        assert_int_equal(x.runs, pass * 3 + 3);
        assert_int_equal(x.out_of_order + x.dropped, 0);
    }
    ok(stream_begin(s, b->s, err)); /* a jump to where both are under way fetches both */
    ok(use(b, s, 5, &addr, err));
    uint64_t before = stream_stats(s).out_of_order;
    ok(use(b, s, 2, &a0, err));
    ok(use(b, s, 3, &a1, err));
    ok(use(b, s, 4, &addr, err));
    assert_true(addr == a0 + 1024 && a0 != a1);
    assert_int_equal(stream_stats(s).out_of_order, before);
    ok(stream_end(s, err));
    ok(whole_pass(b, s, err));
    stream_close(s);
    stop(b);
}

/* Items over and over without a new pass: as passes, but for what the end would count. */
static void round_and_round_in_one_pass(void **state)
{
    static const char *const kinds[] = { "pppppp", "pdpdpd", "dppppd" };
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct bench *b = start("null:0=1m,cpu=4m,null:1=1m", kinds[k]);
        b->args.cfg.run_bytes = 2100;
        struct stream *s = open_stream(b);
        uint64_t addr;
        ok(stream_begin(s, b->s, err));
        for (size_t i = 0; i < (size_t)5 * N; i++) {
            ok(use(b, s, i % N, &addr, err));
            null_run(b->compute); /* looks[] are used again */
        }
        struct stream_stats x = stream_stats(s);
        assert_int_equal(x.bytes - x.ahead, 5 * N * BYTES);
        assert_int_equal(x.out_of_order + x.dropped, 0);
        ok(stream_end(s, err));
        ok(whole_pass(b, s, err));
        stream_close(s);
        stop(b);
    }
}

/* A ring of two: a run under way to the end of the pass is not skipped when the next one begins. */
static void a_long_run_is_fetched_for_every_pass(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m,null:1=1m", "dppppd");
    b->args.cfg.run_bytes = 2100;
    b->args.cfg.slots = 3;
    b->item[1].span = b->item[2].span = b->item[3].span = 200; /* or it would be too far */
    b->item[4].span = 200;
    static const struct stream_piece small = { 0, 200 };
    for (size_t i = 1; i <= 4; i++)
        b->item[i].piece = &small;
    struct stream *s = open_stream(b);
    for (uint64_t pass = 1; pass <= 3; pass++) {
        uint64_t addr;
        ok(stream_begin(s, b->s, err));
        for (size_t i = 0; i < N; i++) {
            ok(stream_acquire(s, i, &addr, err));
            ok(stream_release(s, i, err));
        }
        ok(stream_end(s, err));
        struct stream_stats x = stream_stats(s);
        assert_int_equal(x.bytes - x.ahead, pass * x.donor_bytes);
        assert_int_equal(x.out_of_order + x.dropped, 0);
    }
    stream_close(s);
    stop(b);
}

static void jumps_are_served_and_counted(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m,null:1=1m", "pdpdpd");
    uint64_t addr;
    b->args.cfg.slots = 2;
    struct stream *s = open_stream(b);
    ok(stream_begin(s, b->s, err));
    static const size_t order[] = { 0, 5, 1, 4, 0, 2, 3 };
    static const uint64_t jumps[] = { 0, 1, 1, 2, 2, 3, 3 }; /* 1 and 0 follow 5 cyclically */
    for (size_t k = 0; k < ARRAY_LEN(order); k++) {
        ok(use(b, s, order[k], &addr, err));
        assert_int_equal(stream_stats(s).out_of_order, jumps[k]);
    }
    ok(stream_end(s, err));
    struct stream_stats x = stream_stats(s);
    assert_int_equal(x.bytes - x.ahead - x.dropped, ARRAY_LEN(order) * BYTES);
    ok(whole_pass(b, s, err)); /* as if nothing had been */
    assert_int_equal(stream_stats(s).out_of_order, 3);
    stream_close(s);
    stop(b);
}

static void as_many_as_the_ring_holds(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    uint64_t addr[N];
    b->args.cfg.slots = 2;
    struct stream *s = open_stream(b);
    berth_err bad = { 0 };
    ok(stream_begin(s, b->s, err));
    ok(stream_acquire(s, 0, &addr[0], err));
    ok(stream_acquire(s, 1, &addr[1], err));
    assert_fails(stream_acquire(s, 2, &addr[2], &bad), bad, BERTH_EBUSY,
                 "flux: block 'b' (item 2, a run of 1000 bytes): no room in a ring of 2048 beside "
                 "what is held");
    assert_true(addr[2] == 0);
    ok(stream_release(s, 0, err));
    ok(stream_acquire(s, 2, &addr[2], err));
    assert_true(addr[2] == addr[0]);
    assert_int_equal(stream_stats(s).out_of_order, 0);
    ok(stream_end(s, err)); /* two are still held: a cancel */
    ok(whole_pass(b, s, err));
    stream_close(s);
    stop(b);
}

static void refuses_wrong_use(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    struct stream *s = open_stream(b);
    uint64_t addr;
    berth_err e = { 0 };
    assert_fails(stream_end(s, &e), e, BERTH_EINVAL, "no pass");
    assert_fails(stream_acquire(s, 0, &addr, &e), e, BERTH_EINVAL, "outside of a pass");
    ok(stream_begin(s, b->s, err));
    assert_fails(stream_begin(s, b->s, &e), e, BERTH_EINVAL, "a pass is running");
    assert_fails(stream_acquire(s, N, &addr, &e), e, BERTH_EINVAL, "item 6 of 6");
    assert_fails(stream_release(s, 3, &e), e, BERTH_EINVAL, "not acquired");
    ok(use(b, s, 0, &addr, err));
    assert_fails(stream_release(s, 0, &e), e, BERTH_EINVAL, "not acquired");
    ok(stream_end(s, err));
    stream_close(s);
    stream_close(NULL);
    stop(b);
}

static void refuses_limits_and_no_room(void **state)
{
    (void)state;
    struct bench *b = start("null:0=64k,cpu=4m", "pppppp");
    struct stream *s;
    berth_err e = { 0 };
    b->args.cfg.slots = STREAM_SLOTS_MAX + 1;
    assert_fails(stream_open(&b->args, &s, &e), e, BERTH_ELIMIT, "65 slots");
    b->args.cfg.slots = 0;
    b->args.cfg.loaders = STREAM_LOADERS_MAX + 1;
    assert_fails(stream_open(&b->args, &s, &e), e, BERTH_ELIMIT, "17 loaders");
    b->args.cfg.loaders = 0;
    struct dev_mem rest = alloc_on(b->compute, b->ring, (64 << 10) - 2048);
    assert_fails(stream_open(&b->args, &s, &e), e, BERTH_ENODEVMEM,
                 "a ring of 3072 bytes for runs of up to 1000");
    assert_non_null(strstr(e.msg, "streaming flux to null:0"));
    assert_null(s);
    assert_int_equal(b->closed, 0);
    dev_free(&rest);
    stop(b);
}

static void waits_are_counted(void **state)
{
    (void)state;
    struct bench *b = start("cpu=4m", "pppppp");
    struct stream *s = open_stream(b);
    ok(whole_pass(b, s, err));
    struct stream_stats x = stream_stats(s);
    /* A cpu copies at once, so the host sees every bit of it. */
    assert_true(x.wait_ns > 0 && x.pass_ns > 0);
    stream_close(s);
    stop(b);
}

/* ---- time: virtual, see null.h ---- */

static void no_layer(void *user, void *const *ptr)
{
    (void)user;
    (void)ptr;
}

/* A pass whose layers are done before it ends, so that every mark can be read. */
static void timed_pass(struct bench *b, struct stream *s)
{
    uint64_t addr;
    ok(stream_begin(s, b->s, err));
    for (size_t i = 0; i < N; i++)
        ok(use(b, s, i, &addr, err));
    ok(dev_stream_sync(b->s, err));
    ok(stream_end(s, err));
}

static void exposed_is_what_layers_do_not_hide(void **state)
{
    static const struct {
        const char *name;
        uint64_t launch_ns;
        unsigned slots;
        uint64_t first, later; /* exposed ns of the first pass, of each later one */
    } row[] = {
        { "all hidden but the very first copy", 1500, 3, 1000, 0 },
        { "just so", 1000, 3, 1000, 0 },
        { "copies slower than layers", 400, 3, 1000 + 5 * 600, 6 * 600 },
        { "the same with two slots", 400, 2, 1000 + 5 * 600, 6 * 600 },
        { "two slots hide as much, if layers take long enough", 1500, 2, 1000, 0 },
        { "no layers", 0, 3, 6 * 1000, 6 * 1000 },
        { "one slot hides nothing", 1500, 1, 6 * 1000, 6 * 1000 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct bench *b = start_timed("null:0=1m,cpu=4m", "pppppp", row[i].launch_ns);
        b->args.cfg.slots = row[i].slots;
        struct stream *s = open_stream(b);
        for (uint64_t pass = 1; pass <= 3; pass++) {
            timed_pass(b, s);
            struct stream_stats x = stream_stats(s);
            uint64_t want = row[i].first + (pass - 1) * row[i].later;
            if (x.exposed_ns != want)
                fail_msg("%s: %d ns exposed in %d passes, %d wanted", row[i].name,
                         (int)x.exposed_ns, (int)pass, (int)want);
            assert_int_equal(x.timed, pass * N * BYTES);
            assert_int_equal(x.copy_ns, pass * N * 1000);
            assert_true(stream_gbps(&x) == 1.0);
            assert_true(stream_exposed(&x) == (double)want / (double)(pass * N * 1000));
        }
        stream_close(s);
        stop(b);
    }
}

/* Layers of resident blocks hide copies too. */
static void resident_layers_hide_copies(void **state)
{
    (void)state;
    struct bench *b = start_timed("null:0=1m,cpu=4m", "rrprrp", 400);
    struct stream *s = open_stream(b);
    timed_pass(b, s);
    timed_pass(b, s);
    assert_int_equal(stream_stats(s).exposed_ns, 1000 - 2 * 400); /* of the first one, once */
    stream_close(s);
    stop(b);
}

/* Nobody waits for a mark: those of passes the device has not come to yet are not counted, and a
 * host more than two passes ahead goes on without. */
static void a_host_far_ahead(void **state)
{
    (void)state;
    struct bench *b = start_timed("null:0=1m,cpu=4m", "pppppp", 400);
    struct stream *s = open_stream(b);
    for (int pass = 0; pass < 5; pass++)
        ok(whole_pass(b, s, err));
    struct stream_stats x = stream_stats(s);
    assert_true(!x.timed && !x.copy_ns && !x.exposed_ns && stream_gbps(&x) == 0);
    ok(dev_stream_sync(b->s, err));
    x = stream_stats(s);
    assert_int_equal(x.timed, 2 * N * BYTES);
    assert_int_equal(x.copy_ns, 2 * N * 1000);
    assert_int_equal(x.exposed_ns, 1000 + 11 * 600);
    ok(whole_pass(b, s, err)); /* marks are free again */
    ok(dev_stream_sync(b->s, err));
    assert_true(stream_stats(s).timed > x.timed);
    stream_close(s);
    stop(b);
}

/* The same over n items that may be more than b has; nobody looks at their bytes. */
static void timed_pass_over(struct bench *b, struct stream *s, size_t n)
{
    uint64_t addr;
    ok(stream_begin(s, b->s, err));
    for (size_t i = 0; i < n; i++) {
        ok(stream_acquire(s, i, &addr, err));
        ok(dev_launch(b->s, no_layer, NULL, NULL, 0, err));
        ok(stream_release(s, i, err));
    }
    ok(dev_stream_sync(b->s, err));
    ok(stream_end(s, err));
}

static bool is_about(uint64_t got, uint64_t want)
{
    double off = (double)got / (double)want - 1;
    return off < 0.03 && off > -0.03;
}

/* Of many runs 4 a pass are timed, and count for all: every other one is half as long and waits
 * 100 ns, not 600. Numbers of Fibonacci's are near to whole turns of the golden ratio. */
static void some_of_many_runs_are_timed(void **state)
{
    static const size_t runs[] = { 17, 34, 40, 55, 89, 100 };
    enum { MOST = 100, PASSES = 100 };
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(runs); k++) {
        struct bench *b = start_timed("null:0=1m,cpu=4m", "pppppp", 400);
        struct stream_piece half = { 0, BYTES / 2 };
        struct stream_item many[MOST];
        uint64_t bytes = 0, waits = 0;
        for (size_t i = 0; i < runs[k]; i++) {
            many[i] = b->item[i % N];
            if (i % 2) {
                many[i].piece = &half;
                many[i].span = half.n;
            }
            bytes += many[i].span;
            waits += many[i].span - 400;
        }
        b->args.item = many;
        b->args.n = runs[k];
        b->args.cfg.ring_least = UINT64_MAX; /* no run waits for another's place */
        struct stream *s = open_stream(b);
        for (uint64_t pass = 1; pass <= PASSES; pass++)
            timed_pass_over(b, s, runs[k]);
        struct stream_stats x = stream_stats(s);
        if (!is_about(x.timed, PASSES * bytes) || !is_about(x.copy_ns, PASSES * bytes) ||
            !is_about(x.exposed_ns, PASSES * waits))
            fail_msg("%zu runs: %llu of %llu bytes timed, %llu ns, %llu of %llu ns exposed",
                     runs[k], (unsigned long long)x.timed, (unsigned long long)(PASSES * bytes),
                     (unsigned long long)x.copy_ns, (unsigned long long)x.exposed_ns,
                     (unsigned long long)(PASSES * waits));
        stream_close(s);
        stop(b);
    }
}

/* Nobody asks: what streams add up for others follows a pass behind. */
static void totals_follow(void **state)
{
    enum { RUNS = 100, PASSES = 6 };
    (void)state;
    struct bench *b = start_timed("null:0=1m,cpu=4m", "pppppp", 400);
    struct stream_total total = { 0 };
    struct stream_item many[RUNS];
    for (size_t i = 0; i < RUNS; i++)
        many[i] = b->item[i % N];
    b->args.item = many;
    b->args.n = RUNS;
    b->args.cfg.total = &total;
    struct stream *s = open_stream(b);
    for (uint64_t pass = 1; pass <= PASSES; pass++) {
        timed_pass_over(b, s, RUNS);
        assert_true(total.copy_ns >= (pass - 1) * RUNS * 700);
        assert_true(total.exposed_ns >= (pass - 1) * RUNS * 350);
    }
    stream_close(s);
    stop(b);
}

static void staged_runs_are_timed(void **state)
{
    (void)state;
    struct bench *b = start_timed("null:0=1m,cpu=4m", "mmmmmm", 0);
    b->args.cfg.stage_bytes = 300;
    struct stream *s = open_stream(b);
    timed_pass(b, s);
    struct stream_stats x = stream_stats(s);
    assert_int_equal(x.timed, N * BYTES);
    assert_true(x.copy_ns >= N * 1000);
    assert_true(x.exposed_ns >= N * 1000 - 6); /* chunks of 300 bytes: whole ns each */
    stream_close(s);
    stop(b);
}

static void without_streams_all_is_exposed(void **state)
{
    (void)state;
    struct bench *b = start("cpu=4m", "pppppp");
    struct stream *s = open_stream(b);
    ok(whole_pass(b, s, err));
    struct stream_stats x = stream_stats(s);
    assert_true(x.copy_ns > 0 && x.copy_ns == x.exposed_ns && x.copy_ns == x.wait_ns);
    assert_true(x.timed == x.bytes && stream_exposed(&x) == 1.0 && stream_gbps(&x) > 0);
    stream_close(s);
    stop(b);
}

/* Blocks of a card for a cpu: copies on the card's clock, waiting on the host's. */
static void a_cpu_waits_itself(void **state)
{
    (void)state;
    struct bench *b = start("cpu=4m,null:1=1m", "dddddd");
    struct stream *s = open_stream(b);
    ok(whole_pass(b, s, err));
    struct stream_stats x = stream_stats(s);
    assert_int_equal(x.timed, N * BYTES);
    assert_int_equal(x.copy_ns, N * 1000);
    assert_int_equal(x.exposed_ns, x.wait_ns);
    stream_close(s);
    stop(b);
}

/* A device that will not tell the time streams all the same. */
static void a_refused_time_is_left_out(void **state)
{
    (void)state;
    struct bench *b = start_timed("null:0=1m,cpu=4m", "pppppp", 400);
    struct stream *s = open_stream(b);
    null_fail(b->compute, NULL_EVENT_ELAPSED, 1);
    timed_pass(b, s);
    timed_pass(b, s);
    assert_int_equal(stream_stats(s).timed, (2 * N - 1) * BYTES);
    stream_close(s);
    stop(b);
}

/* The ring comes from wherever the caller says. */
static berth_status counted_alloc(void *user, struct device *d, struct dev_owner *o, size_t n,
                                  struct dev_mem *out, berth_err *err)
{
    ++*(unsigned *)user;
    return dev_alloc(d, o, n, out, err);
}

static void memory_comes_through_the_door(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    unsigned calls = 0;
    b->args.alloc = counted_alloc;
    b->args.alloc_user = &calls;
    struct stream *s = open_stream(b);
    assert_int_equal(calls, 1);
    stream_close(s);
    stop(b);
}

/* ---- failure ---- */

static void open_survives_oom(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m,null:1=1m", "pmdrpm");
    berth_status st = BERTH_ENOMEM;
    for (long k = 0; st; k++) {
        struct stream *s;
        berth_err err = { 0 };
        oom_after(k);
        st = stream_open(&b->args, &s, &err);
        oom_off();
        assert_true(!st || (st == BERTH_ENOMEM && !s && err.msg[0]));
        if (!st)
            assert_ok(whole_pass(b, s, &err), err);
        stream_close(s);
        null_run(b->compute);
    }
    stop(b);
}

/* The k-th device call of a whole life fails, for every k: a clean error that names model, block
 * and devices, then a stream that works. */
static void every_device_call_may_fail(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct bench *b = start("null:0=1m,cpu=4m,null:1=1m", "pmdrpm");
        struct device *d = which ? b->peer : b->compute;
        b->args.cfg.stage_bytes = 700;
        b->args.cfg.slots = 2;
        bool failed = true;
        for (uint64_t k = 1; failed; k++) {
            struct stream *s;
            berth_err err = { 0 }, end = { 0 };
            uint64_t first = null_calls(d, NULL_ANY);
            null_fail(d, NULL_ANY, k);
            berth_status st = stream_open(&b->args, &s, &err);
            for (int pass = 0; s && pass < 3; pass++) {
                berth_status p = whole_pass(b, s, &err);
                if (p && !strstr(err.msg, "told to fail"))
                    fail_msg("%s", err.msg);
                while (p && p != BERTH_EINVAL && (p = stream_end(s, &end)))
                    ; /* the call that failed may have been stream_begin(): nothing to end then */
                st = st ? st : p;
            }
            if (s) { /* whatever happened, it works */
                null_fail(d, NULL_ANY, 0);
                assert_ok(whole_pass(b, s, &err), err);
            } else {
                assert_non_null(strstr(err.msg, "streaming flux to null:0"));
            }
            failed = null_calls(d, NULL_ANY) - first >= k && k < 2000;
            stream_close(s);
            null_fail(d, NULL_ANY, 0);
            null_run(b->compute);
        }
        stop(b);
    }
}

static void a_failure_names_what_it_was(void **state)
{
    (void)state;
    struct bench *b = start("null:0=1m,cpu=4m", "pppppp");
    struct stream *s = open_stream(b);
    uint64_t addr;
    berth_err e = { 0 };
    b->item[0].name = "double_blocks.0.img_attn.qkv";
    null_fail(b->compute, NULL_COPY, 1);
    assert_fails(stream_begin(s, b->s, &e), e, BERTH_EDEVICE, "told to fail");
    assert_non_null(strstr(e.msg, "flux: 1 blocks from 'double_blocks.0.img_attn.qkv' (item 0, "
                                  "1000 bytes) on their way from cpu to null:0"));
    ok(stream_begin(s, b->s, err)); /* recovered by itself */
    null_fail(b->compute, NULL_STREAM_WAIT, 1);
    assert_fails(stream_acquire(s, 0, &addr, &e), e, BERTH_EDEVICE, "told to fail");
    assert_fails(stream_acquire(s, 0, &addr, &e), e, BERTH_EDEVICE, "the pass has to end");
    ok(stream_end(s, err));
    ok(whole_pass(b, s, err));
    stream_close(s);
    stop(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_goes_round),
        cmocka_unit_test(small_runs_share_the_ring),
        cmocka_unit_test(all_runs_have_room),
        cmocka_unit_test(resident_moves_nothing),
        cmocka_unit_test(cpu_computes_where_blocks_are),
        cmocka_unit_test(passes_do_not_allocate),
        cmocka_unit_test(staging_in_chunks),
        cmocka_unit_test(a_run_stays_until_all_of_it_was_used),
        cmocka_unit_test(donors_in_turn),
        cmocka_unit_test(round_and_round_in_one_pass),
        cmocka_unit_test(a_long_run_is_fetched_for_every_pass),
        cmocka_unit_test(jumps_are_served_and_counted),
        cmocka_unit_test(as_many_as_the_ring_holds),
        cmocka_unit_test(refuses_wrong_use),
        cmocka_unit_test(refuses_limits_and_no_room),
        cmocka_unit_test(waits_are_counted),
        cmocka_unit_test(exposed_is_what_layers_do_not_hide),
        cmocka_unit_test(resident_layers_hide_copies),
        cmocka_unit_test(a_host_far_ahead),
        cmocka_unit_test(some_of_many_runs_are_timed),
        cmocka_unit_test(totals_follow),
        cmocka_unit_test(staged_runs_are_timed),
        cmocka_unit_test(without_streams_all_is_exposed),
        cmocka_unit_test(a_cpu_waits_itself),
        cmocka_unit_test(a_refused_time_is_left_out),
        cmocka_unit_test(memory_comes_through_the_door),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(every_device_call_may_fail),
        cmocka_unit_test(a_failure_names_what_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
