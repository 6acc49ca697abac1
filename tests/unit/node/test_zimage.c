/* Z-Image and Lumina2 through their nodes, on tiny models: every form of the loaders, noise levels, prompts of
 * different length. Numbers are held to ComfyUI's in tests/golden. */
#include "support/loader_rig.h"

#include "node/compute.h"

#include <math.h>

#define DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"

struct scene {
    struct rig r;
    struct value *longer, *shorter; /* prompts of Z-Image */
    struct value *lumina;           /* one of Lumina2 */
};

static struct value *prompt(size_t tokens, size_t width)
{
    const struct shape s = { 3, { 1, tokens, width } };
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < tokens * width; i++)
        t->data[i] = (float)((i * 7919 + tokens) % 1000) / 500.0f - 1.0f;
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { 0 };
    rig_open(&s.r, DEVICES);
    rig_preset(&s.r, "diffusion_models/zimage.safetensors", "z-image-tiny");
    rig_preset(&s.r, "diffusion_models/zimage.gguf", "z-image-tiny");
    rig_preset(&s.r, "diffusion_models/lumina.safetensors", "lumina2-tiny");
    rig_preset(&s.r, "diffusion_models/lumina.gguf", "lumina2-tiny");
    s.longer = prompt(37, 256);
    s.shorter = prompt(9, 256);
    s.lumina = prompt(20, 64);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    value_unref(s->longer);
    value_unref(s->shorter);
    value_unref(s->lumina);
    rig_close(&s->r);
    return 0;
}

/* ---- calls ---- */

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static struct value *output(const struct call *x)
{
    assert_int_equal(x->out[0].n, 1);
    return x->out[0].at[0];
}

static bool same(const struct htensor *a, const struct htensor *b)
{
    return shape_eq(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

/* Two steps; the latent is the caller's reference. */
static struct htensor *sample(struct scene *s, struct value *model, struct value *positive,
                              struct value *negative)
{
    struct call x, latent;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 2}", &err),
              err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 2, \"cfg\": 3, \"sampler_name\": \"res_multistep\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", model);
    call_give(&x, "positive", positive);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", output(&latent));
    run(&x);
    struct htensor *t = htensor_ref(output(&x)->latent.samples);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(isfinite(t->data[i]));
    call_release(&x);
    call_release(&latent);
    return t;
}

/* ---- loaders ---- */

static bool has(const struct node_class *c, const char *input)
{
    return node_input_index(c, input) != SIZE_MAX;
}

/* Inputs of a form: the file, and a placement if it declares one. */
static void form_inputs(const struct node_class *c, const char *model, char *out, size_t cap)
{
    bool multi = strstr(c->name, "MultiGPU");
    snprintf(out, cap, "{\"unet_name\": \"%s.%s\"%s%s%s%s}", model,
             strstr(c->name, "GGUF") ? "gguf" : "safetensors",
             has(c, "compute_device") ? ", \"compute_device\": \"cuda:0\"" : "",
             has(c, "device") && multi ? ", \"device\": \"cuda:0\"" : "",
             has(c, "virtual_vram_gb") ? ", \"virtual_vram_gb\": 0.001" : "",
             has(c, "donor_device") ? ", \"donor_device\": \"cuda:1\"" : "");
}

/* A placed form computes where it was told to, and other bytes lie where it said. */
static void check_place(struct scene *s, const struct node_class *c, const struct call *x)
{
    struct res_model *m = call_model(x, 0)->part[0];
    if (!strstr(c->name, "MultiGPU"))
        return;
    assert_string_equal(res_compute(m)->name, "cuda:0");
    if (has(c, "donor_device"))
        assert_true(rig_bytes_on(&s->r, m, "cuda:1") > 0);
    else if (has(c, "virtual_vram_gb"))
        assert_true(rig_bytes_on(&s->r, m, "cpu") > 0);
    else
        assert_int_equal(rig_bytes_on(&s->r, m, "cuda:0"), res_info(m).bytes);
}

