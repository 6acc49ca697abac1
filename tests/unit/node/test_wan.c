/* Wan through its nodes, on tiny models: every form of the loaders, an all-in-one file, noise
 * levels, what pictures say of a video, merging and saving, whole workflows. Numbers are held to
 * ComfyUI's in tests/golden. */
#include "support/dit_scene.h"

#include "model/t5/presets.h"
#include "model/vae_wan/presets.h"
#include "model/wan/presets.h"
#include "text/stand_in.h"

#define WIDTH 64 /* of wan-tiny's text */
#define SMALL "\"width\": 64, \"height\": 48, \"length\": 9, \"batch_size\": 2"

static int setup(void **state)
{
    static struct scene s;
    berth_err err = { 0 };
    s = (struct scene) { .type = "wan", .width = WIDTH };
    rig_open(&s.r, DIT_DEVICES);
    rig_preset(&s.r, "diffusion_models/wan.safetensors", "wan-tiny");
    rig_preset(&s.r, "diffusion_models/wan.gguf", "wan-tiny");
    rig_preset(&s.r, "diffusion_models/i2v.safetensors", "wan22-i2v-tiny");
    rig_preset(&s.r, "diffusion_models/sees.safetensors", "wan-flf2v-tiny");
    rig_preset(&s.r, "diffusion_models/5b.safetensors", "wan22-ti2v-tiny");
    rig_preset(&s.r, "text_encoders/wan.safetensors", "umt5-tiny");
    rig_preset(&s.r, "text_encoders/wan.gguf", "umt5-tiny");
    rig_preset(&s.r, "vae/wan.safetensors", "wan-tiny-vae");
    rig_preset(&s.r, "vae/wan22.safetensors", "wan22-tiny-vae");
    scene_tokenizer(&s);
    assert_ok(stand_ins_write(s.tokenizers, &err), err);
    scene_load(&s, &s.unet, "UNETLoader", "unet_name", "wan.safetensors", "");
    scene_load(&s, &s.clip, "CLIPLoader", "clip_name", "wan.safetensors", ", \"type\": \"wan\"");
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

/* ---- loaders ---- */

/* Two steps over nine frames of an empty latent. */
static struct htensor *video(struct scene *s, struct value *model)
{
    struct call empty;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &empty, "EmptyHunyuanLatentVideo", "{" SMALL "}", &err), err);
    const struct shape want = { 5, { 2, 16, 3, 6, 8 } };
    assert_true(shape_eq(&scene_output(&empty)->latent.samples->shape, &want));
    struct htensor *t = scene_sample(s, model, s->prompt[0], s->prompt[1], scene_output(&empty));
    assert_true(shape_eq(&t->shape, &want));
    call_release(&empty);
    return t;
}

static struct htensor *use_model(void *scene, struct value *model)
{
    return video(scene, model);
}

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    static const char *const texts[] = { "CLIPLoaderMultiGPU", "CLIPLoaderDisTorch2",
                                         "CLIPLoaderGGUF", NULL };
    static const char *const vaes[] = { "VAELoader", NULL };
    struct scene *s = *state;
    assert_int_equal(scene_forms(s, models, "unet_name", "wan", use_model), 12);
    assert_true(scene_forms(s, texts, "clip_name", "wan", scene_use_clip) >= 3);
    assert_true(scene_forms(s, vaes, "vae_name", "wan", scene_use_vae) >= 3);
}

/* All networks in one file, as ComfyUI saves them. */
static void all_in_one_file(void **state)
{
    static const struct wan_config model = {
        .hidden = 128, .ffn = 160, .in = 16, .out = 16, .context_dim = 32, .depth = 2
    };
    static const struct t5_config text = { .vocab = 4096,
                                           .width = 32,
                                           .inner = 32,
                                           .ff = 48,
                                           .heads = 2,
                                           .buckets = 32,
                                           .layers = 2,
                                           .own_bias = true };
    static const struct vae_wan_config vae = { .dim = 4, .z_channels = 16, .colours = 3 };
    struct scene *s = *state;
    struct keys k = { 0 };
    struct call x, prompt, pixels;
    size_t mark = keys_enter(&k, "model.diffusion_model");
    keys_wan(&k, &model);
    keys_leave(&k, mark);
    mark = keys_enter(&k, "text_encoders.umt5xxl.transformer");
    keys_t5(&k, &text);
    keys_leave(&k, mark);
    mark = keys_enter(&k, "vae");
    keys_vae_wan(&k, &vae);
    keys_leave(&k, mark);
    assert_false(k.bad);
    assert_int_equal(rename(keys_file(&k, "all", DT_F16, "safetensors", NULL),
                            rig_path(&s->r, "checkpoints/wan.safetensors")),
                     0);
    keys_release(&k);
    scene_load(s, &x, "CheckpointLoaderSimple", "ckpt_name", "wan.safetensors", "");
    rig_call(&s->r, &prompt, "CLIPTextEncode", "{\"text\": \"a cat\"}");
    call_give(&prompt, "clip", x.out[1].at[0]);
    scene_run(&prompt);
    struct htensor *z =
        scene_sample(s, x.out[0].at[0], scene_output(&prompt), scene_output(&prompt), NULL);
    const struct htensor *t = scene_decode(s, &pixels, x.out[2].at[0], z)->tensor;
    assert_true(dim(t, 0) == 2 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 3);
    call_release(&x);
    call_release(&prompt);
    call_release(&pixels);
}

