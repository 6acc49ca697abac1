/* Math expressions where we stop and Python does not, and what memory that runs out leaves. What
 * both do the same is in golden.node.text_nodes. */
#include "node/expr.h"
#include "support/oom.h"
#include "support/test.h"

static berth_status evaluate(const char *text, struct ev *v, berth_err *err)
{
    const struct ev all[] = { { .kind = EV_INT, .i = 7 }, { .kind = EV_FLOAT, .f = 2 } };
    const struct expr_name name[] = { { "a", all[0] },
                                      { "b", all[1] },
                                      { "values", { .kind = EV_LIST, .list = { all, 2 } } } };
    struct expr x = { .text = text, .n = strlen(text), .name = name, .names = ARRAY_LEN(name) };
    berth_status s = expr_parse(&x, err);
    if (!s)
        s = expr_eval(&x, v, err);
    expr_release(&x);
    return s;
}

static void what_is_refused(void **state)
{
    static const struct {
        const char *text;
        berth_status code;
    } row[] = {
        { "2 ** 126", BERTH_OK },
        { "2 ** 127", BERTH_ELIMIT },
        { "-(2 ** 126) * 2", BERTH_OK },
        { "-(2 ** 126) * 2 - 1", BERTH_ELIMIT },
        { "-(-(2 ** 126) * 2)", BERTH_ELIMIT },
        { "(-(2 ** 126) * 2) // -1", BERTH_ELIMIT },
        { "abs(-(2 ** 126) * 2)", BERTH_ELIMIT },
        { "round(-(2 ** 126) * 2, -38)", BERTH_ELIMIT },
        { "round(169000000000000000000000000000000000001, -37)", BERTH_OK },
        { "round(170000000000000000000000000000000000001, -38)", BERTH_ELIMIT },
        { "1 << 126", BERTH_OK },
        { "1 << 127", BERTH_ELIMIT },
        { "3 << 126", BERTH_ELIMIT },
        { "-1 >> 9999", BERTH_OK },
        { "170141183460469231731687303715884105728", BERTH_ELIMIT },
        { "int(1e300)", BERTH_ELIMIT },
        { "pow(4000001, 9)", BERTH_ELIMIT },
        { "round(1e300, -2)", BERTH_EUNSUPPORTED },
        { "int('ff', 16)", BERTH_EUNSUPPORTED },
        { "a.real", BERTH_EUNSUPPORTED },
        { "a = 5", BERTH_EUNSUPPORTED },
        { "a; b", BERTH_EUNSUPPORTED },
        { "a\nb", BERTH_EUNSUPPORTED },
        { "f'{a}'", BERTH_EUNSUPPORTED },
        { "1j", BERTH_EUNSUPPORTED },
        { "lambda: 1", BERTH_EUNSUPPORTED },
        { "[i for i in values]", BERTH_EUNSUPPORTED },
        { "max(values, key=abs)", BERTH_EUNSUPPORTED },
        { "(-8) ** 0.5 + 1", BERTH_EUNSUPPORTED },
        { "'%d' % 3", BERTH_EUNSUPPORTED },
        { "sqrt", BERTH_EUNSUPPORTED },
        { "sqrt()", BERTH_EINVAL },
        { "abs(1, 2)", BERTH_EINVAL },
        { "a..b", BERTH_EUNSUPPORTED },
        { "a @ b", BERTH_EINVAL },
        { "'a", BERTH_EINVAL },
        { "'\\q'", BERTH_EINVAL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct ev v;
        berth_err err = { 0 };
        berth_status s = evaluate(row[i].text, &v, &err);
        if (s != row[i].code)
            fail_msg("%s: %d, %s", row[i].text, s, err.msg);
    }
}

/* Close to the ends of 128 bits; Python's own results. */
static void large_numbers_stay_exact(void **state)
{
    static const char *const yes[] = {
        "(-(2 ** 126) * 2) // 3 == -56713727820156410577229101238628035243",
        "(-(2 ** 126) * 2) // -3 == 56713727820156410577229101238628035242",
        "(-(2 ** 126) * 2) % 3 == 1",
        "(2 ** 126) // -5 == -17014118346046923173168730371588410573",
        "-7 // 2 == -4 and 7 // -2 == -4 and -8 // 2 == -4 and -7 // -2 == 3",
        "round(149999999999999999999999999999999999999, -38) == 10 ** 37 * 10",
        "round(60000000000000000000000000000000000000, -38) == 10 ** 37 * 10",
        "round(50000000000000000000000000000000000000, -38) == 0",
        "round(-49999999999999999999999999999999999999, -38) == 0",
        "round(25, -1) == 20 and round(35, -1) == 40 and round(-26, -1) == -30",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        struct ev v;
        berth_err err = { 0 };
        if (evaluate(yes[i], &v, &err) || v.kind != EV_BOOL || !v.b)
            fail_msg("%s: %s", yes[i], err.msg);
    }
}

static char *repeated(const char *front, const char *part, size_t n, const char *back)
{
    struct str s = { 0 };
    str_adds(&s, front);
    for (size_t i = 0; i < n; i++)
        str_adds(&s, part);
    str_adds(&s, back);
    return str_take(&s);
}

static void length_and_depth_end(void **state)
{
    static const struct {
        const char *front, *part;
        size_t n;
        const char *back;
        berth_status code;
    } row[] = {
        { "a", "+a", EXPR_DEPTH_MAX - 1, "", BERTH_OK },
        { "a", "+a", EXPR_DEPTH_MAX, "", BERTH_ELIMIT },
        { "", "(", 8000, "", BERTH_ELIMIT },
        { "", "-", 8000, "1", BERTH_ELIMIT },
        { "", "not ", 3000, "1", BERTH_ELIMIT },
        { "1", "**1", 5000, "", BERTH_ELIMIT },
        { "", "[", 8000, "", BERTH_ELIMIT },
        { "", "1 if 1 else ", 1000, "1", BERTH_ELIMIT },
        { "a", "[0]", 5000, "", BERTH_ELIMIT },
        { "max(", "1,", 300, "1)", BERTH_EUNSUPPORTED },
        { "", " ", EXPR_MAX, "1", BERTH_ELIMIT },
        { "('x' * 100000", " + ''", 300, ")", BERTH_ELIMIT }, /* of memory, in the end */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char *text = repeated(row[i].front, row[i].part, row[i].n, row[i].back);
        struct ev v;
        berth_err err = { 0 };
        berth_status s = evaluate(text, &v, &err);
        if (s != row[i].code)
            fail_msg("row %zu: %d, %s", i, s, err.msg);
        free(text);
    }
}

static void survives_oom(void **state)
{
    static const char text[] = "max(values[::-1]) if 'ab' * 3 + 'c' < 'd'[0:1] else round(a, 2)";
    (void)state;
    for (long k = 0;; k++) {
        struct ev v;
        berth_err err = { 0 };
        oom_after(k);
        berth_status s = evaluate(text, &v, &err);
        oom_off();
        if (!s)
            break;
        assert_int_equal(s, BERTH_ENOMEM);
        assert_true(k < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(large_numbers_stay_exact),
        cmocka_unit_test(length_and_depth_end),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
