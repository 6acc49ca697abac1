/* Flux.2 through its nodes, on tiny models: every form of the loaders, checkpoints that have all,
 * its text encoders, noise levels, guidance, what is kept of pictures to look at. Numbers are held
 * to ComfyUI's in tests/golden. */
#include "support/loader_forms.h"
#include "support/nets.h"
#include "support/qwen_tokenizer.h"

#include "base/file.h"
#include "model/flux2/presets.h"
#include "model/lm/presets.h"
#include "model/vae_kl/presets.h"
#include "node/compute.h"

#include <math.h>

#define DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"
#define WIDTH 96 /* of the tiny models' text */

struct scene {
    struct rig r;
    char tokenizers[512];
    const char *folder[1];
    struct call klein, dev, clip, vae;
    struct value *cat, *nothing; /* prompts of the tiny text encoder */
};

static struct value *prompt(struct scene *s, struct value *clip, const char *text);

static struct value *output(const struct call *x)
{
    assert_int_equal(x->out[0].n, 1);
    return x->out[0].at[0];
}

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void load(struct scene *s, struct call *x, const char *cls, const char *input,
                 const char *file, const char *more)
{
    char inputs[160];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"%s\": \"%s\"%s}", input, file, more);
    assert_ok(rig_run(&s->r, x, cls, inputs, &err), err);
}

#define FLUX2_TYPE ", \"type\": \"flux2\""

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { 0 };
    rig_open(&s.r, DEVICES);
    rig_preset(&s.r, "diffusion_models/klein.safetensors", "flux2-klein-tiny");
    rig_preset(&s.r, "diffusion_models/klein.gguf", "flux2-klein-tiny");
    rig_preset(&s.r, "diffusion_models/dev.safetensors", "flux2-tiny");
    rig_preset(&s.r, "diffusion_models/dev.gguf", "flux2-tiny");
    rig_preset(&s.r, "text_encoders/qwen.safetensors", "qwen3-klein-tiny");
    rig_preset(&s.r, "vae/flux2.safetensors", "flux2-tiny-vae");
    snprintf(s.tokenizers, sizeof s.tokenizers, "%s", qwen_tokenizer_write());
    s.folder[0] = s.tokenizers;
    s.r.env.tokenizers = s.folder;
    s.r.env.tokenizers_n = 1;
    s.r.env.assets = node_assets_new();
    assert_non_null(s.r.env.assets);
    load(&s, &s.klein, "UNETLoader", "unet_name", "klein.safetensors", "");
    load(&s, &s.dev, "UNETLoader", "unet_name", "dev.safetensors", "");
    load(&s, &s.clip, "CLIPLoader", "clip_name", "qwen.safetensors", FLUX2_TYPE);
    load(&s, &s.vae, "VAELoader", "vae_name", "flux2.safetensors", "");
    s.cat = prompt(&s, output(&s.clip), "a cat");
    s.nothing = prompt(&s, output(&s.clip), "");
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    struct call *const all[] = { &s->klein, &s->dev, &s->clip, &s->vae };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    value_unref(s->cat);
    value_unref(s->nothing);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
    return 0;
}

/* ---- calls ---- */

static struct value *prompt(struct scene *s, struct value *clip, const char *text)
{
    struct call x;
    char inputs[128];
    snprintf(inputs, sizeof inputs, "{\"text\": \"%s\"}", text);
    rig_call(&s->r, &x, "CLIPTextEncode", inputs);
    call_give(&x, "clip", clip);
    run(&x);
    struct value *v = value_ref(output(&x));
    call_release(&x);
    return v;
}

/* Through a node of one input, in its place. */
static struct value *through(struct scene *s, struct value *taken, const char *cls,
                             const char *input, const char *inputs)
{
    struct call x;
    rig_call(&s->r, &x, cls, inputs);
    call_give(&x, input, taken);
    run(&x);
    struct value *v = value_ref(output(&x));
    call_release(&x);
    value_unref(taken);
    return v;
}