/* ---- noise levels ---- */

static void noise_levels(void **state)
{
    const float of8[] = { 1, 24.0f / 25, 16.0f / 18, 8.0f / 11, 0 };
    const float of3[] = { 1, 9.0f / 10, 6.0f / 8, 3.0f / 6, 0 };
    struct scene *s = *state;
    struct call x;
    scene_levels(s, scene_output(&s->unet), of8, ARRAY_LEN(of8));
    rig_call(&s->r, &x, "ModelSamplingSD3", "{\"shift\": 3.0}");
    call_give(&x, "model", scene_output(&s->unet));
    scene_run(&x);
    scene_levels(s, scene_output(&x), of3, ARRAY_LEN(of3));
    /* the same times go to the network: only the levels between differ */
    struct htensor *a = video(s, scene_output(&s->unet)), *b = video(s, scene_output(&x));
    assert_false(form_same(a, b));
    htensor_unref(a);
    htensor_unref(b);
    call_release(&x);
}

/* ---- pictures ---- */

/* What CLIP vision H would have seen. */
static struct value *seen(size_t tokens)
{
    const struct shape shape = { 3, { 1, tokens, 1280 } };
    struct vision_output *o = calloc(1, sizeof *o);
    berth_err err = { 0 };
    assert_non_null(o);
    assert_ok(htensor_new(&shape, &o->penultimate, &err), err);
    for (size_t i = 0; i < htensor_count(o->penultimate); i++)
        o->penultimate->data[i] = (float)((i * 31 + tokens) % 200) / 100.0f - 1.0f;
    o->last = htensor_ref(o->penultimate);
    o->embeds = htensor_ref(o->penultimate);
    return value_object(&type_vision_output, o);
}

struct told { /* what a node is given; NULL: nothing */
    const char *input;
    struct value *v;
};

/* Runs a node over the scene's prompts and VAE. */
static void tell(struct scene *s, struct call *x, const char *cls, const char *inputs,
                 struct value *vae, const struct told *told, size_t n)
{
    rig_call(&s->r, x, cls, inputs);
    if (node_input_index(x->c.cls, "positive") != SIZE_MAX) {
        call_give(x, "positive", s->prompt[0]);
        call_give(x, "negative", s->prompt[1]);
    }
    call_give(x, "vae", vae);
    for (size_t i = 0; i < n; i++)
        call_give(x, told[i].input, told[i].v);
    scene_run(x);
}

/* A video of what such a call gave, by this model; the caller's reference. */
static struct htensor *sampled(struct scene *s, const char *model, const struct call *x)
{
    struct call unet;
    scene_load(s, &unet, "UNETLoader", "unet_name", model, "");
    struct htensor *t =
        scene_sample(s, scene_output(&unet), x->out[0].at[0], x->out[1].at[0], x->out[2].at[0]);
    call_release(&unet);
    return t;
}

static const struct cond_entry *said(const struct call *x, size_t output)
{
    return scene_entry(x->out[output].at[0]);
}

