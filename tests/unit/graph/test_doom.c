/* Prompts whose files cannot do what they are for are refused before anything is loaded: what their
 * headers say, by the names of the files. */
#include "graph/graph.h"
#include "support/clock_manual.h"
#include "support/quant_preset.h"
#include "support/sparse.h"
#include "support/tmp.h"

static struct node_env env;
static struct clock_manual stopped;

static int setup(void **state)
{
    static struct folders *f;
    static const char *const devices[] = { "cpu" };
    berth_err err = { 0 };
    (void)state;
    assert_ok(folders_new(&(struct folders_config) { .base = tmp_dir() }, &f, &err), err);
    clock_manual_init(&stopped, 0, 0);
    env = (struct node_env) {
        .folders = f, .devices = devices, .devices_n = 1, .clock = &stopped.base
    };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folders_free(env.folders);
    return 0;
}

static const char *model_path(const char *folder, const char *name)
{
    static char path[1200];
    berth_err err = { 0 };
    const char *dir = folders_dir(env.folders, folders_find(env.folders, folder, false), 0);
    assert_ok(path_make_dirs(dir, &err), err);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* What validation says of node `id`, owned; NULL: it takes the prompt. Back quotes are quotes. */
static char *refusal(const char *prompt_text, const char *id)
{
    char *text = strdup(prompt_text), *said = NULL;
    json_t *prompt = NULL;
    struct validation v;
    berth_err err = { 0 };
    assert_non_null(text);
    for (char *p = text; *p; p++)
        *p = *p == '`' ? '"' : *p;
    assert_ok(js_parse(text, strlen(text), NULL, &prompt, &err), err);
    assert_ok(graph_validate(&env, prompt, NULL, &v, &err), err);
    if (!v.ok) {
        json_t *errors = json_object_get(json_object_get(v.node_errors, id), "errors");
        const char *details =
            json_string_value(json_object_get(json_array_get(errors, 0), "details"));
        if (!details)
            fail_msg("not of node %s: %s", id, json_dumps(v.node_errors, 0));
        said = strdup(details);
    }
    validation_release(&v);
    json_decref(prompt);
    free(text);
    return said;
}

static void expect(const char *prompt, const char *id, const char *const words[])
{
    char *said = refusal(prompt, id);
    if (!words[0] != !said)
        fail_msg("%s", said ? said : "it was taken");
    for (size_t i = 0; words[i]; i++)
        if (!strstr(said, words[i]))
            fail_msg("no '%s' in: %s", words[i], said);
    free(said);
}
#define expect_taken(prompt) expect(prompt, "", (const char *const[]) { NULL })
#define expect_refused(prompt, id, ...)                                                            \
    expect(prompt, id, (const char *const[]) { __VA_ARGS__, NULL })

static void layouts_that_cannot_be_computed(void **state)
{
    static const struct {
        const char *folder, *preset, *layer, *prompt;
    } row[] = {
        { "diffusion_models", "flux-tiny", "img_in",
          "{`1`:{`class_type`:`UNETLoader`,`inputs`:{`unet_name`:`q.safetensors`,"
          "`weight_dtype`:`default`}},"
          "`2`:{`class_type`:`ModelSave`,`inputs`:{`model`:[`1`,0],`filename_prefix`:`x`}}}" },
        { "text_encoders", "clip-l-tiny", "text_model.encoder.layers.0.mlp.fc1",
          "{`1`:{`class_type`:`CLIPLoader`,`inputs`:{`clip_name`:`q.safetensors`,"
          "`type`:`stable_diffusion`}},"
          "`2`:{`class_type`:`CLIPSave`,`inputs`:{`clip`:[`1`,0],`filename_prefix`:`x`}}}" },
        { "checkpoints", "sd15-tiny", "model.diffusion_model.time_embed.0",
          "{`1`:{`class_type`:`CheckpointLoaderSimple`,`inputs`:{`ckpt_name`:`q.safetensors`}},"
          "`2`:{`class_type`:`ModelSave`,`inputs`:{`model`:[`1`,0],`filename_prefix`:`x`}}}" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct quant_layer q = { .layer = row[i].layer,
                                 .dtype = DT_I8,
                                 .marker = "{\"format\": \"int8_tensorwise\"}" };
        const char *path = model_path(row[i].folder, "q.safetensors");
        quant_write_preset(path, row[i].preset, &q);
        expect_refused(row[i].prompt, "1", "'q.safetensors'",
                       "layout 'int8_tensorwise' without a 'weight_scale'");
        q.scale = "weight_scale";
        q.scales = 1;
        quant_write_preset(path, row[i].preset, &q);
        expect_refused(row[i].prompt, "1", "'q.safetensors'", "weight_scale' is 0 at 0");
        q.value = 1;
        quant_write_preset(path, row[i].preset, &q);
        expect_taken(row[i].prompt);
        q.scale = NULL;
        q.dtype = DT_F8_E4M3;
        q.marker = "{\"format\": \"float8_e4m3fn\"}";
        quant_write_preset(path, row[i].preset, &q);
        expect_taken(row[i].prompt);
    }
}

/* A sampler's latents to a VAE's pictures. model: nodes that give MODEL as node m, slot 0; vae:
 * likewise as node v. */
static void expect_pair(const char *model, const char *vae, const char *says)
{
    static const char *const ways[] = {
        "`s`:{`class_type`:`KSampler`,`inputs`:{`model`:[`m`,0],`seed`:1,`steps`:1,`cfg`:1,"
        "`sampler_name`:`euler`,`scheduler`:`simple`,`positive`:[`c`,0],`negative`:[`c`,0],"
        "`latent_image`:[`e`,0],`denoise`:1}},",
        "`g`:{`class_type`:`BasicGuider`,`inputs`:{`model`:[`m`,0],`conditioning`:[`c`,0]}},"
        "`n`:{`class_type`:`RandomNoise`,`inputs`:{`noise_seed`:1}},"
        "`k`:{`class_type`:`KSamplerSelect`,`inputs`:{`sampler_name`:`euler`}},"
        "`b`:{`class_type`:`BasicScheduler`,`inputs`:{`model`:[`m`,0],`scheduler`:`simple`,"
        "`steps`:1,`denoise`:1}},"
        "`s`:{`class_type`:`SamplerCustomAdvanced`,`inputs`:{`noise`:[`n`,0],`guider`:[`g`,0],"
        "`sampler`:[`k`,0],`sigmas`:[`b`,0],`latent_image`:[`e`,0]}},",
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct str prompt = { 0 };
        str_addf(&prompt,
                 "{%s%s%s`t`:{`class_type`:`CLIPLoader`,`inputs`:{`clip_name`:`l.safetensors`,"
                 "`type`:`stable_diffusion`}},"
                 "`c`:{`class_type`:`CLIPTextEncode`,`inputs`:{`text`:`x`,`clip`:[`t`,0]}},"
                 "`e`:{`class_type`:`EmptyLatentImage`,`inputs`:{`width`:64,`height`:64,"
                 "`batch_size`:1}},"
                 "`d`:{`class_type`:`VAEDecode`,`inputs`:{`samples`:[`s`,0],`vae`:[`v`,0]}},"
                 "`p`:{`class_type`:`PreviewImage`,`inputs`:{`images`:[`d`,0]}}}",
                 model, vae, ways[i]);
        if (says)
            expect_refused(str_c(&prompt), "d", says);
        else
            expect_taken(str_c(&prompt));
        str_release(&prompt);
    }
}

static void preset(const char *folder, const char *name, const char *of)
{
    berth_err err = { 0 };
    assert_ok(sparse_preset(model_path(folder, name), of, DT_F16, &err), err);
}

#define UNET(n)                                                                                    \
    "`m`:{`class_type`:`UNETLoader`,`inputs`:{`unet_name`:`" n "`,`weight_dtype`:`default`}},"
#define VAE_FILE(n) "`v`:{`class_type`:`VAELoader`,`inputs`:{`vae_name`:`" n "`}},"

static void a_vae_that_does_not_fit(void **state)
{
    (void)state;
    preset("text_encoders", "l.safetensors", "clip-l-tiny");
    preset("diffusion_models", "qwen.safetensors", "qwen-image-tiny");
    preset("diffusion_models", "flux.safetensors", "flux-tiny");
    preset("vae", "sd.safetensors", "vae-tiny");
    preset("vae", "flux-vae.safetensors", "flux-tiny-vae");
    preset("vae", "wan.safetensors", "wan-tiny-vae");
    preset("checkpoints", "sd15.safetensors", "sd15-tiny");
    expect_pair(UNET("qwen.safetensors"), VAE_FILE("wan.safetensors"), NULL);
    expect_pair(UNET("flux.safetensors"), VAE_FILE("flux-vae.safetensors"), NULL);
    expect_pair(UNET("qwen.safetensors"), VAE_FILE("sd.safetensors"),
                "vae - 'sd.safetensors' is a VAE of the SD1, SD2 and SDXL kind and decodes latents "
                "[n, 4, h, w]; those of 'qwen.safetensors' (Qwen-Image) are [n, 16, t, h, w]");
    expect_pair(UNET("qwen.safetensors"), VAE_FILE("flux-vae.safetensors"),
                "decodes latents [n, 16, h, w]");
    /* through nodes that change the model; from a checkpoint */
    expect_pair("`u`:{`class_type`:`UNETLoader`,`inputs`:{`unet_name`:`flux.safetensors`,"
                "`weight_dtype`:`default`}},"
                "`m`:{`class_type`:`ModelSamplingSD3`,`inputs`:{`model`:[`u`,0],`shift`:3}},",
                VAE_FILE("wan.safetensors"), "'flux.safetensors' (Flux)");
    expect_pair("`m`:{`class_type`:`CheckpointLoaderSimple`,"
                "`inputs`:{`ckpt_name`:`sd15.safetensors`}},",
                VAE_FILE("wan.safetensors"), "'sd15.safetensors' (SD1.5)");
    expect_pair(UNET("flux.safetensors"),
                "`ck`:{`class_type`:`CheckpointLoaderSimple`,"
                "`inputs`:{`ckpt_name`:`sd15.safetensors`}},"
                "`v`:{`class_type`:`SelectVAEDevice`,`inputs`:{`vae`:[`ck`,2],"
                "`device`:`default`}},",
                "'sd15.safetensors' is a VAE of the SD1");
    /* what nobody can know is left to the run */
    expect_pair("`u`:{`class_type`:`UNETLoader`,`inputs`:{`unet_name`:`flux.safetensors`,"
                "`weight_dtype`:`default`}},"
                "`m`:{`class_type`:`ModelMergeSimple`,`inputs`:{`model1`:[`u`,0],"
                "`model2`:[`u`,0],`ratio`:1}},",
                VAE_FILE("wan.safetensors"), NULL);
    expect_pair(UNET("flux.safetensors"), VAE_FILE("pixel_space"), NULL);
}

/* The same answer from what was kept, and another once the file is another. */
static void looks_are_kept_by_file(void **state)
{
    (void)state;
    env.looks = node_looks_new();
    assert_non_null(env.looks);
    preset("diffusion_models", "a.safetensors", "flux-tiny");
    preset("vae", "b.safetensors", "vae-tiny");
    for (int i = 0; i < 2; i++)
        expect_pair(UNET("a.safetensors"), VAE_FILE("b.safetensors"), "'b.safetensors' is a VAE");
    preset("vae", "b.safetensors", "flux-tiny-vae");
    for (int i = 0; i < 2; i++)
        expect_pair(UNET("a.safetensors"), VAE_FILE("b.safetensors"), NULL);
    node_looks_free(env.looks);
    env.looks = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_that_cannot_be_computed),
        cmocka_unit_test(a_vae_that_does_not_fit),
        cmocka_unit_test(looks_are_kept_by_file),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
