/* The table of folders: keys, listings, resolving, YAML files on top. */
#include "paths/folders.h"
#include "support/names_has.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[512];

static int setup(void **state)
{
    (void)state;
    assert_int_equal(tmp_clear(), 0);
    snprintf(base, sizeof base, "%s", tmp_path("base"));
    return 0;
}

/* An empty file under base, with its folders; old: so that mtimes prove something. */
static void put(const char *name)
{
    char path[1024], dir[1024];
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s/%s", base, name);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_ok(path_make_dirs(dir, &err), err);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fclose(f);
}

static void make_old(const char *dir, long seconds)
{
    char path[1024];
    struct timespec t[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };
    snprintf(path, sizeof path, "%s/%s", base, dir);
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static const char *test_env(void *user, const char *name)
{
    (void)user;
    return strcmp(name, "HOME") == 0     ? "/home/me"
           : strcmp(name, "MODELS") == 0 ? "/big/models"
                                         : NULL;
}

static berth_status try_open(const char *yaml, struct folders **f, berth_err *err)
{
    struct folders_config cfg = { .base = base, .env = test_env };
    const char *file = tmp_path("extra.yaml");
    if (yaml) {
        tmp_write("extra.yaml", yaml, strlen(yaml));
        cfg.yaml = &file;
        cfg.yamls = 1;
    }
    return folders_new(&cfg, f, err);
}

static struct folders *open_folders(const char *yaml)
{
    struct folders *f;
    berth_err err = { 0 };
    assert_ok(try_open(yaml, &f, &err), err);
    return f;
}

/* "a, b" of a key's listing. Good until the next call. */
static const char *list(struct folders *f, const char *key)
{
    static char text[2000];
    struct names names = { 0 };
    berth_err err = { 0 };
    text[0] = '\0';
    assert_ok(folders_list(f, key, &names, &err), err);
    for (size_t i = 0; i < names.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "",
                 names.at[i]);
    names_release(&names);
    return text;
}

/* The same of its directories, without base. */
static const char *dirs(struct folders *f, const char *key)
{
    static char text[4000];
    size_t k = folders_find(f, key, false);
    assert_true(k != SIZE_MAX);
    text[0] = '\0';
    for (size_t i = 0; i < folders_dirs(f, k); i++) {
        const char *d = folders_dir(f, k, i);
        if (strncmp(d, base, strlen(base)) == 0)
            d += strlen(base) + 1;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? ", " : "", d);
    }
    return text;
}

static void the_table(void **state)
{
    static const char *const key[] = {
        "checkpoints",
        "configs",
        "loras",
        "vae",
        "text_encoders",
        "diffusion_models",
        "clip_vision",
        "style_models",
        "embeddings",
        "diffusers",
        "vae_approx",
        "controlnet",
        "gligen",
        "upscale_models",
        "latent_upscale_models",
        "custom_nodes",
        "datasets",
        "hypernetworks",
        "photomaker",
        "classifiers",
        "model_patches",
        "audio_encoders",
        "background_removal",
        "frame_interpolation",
        "geometry_estimation",
        "optical_flow",
        "detection",
        "unet_gguf",
        "clip_gguf",
    };
    struct folders *f = open_folders(NULL);
    struct stat st;
    char path[1024];
    (void)state;
    assert_int_equal(folders_count(f), ARRAY_LEN(key));
    for (size_t i = 0; i < ARRAY_LEN(key); i++) {
        assert_string_equal(folders_key(f, i), key[i]);
        assert_int_equal(folders_find(f, key[i], true), i);
    }
    assert_string_equal(dirs(f, "diffusion_models"),
                        "models/unet, models/diffusion_models, output/diffusion_models");
    assert_string_equal(dirs(f, "text_encoders"), "models/text_encoders, models/clip, output/clip");
    assert_string_equal(dirs(f, "custom_nodes"), "custom_nodes");
    assert_string_equal(dirs(f, "datasets"), "datasets");
    assert_string_equal(dirs(f, "unet_gguf"), dirs(f, "diffusion_models"));
    assert_int_equal(folders_find(f, "unet", true), SIZE_MAX);
    assert_int_equal(folders_find(f, "unet", false), folders_find(f, "diffusion_models", true));
    assert_int_equal(folders_find(f, "clip", false), folders_find(f, "text_encoders", true));
    assert_int_equal(folders_find(f, "nothing", false), SIZE_MAX);
    static const char *const own[] = { "input", "output", "temp" };
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        snprintf(path, sizeof path, "%s/%s", base, own[i]);
        assert_string_equal(folders_by_kind(f, own[i]), path);
        assert_int_equal(stat(path, &st), 0); /* made */
    }
    assert_null(folders_by_kind(f, "user"));
    assert_null(folders_by_kind(f, ""));
    folders_free(f);
}

