/* Where blocks lie changes no bit: a model spread over three logical devices samples what it
 * samples in one place, for a sampler of every family, with an adapter merged into it, and after a
 * free; so do text encoders and VAEs, and as many threads as you like. */
#include "support/loader_rig.h"
#include "support/tokenizer.h"

#include "node/compute.h"

#define FILE_NAME "sd15.safetensors"
#define DEVICES "cpu=1g,cuda:0@cpu=512m,cuda:1@cpu=512m"

struct scene {
    struct rig r;
    struct call whole, spread;         /* the checkpoint in one place, and over three devices */
    struct value *positive, *negative; /* CONDITIONING */
};

static struct value *prompt(float start)
{
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&(struct shape) { .ndim = 3, .dim = { 1, 77, 64 } }, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = start * (float)((int)(i * 37 % 101) - 50) / 50;
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static void scene_open(struct scene *s)
{
    berth_err err = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, DEVICES);
    rig_preset(&s->r, "checkpoints/" FILE_NAME, "sd15-tiny");
    assert_ok(rig_run(&s->r, &s->whole, "CheckpointLoaderSimpleMultiGPU",
                      "{\"ckpt_name\": \"" FILE_NAME "\", \"device\": \"cpu\"}", &err),
              err);
    assert_ok(rig_run(&s->r, &s->spread, "CheckpointLoaderSimpleDisTorch2MultiGPU",
                      "{\"ckpt_name\": \"" FILE_NAME "\", \"compute_device\": \"cuda:0\", "
                      "\"virtual_vram_gb\": 0, \"donor_device\": \"cpu\", "
                      "\"expert_mode_allocations\": \"cuda:0,6m;cuda:1,6m;cpu,*\"}",
                      &err),
              err);
    struct res_model *m = call_model(&s->spread, 0)->part[0];
    assert_true(rig_bytes_on(&s->r, m, "cuda:0") && rig_bytes_on(&s->r, m, "cuda:1") &&
                rig_bytes_on(&s->r, m, "cpu"));
    s->positive = prompt(1);
    s->negative = prompt(-0.5f);
}

static void scene_close(struct scene *s)
{
    value_unref(s->positive);
    value_unref(s->negative);
    call_release(&s->whole);
    call_release(&s->spread);
    rig_close(&s->r);
}

/* The latent a KSampler gives; a reference. */
static struct htensor *sample(struct scene *s, struct value *model, const char *sampler)
{
    struct call x;
    char inputs[256];
    struct htensor *zeros;
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs,
             "{\"seed\": 5, \"steps\": 3, \"cfg\": 4, \"sampler_name\": \"%s\", \"scheduler\": "
             "\"normal\"}",
             sampler);
    assert_ok(htensor_zeros(&(struct shape) { .ndim = 4, .dim = { 1, 4, 8, 8 } }, &zeros, &err),
              err);
    struct latent l = { .samples = zeros };
    struct value *latent = value_latent(&l);
    rig_call(&s->r, &x, "KSampler", inputs);
    call_give(&x, "model", model);
    call_give(&x, "positive", s->positive);
    call_give(&x, "negative", s->negative);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    berth_status st = x.c.cls->run(&x.c, &err);
    if (st)
        fail_msg("%s: %s", sampler, err.msg);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    return out;
}

