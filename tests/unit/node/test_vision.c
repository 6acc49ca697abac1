/* Nodes that look at pictures, on tiny models: what loaders take, where encoders are, what styles
 * and unCLIP refuse; and control LoRAs, whose models are opened wider. Numbers are held to
 * ComfyUI's in tests/golden. */
#include "support/loader_rig.h"
#include "support/nets.h"

#include "model/flux/presets.h"
#include "node/compute.h"

#define DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"
#define VISION "{\"clip_name\": \"siglip.safetensors\"}"

static struct value *picture(size_t n, size_t h, size_t w)
{
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(htensor_new(&(struct shape) { 4, { n, h, w, 3 } }, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 2654435761u % 1000) / 1000;
    return value_tensor(t);
}

static struct value *prompt(size_t tokens, size_t width)
{
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_zeros(&(struct shape) { 3, { 1, tokens, width } }, &t, &err), err);
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static const struct vision_output *seen(const struct call *x)
{
    assert_ptr_equal(x->out[0].at[0]->object.type, &type_vision_output);
    return x->out[0].at[0]->object.obj;
}

static void encode(struct rig *r, struct call *x, struct value *vision, size_t n)
{
    struct value *image = picture(n, 40, 70);
    berth_err err = { 0 };
    rig_call(r, x, "CLIPVisionEncode", "{\"crop\": \"center\"}");
    call_give(x, "clip_vision", vision);
    call_give(x, "image", image);
    assert_ok(x->c.cls->run(&x->c, &err), err);
    value_unref(image);
}

/* A model like any other: it has a role, a place, and comes back after it went. */
static void encoders_are_models(void **state)
{
    struct rig r;
    struct call vision, a, b, other;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    rig_preset(&r, "clip_vision/siglip.safetensors", "siglip-tiny");
    assert_ok(rig_run(&r, &vision, "CLIPVisionLoader", VISION, &err), err);
    struct res_model *m = call_model(&vision, 0)->part[0];
    assert_string_equal(res_info(m).role, "vision");
    assert_int_equal(res_info(m).state, RES_RESIDENT);
    encode(&r, &a, vision.out[0].at[0], 2);
    assert_ok(res_eject(m, &err), err);
    assert_int_equal(res_info(m).state, RES_EJECTED);
    encode(&r, &b, vision.out[0].at[0], 2);
    assert_int_equal(dim(seen(&a)->last, 0), 2);
    assert_int_equal(dim(seen(&a)->last, 1), 16);
    assert_ptr_equal(seen(&a)->last, seen(&a)->embeds);
    assert_memory_equal(seen(&a)->last->data, seen(&b)->last->data,
                        htensor_count(seen(&a)->last) * sizeof(float));
    assert_true(value_bytes(a.out[0].at[0]) >= 3 * 2 * 16 * 64 * sizeof(float));
    /* Blocks on other devices give the same bits. */
    assert_ok(rig_run(&r, &other, "CLIPVisionLoaderDisTorch2MultiGPU",
                      "{\"clip_name\": \"siglip.safetensors\", \"device\": \"cuda:1\", "
                      "\"virtual_vram_gb\": 0, \"donor_device\": \"cpu\", "
                      "\"expert_mode_allocations\": \"cuda:1,30%;cpu,*\"}",
                      &err),
              err);
    call_release(&b);
    encode(&r, &b, other.out[0].at[0], 2);
    assert_memory_equal(seen(&a)->penultimate->data, seen(&b)->penultimate->data,
                        htensor_count(seen(&a)->last) * sizeof(float));
    call_release(&other);
    call_release(&b);
    call_release(&a);
    call_release(&vision);
    rig_close(&r);
}

static void write_keys(struct rig *r, const char *name, struct keys *k)
{
    char made[1024];
    berth_err err = { 0 };
    snprintf(made, sizeof made, "%s", keys_file(k, "made", DT_F32, "safetensors", NULL));
    assert_ok(path_make_dirs(r->base, &err), err);
    assert_int_equal(rename(made, rig_path(r, name)), 0);
    keys_release(k);
}

/* What cannot be computed is refused before it is loaded. */
static void loaders_look_first(void **state)
{
    static const struct {
        const char *cls, *folder, *input, *preset, *why;
    } row[] = {
        { "CLIPVisionLoader", "clip_vision", "clip_name", "vae-tiny",
          "holds no encoder of pictures: it is a VAE" },
        { "StyleModelLoader", "style_models", "style_model_name", "siglip-tiny",
          "holds no style model: it is a CLIP vision model" },
    };
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        char file[80], inputs[96];
        berth_err err = { 0 };
        snprintf(file, sizeof file, "%s/other.safetensors", row[i].folder);
        rig_preset(&r, file, row[i].preset);
        snprintf(inputs, sizeof inputs, "{\"%s\": \"other.safetensors\"}", row[i].input);
        assert_fails(rig_run(&r, &x, row[i].cls, inputs, &err), err, BERTH_EINVAL, row[i].why);
        assert_int_equal(res_model_count(r.f.r), 0);
        call_release(&x);
    }
    static const struct {
        const char *tensor, *why;
    } known[] = { { "encoder.layer.0.layer_scale2.lambda1", "DINOv2" },
                  { "layer.0.attention.o_proj.bias", "DINOv3" },
                  { "some.tensor", "no encoder of pictures of a family that is known here" } };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct keys k = { 0 };
        struct call x;
        berth_err err = { 0 };
        keys_tensor(&k, known[i].tensor, 8, 0, 0, 0);
        write_keys(&r, "clip_vision/none.safetensors", &k);
        assert_fails(
            rig_run(&r, &x, "CLIPVisionLoader", "{\"clip_name\": \"none.safetensors\"}", &err), err,
            BERTH_EUNSUPPORTED, known[i].why);
        call_release(&x);
    }
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