static void a_start_is_said(void **state)
{
    struct scene *s = *state;
    struct value *photo = scene_picture(5, 40, 40, 4), *vision = seen(7);
    struct value *vae = scene_output(&s->vae);
    const struct told told[] = { { "start_image", photo }, { "clip_vision_output", vision } };
    struct call none, start, both;
    tell(s, &none, "WanImageToVideo", "{" SMALL "}", vae, NULL, 0);
    tell(s, &start, "WanImageToVideo", "{" SMALL "}", vae, told, 1);
    tell(s, &both, "WanImageToVideo", "{" SMALL "}", vae, told, 2);
    assert_null(said(&none, 0)->concat_latent);
    for (size_t i = 0; i < 2; i++) {
        const struct cond_entry *e = said(&both, i);
        const struct shape latent = { 5, { 1, 16, 3, 6, 8 } }, mask = { 5, { 1, 1, 3, 6, 8 } };
        assert_true(shape_eq(&e->concat_latent->shape, &latent));
        assert_true(shape_eq(&e->concat_mask->shape, &mask));
        for (size_t k = 0; k < 3 * 48; k++) /* five frames are two latent ones */
            assert_true(e->concat_mask->data[k] == (k < 2 * 48 ? 0.0f : 1.0f));
        assert_int_equal(dim(e->extra[EXTRA_SEEN], 1), 7);
    }
    const struct shape empty = { 5, { 2, 16, 3, 6, 8 } };
    assert_true(shape_eq(&both.out[2].at[0]->latent.samples->shape, &empty));
    struct htensor *a = sampled(s, "i2v.safetensors", &none);
    struct htensor *b = sampled(s, "i2v.safetensors", &start);
    struct htensor *c = sampled(s, "i2v.safetensors", &both);
    struct htensor *d = sampled(s, "sees.safetensors", &start);
    struct htensor *e = sampled(s, "sees.safetensors", &both);
    assert_true(!form_same(a, b) && form_same(b, c) && !form_same(d, e));
    struct htensor *const all[] = { a, b, c, d, e };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        htensor_unref(all[i]);
    call_release(&none), call_release(&start), call_release(&both);
    value_unref(photo), value_unref(vision);
}

/* Known frames at both ends, each pixel frame a channel of the mask. */
static void both_ends_are_said(void **state)
{
    struct scene *s = *state;
    struct value *first = scene_picture(1, 48, 64, 3), *last = scene_picture(2, 24, 32, 3);
    struct value *a = seen(4), *b = seen(5);
    const struct told told[] = { { "start_image", first },
                                 { "end_image", last },
                                 { "clip_vision_start_image", a },
                                 { "clip_vision_end_image", b } };
    struct call x;
    tell(s, &x, "WanFirstLastFrameToVideo", "{" SMALL "}", scene_output(&s->vae), told, 4);
    const struct cond_entry *e = said(&x, 1);
    const struct shape mask = { 5, { 1, 4, 3, 6, 8 } };
    assert_true(shape_eq(&e->concat_mask->shape, &mask));
    for (size_t c = 0; c < 4; c++)
        for (size_t t = 0; t < 3; t++) /* 12 of pixels: 4 stand for the first, 2 are the last */
            assert_true(e->concat_mask->data[(c * 3 + t) * 48] ==
                        (4 * t + c < 4 || 4 * t + c >= 10 ? 0.0f : 1.0f));
    assert_int_equal(dim(e->extra[EXTRA_SEEN], 1), 9);
    struct htensor *t = sampled(s, "sees.safetensors", &x);
    htensor_unref(t);
    call_release(&x);
    const struct told fun[] = { { "start_image", first }, { "clip_vision_output", a } };
    tell(s, &x, "WanFunInpaintToVideo", "{" SMALL "}", scene_output(&s->vae), fun, 2);
    assert_int_equal(dim(said(&x, 0)->extra[EXTRA_SEEN], 1), 4);
    assert_true(said(&x, 0)->concat_mask->data[0] == 0 && said(&x, 0)->concat_mask->data[48] == 1);
    call_release(&x);
    value_unref(first), value_unref(last), value_unref(a), value_unref(b);
}

