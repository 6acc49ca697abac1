/* Values as Python prints and converts them. The tables were made by Python 3.11 itself. */
#include "graph/graph_impl.h"
#include "support/oom.h"
#include "support/test.h"

static json_t *parse(const char *text)
{
    json_t *v = NULL;
    berth_err err = { 0 };
    assert_ok(js_parse(text, strlen(text), NULL, &v, &err), err);
    return v;
}

/* clang-format off */
static const struct { const char *json, *repr, *str; } texts[] = {
    { "0", "0", "0" },
    { "-5", "-5", "-5" },
    { "18446744073709551615", "18446744073709551615", "18446744073709551615" },
    { "1.0", "1.0", "1.0" },
    { "0.1", "0.1", "0.1" },
    { "1e16", "1e+16", "1e+16" },
    { "1e15", "1000000000000000.0", "1000000000000000.0" },
    { "123456789012345680.0", "1.2345678901234568e+17", "1.2345678901234568e+17" },
    { "1e-4", "0.0001", "0.0001" },
    { "1e-5", "1e-05", "1e-05" },
    { "-0.0", "-0.0", "-0.0" },
    { "1.5e300", "1.5e+300", "1.5e+300" },
    { "5e-324", "5e-324", "5e-324" },
    { "2.5", "2.5", "2.5" },
    { "0.30000000000000004", "0.30000000000000004", "0.30000000000000004" },
    { "12345678.9", "12345678.9", "12345678.9" },
    { "true", "True", "True" },
    { "false", "False", "False" },
    { "null", "None", "None" },
    { "\"a\"", "'a'", "a" },
    { "\"it's\"", "\"it's\"", "it's" },
    { "\"say \\\"hi\\\"\"", "'say \"hi\"'", "say \"hi\"" },
    { "\"both ' and \\\"\"", "'both \\' and \"'", "both ' and \"" },
    { "\"tab\\tnl\\ncr\\r\\\\\"", "'tab\\tnl\\ncr\\r\\\\'", "tab\x09nl\x0a" "cr\x0d\\" },
    { "\"\\u007f\\u0001\"", "'\\x7f\\x01'", "\x7f\x01" },
    { "\"\\u00e9\\u4e2d\"", "'\xc3\xa9\xe4\xb8\xad'", "\xc3\xa9\xe4\xb8\xad" },
    { "\"\\u00a0\\u200b\"", "'\\xa0\\u200b'", "\xc2\xa0\xe2\x80\x8b" },
    { "\"\\ud83d\\ude00\"", "'\xf0\x9f\x98\x80'", "\xf0\x9f\x98\x80" },
    { "\"\\ue000\"", "'\\ue000'", "\xee\x80\x80" },
    { "\"\\udbff\\udffd\"", "'\\U0010fffd'", "\xf4\x8f\xbf\xbd" },
    { "[]", "[]", "[]" },
    { "[1, \"a\", null, [true]]", "[1, 'a', None, [True]]", "[1, 'a', None, [True]]" },
    { "{}", "{}", "{}" },
    { "{\"a\": 1, \"b\": [2.0]}", "{'a': 1, 'b': [2.0]}", "{'a': 1, 'b': [2.0]}" },
    { "\"\"", "''", "" },
};

