/* The index arithmetic kernels share with the host (op/index.h): divisions against the
 * processor's, layouts against all of their elements one by one. */
#include "op/index.h"
#include "support/rng.h"
#include "support/seed.h"

static const uint64_t edges[] = { 1,           2,
                                  3,           5,
                                  7,           31,
                                  32,          33,
                                  320,         641,
                                  3072,        65535,
                                  65536,       65537,
                                  0x7fffffff,  0x80000000,
                                  0x80000001,  0xfffffffe,
                                  0xffffffff,  0x100000000,
                                  0x100000001, 0xffffffffffffffff };
enum { EDGES = sizeof edges / sizeof *edges };

static void assert_divides(uint64_t n, uint64_t d)
{
    struct fast_div f = fast_div_of(d);
    uint64_t q = n, r = fast_div_mod(&f, &q);
    if (fast_div_by(&f, n) != n / d || q != n / d || r != n % d)
        fail_msg("%llu / %llu: got %llu and %llu", (unsigned long long)n, (unsigned long long)d,
                 (unsigned long long)q, (unsigned long long)r);
}

static void divisions_are_exact(void **state)
{
    (void)state;
    struct rng r = { running = rng_seed() };
    for (size_t i = 0; i < EDGES; i++)
        for (size_t k = 0; k < EDGES; k++) {
            assert_divides(edges[k], edges[i]);
            assert_divides(edges[k] - 1, edges[i]);
            assert_divides(edges[k] * edges[i], edges[i]); /* or what is left of it */
            assert_divides(edges[k] * edges[i] - 1, edges[i]);
        }
    for (int i = 0; i < 300000; i++) {
        uint64_t d = rng_u64(&r) >> rng_below(&r, 64), n = rng_u64(&r) >> rng_below(&r, 64);
        d += d == 0;
        assert_divides(n, d);
        assert_divides(n / d * d, d); /* at a multiple and below it */
        assert_divides(n / d * d - 1, d);
    }
    running = 0;
}

/* ---- layouts: where every byte of y comes from ---- */

enum { BYTES = 1 << 16, NOWHERE = -1 };

struct image {
    int32_t from[BYTES]; /* byte of x, by byte of y */
    size_t count;
};

/* All elements of s, `elem` bytes each; addresses x0 and y0 of the first. */
static void walk(const struct strided *s, unsigned elem, size_t x0, size_t y0, struct image *out)
{
    uint64_t at[STRIDED_DIMS] = { 0 }, n = 1;
    memset(out->from, 0xff, sizeof out->from);
    out->count = 0;
    for (int d = 0; d < s->nd; d++)
        n *= s->dim[d];
    for (uint64_t e = 0; e < n; e++) {
        size_t x = x0, y = y0;
        uint64_t rest = e;
        for (int d = s->nd - 1; d >= 0; d--) {
            at[d] = rest % s->dim[d];
            rest /= s->dim[d];
            x += at[d] * s->sx[d];
            y += at[d] * s->sy[d];
        }
        assert_true(x % elem == 0 && y % elem == 0 && y + elem <= BYTES);
        for (unsigned b = 0; b < elem; b++) {
            assert_int_equal(out->from[y + b], NOWHERE);
            out->from[y + b] = (int32_t)(x + b);
            out->count++;
        }
    }
}

/* A side's strides: dimensions in a random order of memory, now and then with a gap. */
static void random_strides(struct rng *r, const struct strided *s, unsigned elem, uint64_t *stride)
{
    int order[STRIDED_DIMS];
    for (int i = 0; i < s->nd; i++)
        order[i] = i;
    for (int i = s->nd; i > 1 && rng_below(r, 3); i--) {
        int k = (int)rng_below(r, (size_t)i), was = order[i - 1];
        order[i - 1] = order[k];
        order[k] = was;
    }
    uint64_t step = elem;
    if (rng_below(r, 8) == 0)
        step *= 2;
    for (int i = s->nd - 1; i >= 0; i--) {
        stride[order[i]] = s->dim[order[i]] == 1 ? rng_below(r, 1000) : step;
        step *= s->dim[order[i]];
        if (rng_below(r, 5) == 0)
            step += elem * rng_below(r, 9);
    }
}

