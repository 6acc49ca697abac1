/* Every run of sample_sd15_tiny and the one of unet_sdxl_tiny through KSampler and KSamplerAdvanced.
 *
 * What a run is stands in its tensor's name: sampler/scheduler/steps, with img2img/ (starts from
 * img2img/latent) .../denoise0.6, cfg1/, ksampler_adv/ .../start2_end7, inpaint/ (img2img/latent under
 * inpaint/mask) around it. Prompts, and seed and cfg of the plain runs, stand in the manifest; those of the
 * others stand nowhere and were found from the results, which carry their first noise. */
#include "support/tiny_rig.h"

#define TOLERANCE 1e-3 /* of the largest value: what whole runs are held to */

struct settings { /* of one run, from its name */
    char sampler[64], scheduler[64];
    int steps, start, end, seed;
    double denoise, cfg;
    bool img2img, inpaint, advanced;
};

/* False: it is an input, no run. */
static bool read_name(const char *name, const json_t *manifest, struct settings *out)
{
    static const struct {
        const char *front;
        struct settings s;
    } kind[] = { { "img2img/", { .seed = 1, .cfg = 5, .img2img = true } },
                 { "cfg1/", { .seed = 3, .cfg = 1 } },
                 { "ksampler_adv/", { .seed = 9, .cfg = 6, .img2img = true, .advanced = true } },
                 { "inpaint/", { .seed = 11, .cfg = 6, .img2img = true, .inpaint = true } } };
    *out = (struct settings) { .seed = (int)tiny_number(manifest, "seed"),
                               .cfg = tiny_number(manifest, "cfg") };
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        size_t n = strlen(kind[i].front);
        if (strncmp(name, kind[i].front, n) != 0)
            continue;
        *out = kind[i].s;
        name += n;
        break;
    }
    out->denoise = 1;
    int used = 0;
    if (sscanf(name, "%63[^/]/%63[^/]/%d%n", out->sampler, out->scheduler, &out->steps, &used) != 3)
        return false;
    name += used;
    if (strncmp(name, "/denoise", 8) == 0)
        out->denoise = strtod(name + 8, NULL);
    else if (sscanf(name, "/start%d_end%d", &out->start, &out->end) == 2)
        out->advanced = true;
    else if (*name)
        fail_msg("what is '%s' of a run?", name);
    return true;
}

/* Empty, or as many of img2img/latent as the result has. */
static struct value *latent_of(struct tiny *t, const struct settings *s, const struct shape *shape)
{
    struct htensor *all, *cut;
    berth_err err = { 0 };
    if (!s->img2img)
        return tiny_empty(shape->dim[0], shape->dim[1], shape->dim[2], shape->dim[3]);
    all = tiny_tensor(t, "img2img/latent");
    assert_ok(tensor_slice(all, 0, (size_t)shape->dim[0], &cut, &err), err);
    htensor_unref(all);
    return tiny_latent(cut, s->inpaint ? tiny_tensor(t, "inpaint/mask") : NULL);
}

static double run_one(struct tiny *t, const char *name, const struct settings *s)
{
    char inputs[512];
    struct call x;
    struct htensor *want = tiny_tensor(t, name);
    if (s->advanced)
        snprintf(inputs, sizeof inputs,
                 "{\"noise_seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\", \"start_at_step\": %d, \"end_at_step\": %d, "
                 "\"return_with_leftover_noise\": \"enable\"}",
                 s->seed, s->steps, s->cfg, s->sampler, s->scheduler, s->start, s->end);
    else
        snprintf(inputs, sizeof inputs,
                 "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\", \"denoise\": %g}",
                 s->seed, s->steps, s->cfg, s->sampler, s->scheduler, s->denoise);
    tiny_sample(t, &x, s->advanced ? "KSamplerAdvanced" : "KSampler", inputs,
                latent_of(t, s, &want->shape));
    double off = tiny_off(call_latent(&x, 0), want);
    htensor_unref(want);
    call_release(&x);
    return off;
}

static void every_run(void **state)
{
    struct tiny t;
    struct settings s;
    size_t runs = 0, wrong = 0;
    double worst = 0;
    (void)state;
    golden_or_skip();
    tokenizer_or_skip("clip");
    tiny_open(&t, "cpu=2g", "sample_sd15_tiny");
    tiny_sd15(&t);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (!read_name(name, t.settings, &s))
            continue;
        double off = run_one(&t, name, &s);
        runs++;
        worst = fmax(worst, off);
        if (!(off <= TOLERANCE)) {
            print_message("%s is off by %.3g\n", name, off);
            wrong++;
        }
    }
    print_message("%zu runs, at most %.3g off\n", runs, worst);
    assert_true(runs > 0);
    assert_int_equal(wrong, 0);
    tiny_close(&t);
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
    x->at[0].sized = true;
    x->at[0].size = (struct diffusion_size) { .width = side, .height = side };
    return value_object(&type_conditioning, x);
}

/* The settings stand in the note of the manifest: "sample: seed 77, cfg 5, latent 8x8, negative context
 * and pooled = half of the positive, width=height=64". */
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
    golden_or_skip();
    tiny_open(&t, "cpu=2g", "unet_sdxl_tiny");
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
        assert_true(off <= TOLERANCE);
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
        cmocka_unit_test(every_run),
        cmocka_unit_test(sdxl_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
