/* Uploads: a multipart body whose file goes to disk as it arrives.
 *
 * Spool      Clients send the file before they say where it belongs, so it goes into an unnamed
 *            file (base/file.h) in the input folder, where nearly all end up. A client that leaves,
 *            a full disk or a kill leaves nothing behind.
 * Masks      The original with the alpha of the upload, computed on AUX_PICTURES so that no other
 *            file waits for it.
 * Ending     On AUX_FILES: a name is chosen (a file with the same contents is reused), then the
 *            spool gets that name, or the mask is written. Either way the file appears whole.
 * Types      Refused by extension: files that a careless server or user might run. Taken: whatever
 *            workflows read: pictures, sound, video, 3D, text, latents. */
#include "base/file.h"
#include "server/multipart.h"
#include "server/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIELD_MAX 65536   /* bytes of one plain field */
#define COPIES_MAX 100000 /* "x (1).png", "x (2).png", ... */

enum field { F_TYPE, F_SUBFOLDER, F_OVERWRITE, F_ORIGINAL, F_COUNT, F_FILE, F_OTHER };
static const char *const field_names[F_COUNT] = { "type", "subfolder", "overwrite",
                                                  "original_ref" };

struct upload {
    struct later base;
    struct multipart *mp;
    bool mask;
    enum field now; /* the part being read */
    struct str value[F_COUNT];
    bool given[F_COUNT];
    bool has_file;
    struct str filename;
    struct file_new *spool; /* NULL: none yet */
    uint64_t size;
    int status; /* of a refusal while reading, or of the original of a mask; 0: none */
    berth_err err;
    bool has_original; /* of a mask; compute() fills these three */
    berth_status made; /* of png; err has more */
    struct str png;
};

static void upload_release(struct later *l)
{
    struct upload *u = (struct upload *)l;
    multipart_free(u->mp);
    for (size_t i = 0; i < F_COUNT; i++)
        str_release(&u->value[i]);
    str_release(&u->filename);
    str_release(&u->png);
    file_new_abort(u->spool);
}

/* ---- reading the body, loop ---- */

static berth_status spool_open(struct upload *u, const char *dir, berth_err *err)
{
    struct str path = { 0 };
    str_addf(&path, "%s/.berth-upload", dir); /* a name that it never gets */
    berth_status st = path.bad ? err_set(err, BERTH_ENOMEM, "an upload") : path_make_dirs(dir, err);
    st = st ? st : file_new_open(path.p, 0, &u->spool, err);
    str_release(&path);
    return st;
}

static bool refuse(struct upload *u, int status, const char *text)
{
    u->status = status;
    err_set(&u->err, BERTH_EINVAL, "%s", text);
    return false;
}

static bool on_part(void *user, const char *name, const char *filename)
{
    struct upload *u = user;
    u->now = F_OTHER;
    if (strcmp(name, "image") == 0) {
        if (!filename)
            return refuse(u, 400, "'image' is not a file");
        if (u->has_file)
            return true; /* the first one counts */
        u->has_file = true;
        u->now = F_FILE;
        str_adds(&u->filename, filename);
        if (spool_open(u, folders_own(u->base.server->cfg.folders, FOLDERS_INPUT), &u->err))
            u->status = err_http_status(&u->err);
        return u->status == 0;
    }
    for (int i = 0; i < F_COUNT; i++)
        if (strcmp(name, field_names[i]) == 0 && !u->given[i]) {
            u->now = (enum field)i;
            u->given[i] = true;
        }
    return true;
}

static bool on_data(void *user, const char *p, size_t n)
{
    struct upload *u = user;
    if (u->now == F_FILE) {
        u->size += n;
        if (file_new_write(u->spool, p, n, &u->err))
            u->status = err_http_status(&u->err);
        return !u->status;
    }
    if (u->now == F_OTHER)
        return true;
    struct str *v = &u->value[u->now];
    if (n > FIELD_MAX - v->n)
        return refuse(u, 413, "a field is longer than 65536 bytes");
    str_add(v, p, n);
    return !v->bad || refuse(u, 500, "out of memory");
}

/* ---- where it goes, AUX_FILES from here on ---- */

struct target {
    const char *type, *root;
    struct str folder; /* absolute */
    struct str name;
    struct str path; /* folder/name */
};

static void target_release(struct target *t)
{
    str_release(&t->folder);
    str_release(&t->name);
    str_release(&t->path);
}

static bool may_be_run(const char *name)
{
    static const char *const ends[] = { ".exe",    ".dll", ".so",   ".dylib", ".com", ".bat",
                                        ".cmd",    ".ps1", ".sh",   ".py",    ".pyc", ".pyd",
                                        ".php",    ".js",  ".mjs",  ".jar",   ".msi", ".scr",
                                        ".vbs",    ".htm", ".html", ".xhtml", ".css", ".pkl",
                                        ".pickle", NULL };
    return http_ends_with(name, strlen(name), ends);
}