static struct strided random_layouts(struct rng *r, unsigned elem)
{
    struct strided s = { .nd = (int)rng_below(r, STRIDED_DIMS + 1) };
    uint64_t n = 1;
    for (int i = 0; i < s.nd; i++) {
        s.dim[i] = rng_below(r, 4) ? 1 + rng_below(r, 5) : (size_t)8 << rng_below(r, 2);
        if (n * s.dim[i] > 600)
            s.dim[i] = 1;
        n *= s.dim[i];
    }
    random_strides(r, &s, elem, s.sx);
    random_strides(r, &s, elem, s.sy);
    for (int i = 0; i < s.nd; i++)
        if (s.dim[i] == 1) /* as the host does: what means nothing counts as 0 */
            s.sy[i] = 0;
    return s;
}

static struct image want, got;

static void assert_same_copy(const struct strided *s, unsigned elem, size_t x0, size_t y0)
{
    walk(s, elem, x0, y0, &got);
    assert_int_equal(got.count, want.count);
    assert_memory_equal(got.from, want.from, sizeof got.from);
}

static void layouts_keep_their_elements(void **state)
{
    (void)state;
    size_t turned = 0, wide = 0, merged = 0;
    for (int i = 0; i < 4000; i++) {
        struct rng r = { running = rng_seed() + (uint64_t)i };
        unsigned elem = i % 2 ? 4 : 2;
        struct strided s = random_layouts(&r, elem);
        size_t x0 = elem * rng_below(&r, 17), y0 = rng_below(&r, 2) ? 0 : elem * rng_below(&r, 9);
        int nd = s.nd;
        walk(&s, elem, x0, y0, &want);
        strided_merge(&s);
        assert_same_copy(&s, elem, x0, y0);
        strided_sort(&s);
        strided_merge(&s);
        assert_same_copy(&s, elem, x0, y0);
        assert_true(s.nd >= 1 && s.nd <= (nd ? nd : 1));
        for (int d = 1; d < s.nd; d++) /* in y's order, nothing left to merge */
            assert_true(s.sy[d - 1] > s.sy[d]);
        merged += s.nd < nd;
        int turn = strided_turn(&s, elem);
        if (turn >= 0) {
            turned++;
            assert_true(turn < s.nd - 1 && s.sx[turn] == elem && s.sy[s.nd - 1] == elem);
        }
        unsigned unit = strided_unit(&s, x0, y0, elem);
        strided_in_units(&s, unit, elem);
        wide += unit > elem;
        assert_same_copy(&s, unit, x0, y0);
    }
    running = 0;
    assert_true(turned > 20 && wide > 100 && merged > 1000);
}

/* b repeats below a: strides of 0 merge with each other and with nothing else. */
static void repeating_dimensions(void **state)
{
    (void)state;
    struct strided s = { 4, { 2, 3, 5, 7 }, { 12, 4, 0, 0 }, { 420, 140, 28, 4 } };
    strided_merge(&s); /* [n, C, 1, 1] below [n, C, h, w] */
    assert_int_equal(s.nd, 2);
    assert_true(s.dim[0] == 6 && s.sx[0] == 4 && s.dim[1] == 35 && s.sx[1] == 0);
    s = (struct strided) { 3, { 2, 3, 5 }, { 0, 0, 4 }, { 60, 20, 4 } };
    strided_merge(&s); /* [1, 1, row] */
    assert_int_equal(s.nd, 2);
    assert_true(s.dim[0] == 6 && s.sx[0] == 0 && s.dim[1] == 5 && s.sx[1] == 4);
    s = (struct strided) { 3, { 2, 1, 5 }, { 20, 0, 4 }, { 20, 20, 4 } };
    strided_merge(&s); /* the same shape */
    assert_int_equal(s.nd, 1);
    assert_true(s.dim[0] == 10 && s.sx[0] == 4);
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(divisions_are_exact, say_seed),
        cmocka_unit_test_teardown(layouts_keep_their_elements, say_seed),
        cmocka_unit_test(repeating_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
