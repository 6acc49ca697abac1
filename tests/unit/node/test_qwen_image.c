/* Qwen-Image through its nodes, on tiny models: every form of the loaders, noise levels, pictures
 * to look at, layers, whole workflows. Numbers are held to ComfyUI's in tests/golden. */
#include "support/dit_scene.h"

#include "model/lm/presets.h"
#include "model/vae_wan/presets.h"

#define WIDTH 192 /* of qwen-image-tiny's text */

static void write_text_encoder(struct scene *s)
{
    static const struct lm_config qwen25 = {
        .vocab = 151656,
        .width = WIDTH,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 128,
        .mlp = 256,
        .layers = 2,
        .bias = true,
        .eyes = { .blocks = 8, .width = 128, .mlp = 96, .patch = 14 }
    };
    struct keys k = { 0 };
    keys_lm(&k, &qwen25);
    assert_false(k.bad);
    assert_int_equal(rename(keys_file(&k, "qwen", DT_F16, "safetensors", NULL),
                            rig_path(&s->r, "text_encoders/qwen.safetensors")),
                     0);
    keys_release(&k);
}

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { .type = "qwen_image", .width = WIDTH };
    rig_open(&s.r, DIT_DEVICES);
    rig_preset(&s.r, "diffusion_models/qwen.safetensors", "qwen-image-tiny");
    rig_preset(&s.r, "diffusion_models/qwen.gguf", "qwen-image-tiny");
    rig_preset(&s.r, "diffusion_models/edit.safetensors", "qwen-edit-tiny");
    rig_preset(&s.r, "diffusion_models/edit.gguf", "qwen-edit-tiny");
    rig_preset(&s.r, "diffusion_models/layered.safetensors", "qwen-layered-tiny");
    rig_preset(&s.r, "vae/wan.safetensors", "wan-tiny-vae");
    rig_preset(&s.r, "vae/rgba.safetensors", "wan-rgba-tiny-vae");
    scene_tokenizer(&s);
    write_text_encoder(&s);
    scene_load(&s, &s.unet, "UNETLoader", "unet_name", "qwen.safetensors", "");
    scene_load(&s, &s.clip, "CLIPLoader", "clip_name", "qwen.safetensors",
               ", \"type\": \"qwen_image\"");
    scene_load(&s, &s.vae, "VAELoader", "vae_name", "wan.safetensors", "");
    s.prompt[0] = scene_prompt(&s, 23);
    s.prompt[1] = scene_prompt(&s, 9);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    scene_close(*state);
    return 0;
}

/* ---- loaders ---- */

/* Two prompts, one of which looks at a picture. */
static struct htensor *use_model(void *scene, struct value *model)
{
    struct scene *s = scene;
    struct value *pixels = scene_picture(1, 40, 56, 3), *latent = scene_encoded(s, pixels);
    struct value *cond = scene_looking(s, s->prompt[0], latent);
    struct htensor *t = scene_sample(s, model, cond, s->prompt[1], NULL);
    value_unref(pixels);
    value_unref(latent);
    value_unref(cond);
    return t;
}

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    static const char *const vaes[] = { "VAELoader", NULL };
    static const char *const texts[] = { "CLIPLoaderMultiGPU", "CLIPLoaderDisTorch2", NULL };
    struct scene *s = *state;
    assert_int_equal(scene_forms(s, models, "unet_name", "qwen", use_model), 12);
    assert_int_equal(scene_forms(s, models, "unet_name", "edit", use_model), 12);
    assert_true(scene_forms(s, vaes, "vae_name", "wan", scene_use_vae) >= 3);
    assert_true(scene_forms(s, texts, "clip_name", "qwen", scene_use_clip) >= 2);
}

/* ---- noise levels ---- */

