/* Nodes about texts, numbers and logic, as ComfyUI's own give them: outputs, and errors by type and
 * text (tools/golden/text_nodes.py). */
#include "support/json_file.h"
#include "support/node_rig.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/node/data/text_nodes.json"

/* Kinds count: 1 is not 1.0, and not True. */
static bool is(const struct value *v, const json_t *want)
{
    json_t *got = value_describe(v);
    bool same = js_kind(got) == js_kind(want) && json_equal(got, want);
    json_decref(got);
    return same;
}

static void say(const char *what, const json_t *row)
{
    struct str text = { 0 };
    js_write(row, 0, &text);
    print_message("%s: %s\n", what, str_c(&text));
    str_release(&text);
}

static bool outputs_fit(struct node_rig *r, const json_t *row, const json_t *want)
{
    bool ok = true;
    for (size_t i = 0; i < json_array_size(want); i++) {
        const struct value *v = rig_out(r, i);
        if (is(v, json_array_get(want, i)))
            continue;
        json_t *got = value_describe(v);
        say("case", row);
        say("  is", got);
        json_decref(got);
        ok = false;
    }
    return ok;
}

/* How a parser words what it cannot read is its own affair. */
static bool error_fits(struct node_rig *r, const json_t *row, berth_status s)
{
    const char *type = json_string_value(json_array_get(row, 3));
    const char *text = json_string_value(json_array_get(row, 4));
    const char *raised = r->call.raised ? r->call.raised : node_exception(s);
    char ours[sizeof r->err.msg], theirs[sizeof r->err.msg];
    snprintf(theirs, sizeof theirs, "%s", text);
    for (char *p = theirs; *p; p++) /* err_set() does so */
        *p = (unsigned char)*p < ' ' ? '?' : *p;
    snprintf(ours, sizeof ours, "%s", r->err.msg);
    if (!strcmp(type, raised) && (!strcmp(ours, theirs) || !strcmp(type, "SyntaxError")))
        return true;
    say("case", row);
    print_message("  is %s: %s\n", raised, r->err.msg);
    return false;
}

static void nodes_do_as_comfyui_does(void **state)
{
    struct node_rig *r = *state;
    json_t *all, *row, *v;
    size_t i, bad = 0;
    const char *name;
    assert_ok(js_parse_file(DATA, NULL, &all, &r->err), r->err);
    assert_true(json_array_size(all) > 1500);
    json_array_foreach(all, i, row)
    {
        const json_t *want = json_array_get(row, 2);
        rig_node(r, json_string_value(json_array_get(row, 0)));
        json_object_foreach(json_array_get(row, 1), name, v) rig_set(r, name, value_from_json(v));
        r->call.raw = json_array_get(row, 1);
        berth_status s = rig_run(r);
        if (!s && json_is_null(want)) {
            say("no error", row);
            bad++;
        } else if (s && !json_is_null(want)) {
            say("error", row);
            print_message("  %s\n", r->err.msg);
            bad++;
        } else {
            bad += s ? !error_fits(r, row, s) : !outputs_fit(r, row, want);
        }
    }
    json_decref(all);
    assert_int_equal(bad, 0);
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
        cmocka_unit_test(nodes_do_as_comfyui_does),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
