/* Random models, devices and strings: what every plan keeps to.
 *
 *   all      every block has one device, bytes add up, nobody but the orphans device and compute is
 *            over quota, the plan's string gives the same plan again, and so does asking twice
 *   tail     the same device for every block as a naive walk over the rules
 *   spread   of every window of consecutive blocks the donors hold their fair share, as the plan
 *            itself divides the model: see allowed()
 *   by time  where blocks have estimates: quotas are used as well; and where no block has fewer
 *            bytes than are due in its time, the donors' share of every window goes by its time */
#include "support/plan_same.h"
#include "support/plans.h"
#include "support/rng.h"
#include "support/seed.h"

#include <signal.h>

#define DEVICES_MAX 8
#define BLOCKS_MAX 120
#define ROUNDS 10000

struct world {
    struct block_spec spec[BLOCKS_MAX];
    struct blocks b;
    struct plan_devices d;
    char text[1024];
    struct quotas q;
    struct plan p;
};

/* ---- drawing ---- */

static uint64_t draw_bytes(struct rng *r)
{
    switch (rng_below(r, 8)) {
    case 0:
        return rng_below(r, 3); /* none, tiny */
    case 1:
        return 1 + rng_below(r, 4096);
    case 2:
        return 500 * MIB; /* many alike, as in real models */
    default:
        return 1 + rng_u64(r) % (rng_below(r, 2) ? 300 * MIB : 40 * MIB);
    }
}

static void draw_model(struct world *w, struct rng *r)
{
    size_t n = 1 + rng_below(r, BLOCKS_MAX);
    bool alike = rng_below(r, 3) == 0;
    uint64_t each = 1 + draw_bytes(r);
    for (size_t i = 0; i < n; i++)
        w->spec[i] =
            (struct block_spec) { "b", alike ? each : draw_bytes(r), rng_below(r, 30) == 0 };
    if (!alike)
        w->spec[rng_below(r, n)].bytes += 1; /* some model at all */
    assert_true(blocks_from_specs(w->spec, n, &w->b));
    size_t kind = rng_below(r, 8); /* of estimates: a few, about the bytes, anything; or none */
    for (size_t i = 0; i < n && kind < 3; i++) {
        uint64_t bytes = w->b.at[i].bytes;
        w->b.at[i].work = kind == 0   ? rng_below(r, 3)
                          : kind == 1 ? bytes + bytes / 8 * rng_below(r, 8)
                                      : rng_u64(r) >> rng_below(r, 64);
    }
}

static void draw_devices(struct world *w, struct rng *r)
{
    w->d.n = 1 + rng_below(r, DEVICES_MAX);
    size_t host = rng_below(r, w->d.n + 1); /* none at the last value */
    for (size_t i = 0; i < w->d.n; i++) {
        struct plan_device *x = &w->d.at[i];
        snprintf(x->name, sizeof x->name, i == host ? "cpu" : "cuda:%d", (int)(i & 255));
        x->host = i == host;
        /* Room for anything: budgets have a unit test, here nothing should get in the way. */
        x->total = 2 * w->b.bytes + 1 + rng_u64(r) % (4 * w->b.bytes);
        x->budget = UINT64_MAX;
        x->total = x->total > GIB / 4 ? x->total : GIB / 4;
        x->speed = rng_below(r, 2) ? (double)rng_below(r, 100) : 0;
    }
}