/* 0, or a status with *why. */
static int target_init(struct upload *u, struct target *t, const char **why)
{
    struct str rel = { 0 };
    berth_err err = { 0 };
    int status = 400;
    const char *name = str_c(&u->filename);
    t->type = u->given[F_TYPE] ? str_c(&u->value[F_TYPE]) : "input";
    t->root = folder_of_type(u->base.server, t->type);
    *why = "";
    if (!t->root)
        *why = "type is input, temp or output";
    else if (strpbrk(name, "/\\") || name[0] == '.')
        *why = "the name of the file has a folder in it, or is hidden";
    else if (may_be_run(name))
        status = 415, *why = "files of this type are not taken";
    else if (!rel_normalise(str_c(&u->value[F_SUBFOLDER]), u->value[F_SUBFOLDER].n, &rel) ||
             path_inside(t->root, str_c(&rel), rel.n, false, &t->folder, &err))
        *why = "subfolder leads out of its folder";
    else if (path_depth(str_c(&rel)) > TREE_DEPTH)
        *why = "subfolder is too deep";
    else if (path_inside(t->folder.p, name, strlen(name), false, &t->path, &err) &&
             err.code == BERTH_EINVAL)
        *why = "the name of the file is not usable";
    else
        status = 0;
    str_adds(&t->name, name);
    str_release(&rel);
    return status;
}

static void target_path(struct target *t)
{
    str_clear(&t->path);
    str_addf(&t->path, "%s/%s", str_c(&t->folder), str_c(&t->name));
}

