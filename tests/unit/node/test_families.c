/* Every family of models from checkpoint to picture, through the nodes of a workflow: what differs
 * between them (encoders, sizes told to SDXL, what inpainting networks see) reaches the network.
 * Numbers: tests/golden. */
#include "support/loader_rig.h"
#include "support/tokenizer.h"

#include "model/synth.h"
#include "node/compute.h"

#include <math.h>

struct scene {
    struct rig r;
    struct call ckpt;
    const char *folder[1];
    char path[512];
};

static void scene_open(struct scene *s, const char *preset)
{
    char name[96], inputs[128];
    berth_err err = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=1g");
    snprintf(s->path, sizeof s->path, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(s->path, &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("tokenizers/sd1_tokenizer"), true) > 0);
    s->folder[0] = s->path;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1; /* and no assets: opened for each prompt */
    snprintf(name, sizeof name, "checkpoints/%s.safetensors", preset);
    rig_preset(&s->r, name, preset);
    snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s.safetensors\"}", preset);
    assert_ok(rig_run(&s->r, &s->ckpt, "CheckpointLoaderSimple", inputs, &err), err);
}

static void scene_close(struct scene *s)
{
    call_release(&s->ckpt);
    rig_close(&s->r);
}

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void encode(struct scene *s, struct call *x, const char *cls, const char *inputs)
{
    rig_call(&s->r, x, cls, inputs);
    call_give(x, "clip", s->ckpt.out[1].at[0]);
    run(x);
}

static const struct cond_entry *first(const struct call *x)
{
    return &((const struct conditioning *)x->out[0].at[0]->object.obj)->at[0];
}

/* A latent of 16 x 8 pixels of 8, sampled in two steps; a reference. */
static struct htensor *sample(struct scene *s, struct value *positive, struct value *negative,
                              struct value *latent)
{
    struct call x, made = { 0 };
    if (!latent) {
        berth_err err = { 0 };
        assert_ok(
            rig_run(&s->r, &made, "EmptyLatentImage", "{\"width\": 128, \"height\": 64}", &err),
            err);
        latent = made.out[0].at[0];
    }
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 1, \"steps\": 2, \"cfg\": 5, \"sampler_name\": \"dpmpp_2m\", "
             "\"scheduler\": \"karras\"}");
    call_give(&x, "model", s->ckpt.out[0].at[0]);
    call_give(&x, "positive", positive);
    call_give(&x, "negative", negative);
    call_give(&x, "latent_image", latent);
    run(&x);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    for (size_t i = 0; i < htensor_count(out); i++)
        assert_true(isfinite(out->data[i]));
    call_release(&x);
    if (made.c.cls)
        call_release(&made);
    return out;
}

