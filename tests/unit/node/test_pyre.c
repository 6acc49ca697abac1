/* Regular expressions where Python would go on and on, what is not read, and memory that runs out.
 * What both do the same is in golden.node.text_nodes. */
#include "node/pyre.h"
#include "support/oom.h"
#include "support/test.h"

static berth_status first_match(const char *pattern, const char *text, bool *found, berth_err *err)
{
    struct pyre re;
    struct pyre_scan s = { 0 };
    *found = false;
    berth_status st = pyre_compile(&re, pattern, strlen(pattern), 0, err);
    if (!st)
        st = pyre_open(&s, &re, text, strlen(text), err);
    if (!st)
        st = pyre_next(&s, found, err);
    pyre_close(&s);
    pyre_release(&re);
    return st;
}

static char *repeated(const char *part, size_t n)
{
    struct str s = { 0 };
    for (size_t i = 0; i < n; i++)
        str_adds(&s, part);
    return str_take(&s);
}

static void searches_end(void **state)
{
    (void)state;
    char *many = repeated("a", 5000), *deep = repeated("(", 5000), *groups = repeated("()", 300);
    char *nested = repeated("(?=", 90), *text = repeated("x", PYRE_TEXT_MAX + 1);
    const struct {
        const char *pattern, *text;
        berth_status code;
    } row[] = {
        { "(a+)+b", many, BERTH_ELIMIT },
        { "(?:a|a)*b", many, BERTH_ELIMIT },
        { "(?:(?:a{1000}){1000}){1000}", "a", BERTH_ELIMIT },
        { "a{4294967295}", "a", BERTH_ELIMIT },
        { "a{99999999999999999999}", "a", BERTH_ELIMIT },
        { deep, "a", BERTH_ELIMIT },
        { groups, "a", BERTH_ELIMIT },
        { nested, "a", BERTH_EINVAL },
        { many, many, BERTH_OK },
        { "x", text, BERTH_ELIMIT },
        { "\\N{DASH}", "a", BERTH_EUNSUPPORTED },
        { "(?L)a", "a", BERTH_EUNSUPPORTED },
        { "(?:)*(?:a*)*(?:|b)*", many, BERTH_OK },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        berth_err err = { 0 };
        bool found;
        berth_status s = first_match(row[i].pattern, row[i].text, &found, &err);
        if (s != row[i].code)
            fail_msg("row %zu: %d, %s", i, s, err.msg);
    }
    free(many);
    free(deep);
    free(groups);
    free(nested);
    free(text);
}

static void survives_oom(void **state)
{
    (void)state;
    for (long k = 0;; k++) {
        berth_err err = { 0 };
        bool found;
        oom_after(k);
        berth_status s = first_match("(?P<x>[a-z\\d]+)(?=(b)|c)(?(2)b|.)\\1*?|(?>a+)$",
                                     "some text abc 12 bb", &found, &err);
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
        cmocka_unit_test(searches_end),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