static void noise_levels(void **state)
{
    const float e = (float)exp(1.15);
    const float own[] = { 1, e / (e + 1.0f / 3.0f), e / (e + 1), e / (e + 3), 0 };
    const float shifted[] = { 1, 3.1f * .75f / (1 + 2.1f * .75f), 3.1f * .5f / (1 + 2.1f * .5f),
                              3.1f * .25f / (1 + 2.1f * .25f), 0 };
    struct scene *s = *state;
    struct call x;
    scene_levels(s, scene_output(&s->unet), own, ARRAY_LEN(own));
    rig_call(&s->r, &x, "ModelSamplingAuraFlow", "{\"shift\": 3.1}");
    call_give(&x, "model", scene_output(&s->unet));
    scene_run(&x);
    scene_levels(s, scene_output(&x), shifted, ARRAY_LEN(shifted));
    call_release(&x);
}

/* ---- pictures to look at ---- */

static void references_are_a_list(void **state)
{
    static const struct {
        const char *method;
        enum diffusion_ref_method is;
    } row[] = { { "offset", REF_OFFSET },
                { "index", REF_INDEX },
                { "uxo/uno", REF_UXO },
                { "index_timestep_zero", REF_INDEX_TIMESTEP_ZERO } };
    struct scene *s = *state;
    struct value *small = scene_picture(1, 16, 24, 3), *large = scene_picture(1, 40, 32, 3);
    struct value *a = scene_encoded(s, small), *b = scene_encoded(s, large);
    struct value *one = scene_looking(s, s->prompt[0], a), *two = scene_looking(s, one, b);
    struct value *none = scene_looking(s, s->prompt[0], NULL);
    assert_int_equal(cond_refs(scene_entry(none)->ref), 0);
    assert_int_equal(cond_refs(scene_entry(one)->ref), 1);
    assert_int_equal(cond_refs(scene_entry(two)->ref), 2);
    assert_ptr_equal(scene_entry(two)->ref->latent, b->latent.samples); /* the last one */
    assert_ptr_equal(scene_entry(two)->ref->before, scene_entry(one)->ref);
    struct htensor *plain =
        scene_sample(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *looked = scene_sample(s, scene_output(&s->unet), two, s->prompt[1], NULL);
    assert_false(form_same(plain, looked));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        char inputs[96];
        snprintf(inputs, sizeof inputs, "{\"reference_latents_method\": \"%s\"}", row[i].method);
        rig_call(&s->r, &x, "FluxKontextMultiReferenceLatentMethod", inputs);
        call_give(&x, "conditioning", two);
        scene_run(&x);
        assert_int_equal(scene_entry(scene_output(&x))->ref_method, row[i].is);
        struct htensor *got =
            scene_sample(s, scene_output(&s->unet), scene_output(&x), s->prompt[1], NULL);
        assert_int_equal(form_same(got, looked), row[i].is == REF_INDEX); /* this file's own */
        htensor_unref(got);
        call_release(&x);
    }
    htensor_unref(plain);
    htensor_unref(looked);
    struct value *const all[] = { small, large, a, b, one, two, none };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        value_unref(all[i]);
}

static void too_many_references(void **state)
{
    struct scene *s = *state;
    struct value *pixels = scene_picture(1, 16, 16, 3), *latent = scene_encoded(s, pixels);
    struct value *cond = value_ref(s->prompt[0]);
    struct call x;
    berth_err err = { 0 };
    for (size_t i = 0; i < 64; i++) {
        struct value *more = scene_looking(s, cond, latent);
        value_unref(cond);
        cond = more;
    }
    rig_call(&s->r, &x, "ReferenceLatent", "{}");
    call_give(&x, "conditioning", cond);
    call_give(&x, "latent", latent);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_ELIMIT, "more than 64");
    call_release(&x);
    value_unref(cond);
    value_unref(latent);
    value_unref(pixels);
}

