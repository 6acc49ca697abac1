/* dataset_folder: folders of pictures, each perhaps with a text beside it, in and out. Files are
 * taken in the order of their names, where ComfyUI takes them as the disk has them. */
#include "node/node_impl.h"

#include "base/file.h"
#include "node/py.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PICTURES_MAX 100000
#define CAPTION_MAX ((size_t)1 << 20)

#define V3_LIST NODE_V3 | NODE_EXPERIMENTAL

static berth_status list_folders(const struct node_env *env, struct names *out, berth_err *err)
{
    return folders_input_dirs(env->folders, out, err);
}

/* ---- in ---- */

static bool is_picture(const char *name)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".webp" };
    size_t n = strlen(name);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (n >= strlen(ends[i]) && strcasecmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Names in a folder of the input folder, in order: pictures, or folders. */
static berth_status entries(const struct node_env *env, const char *folder, bool folders,
                            struct names *out, berth_err *err)
{
    struct str path = { 0 };
    berth_status s = input_path(env, folder, &path, err);
    DIR *d = s ? NULL : opendir(str_c(&path));
    if (!s && !d)
        s = err_sys(err, BERTH_ENOTFOUND, errno, "folder '%s'", folder);
    for (struct dirent *e; !s && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' && (!e->d_name[1] || strcmp(e->d_name, "..") == 0))
            continue;
        bool picture = is_picture(e->d_name);
        if (picture == folders || !str_is_utf8(e->d_name, strlen(e->d_name)) ||
            (folders && (fstatat(dirfd(d), e->d_name, &st, 0) || !S_ISDIR(st.st_mode))))
            continue;
        if (out->n == PICTURES_MAX)
            s = err_set(err, BERTH_ELIMIT, "'%s' has more than %d files", folder, PICTURES_MAX);
        else if (!names_add(out, e->d_name, strlen(e->d_name)))
            s = err_set(err, BERTH_ENOMEM, "files of '%s'", folder);
    }
    if (d)
        closedir(d);
    str_release(&path);
    names_sort(out);
    return s;
}

struct listing {   /* of files, as "folder/file" in the input folder */
    struct vec at; /* char *, owned by mem */
    struct arena mem;
};

static berth_status add_pictures(const struct node_env *env, const char *folder, uint64_t times,
                                 struct listing *to, berth_err *err)
{
    struct names found = { 0 };
    berth_status s = entries(env, folder, false, &found, err);
    for (uint64_t r = 0; !s && found.n && r < times; r++)
        for (size_t i = 0; !s && i < found.n; i++) {
            size_t n = strlen(folder) + strlen(found.at[i]) + 2;
            char *name = arena_array(&to->mem, n, 1);
            if (to->at.n == PICTURES_MAX)
                s = err_set(err, BERTH_ELIMIT, "more than %d pictures", PICTURES_MAX);
            else if (!name || !vec_push(&to->at, &name))
                s = err_set(err, BERTH_ENOMEM, "%zu pictures", to->at.n);
            else
                snprintf(name, n, "%s/%s", folder, found.at[i]);
        }
    names_release(&found);
    return s;
}

/* "12_cat": its pictures count 12 times. */
static uint64_t repeats_of(const char *folder)
{
    const char *end = folder;
    uint64_t n;
    while (isdigit((unsigned char)*end))
        end++;
    return end > folder && (!*end || *end == '_') &&
                   str_parse_u64(folder, (size_t)(end - folder), &n)
               ? n
               : 1;
}

static berth_status add_folders(const struct node_env *env, const char *folder, struct listing *to,
                                berth_err *err)
{
    struct names found = { 0 };
    struct str path = { 0 };
    berth_status s = entries(env, folder, true, &found, err);
    for (size_t i = 0; !s && i < found.n; i++) {
        str_clear(&path);
        str_addf(&path, "%s/%s", folder, found.at[i]);
        s = path.bad ? err_set(err, BERTH_ENOMEM, "a path")
                     : add_pictures(env, str_c(&path), repeats_of(found.at[i]), to, err);
    }
    str_release(&path);
    names_release(&found);
    return s;
}

static berth_status give_picture(struct node_call *c, const char *name, berth_err *err)
{
    struct image_file f;
    struct htensor *t = NULL;
    berth_status s = load_picture(c, name, true, &f, err);
    if (!s)
        s = image_tensor(1, f.frame[0].h, f.frame[0].w, 3, &t, err);
    if (!s)
        s = put_rgb(&f.frame[0], t, 0, err);
    image_file_release(&f);
    if (!s)
        return values_add(&c->out[0], value_tensor(t), err);
    htensor_unref(t);
    return s;
}

/* The text beside a picture, "" where there is none. */
static berth_status give_caption(struct node_call *c, const char *name, berth_err *err)
{
    struct str text = { 0 }, path = { 0 };
    struct stat st;
    char *bytes = NULL;
    size_t n = 0;
    str_add(&text, name, (size_t)(strrchr(name, '.') - name));
    str_adds(&text, ".txt");
    berth_status s = text.bad ? err_set(err, BERTH_ENOMEM, "a path")
                              : input_path(c->env, str_c(&text), &path, err);
    if (!s && !stat(str_c(&path), &st))
        s = file_read_all(str_c(&path), CAPTION_MAX, &bytes, &n, err);
    if (!s && !str_is_utf8(bytes ? bytes : "", n))
        s = err_set(err, BERTH_EINVAL, "'%s' is not UTF-8", str_c(&text));
    const char *from = bytes ? bytes : "";
    if (!s) {
        py_strip(&from, &n, true, true);
        s = values_add(&c->out[1], value_string(from, n), err);
    }
    free(bytes);
    str_release(&text);
    str_release(&path);
    return s;
}

static berth_status run_load(struct node_call *c, berth_err *err)
{
    const bool texts = c->cls->outs > 1;
    struct listing all = { .at.elem = sizeof(char *) };
    const char *folder;
    berth_status s = in_text(c, "folder", &folder, err);
    if (!s)
        s = add_pictures(c->env, folder, 1, &all, err);
    if (!s && texts)
        s = add_folders(c->env, folder, &all, err);
    if (!s && !all.at.n)
        s = err_set(err, BERTH_EINVAL, "No valid images found in input");
    for (size_t i = 0; !s && i < all.at.n; i++) {
        const char *name = *(char **)vec_at(&all.at, i);
        s = give_picture(c, name, err);
        if (!s && texts)
            s = give_caption(c, name, err);
        if (!s)
            s = call_check(c, err);
    }
    vec_release(&all.at);
    arena_release(&all.mem);
    return s;
}

#define FOLDER_OF                                                                                  \
    {                                                                                              \
        .name = "folder", .kind = IN_COMBO, .options_fn = list_folders                             \
    }
NODE_CLASS(LoadImageDataSetFromFolder, .display = "Load Image (from Folder)", .category = "image",
           .module = MOD("dataset"), .flags = V3_LIST,
           .description = "Loads every picture of a folder, each by itself.", INS(FOLDER_OF),
           OUTS({ .type = "IMAGE", .name = "images", .is_list = true }), .run = run_load);
NODE_CLASS(LoadImageTextDataSetFromFolder, .display = "Load Image-Text (from Folder)",
           .category = "image", .module = MOD("dataset"), .flags = V3_LIST,
           .description = "Loads every picture of a folder and the text beside it.", INS(FOLDER_OF),
           OUTS({ .type = "IMAGE", .name = "images", .is_list = true },
                { .type = "STRING", .name = "texts", .is_list = true }),
           .run = run_load);

/* ---- out ---- */

static berth_status write_file(const char *path, const char *p, size_t n, berth_err *err)
{
    struct file_new *f;
    if (file_new_open(path, n, &f, err))
        return err->code;
    if (!file_new_write(f, p, n, err))
        return file_new_commit(f, err);
    file_new_abort(f);
    return err->code;
}

/* Where picture i goes, without its ending: <prefix>_<i>, or <prefix>_<counter>_<i>. */
static berth_status stem(struct saved *to, bool overwrite, size_t i, struct str *out,
                         berth_err *err)
{
    str_clear(out);
    str_addf(out, "%s/%s_", str_c(&to->path.folder), str_c(&to->path.name));
    if (!overwrite)
        str_addf(out, "%05" PRIu64 "_", to->path.counter++);
    str_addf(out, "%05zu", i);
    return out->bad ? err_set(err, BERTH_ENOMEM, "a path") : BERTH_OK;
}

static berth_status save_picture(struct node_call *c, const struct htensor *t, const char *path,
                                 berth_err *err)
{
    struct image im = { 0 };
    struct str png = { 0 };
    const struct image_png_args args = { .level = 6, .cancel = cancel_of(c) };
    if (t->shape.ndim != 4 || dim(t, 0) != 1)
        return err_set(err, BERTH_EINVAL, "%zu pictures at once, not one by one",
                       t->shape.ndim ? dim(t, 0) : 0);
    berth_status s = image_8bit(t, 0, &im, err);
    if (!s)
        s = image_png(&im, &args, &png, err);
    if (!s)
        s = write_file(path, str_c(&png), png.n, err);
    image_release(&im);
    str_release(&png);
    return s;
}

/* Input `name` of an INPUT_IS_LIST node: its first value. */
static berth_status first_text(struct node_call *c, const char *name, const char *otherwise,
                               const char **out, berth_err *err)
{
    const struct values *v = &c->in[node_input_index(c->cls, name)];
    *out = otherwise;
    if (!v->n)
        return BERTH_OK;
    if (v->at[0]->kind != V_STRING)
        return err_set(err, BERTH_EINVAL, "input '%s' wants a text", name);
    *out = v->at[0]->s.p;
    return BERTH_OK;
}

static berth_status save_all(struct node_call *c, struct saved *to, bool overwrite, berth_err *err)
{
    const struct values *images = &c->in[node_input_index(c->cls, "images")], *texts = NULL;
    struct str path = { 0 };
    berth_status s = BERTH_OK;
    if (node_input_index(c->cls, "texts") != SIZE_MAX)
        texts = &c->in[node_input_index(c->cls, "texts")];
    for (size_t i = 0; !s && i < images->n; i++) {
        const struct value *v = images->at[i];
        s = v->kind == V_TENSOR ? stem(to, overwrite, i, &path, err)
                                : err_set(err, BERTH_EINVAL, "input 'images' wants pictures");
        size_t n = path.n;
        if (!s) {
            str_adds(&path, ".png");
            s = path.bad ? err_set(err, BERTH_ENOMEM, "a path")
                         : save_picture(c, v->tensor, str_c(&path), err);
        }
        if (!s && texts && i < texts->n) {
            const struct value *text = texts->at[i];
            path.n = n;
            str_adds(&path, ".txt");
            s = text->kind != V_STRING ? err_set(err, BERTH_EINVAL, "input 'texts' wants texts")
                : path.bad             ? err_set(err, BERTH_ENOMEM, "a path")
                                       : write_file(str_c(&path), text->s.p, text->s.n, err);
        }
        if (!s)
            s = call_check(c, err);
    }
    str_release(&path);
    return s;
}

static berth_status run_save(struct node_call *c, berth_err *err)
{
    const char *folder, *prefix, *mode;
    struct saved to = { 0 };
    struct str all = { 0 };
    if (first_text(c, "folder_name", "dataset", &folder, err) ||
        first_text(c, "filename_prefix", "image", &prefix, err) ||
        first_text(c, "mode", "overwrite", &mode, err))
        return err->code;
    str_addf(&all, "%s/%s", folder, prefix);
    berth_status s = all.bad ? err_set(err, BERTH_ENOMEM, "a path")
                             : save_begin(c, "output", str_c(&all), 0, 0, &to, err);
    if (!s)
        s = save_all(c, &to, strcmp(mode, "overwrite") == 0, err);
    save_end(&to);
    str_release(&all);
    return s;
}

#define SAVE_FLAGS V3_LIST | NODE_OUTPUT | NODE_INPUT_IS_LIST | NODE_PROMPT | NODE_EXTRA_PNGINFO
#define PLAIN "\"multiline\":false"
#define SAVE_IN                                                                                    \
    TEXT_IN("folder_name", "dataset", .more = PLAIN),                                              \
        TEXT_IN("filename_prefix", "image", .more = "\"advanced\":true," PLAIN),                   \
        COMBO_IN("mode", CHOICES("overwrite", "increment"), .sdef = "overwrite")
NODE_CLASS(SaveImageDataSetToFolder, .display = "Save Image (to Folder) (DEPRECATED)",
           .category = "image", .module = MOD("dataset"), .flags = SAVE_FLAGS | NODE_DEPRECATED,
           .description = "Saves pictures to a folder of the output folder.",
           INS(SOCKET("images", "IMAGE"), SAVE_IN), .run = run_save);
NODE_CLASS(
    SaveImageTextDataSetToFolder, .display = "Save Image-Text (to Folder)", .category = "image",
    .module = MOD("dataset"), .flags = SAVE_FLAGS,
    .description = "Saves pictures, and a text beside each, to a folder of the output folder.",
    INS(SOCKET("images", "IMAGE"), SAVE_IN,
        TEXT_IN("texts", NULL, .optional = true, .no_default = true,
                .more = "\"forceInput\":true," PLAIN)),
    .run = run_save);
