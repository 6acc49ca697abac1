/* Flux.2 through nodes.
 *
 * Runs of every model of the manifest that is one, through UNETLoader and KSampler:
 *
 *     sample/<sampler>/<scheduler>/<steps>     prompts are `context` and `negative`
 *     sample_ref/..., sample_ref2/...          both look at `ref`, or at `ref` and `ref2`
 *     sample_kv/..., sample_kv2/...            the same behind FluxKVCache
 *     scheduler/<steps>/<width>/<height>       what Flux2Scheduler gives
 *
 * And flux2_run: from a text to a picture, with the text encoder of klein. */
#include "support/tiny_runs.h"

static double run_one(struct tiny *t, struct value *model, const char *name, const char *kind,
                      const char *inputs)
{
    static const char *const prompts[2] = { "context", "negative" };
    const size_t refs = !strcmp(kind, "sample") ? 0 : strchr(kind, '2') ? 2 : 1;
    struct value *cond[2], *with = value_ref(model);
    struct htensor *want = tiny_tensor(t, name);
    const uint64_t *d = want->shape.dim;
    char guidance[64];
    struct call x;
    snprintf(guidance, sizeof guidance, "{\"guidance\": %g}", tiny_number(t->settings, "guidance"));
    for (size_t i = 0; i < 2; i++) {
        cond[i] = tiny_given(t, prompts[i]);
        cond[i] = tiny_through(t, cond[i], "FluxGuidance", "conditioning", guidance);
        for (size_t k = 0; k < refs; k++)
            cond[i] = tiny_looking(t, cond[i], k ? "ref2" : "ref");
    }
    if (strstr(kind, "_kv"))
        with = tiny_through(t, with, "FluxKVCache", "model", "{}");
    tiny_ksample(t, with, cond, inputs, tiny_empty(d[0], d[1], d[2], d[3]), &x);
    double off = tiny_off(call_latent(&x, 0), want);
    call_release(&x);
    htensor_unref(want);
    value_unref(cond[0]);
    value_unref(cond[1]);
    value_unref(with);
    return off;
}

/* Levels within a few roundings. */
static bool same_levels(struct tiny *t, const char *name)
{
    int steps, width, height;
    char inputs[96];
    struct call x;
    berth_err err = { 0 };
    if (sscanf(name, "scheduler/%d/%d/%d", &steps, &width, &height) != 3)
        return false;
    snprintf(inputs, sizeof inputs, "{\"steps\": %d, \"width\": %d, \"height\": %d}", steps, width,
             height);
    assert_ok(rig_run(&t->r, &x, "Flux2Scheduler", inputs, &err), err);
    struct htensor *want = tiny_tensor(t, name);
    double off = tiny_off(x.out[0].at[0]->tensor, want);
    if (!(off <= 2e-7))
        fail_msg("%s: %g off", name, off);
    htensor_unref(want);
    call_release(&x);
    return true;
}

/* All runs of a model; how many. */
static size_t runs_of(const char *model)
{
    struct tiny t;
    struct call unet;
    char kind[64], inputs[256];
    size_t runs = 0, levels = 0, wrong = 0;
    tiny_open(&t, model);
    tiny_unet(&t, model, &unet);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        levels += same_levels(&t, name);
        if (!tiny_run_of(&t, name, kind, inputs))
            continue;
        double off = run_one(&t, unet.out[0].at[0], name, kind, inputs);
        print_message("%s %s: %.3g off\n", model, name, off);
        wrong += !(off <= tiny_limit(&t, name));
        runs++;
    }
    assert_true(levels > 0);
    assert_int_equal(wrong, 0);
    call_release(&unet);
    tiny_close(&t);
    return runs;
}

static void every_run(void **state)
{
    json_t *manifest, *about;
    const char *name;
    size_t runs = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        const json_t *config = json_object_get(about, "config");
        const char *is = json_string_value(json_object_get(config, "image_model"));
        runs += is && !strcmp(is, "flux2") ? runs_of(name) : 0;
    }
    assert_true(runs > 0);
    json_decref(manifest);
}

