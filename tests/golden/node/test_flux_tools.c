/* Flux's tools through nodes: run/<case> of flux_tools, whose cases the manifest lists: the model,
 * what the prompts show it, the strength of the control LoRA on the plain model, and whether an
 * ordinary LoRA of the same layer stands before or after it. */
#include "support/painted.h"

static void load(struct tiny *t, const char *model, struct call *unet)
{
    char list[64];
    const char *lists[] = { list };
    berth_err err = { 0 };
    snprintf(list, sizeof list, "flux_%s_tool_keys.json", model);
    tiny_write(rig_path(&t->r, "diffusion_models/tool.safetensors"), lists, 1, 0);
    assert_ok(rig_run(&t->r, unet, "UNETLoader", "{\"unet_name\": \"tool.safetensors\"}", &err),
              err);
}

/* The model with one adapter more, in whose place it comes. */
static struct value *patch(struct tiny *t, struct value *model, const char *lora, double strength)
{
    struct call x;
    char list[64], file[64], inputs[128];
    const char *lists[] = { list };
    berth_err err = { 0 };
    snprintf(list, sizeof list, "flux_%s_tool_keys.json", lora);
    snprintf(file, sizeof file, "loras/%s.safetensors", lora);
    tiny_write(rig_path(&t->r, file), lists, 1, 0);
    snprintf(inputs, sizeof inputs, "{\"lora_name\": \"%s.safetensors\", \"strength_model\": %g}",
             lora, strength);
    rig_call(&t->r, &x, "LoraLoaderModelOnly", inputs);
    call_give(&x, "model", model);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *out = value_ref(x.out[0].at[0]);
    call_release(&x);
    value_unref(model);
    return out;
}

static bool run_case(struct tiny *t, const json_t *c, const char *name)
{
    struct call unet;
    const double strength = tiny_number(c, "lora");
    const char *narrow = json_string_value(json_object_get(c, "narrow"));
    char result[80];
    snprintf(result, sizeof result, "run/%s", name);
    load(t, tiny_text(c, "model"), &unet);
    struct value *model = value_ref(unet.out[0].at[0]);
    if (narrow && !strcmp(narrow, "before"))
        model = patch(t, model, "narrow", 1.0);
    if (strength != 0)
        model = patch(t, model, "lora", strength);
    if (narrow && !strcmp(narrow, "after"))
        model = patch(t, model, "narrow", 1.0);
    double off = painted_off(t, model, c, "vec", "simple", result);
    value_unref(model);
    call_release(&unet);
    return off <= tiny_limit(t, result);
}

static void every_case(void **state)
{
    struct tiny t;
    const char *name;
    json_t *c;
    size_t wrong = 0;
    (void)state;
    where_or_skip();
    tiny_open(&t, "flux_tools");
    json_t *cases = json_object_get(t.settings, "cases");
    assert_true(json_object_size(cases) > 0);
    json_object_foreach(cases, name, c) wrong += !run_case(&t, c, name);
    assert_int_equal(wrong, 0);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_case) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