/* A model that takes none does without, as in ComfyUI. */
static void other_models_do_without(void **state)
{
    struct scene *s = *state;
    struct call x;
    const struct shape sh = { 3, { 1, 20, 64 } };
    struct htensor *t;
    struct conditioning *c;
    berth_err err = { 0 };
    struct value *pixels = scene_picture(1, 16, 16, 3), *latent = scene_encoded(s, pixels);
    rig_preset(&s->r, "diffusion_models/lumina.safetensors", "lumina2-tiny");
    scene_load(s, &x, "UNETLoader", "unet_name", "lumina.safetensors", "");
    assert_ok(htensor_zeros(&sh, &t, &err), err);
    assert_ok(conditioning_new(t, NULL, &c, &err), err);
    struct value *cond = value_object(&type_conditioning, c),
                 *looks = scene_looking(s, cond, latent);
    struct htensor *a = scene_sample(s, scene_output(&x), cond, cond, NULL);
    struct htensor *b = scene_sample(s, scene_output(&x), looks, cond, NULL);
    assert_true(form_same(a, b));
    htensor_unref(a);
    htensor_unref(b);
    value_unref(cond);
    value_unref(looks);
    value_unref(latent);
    value_unref(pixels);
    call_release(&x);
}

/* ---- control ---- */

static void write_control(struct scene *s, const char *path, uint64_t channels)
{
    struct keys k = { 0 };
    keys_linear(&k, "img_in", 256, 4 * channels, KEYS_BIAS);
    for (int i = 0; i < 2; i++) {
        size_t mark = keys_enter(&k, "controlnet_blocks.%d", i);
        keys_tensor(&k, "x_rms.weight", 256, 0, 0, 0);
        keys_tensor(&k, "y_rms.weight", 256, 0, 0, 0);
        keys_linear(&k, "input_proj", 256, 256, KEYS_BIAS);
        keys_linear(&k, "output_proj", 256, 256, KEYS_BIAS);
        keys_leave(&k, mark);
    }
    assert_int_equal(
        rename(keys_file(&k, "control", DT_F32, "safetensors", NULL), rig_path(&s->r, path)), 0);
    keys_release(&k);
}

static void steered_fails(struct scene *s, struct value *model, const char *why)
{
    struct call x, empty;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &empty, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 1}", &err),
              err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", model);
    call_give(&x, "positive", s->prompt[0]);
    call_give(&x, "negative", s->prompt[1]);
    call_give(&x, "latent_image", scene_output(&empty));
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EUNSUPPORTED, why);
    call_release(&x);
    call_release(&empty);
}

