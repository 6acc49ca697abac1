/* Every class of the registry, whoever wrote it: what tables of definitions get wrong. */
#include "support/node_rig.h"
#include "support/oom.h"

static void lists_are_in_order(void **state)
{
    (void)state;
    assert_true(node_count() > 200);
    size_t falls = 0; /* two sorted lists, one behind the other */
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = node_at(i);
        assert_ptr_equal(node_find(c->name), c); /* which also makes names unique */
        if (i && strcmp(node_at(i - 1)->name, c->name) >= 0)
            falls++;
    }
    assert_true(falls <= 1);
    assert_null(node_find("NoSuchNode"));
    assert_null(node_find(""));
    assert_null(node_find("ksampler"));
}

static void in_range(const struct node_class *c, const struct node_input *in)
{
    bool ok = true;
    if (in->kind == IN_INT && !in->no_range)
        ok = in->imin <= in->imax && in->idef >= in->imin && in->idef <= in->imax && in->istep >= 0;
    if (in->kind == IN_FLOAT && !in->no_range)
        ok = in->fmin <= in->fmax && in->fdef >= in->fmin && in->fdef <= in->fmax && in->fstep >= 0;
    if (in->kind == IN_SOCKET)
        ok = in->type && *in->type;
    if (in->kind == IN_COMBO && in->options && in->sdef) {
        ok = false;
        for (const char *const *o = in->options; *o; o++)
            ok = ok || !strcmp(*o, in->sdef);
    }
    if (in->kind == IN_COMBO && in->options) /* none: people make them, and nobody checks */
        ok = ok && (in->options[0] || (c->validates && !strcmp(c->validates, in->name)));
    if (in->kind == IN_DYNCOMBO)
        ok = in->choices;
    for (size_t i = 0; i < in->choices; i++)
        for (size_t k = 0; k < in->choice[i].ins; k++)
            in_range(c, &in->choice[i].in[k]);
    if (in->kind == IN_AUTOGROW)
        ok = in->subs == 1 && !in->prefix == (in->members != NULL) &&
             (in->members || (in->max >= 1 && in->min <= in->max));
    for (size_t i = 0; i < in->subs; i++)
        in_range(c, &in->sub[i]);
    if (!ok)
        fail_msg("%s.%s: default, range or choices", c->name, in->name);
}

static void definitions_make_sense(void **state)
{
    (void)state;
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = node_at(i);
        bool shown = !(c->flags & NODE_DEPRECATED); /* one without a category is in no menu */
        if (!c->run || !c->category || (shown && !*c->category) || !c->module ||
            c->ins > NODE_INPUTS_MAX || c->outs > NODE_OUTPUTS_MAX ||
            (!c->outs && !(c->flags & NODE_OUTPUT)))
            fail_msg("%s: run, category, module or too much of something", c->name);
        if (strncmp(c->module, "nodes", 5) && strncmp(c->module, "comfy_extras.", 13) &&
            strncmp(c->module, "custom_nodes.", 13))
            fail_msg("%s: module '%s' is unknown to frontends", c->name, c->module);
        for (size_t k = 0; k < c->ins; k++) {
            if (node_input_index(c, c->in[k].name) != k)
                fail_msg("%s.%s is there twice", c->name, c->in[k].name);
            in_range(c, &c->in[k]);
        }
        for (size_t k = 0; k < c->outs; k++)
            if (!c->out[k].type || !*c->out[k].type)
                fail_msg("%s: output %zu has no type", c->name, k);
        if (c->validates && (!c->validate || node_input_index(c, c->validates) == SIZE_MAX))
            fail_msg("%s: its validator is about no input", c->name);
    }
}

/* input_order names every listed input once, in order, and input has the same. */
static void order_is_kept(const struct node_class *c, const json_t *info)
{
    static const char *const groups[] = { "required", "optional" };
    size_t seen = 0;
    for (size_t g = 0; g < 2; g++) {
        const json_t *order = json_object_get(json_object_get(info, "input_order"), groups[g]);
        json_t *group = json_object_get(json_object_get(info, "input"), groups[g]);
        size_t at = 0;
        void *it = json_object_iter(group);
        for (size_t i = 0; i < c->ins; i++) {
            if (c->in[i].unlisted || c->in[i].optional != (g == 1))
                continue;
            assert_string_equal(json_string_value(json_array_get(order, at++)), c->in[i].name);
            assert_string_equal(json_object_iter_key(it), c->in[i].name);
            it = json_object_iter_next(group, it);
            seen++;
        }
        assert_int_equal(json_array_size(order), at);
    }
    for (size_t i = 0; i < c->ins; i++)
        seen += c->in[i].unlisted;
    assert_int_equal(seen, c->ins);
}

