/* Z-Image and Lumina2 through their nodes, on tiny models: every form of the loaders, noise levels,
 * prompts of different length, a whole workflow. Numbers are held to ComfyUI's in tests/golden. */
#include "support/golden.h"
#include "support/loader_rig.h"
#include "support/nets.h"

#include "model/lm/presets.h"
#include "node/compute.h"
#include "paths/paths.h"
#include "text/bpe_impl.h"

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

/* ---- a picture ---- */

/* A tokenizer of Qwen's kind that knows bytes and no words. */
static void write_tokenizer(void)
{
    static const char *const special[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    struct str vocab = { 0 }, config = { 0 };
    for (unsigned b = 0; b < 256; b++) {
        char symbol[8];
        symbol[bpe_byte_symbol(b, symbol)] = '\0';
        bool escape = !strcmp(symbol, "\"") || !strcmp(symbol, "\\");
        str_addf(&vocab, "%s\"%s%s\": %u", b ? ", " : "{", escape ? "\\" : "", symbol, b);
    }
    str_addf(&vocab, "}");
    str_addf(&config, "{\"added_tokens_decoder\": {");
    for (unsigned i = 0; i < ARRAY_LEN(special); i++)
        str_addf(&config, "%s\"%u\": {\"content\": \"%s\", \"special\": true}", i ? ", " : "",
                 256 + i, special[i]);
    str_addf(&config, "}}");
    assert_false(vocab.bad || config.bad);
    tmp_write("tokenizers/qwen25/vocab.json", str_c(&vocab), strlen(str_c(&vocab)));
    tmp_write("tokenizers/qwen25/merges.txt", "#version: 0.2\n", sizeof "#version: 0.2\n" - 1);
    tmp_write("tokenizers/qwen25/tokenizer_config.json", str_c(&config), strlen(str_c(&config)));
    str_release(&vocab);
    str_release(&config);
}

/* UNETLoader, CLIPLoader, VAELoader, an empty latent, KSampler, VAEDecode. */
static void a_workflow_gives_a_picture(void **state)
{
    static const struct lm_config qwen3 = { .vocab = 259,
                                            .width = 256,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_dim = 128,
                                            .mlp = 384,
                                            .layers = 4,
                                            .qk_norm = true };
    struct scene *s = *state;
    struct call model, clip, vae, text, zero, picture, sampled, latent, lumina;
    const char *folder[1];
    char dir[512];
    struct keys k = { 0 };
    berth_err err = { 0 };
    snprintf(dir, sizeof dir, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(tmp_path("tokenizers/qwen25"), &err), err);
    write_tokenizer();
    folder[0] = dir;
    s->r.env.tokenizers = folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
    keys_lm(&k, &qwen3);
    assert_int_equal(rename(keys_file(&k, "qwen", DT_F32, "safetensors", NULL),
                            rig_path(&s->r, "text_encoders/qwen_3_4b.safetensors")),
                     0);
    keys_release(&k);
    rig_preset(&s->r, "vae/ae.safetensors", "flux-tiny-vae");
    load(s, &model, "zimage");
    assert_ok(rig_run(&s->r, &clip, "CLIPLoader",
                      "{\"clip_name\": \"qwen_3_4b.safetensors\", \"type\": \"lumina2\"}", &err),
              err);
    assert_ok(rig_run(&s->r, &vae, "VAELoader", "{\"vae_name\": \"ae.safetensors\"}", &err), err);
    rig_call(&s->r, &text, "CLIPTextEncode", "{\"text\": \"a cat\"}");
    call_give(&text, "clip", output(&clip));
    run(&text);
    const struct conditioning *x = output(&text)->object.obj;
    /* <|im_start|>user\n ... <|im_end|>\n<|im_start|>assistant\n */
    assert_int_equal(dim(x->at[0].cond, 1), 1 + 5 + 5 + 1 + 1 + 1 + 10);
    rig_call(&s->r, &zero, "ConditioningZeroOut", "{}");
    call_give(&zero, "conditioning", output(&text));
    run(&zero);
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 1}", &err),
              err);
    rig_call(&s->r, &sampled, "KSampler",
             "{\"seed\": 5, \"steps\": 3, \"cfg\": 1, \"sampler_name\": \"res_multistep\", "
             "\"scheduler\": \"simple\"}");
    call_give(&sampled, "model", output(&model));
    call_give(&sampled, "positive", output(&text));
    call_give(&sampled, "negative", output(&zero));
    call_give(&sampled, "latent_image", output(&latent));
    run(&sampled);
    rig_call(&s->r, &picture, "VAEDecode", "{}");
    call_give(&picture, "samples", output(&sampled));
    call_give(&picture, "vae", output(&vae));
    run(&picture);
    const struct htensor *t = output(&picture)->tensor;
    assert_int_equal(dim(t, 1), 48);
    assert_int_equal(dim(t, 2), 64);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(t->data[i] >= 0 && t->data[i] <= 1);
    /* Lumina2's system prompt stands in front of what the user wrote. */
    rig_call(&s->r, &lumina, "CLIPTextEncodeLumina2",
             "{\"system_prompt\": \"alignment\", \"user_prompt\": \"a cat\"}");
    call_give(&lumina, "clip", output(&clip));
    run(&lumina);
    x = output(&lumina)->object.obj;
    assert_int_equal(dim(x->at[0].cond, 1), 24 + strlen("You are an assistant designed to generate "
                                                        "high-quality images with the highest "
                                                        "degree of image-text alignment based on "
                                                        "textual prompts. <Prompt Start> "));
    struct call *const all[] = { &model,  &clip,    &vae,     &text,  &zero,
                                 &latent, &sampled, &picture, &lumina };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    node_assets_free(s->r.env.assets);
    s->r.env.assets = NULL;
    s->r.env.tokenizers_n = 0;
}

