/* Random alloc, free, retire, poll, trim, pinned memory and failing drivers, against a list of what
 * should be there. Whatever the sequence: no overlap, aligned, contents kept, sums equal, budget
 * kept, a refusal justified, trim leaves exactly the segments in use and of their idle ranges only
 * what is less than a granule, no hazard. */
#include "device/device_impl.h"
#include "device/pool.h"
#include "support/devices.h"
#include "support/rng.h"
#include "support/seed.h"

#include <signal.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define LIVE_MAX 96
#define EDGE 64 /* bytes written at both ends of a range */
#define OWNERS 4
#define STREAMS 3

struct live {
    struct dev_mem m;
    size_t owner, pattern;
    struct dev_stream *written_on;
};

struct run {
    struct rng rng;
    struct device *d;
    struct dev_stream *stream[STREAMS];
    struct dev_owner *owner[OWNERS];
    struct live live[LIVE_MAX];
    size_t n;
    struct dev_host host; /* booked on cpu, whichever device this is */
    struct dev_owner *pinned;
    const struct run *all; /* of the three */
    uint64_t peak;
    bool can_fail; /* a null device: its driver may be told to refuse */
};

static unsigned char patterns[4096 + EDGE]; /* constant while a test runs: copies may be pending */

static size_t rounded(size_t n)
{
    return (n + 255) / 256 * 256;
}

/* Sizes from all classes, often the same ones again, now and then huge. */
static size_t draw_size(struct rng *r)
{
    static const size_t often[] = { 256, 4096, 65536, 300000, 1 * MIB, 3 * MIB };
    switch (rng_below(r, 8)) {
    case 0:
    case 1:
        return often[rng_below(r, ARRAY_LEN(often))];
    case 2:
        return 1 + rng_below(r, 24 * MIB);
    case 3:
        return 1 + rng_below(r, 2 * MIB);
    default:
        return 1 + rng_below(r, 64 * KIB);
    }
}

static size_t edge_of(const struct live *l)
{
    return l->m.n < EDGE ? l->m.n : EDGE;
}

static void write_pattern(struct run *t, struct live *l)
{
    berth_err err = { 0 };
    size_t e = edge_of(l);
    l->written_on = t->stream[rng_below(&t->rng, STREAMS)];
    assert_ok(dev_copy_h2d(l->written_on, l->m.addr, patterns + l->pattern, e, &err), err);
    assert_ok(dev_copy_h2d(l->written_on, l->m.addr + l->m.n - e, patterns + l->pattern, e, &err),
              err);
}

static void read_pattern(const struct live *l)
{
    unsigned char got[EDGE];
    berth_err err = { 0 };
    size_t e = edge_of(l);
    for (int end = 0; end < 2; end++) {
        uint64_t at = end ? l->m.addr + l->m.n - e : l->m.addr;
        assert_ok(dev_copy_d2h(l->written_on, got, at, e, &err), err);
        assert_ok(dev_stream_sync(l->written_on, &err), err);
        if (end || l->m.n >= 2 * e || l->m.n == e) /* the second write may reach into the first */
            assert_memory_equal(got, patterns + l->pattern, e);
    }
}

static void assert_apart(const struct run *t, const struct live *l)
{
    assert_int_equal(l->m.addr % 256, 0);
    for (size_t i = 0; i < t->n; i++) {
        const struct dev_mem *o = &t->live[i].m;
        assert_true(l->m.addr + rounded(l->m.n) <= o->addr || o->addr + rounded(o->n) <= l->m.addr);
    }
}

static bool new_segment(const void **seen, size_t *n, const void *g)
{
    for (size_t i = 0; i < *n; i++)
        if (seen[i] == g)
            return false;
    seen[(*n)++] = g;
    return true;
}

/* Idle bytes of segments in use that cannot go: the parts of granules at both ends of each idle
 * range. pre: nothing is retired, so that the live ranges name all segments in use. */
