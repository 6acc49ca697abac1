/* Z-Image and Lumina2 through their nodes, on tiny models: every form of the loaders, noise levels,
 * prompts of different length, a whole workflow. Numbers are held to ComfyUI's in tests/golden. */
#include "support/dit_scene.h"
#include "support/golden.h"

#include "model/lm/presets.h"

#define WIDTH 256       /* of z-image-tiny's text */
#define LUMINA_WIDTH 64 /* and lumina2-tiny's */

static struct value *lumina; /* a prompt of Lumina2 */

static void write_text_encoder(struct scene *s)
{
    static const struct lm_config qwen3 = { .vocab = 151656,
                                            .width = WIDTH,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_dim = 128,
                                            .mlp = 384,
                                            .layers = 4,
                                            .qk_norm = true };
    struct keys k = { 0 };
    keys_lm(&k, &qwen3);
    assert_false(k.bad);
    assert_int_equal(rename(keys_file(&k, "qwen", DT_F16, "safetensors", NULL),
                            rig_path(&s->r, "text_encoders/qwen_3_4b.safetensors")),
                     0);
    keys_release(&k);
}

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { .type = "lumina2", .width = WIDTH };
    rig_open(&s.r, DIT_DEVICES);
    rig_preset(&s.r, "diffusion_models/zimage.safetensors", "z-image-tiny");
    rig_preset(&s.r, "diffusion_models/zimage.gguf", "z-image-tiny");
    rig_preset(&s.r, "diffusion_models/lumina.safetensors", "lumina2-tiny");
    rig_preset(&s.r, "diffusion_models/lumina.gguf", "lumina2-tiny");
    rig_preset(&s.r, "vae/ae.safetensors", "flux-tiny-vae");
    scene_tokenizer(&s);
    write_text_encoder(&s);
    scene_load(&s, &s.unet, "UNETLoader", "unet_name", "zimage.safetensors", "");
    scene_load(&s, &s.clip, "CLIPLoader", "clip_name", "qwen_3_4b.safetensors",
               ", \"type\": \"lumina2\"");
    scene_load(&s, &s.vae, "VAELoader", "vae_name", "ae.safetensors", "");
    s.prompt[0] = scene_prompt(&s, 37);
    s.prompt[1] = scene_prompt(&s, 9);
    lumina = scene_prompt(&(struct scene) { .width = LUMINA_WIDTH }, 20);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    value_unref(lumina);
    scene_close(*state);
    return 0;
}

static void load_lumina(struct scene *s, struct call *x)
{
    scene_load(s, x, "UNETLoader", "unet_name", "lumina.safetensors", "");
}

/* ---- loaders ---- */

static struct htensor *use_zimage(void *scene, struct value *model)
{
    struct scene *s = scene;
    return scene_sample(s, model, s->prompt[0], s->prompt[1], NULL);
}

static struct htensor *use_lumina(void *scene, struct value *model)
{
    struct scene *s = scene;
    return scene_sample(s, model, lumina, lumina, NULL);
}

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    struct scene *s = *state;
    assert_int_equal(scene_forms(s, models, "unet_name", "zimage", use_zimage), 12);
    assert_int_equal(scene_forms(s, models, "unet_name", "lumina", use_lumina), 12);
}

/* ---- noise levels ---- */

static void noise_levels(void **state)
{
    static const float three[] = { 1, .9545455f, .9f, .8333333f, .75f, .6428571f, .5f, .3f, 0 };
    static const float one[] = { 1, .75f, .5f, .25f, 0 };
    static const float six[] = { 1, 6 * .5f / 3.5f, 0 };
    struct scene *s = *state;
    struct call x, shifted;
    scene_levels(s, scene_output(&s->unet), three, ARRAY_LEN(three));
    rig_call(&s->r, &shifted, "ModelSamplingAuraFlow", "{\"shift\": 1.0}");
    call_give(&shifted, "model", scene_output(&s->unet));
    scene_run(&shifted);
    scene_levels(s, scene_output(&shifted), one, ARRAY_LEN(one));
    call_release(&shifted);
    load_lumina(s, &x);
    scene_levels(s, scene_output(&x), six, ARRAY_LEN(six));
    call_release(&x);
}

/* ---- prompts ---- */

/* One step over an empty latent. */
static berth_status try_step(struct scene *s, struct value *model, struct value *positive,
                             struct value *negative, berth_err *err)
{
    struct call x, latent;
    *err = (berth_err) { 0 };
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 1}", err),
              *err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"res_multistep\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", model);
    call_give(&x, "positive", positive);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", scene_output(&latent));
    berth_status status = x.c.cls->run(&x.c, err);
    call_release(&x);
    call_release(&latent);
    return status;
}

static void other_prompts_are_refused(void **state)
{
    struct scene *s = *state;
    berth_err err;
    assert_fails(try_step(s, scene_output(&s->unet), lumina, lumina, &err), err, BERTH_EINVAL,
                 "Z-Image wants a text of width 256, this conditioning has 20 tokens of width 64");
    assert_ok(try_step(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], &err), err);
}

/* ---- a picture ---- */

