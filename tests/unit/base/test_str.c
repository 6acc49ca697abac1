#include "support/oom.h"
#include "support/test.h"

#include "base/str.h"
#include "base/utf8.h"

static void grows_and_stays_terminated(void **state)
{
    (void)state;
    struct str s = { 0 };
    assert_string_equal(str_c(&s), "");
    str_adds(&s, "abc");
    str_addc(&s, 'd');
    str_add(&s, "efgh", 2);
    str_add(&s, NULL, 0);
    str_addf(&s, "-%d", 12);
    assert_string_equal(s.p, "abcdef-12");
    assert_int_equal(s.n, 9);
    str_pad(&s, '.', 12);
    str_pad(&s, '.', 3); /* long enough already */
    assert_string_equal(s.p, "abcdef-12...");
    for (int i = 0; i < 1000; i++)
        str_addf(&s, "%d,", i);
    assert_int_equal(strlen(s.p), s.n);
    assert_non_null(strstr(s.p, ",999,"));
    str_clear(&s);
    assert_string_equal(s.p, "");
    str_addf(&s, "%*d", 5000, 1);
    assert_int_equal(s.n, 5000);
    str_release(&s);
    assert_null(s.p);
}

static void take_moves_ownership(void **state)
{
    (void)state;
    struct str s = { 0 };
    char *empty = str_take(&s);
    assert_string_equal(empty, "");
    free(empty);
    str_adds(&s, "text");
    char *p = str_take(&s);
    assert_string_equal(p, "text");
    assert_null(s.p);
    free(p);
}

static void failure_is_sticky(void **state)
{
    (void)state;
    struct str s = { 0 };
    str_adds(&s, "kept");
    oom_after(0);
    str_pad(&s, 'x', 100000);
    assert_true(s.bad);
    oom_off();
    str_adds(&s, "more");
    str_addf(&s, "%d", 1);
    str_addc(&s, 'c');
    assert_string_equal(s.p, "kept");
    assert_null(str_take(&s)); /* and frees */
    assert_null(s.p);

    str_adds(&s, "a");
    s.n = SIZE_MAX - 1; /* a length that cannot grow */
    str_add(&s, "bc", 2);
    assert_true(s.bad);
    s.n = 1;
    str_clear(&s);
    assert_false(s.bad);
    str_release(&s);

    oom_after(0);
    str_addf(&s, "%d", 12345);
    oom_off();
    assert_true(s.bad);
    assert_string_equal(str_c(&s), "");
    assert_null(str_take(&s));
}

static void formatting_failure_leaves_no_tail(void **state)
{
    (void)state;
    struct str s = { 0 };
    str_adds(&s, "start");
    oom_after(0);
    str_addf(&s, "%200d", 1); /* does not fit into what is there */
    oom_off();
    assert_true(s.bad);
    assert_string_equal(s.p, "start");
    str_release(&s);
}

static void comparing(void **state)
{
    (void)state;
    assert_true(str_eq("abc", 3, "abc"));
    assert_false(str_eq("abcd", 3, "abcd"));
    assert_false(str_eq("abc", 2, "abc"));
    assert_true(str_eq(NULL, 0, ""));
    assert_true(str_starts("abc", 3, "ab"));
    assert_true(str_starts("abc", 3, ""));
    assert_false(str_starts("abc", 2, "abc"));
    assert_true(str_ends("abc", 3, "bc"));
    assert_false(str_ends("abc", 2, "bc"));
    assert_true(str_ends(NULL, 0, ""));
}

static void utf8_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        bool ok;
    } t[] = {
        { "", true },
        { "plain", true },
        { "\xc2\x80", true },
        { "\xdf\xbf", true },
        { "\xe0\xa0\x80", true },
        { "\xed\x9f\xbf", true },
        { "\xee\x80\x80", true },
        { "\xef\xbf\xbf", true },
        { "\xf0\x90\x80\x80", true },
        { "\xf4\x8f\xbf\xbf", true },
        { "\x80", false },
        { "\xbf", false },
        { "\xc0\x80", false },         /* overlong */
        { "\xc1\xbf", false },         /* overlong */
        { "\xe0\x9f\xbf", false },     /* overlong */
        { "\xf0\x8f\xbf\xbf", false }, /* overlong */
        { "\xed\xa0\x80", false },     /* surrogate */
        { "\xed\xbf\xbf", false },     /* surrogate */
        { "\xf4\x90\x80\x80", false }, /* above U+10FFFF */
        { "\xf5\x80\x80\x80", false },
        { "\xfe", false },
        { "\xff", false },
        { "\xc2", false },
        { "\xe2\x82", false },
        { "\xf0\x9f\x8c", false },
        { "\xc2\x41", false },
        { "\xe2\x82\x41", false },
        { "ab\xf0\x9f\x8c\x8d"
          "cd\x80",
          false },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        if (str_is_utf8(t[i].s, strlen(t[i].s)) != t[i].ok)
            fail_msg("case %zu", i);
    assert_true(str_is_utf8("a\0b", 3)); /* U+0000 is a character */
}

