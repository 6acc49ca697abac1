/* Classes that are gone: prompts that name them run with what is there instead. */
#include "support/graph_rig.h"

static bool old_is_there;

/* New classes, and the old one where the test says so. */
static const struct node_class *find(const char *name)
{
    static const struct node_class now[] = {
        { .name = "ImageScaleToMaxDimension", .run = run_show, .flags = NODE_OUTPUT },
        { .name = "ConditioningAverage", .run = run_show, .flags = NODE_OUTPUT },
    };
    static const struct node_class old = { .name = "ResizeImagesByLongerEdge",
                                           .run = run_show,
                                           .flags = NODE_OUTPUT };
    for (size_t i = 0; i < ARRAY_LEN(now); i++)
        if (strcmp(now[i].name, name) == 0)
            return &now[i];
    return old_is_there && strcmp(old.name, name) == 0 ? &old : NULL;
}

static void becomes(const char *prompt, const char *want)
{
    json_t *p = rig_quoted(prompt), *w = rig_quoted(want);
    struct validation v;
    berth_err err = { 0 };
    rig_init();
    rig.env.find = find;
    assert_ok(graph_validate(&rig.env, p, NULL, &v, &err), err);
    char *got = rig_text(p), *wanted = rig_text(w);
    assert_string_equal(got, wanted);
    free(got);
    free(wanted);
    validation_release(&v);
    json_decref(p);
    json_decref(w);
}

static void prompts_are_rewritten(void **state)
{
    (void)state;
    static const char resize[] =
        "{'1':{'class_type':'ResizeImagesByLongerEdge','inputs':{'images':["
        "'2',0],'longer_edge':64,'more':1}}}";
    old_is_there = false;
    becomes(resize, "{'1':{'class_type':'ImageScaleToMaxDimension','inputs':{'image':['2',0],"
                    "'largest_size':64,'upscale_method':'lanczos'}}}");
    becomes("{'1':{'class_type':'ConditioningAverage ','inputs':{'x':1}}}",
            "{'1':{'class_type':'ConditioningAverage','inputs':{'x':1}}}");
    becomes("{'1':{'class_type':'ResizeImagesByLongerEdge'},'2':5}", /* no inputs, no node */
            "{'1':{'class_type':'ImageScaleToMaxDimension'},'2':5}");
    becomes("{'1':{'class_type':'ImageBatch','inputs':{}}}", /* the new one is not there either */
            "{'1':{'class_type':'ImageBatch','inputs':{}}}");
    old_is_there = true;
    becomes(resize, resize);
}

static void clients_are_told(void **state)
{
    (void)state;
    json_t *all = graph_replacements();
    assert_int_equal(json_object_size(all), 8);
    char *text = rig_text(json_object_get(all, "ImageScaleBy"));
    assert_string_equal(
        text, "[{\"new_node_id\":\"ResizeImageMaskNode\",\"old_node_id\":\"ImageScaleBy\","
              "\"old_widget_ids\":[\"upscale_method\",\"scale_by\"],\"input_mapping\":["
              "{\"new_id\":\"input\",\"old_id\":\"image\"},{\"new_id\":\"resize_type\","
              "\"set_value\":\"scale by multiplier\"},{\"new_id\":\"resize_type.multiplier\","
              "\"old_id\":\"scale_by\"},{\"new_id\":\"scale_method\",\"old_id\":"
              "\"upscale_method\"}],\"output_mapping\":null}]");
    free(text);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_rewritten),
        cmocka_unit_test(clients_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
