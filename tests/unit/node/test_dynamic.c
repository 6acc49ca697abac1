/* Inputs made of others: what a prompt's node has of them, and what the info says. */
#include "node/node_impl.h"
#include "support/node_rig.h"

static berth_status no_run(struct node_call *c, berth_err *err)
{
    (void)c;
    (void)err;
    return BERTH_OK;
}

static const struct node_class resize = {
    .name = "Resize",
    .category = "test",
    .module = "test",
    .flags = NODE_V3,
    .run = no_run,
    INS(MATCH_IN("input", "kind", "IMAGE,MASK"),
        DYNCOMBO_IN("mode",
                    WITH(CHOICE("scale", FLOAT_IN("factor", 1, 0.01, 8, 0.01)),
                         CHOICE("fit", INT_IN("width", 512, 0, 4096, 1),
                                INT_IN("height", 7, 0, 4096, 1, .optional = true),
                                DYNCOMBO_IN("crop", WITH(CHOICE0("none"),
                                                         CHOICE("at", INT_IN("x", 3, 0, 9, 1)))))),
                    .more = "\"tooltip\":\"how\""),
        AUTOGROW_IN("images", "image", 1, 3, SOCKET("image", "IMAGE")),
        AUTOGROW_NAMES_IN("values", list_a_to_z, 0, SOCKET("value", "*"))),
    OUTS(MATCH_OUT("resized", "kind"), { .type = "INT" }),
};

static const struct node_class slot = {
    .name = "Slot",
    .category = "test",
    .module = "test",
    .flags = NODE_V3,
    .run = no_run,
    INS({ .name = "mask",
          .kind = IN_DYNSLOT,
          .type = "MASK",
          .sub = (const struct node_input[]) { INT_IN("grow", 0, 0, 9, 1) },
          .subs = 1,
          .optional = true }),
};

/* Names in order, those that must be there with '!'. */
static void expect(const struct node_class *c, const char *inputs, const char *want)
{
    struct arena mem = { 0 };
    struct node_inputs live;
    struct str text = { 0 };
    json_t *given = NULL;
    berth_err err;
    assert_ok(js_parse(inputs, strlen(inputs), NULL, &given, &err), err);
    assert_ok(node_live_inputs(c, given, &mem, &live, &err), err);
    for (size_t i = 0; i < live.n; i++)
        str_addf(&text, "%s%s%s", i ? " " : "", live.in[i].name, live.in[i].optional ? "" : "!");
    assert_string_equal(str_c(&text), want);
    str_release(&text);
    json_decref(given);
    arena_release(&mem);
}

static void a_choice_brings_its_inputs(void **state)
{
    (void)state;
    expect(&resize, "{}", "input! images.image0!");
    expect(&resize, "{\"mode\":\"scale\"}", "input! mode! mode.factor! images.image0!");
    expect(&resize, "{\"mode\":\"what\",\"mode.factor\":1}", "input! mode! images.image0!");
    expect(&resize, "{\"mode\":[\"1\",0]}", "input! mode! images.image0!");
    expect(&resize, "{\"mode\":\"fit\"}", "input! mode! mode.width! mode.height images.image0!");
    expect(&resize, "{\"mode\":\"fit\",\"mode.crop\":\"at\"}",
           "input! mode! mode.width! mode.height mode.crop! mode.crop.x! images.image0!");
}

static void members_come_in_template_order(void **state)
{
    (void)state;
    expect(&resize,
           "{\"values.z\":1,\"images.image2\":1,\"values.b\":1,\"images.image7\":1,\"images\":1}",
           "input! images.image0! images.image2 values.b values.z");
    expect(&slot, "{}", "mask");
    expect(&slot, "{\"mask\":[\"1\",0]}", "mask mask.grow!");
}

