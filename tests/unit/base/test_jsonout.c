/* JSON piece by piece: always valid, whatever the bytes. */
#include "support/test.h"

#include "base/json.h"

#include <math.h>

struct sink {
    struct str text;
    struct jsonout j;
};

static void begin(struct sink *s)
{
    *s = (struct sink) { .j = { .indent = 2 } };
    s->j.out = &s->text;
}

/* What a strict reader makes of it. */
static json_t *end(struct sink *s)
{
    json_t *v = NULL;
    berth_err err;
    assert_ok(js_parse(str_c(&s->text), s->text.n, NULL, &v, &err), err);
    return v;
}

static void looks_as_people_like_it(void **state)
{
    (void)state;
    struct sink s;
    begin(&s);
    jo_open(&s.j, NULL, '[');
    jo_open(&s.j, NULL, '{');
    jo_str(&s.j, "name", "a");
    jo_open_flat(&s.j, "shape", '[');
    jo_u64(&s.j, NULL, 2);
    jo_u64(&s.j, NULL, 3);
    jo_close(&s.j, ']');
    jo_open(&s.j, "none", '[');
    jo_close(&s.j, ']');
    jo_close(&s.j, '}');
    jo_open_flat(&s.j, NULL, '{');
    jo_bool(&s.j, "b", true);
    jo_open(&s.j, "in", '[');
    jo_i64(&s.j, NULL, -1);
    jo_close(&s.j, ']');
    jo_str(&s.j, "z", NULL);
    jo_close(&s.j, '}');
    jo_close(&s.j, ']');
    json_decref(end(&s));
    assert_string_equal(str_c(&s.text), "[\n"
                                        "  {\n"
                                        "    \"name\": \"a\",\n"
                                        "    \"shape\": [2, 3],\n"
                                        "    \"none\": []\n"
                                        "  },\n"
                                        "  {\"b\": true, \"in\": [-1], \"z\": null}\n"
                                        "]");
    str_release(&s.text);
}

static void numbers_stay_exact(void **state)
{
    (void)state;
    struct sink s;
    begin(&s);
    jo_open(&s.j, NULL, '[');
    jo_u64(&s.j, NULL, UINT64_MAX);
    jo_i64(&s.j, NULL, INT64_MIN);
    jo_f64(&s.j, NULL, 0.1);
    jo_f64(&s.j, NULL, 3);
    jo_f64(&s.j, NULL, NAN);
    jo_f64(&s.j, NULL, -INFINITY);
    jo_close(&s.j, ']');
    json_t *v = end(&s);
    uint64_t u;
    int64_t i;
    double d;
    assert_true(js_get_u64(json_array_get(v, 0), &u) && u == UINT64_MAX);
    assert_true(js_get_i64(json_array_get(v, 1), &i) && i == INT64_MIN);
    assert_true(js_get_f64(json_array_get(v, 2), &d) && d == 0.1);
    assert_int_equal(js_kind(json_array_get(v, 3)), JS_F64);
    assert_string_equal(json_string_value(json_array_get(v, 4)), "NaN");
    assert_string_equal(json_string_value(json_array_get(v, 5)), "-Infinity");
    json_decref(v);
    str_release(&s.text);
}

static void any_bytes_make_valid_text(void **state)
{
    (void)state;
    struct sink s;
    begin(&s);
    jo_open(&s.j, NULL, '{');
    jo_text(&s.j, "a\"\\\n\033", "\xff\xc3", 2);
    jo_text(&s.j, "b", "q\"\\/\b\f\n\r\t\x1f", 10);
    jo_text(&s.j, "c", "\xed\xa0\x80", 3);
    jo_close(&s.j, '}');
    json_t *v = end(&s);
    assert_string_equal(json_string_value(json_object_get(v, "a\"\\\n\033")),
                        "\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(v, "b")), "q\"\\/\b\f\n\r\t\x1f");
    json_decref(v);
    str_release(&s.text);
}

static void dumps(const char *text, int indent, const char *want)
{
    berth_err err;
    json_t *j;
    struct str s = { 0 };
    assert_ok(js_parse(text, strlen(text), NULL, &j, &err), err);
    struct jsonout to = { .out = &s, .indent = indent, .python = true };
    jo_value(&to, NULL, j);
    assert_string_equal(str_c(&s), want);
    str_release(&s);
    json_decref(j);
}