static const struct { enum input_kind kind; const char *json, *value, *error; } conversions[] = {
    { IN_INT, "7", "7", NULL },
    { IN_INT, "\"7\"", "7", NULL },
    { IN_INT, "\" 7 \"", "7", NULL },
    { IN_INT, "\"1_000\"", "1000", NULL },
    { IN_INT, "\"1__0\"", NULL,
      "invalid literal for int() with base 10: '1__0'" },
    { IN_INT, "\"_1\"", NULL,
      "invalid literal for int() with base 10: '_1'" },
    { IN_INT, "\"1_\"", NULL,
      "invalid literal for int() with base 10: '1_'" },
    { IN_INT, "\"+5\"", "5", NULL },
    { IN_INT, "\"-5\"", "-5", NULL },
    { IN_INT, "\"- 5\"", NULL,
      "invalid literal for int() with base 10: '- 5'" },
    { IN_INT, "\"0x10\"", NULL,
      "invalid literal for int() with base 10: '0x10'" },
    { IN_INT, "\"\\u00a07\\u3000\"", "7", NULL },
    { IN_INT, "7.9", "7", NULL },
    { IN_INT, "-7.9", "-7", NULL },
    { IN_INT, "true", "1", NULL },
    { IN_INT, "false", "0", NULL },
    { IN_INT, "null", NULL,
      "int() argument must be a string, a bytes-like object or a real number, not 'NoneType'" },
    { IN_INT, "\"abc\"", NULL,
      "invalid literal for int() with base 10: 'abc'" },
    { IN_INT, "\"1.5\"", NULL,
      "invalid literal for int() with base 10: '1.5'" },
    { IN_INT, "\"\"", NULL,
      "invalid literal for int() with base 10: ''" },
    { IN_INT, "\" \"", NULL,
      "invalid literal for int() with base 10: ' '" },
    { IN_INT, "[]", NULL,
      "int() argument must be a string, a bytes-like object or a real number, not 'list'" },
    { IN_INT, "{\"a\": 1}", NULL,
      "int() argument must be a string, a bytes-like object or a real number, not 'dict'" },
    { IN_INT, "18446744073709551615", "18446744073709551615", NULL },
    { IN_INT, "\"18446744073709551615\"", "18446744073709551615", NULL },
    { IN_INT, "\"-9223372036854775808\"", "-9223372036854775808", NULL },
    { IN_INT, "\"007\"", "7", NULL },
    { IN_INT, "\"it's\"", NULL,
      "invalid literal for int() with base 10: \"it's\"" },
    { IN_INT, "\"1e5\"", NULL,
      "invalid literal for int() with base 10: '1e5'" },
    { IN_INT, "1.8e19", "18000000000000000000", NULL },
    { IN_INT, "-1e18", "-1000000000000000000", NULL },
    { IN_FLOAT, "7", "7.0", NULL },
    { IN_FLOAT, "\"7\"", "7.0", NULL },
    { IN_FLOAT, "\" 7.5 \"", "7.5", NULL },
    { IN_FLOAT, "\"1_000.5\"", "1000.5", NULL },
    { IN_FLOAT, "\".5\"", "0.5", NULL },
    { IN_FLOAT, "\"5.\"", "5.0", NULL },
    { IN_FLOAT, "\".\"", NULL,
      "could not convert string to float: '.'" },
    { IN_FLOAT, "\"1e5\"", "100000.0", NULL },
    { IN_FLOAT, "\"1E-5\"", "1e-05", NULL },
    { IN_FLOAT, "\"e5\"", NULL,
      "could not convert string to float: 'e5'" },
    { IN_FLOAT, "\"1e\"", NULL,
      "could not convert string to float: '1e'" },
    { IN_FLOAT, "\"1_0e1_0\"", "100000000000.0", NULL },
    { IN_FLOAT, "\"1__0\"", NULL,
      "could not convert string to float: '1__0'" },
    { IN_FLOAT, "\"_1\"", NULL,
      "could not convert string to float: '_1'" },
    { IN_FLOAT, "\"-0\"", "-0.0", NULL },
    { IN_FLOAT, "\"+2.5\"", "2.5", NULL },
    { IN_FLOAT, "\"0x10\"", NULL,
      "could not convert string to float: '0x10'" },
    { IN_FLOAT, "true", "1.0", NULL },
    { IN_FLOAT, "null", NULL,
      "float() argument must be a string or a real number, not 'NoneType'" },
    { IN_FLOAT, "\"abc\"", NULL,
      "could not convert string to float: 'abc'" },
    { IN_FLOAT, "\"\"", NULL,
      "could not convert string to float: ''" },
    { IN_FLOAT, "[]", NULL,
      "float() argument must be a string or a real number, not 'list'" },
    { IN_FLOAT, "{}", NULL,
      "float() argument must be a string or a real number, not 'dict'" },
    { IN_FLOAT, "18446744073709551615", "1.8446744073709552e+19", NULL },
    { IN_FLOAT, "\"007.5\"", "7.5", NULL },
    { IN_FLOAT, "\"1_.5\"", NULL,
      "could not convert string to float: '1_.5'" },
    { IN_FLOAT, "\"1._5\"", NULL,
      "could not convert string to float: '1._5'" },
    { IN_FLOAT, "\"1 2\"", NULL,
      "could not convert string to float: '1 2'" },
    { IN_FLOAT, "2.5", "2.5", NULL },
    { IN_FLOAT, "\"1e+3\"", "1000.0", NULL },
    { IN_STRING, "5", "\"5\"", NULL },
    { IN_STRING, "null", "\"None\"", NULL },
    { IN_STRING, "true", "\"True\"", NULL },
    { IN_STRING, "2.0", "\"2.0\"", NULL },
    { IN_STRING, "\"x\"", "\"x\"", NULL },
    { IN_STRING, "[1, \"a\"]", "\"[1, 'a']\"", NULL },
    { IN_STRING, "{\"k\": null}", "\"{'k': None}\"", NULL },
    { IN_STRING, "18446744073709551615", "\"18446744073709551615\"", NULL },
    { IN_STRING, "\"\"", "\"\"", NULL },
    { IN_BOOLEAN, "null", "false", NULL },
    { IN_BOOLEAN, "0", "false", NULL },
    { IN_BOOLEAN, "1", "true", NULL },
    { IN_BOOLEAN, "0.0", "false", NULL },
    { IN_BOOLEAN, "2.5", "true", NULL },
    { IN_BOOLEAN, "\"\"", "false", NULL },
    { IN_BOOLEAN, "\"x\"", "true", NULL },
    { IN_BOOLEAN, "\"false\"", "true", NULL },
    { IN_BOOLEAN, "[]", "false", NULL },
    { IN_BOOLEAN, "[0]", "true", NULL },
    { IN_BOOLEAN, "{}", "false", NULL },
    { IN_BOOLEAN, "{\"a\": 0}", "true", NULL },
    { IN_BOOLEAN, "18446744073709551615", "true", NULL },
    { IN_BOOLEAN, "true", "true", NULL },
    { IN_BOOLEAN, "false", "false", NULL },
};
/* clang-format on */

