#include "support/test.h"

#include "base/jstok.h"

#include <math.h>

/* The walk as letters: n t f numbers i r, s string, k key, [ ] { }, . end, ! error. */
static void walk(const char *text, size_t len, unsigned depth, char *out, struct jstok *t)
{
    static const char letter[] = "!.ntfirsk[]{}";
    enum jstok_type type;
    size_t n = 0;
    jstok_init(t, text, len, depth);
    do {
        type = jstok_next(t);
        out[n++] = letter[type];
    } while (type > JSTOK_END && n < 60);
    out[n] = '\0';
}

static void takes_json(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } t[] = {
        { "null", "n." },
        { " true ", "t." },
        { "\t\r\n false\n", "f." },
        { "0", "i." },
        { "-0", "i." },
        { "-12", "i." },
        { "123456789012345678901234567890", "i." },
        { "0.5", "r." },
        { "-0.0", "r." },
        { "1e5", "r." },
        { "1E+5", "r." },
        { "0e-0", "r." },
        { "1.25e-300", "r." },
        { "\"\"", "s." },
        { "\"a b\"", "s." },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\ude00\"", "s." },
        { "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8d \x7f\"", "s." },
        { "[]", "[]." },
        { "[ ]", "[]." },
        { "{}", "{}." },
        { " { } ", "{}." },
        { "[1]", "[i]." },
        { "[1,\"a\",null,[true,false],{}]", "[isn[tf]{}]." },
        { "{\"a\":1}", "{ki}." },
        { "{\"a\" : 1 , \"b\":[ ],\"c\":{\"d\":0.5}}", "{kik[]k{kr}}." },
        { "{\"\":0}", "{ki}." },
        { "[{},[1,2],{\"a\":1,\"b\":[1,{}]},[3,4]]", "[{}[ii]{kik[i{}]}[ii]]." },
        { "[[[[[[[[]]]]]]]]", "[[[[[[[[]]]]]]]]." },
        { "{\"a\":{\"a\":{\"a\":[{\"a\":[]}]}}}", "{k{k{k[{k[]}]}}}." },
        { "{\"a\":1,\"a\":2}", "{kiki}." }, /* duplicates are the caller's to judge */
    };
    char got[64];
    struct jstok k;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        walk(t[i].text, strlen(t[i].text), 64, got, &k);
        assert_string_equal(got, t[i].want);
        assert_int_equal(jstok_next(&k), JSTOK_END); /* the end stays the end */
    }
}

