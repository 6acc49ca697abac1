/* What `berth run` advises where a workflow names a file that is not there: only files that the
 * node could use. */
#include "app/run.h"
#include "support/clock_manual.h"
#include "support/quant_preset.h"
#include "support/sparse.h"
#include "support/tmp.h"

static struct node_env env;
static struct clock_manual stopped;
static struct folders *folders;

static int setup(void **state)
{
    static const char *const devices[] = { "cpu" };
    berth_err err = { 0 };
    (void)state;
    assert_ok(folders_new(&(struct folders_config) { .base = tmp_dir() }, &folders, &err), err);
    clock_manual_init(&stopped, 0, 0);
    env = (struct node_env) {
        .folders = folders, .devices = devices, .devices_n = 1, .clock = &stopped.base
    };
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    folders_free(folders);
    return 0;
}

static const char *model_path(const char *folder, const char *name)
{
    static char path[1200];
    berth_err err = { 0 };
    const char *dir = folders_dir(folders, folders_find(folders, folder, false), 0);
    assert_ok(path_make_dirs(dir, &err), err);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void preset(const char *folder, const char *name, const char *of)
{
    berth_err err = { 0 };
    assert_ok(sparse_preset(model_path(folder, name), of, DT_F16, &err), err);
}

/* An empty text: nothing is advised. */
static void expect(const char *cls, const char *inputs, const char *save, const char *want)
{
    struct str text = { 0 }, said = { 0 };
    struct folder_options o = { 0 };
    struct validation v;
    json_t *prompt = NULL;
    berth_err err = { 0 };
    str_addf(&text,
             "{\"1\":{\"class_type\":\"%s\",\"inputs\":%s},"
             "\"2\":{\"class_type\":\"%s\",\"inputs\":{\"%s\":[\"1\",0],"
             "\"filename_prefix\":\"x\"}}}",
             cls, inputs, save,
             !strcmp(save, "CLIPSave")  ? "clip"
             : !strcmp(save, "VAESave") ? "vae"
                                        : "model");
    assert_ok(js_parse(str_c(&text), text.n, NULL, &prompt, &err), err);
    assert_ok(graph_validate(&env, prompt, NULL, &v, &err), err);
    assert_false(v.ok);
    run_hints(&env, &o, prompt, v.node_errors, &said);
    if (!strstr(str_c(&said), want) || !*want != !said.n)
        fail_msg("said '%s', not '%s'", str_c(&said), want);
    str_release(&said);
    str_release(&text);
    validation_release(&v);
    json_decref(prompt);
}

#define UNET "{\"unet_name\":\"gone.safetensors\",\"weight_dtype\":\"default\"}"
#define CLIP(type) "{\"clip_name\":\"gone.safetensors\",\"type\":\"" type "\"}"
#define VAE_IN "{\"vae_name\":\"gone.safetensors\"}"

static void only_files_that_fit(void **state)
{
    struct quant_layer q = { .layer = "img_in", .dtype = DT_I8 };
    (void)state;
    preset("diffusion_models", "a-lora.safetensors", "clip-l-tiny"); /* no diffusion model */
    expect("UNETLoader", UNET, "ModelSave",
           "the only file there cannot be used: 'a-lora.safetensors' holds no diffusion model: it "
           "is a CLIP text encoder");
    quant_write_preset(model_path("diffusion_models", "b-int8.safetensors"), "flux-tiny", &q);
    FILE *f = fopen(model_path("diffusion_models", "c-empty.safetensors"), "w");
    assert_non_null(f);
    fclose(f);
    expect("UNETLoader", UNET, "ModelSave",
           "none of the 3 files there can be used; the first: 'a-lora.safetensors' holds no");
    preset("diffusion_models", "d.safetensors", "flux-tiny");
    expect("UNETLoader", UNET, "ModelSave",
           "--set 1.unet_name=d.safetensors takes one that is there\n");
    preset("diffusion_models", "e.safetensors", "z-image-tiny");
    expect("UNETLoader", UNET, "ModelSave",
           "--set 1.unet_name=d.safetensors takes one that is there; others: e.safetensors\n");
}

static void encoders_by_type_and_vaes(void **state)
{
    (void)state;
    preset("text_encoders", "a-t5.safetensors", "t5-tiny");
    preset("text_encoders", "b-qwen.safetensors", "qwen3-tiny");
    expect("CLIPLoader", CLIP("lumina2"), "CLIPSave",
           "--set 1.clip_name=b-qwen.safetensors takes one that is there\n");
    expect("VAELoader", VAE_IN, "VAESave", "no vae in "); /* "pixel_space" is no file */
    preset("vae", "a.safetensors", "clip-l-tiny");
    expect("VAELoader", VAE_IN, "VAESave",
           "the only file there cannot be used: 'a.safetensors' is a CLIP text");
    preset("vae", "b.safetensors", "vae-tiny");
    expect("VAELoader", VAE_IN, "VAESave",
           "--set 1.vae_name=b.safetensors takes one that is there\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_files_that_fit),
        cmocka_unit_test(encoders_by_type_and_vaes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