static void listings(void **state)
{
    static const char *const file[] = {
        "models/loras/b.safetensors",
        "models/loras/a.SFT",
        "models/loras/sub/deep/c.pt",
        "models/loras/x.txt",
        "models/loras/.git/d.pt",
        "models/loras/e.gguf",
        "models/loras/.pt",
        "models/loras/Z.ckpt",
        "models/unet/u.gguf",
        "models/unet/same.pt",
        "models/diffusion_models/same.pt",
        "models/classifiers/plain",
        "models/classifiers/x.pt",
        "models/configs/v1.yaml",
        "models/diffusers/sd/x.pt",
        "custom_nodes/pack/x.py",
        "output/loras/out.pt",
        "models/loras/\xff.pt",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(file); i++)
        put(file[i]);
    struct folders *f = open_folders(NULL);
    assert_string_equal(list(f, "loras"), "Z.ckpt, a.SFT, b.safetensors, out.pt, sub/deep/c.pt");
    assert_string_equal(list(f, "unet"), "same.pt");
    assert_string_equal(list(f, "unet_gguf"), "u.gguf");
    assert_string_equal(list(f, "classifiers"), "plain");
    assert_string_equal(list(f, "configs"), "v1.yaml");
    assert_string_equal(list(f, "diffusers"), "");
    assert_string_equal(list(f, "custom_nodes"), "pack/x.py");
    assert_string_equal(list(f, "gligen"), ""); /* its directory is not there */
    struct names names = { 0 };
    berth_err err = { 0 };
    assert_fails(folders_list(f, "nothing", &names, &err), err, BERTH_ENOTFOUND, "nothing");
    folders_free(f);
}

/* A listing is kept while mtimes say that nothing changed, and made again when they say so. */
static void listings_are_remembered(void **state)
{
    (void)state;
    put("models/loras/sub/a.pt");
    make_old("models/loras", 1000);
    make_old("models/loras/sub", 1000);
    struct folders *f = open_folders(NULL);
    assert_string_equal(list(f, "loras"), "sub/a.pt");
    put("models/loras/sub/b.pt");
    make_old("models/loras/sub", 1000); /* behind the mtime's back: not seen */
    assert_string_equal(list(f, "loras"), "sub/a.pt");
    make_old("models/loras/sub", 1001);
    assert_string_equal(list(f, "loras"), "sub/a.pt, sub/b.pt");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/loras/sub/a.pt", base);
    assert_int_equal(unlink(path), 0);
    assert_string_equal(list(f, "loras"), "sub/b.pt");
    /* Changed just now: the mtime may stand for more than one change, so it proves nothing. */
    struct stat st;
    struct timespec t[2];
    snprintf(path, sizeof path, "%s/models/loras/sub", base);
    assert_int_equal(stat(path, &st), 0);
    put("models/loras/sub/c.pt");
    t[0] = st.st_atim, t[1] = st.st_mtim;
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    assert_string_equal(list(f, "loras"), "sub/b.pt, sub/c.pt");
    /* A directory that was not there comes. */
    assert_string_equal(list(f, "gligen"), "");
    put("models/gligen/g.pt");
    assert_string_equal(list(f, "gligen"), "g.pt");
    folders_free(f);
}

