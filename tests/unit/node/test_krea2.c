/* Krea 2 through its nodes, on tiny models: every form of the loaders, an all-in-one file, noise
 * levels, pictures to look at, merging and saving, a whole workflow. Numbers are held to ComfyUI's
 * in tests/golden. */
#include "support/dit_scene.h"

#include "model/krea2/presets.h"
#include "model/lm/presets.h"
#include "model/vae_wan/presets.h"

#define TAPS 12
#define WIDTH (TAPS * 160) /* of krea2-tiny's text */

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { .type = "krea2", .width = WIDTH };
    rig_open(&s.r, DIT_DEVICES);
    rig_preset(&s.r, "diffusion_models/krea2.safetensors", "krea2-tiny");
    rig_preset(&s.r, "diffusion_models/krea2.gguf", "krea2-tiny");
    rig_preset(&s.r, "text_encoders/krea2.safetensors", "qwen3vl-krea2-tiny");
    rig_preset(&s.r, "vae/wan.safetensors", "wan-tiny-vae");
    scene_tokenizer(&s);
    scene_load(&s, &s.unet, "UNETLoader", "unet_name", "krea2.safetensors", "");
    scene_load(&s, &s.clip, "CLIPLoader", "clip_name", "krea2.safetensors",
               ", \"type\": \"krea2\"");
    scene_load(&s, &s.vae, "VAELoader", "vae_name", "wan.safetensors", "");
    s.prompt[0] = scene_prompt(&s, 11);
    s.prompt[1] = scene_prompt(&s, 4);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    scene_close(*state);
    return 0;
}

/* The prompt looks at pictures by this method; the caller's reference. */
static struct value *placed(struct scene *s, struct value *cond, const char *method)
{
    struct call x;
    char inputs[96];
    snprintf(inputs, sizeof inputs, "{\"reference_latents_method\": \"%s\"}", method);
    rig_call(&s->r, &x, "FluxKontextMultiReferenceLatentMethod", inputs);
    call_give(&x, "conditioning", cond);
    scene_run(&x);
    struct value *v = value_ref(scene_output(&x));
    call_release(&x);
    return v;
}

/* ---- loaders ---- */

/* Two prompts, one of which looks at a picture. */
static struct htensor *use_model(void *scene, struct value *model)
{
    struct scene *s = scene;
    struct value *pixels = scene_picture(1, 40, 56, 3), *latent = scene_encoded(s, pixels);
    struct value *cond = scene_looking(s, s->prompt[0], latent);
    struct value *looks = placed(s, cond, "index_timestep_zero");
    struct htensor *t = scene_sample(s, model, looks, s->prompt[1], NULL);
    struct value *const all[] = { pixels, latent, cond, looks };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        value_unref(all[i]);
    return t;
}

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    static const char *const texts[] = { "CLIPLoaderMultiGPU", "CLIPLoaderDisTorch2", NULL };
    struct scene *s = *state;
    assert_int_equal(scene_forms(s, models, "unet_name", "krea2", use_model), 12);
    assert_true(scene_forms(s, texts, "clip_name", "krea2", scene_use_clip) >= 2);
}

/* All networks in one file, as ComfyUI saves them. */
static void write_checkpoint(struct scene *s)
{
    static const struct krea2_config model = { .channels = 16,
                                               .hidden = 64,
                                               .heads = 2,
                                               .kv_heads = 1,
                                               .text_dim = 32,
                                               .text_heads = 2,
                                               .taps = TAPS,
                                               .depth = 2 };
    static const struct lm_config text = {
        .vocab = 151936,
        .width = 32,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 128,
        .mlp = 48,
        .layers = 36,
        .qk_norm = true,
        .eyes = { .blocks = 4, .width = 64, .mlp = 32, .patch = 16, .table = 16, .depths = 3 }
    };
    static const struct vae_wan_config vae = { .dim = 4, .z_channels = 16, .colours = 3 };
    struct keys k = { 0 };
    size_t mark = keys_enter(&k, "model.diffusion_model");
    keys_krea2(&k, &model);
    keys_leave(&k, mark);
    mark = keys_enter(&k, "text_encoders.qwen3vl_4b.transformer");
    keys_lm(&k, &text);
    keys_leave(&k, mark);
    mark = keys_enter(&k, "vae");
    keys_vae_wan(&k, &vae);
    keys_leave(&k, mark);
    assert_false(k.bad);
    assert_int_equal(rename(keys_file(&k, "all", DT_F16, "safetensors", NULL),
                            rig_path(&s->r, "checkpoints/krea2.safetensors")),
                     0);
    keys_release(&k);
}

/* A picture of all three; the caller's reference. */
static struct htensor *use_checkpoint(struct scene *s, const struct call *ckpt)
{
    struct call text, pixels;
    rig_call(&s->r, &text, "CLIPTextEncode", "{\"text\": \"a cat\"}");
    call_give(&text, "clip", ckpt->out[1].at[0]);
    scene_run(&text);
    assert_int_equal(dim(scene_entry(scene_output(&text))->cond, 2), TAPS * 32);
    struct htensor *z =
        scene_sample(s, ckpt->out[0].at[0], scene_output(&text), scene_output(&text), NULL);
    struct htensor *t = htensor_ref(scene_decode(s, &pixels, ckpt->out[2].at[0], z)->tensor);
    assert_true(dim(t, 0) == 2 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 3);
    call_release(&text);
    call_release(&pixels);
    return t;
}