static void values_print_as_python_prints_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct str repr = { 0 }, text = { 0 };
        json_t *v = parse(texts[i].json);
        py_repr(v, &repr);
        py_str(v, &text);
        assert_string_equal(str_c(&repr), texts[i].repr);
        assert_string_equal(str_c(&text), texts[i].str);
        str_release(&repr);
        str_release(&text);
        json_decref(v);
    }
}

static void values_convert_as_python_converts_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(conversions); i++) {
        berth_err err = { 0 };
        struct conversion c;
        json_t *v = parse(conversions[i].json);
        assert_ok(py_convert(conversions[i].kind, v, &c, &err), err);
        if (conversions[i].value) {
            json_t *want = parse(conversions[i].value);
            const json_t *got = c.value ? c.value : v;
            if (c.outcome != CONVERT_OK || js_kind(got) != js_kind(want) || !json_equal(got, want))
                fail_msg("%s: not %s", conversions[i].json, conversions[i].value);
            json_decref(want);
        } else {
            assert_int_equal(c.outcome, CONVERT_REFUSED);
            assert_null(c.value);
            assert_string_equal(str_c(&c.text), conversions[i].error);
        }
        conversion_release(&c);
        json_decref(v);
    }
}

/* Where JSON cannot follow Python. */
static void numbers_beyond_json_say_on_which_side(void **state)
{
    (void)state;
    static const struct {
        enum input_kind kind;
        const char *json, *text;
        enum convert_outcome outcome;
    } t[] = {
        { IN_INT, "\"18446744073709551616\"", "18446744073709551616", CONVERT_BIG },
        { IN_INT, "\"-9223372036854775809\"", "-9223372036854775809", CONVERT_SMALL },
        { IN_INT, "\"0000100000000000000000000000000\"", "100000000000000000000000000",
          CONVERT_BIG },
        { IN_INT, "1e30", "1000000000000000019884624838656", CONVERT_BIG },
        { IN_INT, "18446744073709551616.0", "18446744073709551616", CONVERT_BIG },
        { IN_INT, "-1e19", "-10000000000000000000", CONVERT_SMALL },
        { IN_FLOAT, "\"1e999\"", "inf", CONVERT_BIG },
        { IN_FLOAT, "\"-Infinity\"", "-inf", CONVERT_SMALL },
        { IN_FLOAT, "\"inf\"", "inf", CONVERT_BIG },
        { IN_FLOAT, "\"nan\"", "could not convert string to float: 'nan'", CONVERT_REFUSED },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        berth_err err = { 0 };
        struct conversion c;
        json_t *v = parse(t[i].json);
        assert_ok(py_convert(t[i].kind, v, &c, &err), err);
        assert_int_equal(c.outcome, t[i].outcome);
        assert_string_equal(str_c(&c.text), t[i].text);
        conversion_release(&c);
        json_decref(v);
    }
}

