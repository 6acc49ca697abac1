/* Prompt weights: every rule of text-encoders.md 1, and float() of Python. */
#include "support/oom.h"
#include "support/test.h"

#include "text/tokenizer.h"

#include <math.h>

/* want: "text|weight|text|weight|..." with %.17g */
static void parts_are_n(const char *prompt, size_t n, const char *want)
{
    struct arena mem = { 0 };
    struct vec parts = { .elem = sizeof(struct text_part) };
    berth_err err = { 0 };
    char got[1024] = "";
    size_t at = 0;
    assert_ok(text_parts(prompt, n, &mem, &parts, &err), err);
    for (size_t i = 0; i < parts.n; i++) {
        const struct text_part *p = vec_at(&parts, i);
        assert_int_equal(p->text[p->n], 0);
        at += (size_t)snprintf(got + at, sizeof got - at, "%s|%.17g|", p->text, p->weight);
    }
    assert_string_equal(got, want);
    vec_release(&parts);
    arena_release(&mem);
}

static void parts_are(const char *prompt, const char *want)
{
    parts_are_n(prompt, strlen(prompt), want);
}

static void parentheses(void **state)
{
    (void)state;
    parts_are("", "");
    parts_are("a cat", "a cat|1|");
    parts_are("(a)", "a|1.1000000000000001|");
    parts_are("((a))", "a|1.2100000000000002|");
    parts_are("((a:1.2))", "a|1.2|");
    parts_are("(a (b:1.5) c:0.5)", "a |0.5|b|1.5| c|0.5|");
    parts_are("a (b) c", "a |1|b|1.1000000000000001| c|1|");
    parts_are("(a)(b)", "a|1.1000000000000001|b|1.1000000000000001|");
    parts_are("()", "");
    parts_are("[a] {b}", "[a] {b}|1|");
}

static void colons(void **state)
{
    (void)state;
    parts_are("(a:b)", "a:b|1.1000000000000001|");
    parts_are("(:1.2)", ":1.2|1.1000000000000001|");
    parts_are("(a:b:0.5)", "a:b|0.5|");
    parts_are("(a:0.5:b)", "a:0.5:b|1.1000000000000001|");
    parts_are("(a:)", "a:|1.1000000000000001|");
    parts_are("a:1.5", "a:1.5|1|");
    parts_are("((a):2)", "a|2.2000000000000002|"); /* the outer weight, times 1.1 */
}

static void unbalanced(void **state)
{
    (void)state;
    parts_are("(a:1.5", "(a:1.5|1|");
    parts_are("a)", "a)|1|");
    parts_are("a) (b) c", "a) (b) c|1|"); /* below zero a parenthesis that opens is text */
    parts_are("a) ((b) c", "a) (|1|b|1.1000000000000001| c|1|");
    parts_are(
        "(a (b)",
        "a |1.1000000000000001|(b|1.1000000000000001|"); /* not closed, but it looks like it */
    parts_are(")(", ")(|1|");
    parts_are("(", "(|1|");
}

static void escapes(void **state)
{
    (void)state;
    parts_are("\\(a\\)", "(a)|1|");
    parts_are("(a\\):1.5)", "a)|1.5|");
    parts_are("\\\\(a)", "\\(a)|1|"); /* the second backslash escapes */
    parts_are("\\", "\\|1|");
    parts_are("a\\b", "a\\b|1|");
    parts_are_n("a\0\1b\0\2c", 7, "a)b(c|1|"); /* as the reference: its own marks are undone */
}

