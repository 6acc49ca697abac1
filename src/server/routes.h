/* routes: what the route_*.c share: their declarations, out of routes.def, and small helpers.
 *
 * Later      Work that touches disks or takes long runs on a lane of aux: later_new(), fill in what
 *            work() needs, later_run(). That holds the request, calls work() on the lane, then
 *            sends the answer that work() left in the struct, on the loop. A lane is one thread:
 *            work() of two requests on AUX_FILES never overlaps, so settings are read, changed and
 *            written there, and a name that is free stays free until it is taken. On the other
 *            lanes work() only reads: it is skipped when the client is gone or the server ends.
 * Threads    Loop, except compute() and work().
 * Files      routes.c these helpers; tree.c lists folders; one route_*.c per family of routes. */
#pragma once

#include "base/vec.h"
#include "image/image.h"
#include "server/server_impl.h"

#define ROUTE(methods, pattern, flags, handler) void route_##handler(struct http_req *r);
#define ROUTE_SINK(methods, pattern, flags, handler, sink_name)                                    \
    void route_##handler(struct http_req *r);                                                      \
    extern const struct http_sink sink_##sink_name;
#define ROUTE_JSON(methods, pattern, flags, fill) void fill(struct server *s, struct str *out);
#define ROUTE_LATER(methods, pattern, flags, lane, name) void later_##name(struct later *l);
#define ROUTE_FIXED(methods, pattern, status, type, text)
struct later;
#include "server/routes.def"

/* ---- later ---- */
struct later {
    struct server *server;
    struct http_req *r; /* held by later_run(); work() may read its params, query, user and body */
    enum aux_lane lane; /* of work() */
    void (*compute)(struct later *l); /* AUX_PICTURES, before work(); NULL: nothing to compute */
    void (*work)(struct later *l);
    void (*release)(struct later *l); /* loop: what the struct around it owns; NULL: nothing */
    json_t *json;                     /* owned: what work() needs of the body */
    size_t gzip_from;                 /* bytes of the body from which on it is packed */
    bool packed;                      /* it is */
    berth_status failed; /* work() did, for the reason in err: the answer is later_err(l, 0) */
    berth_err err;
    /* the answer, work() fills it */
    int status;       /* 200 until somebody says otherwise */
    const char *type; /* static; NULL: JSON, or none without a body */
    struct str body;
    char *disposition;              /* Content-Disposition; NULL: none */
    void (*after)(struct later *l); /* loop, once the answer has gone out; NULL: nothing */
};
typedef void later_fn(struct later *l);
/* A zeroed struct of that size that begins with a struct later. NULL: no memory; it replied. */
void *later_new(struct http_req *r, size_t size, enum aux_lane lane, later_fn *work);
void *later_new_json(struct http_req *r, size_t size, enum aux_lane lane, later_fn *work,
                     json_t *taken);
/* Takes l, and releases it once its answer has gone out, or now if too much is waiting (503). */
void later_run(struct later *l);
/* later_new() and later_run() of work that needs nothing but its request. */
void later_start(struct http_req *r, enum aux_lane lane, later_fn *work);
struct route_work {
    enum aux_lane lane;
    later_fn *work;
};
void route_later(struct http_req *r); /* later_start() of what its route says */
void later_free(struct later *l);     /* instead of later_run() */
void later_abort(struct http_req *r); /* of a sink whose r->sink is a struct later */
/* Answers of work(). */
void later_text(struct later *l, int status, const char *text);
void later_json(struct later *l, int status, json_t *taken);       /* NULL: 500 */
void later_err(struct later *l, int status, const berth_err *err); /* status 0: err_http_status() */
void later_err_json(struct later *l, int status, const berth_err *err); /* {"error": message} */

void reply_wrong(struct http_req *r, const char *text); /* 400, {"error": text} */
/* A text reply of an error, with err_http_status(). */
void reply_trouble(struct http_req *r, const berth_err *err);