static void links(void **state)
{
    char path[1024];
    (void)state;
    put("models/loras/a.pt");
    put("elsewhere/e.pt");
    static const char *const link[][2] = {
        { "../loras", "loop" },       { ".", "self" },
        { "../../elsewhere", "far" }, { "../../elsewhere", "far2" },
        { "gone", "dangling.pt" },    { "../../elsewhere/e.pt", "l.pt" },
    };
    for (size_t i = 0; i < ARRAY_LEN(link); i++) {
        snprintf(path, sizeof path, "%s/models/loras/%s", base, link[i][1]);
        assert_int_equal(symlink(link[i][0], path), 0);
    }
    snprintf(path, sizeof path, "%s/elsewhere/back", base); /* out and in again */
    assert_int_equal(symlink("../models/loras", path), 0);
    struct folders *f = open_folders(NULL);
    assert_string_equal(list(f, "loras"), "a.pt, far/e.pt, far2/e.pt, l.pt");
    folders_free(f);
}

/* Two links to each other's folders in every one of them: without limits this never ends. */
static void a_maze_of_links(void **state)
{
    char path[1024], to[64];
    (void)state;
    put("models/loras/x.pt");
    for (int i = 0; i < 12; i++) {
        snprintf(path, sizeof path, "models/loras/d%d/f.pt", i);
        put(path);
        for (int k = 0; k < 12; k++) {
            snprintf(path, sizeof path, "%s/models/loras/d%d/l%d", base, i, k);
            snprintf(to, sizeof to, "../d%d", k);
            assert_int_equal(symlink(to, path), 0);
        }
    }
    struct folders *f = open_folders(NULL);
    struct names names = { 0 };
    berth_err err = { 0 };
    assert_ok(folders_list(f, "loras", &names, &err), err);
    assert_true(names.n > 12 && names.n <= FOLDERS_FILES_MAX);
    assert_true(names_has(&names, "x.pt"));
    names_release(&names);
    folders_free(f);
}

static void names_resolve(void **state)
{
    static const struct {
        const char *key, *name, *is;
    } row[] = {
        { "loras", "a.pt", "models/loras/a.pt" },
        { "loras", "sub/b.pt", "models/loras/sub/b.pt" },
        { "loras", "/a.pt", "models/loras/a.pt" },
        { "loras", "../../../loras/../a.pt", "models/loras/a.pt" }, /* as if rooted */
        { "loras", "./sub/../a.pt", "models/loras/a.pt" },
        { "unet", "same.pt", "models/unet/same.pt" }, /* the first directory wins */
        { "diffusion_models", "d.pt", "models/diffusion_models/d.pt" },
        { "diffusion_models", "file/x.pt", "models/diffusion_models/file/x.pt" },
        { "loras", "far.pt", "models/loras/far.pt" }, /* links may lead out */
        { "loras", "sub", NULL },
        { "loras", "none.pt", NULL },
        { "loras", "../vae/v.pt", NULL },
        { "loras", "../../../../../etc/passwd", NULL },
        { "loras", "", NULL },
        { "loras", "a.pt/x", NULL },
        { "loras", "a\x01.pt", NULL },
    };
    (void)state;
    put("models/loras/a.pt");
    put("models/loras/sub/b.pt");
    put("models/vae/v.pt");
    put("models/unet/same.pt");
    put("models/unet/file");
    put("models/diffusion_models/same.pt");
    put("models/diffusion_models/d.pt");
    put("models/diffusion_models/file/x.pt"); /* a folder here, a file in the one before */
    put("elsewhere/e.pt");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/loras/far.pt", base);
    assert_int_equal(symlink("../../elsewhere/e.pt", path), 0);
    struct folders *f = open_folders(NULL);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str out = { 0 };
        berth_err err = { 0 };
        berth_status s = folders_resolve(f, row[i].key, row[i].name, &out, &err);
        if (row[i].is) {
            assert_ok(s, err);
            snprintf(path, sizeof path, "%s/%s", base, row[i].is);
            assert_string_equal(str_c(&out), path);
        } else {
            assert_fails(s, err, BERTH_ENOTFOUND, "models/loras");
            assert_int_equal(out.n, 0);
        }
        str_release(&out);
    }
    struct str out = { 0 };
    berth_err err = { 0 };
    assert_fails(folders_resolve(f, "nope", "x", &out, &err), err, BERTH_ENOTFOUND, "nope");
    str_release(&out);
    folders_free(f);
}

