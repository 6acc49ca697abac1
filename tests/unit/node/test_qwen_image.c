/* Qwen-Image through its nodes, on tiny models: every form of the loaders, noise levels, pictures
 * to look at, layers, whole workflows. Numbers are held to ComfyUI's in tests/golden. */
#include "support/loader_forms.h"
#include "support/nets.h"
#include "support/qwen_tokenizer.h"

#include "model/lm/presets.h"
#include "model/vae_wan/presets.h"
#include "node/compute.h"

#include <math.h>

#define DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"
#define WIDTH 192 /* of qwen-image-tiny's text */

struct scene {
    struct rig r;
    char tokenizers[512];
    const char *folder[1];
    struct call unet, clip, vae;
    struct value *prompt[2]; /* of different length */
};

static struct value *prompt(size_t tokens)
{
    const struct shape s = { 3, { 1, tokens, WIDTH } };
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < tokens * WIDTH; i++)
        t->data[i] = (float)((i * 7919 + tokens) % 1000) / 500.0f - 1.0f;
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static void write_tokenizer(struct scene *s)
{
    snprintf(s->tokenizers, sizeof s->tokenizers, "%s", qwen_tokenizer_write());
    s->folder[0] = s->tokenizers;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

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

static void load(struct scene *s, struct call *x, const char *cls, const char *input,
                 const char *file, const char *more)
{
    char inputs[160];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"%s\": \"%s\"%s}", input, file, more);
    assert_ok(rig_run(&s->r, x, cls, inputs, &err), err);
}

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { 0 };
    rig_open(&s.r, DEVICES);
    rig_preset(&s.r, "diffusion_models/qwen.safetensors", "qwen-image-tiny");
    rig_preset(&s.r, "diffusion_models/qwen.gguf", "qwen-image-tiny");
    rig_preset(&s.r, "diffusion_models/edit.safetensors", "qwen-edit-tiny");
    rig_preset(&s.r, "diffusion_models/edit.gguf", "qwen-edit-tiny");
    rig_preset(&s.r, "diffusion_models/layered.safetensors", "qwen-layered-tiny");
    rig_preset(&s.r, "vae/wan.safetensors", "wan-tiny-vae");
    rig_preset(&s.r, "vae/rgba.safetensors", "wan-rgba-tiny-vae");
    write_tokenizer(&s);
    write_text_encoder(&s);
    load(&s, &s.unet, "UNETLoader", "unet_name", "qwen.safetensors", "");
    load(&s, &s.clip, "CLIPLoader", "clip_name", "qwen.safetensors", ", \"type\": \"qwen_image\"");
    load(&s, &s.vae, "VAELoader", "vae_name", "wan.safetensors", "");
    s.prompt[0] = prompt(23);
    s.prompt[1] = prompt(9);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    call_release(&s->unet);
    call_release(&s->clip);
    call_release(&s->vae);
    value_unref(s->prompt[0]);
    value_unref(s->prompt[1]);
    node_assets_free(s->r.env.assets);
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

static const struct cond_entry *entry(const struct value *v)
{
    const struct conditioning *c = v->object.obj;
    assert_int_equal(c->n, 1);
    return &c->at[0];
}

/* Numbers from 0 to 1. */
static struct value *picture(size_t n, size_t h, size_t w, size_t c)
{
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(image_tensor(n, h, w, c, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)((i * 13 + i / 7) % 97) / 96.0f;
    return value_tensor(t);
}

/* Two steps over an empty latent of EmptySD3LatentImage, or of this one; the caller's reference. */
static struct htensor *sample(struct scene *s, struct value *model, struct value *positive,
                              struct value *negative, struct value *latent)
{
    struct call x, empty;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &empty, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 2}", &err),
              err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 2, \"cfg\": 3, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", model);
    call_give(&x, "positive", positive);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", latent ? latent : output(&empty));
    run(&x);
    struct htensor *t = htensor_ref(output(&x)->latent.samples);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(isfinite(t->data[i]));
    call_release(&x);
    call_release(&empty);
    return t;
}

static struct value *decode(struct scene *s, struct call *x, struct value *vae,
                            struct htensor *taken)
{
    struct latent l = { .samples = taken };
    struct value *v = value_latent(&l);
    rig_call(&s->r, x, "VAEDecode", "{}");
    call_give(x, "samples", v);
    call_give(x, "vae", vae);
    value_unref(v);
    run(x);
    return output(x);
}

/* With a latent to look at; the caller's reference. */
static struct value *looking(struct scene *s, struct value *cond, struct value *latent)
{
    struct call x;
    rig_call(&s->r, &x, "ReferenceLatent", "{}");
    call_give(&x, "conditioning", cond);
    if (latent)
        call_give(&x, "latent", latent);
    run(&x);
    struct value *v = value_ref(output(&x));
    call_release(&x);
    return v;
}