static void refuses_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n; /* 0: strlen */
        size_t at;
        const char *what;
    } t[] = {
        { "", 0, 0, "empty" },
        { "  ", 0, 2, "ends early" },
        { "\xef\xbb\xbf{}", 0, 0, "byte order mark" },
        { "nul", 0, 0, "expected a value" },
        { "nulL", 0, 0, "expected a value" },
        { "True", 0, 0, "expected a value" },
        { "NaN", 0, 0, "expected a value" },
        { "Infinity", 0, 0, "expected a value" },
        { "-Infinity", 0, 1, "expected a digit" },
        { "-", 0, 1, "ends early" },
        { "+1", 0, 0, "expected a value" },
        { ".5", 0, 0, "expected a value" },
        { "01", 0, 0, "leading zero" },
        { "-01", 0, 1, "leading zero" },
        { "00", 0, 0, "leading zero" },
        { "1.", 0, 2, "ends early" },
        { "1.e5", 0, 2, "digit behind '.'" },
        { "1e", 0, 2, "ends early" },
        { "1e+", 0, 3, "ends early" },
        { "1ex", 0, 2, "exponent" },
        { "0x10", 0, 1, "more text" },
        { "1 2", 0, 2, "more text" },
        { "nullx", 0, 4, "more text" },
        { "{} {}", 0, 3, "more text" },
        { "[] ,", 0, 3, "more text" },
        { "1\0", 2, 1, "more text" },
        { "\"abc", 0, 4, "ends inside a string" },
        { "\"", 0, 1, "ends inside a string" },
        { "\"abcdefghijklmnop", 0, 17, "ends inside a string" },
        { "\"a\nb\"", 0, 2, "control character" },
        { "\"a\tb\"", 0, 2, "control character" },
        { "\"a\0b\"", 5, 2, "control character" },
        { "\"0123456789abcdef\x1f\"", 0, 17, "control character" },
        { "\"\\x\"", 0, 1, "malformed escape" },
        { "\"\\u12g4\"", 0, 1, "malformed escape" },
        { "\"\\u123\"", 0, 1, "malformed escape" },
        { "\"\\u12", 0, 1, "malformed escape" },
        { "\"\\", 0, 1, "malformed escape" },
        { "\"\\'\"", 0, 1, "malformed escape" },
        { "\"\\U0041\"", 0, 1, "malformed escape" },
        { "\"\x80\"", 0, 1, "malformed UTF-8" },
        { "\"\xc3\"", 0, 1, "malformed UTF-8" },
        { "\"\xc0\xaf\"", 0, 1, "malformed UTF-8" },
        { "\"\xed\xa0\x80\"", 0, 1, "malformed UTF-8" },
        { "\"abc\xf5\x80\x80\x80\"", 0, 4, "malformed UTF-8" },
        { "\"\xe2\x82", 0, 1, "malformed UTF-8" },
        { "'a'", 0, 0, "expected a value" },
        { "[", 0, 1, "ends early" },
        { "[1", 0, 2, "ends early" },
        { "[1,", 0, 3, "ends early" },
        { "[1,]", 0, 3, "expected a value" },
        { "[,1]", 0, 1, "expected a value" },
        { "[1 2]", 0, 3, "expected ',' or ']'" },
        { "[1}", 0, 2, "expected ',' or ']'" },
        { "[}", 0, 1, "expected a value" },
        { "]", 0, 0, "expected a value" },
        { "[1]]", 0, 3, "more text" },
        { "[/*x*/1]", 0, 1, "expected a value" },
        { "{", 0, 1, "ends early" },
        { "{\"a\"", 0, 4, "ends early" },
        { "{\"a\":", 0, 5, "ends early" },
        { "{\"a\":1", 0, 6, "ends early" },
        { "{\"a\":1,", 0, 7, "ends early" },
        { "{\"a\":1,}", 0, 7, "key in double quotes" },
        { "{,}", 0, 1, "key in double quotes" },
        { "{a:1}", 0, 1, "key in double quotes" },
        { "{1:1}", 0, 1, "key in double quotes" },
        { "{\"a\" 1}", 0, 5, "expected ':'" },
        { "{\"a\",1}", 0, 4, "expected ':'" },
        { "{\"a\"::1}", 0, 5, "expected a value" },
        { "{\"a\":}", 0, 5, "expected a value" },
        { "{\"a\":1 \"b\":2}", 0, 7, "expected ',' or '}'" },
        { "{\"a\":1]", 0, 6, "expected ',' or '}'" },
        { "{]", 0, 1, "key in double quotes" },
        { "\v1", 0, 0, "expected a value" },
        { "\xc2\xa0"
          "1",
          0, 0, "expected a value" },
        { "[[[[[[[[[1]]]]]]]]]", 0, 8, "too deeply" },
    };
    char got[64];
    struct jstok k;
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        size_t n = t[i].n ? t[i].n : strlen(t[i].text);
        walk(t[i].text, n, 8, got, &k);
        if (got[strlen(got) - 1] != '!')
            fail_msg("'%s' was taken: %s", t[i].text, got);
        assert_int_equal(jstok_next(&k), JSTOK_ERROR); /* sticky */
        assert_false(jstok_skip(&k));
        assert_int_equal(jstok_fail(&k, "not this", &err), BERTH_EFORMAT);
        if (!strstr(err.msg, t[i].what) || k.tok != t[i].at)
            fail_msg("'%s': at %zu: %s", t[i].text, k.tok, err.msg);
    }
}