/* UNETLoader, CLIPLoader, VAELoader, an empty latent, KSampler, VAEDecode. */
static void a_workflow_gives_a_picture(void **state)
{
    struct scene *s = *state;
    struct call text, zero, pixels, with_system;
    scene_text(s, &text, "a cat");
    /* <|im_start|>user\n ... <|im_end|>\n<|im_start|>assistant\n */
    assert_int_equal(dim(scene_entry(scene_output(&text))->cond, 1), 1 + 5 + 5 + 1 + 1 + 1 + 10);
    rig_call(&s->r, &zero, "ConditioningZeroOut", "{}");
    call_give(&zero, "conditioning", scene_output(&text));
    scene_run(&zero);
    struct htensor *z =
        scene_sample(s, scene_output(&s->unet), scene_output(&text), scene_output(&zero), NULL);
    const struct htensor *t = scene_decode(s, &pixels, scene_output(&s->vae), z)->tensor;
    assert_true(dim(t, 0) == 2 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 3);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(t->data[i] >= 0 && t->data[i] <= 1);
    /* Lumina2's system prompt stands in front of what the user wrote. */
    rig_call(&s->r, &with_system, "CLIPTextEncodeLumina2",
             "{\"system_prompt\": \"alignment\", \"user_prompt\": \"a cat\"}");
    call_give(&with_system, "clip", scene_output(&s->clip));
    scene_run(&with_system);
    assert_int_equal(dim(scene_entry(scene_output(&with_system))->cond, 1),
                     24 + strlen("You are an assistant designed to generate high-quality images "
                                 "with the highest degree of image-text alignment based on "
                                 "textual prompts. <Prompt Start> "));
    struct call *const all[] = { &text, &zero, &pixels, &with_system };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
}

/* ---- pictures to look at ---- */

/* Texts around pictures: tokens of "<|im_start|>user\n<|vision_start|>", and so on. */
static void prompts_of_omni(void **state)
{
    static const uint64_t tokens[] = { 1 + 5 + 1, 2, 2 }; /* user\n is five letters here */
    struct scene *s = *state;
    struct value *wide = scene_picture(1, 40, 72, 4), *tall = scene_picture(1, 64, 48, 3);
    struct call vision, x, plain, unet;
    berth_err err = { 0 };
    rig_preset(&s->r, "diffusion_models/omni.safetensors", "z-image-omni-tiny");
    rig_preset(&s->r, "clip_vision/siglip.safetensors", "siglip-16-tiny");
    scene_load(s, &vision, "CLIPVisionLoader", "clip_name", "siglip.safetensors", "");
    scene_load(s, &unet, "UNETLoader", "unet_name", "omni.safetensors", "");
    rig_call(&s->r, &x, "TextEncodeZImageOmni",
             "{\"prompt\": \"a cat\", \"auto_resize_images\": false}");
    call_give(&x, "clip", scene_output(&s->clip));
    call_give(&x, "vae", scene_output(&s->vae));
    call_give(&x, "image_encoder", scene_output(&vision));
    call_give(&x, "image1", wide);
    call_give(&x, "image3", tall);
    scene_run(&x);
    const struct cond_entry *e = scene_entry(scene_output(&x));
    assert_int_equal(cond_refs(e->ref), 2);
    assert_int_equal(cond_refs(e->ref_text), 3);
    assert_int_equal(cond_refs(e->ref_seen), 2);
    /* the last comes first */
    assert_true(shape_eq(&e->ref->latent->shape, &(struct shape) { 4, { 1, 16, 8, 6 } }));
    assert_true(shape_eq(&e->ref->before->latent->shape, &(struct shape) { 4, { 1, 16, 5, 9 } }));
    assert_true(shape_eq(&e->ref_seen->latent->shape, &(struct shape) { 4, { 1, 4, 4, 64 } }));
    size_t k = ARRAY_LEN(tokens);
    for (const struct cond_ref *t = e->ref_text; t; t = t->before)
        assert_int_equal(dim(t->latent, 1), tokens[--k]);
    /* <|vision_end|>a cat<|im_end|>\n<|im_start|>assistant\n<|vision_start|> */
    assert_int_equal(dim(e->cond, 1), 1 + 5 + 1 + 1 + 1 + 10 + 1);
    /* a picture of odd sides is told by its name */
    assert_fails(try_step(s, scene_output(&unet), scene_output(&x), s->prompt[0], &err), err,
                 BERTH_EINVAL, "9 x 5: Z-Image wants even sides");
    call_release(&x);
    /* resized, it is looked at: by a model that takes it */
    rig_call(&s->r, &x, "TextEncodeZImageOmni",
             "{\"prompt\": \"a cat\", \"auto_resize_images\": false}");
    call_give(&x, "clip", scene_output(&s->clip));
    call_give(&x, "vae", scene_output(&s->vae));
    call_give(&x, "image_encoder", scene_output(&vision));
    call_give(&x, "image2", tall);
    scene_run(&x);
    scene_text(s, &plain, "a cat");
    struct htensor *looked =
        scene_sample(s, scene_output(&unet), scene_output(&x), s->prompt[1], NULL);
    struct htensor *blind =
        scene_sample(s, scene_output(&unet), scene_output(&plain), s->prompt[1], NULL);
    assert_false(form_same(looked, blind));
    struct call *const all[] = { &vision, &x, &plain, &unet };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    htensor_unref(looked), htensor_unref(blind);
    value_unref(wide), value_unref(tall);
}

