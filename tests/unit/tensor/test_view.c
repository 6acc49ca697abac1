/* Views: strides against plain index arithmetic, and every refusal. */
#include "support/rng.h"
#include "support/test.h"

#include "tensor/tensor.h"

#define SHAPE(...)                                                                                 \
    (&(struct shape) { .ndim = (int)ARRAY_LEN(((uint64_t[]) { __VA_ARGS__ })),                     \
                       .dim = { __VA_ARGS__ } })

static uint16_t cells[4096]; /* cells[i] == i */
static uint8_t bytes[4096];

static int fill_cells(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cells); i++)
        cells[i] = (uint16_t)i;
    return 0;
}

static struct view make(const struct shape *s)
{
    berth_err err;
    struct view v;
    assert_ok(view_init(DT_U16, s, cells, sizeof cells, &v, &err), err);
    return v;
}

static unsigned at(const struct view *v, uint64_t a, uint64_t b, uint64_t c)
{
    berth_err err;
    void *p = NULL;
    assert_ok(view_at(v, (uint64_t[]) { a, b, c }, &p, &err), err);
    return *(uint16_t *)p;
}

static void init_checks_the_memory(void **state)
{
    (void)state;
    berth_err err;
    struct view v = { .data = &err }, before = v;
    const struct shape *s = SHAPE(2, 3, 4);
    assert_fails(view_init(DT_U16, s, cells, 47, &v, &err), err, BERTH_EINVAL, "48 bytes");
    assert_fails(view_init(DT_U16, s, cells, 47, &v, &err), err, BERTH_EINVAL, "[2, 3, 4]");
    assert_memory_equal(&v, &before, sizeof v); /* untouched on failure */
    assert_ok(view_init(DT_U16, s, cells, 48, &v, &err), err);
    assert_int_equal(v.stride[0], 24);
    assert_int_equal(v.stride[1], 8);
    assert_int_equal(v.stride[2], 2);
    assert_int_equal(view_span(&v), 48);
    assert_true(view_contiguous(&v));
    assert_int_equal(at(&v, 1, 2, 3), 23);
    /* A scalar is one element; an empty view needs no memory. */
    assert_ok(view_init(DT_F64, &(struct shape) { 0 }, cells, 8, &v, &err), err);
    assert_int_equal(view_span(&v), 8);
    assert_fails(view_init(DT_F64, &(struct shape) { 0 }, cells, 7, &v, &err), err, BERTH_EINVAL,
                 "8");
    assert_ok(view_init(DT_U16, SHAPE(5, 0, 7), NULL, 0, &v, &err), err);
    assert_int_equal(view_span(&v), 0);
    assert_true(view_contiguous(&v));
    /* Products that do not fit. */
    assert_fails(view_init(DT_U16, SHAPE(UINT64_MAX, 2), cells, SIZE_MAX, &v, &err), err,
                 BERTH_EINVAL, "too large");
    assert_fails(view_init(DT_U16, SHAPE(0, UINT64_MAX, 2), cells, 0, &v, &err), err, BERTH_EINVAL,
                 "too large");
}

static void at_checks_every_index(void **state)
{
    (void)state;
    berth_err err;
    void *p;
    struct view v = make(SHAPE(2, 3, 4));
    assert_fails(view_at(&v, (uint64_t[]) { 2, 0, 0 }, &p, &err), err, BERTH_EINVAL, "index 2");
    assert_fails(view_at(&v, (uint64_t[]) { 0, 0, UINT64_MAX }, &p, &err), err, BERTH_EINVAL, "4");
}

static void permute_moves_dimensions(void **state)
{
    (void)state;
    berth_err err;
    struct view v = make(SHAPE(2, 3, 4)), p;
    assert_ok(view_permute(&v, (int[]) { 2, 0, 1 }, &p, &err), err);
    assert_true(shape_eq(&p.shape, SHAPE(4, 2, 3)));
    for (uint64_t i = 0; i < 4; i++)
        for (uint64_t j = 0; j < 2; j++)
            for (uint64_t k = 0; k < 3; k++)
                assert_int_equal(at(&p, i, j, k), at(&v, j, k, i));
    assert_false(view_contiguous(&p));
    assert_int_equal(view_span(&p), 48);
    assert_ok(view_permute(&p, (int[]) { 1, 2, 0 }, &p, &err), err); /* and back, in place */
    assert_true(view_contiguous(&p));
    assert_fails(view_permute(&v, (int[]) { 0, 0, 1 }, &p, &err), err, BERTH_EINVAL, "axis 0");
    assert_fails(view_permute(&v, (int[]) { 0, 1, 3 }, &p, &err), err, BERTH_EINVAL, "axis 3");
    assert_fails(view_permute(&v, (int[]) { -1, 1, 2 }, &p, &err), err, BERTH_EINVAL, "axis -1");
    /* A dimension of one moves without changing the order in memory. */
    v = make(SHAPE(3, 1, 4));
    assert_ok(view_permute(&v, (int[]) { 1, 0, 2 }, &p, &err), err);
    assert_true(view_contiguous(&p));
}

