/* serve_folders: where models, inputs and outputs are, for serve and run.
 *
 * Base       --base-directory, else --comfyui-dir, else $BERTH_HOME, else $XDG_DATA_HOME/berth,
 *            else ~/.local/share/berth. An existing ComfyUI is used as it is: its models, input,
 *            output, user, extra_model_paths.yaml and installed frontend.
 * Demo       --demo adds the folder of the model that came with the binary (demo.h), last. */
#pragma once

#include "app/app.h"
#include "paths/folders.h"

struct folder_options { /* point into argv; NULL: not given */
    const char *base, *models, *comfyui, *input, *output, *temp, *user, *frontend, *tokenizers;
    struct opt_list yaml; /* --extra-model-paths-config */
    bool demo;
};
/* Options that fill `o`. */
#define FOLDER_OPTIONS(o)                                                                          \
    opt_text("base-directory", "DIR",                                                              \
             "root of models/, input/, output/, temp/, user/ (default ~/.local/share/berth)",      \
             &(o)->base),                                                                          \
        opt_text("models-directory", "DIR", "instead of BASE/models", &(o)->models),               \
        opt_text("comfyui-dir", "DIR",                                                             \
                 "use an existing ComfyUI: its models, folders, paths file and frontend",          \
                 &(o)->comfyui),                                                                   \
        opt_text("input-directory", "DIR", "instead of BASE/input", &(o)->input),                  \
        opt_text("output-directory", "DIR", "instead of BASE/output", &(o)->output),               \
        opt_text("tokenizers", "DIR", "tokenizers, in clip/ and t5/ or in DIR itself; see below",  \
                 &(o)->tokenizers),                                                                \
        opt_flag("demo", "add the small model that comes with berth: berth-demo.safetensors",      \
                 &(o)->demo),                                                                      \
        opt_text("temp-directory", "DIR",                                                          \
                 "DIR/temp instead of BASE/temp; emptied at start and end of serve", &(o)->temp)

/* For --help of the commands that have them. */
#define TOKENIZERS_HELP                                                                            \
    "Prompts need tokenizers: CLIP's, T5's for Flux, Qwen's for Z-Image and\n"                     \
    "Qwen-Image. A model file may bring its own (the demo model does). Otherwise they\n"           \
    "come from --tokenizers DIR (DIR/clip, DIR/t5, DIR/qwen25, or DIR itself),\n"                  \
    "--comfyui-dir or BASE/tokenizers; T5's may also be beside the model.\n"

struct app_folders {
    struct folders *folders;
    struct str frontend;     /* found or given; empty: none */
    struct str packages;     /* its Python packages; empty: none */
    struct str comfyui;      /* --comfyui-dir, absolute; empty: none */
    struct str demo;         /* --demo: its folder */
    struct names tokenizers; /* where to look, in this order */
};
/* Makes the folders that are missing, those of models only in a base of our own. Warns of a
 * --comfyui-dir that does not look like one. Returns 0 or the exit code of what it named;
 * release it in both cases. */
int app_folders_open(struct app *a, const struct folder_options *o, struct app_folders *out);
void app_folders_release(struct app_folders *x);

/* serve_tokenizers.c: warns of tokenizers that are missing: CLIP's and T5's, but with --demo, whose
 * model brings its own; those of language models whose files are there. */
void serve_check_tokenizers(struct app *a, const struct folder_options *o,
                            const struct app_folders *f);

/* demo.c: the folder with DEMO_MODEL, into *out: $BERTH_DATA_DIR/demo, share/berth/demo of the
 * prefix this binary is installed in, assets/demo of the tree it was built in. BERTH_ENOTFOUND
 * lists them. */
#define DEMO_MODEL "berth-demo.safetensors"
berth_status demo_find(struct str *out, berth_err *err);
