#include "server/routes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void tree_release(struct vec *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(((struct tree_entry *)vec_at(t, i))->rel);
    vec_release(t);
}

double stat_seconds(struct timespec t)
{
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct walk {
    const struct tree_args *args;
    struct vec *out;
    struct vec todo; /* folders still to be read, rel */
    const char *root;
    const char *folder; /* the one being read, rel; "" is the root */
};

static char *join(const char *folder, const char *name)
{
    struct str s = { 0 };
    str_addf(&s, "%s%s%s", folder, *folder ? "/" : "", name);
    char *p = str_take(&s);
    str_release(&s);
    return p;
}

static berth_status out_of_memory(const struct walk *w, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "listing '%s'", w->root);
}

/* One name of w->folder. What vanished meanwhile is no error. */
static berth_status look(struct walk *w, int dir, const char *name, berth_err *err)
{
    struct stat link, st;
    if (fstatat(dir, name, &link, AT_SYMLINK_NOFOLLOW) || fstatat(dir, name, &st, 0))
        return BERTH_OK;
    bool is_dir = S_ISDIR(st.st_mode);
    if (!is_dir && !S_ISREG(st.st_mode))
        return BERTH_OK;
    if (w->out->n + w->todo.n >= TREE_MAX)
        return err_set(err, BERTH_ELIMIT, "'%s' has more than %d entries", w->root, TREE_MAX);
    if (!is_dir || w->args->dirs) {
        struct tree_entry *e = vec_add(w->out);
        if (!e || !(e->rel = join(w->folder, name)))
            return out_of_memory(w, err);
        e->dir = is_dir;
        e->size = is_dir ? 0 : (uint64_t)st.st_size;
        e->modified = stat_seconds(st.st_mtim);
        e->changed = stat_seconds(st.st_ctim);
    }
    if (is_dir && w->args->recurse && !S_ISLNK(link.st_mode) &&
        path_depth(w->folder) < TREE_DEPTH) {
        struct tree_entry *e = vec_add(&w->todo);
        if (!e || !(e->rel = join(w->folder, name)))
            return out_of_memory(w, err);
    }
    return BERTH_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct tree_entry *x = a, *y = b;
    return strcmp(x->rel, y->rel);
}

static void sort_from(struct vec *t, size_t first)
{
    if (t->n > first)
        qsort(vec_at(t, first), t->n - first, t->elem, by_name);
}

static berth_status read_folder(struct walk *w, berth_err *err)
{
    char *path = *w->folder ? join(w->root, w->folder) : strdup(w->root);
    if (!path)
        return out_of_memory(w, err);
    DIR *d = opendir(path);
    int e = errno;
    free(path);
    if (!d) /* only the root must be there */
        return *w->folder ? BERTH_OK
                          : err_sys(err, e == ENOENT || e == ENOTDIR ? BERTH_ENOTFOUND : BERTH_EIO,
                                    e, "'%s'", w->root);
    size_t first = w->out->n, first_todo = w->todo.n;
    berth_status st = BERTH_OK;
    for (struct dirent *n; !st && (n = readdir(d));) {
        const char *name = n->d_name;
        if (name[0] == '.' && (!w->args->hidden || !strcmp(name, ".") || !strcmp(name, "..")))
            continue;
        st = look(w, dirfd(d), name, err);
    }
    closedir(d);
    if (!st)
        sort_from(w->out, first);
    if (!st)
        sort_from(&w->todo, first_todo);
    return st;
}

berth_status tree_list(const char *root, const struct tree_args *args, struct vec *out,
                       berth_err *err)
{
    struct walk w = { .args = args, .out = out, .root = root, .folder = "" };
    out->elem = w.todo.elem = sizeof(struct tree_entry);
    berth_status st = read_folder(&w, err);
    for (size_t i = 0; !st && i < w.todo.n; i++) {
        const struct tree_entry *e = vec_at(&w.todo, i);
        w.folder = e->rel; /* todo moves when it grows, its texts do not */
        st = read_folder(&w, err);
    }
    tree_release(&w.todo);
    return st;
}