/* Without pictures it is a prompt like any other; an encoder with other patches is none for it. */
static void what_omni_does_without(void **state)
{
    struct scene *s = *state;
    struct value *photo = scene_picture(1, 64, 48, 3);
    struct call vision, x, plain;
    berth_err err = { 0 };
    rig_call(&s->r, &x, "TextEncodeZImageOmni", "{\"prompt\": \"a cat\"}");
    call_give(&x, "clip", scene_output(&s->clip));
    scene_run(&x);
    scene_text(s, &plain, "a cat");
    assert_true(
        form_same(scene_entry(scene_output(&x))->cond, scene_entry(scene_output(&plain))->cond));
    assert_null(scene_entry(scene_output(&x))->ref_text);
    call_release(&x);
    call_release(&plain);
    rig_preset(&s->r, "clip_vision/other.safetensors", "siglip-tiny");
    scene_load(s, &vision, "CLIPVisionLoader", "clip_name", "other.safetensors", "");
    rig_call(&s->r, &x, "TextEncodeZImageOmni", "{\"prompt\": \"a cat\"}");
    call_give(&x, "clip", scene_output(&s->clip));
    call_give(&x, "image_encoder", scene_output(&vision));
    call_give(&x, "image1", photo);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "56 x 56 as 16 patches");
    call_release(&x);
    call_release(&vision);
    value_unref(photo);
}

/* ---- control networks ---- */

struct steered { /* what a MODEL is steered by */
    struct call patch;
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
    assert_ok(
        rig_run(&s->r, &k->patch, "ModelPatchLoader", "{\"name\": \"fun.safetensors\"}", &err),
        err);
    k->image = picture_of(0.1f, 0.009f, 40, 72);
    k->grey = picture_of(0.5f, 0, 48, 64);
}

static void steered_close(struct steered *k)
{
    call_release(&k->patch);
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
    call_give(x, "model_patch", scene_output(&k->patch));
    call_give(x, "vae", scene_output(&s->vae));
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
    struct value *model = scene_output(&s->unet);
    berth_err err = { 0 };
    for (size_t i = 0; i < times; i++) {
        assert_ok(steer_by(s, k, model, strength, inpaint, &x[i], &err), err);
        model = scene_output(&x[i]);
    }
    struct htensor *t = use_zimage(s, model);
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
    assert_true(form_same(plain, none)); /* cut into turns, the same bits */
    assert_true(form_same(one, again));
    assert_true(form_same(one, grey)); /* grey is what it sees where there is nothing */
    assert_false(form_same(one, plain));
    assert_false(form_same(two, one));
    struct htensor *const all[] = { plain, none, one, again, grey, two };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        htensor_unref(all[i]);
    steered_close(&k);
}

static void what_cannot_steer_is_refused(void **state)
{
    struct scene *s = *state;
    struct steered k;
    struct call x, other, area;
    berth_err err = { 0 };
    steered_open(s, &k);
    /* a network for another model */
    load_lumina(s, &other);
    assert_ok(steer_by(s, &k, scene_output(&other), 1, NULL, &x, &err), err);
    assert_fails(try_step(s, scene_output(&x), lumina, lumina, &err), err, BERTH_EUNSUPPORTED,
                 "Lumina2");
    call_release(&x);
    call_release(&other);
    /* areas, which would need a picture of their size */
    rig_call(&s->r, &area, "ConditioningSetArea",
             "{\"width\": 32, \"height\": 32, \"x\": 0, \"y\": 0, \"strength\": 1}");
    call_give(&area, "conditioning", s->prompt[0]);
    scene_run(&area);
    assert_ok(steer_by(s, &k, scene_output(&s->unet), 1, NULL, &x, &err), err);
    assert_fails(try_step(s, scene_output(&x), scene_output(&area), s->prompt[0], &err), err,
                 BERTH_EUNSUPPORTED, "areas");
    call_release(&area);
    call_release(&x);
    /* a file that holds none */
    err = (berth_err) { 0 };
    call_release(&k.patch);
    rig_preset(&s->r, "model_patches/vae.safetensors", "flux-tiny-vae");
    assert_ok(rig_run(&s->r, &k.patch, "ModelPatchLoader", "{\"name\": \"vae.safetensors\"}", &err),
              err);
    assert_fails(steer_by(s, &k, scene_output(&s->unet), 1, NULL, &x, &err), err,
                 BERTH_EUNSUPPORTED, "holds no network that can steer");
    call_release(&x);
    steered_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(other_prompts_are_refused),
        cmocka_unit_test(a_workflow_gives_a_picture),
        cmocka_unit_test(prompts_of_omni),
        cmocka_unit_test(what_omni_does_without),
        cmocka_unit_test(pictures_steer),
        cmocka_unit_test(what_cannot_steer_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
