/* A convolution in pieces: every element of the result once, from the rows it needs, within the
 * limit. */
#include "op/cuda/conv2d_pieces.h"

#include "support/rng.h"
#include "support/seed.h"
#include "support/test.h"

static struct op_conv2d conv(uint64_t n, uint64_t h, uint64_t w, uint64_t k, uint32_t stride,
                             uint32_t top, uint32_t bottom)
{
    struct op_conv2d a = { .stride = stride, .top = top, .bottom = bottom };
    a.x.shape = (struct shape) { .ndim = 4, .dim = { n, 8, h, w } };
    a.w.shape = (struct shape) { .ndim = 4, .dim = { 8, 8, k, 1 } };
    a.y.shape =
        (struct shape) { .ndim = 4, .dim = { n, 8, op_conv_side(h, top, bottom, k, stride), w } };
    return a;
}

/* Rows of x that row o of the result looks at, [from, to), padding left out. */
static void rows_of(const struct op_conv2d *a, uint64_t o, int64_t *from, int64_t *to)
{
    *from = (int64_t)(o * a->stride) - (int64_t)a->top;
    *to = *from + (int64_t)a->w.shape.dim[2];
    if (*from < 0)
        *from = 0;
    if (*to > (int64_t)a->x.shape.dim[2])
        *to = (int64_t)a->x.shape.dim[2];
}

static void check_piece(const struct op_conv2d *a, const struct conv_piece *p)
{
    assert_true(p->n > 0 && p->o > 0 && p->i > 0);
    assert_true(p->top >= 0 && p->bottom >= 0);
    assert_true(p->i0 + p->i <= a->x.shape.dim[2]);
    /* its own result has as many rows as it says, and row 0 begins where that of the whole does */
    assert_true(op_conv_side(p->i, (uint32_t)p->top, (uint32_t)p->bottom, a->w.shape.dim[2],
                             a->stride) == p->o);
    assert_true((int64_t)p->i0 - p->top == (int64_t)(p->o0 * a->stride) - (int64_t)a->top);
    for (uint64_t o = p->o0; o < p->o0 + p->o; o++) {
        int64_t from, to;
        rows_of(a, o, &from, &to);
        assert_true(from >= to || (from >= (int64_t)p->i0 && to <= (int64_t)(p->i0 + p->i)));
    }
}

/* Walks as conv2d.c does; returns how many pieces there were. */
static size_t walk(const struct op_conv2d *a, uint64_t in, uint64_t out, uint64_t most)
{
    struct conv_cut cut = conv_cut_of(a, in, out, most);
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    uint64_t done = 0, biggest = 0;
    size_t pieces = 0;
    assert_true(cut.pictures >= 1 && cut.rows >= 1);
    for (uint64_t n0 = 0; n0 < y[0]; n0 += cut.pictures)
        for (uint64_t o0 = 0; o0 < y[2]; o0 += cut.rows, pieces++) {
            struct conv_piece p = conv_piece_at(a, &cut, n0, o0);
            assert_true(p.n0 == n0 && p.o0 == o0);
            check_piece(a, &p);
            assert_true(p.i <= conv_rows_in(a, cut.rows)); /* what scratch was sized for */
            done += p.n * p.o;
            uint64_t bytes = p.n * (p.i * x[3] * in + p.o * y[3] * out);
            biggest = bytes > biggest ? bytes : biggest;
        }
    assert_true(done == y[0] * y[2]);
    if (cut.rows > 1 && (cut.rows < y[2] || cut.pictures > 1))
        assert_true(biggest <= most);
    return pieces;
}

static void whole_where_it_fits(void **state)
{
    (void)state;
    struct op_conv2d a = conv(3, 16, 16, 3, 1, 1, 1);
    assert_int_equal(walk(&a, 16, 16, 1 << 20), 1);
    assert_int_equal(walk(&a, 16, 16, 2 * 2 * 16 * 16 * 16), 2); /* two pictures, then one */
    assert_int_equal(walk(&a, 16, 16, 2 * 16 * 16 * 16), 3);
}

static void bands_where_not(void **state)
{
    (void)state;
    struct op_conv2d a = conv(1, 16, 16, 3, 1, 1, 1);
    assert_int_equal(walk(&a, 16, 16, 2 * 16 * 16 * 16 - 1), 2);
    assert_int_equal(walk(&a, 16, 16, 1), 16); /* a row at a time is the least */
}

static void no_bands_of_padding_alone(void **state)
{
    (void)state;
    struct op_conv2d a = conv(1, 4, 4, 2, 1, 5, 0); /* rows 0..3 of the result see no row of x */
    struct conv_cut cut = conv_cut_of(&a, 16, 16, 1);
    assert_int_equal(cut.pictures, 1);
    assert_int_equal(cut.rows, a.y.shape.dim[2]);
}

static void any_shape(void **state)
{
    (void)state;
    struct rng r = { running = rng_seed() };
    for (int i = 0; i < 20000; i++) {
        uint64_t k = 1 + rng_below(&r, 6);
        uint32_t top = (uint32_t)rng_below(&r, k), bottom = (uint32_t)rng_below(&r, k);
        uint64_t h = k + rng_below(&r, 40);
        struct op_conv2d a = conv(1 + rng_below(&r, 4), h, 1 + rng_below(&r, 9), k,
                                  1 + (uint32_t)rng_below(&r, 4), top, bottom);
        walk(&a, 1 + rng_below(&r, 32), 1 + rng_below(&r, 32), 1 + rng_below(&r, 30000));
    }
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_where_it_fits),
        cmocka_unit_test(bands_where_not),
        cmocka_unit_test(no_bands_of_padding_alone),
        cmocka_unit_test_teardown(any_shape, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
