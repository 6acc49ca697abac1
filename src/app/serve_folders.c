#include "app/serve_folders.h"

#include "node/node.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dir(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static const char *env_text(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static int default_base(struct app *a, struct str *out)
{
    const char *v;
    if ((v = env_text("BERTH_HOME")))
        str_adds(out, v);
    else if ((v = env_text("XDG_DATA_HOME")) && *v == '/')
        str_addf(out, "%s/berth", v);
    else if ((v = env_text("HOME")))
        str_addf(out, "%s/.local/share/berth", v);
    else
        return app_usage(a, "no home folder is known: give --base-directory");
    return APP_OK;
}

/* The first package folder of a Python environment that has this package in it. */
static void look_in_env(const char *env, const char *package, struct str *out)
{
    struct str lib = { 0 }, path = { 0 };
    str_addf(&lib, "%s/lib", env);
    DIR *d = opendir(str_c(&lib));
    for (struct dirent *e; d && !out->n && (e = readdir(d));) {
        if (strncmp(e->d_name, "python", 6) != 0)
            continue;
        str_clear(&path);
        str_addf(&path, "%s/%s/site-packages/%s", str_c(&lib), e->d_name, package);
        if (is_dir(str_c(&path)))
            str_addf(out, "%s/%s/site-packages", str_c(&lib), e->d_name);
    }
    if (d)
        closedir(d);
    str_release(&lib);
    str_release(&path);
}

/* Environments that a ComfyUI has in its folder, then the one that is active. */
static void find_packages(const char *comfyui, struct str *out)
{
    static const char *const envs[] = { "venv", ".venv", "env" };
    static const char *const packages[] = { "comfyui_frontend_package",
                                            "comfyui_workflow_templates", "comfyui_embedded_docs" };
    const char *active = env_text("VIRTUAL_ENV");
    struct str env = { 0 };
    for (size_t k = 0; k < ARRAY_LEN(packages) && !out->n; k++) {
        for (size_t i = 0; i < ARRAY_LEN(envs) && !out->n; i++) {
            str_clear(&env);
            str_addf(&env, "%s/%s", comfyui, envs[i]);
            look_in_env(str_c(&env), packages[k], out);
        }
        if (active && !out->n)
            look_in_env(active, packages[k], out);
    }
    str_release(&env);
}

/* The package that newer versions install into their environment, or DIR/web of old ones. */
static void find_frontend(const char *comfyui, const struct str *packages, struct str *out)
{
    struct str index = { 0 };
    if (packages->n)
        str_addf(out, "%s/comfyui_frontend_package/static", packages->p);
    if (!out->n || !is_dir(str_c(out))) {
        str_clear(out);
        str_addf(out, "%s/web", comfyui);
        str_addf(&index, "%s/index.html", str_c(out));
        if (!is_file(str_c(&index)))
            str_clear(out);
    }
    str_release(&index);
}

/* A frontend that was given is often that of a folder with the other packages beside it. */
static void packages_beside(const char *frontend, struct str *out)
{
    static const char end[] = "/comfyui_frontend_package/static";
    size_t n = strlen(frontend);
    while (n && frontend[n - 1] == '/')
        n--;
    if (str_ends(frontend, n, end))
        str_add(out, frontend, n - (sizeof end - 1));
}

/* `path` as seen from the root, so that it still means the same when somebody changes folders. */
static bool add_absolute(struct str *out, const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    if (*path != '/' && !here)
        return false;
    if (here)
        str_adds(out, here);
    for (size_t n; *path; path += n) { /* "." says nothing, and people read these */
        path += strspn(path, "/");
        n = strcspn(path, "/");
        if (n && !(n == 1 && *path == '.'))
            str_addf(out, "/%.*s", (int)n, path);
    }
    free(here);
    if (!out->n)
        str_adds(out, "/");
    return true;
}

static int check_frontend(struct app *a, const char *root)
{
    struct str index = { 0 };
    str_addf(&index, "%s/index.html", root);
    bool there = is_file(str_c(&index));
    str_release(&index);
    return there ? APP_OK : app_usage(a, "--front-end-root: '%.200s' has no index.html", root);
}

/* Where models belong, seen at once: a base of our own starts with ComfyUI's folders, empty. */
static berth_status make_model_folders(const struct folders *f, berth_err *err)
{
    struct str models = { 0 };
    str_addf(&models, "%s/", folders_own(f, FOLDERS_MODELS));
    berth_status s = models.bad ? err_set(err, BERTH_ENOMEM, "folders") : BERTH_OK;
    bool first = !is_dir(str_c(&models));
    for (size_t i = 0; !s && first && i < folders_count(f); i++)
        for (size_t j = 0; !s && j < folders_dirs(f, i); j++)
            if (!strncmp(folders_dir(f, i, j), str_c(&models), models.n))
                s = path_make_dirs(folders_dir(f, i, j), err);
    str_release(&models);
    return s;
}

/* One that is not would show no models, and get folders of ours. */
static bool is_comfyui(const char *root)
{
    struct str models = { 0 }, program = { 0 };
    str_addf(&models, "%s/models", root);
    str_addf(&program, "%s/main.py", root);
    bool yes = is_dir(str_c(&models)) || is_file(str_c(&program));
    str_release(&models);
    str_release(&program);
    return yes;
}