static struct value *noise(size_t n, size_t h, size_t w)
{
    const struct shape z = { 4, { n, 128, h, w } };
    struct htensor *t;
    struct latent l = { 0 };
    berth_err err = { 0 };
    assert_ok(htensor_new(&z, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 31 % 101) / 50.0f - 1.0f;
    l.samples = t;
    return value_latent(&l);
}

static struct value *looking(struct scene *s, struct value *taken, size_t h, size_t w)
{
    struct call x;
    struct value *l = noise(1, h, w);
    rig_call(&s->r, &x, "ReferenceLatent", "{}");
    call_give(&x, "conditioning", taken);
    call_give(&x, "latent", l);
    run(&x);
    struct value *v = value_ref(output(&x));
    call_release(&x);
    value_unref(l);
    value_unref(taken);
    return v;
}

/* Two steps; takes the prompts. */
static struct htensor *sample(struct scene *s, struct value *model, struct value *positive,
                              struct value *negative)
{
    struct call x, empty;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &empty, "EmptyFlux2LatentImage",
                      "{\"width\": 80, \"height\": 64, \"batch_size\": 1}", &err),
              err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 2, \"cfg\": 3, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", model);
    call_give(&x, "positive", positive);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", output(&empty));
    run(&x);
    struct htensor *t = htensor_ref(output(&x)->latent.samples);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(isfinite(t->data[i]));
    call_release(&x);
    call_release(&empty);
    value_unref(positive);
    value_unref(negative);
    return t;
}

/* ---- loaders ---- */

/* Two prompts, one of which looks at pictures. */
static struct htensor *use_model(void *user, struct value *model)
{
    struct scene *s = user;
    return sample(s, model, looking(s, value_ref(s->cat), 3, 2), value_ref(s->nothing));
}

static struct htensor *use_vae(void *user, struct value *vae)
{
    struct scene *s = user;
    struct call decoded, encoded;
    struct value *z = noise(2, 3, 4);
    rig_call(&s->r, &decoded, "VAEDecode", "{}");
    call_give(&decoded, "samples", z);
    call_give(&decoded, "vae", vae);
    run(&decoded);
    const struct htensor *seen = output(&decoded)->tensor;
    assert_true(dim(seen, 0) == 2 && dim(seen, 1) == 48 && dim(seen, 2) == 64 && dim(seen, 3) == 3);
    rig_call(&s->r, &encoded, "VAEEncode", "{}");
    call_give(&encoded, "pixels", output(&decoded));
    call_give(&encoded, "vae", vae);
    run(&encoded);
    struct htensor *t = htensor_ref(output(&encoded)->latent.samples);
    assert_true(shape_eq(&t->shape, &z->latent.samples->shape));
    call_release(&decoded);
    call_release(&encoded);
    value_unref(z);
    return t;
}

static struct htensor *use_clip(void *user, struct value *clip)
{
    struct value *v = prompt(user, clip, "a (red:1.3) cat");
    const struct conditioning *c = v->object.obj;
    struct htensor *t = htensor_ref(c->at[0].cond);
    assert_int_equal(dim(t, 1), 512);
    assert_int_equal(dim(t, 2), WIDTH);
    value_unref(v);
    return t;
}

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    static const char *const vaes[] = { "VAELoader", NULL };
    static const char *const texts[] = { "CLIPLoaderMultiGPU", "CLIPLoaderDisTorch2", NULL };
    struct scene *s = *state;
    struct loader_forms f = { &s->r, models, "unet_name", "klein", NULL, use_model, s };
    assert_int_equal(loader_forms(&f), 12);
    f.model = "dev";
    assert_int_equal(loader_forms(&f), 12);
    f = (struct loader_forms) { &s->r, vaes, "vae_name", "flux2", NULL, use_vae, s };
    assert_true(loader_forms(&f) >= 3);
    f = (struct loader_forms) { &s->r, texts, "clip_name", "qwen", "flux2", use_clip, s };
    assert_true(loader_forms(&f) >= 2);
}