static void files_with_sizes(void **state)
{
    struct folders *f;
    struct folder_files files;
    berth_err err = { 0 };
    (void)state;
    put("models/unet/same.pt");
    put("models/diffusion_models/same.pt");
    put("models/diffusion_models/a/b.pt");
    f = open_folders(NULL);
    assert_ok(folders_files(f, folders_find(f, "unet", false), &files, &err), err);
    assert_int_equal(files.n, 3);
    assert_string_equal(files.at[0].name, "same.pt");
    assert_int_equal(files.at[0].path_index, 0);
    assert_string_equal(files.at[1].name, "a/b.pt");
    assert_int_equal(files.at[1].path_index, 1);
    assert_int_equal(files.at[1].size, 0);
    assert_true(files.at[1].modified > 1e9 && files.at[1].created > 1e9);
    folder_files_release(&files);
    folders_free(f);
}

static void inputs(void **state)
{
    struct folders *f;
    struct names names = { 0 };
    berth_err err = { 0 };
    (void)state;
    put("input/b.png");
    put("input/a.JPG");
    put("input/v.mp4");
    put("input/sub/c.png");
    f = open_folders(NULL);
    put("outside.png"); /* links as validation takes them: not out of the folder */
    static const char *const link[][2] = {
        { "../outside.png", "out" }, { "b.png", "in" }, { "nowhere", "lost" }, { "sub", "dir" }
    };
    for (size_t i = 0; i < 4; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/input/%s.png", base, link[i][1]);
        assert_int_equal(symlink(link[i][0], path), 0);
    }
    assert_ok(folders_inputs(f, &names, &err), err);
    assert_int_equal(names.n, 4);
    assert_string_equal(names.at[0], "a.JPG");
    assert_string_equal(names.at[2], "in.png");
    assert_string_equal(names.at[3], "v.mp4");
    names_release(&names);
    folders_free(f);
}

/* ---- YAML files ---- */

static void yaml_adds_folders(void **state)
{
    (void)state;
    struct folders *f = open_folders("one:\n"
                                     "  base_path: /data\n"
                                     "  checkpoints: ck\n"
                                     "  loras: |\n"
                                     "    l1\n"
                                     "    l2/../l3\n"
                                     "  unet: u\n"
                                     "  my_new_key: foo\n"
                                     "  ../custom: /abs\n"
                                     "nothing:\n"
                                     "two:\n"
                                     "  vae: rel/vae\n" /* relative to the YAML file */
                                     "  checkpoints: /data/ck\n" /* known already */);
    char want[2000];
    assert_string_equal(dirs(f, "checkpoints"), "models/checkpoints, /data/ck, output/checkpoints");
    assert_string_equal(dirs(f, "loras"), "models/loras, /data/l1, /data/l3, output/loras");
    assert_string_equal(dirs(f, "diffusion_models"),
                        "models/unet, models/diffusion_models, /data/u, output/diffusion_models");
    assert_string_equal(dirs(f, "unet_gguf"), dirs(f, "diffusion_models"));
    assert_string_equal(dirs(f, "my_new_key"), "/data/foo");
    snprintf(want, sizeof want, "models/vae, %s, output/vae", tmp_path("rel/vae"));
    assert_string_equal(dirs(f, "vae"), want);
    assert_string_equal(folders_key(f, folders_count(f) - 2), "my_new_key"); /* behind the table */
    folders_free(f);
}

