/* Encoders of pictures and style models through nodes, against ComfyUI's: clip_vision of the golden
 * files. <model>/<picture>/<crop>/<result> of CLIPVisionEncode, of some models every so many tokens
 * of it; tokens/<style> and run/<style> of StyleModelApply and of a run with its prompt. */
#include "support/tiny_rig.h"

#define FLUX "clip_vision_flux_keys.json"

static void load(struct tiny *t, struct call *x, const char *model, const char *folder,
                 const char *cls, const char *input)
{
    char list[64], file[80], inputs[96];
    const char *lists[] = { list };
    berth_err err = { 0 };
    snprintf(list, sizeof list, "clip_vision_%s_keys.json", model);
    snprintf(file, sizeof file, "%s/%s.safetensors", folder, model);
    tiny_write(rig_path(&t->r, file), lists, 1, (int)tiny_number(t->settings, "heads"));
    snprintf(inputs, sizeof inputs, "{\"%s\": \"%s.safetensors\"}", input, model);
    assert_ok(rig_run(&t->r, x, cls, inputs, &err), err);
}

static void load_vision(struct tiny *t, struct call *x, const char *model)
{
    load(t, x, model, "clip_vision", "CLIPVisionLoader", "clip_name");
}

static void encode(struct tiny *t, struct call *x, struct value *vision, int picture,
                   const char *crop)
{
    char name[32], inputs[64];
    berth_err err = { 0 };
    snprintf(name, sizeof name, "image/%d", picture);
    snprintf(inputs, sizeof inputs, "{\"crop\": \"%s\"}", crop);
    struct value *image = value_tensor(tiny_tensor(t, name));
    rig_call(&t->r, x, "CLIPVisionEncode", inputs);
    call_give(x, "clip_vision", vision);
    call_give(x, "image", image);
    value_unref(image);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static const struct vision_output *seen(const struct call *x)
{
    assert_int_equal(x->out[0].at[0]->kind, V_OBJECT);
    assert_ptr_equal(x->out[0].at[0]->object.type, &type_vision_output);
    return x->out[0].at[0]->object.obj;
}

/* Tokens 0, every, 2 * every ... of all. */
static struct htensor *some(const struct htensor *all, size_t every)
{
    struct shape s = all->shape;
    struct htensor *out;
    berth_err err = { 0 };
    size_t tokens = (size_t)s.dim[1], width = (size_t)s.dim[2];
    s.dim[1] = (tokens + every - 1) / every;
    assert_ok(htensor_new(&s, &out, &err), err);
    for (size_t i = 0, row = 0; i < (size_t)s.dim[0] * tokens; i++)
        if (i % tokens % every == 0)
            memcpy(out->data + row++ * width, all->data + i * width, width * sizeof *out->data);
    return out;
}

static bool is_near(struct tiny *t, const char *name, const struct htensor *got, size_t every)
{
    struct htensor *want = tiny_tensor(t, name);
    if (!want)
        fail_msg("no '%s'", name);
    struct htensor *part = every > 1 ? some(got, every) : NULL;
    double off = tiny_off(part ? part : got, want);
    bool near = off <= where_limit(&t->at, WHERE_MODULE, t->name, name);
    if (!near)
        print_message("%s: %.3g off\n", name, off);
    htensor_unref(part);
    htensor_unref(want);
    return near;
}

/* How many of its results are wrong. */
static size_t run_model(struct tiny *t, const char *model, size_t *cases)
{
    static const char *const crops[] = { "center", "none" };
    const json_t *every_of = json_object_get(json_object_get(t->settings, "every"), model);
    const size_t every = every_of ? (size_t)json_integer_value(every_of) : 1;
    struct call vision;
    char name[96];
    size_t wrong = 0;
    load_vision(t, &vision, model);
    for (int picture = 0;; picture++) {
        snprintf(name, sizeof name, "%s/%d/center/last", model, picture);
        if (!weights_find(t->golden, name, strlen(name)))
            break;
        for (size_t k = 0; k < ARRAY_LEN(crops); k++) {
            struct call x;
            encode(t, &x, vision.out[0].at[0], picture, crops[k]);
            const struct vision_output *o = seen(&x);
            const struct {
                const char *name;
                const struct htensor *got;
            } row[] = { { "last", o->last },
                        { "penultimate", o->penultimate },
                        { "embeds", o->embeds },
                        { "projected", o->projected } };
            for (size_t i = 0; i < ARRAY_LEN(row); i++) {
                snprintf(name, sizeof name, "%s/%d/%s/%s", model, picture, crops[k], row[i].name);
                if (row[i].got)
                    wrong += !is_near(t, name, row[i].got, every);
                else
                    assert_null(weights_find(t->golden, name, strlen(name)));
                ++*cases;
            }
            call_release(&x);
        }
    }
    call_release(&vision);
    return wrong;
}

static void every_encoder(void **state)
{
    struct tiny t;
    size_t i, wrong = 0, cases = 0;
    json_t *model;
    (void)state;
    where_or_skip();
    tiny_open(&t, "clip_vision");
    json_array_foreach(json_object_get(t.settings, "models"), i, model)
    {
        size_t before = cases;
        wrong += run_model(&t, json_string_value(model), &cases);
        assert_true(cases > before);
    }
    assert_int_equal(wrong, 0);
    tiny_close(&t);
}

/* What the first encoder is given to see: to the last bit, as it is rounded to 8 of them. */
static void every_pixel(void **state)
{
    struct tiny t;
    struct call vision;
    size_t cases = 0;
    (void)state;
    tiny_open(&t, "clip_vision");
    load_vision(&t, &vision, "l");
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        int picture;
        char crop[16], what[16], of[32];
        if (sscanf(name, "l/%d/%15[^/]/%15s", &picture, crop, what) != 3 || strcmp(what, "pixels"))
            continue;
        struct vision_net v;
        berth_err err = { 0 };
        snprintf(of, sizeof of, "image/%d", picture);
        struct htensor *image = tiny_tensor(&t, of), *want = tiny_tensor(&t, name);
        const struct vision_job job = { .image = image->data,
                                        .n = dim(image, 0),
                                        .h = dim(image, 1),
                                        .w = dim(image, 2),
                                        .c = dim(image, 3),
                                        .crop = strcmp(crop, "center") == 0 };
        const size_t each = htensor_count(want) / dim(want, 0);
        float *got = calloc(each, sizeof *got);
        assert_non_null(got);
        assert_ok(vision_find(res_weights(vision.out[0].at[0]->model.part[0]), NULL, &v, &err),
                  err);
        for (size_t k = 0; k < job.n; k++) {
            assert_ok(vision_pixels(&v, &job, k, got, &err), err);
            for (size_t p = 0; p < each; p++)
                if (fabsf(got[p] - want->data[k * each + p]) > 1e-6f)
                    fail_msg("%s: pixel %zu of picture %zu is %g, wanted %g", name, p, k,
                             (double)got[p], (double)want->data[k * each + p]);
        }
        free(got);
        htensor_unref(image);
        htensor_unref(want);
        cases++;
    }
    assert_true(cases > 0);
    call_release(&vision);
    tiny_close(&t);
}