/* ---- a checkpoint that has all ---- */

static const struct flux2_config small = {
    .channels = 128, .hidden = 64, .head_dim = 32, .context_dim = 96, .depth = 1, .depth_single = 1
};
static const struct lm_config text = { .vocab = 151656,
                                       .width = 32,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 16,
                                       .mlp = 48,
                                       .layers = 28,
                                       .qk_norm = true };
static const struct vae_config vae = { .ch = 32,
                                       .z_channels = 32,
                                       .levels = 4,
                                       .mult = { 1, 1, 1, 1 },
                                       .res_blocks = 1,
                                       .quant_convs = true,
                                       .packed = true };

static bool in_checkpoint(const void *user, const struct key *key, char *name, size_t cap,
                          struct shape *s)
{
    const char *lead = !strncmp(key->name, "model.", 6) ? "text_encoders.qwen3_4b.transformer."
                       : !strncmp(key->name, "encoder.", 8) || !strncmp(key->name, "decoder.", 8) ||
                               !strncmp(key->name, "bn.", 3) || strstr(key->name, "quant_conv")
                           ? "vae."
                           : "model.diffusion_model.";
    (void)user, (void)s;
    snprintf(name, cap, "%s%s", lead, key->name);
    return true;
}

static void write_keys(struct scene *s, const struct keys *k, const char *name)
{
    assert_false(k->bad);
    assert_int_equal(
        rename(keys_file(k, "part", DT_F32, "safetensors", NULL), rig_path(&s->r, name)), 0);
}

static void a_checkpoint_has_all(void **state)
{
    struct scene *s = *state;
    struct keys all = { 0 }, one = { 0 };
    struct call ckpt, unet, clip, codec;
    keys_flux2(&all, &small);
    keys_vae(&all, &vae);
    keys_lm(&all, &text);
    assert_int_equal(rename(keys_file_changed(&all, "all", in_checkpoint, NULL),
                            rig_path(&s->r, "checkpoints/all.safetensors")),
                     0);
    keys_release(&all);
    keys_flux2(&one, &small);
    write_keys(s, &one, "diffusion_models/one.safetensors");
    keys_release(&one);
    keys_vae(&one, &vae);
    write_keys(s, &one, "vae/one.safetensors");
    keys_release(&one);
    keys_lm(&one, &text);
    write_keys(s, &one, "text_encoders/one.safetensors");
    keys_release(&one);
    load(s, &ckpt, "CheckpointLoaderSimple", "ckpt_name", "all.safetensors", "");
    load(s, &unet, "UNETLoader", "unet_name", "one.safetensors", "");
    load(s, &clip, "CLIPLoader", "clip_name", "one.safetensors", FLUX2_TYPE);
    load(s, &codec, "VAELoader", "vae_name", "one.safetensors", "");
    struct value *const model[2] = { ckpt.out[0].at[0], output(&unet) },
                        *const texts[2] = { ckpt.out[1].at[0], output(&clip) },
                        *const vaes[2] = { ckpt.out[2].at[0], output(&codec) };
    struct htensor *latent[2], *seen[2];
    for (size_t i = 0; i < 2; i++) {
        latent[i] = sample(s, model[i], prompt(s, texts[1], "a boat"), prompt(s, texts[1], ""));
        seen[i] = use_vae(s, vaes[i]);
    }
    assert_true(form_same(latent[0], latent[1]) && form_same(seen[0], seen[1]));
    /* The same encoder, as whichever model uses it: here the checkpoint decides. */
    struct value *a = prompt(s, texts[0], "a boat"), *b = prompt(s, texts[1], "a boat");
    const struct conditioning *x = a->object.obj, *y = b->object.obj;
    assert_true(form_same(x->at[0].cond, y->at[0].cond));
    value_unref(a), value_unref(b);
    for (size_t i = 0; i < 2; i++)
        htensor_unref(latent[i]), htensor_unref(seen[i]);
    struct call *const calls[] = { &ckpt, &unet, &clip, &codec };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        call_release(calls[i]);
}

