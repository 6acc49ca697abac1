/* dit_scene: tiny models of a family of transformers over latents of pictures behind their nodes: a
 * scene with a tokenizer and three loaded models, the nodes of usual workflows over it, and every
 * form of a loader.
 *
 *     struct scene s = { .type = "krea2", .width = 1920 };
 *     rig_open(&s.r, DIT_DEVICES);
 *     scene_tokenizer(&s);
 *     scene_load(&s, &s.unet, "UNETLoader", "unet_name", "krea2.safetensors", "");
 *     ...
 *     scene_close(&s); */
#ifndef SUPPORT_DIT_SCENE_H
#define SUPPORT_DIT_SCENE_H

#include "support/loader_forms.h"
#include "support/nets.h"
#include "support/qwen_tokenizer.h"

#include "node/compute.h"

#include <math.h>

#define DIT_DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"

struct scene {
    struct rig r;
    const char *type; /* of CLIPLoader */
    size_t width;     /* of the model's text */
    char tokenizers[512];
    const char *folder[1];
    struct call unet, clip, vae;
    struct value *prompt[2]; /* of different length */
};

/* Numbers from -1 to 1. */
static inline struct value *scene_prompt(const struct scene *scene, size_t tokens)
{
    const size_t width = scene->width;
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

static inline void scene_tokenizer(struct scene *s)
{
    snprintf(s->tokenizers, sizeof s->tokenizers, "%s", qwen_tokenizer_write());
    s->folder[0] = s->tokenizers;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

static inline void scene_load(struct scene *s, struct call *x, const char *cls, const char *input,
                              const char *file, const char *more)
{
    char inputs[160];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"%s\": \"%s\"%s}", input, file, more);
    assert_ok(rig_run(&s->r, x, cls, inputs, &err), err);
}

static inline void scene_close(struct scene *s)
{
    call_release(&s->unet);
    call_release(&s->clip);
    call_release(&s->vae);
    value_unref(s->prompt[0]);
    value_unref(s->prompt[1]);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

/* ---- calls ---- */

static inline void scene_run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static inline struct value *scene_output(const struct call *x)
{
    assert_int_equal(x->out[0].n, 1);
    return x->out[0].at[0];
}

static const struct cond_entry *scene_entry(const struct value *v)
{
    const struct conditioning *c = v->object.obj;
    assert_int_equal(c->n, 1);
    return &c->at[0];
}

/* Numbers from 0 to 1. */
static inline struct value *scene_picture(size_t n, size_t h, size_t w, size_t c)
{
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(image_tensor(n, h, w, c, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)((i * 13 + i / 7) % 97) / 96.0f;
    return value_tensor(t);
}

/* Two steps over an empty latent of EmptySD3LatentImage, or of this one; the caller's reference. */
static inline struct htensor *scene_sample(struct scene *s, struct value *model,
                                           struct value *positive, struct value *negative,
                                           struct value *latent)
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
    call_give(&x, "latent_image", latent ? latent : scene_output(&empty));
    scene_run(&x);
    struct htensor *t = htensor_ref(scene_output(&x)->latent.samples);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(isfinite(t->data[i]));
    call_release(&x);
    call_release(&empty);
    return t;
}

static inline struct value *scene_decode(struct scene *s, struct call *x, struct value *vae,
                                         struct htensor *taken)
{
    struct latent l = { .samples = taken };
    struct value *v = value_latent(&l);
    rig_call(&s->r, x, "VAEDecode", "{}");
    call_give(x, "samples", v);
    call_give(x, "vae", vae);
    value_unref(v);
    scene_run(x);
    return scene_output(x);
}

/* With a latent to look at; the caller's reference. */
static inline struct value *scene_looking(struct scene *s, struct value *cond, struct value *latent)
{
    struct call x;
    rig_call(&s->r, &x, "ReferenceLatent", "{}");
    call_give(&x, "conditioning", cond);
    if (latent)
        call_give(&x, "latent", latent);
    scene_run(&x);
    struct value *v = value_ref(scene_output(&x));
    call_release(&x);
    return v;
}

static inline struct value *scene_encoded(struct scene *s, struct value *pixels)
{
    struct call x;
    rig_call(&s->r, &x, "VAEEncode", "{}");
    call_give(&x, "pixels", pixels);
    call_give(&x, "vae", scene_output(&s->vae));
    scene_run(&x);
    struct value *v = value_ref(scene_output(&x));
    call_release(&x);
    return v;
}

/* ---- loaders ---- */

static inline size_t scene_forms(struct scene *s, const char *const *base, const char *input,
                                 const char *model, form_use_fn *use)
{
    return loader_forms(&(struct loader_forms) { &s->r, base, input, model, s->type, use, s });
}

/* What is done with what a loader opened. */
static inline struct htensor *scene_use_vae(void *scene, struct value *vae)
{
    struct scene *s = scene;
    const struct shape z = { 5, { 2, 16, 1, 5, 7 } };
    struct htensor *t;
    struct call x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&z, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 31 % 101) / 50.0f - 1.0f;
    struct htensor *got = htensor_ref(scene_decode(s, &x, vae, t)->tensor);
    assert_true(dim(got, 0) == 2 && dim(got, 1) == 40 && dim(got, 2) == 56 && dim(got, 3) == 3);
    call_release(&x);
    return got;
}

static inline struct htensor *scene_use_clip(void *scene, struct value *clip)
{
    struct scene *s = scene;
    struct call x;
    rig_call(&s->r, &x, "CLIPTextEncode", "{\"text\": \"a (red:1.3) cat\"}");
    call_give(&x, "clip", clip);
    scene_run(&x);
    struct htensor *t = htensor_ref(scene_entry(scene_output(&x))->cond);
    assert_int_equal(dim(t, 2), s->width);
    call_release(&x);
    return t;
}

/* ---- noise levels, prompts ---- */

static inline void scene_levels(struct scene *s, struct value *model, const float *want, size_t n)
{
    struct call x;
    char inputs[96];
    snprintf(inputs, sizeof inputs, "{\"scheduler\": \"simple\", \"steps\": %zu, \"denoise\": 1}",
             n - 1);
    rig_call(&s->r, &x, "BasicScheduler", inputs);
    call_give(&x, "model", model);
    scene_run(&x);
    const struct htensor *t = scene_output(&x)->tensor;
    assert_int_equal(htensor_count(t), n);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(t->data[i] - want[i]) < 1e-6f);
    call_release(&x);
}

static inline void scene_text(struct scene *s, struct call *x, const char *prompt_text)
{
    char inputs[120];
    snprintf(inputs, sizeof inputs, "{\"text\": \"%s\"}", prompt_text);
    rig_call(&s->r, x, "CLIPTextEncode", inputs);
    call_give(x, "clip", scene_output(&s->clip));
    scene_run(x);
}

#endif
