/* Texts and numbers as Python has them: whole Unicode against its digest, ends of ranges. */
#include "base/utf8.h"
#include "node/py.h"
#include "support/test.h"

static void hash(const struct str *s, uint64_t *h)
{
    for (size_t i = 0; i < s->n; i++)
        *h = (*h ^ (uint8_t)s->p[i]) * UINT64_C(0x100000001b3);
}

/* tools/pycase_tables.py --digest */
static void cases_of_every_point(void **state)
{
    static void (*const fn[])(const char *s, size_t n, struct str *out) = { py_upper, py_lower,
                                                                            py_title };
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    struct str out = { 0 };
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char bytes[4];
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t n = utf8_put(c, bytes);
        for (size_t i = 0; i < ARRAY_LEN(fn); i++) {
            str_clear(&out);
            fn[i](bytes, n, &out);
            hash(&out, &h);
        }
    }
    str_release(&out);
    assert_int_equal(h, UINT64_C(0x73a4739707f69731));
}

static void case_is(void (*fn)(const char *s, size_t n, struct str *out), const char *text,
                    const char *want)
{
    struct str out = { 0 };
    fn(text, strlen(text), &out);
    assert_string_equal(str_c(&out), want);
    str_release(&out);
}

static void sigma_ends_a_word(void **state)
{
    (void)state;
    case_is(py_lower, "ΑΣ ΑΣΑ Σ Α'Σ. Σ", "ας ασα σ α'ς. σ");
    case_is(py_title, "ΑΣ ασ", "Ας Ασ");
    case_is(py_capitalize, "ǆΣ ΑΣ", "ǅς ας");
    case_is(py_upper, "a\xff\xc3", "A\xff\xc3"); /* no UTF-8: as it is */
}

static void white_space_goes(void **state)
{
    static const struct {
        const char *text, *both, *left, *right;
    } row[] = {
        { " a b ", "a b", "a b ", " a b" },
        { "", "", "", "" },
        { " \u3000\t", "", "", "" },
        { "x", "x", "x", "x" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (int how = 0; how < 4; how++) {
            const char *p = row[i].text, *want = how == 3   ? row[i].both
                                                 : how == 1 ? row[i].left
                                                 : how == 2 ? row[i].right
                                                            : row[i].text;
            size_t n = strlen(p);
            py_strip(&p, &n, how & 1, how & 2);
            assert_true(str_eq(p, n, want));
        }
}

static void integers_end(void **state)
{
    static const struct {
        const char *text;
        enum py_int got;
        const char *plain;
    } row[] = {
        { "170141183460469231731687303715884105727", PY_INT,
          "170141183460469231731687303715884105727" },
        { "-170141183460469231731687303715884105728", PY_INT,
          "170141183460469231731687303715884105728" },
        { "170141183460469231731687303715884105728", PY_INT_BIG,
          "170141183460469231731687303715884105728" },
        { " +0_0 ", PY_INT, "0" },
        { "1__0", PY_NO_INT, "1" },
        { "_1", PY_NO_INT, "" },
        { "-", PY_NO_INT, "" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str plain = { 0 }, back = { 0 };
        __int128 v = 0;
        bool minus;
        assert_int_equal(py_parse_int(row[i].text, strlen(row[i].text), &v, &plain, &minus),
                         row[i].got);
        assert_string_equal(str_c(&plain), row[i].plain);
        if (row[i].got == PY_INT) {
            py_add_int(v, &back);
            assert_string_equal(str_c(&back) + minus, row[i].plain);
        }
        str_release(&plain);
        str_release(&back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_of_every_point),
        cmocka_unit_test(sigma_ends_a_word),
        cmocka_unit_test(white_space_goes),
        cmocka_unit_test(integers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