/* Every place in a string where something ends a run of plain bytes, in and around 8-byte steps. */
static void strings_of_every_length(void **state)
{
    (void)state;
    static const char *const odd[] = { "", "\\n", "\xc3\xa9", "\xe2\x82\xac", "\\u20ac" };
    for (size_t before = 0; before < 24; before++)
        for (size_t after = 0; after < 24; after++)
            for (size_t o = 0; o < ARRAY_LEN(odd); o++) {
                char text[128], *copy;
                int n = snprintf(text, sizeof text, "\"%.*s%s%.*s\"", (int)before,
                                 "abcdefghijklmnopqrstuvwxyz", odd[o], (int)after,
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
                copy = malloc((size_t)n); /* exact, for ASan */
                memcpy(copy, text, (size_t)n);
                struct jstok t;
                jstok_init(&t, copy, (size_t)n, 1);
                assert_int_equal(jstok_next(&t), JSTOK_STRING);
                assert_int_equal(t.n, n - 2);
                assert_int_equal(t.has_escape, odd[o][0] == '\\');
                assert_int_equal(jstok_next(&t), JSTOK_END);
                for (int cut = 0; cut < n; cut++) {
                    jstok_init(&t, copy, (size_t)cut, 1);
                    assert_int_equal(jstok_next(&t), JSTOK_ERROR);
                }
                free(copy);
            }
}

/* Bytes that may not be in a string, at every place of one: found, and found there. */
static void bad_bytes_everywhere(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        if (c >= ' ' && c < 0x80 && c != '\\')
            continue;
        for (size_t at = 0; at < 39; at++) { /* behind it an x, which no escape has */
            char text[42];
            memset(text, 'x', sizeof text);
            text[0] = text[41] = '"';
            text[at + 1] = (char)c;
            struct jstok t;
            jstok_init(&t, text, sizeof text, 1);
            if (jstok_next(&t) != JSTOK_ERROR || t.tok != at + 1)
                fail_msg("byte %02x at %zu", c, at);
        }
    }
}

static void positions(void **state)
{
    (void)state;
    struct jstok t;
    berth_err err = { 0 };
    const char *text = "{\n  \"a\": 1,\n  \"\xc3\xa9\": oops,\n}";
    jstok_init(&t, text, strlen(text), 8);
    while (jstok_next(&t) != JSTOK_ERROR)
        ;
    jstok_fail(&t, NULL, &err);
    assert_string_equal(err.msg, "line 3, column 8, byte 20: expected a value near 'oops,'");

    jstok_init(&t, text, strlen(text), 8);
    assert_int_equal(jstok_next(&t), JSTOK_OBJECT);
    assert_int_equal(jstok_next(&t), JSTOK_KEY);
    assert_int_equal(t.tok, 4);
    assert_int_equal(jstok_next(&t), JSTOK_INT);
    jstok_fail(&t, "too small", &err);
    assert_string_equal(err.msg, "line 2, column 8, byte 9: too small near '1,'");

    text = "[1, 2";
    jstok_init(&t, text, strlen(text), 8);
    while (jstok_next(&t) != JSTOK_ERROR)
        ;
    jstok_fail(&t, NULL, &err);
    assert_string_equal(err.msg, "line 1, column 6, byte 5: the text ends early");

#define EURO "\xe2\x82\xac"
    text = "[\033[31m" EURO EURO EURO EURO EURO EURO EURO "]";
    jstok_init(&t, text, strlen(text), 8);
    while (jstok_next(&t) != JSTOK_ERROR)
        ;
    jstok_fail(&t, NULL, &err); /* no control characters, no half character */
    assert_string_equal(strstr(err.msg, "near"), "near '?[31m" EURO EURO EURO EURO EURO EURO "'");
}

static struct jstok one(const char *text, enum jstok_type want)
{
    struct jstok t;
    jstok_init(&t, text, strlen(text), 1);
    assert_int_equal(jstok_next(&t), want);
    return t;
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool i_ok, u_ok;
        int64_t i;
        uint64_t u;
    } t[] = {
        { "0", true, true, 0, 0 },
        { "-0", true, true, 0, 0 },
        { "-1", true, false, -1, 0 },
        { "42", true, true, 42, 42 },
        { "9223372036854775807", true, true, INT64_MAX, INT64_MAX },
        { "9223372036854775808", false, true, 0, UINT64_C(1) << 63 },
        { "-9223372036854775808", true, false, INT64_MIN, 0 },
        { "-9223372036854775809", false, false, 0, 0 },
        { "18446744073709551615", false, true, 0, UINT64_MAX },
        { "18446744073709551616", false, false, 0, 0 },
        { "99999999999999999999999", false, false, 0, 0 },
        { "-99999999999999999999999", false, false, 0, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct jstok k = one(t[i].text, JSTOK_INT);
        int64_t s = 0;
        uint64_t u = 0;
        if (jstok_i64(&k, &s) != t[i].i_ok || s != t[i].i || jstok_u64(&k, &u) != t[i].u_ok ||
            u != t[i].u)
            fail_msg("%s", t[i].text);
    }
    struct jstok k = one("1.0", JSTOK_REAL);
    int64_t s;
    assert_false(jstok_i64(&k, &s));
    k = one("null", JSTOK_NULL);
    assert_false(jstok_i64(&k, &s));
}