struct styles {
    struct rig r;
    struct call vision, style, picture;
};

static void styles_open(struct styles *s)
{
    berth_err err = { 0 };
    rig_open(&s->r, DEVICES);
    rig_preset(&s->r, "clip_vision/siglip.safetensors", "siglip-tiny");
    rig_preset(&s->r, "style_models/redux.safetensors", "flux-redux-tiny");
    assert_ok(rig_run(&s->r, &s->vision, "CLIPVisionLoader", VISION, &err), err);
    assert_ok(rig_run(&s->r, &s->style, "StyleModelLoader",
                      "{\"style_model_name\": \"redux.safetensors\"}", &err),
              err);
    encode(&s->r, &s->picture, s->vision.out[0].at[0], 1);
}

static void styles_close(struct styles *s)
{
    call_release(&s->picture);
    call_release(&s->style);
    call_release(&s->vision);
    rig_close(&s->r);
}

static berth_status uso(struct styles *s, struct call *x, struct value *patch, struct value *seen,
                        berth_err *err)
{
    struct model_ref m = { .parts = 0 };
    struct value *model = value_model(&m);
    assert_non_null(model);
    rig_call(&s->r, x, "USOStyleReference", "{}");
    call_give(x, "model", model);
    call_give(x, "model_patch", patch);
    call_give(x, "clip_vision_output", seen);
    value_unref(model);
    *err = (berth_err) { 0 };
    return x->c.cls->run(&x->c, err);
}

static void load_as(struct styles *s, struct call *x, const char *cls, const char *folder,
                    const char *input, const char *preset)
{
    char file[80], inputs[96];
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s/%s.safetensors", folder, preset);
    rig_preset(&s->r, file, preset);
    snprintf(inputs, sizeof inputs, "{\"%s\": \"%s.safetensors\"}", input, preset);
    assert_ok(rig_run(&s->r, x, cls, inputs, &err), err);
}

