/* PhotoMakerLoader and PhotoMakerEncode over tiny models: which token and which part of a prompt,
 * files with adapters beside them, what is refused. Numbers:
 * tests/golden/model/test_photomaker.c. */
#include "support/loader_rig.h"
#include "support/nets.h"
#include "support/oom.h"
#include "support/tokenizer.h"

#include "model/photomaker.h"
#include "node/compute.h"

#define WIDTH 64 /* of the tiny CLIP's tokens */

static void block(struct keys *k, int i)
{
    static const char *const own[] = { "k_proj", "v_proj", "q_proj", "out_proj" };
    size_t mark = keys_enter(k, "vision_model.encoder.layers.%d", i);
    size_t in = keys_enter(k, "self_attn");
    for (size_t n = 0; n < ARRAY_LEN(own); n++)
        keys_linear(k, own[n], 64, 64, KEYS_BIAS);
    keys_leave(k, in);
    keys_norm(k, "layer_norm1", 64);
    keys_linear(k, "mlp.fc1", 128, 64, KEYS_BIAS);
    keys_linear(k, "mlp.fc2", 64, 128, KEYS_BIAS);
    keys_norm(k, "layer_norm2", 64);
    keys_leave(k, mark);
}

static void mlp(struct keys *k, const char *name, uint64_t in, uint64_t width)
{
    size_t mark = keys_enter(k, "fuse_module.%s", name);
    keys_norm(k, "layernorm", in);
    keys_linear(k, "fc1", width, in, KEYS_BIAS);
    keys_linear(k, "fc2", width, width, KEYS_BIAS);
    keys_leave(k, mark);
}

/* lead: NULL or what stands before the names, an adapter beside them then. */
static void write_file(struct rig *r, const char *name, const char *lead, uint64_t width)
{
    struct keys k = { 0 };
    size_t mark = lead ? keys_enter(&k, "%s", lead) : 0;
    keys_tensor(&k, "vision_model.embeddings.class_embedding", 64, 0, 0, 0);
    keys_tensor(&k, "vision_model.embeddings.patch_embedding.weight", 64, 3, 14, 14);
    keys_tensor(&k, "vision_model.embeddings.position_embedding.weight", 5, 64, 0, 0);
    keys_norm(&k, "vision_model.pre_layrnorm", 64);
    for (int i = 0; i < 2; i++)
        block(&k, i);
    keys_norm(&k, "vision_model.post_layernorm", 64);
    keys_linear(&k, "visual_projection", 24, 64, KEYS_NO_BIAS);
    keys_linear(&k, "visual_projection_2", width - 24, 64, KEYS_NO_BIAS);
    mlp(&k, "mlp1", 2 * width, width);
    mlp(&k, "mlp2", width, width);
    keys_norm(&k, "fuse_module.layer_norm", width);
    if (lead) {
        keys_leave(&k, mark);
        keys_tensor(&k, "lora_weights.unet.up.weight", 4096, 64, 0, 0);
    }
    const char *made = keys_file(&k, "made", DT_F32, "safetensors", NULL);
    char to[1024];
    snprintf(to, sizeof to, "%s", rig_path(r, name));
    assert_int_equal(rename(made, to), 0);
    keys_release(&k);
}

struct scene {
    struct rig r;
    struct call ckpt, photomaker;
    const char *folder[1];
    char path[512];
};

static void scene_open(struct scene *s)
{
    berth_err err = { 0 };
    *s = (struct scene) { .path = "" };
    rig_open(&s->r, "cpu=1g");
    rig_preset(&s->r, "checkpoints/sd15.safetensors", "sd15-tiny");
    write_file(&s->r, "photomaker/plain.safetensors", NULL, WIDTH);
    write_file(&s->r, "photomaker/both.safetensors", "id_encoder", WIDTH);
    snprintf(s->path, sizeof s->path, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(s->path, &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("tokenizers/clip"), false) > 0);
    s->folder[0] = s->path;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
    assert_ok(rig_run(&s->r, &s->ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"sd15.safetensors\"}", &err),
              err);
    assert_ok(rig_run(&s->r, &s->photomaker, "PhotoMakerLoader",
                      "{\"photomaker_model_name\": \"plain.safetensors\"}", &err),
              err);
}