static void definitions_are_json(void **state)
{
    struct node_rig *r = *state;
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = node_at(i);
        struct str text = { 0 };
        json_t *info, *back;
        assert_ok(node_info(&r->env, c, &info, &r->err), r->err);
        js_write(info, 0, &text);
        assert_ok(js_parse(str_c(&text), text.n, NULL, &back, &r->err), r->err);
        assert_true(json_equal(info, back));
        order_is_kept(c, info);
        assert_string_equal(json_string_value(json_object_get(info, "name")), c->name);
        bool v3 = c->flags & NODE_V3;
        assert_true(!v3 == !json_object_get(info, "output_matchtypes"));
        assert_true(!v3 == !json_object_get(info, "api_node"));
        json_decref(info);
        json_decref(back);
        str_release(&text);
    }
}

/* The example of comfyui-api.md 7.2, without its texts. */
static void save_image_is_the_example(void **state)
{
    struct node_rig *r = *state;
    static const char want[] =
        "{\"input\":{\"required\":{\"images\":[\"IMAGE\",{\"tooltip\":\"What is written, a PNG "
        "each.\"}],\"filename_prefix\":[\"STRING\",{\"default\":\"ComfyUI\",\"tooltip\":\"How the "
        "files begin; folders may be in "
        "it.\"}]},\"hidden\":{\"prompt\":\"PROMPT\",\"extra_pnginfo\":"
        "\"EXTRA_PNGINFO\"}},\"input_order\":{\"required\":[\"images\",\"filename_prefix\"],"
        "\"hidden\":[\"prompt\",\"extra_pnginfo\"]},\"output\":[\"IMAGE\"],\"output_is_list\":["
        "false],"
        "\"output_name\":[\"images\"],\"name\":\"SaveImage\",\"display_name\":\"Save Image\","
        "\"python_module\":\"nodes\",\"category\":\"image\",\"output_node\":true,"
        "\"essentials_category\":\"Basics\",\"is_input_list\":false,\"has_intermediate_output\":"
        "false,\"search_aliases\":[]}";
    struct str text = { 0 };
    json_t *info;
    assert_ok(node_info(&r->env, node_find("SaveImage"), &info, &r->err), r->err);
    json_object_del(info, "description");
    js_write(info, 0, &text);
    assert_string_equal(str_c(&text), want);
    str_release(&text);
    json_decref(info);
}

