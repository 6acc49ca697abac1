/* Runs of the tiny SD1.5 model that keep to boxes of a GLIGEN, against ComfyUI's: every case of
 * gligen_tiny in the manifest. The negative prompt looks at the positive's boxes too, unless that
 * has an area. */
#include "support/tiny_rig.h"

struct scene {
    struct tiny t;
    struct call unet, gligen;
    struct htensor *texts;
};

static void scene_open(struct scene *s)
{
    static const char *const unet[] = { "sd15_tiny_unet_keys.json" };
    const char *gligen[1];
    berth_err err = { 0 };
    *s = (struct scene) { .texts = NULL };
    tiny_open(&s->t, "gligen_tiny");
    gligen[0] = tiny_text(s->t.settings, "keys");
    tiny_write(rig_path(&s->t.r, "diffusion_models/tiny.safetensors"), unet, 1, 0);
    tiny_write(rig_path(&s->t.r, "gligen/tiny.safetensors"), gligen, 1, 0);
    assert_ok(
        rig_run(&s->t.r, &s->unet, "UNETLoader", "{\"unet_name\": \"tiny.safetensors\"}", &err),
        err);
    assert_ok(rig_run(&s->t.r, &s->gligen, "GLIGENLoader",
                      "{\"gligen_name\": \"tiny.safetensors\"}", &err),
              err);
    s->texts = tiny_tensor(&s->t, "texts");
}

static void scene_close(struct scene *s)
{
    htensor_unref(s->texts);
    call_release(&s->unet);
    call_release(&s->gligen);
    tiny_close(&s->t);
}

static double number(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

/* The boxes of a case, as GLIGENTextBoxApply adds them. */
static void add_boxes(struct scene *s, struct cond_entry *e, const json_t *boxes)
{
    const size_t wide = (size_t)s->texts->shape.dim[1];
    berth_err err = { 0 };
    for (size_t i = 0; i < json_array_size(boxes); i++) {
        const json_t *b = json_array_get(boxes, i);
        struct htensor *text;
        assert_ok(htensor_new(&(struct shape) { 2, { 1, wide } }, &text, &err), err);
        memcpy(text->data, s->texts->data + i * wide, wide * sizeof(float));
        const struct cond_box box = {
            .text = text, .h = number(b, 0), .w = number(b, 1), .y = number(b, 2), .x = number(b, 3)
        };
        assert_ok(cond_box_add(&e->box, box, &err), err);
        htensor_unref(text);
        if (!e->gligen)
            e->gligen = value_ref(s->gligen.out[0].at[0]);
    }
}

static struct conditioning *prompt(struct scene *s, const char *name)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(&s->t, name), NULL, &x, &err), err);
    return x;
}

/* The positive prompt of a case: with an area it stands beside one for the whole picture. */
static struct value *positive(struct scene *s, const json_t *about)
{
    struct conditioning *x = prompt(s, "positive");
    const json_t *area = json_object_get(about, "area");
    berth_err err = { 0 };
    add_boxes(s, &x->at[0], json_object_get(about, "boxes"));
    if (json_is_array(area)) {
        struct conditioning *whole = prompt(s, "positive"), *both;
        x->at[0].area_kind = AREA_PIXELS;
        for (size_t i = 0; i < 4; i++)
            x->at[0].area[i] = number(area, i);
        assert_ok(conditioning_join(x, whole, &both, &err), err);
        conditioning_free(x);
        conditioning_free(whole);
        x = both;
    }
    return value_object(&type_conditioning, x);
}

static void run_case(struct scene *s, const char *name, const json_t *about, struct call *x)
{
    const json_t *size = json_object_get(s->t.settings, "size");
    char inputs[200];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %.0f, \"steps\": %.0f, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"normal\", \"denoise\": 1.0}",
             tiny_number(s->t.settings, "seed"), tiny_number(s->t.settings, "steps"),
             tiny_number(s->t.settings, "cfg"));
    struct value *given[] = {
        positive(s, about), value_object(&type_conditioning, prompt(s, "negative")),
        tiny_empty(1, 4, (uint64_t)number(size, 0), (uint64_t)number(size, 1))
    };
    static const char *const to[] = { "positive", "negative", "latent_image" };
    rig_call(&s->t.r, x, "KSampler", inputs);
    call_give(x, "model", s->unet.out[0].at[0]);
    for (size_t i = 0; i < ARRAY_LEN(given); i++) {
        call_give(x, to[i], given[i]);
        value_unref(given[i]);
    }
    if (x->c.cls->run(&x->c, &err))
        fail_msg("%s: %s", name, err.msg);
}

static void boxes_equal_the_golden_files(void **state)
{
    struct scene s;
    const char *name;
    json_t *about;
    size_t boxed = 0;
    (void)state;
    where_or_skip();
    scene_open(&s);
    struct htensor *none = tiny_tensor(&s.t, "none");
    json_object_foreach(json_object_get(s.t.settings, "cases"), name, about)
    {
        struct call x;
        struct htensor *want = tiny_tensor(&s.t, name);
        run_case(&s, name, about, &x);
        const double off = tiny_off(call_latent(&x, 0), want);
        const double apart = tiny_off(call_latent(&x, 0), none);
        print_message("%-8s %.3g off, %.3g from no boxes\n", name, off, apart);
        assert_true(off <= tiny_limit(&s.t, name));
        if (json_array_size(json_object_get(about, "boxes"))) {
            assert_true(apart > 10 * tiny_limit(&s.t, name)); /* boxes matter */
            boxed++;
        }
        htensor_unref(want);
        call_release(&x);
    }
    assert_true(boxed > 0);
    htensor_unref(none);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(boxes_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