static void reals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double v;
    } t[] = {
        { "0", 0.0 },
        { "0.0", 0.0 },
        { "0e999999999999999999999", 0.0 },
        { "1", 1.0 },
        { "0.1", 0.1 },
        { "-0.1", -0.1 },
        { "3.14159265358979323846", 3.14159265358979323846 },
        { "1e22", 1e22 },
        { "1e23", 1e23 }, /* not exact */
        { "123456789012345678", 123456789012345678.0 },
        { "18446744073709551615", 18446744073709551615.0 },
        { "9007199254740993", 9007199254740992.0 }, /* tie to even */
        { "9007199254740993.0000000000000000000000000000001", 9007199254740994.0 },
        { "1.7976931348623157e308", 1.7976931348623157e308 },
        { "4.9406564584124654e-324", 4.9406564584124654e-324 },
        { "2.4703282292062327e-324", 0.0 }, /* below half of the smallest */
        { "2.4703282292062328e-324", 4.9406564584124654e-324 },
        { "1e-400", 0.0 },
        { "1e-99999999999999999999", 0.0 },
        { "2.2250738585072011e-308", 2.2250738585072011e-308 },
        { "2.2250738585072014e-308", 2.2250738585072014e-308 },
        { "0.000000000000000000000000000001e30", 1.0 },
        { "1000000000000000000000000000000e-30", 1.0 },
        { "00", 0 }, /* ends the list */
    };
    for (size_t i = 0; strcmp(t[i].text, "00") != 0; i++) {
        struct jstok k = one(t[i].text, strpbrk(t[i].text, ".e") ? JSTOK_REAL : JSTOK_INT);
        double v = -1;
        if (!jstok_f64(&k, &v) || v != t[i].v)
            fail_msg("%s: %.17g", t[i].text, v);
    }
    double v;
    struct jstok k = one("-0.0", JSTOK_REAL);
    assert_true(jstok_f64(&k, &v) && v == 0 && signbit(v));
    static const char *const large[] = { "1e309", "-1e309", "1.7976931348623159e308",
                                         "1e99999999999999999999" };
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        k = one(large[i], JSTOK_REAL);
        assert_false(jstok_f64(&k, &v));
    }
}

/* Numbers with thousands of digits: only the place of the point and "is anything behind" matter. */
static void long_reals(void **state)
{
    (void)state;
    enum { N = 5000 };
    char text[N + 64];
    double v;
    struct jstok k;
    /* 2^53 + 1 is a tie; zeros behind keep it one, a 1 at the very end breaks it. */
    int n = snprintf(text, sizeof text, "9007199254740993.");
    memset(text + n, '0', N);
    snprintf(text + n + N, 2, "0");
    k = one(text, JSTOK_REAL);
    assert_true(jstok_f64(&k, &v) && v == 9007199254740992.0);
    snprintf(text + n + N, 2, "1");
    k = one(text, JSTOK_REAL);
    assert_true(jstok_f64(&k, &v) && v == 9007199254740994.0);
    /* a one, N zeros, and an exponent that takes them back */
    text[0] = '1';
    memset(text + 1, '0', N);
    snprintf(text + 1 + N, 16, "e-%d", N);
    k = one(text, JSTOK_REAL);
    assert_true(jstok_f64(&k, &v) && v == 1.0);
    /* 0.000...01e5001 */
    memcpy(text, "0.", 2);
    memset(text + 2, '0', N);
    snprintf(text + 2 + N, 16, "1e%d", N + 1);
    k = one(text, JSTOK_REAL);
    assert_true(jstok_f64(&k, &v) && v == 1.0);
}

static void assert_decodes(const char *text, const char *want, size_t want_n, bool want_nul)
{
    struct jstok k = one(text, JSTOK_STRING);
    char *buf = malloc(k.n ? k.n : 1); /* exactly what the contract says is enough */
    size_t n;
    bool nul;
    assert_true(jstok_decode(&k, buf, &n, &nul));
    assert_int_equal(n, want_n);
    assert_memory_equal(buf, want, n);
    assert_int_equal(nul, want_nul);
    assert_true(jstok_decode(&k, buf, &n, NULL));
    free(buf);
}

