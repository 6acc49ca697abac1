/* Workflow files, and what --set changes in them. */
#include "app/run.h"
#include "image/image.h"
#include "support/test.h"
#include "support/tmp.h"

static const char graph[] =
    "{\"1\":{\"class_type\":\"EmptyImage\",\"inputs\":{\"width\":8},\"_meta\":{\"title\":\"my."
    "pic\"}},"
    "\"2\":{\"class_type\":\"ImageInvert\",\"inputs\":{\"image\":[\"1\",0]}},"
    "\"3\":{\"class_type\":\"ImageInvert\",\"inputs\":{\"image\":[\"2\",0]}},"
    "\"4\":{\"class_type\":\"SaveImage\",\"inputs\":{\"images\":[\"3\",0]}},"
    "\"5\":{\"class_type\":\"ComfyMathExpression\",\"inputs\":{}},"
    "\"6\":{\"class_type\":\"TextGenerate\",\"inputs\":{\"sampling_mode\":\"on\"}},"
    "\"7\":{\"class_type\":\"TextGenerate\",\"inputs\":{\"sampling_mode\":\"off\"}},"
    "\"8\":{\"class_type\":\"TextGenerate\",\"inputs\":{}}}";

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
    sets("5.values.b=9", "5", "values.b", "9"); /* of an input that grows */
    sets("ComfyMathExpression.values.z=2.5", "5", "values.z", "2.5");
}

/* Children of a choice: by their dotted names, and with what else the choice requires. */
static void set_inputs_that_a_choice_brings(void **state)
{
    (void)state;
    sets("6.sampling_mode.temperature=0.9", "6", "sampling_mode.temperature", "0.9");
    sets("6.sampling_mode.presence_penalty=1", "6", "sampling_mode.presence_penalty", "1");
    sets("7.sampling_mode=on", "7", "sampling_mode.top_k", "64");
    sets("7.sampling_mode=on", "7", "sampling_mode.temperature", "0.7");
    sets("7.sampling_mode=on", "7", "sampling_mode.presence_penalty", "null"); /* optional */
    sets("6.sampling_mode=off", "6", "sampling_mode", "\"off\"");
    sets("8.sampling_mode.seed=5", "8", "sampling_mode", "\"on\""); /* only that brings it */
    sets("8.sampling_mode.seed=5", "8", "sampling_mode.seed", "5");
    sets("8.sampling_mode.seed=5", "8", "sampling_mode.top_p", "0.95");
    sets("7.sampling_mode.temperature=1", "", "",
         "!'sampling_mode.temperature' comes with sampling_mode=on, and the node has "
         "sampling_mode=off: set sampling_mode first");
    sets("6.sampling_mode.temprature=1", "", "",
         "!TextGenerate has no input 'sampling_mode.temprature'; there are "
         "sampling_mode.temperature, sampling_mode.top_k");
    sets("5.values.nobody=1", "", "", "!there are values.a, values.b, values.c, values.d, ...");
}

static void set_mistakes(void **state)
{
    (void)state;
    sets("ImageInvert.image=1", "", "",
         "!'ImageInvert' is several nodes: say which by its id: 2 (ImageInvert), "
         "3 (ImageInvert)");
    sets("9.width=1", "", "", "!no node '9'; there are 1 (my.pic, EmptyImage), 2 (ImageInvert)");
    sets("1.widht=1", "", "", "!EmptyImage has no input 'widht'; it has width, height");
    sets("width=1", "", "", "!not 'width=1'; did you mean --set EmptyImage.width=1?");
    sets("image=1", "", "", "!not 'image=1'; NODE may be 2 (ImageInvert), 3 (ImageInvert)");
    sets("nothing=1", "", "", "!wants NODE.INPUT=VALUE, as in KSampler.steps=3, not 'nothing=1'");
    sets("1.width", "", "", "!NODE.INPUT=VALUE");
    sets(".width=1", "", "", "!NODE.INPUT=VALUE");
}