/* Several styles, the newest in front; what is no projector, or saw too little, is said. */
static void styles_of_uso(void **state)
{
    struct styles s;
    struct call patch, redux, deep, picture, two, x, again;
    berth_err err;
    (void)state;
    styles_open(&s);
    load_as(&s, &patch, "ModelPatchLoader", "model_patches", "name", "flux-uso-tiny");
    load_as(&s, &redux, "ModelPatchLoader", "model_patches", "name", "flux-redux-tiny");
    load_as(&s, &deep, "CLIPVisionLoader", "clip_vision", "clip_name", "siglip-deep-tiny");
    encode(&s.r, &picture, deep.out[0].at[0], 1);
    encode(&s.r, &two, deep.out[0].at[0], 2);
    struct value *seen = picture.out[0].at[0];
    assert_ok(uso(&s, &x, patch.out[0].at[0], seen, &err), err);
    const struct htensor *t = x.out[0].at[0]->model.tokens;
    assert_true(shape_eq(&t->shape, &(struct shape) { 3, { 1, 3 * 4, 256 } }));
    rig_call(&s.r, &again, "USOStyleReference", "{}");
    call_give(&again, "model", x.out[0].at[0]);
    call_give(&again, "model_patch", patch.out[0].at[0]);
    call_give(&again, "clip_vision_output", seen);
    assert_ok(again.c.cls->run(&again.c, &err), err);
    const struct htensor *both = again.out[0].at[0]->model.tokens;
    assert_true(shape_eq(&both->shape, &(struct shape) { 3, { 1, 2 * 3 * 4, 256 } }));
    for (size_t i = 0; i < 2; i++)
        assert_memory_equal(both->data + i * htensor_count(t), t->data,
                            htensor_count(t) * sizeof *t->data);
    call_release(&again);
    call_release(&x);
    assert_fails(uso(&s, &x, patch.out[0].at[0], two.out[0].at[0], &err), err, BERTH_EUNSUPPORTED,
                 "2 pictures for a style");
    call_release(&x);
    assert_fails(uso(&s, &x, patch.out[0].at[0], s.picture.out[0].at[0], &err), err, BERTH_EINVAL,
                 "a SigLIP of 20 layers or more");
    call_release(&x);
    assert_fails(uso(&s, &x, redux.out[0].at[0], seen, &err), err, BERTH_EUNSUPPORTED,
                 "take StyleModelApply");
    struct call *const all[] = { &x, &patch, &redux, &deep, &picture, &two };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    styles_close(&s);
}

/* Takes the prompt. */
static berth_status style(struct styles *s, struct call *x, struct value *text, double strength,
                          const char *type, berth_err *err)
{
    char inputs[96];
    snprintf(inputs, sizeof inputs, "{\"strength\": %g, \"strength_type\": \"%s\"}", strength,
             type);
    rig_call(&s->r, x, "StyleModelApply", inputs);
    call_give(x, "conditioning", text);
    call_give(x, "style_model", s->style.out[0].at[0]);
    call_give(x, "clip_vision_output", s->picture.out[0].at[0]);
    value_unref(text);
    return x->c.cls->run(&x->c, err);
}

static const struct cond_entry *styled(const struct call *x)
{
    const struct conditioning *c = x->out[0].at[0]->object.obj;
    assert_int_equal(c->n, 1);
    return &c->at[0];
}

static void a_bias_grows_with_the_prompt(void **state)
{
    struct styles s;
    struct call one, two;
    berth_err err = { 0 };
    (void)state;
    styles_open(&s);
    assert_ok(style(&s, &one, prompt(3, 64), 1.0, "attn_bias", &err), err);
    assert_null(styled(&one)->bias);
    assert_int_equal(dim(styled(&one)->cond, 1), 3 + 16);
    call_release(&one);
    assert_ok(style(&s, &one, prompt(3, 64), 0.5, "attn_bias", &err), err);
    assert_ok(style(&s, &two, value_ref(one.out[0].at[0]), 2.0, "multiply", &err), err);
    const struct htensor *a = styled(&one)->bias, *b = styled(&two)->bias;
    assert_int_equal(dim(a, 0), 20);
    assert_int_equal(dim(b, 0), 36);
    const float half = -0.693359375f; /* of log(0.5), in half precision */
    for (size_t i = 0; i < 20; i++)
        for (size_t k = 0; k < 20; k++) {
            bool old = i < 3 || i == 19, new_key = k >= 3 && k < 19;
            float want = old && new_key ? half : 0.0f;
            size_t bi = i < 19 ? i : 35, bk = k < 19 ? k : 35; /* the picture is the last */
            assert_true(a->data[i * 20 + k] == want && b->data[bi * 36 + bk] == want);
        }
    for (size_t i = 0; i < 36; i++)
        for (size_t k = 19; k < 35; k++) /* those of the second add nothing */
            assert_true(b->data[i * 36 + k] == 0 && b->data[k * 36 + i] == 0);
    call_release(&two);
    call_release(&one);
    styles_close(&s);
}

