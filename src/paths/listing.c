/* listing: the files under a key's directories, remembered until a directory changes.
 *
 * A directory's mtime proves that nothing was added or removed in it, unless it changed so shortly
 * before we read it that another change may have had the same time. Then it is read again next
 * time. */
#include "paths/folders_impl.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#define RACY_NS INT64_C(2000000000) /* some file systems count whole seconds */

static void walked_clear(struct vec *v)
{
    for (size_t i = 0; i < v->n; i++) {
        struct walked *d = vec_at(v, i);
        free(d->path);
        free(d->rel);
    }
    vec_release(v);
}

void listing_release(struct listing *x)
{
    walked_clear(&x->dir);
    names_release(&x->names);
    x->valid = x->racy = false;
}

/* ---- walking ---- */

struct walk {
    struct vec dir; /* of struct walked: those behind `next` are still to be read */
    size_t next;
    enum folder_ext ext;
    bool cut; /* a limit was met */
    bool racy;
    int64_t now; /* wall time, nanoseconds */
    /* A file that matches. false: out of memory. */
    bool (*found)(void *user, const char *rel, const struct stat *st);
    void *user;
    size_t files;
};

/* Another directory to read, unless it is its own ancestor. */
static bool push(struct walk *w, const char *path, const char *rel, size_t parent,
                 const struct stat *st)
{
    unsigned depth = 0;
    for (size_t i = parent; i != SIZE_MAX;) {
        const struct walked *d = vec_at(&w->dir, i);
        if (d->dev == st->st_dev && d->ino == st->st_ino)
            return true;
        depth++;
        i = d->parent;
    }
    if (depth > FOLDERS_DEPTH_MAX || w->dir.n >= FOLDERS_DIRS_MAX) {
        w->cut = true;
        return true;
    }
    struct walked *d = vec_add(&w->dir);
    if (!d)
        return false;
    *d = (struct walked) { .path = strdup(path),
                           .rel = strdup(rel),
                           .parent = parent,
                           .there = true,
                           .dev = st->st_dev,
                           .ino = st->st_ino,
                           .mtime = st->st_mtim };
    int64_t age = w->now - ((int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec);
    w->racy |= age < RACY_NS;
    return d->path && d->rel;
}

/* A root that is not there is remembered too: it may come. */
static bool push_root(struct walk *w, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return push(w, path, "", SIZE_MAX, &st);
    struct walked *d = vec_add(&w->dir);
    if (!d)
        return false;
    *d = (struct walked) { .path = strdup(path), .rel = strdup(""), .parent = SIZE_MAX };
    return d->path && d->rel;
}

static bool entry(struct walk *w, DIR *dir, const struct dirent *e, const char *path,
                  const char *rel, size_t parent)
{
    struct stat st;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
        strcmp(e->d_name, ".git") == 0 || !str_is_utf8(e->d_name, strlen(e->d_name)))
        return true;
    bool maybe_dir = e->d_type != DT_REG;
    if (!maybe_dir && !ext_matches(w->ext, e->d_name))
        return true;
    if (fstatat(dirfd(dir), e->d_name, &st, 0)) /* follows links; dangling ones are skipped */
        return true;
    struct str to = { 0 }, below = { 0 };
    str_addf(&below, "%s%s%s", rel, *rel ? "/" : "", e->d_name);
    bool ok = !below.bad;
    if (ok && S_ISDIR(st.st_mode)) {
        str_addf(&to, "%s/%s", path, e->d_name);
        ok = !to.bad && (to.n > PATH_BYTES_MAX || push(w, to.p, below.p, parent, &st));
    } else if (ok && S_ISREG(st.st_mode) && ext_matches(w->ext, e->d_name)) {
        if (w->files == FOLDERS_FILES_MAX)
            w->cut = true;
        else
            w->files++, ok = w->found(w->user, below.p, &st);
    }
    str_release(&to);
    str_release(&below);
    return ok;
}

/* Reads what is to be read. A directory that cannot be opened is as if it were not there. */
static bool walk(struct walk *w)
{
    bool ok = true;
    for (; ok && w->next < w->dir.n; w->next++) {
        struct walked at = *(struct walked *)vec_at(&w->dir, w->next); /* the vector moves */
        DIR *dir = at.there ? opendir(at.path) : NULL;
        if (!dir)
            continue;
        for (struct dirent *e; ok && (e = readdir(dir));)
            ok = entry(w, dir, e, at.path, at.rel, w->next);
        closedir(dir);
    }
    return ok;
}