static void slice_keeps_a_range(void **state)
{
    (void)state;
    berth_err err;
    struct view v = make(SHAPE(5, 3, 4)), s;
    assert_ok(view_slice(&v, 0, 1, 4, &s, &err), err);
    assert_true(view_contiguous(&s));
    assert_int_equal(at(&s, 0, 0, 0), 12);
    assert_ok(view_slice(&s, 2, 1, 3, &s, &err), err); /* in place */
    assert_false(view_contiguous(&s));
    assert_int_equal(at(&s, 2, 2, 1), at(&v, 3, 2, 2));
    assert_int_equal(view_span(&s), (24 + 8 + 1 + 1) * 2);
    assert_ok(view_slice(&v, 1, 3, 3, &s, &err), err); /* empty, at the very end */
    assert_int_equal(view_span(&s), 0);
    assert_ptr_equal(s.data, v.data);
    assert_fails(view_slice(&v, 1, 2, 4, &s, &err), err, BERTH_EINVAL, "[2, 4) of 3");
    assert_fails(view_slice(&v, 1, 2, 1, &s, &err), err, BERTH_EINVAL, "[2, 1)");
    assert_fails(view_slice(&v, 3, 0, 1, &s, &err), err, BERTH_EINVAL, "axis 3");
    assert_fails(view_slice(&v, -1, 0, 1, &s, &err), err, BERTH_EINVAL, "axis -1");
}

static void reshape_where_strides_allow(void **state)
{
    (void)state;
    berth_err err;
    struct view v = make(SHAPE(4, 6, 5)), r;
    assert_ok(view_reshape(&v, SHAPE(24, 5), &r, &err), err);
    assert_ok(view_reshape(&r, SHAPE(2, 1, 60), &r, &err), err);
    assert_int_equal(at(&r, 1, 0, 59), 119);
    assert_fails(view_reshape(&v, SHAPE(4, 31), &r, &err), err, BERTH_EINVAL, "[4, 31]");
    /* Two runs: the outer two dimensions, and the inner slice. */
    struct view s;
    assert_ok(view_slice(&v, 2, 1, 5, &s, &err), err);
    assert_ok(view_reshape(&s, SHAPE(3, 8, 4), &r, &err), err);
    assert_int_equal(at(&r, 2, 7, 3), at(&s, 3, 5, 3));
    assert_int_equal(at(&r, 1, 4, 2), at(&s, 2, 0, 2));
    assert_ok(view_reshape(&s, SHAPE(24, 2, 2), &r, &err), err);
    assert_int_equal(at(&r, 13, 1, 0), at(&s, 2, 1, 2));
    assert_fails(view_reshape(&s, SHAPE(96), &r, &err), err, BERTH_EUNSUPPORTED, "copy");
    assert_fails(view_reshape(&s, SHAPE(12, 8), &r, &err), err, BERTH_EUNSUPPORTED, "[12, 8]");
    /* Ones come and go. */
    assert_ok(view_reshape(&s, SHAPE(1, 24, 1, 4, 1), &r, &err), err);
    assert_ok(view_reshape(&r, &s.shape, &r, &err), err);
    assert_int_equal(at(&r, 3, 5, 3), at(&s, 3, 5, 3));
    /* Nothing inside: any shape of nothing. */
    assert_ok(view_slice(&s, 0, 2, 2, &s, &err), err);
    assert_ok(view_reshape(&s, SHAPE(7, 0), &r, &err), err);
    /* One element: a scalar. */
    assert_ok(view_reshape(&(struct view) { DT_U16, { 1, { 1 } }, { 99 }, cells },
                           &(struct shape) { 0 }, &r, &err),
              err);
    assert_int_equal(view_span(&r), 2);
}

