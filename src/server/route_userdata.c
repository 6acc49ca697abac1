/* Files of a user, above all workflows. Names are percent-encoded, maybe twice, and must stay
 * inside the user's folder. Bodies stream into a file that gets its name once it is complete;
 * overwrite=false is decided then, by the file system. */
#include "base/file.h"
#include "server/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct user_file {
    struct str root; /* of the user, absolute */
    struct str rel;  /* normalised */
    struct str path; /* absolute; empty when the root is not there */
};

static void user_file_release(struct user_file *f)
{
    str_release(&f->root);
    str_release(&f->rel);
    str_release(&f->path);
}

/* 0, or the status that says why not. make: creates the user's folder first. A missing folder is no
 * error: there is nothing in it. */
static int user_file_init(const struct http_req *r, const char *name, size_t n, bool make,
                          struct user_file *f)
{
    struct str again = { 0 };
    berth_err err = { 0 };
    int status = 0;
    if ((status = user_root(r->server, r->user, &f->root)))
        return status;
    if (memchr(name, '%', n) && path_unescape(name, n, false, &again)) {
        name = str_c(&again);
        n = again.n;
    }
    if (!rel_normalise(name, n, &f->rel))
        status = 403;
    else if (make && path_make_dirs(f->root.p, &err))
        status = err_http_status(&err);
    else if (path_inside(f->root.p, str_c(&f->rel), f->rel.n, false, &f->path, &err) &&
             err.code != BERTH_ENOTFOUND)
        status = err.code == BERTH_EINVAL ? 403 : err_http_status(&err);
    if (err.code == BERTH_ENOTFOUND)
        str_clear(&f->path);
    str_release(&again);
    return status;
}

static bool user_file_stat(const struct user_file *f, struct stat *st)
{
    return f->path.n && stat(f->path.p, st) == 0;
}

/* Times in milliseconds. */
static json_t *full_info(const char *rel, uint64_t size, double modified, double created)
{
    return json_pack("{s:s,s:I,s:I,s:I}", "path", rel, "size", (json_int_t)size, "modified",
                     (json_int_t)(modified * 1000), "created", (json_int_t)(created * 1000));
}

/* What POST and move answer: the name, or all about the file. */
static json_t *file_answer(const struct user_file *f, bool full)
{
    struct stat st;
    if (!full)
        return json_stringn(str_c(&f->rel), f->rel.n);
    if (!user_file_stat(f, &st))
        return NULL;
    return full_info(str_c(&f->rel), (uint64_t)st.st_size, stat_seconds(st.st_mtim),
                     stat_seconds(st.st_ctim));
}

/* The folder a file is in; it is made, unless listings would leave it out. */
static berth_status make_parent(const struct user_file *f, berth_err *err)
{
    struct str dir = { 0 };
    if (path_depth(str_c(&f->rel)) > TREE_DEPTH + 1)
        return err_set(err, BERTH_EINVAL, "more than %d folders inside each other", TREE_DEPTH);
    str_add(&dir, f->path.p, (size_t)(path_base(f->path.p) - f->path.p) - 1);
    berth_status st = dir.bad ? err_set(err, BERTH_ENOMEM, "a folder") : path_make_dirs(dir.p, err);
    str_release(&dir);
    return st;
}

/* ---- reading ---- */

/* The file that the path names: 0, or the status that says why not. */
static int find_file(const struct http_req *r, struct user_file *f)
{
    struct stat st;
    int status = user_file_init(r, str_c(&r->param[0]), r->param[0].n, false, f);
    return status ? status : user_file_stat(f, &st) && S_ISREG(st.st_mode) ? 0 : 404;
}

void route_userdata_get(struct http_req *r)
{
    struct user_file f = { 0 };
    int status = find_file(r, &f);
    if (status) {
        http_reply_empty(r, status);
    } else {
        struct http_file file = { .path = f.path.p };
        bool style = !strcmp(str_c(&f.rel), "user.css"), bytes; /* which the frontend links */
        file.type = style ? "text/css" : harmless_type(r, str_c(&f.rel), &bytes);
        file.disposition = style ? "inline" : "attachment";
        http_reply_file(r, &file);
    }
    user_file_release(&f);
}

struct userdata { /* a list, a file that is written, or a move */
    struct later base;
    struct user_file f, to; /* to: of a move */
    struct file_new *file;  /* being written */
    bool recurse, full, split, only_new;
};

static void userdata_release(struct later *l)
{
    struct userdata *u = (struct userdata *)l;
    file_new_abort(u->file);
    user_file_release(&u->f);
    user_file_release(&u->to);
}