static uint64_t unavoidable(const struct run *t)
{
    uint64_t sum = 0, g = t->d->phys->granularity;
    const void *seen[LIVE_MAX];
    size_t segments = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct pool_range *r = t->live[i].m.range;
        if (!new_segment(seen, &segments, r->segment))
            continue;
        while (r->prev)
            r = r->prev;
        for (; r; r = r->next) {
            uint64_t from = (r->addr + g - 1) / g * g, to = (r->addr + r->n) / g * g;
            sum += r->busy ? 0 : to > from ? r->n - (to - from) : r->n;
        }
    }
    return sum;
}

/* Refused: then what was idle had been given up, or would not have helped, and still the budget or
 * the driver had no more to give. */
static void assert_justified(const struct run *t, size_t n, bool told_to_fail)
{
    const struct dev_stats *s = pool_stats(t->d->pool);
    uint64_t held = s->in_use + s->idle, total, left;
    berth_err err = { 0 };
    held += stats_of(t->d).pinned;
    /* Ends of ranges, each less than a granule, may be in the way of a wish of that size. */
    assert_true(pool_largest_idle(t->d->pool) < rounded(n) ||
                rounded(n) < 2 * t->d->phys->granularity);
    if (held - s->idle + rounded(n) <= t->d->budget && !told_to_fail)
        assert_true(s->idle == unavoidable(t));
    assert_ok(t->d->phys->driver->info(t->d->phys, &total, &left, &err), err);
    assert_true(told_to_fail || held + rounded(n) > t->d->budget || left < rounded(n));
}

static void do_alloc(struct run *t)
{
    struct live *l = &t->live[t->n];
    size_t n = draw_size(&t->rng), owner = rng_below(&t->rng, OWNERS);
    bool told = t->can_fail && rng_below(&t->rng, 10) == 0;
    berth_err err = { 0 };
    if (t->n == LIVE_MAX)
        return;
    if (told) {
        null_fail(t->d, NULL_ALLOC, 1 + rng_below(&t->rng, 3));
        null_fail(t->d, NULL_RESTORE, 1 + rng_below(&t->rng, 3));
    }
    berth_status s = dev_alloc(t->d, t->owner[owner], n, &l->m, &err);
    if (s == BERTH_ENODEVMEM)
        assert_justified(t, n, told);
    if (told) {
        null_fail(t->d, NULL_ALLOC, 0);
        null_fail(t->d, NULL_RESTORE, 0);
    }
    if (s == BERTH_ENODEVMEM)
        return;
    assert_ok(s, err);
    l->owner = owner;
    l->pattern = rng_below(&t->rng, sizeof patterns - EDGE);
    assert_apart(t, l);
    t->n++;
    write_pattern(t, l);
}

static void drop(struct run *t, size_t i)
{
    t->live[i] = t->live[--t->n];
}

static void do_free(struct run *t)
{
    if (!t->n)
        return;
    size_t i = rng_below(&t->rng, t->n);
    read_pattern(&t->live[i]); /* waits: the range is at rest */
    dev_free(&t->live[i].m);
    drop(t, i);
}

static void do_retire(struct run *t)
{
    if (!t->n)
        return;
    size_t i = rng_below(&t->rng, t->n);
    berth_err err = { 0 };
    struct dev_event *e = event_of(t->d);
    assert_ok(dev_event_record(e, t->live[i].written_on, &err), err);
    dev_retire(&t->live[i].m, e);
    dev_event_free(e); /* its memory keeps it */
    drop(t, i);
}

static bool is_owner(void *user, const char *name, enum dev_kind kind)
{
    const struct dev_owner *o = user; /* NULL: nobody's goes */
    return o && o->kind == kind && strcmp(o->name, name) == 0;
}