/* A title that several nodes have means the one with such an input, if it is one. */
static void titles_that_several_have(void **state)
{
    (void)state;
    static const char text[] =
        "{\"1\":{\"class_type\":\"EmptyImage\",\"inputs\":{},\"_meta\":{\"title\":\"base\"}},"
        "\"2\":{\"class_type\":\"SaveImage\",\"inputs\":{},\"_meta\":{\"title\":\"base\"}},"
        "\"3\":{\"class_type\":\"Nobody\",\"inputs\":{\"x\":1},\"_meta\":{\"title\":\"base\"}}}";
    static const struct {
        const char *set, *node, *input;
    } row[] = { { "base.width=8", "1", "width" },
                { "base.filename_prefix=a", "2", "filename_prefix" },
                { "base.x=2", "3", "x" } };
    json_t *p;
    berth_err err;
    assert_int_equal(js_parse(text, strlen(text), NULL, &p, &err), BERTH_OK);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(run_workflow_set(p, row[i].set, &err), BERTH_OK);
        json_t *in = json_object_get(json_object_get(p, row[i].node), "inputs");
        assert_non_null(json_object_get(in, row[i].input));
    }
    assert_int_equal(run_workflow_set(p, "base.nothing=1", &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "1 (base, EmptyImage), 2 (base, SaveImage), 3 (base, Nobody)"));
    json_decref(p);
}

static void long_lists_say_how_many_more(void **state)
{
    (void)state;
    json_t *p = json_object();
    berth_err err;
    for (int i = 0; i < 40; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", i);
        json_object_set_new(p, id, json_pack("{s:s, s:{}}", "class_type", "EmptyImage", "inputs"));
    }
    assert_int_equal(run_workflow_set(p, "none.width=1", &err), BERTH_EINVAL);
    size_t shown = 0;
    for (const char *at = err.msg; (at = strstr(at, "(EmptyImage)")); at++)
        shown++;
    char want[32];
    snprintf(want, sizeof want, " and %zu more", 40 - shown);
    assert_non_null(strstr(err.msg, want));
    json_decref(p);
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
    assert_int_equal(json_object_size(p), 8);
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
    assert_non_null(strstr(err.msg, "line 1"));
    assert_int_equal(reads("# Berth", &p, &x, &err), BERTH_EFORMAT);
    assert_non_null(strstr(err.msg, "a workflow is JSON"));
    assert_null(strstr(err.msg, "line 1"));
    assert_int_equal(reads("", &p, &x, &err), BERTH_EFORMAT);
    assert_int_equal(run_workflow_read("/nowhere/at/all.json", &p, &x, &err), BERTH_ENOTFOUND);
}

static berth_status reads_png(const struct image_text *text, size_t texts, size_t cut, json_t **p,
                              berth_err *err)
{
    struct image im = { 0 };
    struct str out = { 0 };
    json_t *x;
    assert_ok(image_init(&im, 16, 16, 3, err), *err);
    memset(im.px, 7, (size_t)16 * 16 * 3);
    assert_ok(image_png(&im, &(struct image_png_args) { .text = text, .texts = texts }, &out, err),
              *err);
    berth_status s = run_workflow_read(tmp_write("w.png", out.p, out.n - cut), p, &x, err);
    assert_null(x);
    image_release(&im);
    str_release(&out);
    return s;
}

/* What SaveImage left in a picture runs again; one without, or with something else, says so. */
static void pictures(void **state)
{
    (void)state;
    char key[] = "prompt", other[] = "parameters", text[sizeof graph], bad[] = "{";
    json_t *p;
    berth_err err;
    memcpy(text, graph, sizeof text);
    struct image_text in[] = { { other, bad }, { key, text } };
    for (size_t cut = 0; cut < 20; cut += 16) { /* also one whose download broke off */
        assert_ok(reads_png(in, 2, cut, &p, &err), err);
        assert_int_equal(json_object_size(p), 8);
        json_decref(p);
    }
    assert_int_equal(reads_png(in, 1, 0, &p, &err), BERTH_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "w.png': no workflow was saved in this picture"));
    in[1].value = bad;
    assert_int_equal(reads_png(in, 2, 0, &p, &err), BERTH_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_by_id_title_and_class),
        cmocka_unit_test(set_inputs_that_a_choice_brings),
        cmocka_unit_test(set_mistakes),
        cmocka_unit_test(titles_that_several_have),
        cmocka_unit_test(long_lists_say_how_many_more),
        cmocka_unit_test(formats),
        cmocka_unit_test(pictures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
