#include "support/test.h"

#include "base/rd.h"
#include "base/sz.h"

static void sizes_say_when_they_do_not_fit(void **state)
{
    (void)state;
    size_t n;
    assert_true(sz_mul(3, 4, &n) && n == 12);
    assert_true(sz_mul(SIZE_MAX, 1, &n) && n == SIZE_MAX);
    assert_false(sz_mul(SIZE_MAX, 2, &n));
    assert_false(sz_mul((size_t)1 << 32, (size_t)1 << 32, &n));
    assert_true(sz_add(SIZE_MAX - 1, 1, &n) && n == SIZE_MAX);
    assert_false(sz_add(SIZE_MAX, 1, &n));
    assert_true(sz_align(0, 16, &n) && n == 0);
    assert_true(sz_align(1, 16, &n) && n == 16);
    assert_true(sz_align(16, 16, &n) && n == 16);
    assert_true(sz_align(SIZE_MAX - 15, 16, &n) && n == SIZE_MAX - 15);
    assert_false(sz_align(SIZE_MAX - 14, 16, &n));
    assert_true(sz_from_u64(7, &n) && n == 7);
    assert_true(sz_is_pow2(1) && sz_is_pow2(4096));
    assert_false(sz_is_pow2(0) || sz_is_pow2(3));
}

static void cursor_reads_little_endian(void **state)
{
    (void)state;
    static const uint8_t b[] = { 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a,
                                 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0,    0,    0x80, 0x3f, 0,
                                 0,    0,    0,    0,    0,    0xf0, 0xbf, 'x' };
    struct rd r = rd_init(b, sizeof b);
    assert_int_equal(rd_u8(&r), 1);
    assert_int_equal(rd_u16le(&r), 0x0302);
    assert_int_equal(rd_u32le(&r), 0x07060504);
    assert_true(rd_u64le(&r) == UINT64_C(0x0f0e0d0c0b0a0908));
    assert_true(rd_f32le(&r) == 1.0f);
    assert_true(rd_f64le(&r) == -1.0);
    assert_int_equal(rd_left(&r), 1);
    assert_int_equal(*rd_take(&r, 1), 'x');
    assert_int_equal(rd_left(&r), 0);
    assert_false(r.bad);
}

static void cursor_is_sticky(void **state)
{
    (void)state;
    static const uint8_t b[] = { 1, 2, 3 };
    struct rd r = rd_init(b, sizeof b);
    assert_int_equal(rd_u32le(&r), 0);
    assert_true(r.bad);
    assert_int_equal(rd_left(&r), 0);
    assert_int_equal(rd_u8(&r), 0); /* although a byte is there */
    assert_null(rd_take(&r, 0));

    r = rd_init(b, sizeof b);
    assert_null(rd_take(&r, SIZE_MAX));
    assert_true(r.bad);

    r = rd_init(NULL, 0);
    assert_int_equal(rd_left(&r), 0);
    assert_int_equal(rd_u8(&r), 0);
    assert_true(r.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_say_when_they_do_not_fit),
        cmocka_unit_test(cursor_reads_little_endian),
        cmocka_unit_test(cursor_is_sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
