#include "app/run.h"

#include <stdarg.h>

#define LINES_MAX 4 /* a workflow from elsewhere may miss all of its files */
#define NAMES_MAX 3
#define LOOKS_MAX 64          /* files whose headers are read for one line */
#define CHOICES_QUOTED_MAX 20 /* in errors of validation, ComfyUI's */

static void add_line(struct str *out, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Safe for a terminal; once, as several nodes may miss the same. Nothing is no line. */
static void add_line(struct str *out, const char *fmt, ...)
{
    struct str line = { 0 }, safe = { 0 };
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&line, fmt, ap);
    va_end(ap);
    term_safe(&safe, str_c(&line), line.n, 0);
    str_addc(&safe, '\n');
    if (line.n && !strstr(str_c(out), str_c(&safe)))
        str_addf(out, "  %s", str_c(&safe));
    str_release(&line);
    str_release(&safe);
}

struct missing { /* what an input names: a file, most of the time */
    const char *node, *cls, *input, *got;
    const char *folder; /* key of folders; NULL: no file */
    json_t *inputs;     /* of the node, borrowed */
};

/* As a shell reads it back. */
static void add_word(struct str *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._/=:@%+,";
    if (!word[strspn(word, plain)]) {
        str_adds(out, word);
        return;
    }
    str_addc(out, '\'');
    for (; *word; word++)
        if (*word == '\'')
            str_adds(out, "'\\''");
        else
            str_addc(out, *word);
    str_addc(out, '\'');
}

/* Of several the one that docs and people call it by: models/diffusion_models, not models/unet. */
static const char *best_dir(const struct folders *f, size_t key)
{
    for (size_t i = 0; i < folders_dirs(f, key); i++) {
        const char *dir = folders_dir(f, key, i), *slash = strrchr(dir, '/');
        if (folders_find(f, slash ? slash + 1 : dir, true) != SIZE_MAX)
            return dir;
    }
    return folders_dir(f, key, 0);
}

/* "no checkpoints in DIR: put one there, or --comfyui-dir DIR"; of unet_gguf "no .gguf files" */
static void say_empty(const struct folders *f, const struct folder_options *o,
                      const struct missing *m, struct str *out)
{
    size_t key = folders_find(f, m->folder, false);
    if (key == SIZE_MAX || !folders_dirs(f, key))
        return;
    bool gguf = str_ends(m->folder, strlen(m->folder), "_gguf");
    str_addf(out, "no %s in %s: put one there%s", gguf ? ".gguf files" : m->folder,
             best_dir(f, key),
             o->comfyui ? "" : ", or use those of a ComfyUI with --comfyui-dir DIR");
}

/* Could the node use this one? */
static berth_status try_choice(const struct node_env *env, const struct missing *m,
                               const char *choice, berth_err *err)
{
    json_t *inputs = json_copy(m->inputs);
    if (!inputs || json_object_set_new(inputs, m->input, json_string(choice))) {
        json_decref(inputs);
        return err_set(err, BERTH_ENOMEM, "looking at '%.100s'", choice);
    }
    struct node_check k = { .env = env, .cls = node_find(m->cls), .id = m->node, .inputs = inputs };
    berth_status s = node_file_fits(&k, m->input, err);
    json_decref(inputs);
    return s;
}

/* Those that could be used. A server's files are not here to be looked at: all of them. *why: the
 * first that could not; *unseen: how many nobody looked at. */
static bool find_fitting(const struct node_env *env, const struct missing *m,
                         const struct names *choices, struct names *out, berth_err *why,
                         size_t *unseen)
{
    *unseen = 0;
    for (size_t i = 0; i < choices->n; i++) {
        berth_err err = { 0 };
        if (env && i >= LOOKS_MAX) {
            *unseen = choices->n - i;
            return true;
        }
        if (env && try_choice(env, m, choices->at[i], &err)) {
            *why = why->code ? *why : err;
            continue;
        }
        if (!names_add(out, choices->at[i], strlen(choices->at[i])))
            return false;
    }
    return true;
}

/* "none of the 2 files there can be used: 'a.safetensors' is a LoRA" */
static void say_unfit(size_t n, const berth_err *why, struct str *out)
{
    if (n == 1)
        str_addf(out, "the only file there cannot be used: %s", why->msg);
    else
        str_addf(out, "none of the %zu files there can be used; the first: %s", n, why->msg);
}

