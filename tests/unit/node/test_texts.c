/* Nodes about texts where ComfyUI would go on or write anywhere: limits, cancelling, formats. What
 * both do the same is in golden.node.text_nodes. */
#include "support/node_rig.h"

static char *repeated(const char *part, size_t n)
{
    struct str s = { 0 };
    for (size_t i = 0; i < n; i++)
        str_adds(&s, part);
    return str_take(&s);
}

static void regex(struct node_rig *r, const char *text, const char *pattern, const char *by)
{
    rig_node(r, "RegexReplace");
    rig_text(r, "string", text);
    rig_text(r, "regex_pattern", pattern);
    rig_text(r, "replace", by);
}

static void replacing_ends(void **state)
{
    struct node_rig *r = *state;
    char *text = repeated("a", 1 << 20), *by = repeated("\\1", 4000);
    regex(r, text, "(.*)", by); /* 4000 MiB in one match */
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "RegexReplace: the text is larger than 64 MiB");
    assert_null(r->call.raised);
    free(by);
    by = repeated("\\1", 60000);
    regex(r, text, "()a", by); /* nothing, but 60000 times for each character */
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "steps");
    free(by);
    by = repeated("b", 1000);
    rig_node(r, "StringReplace");
    rig_text(r, "string", text);
    rig_text(r, "find", "a");
    rig_text(r, "replace", by);
    assert_fails(rig_run(r), r->err, BERTH_ELIMIT, "StringReplace: the text is larger");
    free(by);
    free(text);
}

static void replacing_can_be_canceled(void **state)
{
    struct node_rig *r = *state;
    atomic_store(&r->cancel, true);
    regex(r, "aaa", "a", "b");
    assert_fails(rig_run(r), r->err, BERTH_ECANCELED, "interrupted");
    assert_null(r->call.raised);
    rig_node(r, "RegexMatch");
    rig_text(r, "string", "a");
    rig_text(r, "regex_pattern", "a");
    assert_fails(rig_run(r), r->err, BERTH_ECANCELED, "interrupted");
    rig_node(r, "StringReplace");
    rig_text(r, "string", "a");
    rig_text(r, "find", "a");
    rig_text(r, "replace", "b");
    assert_fails(rig_run(r), r->err, BERTH_ECANCELED, "interrupted");
    atomic_store(&r->cancel, false);
}

static void texts_are_saved_in_listed_formats(void **state)
{
    struct node_rig *r = *state;
    static const struct {
        const char *format;
        berth_status code;
    } row[] = { { "txt", BERTH_OK },    { "json", BERTH_OK },       { "", BERTH_EINVAL },
                { "/x", BERTH_EINVAL }, { "sh", BERTH_EINVAL },     { "TXT", BERTH_EINVAL },
                { "py", BERTH_EINVAL }, { "../../a", BERTH_EINVAL } };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        rig_node(r, "SaveText");
        rig_text(r, "text", "[1]");
        rig_text(r, "format", row[i].format);
        if (rig_run(r) != row[i].code)
            fail_msg("format '%s': %s", row[i].format, r->err.msg);
    }
}

static int setup(void **state)
{
    static struct node_rig r;
    rig_open(&r);
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replacing_ends),
        cmocka_unit_test(replacing_can_be_canceled),
        cmocka_unit_test(texts_are_saved_in_listed_formats),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