static void decoding(void **state)
{
    (void)state;
    assert_decodes("\"\"", "", 0, false);
    assert_decodes("\"abc\"", "abc", 3, false);
    assert_decodes("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8, false);
    assert_decodes("\"a\\u0041b\\u00e9c\\u20acd\"",
                   "aAb\xc3\xa9"
                   "c\xe2\x82\xac"
                   "d",
                   10, false);
    assert_decodes("\"\\ud83d\\udE00\"", "\xf0\x9f\x98\x80", 4, false);
    assert_decodes("\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf", 4, false);
    assert_decodes("\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"",
                   "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf", 11, false);
    assert_decodes("\"a\\u0000b\"", "a\0b", 3, true);
    assert_decodes("\"\\u0000\"", "\0", 1, true);

    static const char *const lone[] = { "\"\\udc00\\udc00\"", "\"\\ud800\"",        "\"\\udc00\"",
                                        "\"\\udc00\\ud800\"", "\"\\ud800\\u0041\"", "\"\\ud800x\"",
                                        "\"\\ud800\\ud800\"", "\"\\ud800\\n\"",     "\"\\udfff\"" };
    for (size_t i = 0; i < ARRAY_LEN(lone); i++) {
        struct jstok k = one(lone[i], JSTOK_STRING);
        char buf[32];
        size_t n;
        if (jstok_decode(&k, buf, &n, NULL))
            fail_msg("%s was decoded", lone[i]);
    }
    struct jstok k;
    jstok_init(&k, "{\"k\\u0065y\":1}", 14, 4);
    jstok_next(&k);
    assert_int_equal(jstok_next(&k), JSTOK_KEY);
    char buf[16];
    size_t n;
    assert_true(jstok_decode(&k, buf, &n, NULL) && n == 3 && memcmp(buf, "key", 3) == 0);
}

static void skipping(void **state)
{
    (void)state;
    const char *text = "{\"a\":[1,{\"x\":[]},\"]}\"],\"b\":{\"c\":1},\"d\":7}";
    struct jstok t;
    int64_t v;
    jstok_init(&t, text, strlen(text), 8);
    assert_int_equal(jstok_next(&t), JSTOK_OBJECT);
    assert_int_equal(jstok_next(&t), JSTOK_KEY);
    assert_true(jstok_skip(&t));
    assert_int_equal(jstok_next(&t), JSTOK_KEY);
    assert_true(jstok_skip(&t));
    assert_int_equal(jstok_next(&t), JSTOK_KEY);
    assert_int_equal(jstok_next(&t), JSTOK_INT);
    assert_true(jstok_i64(&t, &v) && v == 7);
    assert_int_equal(jstok_next(&t), JSTOK_OBJECT_END);
    assert_false(jstok_skip(&t)); /* there is none */

    jstok_init(&t, "[1,[2],3]", 9, 8);
    assert_int_equal(jstok_next(&t), JSTOK_ARRAY);
    assert_true(jstok_skip(&t) && jstok_skip(&t) && jstok_skip(&t));
    assert_false(jstok_skip(&t)); /* the end of the array is no value */
    assert_int_equal(jstok_next(&t), JSTOK_ERROR);

    jstok_init(&t, "[[1,x]]", 7, 8);
    assert_false(jstok_skip(&t));
    jstok_init(&t, "[[1,2]]", 7, 8);
    assert_true(jstok_skip(&t)); /* the whole text */
    assert_int_equal(jstok_next(&t), JSTOK_END);
}

static void depth_has_a_ceiling(void **state)
{
    (void)state;
    enum { N = 2000 };
    char text[2 * N];
    memset(text, '[', N);
    memset(text + N, ']', N);
    struct jstok t;
    for (unsigned max = 0; max < 600; max += 7) {
        jstok_init(&t, text, sizeof text, max);
        unsigned depth = 0;
        while (jstok_next(&t) == JSTOK_ARRAY)
            depth++;
        assert_int_equal(depth, max < JSTOK_DEPTH_MAX ? max : JSTOK_DEPTH_MAX);
        assert_true(t.too_deep);
    }
    jstok_init(&t, text + N - 512, 1024, 10000); /* exactly the ceiling */
    assert_true(jstok_skip(&t));
    assert_int_equal(jstok_next(&t), JSTOK_END);
    jstok_init(&t, NULL, 0, 4);
    assert_int_equal(jstok_next(&t), JSTOK_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_json),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(strings_of_every_length),
        cmocka_unit_test(bad_bytes_everywhere),
        cmocka_unit_test(positions),
        cmocka_unit_test(integers),
        cmocka_unit_test(reals),
        cmocka_unit_test(long_reals),
        cmocka_unit_test(decoding),
        cmocka_unit_test(skipping),
        cmocka_unit_test(depth_has_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
