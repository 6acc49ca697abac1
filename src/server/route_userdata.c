/* Files of a user: workflows above all. Names come percent-encoded, maybe twice, and stay inside the
 * user's folder or are refused. Bodies stream into a file that takes its name when it is whole; whether
 * it may (overwrite=false) is decided then, by the file system. */
#include "base/file.h"
#include "server/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* 0, or the status that says why not. make: the user's folder is made first. A root that is not there
 * is no fault: then nothing below it is either. */
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

static json_t *full_info(const char *rel, uint64_t size, double modified, double created)
{
    return json_pack("{s:s,s:I,s:f,s:f}", "path", rel, "size", (json_int_t)size, "modified",
                     modified, "created", created);
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

void route_userdata_get(struct http_req *r)
{
    struct user_file f = { 0 };
    struct stat st;
    int status = user_file_init(r, str_c(&r->param[0]), r->param[0].n, false, &f);
    if (!status && (!user_file_stat(&f, &st) || !S_ISREG(st.st_mode)))
        status = 404;
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

struct userdata_list {
    struct later base;
    struct user_file f;
    bool recurse, full, split;
};

static void list_release(struct later *l)
{
    user_file_release(&((struct userdata_list *)l)->f);
    free(l);
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
    struct userdata_list *u = (struct userdata_list *)l;
    struct tree t = { 0 };
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
        const struct tree_entry *e = &t.at[i];
        json_array_append_new(out, u->full    ? full_info(e->rel, e->size, e->modified, e->changed)
                                   : u->split ? split_path(e->rel)
                                              : json_string(e->rel));
    }
    tree_release(&t);
    later_json(l, 200, out);
}

static struct userdata_list *list_new(struct http_req *r)
{
    struct userdata_list *u = calloc(1, sizeof *u);
    if (!u)
        http_reply_json(r, 500, NULL);
    else
        u->base.release = list_release;
    return u;
}

void route_userdata_list(struct http_req *r)
{
    struct str dir = { 0 };
    if (!http_query(r, "dir", &dir) || dir.n == 0) {
        http_reply_text(r, 400, "Directory not provided");
        str_release(&dir);
        return;
    }
    struct userdata_list *u = list_new(r);
    int status = u ? user_file_init(r, dir.p, dir.n, false, &u->f) : 0;
    str_release(&dir);
    if (!u)
        return;
    if (status) {
        http_reply_text(r, status,
                        status == 401   ? "unknown user"
                        : status >= 500 ? "the folder cannot be read"
                                        : "Invalid directory");
        list_release(&u->base);
        return;
    }
    u->base.work = list_work;
    u->recurse = query_true(r, "recurse");
    u->full = query_true(r, "full_info");
    u->split = query_true(r, "split");
    later_run(r, &u->base);
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
    struct userdata_list *u = (struct userdata_list *)l;
    struct tree t = { 0 };
    struct stat st;
    berth_err err = { 0 };
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
    if (tree_list(u->f.path.p, &args, &t, &err)) {
        later_err(l, 0, &err);
    } else {
        json_t *out = json_array();
        if (t.n)
            qsort(t.at, t.n, sizeof *t.at, dirs_first);
        for (size_t i = 0; i < t.n; i++)
            json_array_append_new(out, tree_item(&t.at[i], folder));
        later_json(l, 200, out);
    }
    tree_release(&t);
}

void route_userdata_tree(struct http_req *r)
{
    struct str path = { 0 };
    struct userdata_list *u = list_new(r);
    if (!u)
        return;
    http_query(r, "path", &path);
    int status = user_file_init(r, str_c(&path), path.n, false, &u->f);
    str_release(&path);
    if (status) {
        http_reply_text(r, status >= 500 ? status : 403,
                        status == 401   ? "unknown user"
                        : status >= 500 ? "the folder cannot be read"
                                        : "Invalid path");
        list_release(&u->base);
        return;
    }
    u->base.work = tree_work;
    later_run(r, &u->base);
}

/* ---- writing ---- */

struct userdata_file {
    struct later base;
    struct user_file f;
    struct file_new *file;
    bool full, only_new;
};

static void file_release(struct later *l)
{
    struct userdata_file *u = (struct userdata_file *)l;
    file_new_abort(u->file);
    user_file_release(&u->f);
    free(u);
}

static bool wants_new(const struct http_req *r)
{
    struct str v = { 0 };
    bool yes = http_query(r, "overwrite", &v) && strcmp(str_c(&v), "false") == 0;
    str_release(&v);
    return yes;
}

static void already_there(struct later *l)
{
    later_text(l, 409, "File already exists");
}

static bool file_begin(struct http_req *r)
{
    struct userdata_file *u = calloc(1, sizeof *u);
    struct stat st;
    berth_err err = { 0 };
    if (!u) {
        http_reply_json(r, 500, NULL);
        return false;
    }
    u->base.release = file_release;
    u->only_new = wants_new(r);
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
        u->full = query_true(r, "full_info");
        r->sink = u;
        return true;
    }
    file_release(&u->base);
    return false;
}