static void styles_that_do_not_fit(void **state)
{
    struct styles s;
    struct call x;
    struct value *text = prompt(3, 64);
    struct conditioning *c = text->object.obj;
    berth_err err = { 0 };
    (void)state;
    styles_open(&s);
    assert_fails(style(&s, &x, prompt(3, 32), 1, "multiply", &err), err, BERTH_EINVAL,
                 "a prompt of width 32 and a style of width 64");
    call_release(&x);
    assert_ok(htensor_zeros(&(struct shape) { 2, { 9, 9 } }, &c->at[0].bias, &err), err);
    assert_fails(style(&s, &x, value_ref(text), 1, "multiply", &err), err, BERTH_EINVAL,
                 "said for 8");
    call_release(&x);
    assert_ok(htensor_zeros(&(struct shape) { 2, { 1, 3 } }, &c->at[0].shown, &err), err);
    assert_fails(style(&s, &x, text, 1, "multiply", &err), err, BERTH_EUNSUPPORTED, "padding");
    call_release(&x);
    styles_close(&s);
}

static void unclip_limits(void **state)
{
    static const struct {
        double strength, noise;
        berth_status s;
        bool told;
    } row[] = { { 1, 0.5, BERTH_OK, true },
                { 0, 0.5, BERTH_OK, false },
                { 1, 1.5, BERTH_EINVAL, false } };
    struct styles s;
    (void)state;
    styles_open(&s);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        struct value *text = prompt(3, 64);
        struct arena mem = { 0 };
        struct diffusion_info info = { .unclip = 64 };
        float *out;
        char inputs[96];
        berth_err err = { 0 };
        snprintf(inputs, sizeof inputs, "{\"strength\": %g, \"noise_augmentation\": %g}",
                 row[i].strength, row[i].noise);
        rig_call(&s.r, &x, "unCLIPConditioning", inputs);
        call_give(&x, "conditioning", text);
        call_give(&x, "clip_vision_output", s.picture.out[0].at[0]);
        value_unref(text);
        assert_int_equal(x.c.cls->run(&x.c, &err), row[i].s);
        if (!row[i].s)
            assert_true(!styled(&x)->unclip == !row[i].told);
        if (row[i].told) /* SigLIP says nothing of a picture as a whole */
            assert_fails(unclip_vector(styled(&x)->unclip, &info, 1, &mem, &out, &err), err,
                         BERTH_EINVAL, "another model's");
        arena_release(&mem);
        call_release(&x);
    }
    styles_close(&s);
}

/* A checkpoint that brings no encoder gives None, as in ComfyUI; one that does, its own. */
static void checkpoints(void **state)
{
    static const struct {
        const char *preset;
        bool there;
    } row[] = { { "sd15-tiny", false }, { "sd21-unclip-tiny", true } };
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        char file[80], inputs[96];
        berth_err err = { 0 };
        snprintf(file, sizeof file, "checkpoints/%s.safetensors", row[i].preset);
        rig_preset(&r, file, row[i].preset);
        snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s.safetensors\"}", row[i].preset);
        assert_ok(rig_run(&r, &x, "unCLIPCheckpointLoader", inputs, &err), err);
        assert_int_equal(x.out[3].at[0]->kind, row[i].there ? V_MODEL : V_NULL);
        if (row[i].there)
            assert_string_equal(res_info(call_model(&x, 3)->part[0]).part, "embedder.model.");
        call_release(&x);
    }
    rig_close(&r);
}

/* ---- control LoRAs ---- */

static const struct flux_config small = { .in_channels = 64,
                                          .hidden = 64,
                                          .head_dim = 32,
                                          .context_dim = 32,
                                          .vec_dim = 32,
                                          .depth = 1,
                                          .depth_single = 1,
                                          .guidance = true };

static void control_files(struct rig *r)
{
    struct keys k = { 0 };
    keys_flux(&k, &small);
    write_keys(r, "diffusion_models/flux.safetensors", &k);
    keys_tensor(&k, "img_in.lora_A.weight", 4, 128, 0, 0);
    keys_tensor(&k, "img_in.lora_B.weight", 64, 4, 0, 0);
    keys_tensor(&k, "img_in.lora_B.bias", 64, 0, 0, 0);
    keys_tensor(&k, "single_blocks.0.norm.key_norm.scale", 32, 0, 0, 0);
    write_keys(r, "loras/control.safetensors", &k);
}