static void scene_close(struct scene *s)
{
    call_release(&s->photomaker);
    call_release(&s->ckpt);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

static berth_status encode(struct scene *s, struct call *x, const char *cls, const char *text,
                           struct value *photomaker, berth_err *err)
{
    const struct shape shape = { 4, { 2, 30, 40, 3 } };
    char inputs[600];
    struct htensor *t;
    snprintf(inputs, sizeof inputs, "{\"text\": \"%s\"}", text);
    rig_call(&s->r, x, cls, inputs);
    call_give(x, "clip", s->ckpt.out[1].at[0]);
    if (strcmp(cls, "PhotoMakerEncode") == 0) {
        assert_ok(htensor_new(&shape, &t, err), *err);
        for (size_t i = 0; i < htensor_count(t); i++)
            t->data[i] = (float)(i * 31 % 101) / 100;
        struct value *image = value_tensor(t);
        call_give(x, "image", image);
        call_give(x, "photomaker", photomaker);
        value_unref(image);
    }
    return x->c.cls->run(&x->c, err);
}

static const struct htensor *cond(const struct call *x)
{
    return ((const struct conditioning *)x->out[0].at[0]->object.obj)->at[0].cond;
}

/* Which rows of a prompt with a person differ from one without: `row` alone, or SIZE_MAX: none. */
static void expect_row(struct scene *s, const char *text, const char *like, size_t row)
{
    struct call with, plain;
    berth_err err = { 0 };
    assert_ok(encode(s, &with, "PhotoMakerEncode", text, s->photomaker.out[0].at[0], &err), err);
    assert_ok(encode(s, &plain, "CLIPTextEncode", like, NULL, &err), err);
    const struct htensor *a = cond(&with), *b = cond(&plain);
    assert_true(shape_eq(&a->shape, &b->shape));
    for (size_t i = 0; i < 77; i++)
        if ((memcmp(a->data + i * WIDTH, b->data + i * WIDTH, WIDTH * sizeof(float)) != 0) !=
            (i == row))
            fail_msg("'%s': row %zu", text, i);
    call_release(&with);
    call_release(&plain);
}

/* The word's number is the token's; the part of that number and one is left out. */
static void a_person_is_put_into_a_token(void **state)
{
    struct scene s;
    (void)state;
    scene_open(&s);
    expect_row(&s, "photo of photomaker", "photo of photomaker", 2);
    expect_row(&s, "photo (of:1.1) photomaker cat", "photo (of:1.1)", 2);
    expect_row(&s, "photomaker cat", "", 0); /* the first part is all of it */
    expect_row(&s, "a photo of the cat", "a photo of the cat", SIZE_MAX);
    expect_row(&s, "a photomakers cat", "a photomakers cat", SIZE_MAX);
    scene_close(&s);
}

/* Adapters beside the encoder are not loaded, and change nothing. */
static void adapters_beside_it_stay_in_the_file(void **state)
{
    struct scene s;
    struct call both, x, y;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    assert_ok(rig_run(&s.r, &both, "PhotoMakerLoader",
                      "{\"photomaker_model_name\": \"both.safetensors\"}", &err),
              err);
    const struct res_model_info info = res_info(call_model(&both, 0)->part[0]);
    assert_string_equal(info.part, "id_encoder.");
    assert_true(info.bytes < 4096 * 64 * sizeof(float));
    assert_ok(encode(&s, &x, "PhotoMakerEncode", "a photomaker", both.out[0].at[0], &err), err);
    assert_ok(encode(&s, &y, "PhotoMakerEncode", "a", both.out[0].at[0], &err), err);
    assert_memory_not_equal(cond(&x)->data + WIDTH, cond(&y)->data + WIDTH, WIDTH * sizeof(float));
    call_release(&x);
    call_release(&y);
    call_release(&both);
    scene_close(&s);
}

static void wrong_things_are_refused(void **state)
{
    struct scene s;
    struct call x, wide;
    char text[500] = "photomaker";
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    rig_preset(&s.r, "photomaker/vae.safetensors", "vae-tiny");
    assert_int_equal(rig_run(&s.r, &x, "PhotoMakerLoader",
                             "{\"photomaker_model_name\": \"vae.safetensors\"}", &err),
                     BERTH_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "'vae.safetensors' is no PhotoMaker"));
    call_release(&x);
    write_file(&s.r, "photomaker/wide.safetensors", NULL, 2 * WIDTH);
    assert_ok(rig_run(&s.r, &wide, "PhotoMakerLoader",
                      "{\"photomaker_model_name\": \"wide.safetensors\"}", &err),
              err);
    assert_int_equal(encode(&s, &x, "PhotoMakerEncode", "a photomaker", wide.out[0].at[0], &err),
                     BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "for prompts of width 128, this CLIP gives 64"));
    call_release(&x);
    call_release(&wide);
    memset(text, 'q', 200); /* two chunks of 77 */
    snprintf(text + 200, sizeof text - 200, " photomaker");
    assert_int_equal(encode(&s, &x, "PhotoMakerEncode", text, s.photomaker.out[0].at[0], &err),
                     BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "with PhotoMaker it has 77"));
    call_release(&x);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_person_is_put_into_a_token),
        cmocka_unit_test(adapters_beside_it_stay_in_the_file),
        cmocka_unit_test(wrong_things_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
