#include "support/json_file.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "base/json.h"
#include "base/jstok.h"

#include <locale.h>
#include <math.h>

static json_t *parse_ok(const char *text)
{
    json_t *v = NULL;
    berth_err err = { 0 };
    assert_ok(js_parse(text, strlen(text), NULL, &v, &err), err);
    return v;
}

static void assert_writes(const char *text, int indent, const char *want)
{
    json_t *v = parse_ok(text);
    struct str out = { 0 };
    js_write(v, indent, &out);
    assert_false(out.bad);
    assert_string_equal(str_c(&out), want);
    str_release(&out);
    json_decref(v);
}

static void round_trips(void **state)
{
    (void)state;
    static const char *const same[] = {
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1.0",
        "-0.0",
        "0.1",
        "1e+22",
        "1.5e-07",
        "5e-324",
        "1.7976931348623157e+308",
        "0.30000000000000004",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "18446744073709551615",
        "\"\"",
        "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"",
        "\"\xc3\xa9\xf0\x9f\x8c\x8d\"",
        "[]",
        "{}",
        "[1,[2,[3,{}]],\"x\"]",
        "{\"z\":1,\"a\":2,\"m\":{\"q\":[],\"b\":null}}",
        "[18446744073709551615,1,1.0,\"1\"]",
        "{\"\":\"\"}",
        "\"\\u0085\"",
    };
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        assert_writes(same[i], 0, same[i]);
    assert_writes(" { \"a\" : [ 1 , 2.50 ] } ", 0, "{\"a\":[1,2.5]}");
    assert_writes("\"\\/\\u00e9\\u0041\"", 0,
                  "\"/\xc3\xa9"
                  "A\"");
    assert_writes("-0", 0, "0");
    assert_writes("1E2", 0, "100.0");
}

static void indents(void **state)
{
    (void)state;
    assert_writes("{\"a\":[1,{}],\"b\":{},\"c\":[]}", 2,
                  "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {},\n  \"c\": []\n}");
}

static void kinds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum js_kind kind;
    } t[] = {
        { "null", JS_NULL },
        { "true", JS_BOOL },
        { "false", JS_BOOL },
        { "1", JS_I64 },
        { "9223372036854775807", JS_I64 },
        { "9223372036854775808", JS_U64 },
        { "18446744073709551615", JS_U64 },
        { "1.0", JS_F64 },
        { "1e2", JS_F64 },
        { "\"1\"", JS_STRING },
        { "\"\"", JS_STRING },
        { "[]", JS_ARRAY },
        { "{}", JS_OBJECT },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        json_t *v = parse_ok(t[i].text);
        assert_int_equal(js_kind(v), t[i].kind);
        json_decref(v);
    }
}

static void numbers_convert_exactly_or_not(void **state)
{
    (void)state;
    int64_t i;
    uint64_t u;
    double f;
    json_t *v = js_u64(UINT64_MAX);
    assert_int_equal(js_kind(v), JS_U64);
    assert_false(js_get_i64(v, &i));
    assert_true(js_get_u64(v, &u) && u == UINT64_MAX);
    assert_true(js_get_f64(v, &f) && f == 18446744073709551616.0);
    json_decref(v);
    v = js_u64(5);
    assert_true(json_is_integer(v));
    assert_true(js_get_i64(v, &i) && i == 5);
    assert_true(js_get_u64(v, &u) && u == 5);
    assert_true(js_get_f64(v, &f) && f == 5);
    json_decref(v);
    v = parse_ok("-5");
    assert_true(js_get_i64(v, &i) && i == -5);
    assert_false(js_get_u64(v, &u));
    json_decref(v);
    v = parse_ok("2.0");
    assert_false(js_get_i64(v, &i));
    assert_false(js_get_u64(v, &u));
    assert_true(js_get_f64(v, &f) && f == 2.0);
    json_decref(v);
    v = parse_ok("\"18446744073709551615\""); /* text stays text */
    assert_false(js_get_u64(v, &u));
    assert_false(js_get_f64(v, &f));
    json_decref(v);
    assert_false(js_get_i64(NULL, &i) || js_get_u64(NULL, &u) || js_get_f64(NULL, &f));
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        berth_status code;
        const char *what;
    } t[] = {
        { "", BERTH_EFORMAT, "empty" },
        { "[1,]", BERTH_EFORMAT, "byte 3" },
        { "{\"a\":1,\"b\":2,\"a\":3}", BERTH_EFORMAT, "'a'" },
        { "{\"a\":1,\"\\u0061\":3}", BERTH_EFORMAT, "'a'" },
        { "{\"x\":{\"k\":1},\"y\":{\"k\":1,\"k\":1}}", BERTH_EFORMAT, "duplicate key" },
        { "\"\\u0000\"", BERTH_EFORMAT, "U+0000" },
        { "\"\\u00001\"", BERTH_EFORMAT, "U+0000" },
        { "{\"a\\u0000b\":1}", BERTH_EFORMAT, "U+0000" },
        { "\"\\ud800\"", BERTH_EFORMAT, "lone surrogate" },
        { "{\"\\udc00\":1}", BERTH_EFORMAT, "lone surrogate" },
        { "18446744073709551616", BERTH_EFORMAT, "integer out of range" },
        { "-9223372036854775809", BERTH_EFORMAT, "integer out of range" },
        { "[1,100000000000000000000000]", BERTH_EFORMAT, "byte 3" },
        { "1e400", BERTH_EFORMAT, "too large" },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        json_t *v = (void *)1;
        berth_err err = { 0 };
        assert_fails(js_parse(t[i].text, strlen(t[i].text), NULL, &v, &err), err, t[i].code,
                     t[i].what);
        assert_null(v);
    }
}

