/* A card's memory in pieces, pinned memory, copies between cards, times. */
#include "cuda_rig.h"
#include "device/device_impl.h"

/* A real card has other users, and the driver its own needs. */
static void assert_about(const struct rig *r, uint64_t got, uint64_t want)
{
    uint64_t slack = r->fake ? 0 : 16 * MIB;
    assert_in_range(got, want - slack, want + slack);
}

/* ---- pieces ---- */

static void pieces_are_few_and_access_is_one_call(void **state)
{
    static const struct {
        size_t mib;
        long pieces;
    } cases[] = {
        { 2, 1 },       { 30, 15 },   { 32, 16 }, /* granules */
        { 34, 3 },      { 64, 6 },    { 126, 11 },
        { 128, 12 }, /* 32 MiB and less, granules at the end */
        { 650, 37 },    { 1000, 56 }, { 2048, 86 },
        { 24000, 751 },
    };
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.fake->total = (size_t)32 << 30;
    struct devset *set = open_devices("cuda:0=32g", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t addr;
        berth_err err = { 0 };
        r.fake->creates = r.fake->accesses = r.fake->unmaps = 0;
        assert_ok(p->driver->alloc(p, cases[i].mib * MIB, &addr, &err), err);
        assert_int_equal(r.fake->creates, cases[i].pieces);
        assert_int_equal(r.fake->accesses, 1);
        assert_int_equal(r.fake->used[0], cases[i].mib * MIB);
        p->driver->free(p, addr, cases[i].mib * MIB);
        assert_int_equal(r.fake->unmaps, 1);
        assert_int_equal(r.fake->used[0], 0);
    }
    close_clean(&r, set);
}

/* Every second of eight ranges goes: what is between them is felt by the driver at once. */
static void trim_gives_granules_back_exactly(void **state)
{
    struct rig r;
    struct dev_mem m[8];
    (void)state;
    any_rig(&r);
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    uint64_t before = free_on(d);
    for (int i = 0; i < 8; i++)
        m[i] = alloc_on(d, o, 4 * MIB);
    assert_true(before - free_on(d) >= 32 * MIB);
    uint64_t full = free_on(d);
    for (int i = 0; i < 8; i += 2)
        dev_free(&m[i]);
    struct dev_trimmed t = dev_trim(d);
    assert_true(t.discarded == 16 * MIB && t.released == 0 && t.idle == 0);
    assert_about(&r, free_on(d), full + 16 * MIB);
    for (int i = 0; i < 8; i += 2) /* comes back where it was */
        m[i] = alloc_on(d, o, 4 * MIB);
    assert_about(&r, free_on(d), full);
    assert_true(stats_of(d).segments == 1);
    for (int i = 0; i < 8; i++)
        dev_free(&m[i]);
    t = dev_trim(d);
    assert_true(t.released == 32 * MIB && t.idle == 0);
    assert_about(&r, free_on(d), before);
    assert_sound(d);
    dev_owner_close(o);
    close_clean(&r, set);
}

/* Bytes beside what went and came are untouched. */
static void neighbours_keep_their_bytes(void **state)
{
    struct rig r;
    struct dev_mem m[3];
    unsigned char in[256], out[256];
    berth_err err = { 0 };
    (void)state;
    any_rig(&r);
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    struct dev_stream *s = stream_of(d);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7 + 1);
    for (int i = 0; i < 3; i++) { /* sizes that share granules with their neighbours */
        m[i] = alloc_on(d, o, 5 * MIB + 512);
        assert_ok(dev_copy_h2d(s, m[i].addr, in, sizeof in, &err), err);
        assert_ok(dev_copy_h2d(s, m[i].addr + m[i].n - sizeof in, in, sizeof in, &err), err);
    }
    assert_ok(dev_stream_sync(s, &err), err);
    dev_free(&m[1]);
    assert_true(dev_trim(d).idle > 0); /* less than a granule at each end */
    m[1] = alloc_on(d, o, 5 * MIB + 512);
    for (int i = 0; i < 3; i += 2)
        for (int end = 0; end < 2; end++) {
            uint64_t at = m[i].addr + (end ? m[i].n - sizeof in : 0);
            assert_ok(dev_copy_d2h(s, out, at, sizeof out, &err), err);
            assert_ok(dev_stream_sync(s, &err), err);
            assert_memory_equal(in, out, sizeof in);
        }
    dev_stream_free(s);
    for (int i = 0; i < 3; i++)
        dev_free(&m[i]);
    dev_owner_close(o);
    close_clean(&r, set);
}