/* Often after all memory of one owner went; what is left idle was foretold. */
static void do_trim(struct run *t)
{
    size_t who = rng_below(&t->rng, OWNERS + 1);
    if (stats_of(t->d).retired)
        who = OWNERS; /* it may be of that owner, and does not go */
    uint64_t foretold = dev_trim_leaves(t->d, is_owner, who < OWNERS ? t->owner[who] : NULL);
    for (size_t i = t->n; i-- > 0;)
        if (t->live[i].owner == who) {
            read_pattern(&t->live[i]);
            dev_free(&t->live[i].m);
            drop(t, i);
        }
    struct dev_trimmed trimmed = dev_trim(t->d);
    assert_true(trimmed.idle == foretold);
    const void *seen[LIVE_MAX];
    size_t segments = 0;
    const struct dev_stats s = stats_of(t->d);
    assert_true(trimmed.idle == s.idle);
    if (s.retired)
        return;
    for (size_t i = 0; i < t->n; i++)
        new_segment(seen, &segments, t->live[i].m.range->segment);
    assert_true(s.segments == segments);
    assert_true(s.idle == unavoidable(t));
    assert_true(dev_trim(t->d).discarded == 0); /* nothing twice */
    if (!t->n)
        assert_true(s.idle == 0 && s.in_use == 0);
}

static void do_pinned(struct run *t)
{
    berth_err err = { 0 };
    if (t->host.ptr) {
        dev_host_free(&t->host);
        return;
    }
    berth_status s =
        dev_host_alloc(t->d, t->pinned, 1 + rng_below(&t->rng, 8 * MIB), &t->host, &err);
    assert_true(s == BERTH_OK || s == BERTH_ENODEVMEM);
}

/* The naive model and the ledger say the same. */
static void compare(struct run *t)
{
    struct dev_ledger_row row[OWNERS + 2];
    struct dev_stats s;
    uint64_t bytes[OWNERS] = { 0 }, requested[OWNERS] = { 0 }, sum = 0, retired = 0;
    size_t n = dev_ledger(t->d, row, ARRAY_LEN(row), &s);
    assert_true(n <= ARRAY_LEN(row));
    for (size_t i = 0; i < t->n; i++) {
        bytes[t->live[i].owner] += rounded(t->live[i].m.n);
        requested[t->live[i].owner] += t->live[i].m.n;
        sum += rounded(t->live[i].m.n);
    }
    assert_true(s.in_use == sum + s.retired);
    uint64_t host = 0, host_requested = 0;
    for (size_t i = 0; i < 3 && dev_can(t->d, BERTH_CAP_HOST_VISIBLE); i++) {
        host += t->all[i].host.held;
        host_requested += t->all[i].host.n;
    }
    assert_true(s.pinned == host);
    for (size_t i = 0; i < n; i++) {
        if (row[i].kind == DEV_PINNED) {
            assert_true(row[i].bytes == host && row[i].requested == host_requested);
        } else if (row[i].kind == DEV_POOL_IDLE) {
            assert_true(row[i].bytes == s.idle);
        } else {
            size_t o = (size_t)(row[i].owner[1] - '0');
            assert_true(row[i].bytes >= bytes[o] && row[i].requested >= requested[o]);
            retired += row[i].bytes - bytes[o];
        }
    }
    assert_true(retired == s.retired);
    assert_true(s.in_use + s.idle + s.pinned <= t->d->budget);
    t->peak = s.in_use > t->peak ? s.in_use : t->peak;
    assert_true(s.peak == t->peak);
    assert_true(s.peak_held <= t->d->budget);
    assert_sound(t->d);
}

static void step(struct run *t)
{
    berth_err err = { 0 };
    switch (rng_below(&t->rng, 16)) {
    case 0:
        do_trim(t);
        break;
    case 1:
        assert_ok(dev_poll(t->d, NULL, &err), err);
        break;
    case 2:
        do_pinned(t);
        break;
    case 3:
    case 4:
        do_retire(t);
        break;
    case 5:
        if (t->can_fail)
            null_step(t->d);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        do_free(t);
        break;
    default:
        do_alloc(t);
    }
    compare(t);
}

static void begin(struct run *t, struct device *d, uint64_t seed, const struct run *all)
{
    *t = (struct run) { .rng = { seed }, .d = d, .all = all };
    t->can_fail = strcmp(d->phys->driver->name, "null") == 0;
    for (size_t i = 0; i < STREAMS; i++)
        t->stream[i] = stream_of(d);
    for (size_t i = 0; i < OWNERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "m%zu", i);
        t->owner[i] = owner_of(d, name, i % 2 ? DEV_WEIGHTS : DEV_ACTIVATIONS);
    }
    t->pinned = owner_of(d, "ring", DEV_PINNED);
}

