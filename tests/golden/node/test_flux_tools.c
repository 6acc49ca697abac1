/* Flux's tools through nodes: run/<case> of flux_tools, whose cases the manifest lists: the model,
 * what the prompts show it, and the strength of the control LoRA on the plain model. */
#include "support/painted.h"

static void load(struct tiny *t, const char *model, double lora, struct call *unet,
                 struct call *patched)
{
    char list[64], inputs[128];
    const char *lists[] = { list };
    berth_err err = { 0 };
    snprintf(list, sizeof list, "flux_%s_tool_keys.json", model);
    tiny_write(rig_path(&t->r, "diffusion_models/tool.safetensors"), lists, 1, 0);
    assert_ok(rig_run(&t->r, unet, "UNETLoader", "{\"unet_name\": \"tool.safetensors\"}", &err),
              err);
    if (lora == 0)
        return;
    snprintf(list, sizeof list, "flux_lora_tool_keys.json");
    tiny_write(rig_path(&t->r, "loras/tool.safetensors"), lists, 1, 0);
    snprintf(inputs, sizeof inputs, "{\"lora_name\": \"tool.safetensors\", \"strength_model\": %g}",
             lora);
    rig_call(&t->r, patched, "LoraLoaderModelOnly", inputs);
    call_give(patched, "model", unet->out[0].at[0]);
    assert_ok(patched->c.cls->run(&patched->c, &err), err);
}

static bool run_case(struct tiny *t, const json_t *c, const char *name)
{
    struct call unet, lora = { 0 };
    const double strength = tiny_number(c, "lora");
    char result[80];
    snprintf(result, sizeof result, "run/%s", name);
    load(t, tiny_text(c, "model"), strength, &unet, &lora);
    double off = painted_off(t, strength != 0 ? lora.out[0].at[0] : unet.out[0].at[0], c, "vec",
                             "simple", result);
    if (strength != 0)
        call_release(&lora);
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
