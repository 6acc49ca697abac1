/* Inpainting UNets through nodes: <model>/<case> of inpaint, whose models and cases the manifest
 * lists. */
#include "support/painted.h"

static size_t run_model(struct tiny *t, const char *model)
{
    char list[64], result[80];
    const char *lists[] = { list }, *name;
    json_t *c, *cases = json_object_get(t->settings, "cases");
    struct call unet;
    size_t wrong = 0;
    berth_err err = { 0 };
    snprintf(list, sizeof list, "inpaint_%s_keys.json", model);
    tiny_write(rig_path(&t->r, "diffusion_models/inpaint.safetensors"), lists, 1, 0);
    assert_ok(rig_run(&t->r, &unet, "UNETLoader", "{\"unet_name\": \"inpaint.safetensors\"}", &err),
              err);
    assert_true(json_object_size(cases) > 0);
    json_object_foreach(cases, name, c)
    {
        snprintf(result, sizeof result, "%s/%s", model, name);
        wrong += !(painted_off(t, unet.out[0].at[0], c, "pooled", "normal", result) <=
                   tiny_limit(t, result));
    }
    call_release(&unet);
    return wrong;
}

static void every_model(void **state)
{
    struct tiny t;
    size_t i, wrong = 0;
    json_t *model;
    (void)state;
    where_or_skip();
    tiny_open(&t, "inpaint");
    json_t *models = json_object_get(t.settings, "models");
    assert_true(json_array_size(models) > 0);
    json_array_foreach(models, i, model) wrong += run_model(&t, json_string_value(model));
    assert_int_equal(wrong, 0);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
