/* The type weights are held in where a loader names none: --fp8_e4m3fn-unet and its kin. What a
 * weight_dtype does is in test_flux.c. */
#include "support/loader_rig.h"

#include "text/stand_in.h"

/* A family nobody knows with one layer of scaled fp8 and one that is plain. */
static void scaled_file(const char *path)
{
    static const struct weights_spec spec[] = {
        { "a.weight", DT_F8_E4M3, { 2, { 8, 16 } } },
        { "a.scale_weight", DT_F32, { 1, { 1 } } },
        { "b.weight", DT_BF16, { 2, { 8, 16 } } },
    };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = model_fill };
    berth_err err = { 0 };
    assert_ok(weights_write(&args, &err), err);
}

/* flux-tiny with its first layer as scaled fp8. */
static void scaled_flux(const char *path)
{
    struct weights_spec spec[128];
    struct keys k = { 0 };
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .fill = model_fill
    };
    berth_err err = { 0 };
    assert_ok(preset_keys(preset_find("flux-tiny"), &k, &err), err);
    assert_true(k.n < ARRAY_LEN(spec) && !strcmp(k.at[0].name, "img_in.weight"));
    for (; args.count < k.n; args.count++)
        spec[args.count] =
            (struct weights_spec) { k.at[args.count].name, args.count ? DT_BF16 : DT_F8_E4M3,
                                    k.at[args.count].shape };
    spec[args.count++] = (struct weights_spec) { "img_in.scale_weight", DT_F32, { 1, { 1 } } };
    assert_ok(weights_write(&args, &err), err);
    keys_release(&k);
}

static int fill(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=512m");
    rig_preset(&r, "checkpoints/sd15.safetensors", "sd15-tiny");
    rig_preset(&r, "diffusion_models/flux.safetensors", "flux-tiny");
    rig_preset(&r, "diffusion_models/f16.gguf", "flux-tiny");
    preset_write("flux-tiny", DT_Q8_0, rig_path(&r, "diffusion_models/q8.gguf"));
    preset_write("flux-tiny", DT_F8_E4M3, rig_path(&r, "diffusion_models/fp8.safetensors"));
    scaled_flux(rig_path(&r, "diffusion_models/scaled.safetensors"));
    scaled_file(rig_path(&r, "controlnet/plain.safetensors"));
    rig_t5(&r, "text_encoders/t5.safetensors");
    rig_preset(&r, "text_encoders/t5.gguf", "t5-tiny");
    preset_write("t5-tiny", DT_F8_E4M3, rig_path(&r, "text_encoders/t5fp8.safetensors"));
    scaled_file(rig_path(&r, "text_encoders/scaled.safetensors"));
    rig_preset(&r, "vae/ae.safetensors", "flux-tiny-vae");
    rig_close(&r);
    return 0;
}

#define E4 DT_F8_E4M3
#define E5 DT_F8_E5M2
#define AS_IS DT_NONE