/* A node's inputs are earlier ones' outputs. */
static void give(struct call *x, const char *input, const struct call *from)
{
    call_give(x, input, from->out[0].at[0]);
}

#define RUN(r, x, cls, ...)                                                                        \
    do {                                                                                           \
        char in_[256];                                                                             \
        snprintf(in_, sizeof in_, __VA_ARGS__);                                                    \
        assert_ok(rig_run(r, x, cls, in_, &err), err);                                             \
    } while (0)

static void from_text_to_picture(void **state)
{
    static const char *const text[] = { "flux2_run_text_keys.json" }, *const vae_keys[] = {
        "flux2_tiny_vae_keys.json"
    };
    struct call unet, clip, vae, positive, negative, guider, sampler, noise, sigmas, empty, done,
        picture;
    struct tiny t;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tokenizer_or_skip("qwen25");
    tiny_open(&t, "flux2_run");
    struct rig *r = &t.r;
    t.tokenizers[0] = tokenizer_dir("qwen25");
    r->env.tokenizers_n = 1;
    tiny_write(rig_path(r, "text_encoders/qwen_3_4b.safetensors"), text, 1, 0);
    tiny_write(rig_path(r, "vae/flux2-vae.safetensors"), vae_keys, 1, 0);
    tiny_unet(&t, "flux2_klein_tiny", &unet);
    RUN(r, &clip, "CLIPLoader", "{\"clip_name\": \"qwen_3_4b.safetensors\", \"type\": \"flux2\"}");
    RUN(r, &vae, "VAELoader", "{\"vae_name\": \"flux2-vae.safetensors\"}");
    tiny_prompt(&t, &positive, clip.out[0].at[0], tiny_text(t.settings, "prompt"));
    tiny_prompt(&t, &negative, clip.out[0].at[0], tiny_text(t.settings, "negative"));

    struct htensor *want = tiny_tensor(&t, "latent"), *seen = tiny_tensor(&t, "image");
    const int h = 16 * (int)want->shape.dim[2], w = 16 * (int)want->shape.dim[3];
    char inputs[64];
    snprintf(inputs, sizeof inputs, "{\"cfg\": %g}", tiny_number(t.settings, "cfg"));
    rig_call(r, &guider, "CFGGuider", inputs);
    give(&guider, "model", &unet);
    give(&guider, "positive", &positive);
    give(&guider, "negative", &negative);
    assert_ok(guider.c.cls->run(&guider.c, &err), err);
    RUN(r, &sampler, "KSamplerSelect", "{\"sampler_name\": \"euler\"}");
    RUN(r, &noise, "RandomNoise", "{\"noise_seed\": %.0f}", tiny_number(t.settings, "seed"));
    RUN(r, &sigmas, "Flux2Scheduler", "{\"steps\": %.0f, \"width\": %d, \"height\": %d}",
        tiny_number(t.settings, "steps"), w, h);
    RUN(r, &empty, "EmptyFlux2LatentImage", "{\"width\": %d, \"height\": %d}", w, h);
    rig_call(r, &done, "SamplerCustomAdvanced", "{}");
    give(&done, "noise", &noise);
    give(&done, "guider", &guider);
    give(&done, "sampler", &sampler);
    give(&done, "sigmas", &sigmas);
    give(&done, "latent_image", &empty);
    assert_ok(done.c.cls->run(&done.c, &err), err);
    double off = tiny_off(call_latent(&done, 0), want);
    rig_call(r, &picture, "VAEDecode", "{}");
    give(&picture, "samples", &done);
    give(&picture, "vae", &vae);
    assert_ok(picture.c.cls->run(&picture.c, &err), err);
    double off_seen = tiny_off(picture.out[0].at[0]->tensor, seen);
    print_message("flux2_run: the latent is %.3g off, the picture %.3g\n", off, off_seen);
    assert_true(off <= tiny_limit(&t, "latent") && off_seen <= tiny_limit(&t, "image"));

    htensor_unref(want), htensor_unref(seen);
    struct call *const all[] = { &unet,    &clip,  &vae,    &positive, &negative, &guider,
                                 &sampler, &noise, &sigmas, &empty,    &done,     &picture };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run),
                                        cmocka_unit_test(from_text_to_picture) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
