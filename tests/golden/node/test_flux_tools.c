/* Flux's tools through nodes: run/<case> of flux_tools, whose cases the manifest lists: the model,
 * what the prompts show it (picture, mask), the latent's mask, how many latents, and the strength
 * of the control LoRA on the plain model. The negative prompt is half of the positive one. */
#include "support/tiny_rig.h"

static struct htensor *named(const struct tiny *t, const json_t *c, const char *key)
{
    const char *name = json_string_value(json_object_get(c, key));
    return name ? tiny_tensor(t, name) : NULL;
}

static struct value *prompt(const struct tiny *t, const json_t *c, float by)
{
    struct conditioning *x;
    berth_err err = { 0 };
    struct htensor *text = tiny_tensor(t, "context");
    for (size_t i = 0; i < htensor_count(text); i++)
        text->data[i] *= by;
    assert_ok(conditioning_new(text, tiny_tensor(t, "vec"), &x, &err), err);
    x->at[0].concat_latent = named(t, c, "picture");
    x->at[0].concat_mask = named(t, c, "mask");
    return value_object(&type_conditioning, x);
}

/* As often as the case says. */
static struct value *latents(const struct tiny *t, const json_t *c)
{
    struct htensor *one = tiny_tensor(t, "latent"), *all;
    struct shape s = one->shape;
    berth_err err = { 0 };
    s.dim[0] = (uint64_t)tiny_number(c, "batch");
    assert_ok(htensor_new(&s, &all, &err), err);
    for (size_t i = 0; i < (size_t)s.dim[0]; i++)
        memcpy(all->data + i * htensor_count(one), one->data,
               htensor_count(one) * sizeof *one->data);
    htensor_unref(one);
    return tiny_latent(all, named(t, c, "noise_mask"));
}

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

static double run_case(struct tiny *t, const json_t *c, const struct htensor *want)
{
    struct call unet, lora = { 0 }, x;
    double strength = tiny_number(c, "lora");
    char inputs[200];
    berth_err err = { 0 };
    load(t, tiny_text(c, "model"), strength, &unet, &lora);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}",
             (int)tiny_number(t->settings, "seed"), (int)tiny_number(t->settings, "steps"),
             tiny_number(t->settings, "cfg"));
    struct value *given[] = { prompt(t, c, 1.0f), prompt(t, c, 0.5f), latents(t, c) };
    rig_call(&t->r, &x, "KSampler", inputs);
    call_give(&x, "model", strength != 0 ? lora.out[0].at[0] : unet.out[0].at[0]);
    call_give(&x, "positive", given[0]);
    call_give(&x, "negative", given[1]);
    call_give(&x, "latent_image", given[2]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    double off = tiny_off(call_latent(&x, 0), want);
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        value_unref(given[i]);
    call_release(&x);
    if (strength != 0)
        call_release(&lora);
    call_release(&unet);
    return off;
}

static void every_case(void **state)
{
    struct tiny t;
    const char *name;
    const json_t *c;
    size_t wrong = 0;
    (void)state;
    where_or_skip();
    tiny_open(&t, "flux_tools");
    json_t *cases = json_object_get(t.settings, "cases");
    assert_true(json_object_size(cases) > 0);
    json_object_foreach(cases, name, c)
    {
        char tensor[80];
        snprintf(tensor, sizeof tensor, "run/%s", name);
        struct htensor *want = tiny_tensor(&t, tensor);
        assert_non_null(want);
        double off = run_case(&t, c, want);
        print_message("%s: %.3g off\n", name, off);
        wrong += !(off <= tiny_limit(&t, tensor));
        htensor_unref(want);
    }
    assert_int_equal(wrong, 0);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_case) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
