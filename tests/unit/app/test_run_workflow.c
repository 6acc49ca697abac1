/* Workflow files, and what --set changes in them. */
#include "app/run_workflow.h"
#include "support/test.h"
#include "support/tmp.h"

static const char graph[] =
    "{\"1\":{\"class_type\":\"EmptyImage\",\"inputs\":{\"width\":8},\"_meta\":{\"title\":\"my."
    "pic\"}},"
    "\"2\":{\"class_type\":\"ImageInvert\",\"inputs\":{\"image\":[\"1\",0]}},"
    "\"3\":{\"class_type\":\"ImageInvert\",\"inputs\":{\"image\":[\"2\",0]}},"
    "\"4\":{\"class_type\":\"SaveImage\",\"inputs\":{\"images\":[\"3\",0]}}}";

/* Sets and gives the input's JSON; "!": the error has this in it. */
static void sets(const char *assignment, const char *node, const char *input, const char *want)
{
    json_t *p;
    berth_err err;
    assert_int_equal(js_parse(graph, strlen(graph), NULL, &p, &err), BERTH_OK);
    berth_status s = run_workflow_set(p, assignment, &err);
    if (want[0] == '!') {
        assert_int_equal(s, BERTH_EINVAL);
        if (!strstr(err.msg, want + 1))
            fail_msg("'%s' is not in '%s'", want + 1, err.msg);
    } else {
        struct str got = { 0 };
        assert_int_equal(s, BERTH_OK);
        json_t *in = json_object_get(json_object_get(p, node), "inputs");
        js_write(json_object_get(in, input), -1, &got);
        assert_string_equal(str_c(&got), want);
        str_release(&got);
    }
    json_decref(p);
}

static void set_by_id_title_and_class(void **state)
{
    (void)state;
    sets("1.width=32", "1", "width", "32");
    sets("my.pic.width=32.5", "1", "width", "32.5");
    sets("EmptyImage.color=18446744073709551615", "1", "color", "18446744073709551615");
    sets("1.width=a cat = a cat", "1", "width", "\"a cat = a cat\"");
    sets("1.width=\"7\"", "1", "width", "\"7\"");
    sets("1.width=", "1", "width", "\"\"");
    sets("4.filename_prefix=true", "4", "filename_prefix",
         "\"true\""); /* a text stays what it is */
    sets("4.filename_prefix=1.50", "4", "filename_prefix", "\"1.50\"");
}

static void set_mistakes(void **state)
{
    (void)state;
    sets("ImageInvert.image=1", "", "", "!is 2 nodes");
    sets("9.width=1", "", "", "!no node '9'; there are 1 (my.pic, EmptyImage), 2 (ImageInvert)");
    sets("1.widht=1", "", "", "!EmptyImage has no input 'widht'; it has width, height");
    sets("width=1", "", "", "!NODE.INPUT=VALUE");
    sets("1.width", "", "", "!NODE.INPUT=VALUE");
    sets(".width=1", "", "", "!NODE.INPUT=VALUE");
}

static berth_status reads(const char *text, json_t **prompt, json_t **extra, berth_err *err)
{
    return run_workflow_read(tmp_write("w.json", text, strlen(text)), prompt, extra, err);
}

static void formats(void **state)
{
    (void)state;
    json_t *p, *x;
    berth_err err;
    assert_int_equal(reads(graph, &p, &x, &err), BERTH_OK);
    assert_int_equal(json_object_size(p), 4);
    assert_null(x);
    json_decref(p);
    assert_int_equal(reads("{\"prompt\":{\"1\":{}},\"extra_data\":{\"a\":1}}", &p, &x, &err),
                     BERTH_OK);
    assert_int_equal(json_object_size(p), 1);
    assert_int_equal(json_object_size(x), 1);
    json_decref(p);
    json_decref(x);
    assert_int_equal(reads("{\"nodes\":[],\"links\":[]}", &p, &x, &err), BERTH_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "Export (API)"));
    assert_int_equal(reads("[1]", &p, &x, &err), BERTH_EFORMAT);
    assert_int_equal(reads("{", &p, &x, &err), BERTH_EFORMAT);
    assert_int_equal(run_workflow_read("/nowhere/at/all.json", &p, &x, &err), BERTH_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_by_id_title_and_class),
        cmocka_unit_test(set_mistakes),
        cmocka_unit_test(formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