/* "--set 1.ckpt_name=a.safetensors takes one that is there; others: b.safetensors and 4 more" */
static void say_others(const struct names *fit, size_t unseen, const struct missing *m,
                       struct str *out)
{
    struct nearest near = { .word = m->got };
    struct str word = { 0 };
    for (size_t i = 0; i < fit->n; i++)
        nearest_try(&near, fit->at[i]);
    const char *best = near.best ? near.best : fit->at[0];
    str_addf(&word, "%s.%s=%s", m->node, m->input, best);
    str_adds(out, "--set ");
    add_word(out, str_c(&word));
    str_adds(out, " takes one that is there");
    size_t said = 0, more;
    for (size_t i = 0; i < fit->n && said + 1 < NAMES_MAX; i++)
        if (strcmp(fit->at[i], best) != 0)
            str_addf(out, "%s%s", said++ ? ", " : "; others: ", fit->at[i]);
    if ((more = fit->n - said - 1 + unseen))
        str_addf(out, " and %zu more", more);
    str_release(&word);
}

static void say_files(const struct node_env *env, const struct missing *m,
                      const struct names *choices, struct str *out)
{
    struct names fit = { 0 };
    berth_err why = { 0 };
    size_t unseen;
    bool found = find_fitting(env, m, choices, &fit, &why, &unseen);
    if (found && fit.n)
        say_others(&fit, unseen, m, out);
    else if (found)
        say_unfit(choices->n - unseen, &why, out);
    names_release(&fit);
}

/* "sampler_name is one of euler, heun, ..."; `near`: nobody has said yet which is meant. */
static void say_choices(const struct names *choices, const struct missing *m, bool near,
                        struct str *out)
{
    struct nearest n = { .word = m->got };
    if (choices->n <= CHOICES_QUOTED_MAX) /* the error lists them */
        return;
    for (size_t i = 0; near && i < choices->n; i++)
        nearest_try(&n, choices->at[i]);
    if (n.best)
        str_addf(out, "did you mean '%s'? ", n.best);
    str_addf(out, "%s is one of", m->input);
    for (size_t i = 0; i < choices->n; i++)
        str_addf(out, "%s %s", i ? "," : "", choices->at[i]);
}

/* Of UNETLoaderMultiGPU it is UnetLoaderGGUFMultiGPU; NULL: none. */
static const struct node_class *gguf_loader(const char *cls)
{
    static const char word[] = "Loader";
    const char *at = strstr(cls, word);
    char name[128];
    if (!at || strstr(cls, "GGUF"))
        return NULL;
    const char *kind = str_eq(cls, (size_t)(at - cls), "UNET") ? "Unet" : cls;
    snprintf(name, sizeof name, "%.*s%sGGUF%s", (int)(at - cls), kind, word, at + strlen(word));
    return node_find(name);
}

/* "UNETLoader lists no .gguf files: make node 1 a UnetLoaderGGUF" */
static bool say_gguf(const struct missing *m, struct str *out)
{
    const struct node_class *c = gguf_loader(m->cls);
    if (!c || !str_ends(m->got, strlen(m->got), ".gguf"))
        return false;
    str_addf(out, "%s lists no .gguf files: make node %s a %s", m->cls, m->node, c->name);
    return true;
}

static void say(const struct node_env *env, const struct folder_options *o, const struct missing *m,
                const struct names *choices, struct str *out)
{
    struct str line = { 0 };
    if (!m->folder)
        say_choices(choices, m, !env, &line);
    else if (say_gguf(m, &line))
        ;
    else if (choices->n)
        say_files(env, m, choices, &line);
    else if (env)
        say_empty(env->folders, o, m, &line);
    if (o && m->folder && !strcmp(m->folder, "checkpoints") && !strcmp(m->got, DEMO_MODEL) &&
        !o->demo)
        str_addf(&line, "%s--demo brings " DEMO_MODEL, line.n ? "; " : "");
    add_line(out, "%s", str_c(&line));
    str_release(&line);
}

/* What the server lists; none where there are too many to quote. */
static bool read_choices(const json_t *config, struct names *out)
{
    const json_t *list = json_array_get(config, 0), *v;
    size_t i;
    if (!json_is_array(list))
        list = json_object_get(json_array_get(config, 1), "options");
    json_array_foreach(list, i, v)
    {
        if (json_is_string(v) && !names_add(out, json_string_value(v), json_string_length(v)))
            return false;
    }
    return true;
}