/* ---- control networks ---- */

struct steered { /* what a MODEL is steered by */
    struct call model, patch, vae;
    struct value *image, *grey;
};

static struct value *picture_of(float base, float step, size_t h, size_t w)
{
    const struct shape s = { 4, { 1, h, w, 3 } };
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = base + step * (float)(i * 7919 % 97);
    return value_tensor(t);
}

static void steered_open(struct scene *s, struct steered *k)
{
    struct keys keys = { 0 };
    berth_err err = { 0 };
    assert_ok(keys_read(golden_path("zcontrol_3_keys.json"), &keys, &err), err);
    assert_int_equal(rename(keys_file(&keys, "control", DT_F32, "safetensors", NULL),
                            rig_path(&s->r, "model_patches/fun.safetensors")),
                     0);
    keys_release(&keys);
    rig_preset(&s->r, "vae/ae.safetensors", "flux-tiny-vae");
    load(s, &k->model, "zimage");
    assert_ok(
        rig_run(&s->r, &k->patch, "ModelPatchLoader", "{\"name\": \"fun.safetensors\"}", &err),
        err);
    assert_ok(rig_run(&s->r, &k->vae, "VAELoader", "{\"vae_name\": \"ae.safetensors\"}", &err),
              err);
    k->image = picture_of(0.1f, 0.009f, 40, 72);
    k->grey = picture_of(0.5f, 0, 48, 64);
}

static void steered_close(struct steered *k)
{
    call_release(&k->model);
    call_release(&k->patch);
    call_release(&k->vae);
    value_unref(k->image);
    value_unref(k->grey);
}

static berth_status steer_by(struct scene *s, struct steered *k, struct value *model,
                             double strength, struct value *inpaint, struct call *x, berth_err *err)
{
    char inputs[64];
    snprintf(inputs, sizeof inputs, "{\"strength\": %g}", strength);
    rig_call(&s->r, x, "ZImageFunControlnet", inputs);
    call_give(x, "model", model);
    call_give(x, "model_patch", output(&k->patch));
    call_give(x, "vae", output(&k->vae));
    call_give(x, "image", k->image);
    if (inpaint)
        call_give(x, "inpaint_image", inpaint);
    return x->c.cls->run(&x->c, err);
}

