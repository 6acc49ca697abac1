#include "support/test.h"

#include "tensor/shape.h"

static void counts_with_overflow_and_zeros(void **state)
{
    (void)state;
    static const struct {
        struct shape s;
        bool fits;
        uint64_t n;
    } cases[] = {
        { { 0, { 0 } }, true, 1 }, /* a scalar */
        { { 1, { 0 } }, true, 0 },
        { { 3, { 64, 3, 3 } }, true, 576 },
        { { 1, { UINT64_MAX } }, true, UINT64_MAX },
        { { 2, { UINT64_C(1) << 32, UINT64_C(1) << 32 } }, false, 0 },
        { { 2, { UINT64_MAX, 0 } }, true, 0 },
        { { 3, { 0, UINT64_MAX, 2 } }, false, 0 }, /* too large beside a zero, in any order */
        { { 3, { UINT64_MAX, 2, 0 } }, false, 0 },
        { { 8, { 2, 2, 2, 2, 2, 2, 2, 2 } }, true, 256 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t n = 12345;
        assert_int_equal(shape_count(&cases[i].s, &n), cases[i].fits);
        if (cases[i].fits)
            assert_true(n == cases[i].n);
    }
}

static void inner_dimensions(void **state)
{
    (void)state;
    const struct shape s = { 4, { 2, 3, 5, 7 } };
    assert_int_equal(shape_inner(&s, 0), 210);
    assert_int_equal(shape_inner(&s, 2), 35);
    assert_int_equal(shape_inner(&s, 4), 1);
}

static void equality(void **state)
{
    (void)state;
    struct shape a = { 2, { 4, 5 } }, b = { 2, { 4, 5 } }, c = { 3, { 4, 5, 1 } };
    assert_true(shape_eq(&a, &b));
    assert_false(shape_eq(&a, &c));
    b.dim[1] = 6;
    assert_false(shape_eq(&a, &b));
    assert_true(shape_eq(&(struct shape) { 0 }, &(struct shape) { 0 }));
}

static void text(void **state)
{
    (void)state;
    char buf[SHAPE_TEXT_MAX];
    assert_string_equal(shape_text(&(struct shape) { 3, { 64, 3, 0 } }, buf), "[64, 3, 0]");
    assert_string_equal(shape_text(&(struct shape) { 0 }, buf), "[]");
    struct shape s = { SHAPE_MAX_DIMS, { 0 } };
    for (int i = 0; i < SHAPE_MAX_DIMS; i++)
        s.dim[i] = UINT64_MAX;
    assert_int_equal(strlen(shape_text(&s, buf)), 1 + 8 * 20 + 7 * 2 + 1);
    assert_true(strlen(buf) < sizeof buf);
    assert_non_null(strstr(buf, "[18446744073709551615, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_with_overflow_and_zeros),
        cmocka_unit_test(inner_dimensions),
        cmocka_unit_test(equality),
        cmocka_unit_test(text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