/* ---- styles ---- */

struct styled {
    struct tiny t;
    struct call vision, style, flux;
};

static struct value *text(const struct tiny *t)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(t, "context"), tiny_tensor(t, "vec"), &x, &err), err);
    return value_object(&type_conditioning, x);
}

/* [picture, strength, strength_type] behind the prompt, in whose place it gives the new one. */
static struct value *apply(struct styled *s, struct value *prompt, const json_t *how)
{
    struct call picture, x;
    char inputs[96];
    berth_err err = { 0 };
    encode(&s->t, &picture, s->vision.out[0].at[0], (int)json_integer_value(json_array_get(how, 0)),
           "center");
    snprintf(inputs, sizeof inputs, "{\"strength\": %.17g, \"strength_type\": \"%s\"}",
             json_number_value(json_array_get(how, 1)), json_string_value(json_array_get(how, 2)));
    rig_call(&s->t.r, &x, "StyleModelApply", inputs);
    call_give(&x, "conditioning", prompt);
    call_give(&x, "style_model", s->style.out[0].at[0]);
    call_give(&x, "clip_vision_output", picture.out[0].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *out = value_ref(x.out[0].at[0]);
    call_release(&x);
    call_release(&picture);
    value_unref(prompt);
    return out;
}

static bool run_style(struct styled *s, const char *name, const json_t *list)
{
    struct tiny *t = &s->t;
    struct value *prompt = text(t), *negative = text(t);
    struct value *latent = tiny_latent(tiny_tensor(t, "latent"), NULL);
    struct call x;
    char inputs[160], tensor[64];
    size_t i;
    json_t *how;
    berth_err err = { 0 };
    json_array_foreach((json_t *)list, i, how) prompt = apply(s, prompt, how);
    const struct conditioning *c = prompt->object.obj;
    snprintf(tensor, sizeof tensor, "tokens/%s", name);
    bool good = is_near(t, tensor, c->at[0].cond, 1);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}",
             (int)tiny_number(t->settings, "seed"), (int)tiny_number(t->settings, "steps"),
             tiny_number(t->settings, "cfg"));
    rig_call(&t->r, &x, "KSampler", inputs);
    call_give(&x, "model", s->flux.out[0].at[0]);
    call_give(&x, "positive", prompt);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", latent);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    snprintf(tensor, sizeof tensor, "run/%s", name);
    struct htensor *want = tiny_tensor(t, tensor);
    assert_non_null(want);
    double off = tiny_off(call_latent(&x, 0), want);
    print_message("%s: %.3g off\n", tensor, off);
    good &= off <= tiny_limit(t, tensor);
    htensor_unref(want);
    call_release(&x);
    value_unref(prompt);
    value_unref(negative);
    value_unref(latent);
    return good;
}

static void every_style(void **state)
{
    static const char *const flux[] = { FLUX };
    struct styled s;
    const char *name;
    json_t *list;
    size_t wrong = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tiny_open(&s.t, "clip_vision");
    load_vision(&s.t, &s.vision, "siglip");
    load(&s.t, &s.style, "redux", "style_models", "StyleModelLoader", "style_model_name");
    tiny_write(rig_path(&s.t.r, "diffusion_models/flux.safetensors"), flux, 1, 0);
    assert_ok(rig_run(&s.t.r, &s.flux, "UNETLoader", "{\"unet_name\": \"flux.safetensors\"}", &err),
              err);
    json_t *styles = json_object_get(s.t.settings, "styles");
    assert_true(json_object_size(styles) > 0);
    json_object_foreach(styles, name, list) wrong += !run_style(&s, name, list);
    assert_int_equal(wrong, 0);
    call_release(&s.flux);
    call_release(&s.style);
    call_release(&s.vision);
    tiny_close(&s.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_encoder),
                                        cmocka_unit_test(every_pixel),
                                        cmocka_unit_test(every_style) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
