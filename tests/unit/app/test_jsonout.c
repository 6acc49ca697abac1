/* JSON on a stream: always valid, whatever the bytes. */
#include "support/test.h"

#include "app/jsonout.h"
#include "base/json.h"

#include <math.h>

struct stream {
    char *text;
    size_t n;
    struct jsonout j;
};

static void begin(struct stream *s)
{
    *s = (struct stream) { 0 };
    s->j.out = open_memstream(&s->text, &s->n);
    assert_non_null(s->j.out);
}

/* Closes the stream and gives back what a strict reader makes of it. */
static json_t *end(struct stream *s)
{
    json_t *v = NULL;
    berth_err err;
    assert_true(jsonout_end(&s->j));
    fclose(s->j.out);
    assert_ok(js_parse(s->text, s->n, NULL, &v, &err), err);
    return v;
}

static void looks_as_people_like_it(void **state)
{
    (void)state;
    struct stream s;
    begin(&s);
    jsonout_open(&s.j, NULL, '[');
    jsonout_open(&s.j, NULL, '{');
    jsonout_str(&s.j, "name", "a");
    jsonout_open_flat(&s.j, "shape", '[');
    jsonout_u64(&s.j, NULL, 2);
    jsonout_u64(&s.j, NULL, 3);
    jsonout_close(&s.j, ']');
    jsonout_open(&s.j, "none", '[');
    jsonout_close(&s.j, ']');
    jsonout_close(&s.j, '}');
    jsonout_open_flat(&s.j, NULL, '{');
    jsonout_bool(&s.j, "b", true);
    jsonout_open(&s.j, "in", '[');
    jsonout_i64(&s.j, NULL, -1);
    jsonout_close(&s.j, ']');
    jsonout_str(&s.j, "z", NULL);
    jsonout_close(&s.j, '}');
    jsonout_close(&s.j, ']');
    json_decref(end(&s));
    assert_string_equal(s.text, "[\n"
                                "  {\n"
                                "    \"name\": \"a\",\n"
                                "    \"shape\": [2, 3],\n"
                                "    \"none\": []\n"
                                "  },\n"
                                "  {\"b\": true, \"in\": [-1], \"z\": null}\n"
                                "]\n");
    free(s.text);
}

static void numbers_stay_exact(void **state)
{
    (void)state;
    struct stream s;
    begin(&s);
    jsonout_open(&s.j, NULL, '[');
    jsonout_u64(&s.j, NULL, UINT64_MAX);
    jsonout_i64(&s.j, NULL, INT64_MIN);
    jsonout_f64(&s.j, NULL, 0.1);
    jsonout_f64(&s.j, NULL, 3);
    jsonout_f64(&s.j, NULL, NAN);
    jsonout_f64(&s.j, NULL, -INFINITY);
    jsonout_close(&s.j, ']');
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
    free(s.text);
}

static void any_bytes_make_valid_text(void **state)
{
    (void)state;
    struct stream s;
    begin(&s);
    jsonout_open(&s.j, NULL, '{');
    jsonout_text(&s.j, "a\"\\\n\033", "\xff\xc3", 2);
    jsonout_text(&s.j, "b", "q\"\\/\b\f\n\r\t\x1f", 10);
    jsonout_text(&s.j, "c", "\xed\xa0\x80", 3);
    jsonout_close(&s.j, '}');
    json_t *v = end(&s);
    assert_string_equal(json_string_value(json_object_get(v, "a\"\\\n\033")),
                        "\xef\xbf\xbd\xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(v, "b")), "q\"\\/\b\f\n\r\t\x1f");
    json_decref(v);
    free(s.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_as_people_like_it),
        cmocka_unit_test(numbers_stay_exact),
        cmocka_unit_test(any_bytes_make_valid_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
