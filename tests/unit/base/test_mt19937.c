/* mt19937 and crc32 against numbers everybody knows. */
#include "support/test.h"

#include "base/hash.h"
#include "base/mt19937.h"

static void ten_thousandth_word(void **state)
{
    (void)state;
    struct mt19937 g;
    mt19937_init(&g, 5489); /* the default seed: the C++ standard names the 10,000th number */
    uint32_t x = 0;
    for (int i = 0; i < 10000; i++)
        x = mt19937_u32(&g);
    assert_int_equal(x, 4123659995u);
    mt19937_init(&g, 0); /* numpy.random.RandomState(0) */
    assert_int_equal(mt19937_u32(&g), 2357136044u);
    assert_int_equal(mt19937_u32(&g), 2546248239u);
}

static void pieces_make_the_same_row(void **state)
{
    (void)state;
    struct mt19937 a, b;
    uint32_t one[2000], many[2000];
    mt19937_init(&a, 42);
    mt19937_init(&b, 42);
    mt19937_fill(&a, one, 2000);
    size_t at = 0;
    for (size_t n = 1; at < 2000; n = n * 3 + 1) {
        size_t now = 2000 - at < n ? 2000 - at : n;
        mt19937_fill(&b, many + at, now);
        at += now;
    }
    assert_memory_equal(one, many, sizeof one);
    assert_int_equal(mt19937_u32(&a), mt19937_u32(&b));
}

static void crc_check_value(void **state)
{
    (void)state;
    assert_int_equal(crc32_of(0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(crc32_of(crc32_of(0, "1234", 4), "56789", 5), 0xcbf43926u);
    assert_int_equal(crc32_of(0, NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousandth_word),
        cmocka_unit_test(pieces_make_the_same_row),
        cmocka_unit_test(crc_check_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
