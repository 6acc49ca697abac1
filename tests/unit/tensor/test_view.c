/* Views: strides against plain index arithmetic, and every refusal. */
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
    assert_true(a < v->shape.dim[0] && b < v->shape.dim[1] && c < v->shape.dim[2]);
    const char *p = (const char *)v->data + a * v->stride[0] + b * v->stride[1] + c * v->stride[2];
    return *(const uint16_t *)(const void *)p;
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
    assert_ok(view_permute(&v, (int[]) { 1, 0, 2 }, &o, &err), err);
    assert_fails(view_permute(&v, (int[]) { 0, 2, 1 }, &o, &err), err, BERTH_EUNSUPPORTED, "Q8_0");
    assert_fails(view_slice(&v, 2, 16, 48, &o, &err), err, BERTH_EINVAL, "blocks of Q8_0");
    assert_ok(view_slice(&v, 2, 32, 96, &o, &err), err);
    assert_ptr_equal(o.data, bytes + 34);
    assert_int_equal(view_span(&o), 2 * 408 + 3 * 102 + 34 + 34);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_checks_the_memory),
        cmocka_unit_test(permute_moves_dimensions),
        cmocka_unit_test(slice_keeps_a_range),
        cmocka_unit_test(quants_move_in_blocks),
    };
    return cmocka_run_group_tests(tests, fill_cells, NULL);
}