/* int() quotes 200 characters of what it was given. */
static void a_long_refusal_is_cut(void **state)
{
    (void)state;
    char text[300];
    memset(text, 'x', sizeof text);
    json_t *v = json_stringn(text, 250);
    struct conversion c;
    berth_err err = { 0 };
    assert_ok(py_convert(IN_INT, v, &c, &err), err);
    assert_int_equal(c.text.n, strlen("invalid literal for int() with base 10: ") + 200);
    conversion_release(&c);
    json_decref(v);
}

static void conversions_survive_exhaustion(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(conversions); i++) {
        json_t *v = parse(conversions[i].json);
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            struct conversion c;
            berth_err err = { 0 };
            oom_after(k);
            s = py_convert(conversions[i].kind, v, &c, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
            conversion_release(&c);
        }
        json_decref(v);
    }
}

/* CPython counts digits, zeros in front included. */
static void endless_integers(void **state)
{
    (void)state;
    for (size_t n = 4299; n <= 4302; n++) {
        struct str text = { 0 };
        struct conversion c;
        berth_err err = { 0 };
        str_pad(&text, n % 2 ? '9' : '0', n);
        json_t *v = json_stringn(text.p, text.n);
        assert_ok(py_convert(IN_INT, v, &c, &err), err);
        if (n <= 4300)
            assert_int_equal(c.outcome, n % 2 ? CONVERT_BIG : CONVERT_OK);
        else
            assert_int_equal(c.outcome, CONVERT_REFUSED);
        if (n == 4301)
            assert_string_equal(str_c(&c.text),
                                "Exceeds the limit (4300 digits) for integer string conversion: "
                                "value has 4301 digits; use sys.set_int_max_str_digits() to "
                                "increase the limit");
        conversion_release(&c);
        json_decref(v);
        str_release(&text);
    }
}

static void floats(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        double value; /* 0: none */
    } t[] = { { "7", 7 },       { "\" 8_0 \"", 80 }, { "true", 1 },     { "\"1e3\"", 1000 },
              { "\"inf\"", 0 }, { "\"nan\"", 0 },    { "\"7.5x\"", 0 }, { "null", 0 },
              { "[]", 0 },      { "-2.5", -2.5 } };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        double f = 0;
        json_t *v = parse(t[i].json);
        assert_int_equal(py_to_float(v, &f), t[i].value != 0);
        assert_true(f == t[i].value);
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_print_as_python_prints_them),
        cmocka_unit_test(values_convert_as_python_converts_them),
        cmocka_unit_test(numbers_beyond_json_say_on_which_side),
        cmocka_unit_test(a_long_refusal_is_cut),
        cmocka_unit_test(endless_integers),
        cmocka_unit_test(floats),
        cmocka_unit_test(conversions_survive_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
