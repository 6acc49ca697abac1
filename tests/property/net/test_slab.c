/* Random takes and gives against a map of bytes (in units of the alignment). */
#include "net/slab.h"
#include "support/rng.h"
#include "support/seed.h"

#include <signal.h>

#define UNITS 512
#define CASES 400
#define STEPS 300

struct naive {
    unsigned char unit[UNITS]; /* 0: free */
    size_t peak;
};

/* The lowest gap of n units below `most`; SIZE_MAX: none. */
static size_t naive_take(struct naive *x, size_t n, size_t most)
{
    for (size_t at = 0; at + n <= most; at++) {
        size_t k = 0;
        while (k < n && !x->unit[at + k])
            k++;
        if (k < n)
            continue;
        memset(x->unit + at, 1, n);
        x->peak = at + n > x->peak ? at + n : x->peak;
        return at;
    }
    return SIZE_MAX;
}

static void check(const struct slab *s, const struct naive *x)
{
    struct naive own = { .peak = 0 };
    uint64_t end = 0;
    for (size_t i = 0; i < s->n; i++) {
        assert_true(s->at[i].off >= end && s->at[i].n > 0);
        assert_int_equal(s->at[i].off % SLAB_ALIGN, 0);
        end = s->at[i].off + s->at[i].n;
        memset(own.unit + s->at[i].off / SLAB_ALIGN, 1, s->at[i].n / SLAB_ALIGN);
    }
    assert_memory_equal(own.unit, x->unit, sizeof own.unit);
    assert_int_equal(s->peak, x->peak * SLAB_ALIGN);
}

static void one_case(struct slab *s, struct rng *r)
{
    struct naive x = { .peak = 0 };
    uint64_t off[UNITS], n[UNITS];
    size_t live = 0, most = rng_below(r, 2) ? UNITS : 1 + rng_below(r, UNITS);
    slab_clear(s);
    s->limit = most * SLAB_ALIGN;
    for (size_t step = 0; step < STEPS; step++) {
        if (!live || rng_below(r, 5) < 3) {
            uint64_t bytes = rng_below(r, 24 * SLAB_ALIGN);
            size_t units = bytes ? (size_t)(bytes + SLAB_ALIGN - 1) / SLAB_ALIGN : 1;
            size_t want = naive_take(&x, units, most);
            uint64_t got = 0;
            enum slab_result z = slab_take(s, bytes, &got);
            assert_int_equal(z, want == SIZE_MAX ? SLAB_FULL : SLAB_OK);
            if (z)
                continue;
            assert_int_equal(got, want * SLAB_ALIGN);
            off[live] = got;
            n[live++] = units;
        } else {
            size_t i = rng_below(r, live);
            assert_true(slab_give(s, off[i]));
            assert_false(slab_give(s, off[i]));
            assert_false(slab_give(s, off[i] + 1));
            memset(x.unit + off[i] / SLAB_ALIGN, 0, (size_t)n[i]);
            off[i] = off[--live];
            n[i] = n[live];
        }
        check(s, &x);
    }
}

static void first_fit_as_the_naive_one(void **state)
{
    struct slab s = { 0 };
    uint64_t seed = rng_seed();
    (void)state;
    signal(SIGABRT, say_seed_and_die);
    for (size_t k = 0; k < CASES; k++) {
        running = seed + k;
        struct rng r = { running };
        one_case(&s, &r);
    }
    running = 0;
    slab_release(&s);
}

static void what_no_memory_has(void **state)
{
    struct slab s = { 0 };
    uint64_t off;
    (void)state;
    assert_int_equal(slab_take(&s, UINT64_MAX, &off), SLAB_FULL);
    assert_int_equal(slab_take(&s, UINT64_C(1) << 62, &off), SLAB_OK);
    assert_int_equal(slab_take(&s, (UINT64_C(1) << 62) + 1, &off), SLAB_FULL);
    assert_int_equal(slab_take(&s, UINT64_C(1) << 62, &off), SLAB_OK);
    assert_int_equal(slab_take(&s, 1, &off), SLAB_FULL);
    assert_int_equal(s.peak, UINT64_C(1) << 63);
    slab_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(first_fit_as_the_naive_one, say_seed),
        cmocka_unit_test(what_no_memory_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