/* ---- values as Python takes them ---- */
/* Python's int(text): spaces around, a sign, digits. Clamped to int64. */
WARN_UNUSED bool py_int(const char *s, size_t n, int64_t *out);
/* An integer of the query. *given: is it there? False: it is there and not an integer. */
WARN_UNUSED bool query_int(const struct http_req *r, const char *name, bool *given, int64_t *out);
bool query_is(const struct http_req *r, const char *name, const char *word);
bool query_true(const struct http_req *r, const char *name); /* "true" in any case */

#define UUID_TEXT 37
void uuid4_text(char out[UUID_TEXT]); /* with dashes, as uuid.uuid4() prints */

bool is_uuid(const json_t *v); /* a text, spelled as uuid4_text() spells them */

/* The strings in the array v, borrowed; free() *out. False: no memory. */
WARN_UNUSED bool json_ids(const json_t *v, const char ***out, size_t *n);

/* "a/./b/../c" -> "a/c", like os.path.normpath(); "" is the root itself. False: absolute, or it
 * leaves the root. Appends. */
WARN_UNUSED bool rel_normalise(const char *s, size_t n, struct str *out);
/* Behind the last '/'. */
const char *path_base(const char *path);
size_t path_depth(const char *rel); /* parts of a normalised name: "" 0, "a" 1, "a/b" 2 */
/* filename="x" for a header: quotes and backslashes escaped, control characters dropped. */
void disposition_text(const char *name, struct str *out);

/* ---- folders listed ---- */
struct tree_entry {
    char *rel; /* '/' separators, relative to the root of the listing */
    bool dir;
    uint64_t size;
    double modified, changed; /* seconds */
};
struct tree_args {
    bool recurse, dirs; /* dirs: folders are entries too */
    bool hidden;        /* names that begin with a dot too, and what is in such folders */
};
#define TREE_MAX 200000 /* entries */
#define TREE_DEPTH 64   /* parts of a folder's name; deeper ones are left out, and never made */
/* *out: struct tree_entry; always tree_release() it. Folder by folder, names sorted within each.
 * Linked folders are listed but not entered. Any thread; blocks on disk. BERTH_ENOTFOUND: no such
 * folder. BERTH_ELIMIT beyond TREE_MAX. */
berth_status tree_list(const char *root, const struct tree_args *args, struct vec *out,
                       berth_err *err);
void tree_release(struct vec *t);
double stat_seconds(struct timespec t);

/* ---- across files ---- */
/* The folder of a `type` of /view and uploads: output, input or temp; NULL: another. */
const char *folder_of_type(const struct server *s, const char *type);
/* The file that a name ("x.png [temp]"), a type (NULL: output) and a subfolder mean in one of those
 * folders; it need not exist. base: ignore folders in the name. 0, or 400 for a malformed name or
 * type, 403 for one that leads out of its folder, 404. Any thread. */
struct file_ref {
    const char *name, *type, *subfolder;
    bool base;
};
int file_ref_find(const struct server *s, const struct file_ref *f, struct str *path);
/* The folder of the request's user, <user>/<id>; it need not exist. 0, or 401 for an unknown user
 * (NULL too), 503 if the list of users cannot be read, 500. Any thread. */
int user_root(const struct server *s, const char *id, struct str *out);
/* A picture file, decoded. Any thread. */
berth_status picture_read(const char *path, struct image_file *out, berth_err *err);
/* A worker_done_fn that replies to a held request with what the worker did (route_berth.c). */
void reply_worker(struct server *s, void *user, berth_status st, const berth_err *err,
                  struct str *text);
/* Reads a change of a model; only `known` members are allowed. worker_change_release() it
 * always. */
berth_status read_change(const json_t *body, const char *const *known, struct worker_change *c,
                         berth_err *err);
/* The MIME type, by name, of a file that a client may have uploaded. What a browser would run as
 * part of this site (pages, scripts, styles, SVG) is served as bytes to be saved (*bytes), except
 * SVG that an <img> asks for. Adds headers. */
const char *harmless_type(struct http_req *r, const char *name, bool *bytes);
