/* Inputs of loaders in their order: saved workflows are positional. The table is nodes.md's. */
#include "support/loader_rig.h"

#define MG " ?device"
#define D2                                                                                         \
    " ?compute_device ?virtual_vram_gb ?donor_device ?expert_mode_allocations ?eject_models"       \
    " ?keep_loaded"
#define D2TE                                                                                       \
    " ?device ?virtual_vram_gb ?donor_device ?expert_mode_allocations ?eject_models ?keep_loaded"
#define D1 " ?device ?virtual_vram_gb ?use_other_vram ?expert_mode_allocations"
#define ADVANCED " unet_name dequant_dtype patch_dtype patch_on_device"
#define CLIP2 " clip_name1 clip_name2 type"
#define CLIP3 " clip_name1 clip_name2 clip_name3"
#define CLIP4 CLIP3 " clip_name4"
#define CKPT " MODEL CLIP VAE"

static const struct {
    const char *cls, *category, *in, *out;
} rows[] = {
    { "CheckpointLoaderSimple", "loaders", " ckpt_name", CKPT },
    { "CheckpointLoader", "advanced/loaders", " config_name ckpt_name", CKPT },
    { "unCLIPCheckpointLoader", "loaders", " ckpt_name", CKPT " CLIP_VISION" },
    { "ImageOnlyCheckpointLoader", "loaders/video_models", " ckpt_name", " MODEL CLIP_VISION VAE" },
    { "UNETLoader", "advanced/loaders", " unet_name weight_dtype", " MODEL" },
    { "CLIPLoader", "advanced/loaders", " clip_name type ?device", " CLIP" },
    { "DualCLIPLoader", "advanced/loaders", CLIP2 " ?device", " CLIP" },
    { "TripleCLIPLoader", "advanced/loaders", CLIP3, " CLIP" },
    { "QuadrupleCLIPLoader", "advanced/loaders", CLIP4, " CLIP" },
    { "VAELoader", "loaders", " vae_name", " VAE" },
    { "CLIPVisionLoader", "loaders", " clip_name", " CLIP_VISION" },
    { "ControlNetLoader", "loaders", " control_net_name", " CONTROL_NET" },
    { "DiffControlNetLoader", "loaders", " model control_net_name", " CONTROL_NET" },
    { "DiffusersLoader", "advanced/loaders/deprecated", " model_path", CKPT },
    { "StyleModelLoader", "loaders", " style_model_name", " STYLE_MODEL" },
    { "UpscaleModelLoader", "loaders", " model_name", " UPSCALE_MODEL" },
    { "ModelPatchLoader", "advanced/loaders", " name", " MODEL_PATCH" },
    { "LoraLoader", "loaders", " model clip lora_name strength_model strength_clip",
      " MODEL CLIP" },
    { "LoraLoaderModelOnly", "loaders", " model lora_name strength_model", " MODEL" },
    { "LoraLoaderBypass", "model/loaders", " model clip lora_name strength_model strength_clip",
      " MODEL CLIP" },
    { "LoraLoaderBypassModelOnly", "model/loaders", " model lora_name strength_model", " MODEL" },
    { "UnetLoaderGGUF", "bootleg", " unet_name", " MODEL" },
    { "UnetLoaderGGUFAdvanced", "bootleg", ADVANCED, " MODEL" },
    { "CLIPLoaderGGUF", "bootleg", " clip_name type", " CLIP" },
    { "DualCLIPLoaderGGUF", "bootleg", CLIP2, " CLIP" },
    { "TripleCLIPLoaderGGUF", "bootleg", CLIP3, " CLIP" },
    { "QuadrupleCLIPLoaderGGUF", "bootleg", CLIP4, " CLIP" },
    { "UNETLoaderMultiGPU", "multigpu", " unet_name weight_dtype" MG, " MODEL" },
    { "UNETLoaderDisTorch2MultiGPU", "multigpu/distorch_2", " unet_name weight_dtype" D2,
      " MODEL" },
    { "VAELoaderMultiGPU", "multigpu", " vae_name" MG, " VAE" },
    { "VAELoaderDisTorch2MultiGPU", "multigpu/distorch_2", " vae_name" D2, " VAE" },
    { "CLIPLoaderMultiGPU", "multigpu", " clip_name type" MG, " CLIP" },
    { "CLIPLoaderDisTorch2MultiGPU", "multigpu/distorch_2", " clip_name type" D2TE, " CLIP" },
    { "DualCLIPLoaderMultiGPU", "multigpu", CLIP2 MG, " CLIP" },
    { "DualCLIPLoaderDisTorch2MultiGPU", "multigpu/distorch_2", CLIP2 D2TE, " CLIP" },
    { "TripleCLIPLoaderMultiGPU", "multigpu", CLIP3 MG, " CLIP" },
    { "TripleCLIPLoaderDisTorch2MultiGPU", "multigpu/distorch_2", CLIP3 D2TE, " CLIP" },
    { "QuadrupleCLIPLoaderMultiGPU", "multigpu", CLIP4 MG, " CLIP" },
    { "QuadrupleCLIPLoaderDisTorch2MultiGPU", "multigpu/distorch_2", CLIP4 D2TE, " CLIP" },
    { "CLIPVisionLoaderMultiGPU", "multigpu", " clip_name" MG, " CLIP_VISION" },
    { "CLIPVisionLoaderDisTorch2MultiGPU", "multigpu/distorch_2", " clip_name" D2TE,
      " CLIP_VISION" },
    { "CheckpointLoaderSimpleMultiGPU", "multigpu", " ckpt_name" MG, CKPT },
    { "CheckpointLoaderSimpleDisTorch2MultiGPU", "multigpu/distorch_2", " ckpt_name" D2, CKPT },
    { "ControlNetLoaderMultiGPU", "multigpu", " control_net_name" MG, " CONTROL_NET" },
    { "ControlNetLoaderDisTorch2MultiGPU", "multigpu/distorch_2", " control_net_name" D2,
      " CONTROL_NET" },
    { "DiffControlNetLoaderMultiGPU", "multigpu", " model control_net_name" MG, " CONTROL_NET" },
    { "DiffControlNetLoaderDisTorch2MultiGPU", "multigpu/distorch_2", " model control_net_name" D2,
      " CONTROL_NET" },
    { "DiffusersLoaderMultiGPU", "multigpu", " model_path" MG, CKPT },
    { "DiffusersLoaderDisTorch2MultiGPU", "multigpu/distorch_2", " model_path" D2, CKPT },
    { "UnetLoaderGGUFMultiGPU", "multigpu", " unet_name" MG, " MODEL" },
    { "UnetLoaderGGUFDisTorch2MultiGPU", "multigpu/distorch_2", " unet_name" D2, " MODEL" },
    { "UnetLoaderGGUFDisTorchMultiGPU", "multigpu/legacy", " unet_name" D1, " MODEL" },
    { "UnetLoaderGGUFAdvancedMultiGPU", "multigpu", ADVANCED MG, " MODEL" },
    { "UnetLoaderGGUFAdvancedDisTorch2MultiGPU", "multigpu/distorch_2", ADVANCED D2, " MODEL" },
    { "UnetLoaderGGUFAdvancedDisTorchMultiGPU", "multigpu/legacy", ADVANCED D1, " MODEL" },
    { "CLIPLoaderGGUFMultiGPU", "multigpu", " clip_name type" MG, " CLIP" },
    { "CLIPLoaderGGUFDisTorch2MultiGPU", "multigpu/distorch_2", " clip_name type" D2TE, " CLIP" },
    { "CLIPLoaderGGUFDisTorchMultiGPU", "multigpu", " clip_name type" D1, " CLIP" },
    { "DualCLIPLoaderGGUFMultiGPU", "multigpu", CLIP2 MG, " CLIP" },
    { "DualCLIPLoaderGGUFDisTorch2MultiGPU", "multigpu/distorch_2", CLIP2 D2TE, " CLIP" },
    { "DualCLIPLoaderGGUFDisTorchMultiGPU", "multigpu", CLIP2 D1, " CLIP" },
    { "TripleCLIPLoaderGGUFMultiGPU", "multigpu", CLIP3 MG, " CLIP" },
    { "TripleCLIPLoaderGGUFDisTorch2MultiGPU", "multigpu/distorch_2", CLIP3 D2TE, " CLIP" },
    { "TripleCLIPLoaderGGUFDisTorchMultiGPU", "multigpu", CLIP3 D1, " CLIP" },
    { "QuadrupleCLIPLoaderGGUFMultiGPU", "multigpu", CLIP4 MG, " CLIP" },
    { "QuadrupleCLIPLoaderGGUFDisTorch2MultiGPU", "multigpu/distorch_2", CLIP4 D2TE, " CLIP" },
    { "QuadrupleCLIPLoaderGGUFDisTorchMultiGPU", "multigpu", CLIP4 D1, " CLIP" },
    { "CheckpointLoaderAdvancedMultiGPU", "multigpu",
      " ckpt_name unet_device clip_device vae_device", CKPT },
    { "CheckpointLoaderAdvancedDisTorch2MultiGPU", "multigpu/distorch_2",
      " ckpt_name unet_compute_device unet_virtual_vram_gb unet_donor_device clip_compute_device"
      " clip_virtual_vram_gb clip_donor_device vae_device ?unet_expert_mode_allocations"
      " ?clip_expert_mode_allocations ?high_precision_loras ?eject_models ?keep_loaded",
      CKPT },
    { "DeviceSelectorMultiGPU", "multigpu", " device", " MULTIGPUDEVICE" },
    { "UNetLoaderLP", "loaders", " unet_name", " MODEL" },
};

