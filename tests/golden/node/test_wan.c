/* The runs of every Wan transformer of the golden files, through UNETLoader and KSampler:
 *
 *     sample/<sampler>/<scheduler>/<steps>         prompts are `context` and `negative`
 *     sample_steps/<sampler>/<scheduler>/<steps>/<from>-<to>
 *                                                  by KSamplerAdvanced: the first such begins with
 *                                                  noise, the others go on where it ended
 *     sample_start/<sampler>/<scheduler>/<steps>   from start_latent, some of which stays as
 *                                                  noise_mask says
 *
 * from an empty latent of the size of the result. Where the file has concat_latent_image and
 * concat_mask, both prompts bring them along, as WanImageToVideo says them. */
#include "support/tiny_runs.h"

static struct htensor *tensor_if_any(const struct tiny *t, const char *name)
{
    return weights_find(t->golden, name, strlen(name)) ? tiny_tensor(t, name) : NULL;
}

/* A prompt with what the file has beside it. */
static struct value *prompt(const struct tiny *t, const char *name)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(t, name), NULL, &x, &err), err);
    x->at[0].concat_latent = tensor_if_any(t, "concat_latent_image");
    x->at[0].concat_mask = tensor_if_any(t, "concat_mask");
    return value_object(&type_conditioning, x);
}

static struct value *empty(const struct shape *s)
{
    struct htensor *z;
    berth_err err = { 0 };
    assert_ok(htensor_zeros(s, &z, &err), err);
    return tiny_latent(z, NULL);
}

/* Steps from .. to; latent: what they begin with. */
static void advanced(struct tiny *t, struct value *model, struct value *const cond[2],
                     const char *name, struct value *latent, struct call *x)
{
    char sampler[64], scheduler[64], inputs[512];
    int steps, from, to;
    berth_err err = { 0 };
    if (sscanf(name, "sample_steps/%63[^/]/%63[^/]/%d/%d-%d", sampler, scheduler, &steps, &from,
               &to) != 5)
        fail_msg("what steps are '%s'?", name);
    snprintf(inputs, sizeof inputs,
             "{\"add_noise\": \"%s\", \"noise_seed\": %.0f, \"steps\": %d, \"cfg\": %g, "
             "\"sampler_name\": \"%.40s\", \"scheduler\": \"%.40s\", \"start_at_step\": %d, "
             "\"end_at_step\": %d, \"return_with_leftover_noise\": \"%s\"}",
             from ? "disable" : "enable", tiny_number(t->settings, "seed"), steps,
             tiny_number(t->settings, "cfg"), sampler, scheduler, from, to,
             to < steps ? "enable" : "disable");
    rig_call(&t->r, x, "KSamplerAdvanced", inputs);
    call_give(x, "model", model);
    call_give(x, "positive", cond[0]);
    call_give(x, "negative", cond[1]);
    call_give(x, "latent_image", latent);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static bool compare(const struct tiny *t, const char *model, const char *name, const struct call *x)
{
    struct htensor *want = tiny_tensor(t, name);
    const double off = tiny_off(call_latent(x, 0), want), limit = tiny_limit(t, name);
    print_message("%s %s: %.3g off, at most %.3g\n", model, name, off, limit);
    htensor_unref(want);
    return off <= limit;
}

static size_t runs_of(const char *model)
{
    struct tiny t;
    struct call unet;
    char kind[64], inputs[256];
    size_t runs = 0, wrong = 0;
    tiny_open(&t, model);
    tiny_unet(&t, model, &unet);
    struct value *cond[2] = { prompt(&t, "context"), prompt(&t, "negative") }, *latent = NULL;
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const struct weights_entry *e = weights_at(t.golden, i);
        struct call x;
        if (!tiny_run_of(&t, e->name, kind, inputs))
            continue;
        if (!strcmp(kind, "sample")) {
            tiny_ksample(&t, unet.out[0].at[0], cond, inputs, empty(&e->shape), &x);
        } else if (!strcmp(kind, "sample_start")) {
            tiny_ksample(
                &t, unet.out[0].at[0], cond, inputs,
                tiny_latent(tiny_tensor(&t, "start_latent"), tiny_tensor(&t, "noise_mask")), &x);
        } else if (!strcmp(kind, "sample_steps")) {
            struct value *from = latent ? latent : empty(&e->shape);
            advanced(&t, unet.out[0].at[0], cond, e->name, from, &x);
            value_unref(from);
            latent = value_ref(x.out[0].at[0]);
        } else {
            fail_msg("what run is '%s'?", e->name);
        }
        wrong += !compare(&t, model, e->name, &x);
        runs++;
        call_release(&x);
    }
    assert_int_equal(wrong, 0);
    value_unref(latent);
    value_unref(cond[0]);
    value_unref(cond[1]);
    call_release(&unet);
    tiny_close(&t);
    return runs;
}

static void every_run(void **state)
{
    (void)state;
    where_or_skip();
    json_t *manifest, *about;
    const char *name;
    size_t runs = 0;
    berth_err err = { 0 };
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        const char *is =
            json_string_value(json_object_get(json_object_get(about, "config"), "image_model"));
        if (is && !strcmp(is, "wan2.1"))
            runs += runs_of(name);
    }
    assert_true(runs > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
