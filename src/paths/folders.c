/* folders: the table of keys and directories; names resolved in it. */
#include "paths/folders_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

bool names_add(struct names *x, const char *s, size_t n)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 16;
        char **at = realloc(x->at, cap * sizeof *at); /* n is bounded by what fits into memory */
        if (!at)
            return false;
        x->at = at;
        x->cap = cap;
    }
    char *copy = malloc(n + 1);
    if (!copy)
        return false;
    memcpy(copy, s, n);
    copy[n] = '\0';
    x->at[x->n++] = copy;
    return true;
}

static int by_bytes(const void *a, const void *b) /* in UTF-8 that is by code point */
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void names_sort(struct names *x)
{
    if (x->n < 2)
        return;
    qsort(x->at, x->n, sizeof *x->at, by_bytes);
    size_t kept = 1;
    for (size_t i = 1; i < x->n; i++)
        if (strcmp(x->at[i], x->at[kept - 1]) == 0)
            free(x->at[i]);
        else
            x->at[kept++] = x->at[i];
    x->n = kept;
}

void names_release(struct names *x)
{
    for (size_t i = 0; i < x->n; i++)
        free(x->at[i]);
    free(x->at);
    *x = (struct names) { 0 };
}

/* ---- the table ---- */

static const char *const own_name[] = { "input", "output", "temp", "user" };

static const struct {
    const char *key, *dirs, *like;
    enum folder_ext ext;
} table[] = {
#define FOLDER(key, dirs, ext) { key, dirs, NULL, ext },
#define FOLDER_GGUF(key, like) { key, NULL, like, EXT_GGUF },
#include "paths/folders.def"
#undef FOLDER
#undef FOLDER_GGUF
};

/* Sorted. */
static const char *const ext_any[] = { NULL };
static const char *const ext_models[] = { ".bin", ".ckpt",        ".pkl", ".pt", ".pt2",
                                          ".pth", ".safetensors", ".sft", NULL };
static const char *const ext_gguf[] = { ".gguf", NULL };
static const char *const ext_yaml[] = { ".yaml", NULL };
static const char *const ext_none[] = { "", NULL };
static const char *const ext_nothing[] = { "folder", NULL };
static const char *const *const ext_lists[] = {
    [EXT_ANY] = ext_any,   [EXT_MODELS] = ext_models, [EXT_GGUF] = ext_gguf,
    [EXT_YAML] = ext_yaml, [EXT_NONE] = ext_none,     [EXT_NOTHING] = ext_nothing,
};

bool ext_matches(enum folder_ext ext, const char *name)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    const char *from = slash ? slash + 1 : name;
    from += strspn(from, "."); /* dots in front make a name hidden, they start no suffix */
    const char *suffix = dot && dot > from ? dot : "";
    if (ext == EXT_ANY)
        return true;
    for (const char *const *e = ext_lists[ext]; *e; e++)
        if (strcasecmp(suffix, *e) == 0)
            return true;
    return false;
}

const char *const *folders_extensions(const struct folders *f, size_t key)
{
    return ext_lists[folder_at(f, key)->ext];
}

struct folder *folder_at(const struct folders *f, size_t i)
{
    return vec_at(&f->folder, i);
}

static const char *modern(const char *key, size_t *n)
{
    const char *now = str_eq(key, *n, "unet")   ? "diffusion_models"
                      : str_eq(key, *n, "clip") ? "text_encoders"
                                                : key;
    *n = now == key ? *n : strlen(now);
    return now;
}

static size_t find(const struct folders *f, const char *key, size_t n)
{
    for (size_t i = 0; i < f->folder.n; i++)
        if (str_eq(key, n, folder_at(f, i)->key))
            return i;
    return SIZE_MAX;
}

size_t folders_find(const struct folders *f, const char *key, bool exact)
{
    size_t n = strlen(key);
    if (!exact)
        key = modern(key, &n);
    return find(f, key, n);
}

bool folders_add(struct folders *f, const char *key, size_t n, const char *path, bool first)
{
    key = modern(key, &n);
    size_t i = find(f, key, n);
    if (i == SIZE_MAX) {
        struct folder *new = vec_add(&f->folder);
        if (!new)
            return false;
        *new = (struct folder) { .key = strndup(key, n), .like = SIZE_MAX, .ext = EXT_ANY };
        new->listing.dir.elem = sizeof(struct walked);
        i = f->folder.n - 1;
        if (!new->key) {
            vec_pop(&f->folder);
            return false;
        }
    }
    struct names *d = &folder_at(f, i)->dirs;
    size_t at = 0;
    while (at < d->n && strcmp(d->at[at], path) != 0)
        at++;
    if (at == d->n && !names_add(d, path, strlen(path)))
        return false;
    if (first) {
        char *front = d->at[at];
        memmove(d->at + 1, d->at, at * sizeof *d->at);
        d->at[0] = front;
    }
    return true;
}