static void all_in_one_file(void **state)
{
    static const char *const cls[] = { "CheckpointLoaderSimple", "CheckpointLoaderSimpleMultiGPU",
                                       "CheckpointLoaderSimpleDisTorch2MultiGPU" };
    static const char *const more[] = { "", ", \"device\": \"cuda:0\"",
                                        ", \"compute_device\": \"cuda:0\", "
                                        "\"virtual_vram_gb\": 0.001" };
    struct scene *s = *state;
    struct htensor *want = NULL;
    write_checkpoint(s);
    for (size_t i = 0; i < ARRAY_LEN(cls); i++) {
        struct call x;
        scene_load(s, &x, cls[i], "ckpt_name", "krea2.safetensors", more[i]);
        struct htensor *got = use_checkpoint(s, &x);
        assert_true(!want || form_same(got, want));
        htensor_unref(want);
        want = got;
        call_release(&x);
    }
    htensor_unref(want);
}

/* ---- noise levels ---- */

static void noise_levels(void **state)
{
    const float e = (float)exp(1.15);
    const float own[] = { 1, e / (e + 1.0f / 3.0f), e / (e + 1), e / (e + 3), 0 };
    struct scene *s = *state;
    struct call x;
    scene_levels(s, scene_output(&s->unet), own, ARRAY_LEN(own));
    /* as its templates have it; at 1024 x 1024 that is the same */
    rig_call(&s->r, &x, "ModelSamplingFlux",
             "{\"max_shift\": 1.15, \"base_shift\": 0.5, \"width\": 1024, \"height\": 1024}");
    call_give(&x, "model", scene_output(&s->unet));
    scene_run(&x);
    scene_levels(s, scene_output(&x), own, ARRAY_LEN(own));
    call_release(&x);
}

/* ---- pictures to look at ---- */

/* They count once a node says how; then "timestep_zero" is all that makes a difference. */
static void references_count_with_a_method(void **state)
{
    static const char *const method[] = { "index", "offset", "uxo/uno", "index_timestep_zero" };
    struct scene *s = *state;
    struct value *pixels = scene_picture(1, 40, 32, 3), *latent = scene_encoded(s, pixels);
    struct value *looks = scene_looking(s, s->prompt[0], latent);
    struct htensor *plain =
        scene_sample(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *not_said = scene_sample(s, scene_output(&s->unet), looks, s->prompt[1], NULL);
    struct htensor *index = NULL;
    assert_true(form_same(plain, not_said));
    for (size_t i = 0; i < ARRAY_LEN(method); i++) {
        struct value *cond = placed(s, looks, method[i]);
        struct htensor *got = scene_sample(s, scene_output(&s->unet), cond, s->prompt[1], NULL);
        assert_false(form_same(got, plain));
        if (index)
            assert_int_equal(form_same(got, index), i + 1 < ARRAY_LEN(method));
        else
            index = htensor_ref(got);
        htensor_unref(got);
        value_unref(cond);
    }
    htensor_unref(index);
    htensor_unref(plain);
    htensor_unref(not_said);
    value_unref(looks);
    value_unref(latent);
    value_unref(pixels);
}

/* ---- what is refused ---- */

static void sampling_fails(struct scene *s, struct value *cond, const char *empty,
                           const char *inputs, berth_status code, const char *why)
{
    struct call x, latent;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &latent, empty, inputs, &err), err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", scene_output(&s->unet));
    call_give(&x, "positive", cond);
    call_give(&x, "negative", cond);
    call_give(&x, "latent_image", scene_output(&latent));
    assert_fails(x.c.cls->run(&x.c, &err), err, code, why);
    call_release(&x);
    call_release(&latent);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char small[] = "{\"width\": 64, \"height\": 48}";
    struct scene *s = *state, other = { .width = 160 };
    struct value *cond = scene_prompt(&other, 5);
    struct call clip, x;
    berth_err err = { 0 };
    sampling_fails(s, cond, "EmptySD3LatentImage", small, BERTH_EINVAL,
                   "text encoder? The loader of its own has the type 'krea2'");
    value_unref(cond);
    sampling_fails(s, s->prompt[0], "EmptyHunyuanLatentVideo",
                   "{\"width\": 64, \"height\": 48, \"length\": 5}", BERTH_EUNSUPPORTED,
                   "has 2 frames");
    rig_preset(&s->r, "text_encoders/short.safetensors", "qwen3vl-tiny");
    scene_load(s, &clip, "CLIPLoader", "clip_name", "short.safetensors", ", \"type\": \"krea2\"");
    rig_call(&s->r, &x, "CLIPTextEncode", "{\"text\": \"a cat\"}");
    call_give(&x, "clip", scene_output(&clip));
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL,
                 "layer 35 is wanted of one with 4 layers");
    call_release(&x);
    call_release(&clip);
}