/* With what the query says of files. NULL: it replied. */
static struct userdata *userdata_new(struct http_req *r, later_fn *work)
{
    struct userdata *u = later_new(r, sizeof *u, AUX_FILES, work);
    if (!u)
        return NULL;
    u->base.release = userdata_release;
    u->recurse = query_true(r, "recurse");
    u->full = query_true(r, "full_info");
    u->split = query_true(r, "split");
    u->only_new = query_is(r, "overwrite", "false");
    return u;
}

/* [rel, part, part, ...] */
static json_t *split_path(const char *rel)
{
    json_t *out = json_array();
    json_array_append_new(out, json_string(rel));
    for (const char *p = rel; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        json_array_append_new(out, json_stringn(p, strcspn(p, "/")));
    return out;
}

static void list_work(struct later *l)
{
    struct userdata *u = (struct userdata *)l;
    struct vec t = { 0 };
    berth_err err = { 0 };
    const struct tree_args args = { .recurse = u->recurse };
    if (u->f.path.n == 0 || tree_list(u->f.path.p, &args, &t, &err)) {
        if (err.code && err.code != BERTH_ENOTFOUND)
            later_err(l, 0, &err);
        else
            later_text(l, 404, "Directory not found");
        tree_release(&t);
        return;
    }
    json_t *out = json_array();
    for (size_t i = 0; i < t.n; i++) {
        const struct tree_entry *e = vec_at(&t, i);
        json_array_append_new(out, u->full    ? full_info(e->rel, e->size, e->modified, e->changed)
                                   : u->split ? split_path(e->rel)
                                              : json_string(e->rel));
    }
    tree_release(&t);
    later_json(l, 200, out);
}

/* ---- v2: folders too ---- */

static int dirs_first(const void *a, const void *b)
{
    const struct tree_entry *x = a, *y = b;
    if (x->dir != y->dir)
        return x->dir ? -1 : 1;
    int c = strcasecmp(path_base(x->rel), path_base(y->rel));
    return c ? c : strcmp(x->rel, y->rel);
}

static json_t *tree_item(const struct tree_entry *e, const char *folder)
{
    struct str rel = { 0 };
    str_addf(&rel, "%s%s%s", folder, *folder ? "/" : "", e->rel);
    const char *name = path_base(e->rel);
    json_t *o = rel.bad ? NULL
                : e->dir
                    ? json_pack("{s:s,s:s,s:s}", "name", name, "path", rel.p, "type", "directory")
                    : json_pack("{s:s,s:s,s:s,s:I,s:f}", "name", name, "path", rel.p, "type",
                                "file", "size", (json_int_t)e->size, "modified", e->modified);
    str_release(&rel);
    return o;
}

static void tree_work(struct later *l)
{
    struct userdata *u = (struct userdata *)l;
    struct vec t = { 0 };
    struct stat st;
    const struct tree_args args = { .recurse = true, .dirs = true, .hidden = true };
    const char *folder = str_c(&u->f.rel);
    if (!user_file_stat(&u->f, &st)) {
        if (*folder)
            later_text(l, 404, "Requested path not found");
        else
            later_json(l, 200, json_array()); /* a new user */
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        later_text(l, 400, "Requested path is not a directory");
        return;
    }
    l->failed = tree_list(u->f.path.p, &args, &t, &l->err);
    json_t *out = json_array();
    if (t.n)
        qsort(t.p, t.n, t.elem, dirs_first);
    for (size_t i = 0; i < t.n; i++)
        json_array_append_new(out, tree_item(vec_at(&t, i), folder));
    later_json(l, 200, out);
    tree_release(&t);
}

/* unknown: the status for a user whom nobody knows; wrong: the text for a name that is refused. */
static void list_run(struct http_req *r, const struct str *dir, int unknown, const char *wrong,
                     later_fn *work)
{
    struct userdata *u = userdata_new(r, work);
    int status = u ? user_file_init(r, str_c(dir), dir->n, false, &u->f) : 0;
    if (u && !status)
        later_run(&u->base);
    if (!status)
        return;
    later_free(&u->base);
    if (status >= 500)
        http_reply_text(r, status, "the folder cannot be read");
    else if (status == 401)
        http_reply_text(r, unknown, "unknown user");
    else
        http_reply_text(r, status, wrong);
}

void route_userdata_list(struct http_req *r)
{
    struct str dir = { 0 };
    if (!http_query(r, "dir", &dir) || dir.n == 0)
        http_reply_text(r, 400, "Directory not provided");
    else
        list_run(r, &dir, 401, "Invalid directory", list_work);
    str_release(&dir);
}

void route_userdata_tree(struct http_req *r)
{
    struct str path = { 0 };
    http_query(r, "path", &path);
    list_run(r, &path, 403, "Invalid path", tree_work);
    str_release(&path);
}

/* ---- writing ---- */

static void file_work(struct later *l)
{
    struct userdata *u = (struct userdata *)l;
    berth_err err = { 0 };
    struct file_new *f = u->file;
    u->file = NULL; /* commit closes it in every case */
    berth_status st = u->only_new ? file_new_commit_new(f, &err) : file_new_commit(f, &err);
    if (st == BERTH_EBUSY)
        later_text(l, 409, "File already exists");
    else if (st)
        later_err(l, 0, &err);
    else
        later_json(l, 200, file_answer(&u->f, u->full));
}

static bool file_begin(struct http_req *r)
{
    struct userdata *u = userdata_new(r, file_work);
    struct stat st;
    berth_err err = { 0 };
    if (!u)
        return false;
    int status = user_file_init(r, str_c(&r->param[0]), r->param[0].n, true, &u->f);
    if (status)
        http_reply_empty(r, status);
    else if (u->only_new && user_file_stat(&u->f, &st)) /* before the body comes in vain */
        http_reply_text(r, 409, "File already exists");
    else if (u->f.rel.n == 0)
        http_reply_empty(r, 400);
    else if (make_parent(&u->f, &err) ||
             file_new_open(u->f.path.p, r->h->has_length ? r->h->length : 0, &u->file, &err))
        reply_trouble(r, &err);
    else {
        r->sink = u;
        return true;
    }
    later_free(&u->base);
    return false;
}

static bool file_write(struct http_req *r, const char *p, size_t n)
{
    struct userdata *u = r->sink;
    berth_err err = { 0 };
    if (!file_new_write(u->file, p, n, &err))
        return true;
    reply_trouble(r, &err);
    return false;
}

const struct http_sink sink_userdata = { file_begin, file_write, later_abort };

void route_userdata_post(struct http_req *r)
{
    struct userdata *u = r->sink;
    r->sink = NULL;
    later_run(&u->base);
}

void route_userdata_delete(struct http_req *r)
{
    struct user_file f = { 0 };
    int status = find_file(r, &f);
    if (!status)
        status = unlink(f.path.p) == 0 ? 204 : errno == ENOENT ? 404 : 403;
    http_reply_empty(r, status);
    user_file_release(&f);
}

/* ---- moving ---- */

/* errno after false. */
static bool move_file(const struct userdata *m)
{
    const char *from = m->f.path.p, *to = m->to.path.p;
    struct stat st;
    if (!m->only_new)
        return !rename(from, to);
    if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
        return true;
    if (errno != EINVAL && errno != ENOSYS) /* not every file system knows that flag */
        return false;
    if (lstat(to, &st))
        return !rename(from, to);
    errno = EEXIST;
    return false;
}

static void move_work(struct later *l)
{
    struct userdata *m = (struct userdata *)l;
    l->failed = make_parent(&m->to, &l->err);
    if (l->failed)
        return;
    if (move_file(m)) {
        later_json(l, 200, file_answer(&m->to, m->full));
    } else if (errno == EEXIST && m->only_new) {
        later_text(l, 409, "File already exists");
    } else {
        int e = errno;
        bool asked_wrongly = e == EISDIR || e == ENOTDIR || e == EINVAL || e == ENOTEMPTY;
        l->failed = err_sys(&l->err,
                            e == ENOENT     ? BERTH_ENOTFOUND
                            : asked_wrongly ? BERTH_EINVAL
                                            : BERTH_EIO,
                            e, "moving '%s' to '%s'", str_c(&m->f.rel), str_c(&m->to.rel));
    }
}

void route_userdata_move(struct http_req *r)
{
    struct userdata *m = userdata_new(r, move_work);
    struct stat st;
    if (!m)
        return;
    int status = user_file_init(r, str_c(&r->param[0]), r->param[0].n, false, &m->f);
    if (!status && (m->f.rel.n == 0 || !user_file_stat(&m->f, &st)))
        status = 404;
    if (!status)
        status = user_file_init(r, str_c(&r->param[1]), r->param[1].n, true, &m->to);
    if (!status && m->to.rel.n == 0)
        status = 403;
    if (!status) {
        later_run(&m->base);
        return;
    }
    http_reply_empty(r, status);
    later_free(&m->base);
}
