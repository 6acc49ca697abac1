/* Commands as data: everything --help knows, and a shell that knows every value. */
#include "support/oom.h"
#include "support/test.h"

#include "app/describe.h"

#include <limits.h>

struct seen {
    const struct command *c;
    size_t calls, options;
    bool help, name; /* a global option, and the one we look for */
    const char *want;
};

static void see(void *user, const struct command *c, const struct opts *o)
{
    struct seen *s = user;
    s->c = c;
    s->calls++;
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++) {
            s->options++;
            s->help |= !strcmp(o->at[i].name, "help");
            s->name |= s->want && !strcmp(o->at[i].name, s->want);
        }
}

static void commands_hand_over_their_options(void **state)
{
    (void)state;
    struct app a = { .clock = clock_system() };
    size_t n = 0;
    for (; describe_at(n); n++) {
        struct seen s = { 0 };
        assert_true(describe(&a, describe_at(n), see, &s));
        assert_int_equal(s.calls, 1);
        assert_ptr_equal(s.c, describe_at(n));
        assert_true(s.help); /* the global ones are behind */
        assert_ptr_equal(describe_find(describe_at(n)->name), describe_at(n));
    }
    assert_true(n >= 8);
    assert_null(a.on_help); /* the next --help prints again */
    assert_null(a.log_level);
    struct seen s = { .want = "preset" };
    assert_true(describe(&a, &command_synth, see, &s));
    assert_true(s.name);
    assert_null(describe_find("nosuch"));
}

static void know(void *user, const struct command *c, const struct opts *o)
{
    (void)user;
    enum words kind;
    struct str list = { 0 };
    if (!value_words(c->args, &kind, &list))
        fail_msg("%s: nobody knows what an argument %s is: values.c", c->name, c->args);
    for (; o; o = o->next)
        for (size_t i = 0; i < o->n; i++) {
            str_clear(&list);
            if ((o->at[i].kind == OPT_FLAG) != !o->at[i].value)
                fail_msg("%s --%s: a value without a name", c->name, o->at[i].name);
            if (!value_words(o->at[i].value, &kind, &list))
                fail_msg("%s --%s: nobody knows what %s is: values.c", c->name, o->at[i].name,
                         o->at[i].value);
            if ((kind == WORDS_LIST) != (list.n > 0))
                fail_msg("%s --%s: a list without words", c->name, o->at[i].name);
        }
    str_release(&list);
}

static void every_value_is_known(void **state)
{
    (void)state;
    struct app a = { .clock = clock_system() };
    for (size_t i = 0; describe_at(i); i++)
        assert_true(describe(&a, describe_at(i), know, NULL));
    enum words kind = WORDS_LIST;
    struct str list = { 0 };
    assert_false(value_words("NOSUCH", &kind, &list));
    assert_int_equal(kind, WORDS_NONE);
    assert_int_equal(list.n, 0);
}

static void every_list_is_what_is_there(void **state)
{
    (void)state;
    enum words kind;
    struct str list = { 0 };
    assert_true(value_words("COMMAND", &kind, &list));
    for (size_t i = 0; describe_at(i); i++)
        assert_non_null(strstr(str_c(&list), describe_at(i)->name));
    str_clear(&list);
    assert_true(value_words("TYPE", &kind, &list));
    assert_non_null(strstr(str_c(&list), "bf16"));
    assert_null(strstr(str_c(&list), "BF16"));
    str_release(&list);
}

/* Text is data: nothing of it may become a request or an escape of troff. */
static void the_page_quotes(void **state)
{
    (void)state;
    struct app a = { .clock = clock_system() };
    struct str out = { 0 };
    man_commands(&a, &out);
    assert_false(out.bad);
    for (const char *line = str_c(&out), *end; (end = strchr(line, '\n')); line = end + 1) {
        static const char *const requests[] = { ".SH ", ".SS ", ".TP", ".PP", ".EX", ".EE" };
        bool fine = *line != '.' && *line != '\'';
        for (size_t i = 0; i < ARRAY_LEN(requests); i++)
            fine |= !strncmp(line, requests[i], strlen(requests[i]));
        if (!fine)
            fail_msg("'%.*s'", (int)(end - line), line);
        for (const char *p = line; p < end; p++)
            if (*p == '\\' && !strchr("efB&-(", *++p))
                fail_msg("'%.*s'", (int)(end - line), line);
    }
    str_release(&out);
}

/* Whichever allocation fails, and only that one: a page that calls itself whole is. */
static void out_of_memory_is_noticed(void **state)
{
    (void)state;
    struct app a = { .clock = clock_system() };
    struct str whole = { 0 };
    oom_after(LONG_MAX);
    man_commands(&a, &whole);
    long n = oom_seen();
    oom_off();
    assert_false(whole.bad);
    assert_true(n > 1);
    for (long k = 0; k < n; k++) {
        struct str out = { 0 };
        oom_once(k);
        man_commands(&a, &out);
        oom_off();
        if (!out.bad)
            assert_string_equal(str_c(&out), str_c(&whole));
        str_release(&out);
    }
    str_release(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_hand_over_their_options), cmocka_unit_test(every_value_is_known),
        cmocka_unit_test(every_list_is_what_is_there),      cmocka_unit_test(the_page_quotes),
        cmocka_unit_test(out_of_memory_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
