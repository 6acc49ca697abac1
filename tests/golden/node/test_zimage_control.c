/* Runs of ZImageFunControlnet over tiny models: <control>/<given> of zcontrol.safetensors, with the
 * manifest's seed, steps and strength. image: a picture of another size than the latent's; both:
 * with one to fill in beside it; masked: with a mask, too. */
#include "support/tiny_rig.h"

static struct value *tensor_value(const struct tiny *t, const char *name)
{
    return value_tensor(tiny_tensor(t, name));
}

struct runs {
    struct tiny t;
    struct call unet, vae;
    struct value *positive, *image, *inpaint, *mask;
};

static void open_runs(struct runs *s)
{
    static const char *const vae[] = { "zcontrol_vae_keys.json" };
    char list[96];
    const char *const lists[] = { list };
    struct conditioning *x;
    berth_err err = { 0 };
    tiny_open(&s->t, "zcontrol");
    snprintf(list, sizeof list, "%s_keys.json", tiny_text(s->t.settings, "base"));
    tiny_write(rig_path(&s->t.r, "diffusion_models/tiny.safetensors"), lists, 1, 0);
    tiny_write(rig_path(&s->t.r, "vae/ae.safetensors"), vae, 1, 0);
    assert_ok(
        rig_run(&s->t.r, &s->unet, "UNETLoader", "{\"unet_name\": \"tiny.safetensors\"}", &err),
        err);
    assert_ok(rig_run(&s->t.r, &s->vae, "VAELoader", "{\"vae_name\": \"ae.safetensors\"}", &err),
              err);
    assert_ok(conditioning_new(tiny_tensor(&s->t, "positive"), NULL, &x, &err), err);
    s->positive = value_object(&type_conditioning, x);
    s->image = tensor_value(&s->t, "image");
    s->inpaint = tensor_value(&s->t, "inpaint");
    s->mask = tensor_value(&s->t, "mask");
}

static void close_runs(struct runs *s)
{
    value_unref(s->positive);
    value_unref(s->image);
    value_unref(s->inpaint);
    value_unref(s->mask);
    call_release(&s->unet);
    call_release(&s->vae);
    tiny_close(&s->t);
}

/* The model, steered by the network of this name. */
static void steer_by(struct runs *s, const char *control, const char *given, struct call *patch,
                     struct call *x)
{
    char list[96], inputs[96];
    const char *const lists[] = { list };
    berth_err err = { 0 };
    snprintf(list, sizeof list, "%s_keys.json", control);
    snprintf(inputs, sizeof inputs, "model_patches/%s.safetensors", control);
    tiny_write(rig_path(&s->t.r, inputs), lists, 1, 0);
    snprintf(inputs, sizeof inputs, "{\"name\": \"%s.safetensors\"}", control);
    assert_ok(rig_run(&s->t.r, patch, "ModelPatchLoader", inputs, &err), err);
    snprintf(inputs, sizeof inputs, "{\"strength\": %g}", tiny_number(s->t.settings, "strength"));
    rig_call(&s->t.r, x, "ZImageFunControlnet", inputs);
    call_give(x, "model", s->unet.out[0].at[0]);
    call_give(x, "model_patch", patch->out[0].at[0]);
    call_give(x, "vae", s->vae.out[0].at[0]);
    call_give(x, "image", s->image);
    if (strcmp(given, "image") != 0)
        call_give(x, "inpaint_image", s->inpaint);
    if (strcmp(given, "masked") == 0)
        call_give(x, "mask", s->mask);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static double run_one(struct runs *s, struct value *model, const struct htensor *want)
{
    struct call x;
    char inputs[200];
    berth_err err = { 0 };
    const uint64_t *d = want->shape.dim;
    struct value *latent = tiny_empty(d[0], d[1], d[2], d[3]);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %.0f, \"steps\": %.0f, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}",
             tiny_number(s->t.settings, "seed"), tiny_number(s->t.settings, "steps"));
    rig_call(&s->t.r, &x, "KSampler", inputs);
    call_give(&x, "model", model);
    call_give(&x, "positive", s->positive);
    call_give(&x, "negative", s->positive);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    double off = tiny_off(call_latent(&x, 0), want);
    call_release(&x);
    return off;
}

static void every_run(void **state)
{
    struct runs s;
    size_t runs = 0, wrong = 0;
    (void)state;
    where_or_skip();
    open_runs(&s);
    for (size_t i = 0; i < weights_count(s.t.golden); i++) {
        const char *name = weights_at(s.t.golden, i)->name;
        struct call patch, steered;
        char control[64], given[64];
        if (sscanf(name, "%63[^/]/%63s", control, given) != 2)
            continue;
        struct htensor *want = tiny_tensor(&s.t, name);
        steer_by(&s, control, given, &patch, &steered);
        double off = run_one(&s, steered.out[0].at[0], want);
        print_message("%s: %.3g off, without it %.3g\n", name, off,
                      run_one(&s, s.unet.out[0].at[0], want));
        wrong += !(off <= tiny_limit(&s.t, name));
        call_release(&steered);
        call_release(&patch);
        htensor_unref(want);
        runs++;
    }
    assert_true(runs > 0);
    assert_int_equal(wrong, 0);
    close_runs(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