static void a_call_reads_dotted_names(void **state)
{
    (void)state;
    static struct values in[8];
    struct arena mem = { 0 };
    struct node_call c = { .cls = &resize, .in = in };
    json_t *given = json_pack("{s:s,s:i,s:i,s:i}", "mode", "fit", "mode.width", 9, "values.c", 1,
                              "values.a", 1);
    const char *text, *name;
    int64_t i;
    double f;
    berth_err err;
    assert_ok(node_live_inputs(&resize, given, &mem, &c.live, &err), err);
    assert_int_equal(c.live.n, 7); /* input mode .width .height images.image0 values.a values.c */
    assert_ok(values_add(&in[1], value_string("fit", 3), &err), err);
    assert_ok(values_add(&in[2], value_int(9), &err), err);
    assert_ok(values_add(&in[5], value_int(50), &err), err);
    assert_ok(values_add(&in[6], value_int(60), &err), err);
    assert_ok(in_text(&c, "mode", &text, &err), err);
    assert_string_equal(text, "fit");
    assert_ok(in_i64(&c, "mode.width", &i, &err), err);
    assert_int_equal(i, 9);
    assert_ok(in_i64(&c, "mode.height", &i, &err), err);
    assert_int_equal(i, 7); /* of this choice, and not given: its default */
    assert_int_equal(in_f64(&c, "mode.factor", &f, &err), BERTH_EINVAL); /* of another */
    assert_string_equal(err.msg, "input 'mode.factor' is not given");
    assert_null(in_value(&c, "mode.crop"));
    size_t at = 0;
    assert_null(in_member(&c, "images", &at, &name));
    at = 0;
    assert_int_equal(in_member(&c, "values", &at, &name)->at[0]->i, 50);
    assert_string_equal(name, "a");
    assert_int_equal(in_member(&c, "values", &at, &name)->at[0]->i, 60);
    assert_string_equal(name, "c");
    assert_null(in_member(&c, "values", &at, &name));
    for (size_t k = 0; k < ARRAY_LEN(in); k++)
        values_release(&in[k]);
    json_decref(given);
    arena_release(&mem);
}

static void the_info_nests_them(void **state)
{
    struct node_rig *r = *state;
    json_t *info, *want;
    assert_ok(node_info(&r->env, &resize, &info, &r->err), r->err);
    static const char text[] =
        "{\"required\":{\"input\":[\"COMFY_MATCHTYPE_V3\",{\"template\":{\"template_id\":\"kind\","
        "\"allowed_types\":\"IMAGE,MASK\"}}],"
        "\"mode\":[\"COMFY_DYNAMICCOMBO_V3\",{\"tooltip\":\"how\",\"options\":["
        "{\"key\":\"scale\",\"inputs\":{\"required\":{\"factor\":[\"FLOAT\",{\"default\":1.0,"
        "\"min\":0.01,\"max\":8.0,\"step\":0.01}]}}},"
        "{\"key\":\"fit\",\"inputs\":{\"required\":{\"width\":[\"INT\",{\"default\":512,\"min\":0,"
        "\"max\":4096,\"step\":1}],\"crop\":[\"COMFY_DYNAMICCOMBO_V3\",{\"options\":["
        "{\"key\":\"none\",\"inputs\":{\"required\":{}}},{\"key\":\"at\",\"inputs\":{\"required\":"
        "{\"x\":[\"INT\",{\"default\":3,\"min\":0,\"max\":9,\"step\":1}]}}}]}]},"
        "\"optional\":{\"height\":[\"INT\",{\"default\":7,\"min\":0,\"max\":4096,\"step\":1}]}}}"
        "]}],"
        "\"images\":[\"COMFY_AUTOGROW_V3\",{\"template\":{\"input\":{\"required\":{\"image\":"
        "[\"IMAGE\",{}]}},\"prefix\":\"image\",\"min\":1,\"max\":3}}],"
        "\"values\":[\"COMFY_AUTOGROW_V3\",{\"template\":{\"input\":{\"required\":{\"value\":"
        "[\"*\",{}]}},\"min\":0,\"names\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\","
        "\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\",\"q\",\"r\",\"s\",\"t\",\"u\",\"v\","
        "\"w\",\"x\",\"y\",\"z\"]}}]}}";
    assert_ok(js_parse(text, strlen(text), NULL, &want, &r->err), r->err);
    assert_true(json_equal(json_object_get(info, "input"), want));
    json_decref(want);
    want = json_pack("[s,n]", "kind");
    assert_true(json_equal(json_object_get(info, "output_matchtypes"), want));
    json_decref(want);
    json_decref(info);
    assert_ok(node_info(&r->env, &slot, &info, &r->err), r->err);
    const json_t *spec =
        json_object_get(json_object_get(json_object_get(info, "input"), "optional"), "mask");
    assert_string_equal(json_string_value(json_object_get(json_array_get(spec, 1), "slotType")),
                        "MASK");
    json_decref(info);
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
        cmocka_unit_test(a_choice_brings_its_inputs),
        cmocka_unit_test(members_come_in_template_order),
        cmocka_unit_test(a_call_reads_dotted_names),
        cmocka_unit_test(the_info_nests_them),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
