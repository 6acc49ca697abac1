/* What the names of values mean to a shell. */
#include "app/describe.h"

#include "model/preset.h"
#include "model/synth.h"

static void presets(struct str *out)
{
    for (size_t i = 0; i < preset_count(); i++)
        str_addf(out, "%s%s", i ? " " : "", preset_at(i)->name);
}

static void commands(struct str *out)
{
    for (size_t i = 0; describe_at(i); i++)
        str_addf(out, "%s%s", i ? " " : "", describe_at(i)->name);
}

/* Of weights that can be written, in lower case, which is how people type them. */
static void types(struct str *out)
{
    const char *blank = "";
    for (int t = 0; t < DT_COUNT; t++) {
        if (!synth_can((enum dtype)t, NULL))
            continue;
        str_adds(out, blank);
        for (const char *p = dtype_name((enum dtype)t); *p; p++)
            str_addc(out, *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p);
        blank = " ";
    }
    for (size_t i = 0; i < synth_layouts_n; i++)
        str_addf(out, " %s", synth_layouts[i].name);
}

static const struct {
    const char *value;
    enum words kind;
    const char *list;             /* WORDS_LIST: the words, */
    void (*add)(struct str *out); /* or who knows them */
} values[] = {
    { "FILE", WORDS_FILES, NULL, NULL },
    { "FILE...", WORDS_FILES, NULL, NULL },
    { "WORKFLOW.json", WORDS_FILES, NULL, NULL },
    { "DIR", WORDS_DIRS, NULL, NULL },
    { "DEVICE", WORDS_DEVICES, NULL, NULL },
    { "DEVICE,...", WORDS_DEVICES, NULL, NULL },
    { "SPEC", WORDS_DEVICES, NULL, NULL }, /* of devices, with budgets */
    { "PRESET", WORDS_LIST, NULL, presets },
    { "COMMAND", WORDS_LIST, NULL, commands },
    { "TYPE", WORDS_LIST, NULL, types },
    { "FLOAT", WORDS_LIST, "bf16 f16 f32", NULL }, /* of activations */
    { "FORMAT", WORDS_LIST, "safetensors gguf", NULL },
    { "LAYOUT", WORDS_LIST, "spread tail", NULL },
    { "LEVEL", WORDS_LIST, "debug info warn error off", NULL },
    { "LEVEL[,FILE]", WORDS_LIST, "DEBUG DETAIL INFO WARNING ERROR CRITICAL", NULL },
    { "KEY[=VALUE]", WORDS_LIST, "show_signin_button enable_telemetry", NULL },
    { "METHOD", WORDS_LIST, "none auto latent2rgb taesd", NULL },
    { "WHAT", WORDS_LIST, "fp8_matrix_mult", NULL },
    { "SHELL", WORDS_LIST, "bash fish zsh", NULL },
    { "stream", WORDS_LIST, "stream", NULL },
    { "URL", WORDS_LIST, "http://127.0.0.1:8188", NULL },
};

/* Nothing to offer. */
static const char *const plain[] = { "CLASS",  "GiB",    "HASH",    "IP,...",
                                     "MiB",    "MODEL",  "N",       "NODE.INPUT=VALUE",
                                     "ORIGIN", "PREFIX", "SECONDS", "PERCENT,...",
                                     "SIZE",   "STRING", "TEXT" };

bool value_words(const char *value, enum words *kind, struct str *out)
{
    *kind = WORDS_NONE;
    for (size_t i = 0; value && i < ARRAY_LEN(values); i++) {
        if (strcmp(values[i].value, value) != 0)
            continue;
        *kind = values[i].kind;
        if (values[i].add)
            values[i].add(out);
        else if (values[i].list)
            str_adds(out, values[i].list);
        return true;
    }
    for (size_t i = 0; value && i < ARRAY_LEN(plain); i++)
        if (strcmp(plain[i], value) == 0)
            return true;
    return !value;
}