static void json_is_pythons(void **state)
{
    (void)state;
    dumps("{\"a\":[1,2.5,null,true,false,\"x\"],\"b\":{}}", 0,
          "{\"a\": [1, 2.5, null, true, false, \"x\"], \"b\": {}}");
    dumps("[]", 0, "[]");
    dumps("[[],[[]]]", 0, "[[], [[]]]");
    dumps("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u001f\\u007f\\u00e9\\u20ac\\ud83d\\ude00\"", 0,
          "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\\u007f\\u00e9\\u20ac\\ud83d\\ude00\"");
    dumps("{\"a\":[1,{\"b\":[]}],\"c\":2}", 4,
          "{\n    \"a\": [\n        1,\n        {\n            \"b\": []\n        }\n    ],\n    "
          "\"c\": 2\n}");
    dumps("18446744073709551615", 0, "18446744073709551615");
}

static void floats_are_shortest(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want, *ours; /* ours: as %g, where that is something else */
    } t[] = {
        { 0, "0.0", NULL },
        { -0.0, "-0.0", NULL },
        { 1, "1.0", NULL },
        { 0.1, "0.1", NULL },
        { 1e-4, "0.0001", NULL },
        { 1e-5, "1e-05", NULL },
        { 123456.75, "123456.75", NULL },
        { 1e15, "1000000000000000.0", "1e+15" },
        { 1.25e15, "1250000000000000.0", "1.25e+15" },
        { 12345678901234568.0, "1.2345678901234568e+16", "12345678901234568.0" },
        { 0.00012345678901234567, "0.00012345678901234567", NULL },
        { 1e16, "1e+16", NULL },
        { 1.5e300, "1.5e+300", NULL },
        { 5e-324, "5e-324", NULL },
        { -2.5e-7, "-2.5e-07", NULL },
        { 1.7976931348623157e308, "1.7976931348623157e+308", NULL },
        { 9007199254740993.0, "9007199254740992.0", NULL },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct str s = { 0 };
        jo_f64(&(struct jsonout) { .out = &s, .python = true }, NULL, t[i].v);
        assert_string_equal(str_c(&s), t[i].want);
        str_clear(&s);
        jo_f64(&(struct jsonout) { .out = &s }, NULL, t[i].v);
        assert_string_equal(str_c(&s), t[i].ours ? t[i].ours : t[i].want);
        str_release(&s);
    }
    struct str s = { 0 };
    struct jsonout to = { .out = &s, .python = true };
    jo_f64(&to, NULL, (double)NAN);
    jo_f64(&to, NULL, -(double)INFINITY);
    assert_string_equal(str_c(&s), "NaN-Infinity");
    str_release(&s);
}

/* A tree no text of ours could hold is refused, not walked into. */
static void depth_has_an_end(void **state)
{
    (void)state;
    json_t *j = json_array();
    for (int i = 0; i < 600; i++)
        j = json_pack("[o]", j);
    struct str s = { 0 };
    js_write(j, 0, &s);
    assert_true(s.bad);
    str_release(&s);
    json_decref(j);
}

/* Writers may take turns at one text: the comma is found in what is there. */
static void texts_are_put_together(void **state)
{
    (void)state;
    struct str s = { 0 };
    struct jsonout j = { .out = &s }, spaced = { .out = &s, .spaced = true, .depth = 1 };
    jo_open(&j, NULL, '{');
    jo_str(&j, "a", "{[");
    jo_str(&spaced, "b", NULL);
    jo_raw(&j, "c", "[1]", 3);
    jo_open(&spaced, "d", '[');
    jo_fmt(&spaced, NULL, "%.1f", 2.0);
    jo_bool(&spaced, NULL, false);
    jo_close(&spaced, ']');
    jo_value(&j, "e", NULL);
    jo_close(&j, '}');
    assert_string_equal(str_c(&s), "{\"a\":\"{[\", \"b\": null,\"c\":[1], \"d\": [2.0, false],"
                                   "\"e\":null}");
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_as_people_like_it),   cmocka_unit_test(numbers_stay_exact),
        cmocka_unit_test(any_bytes_make_valid_text), cmocka_unit_test(json_is_pythons),
        cmocka_unit_test(floats_are_shortest),       cmocka_unit_test(depth_has_an_end),
        cmocka_unit_test(texts_are_put_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