static void yaml_lists_and_aliases_add_folders(void **state)
{
    (void)state;
    struct folders *f = open_folders("a: &a\n"
                                     "  base_path: /data\n"
                                     "  loras: [l1, 'l 2']\n"
                                     "  vae:\n"
                                     "  - v1\n"
                                     "  - /abs\n"
                                     "b:\n"
                                     "  <<: *a\n"
                                     "  base_path: /more\n");
    assert_string_equal(dirs(f, "loras"),
                        "models/loras, /data/l1, /data/l 2, /more/l1, /more/l 2, output/loras");
    assert_string_equal(dirs(f, "vae"), "models/vae, /data/v1, /abs, /more/v1, output/vae");
    folders_free(f);
}

static void yaml_defaults_come_first(void **state)
{
    (void)state;
    struct folders *f = open_folders("a:\n"
                                     "  is_default: true\n"
                                     "  base_path: /d\n"
                                     "  loras: |\n"
                                     "    one\n"
                                     "    two\n"
                                     "  vae: \"\"\n"
                                     "  embeddings: ~\n"
                                     "b:\n"
                                     "  is_default: no\n"
                                     "  loras: /d/three\n"
                                     "c:\n"
                                     "  is_default: 1\n"
                                     "  loras: /d/three\n");
    assert_string_equal(dirs(f, "loras"), "/d/three, /d/two, /d/one, models/loras, output/loras");
    assert_string_equal(dirs(f, "vae"), "models/vae, output/vae");
    assert_string_equal(dirs(f, "embeddings"), "models/embeddings");
    folders_free(f);
}

static void yaml_base_paths(void **state)
{
    static const struct {
        const char *base_path, *is;
    } row[] = {
        { "~/", "/home/me/x" },
        { "\"~\"", "/home/me/x" }, /* without quotes it is null */
        { "~/ai/comfy/", "/home/me/ai/comfy/x" },
        { "~other/ai", NULL }, /* stays a name */
        { "$MODELS", "/big/models/x" },
        { "${MODELS}/sd", "/big/models/sd/x" },
        { "/a/$UNSET/b", "/a/$UNSET/b/x" },
        { "/a/$MODELS_", "/a/$MODELS_/x" },
        { "/a/${MODELS/b", "/a/${MODELS/b/x" },
        { "/a/$", "/a/$/x" },
        { "sub", NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char yaml[200], want[1024];
        snprintf(yaml, sizeof yaml, "s:\n  new: x\n  base_path: %s\n", row[i].base_path);
        struct folders *f = open_folders(yaml);
        if (row[i].is)
            snprintf(want, sizeof want, "%s", row[i].is);
        else
            snprintf(want, sizeof want, "%s/%s/x", tmp_dir(), row[i].base_path);
        assert_string_equal(dirs(f, "new"), want);
        folders_free(f);
    }
}

static void yaml_errors_name_the_line(void **state)
{
    struct folders *f;
    berth_err err = { 0 };
    (void)state;
    assert_fails(try_open("a:\n  loras: [[x]]\n", &f, &err), err, BERTH_EFORMAT, "line 2");
    assert_null(f);
    assert_fails(try_open("a:\n  is_default: maybe\n", &f, &err), err, BERTH_EFORMAT,
                 "line 2: is_default");
    assert_fails(try_open("a:\n  base_path: [x]\n", &f, &err), err, BERTH_EFORMAT,
                 "line 2: base_path: a list");
    const char *none = tmp_path("none.yaml");
    struct folders_config cfg = { .base = base, .yaml = &none, .yamls = 1 };
    assert_fails(folders_new(&cfg, &f, &err), err, BERTH_ENOTFOUND, "none.yaml");
}

/* The model that comes with the binary: listed among the others, behind them where names are
 * equal. */
static void further_checkpoints_come_last(void **state)
{
    struct folders *f;
    struct str out = { 0 };
    berth_err err = { 0 };
    char more[600];
    (void)state;
    snprintf(more, sizeof more, "%s/../came_along/./", base);
    struct folders_config cfg = { .base = base, .checkpoints = more };
    assert_ok(folders_new(&cfg, &f, &err), err);
    size_t key = folders_find(f, "checkpoints", true), n = folders_dirs(f, key);
    assert_true(n > 1);
    assert_non_null(strstr(folders_dir(f, key, n - 1), "/came_along"));
    assert_null(strstr(folders_dir(f, key, n - 1), "/.."));
    assert_ok(path_make_dirs(folders_dir(f, key, 0), &err), err);
    assert_ok(path_make_dirs(folders_dir(f, key, n - 1), &err), err);
    for (size_t i = 0; i < 2; i++) {
        char path[800];
        snprintf(path, sizeof path, "%s/demo.safetensors", folders_dir(f, key, i ? 0 : n - 1));
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        str_clear(&out);
        assert_ok(folders_resolve(f, "checkpoints", "demo.safetensors", &out, &err), err);
        assert_string_equal(str_c(&out), path);
    }
    str_release(&out);
    folders_free(f);
}

static void *list_and_resolve(void *user)
{
    struct folders *f = user;
    for (int i = 0; i < 100; i++) {
        struct names names = { 0 };
        struct str out = { 0 };
        berth_err err = { 0 };
        if (folders_list(f, i % 2 ? "loras" : "vae", &names, &err) || names.n < 1 ||
            folders_resolve(f, "loras", "a.pt", &out, &err))
            return "failed";
        names_release(&names);
        str_release(&out);
    }
    return NULL;
}

static void threads_list_at_once(void **state)
{
    pthread_t t[4];
    void *said;
    (void)state;
    put("models/loras/a.pt");
    put("models/vae/v.pt");
    struct folders *f = open_folders(NULL);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_int_equal(pthread_create(&t[i], NULL, list_and_resolve, f), 0);
    for (int i = 0; i < 50; i++) {
        char name[64];
        snprintf(name, sizeof name, "models/loras/new%d.pt", i);
        put(name);
    }
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        assert_int_equal(pthread_join(t[i], &said), 0);
        assert_null(said);
    }
    folders_free(f);
}

