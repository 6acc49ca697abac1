/* The pool by itself, over a null device's driver: where ranges go, what is asked of the driver. */
#include "device/pool.h"
#include "support/devices.h"
#include "support/oom.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct fixture {
    struct devset *set;
    struct device *dev; /* only its phys is used */
    struct pool *pool;
};

static struct fixture start(uint64_t budget, bool stress)
{
    struct fixture f = { .set = open_devices("null:0=1g", NULL) };
    berth_err err = { 0 };
    f.dev = devset_at(f.set, 0);
    assert_ok(pool_new(f.dev->phys, budget, stress, &f.pool, &err), err);
    return f;
}

static void stop(struct fixture *f)
{
    uint64_t total, left;
    berth_err err = { 0 };
    pool_free(f->pool);
    assert_ok(f->dev->phys->driver->info(f->dev->phys, &total, &left, &err), err);
    assert_true(total == left); /* everything went back */
    assert_true(null_hazards(f->dev) == 0);
    devset_close(f->set);
}

static struct pool_range *take(struct fixture *f, size_t n)
{
    struct pool_range *r;
    berth_err err = { 0 };
    assert_ok(pool_take(f->pool, n, &r, &err), err);
    assert_ok(pool_check(f->pool, &err), err);
    return r;
}

static void give(struct fixture *f, struct pool_range *r)
{
    berth_err err = { 0 };
    pool_give(f->pool, r);
    assert_ok(pool_check(f->pool, &err), err);
}

static void rounds_and_aligns(void **state)
{
    struct fixture f = start(64 * MIB, false);
    (void)state;
    static const size_t sizes[] = { 1, 255, 256, 257, 4096, 100000, MIB, MIB + 1, 17 * MIB };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct pool_range *r = take(&f, sizes[i]);
        assert_int_equal(r->addr % 256, 0);
        assert_int_equal(r->n, (sizes[i] + 255) / 256 * 256);
        assert_int_equal(r->requested, sizes[i]);
        give(&f, r);
    }
    stop(&f);
}

