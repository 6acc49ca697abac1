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
    char *long_text = repeated("a", 40000);
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
        { "(?:(?:){4294967294}){4294967294}", "a", BERTH_OK }, /* copies of nothing */
        { "(?:a{0}(?#x)(?:(?:){9}){0,4294967294}){4294967294}+a", "a", BERTH_OK },
        { "\\A(a*)\\1b", long_text, BERTH_ELIMIT }, /* few steps, but long comparisons */
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
    free(long_text);
}

static void sets_have_their_members(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool found;
    } row[] = {
        { "\\A[x-zc-ea-db]+\\Z", "abcdexyz", true },
        { "[x-zc-ea-db]", "fgw{`", false },
        { "\\A[^x-zc-ea-db]+\\Z", "fgw{`", true },
        { "\\A[e-ga-zb]+\\Z", "ahz", true }, /* one range holds the others */
        { "\\A[\\d\\sx]+\\Z", "1 x", true },
        { "[\\d\\sx]", "ay_", false },
        { "\\A[\\Wa]+\\Z", "a-a", true },
        { "[\\Wa]", "b_1", false },
        { "\\A[\\w\\W]+\\Z", "a-", true },
        { "[^\\w\\W]", "a-", false },
        { "[^\\D]", "a1", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        berth_err err = { 0 };
        bool found;
        assert_ok(first_match(row[i].pattern, row[i].text, &found, &err), err);
        if (found != row[i].found)
            fail_msg("%s: %d", row[i].pattern, found);
    }
}

/* A zero byte is a character like any other; it is no white space. */
static void verbose_keeps_zeros(void **state)
{
    (void)state;
    struct pyre re;
    struct pyre_scan s;
    berth_err err = { 0 };
    bool found;
    assert_ok(pyre_compile(&re, "a \0b", 4, PYRE_VERBOSE, &err), err);
    assert_ok(pyre_open(&s, &re, "ab a\0b", 6, &err), err);
    assert_ok(pyre_next(&s, &found, &err), err);
    assert_true(found);
    assert_int_equal(s.mark[0], 3);
    pyre_close(&s);
    pyre_release(&re);
}

static void searches_can_be_canceled(void **state)
{
    (void)state;
    const atomic_bool cancel = true;
    struct pyre re;
    struct pyre_scan s;
    berth_err err = { 0 };
    bool found;
    assert_ok(pyre_compile(&re, "a", 1, 0, &err), err);
    assert_ok(pyre_open(&s, &re, "a", 1, &err), err);
    s.cancel = &cancel;
    assert_fails(pyre_next(&s, &found, &err), err, BERTH_ECANCELED, "interrupted");
    pyre_close(&s);
    pyre_release(&re);
}

static void replacements_end(void **state)
{
    (void)state;
    struct pyre re;
    struct pyre_scan s;
    struct pyre_template t;
    struct str out = { 0 };
    berth_err err = { 0 };
    bool found;
    char *text = repeated("a", 100000), *by = repeated("\\1", 4000);
    assert_ok(pyre_compile(&re, "(.*)", 4, 0, &err), err);
    assert_ok(pyre_open(&s, &re, text, 100000, &err), err);
    assert_ok(pyre_template(&t, &re, by, strlen(by), &err), err);
    assert_ok(pyre_next(&s, &found, &err), err);
    uint64_t before = s.steps;
    pyre_expand(&t, &s, 1 << 20, &out);
    assert_true(out.n > 1 << 20 && out.n <= (1 << 20) + 100000);
    assert_int_equal(s.steps, before + 4000); /* pieces without a text take time too */
    pyre_template_release(&t);
    free(by);
    by = repeated("\\1", PYRE_PIECES_MAX + 1);
    assert_fails(pyre_template(&t, &re, by, strlen(by), &err), err, BERTH_ELIMIT, "pieces");
    pyre_template_release(&t);
    str_release(&out);
    pyre_close(&s);
    pyre_release(&re);
    free(by);
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
        cmocka_unit_test(searches_end),        cmocka_unit_test(sets_have_their_members),
        cmocka_unit_test(verbose_keeps_zeros), cmocka_unit_test(searches_can_be_canceled),
        cmocka_unit_test(replacements_end),    cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