static void survives_oom(void **state)
{
    berth_status s = BERTH_ENOMEM;
    (void)state;
    put("models/loras/a.pt");
    for (long k = 0; s != BERTH_OK; k++) {
        struct folders *f = NULL;
        struct names names = { 0 };
        berth_err err = { 0 };
        static const char yaml[] = "a:\n  base_path: ~/x\n  new: |\n    y\n    z\n";
        tmp_write("extra.yaml", yaml, sizeof yaml - 1);
        oom_after(k);
        struct folders_config cfg = { .base = base, .env = test_env };
        char path[600];
        snprintf(path, sizeof path, "%s/../extra.yaml", base);
        const char *file = path;
        cfg.yaml = &file;
        cfg.yamls = 1;
        s = folders_new(&cfg, &f, &err);
        if (!s)
            s = folders_list(f, "loras", &names, &err);
        struct str out = { 0 };
        if (!s)
            s = folders_resolve(f, "loras", "a.pt", &out, &err);
        oom_off();
        if (s != BERTH_OK && s != BERTH_ENOMEM)
            fail_msg("%s", err.msg);
        assert_true(s == BERTH_OK || err.msg[0]);
        str_release(&out);
        names_release(&names);
        folders_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(further_checkpoints_come_last, setup),
        cmocka_unit_test_setup(the_table, setup),
        cmocka_unit_test_setup(listings, setup),
        cmocka_unit_test_setup(listings_are_remembered, setup),
        cmocka_unit_test_setup(links, setup),
        cmocka_unit_test_setup(a_maze_of_links, setup),
        cmocka_unit_test_setup(names_resolve, setup),
        cmocka_unit_test_setup(files_with_sizes, setup),
        cmocka_unit_test_setup(inputs, setup),
        cmocka_unit_test_setup(yaml_adds_folders, setup),
        cmocka_unit_test_setup(yaml_lists_and_aliases_add_folders, setup),
        cmocka_unit_test_setup(yaml_defaults_come_first, setup),
        cmocka_unit_test_setup(yaml_base_paths, setup),
        cmocka_unit_test_setup(yaml_errors_name_the_line, setup),
        cmocka_unit_test_setup(threads_list_at_once, setup),
        cmocka_unit_test_setup(survives_oom, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