/* Requests: what JSON allows is taken as near as can be. What it does not allow, or what would look
 * like a tagged number, is refused all the same. */
static void loose(void **state)
{
    (void)state;
    static const struct {
        const char *text, *same; /* NULL: refused */
    } t[] = {
        { "18446744073709551615", "18446744073709551615" },
        { "18446744073709551616", "1.8446744073709552e+19" },
        { "-9223372036854775809", "-9.223372036854776e+18" },
        { "[1e400,-1e400]", "[1.7976931348623157e+308,-1.7976931348623157e+308]" },
        { "\"a\\ud800b\"", "\"a\xef\xbf\xbd"
                           "b\"" },
        { "\"\\udc00\\ud83d\\ude00\\ud800\\ud800\"",
          "\"\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "{\"\\ud800\":1}", "{\"\xef\xbf\xbd\":1}" },
        { "{\"\\ud800\":1,\"\\udfff\":2}", NULL },
        { "\"\\u0000\"", NULL },
        { "[NaN]", NULL },
        { "[1,]", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        json_t *v = NULL;
        struct str out = { 0 };
        berth_err err = { 0 };
        berth_status s = js_parse(t[i].text, strlen(t[i].text), &js_limits_loose, &v, &err);
        assert_int_equal(s, t[i].same ? BERTH_OK : BERTH_EFORMAT);
        if (!s) {
            js_write(v, 0, &out);
            assert_string_equal(str_c(&out), t[i].same);
        }
        str_release(&out);
        json_decref(v);
    }
    struct str digits = { 0 }; /* an integer as long as one likes */
    json_t *v = NULL;
    berth_err err = { 0 };
    str_pad(&digits, '9', 5000);
    assert_ok(js_parse(digits.p, digits.n, &js_limits_loose, &v, &err), err);
    assert_int_equal(js_kind(v), JS_F64);
    json_decref(v);
    str_release(&digits);
}

static void limits(void **state)
{
    (void)state;
    json_t *v;
    berth_err err = { 0 };
    struct js_limits lim = { .max_bytes = 10, .max_depth = 3, .max_values = 4 };
    assert_ok(js_parse("[1,[[]]]  ", 10, &lim, &v, &err), err);
    json_decref(v);
    assert_fails(js_parse("[1,[[]]]   ", 11, &lim, &v, &err), err, BERTH_ELIMIT, "11 bytes");
    assert_fails(js_parse("[[[[]]]]", 8, &lim, &v, &err), err, BERTH_ELIMIT, "too deeply");
    assert_fails(js_parse("[1,2,3,4]", 9, &lim, &v, &err), err, BERTH_ELIMIT, "4 JSON values");
    assert_ok(js_parse("[1,2,3]", 7, &lim, &v, &err), err);
    json_decref(v);
    lim = (struct js_limits) { .max_bytes = 4096, .max_depth = 100000, .max_values = 4096 };
    char deep[1026];
    memset(deep, '[', 513);
    memset(deep + 513, ']', 513);
    assert_fails(js_parse(deep, 1026, &lim, &v, &err), err, BERTH_ELIMIT, "too deeply");
    assert_ok(js_parse(deep + 1, 1024, &lim, &v, &err), err);
    struct str out = { 0 };
    js_write(v, 0, &out); /* as deep as reading goes */
    assert_false(out.bad);
    assert_int_equal(out.n, 1024);
    str_release(&out);
    json_decref(v);
}

static void order_is_kept(void **state)
{
    (void)state;
    struct str text = { 0 };
    str_addc(&text, '{');
    for (int i = 0; i < 500; i++)
        str_addf(&text, "%s\"%d\":%d", i ? "," : "", i * 7919 % 1000, i);
    str_addc(&text, '}');
    assert_writes(text.p, 0, text.p);
    str_release(&text);
}

static void writing_strings(void **state)
{
    (void)state;
    struct str out = { 0 };
    js_write_string("a\0b\xff\xc3", 5, &out); /* NUL, and bytes that are no UTF-8 */
    assert_string_equal(str_c(&out), "\"a\\u0000b\xef\xbf\xbd\xef\xbf\xbd\"");
    str_clear(&out);
    js_write_string("</\x7f>", 4, &out);
    assert_string_equal(str_c(&out), "\"</\\u007f>\"");
    str_release(&out);
}

/* Arrays inside arrays, `depth` of them. */
static json_t *nested(int depth)
{
    json_t *root = json_array(), *in = root;
    for (int i = 1; i < depth; i++) {
        json_t *next = json_array();
        json_array_append_new(in, next);
        in = next;
    }
    return root;
}

static void too_deep_to_write(void **state)
{
    (void)state;
    for (int depth = JSTOK_DEPTH_MAX - 1; depth < JSTOK_DEPTH_MAX + 3; depth++) {
        json_t *v = nested(depth);
        struct str out = { 0 };
        js_write(v, 0, &out);
        assert_int_equal(out.bad, depth > JSTOK_DEPTH_MAX); /* what can be read can be written */
        str_release(&out);
        json_decref(v);
    }
}

/* Where a comma is the decimal point; runs only where such a locale is installed. */
static void locale_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8",
                                         "ps_AF.UTF-8" };
    bool any = false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!setlocale(LC_ALL, names[i]))
            continue;
        any = true;
        round_trips(state);
    }
    setlocale(LC_ALL, "C");
    if (!any) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
}