/* A network of DiffSynth's, whatever the size of its picture. */
static void a_picture_steers(void **state)
{
    static const char *const strength[] = { "1.0", "0.5", "0.0" };
    struct scene *s = *state;
    struct call patch, wide, x;
    struct value *image = scene_picture(1, 70, 90, 3);
    struct htensor *plain =
        scene_sample(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *got[ARRAY_LEN(strength)];
    write_control(s, "model_patches/canny.safetensors", 16);
    write_control(s, "model_patches/wide.safetensors", 18);
    scene_load(s, &patch, "ModelPatchLoader", "name", "canny.safetensors", "");
    scene_load(s, &wide, "ModelPatchLoader", "name", "wide.safetensors", "");
    for (size_t i = 0; i <= ARRAY_LEN(strength); i++) {
        const bool other = i == ARRAY_LEN(strength);
        char inputs[64];
        snprintf(inputs, sizeof inputs, "{\"strength\": %s}", strength[other ? 0 : i]);
        rig_call(&s->r, &x, "QwenImageDiffsynthControlnet", inputs);
        call_give(&x, "model", scene_output(&s->unet));
        call_give(&x, "model_patch", scene_output(other ? &wide : &patch));
        call_give(&x, "vae", scene_output(&s->vae));
        call_give(&x, "image", image);
        scene_run(&x);
        if (!other)
            got[i] = scene_sample(s, scene_output(&x), s->prompt[0], s->prompt[1], NULL);
        else /* more than a latent and a mask */
            steered_fails(s, scene_output(&x), "over 18 channels");
        call_release(&x);
    }
    assert_true(form_same(got[2], plain) && !form_same(got[0], plain) &&
                !form_same(got[0], got[1]));
    for (size_t i = 0; i < ARRAY_LEN(strength); i++)
        htensor_unref(got[i]);
    htensor_unref(plain);
    value_unref(image);
    call_release(&patch);
    call_release(&wide);
}

/* ---- whole workflows ---- */

/* <|im_start|>user\n ... <|im_end|>\n<|im_start|>assistant\n */
#define WORDS(prompt) (1 + 5 + sizeof(prompt) - 1 + 1 + 1 + 1 + 10)

static void a_workflow_gives_a_picture(void **state)
{
    struct scene *s = *state;
    struct call a, b, pixels;
    scene_text(s, &a, "a cat");
    scene_text(s, &b, "");
    assert_int_equal(dim(scene_entry(scene_output(&a))->cond, 1), WORDS("a cat"));
    assert_int_equal(dim(scene_entry(scene_output(&b))->cond, 1), WORDS(""));
    struct htensor *z =
        scene_sample(s, scene_output(&s->unet), scene_output(&a), scene_output(&b), NULL);
    assert_int_equal(z->shape.ndim, 5);
    const struct htensor *t = scene_decode(s, &pixels, scene_output(&s->vae), z)->tensor;
    assert_true(dim(t, 0) == 2 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 3);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(t->data[i] >= 0 && t->data[i] <= 1);
    call_release(&a);
    call_release(&b);
    call_release(&pixels);
}

/* The composite and its layers are frames; its VAE gives pictures that may be transparent. */
static void layers(void **state)
{
    struct scene *s = *state;
    struct call model, vae, empty, pixels;
    berth_err err = { 0 };
    scene_load(s, &model, "UNETLoader", "unet_name", "layered.safetensors", "");
    scene_load(s, &vae, "VAELoader", "vae_name", "rgba.safetensors", "");
    assert_ok(rig_run(&s->r, &empty, "EmptyQwenImageLayeredLatentImage",
                      "{\"width\": 64, \"height\": 48, \"layers\": 2, \"batch_size\": 1}", &err),
              err);
    const struct shape want = { 5, { 1, 16, 3, 6, 8 } };
    assert_true(shape_eq(&scene_output(&empty)->latent.samples->shape, &want));
    struct value *photo = scene_picture(1, 48, 64, 4), *latent = scene_encoded(s, photo);
    struct value *cond = scene_looking(s, s->prompt[0], latent);
    struct htensor *z =
        scene_sample(s, scene_output(&model), cond, s->prompt[1], scene_output(&empty));
    assert_true(shape_eq(&z->shape, &want));
    /* one layer alone, as LatentCutToBatch gives them */
    const struct shape alone = { 5, { 1, 16, 1, 6, 8 } };
    struct htensor *layer;
    assert_ok(htensor_new(&alone, &layer, &err), err);
    for (size_t c = 0; c < 16; c++)
        memcpy(layer->data + c * 48, z->data + (c * 3 + 1) * 48, 48 * sizeof(float));
    const struct htensor *t = scene_decode(s, &pixels, scene_output(&vae), layer)->tensor;
    assert_true(dim(t, 0) == 1 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 4);
    htensor_unref(z);
    value_unref(photo);
    value_unref(latent);
    value_unref(cond);
    call_release(&model);
    call_release(&vae);
    call_release(&empty);
    call_release(&pixels);
}

/* Without pictures both are prompts like any other; Plus has a wording of its own. */
static void edit_prompts_without_pictures(void **state)
{
    struct scene *s = *state;
    struct call plain, edit, plus;
    scene_text(s, &plain, "a cat");
    rig_call(&s->r, &edit, "TextEncodeQwenImageEdit", "{\"prompt\": \"a cat\"}");
    call_give(&edit, "clip", scene_output(&s->clip));
    scene_run(&edit);
    assert_true(
        form_same(scene_entry(scene_output(&edit))->cond, scene_entry(scene_output(&plain))->cond));
    rig_call(&s->r, &plus, "TextEncodeQwenImageEditPlus", "{\"prompt\": \"a cat\"}");
    call_give(&plus, "clip", scene_output(&s->clip));
    scene_run(&plus);
    assert_int_equal(dim(scene_entry(scene_output(&plus))->cond, 1),
                     dim(scene_entry(scene_output(&plain))->cond, 1));
    assert_false(
        form_same(scene_entry(scene_output(&plus))->cond, scene_entry(scene_output(&plain))->cond));
    assert_null(scene_entry(scene_output(&plus))->ref);
    call_release(&plain);
    call_release(&edit);
    call_release(&plus);
}

/* ---- prompts that show pictures ---- */

/* Rows that the text encoder makes of a picture: one for 28 x 28 pixels. */
static size_t rows_of(size_t w, size_t h)
{
    return (size_t)(nearbyint((double)w / 28) * nearbyint((double)h / 28));
}

/* 100 x 68 pixels are shown with the area of 1024 x 1024, and encoded: cut to latent pixels. */
static void a_prompt_shows_a_picture(void **state)
{
    struct scene *s = *state;
    struct value *photo = scene_picture(1, 68, 100, 4);
    struct call vae, x, plain;
    const struct vae_wan_config narrow = { .dim = 4, .z_channels = 16, .colours = 3 };
    struct keys k = { 0 };
    keys_vae_wan(&k, &narrow); /* a megapixel takes a while */
    assert_int_equal(rename(keys_file(&k, "narrow", DT_F32, "safetensors", NULL),
                            rig_path(&s->r, "vae/narrow.safetensors")),
                     0);
    keys_release(&k);
    scene_load(s, &vae, "VAELoader", "vae_name", "narrow.safetensors", "");
    rig_call(&s->r, &x, "TextEncodeQwenImageEdit", "{\"prompt\": \"a cat\"}");
    call_give(&x, "clip", scene_output(&s->clip));
    call_give(&x, "vae", scene_output(&vae));
    call_give(&x, "image", photo);
    scene_run(&x);
    const struct cond_entry *e = scene_entry(scene_output(&x));
    assert_int_equal(dim(e->cond, 1), WORDS("a cat") + 2 + rows_of(1242, 844));
    assert_int_equal(cond_refs(e->ref), 1);
    const struct shape want = { 5, { 1, 16, 1, 844 / 8, 1242 / 8 } };
    assert_true(shape_eq(&e->ref->latent->shape, &want));
    /* without a VAE it is shown alone */
    rig_call(&s->r, &plain, "TextEncodeQwenImageEdit", "{\"prompt\": \"a cat\"}");
    call_give(&plain, "clip", scene_output(&s->clip));
    call_give(&plain, "image", photo);
    scene_run(&plain);
    assert_true(form_same(scene_entry(scene_output(&plain))->cond, e->cond));
    assert_null(scene_entry(scene_output(&plain))->ref);
    call_release(&x);
    call_release(&plain);
    call_release(&vae);
    value_unref(photo);
}

/* Each is called by the number of its input, and shown with the area of 384 x 384. */
static void a_prompt_shows_several_pictures(void **state)
{
    struct scene *s = *state;
    struct value *wide = scene_picture(1, 68, 100, 3), *tall = scene_picture(1, 90, 50, 3);
    struct call x[2];
    for (size_t i = 0; i < 2; i++) {
        rig_call(&s->r, &x[i], "TextEncodeQwenImageEditPlus", "{\"prompt\": \"a cat\"}");
        call_give(&x[i], "clip", scene_output(&s->clip));
        call_give(&x[i], i ? "image2" : "image1", wide);
        call_give(&x[i], "image3", tall);
        scene_run(&x[i]);
        assert_int_equal(dim(scene_entry(scene_output(&x[i]))->cond, 1),
                         WORDS("Picture 1: Picture 3: a cat") + 4 + rows_of(466, 317) +
                             rows_of(286, 515));
    }
    assert_false(form_same(scene_entry(scene_output(&x[0]))->cond,
                           scene_entry(scene_output(&x[1]))->cond)); /* "1:" or "2:" */
    call_release(&x[0]);
    call_release(&x[1]);
    value_unref(wide);
    value_unref(tall);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(references_are_a_list),
        cmocka_unit_test(too_many_references),
        cmocka_unit_test(other_models_do_without),
        cmocka_unit_test(a_picture_steers),
        cmocka_unit_test(a_workflow_gives_a_picture),
        cmocka_unit_test(layers),
        cmocka_unit_test(edit_prompts_without_pictures),
        cmocka_unit_test(a_prompt_shows_a_picture),
        cmocka_unit_test(a_prompt_shows_several_pictures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