/* What is followed stands in front of where it starts; without either there is nothing. */
static void fun_control_is_said(void **state)
{
    struct scene *s = *state;
    struct value *clip = scene_picture(9, 48, 64, 3), *one = scene_picture(1, 48, 64, 3);
    struct value *vae = scene_output(&s->vae);
    const struct told told[] = { { "control_video", clip }, { "start_image", one } };
    const struct told told22[] = { { "control_video", clip }, { "ref_image", one } };
    struct htensor *nothing;
    struct call x;
    berth_err err = { 0 };
    const struct shape two = { 5, { 2, 32, 3, 6, 8 } };
    assert_ok(htensor_zeros(&two, &nothing, &err), err);
    tell(s, &x, "WanFunControlToVideo", "{" SMALL "}", vae, told, 0);
    const struct htensor *t = said(&x, 0)->concat_latent;
    assert_true(shape_eq(&t->shape, &two) && !said(&x, 0)->concat_mask);
    assert_memory_equal(t->data, t->data + 16 * 144, 16 * 144 * sizeof *t->data);
    const float first = t->data[0];
    call_release(&x);
    tell(s, &x, "WanFunControlToVideo", "{" SMALL "}", vae, told, 2);
    t = said(&x, 0)->concat_latent;
    assert_true(t->data[0] != first && t->data[16 * 144] != first);
    assert_true(t->data[16 * 144 + 48] == first); /* the second frame of where it starts */
    call_release(&x);
    tell(s, &x, "Wan22FunControlToVideo", "{" SMALL "}", vae, told22, 2);
    assert_int_equal(said(&x, 1)->concat_mask_index, 16);
    assert_int_equal(cond_refs(said(&x, 1)->ref), 1);
    for (size_t i = 0; i < htensor_count(said(&x, 1)->concat_mask); i++)
        assert_true(said(&x, 1)->concat_mask->data[i] == 1);
    call_release(&x);
    htensor_unref(nothing);
    value_unref(clip), value_unref(one);
}

/* The first frames of a 5B's latent are kept to the bit. */
static void a_start_is_kept(void **state)
{
    struct scene *s = *state;
    struct value *photo = scene_picture(1, 64, 96, 3);
    const struct told told[] = { { "start_image", photo } };
    struct call vae, x, unet, plain, pixels;
    scene_load(s, &vae, "VAELoader", "vae_name", "wan22.safetensors", "");
    const char *size = "{\"width\": 96, \"height\": 64, \"length\": 9, \"batch_size\": 2}";
    tell(s, &plain, "Wan22ImageToVideoLatent", size, scene_output(&vae), NULL, 0);
    tell(s, &x, "Wan22ImageToVideoLatent", size, scene_output(&vae), told, 1);
    const struct latent *l = &scene_output(&x)->latent;
    const struct shape want = { 5, { 2, 48, 3, 4, 6 } }, mask = { 5, { 2, 1, 3, 4, 6 } };
    assert_true(shape_eq(&l->samples->shape, &want) && shape_eq(&l->noise_mask->shape, &mask));
    assert_true(!scene_output(&plain)->latent.noise_mask);
    assert_true(l->noise_mask->data[0] == 0 && l->noise_mask->data[24] == 1);
    scene_load(s, &unet, "UNETLoader", "unet_name", "5b.safetensors", "");
    struct htensor *t =
        scene_sample(s, scene_output(&unet), s->prompt[0], s->prompt[1], scene_output(&x));
    for (size_t k = 0; k < 2 * 48; k++)
        for (size_t i = 0; i < 72; i++) {
            const float kept = l->samples->data[k * 72 + i], got = t->data[k * 72 + i];
            if (i < 24)
                assert_true(fabsf(kept - got) < 1e-5f);
        }
    const struct htensor *image = scene_decode(s, &pixels, scene_output(&vae), t)->tensor;
    assert_int_equal(dim(image, 0), 18);
    call_release(&pixels);
    call_release(&x), call_release(&unet), call_release(&plain), call_release(&vae);
    value_unref(photo);
}

/* ---- what is refused ---- */

static void sampling_fails(struct scene *s, const char *model, struct call *x, const char *why)
{
    struct call unet, k;
    berth_err err = { 0 };
    scene_load(s, &unet, "UNETLoader", "unet_name", model, "");
    rig_call(&s->r, &k, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&k, "model", scene_output(&unet));
    call_give(&k, "positive", x->out[0].at[0]);
    call_give(&k, "negative", x->out[1].at[0]);
    call_give(&k, "latent_image", x->out[2].at[0]);
    assert_fails(k.c.cls->run(&k.c, &err), err, BERTH_EINVAL, why);
    call_release(&k);
    call_release(&unet);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct scene *s = *state;
    struct value *clip = scene_picture(9, 48, 64, 3), *flat = scene_picture(1, 48, 64, 1);
    struct value *narrow = seen(3);
    const struct told told[] = { { "control_video", clip } };
    struct call x, k;
    berth_err err = { 0 };
    /* 32 channels beside the latent of a model that takes 20 */
    tell(s, &x, "WanFunControlToVideo", "{" SMALL "}", scene_output(&s->vae), told, 1);
    sampling_fails(s, "i2v.safetensors", &x,
                   "latents of 32 channels beside the one that is made; Wan takes 20");
    call_release(&x);
    rig_call(&s->r, &x, "WanImageToVideo", "{" SMALL "}");
    call_give(&x, "positive", s->prompt[0]);
    call_give(&x, "negative", s->prompt[1]);
    call_give(&x, "vae", scene_output(&s->vae));
    call_give(&x, "start_image", flat);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "pictures of 1 channels");
    call_release(&x);
    rig_call(&s->r, &k, "Wan22ImageToVideoLatent",
             "{\"width\": 64, \"height\": 64, \"length\": 5}");
    call_give(&k, "vae", scene_output(&s->vae)); /* Wan 2.1's */
    call_give(&k, "start_image", clip);
    assert_fails(k.c.cls->run(&k.c, &err), err, BERTH_EINVAL, "Wan 2.2's of 5B is wanted");
    call_release(&k);
    value_unref(clip), value_unref(flat), value_unref(narrow);
}