static bool is_of_x(void *user, const char *owner, enum dev_kind kind)
{
    (void)kind;
    return *(bool *)user && strcmp(owner, "x") == 0;
}

/* In a large segment a piece goes back whole: what stays is less than one, and is foretold. */
static void large_segments_trim_in_pieces(void **state)
{
    struct rig r;
    (void)state;
    any_rig(&r);
    if (r.fake)
        r.fake->total = (size_t)2 << 30;
    struct devset *set = open_devices("cuda:0=1g", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    uint64_t before = free_on(d);
    struct dev_mem m = alloc_on(d, o, 640 * MIB); /* at its end pieces of 4 MiB */
    dev_free(&m);
    m = alloc_on(d, o, 601 * MIB); /* the same range, its end left over */
    assert_true(stats_of(d).segments == 1);
    bool goes = false;
    assert_true(dev_trim_leaves(d, is_of_x, &goes) == 3 * MIB);
    struct dev_trimmed t = dev_trim(d);
    assert_true(t.discarded == 36 * MIB && t.idle == 3 * MIB);
    assert_true(dev_trim_leaves(d, is_of_x, &goes) == 3 * MIB);
    goes = true;
    assert_true(dev_trim_leaves(d, is_of_x, &goes) == 0);
    assert_about(&r, before - free_on(d), 604 * MIB);
    dev_free(&m);
    m = alloc_on(d, o, 638 * MIB); /* half of the last piece is all it needs back */
    assert_true(stats_of(d).segments == 1);
    assert_true(stats_of(d).discarded == 2 * MIB);
    dev_trim(d);
    assert_true(stats_of(d).idle == 0);
    dev_free(&m);
    assert_true(dev_trim(d).idle == 0);
    assert_about(&r, free_on(d), before);
    assert_sound(d);
    dev_owner_close(o);
    close_clean(&r, set);
}

/* What snug reuse leaves over is there for others. */
static void ends_of_large_segments_are_no_loss(void **state)
{
    struct rig r;
    struct dev_mem m[4];
    (void)state;
    any_rig(&r);
    if (r.fake)
        r.fake->total = (size_t)2 << 30;
    struct devset *set = open_devices("cuda:0=248m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    for (int i = 0; i < 4; i++)
        m[i] = alloc_on(d, o, 62 * MIB);
    for (int i = 0; i < 4; i++)
        dev_free(&m[i]);
    for (int i = 0; i < 4; i++)
        m[i] = alloc_on(d, o, 55 * MIB + MIB / 2);
    assert_true(stats_of(d).segments == 4 && stats_of(d).idle == 26 * MIB);
    struct dev_mem more = alloc_on(d, o, 20 * MIB);
    dev_free(&more);
    for (int i = 0; i < 4; i++)
        dev_free(&m[i]);
    dev_owner_close(o);
    close_clean(&r, set);
}

/* Random discards and restores of a segment, held against a map of which granules are there. */
static void any_part_comes_and_goes(void **state)
{
    enum { GRANULES = 200 };
    struct rig r;
    uint64_t addr, seed = 88172645463325252u;
    bool there[GRANULES];
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->total = (size_t)1 << 30;
    struct devset *set = open_devices("cuda:0=1g", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    size_t g = p->granularity;
    assert_ok(p->driver->alloc(p, GRANULES * g, &addr, &err), err);
    for (int i = 0; i < GRANULES; i++)
        there[i] = true;
    for (int round = 0; round < 3000; round++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        size_t from = seed % GRANULES, to = from;
        while (to < GRANULES && there[to] == there[from] && to - from < (seed >> 32) % 40)
            to++;
        if (to == from)
            continue;
        uint64_t at = addr + from * g;
        size_t n = (to - from) * g, used = r.fake->used[0];
        if (there[from]) {
            uint64_t part = at;
            p->driver->discardable(p, &part, &n);
            assert_true(part >= at && part + n <= at + (to - from) * g);
            if (to - from > 30) /* pieces of 16: less than one stays at each end */
                assert_true(n >= (to - from - 30) * g);
            if (!n)
                continue;
            if (part > at) /* not a whole piece more */
                assert_false(p->driver->discard(p, part - g, n + g));
            assert_true(p->driver->discard(p, part, n));
            assert_int_equal(r.fake->used[0], used - n);
            from = (size_t)(part - addr) / g;
            to = from + n / g;
        } else {
            assert_ok(p->driver->restore(p, at, n, &err), err);
            assert_int_equal(r.fake->used[0], used + n);
        }
        bool now = !there[from];
        for (size_t i = from; i < to; i++)
            there[i] = now;
    }
    p->driver->free(p, addr, GRANULES * g);
    close_clean(&r, set);
}

/* ---- no memory ---- */

static void says_what_stood_in_the_way(void **state)
{
    struct rig r;
    uint64_t addr, other;
    void *host;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->total = 100 * MIB;
    r.fake->host_total = 10 * MIB;
    struct devset *set = open_devices("cuda:0", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    assert_ok(p->driver->alloc(p, 60 * MIB, &other, &err), err);
    long creates = r.fake->creates;
    assert_fails(p->driver->alloc(p, 50 * MIB, &addr, &err), err, BERTH_ENODEVMEM,
                 "cuda:0: 52428800 bytes wanted, 41943040 of 104857600 free");
    assert_int_equal(r.fake->creates, creates); /* nothing was tried */
    r.fake->fail_name = "cuMemCreate";          /* somebody else was faster */
    r.fake->fail_at = 5;
    r.fake->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
    assert_fails(p->driver->alloc(p, 20 * MIB, &addr, &err), err, BERTH_ENODEVMEM,
                 "20971520 bytes wanted: cuda:0: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of "
                 "memory), 33554432 of 104857600 bytes free");
    assert_int_equal(err.native, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(r.fake->used[0], 60 * MIB);
    assert_false(p->driver->discard(p, other, 20 * MIB)); /* not whole pieces */
    assert_true(p->driver->discard(p, other, 32 * MIB));
    r.fake->fail_at = 1;
    assert_fails(p->driver->restore(p, other, 32 * MIB, &err), err, BERTH_ENODEVMEM, "cuMemCreate");
    assert_int_equal(r.fake->used[0], 28 * MIB);
    r.fake->fail_name = "cuMemSetAccess";
    r.fake->fail_at = 1;
    r.fake->fail_with = CUDA_ERROR_NOT_PERMITTED;
    assert_fails(p->driver->restore(p, other, 32 * MIB, &err), err, BERTH_EDEVICE,
                 "cuda:0: cuMemSetAccess: CUDA_ERROR_NOT_PERMITTED (operation not permitted)");
    assert_int_equal(r.fake->used[0], 28 * MIB);
    assert_ok(p->driver->restore(p, other, 32 * MIB, &err), err);
    p->driver->free(p, other, 60 * MIB);
    assert_fails(p->driver->host_alloc(p, 11 * MIB, &host, &err), err, BERTH_ENOMEM,
                 "11534336 bytes of pinned host memory: cuda:0: cuMemHostRegister");
    assert_null(host);
    assert_ok(p->driver->host_alloc(p, 10 * MIB, &host, &err), err);
    p->driver->host_free(p, host, 10 * MIB);
    close_clean(&r, set);
}

/* ---- host memory ---- */

/* Pages of ours, each of them there before it is registered; small ones are the driver's, and so
 * are all if it will not register any. */
static void pins_pages_that_are_there(void **state)
{
    static const struct {
        size_t n;
        bool ours;
    } row[] = { { 4096, false },          { 2 * MIB - 4096, false }, { 2 * MIB, true },
                { 5 * MIB + 4096, true }, { 32 * MIB, true },        { 47 * MIB + 8192, true } };
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    struct devset *set = open_devices("cuda:0", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (int refused = 0; refused < 2; refused++) {
            char *host;
            long before = r.fake->registered;
            r.fake->fail_name = refused ? "cuMemHostRegister" : NULL;
            r.fake->fail_at = refused;
            r.fake->fail_with = CUDA_ERROR_NOT_SUPPORTED;
            assert_ok(p->driver->host_alloc(p, row[i].n, (void **)&host, &err), err);
            assert_int_equal(r.fake->registered - before, row[i].ours && !refused);
            assert_int_equal((uintptr_t)host % (row[i].ours && !refused ? 2 * MIB : 4096), 0);
            assert_int_equal(r.fake->pinned, row[i].n);
            memset(host, 1, row[i].n);
            p->driver->host_free(p, host, row[i].n);
            assert_int_equal(r.fake->pinned, 0);
            r.fake->fail_at = 0;
        }
    close_clean(&r, set);
}

/* What nobody gave back goes with the card. */
static void pins_that_leak_are_given_back(void **state)
{
    struct rig r;
    void *host;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    struct devset *set = open_devices("cuda:0", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    assert_ok(p->driver->host_alloc(p, 3 * MIB, &host, &err), err);
    assert_ok(p->driver->host_alloc(p, 4096, &host, &err), err);
    close_clean(&r, set);
}

/* The pool's ladder over a real refusal: what is idle goes back, then there is room. */
static void idle_memory_makes_room(void **state)
{
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.fake->total = 100 * MIB;
    struct devset *set = open_devices("cuda:0=60m,cuda:1@cuda:0=40m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    struct dev_mem a = alloc_on(d, o, 40 * MIB);
    r.fake->used[0] += 40 * MIB; /* somebody else's */
    dev_free(&a);
    a = alloc_on(d, o, 30 * MIB); /* less than 7/8: not the idle range as it is */
    assert_true(r.fake->used[0] <= 80 * MIB);
    assert_sound(d);
    dev_free(&a);
    dev_trim(d);
    r.fake->used[0] -= 40 * MIB;
    dev_owner_close(o);
    close_clean(&r, set);
}

static void larger_granules_are_respected(void **state)
{
    struct rig r;
    uint64_t addr;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->granularity = 8 * MIB;
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    assert_int_equal(p->granularity, 8 * MIB);
    assert_ok(p->driver->alloc(p, 9 * MIB, &addr, &err), err);
    assert_int_equal(r.fake->used[0], 16 * MIB);
    p->driver->free(p, addr, 9 * MIB);
    close_clean(&r, set);
}

static void an_odd_granularity_means_plain_memory(void **state)
{
    struct rig r;
    uint64_t addr;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->granularity = 3 * MIB;
    r.fake->misaligned = false;
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct phys *p = devset_at(set, 0)->phys;
    assert_int_equal(p->granularity, CUDA_GRANULE);
    r.fake->granularity = 0;
    assert_ok(p->driver->alloc(p, 9 * MIB, &addr, &err), err);
    assert_int_equal(r.fake->plain, 1);
    assert_false(p->driver->discard(p, addr, 2 * MIB));
    p->driver->free(p, addr, 9 * MIB);
    close_clean(&r, set);
}

/* ---- between cards ---- */

#define N (9 * MIB + 5) /* more than one staging buffer */

static void between(struct rig *r, struct devset *set)
{
    unsigned char *in = malloc(N), *out = calloc(1, N);
    struct dev_mem m[2];
    struct dev_owner *o[2];
    berth_err err = { 0 };
    assert_true(in && out);
    for (size_t i = 0; i < N; i++)
        in[i] = (unsigned char)(i * 13 + i / 251);
    for (size_t i = 0; i < 2; i++) {
        o[i] = owner_of(devset_at(set, i), "x", DEV_WEIGHTS);
        m[i] = alloc_on(devset_at(set, i), o[i], N);
    }
    for (size_t k = 0; k < 4; k++) { /* both directions, on a stream of either end */
        size_t from = k & 1, to = !from;
        struct device *a = devset_at(set, from), *b = devset_at(set, to);
        struct dev_stream *sa = stream_of(a), *sb = stream_of(b), *s = k & 2 ? sa : sb;
        struct dev_event *e = event_of(a), *f = event_of(s == sa ? a : b);
        in[0]++;
        memset(out, 0, N);
        assert_ok(dev_copy_h2d(sa, m[from].addr, in, N, &err), err);
        assert_ok(dev_event_record(e, sa, &err), err);
        assert_ok(dev_stream_wait(s, e, &err), err);
        assert_ok(dev_copy(s, (struct dev_at) { b, m[to].addr },
                           (struct dev_at) { a, m[from].addr }, N, &err),
                  err);
        assert_ok(dev_event_record(f, s, &err), err);
        assert_ok(dev_stream_wait(sb, f, &err), err);
        assert_ok(dev_copy_d2h(sb, out, m[to].addr, N, &err), err);
        assert_ok(dev_stream_sync(sb, &err), err);
        assert_memory_equal(in, out, N);
        dev_stream_free(sa);
        dev_stream_free(sb);
        dev_event_free(e);
        dev_event_free(f);
    }
    for (size_t i = 0; i < 2; i++) {
        dev_free(&m[i]);
        dev_owner_close(o[i]);
    }
    free(in);
    free(out);
    close_clean(r, set);
}

static void peers_copy_straight(void **state)
{
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    r.fake->peer = true;
    struct devset *set = open_devices("cuda:0=64m,cuda:1=64m,cpu=64m", &r.env);
    struct device *a = devset_at(set, 0), *b = devset_at(set, 1);
    assert_true(dev_can_peer(a, b) && dev_can_peer(b, a));
    assert_true(dev_can(a, BERTH_CAP_PEER) && dev_can(b, BERTH_CAP_PEER));
    assert_int_equal(r.fake->peer_copies, 2); /* the pattern, both ways */
    between(&r, set);
    assert_int_equal(r.fake->peer_copies, 2 + 4);
}

static void a_peer_that_lies_is_none(void **state)
{
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    r.fake->peer = r.fake->peer_lies = true;
    struct devset *set = open_devices("cuda:0=64m,cuda:1=64m,cpu=64m", &r.env);
    struct device *a = devset_at(set, 0), *b = devset_at(set, 1);
    assert_false(dev_can_peer(a, b) || dev_can_peer(b, a));
    assert_false(dev_can(a, BERTH_CAP_PEER) || dev_can(b, BERTH_CAP_PEER));
    between(&r, set); /* staged: what arrives is right */
    assert_int_equal(r.fake->peer_copies, 1);
}

static void strangers_are_staged(void **state)
{
    struct rig r;
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    struct devset *set = open_devices("cuda:1=64m,cuda:0=64m,cpu=64m", &r.env);
    assert_false(dev_can_peer(devset_at(set, 0), devset_at(set, 1)));
    between(&r, set);
    assert_int_equal(r.fake->peer_copies, 0);
}

/* Memory that was there before the other card is seen by it, too. */
static void a_later_peer_sees_earlier_memory(void **state)
{
    struct rig r;
    void *library;
    struct phys *a, *b;
    struct dev_stream *s;
    uint64_t at[3], there;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    r.fake->cards = 2;
    r.fake->peer = true;
    assert_ok(driver_cuda.library_open(&r.env, &library, &err), err);
    assert_ok(driver_cuda.open(library, &r.env, 0, 0, &a, &err), err);
    for (int i = 0; i < 3; i++)
        assert_ok(driver_cuda.alloc(a, 8 * MIB, &at[i], &err), err);
    assert_true(driver_cuda.discard(a, at[1] + 2 * MIB, 2 * MIB));
    assert_ok(driver_cuda.open(library, &r.env, 1, 0, &b, &err), err);
    assert_true(driver_cuda.can_peer(a, b));
    assert_ok(driver_cuda.restore(a, at[1] + 2 * MIB, 2 * MIB, &err), err);
    assert_ok(driver_cuda.alloc(b, 8 * MIB, &there, &err), err);
    assert_ok(phys_stream_new(b, &s, &err), err);
    for (int i = 0; i < 3; i++)
        assert_ok(driver_cuda.copy_peer(s, b, there, a, at[i], 8 * MIB, &err), err);
    dev_stream_free(s);
    for (int i = 0; i < 3; i++)
        driver_cuda.free(a, at[i], 8 * MIB);
    driver_cuda.close(a); /* in any order */
    assert_false(driver_cuda.can_peer(b, a));
    driver_cuda.free(b, there, 8 * MIB);
    driver_cuda.close(b);
    driver_cuda.library_close(library);
    assert_clean(&r);
}

/* ---- time ---- */

static int64_t elapsed(struct dev_event *from, struct dev_event *to)
{
    int64_t ns;
    bool done;
    berth_err err = { 0 };
    assert_ok(dev_event_elapsed(from, to, &done, &ns, &err), err);
    assert_true(done);
    return ns;
}

/* Two events 100 us apart, for an hour. */
static void times_stay_exact(void **state)
{
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_stream *s = stream_of(d);
    struct dev_event *a = event_of(d), *b = event_of(d);
    for (int i = 0; i < 60; i++) {
        assert_ok(dev_event_record(a, s, &err), err);
        assert_ok(dev_event_sync(a, &err), err);
        r.fake->now += 100000;
        assert_ok(dev_event_record(b, s, &err), err);
        assert_ok(dev_event_sync(b, &err), err);
        int64_t apart = elapsed(a, b);
        assert_true(apart > 99900 && apart < 100100 && elapsed(b, a) == -apart);
        r.fake->now += 59999900000;
    }
    dev_event_free(a);
    dev_event_free(b);
    dev_stream_free(s);
    close_clean(&r, set);
}

static void a_time_that_is_not_there_yet(void **state)
{
    struct rig r;
    struct dev_event *e[3];
    bool done;
    int64_t ns;
    char byte = 0;
    berth_err err = { 0 };
    (void)state;
    fake_rig(&r);
    struct devset *set = open_devices("cuda:0=64m", &r.env);
    struct device *d = devset_at(set, 0);
    struct dev_owner *o = owner_of(d, "x", DEV_WEIGHTS);
    struct dev_mem m = alloc_on(d, o, MIB);
    struct dev_stream *s = stream_of(d);
    for (int i = 0; i < 3; i++)
        e[i] = event_of(d);
    assert_ok(dev_event_record(e[0], s, &err), err);
    assert_ok(dev_stream_sync(s, &err), err);
    r.fake->hold = true;
    for (int i = 1; i < 3; i++) {
        assert_ok(dev_copy_h2d(s, m.addr, &byte, 1, &err), err);
        assert_ok(dev_event_record(e[i], s, &err), err);
        assert_ok(dev_event_elapsed(e[0], e[i], &done, &ns, &err), err);
        assert_true(!done && ns == 0);
        assert_ok(dev_event_elapsed(e[i], e[0], &done, &ns, &err), err);
        assert_true(!done && ns == 0);
    }
    r.fake->hold = false;
    assert_ok(dev_stream_sync(s, &err), err);
    assert_true(elapsed(e[1], e[2]) >= 0 && elapsed(e[1], e[2]) <= 2); /* a byte */
    assert_ok(dev_event_record(e[0], s, &err), err);                   /* again: later than all */
    assert_ok(dev_stream_sync(s, &err), err);
    assert_true(elapsed(e[2], e[0]) >= 0);
    for (int i = 0; i < 3; i++)
        dev_event_free(e[i]);
    dev_free(&m);
    dev_stream_free(s);
    dev_owner_close(o);
    close_clean(&r, set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_few_and_access_is_one_call),
        cmocka_unit_test(trim_gives_granules_back_exactly),
        cmocka_unit_test(neighbours_keep_their_bytes),
        cmocka_unit_test(large_segments_trim_in_pieces),
        cmocka_unit_test(ends_of_large_segments_are_no_loss),
        cmocka_unit_test(any_part_comes_and_goes),
        cmocka_unit_test(says_what_stood_in_the_way),
        cmocka_unit_test(pins_pages_that_are_there),
        cmocka_unit_test(pins_that_leak_are_given_back),
        cmocka_unit_test(idle_memory_makes_room),
        cmocka_unit_test(larger_granules_are_respected),
        cmocka_unit_test(an_odd_granularity_means_plain_memory),
        cmocka_unit_test(peers_copy_straight),
        cmocka_unit_test(a_peer_that_lies_is_none),
        cmocka_unit_test(strangers_are_staged),
        cmocka_unit_test(a_later_peer_sees_earlier_memory),
        cmocka_unit_test(times_stay_exact),
        cmocka_unit_test(a_time_that_is_not_there_yet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
