/* USO through nodes: uso of the golden files. seen/<picture>/<state> of CLIPVisionEncode;
 * run/<case> of Flux with USOStyleReference for each picture of the case, and where it says so with
 * a latent to look at. */
#include "support/tiny_rig.h"

struct scene {
    struct tiny t;
    struct call vision, patch, flux;
};

static void load(struct scene *s, struct call *x, const char *list, const char *folder, int heads,
                 const char *cls, const char *input)
{
    char file[64], inputs[64];
    const char *lists[] = { list };
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s/uso.safetensors", folder);
    tiny_write(rig_path(&s->t.r, file), lists, 1, heads);
    snprintf(inputs, sizeof inputs, "{\"%s\": \"uso.safetensors\"}", input);
    assert_ok(rig_run(&s->t.r, x, cls, inputs, &err), err);
}

static void scene_open(struct scene *s)
{
    tiny_open(&s->t, "uso");
    load(s, &s->vision, "uso_vision_keys.json", "clip_vision",
         (int)tiny_number(s->t.settings, "heads"), "CLIPVisionLoader", "clip_name");
    load(s, &s->patch, "uso_style_keys.json", "model_patches", 0, "ModelPatchLoader", "name");
    load(s, &s->flux, "uso_flux_keys.json", "diffusion_models", 0, "UNETLoader", "unet_name");
}

static void scene_close(struct scene *s)
{
    call_release(&s->vision);
    call_release(&s->patch);
    call_release(&s->flux);
    tiny_close(&s->t);
}

static struct value *see(struct scene *s, int picture)
{
    struct call x;
    char name[32];
    berth_err err = { 0 };
    snprintf(name, sizeof name, "image/%d", picture);
    struct value *image = value_tensor(tiny_tensor(&s->t, name));
    rig_call(&s->t.r, &x, "CLIPVisionEncode", "{\"crop\": \"center\"}");
    call_give(&x, "clip_vision", s->vision.out[0].at[0]);
    call_give(&x, "image", image);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *seen = value_ref(x.out[0].at[0]);
    value_unref(image);
    call_release(&x);
    return seen;
}

static void states(void **state)
{
    struct scene s;
    size_t cases = 0;
    (void)state;
    where_or_skip();
    scene_open(&s);
    for (size_t i = 0; i < weights_count(s.t.golden); i++) {
        const char *name = weights_at(s.t.golden, i)->name;
        char which[16];
        int picture;
        if (sscanf(name, "seen/%d/%15s", &picture, which) != 2)
            continue;
        struct value *v = see(&s, picture);
        const struct vision_output *o = v->object.obj;
        struct htensor *want = tiny_tensor(&s.t, name);
        const struct htensor *got = !strcmp(which, "low")   ? o->low
                                    : !strcmp(which, "mid") ? o->mid
                                                            : o->penultimate;
        assert_non_null(got);
        double off = tiny_off(got, want);
        print_message("%s: %.3g off\n", name, off);
        assert_true(off <= where_limit(&s.t.at, WHERE_MODULE, "uso", name));
        htensor_unref(want);
        value_unref(v);
        cases++;
    }
    assert_true(cases > 3);
    scene_close(&s);
}

/* The model with the style of one picture more; takes model. */
static struct value *styled(struct scene *s, struct value *model, int picture)
{
    struct call x;
    berth_err err = { 0 };
    struct value *seen = see(s, picture);
    rig_call(&s->t.r, &x, "USOStyleReference", "{}");
    call_give(&x, "model", model);
    call_give(&x, "model_patch", s->patch.out[0].at[0]);
    call_give(&x, "clip_vision_output", seen);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *out = value_ref(x.out[0].at[0]);
    call_release(&x);
    value_unref(seen);
    value_unref(model);
    return out;
}

static struct value *prompt(struct scene *s, const char *method)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(&s->t, "context"), tiny_tensor(&s->t, "vec"), &x, &err),
              err);
    if (method) {
        struct htensor *ref = tiny_tensor(&s->t, "ref");
        assert_string_equal(method, "uxo");
        assert_ok(cond_ref_add(&x->at[0].ref, ref, &err), err);
        x->at[0].ref_method = REF_UXO;
        htensor_unref(ref);
    }
    return value_object(&type_conditioning, x);
}

/* The caller's reference. */
static struct htensor *sample(struct scene *s, struct value *model, const char *method,
                              const struct shape *size)
{
    struct call x;
    char inputs[200];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}",
             (int)tiny_number(s->t.settings, "seed"), (int)tiny_number(s->t.settings, "steps"),
             tiny_number(s->t.settings, "cfg"));
    const uint64_t *d = size->dim;
    struct value *given[] = { prompt(s, method), prompt(s, method),
                              tiny_empty(d[0], d[1], d[2], d[3]) };
    rig_call(&s->t.r, &x, "KSampler", inputs);
    call_give(&x, "model", model);
    call_give(&x, "positive", given[0]);
    call_give(&x, "negative", given[1]);
    call_give(&x, "latent_image", given[2]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct htensor *got = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        value_unref(given[i]);
    return got;
}

static void runs(void **state)
{
    struct scene s;
    const char *name;
    json_t *c, *picture;
    size_t i, wrong = 0;
    (void)state;
    where_or_skip();
    scene_open(&s);
    json_t *cases = json_object_get(s.t.settings, "cases");
    assert_true(json_object_size(cases) > 0);
    json_object_foreach(cases, name, c)
    {
        char result[64];
        snprintf(result, sizeof result, "run/%s", name);
        const char *method = json_string_value(json_object_get(c, "method"));
        struct htensor *want = tiny_tensor(&s.t, result);
        struct value *model = value_ref(s.flux.out[0].at[0]);
        json_array_foreach(json_object_get(c, "pictures"), i, picture) model =
            styled(&s, model, (int)json_integer_value(picture));
        struct htensor *got = sample(&s, model, method, &want->shape);
        struct htensor *plain = sample(&s, s.flux.out[0].at[0], method, &want->shape);
        double off = tiny_off(got, want);
        print_message("%s: %.3g off, without it %.3g\n", result, off, tiny_off(plain, want));
        wrong += !(off <= tiny_limit(&s.t, result));
        assert_true(tiny_off(plain, want) > 1e-3);
        htensor_unref(want), htensor_unref(got), htensor_unref(plain);
        value_unref(model);
    }
    assert_int_equal(wrong, 0);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(states), cmocka_unit_test(runs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