static void end(struct run *t)
{
    berth_err err = { 0 };
    while (t->n)
        do_free(t);
    assert_ok(dev_drain(t->d, NULL, &err), err);
    dev_host_free(&t->host);
    for (size_t i = 0; i < STREAMS; i++)
        dev_stream_free(t->stream[i]);
    for (size_t i = 0; i < OWNERS; i++)
        dev_owner_close(t->owner[i]);
    dev_owner_close(t->pinned);
    struct dev_trimmed trimmed = dev_trim(t->d);
    struct dev_stats s = stats_of(t->d);
    assert_true(trimmed.idle == 0 && s.in_use == 0 && s.idle == 0 && s.segments == 0);
    assert_true(s.requested == 0 && s.pinned == 0 && s.retired == 0 && s.ranges == 0);
    assert_true(s.allocs == s.frees && s.hits <= s.allocs);
    assert_int_equal(dev_ledger(t->d, NULL, 0, NULL), 0);
    if (t->can_fail)
        assert_true(null_hazards(t->d) == 0);
}

/* What two devices hold of a null phys is what it has given, discarded bytes not among it. */
static void assert_phys_agrees(const struct run *a, const struct run *b)
{
    struct dev_stats x = stats_of(a->d), y = stats_of(b->d);
    uint64_t total, left;
    berth_err err = { 0 };
    assert_ok(a->d->phys->driver->info(a->d->phys, &total, &left, &err), err);
    assert_true(total - left == x.in_use + x.idle + y.in_use + y.idle);
}

/* One seed decides everything: budgets, stress, which device does the next step. */
static void one_sequence(uint64_t seed, int steps)
{
    struct rng rng = { seed };
    struct null_config null = { .seed = rng_u64(&rng), .lazy = rng_below(&rng, 2) };
    struct dev_env env = { .null = &null, .stress = rng_below(&rng, 4) == 0 };
    char text[128];
    snprintf(text, sizeof text, "null:0=%zu,cuda:0@null:0=%zu,cpu=%zu",
             MIB + rng_below(&rng, 128 * MIB), MIB + rng_below(&rng, 16 * MIB),
             MIB + rng_below(&rng, 64 * MIB));
    struct devset *set = open_devices(text, &env);
    static struct run run[3];
    for (size_t i = 0; i < 3; i++)
        begin(&run[i], devset_at(set, i), rng_u64(&rng), run);
    for (int i = 0; i < steps; i++) {
        step(&run[rng_below(&rng, 3)]);
        assert_phys_agrees(&run[0], &run[1]);
    }
    for (size_t i = 0; i < 3; i++)
        end(&run[i]);
    uint64_t total, left;
    berth_err err = { 0 };
    struct phys *p = run[0].d->phys;
    assert_ok(p->driver->info(p, &total, &left, &err), err);
    assert_true(total == left);
    devset_close(set);
}

static void random_sequences(void **state)
{
    uint64_t seed = rng_seed();
    (void)state;
    for (uint64_t i = 0; i < 24; i++) {
        running = seed + i;
        one_sequence(running, 2000);
    }
    running = 0;
}

/* The same three in every run of the suite; none of them ever failed. A seed that does fail is
 * kept here, with a word about why. */
static void fixed_sequences(void **state)
{
    static const uint64_t seeds[] = { 1, 2, 3 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(seeds); i++)
        one_sequence(running = seeds[i], 2000);
    running = 0;
}

static int make_patterns(void **state)
{
    struct rng fill = { 1 };
    (void)state;
    for (size_t i = 0; i < sizeof patterns; i++)
        patterns[i] = (unsigned char)rng_u64(&fill);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_sequences, say_seed),
        cmocka_unit_test_teardown(fixed_sequences, say_seed),
    };
    signal(SIGABRT, say_seed_and_die); /* validators stop the process */
    return cmocka_run_group_tests(tests, make_patterns, NULL);
}