/* ---- exhaustion, jansson's own allocations included ---- */

static const char *const rich =
    "{\"a\\n\":[1,2.5,\"text\",\"esc\\u00e9\",null,true,18446744073709551615],\"b\":{\"c\":{}},"
    "\"k1\":1,\"k2\":2,\"k3\":3,\"k4\":4,\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9,"
    "\"l\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]}";

static void parsing_survives_exhaustion(void **state)
{
    (void)state;
    json_set_alloc_funcs(oom_malloc, free);
    long k = 0;
    for (berth_status s = BERTH_ENOMEM; s != BERTH_OK; k++) {
        json_t *v = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = js_parse(rich, strlen(rich), NULL, &v, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !v && err.msg[0]));
        json_decref(v);
    }
    assert_true(k > 50); /* jansson's were counted too */
    json_set_alloc_funcs(malloc, free);
}

static void writing_survives_exhaustion(void **state)
{
    (void)state;
    json_t *v = parse_ok(rich);
    bool ok = false;
    for (long k = 0; !ok; k++) {
        struct str out = { 0 };
        oom_after(k);
        js_write(v, 2, &out);
        oom_off();
        ok = !out.bad;
        str_release(&out);
        assert_true(k < 50);
    }
    json_decref(v);
}

static void file_parsing_survives_exhaustion(void **state)
{
    (void)state;
    const char *path = tmp_write("rich.json", rich, strlen(rich));
    json_set_alloc_funcs(oom_malloc, free);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        json_t *v = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = js_parse_file(path, NULL, &v, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !v && strstr(err.msg, path)));
        json_decref(v);
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(indents),
        cmocka_unit_test(kinds),
        cmocka_unit_test(numbers_convert_exactly_or_not),
        cmocka_unit_test(refusals),
        cmocka_unit_test(loose),
        cmocka_unit_test(limits),
        cmocka_unit_test(order_is_kept),
        cmocka_unit_test(writing_strings),
        cmocka_unit_test(too_deep_to_write),
        cmocka_unit_test(locale_changes_nothing),
        cmocka_unit_test(parsing_survives_exhaustion),
        cmocka_unit_test(writing_survives_exhaustion),
        cmocka_unit_test(file_parsing_survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