static void the_table(void **state)
{
    size_t loaders = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct node_class *c = node_find(rows[i].cls);
        struct str in = { 0 }, out = { 0 };
        if (!c)
            fail_msg("no node %s", rows[i].cls);
        assert_string_equal(c->category, rows[i].category);
        for (size_t k = 0; k < c->ins; k++)
            str_addf(&in, " %s%s", c->in[k].optional ? "?" : "", c->in[k].name);
        for (size_t k = 0; k < c->outs; k++)
            str_addf(&out, " %s", c->out[k].type);
        if (strcmp(str_c(&in), rows[i].in) != 0 || strcmp(str_c(&out), rows[i].out) != 0)
            fail_msg("%s:%s ->%s", c->name, str_c(&in), str_c(&out));
        str_release(&in);
        str_release(&out);
    }
#define NODE(c) loaders++;
#include "node/loaders.def"
#undef NODE
    assert_int_equal(loaders, ARRAY_LEN(rows)); /* nothing that the table does not have */
}

static json_t *option(struct rig *r, const char *cls, const char *input, const char *key)
{
    const struct node_class *c = node_find(cls);
    json_t *spec;
    berth_err err = { 0 };
    assert_ok(node_input_spec(&r->env, c, &c->in[node_input_index(c, input)], &spec, &err), err);
    json_t *v = json_incref(json_object_get(json_array_get(spec, 1), key));
    json_decref(spec);
    return v;
}