/* A picture with `times` networks of this strength, one on top of the other. */
static struct htensor *with(struct scene *s, struct steered *k, double strength, size_t times,
                            struct value *inpaint)
{
    struct call x[2];
    struct value *model = output(&k->model);
    berth_err err = { 0 };
    for (size_t i = 0; i < times; i++) {
        assert_ok(steer_by(s, k, model, strength, inpaint, &x[i], &err), err);
        model = output(&x[i]);
    }
    struct htensor *t = sample(s, model, s->longer, s->shorter);
    for (size_t i = 0; i < times; i++)
        call_release(&x[i]);
    return t;
}

static void pictures_steer(void **state)
{
    struct scene *s = *state;
    struct steered k;
    steered_open(s, &k);
    struct htensor *plain = with(s, &k, 1, 0, NULL), *none = with(s, &k, 0, 1, NULL);
    struct htensor *one = with(s, &k, 1, 1, NULL), *again = with(s, &k, 1, 1, NULL);
    struct htensor *grey = with(s, &k, 1, 1, k.grey), *two = with(s, &k, 1, 2, NULL);
    assert_true(same(plain, none)); /* cut into turns, the same bits */
    assert_true(same(one, again));
    assert_true(same(one, grey)); /* grey is what it sees where there is nothing */
    assert_false(same(one, plain));
    assert_false(same(two, one));
    struct htensor *const all[] = { plain, none, one, again, grey, two };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        htensor_unref(all[i]);
    steered_close(&k);
}

static void what_cannot_steer_is_refused(void **state)
{
    struct scene *s = *state;
    struct steered k;
    struct call x, other, latent, area, sampled;
    berth_err err = { 0 };
    steered_open(s, &k);
    /* a network for another model */
    load(s, &other, "lumina");
    assert_ok(steer_by(s, &k, output(&other), 1, NULL, &x, &err), err);
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 1}", &err),
              err);
    rig_call(&s->r, &sampled, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&sampled, "model", output(&x));
    call_give(&sampled, "positive", s->lumina);
    call_give(&sampled, "negative", s->lumina);
    call_give(&sampled, "latent_image", output(&latent));
    assert_fails(sampled.c.cls->run(&sampled.c, &err), err, BERTH_EUNSUPPORTED, "Lumina2");
    call_release(&sampled);
    call_release(&x);
    call_release(&other);
    /* areas, which would need a picture of their size */
    err = (berth_err) { 0 };
    rig_call(&s->r, &area, "ConditioningSetArea",
             "{\"width\": 32, \"height\": 32, \"x\": 0, \"y\": 0, \"strength\": 1}");
    call_give(&area, "conditioning", s->longer);
    run(&area);
    assert_ok(steer_by(s, &k, output(&k.model), 1, NULL, &x, &err), err);
    rig_call(&s->r, &sampled, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&sampled, "model", output(&x));
    call_give(&sampled, "positive", output(&area));
    call_give(&sampled, "negative", s->longer);
    call_give(&sampled, "latent_image", output(&latent));
    assert_fails(sampled.c.cls->run(&sampled.c, &err), err, BERTH_EUNSUPPORTED, "areas");
    call_release(&sampled);
    call_release(&area);
    call_release(&x);
    /* a file that holds none */
    err = (berth_err) { 0 };
    call_release(&k.patch);
    rig_preset(&s->r, "model_patches/vae.safetensors", "flux-tiny-vae");
    assert_ok(rig_run(&s->r, &k.patch, "ModelPatchLoader", "{\"name\": \"vae.safetensors\"}", &err),
              err);
    assert_fails(steer_by(s, &k, output(&k.model), 1, NULL, &x, &err), err, BERTH_EUNSUPPORTED,
                 "holds no network that can steer");
    call_release(&x);
    call_release(&latent);
    steered_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(other_prompts_are_refused),
        cmocka_unit_test(a_workflow_gives_a_picture),
        cmocka_unit_test(pictures_steer),
        cmocka_unit_test(what_cannot_steer_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