/* ---- Mistral, whole or without its last layers, with its tokenizer in the file ---- */

#define TEKKEN "tests/golden/text/data/tiny/tekken/tekken.json"

struct mistral {
    const struct keys *k;
    const char *tekken;
};

static berth_status mistral_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                 berth_err *err)
{
    const struct mistral *m = user;
    (void)err;
    if (i == m->k->n) {
        memcpy(dst, m->tekken + off, n);
        return BERTH_OK;
    }
    const struct key *k = &m->k->at[i];
    synth_fill(k->name, k->name_len, &k->shape, off / sizeof(float), n / sizeof(float), dst);
    return BERTH_OK;
}

static void write_mistral(struct scene *s, int layers, const char *path)
{
    struct lm_config c = { .vocab = 131072,
                           .width = 32,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 128,
                           .mlp = 96,
                           .layers = layers,
                           .no_norm = layers < 40 };
    struct keys k = { 0 };
    char *tekken;
    size_t n;
    berth_err err = { 0 };
    keys_lm(&k, &c);
    assert_ok(file_read_all(BERTH_SOURCE_DIR "/" TEKKEN, 1 << 20, &tekken, &n, &err), err);
    struct weights_spec *spec = calloc(k.n + 1, sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < k.n; i++)
        spec[i] = (struct weights_spec) { k.at[i].name, DT_F32, k.at[i].shape };
    spec[k.n] = (struct weights_spec) { "tekken_model", DT_U8, { 1, { n } } };
    struct mistral m = { &k, tekken };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = rig_path(&s->r, path),
                                       .spec = spec,
                                       .count = k.n + 1,
                                       .fill = mistral_fill,
                                       .user = &m };
    assert_ok(weights_write(&args, &err), err);
    keys_release(&k);
    free(spec);
    free(tekken);
}

/* Layers behind the last tap do not count. */
static void mistral_is_tapped(void **state)
{
    struct scene *s = *state;
    struct call whole, pruned;
    write_mistral(s, 40, "text_encoders/whole.safetensors");
    write_mistral(s, 30, "text_encoders/pruned.safetensors");
    load(s, &whole, "CLIPLoader", "clip_name", "whole.safetensors", FLUX2_TYPE);
    load(s, &pruned, "CLIPLoader", "clip_name", "pruned.safetensors", FLUX2_TYPE);
    struct value *a = prompt(s, output(&whole), "a cat"), *b = prompt(s, output(&pruned), "a cat");
    const struct conditioning *x = a->object.obj, *y = b->object.obj;
    assert_int_equal(dim(x->at[0].cond, 2), WIDTH);
    assert_true(dim(x->at[0].cond, 1) > 10 && dim(x->at[0].cond, 1) < 512); /* not padded */
    assert_true(form_same(x->at[0].cond, y->at[0].cond));
    struct htensor *t = sample(s, output(&s->dev), a, b);
    htensor_unref(t);
    call_release(&whole);
    call_release(&pruned);
}

/* ---- settings ---- */