static void splits_and_merges(void **state)
{
    struct fixture f = start(64 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *a = take(&f, 1000), *b = take(&f, 2000), *c = take(&f, 3000);
    assert_int_equal(s->segments, 1);
    assert_int_equal(s->ranges, 4);
    assert_true(a->addr + a->n == b->addr && b->addr + b->n == c->addr);
    give(&f, b); /* between two busy ones */
    assert_int_equal(s->ranges, 4);
    give(&f, a); /* joins what was b */
    assert_int_equal(s->ranges, 3);
    struct pool_range *d = take(&f, 3072); /* exactly both together */
    assert_int_equal(s->ranges, 3);
    give(&f, c);
    give(&f, d);
    assert_int_equal(s->ranges, 1);
    assert_true(s->idle == 2 * MIB && s->in_use == 0);
    assert_int_equal(s->driver_allocs, 1);
    assert_int_equal(s->hits, 3);
    stop(&f);
}

static void finds_the_range_of_the_very_size(void **state)
{
    struct fixture f = start(256 * MIB, false);
    (void)state;
    /* 1000 units fall into the middle of a bin: rounding the wish up would miss the range. */
    struct pool_range *a = take(&f, 1000 * 256), *fence = take(&f, 256);
    uint64_t addr = a->addr;
    give(&f, a);
    a = take(&f, 1000 * 256);
    assert_true(a->addr == addr);
    give(&f, a);
    give(&f, fence);
    struct pool_range *l = take(&f, 100 * MIB + 256);
    addr = l->addr;
    give(&f, l);
    l = take(&f, 100 * MIB + 256);
    assert_true(l->addr == addr);
    assert_int_equal(pool_stats(f.pool)->driver_allocs, 2);
    give(&f, l);
    stop(&f);
}

static void classes_have_their_own_segments(void **state)
{
    struct fixture f = start(512 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *small = take(&f, 1), *medium = take(&f, 2 * MIB),
                      *large = take(&f, 20 * MIB);
    assert_int_equal(s->segments, 3);
    assert_true(s->in_use + s->idle == 2 * MIB + 32 * MIB + 20 * MIB);
    give(&f, large);
    struct pool_range *small2 = take(&f, 64 * KIB); /* does not settle in the idle large segment */
    assert_int_equal(s->segments, 3);
    struct dev_trimmed t = pool_trim(f.pool);
    assert_true(t.released == 20 * MIB);
    assert_int_equal(s->segments, 2);
    give(&f, small);
    give(&f, small2);
    give(&f, medium);
    assert_true(s->idle == 2 * MIB + 64 * KIB + 4096); /* whole granules, the rest was discarded */
    t = pool_trim(f.pool);
    assert_true(t.released == 2 * MIB + 64 * KIB + 4096 && t.idle == 0);
    assert_true(s->idle == 0 && s->in_use == 0 && s->segments == 0 && s->ranges == 0);
    assert_true(s->driver_allocs == s->driver_frees);
    stop(&f);
}

static void budget_is_exact(void **state)
{
    struct fixture f = start(10 * MIB, false);
    berth_err err = { 0 };
    struct pool_range *r;
    (void)state;
    assert_fails(pool_take(f.pool, 10 * MIB + 1, &r, &err), err, BERTH_ENODEVMEM, "budget");
    assert_null(r);
    assert_fails(pool_take(f.pool, SIZE_MAX, &r, &err), err, BERTH_ENODEVMEM, "budget");
    assert_fails(pool_take(f.pool, 0, &r, &err), err, BERTH_EINVAL, "zero");
    r = take(&f, 10 * MIB); /* all of it */
    give(&f, r);
    /* The idle 10 MiB segment stands in the way of two 5 MiB ranges of nobody: it is reused. */
    struct pool_range *a = take(&f, 5 * MIB), *b = take(&f, 5 * MIB);
    assert_fails(pool_take(f.pool, 1, &r, &err), err, BERTH_ENODEVMEM, "the budget leaves 0 of");
    give(&f, a);
    /* A small range finds its own class empty and the budget used up, and takes what is idle. */
    a = take(&f, 1);
    assert_int_equal(pool_stats(f.pool)->segments, 1);
    give(&f, a);
    give(&f, b);
    stop(&f);
}

static void odd_budget_is_used_to_the_last_unit(void **state)
{
    struct fixture f = start(3 * MIB + 700, false);
    berth_err err = { 0 };
    struct pool_range *r[64], *more;
    size_t n = 0;
    (void)state;
    while (n < 64 && pool_take(f.pool, 256 * KIB, &r[n], &err) == BERTH_OK)
        n++;
    assert_int_equal(n, 12);
    assert_int_equal(err.code, BERTH_ENODEVMEM);
    assert_ok(pool_check(f.pool, &err), err);
    more = take(&f, 512); /* 700 bytes are left: two units */
    give(&f, more);
    while (n)
        give(&f, r[--n]);
    stop(&f);
}

static void idle_segments_make_room(void **state)
{
    struct fixture f = start(100 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *a = take(&f, 40 * MIB), *b = take(&f, 30 * MIB), *c = take(&f, 20 * MIB);
    give(&f, a);
    give(&f, c);
    /* 50 wanted, 10 unasked for, 60 idle in two segments: the smallest that is enough goes. */
    struct pool_range *d = take(&f, 50 * MIB);
    assert_int_equal(s->segments, 3);
    assert_true(s->idle == 20 * MIB);
    give(&f, d);
    d = take(&f, 70 * MIB);
    assert_true(s->idle == 0 && s->segments == 2);
    give(&f, b);
    give(&f, d);
    stop(&f);
}

static void driver_says_no(void **state)
{
    struct fixture f = start(600 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    berth_err err = { 0 };
    struct pool_range *r;
    (void)state;
    null_fail(f.dev, NULL_ALLOC, 1); /* the 2 MiB segment is refused, one granule is not */
    r = take(&f, 1);
    assert_true(s->idle == 4096 - 256 && s->in_use == 256);
    assert_int_equal(s->driver_refusals, 1);
    give(&f, r);
    null_fail(f.dev, NULL_ALLOC, 1); /* a large one: idle segments go, then the second try works */
    r = take(&f, 20 * MIB);
    assert_int_equal(s->driver_refusals, 2);
    assert_int_equal(s->segments, 1);
    give(&f, r);
    pool_trim(f.pool);
    null_fail(f.dev, NULL_ALLOC, 1); /* nothing idle to give back: that is the end of it */
    assert_fails(pool_take(f.pool, 20 * MIB, &r, &err), err, BERTH_ENODEVMEM, "told to fail");
    assert_ok(pool_check(f.pool, &err), err);
    stop(&f);
}

static void physical_end_before_budget(void **state)
{
    struct fixture f = start(UINT64_C(4) << 30, false); /* the device has 1 GiB */
    berth_err err = { 0 };
    struct pool_range *r, *a = take(&f, 1000 * MIB);
    (void)state;
    assert_fails(pool_take(f.pool, 25 * MIB, &r, &err), err, BERTH_ENODEVMEM, "null:0");
    r = take(&f, 2 * MIB); /* a segment of 32 MiB does not fit, this does */
    give(&f, r);
    give(&f, a);
    stop(&f);
}

static void reserve_shrinks_the_budget(void **state)
{
    struct fixture f = start(100 * MIB, false);
    berth_err err = { 0 };
    struct pool_range *r, *a = take(&f, 40 * MIB);
    (void)state;
    give(&f, take(&f, 30 * MIB));
    assert_true(pool_reserve(f.pool, 20 * MIB));
    assert_true(pool_stats(f.pool)->idle == 30 * MIB); /* there was room */
    assert_true(pool_reserve(f.pool, 60 * MIB));
    assert_true(pool_stats(f.pool)->idle == 0);
    assert_false(pool_reserve(f.pool, 60 * MIB + 1));
    assert_false(pool_reserve(f.pool, UINT64_MAX));
    assert_fails(pool_take(f.pool, 1, &r, &err), err, BERTH_ENODEVMEM, "leaves 0");
    assert_true(pool_reserve(f.pool, 0));
    give(&f, take(&f, 60 * MIB));
    give(&f, a);
    stop(&f);
}

static void stress_takes_the_long_road(void **state)
{
    struct fixture f = start(100 * MIB, true);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *a = take(&f, 20 * MIB);
    give(&f, a);
    a = take(&f, 30 * MIB); /* the idle segment went, though there was room */
    assert_true(s->segments == 1 && s->idle == 0);
    give(&f, a);
    stop(&f);
}

static uint64_t device_used(struct fixture *f)
{
    uint64_t total, left;
    berth_err err = { 0 };
    assert_ok(f->dev->phys->driver->info(f->dev->phys, &total, &left, &err), err);
    return total - left;
}

/* 19 MiB in use after 200 MiB were freed: nothing else is kept by a trim. */
static void trim_leaves_what_is_in_use(void **state)
{
    struct fixture f = start(256 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    give(&f, take(&f, 200 * MIB));
    struct pool_range *a = take(&f, 17 * MIB), *b = take(&f, 2 * MIB);
    struct dev_trimmed t = pool_trim(f.pool);
    assert_true(t.idle == 0 && s->idle == 0);
    assert_true(device_used(&f) == 19 * MIB);                       /* and the device says so too */
    assert_true(s->in_use == 19 * MIB && s->discarded == 30 * MIB); /* the medium segment's rest */
    berth_err err = { 0 };
    assert_ok(pool_check(f.pool, &err), err);
    give(&f, a);
    give(&f, b);
    stop(&f);
}

static void large_ranges_are_reused_snugly(void **state)
{
    struct fixture f = start(256 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *fence = take(&f, 90 * MIB), *big = take(&f, 72 * MIB), *a;
    uint64_t addr = big->addr;
    give(&f, big);
    a = take(&f, 63 * MIB); /* an eighth of it would not do: a segment of its own */
    assert_true(a->addr != addr && s->segments == 3 && s->idle == 72 * MIB);
    give(&f, a);
    a = take(&f, 64 * MIB); /* just so */
    assert_true(a->addr == addr && s->idle == 8 * MIB + 63 * MIB);
    struct pool_range *c = take(&f, 63 * MIB);
    assert_true(s->segments == 3 && s->idle == 8 * MIB);
    give(&f, c);
    give(&f, a);
    /* 90 in use, 135 idle in two segments, 31 of the budget left: 40 of them are for nobody's wish,
     * and idle is more than in use, so one of them makes place. */
    a = take(&f, 40 * MIB);
    assert_true(s->idle == 72 * MIB && s->in_use == 130 * MIB);
    give(&f, a);
    give(&f, fence);
    stop(&f);
}

static void under_pressure_any_range_will_do(void **state)
{
    struct fixture f = start(100 * MIB, false);
    struct pool_range *a = take(&f, 60 * MIB), *b = take(&f, 40 * MIB), *c;
    (void)state;
    give(&f, a);
    a = take(&f, 55 * MIB); /* snug: 5 MiB of the segment stay idle */
    c = take(&f, 3 * MIB);  /* no budget for a medium segment: out of the large one's rest */
    assert_ptr_equal(c->segment, a->segment);
    give(&f, a);
    give(&f, b);
    give(&f, c);
    stop(&f);
}

static void discarded_bytes_come_back(void **state)
{
    struct fixture f = start(64 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *keep = take(&f, 2 * MIB), *a = take(&f, 10 * MIB), *b;
    uint64_t addr = a->addr;
    give(&f, a);
    struct dev_trimmed t = pool_trim(f.pool);
    assert_true(t.released == 0 && t.discarded == 30 * MIB && t.idle == 0);
    t = pool_trim(f.pool);
    assert_true(t.discarded == 0); /* nothing twice */
    assert_true(device_used(&f) == 2 * MIB);
    a = take(&f, 10 * MIB - 256); /* the same addresses, memory again behind them */
    assert_true(a->addr == addr && s->segments == 1 && s->hits == 1);
    assert_true(s->idle == 256 && s->discarded == 20 * MIB); /* the end of its last granule */
    assert_true(device_used(&f) == 12 * MIB && s->peak_held == 32 * MIB);
    give(&f, a); /* next to what is still discarded */
    assert_true(s->idle == 10 * MIB && s->discarded == 20 * MIB);
    t = pool_trim(f.pool);
    assert_true(t.discarded == 10 * MIB && t.idle == 0); /* only what came back */
    null_fail(f.dev, NULL_RESTORE, 1);                   /* others took it: a new segment instead */
    a = take(&f, 10 * MIB);
    assert_true(s->segments == 2 && a->addr != addr);
    b = take(&f, 3 * MIB);
    give(&f, a);
    give(&f, b);
    pool_trim(f.pool);
    give(&f, keep); /* partly discarded, now wholly idle: the driver takes it like this */
    t = pool_trim(f.pool);
    assert_true(t.released == 2 * MIB && s->segments == 0 && device_used(&f) == 0);
    stop(&f);
}

static void restoring_keeps_the_budget(void **state)
{
    struct fixture f = start(40 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    berth_err err = { 0 };
    struct pool_range *keep = take(&f, 2 * MIB), *a, *none;
    (void)state;
    pool_trim(f.pool);      /* 30 MiB of its segment */
    a = take(&f, 30 * MIB); /* uses what they left */
    assert_true(s->in_use == 32 * MIB && s->idle == 0 && s->discarded == 30 * MIB);
    assert_fails(pool_take(f.pool, 9 * MIB, &none, &err), err, BERTH_ENODEVMEM, "leaves 8388608");
    assert_ok(pool_check(f.pool, &err), err);
    struct pool_range *b = take(&f, 8 * MIB); /* of the 30, as much as the budget has left */
    assert_true(s->in_use == 40 * MIB && s->segments == 2 && s->discarded == 22 * MIB);
    assert_true(pool_reserve(f.pool, 0) && !pool_reserve(f.pool, 1));
    give(&f, b);
    pool_trim(f.pool);
    give(&f, a); /* 2 in use, 30 idle, 8 left: 10 of the 30 discarded ones are too many for that */
    assert_true(s->idle == 30 * MIB && s->discarded == 30 * MIB);
    b = take(&f, 10 * MIB);
    assert_true(s->in_use == 12 * MIB && s->in_use + s->idle <= 40 * MIB);
    assert_true(s->peak_held == 40 * MIB);
    give(&f, b);
    give(&f, keep);
    stop(&f);
}

/* Idle bytes of segments in use do not stand in the way: their memory goes. */
static void idle_granules_make_room(void **state)
{
    struct fixture f = start(64 * MIB, false);
    const struct dev_stats *s = pool_stats(f.pool);
    (void)state;
    struct pool_range *a = take(&f, 2 * MIB), *x = take(&f, 14 * MIB), *y = take(&f, 14 * MIB);
    struct pool_range *b = take(&f, 4 * MIB); /* a second medium segment */
    give(&f, x);
    give(&f, y);
    assert_true(s->segments == 2 && s->idle == 58 * MIB);
    struct pool_range *big = take(&f, 50 * MIB); /* 6 in use, 58 idle in pieces */
    assert_true(s->in_use == 56 * MIB && s->idle == 0 && s->segments == 3);
    give(&f, big);
    assert_true(pool_reserve(f.pool, 58 * MIB)); /* the same for a reserve */
    assert_true(pool_reserve(f.pool, 0));
    give(&f, a);
    give(&f, b);
    stop(&f);
}

static void what_never_fits_costs_nothing(void **state)
{
    struct fixture f = start(100 * MIB, false);
    berth_err err = { 0 };
    struct pool_range *r, *a = take(&f, 40 * MIB);
    (void)state;
    give(&f, take(&f, 30 * MIB));
    assert_true(pool_reserve(f.pool, 10 * MIB));
    assert_fails(pool_take(f.pool, 50 * MIB + 1, &r, &err), err, BERTH_ENODEVMEM, "leaves");
    assert_true(pool_stats(f.pool)->idle == 30 * MIB); /* still cached */
    assert_int_equal(pool_stats(f.pool)->driver_frees, 0);
    r = take(&f, 50 * MIB);
    give(&f, r);
    give(&f, a);
    stop(&f);
}

static void walks_the_busy_ones(void **state)
{
    struct fixture f = start(100 * MIB, false);
    struct pool_range *r[4] = { take(&f, 1), take(&f, 2 * MIB), take(&f, 1), take(&f, 20 * MIB) };
    size_t n = 0;
    (void)state;
    give(&f, r[0]);
    for (struct pool_range *p = pool_next_busy(f.pool, NULL); p; p = pool_next_busy(f.pool, p), n++)
        assert_true(p->busy && p != r[0]);
    assert_int_equal(n, 3);
    for (int i = 1; i < 4; i++)
        give(&f, r[i]);
    assert_null(pool_next_busy(f.pool, NULL));
    assert_true(pool_largest_idle(f.pool) == 32 * MIB);
    pool_trim(f.pool);
    assert_null(pool_next_busy(f.pool, NULL));
    assert_true(pool_largest_idle(f.pool) == 0);
    stop(&f);
}

/* The validator must be able to fail, or it proves nothing. */
static void check_notices(void **state)
{
    struct fixture f = start(100 * MIB, false);
    struct pool_range *a = take(&f, 512), *b = take(&f, 512);
    berth_err err = { 0 };
    (void)state;
    b->addr += 256;
    assert_fails(pool_check(f.pool, &err), err, BERTH_EDEVICE, "does not continue its neighbour");
    b->addr -= 256;
    b->prev = b;
    assert_fails(pool_check(f.pool, &err), err, BERTH_EDEVICE, "neighbours disagree");
    b->prev = a;
    a->busy = false;
    assert_fails(pool_check(f.pool, &err), err, BERTH_EDEVICE, "bin");
    a->busy = true;
    a->requested = 1;
    assert_fails(pool_check(f.pool, &err), err, BERTH_EDEVICE, "size that was asked for");
    a->requested = 500;
    assert_fails(pool_check(f.pool, &err), err, BERTH_EDEVICE, "counters");
    a->requested = 512;
    b->next->bin_next = b; /* a busy range in a bin */
    assert_fails(pool_check(f.pool, &err), err, BERTH_EDEVICE, "bins and bitmaps");
    b->next->bin_next = NULL;
    assert_ok(pool_check(f.pool, &err), err);
    give(&f, a);
    give(&f, b);
    stop(&f);
}

static void trim_survives_oom(void **state)
{
    struct fixture f = start(64 * MIB, false);
    struct pool_range *keep = take(&f, 2 * MIB);
    berth_err err = { 0 };
    (void)state;
    oom_after(0);
    struct dev_trimmed t = pool_trim(f.pool); /* nowhere to note it: then it stays */
    oom_off();
    assert_true(t.discarded == 0 && t.idle == 30 * MIB);
    assert_ok(pool_check(f.pool, &err), err);
    assert_true(pool_trim(f.pool).idle == 0);
    give(&f, keep);
    stop(&f);
}

static void survives_exhaustion(void **state)
{
    struct fixture f = start(100 * MIB, false);
    (void)state;
    struct pool *p = NULL;
    berth_err err = { 0 };
    oom_after(0);
    berth_status s = pool_new(f.dev->phys, MIB, false, &p, &err);
    oom_off();
    assert_int_equal(s, BERTH_ENOMEM);
    assert_null(p);
    s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct pool_range *r = NULL;
        oom_after(k);
        s = pool_take(f.pool, 20 * MIB, &r, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !r && err.msg[0]));
        berth_err check_err = { 0 };
        assert_ok(pool_check(f.pool, &check_err), check_err);
        if (r)
            give(&f, r);
        else
            assert_true(pool_stats(f.pool)->in_use == 0);
        pool_trim(f.pool);
    }
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_and_aligns),
        cmocka_unit_test(splits_and_merges),
        cmocka_unit_test(finds_the_range_of_the_very_size),
        cmocka_unit_test(classes_have_their_own_segments),
        cmocka_unit_test(budget_is_exact),
        cmocka_unit_test(odd_budget_is_used_to_the_last_unit),
        cmocka_unit_test(idle_segments_make_room),
        cmocka_unit_test(driver_says_no),
        cmocka_unit_test(physical_end_before_budget),
        cmocka_unit_test(reserve_shrinks_the_budget),
        cmocka_unit_test(stress_takes_the_long_road),
        cmocka_unit_test(trim_leaves_what_is_in_use),
        cmocka_unit_test(large_ranges_are_reused_snugly),
        cmocka_unit_test(under_pressure_any_range_will_do),
        cmocka_unit_test(discarded_bytes_come_back),
        cmocka_unit_test(restoring_keeps_the_budget),
        cmocka_unit_test(idle_granules_make_room),
        cmocka_unit_test(what_never_fits_costs_nothing),
        cmocka_unit_test(walks_the_busy_ones),
        cmocka_unit_test(check_notices),
        cmocka_unit_test(trim_survives_oom),
        cmocka_unit_test(survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
