/* Nodes about logic, lists and texts beside what golden.node.text_nodes holds to ComfyUI: laziness,
 * lists, files, limits. */
#include "node/texts.h"
#include "support/node_rig.h"

static void a_switch_asks_for_one_branch(void **state)
{
    struct node_rig *r = *state;
    for (int on = 0; on < 2; on++) {
        bool need[3] = { false };
        rig_node(r, "ComfySwitchNode");
        rig_bool(r, "switch", on);
        assert_ok(r->call.cls->lazy(&r->call, need, &r->err), r->err);
        assert_int_equal(need[node_input_index(r->call.cls, "on_true")], on);
        assert_int_equal(need[node_input_index(r->call.cls, "on_false")], !on);
        assert_false(need[0]);
        rig_text(r, on ? "on_true" : "on_false", "x");
        assert_ok(rig_run(r), r->err);
        assert_string_equal(rig_out(r, 0)->s.p, "x");
    }
}

static void truth_of_tensors(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "ComfyNotNode");
    rig_set(r, "value", rig_tensor(3, (size_t[]) { 1, 1, 1 }, (float[]) { 0 }));
    assert_ok(rig_run(r), r->err);
    assert_true(rig_out(r, 0)->b);
    rig_node(r, "ComfyNotNode");
    rig_set(r, "value", rig_tensor(3, (size_t[]) { 1, 1, 2 }, NULL));
    assert_int_equal(rig_run(r), BERTH_EINVAL);
    assert_string_equal(r->call.raised, "RuntimeError");
}

static void lists_are_joined_in_template_order(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "CreateList");
    rig_int(r, "inputs.input3", 30);
    rig_int(r, "inputs.input3", 31);
    rig_int(r, "inputs.input0", 1);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(r->out[0].n, 3);
    assert_int_equal(r->out[0].at[0]->i, 1);
    assert_int_equal(r->out[0].at[1]->i, 30);
    assert_int_equal(r->out[0].at[2]->i, 31);
}

static void a_custom_choice_has_its_number(void **state)
{
    struct node_rig *r = *state;
    json_t *raw = json_pack("{s:s,s:i,s:s}", "choice", "b", "index", 1, "option2", "b");
    rig_node(r, "CustomCombo");
    rig_text(r, "choice", "b");
    r->call.raw = raw;
    assert_ok(rig_run(r), r->err);
    assert_string_equal(rig_out(r, 0)->s.p, "b");
    assert_int_equal(rig_out(r, 1)->i, 1);
    r->call.raw = NULL;
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 1)->i, 0);
    json_decref(raw);
}

static void save(struct node_rig *r, const char *text, const char *format, const char *file,
                 const char *want)
{
    char path[512], got[256] = "";
    rig_node(r, "SaveText");
    rig_text(r, "text", text);
    rig_text(r, "filename_prefix", "notes/a");
    rig_text(r, "format", format);
    assert_ok(rig_run(r), r->err);
    assert_string_equal(rig_out(r, 0)->s.p, text);
    const json_t *ui = json_array_get(json_object_get(r->call.ui, "files"), 0);
    assert_string_equal(json_string_value(json_object_get(ui, "filename")), file);
    assert_string_equal(json_string_value(json_object_get(ui, "subfolder")), "notes");
    assert_string_equal(json_string_value(json_array_get(json_object_get(r->call.ui, "text"), 0)),
                        text);
    snprintf(path, sizeof path, "%s/notes/%s", folders_own(r->folders, FOLDERS_OUTPUT), file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    assert_true(n < sizeof got);
    assert_string_equal(got, want);
}

static void texts_become_files(void **state)
{
    struct node_rig *r = *state;
    save(r, "h\u00e9", "txt", "a_00001.txt", "h\u00e9");
    save(r, "x", "md", "a_00002.md", "x");
    save(r, "{\"b\":[1,\"\u00e9\"]}", "json", "a_00003.json",
         "{\n  \"b\": [\n    1,\n    \"\u00e9\"\n  ]\n}");
    save(r, "no {json", "json", "a_00004.json", "no {json");
}

static void texts_end(void **state)
{
    struct node_rig *r = *state;
    size_t n = TEXT_MAX / 2 + 1;
    char *big = calloc(1, n);
    assert_non_null(big);
    memset(big, 'a', n);
    rig_node(r, "StringConcatenate");
    rig_set(r, "string_a", value_string(big, n));
    rig_set(r, "string_b", value_string(big, n));
    assert_int_equal(rig_run(r), BERTH_ELIMIT);
    rig_node(r, "StringReplace");
    rig_set(r, "string", value_string(big, n));
    rig_text(r, "find", "");
    rig_text(r, "replace", "ab");
    assert_int_equal(rig_run(r), BERTH_ELIMIT);
    free(big);
}

static void a_list_is_one_value(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "MergeTextLists");
    rig_text(r, "texts", "a");
    rig_text(r, "texts", "b");
    assert_ok(rig_run(r), r->err);
    assert_int_equal(json_array_size(rig_out(r, 0)->json), 2);
}

static void previews_are_handed_on(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "PreviewAny");
    rig_set(r, "source", value_json(json_pack("{s:[s]}", "k", "\u00e9")));
    assert_ok(rig_run(r), r->err);
    assert_string_equal(rig_out(r, 0)->s.p, "{\n    \"k\": [\n        \"\u00e9\"\n    ]\n}");
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
        cmocka_unit_test(a_switch_asks_for_one_branch),
        cmocka_unit_test(truth_of_tensors),
        cmocka_unit_test(lists_are_joined_in_template_order),
        cmocka_unit_test(a_custom_choice_has_its_number),
        cmocka_unit_test(texts_become_files),
        cmocka_unit_test(texts_end),
        cmocka_unit_test(a_list_is_one_value),
        cmocka_unit_test(previews_are_handed_on),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