/* Against the definition: encode every code point, and count what two bytes can be. */
static void utf8_over_everything(void **state)
{
    (void)state;
    size_t good = 0;
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++) {
            char s[2] = { (char)a, (char)b };
            good += str_is_utf8(s, 2);
        }
    assert_int_equal(good, 128 * 128 + (0x800 - 0x80));
    good = 0;
    for (unsigned a = 0x80; a < 256; a++)
        for (unsigned b = 0; b < 256; b++)
            for (unsigned c = 0; c < 256; c++) {
                char s[3] = { (char)a, (char)b, (char)c };
                good += utf8_step(s, 3) == 3;
            }
    assert_int_equal(good, 0x10000 - 0x800 - 0x800);
    good = 0;
    for (unsigned a = 0xf0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++)
            for (unsigned c = 0; c < 256; c++) {
                char s[4] = { (char)a, (char)b, (char)c, (char)0x80 };
                good += utf8_step(s, 4) == 4;
            }
    assert_int_equal(good * 64, 0x110000 - 0x10000);
}

static void bytes_for_people(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        const char *text;
    } t[] = {
        { 0, "0 B" },
        { 1023, "1023 B" },
        { 1024, "1.00 KiB" },
        { 1029, "1.00 KiB" },
        { 1030, "1.01 KiB" },
        { 10234, "9.99 KiB" },
        { 10235, "10.0 KiB" },
        { 102348, "99.9 KiB" },
        { 102349, "100 KiB" },
        { 1023 * 1024, "1023 KiB" },
        { 1048575, "1.00 MiB" },
        { 1048576, "1.00 MiB" },
        { UINT64_C(25556232601), "23.8 GiB" },
        { UINT64_C(1) << 40, "1.00 TiB" },
        { UINT64_C(1) << 60, "1.00 EiB" },
        { UINT64_MAX, "16.0 EiB" },
    };
    char buf[STR_BYTES_MAX];
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_string_equal(str_bytes(t[i].n, buf), t[i].text);
    char other[STR_BYTES_MAX];
    str_bytes_two(1024, 2048, buf, other);
    assert_string_equal(buf, "1.00 KiB");
    assert_string_equal(other, "2.00 KiB");
    str_bytes_two(1029, 1029, buf, other);
    assert_string_equal(other, "1.00 KiB");
    str_bytes_two(UINT64_MAX, UINT64_MAX - 1, buf, other); /* the longest there are */
    assert_string_equal(buf, "18446744073709551615 B");
    assert_string_equal(other, "18446744073709551614 B");
}

static void parsing_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        uint64_t v;
    } good[] = {
        { "0", 0 },
        { "123", 123 },
        { "007", 7 },
        { "5b", 5 },
        { "5 B", 5 },
        { "1k", 1024 },
        { "1Kb", 1024 },
        { "1 KiB", 1024 },
        { "3m", 3 << 20 },
        { "3MIB", 3 << 20 },
        { "16g", UINT64_C(16) << 30 },
        { "2.5g", UINT64_C(2684354560) },
        { "0.1gb", 107374182 },
        { "0.3k", 307 },
        { "0.5", 0 },
        { "0.9999b", 0 },
        { "1.999", 1 },
        { "0.99999999999999999999999999999999999999g", (UINT64_C(1) << 30) - 1 },
        { "1.0000000000000000000000000000000000000000001k", 1024 },
        { "0.0009765625k", 1 },
        { "0.00097656249999999999999999999999999999999k", 0 },
        { "18446744073709551615", UINT64_MAX },
        { "17179869183.999999999999999g", UINT64_MAX },
        { "00000000000000000000000000001", 1 },
    };
    static const char *const bad[] = {
        "",
        " ",
        "g",
        ".5g",
        "5.",
        "5.g",
        "1e3",
        "-1",
        "+1",
        "5 gigs",
        "5  g",
        " 5g",
        "5g ",
        "5 ",
        "0x10",
        "1,5g",
        "5gg",
        "5gbb",
        "5bb",
        "5bib",
        "5ib",
        "5t",
        "1.2.3",
        "5kg",
        "5\tg",
        "1 0",
        "infinity",
        "nan",
        "1.5.g",
        "5k i b",
        "\xff",
        "1 gi",
        "18446744073709551616",
        "17179869184g",
        "99999999999999999999999999999",
        "18014398509481984k",
    };
    uint64_t v;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!str_parse_bytes(good[i].s, strlen(good[i].s), &v) || v != good[i].v)
            fail_msg("'%s'", good[i].s);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (str_parse_bytes(bad[i], strlen(bad[i]), &v))
            fail_msg("'%s' was taken", bad[i]);
    assert_true(str_parse_bytes("12345", 2, &v) && v == 12); /* the length counts */
    assert_false(str_parse_bytes("5\0g", 3, &v));
}

static void parsing_integers(void **state)
{
    (void)state;
    uint64_t v = 1;
    assert_true(str_parse_u64("0", 1, &v) && v == 0);
    assert_true(str_parse_u64("18446744073709551615", 20, &v) && v == UINT64_MAX);
    assert_false(str_parse_u64("18446744073709551616", 20, &v));
    assert_false(str_parse_u64("184467440737095516150", 21, &v));
    assert_false(str_parse_u64("", 0, &v));
    assert_false(str_parse_u64("-1", 2, &v));
    assert_false(str_parse_u64("+1", 2, &v));
    assert_false(str_parse_u64(" 1", 2, &v));
    assert_false(str_parse_u64("1a", 2, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(take_moves_ownership),
        cmocka_unit_test(failure_is_sticky),
        cmocka_unit_test(formatting_failure_leaves_no_tail),
        cmocka_unit_test(comparing),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(utf8_over_everything),
        cmocka_unit_test(bytes_for_people),
        cmocka_unit_test(parsing_bytes),
        cmocka_unit_test(parsing_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