/* Does the file at `path` hold the same bytes as the spool? */
static bool same_bytes(const struct upload *u, const char *path)
{
    char a[32768], b[sizeof a];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool same =
        fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == u->size;
    for (uint64_t at = 0; same && at < u->size;) {
        ssize_t n = pread(fd, a, sizeof a, (off_t)at);
        same = n > 0 && pread(file_new_fd(u->spool), b, (size_t)n, (off_t)at) == n &&
               !memcmp(a, b, (size_t)n);
        at += same ? (uint64_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    return same;
}

static bool overwrites(const struct upload *u)
{
    const char *v = str_c(&u->value[F_OVERWRITE]);
    return strcmp(v, "true") == 0 || strcmp(v, "1") == 0;
}

/* Takes a name that is free, or whose file is the same (*there). */
static berth_status choose_name(const struct upload *u, struct target *t, bool *there,
                                berth_err *err)
{
    const char *name = str_c(&u->filename), *dot = strrchr(name, '.');
    size_t stem = dot && dot != name ? (size_t)(dot - name) : strlen(name);
    struct stat st;
    *there = false;
    target_path(t);
    for (unsigned i = 1; !overwrites(u) && !t->path.bad && lstat(t->path.p, &st) == 0; i++) {
        if ((*there = same_bytes(u, t->path.p)))
            return BERTH_OK;
        if (i > COPIES_MAX)
            return err_set(err, BERTH_ELIMIT, "'%s' has too many copies", name);
        str_clear(&t->name);
        str_addf(&t->name, "%.*s (%u)%s", (int)stem, name, i, name + stem);
        target_path(t);
    }
    return t->path.bad || t->name.bad ? err_set(err, BERTH_ENOMEM, "naming '%s'", name) : BERTH_OK;
}

/* ---- masks: the original with the alpha of what was uploaded, AUX_PICTURES ---- */

/* 0 and *path (empty: the original is not there), or a status. */
static int find_original(const struct upload *u, struct str *path)
{
    const struct str *text = &u->value[F_ORIGINAL];
    json_t *ref = NULL;
    berth_err err = { 0 };
    struct stat st;
    if (js_parse(str_c(text), text->n, NULL, &ref, &err))
        return 400;
    const char *name = json_string_value(json_object_get(ref, "filename"));
    const char *sub = json_string_value(json_object_get(ref, "subfolder"));
    const struct file_ref f = { .name = name ? name : "",
                                .type = json_string_value(json_object_get(ref, "type")),
                                .subfolder = sub ? sub : "" };
    int status = file_ref_find(u->base.server, &f, path);
    if (!status && (stat(path->p, &st) || !S_ISREG(st.st_mode)))
        str_clear(path);
    json_decref(ref);
    return status;
}

static berth_status put_alpha(const struct image *original, const struct image *mask,
                              struct image *out, berth_err *err)
{
    struct image alpha = { 0 };
    if (original->w != mask->w || original->h != mask->h)
        return err_set(err, BERTH_EINVAL, "the mask is %ux%u, the original %ux%u", mask->w, mask->h,
                       original->w, original->h);
    berth_status st = image_convert(original, 4, out, err);
    if (!st)
        st = image_convert(mask, 4, &alpha, err);
    for (size_t i = 0; !st && i < (size_t)out->w * out->h; i++)
        out->px[i * 4 + 3] = alpha.px[i * 4 + 3];
    image_release(&alpha);
    return st;
}

static berth_status make_mask(struct upload *u, const char *original, berth_err *err)
{
    struct image_file a = { 0 }, b = { 0 };
    struct image made = { 0 };
    char spool[32];
    snprintf(spool, sizeof spool, "/proc/self/fd/%d", file_new_fd(u->spool));
    berth_status st = picture_read(original, &a, err);
    if (!st && (st = picture_read(spool, &b, err)))
        err_add(err, "the uploaded mask");
    if (!st)
        st = put_alpha(&a.frame[0], &b.frame[0], &made, err);
    const struct image_png_args args = { .level = 4, .text = a.text, .texts = a.texts };
    if (!st)
        st = image_png(&made, &args, &u->png, err);
    image_release(&made);
    image_file_release(&b);
    image_file_release(&a);
    return st;
}

static void mask_compute(struct later *l)
{
    struct upload *u = (struct upload *)l;
    struct str original = { 0 };
    u->status = find_original(u, &original);
    u->has_original = !u->status && original.n;
    if (u->has_original)
        u->made = make_mask(u, original.p, &u->err);
    str_release(&original);
}

/* ---- the end ---- */

static berth_status store(struct upload *u, struct target *t, berth_err *err)
{
    bool there;
    berth_status st = path_make_dirs(str_c(&t->folder), err);
    if (!st)
        st = choose_name(u, t, &there, err);
    if (st || there)
        return st;
    if (u->mask && u->made) {
        *err = u->err;
        return u->made;
    }
    if (u->mask)
        return u->has_original ? file_write_all(t->path.p, u->png.p, u->png.n, err) : BERTH_OK;
    struct stat now;
    if (lstat(t->path.p, &now) == 0 && !S_ISREG(now.st_mode))
        return err_set(err, BERTH_EINVAL, "'%s' is not a file", str_c(&t->name));
    struct file_new *spool = u->spool;
    u->spool = NULL; /* it is closed in every case */
    return file_new_commit_as(spool, t->path.p, err);
}

static void upload_work(struct later *l)
{
    struct upload *u = (struct upload *)l;
    struct target t = { 0 };
    const char *why = "original_ref is not usable";
    int status = u->mask && u->status ? u->status : target_init(u, &t, &why);
    if (status)
        later_text(l, status, why);
    else
        l->failed = store(u, &t, &l->err);
    if (!status && !l->failed)
        later_json(l, 200,
                   json_pack("{s:s,s:s,s:s}", "name", str_c(&t.name), "subfolder",
                             str_c(&u->value[F_SUBFOLDER]), "type", t.type));
    target_release(&t);
}

static bool upload_begin(struct http_req *r)
{
    struct upload *u = later_new(r, sizeof *u, AUX_FILES, upload_work);
    if (!u)
        return false;
    u->base.release = upload_release;
    struct multipart_events ev = { u, on_part, on_data };
    if (multipart_new(http1_get(r->h, "content-type"), &ev, &u->mp, &u->err)) {
        reply_trouble(r, &u->err);
        later_free(&u->base);
        return false;
    }
    r->sink = u;
    return true;
}

static bool upload_write(struct http_req *r, const char *p, size_t n)
{
    struct upload *u = r->sink;
    berth_err err = { 0 };
    if (!multipart_feed(u->mp, p, n, &err))
        return true;
    if (u->status) {
        struct str text = { 0 };
        err_without_folders(&u->err, &text);
        http_reply_take(r, u->status, "text/plain; charset=utf-8", &text);
    } else {
        reply_trouble(r, &err);
    }
    return false;
}

const struct http_sink sink_upload = { upload_begin, upload_write, later_abort };

static void finish(struct http_req *r, bool mask)
{
    struct upload *u = r->sink;
    r->sink = NULL;
    u->mask = mask;
    u->base.compute = mask ? mask_compute : NULL;
    if (!multipart_done(u->mp)) {
        http_reply_text(r, 400, "the body ends before its last boundary");
    } else if (!u->has_file || u->filename.n == 0 || u->filename.bad) {
        http_reply_empty(r, 400);
    } else {
        later_run(&u->base);
        return;
    }
    later_free(&u->base);
}

void route_upload_image(struct http_req *r)
{
    finish(r, false);
}

void route_upload_mask(struct http_req *r)
{
    finish(r, true);
}
