/* The runs of flux_tiny, through UNETLoader and KSampler: sample/<sampler>/<scheduler>/<steps>. Seed and
 * cfg stand in the note ("sample: seed 5, 6 steps, cfg 1, ..."); the conditioning is the file's context and
 * vec, with the guidance that counts when nobody says another. */
#include "support/tiny_rig.h"

static struct value *prompt(const struct tiny *t)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(t, "context"), tiny_tensor(t, "vec"), &x, &err), err);
    return value_object(&type_conditioning, x);
}

static double run_one(struct tiny *t, struct value *model, struct value *cond, const char *inputs,
                      const struct htensor *want)
{
    struct call x;
    berth_err err = { 0 };
    const uint64_t *d = want->shape.dim;
    struct value *latent = tiny_empty(d[0], d[1], d[2], d[3]);
    rig_call(&t->r, &x, "KSampler", inputs);
    call_give(&x, "model", model);
    call_give(&x, "positive", cond);
    call_give(&x, "negative", cond);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    double off = tiny_off(call_latent(&x, 0), want);
    call_release(&x);
    return off;
}

static void every_run(void **state)
{
    static const char *const lists[] = { "flux_tiny_keys.json" };
    struct tiny t;
    struct call unet;
    char sampler[64], scheduler[64], inputs[256];
    int seed, cfg, said, steps;
    size_t runs = 0, wrong = 0;
    berth_err err = { 0 };
    (void)state;
    golden_or_skip();
    where_or_skip();
    tiny_open(&t, "flux_tiny");
    tiny_write(rig_path(&t.r, "diffusion_models/tiny_flux.safetensors"), lists, 1, 0);
    assert_ok(
        rig_run(&t.r, &unet, "UNETLoader", "{\"unet_name\": \"tiny_flux.safetensors\"}", &err),
        err);
    const char *note = strstr(tiny_text(t.settings, "note"), "sample:");
    assert_non_null(note);
    assert_int_equal(sscanf(note, "sample: seed %d, %d steps, cfg %d", &seed, &said, &cfg), 3);
    struct value *cond = prompt(&t);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (sscanf(name, "sample/%63[^/]/%63[^/]/%d", sampler, scheduler, &steps) != 3)
            continue;
        assert_int_equal(steps, said);
        snprintf(inputs, sizeof inputs,
                 "{\"seed\": %d, \"steps\": %d, \"cfg\": %d, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\"}",
                 seed, steps, cfg, sampler, scheduler);
        struct htensor *want = tiny_tensor(&t, name);
        double off = run_one(&t, unet.out[0].at[0], cond, inputs, want);
        print_message("%s: %.3g off\n", name, off);
        wrong += !(off <= tiny_limit(&t, name));
        htensor_unref(want);
        runs++;
    }
    assert_true(runs > 0);
    assert_int_equal(wrong, 0);
    value_unref(cond);
    call_release(&unet);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