static void quants_move_in_blocks(void **state)
{
    (void)state;
    berth_err err;
    struct view v, o;
    assert_fails(view_init(DT_Q8_0, SHAPE(4, 48), bytes, sizeof bytes, &v, &err), err, BERTH_EINVAL,
                 "multiple of 32");
    assert_fails(view_init(DT_Q8_0, &(struct shape) { 0 }, bytes, sizeof bytes, &v, &err), err,
                 BERTH_EINVAL, "multiple of 32");
    assert_ok(view_init(DT_Q8_0, SHAPE(3, 4, 96), bytes, 3 * 4 * 3 * 34, &v, &err), err);
    assert_int_equal(v.stride[2], 34);
    assert_int_equal(v.stride[1], 102);
    assert_int_equal(view_span(&v), 3 * 4 * 3 * 34);
    void *p;
    assert_ok(view_at(&v, (uint64_t[]) { 1, 2, 95 }, &p, &err), err);
    assert_ptr_equal(p, bytes + 408 + 2 * 102 + 2 * 34);
    assert_ok(view_permute(&v, (int[]) { 1, 0, 2 }, &o, &err), err);
    assert_fails(view_permute(&v, (int[]) { 0, 2, 1 }, &o, &err), err, BERTH_EUNSUPPORTED, "Q8_0");
    assert_fails(view_slice(&v, 2, 16, 48, &o, &err), err, BERTH_EINVAL, "blocks of Q8_0");
    assert_ok(view_slice(&v, 2, 32, 96, &o, &err), err);
    assert_ptr_equal(o.data, bytes + 34);
    assert_int_equal(view_span(&o), 2 * 408 + 3 * 102 + 34 + 34);
    assert_ok(view_reshape(&o, SHAPE(12, 64), &o, &err), err);
    assert_ok(view_reshape(&o, SHAPE(12, 2, 32), &v, &err), err); /* one block each */
    assert_int_equal(v.stride[0], 102);
    assert_int_equal(v.stride[1], 34);
    assert_fails(view_reshape(&o, SHAPE(24, 32), &v, &err), err, BERTH_EUNSUPPORTED, "copy");
    assert_fails(view_reshape(&o, SHAPE(48, 16), &v, &err), err, BERTH_EINVAL, "multiple of 32");
}

/* Random slices and permutations, then a reshape: wherever it succeeds, element k in row-major
 * order is still element k. */
static uint16_t kth(const struct view *v, uint64_t k)
{
    uint64_t index[SHAPE_MAX_DIMS] = { 0 };
    for (int i = v->shape.ndim - 1; i >= 0; i--) {
        index[i] = k % v->shape.dim[i];
        k /= v->shape.dim[i];
    }
    berth_err err;
    void *p;
    assert_ok(view_at(v, index, &p, &err), err);
    assert_true((uint8_t *)p < (uint8_t *)v->data + view_span(v));
    return *(uint16_t *)p;
}

static void random_reshapes_keep_the_order(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    struct rng r = { seed };
    int done = 0, refused = 0;
    for (int round = 0; round < 4000; round++) {
        berth_err err;
        static const uint64_t dims[][4] = { { 4, 6, 4, 8 }, { 12, 1, 8, 2 }, { 2, 2, 3, 16 } };
        static const uint64_t news[][4] = {
            { 24, 32, 1, 1 }, { 2, 2, 6, 4 }, { 8, 12, 2, 1 }, { 96, 1, 4, 2 }, { 4, 6, 4, 8 }
        };
        const uint64_t *d = dims[rng_below(&r, 3)];
        struct view v = make(SHAPE(d[0], d[1], d[2], d[3])), o;
        if (rng_below(&r, 2)) {
            int axis[4] = { 0, 1, 2, 3 };
            for (int i = 3; i > 0; i--) {
                int k = (int)rng_below(&r, (size_t)i + 1), t = axis[i];
                axis[i] = axis[k];
                axis[k] = t;
            }
            assert_ok(view_permute(&v, axis, &v, &err), err);
        }
        if (rng_below(&r, 2)) {
            int a = (int)rng_below(&r, 4);
            if (v.shape.dim[a] % 2 == 0)
                assert_ok(view_slice(&v, a, v.shape.dim[a] / 2, v.shape.dim[a], &v, &err), err);
        }
        uint64_t n = 0;
        assert_true(shape_count(&v.shape, &n));
        const uint64_t *w = news[rng_below(&r, 5)];
        struct shape to = { 4, { w[0], w[1], w[2], n / (w[0] * w[1] * w[2]) } };
        if (w[0] * w[1] * w[2] * to.dim[3] != n || !to.dim[3])
            continue;
        if (view_reshape(&v, &to, &o, &err)) {
            assert_int_equal(err.code, BERTH_EUNSUPPORTED);
            assert_false(view_contiguous(&v));
            refused++;
            continue;
        }
        done++;
        for (uint64_t k = 0; k < n; k++)
            if (kth(&v, k) != kth(&o, k))
                fail_msg("element %d moved (BERTH_SEED=%llu)", (int)k, (unsigned long long)seed);
    }
    assert_true(done > 100 && refused > 100); /* both roads were walked */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_checks_the_memory),         cmocka_unit_test(at_checks_every_index),
        cmocka_unit_test(permute_moves_dimensions),       cmocka_unit_test(slice_keeps_a_range),
        cmocka_unit_test(reshape_where_strides_allow),    cmocka_unit_test(quants_move_in_blocks),
        cmocka_unit_test(random_reshapes_keep_the_order),
    };
    return cmocka_run_group_tests(tests, fill_cells, NULL);
}
