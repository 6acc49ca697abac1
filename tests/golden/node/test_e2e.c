/* e2e_sd15_tiny: a checkpoint, two prompts, a sampler and a VAE, down to the 8-bit pixels. */
#include "support/tiny_rig.h"

static void text_to_picture(void **state)
{
    struct tiny t;
    struct call latent, sampled, decoded;
    char inputs[256];
    berth_err err = { 0 };
    size_t differ = 0;
    int most = 0;
    (void)state;
    where_or_skip();
    tokenizer_or_skip("clip");
    tiny_open(&t, "e2e_sd15_tiny");
    tiny_sd15(&t);
    snprintf(inputs, sizeof inputs, "{\"width\": %d, \"height\": %d}",
             (int)tiny_number(t.settings, "width"), (int)tiny_number(t.settings, "height"));
    assert_ok(rig_run(&t.r, &latent, "EmptyLatentImage", inputs, &err), err);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %lld, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
             "\"scheduler\": \"%s\"}",
             (long long)tiny_number(t.settings, "seed"), (int)tiny_number(t.settings, "steps"),
             tiny_number(t.settings, "cfg"), tiny_text(t.settings, "sampler"),
             tiny_text(t.settings, "scheduler"));
    tiny_sample(&t, &sampled, "KSampler", inputs, value_ref(latent.out[0].at[0]));
    struct htensor *want = tiny_tensor(&t, "latent");
    double off = tiny_off(call_latent(&sampled, 0), want);
    htensor_unref(want);
    print_message("latent: %.3g off\n", off);
    assert_true(off <= tiny_limit(&t, "latent"));

    rig_call(&t.r, &decoded, "VAEDecode", "{}");
    call_give(&decoded, "samples", sampled.out[0].at[0]);
    call_give(&decoded, "vae", t.ckpt.out[2].at[0]);
    assert_ok(decoded.c.cls->run(&decoded.c, &err), err);
    const struct htensor *image = decoded.out[0].at[0]->tensor;
    want = tiny_tensor(&t, "image");
    off = tiny_off(image, want);
    print_message("picture: %.3g off\n", off);
    assert_true(off <= tiny_limit(&t, "image"));
    htensor_unref(want);

    static const char pixels[] = "image_u8";
    const struct weights_entry *e = weights_find(t.golden, pixels, strlen(pixels));
    struct image got = { 0 };
    assert_non_null(e);
    assert_int_equal(e->size, htensor_count(image));
    uint8_t *bytes = malloc((size_t)e->size);
    assert_non_null(bytes);
    assert_ok(weights_read(t.golden, e, 0, bytes, (size_t)e->size, &err), err);
    assert_ok(image_8bit(image, 0, &got, &err), err);
    /* Of BF16 ComfyUI's largest and two more: of 49,152 differences the largest is a matter of
     * luck. */
    const int luck = t.at.card && t.at.act == DT_BF16 ? 2 : 0;
    const int apart = (int)ceil(tiny_limit(&t, pixels) * 255) + luck;
    for (size_t i = 0; i < e->size; i++) {
        int d = abs((int)got.px[i] - (int)bytes[i]);
        differ += d != 0;
        most = d > most ? d : most;
    }
    print_message("pixels: %zu of %zu differ, by %d at most, which may be %d\n", differ,
                  (size_t)e->size, most, apart);
    assert_true(most <= apart);
    free(bytes);
    image_release(&got);
    call_release(&decoded);
    call_release(&sampled);
    call_release(&latent);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_to_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