/* The keys of folders.def under base. */
static bool add_table(struct folders *f)
{
    struct str path = { 0 };
    bool ok = true;
    for (size_t i = 0; ok && i < ARRAY_LEN(table); i++) {
        const char *d = table[i].dirs;
        if (!d) { /* its directories are another's: only the key is added */
            ok = folders_add(f, table[i].key, strlen(table[i].key), "/", false);
            if (!ok)
                break;
            names_release(&folder_at(f, f->folder.n - 1)->dirs);
            folder_at(f, f->folder.n - 1)->like = find(f, table[i].like, strlen(table[i].like));
        }
        while (ok && d && *d) {
            size_t n = strcspn(d, ",");
            bool up = str_starts(d, n, "../");
            path_join(f->own[up ? FOLDERS_BASE : FOLDERS_MODELS], up ? d + 3 : d, up ? n - 3 : n,
                      &path);
            ok = !path.bad && folders_add(f, table[i].key, strlen(table[i].key), path.p, false);
            d += n + (d[n] == ',');
        }
        if (ok)
            folder_at(f, f->folder.n - 1)->ext = table[i].ext;
    }
    str_release(&path);
    return ok;
}

/* Where nodes save models is where loaders look for them, last of all. */
static bool add_outputs(struct folders *f)
{
    static const char *const key[] = { "checkpoints", "clip", "vae", "diffusion_models", "loras" };
    struct str path = { 0 };
    bool ok = true;
    for (size_t i = 0; ok && i < ARRAY_LEN(key); i++) {
        path_join(f->own[FOLDERS_OUTPUT], key[i], strlen(key[i]), &path);
        ok = !path.bad && folders_add(f, key[i], strlen(key[i]), path.p, false);
    }
    str_release(&path);
    return ok;
}

/* Absolute and normalised; a relative path is meant from the working directory. NULL: no memory, or
 * there is no such directory any more. */
static char *absolute(const char *path)
{
    struct str out = { 0 };
    char cwd[PATH_MAX];
    if (path[0] == '/' || getcwd(cwd, sizeof cwd))
        path_join(path[0] == '/' ? "/" : cwd, path, strlen(path), &out);
    return str_take(&out);
}

static char *own_folder(const struct folders *f, const char *given, const char *name)
{
    struct str out = { 0 };
    if (given)
        return absolute(given);
    path_join(f->own[FOLDERS_BASE], name, strlen(name), &out);
    return str_take(&out);
}

static berth_status open_own(struct folders *f, const struct folders_config *cfg, berth_err *err)
{
    const char *given[] = { cfg->input, cfg->output, cfg->temp, cfg->user };
    f->own[FOLDERS_BASE] = absolute(cfg->base);
    if (!f->own[FOLDERS_BASE])
        return err_set(err, BERTH_ENOMEM, "folder '%s'", cfg->base);
    f->own[FOLDERS_MODELS] = own_folder(f, cfg->models, "models");
    if (!f->own[FOLDERS_MODELS])
        return err_set(err, BERTH_ENOMEM, "the models folder");
    for (size_t i = 0; i < FOLDERS_BASE; i++) {
        f->own[i] = own_folder(f, given[i], own_name[i]);
        if (!f->own[i])
            return err_set(err, BERTH_ENOMEM, "the %s folder", own_name[i]);
        if (path_make_dirs(f->own[i], err))
            return err_add(err, "the %s folder", own_name[i]);
    }
    return BERTH_OK;
}

/* What comes with the binary: a model of that name elsewhere is meant before it. */
static bool add_checkpoints(struct folders *f, const char *given)
{
    static const char key[] = "checkpoints";
    char *path = given ? absolute(given) : NULL;
    bool ok = !given || (path && folders_add(f, key, sizeof key - 1, path, false));
    free(path);
    return ok;
}