static bool opens_a_diffusion_model(const struct node_class *c)
{
    static const char *const base[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP" };
    for (size_t k = 0; k < ARRAY_LEN(base); k++)
        if (strncmp(c->name, base[k], strlen(base[k])) == 0)
            return true;
    return false;
}

/* Every form that opens a diffusion model gives the same picture. */
static size_t forms_of(struct scene *s, const char *model, struct value *positive,
                       struct value *negative)
{
    struct htensor *want[2] = { NULL, NULL };
    size_t forms = 0;
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = node_at(i);
        struct call x;
        char inputs[256];
        berth_err err = { 0 };
        if (!opens_a_diffusion_model(c))
            continue;
        bool gguf = strstr(c->name, "GGUF");
        form_inputs(c, model, inputs, sizeof inputs);
        assert_ok(rig_run(&s->r, &x, c->name, inputs, &err), err);
        check_place(s, c, &x);
        struct htensor *got = sample(s, output(&x), positive, negative);
        if (want[gguf] && !same(got, want[gguf]))
            fail_msg("%s: another picture of %s", c->name, model);
        if (!want[gguf])
            want[gguf] = htensor_ref(got);
        htensor_unref(got);
        call_release(&x);
        forms++;
    }
    htensor_unref(want[0]);
    htensor_unref(want[1]);
    return forms;
}

static void every_form_of_the_loaders(void **state)
{
    struct scene *s = *state;
    assert_int_equal(forms_of(s, "zimage", s->longer, s->shorter), 12);
    assert_int_equal(forms_of(s, "lumina", s->lumina, s->lumina), 12);
}

/* ---- noise levels ---- */

static void load(struct scene *s, struct call *x, const char *file)
{
    char inputs[96];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"unet_name\": \"%s.safetensors\"}", file);
    assert_ok(rig_run(&s->r, x, "UNETLoader", inputs, &err), err);
}

static void levels_are(struct scene *s, struct value *model, const float *want, size_t n)
{
    struct call x;
    char inputs[96];
    snprintf(inputs, sizeof inputs, "{\"scheduler\": \"simple\", \"steps\": %zu, \"denoise\": 1}",
             n - 1);
    rig_call(&s->r, &x, "BasicScheduler", inputs);
    call_give(&x, "model", model);
    run(&x);
    const struct htensor *t = output(&x)->tensor;
    assert_int_equal(htensor_count(t), n);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(t->data[i] - want[i]) < 1e-6f);
    call_release(&x);
}

static void noise_levels(void **state)
{
    static const float three[] = { 1, .9545455f, .9f, .8333333f, .75f, .6428571f, .5f, .3f, 0 };
    static const float one[] = { 1, .75f, .5f, .25f, 0 };
    static const float six[] = { 1, 6 * .5f / 3.5f, 0 };
    struct scene *s = *state;
    struct call x, shifted;
    load(s, &x, "zimage");
    levels_are(s, output(&x), three, ARRAY_LEN(three));
    rig_call(&s->r, &shifted, "ModelSamplingAuraFlow", "{\"shift\": 1.0}");
    call_give(&shifted, "model", output(&x));
    run(&shifted);
    levels_are(s, output(&shifted), one, ARRAY_LEN(one));
    call_release(&shifted);
    call_release(&x);
    load(s, &x, "lumina");
    levels_are(s, output(&x), six, ARRAY_LEN(six));
    call_release(&x);
}

/* ---- prompts ---- */

static void other_prompts_are_refused(void **state)
{
    struct scene *s = *state;
    struct call x, latent, model;
    berth_err err = { 0 };
    load(s, &model, "zimage");
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 64, \"batch_size\": 1}", &err),
              err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", output(&model));
    call_give(&x, "positive", s->lumina);
    call_give(&x, "negative", s->lumina);
    call_give(&x, "latent_image", output(&latent));
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL,
                 "Z-Image wants a text of width 256, this conditioning has 20 tokens of width 64");
    call_release(&x);
    call_release(&latent);
    call_release(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(other_prompts_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