/* ---- merging, saving ---- */

static void models_are_merged_and_saved(void **state)
{
    struct scene *s = *state;
    struct call other, x, loaded;
    char path[1024];
    berth_err err = { 0 };
    preset_write("wan-tiny", DT_F8_E4M3, rig_path(&s->r, "diffusion_models/coarse.safetensors"));
    scene_load(s, &other, "UNETLoader", "unet_name", "coarse.safetensors", "");
    rig_call(&s->r, &x, "ModelMergeWAN2_1", "{}");
    for (size_t i = 0; i < x.c.cls->ins; i++)
        if (strncmp(x.c.cls->in[i].name, "model", 5))
            assert_ok(values_add(&x.in[i],
                                 value_float(strcmp(x.c.cls->in[i].name, "blocks.0.") ? 1 : 0),
                                 &err),
                      err);
    call_give(&x, "model1", scene_output(&s->unet));
    call_give(&x, "model2", scene_output(&other));
    scene_run(&x);
    struct htensor *a = video(s, scene_output(&s->unet)), *b = video(s, scene_output(&other));
    struct htensor *merged = video(s, scene_output(&x));
    assert_false(form_same(a, b) || form_same(merged, a) || form_same(merged, b));
    call_release(&x);
    rig_call(&s->r, &x, "ModelSave", "{\"filename_prefix\": \"wan\"}");
    call_give(&x, "model", scene_output(&s->unet));
    scene_run(&x);
    call_release(&x);
    snprintf(path, sizeof path, "%s/output/wan_00001_.safetensors", s->r.base);
    assert_int_equal(rename(path, rig_path(&s->r, "diffusion_models/saved.safetensors")), 0);
    scene_load(s, &loaded, "UNETLoader", "unet_name", "saved.safetensors", "");
    struct htensor *same = video(s, scene_output(&loaded));
    assert_true(form_same(a, same));
    htensor_unref(a), htensor_unref(b), htensor_unref(merged), htensor_unref(same);
    call_release(&loaded);
    call_release(&other);
}

/* ---- a whole workflow ---- */

static void a_workflow_gives_a_video(void **state)
{
    struct scene *s = *state;
    struct call a, b, empty, pixels;
    berth_err err = { 0 };
    scene_text(s, &a, "a (red:1.3) cat");
    scene_text(s, &b, "");
    const struct htensor *cond = scene_entry(scene_output(&b))->cond;
    assert_true(dim(cond, 1) == 512 && dim(cond, 2) == WIDTH);
    for (size_t i = WIDTH; i < 512 * WIDTH; i++) /* behind the end of an empty prompt */
        assert_true(cond->data[i] == 0);
    assert_ok(rig_run(&s->r, &empty, "EmptyHunyuanLatentVideo", "{" SMALL "}", &err), err);
    struct htensor *z = scene_sample(s, scene_output(&s->unet), scene_output(&a), scene_output(&b),
                                     scene_output(&empty));
    const struct htensor *t = scene_decode(s, &pixels, scene_output(&s->vae), z)->tensor;
    assert_true(dim(t, 0) == 18 && dim(t, 1) == 48 && dim(t, 2) == 64 && dim(t, 3) == 3);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(t->data[i] >= 0 && t->data[i] <= 1);
    call_release(&a), call_release(&b), call_release(&empty), call_release(&pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(all_in_one_file),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(a_start_is_said),
        cmocka_unit_test(both_ends_are_said),
        cmocka_unit_test(fun_control_is_said),
        cmocka_unit_test(a_start_is_kept),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(models_are_merged_and_saved),
        cmocka_unit_test(a_workflow_gives_a_video),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