berth_status folders_new(const struct folders_config *cfg, struct folders **out, berth_err *err)
{
    *out = NULL;
    struct folders *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(err, BERTH_ENOMEM, "the folders under '%s'", cfg->base);
    f->folder.elem = sizeof(struct folder);
    f->log = cfg->log;
    int why = pthread_mutex_init(&f->lock, NULL);
    f->locked = why == 0;
    berth_status s =
        why ? err_sys(err, BERTH_EIO, why, "a lock for the folders") : open_own(f, cfg, err);
    if (!s && !add_table(f))
        s = err_set(err, BERTH_ENOMEM, "the folders under '%s'", f->own[FOLDERS_BASE]);
    for (size_t i = 0; !s && i < cfg->yamls; i++)
        s = extra_load(f, cfg, cfg->yaml[i], err);
    if (!s && !add_outputs(f))
        s = err_set(err, BERTH_ENOMEM, "the folders under '%s'", f->own[FOLDERS_OUTPUT]);
    if (!s && !add_checkpoints(f, cfg->checkpoints))
        s = err_set(err, BERTH_ENOMEM, "checkpoints in '%s'", cfg->checkpoints);
    if (s) {
        folders_free(f);
        return s;
    }
    *out = f;
    return BERTH_OK;
}

void folders_free(struct folders *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->folder.n; i++) {
        struct folder *x = folder_at(f, i);
        free(x->key);
        names_release(&x->dirs);
        listing_release(&x->listing);
    }
    vec_release(&f->folder);
    if (f->locked)
        pthread_mutex_destroy(&f->lock);
    for (size_t i = 0; i < FOLDERS_OWN; i++)
        free(f->own[i]);
    free(f);
}

const char *folders_own(const struct folders *f, enum folders_own which)
{
    return f->own[which];
}

const char *folders_by_kind(const struct folders *f, const char *kind)
{
    for (size_t i = 0; i < FOLDERS_USER; i++)
        if (strcmp(kind, own_name[i]) == 0)
            return f->own[i];
    return NULL;
}

size_t folders_count(const struct folders *f)
{
    return f->folder.n;
}

const char *folders_key(const struct folders *f, size_t i)
{
    return folder_at(f, i)->key;
}

size_t folders_dirs(const struct folders *f, size_t key)
{
    const struct folder *x = folder_at(f, key);
    return x->dirs.n + (x->like == SIZE_MAX ? 0 : folder_at(f, x->like)->dirs.n);
}

const char *folders_dir(const struct folders *f, size_t key, size_t i)
{
    const struct folder *x = folder_at(f, key);
    size_t theirs = x->like == SIZE_MAX ? 0 : folder_at(f, x->like)->dirs.n;
    if (i >= theirs + x->dirs.n)
        BUG("folder %s: directory %zu of %zu", x->key, i, theirs + x->dirs.n);
    return i < theirs ? folder_at(f, x->like)->dirs.at[i] : x->dirs.at[i - theirs];
}

/* ---- names in it ---- */

static berth_status find_key(const struct folders *f, const char *key, size_t *out, berth_err *err)
{
    *out = folders_find(f, key, false);
    return *out == SIZE_MAX ? err_set(err, BERTH_ENOTFOUND, "no model folder '%.80s'", key)
                            : BERTH_OK;
}

berth_status folders_list(struct folders *f, const char *key, struct names *out, berth_err *err)
{
    size_t i;
    const struct listing *x;
    if (find_key(f, key, &i, err))
        return err->code;
    pthread_mutex_lock(&f->lock);
    berth_status s = listing_get(f, i, &x, err);
    for (size_t k = 0; !s && k < x->names.n; k++)
        if (!names_add(out, x->names.at[k], strlen(x->names.at[k])))
            s = err_set(err, BERTH_ENOMEM, "a list of %zu files in '%s'", x->names.n, key);
    pthread_mutex_unlock(&f->lock);
    return s;
}

static berth_status not_found(const struct folders *f, size_t key, const char *name, berth_err *err)
{
    struct str where = { 0 };
    for (size_t i = 0; i < folders_dirs(f, key); i++)
        str_addf(&where, "%s'%s'", i ? ", " : "", folders_dir(f, key, i));
    err_set(err, BERTH_ENOTFOUND, "%s '%.80s' is not there; looked in %s", folder_at(f, key)->key,
            name, str_c(&where));
    str_release(&where);
    return err->code;
}

berth_status folders_resolve(struct folders *f, const char *key, const char *name, struct str *out,
                             berth_err *err)
{
    size_t i;
    struct str rooted = { 0 }; /* "/" and the name without ".." */
    berth_status s = find_key(f, key, &i, err);
    if (s)
        return s;
    path_join("/", name + strspn(name, "/"), strlen(name + strspn(name, "/")), &rooted);
    if (rooted.bad)
        s = err_set(err, BERTH_ENOMEM, "%s '%.80s'", key, name);
    bool found = false;
    for (size_t k = 0; !s && !found && rooted.n > 1 && k < folders_dirs(f, i); k++) {
        struct stat st;
        berth_err skip = { 0 }; /* a directory that is not there cannot hold it */
        berth_status in =
            path_inside(folders_dir(f, i, k), rooted.p + 1, rooted.n - 1, true, out, &skip);
        if (in == BERTH_ENOMEM) {
            *err = skip;
            s = in;
        }
        found = !in && stat(str_c(out), &st) == 0 && S_ISREG(st.st_mode);
    }
    if (!s && !found)
        s = not_found(f, i, name, err);
    if (s)
        str_clear(out);
    str_release(&rooted);
    return s;
}