static void specs_have_their_shapes(void **state)
{
    struct node_rig *r = *state;
    static const struct {
        const char *cls, *input, *want;
    } t[] = {
        { "KSamplerAdvanced", "noise_seed",
          "[\"INT\",{\"default\":0,\"min\":0,\"max\":18446744073709551615,"
          "\"control_after_generate\":true}]" },
        { "KSamplerAdvanced", "cfg",
          "[\"FLOAT\",{\"default\":8.0,\"min\":0.0,\"max\":100.0,\"step\":0.1,\"round\":0.01}]" },
        { "KSamplerAdvanced", "model", "[\"MODEL\"]" },
        { "ImageScale", "crop", "[[\"disabled\",\"center\"]]" },
        { "CLIPTextEncode", "text",
          "[\"STRING\",{\"tooltip\":\"What the picture shall show.\",\"multiline\":true,"
          "\"dynamicPrompts\":true}]" },
        { "ImageToMask", "channel",
          "[\"COMBO\",{\"multiselect\":false,\"options\":[\"red\",\"green\",\"blue\","
          "\"alpha\"]}]" },
        { "ImageToMask", "image", "[\"IMAGE\",{}]" },
        { "SaveAnimatedPNG", "filename_prefix",
          "[\"STRING\",{\"default\":\"ComfyUI\",\"multiline\":false}]" },
        { "KarrasScheduler", "rho",
          "[\"FLOAT\",{\"default\":7.0,\"min\":0.0,\"max\":100.0,\"step\":0.01,"
          "\"advanced\":true,\"round\":false}]" },
        { "PreviewAny", "source", "[\"*\",{}]" },
        { "LoadImageOutput", "image",
          "[\"COMBO\",{\"image_upload\":true,\"image_folder\":\"output\",\"remote\":{\"route\":"
          "\"/internal/files/output\",\"refresh_button\":true,\"control_after_refresh\":"
          "\"first\"}}]" },
        { "INTConstant", "value",
          "[\"INT\",{\"default\":0,\"min\":-1.8446744073709552e+19,"
          "\"max\":18446744073709551615}]" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const struct node_class *c = node_find(t[i].cls);
        struct str text = { 0 };
        json_t *spec;
        assert_ok(
            node_input_spec(&r->env, c, &c->in[node_input_index(c, t[i].input)], &spec, &r->err),
            r->err);
        js_write(spec, 0, &text);
        assert_string_equal(str_c(&text), t[i].want);
        str_release(&text);
        json_decref(spec);
    }
}

static void lists_follow_the_folder(void **state)
{
    struct node_rig *r = *state;
    const struct node_class *c = node_find("LoadImage");
    struct names names = { 0 };
    tmp_write("input/b.png", "x", 1);
    tmp_write("input/a.jpg", "x", 1);
    tmp_write("input/c.latent", "x", 1);
    assert_ok(node_options(&r->env, &c->in[0], &names, &r->err), r->err);
    assert_int_equal(names.n, 2);
    assert_string_equal(names.at[0], "a.jpg");
    names_release(&names);
    c = node_find("LoadLatent");
    assert_ok(node_options(&r->env, &c->in[0], &names, &r->err), r->err);
    assert_int_equal(names.n, 1);
    assert_string_equal(names.at[0], "c.latent");
    names_release(&names);
}

static void not_yet_says_who(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "GLSLShader");
    assert_fails(rig_run(r), r->err, BERTH_EUNSUPPORTED, "GLSLShader cannot be computed yet");
    assert_string_equal(node_exception(BERTH_EUNSUPPORTED), "NotImplementedError");
}

/* Each word stands over an input or output that there is, and in the place a frontend looks. */
static void tooltips(void **state)
{
    struct node_rig *r = *state;
    size_t n = 0;
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = node_at(i);
        for (size_t k = 0; k < c->ins; k++)
            n += node_input_tip(c, &c->in[k]) != NULL;
        for (size_t k = 0; k < c->outs; k++)
            n += node_output_tip(c, k) != NULL;
    }
    assert_int_equal(n, node_tips());
    const struct node_class *c = node_find("KSampler");
    json_t *info, *spec;
    const char *name;
    assert_ok(node_info(&r->env, c, &info, &r->err), r->err);
    json_object_foreach(json_object_get(json_object_get(info, "input"), "required"), name, spec)
        assert_true(json_is_string(json_object_get(json_array_get(spec, 1), "tooltip")));
    assert_int_equal(json_array_size(json_object_get(info, "output_tooltips")), 1);
    json_decref(info);
    assert_ok(node_info(&r->env, node_find("VAEEncode"), &info, &r->err), r->err);
    assert_null(json_object_get(info, "output_tooltips")); /* an older class without any */
    json_decref(info);
}

static void info_survives_oom(void **state)
{
    struct node_rig *r = *state;
    static const char *const name[] = { "SaveImage", "KSampler", "SamplerCustom", "LoadImage",
                                        "LoadImageOutput" };
    json_set_alloc_funcs(oom_malloc, free);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s; k++) {
            json_t *info = NULL;
            oom_after(k);
            s = node_info(&r->env, node_find(name[i]), &info, &r->err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !info && r->err.msg[0]));
            json_decref(info);
        }
    }
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_in_order),      cmocka_unit_test(definitions_make_sense),
        cmocka_unit_test(definitions_are_json),    cmocka_unit_test(save_image_is_the_example),
        cmocka_unit_test(specs_have_their_shapes), cmocka_unit_test(lists_follow_the_folder),
        cmocka_unit_test(not_yet_says_who),        cmocka_unit_test(tooltips),
        cmocka_unit_test(info_survives_oom),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