static struct value *encoded(struct scene *s, struct value *pixels)
{
    struct call x;
    rig_call(&s->r, &x, "VAEEncode", "{}");
    call_give(&x, "pixels", pixels);
    call_give(&x, "vae", output(&s->vae));
    run(&x);
    struct value *v = value_ref(output(&x));
    call_release(&x);
    return v;
}

/* ---- loaders ---- */

/* Two prompts, one of which looks at a picture. */
static struct htensor *use_model(void *user, struct value *model)
{
    struct scene *s = user;
    struct value *pixels = picture(1, 40, 56, 3), *latent = encoded(s, pixels);
    struct value *cond = looking(s, s->prompt[0], latent);
    struct htensor *t = sample(s, model, cond, s->prompt[1], NULL);
    value_unref(pixels);
    value_unref(latent);
    value_unref(cond);
    return t;
}

static struct htensor *use_vae(void *user, struct value *vae)
{
    struct scene *s = user;
    const struct shape z = { 5, { 2, 16, 1, 5, 7 } };
    struct htensor *t;
    struct call x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&z, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 31 % 101) / 50.0f - 1.0f;
    struct htensor *got = htensor_ref(decode(s, &x, vae, t)->tensor);
    assert_true(dim(got, 0) == 2 && dim(got, 1) == 40 && dim(got, 2) == 56 && dim(got, 3) == 3);
    call_release(&x);
    return got;
}

static struct htensor *use_clip(void *user, struct value *clip)
{
    struct scene *s = user;
    struct call x;
    rig_call(&s->r, &x, "CLIPTextEncode", "{\"text\": \"a (red:1.3) cat\"}");
    call_give(&x, "clip", clip);
    run(&x);
    struct htensor *t = htensor_ref(entry(output(&x))->cond);
    assert_int_equal(dim(t, 2), WIDTH);
    call_release(&x);
    return t;
}

static size_t forms_of(struct scene *s, const char *const *base, const char *input,
                       const char *model, form_use_fn *use)
{
    return loader_forms(&(struct loader_forms) { &s->r, base, input, model, "qwen_image", use, s });
}

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    static const char *const vaes[] = { "VAELoader", NULL };
    static const char *const texts[] = { "CLIPLoaderMultiGPU", "CLIPLoaderDisTorch2", NULL };
    struct scene *s = *state;
    assert_int_equal(forms_of(s, models, "unet_name", "qwen", use_model), 12);
    assert_int_equal(forms_of(s, models, "unet_name", "edit", use_model), 12);
    assert_true(forms_of(s, vaes, "vae_name", "wan", use_vae) >= 3);
    assert_true(forms_of(s, texts, "clip_name", "qwen", use_clip) >= 2);
}

/* ---- noise levels ---- */

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
    const float e = (float)exp(1.15);
    const float own[] = { 1, e / (e + 1.0f / 3.0f), e / (e + 1), e / (e + 3), 0 };
    const float shifted[] = { 1, 3.1f * .75f / (1 + 2.1f * .75f), 3.1f * .5f / (1 + 2.1f * .5f),
                              3.1f * .25f / (1 + 2.1f * .25f), 0 };
    struct scene *s = *state;
    struct call x;
    levels_are(s, output(&s->unet), own, ARRAY_LEN(own));
    rig_call(&s->r, &x, "ModelSamplingAuraFlow", "{\"shift\": 3.1}");
    call_give(&x, "model", output(&s->unet));
    run(&x);
    levels_are(s, output(&x), shifted, ARRAY_LEN(shifted));
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
    struct value *small = picture(1, 16, 24, 3), *large = picture(1, 40, 32, 3);
    struct value *a = encoded(s, small), *b = encoded(s, large);
    struct value *one = looking(s, s->prompt[0], a), *two = looking(s, one, b);
    struct value *none = looking(s, s->prompt[0], NULL);
    assert_int_equal(cond_refs(entry(none)->ref), 0);
    assert_int_equal(cond_refs(entry(one)->ref), 1);
    assert_int_equal(cond_refs(entry(two)->ref), 2);
    assert_ptr_equal(entry(two)->ref->latent, b->latent.samples); /* the last one */
    assert_ptr_equal(entry(two)->ref->before, entry(one)->ref);
    struct htensor *plain = sample(s, output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *looked = sample(s, output(&s->unet), two, s->prompt[1], NULL);
    assert_false(form_same(plain, looked));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        char inputs[96];
        snprintf(inputs, sizeof inputs, "{\"reference_latents_method\": \"%s\"}", row[i].method);
        rig_call(&s->r, &x, "FluxKontextMultiReferenceLatentMethod", inputs);
        call_give(&x, "conditioning", two);
        run(&x);
        assert_int_equal(entry(output(&x))->ref_method, row[i].is);
        struct htensor *got = sample(s, output(&s->unet), output(&x), s->prompt[1], NULL);
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
    struct value *pixels = picture(1, 16, 16, 3), *latent = encoded(s, pixels);
    struct value *cond = value_ref(s->prompt[0]);
    struct call x;
    berth_err err = { 0 };
    for (size_t i = 0; i < 64; i++) {
        struct value *more = looking(s, cond, latent);
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
    struct value *pixels = picture(1, 16, 16, 3), *latent = encoded(s, pixels);
    rig_preset(&s->r, "diffusion_models/lumina.safetensors", "lumina2-tiny");
    load(s, &x, "UNETLoader", "unet_name", "lumina.safetensors", "");
    assert_ok(htensor_zeros(&sh, &t, &err), err);
    assert_ok(conditioning_new(t, NULL, &c, &err), err);
    struct value *cond = value_object(&type_conditioning, c), *looks = looking(s, cond, latent);
    struct htensor *a = sample(s, output(&x), cond, cond, NULL);
    struct htensor *b = sample(s, output(&x), looks, cond, NULL);
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
    call_give(&x, "latent_image", output(&empty));
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EUNSUPPORTED, why);
    call_release(&x);
    call_release(&empty);
}