static void floats(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want; /* 1.1: no number */
    } t[] = {
        { "1", 1 },
        { "+.5", .5 },
        { "5.", 5 },
        { "-2", -2 },
        { "1e2", 100 },
        { "1E+2", 100 },
        { "25e-1", 2.5 },
        { " 1.5\t", 1.5 },
        { "\xc2\xa0"
          "1.5\xe3\x80\x80",
          1.5 },
        { "1\xc2\x85", 1 },
        { "1_0.2_5", 10.25 },
        { "1e1_0", 1e10 },
        { "inf", INFINITY },
        { "-Infinity", -INFINITY },
        { "1e999", INFINITY },
        { "1e-999", 0 },
        { "1e99999999999999999999", INFINITY },
        { "0.1", 0.1 },
        { "123456789.123456789", 123456789.123456789 },
        { "\xd9\xa3.\xd9\xa5", 3.5 }, /* Arabic digits */
        { "\xef\xbc\x91", 1 },        /* full width one */
        { "", 1.1 },
        { ".", 1.1 },
        { "e5", 1.1 },
        { "1e", 1.1 },
        { "1e+", 1.1 },
        { "_1", 1.1 },
        { "1_", 1.1 },
        { "1__0", 1.1 },
        { "1_.5", 1.1 },
        { "1._5", 1.1 },
        { "0x10", 1.1 },
        { "1 2", 1.1 },
        { "--1", 1.1 },
        { "+ 1", 1.1 },
        { "infinit", 1.1 },
        { "in_f", 1.1 },
        { "1.2.3", 1.1 },
        { "1,5", 1.1 },
        { "\xc2\xb2", 1.1 },
        { "\x1c"
          "1",
          1.1 },
        { "1\xe2\x80\x8b", 1.1 },
        { "1\xff", 1.1 },
        { "1f", 1.1 },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct arena mem = { 0 };
        struct vec parts = { .elem = sizeof(struct text_part) };
        berth_err err = { 0 };
        char prompt[64];
        snprintf(prompt, sizeof prompt, "(a:%s)", t[i].text);
        assert_ok(text_parts(prompt, strlen(prompt), &mem, &parts, &err), err);
        assert_int_equal(parts.n, 1);
        const struct text_part *p = vec_at(&parts, 0);
        double want = t[i].want == 1.1 ? 1.0 * 1.1 : t[i].want;
        if (p->weight != want || (t[i].want == 1.1) != (p->n > 1))
            fail_msg("'%s': '%s' * %.17g", t[i].text, p->text, p->weight);
        vec_release(&parts);
        arena_release(&mem);
    }
    parts_are("(a:nan)", "a|nan|");
}

/* Too deep is an error, just not too deep is not; both without a deep stack. */
static void nesting(void **state)
{
    (void)state;
    static char text[2 * 2000 + 2];
    for (size_t depth = TEXT_NESTING_MAX - 2; depth <= TEXT_NESTING_MAX + 1; depth++) {
        struct arena mem = { 0 };
        struct vec parts = { .elem = sizeof(struct text_part) };
        berth_err err = { 0 };
        memset(text, '(', depth);
        text[depth] = 'a';
        memset(text + depth + 1, ')', depth);
        berth_status s = text_parts(text, 2 * depth + 1, &mem, &parts, &err);
        if (depth < TEXT_NESTING_MAX) {
            assert_int_equal(s, BERTH_OK);
            assert_int_equal(parts.n, 1);
        } else {
            assert_int_equal(s, BERTH_ELIMIT);
            assert_non_null(strstr(err.msg, "1024"));
        }
        vec_release(&parts);
        arena_release(&mem);
    }
}

static void too_long(void **state)
{
    (void)state;
    struct arena mem = { 0 };
    struct vec parts = { .elem = sizeof(struct text_part) };
    berth_err err = { 0 };
    assert_fails(text_parts("", TEXT_PROMPT_MAX + 1u, &mem, &parts, &err), err, BERTH_ELIMIT,
                 "1048577");
}

static void survives_oom(void **state)
{
    (void)state;
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct arena mem = { 0 };
        struct vec parts = { .elem = sizeof(struct text_part) };
        berth_err err = { 0 };
        oom_after(k);
        s = text_parts("a (b (c:2) d) e", 15, &mem, &parts, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        vec_release(&parts);
        arena_release(&mem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parentheses), cmocka_unit_test(colons),       cmocka_unit_test(unbalanced),
        cmocka_unit_test(escapes),     cmocka_unit_test(floats),       cmocka_unit_test(nesting),
        cmocka_unit_test(too_long),    cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