static bool same(const struct htensor *a, const struct htensor *b)
{
    return shape_eq(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

static void decode(struct scene *s, struct htensor *latent)
{
    struct call x;
    struct latent l = { .samples = htensor_ref(latent) };
    struct value *v = value_latent(&l);
    rig_call(&s->r, &x, "VAEDecode", "{}");
    call_give(&x, "vae", s->ckpt.out[2].at[0]);
    call_give(&x, "samples", v);
    value_unref(v);
    run(&x);
    assert_int_equal(x.out[0].at[0]->tensor->shape.dim[1], 64);
    assert_int_equal(x.out[0].at[0]->tensor->shape.dim[2], 128);
    call_release(&x);
}

static void to_picture(const char *preset, bool pooled)
{
    struct scene s;
    struct call p, n;
    scene_open(&s, preset);
    encode(&s, &p, "CLIPTextEncode", "{\"text\": \"photo of the cat\"}");
    encode(&s, &n, "CLIPTextEncode", "{\"text\": \"\"}");
    assert_int_equal(first(&p)->pooled != NULL, pooled);
    struct htensor *a = sample(&s, p.out[0].at[0], n.out[0].at[0], NULL);
    struct htensor *b = sample(&s, n.out[0].at[0], p.out[0].at[0], NULL);
    assert_false(same(a, b)); /* prompts reach it */
    decode(&s, a);
    htensor_unref(a);
    htensor_unref(b);
    call_release(&p);
    call_release(&n);
    scene_close(&s);
}

static void sd2(void **state)
{
    (void)state;
    to_picture("sd2-tiny", true);
}

static void refiner(void **state)
{
    (void)state;
    to_picture("sdxl-refiner-tiny", true);
}

/* SDXL: both encoders, and the size it is told. */
static void sdxl(void **state)
{
    struct scene s;
    struct call plain, told, other, l;
    (void)state;
    to_picture("sdxl-base-tiny", true);
    scene_open(&s, "sdxl-base-tiny");
    encode(&s, &plain, "CLIPTextEncode", "{\"text\": \"photo\"}");
    encode(&s, &told, "CLIPTextEncodeSDXL",
           "{\"width\": 128, \"height\": 64, \"target_width\": 128, \"target_height\": 64, "
           "\"text_g\": \"photo\", \"text_l\": \"photo\"}");
    encode(&s, &other, "CLIPTextEncodeSDXL",
           "{\"width\": 64, \"height\": 128, \"target_width\": 128, \"target_height\": 64, "
           "\"text_g\": \"photo\", \"text_l\": \"photo\"}");
    encode(&s, &l, "CLIPTextEncodeSDXL", "{\"text_g\": \"photo\", \"text_l\": \"cat\"}");
    assert_true(same(first(&plain)->cond, first(&told)->cond));
    assert_false(same(first(&plain)->cond, first(&l)->cond)); /* CLIP-L's half is another */
    assert_true(same(first(&plain)->pooled, first(&l)->pooled));
    struct htensor *a = sample(&s, plain.out[0].at[0], plain.out[0].at[0], NULL);
    struct htensor *b = sample(&s, told.out[0].at[0], told.out[0].at[0], NULL);
    struct htensor *c = sample(&s, other.out[0].at[0], other.out[0].at[0], NULL);
    assert_true(same(a, b)); /* what it is told is what it would have taken from the latent */
    assert_false(same(a, c));
    struct htensor *const all[] = { a, b, c };
    struct call *const calls[] = { &plain, &told, &other, &l };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        htensor_unref(all[i]);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        call_release(calls[i]);
    scene_close(&s);
}

/* The refiner's score. */
static void score(void **state)
{
    struct scene s;
    struct call plain, six, zero;
    (void)state;
    scene_open(&s, "sdxl-refiner-tiny");
    encode(&s, &plain, "CLIPTextEncode", "{\"text\": \"photo\"}");
    encode(&s, &six, "CLIPTextEncodeSDXLRefiner",
           "{\"ascore\": 6, \"width\": 128, \"height\": 64, \"text\": \"photo\"}");
    encode(&s, &zero, "CLIPTextEncodeSDXLRefiner",
           "{\"ascore\": 0, \"width\": 128, \"height\": 64, \"text\": \"photo\"}");
    struct htensor *a = sample(&s, plain.out[0].at[0], plain.out[0].at[0], NULL);
    struct htensor *b = sample(&s, six.out[0].at[0], plain.out[0].at[0], NULL);
    struct htensor *c = sample(&s, zero.out[0].at[0], plain.out[0].at[0], NULL);
    assert_true(same(a, b)); /* 6 is what a positive has that says nothing */
    assert_false(same(a, c));
    htensor_unref(a);
    htensor_unref(b);
    htensor_unref(c);
    call_release(&plain);
    call_release(&six);
    call_release(&zero);
    scene_close(&s);
}

/* An inpainting network sees the masked picture; without one, what "all is masked" looks like. */
static void inpaint(void **state)
{
    struct scene s;
    struct call p, image, x;
    berth_err err = { 0 };
    struct htensor *mask;
    (void)state;
    to_picture("sd15-inpaint-tiny", true);
    scene_open(&s, "sd15-inpaint-tiny");
    encode(&s, &p, "CLIPTextEncode", "{\"text\": \"cat\"}");
    assert_ok(rig_run(&s.r, &image, "EmptyImage",
                      "{\"width\": 128, \"height\": 64, \"color\": 8421376}", &err),
              err);
    assert_ok(htensor_zeros(&(struct shape) { .ndim = 3, .dim = { 1, 64, 128 } }, &mask, &err),
              err);
    for (size_t i = 0; i < 32 * 128; i++)
        mask->data[i] = 1;
    struct value *m = value_tensor(mask);
    rig_call(&s.r, &x, "InpaintModelConditioning", "{\"noise_mask\": false}");
    call_give(&x, "positive", p.out[0].at[0]);
    call_give(&x, "negative", p.out[0].at[0]);
    call_give(&x, "vae", s.ckpt.out[2].at[0]);
    call_give(&x, "pixels", image.out[0].at[0]);
    call_give(&x, "mask", m);
    value_unref(m);
    run(&x);
    struct value *latent = x.out[2].at[0];
    struct htensor *a = sample(&s, x.out[0].at[0], x.out[1].at[0], latent);
    struct htensor *b = sample(&s, p.out[0].at[0], p.out[0].at[0], latent);
    struct htensor *c =
        sample(&s, x.out[0].at[0], p.out[0].at[0], latent); /* one of the two sees it */
    assert_false(same(a, b));
    assert_false(same(a, c));
    htensor_unref(a);
    htensor_unref(b);
    htensor_unref(c);
    call_release(&p);
    call_release(&image);
    call_release(&x);
    scene_close(&s);
}

static berth_status edit_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                              berth_err *err)
{
    const struct weights_spec *x = (const struct weights_spec *)user + i;
    (void)err;
    synth_fill(x->name, strlen(x->name), &x->shape, off / sizeof(float), n / sizeof(float), dst);
    return BERTH_OK;
}

/* sd15-tiny with eight channels in: a network that edits pictures by instruction. */
static void edit_file(const char *path)
{
    struct keys k = { 0 };
    struct weights_spec spec[2000];
    const struct weights_meta_spec heads = { "berth.heads", "4" };
    berth_err err = { 0 };
    assert_ok(preset_keys(preset_find("sd15-tiny"), &k, &err), err);
    assert_true(k.n < ARRAY_LEN(spec));
    for (size_t i = 0; i < k.n; i++) {
        spec[i] = (struct weights_spec) { k.at[i].name, DT_F32, k.at[i].shape };
        if (!strcmp(spec[i].name, "model.diffusion_model.input_blocks.0.0.weight"))
            spec[i].shape.dim[1] = 8;
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = k.n,
                                       .meta = &heads,
                                       .meta_count = 1,
                                       .fill = edit_fill,
                                       .user = spec };
    assert_ok(weights_write(&args, &err), err);
    keys_release(&k);
}

/* A network that edits sees the picture; without one it sees zeros, as with a latent of them. */
static void edit(void **state)
{
    struct scene s;
    struct call p, image, x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "sd15-tiny");
    call_release(&s.ckpt);
    edit_file(rig_path(&s.r, "checkpoints/edit.safetensors"));
    assert_ok(rig_run(&s.r, &s.ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"edit.safetensors\"}", &err),
              err);
    encode(&s, &p, "CLIPTextEncode", "{\"text\": \"cat\"}");
    assert_ok(rig_run(&s.r, &image, "EmptyImage",
                      "{\"width\": 131, \"height\": 64, \"color\": 8421376}", &err),
              err);
    rig_call(&s.r, &x, "InstructPixToPixConditioning", "{}");
    call_give(&x, "positive", p.out[0].at[0]);
    call_give(&x, "negative", p.out[0].at[0]);
    call_give(&x, "vae", s.ckpt.out[2].at[0]);
    call_give(&x, "pixels", image.out[0].at[0]);
    run(&x);
    const struct htensor *latent = x.out[2].at[0]->latent.samples, *seen = first(&x)->concat_latent;
    assert_true(shape_eq(&latent->shape, &(struct shape) { 4, { 1, 4, 8, 16 } }));
    assert_true(all_zero(latent->data, htensor_count(latent)));
    assert_non_null(seen);
    assert_null(first(&x)->concat_mask);
    struct htensor *a = sample(&s, x.out[0].at[0], x.out[1].at[0], x.out[2].at[0]);
    struct htensor *b = sample(&s, p.out[0].at[0], p.out[0].at[0], x.out[2].at[0]);
    memset(seen->data, 0, htensor_count(seen) * sizeof(float));
    struct htensor *c = sample(&s, x.out[0].at[0], x.out[1].at[0], x.out[2].at[0]);
    assert_false(same(a, b));
    assert_true(same(b, c));
    htensor_unref(a);
    htensor_unref(b);
    htensor_unref(c);
    call_release(&p);
    call_release(&image);
    call_release(&x);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sd2),   cmocka_unit_test(refiner), cmocka_unit_test(sdxl),
        cmocka_unit_test(score), cmocka_unit_test(inpaint), cmocka_unit_test(edit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