static void control(struct rig *r, struct call *x, struct value *model)
{
    berth_err err = { 0 };
    rig_call(r, x, "LoraLoaderModelOnly",
             "{\"lora_name\": \"control.safetensors\", \"strength_model\": 0.5}");
    call_give(x, "model", model);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void sample(struct rig *r, struct call *x, struct value *model)
{
    struct value *text = prompt(3, 32);
    struct conditioning *c = text->object.obj;
    struct latent l = { 0 };
    berth_err err = { 0 };
    assert_ok(htensor_zeros(&(struct shape) { 4, { 1, 16, 4, 4 } }, &l.samples, &err), err);
    c->at[0].concat_latent = htensor_ref(l.samples);
    struct value *latent = value_latent(&l);
    rig_call(r, x, "KSampler",
             "{\"seed\": 1, \"steps\": 2, \"cfg\": 1, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(x, "model", model);
    call_give(x, "positive", text);
    call_give(x, "negative", text);
    call_give(x, "latent_image", latent);
    assert_ok(x->c.cls->run(&x->c, &err), err);
    value_unref(text);
    value_unref(latent);
}

/* The wider model is another one, computes where the first did, and moves with its adapter. */
static void control_loras_widen(void **state)
{
    static const char *const loader[] = {
        "{\"unet_name\": \"flux.safetensors\", \"weight_dtype\": \"default\", "
        "\"compute_device\": \"cuda:1\", \"virtual_vram_gb\": 0, \"donor_device\": \"cpu\", "
        "\"expert_mode_allocations\": \"cuda:1,40%;cpu,*\"}",
        "{\"unet_name\": \"flux.safetensors\", \"weight_dtype\": \"default\", "
        "\"compute_device\": \"cpu\", \"virtual_vram_gb\": 0, \"donor_device\": \"cpu\"}"
    };
    struct rig r;
    struct call first = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    control_files(&r);
    for (size_t i = 0; i < ARRAY_LEN(loader); i++) {
        struct call unet, lora, moved, x;
        berth_err err = { 0 };
        assert_ok(rig_run(&r, &unet, "UNETLoaderDisTorch2MultiGPU", loader[i], &err), err);
        control(&r, &lora, unet.out[0].at[0]);
        struct res_model *plain = call_model(&unet, 0)->part[0];
        struct res_model *wide = call_model(&lora, 0)->part[0];
        assert_ptr_not_equal(plain, wide);
        assert_null(res_info(plain).wide);
        assert_string_equal(res_info(wide).wide, "img_in.weight");
        assert_int_equal(res_info(wide).wide_cols, 128);
        assert_int_equal(res_info(wide).bytes, res_info(plain).bytes + 64 * 64 * sizeof(float));
        assert_ptr_equal(res_compute(wide), res_compute(plain));
        assert_int_equal(rig_bytes_on(&r, wide, "cpu") > 0, 1);
        sample(&r, &x, lora.out[0].at[0]);
        const struct htensor *got = x.out[0].at[0]->latent.samples;
        if (i) /* the same bits wherever it is */
            assert_memory_equal(first.out[0].at[0]->latent.samples->data, got->data,
                                htensor_count(got) * sizeof(float));
        rig_call(&r, &moved, "SelectModelDevice", "{\"device\": \"gpu:0\"}");
        call_give(&moved, "model", lora.out[0].at[0]);
        assert_ok(moved.c.cls->run(&moved.c, &err), err);
        struct res_model *there = call_model(&moved, 0)->part[0];
        assert_string_equal(res_compute(there)->name, "cuda:0");
        assert_int_equal(res_info(there).wide_cols, 128);
        call_release(&moved);
        call_release(&lora);
        call_release(&unet);
        if (i)
            call_release(&x);
        else
            first = x;
    }
    call_release(&first);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(styles_of_uso),
        cmocka_unit_test(encoders_are_models),
        cmocka_unit_test(loaders_look_first),
        cmocka_unit_test(a_bias_grows_with_the_prompt),
        cmocka_unit_test(styles_that_do_not_fit),
        cmocka_unit_test(unclip_limits),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(control_loras_widen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