static int check_options(struct app *a, const struct folder_options *o)
{
    if (o->comfyui && !is_dir(o->comfyui))
        return app_usage(a, "--comfyui-dir: '%.200s' is no folder", o->comfyui);
    if (o->comfyui && !is_comfyui(o->comfyui))
        return app_usage(a,
                         "--comfyui-dir: '%.200s' is no ComfyUI, it has neither models/ nor "
                         "main.py; a folder of Berth's own is --base-directory DIR",
                         o->comfyui);
    if (o->models && !is_dir(o->models))
        return app_usage(a, "--models-directory: '%.200s' is no folder", o->models);
    if (o->tokenizers && !is_dir(o->tokenizers))
        return app_usage(a, "--tokenizers: '%.200s' is no folder", o->tokenizers);
    const struct node_env given = { .tokenizers = &o->tokenizers, .tokenizers_n = 1 };
    struct str places = { 0 };
    bool there = !o->tokenizers || node_tokenizer_there(&given, &tokenizer_clip, &places) ||
                 node_tokenizer_there(&given, &tokenizer_t5, &places);
    str_release(&places);
    if (!there)
        return app_usage(
            a,
            "--tokenizers: neither '%.200s' nor clip/, sd1_tokenizer/ or t5/ in it has vocab.json "
            "and merges.txt, tokenizer.json or spiece.model",
            o->tokenizers);
    struct stat st;
    if (o->user && !stat(o->user, &st) && !S_ISDIR(st.st_mode)) /* one that is not there is made */
        return app_usage(a, "--user-directory: '%.200s' is no folder", o->user);
    return o->frontend ? check_frontend(a, o->frontend) : APP_OK;
}

/* In this order: the folder that was given, that of a ComfyUI, that of our own base. */
static bool list_tokenizers(const struct folder_options *o, const char *base,
                            struct app_folders *out)
{
    struct str comfy = { 0 }, own = { 0 };
    str_addf(&comfy, "%s/comfy", o->comfyui ? o->comfyui : "");
    str_addf(&own, "%s/tokenizers", base);
    bool ok =
        !comfy.bad && !own.bad &&
        (!o->tokenizers || names_add(&out->tokenizers, o->tokenizers, strlen(o->tokenizers))) &&
        (!o->comfyui || names_add(&out->tokenizers, comfy.p, comfy.n)) &&
        names_add(&out->tokenizers, own.p, own.n);
    str_release(&comfy);
    str_release(&own);
    return ok;
}

static const char *read_env(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

int app_folders_open(struct app *a, const struct folder_options *o, struct app_folders *out)
{
    *out = (struct app_folders) { 0 };
    int code = check_options(a, o);
    if (code)
        return code;
    struct str base = { 0 }, paths = { 0 }, temp = { 0 };
    berth_err err;
    if (o->comfyui && !add_absolute(&out->comfyui, o->comfyui))
        return app_usage(a, "the folder we are in is gone: give an absolute --comfyui-dir");
    if (o->demo && demo_find(&out->demo, &err))
        return app_fail(a, &err);
    if (o->base || o->comfyui) {
        if (!add_absolute(&base, o->base ? o->base : o->comfyui))
            return app_usage(a, "the folder we are in is gone: give an absolute --base-directory");
    } else if ((code = default_base(a, &base))) {
        return code;
    }
    const char **yaml = calloc(o->yaml.n + 1, sizeof *yaml);
    size_t yamls = 0;
    str_addf(&paths, "%s/extra_model_paths.yaml", o->comfyui ? o->comfyui : str_c(&base));
    if (yaml && is_file(str_c(&paths)))
        yaml[yamls++] = str_c(&paths);
    for (size_t i = 0; yaml && i < o->yaml.n; i++)
        yaml[yamls++] = o->yaml.at[i];
    if (o->temp)
        str_addf(&temp, "%s/temp", o->temp);
    if (o->frontend)
        packages_beside(o->frontend, &out->packages);
    if (!out->packages.n && o->comfyui)
        find_packages(o->comfyui, &out->packages);
    if (o->frontend)
        str_adds(&out->frontend, o->frontend);
    else if (o->comfyui)
        find_frontend(o->comfyui, &out->packages, &out->frontend);
    const struct folders_config cfg = { .base = str_c(&base),
                                        .models = o->models,
                                        .input = o->input,
                                        .output = o->output,
                                        .temp = o->temp ? str_c(&temp) : NULL,
                                        .user = o->user,
                                        .yaml = yaml,
                                        .yamls = yamls,
                                        .checkpoints = o->demo ? str_c(&out->demo) : NULL,
                                        .env = read_env,
                                        .log = &a->log };
    berth_status s = BERTH_OK;
    if (!yaml || base.bad || paths.bad || temp.bad || out->comfyui.bad || out->frontend.bad ||
        out->packages.bad || !list_tokenizers(o, str_c(&base), out))
        s = err_set(&err, BERTH_ENOMEM, "out of memory");
    else if (!(s = path_make_dirs(str_c(&base), &err)))
        s = folders_new(&cfg, &out->folders, &err);
    if (!s && (o->base || !o->comfyui)) /* a ComfyUI, or what was taken for one, is not ours */
        s = make_model_folders(out->folders, &err);
    if (s)
        code = app_fail(a, &err);
    free(yaml);
    str_release(&base);
    str_release(&paths);
    str_release(&temp);
    return code;
}

void app_folders_release(struct app_folders *x)
{
    folders_free(x->folders);
    str_release(&x->frontend);
    str_release(&x->packages);
    str_release(&x->comfyui);
    str_release(&x->demo);
    names_release(&x->tokenizers);
    *x = (struct app_folders) { 0 };
}