static void noise_levels(void **state)
{
    static const float want[] = { 1, 0.957654f, 0.882881f, 0.715325f, 0 };
    struct scene *s = *state;
    struct call x;
    rig_call(&s->r, &x, "BasicScheduler", "{\"scheduler\": \"simple\", \"steps\": 4}");
    call_give(&x, "model", output(&s->klein));
    run(&x);
    const struct htensor *t = output(&x)->tensor;
    assert_int_equal(htensor_count(t), ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_true(fabsf(t->data[i] - want[i]) < 1e-6f);
    call_release(&x);
}

/* dev embeds a guidance, 3.5 unless something is said; klein has none. */
static void guidance(void **state)
{
    static const struct {
        const char *cls, *inputs;
        bool differs;
    } row[] = { { "FluxGuidance", "{\"guidance\": 3.5}", false },
                { "FluxGuidance", "{\"guidance\": 4}", true },
                { "FluxDisableGuidance", "{}", true } };
    struct scene *s = *state;
    for (int dev = 0; dev < 2; dev++) {
        struct value *model = output(dev ? &s->dev : &s->klein);
        struct htensor *plain = sample(s, model, value_ref(s->cat), value_ref(s->nothing));
        for (size_t i = 0; i < ARRAY_LEN(row); i++) {
            struct value *a =
                through(s, value_ref(s->cat), row[i].cls, "conditioning", row[i].inputs);
            struct htensor *t = sample(s, model, a, value_ref(s->nothing));
            assert_int_equal(form_same(t, plain), !(dev && row[i].differs));
            htensor_unref(t);
        }
        htensor_unref(plain);
    }
}

/* Later steps see what the first one kept of the pictures; without any the node changes nothing. */
static void kept_references(void **state)
{
    struct scene *s = *state;
    struct htensor *t[2][3];
    for (int refs = 0; refs < 2; refs++)
        for (int i = 0; i < 3; i++) {
            struct value *model = value_ref(output(&s->klein)), *cond[2];
            for (size_t k = 0; k < 2; k++) {
                cond[k] = value_ref(k ? s->nothing : s->cat);
                cond[k] = refs ? looking(s, cond[k], 3, 2) : cond[k];
                cond[k] =
                    through(s, cond[k], "FluxKontextMultiReferenceLatentMethod", "conditioning",
                            "{\"reference_latents_method\": \"index_timestep_zero\"}");
            }
            if (i)
                model = through(s, model, "FluxKVCache", "model", "{}");
            t[refs][i] = sample(s, model, cond[0], cond[1]);
            value_unref(model);
        }
    assert_true(form_same(t[0][0], t[0][1]) && form_same(t[1][1], t[1][2]));
    assert_false(form_same(t[1][0], t[1][1]));
    for (size_t i = 0; i < 6; i++)
        htensor_unref(t[i / 3][i % 3]);
}

/* What has no such keys and values says so, before anything is loaded. */
static void other_models_keep_nothing(void **state)
{
    struct scene *s = *state;
    struct call sd, x;
    berth_err err = { 0 };
    rig_preset(&s->r, "diffusion_models/sd.safetensors", "sd15-unet-tiny");
    load(s, &sd, "UNETLoader", "unet_name", "sd.safetensors", "");
    rig_call(&s->r, &x, "FluxKVCache", "{}");
    call_give(&x, "model", output(&sd));
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EUNSUPPORTED,
                 "nothing that FluxKVCache could change");
    call_release(&x);
    call_release(&sd);
}

/* Latents of other models are refused by name. */
static void other_latents_are_refused(void **state)
{
    struct scene *s = *state;
    struct call x, empty;
    struct value *cond = prompt(s, output(&s->clip), "a cat");
    berth_err err = { 0 };
    assert_ok(
        rig_run(&s->r, &empty, "EmptySD3LatentImage", "{\"width\": 64, \"height\": 64}", &err),
        err);
    struct latent l = { .samples = htensor_ref(output(&empty)->latent.samples) };
    l.samples->data[0] = 1; /* an empty one would be fitted */
    struct value *other = value_latent(&l);
    rig_call(&s->r, &x, "KSampler", "{\"steps\": 1}");
    call_give(&x, "model", output(&s->klein));
    call_give(&x, "positive", cond);
    call_give(&x, "negative", cond);
    call_give(&x, "latent_image", other);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "Flux.2 klein");
    call_release(&x);
    call_release(&empty);
    value_unref(other);
    value_unref(cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(a_checkpoint_has_all),
        cmocka_unit_test(mistral_is_tapped),
        cmocka_unit_test(noise_levels),
        cmocka_unit_test(guidance),
        cmocka_unit_test(kept_references),
        cmocka_unit_test(other_models_keep_nothing),
        cmocka_unit_test(other_latents_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
