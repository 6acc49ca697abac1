/* Prompts whose files cannot do what they are for are refused before anything is loaded: what their
 * headers say, by the names of the files. */
#include "graph/graph.h"
#include "support/clock_manual.h"
#include "support/quant_preset.h"
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
        expect_refused(row[i].prompt, "1", "'q.safetensors'", "layout 'int8_tensorwise'");
        q.dtype = DT_F8_E4M3;
        q.marker = "{\"format\": \"float8_e4m3fn\"}";
        quant_write_preset(path, row[i].preset, &q);
        expect_taken(row[i].prompt);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_that_cannot_be_computed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
