/* The runs of flux_tiny, through UNETLoader and KSampler: sample/<sampler>/<scheduler>/<steps>.
 * Seed and cfg stand in the note ("sample: seed 5, 6 steps, cfg 1, ..."); the conditioning is the
 * file's context and vec, with the guidance that counts when nobody says another. */
#include "support/resave.h"
#include "support/tiny_rig.h"

static struct value *prompt(const struct tiny *t)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(t, "context"), tiny_tensor(t, "vec"), &x, &err), err);
    return value_object(&type_conditioning, x);
}

/* Into *x, of the shape of `like`. */
static void sample(struct tiny *t, struct value *model, struct value *cond, const char *inputs,
                   const struct htensor *like, struct call *x)
{
    berth_err err = { 0 };
    const uint64_t *d = like->shape.dim;
    struct value *latent = tiny_empty(d[0], d[1], d[2], d[3]);
    rig_call(&t->r, x, "KSampler", inputs);
    call_give(x, "model", model);
    call_give(x, "positive", cond);
    call_give(x, "negative", cond);
    call_give(x, "latent_image", latent);
    value_unref(latent);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static double run_one(struct tiny *t, struct value *model, struct value *cond, const char *inputs,
                      const struct htensor *want)
{
    struct call x;
    sample(t, model, cond, inputs, want, &x);
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

/* weight_dtype: bit for bit the run of the same weights saved in that type. */
static void converted_as_if_saved(void **state)
{
    static const char *const lists[] = { "flux_tiny_keys.json" };
    static const struct {
        const char *dtype;
        enum dtype saved;
    } row[] = { { "fp8_e4m3fn", DT_F8_E4M3 }, { "fp8_e5m2", DT_F8_E5M2 } };
    static const char inputs[] = "{\"seed\": 5, \"steps\": 4, \"cfg\": 1, "
                                 "\"sampler_name\": \"euler\", \"scheduler\": \"simple\"}";
    struct tiny t;
    char path[1024];
    (void)state;
    where_or_skip();
    tiny_open(&t, "flux_tiny");
    snprintf(path, sizeof path, "%s", rig_path(&t.r, "diffusion_models/tiny_flux.safetensors"));
    tiny_write(path, lists, 1, 0);
    struct value *cond = prompt(&t);
    struct htensor *like = tiny_tensor(&t, "sample/euler/simple/6");
    assert_non_null(like);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call converted, saved, got, want;
        char load[120];
        berth_err err = { 0 };
        resave(path, row[i].saved, rig_path(&t.r, "diffusion_models/saved.safetensors"));
        snprintf(load, sizeof load,
                 "{\"unet_name\": \"tiny_flux.safetensors\", \"weight_dtype\": \"%s\"}",
                 row[i].dtype);
        assert_ok(rig_run(&t.r, &converted, "UNETLoader", load, &err), err);
        assert_ok(
            rig_run(&t.r, &saved, "UNETLoader", "{\"unet_name\": \"saved.safetensors\"}", &err),
            err);
        sample(&t, converted.out[0].at[0], cond, inputs, like, &got);
        sample(&t, saved.out[0].at[0], cond, inputs, like, &want);
        const struct htensor *a = call_latent(&got, 0), *b = call_latent(&want, 0);
        assert_true(shape_eq(&a->shape, &b->shape));
        assert_memory_equal(a->data, b->data, htensor_count(a) * sizeof *a->data);
        call_release(&got);
        call_release(&want);
        call_release(&converted);
        call_release(&saved);
    }
    htensor_unref(like);
    value_unref(cond);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run),
                                        cmocka_unit_test(converted_as_if_saved) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