/* A network of DiffSynth's, whatever the size of its picture. */
static void a_picture_steers(void **state)
{
    static const char *const strength[] = { "1.0", "0.5", "0.0" };
    struct scene *s = *state;
    struct call patch, masked, x;
    struct value *image = picture(1, 70, 90, 3);
    struct htensor *plain = sample(s, output(&s->unet), s->prompt[0], s->prompt[1], NULL);
    struct htensor *got[ARRAY_LEN(strength)];
    write_control(s, "model_patches/canny.safetensors", 16);
    write_control(s, "model_patches/inpaint.safetensors", 17);
    load(s, &patch, "ModelPatchLoader", "name", "canny.safetensors", "");
    load(s, &masked, "ModelPatchLoader", "name", "inpaint.safetensors", "");
    for (size_t i = 0; i <= ARRAY_LEN(strength); i++) {
        const bool other = i == ARRAY_LEN(strength);
        char inputs[64];
        snprintf(inputs, sizeof inputs, "{\"strength\": %s}", strength[other ? 0 : i]);
        rig_call(&s->r, &x, "QwenImageDiffsynthControlnet", inputs);
        call_give(&x, "model", output(&s->unet));
        call_give(&x, "model_patch", output(other ? &masked : &patch));
        call_give(&x, "vae", output(&s->vae));
        call_give(&x, "image", image);
        run(&x);
        if (!other)
            got[i] = sample(s, output(&x), s->prompt[0], s->prompt[1], NULL);
        else /* with a mask beside the latent */
            steered_fails(s, output(&x), "over 17 channels");
        call_release(&x);
    }
    assert_true(form_same(got[2], plain) && !form_same(got[0], plain) &&
                !form_same(got[0], got[1]));
    for (size_t i = 0; i < ARRAY_LEN(strength); i++)
        htensor_unref(got[i]);
    htensor_unref(plain);
    value_unref(image);
    call_release(&patch);
    call_release(&masked);
}

/* ---- whole workflows ---- */

static void text(struct scene *s, struct call *x, const char *prompt_text)
{
    char inputs[120];
    snprintf(inputs, sizeof inputs, "{\"text\": \"%s\"}", prompt_text);
    rig_call(&s->r, x, "CLIPTextEncode", inputs);
    call_give(x, "clip", output(&s->clip));
    run(x);
}

/* <|im_start|>user\n ... <|im_end|>\n<|im_start|>assistant\n */
#define WORDS(prompt) (1 + 5 + sizeof(prompt) - 1 + 1 + 1 + 1 + 10)

