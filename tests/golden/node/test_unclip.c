/* Models that are told of pictures, through nodes: <model>/adm/<case> and <model>/run/<case> of the
 * golden file, whose cases the manifest lists: pictures from the first on, strength,
 * noise_augmentation. */
#include "support/tiny_rig.h"

/* With a pooled text of zeros, which counts where there are no pictures. */
static struct value *text(const struct tiny *t, const char *name, uint64_t pooled)
{
    struct conditioning *x;
    struct htensor *zeros;
    berth_err err = { 0 };
    assert_ok(htensor_zeros(&(struct shape) { 2, { 1, pooled } }, &zeros, &err), err);
    assert_ok(conditioning_new(tiny_tensor(t, name), zeros, &x, &err), err);
    return value_object(&type_conditioning, x);
}

/* The first n pictures. */
static struct value *pictures(const struct tiny *t, uint64_t n)
{
    struct htensor *all = tiny_tensor(t, "image"), *some;
    struct shape s = all->shape;
    berth_err err = { 0 };
    s.dim[0] = n;
    assert_ok(htensor_new(&s, &some, &err), err);
    memcpy(some->data, all->data, htensor_count(some) * sizeof *some->data);
    htensor_unref(all);
    return value_tensor(some);
}

/* [pictures, strength, noise] behind the prompt, in whose place it gives the new one. */
static struct value *apply(struct tiny *t, struct value *vision, struct value *prompt,
                           const json_t *how)
{
    struct call seen, x;
    char inputs[96];
    berth_err err = { 0 };
    struct value *image = pictures(t, (uint64_t)json_integer_value(json_array_get(how, 0)));
    rig_call(&t->r, &seen, "CLIPVisionEncode", "{\"crop\": \"center\"}");
    call_give(&seen, "clip_vision", vision);
    call_give(&seen, "image", image);
    assert_ok(seen.c.cls->run(&seen.c, &err), err);
    snprintf(inputs, sizeof inputs, "{\"strength\": %.17g, \"noise_augmentation\": %.17g}",
             json_number_value(json_array_get(how, 1)), json_number_value(json_array_get(how, 2)));
    rig_call(&t->r, &x, "unCLIPConditioning", inputs);
    call_give(&x, "conditioning", prompt);
    call_give(&x, "clip_vision_output", seen.out[0].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *out = value_ref(x.out[0].at[0]);
    call_release(&x);
    call_release(&seen);
    value_unref(image);
    value_unref(prompt);
    return out;
}

struct model { /* one of them */
    struct tiny *t;
    const char *name;
    struct call ckpt;
    struct diffusion_info info;
};

static struct htensor *golden(const struct model *m, const char *what, const char *name)
{
    char tensor[96];
    snprintf(tensor, sizeof tensor, "%s/%s/%s", m->name, what, name);
    struct htensor *out = tiny_tensor(m->t, tensor);
    if (!out)
        fail_msg("no '%s'", tensor);
    return out;
}

/* What the model is told; without pictures nobody makes it, and it is 0. */
static void check_vector(const struct model *m, const struct conditioning *x, const char *name)
{
    struct htensor *want = golden(m, "adm", name);
    struct arena mem = { 0 };
    float *got;
    berth_err err = { 0 };
    assert_int_equal(m->info.unclip * (m->info.adm == ADM_UNCLIP ? 2 : 1), htensor_count(want));
    if (x->at[0].unclip) {
        assert_ok(unclip_vector(x->at[0].unclip, &m->info,
                                (uint64_t)tiny_number(m->t->settings, "seed"), &mem, &got, &err),
                  err);
        for (size_t i = 0; i < htensor_count(want); i++)
            if (!(fabsf(got[i] - want->data[i]) <= 1e-4f))
                fail_msg("%s %s: value %zu is %g, wanted %g", m->name, name, i, (double)got[i],
                         (double)want->data[i]);
    } else {
        assert_true(all_zero(want->data, htensor_count(want)));
    }
    arena_release(&mem);
    htensor_unref(want);
}

static bool run_case(struct model *m, const char *name, json_t *list)
{
    struct tiny *t = m->t;
    struct value *prompt = text(t, "context", m->info.unclip);
    struct value *negative = text(t, "negative", m->info.unclip);
    struct value *latent = tiny_latent(tiny_tensor(t, "latent"), NULL);
    struct call x;
    char inputs[160];
    size_t i;
    json_t *how;
    berth_err err = { 0 };
    json_array_foreach(list, i, how) prompt = apply(t, m->ckpt.out[3].at[0], prompt, how);
    check_vector(m, prompt->object.obj, name);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"normal\"}",
             (int)tiny_number(t->settings, "seed"), (int)tiny_number(t->settings, "steps"),
             tiny_number(t->settings, "cfg"));
    rig_call(&t->r, &x, "KSampler", inputs);
    call_give(&x, "model", m->ckpt.out[0].at[0]);
    call_give(&x, "positive", prompt);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", latent);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct htensor *want = golden(m, "run", name);
    double off = tiny_off(call_latent(&x, 0), want);
    print_message("%s %s: %.3g off\n", m->name, name, off);
    htensor_unref(want);
    call_release(&x);
    value_unref(prompt);
    value_unref(negative);
    value_unref(latent);
    return off <= tiny_limit(t, name);
}

static size_t run_model(struct tiny *t, const char *name)
{
    struct model m = { .t = t, .name = name };
    char unet[64], vision[64], file[64], inputs[96];
    const char *const lists[] = { unet, vision };
    const char *key;
    json_t *list, *cases = json_object_get(t->settings, "cases");
    size_t wrong = 0;
    berth_err err = { 0 };
    snprintf(unet, sizeof unet, "unclip_%s_unet_keys.json", name);
    snprintf(vision, sizeof vision, "unclip_%s_vision_keys.json", name);
    snprintf(file, sizeof file, "checkpoints/%s.safetensors", name);
    tiny_write(rig_path(&t->r, file), lists, ARRAY_LEN(lists),
               (int)tiny_number(t->settings, "heads"));
    snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s.safetensors\"}", name);
    assert_ok(rig_run(&t->r, &m.ckpt, "unCLIPCheckpointLoader", inputs, &err), err);
    assert_ok(ready_info(&m.ckpt.out[0].at[0]->model, &m.info, &err), err);
    assert_true(json_object_size(cases) > 0);
    json_object_foreach(cases, key, list) wrong += !run_case(&m, key, list);
    call_release(&m.ckpt);
    return wrong;
}

static void every_model(void **state)
{
    struct tiny t;
    size_t i, wrong = 0;
    json_t *name;
    (void)state;
    where_or_skip();
    tiny_open(&t, "unclip");
    json_t *models = json_object_get(t.settings, "models");
    assert_true(json_array_size(models) > 0);
    json_array_foreach(models, i, name) wrong += run_model(&t, json_string_value(name));
    assert_int_equal(wrong, 0);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