static void file_abort(struct http_req *r)
{
    struct userdata_file *u = r->sink;
    r->sink = NULL;
    if (u)
        file_release(&u->base);
}

static bool file_write(struct http_req *r, const char *p, size_t n)
{
    struct userdata_file *u = r->sink;
    berth_err err = { 0 };
    if (!file_new_write(u->file, p, n, &err))
        return true;
    reply_trouble(r, &err);
    return false;
}

const struct http_sink sink_userdata = { file_begin, file_write, file_abort };

static void file_work(struct later *l)
{
    struct userdata_file *u = (struct userdata_file *)l;
    berth_err err = { 0 };
    struct file_new *f = u->file;
    u->file = NULL; /* commit closes it in every case */
    berth_status st = u->only_new ? file_new_commit_new(f, &err) : file_new_commit(f, &err);
    if (st == BERTH_EBUSY)
        already_there(l);
    else if (st)
        later_err(l, 0, &err);
    else
        later_json(l, 200, file_answer(&u->f, u->full));
}

void route_userdata_post(struct http_req *r)
{
    struct userdata_file *u = r->sink;
    r->sink = NULL;
    u->base.work = file_work;
    later_run(r, &u->base);
}

void route_userdata_delete(struct http_req *r)
{
    struct user_file f = { 0 };
    struct stat st;
    int status = user_file_init(r, str_c(&r->param[0]), r->param[0].n, false, &f);
    if (!status && (!user_file_stat(&f, &st) || !S_ISREG(st.st_mode)))
        status = 404;
    if (!status)
        status = unlink(f.path.p) == 0 ? 204 : errno == ENOENT ? 404 : 403;
    http_reply_empty(r, status);
    user_file_release(&f);
}

/* ---- moving ---- */

struct userdata_move {
    struct later base;
    struct user_file from, to;
    bool full, only_new;
};

static void move_release(struct later *l)
{
    struct userdata_move *m = (struct userdata_move *)l;
    user_file_release(&m->from);
    user_file_release(&m->to);
    free(m);
}

/* errno after false. */
static bool move_file(const struct userdata_move *m)
{
    const char *from = m->from.path.p, *to = m->to.path.p;
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
    struct userdata_move *m = (struct userdata_move *)l;
    berth_err err = { 0 };
    if (make_parent(&m->to, &err)) {
        later_err(l, 0, &err);
    } else if (move_file(m)) {
        later_json(l, 200, file_answer(&m->to, m->full));
    } else if (errno == EEXIST && m->only_new) {
        already_there(l);
    } else {
        int e = errno;
        bool asked_wrongly = e == EISDIR || e == ENOTDIR || e == EINVAL || e == ENOTEMPTY;
        err_sys(&err,
                e == ENOENT     ? BERTH_ENOTFOUND
                : asked_wrongly ? BERTH_EINVAL
                                : BERTH_EIO,
                e, "moving '%s' to '%s'", str_c(&m->from.rel), str_c(&m->to.rel));
        later_err(l, 0, &err);
    }
}

void route_userdata_move(struct http_req *r)
{
    struct userdata_move *m = calloc(1, sizeof *m);
    struct stat st;
    if (!m) {
        http_reply_json(r, 500, NULL);
        return;
    }
    m->base.work = move_work;
    m->base.release = move_release;
    m->full = query_true(r, "full_info");
    int status = user_file_init(r, str_c(&r->param[0]), r->param[0].n, false, &m->from);
    if (!status && (m->from.rel.n == 0 || !user_file_stat(&m->from, &st)))
        status = 404;
    if (!status)
        status = user_file_init(r, str_c(&r->param[1]), r->param[1].n, true, &m->to);
    if (!status && m->to.rel.n == 0)
        status = 403;
    m->only_new = wants_new(r);
    if (!status) {
        later_run(r, &m->base);
        return;
    }
    http_reply_empty(r, status);
    move_release(&m->base);
}