static void a_workflow_gives_a_picture(void **state)
{
    struct scene *s = *state;
    struct call a, b, pixels;
    text(s, &a, "a cat");
    text(s, &b, "");
    assert_int_equal(dim(entry(output(&a))->cond, 1), WORDS("a cat"));
    assert_int_equal(dim(entry(output(&b))->cond, 1), WORDS(""));
    struct htensor *z = sample(s, output(&s->unet), output(&a), output(&b), NULL);
    assert_int_equal(z->shape.ndim, 5);
    const struct htensor *t = decode(s, &pixels, output(&s->vae), z)->tensor;
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
    load(s, &model, "UNETLoader", "unet_name", "layered.safetensors", "");
    load(s, &vae, "VAELoader", "vae_name", "rgba.safetensors", "");
    assert_ok(rig_run(&s->r, &empty, "EmptyQwenImageLayeredLatentImage",
                      "{\"width\": 64, \"height\": 48, \"layers\": 2, \"batch_size\": 1}", &err),
              err);
    const struct shape want = { 5, { 1, 16, 3, 6, 8 } };
    assert_true(shape_eq(&output(&empty)->latent.samples->shape, &want));
    struct value *photo = picture(1, 48, 64, 4), *latent = encoded(s, photo);
    struct value *cond = looking(s, s->prompt[0], latent);
    struct htensor *z = sample(s, output(&model), cond, s->prompt[1], output(&empty));
    assert_true(shape_eq(&z->shape, &want));
    /* one layer alone, as LatentCutToBatch gives them */
    const struct shape alone = { 5, { 1, 16, 1, 6, 8 } };
    struct htensor *layer;
    assert_ok(htensor_new(&alone, &layer, &err), err);
    for (size_t c = 0; c < 16; c++)
        memcpy(layer->data + c * 48, z->data + (c * 3 + 1) * 48, 48 * sizeof(float));
    const struct htensor *t = decode(s, &pixels, output(&vae), layer)->tensor;
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
    text(s, &plain, "a cat");
    rig_call(&s->r, &edit, "TextEncodeQwenImageEdit", "{\"prompt\": \"a cat\"}");
    call_give(&edit, "clip", output(&s->clip));
    run(&edit);
    assert_true(form_same(entry(output(&edit))->cond, entry(output(&plain))->cond));
    rig_call(&s->r, &plus, "TextEncodeQwenImageEditPlus", "{\"prompt\": \"a cat\"}");
    call_give(&plus, "clip", output(&s->clip));
    run(&plus);
    assert_int_equal(dim(entry(output(&plus))->cond, 1), dim(entry(output(&plain))->cond, 1));
    assert_false(form_same(entry(output(&plus))->cond, entry(output(&plain))->cond));
    assert_null(entry(output(&plus))->ref);
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
    struct value *photo = picture(1, 68, 100, 4);
    struct call vae, x, plain;
    const struct vae_wan_config narrow = { .dim = 4, .z_channels = 16, .colours = 3 };
    struct keys k = { 0 };
    keys_vae_wan(&k, &narrow); /* a megapixel takes a while */
    assert_int_equal(rename(keys_file(&k, "narrow", DT_F32, "safetensors", NULL),
                            rig_path(&s->r, "vae/narrow.safetensors")),
                     0);
    keys_release(&k);
    load(s, &vae, "VAELoader", "vae_name", "narrow.safetensors", "");
    rig_call(&s->r, &x, "TextEncodeQwenImageEdit", "{\"prompt\": \"a cat\"}");
    call_give(&x, "clip", output(&s->clip));
    call_give(&x, "vae", output(&vae));
    call_give(&x, "image", photo);
    run(&x);
    const struct cond_entry *e = entry(output(&x));
    assert_int_equal(dim(e->cond, 1), WORDS("a cat") + 2 + rows_of(1242, 844));
    assert_int_equal(cond_refs(e->ref), 1);
    const struct shape want = { 5, { 1, 16, 1, 844 / 8, 1242 / 8 } };
    assert_true(shape_eq(&e->ref->latent->shape, &want));
    /* without a VAE it is shown alone */
    rig_call(&s->r, &plain, "TextEncodeQwenImageEdit", "{\"prompt\": \"a cat\"}");
    call_give(&plain, "clip", output(&s->clip));
    call_give(&plain, "image", photo);
    run(&plain);
    assert_true(form_same(entry(output(&plain))->cond, e->cond));
    assert_null(entry(output(&plain))->ref);
    call_release(&x);
    call_release(&plain);
    call_release(&vae);
    value_unref(photo);
}

/* Each is called by the number of its input, and shown with the area of 384 x 384. */
static void a_prompt_shows_several_pictures(void **state)
{
    struct scene *s = *state;
    struct value *wide = picture(1, 68, 100, 3), *tall = picture(1, 90, 50, 3);
    struct call x[2];
    for (size_t i = 0; i < 2; i++) {
        rig_call(&s->r, &x[i], "TextEncodeQwenImageEditPlus", "{\"prompt\": \"a cat\"}");
        call_give(&x[i], "clip", output(&s->clip));
        call_give(&x[i], i ? "image2" : "image1", wide);
        call_give(&x[i], "image3", tall);
        run(&x[i]);
        assert_int_equal(dim(entry(output(&x[i]))->cond, 1), WORDS("Picture 1: Picture 3: a cat") +
                                                                 4 + rows_of(466, 317) +
                                                                 rows_of(286, 515));
    }
    assert_false(
        form_same(entry(output(&x[0]))->cond, entry(output(&x[1]))->cond)); /* "1:" or "2:" */
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