/* ---- merging, saving ---- */

/* blocks.0. of the first model and `rest` of all else, against another. */
static struct htensor *merged(struct scene *s, struct value *other, double block, double rest)
{
    struct call x;
    berth_err err = { 0 };
    rig_call(&s->r, &x, "ModelMergeKrea2", "{}");
    for (size_t i = 0; i < x.c.cls->ins; i++) {
        const char *input = x.c.cls->in[i].name;
        if (strncmp(input, "model", 5))
            assert_ok(
                values_add(&x.in[i], value_float(strcmp(input, "blocks.0.") ? rest : block), &err),
                err);
    }
    call_give(&x, "model1", scene_output(&s->unet));
    call_give(&x, "model2", other);
    scene_run(&x);
    struct htensor *t = scene_sample(s, scene_output(&x), s->prompt[0], s->prompt[1], NULL);
    call_release(&x);
    return t;
}

static void models_are_merged_by_blocks(void **state)
{
    struct scene *s = *state;
    struct call other;
    preset_write("krea2-tiny", DT_F8_E4M3, rig_path(&s->r, "diffusion_models/coarse.safetensors"));
    scene_load(s, &other, "UNETLoader", "unet_name", "coarse.safetensors", "");
    struct value *coarse = scene_output(&other);
    struct htensor *a = scene_sample(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *b = scene_sample(s, coarse, s->prompt[0], s->prompt[1], NULL);
    struct htensor *first = merged(s, coarse, 1, 1), *second = merged(s, coarse, 0, 0);
    struct htensor *block = merged(s, coarse, 0, 1), *rest = merged(s, coarse, 1, 0);
    assert_true(form_same(first, a) && form_same(second, b) && !form_same(a, b));
    assert_false(form_same(block, a) || form_same(block, b) || form_same(rest, a) ||
                 form_same(rest, b) || form_same(block, rest));
    struct htensor *const all[] = { a, b, first, second, block, rest };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        htensor_unref(all[i]);
    call_release(&other);
}

/* Norms have other names in files than in the network; what is saved has those of files. */
static void a_saved_model_is_the_same(void **state)
{
    struct scene *s = *state;
    struct call x, loaded;
    char path[1024];
    rig_call(&s->r, &x, "ModelSave", "{\"filename_prefix\": \"krea2\"}");
    call_give(&x, "model", scene_output(&s->unet));
    scene_run(&x);
    call_release(&x);
    snprintf(path, sizeof path, "%s/output/krea2_00001_.safetensors", s->r.base);
    assert_int_equal(rename(path, rig_path(&s->r, "diffusion_models/saved.safetensors")), 0);
    scene_load(s, &loaded, "UNETLoader", "unet_name", "saved.safetensors", "");
    struct htensor *a = scene_sample(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *b = scene_sample(s, scene_output(&loaded), s->prompt[0], s->prompt[1], NULL);
    assert_true(form_same(a, b));
    htensor_unref(a);
    htensor_unref(b);
    call_release(&loaded);
}

/* ---- a whole workflow ---- */

/* <|im_start|>user\n is cut off; ... <|im_end|>\n<|im_start|>assistant\n stays. Without words the
 * cut would leave too little, so that it is made earlier. */
#define WORDS(prompt) (1 + 5 + sizeof(prompt) - 1 + 1 + 1 + 1 + 10)

static void a_workflow_gives_a_picture(void **state)
{
    struct scene *s = *state;
    struct call a, b, empty, pixels;
    berth_err err = { 0 };
    scene_text(s, &a, "a cat");
    assert_int_equal(dim(scene_entry(scene_output(&a))->cond, 1), WORDS("a cat"));
    assert_int_equal(dim(scene_entry(scene_output(&a))->cond, 2), WIDTH);
    rig_call(&s->r, &b, "ConditioningZeroOut", "{}"); /* as its templates do without a negative */
    call_give(&b, "conditioning", scene_output(&a));
    scene_run(&b);
    /* four channels, and no frames: what is empty becomes what the model wants */
    assert_ok(rig_run(&s->r, &empty, "EmptyLatentImage", "{\"width\": 64, \"height\": 48}", &err),
              err);
    struct htensor *z = scene_sample(s, scene_output(&s->unet), scene_output(&a), scene_output(&b),
                                     scene_output(&empty));
    const struct shape want = { 5, { 1, 16, 1, 6, 8 } };
    assert_true(shape_eq(&z->shape, &want));
    const struct htensor *t = scene_decode(s, &pixels, scene_output(&s->vae), z)->tensor;
    assert_true(dim(t, 0) == 1 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 3);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(t->data[i] >= 0 && t->data[i] <= 1);
    call_release(&a);
    call_release(&b);
    call_release(&empty);
    call_release(&pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(all_in_one_file),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(references_count_with_a_method),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(models_are_merged_by_blocks),
        cmocka_unit_test(a_saved_model_is_the_same),
        cmocka_unit_test(a_workflow_gives_a_picture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