static bool same(const struct htensor *a, const struct htensor *b)
{
    return shape_eq(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

static void samples_the_same(struct scene *s, struct value *a, struct value *b, const char *sampler)
{
    struct htensor *one = sample(s, a, sampler), *other = sample(s, b, sampler);
    if (!same(one, other))
        fail_msg("%s: the latent depends on where the model lies", sampler);
    htensor_unref(one);
    htensor_unref(other);
}

static void free_everything(struct scene *s)
{
    struct res_free_args args = { .unload_models = true, .force = true };
    berth_err err = { 0 };
    assert_ok(res_free(s->r.f.r, &args, NULL, &err), err);
    assert_int_equal(res_info(call_model(&s->whole, 0)->part[0]).resident, 0);
    assert_int_equal(res_info(call_model(&s->spread, 0)->part[0]).resident, 0);
}

static void every_family(void **state)
{
    static const char *const sampler[] = {
        "euler",
        "euler_cfg_pp",
        "euler_ancestral",
        "heun",
        "exp_heun_2_x0_sde",
        "dpm_2",
        "lms",
        "dpm_fast",
        "dpm_adaptive",
        "dpmpp_2s_ancestral",
        "dpmpp_sde",
        "dpmpp_2m",
        "dpmpp_3m_sde",
        "ddpm",
        "lcm",
        "ipndm",
        "deis",
        "res_multistep",
        "er_sde",
        "gradient_estimation",
        "seeds_2",
        "sa_solver",
        "ddim",
        "uni_pc",
    };
    struct scene s;
    (void)state;
    scene_open(&s);
    for (size_t i = 0; i < ARRAY_LEN(sampler); i++) {
        samples_the_same(&s, s.whole.out[0].at[0], s.spread.out[0].at[0], sampler[i]);
        if (i == ARRAY_LEN(sampler) / 2)
            free_everything(&s); /* the next ones bring them back to their places */
    }
    struct res_model *m = call_model(&s.spread, 0)->part[0];
    assert_true(rig_bytes_on(&s.r, m, "cuda:1") && rig_bytes_on(&s.r, m, "cpu"));
    scene_close(&s);
}

/* ---- with an adapter ---- */

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    float *f = dst;
    (void)user, (void)i, (void)err;
    for (size_t k = 0; k < n / sizeof *f; k++)
        f[k] = (float)(int)((off / sizeof *f + k) % 11) / 40 - 0.1f;
    return BERTH_OK;
}

/* Low-rank pairs for matrices all over the UNet. */
static void write_lora(struct scene *s)
{
    static const char *const block[] = { "input_blocks_1_1", "input_blocks_5_1", "middle_block_1",
                                         "output_blocks_4_1", "output_blocks_11_1" };
    static const uint64_t width[] = { 32, 64, 128, 128, 32 };
    struct weights_spec spec[2 * ARRAY_LEN(block)];
    char name[2 * ARRAY_LEN(block)][96];
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(spec); i++) {
        uint64_t w = width[i / 2];
        snprintf(name[i], sizeof name[i],
                 "lora_unet_%s_transformer_blocks_0_attn1_to_q.lora_%s.weight", block[i / 2],
                 i % 2 ? "down" : "up");
        spec[i] =
            (struct weights_spec) { name[i], DT_F32, { 2, { i % 2 ? 4 : w, i % 2 ? w : 4 } } };
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = rig_path(&s->r, "loras/a.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = fill };
    assert_ok(weights_write(&args, &err), err);
}

static void add_lora(struct scene *s, struct call *x, struct value *model)
{
    berth_err err = { 0 };
    rig_call(&s->r, x, "LoraLoaderModelOnly",
             "{\"lora_name\": \"a.safetensors\", \"strength_model\": 0.8}");
    call_give(x, "model", model);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void merged_before_it_is_spread(void **state)
{
    struct scene s;
    struct call a, b;
    (void)state;
    scene_open(&s);
    write_lora(&s);
    add_lora(&s, &a, s.whole.out[0].at[0]);
    add_lora(&s, &b, s.spread.out[0].at[0]);
    struct htensor *plain = sample(&s, s.spread.out[0].at[0], "euler");
    samples_the_same(&s, a.out[0].at[0], b.out[0].at[0], "euler");
    free_everything(&s);
    samples_the_same(&s, a.out[0].at[0], b.out[0].at[0], "dpmpp_2m_sde");
    struct htensor *with = sample(&s, b.out[0].at[0], "euler");
    struct htensor *again = sample(&s, s.spread.out[0].at[0], "euler");
    assert_false(same(plain, with));
    assert_true(same(plain, again)); /* the branch without it finds base weights */
    htensor_unref(plain);
    htensor_unref(with);
    htensor_unref(again);
    call_release(&a);
    call_release(&b);
    scene_close(&s);
}

/* ---- text encoders, VAEs, threads ---- */

/* Output 0 of a node with two inputs, a node's value and a model. */
static struct value *through(struct scene *s, const char *cls, const char *json, const char *a,
                             struct value *va, const char *b, struct value *vb)
{
    struct call x;
    berth_err err = { 0 };
    rig_call(&s->r, &x, cls, json);
    call_give(&x, a, va);
    if (b)
        call_give(&x, b, vb);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *out = value_ref(x.out[0].at[0]);
    call_release(&x);
    return out;
}

static void encoders_and_vaes(void **state)
{
    struct scene s;
    struct call x;
    char path[512];
    const char *folder[1] = { path };
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    snprintf(path, sizeof path, "%s", tmp_path("clip"));
    assert_true(tiny_tokenizer_write(path, false) > 0);
    s.r.env.tokenizers = folder;
    s.r.env.tokenizers_n = 1;
    assert_ok(rig_run(&s.r, &x, "CheckpointLoaderAdvancedDisTorch2MultiGPU",
                      "{\"ckpt_name\": \"" FILE_NAME "\", \"unet_compute_device\": \"cuda:1\", "
                      "\"unet_virtual_vram_gb\": 0, \"unet_donor_device\": \"cpu\", "
                      "\"clip_compute_device\": \"cuda:0\", \"clip_virtual_vram_gb\": 0, "
                      "\"clip_donor_device\": \"cpu\", \"vae_device\": \"cuda:1\", "
                      "\"eject_models\": false, "
                      "\"clip_expert_mode_allocations\": \"cuda:1,100k;cpu,*\", "
                      "\"unet_expert_mode_allocations\": \"cuda:0,5m;cpu,*\"}",
                      &err),
              err);
    assert_true(rig_bytes_on(&s.r, call_model(&x, 1)->part[0], "cpu") &&
                rig_bytes_on(&s.r, call_model(&x, 1)->part[0], "cuda:1"));
    struct value *text[2], *picture[2], *latent;
    static const char prompt_json[] = "{\"text\": \"photo of the (cat:1.2)\"}";
    text[0] = through(&s, "CLIPTextEncode", prompt_json, "clip", s.whole.out[1].at[0], NULL, NULL);
    text[1] = through(&s, "CLIPTextEncode", prompt_json, "clip", x.out[1].at[0], NULL, NULL);
    const struct conditioning *c[2] = { text[0]->object.obj, text[1]->object.obj };
    assert_true(same(c[0]->at[0].cond, c[1]->at[0].cond));
    struct latent l = { .samples = sample(&s, s.whole.out[0].at[0], "euler") };
    latent = value_latent(&l);
    picture[0] = through(&s, "VAEDecode", "{}", "samples", latent, "vae", s.whole.out[2].at[0]);
    picture[1] = through(&s, "VAEDecode", "{}", "samples", latent, "vae", x.out[2].at[0]);
    assert_true(same(picture[0]->tensor, picture[1]->tensor));
    samples_the_same(&s, s.whole.out[0].at[0], x.out[0].at[0], "dpmpp_2m");
    value_unref(latent);
    for (size_t i = 0; i < 2; i++) {
        value_unref(text[i]);
        value_unref(picture[i]);
    }
    call_release(&x);
    scene_close(&s);
}

static void threads(void **state)
{
    struct scene s;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    struct htensor *alone = sample(&s, s.spread.out[0].at[0], "dpmpp_2m_sde");
    assert_ok(tpool_new(3, &s.r.env.pool, &err), err);
    struct htensor *shared = sample(&s, s.spread.out[0].at[0], "dpmpp_2m_sde");
    assert_true(same(alone, shared));
    tpool_free(s.r.env.pool);
    s.r.env.pool = NULL;
    htensor_unref(alone);
    htensor_unref(shared);
    scene_close(&s);
}

/* ---- retention ---- */

/* Computing is a use: what its loader marked to go does so when the prompt ends. */
static void eject_goes_after_its_prompt(void **state)
{
    struct scene s;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    res_prompt_begin(s.r.f.r);
    assert_ok(rig_run(&s.r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU",
                      "{\"ckpt_name\": \"" FILE_NAME "\", \"compute_device\": \"cuda:1\", "
                      "\"virtual_vram_gb\": 0, \"donor_device\": \"cpu\", \"eject_models\": "
                      "false, \"keep_loaded\": false, \"expert_mode_allocations\": \"cpu,*\"}",
                      &err),
              err);
    htensor_unref(sample(&s, x.out[0].at[0], "euler"));
    htensor_unref(sample(&s, s.whole.out[0].at[0], "euler"));
    assert_true(res_info(call_model(&x, 0)->part[0]).resident > 0);
    assert_ok(res_prompt_end(s.r.f.r, NULL, &err), err);
    assert_int_equal(res_info(call_model(&x, 0)->part[0]).resident, 0);
    assert_true(res_info(call_model(&s.whole, 0)->part[0]).resident > 0);
    call_release(&x);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(merged_before_it_is_spread),
        cmocka_unit_test(encoders_and_vaes),
        cmocka_unit_test(threads),
        cmocka_unit_test(eject_goes_after_its_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