static void add(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add(struct world *w, const char *fmt, ...)
{
    size_t n = strlen(w->text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->text + n, sizeof w->text - n, fmt, ap);
    va_end(ap);
}

/* Device indices in random order, the first *n of them are meant. */
static void draw_some(const struct world *w, struct rng *r, size_t at[DEVICES_MAX], size_t *n)
{
    *n = 1 + rng_below(r, w->d.n);
    for (size_t i = 0; i < w->d.n; i++) {
        size_t k = rng_below(r, i + 1);
        at[i] = at[k];
        at[k] = i;
    }
}

static void draw_text(struct world *w, struct rng *r)
{
    size_t at[DEVICES_MAX], n, mode = rng_below(r, 5);
    draw_some(w, r, at, &n);
    w->text[0] = 0;
    size_t star = mode < 2 ? rng_below(r, n + 1) : n; /* n: nobody has one */
    for (size_t i = 0; i < n && mode < 3; i++) {
        uint64_t part = rng_u64(r) % (2 * w->b.bytes / n + 1);
        add(w, "%s%s,", i ? ";" : "", w->d.at[at[i]].name);
        if (i == star && (mode == 1 || rng_below(r, 2)))
            add(w, "*");
        else if (mode == 0)
            add(w, "%llub%s", (unsigned long long)part, i == star ? "*" : "");
        else if (mode == 1)
            add(w, "%d.%03d%%", 1 + (int)rng_below(r, 98 / n), (int)rng_below(r, 1000));
        else
            add(w, "0.%06d", (int)rng_below(r, 1000000));
    }
    const char *compute = w->d.at[rng_below(r, w->d.n)].name;
    if (mode == 3) {
        uint64_t mb = rng_u64(r) % (w->b.bytes / MIB + 2); /* 1/1024 GiB */
        add(w, "#%s;%llu.%06d;", compute, (unsigned long long)(mb / 1024), (int)(mb % 1024 * 976));
        for (size_t i = 0; i < n; i++)
            add(w, "%s%s", i ? "," : "", w->d.at[at[i]].name);
    } else if (mode == 4 || rng_below(r, 2)) {
        add(w, "#%s", compute);
    }
}

/* ---- what must hold ---- */

static uint64_t largest(const struct world *w)
{
    uint64_t most = 0;
    for (size_t i = 0; i < w->b.n; i++)
        if (w->p.why[i] == PLAN_QUOTA || w->p.why[i] == PLAN_ORPHAN)
            most = w->b.at[i].bytes > most ? w->b.at[i].bytes : most;
    return most;
}

static void check_sums(const struct world *w)
{
    uint64_t held[DEVICES_MAX] = { 0 }, embedding = 0, all = 0;
    for (size_t i = 0; i < w->b.n; i++) {
        assert_true(w->p.device[i] < w->d.n);
        held[w->p.device[i]] += w->b.at[i].bytes;
        bool tiny = (unsigned __int128)w->b.at[i].bytes * 10000 < w->b.bytes;
        if (w->b.at[i].embedding || tiny)
            assert_int_equal(w->p.device[i], w->q.compute);
        embedding += w->b.at[i].embedding ? w->b.at[i].bytes : 0;
    }
    for (size_t d = 0; d < w->d.n; d++) {
        all += held[d];
        assert_int_equal(held[d], w->p.share[d].bytes);
        uint64_t quota = quota_on(&w->q, d);
        uint64_t counted = w->p.share[d].by_class[PLAN_QUOTA];
        if (d == w->q.compute)
            quota -= embedding < quota ? embedding : quota;
        assert_true(counted <= quota);
        if (d != w->q.orphans)
            assert_int_equal(w->p.share[d].by_class[PLAN_ORPHAN], 0);
    }
    assert_int_equal(all, w->b.bytes);
}

static void check_string(const struct world *w)
{
    struct str text = { 0 };
    struct plan again;
    berth_err err = { 0 };
    plan_string(&w->p, &text);
    struct plan_args args = { .alloc = str_c(&text), .layout = w->p.layout };
    assert_ok(plan_from_args(&w->b, &w->d, &args, &again, &err), err);
    assert_true(plan_same(&w->p, &again));
    assert_memory_equal(w->p.why, again.why, again.n);
    plan_release(&again);
    str_release(&text);
}

/* The rules of tail, as short as they can be said. */
static void check_tail(const struct world *w)
{
    uint64_t left[DEVICES_MAX] = { 0 };
    for (size_t i = 0; i < w->q.n; i++)
        left[i] = w->q.at[i].bytes;
    for (size_t i = 0; i < w->b.n; i++)
        for (size_t k = 0; k < w->q.n; k++)
            if (w->b.at[i].embedding && w->q.at[k].device == w->q.compute)
                left[k] = left[k] > w->b.at[i].bytes ? left[k] - w->b.at[i].bytes : 0;
    for (size_t i = w->b.n; i-- > 0;) {
        uint64_t bytes = w->b.at[i].bytes;
        size_t want = w->q.orphans;
        if (w->b.at[i].embedding || (unsigned __int128)bytes * 10000 < w->b.bytes) {
            want = w->q.compute;
        } else {
            for (size_t k = 0; k < w->q.n; k++)
                if (left[k] >= bytes) {
                    left[k] -= bytes;
                    want = w->q.at[k].device;
                    break;
                }
        }
        assert_int_equal(w->p.device[i], want);
    }
}

/* Most for the side that does not take the orphans, compute or all donors, and how many quotas that
 * is. */
static uint64_t cap_of(const struct world *w, uint64_t all, uint64_t *blocks)
{
    uint64_t cap = 0, embedding = 0;
    *blocks = 0;
    for (size_t i = 0; i < w->b.n; i++)
        embedding += w->b.at[i].embedding ? w->b.at[i].bytes : 0;
    if (w->q.orphans != w->q.compute) {
        cap = quota_on(&w->q, w->q.compute);
        cap -= embedding < cap ? embedding : cap;
        *blocks = 1;
    }
    for (size_t i = 0; i < w->q.n && w->q.orphans == w->q.compute; i++)
        if (w->q.at[i].device != w->q.compute) {
            cap += w->q.at[i].bytes;
            ++*blocks;
        }
    *blocks = *blocks ? *blocks : 1;
    return cap < all ? cap : all;
}

/* What spread keeps to: blocks of one size one block; else one (the largest) and what the quota
 * leaves open, per donor where there are several and compute takes the orphans. */
static uint64_t allowed(const struct world *w, uint64_t donor, uint64_t all)
{
    uint64_t most = largest(w), blocks, cap = cap_of(w, all, &blocks);
    bool alike = true;
    for (size_t i = 0; i < w->b.n; i++)
        if (w->p.why[i] == PLAN_QUOTA || w->p.why[i] == PLAN_ORPHAN)
            alike &= w->b.at[i].bytes == most;
    if (alike)
        return most;
    return most * blocks + (cap - (w->q.orphans != w->q.compute ? all - donor : donor));
}

/* The same with estimates: two blocks more, which is what finding out how much must be due
 * costs. */
static void check_timed(const struct world *w)
{
    uint64_t all = 0, donors = 0, most = largest(w), blocks;
    unsigned __int128 time = 0;
    for (size_t i = 0; i < w->b.n; i++)
        if (w->p.why[i] == PLAN_QUOTA || w->p.why[i] == PLAN_ORPHAN) {
            all += w->b.at[i].bytes;
            time += w->b.at[i].work;
            donors += w->p.device[i] != w->q.compute ? w->b.at[i].bytes : 0;
        }
    uint64_t side = w->q.orphans != w->q.compute ? all - donors : donors;
    uint64_t cap = cap_of(w, all, &blocks);
    if (side > cap || cap - side >= (blocks + 1) * most)
        fail_msg("'%s': %llu of %llu bytes used", w->text, (unsigned long long)side,
                 (unsigned long long)cap);
    long double e = 0, low = 0, high = 0, rate = (long double)donors / (long double)time;
    for (size_t i = 0; i < w->b.n; i++) {
        if (w->p.why[i] == PLAN_TINY || w->p.why[i] == PLAN_EMBEDDING)
            continue;
        if ((long double)w->b.at[i].work * rate > (long double)w->b.at[i].bytes)
            return; /* not all can be had */
        e += (long double)w->b.at[i].work * rate;
        e -= w->p.device[i] != w->q.compute ? (long double)w->b.at[i].bytes : 0;
        low = e < low ? e : low;
        high = e > high ? e : high;
    }
    if (high - low > (long double)((blocks + 2) * most + (cap - side)))
        fail_msg("'%s': windows off by %.3Lf blocks", w->text, (high - low) / (long double)most);
}

/* Donor bytes of all windows, against bytes * the plan's own donor share, in whole numbers: times
 * `all`. */
static void check_spread(const struct world *w)
{
    uint64_t all = 0, donors = 0;
    for (size_t i = 0; i < w->b.n; i++)
        if (w->p.why[i] == PLAN_QUOTA || w->p.why[i] == PLAN_ORPHAN) {
            all += w->b.at[i].bytes;
            donors += w->p.device[i] != w->q.compute ? w->b.at[i].bytes : 0;
        }
    __int128 slack = (__int128)allowed(w, donors, all) * all;
    for (size_t from = 0; from < w->b.n; from++) {
        __int128 bytes = 0, donor = 0;
        for (size_t i = from; i < w->b.n; i++) {
            if (w->p.why[i] == PLAN_TINY || w->p.why[i] == PLAN_EMBEDDING)
                continue;
            bytes += w->b.at[i].bytes;
            donor += w->p.device[i] != w->q.compute ? w->b.at[i].bytes : 0;
            __int128 off = donor * all - bytes * donors;
            if (off > slack || off < -slack)
                fail_msg("'%s': window %zu..%zu of %zu blocks", w->text, from, i, w->b.n);
        }
    }
}

static void check_all(struct world *w, enum plan_layout layout)
{
    berth_err err = { 0 };
    struct plan again;
    if (plan_make(&w->b, &w->d, &w->q, layout, &w->p, &err))
        fail_msg("'%s': %s", w->text, err.msg);
    check_sums(w);
    bool timed = false; /* those that are spread have estimates */
    for (size_t i = 0; i < w->b.n; i++)
        if (w->p.why[i] == PLAN_QUOTA || w->p.why[i] == PLAN_ORPHAN)
            timed |= w->b.at[i].work > 0;
    if (largest(w)) {
        if (layout == PLAN_TAIL)
            check_tail(w);
        else if (timed)
            check_timed(w);
        else
            check_spread(w);
    }
    assert_ok(plan_make(&w->b, &w->d, &w->q, layout, &again, &err), err);
    assert_true(plan_same(&w->p, &again));
    plan_release(&again);
    check_string(w);
    plan_release(&w->p);
}

static void one_round(uint64_t seed)
{
    struct rng r = { seed };
    static struct world w;
    berth_err err = { 0 };
    memset(&w, 0, sizeof w);
    draw_model(&w, &r);
    draw_devices(&w, &r);
    if (rng_below(&r, 8) == 0) {
        for (size_t i = 0; i < w.d.n; i++)
            w.d.at[i].budget = w.d.at[i].total; /* auto looks at budgets; each holds the model */
        snprintf(w.text, sizeof w.text, "auto");
        assert_ok(plan_auto(&w.b, &w.d, NULL, rng_u64(&r) % w.b.bytes, &w.q, &err), err);
    } else {
        draw_text(&w, &r);
        struct alloc a;
        if (alloc_parse(w.text, strlen(w.text), &a, &err) ||
            alloc_resolve(&a, &w.d, NULL, w.b.bytes, &w.q, &err))
            fail_msg("'%s': %s", w.text, err.msg);
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < w.q.n; i++)
        sum += w.q.at[i].bytes;
    assert_int_equal(sum, w.b.bytes);
    check_all(&w, PLAN_TAIL);
    check_all(&w, PLAN_SPREAD);
    blocks_release(&w.b);
}

static void plans_keep_their_promises(void **state)
{
    (void)state;
    uint64_t first = rng_seed();
    size_t rounds = getenv("BERTH_SEED") ? 1 : ROUNDS;
    for (size_t i = 0; i < rounds; i++) {
        running = first + i;
        one_round(running);
    }
    running = 0;
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(plans_keep_their_promises, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