berth_status folders_with(struct folders *f, const char *key, const char *file, struct names *out,
                          berth_err *err)
{
    size_t i;
    struct str path = { 0 };
    berth_status s = find_key(f, key, &i, err);
    for (size_t k = 0; !s && k < folders_dirs(f, i); k++) {
        DIR *d = opendir(folders_dir(f, i, k));
        for (struct dirent *e; d && !s && out->n < FOLDERS_FILES_MAX && (e = readdir(d));) {
            if (e->d_name[0] == '.' || !str_is_utf8(e->d_name, strlen(e->d_name)))
                continue;
            str_clear(&path);
            str_addf(&path, "%s/%s", e->d_name, file);
            if (path.bad || (faccessat(dirfd(d), path.p, F_OK, 0) == 0 &&
                             !names_add(out, e->d_name, strlen(e->d_name))))
                s = err_set(err, BERTH_ENOMEM, "a list of %zu folders in '%s'", out->n, key);
        }
        if (d)
            closedir(d);
    }
    names_sort(out);
    str_release(&path);
    return s;
}

static bool is_input(const struct folders *f, int dir, const char *name, size_t n)
{
    struct stat st;
    berth_err refused;
    struct str path = { 0 };
    if (!str_is_utf8(name, n) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return false;
    if (S_ISLNK(st.st_mode)) { /* where it leads to decides */
        bool inside = !path_inside(f->own[FOLDERS_INPUT], name, n, false, &path, &refused);
        inside = inside && !stat(str_c(&path), &st);
        str_release(&path);
        if (!inside)
            return false;
    }
    return S_ISREG(st.st_mode);
}

berth_status folders_inputs(struct folders *f, struct names *out, berth_err *err)
{
    DIR *d = opendir(f->own[FOLDERS_INPUT]);
    berth_status s = BERTH_OK;
    if (!d)
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", f->own[FOLDERS_INPUT]);
    struct names found = { 0 };
    for (struct dirent *e; !s && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (!is_input(f, dirfd(d), e->d_name, n))
            continue;
        if (found.n == FOLDERS_FILES_MAX)
            break;
        if (!names_add(&found, e->d_name, n))
            s = err_set(err, BERTH_ENOMEM, "a list of %zu files in '%s'", found.n,
                        f->own[FOLDERS_INPUT]);
    }
    closedir(d);
    names_sort(&found);
    for (size_t i = 0; !s && i < found.n; i++)
        if (!names_add(out, found.at[i], strlen(found.at[i])))
            s = err_set(err, BERTH_ENOMEM, "a list of %zu files in '%s'", found.n,
                        f->own[FOLDERS_INPUT]);
    names_release(&found);
    return s;
}

/* Folders below root/rel; rel ends with '/' or is empty. */
static berth_status add_dirs(const char *root, const char *rel, unsigned depth, struct names *out,
                             berth_err *err)
{
    struct str path = { 0 };
    str_addf(&path, "%s/%s", root, rel);
    DIR *d = path.bad ? NULL : opendir(str_c(&path));
    berth_status s = path.bad ? err_set(err, BERTH_ENOMEM, "folders of '%s'", root) : BERTH_OK;
    for (struct dirent *e; !s && d && (e = readdir(d));) {
        struct stat st;
        size_t n = strlen(e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            !str_is_utf8(e->d_name, n) || out->n >= FOLDERS_DIRS_MAX ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
            continue;
        str_clear(&path);
        str_addf(&path, "%s%s", rel, e->d_name);
        if (path.bad || !names_add(out, path.p, path.n))
            s = err_set(err, BERTH_ENOMEM, "%zu folders of '%s'", out->n, root);
        str_addc(&path, '/');
        if (!s && depth < FOLDERS_DEPTH_MAX && !path.bad)
            s = add_dirs(root, str_c(&path), depth + 1, out, err);
    }
    if (d)
        closedir(d);
    str_release(&path);
    return s;
}

berth_status folders_input_dirs(struct folders *f, struct names *out, berth_err *err)
{
    berth_status s = add_dirs(f->own[FOLDERS_INPUT], "", 0, out, err);
    names_sort(out);
    return s;
}