static struct walk walk_of(const struct folder *x)
{
    return (struct walk) { .dir.elem = sizeof(struct walked),
                           .ext = x->ext,
                           .now = (int64_t)clock_wall_ns(clock_system()) };
}

/* ---- listings ---- */

static bool unchanged(const struct listing *x)
{
    if (!x->valid || x->racy)
        return false;
    for (size_t i = 0; i < x->dir.n; i++) {
        const struct walked *d = vec_at(&x->dir, i);
        struct stat st;
        bool there = stat(d->path, &st) == 0 && S_ISDIR(st.st_mode);
        if (there != d->there)
            return false;
        if (there &&
            (st.st_dev != d->dev || st.st_ino != d->ino || st.st_mtim.tv_sec != d->mtime.tv_sec ||
             st.st_mtim.tv_nsec != d->mtime.tv_nsec))
            return false;
    }
    return true;
}

static bool keep_name(void *user, const char *rel, const struct stat *st)
{
    (void)st;
    return names_add(user, rel, strlen(rel));
}

berth_status listing_get(struct folders *f, size_t i, const struct listing **out, berth_err *err)
{
    struct folder *key = folder_at(f, i);
    *out = &key->listing;
    if (unchanged(&key->listing))
        return BERTH_OK;
    struct names names = { 0 };
    struct walk w = walk_of(key);
    w.found = keep_name;
    w.user = &names;
    bool ok = true;
    for (size_t k = 0; ok && k < folders_dirs(f, i); k++)
        ok = push_root(&w, folders_dir(f, i, k));
    ok = ok && walk(&w);
    if (!ok) {
        names_release(&names);
        walked_clear(&w.dir);
        return err_set(err, BERTH_ENOMEM, "the files of '%s'", key->key);
    }
    if (w.cut)
        log_warn(f->log, "paths.list", "key=%s files=%zu dirs=%zu why=\"more than is listed\"",
                 key->key, w.files, w.dir.n);
    names_sort(&names);
    listing_release(&key->listing);
    key->listing = (struct listing) { .dir = w.dir, .names = names, .valid = true, .racy = w.racy };
    return BERTH_OK;
}

/* ---- files with their sizes ---- */

struct files {
    struct vec at; /* of struct folder_file */
    size_t path_index;
};

static double seconds(struct timespec t)
{
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool keep_file(void *user, const char *rel, const struct stat *st)
{
    struct files *x = user;
    struct folder_file *f = vec_add(&x->at);
    if (!f)
        return false;
    *f = (struct folder_file) { .name = strdup(rel),
                                .path_index = x->path_index,
                                .size = (uint64_t)st->st_size,
                                .modified = seconds(st->st_mtim),
                                .created = seconds(st->st_ctim) };
    return f->name;
}

static int by_name(const void *a, const void *b)
{
    const struct folder_file *x = a, *y = b;
    if (x->path_index != y->path_index)
        return x->path_index < y->path_index ? -1 : 1;
    return strcmp(x->name, y->name);
}

berth_status folders_files(struct folders *f, size_t key, struct folder_files *out, berth_err *err)
{
    const struct folder *x = folder_at(f, key);
    struct files files = { .at.elem = sizeof(struct folder_file) };
    bool ok = true;
    size_t total = 0;
    *out = (struct folder_files) { 0 };
    for (size_t k = 0; ok && k < folders_dirs(f, key); k++) {
        struct walk w = walk_of(x);
        w.found = keep_file;
        w.user = &files;
        w.files = total; /* the limit is for all of them together */
        files.path_index = k;
        ok = push_root(&w, folders_dir(f, key, k)) && walk(&w);
        total = w.files;
        walked_clear(&w.dir);
    }
    *out = (struct folder_files) { files.at.p, files.at.n };
    if (!ok) {
        folder_files_release(out);
        return err_set(err, BERTH_ENOMEM, "the files of '%s'", x->key);
    }
    if (out->n)
        qsort(out->at, out->n, sizeof *out->at, by_name);
    return BERTH_OK;
}

void folder_files_release(struct folder_files *x)
{
    for (size_t i = 0; i < x->n; i++)
        free(x->at[i].name);
    free(x->at);
    *x = (struct folder_files) { 0 };
}