static void a_default_for_loaders_that_name_none(void **state)
{
    static const char ckpt[] = "{\"ckpt_name\": \"sd15.safetensors\"}",
                      flux[] = "{\"unet_name\": \"flux.safetensors\"}",
                      t5[] = "{\"clip_name\": \"t5.safetensors\"}",
                      f16[] = "{\"unet_name\": \"f16.gguf\"}",
                      q8[] = "{\"unet_name\": \"q8.gguf\"}";
    static const struct {
        const char *unet, *text, *cls, *in;
        size_t outputs;
        enum dtype converted[3];
    } row[] = {
        { NULL, NULL, "CheckpointLoaderSimple", ckpt, 3, { AS_IS, AS_IS, AS_IS } },
        { "F8_E4M3", NULL, "CheckpointLoaderSimple", ckpt, 3, { E4, AS_IS, AS_IS } },
        { NULL, "F8_E5M2", "CheckpointLoaderSimple", ckpt, 3, { AS_IS, E5, AS_IS } },
        { "F8_E4M3", "F8_E5M2", "CheckpointLoaderSimple", ckpt, 3, { E4, E5, AS_IS } },
        { "F8_E4M3", "F8_E5M2", "CheckpointLoaderAdvancedMultiGPU", ckpt, 3, { E4, E5, AS_IS } },
        { "F8_E4M3", NULL, "UNETLoader", flux, 1, { E4 } },
        { "F8_E5M2", NULL, "UNETLoaderDisTorch2MultiGPU", flux, 1, { E5 } },
        { "F8_E4M3",
          NULL,
          "UNETLoader",
          "{\"unet_name\": \"flux.safetensors\", \"weight_dtype\": \"default\"}",
          1,
          { E4 } },
        { "F8_E4M3",
          NULL,
          "UNETLoader",
          "{\"unet_name\": \"flux.safetensors\", \"weight_dtype\": \"fp8_e5m2\"}",
          1,
          { E5 } }, /* the loader's word wins */
        { NULL, "F8_E4M3", "UNETLoader", flux, 1, { AS_IS } },
        { "F8_E4M3", NULL, "UNETLoader", "{\"unet_name\": \"fp8.safetensors\"}", 1, { AS_IS } },
        { "F8_E5M2", NULL, "UNETLoader", "{\"unet_name\": \"fp8.safetensors\"}", 1, { E5 } },
        { "F8_E4M3", NULL, "UNETLoader", "{\"unet_name\": \"scaled.safetensors\"}", 1, { AS_IS } },
        { "F8_E4M3", NULL, "UNETLoader", q8, 1, { AS_IS } },
        { "F8_E4M3", NULL, "UnetLoaderGGUF", q8, 1, { AS_IS } },
        { "F8_E4M3", NULL, "UnetLoaderGGUF", f16, 1, { AS_IS } },
        { NULL, "F8_E4M3", "CLIPLoader", t5, 1, { E4 } },
        { NULL, "F8_E5M2", "CLIPLoaderMultiGPU", t5, 1, { E5 } },
        { "F8_E4M3", NULL, "CLIPLoader", t5, 1, { AS_IS } },
        { NULL, "F8_E5M2", "CLIPLoader", "{\"clip_name\": \"t5fp8.safetensors\"}", 1, { AS_IS } },
        { NULL, "F8_E5M2", "CLIPLoader", "{\"clip_name\": \"scaled.safetensors\"}", 1, { AS_IS } },
        { NULL, "F8_E4M3", "CLIPLoaderGGUF", "{\"clip_name\": \"t5.gguf\"}", 1, { AS_IS } },
        { "F8_E4M3", "F8_E4M3", "VAELoader", "{\"vae_name\": \"ae.safetensors\"}", 1, { AS_IS } },
        { "F8_E4M3",
          "F8_E4M3",
          "ControlNetLoader",
          "{\"control_net_name\": \"plain.safetensors\"}",
          1,
          { AS_IS } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct rig r;
        struct call x;
        berth_err err = { 0 };
        rig_open(&r, "cpu=512m");
        r.env.numbers.weights_unet = row[i].unet;
        r.env.numbers.weights_text = row[i].text;
        assert_ok(rig_run(&r, &x, row[i].cls, row[i].in, &err), err);
        for (size_t k = 0; k < row[i].outputs; k++) {
            enum dtype got = res_info(call_model(&x, k)->part[0]).converted;
            if (got != row[i].converted[k])
                fail_msg("row %zu, %s %s, output %zu: %s, not %s", i, row[i].cls, row[i].in, k,
                         dtype_name(got), dtype_name(row[i].converted[k]));
        }
        call_release(&x);
        rig_close(&r);
    }
}

/* --fp16-text-enc, the default: CLIP and T5 are rounded to it, language models have the type of
 * their last norm. */
static void language_models_stay_f32(void **state)
{
    static const struct {
        const char *file, *preset, *type;
        enum dtype stored;
        const char *text;
        enum dtype converted;
    } row[] = {
        { "t5f32.safetensors", "t5-tiny", "stable_diffusion", DT_F32, "F16", DT_F16 },
        { "lmf32.safetensors", "mistral3-tiny", "flux2", DT_F32, "F16", AS_IS },
        { "lmf32.safetensors", "mistral3-tiny", "flux2", DT_F32, "F8_E4M3", E4 }, /* as asked */
        { "lmf16.safetensors", "mistral3-tiny", "flux2", DT_F16, "F16", AS_IS },
    };
    char folder[544];
    const char *const folders[] = { folder };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct rig r;
        struct call x;
        char path[96], in[128];
        berth_err err = { 0 };
        rig_open(&r, "cpu=512m");
        snprintf(folder, sizeof folder, "%s/tokenizers", r.base);
        assert_ok(path_make_dirs(folder, &err), err);
        assert_ok(stand_ins_write(folder, &err), err);
        r.env.tokenizers = folders;
        r.env.tokenizers_n = 1;
        r.env.numbers.weights_text = row[i].text;
        snprintf(path, sizeof path, "text_encoders/%s", row[i].file);
        preset_write(row[i].preset, row[i].stored, rig_path(&r, path));
        snprintf(in, sizeof in, "{\"clip_name\": \"%s\", \"type\": \"%s\"}", row[i].file,
                 row[i].type);
        assert_ok(rig_run(&r, &x, "CLIPLoader", in, &err), err);
        enum dtype got = res_info(call_model(&x, 0)->part[0]).converted;
        if (got != row[i].converted)
            fail_msg("row %zu: %s, not %s", i, dtype_name(got), dtype_name(row[i].converted));
        call_release(&x);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_default_for_loaders_that_name_none),
        cmocka_unit_test(language_models_stay_f32),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