static void text_option(struct rig *r, const char *cls, const char *input, const char *want)
{
    json_t *v = option(r, cls, input, "default");
    assert_string_equal(json_string_value(v), want);
    json_decref(v);
}

static void bool_option(struct rig *r, const char *cls, const char *input, bool want)
{
    json_t *v = option(r, cls, input, "default");
    assert_true(json_is_boolean(v) && json_boolean_value(v) == want);
    json_decref(v);
}

static void defaults(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=64m,null:0=64m,null:1=64m");
    text_option(&r, "UNETLoaderMultiGPU", "device", "null:0");
    text_option(&r, "UNETLoaderDisTorch2MultiGPU", "compute_device", "null:0");
    text_option(&r, "UNETLoaderDisTorch2MultiGPU", "donor_device", "cpu");
    text_option(&r, "CheckpointLoaderAdvancedDisTorch2MultiGPU", "clip_compute_device", "cpu");
    bool_option(&r, "UNETLoaderDisTorch2MultiGPU", "eject_models", true);
    bool_option(&r, "CLIPLoaderDisTorch2MultiGPU", "eject_models", false);
    bool_option(&r, "UNETLoaderDisTorch2MultiGPU", "keep_loaded", true);
    json_t *v = option(&r, "UnetLoaderGGUFDisTorchMultiGPU", "virtual_vram_gb", "max");
    assert_true(json_real_value(v) == 24.0);
    json_decref(v);
    v = option(&r, "UNETLoaderDisTorch2MultiGPU", "virtual_vram_gb", "max");
    assert_true(json_real_value(v) == 128.0);
    json_decref(v);
    v = option(&r, "CLIPLoader", "device", "advanced");
    assert_true(json_is_true(v));
    json_decref(v);
    v = option(&r, "DeviceSelectorMultiGPU", "device", "default");
    assert_null(v);
    rig_close(&r);
    rig_open(&r, "cpu=64m"); /* no other: the cpu */
    text_option(&r, "UNETLoaderMultiGPU", "device", "cpu");
    rig_close(&r);
}

static void choices(void **state)
{
    struct rig r;
    struct names names = { 0 };
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=64m,null:0=64m");
    static const char *const file[] = {
        "text_encoders/b.safetensors",   "clip/a.gguf", "unet/u.gguf", "unet/u.safetensors",
        "diffusers/sd/model_index.json",
    };
    for (size_t i = 0; i < ARRAY_LEN(file); i++)
        fclose(fopen(rig_path(&r, file[i]), "wb"));
    static const struct {
        const char *cls, *want;
    } row[] = {
        { "CLIPLoaderGGUF", "a.gguf b.safetensors " },
        { "CLIPLoader", "b.safetensors " },
        { "UnetLoaderGGUF", "u.gguf " },
        { "UNETLoader", "u.safetensors " },
        { "DeviceSelectorMultiGPU", "cpu null:0 " },
        { "DiffusersLoader", "sd " },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str got = { 0 };
        assert_ok(node_options(&r.env, &node_find(row[i].cls)->in[0], &names, &err), err);
        for (size_t k = 0; k < names.n; k++)
            str_addf(&got, "%s ", names.at[k]);
        assert_string_equal(str_c(&got), row[i].want);
        str_release(&got);
        names_release(&names);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(defaults),
        cmocka_unit_test(choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
