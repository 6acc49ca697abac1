/* Runs 0, 2, 4 ... of sample_sd15_tiny (the others: test_sample_odd.c), and the one of
 * unet_sdxl_tiny. */
#include "runs.h"

static void even_runs(void **state)
{
    (void)state;
    where_or_skip();
    tokenizer_or_skip("clip");
    every_second_run(0);
}

/* ---- SDXL ---- */

/* A conditioning of golden tensors times `factor`, told that the picture has this size. */
static struct value *sdxl_prompt(const struct tiny *t, float factor, uint32_t side)
{
    struct htensor *cond = tiny_tensor(t, "context"), *pooled = tiny_tensor(t, "pooled");
    struct conditioning *x;
    berth_err err = { 0 };
    for (size_t i = 0; i < htensor_count(cond); i++)
        cond->data[i] *= factor;
    for (size_t i = 0; i < htensor_count(pooled); i++)
        pooled->data[i] *= factor;
    assert_ok(conditioning_new(cond, pooled, &x, &err), err);
    x->at[0].size = (struct diffusion_size) {
        .said = true, .width = side, .height = side, .target_width = side, .target_height = side
    };
    return value_object(&type_conditioning, x);
}

/* The settings stand in the note of the manifest: "sample: seed 77, cfg 5, latent 8x8, negative
 * context and pooled = half of the positive, width=height=64". */
static void sdxl_run(void **state)
{
    static const char *const lists[] = { "sdxl_tiny_unet_keys.json" };
    static const char prefix[] = "sample_";
    struct tiny t;
    struct call unet, x;
    int seed, cfg, h, w, side;
    size_t runs = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tiny_open(&t, "unet_sdxl_tiny");
    tiny_write(rig_path(&t.r, "diffusion_models/tiny_sdxl.safetensors"), lists, 1, 0);
    assert_ok(
        rig_run(&t.r, &unet, "UNETLoader", "{\"unet_name\": \"tiny_sdxl.safetensors\"}", &err),
        err);
    const char *note = strstr(tiny_text(t.settings, "note"), "sample:");
    assert_non_null(note);
    assert_int_equal(sscanf(note,
                            "sample: seed %d, cfg %d, latent %dx%d, negative context and pooled = "
                            "half of the positive, width=height=%d",
                            &seed, &cfg, &h, &w, &side),
                     5);
    struct value *positive = sdxl_prompt(&t, 1, (uint32_t)side);
    struct value *negative = sdxl_prompt(&t, 0.5f, (uint32_t)side);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        char sampler[64], inputs[256], *at;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(sampler, sizeof sampler, "%s", name + strlen(prefix)); /* dpmpp_2m_karras_8 */
        at = strrchr(sampler, '_');
        *at = '\0';
        char *scheduler = strrchr(sampler, '_');
        *scheduler++ = '\0';
        snprintf(inputs, sizeof inputs,
                 "{\"seed\": %d, \"steps\": %s, \"cfg\": %d, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\"}",
                 seed, at + 1, cfg, sampler, scheduler);
        struct htensor *want = tiny_tensor(&t, name);
        struct value *latent = tiny_empty(1, want->shape.dim[1], (uint64_t)h, (uint64_t)w);
        rig_call(&t.r, &x, "KSampler", inputs);
        call_give(&x, "model", unet.out[0].at[0]);
        call_give(&x, "positive", positive);
        call_give(&x, "negative", negative);
        call_give(&x, "latent_image", latent);
        value_unref(latent);
        assert_ok(x.c.cls->run(&x.c, &err), err);
        double off = tiny_off(call_latent(&x, 0), want);
        print_message("%s: %.3g off\n", name, off);
        assert_true(off <= tiny_limit(&t, name));
        htensor_unref(want);
        call_release(&x);
        runs++;
    }
    assert_true(runs > 0);
    value_unref(positive);
    value_unref(negative);
    call_release(&unet);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_runs),
        cmocka_unit_test(sdxl_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