/* VAELoader lists "pixel_space" after its files: that is none, and cannot be computed yet. */
static void only_files(struct names *choices)
{
    size_t n = 0;
    for (size_t i = 0; i < choices->n; i++)
        if (strcmp(choices->at[i], "pixel_space") != 0)
            choices->at[n++] = choices->at[i];
        else
            free(choices->at[i]);
    choices->n = n;
}

/* Is this error about a choice? Then what of it, and what could be chosen instead. */
static bool is_missing_choice(const struct node_env *env, const char *class_type,
                              const json_t *error, struct missing *m, struct names *choices)
{
    const json_t *extra = json_object_get(error, "extra_info");
    const char *type = json_string_value(json_object_get(error, "type"));
    const struct node_class *c = class_type ? node_find(class_type) : NULL;
    m->cls = class_type;
    m->input = json_string_value(json_object_get(extra, "input_name"));
    m->got = json_string_value(json_object_get(extra, "received_value"));
    if (!c || !type || !m->input || !m->got || strcmp(type, "value_not_in_list") != 0)
        return false;
    size_t i = node_input_index(c, m->input);
    if (i == SIZE_MAX)
        return false;
    m->folder = c->in[i].folder ? c->in[i].folder : c->in[i].files;
    berth_err ignore;
    bool ok = env ? !node_options(env, &c->in[i], choices, &ignore)
                  : read_choices(json_object_get(extra, "input_config"), choices);
    if (ok && m->folder)
        only_files(choices);
    return ok;
}

/* "no node is called KSamplr here: did you mean 'KSampler'?" */
static void say_class(const char *id, const char *cls, struct str *out)
{
    struct nearest near = { .word = cls };
    for (size_t i = 0; i < node_count(); i++)
        nearest_try(&near, node_at(i)->name);
    if (near.best)
        add_line(out, "node %s: did you mean '%s'?", id, near.best);
    else
        add_line(out,
                 "node %s is of no kind that Berth has; custom nodes in Python do not run here",
                 id);
}

void run_hints_whole(const json_t *error, json_t *prompt, struct str *out)
{
    const char *type = json_string_value(json_object_get(error, "type"));
    const char *id, *cls;
    json_t *node;
    if (type && !strcmp(type, "prompt_no_outputs"))
        str_adds(out, "  nothing in it saves or shows anything: add a node that does, SaveImage or "
                      "PreviewImage\n");
    if (!type || strcmp(type, "missing_node_type") != 0)
        return;
    json_object_foreach(prompt, id,
                        node) if ((cls = json_string_value(json_object_get(node, "class_type"))) &&
                                  !node_find(cls))
    {
        say_class(id, cls, out);
        return; /* the one that the error is about: the first */
    }
}

/* "node 3 is wanted by node 4 (ImageUpscaleWithModel), which cannot be computed yet": a file
 * would be put there for nothing. */
static bool consumer_cannot_run(json_t *prompt, const char *from, struct str *out)
{
    const char *id, *name;
    json_t *node, *v;
    json_object_foreach(prompt, id, node)
    {
        const char *cls = json_string_value(json_object_get(node, "class_type"));
        const struct node_class *c = cls ? node_find(cls) : NULL;
        if (!c || !node_cannot_run(c))
            continue;
        json_object_foreach(json_object_get(node, "inputs"), name, v)
        {
            const char *source = json_string_value(json_array_get(v, 0));
            if (!source || strcmp(source, from) != 0)
                continue;
            add_line(out, "node %s is wanted by node %s (%s), which cannot be computed yet", from,
                     id, cls);
            return true;
        }
    }
    return false;
}

void run_hints(const struct node_env *env, const struct folder_options *o, json_t *prompt,
               json_t *node_errors, struct str *out)
{
    json_t *node, *e;
    const char *id;
    size_t i, lines = 0;
    json_object_foreach(node_errors, id, node)
        json_array_foreach(json_object_get(node, "errors"), i, e)
    {
        const char *cls = json_string_value(json_object_get(node, "class_type"));
        struct missing m = { .node = id,
                             .inputs = json_object_get(json_object_get(prompt, id), "inputs") };
        struct names choices = { 0 };
        size_t before = out->n;
        if (lines < LINES_MAX && is_missing_choice(env, cls, e, &m, &choices) &&
            !consumer_cannot_run(prompt, id, out))
            say(env, o, &m, &choices, out);
        lines += out->n > before;
        names_release(&choices);
    }
}
